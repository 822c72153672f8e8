/* torch_file.c: see torch_file.h. */
#include "proto/torch_file.h"

#include "proto/base/compress.h"
#include "proto/base/file.h"
#include "proto/zip_directory.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_MEMBERS = 1 << 20,
    MOST_DIRECTORY = 64 << 20, /* bytes */
    MEMBER_NAME_BYTES = 768,   /* of ROOT/data/KEY that are looked for */
    ORDER_BYTES = 16,          /* of the member that says the byte order */
    PIECE_BYTES = 1 << 20,     /* of a member that is checked */
};
#define ARENA_BYTES ((size_t)1 << 30)

static const char pickle_name[] = "/data.pkl";

typedef struct member {
    const char *name; /* in the arena */
    uint64_t at;      /* offset of its local header */
    uint64_t bytes;
    uint32_t crc;
    bool is_plain; /* stored as it is */
    bool is_whole; /* its bytes have the CRC */
} member;

struct fm_torch_file {
    int fd;
    uint64_t bytes;
    fm_arena arena;
    member *member; /* [n_member] by name */
    size_t n_member;
    const char *root; /* the name before /data.pkl */
    const fm_pickled_tensor *tensor;
    size_t n_tensor;
};

/* -- bytes of the file */

static fm_status read_at(const fm_torch_file *file, uint64_t at, void *out, size_t bytes,
                         fm_error *reterr) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(file->fd, (char *)out + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fm_fail(reterr, FM_ERR_IO, "cannot read: %s", strerror(errno));
        if (n == 0) return fm_fail(reterr, FM_ERR_IO, "cannot read: the file became shorter");
        done += (size_t)n;
    }
    return FM_OK;
}

static fm_status borrow_at(fm_torch_file *file, uint64_t at, size_t bytes, fm_bytes *ret_bytes,
                           fm_error *reterr) {
    void *data = fm_arena_alloc(&file->arena, bytes);
    if (!data) return fm_arena_full(&file->arena, reterr);
    *ret_bytes = (fm_bytes){data, bytes};
    return read_at(file, at, data, bytes, reterr);
}

/* -- the members */

static int by_name(const void *a, const void *b) {
    return strcmp(((const member *)a)->name, ((const member *)b)->name);
}

static member *find_member(const fm_torch_file *file, const char *format, const char *key) {
    char name[MEMBER_NAME_BYTES];
    int n = snprintf(name, sizeof name, format, file->root, key);
    if (n < 0 || (size_t)n >= sizeof name) return NULL;
    const member wanted = {.name = name};
    return bsearch(&wanted, file->member, file->n_member, sizeof wanted, by_name);
}

static fm_status take_member(fm_torch_file *file, const fm_zip_member *from, fm_error *reterr) {
    char *name = fm_arena_alloc(&file->arena, (size_t)from->name_bytes + 1);
    if (!name) return fm_arena_full(&file->arena, reterr);
    memcpy(name, from->name, from->name_bytes);
    name[from->name_bytes] = '\0';
    member *to = &file->member[file->n_member++];
    *to = (member){.name = name,
                   .at = from->offset,
                   .bytes = from->bytes,
                   .crc = from->crc,
                   .is_plain = from->method == 0 && (from->flags & 1) == 0 &&
                               from->packed_bytes == from->bytes};
    const size_t ending = sizeof pickle_name - 1;
    if (from->name_bytes <= ending || strlen(name) != from->name_bytes ||
        strcmp(name + from->name_bytes - ending, pickle_name) != 0) {
        return FM_OK;
    }
    if (file->root) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, 0, 0, from->at,
                          "found a second member data.pkl, expected one");
    }
    char *root = fm_arena_alloc(&file->arena, from->name_bytes);
    if (!root) return fm_arena_full(&file->arena, reterr);
    memcpy(root, name, from->name_bytes - ending);
    root[from->name_bytes - ending] = '\0';
    file->root = root;
    return FM_OK;
}

/* Offsets of errors are those in the directory; adds where it begins. */
static fm_status move_error(fm_error *error, uint64_t by, fm_status status) {
    if (error) error->offset += by;
    return status;
}

static fm_status list_members(fm_torch_file *file, fm_error *reterr) {
    fm_bytes tail, bytes = {0};
    fm_zip_directory directory = {0};
    const uint64_t n = file->bytes < FM_ZIP_TAIL ? file->bytes : FM_ZIP_TAIL;
    fm_status status = borrow_at(file, file->bytes - n, (size_t)n, &tail, reterr);
    if (!status) status = fm_zip_read_directory(tail, file->bytes - n, &directory, reterr);
    if (status) return status;
    if (directory.n_entry > MOST_MEMBERS || directory.bytes > MOST_DIRECTORY) {
        return fm_fail(reterr, FM_ERR_LIMIT,
                       "the zip directory has %" PRIu64 " members in %" PRIu64
                       " bytes, expected at most %d in %d",
                       directory.n_entry, directory.bytes, MOST_MEMBERS, MOST_DIRECTORY);
    }
    file->member = fm_arena_alloc_array(&file->arena, directory.n_entry, sizeof *file->member);
    if (!file->member) return fm_arena_full(&file->arena, reterr);
    status = borrow_at(file, directory.offset, (size_t)directory.bytes, &bytes, reterr);
    fm_reader reader = fm_reader_of(bytes.data, bytes.size);
    for (uint64_t i = 0; !status && i < directory.n_entry; i++) {
        fm_zip_member found;
        status = fm_zip_read_member(&reader, &found, reterr);
        if (!status) status = take_member(file, &found, reterr);
        if (status) return move_error(reterr, directory.offset, status);
    }
    if (!status) qsort(file->member, file->n_member, sizeof *file->member, by_name);
    return status;
}

/* Finds where the bytes of a member begin: behind its local header, which has lengths of its
 * own. */
static fm_status find_content(const fm_torch_file *file, const member *m, uint64_t *ret_at,
                              fm_error *reterr) {
    uint8_t header[FM_ZIP_LOCAL_BYTES];
    if (!m->is_plain) {
        return fm_fail_at(reterr, FM_ERR_UNSUPPORTED, 0, 0, m->at,
                          "the member %.200s is compressed or encrypted, expected stored bytes",
                          m->name);
    }
    if (file->bytes < sizeof header || m->at > file->bytes - sizeof header) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, 0, 0, m->at,
                          "the header of the member %.200s is past the file's end", m->name);
    }
    fm_status status = read_at(file, m->at, header, sizeof header, reterr);
    if (status) return status;
    uint16_t name_bytes, extra_bytes;
    const bool is_local = fm_zip_read_local(header, &name_bytes, &extra_bytes);
    const uint64_t begin = m->at + sizeof header;
    const uint32_t bytes = (uint32_t)name_bytes + extra_bytes;
    if (!is_local || bytes > file->bytes - begin || m->bytes > file->bytes - begin - bytes) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, 0, 0, m->at,
                          "the member %.200s of %" PRIu64 " bytes is not where the directory says",
                          m->name, m->bytes);
    }
    *ret_at = begin + bytes;
    return FM_OK;
}

/* Checks the CRC of a member whose bytes begin at `at`, once. */
static fm_status check_content(const fm_torch_file *file, member *m, uint64_t at,
                               fm_error *reterr) {
    if (m->is_whole) return FM_OK;
    uint8_t *piece = malloc(PIECE_BYTES);
    if (!piece) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a part of the file");
    fm_status status = FM_OK;
    uint32_t crc = 0;
    for (uint64_t done = 0; !status && done < m->bytes;) {
        const uint64_t left = m->bytes - done;
        const size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        status = read_at(file, at + done, piece, n, reterr);
        if (!status) crc = fm_crc32(crc, piece, n);
        done += n;
    }
    free(piece);
    m->is_whole = !status && crc == m->crc;
    if (status || m->is_whole) return status;
    return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, m->at,
                      "the member %.200s has CRC-32 %08x, its directory entry says %08x; the file "
                      "is damaged, or was saved by PyTorch with set_crc32_options(False)",
                      m->name, crc, m->crc);
}

/* -- the tables */

static fm_status check_order(fm_torch_file *file, fm_error *reterr) {
    const member *order = find_member(file, "%s/%s", "byteorder");
    uint64_t at;
    char text[ORDER_BYTES + 1] = "";
    if (!order) return FM_OK;
    fm_status status = find_content(file, order, &at, reterr);
    if (status) return status;
    const size_t bytes = order->bytes < ORDER_BYTES ? (size_t)order->bytes : ORDER_BYTES;
    status = read_at(file, at, text, bytes, reterr);
    if (status || strcmp(text, "little") == 0) return status;
    return fm_fail_at(reterr, FM_ERR_UNSUPPORTED, 0, 0, at,
                      "the numbers have another byte order, expected little");
}

static fm_status check_tensors(const fm_torch_file *file, fm_error *reterr) {
    for (size_t i = 0; i < file->n_tensor; i++) {
        const fm_pickled_tensor *t = &file->tensor[i];
        if (!t->is_contiguous) continue;
        const member *m = find_member(file, "%s/data/%s", t->storage);
        uint64_t bytes;
        if (!m) {
            return fm_fail(reterr, FM_ERR_FORMAT,
                           "%.200s: found no member data/%.200s with its numbers", t->name,
                           t->storage);
        }
        if (__builtin_mul_overflow(t->storage_count, t->item_bytes, &bytes) || bytes > m->bytes) {
            return fm_fail_at(reterr, FM_ERR_FORMAT, 0, 0, m->at,
                              "%.200s: found %" PRIu64 " bytes of numbers, expected %" PRIu64
                              " elements of %u",
                              t->name, m->bytes, t->storage_count, t->item_bytes);
        }
        /* A tensor without numbers needs no member that can be read. */
        uint64_t at;
        fm_status status = t->count ? find_content(file, m, &at, reterr) : FM_OK;
        if (status) return status;
    }
    return FM_OK;
}

static fm_status read_tables(fm_torch_file *file, fm_error *reterr) {
    fm_status status = list_members(file, reterr);
    if (status) return status;
    if (!file->root) {
        return fm_fail(reterr, FM_ERR_FORMAT, "found no member NAME/data.pkl, expected one");
    }
    status = check_order(file, reterr);
    member *pickle = find_member(file, "%s/%s", "data.pkl");
    if (!status && !pickle) {
        status = fm_fail(reterr, FM_ERR_FORMAT, "the name of data.pkl has more than %d bytes",
                         MEMBER_NAME_BYTES);
    }
    if (!status && pickle->bytes > FM_PICKLE_BYTES) {
        status =
            fm_fail(reterr, FM_ERR_LIMIT, "data.pkl has %" PRIu64 " bytes, expected at most %zu",
                    pickle->bytes, FM_PICKLE_BYTES);
    }
    uint64_t at = 0;
    fm_bytes bytes;
    if (!status) status = find_content(file, pickle, &at, reterr);
    if (!status) status = check_content(file, pickle, at, reterr);
    if (!status) status = borrow_at(file, at, (size_t)pickle->bytes, &bytes, reterr);
    if (status) return status;
    status = fm_pickle_read(bytes, &file->arena, &file->tensor, &file->n_tensor, reterr);
    return status ? move_error(reterr, at, status) : check_tensors(file, reterr);
}

fm_status fm_torch_file_open(const char *path, fm_torch_file **ret_file, fm_error *reterr) {
    fm_torch_file *file = calloc(1, sizeof *file);
    if (!file) return fm_fail_in(reterr, FM_ERR_NOMEM, path, "no memory for a file of weights");
    fm_status status = fm_file_open(path, &file->fd, &file->bytes, reterr);
    if (status) file->fd = -1;
    if (!status) status = fm_arena_init(&file->arena, ARENA_BYTES, reterr);
    if (!status) status = read_tables(file, reterr);
    if (status) {
        fm_torch_file_close(file);
        if (reterr) fm_error_in(reterr, path);
        return status;
    }
    *ret_file = file;
    return FM_OK;
}

void fm_torch_file_close(fm_torch_file *file) {
    if (!file) return;
    if (file->fd >= 0) close(file->fd);
    fm_arena_fini(&file->arena);
    free(file);
}

size_t fm_torch_file_count(const fm_torch_file *file) {
    return file->n_tensor;
}

const fm_pickled_tensor *fm_torch_file_at(const fm_torch_file *file, size_t index) {
    assert(index < file->n_tensor);
    return &file->tensor[index];
}

fm_status fm_torch_file_read(const fm_torch_file *file, const fm_pickled_tensor *tensor, void *out,
                             fm_error *reterr) {
    assert(tensor->is_contiguous);
    if (tensor->count == 0) return FM_OK;
    member *m = find_member(file, "%s/data/%s", tensor->storage);
    uint64_t at = 0;
    assert(m); /* checked when the file was opened */
    fm_status status = find_content(file, m, &at, reterr);
    if (!status) status = check_content(file, m, at, reterr);
    if (status) return status;
    return read_at(file, at + tensor->offset * tensor->item_bytes, out,
                   (size_t)(tensor->count * tensor->item_bytes), reterr);
}
