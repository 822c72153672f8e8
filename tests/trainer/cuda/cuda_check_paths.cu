/* cuda_check_paths.cu: which kernels attention, products and transitions take for shapes and
 * addresses. The choice is made on the host and reads no operand. That of attention needs no
 * device; the others ask for its number of multiprocessors. Every path has a case that takes it.
 * Each case is asked for both sets of kernels, whatever the device has. */
#include "tests/trainer/cuda/cuda_check.cuh"

#include "trainer/backend/cuda/attention/attention.cuh"
#include "trainer/backend/cuda/gemm/gemm.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"

#include <math.h>
#include <stdio.h>
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

/* Makes the device look like another one for as long as it lives. */
struct pretence {
    kernel_set set = kernels_in_use();
    int64_t shared = shared_of_block();

    explicit pretence(kernel_set other, int64_t other_shared = 232448) {
        pretend_device(other, other_shared);
    }
    ~pretence() {
        pretend_device(set, shared);
    }
};

/* Whether the choices of hopper/ can be asked for: some ask the device how many clusters it holds.
 * Those of attention ask for nothing, so they can be asked without a device, too. */
bool has_choices(bool asks_device) {
    int device = 0, major = 0, minor = 0;
    if (!asks_device || !hopper_is_built()) return hopper_is_built();
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) ==
               cudaSuccess &&
           major == 9 && minor == 0;
}

/* Expects f(set) of each set that can be asked. */
template <typename F> void with_sets(const char *name, bool asks_device, const F &f) {
    char portable[80];
    snprintf(portable, sizeof portable, "%s, portable", name);
    if (has_choices(asks_device)) {
        pretence device(KERNELS_HOPPER);
        expect(name, f(KERNELS_HOPPER));
    }
    pretence device(KERNELS_PORTABLE);
    expect(portable, f(KERNELS_PORTABLE));
}

/* Whether all paths have a case; those of hopper/ have none where they cannot be asked for. */
template <typename S> bool are_all_seen(const S &seen, bool asks_device) {
    return !has_choices(asks_device) || seen.are_all();
}

seen_paths<ATTENTION_PATHS> seen_attentions;

/* What the portable kernels run in the place of a path. */
attention_path portable_path(attention_path path) {
    switch (path) {
    case ATTENTION_WGMMA:
    case ATTENTION_WARP:
    case ATTENTION_WGMMA_LONG:
    case ATTENTION_ALL:
    case ATTENTION_SMALL: return ATTENTION_MMA;
    default: return path;
    }
}
gemm_path portable_path(gemm_path path) {
    bool is_portable = path == GEMM_HEADS || path == GEMM_SPREAD || path == GEMM_FEW;
    return is_portable ? path : GEMM_LIBRARY;
}
transition_path portable_path(transition_path) {
    return TRANSITION_COMPOSED;
}

/* The path of a set, given that of hopper/. */
template <typename P> P path_in(kernel_set set, P path) {
    return set == KERNELS_HOPPER ? path : portable_path(path);
}

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

/* Whether both directions take these paths, and no operand of a gated call may be at an odd
 * address. */
template <typename T> bool has_path(path_shape s, attention_path forward, attention_path backward) {
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
    return is_ok;
}

/* The paths of hopper/ are given. */
template <typename T>
void check_path(const char *name, path_shape s, attention_path forward, attention_path backward) {
    with_sets(name, false, [=](kernel_set set) {
        return has_path<T>(s, path_in(set, forward), path_in(set, backward));
    });
}

/* With the shared memory of an RTX card, attention's backward takes fewer warps, and never asks for
 * more than the device has. */
void check_pair_blocks(void) {
    enum { RTX_SHARED = 101376, H100_SHARED = 232448 };
    const struct {
        int64_t c, keys;
        int rtx_warps, h100_warps;
    } cases[] = {{16, 384, 12, 12}, {32, 256, 8, 8},   {32, 288, 9, 9},  {32, 384, 6, 12},
                 {32, 600, 7, 10},  {64, 160, 10, 10}, {64, 192, 6, 12}, {64, 4096, 10, 12}};
    bool is_ok = true;
    for (const auto &one : cases)
        for (int64_t shared : {(int64_t)RTX_SHARED, (int64_t)H100_SHARED}) {
            pretence device(KERNELS_PORTABLE, shared);
            pair_block block = attention_pair_block(one.c, one.keys);
            int expected = shared == RTX_SHARED ? one.rtx_warps : one.h100_warps;
            is_ok = is_ok && block.warps == expected && block.bytes <= shared;
        }
    expect("attention path, shared memory of an RTX card", is_ok);
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
    with_sets(name, true, [=](kernel_set set) {
        gemm_path path = path_in(set, expected);
        fm_gemm moved = g;
        move(moved.b);
        seen_products.add(path);
        return gemm_path_of<T>(&g, at) == path &&
               (!std::is_same_v<T, bf16> || gemm_path_of<T>(&moved, at) == GEMM_LIBRARY);
    });
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
    expect("every path of a product has a case", are_all_seen(seen_products, true));
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
    with_sets(name, true, [=](kernel_set set) {
        fm_transition kept = a;
        kept.kept = at;
        seen_transitions.add(path_in(set, forward)), seen_transitions.add(path_in(set, backward));
        return transition_path_of<T>(&a, NULL) == path_in(set, forward) &&
               transition_path_of<T>(&a, &grad) == path_in(set, backward) &&
               transition_path_of<T>(&kept, NULL) == TRANSITION_COMPOSED &&
               transition_path_of<T>(&kept, &grad) == TRANSITION_COMPOSED;
    });
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
    expect("every path of a transition has a case", are_all_seen(seen_transitions, true));
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
    check_pair_blocks();
    expect("every path of attention has a case", are_all_seen(seen_attentions, false));
}

} // namespace cuda_check
