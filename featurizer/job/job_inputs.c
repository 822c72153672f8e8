/* job_inputs.c: the alignments and templates of a job's entities; see prepare.h. */
#include "featurizer/job/keyed_rows.h"
#include "featurizer/job/prepare.h"
#include "featurizer/parse/mmcif.h"
#include "featurizer/structure.h"
#include "featurizer/template_align.h"
#include "proto/chem/atom37.h"
#include "proto/limits.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* -- texts */

fm_status(fm_job_fail)(const fm_job_work *work, const fm_job_place *place, fm_status status,
                       const char *format, ...) {
    char message[FM_ERROR_MESSAGE_BYTES];
    const char *path = place->path ? place->path : "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return fm_fail_at(work->reterr, status, place->line, place->column, place->offset, "%s%s%s",
                      path, path[0] ? ": " : "", message);
}

fm_status fm_job_text_failed(const fm_job_work *work, const fm_job_text *text, fm_status status) {
    fm_error *error = work->reterr;
    if (!error) return status;
    if (text->file) return fm_error_in(error, text->file);
    char inner[FM_ERROR_MESSAGE_BYTES];
    memcpy(inner, error->message, sizeof inner);
    uint64_t line = error->line, column = error->column;
    error->source[0] = '\0';
    return fm_job_fail(work, &text->place, status, "in its line %llu, column %llu: %s",
                       (unsigned long long)line, (unsigned long long)column, inner);
}

fm_status fm_job_text_read(fm_job_work *work, const fm_job_text *text, fm_bytes *ret_bytes) {
    fm_bytes bytes = text->bytes;
    if (text->file) {
        if (!work->files) {
            return fm_job_fail(work, &text->place, FM_ERR_UNSUPPORTED,
                               "found the file '%.100s', expected the text itself", text->file);
        }
        fm_status status =
            work->files->read(work->files->context, text->file, work->arena, &bytes, work->reterr);
        if (status) return status;
        work->n_byte += bytes.size;
    }
    if (work->n_byte > FM_LIMIT_JOB_FILE_BYTES) {
        return fm_job_fail(work, &text->place, FM_ERR_LIMIT,
                           "found more than %zu MiB in the files of the job",
                           FM_LIMIT_JOB_FILE_BYTES >> 20);
    }
    *ret_bytes = bytes;
    return FM_OK;
}

/* -- alignments */

/* A text that is not there, or has no bytes, is no input. */
static fm_status add_input(fm_job_work *work, const fm_job_text *text, const char *name,
                           fm_msa_input *inputs, size_t *n) {
    fm_bytes bytes = {0};
    fm_status status = text->is_given ? fm_job_text_read(work, text, &bytes) : FM_OK;
    if (status || bytes.size == 0) return status;
    fm_msa_format format = text->file ? fm_msa_format_of_name(text->file) : FM_MSA_A3M;
    inputs[(*n)++] = (fm_msa_input){.name = text->file ? text->file : name,
                                    .content = bytes,
                                    .format = format ? format : FM_MSA_A3M};
    return FM_OK;
}

/* The alignments of an entity: the first n_paired of n inputs have rows that may be paired. */
typedef struct entity_texts {
    fm_msa_input inputs[2];
    size_t n_paired, n;
    fm_keyed_rows keyed; /* where a table of keys gives both */
} entity_texts;

static const char keyed_names[2][32] = {"rows with keys", "rows without keys"};

static bool is_keyed(const fm_job_work *work, const fm_job_entity *entity) {
    const bool is_boltz = work->job->format == FM_JOB_BOLTZ || work->job->format == FM_JOB_FASTA;
    return is_boltz && entity->unpaired.file && fm_keyed_rows_is_name(entity->unpaired.file);
}

static fm_status add_keyed(fm_job_work *work, const fm_job_text *text, entity_texts *texts) {
    fm_bytes table = {0};
    fm_status status = fm_job_text_read(work, text, &table);
    if (status) return status;
    status = fm_keyed_rows_split(table, work->arena, &texts->keyed, work->reterr);
    if (status) return fm_job_text_failed(work, text, status);
    texts->inputs[0] = (fm_msa_input){
        .name = keyed_names[0], .content = texts->keyed.paired.a3m, .format = FM_MSA_A3M};
    texts->inputs[1] = (fm_msa_input){
        .name = keyed_names[1], .content = texts->keyed.unpaired.a3m, .format = FM_MSA_A3M};
    texts->n_paired = 1;
    texts->n = 2;
    return FM_OK;
}

static fm_status list_texts(fm_job_work *work, const fm_job_entity *entity, entity_texts *texts) {
    if (is_keyed(work, entity)) return add_keyed(work, &entity->unpaired, texts);
    fm_status status =
        add_input(work, &entity->paired, "pairedMsa", texts->inputs, &texts->n_paired);
    texts->n = texts->n_paired;
    return status ? status
                  : add_input(work, &entity->unpaired, "unpairedMsa", texts->inputs, &texts->n);
}

/* Rows of a text in the description have its place, not that of a file, and rows of a table that of
 * the table. */
static fm_status rows_failed(const fm_job_work *work, const fm_job_entity *entity,
                             const entity_texts *rows, fm_status status) {
    const fm_job_text *const texts[] = {&entity->paired, &entity->unpaired};
    const fm_keyed_text *const keyed[] = {&rows->keyed.paired, &rows->keyed.unpaired};
    static const char *const names[] = {"pairedMsa", "unpairedMsa"};
    for (size_t i = 0; i < 2 && work->reterr; i++) {
        if (keyed[i]->n_row > 0 && strcmp(work->reterr->source, keyed_names[i]) == 0) {
            fm_keyed_text_relocate(keyed[i], work->reterr);
            work->reterr->source[0] = '\0';
            return fm_job_text_failed(work, &entity->unpaired, status);
        }
        if (!texts[i]->file && strcmp(work->reterr->source, names[i]) == 0) {
            return fm_job_text_failed(work, texts[i], status);
        }
    }
    return status;
}

/* Rows that may be paired are those of one text, duplicates included; all rows are both texts' in
 * this order. */
static fm_status read_rows(fm_job_work *work, const fm_job_entity *entity, fm_polymer polymer,
                           fm_job_inputs_used *used, fm_complex_entity_inputs *inputs) {
    entity_texts texts = {0};
    fm_sequence_rows_options options = {.compat_protenix = work->options->compat_protenix,
                                        .has_no_limit = true};
    fm_bytes sequence = {(const uint8_t *)entity->sequence, entity->n_residue};
    fm_sequence_rows *rows = fm_arena_calloc(work->arena, 2, sizeof *rows);
    if (!rows) return fm_arena_full(work->arena, work->reterr);
    fm_status status = list_texts(work, entity, &texts);
    if (status || texts.n == 0) return status;
    if (texts.n_paired) used->paired = texts.inputs[0];
    if (texts.n > texts.n_paired) used->unpaired = texts.inputs[texts.n - 1];
    status = fm_sequence_rows_read(texts.inputs, texts.n, sequence, polymer, &options, work->arena,
                                   &rows[0], work->reterr);
    options.keeps_duplicates = true;
    if (!status) {
        status = fm_sequence_rows_read(texts.inputs, texts.n_paired, sequence, polymer, &options,
                                       work->arena, &rows[1], work->reterr);
    }
    if (status) return rows_failed(work, entity, &texts, status);
    inputs->unpaired = &rows[0];
    inputs->paired = &rows[1];
    return FM_OK;
}

static fm_status check_alignment(const fm_job_work *work, const fm_job_entity *entity) {
    bool is_short = entity->n_residue < FM_SHORTEST_SEARCHED;
    if (is_short && (entity->unpaired.bytes.size || entity->unpaired.file)) {
        fm_job_warn(work->arena, work->warnings, entity->place.path,
                    "the alignment of a chain of %u letters is not used", entity->n_residue);
    }
    if (is_short || !entity->needs_alignment || work->options->is_single_sequence) return FM_OK;
    return fm_job_fail(work, &entity->place, FM_ERR_NOT_FOUND,
                       "chain %s has no alignment; foldmill does not search databases; make one "
                       "with MMseqs2 or jackhmmer, or say --single-sequence",
                       entity->ids[0]);
}

/* -- templates */

/* A protein chain of a template's structure. */
typedef struct template_chain {
    const char *id, *other_id; /* the author's, and the label; NULL: none */
    fm_part_sequence sequence;
    fm_part_structure structure;
} template_chain;

static fm_status read_mmcif(fm_job_work *work, fm_bytes bytes, template_chain **ret_chains,
                            uint32_t *ret_n) {
    static const fm_mmcif_options options = {0};
    fm_mmcif mmcif;
    fm_status status = fm_mmcif_parse(bytes, &options, work->arena, &mmcif, work->reterr);
    if (status) return status;
    template_chain *chains = fm_arena_calloc(work->arena, mmcif.n_chain, sizeof *chains);
    if (!chains) return fm_arena_full(work->arena, work->reterr);
    for (uint32_t k = 0; k < mmcif.n_chain && !status; k++) {
        chains[k].id = mmcif.chains[k].author_id;
        chains[k].other_id = mmcif.chains[k].label_id;
        status = fm_structure_from_mmcif(&mmcif, &options, chains[k].id, &chains[k].sequence,
                                         &chains[k].structure, work->reterr);
    }
    *ret_chains = chains;
    *ret_n = mmcif.n_chain;
    return status;
}

static fm_status read_pdb(fm_job_work *work, fm_bytes bytes, template_chain **ret_chains,
                          uint32_t *ret_n) {
    static const fm_pdb_options options = {0};
    fm_pdb *pdb = fm_arena_alloc(work->arena, sizeof *pdb); /* ids are borrowed from it */
    if (!pdb) return fm_arena_full(work->arena, work->reterr);
    fm_status status = fm_pdb_parse(bytes, &options, work->arena, pdb, work->reterr);
    if (status) return status;
    template_chain *chains = fm_arena_calloc(work->arena, pdb->n_chain, sizeof *chains);
    if (!chains) return fm_arena_full(work->arena, work->reterr);
    for (uint32_t k = 0; k < pdb->n_chain && !status; k++) {
        chains[k].id = pdb->chains[k].id;
        status = fm_structure_from_pdb(pdb, &options, chains[k].id, &chains[k].sequence,
                                       &chains[k].structure, work->reterr);
    }
    *ret_chains = chains;
    *ret_n = pdb->n_chain;
    return status;
}

/* Takes the pairs of an alignment of the entity with a chain. */
static fm_status align_chain(fm_job_work *work, const fm_job_entity *entity,
                             const template_chain *chain, fm_job_template_used *ret_used,
                             uint32_t *ret_same) {
    const fm_bytes query = {(const uint8_t *)entity->sequence, entity->n_residue};
    const fm_bytes other = {(const uint8_t *)chain->sequence.sequence, chain->sequence.n_res};
    uint32_t *from = fm_arena_alloc_array(work->arena, query.size, sizeof *from), n = 0;
    uint32_t *to = fm_arena_alloc_array(work->arena, query.size, sizeof *to);
    fm_template_alignment alignment;
    if (!from || !to) return fm_arena_full(work->arena, work->reterr);
    fm_status status = fm_template_align(query, other, work->arena, &alignment, work->reterr);
    if (status) return status;
    for (uint32_t i = 0; i < query.size; i++) {
        if (alignment.place[i] < 0) continue;
        from[n] = i;
        to[n++] = (uint32_t)alignment.place[i];
    }
    *ret_used = (fm_job_template_used){chain->sequence, chain->structure, n, from, to};
    *ret_same = alignment.n_same;
    return FM_OK;
}

/* Chooses the chain with that id, or else the one with most equal letters, and aligns it. */
static fm_status choose_chain(fm_job_work *work, const fm_job_entity *entity,
                              const fm_job_template *template, const template_chain *chains,
                              uint32_t n, fm_job_template_used *ret_used) {
    const char *id = template->chain;
    const template_chain *chosen = NULL;
    uint32_t most = 0;
    for (int by_label = 0; by_label < 2 && !chosen; by_label++) {
        for (uint32_t k = 0; k < n; k++) {
            const char *own = by_label ? chains[k].other_id : chains[k].id;
            uint32_t n_same;
            fm_job_template_used used;
            if (id && (!own || strcmp(own, id) != 0)) continue;
            fm_status status = align_chain(work, entity, &chains[k], &used, &n_same);
            if (status) return status;
            if (chosen && n_same <= most) continue;
            chosen = &chains[k];
            *ret_used = used;
            most = n_same;
        }
    }
    if (!chosen) {
        return fm_job_fail(work, &template->structure.place, FM_ERR_NOT_FOUND,
                           "found no protein chain %.20s in the template, expected one of its %u",
                           id, n);
    }
    fm_job_warn(work->arena, work->warnings, template->structure.place.path,
                "chain %s of the template has %u of the %u letters of chain %s", chosen->id, most,
                entity->n_residue, entity->ids[0]);
    return FM_OK;
}

static fm_status read_template(fm_job_work *work, const fm_job_entity *entity,
                               const fm_job_template *template, fm_job_template_used *ret_used) {
    template_chain *chains = NULL;
    fm_bytes bytes = {0};
    uint32_t n = 0;
    fm_status status = fm_job_text_read(work, &template->structure, &bytes);
    if (status) return status;
    status = template->is_pdb ? read_pdb(work, bytes, &chains, &n)
                              : read_mmcif(work, bytes, &chains, &n);
    if (status) return fm_job_text_failed(work, &template->structure, status);
    if (template->is_aligned) return choose_chain(work, entity, template, chains, n, ret_used);
    if (n != 1) {
        return fm_job_fail(work, &template->structure.place, FM_ERR_DATA,
                           "found %u protein chains in the template, expected one", n);
    }
    *ret_used = (fm_job_template_used){chains->sequence, chains->structure, template->n_index,
                                       template->query, template->template};
    return FM_OK;
}

static fm_status map_template(fm_job_work *work, const fm_job_entity *entity,
                              const fm_job_template *template, fm_job_template_used *used,
                              fm_mapped_hit *hit) {
    const size_t row = FM_N_ATOM37;
    size_t n = entity->n_residue;
    fm_status status = read_template(work, entity, template, used);
    if (status) return status;
    uint8_t *letters = fm_arena_alloc(work->arena, n), *mask = fm_arena_calloc(work->arena, n, row);
    float *positions = fm_arena_calloc(work->arena, n, row * 3 * sizeof *positions);
    if (!letters || !mask || !positions) return fm_arena_full(work->arena, work->reterr);
    memset(letters, '-', n);
    for (uint32_t i = 0; i < used->n; i++) {
        uint32_t to = used->query[i], from = used->template[i];
        if (from >= used->sequence.n_res) {
            return fm_job_fail(work, &template->structure.place, FM_ERR_DATA,
                               "found the index %u among its templateIndices, expected less than "
                               "the %u residues of the template",
                               from, used->sequence.n_res);
        }
        letters[to] = (uint8_t)used->sequence.sequence[from];
        memcpy(mask + to * row, used->structure.all_atom_mask + from * row, row);
        memcpy(positions + to * row * 3, used->structure.all_atom_positions + from * row * 3,
               row * 3 * sizeof *positions);
    }
    *hit = (fm_mapped_hit){letters, positions, mask};
    return FM_OK;
}

static fm_status read_templates(fm_job_work *work, const fm_job_entity *entity,
                                fm_job_inputs_used *used, fm_mapped_hits *ret_hits) {
    uint32_t n = entity->n_template;
    if (n > work->options->n_template) n = work->options->n_template;
    if (entity->n_residue < FM_SHORTEST_SEARCHED) n = 0;
    fm_mapped_hit *hits = fm_arena_calloc(work->arena, n, sizeof *hits);
    fm_job_template_used *templates = fm_arena_calloc(work->arena, n, sizeof *templates);
    if (!hits || !templates) return fm_arena_full(work->arena, work->reterr);
    for (uint32_t i = 0; i < n; i++) {
        fm_status status =
            map_template(work, entity, &entity->templates[i], &templates[i], &hits[i]);
        if (status) return status;
    }
    used->n_template = n;
    used->templates = templates;
    *ret_hits = (fm_mapped_hits){n, hits};
    return FM_OK;
}

fm_status fm_job_read_inputs(fm_job_work *work, fm_complex_entity_inputs **ret_inputs) {
    const fm_complex_job *job = work->job;
    fm_complex_entity_inputs *inputs = fm_arena_calloc(work->arena, job->n_entity, sizeof *inputs);
    work->used = fm_arena_calloc(work->arena, job->n_entity, sizeof *work->used);
    if (!inputs || !work->used) return fm_arena_full(work->arena, work->reterr);
    for (uint32_t e = 0; e < job->n_entity; e++) {
        const fm_job_entity *entity = &job->entities[e];
        fm_polymer polymer =
            entity->molecule == FM_MOLECULE_RNA ? FM_POLYMER_RNA : FM_POLYMER_PEPTIDE_L;
        if (entity->molecule != FM_MOLECULE_PROTEIN && entity->molecule != FM_MOLECULE_RNA) {
            continue;
        }
        fm_status status = check_alignment(work, entity);
        if (!status) status = read_rows(work, entity, polymer, &work->used[e], &inputs[e]);
        if (!status) status = read_templates(work, entity, &work->used[e], &inputs[e].templates);
        if (status) return status;
    }
    *ret_inputs = inputs;
    return FM_OK;
}
