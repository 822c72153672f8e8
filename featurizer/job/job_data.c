/* job_data.c: see job_data.h. */
#include "featurizer/job/job_data.h"

#include "featurizer/job/job_read.h"
#include "featurizer/msa_format.h"
#include "proto/base/exact.h"
#include "proto/base/utf8.h"
#include "proto/chem/element.h"
#include "proto/chem/residue.h"
#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- JSON */

/* Writes the inside of a text: runs of plain bytes at once, since alignments are large. A byte that
 * belongs to no character of UTF-8 becomes '?'. */
static void put_inside(FILE *out, const void *text, size_t size) {
    const uint8_t *at = text;
    size_t run = 0;
    for (size_t i = 0; i < size;) {
        const bool is_plain = at[i] >= ' ' && at[i] < 0x7f && at[i] != '"' && at[i] != '\\';
        const size_t bytes = is_plain ? 1 : fm_utf8_size(at + i, size - i);
        if (is_plain || bytes > 1) {
            i += bytes;
            continue;
        }
        fwrite(at + run, 1, i - run, out);
        if (at[i] == '\n') {
            fputs("\\n", out);
        } else if (at[i] == '"' || at[i] == '\\') {
            fprintf(out, "\\%c", at[i]);
        } else if (bytes == 1) {
            fprintf(out, "\\u%04x", at[i]);
        } else {
            fputc('?', out);
        }
        run = ++i;
    }
    if (size > run) fwrite(at + run, 1, size - run, out); /* an empty text may have no address */
}

static void put_text(FILE *out, const void *text, size_t size) {
    fputc('"', out);
    put_inside(out, text, size);
    fputc('"', out);
}

static void put_string(FILE *out, const char *text) {
    put_text(out, text, strlen(text));
}

static void put_key(FILE *out, const char *key) {
    fprintf(out, ", \"%s\": ", key);
}

static void put_indices(FILE *out, const char *key, const uint32_t *index, uint32_t n) {
    put_key(out, key);
    for (uint32_t i = 0; i < n; i++)
        fprintf(out, "%s%u", i ? ", " : "[", index[i]);
    fputs(n ? "]" : "[]", out);
}

/* -- alignments */

/* A3M has letters where other parsers keep the number of deleted ones. */
static fm_status put_as_a3m(fm_job_work *work, FILE *out, const fm_msa_input *input,
                            uint32_t n_col) {
    const size_t mark = fm_arena_mark(work->arena);
    const size_t most = fm_alignment_max_rows(input->content.size, n_col);
    fm_alignment rows;
    fm_status status = fm_alignment_init(&rows, work->arena, n_col, most, work->reterr);
    const fm_msa_reader *reader = fm_msa_reader_of(input->format);
    if (!status) status = reader->append(input->content, NULL, work->arena, &rows, work->reterr);
    for (size_t i = 0; i < rows.n_seq && !status; i++) {
        const fm_alignment_row *place = &rows.row[i];
        fputs(">", out);
        put_inside(out, input->content.data + place->description, place->description_bytes);
        fputs("\\n", out);
        for (size_t k = 0; k < n_col; k++) {
            for (uint16_t d = 0; d < rows.deletion[i * n_col + k]; d++)
                fputc('x', out);
            put_inside(out, rows.letters + i * n_col + k, 1);
        }
        fputs("\\n", out);
    }
    fm_arena_rewind(work->arena, mark);
    return status;
}

static fm_status put_alignment(fm_job_work *work, FILE *out, const char *key,
                               const fm_msa_input *input, uint32_t n_col) {
    put_key(out, key);
    if (input->content.size == 0 || input->format == FM_MSA_A3M) {
        put_text(out, input->content.data, input->content.size);
        return FM_OK;
    }
    fputc('"', out);
    fm_status status = put_as_a3m(work, out, input, n_col);
    fputc('"', out);
    return status;
}

/* -- templates */

static void put_template_atoms(FILE *out, const fm_job_template_used *t) {
    static const char *const columns[] = {"group_PDB",         "id",
                                          "type_symbol",       "label_atom_id",
                                          "label_alt_id",      "label_comp_id",
                                          "label_asym_id",     "label_entity_id",
                                          "label_seq_id",      "Cartn_x",
                                          "Cartn_y",           "Cartn_z",
                                          "occupancy",         "B_iso_or_equiv",
                                          "auth_seq_id",       "auth_comp_id",
                                          "auth_asym_id",      "auth_atom_id",
                                          "pdbx_PDB_model_num"};
    const float *x = t->structure.all_atom_positions;
    size_t n = 0;
    fputs("#\nloop_\n", out);
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        fprintf(out, "_atom_site.%s\n", columns[i]);
    for (size_t r = 0; r < t->sequence.n_res; r++) {
        const char *residue = fm_restype_names[fm_restype_from_letter(t->sequence.sequence[r])];
        for (size_t a = 0; a < FM_N_ATOM37; a++) {
            const size_t at = r * FM_N_ATOM37 + a;
            char place[3][FM_EXACT_BYTES];
            if (!t->structure.all_atom_mask[at]) continue;
            for (size_t c = 0; c < 3; c++)
                fm_exact_f32(x[3 * at + c], 1, place[c]);
            fprintf(out, "ATOM %zu %c %s . %s A 1 %zu %s %s %s 1.00 0.00 %zu %s A %s 1\n", ++n,
                    fm_atom37_names[a][0], fm_atom37_names[a], residue, r + 1, place[0], place[1],
                    place[2], r + 1, residue, fm_atom37_names[a]);
        }
    }
    fputs("#\n", out);
}

/* The chain alone, as the only entity. */
static void put_template_cif(FILE *out, const fm_job_template_used *t) {
    fputs("data_template\n_entry.id template\n#\n", out);
    if (t->structure.release_date[0]) {
        fprintf(out,
                "_pdbx_audit_revision_history.ordinal 1\n"
                "_pdbx_audit_revision_history.revision_date %s\n#\n",
                t->structure.release_date);
    }
    fputs("_entity.id 1\n_entity.type polymer\n_entity_poly.entity_id 1\n"
          "_entity_poly.type polypeptide(L)\n_struct_asym.id A\n_struct_asym.entity_id 1\n#\n"
          "loop_\n_entity_poly_seq.entity_id\n_entity_poly_seq.num\n_entity_poly_seq.mon_id\n",
          out);
    for (uint32_t r = 0; r < t->sequence.n_res; r++)
        fprintf(out, "1 %u %s\n", r + 1,
                fm_restype_names[fm_restype_from_letter(t->sequence.sequence[r])]);
    put_template_atoms(out, t);
}

static fm_status put_template(fm_job_work *work, FILE *out, const fm_job_template_used *t) {
    char *text = NULL;
    size_t size;
    FILE *cif = open_memstream(&text, &size);
    if (cif) put_template_cif(cif, t);
    const bool is_whole = cif && !ferror(cif);
    if (!cif || fclose(cif) || !is_whole) {
        free(text);
        return fm_fail(work->reterr, FM_ERR_NOMEM, "no memory for a template");
    }
    fputs("{\"mmcif\": ", out);
    put_text(out, text, size);
    put_indices(out, "queryIndices", t->query, t->n);
    put_indices(out, "templateIndices", t->template, t->n);
    fputc('}', out);
    free(text);
    return FM_OK;
}

static fm_status put_templates(fm_job_work *work, FILE *out, const fm_job_inputs_used *used) {
    fm_status status = FM_OK;
    put_key(out, "templates");
    fputc('[', out);
    for (uint32_t i = 0; i < used->n_template && !status; i++) {
        if (i) fputs(", ", out);
        status = put_template(work, out, &used->templates[i]);
    }
    fputc(']', out);
    return status;
}

/* -- entities */

static void put_ids(FILE *out, const fm_job_entity *entity) {
    fputs("{\"id\": [", out);
    for (uint32_t k = 0; k < entity->n_copy; k++) {
        if (k) fputs(", ", out);
        put_string(out, entity->ids[k]);
    }
    fputc(']', out);
    if (!entity->description) return;
    put_key(out, "description");
    put_string(out, entity->description);
}

static void put_modifications(FILE *out, const fm_job_entity *entity) {
    const bool is_protein = entity->molecule == FM_MOLECULE_PROTEIN;
    uint32_t n = 0;
    put_key(out, "modifications");
    for (uint32_t i = 0; i < entity->n_residue; i++) {
        bool is_known;
        const char *written =
            fm_job_component_of((fm_molecule)entity->molecule, entity->sequence[i], &is_known);
        if (strcmp(written, entity->components[i]) == 0) continue;
        fprintf(out, "%s{\"%s\": ", n++ ? ", " : "[", is_protein ? "ptmType" : "modificationType");
        put_string(out, entity->components[i]);
        fprintf(out, ", \"%s\": %u}", is_protein ? "ptmPosition" : "basePosition", i + 1);
    }
    fputs(n ? "]" : "[]", out);
}

static fm_status put_polymer(fm_job_work *work, FILE *out, const fm_job_entity *entity,
                             const fm_job_inputs_used *used) {
    put_ids(out, entity);
    put_key(out, "sequence");
    put_string(out, entity->sequence);
    put_modifications(out, entity);
    if (entity->molecule == FM_MOLECULE_DNA) return FM_OK;
    const uint32_t n = entity->n_residue;
    fm_status status = put_alignment(work, out, "unpairedMsa", &used->unpaired, n);
    if (entity->molecule == FM_MOLECULE_RNA || status) return status;
    status = put_alignment(work, out, "pairedMsa", &used->paired, n);
    return status ? status : put_templates(work, out, used);
}

static void put_ligand(FILE *out, const fm_job_entity *entity) {
    put_ids(out, entity);
    put_key(out, "ccdCodes");
    for (uint32_t i = 0; i < entity->n_residue; i++) {
        fputs(i ? ", " : "[", out);
        put_string(out, entity->components[i]);
    }
    fputc(']', out);
}

static fm_status put_entities(fm_job_work *work, FILE *out) {
    static const char *const words[FM_N_MOLECULE] = {"protein", "rna", "dna", "ligand"};
    fm_status status = FM_OK;
    fputs(",\n \"sequences\": [\n", out);
    for (uint32_t e = 0; e < work->job->n_entity && !status; e++) {
        const fm_job_entity *entity = &work->job->entities[e];
        fprintf(out, "%s  {\"%s\": ", e ? ",\n" : "", words[entity->molecule]);
        if (entity->molecule == FM_MOLECULE_LIGAND) {
            put_ligand(out, entity);
        } else {
            status = put_polymer(work, out, entity, &work->used[e]);
        }
        fputs("}}", out);
    }
    fputs("\n ]", out);
    return status;
}

static void put_bonds(FILE *out, const fm_complex_job *job) {
    if (job->n_bond == 0) return;
    fputs(",\n \"bondedAtomPairs\": [\n", out);
    for (uint32_t i = 0; i < job->n_bond; i++) {
        const fm_job_end *const ends[] = {&job->bonds[i].a, &job->bonds[i].b};
        fputs(i ? ",\n  [" : "  [", out);
        for (int k = 0; k < 2; k++) {
            fputs(k ? ", [" : "[", out);
            put_string(out, job->entities[ends[k]->entity].ids[ends[k]->copy]);
            fprintf(out, ", %u, ", ends[k]->residue + 1);
            put_string(out, ends[k]->atom);
            fputc(']', out);
        }
        fputc(']', out);
    }
    fputs("\n ]", out);
}

/* -- components */

/* A component of a molfile, whose names are an element and a number. Its hydrogens have no
 * positions. */
static void put_component(FILE *out, const fm_component *c) {
    static const char *const orders[] = {"?", "SING", "DOUB", "TRIP", "QUAD"};
    uint32_t n_hydrogen = 0;
    fprintf(out,
            "data_%s\n_chem_comp.id %s\n_chem_comp.type %s\nloop_\n_chem_comp_atom.atom_id\n"
            "_chem_comp_atom.type_symbol\n_chem_comp_atom.charge\n"
            "_chem_comp_atom.pdbx_aromatic_flag\n_chem_comp_atom.pdbx_model_Cartn_x_ideal\n"
            "_chem_comp_atom.pdbx_model_Cartn_y_ideal\n"
            "_chem_comp_atom.pdbx_model_Cartn_z_ideal\n",
            c->id, c->id, c->type);
    for (uint32_t i = 0; i < c->n_atom; i++) {
        char place[3][FM_EXACT_BYTES];
        for (size_t k = 0; k < 3; k++)
            fm_exact_f32(c->atoms[i].ideal[k], 1, place[k]);
        fprintf(out, "%s %s %d %s %s %s %s\n", c->atoms[i].name,
                fm_element_symbol(c->atoms[i].element), c->atoms[i].charge,
                c->atoms[i].is_aromatic ? "Y" : "N", place[0], place[1], place[2]);
    }
    for (uint32_t i = 0; i < c->n_atom; i++)
        for (uint32_t h = 0; h < c->atoms[i].n_hydrogen; h++)
            fprintf(out, "H%u H 0 N ? ? ?\n", ++n_hydrogen);
    if (c->n_bond + n_hydrogen == 0) return;
    fputs("loop_\n_chem_comp_bond.atom_id_1\n_chem_comp_bond.atom_id_2\n"
          "_chem_comp_bond.value_order\n_chem_comp_bond.pdbx_aromatic_flag\n",
          out);
    for (uint32_t b = 0; b < c->n_bond; b++) {
        const uint8_t order = c->bonds[b].order;
        const bool is_aromatic = order >= FM_BOND_AROMATIC_SINGLE;
        const int plain = order - (is_aromatic ? FM_BOND_AROMATIC_SINGLE - FM_BOND_SINGLE : 0);
        fprintf(out, "%s %s %s %s\n", c->atoms[c->bonds[b].a].name, c->atoms[c->bonds[b].b].name,
                order == FM_BOND_AROMATIC ? "AROM" : orders[plain], is_aromatic ? "Y" : "N");
    }
    n_hydrogen = 0;
    for (uint32_t i = 0; i < c->n_atom; i++)
        for (uint32_t h = 0; h < c->atoms[i].n_hydrogen; h++)
            fprintf(out, "%s H%u SING N\n", c->atoms[i].name, ++n_hydrogen);
}

static fm_status put_users(fm_job_work *work, FILE *out) {
    char *text = NULL;
    size_t size;
    if (work->job->n_user == 0) return FM_OK;
    FILE *cif = open_memstream(&text, &size);
    if (!cif) return fm_fail(work->reterr, FM_ERR_NOMEM, "no memory for components");
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < work->job->n_user && !status; i++) {
        char id[FM_COMPONENT_ID];
        fm_bytes bytes = {0};
        if (work->job->format == FM_JOB_PROTENIX) {
            fm_job_molfile_id(i, id);
            put_component(cif, fm_components_find(&work->components, id));
            continue;
        }
        status = fm_job_text_read(work, &work->job->users[i], &bytes);
        if (!status) fwrite(bytes.data, 1, bytes.size, cif);
    }
    const bool is_whole = !ferror(cif);
    if (fclose(cif) || !is_whole) {
        status = fm_fail(work->reterr, FM_ERR_NOMEM, "no memory for components");
    }
    if (!status) {
        fputs(",\n \"userCCD\": ", out);
        put_text(out, text, size);
    }
    free(text);
    return status;
}

/* -- the job */

static fm_status put_job(fm_job_work *work, FILE *out) {
    const fm_complex_job *job = work->job;
    fputs("{\n \"dialect\": \"alphafold3\",\n \"version\": 4,\n \"name\": ", out);
    put_string(out, job->name);
    fputs(",\n \"modelSeeds\": [", out);
    for (uint32_t i = 0; i < job->n_seed; i++)
        fprintf(out, i ? ", %u" : "%u", job->seeds[i]);
    fputc(']', out);
    fm_status status = put_entities(work, out);
    put_bonds(out, job);
    if (!status) status = put_users(work, out);
    fputs("\n}\n", out);
    return status;
}

/* Whether the job has an id that AlphaFold 3's JSON cannot have; *ret_id is the first. */
static bool has_other_id(const fm_complex_job *job, const char **ret_id) {
    for (uint32_t e = 0; e < job->n_entity; e++) {
        for (uint32_t k = 0; k < job->entities[e].n_copy; k++) {
            *ret_id = job->entities[e].ids[k];
            if (!fm_job_is_alphafold3_id(*ret_id)) return true;
        }
    }
    return false;
}

fm_status fm_job_make_data(fm_job_work *work, fm_bytes *ret_text) {
    const char *id = "";
    char *text = NULL;
    size_t size;
    *ret_text = (fm_bytes){(const uint8_t *)"", 0};
    if (has_other_id(work->job, &id)) {
        fm_job_warn(work->arena, work->warnings, "",
                    "the job is not written as AlphaFold 3 JSON, where ids of chains have letters "
                    "only, not all of them small: found %s",
                    id);
        return FM_OK;
    }
    FILE *out = open_memstream(&text, &size);
    if (!out) return fm_fail(work->reterr, FM_ERR_NOMEM, "no memory for the job's data");
    fm_status status = put_job(work, out);
    const bool is_whole = !ferror(out);
    if ((fclose(out) || !is_whole) && !status) {
        status = fm_fail(work->reterr, FM_ERR_NOMEM, "no memory for the job's data");
    }
    uint8_t *copy = NULL;
    if (!status && size > FM_LIMIT_JOB_BYTES) {
        fm_job_warn(work->arena, work->warnings, "",
                    "the job is not written as AlphaFold 3 JSON, of which it has %zu MiB and which "
                    "may have %zu",
                    size >> 20, FM_LIMIT_JOB_BYTES >> 20);
    } else if (!status) {
        copy = fm_arena_alloc(work->arena, size);
        if (!copy) status = fm_arena_full(work->arena, work->reterr);
    }
    if (copy) {
        memcpy(copy, text, size);
        *ret_text = (fm_bytes){copy, size};
    }
    free(text);
    return status;
}
