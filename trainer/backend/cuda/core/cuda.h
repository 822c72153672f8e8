/* cuda.h: the CUDA backend: the table of kernels.h on one NVIDIA GPU of compute capability 9.0.
 *
 * fm_kernels_cuda(FM_ELEMENT_F32) computes in f32 throughout (no TF32); FM_ELEMENT_BF16 stores act
 * in bf16 and keeps statistics, softmax and every sum in f32. A stream is a cudaStream_t cast to
 * fm_stream *; NULL is the default stream. Host code of this folder is compiled by nvcc, callers
 * are plain C.
 *
 * Everything that lives longer than a call (the cuBLASLt handle, kernel attributes, the table of
 * chosen matrix product algorithms) is made by the first fm_kernels_cuda and kept: entries of the
 * table allocate nothing and may be captured into a graph. Sums have one order that shapes decide;
 * no float atomics. */
#ifndef FM_BACKEND_CUDA_CUDA_H
#define FM_BACKEND_CUDA_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "trainer/backend/kernels.h"

/* The table for f32 or bf16 on the current device; NULL for other types and where there is no
 * device. Lives for ever. The first call is not thread-safe against itself. */
const fm_kernels *fm_kernels_cuda(fm_element act);

#ifdef __cplusplus
}
#endif

#endif
