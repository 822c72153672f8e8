/* source_files.c: lists and reads the alignment files of one chain, from a folder or a database.
 * See source.h. */
#include "cache/source/source_parts.h"

#include "featurizer/msa.h"
#include "proto/limits.h"

#include "proto/base/compress.h"
#include "proto/base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_FILE_MAX = 1024 }; /* of one chain */

typedef struct file_list {
    fm_arena *arena;
    fm_source_file *file; /* [N_FILE_MAX] */
    uint32_t n;
} file_list;

static bool ends_with(const char *name, const char *ending) {
    size_t length = strlen(name), size = strlen(ending);
    return length > size && strcmp(name + length - size, ending) == 0;
}

static fm_status add_file(file_list *list, const char *name, const char *path, uint64_t offset,
                          uint64_t bytes, fm_error *reterr) {
    if (list->n == N_FILE_MAX) {
        return fm_fail(reterr, FM_ERR_LIMIT, "a chain with more than %d alignment files",
                       N_FILE_MAX);
    }
    size_t length;
    (void)fm_compression_of_name(name, &length);
    const char *bare = fm_source_copy(list->arena, name, length);
    if (!bare || !path) return fm_arena_full(list->arena, reterr);
    list->file[list->n++] = (fm_source_file){bare, path, offset, bytes};
    return FM_OK;
}

/* Adds the entries of a folder that are no folders, and those that have the name of a file that a
 * chain wants, whatever they are: reading one that is no file fails with the reason. */
static fm_status add_folder(file_list *list, const char *folder, fm_error *reterr) {
    fm_entry_list entries;
    fm_status status = fm_directory_read(folder, FM_LIMIT_N_CHAIN, list->arena, &entries, reterr);
    for (size_t i = 0; i < entries.n && !status; i++) {
        const fm_entry *entry = &entries.entry[i];
        if (entry->kind == FM_PATH_FOLDER && !fm_source_is_wanted(entry->name)) continue;
        if (fm_source_is_apple_double(entry->name)) continue;
        status = add_file(list, entry->name, fm_source_join(list->arena, folder, entry->name), 0,
                          UINT64_MAX, reterr);
    }
    free(entries.entry);
    return status;
}

/* Adds the files of the folder, of its a3m/ and hhr/, which OpenProteinSet has, and of its msas/,
 * which AlphaFold writes. */
static fm_status add_tree(file_list *list, const char *folder, fm_error *reterr) {
    static const char *const inside[] = {"a3m", "hhr", "msas"};
    fm_status status = add_folder(list, folder, reterr);
    for (size_t i = 0; i < sizeof inside / sizeof inside[0] && !status; i++) {
        const char *path = fm_source_join(list->arena, folder, inside[i]);
        if (!path) return fm_arena_full(list->arena, reterr);
        status = add_folder(list, path, reterr);
        if (status == FM_ERR_NOT_FOUND) status = FM_OK;
    }
    return status;
}

/* By bare name; then "x" before "x.gz", "x.xz" and "x.zst"; then by path, then by offset. */
static int compare_files(const void *left, const void *right) {
    const fm_source_file *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    if (!order) {
        order =
            (int)fm_compression_of_name(a->path, NULL) - (int)fm_compression_of_name(b->path, NULL);
    }
    if (!order) order = strcmp(a->path, b->path);
    return order ? order : (a->offset > b->offset) - (a->offset < b->offset);
}

fm_status fm_source_files(const fm_source_chain *chain, fm_arena *arena, uint32_t *ret_n,
                          const fm_source_file **ret_files, fm_error *reterr) {
    file_list list = {.arena = arena};
    list.file = fm_arena_alloc_array(arena, N_FILE_MAX, sizeof *list.file);
    if (!list.file) return fm_arena_full(arena, reterr);
    bool is_own = chain->folder && !chain->n_file;
    fm_status status = is_own ? add_tree(&list, chain->folder, reterr) : FM_OK;
    for (uint32_t i = 0; i < chain->n_file && !status; i++) {
        const fm_index_file *file = &chain->file[i];
        const char *path =
            chain->folder ? fm_source_join(arena, chain->folder, file->name) : chain->db;
        status = add_file(&list, file->name, path, file->offset, file->bytes, reterr);
    }
    if (status) return status;
    if (list.n) qsort(list.file, list.n, sizeof *list.file, compare_files);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list.n; i++) {
        if (kept && strcmp(list.file[i].name, list.file[kept - 1].name) == 0) continue;
        list.file[kept++] = list.file[i];
    }
    *ret_n = kept;
    *ret_files = list.file;
    return FM_OK;
}

bool fm_source_is_search(const char *name) {
    return ends_with(name, ".hhr") || strcmp(name, "hmm_output.sto") == 0 ||
           strcmp(name, "pdb_hits.sto") == 0;
}

bool fm_source_is_wanted(const char *name) {
    char bare[FM_LIMIT_NAME_BYTES + 1];
    size_t length;
    (void)fm_compression_of_name(name, &length);
    if (length >= sizeof bare || fm_source_is_apple_double(name)) return false;
    memcpy(bare, name, length);
    bare[length] = '\0';
    return fm_source_is_search(bare) || fm_msa_format_of_name(bare) != FM_MSA_NONE;
}

/* -- reading */

static fm_status read_range(int fd, uint64_t offset, uint8_t *out, size_t size, fm_error *reterr) {
    for (size_t at = 0; at < size;) {
        ssize_t got = pread(fd, out + at, size - at, (off_t)(offset + at));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fm_fail(reterr, FM_ERR_IO, "cannot read: %s", strerror(errno));
        if (got == 0) {
            return fm_fail(reterr, FM_ERR_IO, "the database ended inside the range at %llu",
                           (unsigned long long)offset);
        }
        at += (size_t)got;
    }
    return FM_OK;
}

static fm_status read_file_range(const fm_source_file *file, size_t max_bytes, fm_arena *arena,
                                 fm_bytes *ret_raw, fm_error *reterr) {
    if (file->bytes > max_bytes || file->offset > INT64_MAX - file->bytes) {
        return fm_fail(reterr, FM_ERR_LIMIT, "file has %llu bytes, at most %zu are allowed",
                       (unsigned long long)file->bytes, max_bytes);
    }
    uint8_t *data = fm_arena_alloc(arena, (size_t)file->bytes);
    if (!data) return fm_arena_full(arena, reterr);
    int fd;
    uint64_t bytes;
    fm_status status = fm_file_open(file->path, &fd, &bytes, reterr);
    if (status) return status;
    status = read_range(fd, file->offset, data, (size_t)file->bytes, reterr);
    close(fd);
    if (!status) *ret_raw = (fm_bytes){data, (size_t)file->bytes};
    return status;
}

fm_status fm_source_read(const fm_source_file *file, size_t max_bytes, fm_arena *arena,
                         fm_bytes *ret_content, fm_error *reterr) {
    fm_bytes raw;
    if (file->bytes == UINT64_MAX) {
        return fm_file_read_text(arena, file->path, max_bytes, ret_content, reterr);
    }
    fm_status status = read_file_range(file, max_bytes, arena, &raw, reterr);
    if (!status) status = fm_unpack(arena, raw, max_bytes, ret_content, reterr);
    if (status && reterr) fm_error_in(reterr, file->path);
    return status;
}

fm_status fm_source_read_structure(const fm_source_structure *structure, size_t max_bytes,
                                   fm_arena *arena, fm_bytes *ret_text, fm_error *reterr) {
    fm_bytes text;
    if (!structure->archive) {
        return fm_file_read_text(arena, structure->path, max_bytes, ret_text, reterr);
    }
    fm_status status =
        fm_archive_read(structure->archive, structure->entry, max_bytes, arena, &text, reterr);
    if (status) return status;
    status = fm_unpack(arena, text, max_bytes, ret_text, reterr);
    if (status && reterr) fm_error_in(reterr, structure->path);
    return status;
}
