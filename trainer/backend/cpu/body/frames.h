/* body/frames.h: backbone frames, torsion angles to frames and atoms (A23-A25). */
#include "trainer/backend/cpu/body/real.h"

/* quaternion + quaternion (0, v); its direction is the new rotation (A23:2-3). */
static void turn_quaternion(const real *q, const real *v, real *out) {
    out[0] = q[0] - q[1] * v[0] - q[2] * v[1] - q[3] * v[2];
    out[1] = q[1] + q[0] * v[0] + q[2] * v[2] - q[3] * v[1];
    out[2] = q[2] + q[0] * v[1] - q[1] * v[2] + q[3] * v[0];
    out[3] = q[3] + q[0] * v[2] + q[1] * v[1] - q[2] * v[0];
}

static real quaternion_length(const real *q) {
    return REAL_SQRT(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
}

static void frame_update(fm_stream *stream, int64_t n, const void *frames, const void *update,
                         void *y) {
    (void)stream;
    for (int64_t i = 0; i < n; i++) {
        const real *frame = (const real *)frames + FRAME * i, *u = (const real *)update + 6 * i;
        real *out = (real *)y + FRAME * i, rotation[9], shift[3];
        matrix_of_quaternion(frame, rotation);
        rotate(rotation, u + 3, shift);
        turn_quaternion(frame, u, out);
        real length = quaternion_length(out);
        for (int k = 0; k < 4; k++)
            out[k] /= length;
        for (int axis = 0; axis < 3; axis++)
            out[4 + axis] = frame[4 + axis] + shift[axis];
    }
}

/* The gradient of the sum before normalisation, from that of the new quaternion. */
static void direction_grad(const real *turned, const real *dy, real *d) {
    real length = quaternion_length(turned), along = 0;
    for (int k = 0; k < 4; k++)
        along += dy[k] * turned[k] / length;
    for (int k = 0; k < 4; k++)
        d[k] = (dy[k] - along * turned[k] / length) / length;
}

static void frame_update_grad(fm_stream *stream, int64_t n, const void *frames, const void *update,
                              const void *dy, fm_out dframes, fm_out dupdate) {
    (void)stream;
    for (int64_t i = 0; i < n; i++) {
        const real *q = (const real *)frames + FRAME * i, *v = (const real *)update + 6 * i;
        const real *dout = (const real *)dy + FRAME * i, *dshift = dout + 4;
        real rotation[9], turned[4], d[4], du[6], drotation[9] = {0}, dframe[FRAME];
        matrix_of_quaternion(q, rotation);
        turn_quaternion(q, v, turned);
        direction_grad(turned, dout, d);
        du[0] = -q[1] * d[0] + q[0] * d[1] + q[3] * d[2] - q[2] * d[3];
        du[1] = -q[2] * d[0] - q[3] * d[1] + q[0] * d[2] + q[1] * d[3];
        du[2] = -q[3] * d[0] + q[2] * d[1] - q[1] * d[2] + q[0] * d[3];
        rotate_back(rotation, dshift, du + 3);
        if (dupdate.data) put_row((real *)dupdate.data + 6 * i, dupdate.beta, du, 6);
        if (!dframes.data) continue;
        add_outer(drotation, dshift, v + 3);
        quaternion_grad(q, drotation, dframe);
        dframe[0] += d[0] + v[0] * d[1] + v[1] * d[2] + v[2] * d[3];
        dframe[1] += d[1] - v[0] * d[0] - v[2] * d[2] + v[1] * d[3];
        dframe[2] += d[2] - v[1] * d[0] + v[2] * d[1] - v[0] * d[3];
        dframe[3] += d[3] - v[2] * d[0] - v[1] * d[1] + v[0] * d[2];
        for (int axis = 0; axis < 3; axis++)
            dframe[4 + axis] = dshift[axis];
        put_row((real *)dframes.data + FRAME * i, dframes.beta, dframe, FRAME);
    }
}

static void matrix_frames(fm_stream *stream, int64_t n, double scale, const void *frames, void *y) {
    (void)stream;
    for (int64_t i = 0; i < n; i++) {
        const real *frame = (const real *)frames + FRAME * i;
        real *out = (real *)y + MATRIX * i;
        matrix_of_quaternion(frame, out);
        for (int axis = 0; axis < 3; axis++)
            out[9 + axis] = (real)scale * frame[4 + axis];
    }
}

static void matrix_frames_grad(fm_stream *stream, int64_t n, double scale, const void *frames,
                               const void *dy, fm_out dx) {
    (void)stream;
    for (int64_t i = 0; i < n; i++) {
        const real *d = (const real *)dy + MATRIX * i;
        real dframe[FRAME];
        quaternion_grad((const real *)frames + FRAME * i, d, dframe);
        for (int axis = 0; axis < 3; axis++)
            dframe[4 + axis] = (real)scale * d[9 + axis];
        put_row((real *)dx.data + FRAME * i, dx.beta, dframe, FRAME);
    }
}

static real pair_length(const real *x, double eps) {
    real square = x[0] * x[0] + x[1] * x[1];
    return REAL_SQRT(square < (real)eps ? (real)eps : square);
}

/* A24:1, A27:2 */
static void unit_pairs(fm_stream *stream, int64_t n, double eps, const void *x, void *y) {
    (void)stream;
    for (int64_t i = 0; i < n; i++) {
        const real *in = (const real *)x + 2 * i;
        real length = pair_length(in, eps);
        ((real *)y)[2 * i] = in[0] / length;
        ((real *)y)[2 * i + 1] = in[1] / length;
    }
}

static void unit_pairs_grad(fm_stream *stream, int64_t n, double eps, const void *x, const void *dy,
                            fm_out dx) {
    (void)stream;
    for (int64_t i = 0; i < n; i++) {
        const real *in = (const real *)x + 2 * i, *d = (const real *)dy + 2 * i;
        real *out = (real *)dx.data + 2 * i, length = pair_length(in, eps);
        bool bounded = in[0] * in[0] + in[1] * in[1] < (real)eps;
        real along = bounded ? 0 : (d[0] * in[0] + d[1] * in[1]) / (length * length);
        for (int k = 0; k < 2; k++)
            put(&out[k], dx.beta, (d[k] - along * in[k]) / length);
    }
}

/* -- atoms */

enum { GROUPS = 8, ATOMS = 14, FIRST_CHAINED = 5 };

static int parent_of(int group) {
    return group < FIRST_CHAINED ? 0 : group - 1;
}

/* A24:3-10: the frame of a group in its parent's frame: the ideal frame, turned about x (A25:1-3).
 */
static void local_frame(const fm_residue_atoms *a, int64_t i, int group, real *rotation,
                        real *shift) {
    const float *ideal = a->group_frames + (a->aatype[i] * GROUPS + group) * MATRIX;
    static const real none[2] = {0, 1};
    const real *angle = a->angles ? (const real *)a->angles + (i * 7 + group - 1) * 2 : none;
    real frame[9], turn[9] = {1, 0, 0, 0, angle[1], -angle[0], 0, angle[0], angle[1]};
    for (int k = 0; k < 9; k++)
        frame[k] = (real)ideal[k];
    for (int axis = 0; axis < 3; axis++)
        shift[axis] = (real)ideal[9 + axis];
    multiply(frame, turn, rotation);
}

/* All groups of residue i, [8, 12]. */
static void residue_frames(const fm_residue_atoms *a, int64_t i, real *out) {
    matrix_frames(NULL, 1, a->position_scale, (const real *)a->frames + FRAME * i, out);
    for (int group = 1; group < GROUPS; group++) {
        const real *parent = out + parent_of(group) * MATRIX;
        real *frame = out + group * MATRIX, rotation[9], shift[3];
        local_frame(a, i, group, rotation, shift);
        multiply(parent, rotation, frame);
        rotate(parent, shift, frame + 9);
        for (int axis = 0; axis < 3; axis++)
            frame[9 + axis] += parent[9 + axis];
    }
}

static void residue_atoms(fm_stream *stream, const fm_residue_atoms *a) {
    (void)stream;
    for (int64_t i = 0; i < a->n; i++) {
        real *groups = (real *)a->groups + i * GROUPS * MATRIX;
        residue_frames(a, i, groups);
        for (int atom = 0; atom < ATOMS; atom++) { /* A24:11 */
            real *out = (real *)a->atoms + (i * ATOMS + atom) * 3, ideal[3];
            int at = a->aatype[i] * ATOMS + atom, group = a->atom_group[at];
            out[0] = out[1] = out[2] = 0;
            if (group >= GROUPS) continue;
            for (int axis = 0; axis < 3; axis++)
                ideal[axis] = (real)a->atom_positions[3 * at + axis];
            rotate(groups + group * MATRIX, ideal, out);
            for (int axis = 0; axis < 3; axis++)
                out[axis] += groups[group * MATRIX + 9 + axis];
        }
    }
}

/* d [8, 12] = the gradients of the groups' frames: those given, and those of their atoms. */
static void gather_group_grads(const fm_residue_atoms *a, const void *dgroups, const void *datoms,
                               int64_t i, real *d) {
    for (int k = 0; k < GROUPS * MATRIX; k++)
        d[k] = dgroups ? ((const real *)dgroups)[i * GROUPS * MATRIX + k] : 0;
    for (int atom = 0; atom < ATOMS && datoms; atom++) {
        const real *dx = (const real *)datoms + (i * ATOMS + atom) * 3;
        int at = a->aatype[i] * ATOMS + atom, group = a->atom_group[at];
        if (group >= GROUPS) continue;
        real ideal[3];
        for (int axis = 0; axis < 3; axis++) {
            ideal[axis] = (real)a->atom_positions[3 * at + axis];
            d[group * MATRIX + 9 + axis] += dx[axis];
        }
        add_outer(d + group * MATRIX, dx, ideal);
    }
}

/* Adds a group's gradient to that of its parent, and returns that of sine and cosine. */
static void group_grad(const fm_residue_atoms *a, int64_t i, int group, const real *parent,
                       const real *d, real *dparent, real *dangle) {
    const float *ideal = a->group_frames + (a->aatype[i] * GROUPS + group) * MATRIX;
    real rotation[9], shift[3], dlocal[9], dturn[9];
    local_frame(a, i, group, rotation, shift);
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 3; c++) {
            dlocal[3 * r + c] =
                parent[r] * d[c] + parent[3 + r] * d[3 + c] + parent[6 + r] * d[6 + c];
            for (int k = 0; k < 3; k++)
                dparent[3 * r + c] += d[3 * r + k] * rotation[3 * c + k];
        }
    add_outer(dparent, d + 9, shift);
    for (int axis = 0; axis < 3; axis++)
        dparent[9 + axis] += d[9 + axis];
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 3; c++)
            dturn[3 * r + c] = (real)ideal[r] * dlocal[c] + (real)ideal[3 + r] * dlocal[3 + c] +
                               (real)ideal[6 + r] * dlocal[6 + c];
    dangle[0] = dturn[7] - dturn[5];
    dangle[1] = dturn[4] + dturn[8];
}

static void residue_atoms_grad(fm_stream *stream, const fm_residue_atoms *a, const void *dgroups,
                               const void *datoms, fm_out dframes, fm_out dangles) {
    (void)stream;
    for (int64_t i = 0; i < a->n; i++) {
        real groups[GROUPS * MATRIX], d[GROUPS * MATRIX], dangle[7][2];
        residue_frames(a, i, groups);
        gather_group_grads(a, dgroups, datoms, i, d);
        for (int group = GROUPS - 1; group >= 1; group--) {
            int parent = parent_of(group);
            group_grad(a, i, group, groups + parent * MATRIX, d + group * MATRIX,
                       d + parent * MATRIX, dangle[group - 1]);
        }
        if (dangles.data) put_row((real *)dangles.data + 14 * i, dangles.beta, dangle[0], 14);
        fm_out dframe = {(real *)dframes.data + FRAME * i, dframes.beta};
        if (dframes.data) {
            matrix_frames_grad(NULL, 1, a->position_scale, (const real *)a->frames + FRAME * i, d,
                               dframe);
        }
    }
}

static void pseudo_beta(fm_stream *stream, int64_t n, const void *atoms, const uint8_t *aatype,
                        float *y) {
    enum { CA = 1, CB = 4, GLYCINE = 7 };
    (void)stream;
    for (int64_t i = 0; i < n; i++)
        for (int axis = 0; axis < 3; axis++) {
            int atom = aatype[i] == GLYCINE ? CA : CB;
            y[3 * i + axis] = (float)((const real *)atoms)[(i * ATOMS + atom) * 3 + axis];
        }
}
