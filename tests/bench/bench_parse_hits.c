/* bench_parse_hits.c: measures parsing template hits of HHsearch and hmmsearch from text in memory,
 * on one core.
 *
 *     bench_parse_hits [--rounds N] [FILE...]
 *
 * It always measures a synthetic HHR file of 2,000 hits. With $FM_REFERENCE_DATA it also measures
 * files of the reference set; the last column has the reference's figure (CPU time). Times are
 * medians of CPU time over warm memory. */
#include "featurizer/parse/hhr.h"
#include "featurizer/parse/hmmsearch.h"
#include "proto/base/file.h"
#include "tests/bench/bench_time.h"
#include "tests/testing/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_HIT = 2000 };

static fm_bytes make_text(char *out) {
    static const char letters[] =
        "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVVHSLAKWKRQT";
    char *p = out;
    p += sprintf(p, "Query         q\nMatch_columns 480\n\n No Hit\n\n");
    for (int hit = 1; hit <= N_HIT; hit++) {
        p += sprintf(p,
                     "No %d\n>%04d_A thing\nProbab=99.83  E-value=4.4e-29  Score=113.52  "
                     "Aligned_cols=240  Identities=20%%  Similarity=0.5  Sum_probs=175.9  "
                     "Template_Neff=10.1\n\n",
                     hit, hit);
        for (int block = 0; block < 3; block++) {
            int from = block * 80 + 1;
            p += sprintf(p,
                         "Q ss_pred             HHHHHHHHH\nQ query          %4d %s %4d (480)\n"
                         "Q Consensus      %4d %s %4d (480)\n"
                         "                      ||||||||||\nT Consensus      %4d %s %4d (300)\n"
                         "T %04d_A         %4d %s %4d (300)\n\n",
                         from, letters, from + 79, from, letters, from + 79, from, letters,
                         from + 79, hit, from, letters, from + 79);
        }
    }
    return (fm_bytes){(const uint8_t *)out, (size_t)(p - out)};
}

static fm_status parse(const char *name, fm_bytes text, bool compat, fm_arena *arena,
                       fm_hits *ret_hits, fm_error *reterr) {
    const fm_bytes query = {(const uint8_t *)"A", 1};
    size_t n = strlen(name);
    return n > 4 && strcmp(name + n - 4, ".sto") == 0
               ? fm_hmmsearch_parse(text, query, compat, arena, ret_hits, reterr)
               : fm_hhr_parse(text, compat, arena, ret_hits, reterr);
}

static void measure(const char *name, fm_bytes text, fm_arena *arena, int rounds,
                    const char *reference) {
    static double ms[ROUNDS_MAX];
    double middle[2] = {0};
    fm_hits hits = {0};
    fm_error error;
    size_t mark = fm_arena_mark(arena);
    for (int compat = 0; compat < 2; compat++) {
        for (int i = -2; i < rounds; i++) {
            fm_arena_rewind(arena, mark);
            double start = cpu_s();
            if (parse(name, text, compat, arena, &hits, &error)) {
                printf("%s:%llu: %s\n", name, (unsigned long long)error.line, error.message);
                return;
            }
            if (i >= 0) ms[i] = 1e3 * (cpu_s() - start);
        }
        middle[compat] = median(ms, (size_t)rounds);
    }
    double mb = (double)text.size / 1e3;
    printf("%-28.28s %9zu %6u %9.3f %7.0f %7.0f %10s\n", name, text.size, hits.n_hit, middle[0],
           mb / middle[0], mb / middle[1], reference);
}

static void measure_file(const char *path, fm_arena *arena, int rounds, const char *reference) {
    fm_bytes text;
    fm_error error;
    const char *slash = strrchr(path, '/');
    fm_arena_reset(arena);
    if (fm_file_read_text(arena, path, (size_t)1 << 30, &text, &error)) {
        printf("%s: %s\n", path, error.message);
        return;
    }
    measure(slash ? slash + 1 : path, text, arena, rounds, reference);
}

int main(int argc, char **argv) {
    static const char *const files[][2] = {
        {"golden/inputs/chains/6KWC_1/hhsearch_output.hhr", "49"},
        {"golden/inputs/chains/2crb_A/hmm_output.sto", "-"},
        {"golden/inputs/chains/5kc1_A/hmm_output.sto", "-"},
    };
    int rounds = 51, first = 1;
    char path[4096], *text = malloc((size_t)16 << 20);
    fm_arena arena;
    if (argc > 2 && strcmp(argv[1], "--rounds") == 0) {
        rounds = atoi(argv[2]) > 0 && atoi(argv[2]) <= ROUNDS_MAX ? atoi(argv[2]) : rounds;
        first = 3;
    }
    if (!text || fm_arena_init(&arena, (size_t)4 << 30, NULL)) {
        free(text);
        return 1;
    }
    printf("MB/s of one core\n%-28s %9s %6s %9s %7s %7s %10s\n", "file", "bytes", "hits", "ms",
           "MB/s", "compat", "OpenFold");
    measure("synthetic.hhr", make_text(text), &arena, rounds, "-");
    for (size_t i = 0; fm_test_reference() && i < sizeof files / sizeof files[0]; i++) {
        measure_file(fm_test_reference_path(path, sizeof path, files[i][0]), &arena, rounds,
                     files[i][1]);
    }
    for (int i = first; i < argc; i++)
        measure_file(argv[i], &arena, rounds, "-");
    fm_arena_fini(&arena);
    free(text);
    return 0;
}
