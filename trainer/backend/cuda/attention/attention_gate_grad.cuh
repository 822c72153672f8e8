/* attention_gate_grad.cuh: the element-wise part of attention's backward for the paths by mma.sync.
 * It makes dout' = dout sigmoid(g), the gradient of the ungated output; dg; and
 * delta = <dout', o / sigmoid(g)> = <dout, o>. */
#ifndef FM_BACKEND_CUDA_ATTENTION_GATE_GRAD_CUH
#define FM_BACKEND_CUDA_ATTENTION_GATE_GRAD_CUH

#include "trainer/backend/cuda/attention/attention.cuh"

namespace fm_cuda {

/* What a product takes of dout': in bf16 the store rounds. */
struct as_stored {
    __device__ static float of(float x) {
        return x;
    }
};

/* dout' and delta go to the workspace, dg to its gradient. Arrays are of T (bf16 or float), and
 * OPERAND rounds dout' to what the products take. One thread takes 16 bytes of channels of a
 * (group, batch, query, head), and LANES (4, 8 or 16) neighbouring threads take a row. Heads are
 * fastest, as in memory. */
template <typename T, typename OPERAND, int LANES>
void gate_gradient(fm_stream *stream, const fm_attention *args, const fm_attention_grad *gradient,
                   const attention_space *places) {
    enum { N = 16 / sizeof(T) }; /* channels of a thread */
    fm_attention a = *args;
    fm_attention_grad grad = *gradient;
    attention_space space = *places;
    int64_t n = a.n_group * a.n_batch * a.n_query * a.n_head * LANES;
    each(stream, round_up(n, 32), [=] __device__(int64_t i) {
        unsigned heads = (unsigned)a.n_head, queries = (unsigned)a.n_query;
        unsigned index = (unsigned)(min_size(i, n - 1) / LANES), rest = index / heads;
        unsigned head = index % heads, query = rest % queries, at = rest / queries;
        unsigned batch = at % (unsigned)a.n_batch, group = at / (unsigned)a.n_batch;
        int c = (int)(i % LANES) * N;
        bool is_inside = i < n && c < a.c_head;
        int64_t at_o = offset_of(a.o_stride, group, batch, query, head) + c;
        int64_t at_g = offset_of(a.g_stride, group, batch, query, head) + c;
        int64_t row = row_of(a, group, batch, head) + query;
        float d[N], o[N], g[N], delta = 0;
        if (is_inside) {
            load<T, N>((const T *)grad.dout + at_o, d);
            load<T, N>((const T *)a.o + at_o, o);
            if (a.g) load<T, N>((const T *)a.g + at_g, g);
#pragma unroll
            for (int j = 0; j < N; j++) {
                float product = d[j] * o[j], gate = a.g ? 1.0f / (1.0f + __expf(-g[j])) : 1.0f;
                delta += product;
                d[j] = OPERAND::of(d[j] * gate);
                g[j] = product * (1.0f - gate);
            }
            if (a.g && grad.dg.data) put_pack<T, N>((T *)grad.dg.data + at_g, grad.dg.beta, g);
            store<T, N>((T *)space.dout + row * a.c_head + c, d);
        }
#pragma unroll
        for (int step = 1; step < LANES; step *= 2)
            delta += __shfl_xor_sync(0xffffffffu, delta, step);
        if (is_inside && c == 0) space.delta[row] = delta;
    });
}

} // namespace fm_cuda

#endif
