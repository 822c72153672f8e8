/* batch_schedule.c: see batch_schedule.h. */
#include "trainer/app/train/batch_schedule.h"

#include "proto/limits.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fm_batch_schedule fm_batch_schedule_of(uint32_t batch) {
    return (fm_batch_schedule){.n = 1, .stage = {{.batch = batch}}};
}

/* -- reading */

typedef struct reading {
    const char *text, *at;
} reading;

static fm_status refuse(const reading *r, const char *at, const char *expected, fm_error *reterr) {
    fm_status status = fm_fail_in(reterr, FM_ERR_USAGE, "--batch-schedule",
                                  "found '%.24s', expected %s", at, expected);
    if (reterr) {
        reterr->line = 1;
        reterr->column = (uint32_t)(at - r->text) + 1;
    }
    return status;
}

/* A whole number in [least, most]. */
static fm_status read_whole(reading *r, uint64_t least, uint64_t most, const char *expected,
                            uint64_t *ret_value, fm_error *reterr) {
    char *end;
    if (!isdigit((unsigned char)*r->at)) return refuse(r, r->at, expected, reterr);
    errno = 0;
    *ret_value = strtoull(r->at, &end, 10);
    bool is_within = !errno && *ret_value >= least && *ret_value <= most;
    if (!is_within) return refuse(r, r->at, expected, reterr);
    r->at = end;
    return FM_OK;
}

/* The name of a score, ">=", and its least value. */
static fm_status read_gate(reading *r, fm_batch_schedule *s, fm_error *reterr) {
    size_t n = strspn(r->at, "abcdefghijklmnopqrstuvwxyz_0123456789");
    char *end;
    if (n == 0 || n >= sizeof s->score || strncmp(r->at + n, ">=", 2) != 0) {
        return refuse(r, r->at, "a step, or a score as lddt_ca>=0.8", reterr);
    }
    memcpy(s->score, r->at, n);
    s->score[n] = '\0';
    r->at += n + 2;
    s->least = strtod(r->at, &end);
    if (end == r->at || !isfinite(s->least)) return refuse(r, r->at, "a number", reterr);
    r->at = end;
    return FM_OK;
}

static fm_status read_stage(reading *r, fm_batch_schedule *s, fm_error *reterr) {
    const char *begin = r->at;
    uint64_t batch, step = UINT64_MAX;
    fm_status status =
        read_whole(r, 1, FM_LIMIT_GLOBAL_BATCH, "a number of samples", &batch, reterr);
    if (status) return status;
    if (s->n && batch % s->stage[0].batch != 0) {
        return refuse(r, begin, "a multiple of the first batch", reterr);
    }
    if (*r->at != '@') return refuse(r, r->at, "@ and a step", reterr);
    r->at++;
    const char *place = r->at;
    if (isdigit((unsigned char)*r->at)) {
        status = read_whole(r, 0, FM_LIMIT_STEP, "a step", &step, reterr);
    } else {
        status = read_gate(r, s, reterr);
    }
    if (status) return status;
    if (s->n == 0 && step != 0) return refuse(r, place, "step 0 for the first batch", reterr);
    if (s->n && step <= s->stage[s->n - 1].step) {
        return refuse(r, place, "a later step than the one before", reterr);
    }
    s->stage[s->n].batch = (uint32_t)batch;
    s->stage[s->n++].step = step;
    return FM_OK;
}

fm_status fm_batch_schedule_parse(const char *text, fm_batch_schedule *ret_schedule,
                                  fm_error *reterr) {
    reading r = {text, text};
    fm_batch_schedule s = {.n = 0};
    for (;;) {
        if (s.n == FM_BATCH_MOST_STAGES) return refuse(&r, r.at, "at most 16 batches", reterr);
        fm_status status = read_stage(&r, &s, reterr);
        if (status) return status;
        if (!*r.at) break;
        if (*r.at != ',') return refuse(&r, r.at, "a comma or the end", reterr);
        if (s.score[0]) return refuse(&r, r.at, "the end, as the score is the last", reterr);
        r.at++;
    }
    *ret_schedule = s;
    return FM_OK;
}

/* -- asking */

uint32_t fm_batch_at(const fm_batch_schedule *schedule, uint64_t step) {
    uint32_t batch = schedule->stage[0].batch;
    for (uint32_t i = 1; i < schedule->n && schedule->stage[i].step <= step; i++)
        batch = schedule->stage[i].batch;
    return batch;
}

uint64_t fm_batch_before(const fm_batch_schedule *schedule, uint64_t step) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < schedule->n && schedule->stage[i].step < step; i++) {
        uint64_t end = i + 1 < schedule->n ? schedule->stage[i + 1].step : UINT64_MAX;
        n += ((end < step ? end : step) - schedule->stage[i].step) * schedule->stage[i].batch;
    }
    return n;
}

bool fm_batch_is_waiting(const fm_batch_schedule *schedule) {
    return schedule->stage[schedule->n - 1].step == UINT64_MAX;
}

void fm_batch_begin_last(fm_batch_schedule *schedule, uint64_t step) {
    assert(fm_batch_is_waiting(schedule) && step > schedule->stage[schedule->n - 2].step);
    schedule->stage[schedule->n - 1].step = step;
}

fm_status fm_batch_find_last(fm_batch_schedule *schedule, uint64_t step, uint64_t n_used,
                             fm_error *reterr) {
    uint64_t n = fm_batch_before(schedule, step);
    if (n_used == n) return FM_OK;
    if (fm_batch_is_waiting(schedule)) {
        uint64_t before = schedule->stage[schedule->n - 2].batch;
        uint64_t more = schedule->stage[schedule->n - 1].batch - before;
        uint64_t n_grown = n_used > n && more ? (n_used - n) / more : 0;
        uint64_t begin = n_grown < step ? step - n_grown : 0;
        if (begin > schedule->stage[schedule->n - 2].step && n_grown * more == n_used - n) {
            fm_batch_begin_last(schedule, begin);
            return FM_OK;
        }
    }
    return fm_fail(reterr, FM_ERR_USAGE,
                   "--batch-schedule: the checkpoint has used %llu samples in %llu steps, and this "
                   "schedule has %llu",
                   (unsigned long long)n_used, (unsigned long long)step, (unsigned long long)n);
}
