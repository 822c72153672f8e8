/* safetensors.c: see safetensors.h.
 *
 * The writer formats the JSON header twice: once to measure it, once into memory of that size. The
 * reader parses the header as JSON, whose tree owns all names and notes, and keeps the entries
 * in a table sorted by name. Tensor data is read with pread when it is asked for. */
#include "proto/safetensors.h"

#include "proto/base/file.h"
#include "proto/base/json_tree.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH_BYTES = 8, ALIGN_BYTES = 8 };

static fm_status fail_errno(fm_error *reterr, const char *path, const char *what) {
    return fm_fail_in(reterr, errno == ENOENT ? FM_ERR_NOT_FOUND : FM_ERR_IO, path, "%s: %s", what,
                      strerror(errno));
}

/* -- writing */

static bool is_plain(const char *text) {
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == '"' || *text == '\\') return false;
    }
    return true;
}

/* Text under construction. `size` keeps counting when the text does not fit, as in fm_writer. */
typedef struct text {
    char *data;
    size_t capacity, size;
} text;

FM_PRINTF(2, 3) static void put(text *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    size_t room = t->size < t->capacity ? t->capacity - t->size : 0;
    int n = vsnprintf(room ? t->data + t->size : NULL, room, format, arguments);
    va_end(arguments);
    assert(n >= 0);
    t->size += (size_t)n;
}

static void put_string(text *t, const char *value) {
    put(t, "\"");
    for (const char *p = value; *p; p++) {
        if (*p == '\n') {
            put(t, "\\n");
        } else if ((unsigned char)*p < 0x20 || *p == '"' || *p == '\\') {
            put(t, "\\u%04x", (unsigned char)*p);
        } else {
            put(t, "%c", *p);
        }
    }
    put(t, "\"");
}

static void put_header(text *t, const fm_safetensor *tensor, size_t n_tensor,
                       const fm_safetensors_note *note, size_t n_note) {
    put(t, "{\"__metadata__\":{");
    for (size_t i = 0; i < n_note; i++) {
        put(t, "%s\"%s\":", i ? "," : "", note[i].key);
        put_string(t, note[i].value);
    }
    put(t, "}");
    for (size_t i = 0; i < n_tensor; i++) {
        put(t, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", tensor[i].name, tensor[i].dtype);
        for (int axis = 0; axis < tensor[i].rank; axis++)
            put(t, "%s%" PRId64, axis ? "," : "", tensor[i].shape[axis]);
        put(t, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", tensor[i].offset,
            tensor[i].offset + tensor[i].bytes);
    }
    put(t, "}");
    while (t->size % ALIGN_BYTES)
        put(t, " "); /* so that the data starts aligned */
}

/* Makes the header's text; the caller frees it. */
static fm_status make_header(const fm_safetensor *tensor, size_t n_tensor,
                             const fm_safetensors_note *note, size_t n_note, text *ret_header,
                             fm_error *reterr) {
    text header = {.data = NULL};
    put_header(&header, tensor, n_tensor, note, n_note);
    header.capacity = header.size + 1;
    header.size = 0;
    header.data = malloc(header.capacity);
    if (!header.data) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a checkpoint's header");
    put_header(&header, tensor, n_tensor, note, n_note);
    *ret_header = header;
    return FM_OK;
}

static fm_status write_file(const char *path, const text *header, const fm_safetensor *tensor,
                            size_t n_tensor, fm_error *reterr) {
    fm_file_writer *writer;
    fm_status status = fm_file_writer_open(path, &writer, reterr);
    if (status) return status;
    uint64_t length = header->size;
    status = fm_file_writer_append(writer, &length, LENGTH_BYTES, reterr);
    if (!status) status = fm_file_writer_append(writer, header->data, header->size, reterr);
    for (size_t i = 0; !status && i < n_tensor; i++)
        status = fm_file_writer_append(writer, tensor[i].data, tensor[i].bytes, reterr);
    if (!status) return fm_file_writer_commit(writer, reterr);
    fm_file_writer_discard(writer);
    return status;
}

fm_status fm_safetensors_write(const char *path, fm_safetensor *tensor, size_t n_tensor,
                               const fm_safetensors_note *note, size_t n_note, fm_error *reterr) {
    uint64_t offset = 0;
    for (size_t i = 0; i < n_tensor; i++) {
        assert(is_plain(tensor[i].name));
        tensor[i].offset = offset;
        offset += tensor[i].bytes;
    }
    text header;
    fm_status status = make_header(tensor, n_tensor, note, n_note, &header, reterr);
    if (status) return status;
    status = write_file(path, &header, tensor, n_tensor, reterr);
    free(header.data);
    return status;
}

/* -- reading */

struct fm_safetensors {
    int fd;
    char *path;
    fm_json *json; /* owns names and notes */
    uint64_t data_at, data_bytes;
    fm_safetensor *tensor; /* [n_tensor] sorted by name */
    size_t n_tensor;
};

static fm_status fail_corrupt(const fm_safetensors *file, fm_error *reterr, const char *what,
                              const char *name) {
    return fm_fail_in(reterr, FM_ERR_CORRUPT, file->path, "%s%s%.100s", what, name ? ": " : "",
                      name ? name : "");
}

static fm_status read_at(const fm_safetensors *file, void *out, uint64_t bytes, uint64_t at,
                         fm_error *reterr) {
    char *to = out;
    while (bytes) {
        ssize_t n = pread(file->fd, to, bytes > INT_MAX ? INT_MAX : (size_t)bytes, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(reterr, file->path, "cannot read");
        if (n == 0) {
            return fail_corrupt(file, reterr, "the file ends too early; it is cut off", NULL);
        }
        to += n;
        at += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return FM_OK;
}

static uint64_t element_bytes(const char *dtype) {
    static const struct {
        const char *name;
        uint64_t bytes;
    } known[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
                 {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"U64", 8},
                 {"U32", 4}, {"U16", 2}, {"BOOL", 1}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, dtype) == 0) return known[i].bytes;
    }
    return 0;
}

/* Parses the shape of an entry; *ret_bytes is that of its elements. */
static bool parse_shape(const fm_json *shape, fm_safetensor *tensor, uint64_t *ret_bytes) {
    if (!fm_json_is_array(shape) || fm_json_count(shape) > FM_SAFETENSORS_RANK) return false;
    tensor->rank = (int)fm_json_count(shape);
    uint64_t bytes = element_bytes(tensor->dtype);
    bool lawful = bytes > 0;
    for (int axis = 0; lawful && axis < tensor->rank; axis++) {
        int64_t extent;
        lawful = fm_json_get_integer(fm_json_get_element(shape, (size_t)axis), &extent) &&
                 extent >= 0 && !__builtin_mul_overflow(bytes, (uint64_t)extent, &bytes);
        if (lawful) tensor->shape[axis] = extent;
    }
    *ret_bytes = bytes;
    return lawful;
}

/* Parses one member of the header. Its range must hold exactly the elements. */
static bool parse_entry(const fm_json_member *entry, fm_safetensor *tensor) {
    *tensor = (fm_safetensor){.name = entry->name,
                              .dtype = fm_json_get_text(fm_json_get_member(entry->value, "dtype"))};
    const fm_json *range = fm_json_get_member(entry->value, "data_offsets");
    int64_t begin, end;
    if (!tensor->dtype ||
        !parse_shape(fm_json_get_member(entry->value, "shape"), tensor, &tensor->bytes) ||
        fm_json_count(range) != 2 || !fm_json_get_integer(fm_json_get_element(range, 0), &begin) ||
        !fm_json_get_integer(fm_json_get_element(range, 1), &end)) {
        return false;
    }
    tensor->offset = (uint64_t)begin;
    return begin >= 0 && end >= begin && (uint64_t)(end - begin) == tensor->bytes;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const fm_safetensor *)a)->name, ((const fm_safetensor *)b)->name);
}

static int by_offset(const void *a, const void *b) {
    const fm_safetensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The tensors' bytes are the rest of the file, without gaps: what no tensor has could be anything,
 * and other readers refuse it, too. */
static fm_status check_places(fm_safetensors *file, fm_error *reterr) {
    uint64_t end = 0;
    qsort(file->tensor, file->n_tensor, sizeof *file->tensor, by_offset);
    for (size_t i = 0; i < file->n_tensor; i++) {
        const fm_safetensor *tensor = &file->tensor[i];
        if (tensor->offset != end) {
            return fail_corrupt(file, reterr, "there is a gap or an overlap before", tensor->name);
        }
        end += tensor->bytes;
    }
    if (end == file->data_bytes) return FM_OK;
    return fail_corrupt(file, reterr, "bytes follow the last tensor", NULL);
}

static fm_status parse_entries(fm_safetensors *file, fm_error *reterr) {
    file->tensor = calloc(fm_json_count(file->json) + 1, sizeof *file->tensor);
    if (!file->tensor) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a checkpoint's table");
    fm_json_member entry;
    for (bool any = fm_json_first_member(file->json, &entry); any;
         any = fm_json_next_member(file->json, &entry)) {
        if (strcmp(entry.name, "__metadata__") == 0) continue;
        fm_safetensor *tensor = &file->tensor[file->n_tensor];
        if (!parse_entry(&entry, tensor)) {
            return fail_corrupt(file, reterr, "dtype, shape and data_offsets do not agree",
                                entry.name);
        }
        if (tensor->offset + tensor->bytes > file->data_bytes) {
            return fail_corrupt(file, reterr, "the file is cut off, it ends before the end of",
                                entry.name);
        }
        file->n_tensor++;
    }
    fm_status status = check_places(file, reterr);
    qsort(file->tensor, file->n_tensor, sizeof *file->tensor, by_name);
    return status;
}

static fm_status parse_header(fm_safetensors *file, uint64_t file_bytes, fm_error *reterr) {
    uint64_t length = 0;
    if (file_bytes < LENGTH_BYTES) {
        return fail_corrupt(file, reterr,
                            "this is not a safetensors file, or it is cut off: it is shorter than "
                            "the length of a header",
                            NULL);
    }
    fm_status status = read_at(file, &length, LENGTH_BYTES, 0, reterr);
    if (status) return status;
    if (length > FM_SAFETENSORS_HEADER_BYTES || length > file_bytes - LENGTH_BYTES) {
        return fail_corrupt(file, reterr,
                            "this is not a safetensors file, or it is cut off: the header is "
                            "longer than the file or the limit",
                            NULL);
    }
    char *header = malloc(length + 1);
    if (!header) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a checkpoint's header");
    status = read_at(file, header, length, LENGTH_BYTES, reterr);
    if (!status) {
        file->json = fm_json_parse(header, length);
        if (!fm_json_is_object(file->json)) {
            status = fail_corrupt(file, reterr,
                                  "this is not a safetensors file: the header is not a JSON object",
                                  NULL);
        }
    }
    free(header);
    file->data_at = LENGTH_BYTES + length;
    file->data_bytes = file_bytes - file->data_at;
    return status ? status : parse_entries(file, reterr);
}

fm_status fm_safetensors_open(const char *path, fm_safetensors **ret_file, fm_error *reterr) {
    fm_safetensors *file = calloc(1, sizeof *file);
    if (!file || !(file->path = strdup(path))) {
        free(file);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a checkpoint");
    }
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    fm_status status = FM_OK;
    if (file->fd < 0 || fstat(file->fd, &info) != 0) {
        status = fail_errno(reterr, path, "cannot open");
    } else if (!S_ISREG(info.st_mode)) {
        status = fail_corrupt(file, reterr, "this is not a regular file", NULL);
    } else {
        status = parse_header(file, (uint64_t)info.st_size, reterr);
    }
    if (status) {
        fm_safetensors_close(file);
        return status;
    }
    *ret_file = file;
    return FM_OK;
}

void fm_safetensors_close(fm_safetensors *file) {
    if (!file) return;
    if (file->fd >= 0) close(file->fd);
    fm_json_free(file->json);
    free(file->tensor);
    free(file->path);
    free(file);
}

const char *fm_safetensors_note_of(const fm_safetensors *file, const char *key) {
    return fm_json_get_text(
        fm_json_get_member(fm_json_get_member(file->json, "__metadata__"), key));
}

const fm_safetensor *fm_safetensors_find(const fm_safetensors *file, const char *name) {
    const fm_safetensor key = {.name = name};
    return bsearch(&key, file->tensor, file->n_tensor, sizeof *file->tensor, by_name);
}

size_t fm_safetensors_count(const fm_safetensors *file) {
    return file->n_tensor;
}

const fm_safetensor *fm_safetensors_at(const fm_safetensors *file, size_t index) {
    assert(index < file->n_tensor);
    return &file->tensor[index];
}

fm_status fm_safetensors_read(const fm_safetensors *file, const fm_safetensor *tensor, void *out,
                              fm_error *reterr) {
    return read_at(file, out, tensor->bytes, file->data_at + tensor->offset, reterr);
}
