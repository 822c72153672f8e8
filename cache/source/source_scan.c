/* source_scan.c: recognises the layout of datasets and joins structures with alignments. See
 * source.h. */
#include "cache/source/source_parts.h"

#include "cache/source/names.h"
#include "proto/base/bisect.h"
#include "proto/base/file.h"
#include "proto/chem/pdb_id.h"
#include "proto/limits.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *fm_source_reason_text(fm_source_reason reason) {
    switch (reason) {
    case FM_SOURCE_NO_STRUCTURE: return "alignments without a structure";
    case FM_SOURCE_NO_ALIGNMENTS: return "structures without alignments";
    case FM_SOURCE_BAD_NAME: return "names that cannot be a chain's";
    case FM_SOURCE_TWICE: return "structures that are there twice";
    case FM_SOURCE_TWO_ENTRIES: return "alignments that two indices have";
    case FM_SOURCE_TWO_SETS: return "alignments that a chain has already";
    case FM_SOURCE_UNREADABLE: return "entries that cannot be read";
    case FM_N_SOURCE_REASON: break;
    }
    return "unknown";
}

/* -- layout */

static bool has_ending(const char *name, const char *ending) {
    size_t length = strlen(name), size = strlen(ending);
    return length > size && strcmp(name + length - size, ending) == 0;
}

/* Tries DATASET/<name>, then the archive DATASET/<name>.zip; *ret_n = 0 and FM_ERR_NOT_FOUND when
 * neither exists. */
static fm_status try_structures(fm_source_scanning *scan, const char *dataset, const char *name,
                                const char **ret_folder, uint32_t *ret_n, fm_error *reterr) {
    char packed[64];
    const char *folder = fm_source_join(scan->arena, dataset, name);
    if (!folder) return fm_arena_full(scan->arena, reterr);
    fm_status status = fm_source_take_structures(scan, folder, ret_n, reterr);
    if (!status) *ret_folder = folder;
    if ((status && status != FM_ERR_NOT_FOUND) || *ret_n) return status;
    snprintf(packed, sizeof packed, "%s.zip", name);
    const char *archive = fm_source_join(scan->arena, dataset, packed);
    if (!archive) return fm_arena_full(scan->arena, reterr);
    fm_status second = fm_source_take_archive(scan, archive, ret_n, reterr);
    return second == FM_ERR_NOT_FOUND ? status : second;
}

/* Takes the first of the usual folders that has structures, or the first that exists. */
static fm_status find_structures(fm_source_scanning *scan, const fm_source_options *options,
                                 fm_error *reterr) {
    static const char *const names[] = {"mmcifs",    "data",        "pdb_mmcif/mmcif_files",
                                        "pdb_mmcif", "mmcif_files", "structures",
                                        "mmCIF",     "mmcif"};
    uint32_t n = 0;
    const char *empty = NULL, *given = options->structures, *dataset = options->dataset;
    if (given) {
        return has_ending(given, ".zip") ? fm_source_take_archive(scan, given, &n, reterr)
                                         : fm_source_take_structures(scan, given, &n, reterr);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !n; i++) {
        const char *folder = NULL;
        fm_status status = try_structures(scan, dataset, names[i], &folder, &n, reterr);
        if (status && status != FM_ERR_NOT_FOUND) return status;
        if (folder && !empty) empty = folder;
    }
    fm_status status = FM_OK;
    if (!n) status = fm_source_take_structures(scan, dataset, &n, reterr);
    if (!n && !status) status = fm_source_take_nested(scan, dataset, &n, reterr);
    if (status && status != FM_ERR_NOT_FOUND) return status;
    if (empty && !n) scan->structures_found = empty;
    if (n || empty) return FM_OK;
    fm_path_kind kind;
    status = fm_path_look(dataset, &kind, reterr);
    if (status) return status;
    if (kind == FM_PATH_ABSENT) {
        return fm_fail_in(reterr, FM_ERR_NOT_FOUND, dataset, "cannot open the dataset: %s",
                          strerror(ENOENT));
    }
    status = fm_fail(reterr, FM_ERR_NOT_FOUND,
                     "found no folder of structures; expected DATASET/mmcifs/<id>.cif "
                     "and DATASET/alignments/<id>_<chain>/, or --structures DIR");
    if (reterr) fm_error_in(reterr, dataset);
    return status;
}

/* Takes the indices of a folder; *ret_n = 0 when it has none. */
static fm_status take_database(fm_source_scanning *scan, const char *folder, uint32_t *ret_n,
                               fm_error *reterr) {
    fm_name_list files;
    fm_status status =
        fm_directory_list(folder, false, FM_LIMIT_N_CHAIN, scan->arena, &files, reterr);
    if (status) return status;
    size_t kept = 0;
    for (size_t i = 0; i < files.n; i++) {
        if (has_ending(files.name[i], ".index")) files.name[kept++] = files.name[i];
    }
    files.n = kept;
    *ret_n = 0;
    if (kept) status = fm_source_take_indices(scan, folder, &files, ret_n, reterr);
    free(files.name);
    return status;
}

/* Takes one index, by its path. */
static fm_status take_one_index(fm_source_scanning *scan, const char *path, uint32_t *ret_n,
                                fm_error *reterr) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const fm_name_list one = {&name, 1, 1};
    const char *folder = slash ? fm_source_copy(scan->arena, path, (size_t)(slash - path)) : ".";
    if (!folder) return fm_arena_full(scan->arena, reterr);
    return fm_source_take_indices(scan, folder, &one, ret_n, reterr);
}

static fm_status find_alignments(fm_source_scanning *scan, const fm_source_options *options,
                                 bool is_tree, fm_error *reterr) {
    static const char *const names[] = {"alignments", "alignment_db", "alignment_dbs", "pdb"};
    uint32_t n = 0;
    fm_status status = FM_OK;
    if (options->alignments) {
        const char *given = options->alignments;
        if (has_ending(given, ".index")) return take_one_index(scan, given, &n, reterr);
        status = take_database(scan, given, &n, reterr);
        return status || n ? status : fm_source_take_tree(scan, given, &n, reterr);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !n && !status; i++) {
        const char *folder = fm_source_join(scan->arena, options->dataset, names[i]);
        if (!folder) return fm_arena_full(scan->arena, reterr);
        status = take_database(scan, folder, &n, reterr);
        if (!status && !n) status = fm_source_take_tree(scan, folder, &n, reterr);
        if (status == FM_ERR_NOT_FOUND) status = FM_OK;
    }
    if (!n && !status) status = take_database(scan, options->dataset, &n, reterr);
    /* The folders of the structures have the alignments, too. */
    if (!n && !status && is_tree) status = fm_source_take_tree(scan, options->dataset, &n, reterr);
    return status;
}

static fm_status find_duplicates(fm_source_scanning *scan, const fm_source_options *options,
                                 fm_error *reterr) {
    static const char *const names[] = {"duplicate_pdb_chains.txt", "pdb/duplicate_pdb_chains.txt"};
    fm_bytes text;
    fm_status status = FM_ERR_NOT_FOUND;
    const char *path = options->duplicates, *here = path;
    if (path) status = fm_file_read_text(scan->arena, path, FM_LIMIT_INPUT_BYTES, &text, reterr);
    for (size_t i = 0; i < 2 && !path && status == FM_ERR_NOT_FOUND; i++) {
        here = fm_source_join(scan->arena, options->dataset, names[i]);
        if (!here) return fm_arena_full(scan->arena, reterr);
        status = fm_file_read_text(scan->arena, here, FM_LIMIT_INPUT_BYTES, &text, reterr);
    }
    if (status == FM_ERR_NOT_FOUND && !path) return FM_OK;
    if (status) return status;
    status = fm_source_take_duplicates(scan, text, reterr);
    if (status && reterr) fm_error_in(reterr, here);
    return status;
}

/* -- joining */

/* Have the alignments been found under the spelling of the id that comes first: that of the
 * structure's file, then lower case? */
static bool is_second_spelling(const fm_source_scanning *scan, const fm_source_set *set,
                               const fm_source_structure *structure, const char *chain) {
    char name[FM_LIMIT_NAME_BYTES + 2];
    const char *const first[] = {structure->id, structure->key};
    for (size_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s_%s", first[i], chain);
        if (strcmp(name, set->name) == 0) return false;
        if (fm_source_find_set(scan, name)) return true;
    }
    return false;
}

/* The structure of a set's chain, or NULL with a refusal. A prediction's set is called after its
 * file, and the chain is the only one there; other sets end in "_<chain>". */
static fm_status match(fm_source_scanning *scan, fm_source_set *set,
                       fm_source_structure **ret_structure, fm_error *reterr) {
    const char *split = strrchr(set->name, '_');
    size_t length = strlen(set->name);
    fm_source_structure *whole = fm_source_find_structure(scan, set->name, length), *found = NULL;
    bool is_prediction = whole && (whole->is_pdb || scan->is_predicted);
    *ret_structure = NULL;
    bool is_good = fm_source_is_good_name(set->name, length) &&
                   length + strlen(scan->prefix) <= FM_LIMIT_NAME_BYTES;
    if (!is_good || (!is_prediction && !scan->is_predicted && (!split || !split[1]))) {
        fm_source_reason reason = set->is_unreadable ? FM_SOURCE_UNREADABLE
                                  : is_good          ? FM_SOURCE_NO_STRUCTURE
                                                     : FM_SOURCE_BAD_NAME;
        return fm_source_add_refusal(scan, reason, set->name, reterr);
    }
    set->author_id = NULL;
    if (is_prediction) {
        found = whole;
    } else if (split && split[1]) {
        found = fm_source_find_structure(scan, set->name, (size_t)(split - set->name));
        set->author_id = split + 1;
    }
    bool is_second =
        found && !is_prediction && is_second_spelling(scan, set, found, set->author_id);
    if (!is_second) *ret_structure = found;
    /* Lists of duplicates name chains that many datasets do not have. */
    if (*ret_structure || set->duplicate) return FM_OK;
    fm_source_reason reason = is_second            ? FM_SOURCE_TWO_SETS
                              : set->is_unreadable ? FM_SOURCE_UNREADABLE
                                                   : FM_SOURCE_NO_STRUCTURE;
    return fm_source_add_refusal(scan, reason, set->name, reterr);
}

/* The chain's name, with the dataset's prefix. */
static const char *chain_name(const fm_source_scanning *scan, const fm_source_set *set) {
    size_t prefix = strlen(scan->prefix), length = strlen(set->name);
    if (!prefix) return set->name;
    char *name = fm_arena_alloc(scan->arena, prefix + length + 1);
    if (!name) return NULL;
    memcpy(name, scan->prefix, prefix);
    memcpy(name + prefix, set->name, length + 1);
    return name;
}

/* Joins sets and structures. Sets are sorted by name, so the chains of each structure are, too. */
static fm_status join(fm_source_scanning *scan, fm_source_dataset *dataset, fm_error *reterr) {
    fm_source_structure **of = calloc((size_t)scan->n_set + 1, sizeof(fm_source_structure *));
    fm_source_chain *chain = fm_arena_alloc_array(scan->arena, scan->n_set, sizeof *chain);
    fm_status status = of && chain ? FM_OK : fm_arena_full(scan->arena, reterr);
    for (uint32_t i = 0; i < scan->n_set && !status; i++) {
        status = match(scan, &scan->set[i], &of[i], reterr);
        if (!status && of[i]) of[i]->n_chain++;
    }
    fm_source_chain *next = chain;
    for (uint32_t i = 0; i < scan->n_structure && !status; i++) {
        fm_source_structure *structure = &scan->structure[i];
        structure->chain = next;
        next += structure->n_chain;
        if (!structure->n_chain) {
            status = fm_source_add_refusal(scan, FM_SOURCE_NO_ALIGNMENTS, structure->id, reterr);
        }
        structure->n_chain = 0;
    }
    for (uint32_t i = 0; i < scan->n_set && !status; i++) {
        const fm_source_set *set = &scan->set[i];
        if (!of[i]) continue;
        fm_source_chain *here = chain + (of[i]->chain - chain) + of[i]->n_chain++;
        *here = (fm_source_chain){.name = chain_name(scan, set),
                                  .author_id = set->author_id,
                                  .folder = set->folder,
                                  .db = set->db,
                                  .file = set->file,
                                  .n_file = set->n_file,
                                  .refusal = set->refusal,
                                  .is_unreadable = set->is_unreadable};
        if (!here->name) status = fm_arena_full(scan->arena, reterr);
        dataset->n_chain++;
        dataset->n_duplicate += set->duplicate;
    }
    free(of);
    return status;
}

/* -- datasets */

/* What has been found so far; the lists grow on the heap. */
typedef struct gathering {
    fm_source_scanning scan;
    fm_source_structure *structure;
    uint32_t n_structure, max_structure;
    fm_source_dataset dataset[FM_SOURCE_N_DATASET];
    uint32_t n_dataset;
} gathering;

static fm_status check_name(const gathering *all, const char *name, bool is_alone,
                            fm_error *reterr) {
    if (!name && is_alone) return FM_OK;
    if (!name || !fm_name_is_dataset(name, strlen(name))) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "'%.80s' cannot be a dataset's name; expected 1 to %d of A-Z a-z 0-9 . _ -",
                       name ? name : "", FM_SOURCE_DATASET_BYTES);
    }
    if (all->n_dataset == FM_SOURCE_N_DATASET) {
        return fm_fail(reterr, FM_ERR_LIMIT, "more than %d datasets", FM_SOURCE_N_DATASET);
    }
    for (uint32_t i = 0; i < all->n_dataset; i++) {
        if (strcmp(all->dataset[i].name, name) == 0) {
            return fm_fail(reterr, FM_ERR_USAGE, "two datasets are called '%s'", name);
        }
    }
    return FM_OK;
}

/* Appends the structures of the current dataset to those of all. */
static fm_status keep_structures(gathering *all, fm_error *reterr) {
    const fm_source_scanning *scan = &all->scan;
    for (uint32_t i = 0; i < scan->n_structure; i++) {
        if (!fm_source_grow((void **)&all->structure, all->n_structure, &all->max_structure,
                            sizeof *all->structure)) {
            return fm_fail(reterr, FM_ERR_LIMIT, "no room for more than %u structures",
                           FM_LIMIT_N_CHAIN);
        }
        all->structure[all->n_structure] = scan->structure[i];
        all->structure[all->n_structure++].dataset = all->n_dataset;
    }
    return FM_OK;
}

/* The folder's real path, by which a cache knows its datasets. */
static const char *name_path(fm_arena *arena, const char *folder) {
    char whole[PATH_MAX];
    if (!realpath(folder, whole)) snprintf(whole, sizeof whole, "%s", folder);
    for (char *at = whole; *at; at++) {
        if ((unsigned char)*at < ' ') *at = '?';
    }
    return fm_source_copy(arena, whole, strlen(whole));
}

static fm_status scan_dataset(gathering *all, const fm_source_options *options, fm_error *reterr) {
    fm_source_scanning *scan = &all->scan;
    const char *name = options->name ? options->name : "";
    char prefix[FM_SOURCE_DATASET_BYTES + 2];
    int length = snprintf(prefix, sizeof prefix, "%s%s", name, name[0] ? ":" : "");
    fm_source_dataset dataset = {
        .name = fm_source_copy(scan->arena, name, strlen(name)),
        .prefix = fm_source_copy(scan->arena, prefix, (size_t)length),
        .path = name_path(scan->arena, options->dataset),
        .is_predicted = options->is_predicted,
        .first_structure = all->n_structure,
    };
    if (!dataset.name || !dataset.prefix || !dataset.path) {
        return fm_arena_full(scan->arena, reterr);
    }
    scan->prefix = dataset.prefix;
    scan->is_predicted = options->is_predicted;
    scan->structures_found = scan->alignments_found = NULL;
    scan->n_structure = scan->n_set = 0;
    fm_status status = find_structures(scan, options, reterr);
    if (!status) status = fm_source_sort_structures(scan, reterr);
    bool is_tree = scan->n_structure && scan->structure[0].is_nested;
    if (!status) status = find_alignments(scan, options, is_tree, reterr);
    if (!status) status = fm_source_sort_sets(scan, reterr);
    if (!status) status = find_duplicates(scan, options, reterr);
    if (!status) status = join(scan, &dataset, reterr);
    if (!status) status = fm_source_take_lists(scan, options, &dataset, reterr);
    if (!status) status = keep_structures(all, reterr);
    if (status) return status;
    dataset.n_structure = all->n_structure - dataset.first_structure;
    dataset.structures_found = scan->structures_found ? scan->structures_found : "none";
    dataset.alignments_found = scan->alignments_found ? scan->alignments_found : "none";
    all->dataset[all->n_dataset++] = dataset;
    return FM_OK;
}

/* OpenProteinSet has its predictions in a folder beside the PDB's chains. *ret_there: it exists. */
static fm_status scan_uniclust30(gathering *all, const fm_source_options *options, bool *ret_there,
                                 fm_error *reterr) {
    fm_path_kind kind;
    const char *folder = fm_source_join(all->scan.arena, options->dataset, "uniclust30");
    if (!folder) return fm_arena_full(all->scan.arena, reterr);
    fm_status looked = fm_path_look(folder, &kind, reterr);
    *ret_there = !looked && kind == FM_PATH_FOLDER;
    if (!*ret_there) return looked;
    const fm_source_options inside = {
        .dataset = folder, .name = "uniclust30", .is_predicted = true};
    fm_status status = scan_dataset(all, &inside, reterr);
    /* One list of chains serves both datasets. */
    fm_source_dataset *half = all->dataset;
    if (!status && all->n_dataset == 2 && !half[1].chain_data.path) {
        half[1].chain_data = half[0].chain_data;
    }
    return status;
}

/* Scans one dataset, and its uniclust30/ if it has one. */
static fm_status scan_one(gathering *all, const fm_source_options *options, bool is_alone,
                          fm_error *reterr) {
    bool there = false;
    fm_error missing = {0};
    fm_status status = check_name(all, options->name, is_alone, reterr);
    if (status) return status;
    if (options->name || options->structures || options->alignments) {
        return scan_dataset(all, options, reterr);
    }
    status = scan_dataset(all, options, &missing);
    if (!status || status == FM_ERR_NOT_FOUND) {
        fm_status second = scan_uniclust30(all, options, &there, reterr);
        if (second) return second;
        if (there) return FM_OK;
    }
    if (status && reterr) *reterr = missing;
    return status;
}

static fm_status keep(const gathering *all, fm_source *source, fm_error *reterr) {
    const fm_source_scanning *scan = &all->scan;
    fm_arena *arena = scan->arena;
    fm_source_structure *structure =
        fm_arena_alloc_array(arena, all->n_structure, sizeof *structure);
    fm_source_dataset *dataset = fm_arena_alloc_array(arena, all->n_dataset, sizeof *dataset);
    fm_source_refusal *refusal = fm_arena_alloc_array(arena, scan->n_refusal, sizeof *refusal);
    fm_archive **archive = fm_arena_alloc_array(arena, scan->n_archive, sizeof(fm_archive *));
    if (!structure || !dataset || !refusal || !archive) return fm_arena_full(arena, reterr);
    if (all->n_structure) memcpy(structure, all->structure, all->n_structure * sizeof *structure);
    memcpy(dataset, all->dataset, all->n_dataset * sizeof *dataset);
    if (scan->n_refusal) memcpy(refusal, scan->refusal, scan->n_refusal * sizeof *refusal);
    if (scan->n_archive) memcpy(archive, scan->archive, scan->n_archive * sizeof(fm_archive *));
    *source = (fm_source){.n_dataset = all->n_dataset,
                          .dataset = dataset,
                          .n_structure = all->n_structure,
                          .structure = structure,
                          .n_refusal = scan->n_refusal,
                          .refusal = refusal,
                          .n_archive = scan->n_archive,
                          .archive = archive};
    for (uint32_t i = 0; i < all->n_dataset; i++) {
        source->n_chain += dataset[i].n_chain;
        source->n_duplicate += dataset[i].n_duplicate;
    }
    return FM_OK;
}

fm_status fm_source_scan(const fm_source_options *options, size_t n, fm_arena *arena,
                         fm_source *ret_source, fm_error *reterr) {
    gathering *all = calloc(1, sizeof *all);
    if (!all) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of datasets");
    all->scan.arena = arena;
    fm_status status = FM_OK;
    for (size_t i = 0; i < n && !status; i++)
        status = scan_one(all, &options[i], n == 1, reterr);
    if (!status) status = keep(all, ret_source, reterr);
    for (uint32_t i = 0; i < all->scan.n_archive && status; i++)
        fm_archive_close(all->scan.archive[i]);
    free(all->scan.structure);
    free(all->scan.set);
    free(all->scan.refusal);
    free(all->scan.archive);
    free(all->structure);
    free(all);
    return status;
}

void fm_source_close(fm_source *source) {
    for (uint32_t i = 0; i < source->n_archive; i++)
        fm_archive_close(source->archive[i]);
    source->n_archive = 0;
}

static int order_of_structure(const void *array, uint32_t i, const void *key) {
    const fm_source_structure *structure = array;
    return strcmp(structure[i].key, key);
}

/* Returns the structure of a dataset with that key, or NULL if there is none. */
static const fm_source_structure *find_key(const fm_source *source,
                                           const fm_source_dataset *dataset, const char *key) {
    const fm_source_structure *structure = source->structure + dataset->first_structure;
    uint32_t i;
    bool has = fm_bisect(structure, dataset->n_structure, order_of_structure, key, &i);
    return has ? &structure[i] : NULL;
}

const fm_source_structure *fm_source_find_template(const fm_source *source, const char *id) {
    for (uint32_t i = 0; i < source->n_dataset; i++) {
        const fm_source_dataset *dataset = &source->dataset[i];
        const fm_source_structure *found =
            dataset->is_predicted ? NULL : find_key(source, dataset, id);
        if (found && !found->is_pdb) return found;
    }
    return NULL;
}

bool fm_source_has_complex(const fm_source *source, const fm_source_structure *structure) {
    return !structure->is_pdb && !structure->query &&
           !source->dataset[structure->dataset].is_predicted;
}

void fm_source_name_complex(const fm_source *source, const fm_source_structure *structure,
                            char out[FM_SOURCE_COMPLEX_BYTES]) {
    snprintf(out, FM_SOURCE_COMPLEX_BYTES, "%s%s", source->dataset[structure->dataset].prefix,
             structure->key);
}

bool fm_source_has_structure(const fm_source *source, const char *chain) {
    const char *bare = fm_name_in_dataset(chain), *split = strrchr(bare, '_');
    size_t prefix = (size_t)(bare - chain), length = split ? (size_t)(split - bare) : 0;
    char id[FM_LIMIT_NAME_BYTES + 1];
    for (uint32_t i = 0; i < source->n_dataset; i++) {
        const fm_source_dataset *dataset = &source->dataset[i];
        if (strlen(dataset->prefix) != prefix || memcmp(chain, dataset->prefix, prefix) != 0) {
            continue;
        }
        if (find_key(source, dataset, bare)) return true;
        if (!length || length > FM_LIMIT_NAME_BYTES) continue;
        memcpy(id, bare, length);
        id[length] = '\0';
        if (!dataset->is_predicted && fm_pdb_id_key(bare, length, id)) id[FM_PDB_ID_BYTES] = '\0';
        if (find_key(source, dataset, id)) return true;
    }
    return false;
}
