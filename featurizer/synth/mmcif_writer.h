/* mmcif_writer.h: internal to the writer of synthetic structure files: its state, and the rows of
 * a complex's partners in each category. */
#ifndef FM_SYNTH_MMCIF_WRITER_H
#define FM_SYNTH_MMCIF_WRITER_H

#include "featurizer/synth/partners.h"
#include "featurizer/synth/text.h"

/* The writer's state. Entities and label chains are numbered in file order: proteins, partners,
 * then the sulfate, then the waters. */
typedef struct fm_synth_cif {
    const fm_synth_entry *entry;
    const fm_synth_model *model;
    const fm_synth_partners *partners; /* none in an entry that is no complex */
    fm_synth_text *text;
    char id[5];        /* upper case */
    uint32_t n_entity; /* number of protein entities */
    uint32_t serial;   /* last atom id written */
} fm_synth_cif;

/* One row of _atom_site. */
typedef struct fm_synth_cif_row {
    const char *group, *element, *name, *component;
    char alternate, label_chain, auth_chain, insert_code;
    uint32_t entity, label_number; /* label_number 0 prints '.' */
    int32_t auth_number;
    fm_vec3 at;           /* Å */
    uint32_t occupancy;   /* hundredths */
    uint32_t temperature; /* hundredths of Å^2 */
    uint32_t model;
} fm_synth_cif_row;

/* Returns the label of the chain of that number, 'A' for 0. */
char fm_synth_cif_label(uint32_t number);

/* Returns the first author number behind the first protein's residues. */
int32_t fm_synth_cif_number_behind(const fm_synth_cif *cif);

void fm_synth_cif_put_atom(fm_synth_cif *cif, const fm_synth_cif_row *row);

/* Rows of the partners in the category that is open: _entity, _entity_poly, _entity_poly_seq,
 * _chem_comp, _struct_asym and, of one model, _atom_site. */
void fm_synth_cif_put_partner_entities(const fm_synth_cif *cif);
void fm_synth_cif_put_strands(const fm_synth_cif *cif);
void fm_synth_cif_put_strand_residues(const fm_synth_cif *cif);
void fm_synth_cif_put_partner_components(const fm_synth_cif *cif);
void fm_synth_cif_put_partner_chains(const fm_synth_cif *cif);
void fm_synth_cif_put_partner_atoms(fm_synth_cif *cif, uint32_t model);

/* The categories that only complexes have: branched entities, bonds and the assembly. */
void fm_synth_cif_put_complex(const fm_synth_cif *cif);

#endif
