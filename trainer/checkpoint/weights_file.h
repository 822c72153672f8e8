/* weights_file.h: reads and writes files of named weights through one interface, in NumPy's .npz
 * (proto/npz.h) or safetensors (safetensors.h). It also reads what PyTorch saved (torch_file.h),
 * without running anything of it; there a name is the keys of all dictionaries, joined by '.'.
 *
 * A file's kind is detected by its first bytes, not by its name. Bare pickles of old versions of
 * PyTorch are refused with a message that says how to convert them. Arrays of f64, f32, f16 and
 * bf16 are read as f32 (npz has no bf16). Files are written as f32. */
#ifndef FM_TRAINER_WEIGHTS_FILE_H
#define FM_TRAINER_WEIGHTS_FILE_H

#include "proto/base/arena.h"
#include "proto/base/status.h"

#include <stdbool.h>

enum { FM_WEIGHTS_RANK = 8 };
/* Limit for an .npz that is read: five times the full model. The file is held in memory, and its
 * unpacked content takes at most twice as much. */
#define FM_WEIGHTS_NPZ_BYTES ((size_t)2 << 30)

typedef enum fm_weights_format { FM_WEIGHTS_NPZ = 1, FM_WEIGHTS_SAFETENSORS } fm_weights_format;

typedef struct fm_weights_array {
    const char *name;
    const char *dtype; /* as the file spells it: "<f4", "BF16" */
    bool is_float;     /* one of the four above; others are not readable */
    int rank;
    uint64_t shape[FM_WEIGHTS_RANK];
    uint64_t count;   /* elements */
    const void *from; /* private to the file */
} fm_weights_array;

typedef struct fm_weights_file fm_weights_file;

/* Opens a file and checks it; reads names and shapes, not values. FM_ERR_IO, FM_ERR_NOT_FOUND,
 * FM_ERR_FORMAT, FM_ERR_CORRUPT, FM_ERR_LIMIT, FM_ERR_UNSUPPORTED; errors carry the path. */
FM_MUST_USE fm_status fm_weights_file_open(const char *path, fm_weights_file **ret_file,
                                           fm_error *reterr);
/* The same for a file that a user named: the message adds what was expected, unless it says what to
 * do about a file of that kind. */
FM_MUST_USE fm_status fm_weights_file_open_named(const char *path, fm_weights_file **ret_file,
                                                 fm_error *reterr);
void fm_weights_file_close(fm_weights_file *file);

size_t fm_weights_file_count(const fm_weights_file *file);
/* The array at `index`, in the order of names (strcmp); valid while the file is open. */
const fm_weights_array *fm_weights_file_at(const fm_weights_file *file, size_t index);
/* The array of that name; NULL if there is none. */
const fm_weights_array *fm_weights_file_find(const fm_weights_file *file, const char *name);

/* The text that fm_weights_file_write was given with the arrays, or the settings of a checkpoint;
 * NULL for other files. */
const char *fm_weights_file_settings(const fm_weights_file *file);

/* Checks the content of safetensors that fm_weights_file_write made by the hash that is in them:
 * FM_ERR_CORRUPT. Others pass: an .npz was checked when it was opened, arrays of PyTorch are
 * checked when they are read, and safetensors of other programs have no hash. FM_ERR_IO,
 * FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_weights_file_check(const fm_weights_file *file, fm_error *reterr);

/* Reads array->count values as f32; array->is_float must be true. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_weights_file_read(const fm_weights_file *file,
                                           const fm_weights_array *array, float *out,
                                           fm_error *reterr);

/* An array to write: f32 values in C order, borrowed during the call. */
typedef struct fm_weights_out {
    const char *name;
    int rank;
    uint64_t shape[FM_WEIGHTS_RANK];
    const float *data;
} fm_weights_out;

/* Writes the file whole or not at all. `settings` is a text that safetensors keep beside the
 * arrays, and .npz cannot; NULL = none. The same arrays and text give the same bytes. Names have at
 * most 255 bytes and no control characters, quotes or backslashes. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_weights_file_write(const char *path, fm_weights_format format,
                                            const fm_weights_out *array, size_t n_array,
                                            const char *settings, fm_error *reterr);

#endif
