/* array_writer.c: see array_writer.h. An .npz is written array by array. A .safetensors begins with
 * a table of all arrays, so its arrays are listed first and written at the end. */
#include "server/cli/array_writer.h"

#include "proto/base/file.h"
#include "proto/npz.h"
#include "proto/safetensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A file of features has far less. */
static const size_t most_bytes = (size_t)4 << 30;

struct fm_array_writer {
    fm_npz_writer *npz; /* NULL: the format is safetensors */
    char *path;
    fm_safetensor *entries; /* [n_entry] */
    size_t n_entry, capacity;
};

static const char *const names[] = {"npz", "safetensors"};

const char *fm_array_format_name(fm_array_format format) {
    return names[format];
}

fm_status fm_array_format_parse(const char *name, fm_array_format *ret_format, fm_error *reterr) {
    for (int i = 0; i <= FM_ARRAY_SAFETENSORS; i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret_format = (fm_array_format)i;
            return FM_OK;
        }
    }
    return fm_fail(reterr, FM_ERR_USAGE, "--format: found '%.32s', expected npz or safetensors",
                   name);
}

/* Names of weights have modules or folders. Those of complexes and jobs have folders, too. */
static bool is_feature(const char *name) {
    static const char *const folders[] = {"assembly/", "features/", "crop", "names/", "job/"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        if (strncmp(name, folders[i], strlen(folders[i])) == 0 && !strchr(name, '.')) return true;
    }
    return !strpbrk(name, "./");
}

static bool has_features(const fm_safetensors *file) {
    size_t n = fm_safetensors_count(file), i = 0;
    while (i < n && is_feature(fm_safetensors_at(file, i)->name))
        i++;
    return n > 0 && i == n;
}

static fm_status look(const char *path, fm_arena *arena, bool *ret_has_features, fm_error *reterr) {
    fm_safetensors *file;
    fm_bytes content;
    fm_npz npz = {0};
    fm_status status = fm_safetensors_open(path, &file, reterr);
    if (!status) {
        *ret_has_features = has_features(file);
        fm_safetensors_close(file);
        return FM_OK;
    }
    if (status != FM_ERR_IO) status = fm_file_read(arena, path, most_bytes, &content, reterr);
    if (status) return status == FM_ERR_LIMIT ? FM_OK : status;
    *ret_has_features = !fm_npz_parse(arena, content, &npz, NULL) && npz.n_array > 0;
    for (size_t i = 0; i < npz.n_array; i++)
        *ret_has_features = *ret_has_features && is_feature(npz.arrays[i].name);
    return FM_OK;
}

fm_status fm_array_output_check(const char *path, bool replace, fm_arena *arena, fm_error *reterr) {
    bool is_old, has = false;
    size_t mark = fm_arena_mark(arena);
    fm_status status = fm_file_find_old(path, replace, &is_old, reterr);
    if (status || !is_old) return status;
    status = look(path, arena, &has, reterr);
    fm_arena_rewind(arena, mark);
    if (status || has) return status;
    return fm_fail_in(reterr, FM_ERR_USAGE, path,
                      "--out: found a file that is not of features, expected one or none; choose "
                      "another name");
}

fm_status fm_array_writer_create(const char *path, fm_array_format format,
                                 fm_array_writer **ret_writer, fm_error *reterr) {
    fm_array_writer *writer = calloc(1, sizeof *writer);
    if (!writer) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a file's writer");
    writer->path = strdup(path);
    fm_status status = FM_OK;
    if (!writer->path) status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for a file's name");
    if (!status && format == FM_ARRAY_NPZ) {
        status = fm_npz_writer_create(path, &writer->npz, reterr);
    }
    if (status) {
        fm_array_writer_destroy(writer);
        return status;
    }
    *ret_writer = writer;
    return FM_OK;
}

/* safetensors' name of a NumPy dtype. */
static const char *entry_dtype(const char *dtype) {
    static const char *const table[][2] = {
        {"|b1", "BOOL"}, {"|u1", "U8"},  {"|i1", "I8"},  {"<i4", "I32"}, {"<u2", "U16"},
        {"<u4", "U32"},  {"<i8", "I64"}, {"<u8", "U64"}, {"<f4", "F32"}, {"<f8", "F64"}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(dtype, table[i][0]) == 0) return table[i][1];
    assert(!"a dtype that safetensors files here do not have");
    return NULL;
}

static fm_status append_entry(fm_array_writer *writer, const fm_safetensor *entry,
                              fm_error *reterr) {
    if (writer->n_entry == writer->capacity) {
        size_t capacity = writer->capacity * 2 + 32;
        fm_safetensor *grown = realloc(writer->entries, capacity * sizeof *grown);
        if (!grown) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a file's table");
        writer->entries = grown;
        writer->capacity = capacity;
    }
    writer->entries[writer->n_entry++] = *entry;
    return FM_OK;
}

fm_status fm_array_writer_append(fm_array_writer *writer, const char *name, const char *dtype,
                                 size_t rank, const uint64_t *shape, const void *data,
                                 fm_error *reterr) {
    if (writer->npz) {
        return fm_npz_writer_append(writer->npz, name, dtype, rank, shape, data, reterr);
    }
    assert(rank <= FM_SAFETENSORS_RANK);
    fm_safetensor entry = {.name = name,
                           .dtype = entry_dtype(dtype),
                           .rank = (int)rank,
                           .data = data,
                           .bytes = fm_npz_item_bytes(dtype)};
    for (size_t i = 0; i < rank; i++) {
        entry.shape[i] = (int64_t)shape[i];
        entry.bytes *= shape[i];
    }
    return append_entry(writer, &entry, reterr);
}

fm_status fm_array_writer_append_all(fm_array_writer *writer, const fm_array *arrays, size_t n,
                                     fm_error *reterr) {
    fm_status status = FM_OK;
    for (size_t i = 0; !status && i < n; i++) {
        status = fm_array_writer_append(writer, arrays[i].key, arrays[i].dtype, arrays[i].rank,
                                        arrays[i].shape, arrays[i].data, reterr);
    }
    return status;
}

static int item_bytes(const fm_safetensor *entry) {
    const char *last = entry->dtype + strlen(entry->dtype) - 1;
    return *last == '4' ? 8 : *last == '2' ? 4 : 1; /* ..64, ..32, the rest */
}

/* Wide elements first, so that every array begins at a multiple of its element. */
static int by_width(const void *a, const void *b) {
    const fm_safetensor *left = a, *right = b;
    int order = item_bytes(right) - item_bytes(left);
    return order ? order : strcmp(left->name, right->name);
}

fm_status fm_array_writer_finish(fm_array_writer *writer, fm_error *reterr) {
    fm_status status;
    if (writer->npz) {
        status = fm_npz_writer_finish(writer->npz, reterr);
        writer->npz = NULL;
    } else {
        if (writer->n_entry) {
            qsort(writer->entries, writer->n_entry, sizeof *writer->entries, by_width);
        }
        status =
            fm_safetensors_write(writer->path, writer->entries, writer->n_entry, NULL, 0, reterr);
    }
    fm_array_writer_destroy(writer);
    return status;
}

void fm_array_writer_destroy(fm_array_writer *writer) {
    if (!writer) return;
    fm_npz_writer_destroy(writer->npz);
    free(writer->entries);
    free(writer->path);
    free(writer);
}
