/* nucleic.h: the nucleic acids of synthetic complexes: letters, and atoms in a regular helix. */
#ifndef FM_SYNTH_NUCLEIC_H
#define FM_SYNTH_NUCLEIC_H

#include "featurizer/complex/components.h"
#include "featurizer/synth/synth.h"
#include "proto/chem/geometry.h"

enum { FM_SYNTH_MAX_STRAND = 20 }; /* residues */

/* One strand's letters ACGU or ACGT, from its 5' end, without an end mark. */
typedef struct fm_synth_strand {
    uint32_t n;
    char letters[FM_SYNTH_MAX_STRAND];
} fm_synth_strand;

/* Draws the letters of the strand of an entry whose recipe has it. A second strand pairs with the
 * first, letter by letter. */
void fm_synth_strand_draw(uint64_t seed, const fm_synth_entry *entry, uint32_t strand,
                          fm_synth_strand *ret_strand);

/* Places the atoms of residue i of a strand into ret_atoms[component->n_atom], in Å: A-RNA or
 * B-DNA, with the helix's axis along z. The strands 0 and 1 are paired. ret_has says which atoms
 * are placed: not OP3, and of the first residue no phosphate, as after a synthesis. */
void fm_synth_nucleotide_place(const fm_component *component, char letter, bool is_rna,
                               uint32_t strand, uint32_t i, uint32_t n, fm_vec3 *ret_atoms,
                               bool *ret_has);

#endif
