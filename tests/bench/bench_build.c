/* bench_build.c: measures a cold build of a dataset and the work that bounds it.
 *
 *     bench_build [--dataset DIR] [--chains N] [--rounds N]
 *
 * Without --dataset the input is N (64) chains of the synthetic set of bench_set.h, on a
 * memory-backed disk. The rows are
 *
 *     reading every input into memory, which bounds any build;
 *     reading and hashing;
 *     reading and making all parts in memory, without encoding and compression;
 *     the whole build with 1 and 2 workers into an empty cache, and again over the finished one;
 *     loading every chain.
 *
 * Each round of a row runs in its own process, so its processor time and peak memory count that
 * round only. The process may use as many cores as it has workers. Figures are medians over rounds;
 * rounds of 1 and 2 workers alternate.
 *
 * Rates "per core" are by processor time (user and system), because other jobs may share the
 * machine. The gain from 1 to 2 cores is by wall time and needs two free cores; the table also
 * shows how much more processor time two workers take. */
#include "cache/build/build.h"
#include "cache/store/store.h"
#include "proto/limits.h"
#include "tests/bench/bench_set.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { N_INPUT_MAX = 256 };

/* MegaFold, arXiv:2506.20686, section 4.1: the training set of AlphaFold3-style complexes that it
 * preprocesses ahead of time, and the time that takes. */
#define MEGAFOLD_COMPLEXES 127234.0
#define MEGAFOLD_HOURS 48.0

typedef enum depth { READ, READ_AND_HASH, READ_AND_PARSE } depth;

typedef struct bench_state {
    const char *dataset;
    char folder[256], cache[300];
    uint64_t rounds, n_chain;
    fm_arena arena, work, chain;
    fm_source source;
    uint64_t input_bytes;
} bench_state;

/* One row: medians over rounds. */
typedef struct cost {
    double wall, cpu, peak_mib; /* seconds, seconds, MiB */
} cost;

/* -- the bounds */

static void read_input(bench_state *bench, const fm_source_file *file, depth how, fm_arena *arena,
                       fm_bytes *ret_bytes) {
    fm_error error;
    check(fm_source_read(file, FM_LIMIT_INPUT_BYTES, arena, ret_bytes, &error), &error);
    bench->input_bytes += ret_bytes->size;
    if (how == READ_AND_HASH) (void)fm_sha256_of(ret_bytes->data, ret_bytes->size);
}

static void do_chain(bench_state *bench, const fm_source_chain *chain, const fm_mmcif *mmcif,
                     depth how) {
    fm_error error;
    fm_msa_input inputs[N_INPUT_MAX];
    uint32_t n_file;
    size_t n = 0;
    const fm_source_file *file;
    fm_arena_reset(&bench->chain);
    check(fm_source_files(chain, &bench->chain, &n_file, &file, &error), &error);
    for (uint32_t i = 0; i < n_file && n < N_INPUT_MAX; i++) {
        fm_msa_format format = fm_msa_format_of_name(file[i].name);
        if (format == FM_MSA_NONE) continue;
        inputs[n] = (fm_msa_input){.name = file[i].name, .format = format};
        read_input(bench, &file[i], how, &bench->chain, &inputs[n++].content);
    }
    if (how != READ_AND_PARSE) return;
    const fm_features_options options = {0};
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_part_msa msa;
    check(fm_features_structure(mmcif, chain->author_id, &options, &bench->chain, &sequence,
                                &structure, &error),
          &error);
    check(fm_features_msa(&sequence, inputs, n, &options, &bench->chain, &msa, NULL, &error),
          &error);
}

static void do_inputs(bench_state *bench, depth how) {
    fm_error error;
    bench->input_bytes = 0;
    for (uint32_t i = 0; i < bench->source.n_structure; i++) {
        const fm_source_structure *structure = &bench->source.structure[i];
        fm_bytes text;
        fm_mmcif mmcif = {0};
        if (!structure->n_chain) continue;
        fm_arena_reset(&bench->work);
        const fm_source_file file = {.path = structure->path, .bytes = UINT64_MAX};
        read_input(bench, &file, how, &bench->work, &text);
        if (how == READ_AND_PARSE) {
            const fm_mmcif_options options = {0};
            check(fm_mmcif_parse(text, &options, &bench->work, &mmcif, &error), &error);
        }
        for (uint32_t c = 0; c < structure->n_chain; c++)
            do_chain(bench, &structure->chain[c], &mmcif, how);
    }
}

/* -- the build */

static fm_build_report run_build(bench_state *bench, uint32_t n_job) {
    fm_error error;
    fm_build_report report;
    const fm_build_options options = {.cache = bench->cache, .n_job = n_job};
    check(fm_build_run(&bench->source, &options, &bench->arena, &report, &error), &error);
    return report;
}

static double seconds_of(struct timeval t) {
    return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

/* Restricts this process to the first n of the cores that it may use. */
static void keep_to_cores(uint32_t n) {
    cpu_set_t all, some;
    CPU_ZERO(&some);
    if (sched_getaffinity(0, sizeof all, &all) != 0) return;
    for (int i = 0; i < CPU_SETSIZE && n; i++) {
        if (!CPU_ISSET(i, &all)) continue;
        CPU_SET(i, &some);
        n--;
    }
    (void)sched_setaffinity(0, sizeof some, &some);
}

/* Runs one round in its own process: n_job workers build, or with 0, the inputs are read. */
static cost run_apart(bench_state *bench, uint32_t n_job, depth how) {
    fflush(NULL);
    double begun = now_s();
    pid_t child = fork();
    if (child == 0) {
        keep_to_cores(n_job ? n_job : 1);
        if (n_job) {
            run_build(bench, n_job);
        } else {
            do_inputs(bench, how);
        }
        _exit(0);
    }
    int status = 1;
    struct rusage usage;
    if (child < 0 || wait4(child, &status, 0, &usage) != child || status != 0) exit(1);
    return (cost){now_s() - begun, seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime),
                  (double)usage.ru_maxrss / 1024.0};
}

static cost medians(const cost *rounds, uint64_t n) {
    double wall[ROUNDS_MAX], cpu[ROUNDS_MAX], peak[ROUNDS_MAX];
    for (uint64_t i = 0; i < n; i++) {
        wall[i] = rounds[i].wall;
        cpu[i] = rounds[i].cpu;
        peak[i] = rounds[i].peak_mib;
    }
    return (cost){median(wall, (int)n), median(cpu, (int)n), median(peak, (int)n)};
}

static void print_row(const bench_state *bench, const char *what, cost of) {
    printf("%-36s %8.0f %8.0f %10.1f %12.1f %10.0f %9.0f\n", what, of.wall * 1e3, of.cpu * 1e3,
           bench->source.n_chain / of.wall, bench->source.n_chain / of.cpu,
           (double)bench->input_bytes / 1e6 / of.cpu, of.peak_mib);
}

static void measure_inputs(bench_state *bench, depth how, const char *what) {
    cost rounds[ROUNDS_MAX];
    for (uint64_t i = 0; i < bench->rounds; i++)
        rounds[i] = run_apart(bench, 0, how);
    print_row(bench, what, medians(rounds, bench->rounds));
}

static void measure_builds(bench_state *bench, cost *ret_one, cost *ret_two) {
    cost one[ROUNDS_MAX], two[ROUNDS_MAX], again[ROUNDS_MAX];
    for (uint64_t i = 0; i < bench->rounds; i++) {
        one[i] = run_apart(bench, 1, READ);
        again[i] = run_apart(bench, 1, READ);
        fm_test_remove_tree(bench->cache);
        two[i] = run_apart(bench, 2, READ);
        fm_test_remove_tree(bench->cache);
    }
    *ret_one = medians(one, bench->rounds);
    *ret_two = medians(two, bench->rounds);
    print_row(bench, "build, 1 worker on 1 core", *ret_one);
    print_row(bench, "build, 2 workers on 2 cores", *ret_two);
    print_row(bench, "build again, nothing new, 1 worker", medians(again, bench->rounds));
}

/* -- reading back */

static void measure_loads(bench_state *bench) {
    fm_store *store;
    fm_error error;
    fm_record record;
    double seconds[ROUNDS_MAX];
    fm_build_report report = run_build(bench, 1);
    check(fm_store_open(bench->cache, &store, &error), &error);
    uint64_t dense = 0;
    for (uint64_t i = 0; i < bench->rounds; i++) {
        double begun = now_s();
        dense = 0;
        for (uint32_t c = 0; c < fm_store_get_info(store)->n_chain; c++) {
            fm_arena_reset(&bench->chain);
            check(fm_store_load(store, c, &bench->chain, &record, &error), &error);
            dense += 3 * (uint64_t)record.msa->n_seq * record.msa->n_res;
        }
        seconds[i] = now_s() - begun;
    }
    double result = median(seconds, (int)bench->rounds);
    printf("\nload every chain, 1 thread: %.1f ms, %.0f chains/s, %.0f MB/s of dense MSA and "
           "deletions\n",
           result * 1e3, report.n_chain / result, (double)dense / 1e6 / result);
    printf("stored: %.0f bytes a chain of %.1f MB of input (bench_bytes has the parts)\n",
           (double)report.stored_bytes / report.n_chain,
           (double)report.input_bytes / 1e6 / report.n_chain);
    fm_store_close(store);
}

static void print_summary(const bench_state *bench, cost one, cost two) {
    double per_core = bench->source.n_chain / one.cpu;
    printf("\nfrom 1 worker on 1 core to 2 on 2: x%.2f by wall time (goal 1.7, with two free "
           "cores); two workers "
           "take %.2f times the\nprocessor time of one, so at most x%.2f\n",
           one.wall / two.wall, two.cpu / one.cpu, 2.0 * one.cpu / two.cpu);
    printf("one core: %.1f chains/s (goal 8), %.0f MB/s of input\n", per_core,
           (double)bench->input_bytes / 1e6 / one.cpu);
    printf("MegaFold pre-processed %.0f complexes in %.0f h: %.2f a second. As many chains of this "
           "set at this rate:\n%.1f h on one core, %.1f minutes on 64 (goal 5).\n",
           MEGAFOLD_COMPLEXES, MEGAFOLD_HOURS, MEGAFOLD_COMPLEXES / (MEGAFOLD_HOURS * 3600.0),
           MEGAFOLD_COMPLEXES / per_core / 3600.0, MEGAFOLD_COMPLEXES / per_core / 64.0 / 60.0);
}

static void parse_arguments(bench_state *bench, int argc, char **argv) {
    bench->rounds = 5;
    bench->n_chain = 64;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--dataset") == 0) bench->dataset = argv[i + 1];
        if (strcmp(argv[i], "--chains") == 0) bench->n_chain = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--rounds") == 0) bench->rounds = strtoull(argv[i + 1], NULL, 10);
    }
    if (bench->rounds < 1 || bench->rounds > ROUNDS_MAX) bench->rounds = 5;
    if (bench->n_chain < 1 || bench->n_chain > 10000) bench->n_chain = 64;
}

int main(int argc, char **argv) {
    bench_state bench = {0};
    char dataset[300];
    fm_error error;
    cost one, two;
    parse_arguments(&bench, argc, argv);
    make_memory_folder(bench.folder, sizeof bench.folder);
    snprintf(bench.cache, sizeof bench.cache, "%s/cache", bench.folder);
    check(fm_arena_init(&bench.arena, (size_t)8 << 30, &error), &error);
    check(fm_arena_init(&bench.work, (size_t)8 << 30, &error), &error);
    check(fm_arena_init(&bench.chain, (size_t)8 << 30, &error), &error);
    if (!bench.dataset) {
        snprintf(dataset, sizeof dataset, "%s/data", bench.folder);
        write_set(dataset, (uint32_t)bench.n_chain, &bench.work);
        bench.dataset = dataset;
    }
    check(fm_source_scan(&(fm_source_options){.dataset = bench.dataset}, 1, &bench.arena,
                         &bench.source, &error),
          &error);
    do_inputs(&bench, READ);
    /* Memory touched here would count as memory of the rounds. */
    fm_arena_fini(&bench.work);
    fm_arena_fini(&bench.chain);
    check(fm_arena_init(&bench.work, (size_t)8 << 30, &error), &error);
    check(fm_arena_init(&bench.chain, (size_t)8 << 30, &error), &error);
    printf("%s: %u chains, %.1f MB; medians of %llu\n", bench.dataset, bench.source.n_chain,
           (double)bench.input_bytes / 1e6, (unsigned long long)bench.rounds);
    print_load();
    printf("%-36s %8s %8s %10s %12s %10s %9s\n", "", "wall ms", "CPU ms", "chains/s", "per core",
           "MB/s/core", "peak MiB");
    measure_inputs(&bench, READ, "read");
    measure_inputs(&bench, READ_AND_HASH, "read and SHA-256");
    measure_inputs(&bench, READ_AND_PARSE, "read and make all parts");
    measure_builds(&bench, &one, &two);
    print_summary(&bench, one, two);
    measure_loads(&bench);
    fm_arena_fini(&bench.arena);
    fm_arena_fini(&bench.work);
    fm_arena_fini(&bench.chain);
    fm_test_remove_tree(bench.folder);
    return 0;
}
