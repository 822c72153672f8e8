/* attention_one.cu: attention of one query, without bias and gate, in two forms.
 *
 * SHARED: many keys that all heads share, the core of global column attention (A19). One block per
 * batch (a column of the MSA). Forward and dq use one warp per head. Each lane takes every 32nd key
 * and keeps its own online softmax, and a tree over the warp joins the lanes' maxima and sums. The
 * pass for dk and dv has one thread per key, which sums over the heads in order. The pass for dq
 * leaves each head's q, dout, log-sum-exp and delta in shared memory for it. Keys and values are
 * read from memory once; the other heads find them in the caches. Those bytes bound the kernels.
 *
 * FEW: up to 8 keys of the head's own, the core of template pointwise attention (A17). One thread
 * per head of a batch, whose keys are all at hand, so that nothing is exchanged. */
#include "trainer/backend/cuda/attention/attention.cuh"

namespace fm_cuda {

enum { ONE_THREADS = 256, ONE_WARPS = ONE_THREADS / 32 };

/* Reads C channels by 16-byte accesses. */
template <typename T, int C> __device__ inline void read_channels(const T *p, float *x) {
    constexpr int V = 16 / (int)sizeof(T);
#pragma unroll
    for (int c = 0; c < C; c += V)
        load<T, V>(p + c, x + c);
}

template <int C> __device__ inline float product(const float *x, const float *y) {
    float total = 0;
#pragma unroll
    for (int c = 0; c < C; c++)
        total += x[c] * y[c];
    return total;
}

/* -- shared keys: the keys, values and mask of one batch */
template <typename T> struct column {
    int64_t group, batch;
    const T *k, *v, *mask; /* mask NULL: all keys are valid, or none is */
};

/* Called by the whole block: it decides together whether any key is valid. */
template <typename T> __device__ inline column<T> column_of(const fm_attention &a) {
    column<T> at = {blockIdx.x / a.n_batch, blockIdx.x % a.n_batch, NULL, NULL, NULL};
    at.k = (const T *)a.k + offset_of(a.k_stride, at.group, at.batch, 0, 0);
    at.v = (const T *)a.v + offset_of(a.v_stride, at.group, at.batch, 0, 0);
    if (!a.mask) return at;
    const T *mask = (const T *)a.mask + at.group * a.mask_stride[0] + at.batch * a.mask_stride[1];
    int any = 0;
    for (int64_t key = threadIdx.x; key < a.n_key; key += ONE_THREADS)
        any |= get(mask[key * a.mask_stride[2]]) != 0;
    if (__syncthreads_or(any)) at.mask = mask;
    return at;
}

template <typename T, int C>
__device__ inline float logit_of(const fm_attention &a, const column<T> &at, const float *q,
                                 const float *k, int64_t key) {
    float s = (float)a.scale * product<C>(q, k);
    if (at.mask) s += (float)a.mask_value * (get(at.mask[key * a.mask_stride[2]]) - 1.0f);
    return s;
}

template <typename T, int C>
__global__ void __launch_bounds__(ONE_THREADS) one_forward(fm_attention a) {
    column<T> at = column_of<T>(a);
    int lane = threadIdx.x % 32;
    for (int64_t head = threadIdx.x / 32; head < a.n_head; head += ONE_WARPS) {
        float q[C], k[C], v[C], o[C] = {}, largest = -INFINITY, total = 0;
        read_channels<T, C>((const T *)a.q + offset_of(a.q_stride, at.group, at.batch, 0, head), q);
        for (int64_t key = lane; key < a.n_key; key += 32) {
            read_channels<T, C>(at.k + key * a.k_stride.row, k);
            read_channels<T, C>(at.v + key * a.v_stride.row, v);
            float s = logit_of<T, C>(a, at, q, k, key), top = fmaxf(largest, s);
            float shrink = expf(largest - top), weight = expf(s - top);
            largest = top;
            total = total * shrink + weight;
#pragma unroll
            for (int c = 0; c < C; c++)
                o[c] = o[c] * shrink + weight * v[c];
        }
        float top = warp_max(largest), shrink = largest > -INFINITY ? expf(largest - top) : 0;
        total = warp_sum(total * shrink);
        T *out = (T *)a.o + offset_of(a.o_stride, at.group, at.batch, 0, head);
#pragma unroll
        for (int c = 0; c < C; c++) {
            float sum = warp_sum(o[c] * shrink);
            if (lane == c % 32) out[c] = to<T>(sum / total);
        }
        if (lane == 0) ((float *)a.lse)[row_of(a, at.group, at.batch, head)] = top + logf(total);
    }
}

/* Per head, what one_backward needs for dk and dv. */
template <int C> struct one_heads {
    float q[MAX_ONE_QUERY_HEADS][C], d[MAX_ONE_QUERY_HEADS][C], lse[MAX_ONE_QUERY_HEADS],
        delta[MAX_ONE_QUERY_HEADS];
};

/* delta = <P, dP> and dq of the warp's heads. The keys are walked twice: dS needs delta. */
template <typename T, int C>
__device__ inline void one_queries(const fm_attention &a, const fm_attention_grad &grad,
                                   const column<T> &at, one_heads<C> *heads) {
    int lane = threadIdx.x % 32;
    for (int64_t head = threadIdx.x / 32; head < a.n_head; head += ONE_WARPS) {
        int64_t at_q = offset_of(a.q_stride, at.group, at.batch, 0, head);
        float q[C], d[C], k[C], v[C], dq[C] = {}, delta = 0;
        float lse = ((const float *)a.lse)[row_of(a, at.group, at.batch, head)];
        read_channels<T, C>((const T *)a.q + at_q, q);
        read_channels<T, C>(
            (const T *)grad.dout + offset_of(a.o_stride, at.group, at.batch, 0, head), d);
        for (int64_t key = lane; key < a.n_key; key += 32) {
            read_channels<T, C>(at.k + key * a.k_stride.row, k);
            read_channels<T, C>(at.v + key * a.v_stride.row, v);
            delta += expf(logit_of<T, C>(a, at, q, k, key) - lse) * product<C>(d, v);
        }
        delta = warp_sum(delta);
        for (int64_t key = lane; key < a.n_key; key += 32) {
            read_channels<T, C>(at.k + key * a.k_stride.row, k);
            read_channels<T, C>(at.v + key * a.v_stride.row, v);
            float weight = expf(logit_of<T, C>(a, at, q, k, key) - lse);
            float ds = weight * (product<C>(d, v) - delta);
#pragma unroll
            for (int c = 0; c < C; c++)
                dq[c] += ds * k[c];
        }
#pragma unroll
        for (int c = 0; c < C; c++) {
            float sum = warp_sum(dq[c]);
            if (lane != c % 32) continue;
            heads->q[head][c] = q[c];
            heads->d[head][c] = d[c];
            if (grad.dq.data) put((T *)grad.dq.data + at_q + c, grad.dq.beta, (float)a.scale * sum);
        }
        if (lane == 0) heads->lse[head] = lse, heads->delta[head] = delta;
    }
}

template <typename T, int C> __device__ inline void put_channels(fm_out out, int64_t at, float *x) {
    if (!out.data) return;
    constexpr int V = 16 / (int)sizeof(T);
#pragma unroll
    for (int c = 0; c < C; c += V)
        put_pack<T, V>((T *)out.data + at + c, out.beta, x + c);
}

template <typename T, int C>
__global__ void __launch_bounds__(ONE_THREADS)
    one_backward(fm_attention a, fm_attention_grad grad) {
    __shared__ one_heads<C> heads;
    column<T> at = column_of<T>(a);
    one_queries<T, C>(a, grad, at, &heads);
    __syncthreads();
    for (int64_t key = threadIdx.x; key < a.n_key; key += ONE_THREADS) {
        float k[C], v[C], dk[C] = {}, dv[C] = {};
        read_channels<T, C>(at.k + key * a.k_stride.row, k);
        read_channels<T, C>(at.v + key * a.v_stride.row, v);
        for (int head = 0; head < a.n_head; head++) {
            float weight = expf(logit_of<T, C>(a, at, heads.q[head], k, key) - heads.lse[head]);
            float ds = weight * (product<C>(heads.d[head], v) - heads.delta[head]);
            ds *= (float)a.scale;
#pragma unroll
            for (int c = 0; c < C; c++) {
                dv[c] += weight * heads.d[head][c];
                dk[c] += ds * heads.q[head][c];
            }
        }
        put_channels<T, C>(grad.dk, offset_of(a.k_stride, at.group, at.batch, key, 0), dk);
        put_channels<T, C>(grad.dv, offset_of(a.v_stride, at.group, at.batch, key, 0), dv);
    }
}

template <typename T, int C>
static void one_run(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad) {
    unsigned blocks = (unsigned)(a->n_group * a->n_batch);
    if (grad) {
        one_backward<T, C><<<blocks, ONE_THREADS, 0, queue(stream)>>>(*a, *grad);
    } else {
        one_forward<T, C><<<blocks, ONE_THREADS, 0, queue(stream)>>>(*a);
    }
    FM_LAUNCHED();
}

template <typename T>
void attention_one(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad) {
    switch (a->c_head) {
    case 8: one_run<T, 8>(stream, a, grad); break;
    case 16: one_run<T, 16>(stream, a, grad); break;
    default: one_run<T, 32>(stream, a, grad);
    }
}

/* -- few keys */

/* One head of a batch, and the weights of its keys. */
template <typename T, int C> struct few_place {
    int64_t group, batch, head;
    float q[C], logit[MAX_FEW_KEYS];
};

/* Reads q and makes the logits; those beyond the last key are -infinity. */
template <typename T, int C>
__device__ inline void few_logits(const fm_attention &a, int64_t i, few_place<T, C> &p) {
    p.head = i % a.n_head, p.batch = i / a.n_head % a.n_batch, p.group = i / a.n_head / a.n_batch;
    read_channels<T, C>((const T *)a.q + offset_of(a.q_stride, p.group, p.batch, 0, p.head), p.q);
    const T *mask = (const T *)a.mask;
    if (mask) mask += p.group * a.mask_stride[0] + p.batch * a.mask_stride[1];
    float term[MAX_FEW_KEYS];
    bool any = false;
#pragma unroll
    for (int key = 0; key < MAX_FEW_KEYS; key++) {
        term[key] = mask && key < a.n_key ? get(mask[key * a.mask_stride[2]]) : 0;
        any = any || term[key] != 0;
    }
#pragma unroll
    for (int key = 0; key < MAX_FEW_KEYS; key++) {
        p.logit[key] = -INFINITY;
        if (key >= a.n_key) continue;
        float k[C];
        read_channels<T, C>((const T *)a.k + offset_of(a.k_stride, p.group, p.batch, key, p.head),
                            k);
        p.logit[key] = (float)a.scale * product<C>(p.q, k);
        if (any) p.logit[key] += (float)a.mask_value * (term[key] - 1.0f);
    }
}

template <typename T, int C>
__global__ void __launch_bounds__(ONE_THREADS) few_forward(fm_attention a) {
    int64_t i = blockIdx.x * (int64_t)ONE_THREADS + threadIdx.x;
    if (i >= a.n_group * a.n_batch * a.n_head) return;
    few_place<T, C> p;
    few_logits<T, C>(a, i, p);
    float top = p.logit[0], total = 0, o[C] = {};
#pragma unroll
    for (int key = 1; key < MAX_FEW_KEYS; key++)
        top = fmaxf(top, p.logit[key]);
#pragma unroll
    for (int key = 0; key < MAX_FEW_KEYS; key++) {
        if (key >= a.n_key) continue;
        float v[C], weight = expf(p.logit[key] - top);
        read_channels<T, C>((const T *)a.v + offset_of(a.v_stride, p.group, p.batch, key, p.head),
                            v);
        total += weight;
#pragma unroll
        for (int c = 0; c < C; c++)
            o[c] += weight * v[c];
    }
#pragma unroll
    for (int c = 0; c < C; c++)
        o[c] /= total;
    put_channels<T, C>({a.o, FM_WRITE}, offset_of(a.o_stride, p.group, p.batch, 0, p.head), o);
    ((float *)a.lse)[i] = top + logf(total);
}

template <typename T, int C>
__global__ void __launch_bounds__(ONE_THREADS)
    few_backward(fm_attention a, fm_attention_grad grad) {
    int64_t i = blockIdx.x * (int64_t)ONE_THREADS + threadIdx.x;
    if (i >= a.n_group * a.n_batch * a.n_head) return;
    few_place<T, C> p;
    few_logits<T, C>(a, i, p);
    float d[C], dq[C] = {}, dp[MAX_FEW_KEYS], lse = ((const float *)a.lse)[i], delta = 0;
    read_channels<T, C>((const T *)grad.dout + offset_of(a.o_stride, p.group, p.batch, 0, p.head),
                        d);
#pragma unroll
    for (int key = 0; key < MAX_FEW_KEYS; key++) {
        dp[key] = 0, p.logit[key] = expf(p.logit[key] - lse); /* now the weight */
        if (key >= a.n_key) continue;
        float v[C];
        read_channels<T, C>((const T *)a.v + offset_of(a.v_stride, p.group, p.batch, key, p.head),
                            v);
        dp[key] = product<C>(d, v);
        delta += p.logit[key] * dp[key];
    }
#pragma unroll
    for (int key = 0; key < MAX_FEW_KEYS; key++) {
        if (key >= a.n_key) continue;
        int64_t at_k = offset_of(a.k_stride, p.group, p.batch, key, p.head);
        float k[C], dk[C], dv[C], ds = p.logit[key] * (dp[key] - delta) * (float)a.scale;
        read_channels<T, C>((const T *)a.k + at_k, k);
#pragma unroll
        for (int c = 0; c < C; c++)
            dq[c] += ds * k[c], dk[c] = ds * p.q[c], dv[c] = p.logit[key] * d[c];
        put_channels<T, C>(grad.dk, at_k, dk);
        put_channels<T, C>(grad.dv, offset_of(a.v_stride, p.group, p.batch, key, p.head), dv);
    }
    put_channels<T, C>(grad.dq, offset_of(a.q_stride, p.group, p.batch, 0, p.head), dq);
}

template <typename T, int C>
static void few_run(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad) {
    unsigned blocks = (unsigned)divide_up(a->n_group * a->n_batch * a->n_head, ONE_THREADS);
    if (grad) {
        few_backward<T, C><<<blocks, ONE_THREADS, 0, queue(stream)>>>(*a, *grad);
    } else {
        few_forward<T, C><<<blocks, ONE_THREADS, 0, queue(stream)>>>(*a);
    }
    FM_LAUNCHED();
}

template <typename T>
void attention_few(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad) {
    switch (a->c_head) {
    case 8: few_run<T, 8>(stream, a, grad); break;
    case 16: few_run<T, 16>(stream, a, grad); break;
    default: few_run<T, 32>(stream, a, grad);
    }
}

#define INSTANTIATE(T)                                                                             \
    template void attention_one<T>(fm_stream *, const fm_attention *, const fm_attention_grad *);  \
    template void attention_few<T>(fm_stream *, const fm_attention *, const fm_attention_grad *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
