/* model.h: an entry's deposited model: chains in space, missing residues and author numbering. */
#ifndef FM_SYNTH_MODEL_H
#define FM_SYNTH_MODEL_H

#include "featurizer/synth/family.h"

typedef enum fm_synth_method { FM_SYNTH_XRAY, FM_SYNTH_NMR, FM_SYNTH_EM } fm_synth_method;

/* A residue of the model. */
typedef struct fm_synth_placed {
    uint8_t type;     /* row of the ideal geometry: aatype, or FM_IDEAL_MSE */
    bool missing;     /* in the sequence but not in the coordinates */
    bool stub;        /* side chain not observed beyond CB */
    bool alternate;   /* two conformations beyond CB, 0.60 and 0.40 */
    char insert_code; /* '?' when it has none */
    int32_t auth_number;
    uint32_t n_atom;
    fm_vec3 atoms[FM_IDEAL_MAX_ATOMS + 1];      /* Å; with OXT on the last residue */
    fm_vec3 alternates[FM_IDEAL_MAX_ATOMS + 1]; /* valid if `alternate` */
} fm_synth_placed;

typedef struct fm_synth_model {
    fm_synth_method method;
    uint32_t resolution; /* hundredths of Å; 0 for NMR */
    uint32_t n_model;    /* 1, or 3 for NMR */
    bool selenium;       /* methionines are selenomethionines */
    bool sulfate;        /* one SO4 near the first chain */
    uint32_t n_water;
    uint32_t year, month, day; /* release date */
    bool revised;              /* a second revision a year later */
    fm_synth_chain chains[FM_SYNTH_MAX_CHAINS];
    fm_synth_placed *residues[FM_SYNTH_MAX_CHAINS]; /* [n_res of the chain] */
    /* [1 + n_water] Å: the sulfate's sulfur (unused without a sulfate), then the waters. */
    fm_vec3 *solvent;
} fm_synth_model;

/* Number of atoms that the file has of the residue: its first ones. */
uint32_t fm_synth_placed_atoms(const fm_synth_placed *placed);

FM_MUST_USE fm_status fm_synth_model_make(fm_arena *arena, const fm_synth_options *options,
                                          const fm_synth_entry *entry, fm_synth_model *ret_model,
                                          fm_error *reterr);

#endif
