/* archive_absent.c: takes the place of zip/ when libzip was not found: no archive opens. */
#include "cache/source/archive.h"

#include "proto/base/directory.h"

#include <stddef.h>

fm_status fm_archive_open(const char *path, fm_archive **ret_archive, fm_error *reterr) {
    (void)ret_archive;
    /* Scans look for archives beside folders, so a missing archive must stay FM_ERR_NOT_FOUND. */
    fm_path_kind kind;
    fm_status status = fm_path_look(path, &kind, reterr);
    if (status) return status;
    if (kind == FM_PATH_ABSENT) {
        return fm_fail_in(reterr, FM_ERR_NOT_FOUND, path,
                          "cannot open as a zip archive: there is no such file");
    }
    return fm_fail_in(
        reterr, FM_ERR_UNSUPPORTED, path,
        "this foldmill was built without libzip; unpack the archive into a folder, or "
        "build with libzip-dev installed");
}

/* Without open archives nothing below is called. */

void fm_archive_close(fm_archive *archive) {
    (void)archive;
}

uint64_t fm_archive_n_entry(const fm_archive *archive) {
    (void)archive;
    return 0;
}

const char *fm_archive_name(fm_archive *archive, uint64_t entry) {
    (void)archive;
    (void)entry;
    return NULL;
}

bool fm_archive_is_good_name(const char *name) {
    (void)name;
    return false;
}

void fm_archive_sizes(fm_archive *archive, uint64_t entry, uint64_t *ret_stored_bytes,
                      uint64_t *ret_bytes) {
    (void)archive;
    (void)entry;
    *ret_stored_bytes = *ret_bytes = 0;
}

fm_status fm_archive_read(fm_archive *archive, uint64_t entry, size_t max_bytes, fm_arena *arena,
                          fm_bytes *ret_content, fm_error *reterr) {
    (void)archive;
    (void)entry;
    (void)max_bytes;
    (void)arena;
    (void)ret_content;
    return fm_fail(reterr, FM_ERR_UNSUPPORTED, "this foldmill was built without libzip");
}
