/* bins_body.h: the function of bins.h under the name FM_BINS_TAKE. Sums have eight parts whose
 * order is fixed, which a compiler can keep in vectors of any length. */
#include "trainer/backend/exp.h"
#include "trainer/predict/complex/bins.h"

#include <stddef.h>
#include <string.h>

enum { LANES = 8 };

static double add_lanes(const double lane[LANES]) {
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) +
           ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

static float find_largest(const float *logits) {
    float most[LANES];
    memcpy(most, logits, sizeof most);
    for (int b = LANES; b < FM_BINS; b += LANES) {
        for (int k = 0; k < LANES; k++)
            most[k] = logits[b + k] > most[k] ? logits[b + k] : most[k];
    }
    float largest = most[0];
    for (int k = 1; k < LANES; k++)
        largest = most[k] > largest ? most[k] : largest;
    return largest;
}

static double weigh(const double term[FM_BINS], const double *weight) {
    double lane[LANES] = {0};
    for (int b = 0; b < FM_BINS; b += LANES) {
        for (int k = 0; k < LANES; k++)
            lane[k] += term[b + k] * weight[b + k];
    }
    return add_lanes(lane);
}

void FM_BINS_TAKE(const float *logits, const double *first, const double *second,
                  fm_bins_means *ret_means) {
    double term[FM_BINS], all[LANES] = {0}, centre[LANES] = {0}, near = 0;
    const double largest = (double)find_largest(logits);
    for (int b = 0; b < FM_BINS; b++)
        term[b] = fm_exp_f64((double)logits[b] - largest);
    for (int b = 0; b < FM_BINS; b += LANES) {
        for (int k = 0; k < LANES; k++) {
            all[k] += term[b + k];
            centre[k] += term[b + k] * ((b + k) + 0.5);
        }
    }
    for (int b = 0; b < FM_BINS_CONTACT; b++)
        near += term[b];
    const double sum = add_lanes(all);
    ret_means->centre = add_lanes(centre) / sum;
    ret_means->near = near / sum;
    if (first) {
        ret_means->first = weigh(term, first) / sum;
        ret_means->second = weigh(term, second) / sum;
    }
}
