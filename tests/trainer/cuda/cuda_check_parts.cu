/* cuda_check_parts.cu: the stages of triangle multiplication on two parts of the pairs, put
 * together as ranks would, against the whole sublayer. A table without kernels for parts runs
 * the whole. */
#include "tests/trainer/cuda/cuda_check.cuh"

namespace cuda_check {

enum { PARTS = 2 };

/* Pairs [n, n, c] and their halves, which are rows. */
struct halves {
    const fm_kernels *k;
    int64_t n;

    void copy(int64_t c, int part, bool out, const void *x, void *y) const {
        int64_t count = n / PARTS * n * c;
        size_t first = (size_t)(part * count) * fm_element_bytes(k->act);
        k->copy(NULL, count, (const char *)x + (out ? 0 : first), (char *)y + (out ? first : 0));
    }
};

/* a, b or x of a part, [c, half, n], and the whole [c, n, n]; add: y += x. */
static void move_operand(const halves &h, int64_t c, int part, bool to_whole, const void *x,
                         void *y, bool add) {
    int64_t rows = c, run = h.n / PARTS * h.n;
    size_t first = (size_t)(part * run) * fm_element_bytes(h.k->act);
    fm_strided s = {};
    s.rank = 2, s.shape[0] = rows, s.shape[1] = run, s.alpha = 1;
    s.x_stride[0] = to_whole ? run : PARTS * run, s.y_stride[0] = to_whole ? PARTS * run : run;
    s.x_stride[1] = s.y_stride[1] = 1;
    s.x = (const char *)x + (to_whole ? 0 : first);
    s.y = {(char *)y + (to_whole ? first : 0), add ? FM_ADD : FM_WRITE};
    h.k->copy_strided(NULL, &s);
}

/* What ranks exchange between two stages: every part of `place` goes to every `whole`, or the sum
 * of the shares in all `whole` to each part. */
static void exchange(const halves &h, int64_t c, bool sums, void *const *place,
                     void *const *whole) {
    for (int to = 0; to < PARTS; to++) {
        for (int from = 0; from < PARTS; from++) {
            if (sums) {
                move_operand(h, c, to, false, whole[from], place[to], from > 0);
            } else {
                move_operand(h, c, from, true, place[from], whole[to], false);
            }
        }
    }
}

static void run_parts(work_bench &b, const fm_triangle_block &t, const fm_triangle_block_grad &g) {
    const halves h = {b.k, t.n};
    int64_t half = t.n / PARTS, rows = t.n * half, c = t.c;
    size_t act = fm_element_bytes(b.k->act), plane = (size_t)(rows * c) * act;
    size_t exchanged = (t.incoming ? 2 : 1) * plane;
    fm_triangle_part part[PARTS];
    fm_triangle_block_grad grad[PARTS];
    void *space[PARTS], *place[PARTS], *whole[PARTS];
    for (int p = 0; p < PARTS; p++) {
        fm_triangle_block &at = part[p].block;
        whole[p] = b.space((size_t)(t.n * t.n * c) * act);
        part[p] = {t, whole[p], b.space((size_t)(t.n * t.n * c) * act), &grad[p]};
        at.n_part = half;
        void *z = b.space((size_t)(rows * t.c_z) * act), *mask = b.space((size_t)rows * act);
        h.copy(t.c_z, p, false, t.z, z), h.copy(1, p, false, t.mask, mask);
        at.z = z, at.mask = mask, at.y = b.space((size_t)(rows * t.c_z) * act);
        at.kept = b.space(b.k->triangle_part_kept(&at) * act);
        at.dropout.n0 = half, at.dropout.offset0 += p * half;
        place[p] = (char *)at.kept + exchanged;
        b.k->triangle_part(NULL, FM_TRIANGLE_FRONT, &part[p],
                           b.space(b.k->triangle_part_workspace(&at, false)));
    }
    exchange(h, c, t.incoming, place, whole);
    for (int p = 0; p < PARTS; p++) {
        fm_triangle_block &at = part[p].block;
        b.k->triangle_part(NULL, FM_TRIANGLE_BACK, &part[p],
                           b.space(b.k->triangle_part_workspace(&at, false)));
        h.copy(t.c_z, p, true, at.y, t.y);
        void *dy = b.space((size_t)(rows * t.c_z) * act),
             *dz = b.space((size_t)(rows * t.c_z) * act);
        h.copy(t.c_z, p, false, g.dy, dy), h.copy(t.c_z, p, false, g.dz.data, dz);
        grad[p] = g, grad[p].dy = dy, grad[p].dz.data = dz;
        fm_out *sums[] = {&grad[p].dnorm_in,          &grad[p].dnorm_out, &grad[p].dprojections,
                          &grad[p].dprojections_bias, &grad[p].dout,      &grad[p].dout_bias};
        for (fm_out *sum : sums)
            sum->beta = p ? FM_ADD : sum->beta;
        space[p] = b.space(b.k->triangle_part_workspace(&at, true));
        place[p] = (char *)space[p] + exchanged, whole[p] = part[p].dwhole;
        b.k->triangle_part(NULL, FM_TRIANGLE_BACK_GRAD, &part[p], space[p]);
    }
    exchange(h, c, !t.incoming, place, whole);
    for (int p = 0; p < PARTS; p++) {
        b.k->triangle_part(NULL, FM_TRIANGLE_FRONT_GRAD, &part[p], space[p]);
        h.copy(t.c_z, p, true, grad[p].dz.data, g.dz.data);
    }
}

static void check_part(const char *name, int64_t n, int64_t c_z, int64_t c, bool incoming,
                       double rate, fm_beta beta) {
    check(name, 10, [=](work_bench &b) {
        int64_t rows = n * n, c_projected = 4 * c + c_z;
        uint32_t *clock = b.raw(std::vector<uint32_t>{5, 1, 2, 0});
        fm_triangle_block t = {};
        t.n = n, t.c_z = c_z, t.c = c, t.incoming = incoming, t.residual = t.keeps = true;
        t.eps = 1e-5;
        t.z = b.act(rows * c_z, 2), t.mask = b.mask(rows, 7);
        t.norm_in = b.act(2 * c_z), t.norm_out = b.act(2 * c);
        t.projections = b.act(c_projected * c_z, 0.3), t.projections_bias = b.act(c_projected);
        t.out = b.act(c_z * c, 0.2), t.out_bias = b.act(c_z);
        t.dropout = {
            n, n, c_z, 3, 4, n + 9, FM_SHARED_AXIS0, rate, {77, clock, 8, FM_PURPOSE_DROPOUT}};
        t.y = b.out(rows * c_z);
        fm_triangle_block_grad g = {};
        g.dy = b.act(rows * c_z), g.dz = b.grad(rows * c_z, beta);
        g.dnorm_in = b.grad(2 * c_z, beta, true), g.dnorm_out = b.grad(2 * c, beta, true);
        g.dprojections = b.grad(c_projected * c_z, beta, true);
        g.dprojections_bias = b.grad(c_projected, beta, true);
        g.dout = b.grad(c_z * c, beta, true), g.dout_bias = b.grad(c_z, beta, true);
        fm_triangle_block half = t;
        half.n_part = n / PARTS;
        if (b.k->triangle_part_kept(&half) > 0) {
            run_parts(b, t, g);
            return;
        }
        t.kept = b.space(b.k->triangle_block_kept(&t) * fm_element_bytes(b.k->act));
        b.k->triangle_block(NULL, &t, b.space(b.k->triangle_block_workspace(&t)));
        b.k->triangle_block_grad(NULL, &t, &g, b.space(b.k->triangle_block_grad_workspace(&t)));
    });
}

void check_parts(void) {
    check_part("triangle parts 32, c 64", 32, 64, 64, false, 0.25, FM_WRITE);
    check_part("triangle parts 64 incoming, c 64", 64, 64, 64, true, 0, FM_ADD);
    check_part("triangle parts 96, c 128", 96, 128, 128, false, 0, FM_ADD);
    check_part("triangle parts 128 incoming, c 128", 128, 128, 128, true, 0.25, FM_WRITE);
    check_part("triangle parts 32, c_z 64, c 128", 32, 64, 128, false, 0.25, FM_ADD);
    check_part("triangle parts 64 incoming, c_z 64, c 128", 64, 64, 128, true, 0, FM_WRITE);
}

} // namespace cuda_check
