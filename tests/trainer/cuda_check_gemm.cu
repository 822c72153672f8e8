/* cuda_check_gemm.cu: cases of matrix products: shapes for cuBLASLt, for the kernels of this
 * backend and for the plain one, and their epilogues; see cuda_check.cu. */
#include "tests/trainer/cuda_check.cuh"

namespace cuda_check {
namespace {

void check_gemm(const char *name, int64_t m, int64_t n, int64_t k, int64_t batch, int trans,
                fm_epilogue epilogue, bool add, bool is_acc, int64_t gap) {
    check(name, 1, [=](work_bench &b) {
        fm_gemm g = {};
        g.m = m, g.n = n, g.k = k, g.batch = batch;
        g.trans_a = trans & 1, g.trans_b = trans & 2;
        g.alpha = m == 4 || n == 4 || k == 4 ? 1 : 0.5, g.beta = add ? 1 : 0;
        g.lda = (g.trans_a ? m : k) + gap, g.ldb = (g.trans_b ? k : n) + gap, g.ldc = n + gap;
        g.stride_a = (g.trans_a ? k : m) * g.lda, g.stride_b = (g.trans_b ? n : k) * g.ldb;
        g.stride_c = m * g.ldc;
        g.a = b.act(batch * g.stride_a), g.b = b.act(batch * g.stride_b);
        g.epilogue = epilogue;
        if (epilogue != FM_EPILOGUE_NONE) g.bias = b.act(n);
        g.c_is_acc = is_acc;
        fm_out c = b.grad(batch * g.stride_c, add ? FM_ADD : FM_WRITE, is_acc);
        g.c = c.data;
        b.k->gemm(NULL, &g, b.space(b.k->gemm_workspace(&g)));
    });
}

/* y = x W^T + bias + residual, also with a bias that begins with zeros. */
void check_addend(const char *name, int64_t m, int64_t n, int64_t k, int64_t gap) {
    check(name, 1, [=](work_bench &b) {
        fm_gemm g = {};
        g.m = m, g.n = n, g.k = k, g.batch = 1, g.trans_b = true, g.alpha = 1, g.beta = 1;
        g.lda = k, g.ldb = k, g.ldc = n + gap;
        g.a = b.act(m * k), g.b = b.act(n * k), g.addend = b.act(m * g.ldc), g.bias = b.act(n);
        g.epilogue = FM_EPILOGUE_BIAS;
        g.c = b.grad(m * g.ldc, FM_WRITE).data;
        b.k->gemm(NULL, &g, b.space(b.k->gemm_workspace(&g)));
    });
}

void check_relu_grad(const char *name, int64_t m, int64_t n, int64_t k, int64_t gap,
                     fm_beta sum_beta, bool has_sum) {
    check(name, 1, [=](work_bench &b) {
        fm_gemm g = {};
        g.m = m, g.n = n, g.k = k, g.batch = 1, g.alpha = 1;
        g.lda = k, g.ldb = n, g.ldc = n + gap;
        g.a = b.act(m * k), g.b = b.act(n * k);
        std::vector<double> relu = b.draw(m * g.ldc, 1);
        for (double &v : relu)
            v = v > 0 ? v : 0;
        g.relu = b.input(relu, b.k->act);
        g.epilogue = FM_EPILOGUE_RELU_GRAD;
        g.c = b.grad(m * g.ldc, FM_WRITE).data;
        if (has_sum) g.sum = b.grad(n, sum_beta, true);
        b.k->gemm(NULL, &g, b.space(b.k->gemm_workspace(&g)));
    });
}

} // namespace

void check_gemms(void) {
    check_addend("gemm addend", 4096, 256, 1024, 0);
    check_addend("gemm addend of 128", 16384, 128, 64, 0);
    check_addend("gemm addend odd", 37, 19, 23, 3);
    check_relu_grad("gemm relu_grad pair", 4352, 1024, 128, 0, FM_WRITE, true);
    check_relu_grad("gemm relu_grad msa", 2176, 2048, 256, 0, FM_ADD, true);
    check_relu_grad("gemm relu_grad template", 2048, 128, 64, 0, FM_ADD, true);
    check_relu_grad("gemm relu_grad without sum", 2048, 512, 128, 8, FM_WRITE, false);
    check_relu_grad("gemm relu_grad few rows", 1000, 256, 256, 0, FM_WRITE, true);
    check_relu_grad("gemm relu_grad rows 4100", 4100, 256, 64, 0, FM_WRITE, true);
    check_relu_grad("gemm relu_grad odd", 37, 19, 23, 3, FM_WRITE, true);
    check_relu_grad("gemm relu_grad one", 1, 1, 1, 0, FM_ADD, true);
    for (int64_t k = 64; k <= 256; k *= 2) {
        check_gemm("gemm to four heads", 4100 + k, 4, k, 1, 2, FM_EPILOGUE_NONE, false, false, 0);
        check_gemm("gemm from four heads", 4133, k, 4, 1, 0, FM_EPILOGUE_NONE, true, false, 0);
        check_gemm("gemm four heads' weights", 4, k, 4133, 1, 1, FM_EPILOGUE_NONE, true, true, 0);
    }
    check_gemm("gemm four heads' weights, long", 4, 128, 65536, 1, 1, FM_EPILOGUE_NONE, false, true,
               0);
    check_gemm("gemm bias, many rows", 16384, 128, 64, 1, 2, FM_EPILOGUE_BIAS_RELU, false, false,
               0);
    check_gemm("gemm bias, many rows of 384", 16384, 384, 64, 1, 2, FM_EPILOGUE_BIAS, false, false,
               0);
    check_gemm("gemm linear", 300, 128, 64, 1, 2, FM_EPILOGUE_NONE, false, false, 0);
    check_gemm("gemm bias", 4096, 256, 256, 1, 2, FM_EPILOGUE_BIAS, false, false, 0);
    check_gemm("gemm bias relu", 4096, 1024, 256, 1, 2, FM_EPILOGUE_BIAS_RELU, false, false, 0);
    check_gemm("gemm weight gradient", 256, 128, 32768, 1, 1, FM_EPILOGUE_NONE, true, true, 0);
    check_gemm("gemm add", 512, 128, 512, 1, 0, FM_EPILOGUE_NONE, true, false, 0);
    check_gemm("gemm odd", 37, 19, 23, 1, 0, FM_EPILOGUE_BIAS, false, false, 3);
    check_gemm("gemm odd transposed", 37, 19, 23, 3, 3, FM_EPILOGUE_NONE, true, false, 1);
    check_gemm("gemm odd acc", 9, 5, 1001, 1, 1, FM_EPILOGUE_NONE, false, true, 0);
    check_gemm("gemm one", 1, 1, 1, 1, 2, FM_EPILOGUE_BIAS_RELU, false, false, 0);
    check_gemm("gemm head of 8", 65536, 8, 128, 1, 2, FM_EPILOGUE_NONE, false, false, 0);
    check_gemm("gemm batched", 256, 256, 256, 16, 2, FM_EPILOGUE_NONE, false, false, 0);
}

} // namespace cuda_check
