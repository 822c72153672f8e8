/* model.h: an entry's deposited model: chains in space, what is missing, how it is numbered. */
#ifndef FM_SYNTH_MODEL_H
#define FM_SYNTH_MODEL_H

#include "featurizer/synth/family.h"

typedef enum fm_synth_method { FM_SYNTH_XRAY, FM_SYNTH_NMR, FM_SYNTH_EM } fm_synth_method;

/* A modelled residue. */
typedef struct fm_synth_placed {
    uint8_t type;     /* row of the ideal geometry: aatype, or FM_IDEAL_MSE */
    bool missing;     /* in the sequence, not in the coordinates */
    bool stub;        /* side chain not seen beyond CB */
    bool alternate;   /* two conformations beyond CB, 0.60 and 0.40 */
    char insert_code; /* '?' = none */
    int32_t auth_number;
    uint32_t n_atom;
    fm_vec3 atoms[FM_IDEAL_MAX_ATOMS + 1];      /* Å; with OXT on the last residue */
    fm_vec3 alternates[FM_IDEAL_MAX_ATOMS + 1]; /* where `alternate` */
} fm_synth_placed;

typedef struct fm_synth_model {
    fm_synth_method method;
    uint32_t resolution; /* hundredths of Å; 0 for NMR */
    uint32_t n_model;    /* 1, or 3 for NMR */
    bool selenium;       /* methionines are selenomethionines */
    bool sulfate;        /* one SO4 by the first chain */
    uint32_t n_water;
    uint32_t year, month, day; /* release */
    bool revised;              /* a second revision a year later */
    fm_synth_chain chains[FM_SYNTH_MAX_CHAINS];
    fm_synth_placed *residues[FM_SYNTH_MAX_CHAINS]; /* [n_res of the chain] */
    fm_vec3 *solvent; /* [1 + n_water] Å: sulfur or nothing, then waters */
} fm_synth_model;

FM_MUST_USE fm_status fm_synth_model_make(fm_arena *arena, const fm_synth_options *options,
                                          const fm_synth_entry *entry, fm_synth_model *ret_model,
                                          fm_error *reterr);

#endif
