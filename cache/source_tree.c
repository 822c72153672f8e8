/* source_tree.c: folders of structures and folders of alignments. See source_parts.h. */
#include "cache/source_parts.h"

#include <stdlib.h>
#include <string.h>

static char *glue(fm_arena *arena, const char *a, const char *b) {
    size_t a_bytes = strlen(a), b_bytes = strlen(b);
    char *text = fm_arena_alloc(arena, a_bytes + b_bytes + 1);
    if (!text) return NULL;
    memcpy(text, a, a_bytes);
    memcpy(text + a_bytes, b, b_bytes + 1);
    return text;
}

/* Length of the id in "<id>.cif[.gz]", 0 for other names. */
static size_t id_length(const char *name) {
    size_t length = strlen(name);
    if (length > 3 && strcmp(name + length - 3, ".gz") == 0) length -= 3;
    return length > 4 && memcmp(name + length - 4, ".cif", 4) == 0 ? length - 4 : 0;
}

static fm_status take_files(fm_source_scanning *scan, const char *folder, uint32_t *n,
                            fm_error *reterr) {
    fm_name_list files;
    fm_status status = fm_source_list(folder, false, scan->arena, &files, reterr);
    for (size_t i = 0; i < files.n && !status; i++) {
        size_t length = id_length(files.name[i]);
        if (!length) continue;
        if (!fm_source_is_good_name(files.name[i], length)) {
            status = fm_source_add_problem(scan, FM_SOURCE_BAD_NAME, files.name[i], reterr);
            continue;
        }
        const char *id = fm_source_copy(scan->arena, files.name[i], length);
        const char *path = fm_source_join(scan->arena, folder, files.name[i]);
        status = id && path ? fm_source_add_structure(scan, id, path, reterr)
                            : fm_arena_full(scan->arena, reterr);
        ++*n;
    }
    free(files.name);
    return status;
}

/* A divided mirror has folders of two characters: of 1abc the "ab". */
static fm_status take_divided(fm_source_scanning *scan, const char *folder, uint32_t *n,
                              fm_error *reterr) {
    fm_name_list folders;
    fm_status status = fm_source_list(folder, true, scan->arena, &folders, reterr);
    for (size_t i = 0; i < folders.n && !status; i++) {
        if (strlen(folders.name[i]) != 2) continue;
        const char *path = fm_source_join(scan->arena, folder, folders.name[i]);
        status = path ? take_files(scan, path, n, reterr) : fm_arena_full(scan->arena, reterr);
    }
    free(folders.name);
    return status;
}

static int compare_structures(const void *a, const void *b) {
    const fm_source_structure *left = a, *right = b;
    int order = strcmp(left->id, right->id);
    return order ? order : strcmp(left->path, right->path);
}

fm_status fm_source_take_structures(fm_source_scanning *scan, const char *folder, uint32_t *ret_n,
                                    fm_error *reterr) {
    uint32_t n_flat = 0, n_divided = 0, kept = 0;
    fm_status status = take_files(scan, folder, &n_flat, reterr);
    if (!status) status = take_divided(scan, folder, &n_divided, reterr);
    if (status) return status;
    if (scan->n_structure) {
        qsort(scan->structure, scan->n_structure, sizeof *scan->structure, compare_structures);
    }
    for (uint32_t i = 0; i < scan->n_structure; i++) {
        const fm_source_structure *structure = &scan->structure[i];
        if (kept && strcmp(structure->id, scan->structure[kept - 1].id) == 0) {
            status = fm_source_add_problem(scan, FM_SOURCE_TWICE, structure->path, reterr);
            if (status) return status;
        } else {
            scan->structure[kept++] = *structure;
        }
    }
    scan->n_structure = kept;
    const char *form = n_divided ? " (divided mirror)" : "";
    char *found = glue(scan->arena, folder, form);
    if (!found) return fm_arena_full(scan->arena, reterr);
    scan->structures_found = found;
    *ret_n = n_flat + n_divided;
    return FM_OK;
}

/* How the first folders of a tree look, for people: every chain's folder is read either way. */
static const char *name_layout(fm_source_scanning *scan, const char *folder,
                               const fm_name_list *names) {
    for (size_t i = 0; i < names->n && i < 8; i++) {
        const char *path = fm_source_join(scan->arena, folder, names->name[i]);
        fm_name_list inside;
        if (!path || fm_source_list(path, true, scan->arena, &inside, NULL)) continue;
        bool nested = false;
        for (size_t k = 0; k < inside.n; k++)
            nested |= strcmp(inside.name[k], "a3m") == 0 || strcmp(inside.name[k], "hhr") == 0;
        free(inside.name);
        if (nested) return ": OpenProteinSet's tree, <id>_<chain>/{a3m,hhr}/";
        if (fm_source_list(path, false, scan->arena, &inside, NULL)) continue;
        bool stockholm = false;
        for (size_t k = 0; k < inside.n; k++)
            stockholm |= strstr(inside.name[k], ".sto") != NULL;
        free(inside.name);
        if (stockholm) return ": a folder for each chain, with Stockholm files as AlphaFold's";
    }
    return ": a folder for each chain";
}

fm_status fm_source_take_tree(fm_source_scanning *scan, const char *folder, uint32_t *ret_n,
                              fm_error *reterr) {
    fm_name_list names;
    fm_status status = fm_source_list(folder, true, scan->arena, &names, reterr);
    for (size_t i = 0; i < names.n && !status; i++) {
        const char *path = fm_source_join(scan->arena, folder, names.name[i]);
        const fm_source_set set = {.name = names.name[i], .folder = path};
        status = path ? fm_source_add_set(scan, &set, reterr) : fm_arena_full(scan->arena, reterr);
    }
    if (!status && names.n) {
        const char *layout = name_layout(scan, folder, &names);
        char *found = glue(scan->arena, folder, layout);
        scan->alignments_found = found ? found : "";
    }
    free(names.name);
    *ret_n = (uint32_t)names.n;
    return status;
}
