/* match.c: the scalar loops, and the choice of a kernel. See match.h. */
#include "featurizer/parse/match.h"

static void store(fm_match_row *row, uint8_t letter) {
    if (row->at < row->n_col) {
        row->letters[row->at] = letter;
        if (row->pending) row->deletion[row->at] = (uint16_t)row->pending;
    }
    if (row->pending > row->max_deletion) row->max_deletion = row->pending;
    row->pending = 0;
    row->at++;
}

static void scalar_a3m(fm_match_row *row, const uint8_t *text, size_t size, size_t readable,
                       uint8_t padding) {
    (void)readable;
    for (size_t i = 0; i < size; i++) {
        if (text[i] >= 'a' && text[i] <= 'z') {
            row->pending++;
        } else if (text[i] != padding || !padding) {
            store(row, text[i]);
        }
    }
}

static void scalar_stockholm(fm_match_row *row, const uint8_t *text, size_t size, size_t readable,
                             const fm_match_columns *columns, size_t column) {
    (void)readable;
    for (size_t i = 0; i < size; i++, column++) {
        uint8_t letter = text[i];
        if (columns->plain && letter == '.') letter = '-';
        if (columns->plain && letter >= 'a' && letter <= 'z') letter = (uint8_t)(letter - 32);
        if (columns->keep[column / 8] >> column % 8 & 1) {
            store(row, letter);
        } else if (letter != '-') {
            row->pending++;
        }
    }
}

const fm_match_kernel fm_match_scalar = {"scalar", scalar_a3m, scalar_stockholm};

const fm_match_kernel *const fm_match_kernels[] = {&fm_match_scalar, &fm_match_avx2,
                                                   &fm_match_avx512, NULL};

bool fm_match_runs(const fm_match_kernel *kernel) {
    if (kernel == &fm_match_avx512) {
        return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512vbmi2");
    }
    return kernel == &fm_match_scalar || __builtin_cpu_supports("avx2");
}

const fm_match_kernel *fm_match_best(void) {
    const fm_match_kernel *best = &fm_match_scalar;
    for (size_t i = 0; fm_match_kernels[i]; i++)
        if (fm_match_runs(fm_match_kernels[i])) best = fm_match_kernels[i];
    return best;
}
