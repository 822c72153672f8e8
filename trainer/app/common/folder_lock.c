/* folder_lock.c: see folder_lock.h. */
#include "trainer/app/common/folder_lock.h"

#include "proto/base/directory.h"
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char leaf[] = "lock";

/* Locks the file at the path. *ret_fd is -1 when another process holds the lock, or has removed the
 * file since it was opened here. */
static fm_status try_lock(const char *path, int *ret_fd, fm_error *reterr) {
    struct stat ours;
    fm_path_mark there;
    *ret_fd = -1;
    /* O_NOFOLLOW: a link could make a file anywhere. */
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0 && errno == ELOOP) {
        return fm_fail_in(reterr, FM_ERR_IO, path, "is a symbolic link, expected a file or none");
    }
    if (fd < 0) return fm_fail_in(reterr, FM_ERR_IO, path, "cannot open: %s", strerror(errno));
    fm_status status = FM_OK;
    bool is_held = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!is_held) status = fm_path_mark_read(path, &there, reterr);
    bool is_ours = !is_held && !status && fstat(fd, &ours) == 0 && ours.st_dev == there.device &&
                   ours.st_ino == there.inode;
    if (is_ours) {
        *ret_fd = fd;
    } else {
        close(fd);
    }
    return status;
}

/* The path of the lock's file below the folder's. */
static fm_status name_lock(const char *folder, char path[PATH_MAX], fm_error *reterr) {
    int n = snprintf(path, PATH_MAX, "%s/%s", folder, leaf);
    if (n > 0 && n < PATH_MAX) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_LIMIT, folder, "the path is too long");
}

/* Makes the folder, holds it and tries once. *ret_lock keeps what existed before the first try. */
static fm_status try_folder(const char *folder, fm_folder_lock *ret_lock, fm_error *reterr) {
    size_t existed;
    char path[PATH_MAX];
    fm_status status = fm_dir_make_noting(folder, &existed, reterr);
    if (existed < ret_lock->existed) ret_lock->existed = existed;
    if (!status && fm_held_folder_open(folder, &ret_lock->folder, reterr)) status = FM_ERR_IO;
    if (!status) status = name_lock(fm_held_folder_path(&ret_lock->folder), path, reterr);
    if (!status) status = try_lock(path, &ret_lock->fd, reterr);
    if (ret_lock->fd < 0) fm_held_folder_close(&ret_lock->folder);
    return status;
}

fm_status fm_folder_lock_take(const char *folder, fm_folder_lock *ret_lock, fm_error *reterr) {
    /* `foldmill top` holds the lock for an instant, to see whether it is free. A process that ends
     * may remove the folder between two calls here, which then fail. */
    enum { N_TRY = 11 };
    const struct timespec pause = {.tv_nsec = 10000000};
    char path[PATH_MAX];
    *ret_lock = (fm_folder_lock){.fd = -1, .existed = SIZE_MAX, .folder = {.fd = -1}};
    fm_status status = name_lock(folder, path, reterr);
    if (status) return status;
    for (int i = 0; i < N_TRY; i++) {
        status = try_folder(folder, ret_lock, reterr);
        if (ret_lock->fd >= 0) return FM_OK;
        if (status && status != FM_ERR_IO && status != FM_ERR_NOT_FOUND) break;
        nanosleep(&pause, NULL);
    }
    if (status) {
        fm_dir_unmake(folder, ret_lock->existed);
        return status;
    }
    return fm_fail_in(
        reterr, FM_ERR_EXISTS, folder,
        "another process is writing into this folder; wait for it or choose another --out");
}

const char *fm_folder_lock_path(const char *folder, const fm_folder_lock *lock) {
    return lock->fd >= 0 ? fm_held_folder_path(&lock->folder) : folder;
}

fm_status fm_folder_lock_check(const char *folder, const fm_folder_lock *lock, fm_error *reterr) {
    if (lock->fd < 0 || fm_held_folder_exists(&lock->folder)) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_IO, folder, "another process has removed the folder");
}

void fm_folder_lock_end(const char *folder, fm_folder_lock *lock) {
    char path[PATH_MAX];
    bool is_empty;
    if (lock->fd < 0) return;
    const char *held = fm_held_folder_path(&lock->folder);
    if (!name_lock(held, path, NULL) && !fm_directory_is_empty(held, leaf, &is_empty, NULL) &&
        is_empty) {
        unlink(path); /* while it is locked, so that no process locks a removed file */
        fm_dir_unmake(folder, lock->existed);
    }
    close(lock->fd);
    lock->fd = -1;
    fm_held_folder_close(&lock->folder);
}
