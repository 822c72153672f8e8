/* template_inputs.h: what the template embedders read of a sample's templates, made on the host from
 * their coordinates (supplement 1.7.1). */
#ifndef FM_TRAINER_STEP_TEMPLATES_H
#define FM_TRAINER_STEP_TEMPLATES_H

#include "proto/base/arena.h"
#include "trainer/step/step_features.h"

#include <stdbool.h>

/* One template at the sample's size. */
typedef struct fm_template_inputs {
    float *pseudo_beta;      /* [n_res, 3] Å */
    float *pseudo_beta_mask; /* [n_res] */
    float *backbone_mask;    /* [n_res] 1 where N, CA and C are there */
    float *rows;             /* [n_res, 57] type, torsion angles and masks: ops/template.h */
    float *psi_mask;         /* [n_res] masks the template's row of m */
} fm_template_inputs;

/* Template `index` (< n_templ), in memory of the arena; false when that is full. The angles before
 * the crop's first residue, pre-omega and phi, are masked: the residue that they hang on is not in
 * the sample. */
bool fm_template_make(const fm_features *features, uint32_t index, fm_arena *arena,
                      fm_template_inputs *ret_inputs);

#endif
