/* gemm.cu: chooses the kernel of a matrix product and the workspace that it needs.
 *
 * Most products go to cuBLASLt, which has no algorithm for some; a plain kernel makes those. Small
 * products in f32 have a kernel of this backend. So have some shapes of the model, in bf16, that
 * take as long as their memory traffic.
 *
 *     path       files                 lines    products, and what the kernel gains
 *     -------    ------------------    -----    -------------------------------------------------
 *     LIBRARY    library.cu, .cuh,       870    all others
 *                tuned, tune, plain
 *     SMALL      small.cu                370    f32, few tiles: structure module; 0.1 %
 *     HEADS      skinny.cu               230    to the heads of pair attention; none measured
 *     SPREAD     skinny.cu                      and back; 0.1 %
 *     FEW        skinny.cu                      the gradient of their weights; 0.1 %
 *     CLUSTER    cluster_linear.cu       240    q k v g of the MSA; 0.2 %
 *     LINEAR     linear.cu               250    gradients through a ReLU; none measured
 *     WEIGHTS    weights.cu              350    gradients of weights and biases; 2.0 %
 *
 * SMALL, CLUSTER, LINEAR and WEIGHTS are in ../hopper/gemm; on other devices than its own, LIBRARY
 * takes their products.
 *
 * The gain is by how much the mean step of af2-initial with one and two cycles (170.4 ms) is longer
 * if the library takes the path's calls; one H200, 2026-11-28. docs/reference/cuda.md has the rule
 * by which a path stays.
 *
 * A workspace is queried before there are addresses, and by one query for both tables. So the
 * choice has two parts: path_of_shape, which the query uses too, and the addresses and strides. */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/core/sums.cuh"
#include "trainer/backend/cuda/gemm/gemm.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"
#include "trainer/backend/fallback.h"

#include <type_traits>

namespace fm_cuda {

static gemm_path path_of_shape(const fm_gemm *g) {
    enum { SKINNY_ROWS = 4096, LINE_MANY_ROWS = 2048, LINE_MOST_COLUMNS = 4096 };
    bool is_simple = g->batch == 1 && g->alpha == 1 && !g->trans_a && !g->c_is_acc;
    bool is_line_depth = g->k == 64 || g->k == 128 || g->k == 256;
    if (is_simple && g->epilogue == FM_EPILOGUE_NONE && !g->addend && g->m >= SKINNY_ROWS) {
        if (g->n == SKINNY && g->trans_b && g->beta == 0 && is_line_depth) return GEMM_HEADS;
        if (g->k == SKINNY && !g->trans_b && g->n % 8 == 0 && g->n <= 1024 &&
            (g->beta == 0 || g->beta == 1)) {
            return GEMM_SPREAD;
        }
    }
    if (uses_hopper() && is_simple && g->epilogue == FM_EPILOGUE_RELU_GRAD && !g->trans_b &&
        g->beta == 0 && is_line_depth && g->m >= LINE_MANY_ROWS && g->m <= INT32_MAX &&
        g->m % LINE_ROWS == 0 && g->n % LINE_COLUMNS == 0 && g->n <= LINE_MOST_COLUMNS) {
        return GEMM_LINEAR;
    }
    bool is_weight = g->batch == 1 && g->alpha == 1 && g->trans_a && !g->trans_b && g->c_is_acc;
    if (is_weight && g->epilogue == FM_EPILOGUE_NONE && !g->addend && !g->sum.data &&
        (g->m == SKINNY || g->m == 2 * SKINNY) && (g->n == 64 || g->n == 128 || g->n == 256) &&
        g->ldc == g->n && g->k >= SKINNY_ROWS && g->k < INT32_MAX / 2 &&
        (g->beta == 0 || g->beta == 1)) {
        return GEMM_FEW;
    }
    if (!uses_hopper()) return GEMM_LIBRARY;
    if (cluster_linear_takes(g)) return GEMM_CLUSTER;
    return weights_takes(g) ? GEMM_WEIGHTS : GEMM_LIBRARY;
}

/* Whether the addresses and strides allow the wide accesses of a path. */
static bool is_even(const fm_gemm *g, gemm_path path) {
    bool wide_a = is_aligned(g->a) && is_whole<bf16>(g->lda);
    bool wide_b = is_aligned(g->b) && is_whole<bf16>(g->ldb);
    bool wide_c = is_aligned(g->c) && is_whole<bf16>(g->ldc);
    switch (path) {
    case GEMM_HEADS: return wide_a && wide_b;
    case GEMM_SPREAD: return (uintptr_t)g->a % 8 == 0 && g->lda % SKINNY == 0 && wide_b && wide_c;
    case GEMM_FEW: return (uintptr_t)g->a % (2 * g->m) == 0 && g->lda % g->m == 0 && wide_b;
    case GEMM_CLUSTER:
        return wide_a && wide_b && wide_c && g->lda == g->k && g->ldb == g->k && g->ldc == g->n;
    case GEMM_LINEAR: return wide_a && wide_b && wide_c && is_aligned(g->relu);
    case GEMM_WEIGHTS: return wide_a && wide_b && is_aligned(g->c) && is_whole<float>(g->ldc);
    default: return true;
    }
}

template <typename T> gemm_path gemm_path_of(const fm_gemm *g, const void *workspace) {
    if (std::is_same_v<T, float> && uses_hopper() && small_takes(g)) return GEMM_SMALL;
    gemm_path path = path_of_shape(g);
    bool needs_space =
        path == GEMM_WEIGHTS || path == GEMM_FEW || (path == GEMM_LINEAR && g->sum.data);
    bool has_space = workspace || !needs_space;
    return sizeof(T) == 2 && has_space && is_even(g, path) ? path : GEMM_LIBRARY;
}

static size_t most_bytes(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Whether the product has the sums of A's columns beside it. */
static bool is_weight_sum(const fm_gemm *g) {
    return g->sum.data && g->epilogue != FM_EPILOGUE_RELU_GRAD;
}

/* Enough for the path of the shape and for the library, which may take its place. */
size_t gemm_workspace(const fm_gemm *g) {
    size_t bytes = library_workspace(g);
    if (g->epilogue == FM_EPILOGUE_RELU_GRAD) {
        bytes = most_bytes(bytes, sum_workspace(1, g->m, g->n));
    }
    if (is_weight_sum(g)) bytes = most_bytes(bytes, sum_workspace(1, g->k, g->m - g->sum_first));
    gemm_path path = path_of_shape(g);
    if (path == GEMM_FEW) bytes = most_bytes(bytes, skinny_weights_workspace(g));
    if (path == GEMM_LINEAR) bytes = most_bytes(bytes, linear_workspace(g));
    if (path == GEMM_WEIGHTS) bytes = most_bytes(bytes, weights_workspace(g));
    return bytes;
}

template <typename T>
static void multiply_and_finish(fm_stream *stream, const fm_gemm *g, bool is_small,
                                void *workspace) {
    typedef typename stored<T>::type E;
    fm_gemm product = *g;
    bool is_grad = g->epilogue == FM_EPILOGUE_RELU_GRAD;
    if (is_grad) product.epilogue = FM_EPILOGUE_NONE, product.sum = {};
    if (g->c_is_acc) {
        int64_t reach = (g->batch - 1) * g->stride_c + (g->m - 1) * g->ldc + g->n;
        end_sums_of(stream, g->c, (size_t)reach * sizeof(float));
    }
    if (is_small) {
        if (is_weight_sum(g)) {
            end_sums_of(stream, g->sum.data, (size_t)(g->m - g->sum_first) * sizeof(float));
        }
        small_gemm(stream, &product);
    } else if (!library_gemm<T>(stream, &product, workspace, workspace ? gemm_workspace(g) : 0)) {
        fm_backend_fall_back(FM_FALLBACK_GEMM,
                             "cuBLASLt has no algorithm for a matrix product with m %lld, n %lld, "
                             "k %lld, batch %lld: a plain kernel runs, many times slower",
                             (long long)g->m, (long long)g->n, (long long)g->k,
                             (long long)g->batch);
        plain_gemm<E>(stream, &product);
    }
    if (is_grad) sum_after_relu<E>(stream, g->m, g->n, g->ldc, g->relu, g->c, g->sum, workspace);
    if (is_weight_sum(g) && !is_small) {
        const int64_t stride[2] = {0, g->lda};
        sum<E>(stream, 1, g->k, g->m - g->sum_first, stride, (const E *)g->a + g->sum_first, g->sum,
               true, workspace);
    }
}

template <typename T> void gemm(fm_stream *stream, const fm_gemm *g, void *workspace) {
    bool is_grad = g->epilogue == FM_EPILOGUE_RELU_GRAD;
    assert(!is_weight_sum(g) || (g->batch == 1 && g->trans_a && g->c_is_acc));
    assert(!is_grad || (g->batch == 1 && g->beta == 0 && !g->c_is_acc && g->relu));
    gemm_path path = gemm_path_of<T>(g, workspace);
    switch (path) {
    case GEMM_HEADS: skinny_heads(stream, g); return;
    case GEMM_SPREAD: skinny_spread(stream, g); return;
    case GEMM_FEW: skinny_weights(stream, g, workspace); return;
    case GEMM_CLUSTER: cluster_linear(stream, g); return;
    case GEMM_LINEAR: linear(stream, g, workspace); return;
    case GEMM_WEIGHTS: weights(stream, g, workspace); return;
    default: multiply_and_finish<T>(stream, g, path == GEMM_SMALL, workspace);
    }
}

#define INSTANTIATE(T)                                                                             \
    template gemm_path gemm_path_of<T>(const fm_gemm *, const void *);                             \
    template void gemm<T>(fm_stream *, const fm_gemm *, void *);
INSTANTIATE(float)
INSTANTIATE(tf32)
INSTANTIATE(bf16)

} // namespace fm_cuda
