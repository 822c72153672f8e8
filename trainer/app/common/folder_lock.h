/* folder_lock.h: keeps a folder of results for one process, by a lock on the file `lock` in it. */
#ifndef FM_TRAINER_FOLDER_LOCK_H
#define FM_TRAINER_FOLDER_LOCK_H

#include "proto/base/held_folder.h"
#include "proto/base/status.h"

#include <stdbool.h>

typedef struct fm_folder_lock {
    int fd;                /* of the locked file; -1: nothing is locked */
    size_t existed;        /* bytes of the folder's path that existed before */
    fm_held_folder folder; /* everything that is done under the lock is done in it */
} fm_folder_lock;

/* Creates the folder and locks it for this process. FM_ERR_EXISTS if another process writes into
 * it. On a file system without locks, no other process is kept out. FM_ERR_IO. On failure no folder
 * is left that did not exist before. */
FM_MUST_USE fm_status fm_folder_lock_take(const char *folder, fm_folder_lock *ret_lock,
                                          fm_error *reterr);

/* The path of the locked folder, which stays right when the folder is renamed. Where nothing is
 * locked, it is `folder`, by which it is locked. Valid as long as the lock stays where it is. */
const char *fm_folder_lock_path(const char *folder, const fm_folder_lock *lock);

/* FM_ERR_IO when the locked folder was removed. FM_OK where nothing is locked. */
FM_MUST_USE fm_status fm_folder_lock_check(const char *folder, const fm_folder_lock *lock,
                                           fm_error *reterr);

/* Releases the lock, if there is one. If the folder has only the lock's file, removes the file, and
 * also the folders that fm_folder_lock_take made, so that a refused command leaves nothing. */
void fm_folder_lock_end(const char *folder, fm_folder_lock *lock);

#endif
