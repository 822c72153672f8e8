/* memory_budget.c: see memory_budget.h. */
#include "trainer/step/memory_budget.h"

static const int64_t RESERVE = (int64_t)2 << 30; /* of the step's graphs and of libraries */

/* Returns the budget where none is given: what the step has taken so far plus what the device has
 * left, less the reserve; of ranks the least. 0 when it is not known. Ranks that are threads have
 * none. */
static int64_t own_budget(const fm_memory_budget *b) {
    int64_t available = (int64_t)b->device->free_bytes() - RESERVE;
    if (b->groups && !b->groups->least) return 0;
    return fm_groups_least(b->groups, available <= 0 ? 0 : available + b->taken_bytes);
}

static bool fits(const fm_memory_budget *b) {
    return fm_groups_least(b->groups, *b->bytes == 0 || b->memory_bytes(b->context) <= *b->bytes);
}

static fm_status record_as(const fm_memory_budget *b, fm_recompute_policy policy, int32_t steps,
                           fm_error *reterr) {
    *b->policy = policy;
    *b->steps = steps;
    return b->record(b->context, reterr);
}

static fm_status choose(const fm_memory_budget *b, fm_error *reterr) {
    if (*b->bytes == 0) *b->bytes = own_budget(b);
    if (*b->bytes == 0) return record_as(b, FM_RECOMPUTE_BLOCK, 0, reterr);
    fm_status status = record_as(b, FM_RECOMPUTE_NONE, 0, reterr);
    if (status || fits(b)) return status;
    int32_t low = 1, high = b->most_steps, last = -1;
    while (!status && low < high) { /* `high` steps fit, or no number of steps does */
        last = low + (high - low) / 2;
        status = record_as(b, FM_RECOMPUTE_AUTO, last, reterr);
        if (fits(b)) {
            high = last;
        } else {
            low = last + 1;
        }
    }
    return status || last == high ? status : record_as(b, FM_RECOMPUTE_AUTO, high, reterr);
}

fm_status fm_memory_budget_record(const fm_memory_budget *b, fm_error *reterr) {
    const double gib = 1 << 30;
    fm_status status =
        *b->policy == FM_RECOMPUTE_AUTO ? choose(b, reterr) : b->record(b->context, reterr);
    if (status || fits(b)) return status;
    return fm_fail(reterr, FM_ERR_LIMIT,
                   "a step needs %.3f GiB, the memory budget is %.3f GiB; raise it, recompute "
                   "more, or take a smaller crop or fewer rows",
                   (double)b->memory_bytes(b->context) / gib, (double)*b->bytes / gib);
}
