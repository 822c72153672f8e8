/* gemm.cuh: declarations that the files of the matrix products share. gemm.cu chooses the kernel of
 * a product, row_end.cu those of the entries that are more than one product. */
#ifndef FM_BACKEND_CUDA_GEMM_CUH
#define FM_BACKEND_CUDA_GEMM_CUH

#include "trainer/backend/cuda/core/common.cuh"

namespace fm_cuda {

/* Which kernel makes a product; gemm.cu has a table of files, shapes and reasons. */
enum gemm_path {
    GEMM_LIBRARY, /* cuBLASLt, else the plain kernel; then a pass for RELU_GRAD or the sum */
    GEMM_SMALL,   /* few rows in f32 */
    GEMM_HEADS,   /* C[m, 4] = A[m, k] B[4, k]^T */
    GEMM_SPREAD,  /* C[m, n] (+)= A[m, 4] B[4, n] */
    GEMM_FEW,     /* C[4 or 8, n] (+)= A[k, 4 or 8]^T B[k, n] in f32 */
    GEMM_CLUSTER, /* C[m, 1024] = A[m, 256] B[1024, 256]^T + bias */
    GEMM_LINEAR,  /* RELU_GRAD, many rows, at most 256 channels to sum over */
    GEMM_WEIGHTS, /* C[m, n] (+)= A[k, m]^T B[k, n] in f32, many rows k, and A's sums */
    GEMM_PATHS
};

/* The path of a call; T is float, tf32 or bf16. Reads no operand, but needs a device. */
template <typename T> gemm_path gemm_path_of(const fm_gemm *g, const void *workspace);

/* Which kernels run a transition or its gradient; row_end.cu has the table. */
enum transition_path {
    TRANSITION_COMPOSED, /* other entries */
    TRANSITION_ONE,      /* forward in one kernel */
    TRANSITION_SPLIT,    /* gradient: dx in one kernel, the weights' in another */
    TRANSITION_BACK,     /* gradient: one kernel for all, 128 channels with 512 hidden ones */
    TRANSITION_AGAIN, /* gradient: the hidden layers by one kernel, then products; 256 channels */
    TRANSITION_PATHS
};

/* grad NULL: forward. Reads no operand, but needs a device. */
template <typename T>
transition_path transition_path_of(const fm_transition *a, const fm_transition_grad *grad);

/* library.cu. gemm_prepare opens cuBLASLt and makes its handle; when it cannot, it returns false
 * and writes the reason into `why`. library_gemm returns false when the library has no algorithm
 * for the product: nothing is queued then. Epilogues NONE, BIAS and BIAS_RELU. */
bool gemm_prepare(char *why, size_t why_bytes);
size_t library_workspace(const fm_gemm *g);
template <typename T>
bool library_gemm(fm_stream *stream, const fm_gemm *g, void *workspace, size_t bytes);

/* plain.cu: any product, slowly. Epilogues NONE, BIAS and BIAS_RELU. */
template <typename T> void plain_gemm(fm_stream *stream, const fm_gemm *g);

/* skinny.cu, bf16: products to and from SKINNY numbers per row; the weight gradient of SKINNY or
 * twice as many, which needs its workspace. */
enum { SKINNY = 4 };
size_t skinny_weights_workspace(const fm_gemm *g);
void skinny_weights(fm_stream *stream, const fm_gemm *g, void *workspace);
void skinny_heads(fm_stream *stream, const fm_gemm *g);
void skinny_spread(fm_stream *stream, const fm_gemm *g);

} // namespace fm_cuda

#endif
