/* open_cache.c: see open_cache.h.
 *
 * Names are compared by their keys: the name with the letters of its id in lower case. The id is
 * what comes before the last '_'; what follows it, the chain, keeps its case. A list of names is
 * matched by a sorted table of its keys. Every chain of the store is looked up in it twice: with
 * the name of its dataset and without. */
#include "server/cli/open_cache.h"

#include "cache/build/build.h"
#include "proto/base/directory.h"
#include "proto/limits.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SHOWN = 8 };

/* -- folders */

/* These choose the words of a message about an error that has occurred; one more error changes
 * nothing. */

static fm_path_kind kind_of(const char *path, const char *name) {
    char whole[PATH_MAX];
    fm_path_kind kind = FM_PATH_ABSENT;
    int n = snprintf(whole, sizeof whole, "%s/%s", path, name);
    if (n <= 0 || (size_t)n >= sizeof whole) return kind;
    return fm_path_look(whole, &kind, NULL) ? FM_PATH_UNREADABLE : kind;
}

static bool is_folder(const char *path, const char *name) {
    return kind_of(path, name) == FM_PATH_FOLDER;
}

static bool has_current(const char *path) {
    return kind_of(path, "CURRENT") != FM_PATH_ABSENT;
}

/* The folders by which `foldmill build` recognises a dataset. Other folders may have the last of
 * them, too. */
enum { N_OWN_FOLDER = 5, N_FOLDER = 8 };
static const char *const dataset_folders[N_FOLDER] = {"alignments",  "alignment_db", "mmcifs",
                                                      "mmcif_files", "pdb_mmcif",    "data",
                                                      "uniclust30",  "pdb"};

/* Whether the folder has one of the first n of them. */
static bool has_dataset_folder(const char *path, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (is_folder(path, dataset_folders[i])) return true;
    }
    return false;
}

static bool is_dataset(const char *path) {
    return has_dataset_folder(path, N_FOLDER);
}

/* A file that is missing though CURRENT leads to it. */
static fm_status explain_lost(fm_status status, fm_error *reterr) {
    char lost[FM_ERROR_SOURCE_BYTES];
    if (status != FM_ERR_NOT_FOUND || !reterr || !strstr(reterr->source, "/generations/")) {
        return status;
    }
    snprintf(lost, sizeof lost, "%s", reterr->source);
    return fm_fail_in(reterr, status, lost,
                      "there is no such file, and CURRENT names its generation; run foldmill build "
                      "again, which takes over what is sealed");
}

fm_status fm_cli_explain_cache(const char *path, fm_status status, fm_error *reterr) {
    fm_path_kind kind = FM_PATH_ABSENT;
    bool is_there = fm_path_look(path, &kind, NULL) || kind != FM_PATH_ABSENT;
    bool is_file = kind == FM_PATH_FILE || kind == FM_PATH_OTHER;
    if (status != FM_ERR_NOT_FOUND && !(status == FM_ERR_IO && is_file)) return status;
    if (has_current(path)) return explain_lost(status, reterr);
    if (!is_there) {
        return fm_fail(reterr, status,
                       "there is no folder %.150s; `foldmill build DATASET --cache %.150s` makes "
                       "a cache there",
                       path, path);
    }
    if (is_file) {
        return fm_fail(reterr, status, "%.200s is a file, and a foldmill cache is a folder", path);
    }
    if (is_dataset(path)) {
        return fm_fail(reterr, status,
                       "%.150s is a dataset, not a foldmill cache; `foldmill build %.150s --cache "
                       "DIR` makes a cache of it",
                       path, path);
    }
    if (fm_build_has_only_components(path)) {
        return fm_fail(reterr, status,
                       "the cache %.150s has chemical components and nothing else yet; `foldmill "
                       "build DATASET --cache %.150s --complexes` adds chains and complexes",
                       path, path);
    }
    if (is_folder(path, "shards") || is_folder(path, "build")) {
        return fm_fail(reterr, status,
                       "the cache %.150s is not finished (it has no file CURRENT); run the same "
                       "foldmill build again, or foldmill merge where workers share the job",
                       path);
    }
    return fm_fail(reterr, status,
                   "%.150s is not a foldmill cache (it has no file CURRENT); `foldmill build "
                   "DATASET --cache %.150s` makes one",
                   path, path);
}

fm_status fm_cli_open_store(const char *path, fm_store **ret_store, fm_error *reterr) {
    return fm_cli_explain_cache(path, fm_store_open(path, ret_store, reterr), reterr);
}

fm_status fm_cli_check_dataset(const char *path, fm_error *reterr) {
    fm_path_kind kind;
    fm_status status = fm_path_look(path, &kind, reterr);
    if (status) return status;
    if (kind != FM_PATH_FOLDER && kind != FM_PATH_ABSENT) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "%.200s is a file, and a dataset is a folder with alignments and "
                       "structures (foldmill build --help)",
                       path);
    }
    if (!has_current(path) || !is_folder(path, "generations")) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "%.200s is a foldmill cache, not a dataset; a dataset is a folder with "
                   "alignments and structures (foldmill build --help)",
                   path);
}

fm_status fm_cli_check_target(const char *option, const char *cache, const char *dataset,
                              fm_error *reterr) {
    fm_path_kind kind;
    fm_status status = fm_path_look(cache, &kind, reterr);
    if (status || kind == FM_PATH_ABSENT) return status;
    if (kind != FM_PATH_FOLDER) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "%s: %.200s is a file, and a foldmill cache is a folder", option, cache);
    }
    bool same = false;
    if (dataset) status = fm_path_is_same(cache, dataset, &same, reterr);
    if (status) return status;
    bool is_cache = has_current(cache) || is_folder(cache, "shards") || is_folder(cache, "build");
    if (!same && (is_cache || !has_dataset_folder(cache, N_OWN_FOLDER))) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "%s: %.200s is %s; expected another folder, which may be new", option, cache,
                   same ? "the dataset itself" : "a dataset");
}

/* -- keys of names */

typedef char name_key[FM_LIMIT_NAME_BYTES + 1];

/* A name that is too long for a chain gets an empty key, which no chain has. */
static const char *make_key(const char *name, name_key out) {
    const char *chain = strrchr(name, '_'), *in_dataset = fm_name_in_dataset(name);
    size_t bytes = strlen(name), id_end = chain ? (size_t)(chain - name) : bytes;
    if (bytes >= sizeof(name_key)) bytes = id_end = 0;
    for (size_t i = 0; i < bytes; i++) {
        bool is_id = i < id_end && name + i >= in_dataset;
        out[i] = (char)(is_id ? tolower((unsigned char)name[i]) : name[i]);
    }
    out[bytes] = '\0';
    return out;
}

typedef struct key_entry {
    const char *key;
    uint32_t name; /* its place in the list */
} key_entry;

/* The keys of a list of names, sorted. */
typedef struct key_table {
    uint32_t n;
    key_entry *entry; /* [n] */
    bool *is_found;   /* [n] by name: some chain has it */
} key_table;

static int compare_entries(const void *a, const void *b) {
    return strcmp(((const key_entry *)a)->key, ((const key_entry *)b)->key);
}

static fm_status make_table(const fm_names *names, fm_arena *arena, key_table *table,
                            fm_error *reterr) {
    table->n = names->n;
    table->entry = fm_arena_alloc_array(arena, names->n + 1, sizeof *table->entry);
    table->is_found = fm_arena_calloc(arena, names->n + 1, sizeof *table->is_found);
    if (!table->entry || !table->is_found) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < names->n; i++) {
        name_key key;
        size_t bytes = strlen(make_key(names->name[i], key)) + 1;
        char *kept = fm_arena_alloc(arena, bytes);
        if (!kept) return fm_arena_full(arena, reterr);
        memcpy(kept, key, bytes);
        table->entry[i] = (key_entry){kept, i};
    }
    if (names->n) qsort(table->entry, names->n, sizeof *table->entry, compare_entries);
    return FM_OK;
}

/* Marks every name with the key of `name`; true when there is one. */
static bool mark_found(key_table *table, const char *name) {
    name_key key;
    const key_entry wanted = {make_key(name, key), 0};
    const key_entry *at =
        table->n ? bsearch(&wanted, table->entry, table->n, sizeof wanted, compare_entries) : NULL;
    if (!at) return false;
    const key_entry *end = table->entry + table->n;
    while (at > table->entry && strcmp(at[-1].key, wanted.key) == 0)
        at--;
    for (; at < end && strcmp(at->key, wanted.key) == 0; at++)
        table->is_found[at->name] = true;
    return true;
}

static bool is_listed(key_table *table, const char *name) {
    const char *bare = fm_name_in_dataset(name);
    bool whole = mark_found(table, name);
    return (bare != name && mark_found(table, bare)) || whole;
}

/* -- one chain */

/* Does the chain `stored` fit the name that a user typed, whose key is `key`? */
static bool fits(const char *key, const char *stored) {
    name_key of_stored;
    make_key(stored, of_stored);
    return strcmp(key, of_stored) == 0 ||
           (!strchr(key, ':') && strcmp(key, fm_name_in_dataset(of_stored)) == 0);
}

/* Is `stored` a chain of the entry of `key`: do they agree up to the last '_'? */
static bool is_same_entry(const char *key, const char *stored) {
    name_key of_stored;
    const char *wanted = fm_name_in_dataset(key);
    const char *found = fm_name_in_dataset(make_key(stored, of_stored));
    const char *end = strrchr(wanted, '_');
    size_t bytes = end ? (size_t)(end - wanted) + 1 : strlen(wanted);
    return strncmp(wanted, found, bytes) == 0;
}

static fm_status fail_ambiguous(const char *name, const char *first, const char *second,
                                fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_USAGE, "'%.64s' can be %.64s or %.64s; give the whole name", name,
                   first, second);
}

/* Says which chains the store has of the same entry. */
static fm_status fail_unknown(const fm_store *store, const char *name, const char *key,
                              fm_error *reterr) {
    char list[256] = "";
    size_t at = 0;
    uint32_t n = 0, n_chain = fm_store_get_info(store)->n_chain;
    for (uint32_t i = 0; i < n_chain && n <= N_SHOWN; i++) {
        const char *stored = fm_store_chain_name(store, i);
        if (!is_same_entry(key, stored) || n++ == N_SHOWN) continue;
        int put = snprintf(list + at, sizeof list - at, "%s%.24s", at ? ", " : "", stored);
        at += (size_t)put < sizeof list - at ? (size_t)put : 0;
    }
    if (n) {
        return fm_fail(reterr, FM_ERR_NOT_FOUND, "the cache has no chain '%.64s'; it has %s%s",
                       name, list, n > N_SHOWN ? " ..." : "");
    }
    return fm_fail(reterr, FM_ERR_NOT_FOUND,
                   "the cache has no chain '%.64s'; its %u chains have names such as %.64s", name,
                   n_chain, n_chain ? fm_store_chain_name(store, 0) : "1abc_A");
}

static fm_status fail_missing(const char *path, const fm_store *store, const char *name,
                              const char *key, fm_arena *arena, fm_error *reterr) {
    fm_refusals refusals;
    fm_status status = fm_refusals_read(path, arena, &refusals, reterr);
    if (status) return status;
    for (uint32_t i = 0; i < refusals.n; i++) {
        if (!fits(key, refusals.refusal[i].chain)) continue;
        return fm_fail(reterr, FM_ERR_NOT_FOUND,
                       "the build of the cache refused chain %.64s: %.400s",
                       refusals.refusal[i].chain, refusals.refusal[i].reason);
    }
    return fail_unknown(store, name, key, reterr);
}

fm_status fm_cli_find_chain(const char *path, const fm_store *store, const char *name,
                            fm_arena *arena, uint32_t *ret_chain, fm_error *reterr) {
    name_key key;
    uint32_t n_chain = fm_store_get_info(store)->n_chain, found = n_chain;
    if (!fm_store_find(store, name, ret_chain, NULL)) return FM_OK;
    make_key(name, key);
    for (uint32_t i = 0; i < n_chain; i++) {
        if (!fits(key, fm_store_chain_name(store, i))) continue;
        if (found < n_chain) {
            return fail_ambiguous(name, fm_store_chain_name(store, found),
                                  fm_store_chain_name(store, i), reterr);
        }
        found = i;
    }
    if (found == n_chain) return fail_missing(path, store, name, key, arena, reterr);
    *ret_chain = found;
    return FM_OK;
}

/* -- lists of chains */

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts names[0..n-1], which may hold a name twice, into a list. */
static fm_names make_list(const char **names, uint32_t n) {
    uint32_t kept = 0;
    if (n) qsort(names, n, sizeof *names, compare_names);
    for (uint32_t i = 0; i < n; i++) {
        if (!kept || strcmp(names[kept - 1], names[i]) != 0) names[kept++] = names[i];
    }
    return (fm_names){kept, names};
}

fm_status fm_cli_resolve_names(const fm_store *store, const fm_names *names, fm_arena *arena,
                               fm_names *ret_names, fm_names *ret_missing, fm_error *reterr) {
    uint32_t n_chain = fm_store_get_info(store)->n_chain, n = 0, n_missing = 0;
    key_table table;
    fm_status status = make_table(names, arena, &table, reterr);
    if (status) return status;
    size_t n_max = (size_t)names->n + n_chain + 1;
    const char **resolved = fm_arena_alloc_array(arena, n_max, sizeof *resolved);
    const char **missing = fm_arena_alloc_array(arena, (size_t)names->n + 1, sizeof *missing);
    if (!resolved || !missing) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < n_chain; i++) {
        const char *stored = fm_store_chain_name(store, i);
        if (is_listed(&table, stored)) resolved[n++] = stored;
    }
    for (uint32_t i = 0; i < names->n; i++) {
        if (table.is_found[i]) continue;
        missing[n_missing++] = names->name[i];
        resolved[n++] = names->name[i];
    }
    *ret_names = make_list(resolved, n);
    *ret_missing = make_list(missing, n_missing);
    return FM_OK;
}

fm_status fm_cli_find_refusals(const char *path, const fm_names *names, fm_arena *arena,
                               fm_refusals *ret_refusals, uint32_t *ret_n_unknown,
                               fm_error *reterr) {
    fm_refusals all;
    key_table table;
    uint32_t n = 0, n_unknown = 0;
    fm_status status = fm_refusals_read(path, arena, &all, reterr);
    if (!status) status = make_table(names, arena, &table, reterr);
    if (status) return status;
    fm_refusal *found = fm_arena_alloc_array(arena, (size_t)all.n + 1, sizeof *found);
    if (!found) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < all.n; i++) {
        if (is_listed(&table, all.refusal[i].chain)) found[n++] = all.refusal[i];
    }
    for (uint32_t i = 0; i < names->n; i++)
        n_unknown += !table.is_found[i];
    *ret_refusals = (fm_refusals){n, found};
    *ret_n_unknown = n_unknown;
    return FM_OK;
}
