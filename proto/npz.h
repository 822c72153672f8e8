/* npz.h: reads and writes NumPy .npz archives: a zip of .npy members, one array each.
 *
 * A .npy member is the magic "\x93NUMPY", a version, a length, a Python dictionary of descr,
 * fortran_order and shape, and then the data in C order. The dictionary is padded so that the data
 * starts at a multiple of 64 (numpy.lib.format, versions 1.0 to 3.0). The zip follows PKWARE's
 * APPNOTE 6.3: members are stored or deflated, and sizes past 2^32 are in the zip64 extra field.
 *
 * Archives written here are stored, version 1.0 and dated 1980-01-01, so the same arrays give the
 * same bytes. They use zip64 only where a size, an offset or the number of members requires it.
 * Archives read here come from outside: every size and offset is checked against the available
 * bytes before it is used, and memory is the caller's arena. */
#ifndef FM_PROTO_NPZ_H
#define FM_PROTO_NPZ_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

enum {
    FM_NPZ_RANK_MAX = 8,    /* dimensions of an array */
    FM_NPZ_DTYPE_BYTES = 16 /* "|S1234" with its terminator */
};

/* Returns the bytes of one element of a dtype, or 0 for an unknown dtype. Known are |b1 |u1 |i1 <u2
 * <i2 <f2 <u4 <i4 <f4 <u8 <i8 <f8 and |SN, strings of N bytes (1 <= N <= 1 MiB) padded with NUL. */
size_t fm_npz_item_bytes(const char *dtype);

/* -- writing */

typedef struct fm_npz_writer fm_npz_writer;

/* Starts an archive, which appears at `path` when it is finished. Returns FM_ERR_IO or
 * FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_npz_writer_create(const char *path, fm_npz_writer **ret_writer,
                                           fm_error *reterr);

/* Adds one array; `data` is in C order and borrowed during the call. For rank 0 (a scalar) shape
 * may be NULL. The caller must keep names distinct and at most FM_LIMIT_NAME_BYTES long. An unknown
 * dtype or a rank above FM_NPZ_RANK_MAX asserts. Returns FM_ERR_IO. */
FM_MUST_USE fm_status fm_npz_writer_append(fm_npz_writer *writer, const char *name,
                                           const char *dtype, size_t rank, const uint64_t *shape,
                                           const void *data, fm_error *reterr);

/* Writes the directory and moves the file to its path. The writer is destroyed, also on failure. */
FM_MUST_USE fm_status fm_npz_writer_finish(fm_npz_writer *writer, fm_error *reterr);

/* Discards an unfinished archive; NULL is allowed. */
void fm_npz_writer_destroy(fm_npz_writer *writer);

/* -- reading */

typedef struct fm_npy {
    const char *name;               /* without ".npy" */
    char dtype[FM_NPZ_DTYPE_BYTES]; /* as in the file, but always '|' for one-byte elements */
    size_t item_bytes;
    size_t rank; /* 0 for a scalar */
    uint64_t shape[FM_NPZ_RANK_MAX];
    uint64_t count;   /* elements: the product of shape, 1 for a scalar */
    const void *data; /* [count], C order whatever the file's is, aligned to 64 bytes */
} fm_npy;

typedef struct fm_npz {
    size_t n_array;
    const fm_npy *arrays; /* [n_array], in the order of the archive's directory */
} fm_npz;

/* Reads a whole archive into the arena, whose size also bounds what may be unpacked. Returns
 * FM_ERR_FORMAT (also for two arrays of one name) and FM_ERR_CORRUPT (with the offset),
 * FM_ERR_LIMIT, and FM_ERR_UNSUPPORTED for big-endian and other dtypes, encryption and other
 * compression methods. */
FM_MUST_USE fm_status fm_npz_parse(fm_arena *arena, fm_bytes archive, fm_npz *ret_npz,
                                   fm_error *reterr);

/* Reads the bytes of one .npy file, as fm_npz_parse reads each member; the name is "". Tests and a
 * fuzz target give it headers that no archive has. */
FM_MUST_USE fm_status fm_npy_parse(fm_arena *arena, fm_bytes npy, fm_npy *ret_array,
                                   fm_error *reterr);

/* Returns the array called `name`, or NULL. */
const fm_npy *fm_npz_find(const fm_npz *npz, const char *name);

#endif
