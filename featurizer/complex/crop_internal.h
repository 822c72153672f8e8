/* crop_internal.h: what the ways to crop share. */
#ifndef FM_COMPLEX_CROP_INTERNAL_H
#define FM_COMPLEX_CROP_INTERNAL_H

#include "featurizer/complex/crop.h"

typedef struct crop_work {
    const fm_assembly *assembly;
    const fm_crop_request *request;
    const fm_draws *draws;
    fm_arena *arena;
    fm_error *reterr;
    uint32_t *tokens; /* [size] chosen so far */
    uint32_t n_token;
    int32_t reference;
} crop_work;

static inline uint32_t fm_crop_chain_end(const fm_assembly *assembly, uint32_t chain) {
    return chain + 1 < assembly->n_chain ? assembly->chains[chain + 1].first_token
                                         : assembly->n_token;
}

/* The end of a residue's tokens. */
static inline uint32_t fm_crop_residue_end(const fm_assembly *assembly, uint32_t residue) {
    return residue + 1 < assembly->n_residue ? assembly->residues[residue + 1].first_token
                                             : assembly->n_token;
}

/* Choose the tokens. Contiguous ones are not sorted. */
fm_status fm_crop_contiguous(crop_work *work);
fm_status fm_crop_spatial(crop_work *work);

#endif
