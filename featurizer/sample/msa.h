/* msa.h: the MSA transforms of one recycling cycle: choice of rows, masking, clustering, sums.
 *
 * See docs/reference/sampling.md, sections 5 to 8. All draws are made by fm_draws. All arrays are
 * in the caller's arena, and every function returns FM_ERR_LIMIT when that is too small. */
#ifndef FM_SAMPLE_MSA_H
#define FM_SAMPLE_MSA_H

#include "featurizer/sample/draws.h"
#include "featurizer/sample/plan.h"
#include "proto/record.h"
#include "proto/schema.h"

/* The rows of the chain's MSA after block deletion, the distillation cap and the choice:
 *     row[0 .. n_centre-1]                  cluster centres; row[0] = 0 is the query
 *     row[n_centre .. n_centre+n_extra-1]   extra rows that the sample carries
 *     row[n_centre .. n_row-1]              members: every row that is no centre joins a cluster */
typedef struct fm_msa_choice {
    uint32_t n_row, n_centre, n_extra;
    uint32_t *row; /* [n_row] */
} fm_msa_choice;

FM_MUST_USE fm_status fm_msa_choose(const fm_plan *plan, const fm_draws *draws, uint32_t cycle,
                                    uint32_t n_seq, bool is_distillation, fm_arena *arena,
                                    fm_msa_choice *ret_choice, fm_error *reterr);

/* The centres with masking applied, over the whole chain. */
typedef struct fm_msa_masked {
    uint8_t *msa;    /* [n_centre, N_res] HHblits ids, 22 = mask token */
    uint8_t *chosen; /* [n_centre, N_res] 1 where the position was chosen (bert_mask) */
} fm_msa_masked;

FM_MUST_USE fm_status fm_msa_mask(const fm_plan *plan, const fm_draws *draws, uint32_t cycle,
                                  const fm_part_msa *part, const fm_msa_choice *choice,
                                  fm_arena *arena, fm_msa_masked *ret_masked, fm_error *reterr);

/* Assigns every member to the centre with which it shares the most residues over the whole chain.
 * Gaps and mask tokens do not count; ties go to the lowest centre. *ret_cluster_of_member is [n_row
 * - n_centre]. */
FM_MUST_USE fm_status fm_msa_cluster(const fm_part_msa *part, const fm_msa_choice *choice,
                                     const fm_msa_masked *masked, fm_arena *arena,
                                     uint32_t **ret_cluster_of_member, fm_error *reterr);

/* Sums over each cluster's centre and members, for the residues [crop_start, crop_start + n_res)
 * only. */
typedef struct fm_msa_profile {
    void *count;            /* [n_centre, n_res, 23] by restype id, of `dtype` */
    fm_dtype dtype;         /* the narrowest of u8, u16, u32 that holds every count */
    uint32_t *deletion_sum; /* [n_centre, n_res] */
    uint32_t *size;         /* [n_centre] rows in each cluster, the centre included */
} fm_msa_profile;

FM_MUST_USE fm_status fm_msa_summarize(const fm_part_msa *part, const fm_msa_choice *choice,
                                       const fm_msa_masked *masked,
                                       const uint32_t *cluster_of_member, uint32_t crop_start,
                                       uint32_t n_res, fm_arena *arena, fm_msa_profile *ret_profile,
                                       fm_error *reterr);

#endif
