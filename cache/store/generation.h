/* generation.h: one published state of a cache: which chains, made of which blobs, in which shards.
 *
 *     generations/<n>.manifest  text: counts, shards, and the hashes of the files below
 *     generations/<n>.index     chains sorted by name -> blobs; blobs sorted by hash -> place
 *     generations/<n>.notes     cache keys -> what was made under them, sorted by key
 *     generations/<n>.refused   "chain <tab> reason" lines, sorted
 *     generations/<n>.facts     what is asked of chains before they are loaded (facts.h)
 *     generations/<n>.all       the snapshot "all" (snapshot.h)
 *     CURRENT                   "<n>"
 *
 * All files of a generation are written and synced before CURRENT names it; nothing is ever changed
 * afterwards. Byte tables: docs/formats/store.md. Readers check every file's hash and every value.
 */
#ifndef FM_CACHE_GENERATION_H
#define FM_CACHE_GENERATION_H

#include "cache/store/facts.h"
#include "cache/store/shard.h"
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

/* A chain; laid out as in the index file. */
typedef struct fm_chain_entry {
    uint64_t name_at;         /* offset in the names */
    uint32_t part[FM_N_PART]; /* blob of the part of kind k at [k-1], or FM_NO_PART */
} fm_chain_entry;

/* A cache key and what was made under it. */
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
    const fm_shard_info *shard;  /* [n_shard] sorted by hash; n_note is not kept and 0 */
    const fm_chain_entry *chain; /* [n_chain] sorted by name */
    const char *names;           /* terminated, in the order of the chains */
    uint64_t name_bytes;
    const fm_blob_entry *blob;                    /* [n_blob] sorted by hash */
    const fm_note_entry *note;                    /* [n_note] sorted by key */
    const fm_refusal *refused;                    /* [n_refused] sorted by chain */
    bool has_facts;                               /* false: made before there were facts */
    const fm_chain_facts *facts;                  /* [n_chain] when it is being published */
    fm_sha256 content;                            /* fm_generation_digest */
    fm_sha256 notes_hash, refused_hash, all_hash; /* of those files */
    fm_sha256 facts_hash;                         /* the same; has_facts */
} fm_generation;

typedef enum fm_generation_what {
    FM_GENERATION_SERVE, /* manifest and index: what loads need */
    FM_GENERATION_ALL,   /* notes and refusals too */
} fm_generation_what;

/* "The same cache": SHA-256 of "foldmill content 1\n", then for every chain in the order of names:
 * the name, a zero byte, the number of parts u8, and for every part by kind: kind u8, hash u8[32].
 */
fm_sha256 fm_generation_digest(const fm_generation *generation);

/* SHA-256 over the kinds and hashes of a chain's parts: number of parts u8, then kind u8 and hash
 * each. */
fm_sha256 fm_generation_chain_hash(const fm_generation *generation, uint32_t chain);

/* Reads the generation that CURRENT of folder `cache` names, into the arena. FM_ERR_NOT_FOUND when
 * there is no CURRENT; FM_ERR_CORRUPT; FM_ERR_UNSUPPORTED for a newer format. */
FM_MUST_USE fm_status fm_generation_read(const char *cache, fm_generation_what what,
                                         fm_arena *arena, fm_generation *ret_generation,
                                         fm_error *reterr);

/* The same for generation `number`. FM_ERR_NOT_FOUND when it is not there. */
FM_MUST_USE fm_status fm_generation_read_at(const char *cache, uint64_t number,
                                            fm_generation_what what, fm_arena *arena,
                                            fm_generation *ret_generation, fm_error *reterr);

/* Writes all files of `generation` and names it in CURRENT. `snapshot` = bytes of the snapshot
 * "all". Sets the hashes in *generation. Arena: for the files' bytes. FM_ERR_IO leaves the
 * generation before it in force. */
FM_MUST_USE fm_status fm_generation_publish(const char *cache, fm_generation *generation,
                                            fm_bytes snapshot, fm_arena *arena, fm_error *reterr);

/* What the notes, refusals and facts of `generation` hash to, to see whether anything changed. */
FM_MUST_USE fm_status fm_generation_hash_lists(fm_generation *generation, fm_arena *arena,
                                               fm_error *reterr);

/* The bytes of the snapshot "all", checked against the manifest. */
FM_MUST_USE fm_status fm_generation_read_all(const char *cache, const fm_generation *generation,
                                             fm_arena *arena, fm_bytes *ret_bytes,
                                             fm_error *reterr);

/* The facts of all chains, checked against the manifest; *ret_facts = NULL for a generation without
 * them. */
FM_MUST_USE fm_status fm_generation_read_facts(const char *cache, const fm_generation *generation,
                                               fm_arena *arena, const fm_chain_facts **ret_facts,
                                               fm_error *reterr);

/* "<n>\n", as CURRENT and pins hold it; 0 when it is not that. */
uint64_t fm_generation_number_parse(fm_bytes text);

/* "CACHE/generations/<n>.<suffix>" into out; FM_ERR_LIMIT when it does not fit. */
FM_MUST_USE fm_status fm_generation_path(const char *cache, uint64_t number, const char *suffix,
                                         char *out, size_t out_bytes, fm_error *reterr);

#endif
