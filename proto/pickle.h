/* pickle.h: reads the tables of tensors that PyTorch saves as Python pickles, without running
 * anything.
 *
 * A pickle is a program for a machine with a stack. This reader knows the few instructions that
 * dictionaries of tensors are made of, and seven kinds of names: an ordered dictionary, two
 * functions that make tensors, and the types of their storages. They make entries of a table here.
 * Any other instruction or name is refused with its place. Numbers, texts and lists are read and
 * passed over. Sources: Python's pickletools, and what torch.save writes. */
#ifndef FM_PROTO_PICKLE_H
#define FM_PROTO_PICKLE_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

enum {
    FM_PICKLE_RANK = 8,
    FM_PICKLE_NAME_BYTES = 255, /* most of a tensor's name and of a storage's key */
    FM_PICKLE_DEPTH = 16,       /* most dictionaries in each other */
    FM_PICKLE_TENSORS = 1 << 18,
};
/* Most bytes of a pickle. 4,200 tensors take 1 MiB; an optimiser's state three times as much. */
#define FM_PICKLE_BYTES ((size_t)64 << 20)

/* A tensor: a view of a storage. Texts are terminated and last as long as the arena. */
typedef struct fm_pickled_tensor {
    const char *name;    /* the keys of the dictionaries that lead to it, joined by '.' */
    const char *storage; /* the key of its storage: the member data/KEY of the archive */
    const char *dtype;   /* "F32", "F64", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL" */
    uint32_t item_bytes;
    uint64_t storage_count, offset; /* elements of the storage, and before the tensor */
    uint64_t count;                 /* elements of the tensor */
    int rank;
    uint64_t shape[FM_PICKLE_RANK];
    bool is_contiguous; /* in C order without gaps; then it is inside of its storage */
} fm_pickled_tensor;

/* Reads a whole pickle. Tensors that no dictionary leads to are left out. FM_ERR_FORMAT and
 * FM_ERR_UNSUPPORTED with the offset of the instruction, FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_pickle_read(fm_bytes pickle, fm_arena *arena,
                                     const fm_pickled_tensor **ret_tensor, size_t *ret_n,
                                     fm_error *reterr);

#endif
