/* shard.h: shards: LMDB files that are written once, sealed, and never written again.
 *
 *     DIR/build/shard.tmp                   being written, without syncs; after a crash the next
 *                                           build deletes it
 *     DIR/shards/<sha256 of the file>.lmdb  sealed: synced, checked, hashed whole, renamed
 *
 * A shard has two databases: "blobs" maps content hashes to blobs (blob.h), and "notes" maps cache
 * keys to the parts that were made under them (build.h). Sealed shards alone therefore tell a build
 * which parts it need not make again.
 *
 * LMDB trusts its pages, so it only writes shards. Our own code walks them (pages.h), and believes
 * nothing that it reads. A load does not even walk: the index of a generation stores the offset of
 * each blob (generation.h), and pread loads it. Shards are written on local disks only. One thread
 * at a time. */
#ifndef FM_CACHE_SHARD_H
#define FM_CACHE_SHARD_H

#include "proto/base/bytes.h"
#include "proto/base/hash.h"
#include "proto/base/status.h"
#include "proto/record.h"

#include <stdbool.h>

typedef struct fm_shard_info {
    fm_sha256 hash; /* of the whole file; its name */
    uint64_t bytes; /* of the file */
    uint32_t n_blob, n_note;
} fm_shard_info;

/* A blob in a shard, as its header describes it. */
typedef struct fm_shard_blob {
    uint64_t offset; /* of the packed bytes in the file */
    uint32_t stored_bytes, decoded_bytes;
    fm_part_kind kind;
} fm_shard_blob;

/* Callbacks for the entries of a shard: blobs first, each database in the order of its keys. The
 * arguments are borrowed for the call. A status other than FM_OK ends the walk, which returns it.
 * A shard that is damaged anywhere is not visited at all. */
typedef struct fm_shard_visitor {
    void *context;
    fm_status (*blob)(void *context, const fm_sha256 *hash, const fm_shard_blob *blob,
                      fm_error *reterr);
    fm_status (*note)(void *context, const fm_sha256 *key, fm_bytes value, fm_error *reterr);
} fm_shard_visitor;

/* FM_ERR_UNSUPPORTED, with the file system's name, when the folder is on a network file system;
 * FM_ERR_NOT_FOUND when it does not exist. */
FM_MUST_USE fm_status fm_shard_check_disk(const char *folder, fm_error *reterr);

typedef struct fm_shard_writer fm_shard_writer;

/* Starts DIR/build/shard.tmp of cache folder `cache`, or shard-<slot>.tmp for a worker's slot other
 * than 0; an existing file is overwritten. FM_ERR_IO; FM_ERR_LIMIT for a path that is too long;
 * FM_ERR_UNSUPPORTED on a network file system. */
FM_MUST_USE fm_status fm_shard_writer_create(const char *cache, uint32_t slot,
                                             fm_shard_writer **ret_writer, fm_error *reterr);

/* Adds a blob or a note; an existing entry stays as it is. FM_ERR_IO. */
FM_MUST_USE fm_status fm_shard_writer_put(fm_shard_writer *writer, const fm_sha256 *hash,
                                          fm_bytes packed, fm_error *reterr);
FM_MUST_USE fm_status fm_shard_writer_note(fm_shard_writer *writer, const fm_sha256 *key,
                                           fm_bytes value, fm_error *reterr);

/* Approximate size of the file so far. */
uint64_t fm_shard_writer_bytes(const fm_shard_writer *writer);

/* Syncs the file, hashes it, checks its pages and each blob's checksum, visits the entries and
 * renames the file into DIR/shards. All visits happen before the rename; on failure nothing is
 * sealed. The writer is freed in both cases. */
FM_MUST_USE fm_status fm_shard_writer_seal(fm_shard_writer *writer, const fm_shard_visitor *visitor,
                                           fm_shard_info *ret_info, fm_error *reterr);

/* Deletes the unsealed file and frees the writer; NULL is fine. */
void fm_shard_writer_destroy(fm_shard_writer *writer);

/* Checks that the file's hash is `hash` (NULL: it has no name yet), then its pages and each blob's
 * checksum, then visits its entries. A hash protects from accidents, not from people: the file may
 * be anything. FM_ERR_CORRUPT, FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_shard_walk(const char *path, const fm_sha256 *hash,
                                    const fm_shard_visitor *visitor, fm_shard_info *ret_info,
                                    fm_error *reterr);

/* Writes "DIR/shards/<hex>.lmdb" to `out`; false when it does not fit. */
bool fm_shard_path(const char *cache, const fm_sha256 *hash, char *out, size_t out_bytes);

#endif
