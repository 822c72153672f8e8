/* folder.h: small files of a cache by name: snapshots, pins, selections. */
#ifndef FM_CACHE_FOLDER_H
#define FM_CACHE_FOLDER_H

#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <limits.h>

/* Writes CACHE/folder[/name] to `out`; name may be NULL. FM_ERR_LIMIT when it is too long. */
FM_MUST_USE fm_status fm_folder_path(const char *cache, const char *folder, const char *name,
                                     char out[PATH_MAX], fm_error *reterr);

/* Writes CACHE/folder/name in one step, synced; makes the folder when it is missing. */
FM_MUST_USE fm_status fm_folder_write(const char *cache, const char *folder, const char *name,
                                      fm_bytes bytes, fm_error *reterr);

#endif
