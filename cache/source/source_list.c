/* source_list.c: names, and the lists that a scan collects. See source_parts.h. */
#include "cache/source/source_parts.h"

#include "proto/base/bisect.h"
#include "proto/base/utf8.h"
#include "proto/chem/pdb_id.h"
#include "proto/limits.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

char *fm_source_copy(fm_arena *arena, const char *text, size_t length) {
    char *copy = fm_arena_alloc(arena, length + 1);
    if (!copy) return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *fm_source_join(fm_arena *arena, const char *folder, const char *name) {
    size_t folder_bytes = strlen(folder), name_bytes = strlen(name);
    char *path = fm_arena_alloc(arena, folder_bytes + name_bytes + 2);
    if (!path) return NULL;
    memcpy(path, folder, folder_bytes);
    path[folder_bytes] = '/';
    memcpy(path + folder_bytes + 1, name, name_bytes + 1);
    return path;
}

bool fm_source_is_good_name(const char *name, size_t length) {
    if (length < 1 || length > FM_LIMIT_NAME_BYTES) return false;
    for (size_t i = 0; i < length; i++) {
        if ((uint8_t)name[i] <= 0x20 || (uint8_t)name[i] == 0x7f) return false;
    }
    return fm_utf8_is_whole(name, length);
}

bool fm_source_is_apple_double(const char *name) {
    return name[0] == '.' && name[1] == '_';
}

/* -- lists of a scan */

bool fm_source_grow(void **list, uint32_t n, uint32_t *max, size_t size) {
    if (n < *max) return true;
    if (n >= FM_LIMIT_N_CHAIN) return false;
    uint32_t wanted = *max ? 2 * *max : 256;
    void *grown = realloc(*list, wanted * size);
    if (!grown) return false;
    *list = grown;
    *max = wanted;
    return true;
}

static fm_status fail_list(fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_LIMIT, "no room for more than %u names of a dataset",
                   FM_LIMIT_N_CHAIN);
}

fm_status fm_source_add_structure(fm_source_scanning *scan, const fm_source_structure *structure,
                                  fm_error *reterr) {
    if (!fm_source_grow((void **)&scan->structure, scan->n_structure, &scan->max_structure,
                        sizeof *scan->structure)) {
        return fail_list(reterr);
    }
    scan->structure[scan->n_structure++] = *structure;
    return FM_OK;
}

fm_status fm_source_add_set(fm_source_scanning *scan, const fm_source_set *set, fm_error *reterr) {
    if (!fm_source_grow((void **)&scan->set, scan->n_set, &scan->max_set, sizeof *scan->set)) {
        return fail_list(reterr);
    }
    scan->set[scan->n_set] = *set;
    scan->set[scan->n_set].order = scan->n_set;
    scan->n_set++;
    return FM_OK;
}

fm_status fm_source_add_refusal(fm_source_scanning *scan, fm_source_reason reason, const char *name,
                                fm_error *reterr) {
    size_t prefix = scan->prefix ? strlen(scan->prefix) : 0, length = strlen(name);
    char *shown = fm_arena_alloc(scan->arena, prefix + length + 1);
    if (!shown) return fm_arena_full(scan->arena, reterr);
    if (prefix) memcpy(shown, scan->prefix, prefix);
    memcpy(shown + prefix, name, length + 1);
    for (char *c = shown; *c; c++) {
        if ((uint8_t)*c < 0x20 || *c == 0x7f) *c = '?';
    }
    if (!fm_source_grow((void **)&scan->refusal, scan->n_refusal, &scan->max_refusal,
                        sizeof *scan->refusal)) {
        return fail_list(reterr);
    }
    scan->refusal[scan->n_refusal++] = (fm_source_refusal){reason, shown};
    return FM_OK;
}

/* -- alignment sets */

static int compare_sets(const void *left, const void *right) {
    const fm_source_set *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    return order ? order : (a->order > b->order) - (a->order < b->order);
}

static bool is_same_place(const fm_source_set *a, const fm_source_set *b) {
    if (!a->db || !b->db || a->refusal || b->refusal || strcmp(a->db, b->db) != 0) return false;
    if (a->n_file != b->n_file) return false;
    for (uint32_t i = 0; i < a->n_file; i++) {
        const fm_index_file *x = &a->file[i], *y = &b->file[i];
        if (x->offset != y->offset || x->bytes != y->bytes || strcmp(x->name, y->name) != 0) {
            return false;
        }
    }
    return true;
}

fm_status fm_source_sort_sets(fm_source_scanning *scan, fm_error *reterr) {
    uint32_t kept = 0;
    if (scan->n_set) qsort(scan->set, scan->n_set, sizeof *scan->set, compare_sets);
    for (uint32_t i = 0; i < scan->n_set; i++) {
        const fm_source_set *set = &scan->set[i];
        if (!kept || strcmp(set->name, scan->set[kept - 1].name) != 0) {
            scan->set[kept++] = *set;
        } else if (!set->duplicate && !is_same_place(set, &scan->set[kept - 1])) {
            fm_source_reason reason = set->folder ? FM_SOURCE_TWO_SETS : FM_SOURCE_TWO_ENTRIES;
            fm_status status = fm_source_add_refusal(scan, reason, set->name, reterr);
            if (status) return status;
        }
    }
    scan->n_set = kept;
    for (uint32_t i = 0; i < kept; i++)
        scan->set[i].order = i;
    return FM_OK;
}

static int compare_to_set(const void *name, const void *set) {
    return strcmp(name, ((const fm_source_set *)set)->name);
}

const fm_source_set *fm_source_find_set(const fm_source_scanning *scan, const char *name) {
    if (!scan->n_set) return NULL;
    return bsearch(name, scan->set, scan->n_set, sizeof *scan->set, compare_to_set);
}

const fm_source_set *fm_source_find_set_any_spelling(const fm_source_scanning *scan,
                                                     const char *name) {
    char other[FM_LIMIT_NAME_BYTES + 1];
    const fm_source_set *found = fm_source_find_set(scan, name);
    for (int i = 0; i < FM_PDB_ID_N_SPELLING && !found && !scan->is_predicted; i++) {
        if (fm_pdb_id_respell(name, i, other, sizeof other)) {
            found = fm_source_find_set(scan, other);
        }
    }
    return found;
}

/* -- structures */

/* A key of `length` bytes, which need not be terminated. */
typedef struct key_view {
    const char *text;
    size_t length;
} key_view;

static int order_of_structure(const void *array, uint32_t i, const void *key) {
    const fm_source_structure *structure = array;
    const key_view *view = key;
    int order = strncmp(structure[i].key, view->text, view->length);
    return order == 0 && structure[i].key[view->length] != '\0' ? 1 : order;
}

static fm_source_structure *find_key(const fm_source_scanning *scan, const char *key,
                                     size_t length) {
    const key_view view = {key, length};
    uint32_t i;
    bool has = fm_bisect(scan->structure, scan->n_structure, order_of_structure, &view, &i);
    return has ? &scan->structure[i] : NULL;
}

fm_source_structure *fm_source_find_structure(const fm_source_scanning *scan, const char *id,
                                              size_t length) {
    char lower[FM_PDB_ID_BYTES];
    fm_source_structure *found = find_key(scan, id, length);
    if (found || scan->is_predicted || !fm_pdb_id_key(id, length, lower)) return found;
    found = find_key(scan, lower, sizeof lower);
    return found && !found->is_pdb ? found : NULL;
}
