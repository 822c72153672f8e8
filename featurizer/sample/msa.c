/* msa.c: chooses rows, masks and clusters; see msa.h.
 *
 * Block deletion marks the rows of n_delete_block random blocks and lists the others. The list of
 * rows is then only permuted: each choice moves the chosen rows to its front, so centres, extra
 * rows and members are ranges of one list. Ids stay HHblits ids until they leave this module,
 * because only equality matters here. The sums are in summarize.c. */
#include "featurizer/sample/msa.h"

#include "featurizer/sample/nearest.h"

#include <assert.h>
#include <string.h>

static uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Deletes blocks of consecutive rows but never the query. Returns the number of rows left in
 * row[]. */
static uint32_t delete_blocks(const fm_plan *plan, const fm_draws *draws, uint32_t cycle,
                              uint32_t n_seq, uint32_t *row, uint8_t *deleted) {
    uint32_t block = (uint32_t)((uint64_t)n_seq * plan->delete_block_q32 >> 32);
    memset(deleted, 0, n_seq);
    for (uint32_t b = 0; block > 0 && n_seq > 1 && b < plan->n_delete_block; b++) {
        uint32_t start =
            1 + draws->below(draws->context, FM_SAMPLE_DRAW_BLOCK_DELETION, cycle, b, n_seq - 1);
        memset(deleted + start, 1, min_u32(block, n_seq - start));
    }
    uint32_t kept = 0;
    for (uint32_t r = 0; r < n_seq; r++) {
        row[kept] = r;
        kept += !deleted[r];
    }
    return kept;
}

fm_status fm_msa_choose(const fm_plan *plan, const fm_draws *draws, uint32_t cycle, uint32_t n_seq,
                        bool is_distillation, fm_arena *arena, fm_msa_choice *ret_choice,
                        fm_error *reterr) {
    assert(n_seq >= 1);
    uint32_t *row = fm_arena_alloc_array(arena, n_seq, sizeof *row);
    size_t mark = fm_arena_mark(arena);
    uint8_t *deleted = fm_arena_alloc(arena, n_seq);
    if (!row || !deleted) return fm_arena_full(arena, reterr);
    uint32_t n_row = delete_blocks(plan, draws, cycle, n_seq, row, deleted);
    fm_arena_rewind(arena, mark);

    /* OpenFold shuffles the rows of a distillation chain even when none exceeds the cap. */
    uint32_t cap = plan->max_distillation_msa;
    if (is_distillation && cap && (n_row > cap || plan->compat_openfold)) {
        draws->pick(draws->context, FM_SAMPLE_DRAW_DISTILLATION_CAP, cycle, 0, row + 1, n_row - 1,
                    cap - 1);
        n_row = min_u32(n_row, cap);
    }
    uint32_t n_centre = min_u32(plan->max_msa_clusters, n_row);
    uint32_t n_extra = min_u32(plan->max_extra_msa, n_row - n_centre);
    draws->pick(draws->context, FM_SAMPLE_DRAW_MSA_ROWS, cycle, 0, row + 1, n_row - 1,
                n_centre - 1);
    draws->pick(draws->context, FM_SAMPLE_DRAW_MSA_ROWS, cycle, n_centre - 1, row + n_centre,
                n_row - n_centre, n_extra);
    *ret_choice =
        (fm_msa_choice){.n_row = n_row, .n_centre = n_centre, .n_extra = n_extra, .row = row};
    return FM_OK;
}

fm_status fm_msa_mask(const fm_plan *plan, const fm_draws *draws, uint32_t cycle,
                      const fm_part_msa *part, const fm_msa_choice *choice, fm_arena *arena,
                      fm_msa_masked *ret_masked, fm_error *reterr) {
    size_t n_res = part->n_res;
    uint8_t *msa = fm_arena_alloc_array(arena, choice->n_centre, n_res);
    uint8_t *chosen = fm_arena_alloc_array(arena, choice->n_centre, n_res);
    if (!msa || !chosen) return fm_arena_full(arena, reterr);
    for (uint32_t c = 0; c < choice->n_centre; c++)
        memcpy(msa + c * n_res, part->msa + choice->row[c] * n_res, n_res);
    const fm_masking masking = {.plan = plan, .part = part, .n_centre = choice->n_centre};
    draws->mask(draws->context, cycle, &masking, msa, chosen);
    *ret_masked = (fm_msa_masked){.msa = msa, .chosen = chosen};
    return FM_OK;
}

fm_status fm_msa_cluster(const fm_part_msa *part, const fm_msa_choice *choice,
                         const fm_msa_masked *masked, fm_arena *arena,
                         uint32_t **ret_cluster_of_member, fm_error *reterr) {
    uint32_t n_member = choice->n_row - choice->n_centre;
    uint32_t *cluster = fm_arena_alloc_array(arena, n_member, sizeof *cluster);
    size_t mark = fm_arena_mark(arena);
    void *scratch = fm_arena_alloc(arena, fm_nearest_scratch_bytes(choice->n_centre, part->n_res));
    if (!cluster || !scratch) return fm_arena_full(arena, reterr);
    const fm_nearest_task task = {.msa = part->msa,
                                  .n_res = part->n_res,
                                  .row = choice->row + choice->n_centre,
                                  .n_row = n_member,
                                  .centres = masked->msa,
                                  .n_centre = choice->n_centre,
                                  .scratch = scratch};
    fm_nearest_best()(&task, cluster);
    fm_arena_rewind(arena, mark);
    *ret_cluster_of_member = cluster;
    return FM_OK;
}
