/* body/noisy.h: kernels for noisy structures: alignment, augmentation, draws, and the losses and
 * classes that compare them with the truth. */
#include "trainer/backend/cpu/body/real.h"
#include "trainer/backend/frame_of_atoms.h"
#include "trainer/backend/superpose.h"

static real point_distance(const real *a, const real *b) {
    real square = 0;
    for (int axis = 0; axis < 3; axis++)
        square += (a[axis] - b[axis]) * (a[axis] - b[axis]);
    return REAL_SQRT(square);
}

/* -- moves */

static void weighted_centre(const real *x, const real *w, int64_t n, double out[3]) {
    double total = 0;
    out[0] = out[1] = out[2] = 0;
    for (int64_t i = 0; i < n; i++) {
        double weight = w ? (double)w[i] : 1;
        total += weight;
        for (int axis = 0; axis < 3; axis++)
            out[axis] += weight * (double)x[3 * i + axis];
    }
    for (int axis = 0; axis < 3 && total > 0; axis++)
        out[axis] /= total;
}

static void rigid_align_one(const fm_rigid_align *a, int64_t b) {
    const real *x = (const real *)a->x + b * a->x_stride, *y = (const real *)a->y + b * a->y_stride;
    const real *w = (const real *)a->w + b * a->w_stride;
    double from[3], to[3], s[3][3] = {{0}}, rotation[3][3], offset[3];
    weighted_centre(x, w, a->n, from);
    weighted_centre(y, w, a->n, to);
    for (int64_t i = 0; i < a->n; i++)
        for (int r = 0; r < 3; r++)
            for (int c = 0; c < 3; c++)
                s[r][c] += (double)w[i] * ((double)x[3 * i + r] - from[r]) *
                           ((double)y[3 * i + c] - to[c]);
    fm_superpose_rotation(s, rotation);
    for (int r = 0; r < 3; r++) {
        offset[r] = to[r];
        for (int c = 0; c < 3; c++)
            offset[r] -= rotation[r][c] * from[c];
    }
    for (int64_t i = 0; i < a->n; i++) {
        for (int r = 0; r < 3; r++) {
            double moved = offset[r];
            for (int c = 0; c < 3; c++)
                moved += rotation[r][c] * (double)x[3 * i + c];
            ((real *)a->moved)[(b * a->n + i) * 3 + r] = (real)moved;
        }
    }
    real *transform = a->transform ? (real *)a->transform + b * 12 : NULL;
    for (int r = 0; r < 3 && transform; r++) {
        transform[9 + r] = (real)offset[r];
        for (int c = 0; c < 3; c++)
            transform[3 * r + c] = (real)rotation[r][c];
    }
}

static void rigid_align(fm_stream *stream, const fm_rigid_align *a) {
    (void)stream;
    for (int64_t b = 0; b < a->n_batch; b++)
        rigid_align_one(a, b);
}

static void augment(fm_stream *stream, const fm_augment *a) {
    (void)stream;
    for (int64_t s = 0; s < a->n_sample; s++) {
        const real *x = (const real *)a->x + s * a->x_stride, *mask = a->mask;
        const real *rotation = (const real *)a->rotation + 9 * s;
        const real *offset = (const real *)a->offset + 3 * s;
        double centre[3] = {0}, count = a->eps;
        for (int64_t i = 0; i < a->n; i++) {
            double known = mask ? (double)mask[i] : 1;
            count += known;
            for (int axis = 0; axis < 3; axis++)
                centre[axis] += known * (double)x[3 * i + axis];
        }
        for (int64_t i = 0; i < a->n; i++) {
            real *y = (real *)a->y + (s * a->n + i) * 3;
            for (int r = 0; r < 3; r++) {
                double moved = (double)offset[r];
                for (int c = 0; c < 3; c++)
                    moved +=
                        (double)rotation[3 * r + c] * ((double)x[3 * i + c] - centre[c] / count);
                y[r] = mask ? (real)moved * mask[i] : (real)moved;
            }
        }
    }
}

static void draw_normal(fm_stream *stream, int64_t n, const fm_draw *draw, void *y) {
    (void)stream;
    for (int64_t i = 0; i < n; i += 2) {
        fm_philox_counter block = fm_draw_block(draw, (uint64_t)i);
        double pair[2];
        fm_normal_pair(&block.word[i & 2], pair);
        ((real *)y)[i] = (real)pair[0];
        if (i + 1 < n) ((real *)y)[i + 1] = (real)pair[1];
    }
}

static void draw_rotations(fm_stream *stream, int64_t n, const fm_draw *draw, void *y) {
    (void)stream;
    for (int64_t i = 0; i < n; i++) {
        fm_philox_counter block = fm_draw_block(draw, (uint64_t)(4 * i));
        double rotation[9];
        fm_uniform_rotation(block.word, rotation);
        for (int k = 0; k < 9; k++)
            ((real *)y)[9 * i + k] = (real)rotation[k];
    }
}

/* -- diffusion losses */

static double total_of(const void *x, int64_t n) {
    double total = 0;
    for (int64_t i = 0; i < n; i++)
        total += (double)((const real *)x)[i];
    return total;
}

static void square_loss(fm_stream *stream, const fm_square_loss *a) {
    (void)stream;
    const real *x = a->x, *y = a->y, *w = a->w;
    double loss = 0;
    for (int64_t s = 0; s < a->n_sample; s++) {
        double total = 0;
        for (int64_t i = 0; i < a->n; i++) {
            double square = 0;
            for (int64_t k = 3 * (s * a->n + i); k < 3 * (s * a->n + i) + 3; k++)
                square += ((double)x[k] - (double)y[k]) * ((double)x[k] - (double)y[k]);
            total += (double)w[i] * square;
        }
        loss += (double)((const real *)a->scale)[s] * total;
    }
    double divisor = (double)a->n_sample * (a->eps + total_of(a->mask, a->n));
    *(real *)a->loss = (real)(a->factor * loss / divisor);
}

static void square_loss_grad(fm_stream *stream, const fm_square_loss *a, const void *dloss,
                             fm_out dx) {
    (void)stream;
    double slope = 2 * a->factor * (double)*(const real *)dloss /
                   ((double)a->n_sample * (a->eps + total_of(a->mask, a->n)));
    for (int64_t at = 0; at < a->n_sample * a->n * 3; at++) {
        int64_t s = at / (3 * a->n), i = at / 3 % a->n;
        double error = (double)((const real *)a->x)[at] - (double)((const real *)a->y)[at];
        double weight = (double)((const real *)a->scale)[s] * (double)((const real *)a->w)[i];
        put((real *)dx.data + at, dx.beta, (real)(slope * weight * error));
    }
}

/* Returns by how much bond p of sample s is too long. */
static double bond_error(const fm_bond_loss *a, int64_t s, int64_t p, double *ret_length) {
    const real *x = (const real *)a->x + s * a->n * 3;
    double square = 0;
    for (int axis = 0; axis < 3; axis++) {
        double d = (double)x[3 * a->bond[2 * p] + axis] - (double)x[3 * a->bond[2 * p + 1] + axis];
        square += d * d;
    }
    *ret_length = sqrt(square);
    return *ret_length - (double)((const real *)a->length)[p];
}

static bool is_bond(const fm_bond_loss *a, int64_t p) {
    return a->bond[2 * p] >= 0 && ((const real *)a->w)[p] > 0;
}

/* The divisor of the sum over samples and bonds. */
static double bond_divisor(const fm_bond_loss *a) {
    double total = total_of(a->w, a->n_bond);
    return total > 0 ? (double)a->n_sample * total : 1;
}

static void bond_loss(fm_stream *stream, const fm_bond_loss *a) {
    (void)stream;
    double loss = 0;
    for (int64_t s = 0; s < a->n_sample; s++) {
        double total = 0, length;
        for (int64_t p = 0; p < a->n_bond; p++) {
            if (!is_bond(a, p)) continue;
            double error = bond_error(a, s, p, &length);
            total += (double)((const real *)a->w)[p] * error * error;
        }
        loss += (double)((const real *)a->scale)[s] * total;
    }
    *(real *)a->loss = (real)(loss / bond_divisor(a));
}

/* The gradient of one position is a sum over the bonds of its atom, in order. */
static void bond_loss_grad(fm_stream *stream, const fm_bond_loss *a, const void *dloss, fm_out dx) {
    (void)stream;
    double slope = 2 * (double)*(const real *)dloss / bond_divisor(a);
    for (int64_t at = 0; at < a->n_sample * a->n; at++) {
        int64_t s = at / a->n, i = at % a->n;
        const real *x = (const real *)a->x + s * a->n * 3;
        double d[3] = {0}, length;
        for (int64_t p = 0; p < a->n_bond; p++) {
            if (!is_bond(a, p) || (a->bond[2 * p] != i && a->bond[2 * p + 1] != i)) continue;
            int64_t other = a->bond[2 * p] == i ? a->bond[2 * p + 1] : a->bond[2 * p];
            double error = bond_error(a, s, p, &length);
            if (length == 0) continue;
            double pull = (double)((const real *)a->w)[p] * error / length;
            for (int axis = 0; axis < 3; axis++)
                d[axis] += pull * ((double)x[3 * i + axis] - (double)x[3 * other + axis]);
        }
        for (int axis = 0; axis < 3; axis++)
            put((real *)dx.data + 3 * at + axis, dx.beta,
                (real)(slope * (double)((const real *)a->scale)[s] * d[axis]));
    }
}

static const double LDDT_THRESHOLDS[4] = {0.5, 1, 2, 4};

/* Finds the true distance of a pair (l, m). Returns whether the pair counts for l. */
static bool lddt_pair(const fm_smooth_lddt *a, int64_t l, int64_t m, double *ret_distance) {
    const real *mask = a->mask;
    if (l == m || mask[l] == 0 || mask[m] == 0) return false;
    real d = point_distance((const real *)a->truth + 3 * l, (const real *)a->truth + 3 * m);
    *ret_distance = (double)d;
    return d < ((const real *)a->radius)[l];
}

/* The mean of the four sigmoids, and its slope. */
static double smooth_score(double error, double *ret_slope) {
    double score = 0, slope = 0;
    for (int k = 0; k < 4; k++) {
        double value = 1 / (1 + exp(error - LDDT_THRESHOLDS[k]));
        score += value / 4;
        slope -= value * (1 - value) / 4;
    }
    *ret_slope = slope;
    return score;
}

static size_t smooth_lddt_workspace(const fm_smooth_lddt *args) {
    (void)args;
    return 0;
}

static void smooth_lddt(fm_stream *stream, const fm_smooth_lddt *a, void *workspace) {
    (void)stream, (void)workspace;
    double score = 0, count = 0, truth, slope;
    for (int64_t l = 0; l < a->n; l++) {
        for (int64_t m = 0; m < a->n; m++) {
            if (!lddt_pair(a, l, m, &truth)) continue;
            count++;
            for (int64_t s = 0; s < a->n_sample; s++) {
                const real *x = (const real *)a->x + s * a->n * 3;
                double d = (double)point_distance(x + 3 * l, x + 3 * m);
                score += smooth_score(fabs(d - truth), &slope);
            }
        }
    }
    *(real *)a->count = (real)count;
    *(real *)a->loss = (real)(1 - score / ((double)a->n_sample * (a->eps + count)));
}

static void smooth_lddt_grad(fm_stream *stream, const fm_smooth_lddt *a, const void *dloss,
                             fm_out dx) {
    (void)stream;
    double factor = -(double)*(const real *)dloss /
                    ((double)a->n_sample * (a->eps + (double)*(const real *)a->count));
    for (int64_t at = 0; at < a->n_sample * a->n; at++) {
        int64_t s = at / a->n, l = at % a->n;
        const real *x = (const real *)a->x + s * a->n * 3;
        double total[3] = {0}, truth, slope;
        for (int64_t m = 0; m < a->n; m++) {
            int times = lddt_pair(a, l, m, &truth) + lddt_pair(a, m, l, &truth);
            if (!times) continue;
            double d = (double)point_distance(x + 3 * l, x + 3 * m);
            smooth_score(fabs(d - truth), &slope);
            if (d == 0 || d == truth) continue;
            double pull = (double)times * slope * (d > truth ? 1 : -1) / d;
            for (int axis = 0; axis < 3; axis++)
                total[axis] += pull * ((double)x[3 * l + axis] - (double)x[3 * m + axis]);
        }
        for (int axis = 0; axis < 3; axis++)
            put((real *)dx.data + 3 * at + axis, dx.beta, (real)(factor * total[axis]));
    }
}

/* -- classes of measured errors */

static int32_t error_class(double error, double last, int32_t n_bin) {
    int32_t below = 0;
    for (int32_t k = 0; k <= n_bin; k++)
        below += last * k / n_bin < error;
    return (below < 1 ? 1 : below > n_bin ? n_bin : below) - 1;
}

static void distance_errors(fm_stream *stream, const fm_distance_errors *a) {
    (void)stream;
    const real *truth = a->truth, *mask = a->mask;
    for (int64_t at = 0; at < a->n_batch * a->n * a->n; at++) {
        int64_t i = at / a->n % a->n, j = at % a->n;
        const real *x = (const real *)a->x + at / (a->n * a->n) * a->n * 3;
        real error =
            point_distance(x + 3 * i, x + 3 * j) - point_distance(truth + 3 * i, truth + 3 * j);
        a->target[at] = error_class(fabs((double)error), a->last, a->n_bin);
        ((real *)a->w)[at] = mask[i] * mask[j];
    }
}

/* x[atom] in the frame of three atoms. */
static void in_frame(const real *x, const int32_t frame[3], int64_t atom, double out[3]) {
    double point[4][3];
    for (int k = 0; k < 4; k++)
        for (int axis = 0; axis < 3; axis++)
            point[k][axis] = (double)x[3 * (k < 3 ? frame[k] : atom) + axis];
    fm_express_in_frame(point[0], point[1], point[2], point[3], out);
}

static void frame_errors(fm_stream *stream, const fm_frame_errors *a) {
    (void)stream;
    const real *truth = a->truth, *mask = a->mask;
    int64_t n = a->n_token;
    for (int64_t at = 0; at < a->n_batch * n * n; at++) {
        const int32_t *frame = a->frame + 3 * (at / n % n);
        int32_t j = a->centre[at % n];
        const real *x = (const real *)a->x + at / (n * n) * a->n_atom * 3;
        real w = j < 0 || frame[0] < 0 ? 0 : mask[j];
        for (int k = 0; k < 3 && w != 0; k++)
            w *= mask[frame[k]];
        double here[3], there[3], square = 0;
        if (w != 0) {
            in_frame(x, frame, j, here);
            in_frame(truth, frame, j, there);
            for (int k = 0; k < 3; k++)
                square += (here[k] - there[k]) * (here[k] - there[k]);
        }
        a->target[at] = error_class(sqrt(square), a->last, a->n_bin);
        ((real *)a->w)[at] = w;
    }
}

static void atom_lddt(fm_stream *stream, const fm_atom_lddt *a) {
    (void)stream;
    const real *truth = a->truth, *mask = a->mask;
    for (int64_t at = 0; at < a->n_batch * a->n; at++) {
        int64_t l = at % a->n, hits = 0, n = 0;
        const real *x = (const real *)a->x + at / a->n * a->n * 3;
        for (int64_t m = 0; m < a->n; m++) {
            real d = point_distance(truth + 3 * l, truth + 3 * m);
            bool counts = m != l && mask[m] != 0 && ((const real *)a->partner)[m] != 0;
            if (!counts || !(d < ((const real *)a->radius)[m])) continue;
            real error = point_distance(x + 3 * l, x + 3 * m) - d;
            for (int k = 0; k < 4; k++)
                hits += fabs((double)error) < LDDT_THRESHOLDS[k];
            n++;
        }
        int64_t below = hits > 0 ? (a->n_bin * hits + 4 * n - 1) / (4 * n) : 0;
        a->target[at] = (int32_t)min_size(max_size(below, 1), a->n_bin) - 1;
        ((real *)a->w)[at] = mask[l];
    }
}
