/* source.h: where a server's samples come from: the cache, or made-up ones in tests.
 *
 * `open` and `close` are called by the loop's thread, `make` by any number of worker threads at
 * once, between them. */
#ifndef FM_SERVER_SOURCE_H
#define FM_SERVER_SOURCE_H

#include "proto/base/arena.h"
#include "proto/wire.h"

/* What a plan says once a client's changes are in it. */
typedef struct fm_source_facts {
    uint32_t global_batch, crop_size, max_msa_clusters, max_extra_msa, max_cycle, epoch_samples,
        max_template_date;
    size_t max_sample_bytes; /* no encoded sample of the plan is larger */
} fm_source_facts;

typedef struct fm_sample_source {
    void *context;
    char snapshot_name[FM_LIMIT_NAME_BYTES + 1];
    fm_sha256 snapshot;
    uint32_t n_chain;
    /* Finds the plan that `params` names and changes it within bounds; *ret_plan is the source's
     * own, given back to `make` and `close`. FM_ERR_NOT_FOUND, FM_ERR_USAGE. Quick: the loop waits
     * for it. */
    fm_status (*open)(void *context, const fm_wire_open *params, void **ret_plan,
                      fm_source_facts *ret_facts, fm_error *reterr);
    /* Writes the encoded sample `index` to out[0..capacity-1] (64-byte aligned; at least
     * max_sample_bytes). `scratch` is the worker's and empty. Pure: same bytes on any thread. */
    fm_status (*make)(const void *plan, uint64_t index, fm_arena *scratch, uint8_t *out,
                      size_t capacity, size_t *ret_bytes, fm_error *reterr);
    void (*close)(void *plan);
} fm_sample_source;

#endif
