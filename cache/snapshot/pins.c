/* pins.c: see pins.h. */
#include "cache/snapshot/pins.h"

#include "cache/snapshot/folder.h"
#include "cache/snapshot/selection.h"
#include "cache/snapshot/snapshot.h"
#include "proto/base/directory.h"
#include "proto/limits.h"
#include "cache/store/store_open.h"
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { PIN_BYTES_MAX = 32, PIN_ARENA_BYTES = 1 << 16 };

fm_status fm_snapshot_check_new_name(const char *name, fm_error *reterr) {
    if (fm_snapshot_is_name(name) && strlen(name) <= FM_SNAPSHOT_NEW_NAME_BYTES &&
        strcmp(name, "all") != 0 && !strstr(name, ".tmp")) {
        return FM_OK;
    }
    return fm_fail(reterr, FM_ERR_USAGE,
                   "'%.64s' cannot be a snapshot's name: at most %d bytes, no '/', no blanks, no "
                   "dot in front, no .tmp, not 'all'",
                   name, FM_SNAPSHOT_NEW_NAME_BYTES);
}

/* Writes a snapshot if there is none of that name. */
static fm_status write_new(const fm_store *store, const char *name, fm_bytes bytes, fm_arena *arena,
                           fm_error *reterr) {
    fm_bytes old;
    fm_status status = fm_snapshot_read(store, name, arena, &old, reterr);
    if (status == FM_ERR_NOT_FOUND) {
        return fm_folder_write(store->path, "snapshots", name, bytes, reterr);
    }
    if (status) return status;
    if (old.size == bytes.size && memcmp(old.data, bytes.data, old.size) == 0) return FM_OK;
    return fm_fail(reterr, FM_ERR_EXISTS,
                   "a snapshot '%s' with other chains or weights exists already, and runs may "
                   "depend on it; choose another name",
                   name);
}

fm_status fm_snapshot_write(const fm_store *store, const char *name, const fm_snapshot_text *text,
                            fm_arena *arena, fm_sha256 *ret_hash, fm_error *reterr) {
    fm_bytes bytes;
    char path[PATH_MAX];
    fm_status status = fm_snapshot_check_new_name(name, reterr);
    if (!status) status = fm_snapshot_encode(text, arena, &bytes, reterr);
    if (!status) status = fm_folder_path(store->path, "snapshots", NULL, path, reterr);
    if (!status) status = fm_dir_make(path, reterr);
    if (status) return status;
    *ret_hash = fm_sha256_of(bytes.data, bytes.size);
    /* Two processes must not both find that there is none. Where the file system has no locks, they
     * may. */
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fm_fail_in(reterr, FM_ERR_IO, path, "cannot open: %s", strerror(errno));
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR)
        continue;
    status = write_new(store, name, bytes, arena, reterr);
    close(fd);
    return status;
}

/* Lists the names of snapshots or pins in a folder of the cache; none when there is no folder.
 * A pin that cannot be looked at is in the list, so that reading it fails: gc must not miss
 * one. */
static fm_status list_names(const char *cache, const char *folder, fm_arena *arena,
                            fm_name_list *list, fm_error *reterr) {
    char path[PATH_MAX];
    *list = (fm_name_list){0};
    fm_status status = fm_folder_path(cache, folder, NULL, path, reterr);
    if (!status) status = fm_directory_list(path, false, FM_LIMIT_N_CHAIN, arena, list, reterr);
    if (status == FM_ERR_NOT_FOUND) return FM_OK;
    size_t kept = 0;
    for (size_t i = 0; i < list->n; i++) {
        const char *name = list->name[i];
        if (fm_snapshot_is_name(name) && !strstr(name, ".tmp")) list->name[kept++] = name;
    }
    list->n = kept;
    return status;
}

fm_status fm_snapshot_names(const char *cache, fm_arena *arena, uint32_t *ret_n,
                            const char *const **ret_names, fm_error *reterr) {
    fm_name_list list;
    fm_status status = list_names(cache, "snapshots", arena, &list, reterr);
    const char **names = status ? NULL : fm_arena_alloc_array(arena, list.n + 1, sizeof *names);
    if (names) {
        names[0] = "all";
        if (list.n) memcpy(names + 1, list.name, list.n * sizeof *names);
        *ret_n = (uint32_t)list.n + 1;
        *ret_names = names;
    } else if (!status) {
        status = fm_arena_full(arena, reterr);
    }
    free(list.name);
    return status;
}

/* -- pins */

static fm_status read_pin(const char *cache, const char *name, fm_arena *arena,
                          uint64_t *ret_generation, fm_error *reterr) {
    char path[PATH_MAX];
    fm_bytes text;
    fm_status status = fm_folder_path(cache, "pins", name, path, reterr);
    if (!status) status = fm_file_read(arena, path, PIN_BYTES_MAX, &text, reterr);
    if (status) return status;
    *ret_generation = fm_generation_number_parse(text);
    if (*ret_generation) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_CORRUPT, path,
                      "the pin does not hold a generation's number; foldmill snapshot pin %s "
                      "pins it again",
                      name);
}

/* Refuses to pin a snapshot that is pinned to another generation. A pin that cannot be read may be
 * such a one; a damaged one keeps nothing and may be replaced. */
static fm_status check_pin(const fm_store *store, const char *name, fm_arena *arena,
                           fm_error *reterr) {
    uint64_t pinned;
    fm_status status = read_pin(store->path, name, arena, &pinned, reterr);
    if (status == FM_ERR_NOT_FOUND || status == FM_ERR_CORRUPT) return FM_OK;
    if (status || pinned == store->generation.number) return status;
    return fm_fail(reterr, FM_ERR_EXISTS,
                   "snapshot %s is pinned to generation %" PRIu64 "; unpin it first", name, pinned);
}

fm_status fm_pin_write(const fm_store *store, const char *name, fm_error *reterr) {
    fm_arena arena;
    fm_snapshot snapshot;
    fm_status status = fm_arena_init(&arena, (size_t)16 << 30, reterr);
    if (status) return status;
    status = fm_snapshot_open(store, name, &arena, &snapshot, reterr);
    if (!status) status = check_pin(store, name, &arena, reterr);
    fm_arena_fini(&arena);
    if (status) return status;
    char text[PIN_BYTES_MAX];
    int n = snprintf(text, sizeof text, "%" PRIu64 "\n", store->generation.number);
    return fm_folder_write(store->path, "pins", name, (fm_bytes){(const uint8_t *)text, (size_t)n},
                           reterr);
}

fm_status fm_pin_remove(const fm_store *store, const char *name, fm_error *reterr) {
    char path[PATH_MAX];
    if (!fm_snapshot_is_name(name)) {
        return fm_fail(reterr, FM_ERR_USAGE, "'%.64s' is no snapshot's name", name);
    }
    fm_status status = fm_folder_path(store->path, "pins", name, path, reterr);
    if (status || unlink(path) == 0) return status;
    return fm_fail(reterr, errno == ENOENT ? FM_ERR_NOT_FOUND : FM_ERR_IO,
                   "snapshot %s: cannot unpin: %s", name,
                   errno == ENOENT ? "it is not pinned" : strerror(errno));
}

/* -- use and removal */

fm_status fm_snapshot_hold(const fm_store *store, const char *name, int *ret_fd, fm_error *reterr) {
    char path[PATH_MAX];
    *ret_fd = -1;
    if (strcmp(name, "all") == 0) return FM_OK;
    fm_status status = fm_folder_path(store->path, "snapshots", name, path, reterr);
    if (status) return status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fm_fail_in(reterr, FM_ERR_IO, path, "cannot open: %s", strerror(errno));
    if (flock(fd, LOCK_SH | LOCK_NB) != 0) {
        bool is_locked = errno == EWOULDBLOCK;
        close(fd);
        return is_locked
                   ? fm_fail_in(reterr, FM_ERR_NOT_FOUND, path, "the snapshot is being deleted")
                   : FM_OK;
    }
    *ret_fd = fd;
    return FM_OK;
}

static fm_status check_unpinned(const fm_store *store, const char *name, fm_error *reterr) {
    fm_arena arena;
    uint64_t number = 0;
    fm_status status = fm_arena_init(&arena, PIN_ARENA_BYTES, reterr);
    if (status) return status;
    status = read_pin(store->path, name, &arena, &number, reterr);
    fm_arena_fini(&arena);
    if (status == FM_ERR_NOT_FOUND) return FM_OK;
    if (status) return status;
    return fm_fail(reterr, FM_ERR_EXISTS,
                   "snapshot %s is pinned to generation %" PRIu64
                   "; foldmill snapshot unpin %s comes first",
                   name, number, name);
}

fm_status fm_snapshot_delete(const fm_store *store, const char *name, fm_error *reterr) {
    char path[PATH_MAX];
    if (!fm_snapshot_is_name(name)) {
        return fm_fail(reterr, FM_ERR_USAGE, "'%.64s' is no snapshot's name", name);
    }
    if (strcmp(name, "all") == 0) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "snapshot all is part of the generation and cannot be deleted");
    }
    fm_status status = check_unpinned(store, name, reterr);
    if (!status) status = fm_folder_path(store->path, "snapshots", name, path, reterr);
    if (status) return status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        return fm_fail(reterr, FM_ERR_NOT_FOUND, "there is no snapshot '%.64s'", name);
    }
    if (fd < 0) {
        status = fm_fail_in(reterr, FM_ERR_IO, path, "cannot open: %s", strerror(errno));
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        status = fm_fail(reterr, FM_ERR_EXISTS,
                         "snapshot %s is in use: foldmill serve serves it on this machine", name);
    } else if (unlink(path) != 0) {
        status = fm_fail_in(reterr, FM_ERR_IO, path, "cannot remove: %s", strerror(errno));
    }
    if (fd >= 0) close(fd);
    if (!status) status = fm_selection_remove(store, name, reterr);
    if (!status) status = fm_folder_path(store->path, "snapshots", NULL, path, reterr);
    return status ? status : fm_dir_sync(path, reterr);
}

fm_status fm_store_number_for(const char *cache, const char *name, uint64_t *ret_number,
                              fm_error *reterr) {
    fm_arena arena;
    fm_status status = fm_arena_init(&arena, PIN_ARENA_BYTES, reterr);
    if (status) return status;
    status = FM_ERR_NOT_FOUND;
    if (fm_snapshot_is_name(name)) status = read_pin(cache, name, &arena, ret_number, reterr);
    if (status == FM_ERR_NOT_FOUND) {
        status = fm_generation_current(cache, &arena, ret_number, reterr);
    }
    fm_arena_fini(&arena);
    return status;
}

fm_status fm_pins_read(const char *cache, fm_arena *arena, uint32_t *ret_n, const fm_pin **ret_pins,
                       fm_error *reterr) {
    fm_name_list list;
    fm_status status = list_names(cache, "pins", arena, &list, reterr);
    fm_pin *pins = status ? NULL : fm_arena_alloc_array(arena, list.n, sizeof *pins);
    if (!status && !pins) status = fm_arena_full(arena, reterr);
    for (size_t i = 0; i < list.n && !status; i++) {
        pins[i].name = list.name[i];
        status = read_pin(cache, list.name[i], arena, &pins[i].generation, reterr);
    }
    *ret_n = (uint32_t)list.n;
    free(list.name);
    if (!status) *ret_pins = pins;
    return status;
}
