/* catalogue_rebuild.h: rebuilds a catalogue from the disk: from sealed shards with the notes of
 * their items (item_note.h), and from the refusals of generations. */
#ifndef FM_CACHE_CATALOGUE_REBUILD_H
#define FM_CACHE_CATALOGUE_REBUILD_H

#include "cache/catalogue/catalogue.h"
#include "proto/base/arena.h"

typedef struct fm_rebuild_report {
    uint32_t n_shard, n_damaged; /* read; ignored, because their hash is wrong */
    uint32_t n_done, n_refused;
    /* Items with a note, of which a part is in no shard; they will be built again. */
    uint32_t n_incomplete;
} fm_rebuild_report;

/* Reads the shards of the cache folders, each hashed first, and records their notes of the
 * catalogue's job: the newest attempt of each item. Chains that the current generations refused
 * become refused items. Existing items of the catalogue stay. FM_ERR_NOT_FOUND when no shard has an
 * item of the job. Let the job's workers end first. */
FM_MUST_USE fm_status fm_catalogue_rebuild(fm_catalogue *catalogue, const char *const *caches,
                                           uint32_t n_cache, fm_arena *arena,
                                           fm_rebuild_report *ret_report, fm_error *reterr);

#endif
