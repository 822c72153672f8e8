/* attention_boxes.cuh: what the copy engine reads and writes in gated attention: boxes of q, k, v,
 * of tensors laid out like them, and of the bias. */
#ifndef FM_BACKEND_CUDA_ATTENTION_BOXES_CUH
#define FM_BACKEND_CUDA_ATTENTION_BOXES_CUH

#include "trainer/backend/cuda/attention/attention_mma.cuh"
#include "trainer/backend/cuda/hopper/core/bulk.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"

namespace fm_cuda {

/* attention_wgmma.cu: boxes of `box_rows` rows by c channels of q, k, v or a tensor laid out like
 * one, with `rows` rows per head. A box_place is {row, head, batch, group}. */
box_map attention_boxes(const fm_attention *, const void *base, const fm_attention_stride &,
                        int64_t rows, int c, int box_rows);

/* attention_bias.cu: boxes of 64 queries by 64 keys of the bias. They read the bias itself if its
 * keys are contiguous; otherwise a kernel first stores it by heads in `planes`, [group, head,
 * query, keys rounded up to 8], and the result is true. */
bool attention_bias_boxes(fm_stream *stream, const fm_attention *a, void *planes, box_map *ret);

} // namespace fm_cuda

#endif
