/* safetensors.h: reads and writes safetensors files: named tensors in one file, as the Python
 * ecosystem uses them.
 *
 *     0        8                 8 + n
 *     | n u64  | JSON, n bytes   | data |
 *
 * The JSON object has one member per tensor,
 * {"dtype":"F32","shape":[..],"data_offsets":[begin,end]}, and "__metadata__", an object of
 * strings. Offsets are in bytes from the start of the data. Everything is little-endian and in C
 * order; the data has no gaps and the order of the table. Source: the format's own description
 * (huggingface/safetensors, README, "Format"). */
#ifndef FM_PROTO_SAFETENSORS_H
#define FM_PROTO_SAFETENSORS_H

#include "proto/base/arena.h"
#include "proto/base/status.h"

enum { FM_SAFETENSORS_RANK = 8 };
/* Limit for the JSON of a file that is read. The full model's four sets of parameters have 18,000
 * entries of 150 bytes. */
#define FM_SAFETENSORS_HEADER_BYTES ((size_t)64 << 20)

typedef struct fm_safetensor {
    const char *name;
    const char *dtype; /* "F32", "F64", "BF16", ... */
    int rank;
    int64_t shape[FM_SAFETENSORS_RANK];
    const void *data; /* data to write; NULL in a file that is read */
    uint64_t bytes;
    uint64_t offset; /* bytes from the start of the data; set by the writer */
} fm_safetensor;

/* A metadata entry: two plain texts. */
typedef struct fm_safetensors_note {
    const char *key, *value;
} fm_safetensors_note;

/* Writes the file whole or not at all: into a temporary file beside it, which is synced and
 * renamed. Sets tensor[].offset. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_safetensors_write(const char *path, fm_safetensor *tensor, size_t n_tensor,
                                           const fm_safetensors_note *note, size_t n_note,
                                           fm_error *reterr);

typedef struct fm_safetensors fm_safetensors;

/* Opens a file and reads its header. Every entry's dtype, shape and range are checked against each
 * other and against the file's size. FM_ERR_CORRUPT, FM_ERR_LIMIT, FM_ERR_IO, FM_ERR_NOT_FOUND;
 * errors carry the path. */
FM_MUST_USE fm_status fm_safetensors_open(const char *path, fm_safetensors **ret_file,
                                          fm_error *reterr);
void fm_safetensors_close(fm_safetensors *file);

/* Value of a metadata entry, NULL if there is none; valid while the file is open. */
const char *fm_safetensors_note_of(const fm_safetensors *file, const char *key);
/* The entry of that name, NULL if there is none; valid while the file is open. */
const fm_safetensor *fm_safetensors_find(const fm_safetensors *file, const char *name);
size_t fm_safetensors_count(const fm_safetensors *file);
/* The entry at `index` < fm_safetensors_count, in the order of names (strcmp). */
const fm_safetensor *fm_safetensors_at(const fm_safetensors *file, size_t index);

/* Reads the tensor's bytes into out[0..tensor->bytes-1]. FM_ERR_IO. */
FM_MUST_USE fm_status fm_safetensors_read(const fm_safetensors *file, const fm_safetensor *tensor,
                                          void *out, fm_error *reterr);

#endif
