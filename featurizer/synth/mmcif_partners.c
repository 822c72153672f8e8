/* mmcif_partners.c: what a complex adds to its structure file: rows of nucleic acids, glycans and
 * ligands in each category, bonds between chains, and the assembly. */
#include "featurizer/synth/mmcif_writer.h"

#include "proto/chem/element.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_strand(const fm_synth_partner *partner) {
    return partner->kind == FM_SYNTH_RNA || partner->kind == FM_SYNTH_DNA;
}

static uint32_t entity_of(const fm_synth_cif *cif, uint32_t p) {
    return cif->n_entity + 1 + cif->partners->partner[p].entity;
}

static char label_of(const fm_synth_cif *cif, uint32_t p) {
    return fm_synth_cif_label(cif->entry->n_chain + p);
}

/* Whether partner p is the first one of its entity. */
static bool is_first(const fm_synth_cif *cif, uint32_t p) {
    const fm_synth_partner *partner = cif->partners->partner;
    return p == 0 || partner[p - 1].entity != partner[p].entity;
}

static uint32_t count_copies(const fm_synth_cif *cif, uint32_t p) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < cif->partners->n; k++)
        n += cif->partners->partner[k].entity == cif->partners->partner[p].entity;
    return n;
}

void fm_synth_cif_put_partner_entities(const fm_synth_cif *cif) {
    for (uint32_t p = 0; p < cif->partners->n; p++) {
        const fm_synth_partner *partner = &cif->partners->partner[p];
        if (!is_first(cif, p)) continue;
        bool is_ligand = partner->kind == FM_SYNTH_LIGAND;
        const char *name = is_ligand                          ? partner->residues[0].component->name
                           : partner->kind == FM_SYNTH_GLYCAN ? "Synthetic glycan"
                           : partner->kind == FM_SYNTH_RNA    ? "Synthetic RNA"
                                                              : "Synthetic DNA";
        const char *type = is_ligand                          ? "non-polymer"
                           : partner->kind == FM_SYNTH_GLYCAN ? "branched"
                                                              : "polymer";
        fm_synth_text_format(cif->text, "%u %-11s syn \"%s\" %u \n", entity_of(cif, p), type, name,
                             count_copies(cif, p));
    }
}

void fm_synth_cif_put_strands(const fm_synth_cif *cif) {
    for (uint32_t p = 0; p < cif->partners->n; p++) {
        const fm_synth_partner *partner = &cif->partners->partner[p];
        if (!is_strand(partner) || !is_first(cif, p)) continue;
        fm_synth_text_format(cif->text, "%u %s no no \n", entity_of(cif, p),
                             partner->kind == FM_SYNTH_RNA ? "polyribonucleotide"
                                                           : "polydeoxyribonucleotide");
        for (int canonical = 0; canonical < 2; canonical++) {
            fm_synth_text_char(cif->text, ';');
            for (uint32_t r = 0; r < partner->n_residue; r++) {
                const fm_component *component = partner->residues[r].component;
                bool is_dna = partner->kind == FM_SYNTH_DNA && !canonical;
                fm_synth_text_format(cif->text, is_dna ? "(%s)" : "%s",
                                     is_dna ? component->id
                                            : component->id + (partner->kind == FM_SYNTH_DNA));
            }
            fm_synth_text_string(cif->text, "\n;\n");
        }
        fm_synth_text_char(cif->text, partner->auth_chain);
        if (count_copies(cif, p) == 2) {
            fm_synth_text_format(cif->text, ",%c", partner[1].auth_chain);
        }
        fm_synth_text_string(cif->text, " \n");
    }
}

void fm_synth_cif_put_strand_residues(const fm_synth_cif *cif) {
    for (uint32_t p = 0; p < cif->partners->n; p++) {
        const fm_synth_partner *partner = &cif->partners->partner[p];
        if (!is_strand(partner) || !is_first(cif, p)) continue;
        for (uint32_t r = 0; r < partner->n_residue; r++) {
            fm_synth_text_format(cif->text, "%u %-4u %s n \n", entity_of(cif, p), r + 1,
                                 partner->residues[r].component->id);
        }
    }
}

/* Whether an earlier residue than (p, r) is of the same component. */
static bool is_listed(const fm_synth_cif *cif, uint32_t p, uint32_t r) {
    const fm_component *component = cif->partners->partner[p].residues[r].component;
    for (uint32_t k = 0; k <= p; k++) {
        const fm_synth_partner *partner = &cif->partners->partner[k];
        for (uint32_t i = 0; i < (k == p ? r : partner->n_residue); i++) {
            if (partner->residues[i].component == component) return true;
        }
    }
    return false;
}

void fm_synth_cif_put_partner_components(const fm_synth_cif *cif) {
    for (uint32_t p = 0; p < cif->partners->n; p++) {
        const fm_synth_partner *partner = &cif->partners->partner[p];
        for (uint32_t r = 0; r < partner->n_residue; r++) {
            const fm_component *component = partner->residues[r].component;
            if (is_listed(cif, p, r)) continue;
            fm_synth_text_format(cif->text, "%s \"%s\" %s \"%s\" '%s' \n", component->id,
                                 component->type, is_strand(partner) ? "y" : ".", component->name,
                                 component->formula);
        }
    }
}

void fm_synth_cif_put_partner_chains(const fm_synth_cif *cif) {
    for (uint32_t p = 0; p < cif->partners->n; p++)
        fm_synth_text_format(cif->text, "%c N N %u ? \n", label_of(cif, p), entity_of(cif, p));
}

/* The author's number of a partner's residue r. Ligands follow the waters of their chain. */
static int32_t number_of(const fm_synth_cif *cif, uint32_t p, uint32_t r) {
    if (cif->partners->partner[p].kind != FM_SYNTH_LIGAND) return (int32_t)r + 1;
    return fm_synth_cif_number_behind(cif) + (int32_t)(cif->model->n_water + 1 + p);
}

void fm_synth_cif_put_partner_atoms(fm_synth_cif *cif, uint32_t model) {
    for (uint32_t p = 0; p < cif->partners->n; p++) {
        const fm_synth_partner *partner = &cif->partners->partner[p];
        for (uint32_t r = 0; r < partner->n_residue; r++) {
            const fm_synth_partner_residue *residue = &partner->residues[r];
            fm_synth_cif_row row = {.group = is_strand(partner) ? "ATOM" : "HETATM",
                                    .component = residue->component->id,
                                    .alternate = '.',
                                    .label_chain = label_of(cif, p),
                                    .auth_chain = partner->auth_chain,
                                    .insert_code = '?',
                                    .entity = entity_of(cif, p),
                                    .label_number = is_strand(partner) ? r + 1 : 0,
                                    .auth_number = number_of(cif, p, r),
                                    .occupancy = 100,
                                    .temperature = 3000 + 10 * r,
                                    .model = model};
            for (uint32_t k = 0; k < residue->component->n_atom; k++) {
                const fm_component_atom *atom = &residue->component->atoms[k];
                if (!residue->has[k]) continue;
                row.name = atom->name;
                row.element = fm_element_symbol(atom->element);
                row.at = residue->atoms[k];
                fm_synth_cif_put_atom(cif, &row);
            }
        }
    }
}

static const char bond_columns[] =
    "loop_\n_struct_conn.id \n_struct_conn.conn_type_id \n_struct_conn.ptnr1_label_asym_id \n"
    "_struct_conn.ptnr1_label_comp_id \n_struct_conn.ptnr1_label_seq_id \n"
    "_struct_conn.ptnr1_label_atom_id \n_struct_conn.pdbx_ptnr1_label_alt_id \n"
    "_struct_conn.pdbx_ptnr1_PDB_ins_code \n_struct_conn.ptnr1_auth_asym_id \n"
    "_struct_conn.ptnr1_auth_comp_id \n_struct_conn.ptnr1_auth_seq_id \n"
    "_struct_conn.ptnr1_symmetry \n_struct_conn.ptnr2_label_asym_id \n"
    "_struct_conn.ptnr2_label_comp_id \n_struct_conn.ptnr2_label_seq_id \n"
    "_struct_conn.ptnr2_label_atom_id \n_struct_conn.pdbx_ptnr2_label_alt_id \n"
    "_struct_conn.pdbx_ptnr2_PDB_ins_code \n_struct_conn.ptnr2_auth_asym_id \n"
    "_struct_conn.ptnr2_auth_comp_id \n_struct_conn.ptnr2_auth_seq_id \n"
    "_struct_conn.ptnr2_symmetry \n_struct_conn.pdbx_dist_value \n";

/* Writes the end of a bond that is an atom of a partner's residue. */
static void put_partner_end(const fm_synth_cif *cif, uint32_t p, uint32_t r, const char *atom) {
    const fm_synth_partner *partner = &cif->partners->partner[p];
    const char *component = partner->residues[r].component->id;
    fm_synth_text_format(cif->text, "%c %s . %s . ? %c %s %d 1_555 ", label_of(cif, p), component,
                         atom, partner->auth_chain, component, number_of(cif, p, r));
}

static void put_bonds(const fm_synth_cif *cif) {
    if (cif->partners->n_link == 0) return;
    fm_synth_text_string(cif->text, bond_columns);
    for (uint32_t i = 0; i < cif->partners->n_link; i++) {
        const fm_synth_link *link = &cif->partners->links[i];
        fm_synth_text_format(cif->text, "covale%u covale ", i + 1);
        if (link->to_protein) {
            const fm_synth_placed *residue = &cif->model->residues[0][link->to];
            const char *component = fm_ideal_residue_of(residue->type)->name;
            fm_synth_text_format(cif->text, "%c %s %u %s . %c %c %s %d 1_555 ",
                                 fm_synth_cif_label(0), component, link->to + 1, link->atom,
                                 residue->insert_code, cif->entry->auth_chain[0], component,
                                 residue->auth_number);
        } else {
            put_partner_end(cif, link->partner, link->residue - 1, link->atom);
        }
        put_partner_end(cif, link->partner, link->residue, "C1");
        fm_synth_text_fixed3(cif->text, (int64_t)floor(link->length * 1000 + 0.5), 0);
        fm_synth_text_string(cif->text, " \n");
    }
    fm_synth_text_string(cif->text, "# \n");
}

static void put_branched(const fm_synth_cif *cif) {
    for (uint32_t p = 0; p < cif->partners->n; p++) {
        if (cif->partners->partner[p].kind != FM_SYNTH_GLYCAN) continue;
        fm_synth_text_format(cif->text,
                             "_pdbx_entity_branch.entity_id   %u \n"
                             "_pdbx_entity_branch.type        oligosaccharide \n# \n",
                             entity_of(cif, p));
    }
}

/* A number of a matrix or a vector, with six decimals, through an integer. */
static void put_number(fm_synth_text *text, double x) {
    int64_t millionths = (int64_t)floor(fabs(x) * 1e6 + 0.5);
    fm_synth_text_format(text, "%s%lld.%06lld ", x < 0 && millionths > 0 ? "-" : "",
                         (long long)(millionths / 1000000), (long long)(millionths % 1000000));
}

static void put_operations(const fm_synth_cif *cif) {
    fm_synth_text *text = cif->text;
    fm_synth_text_string(text, "loop_\n_pdbx_struct_oper_list.id \n"
                               "_pdbx_struct_oper_list.type \n");
    for (int row = 1; row <= 3; row++) {
        for (int column = 1; column <= 3; column++)
            fm_synth_text_format(text, "_pdbx_struct_oper_list.matrix[%d][%d] \n", row, column);
        fm_synth_text_format(text, "_pdbx_struct_oper_list.vector[%d] \n", row);
    }
    for (uint32_t k = 0; k < cif->partners->n_copy; k++) {
        const fm_synth_motion *copy = &cif->partners->copies[k];
        const double shift[3] = {copy->shift.x, copy->shift.y, copy->shift.z};
        fm_synth_text_format(text, "%u %s ", k + 1,
                             k == 0 ? "'identity operation'" : "'point symmetry operation'");
        for (int row = 0; row < 3; row++) {
            put_number(text, copy->rows[row].x);
            put_number(text, copy->rows[row].y);
            put_number(text, copy->rows[row].z);
            put_number(text, shift[row]);
        }
        fm_synth_text_char(text, '\n');
    }
    fm_synth_text_string(text, "# \n");
}

static void put_assembly(const fm_synth_cif *cif) {
    fm_synth_text *text = cif->text;
    const fm_synth_partners *partners = cif->partners;
    uint32_t n_chain =
        cif->entry->n_chain + partners->n + cif->model->sulfate + (cif->model->n_water > 0);
    uint32_t n_polymer = cif->entry->n_chain + cif->entry->recipe->n_strand;
    fm_synth_text_format(text,
                         "_pdbx_struct_assembly.id                  1 \n"
                         "_pdbx_struct_assembly.details             author_defined_assembly \n"
                         "_pdbx_struct_assembly.oligomeric_count    %u \n# \n"
                         "_pdbx_struct_assembly_gen.assembly_id     1 \n"
                         "_pdbx_struct_assembly_gen.oper_expression ",
                         n_polymer * partners->n_copy);
    for (uint32_t k = 0; k < partners->n_copy; k++)
        fm_synth_text_format(text, k == 0 ? "%u" : ",%u", k + 1);
    fm_synth_text_string(text, " \n_pdbx_struct_assembly_gen.asym_id_list    ");
    for (uint32_t c = 0; c < n_chain; c++)
        fm_synth_text_format(text, c == 0 ? "%c" : ",%c", fm_synth_cif_label(c));
    fm_synth_text_string(text, " \n# \n");
    put_operations(cif);
}

void fm_synth_cif_put_complex(const fm_synth_cif *cif) {
    put_branched(cif);
    put_bonds(cif);
    put_assembly(cif);
}
