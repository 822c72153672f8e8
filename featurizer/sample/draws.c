/* draws.c: implements draws.h by Philox; docs/sampling.md, sections 2, 5 and 6. */
#include "featurizer/sample/draws.h"

#include "proto/schema.h"

enum { DRAWS_AT_ONCE = 512 }; /* 4 KiB of draws; must be even */

static fm_sample_draw of_cycle(const void *context, uint32_t cycle) {
    fm_sample_draw draw = *(const fm_sample_draw *)context;
    draw.cycle = cycle;
    return draw;
}

static uint32_t philox_below(void *context, fm_sample_purpose purpose, uint32_t cycle,
                             uint32_t number, uint32_t below) {
    const fm_sample_draw draw = of_cycle(context, cycle);
    return fm_sample_draw_below(&draw, purpose, number, below);
}

static bool philox_chance(void *context, fm_sample_purpose purpose, uint32_t q32) {
    const fm_sample_draw draw = of_cycle(context, 0);
    return (uint32_t)fm_sample_draw_bits(&draw, purpose, 0) < q32;
}

/* The first steps of a Fisher-Yates shuffle. */
static void philox_pick(void *context, fm_sample_purpose purpose, uint32_t cycle, uint32_t number,
                        uint32_t *list, uint32_t n, uint32_t n_pick) {
    const fm_sample_draw draw = of_cycle(context, cycle);
    fm_sample_draw_fill_fn fill = fm_sample_draw_fill_best();
    uint64_t bits[DRAWS_AT_ONCE];
    uint32_t stop = n_pick < n ? n_pick : n;
    for (uint32_t at = 0; at < stop;) {
        uint32_t first = number + at, odd = first & 1, count = DRAWS_AT_ONCE - odd;
        if (count > stop - at) count = stop - at;
        fill(&draw, purpose, first / 2, (odd + count + 1) / 2, bits);
        for (uint32_t k = 0; k < count; k++, at++) {
            uint32_t other = at + fm_uniform_below(bits[odd + k], n - at);
            uint32_t kept = list[at];
            list[at] = list[other];
            list[other] = kept;
        }
    }
}

/* Draws an HHblits id from the frequencies of a column in the whole MSA. */
static uint8_t draw_from_profile(const fm_part_msa *part, uint32_t column, uint64_t bits) {
    const uint32_t *count = part->profile + (size_t)column * FM_N_HHBLITS;
    uint32_t at = fm_uniform_below(bits, part->n_seq);
    uint8_t id = 0;
    while (id < FM_N_HHBLITS - 1 && at >= count[id])
        at -= count[id++];
    return id;
}

/* Returns the replacement of chosen position n; `kind` is 32 uniform bits. */
static uint8_t replace(const fm_masking *masking, const fm_sample_draw *draw, uint64_t n,
                       uint8_t own, uint32_t kind) {
    const fm_plan *plan = masking->plan;
    uint64_t uniform_end = plan->mask_uniform_q32;
    uint64_t profile_end = uniform_end + plan->mask_profile_q32;
    uint64_t same_end = profile_end + plan->mask_same_q32;
    if (kind >= same_end) return FM_MSA_MASK;
    if (kind >= profile_end) return own;
    uint64_t bits = fm_sample_draw_bits(draw, FM_SAMPLE_DRAW_MASK_REPLACEMENT, n);
    if (kind < uniform_end) return fm_hhblits_from_restype[fm_uniform_below(bits, FM_N_RESTYPE)];
    return draw_from_profile(masking->part, (uint32_t)(n % masking->part->n_res), bits);
}

static void philox_mask(void *context, uint32_t cycle, const fm_masking *masking, uint8_t *msa,
                        uint8_t *chosen) {
    const fm_sample_draw draw = of_cycle(context, cycle);
    fm_sample_draw_fill_fn fill = fm_sample_draw_fill_best();
    size_t n_position = (size_t)masking->n_centre * masking->part->n_res;
    uint32_t masked_q32 = masking->plan->masked_q32;
    uint64_t bits[DRAWS_AT_ONCE];
    uint16_t place[DRAWS_AT_ONCE];
    for (size_t first = 0; first < n_position; first += DRAWS_AT_ONCE) {
        size_t n = n_position - first < DRAWS_AT_ONCE ? n_position - first : DRAWS_AT_ONCE;
        fill(&draw, FM_SAMPLE_DRAW_MASK, (uint32_t)(first / 2), (n + 1) / 2, bits);
        size_t n_chosen = 0; /* listed without a branch, because the choice is unpredictable */
        for (size_t k = 0; k < n; k++) {
            chosen[first + k] = (uint32_t)bits[k] < masked_q32;
            place[n_chosen] = (uint16_t)k;
            n_chosen += chosen[first + k];
        }
        for (size_t k = 0; k < n_chosen; k++) {
            size_t at = first + place[k];
            msa[at] = replace(masking, &draw, at, msa[at], (uint32_t)(bits[place[k]] >> 32));
        }
    }
}

fm_draws fm_draws_philox(fm_sample_draw *key) {
    return (fm_draws){.context = key,
                      .below = philox_below,
                      .chance = philox_chance,
                      .pick = philox_pick,
                      .mask = philox_mask};
}
