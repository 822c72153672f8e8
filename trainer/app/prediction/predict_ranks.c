/* predict_ranks.c: see predict_ranks.h. */
#include "trainer/app/prediction/predict_ranks.h"

#include "proto/base/histogram.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/app/ranks/launch.h"
#include "trainer/app/ranks/ranks.h"
#include "trainer/app/samples/private_server.h"
#include "trainer/dist/board.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_BYTES = 64, NUMBER_BYTES = 16 };

/* The variable by which the command tells its ranks the pipe of the results. */
static const char pipe_name[] = "FOLDMILL_RESULTS";

/* What the first rank of a group reports. A pipe does not mix records that are this small. */
typedef struct record {
    int32_t signal; /* the group was asked to stop by this signal; 0: a prediction */
    uint32_t n_chain, chain, run;
    uint32_t n_res, n_seq, n_templ;
    fm_result result;
    char name[FM_LIMIT_NAME_BYTES + 1];
} record;
static_assert(sizeof(record) <= PIPE_BUF, "a record is written at once");

/* -- in the command */

typedef struct command {
    const fm_predict_run_options *run;
    fm_results *results;
    int pipe;
    fm_predict_pace pace;
    uint64_t n_failed; /* of the predictions in `pace` */
    uint64_t begin_ns;
    fm_status status; /* of reading the records, with `error` */
    fm_error error;
} command;

/* Counts a prediction. The command does not know which chains are left to the ranks, so each counts
 * as an average one. */
static void count(command *c, const fm_result *result) {
    fm_predict_pace *pace = &c->pace;
    pace->n_all = (uint64_t)c->results->n_chain * c->results->n_run;
    pace->n_done++;
    pace->n_resumed += result->is_resumed;
    c->n_failed += result->status ? 1 : 0;
    pace->elapsed_s = (double)(fm_clock_ns() - c->begin_ns) * 1e-9;
    const uint64_t n_made = pace->n_done - pace->n_resumed;
    pace->left_s =
        n_made ? pace->elapsed_s * (double)(pace->n_all - pace->n_done) / (double)n_made : NAN;
}

static fm_status take_record(command *c, const record *r, fm_error *reterr) {
    if (r->signal) {
        fm_stop_request(FM_STOP_SIGNAL, r->signal);
        return FM_OK;
    }
    fm_status status = fm_predict_make_results(c->run, r->n_chain, c->results, reterr);
    if (status) return status;
    if (r->chain >= c->results->n_chain || r->run >= c->results->n_run) {
        return fm_fail(reterr, FM_ERR_PROTOCOL, "a rank reported prediction %u of chain %u of %u",
                       r->run, r->chain, c->results->n_chain);
    }
    fm_result_chain *chain = &c->results->chain[r->chain];
    status = fm_results_name_chain(chain, r->name, reterr);
    if (status) return status;
    chain->n_res = r->n_res;
    chain->n_seq = r->n_seq;
    chain->n_templ = r->n_templ;
    chain->result[r->run] = r->result;
    count(c, &r->result);
    if (c->run->on_result) {
        c->run->on_result(c->run->context, chain, &c->results->run[r->run], &chain->result[r->run],
                          &c->pace);
    }
    return FM_OK;
}

/* Takes all records that have come. */
static void look(void *context) {
    command *c = context;
    record r;
    for (;;) {
        ssize_t n = read(c->pipe, &r, sizeof r);
        if (n < 0 && errno == EINTR) continue;
        if (n != (ssize_t)sizeof r) return; /* none is left */
        r.name[FM_LIMIT_NAME_BYTES] = r.result.why[sizeof r.result.why - 1] = '\0';
        if (!c->status) c->status = take_record(c, &r, &c->error);
    }
}

static fm_status open_pipe(int ends[2], fm_error *reterr) {
    char number[NUMBER_BYTES];
    bool is_open = pipe2(ends, O_CLOEXEC) == 0;
    if (!is_open || fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0 || fcntl(ends[1], F_SETFD, 0) < 0) {
        if (is_open) close(ends[0]);
        if (is_open) close(ends[1]);
        return fm_fail(reterr, FM_ERR_IO, "cannot open a pipe: %s", strerror(errno));
    }
    snprintf(number, sizeof number, "%d", ends[1]);
    setenv(pipe_name, number, 1);
    return FM_OK;
}

/* Asks for what is known about the predicted chains, for their pages. */
static fm_status learn_about_chains(command *c, fm_error *reterr) {
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < c->results->n_chain && c->run->about && !status; i++) {
        fm_result_chain *chain = &c->results->chain[i];
        if (!chain->name) continue;
        status = c->run->about(c->run->about_context, chain->name, &chain->about, reterr);
    }
    return status;
}

static fm_status judge(command *c, int code, fm_error *reterr) {
    if (c->status) {
        *reterr = c->error;
        return c->status;
    }
    if (code) {
        return fm_fail(reterr, FM_ERR_CLOSED,
                       "a rank has failed; --resume keeps the %llu finished predictions",
                       (unsigned long long)(c->pace.n_done - c->n_failed));
    }
    if (fm_stop_is_asked()) return fm_fail(reterr, FM_ERR_CANCELLED, "stopped on request");
    fm_status status = fm_predict_make_results(c->run, 0, c->results, reterr);
    return status ? status : learn_about_chains(c, reterr);
}

fm_status fm_predict_ranks_run(const fm_predict_ranks_options *options,
                               const fm_predict_run_options *run, fm_results *ret_results,
                               fm_error *reterr) {
    command c = {.run = run, .results = ret_results, .begin_ns = fm_clock_ns()};
    const fm_launch_options launch = {.program = options->program,
                                      .argc = options->argc,
                                      .argv = options->argv,
                                      .n_rank = options->n_rank,
                                      .meets = options->dap,
                                      .divides = options->divides,
                                      .began_ns = c.begin_ns,
                                      .look = look,
                                      .context = &c};
    int ends[2], code;
    *ret_results = (fm_results){.chain = NULL};
    fm_status status = open_pipe(ends, reterr);
    if (status) return status;
    c.pipe = ends[0];
    setenv(fm_private_server_name, run->chains.url, 1);
    status = fm_launch(&launch, &code, reterr);
    unsetenv(pipe_name);
    unsetenv(fm_private_server_name);
    close(ends[0]);
    close(ends[1]);
    return status ? status : judge(&c, code, reterr);
}

/* -- in a rank */

struct fm_predict_rank {
    int32_t first;  /* rank of the whole command that is the first of this group */
    int32_t place;  /* in the group */
    uint32_t group; /* of n_group */
    uint32_t n_group;
    fm_ranks *ranks; /* of the group; NULL: this one is alone */
    const fm_groups *groups;
    char program[NAME_BYTES]; /* for messages */
    int pipe;
    /* Of a run. */
    const fm_predict_run_options *run;
    bool is_agreed;                       /* all ranks of the group know that they stop */
    uint32_t n_chain, first_chain, n_own; /* of all groups; this group's */
    uint64_t *own;                        /* [n_own] numbers of chains */
    fm_results results;
};

const char *fm_predict_rank_server(void) {
    return getenv(pipe_name) && getenv(fm_world_rank_name) ? getenv(fm_private_server_name) : NULL;
}

static fm_status meet(fm_predict_rank *rank, const fm_predict_ranks_options *options,
                      const fm_world *world, const char *device, const char *dtype,
                      fm_error *reterr) {
    const fm_layout layout = {options->dap, 1, 1};
    const fm_kernels *kernels;
    fm_world of_group = *world;
    of_group.rank = rank->place;
    of_group.size = options->dap;
    fm_world_put_gpu_first(world);
    fm_status status = fm_device_find(device, dtype, &kernels, reterr);
    if (!status) fm_ranks_stay_near(kernels);
    if (status || options->dap == 1) return status;
    status = fm_ranks_open(rank->program, &of_group, &layout, &rank->ranks, reterr);
    if (status) return status;
    status = fm_ranks_join(rank->ranks, device, kernels, &rank->groups, reterr);
    if (!status && rank->groups->entry) atomic_store(&rank->groups->entry->predicts, 1);
    return status;
}

fm_status fm_predict_rank_open(const fm_predict_ranks_options *options, const char *device,
                               const char *dtype, fm_predict_rank **ret_rank, fm_error *reterr) {
    fm_world world;
    bool found;
    fm_status status = fm_world_find(NULL, &found, &world, reterr);
    if (status) return status;
    if (!found || world.size != options->n_rank) {
        fprintf(stderr, "%s: this process is a rank of another command\n", options->program);
        return FM_ERR_USAGE;
    }
    fm_predict_rank *rank = calloc(1, sizeof *rank);
    if (!rank) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a rank");
    const char *number = getenv(pipe_name);
    rank->pipe = number ? (int)strtol(number, NULL, 10) : -1;
    rank->place = world.rank % options->dap;
    rank->first = world.rank - rank->place;
    rank->group = (uint32_t)(world.rank / options->dap);
    rank->n_group = (uint32_t)(options->n_rank / options->dap);
    if (rank->n_group == 1 || options->dap == 1) {
        snprintf(rank->program, sizeof rank->program, "%s", options->program);
    } else {
        snprintf(rank->program, sizeof rank->program, "%s: group %u", options->program,
                 rank->group);
    }
    fm_stop_catch(false);
    *ret_rank = rank;
    status = meet(rank, options, &world, device, dtype, reterr);
    if (!status) return FM_OK;
    if (status != FM_ERR_CANCELLED) fm_predict_rank_fail(rank, reterr);
    fm_predict_rank_close(rank);
    *ret_rank = NULL;
    return status;
}

void fm_predict_rank_fail(fm_predict_rank *rank, const fm_error *error) {
    char text[FM_ERROR_TEXT_BYTES];
    if (rank->ranks) {
        fm_ranks_fail(rank->ranks, error);
        return;
    }
    fm_error_format(error, text, sizeof text);
    fprintf(stderr, "%s: rank %d: %s\n", rank->program, (int)(rank->first + rank->place), text);
}

void fm_predict_rank_close(fm_predict_rank *rank) {
    if (!rank) return;
    fm_ranks_close(rank->ranks);
    free(rank->own);
    fm_results_release(&rank->results);
    free(rank);
}

/* Reports to the command. If the command is gone, the kernel is ending this process, too. */
static void report(const fm_predict_rank *rank, const record *r) {
    ssize_t n = write(rank->pipe, r, sizeof *r);
    (void)n;
}

static void report_result(void *context, const fm_result_chain *chain, const fm_result_run *run,
                          const fm_result *result, const fm_predict_pace *pace) {
    const fm_predict_rank *rank = context;
    record r = {.n_chain = rank->n_chain,
                .chain = rank->first_chain + (uint32_t)(chain - rank->results.chain),
                .run = (uint32_t)(run - rank->results.run),
                .n_res = chain->n_res,
                .n_seq = chain->n_seq,
                .n_templ = chain->n_templ,
                .result = *result};
    (void)pace;
    snprintf(r.name, sizeof r.name, "%s", chain->name);
    report(rank, &r);
}

static void show_model(void *context, uint32_t model, const fm_predict_model *loaded) {
    const fm_predict_rank *rank = context;
    if (rank->run->on_model) rank->run->on_model(rank->run->context, model, loaded);
}

/* All ranks of the group begin the next chain, or none does. */
static fm_status may_begin(void *context, fm_error *reterr) {
    fm_predict_rank *rank = context;
    int32_t own = fm_stop_signal(), all[FM_LAYOUT_DAP] = {0};
    all[0] = own;
    fm_status status =
        rank->ranks ? fm_ranks_gather(rank->ranks, &own, sizeof own, all, reterr) : FM_OK;
    for (int32_t r = 0; r < FM_LAYOUT_DAP && !status; r++) {
        if (!all[r]) continue;
        fm_stop_request(FM_STOP_SIGNAL, all[r]);
        rank->is_agreed = true;
        status = fm_fail(reterr, FM_ERR_CANCELLED, "stopped on request");
    }
    return status;
}

/* Lists the chains of this group: a block of neighbours, which the server prepares one after the
 * other. */
static fm_status share_out(fm_predict_rank *rank, const fm_chains_options *all, fm_error *reterr) {
    fm_chains_options options = *all;
    fm_chains *chains;
    options.n_cycle = options.max_msa_clusters = options.max_extra_msa = 1;
    fm_status status = fm_chains_open(&options, &chains, reterr);
    if (status) return status;
    const uint64_t n = rank->n_chain = fm_chains_n(chains);
    fm_chains_close(chains);
    rank->first_chain = (uint32_t)(n * rank->group / rank->n_group);
    rank->n_own = (uint32_t)(n * (rank->group + 1) / rank->n_group) - rank->first_chain;
    rank->own = calloc(rank->n_own + 1, sizeof *rank->own);
    if (!rank->own) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of chains");
    for (uint32_t i = 0; i < rank->n_own; i++) {
        uint32_t at = rank->first_chain + i;
        rank->own[i] = all->only ? all->only[at] : at;
    }
    return FM_OK;
}

static fm_status run_own_chains(fm_predict_rank *rank, const fm_predict_run_options *all,
                                fm_error *reterr) {
    fm_predict_run_options own = *all;
    fm_predict_model_options model[FM_PREDICT_MOST_MODELS];
    for (uint32_t m = 0; m < all->n_model; m++) {
        model[m] = all->model[m];
        model[m].groups = rank->groups;
    }
    own.model = model;
    own.chains.only = rank->own;
    own.chains.n_only = rank->n_own;
    own.only_computes = rank->place > 0;
    own.may_begin = may_begin;
    own.may_begin_context = rank;
    own.on_model = rank->first == 0 && rank->place == 0 ? show_model : NULL;
    own.on_result = own.only_computes ? NULL : report_result;
    own.context = rank;
    rank->run = all;
    return rank->n_own ? fm_predict_run(&own, &rank->results, reterr) : FM_OK;
}

fm_status fm_predict_rank_run(fm_predict_rank *rank, const fm_predict_run_options *run,
                              fm_error *reterr) {
    fm_status status = share_out(rank, &run->chains, reterr);
    if (!status) status = may_begin(rank, reterr);
    if (!status) status = run_own_chains(rank, run, reterr);
    /* A signal that ended the wait for a chain is not known to the others, which wait for this rank
     * before the next chain. */
    if (status == FM_ERR_CANCELLED && !rank->is_agreed) status = may_begin(rank, reterr);
    if (status == FM_ERR_CANCELLED) {
        const record stopped = {.signal = fm_stop_signal()};
        if (rank->place == 0) report(rank, &stopped);
        status = FM_OK;
    }
    if (status) {
        fm_predict_rank_fail(rank, reterr);
    } else if (rank->ranks) {
        fm_ranks_leave(rank->ranks);
    }
    return status;
}
