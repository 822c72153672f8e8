/* cuda_check_attention.cu: cases of attention, forward and backward; see cuda_check.cu. */
#include "tests/trainer/cuda/cuda_check.cuh"

#include <math.h>
#include <string.h>

namespace cuda_check {
namespace {

struct attention_shape {
    int64_t group, batch, query, key, head, c, ld;
    bool transposed, gated, biased, masked, shared;
    int64_t period; /* of the mask; 0: no key is valid */
    fm_beta beta;
    double all_bias = 0; /* of all keys, in place of a bias that is drawn */
    int64_t first = 0;   /* the first key that has all_bias; those before it have 0 */
    bool opens = false;  /* dout is the gradient of a product of o [.., head * c] */
    bool apart = false;  /* each head's bias is a matrix of its own */
};

/* The shapes that tensor cores must take, in whole chunks of 8 channels. */
bool is_tensor_core_shape(const attention_shape &s) {
    return !s.shared && s.c % 8 == 0 && s.query >= 8 && s.query * s.key >= 256;
}

/* The gradient of o [rows, n], by the backward of attention if it takes the product. */
void set_dout(work_bench &b, const fm_attention &a, int64_t rows, int64_t n, fm_attention_grad &g) {
    const void *dy = b.act(rows * n), *w = b.act(n * n, 1 / sqrt((double)n));
    if (b.k->attention_opens(&a, n)) {
        g.dy = dy, g.w = w;
        return;
    }
    void *dout = b.space((size_t)(rows * n) * fm_element_bytes(b.k->act));
    fm_gemm back = {};
    back.m = rows, back.n = back.k = back.lda = back.ldb = back.ldc = n;
    back.batch = 1, back.alpha = 1;
    back.a = dy, back.b = w, back.c = dout;
    b.k->gemm(NULL, &back, b.space(b.k->gemm_workspace(&back)));
    g.dout = dout;
}

void check_attention(const char *name, attention_shape s) {
    const auto run = [=](work_bench &b) {
        fm_attention a = {};
        a.n_group = s.group, a.n_batch = s.batch, a.n_query = s.query, a.n_key = s.key;
        a.n_head = s.head, a.n_kv_head = s.shared ? 1 : s.head, a.c_head = s.c;
        a.scale = 1 / sqrt((double)s.c), a.mask_value = 1e9;
        fm_attention_stride q = {s.batch * s.query * s.ld, s.query * s.ld, s.ld, s.c};
        fm_attention_stride k = {s.batch * s.key * s.ld, s.key * s.ld, s.ld, s.c};
        if (s.transposed) {
            q.batch = k.batch = s.ld;
            q.row = k.row = s.batch * s.ld;
        }
        a.q_stride = a.g_stride = a.o_stride = q;
        a.k_stride = a.v_stride = k;
        int64_t n_q = s.group * s.batch * s.query * s.ld, n_k = s.group * s.batch * s.key * s.ld;
        int64_t n_bias = s.group * s.query * s.key * s.head;
        const int64_t bias[4] = {s.query * s.key * s.head, s.apart ? s.query * s.key : 1,
                                 s.key * (s.apart ? 1 : s.head), s.apart ? 1 : s.head};
        const int64_t mask[3] = {s.batch * s.key, s.key, 1};
        memcpy(a.bias_stride, bias, sizeof bias);
        memcpy(a.mask_stride, mask, sizeof mask);
        a.q = b.act(n_q, 2), a.k = b.act(n_k, 2), a.v = b.act(n_k);
        if (s.gated) a.g = b.act(n_q, 3);
        if (s.biased) a.bias = b.act(n_bias, 2);
        if (s.all_bias != 0) {
            std::vector<double> x((size_t)n_bias, s.all_bias);
            for (int64_t i = 0; i < n_bias; i++)
                if (i / s.head % s.key < s.first) x[(size_t)i] = 0;
            a.bias = b.input(x, b.k->act);
        }
        int64_t n_mask = s.group * s.batch * s.key;
        if (s.masked) {
            a.mask = s.period > 0 ? b.mask(n_mask, s.period)
                                  : b.input(std::vector<double>((size_t)n_mask, 0), b.k->act);
        }
        a.o = b.out(n_q);
        a.lse = b.out_acc(s.group * s.batch * s.head * s.query);
        b.k->attention(NULL, &a, b.space(b.k->attention_workspace(&a)));
        fm_attention_grad g = {};
        if (s.opens) {
            set_dout(b, a, n_q / s.ld, s.ld, g);
        } else {
            g.dout = b.act(n_q);
        }
        g.dq = b.grad(n_q, s.beta), g.dk = b.grad(n_k, s.beta), g.dv = b.grad(n_k, s.beta);
        if (s.gated) g.dg = b.grad(n_q, s.beta);
        if (s.biased) g.dbias = b.grad(n_bias, s.beta);
        b.k->attention_grad(NULL, &a, &g, b.space(b.k->attention_grad_workspace(&a)));
    };
    check(name, 4, run, is_tensor_core_shape(s));
}

/* The backward makes dout from the gradient of the product behind it. */
void check_openings(void) {
    const auto opens = [](const char *name, attention_shape s) {
        s.opens = true;
        check_attention(name, s);
    };
    const fm_beta W = FM_WRITE, A = FM_ADD;
    opens("attention opening 8x32",
          {1, 12, 256, 256, 8, 32, 256, false, true, true, true, false, 50, W});
    opens("attention opening 4x32 transposed",
          {1, 24, 256, 256, 4, 32, 128, true, true, true, true, false, 50, W});
    opens("attention opening 90 4x32, no gate",
          {1, 7, 90, 90, 4, 32, 128, false, false, true, true, false, 9, A});
    opens("attention opening 77 8x32 transposed",
          {1, 5, 77, 77, 8, 32, 256, true, true, true, true, false, 9, W});
    opens("attention opening groups 130 4x16",
          {3, 11, 130, 130, 4, 16, 64, false, true, true, true, false, 50, W});
    opens("attention opening groups 70 4x16 transposed",
          {3, 9, 70, 70, 4, 16, 64, true, true, true, true, false, 50, A});
    opens("attention opening extra 8x8",
          {1, 24, 256, 256, 8, 8, 64, false, true, true, true, false, 50, W});
    /* A bias that the opening cannot pack. */
    opens("attention opening 130 4x32, heads apart",
          {1, 7, 130, 130, 4, 32, 128, false, true, true, true, false, 9, W, 0, 0, true, true});
    opens("attention opening long 384 8x32",
          {1, 5, 384, 384, 8, 32, 256, false, true, true, true, false, 90, W});
    opens("attention opening long 301 4x32 transposed",
          {1, 6, 301, 301, 4, 32, 128, true, true, true, true, false, 90, A});
    opens("attention opening long extra 384 8x8",
          {1, 6, 384, 384, 8, 8, 64, false, true, true, true, false, 50, W});
}

/* The forward of many batches by single warps (attention_warp.cu): all keys valid, a last tile that
 * is not full, masks, and weights that overflow. */
void check_many_batches(void) {
    const fm_beta W = FM_WRITE, A = FM_ADD;
    /* Several batches for each block of the kernel for dbias, some of them with masked keys. */
    check_attention("attention seldom masked 70 8x8",
                    {1, 100, 70, 70, 8, 8, 64, false, true, true, true, false, 500, W});
    check_attention("attention seldom masked 90x66 4x16",
                    {2, 80, 90, 66, 4, 16, 64, false, true, true, true, false, 300, A});
    check_attention("attention seldom masked 80x130 8x32",
                    {1, 60, 80, 130, 8, 32, 256, false, true, true, true, false, 500, W});
    check_attention("attention batches 384 2x8",
                    {1, 18, 384, 384, 2, 8, 16, false, true, true, false, false, 1, W});
    check_attention("attention batches 384 1x32 transposed",
                    {1, 17, 384, 384, 1, 32, 32, true, true, true, false, false, 1, W});
    check_attention("attention batches 140x300 2x8, no gate",
                    {2, 16, 140, 300, 2, 8, 16, false, false, true, false, false, 1, A});
    check_attention("attention batches 70x330 2x32, no gate",
                    {2, 16, 70, 330, 2, 32, 64, false, false, true, false, false, 1, W});
    check_attention("attention batches 90x400 2x8, mask",
                    {1, 19, 90, 400, 2, 8, 16, true, true, true, true, false, 301, W});
    check_attention("attention batches 70x384 1x32, mask",
                    {1, 20, 70, 384, 1, 32, 32, false, true, true, true, false, 301, W});
    check_attention("attention batches 70x260 1x32, nothing valid",
                    {1, 16, 70, 260, 1, 32, 32, false, true, true, true, false, 0, W});
    check_attention("attention bias of 100 for late keys, batches 70x384 1x32",
                    {1, 16, 70, 384, 1, 32, 32, false, true, true, false, false, 1, W, 100, 300});
    check_attention("attention bias of 100 for late keys, batches 300x100 1x8",
                    {1, 16, 300, 100, 1, 8, 8, false, true, true, false, false, 1, W, 100, 20});
}

/* More keys than training has. */
void check_many_keys(void) {
    const fm_beta W = FM_WRITE;
    check_attention("attention 2304 keys 1x32",
                    {1, 1, 80, 2304, 1, 32, 32, false, true, true, true, false, 700, W});
    check_attention("attention 3000 keys 2x8, no bias",
                    {1, 2, 70, 3000, 2, 8, 16, true, true, false, true, false, 90, W});
    check_attention("attention 4610 keys 1x32",
                    {1, 1, 70, 4610, 1, 32, 32, false, true, true, true, false, 0, W});
}

/* More than 32 channels per head, and keys in one, two and three rounds of the backward. */
void check_wide_heads(void) {
    const fm_beta W = FM_WRITE, A = FM_ADD;
    check_attention("attention c 48",
                    {1, 2, 70, 33, 2, 48, 96, false, true, true, true, false, 5, A});
    check_attention("attention c 40, no gate",
                    {2, 2, 33, 70, 2, 40, 80, false, false, true, true, false, 5, W});
    check_attention("attention c 64, no bias",
                    {1, 3, 130, 200, 2, 64, 128, false, true, false, true, false, 9, A});
    check_attention("attention c 56, nothing valid",
                    {1, 2, 20, 90, 3, 56, 168, false, true, true, true, false, 0, W});
    check_attention("attention samples 190 2x48",
                    {1, 9, 190, 190, 2, 48, 96, false, true, true, true, false, 50, W});
    check_attention("attention samples 384 4x48",
                    {1, 6, 384, 384, 4, 48, 192, false, true, true, true, false, 90, W});
    check_attention("attention samples 500 2x48",
                    {1, 3, 500, 500, 2, 48, 96, false, true, true, true, false, 90, A});
    check_attention("attention sample 384 16x48",
                    {1, 1, 384, 384, 16, 48, 768, false, true, true, true, false, 90, W});
    check_attention("attention windows 32x128 4x32",
                    {12, 5, 32, 128, 4, 32, 128, false, true, true, true, false, 11, W});
    check_attention("attention windows 32x128 1x24, nothing valid",
                    {3, 2, 32, 128, 1, 24, 24, false, true, true, true, false, 0, A});
    check_attention("attention rounds 600 2x32",
                    {1, 4, 600, 600, 2, 32, 64, false, true, true, true, false, 90, W});
}

void check_large_biases(void) {
    const fm_beta W = FM_WRITE;
    /* A bias that is the same for all keys changes no weight, unless the backward scales it
     * differently than the forward: 1 / scale rounded to bf16 moves these logits by 0.014. */
    check_attention("attention bias of 128, 256 2x32",
                    {1, 2, 256, 256, 2, 32, 64, false, true, true, true, false, 37, W, 128});
    check_attention("attention bias of 128, long 300 2x32",
                    {1, 2, 300, 300, 2, 32, 64, false, true, true, true, false, 37, W, 128});
    check_attention("attention bias of 128, 600x70 2x8",
                    {1, 2, 600, 70, 2, 8, 16, false, true, true, true, false, 37, W, 128});
    check_attention("attention bias of 128, 50 2x32",
                    {1, 2, 50, 50, 2, 32, 64, false, true, true, true, false, 37, W, 128});
    /* Weights of the later keys overflow if the shift is the maximum of the first 128 keys. */
    check_attention("attention bias of 100 for late keys, 70x256 2x32",
                    {1, 5, 70, 256, 2, 32, 64, false, true, true, false, false, 1, W, 100, 200});
    check_attention("attention bias of 100 for late keys, 300x384 2x8",
                    {1, 9, 300, 384, 2, 8, 16, false, true, true, false, false, 1, W, 100, 300});
    check_attention("attention bias of 50 for late keys, 150x512 1x16",
                    {2, 3, 150, 512, 1, 16, 16, false, false, true, false, false, 1, W, 50, 140});
}

/* One walk for all gradients: halves of keys and queries that are not whole, many chunks, and
 * chunks of so many batches that the ring's stages are used again. */
void check_one_walk(void) {
    const fm_beta W = FM_WRITE, A = FM_ADD;
    check_attention("attention all groups 200x150 3x32",
                    {2, 5, 200, 150, 3, 32, 96, false, true, true, true, false, 9, A});
    check_attention("attention all 129x250 2x32 transposed, no gate",
                    {1, 37, 129, 250, 2, 32, 64, true, false, true, true, false, 7, W});
    check_attention("attention all 256x133 1x32, nothing valid",
                    {1, 69, 256, 133, 1, 32, 32, false, true, true, true, false, 0, W});
    check_attention("attention all many batches 130x133 8x32",
                    {4, 9, 130, 133, 8, 32, 256, false, true, true, true, false, 11, A});
    check_attention("attention all many batches 133x130 8x32",
                    {8, 7, 133, 130, 8, 32, 256, true, true, true, true, false, 11, W});
    check_attention("attention all many batches 130x133 8x24",
                    {8, 7, 130, 133, 8, 24, 192, false, true, true, true, false, 11, W});
}

/* 257 to 1,024 queries or keys, backward in passes over the keys. */
void check_long_sequences(void) {
    const fm_beta W = FM_WRITE, A = FM_ADD;
    check_attention("attention long 384x384 2x32",
                    {1, 7, 384, 384, 2, 32, 64, false, true, true, true, false, 90, W});
    check_attention("attention long 512x512 2x32",
                    {1, 2, 512, 512, 2, 32, 64, false, true, true, true, false, 50, A});
    check_attention("attention long 512x512 c 32 transposed, no bias",
                    {1, 5, 512, 512, 1, 32, 32, true, true, false, true, false, 7, W});
    check_attention("attention long 450x490 c 24",
                    {1, 2, 450, 490, 2, 24, 48, false, true, true, true, false, 90, A});
    check_attention("attention long 390x130 c 32, no gate",
                    {2, 2, 390, 130, 1, 32, 32, false, false, true, true, false, 5, W});
    check_attention("attention long 100x500 c 16",
                    {1, 3, 100, 500, 2, 16, 32, false, true, true, true, false, 50, W});
    check_attention("attention long 330x350 c 8, nothing valid",
                    {1, 2, 330, 350, 2, 8, 16, false, true, true, true, false, 0, A});
    check_attention("attention long 400x390 c 8",
                    {1, 3, 400, 390, 2, 8, 16, false, true, true, true, false, 50, W});
    check_attention("attention long extra 384 8x8",
                    {1, 6, 384, 384, 8, 8, 64, false, true, true, true, false, 50, W});
    check_attention("attention long 640x640 2x32",
                    {1, 3, 640, 640, 2, 32, 64, false, true, true, true, false, 90, W});
    check_attention("attention long 1024x1000 c 32 transposed, no bias",
                    {1, 3, 1024, 1000, 1, 32, 32, true, true, false, true, false, 50, W});
    check_attention("attention long 1000x1024 c 32",
                    {2, 1, 1000, 1024, 1, 32, 32, false, true, true, true, false, 50, A});
    check_attention("attention long 700x900 c 16, no mask",
                    {1, 2, 700, 900, 1, 16, 16, false, true, true, false, false, 5, W});
    check_attention("attention long 520x1020 c 8",
                    {1, 2, 520, 1020, 2, 8, 16, false, true, true, true, false, 50, A});
    check_attention("attention long 1020x80 c 24, nothing valid",
                    {1, 2, 1020, 80, 2, 24, 48, false, true, true, true, false, 0, W});
}

} // namespace

void check_attentions(void) {
    const fm_beta W = FM_WRITE, A = FM_ADD;
    /*                   group batch query key head c ld  transposed gated biased masked shared */
    check_attention("attention 7x7 c 5",
                    {1, 3, 7, 7, 2, 5, 10, false, true, true, true, false, 5, W});
    check_attention("attention one", {1, 1, 1, 1, 1, 1, 1, false, true, true, true, false, 5, W});
    check_attention("attention rectangular",
                    {1, 2, 3, 11, 1, 4, 4, false, false, false, false, false, 5, A});
    check_attention("attention pointwise",
                    {1, 900, 1, 4, 4, 16, 64, false, false, false, true, false, 5, W});
    check_attention("attention pointwise, 8 keys c 32",
                    {1, 70, 1, 8, 3, 32, 96, false, false, false, false, false, 5, A});
    check_attention("attention pointwise, 3 keys c 8, nothing valid",
                    {2, 33, 1, 3, 5, 8, 40, false, false, false, true, false, 0, W});
    check_attention("attention shared key",
                    {1, 33, 1, 130, 8, 8, 64, false, false, false, true, true, 5, W});
    check_attention("attention shared key c 16",
                    {2, 5, 1, 1021, 9, 16, 160, false, false, false, true, true, 3, A});
    check_attention("attention shared key, nothing valid",
                    {1, 3, 1, 40, 8, 8, 64, false, false, false, true, true, 0, W});
    check_attention("attention shared key c 5",
                    {1, 7, 1, 33, 3, 5, 15, false, false, false, true, true, 4, A});
    check_attention("attention nothing valid",
                    {1, 2, 19, 21, 2, 8, 16, false, true, true, true, false, 0, W});
    check_attention("attention groups",
                    {2, 3, 40, 40, 2, 16, 32, false, true, true, true, false, 5, A});
    check_attention("attention 65x129 c 32",
                    {1, 3, 65, 129, 2, 32, 64, false, true, true, true, false, 5, W});
    check_attention("attention 129x65 c 8",
                    {1, 2, 129, 65, 3, 8, 24, false, true, true, true, false, 5, A});
    check_attention("attention groups 100x200 c 8 transposed",
                    {2, 5, 100, 200, 3, 8, 24, true, true, true, true, false, 5, A});
    check_attention("attention 280x70 c 8, no mask",
                    {1, 4, 280, 70, 2, 8, 16, false, true, true, false, false, 5, W});
    check_attention("attention 70 c 24, no gate",
                    {1, 2, 70, 70, 2, 24, 48, false, false, true, false, false, 5, W});
    check_attention("attention single 16x24",
                    {1, 1, 384, 384, 16, 24, 384, false, true, true, true, false, 50, W});
    check_attention("attention single 77 16x24",
                    {1, 1, 77, 77, 16, 24, 384, false, true, true, true, false, 5, A});
    check_attention("attention single 200 16x24, no mask",
                    {1, 1, 200, 200, 16, 24, 384, false, true, true, false, false, 5, W});
    check_attention("attention triangle 100 4x32",
                    {1, 100, 100, 100, 4, 32, 128, false, true, true, true, false, 9, W});
    check_attention("attention 33 transposed",
                    {1, 33, 33, 33, 4, 32, 128, true, true, true, true, false, 7, W});
    check_attention("attention 250x20 c 32",
                    {2, 3, 250, 20, 2, 32, 64, false, true, true, true, false, 5, A});
    check_attention("attention 9x250 c 16",
                    {1, 3, 9, 250, 3, 16, 48, false, true, true, true, false, 5, W});
    check_attention("attention 300x290 c 32",
                    {1, 2, 300, 290, 2, 32, 64, false, true, true, true, false, 5, W});
    check_attention("attention row 256 8x32",
                    {1, 12, 256, 256, 8, 32, 256, false, true, true, true, false, 50, W});
    check_attention("attention column 128 8x32",
                    {1, 24, 128, 128, 8, 32, 256, true, true, false, true, false, 50, W});
    check_attention("attention triangle 256 4x32",
                    {1, 24, 256, 256, 4, 32, 128, true, true, true, true, false, 50, W});
    check_attention("attention extra 256 8x8",
                    {1, 24, 256, 256, 8, 8, 64, false, true, true, true, false, 50, W});
    check_attention("attention 150x290 8x32",
                    {1, 19, 150, 290, 8, 32, 256, false, true, true, true, false, 50, W});
    check_attention("attention 384 4x32 transposed",
                    {1, 10, 384, 384, 4, 32, 128, true, true, true, true, false, 90, W});
    check_attention("attention 70x140 c 32, nothing valid",
                    {2, 2, 70, 140, 3, 32, 96, false, true, true, true, false, 0, W});
    check_attention("attention 100x400 c 8, no bias",
                    {1, 11, 100, 400, 4, 8, 32, true, true, false, true, false, 3, W});
    check_attention("attention 300x200 c 16, no mask",
                    {2, 5, 300, 200, 4, 16, 64, false, true, true, false, false, 3, W});
    check_attention("attention template 128 4x16",
                    {2, 16, 128, 128, 4, 16, 64, false, true, true, true, false, 50, W});
    check_attention("attention templates ending 128 4x16",
                    {4, 128, 128, 128, 4, 16, 64, true, true, true, true, false, 50, W});
    check_long_sequences();
    check_openings();
    check_one_walk();
    check_wide_heads();
    check_large_biases();
    check_many_batches();
    check_many_keys();
}

} // namespace cuda_check
