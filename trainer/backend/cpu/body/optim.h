/* body/optim.h: gradient norm, non-finite search, Adam with EMA, initial parameters. */
#include "trainer/backend/cpu/body/real.h"

enum { NORM_BLOCK = 4096 };

static size_t grad_norm_workspace(int64_t n) {
    (void)n;
    return 0;
}

static void grad_norm(fm_stream *stream, int64_t n, const void *grad, double max_norm, bool is_sum,
                      fm_step_state *state, void *workspace) {
    (void)stream, (void)workspace;
    const real *g = grad;
    double total = 0;
    for (int64_t first = 0; first < n; first += NORM_BLOCK)
        total += dot_product(g + first, g + first, min_size(NORM_BLOCK, n - first));
    double norm = sqrt(total) + 1e-6;
    bool finite = isfinite(total);
    if (is_sum) max_norm *= state->pending + 1.0;
    state->norm_squared = total;
    state->clip_scale = !finite ? 0 : norm > max_norm ? max_norm / norm : 1;
    if (!finite) state->nonfinite |= is_sum ? FM_NONFINITE_SUM : FM_NONFINITE_SAMPLE;
}

static void find_nonfinite(fm_stream *stream, int64_t n, const void *x, uint32_t *flag) {
    (void)stream;
    const real *in = x;
    int bad = 0;
    for (int64_t i = 0; i < n; i++)
        bad |= !isfinite(in[i]);
    if (bad) *flag = 1;
}

static void accumulate(fm_stream *stream, int64_t n, const fm_step_state *state, bool always,
                       const void *grad, void *sum) {
    if (state->nonfinite || (!always && !state->pending && !state->holds)) return;
    axpy_device(stream, n, &state->clip_scale, grad,
                (fm_out){sum, state->pending ? FM_ADD : FM_WRITE});
}

static void adam(fm_stream *stream, const fm_adam *a) {
    (void)stream;
    if (a->state->nonfinite || a->state->holds) return;
    bool only = a->only && !a->state->pending, clip = a->clip || only;
    double step = (double)a->state->step;
    real correction = (real)(1 / sqrt(1 - pow(a->beta2, step)));
    real rate = (real)(a->state->lr / (1 - pow(a->beta1, step)));
    real beta1 = (real)a->beta1, beta2 = (real)a->beta2, rest1 = (real)(1 - a->beta1);
    real rest2 = (real)(1 - a->beta2), eps = (real)a->eps, rest = (real)(1 - a->ema_decay);
    real scale =
        (real)(a->grad_scale / (a->state->pending + 1.0) * (clip ? a->state->clip_scale : 1));
    const real *restrict grad = only ? a->only : a->grad;
    real *restrict param = a->param, *restrict m = a->m, *restrict v = a->v, l2 = (real)a->l2;
    for (int64_t i = 0; i < a->n; i++) {
        real g = grad[i] * scale;
        if (l2 != 0) g += l2 * param[i];
        m[i] = beta1 * m[i] + rest1 * g;
        v[i] = beta2 * v[i] + rest2 * (g * g);
        param[i] -= rate * m[i] / (REAL_SQRT(v[i]) * correction + eps);
    }
    real *restrict ema = a->ema, *restrict act = a->copy;
    for (int64_t i = 0; i < a->n && ema; i++)
        ema[i] -= rest * (ema[i] - param[i]);
    for (int64_t i = 0; i < a->n && act; i++)
        act[i] = param[i];
}

static void init(fm_stream *stream, fm_init_kind kind, int64_t n, uint64_t first, double scale,
                 const fm_draw *draw, void *y) {
    (void)stream;
    real *out = y;
    for (int64_t i = 0; i < n; i++) {
        double value = scale;
        if (kind == FM_INIT_UNIFORM) {
            value *= fm_uniform_two_sided(fm_draw_word(draw, first + (uint64_t)i));
        }
        if (kind == FM_INIT_TRUNCATED_NORMAL) {
            value *= fm_truncated_normal(fm_draw_word(draw, first + (uint64_t)i)) / 0.87962566;
        }
        out[i] = (real)value;
    }
}
