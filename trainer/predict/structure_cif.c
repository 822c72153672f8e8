/* structure_cif.c: writes a prediction as mmCIF, with the categories of ModelCIF (mmcif_ma.dic 1.4)
 * that viewers and databases read; see prediction.h. The chain is named A in both naming schemes,
 * and its residues are numbered from 1. */
#include "trainer/predict/prediction.h"

#include "proto/chem/atom14.h"
#include "trainer/predict/text_file.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { LINE = 80, FIRST_METRIC_LOCAL = 1, METRIC_GLOBAL = 2, METRIC_PTM = 3, FIRST_TEMPLATE = 3 };

/* A value in quotes; quotes and control bytes inside become '_'. */
static void put_value(FILE *out, const char *text) {
    fputc('\'', out);
    for (; *text; text++)
        fputc(*text == '\'' || iscntrl((unsigned char)*text) ? '_' : *text, out);
    fputc('\'', out);
}

static void put_item(FILE *out, const char *item, const char *text) {
    fprintf(out, "%s ", item);
    put_value(out, text);
    fputc('\n', out);
}

/* The name of a data block has no blanks and only ASCII. */
static void put_id(FILE *out, const char *text) {
    for (; *text; text++)
        fputc(*text > ' ' && *text <= '~' && *text != '\'' && *text != '"' ? *text : '_', out);
}

static void put_sequence(FILE *out, const char *item, const fm_prediction *p, bool is_canonical) {
    fprintf(out, "%s\n;", item);
    size_t column = 0;
    for (uint32_t i = 0; i < p->n_res; i++) {
        bool is_unknown = p->aatype[i] == FM_RESTYPE_X && !is_canonical;
        const char letter[] = {fm_restype_letters[p->aatype[i]], '\0'};
        const char *text = is_unknown ? "(UNK)" : letter;
        if (column + strlen(text) > LINE) {
            fputc('\n', out);
            column = 0;
        }
        column += strlen(text);
        fputs(text, out);
    }
    fputs("\n;\n", out);
}

static void put_head(FILE *out, const fm_prediction *p) {
    fputs("data_", out);
    put_id(out, p->chain);
    fputs("\n#\n_entry.id ", out);
    put_value(out, p->chain);
    fputs("\n#\n_audit_conform.dict_name     mmcif_ma.dic\n_audit_conform.dict_version  1.4.6\n"
          "_audit_conform.dict_location https://raw.githubusercontent.com/ihmwg/ModelCIF/master/"
          "dist/mmcif_ma.dic\n#\n",
          out);
    fputs("_struct.entry_id ", out);
    put_value(out, p->chain);
    fprintf(out, "\n_struct.title 'Predicted structure of ");
    for (const char *c = p->chain; *c; c++)
        fputc(*c == '\'' ? '_' : *c, out);
    fputs("'\n_struct.pdbx_structure_determination_methodology computational\n#\n", out);
}

static void put_entity(FILE *out, const fm_prediction *p) {
    fputs("_entity.id 1\n_entity.type polymer\n_entity.src_method man\n", out);
    put_item(out, "_entity.pdbx_description", p->chain);
    fputs("_entity.pdbx_number_of_molecules 1\n#\n"
          "_entity_poly.entity_id 1\n_entity_poly.type 'polypeptide(L)'\n"
          "_entity_poly.nstd_linkage no\n_entity_poly.nstd_monomer no\n"
          "_entity_poly.pdbx_strand_id A\n",
          out);
    put_sequence(out, "_entity_poly.pdbx_seq_one_letter_code", p, false);
    put_sequence(out, "_entity_poly.pdbx_seq_one_letter_code_can", p, true);
    fputs("#\nloop_\n_entity_poly_seq.entity_id\n_entity_poly_seq.num\n_entity_poly_seq.mon_id\n"
          "_entity_poly_seq.hetero\n",
          out);
    for (uint32_t i = 0; i < p->n_res; i++)
        fprintf(out, "1 %u %s n\n", i + 1, fm_restype_names[p->aatype[i]]);
    fputs("#\n_struct_asym.id A\n_struct_asym.entity_id 1\n"
          "_struct_asym.details 'Model of the whole chain'\n#\n",
          out);
}

static void put_dictionaries(FILE *out, const fm_prediction *p) {
    bool has[FM_N_RESTYPE + 1] = {false};
    for (uint32_t i = 0; i < p->n_res; i++)
        has[p->aatype[i]] = true;
    fputs("loop_\n_chem_comp.id\n_chem_comp.type\n_chem_comp.mon_nstd_flag\n", out);
    for (int k = 0; k <= FM_N_RESTYPE; k++) {
        if (!has[k]) continue;
        const char *name = fm_restype_names[k];
        bool is_glycine = strcmp(name, "GLY") == 0;
        fprintf(out, "%s '%s' y\n", name, is_glycine ? "peptide linking" : "L-peptide linking");
    }
    fputs("#\nloop_\n_atom_type.symbol\nC\nN\nO\nS\n#\n", out);
}

static void put_model(FILE *out, const fm_prediction *p) {
    fputs("loop_\n_software.pdbx_ordinal\n_software.name\n_software.classification\n"
          "_software.description\n_software.version\n_software.type\n",
          out);
    fprintf(out, "1 foldmill 'model building' 'Structure prediction' %s program\n#\n", p->software);
    fputs("_ma_software_group.ordinal_id 1\n_ma_software_group.group_id 1\n"
          "_ma_software_group.software_id 1\n#\n",
          out);
    fputs("loop_\n_ma_data.id\n_ma_data.name\n_ma_data.content_type\n1 ", out);
    put_value(out, p->chain);
    fputs(" target\n2 'Predicted structure' 'model coordinates'\n", out);
    for (uint32_t t = 0; t < p->n_templ; t++)
        fprintf(out, "%u 'Template %s' 'template structure'\n", t + FIRST_TEMPLATE, p->templ[t].id);
    fputs("#\nloop_\n_ma_data_group.ordinal_id\n_ma_data_group.group_id\n"
          "_ma_data_group.data_id\n1 1 1\n2 2 2\n",
          out); /* group 1 goes into the model, group 2 comes out of it */
    for (uint32_t t = 0; t < p->n_templ; t++)
        fprintf(out, "%u 1 %u\n", t + FIRST_TEMPLATE, t + FIRST_TEMPLATE);
    fputs("#\n_ma_target_entity.entity_id 1\n_ma_target_entity.data_id 1\n"
          "_ma_target_entity.origin designed\n#\n"
          "_ma_target_entity_instance.asym_id A\n_ma_target_entity_instance.entity_id 1\n"
          "_ma_target_entity_instance.details .\n#\n"
          "_ma_model_list.ordinal_id 1\n_ma_model_list.model_id 1\n"
          "_ma_model_list.model_group_id 1\n",
          out);
    char name[512];
    snprintf(name, sizeof name, "%.300s, seed %llu", p->model, (unsigned long long)p->seed);
    put_item(out, "_ma_model_list.model_name", name);
    fputs("_ma_model_list.model_group_name 'Predictions'\n_ma_model_list.data_id 2\n"
          "_ma_model_list.model_type 'Ab initio model'\n#\n"
          "loop_\n_ma_protocol_step.ordinal_id\n_ma_protocol_step.protocol_id\n"
          "_ma_protocol_step.step_id\n_ma_protocol_step.method_type\n"
          "_ma_protocol_step.step_name\n_ma_protocol_step.software_group_id\n"
          "_ma_protocol_step.input_data_group_id\n_ma_protocol_step.output_data_group_id\n"
          "1 1 1 modeling 'AlphaFold2 model' 1 1 2\n#\n",
          out);
}

static void put_templates(FILE *out, const fm_prediction *p) {
    if (p->n_templ == 0) return;
    /* The dictionary requires a matrix for each template; coordinates are given as they are. */
    fputs("_ma_template_trans_matrix.id 1\n", out);
    for (int column = 1; column <= 3; column++) {
        for (int row = 1; row <= 3; row++) {
            fprintf(out, "_ma_template_trans_matrix.rot_matrix[%d][%d] %d.0\n", row, column,
                    row == column);
        }
        fprintf(out, "_ma_template_trans_matrix.tr_vector[%d] 0.0\n", column);
    }
    fputs("#\nloop_\n_ma_template_details.ordinal_id\n_ma_template_details.template_id\n"
          "_ma_template_details.template_origin\n_ma_template_details.template_entity_type\n"
          "_ma_template_details.template_trans_matrix_id\n"
          "_ma_template_details.template_data_id\n_ma_template_details.target_asym_id\n"
          "_ma_template_details.template_label_asym_id\n"
          "_ma_template_details.template_label_entity_id\n"
          "_ma_template_details.template_model_num\n"
          "_ma_template_details.template_auth_asym_id\n",
          out);
    for (uint32_t t = 0; t < p->n_templ; t++) {
        fprintf(out, "%u %u 'reference database' polymer 1 %u A . . 1 ", t + 1, t + 1,
                t + FIRST_TEMPLATE);
        put_value(out, p->templ[t].chain);
        fputc('\n', out);
    }
    fputs("#\nloop_\n_ma_template_ref_db_details.template_id\n"
          "_ma_template_ref_db_details.db_name\n"
          "_ma_template_ref_db_details.db_accession_code\n",
          out);
    for (uint32_t t = 0; t < p->n_templ; t++) {
        fprintf(out, "%u PDB ", t + 1);
        put_value(out, p->templ[t].id);
        fputc('\n', out);
    }
    fputs("#\n", out);
}

static void put_metrics(FILE *out, const fm_prediction *p) {
    fputs("loop_\n_ma_qa_metric.id\n_ma_qa_metric.mode\n_ma_qa_metric.name\n"
          "_ma_qa_metric.description\n_ma_qa_metric.type\n_ma_qa_metric.software_group_id\n",
          out);
    fprintf(out, "%d local pLDDT 'Predicted lDDT-CA of a residue, 0 to 100' pLDDT 1\n",
            FIRST_METRIC_LOCAL);
    fprintf(out, "%d global pLDDT 'Mean predicted lDDT-CA, 0 to 100' pLDDT 1\n", METRIC_GLOBAL);
    if (p->pae) fprintf(out, "%d global pTM 'Predicted TM-score, 0 to 1' pTM 1\n", METRIC_PTM);
    fputs("#\nloop_\n_ma_qa_metric_global.ordinal_id\n_ma_qa_metric_global.model_id\n"
          "_ma_qa_metric_global.metric_id\n_ma_qa_metric_global.metric_value\n",
          out);
    fprintf(out, "1 1 %d %.2f\n", METRIC_GLOBAL, p->mean_plddt);
    if (p->pae) fprintf(out, "2 1 %d %.4f\n", METRIC_PTM, p->ptm);
    fputs("#\nloop_\n_ma_qa_metric_local.ordinal_id\n_ma_qa_metric_local.model_id\n"
          "_ma_qa_metric_local.label_asym_id\n_ma_qa_metric_local.label_seq_id\n"
          "_ma_qa_metric_local.label_comp_id\n_ma_qa_metric_local.metric_id\n"
          "_ma_qa_metric_local.metric_value\n",
          out);
    for (uint32_t i = 0; i < p->n_res; i++) {
        fprintf(out, "%u 1 A %u %s %d %.2f\n", i + 1, i + 1, fm_restype_names[p->aatype[i]],
                FIRST_METRIC_LOCAL, (double)p->plddt[i]);
    }
    fputs("#\n", out);
}

static void put_atoms(FILE *out, const fm_prediction *p) {
    static const char *const items[] = {"group_PDB",      "id",
                                        "type_symbol",    "label_atom_id",
                                        "label_alt_id",   "label_comp_id",
                                        "label_asym_id",  "label_entity_id",
                                        "label_seq_id",   "pdbx_PDB_ins_code",
                                        "Cartn_x",        "Cartn_y",
                                        "Cartn_z",        "occupancy",
                                        "B_iso_or_equiv", "auth_seq_id",
                                        "auth_comp_id",   "auth_asym_id",
                                        "auth_atom_id",   "pdbx_PDB_model_num"};
    fputs("loop_\n", out);
    for (size_t k = 0; k < sizeof items / sizeof items[0]; k++)
        fprintf(out, "_atom_site.%s\n", items[k]);
    uint32_t serial = 0;
    for (uint32_t i = 0; i < p->n_res; i++) {
        const uint8_t *atom37 = fm_atom14_to_atom37[p->aatype[i]];
        const char *residue = fm_restype_names[p->aatype[i]];
        for (int a = 0; a < FM_N_ATOM14; a++) {
            if (atom37[a] == FM_ATOM37_NONE) continue;
            char name[5] = {0};
            memcpy(name, fm_atom37_names[atom37[a]], sizeof fm_atom37_names[0]);
            const float *at = p->atoms + ((size_t)i * FM_N_ATOM14 + (size_t)a) * 3;
            fprintf(out, "ATOM %u %c %s . %s A 1 %u ? %.3f %.3f %.3f 1.00 %.2f %u %s A %s 1\n",
                    ++serial, name[0], name, residue, i + 1, (double)at[0], (double)at[1],
                    (double)at[2], (double)p->plddt[i], i + 1, residue, name);
        }
    }
    fputs("#\n", out);
}

fm_status fm_prediction_write_cif(const char *path, const fm_prediction *p, fm_error *reterr) {
    fm_text_file file;
    fm_status status = fm_text_file_open(&file, reterr);
    if (status) return status;
    put_head(file.out, p);
    put_entity(file.out, p);
    put_dictionaries(file.out, p);
    put_model(file.out, p);
    put_templates(file.out, p);
    put_metrics(file.out, p);
    put_atoms(file.out, p);
    return fm_text_file_commit(&file, path, reterr);
}
