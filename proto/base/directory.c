/* directory.c: see directory.h. */
#include "proto/base/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char dangling[] = "a symbolic link that leads nowhere";

/* -- one path */

static fm_path_kind kind_of(const struct stat *info) {
    if (S_ISREG(info->st_mode)) return FM_PATH_FILE;
    return S_ISDIR(info->st_mode) ? FM_PATH_FOLDER : FM_PATH_OTHER;
}

static bool is_absence(int code) {
    return code == ENOENT || code == ENOTDIR;
}

static fm_status fail_look(fm_error *reterr, const char *path, int code) {
    return fm_fail_in(reterr, FM_ERR_IO, path, "cannot look at it: %s", strerror(code));
}

/* Looks at a path with links followed; *ret_there is false when nothing is there. */
static fm_status look(const char *path, struct stat *info, bool *ret_there, fm_error *reterr) {
    enum { LOOKS = 100 }; /* another process may make and remove the path all the time */
    for (int i = 0;; i++) {
        *ret_there = stat(path, info) == 0;
        if (*ret_there) return FM_OK;
        if (!is_absence(errno)) return fail_look(reterr, path, errno);
        if (lstat(path, info) != 0) {
            return is_absence(errno) ? FM_OK : fail_look(reterr, path, errno);
        }
        /* What is no link has appeared between the two calls: another process has made it. */
        if (S_ISLNK(info->st_mode) || i == LOOKS) {
            return fm_fail_in(reterr, FM_ERR_IO, path, "%s", dangling);
        }
    }
}

fm_status fm_path_size(const char *path, fm_path_kind *ret_kind, uint64_t *ret_bytes,
                       fm_error *reterr) {
    struct stat info;
    bool there;
    fm_status status = look(path, &info, &there, reterr);
    *ret_kind = !status && there ? kind_of(&info) : FM_PATH_ABSENT;
    *ret_bytes = *ret_kind == FM_PATH_FILE ? (uint64_t)info.st_size : 0;
    return status;
}

fm_status fm_path_is_same(const char *a, const char *b, bool *ret_same, fm_error *reterr) {
    struct stat x, y;
    bool a_there, b_there = false;
    fm_status status = look(a, &x, &a_there, reterr);
    if (!status) status = look(b, &y, &b_there, reterr);
    *ret_same = !status && a_there && b_there && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    return status;
}

fm_status fm_path_mark_read(const char *path, fm_path_mark *ret_mark, fm_error *reterr) {
    struct stat found;
    bool is_there;
    fm_status status = look(path, &found, &is_there, reterr);
    *ret_mark = (fm_path_mark){0};
    if (status || !is_there) return status;
    *ret_mark = (fm_path_mark){.device = found.st_dev,
                               .inode = found.st_ino,
                               .size = (uint64_t)found.st_size,
                               .modified_s = found.st_mtim.tv_sec,
                               .modified_ns = found.st_mtim.tv_nsec};
    return FM_OK;
}

bool fm_path_mark_is_same(const fm_path_mark *a, const fm_path_mark *b) {
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->modified_s == b->modified_s && a->modified_ns == b->modified_ns;
}

fm_status fm_path_is_link(const char *path, bool *ret_link, fm_error *reterr) {
    struct stat info;
    bool there = lstat(path, &info) == 0;
    *ret_link = there && S_ISLNK(info.st_mode);
    return there || is_absence(errno) ? FM_OK : fail_look(reterr, path, errno);
}

fm_status fm_path_look(const char *path, fm_path_kind *ret_kind, fm_error *reterr) {
    uint64_t bytes;
    return fm_path_size(path, ret_kind, &bytes, reterr);
}

bool fm_path_is_writable(const char *folder) {
    return access(folder, W_OK) == 0;
}

const char *fm_path_refusal(fm_path_kind kind, int code) {
    switch (kind) {
    case FM_PATH_FILE: return NULL;
    case FM_PATH_ABSENT: return "cannot open: there is no such file";
    case FM_PATH_FOLDER: return "not a regular file but a folder";
    case FM_PATH_OTHER: return "not a regular file but a device, a pipe or a socket";
    case FM_PATH_UNREADABLE: break;
    }
    switch (code) {
    case ENOENT: return dangling;
    case ENOTDIR: return dangling;
    case ELOOP: return "a symbolic link that leads back to itself";
    case EACCES: return "cannot look at it: permission denied";
    default: return "cannot look at it: input/output error";
    }
}

/* -- folders */

/* ENOENT and ENOTDIR mean that nothing is there only when the path itself is absent, too. */
static fm_status fail_folder(fm_error *reterr, const char *path) {
    int code = errno;
    fm_path_kind kind;
    fm_status status = is_absence(code) ? fm_path_look(path, &kind, reterr) : FM_OK;
    if (status) return status;
    bool absent = is_absence(code) && kind == FM_PATH_ABSENT;
    return fm_fail_in(reterr, absent ? FM_ERR_NOT_FOUND : FM_ERR_IO, path,
                      "cannot list the folder: %s", strerror(code));
}

/* The kind of an entry with links followed. The type that readdir gives saves a call for most. */
static fm_entry look_at(DIR *dir, const struct dirent *entry) {
    struct stat info;
    fm_entry found = {.kind = FM_PATH_UNREADABLE};
    if (entry->d_type == DT_DIR) {
        found.kind = FM_PATH_FOLDER;
    } else if (entry->d_type == DT_REG) {
        found.kind = FM_PATH_FILE;
    } else if (fstatat(dirfd(dir), entry->d_name, &info, 0) == 0) {
        found.kind = kind_of(&info);
    } else {
        found.code = errno;
    }
    return found;
}

static fm_status take_entry(DIR *dir, const struct dirent *entry, size_t max, fm_arena *arena,
                            fm_entry_list *list, fm_error *reterr) {
    size_t bytes = strlen(entry->d_name) + 1;
    fm_entry found = look_at(dir, entry);
    char *copy = fm_arena_alloc(arena, bytes);
    if (!copy) return fm_arena_full(arena, reterr);
    memcpy(copy, entry->d_name, bytes);
    found.name = copy;
    if (list->n >= max) return fm_fail(reterr, FM_ERR_LIMIT, "more than %zu entries", max);
    if (list->n == list->max) {
        size_t room = list->max ? 2 * list->max : 64;
        fm_entry *grown = realloc(list->entry, room * sizeof *grown);
        if (!grown) return fm_fail(reterr, FM_ERR_NOMEM, "out of memory");
        list->entry = grown;
        list->max = room;
    }
    list->entry[list->n++] = found;
    return FM_OK;
}

/* readdir returns NULL at the end and on failure; only errno tells them apart. */
static fm_status take_entries(DIR *dir, const char *path, size_t max, fm_arena *arena,
                              fm_entry_list *list, fm_error *reterr) {
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry) return errno ? fail_folder(reterr, path) : FM_OK;
        if (entry->d_name[0] == '.') continue;
        fm_status status = take_entry(dir, entry, max, arena, list, reterr);
        if (status) {
            if (reterr) fm_error_in(reterr, path);
            return status;
        }
    }
}

static int compare_entries(const void *a, const void *b) {
    return strcmp(((const fm_entry *)a)->name, ((const fm_entry *)b)->name);
}

fm_status fm_directory_read(const char *path, size_t max, fm_arena *arena, fm_entry_list *list,
                            fm_error *reterr) {
    *list = (fm_entry_list){0};
    DIR *dir = opendir(path);
    if (!dir) return fail_folder(reterr, path);
    fm_status status = take_entries(dir, path, max, arena, list, reterr);
    closedir(dir);
    if (status) {
        free(list->entry);
        *list = (fm_entry_list){0};
        return status;
    }
    if (list->n) qsort(list->entry, list->n, sizeof *list->entry, compare_entries);
    return FM_OK;
}

fm_status fm_directory_is_empty(const char *path, const char *except, bool *ret_empty,
                                fm_error *reterr) {
    DIR *dir = opendir(path);
    if (!dir) return fail_folder(reterr, path);
    bool empty = true, more = true;
    fm_status status = FM_OK;
    while (empty && more) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno) status = fail_folder(reterr, path);
        more = entry != NULL;
        empty = !entry || strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                (except && strcmp(entry->d_name, except) == 0);
    }
    closedir(dir);
    *ret_empty = empty;
    return status;
}

fm_status fm_directory_list(const char *path, bool folders, size_t max, fm_arena *arena,
                            fm_name_list *list, fm_error *reterr) {
    fm_entry_list entries;
    *list = (fm_name_list){0};
    fm_status status = fm_directory_read(path, max, arena, &entries, reterr);
    if (status || !entries.n) return status;
    const char **name = malloc(entries.n * sizeof *name);
    if (!name) status = fm_fail(reterr, FM_ERR_NOMEM, "out of memory");
    *list = (fm_name_list){.name = name, .max = entries.n};
    for (size_t i = 0; i < entries.n && !status; i++) {
        if ((entries.entry[i].kind == FM_PATH_FOLDER) == folders) {
            list->name[list->n++] = entries.entry[i].name;
        }
    }
    free(entries.entry);
    return status;
}

/* -- removing */

enum { MOST_DEPTH = 64 };

static fm_status fail_remove(fm_error *reterr, const char *name) {
    return fm_fail_in(reterr, FM_ERR_IO, name, "cannot remove: %s", strerror(errno));
}

/* Removes the entries of the folder `fd`, and closes it. */
static fm_status remove_inside(int fd, const char *path, int depth, fm_error *reterr) {
    DIR *dir = fdopendir(fd);
    if (!dir) {
        fm_status status = fail_remove(reterr, path);
        close(fd);
        return status;
    }
    fm_status status = FM_OK;
    for (;;) {
        errno = 0;
        const struct dirent *entry = status ? NULL : readdir(dir);
        if (!entry && errno) status = fail_remove(reterr, path);
        if (!entry) break;
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
        if (unlinkat(fd, name, 0) == 0) continue;
        if (errno != EISDIR && errno != EPERM) {
            status = fail_remove(reterr, name);
            continue;
        }
        int inside = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (inside < 0 || depth == MOST_DEPTH) {
            status = fail_remove(reterr, name);
            if (inside >= 0) close(inside);
            continue;
        }
        status = remove_inside(inside, name, depth + 1, reterr);
        if (!status && unlinkat(fd, name, AT_REMOVEDIR) != 0) status = fail_remove(reterr, name);
    }
    closedir(dir);
    return status;
}

fm_status fm_dir_remove(const char *path, fm_error *reterr) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? FM_OK : fail_remove(reterr, path);
    fm_status status = remove_inside(fd, path, 0, reterr);
    if (status) return status;
    return rmdir(path) == 0 ? FM_OK : fail_remove(reterr, path);
}
