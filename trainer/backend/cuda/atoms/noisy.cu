/* noisy.cu: kernels for noisy structures: alignment, augmentation, draws, and the losses and
 * classes that compare them with the truth. Sums over atoms are in double and in a fixed order:
 * first the atoms of a thread, then the tree of block_sum. */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/frame_of_atoms.h"
#include "trainer/backend/normal.h"
#include "trainer/backend/superpose.h"

namespace fm_cuda {

enum { BLOCK = 256 };

template <typename T> __device__ inline float read(const void *x, int64_t i) {
    return get(((const T *)x)[i]);
}

template <typename T> __device__ inline float point_distance(const T *a, const T *b) {
    float square = 0;
    for (int axis = 0; axis < 3; axis++) {
        float d = get(a[axis]) - get(b[axis]);
        square += d * d;
    }
    return sqrtf(square);
}

/* The sum over the block, in every thread. */
__device__ inline double sum_for_all(double x, double *space) {
    __shared__ double total;
    double sum = block_sum(x, space);
    if (threadIdx.x == 0) total = sum;
    __syncthreads();
    sum = total;
    __syncthreads();
    return sum;
}

/* -- moves */

/* Computes the weighted centre of x [n, 3] in every thread; weights NULL means all 1. Returns the
 * sum of the weights. */
template <typename T>
__device__ double weighted_centre(const T *x, const T *w, int64_t n, double eps, double *out,
                                  double *space) {
    double sum[3] = {0, 0, 0}, total = 0;
    for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
        double weight = w ? get(w[i]) : 1;
        total += weight;
        for (int axis = 0; axis < 3; axis++)
            sum[axis] += weight * (double)get(x[3 * i + axis]);
    }
    total = sum_for_all(total, space) + eps;
    for (int axis = 0; axis < 3; axis++) {
        sum[axis] = sum_for_all(sum[axis], space);
        out[axis] = total > 0 ? sum[axis] / total : 0;
    }
    return total;
}

/* One block per batch. */
template <typename T> __global__ void __launch_bounds__(BLOCK) align_kernel(fm_rigid_align a) {
    __shared__ double space[33], rotation[3][3];
    int64_t b = blockIdx.x;
    const T *x = (const T *)a.x + b * a.x_stride, *y = (const T *)a.y + b * a.y_stride;
    const T *w = (const T *)a.w + b * a.w_stride;
    double from[3], to_centre[3], s[3][3] = {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, offset[3];
    weighted_centre(x, w, a.n, 0, from, space);
    weighted_centre(y, w, a.n, 0, to_centre, space);
    for (int64_t i = threadIdx.x; i < a.n; i += BLOCK)
        for (int r = 0; r < 3; r++)
            for (int c = 0; c < 3; c++)
                s[r][c] += (double)get(w[i]) * ((double)get(x[3 * i + r]) - from[r]) *
                           ((double)get(y[3 * i + c]) - to_centre[c]);
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 3; c++)
            s[r][c] = sum_for_all(s[r][c], space);
    if (threadIdx.x == 0) {
        double turn[3][3];
        fm_superpose_rotation(s, turn);
        for (int r = 0; r < 3; r++)
            for (int c = 0; c < 3; c++)
                rotation[r][c] = turn[r][c];
    }
    __syncthreads();
    for (int r = 0; r < 3; r++) {
        offset[r] = to_centre[r];
        for (int c = 0; c < 3; c++)
            offset[r] -= rotation[r][c] * from[c];
    }
    for (int64_t i = threadIdx.x; i < a.n; i += BLOCK)
        for (int r = 0; r < 3; r++) {
            double moved = offset[r];
            for (int c = 0; c < 3; c++)
                moved += rotation[r][c] * (double)get(x[3 * i + c]);
            ((T *)a.moved)[(b * a.n + i) * 3 + r] = to<T>((float)moved);
        }
    if (threadIdx.x != 0 || !a.transform) return;
    float *transform = (float *)a.transform + b * 12;
    for (int r = 0; r < 3; r++) {
        transform[9 + r] = (float)offset[r];
        for (int c = 0; c < 3; c++)
            transform[3 * r + c] = (float)rotation[r][c];
    }
}

template <typename T> void rigid_align(fm_stream *stream, const fm_rigid_align *a) {
    align_kernel<T><<<(unsigned)a->n_batch, BLOCK, 0, queue(stream)>>>(*a);
    FM_LAUNCHED();
}

/* One block per sample. */
template <typename T> __global__ void __launch_bounds__(BLOCK) augment_kernel(fm_augment a) {
    __shared__ double space[33];
    int64_t s = blockIdx.x;
    const T *x = (const T *)a.x + s * a.x_stride, *mask = (const T *)a.mask;
    double centre[3];
    weighted_centre(x, mask, a.n, a.eps, centre, space);
    for (int64_t i = threadIdx.x; i < a.n; i += BLOCK)
        for (int r = 0; r < 3; r++) {
            double moved = read<T>(a.offset, 3 * s + r);
            for (int c = 0; c < 3; c++)
                moved += (double)read<T>(a.rotation, 9 * s + 3 * r + c) *
                         ((double)get(x[3 * i + c]) - centre[c]);
            float known = mask ? get(mask[i]) : 1;
            ((T *)a.y)[(s * a.n + i) * 3 + r] = to<T>((float)moved * known);
        }
}

template <typename T> void augment(fm_stream *stream, const fm_augment *a) {
    augment_kernel<T><<<(unsigned)a->n_sample, BLOCK, 0, queue(stream)>>>(*a);
    FM_LAUNCHED();
}

template <typename T> void draw_normal(fm_stream *stream, int64_t n, const fm_draw *args, void *y) {
    fm_draw draw = *args;
    each(stream, divide_up(n, 2), [=] __device__(int64_t k) {
        fm_philox_counter block = fm_draw_block(&draw, (uint64_t)(2 * k));
        uint32_t word[2] = {k & 1 ? block.word[2] : block.word[0],
                            k & 1 ? block.word[3] : block.word[1]};
        double pair[2];
        fm_normal_pair(word, pair);
        ((T *)y)[2 * k] = to<T>((float)pair[0]);
        if (2 * k + 1 < n) ((T *)y)[2 * k + 1] = to<T>((float)pair[1]);
    });
}

template <typename T>
void draw_rotations(fm_stream *stream, int64_t n, const fm_draw *args, void *y) {
    fm_draw draw = *args;
    each(stream, n, [=] __device__(int64_t i) {
        fm_philox_counter block = fm_draw_block(&draw, (uint64_t)(4 * i));
        double rotation[9];
        fm_uniform_rotation(block.word, rotation);
        for (int k = 0; k < 9; k++)
            ((T *)y)[9 * i + k] = to<T>((float)rotation[k]);
    });
}

/* -- diffusion losses: one block sums, one thread per atom makes a gradient */

template <typename T> __device__ double total_of(const void *x, int64_t n, double *space) {
    double total = 0;
    for (int64_t i = threadIdx.x; i < n; i += BLOCK)
        total += (double)read<T>(x, i);
    return sum_for_all(total, space);
}

template <typename T> __global__ void __launch_bounds__(BLOCK) square_kernel(fm_square_loss a) {
    __shared__ double space[33];
    double divisor = (double)a.n_sample * (a.eps + total_of<T>(a.mask, a.n, space)), loss = 0;
    for (int64_t at = threadIdx.x; at < a.n_sample * a.n; at += BLOCK) {
        double square = 0;
        for (int64_t k = 3 * at; k < 3 * at + 3; k++) {
            double error = (double)read<T>(a.x, k) - (double)read<T>(a.y, k);
            square += error * error;
        }
        loss += (double)read<T>(a.scale, at / a.n) * (double)read<T>(a.w, at % a.n) * square;
    }
    loss = block_sum(loss, space);
    if (threadIdx.x == 0) *(float *)a.loss = (float)(a.factor * loss / divisor);
}

template <typename T> void square_loss(fm_stream *stream, const fm_square_loss *a) {
    square_kernel<T><<<1, BLOCK, 0, queue(stream)>>>(*a);
    FM_LAUNCHED();
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    square_grad_kernel(fm_square_loss a, const float *dloss, fm_out dx) {
    __shared__ double space[33];
    double divisor = (double)a.n_sample * (a.eps + total_of<T>(a.mask, a.n, space));
    double slope = 2 * a.factor * (double)*dloss / divisor;
    int64_t at = blockIdx.x * (int64_t)BLOCK + threadIdx.x;
    if (at >= a.n_sample * a.n * 3) return;
    double error = (double)read<T>(a.x, at) - (double)read<T>(a.y, at);
    double weight = (double)read<T>(a.scale, at / (3 * a.n)) * (double)read<T>(a.w, at / 3 % a.n);
    put((T *)dx.data + at, dx.beta, (float)(slope * weight * error));
}

template <typename T>
void square_loss_grad(fm_stream *stream, const fm_square_loss *a, const void *dloss, fm_out dx) {
    unsigned blocks = (unsigned)divide_up(a->n_sample * a->n * 3, BLOCK);
    square_grad_kernel<T><<<blocks, BLOCK, 0, queue(stream)>>>(*a, (const float *)dloss, dx);
    FM_LAUNCHED();
}

template <typename T> __device__ inline bool is_bond(const fm_bond_loss &a, int64_t p) {
    return a.bond[2 * p] >= 0 && read<T>(a.w, p) > 0;
}

template <typename T> __device__ double bond_divisor(const fm_bond_loss &a, double *space) {
    double total = total_of<T>(a.w, a.n_bond, space);
    return total > 0 ? (double)a.n_sample * total : 1;
}

template <typename T> __global__ void __launch_bounds__(BLOCK) bond_kernel(fm_bond_loss a) {
    __shared__ double space[33];
    double divisor = bond_divisor<T>(a, space), loss = 0;
    for (int64_t at = threadIdx.x; at < a.n_sample * a.n_bond; at += BLOCK) {
        int64_t s = at / a.n_bond, p = at % a.n_bond;
        if (!is_bond<T>(a, p)) continue;
        const T *x = (const T *)a.x + s * a.n * 3;
        double error = (double)point_distance(x + 3 * a.bond[2 * p], x + 3 * a.bond[2 * p + 1]) -
                       (double)read<T>(a.length, p);
        loss += (double)read<T>(a.scale, s) * (double)read<T>(a.w, p) * error * error;
    }
    loss = block_sum(loss, space);
    if (threadIdx.x == 0) *(float *)a.loss = (float)(loss / divisor);
}

template <typename T> void bond_loss(fm_stream *stream, const fm_bond_loss *a) {
    bond_kernel<T><<<1, BLOCK, 0, queue(stream)>>>(*a);
    FM_LAUNCHED();
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    bond_grad_kernel(fm_bond_loss a, const float *dloss, fm_out dx) {
    __shared__ double space[33];
    double slope = 2 * (double)*dloss / bond_divisor<T>(a, space);
    int64_t at = blockIdx.x * (int64_t)BLOCK + threadIdx.x;
    if (at >= a.n_sample * a.n) return;
    int64_t s = at / a.n, i = at % a.n;
    const T *x = (const T *)a.x + s * a.n * 3;
    double d[3] = {0, 0, 0};
    for (int64_t p = 0; p < a.n_bond; p++) {
        int64_t first = a.bond[2 * p], second = a.bond[2 * p + 1];
        if (!is_bond<T>(a, p) || (first != i && second != i)) continue;
        int64_t other = first == i ? second : first;
        double length = (double)point_distance(x + 3 * i, x + 3 * other);
        if (length == 0) continue;
        double pull = (double)read<T>(a.w, p) * (length - (double)read<T>(a.length, p)) / length;
        for (int axis = 0; axis < 3; axis++)
            d[axis] += pull * ((double)get(x[3 * i + axis]) - (double)get(x[3 * other + axis]));
    }
    for (int axis = 0; axis < 3; axis++)
        put((T *)dx.data + 3 * at + axis, dx.beta,
            (float)(slope * (double)read<T>(a.scale, s) * d[axis]));
}

template <typename T>
void bond_loss_grad(fm_stream *stream, const fm_bond_loss *a, const void *dloss, fm_out dx) {
    unsigned blocks = (unsigned)divide_up(a->n_sample * a->n, BLOCK);
    bond_grad_kernel<T><<<blocks, BLOCK, 0, queue(stream)>>>(*a, (const float *)dloss, dx);
    FM_LAUNCHED();
}

/* -- smooth lDDT */

/* Finds the true distance of a pair (l, m). Returns whether the pair counts for l. */
template <typename T>
__device__ inline bool lddt_pair(const fm_smooth_lddt &a, int64_t l, int64_t m, float *distance) {
    if (l == m || read<T>(a.mask, l) == 0 || read<T>(a.mask, m) == 0) return false;
    *distance = point_distance((const T *)a.truth + 3 * l, (const T *)a.truth + 3 * m);
    return *distance < read<T>(a.radius, l);
}

__device__ inline float smooth_score(float error, float *slope) {
    float score = 0, down = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float value = sigmoid((k == 0 ? 0.5f : (float)(1 << (k - 1))) - error);
        score += value / 4;
        down -= value * (1 - value) / 4;
    }
    *slope = down;
    return score;
}

size_t smooth_lddt_workspace(const fm_smooth_lddt *args) {
    return (size_t)args->n * 2 * sizeof(double);
}

/* One block per atom l: partial [n, 2] = its sum of scores over all samples, and its pairs. */
template <typename T>
__global__ void __launch_bounds__(BLOCK) lddt_rows_kernel(fm_smooth_lddt a, double *partial) {
    __shared__ double space[33];
    int64_t l = blockIdx.x;
    double score = 0, count = 0;
    for (int64_t m = threadIdx.x; m < a.n; m += BLOCK) {
        float truth, slope;
        if (!lddt_pair<T>(a, l, m, &truth)) continue;
        count += 1;
        for (int64_t s = 0; s < a.n_sample; s++) {
            const T *x = (const T *)a.x + s * a.n * 3;
            score +=
                (double)smooth_score(fabsf(point_distance(x + 3 * l, x + 3 * m) - truth), &slope);
        }
    }
    score = block_sum(score, space);
    count = block_sum(count, space);
    if (threadIdx.x == 0) partial[2 * l] = score, partial[2 * l + 1] = count;
}

static __global__ void __launch_bounds__(BLOCK)
    lddt_finish_kernel(fm_smooth_lddt a, const double *partial) {
    __shared__ double space[33];
    double score = 0, count = 0;
    for (int64_t l = threadIdx.x; l < a.n; l += BLOCK) {
        score += partial[2 * l];
        count += partial[2 * l + 1];
    }
    score = block_sum(score, space);
    count = block_sum(count, space);
    if (threadIdx.x != 0) return;
    *(float *)a.count = (float)count;
    *(float *)a.loss = (float)(1 - score / ((double)a.n_sample * (a.eps + count)));
}

template <typename T>
void smooth_lddt(fm_stream *stream, const fm_smooth_lddt *a, void *workspace) {
    double *partial = (double *)workspace;
    lddt_rows_kernel<T><<<(unsigned)a->n, BLOCK, 0, queue(stream)>>>(*a, partial);
    FM_LAUNCHED();
    lddt_finish_kernel<<<1, BLOCK, 0, queue(stream)>>>(*a, partial);
    FM_LAUNCHED();
}

/* One warp per atom of a sample. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    lddt_grad_kernel(fm_smooth_lddt a, const float *dloss, fm_out dx) {
    int64_t at = blockIdx.x * (int64_t)(BLOCK / 32) + threadIdx.x / 32;
    if (at >= a.n_sample * a.n) return;
    float factor = -*dloss / ((float)a.n_sample * ((float)a.eps + *(const float *)a.count));
    int64_t s = at / a.n, l = at % a.n;
    const T *x = (const T *)a.x + s * a.n * 3;
    float total[3] = {0, 0, 0};
    for (int64_t m = threadIdx.x % 32; m < a.n; m += 32) {
        float truth = 0, slope;
        int times = (int)lddt_pair<T>(a, l, m, &truth) + (int)lddt_pair<T>(a, m, l, &truth);
        if (!times) continue;
        float d = point_distance(x + 3 * l, x + 3 * m);
        smooth_score(fabsf(d - truth), &slope);
        if (d == 0 || d == truth) continue;
        float pull = (float)times * slope * (d > truth ? 1.0f : -1.0f) / d;
        for (int axis = 0; axis < 3; axis++)
            total[axis] += pull * (get(x[3 * l + axis]) - get(x[3 * m + axis]));
    }
    for (int axis = 0; axis < 3; axis++) {
        float sum = warp_sum(total[axis]);
        if (threadIdx.x % 32 == 0) put((T *)dx.data + 3 * at + axis, dx.beta, factor * sum);
    }
}

template <typename T>
void smooth_lddt_grad(fm_stream *stream, const fm_smooth_lddt *a, const void *dloss, fm_out dx) {
    unsigned blocks = (unsigned)divide_up(a->n_sample * a->n, BLOCK / 32);
    lddt_grad_kernel<T><<<blocks, BLOCK, 0, queue(stream)>>>(*a, (const float *)dloss, dx);
    FM_LAUNCHED();
}

/* -- classes of measured errors */

__device__ inline int32_t error_class(float error, double last, int32_t n_bin) {
    int32_t below = 0;
    for (int32_t k = 0; k <= n_bin; k++)
        below += (float)(last * k / n_bin) < error;
    return (below < 1 ? 1 : below > n_bin ? n_bin : below) - 1;
}

template <typename T> void distance_errors(fm_stream *stream, const fm_distance_errors *args) {
    fm_distance_errors a = *args;
    each(stream, a.n_batch * a.n * a.n, [=] __device__(int64_t at) {
        int64_t i = at / a.n % a.n, j = at % a.n;
        const T *x = (const T *)a.x + at / (a.n * a.n) * a.n * 3, *truth = (const T *)a.truth;
        float error =
            point_distance(x + 3 * i, x + 3 * j) - point_distance(truth + 3 * i, truth + 3 * j);
        a.target[at] = error_class(fabsf(error), a.last, a.n_bin);
        ((T *)a.w)[at] = to<T>(read<T>(a.mask, i) * read<T>(a.mask, j));
    });
}

/* x[atom] in the frame of three atoms. */
template <typename T>
__device__ void in_frame(const T *x, const int32_t *frame, int64_t atom, double *out) {
    double point[4][3];
    for (int k = 0; k < 4; k++)
        for (int axis = 0; axis < 3; axis++)
            point[k][axis] = (double)get(x[3 * (k < 3 ? frame[k] : atom) + axis]);
    fm_express_in_frame(point[0], point[1], point[2], point[3], out);
}

template <typename T> void frame_errors(fm_stream *stream, const fm_frame_errors *args) {
    fm_frame_errors a = *args;
    int64_t n = a.n_token;
    each(stream, a.n_batch * n * n, [=] __device__(int64_t at) {
        const int32_t *frame = a.frame + 3 * (at / n % n);
        int64_t j = a.centre[at % n];
        const T *x = (const T *)a.x + at / (n * n) * a.n_atom * 3;
        float w = j < 0 || frame[0] < 0 ? 0 : read<T>(a.mask, j);
        for (int k = 0; k < 3 && w != 0; k++)
            w *= read<T>(a.mask, frame[k]);
        double here[3], there[3], square = 0;
        if (w != 0) {
            in_frame(x, frame, j, here);
            in_frame((const T *)a.truth, frame, j, there);
            for (int k = 0; k < 3; k++)
                square += (here[k] - there[k]) * (here[k] - there[k]);
        }
        a.target[at] = error_class((float)sqrt(square), a.last, a.n_bin);
        ((T *)a.w)[at] = to<T>(w);
    });
}

/* One warp per atom; counts are exact in any order. */
template <typename T> __global__ void __launch_bounds__(BLOCK) atom_lddt_kernel(fm_atom_lddt a) {
    int64_t at = blockIdx.x * (int64_t)(BLOCK / 32) + threadIdx.x / 32;
    if (at >= a.n_batch * a.n) return;
    int64_t l = at % a.n;
    const T *x = (const T *)a.x + at / a.n * a.n * 3, *truth = (const T *)a.truth;
    int hits = 0, n = 0;
    for (int64_t m = threadIdx.x % 32; m < a.n; m += 32) {
        if (m == l || read<T>(a.mask, m) == 0 || read<T>(a.partner, m) == 0) continue;
        float d = point_distance(truth + 3 * l, truth + 3 * m);
        if (!(d < read<T>(a.radius, m))) continue;
        float error = fabsf(point_distance(x + 3 * l, x + 3 * m) - d);
        hits += (error < 0.5f) + (error < 1.0f) + (error < 2.0f) + (error < 4.0f);
        n++;
    }
    hits = warp_sum(hits);
    n = warp_sum(n);
    if (threadIdx.x % 32 != 0) return;
    int64_t below = hits > 0 ? ((int64_t)a.n_bin * hits + 4 * n - 1) / (4 * n) : 0;
    a.target[at] = (int32_t)min_size(max_size(below, 1), a.n_bin) - 1;
    ((T *)a.w)[at] = to<T>(read<T>(a.mask, l));
}

template <typename T> void atom_lddt(fm_stream *stream, const fm_atom_lddt *a) {
    unsigned blocks = (unsigned)divide_up(a->n_batch * a->n, BLOCK / 32);
    atom_lddt_kernel<T><<<blocks, BLOCK, 0, queue(stream)>>>(*a);
    FM_LAUNCHED();
}

#define INSTANTIATE(T)                                                                             \
    template void rigid_align<T>(fm_stream *, const fm_rigid_align *);                             \
    template void augment<T>(fm_stream *, const fm_augment *);                                     \
    template void draw_normal<T>(fm_stream *, int64_t, const fm_draw *, void *);                   \
    template void draw_rotations<T>(fm_stream *, int64_t, const fm_draw *, void *);                \
    template void square_loss<T>(fm_stream *, const fm_square_loss *);                             \
    template void square_loss_grad<T>(fm_stream *, const fm_square_loss *, const void *, fm_out);  \
    template void bond_loss<T>(fm_stream *, const fm_bond_loss *);                                 \
    template void bond_loss_grad<T>(fm_stream *, const fm_bond_loss *, const void *, fm_out);      \
    template void smooth_lddt<T>(fm_stream *, const fm_smooth_lddt *, void *);                     \
    template void smooth_lddt_grad<T>(fm_stream *, const fm_smooth_lddt *, const void *, fm_out);  \
    template void distance_errors<T>(fm_stream *, const fm_distance_errors *);                     \
    template void frame_errors<T>(fm_stream *, const fm_frame_errors *);                           \
    template void atom_lddt<T>(fm_stream *, const fm_atom_lddt *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
