/* bench_stream.c: measures how long a stream's consumers wait with slow samples, and the rate of a
 * stream.
 *
 *     bench_stream [--steps N] [--warm N] [--rounds N] [--samples N] [--only waits|warm|rate]
 *
 * Waits. 8 synchronous consumers take steps of 100 ms. 89 % of their samples take 20 ms to prepare,
 * 10 % ten times and 1 % a hundred times as long; workers sleep for this time. Each order has one
 * server with 10 workers. All of them run at the same time and with the same preparation times, so
 * that a busy machine disturbs them equally; so do other loaders beside them (`./run bench
 * baselines`). A consumer's wait is the time in fm_loader_next; the exposed wait of a step is the
 * longest of the 8. Each row also has the result of a simulation of the same run, as has PyTorch's
 * DataLoader with two workers in each of 8 processes.
 *
 * The row "warm cache" is a real cache of 10,000-row alignments, in strict order.
 *
 * Rate. A server of that cache with two workers on a unix socket; `foldmill fetch` and the Python
 * package's Stream take the same samples of the plan af2-initial in turn. Medians over rounds. The
 * processor time of a sample says what two cores that do nothing else would give. */
#include "proto/base/log.h"
#include "proto/base/options.h"
#include "proto/base/program.h"
#include "server/simulate/simulation.h"
#include "server/source_cache.h"
#include "tests/bench/bench_server.h"
#include "tests/bench/bench_set.h"
#include "tests/testing/source.h"
#include "trainer/data/loader.h"

#include <limits.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum {
    N_CONSUMER = 8,
    N_WORKER = 10,
    N_LOADER_WORKER = 2, /* of each consumer: PyTorch's cannot be shared */
    N_AHEAD = 8,
    STEP_MS = 100,
    BATCH = 8,
    N_CHAIN = 8,
};
static const char plan_of_cache[] = "af2-initial";

typedef struct settings {
    uint64_t steps, warm, rounds, samples;
    const char *only;
    char folder[200], tests[PATH_MAX], build[PATH_MAX];
} settings;

/* -- times of samples */

/* The same numbers as delay_ms of deploy/baselines/waits.py (splitmix64). */
static uint32_t delay_ms(uint64_t index) {
    uint64_t word = index + 0x9e3779b97f4a7c15u;
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
    word = (word ^ word >> 27) * 0x94d049bb133111ebu;
    uint32_t part = (uint32_t)((word ^ word >> 31) % 1000);
    return part < 10 ? 2000 : part < 110 ? 200 : 20;
}

static uint32_t median_ms(uint64_t index) {
    (void)index;
    return 20;
}

/* -- synchronous consumers of one server */

typedef struct waits_run {
    const settings *set;
    const char *name, *url, *plan;
    fm_wire_order order;
    uint32_t window;
    pthread_barrier_t barrier;
    uint64_t wait_ns[N_CONSUMER]; /* of the present step */
    fm_histogram exposed_ns;
    pthread_t thread;
} waits_run;

typedef struct consumer {
    waits_run *run;
    uint32_t number;
    pthread_t thread;
} consumer;

static fm_loader *open_loader(const waits_run *run, uint32_t number) {
    fm_loader_options options = {
        .supply = {.client = {.url = run->url, .agent = "bench_stream"}},
        .stream = {.global_batch = N_CONSUMER,
                   .group = number,
                   .n_group = N_CONSUMER,
                   .n_step = run->set->warm + run->set->steps,
                   .order = run->order,
                   .window = run->window,
                   .policy = FM_WIRE_STOP},
        .n_slab = N_AHEAD,
    };
    fm_loader *loader;
    fm_error error;
    fm_wire_text(options.stream.plan, sizeof options.stream.plan, run->plan);
    if (fm_loader_open(&options, &loader, &error)) die(run->name, &error);
    return loader;
}

static void *use_samples(void *argument) {
    const consumer *c = argument;
    waits_run *run = c->run;
    fm_loader *loader = open_loader(run, c->number);
    const struct timespec step = {.tv_nsec = STEP_MS * 1000000L};
    pthread_barrier_wait(&run->barrier);
    for (uint64_t k = 0; k < run->set->warm + run->set->steps; k++) {
        fm_loaded loaded;
        fm_error error;
        bool is_ready;
        uint64_t begin_ns = fm_clock_ns();
        if (fm_loader_next(loader, UINT32_MAX, &is_ready, &loaded, &error)) die(run->name, &error);
        run->wait_ns[c->number] = fm_clock_ns() - begin_ns;
        if (pthread_barrier_wait(&run->barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
            uint64_t longest = 0;
            for (int i = 0; i < N_CONSUMER; i++)
                longest = run->wait_ns[i] > longest ? run->wait_ns[i] : longest;
            if (k >= run->set->warm) fm_histogram_add(&run->exposed_ns, longest);
        }
        nanosleep(&step, NULL);
        fm_loader_release(loader, &loaded);
    }
    fm_loader_close(loader);
    return NULL;
}

static void *run_consumers(void *argument) {
    waits_run *run = argument;
    consumer consumers[N_CONSUMER];
    pthread_barrier_init(&run->barrier, NULL, N_CONSUMER);
    for (uint32_t i = 0; i < N_CONSUMER; i++) {
        consumers[i] = (consumer){.run = run, .number = i};
        if (pthread_create(&consumers[i].thread, NULL, use_samples, &consumers[i])) {
            die("cannot start a thread", NULL);
        }
    }
    for (uint32_t i = 0; i < N_CONSUMER; i++)
        pthread_join(consumers[i].thread, NULL);
    pthread_barrier_destroy(&run->barrier);
    return NULL;
}

/* -- other programs */

/* Runs a command and reads its first line; returns its exit status. */
static int ask(const char *command, char line[256]) {
    line[0] = '\0';
    FILE *pipe = popen(command, "r");
    if (!pipe) die("popen", NULL);
    if (!fgets(line, 256, pipe)) line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* -- waits */

static void print_row(const char *name, const fm_histogram *ns, double mean_ms) {
    printf("%-24s %10.3f %10.3f %10.3f %10.3f\n", name,
           (double)fm_histogram_percentile(ns, 500) * 1e-6,
           (double)fm_histogram_percentile(ns, 990) * 1e-6, (double)ns->max * 1e-6, mean_ms);
}

static void print_simulated(const settings *set, fm_simulated_order order, uint32_t window,
                            const char *name) {
    static const char text[] = "20 890\n200 100\n2000 10\n";
    const fm_simulation plan = {
        .n_rank = N_CONSUMER,
        .per_rank = 1,
        .n_server = 1,
        .n_worker = order == FM_SIMULATED_LOADER ? N_CONSUMER * N_LOADER_WORKER : N_WORKER,
        .ahead = N_AHEAD,
        .order = order,
        .window = window,
        .n_warm = (uint32_t)set->warm,
        .n_step = (uint32_t)set->steps,
        .step_ms = STEP_MS,
        .seed = 1};
    fm_prepare_times times;
    fm_simulated result;
    fm_error error;
    check(
        fm_prepare_times_parse((fm_bytes){(const uint8_t *)text, sizeof text - 1}, &times, &error),
        &error);
    check(fm_simulate(&plan, &times, &result, &error), &error);
    fm_prepare_times_fini(&times);
    print_row(name, &result.wait_ns, result.wait_ms / plan.n_step);
}

static const struct {
    const char *name, *order;
    uint32_t (*delay_ms)(uint64_t index);
} server_rows[] = {
    {"strict", "strict", delay_ms},
    {"bounded:32", "bounded:32", delay_ms},
    {"free", "free", delay_ms},
    {"strict, no slow samples", "strict", median_ms},
};
enum { N_ROW = sizeof server_rows / sizeof server_rows[0] };

/* One server with injected times, and its consumers. */
typedef struct slow_server {
    char url[256];
    fm_test_source test;
    fm_sample_source source;
    bench_server server;
    waits_run run;
} slow_server;

static void start_slow(slow_server *s, const settings *set, int number) {
    const char *order_name = server_rows[number].order;
    s->test = (fm_test_source){.shape = {.n_res = 16, .n_clust = 4, .n_extra = 4, .n_cycle = 1},
                               .global_batch = N_CONSUMER,
                               .delay_ms = server_rows[number].delay_ms};
    fm_test_source_init(&s->test, &s->source);
    snprintf(s->url, sizeof s->url, "unix:%s/%d", set->folder, number);
    const fm_server_options options = {.listen = {s->url}, .n_job = N_WORKER};
    s->server = start_server(&options, &s->source);
    s->run = (waits_run){.set = set, .name = order_name, .url = s->url, .plan = "test"};
    uint32_t order;
    fm_error error;
    if (fm_wire_order_parse(order_name, &order, &s->run.window, &error)) die(order_name, &error);
    s->run.order = (fm_wire_order)order;
    if (pthread_create(&s->run.thread, NULL, run_consumers, &s->run)) die("thread", NULL);
}

static void bench_waits(const settings *set) {
    static slow_server servers[N_ROW];
    printf("exposed wait per step of %d ms, %d consumers, %d workers, %llu steps after %llu\n",
           STEP_MS, N_CONSUMER, N_WORKER, (unsigned long long)set->steps,
           (unsigned long long)set->warm);
    printf("%-24s %10s %10s %10s %10s\n", "order", "p50 ms", "p99 ms", "max ms", "mean ms");
    for (int i = 0; i < N_ROW; i++)
        start_slow(&servers[i], set, i);
    for (int i = 0; i < N_ROW; i++) {
        fm_histogram *ns = &servers[i].run.exposed_ns;
        pthread_join(servers[i].run.thread, NULL);
        stop_server(&servers[i].server);
        fm_test_source_fini(&servers[i].test);
        print_row(server_rows[i].name, ns, (double)ns->sum / (double)ns->n * 1e-6);
    }
    print_simulated(set, FM_SIMULATED_STRICT, 0, "strict, simulated");
    print_simulated(set, FM_SIMULATED_BOUNDED, 32, "bounded:32, simulated");
    print_simulated(set, FM_SIMULATED_FREE, 0, "free, simulated");
    print_simulated(set, FM_SIMULATED_LOADER, 0, "DataLoader, simulated");
}

/* -- a real cache */

static void build_cache(const settings *set, fm_arena *arena) {
    char path[512], command[3 * PATH_MAX];
    snprintf(path, sizeof path, "%s/data", set->folder);
    write_set(path, N_CHAIN, arena);
    snprintf(command, sizeof command,
             "%s/bin/foldmill build %s/data --cache %s/cache --quiet 2>&1 >/dev/null", set->build,
             set->folder, set->folder);
    char line[256];
    if (ask(command, line)) die(line, NULL);
}

static void bench_warm(const settings *set, const char *url) {
    waits_run run = {
        .set = set, .name = "warm", .url = url, .plan = plan_of_cache, .order = FM_WIRE_STRICT};
    run_consumers(&run);
    print_row("strict, warm cache", &run.exposed_ns,
              (double)run.exposed_ns.sum / (double)run.exposed_ns.n * 1e-6);
}

/* Processor time of this process, the server; and of the programs that have ended. */
static double processor_s(bool of_children) {
    struct rusage used;
    getrusage(of_children ? RUSAGE_CHILDREN : RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

/* "On 2 idle cores": what the processor time of a sample allows. */
static void print_rate(const char *name, double per_s, double server_ms, double client_ms) {
    printf("%-24s %10.1f %16.2f %16.2f %18.0f\n", name, per_s, server_ms, client_ms,
           2e3 / (server_ms + client_ms));
}

static void bench_rate(const settings *set, const char *url) {
    double c[ROUNDS_MAX], python[ROUNDS_MAX], python_ms[ROUNDS_MAX];
    double client_s = 0, server_s = 0;
    char command[3 * PATH_MAX], line[256], why[256] = "";
    uint64_t steps = set->samples / BATCH, n_python = 0;
    for (uint64_t k = 0; k < set->rounds; k++) {
        snprintf(command, sizeof command,
                 "%s/bin/foldmill fetch --data %s --plan %s --batch %d --steps %llu --seed %llu "
                 "--credit 16 --json | sed -n 's/.*\"samples_per_s\": *\\([0-9.]*\\).*/\\1/p'",
                 set->build, url, plan_of_cache, BATCH, (unsigned long long)steps,
                 (unsigned long long)k);
        client_s -= processor_s(true);
        server_s -= processor_s(false);
        if (ask(command, line) || sscanf(line, "%lf", &c[k]) != 1) die("foldmill fetch", NULL);
        client_s += processor_s(true);
        server_s += processor_s(false);
        snprintf(
            command, sizeof command,
            "/usr/bin/python3 %s/bench/stream_rate.py %s/../python/python %s %s %d %llu %llu 2>&1",
            set->tests, set->build, url, plan_of_cache, BATCH, (unsigned long long)steps,
            (unsigned long long)k);
        bool is_there = ask(command, line) == 0 && n_python == k;
        if (is_there && sscanf(line, "%lf %lf", &python[k], &python_ms[k]) == 2) {
            n_python++;
        } else {
            snprintf(why, sizeof why, "%s", line);
        }
    }
    double n = (double)(set->rounds * steps * BATCH);
    double server_ms = server_s / n * 1e3, client_ms = client_s / n * 1e3;
    printf("\n%s from chains of %d residues and about 10,000 rows, unix socket, 2 workers\n",
           plan_of_cache, SET_LENGTH);
    printf("%-24s %10s %16s %16s %18s\n", "client", "samples/s", "server, CPU ms", "client, CPU ms",
           "on 2 idle cores");
    print_rate("foldmill fetch", median(c, set->rounds), server_ms, client_ms);
    if (n_python == set->rounds) {
        print_rate("Python Stream", median(python, n_python), server_ms,
                   median(python_ms, n_python));
    } else {
        printf("%-24s skipped: %s (./run build python)\n", "Python Stream", why);
    }
}

/* Is a part of the benchmark to be run? */
static bool is_asked(const settings *set, const char *part) {
    return !set->only[0] || strcmp(set->only, part) == 0;
}

static void bench_cache(const settings *set) {
    fm_arena arena;
    fm_error error;
    fm_store *store;
    fm_sample_source *source;
    char path[512], url[256];
    check(fm_arena_init(&arena, (size_t)4 << 30, &error), &error);
    build_cache(set, &arena);
    snprintf(path, sizeof path, "%s/cache", set->folder);
    snprintf(url, sizeof url, "unix:%s/cached", set->folder);
    check(fm_store_open(path, &store, &error), &error);
    check(fm_cache_source_open(store, "all", "all", &source, &error), &error);
    const fm_server_options options = {.listen = {url}, .n_job = 2};
    bench_server server = start_server(&options, source);
    if (is_asked(set, "warm")) bench_warm(set, url);
    if (is_asked(set, "rate")) bench_rate(set, url);
    stop_server(&server);
    fm_cache_source_close(source);
    fm_store_close(store);
    fm_arena_fini(&arena);
}

/* The folders of the build and of the tests' sources, from the path of this program. */
static void find_folders(settings *set) {
    char here[PATH_MAX - 64];
    ssize_t n = readlink("/proc/self/exe", here, sizeof here - 1);
    if (n < 0) die("/proc/self/exe", NULL);
    here[n] = '\0';
    for (int up = 0; up < 2; up++)
        *strrchr(here, '/') = '\0';
    snprintf(set->build, sizeof set->build, "%s", here);
    snprintf(set->tests, sizeof set->tests, "%s/../../tests", here);
}

int main(int argc, char **argv) {
    settings set = {.steps = 400, .warm = 300, .rounds = 5, .samples = 600, .only = ""};
    const fm_option options[] = {
        {"steps", FM_OPTION_U64, &set.steps, "N", .help = "measured steps (400)", .min = 10,
         .max = 100000},
        {"warm", FM_OPTION_U64, &set.warm, "N", .help = "steps before those (300)", .min = 0,
         .max = 100000},
        {"rounds", FM_OPTION_U64, &set.rounds, "N", .help = "rounds of rates (5)", .min = 1,
         .max = ROUNDS_MAX},
        {"samples", FM_OPTION_U64, &set.samples, "N", .help = "samples of a round (600)",
         .min = BATCH, .max = 1000000},
        {"only", FM_OPTION_STRING, &set.only, "PART", .help = "waits, warm or rate (all)"},
        {0}};
    const fm_command command = {.program = "bench_stream",
                                .arguments = "[options]",
                                .summary = "measure waits and rates of streams",
                                .options = options};
    int n_positional;
    fm_error error;
    fm_status status = fm_options_parse(&command, argc, argv, &n_positional, &error);
    if (status) return status == FM_ERR_CANCELLED ? 0 : fm_program_report("bench_stream", &error);
    fm_log_set_level(FM_LOG_ERROR);
    find_folders(&set);
    make_memory_folder(set.folder, sizeof set.folder);
    print_load();
    if (is_asked(&set, "waits")) bench_waits(&set);
    if (is_asked(&set, "warm") || is_asked(&set, "rate")) bench_cache(&set);
    print_load();
    fm_test_remove_tree(set.folder);
    return 0;
}
