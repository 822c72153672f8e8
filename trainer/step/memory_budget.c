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

/* Records with the least value of a setting, from 1 to `most`, that fits; if none fits, with
 * `most`. */
static fm_status record_least(const fm_memory_budget *b, int32_t *setting, int32_t most,
                              fm_error *reterr) {
    int32_t low = 1, high = most, last = -1;
    fm_status status = FM_OK;
    while (!status && low < high) { /* `high` fits, or no value does */
        *setting = last = low + (high - low) / 2;
        status = b->record(b->context, reterr);
        if (fits(b)) {
            high = last;
        } else {
            low = last + 1;
        }
    }
    if (status || last == high) return status;
    *setting = high;
    return b->record(b->context, reterr);
}

/* Records with as many blocks' normalised rows kept as fit. */
static fm_status choose_norms(const fm_memory_budget *b, fm_error *reterr) {
    fm_status status = b->record(b->context, reterr);
    if (status || fits(b) || !b->norm_blocks) return status;
    return record_least(b, b->norm_blocks, b->most_norm_blocks, reterr);
}

static fm_status choose(const fm_memory_budget *b, fm_error *reterr) {
    if (*b->bytes == 0) *b->bytes = own_budget(b);
    if (*b->bytes == 0) {
        *b->policy = FM_RECOMPUTE_BLOCK;
        return b->record(b->context, reterr);
    }
    *b->policy = FM_RECOMPUTE_NONE;
    fm_status status = choose_norms(b, reterr);
    if (status || fits(b)) return status;
    *b->policy = FM_RECOMPUTE_AUTO;
    if (b->norm_blocks) *b->norm_blocks = 0;
    return record_least(b, b->steps, b->most_steps, reterr);
}

/* Without a given budget, FM_RECOMPUTE_NONE drops rows until the step fits the device, but a step
 * that exceeds the device is not refused here. */
static fm_status recompute_none(const fm_memory_budget *b, fm_error *reterr) {
    const int64_t given = *b->bytes;
    if (given == 0) *b->bytes = own_budget(b);
    fm_status status = choose_norms(b, reterr);
    *b->bytes = given;
    return status;
}

static fm_status record(const fm_memory_budget *b, fm_error *reterr) {
    if (*b->policy == FM_RECOMPUTE_AUTO) return choose(b, reterr);
    if (*b->policy == FM_RECOMPUTE_NONE && b->norm_blocks) return recompute_none(b, reterr);
    return b->record(b->context, reterr);
}

fm_status fm_memory_budget_record(const fm_memory_budget *b, fm_error *reterr) {
    const double gib = 1 << 30;
    fm_status status = record(b, reterr);
    if (status || fits(b)) return status;
    return fm_fail(reterr, FM_ERR_LIMIT,
                   "a step needs %.3f GiB, the memory budget is %.3f GiB; raise it, recompute "
                   "more, or take a smaller crop or fewer rows",
                   (double)b->memory_bytes(b->context) / gib, (double)*b->bytes / gib);
}
