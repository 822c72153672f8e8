/* bench_scaling.c: measures whole training steps on several ranks, one process for each.
 *
 *     bench_scaling --device cuda --dtype bf16 --preset af2-initial        every GPU of this host
 *     bench_scaling --layouts 1,dap2,dap4,dp2.dap2 ...                     these layouts
 *     bench_scaling --alone --layouts dap2,dap4,dap8 ...                   on one device
 *
 * A layout names its sizes: dp2.dap2 has two groups of samples, each on two ranks. For each layout
 * the program prints
 *
 *     step       milliseconds for each number of cycles and their mean; a step is one sample of
 *                each group with its update. Median of the rounds' means
 *     efficiency time of one rank * samples of a step / (time * ranks); layout 1 must come first
 *     kernels, exchanges, bytes   of the last cycle and of each other cycle, on rank 0; bytes are
 *                those that it sends to other ranks, or that they read
 *     exposed    the time of a pass less that of the same graph without exchanges
 *     serial     with DAP: nodes of which every rank computes all, by the device's clock
 *     waiting    of a step with the mean number of cycles: the time that exchange kernels waited
 *                for other ranks, least and most of all ranks
 *     memory     of the device, the most of all ranks
 *
 * To measure without exchanges, the receive buffer of each is filled with zeros instead, once in
 * one series of steps and twice in another. The difference is the cost of filling, which is
 * subtracted from the first.
 *
 * With --alone a layout runs as one process, its rank 0, without any exchange. The result is the
 * cost of the layout beside communication, for any number of ranks. */
#include "proto/base/options.h"
#include "tests/bench/bench_trainer.h"
#include "tests/testing/ranks.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/app/device/device_groups.h"
#include "trainer/app/samples/sample_features.h"
#include "trainer/app/settings/setup.h"
#include "trainer/dist/comm_shm.h"
#include "trainer/dist/nccl.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    MOST_LAYOUTS = 32,
    MOST_ROUNDS = 31,
    LIMIT_S = 600,
    WAIT_S = 20,
    WARM_UP = 2,
    TEXT_BYTES = 160
};
enum { PASS_CYCLE, PASS_LAST, PASS_UPDATE, PASSES };
static const size_t SAMPLE_BYTES = (size_t)1 << 30;

typedef struct settings {
    const char *device, *dtype, *preset, *config, *backend, *order, *layouts, *commit;
    uint64_t steps, rounds, cycles, gpus;
    bool alone;
} settings;

/* What a pass queues, by the calls of one run of it. */
typedef struct traffic {
    int64_t n_exchange, bytes, n_kernel;
} traffic;

/* How exchanges run. */
typedef enum mode { MODE_REAL, MODE_FILL_ONCE, MODE_FILL_TWICE, MODES } mode;

/* What a rank reports, in memory that all processes share. */
typedef struct report {
    bool is_whole;
    double ms[MODES][MOST_CYCLES]; /* by cycles */
    double serial_ms[2], waited_ms, start_s[3];
    traffic pass[PASSES];
    int64_t device_bytes, planned_bytes;
    char processor[TEXT_BYTES], library[TEXT_BYTES];
} report;

typedef struct task {
    const settings *set;
    fm_layout layout;
    report *reports; /* [ranks] */
} task;

typedef struct bench bench;

/* A communicator that counts or omits the exchanges of another. */
typedef struct spy {
    fm_comm comm;
    fm_comm *inner; /* NULL: left out */
    bench *of;
} spy;

/* Runs a pass of the trainer and notes that it is under way. */
typedef struct hook {
    bench *of;
    int pass;
    fm_pass inner;
} hook;

struct bench {
    const task *task;
    int32_t rank;
    mode mode;
    int pass; /* under way */
    fm_arena arena;
    fm_train_config config;
    const fm_kernels *kernels;
    fm_meeting *meeting; /* of all ranks, as the next three; NULL: one process */
    fm_board *board;
    fm_shm_groups *shm;
    fm_device_groups device;
    fm_groups groups; /* with spies */
    spy spy[4];
    hook hook[2];
    fm_trainer *trainer;
    fm_features features;
    report *out;
};

/* -- exchanges */

static int64_t bytes_sent(const fm_comm *comm, const fm_message *m) {
    bool sends = m->exchange != FM_EXCHANGE_BROADCAST || m->root == comm->rank;
    return sends * m->rows * m->run * (comm->size - 1) * (int64_t)fm_element_bytes(m->element);
}

static void fill(const spy *s, const fm_message *m, fm_stream *stream) {
    const fm_kernels *kernels = s->comm.kernels;
    int64_t parts = fm_exchange_parts_received(m->exchange, s->comm.size);
    int64_t bytes = parts * m->rows * m->run * (int64_t)fm_element_bytes(m->element);
    int64_t count = bytes / (int64_t)fm_element_bytes(kernels->act);
    for (int i = s->of->mode == MODE_FILL_TWICE ? 2 : 1; i > 0; i--)
        kernels->fill(stream, count, 0.0, m->receive.data);
}

static fm_ticket spy_begin(fm_comm *comm, const fm_message *messages, int32_t count,
                           fm_stream *stream) {
    const spy *s = comm->context;
    bench *b = s->of;
    traffic *t = &b->out->pass[b->pass];
    t->n_exchange++;
    for (int32_t i = 0; i < count; i++) {
        t->bytes += bytes_sent(comm, &messages[i]);
        if (b->mode != MODE_REAL) fill(s, &messages[i], stream);
    }
    return b->mode == MODE_REAL ? s->inner->begin(s->inner, messages, count, stream) : 1;
}

static void spy_finish(fm_comm *comm, fm_ticket ticket, fm_stream *stream) {
    const spy *s = comm->context;
    if (s->of->mode == MODE_REAL) s->inner->finish(s->inner, ticket, stream);
}

static fm_comm *watch(bench *b, spy *s, fm_comm *inner, int32_t rank, int32_t size) {
    if (size == 1) return NULL;
    *s = (spy){.inner = inner, .of = b};
    s->comm = (fm_comm){.rank = rank,
                        .size = size,
                        .context = s,
                        .begin = spy_begin,
                        .finish = spy_finish,
                        .kernels = b->kernels};
    return &s->comm;
}

static int64_t itself(const fm_groups *groups, int64_t value) {
    (void)groups;
    return value;
}

/* The groups of this rank, with a spy for each communicator. */
static void watch_groups(bench *b, const fm_groups *real) {
    const fm_layout l = b->task->layout;
    const fm_rank_place at = fm_layout_place(&l, b->rank);
    fm_groups *g = &b->groups;
    if (real) {
        *g = *real;
    } else {
        *g = (fm_groups){.layout = l, .place = at, .least = itself};
    }
    g->dap = watch(b, &b->spy[0], g->dap, at.dap, l.dap);
    g->bp = watch(b, &b->spy[1], g->bp, at.bp, l.bp);
    g->dp = watch(b, &b->spy[3], g->dp, at.dp, l.dp);
    g->sample = l.bp == 1    ? g->dap
                : l.dap == 1 ? g->bp
                             : watch(b, &b->spy[2], g->sample, at.sample, l.dap * l.bp);
}

/* -- steps */

static void run_pass(void *context, fm_stream *stream) {
    hook *h = context;
    traffic *t = &h->of->out->pass[h->pass];
    t->n_exchange = t->bytes = 0;
    h->of->pass = h->pass;
    h->inner.queue(h->inner.context, stream);
    h->of->pass = PASS_UPDATE;
}

static bool all_agree(void *context, bool captured) {
    const hook *h = context;
    bool real = h->of->mode == MODE_REAL;
    return real && h->inner.agree ? h->inner.agree(h->inner.context, captured) : captured;
}

static void hook_passes(bench *b) {
    fm_pass *passes[] = {&b->trainer->recording.pass[FM_TRAINER_CYCLE],
                         &b->trainer->recording.pass[FM_TRAINER_LAST]};
    for (int i = 0; i < 2; i++) {
        b->hook[i] = (hook){b, i, *passes[i]};
        passes[i]->queue = run_pass;
        passes[i]->agree = all_agree;
        passes[i]->context = &b->hook[i];
    }
    b->pass = PASS_UPDATE;
}

static fm_status run_steps(bench *b, uint64_t count, double *ret_ms, fm_error *reterr) {
    fm_trainer *t = b->trainer;
    bool sums = b->task->layout.dp > 1;
    uint64_t ahead = !sums && b->kernels->device->is_asynchronous, queued = 0;
    fm_status status = FM_OK;
    double before = now_s();
    for (uint64_t i = 1; i <= count && !status; i++) {
        for (; queued < count && queued < i + ahead && !status; queued++)
            status = fm_trainer_queue(t, &b->features, !sums, reterr);
        fm_sample_result result;
        if (!status) status = fm_trainer_collect(t, &result, reterr);
        if (sums && !status) {
            b->out->pass[PASS_UPDATE].n_exchange = b->out->pass[PASS_UPDATE].bytes = 0;
            fm_trainer_update_with(t, (uint32_t)b->task->layout.dp);
        }
    }
    *ret_ms = 1e3 * (now_s() - before) / (double)count;
    return status;
}

/* The median of the rounds for each number of cycles up to `cycles`. */
static fm_status time_mode(bench *b, mode how, uint64_t cycles, fm_error *reterr) {
    const settings *set = b->task->set;
    double ms[MOST_ROUNDS], unused;
    b->mode = how;
    b->kernels->synchronize(b->trainer->recording.stream);
    fm_pass_forget(&b->trainer->recording.pass[FM_TRAINER_CYCLE]);
    fm_pass_forget(&b->trainer->recording.pass[FM_TRAINER_LAST]);
    for (uint32_t c = 1; c <= cycles; c++) {
        b->features.n_cycle = c;
        fm_status status = run_steps(b, WARM_UP, &unused, reterr);
        for (uint64_t r = 0; r < set->rounds && !status; r++)
            status = run_steps(b, set->steps, &ms[r], reterr);
        if (status) return status;
        b->out->ms[how][c - 1] = median(ms, set->rounds);
    }
    return FM_OK;
}

/* -- the serial part */

static bool is_split(const fm_tape *tape, const fm_tensor_ref *tensors, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        if (tensors[i] != FM_TENSOR_NONE && fm_tape_tensor(tape, tensors[i])->shard_count > 1) {
            return true;
        }
    }
    return false;
}

/* Whether the node does the same on every rank: nothing that it reads or writes is split. */
static bool is_serial(const fm_tape *tape, const fm_node *node) {
    bool exchanges = node->begins_forward || node->begins_backward || node->on_all_ranks;
    return !exchanges && !is_split(tape, node->input, node->n_input) &&
           !is_split(tape, node->output, node->n_output);
}

static double serial_ms(bench *b, const fm_tape *tape) {
    size_t n = (size_t)tape->n_step + 1;
    uint64_t *ns = own(&b->arena, n, sizeof *ns);
    double sum = 0;
    b->kernels->download(b->trainer->recording.stream, ns, tape->stamp, n * sizeof *ns);
    b->kernels->synchronize(b->trainer->recording.stream);
    for (size_t i = 0; i + 1 < n; i++)
        if (is_serial(tape, &tape->node[tape->step[i].node])) sum += (double)(ns[i + 1] - ns[i]);
    return 1e-6 * sum;
}

static fm_status measure_serial(bench *b, fm_error *reterr) {
    double unused;
    b->features.n_cycle = 2;
    fm_status status = fm_trainer_stamp(b->trainer, reterr);
    if (!status) status = run_steps(b, WARM_UP + 1, &unused, reterr);
    if (status) return status;
    b->out->serial_ms[PASS_CYCLE] = serial_ms(b, &b->trainer->recording.tape[FM_TRAINER_CYCLE]);
    b->out->serial_ms[PASS_LAST] = serial_ms(b, &b->trainer->recording.tape[FM_TRAINER_LAST]);
    return FM_OK;
}

/* -- a rank */

static fm_status create(bench *b, const fm_groups *groups, fm_error *reterr) {
    const fm_layout *l = &b->task->layout;
    double before = now_s();
    fm_model_config *model = &b->config.model;
    /* Ranks of both branches must choose alike, which `auto` does not. */
    if (l->bp > 1 && model->recompute == FM_RECOMPUTE_AUTO) model->recompute = FM_RECOMPUTE_NONE;
    fm_trainer_options options = fm_trainer_options_of(&b->config, b->kernels, 0);
    if (fm_layout_ranks(l) > 1) {
        watch_groups(b, groups);
        options.groups = &b->groups;
    }
    fm_status status = fm_trainer_check_layout(&b->config.model, l, reterr);
    if (!status) status = fm_trainer_create(&options, &b->trainer, reterr);
    if (status) return status;
    hook_passes(b);
    b->out->start_s[1] = now_s() - before;
    const fm_sample *sample =
        bench_make_sample(&b->arena, &b->config.model, (uint64_t)b->groups.place.dp);
    return fm_features_of(sample, &b->features, reterr);
}

static void note_graphs(bench *b) {
    const fm_pass *passes[] = {&b->trainer->recording.pass[FM_TRAINER_CYCLE],
                               &b->trainer->recording.pass[FM_TRAINER_LAST]};
    for (int i = 0; i < 2; i++) {
        if (passes[i]->graph) {
            b->out->pass[i].n_kernel = passes[i]->device->graph_measure(passes[i]->graph).n_kernel;
        }
    }
}

static double waited_ms(const bench *b) {
    return b->groups.waited_s ? 1e3 * b->groups.waited_s(&b->groups) : 0;
}

static fm_status measure(bench *b, fm_error *reterr) {
    const settings *set = b->task->set;
    fm_status status = FM_OK;
    if (!set->alone) {
        double first, before = now_s();
        b->features.n_cycle = 2;
        status = run_steps(b, 1, &first, reterr);
        b->out->start_s[2] = now_s() - before;
        if (!status) status = time_mode(b, MODE_REAL, set->cycles, reterr);
        note_graphs(b);
        double waited = waited_ms(b), unused;
        b->features.n_cycle = 2;
        if (!status) status = run_steps(b, 2, &unused, reterr);
        b->features.n_cycle = 3;
        if (!status) status = run_steps(b, 2, &unused, reterr);
        b->out->waited_ms = (waited_ms(b) - waited) / 4;
    }
    if (!status && b->groups.layout.dp) status = time_mode(b, MODE_FILL_ONCE, 2, reterr);
    if (!status && b->groups.layout.dp) status = time_mode(b, MODE_FILL_TWICE, 2, reterr);
    if (set->alone) note_graphs(b);
    b->out->device_bytes = (int64_t)b->kernels->device->used_bytes();
    b->out->planned_bytes = fm_trainer_memory_bytes(b->trainer);
    return status ? status : measure_serial(b, reterr);
}

static fm_status meet(bench *b, const char *address, const fm_groups **ret_groups,
                      fm_error *reterr) {
    const settings *set = b->task->set;
    const fm_layout *l = &b->task->layout;
    fm_status status =
        fm_meeting_open(&b->meeting, address, b->rank, fm_layout_ranks(l), LIMIT_S, reterr);
    if (!status) status = fm_board_open(b->meeting, LIMIT_S, &b->board, reterr);
    if (status) return status;
    if (b->kernels->device->is_asynchronous) {
        status = fm_device_groups_create(l, b->kernels, b->meeting, set->backend, WAIT_S, NULL,
                                         &b->device, reterr);
        *ret_groups = b->device.groups;
    } else {
        status =
            fm_shm_groups_open(l, b->kernels, b->meeting, b->board, NULL, LIMIT_S, &b->shm, reterr);
        if (!status) *ret_groups = fm_shm_groups_get(b->shm);
    }
    return status;
}

static fm_status configure(bench *b, fm_error *reterr) {
    const settings *set = b->task->set;
    char text[TEXT_BYTES];
    fm_status status = fm_arena_init(&b->arena, SAMPLE_BYTES, reterr);
    if (!status) status = fm_train_config_load(set->preset, set->config, &b->config, reterr);
    if (!status && b->config.network == FM_NETWORK_AF3) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "preset %s: found a model of AlphaFold 3, expected one of AlphaFold2; "
                       "bench_step --dp measures its groups",
                       set->preset);
    }
    if (!status) status = fm_device_find(set->device, set->dtype, &b->kernels, reterr);
    if (status || !set->order) return status;
    int n = snprintf(text, sizeof text, "[model]\norder = %s\n", set->order);
    return fm_train_config_parse((fm_bytes){(const uint8_t *)text, (size_t)n}, &b->config, reterr);
}

static fm_status work(bench *b, const char *address, fm_error *reterr) {
    const fm_groups *groups = NULL;
    double before = now_s();
    fm_status status = configure(b, reterr);
    if (status) return status;
    bool alone = b->task->set->alone || fm_layout_ranks(&b->task->layout) == 1;
    if (!alone) status = meet(b, address, &groups, reterr);
    b->out->start_s[0] = now_s() - before;
    if (!status) status = create(b, groups, reterr);
    if (!status) status = measure(b, reterr);
    snprintf(b->out->processor, TEXT_BYTES, "%s", b->kernels->device->processor());
    snprintf(b->out->library, TEXT_BYTES, "%s", b->kernels->device->library());
    b->out->is_whole = !status;
    return status;
}

static int run_rank(int32_t rank, const char *address, void *context) {
    const task *t = context;
    bench b = {.task = t, .rank = rank, .out = &t->reports[rank]};
    fm_error error = {0};
    fm_status status = work(&b, address, &error);
    fm_trainer_destroy(b.trainer);
    fm_device_groups_destroy(&b.device);
    fm_shm_groups_close(b.shm);
    fm_board_close(b.board);
    fm_meeting_close(b.meeting);
    fm_arena_fini(&b.arena);
    if (!status) return 0;
    fprintf(stderr, "bench_scaling: rank %d: %s: %s\n", (int)rank, error.source, error.message);
    return status == FM_ERR_UNSUPPORTED ? 77 : 1;
}

/* -- layouts */

/* Reads a layout such as dp2.dap4; false when it is none. */
static bool read_layout(const char *text, size_t n, fm_layout *ret_layout) {
    fm_layout l = {1, 1, 1};
    if (n == 1 && *text == '1') {
        *ret_layout = l;
        return true;
    }
    for (size_t at = 0; at < n;) {
        int32_t *size = strncmp(text + at, "dap", 3) == 0  ? &l.dap
                        : strncmp(text + at, "bp", 2) == 0 ? &l.bp
                        : strncmp(text + at, "dp", 2) == 0 ? &l.dp
                                                           : NULL;
        char *end;
        if (!size) return false;
        at += size == &l.dap ? 3 : 2;
        *size = (int32_t)strtol(text + at, &end, 10);
        if (end == text + at || *size < 1 || *size > FM_LAYOUT_DAP) return false;
        at = (size_t)(end - text);
        at += at < n && text[at] == '.';
    }
    *ret_layout = l;
    return n > 0;
}

static void write_layout(const fm_layout *l, char out[TEXT_BYTES]) {
    const struct {
        const char *name;
        int32_t size;
    } parts[] = {{"dp", l->dp}, {"dap", l->dap}, {"bp", l->bp}};
    size_t used = 0;
    snprintf(out, TEXT_BYTES, "1");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].size == 1) continue;
        used += (size_t)snprintf(out + used, TEXT_BYTES - used, "%s%s%d", used ? "." : "",
                                 parts[i].name, (int)parts[i].size);
    }
}

static fm_status list_layouts(const char *text, fm_layout out[MOST_LAYOUTS], int *ret_n,
                              fm_error *reterr) {
    *ret_n = 0;
    while (*text && *ret_n < MOST_LAYOUTS) {
        size_t n = strcspn(text, ",");
        if (!read_layout(text, n, &out[*ret_n])) {
            return fm_fail(reterr, FM_ERR_USAGE,
                           "layout '%.*s': expected 1, or sizes as in dp2.dap4.bp2", (int)n, text);
        }
        ++*ret_n;
        text += n + (text[n] == ',');
    }
    return FM_OK;
}

/* The layouts of 1, 2, 4, .. ranks that are of interest on `ranks` GPUs. */
static int choose_layouts(int32_t ranks, bool branches, fm_layout out[MOST_LAYOUTS]) {
    int n = 0;
    out[n++] = (fm_layout){1, 1, 1};
    for (int32_t r = 2; r <= ranks && n + 4 < MOST_LAYOUTS; r *= 2) {
        out[n++] = (fm_layout){r, 1, 1};
        if (branches) out[n++] = (fm_layout){r / 2, 2, 1};
        out[n++] = (fm_layout){1, 1, r};
        if (r > 2) out[n++] = (fm_layout){r / 2, 1, 2};
    }
    return n;
}

/* GPUs of this host that programs may use. */
static int32_t count_gpus(void) {
    const char *given = getenv("CUDA_VISIBLE_DEVICES");
    char path[32];
    int32_t n = 0;
    if (given) {
        for (const char *at = given; *at; at++)
            n += *at == ',';
        return *given ? n + 1 : 0;
    }
    do {
        snprintf(path, sizeof path, "/dev/nvidia%d", (int)n);
    } while (access(path, F_OK) == 0 && ++n < FM_TEST_RANKS);
    return n;
}

/* -- the tables */

/* The mean over 1 .. MOST_CYCLES cycles, from the time of one cycle and that of a further one. */
static double mean_of(double last, double cycle) {
    return last + cycle * (MOST_CYCLES - 1) / 2.0;
}

/* Milliseconds of a pass: the last cycle, or one of the others. */
static double pass_ms(const report *r, mode how, int pass) {
    const double *ms = r->ms[how];
    return pass == PASS_LAST ? ms[0] : ms[1] - ms[0];
}

/* A pass without exchanges. */
static double left_out_ms(const report *r, int pass) {
    return 2 * pass_ms(r, MODE_FILL_ONCE, pass) - pass_ms(r, MODE_FILL_TWICE, pass);
}

static double mean_ms(const report *r, uint64_t cycles) {
    double sum = 0;
    for (uint64_t c = 0; c < cycles; c++)
        sum += r->ms[MODE_REAL][c];
    return sum / (double)cycles;
}

static void print_steps(const task *t, double one_ms) {
    const report *r = t->reports;
    char name[TEXT_BYTES];
    int32_t ranks = fm_layout_ranks(&t->layout);
    double mean = mean_ms(r, t->set->cycles);
    write_layout(&t->layout, name);
    printf("| %s | %d |", name, (int)ranks);
    for (uint64_t c = 0; c < t->set->cycles; c++)
        printf(" %.1f |", r->ms[MODE_REAL][c]);
    printf(" **%.1f** | %.3f | %.3f |\n", mean, one_ms > 0 ? mean / one_ms : 0,
           one_ms > 0 ? t->layout.dp * one_ms / (mean * ranks) : 0);
}

static void print_parts(const task *t) {
    const report *r = t->reports;
    char name[TEXT_BYTES];
    double least = r->waited_ms, most = least;
    int64_t bytes = r->device_bytes;
    for (int32_t i = 1; i < fm_layout_ranks(&t->layout) && !t->set->alone; i++) {
        least = fmin(least, t->reports[i].waited_ms);
        most = fmax(most, t->reports[i].waited_ms);
        bytes = t->reports[i].device_bytes > bytes ? t->reports[i].device_bytes : bytes;
    }
    double out_last = left_out_ms(r, PASS_LAST), out_cycle = left_out_ms(r, PASS_CYCLE);
    double last = pass_ms(r, MODE_REAL, PASS_LAST), cycle = pass_ms(r, MODE_REAL, PASS_CYCLE);
    const traffic *p = r->pass;
    write_layout(&t->layout, name);
    printf("| %s | %lld, %lld | %lld, %lld, %lld | %.1f, %.1f | ", name,
           (long long)p[PASS_LAST].n_kernel, (long long)p[PASS_CYCLE].n_kernel,
           (long long)p[PASS_LAST].n_exchange, (long long)p[PASS_CYCLE].n_exchange,
           (long long)p[PASS_UPDATE].n_exchange, 1e-6 * (double)p[PASS_LAST].bytes,
           1e-6 * (double)p[PASS_CYCLE].bytes);
    printf("%.1f, %.1f | %.1f | ", out_last, out_cycle, mean_of(out_last, out_cycle));
    if (t->set->alone) {
        printf("| | | ");
    } else {
        printf("%.1f, %.1f | %.1f | %.1f to %.1f | ", last - out_last, cycle - out_cycle,
               mean_of(last - out_last, cycle - out_cycle), least, most);
    }
    if (t->layout.dap > 1) {
        printf("%.1f, %.1f | ", r->serial_ms[PASS_LAST], r->serial_ms[PASS_CYCLE]);
    } else {
        printf("| ");
    }
    printf("%.1f |\n", (double)bytes / (1 << 30));
}

static void print_start(const task *t) {
    const double *s = t->reports->start_s;
    char name[TEXT_BYTES];
    write_layout(&t->layout, name);
    printf("| %s | %.2f | %.2f | %.2f | %.2f |\n", name, s[0], s[1], s[2], s[0] + s[1] + s[2]);
}

/* What a command prints first, or "". */
static void ask(const char *command, char out[TEXT_BYTES]) {
    FILE *pipe = popen(command, "r");
    out[0] = '\0';
    if (!pipe) return;
    if (!fgets(out, TEXT_BYTES, pipe)) out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    pclose(pipe);
}

static void print_head(const settings *set, const report *r) {
    char driver[TEXT_BYTES] = "";
    if (strcmp(set->device, "cuda") == 0) {
        ask("nvidia-smi --query-gpu=driver_version --format=csv,noheader", driver);
    }
    printf("device %s, driver %s, %s, exchanges by %s", r->processor, driver, r->library,
           set->alone ? "nobody" : set->backend);
    fm_nccl nccl;
    if (strcmp(set->backend, "nccl") == 0 && !fm_nccl_open(&nccl, NULL)) {
        printf(" %d", nccl.version);
    }
    printf(", commit %s\npreset %s, %s, order %s\n", set->commit, set->preset, set->dtype,
           set->order ? set->order : "of the preset");
}

static void print_all(const task *tasks, int n) {
    const settings *set = tasks->set;
    double one_ms = 0;
    print_head(set, tasks->reports);
    if (!set->alone) {
        printf("\n| layout | ranks |");
        for (uint64_t c = 1; c <= set->cycles; c++)
            printf(" %llu |", (unsigned long long)c);
        printf(" mean, ms | of one | efficiency |\n");
        for (int i = 0; i < n; i++) {
            const task *t = &tasks[i];
            if (!t->reports->is_whole) continue;
            if (fm_layout_ranks(&t->layout) == 1) one_ms = mean_ms(t->reports, set->cycles);
            print_steps(t, one_ms);
        }
    }
    printf("\nMilliseconds and MB of the last cycle and of each other one:\n"
           "| layout | kernels | exchanges | MB sent | without exchanges | mean | exposed | mean | "
           "waiting | serial | GiB |\n");
    for (int i = 0; i < n; i++) {
        if (tasks[i].reports->is_whole && fm_layout_ranks(&tasks[i].layout) > 1) {
            print_parts(&tasks[i]);
        }
    }
    printf("\nSeconds to the end of the first step:\n"
           "| layout | device, meeting | trainer | first step | all |\n");
    for (int i = 0; i < n; i++)
        if (tasks[i].reports->is_whole) print_start(&tasks[i]);
}

/* -- all layouts */

static int run_layout(task *t) {
    int exits[FM_TEST_RANKS];
    char name[TEXT_BYTES];
    int32_t ranks = fm_layout_ranks(&t->layout), processes = t->set->alone ? 1 : ranks;
    write_layout(&t->layout, name);
    if (processes > FM_TEST_RANKS) return 1;
    void *memory = mmap(NULL, (size_t)processes * sizeof *t->reports, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    t->reports = memory;
    int code = fm_test_run_ranks(processes, run_rank, t, LIMIT_S, exits);
    if (code) fprintf(stderr, "bench_scaling: %s: exit status %d\n", name, code);
    return code;
}

static int run_all(const settings *set, fm_error *reterr) {
    static task tasks[MOST_LAYOUTS];
    fm_layout layouts[MOST_LAYOUTS];
    int n = 0, worst = 0;
    if (set->layouts) {
        if (list_layouts(set->layouts, layouts, &n, reterr)) return 1;
    } else {
        int32_t gpus = set->gpus ? (int32_t)set->gpus : count_gpus();
        n = choose_layouts(gpus, set->order && strcmp(set->order, "original") != 0, layouts);
    }
    for (int i = 0; i < n; i++) {
        tasks[i] = (task){.set = set, .layout = layouts[i]};
        int code = run_layout(&tasks[i]);
        worst = code > worst ? code : worst;
        if (!tasks[i].reports) return 1;
    }
    print_all(tasks, n);
    return worst;
}

int main(int argc, char **argv) {
    settings set = {.device = "cpu",
                    .dtype = "fp32",
                    .preset = "tiny",
                    .backend = "peer",
                    .commit = "not given",
                    .steps = 3,
                    .rounds = 3,
                    .cycles = MOST_CYCLES};
    const fm_option options[] = {
        {"device", FM_OPTION_STRING, &set.device, "NAME", .help = "cpu or cuda (cpu)"},
        {"dtype", FM_OPTION_STRING, &set.dtype, "TYPE", .help = "fp32 or bf16 (fp32)"},
        {"preset", FM_OPTION_STRING, &set.preset, "NAME", .help = "sizes and recipe (tiny)"},
        {"config", FM_OPTION_STRING, &set.config, "FILE", .help = "changes to the preset"},
        {"order", FM_OPTION_STRING, &set.order, "NAME",
         .help = "of the sublayers: original, opm_first or parallel (the preset's)"},
        {"layouts", FM_OPTION_STRING, &set.layouts, "LIST",
         .help = "as 1,dap2,dp2.dap2 (those of interest on the GPUs that are there)"},
        {"gpus", FM_OPTION_U64, &set.gpus, "N", .help = "that layouts are chosen for (all)",
         .min = 1, .max = FM_TEST_RANKS},
        {"alone", FM_OPTION_FLAG, &set.alone, NULL,
         .help = "only rank 0 of each layout, without exchanges"},
        {"backend", FM_OPTION_STRING, &set.backend, "NAME",
         .help = "how GPUs communicate: peer or nccl (peer)"},
        {"steps", FM_OPTION_U64, &set.steps, "N", .help = "steps of a round (3)", .min = 1,
         .max = 1000},
        {"rounds", FM_OPTION_U64, &set.rounds, "N", .help = "timed rounds; their median counts (3)",
         .min = 1, .max = MOST_ROUNDS},
        {"cycles", FM_OPTION_U64, &set.cycles, "N", .help = "from 1 to so many cycles (4)",
         .min = 2, .max = MOST_CYCLES},
        {"commit", FM_OPTION_STRING, &set.commit, "TEXT", .help = "printed with the results"},
        {0}};
    const fm_command command = {.program = "bench_scaling",
                                .arguments = "[options]",
                                .summary = "training steps on several ranks",
                                .description = "Times whole steps; the file's head says how.",
                                .options = options};
    fm_error error = {0};
    int n_positional;
    fm_status status = fm_options_parse(&command, argc, argv, &n_positional, &error);
    if (status == FM_ERR_CANCELLED) return 0;
    int code = status ? 1 : run_all(&set, &error);
    if (error.message[0]) fprintf(stderr, "bench_scaling: %s\n", error.message);
    return code;
}
