/* bench_sample.c: measures making one sample of four cycles from a chain in memory, on one core.
 *
 *     bench_sample [CASE]     CASE 0, 1, ...: only that row of the table
 *
 * Figures are mean and median CPU time over 100 samples (indices 0 .. 99), after one that warms the
 * memory. The alignments are made by formula: families of rows around ancestors, gaps in stretches,
 * few deletions. The bound is one pass over the chain's rows and deletions: block deletion keeps a
 * quarter of them on average, and there are four cycles. The peer's figures are OpenFold's CPU
 * times for the same shapes and four copies, measured on another machine of this class. */
#include "featurizer/sample/sample.h"
#include "proto/base/rng.h"
#include "tests/bench/bench_time.h"
#include "tests/featurizer/synthetic_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SAMPLE = 100, N_CYCLE = 4, N_FAMILY = 40 };

typedef struct bench_case {
    const char *plan;
    uint32_t n_seq, n_res;
    double peer_ms, target_ms; /* 0 = none */
} bench_case;

static const bench_case cases[] = {
    {"af2-initial", 150, 226, 56, 0},        {"af2-initial", 1901, 88, 140, 0},
    {"af2-initial", 3000, 191, 248, 0},      {"af2-initial", 10000, 382, 946, 15},
    {"af2-initial", 18970, 480, 1920, 30},   {"af2-finetuning", 10000, 382, 1699, 50},
    {"af2-finetuning", 18970, 480, 2550, 0},
};

static uint32_t draw(uint32_t a, uint32_t b, uint32_t c, uint32_t below) {
    fm_philox_counter word = fm_philox(99, (fm_philox_counter){{a, b, c, 0}});
    return word.word[0] % below;
}

/* Overwrites the rows of the synthetic chain. Each row belongs to a family (small ones are rare),
 * differs from its ancestor in a tenth to two thirds of the columns, and lacks a stretch at either
 * end. */
static void fill_msa(fm_part_msa *msa) {
    uint8_t *ids = (uint8_t *)(uintptr_t)msa->msa;
    uint16_t *deletions = (uint16_t *)(uintptr_t)msa->deletion_matrix;
    uint32_t *profile = (uint32_t *)(uintptr_t)msa->profile;
    memset(profile, 0, (size_t)msa->n_res * FM_N_HHBLITS * sizeof *profile);
    for (uint32_t r = 0; r < msa->n_seq; r++) {
        uint32_t family = draw(1, r, 0, 1 + draw(1, r, 1, N_FAMILY));
        uint32_t change = 10 + draw(1, r, 2, 57);
        uint32_t first = draw(1, r, 3, msa->n_res / 4), last = msa->n_res - draw(1, r, 4, 20);
        for (uint32_t i = 0; i < msa->n_res; i++) {
            size_t at = (size_t)r * msa->n_res + i;
            fm_philox_counter w = fm_philox(7, (fm_philox_counter){{r, i, 0, 0}});
            ids[at] =
                (uint8_t)(w.word[0] % 100 < change ? w.word[1] % 20
                                                   : draw(2, i, w.word[2] % 3 ? family : 0, 20));
            if (r && (i < first || i >= last || w.word[3] % 16 == 0)) ids[at] = 21;
            deletions[at] = r && w.word[3] % 50 == 1 ? (uint16_t)(1 + w.word[2] % 20) : 0;
            profile[(size_t)i * FM_N_HHBLITS + ids[at]]++;
        }
    }
}

/* Reads every byte of the MSA and its deletions. */
static uint64_t read_once(const fm_part_msa *msa) {
    size_t n = (size_t)msa->n_seq * msa->n_res;
    uint64_t sum = 0, word;
    for (size_t i = 0; i + 8 <= n; i += 8) {
        memcpy(&word, msa->msa + i, 8);
        sum += word;
    }
    for (size_t i = 0; i + 4 <= n; i += 4) {
        memcpy(&word, msa->deletion_matrix + i, 8);
        sum += word;
    }
    return sum;
}

static void measure(const bench_case *c, fm_arena *arena) {
    fm_plan plan;
    fm_synthetic_record chain;
    fm_arena_reset(arena);
    fm_synthetic_record_make(&chain, c->n_seq, c->n_res, 0, arena);
    fill_msa(&chain.msa);
    if (fm_plan_find(c->plan, &plan, NULL)) abort();
    double make_ms[N_SAMPLE], sum_ms = 0, bound_ms = 0, bytes = 0;
    volatile uint64_t sink = 0;
    size_t mark = fm_arena_mark(arena);
    for (uint32_t run = 0; run <= N_SAMPLE; run++) {
        fm_sample sample;
        uint64_t index = run ? run - 1 : 0;
        fm_arena_rewind(arena, mark);
        double start = cpu_s();
        if (fm_sample_make(&(fm_sample_request){.plan = &plan,
                                                .record = &chain.record,
                                                .seed = 1,
                                                .index = index,
                                                .n_cycle = N_CYCLE},
                           arena, &sample, NULL)) {
            abort();
        }
        double took = 1e3 * (cpu_s() - start);
        if (run == 0) continue;
        make_ms[index] = took;
        sum_ms += took;
        for (uint32_t t = 0; t < sample.n_tensor; t++)
            bytes += (double)sample.tensor[t].bytes;
        start = cpu_s();
        sink = sink + read_once(&chain.msa);
        bound_ms += 1e3 * (cpu_s() - start);
    }
    double mean = sum_ms / N_SAMPLE, bound = bound_ms / N_SAMPLE;
    printf("%-15s %6u x %-4u %8.2f %8.2f %9.2f %8.1f %10.2f %12.0f %8.0f", c->plan, c->n_seq,
           c->n_res, mean, median(make_ms, N_SAMPLE), bound, mean / bound, bytes / N_SAMPLE / 1e6,
           c->peer_ms, c->peer_ms / mean);
    if (c->target_ms > 0) {
        printf(" %10.0f", c->target_ms);
    } else {
        printf(" %10s", "-");
    }
    printf("\n");
}

int main(int argc, char **argv) {
    size_t n_case = sizeof cases / sizeof cases[0], only = n_case;
    if (argc > 1) only = (size_t)strtoul(argv[1], NULL, 10);
    fm_arena arena;
    if (fm_arena_init(&arena, (size_t)8 << 30, NULL)) return 1;
    printf("one sample of %d cycles, one core, CPU time over %d samples\n", N_CYCLE, N_SAMPLE);
    printf("%-15s %13s %8s %8s %9s %8s %10s %12s %8s %10s\n", "plan", "MSA", "mean ms", "median",
           "bound ms", "ratio", "sample MB", "OpenFold ms", "times", "target ms");
    for (size_t k = 0; k < n_case; k++) {
        if (only == n_case || only == k) measure(&cases[k], &arena);
    }
    fm_arena_fini(&arena);
    return 0;
}
