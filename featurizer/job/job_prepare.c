/* job_prepare.c: the steps by which a job becomes its arrays; see job.h. */
#include "featurizer/job/prepare.h"

#include <assert.h>
#include <string.h>

enum { N_TABLE = 10 /* arrays of job_tables.c */ };
static_assert(FM_COMPLEX_SAMPLE_ARRAYS + N_TABLE <= FM_PREPARED_ARRAYS,
              "a prepared job has room for all arrays");

/* The sample, under the names of a sample that foldmill train reads. */
static fm_status make_sample(fm_job_work *work, fm_prepared_job *prepared) {
    const fm_job_options *options = work->options;
    const fm_complex_placement placement = {options->n_placement, options->translations,
                                            options->rotations};
    const fm_complex_sample_options sample = {
        .max_row = options->max_row,
        .n_template = options->n_template,
        .compat_protenix = options->compat_protenix,
        .is_prediction = true,
        .placement = options->translations ? &placement : NULL,
        .prefix = "features/",
    };
    fm_complex_entity_inputs *inputs;
    fm_status status = fm_job_read_inputs(work, &inputs);
    if (status) return status;
    return fm_complex_sample_make(&prepared->assembly, inputs, NULL, 0, &sample, work->arena,
                                  prepared->arrays, &prepared->n_array, work->reterr);
}

fm_status fm_job_prepare(const fm_complex_job *job, const fm_components *dictionary,
                         const fm_job_files *files, const fm_job_options *options, fm_arena *arena,
                         fm_job_warnings *warnings, fm_prepared_job *ret_prepared,
                         fm_error *reterr) {
    fm_job_work work = {.job = job,
                        .dictionary = dictionary,
                        .files = files,
                        .options = options,
                        .arena = arena,
                        .warnings = warnings,
                        .reterr = reterr};
    fm_status status = fm_job_find_components(&work);
    if (status) return status;
    memset(ret_prepared, 0, sizeof *ret_prepared);
    status = fm_job_assemble(&work, &ret_prepared->assembly);
    if (!status) status = make_sample(&work, ret_prepared);
    if (!status) status = fm_job_list_names(&work, &ret_prepared->assembly, &ret_prepared->names);
    return status ? status : fm_job_list_tables(&work, ret_prepared);
}
