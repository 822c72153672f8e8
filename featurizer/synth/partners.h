/* partners.h: what a synthetic complex has beside its proteins, and how it is put together. */
#ifndef FM_SYNTH_PARTNERS_H
#define FM_SYNTH_PARTNERS_H

#include "featurizer/complex/components.h"
#include "featurizer/synth/model.h"
#include "featurizer/synth/motion.h"

enum {
    FM_SYNTH_MAX_PARTNERS = 8,
    FM_SYNTH_MAX_LINKS = 2,
    FM_SYNTH_MAX_COPIES = 3,
};

typedef enum fm_synth_partner_kind {
    FM_SYNTH_RNA,
    FM_SYNTH_DNA,
    FM_SYNTH_GLYCAN,
    FM_SYNTH_LIGAND, /* or an ion */
} fm_synth_partner_kind;

typedef struct fm_synth_partner_residue {
    const fm_component *component;
    fm_vec3 *atoms; /* [component->n_atom] Å; valid where `has` is set */
    bool *has;      /* [component->n_atom] the file has the atom */
} fm_synth_partner_residue;

/* A chain beside the proteins. */
typedef struct fm_synth_partner {
    fm_synth_partner_kind kind;
    uint32_t entity; /* among those of the partners: 0, 1 ... in their order */
    char auth_chain;
    uint32_t n_residue;
    fm_synth_partner_residue *residues; /* [n_residue] */
} fm_synth_partner;

/* A bond of a sugar's C1 to an atom before it. */
typedef struct fm_synth_link {
    uint32_t partner, residue; /* of the sugar */
    bool to_protein; /* to residue `to` of the first protein; otherwise to the sugar before it */
    uint32_t to;
    const char *atom; /* "ND2", "O4": that C1 is bonded to; static */
    double length;    /* Å */
} fm_synth_link;

typedef struct fm_synth_partners {
    uint32_t n, n_entity, n_link;
    fm_synth_partner partner[FM_SYNTH_MAX_PARTNERS];
    fm_synth_link links[FM_SYNTH_MAX_LINKS];
    uint32_t n_copy; /* of the assembly; the first is the model itself */
    fm_synth_motion copies[FM_SYNTH_MAX_COPIES];
    size_t n_atom; /* of all partners */
} fm_synth_partners;

/* Makes what the entry's recipe asks for around the proteins of `model`, and moves its second
 * protein to the first. Everything is in contact. A glycan is on an asparagine of the first
 * protein, on a serine or threonine where it has none, and is left out where it has none of them.
 * Returns FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_synth_partners_make(fm_arena *arena, const fm_synth_options *options,
                                             const fm_synth_entry *entry, fm_synth_model *model,
                                             fm_synth_partners *ret_partners, fm_error *reterr);

#endif
