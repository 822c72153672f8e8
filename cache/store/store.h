/* store.h: the cache on disk: blobs in sealed shards, and generations that name them.
 *
 *     DIR/CURRENT                  number of the current generation, replaced by a rename
 *     DIR/generations/<n>.*        manifest, index, notes, refusals, snapshot "all" (generation.h)
 *     DIR/shards/<sha256>.lmdb     a sealed shard: content hash -> zstd blob; never written again
 *     DIR/snapshots/<name>         other canonical sets of chains (snapshot.h)
 *     DIR/build/                   unsealed work of a running or killed build
 *
 * This header is the reading side; build.h writes. docs/reference/store.md has the byte tables and
 * the guarantees. A store is immutable while it is open, and any number of threads may use it at
 * the same time. A load reads a blob with one pread at the place that the index names. A damaged
 * LMDB page, or a file truncated under a memory map, therefore does no harm: damage is
 * FM_ERR_CORRUPT. */
#ifndef FM_CACHE_STORE_H
#define FM_CACHE_STORE_H

#include "cache/store/facts.h"
#include "proto/complex_rows.h"
#include "proto/record.h"
#include "proto/record_complex.h"

#include <stdbool.h>

typedef struct fm_store fm_store;

typedef struct fm_store_info {
    uint64_t generation;
    uint32_t n_chain;   /* items: chains and complexes */
    uint32_t n_complex; /* of them */
    uint32_t n_refused;
    uint32_t n_shard;
    uint64_t stored_bytes;  /* of all shards' files */
    uint64_t decoded_bytes; /* of all parts that the index names, each counted once */
    fm_sha256 content; /* fm_generation_digest: the same digest means the same chains and parts */
} fm_store_info;

/* Opens the current generation of the cache in folder `path`. FM_ERR_NOT_FOUND when it has none;
 * FM_ERR_CORRUPT, FM_ERR_IO, FM_ERR_NOMEM; FM_ERR_UNSUPPORTED for a newer format. */
FM_MUST_USE fm_status fm_store_open(const char *path, fm_store **ret_store, fm_error *reterr);
/* The same for generation `number`, current or not; 0 = the current one. FM_ERR_NOT_FOUND when it
 * does not exist, or gc removed it. */
FM_MUST_USE fm_status fm_store_open_generation(const char *path, uint64_t number,
                                               fm_store **ret_store, fm_error *reterr);
void fm_store_close(fm_store *store);

const fm_store_info *fm_store_get_info(const fm_store *store);

/* Name of chain `chain` (0 .. n_chain-1, in the order of names); borrowed until the close. */
const char *fm_store_chain_name(const fm_store *store, uint32_t chain);

/* What an item of the index is. Complexes stand beside chains, named by their entry, and are
 * counted with them: where this header says chain, a complex may stand, unless it says otherwise.
 */
typedef enum fm_stored_kind { FM_STORED_CHAIN, FM_STORED_COMPLEX } fm_stored_kind;
fm_stored_kind fm_store_item_kind(const fm_store *store, uint32_t item);

/* Reads the table of what training draws of the complexes (complex_rows.h) into the arena, without
 * any part. *ret_n = 0 for a store without complexes. FM_ERR_CORRUPT, FM_ERR_IO. */
FM_MUST_USE fm_status fm_store_read_complex_rows(const fm_store *store, fm_arena *arena,
                                                 const fm_complex_row **ret_rows, uint32_t *ret_n,
                                                 fm_error *reterr);

/* The chain of that name. FM_ERR_NOT_FOUND. */
FM_MUST_USE fm_status fm_store_find(const fm_store *store, const char *name, uint32_t *ret_chain,
                                    fm_error *reterr);

/* Reads, decompresses and decodes all parts of a chain into the arena, and checks the content hash
 * of each. FM_ERR_CORRUPT names the shard. FM_ERR_USAGE for a complex, which
 * cache/export/complex_load.h loads. */
FM_MUST_USE fm_status fm_store_load(const fm_store *store, uint32_t chain, fm_arena *arena,
                                    fm_record *ret_record, fm_error *reterr);

/* Loads only the template hits of a chain; *ret_hits = NULL when it has no such part. Errors as
 * those of fm_store_load. */
FM_MUST_USE fm_status fm_store_load_hits(const fm_store *store, uint32_t chain, fm_arena *arena,
                                         const fm_part_hits **ret_hits, fm_error *reterr);

/* Loads one part of a complex, which borrows from the arena. */
FM_MUST_USE fm_status fm_store_load_assembly(const fm_store *store, uint32_t item, fm_arena *arena,
                                             fm_part_assembly *ret_part, fm_error *reterr);
FM_MUST_USE fm_status fm_store_load_entities(const fm_store *store, uint32_t item, fm_arena *arena,
                                             fm_part_entities *ret_part, fm_error *reterr);

/* Loads an msa or a hits part by its content hash, as an entities part names it. Errors as
 * below. */
FM_MUST_USE fm_status fm_store_load_msa(const fm_store *store, const fm_sha256 *identity,
                                        fm_arena *arena, fm_part_msa *ret_msa, fm_error *reterr);
FM_MUST_USE fm_status fm_store_load_hits_part(const fm_store *store, const fm_sha256 *identity,
                                              fm_arena *arena, fm_part_hits *ret_hits,
                                              fm_error *reterr);

/* Loads the structure part with that content hash, as a template hit names it. FM_ERR_CORRUPT when
 * it is missing or damaged. */
FM_MUST_USE fm_status fm_store_load_structure(const fm_store *store, const fm_sha256 *identity,
                                              fm_arena *arena, fm_part_structure *ret_structure,
                                              fm_error *reterr);

/* The index's row for one part of a chain. */
typedef struct fm_store_part {
    fm_sha256 hash;
    uint32_t blob;                        /* the same number for parts with the same content */
    uint32_t shard;                       /* 0 .. n_shard-1 */
    uint64_t stored_bytes, decoded_bytes; /* compressed, with header; as encoded */
} fm_store_part;

/* False when the chain has no part of that kind. */
bool fm_store_get_part(const fm_store *store, uint32_t chain, fm_part_kind kind,
                       fm_store_part *ret_part);

/* The facts of all chains [n_chain] (facts.h), read into the arena without any part. *ret_facts =
 * NULL when an older foldmill built the cache, without facts. Rows may be empty. */
FM_MUST_USE fm_status fm_store_read_facts(const fm_store *store, fm_arena *arena,
                                          const fm_chain_facts **ret_facts, fm_error *reterr);

/* SHA-256 over the kinds and hashes of a chain's parts: fm_generation_chain_hash. */
fm_sha256 fm_store_chain_hash(const fm_store *store, uint32_t chain);

/* What a full check counted. */
typedef struct fm_store_check {
    uint32_t n_shard, n_blob, n_chain;
    uint64_t stored_bytes, decoded_bytes;
} fm_store_check;

/* Progress of a check, reported after each shard and each chain: bytes read so far, of all bytes to
 * read (shards as files, then their chains as parts). */
typedef struct fm_store_watch {
    void *context;
    void (*tell)(void *context, uint64_t done_bytes, uint64_t all_bytes);
} fm_store_watch;

/* Checks everything in an open store: the file of each shard against its name, each entry of it,
 * and each blob of the index, decoded as its part. The parts of each chain must agree with each
 * other and with its facts, and each profile with its MSA. Notes, refusals and the snapshot "all"
 * are checked too. It stops at the first damage: FM_ERR_CORRUPT says what and where. The arena
 * holds one chain at a time. `watch` may be NULL. */
FM_MUST_USE fm_status fm_store_verify(const fm_store *store, const fm_store_watch *watch,
                                      fm_arena *arena, fm_store_check *ret_check, fm_error *reterr);

#endif
