/* source_queries.c: implements fm_source_of_queries: chains without structure, from FASTA files and
 * alignments. */
#include "cache/source/source_parts.h"

#include "featurizer/msa.h"
#include "proto/base/utf8.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The advice of messages about missing alignments. */
static const char advice[] = "make them with ColabFold's MMseqs2 search (colabfold_search), or "
                             "with jackhmmer and HHblits as "
                             "AlphaFold does, or give --single-sequence";

static bool exists(const char *path, fm_path_kind wanted) {
    fm_path_kind kind;
    return !fm_path_look(path, &kind, NULL) && kind == wanted;
}

/* Returns the folder of a path, without a slash at its end. */
static const char *folder_of(const char *path, fm_arena *arena) {
    const char *slash = strrchr(path, '/');
    if (!slash) return ".";
    return slash == path ? "/" : fm_source_copy(arena, path, (size_t)(slash - path));
}

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Lists the files NAME.a3m, NAME.sto and NAME.hhr of a folder, compressed or not. With `only`, that
 * file is the alignment, and only hits are searched for. */
static fm_status list_flat(fm_source_chain *chain, const char *folder, const char *name,
                           const char *only, fm_arena *arena, fm_error *reterr) {
    static const char *const endings[] = {".hhr", ".a3m", ".sto"};
    static const char *const packed[] = {"", ".gz", ".xz", ".zst"};
    enum { MOST = 13 };
    fm_index_file *file = fm_arena_alloc_array(arena, MOST, sizeof *file);
    if (!file) return fm_arena_full(arena, reterr);
    uint32_t n = 0;
    if (only) file[n++] = (fm_index_file){only, 0, UINT64_MAX};
    for (size_t i = 0; i < (only ? 1 : sizeof endings / sizeof endings[0]); i++) {
        for (size_t k = 0; k < sizeof packed / sizeof packed[0]; k++) {
            char leaf[FM_LIMIT_NAME_BYTES + 16], path[PATH_MAX];
            snprintf(leaf, sizeof leaf, "%s%s%s", name, endings[i], packed[k]);
            snprintf(path, sizeof path, "%s/%s", folder, leaf);
            if (!exists(path, FM_PATH_FILE)) continue;
            file[n].name = fm_source_copy(arena, leaf, strlen(leaf));
            if (!file[n].name) return fm_arena_full(arena, reterr);
            file[n].offset = 0;
            file[n++].bytes = UINT64_MAX;
        }
    }
    if (n == 0) return FM_OK;
    chain->folder = folder;
    chain->file = file;
    chain->n_file = n;
    return FM_OK;
}

/* Returns whether the chain's files have an alignment. A folder that cannot be read counts as one,
 * because the build then reports the reason. */
static bool has_alignment(const fm_source_chain *chain, fm_arena *arena) {
    uint32_t n;
    const fm_source_file *file;
    if (!chain->folder) return false;
    if (fm_source_files(chain, arena, &n, &file, NULL)) return true;
    for (uint32_t i = 0; i < n; i++)
        if (fm_msa_format_of_name(file[i].name) != FM_MSA_NONE) return true;
    return false;
}

/* Searches a folder for the alignments of NAME: NAME/, then files NAME.a3m, .sto. */
static fm_status look_in(fm_source_chain *chain, const char *folder, fm_arena *arena,
                         bool *ret_found, fm_error *reterr) {
    const char *own = fm_source_join(arena, folder, chain->name);
    if (!own) return fm_arena_full(arena, reterr);
    const fm_source_chain bare = *chain;
    if (exists(own, FM_PATH_FOLDER)) chain->folder = own;
    *ret_found = has_alignment(chain, arena);
    if (*ret_found) return FM_OK;
    *chain = bare;
    fm_status status = list_flat(chain, folder, chain->name, NULL, arena, reterr);
    *ret_found = !status && has_alignment(chain, arena);
    if (!*ret_found) *chain = bare;
    return status;
}

/* Finds the alignments of a FASTA file. A chain without alignments is refused. */
static fm_status find_alignments(fm_source_chain *chain, const char *path, const char *given,
                                 fm_arena *arena, fm_error *reterr) {
    const char *beside = folder_of(path, arena);
    const char *usual = beside ? fm_source_join(arena, beside, "alignments") : NULL;
    if (!usual) return fm_arena_full(arena, reterr);
    const char *const places[] = {given ? given : usual, given ? NULL : beside};
    bool found = false;
    fm_status status = FM_OK;
    for (size_t i = 0; i < 2 && places[i] && !found && !status; i++)
        status = look_in(chain, places[i], arena, &found, reterr);
    if (status || found) return status;
    char text[2 * PATH_MAX + 512];
    snprintf(text, sizeof text,
             "%s: found no alignments of it: no folder %s/%s and no file %s/%s.a3m or .sto%s; %s",
             path, places[0], chain->name, places[0], chain->name,
             given ? "" : ", nor beside the FASTA file", advice);
    chain->refusal = fm_source_copy(arena, text, strlen(text));
    return chain->refusal ? FM_OK : fm_arena_full(arena, reterr);
}

/* Writes bytes that a name cannot have, and '%', as '%20' and so on. What follows the longest name
 * is left out. An empty name becomes "%". */
static void escape_name(const char *text, size_t bytes, char out[FM_LIMIT_NAME_BYTES + 1]) {
    enum { ESCAPE = 3 };
    size_t at = 0;
    for (size_t i = 0; i < bytes && at + ESCAPE <= FM_LIMIT_NAME_BYTES; i++) {
        uint8_t byte = (uint8_t)text[i];
        bool is_plain = byte > 0x20 && byte < 0x7f && byte != '%';
        at += (size_t)snprintf(out + at, ESCAPE + 1, is_plain ? "%c" : "%%%02X", byte);
    }
    snprintf(out + at, FM_LIMIT_NAME_BYTES + 1 - at, "%s", at ? "" : "%");
}

/* Returns the name of an input's chain, the first `bare` bytes of the file's. Where they cannot be
 * a name, the chain is refused under one that can be written. NULL when the arena is full. */
static const char *name_query(const char *path, size_t bare, fm_arena *arena,
                              const char **ret_refusal) {
    const char *leaf = base_of(path);
    if (fm_source_is_good_name(leaf, bare)) return fm_source_copy(arena, leaf, bare);
    char name[FM_LIMIT_NAME_BYTES + 1], text[PATH_MAX + 256];
    escape_name(leaf, bare, name);
    if (!fm_utf8_is_whole(leaf, bare)) {
        snprintf(text, sizeof text, "%s: its name is not UTF-8; rename the file", path);
    } else {
        snprintf(text, sizeof text,
                 "%s: its name cannot be a chain's: at most %u bytes, and no blanks; rename the "
                 "file",
                 path, FM_LIMIT_NAME_BYTES);
    }
    *ret_refusal = fm_source_copy(arena, text, strlen(text));
    return *ret_refusal ? fm_source_copy(arena, name, strlen(name)) : NULL;
}

/* Describes one input: its chain and the file of its sequence. */
static fm_status add_query(const fm_source_queries *queries, const char *path, fm_arena *arena,
                           fm_source_structure *structure, fm_source_chain *chain,
                           fm_error *reterr) {
    const char *leaf = base_of(path);
    size_t bare = 0;
    fm_query_format format = fm_query_format_of_name(leaf, &bare);
    if (exists(path, FM_PATH_FOLDER)) {
        return fm_fail_in(reterr, FM_ERR_USAGE, path,
                          "found a folder, expected a file; give its files, such as %.200s/*.fasta",
                          path);
    }
    if (!format) {
        return fm_fail_in(reterr, FM_ERR_USAGE, path,
                          "expected a FASTA file (.fasta, .fa, .fas, .faa, .seq) or an alignment "
                          "(.a3m, .sto), compressed or not");
    }
    const char *refusal = NULL, *name = name_query(path, bare, arena, &refusal);
    if (!name) return fm_arena_full(arena, reterr);
    *chain = (fm_source_chain){.name = name, .refusal = refusal};
    *structure = (fm_source_structure){
        .id = name, .key = name, .path = path, .query = format, .n_chain = 1, .chain = chain};
    if (refusal || queries->single_sequence) return FM_OK;
    if (format == FM_QUERY_FASTA) {
        return find_alignments(chain, path, queries->alignments, arena, reterr);
    }
    const char *folder = folder_of(path, arena);
    if (!folder) return fm_arena_full(arena, reterr);
    return list_flat(chain, folder, name, leaf, arena, reterr);
}

static int compare_structures(const void *a, const void *b) {
    const fm_source_structure *x = a, *y = b;
    return strcmp(x->key, y->key);
}

static fm_status check_names(const fm_source_structure *structure, uint32_t n, fm_error *reterr) {
    for (uint32_t i = 1; i < n; i++) {
        if (strcmp(structure[i].key, structure[i - 1].key) != 0) continue;
        return fm_fail(reterr, FM_ERR_USAGE,
                       "%.200s and %.200s would both be called '%.40s'; rename one of them",
                       structure[i - 1].path, structure[i].path, structure[i].key);
    }
    return FM_OK;
}

static bool is_zip(const char *path) {
    size_t length = strlen(path);
    return length > 4 && strcmp(path + length - 4, ".zip") == 0;
}

static fm_status check_templates(const char *path, fm_error *reterr) {
    if (exists(path, is_zip(path) ? FM_PATH_FILE : FM_PATH_FOLDER)) return FM_OK;
    return fm_fail_in(
        reterr, FM_ERR_NOT_FOUND, path,
        "found no such folder or zip archive of templates; give --templates the mmCIF "
        "files of the PDB, or leave it out to use no template");
}

/* Lists the structures of the templates after those of the queries. */
static fm_status take_templates(const char *path, fm_source_scanning *scan, fm_error *reterr) {
    uint32_t n = 0;
    fm_status status = is_zip(path) ? fm_source_take_archive(scan, path, &n, reterr)
                                    : fm_source_take_structures(scan, path, &n, reterr);
    if (!status && n == 0) {
        status = fm_fail_in(reterr, FM_ERR_NOT_FOUND, path,
                            "found no structures of templates here; expected <id>.cif, "
                            "also compressed, divided into folders or in zip archives");
    }
    return status ? status : fm_source_sort_structures(scan, reterr);
}

static fm_status join(const fm_source_scanning *scan, const fm_source_structure *query, uint32_t n,
                      fm_source_dataset *dataset, fm_arena *arena, fm_source *ret_source,
                      fm_error *reterr) {
    uint32_t n_all = n + scan->n_structure;
    fm_source_structure *all = fm_arena_alloc_array(arena, n_all, sizeof *all);
    fm_archive **archive = fm_arena_alloc_array(arena, scan->n_archive, sizeof(fm_archive *));
    if (!all || !archive) return fm_arena_full(arena, reterr);
    memcpy(all, query, n * sizeof *all);
    for (uint32_t i = 0; i < scan->n_structure; i++) {
        all[n + i] = scan->structure[i];
        all[n + i].dataset = 1;
    }
    if (scan->n_archive) memcpy(archive, scan->archive, scan->n_archive * sizeof(fm_archive *));
    dataset[1].first_structure = n;
    dataset[1].n_structure = scan->n_structure;
    *ret_source = (fm_source){.n_dataset = scan->n_structure ? 2 : 1,
                              .n_structure = n_all,
                              .n_chain = n,
                              .dataset = dataset,
                              .structure = all,
                              .n_archive = scan->n_archive,
                              .archive = archive};
    return FM_OK;
}

fm_status fm_source_of_queries(const fm_source_queries *queries, fm_arena *arena,
                               fm_source *ret_source, fm_error *reterr) {
    fm_source_structure *structure = fm_arena_calloc(arena, queries->n, sizeof *structure);
    fm_source_chain *chain = fm_arena_calloc(arena, queries->n, sizeof *chain);
    fm_source_dataset *dataset = fm_arena_calloc(arena, 2, sizeof *dataset);
    fm_source_scanning scan = {.arena = arena, .prefix = ""};
    if (!structure || !chain || !dataset) return fm_arena_full(arena, reterr);
    /* Hits refer only to structures of experimental datasets. So the queries are a dataset of
     * predictions, and the templates are another dataset. */
    dataset[0] = (fm_source_dataset){.name = "",
                                     .prefix = "",
                                     .is_predicted = true,
                                     .n_structure = queries->n,
                                     .n_chain = queries->n,
                                     .structures_found = "sequences",
                                     .alignments_found = "beside them"};
    dataset[1] = (fm_source_dataset){.name = "templates", .prefix = "templates:"};
    fm_status status = FM_OK;
    if (queries->alignments && !exists(queries->alignments, FM_PATH_FOLDER)) {
        status = fm_fail_in(reterr, FM_ERR_NOT_FOUND, queries->alignments,
                            "found no such folder of alignments");
    }
    if (!status && queries->templates) status = check_templates(queries->templates, reterr);
    for (uint32_t i = 0; i < queries->n && !status; i++)
        status = add_query(queries, queries->path[i], arena, &structure[i], &chain[i], reterr);
    if (!status) {
        qsort(structure, queries->n, sizeof *structure, compare_structures);
        status = check_names(structure, queries->n, reterr);
    }
    if (!status && queries->templates) status = take_templates(queries->templates, &scan, reterr);
    if (!status) status = join(&scan, structure, queries->n, dataset, arena, ret_source, reterr);
    for (uint32_t i = 0; i < scan.n_archive && status; i++)
        fm_archive_close(scan.archive[i]);
    free(scan.structure);
    free(scan.refusal);
    free(scan.archive);
    return status;
}
