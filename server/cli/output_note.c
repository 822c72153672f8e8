/* output_note.c: see output_note.h. */
#include "server/cli/output_note.h"

#include "proto/base/directory.h"
#include "proto/base/file.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, MOST_ENTRIES = 64, BEGIN_BYTES = 64 };

fm_status fm_output_has_file(const char *path, bool *ret_has, fm_error *reterr) {
    fm_path_kind kind;
    uint64_t bytes;
    fm_status status = fm_path_size(path, &kind, &bytes, reterr);
    if (status) return status;
    *ret_has = kind == FM_PATH_FILE && bytes > 0;
    if (kind == FM_PATH_FILE || kind == FM_PATH_ABSENT) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_IO, path, "not a regular file");
}

fm_status fm_output_check_like(const char *path, const char *option, const char *what,
                               const char *begin, fm_error *reterr) {
    char found[BEGIN_BYTES];
    const size_t bytes = strlen(begin);
    uint64_t ignored;
    int fd;
    assert(bytes <= sizeof found);
    fm_status status = fm_file_open(path, &fd, &ignored, reterr);
    if (status) return status == FM_ERR_NOT_FOUND ? FM_OK : status;
    ssize_t n = read(fd, found, bytes);
    if (n < 0) {
        status = fm_fail_in(reterr, FM_ERR_IO, path, "%s: cannot see whether this file is a %s: %s",
                            option, what, strerror(errno));
    }
    close(fd);
    bool is_like = n == (ssize_t)bytes && memcmp(found, begin, bytes) == 0;
    if (n <= 0 || is_like) return status;
    return fm_fail_in(reterr, FM_ERR_USAGE, path,
                      "%s: found a file that is no %s, expected none; choose another name", option,
                      what);
}

/* Outputs begin in a folder without other files: one with the name of an output would be kept as
 * that output. A record that a killed command left half written, NAME.tmp.DIGITS, is no such file.
 */
static fm_status check_empty(const char *folder, const char *name, fm_arena *arena,
                             fm_error *reterr) {
    const char *other = NULL;
    fm_entry_list list = {.entry = NULL};
    size_t mark = fm_arena_mark(arena), name_bytes = strlen(name);
    fm_status status = fm_directory_read(folder, MOST_ENTRIES, arena, &list, reterr);
    if (status == FM_ERR_LIMIT) {
        other = "many";
        status = FM_OK;
    }
    for (size_t i = 0; i < list.n && !status && !other; i++) {
        const char *entry = list.entry[i].name;
        bool is_own = strncmp(entry, name, name_bytes) == 0 && entry[name_bytes] == '.';
        if (!is_own) other = entry;
    }
    if (!status && other) {
        status = fm_fail_in(reterr, FM_ERR_EXISTS, folder,
                            "the folder has other files (%.100s) and no %s; choose an empty or a "
                            "new folder",
                            other, name);
    }
    free(list.entry);
    fm_arena_rewind(arena, mark);
    return status;
}

fm_status fm_output_note_check(const char *folder, const char *name, const char *note,
                               const char *what, fm_arena *arena, fm_error *reterr) {
    char path[PATH_BYTES];
    fm_bytes found;
    size_t mark = fm_arena_mark(arena);
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof path) {
        return fm_fail_in(reterr, FM_ERR_IO, folder, "the path is longer than %d bytes",
                          PATH_BYTES - 1);
    }
    fm_status status = fm_file_read(arena, path, FM_OUTPUT_NOTE_BYTES, &found, reterr);
    if (status == FM_ERR_NOT_FOUND) {
        status = check_empty(folder, name, arena, reterr);
        return status ? status : fm_file_write_atomic(path, note, strlen(note), reterr);
    }
    if (status) return status;
    bool is_same = found.size == strlen(note) && memcmp(found.data, note, found.size) == 0;
    fm_arena_rewind(arena, mark);
    if (is_same) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_EXISTS, path,
                      "the folder has %s, as this file says; choose another folder", what);
}
