/* dropout.cu: shared-axis dropout: the mask is drawn where it is used, forward and backward. A
 * thread takes four neighbouring channels, which share one Philox block where c is a multiple of
 * four; moves x, the residual and y once. */
#include "trainer/backend/cuda/families.cuh"

namespace fm_cuda {

/* What an element is multiplied by. */
__device__ inline float keep_of(const fm_dropout &d, uint32_t threshold, float kept,
                                int64_t index) {
    if (d.rate == 0) return 1;
    int64_t k = index % d.c, j = index / d.c % d.n1, i = index / d.c / d.n1;
    uint64_t draw = fm_dropout_index(d.shared, (uint64_t)(d.offset0 + i), (uint64_t)(d.offset1 + j),
                                     (uint64_t)k, (uint64_t)d.global_n1, (uint64_t)d.c);
    return fm_draw_word(&d.draw, draw) < threshold ? 0 : kept;
}

/* The same of four channels from a multiple of four on: one block of words. */
__device__ inline void keep_four(const fm_dropout &d, uint32_t threshold, float kept, int64_t index,
                                 float keep[4]) {
    int64_t k = index % d.c, j = index / d.c % d.n1, i = index / d.c / d.n1;
    uint64_t draw = fm_dropout_index(d.shared, (uint64_t)(d.offset0 + i), (uint64_t)(d.offset1 + j),
                                     (uint64_t)k, (uint64_t)d.global_n1, (uint64_t)d.c);
    fm_philox_counter words = fm_draw_block(&d.draw, draw);
#pragma unroll
    for (int n = 0; n < 4; n++)
        keep[n] = d.rate == 0 ? 1 : words.word[n] < threshold ? 0 : kept;
}

/* y = residual + keep * x; exactly one of residual and beta adds. */
template <typename T>
static void dropout_all(fm_stream *stream, const fm_dropout *args, const T *residual, const T *x,
                        T *y, fm_beta beta) {
    assert(args->rate >= 0 && args->rate < 1);
    fm_dropout d = *args;
    uint32_t threshold = fm_drop_threshold(d.rate);
    float kept = (float)(1 / (1 - d.rate));
    int64_t n = d.n0 * d.n1 * d.c;
    if (d.c % 4 == 0 && is_aligned(x) && is_aligned(y) && is_aligned(residual)) {
        each(stream, n / 4, [=] __device__(int64_t four) {
            int64_t i = four * 4;
            float keep[4], v[4], old[4] = {0, 0, 0, 0};
            load<T, 4>(x + i, v);
            if (residual) load<T, 4>(residual + i, old);
            keep_four(d, threshold, kept, i, keep);
#pragma unroll
            for (int c = 0; c < 4; c++)
                v[c] = keep[c] * v[c] + old[c];
            put_pack<T, 4>(y + i, beta, v);
        });
        return;
    }
    each(stream, n, [=] __device__(int64_t i) {
        float value = keep_of(d, threshold, kept, i) * get(x[i]);
        if (residual) value += get(residual[i]);
        put(y + i, beta, value);
    });
}

template <typename T>
void dropout(fm_stream *stream, const fm_dropout *d, const void *residual, const void *x, void *y) {
    dropout_all(stream, d, (const T *)residual, (const T *)x, (T *)y, FM_WRITE);
}

template <typename T>
void dropout_grad(fm_stream *stream, const fm_dropout *d, const void *dy, fm_out dx) {
    dropout_all(stream, d, (const T *)NULL, (const T *)dy, (T *)dx.data, dx.beta);
}

#define INSTANTIATE(T)                                                                             \
    template void dropout<T>(fm_stream *, const fm_dropout *, const void *, const void *, void *); \
    template void dropout_grad<T>(fm_stream *, const fm_dropout *, const void *, fm_out);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
