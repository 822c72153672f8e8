/* npz_write.c: the writing half of npz.h. A local header, the .npy header and the data of each
 * member go directly to the file; the directory is collected in memory and written at the end. */
#include "proto/npz.h"

#include "proto/base/compress.h"
#include "proto/base/file.h"
#include "proto/limits.h"
#include "proto/npz_format.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NPY_HEADER_MAX = 512, /* 8 dimensions of 20 digits and the fixed words take below 300 */
    NPY_PREAMBLE = 10,    /* magic, version, u16 length */
    NPY_ALIGNMENT = 64,
    ENTRY_MAX = ZIP_CENTRAL_BYTES + ZIP_ZIP64_EXTRA_MAX + (int)FM_LIMIT_NAME_BYTES + 4
};

struct fm_npz_writer {
    fm_file_writer *file;
    uint64_t at;        /* bytes written so far */
    uint64_t n_entry;   /* members so far */
    uint8_t *directory; /* encoded central headers */
    size_t directory_bytes, directory_capacity;
};

/* The values that a member's local and central headers share. */
typedef struct zip_entry {
    const char *name; /* with ".npy" */
    uint32_t crc;
    uint64_t size, offset;
} zip_entry;

fm_status fm_npz_writer_create(const char *path, fm_npz_writer **ret_writer, fm_error *reterr) {
    fm_npz_writer *writer = calloc(1, sizeof *writer);
    if (!writer) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for an npz writer");
    fm_status status = fm_file_writer_open(path, &writer->file, reterr);
    if (status) {
        free(writer);
        return status;
    }
    *ret_writer = writer;
    return FM_OK;
}

static fm_status put(fm_npz_writer *writer, const void *data, size_t size, fm_error *reterr) {
    writer->at += size;
    return fm_file_writer_append(writer->file, data, size, reterr);
}

/* Writes the .npy magic, version and dictionary into out[0..NPY_HEADER_MAX-1] and returns their
 * length. */
static size_t encode_npy_header(char *out, const char *dtype, size_t rank, const uint64_t *shape) {
    char *text = out + NPY_PREAMBLE;
    size_t room = NPY_HEADER_MAX - NPY_PREAMBLE - NPY_ALIGNMENT;
    size_t at =
        (size_t)snprintf(text, room, "{'descr': '%s', 'fortran_order': False, 'shape': (", dtype);
    for (size_t i = 0; i < rank; i++) {
        const char *separator = rank == 1 ? "," : i + 1 < rank ? ", " : "";
        at += (size_t)snprintf(text + at, room - at, "%" PRIu64 "%s", shape[i], separator);
    }
    at += (size_t)snprintf(text + at, room - at, "), }");
    assert(at < room);
    size_t whole = (NPY_PREAMBLE + at + NPY_ALIGNMENT) & ~(size_t)(NPY_ALIGNMENT - 1);
    memset(text + at, ' ', whole - NPY_PREAMBLE - at);
    out[whole - 1] = '\n';
    fm_writer preamble = fm_writer_of(out, NPY_PREAMBLE);
    fm_write_bytes(&preamble, NPY_MAGIC "\x01\x00", 8);
    fm_write_u16(&preamble, (uint16_t)(whole - NPY_PREAMBLE));
    return whole;
}

/* Encodes the fields that local and central headers share, from the version on. */
static void encode_common(fm_writer *out, const zip_entry *entry, bool big_size, bool big,
                          size_t extra_bytes) {
    uint32_t size = big_size ? ZIP_IN_EXTRA32 : (uint32_t)entry->size;
    fm_write_u16(out, big ? 45 : 20); /* version needed: zip64 or plain */
    fm_write_u16(out, 0);             /* flags */
    fm_write_u16(out, ZIP_STORED);
    fm_write_u16(out, 0);          /* 00:00:00 */
    fm_write_u16(out, 1 << 5 | 1); /* 1980-01-01 */
    fm_write_u32(out, entry->crc);
    fm_write_u32(out, size);
    fm_write_u32(out, size);
    fm_write_u16(out, (uint16_t)strlen(entry->name));
    fm_write_u16(out, (uint16_t)extra_bytes);
}

static void encode_sizes_extra(fm_writer *out, const zip_entry *entry) {
    fm_write_u64(out, entry->size);
    fm_write_u64(out, entry->size);
}

static void encode_local(fm_writer *out, const zip_entry *entry) {
    bool big = entry->size >= ZIP_IN_EXTRA32;
    fm_write_u32(out, ZIP_LOCAL);
    encode_common(out, entry, big, big, big ? 20 : 0);
    fm_write_bytes(out, entry->name, strlen(entry->name));
    if (!big) return;
    fm_write_u16(out, ZIP_EXTRA_ZIP64);
    fm_write_u16(out, 16);
    encode_sizes_extra(out, entry);
}

static void encode_central(fm_writer *out, const zip_entry *entry) {
    bool big_size = entry->size >= ZIP_IN_EXTRA32, big_offset = entry->offset >= ZIP_IN_EXTRA32;
    size_t payload = (big_size ? 16u : 0u) + (big_offset ? 8u : 0u);
    fm_write_u32(out, ZIP_CENTRAL);
    fm_write_u16(out, 45); /* made by: APPNOTE 4.5, MS-DOS attributes */
    encode_common(out, entry, big_size, payload > 0, payload > 0 ? payload + 4 : 0);
    fm_write_u16(out, 0); /* comment */
    fm_write_u16(out, 0); /* disk */
    fm_write_u16(out, 0); /* internal attributes */
    fm_write_u32(out, 0); /* external attributes */
    fm_write_u32(out, big_offset ? ZIP_IN_EXTRA32 : (uint32_t)entry->offset);
    fm_write_bytes(out, entry->name, strlen(entry->name));
    if (payload == 0) return;
    fm_write_u16(out, ZIP_EXTRA_ZIP64);
    fm_write_u16(out, (uint16_t)payload);
    if (big_size) encode_sizes_extra(out, entry);
    if (big_offset) fm_write_u64(out, entry->offset);
}

static fm_status note_in_directory(fm_npz_writer *writer, const zip_entry *entry,
                                   fm_error *reterr) {
    if (writer->directory_capacity - writer->directory_bytes < ENTRY_MAX) {
        size_t capacity = 2 * writer->directory_capacity + 16 * ENTRY_MAX;
        uint8_t *grown = realloc(writer->directory, capacity);
        if (!grown) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the npz directory");
        writer->directory = grown;
        writer->directory_capacity = capacity;
    }
    fm_writer out = fm_writer_of(writer->directory + writer->directory_bytes, ENTRY_MAX);
    encode_central(&out, entry);
    assert(!out.failed);
    writer->directory_bytes += out.at;
    writer->n_entry++;
    return FM_OK;
}

fm_status fm_npz_writer_append(fm_npz_writer *writer, const char *name, const char *dtype,
                               size_t rank, const uint64_t *shape, const void *data,
                               fm_error *reterr) {
    size_t name_bytes = strlen(name), data_bytes = fm_npz_item_bytes(dtype);
    assert(name_bytes > 0 && name_bytes <= FM_LIMIT_NAME_BYTES);
    assert(data_bytes > 0 && rank <= FM_NPZ_RANK_MAX);
    for (size_t i = 0; i < rank; i++)
        data_bytes *= shape[i];

    char npy_header[NPY_HEADER_MAX], member[FM_LIMIT_NAME_BYTES + 5];
    size_t header_bytes = encode_npy_header(npy_header, dtype, rank, shape);
    snprintf(member, sizeof member, "%s.npy", name);
    uint32_t crc = fm_crc32(0, npy_header, header_bytes);
    if (data_bytes > 0) crc = fm_crc32(crc, data, data_bytes); /* data may be NULL otherwise */
    zip_entry entry = {member, crc, header_bytes + data_bytes, writer->at};

    uint8_t local[ENTRY_MAX];
    fm_writer out = fm_writer_of(local, sizeof local);
    encode_local(&out, &entry);
    assert(!out.failed);
    fm_status status = put(writer, local, out.at, reterr);
    if (!status) status = put(writer, npy_header, header_bytes, reterr);
    if (!status) status = put(writer, data, data_bytes, reterr);
    if (!status) status = note_in_directory(writer, &entry, reterr);
    return status;
}

/* Encodes the zip64 end record and its locator, which are needed when a count or an offset does not
 * fit the plain one. */
static void encode_zip64_end(fm_writer *out, const fm_npz_writer *writer, uint64_t start) {
    fm_write_u32(out, ZIP_END64);
    fm_write_u64(out, ZIP_END64_BYTES - 12); /* size of the rest */
    fm_write_u16(out, 45);
    fm_write_u16(out, 45);
    fm_write_u32(out, 0); /* this disk */
    fm_write_u32(out, 0); /* the directory's disk */
    fm_write_u64(out, writer->n_entry);
    fm_write_u64(out, writer->n_entry);
    fm_write_u64(out, writer->directory_bytes);
    fm_write_u64(out, start);
    fm_write_u32(out, ZIP_END64_LOCATOR);
    fm_write_u32(out, 0);
    fm_write_u64(out, start + writer->directory_bytes);
    fm_write_u32(out, 1); /* disks */
}

static void encode_end(fm_writer *out, const fm_npz_writer *writer, uint64_t start) {
    bool many = writer->n_entry >= ZIP_IN_EXTRA16;
    bool big = writer->directory_bytes >= ZIP_IN_EXTRA32, far = start >= ZIP_IN_EXTRA32;
    if (many || big || far) encode_zip64_end(out, writer, start);
    uint16_t n_entry = many ? ZIP_IN_EXTRA16 : (uint16_t)writer->n_entry;
    fm_write_u32(out, ZIP_END);
    fm_write_u16(out, 0);
    fm_write_u16(out, 0);
    fm_write_u16(out, n_entry);
    fm_write_u16(out, n_entry);
    fm_write_u32(out, big ? ZIP_IN_EXTRA32 : (uint32_t)writer->directory_bytes);
    fm_write_u32(out, far ? ZIP_IN_EXTRA32 : (uint32_t)start);
    fm_write_u16(out, 0); /* comment */
}

fm_status fm_npz_writer_finish(fm_npz_writer *writer, fm_error *reterr) {
    uint8_t end[ZIP_END64_BYTES + ZIP_END64_LOCATOR_BYTES + ZIP_END_BYTES];
    fm_writer out = fm_writer_of(end, sizeof end);
    encode_end(&out, writer, writer->at);
    assert(!out.failed);
    fm_status status = put(writer, writer->directory, writer->directory_bytes, reterr);
    if (!status) status = put(writer, end, out.at, reterr);
    if (!status) {
        status = fm_file_writer_commit(writer->file, reterr);
        writer->file = NULL;
    }
    fm_npz_writer_destroy(writer);
    return status;
}

void fm_npz_writer_destroy(fm_npz_writer *writer) {
    if (!writer) return;
    fm_file_writer_discard(writer->file);
    free(writer->directory);
    free(writer);
}
