/* directory.h: looks at paths and lists directories; the only place that asks what is in a folder.
 *
 * An error is never mistaken for absence. A directory that cannot be read to its end gives no list.
 * An entry that cannot be looked at stays in the list, with the reason. A path is absent only when
 * the system says so, and a symbolic link that leads nowhere is not absent. */
#ifndef FM_BASE_DIRECTORY_H
#define FM_BASE_DIRECTORY_H

#include "proto/base/arena.h"
#include "proto/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is at a path, with symbolic links followed. */
typedef enum fm_path_kind {
    FM_PATH_ABSENT, /* nothing; never in a list */
    FM_PATH_FILE,   /* a regular file */
    FM_PATH_FOLDER,
    FM_PATH_OTHER, /* a device, a pipe or a socket: opening one can wait for ever */
    /* Only in a list: the entry cannot be looked at, or is a link that leads nowhere. */
    FM_PATH_UNREADABLE,
} fm_path_kind;

/* Looks at a path without opening it. *ret_kind is FM_PATH_ABSENT when nothing is there (ENOENT, or
 * ENOTDIR because a folder above is a file). FM_ERR_IO for any other failure, and for a symbolic
 * link that leads nowhere; errors have the path as their source. */
FM_MUST_USE fm_status fm_path_look(const char *path, fm_path_kind *ret_kind, fm_error *reterr);

/* The same; *ret_bytes is the size of a regular file, and 0 for everything else. */
FM_MUST_USE fm_status fm_path_size(const char *path, fm_path_kind *ret_kind, uint64_t *ret_bytes,
                                   fm_error *reterr);

/* Whether both paths are one file or folder. An absent path is the same as no other. FM_ERR_IO when
 * one of them cannot be looked at. */
FM_MUST_USE fm_status fm_path_is_same(const char *a, const char *b, bool *ret_same,
                                      fm_error *reterr);

/* What changes when a file is replaced or written, or an entry of a folder comes or goes. All zero:
 * nothing is at the path. */
typedef struct fm_path_mark {
    uint64_t device, inode, size;
    int64_t modified_s, modified_ns;
} fm_path_mark;

/* FM_ERR_IO when the path cannot be looked at. */
FM_MUST_USE fm_status fm_path_mark_read(const char *path, fm_path_mark *ret_mark, fm_error *reterr);
bool fm_path_mark_is_same(const fm_path_mark *a, const fm_path_mark *b);

/* Whether the path itself is a symbolic link. FM_ERR_IO when it cannot be looked at. */
FM_MUST_USE fm_status fm_path_is_link(const char *path, bool *ret_link, fm_error *reterr);

/* True when this process may make files in the folder; otherwise errno has the reason. */
bool fm_path_is_writable(const char *folder);

/* The reason why an entry of that kind cannot be read as a file, for messages; NULL for a file.
 * `code` is the entry's. */
const char *fm_path_refusal(fm_path_kind kind, int code);

typedef struct fm_entry {
    const char *name; /* in the arena of the list */
    fm_path_kind kind;
    int code; /* FM_PATH_UNREADABLE: errno of the failure; ENOENT for a link that leads nowhere */
} fm_entry;

/* Entries on the heap, sorted by the bytes of their names: free(entry). */
typedef struct fm_entry_list {
    fm_entry *entry;
    size_t n, max;
} fm_entry_list;

/* Lists all entries of the folder `path`, except names that begin with a dot. The caller frees
 * list->entry. FM_ERR_NOT_FOUND: nothing is at the path. FM_ERR_LIMIT: there are more than `max`
 * entries, or the arena is full. FM_ERR_IO: the folder cannot be read to its end, or the path is
 * a file or a link that leads nowhere. */
FM_MUST_USE fm_status fm_directory_read(const char *path, size_t max, fm_arena *arena,
                                        fm_entry_list *list, fm_error *reterr);

/* *ret_empty: nothing but ".", ".." and the entry `except` (NULL: no other) is in the folder.
 * FM_ERR_NOT_FOUND, FM_ERR_IO. */
FM_MUST_USE fm_status fm_directory_is_empty(const char *path, const char *except, bool *ret_empty,
                                            fm_error *reterr);

/* Names in an arena; the array of pointers is on the heap: free(name). */
typedef struct fm_name_list {
    const char **name;
    size_t n, max;
} fm_name_list;

/* The names of the folders (`folders`), or of everything else, as fm_directory_read lists them.
 * Everything else includes pipes and entries that cannot be looked at. A caller who wants one of
 * them fails when it reads it, and fm_file_read gives the reason. */
FM_MUST_USE fm_status fm_directory_list(const char *path, bool folders, size_t max, fm_arena *arena,
                                        fm_name_list *list, fm_error *reterr);

/* Removes a folder with everything in it. Links are removed, not followed. It is no error if
 * nothing is at the path. Returns FM_ERR_IO for the first entry that cannot be removed; the entries
 * before it are already removed. */
FM_MUST_USE fm_status fm_dir_remove(const char *path, fm_error *reterr);

#endif
