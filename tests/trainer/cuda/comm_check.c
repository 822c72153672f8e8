/* comm_check.c: checks and times the communicators of GPUs (trainer/dist/cuda), one process for
 * each GPU.
 *
 *     comm_check [--ranks N] [--backend peer|nccl] [--share-gpus] [--skip-times] [--kill]
 *
 * Every exchange, type, layout and a range of sizes is compared bit for bit with what the host
 * computes (trainer/dist/combine.h). Receive buffers are full of NaN beforehand. All cases run once
 * directly and then in a captured graph, which is replayed with other data; random work before the
 * exchanges makes ranks late. Then it prints times: one exchange in a chain inside a graph.
 *
 * With --share-gpus there may be more ranks than GPUs, with peer memory: CUDA_VISIBLE_DEVICES names
 * the GPUs, which the ranks take in turn. Exchanges are then slow, so no times are printed.
 *
 * With --kill the last rank is killed after the first exchanges; the others must name it within the
 * limit. Exit status: 0 all right, 1 something is wrong, 77 no such number of GPUs. */
#include "tests/testing/ranks.h"
#include "trainer/backend/cuda/core/cuda.h"
#include "trainer/dist/combine.h"
#include "trainer/dist/cuda/link.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SKIPPED = 77, LIMIT_S = 100, KILL_WAIT_S = 3, REPLAYS = 4, CHAIN = 40, ROUNDS = 5 };
enum { MOST_RANKS = FM_LINK_RANKS, MOST_CASES = 512 };
static const size_t SIDE_BYTES = (size_t)448 << 20; /* for the cases of MOST_RANKS ranks */
static const size_t DELAY_BYTES = (size_t)16 << 20;

typedef struct options {
    int32_t ranks;
    fm_gpu_link_kind kind;
    bool shares_gpus, skips_times, kills;
} options;

typedef struct check {
    const options *set;
    int32_t rank, size;
    fm_gpu_link *link;
    fm_comm *comm;
    const fm_kernels *f32, *bf16;
    fm_stream *stream;
    char *send, *receive; /* device memory, SIDE_BYTES each */
    fm_message cases[MOST_CASES];
    int n_case, n_wrong, n_checked;
    uint64_t delays; /* of the generator of delays; differs between ranks */
} check;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- cases */

static const int64_t RUNS[] = {1, 5, 64, 4096, 100000};
static const char *const NAMES[] = {"",           "all-to-all", "all-gather", "reduce-scatter",
                                    "all-reduce", "broadcast"};

/* Elements of a side from its first to its last. */
static int64_t extent(const fm_message *m, fm_parts side, int32_t parts) {
    return (parts - 1) * side.part + (m->rows - 1) * side.row + m->run;
}
static int64_t sent_extent(const check *c, const fm_message *m) {
    return extent(m, m->sent, fm_exchange_parts_sent(m->exchange, c->size));
}
static int64_t received_extent(const check *c, const fm_message *m) {
    return extent(m, m->received, fm_exchange_parts_received(m->exchange, c->size));
}

static size_t round_up(size_t bytes) {
    return (bytes + 255) / 256 * 256;
}

/* Lists plain and strided cases; each has places of its own on both sides. */
static void list_cases(check *c) {
    size_t sent = 0, received = 0;
    for (int kind = 1; kind <= FM_EXCHANGE_BROADCAST; kind++) {
        for (int variant = 0; variant < 8; variant++) { /* type, layout, write or add */
            for (size_t i = 0; i < sizeof RUNS / sizeof RUNS[0]; i++) {
                fm_element element = variant & 1 ? FM_ELEMENT_BF16 : FM_ELEMENT_F32;
                int64_t run = RUNS[i], rows = variant & 2 ? 7 : 1;
                fm_message m = fm_message_plain((fm_exchange)kind, element, run, c->send + sent,
                                                c->receive + received);
                m.name = NAMES[kind];
                m.root = c->size - 1;
                m.rows = rows;
                bool columns = variant & 2;
                const fm_parts in_columns = {run, c->size * run}, in_rows = {rows * run, run};
                m.sent = columns && kind != FM_EXCHANGE_ALL_GATHER ? in_columns : in_rows;
                m.received = columns && kind == FM_EXCHANGE_ALL_GATHER ? in_columns : in_rows;
                m.receive.beta = variant & 4 ? FM_ADD : FM_WRITE;
                m.held = c->n_case % 3 != 0;
                m.patient = c->n_case % 2 != 0;
                size_t bytes = fm_element_bytes(element);
                sent += round_up((size_t)sent_extent(c, &m) * bytes);
                received += round_up((size_t)received_extent(c, &m) * bytes);
                c->cases[c->n_case++] = m;
            }
        }
    }
    c->cases[c->n_case - 1].held = false; /* nothing follows */
    if (sent > SIDE_BYTES || received > SIDE_BYTES || c->n_case > MOST_CASES) abort();
}

/* -- values */

static float to_bf16(float x) { /* nearest, ties to even */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* What a rank sends in a round; `old`: what is in its receive buffer. */
static void make_values(int32_t rank, int number, int round, bool old, fm_element element,
                        int64_t n, float *out) {
    uint64_t state =
        (uint64_t)(rank + 1) * 1000003u + (uint64_t)number * 8191u + (uint64_t)round * 131u + old;
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        float x = (float)(int32_t)(state >> 32) * 4.6566129e-10f;
        out[i] = element == FM_ELEMENT_BF16 ? to_bf16(x) : x;
    }
}

static void *own(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) abort();
    return memory;
}

/* Sends floats to the device as elements of the type. */
static void put(const check *c, fm_element element, const float *x, int64_t n, void *device) {
    uint16_t *half = own((size_t)n, sizeof *half);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        half[i] = (uint16_t)(bits >> 16);
    }
    const void *from = element == FM_ELEMENT_BF16 ? (const void *)half : x;
    c->f32->upload(c->stream, device, from, (size_t)n * fm_element_bytes(element));
    c->f32->synchronize(c->stream);
    free(half);
}

static void get(const check *c, fm_element element, const void *device, int64_t n, float *x) {
    uint16_t *half = own((size_t)n, sizeof *half);
    void *to = element == FM_ELEMENT_BF16 ? (void *)half : x;
    c->f32->download(c->stream, to, device, (size_t)n * fm_element_bytes(element));
    c->f32->synchronize(c->stream);
    for (int64_t i = 0; i < n && element == FM_ELEMENT_BF16; i++) {
        uint32_t bits = (uint32_t)half[i] << 16;
        memcpy(&x[i], &bits, sizeof bits);
    }
    free(half);
}

static void prepare(const check *c, int number, int round) {
    const fm_message *m = &c->cases[number];
    int64_t n = sent_extent(c, m), n_received = received_extent(c, m);
    float *x = own((size_t)(n > n_received ? n : n_received), sizeof *x);
    make_values(c->rank, number, round, false, m->element, n, x);
    put(c, m->element, x, n, (void *)(uintptr_t)m->send);
    make_values(c->rank, number, round, true, m->element, n_received, x);
    for (int64_t i = 0; i < n_received && m->receive.beta == FM_WRITE; i++)
        x[i] = NAN;
    put(c, m->element, x, n_received, m->receive.data);
    free(x);
}

/* Compares what arrived, bit for bit; NaN stays where no part goes. */
static void compare(check *c, int number, int round, const char *how) {
    const fm_message *m = &c->cases[number];
    int64_t n = sent_extent(c, m), n_received = received_extent(c, m);
    float *sent[MOST_RANKS], *expected = own((size_t)n_received, sizeof *expected);
    float *arrived = own((size_t)n_received, sizeof *arrived);
    for (int32_t r = 0; r < c->size; r++) {
        sent[r] = own((size_t)n, sizeof **sent);
        make_values(r, number, round, false, m->element, n, sent[r]);
    }
    make_values(c->rank, number, round, true, m->element, n_received, expected);
    for (int64_t i = 0; i < n_received && m->receive.beta == FM_WRITE; i++)
        expected[i] = NAN;
    fm_message host = *m;
    host.element = FM_ELEMENT_F32;
    host.receive.data = expected;
    fm_comm_combine(&host, c->rank, c->size, (const void *const *)sent);
    get(c, m->element, m->receive.data, n_received, arrived);
    int64_t wrong = 0, first = -1;
    for (int64_t i = 0; i < n_received; i++) {
        float e = m->element == FM_ELEMENT_BF16 ? to_bf16(expected[i]) : expected[i];
        bool same = isnan(expected[i]) ? isnan(arrived[i]) : e == arrived[i];
        if (!same && first < 0) first = i;
        wrong += !same;
    }
    if (wrong) {
        printf(
            "rank %d %s %s, %s, rows %lld run %lld, %s, round %d: %lld of %lld WRONG, first %lld: "
            "%g, expected %g\n",
            (int)c->rank, how, NAMES[m->exchange], m->element == FM_ELEMENT_BF16 ? "bf16" : "f32",
            (long long)m->rows, (long long)m->run, m->receive.beta == FM_ADD ? "added" : "written",
            round, (long long)wrong, (long long)n_received, (long long)first,
            (double)arrived[first], (double)expected[first]);
        fflush(stdout);
    }
    c->n_wrong += wrong > 0;
    c->n_checked++;
    for (int32_t r = 0; r < c->size; r++)
        free(sent[r]);
    free(expected);
    free(arrived);
}

/* -- runs */

/* Work of a random length: 0 to 7 fills of 16 MiB, outside of what exchanges use. */
static void delay(check *c) {
    c->delays = c->delays * 6364136223846793005u + 1442695040888963407u;
    for (uint64_t i = c->delays >> 61; i > 0; i--)
        c->f32->fill(c->stream, DELAY_BYTES / sizeof(float), 0, c->receive + SIDE_BYTES);
}

/* Queues all cases: one at a time, in pairs that end in the other order, and in lists. */
static void queue_all(check *c) {
    for (int i = 0; i < c->n_case;) {
        int n = i % 3 == 2 && i + 2 <= c->n_case && c->cases[i].element == c->cases[i + 1].element
                    ? 2
                    : 1;
        delay(c);
        fm_ticket first = c->comm->begin(c->comm, &c->cases[i], n, c->stream), second = 0;
        int next = i + n;
        if (i % 2 && next < c->n_case) {
            delay(c);
            second = c->comm->begin(c->comm, &c->cases[next], 1, c->stream);
            c->comm->finish(c->comm, second, c->stream);
        }
        c->comm->finish(c->comm, first, c->stream);
        i = next + (second != 0);
    }
}

static void prepare_all(const check *c, int round) {
    for (int i = 0; i < c->n_case; i++)
        prepare(c, i, round);
}

static void compare_all(check *c, int round, const char *how) {
    c->f32->synchronize(c->stream);
    for (int i = 0; i < c->n_case; i++)
        compare(c, i, round, how);
}

static bool check_cases(check *c) {
    const fm_device *device = c->f32->device;
    prepare_all(c, 0);
    queue_all(c);
    compare_all(c, 0, "directly");
    fm_graph *graph = NULL;
    bool captured = device->capture_begin(c->stream);
    if (captured) {
        queue_all(c);
        graph = device->capture_end(c->stream);
    }
    for (int round = 1; graph && round <= REPLAYS; round++) {
        prepare_all(c, round);
        device->graph_launch(graph, c->stream);
        compare_all(c, round, "in a graph");
    }
    device->graph_destroy(graph);
    printf("rank %d: %d cases, %d comparisons, %d wrong%s\n", (int)c->rank, c->n_case, c->n_checked,
           c->n_wrong, graph ? "" : ", NOT captured");
    fflush(stdout);
    return c->n_wrong == 0 && graph;
}

/* -- times */

/* Microseconds of one exchange in a chain of them; the rank's own buffer has `bytes` bytes. */
static double time_exchange(check *c, fm_exchange kind, int64_t bytes, bool columns, bool held) {
    const fm_device *device = c->f32->device;
    int64_t count = bytes / 2 / fm_exchange_parts_sent(kind, c->size);
    fm_message m = fm_message_plain(kind, FM_ELEMENT_BF16, count, c->send, c->receive);
    m.name = NAMES[kind];
    if (columns) { /* rows of 16 KiB */
        m.run = count < 8192 ? count : 8192;
        m.rows = count / m.run;
        m.sent = (fm_parts){m.run, c->size * m.run};
        m.received = (fm_parts){count, m.run};
    }
    fm_event *from, *to;
    if (!device->event_create(&from) || !device->event_create(&to)) abort();
    if (!device->capture_begin(c->stream)) abort();
    for (int i = 0; i < CHAIN; i++) {
        m.held = held && i + 1 < CHAIN;
        c->comm->finish(c->comm, c->comm->begin(c->comm, &m, 1, c->stream), c->stream);
    }
    fm_graph *graph = device->capture_end(c->stream);
    double best = INFINITY;
    for (int i = 0; i < ROUNDS && graph; i++) {
        device->event_record(from, c->stream);
        device->graph_launch(graph, c->stream);
        device->event_record(to, c->stream);
        device->event_wait(to);
        double us = 1e3 * device->event_elapsed_ms(from, to) / CHAIN;
        best = us < best ? us : best;
    }
    device->graph_destroy(graph);
    device->event_destroy(from);
    device->event_destroy(to);
    return best;
}

static void print_times(check *c) {
    static const int64_t sizes[] = {1 << 12, 1 << 16, 1 << 18, 1 << 20,
                                    1 << 21, 1 << 22, 1 << 23, 1 << 24};
    enum { N_SIZE = sizeof sizes / sizeof sizes[0] };
    if (c->rank == 0) {
        printf("\nmicroseconds of an exchange in a chain, %d ranks; bytes of a rank's own buffer\n",
               (int)c->size);
        printf("%-26s", "");
        for (int i = 0; i < N_SIZE; i++)
            printf("%7lldK", (long long)sizes[i] >> 10);
        printf("\n");
    }
    for (int kind = 1; kind <= FM_EXCHANGE_ALL_REDUCE; kind++) {
        for (int how = 0; how < 3; how++) {
            bool columns = how == 2, held = how == 1;
            if (columns && kind != FM_EXCHANGE_ALL_TO_ALL) continue;
            char name[32];
            snprintf(name, sizeof name, "%s%s", NAMES[kind],
                     columns ? ", columns"
                     : held  ? ", held"
                             : "");
            if (c->rank == 0) printf("%-26s", name);
            for (int i = 0; i < N_SIZE; i++) {
                double us = time_exchange(c, (fm_exchange)kind, sizes[i], columns, held);
                if (c->rank == 0) printf("%8.2f", us);
            }
            if (c->rank == 0) printf("\n");
            fflush(stdout);
        }
    }
}

/* -- a rank */

/* The last rank dies between two exchanges. The others must find out which, in time. */
static int lose_a_rank(check *c) {
    fm_error error = {0};
    queue_all(c);
    c->f32->synchronize(c->stream);
    if (c->rank == c->size - 1) raise(SIGKILL);
    double before = now();
    queue_all(c);
    c->f32->synchronize(c->stream);
    fm_status status = fm_gpu_link_check(c->link, &error);
    char expected[32];
    snprintf(expected, sizeof expected, "rank %d did not arrive", (int)c->size - 1);
    bool good = status == FM_ERR_CLOSED && strstr(error.message, expected) &&
                now() - before < 2 * KILL_WAIT_S;
    printf("rank %d after %.1f s: %s: %s\n", (int)c->rank, now() - before,
           status ? error.message : "nothing noticed", good ? "ok" : "WRONG");
    return good ? 0 : 1;
}

static int run(check *c, fm_error *error) {
    int32_t members[MOST_RANKS];
    for (int32_t r = 0; r < c->size; r++)
        members[r] = r;
    char *memory = c->f32->alloc(2 * SIDE_BYTES + DELAY_BYTES);
    if (!memory || !c->f32->device->stream_create(&c->stream)) abort();
    c->send = memory;
    c->receive = memory + SIDE_BYTES;
    fm_status status = fm_gpu_link_add_group(c->link, members, c->size, c->bf16, &c->comm, error);
    if (!status) status = fm_gpu_link_share(c->link, memory, 2 * SIDE_BYTES, error);
    if (status) return 1;
    list_cases(c);
    c->delays = (uint64_t)c->rank * 77777u + 1;
    if (c->set->kills) return lose_a_rank(c);
    bool good = check_cases(c);
    if (!c->set->skips_times) print_times(c);
    return fm_gpu_link_check(c->link, error) || !good;
}

static int run_rank(int32_t rank, const char *address, void *context) {
    const options *set = context;
    static check c;
    fm_error error = {0};
    fm_meeting *meeting = NULL;
    c = (check){.set = set, .rank = rank, .size = set->ranks};
    c.bf16 = fm_kernels_cuda(FM_ELEMENT_BF16);
    if (!c.bf16) {
        if (rank == 0) printf("comm_check: skipped: %s\n", fm_kernels_cuda_refusal());
        return SKIPPED;
    }
    c.f32 = c.bf16->wide;
    int result = 1;
    fm_status status = fm_meeting_open(&meeting, address, rank, set->ranks, LIMIT_S, &error);
    const fm_gpu_link_options link = {.kind = set->kind,
                                      .meeting = meeting,
                                      .seconds = LIMIT_S,
                                      .wait_s = set->kills ? KILL_WAIT_S : 20,
                                      .may_share_gpus = set->shares_gpus};
    if (!status) status = fm_gpu_link_create(&link, &c.link, &error);
    if (!status) result = run(&c, &error);
    if (error.message[0]) printf("comm_check: rank %d: %s\n", (int)rank, error.message);
    fm_gpu_link_destroy(c.link);
    fm_meeting_close(meeting);
    return result;
}

/* -- the program */

static bool parse(int argc, char **argv, options *set) {
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--skip-times")) {
            set->skips_times = true;
        } else if (!strcmp(argv[i], "--share-gpus")) {
            set->shares_gpus = set->skips_times = true;
        } else if (!strcmp(argv[i], "--kill")) {
            set->kills = true;
        } else if (!strcmp(argv[i], "--ranks") && atoi(value) >= 1 && atoi(value) <= MOST_RANKS) {
            set->ranks = atoi(value), i++;
        } else if (!strcmp(argv[i], "--backend") &&
                   (!strcmp(value, "peer") || !strcmp(value, "nccl"))) {
            set->kind = strcmp(value, "nccl") ? FM_LINK_PEER : FM_LINK_NCCL, i++;
        } else {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv) {
    options set = {.ranks = 2, .kind = FM_LINK_PEER};
    int exits[FM_TEST_RANKS];
    if (!parse(argc, argv, &set)) {
        fprintf(stderr, "usage: comm_check [--ranks N] [--backend peer|nccl] [--share-gpus] "
                        "[--skip-times] [--kill]\n");
        return 2;
    }
    int worst = fm_test_run_ranks(set.ranks, run_rank, &set, LIMIT_S, exits);
    if (set.kills && exits[set.ranks - 1] == 128 + SIGKILL) {
        worst = 0;
        for (int32_t r = 0; r + 1 < set.ranks; r++)
            worst = exits[r] > worst ? exits[r] : worst;
    }
    printf("comm_check: %s\n", worst == 0 ? "ok" : worst == SKIPPED ? "skipped" : "FAIL");
    return worst == 0 || worst == SKIPPED ? worst : 1;
}
