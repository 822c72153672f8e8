/* job_files.c: see job_files.h. */
#include "server/cli/job_files.h"

#include "proto/base/file.h"
#include "proto/limits.h"
#include "proto/npz.h"

#include <stdio.h>
#include <string.h>

enum { SAMPLE_ROWS = 16384, SAMPLE_TEMPLATES = 4 }; /* AlphaFold 3's */

fm_job_folder fm_cli_job_folder(const char *path, const fm_complex_job *job) {
    return (fm_job_folder){path, job->format == FM_JOB_PROTENIX};
}

fm_status fm_cli_job_read_file(void *context, const char *file, fm_arena *arena,
                               fm_bytes *ret_bytes, fm_error *reterr) {
    const fm_job_folder *from = context;
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

fm_status fm_cli_job_format(const char *name, fm_job_format *ret_format, fm_error *reterr) {
    *ret_format = name ? fm_job_format_of_name(name) : FM_JOB_ANY;
    if (*ret_format != FM_N_JOB_FORMAT) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "--format: found '%s', expected alphafold3, server, protenix, boltz or fasta",
                   name);
}

fm_job_options fm_cli_job_options(bool is_single_sequence) {
    return (fm_job_options){.is_single_sequence = is_single_sequence,
                            .max_row = SAMPLE_ROWS,
                            .n_template = SAMPLE_TEMPLATES};
}

void fm_cli_job_print_warnings(const char *program, const char *path,
                               const fm_job_warnings *warnings) {
    for (uint32_t i = 0; i < warnings->n; i++)
        fprintf(stderr, "%s: warning: %s: %s\n", program, path, warnings->texts[i]);
    if (warnings->n_dropped) {
        fprintf(stderr, "%s: warning: %s: %u more\n", program, path, warnings->n_dropped);
    }
}

fm_status fm_cli_job_write(const char *path, const fm_prepared_job *prepared, fm_error *reterr) {
    fm_npz_writer *writer;
    fm_status status = fm_npz_writer_create(path, &writer, reterr);
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
