/* cuda_check_paths.cu: which kernels attention, products and transitions take for shapes and
 * addresses. The choice is made on the host and reads no operand. That of attention needs no
 * device; the others ask for its number of multiprocessors. Every path has a case that takes it. */
#include "tests/trainer/cuda/cuda_check.cuh"

#include "trainer/backend/cuda/attention/attention.cuh"
#include "trainer/backend/cuda/gemm/gemm.cuh"

#include <math.h>
#include <type_traits>

namespace cuda_check {
namespace {

using namespace fm_cuda;

struct path_shape {
    int64_t query, key, head, c;
    bool gated, biased, shared;
    int64_t batches = 3;
};

/* Which paths a family's cases have seen. */
template <int COUNT> struct seen_paths {
    bool is_seen[COUNT] = {};

    bool add(int path) {
        return is_seen[path] = true;
    }
    bool are_all() const {
        bool all = true;
        for (bool one : is_seen)
            all = all && one;
        return all;
    }
};

seen_paths<ATTENTION_PATHS> seen_attentions;

/* A call of one group whose operands are at multiples of 16 bytes. The addresses stand for memory
 * that nobody reads. */
struct path_call {
    fm_attention a = {};
    fm_attention_grad grad = {};

    explicit path_call(path_shape s) {
        char *at = (char *)4096;
        int64_t ld = s.head * s.c, ld_k = s.shared ? s.c : ld;
        a.n_group = 1, a.n_batch = s.batches, a.n_query = s.query, a.n_key = s.key;
        a.n_head = s.head, a.n_kv_head = s.shared ? 1 : s.head, a.c_head = s.c;
        a.scale = 1 / sqrt((double)s.c), a.mask_value = 1e9;
        a.q_stride = a.g_stride = a.o_stride = {s.batches * s.query * ld, s.query * ld, ld, s.c};
        a.k_stride = a.v_stride = {s.batches * s.key * ld_k, s.key * ld_k, ld_k, s.c};
        a.q = at, a.k = at, a.v = at, a.o = at;
        grad.dout = at, grad.dq.data = at, grad.dk.data = at, grad.dv.data = at;
        if (s.gated) a.g = at, grad.dg.data = at;
        if (s.biased) a.bias = at, grad.dbias.data = at;
    }
};

/* Moves an address by one element of bf16. */
template <typename P> void move(P *&address) {
    address = (P *)((char *)address + 2);
}

/* Whether backward leaves its path for PLAIN when the operand that f moves is not aligned. */
template <typename T, typename F> bool is_guarded(path_shape s, const F &f) {
    path_call call(s);
    f(call);
    return attention_path_of<T>(&call.a, &call.grad) == ATTENTION_PLAIN;
}

/* The path of both directions, and that no operand of a gated call may be at an odd address. */
template <typename T>
void check_path(const char *name, path_shape s, attention_path forward, attention_path backward) {
    path_call call(s);
    seen_attentions.add(forward), seen_attentions.add(backward);
    bool is_ok = attention_path_of<T>(&call.a, NULL) == forward &&
                 attention_path_of<T>(&call.a, &call.grad) == backward;
    is_ok = is_ok && is_guarded<T>(s, [](path_call &c) { move(c.a.q); }) &&
            is_guarded<T>(s, [](path_call &c) { move(c.a.k); }) &&
            is_guarded<T>(s, [](path_call &c) { move(c.a.v); }) &&
            is_guarded<T>(s, [](path_call &c) { move(c.grad.dout); }) &&
            is_guarded<T>(s, [](path_call &c) { move(c.grad.dk.data); }) &&
            is_guarded<T>(s, [](path_call &c) { move(c.grad.dv.data); });
    if (s.gated) {
        is_ok = is_ok && is_guarded<T>(s, [](path_call &c) { move(c.a.o); }) &&
                is_guarded<T>(s, [](path_call &c) { move(c.a.g); }) &&
                is_guarded<T>(s, [](path_call &c) { move(c.grad.dq.data); }) &&
                is_guarded<T>(s, [](path_call &c) { move(c.grad.dg.data); });
    }
    expect(name, is_ok);
}

/* -- products and transitions */

seen_paths<GEMM_PATHS> seen_products;

/* The path of C[m, n] of rows without gaps at multiples of 16 bytes, with a workspace. */
template <typename T, typename F>
void check_product(const char *name, int64_t m, int64_t n, int64_t k, gemm_path expected,
                   const F &change) {
    char *at = (char *)4096;
    fm_gemm g = {};
    g.m = m, g.n = n, g.k = k, g.batch = 1, g.alpha = 1;
    g.a = at, g.b = at, g.c = at;
    change(g);
    g.lda = g.trans_a ? m : k, g.ldb = g.trans_b ? k : n, g.ldc = n;
    seen_products.add(expected);
    bool is_ok = gemm_path_of<T>(&g, at) == expected;
    if (std::is_same_v<T, bf16>) {
        move(g.b);
        is_ok = is_ok && gemm_path_of<T>(&g, at) == GEMM_LIBRARY;
    }
    expect(name, is_ok);
}

void check_products(void) {
    const auto plain = [](fm_gemm &) {};
    const auto linear = [](fm_gemm &g) { g.trans_b = true; };
    const auto biased = [](fm_gemm &g) {
        g.trans_b = true, g.epilogue = FM_EPILOGUE_BIAS, g.bias = g.a;
    };
    const auto relu_grad = [](fm_gemm &g) { g.epilogue = FM_EPILOGUE_RELU_GRAD, g.relu = g.a; };
    const auto weight = [](fm_gemm &g) { g.trans_a = g.c_is_acc = true; };
    const auto weight_and_sum = [](fm_gemm &g) {
        g.trans_a = g.c_is_acc = true, g.sum = {g.c, FM_WRITE};
    };
    check_product<bf16>("product path 512x512", 512, 512, 512, GEMM_LIBRARY, plain);
    check_product<tf32>("product path tf32 64x64", 64, 64, 64, GEMM_LIBRARY, plain);
    check_product<float>("product path f32 64x64", 64, 64, 64, GEMM_SMALL, plain);
    check_product<float>("product path f32 65536x512", 65536, 512, 64, GEMM_LIBRARY, plain);
    check_product<bf16>("product path to 4", 65536, 4, 128, GEMM_HEADS, linear);
    check_product<bf16>("product path from 4", 65536, 128, 4, GEMM_SPREAD, plain);
    check_product<bf16>("product path weight of 4", 4, 128, 65536, GEMM_FEW, weight);
    check_product<bf16>("product path 256 to 1024", 32768, 1024, 256, GEMM_CLUSTER, biased);
    check_product<bf16>("product path through a ReLU", 32768, 1024, 256, GEMM_LINEAR, relu_grad);
    check_product<bf16>("product path weight 128x512", 128, 512, 65536, GEMM_WEIGHTS,
                        weight_and_sum);
    expect("every path of a product has a case", seen_products.are_all());
}

seen_paths<TRANSITION_PATHS> seen_transitions;

/* The paths of both directions of rows of c channels whose hidden layer is not kept. */
template <typename T>
void check_transition(const char *name, int64_t c, int64_t hidden, transition_path forward,
                      transition_path backward) {
    char *at = (char *)4096;
    fm_transition a = {};
    a.end.dropout.n0 = a.end.dropout.n1 = 256, a.end.dropout.c = c, a.hidden = hidden;
    fm_transition_grad grad = {};
    grad.dx.data = at, grad.dw1.data = at, grad.dw2.data = at;
    seen_transitions.add(forward), seen_transitions.add(backward);
    bool is_ok =
        transition_path_of<T>(&a, NULL) == forward && transition_path_of<T>(&a, &grad) == backward;
    a.kept = at;
    is_ok = is_ok && transition_path_of<T>(&a, NULL) == TRANSITION_COMPOSED &&
            transition_path_of<T>(&a, &grad) == TRANSITION_COMPOSED;
    expect(name, is_ok);
}

void check_transition_paths(void) {
    check_transition<bf16>("transition path 64", 64, 256, TRANSITION_ONE, TRANSITION_SPLIT);
    check_transition<bf16>("transition path 128", 128, 512, TRANSITION_ONE, TRANSITION_BACK);
    check_transition<bf16>("transition path 128, 256 hidden", 128, 256, TRANSITION_ONE,
                           TRANSITION_SPLIT);
    check_transition<bf16>("transition path 256", 256, 1024, TRANSITION_ONE, TRANSITION_AGAIN);
    check_transition<bf16>("transition path 256, 2048 hidden", 256, 2048, TRANSITION_ONE,
                           TRANSITION_COMPOSED);
    check_transition<bf16>("transition path 96", 96, 384, TRANSITION_COMPOSED, TRANSITION_COMPOSED);
    check_transition<float>("transition path f32 128", 128, 512, TRANSITION_COMPOSED,
                            TRANSITION_COMPOSED);
    expect("every path of a transition has a case", seen_transitions.are_all());
}

} // namespace

void check_product_paths(void) {
    check_products();
    check_transition_paths();
}

void check_paths(void) {
    check_path<bf16>("attention path 256x256 c 32", {256, 256, 8, 32, true, true, false},
                     ATTENTION_WGMMA, ATTENTION_ALL);
    check_path<bf16>("attention path 256x256 without a bias", {256, 256, 8, 32, true, false, false},
                     ATTENTION_WGMMA, ATTENTION_WGMMA);
    check_path<bf16>("attention path 128x256 c 32", {128, 256, 8, 32, true, true, false},
                     ATTENTION_WGMMA, ATTENTION_WGMMA);
    check_path<bf16>("attention path 256x256 c 24", {256, 256, 8, 24, true, true, false},
                     ATTENTION_MMA, ATTENTION_ALL);
    check_path<bf16>("attention path 384x384 c 32", {384, 384, 4, 32, true, true, false},
                     ATTENTION_WGMMA, ATTENTION_WGMMA_LONG);
    check_path<bf16>("attention path 384x384, 16 batches", {384, 384, 4, 32, true, true, false, 16},
                     ATTENTION_WARP, ATTENTION_WGMMA_LONG);
    check_path<bf16>("attention path 256x256, 16 batches", {256, 256, 4, 32, true, true, false, 16},
                     ATTENTION_WGMMA, ATTENTION_ALL);
    check_path<bf16>("attention path 385x385, 16 batches", {385, 385, 4, 32, true, true, false, 16},
                     ATTENTION_WGMMA, ATTENTION_WGMMA_LONG);
    check_path<bf16>("attention path 256x704 c 8", {256, 704, 8, 8, true, true, false, 16},
                     ATTENTION_WARP, ATTENTION_SMALL);
    check_path<bf16>("attention path 256x705 c 8", {256, 705, 8, 8, true, true, false, 16},
                     ATTENTION_WGMMA, ATTENTION_SMALL);
    check_path<bf16>("attention path 385x385 c 8", {385, 385, 8, 8, true, true, false},
                     ATTENTION_WGMMA, ATTENTION_WGMMA_LONG);
    check_path<bf16>("attention path 64x64 c 8", {64, 64, 8, 8, true, true, false}, ATTENTION_MMA,
                     ATTENTION_WGMMA);
    check_path<bf16>("attention path 600x600 c 32", {600, 600, 2, 32, true, true, false},
                     ATTENTION_WGMMA, ATTENTION_WGMMA_LONG);
    check_path<bf16>("attention path 1030x600 c 32", {1030, 600, 2, 32, true, true, false},
                     ATTENTION_WGMMA, ATTENTION_MMA);
    check_path<bf16>("attention path 384x384 c 48", {384, 384, 16, 48, true, true, false},
                     ATTENTION_MMA, ATTENTION_MMA);
    check_path<tf32>("attention path tf32 384x384 c 48", {384, 384, 16, 48, true, true, false},
                     ATTENTION_TF32, ATTENTION_TF32);
    check_path<float>("attention path f32 256x256 c 32", {256, 256, 8, 32, true, true, false},
                      ATTENTION_PLAIN, ATTENTION_PLAIN);
    check_path<bf16>("attention path of shared keys", {1, 1024, 8, 8, false, false, true},
                     ATTENTION_ONE_QUERY, ATTENTION_ONE_QUERY);
    check_path<bf16>("attention path of few keys", {1, 4, 4, 16, false, false, false},
                     ATTENTION_FEW_KEYS, ATTENTION_FEW_KEYS);
    check_path<bf16>("attention path c 5", {70, 70, 2, 5, true, true, false}, ATTENTION_PLAIN,
                     ATTENTION_PLAIN);
    expect("every path of attention has a case", seen_attentions.are_all());
}

} // namespace cuda_check
