/* pins.h: writing snapshots, and the generations that are kept for them.
 *
 *     DIR/snapshots/<name>     a snapshot; never written over with other bytes
 *     DIR/pins/<name>          "<n>\n": generation n, which holds the parts that snapshot <name>
 *                              names, is kept by fm_gc_run; "all" pins the generation alone */
#ifndef FM_CACHE_PINS_H
#define FM_CACHE_PINS_H

#include "cache/snapshot/snapshot_text.h"
#include "cache/store/store.h"

/* Writes snapshot `name` of an open store. FM_ERR_USAGE: not a name, or "all"; FM_ERR_EXISTS: it is
 * there with other bytes. The same bytes again are fine. Returns the snapshot's hash. */
FM_MUST_USE fm_status fm_snapshot_write(const fm_store *store, const char *name,
                                        const fm_snapshot_text *text, fm_arena *arena,
                                        fm_sha256 *ret_hash, fm_error *reterr);

/* Names of the snapshots there are, "all" first, then sorted; in the arena. */
FM_MUST_USE fm_status fm_snapshot_names(const fm_store *store, fm_arena *arena, uint32_t *ret_n,
                                        const char *const **ret_names, fm_error *reterr);

/* Pins the open store's generation for a snapshot that can be opened of it. FM_ERR_EXISTS when it
 * is pinned to another one: unpin it first. */
FM_MUST_USE fm_status fm_pin_write(const fm_store *store, const char *name, fm_error *reterr);
/* FM_ERR_NOT_FOUND when it is not pinned. */
FM_MUST_USE fm_status fm_pin_remove(const fm_store *store, const char *name, fm_error *reterr);

/* Opens the generation that snapshot `name` is pinned to, or the current one when it is not pinned:
 * a pinned snapshot means the same chains, in the same bytes, whatever was built since. The errors
 * of fm_store_open; FM_ERR_CORRUPT for a pin that cannot be read. */
FM_MUST_USE fm_status fm_store_open_for(const char *cache, const char *name, fm_store **ret_store,
                                        fm_error *reterr);

typedef struct fm_pin {
    const char *name;
    uint64_t generation;
} fm_pin;

/* All pins of a cache, sorted by name. FM_ERR_CORRUPT for one that cannot be read. */
FM_MUST_USE fm_status fm_pins_read(const char *cache, fm_arena *arena, uint32_t *ret_n,
                                   const fm_pin **ret_pins, fm_error *reterr);

#endif
