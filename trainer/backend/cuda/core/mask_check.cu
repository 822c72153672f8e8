/* mask_check.cu: see mask_check.cuh. A device assertion ends the process: the next checked call
 * fails with "device-side assert triggered". */
#include "trainer/backend/cuda/core/mask_check.cuh"
#include "trainer/backend/cuda/core/families.cuh"

namespace fm_cuda {

template <typename T> static void check_mask(fm_stream *stream, const fm_attention *args) {
    fm_attention a = *args;
    if (!a.mask) return;
    each(stream, a.n_group * a.n_batch * a.n_key, [=] __device__(int64_t i) {
        int64_t key = i % a.n_key, batch = i / a.n_key % a.n_batch, group = i / a.n_key / a.n_batch;
        int64_t at = group * a.mask_stride[0] + batch * a.mask_stride[1] + key * a.mask_stride[2];
        float mask = get(((const typename stored<T>::type *)a.mask)[at]);
        assert(mask == 0 || mask == 1);
    });
}

template <typename T>
void checked_attention(fm_stream *stream, const fm_attention *args, void *workspace) {
    check_mask<T>(stream, args);
    attention<T>(stream, args, workspace);
}

template <typename T>
void checked_attention_grad(fm_stream *stream, const fm_attention *args,
                            const fm_attention_grad *grad, void *workspace) {
    check_mask<T>(stream, args);
    attention_grad<T>(stream, args, grad, workspace);
}

#define INSTANTIATE(T)                                                                             \
    template void checked_attention<T>(fm_stream *, const fm_attention *, void *);                 \
    template void checked_attention_grad<T>(fm_stream *, const fm_attention *,                     \
                                            const fm_attention_grad *, void *);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(tf32)

} // namespace fm_cuda
