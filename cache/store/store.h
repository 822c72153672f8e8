/* store.h: the cache on disk: blobs in sealed shards, generations that name them.
 *
 *     DIR/CURRENT                  number of the current generation (atomic rename)
 *     DIR/generations/<n>.*        manifest, index, notes, refusals, snapshot "all" (generation.h)
 *     DIR/shards/<sha256>.lmdb     a sealed shard: content hash -> zstd blob; never written again
 *     DIR/snapshots/<name>         other canonical sets of chains (snapshot.h)
 *     DIR/build/                   unsealed work of a running or killed build
 *
 * docs/formats/store.md has the byte tables and the promises. This header is the reading side;
 * build.h writes. A store is immutable while open and may be used by any number of threads at once.
 * Loads read a blob with one pread at the place the index names, so that neither a damaged page of
 * LMDB nor a file cut short under a map can do harm: damage is FM_ERR_CORRUPT. */
#ifndef FM_CACHE_STORE_H
#define FM_CACHE_STORE_H

#include "cache/store/facts.h"
#include "proto/record.h"

#include <stdbool.h>

typedef struct fm_store fm_store;

typedef struct fm_store_info {
    uint64_t generation;
    uint32_t n_chain;
    uint32_t n_refused;
    uint32_t n_shard;
    uint64_t stored_bytes;  /* of all shards' files */
    uint64_t decoded_bytes; /* of all parts the index names, each counted once */
    fm_sha256 content;      /* digest over sorted (name, part kinds and hashes): "the same cache" */
} fm_store_info;

/* Opens the current generation of the cache in folder `path`. FM_ERR_NOT_FOUND when there is none;
 * FM_ERR_CORRUPT, FM_ERR_IO; FM_ERR_UNSUPPORTED for a newer format. */
FM_MUST_USE fm_status fm_store_open(const char *path, fm_store **ret_store, fm_error *reterr);
/* The same for generation `number`, which need not be the current one; 0 = the current one.
 * FM_ERR_NOT_FOUND when it is not there (any more). */
FM_MUST_USE fm_status fm_store_open_generation(const char *path, uint64_t number,
                                               fm_store **ret_store, fm_error *reterr);
void fm_store_close(fm_store *store);

const fm_store_info *fm_store_get_info(const fm_store *store);

/* Name of chain `chain` (0 .. n_chain-1, sorted by name); borrowed until close. */
const char *fm_store_chain_name(const fm_store *store, uint32_t chain);

/* The chain of that name. FM_ERR_NOT_FOUND. */
FM_MUST_USE fm_status fm_store_find(const fm_store *store, const char *name, uint32_t *ret_chain,
                                    fm_error *reterr);

/* Reads, decompresses, checks (hash of the content) and decodes all parts of a chain into the
 * arena. FM_ERR_CORRUPT names the shard. */
FM_MUST_USE fm_status fm_store_load(const fm_store *store, uint32_t chain, fm_arena *arena,
                                    fm_record *ret_record, fm_error *reterr);

/* The structure part with that identity, as a template hit names it. FM_ERR_CORRUPT when it is not
 * there or damaged. */
FM_MUST_USE fm_status fm_store_load_structure(const fm_store *store, const fm_sha256 *identity,
                                              fm_arena *arena, fm_part_structure *ret_structure,
                                              fm_error *reterr);

/* What the store knows of one part of a chain without reading it. */
typedef struct fm_store_part {
    fm_sha256 hash;
    uint32_t blob;                        /* parts with the same content have the same number */
    uint32_t shard;                       /* 0 .. n_shard-1 */
    uint64_t stored_bytes, decoded_bytes; /* packed; as encoded */
} fm_store_part;

/* False when the chain has no such part. */
bool fm_store_get_part(const fm_store *store, uint32_t chain, fm_part_kind kind,
                       fm_store_part *ret_part);

/* The facts of all chains [n_chain] (facts.h), read into the arena without any part;
 * *ret_facts = NULL when the cache was built before there were facts. Rows may be empty. */
FM_MUST_USE fm_status fm_store_read_facts(const fm_store *store, fm_arena *arena,
                                          const fm_chain_facts **ret_facts, fm_error *reterr);

/* SHA-256 over the kinds and hashes of a chain's parts: number of parts u8, then kind u8 and hash
 * each. */
fm_sha256 fm_store_chain_hash(const fm_store *store, uint32_t chain);

/* Counts of a full check. */
typedef struct fm_store_check {
    uint32_t n_shard, n_blob, n_chain;
    uint64_t stored_bytes, decoded_bytes;
} fm_store_check;

/* Told after each shard and each chain: how much of the work is done, in bytes read of all that are
 * to be read (shards as files, then their chains as parts). */
typedef struct fm_store_watch {
    void *context;
    void (*tell)(void *context, uint64_t done_bytes, uint64_t all_bytes);
} fm_store_watch;

/* Checks everything of an open store: every shard's file against its name, every entry of it, every
 * blob of the index decoded as its part, every chain's parts against each other and against its
 * facts, the profile of every MSA, notes, refusals, the snapshot "all". Stops at the first damage:
 * FM_ERR_CORRUPT says what and where. Memory: the arena, for one chain at a time. `watch`
 * may be NULL. */
FM_MUST_USE fm_status fm_store_verify(const fm_store *store, const fm_store_watch *watch,
                                      fm_arena *arena, fm_store_check *ret_check, fm_error *reterr);

#endif
