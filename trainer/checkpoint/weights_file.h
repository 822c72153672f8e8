/* weights_file.h: files of named arrays in which others keep weights: NumPy's .npz (proto/npz.h)
 * and safetensors (safetensors.h), read and written alike.
 *
 * The kind of a file that is read is told by its first bytes, not by its name. Arrays of f64, f32,
 * f16 and bf16 are read as f32 (npz has no bf16); f32 is written. */
#ifndef FM_TRAINER_WEIGHTS_FILE_H
#define FM_TRAINER_WEIGHTS_FILE_H

#include "proto/base/arena.h"
#include "proto/base/status.h"

#include <stdbool.h>

enum { FM_WEIGHTS_RANK = 8 };
/* Bytes of an .npz that is read: five times the full model's. It lies in memory whole, with what is
 * unpacked of it in twice as much. */
#define FM_WEIGHTS_NPZ_BYTES ((size_t)2 << 30)

typedef enum fm_weights_format { FM_WEIGHTS_NPZ = 1, FM_WEIGHTS_SAFETENSORS } fm_weights_format;

typedef struct fm_weights_array {
    const char *name;
    const char *dtype; /* in the file's own words: "<f4", "BF16" */
    bool is_float;     /* one of the four above; others cannot be read */
    int rank;
    uint64_t shape[FM_WEIGHTS_RANK];
    uint64_t count;   /* elements */
    const void *from; /* the file's own */
} fm_weights_array;

typedef struct fm_weights_file fm_weights_file;

/* Opens and checks a file; names and shapes are read, values not. FM_ERR_IO, FM_ERR_NOT_FOUND,
 * FM_ERR_FORMAT, FM_ERR_CORRUPT, FM_ERR_LIMIT, FM_ERR_UNSUPPORTED; errors carry the path. */
FM_MUST_USE fm_status fm_weights_file_open(const char *path, fm_weights_file **ret_file,
                                           fm_error *reterr);
void fm_weights_file_close(fm_weights_file *file);

size_t fm_weights_file_count(const fm_weights_file *file);
/* Array `index` in the order of names (strcmp); lives as long as the file is open. */
const fm_weights_array *fm_weights_file_at(const fm_weights_file *file, size_t index);
/* NULL when there is none of that name. */
const fm_weights_array *fm_weights_file_find(const fm_weights_file *file, const char *name);

/* Reads array->count values; is_float must hold. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_weights_file_read(const fm_weights_file *file,
                                           const fm_weights_array *array, float *out,
                                           fm_error *reterr);

/* An array to be written; values f32, in C order, borrowed for the call. */
typedef struct fm_weights_out {
    const char *name;
    int rank;
    uint64_t shape[FM_WEIGHTS_RANK];
    const float *data;
} fm_weights_out;

/* Writes the file whole or not at all; the same arrays give the same bytes. Names are at most 255
 * bytes, without control characters, quotes and backslashes. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_weights_file_write(const char *path, fm_weights_format format,
                                            const fm_weights_out *array, size_t n_array,
                                            fm_error *reterr);

#endif
