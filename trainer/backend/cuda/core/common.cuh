/* common.cuh: helpers that all files of the CUDA backend share: element types, packs of elements,
 * launches over a range, reductions inside a warp and a block.
 *
 * Most entries are function templates over T, the act type (float or bf16); acc is float. They are
 * declared in families.cuh, defined and instantiated in the .cu file of their family, and put into
 * the tables by table.cu. Kernels read act, compute in float, and round once when they store. */
#ifndef FM_BACKEND_CUDA_COMMON_CUH
#define FM_BACKEND_CUDA_COMMON_CUH

#include "trainer/backend/cuda/core/check.cuh"
#include "trainer/backend/cuda/core/cuda.h"

#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace fm_cuda {

typedef __nv_bfloat16 bf16;

/* f32 in memory whose products round their operands to tf32. gemm, attention and the entries that
 * are composed of them are instantiated for it, too; the tf32 table has the others of float. */
struct tf32 {
    float value;
};

/* What memory holds for an act type. */
template <typename T> struct stored { typedef T type; };
template <> struct stored<tf32> { typedef float type; };

inline cudaStream_t queue(fm_stream *stream) {
    return (cudaStream_t)stream;
}

/* The number of multiprocessors of the current device: 132 on an H100 or H200 (kernel_set.cu). The
 * first call asks the runtime, later calls return the same number, since the devices of one process
 * are of one kind. Grids and workspaces depend on it, and so does the order of some sums. */
int64_t n_multiprocessor(void);

__host__ __device__ inline int64_t min_size(int64_t a, int64_t b) {
    return a < b ? a : b;
}
__host__ __device__ inline int64_t max_size(int64_t a, int64_t b) {
    return a > b ? a : b;
}
__host__ __device__ inline int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
__host__ __device__ inline int64_t round_up(int64_t a, int64_t b) {
    return divide_up(a, b) * b;
}

__device__ inline float get(float x) {
    return x;
}
__device__ inline float get(bf16 x) {
    return __bfloat162float(x);
}
template <typename T> __device__ inline T to(float x);
template <> __device__ inline float to<float>(float x) {
    return x;
}
template <> __device__ inline bf16 to<bf16>(float x) {
    return __float2bfloat16_rn(x);
}

/* y = value, or y += value. */
template <typename T> __device__ inline void put(T *y, fm_beta beta, float value) {
    *y = to<T>(beta == FM_ADD ? get(*y) + value : value);
}

__device__ inline float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

/* N elements that one access moves. A pointer to them is aligned to their size. */
template <typename T, int N> struct alignas(sizeof(T) * N) pack { T at[N]; };
template <typename T, int N> __device__ inline void load(const T *p, float *x) {
    pack<T, N> in = *(const pack<T, N> *)p;
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = get(in.at[i]);
}
template <typename T, int N> __device__ inline void store(T *p, const float *x) {
    pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; i++)
        out.at[i] = to<T>(x[i]);
    *(pack<T, N> *)p = out;
}
template <typename T, int N> __device__ inline void put_pack(T *p, fm_beta beta, float *x) {
    if (beta == FM_ADD) {
        float old[N];
        load<T, N>(p, old);
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] += old[i];
    }
    store<T, N>(p, x);
}

/* The number of elements of T in 16 bytes. */
template <typename T> constexpr int vector_of() {
    return 16 / (int)sizeof(T);
}
/* Whether a pointer (NULL counts as aligned), or a distance in elements, allows 16-byte accesses.
 */
inline bool is_aligned(const void *p) {
    return (uintptr_t)p % 16 == 0;
}
template <typename T> inline bool is_whole(int64_t elements) {
    return elements % vector_of<T>() == 0;
}

/* Calls f(i) for each i in [0, n), one thread per index. With more indices than threads each thread
 * takes several, one grid apart (a grid-stride loop). */
enum { EACH_THREADS = 256, EACH_BLOCKS = 16 /* per multiprocessor */ };
template <typename F> __global__ void __launch_bounds__(EACH_THREADS) each_kernel(int64_t n, F f) {
    for (int64_t i = blockIdx.x * (int64_t)EACH_THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * EACH_THREADS)
        f(i);
}
template <typename F> inline void each(fm_stream *stream, int64_t n, F f) {
    if (n <= 0) return;
    int64_t blocks = min_size(divide_up(n, EACH_THREADS), n_multiprocessor() * EACH_BLOCKS);
    each_kernel<<<(unsigned)blocks, EACH_THREADS, 0, queue(stream)>>>(n, f);
    FM_LAUNCHED();
}

/* The sum over a warp, in every lane, always by the same tree. */
template <typename V> __device__ inline V warp_sum(V x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
__device__ inline float warp_max(float x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}
/* The sum over a block of whole warps, valid in thread 0. `space` is shared memory of 32 values. */
template <typename V> __device__ inline V block_sum(V x, V *space) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = (blockDim.x + 31) / 32;
    x = warp_sum(x);
    __syncthreads();
    if (lane == 0) space[warp] = x;
    __syncthreads();
    x = threadIdx.x < warps ? space[threadIdx.x] : V(0);
    return warp == 0 ? warp_sum(x) : x;
}

/* The square of a distance that is then compared with bounds. It is f32 and not contracted, so that
 * every device finds the same classes. */
__device__ inline float square_distance(const float *a, const float *b) {
    float square = 0;
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        float d = __fsub_rn(a[axis], b[axis]);
        square = __fadd_rn(square, __fmul_rn(d, d));
    }
    return square;
}

/* The square of bound b. */
__device__ inline float square_bound(float first, float step, int32_t b) {
    float bound = __fadd_rn(first, __fmul_rn(step, (float)b));
    return __fmul_rn(bound, bound);
}

/* Divides a workspace into parts, each at a multiple of 64 bytes. With base NULL it only counts. */
struct carver {
    char *base;
    size_t used;
    void *take(size_t bytes) {
        void *part = base ? base + used : NULL;
        used += (bytes + 63) / 64 * 64;
        return part;
    }
};

} // namespace fm_cuda

#endif
