/* body/ipa.h: invariant point attention (A22), one query residue at a time. */
#include "trainer/backend/cpu/body/real.h"

/* Offsets in a row of projections and in a row of the output. */
typedef struct ipa_layout {
    int64_t q, kv, q_points, kv_points;   /* of a projection row */
    int64_t n_q_points, n_kv_points;      /* points of all heads */
    int64_t o, o_points, o_norms, o_pair; /* of an output row */
    int64_t n_o_points, ld;
} ipa_layout;

static ipa_layout ipa_layout_of(const fm_ipa *a) {
    ipa_layout l = {.n_q_points = a->n_head * a->n_qk,
                    .n_kv_points = a->n_head * (a->n_qk + a->n_v),
                    .n_o_points = a->n_head * a->n_v};
    l.kv = a->n_head * a->c;
    l.q_points = 3 * a->n_head * a->c;
    l.kv_points = l.q_points + 3 * l.n_q_points;
    l.o_points = a->n_head * a->c;
    l.o_norms = l.o_points + 3 * l.n_o_points;
    l.o_pair = l.o_norms + l.n_o_points;
    l.ld = l.o_pair + a->n_head * a->c_z;
    return l;
}

typedef struct ipa_space {
    real *rotation;             /* [n, 9] */
    real *q, *kv;               /* points in global coordinates, [n, points, 3] */
    real *weight;               /* [n_head, n]: attention of one query */
    real *dq, *dkv, *drotation; /* like q, kv, rotation; backward */
    real *dlogit;               /* [n] */
    real *dtranslation;         /* [n, 3] */
} ipa_space;

static int64_t ipa_space_of(const fm_ipa *a, bool backward, real *at, ipa_space *s) {
    ipa_layout l = ipa_layout_of(a);
    real *start = at;
    s->rotation = at, at += 9 * a->n;
    s->q = at, at += 3 * a->n * l.n_q_points;
    s->kv = at, at += 3 * a->n * l.n_kv_points;
    s->weight = at, at += a->n_head * a->n;
    if (backward) {
        s->dq = at, at += 3 * a->n * l.n_q_points;
        s->dkv = at, at += 3 * a->n * l.n_kv_points;
        s->drotation = at, at += 9 * a->n;
        s->dtranslation = at, at += 3 * a->n;
        s->dlogit = at, at += a->n;
    }
    return at - start;
}

static size_t ipa_bytes(const fm_ipa *a, bool backward) {
    ipa_layout l = ipa_layout_of(a);
    int64_t points = 3 * a->n * (l.n_q_points + l.n_kv_points), rest = a->n * (9 + a->n_head);
    int64_t count = backward ? 2 * points + rest + 13 * a->n : points + rest;
    return (size_t)count * sizeof(real);
}

static size_t ipa_workspace(const fm_ipa *a) {
    return ipa_bytes(a, false);
}

static size_t ipa_grad_workspace(const fm_ipa *a) {
    return ipa_bytes(a, true);
}

/* Transforms the points of a projection row (all x, then all y, then all z) to global
 * coordinates. */
static void ipa_points(const real *row, int64_t n_point, const real *r, const real *t, real *out) {
    for (int64_t p = 0; p < n_point; p++) {
        real local[3] = {row[p], row[n_point + p], row[2 * n_point + p]};
        rotate(r, local, out + 3 * p);
        for (int axis = 0; axis < 3; axis++)
            out[3 * p + axis] += t[axis];
    }
}

static void ipa_prepare(const fm_ipa *a, const ipa_space *s) {
    ipa_layout l = ipa_layout_of(a);
    for (int64_t i = 0; i < a->n; i++) {
        const real *frame = (const real *)a->frames + FRAME * i;
        const real *row = (const real *)a->projections + a->ld * i;
        matrix_of_quaternion(frame, s->rotation + 9 * i);
        ipa_points(row + l.q_points, l.n_q_points, s->rotation + 9 * i, frame + 4,
                   s->q + 3 * l.n_q_points * i);
        ipa_points(row + l.kv_points, l.n_kv_points, s->rotation + 9 * i, frame + 4,
                   s->kv + 3 * l.n_kv_points * i);
    }
}

static real softplus(real x) {
    return x > 20 ? x : REAL_LOG(1 + real_exp(x));
}

/* w_C / 2 of A22:7, without the weight of the head. */
static real ipa_point_factor(const fm_ipa *a) {
    return (real)(-0.5 * sqrt(2.0 / (27.0 * (double)a->n_qk)));
}

/* The sum over points of the squared distance of query i and key j. */
static real ipa_distance(const fm_ipa *a, const ipa_space *s, int64_t i, int64_t j, int64_t h) {
    int64_t n_kv = a->n_qk + a->n_v;
    const real *q = s->q + 3 * (i * a->n_head + h) * a->n_qk;
    const real *k = s->kv + 3 * (j * a->n_head + h) * n_kv;
    double total = 0;
    for (int64_t x = 0; x < 3 * a->n_qk; x++)
        total += (double)((q[x] - k[x]) * (q[x] - k[x]));
    return (real)total;
}

/* A22:7 of one query: logits[h, j]. */
static void ipa_logits(const fm_ipa *a, const ipa_space *s, int64_t i) {
    real scale = (real)sqrt(1.0 / (3.0 * (double)a->c)), third = (real)sqrt(1.0 / 3.0);
    const real *projections = a->projections, *mask = a->mask;
    for (int64_t h = 0; h < a->n_head; h++) {
        const real *q = projections + a->ld * i + h * a->c;
        real factor = ipa_point_factor(a) * softplus(((const real *)a->head_weights)[h]);
        for (int64_t j = 0; j < a->n; j++) {
            const real *k = projections + a->ld * j + (a->n_head + 2 * h) * a->c;
            real logit = scale * (real)dot_product(q, k, a->c) +
                         third * ((const real *)a->bias)[(i * a->n + j) * a->n_head + h];
            logit += factor * ipa_distance(a, s, i, j, h);
            real barred = mask[i] != 0 ? mask[i] * mask[j] - 1 : 0;
            s->weight[h * a->n + j] = logit + (real)a->mask_value * barred;
        }
    }
}

/* Softmax of each head; uses the saved log-sum-exp when there is one. */
static void ipa_softmax(const fm_ipa *a, const ipa_space *s, int64_t i, bool saved) {
    for (int64_t h = 0; h < a->n_head; h++) {
        real *weight = s->weight + h * a->n, *lse = (real *)a->lse + 2 * (i * a->n_head + h);
        if (!saved) {
            lse[0] = max_of(weight, a->n);
            double total = 0;
            for (int64_t j = 0; j < a->n; j++)
                total += (double)real_exp(weight[j] - lse[0]);
            lse[1] = (real)(1 / total);
        }
        for (int64_t j = 0; j < a->n; j++)
            weight[j] = real_exp(weight[j] - lse[0]) * lse[1];
    }
}

/* Adds weight * row over the keys of head h: y[0..width-1] of rows stride apart. */
static void ipa_gather(const real *weight, int64_t n, const real *x, int64_t stride, int64_t width,
                       real *y) {
    for (int64_t c = 0; c < width; c++)
        y[c] = 0;
    for (int64_t j = 0; j < n; j++)
        for (int64_t c = 0; c < width; c++)
            y[c] += weight[j] * x[j * stride + c];
}

/* The average of the value points over all keys for head h, in the frame of query i (A22:10).
 * offset receives the average minus the translation. */
static void ipa_point_output(const fm_ipa *a, const ipa_space *s, int64_t i, int64_t h, int64_t p,
                             real *offset, real *local) {
    ipa_layout l = ipa_layout_of(a);
    const real *t = (const real *)a->frames + FRAME * i + 4;
    int64_t at = 3 * (h * (a->n_qk + a->n_v) + a->n_qk + p);
    ipa_gather(s->weight + h * a->n, a->n, s->kv + at, 3 * l.n_kv_points, 3, offset);
    for (int axis = 0; axis < 3; axis++)
        offset[axis] -= t[axis];
    rotate_back(s->rotation + 9 * i, offset, local);
}

static real ipa_norm(const fm_ipa *a, const real *local) {
    return REAL_SQRT(local[0] * local[0] + local[1] * local[1] + local[2] * local[2] +
                     (real)a->eps);
}

static void ipa(fm_stream *stream, const fm_ipa *a, void *workspace) {
    (void)stream;
    ipa_layout l = ipa_layout_of(a);
    ipa_space s;
    ipa_space_of(a, false, workspace, &s);
    ipa_prepare(a, &s);
    for (int64_t i = 0; i < a->n; i++) {
        real *y = (real *)a->y + l.ld * i;
        ipa_logits(a, &s, i);
        ipa_softmax(a, &s, i, false);
        for (int64_t h = 0; h < a->n_head; h++) {
            const real *weight = s.weight + h * a->n;
            const real *v = (const real *)a->projections + (a->n_head + 2 * h + 1) * a->c;
            ipa_gather(weight, a->n, v, a->ld, a->c, y + h * a->c); /* A22:9 */
            ipa_gather(weight, a->n, (const real *)a->z + i * a->n * a->c_z, a->c_z, a->c_z,
                       y + l.o_pair + h * a->c_z); /* A22:8 */
            for (int64_t p = 0; p < a->n_v; p++) {
                real offset[3], local[3];
                int64_t at = h * a->n_v + p;
                ipa_point_output(a, &s, i, h, p, offset, local);
                for (int axis = 0; axis < 3; axis++)
                    y[l.o_points + axis * l.n_o_points + at] = local[axis];
                y[l.o_norms + at] = ipa_norm(a, local);
            }
        }
    }
}

/* -- backward */

/* Gradients of query i's frame and value points; adds <gradient, value> to dlogit for each key. */
static void ipa_points_backward(const fm_ipa *a, const ipa_space *s, const real *dy, int64_t i,
                                int64_t h) {
    ipa_layout l = ipa_layout_of(a);
    const real *weight = s->weight + h * a->n;
    for (int64_t p = 0; p < a->n_v; p++) {
        real offset[3], local[3], dlocal[3], doffset[3];
        int64_t at = h * a->n_v + p;
        ipa_point_output(a, s, i, h, p, offset, local);
        real factor = dy[l.o_norms + at] / ipa_norm(a, local);
        for (int axis = 0; axis < 3; axis++)
            dlocal[axis] = dy[l.o_points + axis * l.n_o_points + at] + factor * local[axis];
        add_outer(s->drotation + 9 * i, offset, dlocal);
        rotate(s->rotation + 9 * i, dlocal, doffset);
        int64_t point = 3 * (h * (a->n_qk + a->n_v) + a->n_qk + p);
        for (int axis = 0; axis < 3; axis++)
            s->dtranslation[3 * i + axis] -= doffset[axis];
        for (int64_t j = 0; j < a->n; j++) {
            const real *v = s->kv + 3 * l.n_kv_points * j + point;
            real *dv = s->dkv + 3 * l.n_kv_points * j + point;
            for (int axis = 0; axis < 3; axis++) {
                s->dlogit[j] += doffset[axis] * v[axis];
                dv[axis] += weight[j] * doffset[axis];
            }
        }
    }
}

/* Gradients of values and z; also adds <gradient, value> to dlogit. */
static void ipa_values_backward(const fm_ipa *a, const ipa_space *s, const fm_ipa_grad *grad,
                                int64_t i, int64_t h) {
    ipa_layout l = ipa_layout_of(a);
    const real *weight = s->weight + h * a->n, *dy = (const real *)grad->dy + l.ld * i;
    const real *dvalue = dy + h * a->c, *dpair = dy + l.o_pair + h * a->c_z;
    int64_t at = (a->n_head + 2 * h + 1) * a->c;
    for (int64_t j = 0; j < a->n; j++) {
        const real *z = (const real *)a->z + (i * a->n + j) * a->c_z;
        real *dv = (real *)grad->dprojections + a->ld * j + at;
        s->dlogit[j] +=
            (real)dot_product(dvalue, (const real *)a->projections + a->ld * j + at, a->c);
        s->dlogit[j] += (real)dot_product(dpair, z, a->c_z);
        for (int64_t c = 0; c < a->c; c++)
            dv[c] += weight[j] * dvalue[c];
        if (!grad->dz.data) continue;
        real *dz = (real *)grad->dz.data + (i * a->n + j) * a->c_z;
        for (int64_t c = 0; c < a->c_z; c++)
            put(&dz[c], h ? FM_ADD : grad->dz.beta, weight[j] * dpair[c]);
    }
}

/* Gradients of everything that the logits are made of, from the logits' gradients in dlogit.
 * Returns the gradient of the head's weight before its softplus. */
static double ipa_logits_backward(const fm_ipa *a, const ipa_space *s, const fm_ipa_grad *grad,
                                  int64_t i, int64_t h) {
    real scale = (real)sqrt(1.0 / (3.0 * (double)a->c)), third = (real)sqrt(1.0 / 3.0);
    real head = softplus(((const real *)a->head_weights)[h]), factor = ipa_point_factor(a);
    const real *q = (const real *)a->projections + a->ld * i + h * a->c;
    real *dq = (real *)grad->dprojections + a->ld * i + h * a->c;
    const real *points = s->q + 3 * (i * a->n_head + h) * a->n_qk;
    real *dpoints = s->dq + 3 * (i * a->n_head + h) * a->n_qk;
    double dhead = 0;
    for (int64_t j = 0; j < a->n; j++) {
        int64_t at = a->ld * j + (a->n_head + 2 * h) * a->c;
        int64_t key = 3 * (j * a->n_head + h) * (a->n_qk + a->n_v);
        const real *k = (const real *)a->projections + at;
        real *dk = (real *)grad->dprojections + at, d = s->dlogit[j];
        if (grad->dbias.data) {
            put((real *)grad->dbias.data + (i * a->n + j) * a->n_head + h, grad->dbias.beta,
                third * d);
        }
        for (int64_t c = 0; c < a->c; c++) {
            dq[c] += scale * d * k[c];
            dk[c] += scale * d * q[c];
        }
        dhead += (double)(d * factor * ipa_distance(a, s, i, j, h));
        for (int64_t x = 0; x < 3 * a->n_qk; x++) {
            real slope = 2 * d * factor * head * (points[x] - s->kv[key + x]);
            dpoints[x] += slope;
            s->dkv[key + x] -= slope;
        }
    }
    return dhead;
}

/* Gradients of global points back to the projections and the frame. */
static void ipa_points_grad(const real *row, int64_t n_point, const real *dpoints, const real *r,
                            real *drow, real *drotation, real *dtranslation) {
    for (int64_t p = 0; p < n_point; p++) {
        real local[3] = {row[p], row[n_point + p], row[2 * n_point + p]}, dlocal[3];
        rotate_back(r, dpoints + 3 * p, dlocal);
        add_outer(drotation, dpoints + 3 * p, local);
        for (int axis = 0; axis < 3; axis++) {
            drow[axis * n_point + p] = dlocal[axis];
            dtranslation[axis] += dpoints[3 * p + axis];
        }
    }
}

static void ipa_finish(const fm_ipa *a, const ipa_space *s, const fm_ipa_grad *grad) {
    ipa_layout l = ipa_layout_of(a);
    for (int64_t i = 0; i < a->n; i++) {
        const real *row = (const real *)a->projections + a->ld * i;
        real *drow = (real *)grad->dprojections + a->ld * i, dframe[FRAME];
        real *drotation = s->drotation + 9 * i, *dtranslation = s->dtranslation + 3 * i;
        ipa_points_grad(row + l.q_points, l.n_q_points, s->dq + 3 * l.n_q_points * i,
                        s->rotation + 9 * i, drow + l.q_points, drotation, dtranslation);
        ipa_points_grad(row + l.kv_points, l.n_kv_points, s->dkv + 3 * l.n_kv_points * i,
                        s->rotation + 9 * i, drow + l.kv_points, drotation, dtranslation);
        if (!grad->dframes.data) continue;
        quaternion_grad((const real *)a->frames + FRAME * i, drotation, dframe);
        for (int axis = 0; axis < 3; axis++)
            dframe[4 + axis] = dtranslation[axis];
        put_row((real *)grad->dframes.data + FRAME * i, grad->dframes.beta, dframe, FRAME);
    }
}

static void ipa_grad(fm_stream *stream, const fm_ipa *a, const fm_ipa_grad *grad, void *workspace) {
    (void)stream;
    ipa_layout l = ipa_layout_of(a);
    ipa_space s;
    ipa_space_of(a, true, workspace, &s);
    ipa_prepare(a, &s);
    fill(NULL, 3 * a->n * (l.n_q_points + l.n_kv_points) + 12 * a->n, 0, s.dq);
    fill(NULL, a->n * a->ld, 0, grad->dprojections);
    real *dhead = grad->dhead_weights.data;
    if (dhead && grad->dhead_weights.beta == FM_WRITE) fill(NULL, a->n_head, 0, dhead);
    for (int64_t i = 0; i < a->n; i++) {
        ipa_logits(a, &s, i);
        ipa_softmax(a, &s, i, true);
        for (int64_t h = 0; h < a->n_head; h++) {
            const real *weight = s.weight + h * a->n;
            fill(NULL, a->n, 0, s.dlogit);
            ipa_points_backward(a, &s, (const real *)grad->dy + l.ld * i, i, h);
            ipa_values_backward(a, &s, grad, i, h);
            real mean = (real)dot_product(weight, s.dlogit, a->n);
            for (int64_t j = 0; j < a->n; j++)
                s.dlogit[j] = weight[j] * (s.dlogit[j] - mean);
            double slope = ipa_logits_backward(a, &s, grad, i, h);
            real head = ((const real *)a->head_weights)[h];
            if (dhead) dhead[h] += (real)(slope * (double)sigmoid(head));
        }
    }
    ipa_finish(a, &s, grad);
}
