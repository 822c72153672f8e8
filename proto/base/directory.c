/* directory.c: see directory.h. */
#include "proto/base/directory.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool append_name(fm_name_list *list, const char *name) {
    if (list->n == list->max) {
        size_t max = list->max ? 2 * list->max : 64;
        const char **grown = realloc(list->name, max * sizeof *grown);
        if (!grown) return false;
        list->name = grown;
        list->max = max;
    }
    list->name[list->n++] = name;
    return true;
}

/* True when the entry, with links followed, is a folder, or a regular file, as asked for. */
static bool is_wanted(DIR *dir, const struct dirent *entry, bool folders) {
    if (entry->d_name[0] == '.') return false;
    if (entry->d_type == DT_DIR) return folders;
    if (entry->d_type == DT_REG) return !folders;
    struct stat info;
    if (fstatat(dirfd(dir), entry->d_name, &info, 0) != 0) return false;
    return folders ? S_ISDIR(info.st_mode) : S_ISREG(info.st_mode);
}

static fm_status fail_folder(fm_error *reterr, const char *path) {
    int code = errno;
    fm_status status = fm_fail(reterr, code == ENOENT ? FM_ERR_NOT_FOUND : FM_ERR_IO,
                               "cannot list the folder: %s", strerror(code));
    if (reterr) fm_error_in(reterr, path);
    return status;
}

static fm_status take_name(const char *name, size_t max, fm_arena *arena, fm_name_list *list,
                           fm_error *reterr) {
    size_t bytes = strlen(name) + 1;
    char *copy = fm_arena_alloc(arena, bytes);
    if (!copy) return fm_arena_full(arena, reterr);
    memcpy(copy, name, bytes);
    if (list->n >= max) return fm_fail(reterr, FM_ERR_LIMIT, "more than %zu entries", max);
    if (!append_name(list, copy)) return fm_fail(reterr, FM_ERR_NOMEM, "out of memory");
    return FM_OK;
}

/* readdir returns NULL at the end and on failure; only errno tells them apart. */
static fm_status take_names(DIR *dir, const char *path, bool folders, size_t max, fm_arena *arena,
                            fm_name_list *list, fm_error *reterr) {
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry) return errno ? fail_folder(reterr, path) : FM_OK;
        if (!is_wanted(dir, entry, folders)) continue;
        fm_status status = take_name(entry->d_name, max, arena, list, reterr);
        if (status) {
            if (reterr) fm_error_in(reterr, path);
            return status;
        }
    }
}

fm_status fm_directory_list(const char *path, bool folders, size_t max, fm_arena *arena,
                            fm_name_list *list, fm_error *reterr) {
    *list = (fm_name_list){0};
    DIR *dir = opendir(path);
    if (!dir) return fail_folder(reterr, path);
    fm_status status = take_names(dir, path, folders, max, arena, list, reterr);
    closedir(dir);
    if (status) {
        free(list->name);
        *list = (fm_name_list){0};
        return status;
    }
    if (list->n) qsort(list->name, list->n, sizeof *list->name, compare_names);
    return FM_OK;
}
