/* cuda.h: the CUDA backend: the table of kernels.h on one NVIDIA GPU of compute capability 8.0 or
 * later.
 *
 * fm_kernels_cuda(FM_ELEMENT_F32) computes in f32 throughout (no TF32). FM_ELEMENT_BF16 stores act
 * in bf16 and keeps statistics, softmax and every sum in f32. A stream is a cudaStream_t cast to
 * fm_stream *; NULL is the default stream. Host code of this folder is compiled by nvcc, callers
 * are plain C.
 *
 * The first fm_kernels_cuda makes everything that lives longer than a call: the cuBLASLt handle,
 * kernel attributes, the table of chosen matrix product algorithms. Entries of the table allocate
 * nothing and may be captured into a graph. Every sum has one order, which follows from shapes
 * alone; there are no float atomics.
 *
 * A call that fails inside an entry ends the process with a message (check.cuh). When the
 * environment variable FM_CHECK_MASKS is set at the first fm_kernels_cuda, attention also ends the
 * process when a mask is neither 0 nor 1; this reads each mask once more per call. */
#ifndef FM_BACKEND_CUDA_CUDA_H
#define FM_BACKEND_CUDA_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "trainer/backend/kernels.h"

#include <stdio.h>

/* The table for f32 or bf16 on the current device. NULL for other types, and when
 * fm_kernels_cuda_refusal gives a reason. It is never freed. */
const fm_kernels *fm_kernels_cuda(fm_element act);

/* Why this process cannot use the current device, as a clause without a full stop: there is none,
 * or its compute capability is below 8.0, or this program has no kernels for it, or cuBLASLt does
 * not start, or a variable of core/kernel_set.cuh has an unknown value. NULL when it can. The first
 * call finds out, later calls repeat the answer. Thread-safe. */
const char *fm_kernels_cuda_refusal(void);

/* Which kernels the current device runs: "hopper" or "portable" (core/kernel_set.cuh). */
const char *fm_cuda_kernel_set(void);

/* Writes the PCI address of the current device; false where it is not known. */
bool fm_cuda_address(char *out, size_t out_bytes);

/* Measures the library's algorithms for every matrix product that this process has done so far and
 * writes the rows of gemm/tuned_*.inc. False when the device has too little memory. Takes minutes;
 * nothing else may use the device. */
bool fm_cuda_tune(FILE *out);

#ifdef __cplusplus
}
#endif

#endif
