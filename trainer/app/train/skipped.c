/* skipped.c: see skipped.h. */
#include "trainer/app/train/skipped.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool fm_skipped_by_hand(const fm_skipped *skipped, uint64_t index) {
    for (uint32_t i = 0; i < skipped->n; i++) {
        if (skipped->sample[i].index == index) return skipped->sample[i].by_hand;
    }
    return false;
}

uint32_t fm_skipped_bad(const fm_skipped *skipped) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < skipped->n; i++)
        n += !skipped->sample[i].by_hand;
    return n;
}

fm_status fm_skipped_add(fm_skipped *skipped, uint64_t index, bool by_hand, fm_error *reterr) {
    for (uint32_t i = 0; i < skipped->n; i++) {
        if (skipped->sample[i].index == index) return FM_OK;
    }
    if (skipped->n == FM_SKIPPED_MAX) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the run has skipped %d samples, the most that it can",
                       FM_SKIPPED_MAX);
    }
    skipped->sample[skipped->n].index = index;
    skipped->sample[skipped->n++].by_hand = by_hand;
    return FM_OK;
}

void fm_skipped_format(const fm_skipped *skipped, char out[FM_SKIPPED_TEXT_BYTES]) {
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < skipped->n; i++) {
        at +=
            (size_t)snprintf(out + at, FM_SKIPPED_TEXT_BYTES - at, "%" PRIu64 " %s\n",
                             skipped->sample[i].index, skipped->sample[i].by_hand ? "hand" : "bad");
    }
}

fm_status fm_skipped_parse(const char *text, fm_skipped *ret_skipped, fm_error *reterr) {
    ret_skipped->n = 0;
    while (*text) {
        char *end;
        errno = 0;
        uint64_t index = strtoull(text, &end, 10);
        bool bad = strncmp(end, " bad\n", 5) == 0, hand = strncmp(end, " hand\n", 6) == 0;
        if (errno || end == text || (!bad && !hand)) {
            return fm_fail(reterr, FM_ERR_FORMAT, "the list of skipped samples is not one");
        }
        fm_status status = fm_skipped_add(ret_skipped, index, hand, reterr);
        if (status) return status;
        text = end + (bad ? 5 : 6);
    }
    return FM_OK;
}
