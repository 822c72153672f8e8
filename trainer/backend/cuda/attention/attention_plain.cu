/* attention_plain.cu: gated attention for any shape up to c_head 64, in f32 arithmetic.
 *
 * Forward and dq have one thread per output row, which walks the keys. The pass for dk and dv has
 * one thread per key, which walks the queries. The pass for dbias has one thread per bias element,
 * which walks the batches. The threads of a warp are neighbours along the row axis of one (batch,
 * head). All of them thus read the same address of the axis that they walk, and the L1 cache serves
 * it.
 *
 * Forward is the online softmax: the thread keeps the largest logit so far, the sum of the weights
 * exp(logit - largest) and the weighted sum of the values. When a larger logit comes, it multiplies
 * both sums by exp(old largest - new largest). The log-sum-exp of the row is stored for backward.
 *
 * Backward stores no logits and uses no atomics: each pass recomputes the weights as
 * P = exp(logit - lse). With dP = <dout', v> and delta = <P, dP> = <dout', o>, where dout' is the
 * gradient of the ungated output o:
 *
 *     dS = P (dP - delta)    dq = scale dS k    dk = scale dS^T q    dv = P^T dout'    dbias = dS
 *
 * Arithmetic bounds these kernels: forward, dq and dk/dv cost 2, 5 and 4 products of c_head per
 * (query, key). A batch without a single valid key gets no mask (docs/reference/numerics.md). */
#include "trainer/backend/cuda/attention/attention.cuh"

namespace fm_cuda {

/* Whether each batch has a valid key: one warp per batch. */
template <typename T>
static void find_valid(fm_stream *stream, const fm_attention &args, uint8_t *valid) {
    fm_attention a = args;
    each(stream, a.n_group * a.n_batch * 32, [=] __device__(int64_t i) {
        int64_t at = i / 32, group = at / a.n_batch, batch = at % a.n_batch;
        const T *mask = (const T *)a.mask + group * a.mask_stride[0] + batch * a.mask_stride[1];
        bool any = false;
        for (int64_t k = i % 32; k < a.n_key; k += 32)
            any |= get(mask[k * a.mask_stride[2]]) != 0;
        any = __any_sync(0xffffffffu, any);
        if (i % 32 == 0) valid[at] = any;
    });
}

/* One (group, batch, head), with all that a thread needs to compute logits. */
template <typename T> struct place {
    int64_t group, batch, head, kv_head;
    const T *bias, *mask; /* at (group, head) and (group, batch), or NULL */
};

template <typename T>
__device__ inline place<T> place_of(const fm_attention &a, const uint8_t *valid, int64_t group,
                                    int64_t batch, int64_t head) {
    place<T> p = {group, batch, head, a.n_kv_head == 1 ? 0 : head, NULL, NULL};
    if (a.bias) p.bias = (const T *)a.bias + group * a.bias_stride[0] + head * a.bias_stride[1];
    if (a.mask && valid[group * a.n_batch + batch]) {
        p.mask = (const T *)a.mask + group * a.mask_stride[0] + batch * a.mask_stride[1];
    }
    return p;
}

template <typename T, int C> __device__ inline void read_row(const T *p, int64_t c, float *x) {
#pragma unroll
    for (int i = 0; i < C; i++)
        x[i] = i < c ? get(p[i]) : 0;
}

/* <x, row> over c channels; x is 0 beyond them. */
template <typename T, int C> __device__ inline float dot(const float *x, const T *row, int64_t c) {
    float total = 0;
#pragma unroll
    for (int i = 0; i < C; i++)
        if (i < c) total += x[i] * get(row[i]);
    return total;
}

template <typename T, int C>
__device__ inline float logit(const fm_attention &a, const place<T> &p, const float *x,
                              const T *other, int64_t query, int64_t key) {
    float value = (float)a.scale * dot<T, C>(x, other, a.c_head);
    if (p.bias) value += get(p.bias[query * a.bias_stride[2] + key * a.bias_stride[3]]);
    if (p.mask) value += (float)a.mask_value * (get(p.mask[key * a.mask_stride[2]]) - 1.0f);
    return value;
}

template <typename T, int C>
__global__ void __launch_bounds__(128) plain_forward(fm_attention a, const uint8_t *valid) {
    int64_t i = blockIdx.x * (int64_t)128 + threadIdx.x, query = i % a.n_query, at = i / a.n_query;
    int64_t head = at % a.n_head, batch = at / a.n_head % a.n_batch;
    int64_t group = at / a.n_head / a.n_batch;
    if (group >= a.n_group) return;
    place<T> p = place_of<T>(a, valid, group, batch, head);
    const T *k = (const T *)a.k + offset_of(a.k_stride, group, batch, 0, p.kv_head);
    const T *v = (const T *)a.v + offset_of(a.v_stride, group, batch, 0, p.kv_head);
    float q[C], o[C], largest = -INFINITY, total = 0;
    read_row<T, C>((const T *)a.q + offset_of(a.q_stride, group, batch, query, head), a.c_head, q);
#pragma unroll
    for (int c = 0; c < C; c++)
        o[c] = 0;
    for (int64_t key = 0; key < a.n_key; key++) {
        float s = logit<T, C>(a, p, q, k + key * a.k_stride.row, query, key);
        if (s > largest) { /* rare after the first keys */
            float shrink = expf(largest - s);
            total *= shrink;
#pragma unroll
            for (int c = 0; c < C; c++)
                o[c] *= shrink;
            largest = s;
        }
        float weight = expf(s - largest);
        const T *row = v + key * a.v_stride.row;
        total += weight;
#pragma unroll
        for (int c = 0; c < C; c++)
            if (c < a.c_head) o[c] += weight * get(row[c]);
    }
    T *out = (T *)a.o + offset_of(a.o_stride, group, batch, query, head);
    const T *g = a.g ? (const T *)a.g + offset_of(a.g_stride, group, batch, query, head) : NULL;
    float inverse = 1.0f / total;
#pragma unroll
    for (int c = 0; c < C; c++)
        if (c < a.c_head) out[c] = to<T>(o[c] * inverse * (g ? sigmoid(get(g[c])) : 1.0f));
    ((float *)a.lse)[at * a.n_query + query] = largest + logf(total);
}

/* One row: recomputes the ungated output, from it dg and delta, and then dq. Stores dout', the
 * gradient of the ungated output, in the workspace for the other passes. */
template <typename T, int C>
__global__ void __launch_bounds__(128)
    plain_dq(fm_attention a, fm_attention_grad grad, attention_space space) {
    int64_t i = blockIdx.x * (int64_t)128 + threadIdx.x, query = i % a.n_query, at = i / a.n_query;
    int64_t head = at % a.n_head, batch = at / a.n_head % a.n_batch;
    int64_t group = at / a.n_head / a.n_batch;
    if (group >= a.n_group) return;
    place<T> p = place_of<T>(a, space.valid, group, batch, head);
    const T *k = (const T *)a.k + offset_of(a.k_stride, group, batch, 0, p.kv_head);
    const T *v = (const T *)a.v + offset_of(a.v_stride, group, batch, 0, p.kv_head);
    float q[C], o[C], d[C], lse = ((const float *)a.lse)[i], delta = 0;
    read_row<T, C>((const T *)a.q + offset_of(a.q_stride, group, batch, query, head), a.c_head, q);
    read_row<T, C>((const T *)grad.dout + offset_of(a.o_stride, group, batch, query, head),
                   a.c_head, d);
#pragma unroll
    for (int c = 0; c < C; c++)
        o[c] = 0;
    for (int64_t key = 0; key < a.n_key; key++) {
        float weight = expf(logit<T, C>(a, p, q, k + key * a.k_stride.row, query, key) - lse);
#pragma unroll
        for (int c = 0; c < C; c++)
            if (c < a.c_head) o[c] += weight * get(v[key * a.v_stride.row + c]);
    }
    int64_t at_g = offset_of(a.g_stride, group, batch, query, head);
#pragma unroll
    for (int c = 0; c < C; c++) {
        if (c >= a.c_head) continue;
        float gate = a.g ? sigmoid(get(((const T *)a.g)[at_g + c])) : 1.0f;
        d[c] *= gate;
        delta += d[c] * o[c];
        if (a.g && grad.dg.data) {
            put((T *)grad.dg.data + at_g + c, grad.dg.beta, d[c] * o[c] * (1.0f - gate));
        }
        ((float *)space.dout)[i * a.c_head + c] = d[c];
    }
    space.delta[i] = delta;
    if (!grad.dq.data) return;
#pragma unroll
    for (int c = 0; c < C; c++)
        o[c] = 0;
    for (int64_t key = 0; key < a.n_key; key++) {
        const T *k_row = k + key * a.k_stride.row;
        float weight = expf(logit<T, C>(a, p, q, k_row, query, key) - lse);
        float ds = weight * (dot<T, C>(d, v + key * a.v_stride.row, a.c_head) - delta);
#pragma unroll
        for (int c = 0; c < C; c++)
            if (c < a.c_head) o[c] += ds * get(k_row[c]);
    }
    T *dq = (T *)grad.dq.data + offset_of(a.q_stride, group, batch, query, head);
#pragma unroll
    for (int c = 0; c < C; c++)
        if (c < a.c_head) put(dq + c, grad.dq.beta, (float)a.scale * o[c]);
}

/* One key: dk and dv, summed in order over the heads that share it and their queries. */
template <typename T, int C>
__global__ void __launch_bounds__(128)
    plain_dkv(fm_attention a, fm_attention_grad grad, attention_space space) {
    int64_t i = blockIdx.x * (int64_t)128 + threadIdx.x, key = i % a.n_key, at = i / a.n_key;
    int64_t kv_head = at % a.n_kv_head, batch = at / a.n_kv_head % a.n_batch;
    int64_t group = at / a.n_kv_head / a.n_batch;
    if (group >= a.n_group) return;
    int64_t at_k = offset_of(a.k_stride, group, batch, key, kv_head);
    int64_t at_v = offset_of(a.v_stride, group, batch, key, kv_head);
    float k[C], v[C], dk[C], dv[C];
    read_row<T, C>((const T *)a.k + at_k, a.c_head, k);
    read_row<T, C>((const T *)a.v + at_v, a.c_head, v);
#pragma unroll
    for (int c = 0; c < C; c++)
        dk[c] = dv[c] = 0;
    int64_t last_head = a.n_kv_head == 1 ? a.n_head - 1 : kv_head;
    for (int64_t head = kv_head; head <= last_head; head++) {
        place<T> p = place_of<T>(a, space.valid, group, batch, head);
        const T *q = (const T *)a.q + offset_of(a.q_stride, group, batch, 0, head);
        int64_t first = row_of(a, group, batch, head);
        for (int64_t query = 0; query < a.n_query; query++) {
            const T *q_row = q + query * a.q_stride.row;
            const float *d = (const float *)space.dout + (first + query) * a.c_head;
            float s = logit<T, C>(a, p, k, q_row, query, key);
            float weight = expf(s - ((const float *)a.lse)[first + query]);
            float ds = weight * (dot<float, C>(v, d, a.c_head) - space.delta[first + query]);
#pragma unroll
            for (int c = 0; c < C; c++) {
                if (c >= a.c_head) continue;
                dv[c] += weight * d[c];
                dk[c] += ds * get(q_row[c]);
            }
        }
    }
#pragma unroll
    for (int c = 0; c < C; c++) {
        if (c >= a.c_head) continue;
        if (grad.dk.data) put((T *)grad.dk.data + at_k + c, grad.dk.beta, (float)a.scale * dk[c]);
        if (grad.dv.data) put((T *)grad.dv.data + at_v + c, grad.dv.beta, dv[c]);
    }
}

/* One element of the bias: the gradient dS of its logit, summed over the batches in order. */
template <typename T, int C>
__global__ void __launch_bounds__(128)
    plain_dbias(fm_attention a, fm_attention_grad grad, attention_space space) {
    int64_t i = blockIdx.x * (int64_t)128 + threadIdx.x, key = i % a.n_key;
    int64_t query = i / a.n_key % a.n_query, head = i / a.n_key / a.n_query % a.n_head;
    int64_t group = i / a.n_key / a.n_query / a.n_head;
    if (group >= a.n_group) return;
    float total = 0;
    for (int64_t batch = 0; batch < a.n_batch; batch++) {
        place<T> p = place_of<T>(a, space.valid, group, batch, head);
        int64_t row = row_of(a, group, batch, head) + query;
        float q[C], d[C];
        read_row<T, C>((const T *)a.q + offset_of(a.q_stride, group, batch, query, head), a.c_head,
                       q);
        read_row<float, C>((const float *)space.dout + row * a.c_head, a.c_head, d);
        const T *k = (const T *)a.k + offset_of(a.k_stride, group, batch, key, p.kv_head);
        const T *v = (const T *)a.v + offset_of(a.v_stride, group, batch, key, p.kv_head);
        float weight = expf(logit<T, C>(a, p, q, k, query, key) - ((const float *)a.lse)[row]);
        total += weight * (dot<T, C>(d, v, a.c_head) - space.delta[row]);
    }
    put((T *)grad.dbias.data + group * a.bias_stride[0] + head * a.bias_stride[1] +
            query * a.bias_stride[2] + key * a.bias_stride[3],
        grad.dbias.beta, total);
}

static unsigned blocks_of(int64_t threads) {
    int64_t blocks = divide_up(threads, 128);
    assert(blocks < (int64_t)1 << 31);
    return (unsigned)blocks;
}

template <typename T, int C>
static void plain_run(fm_stream *stream, const fm_attention *a, const attention_space &space) {
    if (a->mask) find_valid<T>(stream, *a, space.valid);
    unsigned blocks = blocks_of(a->n_group * a->n_batch * a->n_head * a->n_query);
    plain_forward<T, C><<<blocks, 128, 0, queue(stream)>>>(*a, space.valid);
    FM_LAUNCHED();
}

template <typename T, int C>
static void plain_run_grad(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad,
                           const attention_space &space) {
    if (a->mask) find_valid<T>(stream, *a, space.valid);
    unsigned blocks = blocks_of(a->n_group * a->n_batch * a->n_head * a->n_query);
    plain_dq<T, C><<<blocks, 128, 0, queue(stream)>>>(*a, *grad, space);
    FM_LAUNCHED();
    if (grad->dk.data || grad->dv.data) {
        blocks = blocks_of(a->n_group * a->n_batch * a->n_kv_head * a->n_key);
        plain_dkv<T, C><<<blocks, 128, 0, queue(stream)>>>(*a, *grad, space);
        FM_LAUNCHED();
    }
    if (a->bias && grad->dbias.data) {
        blocks = blocks_of(a->n_group * a->n_head * a->n_query * a->n_key);
        plain_dbias<T, C><<<blocks, 128, 0, queue(stream)>>>(*a, *grad, space);
        FM_LAUNCHED();
    }
}

template <typename T>
void attention_plain(fm_stream *stream, const fm_attention *a, const attention_space &space) {
    auto run = a->c_head <= 8    ? plain_run<T, 8>
               : a->c_head <= 32 ? plain_run<T, 32>
                                 : plain_run<T, 64>;
    run(stream, a, space);
}

template <typename T>
void attention_plain_grad(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad,
                          const attention_space &space) {
    auto run = a->c_head <= 8    ? plain_run_grad<T, 8>
               : a->c_head <= 32 ? plain_run_grad<T, 32>
                                 : plain_run_grad<T, 64>;
    run(stream, a, grad, space);
}

#define INSTANTIATE(T)                                                                             \
    template void attention_plain<T>(fm_stream *, const fm_attention *, const attention_space &);  \
    template void attention_plain_grad<T>(fm_stream *, const fm_attention *,                       \
                                          const fm_attention_grad *, const attention_space &);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
