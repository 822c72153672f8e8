/* build_shared.h: a build that many processes do together: one job in a catalogue (catalogue.h),
 * each worker with shards of its own.
 *
 *     catalogue <--claim, heartbeat, complete, fail-- one thread of its own
 *                                                         | tasks       ^ what was sealed
 *                                                         v             |
 *                                    workers: read, parse, encode --> writer: shards
 *
 * An item counts as done once everything it names lies in sealed shards that the catalogue knows,
 * with a note of what came of it (item_note.h). A worker that dies loses what it had not sealed;
 * its leases run out and others take its items. While the catalogue cannot be reached, work goes on
 * with what is claimed; the connection is tried again with growing pauses. Nothing is published
 * here: fm_merge_run (merge.h) makes the generation. */
#ifndef FM_CACHE_BUILD_SHARED_H
#define FM_CACHE_BUILD_SHARED_H

#include "cache/build/build.h"
#include "cache/catalogue/catalogue.h"

typedef struct fm_build_share {
    const char *where;              /* the catalogue: fm_catalogue_open */
    fm_catalogue_options catalogue; /* job, lease_ms, backoff_ms, max_failures; 0 = defaults */
    fm_catalogue_mode mode;
    uint32_t heartbeat_ms; /* 0 = a third of the lease */
    const char *publish;   /* NULL: shards stay where they are made; else a cache's folder that they
                              are copied to when they are sealed, which merge reads */
    /* The catalogue cannot be reached at the start: tried again for half a minute. May be NULL. */
    void (*waiting)(const fm_error *error);
} fm_build_share;

typedef struct fm_build_share_report {
    char worker[256];
    fm_catalogue_counts job; /* when this worker ended */
    uint32_t n_item;         /* that this worker did */
    uint32_t n_lost;         /* that it had begun and others were given */
    uint32_t n_reconnect;
} fm_build_share_report;

/* Works until nothing of the job is left, its own or others'. As fm_build_run, but that the report
 * has no generation: FM_ERR_CANCELLED when stopped (unfinished items are given back), FM_ERR_EXISTS
 * when the job has another list. */
FM_MUST_USE fm_status fm_build_run_shared(const fm_source *source, const fm_build_options *options,
                                          const fm_build_share *share, fm_arena *arena,
                                          fm_build_report *ret_report,
                                          fm_build_share_report *ret_shared, fm_error *reterr);

#endif
