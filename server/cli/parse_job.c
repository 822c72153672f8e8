/* parse_job.c: the kind job of foldmill parse: a description of a complex as a prepared job. */
#include "featurizer/job/job.h"
#include "proto/base/file.h"
#include "proto/limits.h"
#include "proto/npz.h"
#include "server/cli/job_files.h"
#include "server/cli/parse.h"
#include "server/cli/read_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    uint32_t i = 0;
    if (!request->job && jobs->n > 1) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "found %u jobs, expected one: foldmill parse job --job NAME prepares one of "
                       "them, and foldmill prepare all; the first is '%.60s'",
                       jobs->n, jobs->jobs[0].name);
    }
    if (request->job) {
        while (i < jobs->n && strcmp(jobs->jobs[i].name, request->job) != 0)
            i++;
    }
    if (i == jobs->n) {
        return fm_fail(reterr, FM_ERR_NOT_FOUND,
                       "found no job '%.60s' among %u, the first is '%.60s'", request->job, jobs->n,
                       jobs->jobs[0].name);
    }
    *ret_job = &jobs->jobs[i];
    if (!jobs->jobs[i].refused) return FM_OK;
    *reterr = *jobs->jobs[i].refused;
    return reterr->status;
}

static fm_status read_job(const fm_parse_request *request, fm_job_warnings *warnings,
                          const fm_complex_job **ret_job, fm_error *reterr) {
    fm_job_format format;
    fm_jobs jobs;
    fm_status status = fm_cli_job_format(request->format, &format, reterr);
    if (!status) {
        status = fm_jobs_read(request->text, request->path, format, request->arena, warnings, &jobs,
                              reterr);
    }
    return status ? status : choose_job(request, &jobs, ret_job, reterr);
}

fm_status fm_parse_kind_job(const fm_parse_request *request, fm_error *reterr) {
    fm_job_options options = fm_cli_job_options(request->is_single_sequence);
    fm_job_warnings warnings = {0};
    fm_components dictionary;
    const fm_complex_job *job = NULL;
    fm_status status = read_job(request, &warnings, &job, reterr);
    if (status) return status;
    options.compat_protenix = request->compat_protenix;
    fm_job_folder folder = fm_cli_job_folder(request->path, job);
    const fm_job_files files = {&folder, fm_cli_job_read_file};
    fm_prepared_job *prepared = fm_arena_alloc(request->arena, sizeof *prepared);
    if (!prepared) return fm_arena_full(request->arena, reterr);
    status = fm_cli_read_components(request->components, request->arena, &dictionary, reterr);
    if (!status && request->draws) status = take_draws(request, &options, reterr);
    if (!status) {
        status = fm_job_prepare(job, &dictionary, &files, &options, request->arena, &warnings,
                                prepared, reterr);
    }
    fm_cli_job_print_warnings("foldmill parse", request->path, &warnings);
    if (status) return status;
    if (request->out) return fm_cli_job_write(request->out, prepared, reterr);
    if (request->json) {
        write_json(request, job, &prepared->assembly);
    } else {
        print_job(request, job, &prepared->assembly);
    }
    return FM_OK;
}
