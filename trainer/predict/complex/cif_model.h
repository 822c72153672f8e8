/* cif_model.h: the parts of a complex's mmCIF file, for structure_cif.c. */
#ifndef FM_COMPLEX_CIF_MODEL_H
#define FM_COMPLEX_CIF_MODEL_H

#include "proto/complex_atoms.h"

#include <stdio.h>

/* How an mmCIF file calls an entity. */
typedef enum fm_cif_entity {
    FM_CIF_POLYMER,
    FM_CIF_BRANCHED, /* sugars of more than one component */
    FM_CIF_NON_POLYMER,
} fm_cif_entity;

/* What is looked up often. Arrays are on the heap. E entities, K chains. */
typedef struct fm_cif_model {
    const fm_complex_atoms *atoms;
    uint32_t *first_residue; /* [K + 1] of each chain */
    uint32_t *first_chain;   /* [E] of each entity */
    uint32_t *n_copy;        /* [E] */
    fm_cif_entity *kind;     /* [E] */
} fm_cif_model;

/* FM_ERR_NOMEM. Release is allowed after a failure. */
FM_MUST_USE fm_status fm_cif_model_make(const fm_complex_atoms *atoms, fm_cif_model *ret_model,
                                        fm_error *reterr);
void fm_cif_model_release(fm_cif_model *model);

/* The row of the entity of a residue. */
static inline uint32_t fm_cif_entity_of(const fm_cif_model *m, uint32_t residue) {
    return (uint32_t)m->atoms->chain_entity[m->atoms->residue_chain[residue]];
}

static inline const char *fm_cif_component_of(const fm_cif_model *m, uint32_t residue) {
    return m->atoms->component_id[m->atoms->residue_component[residue]];
}

static inline const char *fm_cif_chain_of(const fm_cif_model *m, uint32_t residue) {
    return m->atoms->chain_id[m->atoms->residue_chain[residue]];
}

/* Whether a component is one of the 28 standard residues. */
bool fm_cif_is_standard(const char *component);

/* Whether a bond is the link of a polymer from one residue to the next. */
bool fm_cif_is_link(const fm_complex_atoms *atoms, int32_t first, int32_t second);

/* Writes the entities, their sequences, and the chains with their numbering. */
void fm_cif_put_entities(FILE *out, const fm_cif_model *model);

/* Writes the components, with the atoms and bonds of those that are not standard. */
void fm_cif_put_components(FILE *out, const fm_cif_model *model);

/* Writes the bonds between residues that are not the links of a polymer. */
void fm_cif_put_connections(FILE *out, const fm_cif_model *model);

#endif
