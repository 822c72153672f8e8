/* bench_cuda: the CUDA kernels in bf16 (the structure module and its losses: f32) at the
 * initial-training shapes (N_res 256, 128 + 4 MSA rows counted as 128, 1,024 extra rows, 48 blocks'
 * widths): median of 20 samples of CALLS calls each, by CUDA events, after a warm-up; inputs
 * random, so what fits the L2 cache is warm.
 *
 *     bench_cuda [name]            only the lines whose name contains `name`
 *
 * Printed: time, matrix product FLOPs, ideal bytes (each operand once), the larger of the two
 * floors (790 TFLOP/s, 4.25 TB/s), the share of the floor reached, and where one was measured the
 * time of the same core in a Python framework on the same kind of GPU (ms; 0: none). */
#include "trainer/backend/cuda/cuda.h"

#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <functional>
#include <vector>

namespace {

constexpr int SAMPLES = 20, CALLS = 8, WARM_UPS = 3;

const fm_kernels *k;
const char *only;
cudaStream_t stream;

typedef std::function<void(fm_stream *)> work;

void report(const char *name, double flops, double bytes, double other_ms, const work &f) {
    if (only && !strstr(name, only)) return;
    fm_stream *queue = (fm_stream *)stream;
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    for (int i = 0; i < WARM_UPS; i++)
        f(queue);
    double ms[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        float elapsed = 0;
        cudaEventRecord(begin, stream);
        for (int call = 0; call < CALLS; call++)
            f(queue);
        cudaEventRecord(end, stream);
        cudaEventSynchronize(end);
        cudaEventElapsedTime(&elapsed, begin, end);
        ms[i] = (double)elapsed / CALLS;
    }
    qsort(ms, SAMPLES, sizeof ms[0], [](const void *a, const void *b) {
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
    });
    double median = ms[SAMPLES / 2];
    double floor_ms = 1e3 * fmax(flops / 790e12, bytes / 4.25e12);
    printf("%-36s %8.4f ms %8.1f GFLOP %8.1f MB floor %7.4f %5.1f%%", name, median, flops * 1e-9,
           bytes * 1e-6, floor_ms, 100 * floor_ms / median);
    if (other_ms > 0) printf("  other %.3f (%.1fx)", other_ms, other_ms / median);
    printf("%s\n", cudaGetLastError() == cudaSuccess ? "" : "  CUDA ERROR");
    fflush(stdout);
}

/* Device memory; the program ends before anything is freed. */
void *memory(size_t bytes) {
    void *p = k->alloc(bytes > 0 ? bytes : 64);
    if (!p) abort();
    return p;
}

void *random_of(const fm_kernels *table, int64_t n, double size) {
    const fm_kernels *f32 = fm_kernels_cuda(FM_ELEMENT_F32);
    fm_draw draw = {(uint64_t)n, NULL, 3, 99};
    void *single = memory((size_t)n * 4);
    f32->init(NULL, FM_INIT_UNIFORM, n, 0, size, &draw, single);
    f32->synchronize(NULL);
    if (table->act == FM_ELEMENT_F32) return single;
    void *half = memory((size_t)n * 2);
    table->cast(NULL, n, FM_ELEMENT_F32, single, half);
    table->synchronize(NULL);
    f32->release(single);
    return half;
}

void *act(int64_t n, double size = 1) {
    return random_of(k, n, size);
}

void *acc(int64_t n) {
    return random_of(fm_kernels_cuda(FM_ELEMENT_F32), n, 0.1);
}

void *ones(int64_t n) {
    void *p = memory((size_t)n * fm_element_bytes(k->act));
    k->fill(NULL, n, 1, p);
    k->synchronize(NULL);
    return p;
}

void bench_layernorm(int64_t rows, int64_t c, double other) {
    char name[64];
    fm_layernorm a = {rows,          c,         c,        c, 1e-5, act(rows * c), act(c), act(c),
                      act(rows * c), acc(rows), acc(rows)};
    fm_layernorm_grad g = {rows,
                           c,
                           c,
                           c,
                           c,
                           a.x,
                           a.gamma,
                           a.y,
                           a.mean,
                           a.rstd,
                           {act(rows * c), FM_WRITE},
                           {acc(c), FM_WRITE},
                           {acc(c), FM_WRITE}};
    void *space = memory(k->layernorm_grad_workspace(rows, c));
    double size = 2.0 * (double)(rows * c);
    snprintf(name, sizeof name, "layernorm %ldx%ld", (long)rows, (long)c);
    report(name, 0, 2 * size, 0, [=](fm_stream *s) { k->layernorm(s, &a); });
    snprintf(name, sizeof name, "layernorm %ldx%ld fwd+bwd", (long)rows, (long)c);
    report(name, 0, 5 * size, other, [=](fm_stream *s) {
        k->layernorm(s, &a);
        k->layernorm_grad(s, &g, space);
    });
}

/* batch x n rows; q k v g slices of one matrix, bias as a linear layer leaves it. */
void bench_attention(const char *core, int64_t batch, int64_t n, int64_t head, int64_t c,
                     bool biased, bool transposed, double other, double other_both) {
    int64_t width = head * c, ld = 4 * width, size = batch * n;
    fm_attention_stride in = {0, n * ld, ld, c}, out = {0, n * width, width, c};
    if (transposed) in.batch = ld, in.row = batch * ld, out.batch = width, out.row = batch * width;
    char *qkvg = (char *)act(size * ld, 1), *d = (char *)act(size * ld);
    fm_attention a = {};
    a.n_group = 1, a.n_batch = batch, a.n_query = a.n_key = n, a.n_head = a.n_kv_head = head;
    a.c_head = c, a.scale = 1 / sqrt((double)c), a.mask_value = 1e9;
    a.q = qkvg, a.k = qkvg + 2 * width, a.v = qkvg + 4 * width, a.g = qkvg + 6 * width;
    if (biased) a.bias = act(n * n * head);
    a.mask = ones(size);
    a.q_stride = a.k_stride = a.v_stride = a.g_stride = in;
    a.o_stride = out;
    a.bias_stride[1] = 1, a.bias_stride[2] = n * head, a.bias_stride[3] = head;
    a.mask_stride[1] = n, a.mask_stride[2] = 1;
    a.o = act(size * width), a.lse = acc(size * head);
    fm_attention_grad g = {
        act(size * width),         {d, FM_WRITE},
        {d + 2 * width, FM_WRITE}, {d + 4 * width, FM_WRITE},
        {d + 6 * width, FM_WRITE}, {biased ? act(n * n * head) : NULL, FM_WRITE}};
    void *space = memory(k->attention_grad_workspace(&a));
    double product = 2.0 * (double)(size * n * width), bytes = 2.0 * (double)(size * width);
    char name[64];
    snprintf(name, sizeof name, "%s fwd", core);
    report(name, 2 * product, 5 * bytes, other, [=](fm_stream *s) { k->attention(s, &a, space); });
    snprintf(name, sizeof name, "%s bwd", core);
    report(name, 5 * product, 10 * bytes, 0,
           [=](fm_stream *s) { k->attention_grad(s, &a, &g, space); });
    snprintf(name, sizeof name, "%s fwd+bwd", core);
    report(name, 7 * product, 15 * bytes, other_both, [=](fm_stream *s) {
        k->attention(s, &a, space);
        k->attention_grad(s, &a, &g, space);
    });
    k->synchronize((fm_stream *)stream);
    k->release(space);
}

void bench_outer(int64_t n_seq, int64_t n, int64_t c, int64_t c_z, double other,
                 double other_both) {
    int64_t ld = 2 * c, square = c * c;
    char *ab = (char *)act(n_seq * n * ld), *d = (char *)act(n_seq * n * ld);
    fm_outer o = {n_seq,
                  n,
                  n,
                  c,
                  c_z,
                  1e-3,
                  ab,
                  ab + 2 * c,
                  {n * ld, ld},
                  {n * ld, ld},
                  ones(n_seq * n),
                  ones(n_seq * n),
                  act(c_z * square),
                  act(c_z),
                  {act(n * n * c_z), FM_WRITE}};
    fm_outer_grad g = {act(n * n * c_z),
                       {d, FM_WRITE},
                       {d + 2 * c, FM_WRITE},
                       {acc(c_z * square), FM_WRITE},
                       {acc(c_z), FM_WRITE}};
    void *space = memory(k->outer_grad_workspace(&o)), *less = memory(k->outer_workspace(&o));
    double flops = 2.0 * (double)(n * n * square) * (double)(n_seq + c_z);
    double bytes = 2.0 * (double)(n_seq * n * ld + n * n * c_z + c_z * square);
    char name[64];
    snprintf(name, sizeof name, "outer product mean S=%ld fwd", (long)n_seq);
    report(name, flops, bytes, other, [=](fm_stream *s) { k->outer(s, &o, less); });
    snprintf(name, sizeof name, "outer product mean S=%ld fwd+bwd", (long)n_seq);
    report(name, 3 * flops, 3 * bytes, other_both, [=](fm_stream *s) {
        k->outer(s, &o, less);
        k->outer_grad(s, &o, &g, space);
    });
}

void bench_triangle(int64_t n, int64_t c, bool incoming) {
    int64_t ld = 4 * c;
    char *p = (char *)act(n * n * ld), *d = (char *)act(n * n * ld);
    void *mask = ones(n * n);
    fm_triangle t = {n,         n,         n,  c,  incoming, p,    p + 2 * c,
                     p + 4 * c, p + 6 * c, ld, ld, mask,     mask, act(n * n * c)};
    fm_triangle_grad g = {act(n * n * c),
                          {d, FM_WRITE},
                          {d + 2 * c, FM_WRITE},
                          {d + 4 * c, FM_WRITE},
                          {d + 6 * c, FM_WRITE}};
    void *space = memory(k->triangle_grad_workspace(&t));
    double flops = 2.0 * (double)(n * n * n * c), size = 2.0 * (double)(n * n * c);
    const char *way = incoming ? "in" : "out";
    char name[64];
    snprintf(name, sizeof name, "triangle mult %s core fwd", way);
    report(name, flops, 5 * size, 0, [=](fm_stream *s) { k->triangle(s, &t, space); });
    snprintf(name, sizeof name, "triangle mult %s core fwd+bwd", way);
    report(name, 3 * flops, 14 * size, 0, [=](fm_stream *s) {
        k->triangle(s, &t, space);
        k->triangle_grad(s, &t, &g, space);
    });
}

void bench_gemm(int64_t m, int64_t n, int64_t depth, int64_t batch, bool is_weight, double other) {
    fm_gemm g = {};
    g.m = m, g.n = n, g.k = depth, g.batch = batch, g.alpha = 1;
    g.trans_a = is_weight, g.trans_b = !is_weight, g.c_is_acc = is_weight;
    g.lda = is_weight ? m : depth, g.ldb = is_weight ? n : depth, g.ldc = n;
    g.stride_a = m * depth, g.stride_b = n * depth, g.stride_c = m * n;
    g.a = act(batch * m * depth), g.b = act(batch * n * depth);
    g.c = is_weight ? acc(m * n) : act(batch * m * n);
    void *space = memory(k->gemm_workspace(&g));
    char name[64];
    snprintf(name, sizeof name, "gemm %ldx%ldx%ld x%ld%s", (long)m, (long)n, (long)depth,
             (long)batch, is_weight ? " weight grad" : "");
    report(name, 2.0 * (double)(m * n) * (double)(depth * batch),
           2.0 * (double)batch * (double)(m * depth + n * depth + m * n), other,
           [=](fm_stream *s) { k->gemm(s, &g, space); });
}

void bench_elements(void) {
    int64_t rows = 65536, c = 128, n = rows * c;
    fm_gate gate = {rows, c, c, c, c, act(n), act(n), NULL, act(n)};
    fm_gate_grad grad = {act(n), {act(n), FM_WRITE}, {act(n), FM_WRITE}};
    report("gate 65536x128 fwd+bwd", 0, 2.0 * 8 * (double)n, 0, [=](fm_stream *s) {
        k->gate(s, &gate);
        k->gate_grad(s, &gate, &grad);
    });
    fm_dropout d = {256, 256, c, 0, 0, 256, FM_SHARED_AXIS0, 0.25, {1, NULL, 2, 2}};
    void *x = act(n), *y = act(n), *z = act(n);
    report("dropout + residual 65536x128", 0, 2.0 * 3 * (double)n, 0,
           [=](fm_stream *s) { k->dropout(s, &d, x, y, z); });
    void *sums = acc(1024), *space = memory(k->sum_workspace(1, rows, c));
    report("bias gradient 65536x128", 0, 2.0 * (double)n, 0, [=](fm_stream *s) {
        const int64_t stride[2] = {0, 128};
        k->sum(s, 1, rows, c, stride, x, {sums, FM_WRITE}, true, space);
    });
}

void bench_optimiser(void) {
    int64_t n = 93229082;
    fm_step_state start = {0, 1, 1e-3, 3, 0, 0, 0, 0},
                  *state = (fm_step_state *)memory(sizeof start);
    k->upload(NULL, state, &start, sizeof start);
    k->synchronize(NULL);
    void *grad = acc(n), *space = memory(k->grad_norm_workspace(n));
    fm_adam a = {n,    0.9,  0.999,  1e-6,   0.999,  1,      true,  state,
                 grad, NULL, acc(n), acc(n), acc(n), acc(n), act(n)};
    report("grad norm 93.2M", 0, 4.0 * (double)n, 14.254,
           [=](fm_stream *s) { k->grad_norm(s, n, grad, 0.1, false, state, space); });
    report("Adam + EMA + copy 93.2M", 0, 38.0 * (double)n, 17.66,
           [=](fm_stream *s) { k->adam(s, &a); });
}

/* ---- the structure module and its losses: f32 in every run ---- */

void *bytes_of(int64_t n, int modulus) {
    std::vector<uint8_t> x((size_t)n);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = (uint8_t)(i * 7 % (size_t)modulus);
    void *p = memory(x.size());
    k->upload(NULL, p, x.data(), x.size());
    k->synchronize(NULL);
    return p;
}

float *floats(int64_t n, double size) {
    return (float *)random_of(fm_kernels_cuda(FM_ELEMENT_F32), n, size);
}

float *float_ones(int64_t n) {
    float *p = floats(n, 1);
    fm_kernels_cuda(FM_ELEMENT_F32)->fill(NULL, n, 1, p);
    fm_kernels_cuda(FM_ELEMENT_F32)->synchronize(NULL);
    return p;
}

void bench_ipa(int64_t n, int64_t c_z) {
    const int64_t head = 12, c = 16, qk = 4, v = 8, y = n * head * (c + 4 * v + c_z);
    int64_t ld = head * 3 * (c + 2 * qk + v), pairs = n * n,
            size = (int64_t)fm_element_bytes(k->act);
    fm_ipa a = {n,
                head,
                c,
                qk,
                v,
                c_z,
                ld,
                1e5,
                1e-8,
                act(n * ld),
                act(pairs * head),
                act(pairs * c_z),
                act(n * FM_FRAME),
                ones(n),
                act(head),
                act(y),
                acc(2 * n * head)};
    fm_ipa_grad g = {act(y),
                     act(n * ld),
                     act(pairs * head),
                     {act(pairs * c_z), FM_WRITE},
                     {act(n * FM_FRAME), FM_WRITE},
                     {acc(head), FM_WRITE}};
    void *less = memory(k->ipa_workspace(&a)), *space = memory(k->ipa_grad_workspace(&a));
    double flops = 2.0 * (double)(pairs * head * (c + 3 * qk + c + 3 * v + c_z));
    double bytes = (double)(size * (pairs * (c_z + head) + n * ld + y));
    char name[64];
    snprintf(name, sizeof name, "invariant point attention %s fwd", k->name);
    report(name, flops, bytes, 0, [=](fm_stream *s) { k->ipa(s, &a, less); });
    snprintf(name, sizeof name, "invariant point attention %s fwd+bwd", k->name);
    report(name, 3 * flops, 3 * bytes, 0, [=](fm_stream *s) {
        k->ipa(s, &a, less);
        k->ipa_grad(s, &a, &g, space);
    });
}

void bench_frames(int64_t n) {
    void *frames = act(n * 7), *update = act(n * 6), *next = act(n * 7);
    fm_out dframes = {act(n * 7), FM_WRITE}, dupdate = {act(n * 6), FM_WRITE};
    report("frame update fwd+bwd", 0, 4.0 * 46 * (double)n, 0, [=](fm_stream *s) {
        k->frame_update(s, n, frames, update, next);
        k->frame_update_grad(s, n, frames, update, next, dframes, dupdate);
    });
    fm_residue_atoms a = {n,
                          10,
                          frames,
                          act(n * 14),
                          (const uint8_t *)bytes_of(n, 21),
                          floats(21 * 96, 0.7),
                          floats(21 * 42, 2),
                          (const uint8_t *)bytes_of(21 * 14, 9),
                          act(n * 96),
                          act(n * 42)};
    fm_out dangles = {act(n * 14), FM_WRITE};
    report("frames and atoms fwd+bwd", 0, 4.0 * 318 * (double)n, 0, [=](fm_stream *s) {
        k->residue_atoms(s, &a);
        k->residue_atoms_grad(s, &a, a.groups, a.atoms, dframes, dangles);
    });
}

void bench_fape(const char *what, int64_t n_batch, int64_t n_frame, int64_t n_point) {
    int64_t points = n_point ? n_point : n_frame;
    float *mask = float_ones(points > n_frame ? points : n_frame);
    fm_fape a = {n_batch,
                 n_frame,
                 points,
                 10,
                 10,
                 1e-4,
                 act(n_batch * n_frame * 12, 5),
                 n_point ? act(n_batch * points * 3, 5) : NULL,
                 floats(n_frame * 16, 5),
                 floats(points * 3, 5),
                 mask,
                 mask,
                 NULL,
                 acc(1)};
    fm_out dframes = {act(n_batch * n_frame * 12), FM_WRITE};
    fm_out dpoints = {n_point ? act(n_batch * points * 3) : NULL, FM_WRITE};
    void *space = memory(k->fape_workspace(&a)), *dloss = acc(1);
    double pairs = (double)(n_batch * n_frame * points);
    char name[64];
    snprintf(name, sizeof name, "fape %s fwd", what);
    report(name, 60 * pairs, 0, 0, [=](fm_stream *s) { k->fape(s, &a, space); });
    snprintf(name, sizeof name, "fape %s bwd", what);
    report(name, 180 * pairs, 0, 0,
           [=](fm_stream *s) { k->fape_grad(s, &a, dloss, dframes, dpoints); });
}

void bench_atom_losses(int64_t n) {
    std::vector<int32_t> index((size_t)n);
    for (size_t i = 0; i < index.size(); i++)
        index[i] = (int32_t)i;
    int32_t *indices = (int32_t *)memory((size_t)n * 4);
    k->upload(NULL, indices, index.data(), (size_t)n * 4);
    k->synchronize(NULL);
    fm_violation a = {n,
                      12,
                      1.5,
                      1e-8,
                      act(n * 42, 30),
                      float_ones(n * 14),
                      indices,
                      (const uint8_t *)bytes_of(n, 21),
                      floats(21 * 14, 1.7),
                      floats(21 * 14 * 14 * 2, 3),
                      acc(1),
                      acc(4)};
    void *space = memory(k->violation_workspace(&a)), *dloss = acc(1);
    fm_out datoms = {act(n * 42), FM_WRITE};
    report("violation fwd", 0, 0, 0, [=](fm_stream *s) { k->violation(s, &a, space); });
    report("violation bwd", 0, 0, 0,
           [=](fm_stream *s) { k->violation_grad(s, &a, dloss, datoms); });
    float *positions = floats(n * 42, 30), *frames = floats(n * 128, 5), *few = floats(n * 14, 0.1);
    fm_naming m = {
        n,   a.atoms, positions, positions,         a.exists,          a.exists,
        few, frames,  frames,    floats(n * 42, 1), floats(n * 14, 1), floats(n * 128, 1)};
    report("choose naming, all ambiguous", 0, 0, 0, [=](fm_stream *s) { k->choose_naming(s, &m); });
}

void bench_other_losses(int64_t n) {
    const int64_t iterations = 8, angles = iterations * n * 14, atoms = n * 37;
    fm_torsion_loss t = {iterations,
                         n,
                         0.5,
                         0.01,
                         1e-8,
                         act(angles),
                         act(angles),
                         floats(n * 8, 1),
                         float_ones(n * 4),
                         float_ones(n),
                         (const uint8_t *)bytes_of(n, 21),
                         (const uint8_t *)bytes_of(21, 16),
                         acc(1)};
    void *dloss = acc(1);
    fm_out dangles = {act(angles), FM_WRITE}, draw = {act(angles), FM_WRITE};
    report("torsion loss fwd+bwd", 0, 4.0 * 4 * (double)angles, 0, [=](fm_stream *s) {
        k->torsion_loss(s, &t);
        k->torsion_loss_grad(s, &t, dloss, dangles, draw);
    });
    fm_binary_entropy e = {atoms, 1e-8, act(atoms), float_ones(atoms), float_ones(atoms), acc(1)};
    fm_out dx = {act(atoms), FM_WRITE};
    report("binary cross-entropy fwd+bwd", 0, 4.0 * 7 * (double)atoms, 0, [=](fm_stream *s) {
        k->binary_entropy(s, &e);
        k->binary_entropy_grad(s, &e, dloss, dx);
    });
    int32_t *classes = (int32_t *)memory((size_t)(n * n) * 4);
    fm_lddt_bins l = {n,       50,    15, 1e-8, act(n * 42, 30), floats(n * 3, 30), float_ones(n),
                      classes, act(n)};
    report("lDDT bins", 0, 0, 0, [=](fm_stream *s) { k->lddt_bins(s, &l); });
    fm_aligned_error_bins b = {
        n, 64, 31, act(n * 12, 5), floats(n * 16, 5), float_ones(n), classes, act(n * n)};
    report("aligned error bins", 0, 8.0 * (double)(n * n), 0,
           [=](fm_stream *s) { k->aligned_error_bins(s, &b); });
}

void bench_structure(void) {
    bench_ipa(256, 128);
    k = fm_kernels_cuda(FM_ELEMENT_F32);
    bench_ipa(256, 128);
    bench_frames(256);
    bench_fape("backbone 8x256", 8, 256, 0);
    bench_fape("side chains 2048x3584", 1, 2048, 3584);
    bench_atom_losses(256);
    bench_other_losses(256);
}

} // namespace

int main(int argc, char **argv) {
    only = argc > 1 ? argv[1] : NULL;
    k = fm_kernels_cuda(FM_ELEMENT_BF16);
    if (!k) {
        printf("bench_cuda: no CUDA device\n");
        return 77;
    }
    cudaStreamCreate(&stream);
    bench_attention("row attention 128x256 8x32", 128, 256, 8, 32, true, false, 0.603, 1.105);
    bench_attention("triangle attention 256 4x32", 256, 256, 4, 32, true, false, 0.604, 1.103);
    bench_attention("ending triangle attention", 256, 256, 4, 32, true, true, 0.604, 1.103);
    bench_attention("column attention 256x128 8x32", 256, 128, 8, 32, false, true, 0.355, 0.671);
    bench_attention("extra row attention 1024x256 8x8", 1024, 256, 8, 8, true, false, 0, 0);
    bench_outer(128, 256, 32, 128, 0.346, 0.979);
    bench_outer(1024, 256, 32, 128, 0, 0);
    bench_triangle(256, 128, false);
    bench_triangle(256, 128, true);
    bench_layernorm(32768, 256, 0.206);
    bench_layernorm(65536, 128, 0.374);
    bench_layernorm(262144, 64, 0.541);
    bench_elements();
    bench_gemm(32768, 256, 1024, 1, false, 0.0446);
    bench_gemm(32768, 1024, 256, 1, false, 0.0351);
    bench_gemm(32768, 256, 256, 1, false, 0.0160);
    bench_gemm(65536, 512, 128, 1, false, 0.0275);
    bench_gemm(65536, 128, 512, 1, false, 0.0312);
    bench_gemm(256, 256, 256, 128, false, 0.0180);
    bench_gemm(256, 1024, 32768, 1, true, 0);
    bench_gemm(128, 512, 65536, 1, true, 0);
    bench_gemm(128, 128, 65536, 1, true, 0);
    bench_optimiser();
    bench_structure();
    return 0;
}
