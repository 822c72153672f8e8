/* batch.h: one crop-ready sample in memory, and its encoding, which the wire carries.
 *
 * A sample is a header and a list of tensors (proto/schema.h). Sizes are exact; nothing is padded.
 * Its bytes are:
 *
 *     header   fixed part, chain name
 *     table    one descriptor per tensor: id, cycle, dtype, rank, shape, offset, bytes, xxh3
 *     data     the tensors in table order, each 64-byte aligned, some packed
 *
 * docs/reference/wire.md has the byte tables. The encoding is canonical (tensors ordered by cycle,
 * shared first, then by id), so two samples are equal exactly when their bytes are. */
#ifndef FM_BATCH_H
#define FM_BATCH_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"
#include "proto/limits.h"
#include "proto/schema.h"

#include <stdbool.h>

typedef struct fm_tensor_view {
    uint16_t id;   /* fm_tensor_id */
    uint8_t cycle; /* 0 .. n_cycle-1, or FM_SHARED */
    uint8_t dtype; /* fm_dtype */
    uint8_t rank;
    uint32_t shape[FM_LIMIT_RANK];
    const void *data; /* 64-byte aligned; [shape...] in C order */
    size_t bytes;     /* product of shape times element size */
} fm_tensor_view;

typedef struct fm_sample {
    /* Which sample this is; see docs/reference/sampling.md. */
    uint64_t seed;
    uint64_t index;   /* step * global_batch + slot, counted over the whole run */
    uint64_t step;    /* index / global_batch */
    uint32_t slot;    /* index % global_batch */
    uint32_t epoch;   /* index / epoch_samples; a label */
    uint32_t chain;   /* position of the chain or complex in the snapshot */
    uint32_t n_cycle; /* recycling cycles in the tensors, 1 .. FM_LIMIT_N_CYCLE */
    /* Properties of the chain and the crop. Complexes have tokens in place of residues, and
     * crop_start 0. */
    uint32_t n_res_chain; /* residues of the whole chain */
    uint32_t crop_start;  /* first residue of the crop */
    uint32_t n_res;       /* residues of the crop = N_res */
    uint32_t n_seq_chain; /* rows of the chain's MSA; of complexes, of the crop's whole MSA */
    float resolution;     /* Å; 0 when not known */
    uint8_t is_distillation;
    uint8_t use_clamped_fape;
    char name[FM_LIMIT_NAME_BYTES + 1];
    uint32_t n_tensor;
    const fm_tensor_view *tensor; /* [n_tensor], ordered by (shared first, cycle, id) */
} fm_sample;

/* Returns the tensor, or NULL when the sample has none. */
const fm_tensor_view *fm_sample_find(const fm_sample *sample, fm_tensor_id id, uint32_t cycle);

/* Returns the bytes that fm_sample_encode will write. */
size_t fm_sample_encoded_bytes(const fm_sample *sample);

/* Returns the bytes of the largest encoded sample of a chain of at most these sizes, with every
 * tensor of the schema in its widest dtype. Buffers are reserved with this size. */
size_t fm_sample_max_bytes(uint32_t n_res, uint32_t n_clust, uint32_t n_extra, uint32_t n_templ,
                           uint32_t n_cycle);
/* Returns the same for samples of complexes, with FM_LIMIT_BONDS_PER_TOKEN and
 * FM_LIMIT_ORDERS_PER_ATOM. */
size_t fm_sample_max_complex_bytes(uint32_t n_token, uint32_t n_atom, uint32_t n_row,
                                   uint32_t n_templ, uint32_t n_cycle);

/* Writes exactly fm_sample_encoded_bytes(sample) bytes to `out` (64-byte aligned). The sample must
 * obey the schema and be in canonical order (asserted). */
void fm_sample_encode(const fm_sample *sample, uint8_t *out);

/* Decodes a sample and fills *ret_sample with views that borrow `bytes` (64-byte aligned) and the
 * arena, which holds the views and the unpacked tensors. It checks bounds, schema, dtypes and that
 * shapes agree with each other, and with verify_checksums also the checksums. It does NOT check the
 * values' ranges. FM_ERR_CORRUPT's message names the offset and the expected value. FM_ERR_LIMIT:
 * the arena is full. */
FM_MUST_USE fm_status fm_sample_decode(fm_bytes bytes, bool verify_checksums, fm_arena *arena,
                                       fm_sample *ret_sample, fm_error *reterr);

/* Returns the bytes of an arena that holds what decoding takes, for every sample of a stream whose
 * largest one has encoded_bytes. */
size_t fm_sample_arena_bytes(size_t encoded_bytes);

/* Decodes only what is before the tensors and covered by the header's checksum: which sample this
 * is, and of which chain. It tells whose tensors are damaged. ret_sample->tensor is NULL. */
FM_MUST_USE fm_status fm_sample_decode_head(fm_bytes bytes, fm_sample *ret_sample,
                                            fm_error *reterr);

#endif
