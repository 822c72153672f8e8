/* source.h: a source of samples: one snapshot of a cache, or a generator in tests.
 *
 * The loop's thread calls `open` and `close`. Between them, any number of worker threads call
 * `make` at the same time. */
#ifndef FM_SERVER_SOURCE_H
#define FM_SERVER_SOURCE_H

#include "proto/base/arena.h"
#include "proto/wire.h"

/* A plan after the changes of a client. */
typedef struct fm_source_facts {
    uint32_t global_batch, crop_size, max_msa_clusters, max_extra_msa, max_cycle, epoch_samples,
        max_template_date;
    size_t max_sample_bytes; /* no encoded sample of the plan is larger */
} fm_source_facts;

typedef struct fm_sample_source {
    void *context;
    char snapshot_name[FM_LIMIT_NAME_BYTES + 1]; /* as clients ask for it: "train", "pdb/train" */
    fm_sha256 snapshot;
    uint32_t n_chain;
    uint64_t generation; /* of the cache; 0 = it has none */
    /* Finds the plan that `params` names and applies its changes. *ret_plan belongs to the source;
     * `make` and `close` get it back. FM_ERR_NOT_FOUND for the plan, FM_ERR_USAGE for a change out
     * of bounds. It must be quick, since the loop waits for it. */
    fm_status (*open)(void *context, const fm_wire_open *params, void **ret_plan,
                      fm_source_facts *ret_facts, fm_error *reterr);
    /* Writes the encoded sample `index` to out[0..capacity-1], which is 64-byte aligned and has at
     * least max_sample_bytes. `scratch` is empty and belongs to the worker. A pure function: the
     * bytes are the same on any thread. */
    fm_status (*make)(const void *plan, uint64_t index, fm_arena *scratch, uint8_t *out,
                      size_t capacity, size_t *ret_bytes, fm_error *reterr);
    void (*close)(void *plan);
    /* The chain of sample `index`, for people; it lives as long as the source. NULL: the source has
     * no names. */
    const char *(*name)(const void *plan, uint64_t index);
    /* Used by the loop's thread (offer.h). */
    uint32_t n_user;           /* connections and streams that depend on it */
    uint64_t n_sample, n_byte; /* sent */
    uint64_t left_ms;          /* when an old one lost its last user */
    struct fm_sample_source *next;
} fm_sample_source;

#endif
