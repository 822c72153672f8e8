/* read.h: reads the biological assembly of an mmCIF file (docs/reference/complexes.md). */
#ifndef FM_COMPLEX_READ_H
#define FM_COMPLEX_READ_H

#include "featurizer/complex/assembly.h"

typedef struct fm_assembly_options {
    bool compat_protenix; /* the reference's result (Protenix 3248f8e), and its refusals */
    /* The file is a prediction: no chain is left out because of where its atoms are, or because
     * there are many. A chain is a ligand if its entity is no polymer, as some programs number
     * ligands, too. */
    bool is_prediction;
    /* A chain whose entity is no polymer is a ligand, also where its atoms have numbers. They must
     * not have any otherwise. */
    bool has_numbered_ligands;
} fm_assembly_options;

/* Reads assembly 1 of a file: its atoms, completed from the components, copies, ids, molecules,
 * interfaces and tokens. Everything is in the arena: ids are copied, so the text may be freed, but
 * the components must live as long as the assembly. It takes about 400 bytes for each atom of the
 * completed chains, and 120 for each atom of the assembly's copies: 0.9 GB for 8 million of them.
 *
 * Returns FM_ERR_FORMAT when the text is not valid mmCIF or a value is invalid, FM_ERR_DATA when
 * its categories contradict each other or nothing is left of it, FM_ERR_NOT_FOUND when it lacks
 * atoms, an assembly or a component, and FM_ERR_LIMIT when it is too large. */
FM_MUST_USE fm_status fm_assembly_read(fm_bytes text, const fm_components *components,
                                       const fm_assembly_options *options, fm_arena *arena,
                                       fm_assembly *ret_assembly, fm_error *reterr);

#endif
