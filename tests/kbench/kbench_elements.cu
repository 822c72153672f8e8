/* kbench_elements.cu: memory, embeddings and class losses, which mostly move bytes, compared with
 * the CPU's f32 table. */
#include "tests/kbench/kbench.cuh"

namespace kbench {
namespace {

void strided(bench &b, int64_t n0, int64_t n1, int64_t c) {
    const fm_kernels *k = b.k;
    fm_strided s = {};
    s.rank = 3, s.alpha = 1;
    s.shape[0] = n0, s.shape[1] = n1, s.shape[2] = c;
    s.x_stride[0] = n1 * c, s.x_stride[1] = c, s.x_stride[2] = 1;
    s.y_stride[0] = c, s.y_stride[1] = n0 * c, s.y_stride[2] = 1;
    s.x = b.act(n0 * n1 * c), s.y = b.grad("y", n0 * n1 * c);
    b.part("copy", 0, 2 * b.size((double)(n0 * n1 * c)),
           [=](fm_stream *q) { k->copy_strided(q, &s); });
}

void lines(bench &b, int64_t n) {
    const fm_kernels *k = b.k;
    const void *x = b.act(n);
    void *y = b.out("axpy", n), *z = b.out("cast", n);
    const float *wide = b.floats(n);
    double size = b.size((double)n);
    b.part("axpy", 0, 2 * size, [=](fm_stream *q) { k->axpy(q, n, 0.5, x, {y, FM_WRITE}); });
    b.part("cast", 0, size + 4.0 * (double)n,
           [=](fm_stream *q) { k->cast(q, n, FM_ELEMENT_F32, wide, z); });
}

void relu(bench &b, int64_t rows, int64_t c) {
    const fm_kernels *k = b.k;
    int64_t n = rows * c;
    const void *x = b.act(n), *dy = b.act(n);
    void *y = b.out("y", n);
    fm_out dx = b.grad("dx", n);
    double size = b.size((double)n);
    b.part("fwd", 0, 2 * size, [=](fm_stream *q) { k->relu(q, n, x, y); });
    b.part("bwd", 0, 3 * size, [=](fm_stream *q) { k->relu_grad(q, n, y, dy, dx); });
}

void rows(bench &b, int64_t rows, int64_t c) {
    const fm_kernels *k = b.k;
    int64_t n = rows * c;
    const void *x = b.act(n), *bias = b.act(c), *scale = b.act(rows);
    void *y = b.out("bias_add", n);
    fm_out z = b.grad("scale_rows", n);
    double size = b.size((double)n);
    b.part("bias", 0, 2 * size, [=](fm_stream *q) { k->bias_add(q, rows, c, x, bias, y); });
    b.part("scale", 0, 2 * size,
           [=](fm_stream *q) { k->scale_rows(q, rows, c, c, c, scale, x, z); });
}

void masked_mean(bench &b, int64_t n_s, int64_t n_r, int64_t c) {
    const fm_kernels *k = b.k;
    fm_masked_mean m = {n_s, n_r, c, 1e-10, b.act(n_s * n_r * c), b.mask(n_s * n_r, 37)};
    const void *dy = b.act(n_r * c);
    void *y = b.out("y", n_r * c);
    fm_out dx = b.grad("dx", n_s * n_r * c);
    double size = b.size((double)(n_s * n_r * c));
    b.part("fwd", 0, size, [=](fm_stream *q) { k->masked_mean(q, &m, y); });
    b.part("bwd", 0, size, [=](fm_stream *q) { k->masked_mean_grad(q, &m, dy, dx); });
}

/* Target features or distance bins: one class per row. */
void lookup(bench &b, int64_t rows, int64_t c, int64_t classes) {
    const fm_kernels *k = b.k;
    fm_lookup l = {classes, c, 1, classes, b.act(classes * c)};
    const uint8_t *ids = b.bytes(rows, (int)classes);
    const void *dy = b.act(rows * c);
    fm_out y = b.grad("y", rows * c), dw = b.grad("dw", classes * c, true);
    void *space = b.scratch(k->lookup_grad_workspace(&l, rows));
    double size = b.size((double)(rows * c));
    b.part("fwd", 0, size, [=](fm_stream *q) { k->lookup(q, &l, rows, ids, y); });
    b.part("bwd", 0, size, [=](fm_stream *q) { k->lookup_grad(q, &l, rows, ids, dy, dw, space); });
}

void relpos(bench &b, int64_t n, int64_t c) {
    const fm_kernels *k = b.k;
    fm_lookup l = {65, c, 1, 65, b.act(65 * c)};
    const int32_t *index = b.indices(n);
    const void *dz = b.act(n * n * c);
    fm_out z = b.grad("z", n * n * c), dw = b.grad("dw", 65 * c, true);
    void *space = b.scratch(k->relpos_grad_workspace(&l, n, n));
    double size = b.size((double)(n * n * c));
    b.part("fwd", 0, size, [=](fm_stream *q) { k->relpos(q, &l, n, n, index, index, z); });
    b.part("bwd", 0, size,
           [=](fm_stream *q) { k->relpos_grad(q, &l, n, n, index, index, dz, dw, space); });
}

void outer_sum(bench &b, int64_t n, int64_t c) {
    const fm_kernels *k = b.k;
    const void *x = b.act(n * c), *y = b.act(n * c), *dz = b.act(n * n * c);
    fm_out z = b.grad("z", n * n * c), dx = b.grad("da", n * c), dy = b.grad("db", n * c);
    double size = b.size((double)(n * n * c));
    b.part("fwd", 0, size, [=](fm_stream *q) { k->outer_sum(q, n, n, c, c, c, x, y, z); });
    b.part("bwd", 0, size, [=](fm_stream *q) { k->outer_sum_grad(q, n, n, c, c, c, dz, dx, dy); });
}

/* Distances between atoms as classes, and the lookup of these classes. */
void distances(bench &b, int64_t n, int64_t c) {
    const fm_kernels *k = b.k;
    fm_lookup l = {15, c, 1, 15, b.act(15 * c)};
    const float *x = b.floats(n * 3, 20);
    uint8_t *ids = (uint8_t *)b.scratch((size_t)(n * n));
    fm_out z = b.grad("z", n * n * c);
    b.part("ids", 0, (double)(n * n),
           [=](fm_stream *q) { k->distance_ids(q, n, n, x, x, 15, 3.25f, 20.75f, 1e8f, ids); });
    b.part("lookup", 0, b.size((double)(n * n * c)),
           [=](fm_stream *q) { k->lookup(q, &l, n * n, ids, z); });
}

void features(bench &b, int64_t n_seq, int64_t n_res) {
    const fm_kernels *k = b.k;
    int64_t n = n_seq * n_res;
    fm_msa_features f = {
        n_seq,         n_res, b.bytes(n, 23), (const uint16_t *)b.bytes(2 * n, 251), NULL,
        FM_ELEMENT_U8, NULL,  NULL,           b.out("y", n * FM_EXTRA_MSA_FEATURES)};
    b.part("fwd", 0, b.size((double)(n * FM_EXTRA_MSA_FEATURES)) + 3.0 * (double)n,
           [=](fm_stream *q) { k->msa_features(q, &f); });
}

void cross_entropy(bench &b, int64_t n, int64_t n_class) {
    const fm_kernels *k = b.k;
    std::vector<int32_t> classes((size_t)n);
    for (size_t i = 0; i < classes.size(); i++)
        classes[i] = (int32_t)(i * 7 % (size_t)n_class);
    void *target = b.scratch(classes.size() * 4);
    k->upload(NULL, target, classes.data(), classes.size() * 4);
    k->synchronize(NULL);
    fm_cross_entropy e = {n,
                          n_class,
                          n_class,
                          1e-6,
                          b.act(n * n_class, 3),
                          (const int32_t *)target,
                          b.mask(n, 37),
                          b.out_acc("lse", n),
                          b.out_acc("weight_sum", 1),
                          b.out_acc("loss", 1)};
    const void *dloss = b.acc(1);
    fm_out dx = b.grad("dx", n * n_class);
    void *space = b.scratch(k->cross_entropy_workspace(n));
    double size = b.size((double)(n * n_class));
    b.part("fwd", 0, size, [=](fm_stream *q) { k->cross_entropy(q, &e, space); });
    b.part("bwd", 0, 2 * size, [=](fm_stream *q) { k->cross_entropy_grad(q, &e, dloss, dx); });
}

} // namespace

void add_element_cases(void) {
    options how;
    how.oracle = ORACLE_CPU, how.stages = 2;
    add("transposition 256x256x128", {0, 0}, how, [](bench &b) { strided(b, 256, 256, 128); });
    add("axpy and cast 8.4M", {0, 0}, how, [](bench &b) { lines(b, 65536 * 128); });
    add("relu 32768x1024", {0, 0}, how, [](bench &b) { relu(b, 32768, 1024); });
    add("bias and scale 65536x128", {0, 0}, how, [](bench &b) { rows(b, 65536, 128); });
    add("masked mean 1024x256x64", {0, 0}, how, [](bench &b) { masked_mean(b, 1024, 256, 64); });
    add("lookup 65536x128 of 15", {0, 0}, how, [](bench &b) { lookup(b, 65536, 128, 15); });
    add("relative positions 256x128", {0, 0}, how, [](bench &b) { relpos(b, 256, 128); });
    add("outer sum 256x128", {0, 0}, how, [](bench &b) { outer_sum(b, 256, 128); });
    add("recycled distances 256x128", {0, 0}, how, [](bench &b) { distances(b, 256, 128); });
    add("extra MSA features 1024x256", {0, 0}, how, [](bench &b) { features(b, 1024, 256); });
    add("distogram cross-entropy 65536x64", {0, 0}, how,
        [](bench &b) { cross_entropy(b, 65536, 64); });
    add("masked MSA cross-entropy 32768x23", {0, 0}, how,
        [](bench &b) { cross_entropy(b, 32768, 23); });
}

} // namespace kbench
