/* norm_row.cuh: how a warp holds whole rows in registers for kernels that begin with a LayerNorm.
 *
 * LANES lanes share a row; each has PARTS packs of V elements of it. ROWS rows are in flight, so a
 * warp loads 32 / LANES * ROWS rows before it starts to sum. x is read once; its statistics are
 * sums over the lanes. */
#ifndef FM_BACKEND_CUDA_NORM_ROW_CUH
#define FM_BACKEND_CUDA_NORM_ROW_CUH

#include "trainer/backend/cuda/core/keep.cuh"

namespace fm_cuda {

enum { NORM_WARPS = 8, NORM_THREADS = NORM_WARPS * 32 };

template <int LANES_, int PARTS_, int V_, int ROWS_, int GRAD_ROWS_ = ROWS_> struct norm_shape {
    static constexpr int LANES = LANES_, PARTS = PARTS_, V = V_;
    static constexpr int ROWS = ROWS_, GRAD_ROWS = GRAD_ROWS_; /* in flight */
    static constexpr int N = V * PARTS;                        /* elements of a row in a lane */
    static constexpr int WIDTH = LANES * N;                    /* the most elements of a row */
    static constexpr int GROUPS = 32 / LANES;                  /* rows that a warp takes at once */
    /* Whether rows may have another width than WIDTH: elements beyond c are then 0. */
    static constexpr bool IS_ANY = LANES == 32 && V == 1;
    /* Backward: one block per multiprocessor, with as many warps as registers allow. */
    static constexpr int GRAD_WARPS = N > 8 ? 8 : 16, SLOTS = IS_ANY ? 1 : 8;
};

/* The channel of element i of this lane. */
template <typename S> __device__ inline int channel_of(int i) {
    return ((i / S::V) * S::LANES + threadIdx.x % S::LANES) * S::V + i % S::V;
}
template <typename S> __device__ inline bool is_inside(int i, int64_t c) {
    return !S::IS_ANY || channel_of<S>(i) < c;
}

/* A lane's elements of a row. */
template <typename T, typename S> struct lane_row {
    raw<T, S::V> part[S::PARTS];
    __device__ inline float at(int i) const {
        return part[i / S::V].at(i % S::V);
    }
    __device__ static inline lane_row of(const float *x) {
        lane_row row;
#pragma unroll
        for (int p = 0; p < S::PARTS; p++)
            row.part[p] = raw<T, S::V>::of(x + p * S::V);
        return row;
    }
};

template <typename T, typename S>
__device__ inline lane_row<T, S> read_row(const T *row, int64_t c) {
    lane_row<T, S> x = {};
#pragma unroll
    for (int p = 0; p < S::PARTS; p++)
        if (is_inside<S>(p * S::V, c)) x.part[p] = read_raw<T, S::V>(row + channel_of<S>(p * S::V));
    return x;
}
/* The same of weights; each is `absent` where there are none. */
template <typename T, typename S>
__device__ inline lane_row<T, S> read_weights(const void *weights, int64_t c, float absent) {
    if (weights) return read_row<T, S>((const T *)weights, c);
    float same[S::N];
#pragma unroll
    for (int i = 0; i < S::N; i++)
        same[i] = absent;
    return lane_row<T, S>::of(same);
}
template <typename T, typename S>
__device__ inline void write_row(T *row, int64_t c, const lane_row<T, S> &x) {
#pragma unroll
    for (int p = 0; p < S::PARTS; p++)
        if (is_inside<S>(p * S::V, c)) write_raw<T, S::V>(row + channel_of<S>(p * S::V), x.part[p]);
}

/* The sum over the lanes of a row; every lane gets it. */
template <typename S> __device__ inline float row_sum(float x) {
#pragma unroll
    for (int step = S::LANES / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

struct row_statistics {
    float mean, rstd;
};

template <typename T, typename S>
__device__ inline row_statistics statistics_of(const lane_row<T, S> &x, int64_t c, float eps) {
    float total = 0, squares = 0, inverse = 1.0f / (float)c;
#pragma unroll
    for (int i = 0; i < S::N; i++)
        total += x.at(i);
    float mean = row_sum<S>(total) * inverse;
#pragma unroll
    for (int i = 0; i < S::N; i++) {
        float d = is_inside<S>(i, c) ? x.at(i) - mean : 0;
        squares += d * d;
    }
    return {mean, 1.0f / sqrtf(row_sum<S>(squares) * inverse + eps)};
}

template <typename T, typename S>
__device__ inline lane_row<T, S> normalised(const lane_row<T, S> &x, row_statistics of,
                                            const lane_row<T, S> &gamma,
                                            const lane_row<T, S> &beta) {
    float y[S::N];
#pragma unroll
    for (int i = 0; i < S::N; i++)
        y[i] = (x.at(i) - of.mean) * of.rstd * gamma.at(i) + beta.at(i);
    return lane_row<T, S>::of(y);
}

/* The number of this lane's group of rows in the grid, for blocks of `warps` warps. */
template <typename S> __device__ inline uint32_t first_group(uint32_t warps) {
    uint32_t warp = blockIdx.x * warps + threadIdx.x / 32;
    return warp * S::GROUPS + threadIdx.x % 32 / S::LANES;
}

/* -- launches */

/* Which shape of kernel takes a row: by its width in packs of 16 bytes when all operands are even
 * (aligned, whole packs), else ANY by single elements, at most 1024. */
enum norm_path { NORM_16, NORM_64, NORM_128, NORM_256, NORM_384, NORM_768, NORM_ANY };

inline norm_path choose_norm(int64_t c, bool is_even) {
    assert(c <= 1024);
    return !is_even   ? NORM_ANY
           : c == 16  ? NORM_16
           : c == 64  ? NORM_64
           : c == 128 ? NORM_128
           : c == 256 ? NORM_256
           : c == 384 ? NORM_384
           : c == 768 ? NORM_768
                      : NORM_ANY;
}

/* Calls f with the shape of the path. update_norm has no shape for 768 channels (HAS_768 is false):
 * no model has such rows, and its backward in f32 would need more registers than there are. */
template <typename T, bool HAS_768, typename F> inline void with_shape(norm_path path, F f) {
    constexpr int V = vector_of<T>(), TWO = V == 8 ? 2 : 1;
    switch (path) {
    case NORM_16: f(norm_shape<16 / V, 1, V, 4, 2>()); return;
    case NORM_64: f(norm_shape<64 / V, 1, V, 4, 2>()); return;
    case NORM_128: f(norm_shape<128 / V, 1, V, 4, 2>()); return;
    case NORM_256: f(norm_shape<32, 8 / V, V, 2 * TWO, TWO>()); return;
    case NORM_384: f(norm_shape<32 / TWO, 3, V, 1>()); return;
    case NORM_768:
        if constexpr (HAS_768) {
            f(norm_shape<32, 24 / V, V, 1>());
            return;
        }
        [[fallthrough]];
    default: f(norm_shape<32, 32, 1, 1>()); return;
    }
}

} // namespace fm_cuda

#endif
