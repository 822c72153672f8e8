/* plan.h: places for buffers in an arena with two ends.
 *
 *     0                                                             arena_bytes
 *     | STATE | SAVED -> low end grows up   ...   high end grows down <- TRANSIENT |
 *
 * A request says how many bytes it needs and during which steps of the schedule [first, last].
 * Requests of one end are placed in the order of their first step, each in the lowest gap (counted
 * from its end) that is free for its whole life. The arena's size is the largest sum of both ends
 * at any step, so the two ends meet exactly once at their worst moment.
 *
 * Pure function of the requests: the same schedule gives the same places. */
#ifndef FM_TRAINER_PLAN_H
#define FM_TRAINER_PLAN_H

#include "proto/base/arena.h"

#include <stdbool.h>

/* Every place starts at and is rounded up to a multiple of this: a vector load of any kernel, and
 * the alignment that GEMM libraries want. */
enum { FM_PLAN_ALIGN_BYTES = 256 };

typedef struct fm_plan_request {
    int64_t bytes;        /* > 0 */
    int32_t first, last;  /* steps, inclusive, first <= last */
    bool high;            /* from the high end */
    int64_t offset_bytes; /* out: from the low end's start, or from the high end's end downwards to
                             the END of the place (see fm_plan_offset) */
} fm_plan_request;

typedef struct fm_plan_size {
    int64_t arena_bytes; /* what must be allocated */
    int64_t low_bytes;   /* highest reach of the low end */
    int64_t high_bytes;  /* highest reach of the high end */
} fm_plan_size;

/* Bytes as they are placed. */
static inline int64_t fm_plan_round(int64_t bytes) {
    return (bytes + FM_PLAN_ALIGN_BYTES - 1) / FM_PLAN_ALIGN_BYTES * FM_PLAN_ALIGN_BYTES;
}

/* Places request[0..count-1]. `scratch` is used and given back. FM_ERR_NOMEM when scratch is full.
 */
FM_MUST_USE fm_status fm_plan_place(fm_plan_request *request, int32_t count, fm_arena *scratch,
                                    fm_plan_size *ret_size, fm_error *reterr);

/* Byte offset of a placed request in an arena of arena_bytes. */
static inline int64_t fm_plan_offset(const fm_plan_request *request, int64_t arena_bytes) {
    return request->high ? arena_bytes - request->offset_bytes - fm_plan_round(request->bytes)
                         : request->offset_bytes;
}

#endif
