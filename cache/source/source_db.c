/* source_db.c: makes alignment sets of the entries of alignment databases. See source_parts.h and
 * alignment_index.h. */
#include "cache/source/source_parts.h"

#include "proto/base/file.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The longest index: 20 times the size of one for all chains of the PDB. */
#define INDEX_BYTES_MAX ((uint64_t)4 << 30)

static fm_status parse_open(int fd, uint64_t bytes, const char *path, const char *own_db,
                            fm_arena *arena, fm_alignment_index *ret_index, fm_error *reterr) {
    fm_status status;
    if (bytes > INDEX_BYTES_MAX) {
        status = fm_fail(reterr, FM_ERR_LIMIT, "not a regular file of at most %llu bytes",
                         (unsigned long long)INDEX_BYTES_MAX);
    } else {
        status =
            fm_alignment_index_parse(fm_json_of_file(&fd), bytes, own_db, arena, ret_index, reterr);
    }
    if (status && reterr) fm_error_in(reterr, path);
    return status;
}

static fm_status read_index(const char *path, const char *own_db, fm_arena *arena,
                            fm_alignment_index *ret_index, fm_error *reterr) {
    int fd;
    uint64_t bytes;
    fm_status status = fm_file_open(path, &fd, &bytes, reterr);
    if (status) return status;
    status = parse_open(fd, bytes, path, own_db, arena, ret_index, reterr);
    close(fd);
    return status;
}

/* The paths and sizes of the databases beside the index. */
static fm_status find_dbs(const fm_alignment_index *index, const char *folder, fm_arena *arena,
                          const char ***ret_paths, uint64_t **ret_bytes, fm_error *reterr) {
    const char **paths = fm_arena_alloc_array(arena, index->n_db, sizeof *paths);
    uint64_t *bytes = fm_arena_alloc_array(arena, index->n_db, sizeof *bytes);
    if (!paths || !bytes) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < index->n_db; i++) {
        fm_path_kind kind;
        paths[i] = fm_source_join(arena, folder, index->db[i]);
        if (!paths[i]) return fm_arena_full(arena, reterr);
        /* The entries of a database that cannot be looked at are refused, as those of none. */
        fm_status failed = fm_path_size(paths[i], &kind, &bytes[i], NULL);
        if (failed || kind != FM_PATH_FILE) bytes[i] = UINT64_MAX;
    }
    *ret_paths = paths;
    *ret_bytes = bytes;
    return FM_OK;
}

/* "alignment_db.index:12: 1abc_A: <reason>", in the arena. */
static const char *place_refusal(fm_arena *arena, const char *index_path,
                                 const fm_index_entry *entry) {
    char text[PATH_MAX];
    snprintf(text, sizeof text, "%.1024s:%llu: %.255s: %s", index_path,
             (unsigned long long)entry->line, entry->name, entry->refusal);
    return fm_source_copy(arena, text, strlen(text));
}

static fm_status take_entries(fm_source_scanning *scan, const fm_alignment_index *index,
                              const char *index_path, const char *const *paths, fm_error *reterr) {
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < index->n_entry && !status; i++) {
        const fm_index_entry *entry = &index->entry[i];
        fm_source_set set = {.name = entry->name, .file = entry->file, .n_file = entry->n_file};
        if (entry->refusal) {
            set.refusal = place_refusal(scan->arena, index_path, entry);
            if (!set.refusal) return fm_arena_full(scan->arena, reterr);
        } else {
            set.db = paths[entry->db];
        }
        status = fm_source_add_set(scan, &set, reterr);
    }
    return status;
}

/* "x.index" means "x.db" where an entry names no database. */
static const char *own_db_of(fm_arena *arena, const char *index) {
    size_t length = strlen(index), ending = strlen(".index");
    char *name = fm_source_copy(arena, index, length);
    if (name && length > ending) memcpy(name + length - ending, ".db", sizeof ".db");
    return name;
}

static fm_status take_index(fm_source_scanning *scan, const char *folder, const char *name,
                            uint32_t *n_db, uint32_t *n_entry, fm_error *reterr) {
    fm_alignment_index index;
    const char **paths, *path = fm_source_join(scan->arena, folder, name);
    const char *own_db = own_db_of(scan->arena, name);
    uint64_t *bytes;
    if (!path || !own_db) return fm_arena_full(scan->arena, reterr);
    fm_status status = read_index(path, own_db, scan->arena, &index, reterr);
    if (!status) status = find_dbs(&index, folder, scan->arena, &paths, &bytes, reterr);
    if (!status) status = fm_alignment_index_check(&index, bytes, scan->arena, reterr);
    if (!status) status = take_entries(scan, &index, path, paths, reterr);
    if (status) return status;
    *n_db += index.n_db;
    *n_entry += index.n_entry;
    return FM_OK;
}

fm_status fm_source_take_indices(fm_source_scanning *scan, const char *folder,
                                 const fm_name_list *indices, uint32_t *ret_n, fm_error *reterr) {
    uint32_t n_db = 0, n_entry = 0;
    fm_status status = FM_OK;
    for (size_t i = 0; i < indices->n && !status; i++)
        status = take_index(scan, folder, indices->name[i], &n_db, &n_entry, reterr);
    if (status) return status;
    char text[PATH_MAX + 128];
    snprintf(text, sizeof text, "%s: an alignment database, %zu %s of %u %s", folder, indices->n,
             indices->n == 1 ? "index" : "indices", n_db, n_db == 1 ? "file" : "files");
    const char *found = fm_source_copy(scan->arena, text, strlen(text));
    if (!found) return fm_arena_full(scan->arena, reterr);
    scan->alignments_found = found;
    *ret_n = n_entry;
    return FM_OK;
}
