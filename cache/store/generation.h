/* generation.h: one published state of a cache: its chains, the blobs they consist of, and the
 * shards that hold the blobs.
 *
 *     generations/<n>.manifest  text: counts, shards, and the hashes of the files below
 *     generations/<n>.index     chains sorted by name -> blobs; blobs sorted by hash -> place
 *     generations/<n>.notes     cache keys -> what was made under them, sorted by key
 *     generations/<n>.refused   "chain <tab> reason" lines, sorted
 *     generations/<n>.facts     facts of the chains (facts.h)
 *     generations/<n>.records   records of the complexes (complex_rows.h), if there are any
 *     generations/<n>.all       the snapshot "all" (snapshot.h)
 *     CURRENT                   "<n>"
 *
 * A build writes and syncs all files of a generation before CURRENT names it, and nothing changes
 * them afterwards. Readers check the hash of each file and every value in it. The byte tables are
 * in docs/reference/store.md. */
#ifndef FM_CACHE_GENERATION_H
#define FM_CACHE_GENERATION_H

#include "cache/store/facts.h"
#include "cache/store/shard.h"
#include "proto/complex_rows.h"
#include "proto/record.h"

#define FM_NO_PART UINT32_MAX

/* A blob and its place; laid out as in the index file. */
typedef struct fm_blob_entry {
    fm_sha256 hash;         /* of the decoded bytes */
    uint64_t offset;        /* of the packed bytes in the shard's file */
    uint32_t stored_bytes;  /* packed */
    uint32_t decoded_bytes; /* <= FM_LIMIT_PART_BYTES */
    uint32_t shard;         /* position in the manifest's shards */
    uint32_t kind;          /* fm_part_kind */
    uint64_t zero;
} fm_blob_entry;

/* A chain or a complex; laid out as in the index file. */
typedef struct fm_chain_entry {
    uint64_t name_at; /* offset in the names */
    /* Of a chain, the blob of the part of kind k at [k-1], or FM_NO_PART. A complex has the blobs
     * of its assembly and of its entities in front, and FM_NO_PART behind them. */
    uint32_t part[FM_N_PART];
} fm_chain_entry;

/* A cache key and the value of its note. */
typedef struct fm_note_entry {
    fm_sha256 key;
    fm_bytes value;
} fm_note_entry;

typedef struct fm_refusal {
    const char *chain;  /* terminated */
    const char *reason; /* "source:line:column: message", one line, terminated */
} fm_refusal;

typedef struct fm_generation {
    uint64_t number; /* >= 1 */
    uint32_t n_shard, n_chain, n_blob, n_note, n_refused;
    uint32_t n_complex, n_row;   /* complexes among the chains, and their records */
    const fm_shard_info *shard;  /* [n_shard] sorted by hash; their n_note is not stored and is 0 */
    const fm_chain_entry *chain; /* [n_chain] sorted by name */
    const char *names;           /* terminated, in the order of the chains */
    uint64_t name_bytes;
    const fm_blob_entry *blob; /* [n_blob] sorted by hash */
    const fm_note_entry *note; /* [n_note] sorted by key */
    const fm_refusal *refused; /* [n_refused] sorted by chain */
    /* False: an older foldmill made the generation, without facts. */
    bool has_facts;
    /* [n_chain] while it is published; NULL after a read. */
    const fm_chain_facts *facts;
    const fm_complex_row *rows;                   /* [n_row] the same */
    fm_sha256 content;                            /* fm_generation_digest */
    fm_sha256 notes_hash, refused_hash, all_hash; /* of the files notes, refused, all */
    fm_sha256 facts_hash;                         /* of the file facts, if has_facts */
    fm_sha256 rows_hash;                          /* of the file records, if n_complex */
} fm_generation;

typedef enum fm_generation_what {
    FM_GENERATION_SERVE, /* manifest and index: what loading chains needs */
    FM_GENERATION_ALL,   /* also notes and refusals: what a build needs */
} fm_generation_what;

/* True when the item of the index is a complex. */
bool fm_generation_is_complex(const fm_generation *generation, uint32_t item);
/* The blob of an item's part of that kind, or FM_NO_PART. */
uint32_t fm_generation_part(const fm_generation *generation, uint32_t item, fm_part_kind kind);

/* Finds a chain by its name, and a blob by its hash. False when the generation has none. */
bool fm_generation_find_chain(const fm_generation *generation, const char *name,
                              uint32_t *ret_chain);
bool fm_generation_find_blob(const fm_generation *generation, const fm_sha256 *hash,
                             uint32_t *ret_blob);

/* The content digest: two caches with the same digest hold the same chains with the same parts.
 * SHA-256 of "foldmill content 1\n" and then the chains in the order of names. Each chain gives its
 * name, a zero byte and the number of parts u8; each part, in the order of kinds, gives kind u8 and
 * hash u8[32]. */
fm_sha256 fm_generation_digest(const fm_generation *generation);

/* The hash of one chain's parts: SHA-256 of the number of parts u8, then for each part kind u8 and
 * hash u8[32]. */
fm_sha256 fm_generation_chain_hash(const fm_generation *generation, uint32_t chain);

/* The number in CURRENT of cache folder `cache`. Errors as below. The arena holds the file. */
FM_MUST_USE fm_status fm_generation_current(const char *cache, fm_arena *arena,
                                            uint64_t *ret_number, fm_error *reterr);

/* Reads the generation that CURRENT of cache folder `cache` names, into the arena. FM_ERR_NOT_FOUND
 * without CURRENT; FM_ERR_CORRUPT; FM_ERR_IO; FM_ERR_UNSUPPORTED for a newer format. */
FM_MUST_USE fm_status fm_generation_read(const char *cache, fm_generation_what what,
                                         fm_arena *arena, fm_generation *ret_generation,
                                         fm_error *reterr);

/* The same for generation `number`. FM_ERR_NOT_FOUND when it does not exist. */
FM_MUST_USE fm_status fm_generation_read_at(const char *cache, uint64_t number,
                                            fm_generation_what what, fm_arena *arena,
                                            fm_generation *ret_generation, fm_error *reterr);

/* Writes all files of `generation`, then names it in CURRENT. `snapshot`: bytes of the snapshot
 * "all". Sets the hashes in *generation. The arena holds the files' bytes. After FM_ERR_IO the
 * previous generation is still in force. FM_ERR_EXISTS when the generation has a manifest, which is
 * never written over. */
FM_MUST_USE fm_status fm_generation_publish(const char *cache, fm_generation *generation,
                                            fm_bytes snapshot, fm_arena *arena, fm_error *reterr);

/* Sets the hashes of notes, refusals and facts, and the content digest, so that a build can see
 * whether anything changed. */
FM_MUST_USE fm_status fm_generation_hash_lists(fm_generation *generation, fm_arena *arena,
                                               fm_error *reterr);

/* The bytes of the snapshot "all", checked against the manifest, in the arena. */
FM_MUST_USE fm_status fm_generation_read_all(const char *cache, const fm_generation *generation,
                                             fm_arena *arena, fm_bytes *ret_bytes,
                                             fm_error *reterr);

/* The facts of all chains, checked against the manifest, in the arena. *ret_facts = NULL for a
 * generation without facts. */
FM_MUST_USE fm_status fm_generation_read_facts(const char *cache, const fm_generation *generation,
                                               fm_arena *arena, const fm_chain_facts **ret_facts,
                                               fm_error *reterr);

/* The records of the complexes, checked against the manifest, in the arena. *ret_n = 0 for a
 * generation without complexes. */
FM_MUST_USE fm_status fm_generation_read_rows(const char *cache, const fm_generation *generation,
                                              fm_arena *arena, const fm_complex_row **ret_rows,
                                              uint32_t *ret_n, fm_error *reterr);

/* Parses "<n>\n", the content of CURRENT and of pins; 0 when it is anything else. */
uint64_t fm_generation_number_parse(fm_bytes text);

/* The number of a file's name "<8 or more digits>.<suffix>"; 0 for any other name. */
uint64_t fm_generation_number_of(const char *name, const char *suffix);

/* Writes "CACHE/generations/<n>.<suffix>" to `out`; FM_ERR_LIMIT when it does not fit. */
FM_MUST_USE fm_status fm_generation_path(const char *cache, uint64_t number, const char *suffix,
                                         char *out, size_t out_bytes, fm_error *reterr);

#endif
