/* array_writer.h: writes named arrays to a file, in one of two formats: NumPy's .npz or
 * .safetensors. */
#ifndef FM_CLI_ARRAY_WRITER_H
#define FM_CLI_ARRAY_WRITER_H

#include "featurizer/arrays.h"
#include "proto/base/arena.h"
#include "proto/base/status.h"

#include <stdbool.h>

typedef enum fm_array_format { FM_ARRAY_NPZ, FM_ARRAY_SAFETENSORS } fm_array_format;

/* Returns "npz" or "safetensors", which are also the endings of file names. */
const char *fm_array_format_name(fm_array_format format);
/* FM_ERR_USAGE for anything but the two names. */
FM_MUST_USE fm_status fm_array_format_parse(const char *name, fm_array_format *ret_format,
                                            fm_error *reterr);

typedef struct fm_array_writer fm_array_writer;

/* Checks what is at the path of a file of features before work is done for it. With `replace`, an
 * earlier one is replaced, and nothing else: a mistyped name may be that of weights. FM_ERR_EXISTS,
 * FM_ERR_USAGE, FM_ERR_IO. Uses memory of the arena. */
FM_MUST_USE fm_status fm_array_output_check(const char *path, bool replace, fm_arena *arena,
                                            fm_error *reterr);

/* Starts a file, which appears at `path` when it is finished. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_array_writer_create(const char *path, fm_array_format format,
                                             fm_array_writer **ret_writer, fm_error *reterr);

/* Adds one array, as fm_npz_writer_append does. The name, which must be distinct and free of quotes
 * and control characters, and the data are borrowed until the writer is finished or destroyed.
 * FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_array_writer_append(fm_array_writer *writer, const char *name,
                                             const char *dtype, size_t rank, const uint64_t *shape,
                                             const void *data, fm_error *reterr);

/* Completes the file and moves it to its path. The writer is destroyed, also on failure. */
FM_MUST_USE fm_status fm_array_writer_finish(fm_array_writer *writer, fm_error *reterr);

/* Discards an unfinished file; NULL is allowed. */
void fm_array_writer_destroy(fm_array_writer *writer);

/* Adds arrays[0..n-1]. */
FM_MUST_USE fm_status fm_array_writer_append_all(fm_array_writer *writer, const fm_array *arrays,
                                                 size_t n, fm_error *reterr);

#endif
