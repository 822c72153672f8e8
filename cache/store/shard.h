/* shard.h: shards: LMDB files that are written once, sealed, and never written again.
 *
 *     DIR/build/shard.tmp    being written, without syncs: worthless after a crash, thrown away
 *     DIR/shards/<sha256 of the file>.lmdb    sealed: synced, checked, hashed whole, renamed
 *
 * A shard has two databases: "blobs", content hash -> blob (blob.h), and "notes", cache key -> what
 * was made under it (build.h), so that sealed shards alone say what need not be made again.
 *
 * LMDB trusts its pages, so it is never given a file whose hash has not just been checked, and
 * loads do not go through it: the index of a generation names the place of each blob in the file
 * (generation.h). Written on local disks only. One thread at a time. */
#ifndef FM_CACHE_SHARD_H
#define FM_CACHE_SHARD_H

#include "proto/base/bytes.h"
#include "proto/base/hash.h"
#include "proto/base/status.h"

#include <stdbool.h>

typedef struct fm_shard_info {
    fm_sha256 hash; /* of the whole file: its name */
    uint64_t bytes; /* of the file */
    uint32_t n_blob, n_note;
} fm_shard_info;

/* Called for every entry of a shard, blobs first, each database in the order of its keys. What is
 * passed is borrowed for the call. A status other than FM_OK ends the walk and is returned. */
typedef struct fm_shard_visitor {
    void *context;
    /* `offset`: of the packed bytes in the file. */
    fm_status (*blob)(void *context, const fm_sha256 *hash, uint64_t offset, fm_bytes packed,
                      fm_error *reterr);
    fm_status (*note)(void *context, const fm_sha256 *key, fm_bytes value, fm_error *reterr);
} fm_shard_visitor;

/* FM_ERR_UNSUPPORTED, by name, when the folder lies on a network file system. */
FM_MUST_USE fm_status fm_shard_check_disk(const char *folder, fm_error *reterr);

typedef struct fm_shard_writer fm_shard_writer;

/* Starts DIR/build/shard.tmp of cache folder `cache` (shard-<slot>.tmp for a slot other than 0, of
 * one of several workers); a file that is there is overwritten. Its map grows with what is put.
 * FM_ERR_IO, FM_ERR_UNSUPPORTED (network file system). */
FM_MUST_USE fm_status fm_shard_writer_create(const char *cache, uint32_t slot,
                                             fm_shard_writer **ret_writer, fm_error *reterr);

/* Adds a blob, or a note; an entry that is there already is left as it is. FM_ERR_IO. */
FM_MUST_USE fm_status fm_shard_writer_put(fm_shard_writer *writer, const fm_sha256 *hash,
                                          fm_bytes packed, fm_error *reterr);
FM_MUST_USE fm_status fm_shard_writer_note(fm_shard_writer *writer, const fm_sha256 *key,
                                           fm_bytes value, fm_error *reterr);

/* Bytes of the file so far, about. */
uint64_t fm_shard_writer_bytes(const fm_shard_writer *writer);

/* Syncs, checks every blob's checksum and place, hashes the file, visits its entries and renames it
 * into DIR/shards. Visits come before the rename; on failure nothing is sealed. The writer is gone
 * afterwards in both cases. */
FM_MUST_USE fm_status fm_shard_writer_seal(fm_shard_writer *writer, const fm_shard_visitor *visitor,
                                           fm_shard_info *ret_info, fm_error *reterr);

/* Throws the unsealed file away; NULL is fine. */
void fm_shard_writer_destroy(fm_shard_writer *writer);

/* SHA-256 and size of a file, read in blocks. */
FM_MUST_USE fm_status fm_shard_hash_file(const char *path, fm_sha256 *ret_hash, uint64_t *ret_bytes,
                                         fm_error *reterr);

/* Checks that the file's hash is `hash`, then visits its entries. FM_ERR_CORRUPT. */
FM_MUST_USE fm_status fm_shard_walk(const char *path, const fm_sha256 *hash,
                                    const fm_shard_visitor *visitor, fm_shard_info *ret_info,
                                    fm_error *reterr);

/* "DIR/shards/<hex>.lmdb" into out; false when it does not fit. */
bool fm_shard_path(const char *cache, const fm_sha256 *hash, char *out, size_t out_bytes);

#endif
