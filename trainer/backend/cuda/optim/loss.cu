/* loss.cu: distance bins and ids, and weighted softmax cross-entropy. Distances are compared as in
 * the reference, in f32 without contraction, so that every device finds the same integers. */
#include "trainer/backend/cuda/core/families.cuh"

namespace fm_cuda {

template <typename T>
void distance_bins(fm_stream *stream, int64_t n_i, int64_t n_j, const float *x_i, const float *x_j,
                   const float *mask_i, const float *mask_j, int32_t n_bin, float first, float last,
                   int32_t *target, void *w) {
    assert(n_bin >= 3);
    float step = (last - first) / (float)(n_bin - 2);
    each(stream, n_i * n_j, [=] __device__(int64_t at) {
        int64_t i = at / n_j, j = at % n_j;
        float square = square_distance(x_i + 3 * i, x_j + 3 * j);
        int32_t bin = 0;
        for (int32_t b = 0; b < n_bin - 1; b++)
            bin += square > square_bound(first, step, b);
        target[at] = bin;
        ((T *)w)[at] = to<T>(mask_i[i] * mask_j[j]);
    });
}

void distance_ids(fm_stream *stream, int64_t n_i, int64_t n_j, const float *x_i, const float *x_j,
                  int32_t n_bin, float first, float last, float most_square, uint8_t *ids) {
    assert(n_bin >= 2 && n_bin < 255);
    float step = (last - first) / (float)(n_bin - 1);
    each(stream, n_i * n_j, [=] __device__(int64_t at) {
        float square = square_distance(x_i + 3 * (at / n_j), x_j + 3 * (at % n_j));
        uint8_t id = 255;
        for (int32_t b = 0; b < n_bin; b++) {
            float bound = square_bound(first, step, b);
            if (square > bound) id = (uint8_t)b;
            if (square == bound) id = 255; /* a bound belongs to no interval */
        }
        ids[at] = square < most_square ? id : 255;
    });
}

/* Holds weight * loss and weight of every row. */
size_t cross_entropy_workspace(int64_t rows) {
    return (size_t)(2 * rows) * sizeof(float);
}

/* One warp per row. */
template <typename T>
__global__ void __launch_bounds__(256) row_loss_kernel(fm_cross_entropy a, float *terms) {
    int lane = threadIdx.x % 32;
    int64_t r = blockIdx.x * (int64_t)8 + threadIdx.x / 32;
    if (r >= a.rows) return;
    const T *x = (const T *)a.x + r * a.ldx;
    float largest = -INFINITY, total = 0;
    for (int64_t i = lane; i < a.n_class; i += 32)
        largest = fmaxf(largest, get(x[i]));
    largest = warp_max(largest);
    for (int64_t i = lane; i < a.n_class; i += 32)
        total += expf(get(x[i]) - largest);
    float lse = largest + logf(warp_sum(total));
    if (lane > 0) return;
    ((float *)a.lse)[r] = lse;
    bool is_class = a.target[r] >= 0 && a.target[r] < a.n_class;
    float weight = is_class ? get(((const T *)a.w)[r]) : 0;
    terms[2 * r] = is_class ? weight * (lse - get(x[a.target[r]])) : 0;
    terms[2 * r + 1] = weight;
}

__global__ void __launch_bounds__(1024) loss_kernel(fm_cross_entropy a, const float *terms) {
    __shared__ double space[32];
    double loss = 0, weight = 0;
    for (int64_t r = threadIdx.x; r < a.rows; r += 1024) {
        loss += (double)terms[2 * r];
        weight += (double)terms[2 * r + 1];
    }
    loss = block_sum(loss, space);
    weight = block_sum(weight, space);
    if (threadIdx.x > 0) return;
    *(float *)a.weight_sum = (float)weight;
    *(float *)a.loss = (float)(loss / (a.eps + weight));
}

template <typename T>
void cross_entropy(fm_stream *stream, const fm_cross_entropy *a, void *workspace) {
    float *terms = (float *)workspace;
    row_loss_kernel<T><<<(unsigned)divide_up(a->rows, 8), 256, 0, queue(stream)>>>(*a, terms);
    FM_LAUNCHED();
    loss_kernel<<<1, 1024, 0, queue(stream)>>>(*a, terms);
    FM_LAUNCHED();
}

template <typename T>
void cross_entropy_grad(fm_stream *stream, const fm_cross_entropy *args, const void *dloss,
                        fm_out dx) {
    fm_cross_entropy a = *args;
    each(stream, a.rows * a.n_class, [=] __device__(int64_t at) {
        int64_t r = at / a.n_class, i = at % a.n_class;
        double scale =
            (double)*(const float *)dloss / (a.eps + (double)*(const float *)a.weight_sum);
        int32_t target = a.target[r];
        bool is_class = target >= 0 && target < a.n_class;
        float factor = is_class ? (float)(scale * (double)get(((const T *)a.w)[r])) : 0;
        float p = expf(get(((const T *)a.x)[r * a.ldx + i]) - ((const float *)a.lse)[r]);
        put((T *)dx.data + r * a.ldx + i, dx.beta, factor * (p - (i == target ? 1.0f : 0.0f)));
    });
}

#define INSTANTIATE(T)                                                                             \
    template void distance_bins<T>(fm_stream *, int64_t, int64_t, const float *, const float *,    \
                                   const float *, const float *, int32_t, float, float, int32_t *, \
                                   void *);                                                        \
    template void cross_entropy<T>(fm_stream *, const fm_cross_entropy *, void *);                 \
    template void cross_entropy_grad<T>(fm_stream *, const fm_cross_entropy *, const void *,       \
                                        fm_out);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
