/* source_tree.c: lists folders and archives of structures, and folders of alignments. See
 * source_parts.h. */
#include "cache/source/source_parts.h"

#include "featurizer/msa.h"
#include "proto/base/compress.h"
#include "proto/chem/pdb_id.h"
#include "proto/limits.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The two texts in the arena; NULL when it is full, or `a` is NULL. */
static char *glue(fm_arena *arena, const char *a, const char *b) {
    size_t a_bytes = a ? strlen(a) : 0, b_bytes = strlen(b);
    char *text = a ? fm_arena_alloc(arena, a_bytes + b_bytes + 1) : NULL;
    if (!text) return NULL;
    memcpy(text, a, a_bytes);
    memcpy(text + a_bytes, b, b_bytes + 1);
    return text;
}

static bool has_ending(const char *name, size_t length, const char *ending) {
    size_t size = strlen(ending);
    return length > size && memcmp(name + length - size, ending, size) == 0;
}

/* Length of the id in "<id>.cif" and "<id>.pdb", compressed or not; 0 for other names. Upper case
 * is accepted, as file systems without a case, and old archives, write it: "1ABC.CIF". */
static size_t id_length(const char *name, bool *ret_pdb) {
    size_t length;
    (void)fm_compression_of_name(name, &length);
    if (length <= 4 || fm_source_is_apple_double(name)) return 0;
    const char *ending = name + length - 4;
    *ret_pdb = strncasecmp(ending, ".pdb", 4) == 0;
    return *ret_pdb || strncasecmp(ending, ".cif", 4) == 0 ? length - 4 : 0;
}

/* Adds the structure with that file name and path; ignores names of other files. */
static fm_status take_file(fm_source_scanning *scan, const char *name, const char *path,
                           fm_archive *archive, uint64_t entry, uint32_t *n, fm_error *reterr) {
    bool is_pdb;
    size_t length = id_length(name, &is_pdb);
    if (!length) return FM_OK;
    ++*n;
    if (!fm_source_is_good_name(name, length)) {
        return fm_source_add_refusal(scan, FM_SOURCE_BAD_NAME, name, reterr);
    }
    const char *id = fm_source_copy(scan->arena, name, length);
    if (!id || !path) return fm_arena_full(scan->arena, reterr);
    const fm_source_structure structure = {
        .id = id, .path = path, .archive = archive, .entry = entry, .is_pdb = is_pdb};
    return fm_source_add_structure(scan, &structure, reterr);
}

/* -- archives */

/* The archive stays open until fm_source_close. */
static fm_status open_archive(fm_source_scanning *scan, const char *path, fm_archive **ret_archive,
                              fm_error *reterr) {
    if (!fm_source_grow((void **)&scan->archive, scan->n_archive, &scan->max_archive,
                        sizeof *scan->archive)) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of archives");
    }
    fm_status status = fm_archive_open(path, ret_archive, reterr);
    if (!status) scan->archive[scan->n_archive++] = *ret_archive;
    return status;
}

fm_status fm_source_take_archive(fm_source_scanning *scan, const char *path, uint32_t *ret_n,
                                 fm_error *reterr) {
    fm_archive *archive;
    uint32_t n = 0;
    fm_status status = open_archive(scan, path, &archive, reterr);
    for (uint64_t i = 0; !status && i < fm_archive_n_entry(archive); i++) {
        const char *name = fm_archive_name(archive, i);
        if (!name) continue;
        if (!fm_archive_is_good_name(name)) {
            status = fm_source_add_refusal(scan, FM_SOURCE_BAD_NAME, name, reterr);
            continue;
        }
        const char *slash = strrchr(name, '/');
        bool is_pdb;
        if (!id_length(slash ? slash + 1 : name, &is_pdb)) continue;
        const char *shown = fm_source_join(scan->arena, path, name);
        status = take_file(scan, slash ? slash + 1 : name, shown, archive, i, &n, reterr);
    }
    if (status) return status;
    scan->structures_found = glue(scan->arena, path, " (zip archive)");
    if (!scan->structures_found) return fm_arena_full(scan->arena, reterr);
    *ret_n = n;
    return FM_OK;
}

/* -- folders */

/* Takes an entry of a folder of structures. One with the name of a structure is taken whatever it
 * is: reading one that is no file refuses the chains that need it. */
static fm_status take_entry(fm_source_scanning *scan, const fm_entry *entry, const char *path,
                            uint32_t *n, uint32_t *n_packed, fm_error *reterr) {
    bool is_pdb;
    if (id_length(entry->name, &is_pdb)) {
        return take_file(scan, entry->name, path, NULL, 0, n, reterr);
    }
    if (entry->kind == FM_PATH_FOLDER) return FM_OK;
    if (has_ending(entry->name, strlen(entry->name), ".zip")) {
        uint32_t packed = 0;
        fm_status status = fm_source_take_archive(scan, path, &packed, reterr);
        *n_packed += packed;
        return status;
    }
    if (entry->kind == FM_PATH_FILE) return FM_OK;
    return fm_source_add_refusal(scan, FM_SOURCE_UNREADABLE, path, reterr);
}

static fm_status take_files(fm_source_scanning *scan, const char *folder, uint32_t *n,
                            uint32_t *n_packed, fm_error *reterr) {
    fm_entry_list entries;
    fm_status status = fm_directory_read(folder, FM_LIMIT_N_CHAIN, scan->arena, &entries, reterr);
    for (size_t i = 0; i < entries.n && !status; i++) {
        const char *path = fm_source_join(scan->arena, folder, entries.entry[i].name);
        status = path ? take_entry(scan, &entries.entry[i], path, n, n_packed, reterr)
                      : fm_arena_full(scan->arena, reterr);
    }
    free(entries.entry);
    return status;
}

/* A divided mirror has folders of two characters: 1abc is in "ab". */
static fm_status take_divided(fm_source_scanning *scan, const char *folder, uint32_t *n,
                              uint32_t *n_packed, fm_error *reterr) {
    fm_name_list folders;
    fm_status status =
        fm_directory_list(folder, true, FM_LIMIT_N_CHAIN, scan->arena, &folders, reterr);
    for (size_t i = 0; i < folders.n && !status; i++) {
        if (strlen(folders.name[i]) != 2) continue;
        const char *path = fm_source_join(scan->arena, folder, folders.name[i]);
        status =
            path ? take_files(scan, path, n, n_packed, reterr) : fm_arena_full(scan->arena, reterr);
    }
    free(folders.name);
    return status;
}

static int compare_structures(const void *a, const void *b) {
    const fm_source_structure *left = a, *right = b;
    int order = strcmp(left->key, right->key);
    if (!order) order = (strcmp(left->id, left->key) != 0) - (strcmp(right->id, right->key) != 0);
    if (!order) order = strcmp(left->path, right->path);
    return order ? order : (left->entry > right->entry) - (left->entry < right->entry);
}

/* Predictions have names of any kind, and upper case tells them apart. */
static fm_status set_key(fm_source_scanning *scan, fm_source_structure *structure,
                         fm_error *reterr) {
    structure->key = structure->id;
    size_t length = strlen(structure->id);
    if (scan->is_predicted || structure->is_pdb) return FM_OK;
    char lower[FM_PDB_ID_BYTES];
    if (!fm_pdb_id_key(structure->id, length, lower)) return FM_OK;
    structure->key = fm_source_copy(scan->arena, lower, sizeof lower);
    if (!structure->key) return fm_arena_full(scan->arena, reterr);
    return FM_OK;
}

fm_status fm_source_sort_structures(fm_source_scanning *scan, fm_error *reterr) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < scan->n_structure; i++) {
        fm_status status = set_key(scan, &scan->structure[i], reterr);
        if (status) return status;
    }
    if (scan->n_structure) {
        qsort(scan->structure, scan->n_structure, sizeof *scan->structure, compare_structures);
    }
    for (uint32_t i = 0; i < scan->n_structure; i++) {
        const fm_source_structure *structure = &scan->structure[i];
        if (kept && strcmp(structure->key, scan->structure[kept - 1].key) == 0) {
            fm_status status =
                fm_source_add_refusal(scan, FM_SOURCE_TWICE, structure->path, reterr);
            if (status) return status;
        } else {
            scan->structure[kept++] = *structure;
        }
    }
    scan->n_structure = kept;
    return FM_OK;
}

fm_status fm_source_take_structures(fm_source_scanning *scan, const char *folder, uint32_t *ret_n,
                                    fm_error *reterr) {
    uint32_t n_flat = 0, n_divided = 0, n_packed = 0;
    fm_status status = take_files(scan, folder, &n_flat, &n_packed, reterr);
    if (!status) status = take_divided(scan, folder, &n_divided, &n_packed, reterr);
    if (status) return status;
    const char *form = n_divided && n_packed ? " (divided mirror, zip archives)"
                       : n_divided           ? " (divided mirror)"
                       : n_packed            ? " (zip archives)"
                                             : "";
    char *found = glue(scan->arena, folder, form);
    if (!found) return fm_arena_full(scan->arena, reterr);
    scan->structures_found = found;
    *ret_n = n_flat + n_divided + n_packed;
    return FM_OK;
}

/* -- nested structures */

static const char *const NESTED[] = {"pdb", "cif"};

/* Decides from the first folders of the tree whether they contain structures. */
static fm_status is_nested(fm_source_scanning *scan, const char *folder, const fm_name_list *names,
                           bool *ret_nested, fm_error *reterr) {
    *ret_nested = false;
    for (size_t i = 0; i < names->n && i < 8; i++) {
        const char *path = fm_source_join(scan->arena, folder, names->name[i]);
        fm_name_list inside;
        if (!path) return fm_arena_full(scan->arena, reterr);
        fm_status status =
            fm_directory_list(path, true, FM_LIMIT_N_CHAIN, scan->arena, &inside, reterr);
        if (status) return status;
        for (size_t k = 0; k < inside.n; k++) {
            *ret_nested |= strcmp(inside.name[k], NESTED[0]) == 0;
            *ret_nested |= strcmp(inside.name[k], NESTED[1]) == 0;
        }
        free(inside.name);
    }
    return FM_OK;
}

/* Adds the structures in folder/name/inside; each has the id `name`. */
static fm_status take_inside(fm_source_scanning *scan, const char *folder, const char *name,
                             const char *inside, uint32_t *n, fm_error *reterr) {
    const char *middle = fm_source_join(scan->arena, folder, name);
    const char *path = middle ? fm_source_join(scan->arena, middle, inside) : NULL;
    if (!path) return fm_arena_full(scan->arena, reterr);
    fm_name_list files;
    fm_status status =
        fm_directory_list(path, false, FM_LIMIT_N_CHAIN, scan->arena, &files, reterr);
    if (status == FM_ERR_NOT_FOUND) return FM_OK;
    /* One prediction is lost, not the dataset; its alignments are refused without a structure. */
    if (status == FM_ERR_IO) return fm_source_add_refusal(scan, FM_SOURCE_UNREADABLE, path, reterr);
    for (size_t i = 0; i < files.n && !status; i++) {
        fm_source_structure structure = {.id = name, .is_nested = true};
        if (!id_length(files.name[i], &structure.is_pdb)) continue;
        structure.path = fm_source_join(scan->arena, path, files.name[i]);
        status = structure.path ? fm_source_add_structure(scan, &structure, reterr)
                                : fm_arena_full(scan->arena, reterr);
        ++*n;
    }
    free(files.name);
    return status;
}

fm_status fm_source_take_nested(fm_source_scanning *scan, const char *folder, uint32_t *ret_n,
                                fm_error *reterr) {
    fm_name_list names;
    bool nested = false;
    uint32_t n = 0;
    fm_status status =
        fm_directory_list(folder, true, FM_LIMIT_N_CHAIN, scan->arena, &names, reterr);
    if (!status) status = is_nested(scan, folder, &names, &nested, reterr);
    for (size_t i = 0; i < names.n && !status && nested; i++) {
        /* A bad name is refused with its alignments. */
        if (!fm_source_is_good_name(names.name[i], strlen(names.name[i]))) continue;
        for (int k = 0; k < 2 && !status; k++)
            status = take_inside(scan, folder, names.name[i], NESTED[k], &n, reterr);
    }
    free(names.name);
    if (status) return status;
    if (n) {
        scan->structures_found = glue(scan->arena, folder, ": OpenProteinSet's tree, <name>/pdb/");
        if (!scan->structures_found) return fm_arena_full(scan->arena, reterr);
    }
    *ret_n = n;
    return FM_OK;
}

/* -- alignments */

/* Describes the layout of the first folders, for reports; it does not change how they are read. */
static const char *name_layout(fm_source_scanning *scan, const char *folder,
                               const fm_name_list *names) {
    for (size_t i = 0; i < names->n && i < 8; i++) {
        const char *path = fm_source_join(scan->arena, folder, names->name[i]);
        fm_name_list inside;
        if (!path || fm_directory_list(path, true, FM_LIMIT_N_CHAIN, scan->arena, &inside, NULL)) {
            continue;
        }
        bool nested = false;
        for (size_t k = 0; k < inside.n; k++)
            nested |= strcmp(inside.name[k], "a3m") == 0 || strcmp(inside.name[k], "hhr") == 0;
        free(inside.name);
        if (nested) return ": OpenProteinSet's tree, <id>_<chain>/{a3m,hhr}/";
        if (fm_directory_list(path, false, FM_LIMIT_N_CHAIN, scan->arena, &inside, NULL)) continue;
        bool stockholm = false;
        for (size_t k = 0; k < inside.n; k++)
            stockholm |= strstr(inside.name[k], ".sto") != NULL;
        free(inside.name);
        if (stockholm) return ": a folder for each chain, with Stockholm files as AlphaFold's";
    }
    return ": a folder for each chain";
}

/* A file of a flat folder, and the length of the name of its chain. */
typedef struct flat_file {
    const char *name;
    size_t length;
} flat_file;

static int compare_flat(const void *left, const void *right) {
    const flat_file *a = left, *b = right;
    size_t n = a->length < b->length ? a->length : b->length;
    int order = memcmp(a->name, b->name, n);
    if (!order) order = (a->length > b->length) - (a->length < b->length);
    return order ? order : strcmp(a->name, b->name);
}

static bool is_same_chain(const flat_file *a, const flat_file *b) {
    return a->length == b->length && memcmp(a->name, b->name, a->length) == 0;
}

/* Returns the length of the chain's name in the name of an alignment or of a list of template hits,
 * compressed or not; 0 for other files. */
static size_t chain_length_of(const char *name) {
    size_t bare;
    (void)fm_compression_of_name(name, &bare);
    bool is_search = has_ending(name, bare, ".hhr") || has_ending(name, bare, ".sto");
    if (!is_search && !fm_msa_format_of_name(name)) return 0;
    if (fm_source_is_apple_double(name)) return 0;
    while (name[bare - 1] != '.')
        bare--;
    return bare - 1;
}

/* The entries that have the names of chains' files, whatever they are, by chain; the list is on the
 * heap. Reading one that is no file refuses the chain. */
static fm_status list_flat(const fm_entry_list *entries, flat_file **ret_list, size_t *ret_n,
                           fm_error *reterr) {
    flat_file *list = calloc(entries->n + 1, sizeof *list);
    size_t n = 0;
    for (size_t i = 0; i < entries->n && list; i++) {
        size_t length = chain_length_of(entries->entry[i].name);
        if (length) list[n++] = (flat_file){entries->entry[i].name, length};
    }
    if (!list) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of files");
    if (n) qsort(list, n, sizeof *list, compare_flat);
    *ret_list = list;
    *ret_n = n;
    return FM_OK;
}

/* <name>.a3m, .sto, .hhr and the like, compressed or not, are the files of the chain <name>. */
static fm_status take_flat(fm_source_scanning *scan, const char *folder,
                           const fm_entry_list *entries, uint32_t *ret_n, fm_error *reterr) {
    flat_file *list;
    size_t n;
    fm_status status = list_flat(entries, &list, &n, reterr);
    if (status) return status;
    fm_index_file *file = fm_arena_alloc_array(scan->arena, n, sizeof *file);
    if (!file) status = fm_arena_full(scan->arena, reterr);
    *ret_n = 0;
    for (size_t i = 0, end = 0; i < n && !status; i = end) {
        fm_source_set set = {.folder = folder, .file = file + i};
        for (; end < n && is_same_chain(&list[i], &list[end]); end++)
            file[end] = (fm_index_file){list[end].name, 0, UINT64_MAX};
        set.n_file = (uint32_t)(end - i);
        set.name = fm_source_copy(scan->arena, list[i].name, list[i].length);
        status =
            set.name ? fm_source_add_set(scan, &set, reterr) : fm_arena_full(scan->arena, reterr);
        ++*ret_n;
    }
    free(list);
    return status;
}

/* Adds the folders of chains. An entry that is no folder and cannot be a file may be one: it
 * becomes a refused set, so that its chain is refused with the reason. */
static fm_status take_folders(fm_source_scanning *scan, const char *folder,
                              const fm_entry_list *entries, fm_name_list *folders,
                              fm_error *reterr) {
    for (size_t i = 0; i < entries->n; i++) {
        const fm_entry *entry = &entries->entry[i];
        if (entry->kind == FM_PATH_FILE || chain_length_of(entry->name)) continue;
        const char *path = fm_source_join(scan->arena, folder, entry->name);
        if (!path) return fm_arena_full(scan->arena, reterr);
        fm_source_set set = {.name = entry->name, .folder = path};
        if (entry->kind == FM_PATH_FOLDER) {
            folders->name[folders->n++] = entry->name;
        } else {
            set.refusal = glue(scan->arena, glue(scan->arena, path, ": "),
                               fm_path_refusal(entry->kind, entry->code));
            set.is_unreadable = true;
            if (!set.refusal) return fm_arena_full(scan->arena, reterr);
        }
        fm_status status = fm_source_add_set(scan, &set, reterr);
        if (status) return status;
    }
    return FM_OK;
}

fm_status fm_source_take_tree(fm_source_scanning *scan, const char *folder, uint32_t *ret_n,
                              fm_error *reterr) {
    fm_entry_list entries;
    uint32_t n_flat = 0;
    fm_status status = fm_directory_read(folder, FM_LIMIT_N_CHAIN, scan->arena, &entries, reterr);
    if (status) return status;
    fm_name_list names = {.name = calloc(entries.n + 1, sizeof *names.name)};
    if (!names.name) status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of folders");
    if (!status) status = take_folders(scan, folder, &entries, &names, reterr);
    if (!status) status = take_flat(scan, folder, &entries, &n_flat, reterr);
    if (!status && (names.n || n_flat)) {
        const char *layout = names.n ? name_layout(scan, folder, &names) : "";
        const char *files = !n_flat    ? ""
                            : !names.n ? ": files named as chains, <name>.a3m"
                                       : ", and files named as chains";
        char *found = glue(scan->arena, folder, layout);
        if (found) found = glue(scan->arena, found, files);
        scan->alignments_found = found ? found : "";
    }
    *ret_n = (uint32_t)names.n + n_flat;
    free(names.name);
    free(entries.entry);
    return status;
}
