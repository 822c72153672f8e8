/* store_lmdb.c: shards and tables (table.h) on LMDB. See shard.h and docs/reference/store.md.
 *
 * A writer puts blobs and notes into shard.tmp in transactions of about 32 MiB, without syncs. To
 * seal, it syncs the file, closes LMDB and hashes the whole file. It then reads the file by our own
 * code (pages.h), as every later reader does. The file must have as many entries as were put, and
 * each blob's checksum must hold. The walk hands each entry and its offset to the visitor, which is
 * how a build learns the places of its blobs. Only then is the file renamed to its hash, and the
 * folder synced. A crash at any step leaves either shard.tmp, which the next build deletes, or a
 * complete sealed shard. */
#include "cache/store/shard.h"

#include "cache/store/blob.h"
#include "cache/store/pages.h"
#include "cache/store/table.h"
#include "proto/base/directory.h"
#include "proto/base/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
    BATCH_BYTES = 32 << 20, /* of one transaction; its dirty pages stay in memory until it ends */
    HASH_BLOCK_BYTES = 1 << 20,
    PAGE_BYTES = 4096,
    FIRST_MAP_BYTES = 16 << 20, /* grow_map enlarges it */
};

struct fm_shard_writer {
    char cache[PATH_MAX], path[PATH_MAX];
    MDB_env *env;
    MDB_txn *txn; /* NULL between transactions */
    MDB_dbi blobs, notes;
    uint64_t bytes, batch_bytes;
    uint64_t n_entry;               /* blobs and notes that were put */
    uint64_t map_bytes, used_bytes; /* used_bytes: size of the pages in use when the last batch
                                       ended */
};

static fm_status fail_lmdb(fm_error *reterr, const char *path, const char *what, int code) {
    fm_status status = fm_fail(reterr, FM_ERR_IO, "%s: %s", what, mdb_strerror(code));
    if (reterr) fm_error_in(reterr, path);
    return status;
}

/* LMDB reports a short write as EIO or as ENOSPC. */
static fm_status fail_write(fm_error *reterr, const char *path, const char *what, int code) {
    fm_status status =
        fm_fail(reterr, FM_ERR_IO, "%s: %s (is the disk full?)", what, mdb_strerror(code));
    if (reterr) fm_error_in(reterr, path);
    return status;
}

static fm_status fail_path(fm_error *reterr, const char *path, const char *what) {
    return fail_lmdb(reterr, path, what, errno);
}

bool fm_shard_path(const char *cache, const fm_sha256 *hash, char *out, size_t out_bytes) {
    char hex[FM_SHA256_HEX];
    fm_sha256_format(hash, hex);
    int n = snprintf(out, out_bytes, "%s/shards/%s.lmdb", cache, hex);
    return n > 0 && (size_t)n < out_bytes;
}

fm_status fm_shard_check_disk(const char *folder, fm_error *reterr) {
    static const struct {
        uint32_t magic; /* statfs(2) */
        const char *name;
    } remote[] = {
        {0x6969, "NFS"},        {0x517b, "SMB"},      {0xff534d42, "CIFS"},   {0xfe534d42, "SMB2"},
        {0x5346414f, "AFS"},    {0x00c36400, "Ceph"}, {0x0bd00bd0, "Lustre"}, {0x47504653, "GPFS"},
        {0x19830326, "BeeGFS"}, {0x73757245, "Coda"}, {0x7461636f, "OCFS2"},  {0x01161970, "GFS2"},
    };
    struct statfs info;
    if (statfs(folder, &info) != 0) {
        const bool is_gone = errno == ENOENT;
        fm_status status = fail_path(reterr, folder, "cannot stat the file system");
        return is_gone ? FM_ERR_NOT_FOUND : status;
    }
    for (size_t i = 0; i < sizeof remote / sizeof remote[0]; i++) {
        if ((uint32_t)info.f_type != remote[i].magic) continue;
        fm_status status =
            fm_fail(reterr, FM_ERR_UNSUPPORTED,
                    "the folder lies on %s; a cache is built on a local disk and may "
                    "be copied afterwards",
                    remote[i].name);
        if (reterr) fm_error_in(reterr, folder);
        return status;
    }
    return FM_OK;
}

/* -- writing */

static int open_databases(fm_shard_writer *writer) {
    int code = mdb_env_create(&writer->env);
    writer->map_bytes = FIRST_MAP_BYTES;
    if (!code) code = mdb_env_set_maxdbs(writer->env, 2);
    if (!code) code = mdb_env_set_mapsize(writer->env, writer->map_bytes);
    unsigned flags = MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOTLS | MDB_NOSYNC | MDB_NORDAHEAD;
    if (!code) code = mdb_env_open(writer->env, writer->path, flags, 0666);
    if (!code) code = mdb_txn_begin(writer->env, NULL, 0, &writer->txn);
    if (!code) code = mdb_dbi_open(writer->txn, "blobs", MDB_CREATE, &writer->blobs);
    if (!code) code = mdb_dbi_open(writer->txn, "notes", MDB_CREATE, &writer->notes);
    return code;
}

fm_status fm_shard_writer_create(const char *cache, uint32_t slot, fm_shard_writer **ret_writer,
                                 fm_error *reterr) {
    fm_shard_writer *writer = calloc(1, sizeof *writer);
    if (!writer) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a shard");
    snprintf(writer->cache, sizeof writer->cache, "%s", cache);
    int n = snprintf(writer->path, sizeof writer->path, "%s/build", cache);
    fm_status status = n > 0 && (size_t)n + 32 < sizeof writer->path
                           ? fm_dir_make(writer->path, reterr)
                           : fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
    if (!status) status = fm_shard_check_disk(writer->path, reterr);
    if (!status) {
        char number[16] = "";
        if (slot) snprintf(number, sizeof number, "-%u", slot);
        snprintf(writer->path + n, sizeof writer->path - (size_t)n, "/shard%s.tmp", number);
        unlink(writer->path);
        int code = open_databases(writer);
        if (code) status = fail_write(reterr, writer->path, "cannot start a shard", code);
    }
    if (status) {
        fm_shard_writer_destroy(writer);
        return status;
    }
    *ret_writer = writer;
    return FM_OK;
}

void fm_shard_writer_destroy(fm_shard_writer *writer) {
    if (!writer) return;
    if (writer->txn) mdb_txn_abort(writer->txn);
    if (writer->env) mdb_env_close(writer->env);
    unlink(writer->path);
    free(writer);
}

uint64_t fm_shard_writer_bytes(const fm_shard_writer *writer) {
    return writer->bytes;
}

static int end_batch(fm_shard_writer *writer) {
    MDB_txn *txn = writer->txn;
    MDB_envinfo info;
    writer->txn = NULL;
    writer->batch_bytes = 0;
    int code = txn ? mdb_txn_commit(txn) : 0;
    if (!code) code = mdb_env_info(writer->env, &info);
    if (!code) writer->used_bytes = (info.me_last_pgno + 1) * (uint64_t)PAGE_BYTES;
    return code;
}

/* Enlarges the map for one more value. This must happen between two transactions, because LMDB
 * cannot grow its map inside one. Twice the bytes in use is enough: pages may be half full, and a
 * batch may rewrite each page of a tree. */
static int grow_map(fm_shard_writer *writer, uint64_t value_bytes) {
    uint64_t needed =
        2 * (writer->used_bytes + writer->batch_bytes + value_bytes) + FIRST_MAP_BYTES / 4;
    if (needed <= writer->map_bytes) return 0;
    int code = end_batch(writer);
    if (!code) code = mdb_env_set_mapsize(writer->env, 2 * needed);
    if (!code) writer->map_bytes = 2 * needed;
    return code;
}

static fm_status put(fm_shard_writer *writer, MDB_dbi database, const fm_sha256 *hash,
                     fm_bytes value, fm_error *reterr) {
    int code = grow_map(writer, value.size);
    if (!code && !writer->txn) code = mdb_txn_begin(writer->env, NULL, 0, &writer->txn);
    MDB_val key = {sizeof hash->bytes, (void *)(uintptr_t)hash->bytes};
    MDB_val data = {value.size, (void *)(uintptr_t)value.data};
    if (!code) code = mdb_put(writer->txn, database, &key, &data, MDB_NOOVERWRITE);
    if (code == MDB_KEYEXIST) return FM_OK;
    writer->n_entry += !code;
    /* Values of half a page or more get separate pages. Each value has an entry in a leaf. */
    uint64_t bytes = value.size < PAGE_BYTES / 2 ? value.size : value.size + PAGE_BYTES;
    writer->bytes += bytes + 64;
    writer->batch_bytes += bytes + 64;
    if (!code && writer->batch_bytes > BATCH_BYTES) code = end_batch(writer);
    return code ? fail_write(reterr, writer->path, "cannot write the shard", code) : FM_OK;
}

fm_status fm_shard_writer_put(fm_shard_writer *writer, const fm_sha256 *hash, fm_bytes packed,
                              fm_error *reterr) {
    return put(writer, writer->blobs, hash, packed, reterr);
}

fm_status fm_shard_writer_note(fm_shard_writer *writer, const fm_sha256 *key, fm_bytes value,
                               fm_error *reterr) {
    return put(writer, writer->notes, key, value, reterr);
}

/* -- walking */

/* One pass over a shard's entries. */
typedef struct shard_pass {
    fm_pages *pages;
    const fm_shard_visitor *visitor;
} shard_pass;

static fm_status read_key(const fm_pages_entry *entry, fm_sha256 *ret_hash, fm_error *reterr) {
    if (entry->key.size != sizeof ret_hash->bytes) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "a shard has a key of %zu bytes", entry->key.size);
    }
    memcpy(ret_hash->bytes, entry->key.data, sizeof ret_hash->bytes);
    return FM_OK;
}

/* A blob's header and the checksum of its frame. */
static fm_status check_blob(void *context, const fm_pages_entry *entry, fm_error *reterr) {
    const shard_pass *pass = context;
    fm_sha256 hash;
    fm_blob blob;
    fm_bytes packed;
    fm_status status = read_key(entry, &hash, reterr);
    if (!status) status = fm_pages_read(pass->pages, entry, SIZE_MAX, &packed, reterr);
    return status ? status : fm_blob_open(packed, &blob, reterr);
}

static fm_status check_note(void *context, const fm_pages_entry *entry, fm_error *reterr) {
    (void)context;
    fm_sha256 key;
    return read_key(entry, &key, reterr);
}

static fm_status see_blob(void *context, const fm_pages_entry *entry, fm_error *reterr) {
    const shard_pass *pass = context;
    fm_sha256 hash;
    fm_bytes head;
    fm_shard_blob blob = {.offset = entry->offset, .stored_bytes = (uint32_t)entry->value_bytes};
    fm_status status = read_key(entry, &hash, reterr);
    if (!status) status = fm_pages_read(pass->pages, entry, FM_BLOB_HEADER_BYTES, &head, reterr);
    if (!status) status = fm_blob_read_header(head, &blob.kind, &blob.decoded_bytes, reterr);
    return status ? status : pass->visitor->blob(pass->visitor->context, &hash, &blob, reterr);
}

static fm_status see_note(void *context, const fm_pages_entry *entry, fm_error *reterr) {
    const shard_pass *pass = context;
    fm_sha256 key;
    fm_bytes value;
    fm_status status = read_key(entry, &key, reterr);
    if (!status) status = fm_pages_read(pass->pages, entry, SIZE_MAX, &value, reterr);
    return status ? status : pass->visitor->note(pass->visitor->context, &key, value, reterr);
}

/* Checks everything before the first visit, so that nobody has half of a damaged shard. */
static fm_status walk(int fd, const fm_shard_visitor *visitor, fm_shard_info *info,
                      fm_error *reterr) {
    shard_pass pass = {.visitor = visitor};
    fm_status status = fm_pages_open(fd, true, &pass.pages, reterr);
    if (status) return status;
    status = fm_pages_walk(pass.pages, "blobs", check_blob, &pass, &info->n_blob, reterr);
    if (!status) {
        status = fm_pages_walk(pass.pages, "notes", check_note, &pass, &info->n_note, reterr);
    }
    if (!status && visitor->blob) {
        status = fm_pages_walk(pass.pages, "blobs", see_blob, &pass, &info->n_blob, reterr);
    }
    if (!status && visitor->note) {
        status = fm_pages_walk(pass.pages, "notes", see_note, &pass, &info->n_note, reterr);
    }
    fm_pages_close(pass.pages);
    return status;
}

/* SHA-256 and size of a file, read in blocks. FM_ERR_IO. */
static fm_status hash_file(int fd, fm_sha256 *ret_hash, uint64_t *ret_bytes, fm_error *reterr) {
    uint8_t *block = malloc(HASH_BLOCK_BYTES);
    fm_sha256_state *state = fm_sha256_create();
    uint64_t bytes = 0;
    ssize_t got = -1;
    while (block && (got = read(fd, block, HASH_BLOCK_BYTES)) != 0) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) break;
        fm_sha256_update(state, block, (size_t)got);
        bytes += (uint64_t)got;
    }
    fm_status status =
        got < 0 ? fm_fail(reterr, FM_ERR_IO, "cannot read: %s", strerror(errno)) : FM_OK;
    fm_sha256 hash = fm_sha256_digest(state);
    fm_sha256_destroy(state);
    free(block);
    if (status) return status;
    *ret_hash = hash;
    *ret_bytes = bytes;
    return FM_OK;
}

/* Hashes and walks one descriptor, so that the file whose hash was checked is the one that is read.
 */
fm_status fm_shard_walk(const char *path, const fm_sha256 *hash, const fm_shard_visitor *visitor,
                        fm_shard_info *ret_info, fm_error *reterr) {
    fm_shard_info info = {0};
    /* O_NONBLOCK: a pipe must not wait for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return fail_path(reterr, path, "cannot open");
    fm_status status = hash_file(fd, &info.hash, &info.bytes, reterr);
    if (!status && hash && memcmp(&info.hash, hash, sizeof *hash) != 0) {
        char expected[FM_SHA256_HEX], found[FM_SHA256_HEX];
        fm_sha256_format(hash, expected);
        fm_sha256_format(&info.hash, found);
        status = fm_fail(reterr, FM_ERR_CORRUPT,
                         "the shard's SHA-256 is %.16s..., expected %.16s...", found, expected);
    }
    if (!status) status = walk(fd, visitor, &info, reterr);
    close(fd);
    if (status && reterr) fm_error_in(reterr, path);
    if (!status) *ret_info = info;
    return status;
}

/* -- sealing */

static fm_status check_and_rename(const fm_shard_writer *writer, const fm_shard_visitor *visitor,
                                  fm_shard_info *ret_info, fm_error *reterr) {
    fm_shard_info info;
    char path[PATH_MAX], folder[PATH_MAX];
    fm_status status = fm_shard_walk(writer->path, NULL, visitor, &info, reterr);
    if (status) return status;
    if ((uint64_t)info.n_blob + info.n_note != writer->n_entry) {
        return fm_fail_in(reterr, FM_ERR_CORRUPT, writer->path,
                          "the shard has %u blobs and %u notes, %llu were written", info.n_blob,
                          info.n_note, (unsigned long long)writer->n_entry);
    }
    int n = snprintf(folder, sizeof folder, "%s/shards", writer->cache);
    if (!status && (n <= 0 || (size_t)n >= sizeof folder ||
                    !fm_shard_path(writer->cache, &info.hash, path, sizeof path))) {
        status = fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
    }
    if (!status) status = fm_dir_make(folder, reterr);
    if (!status && rename(writer->path, path) != 0) {
        status = fail_path(reterr, path, "cannot seal the shard");
    }
    if (!status) status = fm_dir_sync(folder, reterr);
    if (!status) *ret_info = info;
    return status;
}

fm_status fm_shard_writer_seal(fm_shard_writer *writer, const fm_shard_visitor *visitor,
                               fm_shard_info *ret_info, fm_error *reterr) {
    int code = end_batch(writer);
    if (!code) code = mdb_env_sync(writer->env, 1);
    fm_status status =
        code ? fail_write(reterr, writer->path, "cannot sync the shard", code) : FM_OK;
    if (writer->env) mdb_env_close(writer->env);
    writer->env = NULL;
    if (!status) status = check_and_rename(writer, visitor, ret_info, reterr);
    fm_shard_writer_destroy(writer);
    return status;
}

/* -- tables */

/* Address space of a table's map; the file is only as long as its content. */
#define TABLE_MAP_BYTES ((size_t)64 << 30)

struct fm_table {
    char path[PATH_MAX];
    MDB_env *env;
    MDB_txn *txn; /* NULL outside a transaction */
    MDB_dbi main;
    MDB_cursor *cursor;
    int code; /* of the first call that failed, or ROW_IS_WRONG */
    /* In a transaction that changes the table: what its row of sums has to say. */
    uint64_t n_row, sum;
    bool has_changed;
};

static const char sums_key[] = "~sums"; /* behind the keys of all rows */
enum { CHECK_BYTES = 8, SUMS_BYTES = 16, ROW_IS_WRONG = -1 };

static MDB_val val_of(fm_bytes bytes) {
    return (MDB_val){bytes.size, (void *)(uintptr_t)bytes.data};
}

/* Puts in front of a sentence about pages what it means, and sets its source. */
static fm_status name_damage(const char *path, fm_error *reterr) {
    char what[FM_ERROR_MESSAGE_BYTES];
    if (!reterr) return FM_ERR_CORRUPT;
    snprintf(what, sizeof what, "%s", reterr->message);
    return fm_fail_in(reterr, FM_ERR_CORRUPT, path, "the catalogue is damaged: %.400s", what);
}

/* Other processes may write head pages while they are read. So the check is repeated: what is
 * damaged is so every time. */
static fm_status check_heads(int fd, const char *path, fm_error *reterr) {
    enum { TRIES_MAX = 8 };
    fm_status status = FM_ERR_CORRUPT;
    for (int tries = 0; status == FM_ERR_CORRUPT && tries < TRIES_MAX; tries++)
        status = fm_pages_check_heads(fd, reterr);
    if (status == FM_ERR_CORRUPT) return name_damage(path, reterr);
    return status && reterr ? fm_error_in(reterr, path) : status;
}

/* Refuses what is no file of LMDB, before LMDB makes a file of locks beside it, and head pages that
 * LMDB must not believe. */
static fm_status check_table(const char *path, fm_error *reterr) {
    enum { MAGIC_AT = 16 }; /* in the first page, behind its head */
    static const uint32_t magic = 0xbeefc0de;
    uint32_t found = 0;
    /* O_NONBLOCK: a pipe must not wait for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return FM_OK; /* none, or LMDB says what is wrong */
    struct stat st;
    bool is_known = fstat(fd, &st) == 0;
    ssize_t n = pread(fd, &found, sizeof found, MAGIC_AT);
    fm_status status = FM_OK;
    if (is_known && !S_ISREG(st.st_mode)) {
        status = fm_fail_in(reterr, FM_ERR_CORRUPT, path, "is %s, and a catalogue is a file",
                            S_ISDIR(st.st_mode) ? "a folder" : "a device or a pipe");
    } else if (n >= 0 && !(is_known && st.st_size == 0)) {
        if (n != sizeof found || found != magic) {
            status = fm_fail_in(reterr, FM_ERR_CORRUPT, path, "is no catalogue of foldmill");
        } else {
            status = check_heads(fd, path, reterr);
        }
    }
    close(fd);
    return status;
}

static uint64_t check_of(MDB_val key, MDB_val value) {
    const uint64_t halves[2] = {fm_xxh3(key.mv_data, key.mv_size),
                                fm_xxh3(value.mv_data, value.mv_size)};
    return fm_xxh3(halves, sizeof halves);
}

/* Takes the check from the end of a row's value. False when it is not that of the row. */
static bool take_check(MDB_val key, MDB_val *value, uint64_t *ret_check) {
    if (value->mv_size < CHECK_BYTES) return false;
    value->mv_size -= CHECK_BYTES;
    fm_reader reader = fm_reader_of((const uint8_t *)value->mv_data + value->mv_size, CHECK_BYTES);
    *ret_check = fm_read_u64(&reader);
    return *ret_check == check_of(key, *value);
}

static bool is_sums(MDB_val key) {
    return key.mv_size == sizeof sums_key - 1 &&
           memcmp(key.mv_data, sums_key, sizeof sums_key - 1) == 0;
}

/* Compares all rows with their checks, and with the sums. */
static fm_status check_rows(const char *path, MDB_txn *txn, fm_error *reterr) {
    MDB_dbi database;
    MDB_cursor *cursor;
    MDB_val key, value;
    uint64_t n_row = 0, sum = 0, check, said_rows = 0, said_sum = 0;
    bool is_good = true, has_sums = false;
    int code = mdb_dbi_open(txn, NULL, 0, &database);
    if (!code) code = mdb_cursor_open(txn, database, &cursor);
    if (code) return fail_lmdb(reterr, path, "cannot use the catalogue", code);
    while (is_good && (code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
        is_good = take_check(key, &value, &check);
        if (is_good && is_sums(key)) {
            fm_reader reader = fm_reader_of(value.mv_data, value.mv_size);
            said_rows = fm_read_u64(&reader);
            said_sum = fm_read_u64(&reader);
            has_sums = true;
        } else if (is_good) {
            n_row++;
            sum += check;
        }
    }
    bool is_empty = n_row == 0 && is_good;
    if (!has_sums && !is_empty) {
        /* Looked up, because a wrong row may have ended the walk before it. */
        MDB_val wanted = {sizeof sums_key - 1, (void *)(uintptr_t)sums_key};
        has_sums = mdb_cursor_get(cursor, &wanted, &value, MDB_SET) == 0;
    }
    mdb_cursor_close(cursor);
    if (!has_sums && !is_empty) {
        return fm_fail_in(reterr, FM_ERR_CORRUPT, path,
                          "has no sums of its rows, as a catalogue of foldmill has; where it is "
                          "one of an older foldmill, foldmill catalogue rebuild makes a new one");
    }
    if (is_good && code == MDB_NOTFOUND && n_row == said_rows && sum == said_sum) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_CORRUPT, path,
                      "the catalogue is damaged: %s; foldmill catalogue rebuild makes a new one",
                      is_good ? "its rows do not add up" : "a row has another check");
}

/* Checks the newest state: its pages, then its rows. The read transaction keeps other processes
 * from using the pages again meanwhile. They may commit between it and the look at the head pages,
 * so the check is repeated. Where they commit all the time, a write transaction holds them up. */
static fm_status check_content(const fm_table *table, fm_error *reterr) {
    enum { TRIES_MAX = 8 };
    int fd = open(table->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_path(reterr, table->path, "cannot open the catalogue");
    fm_status status = FM_ERR_CORRUPT;
    bool is_same = false;
    for (int tries = 1; !is_same && tries <= TRIES_MAX; tries++) {
        const bool writes = tries == TRIES_MAX;
        MDB_txn *txn;
        fm_pages *pages = NULL;
        int code = mdb_txn_begin(table->env, NULL, writes ? 0 : MDB_RDONLY, &txn);
        if (code) {
            status = fail_lmdb(reterr, table->path, "cannot use the catalogue", code);
            break;
        }
        status = fm_pages_open(fd, false, &pages, reterr);
        /* A write transaction has the number of the state that it would make. */
        is_same = !status && fm_pages_transaction(pages) + writes == mdb_txn_id(txn);
        fm_pages_close(pages);
        if (status == FM_ERR_CORRUPT) name_damage(table->path, reterr);
        if (status == FM_ERR_UNSUPPORTED) {
            status = fm_fail_in(reterr, FM_ERR_CORRUPT, table->path, "is no catalogue of foldmill");
        }
        if (is_same) status = check_rows(table->path, txn, reterr);
        mdb_txn_abort(txn);
    }
    close(fd);
    if (status) return reterr ? fm_error_in(reterr, table->path) : status;
    if (is_same) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_CORRUPT, table->path,
                      "the catalogue is damaged: its head pages are not of its newest state");
}

static fm_status open_table(fm_table *table, fm_error *reterr) {
    int code = mdb_env_create(&table->env);
    if (!code) code = mdb_env_set_mapsize(table->env, TABLE_MAP_BYTES);
    if (!code) code = mdb_env_open(table->env, table->path, MDB_NOSUBDIR | MDB_NOTLS, 0666);
    int dead; /* frees the slots of dead readers, which keep old pages in use */
    if (!code) code = mdb_reader_check(table->env, &dead);
    if (!code) return check_content(table, reterr);
    bool foreign = code == MDB_INVALID || code == MDB_VERSION_MISMATCH;
    return fail_lmdb(reterr, table->path,
                     foreign ? "is no catalogue of foldmill" : "cannot open the catalogue", code);
}

/* Follows a symbolic link to the file. LMDB has its locks beside the name that it is given, so
 * processes that use other names of one file would not hear of each other. */
static fm_status resolve_link(const char *path, char out[PATH_MAX], fm_error *reterr) {
    bool is_link;
    fm_status status = fm_path_is_link(path, &is_link, reterr);
    if (status) return status;
    if (is_link && !realpath(path, out)) {
        return fm_fail_in(reterr, FM_ERR_IO, path, "cannot follow the symbolic link: %s",
                          strerror(errno));
    }
    if (!is_link) snprintf(out, PATH_MAX, "%s", path);
    return FM_OK;
}

fm_status fm_table_open(const char *name, fm_table **ret_table, fm_error *reterr) {
    char path[PATH_MAX], folder[PATH_MAX], locks[PATH_MAX];
    fm_path_kind before = FM_PATH_ABSENT;
    fm_status resolved = resolve_link(name, path, reterr);
    if (resolved) return resolved;
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = '\0';
    int n = snprintf(locks, sizeof locks, "%s-lock", path);
    fm_status status = n < PATH_MAX ? fm_path_look(locks, &before, reterr)
                                    : fm_fail(reterr, FM_ERR_LIMIT, "the path is too long");
    if (!status && slash) status = fm_dir_make(folder, reterr);
    if (!status) status = fm_shard_check_disk(slash ? folder : ".", reterr);
    if (!status) status = check_table(path, reterr);
    if (status) return status;
    fm_table *table = calloc(1, sizeof *table);
    if (!table) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a table");
    snprintf(table->path, sizeof table->path, "%s", path);
    status = open_table(table, reterr);
    if (status) {
        fm_table_close(table);
        /* A file of something else, such as a shard, stays alone. */
        if (status == FM_ERR_CORRUPT && before == FM_PATH_ABSENT) unlink(locks);
        return status;
    }
    *ret_table = table;
    return FM_OK;
}

void fm_table_close(fm_table *table) {
    if (!table) return;
    fm_table_abort(table);
    if (table->env) mdb_env_close(table->env);
    free(table);
}

static bool is_damage(int code) {
    return code == MDB_CORRUPTED || code == MDB_PAGE_NOTFOUND || code == MDB_CURSOR_FULL ||
           code == ROW_IS_WRONG;
}

static fm_status fail_damaged(const fm_table *table, int code, fm_error *reterr) {
    return fm_fail_in(reterr, FM_ERR_CORRUPT, table->path, "the catalogue is damaged: %s",
                      code == ROW_IS_WRONG ? "a row has another check" : mdb_strerror(code));
}

/* Reads the row of sums; an empty table has none. */
static int read_sums(fm_table *table) {
    MDB_val key = {sizeof sums_key - 1, (void *)(uintptr_t)sums_key}, value;
    uint64_t check;
    table->n_row = table->sum = 0;
    table->has_changed = false;
    int code = mdb_get(table->txn, table->main, &key, &value);
    if (code) return code == MDB_NOTFOUND ? 0 : code;
    if (!take_check(key, &value, &check)) return ROW_IS_WRONG;
    fm_reader reader = fm_reader_of(value.mv_data, value.mv_size);
    table->n_row = fm_read_u64(&reader);
    table->sum = fm_read_u64(&reader);
    return 0;
}

fm_status fm_table_begin(fm_table *table, bool write, fm_error *reterr) {
    assert(!table->txn);
    table->code = 0;
    int code = mdb_txn_begin(table->env, NULL, write ? 0 : MDB_RDONLY, &table->txn);
    if (!code) code = mdb_dbi_open(table->txn, NULL, 0, &table->main);
    if (!code) code = mdb_cursor_open(table->txn, table->main, &table->cursor);
    if (!code && write) code = read_sums(table);
    if (!code) return FM_OK;
    fm_table_abort(table);
    if (is_damage(code)) return fail_damaged(table, code, reterr);
    return fail_lmdb(reterr, table->path, "cannot use the catalogue", code);
}

/* Whether a call has found something. */
static bool has_found(fm_table *table, int code) {
    if (code && code != MDB_NOTFOUND && !table->code) table->code = code;
    return code == 0;
}

/* Whether the row's check is right; it is then no longer part of the value. */
static bool has_right_check(fm_table *table, MDB_val key, MDB_val *value, uint64_t *ret_check) {
    bool is_right = take_check(key, value, ret_check);
    if (!is_right && !table->code) table->code = ROW_IS_WRONG;
    return is_right;
}

static bool uncount(fm_table *table, MDB_val key, MDB_val value) {
    uint64_t check;
    if (!has_right_check(table, key, &value, &check)) return false;
    table->n_row--;
    table->sum -= check;
    return true;
}

/* Writes a row with its check. If the row replaces an older one, the sums lose the older one. */
static void put_row(fm_table *table, MDB_val key, MDB_val value, uint64_t check) {
    MDB_val data = {value.mv_size + CHECK_BYTES, NULL};
    int code = mdb_put(table->txn, table->main, &key, &data, MDB_RESERVE | MDB_NOOVERWRITE);
    if (code == MDB_KEYEXIST) {
        if (!is_sums(key) && !uncount(table, key, data)) return;
        data = (MDB_val){value.mv_size + CHECK_BYTES, NULL};
        code = mdb_put(table->txn, table->main, &key, &data, MDB_RESERVE);
    }
    if (code) {
        if (!table->code) table->code = code;
        return;
    }
    fm_writer writer = fm_writer_of(data.mv_data, data.mv_size);
    fm_write_bytes(&writer, value.mv_data, value.mv_size);
    fm_write_u64(&writer, check);
}

static void put_sums(fm_table *table) {
    uint8_t sums[SUMS_BYTES];
    fm_writer writer = fm_writer_of(sums, sizeof sums);
    fm_write_u64(&writer, table->n_row);
    fm_write_u64(&writer, table->sum);
    MDB_val key = {sizeof sums_key - 1, (void *)(uintptr_t)sums_key}, value = {sizeof sums, sums};
    put_row(table, key, value, check_of(key, value));
}

fm_status fm_table_commit(fm_table *table, fm_error *reterr) {
    if (table->has_changed) put_sums(table);
    int code = table->code;
    mdb_cursor_close(table->cursor);
    table->cursor = NULL;
    if (code) {
        fm_table_abort(table);
    } else {
        code = mdb_txn_commit(table->txn);
        table->txn = NULL;
    }
    if (is_damage(code)) return fail_damaged(table, code, reterr);
    return code ? fail_lmdb(reterr, table->path, "cannot change the catalogue (is the disk full?)",
                            code)
                : FM_OK;
}

fm_status fm_table_end(fm_table *table, fm_error *reterr) {
    int code = table->code;
    fm_table_abort(table);
    if (is_damage(code)) return fail_damaged(table, code, reterr);
    return code ? fail_lmdb(reterr, table->path, "cannot read the catalogue", code) : FM_OK;
}

void fm_table_abort(fm_table *table) {
    if (table->cursor) mdb_cursor_close(table->cursor);
    if (table->txn) mdb_txn_abort(table->txn);
    table->cursor = NULL;
    table->txn = NULL;
}

bool fm_table_get(fm_table *table, fm_bytes key, fm_bytes *ret_value) {
    MDB_val wanted = val_of(key), value;
    uint64_t check;
    if (!has_found(table, mdb_get(table->txn, table->main, &wanted, &value))) return false;
    if (!has_right_check(table, wanted, &value, &check)) return false;
    *ret_value = (fm_bytes){value.mv_data, value.mv_size};
    return true;
}

bool fm_table_seek(fm_table *table, fm_bytes key, fm_bytes *ret_key, fm_bytes *ret_value) {
    MDB_val wanted = val_of(key), value;
    uint64_t check;
    int code = mdb_cursor_get(table->cursor, &wanted, &value, MDB_SET_RANGE);
    if (!has_found(table, code) || is_sums(wanted)) return false;
    if (!has_right_check(table, wanted, &value, &check)) return false;
    *ret_key = (fm_bytes){wanted.mv_data, wanted.mv_size};
    *ret_value = (fm_bytes){value.mv_data, value.mv_size};
    return true;
}

void fm_table_put(fm_table *table, fm_bytes key, fm_bytes value) {
    MDB_val wanted = val_of(key), plain = val_of(value);
    uint64_t check = check_of(wanted, plain);
    put_row(table, wanted, plain, check);
    table->n_row++;
    table->sum += check;
    table->has_changed = true;
}

void fm_table_remove(fm_table *table, fm_bytes key) {
    MDB_val wanted = val_of(key), value;
    if (!has_found(table, mdb_get(table->txn, table->main, &wanted, &value))) return;
    if (!uncount(table, wanted, value)) return;
    int code = mdb_del(table->txn, table->main, &wanted, NULL);
    if (code && !table->code) table->code = code;
    table->has_changed = true;
}
