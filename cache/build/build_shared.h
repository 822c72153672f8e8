/* build_shared.h: a build that many processes share: one job in a catalogue (catalogue.h), and each
 * worker writes its own shards.
 *
 *     catalogue <--claim, heartbeat, complete, fail-- the talking thread
 *                                                          | tasks       ^ what was sealed
 *                                                          v             |
 *                                     workers: read, parse, encode --> writer: shards
 *
 * An item is done once everything it names is in sealed shards that the catalogue knows, together
 * with a note of its results (item_note.h). A worker that dies loses its unsealed work; its leases
 * expire, and others claim its items. While the catalogue cannot be reached, work continues with
 * the items already claimed, and the thread tries to connect with growing pauses. Nothing is
 * published here: fm_merge_run (merge.h) makes the generation. */
#ifndef FM_CACHE_BUILD_SHARED_H
#define FM_CACHE_BUILD_SHARED_H

#include "cache/build/build.h"
#include "cache/catalogue/catalogue.h"

typedef struct fm_build_share {
    const char *where;              /* the catalogue, as for fm_catalogue_open */
    fm_catalogue_options catalogue; /* job, lease_ms, backoff_ms, max_failures; 0 = defaults */
    fm_catalogue_mode mode;
    uint32_t heartbeat_ms; /* 0 = a third of the lease */
    /* NULL: shards stay in the worker's cache; else a cache folder to which each shard is copied
     * when it is sealed, and which the merge reads. */
    const char *publish;
    /* Called when the catalogue cannot be reached at the start, before trying again for half a
     * minute. May be NULL. */
    void (*waiting)(const fm_error *error);
} fm_build_share;

typedef struct fm_build_share_report {
    char worker[256];
    fm_catalogue_counts job; /* at the end of this worker */
    uint32_t n_item;         /* items that this worker completed */
    uint32_t n_lost;         /* items that it had begun and lost to others */
    uint32_t n_reconnect;
} fm_build_share_report;

/* Works until no item of the job is left, neither its own nor others'. As fm_build_run, but the
 * report has no generation. FM_ERR_CANCELLED when stopped (unfinished items are returned);
 * FM_ERR_EXISTS when the job has another list. */
FM_MUST_USE fm_status fm_build_run_shared(const fm_source *source, const fm_build_options *options,
                                          const fm_build_share *share, fm_arena *arena,
                                          fm_build_report *ret_report,
                                          fm_build_share_report *ret_shared, fm_error *reterr);

#endif
