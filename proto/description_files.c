/* description_files.c: see description_files.h. */
#include "proto/description_files.h"

#include <stdio.h>
#include <string.h>

static bool ends_with(const char *name, size_t size, const char *end) {
    const size_t n = strlen(end);
    return size > n && memcmp(name + size - n, end, n) == 0;
}

bool fm_description_is_prepared(const char *name) {
    return ends_with(name, strlen(name), ".npz");
}

static bool is_description(const char *name) {
    static const char *const packed[] = {".gz", ".xz", ".zst"};
    static const char *const ends[] = {".json", ".yaml", ".yml", ".fasta", ".fa", ".fas", ".faa"};
    size_t size = strlen(name);
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++) {
        if (!ends_with(name, size, packed[i])) continue;
        size -= strlen(packed[i]);
        break;
    }
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (ends_with(name, size, ends[i])) return true;
    return false;
}

fm_status fm_description_files_list(const char *path, bool prepared, fm_arena *arena,
                                    bool *ret_is_folder, fm_name_list *list, fm_error *reterr) {
    fm_path_kind kind;
    size_t kept = 0;
    *list = (fm_name_list){.name = NULL};
    fm_status status = fm_path_look(path, &kind, reterr);
    *ret_is_folder = !status && kind == FM_PATH_FOLDER;
    if (!*ret_is_folder) return status;
    status = fm_directory_list(path, false, FM_DESCRIPTION_FILES, arena, list, reterr);
    for (size_t i = 0; i < list->n && !status; i++) {
        const char *name = list->name[i];
        if (!is_description(name) && !(prepared && fm_description_is_prepared(name))) continue;
        const size_t room = strlen(path) + strlen(name) + 2;
        char *full = fm_arena_alloc(arena, room);
        if (!full) return fm_arena_full(arena, reterr);
        snprintf(full, room, "%s/%s", path, name);
        list->name[kept++] = full;
    }
    list->n = status ? list->n : kept;
    return status;
}
