/* template_inputs.h: the inputs of the template embedders, made on the host from the coordinates of
 * a sample's templates (supplement 1.7.1). */
#ifndef FM_TRAINER_STEP_TEMPLATES_H
#define FM_TRAINER_STEP_TEMPLATES_H

#include "proto/base/arena.h"
#include "trainer/model/model_config.h"
#include "trainer/step/step_features.h"

#include <stdbool.h>

/* The inputs of one template, at the sample's size. */
typedef struct fm_template_inputs {
    float *pseudo_beta;      /* [n_res, 3] Å */
    float *pseudo_beta_mask; /* [n_res] */
    float *backbone_mask;    /* [n_res] 1 where N, CA and C are known */
    float *rows;             /* [n_res, 57] type, torsion angles and masks: ops/template.h */
    float *psi_mask;         /* [n_res] the mask of the template's row of m */
} fm_template_inputs;

/* Makes the inputs of template `index` (< n_templ) in memory of the arena; returns false when that
 * is full. The pre-omega and phi angles of the crop's first residue are masked, since they depend
 * on a residue that is not in the sample. Masked angles are 0, or with FM_COMPAT_OPENFOLD what the
 * reference has there: sine and cosine of rounding noise, which have the length 1. */
bool fm_template_make(const fm_features *features, uint32_t index, fm_compat compat,
                      fm_arena *arena, fm_template_inputs *ret_inputs);

#endif
