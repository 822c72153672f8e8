/* tensor.h: describes a tensor before any memory for it exists.
 *
 * The description holds the type, the shape, the split over ranks, the number of its buffer and how
 * often it is overwritten. It has no pointer. The plan (plan.h) gives every buffer its place in one
 * device arena; a pointer exists only while a node runs (autograd/tape.h).
 *
 * Shapes are in elements, in C order: the last axis is the fastest. For an axis that is split over
 * D ranks, `shape` has the global extent and `local` has this rank's extent, ceil(shape / D), so
 * the last rank may hold padding. `valid` is the extent that holds data; the rest is padding, which
 * masks switch off.
 *
 * Element types are those of the backend (f64 f32 bf16 i32 u8 ...). bf16 is for storage only:
 * arithmetic on it is f32. f64 is for gradient checks. Tensors are rows of a tape's table; nothing
 * here allocates. */
#ifndef FM_TRAINER_TENSOR_H
#define FM_TRAINER_TENSOR_H

#include "trainer/backend/kernels.h"

/* Where a buffer is stored.
 *
 *     STATE      from the first step to the last: the batch, recycled tensors, losses
 *     SAVED      written by a forward, read by a backward: low end of the step arena
 *     TRANSIENT  within a pass: outputs, gradients of activations, workspace: high end */
typedef enum fm_tensor_pool {
    FM_POOL_STATE,
    FM_POOL_SAVED,
    FM_POOL_TRANSIENT,
    FM_N_POOL
} fm_tensor_pool;

enum { FM_TENSOR_RANK = 5, FM_TENSOR_NONE = -1 };

/* Position of a tensor in its tape's table, FM_TENSOR_NONE = absent. */
typedef int32_t fm_tensor_ref;

/* Which part of a split axis: part `rank` of `count` equal parts; {0, 1} = the whole axis. */
typedef struct fm_part {
    int32_t rank, count;
} fm_part;

typedef struct fm_tensor {
    const char *name; /* for messages; must outlive the tape */
    fm_element element;
    uint8_t rank;
    int64_t shape[FM_TENSOR_RANK];  /* global extents */
    int64_t local[FM_TENSOR_RANK];  /* extents on this rank */
    int64_t stride[FM_TENSOR_RANK]; /* of the local part, in elements */
    int64_t valid[FM_TENSOR_RANK];  /* global extents without padding, <= shape */
    int8_t shard_axis;              /* -1 = whole on every rank */
    int32_t shard_rank, shard_count;
    int32_t buffer;      /* in the tape's table of buffers */
    int64_t offset;      /* bytes from the buffer's start */
    fm_tensor_pool pool; /* of the buffer */
    int32_t version;     /* +1 by every in-place update recorded on the tape */
    bool needs_gradient;
    bool wants_gradient;    /* the caller reads the gradient after backward */
    fm_tensor_ref gradient; /* FM_TENSOR_NONE until a backward writes one */
} fm_tensor;

/* Fills shape, local, stride and valid for an unsplit tensor of the given extents. */
void fm_tensor_init(fm_tensor *tensor, const char *name, fm_element element, int rank,
                    const int64_t *shape);

/* Returns a description with the same element type, shape, split and valid extents; everything else
 * is new. */
fm_tensor fm_tensor_like(const fm_tensor *tensor, const char *name);

/* The same with last axis `width`. The last axis must not be the split one. */
fm_tensor fm_tensor_of_width(const fm_tensor *tensor, const char *name, int64_t width);

/* Returns a pair array [n, n, c] of which this rank holds the rows of `part`. n is a multiple of
 * part.count. */
fm_tensor fm_tensor_rows_of(fm_element element, int64_t n, int64_t c, fm_part part);

/* Splits `axis` over `count` ranks, for rank `rank`. At most one axis can be split. */
void fm_tensor_shard(fm_tensor *tensor, int axis, int32_t rank, int32_t count);

/* Global index of the local part's first element along an axis; 0 for an axis that is not split. */
int64_t fm_tensor_first(const fm_tensor *tensor, int axis);

/* Elements and bytes of the local part. */
int64_t fm_tensor_local_count(const fm_tensor *tensor);
int64_t fm_tensor_local_bytes(const fm_tensor *tensor);

#endif
