/* job_files.h: what the commands that prepare jobs share: the files that a description names,
 * and the file of a prepared job. */
#ifndef FM_CLI_JOB_FILES_H
#define FM_CLI_JOB_FILES_H

#include "featurizer/job/job.h"

/* Where the files of a description are: in its folder. */
typedef struct fm_job_folder {
    const char *path;  /* of the description */
    bool tries_folder; /* as Protenix: also relative to the working folder */
} fm_job_folder;

fm_job_folder fm_cli_job_folder(const char *path, const fm_complex_job *job);
/* Reads such a file, for fm_job_files, with an fm_job_folder as its context. */
FM_MUST_USE fm_status fm_cli_job_read_file(void *context, const char *file, fm_arena *arena,
                                           fm_bytes *ret_bytes, fm_error *reterr);

/* Finds the format of --format; NULL: any. FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_cli_job_format(const char *name, fm_job_format *ret_format,
                                        fm_error *reterr);
/* AlphaFold 3's rows and templates. */
fm_job_options fm_cli_job_options(bool is_single_sequence);
void fm_cli_job_print_warnings(const char *program, const char *path,
                               const fm_job_warnings *warnings);
/* Writes a prepared job as .npz, whole or not at all. FM_ERR_IO. */
FM_MUST_USE fm_status fm_cli_job_write(const char *path, const fm_prepared_job *prepared,
                                       fm_error *reterr);

#endif
