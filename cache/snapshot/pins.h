/* pins.h: writes snapshots, and pins the generations that they need.
 *
 *     DIR/snapshots/<name>     a snapshot; never replaced by other bytes
 *     DIR/pins/<name>          "<n>\n": fm_gc_run keeps generation n, which holds the parts that
 *                              snapshot <name> names; the pin "all" keeps just the generation */
#ifndef FM_CACHE_PINS_H
#define FM_CACHE_PINS_H

#include "cache/snapshot/snapshot_text.h"
#include "cache/store/store.h"

/* Of the 255 bytes of a file's name, 15 are left for what is added while the file is written. */
enum { FM_SNAPSHOT_NEW_NAME_BYTES = 240 };

/* FM_ERR_USAGE for a name that no new snapshot can have. */
FM_MUST_USE fm_status fm_snapshot_check_new_name(const char *name, fm_error *reterr);

/* Writes snapshot `name` of an open store; *ret_hash = the snapshot's hash. FM_ERR_USAGE for a name
 * that no new snapshot can have; FM_ERR_EXISTS when it exists with other bytes. Writing the same
 * bytes again is fine. */
FM_MUST_USE fm_status fm_snapshot_write(const fm_store *store, const char *name,
                                        const fm_snapshot_text *text, fm_arena *arena,
                                        fm_sha256 *ret_hash, fm_error *reterr);

/* Says that this process serves snapshot `name`, until *ret_fd is closed or the process ends.
 * *ret_fd = -1 for "all", and where the file system has no locks. */
FM_MUST_USE fm_status fm_snapshot_hold(const fm_store *store, const char *name, int *ret_fd,
                                       fm_error *reterr);

/* Removes snapshot `name`; fm_gc_run then removes what nothing else names. FM_ERR_EXISTS while it
 * is pinned, or a process of this machine holds it; FM_ERR_USAGE for "all", which is part of the
 * generation; FM_ERR_NOT_FOUND, FM_ERR_IO. */
FM_MUST_USE fm_status fm_snapshot_delete(const fm_store *store, const char *name, fm_error *reterr);

/* The names of all snapshots of a cache, in the arena: "all" first, then the others, sorted. */
FM_MUST_USE fm_status fm_snapshot_names(const char *cache, fm_arena *arena, uint32_t *ret_n,
                                        const char *const **ret_names, fm_error *reterr);

/* Pins the open store's generation for a snapshot that can be opened in it. FM_ERR_EXISTS when it
 * is pinned to another one: unpin it first. */
FM_MUST_USE fm_status fm_pin_write(const fm_store *store, const char *name, fm_error *reterr);
/* Removes a pin. FM_ERR_NOT_FOUND when there is none. */
FM_MUST_USE fm_status fm_pin_remove(const fm_store *store, const char *name, fm_error *reterr);

/* The number of the generation from which snapshot `name` is served: the one to which it is pinned,
 * or the current one without a pin. Later builds therefore change neither the chains of a pinned
 * snapshot nor their bytes. FM_ERR_NOT_FOUND without a cache; FM_ERR_CORRUPT for a pin or CURRENT
 * that cannot be read. */
FM_MUST_USE fm_status fm_store_number_for(const char *cache, const char *name, uint64_t *ret_number,
                                          fm_error *reterr);

typedef struct fm_pin {
    const char *name;
    uint64_t generation;
} fm_pin;

/* Reads all pins of a cache, sorted by name. FM_ERR_CORRUPT for one that cannot be read. */
FM_MUST_USE fm_status fm_pins_read(const char *cache, fm_arena *arena, uint32_t *ret_n,
                                   const fm_pin **ret_pins, fm_error *reterr);

#endif
