/* cuda_check_paths.cu: which kernels attention takes for shapes and addresses. These cases need no
 * device: the choice is made on the host and reads no operand. */
#include "tests/trainer/cuda_check.cuh"

#include "trainer/backend/cuda/attention/attention.cuh"

#include <math.h>

namespace cuda_check {
namespace {

using namespace fm_cuda;

struct path_shape {
    int64_t query, key, head, c;
    bool gated, biased, shared;
};

/* A call of one group and three batches whose operands are at multiples of 16 bytes. The addresses
 * stand for memory that nobody reads. */
struct path_call {
    fm_attention a = {};
    fm_attention_grad grad = {};

    explicit path_call(path_shape s) {
        char *at = (char *)4096;
        int64_t ld = s.head * s.c, ld_k = s.shared ? s.c : ld;
        a.n_group = 1, a.n_batch = 3, a.n_query = s.query, a.n_key = s.key;
        a.n_head = s.head, a.n_kv_head = s.shared ? 1 : s.head, a.c_head = s.c;
        a.scale = 1 / sqrt((double)s.c), a.mask_value = 1e9;
        a.q_stride = a.g_stride = a.o_stride = {3 * s.query * ld, s.query * ld, ld, s.c};
        a.k_stride = a.v_stride = {3 * s.key * ld_k, s.key * ld_k, ld_k, s.c};
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

} // namespace

void check_paths(void) {
    check_path<bf16>("attention path 256x256 c 32", {256, 256, 8, 32, true, true, false},
                     ATTENTION_WGMMA, ATTENTION_WGMMA);
    check_path<bf16>("attention path 384x384 c 32", {384, 384, 4, 32, true, true, false},
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
}

} // namespace cuda_check
