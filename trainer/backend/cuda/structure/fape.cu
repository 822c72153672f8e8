/* fape.cu: frame aligned point error (A28), and the naming of ambiguous atoms that fits best
 * (A26). */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/structure/rigid.cuh"

namespace fm_cuda {

/* -- one error */

/* The target frame f in a thread's registers: a rotation and a translation. */
__device__ inline void read_target(const float *frame, float *out) {
#pragma unroll
    for (int row = 0; row < 3; row++) {
        read_row<3>(frame + 4 * row, out + 3 * row);
        out[9 + row] = frame[4 * row + 3];
    }
}

/* The predicted and the true position of a point. Without points they are the translations of the
 * frames. */
template <typename T>
__device__ inline void read_point(const fm_fape &a, int64_t b, int64_t p, float *x, float *truth) {
    if (a.points) {
        read_row<3>((const T *)a.points + (b * a.n_point + p) * 3, x);
        read_row<3>(a.target_points + 3 * p, truth);
        return;
    }
    read_row<3>((const T *)a.frames + (b * a.n_point + p) * MATRIX + 9, x);
#pragma unroll
    for (int axis = 0; axis < 3; axis++)
        truth[axis] = a.target_frames[16 * p + 4 * axis + 3];
}

/* The error vector of a point in a frame, and offset = point - translation. Returns its length. */
__device__ inline float point_error(const float *frame, const float *target, const float *x,
                                    const float *truth, float eps, float *offset, float *error) {
    float local[3], true_offset[3], true_local[3], square = 0;
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        offset[axis] = x[axis] - frame[9 + axis];
        true_offset[axis] = truth[axis] - target[9 + axis];
    }
    rotate_back(frame, offset, local);
    rotate_back(target, true_offset, true_local);
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        error[axis] = local[axis] - true_local[axis];
        square += error[axis] * error[axis];
    }
    return sqrtf(square + eps);
}

/* 1 / the product of all that the sum of errors is divided by, in every thread. */
__device__ inline double fape_scale(const fm_fape &a, double *space) {
    double frames = mask_sum(a.frame_mask, a.n_frame, space);
    double points = mask_sum(a.point_mask, a.n_point, space);
    return 1 / (a.length_scale * (a.eps + frames) * (a.eps + points) * (double)a.n_batch);
}

/* The gradient of one error. `error` becomes slope * error, and `turned` the same in global axes.
 * `factor` is that of the loss, with the mask of the frame. */
__device__ inline void error_grad(const fm_fape &a, float clamped, float factor, float point_mask,
                                  float length, const float *frame, float *error, float *turned) {
    float share = (length <= (float)a.clamp ? clamped : 0) + (1 - clamped);
    float slope = factor * point_mask * share / length;
#pragma unroll
    for (int axis = 0; axis < 3; axis++)
        error[axis] *= slope;
    rotate(frame, error, turned);
}

__device__ inline float clamped_share(const fm_fape &a) {
    return a.clamped ? *a.clamped : 1;
}

/* -- forward */

/* One warp per frame. */
constexpr int FAPE_WARPS = 8, FAPE_THREADS = 32 * FAPE_WARPS;

static int64_t fape_blocks(const fm_fape *a) {
    return divide_up(a->n_batch * a->n_frame, FAPE_WARPS);
}

/* One partial sum per block of frames. */
size_t fape_workspace(const fm_fape *a) {
    return (size_t)fape_blocks(a) * sizeof(double);
}

template <typename T>
__global__ void __launch_bounds__(FAPE_THREADS) fape_kernel(fm_fape a, double *partial) {
    __shared__ double space[32];
    int64_t row = blockIdx.x * (int64_t)FAPE_WARPS + threadIdx.x / 32;
    int64_t b = row / a.n_frame, f = row % a.n_frame;
    float mask = row < a.n_batch * a.n_frame ? a.frame_mask[f] : 0;
    double total = 0;
    if (mask != 0) {
        float frame[MATRIX], target[MATRIX], clamped = clamped_share(a);
        read_row<MATRIX>((const T *)a.frames + row * MATRIX, frame);
        read_target(a.target_frames + 16 * f, target);
        for (int64_t p = threadIdx.x % 32; p < a.n_point; p += 32) {
            float x[3], truth[3], offset[3], error[3];
            read_point<T>(a, b, p, x, truth);
            float d = point_error(frame, target, x, truth, (float)a.eps, offset, error);
            float cut = d > (float)a.clamp ? (float)a.clamp : d; /* NaN stays NaN */
            total += (double)(a.point_mask[p] * (clamped * cut + (1 - clamped) * d));
        }
    }
    total = block_sum(total * (double)mask, space);
    if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

__global__ void __launch_bounds__(1024)
    fape_sum_kernel(fm_fape a, const double *partial, int64_t blocks) {
    __shared__ double space[33];
    double scale = fape_scale(a, space), total = 0;
    for (int64_t i = threadIdx.x; i < blocks; i += 1024)
        total += partial[i];
    total = block_sum(total, space);
    if (threadIdx.x == 0) *(float *)a.loss = (float)(total * scale);
}

template <typename T> void fape(fm_stream *stream, const fm_fape *a, void *workspace) {
    double *partial = (double *)workspace;
    int64_t blocks = fape_blocks(a);
    fape_kernel<T><<<(unsigned)blocks, FAPE_THREADS, 0, queue(stream)>>>(*a, partial);
    FM_LAUNCHED();
    fape_sum_kernel<<<1, 1024, 0, queue(stream)>>>(*a, partial, blocks);
    FM_LAUNCHED();
}

/* -- backward */

/* The gradient of frame `row` as the frame of all points: rotation and translation, a lane's
 * share. */
template <typename T>
__device__ inline void frame_share(const fm_fape &a, int64_t row, float factor, float *d) {
    float frame[MATRIX], target[MATRIX], clamped = clamped_share(a);
    int64_t b = row / a.n_frame;
    read_row<MATRIX>((const T *)a.frames + row * MATRIX, frame);
    read_target(a.target_frames + 16 * (row % a.n_frame), target);
    for (int64_t p = threadIdx.x % 32; p < a.n_point; p += 32) {
        float x[3], truth[3], offset[3], error[3], turned[3];
        read_point<T>(a, b, p, x, truth);
        float length = point_error(frame, target, x, truth, (float)a.eps, offset, error);
        error_grad(a, clamped, factor, a.point_mask[p], length, frame, error, turned);
        add_outer(d, offset, error);
#pragma unroll
        for (int axis = 0; axis < 3; axis++)
            d[9 + axis] -= turned[axis];
    }
}

/* Adds to d the gradient of point p of a batch from frames first, first + step, ... */
template <typename T>
__device__ inline void point_share(const fm_fape &a, int64_t b, int64_t p, double scale, int first,
                                   int step, float *d) {
    float x[3], truth[3], clamped = clamped_share(a), point_mask = a.point_mask[p];
    read_point<T>(a, b, p, x, truth);
    for (int64_t f = first; f < a.n_frame; f += step) {
        if (a.frame_mask[f] == 0) continue;
        float frame[MATRIX], target[MATRIX], offset[3], error[3], turned[3];
        read_row<MATRIX>((const T *)a.frames + (b * a.n_frame + f) * MATRIX, frame);
        read_target(a.target_frames + 16 * f, target);
        float length = point_error(frame, target, x, truth, (float)a.eps, offset, error);
        float factor = (float)(scale * (double)a.frame_mask[f]);
        error_grad(a, clamped, factor, point_mask, length, frame, error, turned);
        add3(d, turned);
    }
}

/* One warp per frame. When the frames are also the points, the frame gets both shares. */
template <typename T>
__global__ void __launch_bounds__(FAPE_THREADS)
    fape_frame_kernel(fm_fape a, const float *dloss, fm_out dframes) {
    __shared__ double space[33];
    double scale = (double)*dloss * fape_scale(a, space);
    int lane = threadIdx.x % 32;
    int64_t row = blockIdx.x * (int64_t)FAPE_WARPS + threadIdx.x / 32;
    if (row >= a.n_batch * a.n_frame) return;
    int64_t b = row / a.n_frame, f = row % a.n_frame;
    float d[MATRIX] = {0}, mask = a.frame_mask[f];
    if (mask != 0) frame_share<T>(a, row, (float)(scale * (double)mask), d);
    if (!a.points) point_share<T>(a, b, f, scale, lane, 32, d + 9);
    warp_sums<MATRIX>(d);
    if (lane == 0) put_row<MATRIX>((T *)dframes.data + row * MATRIX, dframes.beta, d);
}

/* A block has 32 points, one per lane; its warps divide the frames. */
template <typename T>
__global__ void __launch_bounds__(1024)
    fape_point_kernel(fm_fape a, const float *dloss, fm_out dpoints) {
    __shared__ double space[33];
    __shared__ float part[32][3][33];
    double scale = (double)*dloss * fape_scale(a, space);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t b = blockIdx.y, first = blockIdx.x * (int64_t)32;
    float d[3] = {0};
    if (first + lane < a.n_point) point_share<T>(a, b, first + lane, scale, warp, 32, d);
#pragma unroll
    for (int axis = 0; axis < 3; axis++)
        part[warp][axis][lane] = d[axis];
    __syncthreads();
    int point = threadIdx.x / 3, axis = threadIdx.x % 3;
    if (point >= 32 || first + point >= a.n_point) return;
    float total = 0;
    for (int w = 0; w < 32; w++)
        total += part[w][axis][point];
    put((T *)dpoints.data + (b * a.n_point + first + point) * 3 + axis, dpoints.beta, total);
}

template <typename T>
void fape_grad(fm_stream *stream, const fm_fape *a, const void *dloss, fm_out dframes,
               fm_out dpoints) {
    const float *slope = (const float *)dloss;
    assert(dframes.data && (a->points || a->n_point == a->n_frame));
    unsigned blocks = (unsigned)fape_blocks(a);
    fape_frame_kernel<T><<<blocks, FAPE_THREADS, 0, queue(stream)>>>(*a, slope, dframes);
    FM_LAUNCHED();
    if (!a->points || !dpoints.data) return;
    dim3 tiles((unsigned)divide_up(a->n_point, 32), (unsigned)a->n_batch);
    fape_point_kernel<T><<<tiles, 1024, 0, queue(stream)>>>(*a, slope, dpoints);
    FM_LAUNCHED();
}

/* -- naming */

__device__ inline double distance_of(const float *x, const float *y) {
    double square = 1e-10;
#pragma unroll
    for (int axis = 0; axis < 3; axis++)
        square += (double)(x[axis] - y[axis]) * (double)(x[axis] - y[axis]);
    return sqrt(square);
}

/* By how much the distance of atom k from the ambiguous atom m fits worse under the given names. */
template <typename T>
__device__ inline double naming_term(const fm_naming &a, int64_t m, int64_t k) {
    float x[3], y[3];
    read_row<3>((const T *)a.atoms + 3 * m, x);
    read_row<3>((const T *)a.atoms + 3 * k, y);
    double d = distance_of(x, y);
    double given = d - distance_of(a.positions + 3 * m, a.positions + 3 * k);
    double other = d - distance_of(a.alt_positions + 3 * m, a.alt_positions + 3 * k);
    return sqrt(1e-10 + given * given) - sqrt(1e-10 + other * other);
}

/* One block per residue. */
template <typename T> __global__ void __launch_bounds__(256) naming_kernel(fm_naming a) {
    __shared__ double space[32];
    __shared__ bool takes_other;
    int64_t i = blockIdx.x;
    double gain = 0;
    for (int64_t m = i * ATOMS; m < (i + 1) * ATOMS; m++) { /* A26:1-4 */
        if (a.exists[m] * a.is_ambiguous[m] == 0) continue;
        for (int64_t k = threadIdx.x; k < a.n * ATOMS; k += 256)
            if (a.exists[k] * (1 - a.is_ambiguous[k]) != 0) gain += naming_term<T>(a, m, k);
    }
    gain = block_sum(gain, space);
    if (threadIdx.x == 0) takes_other = gain > 0; /* A26:5 */
    __syncthreads();
    const float *positions = takes_other ? a.alt_positions : a.positions;
    const float *exists = takes_other ? a.alt_exists : a.exists;
    const float *frames = takes_other ? a.alt_frames : a.frames;
    int t = threadIdx.x;
    if (t < ATOMS * 3) a.ret_positions[i * ATOMS * 3 + t] = positions[i * ATOMS * 3 + t];
    if (t < ATOMS) a.ret_exists[i * ATOMS + t] = exists[i * ATOMS + t];
    if (t < GROUPS * 16) a.ret_frames[i * GROUPS * 16 + t] = frames[i * GROUPS * 16 + t];
}

template <typename T> void choose_naming(fm_stream *stream, const fm_naming *a) {
    naming_kernel<T><<<(unsigned)a->n, 256, 0, queue(stream)>>>(*a);
    FM_LAUNCHED();
}

#define INSTANTIATE(T)                                                                             \
    template void fape<T>(fm_stream *, const fm_fape *, void *);                                   \
    template void fape_grad<T>(fm_stream *, const fm_fape *, const void *, fm_out, fm_out);        \
    template void choose_naming<T>(fm_stream *, const fm_naming *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
