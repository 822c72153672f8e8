/* bench_build.c: a cold build of a dataset, beside what bounds it.
 *
 *     bench_build [--dataset DIR] [--rounds N]
 *
 * Without --dataset: golden/dataset of $FM_REFERENCE_DATA when that is set, else a synthetic set of
 * 48 chains with deep alignments (made once, in a folder of its own). Rows: reading every input
 * into memory (the bound of any build: warm page cache), reading and hashing, reading and making
 * all parts in memory (no encoding, no compression), and the whole build with 1 and 2 workers into
 * an empty cache, and again over the finished one. Medians over rounds, wall time. Then loading
 * every chain from the cache that was built. */
#include "cache/build.h"
#include "cache/store.h"
#include "featurizer/synth/synth.h"
#include "proto/base/file.h"
#include "proto/limits.h"
#include "tests/testing/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS_MAX = 101, N_INPUT_MAX = 256, N_SYNTH = 48, SYNTH_DEPTH = 6000 };

typedef enum depth { READ, READ_AND_HASH, READ_AND_PARSE } depth;

typedef struct bench_state {
    const char *dataset;
    char folder[256];
    int rounds;
    fm_arena arena, work, chain;
    fm_source source;
    uint64_t input_bytes;
} bench_state;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return values[n / 2];
}

static void check(fm_status status, const fm_error *error) {
    if (!status) return;
    char text[1024];
    fm_error_format(error, text, sizeof text);
    fprintf(stderr, "bench_build: %s\n", text);
    exit(1);
}

/* -- what bounds a build
 * ------------------------------------------------------------------------------- */

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
    check(fm_features_msa(&sequence, inputs, n, &options, &bench->chain, &msa, &error), &error);
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
        for (uint32_t c = 0; c < structure->n_chain; c++) {
            do_chain(bench, &structure->chain[c], &mmcif, how);
        }
    }
}

/* -- the build
 * ----------------------------------------------------------------------------------------- */

static fm_build_report run_build(bench_state *bench, uint32_t n_job) {
    char cache[300];
    fm_error error;
    fm_build_report report;
    snprintf(cache, sizeof cache, "%s/cache", bench->folder);
    const fm_build_options options = {.cache = cache, .n_job = n_job};
    size_t mark = fm_arena_mark(&bench->arena);
    check(fm_build_run(&bench->source, &options, &bench->arena, &report, &error), &error);
    fm_arena_rewind(&bench->arena, mark);
    return report;
}

static void forget_cache(bench_state *bench) {
    char cache[300];
    snprintf(cache, sizeof cache, "%s/cache", bench->folder);
    fm_test_remove_tree(cache);
}

static void print_row(const bench_state *bench, const char *what, double seconds, double bound) {
    printf("%-34s %9.1f ms %9.1f MB/s %9.1f chains/s", what, seconds * 1e3,
           (double)bench->input_bytes / 1e6 / seconds, bench->source.n_chain / seconds);
    if (bound > 0) printf(" %7.2f of the time of reading and parsing", seconds / bound);
    printf("\n");
}

static double measure_inputs(bench_state *bench, depth how, const char *what) {
    double seconds[ROUNDS_MAX];
    for (int i = 0; i < bench->rounds; i++) {
        double begun = now_s();
        do_inputs(bench, how);
        seconds[i] = now_s() - begun;
    }
    double result = median(seconds, bench->rounds);
    print_row(bench, what, result, 0);
    return result;
}

static double measure_build(bench_state *bench, uint32_t n_job, bool again, const char *what,
                            double bound) {
    double seconds[ROUNDS_MAX];
    for (int i = 0; i < bench->rounds; i++) {
        if (again) run_build(bench, n_job);
        double begun = now_s();
        run_build(bench, n_job);
        seconds[i] = now_s() - begun;
        forget_cache(bench);
    }
    double result = median(seconds, bench->rounds);
    print_row(bench, what, result, bound);
    return result;
}

static void measure_loads(bench_state *bench) {
    char cache[300];
    fm_store *store;
    fm_error error;
    fm_record record;
    double seconds[ROUNDS_MAX];
    fm_build_report report = run_build(bench, 1);
    snprintf(cache, sizeof cache, "%s/cache", bench->folder);
    check(fm_store_open(cache, &store, &error), &error);
    uint64_t dense = 0;
    for (int i = 0; i < bench->rounds; i++) {
        double begun = now_s();
        dense = 0;
        for (uint32_t c = 0; c < fm_store_get_info(store)->n_chain; c++) {
            fm_arena_reset(&bench->chain);
            check(fm_store_load(store, c, &bench->chain, &record, &error), &error);
            dense += 3 * (uint64_t)record.msa->n_seq * record.msa->n_res;
        }
        seconds[i] = now_s() - begun;
    }
    double result = median(seconds, bench->rounds);
    printf("%-34s %9.1f ms %9.1f MB/s of dense MSA and deletions, %.0f chains/s\n",
           "load every chain, 1 thread", result * 1e3, (double)dense / 1e6 / result,
           report.n_chain / result);
    printf("%.0f bytes a chain stored (%u chains, %.1f MB of input each)\n",
           (double)report.stored_bytes / report.n_chain, report.n_chain,
           (double)report.input_bytes / 1e6 / report.n_chain);
    fm_store_close(store);
    forget_cache(bench);
}

/* -- datasets
 * ------------------------------------------------------------------------------------------ */

static void write_plain(const char *path, fm_bytes content) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(content.data, 1, content.size, file) != content.size || fclose(file)) {
        perror(path);
        exit(1);
    }
}

static void make_chain(bench_state *bench, const fm_synth_options *options,
                       const fm_synth_entry *entry, uint32_t slot) {
    char path[512];
    fm_error error;
    fm_synth_file files[FM_SYNTH_MAX_FILES];
    uint32_t n_file;
    int at = snprintf(path, sizeof path, "%s/data/alignments/%s_%c", bench->folder, entry->id,
                      entry->auth_chain[slot]);
    fm_arena_reset(&bench->chain);
    check(fm_dir_make(path, &error), &error);
    check(fm_synth_alignments(&bench->chain, options, entry, slot, files, &n_file, &error), &error);
    for (uint32_t i = 0; i < n_file; i++) {
        snprintf(path + at, sizeof path - (size_t)at, "/%s", files[i].name);
        write_plain(path, files[i].content);
    }
}

static void make_dataset(bench_state *bench, char out[300]) {
    const fm_synth_options options = {
        .seed = 1, .min_length = 100, .max_length = 400, .max_depth = SYNTH_DEPTH};
    fm_error error;
    fm_bytes text;
    char path[512];
    snprintf(path, sizeof path, "%s/data/mmcifs", bench->folder);
    check(fm_dir_make(path, &error), &error);
    for (uint32_t index = 0, n_chain = 0; n_chain < N_SYNTH; index++) {
        fm_synth_entry entry = fm_synth_entry_of(&options, index);
        fm_arena_reset(&bench->work);
        check(fm_synth_mmcif(&bench->work, &options, &entry, &text, &error), &error);
        snprintf(path, sizeof path, "%s/data/mmcifs/%s.cif", bench->folder, entry.id);
        write_plain(path, text);
        for (uint32_t slot = 0; slot < entry.n_chain; slot++, n_chain++) {
            make_chain(bench, &options, &entry, slot);
        }
    }
    snprintf(out, 300, "%s/data", bench->folder);
}

static void parse_arguments(bench_state *bench, int argc, char **argv) {
    bench->rounds = 5;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--dataset") == 0) bench->dataset = argv[i + 1];
        if (strcmp(argv[i], "--rounds") == 0) bench->rounds = atoi(argv[i + 1]);
    }
    if (bench->rounds < 1 || bench->rounds > ROUNDS_MAX) bench->rounds = 5;
}

int main(int argc, char **argv) {
    bench_state bench = {0};
    char dataset[300];
    fm_error error;
    parse_arguments(&bench, argc, argv);
    fm_test_make_folder(bench.folder, sizeof bench.folder);
    check(fm_arena_init(&bench.arena, (size_t)8 << 30, &error), &error);
    check(fm_arena_init(&bench.work, (size_t)8 << 30, &error), &error);
    check(fm_arena_init(&bench.chain, (size_t)8 << 30, &error), &error);
    if (!bench.dataset && fm_test_reference()) {
        bench.dataset = fm_test_reference_path(dataset, sizeof dataset, "golden/dataset");
    } else if (!bench.dataset) {
        make_dataset(&bench, dataset);
        bench.dataset = dataset;
    }
    check(fm_source_scan(&(fm_source_options){.dataset = bench.dataset}, &bench.arena,
                         &bench.source, &error),
          &error);
    do_inputs(&bench, READ);
    printf("%s: %u chains, %.1f MB; medians of %d\n", bench.dataset, bench.source.n_chain,
           (double)bench.input_bytes / 1e6, bench.rounds);
    measure_inputs(&bench, READ, "read, 1 thread");
    measure_inputs(&bench, READ_AND_HASH, "read and SHA-256, 1 thread");
    double bound = measure_inputs(&bench, READ_AND_PARSE, "read and make all parts, 1 thread");
    double one = measure_build(&bench, 1, false, "build, 1 worker and the writer", bound);
    double two = measure_build(&bench, 2, false, "build, 2 workers and the writer", bound);
    measure_build(&bench, 1, true, "build again, nothing new, 1 worker", bound);
    printf("from 1 to 2 workers: x%.2f\n", one / two);
    measure_loads(&bench);
    fm_arena_fini(&bench.arena);
    fm_arena_fini(&bench.work);
    fm_arena_fini(&bench.chain);
    fm_test_remove_tree(bench.folder);
    return 0;
}
