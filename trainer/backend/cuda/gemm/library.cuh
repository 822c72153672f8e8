/* library.cuh: cuBLASLt, for the files of this folder that choose its algorithms; nothing else
 * includes it. */
#ifndef FM_BACKEND_CUDA_GEMM_LIBRARY_CUH
#define FM_BACKEND_CUDA_GEMM_LIBRARY_CUH

#include "trainer/backend/cuda/gemm/gemm.cuh"

#include <cublasLt.h>

namespace fm_cuda {

enum { GEMM_WORKSPACE = 32 << 20 };

/* A proposal that asks for so little wants counters of tiles, not space for partial sums. The most
 * that was seen is 131 bytes, for tf32. */
enum { COUNTER_BYTES = 256 };

void check_library(cublasStatus_t status, const char *call, const char *file, int line);

/* Aborts with a message unless the call succeeds. */
#define FM_CUBLAS(call) ::fm_cuda::check_library((call), #call, __FILE__, __LINE__)

/* Whether the library says that it cannot do a product, as opposed to failing at it. */
bool is_refusal(cublasStatus_t status);

/* What A and B are, and are rounded to. The numbers are those of the tables of algorithms. */
enum gemm_type { GEMM_F32 = 0, GEMM_BF16 = 1, GEMM_TF32 = 2 };

/* Everything the choice of an algorithm depends on. Keys are compared byte by byte, so that they
 * are written over zeros. align_x is the largest power of two, at most 16, that divides the
 * address; type is a gemm_type. */
struct gemm_key {
    int64_t m, n, k, batch, lda, ldb, ldc, stride_a, stride_b, stride_c;
    uint8_t trans_a, trans_b, add, epilogue, type, c_is_f32;
    uint8_t align_a, align_b, align_c, align_d, used;
};

struct gemm_layouts {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t first, second, result;
};

/* Finds cuBLASLt and its functions; to be called before all others that call it. False where it is
 * not there or too old: then `why` says so. */
bool open_library(char *why, size_t why_bytes);

cublasLtHandle_t library_handle(void);

/* What the sums are made in, and whether f32 operands are rounded to tf32. */
inline cublasComputeType_t compute_of(int type) {
    return type == GEMM_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/* The library's description of a product; T is the type of A and B, float, tf32 or bf16. */
template <typename T> void describe(const fm_gemm *g, gemm_layouts *l);

/* At most `bytes` of workspace, sums reduced in the workspace alone, the key's alignments. */
void set_preference(cublasLtMatmulPreferenceOpaque_t *p, const gemm_key *key, uint64_t bytes);

/* The library's proposals with at most `bytes` of workspace, at most `most`. Returns how many. */
int propose(const gemm_key *key, gemm_layouts *l, uint64_t bytes,
            cublasLtMatmulHeuristicResult_t *result, int most);

/* The algorithm of a product that is in no table. *ret_workspace 0: the call passes none. */
bool default_algorithm(const gemm_key *key, gemm_layouts *l, uint64_t bytes,
                       cublasLtMatmulAlgo_t *ret_algo, size_t *ret_workspace);

/* The keys of at most `most` products that the library has done in this process. Returns how
 * many. */
int known_products(gemm_key *keys, int most);

/* An algorithm of the library in numbers that its attributes take back. */
struct gemm_config {
    int32_t algorithm, tile, stages, split, reduction, swizzle, custom, inner, cluster;
};

/* tuned.cu. The algorithm that was measured to be the fastest for the key on this kind of device.
 * False when the key is not in the table, or the library does not take the row any more. */
bool tuned_algorithm(const gemm_key *key, const gemm_layouts *l, uint64_t bytes,
                     cublasLtMatmulAlgo_t *ret_algo, size_t *ret_workspace);
/* The numbers of an algorithm, and back; false when the library refuses them for the product. */
gemm_config config_of(const cublasLtMatmulAlgo_t *algo);
bool algorithm_of(const gemm_config *config, const gemm_key *key, const gemm_layouts *l,
                  cublasLtMatmulAlgo_t *ret_algo, size_t *ret_workspace);

} // namespace fm_cuda

#endif
