/* batch_sums.c: see batch_sums.h. The text is a sequence of numbers, hexadecimal where they are
 * fractions, and the name of the chain behind them:
 *
 *     n_counted index n_cycle n_scored loss norm wait_s n_term TERM... n_score SCORE... NAME
 *
 * The parts follow the terms and count in n_term. */
#include "trainer/app/train/batch_sums.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
    char *out;
    size_t at;
} text;

FM_PRINTF(2, 3) static void put(text *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(t->out + t->at, FM_BATCH_SUMS_TEXT_BYTES - t->at, format, arguments);
    va_end(arguments);
    t->at += (size_t)n;
}

void fm_batch_sums_format(const fm_batch_sums *sums, char out[FM_BATCH_SUMS_TEXT_BYTES]) {
    text t = {.out = out};
    put(&t, "%" PRIu32 " %" PRIu64 " %" PRIu32 " %" PRIu32 " %a %a %a %d", sums->n_counted,
        sums->index, sums->n_cycle, sums->n_scored, sums->loss, sums->norm, sums->wait_s,
        2 * (int)FM_RESULT_TERMS);
    for (int i = 0; i < FM_RESULT_TERMS; i++)
        put(&t, " %a", sums->term[i]);
    for (int i = 0; i < FM_RESULT_TERMS; i++)
        put(&t, " %a", sums->part[i]);
    put(&t, " %d", (int)FM_METRICS_SCORES);
    for (int i = 0; i < FM_METRICS_SCORES; i++)
        put(&t, " %a", sums->score[i]);
    put(&t, " %s", sums->name);
}

/* A text that is read; `failed` stays set after the first mistake. */
typedef struct reading {
    const char *at;
    bool failed;
} reading;

static uint64_t take_whole(reading *r, uint64_t max) {
    char *end;
    errno = 0;
    uint64_t value = strtoull(r->at, &end, 10);
    r->failed |= errno || end == r->at || (*end != ' ' && *end) || value > max;
    r->at = end;
    return value;
}

static double take_fraction(reading *r) {
    char *end;
    double value = strtod(r->at, &end);
    r->failed |= end == r->at || *end != ' ';
    r->at = end;
    return value;
}

fm_status fm_batch_sums_parse(const char *source, fm_batch_sums *ret_sums, fm_error *reterr) {
    reading r = {.at = source};
    fm_batch_sums sums = {.n_counted = (uint32_t)take_whole(&r, UINT32_MAX)};
    sums.index = take_whole(&r, UINT64_MAX);
    sums.n_cycle = (uint32_t)take_whole(&r, UINT32_MAX);
    sums.n_scored = (uint32_t)take_whole(&r, UINT32_MAX);
    sums.loss = take_fraction(&r);
    sums.norm = take_fraction(&r);
    sums.wait_s = take_fraction(&r);
    uint64_t n_term = take_whole(&r, UINT32_MAX);
    r.failed |= n_term != FM_RESULT_TERMS && n_term != 2 * FM_RESULT_TERMS;
    for (int i = 0; i < FM_RESULT_TERMS; i++)
        sums.term[i] = take_fraction(&r);
    for (int i = 0; i < FM_RESULT_TERMS && n_term == 2 * FM_RESULT_TERMS; i++)
        sums.part[i] = take_fraction(&r);
    r.failed |= take_whole(&r, UINT32_MAX) != FM_METRICS_SCORES;
    for (int i = 0; i < FM_METRICS_SCORES; i++)
        sums.score[i] = take_fraction(&r);
    if (!r.failed) r.failed = *r.at++ != ' ' || strlen(r.at) >= sizeof sums.name;
    if (r.failed) {
        return fm_fail(reterr, FM_ERR_FORMAT,
                       "the results of the batch in hand are not those of this program");
    }
    snprintf(sums.name, sizeof sums.name, "%s", r.at);
    *ret_sums = sums;
    return FM_OK;
}
