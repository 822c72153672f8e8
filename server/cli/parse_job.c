/* parse_job.c: the kind job of foldmill parse: a description of a complex as a prepared job. */
#include "featurizer/job/job.h"
#include "proto/base/file.h"
#include "proto/limits.h"
#include "proto/npz.h"
#include "server/cli/parse.h"
#include "server/cli/read_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE_ROWS = 16384, SAMPLE_TEMPLATES = 4 }; /* AlphaFold 3's */

/* -- files that a description names */

typedef struct job_folder {
    const char *path;  /* of the description */
    bool tries_folder; /* as Protenix: also relative to the working folder */
} job_folder;

/* Files are relative to the description's folder. */
static fm_status read_file(void *context, const char *file, fm_arena *arena, fm_bytes *ret_bytes,
                           fm_error *reterr) {
    const job_folder *from = context;
    const char *slash = strrchr(from->path, '/');
    size_t head = slash && file[0] != '/' ? (size_t)(slash - from->path) + 1 : 0;
    char *path = fm_arena_alloc(arena, head + strlen(file) + 1);
    if (!path) return fm_arena_full(arena, reterr);
    memcpy(path, from->path, head);
    memcpy(path + head, file, strlen(file) + 1);
    fm_status status = fm_file_read_text(arena, path, FM_LIMIT_JOB_FILE_BYTES, ret_bytes, reterr);
    if (status == FM_ERR_NOT_FOUND && from->tries_folder && head) {
        status = fm_file_read_text(arena, file, FM_LIMIT_JOB_FILE_BYTES, ret_bytes, reterr);
    }
    return status;
}

/* -- recorded draws */

/* Takes the recorded placements of conformers from a file of the reference's draws. */
static fm_status take_draws(const fm_parse_request *request, fm_job_options *options,
                            fm_error *reterr) {
    fm_bytes bytes = {0};
    fm_npz npz;
    fm_status status =
        fm_file_read(request->arena, request->draws, FM_LIMIT_INPUT_BYTES, &bytes, reterr);
    if (!status) status = fm_npz_parse(request->arena, bytes, &npz, reterr);
    if (status) return fm_error_in(reterr, request->draws);
    const fm_npy *translation = fm_npz_find(&npz, "in/rnd_ref_trans");
    const fm_npy *rotation = fm_npz_find(&npz, "in/rnd_ref_rot");
    bool is_good = translation && rotation && strcmp(translation->dtype, "<f8") == 0 &&
                   strcmp(rotation->dtype, "<f8") == 0 && translation->rank == 2 &&
                   translation->shape[1] == 3 && rotation->rank == 3 && rotation->shape[1] == 3 &&
                   rotation->shape[2] == 3 && rotation->shape[0] == translation->shape[0] &&
                   rotation->shape[0] <= UINT32_MAX;
    if (!is_good) {
        return fm_fail_in(reterr, FM_ERR_DATA, request->draws,
                          "found no draws, expected in/rnd_ref_trans f8 [n, 3] and "
                          "in/rnd_ref_rot f8 [n, 3, 3]");
    }
    options->n_placement = (uint32_t)rotation->shape[0];
    options->translations = (const double(*)[3])translation->data;
    options->rotations = (const double(*)[3][3])rotation->data;
    return FM_OK;
}

/* -- output */

static fm_status write_arrays(const fm_parse_request *request, const fm_prepared_job *prepared,
                              fm_error *reterr) {
    fm_npz_writer *writer;
    fm_status status = fm_npz_writer_create(request->out, &writer, reterr);
    if (status) return status;
    for (size_t i = 0; i < prepared->n_array && !status; i++) {
        const fm_array *array = &prepared->arrays[i];
        status = fm_npz_writer_append(writer, array->key, array->dtype, array->rank, array->shape,
                                      array->data, reterr);
    }
    if (!status) status = fm_complex_atoms_append(writer, &prepared->names, reterr);
    if (!status) return fm_npz_writer_finish(writer, reterr);
    fm_npz_writer_destroy(writer);
    return status;
}

static const char *molecule_name(uint8_t molecule) {
    static const char *const names[FM_N_MOLECULE] = {"protein", "RNA", "DNA", "ligand"};
    return names[molecule];
}

static void print_job(const fm_parse_request *request, const fm_complex_job *job,
                      const fm_assembly *a) {
    printf("%s: %s, job '%s', %u chains, %u residues, %u tokens, %u atoms, %u bonds, %u seed%s\n",
           request->path, fm_job_format_title((fm_job_format)job->format), job->name, a->n_chain,
           a->n_residue, a->n_token, a->n_atom, a->n_bond, job->n_seed,
           job->n_seed == 1 ? "" : "s");
    for (uint32_t e = 0; e < job->n_entity; e++) {
        const fm_job_entity *entity = &job->entities[e];
        printf("  entity %-3u %-8s %5u residues, %u template%s, chains", e + 1,
               molecule_name(entity->molecule), entity->n_residue, entity->n_template,
               entity->n_template == 1 ? "" : "s");
        for (uint32_t k = 0; k < entity->n_copy; k++)
            printf(" %s", entity->ids[k]);
        printf("\n");
    }
}

static void write_json(const fm_parse_request *request, const fm_complex_job *job,
                       const fm_assembly *a) {
    fm_json_writer json;
    fm_parse_begin_json(request, fm_job_format_title((fm_job_format)job->format), &json);
    fm_json_put_string(&json, "job", job->name);
    fm_json_put_u64(&json, "residues", a->n_residue);
    fm_json_put_u64(&json, "tokens", a->n_token);
    fm_json_put_u64(&json, "atoms", a->n_atom);
    fm_json_put_u64(&json, "bonds", a->n_bond);
    fm_json_put_u64(&json, "seeds", job->n_seed);
    fm_json_open_array(&json, "chains");
    for (uint32_t c = 0; c < a->n_chain; c++) {
        const fm_job_entity *entity = &job->entities[a->chains[c].entity];
        fm_json_open_object(&json, NULL);
        fm_json_put_string(&json, "chain", a->chains[c].id);
        fm_json_put_u64(&json, "entity", a->chains[c].entity + 1);
        fm_json_put_string(&json, "molecule", molecule_name(entity->molecule));
        fm_json_put_u64(&json, "residues", entity->n_residue);
        fm_json_close(&json);
    }
    fm_json_close(&json);
    fm_json_end(&json);
}

/* -- the job */

/* A description may have several jobs, of which --job names one. */
static fm_status choose_job(const fm_parse_request *request, const fm_jobs *jobs,
                            const fm_complex_job **ret_job, fm_error *reterr) {
    *ret_job = jobs->jobs;
    if (!request->job && jobs->n == 1) return FM_OK;
    if (!request->job) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "found %u jobs, expected one: foldmill parse job --job NAME prepares one of "
                       "them; the first is '%.60s'",
                       jobs->n, jobs->jobs[0].name);
    }
    for (uint32_t i = 0; i < jobs->n; i++) {
        if (strcmp(jobs->jobs[i].name, request->job) != 0) continue;
        *ret_job = &jobs->jobs[i];
        return FM_OK;
    }
    return fm_fail(reterr, FM_ERR_NOT_FOUND, "found no job '%.60s' among %u, the first is '%.60s'",
                   request->job, jobs->n, jobs->jobs[0].name);
}

static fm_status read_job(const fm_parse_request *request, fm_job_warnings *warnings,
                          const fm_complex_job **ret_job, fm_error *reterr) {
    fm_job_format format = FM_JOB_ANY;
    fm_jobs jobs;
    if (request->format) format = fm_job_format_of_name(request->format);
    if (format == FM_N_JOB_FORMAT) {
        return fm_fail(
            reterr, FM_ERR_USAGE,
            "--format: found '%s', expected alphafold3, server, protenix, boltz or fasta",
            request->format);
    }
    fm_status status =
        fm_jobs_read(request->text, request->path, format, request->arena, warnings, &jobs, reterr);
    return status ? status : choose_job(request, &jobs, ret_job, reterr);
}

fm_status fm_parse_kind_job(const fm_parse_request *request, fm_error *reterr) {
    fm_job_options options = {.compat_protenix = request->compat_protenix,
                              .is_single_sequence = request->is_single_sequence,
                              .max_row = SAMPLE_ROWS,
                              .n_template = SAMPLE_TEMPLATES};
    fm_job_warnings warnings = {0};
    fm_components dictionary;
    const fm_complex_job *job = NULL;
    fm_status status = read_job(request, &warnings, &job, reterr);
    if (status) return status;
    job_folder folder = {request->path, job->format == FM_JOB_PROTENIX};
    const fm_job_files files = {&folder, read_file};
    fm_prepared_job *prepared = fm_arena_alloc(request->arena, sizeof *prepared);
    if (!prepared) return fm_arena_full(request->arena, reterr);
    status = fm_cli_read_components(request->components, request->arena, &dictionary, reterr);
    if (!status && request->draws) status = take_draws(request, &options, reterr);
    if (!status) {
        status = fm_job_prepare(job, &dictionary, &files, &options, request->arena, &warnings,
                                prepared, reterr);
    }
    for (uint32_t i = 0; i < warnings.n; i++)
        fprintf(stderr, "foldmill parse: warning: %s: %s\n", request->path, warnings.texts[i]);
    if (warnings.n_dropped) {
        fprintf(stderr, "foldmill parse: warning: %s: %u more\n", request->path,
                warnings.n_dropped);
    }
    if (status) return status;
    if (request->out) return write_arrays(request, prepared, reterr);
    if (request->json) {
        write_json(request, job, &prepared->assembly);
    } else {
        print_job(request, job, &prepared->assembly);
    }
    return FM_OK;
}
