/* body/structure_loss.h: torsion angles (A27), lDDT and aligned-error bins, binary cross-entropy.
 */
#include "trainer/backend/cpu/body/real.h"

enum { ANGLES = 7, CHIS = 4 };

/* Added to the sums of masks, as in the mean of the reference. */
static const double TORSION_MASK_EPS = 1e-4;

/* A27:3: the squared distance of a predicted chi angle from the truth or, if the angle is the same
 * after 180 degrees, from its opposite, whichever is nearer. Returns the sign of the nearer one. */
static real chi_error(const fm_torsion_loss *a, int64_t i, int chi, const real *predicted,
                      real *ret_square) {
    const float *truth = a->chi + (i * CHIS + chi) * 2;
    real square[2] = {0, 0};
    for (int k = 0; k < 2; k++) {
        real minus = predicted[k] - (real)truth[k], plus = predicted[k] + (real)truth[k];
        square[0] += minus * minus;
        square[1] += plus * plus;
    }
    bool turned = a->pi_periodic[a->aatype[i]] >> chi & 1 && square[1] < square[0];
    *ret_square = square[turned];
    return turned ? -1 : 1;
}

/* A27:1 */
static real angle_length(const fm_torsion_loss *a, const real *x) {
    return REAL_SQRT(x[0] * x[0] + x[1] * x[1] + (real)a->eps);
}

static double torsion_chi_scale(const fm_torsion_loss *a) {
    double count = (double)a->n_batch * sum_of_mask(a->chi_mask, a->n * CHIS);
    return a->chi_weight / (TORSION_MASK_EPS + count);
}

static double torsion_norm_scale(const fm_torsion_loss *a) {
    double count = (double)(a->n_batch * ANGLES) * sum_of_mask(a->seq_mask, a->n);
    return a->norm_weight / (TORSION_MASK_EPS + count);
}

static void torsion_loss(fm_stream *stream, const fm_torsion_loss *a) {
    (void)stream;
    double chi_total = 0, norm_total = 0;
    for (int64_t row = 0; row < a->n_batch * a->n; row++) {
        int64_t i = row % a->n;
        const real *angles = (const real *)a->angles + row * 2 * ANGLES;
        const real *raw = (const real *)a->unnormalised + row * 2 * ANGLES;
        for (int chi = 0; chi < CHIS; chi++) {
            real square;
            chi_error(a, i, chi, angles + 2 * (ANGLES - CHIS + chi), &square);
            chi_total += (double)a->chi_mask[i * CHIS + chi] * (double)square;
        }
        for (int k = 0; k < ANGLES; k++)
            norm_total += (double)a->seq_mask[i] * fabs((double)angle_length(a, raw + 2 * k) - 1);
    }
    *(real *)a->loss = /* A27:4-5 */
        (real)(chi_total * torsion_chi_scale(a) + norm_total * torsion_norm_scale(a));
}

static void torsion_loss_grad(fm_stream *stream, const fm_torsion_loss *a, const void *dloss,
                              fm_out dangles, fm_out dunnormalised) {
    (void)stream;
    double chi_scale = (double)*(const real *)dloss * torsion_chi_scale(a);
    double norm_scale = (double)*(const real *)dloss * torsion_norm_scale(a);
    for (int64_t row = 0; row < a->n_batch * a->n; row++) {
        int64_t i = row % a->n, at = row * 2 * ANGLES;
        real d[2 * ANGLES] = {0}, draw[2 * ANGLES];
        for (int chi = 0; chi < CHIS; chi++) {
            int64_t k = 2 * (ANGLES - CHIS + chi);
            const real *predicted = (const real *)a->angles + at + k;
            real square, sign = chi_error(a, i, chi, predicted, &square);
            real slope = (real)(2 * chi_scale * (double)a->chi_mask[i * CHIS + chi]);
            for (int c = 0; c < 2; c++)
                d[k + c] = slope * (predicted[c] - sign * (real)a->chi[(i * CHIS + chi) * 2 + c]);
        }
        for (int k = 0; k < ANGLES; k++) {
            const real *raw = (const real *)a->unnormalised + at + 2 * k;
            real length = angle_length(a, raw), sign = (real)(length > 1) - (real)(length < 1);
            real slope = (real)(norm_scale * (double)a->seq_mask[i]) * sign / length;
            draw[2 * k] = slope * raw[0];
            draw[2 * k + 1] = slope * raw[1];
        }
        if (dangles.data) put_row((real *)dangles.data + at, dangles.beta, d, 2 * ANGLES);
        if (dunnormalised.data) {
            put_row((real *)dunnormalised.data + at, dunnormalised.beta, draw, 2 * ANGLES);
        }
    }
}

/* -- bins, in f32 on every device */

static float rooted_distance(const float *x, const float *y, float eps) {
    return sqrtf(eps + square_distance(x, y));
}

static void carbon_alpha(const fm_lddt_bins *a, int64_t i, float *out) {
    for (int axis = 0; axis < 3; axis++)
        out[axis] = (float)((const real *)a->atoms)[(i * ATOMS + 1) * 3 + axis];
}

static void lddt_bins(fm_stream *stream, const fm_lddt_bins *a) {
    (void)stream;
    static const float limits[4] = {0.5f, 1.0f, 2.0f, 4.0f};
    for (int64_t i = 0; i < a->n; i++) {
        float mine[3], theirs[3], within = 0, scored = 0, eps = (float)a->eps;
        carbon_alpha(a, i, mine);
        for (int64_t j = 0; j < a->n; j++) {
            float truth = rooted_distance(a->positions + 3 * i, a->positions + 3 * j, eps);
            if (j == i || !(truth < (float)a->cutoff) || a->mask[i] * a->mask[j] == 0) continue;
            carbon_alpha(a, j, theirs);
            float error = fabsf(truth - rooted_distance(mine, theirs, eps));
            within += 1;
            for (int k = 0; k < 4; k++)
                scored += error < limits[k] ? 0.25f : 0;
        }
        float score = 1.0f / (eps + within) * (eps + scored);
        int32_t bin = (int32_t)floorf(score * (float)a->n_bin);
        a->target[i] = bin < a->n_bin ? bin : a->n_bin - 1;
        ((real *)a->w)[i] = (real)a->mask[i];
    }
}

static void aligned_error_bins(fm_stream *stream, const fm_aligned_error_bins *a) {
    (void)stream;
    float step = (float)(a->last / (double)(a->n_bin - 2));
    for (int64_t i = 0; i < a->n; i++) {
        const real *frame = (const real *)a->frames + MATRIX * i;
        const float *truth = a->target_frames + 16 * i;
        for (int64_t j = 0; j < a->n; j++) {
            real offset[3], local[3], target[3], square = 0;
            const float *moved = a->target_frames + 16 * j;
            const float origin[3] = {moved[3], moved[7], moved[11]};
            for (int axis = 0; axis < 3; axis++)
                offset[axis] = ((const real *)a->frames)[MATRIX * j + 9 + axis] - frame[9 + axis];
            rotate_back(frame, offset, local);
            to_target_frame(truth, origin, target);
            for (int axis = 0; axis < 3; axis++)
                square += (local[axis] - target[axis]) * (local[axis] - target[axis]);
            int32_t bin = 0;
            for (int32_t b = 0; b < a->n_bin - 1; b++)
                bin += (float)square > step * (float)b * (step * (float)b);
            a->target[i * a->n + j] = bin;
            ((real *)a->w)[i * a->n + j] = (real)(a->mask[i] * a->mask[j]);
        }
    }
}

/* -- binary cross-entropy */

static void binary_entropy(fm_stream *stream, const fm_binary_entropy *a) {
    (void)stream;
    double total = 0;
    for (int64_t i = 0; i < a->n; i++) {
        real x = ((const real *)a->x)[i], size = x < 0 ? -x : x;
        double high = (double)(x < 0 ? 0 : x); /* NaN stays NaN */
        double value = high - (double)x * (double)a->label[i];
        value += (double)REAL_LOG(1 + real_exp(-size));
        total += (double)a->w[i] * value;
    }
    *(real *)a->loss = (real)(total / (a->eps + sum_of_mask(a->w, a->n)));
}

static void binary_entropy_grad(fm_stream *stream, const fm_binary_entropy *a, const void *dloss,
                                fm_out dx) {
    (void)stream;
    double scale = (double)*(const real *)dloss / (a->eps + sum_of_mask(a->w, a->n));
    for (int64_t i = 0; i < a->n; i++) {
        real slope = (real)(scale * (double)a->w[i]);
        put((real *)dx.data + i, dx.beta,
            slope * (sigmoid(((const real *)a->x)[i]) - (real)a->label[i]));
    }
}
