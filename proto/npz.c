/* npz.c: the reading half of npz.h: members and .npy headers. A local header precedes the bytes of
 * a member, which is unpacked into the arena, checked by its CRC-32, and parsed there as .npy. */
#include "proto/npz.h"

#include "proto/base/compress.h"
#include "proto/limits.h"
#include "proto/npz_format.h"
#include "proto/zip_directory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    STRING_ITEM_MAX = 1 << 20, /* largest N of "|SN"; longer items are refused */
    DEFLATE_RATIO_MAX = 1032,  /* deflate cannot expand further: 258 bytes from 2 bits */
};

/* -- .npy */

size_t fm_npz_item_bytes(const char *dtype) {
    static const struct {
        const char *name;
        size_t bytes;
    } known[] = {{"|b1", 1}, {"|u1", 1}, {"|i1", 1}, {"<u2", 2}, {"<i2", 2}, {"<f2", 2},
                 {"<u4", 4}, {"<i4", 4}, {"<f4", 4}, {"<u8", 8}, {"<i8", 8}, {"<f8", 8}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, dtype) == 0) return known[i].bytes;
    }
    if (strncmp(dtype, "|S", 2) != 0) return 0;
    size_t bytes = 0, at = 2;
    for (; dtype[at] >= '0' && dtype[at] <= '9' && bytes <= STRING_ITEM_MAX; at++)
        bytes = bytes * 10 + (size_t)(dtype[at] - '0');
    return dtype[at] == '\0' && bytes <= STRING_ITEM_MAX ? bytes : 0;
}

/* The text of the header's dictionary; `at` advances. */
typedef struct header_text {
    const char *text;
    size_t size, at;
    size_t place; /* offset of text[0] in the caller's input, for errors */
    bool is_fortran;
} header_text;

static fm_status fail_text(const header_text *in, fm_error *reterr, const char *expected) {
    return fm_fail_at(reterr, FM_ERR_FORMAT, 0, 0, in->place + in->at,
                      "the npy header is malformed, expected %s", expected);
}

static char peek(header_text *in) {
    while (in->at < in->size && (in->text[in->at] == ' ' || in->text[in->at] == '\n'))
        in->at++;
    return in->at < in->size ? in->text[in->at] : '\0';
}

static bool accept(header_text *in, const char *word) {
    peek(in);
    size_t length = strlen(word);
    if (in->size - in->at < length || memcmp(in->text + in->at, word, length) != 0) return false;
    in->at += length;
    return true;
}

/* Accepts a quoted word without escapes and borrows it from the text. */
static bool accept_quoted(header_text *in, const char **ret_word, size_t *ret_bytes) {
    char quote = peek(in);
    if (quote != '\'' && quote != '"') return false;
    const char *word = in->text + in->at + 1;
    const char *end = memchr(word, quote, in->size - in->at - 1);
    if (!end) return false;
    *ret_word = word;
    *ret_bytes = (size_t)(end - word);
    in->at += *ret_bytes + 2;
    return true;
}

static fm_status parse_descr(header_text *in, fm_npy *array, fm_error *reterr) {
    const char *word;
    size_t bytes;
    peek(in);
    size_t start = in->at;
    if (!accept_quoted(in, &word, &bytes)) return fail_text(in, reterr, "a dtype in quotes");
    if (bytes < FM_NPZ_DTYPE_BYTES) {
        memcpy(array->dtype, word, bytes);
        array->dtype[bytes] = '\0';
        array->item_bytes = fm_npz_item_bytes(array->dtype);
    }
    if (array->item_bytes > 0) return FM_OK;
    return fm_fail_at(
        reterr, FM_ERR_UNSUPPORTED, 0, 0, in->place + start,
        "the dtype '%.*s' is none of |b1 |u1 |i1 <u2 <i2 <f2 <u4 <i4 <f4 <u8 <i8 <f8 |SN",
        bytes < 32 ? (int)bytes : 32, word);
}

static fm_status parse_dimension(header_text *in, uint64_t *ret_value, fm_error *reterr) {
    uint64_t value = 0;
    char digit = peek(in);
    if (digit < '0' || digit > '9') return fail_text(in, reterr, "a dimension");
    for (; digit >= '0' && digit <= '9'; digit = in->at < in->size ? in->text[in->at] : '\0') {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(digit - '0'), &value)) {
            return fail_text(in, reterr, "a dimension below 2^64");
        }
        in->at++;
    }
    *ret_value = value;
    return FM_OK;
}

static fm_status parse_shape(header_text *in, fm_npy *array, fm_error *reterr) {
    if (!accept(in, "(")) return fail_text(in, reterr, "a shape in brackets");
    array->rank = 0;
    while (!accept(in, ")")) {
        if (array->rank == FM_NPZ_RANK_MAX) return fail_text(in, reterr, "at most 8 dimensions");
        fm_status status = parse_dimension(in, &array->shape[array->rank++], reterr);
        if (status) return status;
        if (!accept(in, ",") && peek(in) != ')') return fail_text(in, reterr, "',' or ')'");
    }
    return FM_OK;
}

static fm_status parse_order(header_text *in, fm_error *reterr) {
    in->is_fortran = accept(in, "True");
    if (in->is_fortran || accept(in, "False")) return FM_OK;
    return fail_text(in, reterr, "True or False");
}

/* Parses one "key: value," of the dictionary; *seen collects the keys. */
static fm_status parse_pair(header_text *in, fm_npy *array, unsigned *seen, fm_error *reterr) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    const char *word;
    size_t bytes, key = 0;
    if (!accept_quoted(in, &word, &bytes)) return fail_text(in, reterr, "a key in quotes");
    while (key < 3 && (strlen(keys[key]) != bytes || memcmp(keys[key], word, bytes) != 0))
        key++;
    if (key == 3 || (*seen & 1u << key)) {
        return fail_text(in, reterr, "descr, fortran_order and shape, each once");
    }
    *seen |= 1u << key;
    if (!accept(in, ":")) return fail_text(in, reterr, "':'");
    fm_status status = key == 0   ? parse_descr(in, array, reterr)
                       : key == 1 ? parse_order(in, reterr)
                                  : parse_shape(in, array, reterr);
    if (!status && !accept(in, ",") && peek(in) != '}') return fail_text(in, reterr, "',' or '}'");
    return status;
}

static fm_status parse_dictionary(header_text *in, fm_npy *array, fm_error *reterr) {
    unsigned seen = 0;
    if (!accept(in, "{")) return fail_text(in, reterr, "'{'");
    while (!accept(in, "}")) {
        fm_status status = parse_pair(in, array, &seen, reterr);
        if (status) return status;
    }
    if (seen != 7) return fail_text(in, reterr, "descr, fortran_order and shape");
    if (peek(in) != '\0') return fail_text(in, reterr, "nothing after the dictionary");
    return FM_OK;
}

/* Checks that the shape needs exactly `data_bytes`. */
static fm_status check_size(fm_npy *array, size_t data_bytes, size_t place, fm_error *reterr) {
    uint64_t count = 1, bytes;
    bool overflows = false;
    for (size_t i = 0; i < array->rank; i++)
        overflows |= __builtin_mul_overflow(count, array->shape[i], &count);
    overflows |= __builtin_mul_overflow(count, (uint64_t)array->item_bytes, &bytes);
    if (overflows || bytes != data_bytes) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, place,
                          "the npy header's shape does not fit the %zu bytes of data that follow",
                          data_bytes);
    }
    array->count = count;
    return FM_OK;
}

/* Copies an array in Fortran order, where the first index varies fastest, into C order. */
static fm_status order_by_rows(fm_arena *arena, const uint8_t *from, fm_npy *array,
                               fm_error *reterr) {
    size_t item = array->item_bytes;
    uint8_t *to = fm_arena_alloc_array(arena, array->count, item);
    uint64_t index[FM_NPZ_RANK_MAX] = {0};
    if (!to) return fm_arena_full(arena, reterr);
    for (uint64_t i = 0; i < array->count; i++) {
        uint64_t at = 0;
        for (size_t k = array->rank; k-- > 0;)
            at = at * array->shape[k] + index[k];
        memcpy(to + i * item, from + at * item, item);
        for (size_t k = array->rank; k-- > 0 && ++index[k] == array->shape[k];)
            index[k] = 0;
    }
    array->data = to;
    return FM_OK;
}

/* Parses a .npy that is in the arena already, so that the data can be moved to an aligned place.
 * `place` is its offset in the caller's input, for errors. */
static fm_status parse_npy_in_place(fm_arena *arena, uint8_t *npy, size_t size, size_t place,
                                    fm_npy *array, fm_error *reterr) {
    fm_reader reader = fm_reader_of(npy, size);
    const uint8_t *magic = fm_read_borrow(&reader, 6);
    if (!magic || memcmp(magic, NPY_MAGIC, 6) != 0) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, 0, 0, place,
                          "expected an .npy array, which begins with \\x93NUMPY");
    }
    uint8_t major = fm_read_u8(&reader), minor = fm_read_u8(&reader);
    if (major < 1 || major > 3 || minor != 0) {
        return fm_fail_at(reterr, FM_ERR_UNSUPPORTED, 0, 0, place,
                          "the npy version is %u.%u, expected 1.0, 2.0 or 3.0", major, minor);
    }
    size_t text_bytes = major == 1 ? fm_read_u16(&reader) : fm_read_u32(&reader);
    header_text text = {.place = place + reader.at, .size = text_bytes};
    text.text = (const char *)fm_read_borrow(&reader, text_bytes);
    if (!text.text) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, 0, 0, place,
                          "the npy header of %zu bytes does not fit in %zu bytes", text_bytes,
                          size);
    }
    fm_status status = parse_dictionary(&text, array, reterr);
    if (status) return status;
    status = check_size(array, fm_reader_left(&reader), place + reader.at, reterr);
    if (status) return status;
    if (text.is_fortran && array->count > 0) {
        return order_by_rows(arena, npy + reader.at, array, reterr);
    }
    /* NumPy before 1.14 aligned the data to 16 only, but callers rely on 64. */
    if (reader.at % 64 == 0) {
        array->data = npy + reader.at;
    } else {
        memmove(npy, npy + reader.at, fm_reader_left(&reader));
        array->data = npy;
    }
    return FM_OK;
}

fm_status fm_npy_parse(fm_arena *arena, fm_bytes npy, fm_npy *ret_array, fm_error *reterr) {
    uint8_t *copy = fm_arena_alloc(arena, npy.size);
    if (!copy) return fm_arena_full(arena, reterr);
    if (npy.size > 0) memcpy(copy, npy.data, npy.size);
    fm_npy array = {.name = ""};
    fm_status status = parse_npy_in_place(arena, copy, npy.size, 0, &array, reterr);
    if (!status) *ret_array = array;
    return status;
}

/* -- zip */

static fm_reader reader_at(fm_bytes archive, uint64_t offset) {
    fm_reader reader = fm_reader_of(archive.data, archive.size);
    reader.failed = offset > archive.size;
    reader.at = reader.failed ? archive.size : (size_t)offset;
    return reader;
}

/* Finds the member's bytes, after its local header, whose name and extra field have their own
 * lengths. */
static fm_status borrow_packed(fm_bytes archive, const fm_zip_member *member,
                               const uint8_t **ret_packed, fm_error *reterr) {
    fm_reader local = reader_at(archive, member->offset);
    const uint8_t *header = fm_read_borrow(&local, FM_ZIP_LOCAL_BYTES);
    uint16_t name_bytes = 0, extra_bytes = 0;
    const bool is_local = header && fm_zip_read_local(header, &name_bytes, &extra_bytes);
    const uint8_t *name = fm_read_borrow(&local, name_bytes);
    (void)fm_read_borrow(&local, extra_bytes);
    if (!is_local || local.failed || name_bytes != member->name_bytes ||
        memcmp(name, member->name, name_bytes) != 0) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, 0, 0, member->at,
                          "the zip directory points at %" PRIu64
                          ", where there is no local header of that name",
                          member->offset);
    }
    *ret_packed = member->packed_bytes <= fm_reader_left(&local)
                      ? fm_read_borrow(&local, (size_t)member->packed_bytes)
                      : NULL;
    if (*ret_packed) return FM_OK;
    return fm_fail_at(reterr, FM_ERR_FORMAT, 0, 0, member->at,
                      "the zip member of %" PRIu64 " bytes at %" PRIu64
                      " extends past the file's end",
                      member->packed_bytes, member->offset);
}

static fm_status check_method(const fm_zip_member *member, fm_error *reterr) {
    if (member->flags & 1) {
        return fm_fail_at(reterr, FM_ERR_UNSUPPORTED, 0, 0, member->at,
                          "the zip member is encrypted");
    }
    if (member->method != ZIP_STORED && member->method != ZIP_DEFLATED) {
        return fm_fail_at(reterr, FM_ERR_UNSUPPORTED, 0, 0, member->at,
                          "the zip compression method is %u, expected stored (0) or deflated (8)",
                          member->method);
    }
    bool is_impossible = member->method == ZIP_STORED
                             ? member->bytes != member->packed_bytes
                             : member->bytes / DEFLATE_RATIO_MAX > member->packed_bytes;
    if (!is_impossible) return FM_OK;
    return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, member->at,
                      "the zip member declares %" PRIu64 " bytes, which %" PRIu64
                      " packed bytes cannot give",
                      member->bytes, member->packed_bytes);
}

/* Unpacks the member's bytes into the arena and checks them. */
static fm_status unpack(fm_arena *arena, const fm_zip_member *member, const uint8_t *packed,
                        uint8_t **ret_content, fm_error *reterr) {
    size_t bytes = (size_t)member->bytes;
    uint8_t *content = fm_arena_alloc(arena, bytes);
    if (!content) return fm_arena_full(arena, reterr);
    if (member->method == ZIP_STORED) {
        memcpy(content, packed, bytes);
    } else {
        fm_status status =
            fm_deflate_decompress(content, bytes, packed, (size_t)member->packed_bytes, reterr);
        if (status) return status;
    }
    uint32_t crc = fm_crc32(0, content, bytes);
    if (crc != member->crc) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, member->at,
                          "the zip member %.*s has CRC-32 %08x, its directory entry says %08x",
                          (int)member->name_bytes, (const char *)member->name, crc, member->crc);
    }
    *ret_content = content;
    return FM_OK;
}

/* Copies the array's name: the member's name without ".npy". */
static fm_status copy_name(fm_arena *arena, const fm_zip_member *member, const char **ret_name,
                           fm_error *reterr) {
    size_t bytes = member->name_bytes;
    if (bytes < 5 || memcmp(member->name + bytes - 4, ".npy", 4) != 0 ||
        memchr(member->name, '\0', bytes)) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, 0, 0, member->at,
                          "the zip member is not called NAME.npy");
    }
    bytes -= 4;
    if (bytes > FM_LIMIT_NAME_BYTES) {
        return fm_fail_at(reterr, FM_ERR_LIMIT, 0, 0, member->at,
                          "the array name has %zu bytes, the limit is %u", bytes,
                          FM_LIMIT_NAME_BYTES);
    }
    char *name = fm_arena_alloc(arena, bytes + 1);
    if (!name) return fm_arena_full(arena, reterr);
    memcpy(name, member->name, bytes);
    name[bytes] = '\0';
    *ret_name = name;
    return FM_OK;
}

static fm_status parse_member(fm_arena *arena, fm_bytes archive, fm_reader *directory,
                              fm_npy *array, fm_error *reterr) {
    fm_zip_member member;
    const uint8_t *packed = NULL;
    uint8_t *content = NULL;
    fm_status status = fm_zip_read_member(directory, &member, reterr);
    if (!status) status = check_method(&member, reterr);
    if (!status) status = copy_name(arena, &member, &array->name, reterr);
    if (!status) status = borrow_packed(archive, &member, &packed, reterr);
    if (!status) status = unpack(arena, &member, packed, &content, reterr);
    if (status) return status;
    status = parse_npy_in_place(arena, content, (size_t)member.bytes, (size_t)member.offset, array,
                                reterr);
    if (!status || !reterr) return status;
    const fm_error why = *reterr; /* knows the bytes, not the name of the array */
    return fm_fail_at(reterr, status, why.line, why.column, why.offset, "%s: %s", array->name,
                      why.message);
}

static int compare_names(const void *a, const void *b) {
    const fm_npy *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Refuses two arrays of one name: readers would take the first or the last of them. */
static fm_status check_names(fm_arena *arena, const fm_npy *arrays, size_t n, fm_error *reterr) {
    const size_t mark = fm_arena_mark(arena);
    const fm_npy **sorted = fm_arena_alloc_array(arena, n, sizeof *sorted);
    if (!sorted) return fm_arena_full(arena, reterr);
    for (size_t i = 0; i < n; i++)
        sorted[i] = &arrays[i];
    qsort(sorted, n, sizeof *sorted, compare_names);
    size_t twice = 1;
    while (twice < n && strcmp(sorted[twice]->name, sorted[twice - 1]->name) != 0)
        twice++;
    const char *name = twice < n ? sorted[twice]->name : NULL;
    fm_arena_rewind(arena, mark);
    if (!name) return FM_OK;
    return fm_fail(reterr, FM_ERR_FORMAT, "found the array %s twice, expected it once", name);
}

fm_status fm_npz_parse(fm_arena *arena, fm_bytes archive, fm_npz *ret_npz, fm_error *reterr) {
    fm_zip_directory directory;
    fm_status status = fm_zip_read_directory(archive, 0, &directory, reterr);
    if (status) return status;
    fm_npy *arrays = fm_arena_calloc(arena, (size_t)directory.n_entry, sizeof *arrays);
    if (!arrays) return fm_arena_full(arena, reterr);
    fm_reader reader = fm_reader_of(archive.data, (size_t)(directory.offset + directory.bytes));
    reader.at = (size_t)directory.offset;
    for (uint64_t i = 0; i < directory.n_entry; i++) {
        status = parse_member(arena, archive, &reader, &arrays[i], reterr);
        if (status) return status;
    }
    status = check_names(arena, arrays, (size_t)directory.n_entry, reterr);
    if (!status) *ret_npz = (fm_npz){.n_array = (size_t)directory.n_entry, .arrays = arrays};
    return status;
}

const fm_npy *fm_npz_find(const fm_npz *npz, const char *name) {
    for (size_t i = 0; i < npz->n_array; i++) {
        if (strcmp(npz->arrays[i].name, name) == 0) return &npz->arrays[i];
    }
    return NULL;
}
