/* bench_parse_a3m.c: measures turning A3M (and Stockholm) text in memory into rows, and into MSA
 * features (parse, de-duplicate, encode, count), on one core.
 *
 *     bench_parse_a3m [--rounds N] [FILE...]
 *
 * Without files it measures a synthetic alignment of the size of a large one in OpenProteinSet:
 * 18,972 rows of 480 columns, 10.6 MB, from a fixed seed. Rows are mutated copies of the query with
 * runs of gaps, 3 % insertions in runs, 5 % duplicates and headers of 64 bytes, which are the rates
 * of real files. With $FM_REFERENCE_DATA it then measures some real files.
 *
 * Times are medians of CPU time, as in the reference. Memory is warm, as in a build that goes from
 * chain to chain; the first round is printed as "cold". The bound is memcpy of the same text,
 * measured in the same run. */
#include "featurizer/msa.h"
#include "featurizer/parse/a3m.h"
#include "featurizer/parse/stockholm.h"
#include "proto/base/file.h"
#include "proto/base/rng.h"
#include "proto/limits.h"
#include "tests/bench/bench_time.h"
#include "tests/testing/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SEQ = 18972, N_RES = 480 };

typedef struct bench_state {
    fm_arena arena;
    fm_bytes text;
    const char *name;
    int rounds;
    double ms[ROUNDS_MAX];
} bench_state;

/* -- the synthetic alignment */

typedef struct bench_dice {
    uint32_t n;
} bench_dice;

static uint32_t roll(bench_dice *dice, uint32_t below) {
    fm_philox_counter r = fm_philox(20, (fm_philox_counter){{dice->n++, 0, 0, 0}});
    return fm_uniform_below((uint64_t)r.word[0] << 32 | r.word[1], below);
}

static char *write_row(char *p, const char *query, bench_dice *dice) {
    static const char letters[] = "ACDEFGHIKLMNPQRSTVWY";
    for (int i = 0; i < N_RES;) {
        uint32_t event = roll(dice, 200);
        int run = event < 2 ? 1 + (int)roll(dice, 40) : 8;
        if (run > N_RES - i) run = N_RES - i;
        if (event < 2) {
            memset(p, '-', (size_t)run);
        } else {
            memcpy(p, query + i, (size_t)run);
            p[roll(dice, (uint32_t)run)] = letters[roll(dice, 20)];
            p[roll(dice, (uint32_t)run)] = letters[roll(dice, 20)];
        }
        p += run;
        i += run;
        if (event < 194) continue;
        for (int k = 1 + (int)roll(dice, 15); k > 0; k--)
            *p++ = (char)(letters[roll(dice, 20)] + 32);
    }
    return p;
}

static fm_bytes make_text(char *out) {
    static const char letters[] = "ACDEFGHIKLMNPQRSTVWY";
    char query[N_RES], *p = out;
    bench_dice dice = {0};
    for (int i = 0; i < N_RES; i++)
        query[i] = letters[roll(&dice, 20)];
    p += snprintf(p, N_RES + 16, ">query\n%.*s\n", N_RES, query);
    const char *before = out;
    for (uint32_t row = 1; row < N_SEQ; row++) {
        char *start = p;
        p += snprintf(p, 128, ">tr|A0A%07u|A0A%07u_9SYNT/12-491 [subseq from] synthetic row\n", row,
                      row);
        if (row > 1 && roll(&dice, 20) == 0) {
            const char *sequence = strchr(before, '\n') + 1;
            size_t n = (size_t)(start - sequence);
            memmove(p, sequence, n);
            p += n;
        } else {
            p = write_row(p, query, &dice);
            *p++ = '\n';
        }
        before = start;
    }
    return (fm_bytes){(const uint8_t *)out, (size_t)(p - out)};
}

/* -- measurements; each returns the rows, 0 on failure */

static bool is_stockholm(const bench_state *bench) {
    size_t n = strlen(bench->name);
    return n > 4 && strcmp(bench->name + n - 4, ".sto") == 0;
}

static uint32_t run_parse(bench_state *bench, uint32_t *ret_columns) {
    fm_alignment alignment;
    fm_status status = is_stockholm(bench)
                           ? fm_stockholm_parse(bench->text, NULL, &bench->arena, &alignment, NULL)
                           : fm_a3m_parse(bench->text, NULL, &bench->arena, &alignment, NULL);
    if (status) return 0;
    *ret_columns = alignment.n_col;
    return alignment.n_seq;
}

static uint32_t run_features(bench_state *bench, uint32_t *ret_columns) {
    fm_part_msa part;
    fm_error error;
    fm_msa_input input = {bench->name, bench->text,
                          is_stockholm(bench) ? FM_MSA_STOCKHOLM : FM_MSA_A3M};
    if (fm_msa_build(&input, 1, (fm_bytes){0}, NULL, &bench->arena, &part, NULL, &error)) return 0;
    *ret_columns = part.n_res;
    return part.n_seq;
}

static uint32_t run_copy(bench_state *bench, uint32_t *ret_columns) {
    uint8_t *to = fm_arena_alloc(&bench->arena, bench->text.size);
    if (!to) return 0;
    memcpy(to, bench->text.data, bench->text.size);
    *ret_columns = to[bench->text.size / 2];
    return 1;
}

static void measure(bench_state *bench, const char *what,
                    uint32_t (*run)(bench_state *, uint32_t *), const char *reference) {
    uint32_t rows = 0, columns = 0;
    fm_arena_fini(&bench->arena);
    if (fm_arena_init(&bench->arena, (size_t)4 << 30, NULL)) return;
    double cold = cpu_s();
    rows = run(bench, &columns);
    cold = 1e3 * (cpu_s() - cold);
    for (int i = 0; i < bench->rounds; i++) {
        fm_arena_reset(&bench->arena);
        double start = cpu_s();
        rows = run(bench, &columns);
        bench->ms[i] = 1e3 * (cpu_s() - start);
    }
    double ms = median(bench->ms, (size_t)bench->rounds), mb = (double)bench->text.size / 1e6;
    printf("%-28.28s %-14s %10zu %7u x %-5u %9.3f %9.3f %9.0f  %s\n", bench->name, what,
           bench->text.size, rows, columns, cold, ms, mb / ms * 1e3, reference);
}

static void measure_text(bench_state *bench, const char *parse_reference,
                         const char *msa_reference) {
    measure(bench, "parse", run_parse, parse_reference);
    measure(bench, "parse+features", run_features, msa_reference);
    measure(bench, "memcpy (bound)", run_copy, "");
}

static void measure_file(bench_state *bench, const char *path, const char *reference) {
    fm_arena arena;
    fm_error error;
    const char *slash = strrchr(path, '/');
    bench->name = slash ? slash + 1 : path;
    if (fm_arena_init(&arena, FM_LIMIT_INPUT_BYTES, NULL)) return;
    if (fm_file_read_text(&arena, path, FM_LIMIT_INPUT_BYTES / 2, &bench->text, &error)) {
        printf("%s: %s\n", path, error.message);
    } else {
        measure_text(bench, reference, "");
    }
    fm_arena_fini(&arena);
}

int main(int argc, char **argv) {
    static bench_state bench = {.name = "synthetic 18972x480", .rounds = 51};
    static const struct {
        const char *path, *reference; /* of parsing alone */
    } files[] = {
        {"golden/inputs/chains/6KWC_1/bfd_uniref_hits.a3m", "27.1 MB/s"},
        {"golden/inputs/chains/short/bfd_uniclust_hits.a3m", ""},
        {"dev/complete/1ubq_A/openfold_3__main__uniref.a3m", ""},
        {"golden/inputs/chains/6KWC_1/mgnify_hits.sto", "23.0 MB/s"},
        {"golden/inputs/chains/4i6p_A/uniref90_hits.sto", "29.9 MB/s"},
    };
    char *text = malloc((size_t)24 << 20), path[4096];
    int first = 1;
    if (argc > 2 && strcmp(argv[1], "--rounds") == 0) {
        unsigned long rounds = strtoul(argv[2], NULL, 10);
        if (rounds >= 1 && rounds <= ROUNDS_MAX) bench.rounds = (int)rounds;
        first = 3;
    }
    if (!text) return 1;
    bench.text = make_text(text);
    printf("%-28s %-14s %10s %7s x %-5s %9s %9s %9s  %s\n", "input", "what", "bytes", "rows",
           "cols", "cold ms", "CPU ms", "MB/s", "reference (OpenFold, one core)");
    for (int i = first; i < argc; i++)
        measure_file(&bench, argv[i], "");
    if (first == argc) {
        measure_text(&bench, "23.1 MB/s (460 ms)", "7.1 MB/s (1490 ms)");
        for (size_t i = 0; fm_test_reference() && i < sizeof files / sizeof files[0]; i++) {
            fm_test_reference_path(path, sizeof path, files[i].path);
            measure_file(&bench, path, files[i].reference);
        }
    }
    fm_arena_fini(&bench.arena);
    free(text);
    return 0;
}
