/* structure_loss.cu: torsion angles (A27), lDDT and aligned-error bins, binary cross-entropy. The
 * bins are f32 without contraction, so that every device finds the same integers. */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/structure/rigid.cuh"

namespace fm_cuda {

enum { ANGLES = 7, CHIS = 4, FIRST_CHI = ANGLES - CHIS };

/* -- torsion angles */

/* Added to the sums of masks, as in the mean of the reference. */
constexpr double TORSION_MASK_EPS = 1e-4;

/* The factors of both sums in the loss, in every thread. */
struct torsion_scales {
    double chi, norm;
};
__device__ inline torsion_scales torsion_scales_of(const fm_torsion_loss &a, double *space) {
    double chis = (double)a.n_batch * mask_sum(a.chi_mask, a.n * CHIS, space);
    double angles = (double)(a.n_batch * ANGLES) * mask_sum(a.seq_mask, a.n, space);
    return {a.chi_weight / (TORSION_MASK_EPS + chis), a.norm_weight / (TORSION_MASK_EPS + angles)};
}

/* The squared distance of a predicted chi angle from the truth or, if the angle is the same after
 * 180 degrees, from its opposite, whichever is nearer. Returns the sign of the nearer one. */
__device__ inline float chi_error(const fm_torsion_loss &a, int64_t i, int chi, const float *angle,
                                  float *ret_square) {
    const float *truth = a.chi + (i * CHIS + chi) * 2;
    float near = 0, opposite = 0;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        float minus = angle[k] - truth[k], plus = angle[k] + truth[k];
        near += minus * minus;
        opposite += plus * plus;
    }
    bool turned = (a.pi_periodic[a.aatype[i]] >> chi & 1) && opposite < near;
    *ret_square = turned ? opposite : near;
    return turned ? -1 : 1;
}

__device__ inline float angle_length(const fm_torsion_loss &a, const float *x) {
    return sqrtf(x[0] * x[0] + x[1] * x[1] + (float)a.eps);
}

/* One block. */
template <typename T> __global__ void __launch_bounds__(512) torsion_kernel(fm_torsion_loss a) {
    __shared__ double space[33];
    torsion_scales scale = torsion_scales_of(a, space);
    double chi_total = 0, norm_total = 0;
    for (int64_t at = threadIdx.x; at < a.n_batch * a.n * ANGLES; at += 512) {
        int64_t i = at / ANGLES % a.n;
        int chi = (int)(at % ANGLES) - FIRST_CHI;
        float angle[2], raw[2], square;
        read_row<2>((const T *)a.unnormalised + 2 * at, raw);
        norm_total += (double)a.seq_mask[i] * fabs((double)angle_length(a, raw) - 1);
        if (chi < 0) continue;
        read_row<2>((const T *)a.angles + 2 * at, angle);
        chi_error(a, i, chi, angle, &square);
        chi_total += (double)a.chi_mask[i * CHIS + chi] * (double)square;
    }
    double total = block_sum(chi_total * scale.chi + norm_total * scale.norm, space);
    if (threadIdx.x == 0) *(float *)a.loss = (float)total;
}

template <typename T> void torsion_loss(fm_stream *stream, const fm_torsion_loss *a) {
    torsion_kernel<T><<<1, 512, 0, queue(stream)>>>(*a);
    FM_LAUNCHED();
}

template <typename T>
__global__ void __launch_bounds__(256) torsion_grad_kernel(fm_torsion_loss a, const float *dloss,
                                                           fm_out dangles, fm_out dunnormalised) {
    __shared__ double space[33];
    torsion_scales scale = torsion_scales_of(a, space);
    int64_t at = blockIdx.x * (int64_t)256 + threadIdx.x;
    if (at >= a.n_batch * a.n * ANGLES) return;
    int64_t i = at / ANGLES % a.n;
    int chi = (int)(at % ANGLES) - FIRST_CHI;
    float d[2] = {0, 0}, raw[2];
    if (chi >= 0) {
        float angle[2], square;
        read_row<2>((const T *)a.angles + 2 * at, angle);
        float sign = chi_error(a, i, chi, angle, &square);
        float slope = (float)(2 * (double)*dloss * scale.chi * (double)a.chi_mask[i * CHIS + chi]);
#pragma unroll
        for (int k = 0; k < 2; k++)
            d[k] = slope * (angle[k] - sign * a.chi[(i * CHIS + chi) * 2 + k]);
    }
    if (dangles.data) put_row<2>((T *)dangles.data + 2 * at, dangles.beta, d);
    if (!dunnormalised.data) return;
    read_row<2>((const T *)a.unnormalised + 2 * at, raw);
    float length = angle_length(a, raw);
    float sign = (length > 1 ? 1.0f : 0.0f) - (length < 1 ? 1.0f : 0.0f);
    float slope = (float)((double)*dloss * scale.norm * (double)a.seq_mask[i]) * sign / length;
    raw[0] *= slope, raw[1] *= slope;
    put_row<2>((T *)dunnormalised.data + 2 * at, dunnormalised.beta, raw);
}

template <typename T>
void torsion_loss_grad(fm_stream *stream, const fm_torsion_loss *a, const void *dloss,
                       fm_out dangles, fm_out dunnormalised) {
    unsigned blocks = (unsigned)divide_up(a->n_batch * a->n * ANGLES, 256);
    torsion_grad_kernel<T>
        <<<blocks, 256, 0, queue(stream)>>>(*a, (const float *)dloss, dangles, dunnormalised);
    FM_LAUNCHED();
}

/* -- bins */

__device__ inline float rooted_distance(const float *x, const float *y, float eps) {
    return __fsqrt_rn(__fadd_rn(eps, square_distance(x, y)));
}

/* One warp per residue; counts are exact in any order. */
template <typename T> __global__ void __launch_bounds__(256) lddt_kernel(fm_lddt_bins a) {
    int64_t i = blockIdx.x * (int64_t)8 + threadIdx.x / 32;
    if (i >= a.n) return;
    float mine[3], theirs[3], eps = (float)a.eps;
    int within = 0, quarters = 0;
    read_row<3>((const T *)a.atoms + (i * ATOMS + 1) * 3, mine);
    for (int64_t j = threadIdx.x % 32; j < a.n; j += 32) {
        float truth = rooted_distance(a.positions + 3 * i, a.positions + 3 * j, eps);
        if (j == i || !(truth < (float)a.cutoff) || a.mask[i] * a.mask[j] == 0) continue;
        read_row<3>((const T *)a.atoms + (j * ATOMS + 1) * 3, theirs);
        float error = fabsf(__fsub_rn(truth, rooted_distance(mine, theirs, eps)));
        within++;
        quarters += (error < 0.5f) + (error < 1.0f) + (error < 2.0f) + (error < 4.0f);
    }
    within = warp_sum(within), quarters = warp_sum(quarters);
    if (threadIdx.x % 32 > 0) return;
    float share = __fdiv_rn(1.0f, __fadd_rn(eps, (float)within));
    float score = __fmul_rn(share, __fadd_rn(eps, 0.25f * (float)quarters));
    int32_t bin = (int32_t)floorf(__fmul_rn(score, (float)a.n_bin));
    a.target[i] = bin < a.n_bin ? bin : a.n_bin - 1;
    ((T *)a.w)[i] = to<T>(a.mask[i]);
}

template <typename T> void lddt_bins(fm_stream *stream, const fm_lddt_bins *a) {
    lddt_kernel<T><<<(unsigned)divide_up(a->n, 8), 256, 0, queue(stream)>>>(*a);
    FM_LAUNCHED();
}

/* Element `axis` of R^T (x - t), in the order and with the roundings of plain C. The elements of a
 * column of the rotation are `step` apart. */
__device__ inline float exact_local(const float *column, int step, const float *offset) {
    float sum = __fmul_rn(column[0], offset[0]);
    sum = __fadd_rn(sum, __fmul_rn(column[step], offset[1]));
    return __fadd_rn(sum, __fmul_rn(column[2 * step], offset[2]));
}

template <typename T>
void aligned_error_bins(fm_stream *stream, const fm_aligned_error_bins *args) {
    fm_aligned_error_bins a = *args;
    float step = (float)(a.last / (double)(a.n_bin - 2));
    each(stream, a.n * a.n, [=] __device__(int64_t at) {
        int64_t i = at / a.n, j = at % a.n;
        float frame[MATRIX], other[3], offset[3], true_offset[3], square = 0;
        const float *truth = a.target_frames + 16 * i, *moved = a.target_frames + 16 * j;
        read_row<MATRIX>((const T *)a.frames + MATRIX * i, frame);
        read_row<3>((const T *)a.frames + MATRIX * j + 9, other);
#pragma unroll
        for (int axis = 0; axis < 3; axis++) {
            offset[axis] = __fsub_rn(other[axis], frame[9 + axis]);
            true_offset[axis] = __fsub_rn(moved[4 * axis + 3], truth[4 * axis + 3]);
        }
#pragma unroll
        for (int axis = 0; axis < 3; axis++) {
            float error = __fsub_rn(exact_local(frame + axis, 3, offset),
                                    exact_local(truth + axis, 4, true_offset));
            square = __fadd_rn(square, __fmul_rn(error, error));
        }
        int32_t bin = 0;
        for (int32_t b = 0; b < a.n_bin - 1; b++)
            bin += square > square_bound(0, step, b);
        a.target[at] = bin;
        ((T *)a.w)[at] = to<T>(a.mask[i] * a.mask[j]);
    });
}

/* -- binary cross-entropy */

template <typename T> __global__ void __launch_bounds__(1024) entropy_kernel(fm_binary_entropy a) {
    __shared__ double space[33];
    double weight = mask_sum(a.w, a.n, space), total = 0;
    for (int64_t i = threadIdx.x; i < a.n; i += 1024) {
        float x = get(((const T *)a.x)[i]);
        double value = (double)(x < 0 ? 0 : x) - (double)x * (double)a.label[i]; /* NaN stays NaN */
        value += (double)log1pf(expf(-fabsf(x)));
        total += (double)a.w[i] * value;
    }
    total = block_sum(total, space);
    if (threadIdx.x == 0) *(float *)a.loss = (float)(total / (a.eps + weight));
}

template <typename T> void binary_entropy(fm_stream *stream, const fm_binary_entropy *a) {
    entropy_kernel<T><<<1, 1024, 0, queue(stream)>>>(*a);
    FM_LAUNCHED();
}

template <typename T>
__global__ void __launch_bounds__(1024)
    entropy_grad_kernel(fm_binary_entropy a, const float *dloss, fm_out dx) {
    __shared__ double space[33];
    double scale = (double)*dloss / (a.eps + mask_sum(a.w, a.n, space));
    int64_t i = blockIdx.x * (int64_t)1024 + threadIdx.x;
    if (i >= a.n) return;
    float slope = (float)(scale * (double)a.w[i]);
    put((T *)dx.data + i, dx.beta, slope * (sigmoid(get(((const T *)a.x)[i])) - a.label[i]));
}

template <typename T>
void binary_entropy_grad(fm_stream *stream, const fm_binary_entropy *a, const void *dloss,
                         fm_out dx) {
    unsigned blocks = (unsigned)divide_up(a->n, 1024);
    entropy_grad_kernel<T><<<blocks, 1024, 0, queue(stream)>>>(*a, (const float *)dloss, dx);
    FM_LAUNCHED();
}

#define INSTANTIATE(T)                                                                             \
    template void torsion_loss<T>(fm_stream *, const fm_torsion_loss *);                           \
    template void torsion_loss_grad<T>(fm_stream *, const fm_torsion_loss *, const void *, fm_out, \
                                       fm_out);                                                    \
    template void lddt_bins<T>(fm_stream *, const fm_lddt_bins *);                                 \
    template void aligned_error_bins<T>(fm_stream *, const fm_aligned_error_bins *);               \
    template void binary_entropy<T>(fm_stream *, const fm_binary_entropy *);                       \
    template void binary_entropy_grad<T>(fm_stream *, const fm_binary_entropy *, const void *,     \
                                         fm_out);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
