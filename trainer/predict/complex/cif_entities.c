/* cif_entities.c: the entities and chains of a complex's mmCIF file; see cif_model.h. */
#include "trainer/predict/complex/cif_model.h"

#include "trainer/predict/complex/cif_text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LINE = 80 };

/* -- the model */

static bool is_sugar(const fm_complex_atoms *atoms, uint32_t residue) {
    return strcasestr(atoms->component_type[atoms->residue_component[residue]], "saccharide");
}

static fm_cif_entity find_kind(const fm_cif_model *m, uint32_t entity) {
    const fm_complex_atoms *a = m->atoms;
    if (a->entity_kind[entity] != FM_COMPLEX_LIGAND) return FM_CIF_POLYMER;
    const uint32_t chain = m->first_chain[entity];
    bool is_branched = m->first_residue[chain + 1] - m->first_residue[chain] > 1;
    for (uint32_t r = m->first_residue[chain]; r < m->first_residue[chain + 1]; r++)
        is_branched = is_branched && is_sugar(a, r);
    return is_branched ? FM_CIF_BRANCHED : FM_CIF_NON_POLYMER;
}

fm_status fm_cif_model_make(const fm_complex_atoms *atoms, fm_cif_model *ret_model,
                            fm_error *reterr) {
    const size_t n_chain = atoms->n_chain, n_entity = atoms->n_entity;
    *ret_model = (fm_cif_model){
        .atoms = atoms,
        .first_residue = calloc(n_chain + 1, sizeof *ret_model->first_residue),
        .first_chain = calloc(n_entity, sizeof *ret_model->first_chain),
        .n_copy = calloc(n_entity, sizeof *ret_model->n_copy),
        .kind = calloc(n_entity, sizeof *ret_model->kind),
    };
    fm_cif_model *m = ret_model;
    if (!m->first_residue || !m->first_chain || !m->n_copy || !m->kind) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for %zu chains", n_chain);
    }
    for (uint32_t r = atoms->n_residue; r-- > 0;)
        m->first_residue[atoms->residue_chain[r]] = r;
    m->first_residue[n_chain] = atoms->n_residue;
    for (uint32_t k = atoms->n_chain; k-- > 0;) {
        m->first_chain[atoms->chain_entity[k]] = k;
        m->n_copy[atoms->chain_entity[k]]++;
    }
    for (uint32_t e = 0; e < n_entity; e++)
        m->kind[e] = find_kind(m, e);
    return FM_OK;
}

void fm_cif_model_release(fm_cif_model *m) {
    free(m->first_residue);
    free(m->first_chain);
    free(m->n_copy);
    free(m->kind);
}

bool fm_cif_is_standard(const char *component) {
    static const char *const standard[] = {"ALA", "ARG", "ASN", "ASP", "CYS", "GLN", "GLU",
                                           "GLY", "HIS", "ILE", "LEU", "LYS", "MET", "PHE",
                                           "PRO", "SER", "THR", "TRP", "TYR", "VAL", "A",
                                           "C",   "G",   "U",   "DA",  "DC",  "DG",  "DT"};
    for (size_t i = 0; i < sizeof standard / sizeof standard[0]; i++) {
        if (strcmp(component, standard[i]) == 0) return true;
    }
    return false;
}

/* -- sequences */

/* The text of a residue in a sequence: a letter, or the component in brackets. */
static void spell(const fm_cif_model *m, uint32_t residue, bool is_canonical, char text[272]) {
    const fm_complex_atoms *a = m->atoms;
    const uint8_t kind = a->entity_kind[fm_cif_entity_of(m, residue)];
    const char *component = fm_cif_component_of(m, residue);
    const char letter = (char)a->residue_letter[residue];
    if (is_canonical) {
        snprintf(text, 272, "%c", letter != '?' ? letter : kind == FM_COMPLEX_PROTEIN ? 'X' : 'N');
    } else if (kind == FM_COMPLEX_RNA && fm_cif_is_standard(component)) {
        snprintf(text, 272, "%s", component);
    } else if (kind == FM_COMPLEX_PROTEIN && fm_cif_is_standard(component)) {
        snprintf(text, 272, "%c", letter);
    } else {
        snprintf(text, 272, "(%s)", component);
    }
}

static void put_sequence(FILE *out, const fm_cif_model *m, uint32_t chain, bool is_canonical) {
    size_t column = 0;
    fputs("\n;", out);
    for (uint32_t r = m->first_residue[chain]; r < m->first_residue[chain + 1]; r++) {
        char text[272];
        spell(m, r, is_canonical, text);
        if (column + strlen(text) > LINE) {
            fputc('\n', out);
            column = 0;
        }
        column += strlen(text);
        fputs(text, out);
    }
    fputs("\n;", out);
}

static bool is_modified(const fm_cif_model *m, uint32_t chain) {
    bool modified = false;
    for (uint32_t r = m->first_residue[chain]; r < m->first_residue[chain + 1]; r++)
        modified = modified || !fm_cif_is_standard(fm_cif_component_of(m, r));
    return modified;
}

static void put_polymers(FILE *out, const fm_cif_model *m) {
    static const char *const types[FM_N_COMPLEX_KIND] = {"polypeptide(L)", "polyribonucleotide",
                                                         "polydeoxyribonucleotide", ""};
    const fm_complex_atoms *a = m->atoms;
    fm_cif_begin_loop(out, "entity_poly",
                      "entity_id type nstd_linkage nstd_monomer pdbx_strand_id "
                      "pdbx_seq_one_letter_code pdbx_seq_one_letter_code_can");
    for (uint32_t e = 0; e < a->n_entity; e++) {
        if (m->kind[e] != FM_CIF_POLYMER) continue;
        fprintf(out, "%u %s no %s\n;", e + 1, types[a->entity_kind[e]],
                is_modified(m, m->first_chain[e]) ? "yes" : "no");
        for (uint32_t k = 0, n = 0; k < a->n_chain; k++) {
            if ((uint32_t)a->chain_entity[k] == e) {
                fprintf(out, "%s%s", n++ ? "," : "", a->chain_id[k]);
            }
        }
        fputs("\n;", out);
        put_sequence(out, m, m->first_chain[e], false);
        put_sequence(out, m, m->first_chain[e], true);
        fputc('\n', out);
    }
    fputs("#\n", out);
    fm_cif_begin_loop(out, "entity_poly_seq", "entity_id num mon_id hetero");
    for (uint32_t e = 0; e < a->n_entity; e++) {
        if (m->kind[e] != FM_CIF_POLYMER) continue;
        const uint32_t chain = m->first_chain[e];
        for (uint32_t r = m->first_residue[chain]; r < m->first_residue[chain + 1]; r++) {
            fprintf(out, "%u %d ", e + 1, a->residue_number[r]);
            fm_cif_put(out, fm_cif_component_of(m, r));
            fputs(" n\n", out);
        }
    }
    fputs("#\n", out);
}

/* Components of ligands: one of each entity, or the list of a branched one. */
static void put_ligands(FILE *out, const fm_cif_model *m, fm_cif_entity kind) {
    const fm_complex_atoms *a = m->atoms;
    fm_cif_begin_loop(
        out, kind == FM_CIF_BRANCHED ? "pdbx_entity_branch_list" : "pdbx_entity_nonpoly",
        kind == FM_CIF_BRANCHED ? "entity_id num comp_id hetero" : "entity_id comp_id name");
    for (uint32_t e = 0; e < a->n_entity; e++) {
        if (m->kind[e] != kind) continue;
        const uint32_t chain = m->first_chain[e];
        for (uint32_t r = m->first_residue[chain]; r < m->first_residue[chain + 1]; r++) {
            fprintf(out, "%u ", e + 1);
            if (kind == FM_CIF_BRANCHED) fprintf(out, "%d ", a->residue_number[r]);
            fm_cif_put(out, fm_cif_component_of(m, r));
            fputc(' ', out);
            if (kind == FM_CIF_BRANCHED) {
                fputc('n', out);
            } else {
                fm_cif_put(out, a->component_description[a->residue_component[r]]);
            }
            fputc('\n', out);
        }
    }
    fputs("#\n", out);
}

static bool has_kind(const fm_cif_model *m, fm_cif_entity kind) {
    for (uint32_t e = 0; e < m->atoms->n_entity; e++) {
        if (m->kind[e] == kind) return true;
    }
    return false;
}

/* -- chains */

/* The numbering of the residues of all chains of a kind. Both schemes of ids are the same. */
static void put_scheme(FILE *out, const fm_cif_model *m, fm_cif_entity kind, const char *category,
                       const char *items) {
    const fm_complex_atoms *a = m->atoms;
    fm_cif_begin_loop(out, category, items);
    for (uint32_t r = 0; r < a->n_residue; r++) {
        const uint32_t entity = fm_cif_entity_of(m, r);
        if (m->kind[entity] != kind) continue;
        const char *chain = fm_cif_chain_of(m, r), *component = fm_cif_component_of(m, r);
        fm_cif_put(out, chain);
        fprintf(out, " %u ", entity + 1);
        fm_cif_put(out, component);
        const int32_t number = a->residue_number[r];
        fprintf(out, " %d %d %d ", number, number, number);
        fm_cif_put(out, component);
        fputc(' ', out);
        fm_cif_put(out, component);
        fputc(' ', out);
        fm_cif_put(out, chain);
        if (kind == FM_CIF_BRANCHED) {
            fputc(' ', out);
            fm_cif_put(out, chain);
        }
        fputs(kind == FM_CIF_NON_POLYMER ? " .\n"
              : kind == FM_CIF_POLYMER   ? " . n\n"
                                         : " n\n",
              out);
    }
    fputs("#\n", out);
}

static void put_chains(FILE *out, const fm_cif_model *m) {
    const fm_complex_atoms *a = m->atoms;
    fm_cif_begin_loop(out, "struct_asym", "id entity_id details");
    for (uint32_t k = 0; k < a->n_chain; k++) {
        fm_cif_put(out, a->chain_id[k]);
        fprintf(out, " %d ?\n", a->chain_entity[k] + 1);
    }
    fputs("#\n", out);
    if (has_kind(m, FM_CIF_POLYMER)) {
        put_scheme(out, m, FM_CIF_POLYMER, "pdbx_poly_seq_scheme",
                   "asym_id entity_id mon_id seq_id pdb_seq_num auth_seq_num pdb_mon_id "
                   "auth_mon_id pdb_strand_id pdb_ins_code hetero");
    }
    if (has_kind(m, FM_CIF_BRANCHED)) {
        put_scheme(out, m, FM_CIF_BRANCHED, "pdbx_branch_scheme",
                   "asym_id entity_id mon_id num pdb_seq_num auth_seq_num pdb_mon_id "
                   "auth_mon_id pdb_asym_id auth_asym_id hetero");
    }
    if (has_kind(m, FM_CIF_NON_POLYMER)) {
        put_scheme(out, m, FM_CIF_NON_POLYMER, "pdbx_nonpoly_scheme",
                   "asym_id entity_id mon_id ndb_seq_num pdb_seq_num auth_seq_num pdb_mon_id "
                   "auth_mon_id pdb_strand_id pdb_ins_code");
    }
}

void fm_cif_put_entities(FILE *out, const fm_cif_model *m) {
    static const char *const kinds[] = {"polymer", "branched", "non-polymer"};
    const fm_complex_atoms *a = m->atoms;
    fm_cif_begin_loop(out, "entity",
                      "id type src_method pdbx_description "
                      "pdbx_number_of_molecules");
    for (uint32_t e = 0; e < a->n_entity; e++) {
        fprintf(out, "%u %s man ", e + 1, kinds[m->kind[e]]);
        fm_cif_put(out, a->entity_description[e]);
        fprintf(out, " %u\n", m->n_copy[e]);
    }
    fputs("#\n", out);
    if (has_kind(m, FM_CIF_POLYMER)) put_polymers(out, m);
    if (has_kind(m, FM_CIF_BRANCHED)) {
        fm_cif_begin_loop(out, "pdbx_entity_branch", "entity_id type");
        for (uint32_t e = 0; e < a->n_entity; e++) {
            if (m->kind[e] == FM_CIF_BRANCHED) fprintf(out, "%u oligosaccharide\n", e + 1);
        }
        fputs("#\n", out);
        put_ligands(out, m, FM_CIF_BRANCHED);
    }
    if (has_kind(m, FM_CIF_NON_POLYMER)) put_ligands(out, m, FM_CIF_NON_POLYMER);
    put_chains(out, m);
}
