/* batch.h: one crop-ready sample in memory, and its bytes: what the wire carries.
 *
 * A sample is a header and a list of tensors (proto/schema.h). Sizes are true sizes: nothing is
 * padded. Bytes:
 *
 *     header   fixed part, chain name
 *     table    one descriptor a tensor: id, cycle, dtype, rank, shape, offset, bytes, xxh3
 *     data     64-byte aligned, in table order
 *
 * docs/formats/wire.md has the byte tables. Encoding is canonical (tensors ordered by cycle, shared
 * first, then id), so "the same sample" can be checked by its bytes. */
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
    /* Which sample this is: docs/sampling.md. */
    uint64_t seed;
    uint64_t index;   /* i = step * global_batch + slot, counted over the whole run */
    uint64_t step;    /* i / global_batch */
    uint32_t slot;    /* i % global_batch */
    uint32_t epoch;   /* i / epoch_samples: a label */
    uint32_t chain;   /* position of the chain in the snapshot */
    uint32_t n_cycle; /* recycling cycles the tensors are for, 1 .. FM_LIMIT_N_CYCLE */
    /* What it is. */
    uint32_t n_res_chain; /* residues of the whole chain */
    uint32_t crop_start;  /* first residue of the crop */
    uint32_t n_res;       /* residues of the crop = N_res */
    uint32_t n_seq_chain; /* rows of the chain's MSA */
    float resolution;     /* Å, 0 = none */
    uint8_t is_distillation;
    uint8_t use_clamped_fape;
    char name[FM_LIMIT_NAME_BYTES + 1];
    uint32_t n_tensor;
    const fm_tensor_view *tensor; /* [n_tensor], ordered by (shared first, cycle, id) */
} fm_sample;

/* The tensor, or NULL when the sample has none such. */
const fm_tensor_view *fm_sample_find(const fm_sample *sample, fm_tensor_id id, uint32_t cycle);

/* Bytes that fm_sample_encode will write. */
size_t fm_sample_encoded_bytes(const fm_sample *sample);

/* The largest encoded sample of at most these sizes, with every tensor of the schema in its widest
 * dtype: what memory is reserved for. */
size_t fm_sample_max_bytes(uint32_t n_res, uint32_t n_clust, uint32_t n_extra, uint32_t n_templ,
                           uint32_t n_cycle);

/* Writes exactly fm_sample_encoded_bytes(sample) bytes to `out` (64-byte aligned). The sample must
 * obey the schema and be in canonical order (asserted). */
void fm_sample_encode(const fm_sample *sample, uint8_t *out);

/* Checks everything (bounds, schema, dtypes, shapes that agree with each other, value ranges are
 * NOT checked, checksums when verify_checksums) and fills *ret_sample with views that borrow
 * `bytes` (64-byte aligned) and the arena. FM_ERR_CORRUPT names the offset and what was expected.
 */
FM_MUST_USE fm_status fm_sample_decode(fm_bytes bytes, bool verify_checksums, fm_arena *arena,
                                       fm_sample *ret_sample, fm_error *reterr);

#endif
