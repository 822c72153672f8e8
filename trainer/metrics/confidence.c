/* confidence.c: see confidence.h. */
#include "trainer/metrics/confidence.h"

#include <assert.h>
#include <math.h>

enum { MOST_BINS = 256 };

/* The softmax of the logits. */
static void probabilities(const float *logits, int64_t n_bin, double *ret_p) {
    double most = logits[0], sum = 0;
    for (int64_t b = 1; b < n_bin; b++)
        most = logits[b] > most ? logits[b] : most;
    for (int64_t b = 0; b < n_bin; b++)
        sum += ret_p[b] = exp(logits[b] - most);
    for (int64_t b = 0; b < n_bin; b++)
        ret_p[b] /= sum;
}

double fm_confidence_plddt(const float *logits, int64_t n_bin) {
    double most = logits[0], sum = 0, mean = 0;
    for (int64_t b = 1; b < n_bin; b++)
        most = logits[b] > most ? logits[b] : most;
    for (int64_t b = 0; b < n_bin; b++) {
        double p = exp(logits[b] - most);
        sum += p;
        mean += p * ((double)b + 0.5) / (double)n_bin;
    }
    return 100 * mean / sum;
}

double fm_confidence_error_centre(int64_t bin, int64_t n_bin) {
    return FM_CONFIDENCE_LAST_ERROR / (double)(n_bin - 2) * ((double)bin + 0.5);
}

/* The distance at which a residue counts half in the TM-score of a chain. */
static double tm_distance(uint32_t n_res) {
    double n = n_res < 19 ? 19 : n_res;
    return 1.24 * cbrt(n - 15) - 1.8;
}

void fm_confidence_pae(const float *logits, uint32_t n_row, uint32_t n_res, int64_t n_bin,
                       float *ret_error, double *ret_tm) {
    double centre[MOST_BINS], tm[MOST_BINS], p[MOST_BINS], d0 = tm_distance(n_res);
    assert(n_bin > 2 && n_bin <= MOST_BINS);
    for (int64_t b = 0; b < n_bin; b++) {
        centre[b] = fm_confidence_error_centre(b, n_bin);
        tm[b] = 1 / (1 + centre[b] * centre[b] / (d0 * d0));
    }
    for (uint32_t i = 0; i < n_row; i++) {
        double row = 0;
        for (uint32_t j = 0; j < n_res; j++) {
            size_t pair = (size_t)i * n_res + j;
            double error = 0;
            probabilities(logits + pair * (size_t)n_bin, n_bin, p);
            for (int64_t b = 0; b < n_bin; b++) {
                error += p[b] * centre[b];
                row += p[b] * tm[b];
            }
            ret_error[pair] = (float)error;
        }
        ret_tm[i] = row / n_res;
    }
}
