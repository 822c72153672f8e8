/* kbench_attention.cu: gated attention at the shapes of every stack: initial training, "ft"
 * (fine-tuning), and "af3" (the Pairformer, whose triangle attention is that of "ft"). FLOPs count
 * the matrix products, two forward and five backward, where the logits are computed again. */
#include "tests/kbench/kbench.cuh"

#include <math.h>

namespace kbench {
namespace {

enum how { PLAIN = 0, BIASED = 1, TRANSPOSED = 2, MASKED = 4 };

struct shape {
    int64_t batch, n, head, c;
    int how;
};

/* batch x n rows; q k v g are slices of one matrix, the bias is in the layout of a linear layer. */
void attention(bench &b, shape s) {
    const fm_kernels *k = b.k;
    int64_t width = s.head * s.c, ld = 4 * width, size = s.batch * s.n;
    bool biased = s.how & BIASED;
    fm_attention_stride in = {0, s.n * ld, ld, s.c}, out = {0, s.n * width, width, s.c};
    if (s.how & TRANSPOSED) {
        in.batch = ld, in.row = s.batch * ld;
        out.batch = width, out.row = s.batch * width;
    }
    void *qkvg = b.act(size * ld), *d = b.out("dqkvg", size * ld);
    fm_attention a = {};
    a.n_group = 1, a.n_batch = s.batch, a.n_query = a.n_key = s.n, a.n_head = a.n_kv_head = s.head;
    a.c_head = s.c, a.scale = 1 / sqrt((double)s.c), a.mask_value = 1e9;
    a.q = qkvg, a.k = b.at(qkvg, width), a.v = b.at(qkvg, 2 * width), a.g = b.at(qkvg, 3 * width);
    if (biased) a.bias = b.act(s.n * s.n * s.head);
    a.mask = s.how & MASKED ? b.mask(size, 37) : b.ones(size);
    a.q_stride = a.k_stride = a.v_stride = a.g_stride = in;
    a.o_stride = out;
    a.bias_stride[1] = 1, a.bias_stride[2] = s.n * s.head, a.bias_stride[3] = s.head;
    a.mask_stride[1] = s.n, a.mask_stride[2] = 1;
    a.o = b.out("o", size * width), a.lse = b.out_acc("lse", size * s.head);
    fm_attention_grad g = {.dout = b.act(size * width),
                           .dy = NULL,
                           .w = NULL,
                           .dq = {d, FM_WRITE},
                           .dk = {b.at(d, width), FM_WRITE},
                           .dv = {b.at(d, 2 * width), FM_WRITE},
                           .dg = {b.at(d, 3 * width), FM_WRITE},
                           .dbias = biased ? b.grad("dbias", s.n * s.n * s.head)
                                           : fm_out{NULL, FM_WRITE}};
    void *less = b.scratch(k->attention_workspace(&a));
    void *space = b.scratch(k->attention_grad_workspace(&a));
    double product = 2.0 * (double)(size * s.n * width), bytes = b.size((double)(size * width));
    b.part("fwd", 2 * product, 5 * bytes, [=](fm_stream *q) { k->attention(q, &a, less); });
    b.part("bwd", 5 * product, 10 * bytes,
           [=](fm_stream *q) { k->attention_grad(q, &a, &g, space); });
}

/* One query for each of `batch` columns over n keys that all heads share, masked. */
void one_query(bench &b, int64_t batch, int64_t n, int64_t head, int64_t c) {
    const fm_kernels *k = b.k;
    int64_t width = head * c;
    fm_attention a = {};
    a.n_group = 1, a.n_batch = batch, a.n_query = 1, a.n_key = n, a.n_head = head, a.n_kv_head = 1;
    a.c_head = c, a.scale = 1 / sqrt((double)c), a.mask_value = 1e9;
    fm_attention_stride query = {0, width, width, c}, key = {0, c, batch * c, 0};
    a.q_stride = a.o_stride = query;
    a.k_stride = a.v_stride = key;
    a.q = b.act(batch * width), a.k = b.act(batch * n * c), a.v = b.act(batch * n * c);
    a.mask = b.mask(n * batch, 37);
    a.mask_stride[1] = 1, a.mask_stride[2] = batch;
    a.o = b.out("o", batch * width), a.lse = b.out_acc("lse", batch * head);
    fm_attention_grad g = {};
    g.dout = b.act(batch * width), g.dq = b.grad("dq", batch * width);
    g.dk = b.grad("dk", batch * n * c), g.dv = b.grad("dv", batch * n * c);
    void *less = b.scratch(k->attention_workspace(&a));
    void *space = b.scratch(k->attention_grad_workspace(&a));
    double product = 2.0 * (double)(batch * n * width), bytes = b.size((double)(batch * n * c));
    b.part("fwd", 2 * product, 2 * bytes, [=](fm_stream *q) { k->attention(q, &a, less); });
    b.part("bwd", 5 * product, 4 * bytes,
           [=](fm_stream *q) { k->attention_grad(q, &a, &g, space); });
}

/* One query per pair of residues over n templates, with a key for each head. */
void pointwise(bench &b, int64_t pairs, int64_t n, int64_t head, int64_t c) {
    const fm_kernels *k = b.k;
    int64_t width = head * c;
    void *kv = b.act(n * pairs * 2 * width), *d = b.out("dkv", n * pairs * 2 * width);
    fm_attention a = {};
    a.n_group = 1, a.n_batch = pairs, a.n_query = 1, a.n_key = n, a.n_head = a.n_kv_head = head;
    a.c_head = c, a.scale = 1 / sqrt((double)c), a.mask_value = 1e5;
    fm_attention_stride one = {0, width, width, c}, many = {0, 2 * width, pairs * 2 * width, c};
    a.q_stride = a.o_stride = one;
    a.k_stride = a.v_stride = many;
    a.q = b.act(pairs * width), a.k = kv, a.v = b.at(kv, width);
    a.mask = b.ones(n), a.mask_stride[2] = 1;
    a.o = b.out("o", pairs * width), a.lse = b.out_acc("lse", pairs * head);
    fm_attention_grad g = {};
    g.dout = b.act(pairs * width), g.dq = b.grad("dq", pairs * width);
    g.dk = {d, FM_WRITE}, g.dv = {b.at(d, width), FM_WRITE};
    void *less = b.scratch(k->attention_workspace(&a));
    void *space = b.scratch(k->attention_grad_workspace(&a));
    double product = 2.0 * (double)(pairs * n * width), bytes = b.size((double)(pairs * width));
    b.part("fwd", 2 * product, (double)(2 + 2 * n) * bytes,
           [=](fm_stream *q) { k->attention(q, &a, less); });
    b.part("bwd", 5 * product, (double)(3 + 4 * n) * bytes,
           [=](fm_stream *q) { k->attention_grad(q, &a, &g, space); });
}

/* Atoms in windows of 32 queries and 128 keys, each with a bias that all samples share. q and g are
 * side by side, as are k and v. */
void windows(bench &b, int64_t samples, int64_t n, int64_t head, int64_t c) {
    const fm_kernels *k = b.k;
    const int64_t queries = 32, keys = 128, width = head * c, ld = 2 * width;
    int64_t n_q = samples * n * queries, n_k = samples * n * keys,
            n_bias = n * queries * keys * head;
    void *qg = b.act(n_q * ld), *kv = b.act(n_k * ld);
    void *dqg = b.out("dqg", n_q * ld), *dkv = b.out("dkv", n_k * ld);
    fm_attention a = {};
    a.n_group = n, a.n_batch = samples, a.n_query = queries, a.n_key = keys;
    a.n_head = a.n_kv_head = head, a.c_head = c, a.scale = 1 / sqrt((double)c), a.mask_value = 1e10;
    a.q = qg, a.g = b.at(qg, width), a.k = kv, a.v = b.at(kv, width);
    a.bias = b.act(n_bias);
    a.mask = b.mask(n * keys, 37);
    a.q_stride = a.g_stride = {queries * ld, n * queries * ld, ld, c};
    a.k_stride = a.v_stride = {keys * ld, n * keys * ld, ld, c};
    a.o_stride = {queries * width, n * queries * width, width, c};
    const int64_t bias[4] = {queries * keys * head, 1, keys * head, head};
    for (int i = 0; i < 4; i++)
        a.bias_stride[i] = bias[i];
    a.mask_stride[0] = keys, a.mask_stride[2] = 1;
    a.o = b.out("o", n_q * width), a.lse = b.out_acc("lse", n_q * head);
    fm_attention_grad g = {.dout = b.act(n_q * width),
                           .dy = NULL,
                           .w = NULL,
                           .dq = {dqg, FM_WRITE},
                           .dk = {dkv, FM_WRITE},
                           .dv = {b.at(dkv, width), FM_WRITE},
                           .dg = {b.at(dqg, width), FM_WRITE},
                           .dbias = b.grad("dbias", n_bias)};
    void *less = b.scratch(k->attention_workspace(&a));
    void *space = b.scratch(k->attention_grad_workspace(&a));
    double product = 2.0 * (double)(n_q * keys * width);
    double bytes_q = b.size((double)(n_q * width)), bytes_k = b.size((double)(n_k * width));
    b.part("fwd", 2 * product, 3 * bytes_q + 2 * bytes_k,
           [=](fm_stream *q) { k->attention(q, &a, less); });
    b.part("bwd", 5 * product, 6 * bytes_q + 4 * bytes_k,
           [=](fm_stream *q) { k->attention_grad(q, &a, &g, space); });
}

/* The table whose products round f32 operands to tf32. */
void tf32_products(fm_kernels *table) {
    *table = *table->tf32;
}

void add_core(const char *name, peer other, shape s, const std::vector<path> &paths = {}) {
    options how;
    how.stages = 4;
    add(
        name, other, how, [=](bench &b) { attention(b, s); }, paths);
}

} // namespace

void add_attention_cases(void) {
    options how;
    how.stages = 4;
    const std::vector<path> tf32 = {{"tf32", tf32_products}};
    /* Peers: OpenFold's eager core on the same kind of GPU. */
    add_core("row attention 128x256 8x32", {0.603, 1.105}, {128, 256, 8, 32, BIASED});
    add_core("row attention 128x256 8x32 masked", {0.603, 1.105},
             {128, 256, 8, 32, BIASED | MASKED});
    add_core("triangle attention 256 4x32", {0.604, 1.103}, {256, 256, 4, 32, BIASED});
    add_core("ending triangle attention 256 4x32", {0.604, 1.103},
             {256, 256, 4, 32, BIASED | TRANSPOSED});
    add_core("triangle attention 272 4x32", {0, 0}, {272, 272, 4, 32, BIASED});
    add_core("column attention 256x128 8x32", {0.355, 0.671}, {256, 128, 8, 32, TRANSPOSED});
    add_core("extra row attention 1024x256 8x8", {0, 0}, {1024, 256, 8, 8, BIASED});
    add_core("template triangle attention 256 4x16", {0, 0}, {256, 256, 4, 16, BIASED});
    add("extra global column attention 256x1024 8x8", {0, 0}, how,
        [](bench &b) { one_query(b, 256, 1024, 8, 8); });
    add("template pointwise attention 65536x4 4x16", {0, 0}, how,
        [](bench &b) { pointwise(b, 65536, 4, 4, 16); });
    add_core("af3 single attention 384 16x24", {0, 0}, {1, 384, 16, 24, BIASED | MASKED});
    add_core("af3 single attention 256 16x24", {0, 0}, {1, 256, 16, 24, BIASED | MASKED});
    add_core("af3 diffusion attention 48x384 16x48", {0, 0}, {48, 384, 16, 48, BIASED}, tf32);
    add_core("af3 diffusion attention 1x384 16x48", {0, 0}, {1, 384, 16, 48, BIASED}, tf32);
    add_core("af3 diffusion attention 32x640 16x48", {0, 0}, {32, 640, 16, 48, BIASED}, tf32);
    add(
        "af3 atom attention 48x100x32x128 4x32", {0, 0}, how,
        [](bench &b) { windows(b, 48, 100, 4, 32); }, tf32);
    add(
        "af3 atom attention 1x100x32x128 4x32", {0, 0}, how,
        [](bench &b) { windows(b, 1, 100, 4, 32); }, tf32);
    add_core("ft triangle attention 384 4x32", {1.910, 3.381}, {384, 384, 4, 32, BIASED});
    add_core("ft row attention 512x384 8x32", {0, 0}, {512, 384, 8, 32, BIASED});
    add_core("ft column attention 384x512 8x32", {0, 0}, {384, 512, 8, 32, TRANSPOSED});
    add_core("ft extra row attention 5120x384 8x8", {0, 0}, {5120, 384, 8, 8, BIASED});
    add_core("long attention 128x640 4x32", {0, 0}, {128, 640, 4, 32, BIASED});
    add_core("long attention 64x1024 4x32", {0, 0}, {64, 1024, 4, 32, BIASED});
    add_core("long column attention 64x1024 4x32", {0, 0}, {64, 1024, 4, 32, TRANSPOSED});
}

} // namespace kbench
