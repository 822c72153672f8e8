/* lock.c: see lock.h. */
#include "cache/store/lock.h"

#include "cache/store/shard.h"
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { SLOT_MAX = 4096 };

/* Opens CACHE/build/<name> and locks it; FM_ERR_EXISTS when another process has locked it. */
static fm_status lock_file(const char *cache, const char *name, int how, int *ret_fd,
                           fm_error *reterr) {
    char path[PATH_MAX];
    fm_status status = FM_OK;
    int n = snprintf(path, sizeof path, "%s/build/%s", cache, name);
    if (n <= 0 || n >= PATH_MAX) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        status = fm_fail(reterr, FM_ERR_IO, "cannot open: %s", strerror(errno));
    } else if (flock(fd, how | LOCK_NB) != 0) {
        status = fm_fail(reterr, FM_ERR_EXISTS, "another build is at work in this cache");
        close(fd);
    }
    if (status) return reterr ? fm_error_in(reterr, path) : status;
    *ret_fd = fd;
    return FM_OK;
}

static fm_status make_folder(const char *cache, fm_error *reterr) {
    char folder[PATH_MAX];
    int n = snprintf(folder, sizeof folder, "%s/build", cache);
    if (n <= 0 || n >= PATH_MAX) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
    }
    fm_status status = fm_dir_make(folder, reterr);
    return status ? status : fm_shard_check_disk(folder, reterr);
}

fm_status fm_cache_lock(const char *cache, int *ret_fd, fm_error *reterr) {
    fm_status status = make_folder(cache, reterr);
    return status ? status : lock_file(cache, "lock", LOCK_EX, ret_fd, reterr);
}

fm_status fm_cache_lock_shared(const char *cache, uint32_t *ret_slot, int ret_fd[2],
                               fm_error *reterr) {
    fm_status status = make_folder(cache, reterr);
    if (!status) status = lock_file(cache, "lock", LOCK_SH, &ret_fd[0], reterr);
    if (status) return status;
    status = FM_ERR_EXISTS;
    for (uint32_t slot = 1; slot <= SLOT_MAX && status == FM_ERR_EXISTS; slot++) {
        char name[32];
        snprintf(name, sizeof name, "slot-%u.lock", slot);
        status = lock_file(cache, name, LOCK_EX, &ret_fd[1], reterr);
        if (!status) *ret_slot = slot;
    }
    if (status) close(ret_fd[0]);
    return status;
}
