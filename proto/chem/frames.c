/* frames.c: see frames.h. */
#include "proto/chem/frames.h"

#include "proto/chem/torsions.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define FRAME_EPSILON 1e-8f

/* Sums start at zero, like the reference's, so a sum of negative zeros is a positive zero. */
static float dot(const float a[3], const float b[3]) {
    return 0.0f + a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

static void subtract(const float *a, const float *b, float out[3]) {
    for (int i = 0; i < 3; i++)
        out[i] = a[i] - b[i];
}

static void normalise(float v[3]) {
    float length = sqrtf(dot(v, v) + FRAME_EPSILON);
    for (int i = 0; i < 3; i++)
        v[i] /= length;
}

fm_rigid fm_rigid_from_points(const float *negative_x, const float *origin, const float *xy_plane) {
    float x[3], y[3];
    subtract(origin, negative_x, x); /* A21:1 */
    subtract(xy_plane, origin, y);   /* A21:2 */
    normalise(x);                    /* A21:3 */
    float along = dot(x, y);
    for (int i = 0; i < 3; i++)
        y[i] -= x[i] * along; /* A21:4 */
    normalise(y);             /* A21:5 */
    const float z[3] = {x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2],
                        x[0] * y[1] - x[1] * y[0]}; /* A21:6 */
    fm_rigid rigid;
    for (int i = 0; i < 3; i++) { /* A21:7-8 */
        rigid.rotation[i][0] = x[i];
        rigid.rotation[i][1] = y[i];
        rigid.rotation[i][2] = z[i];
        rigid.translation[i] = origin[i];
    }
    return rigid;
}

static void rotate_back(const fm_rigid *rigid, const float *v, float out[3]) {
    for (int i = 0; i < 3; i++) {
        out[i] = rigid->rotation[0][i] * v[0] + rigid->rotation[1][i] * v[1] +
                 rigid->rotation[2][i] * v[2];
    }
}

void fm_rigid_to_local(const fm_rigid *rigid, const float *point, float *ret_local) {
    float shift[3];
    rotate_back(rigid, rigid->translation, shift);
    rotate_back(rigid, point, ret_local);
    for (int i = 0; i < 3; i++)
        ret_local[i] += -1.0f * shift[i];
}

/* Returns the rigid composed with a turn by 180 degrees, the diagonal matrix of `signs`. The full
 * products are computed, because products with zero decide the signs of zeros. */
static fm_rigid turned(const fm_rigid *rigid, const float signs[3]) {
    fm_rigid out;
    for (int i = 0; i < 3; i++) {
        const float *row = rigid->rotation[i];
        for (int j = 0; j < 3; j++) {
            float column[3] = {0};
            column[j] = signs[j];
            out.rotation[i][j] = row[0] * column[0] + row[1] * column[1] + row[2] * column[2];
        }
        out.translation[i] =
            (row[0] * 0.0f + row[1] * 0.0f + row[2] * 0.0f) + rigid->translation[i];
    }
    return out;
}

static void to_matrix(const fm_rigid *rigid, float *out) {
    for (int i = 0; i < 3; i++) {
        memcpy(out + 4 * i, rigid->rotation[i], 3 * sizeof *out);
        out[4 * i + 3] = rigid->translation[i];
    }
    out[12] = out[13] = out[14] = 0.0f;
    out[15] = 1.0f;
}

/* Finds the three atoms of a group: on the negative x axis, at the origin, in the xy plane. A group
 * that the type lacks gets N three times. Returns whether the type has the group. */
static bool group_atoms(uint8_t restype, size_t group, uint8_t atoms[3]) {
    static const uint8_t backbone[3] = {FM_ATOM37_C, FM_ATOM37_CA, FM_ATOM37_N},
                         psi[3] = {FM_ATOM37_CA, FM_ATOM37_C, FM_ATOM37_O};
    const fm_chi_atoms *chi = &fm_residue_chi[restype];
    const uint8_t *from = NULL;
    if (group == FM_RIGID_BACKBONE) from = backbone;
    if (group == FM_RIGID_PSI) from = psi;
    if (group >= FM_RIGID_CHI1 && group - FM_RIGID_CHI1 < chi->n_chi) {
        from = chi->atom[group - FM_RIGID_CHI1] + 1;
    }
    for (int i = 0; i < 3; i++)
        atoms[i] = from ? from[i] : FM_ATOM37_N;
    return from != NULL;
}

/* Returns the frame of a group. *ret_exists is true when the type has the group and all three atoms
 * have coordinates. */
static fm_rigid group_frame(const fm_atom37 *chain, size_t i, size_t group, bool *ret_is_known,
                            bool *ret_exists) {
    static const float about_y[3] = {-1.0f, 1.0f, -1.0f}, none[3] = {1.0f, 1.0f, 1.0f};
    uint8_t atom[3];
    *ret_is_known = group_atoms(fm_atom37_restype(chain, i), group, atom);
    *ret_exists = *ret_is_known;
    for (int k = 0; k < 3; k++)
        *ret_exists &= fm_atom37_present(chain, i, atom[k]) != 0;
    fm_rigid rigid = fm_rigid_from_points(fm_atom37_position(chain, i, atom[0]),
                                          fm_atom37_position(chain, i, atom[1]),
                                          fm_atom37_position(chain, i, atom[2]));
    return turned(&rigid, group == FM_RIGID_BACKBONE ? about_y : none);
}

void fm_rigid_list_groups(const fm_atom37 *chain, const fm_rigid_groups *ret_groups) {
    static const float about_x[3] = {1.0f, -1.0f, -1.0f}, none[3] = {1.0f, 1.0f, 1.0f};
    for (size_t i = 0; i < chain->n_res; i++) {
        const fm_chi_atoms *chi = &fm_residue_chi[fm_atom37_restype(chain, i)];
        for (size_t group = 0; group < FM_N_RIGID_GROUP; group++) {
            bool is_known, exists;
            size_t at = i * FM_N_RIGID_GROUP + group;
            bool is_ambiguous =
                group >= FM_RIGID_CHI1 && (chi->pi_periodic >> (group - FM_RIGID_CHI1) & 1);
            fm_rigid rigid = group_frame(chain, i, group, &is_known, &exists);
            fm_rigid other = turned(&rigid, is_ambiguous ? about_x : none);
            to_matrix(&rigid, ret_groups->rigidgroups_gt_frames + at * 16);
            to_matrix(&other, ret_groups->rigidgroups_alt_gt_frames + at * 16);
            ret_groups->rigidgroups_gt_exists[at] = exists;
            ret_groups->rigidgroups_group_exists[at] = is_known;
            ret_groups->rigidgroups_group_is_ambiguous[at] = is_ambiguous;
        }
    }
}

void fm_rigid_list_backbone(const fm_atom37 *chain, float *ret_tensor, float *ret_mask) {
    for (size_t i = 0; i < chain->n_res; i++) {
        bool is_known, exists;
        fm_rigid rigid = group_frame(chain, i, FM_RIGID_BACKBONE, &is_known, &exists);
        to_matrix(&rigid, ret_tensor + i * 16);
        ret_mask[i] = exists;
    }
}
