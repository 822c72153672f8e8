/* features_internal.h: the crop that the parts of features.c work on. */
#ifndef FM_COMPLEX_FEATURES_INTERNAL_H
#define FM_COMPLEX_FEATURES_INTERNAL_H

#include "featurizer/complex/features.h"

#define CROP_NONE UINT32_MAX

/* Tokens and atoms of a crop, ascending, and the runs of atoms of one residue in it. */
typedef struct feature_crop {
    const fm_assembly *assembly;
    const fm_complex_feature_options *options;
    fm_arena *arena;
    fm_error *reterr;
    uint32_t n_token, n_atom, n_residue;
    uint32_t *tokens;        /* [n_token] of the assembly */
    uint32_t *first_atom;    /* [n_token + 1] of the crop */
    uint32_t *atoms;         /* [n_atom] of the assembly */
    uint32_t *residues;      /* [n_residue] of the assembly */
    uint32_t *residue_first; /* [n_residue + 1] atoms of the crop */
} feature_crop;

/* Returns the crop's number of an assembly's atom, or CROP_NONE. */
uint32_t fm_feature_crop_find(const feature_crop *crop, uint32_t atom);

/* A walk over the bonds with both ends in the crop. */
typedef struct feature_bonds {
    const feature_crop *crop;
    uint32_t at;   /* atom of the crop */
    uint32_t bond; /* of the assembly */
} feature_bonds;

static inline const fm_assembly_residue *fm_feature_residue(const feature_crop *crop,
                                                            uint32_t atom) {
    const fm_assembly *assembly = crop->assembly;
    return &assembly->residues[assembly->atoms[crop->atoms[atom]].residue];
}

feature_bonds fm_feature_bonds_start(const feature_crop *crop);
/* Returns the next bond, as atoms a < b of the crop, or false at the end. */
bool fm_feature_bonds_next(feature_bonds *bonds, uint32_t *ret_a, uint32_t *ret_b);

/* The parts of the features. Each fills its arrays of `out`. */
fm_status fm_feature_positions(const feature_crop *crop, fm_complex_features *out);
fm_status fm_feature_frames(const feature_crop *crop, fm_complex_features *out);
fm_status fm_feature_bond_pairs(const feature_crop *crop, fm_complex_features *out);
fm_status fm_feature_permutations(const feature_crop *crop, fm_complex_features *out);

#endif
