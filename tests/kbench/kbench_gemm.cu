/* kbench_gemm.cu: matrix products of the trunk's linear layers, y = x W^T, and their gradients. */
#include "tests/kbench/kbench.cuh"

#include <stdio.h>

namespace kbench {
namespace {

enum kind { LINEAR, BIAS, BIAS_RELU, INPUT_GRADIENT, WEIGHT_GRADIENT };

/* The path "library" is chosen by an alpha, which it takes at no cost. */
void gemm(bench &b, int64_t m, int64_t n, int64_t depth, int64_t batch, kind what) {
    const fm_kernels *k = b.k;
    bool is_weight = what == WEIGHT_GRADIENT;
    fm_gemm g = {};
    g.m = m, g.n = n, g.k = depth, g.batch = batch;
    g.alpha = b.is("library") ? 0.5 : 1;
    g.trans_a = is_weight, g.trans_b = !is_weight && what != INPUT_GRADIENT;
    g.lda = is_weight ? m : depth, g.ldb = g.trans_b ? depth : n, g.ldc = n;
    g.stride_a = m * depth, g.stride_b = n * depth, g.stride_c = m * n;
    g.a = b.act(batch * m * depth), g.b = b.act(batch * n * depth, 0.1);
    g.c_is_acc = is_weight;
    g.c = b.grad("c", batch * m * n, is_weight).data;
    if (what == BIAS) g.epilogue = FM_EPILOGUE_BIAS;
    if (what == BIAS_RELU) g.epilogue = FM_EPILOGUE_BIAS_RELU;
    if (g.epilogue != FM_EPILOGUE_NONE) g.bias = b.act(n);
    void *space = b.scratch(k->gemm_workspace(&g));
    b.part("gemm", 2.0 * (double)(m * n) * (double)(depth * batch),
           b.size((double)batch * (double)(m * depth + n * depth + m * n)),
           [=](fm_stream *q) { k->gemm(q, &g, space); });
}

/* m rows, n of the output's columns, over `depth`. */
void add_gemm(const char *name, double other, int64_t m, int64_t n, int64_t depth, int64_t batch,
              kind what, const std::vector<path> &paths = {}) {
    add(
        name, {0, other}, {}, [=](bench &b) { gemm(b, m, n, depth, batch, what); }, paths);
}

/* The same in f32, as in the structure module. */
void add_f32(const char *name, int64_t m, int64_t n, int64_t depth, kind what) {
    options how;
    how.is_f32 = true;
    add(name, {0, 0}, how, [=](bench &b) { gemm(b, m, n, depth, 1, what); });
}

/* dW [m, n] = dy^T x over `rows`, and with a bias the sums of dy's columns from sum_first on. The
 * path "library" is chosen as above. */
void weights(bench &b, int64_t rows, int64_t m, int64_t n, bool has_bias, int64_t sum_first) {
    const fm_kernels *k = b.k;
    fm_gemm g = {};
    g.m = m, g.n = n, g.k = rows, g.batch = 1, g.trans_a = true, g.c_is_acc = true;
    g.alpha = b.is("library") ? 0.5 : 1;
    g.lda = m, g.ldb = n, g.ldc = n;
    g.a = b.act(rows * m), g.b = b.act(rows * n, 0.1);
    g.c = b.grad("dw", m * n, true).data;
    if (has_bias) g.sum = b.grad("dbias", m - sum_first, true), g.sum_first = sum_first;
    void *space = b.scratch(k->gemm_workspace(&g));
    b.part("bwd", 2.0 * (double)(m * n) * (double)rows, b.size((double)(rows * (m + n))),
           [=](fm_stream *q) { k->gemm(q, &g, space); });
}

/* Both with and without a bias. */
void add_weights(int64_t rows, int64_t m, int64_t n, int64_t sum_first) {
    for (bool has_bias : {false, true}) {
        char name[64];
        snprintf(name, sizeof name, "weights %lldx%lldx%lld%s", (long long)rows, (long long)m,
                 (long long)n, has_bias ? " bias" : "");
        add(name, {0, 0}, {}, [=](bench &b) { weights(b, rows, m, n, has_bias, sum_first); },
            {{"library", NULL}});
    }
}

} // namespace

void add_gemm_cases(void) {
    /* Peers: cuBLAS through PyTorch, without a bias. */
    add_gemm("gemm 32768x256x1024", 0.0446, 32768, 256, 1024, 1, LINEAR);
    add_gemm("gemm 32768x1024x256", 0.0351, 32768, 1024, 256, 1, LINEAR);
    add_gemm("gemm 32768x1024x256 bias", 0, 32768, 1024, 256, 1, BIAS, {{"library", NULL}});
    add_gemm("gemm 32768x1024x256 bias relu", 0.0351, 32768, 1024, 256, 1, BIAS_RELU);
    add_gemm("gemm 32768x256x256", 0.0160, 32768, 256, 256, 1, LINEAR);
    add_gemm("gemm 32768x256x256 bias", 0.0160, 32768, 256, 256, 1, BIAS);
    add_gemm("gemm 65536x512x128", 0.0275, 65536, 512, 128, 1, LINEAR);
    add_gemm("gemm 65536x640x128", 0, 65536, 640, 128, 1, LINEAR);
    add_gemm("gemm 65536x128x512", 0.0312, 65536, 128, 512, 1, LINEAR);
    add_gemm("gemm 65536x128x128", 0.0126, 65536, 128, 128, 1, LINEAR);
    add_gemm("gemm 65536x128x256", 0.0209, 65536, 128, 256, 1, LINEAR);
    add_gemm("gemm 256x256x256 x128", 0.0180, 256, 256, 256, 128, LINEAR);
    add_gemm("gemm 65536x128x512 input gradient", 0.0312, 65536, 128, 512, 1, INPUT_GRADIENT);
    add_gemm("gemm 256x1024x32768 weight gradient", 0, 256, 1024, 32768, 1, WEIGHT_GRADIENT);
    add_gemm("gemm 128x512x65536 weight gradient", 0, 128, 512, 65536, 1, WEIGHT_GRADIENT);
    add_gemm("gemm 128x128x65536 weight gradient", 0, 128, 128, 65536, 1, WEIGHT_GRADIENT);
    add_gemm("gemm 8x128x65536 weight gradient", 0, 8, 128, 65536, 1, WEIGHT_GRADIENT);
    add_gemm("gemm 4x128x65536 weight gradient", 0, 4, 128, 65536, 1, WEIGHT_GRADIENT);
    add_f32("f32 gemm 256x384x384 bias relu", 256, 384, 384, BIAS_RELU);
    add_f32("f32 gemm 256x384x2112 bias", 256, 384, 2112, BIAS);
    add_f32("f32 gemm 256x1152x384 bias", 256, 1152, 384, BIAS);
    add_f32("f32 gemm 256x6x384 bias", 256, 6, 384, BIAS);
    add_f32("f32 gemm 256x384x384 input gradient", 256, 384, 384, INPUT_GRADIENT);
    add_f32("f32 gemm 256x2112x384 input gradient", 256, 2112, 384, INPUT_GRADIENT);
    add_f32("f32 gemm 384x384x256 weight gradient", 384, 384, 256, WEIGHT_GRADIENT);
    add_f32("f32 gemm 384x2112x256 weight gradient", 384, 2112, 256, WEIGHT_GRADIENT);
    add_weights(65536, 128, 128, 0);
    add_weights(65536, 512, 128, 384);
    add_weights(65536, 128, 512, 0);
    add_weights(32768, 1024, 256, 768);
    add_weights(196608, 1024, 256, 768); /* of the fine-tuning shape */
    add_weights(32768, 256, 1024, 0);
    add_weights(32768, 256, 256, 0);
    add_weights(32768, 64, 256, 0);
    add_weights(262144, 256, 64, 192);
    add_weights(262144, 64, 256, 0);
    add_weights(262144, 64, 64, 0);
    add_weights(262144, 128, 64, 0);
    add_weights(262144, 64, 128, 0);
    add_weights(65536, 128, 1024, 0);
    add_weights(8192, 256, 256, 0); /* a quarter of the rows, as where the arrays are split */
    add_weights(16384, 512, 128, 384);
    add_gemm("ft gemm 196608x1024x256 bias", 0, 196608, 1024, 256, 1, BIAS, {{"library", NULL}});
    add_gemm("ft gemm 196608x256x1024", 0, 196608, 256, 1024, 1, LINEAR);
    add_gemm("ft gemm 147456x512x128", 0, 147456, 512, 128, 1, LINEAR);
}

} // namespace kbench
