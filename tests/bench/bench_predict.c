/* bench_predict.c: measures the inference pass on whole chains: time per chain, time of the first
 * runs (plan, code, capture), memory, and with --table the time of each module.
 *
 *     bench_predict --device cuda --dtype bf16 --lengths 256,384,768,1024
 *
 * Chains are synthetic (bench_trainer.h), and parameters are random. Each length runs twice with
 * two cycles, which queues and then captures both passes. Then it is timed with --cycles cycles.
 * The time to plan and take memory ("plan") and the two first runs are printed separately. With
 * --check, one cycle is compared with that of the reversed chain, and with small slabs.
 * --progress prints the plan of a chain before it runs and then the used memory, for runs of
 * minutes that may be cut short.
 *
 *     bench_predict --device cuda --dtype bf16 --many
 *
 * --many draws --chains lengths from --shortest to --longest and runs the chains as `foldmill
 * predict` does: ordered by length, each padded to the next recorded length, every new recording
 * within the time. The sum is divided by the sum of the chains' single times: each recorded at
 * exactly its length and timed when the recording has run before. A kernel may be slower at a
 * length that is no multiple of 16, so a chain that is faster padded counts with that time.
 *
 * With --by-cycle a single time is that of one replayed cycle on the GPU, times the cycles. It has
 * neither copies nor work of the host, so the sum is less than that of runs and the ratio larger.
 * Long chains run two cycles for it in place of six. Some chains are timed both ways.
 *
 * With --dap D each chain is split over D processes with a GPU each. Rank 0 prints, and the printed
 * memory plan is that of rank 0.
 *
 * Beside the time of a GPU are three floors, each of one resource alone at an H200's rate: floating
 * point operations of matrix products and attention, bytes that nodes read and write (inputs and
 * outputs once, nothing inside a node), exponentials of softmaxes. */
#include "proto/base/options.h"
#include "tests/bench/bench_table.h"
#include "tests/bench/bench_trainer.h"
#include "tests/bench/graph_clock.h"
#include "tests/testing/ranks.h"
#include "tests/testing/testing.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/app/device/device_groups.h"
#include "trainer/app/samples/sample_features.h"
#include "trainer/app/settings/setup.h"
#include "trainer/backend/cpu_threads.h"
#include "trainer/infer/infer.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    WAIT_S = 60,   /* that a rank may keep the others waiting */
    RANKS_S = 600, /* that a run of several ranks may take */
};

static const size_t SAMPLE_BYTES = (size_t)64 << 30; /* address space */
static const double GIB = 1 << 30;

typedef struct settings {
    const char *device, *dtype, *preset, *config, *lengths, *backend;
    uint64_t cycles, rounds, warm_up, threads, clusters, extra, budget_gib, chunk_mib;
    uint64_t chains, shortest, longest, seed, every, from, dap;
    bool table, direct, losses, check, many, by_cycle, triangles, progress;
} settings;

typedef struct bench {
    const settings *set;
    fm_arena arena;
    fm_meeting *meeting; /* of the ranks; NULL: one process */
    fm_device_groups groups;
    fm_infer_options options;
    fm_infer *infer;
    fm_features features;
    double record_s; /* of the last run: to plan and take memory, 0 for a kept recording */
} bench;

static double flops_of(const fm_tape *tape) {
    double flops = 0;
    for (int32_t i = 0; i < tape->n_step; i++)
        flops += tape->step[i].flops;
    return flops;
}

/* Bytes of the inputs and outputs of all nodes. */
static double bytes_of(const fm_tape *tape) {
    double bytes = 0;
    for (int32_t i = 0; i < tape->n_forward; i++) {
        const fm_node *node = &tape->node[tape->step[i].node];
        for (int k = 0; k < node->n_input + node->n_output; k++) {
            fm_tensor_ref ref =
                k < node->n_input ? node->input[k] : node->output[k - node->n_input];
            if (ref != FM_TENSOR_NONE) bytes += (double)fm_tensor_local_bytes(&tape->tensor[ref]);
        }
    }
    return bytes;
}

/* Logits of all attentions of a cycle, each of which is an exponential. */
static double exponentials_of(const fm_model_config *c) {
    const double n = (double)c->n_res, rows = (double)fm_model_config_rows(c);
    const double extra = (double)c->n_extra, heads = (double)c->n_head_msa;
    const double pair = 2 * (double)c->n_head_pair * n * n * n;
    const double block = heads * n * rows * (n + rows) + pair;
    const double extra_block = heads * n * extra * (n + 1) + pair;
    const double templates = (double)c->n_template * 2 * (double)c->n_head_template * n * n * n;
    return (double)c->n_block * block + (double)c->n_extra_block * extra_block +
           (double)c->n_template_block * templates;
}

static fm_status run_once(bench *b, uint32_t n_cycle, double *ret_seconds, fm_error *reterr) {
    fm_infer_result result;
    size_t mark = fm_arena_mark(&b->arena);
    double before = now_s();
    b->features.n_cycle = n_cycle;
    fm_status status = fm_infer_run(b->infer, &b->features, &b->arena, &result, reterr);
    *ret_seconds = now_s() - before;
    if (!status) b->record_s = result.record_s;
    fm_arena_rewind(&b->arena, mark);
    return status;
}

/* Reads the stamps of a tape and adds its steps. */
static void add_stamps(bench *b, const fm_forward *passes, int tape_of, table *to) {
    const fm_recording *r = &passes->recording;
    const fm_tape *tape = &r->tape[tape_of];
    const size_t count = (size_t)tape->n_step + 1;
    uint64_t *host = own(&b->arena, count, sizeof *host);
    r->options.kernels->download(r->stream, host, tape->stamp, count * sizeof *host);
    r->options.kernels->synchronize(r->stream);
    add_tape(to, tape, host);
}

static fm_status print_tables(bench *b, fm_error *reterr) {
    fm_forward *passes = fm_infer_get_recording(b->infer);
    static table cycle, last;
    double unused;
    cycle.n = last.n = 0;
    fm_status status = fm_recording_stamp(&passes->recording, 0, reterr);
    if (!status) status = run_once(b, 2, &unused, reterr);
    if (status) return status;
    add_stamps(b, passes, FM_FORWARD_RESULTS, &last);
    if (passes->options.has_losses) {
        add_stamps(b, passes, FM_FORWARD_BEFORE, &cycle);
        print_table("cycle", &cycle);
    }
    print_table(passes->options.has_losses ? "last cycle" : "cycle", &last);
    return FM_OK;
}

static fm_status make_chain_of(bench *b, int64_t n_res, fm_error *reterr) {
    fm_model_config shape = b->options.model;
    shape.n_res = n_res;
    return fm_features_of(bench_make_sample(&b->arena, &shape, 1), &b->features, reterr);
}

/* -- checks */

static void reverse(void *values, size_t lines, size_t n, size_t bytes) {
    char *at = values, keep[N_ATOM37 * 3 * sizeof(float)];
    for (size_t line = 0; line < lines; line++, at += n * bytes) {
        for (size_t i = 0; i < n / 2; i++) {
            char *x = at + i * bytes, *y = at + (n - 1 - i) * bytes;
            memcpy(keep, x, bytes);
            memcpy(x, y, bytes);
            memcpy(y, keep, bytes);
        }
    }
}

/* Turns the chain round, in place: residues, alignments and templates. The arrays are the bench's
 * own. */
static void reverse_chain(const fm_features *f) {
    const size_t n = f->n_res;
    reverse((void *)(uintptr_t)f->aatype, 1, n, 1);
    reverse((void *)(uintptr_t)f->residue_index, 1, n, sizeof *f->residue_index);
    reverse((void *)(uintptr_t)f->template_aatype, f->n_templ, n, 1);
    reverse((void *)(uintptr_t)f->template_all_atom_positions, f->n_templ, n,
            N_ATOM37 * 3 * sizeof(float));
    reverse((void *)(uintptr_t)f->template_all_atom_mask, f->n_templ, n, sizeof(uint64_t));
    for (uint32_t c = 0; c < f->n_cycle; c++) {
        const fm_cycle_features *of = &f->cycle[c];
        reverse((void *)(uintptr_t)of->msa, of->n_clust, n, 1);
        reverse((void *)(uintptr_t)of->deletion_matrix, of->n_clust, n, sizeof(uint16_t));
        reverse((void *)(uintptr_t)of->cluster_profile, of->n_clust, n,
                FM_MSA_CLASSES * fm_element_bytes(of->profile_element));
        reverse((void *)(uintptr_t)of->cluster_deletion_sum, of->n_clust, n, sizeof(uint32_t));
        reverse((void *)(uintptr_t)of->extra_msa, of->n_extra, n, 1);
        reverse((void *)(uintptr_t)of->extra_deletion_matrix, of->n_extra, n, sizeof(uint16_t));
    }
}

/* The mean and the largest difference of two arrays, of which b may be reversed. */
static void print_difference(const char *what, const float *a, const float *b, size_t n,
                             bool is_reversed) {
    double sum = 0, most = 0, mean = 0, square = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[is_reversed ? n - 1 - i : i]);
        sum += d, mean += (double)a[i], square += (double)a[i] * (double)a[i];
        most = d > most ? d : most;
    }
    mean /= (double)n;
    printf("check   %s: mean |difference| %.4g, most %.4g; values %.4g +- %.4g\n", what,
           sum / (double)n, most, mean, sqrt(square / (double)n - mean * mean));
}

/* One cycle of the chain, of the chain turned round, and of a recording in small slabs: they agree
 * to rounding wherever in memory an element is. */
static fm_status check(bench *b, fm_error *reterr) {
    fm_infer_result first, turned, slabs;
    b->features.n_cycle = 1;
    const size_t n = b->features.n_res;
    /* Torsions know a direction, so templates have no backbone but for CA and CB. */
    uint64_t *mask = (uint64_t *)(uintptr_t)b->features.template_all_atom_mask;
    for (size_t i = 0; i < b->features.n_templ * n; i++)
        mask[i] = 1u << 1 | 1u << 3;
    fm_status status = fm_infer_run(b->infer, &b->features, &b->arena, &first, reterr);
    if (status) return status;
    reverse_chain(&b->features);
    status = fm_infer_run(b->infer, &b->features, &b->arena, &turned, reterr);
    reverse_chain(&b->features);
    if (status) return status;
    print_difference("pLDDT, chain turned round", first.plddt, turned.plddt, n, true);
    fm_infer_options options = b->options;
    fm_infer *other;
    options.chunk_bytes = (int64_t)128 << 20;
    options.chunks_triangles = b->set->triangles;
    status = fm_infer_create(&options, &other, reterr);
    if (status) return status;
    const fm_params *from = fm_infer_get_params(b->infer), *to = fm_infer_get_params(other);
    from->kernels->copy(NULL, from->memory_bytes / (int64_t)fm_element_bytes(from->kernels->act),
                        from->memory, to->memory);
    from->kernels->synchronize(NULL);
    status = fm_infer_run(other, &b->features, &b->arena, &slabs, reterr);
    if (!status) print_difference("pLDDT, in slabs", first.plddt, slabs.plddt, n, false);
    if (!status) print_difference("atoms, in slabs", first.atoms, slabs.atoms, n * 42, false);
    fm_infer_destroy(other);
    return status;
}

/* seconds: of the timed run, of planning, of the first and of the second run. */
static void print_line(const bench *b, int64_t n_res, const fm_infer_need *need,
                       const double *seconds) {
    const double flop_rate = 989e12, byte_rate = 4.8e12, exponential_rate = 132 * 16 * 1.98e9;
    const fm_forward *passes = fm_infer_get_recording(b->infer);
    const fm_tape *last = &passes->recording.tape[FM_FORWARD_RESULTS];
    const fm_tape *others =
        passes->options.has_losses ? &passes->recording.tape[FM_FORWARD_BEFORE] : last;
    const double n = (double)(b->set->cycles - 1);
    double flops = flops_of(last) + n * flops_of(others);
    double bytes = bytes_of(last) + n * bytes_of(others);
    double exponentials = (n + 1) * exponentials_of(&passes->options.model);
    printf("%6lld  %9.3f  %7.2f  %7.2f  %7.2f  %8.2f  %8.2f  %7.1f  %8.3f  %8.3f  %8.3f  %s\n",
           (long long)n_res, seconds[0], seconds[1], seconds[2], seconds[3],
           (double)need->bytes / GIB, (double)b->options.kernels->device->used_bytes() / GIB,
           1e-12 * flops / seconds[0], flops / flop_rate, bytes / byte_rate,
           exponentials / exponential_rate, need->chunk_bytes ? "slabs" : "whole");
    fflush(stdout);
}

/* Makes a chain and runs it: the first two runs, and the least time of the others. A recording with
 * `predicts` is captured in the first run already. */
static fm_status time_chain(bench *b, int64_t n_res, double *ret_first, double *ret_second,
                            double *ret_least, fm_error *reterr) {
    const uint64_t most = b->options.exact && b->options.predicts ? 1 : 2;
    const uint64_t warm_up = b->set->warm_up < most ? b->set->warm_up : most;
    double least = INFINITY, seconds;
    fm_arena_reset(&b->arena);
    *ret_first = *ret_second = 0;
    fm_status status = make_chain_of(b, n_res, reterr);
    if (!status && warm_up > 0) status = run_once(b, 2, ret_first, reterr);
    if (!status && warm_up > 1) status = run_once(b, 2, ret_second, reterr);
    for (uint64_t r = 0; r < b->set->rounds && !status; r++) {
        status = run_once(b, (uint32_t)b->set->cycles, &seconds, reterr);
        least = seconds < least ? seconds : least;
    }
    *ret_least = least;
    return status;
}

/* -- progress */

/* Prints the device's memory while a long chain runs, so that a run that is cut short tells it. */
typedef struct watch {
    const fm_device *device;
    pthread_t thread;
    bool is_running;
    atomic_bool is_over;
} watch;

static void *print_progress(void *argument) {
    enum { EVERY_S = 10, LOOK_MS = 100 };
    const struct timespec pause = {.tv_nsec = (long)LOOK_MS * 1000000};
    watch *w = argument;
    const double begin = now_s();
    double next = EVERY_S;
    while (!atomic_load(&w->is_over)) {
        nanosleep(&pause, NULL);
        if (now_s() - begin < next) continue;
        printf("after %.0f s: %.2f GiB used\n", next, (double)w->device->used_bytes() / GIB);
        fflush(stdout);
        next += EVERY_S;
    }
    return NULL;
}

static fm_status begin_watch(watch *w, int64_t n_res, const fm_infer_need *need, fm_error *reterr) {
    printf("plan      %lld residues: %.2f GiB of %.2f, %s\n", (long long)n_res,
           (double)need->bytes / GIB, (double)need->available_bytes / GIB,
           need->chunk_bytes ? "slabs" : "whole arrays");
    fflush(stdout);
    w->is_running = !pthread_create(&w->thread, NULL, print_progress, w);
    if (w->is_running) return FM_OK;
    return fm_fail(reterr, FM_ERR_NOMEM, "cannot start a thread");
}

static void end_watch(watch *w) {
    atomic_store(&w->is_over, true);
    if (w->is_running) pthread_join(w->thread, NULL);
}

/* -- lengths */

/* One line of the table of lengths. */
static fm_status measure(bench *b, int64_t n_res, fm_error *reterr) {
    double first = 0, second = 0, least = 0, before = now_s();
    fm_infer_need need;
    fm_status status = fm_infer_find_need(b->infer, n_res, &need, reterr);
    double plan = now_s() - before;
    watch w = {.device = b->options.kernels->device};
    if (!status && b->set->progress) status = begin_watch(&w, n_res, &need, reterr);
    if (!status) status = time_chain(b, n_res, &first, &second, &least, reterr);
    end_watch(&w);
    if (status) return status;
    print_line(b, n_res, &need, (double[]){least, plan, first, second});
    if (b->set->check) status = check(b, reterr);
    return b->set->table && !status ? print_tables(b, reterr) : status;
}

/* Moves parameters away from their initial values, many of which are 0. */
static fm_status shake(const fm_params *params, fm_error *reterr) {
    size_t bytes = (size_t)params->n_element * sizeof(float);
    float *master = malloc(bytes);
    if (!master) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the parameters");
    params->kernels->download(NULL, master, params->master, bytes);
    params->kernels->synchronize(NULL);
    uint32_t state = 1;
    for (int32_t p = 0; p < params->n_param; p++) {
        for (int64_t i = 0; i < fm_param_count(&params->param[p]); i++)
            master[params->param[p].offset + i] += 0.05f * draw(&state);
    }
    params->kernels->upload(NULL, params->master, master, bytes);
    params->kernels->synchronize(NULL);
    free(master);
    return FM_OK;
}

/* Forms the group of the ranks that share each chain. */
static fm_status join(bench *b, fm_error *reterr) {
    const fm_layout layout = {(int32_t)b->set->dap, 1, 1};
    if (!b->meeting || b->options.groups) return FM_OK;
    fm_status status = fm_device_groups_create(&layout, b->options.kernels, b->meeting,
                                               b->set->backend, WAIT_S, NULL, &b->groups, reterr);
    b->options.groups = status ? NULL : b->groups.groups;
    return status;
}

static fm_status create(bench *b, fm_error *reterr) {
    fm_train_config config;
    fm_status status = fm_train_config_load(b->set->preset, b->set->config, &config, reterr);
    if (!status) {
        status = fm_device_find(b->set->device, b->set->dtype, &b->options.kernels, reterr);
    }
    if (!status && b->set->by_cycle) {
        b->options.kernels = graph_clock_open(b->options.kernels);
        if (!b->options.kernels) status = fm_fail(reterr, FM_ERR_NOMEM, "events were refused");
    }
    if (!status) status = join(b, reterr);
    if (status) return status;
    fm_cpu_use_threads((int)b->set->threads);
    b->options.model = config.model;
    if (b->set->clusters) b->options.model.n_seq = (int64_t)b->set->clusters;
    if (b->set->extra) b->options.model.n_extra = (int64_t)b->set->extra;
    b->options.heads = 1u << FM_HEAD_PLDDT | 1u << FM_HEAD_ALIGNED_ERROR;
    b->options.predicts = !b->set->losses;
    b->options.chunk_bytes = (int64_t)b->set->chunk_mib << 20;
    b->options.chunks_triangles = b->set->triangles;
    b->options.direct = b->set->direct;
    b->options.memory_budget_bytes = (int64_t)((double)b->set->budget_gib * GIB);
    memcpy(b->options.weight, config.loss, sizeof config.loss);
    status = fm_infer_create(&b->options, &b->infer, reterr);
    if (status) return status;
    fm_params_draw(fm_infer_get_params(b->infer), 1);
    status = shake(fm_infer_get_params(b->infer), reterr);
    if (status) return status;
    fm_params_refresh_copy(fm_infer_get_params(b->infer));
    return FM_OK;
}

static void print_model(const bench *b, double made_s) {
    char text[256];
    fm_infer_describe(b->infer, text, sizeof text);
    printf("model     preset %s, %lld + %lld + %lld rows, %llu cycles: %s, made in %.2f s\n",
           b->set->preset, (long long)b->options.model.n_seq,
           (long long)b->options.model.n_template, (long long)b->options.model.n_extra,
           (unsigned long long)b->set->cycles, text, made_s);
}

/* -- many chains */

typedef struct one_chain {
    int64_t n_res;
    double exact_s;  /* alone, at exactly its length */
    double whole_s;  /* the same by a whole run, where exact_s is by cycle and both are timed */
    double s;        /* among the others */
    double padded_s; /* of s, or by cycle: without making the recording */
    double record_s; /* of s: to make the recording */
} one_chain;

enum { WHOLE = 8 }; /* each such chain is timed both ways */

static int by_length(const void *a, const void *b) {
    const one_chain *x = a, *y = b;
    return (x->n_res > y->n_res) - (x->n_res < y->n_res);
}

/* Leaves the chains of each N-th recorded length (--every), and returns how many these are. */
static uint64_t keep_part(const settings *set, one_chain *chain) {
    uint64_t n = 0, at = 0;
    for (uint64_t i = 0; i < set->chains; i++) {
        const int64_t recorded = fm_infer_round(chain[i].n_res);
        at += i > 0 && recorded != fm_infer_round(chain[i - 1].n_res);
        if (at % set->every == set->from) chain[n++].n_res = chain[i].n_res;
    }
    return n;
}

/* Draws the lengths, and orders them as fm_chains does. Returns how many are run. */
static uint64_t draw_lengths(const settings *set, one_chain *chain) {
    uint32_t state = (uint32_t)set->seed;
    const double n_length = (double)(set->longest - set->shortest + 1);
    for (uint64_t i = 0; i < set->chains; i++) {
        const double part = ((double)draw(&state) + 1) / 2;
        chain[i].n_res = (int64_t)set->shortest + (int64_t)(part * n_length);
    }
    qsort(chain, set->chains, sizeof *chain, by_length);
    return keep_part(set, chain);
}

/* The time of all cycles, from the replays since graph_clock_begin. */
static fm_status take_cycles(const bench *b, int64_t n_res, double *ret_s, fm_error *reterr) {
    *ret_s = graph_clock_least_s() * (double)b->set->cycles;
    if (isfinite(*ret_s)) return FM_OK;
    return fm_fail(reterr, FM_ERR_UNSUPPORTED, "no graph was captured for %lld residues",
                   (long long)n_res);
}

/* The second cycle of a run is the first that is replayed. Where cycles are short it is launched on
 * an idle device, so those after it are timed, too. */
static fm_status time_by_cycle(bench *b, one_chain *at, bool also_whole, fm_error *reterr) {
    enum { LONG = 512 };
    double first;
    fm_arena_reset(&b->arena);
    fm_status status = make_chain_of(b, at->n_res, reterr);
    graph_clock_begin();
    const uint32_t n_cycle = at->n_res < LONG ? (uint32_t)b->set->cycles : 2;
    if (!status) status = run_once(b, n_cycle, &first, reterr);
    if (!status) status = take_cycles(b, at->n_res, &at->exact_s, reterr);
    if (status || !also_whole) return status;
    return run_once(b, (uint32_t)b->set->cycles, &at->whole_s, reterr);
}

static fm_status run_exactly(bench *b, one_chain *chain, uint64_t n_chain, fm_error *reterr) {
    double first, second;
    fm_status status;
    for (uint64_t i = 0; i < n_chain; i++) {
        one_chain *at = &chain[i];
        status = b->set->by_cycle ? time_by_cycle(b, at, i % WHOLE == WHOLE / 2, reterr)
                                  : time_chain(b, at->n_res, &first, &second, &at->exact_s, reterr);
        if (status) return status;
        printf("alone     %lld: %.3f s", (long long)at->n_res, at->exact_s);
        if (at->whole_s > 0) printf(" by cycle, %.3f s a whole run", at->whole_s);
        printf("\n");
        fflush(stdout);
    }
    return FM_OK;
}

static fm_status run_in_order(bench *b, one_chain *chain, uint64_t n_chain, fm_error *reterr) {
    fm_status status;
    for (uint64_t i = 0; i < n_chain; i++) {
        one_chain *at = &chain[i];
        fm_arena_reset(&b->arena);
        status = make_chain_of(b, at->n_res, reterr);
        graph_clock_begin();
        if (!status) status = run_once(b, (uint32_t)b->set->cycles, &at->s, reterr);
        at->record_s = b->record_s;
        at->padded_s = at->s - at->record_s;
        if (status) return status;
        if (b->set->by_cycle) status = take_cycles(b, at->n_res, &at->padded_s, reterr);
        if (status) return status;
        printf("in order  %lld: %.3f s, recorded in %.3f s\n", (long long)at->n_res, at->s,
               at->record_s);
        fflush(stdout);
    }
    return FM_OK;
}

static void print_sum(const char *recorded, uint64_t n, const one_chain *sum) {
    printf("%8s  %6llu  %9.3f  %9.3f  %9.3f  %6.3f\n", recorded, (unsigned long long)n,
           sum->exact_s, sum->s, sum->record_s, sum->s / sum->exact_s);
}

/* A line for each recorded length, and one for all. */
static void print_many(const one_chain *chain, uint64_t n_chain) {
    one_chain all = {0}, sum = {0};
    double exact_s = 0;
    uint64_t n = 0, n_faster = 0, n_recording = 0;
    printf("%8s  %6s  %9s  %9s  %9s  %6s\n", "recorded", "chains", "single s", "many s", "record s",
           "ratio");
    for (uint64_t i = 0; i < n_chain; i++) {
        const int64_t recorded = fm_infer_round(chain[i].n_res);
        const bool is_faster = chain[i].padded_s < chain[i].exact_s;
        const double single_s = is_faster ? chain[i].padded_s : chain[i].exact_s;
        n_faster += is_faster;
        exact_s += chain[i].exact_s;
        sum.exact_s += single_s, sum.s += chain[i].s, sum.record_s += chain[i].record_s;
        all.exact_s += single_s, all.s += chain[i].s, all.record_s += chain[i].record_s;
        n++;
        if (i + 1 < n_chain && fm_infer_round(chain[i + 1].n_res) == recorded) continue;
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)recorded);
        print_sum(text, n, &sum);
        sum = (one_chain){0};
        n = 0;
        n_recording++;
    }
    print_sum("all", n_chain, &all);
    printf("many      %llu chains in %llu recordings: %.3f s, %.3f times the sum of single times "
           "(mark 1.15)\n",
           (unsigned long long)n_chain, (unsigned long long)n_recording, all.s,
           all.s / all.exact_s);
    printf(
        "          recordings take %.1f%% of the time; %llu chains are faster padded; %.3f times "
        "the sum at exact length\n",
        100 * all.record_s / all.s, (unsigned long long)n_faster, all.s / exact_s);
}

/* How much longer whole runs take than their cycles. */
static void print_whole(const one_chain *chain, uint64_t n_chain) {
    double whole_s = 0, cycles_s = 0, most = 0;
    int n = 0;
    for (uint64_t i = 0; i < n_chain; i++) {
        if (chain[i].whole_s <= 0) continue;
        n++;
        whole_s += chain[i].whole_s, cycles_s += chain[i].exact_s;
        most = fmax(most, chain[i].whole_s / chain[i].exact_s);
    }
    if (n == 0) return;
    printf("by cycle  whole runs of %d chains take %.3f times their cycles, at most %.3f times\n",
           n, whole_s / cycles_s, most);
}

/* Times all chains in one go and then alone, each time with a new set of recordings. */
static fm_status measure_many(bench *b, fm_error *reterr) {
    one_chain *chain = calloc(b->set->chains, sizeof *chain);
    if (!chain) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the table of chains");
    const uint64_t n_chain = draw_lengths(b->set, chain);
    fm_status status = run_in_order(b, chain, n_chain, reterr);
    fm_infer_destroy(b->infer);
    b->infer = NULL;
    b->options.exact = true;
    if (!status) status = create(b, reterr);
    if (!status) status = run_exactly(b, chain, n_chain, reterr);
    if (!status) print_many(chain, n_chain);
    if (!status) print_whole(chain, n_chain);
    free(chain);
    return status;
}

/* -- the command */

static fm_status measure_lengths(bench *b, fm_error *reterr) {
    fm_status status = FM_OK;
    printf("%6s  %9s  %7s  %7s  %7s  %8s  %8s  %7s  %8s  %8s  %8s\n", "length", "s", "plan s",
           "first s", "second", "GiB plan", "GiB used", "TFLOP/s", "by FLOP", "by bytes", "by exp");
    for (const char *at = b->set->lengths; *at && !status; at += *at == ',') {
        char *end;
        unsigned long long n_res = strtoull(at, &end, 10);
        if (end == at || n_res < 1 || n_res > 1 << 20) {
            return fm_fail(reterr, FM_ERR_USAGE, "--lengths takes numbers, as 256,384");
        }
        at = end;
        status = measure(b, (int64_t)n_res, reterr);
        if (status == FM_ERR_LIMIT) {
            printf("%6llu  %s\n", n_res, reterr->message);
            status = FM_OK;
        }
    }
    return status;
}

static fm_status run(bench *b, fm_error *reterr) {
    const double before = now_s();
    if (b->set->shortest > b->set->longest) {
        return fm_fail(reterr, FM_ERR_USAGE, "--shortest is larger than --longest");
    }
    if (b->set->from >= b->set->every) {
        return fm_fail(reterr, FM_ERR_USAGE, "--from must be less than --every");
    }
    const bool has_graphs = strcmp(b->set->device, "cuda") == 0 && !b->set->direct;
    if (b->set->by_cycle && !(has_graphs && b->set->many && b->set->cycles > 1)) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--by-cycle requires --many, --device cuda, at least two cycles and graphs");
    }
    fm_status status = create(b, reterr);
    if (status) return status;
    print_model(b, now_s() - before);
    status = b->set->many ? measure_many(b, reterr) : measure_lengths(b, reterr);
    print_slow_paths();
    return status;
}

/* Runs the benchmark in this process, which may be one of several ranks. */
static int run_process(const settings *set, fm_meeting *meeting) {
    bench b = {.set = set, .meeting = meeting};
    fm_error error = {0};
    fm_status status = fm_arena_init(&b.arena, SAMPLE_BYTES, &error);
    if (!status) status = run(&b, &error);
    fm_infer_destroy(b.infer);
    fm_device_groups_destroy(&b.groups);
    fm_arena_fini(&b.arena);
    return status ? fm_test_report("bench_predict", &error) : 0;
}

static int run_rank(int32_t rank, const char *address, void *context) {
    const settings *set = context;
    fm_meeting *meeting = NULL;
    fm_error error = {0};
    if (rank > 0 && !freopen("/dev/null", "w", stdout)) return 1;
    if (fm_meeting_open(&meeting, address, rank, (int32_t)set->dap, RANKS_S, &error)) {
        return fm_test_report("bench_predict", &error);
    }
    int result = run_process(set, meeting);
    fm_meeting_close(meeting);
    return result;
}

enum { MOST_OPTIONS = 40 };

static void list_many_options(settings *set, fm_option *out) {
    const fm_option options[] = {
        {"many", FM_OPTION_FLAG, &set->many, NULL,
         .help = "time chains of mixed lengths in one go, beside the sum of their single times"},
        {"by-cycle", FM_OPTION_FLAG, &set->by_cycle, NULL,
         .help = "with --many: single times from a replayed cycle, in fewer cycles"},
        {"chains", FM_OPTION_U64, &set->chains, "N", .help = "of --many (100)", .min = 1,
         .max = 100000},
        {"shortest", FM_OPTION_U64, &set->shortest, "N", .help = "residues, of --many (50)",
         .min = 1, .max = 1 << 20},
        {"longest", FM_OPTION_U64, &set->longest, "N", .help = "residues, of --many (1000)",
         .min = 1, .max = 1 << 20},
        {"seed", FM_OPTION_U64, &set->seed, "N", .help = "of the lengths of --many (1)",
         .max = UINT32_MAX},
        {"every", FM_OPTION_U64, &set->every, "N",
         .help = "run each N-th recorded length of --many, with its chains (1)", .min = 1,
         .max = 1000},
        {"from", FM_OPTION_U64, &set->from, "K", .help = "the first of these, counted from 0 (0)"},
        {0}};
    memcpy(out, options, sizeof options);
}

static void list_options(settings *set, fm_option out[MOST_OPTIONS]) {
    const fm_option options[] = {
        {"device", FM_OPTION_STRING, &set->device, "NAME", .help = "cpu or cuda (cpu)"},
        {"dtype", FM_OPTION_STRING, &set->dtype, "TYPE", .help = "fp32 or bf16 (fp32)"},
        {"preset", FM_OPTION_STRING, &set->preset, "NAME", .help = "sizes of the model (tiny)"},
        {"config", FM_OPTION_STRING, &set->config, "FILE", .help = "changes to the preset"},
        {"lengths", FM_OPTION_STRING, &set->lengths, "LIST", .help = "residues, as 256,384 (64)"},
        {"clusters", FM_OPTION_U64, &set->clusters, "N", .help = "MSA rows (the preset's)"},
        {"extra", FM_OPTION_U64, &set->extra, "N", .help = "extra MSA rows (the preset's)"},
        {"cycles", FM_OPTION_U64, &set->cycles, "N", .help = "of the timed runs (4)", .min = 1,
         .max = MOST_CYCLES},
        {"rounds", FM_OPTION_U64, &set->rounds, "N", .help = "timed runs; the least counts (1)",
         .min = 1, .max = 100},
        {"warm-up", FM_OPTION_U64, &set->warm_up, "N", .help = "runs of two cycles before (2)",
         .max = 2},
        {"check", FM_OPTION_FLAG, &set->check, NULL,
         .help = "compare with the reversed chain, and with slabs"},
        {"threads", FM_OPTION_U64, &set->threads, "N", .help = "of the CPU (1)", .min = 1,
         .max = 64},
        {"budget", FM_OPTION_U64, &set->budget_gib, "GIB", .help = "of memory (what is free)"},
        {"chunk", FM_OPTION_U64, &set->chunk_mib, "MIB",
         .help = "of a slab (the planner's choice)"},
        {"losses", FM_OPTION_FLAG, &set->losses, NULL, .help = "with losses, as foldmill eval"},
        {"table", FM_OPTION_FLAG, &set->table, NULL, .help = "time of each module"},
        {"triangles", FM_OPTION_FLAG, &set->triangles, NULL,
         .help = "with --chunk or --check: triangle multiplications in slabs, too"},
        {"dap", FM_OPTION_U64, &set->dap, "D",
         .help = "processes with a GPU each that share each chain (1)", .min = 1,
         .max = FM_LAYOUT_DAP},
        {"backend", FM_OPTION_STRING, &set->backend, "NAME",
         .help = "how these communicate: peer or nccl (peer)"},
        {"direct", FM_OPTION_FLAG, &set->direct, NULL, .help = "capture nothing"},
        {"progress", FM_OPTION_FLAG, &set->progress, NULL,
         .help = "print the plan before a chain runs, and the memory every 10 s"},
    };
    enum { N = sizeof options / sizeof options[0] };
    memcpy(out, options, sizeof options);
    list_many_options(set, out + N);
}

int main(int argc, char **argv) {
    settings set = {.device = "cpu",
                    .dtype = "fp32",
                    .preset = "tiny",
                    .lengths = "64",
                    .cycles = MOST_CYCLES,
                    .rounds = 1,
                    .warm_up = 2,
                    .threads = 1,
                    .chains = 100,
                    .shortest = 50,
                    .longest = 1000,
                    .seed = 1,
                    .every = 1,
                    .dap = 1,
                    .backend = "peer"};
    fm_option options[MOST_OPTIONS];
    list_options(&set, options);
    const fm_command command = {
        .program = "bench_predict",
        .arguments = "[options]",
        .summary = "the inference pass on chains of many lengths",
        .description = "Times whole chains; the file's head says how. With --many, the time of\n"
                       "chains of mixed lengths in one go, recorded as `foldmill predict` does,\n"
                       "is divided by the sum of their single times at exact length:\n\n"
                       "  bench_predict --many --chains 6 --shortest 20 --longest 60",
        .options = options};
    fm_error error = {0};
    int n_positional, exits[FM_TEST_RANKS];
    fm_status status = fm_options_parse(&command, argc, argv, &n_positional, &error);
    if (status == FM_ERR_CANCELLED) return 0;
    if (status) return fm_test_report("bench_predict", &error);
    return set.dap == 1 ? run_process(&set, NULL)
                        : fm_test_run_ranks((int32_t)set.dap, run_rank, &set, RANKS_S, exits);
}
