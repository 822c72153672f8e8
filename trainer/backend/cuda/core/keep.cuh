/* keep.cuh: shared-axis dropout for kernels on rows (dropout.cu, norm.cu): the mask is drawn where
 * it is used. A thread handles rows that share a mask together, so that one draw serves them all.
 * Also elements in registers in the form in which memory has them. */
#ifndef FM_BACKEND_CUDA_KEEP_CUH
#define FM_BACKEND_CUDA_KEEP_CUH

#include "trainer/backend/cuda/core/common.cuh"

namespace fm_cuda {

/* V elements in registers in the form of memory: 16 bytes, or one element. */
template <typename T, int V> struct raw;
template <> struct raw<float, 4> {
    float4 word;
    __device__ inline float at(int i) const {
        return i == 0 ? word.x : i == 1 ? word.y : i == 2 ? word.z : word.w;
    }
    __device__ static inline raw of(const float *x) {
        return {make_float4(x[0], x[1], x[2], x[3])};
    }
};
template <> struct raw<float, 1> {
    float word;
    __device__ inline float at(int) const {
        return word;
    }
    __device__ static inline raw of(const float *x) {
        return {x[0]};
    }
};
template <> struct raw<bf16, 8> {
    uint4 word;
    __device__ inline float at(int i) const {
        uint32_t pair = i / 2 == 0 ? word.x : i / 2 == 1 ? word.y : i / 2 == 2 ? word.z : word.w;
        return __uint_as_float(i % 2 ? pair & 0xffff0000u : pair << 16);
    }
    __device__ static inline uint32_t two(float low, float high) {
        __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return *(uint32_t *)&pair;
    }
    __device__ static inline raw of(const float *x) {
        return {make_uint4(two(x[0], x[1]), two(x[2], x[3]), two(x[4], x[5]), two(x[6], x[7]))};
    }
};
template <> struct raw<bf16, 1> {
    bf16 word;
    __device__ inline float at(int) const {
        return get(word);
    }
    __device__ static inline raw of(const float *x) {
        return {to<bf16>(x[0])};
    }
};
template <typename T, int V> __device__ inline raw<T, V> read_raw(const T *p) {
    return *(const raw<T, V> *)p;
}
template <typename T, int V> __device__ inline void write_raw(T *p, raw<T, V> x) {
    *(raw<T, V> *)p = x;
}

/* Divides rows [n0 * n1, c] into runs of ROWS rows that share one row of the mask. All rows that
 * share a mask form a line. Run r of line l has the rows
 *     l * line + (r + t * runs) * stride    for t < ROWS and r + t * runs < length
 * so that runs with neighbouring numbers have neighbouring rows. Rows without a shared mask form
 * one line. */
struct keep_runs {
    uint32_t lines, line, length, stride, runs;
    bool is_drawn, is_shared;
    uint32_t threshold;
    float kept;
};

/* A run: its line, its first row, the distance to the next row, and the number of rows. */
struct keep_run {
    uint32_t line, row, step;
    int count;
};

/* The runs of rows without dropout. */
inline keep_runs plain_runs(int64_t rows, int rows_of_run) {
    assert(rows < (int64_t)1 << 31);
    return {1, 0, (uint32_t)rows, 1, (uint32_t)divide_up(rows, rows_of_run), false, false, 0, 1};
}

inline keep_runs keep_runs_of(const fm_dropout &d, int rows_of_run) {
    assert(d.rate >= 0 && d.rate < 1);
    keep_runs k = plain_runs(d.n0 * d.n1, rows_of_run);
    if (d.rate == 0) return k;
    k.is_drawn = true, k.is_shared = d.shared != FM_SHARED_NONE;
    k.threshold = fm_drop_threshold(d.rate), k.kept = (float)(1 / (1 - d.rate));
    uint32_t n0 = (uint32_t)d.n0, n1 = (uint32_t)d.n1;
    if (d.shared == FM_SHARED_AXIS0) k.lines = n1, k.line = 1, k.length = n0, k.stride = n1;
    if (d.shared == FM_SHARED_AXIS1) k.lines = n0, k.line = n1, k.length = n1;
    k.runs = (uint32_t)divide_up(k.length, rows_of_run);
    return k;
}

/* The run of number i < lines * runs. */
__device__ inline keep_run keep_run_at(const keep_runs &k, uint32_t i, int rows_of_run) {
    bool side_by_side = k.stride > 1; /* neighbouring numbers are lines; else runs of one line */
    uint32_t line = side_by_side ? i % k.lines : i / k.runs;
    uint32_t run = side_by_side ? i / k.lines : i % k.runs;
    int left = (int)((k.length - run + k.runs - 1) / k.runs);
    return {line, line * k.line + run * k.stride, k.runs * k.stride,
            left < rows_of_run ? left : rows_of_run};
}

/* The index of the first draw of a row's mask. */
__device__ inline uint64_t keep_draw(const fm_dropout &d, const keep_runs &k, const keep_run &run,
                                     uint32_t row) {
    int64_t i = k.is_shared ? run.line : row / (uint32_t)d.n1;
    int64_t j = k.is_shared ? run.line : row % (uint32_t)d.n1;
    return fm_dropout_index(d.shared, (uint64_t)(d.offset0 + i), (uint64_t)(d.offset1 + j), 0,
                            (uint64_t)d.global_n1, (uint64_t)d.c);
}

/* Bit n says that channel n of V is kept; the first channel has the draw `index`. For V > 1 index
 * is a multiple of four. `clock` is fm_draw_counter of the draw. */
template <int V>
__device__ inline uint32_t keep_bits(const fm_dropout &d, const keep_runs &k,
                                     const fm_philox_counter &clock, uint64_t index) {
    if (V == 1) return fm_draw_block_after(&d.draw, clock, index).word[index & 3] >= k.threshold;
    uint32_t bits = 0;
#pragma unroll
    for (int four = 0; four < V; four += 4) {
        fm_philox_counter words = fm_draw_block_after(&d.draw, clock, index + four);
#pragma unroll
        for (int n = 0; n < 4 && n < V; n++)
            bits |= (uint32_t)(words.word[n] >= k.threshold) << (four + n);
    }
    return bits;
}
template <int V>
__device__ inline uint32_t keep_bits(const fm_dropout &d, const keep_runs &k, uint64_t index) {
    return keep_bits<V>(d, k, fm_draw_counter(&d.draw), index);
}

/* The factor of channel n. */
__device__ inline float keep_factor(const keep_runs &k, uint32_t bits, int n) {
    return bits >> n & 1 ? k.kept : 0;
}

} // namespace fm_cuda

#endif
