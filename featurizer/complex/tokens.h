/* tokens.h: what the network sees of an assembly's residues: tokens and their classes.
 *
 * A residue is standard if its name is one of the table's and it is no ligand. Then it is one
 * token, whose centre is CA or C1'. In any other residue every atom is a token of its own. */
#ifndef FM_COMPLEX_TOKENS_H
#define FM_COMPLEX_TOKENS_H

#include "featurizer/complex/assembly.h"

/* Classes of residues. 0..19 are the amino acids in the order of fm_restype_letters. */
enum {
    FM_RESTYPE32_UNK = 20, /* amino acids without a class, and ligands */
    FM_RESTYPE32_RNA = 21, /* A G C U N */
    FM_RESTYPE32_RNA_N = 25,
    FM_RESTYPE32_DNA = 26, /* DA DG DC DT DN */
    FM_RESTYPE32_DNA_N = 30,
    FM_RESTYPE32_GAP = 31,
    FM_N_RESTYPE32 = 32,
};

/* Sets restype, is_standard and is_modified from the residue's name, component and molecule. */
void fm_residue_classify(fm_assembly_residue *residue);

/* Sets slot and the three marks (is_centre, is_distogram_rep, is_plddt_rep) of the atoms of one
 * classified residue. atoms: [n], all that the residue has, with name and in_component set. */
void fm_residue_mark_atoms(const fm_assembly_residue *residue, fm_assembly_atom *atoms, uint32_t n);

/* Classifies all residues, marks all atoms and makes the tokens, which are in the arena. The three
 * arrays are those of the assembly, writable. Sets first_token of chains and residues and the
 * assembly's tokens. Returns FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_assembly_tokenize(fm_assembly *assembly, fm_assembly_chain *chains,
                                           fm_assembly_residue *residues, fm_assembly_atom *atoms,
                                           fm_arena *arena, fm_error *reterr);

#endif
