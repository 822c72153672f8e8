/* lock.c: see lock.h. */
#include "cache/lock.h"

#include "cache/shard.h"
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

fm_status fm_cache_lock(const char *cache, int *ret_fd, fm_error *reterr) {
    char folder[PATH_MAX], path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/build/lock", cache);
    if (n <= 0 || n >= PATH_MAX) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
    }
    snprintf(folder, sizeof folder, "%s/build", cache);
    fm_status status = fm_dir_make(folder, reterr);
    if (!status) status = fm_shard_check_disk(folder, reterr);
    if (status) return status;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        status = fm_fail(reterr, FM_ERR_IO, "cannot open: %s", strerror(errno));
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        status = fm_fail(reterr, FM_ERR_EXISTS, "another build is at work in this cache");
        close(fd);
    }
    if (status) return reterr ? fm_error_in(reterr, path) : status;
    *ret_fd = fd;
    return FM_OK;
}
