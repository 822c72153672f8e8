/* kbench_optimiser.cu: gradient norm and update over the 93.2 M parameters of the published model,
 * and the cases that test the watchdog. */
#include "tests/kbench/kbench.cuh"

#include <stdlib.h>

namespace kbench {
namespace {

enum { N_PARAMETER = 93229082 };

fm_step_state *state_of(bench &b) {
    fm_step_state start = {0, 1, 1e-3, 3, 0, 0, 0, 0};
    void *state = b.scratch(sizeof start);
    b.k->upload(NULL, state, &start, sizeof start);
    b.k->synchronize(NULL);
    return (fm_step_state *)state;
}

/* Compared through the clipped vector. */
void norm(bench &b, int64_t n) {
    const fm_kernels *k = b.k;
    fm_step_state *state = state_of(b);
    const void *grad = b.acc(n, 0.1), *ones = b.acc(4096);
    void *space = b.scratch(k->grad_norm_workspace(n)), *clipped = b.out_acc("clipped", 4096);
    b.part("norm", 0, 4.0 * (double)n,
           [=](fm_stream *q) { k->grad_norm(q, n, grad, 0.1, false, state, space); });
    b.part("clip 4096", 0, 8.0 * 4096,
           [=](fm_stream *q) { k->accumulate(q, 4096, state, true, ones, clipped); });
}

void adam(bench &b, int64_t n) {
    const fm_kernels *k = b.k;
    fm_adam a = {n,
                 0.9,
                 0.999,
                 1e-6,
                 0.999,
                 1,
                 true,
                 state_of(b),
                 b.acc(n, 0.1),
                 NULL,
                 b.updated("param", n, 1),
                 b.updated("m", n, 0.1),
                 b.updated("v", n, 0.1, true),
                 b.updated("ema", n, 1),
                 b.out("copy", n),
                 0};
    b.part("adam", 0, (36.0 + b.size(1)) * (double)n, [=](fm_stream *q) { k->adam(q, &a); });
}

__global__ void endless_kernel(volatile int *never) {
    while (*never == 0)
        __nanosleep(1000);
}

} // namespace

void add_optimiser_cases(void) {
    /* Peers: clip_grad_norm_ (foreach); fused Adam and a foreach average. */
    add("gradient norm 93.2M", {0, 14.254}, {}, [](bench &b) { norm(b, N_PARAMETER); });
    add("adam, average, copy 93.2M", {0, 17.66}, {}, [](bench &b) { adam(b, N_PARAMETER); });
}

void add_self_tests(void) {
    options how;
    how.oracle = ORACLE_NONE;
    add("self test: a kernel without end", {0, 0}, how, [](bench &b) {
        volatile int *never = (volatile int *)b.scratch(sizeof(int));
        b.k->upload(NULL, (void *)never, "\0\0\0", sizeof(int));
        b.part("hangs", 0, 0,
               [=](fm_stream *q) { endless_kernel<<<1, 1, 0, (cudaStream_t)q>>>(never); });
    });
    add("self test: abort", {0, 0}, how, [](bench &) { abort(); });
    add("self test: a wrong address", {0, 0}, how, [](bench &b) {
        const fm_kernels *k = b.k;
        b.part("faults", 0, 0, [=](fm_stream *q) { k->fill(q, 1024, 1, (void *)4096); });
    });
    add("self test: a wrong result", {0, 0}, {}, [](bench &b) {
        const fm_kernels *k = b.k;
        double value = b.is_oracle ? 1 : 2;
        void *y = b.out("y", 1024);
        b.part("fill", 0, b.size(1024), [=](fm_stream *q) { k->fill(q, 1024, value, y); });
    });
    add("self test: fine", {0, 0}, {}, [](bench &b) {
        const fm_kernels *k = b.k;
        void *y = b.out("y", 1 << 24);
        b.part("fill", 0, b.size(1 << 24), [=](fm_stream *q) { k->fill(q, 1 << 24, 1, y); });
    });
}

} // namespace kbench
