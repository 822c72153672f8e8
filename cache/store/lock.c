/* lock.c: see lock.h. */
#include "cache/store/lock.h"

#include "cache/store/shard.h"
#include "proto/base/directory.h"
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SLOT_MAX = 4096, TRIES_MAX = 100 };

static fm_status name_file(const char *cache, const char *name, char path[PATH_MAX],
                           fm_error *reterr) {
    int n = snprintf(path, PATH_MAX, "%s/build%s%s", cache, name[0] ? "/" : "", name);
    if (n > 0 && n < PATH_MAX) return FM_OK;
    return fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
}

static void name_slot(uint32_t slot, char name[32]) {
    snprintf(name, 32, "slot-%u.lock", slot);
}

/* Opens CACHE/build/<name> and locks it; FM_ERR_EXISTS when another process has locked it. A file
 * without a name is not the one that others lock: FM_ERR_NOT_FOUND, as for all that a holder that
 * failed may remove in between. */
static fm_status lock_file(const char *cache, const char *name, int how, int *ret_fd,
                           fm_error *reterr) {
    char path[PATH_MAX];
    struct stat found;
    fm_status status = name_file(cache, name, path, reterr);
    if (status) return status;
    /* O_NOFOLLOW: a link could name a file of another cache, or make one anywhere. */
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0 && errno == ELOOP) {
        status = fm_fail(reterr, FM_ERR_IO, "is a symbolic link, expected a file or none");
    } else if (fd < 0) {
        const fm_status kind = errno == ENOENT ? FM_ERR_NOT_FOUND : FM_ERR_IO;
        status = fm_fail(reterr, kind, "cannot open: %s", strerror(errno));
    } else if (flock(fd, how | LOCK_NB) != 0) {
        status = fm_fail(reterr, FM_ERR_EXISTS, "another build is at work in this cache");
    } else if (fstat(fd, &found) != 0) {
        status = fm_fail(reterr, FM_ERR_IO, "cannot look at: %s", strerror(errno));
    } else if (!found.st_nlink) {
        status = fm_fail(reterr, FM_ERR_NOT_FOUND, "another process keeps removing the lock");
    }
    if (fd >= 0 && status) close(fd);
    *ret_fd = status ? -1 : fd;
    return status && reterr ? fm_error_in(reterr, path) : status;
}

/* The folder of the lock is the cache's own: through a link, two caches would share one, and a
 * build would empty another's. */
static fm_status refuse_link(const char *folder, fm_error *reterr) {
    bool is_link;
    fm_status status = fm_path_is_link(folder, &is_link, reterr);
    if (status || !is_link) return status;
    return fm_fail_in(reterr, FM_ERR_IO, folder, "is a symbolic link, expected a folder or none");
}

static fm_status make_folder(fm_cache_lock *lock, fm_error *reterr) {
    char folder[PATH_MAX];
    fm_status status = name_file(lock->cache.name, "", folder, reterr);
    if (!status) status = refuse_link(folder, reterr);
    if (status) return status;
    status = fm_dir_make_noting(folder, &lock->existed, reterr);
    return status ? status : fm_shard_check_disk(folder, reterr);
}

/* Makes the folder, holds it, and locks the file `lock` in it. */
static fm_status try_lock(const char *cache, int how, fm_cache_lock *lock, fm_error *reterr) {
    fm_status status = make_folder(lock, reterr);
    if (!status) status = fm_held_folder_open(cache, &lock->cache, reterr);
    if (status) return status;
    status = lock_file(fm_held_folder_path(&lock->cache), "lock", how, &lock->fd, reterr);
    if (status == FM_ERR_NOT_FOUND) fm_held_folder_close(&lock->cache);
    return status;
}

/* A holder that failed may remove the folder and its lock at any time, between any two calls: what
 * is not found is then made again. All other failures stand. */
static fm_status take_lock(const char *cache, int how, fm_cache_lock *lock, fm_error *reterr) {
    *lock = (fm_cache_lock){
        .cache = {.name = cache, .fd = -1}, .fd = -1, .slot_fd = -1, .existed = SIZE_MAX};
    fm_status status = FM_ERR_NOT_FOUND;
    for (int tries = 0; status == FM_ERR_NOT_FOUND && tries < TRIES_MAX; tries++) {
        if (tries) sched_yield();
        status = try_lock(cache, how, lock, reterr);
    }
    return status == FM_ERR_NOT_FOUND ? FM_ERR_IO : status;
}

static void remove_file(const char *cache, const char *name) {
    char path[PATH_MAX];
    if (!name_file(cache, name, path, NULL)) unlink(path);
}

/* Removes what locking made. Nobody else may hold the lock: only an exclusive holder removes its
 * file. */
static void remove_made(const fm_cache_lock *lock) {
    char path[PATH_MAX], slot[32];
    const char *cache = fm_held_folder_path(&lock->cache);
    if (name_file(lock->cache.name, "", path, NULL) || lock->existed >= strlen(path)) return;
    if (lock->fd >= 0 && flock(lock->fd, LOCK_EX | LOCK_NB) != 0) return;
    name_slot(lock->slot, slot);
    if (lock->slot_fd >= 0) remove_file(cache, slot);
    if (lock->fd >= 0) remove_file(cache, "lock");
    static const char *const emptied[] = {"shards", "generations"};
    for (size_t i = 0; i < sizeof emptied / sizeof emptied[0]; i++) {
        char folder[PATH_MAX];
        int n = snprintf(folder, sizeof folder, "%s/%s", cache, emptied[i]);
        if (n > 0 && n < PATH_MAX) rmdir(folder);
    }
    fm_dir_unmake(path, lock->existed);
}

void fm_cache_unlock(fm_cache_lock *lock, bool failed) {
    if (failed) remove_made(lock);
    if (lock->slot_fd >= 0) close(lock->slot_fd);
    if (lock->fd >= 0) close(lock->fd);
    lock->fd = lock->slot_fd = -1;
    fm_held_folder_close(&lock->cache);
}

fm_status fm_cache_lock_alone(const char *cache, fm_cache_lock *ret_lock, fm_error *reterr) {
    fm_status status = take_lock(cache, LOCK_EX, ret_lock, reterr);
    if (status) fm_cache_unlock(ret_lock, true);
    return status;
}

fm_status fm_cache_lock_shared(const char *cache, fm_cache_lock *ret_lock, fm_error *reterr) {
    fm_status status = take_lock(cache, LOCK_SH, ret_lock, reterr);
    bool found = false;
    for (uint32_t slot = 1; slot <= SLOT_MAX && !status && !found; slot++) {
        char name[32];
        name_slot(slot, name);
        status = lock_file(fm_held_folder_path(&ret_lock->cache), name, LOCK_EX, &ret_lock->slot_fd,
                           reterr);
        found = !status;
        if (found) ret_lock->slot = slot;
        if (status == FM_ERR_EXISTS && slot < SLOT_MAX) status = FM_OK;
    }
    if (status) fm_cache_unlock(ret_lock, true);
    return status;
}
