/* library.h: the caches of a server: opens the snapshots that it offers, and newer ones later.
 *
 *     cache "" (a plain DIR)    all, train               asked for as    all, train
 *     cache "pdb"               all                                      pdb/all
 *
 * A snapshot is opened from the generation that it is pinned to, else from the current one, and
 * snapshots of one generation share it. An update opens what has changed and lists the sources that
 * are offered from now on. Where something cannot be opened, the source before stays in the list.
 * Sources that are no longer in the list remain open until fm_library_let_go, because streams may
 * depend on them. Every generation that is open is held, so that `foldmill gc` keeps it.
 *
 * Calls may take seconds, since a large index is read and checked; takeover.h makes them on a
 * separate thread. Only one thread at a time may use a library. */
#ifndef FM_SERVER_LIBRARY_H
#define FM_SERVER_LIBRARY_H

#include "server/source.h"

#include <stdbool.h>

typedef struct fm_library fm_library;

enum {
    FM_LIBRARY_N_CACHE = 64,
    FM_LIBRARY_CACHE_BYTES = 32, /* a cache's name with its terminator */
};

/* "NAME=DIR" or "DIR"; the text of the path is borrowed. */
typedef struct fm_library_cache {
    char name[FM_LIBRARY_CACHE_BYTES]; /* "" = snapshots are asked for by their own names */
    const char *path;
} fm_library_cache;

/* Splits the value of an option. A name has letters, digits, '.', '_' and '-', and no dot in front;
 * a path with anything else before its first '=' is a plain DIR. */
fm_library_cache fm_library_cache_parse(const char *text);

typedef struct fm_library_options {
    const fm_library_cache *cache; /* [n_cache] their names differ */
    uint32_t n_cache;
    const char *const *snapshot; /* [n_snapshot] "[CACHE/]NAME"; a cache without one offers "all" */
    uint32_t n_snapshot;
    bool takes_all; /* caches that `snapshot` does not name offer all their snapshots */
} fm_library_options;

/* Opens everything that the options name. Their paths and snapshots must outlive the library.
 * Errors of fm_store_open and fm_snapshot_open; FM_ERR_USAGE for names that do not fit together. */
FM_MUST_USE fm_status fm_library_open(const fm_library_options *options, fm_library **ret_library,
                                      fm_error *reterr);
/* Closes every source, whose plans must be closed before. NULL is allowed. */
void fm_library_close(fm_library *library);

/* The sources that are offered, in the order of the options; valid until the next update. */
fm_sample_source *const *fm_library_get_list(const fm_library *library, size_t *ret_n);

typedef struct fm_library_change {
    uint32_t n_opened; /* snapshots that are newly offered, or from another generation */
    uint32_t n_failed; /* snapshots that failed to open: the one before is still offered */
} fm_library_change;

/* Opens the snapshots that are newer on disk, and logs each one that it opens or cannot open. */
fm_library_change fm_library_update(fm_library *library);
/* True when something has changed on disk since the last update began. It reads the times of three
 * entries of each cache. */
bool fm_library_looks_changed(const fm_library *library);

/* Finds the snapshot with this name ("" = any) and hash among those that are open, or the snapshot
 * "all" of an older generation on disk, for clients that resume. FM_ERR_NOT_FOUND; errors of
 * opening. */
FM_MUST_USE fm_status fm_library_find(fm_library *library, const char *name, const fm_sha256 *hash,
                                      fm_sample_source **ret_source, fm_error *reterr);

/* Closes a source that is not in the list, and whose plans are closed. */
void fm_library_let_go(fm_library *library, fm_sample_source *source);

#endif
