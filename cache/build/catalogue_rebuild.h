/* catalogue_rebuild.h: a catalogue made anew from what is on disk: sealed shards with the notes of
 * their items (item_note.h), and the refusals of generations. */
#ifndef FM_CACHE_CATALOGUE_REBUILD_H
#define FM_CACHE_CATALOGUE_REBUILD_H

#include "cache/catalogue/catalogue.h"
#include "proto/base/arena.h"

typedef struct fm_rebuild_report {
    uint32_t n_shard, n_damaged; /* read; left aside since their hash is wrong */
    uint32_t n_done, n_refused;
    uint32_t
        n_incomplete; /* items with a note, a part of which lies in no shard: to be done again */
} fm_rebuild_report;

/* Reads the shards of the caches (folders), each hashed first, and puts down what they have of the
 * catalogue's job: the newest attempt of every item. What the current generations refused is put
 * into quarantine. What is in the catalogue already stays. FM_ERR_NOT_FOUND when no shard has an
 * item of the job. Give a build's workers time to end first. */
FM_MUST_USE fm_status fm_catalogue_rebuild(fm_catalogue *catalogue, const char *const *caches,
                                           uint32_t n_cache, fm_arena *arena,
                                           fm_rebuild_report *ret_report, fm_error *reterr);

#endif
