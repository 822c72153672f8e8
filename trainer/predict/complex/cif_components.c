/* cif_components.c: the components and bonds of a complex's mmCIF file; see cif_model.h. */
#include "trainer/predict/complex/cif_model.h"

#include "proto/chem/element.h"
#include "trainer/predict/complex/cif_text.h"

#include <string.h>

/* The type of a component that the dictionary does not say, by the entity that has it first. */
static const char *guess_type(const fm_cif_model *m, uint32_t component) {
    static const char *const types[FM_N_COMPLEX_KIND] = {"L-PEPTIDE LINKING", "RNA LINKING",
                                                         "DNA LINKING", "NON-POLYMER"};
    for (uint32_t r = 0; r < m->atoms->n_residue; r++) {
        if ((uint32_t)m->atoms->residue_component[r] == component) {
            return types[m->atoms->entity_kind[fm_cif_entity_of(m, r)]];
        }
    }
    return types[FM_COMPLEX_LIGAND];
}

static void put_component_list(FILE *out, const fm_cif_model *m) {
    const fm_complex_atoms *a = m->atoms;
    fm_cif_begin_loop(out, "chem_comp", "id type mon_nstd_flag name formula formula_weight");
    for (uint32_t c = 0; c < a->n_component; c++) {
        const char *type = a->component_type[c];
        fm_cif_put(out, a->component_id[c]);
        fputc(' ', out);
        fm_cif_put(out, type[0] ? type : guess_type(m, c));
        fprintf(out, " %s ", fm_cif_is_standard(a->component_id[c]) ? "y" : "n");
        fm_cif_put(out, a->component_description[c]);
        fputc(' ', out);
        fm_cif_put(out, a->component_formula[c]);
        if (a->component_weight[c] > 0) {
            fprintf(out, " %.3f\n", (double)a->component_weight[c]);
        } else {
            fputs(" ?\n", out);
        }
    }
    fputs("#\n", out);
}

/* Whether any component has atoms that the file lists. */
static bool has_others(const fm_complex_atoms *a) {
    for (uint32_t c = 0; c < a->n_component; c++) {
        if (!fm_cif_is_standard(a->component_id[c])) return true;
    }
    return false;
}

static void put_component_atoms(FILE *out, const fm_complex_atoms *a) {
    fm_cif_begin_loop(out, "chem_comp_atom",
                      "comp_id atom_id type_symbol charge pdbx_aromatic_flag "
                      "pdbx_leaving_atom_flag");
    for (uint32_t i = 0; i < a->n_component_atom; i++) {
        const char *component = a->component_id[a->component_atom_component[i]];
        if (fm_cif_is_standard(component)) continue;
        fm_cif_put(out, component);
        fputc(' ', out);
        fm_cif_put(out, a->component_atom_name[i]);
        fprintf(out, " %s %d %s %s\n", fm_element_symbol(a->component_atom_element[i]),
                a->component_atom_charge[i], a->component_atom_is_aromatic[i] ? "Y" : "N",
                a->component_atom_is_leaving[i] ? "Y" : "N");
    }
    fputs("#\n", out);
}

/* The word for the order of a bond, and whether it is aromatic. */
static const char *order_word(uint8_t order, bool *ret_is_aromatic) {
    *ret_is_aromatic = order >= FM_BOND_AROMATIC_SINGLE;
    switch (order) {
    case FM_BOND_SINGLE:
    case FM_BOND_AROMATIC_SINGLE: return "sing";
    case FM_BOND_DOUBLE:
    case FM_BOND_AROMATIC_DOUBLE: return "doub";
    case FM_BOND_TRIPLE:
    case FM_BOND_AROMATIC_TRIPLE: return "trip";
    case FM_BOND_QUADRUPLE: return "quad";
    case FM_BOND_AROMATIC: return "arom";
    default: return "?";
    }
}

static void put_component_bonds(FILE *out, const fm_complex_atoms *a) {
    uint32_t n = 0;
    for (uint32_t b = 0; b < a->n_component_bond; b++) {
        const int32_t first = a->component_bond[2 * b], second = a->component_bond[2 * b + 1];
        const char *component = a->component_id[a->component_atom_component[first]];
        bool is_aromatic;
        const char *order = order_word(a->component_bond_order[b], &is_aromatic);
        if (fm_cif_is_standard(component)) continue;
        if (n == 0) {
            fm_cif_begin_loop(out, "chem_comp_bond",
                              "comp_id atom_id_1 atom_id_2 value_order pdbx_aromatic_flag "
                              "pdbx_ordinal");
        }
        fm_cif_put(out, component);
        fputc(' ', out);
        fm_cif_put(out, a->component_atom_name[first]);
        fputc(' ', out);
        fm_cif_put(out, a->component_atom_name[second]);
        fprintf(out, " %s %s %u\n", order, is_aromatic ? "Y" : "N", ++n);
    }
    if (n) fputs("#\n", out);
}

void fm_cif_put_components(FILE *out, const fm_cif_model *m) {
    bool has[FM_N_ELEMENT] = {false};
    put_component_list(out, m);
    if (has_others(m->atoms)) put_component_atoms(out, m->atoms);
    put_component_bonds(out, m->atoms);
    for (uint32_t a = 0; a < m->atoms->n_atom; a++)
        has[m->atoms->atom_element[a]] = true;
    fm_cif_begin_loop(out, "atom_type", "symbol");
    for (int e = 0; e < FM_N_ELEMENT; e++) {
        if (has[e]) fprintf(out, "%s\n", fm_element_symbol((uint8_t)e));
    }
    fputs("#\n", out);
}

/* -- bonds between residues */

bool fm_cif_is_link(const fm_complex_atoms *a, int32_t first, int32_t second) {
    const int32_t of_first = a->atom_residue[first], of_second = a->atom_residue[second];
    if (of_second != of_first + 1 || a->residue_chain[of_first] != a->residue_chain[of_second]) {
        return false;
    }
    const uint8_t kind = a->entity_kind[a->chain_entity[a->residue_chain[of_first]]];
    const bool is_protein = kind == FM_COMPLEX_PROTEIN;
    return kind != FM_COMPLEX_LIGAND &&
           strcmp(a->atom_name[first], is_protein ? "C" : "O3'") == 0 &&
           strcmp(a->atom_name[second], is_protein ? "N" : "P") == 0;
}

static bool is_sulfur(const fm_complex_atoms *a, int32_t atom) {
    return strcmp(a->atom_name[atom], "SG") == 0;
}

/* One end of a bond, with both schemes of ids. */
static void put_end(FILE *out, const fm_cif_model *m, int32_t atom) {
    const fm_complex_atoms *a = m->atoms;
    const uint32_t residue = (uint32_t)a->atom_residue[atom];
    const char *chain = fm_cif_chain_of(m, residue), *component = fm_cif_component_of(m, residue);
    fputc(' ', out);
    fm_cif_put(out, chain);
    fputc(' ', out);
    fm_cif_put(out, component);
    if (m->kind[fm_cif_entity_of(m, residue)] == FM_CIF_POLYMER) {
        fprintf(out, " %d ", a->residue_number[residue]);
    } else {
        fputs(" . ", out);
    }
    fm_cif_put(out, a->atom_name[atom]);
    fputc(' ', out);
    fm_cif_put(out, chain);
    fputc(' ', out);
    fm_cif_put(out, component);
    fprintf(out, " %d", a->residue_number[residue]);
}

void fm_cif_put_connections(FILE *out, const fm_cif_model *m) {
    const fm_complex_atoms *a = m->atoms;
    uint32_t n = 0, n_disulfide = 0;
    for (uint32_t b = 0; b < a->n_bond; b++) {
        const int32_t first = a->bond[2 * b], second = a->bond[2 * b + 1];
        if (fm_cif_is_link(a, first, second)) continue;
        if (n == 0) {
            fm_cif_begin_loop(out, "struct_conn",
                              "id conn_type_id "
                              "ptnr1_label_asym_id ptnr1_label_comp_id ptnr1_label_seq_id "
                              "ptnr1_label_atom_id ptnr1_auth_asym_id ptnr1_auth_comp_id "
                              "ptnr1_auth_seq_id "
                              "ptnr2_label_asym_id ptnr2_label_comp_id ptnr2_label_seq_id "
                              "ptnr2_label_atom_id ptnr2_auth_asym_id ptnr2_auth_comp_id "
                              "ptnr2_auth_seq_id "
                              "ptnr1_symmetry ptnr2_symmetry pdbx_value_order");
        }
        const bool is_disulfide = is_sulfur(a, first) && is_sulfur(a, second);
        n_disulfide += is_disulfide;
        n++;
        fprintf(out, "%s%u %s", is_disulfide ? "disulf" : "covale",
                is_disulfide ? n_disulfide : n - n_disulfide, is_disulfide ? "disulf" : "covale");
        put_end(out, m, first);
        put_end(out, m, second);
        fputs(" 1_555 1_555 sing\n", out);
    }
    if (n == 0) return;
    fputs("#\n", out);
    fm_cif_begin_loop(out, "struct_conn_type", "id");
    fprintf(out, "%s%s#\n", n > n_disulfide ? "covale\n" : "", n_disulfide ? "disulf\n" : "");
}
