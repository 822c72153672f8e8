/* shard_copy.c: see shard_copy.h. */
#include "cache/store/shard_copy.h"

#include "proto/base/directory.h"
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK_BYTES = 4 << 20 };

/* True when the cache has a shard file of that name and size. */
static bool is_there(const char *cache, const fm_sha256 *hash, uint64_t bytes) {
    char path[PATH_MAX];
    fm_path_kind kind;
    uint64_t found;
    return fm_shard_path(cache, hash, path, sizeof path) &&
           !fm_path_size(path, &kind, &found, NULL) && kind == FM_PATH_FILE && found == bytes;
}

static fm_status copy_blocks(int in, const char *path, fm_file_writer *out,
                             const fm_shard_tick *tick, fm_sha256_state *state, uint8_t *block,
                             fm_error *reterr) {
    for (;;) {
        ssize_t got = read(in, block, BLOCK_BYTES);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fm_fail_in(reterr, FM_ERR_IO, path, "cannot read: %s", strerror(errno));
        if (got == 0) return FM_OK;
        fm_sha256_update(state, block, (size_t)got);
        fm_status status = fm_file_writer_append(out, block, (size_t)got, reterr);
        if (status) return status;
        if (tick && tick->tick) tick->tick(tick->context);
    }
}

/* Copies through a temporary file beside the goal, so that the goal appears whole. */
static fm_status copy(const char *source, const char *goal, const fm_sha256 *hash,
                      const fm_shard_tick *tick, fm_error *reterr) {
    fm_file_writer *out;
    int in = open(source, O_RDONLY | O_CLOEXEC);
    if (in < 0) return fm_fail_in(reterr, FM_ERR_IO, source, "cannot open: %s", strerror(errno));
    fm_status status = fm_file_writer_open(goal, &out, reterr);
    if (!status) {
        uint8_t *block = malloc(BLOCK_BYTES);
        fm_sha256_state *state = fm_sha256_create();
        status = block ? copy_blocks(in, source, out, tick, state, block, reterr)
                       : fm_fail(reterr, FM_ERR_NOMEM, "no memory for a copy");
        fm_sha256 found = fm_sha256_digest(state);
        fm_sha256_destroy(state);
        free(block);
        if (!status && memcmp(&found, hash, sizeof found) != 0) {
            status = fm_fail_in(reterr, FM_ERR_CORRUPT, source,
                                "the shard's SHA-256 is not the one it is named by");
        }
        if (!status) {
            status = fm_file_writer_commit(out, reterr);
        } else {
            fm_file_writer_discard(out);
        }
    }
    close(in);
    return status;
}

fm_status fm_shard_bring(const char *from, const char *to, const fm_sha256 *hash, uint64_t bytes,
                         const fm_shard_tick *tick, fm_shard_came *ret_came, fm_error *reterr) {
    char source[PATH_MAX], goal[PATH_MAX], folder[PATH_MAX];
    if (is_there(to, hash, bytes)) {
        *ret_came = FM_SHARD_WAS_THERE;
        return FM_OK;
    }
    int n = snprintf(folder, sizeof folder, "%s/shards", to);
    if (n <= 0 || n >= PATH_MAX || !fm_shard_path(from, hash, source, sizeof source) ||
        !fm_shard_path(to, hash, goal, sizeof goal)) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
    }
    if (!is_there(from, hash, bytes)) {
        return fm_fail_in(reterr, FM_ERR_NOT_FOUND, source, "no such shard of %llu bytes",
                          (unsigned long long)bytes);
    }
    fm_status status = fm_dir_make(folder, reterr);
    if (status) return status;
    /* An existing file has another size: it was cut short, or is no shard. */
    if (unlink(goal) != 0 && errno != ENOENT) {
        return fm_fail_in(reterr, FM_ERR_IO, goal, "cannot replace: %s", strerror(errno));
    }
    if (link(source, goal) == 0) {
        *ret_came = FM_SHARD_LINKED;
        return fm_dir_sync(folder, reterr);
    }
    status = copy(source, goal, hash, tick, reterr);
    if (!status) *ret_came = FM_SHARD_COPIED;
    return status;
}
