/* generation_use.c: see generation_use.h. */
#include "cache/store/generation_use.h"

#include "cache/store/generation_files.h"
#include "proto/base/directory.h"
#include "proto/base/file.h"
#include "proto/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { MANIFEST_BYTES_MAX = 64 << 20 };

/* Opens the manifest and tries to lock it; *ret_busy: another process has a lock that excludes
 * `how`. *ret_fd = -1 where the file system has no locks. */
static fm_status lock_manifest(const char *cache, uint64_t number, int how, int *ret_fd,
                               bool *ret_busy, fm_error *reterr) {
    char path[PATH_MAX];
    *ret_fd = -1;
    *ret_busy = false;
    fm_status status = fm_generation_path(cache, number, "manifest", path, sizeof path, reterr);
    if (status) return status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fm_fail_in(reterr, errno == ENOENT ? FM_ERR_NOT_FOUND : FM_ERR_IO, path,
                          "cannot open: %s", strerror(errno));
    }
    if (flock(fd, how | LOCK_NB) == 0) {
        *ret_fd = fd;
        return FM_OK;
    }
    *ret_busy = errno == EWOULDBLOCK;
    close(fd);
    return FM_OK;
}

fm_status fm_generation_hold(const char *cache, uint64_t number, int *ret_fd, fm_error *reterr) {
    bool is_busy;
    fm_status status = lock_manifest(cache, number, LOCK_SH, ret_fd, &is_busy, reterr);
    if (status || !is_busy) return status;
    status = fm_fail(reterr, FM_ERR_NOT_FOUND, "generation %" PRIu64 " is being removed", number);
    return reterr ? fm_error_in(reterr, cache) : status;
}

fm_status fm_generation_is_held(const char *cache, uint64_t number, bool *ret_held,
                                fm_error *reterr) {
    int fd;
    fm_status status = lock_manifest(cache, number, LOCK_EX, &fd, ret_held, reterr);
    if (fd >= 0) close(fd);
    return status;
}

/* *ret_has: the generation has this snapshot "all". A manifest that cannot be read now is an error.
 * One that is gone, damaged or of another format leads to no snapshot. */
static fm_status look_for_all(const char *cache, uint64_t number, const fm_sha256 *all,
                              fm_arena *arena, bool *ret_has, fm_error *reterr) {
    char path[PATH_MAX];
    fm_bytes text;
    fm_generation generation;
    fm_sha256 index_hash;
    *ret_has = false;
    fm_status status = fm_generation_path(cache, number, "manifest", path, sizeof path, reterr);
    if (!status) status = fm_file_read(arena, path, MANIFEST_BYTES_MAX, &text, reterr);
    if (status) return status == FM_ERR_NOT_FOUND ? FM_OK : status;
    status = fm_manifest_decode(text, number, arena, &generation, &index_hash, reterr);
    if (status) return status == FM_ERR_NOMEM || status == FM_ERR_LIMIT ? status : FM_OK;
    *ret_has = memcmp(&generation.all_hash, all, sizeof *all) == 0;
    return FM_OK;
}

fm_status fm_generation_find_all(const char *cache, const fm_sha256 *all, fm_arena *arena,
                                 uint64_t *ret_number, fm_error *reterr) {
    char folder[PATH_MAX];
    fm_name_list list;
    snprintf(folder, sizeof folder, "%.4000s/generations", cache);
    fm_status status = fm_directory_list(folder, false, FM_LIMIT_N_CHAIN, arena, &list, reterr);
    if (status) return status;
    uint64_t found = 0;
    fm_status failed = FM_OK;
    size_t mark = fm_arena_mark(arena);
    for (size_t i = 0; i < list.n; i++) {
        uint64_t number = fm_generation_number_of(list.name[i], "manifest");
        bool has;
        fm_error error;
        fm_arena_rewind(arena, mark);
        if (number <= found) continue;
        status = look_for_all(cache, number, all, arena, &has, &error);
        if (has) found = number;
        if (!status || failed) continue;
        failed = status;
        if (reterr) *reterr = error;
    }
    free(list.name);
    *ret_number = found;
    if (found) return FM_OK;
    if (failed) return failed;
    status = fm_fail(reterr, FM_ERR_NOT_FOUND, "no generation has a snapshot all with this hash");
    return reterr ? fm_error_in(reterr, cache) : status;
}
