/* template_pairs.c: see template_pairs.h. */
#include "proto/chem/template_pairs.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

static const float FIRST_EDGE = 3.25f, EDGE_STEP = 1.25f; /* Å; every edge is exact in float */
static const float NORM_FLOOR = 1e-6f;

enum { FRAME = 1 << FM_TEMPLATE_N | 1 << FM_TEMPLATE_CA | 1 << FM_TEMPLATE_C };

/* Axes of a token's frame, by rows. */
typedef struct frame {
    float axis[3][3];
} frame;

static const float *position_of(const fm_template_atoms *atoms, uint32_t token,
                                fm_template_atom atom) {
    return atoms->positions + ((uint64_t)token * FM_N_TEMPLATE_ATOM + atom) * 3;
}

/* A sum that begins with zero is never -0. */
static float dot(const float *a, const float *b) {
    return 0.0f + a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

static void subtract(const float *a, const float *b, float *ret) {
    for (int k = 0; k < 3; k++)
        ret[k] = a[k] - b[k];
}

static void normalize(float *v) {
    float length = sqrtf(dot(v, v)) + NORM_FLOOR;
    for (int k = 0; k < 3; k++)
        v[k] /= length;
}

/* The first axis is along C - CA, the second in the plane of N - CA. */
static frame frame_of(const fm_template_atoms *atoms, uint32_t token) {
    frame f;
    const float *ca = position_of(atoms, token, FM_TEMPLATE_CA);
    float *x = f.axis[0], *y = f.axis[1], *z = f.axis[2], to_n[3];
    subtract(position_of(atoms, token, FM_TEMPLATE_C), ca, x);
    normalize(x);
    subtract(position_of(atoms, token, FM_TEMPLATE_N), ca, to_n);
    float along = dot(x, to_n);
    for (int k = 0; k < 3; k++)
        y[k] = to_n[k] - x[k] * along;
    normalize(y);
    z[0] = x[1] * y[2] - x[2] * y[1];
    z[1] = x[2] * y[0] - x[0] * y[2];
    z[2] = x[0] * y[1] - x[1] * y[0];
    return f;
}

static float edge_of(int bin) {
    return FIRST_EDGE + EDGE_STEP * (float)bin;
}

/* Bin b holds distances above edge b and below the next one; the last is open. */
static uint8_t bin_of(const float *a, const float *b) {
    float d[3];
    subtract(a, b, d);
    float distance = sqrtf(dot(d, d));
    if (!(distance > FIRST_EDGE)) return FM_TEMPLATE_BIN_NONE;
    if (distance >= edge_of(FM_N_TEMPLATE_BIN)) return FM_N_TEMPLATE_BIN - 1;
    /* The quotient may be off by one beside an edge. */
    int bin = (int)((distance - FIRST_EDGE) / EDGE_STEP);
    if (distance < edge_of(bin)) bin--;
    if (distance >= edge_of(bin + 1)) bin++;
    if (distance == edge_of(bin)) return FM_TEMPLATE_BIN_NONE;
    return (uint8_t)(bin < FM_N_TEMPLATE_BIN ? bin : FM_N_TEMPLATE_BIN - 1);
}

void fm_template_pairs_row(const fm_template_atoms *atoms, uint32_t n, uint32_t i,
                           const fm_template_pairs *ret) {
    bool has_beta = atoms->mask[i] >> FM_TEMPLATE_BETA & 1;
    bool has_frame = (atoms->mask[i] & FRAME) == FRAME;
    frame f = frame_of(atoms, i);
    for (uint32_t j = 0; j < n; j++) {
        bool both_beta = has_beta && atoms->mask[j] >> FM_TEMPLATE_BETA & 1;
        bool both_frames = has_frame && (atoms->mask[j] & FRAME) == FRAME;
        if (ret->beta_mask) ret->beta_mask[j] = both_beta;
        if (ret->frame_mask) ret->frame_mask[j] = both_frames;
        if (ret->bin) {
            ret->bin[j] = both_beta ? bin_of(position_of(atoms, i, FM_TEMPLATE_BETA),
                                             position_of(atoms, j, FM_TEMPLATE_BETA))
                                    : FM_TEMPLATE_BIN_NONE;
        }
        if (!ret->unit_vector) continue;
        float *unit = ret->unit_vector + (uint64_t)j * 3, d[3];
        subtract(position_of(atoms, j, FM_TEMPLATE_CA), position_of(atoms, i, FM_TEMPLATE_CA), d);
        for (int k = 0; k < 3; k++)
            unit[k] = dot(f.axis[k], d);
        normalize(unit);
        /* As in the reference, the term that is multiplied by zero decides the sign of the zero. */
        for (int k = 0; k < 3; k++)
            unit[k] *= both_frames;
    }
}

void fm_template_pairs_list(const fm_template_atoms *atoms, uint32_t n_token,
                            const fm_template_pairs *ret_pairs) {
    const fm_template_pairs *all = ret_pairs;
    for (uint32_t i = 0; i < n_token; i++) {
        const uint64_t at = (uint64_t)i * n_token;
        const fm_template_pairs row = {.bin = all->bin ? all->bin + at : NULL,
                                       .beta_mask = all->beta_mask ? all->beta_mask + at : NULL,
                                       .frame_mask = all->frame_mask ? all->frame_mask + at : NULL,
                                       .unit_vector =
                                           all->unit_vector ? all->unit_vector + 3 * at : NULL};
        fm_template_pairs_row(atoms, n_token, i, &row);
    }
}
