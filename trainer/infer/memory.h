/* memory.h: how much device memory inference may take, and the largest slabs that fit into it. */
#ifndef FM_TRAINER_INFER_MEMORY_H
#define FM_TRAINER_INFER_MEMORY_H

#include "proto/base/status.h"
#include "trainer/backend/kernels.h"
#include "trainer/dist/groups.h"

/* Returns the bytes that inference may take on the fullest device of the ranks, kept_bytes, which
 * it has already, among them; 0 if that is not known. budget_bytes > 0: the caller's own bound. */
int64_t fm_infer_budget(const fm_kernels *kernels, const fm_groups *groups, int64_t budget_bytes,
                        int64_t kept_bytes);

/* How a recording works: as the fields of fm_tape. Zeros: on whole arrays. */
typedef struct fm_slabs {
    int64_t chunk_bytes;
    bool chunks_triangles;
} fm_slabs;

/* The smallest slabs that fm_slabs_choose takes. */
fm_slabs fm_slabs_least(const fm_groups *groups);

typedef struct fm_slab_search {
    /* Plans a recording with these slabs, and finds its device memory. */
    fm_status (*plan)(void *context, const fm_slabs *slabs, int64_t *ret_bytes, fm_error *reterr);
    void *context;
    const fm_groups *groups;
    int64_t available_bytes; /* 0: everything fits */
    bool has_long_arrays;    /* 32-bit indices do not reach all elements of whole arrays */
    bool is_forced;          /* only the given slabs are tried */
} fm_slab_search;

/* Chooses whole arrays if they are short and fit, else the largest slabs that fit; slabs of
 * triangle multiplications only if nothing else fits. *slabs has those to begin with. FM_ERR_LIMIT
 * without a message if nothing fits; *slabs and what was planned last are then the least. Also
 * errors of `plan`. */
FM_MUST_USE fm_status fm_slabs_choose(const fm_slab_search *search, fm_slabs *slabs,
                                      fm_error *reterr);

#endif
