/* kbench_gemm.cu: matrix products of the trunk's linear layers, y = x W^T, and their gradients. */
#include "tests/kbench/kbench.cuh"

namespace kbench {
namespace {

enum kind { LINEAR, BIAS, BIAS_RELU, INPUT_GRADIENT, WEIGHT_GRADIENT };

void gemm(bench &b, int64_t m, int64_t n, int64_t depth, int64_t batch, kind what) {
    const fm_kernels *k = b.k;
    bool is_weight = what == WEIGHT_GRADIENT;
    fm_gemm g = {};
    g.m = m, g.n = n, g.k = depth, g.batch = batch, g.alpha = 1;
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

} // namespace

void add_gemm_cases(void) {
    /* Peers: cuBLAS through PyTorch, without a bias. */
    add_gemm("gemm 32768x256x1024", 0.0446, 32768, 256, 1024, 1, LINEAR);
    add_gemm("gemm 32768x1024x256", 0.0351, 32768, 1024, 256, 1, LINEAR);
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
    add_gemm("ft gemm 196608x256x1024", 0, 196608, 256, 1024, 1, LINEAR);
    add_gemm("ft gemm 147456x512x128", 0, 147456, 512, 128, 1, LINEAR);
}

} // namespace kbench
