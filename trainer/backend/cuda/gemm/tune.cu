/* tune.cu: measures the library's algorithms for the products that a process has done, and writes
 * the rows of tuned_*.inc.
 *
 * For each product: operands of random numbers, every algorithm that the library proposes with and
 * without a workspace, each timed in a captured graph, as the model runs it, so that nodes that the
 * library adds (a counter set to zero, a reduction) count. A product whose sums run over many rows,
 * a weight gradient, reads operands that are not in the L2 cache: a fill of other memory precedes
 * it in the graph, and the time of the fills alone is subtracted. The others read what the kernel
 * before them wrote: they run back to back.
 *
 * A row is written when the best algorithm saves at least a twentieth of the default's time. */
#include "trainer/backend/cuda/core/cuda.h"
#include "trainer/backend/cuda/gemm/library.cuh"

#include <stdlib.h>
#include <string.h>

namespace fm_cuda {

enum {
    TUNE_PRODUCTS = 2048,
    TUNE_PROPOSALS = 32,
    TUNE_CALLS = 16,  /* calls in a graph */
    TUNE_REPLAYS = 7, /* their median counts */
    TUNE_FLUSH = 128 << 20,
    TUNE_MANY_ROWS = 4096, /* k: a sum over rows */
};

struct tuning {
    gemm_key key;
    gemm_layouts layouts;
    fm_gemm product;
    void *workspace;
    char *flush;
    cudaStream_t stream;
    cudaEvent_t before, after;
};

__global__ void tune_fill_kernel(int64_t n, uint32_t seed, bool is_bf16, void *to) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        uint32_t x = ((uint32_t)i + seed) * 2654435761u;
        x = (x ^ x >> 15) * 2246822519u;
        float value = (float)(int32_t)(x ^ x >> 13) * (1.0f / 2147483648.0f);
        if (is_bf16) {
            ((bf16 *)to)[i] = __float2bfloat16_rn(value);
        } else {
            ((float *)to)[i] = value;
        }
    }
}

/* Elements from the first to the last of `batch` matrices of `rows` x `cols`. */
static int64_t extent(int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride) {
    return (rows - 1) * ld + cols + (batch - 1) * stride;
}

/* Random numbers at an address whose largest divisor, up to 16, is `alignment`; NULL: no memory.
 * The allocation is 256-byte aligned and begins `alignment` bytes, if that is below 16, before. */
static char *operand(int64_t n, bool is_bf16, uint8_t alignment) {
    char *memory = NULL;
    size_t shift = alignment < 16 ? alignment : 0;
    if (cudaMalloc((void **)&memory, (size_t)n * (is_bf16 ? 2 : 4) + 16) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    tune_fill_kernel<<<1024, 256>>>(n, (uint32_t)n, is_bf16, memory + shift);
    FM_LAUNCHED();
    return memory + shift;
}

static void release_operand(const void *p) {
    if (p) FM_CUDA(cudaFree((void *)((uintptr_t)p / 256 * 256)));
}

static bool make_operands(tuning *t) {
    const gemm_key *k = &t->key;
    fm_gemm *g = &t->product;
    *g = (fm_gemm){};
    g->m = k->m, g->n = k->n, g->k = k->k, g->batch = k->batch;
    g->trans_a = k->trans_a, g->trans_b = k->trans_b;
    g->alpha = 1, g->beta = k->add ? 1 : 0;
    g->lda = k->lda, g->ldb = k->ldb, g->ldc = k->ldc;
    g->stride_a = k->stride_a, g->stride_b = k->stride_b, g->stride_c = k->stride_c;
    bool is_bf16 = k->type == GEMM_BF16;
    g->c_is_acc = is_bf16 && k->c_is_f32;
    g->epilogue = (fm_epilogue)k->epilogue;
    int64_t rows_a = k->trans_a ? k->k : k->m, cols_a = k->trans_a ? k->m : k->k;
    int64_t rows_b = k->trans_b ? k->n : k->k, cols_b = k->trans_b ? k->k : k->n;
    int64_t n_c = extent(k->m, k->n, k->ldc, k->batch, k->stride_c);
    g->a = operand(extent(rows_a, cols_a, k->lda, k->batch, k->stride_a), is_bf16, k->align_a);
    g->b = operand(extent(rows_b, cols_b, k->ldb, k->batch, k->stride_b), is_bf16, k->align_b);
    g->c = operand(n_c, !k->c_is_f32, k->align_d);
    g->addend = operand(n_c, !k->c_is_f32, k->align_c);
    g->bias = operand(k->n, is_bf16, 16);
    return g->a && g->b && g->c && g->addend && g->bias;
}

static void release_operands(tuning *t) {
    release_operand(t->product.a);
    release_operand(t->product.b);
    release_operand(t->product.c);
    release_operand(t->product.addend);
    release_operand(t->product.bias);
}

/* Queues one call, with a workspace unless `space` is 0; algo NULL: nothing but the flush. */
static bool queue_call(const tuning *t, const cublasLtMatmulAlgo_t *algo, size_t space) {
    const fm_gemm *g = &t->product;
    float alpha = 1, beta = (float)g->beta;
    if (t->key.k >= TUNE_MANY_ROWS) FM_CUDA(cudaMemsetAsync(t->flush, 0, TUNE_FLUSH, t->stream));
    if (!algo) return true;
    return cublasLtMatmul(library_handle(), (cublasLtMatmulDesc_t)&t->layouts.product, &alpha, g->b,
                          (cublasLtMatrixLayout_t)&t->layouts.first, g->a,
                          (cublasLtMatrixLayout_t)&t->layouts.second, &beta, g->addend,
                          (cublasLtMatrixLayout_t)&t->layouts.result, g->c,
                          (cublasLtMatrixLayout_t)&t->layouts.result, algo,
                          space ? t->workspace : NULL, space ? GEMM_WORKSPACE : 0,
                          t->stream) == CUBLAS_STATUS_SUCCESS;
}

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Microseconds of one call: the median over replays of a graph of TUNE_CALLS of them. Negative when
 * the algorithm cannot be run or captured. */
static float time_calls(const tuning *t, const cublasLtMatmulAlgo_t *algo, size_t space) {
    float ms[TUNE_REPLAYS];
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    bool queued = queue_call(t, algo, space); /* loads the kernel */
    FM_CUDA(cudaStreamSynchronize(t->stream));
    FM_CUDA(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < TUNE_CALLS && queued; i++)
        queued = queue_call(t, algo, space);
    bool captured = cudaStreamEndCapture(t->stream, &graph) == cudaSuccess && graph;
    captured = captured && cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess;
    for (int i = 0; i < TUNE_REPLAYS && queued && captured; i++) {
        FM_CUDA(cudaEventRecord(t->before, t->stream));
        FM_CUDA(cudaGraphLaunch(exec, t->stream));
        FM_CUDA(cudaEventRecord(t->after, t->stream));
        FM_CUDA(cudaEventSynchronize(t->after));
        FM_CUDA(cudaEventElapsedTime(&ms[i], t->before, t->after));
    }
    if (exec) FM_CUDA(cudaGraphExecDestroy(exec));
    if (graph) FM_CUDA(cudaGraphDestroy(graph));
    (void)cudaGetLastError();
    if (!queued || !captured) return -1;
    qsort(ms, TUNE_REPLAYS, sizeof *ms, ascending);
    return 1e3f * ms[TUNE_REPLAYS / 2] / (float)TUNE_CALLS;
}

static void write_row(FILE *out, const gemm_key *k, const gemm_config *c, float first, float best) {
    fprintf(out,
            "{{%lld, %lld, %lld, %lld, %lld, %lld, %lld, %lld, %lld, %lld, %d, %d, %d, %d, %d, %d, "
            "%d, %d, %d, %d, 1}, {%d, %d, %d, %d, %d, %d, %d, %d, %d}}, /* %.2f us, was %.2f */\n",
            (long long)k->m, (long long)k->n, (long long)k->k, (long long)k->batch,
            (long long)k->lda, (long long)k->ldb, (long long)k->ldc, (long long)k->stride_a,
            (long long)k->stride_b, (long long)k->stride_c, k->trans_a, k->trans_b, k->add,
            k->epilogue, k->type, k->c_is_f32, k->align_a, k->align_b, k->align_c, k->align_d,
            c->algorithm, c->tile, c->stages, c->split, c->reduction, c->swizzle, c->custom,
            c->inner, c->cluster, (double)best, (double)first);
}

/* Times all proposals of one product; writes a row when one of them clearly beats the default. */
static void tune_product(tuning *t, FILE *out) {
    static cublasLtMatmulHeuristicResult_t result[2 * TUNE_PROPOSALS];
    if (t->key.type == GEMM_BF16) {
        describe<bf16>(&t->product, &t->layouts);
    } else if (t->key.type == GEMM_TF32) {
        describe<tf32>(&t->product, &t->layouts);
    } else {
        describe<float>(&t->product, &t->layouts);
    }
    uint64_t bytes = library_workspace(&t->product);
    cublasLtMatmulAlgo_t standard;
    size_t space;
    if (!default_algorithm(&t->key, &t->layouts, bytes, &standard, &space)) return;
    float flush = t->key.k >= TUNE_MANY_ROWS ? time_calls(t, NULL, 0) : 0;
    float first = time_calls(t, &standard, space) - flush, best = first;
    int chosen = -1, found = propose(&t->key, &t->layouts, 0, result, TUNE_PROPOSALS);
    int split = bytes ? propose(&t->key, &t->layouts, bytes, result + found, TUNE_PROPOSALS) : 0;
    for (int i = 0; i < found + split; i++) {
        size_t need = result[i].workspaceSize;
        if (i >= found && need <= COUNTER_BYTES) continue;
        float us = time_calls(t, &result[i].algo, i < found ? 0 : need) - flush;
        if (us > 0 && us < best) best = us, chosen = i;
    }
    if (chosen < 0 || best > 0.95f * first) return;
    gemm_config config = config_of(&result[chosen].algo);
    cublasLtMatmulAlgo_t again;
    if (algorithm_of(&config, &t->key, &t->layouts, &again, &space) && space <= bytes) {
        write_row(out, &t->key, &config, first, best);
    }
}

static int by_shape(const void *a, const void *b) {
    return memcmp(a, b, sizeof(gemm_key));
}

} // namespace fm_cuda

bool fm_cuda_tune(FILE *out) {
    using namespace fm_cuda;
    static gemm_key keys[TUNE_PRODUCTS];
    int n = known_products(keys, TUNE_PRODUCTS);
    tuning t = {};
    FM_CUDA(cudaStreamCreate(&t.stream));
    FM_CUDA(cudaEventCreate(&t.before));
    FM_CUDA(cudaEventCreate(&t.after));
    if (cudaMalloc(&t.workspace, GEMM_WORKSPACE) != cudaSuccess ||
        cudaMalloc((void **)&t.flush, TUNE_FLUSH) != cudaSuccess) {
        return false;
    }
    qsort(keys, (size_t)n, sizeof *keys, by_shape);
    for (int i = 0; i < n; i++) {
        t.key = keys[i];
        bool made = make_operands(&t);
        FM_CUDA(cudaDeviceSynchronize());
        if (made) tune_product(&t, out);
        release_operands(&t);
        if (!made) return false;
    }
    FM_CUDA(cudaFree(t.workspace));
    FM_CUDA(cudaFree(t.flush));
    FM_CUDA(cudaEventDestroy(t.before));
    FM_CUDA(cudaEventDestroy(t.after));
    FM_CUDA(cudaStreamDestroy(t.stream));
    return true;
}
