/* source_scan.c: finds out how a dataset lies and joins structures and alignments. See source.h. */
#include "cache/source_parts.h"

#include "proto/base/file.h"
#include "proto/limits.h"

#include <stdlib.h>
#include <string.h>

const char *fm_source_trouble_text(fm_source_trouble trouble) {
    switch (trouble) {
    case FM_SOURCE_NO_STRUCTURE: return "alignments without a structure";
    case FM_SOURCE_NO_ALIGNMENTS: return "structures without alignments";
    case FM_SOURCE_BAD_NAME: return "names that cannot be a chain's";
    case FM_SOURCE_TWICE: return "structures that are there twice";
    case FM_SOURCE_TWO_ENTRIES: return "alignments that two indices have";
    case FM_N_SOURCE_TROUBLE: break;
    }
    return "unknown";
}

/* -- where things lie */

/* The first of the usual folders that has structures, or the first that is there. */
static fm_status find_structures(fm_source_scanning *scan, const fm_source_options *options,
                                 fm_error *reterr) {
    static const char *const names[] = {"mmcifs",    "data",        "pdb_mmcif/mmcif_files",
                                        "pdb_mmcif", "mmcif_files", "structures",
                                        "mmCIF"};
    uint32_t n = 0;
    const char *empty = NULL;
    if (options->structures) {
        return fm_source_take_structures(scan, options->structures, &n, reterr);
    }
    for (size_t i = 0; i <= sizeof names / sizeof names[0] && !n; i++) {
        bool is_last = i == sizeof names / sizeof names[0];
        const char *folder =
            is_last ? options->dataset : fm_source_join(scan->arena, options->dataset, names[i]);
        if (!folder) return fm_arena_full(scan->arena, reterr);
        fm_status status = fm_source_take_structures(scan, folder, &n, reterr);
        if (status == FM_ERR_NOT_FOUND) continue;
        if (status) return status;
        if (!n && !is_last && !empty) empty = folder;
    }
    if (empty && !n) scan->structures_found = empty;
    if (n || empty) return FM_OK;
    fm_status status = fm_fail(reterr, FM_ERR_NOT_FOUND,
                               "found no folder of structures; expected DATASET/mmcifs/<id>.cif "
                               "and DATASET/alignments/<id>_<chain>/, or --structures DIR");
    if (reterr) fm_error_in(reterr, options->dataset);
    return status;
}

static bool has_ending(const char *name, const char *ending) {
    size_t length = strlen(name), size = strlen(ending);
    return length > size && strcmp(name + length - size, ending) == 0;
}

/* The indices of a folder; *ret_n = 0 when it has none. */
static fm_status take_database(fm_source_scanning *scan, const char *folder, uint32_t *ret_n,
                               fm_error *reterr) {
    fm_name_list files;
    fm_status status = fm_source_list(folder, false, scan->arena, &files, reterr);
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

/* One index by its path. */
static fm_status take_one_index(fm_source_scanning *scan, const char *path, uint32_t *ret_n,
                                fm_error *reterr) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const fm_name_list one = {&name, 1, 1};
    const char *folder = slash ? fm_source_copy(scan->arena, path, (size_t)(slash - path)) : ".";
    if (!folder) return fm_arena_full(scan->arena, reterr);
    return fm_source_take_indices(scan, folder, &one, ret_n, reterr);
}

static fm_status find_alignments(fm_source_scanning *scan, const fm_source_options *options,
                                 fm_error *reterr) {
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
    return n || status ? status : take_database(scan, options->dataset, &n, reterr);
}

static fm_status find_duplicates(fm_source_scanning *scan, const fm_source_options *options,
                                 fm_error *reterr) {
    static const char *const names[] = {"duplicate_pdb_chains.txt", "pdb/duplicate_pdb_chains.txt"};
    fm_bytes text;
    fm_status status = FM_ERR_NOT_FOUND;
    const char *path = options->duplicates;
    if (path) status = fm_file_read_text(scan->arena, path, FM_LIMIT_INPUT_BYTES, &text, reterr);
    for (size_t i = 0; i < 2 && !path && status == FM_ERR_NOT_FOUND; i++) {
        const char *here = fm_source_join(scan->arena, options->dataset, names[i]);
        if (!here) return fm_arena_full(scan->arena, reterr);
        status = fm_file_read_text(scan->arena, here, FM_LIMIT_INPUT_BYTES, &text, reterr);
    }
    if (status == FM_ERR_NOT_FOUND && !path) return FM_OK;
    return status ? status : fm_source_take_duplicates(scan, text, reterr);
}

/* -- joining */

static fm_source_structure *find_structure(const fm_source_scanning *scan, const char *id,
                                           size_t length) {
    uint32_t low = 0, high = scan->n_structure;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const char *found = scan->structure[middle].id;
        int order = strncmp(found, id, length);
        if (order == 0 && found[length] != '\0') order = 1;
        if (order == 0) return &scan->structure[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* The structure of a set's chain; NULL with a problem, where one is due. */
static fm_status match(fm_source_scanning *scan, const fm_source_set *set,
                       fm_source_structure **ret_structure, fm_error *reterr) {
    const char *split = strrchr(set->name, '_');
    *ret_structure = NULL;
    if (!split || !split[1] || !fm_source_is_good_name(set->name, strlen(set->name))) {
        return fm_source_add_problem(scan, FM_SOURCE_BAD_NAME, set->name, reterr);
    }
    *ret_structure = find_structure(scan, set->name, (size_t)(split - set->name));
    /* Lists of duplicates name chains that many datasets do not have. */
    if (*ret_structure || set->duplicate) return FM_OK;
    return fm_source_add_problem(scan, FM_SOURCE_NO_STRUCTURE, set->name, reterr);
}

/* Sets are sorted by name, so each structure's chains come out sorted, too. */
static fm_status join(fm_source_scanning *scan, fm_source *source, fm_error *reterr) {
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
            status = fm_source_add_problem(scan, FM_SOURCE_NO_ALIGNMENTS, structure->id, reterr);
        }
        structure->n_chain = 0;
    }
    for (uint32_t i = 0; i < scan->n_set && !status; i++) {
        const fm_source_set *set = &scan->set[i];
        if (!of[i]) continue;
        fm_source_chain *here = chain + (of[i]->chain - chain) + of[i]->n_chain++;
        *here = (fm_source_chain){.name = set->name,
                                  .author_id = strrchr(set->name, '_') + 1,
                                  .folder = set->folder,
                                  .db = set->db,
                                  .file = set->file,
                                  .n_file = set->n_file,
                                  .fault = set->fault};
        source->n_chain++;
        source->n_duplicate += set->duplicate;
    }
    free(of);
    return status;
}

static fm_status keep(const fm_source_scanning *scan, fm_source *source, fm_error *reterr) {
    fm_source_structure *structure =
        fm_arena_alloc_array(scan->arena, scan->n_structure, sizeof *structure);
    fm_source_problem *problem =
        fm_arena_alloc_array(scan->arena, scan->n_problem, sizeof *problem);
    if (!structure || !problem) return fm_arena_full(scan->arena, reterr);
    if (scan->n_structure) {
        memcpy(structure, scan->structure, scan->n_structure * sizeof *structure);
    }
    if (scan->n_problem) memcpy(problem, scan->problem, scan->n_problem * sizeof *problem);
    source->n_structure = scan->n_structure;
    source->structure = structure;
    source->n_problem = scan->n_problem;
    source->problem = problem;
    source->structures_found = scan->structures_found ? scan->structures_found : "none";
    source->alignments_found = scan->alignments_found ? scan->alignments_found : "none";
    return FM_OK;
}

fm_status fm_source_scan(const fm_source_options *options, fm_arena *arena, fm_source *ret_source,
                         fm_error *reterr) {
    fm_source_scanning scan = {.arena = arena};
    fm_source source = {0};
    fm_status status = find_structures(&scan, options, reterr);
    if (!status) status = find_alignments(&scan, options, reterr);
    if (!status) status = fm_source_sort_sets(&scan, reterr);
    if (!status) status = find_duplicates(&scan, options, reterr);
    if (!status) status = join(&scan, &source, reterr);
    if (!status) status = keep(&scan, &source, reterr);
    free(scan.structure);
    free(scan.set);
    free(scan.problem);
    if (!status) *ret_source = source;
    return status;
}
