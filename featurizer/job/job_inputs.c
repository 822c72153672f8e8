/* job_inputs.c: the alignments and templates of a job's entities; see prepare.h. */
#include "featurizer/job/prepare.h"
#include "featurizer/parse/mmcif.h"
#include "featurizer/structure.h"
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

/* Rows of a text in the description have its place, not that of a file. */
static fm_status rows_failed(const fm_job_work *work, const fm_job_entity *entity,
                             fm_status status) {
    const fm_job_text *const texts[] = {&entity->paired, &entity->unpaired};
    static const char *const names[] = {"pairedMsa", "unpairedMsa"};
    for (size_t i = 0; i < 2 && work->reterr; i++)
        if (!texts[i]->file && strcmp(work->reterr->source, names[i]) == 0) {
            return fm_job_text_failed(work, texts[i], status);
        }
    return status;
}

/* Rows that may be paired are those of one text, duplicates included; all rows are both texts' in
 * this order. */
static fm_status read_rows(fm_job_work *work, const fm_job_entity *entity, fm_polymer polymer,
                           fm_complex_entity_inputs *inputs) {
    fm_msa_input texts[2];
    size_t n_paired = 0, n;
    fm_sequence_rows_options options = {.compat_protenix = work->options->compat_protenix,
                                        .has_no_limit = true};
    fm_bytes sequence = {(const uint8_t *)entity->sequence, entity->n_residue};
    fm_sequence_rows *rows = fm_arena_calloc(work->arena, 2, sizeof *rows);
    if (!rows) return fm_arena_full(work->arena, work->reterr);
    fm_status status = add_input(work, &entity->paired, "pairedMsa", texts, &n_paired);
    n = n_paired;
    if (!status) status = add_input(work, &entity->unpaired, "unpairedMsa", texts, &n);
    if (status || n == 0) return status;
    status = fm_sequence_rows_read(texts, n, sequence, polymer, &options, work->arena, &rows[0],
                                   work->reterr);
    options.keeps_duplicates = true;
    if (!status) {
        status = fm_sequence_rows_read(texts, n_paired, sequence, polymer, &options, work->arena,
                                       &rows[1], work->reterr);
    }
    if (status) return rows_failed(work, entity, status);
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

static fm_status read_structure(fm_job_work *work, const fm_job_text *text,
                                fm_part_sequence *ret_sequence, fm_part_structure *ret_structure) {
    static const fm_mmcif_options options = {0};
    fm_mmcif mmcif;
    fm_bytes bytes = {0};
    fm_status status = fm_job_text_read(work, text, &bytes);
    if (status) return status;
    status = fm_mmcif_parse(bytes, &options, work->arena, &mmcif, work->reterr);
    if (!status && mmcif.n_chain != 1) {
        return fm_job_fail(work, &text->place, FM_ERR_DATA,
                           "found %u protein chains in the template, expected one", mmcif.n_chain);
    }
    if (!status) {
        status = fm_structure_from_mmcif(&mmcif, &options, mmcif.chains[0].author_id, ret_sequence,
                                         ret_structure, work->reterr);
    }
    return status ? fm_job_text_failed(work, text, status) : FM_OK;
}

static fm_status map_template(fm_job_work *work, const fm_job_entity *entity,
                              const fm_job_template *template, fm_mapped_hit *hit) {
    const size_t row = FM_N_ATOM37;
    size_t n = entity->n_residue;
    fm_part_sequence sequence = {0};
    fm_part_structure structure = {0};
    fm_status status = read_structure(work, &template->structure, &sequence, &structure);
    if (status) return status;
    uint8_t *letters = fm_arena_alloc(work->arena, n), *mask = fm_arena_calloc(work->arena, n, row);
    float *positions = fm_arena_calloc(work->arena, n, row * 3 * sizeof *positions);
    if (!letters || !mask || !positions) return fm_arena_full(work->arena, work->reterr);
    memset(letters, '-', n);
    for (uint32_t i = 0; i < template->n_index; i++) {
        uint32_t to = template->query[i], from = template->template[i];
        if (from >= sequence.n_res) {
            return fm_job_fail(work, &template->structure.place, FM_ERR_DATA,
                               "found the index %u among its templateIndices, expected less than "
                               "the %u residues of the template",
                               from, sequence.n_res);
        }
        letters[to] = (uint8_t)sequence.sequence[from];
        memcpy(mask + to * row, structure.all_atom_mask + from * row, row);
        memcpy(positions + to * row * 3, structure.all_atom_positions + from * row * 3,
               row * 3 * sizeof *positions);
    }
    *hit = (fm_mapped_hit){letters, positions, mask};
    return FM_OK;
}

static fm_status read_templates(fm_job_work *work, const fm_job_entity *entity,
                                fm_mapped_hits *ret_hits) {
    uint32_t n = entity->n_template;
    if (n > work->options->n_template) n = work->options->n_template;
    if (entity->n_residue < FM_SHORTEST_SEARCHED) n = 0;
    fm_mapped_hit *hits = fm_arena_calloc(work->arena, n, sizeof *hits);
    if (!hits) return fm_arena_full(work->arena, work->reterr);
    for (uint32_t i = 0; i < n; i++) {
        fm_status status = map_template(work, entity, &entity->templates[i], &hits[i]);
        if (status) return status;
    }
    *ret_hits = (fm_mapped_hits){n, hits};
    return FM_OK;
}

fm_status fm_job_read_inputs(fm_job_work *work, fm_complex_entity_inputs **ret_inputs) {
    const fm_complex_job *job = work->job;
    fm_complex_entity_inputs *inputs = fm_arena_calloc(work->arena, job->n_entity, sizeof *inputs);
    if (!inputs) return fm_arena_full(work->arena, work->reterr);
    for (uint32_t e = 0; e < job->n_entity; e++) {
        const fm_job_entity *entity = &job->entities[e];
        fm_polymer polymer =
            entity->molecule == FM_MOLECULE_RNA ? FM_POLYMER_RNA : FM_POLYMER_PEPTIDE_L;
        if (entity->molecule != FM_MOLECULE_PROTEIN && entity->molecule != FM_MOLECULE_RNA) {
            continue;
        }
        fm_status status = check_alignment(work, entity);
        if (!status) status = read_rows(work, entity, polymer, &inputs[e]);
        if (!status) status = read_templates(work, entity, &inputs[e].templates);
        if (status) return status;
    }
    *ret_inputs = inputs;
    return FM_OK;
}
