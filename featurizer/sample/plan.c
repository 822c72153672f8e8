/* plan.c: see plan.h and docs/reference/sampling.md, section 4. */
#include "featurizer/sample/plan.h"

#include "featurizer/sample/sample_draw.h"
#include "proto/complex_sample.h"
#include "proto/limits.h"
#include "proto/template_date.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_ATOMS = 32 /* of a crop: any one token fits */ };

/* ceil(p * 2^32) for the fractions that the plans use. Rounding up makes floor(N * p) exact when p
 * is a whole number of tenths. */
#define Q32(numerator, denominator)                                                                \
    ((uint32_t)((((uint64_t)(numerator) << 32) + (denominator)-1) / (denominator)))

/* Settings that all of AlphaFold2's stages share: block deletion, masking, templates (supplement
 * 1.2). */
#define AF2_DRAWS                                                                                  \
    .n_delete_block = 5, .delete_block_q32 = Q32(3, 10), .masked_q32 = Q32(15, 100),               \
    .mask_uniform_q32 = Q32(1, 10), .mask_profile_q32 = Q32(1, 10), .mask_same_q32 = Q32(1, 10),   \
    .max_distillation_msa = 1000, .clamped_fape_q32 = Q32(9, 10), .template_pool = 20

/* The fields of a plan of AlphaFold2's training. Without templates, no cluster rows are left free
 * for them. */
#define TRAINING(crop, clusters, extra, templates, date)                                           \
    .order = FM_ORDER_WEIGHTED, .global_batch = 128, .epoch_samples = 10000, .crop_size = (crop),  \
    .max_msa_clusters = (clusters), .max_extra_msa = (extra), .max_cycle = 4,                      \
    .max_templates = (templates), .max_template_date = (date), AF2_DRAWS
#define AF2(crop, clusters, extra, templates)                                                      \
    TRAINING(crop, clusters, extra, templates, FM_TEMPLATE_DATE_QUERY)
#define OPENFOLD(crop, clusters, extra)                                                            \
    TRAINING(crop, clusters, extra, 4, FM_TEMPLATE_DATE_ANY), .compat_openfold = true
#define SMALL(clusters, extra, cycles)                                                             \
    .order = FM_ORDER_SHUFFLED, .global_batch = 1, .epoch_samples = 1000, .crop_size = 64,         \
    .max_msa_clusters = (clusters), .max_extra_msa = (extra), .max_cycle = (cycles),               \
    .max_templates = 4, .max_template_date = FM_TEMPLATE_DATE_QUERY, AF2_DRAWS

/* Every chain once, whole (the client's crop_size is the longest that it takes), with all of its
 * rows to choose from, no masking and the best templates. */
#define WHOLE(clusters, extra)                                                                     \
    .order = FM_ORDER_LISTED, .global_batch = 1, .epoch_samples = UINT32_MAX, .crop_size = 1024,   \
    .max_msa_clusters = (clusters), .max_extra_msa = (extra), .max_cycle = 4,                      \
    .always_max_cycle = true, .clamped_fape_q32 = UINT32_MAX, .max_templates = 4,                  \
    .template_pool = 20, .best_templates = true, .max_template_date = FM_TEMPLATE_DATE_QUERY

/* Plans of AlphaFold 3's training: weighted crops of the PDB (supplementary 2.5 and 2.7). */
#define COMPLEXES(crop, atoms, rows, templates, cycles)                                            \
    .kind = FM_SAMPLE_OF_COMPLEX, .epoch_samples = 10000, .crop_size = (crop),                     \
    .max_cycle = (cycles), .max_templates = (templates), .template_pool = 20,                      \
    .max_template_date = FM_TEMPLATE_DATE_QUERY, .template_days = 60, .max_atoms = (atoms),        \
    .max_msa = (rows), .max_planned_msa = 16384, .crop_weight = {2, 4, 4}
#define AF3(crop, atoms)                                                                           \
    .order = FM_ORDER_WEIGHTED, .global_batch = 256, COMPLEXES(crop, atoms, 1024, 4, 4)
#define AF3_SMALL(crop, atoms, rows, cycles)                                                       \
    .order = FM_ORDER_SHUFFLED, .global_batch = 1, COMPLEXES(crop, atoms, rows, 2, cycles)

/* Every preset of the trainer has the plan of its name. */
static const fm_plan plans[] = {
    {.name = "tiny", SMALL(32, 64, 2)},
    {.name = "overfit", SMALL(16, 1, 1)},
    {.name = "af2-initial", AF2(256, 124, 1024, 4)},
    {.name = "af2-finetuning", AF2(384, 508, 5120, 4)},
    {.name = "af2-finetuning-ptm", AF2(384, 508, 5120, 4)},
    {.name = "af2-model-1.1", AF2(256, 508, 1024, 4)},
    {.name = "af2-model-1.1.2", AF2(384, 508, 1024, 4)},
    {.name = "af2-model-1.1.2-ptm", AF2(384, 508, 1024, 4)},
    {.name = "af2-model-1.2", AF2(256, 512, 1024, 0)},
    {.name = "af2-model-1.2.1", AF2(384, 512, 5120, 0)},
    {.name = "af2-model-1.2.1-ptm", AF2(384, 512, 5120, 0)},
    {.name = "af2-model-1.2.3", AF2(384, 512, 1024, 0)},
    {.name = "af2-model-1.2.3-ptm", AF2(384, 512, 1024, 0)},
    {.name = "openfold-initial", OPENFOLD(256, 128, 1024)},
    {.name = "openfold-finetuning", OPENFOLD(384, 512, 5120)},
    {.name = "af3-tiny", AF3_SMALL(32, 256, 8, 2)},
    {.name = "af3-overfit", AF3_SMALL(25, 206, 6, 1)},
    {.name = "af3-initial", AF3(384, 3200)},
    {.name = "af3-finetuning", AF3(640, 5344)},
    {.name = "af3-finetuning-2", AF3(768, 6432)},
    {.name = "af3-confidence", AF3(640, 5344)},
    {.name = "protenix-initial", AF3(384, 3200), .compat_protenix = true},
    {.name = "protenix-finetuning", AF3(640, 5344), .compat_protenix = true},
    {.name = "eval", WHOLE(124, 1024)},
    {.name = "predict", WHOLE(508, 5120), .draws_by_name = true},
};

/* The plan NAME-eval takes each complex once, with the crops, rows and sizes of the plan NAME, all
 * cycles and the best templates. */
static void make_evaluation(fm_plan *plan) {
    static const char ending[] = "-eval";
    const size_t n = strlen(plan->name);
    assert(n + sizeof ending <= sizeof plan->name);
    memcpy(plan->name + n, ending, sizeof ending);
    plan->order = FM_ORDER_LISTED;
    plan->global_batch = 1;
    plan->epoch_samples = UINT32_MAX;
    plan->always_max_cycle = true;
    plan->best_templates = true;
}

fm_status fm_plan_find(const char *name, fm_plan *ret_plan, fm_error *reterr) {
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        const size_t n = strlen(plans[i].name);
        if (strncmp(plans[i].name, name, n) != 0) continue;
        const bool is_evaluation =
            plans[i].kind == FM_SAMPLE_OF_COMPLEX && strcmp(name + n, "-eval") == 0;
        if (name[n] && !is_evaluation) continue;
        *ret_plan = plans[i];
        if (is_evaluation) make_evaluation(ret_plan);
        return FM_OK;
    }
    char names[FM_ERROR_MESSAGE_BYTES] = "";
    for (size_t i = 0, at = 0; i < sizeof plans / sizeof plans[0] && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", plans[i].name);
    return fm_fail(reterr, FM_ERR_NOT_FOUND, "no plan is called '%.64s'; there are: %.400s", name,
                   names);
}

static fm_status check_range(const char *field, uint64_t value, uint64_t min, uint64_t max,
                             fm_error *reterr) {
    if (value >= min && value <= max) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE, "the plan's %s is %llu, expected %llu to %llu", field,
                   (unsigned long long)value, (unsigned long long)min, (unsigned long long)max);
}

typedef struct range {
    const char *field;
    uint64_t value, min, max;
} range;

static fm_status check_ranges(const range *ranges, size_t n, fm_error *reterr) {
    fm_status status = FM_OK;
    for (size_t i = 0; !status && i < n; i++) {
        status =
            check_range(ranges[i].field, ranges[i].value, ranges[i].min, ranges[i].max, reterr);
    }
    return status;
}

static fm_status check_chain(const fm_plan *plan, fm_error *reterr) {
    const range ranges[] = {
        {"crop_size", plan->crop_size, 1, FM_LIMIT_N_RES},
        {"max_msa_clusters", plan->max_msa_clusters, 1, FM_LIMIT_N_CLUSTER},
        {"max_extra_msa", plan->max_extra_msa, 0, FM_LIMIT_N_EXTRA},
        {"n_delete_block", plan->n_delete_block, 0, 64},
        {"max_templates", plan->max_templates, 0, 64},
        {"template_pool", plan->template_pool, 0, 65536},
        {"mask fractions' sum",
         (uint64_t)plan->mask_uniform_q32 + plan->mask_profile_q32 + plan->mask_same_q32, 0,
         UINT32_MAX},
    };
    return check_ranges(ranges, sizeof ranges / sizeof ranges[0], reterr);
}

static fm_status check_complex(const fm_plan *plan, fm_error *reterr) {
    const range ranges[] = {
        {"crop_size", plan->crop_size, 1, FM_COMPLEX_SAMPLE_TOKENS},
        {"max_atoms", plan->max_atoms, LEAST_ATOMS, FM_COMPLEX_SAMPLE_ATOMS},
        {"max_msa", plan->max_msa, 1, FM_COMPLEX_SAMPLE_ROWS},
        {"max_planned_msa", plan->max_planned_msa, 2, FM_COMPLEX_SAMPLE_ROWS},
        {"max_templates", plan->max_templates, 0, FM_COMPLEX_SAMPLE_TEMPLATES},
        {"template_pool", plan->template_pool, 0, FM_COMPLEX_TEMPLATE_POOL},
        {"template_days", plan->template_days, 0, 36500},
        {"crop weights' sum",
         (uint64_t)plan->crop_weight[0] + plan->crop_weight[1] + plan->crop_weight[2], 1,
         UINT32_MAX},
    };
    return check_ranges(ranges, sizeof ranges / sizeof ranges[0], reterr);
}

fm_status fm_plan_check(const fm_plan *plan, fm_error *reterr) {
    const range ranges[] = {
        {"order", plan->order, FM_ORDER_WEIGHTED, FM_N_PLAN_ORDER - 1},
        {"global_batch", plan->global_batch, 1, 65536},
        {"epoch_samples", plan->epoch_samples, 1, UINT32_MAX},
        {"max_cycle", plan->max_cycle, 1, FM_LIMIT_N_CYCLE},
    };
    if (!fm_template_date_is(plan->max_template_date)) {
        return fm_fail(
            reterr, FM_ERR_USAGE,
            "the plan's max_template_date is %u, expected YYYYMMDD, 1 (query) or 2 (any)",
            plan->max_template_date);
    }
    fm_status status = check_ranges(ranges, sizeof ranges / sizeof ranges[0], reterr);
    if (status) return status;
    return plan->kind == FM_SAMPLE_OF_COMPLEX ? check_complex(plan, reterr)
                                              : check_chain(plan, reterr);
}

struct fm_chooser {
    fm_plan_order order;
    uint32_t n_chain;
    uint32_t half_bits; /* shuffled: bits in one half of the Feistel block */
    /* weighted: the chains have places, which are the chains themselves without shares, and go
     * dataset by dataset with them */
    uint64_t *weight_below; /* [n_chain] sum of the weights at places 0 .. i */
    uint32_t *chain_at;     /* [n_chain] the chain at each place; NULL: place i is chain i */
    uint32_t n_share;       /* datasets; 0 without shares */
    uint64_t share_below[FM_LIMIT_N_SHARE]; /* sum of the shares 0 .. k */
    uint32_t place_end[FM_LIMIT_N_SHARE];   /* one more than the last place of dataset k */
};

/* The first place of dataset k. */
static uint32_t first_place(const fm_chooser *chooser, uint32_t k) {
    return k ? chooser->place_end[k - 1] : 0;
}

/* Gives the chains their places: sorted by dataset, in each in their order. */
static fm_status place_chains(fm_chooser *chooser, const fm_chooser_shares *shares,
                              fm_error *reterr) {
    assert(shares->n >= 1 && shares->n <= FM_LIMIT_N_SHARE);
    chooser->chain_at = malloc(chooser->n_chain * sizeof *chooser->chain_at);
    if (!chooser->chain_at) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the chains");
    chooser->n_share = shares->n;
    uint32_t n_in[FM_LIMIT_N_SHARE] = {0}, next[FM_LIMIT_N_SHARE];
    for (uint32_t i = 0; i < chooser->n_chain; i++)
        n_in[shares->of_chain[i]]++;
    uint64_t sum = 0;
    uint32_t end = 0;
    for (uint32_t k = 0; k < shares->n; k++) {
        sum += shares->share[k];
        next[k] = end;
        end += n_in[k];
        chooser->share_below[k] = sum;
        chooser->place_end[k] = end;
    }
    for (uint32_t i = 0; i < chooser->n_chain; i++)
        chooser->chain_at[next[shares->of_chain[i]]++] = i;
    return FM_OK;
}

/* Sum of the weights at the places before `place`. */
static uint64_t weight_before(const fm_chooser *chooser, uint32_t place) {
    return place ? chooser->weight_below[place - 1] : 0;
}

static fm_status check_weights(const fm_chooser *chooser, fm_error *reterr) {
    if (chooser->weight_below[chooser->n_chain - 1] == 0) {
        return fm_fail(reterr, FM_ERR_DATA, "every chain of the snapshot has weight 0");
    }
    for (uint32_t k = 0; k < chooser->n_share; k++) {
        uint32_t end = chooser->place_end[k];
        uint64_t before = weight_before(chooser, first_place(chooser, k));
        if (weight_before(chooser, end) > before) continue;
        return fm_fail(reterr, FM_ERR_DATA,
                       "no chain of dataset %u of the snapshot's %u has a weight", k + 1,
                       chooser->n_share);
    }
    return FM_OK;
}

static fm_status sum_weights(fm_chooser *chooser, const uint32_t *weights, fm_error *reterr) {
    chooser->weight_below = malloc(chooser->n_chain * sizeof *chooser->weight_below);
    if (!chooser->weight_below) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the weights");
    uint64_t sum = 0;
    for (uint32_t i = 0; i < chooser->n_chain; i++) {
        uint32_t chain = chooser->chain_at ? chooser->chain_at[i] : i;
        sum += weights ? weights[chain] : 1;
        chooser->weight_below[i] = sum;
    }
    return check_weights(chooser, reterr);
}

fm_status fm_chooser_create(const fm_plan *plan, uint32_t n_chain, const uint32_t *weights,
                            const fm_chooser_shares *shares, fm_chooser **ret_chooser,
                            fm_error *reterr) {
    assert(n_chain >= 1 && n_chain <= FM_LIMIT_N_CHAIN);
    fm_chooser *chooser = calloc(1, sizeof *chooser);
    if (!chooser) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the chain chooser");
    chooser->order = plan->order;
    chooser->n_chain = n_chain;
    chooser->half_bits = 1;
    while ((uint64_t)1 << (2 * chooser->half_bits) < n_chain)
        chooser->half_bits++;
    fm_status status = FM_OK;
    bool weighted = plan->order == FM_ORDER_WEIGHTED;
    if (weighted && shares) status = place_chains(chooser, shares, reterr);
    if (!status && weighted) status = sum_weights(chooser, weights, reterr);
    if (status) {
        fm_chooser_destroy(chooser);
        return status;
    }
    *ret_chooser = chooser;
    return FM_OK;
}

void fm_chooser_destroy(fm_chooser *chooser) {
    if (!chooser) return;
    free(chooser->weight_below);
    free(chooser->chain_at);
    free(chooser);
}

/* The dataset of a sample: the first whose sum of shares is above the draw. */
static uint32_t choose_dataset(const fm_chooser *chooser, const fm_sample_draw *draw) {
    uint64_t total = chooser->share_below[chooser->n_share - 1];
    uint64_t at = fm_sample_draw_below_u64(draw, FM_SAMPLE_DRAW_DATASET, 0, total);
    uint32_t k = 0;
    while (chooser->share_below[k] <= at)
        k++;
    return k;
}

static uint32_t choose_weighted(const fm_chooser *chooser, uint64_t seed, uint64_t index) {
    const fm_sample_draw draw = {.seed = seed, .index = index};
    uint32_t low = 0, end = chooser->n_chain;
    if (chooser->n_share) {
        uint32_t k = choose_dataset(chooser, &draw);
        low = first_place(chooser, k);
        end = chooser->place_end[k];
    }
    uint64_t before = weight_before(chooser, low), total = weight_before(chooser, end) - before;
    uint64_t at = before + fm_sample_draw_below_u64(&draw, FM_SAMPLE_DRAW_CHAIN, 0, total);
    uint32_t high = end - 1; /* the first place whose sum is above `at` */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (chooser->weight_below[middle] > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return chooser->chain_at ? chooser->chain_at[low] : low;
}

/* A permutation of [0, 2^(2 half_bits)) for each pass: six Feistel rounds with Philox as the round
 * function. Each round is invertible for any result of that function, so the whole is a
 * permutation. */
static uint32_t feistel(const fm_chooser *chooser, uint64_t seed, uint64_t pass, uint32_t value) {
    enum { N_ROUND = 6 };
    uint32_t mask = ((uint32_t)1 << chooser->half_bits) - 1;
    uint32_t left = value >> chooser->half_bits, right = value & mask;
    for (uint32_t round = 0; round < N_ROUND; round++) {
        const fm_sample_draw draw = {.seed = seed, .index = pass, .cycle = round};
        uint64_t bits[2];
        fm_sample_draw_pair(&draw, FM_SAMPLE_DRAW_SHUFFLE, right, bits);
        uint32_t next = left ^ ((uint32_t)bits[0] & mask);
        left = right;
        right = next;
    }
    return left << chooser->half_bits | right;
}

/* Applies the permutation until the value is below n_chain (cycle walking), which restricts it to a
 * permutation of the chains. The block is less than four times n_chain, so few rounds are
 * needed. */
static uint32_t choose_shuffled(const fm_chooser *chooser, uint64_t seed, uint64_t index) {
    uint64_t pass = index / chooser->n_chain;
    uint32_t value = (uint32_t)(index % chooser->n_chain);
    do {
        value = feistel(chooser, seed, pass, value);
    } while (value >= chooser->n_chain);
    return value;
}

uint32_t fm_chooser_chain(const fm_chooser *chooser, uint64_t seed, uint64_t index) {
    switch (chooser->order) {
    case FM_ORDER_WEIGHTED: return choose_weighted(chooser, seed, index);
    case FM_ORDER_LISTED: return (uint32_t)(index % chooser->n_chain);
    default: return choose_shuffled(chooser, seed, index);
    }
}
