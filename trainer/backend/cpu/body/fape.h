/* body/fape.h: frame aligned point error (A28), and the naming of ambiguous atoms that fits best
 * (A26). */
#include "trainer/backend/cpu/body/real.h"

/* A target frame is a homogeneous matrix [4, 4]: y = R^T (x - t). */
static void to_target_frame(const float *frame, const float *x, real *y) {
    real offset[3];
    for (int axis = 0; axis < 3; axis++)
        offset[axis] = (real)x[axis] - (real)frame[4 * axis + 3];
    for (int axis = 0; axis < 3; axis++)
        y[axis] = (real)frame[axis] * offset[0] + (real)frame[4 + axis] * offset[1] +
                  (real)frame[8 + axis] * offset[2];
}

static double sum_of_mask(const float *mask, int64_t n) {
    double total = 0;
    for (int64_t i = 0; i < n; i++)
        total += (double)mask[i];
    return total;
}

/* 1 / the product of all that the sum of errors is divided by. */
static double fape_scale(const fm_fape *a) {
    double frames = sum_of_mask(a->frame_mask, a->n_frame);
    double points = sum_of_mask(a->point_mask, a->n_point);
    return 1 / (a->length_scale * (a->eps + frames) * (a->eps + points) * (double)a->n_batch);
}

/* The distance of two points: 3, or 12 when they are the translations of the frames. */
static int64_t point_step(const fm_fape *a) {
    return a->points ? 3 : MATRIX;
}

static const real *point_of(const fm_fape *a, int64_t b, int64_t p) {
    const real *first = a->points ? (const real *)a->points : (const real *)a->frames + 9;
    return first + (b * a->n_point + p) * point_step(a);
}

/* A28:1-3: the error vector of a point in a frame, and offset = point - translation. Returns its
 * length. */
static real fape_error(const fm_fape *a, const real *frame, const real *point, int64_t f, int64_t p,
                       real *offset, real *error) {
    const float *moved = a->target_frames + 16 * p;
    const float origin[3] = {a->points ? 0 : moved[3], a->points ? 0 : moved[7],
                             a->points ? 0 : moved[11]};
    real local[3], target[3];
    for (int axis = 0; axis < 3; axis++)
        offset[axis] = point[axis] - frame[9 + axis];
    rotate_back(frame, offset, local);
    to_target_frame(a->target_frames + 16 * f, a->points ? a->target_points + 3 * p : origin,
                    target);
    real square = 0;
    for (int axis = 0; axis < 3; axis++) {
        error[axis] = local[axis] - target[axis];
        square += error[axis] * error[axis];
    }
    return REAL_SQRT(square + (real)a->eps);
}

static size_t fape_workspace(const fm_fape *a) {
    (void)a;
    return 0;
}

static void fape(fm_stream *stream, const fm_fape *a, void *workspace) {
    (void)stream, (void)workspace;
    double clamped = a->clamped ? (double)*a->clamped : 1, total = 0;
    for (int64_t b = 0; b < a->n_batch; b++) {
        for (int64_t f = 0; f < a->n_frame; f++) {
            const real *frame = (const real *)a->frames + (b * a->n_frame + f) * MATRIX;
            double row = 0;
            for (int64_t p = 0; p < a->n_point && a->frame_mask[f] != 0; p++) {
                real offset[3], error[3];
                double d = (double)fape_error(a, frame, point_of(a, b, p), f, p, offset, error);
                double cut = d > a->clamp ? a->clamp : d; /* NaN stays NaN */
                row += (double)a->point_mask[p] * (clamped * cut + (1 - clamped) * d);
            }
            total += (double)a->frame_mask[f] * row;
        }
    }
    *(real *)a->loss = (real)(total * fape_scale(a)); /* A28:4 */
}

/* Adds the gradients of one frame with all points. */
static void fape_frame_grad(const fm_fape *a, int64_t b, int64_t f, double factor, real *dframe,
                            real *dpoints) {
    double clamped = a->clamped ? (double)*a->clamped : 1;
    const real *frame = (const real *)a->frames + (b * a->n_frame + f) * MATRIX;
    for (int64_t p = 0; p < a->n_point; p++) {
        real offset[3], error[3], turned[3];
        real d = fape_error(a, frame, point_of(a, b, p), f, p, offset, error);
        double share = ((double)d <= a->clamp ? clamped : 0) + (1 - clamped);
        real slope = (real)(factor * (double)a->point_mask[p] * share / (double)d);
        for (int axis = 0; axis < 3; axis++)
            error[axis] *= slope;
        rotate(frame, error, turned);
        add_outer(dframe, offset, error);
        for (int axis = 0; axis < 3; axis++) {
            dframe[9 + axis] -= turned[axis];
            if (dpoints) dpoints[(b * a->n_point + p) * point_step(a) + axis] += turned[axis];
        }
    }
}

static void fape_grad(fm_stream *stream, const fm_fape *a, const void *dloss, fm_out dframes,
                      fm_out dpoints) {
    (void)stream;
    double scale = (double)*(const real *)dloss * fape_scale(a);
    assert(dframes.data);
    if (dframes.beta == FM_WRITE) fill(NULL, a->n_batch * a->n_frame * MATRIX, 0, dframes.data);
    real *to_points = a->points ? dpoints.data : (real *)dframes.data + 9;
    if (a->points && dpoints.data && dpoints.beta == FM_WRITE) {
        fill(NULL, a->n_batch * a->n_point * 3, 0, dpoints.data);
    }
    for (int64_t b = 0; b < a->n_batch; b++)
        for (int64_t f = 0; f < a->n_frame; f++)
            if (a->frame_mask[f] != 0) {
                fape_frame_grad(a, b, f, scale * (double)a->frame_mask[f],
                                (real *)dframes.data + (b * a->n_frame + f) * MATRIX, to_points);
            }
}

/* -- naming */

static double distance_of(const float *x, const float *y) {
    double square = 1e-10;
    for (int axis = 0; axis < 3; axis++)
        square += (double)(x[axis] - y[axis]) * (double)(x[axis] - y[axis]);
    return sqrt(square);
}

static double predicted_distance(const real *x, const real *y) {
    double square = 1e-10;
    for (int axis = 0; axis < 3; axis++)
        square += (double)(x[axis] - y[axis]) * (double)(x[axis] - y[axis]);
    return sqrt(square);
}

/* A26:1-4: by how much the given names fit worse than the alternative, summed over the distances
 * between the ambiguous atoms of residue i and all unambiguous atoms. */
static double naming_gain(const fm_naming *a, int64_t i) {
    double gain = 0;
    for (int64_t m = i * ATOMS; m < (i + 1) * ATOMS; m++) {
        if (a->exists[m] * a->is_ambiguous[m] == 0) continue;
        for (int64_t k = 0; k < a->n * ATOMS; k++) {
            if (a->exists[k] * (1 - a->is_ambiguous[k]) == 0) continue;
            double d =
                predicted_distance((const real *)a->atoms + 3 * m, (const real *)a->atoms + 3 * k);
            double given = distance_of(a->positions + 3 * m, a->positions + 3 * k);
            double other = distance_of(a->alt_positions + 3 * m, a->alt_positions + 3 * k);
            gain += sqrt(1e-10 + (d - given) * (d - given));
            gain -= sqrt(1e-10 + (d - other) * (d - other));
        }
    }
    return gain;
}

static void choose_naming(fm_stream *stream, const fm_naming *a) {
    (void)stream;
    for (int64_t i = 0; i < a->n; i++) {
        bool other = naming_gain(a, i) > 0; /* A26:5 */
        const float *positions = other ? a->alt_positions : a->positions;
        const float *exists = other ? a->alt_exists : a->exists;
        const float *frames = other ? a->alt_frames : a->frames;
        memcpy(a->ret_positions + i * ATOMS * 3, positions + i * ATOMS * 3,
               ATOMS * 3 * sizeof(float));
        memcpy(a->ret_exists + i * ATOMS, exists + i * ATOMS, ATOMS * sizeof(float));
        memcpy(a->ret_frames + i * GROUPS * 16, frames + i * GROUPS * 16,
               GROUPS * 16 * sizeof(float));
    }
}
