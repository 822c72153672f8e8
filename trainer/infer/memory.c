/* memory.c: see memory.h. */
#include "trainer/infer/memory.h"

static const int64_t RESERVE_BYTES = (int64_t)1 << 30; /* for the device's libraries and graphs */

int64_t fm_infer_budget(const fm_kernels *kernels, const fm_groups *groups, int64_t budget_bytes,
                        int64_t kept_bytes) {
    if (budget_bytes) return budget_bytes;
    int64_t available = (int64_t)kernels->device->free_bytes();
    if (available <= 0) return fm_groups_least(groups, 0);
    int64_t budget = available + kept_bytes - RESERVE_BYTES;
    return fm_groups_least(groups, budget > 0 ? budget : 1); /* a full device, not an unknown one */
}

/* The sizes of slabs that are tried, after whole arrays: from MOST_CHUNK down by halves. */
static const int64_t MOST_CHUNK = (int64_t)2 << 30, LEAST_CHUNK = (int64_t)32 << 20;

/* Whether a rank has parts of the pairs, whose triangle multiplications have no slabs. */
static bool is_split(const fm_groups *groups) {
    return fm_groups_part(groups).count > 1;
}

fm_slabs fm_slabs_least(const fm_groups *groups) {
    return (fm_slabs){LEAST_CHUNK, !is_split(groups)};
}

fm_status fm_slabs_choose(const fm_slab_search *search, fm_slabs *slabs, fm_error *reterr) {
    if (!search->is_forced && search->has_long_arrays) slabs->chunk_bytes = MOST_CHUNK;
    for (;;) {
        int64_t bytes = 0;
        fm_status status = search->plan(search->context, slabs, &bytes, reterr);
        if (status || search->available_bytes == 0 || bytes <= search->available_bytes) {
            return status;
        }
        if (search->is_forced) return FM_ERR_LIMIT;
        if (slabs->chunk_bytes == LEAST_CHUNK) {
            if (slabs->chunks_triangles || is_split(search->groups)) return FM_ERR_LIMIT;
            slabs->chunks_triangles = true;
            slabs->chunk_bytes = 2 * MOST_CHUNK; /* begins again */
        }
        slabs->chunk_bytes = slabs->chunk_bytes ? slabs->chunk_bytes / 2 : MOST_CHUNK;
    }
}
