/* tensor.c: see tensor.h. */
#include "trainer/tensor/tensor.h"

#include <assert.h>
#include <string.h>

static void set_strides(fm_tensor *tensor) {
    int64_t stride = 1;
    for (int axis = tensor->rank - 1; axis >= 0; axis--) {
        tensor->stride[axis] = stride;
        stride *= tensor->local[axis];
    }
}

void fm_tensor_init(fm_tensor *tensor, const char *name, fm_element element, int rank,
                    const int64_t *shape) {
    assert(rank >= 0 && rank <= FM_TENSOR_RANK);
    *tensor = (fm_tensor){.name = name,
                          .element = element,
                          .rank = (uint8_t)rank,
                          .shard_axis = -1,
                          .shard_count = 1,
                          .buffer = -1,
                          .gradient = FM_TENSOR_NONE};
    for (int axis = 0; axis < rank; axis++) {
        assert(shape[axis] > 0);
        tensor->shape[axis] = tensor->local[axis] = tensor->valid[axis] = shape[axis];
    }
    set_strides(tensor);
}

void fm_tensor_shard(fm_tensor *tensor, int axis, int32_t rank, int32_t count) {
    assert(tensor->shard_axis < 0 && axis < tensor->rank && rank >= 0 && rank < count);
    tensor->shard_axis = (int8_t)axis;
    tensor->shard_rank = rank;
    tensor->shard_count = count;
    tensor->local[axis] = (tensor->shape[axis] + count - 1) / count;
    set_strides(tensor);
}

fm_tensor fm_tensor_like(const fm_tensor *tensor, const char *name) {
    fm_tensor like;
    fm_tensor_init(&like, name, tensor->element, tensor->rank, tensor->shape);
    if (tensor->shard_axis >= 0) {
        fm_tensor_shard(&like, tensor->shard_axis, tensor->shard_rank, tensor->shard_count);
    }
    memcpy(like.valid, tensor->valid, sizeof like.valid);
    return like;
}

fm_tensor fm_tensor_of_width(const fm_tensor *tensor, const char *name, int64_t width) {
    assert(tensor->rank > 0 && tensor->shard_axis != tensor->rank - 1);
    int64_t shape[FM_TENSOR_RANK];
    memcpy(shape, tensor->shape, sizeof shape);
    shape[tensor->rank - 1] = width;
    fm_tensor other;
    fm_tensor_init(&other, name, tensor->element, tensor->rank, shape);
    if (tensor->shard_axis >= 0) {
        fm_tensor_shard(&other, tensor->shard_axis, tensor->shard_rank, tensor->shard_count);
    }
    for (int axis = 0; axis + 1 < tensor->rank; axis++)
        other.valid[axis] = tensor->valid[axis];
    return other;
}

fm_tensor fm_tensor_rows_of(fm_element element, int64_t n, int64_t c, fm_part part) {
    fm_tensor pair;
    fm_tensor_init(&pair, "pair", element, 3, (int64_t[]){n, n, c});
    assert(part.count >= 1 && n % part.count == 0);
    if (part.count > 1) fm_tensor_shard(&pair, 0, part.rank, part.count);
    return pair;
}

int64_t fm_tensor_first(const fm_tensor *tensor, int axis) {
    return axis == tensor->shard_axis ? tensor->shard_rank * tensor->local[axis] : 0;
}

int64_t fm_tensor_local_count(const fm_tensor *tensor) {
    int64_t count = 1;
    for (int axis = 0; axis < tensor->rank; axis++)
        count *= tensor->local[axis];
    return count;
}

int64_t fm_tensor_local_bytes(const fm_tensor *tensor) {
    return fm_tensor_local_count(tensor) * (int64_t)fm_element_bytes(tensor->element);
}
