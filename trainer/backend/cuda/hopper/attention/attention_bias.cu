/* attention_bias.cu: boxes of the bias of attention for the forward by warp groups.
 *
 * A linear layer leaves the bias with the head fastest, and a box needs its keys contiguous. So a
 * kernel first stores the bias by heads, unless its keys are contiguous already. */
#include "trainer/backend/cuda/hopper/attention/attention_boxes.cuh"

namespace fm_cuda {

/* Stores the bias by heads, [group, head, query, ld]. One thread takes H heads of eight keys. */
template <int H>
__global__ void __launch_bounds__(64) split_heads(fm_attention a, bf16 *planes, int ld) {
    let_next_begin();
    int chunks = ld / 8, i = (int)(blockIdx.x * 64 + threadIdx.x), chunk = i % chunks;
    int query = i / chunks % (int)a.n_query, group = i / chunks / (int)a.n_query;
    if (group >= a.n_group) return;
    const bf16 *from = (const bf16 *)a.bias + group * a.bias_stride[0] + query * a.bias_stride[2];
    pack<bf16, H> in[8];
#pragma unroll
    for (int e = 0; e < 8; e++) {
        int key = chunk * 8 + e;
        in[e] = {};
        if (key < a.n_key) in[e] = *(const pack<bf16, H> *)(from + key * a.bias_stride[3]);
    }
#pragma unroll
    for (int head = 0; head < H; head++) {
        pack<bf16, 8> out;
#pragma unroll
        for (int e = 0; e < 8; e++)
            out.at[e] = in[e].at[head];
        int64_t row = ((int64_t)group * H + head) * a.n_query + query;
        *(pack<bf16, 8> *)(planes + row * ld + chunk * 8) = out;
    }
}

/* The same for any number of heads and any strides: one thread per element. */
static void split_each(fm_stream *stream, const fm_attention *args, bf16 *planes, int64_t ld) {
    fm_attention a = *args;
    each(stream, a.n_group * a.n_query * a.n_key * a.n_head, [=] __device__(int64_t index) {
        int64_t head = index % a.n_head, key = index / a.n_head % a.n_key;
        int64_t query = index / a.n_head / a.n_key % a.n_query;
        int64_t group = index / a.n_head / a.n_key / a.n_query;
        planes[((group * a.n_head + head) * a.n_query + query) * ld + key] =
            ((const bf16 *)a.bias)[group * a.bias_stride[0] + head * a.bias_stride[1] +
                                   query * a.bias_stride[2] + key * a.bias_stride[3]];
    });
}

bool attention_bias_boxes(fm_stream *stream, const fm_attention *a, void *planes, box_map *ret) {
    const int64_t extent[5] = {a->n_key, a->n_query, a->n_head, a->n_group, 1};
    const int64_t *given = a->bias_stride, heads = a->n_head, ld = round_up(a->n_key, 8);
    int64_t chunks = a->n_group * a->n_query * ld / 8;
    if (given[3] == 1 && given[0] % 8 == 0 && given[1] % 8 == 0 && given[2] % 8 == 0 &&
        is_aligned(a->bias)) {
        const int64_t stride[4] = {given[2], given[1], given[0], 0};
        *ret = make_boxes(a->bias, extent, stride, 64, 64);
        return false;
    }
    const int64_t stride[4] = {ld, a->n_query * ld, heads * a->n_query * ld, 0};
    *ret = make_boxes(planes, extent, stride, 64, 64);
    bool is_together = (heads == 4 || heads == 8) && given[0] % heads == 0 && given[1] == 1 &&
                       given[2] % heads == 0 && given[3] % heads == 0 && chunks < 1 << 30 &&
                       (uintptr_t)a->bias % (size_t)(2 * heads) == 0;
    if (!is_together) {
        split_each(stream, a, (bf16 *)planes, ld);
        return true;
    }
    (heads == 4 ? split_heads<4>
                : split_heads<8>)<<<(unsigned)divide_up(chunks, 64), 64, 0, queue(stream)>>>(
        *a, (bf16 *)planes, (int)ld);
    FM_LAUNCHED();
    return true;
}

} // namespace fm_cuda
