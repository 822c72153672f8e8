/* test_sample_reference.c: the sampler against the second implementation of
 * docs/reference/sampling.md (sampling_reference.py). It writes its results for synthetic chains,
 * one line per case and one per tensor, and the reference recomputes every line. */
#include "featurizer/sample/choose.h"
#include "featurizer/sample/sample.h"
#include "proto/base/compress.h"
#include "proto/template_date.h"
#include "proto/step_cycles.h"
#include "tests/featurizer/synthetic_record.h"
#include "tests/testing/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static void write_plan_draws(FILE *out) {
    const uint64_t seed = 0x123456789abcdef0;
    fm_plan plan;
    if (fm_plan_find("af2-initial", &plan, NULL)) abort();
    for (uint64_t step = 0; step < 40; step++) {
        fprintf(out, "cycles %llu %llu 4 %u\n", (unsigned long long)seed, (unsigned long long)step,
                fm_step_cycles(seed, step, plan.max_cycle));
    }
    uint32_t weights[300];
    for (uint32_t k = 0; k < 300; k++)
        weights[k] = k * k % 17;
    static const uint32_t sizes[] = {2, 3, 10, 300};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (int order = FM_ORDER_WEIGHTED; order <= FM_ORDER_SHUFFLED; order++) {
            plan.order = (fm_plan_order)order;
            fm_chooser *chooser;
            if (fm_chooser_create(&plan, sizes[s], weights, NULL, &chooser, NULL)) abort();
            for (uint64_t i = 0; i < 40; i++) {
                uint64_t index = i < 30 ? i : (i << 33) + i;
                fprintf(out, "%s %llu %llu %u %u\n",
                        order == FM_ORDER_WEIGHTED ? "weighted" : "shuffled",
                        (unsigned long long)seed, (unsigned long long)index, sizes[s],
                        fm_chooser_chain(chooser, seed, index));
            }
            fm_chooser_destroy(chooser);
        }
    }
}

/* Weights, datasets and shares by a formula that sampling_reference.py has, too. */
static void write_shares(FILE *out) {
    enum { N_MAX = 200, N_SHARE_MAX = 7, N_DRAW = 100000 };
    const uint64_t seed = 0x123456789abcdef0;
    static const uint32_t cases[][2] = {{10, 2}, {N_MAX, N_SHARE_MAX}, {7, 1}, {60, 3}};
    static uint8_t drawn[N_DRAW];
    uint32_t weights[N_MAX], share[N_SHARE_MAX];
    uint8_t of_chain[N_MAX];
    fm_plan plan;
    if (fm_plan_find("af2-initial", &plan, NULL)) abort();
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        uint32_t n = cases[c][0], n_share = cases[c][1];
        for (uint32_t k = 0; k < n; k++) {
            weights[k] = 1 + k * k % 17;
            of_chain[k] = (uint8_t)(k * 5 % 7 % n_share);
        }
        for (uint32_t d = 0; d < n_share; d++)
            share[d] = n_share == 2 ? 250000000 + d * 500000000 : 10 + 3 * d;
        const fm_chooser_shares shares = {n_share, share, of_chain};
        fm_chooser *chooser;
        if (fm_chooser_create(&plan, n, weights, &shares, &chooser, NULL)) abort();
        for (uint64_t i = 0; i < 100; i++) {
            uint64_t index = i < 80 ? i : (i << 33) + i;
            fprintf(out, "shared %llu %llu %u %u %u\n", (unsigned long long)seed,
                    (unsigned long long)index, n, n_share, fm_chooser_chain(chooser, seed, index));
        }
        /* Many draws in a row, by their checksum. */
        for (uint64_t i = 0; i < N_DRAW && c == 0; i++)
            drawn[i] = (uint8_t)fm_chooser_chain(chooser, seed, i);
        if (c == 0) {
            fprintf(out, "sequence %llu %u %u %d %08x\n", (unsigned long long)seed, n, n_share,
                    N_DRAW, fm_crc32(0, drawn, N_DRAW));
        }
        fm_chooser_destroy(chooser);
    }
}

/* Crop starts by the clamp of the sample; about one in ten is unclamped. */
static void write_crops(FILE *out) {
    const uint64_t seed = 20260720;
    fm_plan plan;
    if (fm_plan_find("af2-initial", &plan, NULL)) abort();
    for (uint64_t i = 0; i < 200; i++) {
        fm_sample_draw key = {.seed = seed, .index = i};
        const fm_draws draws = fm_draws_philox(&key);
        bool clamped =
            draws.chance(draws.context, FM_SAMPLE_DRAW_CLAMPED_FAPE, plan.clamped_fape_q32);
        uint32_t n_free = (uint32_t)i * 7, start;
        start = fm_choose_crop_start(&plan, &draws, clamped, 256 + n_free, 256);
        fprintf(out, "crop %llu %llu %u %d %u\n", (unsigned long long)seed, (unsigned long long)i,
                n_free, clamped, start);
    }
}

enum { N_HIT = 25, N_LETTER = 50 };

/* Hits with scores, letters and release dates by a formula; every sixth has no date. */
static void make_hits(fm_template_hit hit[N_HIT], char letters[N_HIT][N_LETTER]) {
    static const uint16_t run_query[] = {3}, run_template[] = {7}, run_size[] = {N_LETTER};
    for (uint32_t h = 0; h < N_HIT; h++) {
        memset(letters[h], 'A', N_LETTER);
        letters[h][0] = fm_restype_letters[h % 20];
        letters[h][1] = fm_restype_letters[h / 20];
        hit[h] = (fm_template_hit){.name = "1tpl_A",
                                   .sum_probs = h * 7 % N_HIT,
                                   .aligned_cols = N_LETTER,
                                   .n_letter = N_LETTER,
                                   .n_run = 1,
                                   .run_query = run_query,
                                   .run_template = run_template,
                                   .run_size = run_size,
                                   .letters = letters[h]};
        if (h % 6 == 5) continue;
        snprintf(hit[h].release_date, FM_RELEASE_DATE, "2018-04-%02u", 1 + h * 5 % 28);
    }
}

/* Which hits are templates, for each rule of dates and each kind of chain. */
static void write_templates(FILE *out, fm_arena *arena) {
    const uint64_t seed = 20260720;
    static const uint32_t rules[] = {FM_TEMPLATE_DATE_QUERY, FM_TEMPLATE_DATE_ANY, 20180420};
    static fm_template_hit hit[N_HIT];
    static char letters[N_HIT][N_LETTER];
    make_hits(hit, letters);
    const fm_part_hits hits = {.n_res = 90, .n_hit = N_HIT, .hit = hit};
    const fm_part_structure structures[] = {
        {.release_date = "2018-04-10"}, {.release_date = ""}, {.is_distillation = 1}};
    fm_plan plan;
    if (fm_plan_find("af2-initial", &plan, NULL)) abort();
    for (uint64_t i = 0; i < 240; i++) {
        fm_sample_draw key = {.seed = seed, .index = i};
        const fm_draws draws = fm_draws_philox(&key);
        uint32_t rule = rules[i % 3], kind = (uint32_t)(i / 3 % 4), n, *chosen;
        const fm_part_structure *query = kind < 3 ? &structures[kind] : NULL;
        plan.max_template_date = rule;
        fm_arena_reset(arena);
        if (fm_choose_hits(&plan, &draws, &hits, query, arena, &chosen, &n, NULL)) abort();
        fprintf(out, "templates %llu %llu %u %u %u", (unsigned long long)seed,
                (unsigned long long)i, N_HIT, rule, kind);
        for (uint32_t t = 0; t < n; t++)
            fprintf(out, " %u", chosen[t]);
        fprintf(out, "\n");
    }
}

typedef struct sample_case {
    uint32_t n_seq, n_res;
    uint8_t is_distillation;
    uint64_t index;
    uint32_t n_cycle, crop_size, clusters, extra, cap, masked_q32;
} sample_case;

static void write_sample(FILE *out, const sample_case *c, fm_arena *arena) {
    const uint64_t seed = 20260720;
    fm_arena_reset(arena);
    fm_synthetic_record chain;
    fm_synthetic_record_make(&chain, c->n_seq, c->n_res, c->is_distillation, arena);
    fm_plan plan;
    if (fm_plan_find("tiny", &plan, NULL)) abort();
    plan.crop_size = c->crop_size;
    plan.max_msa_clusters = c->clusters;
    plan.max_extra_msa = c->extra;
    plan.max_distillation_msa = c->cap;
    plan.masked_q32 = c->masked_q32;
    fm_sample sample;
    fm_error error;
    if (fm_sample_make(&(fm_sample_request){.plan = &plan,
                                            .record = &chain.record,
                                            .seed = seed,
                                            .index = c->index,
                                            .n_cycle = c->n_cycle},
                       arena, &sample, &error)) {
        fprintf(stderr, "%s\n", error.message);
        abort();
    }
    fprintf(out, "sample %u %u %u %llu %llu %u %u %u %u %u %u %u %u %u\n", c->n_seq, c->n_res,
            c->is_distillation, (unsigned long long)seed, (unsigned long long)c->index, c->n_cycle,
            c->crop_size, c->clusters, c->extra, c->cap, c->masked_q32, sample.crop_start,
            sample.n_res, sample.use_clamped_fape);
    for (uint32_t t = 0; t < sample.n_tensor; t++) {
        const fm_tensor_view *tensor = &sample.tensor[t];
        if (tensor->cycle == FM_SHARED) continue;
        fprintf(out, "tensor %u %u %zu %08x\n", tensor->id, tensor->cycle, tensor->bytes,
                fm_crc32(0, tensor->data, tensor->bytes));
    }
}

int main(void) {
    static const sample_case cases[] = {
        {120, 70, 0, 3, 2, 40, 16, 30, 1000, 644245095},
        {120, 70, 0, 4, 1, 100, 16, 500, 1000, 644245095},
        {60, 33, 1, 5, 1, 32, 8, 8, 20, 2147483648u},
        {1, 17, 0, 6, 2, 64, 32, 64, 1000, 644245095},
        {2, 1, 0, (uint64_t)7 << 40, 1, 64, 32, 64, 1000, 4294967295u},
        {400, 20, 0, 8, 1, 20, 2, 5, 1000, 0},
        /* more than 255 rows in a cluster: counts that fit a byte, that do not, and both */
        {1900, 9, 0, 9, 2, 64, 1, 4, 1000, 644245095},
        {40000, 3, 0, 10, 1, 64, 1, 4, 1000, 644245095},
        {40000, 3, 0, 11, 1, 64, 300, 4, 1000, 644245095},
    };
    char folder[256], path[300], command[800];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/samples.txt", folder);
    FILE *out = fopen(path, "w");
    fm_arena arena;
    if (!out || fm_arena_init(&arena, (size_t)1 << 30, NULL)) abort();
    write_plan_draws(out);
    write_shares(out);
    write_crops(out);
    write_templates(out, &arena);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        write_sample(out, &cases[i], &arena);
    fclose(out);
    fm_arena_fini(&arena);

    if (system("python3 -c 'import zlib' 2>/dev/null") != 0) {
        fprintf(stderr, "skipped: python3 is not here\n");
        fm_test_remove_tree(folder);
        return FM_TEST_SKIPPED;
    }
    snprintf(command, sizeof command, "python3 tests/featurizer/sampling_reference.py %s", path);
    int status = system(command);
    fm_test_remove_tree(folder);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}
