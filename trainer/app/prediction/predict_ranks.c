/* predict_ranks.c: see predict_ranks.h. */
#include "trainer/app/prediction/predict_ranks.h"

#include "proto/base/histogram.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/samples/private_server.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    fm_predict_pace pace;
    uint64_t n_failed; /* of the predictions in `pace` */
    uint64_t begin_ns;
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

static fm_status take_record(void *context, const void *data, fm_error *reterr) {
    command *c = context;
    record copy, *r = &copy;
    memcpy(r, data, sizeof *r);
    r->name[FM_LIMIT_NAME_BYTES] = r->result.why[sizeof r->result.why - 1] = '\0';
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
    const fm_predict_reports reports = {sizeof(record), take_record, &c};
    int code;
    *ret_results = (fm_results){.chain = NULL};
    setenv(fm_private_server_name, run->chains.url, 1);
    fm_status status = fm_predict_group_launch(options, &reports, &code, reterr);
    unsetenv(fm_private_server_name);
    return status ? status : judge(&c, code, reterr);
}

/* -- in a rank */

/* The work of a rank. */
typedef struct rank {
    fm_predict_group *group;
    const fm_predict_run_options *run;
    uint32_t n_chain, first_chain, n_own; /* of all groups; this group's */
    uint64_t *own;                        /* [n_own] numbers of chains */
    fm_results results;
} rank;

static void report_result(void *context, const fm_result_chain *chain, const fm_result_run *run,
                          const fm_result *result, const fm_predict_pace *pace) {
    const rank *by = context;
    record r = {.n_chain = by->n_chain,
                .chain = by->first_chain + (uint32_t)(chain - by->results.chain),
                .run = (uint32_t)(run - by->results.run),
                .n_res = chain->n_res,
                .n_seq = chain->n_seq,
                .n_templ = chain->n_templ,
                .result = *result};
    (void)pace;
    snprintf(r.name, sizeof r.name, "%s", chain->name);
    fm_predict_group_report(by->group, &r, sizeof r);
}

static void show_model(void *context, uint32_t model, const fm_predict_model *loaded) {
    const rank *by = context;
    if (by->run->on_model) by->run->on_model(by->run->context, model, loaded);
}

static fm_status may_begin(void *context, fm_error *reterr) {
    rank *by = context;
    return fm_predict_group_agree(by->group, NULL, reterr);
}

/* Lists the chains of this group: a block of neighbours, which the server prepares one after the
 * other. */
static fm_status share_out(rank *by, const fm_chains_options *all, fm_error *reterr) {
    fm_chains_options options = *all;
    fm_chains *chains;
    options.n_cycle = options.max_msa_clusters = options.max_extra_msa = 1;
    fm_status status = fm_chains_open(&options, &chains, reterr);
    if (status) return status;
    const uint64_t n = by->n_chain = fm_chains_n(chains);
    fm_chains_close(chains);
    by->first_chain = (uint32_t)(n * by->group->number / by->group->n_group);
    by->n_own = (uint32_t)(n * (by->group->number + 1) / by->group->n_group) - by->first_chain;
    by->own = calloc(by->n_own + 1, sizeof *by->own);
    if (!by->own) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of chains");
    for (uint32_t i = 0; i < by->n_own; i++) {
        uint32_t at = by->first_chain + i;
        by->own[i] = all->only ? all->only[at] : at;
    }
    return FM_OK;
}

static fm_status run_own_chains(rank *by, const fm_predict_run_options *all, fm_error *reterr) {
    fm_predict_run_options own = *all;
    fm_predict_model_options model[FM_PREDICT_MOST_MODELS];
    for (uint32_t m = 0; m < all->n_model; m++) {
        model[m] = all->model[m];
        model[m].groups = by->group->groups;
    }
    own.model = model;
    own.chains.only = by->own;
    own.chains.n_only = by->n_own;
    own.only_computes = by->group->place > 0;
    own.may_begin = may_begin;
    own.may_begin_context = by;
    own.on_model = by->group->first == 0 && by->group->place == 0 ? show_model : NULL;
    own.on_result = own.only_computes ? NULL : report_result;
    own.context = by;
    by->run = all;
    return by->n_own ? fm_predict_run(&own, &by->results, reterr) : FM_OK;
}

fm_status fm_predict_rank_run(fm_predict_group *group, const fm_predict_run_options *run,
                              fm_error *reterr) {
    rank r = {.group = group};
    record stopped = {0};
    fm_status status = share_out(&r, &run->chains, reterr);
    if (!status) status = may_begin(&r, reterr);
    if (!status) status = run_own_chains(&r, run, reterr);
    status = fm_predict_group_end(group, status, &stopped.signal, reterr);
    if (stopped.signal && group->place == 0) {
        fm_predict_group_report(group, &stopped, sizeof stopped);
    }
    free(r.own);
    fm_results_release(&r.results);
    return status;
}
