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

/* small.cu: a product of few rows in f32, if it takes it, with the sums of a weight gradient.
 * Epilogues NONE, BIAS and BIAS_RELU. No workspace. */
bool small_takes(const fm_gemm *g);
void small_gemm(fm_stream *stream, const fm_gemm *g);

/* linear.cu, bf16: RELU_GRAD over tiles of LINE_ROWS x LINE_COLUMNS of C. The workspace holds the
 * partial sums; it is needed when the product has a sum. */
enum { LINE_ROWS = 128, LINE_COLUMNS = 128 };
size_t linear_workspace(const fm_gemm *g);
void linear(fm_stream *stream, const fm_gemm *g, void *workspace);

/* cluster_linear.cu, bf16: BIAS over many rows, of 256 channels to 1,024 outputs. It takes rows
 * without gaps. Since a layer with a bias has parameters for b, the kernel before may still run
 * when they are read. No workspace. */
bool cluster_linear_takes(const fm_gemm *g);
void cluster_linear(fm_stream *stream, const fm_gemm *g);

/* weights.cu, bf16: the gradients of a linear layer's weight and bias over many rows. Whether it
 * takes a product of this shape; the workspace is always needed. */
bool weights_takes(const fm_gemm *g);
size_t weights_workspace(const fm_gemm *g);
void weights(fm_stream *stream, const fm_gemm *g, void *workspace);
/* The same for two products over as many rows, of which the first may have sums, in one launch. */
bool weights_pair_takes(const fm_gemm *first, const fm_gemm *second);
size_t weights_pair_workspace(const fm_gemm *first, const fm_gemm *second);
void weights_pair(fm_stream *stream, const fm_gemm *first, const fm_gemm *second, void *workspace);

/* skinny.cu, bf16: products to and from SKINNY numbers per row; the weight gradient of SKINNY or
 * twice as many, which needs its workspace. */
enum { SKINNY = 4 };
size_t skinny_weights_workspace(const fm_gemm *g);
void skinny_weights(fm_stream *stream, const fm_gemm *g, void *workspace);
void skinny_heads(fm_stream *stream, const fm_gemm *g);
void skinny_spread(fm_stream *stream, const fm_gemm *g);

/* linear_update.cu and transition.cu, bf16: the entries of these names in one kernel, for the
 * shapes that they take; a transition keeps no hidden layer. No workspace. */
bool linear_update_takes(const fm_linear_update *a);
void linear_update_wgmma(fm_stream *stream, const fm_linear_update *a);
bool transition_takes(const fm_transition *a);
void transition_wgmma(fm_stream *stream, const fm_transition *a);

/* row_norms.cu, bf16: what both entries make without x, for the same shapes. */
void row_norms(fm_stream *stream, const fm_update_norm *a, void *y, void *n,
               const fm_later_norm &later);

/* transition_grad.cu, bf16: the same for the entry of this name, for rows of 64 and 128 channels
 * whose hidden layer is not kept, if dx is written and both weights have gradients.
 * transition_weights.cu makes the weight gradients, dw1 and dw2, and those of the biases that have
 * one. It reads the whole dy from g->dy. */
size_t transition_grad_wgmma_workspace(const fm_transition *a, const fm_transition_grad *g);
void transition_grad_wgmma(fm_stream *stream, const fm_transition *a, const fm_transition_grad *g,
                           void *workspace);
bool transition_weights_takes(const fm_transition *a);
size_t transition_weights_workspace(const fm_transition *a, const fm_transition_grad *g);
void transition_weights(fm_stream *stream, const fm_transition *a, const fm_transition_grad *g,
                        void *workspace);

/* transition_back.cu, bf16: both for rows of 128 channels with 512 hidden ones. */
bool transition_back_takes(const fm_transition *a);
size_t transition_back_workspace(const fm_transition *a, const fm_transition_grad *g);
void transition_back(fm_stream *stream, const fm_transition *a, const fm_transition_grad *g,
                     void *workspace);

/* transition_again.cu, bf16: the same for rows of 256 channels. */
bool transition_again_takes(const fm_transition *a);
size_t transition_again_workspace(const fm_transition *a, const fm_transition_grad *g);
void transition_again(fm_stream *stream, const fm_transition *a, const fm_transition_grad *g,
                      void *workspace);

/* few_grad.cu, bf16: the entry of this name in one kernel, for the shapes that it takes. */
bool few_grad_takes(const fm_few_grad *a);
size_t few_grad_mma_workspace(const fm_few_grad *a);
void few_grad_mma(fm_stream *stream, const fm_few_grad *a, void *workspace);

/* norm_linear.cu, bf16: the entry of this name in one kernel, without a workspace. */
bool norm_linear_takes(const fm_norm_linear *a);
void norm_linear_wgmma(fm_stream *stream, const fm_norm_linear *a);

} // namespace fm_cuda

#endif
