/* body/memory.h: fills, copies, conversions, strided copies, sums over an axis. */
#include "trainer/backend/cpu/body/real.h"

static void fill(fm_stream *stream, int64_t n, double value, void *y) {
    (void)stream;
    real *out = y, v = (real)value;
    for (int64_t i = 0; i < n; i++)
        out[i] = v;
}

static void copy(fm_stream *stream, int64_t n, const void *x, void *y) {
    (void)stream;
    memmove(y, x, (size_t)n * sizeof(real));
}

static void cast(fm_stream *stream, int64_t n, fm_element from, const void *x, void *y) {
    (void)stream;
    assert(from == FM_ELEMENT_BF16 || from == FM_ELEMENT_F32 || from == FM_ELEMENT_F64);
    real *out = y;
    const uint16_t *half = x;
    const float *single = x;
    const double *twice = x;
    if (from == FM_ELEMENT_BF16) {
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits = (uint32_t)half[i] << 16;
            float value;
            memcpy(&value, &bits, sizeof value);
            out[i] = (real)value;
        }
    } else if (from == FM_ELEMENT_F32) {
        for (int64_t i = 0; i < n; i++)
            out[i] = (real)single[i];
    } else {
        for (int64_t i = 0; i < n; i++)
            out[i] = (real)twice[i];
    }
}

static void widen(fm_stream *stream, int64_t n, const uint8_t *x, int32_t *y) {
    (void)stream;
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i];
}

static void unpack_bits(fm_stream *stream, int64_t n, const uint8_t *bits, void *y) {
    (void)stream;
    for (int64_t i = 0; i < n; i++)
        ((real *)y)[i] = (real)(bits[i / 8] >> (i % 8) & 1);
}

/* copy_strided along the innermost axis. */
static void copy_line(const fm_strided *a, const real *x, real *y) {
    int last = a->rank - 1;
    int64_t n = a->shape[last], dx = a->x_stride[last], dy = a->y_stride[last];
    real alpha = (real)a->alpha;
    if (dx == 1 && dy == 1) {
        if (a->y.beta == FM_ADD) {
            for (int64_t i = 0; i < n; i++)
                y[i] += alpha * x[i];
        } else {
            for (int64_t i = 0; i < n; i++)
                y[i] = alpha * x[i];
        }
        return;
    }
    for (int64_t i = 0; i < n; i++)
        put(&y[i * dy], a->y.beta, alpha * x[i * dx]);
}

static void copy_strided(fm_stream *stream, const fm_strided *args) {
    (void)stream;
    assert(args->rank >= 1 && args->rank <= FM_STRIDED_RANK);
    int64_t index[FM_STRIDED_RANK] = {0};
    const real *x = args->x;
    real *y = args->y.data;
    for (;;) {
        copy_line(args, x, y);
        int axis = args->rank - 2; /* advance the outer axes, the last one fastest */
        for (; axis >= 0; axis--) {
            x += args->x_stride[axis];
            y += args->y_stride[axis];
            if (++index[axis] < args->shape[axis]) break;
            x -= args->x_stride[axis] * args->shape[axis];
            y -= args->y_stride[axis] * args->shape[axis];
            index[axis] = 0;
        }
        if (axis < 0) return;
    }
}

static void axpy(fm_stream *stream, int64_t n, double alpha, const void *x, fm_out y) {
    (void)stream;
    const real *in = x;
    real *out = y.data, factor = (real)alpha;
    if (y.beta == FM_ADD) {
        for (int64_t i = 0; i < n; i++)
            out[i] += factor * in[i];
    } else {
        for (int64_t i = 0; i < n; i++)
            out[i] = factor * in[i];
    }
}

static void axpy_device(fm_stream *stream, int64_t n, const double *alpha, const void *x,
                        fm_out y) {
    axpy(stream, n, *alpha, x, y);
}

/* The CPU ends each sum in its call. */
static size_t sums_room(void) {
    return 0;
}

static void put_off_sums(fm_stream *stream, void *memory, const void *first, const void *end) {
    (void)stream, (void)memory, (void)first, (void)end;
}

static void finish_sums(fm_stream *stream) {
    (void)stream;
}

static size_t sum_workspace(int64_t n_a, int64_t n_r, int64_t n_c) {
    (void)n_a, (void)n_r, (void)n_c;
    return 0;
}

/* Sums a strip of channels at a time, over the rows in order, in double. */
static void sum_strip(const real *x, int64_t n_r, int64_t ld, int64_t width, real *y,
                      fm_beta beta) {
    enum { STRIP = 64 };
    double total[STRIP] = {0};
    assert(width <= STRIP);
    for (int64_t r = 0; r < n_r; r++)
        for (int64_t c = 0; c < width; c++)
            total[c] += (double)x[r * ld + c];
    for (int64_t c = 0; c < width; c++)
        put(&y[c], beta, (real)total[c]);
}

static void sum(fm_stream *stream, int64_t n_a, int64_t n_r, int64_t n_c, const int64_t stride[2],
                const void *x, fm_out y, bool y_is_acc, void *workspace) {
    (void)stream, (void)y_is_acc, (void)workspace;
    for (int64_t a = 0; a < n_a; a++) {
        const real *in = (const real *)x + a * stride[0];
        real *out = (real *)y.data + a * n_c;
        if (n_c == 1 && stride[1] == 1) {
            put(out, y.beta, (real)sum_of(in, n_r));
            continue;
        }
        for (int64_t c = 0; c < n_c; c += 64)
            sum_strip(in + c, n_r, stride[1], min_size(64, n_c - c), out + c, y.beta);
    }
}
