/* batch_sums.h: the results of a batch's samples so far, summed, for the line of its step in the
 * metrics. A checkpoint inside a batch stores them. */
#ifndef FM_TRAINER_BATCH_SUMS_H
#define FM_TRAINER_BATCH_SUMS_H

#include "proto/limits.h"
#include "trainer/metrics/metrics.h"
#include "trainer/step/result.h"

enum { FM_BATCH_SUMS_TEXT_BYTES = 2048 };

typedef struct fm_batch_sums {
    uint32_t n_counted; /* samples in the sums; those that were skipped do not count */
    uint64_t index;     /* of the first of them */
    uint32_t n_cycle;
    char name[FM_LIMIT_NAME_BYTES + 1]; /* its chain */
    double loss, norm, wait_s;
    double term[FM_RESULT_TERMS]; /* unweighted */
    double part[FM_RESULT_TERMS]; /* what each adds to the loss */
    double score[FM_METRICS_SCORES];
    uint32_t n_scored; /* samples that have scores */
    uint64_t done_ns;  /* the device's clock after the last; not stored */
} fm_batch_sums;

/* Writes the sums as one line of text; numbers keep their bits. */
void fm_batch_sums_format(const fm_batch_sums *sums, char out[FM_BATCH_SUMS_TEXT_BYTES]);
/* Reads what fm_batch_sums_format writes, and what older programs did, which have no parts: they
 * are 0 then. FM_ERR_FORMAT for anything else, and for another number of loss terms or scores than
 * this program has. */
FM_MUST_USE fm_status fm_batch_sums_parse(const char *text, fm_batch_sums *ret_sums,
                                          fm_error *reterr);

#endif
