/* step_features.h: the features of one training sample as a step takes them: borrowed, unpadded
 * host arrays with the sizes of the sample (proto/schema.h). */
#ifndef FM_TRAINER_FEATURES_H
#define FM_TRAINER_FEATURES_H

#include "trainer/backend/kernels.h"

enum { FM_MAX_CYCLE = 48 }; /* as FM_LIMIT_N_CYCLE */

/* The tensors that are drawn separately for each recycling cycle. */
typedef struct fm_cycle_features {
    uint32_t n_clust;
    const uint8_t *msa;              /* [n_clust, n_res] masked ids 0..22 */
    const uint8_t *true_msa;         /* [n_clust, n_res] 0..21 */
    const uint8_t *bert_mask;        /* bits [ceil(n_clust * n_res / 8)], bit k%8 of byte k/8 */
    const uint16_t *deletion_matrix; /* [n_clust, n_res] */
    const void *cluster_profile;     /* [n_clust, n_res, 23] counts */
    fm_element profile_element;      /* FM_ELEMENT_U8, _U16 or _U32 */
    const uint32_t *cluster_deletion_sum;  /* [n_clust, n_res] */
    const uint32_t *cluster_size;          /* [n_clust] >= 1 */
    uint32_t n_extra;                      /* may be 0 */
    const uint8_t *extra_msa;              /* [n_extra, n_res] 0..22 */
    const uint16_t *extra_deletion_matrix; /* [n_extra, n_res] */
} fm_cycle_features;

typedef struct fm_features {
    uint32_t n_res;        /* of the crop */
    uint32_t slot;         /* the number of the sample in its batch: part of the dropout draws */
    const uint8_t *aatype; /* [n_res] 0..20 */
    const int32_t *residue_index;    /* [n_res] */
    const float *all_atom_positions; /* [n_res, 37, 3] Å */
    const uint64_t *all_atom_mask;   /* [n_res] bit a = atom37 a is present */
    float resolution;                /* Å; 0 = not known */
    uint32_t n_templ; /* may be 0; templates beyond the model's n_template are not used */
    const uint8_t *template_aatype;           /* [n_templ, n_res] 0..21 */
    const float *template_all_atom_positions; /* [n_templ, n_res, 37, 3] Å */
    const uint64_t *template_all_atom_mask;   /* [n_templ, n_res] bit a = atom37 a is present */
    bool unclamped_fape; /* backbone FAPE without its clamp: one sample in ten */
    uint32_t n_cycle;    /* 1 .. FM_MAX_CYCLE */
    fm_cycle_features cycle[FM_MAX_CYCLE];
} fm_features;

#endif
