/* directory.h: lists a directory, completely and sorted.
 *
 * An error is never mistaken for absence: a directory that cannot be read to its end gives no list.
 */
#ifndef FM_BASE_DIRECTORY_H
#define FM_BASE_DIRECTORY_H

#include "proto/base/arena.h"
#include "proto/base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Names in an arena; the array of pointers is on the heap: free(name). */
typedef struct fm_name_list {
    const char **name;
    size_t n, max;
} fm_name_list;

/* Lists the folders (`folders`) or the regular files in `path`, sorted by bytes. Symbolic links are
 * followed; names that begin with a dot are ignored. The caller frees list->name. FM_ERR_NOT_FOUND
 * when there is no such directory; FM_ERR_LIMIT for more than `max` names, or a full arena;
 * FM_ERR_IO. */
FM_MUST_USE fm_status fm_directory_list(const char *path, bool folders, size_t max, fm_arena *arena,
                                        fm_name_list *list, fm_error *reterr);

#endif
