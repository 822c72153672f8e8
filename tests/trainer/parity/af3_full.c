/* af3_full.c: see af3_full.h. */
#include "tests/trainer/parity/af3_full.h"

#include "tests/trainer/parity/af3_formula.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 256 };

bool af3_full_is(const fm_npz *file) {
    return fm_npz_find(file, "act_names") != NULL;
}

static const fm_npy *need(const fm_npz *file, const char *name) {
    const fm_npy *array = fm_npz_find(file, name);
    if (!array) {
        fprintf(stderr, "af3_parity: the file has no array %s\n", name);
        exit(1);
    }
    return array;
}

/* The line of `key` in an array of names; -1 if it is not there. */
static int64_t line_of(const fm_npy *names, const char *key) {
    const char *at = names->data, *end = at + names->count;
    size_t n = strlen(key);
    for (int64_t line = 0; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        if ((size_t)(stop - at) == n && !memcmp(at, key, n)) return line;
        at = stop + 1;
    }
    return -1;
}

/* -- inputs */

/* Values are drawn into the device's buffer in pieces: the whole table would be large. */
static void draw_row(af3_bench *b, const fm_param *row, double *piece, int64_t most) {
    uint64_t hash = fnv1a(row->name);
    int64_t n = fm_param_count(row);
    for (int64_t first = 0; first < n; first += most) {
        int64_t count = n - first < most ? n - first : most;
        for (int64_t i = 0; i < count; i++)
            piece[i] = (double)af3_drawn_parameter(row, hash, first + i);
        bench_upload(b, fm_params_at(b->params, b->params->master, row->offset + first),
                     b->params->element, count, piece);
    }
}

void af3_full_load(af3_bench *b) {
    enum { PIECE = 1 << 16 };
    double *piece = malloc(PIECE * sizeof *piece);
    assert(piece);
    for (int32_t p = 0; p < b->params->n_param; p++)
        draw_row(b, &b->params->param[p], piece, PIECE);
    free(piece);
    fm_params_refresh_copy(b->params);
}

/* -- results */

/* The error of the samples in row `line` of an array [n, k], which are those of `key`. */
static double samples_error(const fm_npy *samples, int64_t line, const char *key,
                            const double *data, int64_t n) {
    uint64_t hash = fnv1a(key);
    int64_t k = (int64_t)samples->shape[1];
    double difference = 0, norm = 0;
    for (int64_t j = 0; j < k; j++) {
        double expected = case_value(samples, line * k + j);
        double e = data[splitmix(hash + (uint64_t)j) % (uint64_t)n] - expected;
        difference += e * e;
        norm += expected * expected;
    }
    return sqrt(difference) / fmax(sqrt(norm), 1e-30);
}

double af3_full_output_error(const fm_npz *file, const char *name, const double *data, int64_t n) {
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "out/%s", name);
    int64_t line = line_of(need(file, "act_names"), key);
    return line < 0 ? -1 : samples_error(need(file, "act_samples_f64"), line, key, data, n);
}

double af3_full_gradient_error(const fm_npz *file, const char *name, const double *data, int64_t n,
                               double *ret_norm) {
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "param/%s", name);
    int64_t line = line_of(need(file, "param_names"), name);
    if (line < 0) {
        fprintf(stderr, "af3_parity: the file has no gradient of %s\n", name);
        exit(1);
    }
    double norm = 0, expected = case_value(need(file, "grad_norm_f64"), line);
    for (int64_t i = 0; i < n; i++)
        norm += data[i] * data[i];
    *ret_norm = fabs(sqrt(norm) - expected) / fmax(expected, 1e-30);
    return samples_error(need(file, "grad_samples_f64"), line, key, data, n);
}

bool af3_full_gradient_is_zero(const fm_npz *file, const char *name) {
    return line_of(need(file, "grad_is_zero"), name) >= 0;
}

double af3_full_loss(const fm_npz *file, const char *name) {
    int64_t line = line_of(need(file, "loss_names"), name);
    assert(line >= 0);
    return case_value(need(file, "loss_f64"), line);
}
