/* skipped.h: the samples that a run leaves out: named on the command line, or bad and skipped by
 * policy. Checkpoints store the list, so that a resumed run leaves out the same samples. */
#ifndef FM_TRAINER_SKIPPED_H
#define FM_TRAINER_SKIPPED_H

#include "proto/base/status.h"

#include <stdbool.h>

enum { FM_SKIPPED_MAX = 4096, FM_SKIPPED_TEXT_BYTES = FM_SKIPPED_MAX * 26 + 1 };

typedef struct fm_skipped {
    uint32_t n;
    struct {
        uint64_t index;
        bool by_hand; /* named on the command line; does not count against the budget */
    } sample[FM_SKIPPED_MAX];
} fm_skipped;

/* Whether the sample is in the list and was named on the command line. */
bool fm_skipped_by_hand(const fm_skipped *skipped, uint64_t index);

/* The number of samples that were bad. */
uint32_t fm_skipped_bad(const fm_skipped *skipped);

/* Adds a sample; one that is in the list already stays as it is. FM_ERR_LIMIT when it is full. */
FM_MUST_USE fm_status fm_skipped_add(fm_skipped *skipped, uint64_t index, bool by_hand,
                                     fm_error *reterr);

/* Writes "12 bad\n40 hand\n", in the order in which the samples were added; "" for none. */
void fm_skipped_format(const fm_skipped *skipped, char out[FM_SKIPPED_TEXT_BYTES]);
/* Reads what fm_skipped_format writes; FM_ERR_FORMAT for anything else. */
FM_MUST_USE fm_status fm_skipped_parse(const char *text, fm_skipped *ret_skipped, fm_error *reterr);

#endif
