/* plan.h: places buffers in an arena that grows from both ends.
 *
 *     0                                                             arena_bytes
 *     | STATE | SAVED -> low end grows up   ...   high end grows down <- TRANSIENT |
 *
 * A request states how many bytes it needs and during which steps of the schedule, [first, last].
 * Requests of one end are placed in the order of their first step. Each goes into the lowest gap,
 * counted from its end, that is free when the request begins to live. The size of the arena is the
 * largest sum of both ends over all steps, so the two ends touch only at their worst moment.
 *
 * Why two ends: saved tensors live long and are released in reverse order, like a stack, while
 * outputs and workspace live for a few steps. Kept apart, the short lives do not leave holes
 * between the long ones.
 *
 * The result depends on the requests only: the same schedule gives the same places. */
#ifndef FM_TRAINER_PLAN_H
#define FM_TRAINER_PLAN_H

#include "proto/base/arena.h"

#include <stdbool.h>

/* Every place starts at a multiple of this and is rounded up to one. It satisfies the vector loads
 * of all kernels and the alignment that GEMM libraries want. */
enum { FM_PLAN_ALIGN_BYTES = 256 };

typedef struct fm_plan_request {
    int64_t bytes;       /* > 0 */
    int32_t first, last; /* steps, inclusive, first <= last */
    bool high;           /* placed from the high end */
    /* out: counted from the start of the request's end of the arena; fm_plan_offset turns it into a
     * byte offset */
    int64_t offset_bytes;
} fm_plan_request;

typedef struct fm_plan_size {
    int64_t arena_bytes; /* size to allocate */
    int64_t low_bytes;   /* highest reach of the low end */
    int64_t high_bytes;  /* highest reach of the high end */
} fm_plan_size;

/* The bytes that a place takes. */
static inline int64_t fm_plan_round(int64_t bytes) {
    return (bytes + FM_PLAN_ALIGN_BYTES - 1) / FM_PLAN_ALIGN_BYTES * FM_PLAN_ALIGN_BYTES;
}

/* Places request[0..count-1]. `scratch` is used during the call and rewound. FM_ERR_NOMEM if it is
 * too small. */
FM_MUST_USE fm_status fm_plan_place(fm_plan_request *request, int32_t count, fm_arena *scratch,
                                    fm_plan_size *ret_size, fm_error *reterr);

/* Byte offset of a placed request in an arena of arena_bytes. */
static inline int64_t fm_plan_offset(const fm_plan_request *request, int64_t arena_bytes) {
    return request->high ? arena_bytes - request->offset_bytes - fm_plan_round(request->bytes)
                         : request->offset_bytes;
}

#endif
