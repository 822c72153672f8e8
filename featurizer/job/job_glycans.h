/* job_glycans.h: the glycans of AlphaFold Server's JSON, as ligands with bonds.
 *
 *     {"residues": "NAG(NAG(BMA(MAN)(MAN)))(FUC)", "position": 8}
 *
 * A glycan is a tree of sugars. Each is joined by its C1 to the sugar before its bracket, and the
 * first one to the residue of the protein: to ND2 of asparagine, OG of serine or OG1 of threonine.
 * The text does not say which oxygen of a sugar bonds. The server takes the one that is most common
 * in the PDB. Here a table of the usual linkages of glycoproteins decides, and a warning lists the
 * bonds.
 *
 * Form: https://alphafoldserver.com/faq. */
#ifndef FM_JOB_GLYCANS_H
#define FM_JOB_GLYCANS_H

#include "featurizer/job/job_read.h"

/* The number of glycans of an entity of the description, for fm_job_open; 0 where there are
 * none. */
uint32_t fm_job_count_glycans(const fm_value *entity);

/* Adds a ligand with its bonds for each glycan of entity `protein`, in as many copies as the
 * protein has. `map` is the entity of the description. Returns FM_ERR_UNSUPPORTED for sugars and
 * residues that have no usual linkage. */
FM_MUST_USE fm_status fm_job_add_glycans(fm_job_reader *reader, const fm_value *map,
                                         uint32_t protein);

#endif
