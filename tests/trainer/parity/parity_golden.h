/* parity_golden.h: the reference's full-size run: its formula for parameters, and its golden
 * values. Golden values are samples of each array, at positions derived from the array's name. */
#ifndef FM_TESTS_TRAINER_PARITY_GOLDEN_H
#define FM_TESTS_TRAINER_PARITY_GOLDEN_H

#include "tests/trainer/common/name_draws.h"
#include "tests/trainer/parity/parity.h"

enum {
    N_ACT_SAMPLE = 4096,
    N_PARAM_SAMPLE = 64,
    N_REAL = 253, /* residues without padding */
    MASKED_TEMPLATE_ROW = 126,
};

/* -- parameters */

static inline bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* value = base + u * scale, u in [-1, 1), each operation rounded to f32. */
static inline void formula_of(const fm_param *row, float *ret_base, float *ret_scale) {
    const char *name = row->openfold;
    *ret_base = 0;
    *ret_scale = 0.1f;
    if (row->rank == 2) {
        *ret_scale = (float)(1.0 / sqrt((double)row->shape[1]));
        if (strstr(name, "bb_update")) *ret_scale = *ret_scale * 0.1f;
    } else if (strstr(name, "layer_norm") && ends_with(name, "weight")) {
        *ret_base = 1;
    } else if (strstr(name, "head_weights")) {
        *ret_base = 0.54f;
    } else if (strstr(name, "linear_g") && ends_with(name, "bias")) {
        *ret_base = 1;
    }
}

/* Computes all parameters into host memory of params->n_element. */
static inline void draw_parameters(const fm_params *params, float *master) {
    for (int32_t p = 0; p < params->n_param; p++) {
        const fm_param *row = &params->param[p];
        uint64_t hash = fnv1a(row->openfold);
        float base, scale;
        formula_of(row, &base, &scale);
        for (int64_t i = 0; i < fm_param_count(row); i++) {
            uint64_t h = splitmix(hash + (uint64_t)i);
            float u = (float)(h >> 40) * 0x1p-23f - 1.0f, part = u * scale;
            master[row->offset + i] = base + part;
        }
    }
}

/* -- golden values */

static inline const fm_npy *golden(const fm_npz *file, const char *name) {
    const fm_npy *array = fm_npz_find(file, name);
    if (!array) {
        fprintf(stderr, "model_parity_full: the file has no array %s\n", name);
        exit(1);
    }
    return array;
}

/* Line of `key` in an array of names; -1 if it is not there. */
static inline int64_t line_of(const fm_npy *names, const char *key) {
    const char *at = (const char *)names->data, *end = at + names->count;
    size_t n = strlen(key);
    for (int64_t line = 0; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        if ((size_t)(stop - at) == n && !memcmp(at, key, n)) return line;
        at = stop + 1;
    }
    return -1;
}

/* A flat index is real if its index on every residue axis is below N_REAL and it is not in the row
 * of the masked template. */
static inline bool is_real(const int32_t *shape, unsigned axes, uint64_t flat) {
    bool real = true;
    for (int d = 7; d >= 0; d--) {
        if (shape[d] == 0) continue;
        int64_t index = (int64_t)(flat % (uint64_t)shape[d]);
        flat /= (uint64_t)shape[d];
        real &= !(axes >> d & 1 && index >= N_REAL);
        real &= !(axes >> 7 & 1 && d == 1 && index == MASKED_TEMPLATE_ROW);
    }
    return real;
}

/* ||a - b|| / ||b|| over samples. */
typedef struct distance {
    double difference, norm;
} distance;

static inline void add_sample(distance *d, double got, double expected) {
    d->difference += (got - expected) * (got - expected);
    d->norm += expected * expected;
}

static inline double relative(const distance *d) {
    return sqrt(d->difference / d->norm);
}

#endif
