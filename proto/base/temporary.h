/* temporary.h: files and folders that exist while a process works with them.
 *
 * Each is locked (flock) as long as it is in use. A process that is killed leaves it behind without
 * the lock, so that the next one knows it for a leftover and removes it. Locks hold for processes
 * of several containers too, whose ids may be the same. */
#ifndef FM_BASE_TEMPORARY_H
#define FM_BASE_TEMPORARY_H

#include "proto/base/status.h"

#include <limits.h>
#include <stdbool.h>

/* What the name of a temporary file has behind that of its goal: ".tmp.012345". */
enum { FM_TEMPORARY_END_BYTES = 11 };

/* A file beside the one that it will replace. */
typedef struct fm_temporary_file {
    int fd;      /* to write to; whoever closes it sets -1 */
    int lock_fd; /* keeps the lock until the end */
    char path[PATH_MAX];
} fm_temporary_file;

/* Creates "<goal>.tmp.<digits>" with the first number that no other writer has, and removes
 * leftovers of the same goal. On a file system without locks a leftover must be a day old. False
 * with errno. */
bool fm_temporary_file_create(const char *goal, fm_temporary_file *ret_file);
/* Closes the descriptors. removes: removes the file first, while no other process may have its
 * name. */
void fm_temporary_file_end(fm_temporary_file *file, bool removes);

/* A folder for sockets or for another program's files. */
typedef struct fm_temporary_folder {
    int lock_fd;
    char path[PATH_MAX];
} fm_temporary_folder;

/* Makes $TMPDIR/foldmill_<letters> for this user. The first call of a process also removes such
 * folders without a process, if they have nothing but what programs put there (temporary.c lists
 * it). FM_ERR_USAGE when the path has more than most_bytes bytes, or a comma, which no socket's may
 * have; FM_ERR_IO. */
FM_MUST_USE fm_status fm_temporary_folder_make(size_t most_bytes, fm_temporary_folder *ret_folder,
                                               fm_error *reterr);
/* Removes the folder, which must be empty, and closes the descriptor. */
void fm_temporary_folder_end(fm_temporary_folder *folder);

#endif
