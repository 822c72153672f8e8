/* structure_cif.c: writes a complex as mmCIF, with the categories of ModelCIF (mmcif_ma.dic 1.4)
 * that viewers and databases read; see files.h. The schemes of labels and of authors' ids are the
 * same, but the components of ligands have numbers in the second one only. */
#include "proto/chem/element.h"
#include "trainer/predict/complex/cif_model.h"
#include "trainer/predict/complex/cif_text.h"
#include "trainer/predict/complex/files.h"
#include "trainer/predict/text_file.h"

#include <math.h>
#include <string.h>

enum { METRIC_LOCAL = 1, METRIC_PLDDT = 2, METRIC_PTM = 3, METRIC_IPTM = 4 };

static void put_head(FILE *out, const fm_complex_prediction *p) {
    fputs("data_", out);
    /* The name of a data block has no blanks and only ASCII. */
    for (const char *c = p->name; *c; c++)
        fputc(*c > ' ' && *c <= '~' && *c != '\'' && *c != '"' ? *c : '_', out);
    fputs("\n#\n", out);
    fm_cif_put_item(out, "entry.id", p->name);
    fputs("#\n_audit_conform.dict_name mmcif_ma.dic\n_audit_conform.dict_version 1.4.6\n"
          "_audit_conform.dict_location https://raw.githubusercontent.com/ihmwg/ModelCIF/master/"
          "dist/mmcif_ma.dic\n#\n",
          out);
    fm_cif_put_item(out, "struct.entry_id", p->name);
    char title[320];
    snprintf(title, sizeof title, "Predicted structure of %.255s", p->name);
    fm_cif_put_item(out, "struct.title", title);
    fputs("_struct.pdbx_structure_determination_methodology computational\n#\n", out);
}

static void put_targets(FILE *out, const fm_complex_prediction *p) {
    const fm_complex_atoms *a = p->atoms;
    fm_cif_begin_loop(out, "ma_target_entity", "entity_id data_id origin");
    for (uint32_t e = 0; e < a->n_entity; e++)
        fprintf(out, "%u %u designed\n", e + 1, e + 1);
    fputs("#\n", out);
    fm_cif_begin_loop(out, "ma_target_entity_instance", "asym_id entity_id details");
    for (uint32_t k = 0; k < a->n_chain; k++) {
        fm_cif_put(out, a->chain_id[k]);
        fprintf(out, " %d .\n", a->chain_entity[k] + 1);
    }
    fputs("#\n", out);
}

/* The entities go into the model as data 1 to E, and the coordinates come out as data E + 1. */
static void put_model(FILE *out, const fm_complex_prediction *p) {
    const uint32_t n = p->atoms->n_entity;
    fm_cif_begin_loop(out, "software", "pdbx_ordinal name classification description version type");
    fputs("1 foldmill 'model building' 'Structure prediction' ", out);
    fm_cif_put(out, p->software);
    fputs(" program\n#\n_ma_software_group.ordinal_id 1\n_ma_software_group.group_id 1\n"
          "_ma_software_group.software_id 1\n#\n",
          out);
    fm_cif_begin_loop(out, "ma_data", "id name content_type");
    for (uint32_t e = 0; e < n; e++)
        fprintf(out, "%u 'Entity %u' target\n", e + 1, e + 1);
    fprintf(out, "%u 'Predicted structure' 'model coordinates'\n#\n", n + 1);
    fm_cif_begin_loop(out, "ma_data_group", "ordinal_id group_id data_id");
    for (uint32_t e = 0; e <= n; e++)
        fprintf(out, "%u %d %u\n", e + 1, e < n ? 1 : 2, e + 1);
    fputs("#\n", out);
    put_targets(out, p);
    char name[512];
    snprintf(name, sizeof name, "%.300s, seed %llu, sample %u", p->model,
             (unsigned long long)p->seed, p->sample);
    fputs("_ma_model_list.ordinal_id 1\n_ma_model_list.model_id 1\n"
          "_ma_model_list.model_group_id 1\n",
          out);
    fm_cif_put_item(out, "ma_model_list.model_name", name);
    fprintf(out,
            "_ma_model_list.model_group_name Predictions\n_ma_model_list.data_id %u\n"
            "_ma_model_list.model_type 'Ab initio model'\n#\n",
            n + 1);
    fm_cif_begin_loop(out, "ma_protocol_step",
                      "ordinal_id protocol_id step_id method_type step_name software_group_id "
                      "input_data_group_id output_data_group_id");
    fputs("1 1 1 modeling 'AlphaFold 3 model' 1 1 2\n#\n", out);
}

static void put_global(FILE *out, uint32_t *ordinal, int metric, double value, int decimals) {
    if (!isfinite(value)) return;
    ++*ordinal;
    fprintf(out, "%u 1 %d %.*f\n", *ordinal, metric, decimals, value);
}

/* The mean pLDDT of each residue of a polymer. Components of ligands have no number there. */
static void put_local(FILE *out, const fm_complex_prediction *p, const fm_cif_model *m) {
    const fm_complex_atoms *a = p->atoms;
    uint32_t ordinal = 0;
    fm_cif_begin_loop(out, "ma_qa_metric_local",
                      "ordinal_id model_id label_asym_id label_seq_id label_comp_id metric_id "
                      "metric_value");
    for (uint32_t atom = 0; atom < a->n_atom;) {
        const uint32_t residue = (uint32_t)a->atom_residue[atom];
        double sum = 0;
        uint32_t n = 0;
        for (; atom < a->n_atom && (uint32_t)a->atom_residue[atom] == residue; atom++, n++)
            sum += p->plddt[atom];
        if (m->kind[fm_cif_entity_of(m, residue)] != FM_CIF_POLYMER || !isfinite(sum)) continue;
        fprintf(out, "%u 1 ", ++ordinal);
        fm_cif_put(out, fm_cif_chain_of(m, residue));
        fprintf(out, " %d ", a->residue_number[residue]);
        fm_cif_put(out, fm_cif_component_of(m, residue));
        fprintf(out, " %d %.2f\n", METRIC_LOCAL, 100 * sum / n);
    }
    fputs("#\n", out);
}

static bool has_polymer(const fm_cif_model *m) {
    for (uint32_t e = 0; e < m->atoms->n_entity; e++) {
        if (m->kind[e] == FM_CIF_POLYMER) return true;
    }
    return false;
}

static void put_metrics(FILE *out, const fm_complex_prediction *p, const fm_cif_model *m) {
    const fm_complex_scores *s = p->scores;
    uint32_t ordinal = 0;
    fm_cif_begin_loop(out, "ma_qa_metric", "id mode name description type software_group_id");
    fprintf(out,
            "%d local pLDDT 'Predicted lDDT of the atoms of a residue, 0 to 100' pLDDT 1\n"
            "%d global pLDDT 'Mean predicted lDDT of all atoms, 0 to 100' pLDDT 1\n"
            "%d global pTM 'Predicted TM-score, 0 to 1' pTM 1\n"
            "%d global ipTM 'Predicted TM-score of the interfaces, 0 to 1' ipTM 1\n#\n",
            METRIC_LOCAL, METRIC_PLDDT, METRIC_PTM, METRIC_IPTM);
    fm_cif_begin_loop(out, "ma_qa_metric_global", "ordinal_id model_id metric_id metric_value");
    put_global(out, &ordinal, METRIC_PLDDT, s->mean_plddt, 2);
    put_global(out, &ordinal, METRIC_PTM, s->ptm, 4);
    put_global(out, &ordinal, METRIC_IPTM, s->iptm, 4);
    if (ordinal == 0) fprintf(out, "1 1 %d ?\n", METRIC_PLDDT);
    fputs("#\n", out);
    if (has_polymer(m)) put_local(out, p, m);
}

/* A number and a blank, or `?` for none. */
static void put_number(FILE *out, bool is_known, double value, int decimals) {
    if (is_known) {
        fprintf(out, "%.*f ", decimals, value);
    } else {
        fputs("? ", out);
    }
}

static void put_atoms(FILE *out, const fm_complex_prediction *p, const fm_cif_model *m) {
    const fm_complex_atoms *a = p->atoms;
    fm_cif_begin_loop(out, "atom_site",
                      "group_PDB id type_symbol label_atom_id label_alt_id label_comp_id "
                      "label_asym_id label_entity_id label_seq_id pdbx_PDB_ins_code Cartn_x "
                      "Cartn_y Cartn_z occupancy B_iso_or_equiv pdbx_formal_charge auth_seq_id "
                      "auth_comp_id auth_asym_id auth_atom_id pdbx_PDB_model_num");
    for (uint32_t i = 0; i < a->n_atom; i++) {
        const uint32_t residue = (uint32_t)a->atom_residue[i];
        const uint32_t entity = fm_cif_entity_of(m, residue);
        const bool is_polymer = m->kind[entity] == FM_CIF_POLYMER;
        const char *chain = fm_cif_chain_of(m, residue);
        const char *component = fm_cif_component_of(m, residue);
        const float *at = p->position + (size_t)i * 3;
        fprintf(out, "%s %u %s ", is_polymer ? "ATOM" : "HETATM", i + 1,
                fm_element_symbol(a->atom_element[i]));
        fm_cif_put(out, a->atom_name[i]);
        fputs(" . ", out);
        fm_cif_put(out, component);
        fputc(' ', out);
        fm_cif_put(out, chain);
        fprintf(out, " %u ", entity + 1);
        if (is_polymer) fprintf(out, "%d", a->residue_number[residue]);
        fprintf(out, "%s ? %.3f %.3f %.3f 1.00 ", is_polymer ? "" : ".", (double)at[0],
                (double)at[1], (double)at[2]);
        put_number(out, isfinite(p->plddt[i]), 100 * p->plddt[i], 2);
        put_number(out, a->atom_charge[i] != 0, a->atom_charge[i], 0);
        fprintf(out, "%d ", a->residue_number[residue]);
        fm_cif_put(out, component);
        fputc(' ', out);
        fm_cif_put(out, chain);
        fputc(' ', out);
        fm_cif_put(out, a->atom_name[i]);
        fputs(" 1\n", out);
    }
    fputs("#\n", out);
}

fm_status fm_complex_write_cif(const char *path, const fm_complex_prediction *p, fm_error *reterr) {
    for (size_t i = 0; i < (size_t)p->atoms->n_atom * 3; i++) {
        if (isfinite(p->position[i])) continue;
        return fm_fail_in(reterr, FM_ERR_DATA, path,
                          "atom %zu: found a position that is not finite, expected numbers",
                          i / 3 + 1);
    }
    fm_cif_model model;
    fm_text_file file;
    fm_status status = fm_cif_model_make(p->atoms, &model, reterr);
    if (!status) status = fm_text_file_open(&file, reterr);
    if (!status) {
        put_head(file.out, p);
        fm_cif_put_entities(file.out, &model);
        fm_cif_put_components(file.out, &model);
        fm_cif_put_connections(file.out, &model);
        put_model(file.out, p);
        put_metrics(file.out, p, &model);
        put_atoms(file.out, p, &model);
        status = fm_text_file_commit(&file, path, reterr);
    }
    fm_cif_model_release(&model);
    return status;
}
