/* bins.h: the softmax of one pair's 64 classes, and means under it, for pairs.c. It is where the
 * time of scores goes, so there is a variant for 256-bit vectors with the same bits. */
#ifndef FM_COMPLEX_BINS_H
#define FM_COMPLEX_BINS_H

enum { FM_BINS = 64, FM_BINS_CONTACT = 19 };

typedef struct fm_bins_means {
    double centre;        /* the mean of bin + 1/2 */
    double near;          /* the share of the first FM_BINS_CONTACT classes */
    double first, second; /* the means of the weights; not set without weights */
} fm_bins_means;

/* Takes the means of logits [64]. The weights [64] are both NULL or none is. */
typedef void fm_bins_take(const float *logits, const double *first, const double *second,
                          fm_bins_means *ret_means);
extern fm_bins_take fm_bins_take_any, fm_bins_take_avx2;

/* The variant for this processor. */
fm_bins_take *fm_bins_choose(void);

#endif
