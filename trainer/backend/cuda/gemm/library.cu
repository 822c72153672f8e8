/* library.cu: matrix products through cuBLASLt.
 *
 * The library is column-major. A row-major C = op(A) op(B) is, column-major,
 * C^T = op(B)^T op(A)^T, so B is the library's first operand and A its second. Sums are f32 for
 * all tables. Only the tf32 table lets the library round operands to tf32. Split-K is allowed only
 * with a reduction in the workspace, never in place, so that a sum has one order.
 *
 * The algorithm is a function of shapes, strides, types, 16-byte alignment and the kind of device
 * (tuned.cu): the same product always gives the same bits. Asking the library costs more host time
 * than a small product takes, so the answers are kept in a hash table.
 *
 * Many kernels of the library hand out their tiles by a counter in the workspace. The library sets
 * the counter to zero before each call, which in a graph is a node of its own, with gaps around it.
 * Without a workspace the same kernels divide their tiles evenly: on an H200 that takes 1 to 2.4 us
 * less per product. So a workspace is passed to split-K products only.
 *
 * The library's own epilogues for the gradient of a ReLU and for bias gradients are not used. On an
 * H200, DRELU turns a product of 31 us into one of 223 us, and BGRADB one of 27 us into one of
 * 65 us. A pass over the result does both (sum_after_relu). */
#include "trainer/backend/cuda/gemm/library.cuh"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

namespace fm_cuda {

enum { GEMM_CHOICES = 4096, GEMM_CANDIDATES = 8 };

void check_library(cublasStatus_t status, const char *call, const char *file, int line) {
    if (status != CUBLAS_STATUS_SUCCESS) {
        call_failed(call, cublasLtGetStatusString(status), file, line);
    }
}

/* Whether the library says that it cannot do a product, as opposed to failing at it. */
bool is_refusal(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
}

struct gemm_choice {
    gemm_key key;
    cublasLtMatmulAlgo_t algo;
    size_t workspace; /* bytes; 0: the call passes none */
    bool found;       /* false: the library has no algorithm */
};

/* Made once by gemm_prepare and kept for the life of the process. */
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

bool gemm_prepare(char *why, size_t why_bytes) {
    gemm_state *s = state();
    if (s->handle) return true;
    if (!open_library(why, why_bytes)) return false;
    s->choices = (gemm_choice *)calloc(GEMM_CHOICES, sizeof *s->choices);
    if (s->choices && cublasLtCreate(&s->handle) == CUBLAS_STATUS_SUCCESS) return true;
    snprintf(why, why_bytes, "the CUDA library cuBLASLt does not start on this device");
    return false;
}

cublasLtHandle_t library_handle(void) {
    return state()->handle;
}

size_t library_workspace(const fm_gemm *g) {
    return g->m * g->n * g->k * g->batch >= 1 << 22 ? (size_t)GEMM_WORKSPACE : 0;
}

/* -- descriptions of a product */

static void layout(cublasLtMatrixLayoutOpaque_t *l, cudaDataType_t type, bool trans, int64_t rows,
                   int64_t cols, int64_t ld, int64_t batch, int64_t stride) {
    FM_CUBLAS(cublasLtMatrixLayoutInit(l, type, (uint64_t)(trans ? cols : rows),
                                       (uint64_t)(trans ? rows : cols), ld));
    if (batch == 1) return;
    int32_t count = (int32_t)batch;
    FM_CUBLAS(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                               sizeof count));
    FM_CUBLAS(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                               &stride, sizeof stride));
}

template <typename T> static gemm_type type_of(void);
template <> gemm_type type_of<float>(void) {
    return GEMM_F32;
}
template <> gemm_type type_of<tf32>(void) {
    return GEMM_TF32;
}
template <> gemm_type type_of<bf16>(void) {
    return GEMM_BF16;
}

template <typename T> void describe(const fm_gemm *g, gemm_layouts *l) {
    cudaDataType_t type = sizeof(T) == 2 ? CUDA_R_16BF : CUDA_R_32F;
    cudaDataType_t c_type = g->c_is_acc ? CUDA_R_32F : type;
    cublasOperation_t op_first = g->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t op_second = g->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    FM_CUBLAS(cublasLtMatmulDescInit(&l->product, compute_of(type_of<T>()), CUDA_R_32F));
    FM_CUBLAS(cublasLtMatmulDescSetAttribute(&l->product, CUBLASLT_MATMUL_DESC_TRANSA, &op_first,
                                             sizeof op_first));
    FM_CUBLAS(cublasLtMatmulDescSetAttribute(&l->product, CUBLASLT_MATMUL_DESC_TRANSB, &op_second,
                                             sizeof op_second));
    if (g->epilogue != FM_EPILOGUE_NONE) {
        cublasLtEpilogue_t epilogue =
            g->epilogue == FM_EPILOGUE_BIAS ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_RELU_BIAS;
        FM_CUBLAS(cublasLtMatmulDescSetAttribute(&l->product, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                 &epilogue, sizeof epilogue));
        FM_CUBLAS(cublasLtMatmulDescSetAttribute(&l->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                 &g->bias, sizeof g->bias));
        FM_CUBLAS(cublasLtMatmulDescSetAttribute(&l->product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                                                 &type, sizeof type));
    }
    layout(&l->first, type, g->trans_b, g->n, g->k, g->ldb, g->batch, g->stride_b);
    layout(&l->second, type, g->trans_a, g->k, g->m, g->lda, g->batch, g->stride_a);
    layout(&l->result, c_type, false, g->n, g->m, g->ldc, g->batch, g->stride_c);
}

/* The largest power of two, at most 16, that divides the address and, in a batch, the distance of
 * two matrices in bytes. */
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
    key.epilogue = (uint8_t)g->epilogue, key.type = type_of<T>();
    key.c_is_f32 = g->c_is_acc || sizeof(T) == 4, key.used = 1;
    key.align_a = alignment(g->a, g->batch, g->stride_a, sizeof(T));
    key.align_b = alignment(g->b, g->batch, g->stride_b, sizeof(T));
    size_t c_bytes = key.c_is_f32 ? 4 : 2;
    key.align_d = alignment(g->c, g->batch, g->stride_c, c_bytes);
    key.align_c = alignment(g->addend ? g->addend : g->c, g->batch, g->stride_c, c_bytes);
    return key;
}

void set_preference(cublasLtMatmulPreferenceOpaque_t *p, const gemm_key *key, uint64_t bytes) {
    FM_CUBLAS(cublasLtMatmulPreferenceInit(p));
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t first = key->align_b, second = key->align_a, addend = key->align_c,
             result = key->align_d;
    FM_CUBLAS(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                   &bytes, sizeof bytes));
    FM_CUBLAS(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                   &schemes, sizeof schemes));
    FM_CUBLAS(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                                   &first, sizeof first));
    FM_CUBLAS(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                                   &second, sizeof second));
    FM_CUBLAS(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                                   &addend, sizeof addend));
    FM_CUBLAS(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                                                   &result, sizeof result));
}

static uint32_t hash_of(const gemm_key *key) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < sizeof *key; i++)
        hash = (hash ^ ((const uint8_t *)key)[i]) * 16777619u;
    return hash;
}

/* The place of a key. A full table is cleared and starts over, which changes no result: the choice
 * is a function of the key alone. */
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

/* Takes the library's first proposal, except for products with a bias over many rows in bf16. For
 * those it proposes tiles of 128 x 256 or 256 x 128, whose bias costs more than they save. The
 * tiles taken instead, if they are among the proposals, need 0.5 to 0.97 of the time
 * (docs/notes/cuda-versions.md). */
static const cublasLtMatmulHeuristicResult_t *
best_of(const gemm_key *key, const cublasLtMatmulHeuristicResult_t *result, int found) {
    enum { MANY_ROWS = 16384 };
    bool is_plain = key->epilogue == FM_EPILOGUE_NONE;
    if (key->type != GEMM_BF16 || is_plain || key->m < MANY_ROWS) return result;
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

int propose(const gemm_key *key, gemm_layouts *l, uint64_t bytes,
            cublasLtMatmulHeuristicResult_t *result, int most) {
    cublasLtMatmulPreferenceOpaque_t preference;
    int found = 0;
    set_preference(&preference, key, bytes);
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(library_handle(), &l->product, &l->first, &l->second,
                                       &l->result, &l->result, &preference, most, result, &found);
    if (!is_refusal(status)) {
        check_library(status, "cublasLtMatmulAlgoGetHeuristic", __FILE__, __LINE__);
    }
    return status == CUBLAS_STATUS_SUCCESS ? found : 0;
}

bool default_algorithm(const gemm_key *key, gemm_layouts *l, uint64_t bytes,
                       cublasLtMatmulAlgo_t *ret_algo, size_t *ret_workspace) {
    cublasLtMatmulHeuristicResult_t result[GEMM_CANDIDATES];
    int found = propose(key, l, bytes, result, GEMM_CANDIDATES);
    if (found == 0) return false;
    const cublasLtMatmulHeuristicResult_t *best = best_of(key, result, found);
    *ret_algo = best->algo;
    *ret_workspace = best->workspaceSize;
    if (best->workspaceSize > COUNTER_BYTES) return true;
    found = propose(key, l, 0, result, GEMM_CANDIDATES);
    if (found > 0) *ret_algo = best_of(key, result, found)->algo, *ret_workspace = 0;
    return true;
}

/* Fills a new place: the tuned algorithm of this kind of device, else the default. */
static void fill_place(gemm_choice *place, const gemm_key *key, gemm_layouts *l, uint64_t bytes) {
    place->key = *key;
    place->found = tuned_algorithm(key, l, bytes, &place->algo, &place->workspace) ||
                   default_algorithm(key, l, bytes, &place->algo, &place->workspace);
}

static gemm_choice choose(const gemm_key *key, gemm_layouts *l, uint64_t bytes) {
    gemm_state *s = state();
    pthread_mutex_lock(&s->lock);
    gemm_choice *place = place_of(s, key);
    if (!place->key.used) {
        fill_place(place, key, l, bytes);
        s->count++;
    }
    gemm_choice choice = *place;
    pthread_mutex_unlock(&s->lock);
    return choice;
}

int known_products(gemm_key *keys, int most) {
    gemm_state *s = state();
    int n = 0;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < GEMM_CHOICES && n < most; i++) {
        if (s->choices[i].key.used && s->choices[i].found) keys[n++] = s->choices[i].key;
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

template <typename T>
bool library_gemm(fm_stream *stream, const fm_gemm *g, void *workspace, size_t bytes) {
    gemm_layouts l;
    describe<T>(g, &l);
    gemm_key key = key_of<T>(g);
    gemm_choice choice = choose(&key, &l, bytes);
    if (!choice.found || choice.workspace > bytes) return false;
    auto multiply = [&](void *space, size_t space_bytes) {
        float alpha = (float)g->alpha, beta = (float)g->beta;
        return cublasLtMatmul(state()->handle, &l.product, &alpha, g->b, &l.first, g->a, &l.second,
                              &beta, g->addend ? g->addend : g->c, &l.result, g->c, &l.result,
                              &choice.algo, space, space_bytes, queue(stream));
    };
    cublasStatus_t status = choice.workspace ? multiply(workspace, bytes) : multiply(NULL, 0);
    if (is_refusal(status) && !choice.workspace && bytes) status = multiply(workspace, bytes);
    if (is_refusal(status)) return false;
    check_library(status, "cublasLtMatmul", __FILE__, __LINE__);
    return true;
}

template void describe<float>(const fm_gemm *, gemm_layouts *);
template void describe<tf32>(const fm_gemm *, gemm_layouts *);
template void describe<bf16>(const fm_gemm *, gemm_layouts *);
template bool library_gemm<float>(fm_stream *, const fm_gemm *, void *, size_t);
template bool library_gemm<tf32>(fm_stream *, const fm_gemm *, void *, size_t);
template bool library_gemm<bf16>(fm_stream *, const fm_gemm *, void *, size_t);

} // namespace fm_cuda
