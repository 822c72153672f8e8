/* features_geometry.c: reference positions and frames; see features.h. */
#include "featurizer/complex/features_internal.h"

#include <math.h>
#include <string.h>

#define DEGREES (180.0 / 3.14159265358979323846)

/* -- reference positions */

/* The component's position of an atom of the crop: zeros if there is none. */
static bool find_position(const feature_crop *crop, uint32_t a, double ret_position[3]) {
    const fm_assembly_atom *atom = &crop->assembly->atoms[crop->atoms[a]];
    const fm_assembly_residue *residue = fm_feature_residue(crop, a);
    const float *position = NULL;
    if (residue->component && atom->in_component >= 0) {
        const fm_component_atom *known = &residue->component->atoms[atom->in_component];
        if (known->has_ideal) {
            position = known->ideal;
        } else if (crop->options->use_model_positions && known->has_model) {
            position = known->model;
        }
    }
    for (int axis = 0; axis < 3; axis++)
        ret_position[axis] = position ? (double)position[axis] : 0.0;
    return position != NULL;
}

/* Moves a position of a conformer that is about the origin. */
static void place(const fm_complex_placement *placement, int32_t uid, double position[3]) {
    if (!placement || uid < 0 || (uint32_t)uid >= placement->n) return;
    double moved[3];
    for (int axis = 0; axis < 3; axis++)
        moved[axis] = position[axis] + placement->translations[uid][axis];
    for (int axis = 0; axis < 3; axis++) {
        const double *row = placement->rotations[uid][axis];
        position[axis] = row[0] * moved[0] + row[1] * moved[1] + row[2] * moved[2];
    }
}

/* Centres the atoms first..end-1, which have one ref_space_uid, on their mean. Atoms without a
 * position count in the mean as zeros, as in the reference. */
static void centre_positions(const feature_crop *crop, uint32_t first, uint32_t end,
                             fm_complex_features *out) {
    double sum[3] = {0}, position[3];
    for (uint32_t a = first; a < end; a++) {
        out->ref_mask[a] = find_position(crop, a, position);
        for (int axis = 0; axis < 3; axis++)
            sum[axis] += position[axis];
    }
    for (uint32_t a = first; a < end; a++) {
        find_position(crop, a, position);
        for (int axis = 0; axis < 3; axis++)
            position[axis] -= sum[axis] / (double)(end - first);
        place(crop->options->placement, out->ref_space_uid[a], position);
        for (int axis = 0; axis < 3; axis++)
            out->ref_pos[a][axis] = (float)position[axis];
    }
}

/* Returns the end of the run of atoms with the ref_space_uid of atom `first`. */
static uint32_t end_of_space(const fm_complex_features *out, uint32_t first) {
    uint32_t end = first + 1;
    while (end < out->n_atom && out->ref_space_uid[end] == out->ref_space_uid[first])
        end++;
    return end;
}

fm_status fm_feature_positions(const feature_crop *crop, fm_complex_features *out) {
    for (uint32_t first = 0, end; first < crop->n_atom; first = end) {
        end = end_of_space(out, first);
        centre_positions(crop, first, end, out);
    }
    return FM_OK;
}

/* -- frames */

static int32_t find_name(const feature_crop *crop, uint32_t first, uint32_t end, const char *name) {
    for (uint32_t a = first; a < end; a++) {
        const fm_assembly_atom *atom = &crop->assembly->atoms[crop->atoms[a]];
        if (strncmp(atom->name, name, FM_COMPONENT_NAME) == 0) return (int32_t)a;
    }
    return -1;
}

/* The frame of a standard residue of several atoms. */
static void make_backbone_frame(const feature_crop *crop, uint32_t t, bool is_protein,
                                fm_complex_features *out) {
    static const char *const names[2][3] = {{"C1'", "C3'", "C4'"}, {"N", "CA", "C"}};
    int32_t *frame = out->frame_atom_index[t];
    bool is_whole = true;
    for (int k = 0; k < 3; k++) {
        frame[k] =
            find_name(crop, crop->first_atom[t], crop->first_atom[t + 1], names[is_protein][k]);
        is_whole = is_whole && frame[k] >= 0;
    }
    out->has_frame[t] = is_whole;
    if (!is_whole) frame[0] = frame[1] = frame[2] = -1;
}

static double distance(const float a[3], const float b[3]) {
    double x = (double)a[0] - b[0], y = (double)a[1] - b[1], z = (double)a[2] - b[2];
    return sqrt(x * x + y * y + z * z);
}

/* Finds the three atoms of first..end-1 that are nearest to atom `to`; ties go to the first. */
static void find_nearest(const fm_complex_features *out, uint32_t to, uint32_t first, uint32_t end,
                         uint32_t ret_nearest[3]) {
    double best[3] = {INFINITY, INFINITY, INFINITY};
    for (uint32_t a = first; a < end; a++) {
        double d = distance(out->ref_pos[to], out->ref_pos[a]);
        int place = 3;
        while (place > 0 && d < best[place - 1])
            place--;
        for (int k = 2; k > place; k--) {
            best[k] = best[k - 1];
            ret_nearest[k] = ret_nearest[k - 1];
        }
        if (place < 3) {
            best[place] = d;
            ret_nearest[place] = a;
        }
    }
}

/* Returns whether the angle a-b-c is neither nearly straight nor nearly closed. */
static bool spans_plane(const float a[3], const float b[3], const float c[3]) {
    double dot = 0, to_a = distance(a, b), to_c = distance(c, b);
    if (to_a < 1e-6 || to_c < 1e-6) return false;
    for (int axis = 0; axis < 3; axis++)
        dot += ((double)a[axis] - b[axis]) * ((double)c[axis] - b[axis]);
    double cosine = fmin(1.0, fmax(-1.0, dot / (to_a * to_c)));
    double angle = acos(cosine) * DEGREES;
    return angle > 25.0 && angle < 155.0;
}

/* The frame of atom b from its nearest neighbours in the same reference space. */
static void make_atom_frame(uint32_t t, uint32_t b, uint32_t first, uint32_t end,
                            fm_complex_features *out) {
    int32_t *frame = out->frame_atom_index[t];
    uint32_t nearest[3] = {b, b, b};
    frame[0] = frame[2] = -1;
    frame[1] = (int32_t)b;
    out->has_frame[t] = false;
    if (end - first < 3) return;
    find_nearest(out, b, first, end, nearest);
    uint32_t a = nearest[1], c = nearest[2];
    frame[0] = (int32_t)a;
    frame[2] = (int32_t)c;
    out->has_frame[t] = out->ref_mask[a] && out->ref_mask[b] && out->ref_mask[c] &&
                        spans_plane(out->ref_pos[a], out->ref_pos[b], out->ref_pos[c]);
}

fm_status fm_feature_frames(const feature_crop *crop, fm_complex_features *out) {
    uint32_t space_first = 0, space_end = 0;
    for (uint32_t t = 0; t < crop->n_token; t++) {
        uint32_t first = crop->first_atom[t];
        if (first >= space_end) {
            space_first = first;
            space_end = end_of_space(out, first);
        }
        const fm_assembly_residue *residue = fm_feature_residue(crop, first);
        if (residue->is_standard && crop->first_atom[t + 1] - first > 1) {
            make_backbone_frame(crop, t, residue->molecule == FM_MOLECULE_PROTEIN, out);
        } else {
            make_atom_frame(t, first, space_first, space_end, out);
        }
    }
    return FM_OK;
}
