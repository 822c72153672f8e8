/* gemm.cu: matrix products through cuBLASLt, the only file that includes it.
 *
 * Row-major C = op(A) op(B) is column-major C^T = op(B)^T op(A)^T: B is the library's first
 * operand. Sums are f32 for both tables (TF32 off); split-K only with a reduction in the workspace,
 * never in place. The chosen algorithm is a function of shapes, strides, types and 16-byte
 * alignment alone, and is kept in a table, because asking for it costs more host time than a small
 * product takes. Shapes for which the library has nothing fall to a plain tiled kernel below.
 *
 * Its own epilogues for the gradient of a ReLU and for bias gradients are not used: on an H200,
 * DRELU makes a product of 31 us one of 223, BGRADB one of 27 one of 65. A pass over the result
 * does both (sum_after_relu). */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/core/sums.cuh"
#include "trainer/backend/cuda/gemm/gemm.cuh"

#include <cublasLt.h>
#include <pthread.h>
#include <string.h>

namespace fm_cuda {

enum { GEMM_WORKSPACE = 32 << 20, GEMM_CHOICES = 4096, GEMM_CANDIDATES = 8 };

/* What the choice of an algorithm depends on. All bytes are compared: written over zeros. */
struct gemm_key {
    int64_t m, n, k, batch, lda, ldb, ldc, stride_a, stride_b, stride_c;
    uint8_t trans_a, trans_b, add, epilogue, is_bf16, c_is_f32;
    uint8_t align_a, align_b, align_c, align_d, used;
};

struct gemm_choice {
    gemm_key key;
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    bool found; /* false: the plain kernel */
};

/* Made once by gemm_prepare. */
struct gemm_state {
    cublasLtHandle_t handle;
    pthread_mutex_t lock;
    gemm_choice *choices; /* open addressing, GEMM_CHOICES places */
    int count;
};

static gemm_state *state(void) {
    static gemm_state only = {NULL, PTHREAD_MUTEX_INITIALIZER, NULL, 0};
    return &only;
}

bool gemm_prepare(void) {
    gemm_state *s = state();
    if (s->handle) return true;
    s->choices = (gemm_choice *)calloc(GEMM_CHOICES, sizeof *s->choices);
    return s->choices && cublasLtCreate(&s->handle) == CUBLAS_STATUS_SUCCESS;
}

static size_t most_bytes(size_t a, size_t b) {
    return a > b ? a : b;
}

size_t gemm_workspace(const fm_gemm *g) {
    size_t product = g->m * g->n * g->k * g->batch >= 1 << 22 ? (size_t)GEMM_WORKSPACE : 0;
    if (g->epilogue != FM_EPILOGUE_RELU_GRAD) return product;
    return most_bytes(product, most_bytes(sum_workspace(1, g->m, g->n), linear_workspace(g)));
}

/* ---- the plain kernel: 32 x 32 tiles of C, 32 deep in shared memory, four elements a thread ----
 */

template <typename T, typename C> __global__ void __launch_bounds__(256) plain_kernel(fm_gemm g) {
    __shared__ float as[32][33], bs[32][33];
    const T *a = (const T *)g.a + blockIdx.z * g.stride_a;
    const T *b = (const T *)g.b + blockIdx.z * g.stride_b;
    C *c = (C *)g.c + blockIdx.z * g.stride_c;
    const C *addend = (const C *)(g.addend ? g.addend : g.c) + blockIdx.z * g.stride_c;
    int64_t row0 = blockIdx.x * (int64_t)32, col0 = blockIdx.y * (int64_t)32;
    int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
    float total[4] = {0, 0, 0, 0};
    for (int64_t k0 = 0; k0 < g.k; k0 += 32) {
        for (int r = ty; r < 32; r += 8) {
            int64_t row = g.trans_a ? row0 + tx : row0 + r, ka = g.trans_a ? k0 + r : k0 + tx;
            int64_t col = g.trans_b ? col0 + r : col0 + tx, kb = g.trans_b ? k0 + tx : k0 + r;
            float x =
                row < g.m && ka < g.k ? get(a[g.trans_a ? ka * g.lda + row : row * g.lda + ka]) : 0;
            float y =
                col < g.n && kb < g.k ? get(b[g.trans_b ? col * g.ldb + kb : kb * g.ldb + col]) : 0;
            as[g.trans_a ? tx : r][g.trans_a ? r : tx] = x;
            bs[g.trans_b ? tx : r][g.trans_b ? r : tx] = y;
        }
        __syncthreads();
        for (int k = 0; k < 32; k++)
            for (int i = 0; i < 4; i++)
                total[i] += as[ty + 8 * i][k] * bs[k][tx];
        __syncthreads();
    }
    int64_t col = col0 + tx;
    for (int i = 0; i < 4; i++) {
        int64_t row = row0 + ty + 8 * i;
        if (row >= g.m || col >= g.n) continue;
        C *to_c = c + row * g.ldc + col;
        float value = (float)g.alpha * total[i];
        if (g.beta != 0) value += (float)g.beta * get(addend[row * g.ldc + col]);
        if (g.epilogue != FM_EPILOGUE_NONE) value += get(((const T *)g.bias)[col]);
        if (g.epilogue == FM_EPILOGUE_BIAS_RELU) value = value < 0 ? 0 : value;
        *to_c = to<C>(value);
    }
}

template <typename T> static void plain(fm_stream *stream, const fm_gemm *g) {
    dim3 grid((unsigned)divide_up(g->m, 32), (unsigned)divide_up(g->n, 32), 1);
    for (int64_t first = 0; first < g->batch; first += 65535) {
        fm_gemm part = *g;
        size_t c_bytes = g->c_is_acc ? sizeof(float) : sizeof(T);
        part.a = (const T *)g->a + first * g->stride_a;
        part.b = (const T *)g->b + first * g->stride_b;
        part.c = (char *)g->c + (size_t)(first * g->stride_c) * c_bytes;
        if (g->addend)
            part.addend = (const char *)g->addend + (size_t)(first * g->stride_c) * c_bytes;
        grid.z = (unsigned)min_size(65535, g->batch - first);
        if (g->c_is_acc) {
            plain_kernel<T, float><<<grid, 256, 0, queue(stream)>>>(part);
        } else {
            plain_kernel<T, T><<<grid, 256, 0, queue(stream)>>>(part);
        }
        FM_LAUNCHED();
    }
}

/* ---- cuBLASLt ---- */

struct gemm_layouts {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t first, second, result;
};

static void layout(cublasLtMatrixLayoutOpaque_t *l, cudaDataType_t type, bool trans, int64_t rows,
                   int64_t cols, int64_t ld, int64_t batch, int64_t stride) {
    cublasLtMatrixLayoutInit(l, type, (uint64_t)(trans ? cols : rows),
                             (uint64_t)(trans ? rows : cols), ld);
    if (batch == 1) return;
    int32_t count = (int32_t)batch;
    cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                     sizeof stride);
}

template <typename T> static void describe(const fm_gemm *g, gemm_layouts *l) {
    cudaDataType_t type = sizeof(T) == 2 ? CUDA_R_16BF : CUDA_R_32F;
    cudaDataType_t c_type = g->c_is_acc ? CUDA_R_32F : type;
    cublasOperation_t op_first = g->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t op_second = g->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtMatmulDescInit(&l->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(&l->product, CUBLASLT_MATMUL_DESC_TRANSA, &op_first,
                                   sizeof op_first);
    cublasLtMatmulDescSetAttribute(&l->product, CUBLASLT_MATMUL_DESC_TRANSB, &op_second,
                                   sizeof op_second);
    if (g->epilogue != FM_EPILOGUE_NONE) {
        cublasLtEpilogue_t epilogue =
            g->epilogue == FM_EPILOGUE_BIAS ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_RELU_BIAS;
        cublasLtMatmulDescSetAttribute(&l->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                       sizeof epilogue);
        cublasLtMatmulDescSetAttribute(&l->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g->bias,
                                       sizeof g->bias);
        cublasLtMatmulDescSetAttribute(&l->product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type,
                                       sizeof type);
    }
    layout(&l->first, type, g->trans_b, g->n, g->k, g->ldb, g->batch, g->stride_b);
    layout(&l->second, type, g->trans_a, g->k, g->m, g->lda, g->batch, g->stride_a);
    layout(&l->result, c_type, false, g->n, g->m, g->ldc, g->batch, g->stride_c);
}

/* The largest power of two, at most 16, that divides the address and the matrices' distance. */
static uint8_t alignment(const void *p, int64_t batch, int64_t stride, size_t element) {
    uint64_t bits = (uint64_t)(uintptr_t)p | 16;
    if (batch > 1) bits |= (uint64_t)stride * element;
    return (uint8_t)(bits & (~bits + 1));
}

template <typename T> static gemm_key key_of(const fm_gemm *g) {
    gemm_key key;
    memset(&key, 0, sizeof key);
    key.m = g->m, key.n = g->n, key.k = g->k, key.batch = g->batch;
    key.lda = g->lda, key.ldb = g->ldb, key.ldc = g->ldc;
    if (g->batch > 1) {
        key.stride_a = g->stride_a, key.stride_b = g->stride_b, key.stride_c = g->stride_c;
    }
    key.trans_a = g->trans_a, key.trans_b = g->trans_b, key.add = g->beta != 0;
    key.epilogue = (uint8_t)g->epilogue, key.is_bf16 = sizeof(T) == 2;
    key.c_is_f32 = g->c_is_acc || sizeof(T) == 4, key.used = 1;
    key.align_a = alignment(g->a, g->batch, g->stride_a, sizeof(T));
    key.align_b = alignment(g->b, g->batch, g->stride_b, sizeof(T));
    size_t c_bytes = key.c_is_f32 ? 4 : 2;
    key.align_d = alignment(g->c, g->batch, g->stride_c, c_bytes);
    key.align_c = alignment(g->addend ? g->addend : g->c, g->batch, g->stride_c, c_bytes);
    return key;
}

static void set_preference(cublasLtMatmulPreferenceOpaque_t *p, const gemm_key *key,
                           uint64_t bytes) {
    cublasLtMatmulPreferenceInit(p);
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t first = key->align_b, second = key->align_a, addend = key->align_c,
             result = key->align_d;
    cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                         sizeof bytes);
    cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                         sizeof schemes);
    cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &first,
                                         sizeof first);
    cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &second,
                                         sizeof second);
    cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &addend,
                                         sizeof addend);
    cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &result,
                                         sizeof result);
}

static uint32_t hash_of(const gemm_key *key) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < sizeof *key; i++)
        hash = (hash ^ ((const uint8_t *)key)[i]) * 16777619u;
    return hash;
}

/* The place of a key; a full table starts over: the choice is a function of the key alone. */
static gemm_choice *place_of(gemm_state *s, const gemm_key *key) {
    if (s->count > GEMM_CHOICES / 2) {
        memset(s->choices, 0, GEMM_CHOICES * sizeof *s->choices);
        s->count = 0;
    }
    uint32_t at = hash_of(key) % GEMM_CHOICES;
    while (s->choices[at].key.used && memcmp(&s->choices[at].key, key, sizeof *key) != 0)
        at = (at + 1) % GEMM_CHOICES;
    return &s->choices[at];
}

/* The library's first proposal, but for products with a bias over many rows in bf16: there it
 * proposes tiles of 128 x 256 or 256 x 128, whose bias costs more than they save. Those taken
 * instead, where proposed at all, need 0.5 to 0.97 of the time (docs/cuda.md). */
static const cublasLtMatmulHeuristicResult_t *
best_of(const gemm_key *key, const cublasLtMatmulHeuristicResult_t *result, int found) {
    enum { MANY_ROWS = 16384 };
    if (!key->is_bf16 || key->epilogue == FM_EPILOGUE_NONE || key->m < MANY_ROWS) return result;
    bool is_small = key->n <= 128 && key->k <= 128;
    uint32_t wanted = is_small ? CUBLASLT_MATMUL_TILE_64x512 : CUBLASLT_MATMUL_TILE_128x128;
    for (int i = 0; i < found; i++) {
        uint32_t tile = CUBLASLT_MATMUL_TILE_UNDEFINED;
        size_t written = 0;
        cublasStatus_t status = cublasLtMatmulAlgoConfigGetAttribute(
            &result[i].algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile, &written);
        if (status == CUBLAS_STATUS_SUCCESS && tile == wanted) return &result[i];
    }
    return result;
}

static gemm_choice choose(const gemm_key *key, gemm_layouts *l, uint64_t bytes) {
    gemm_state *s = state();
    pthread_mutex_lock(&s->lock);
    gemm_choice *place = place_of(s, key);
    if (!place->key.used) {
        cublasLtMatmulPreferenceOpaque_t preference;
        cublasLtMatmulHeuristicResult_t result[GEMM_CANDIDATES];
        int found = 0;
        set_preference(&preference, key, bytes);
        cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
            s->handle, &l->product, &l->first, &l->second, &l->result, &l->result, &preference,
            GEMM_CANDIDATES, result, &found);
        place->key = *key;
        place->found = status == CUBLAS_STATUS_SUCCESS && found > 0;
        if (place->found) {
            const cublasLtMatmulHeuristicResult_t *best = best_of(key, result, found);
            place->algo = best->algo;
            place->workspace = best->workspaceSize;
        }
        s->count++;
    }
    gemm_choice choice = *place;
    pthread_mutex_unlock(&s->lock);
    return choice;
}

/* False: the library has no algorithm for it. */
template <typename T>
static bool by_library(fm_stream *stream, const fm_gemm *g, void *workspace, size_t bytes) {
    gemm_layouts l;
    describe<T>(g, &l);
    gemm_key key = key_of<T>(g);
    gemm_choice choice = choose(&key, &l, bytes);
    float alpha = (float)g->alpha, beta = (float)g->beta;
    return choice.found && choice.workspace <= bytes &&
           cublasLtMatmul(state()->handle, &l.product, &alpha, g->b, &l.first, g->a, &l.second,
                          &beta, g->addend ? g->addend : g->c, &l.result, g->c, &l.result,
                          &choice.algo, workspace, bytes, queue(stream)) == CUBLAS_STATUS_SUCCESS;
}

template <typename T> void gemm(fm_stream *stream, const fm_gemm *g, void *workspace) {
    fm_gemm product = *g;
    bool is_grad = g->epilogue == FM_EPILOGUE_RELU_GRAD;
    assert(is_grad || !g->sum.data);
    if (is_grad) {
        assert(g->batch == 1 && g->beta == 0 && !g->c_is_acc && g->relu);
        product.epilogue = FM_EPILOGUE_NONE;
    }
    if (skinny_fits<T>(g)) {
        skinny(stream, g);
        return;
    }
    if (linear_fits<T>(g) && (workspace || !g->sum.data)) {
        linear(stream, g, workspace);
        return;
    }
    if (!by_library<T>(stream, &product, workspace, workspace ? gemm_workspace(g) : 0))
        plain<T>(stream, &product);
    if (is_grad) sum_after_relu<T>(stream, g->m, g->n, g->ldc, g->relu, g->c, g->sum, workspace);
}

#define INSTANTIATE(T) template void gemm<T>(fm_stream *, const fm_gemm *, void *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
