/* held_folder.h: a folder in which a process stays, whatever becomes of the folder's name.
 *
 * A command that works for long finds its folder by a descriptor, not by its name. If the folder is
 * renamed, and another takes its name, the command goes on in the folder where it began. It uses
 * the path /proc/self/fd/N, which calls of the system and libraries take as any other, LMDB
 * included. Where /proc is not mounted, the folder is found by its name. */
#ifndef FM_BASE_HELD_FOLDER_H
#define FM_BASE_HELD_FOLDER_H

#include "proto/base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* It must stay where it is between open and close. */
typedef struct fm_held_folder {
    const char *name;            /* borrowed: the path by which it was opened */
    int fd;                      /* -1: it is not held */
    char path[32];               /* "/proc/self/fd/N"; "" where the name has to do */
    struct fm_held_folder *next; /* all that this process holds */
} fm_held_folder;

/* Opens the folder. FM_ERR_NOT_FOUND, FM_ERR_IO; it is not held then. */
FM_MUST_USE fm_status fm_held_folder_open(const char *name, fm_held_folder *ret_folder,
                                          fm_error *reterr);
void fm_held_folder_close(fm_held_folder *folder);

/* The path below which its files are found; its name where it is not held. Valid until the close.
 */
const char *fm_held_folder_path(const fm_held_folder *folder);

/* False when the folder was removed. */
bool fm_held_folder_exists(const fm_held_folder *folder);

/* Copies a path for people to read, as far as out_bytes allow. One below a held folder begins with
 * the name by which the folder was opened, or with its present one where it was renamed. Every
 * other path is copied as it is. `out` is not the path itself. */
void fm_held_folder_show(const char *path, char *out, size_t out_bytes);

#endif
