/* build_state.h: the state that the threads of a build share.
 *
 * One lock guards everything after it in fm_build_state. Lists grow by doubling, and positions in
 * them stay valid.
 *
 * Workers take tasks and push packets, blobs and notes, into the queue. The writer takes packets
 * from the queue and puts them into the current shard. A blob is known as soon as a worker claims
 * it (fm_build_claim_blob). The worker that claims it first must push it; others that make the same
 * part only refer to it. Its place is FM_BUILD_PENDING until the writer seals the shard. The queue
 * has a limit of bytes; workers wait in fm_build_push while it is full. */
#ifndef FM_CACHE_BUILD_STATE_H
#define FM_CACHE_BUILD_STATE_H

#include "cache/build/build.h"
#include "cache/store/generation.h"
#include "cache/build/hash_map.h"
#include "proto/limits.h"
#include "proto/record_complex.h"

#include <limits.h>
#include <pthread.h>

enum {
    FM_BUILD_NOTE_BYTES = 2 * FM_SHA256_BYTES, /* longest value of a note with a fixed size */
};

#define FM_BUILD_PENDING UINT32_MAX /* shard of a blob that is not sealed yet */

/* A blob or a note for the writer. */
typedef struct fm_build_packet {
    struct fm_build_packet *next;
    bool is_note;
    fm_sha256 hash;
    size_t size;
    uint8_t data[];
} fm_build_packet;

/* Values of notes (build_writer.c). */
typedef struct fm_build_chunk fm_build_chunk;

typedef struct fm_build_note {
    fm_sha256 key;
    const uint8_t *value; /* in the state's chunks, or borrowed */
    uint32_t value_bytes;
    bool used; /* used by this run, so it goes into the generation */
} fm_build_note;

#define FM_BUILD_NO_ITEM UINT32_MAX

/* One unit of a worker's work: chains of one structure. */
typedef struct fm_build_task {
    const fm_source_structure *structure;
    const fm_source_chain *chain; /* [n_chain] of its chains */
    uint32_t n_chain;
    bool singles; /* also those of its chains that have no alignments */
    bool complex; /* also its complex */
    /* [n_chain + 1] items of the catalogue, the last of its complex and its singles; NULL = none */
    const uint32_t *item;
    uint32_t first_result; /* results before this position are not of this task */
} fm_build_task;

/* The source of tasks in a shared build (build_shared.c). The worker and writer threads call it
 * without the lock. */
typedef struct fm_build_feed {
    void *context;
    /* Waits for a task; false after the last one. Its pointers are valid until `done`. */
    bool (*next)(void *context, fm_build_task *ret_task);
    /* All results of the task are recorded and all blobs that they name are pushed; or the job
     * ends. */
    void (*done)(void *context, const fm_build_task *task);
    /* The writer has put a note into shard `shard`, which it is sealing. */
    void (*note_sealed)(void *context, const fm_sha256 *key, uint32_t shard);
} fm_build_feed;

typedef struct fm_build_result {
    char *name;    /* heap */
    uint32_t item; /* item of the catalogue, or FM_BUILD_NO_ITEM */
    char *reason;  /* heap; reason of the refusal; NULL = made */
    fm_status status;
    bool reused;
    bool is_complex; /* the first two slots are its assembly and its entities; its key is first */
    bool is_kept;    /* of another dataset: taken over from the generation before */
    /* is_kept, or a complex of a merge: its row, borrowed; NULL = unknown, or in its note */
    const fm_chain_facts *facts;
    const fm_complex_row *rows; /* the same: [n_row] records of a complex, borrowed */
    uint32_t n_row;
    /* Of a complex of a merge, as in fm_build_complex_note (build_work.h). */
    uint32_t n_protein, n_unclustered;
    bool has[FM_N_PART];
    fm_sha256 part[FM_N_PART];
    bool has_key[FM_N_PART];
    /* Keys of its notes: structure, msa, hits; for the sequence, the key of the list of chains
     * that a single sequence comes from. */
    fm_sha256 key[FM_N_PART];
    bool has_listed;
    fm_listed listed; /* what a list of the dataset says; its name is NULL */
    fm_sha256 *named; /* heap; [n_named] parts that its parts name: structures of hits, and of a
                         complex also its components and its entities' rows and hits */
    uint32_t n_named;
    fm_sha256 *entity_key; /* heap; [n_entity_key] keys of the notes of a complex's entities */
    uint32_t n_entity_key;
    fm_bytes summary; /* heap; of a complex in a shared build: its part of the note of its item */
} fm_build_result;

/* Frees the values of the notes. */
void fm_build_free_chunks(fm_build_chunk *chunks);

/* Frees what a result has on the heap. */
void fm_build_free_result(fm_build_result *result);

struct fm_build_templates;

typedef struct fm_build_state {
    const fm_source *source;
    struct fm_build_templates *templates; /* build_hits.h */
    const fm_build_options *options;
    const fm_build_feed *feed;       /* NULL = all structures of the source, once each */
    const fm_components *components; /* of complexes; NULL = none are made */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* any change of the fields below; CLOCK_MONOTONIC */

    fm_hash_index blob_of, note_of; /* of blob and note */
    fm_blob_entry *blob;
    uint32_t n_blob, max_blob;
    fm_build_note *note;
    uint32_t n_note, max_note;
    fm_build_chunk *chunks; /* values of notes; the one that is being filled is first */
    fm_shard_info *shard;
    uint32_t n_shard, max_shard;

    fm_build_packet *first, **last; /* queue to the writer */
    size_t queued_bytes;
    bool no_more; /* all workers have ended */
    bool flush;   /* seal when the queue is empty; the writer resets it */

    fm_build_result *result;
    uint32_t n_result, max_result;
    uint32_t next_structure;
    uint32_t n_working; /* workers that have not ended */
    bool ending;        /* begin no new chain: stopped or failed */
    fm_status failed;
    fm_error error;
    double begun; /* CLOCK_MONOTONIC seconds */
    fm_build_progress progress;
    uint64_t written_bytes;
    uint32_t n_without_alignments, n_bare_entity, n_without_hits, n_no_protein;
    uint32_t n_left_out;               /* alignments of other queries in the texts of chains */
    uint32_t n_protein, n_unclustered; /* as in the report; set by fm_build_publish */
    fm_sha256 record_key;              /* of the note that records the datasets */
    fm_bytes record;                   /* its first value, in the caller's arena; empty = none */
} fm_build_state;

/* Limit of an input file, unpacked: a quarter of a worker's memory; a structure file must also fit
 * into its eighth. All workers may unpack such a file at the same time. */
static inline size_t fm_build_input_bytes(const fm_build_state *state) {
    uint64_t worker = state->options->worker_bytes;
    uint64_t bytes = (worker ? worker : (uint64_t)48 << 30) / 4;
    return bytes < FM_LIMIT_INPUT_BYTES ? (size_t)bytes : (size_t)FM_LIMIT_INPUT_BYTES;
}

/* Bytes of `eighths` eighths of a worker's memory: six for a chain, one for the file of its
 * structure, one for that of a template. This is address space; it becomes memory when it is
 * written. */
static inline size_t fm_build_worker_bytes(const fm_build_state *state, unsigned eighths) {
    uint64_t bytes = state->options->worker_bytes;
    return (size_t)((bytes ? bytes : (uint64_t)48 << 30) / 8 * eighths);
}

/* The blob, or the note, of that hash; NULL = unknown. Valid until the next is added. Lock held. */
fm_blob_entry *fm_build_find_blob(const fm_build_state *state, const fm_sha256 *hash);
fm_build_note *fm_build_find_note(const fm_build_state *state, const fm_sha256 *key);

/* Makes room for one more element; false when memory ran out. */
FM_MUST_USE bool fm_build_grow(void **list, uint32_t n, uint32_t *max, size_t size);

/* Adds a part, or the parts of an entity, to those that a result's parts name, in its list on the
 * heap. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_build_add_named(fm_build_result *result, const fm_sha256 *hash,
                                         fm_error *reterr);
FM_MUST_USE fm_status fm_build_add_inputs(fm_build_result *result,
                                          const fm_part_entity_inputs *inputs, fm_error *reterr);
/* Adds the key of a note that an entity uses. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_build_add_entity_key(fm_build_result *result, const fm_sha256 *key,
                                              fm_error *reterr);

/* Records the first error that ends the job, and wakes all threads. Takes the lock. */
void fm_build_fail(fm_build_state *state, const fm_error *error);

/* True when no new chain may be begun. Takes the lock. */
bool fm_build_is_ending(fm_build_state *state);

/* True when the blob is known. Takes the lock. */
bool fm_build_knows_blob(fm_build_state *state, const fm_sha256 *hash);
/* The same. An unknown blob becomes known, and the caller must push it. Takes the lock. */
bool fm_build_claim_blob(fm_build_state *state, const fm_sha256 *hash, fm_part_kind kind,
                         uint64_t decoded_bytes);
/* Hands bytes to the writer; waits while its queue is full. Takes the lock. */
void fm_build_push(fm_build_state *state, bool is_note, const fm_sha256 *hash, fm_bytes bytes);

/* Adds a note: one read from a shard or a generation (used = false), or a new one. Lock held. */
void fm_build_add_note(fm_build_state *state, const fm_sha256 *key, fm_bytes value, bool used);
/* The same for a note whose value lives as long as the state. Lock held. */
void fm_build_borrow_note(fm_build_state *state, const fm_sha256 *key, fm_bytes value);
/* Adds a note that this run uses, or gives it a new value; it is in no shard. Lock held. */
void fm_build_put_note(fm_build_state *state, const fm_sha256 *key, fm_bytes value);
/* Adds a blob with its place. Lock held. */
void fm_build_add_blob(fm_build_state *state, const fm_blob_entry *entry);

/* Copies the value of a note and marks it used. False unless the note exists, has value_bytes, and
 * names only known blobs as a list of content hashes. Takes the lock. */
bool fm_build_use_note(fm_build_state *state, const fm_sha256 *key, uint8_t *ret_value,
                       uint32_t value_bytes);
/* The same for a list of any length, into the arena. Takes the lock. */
bool fm_build_use_list(fm_build_state *state, const fm_sha256 *key, fm_arena *arena,
                       fm_bytes *ret_value);
/* The same for a note of any length that names no blobs, into the arena. Takes the lock. */
bool fm_build_use_text(fm_build_state *state, const fm_sha256 *key, fm_arena *arena,
                       fm_bytes *ret_value);
/* Adds and pushes a new note. Takes the lock. */
void fm_build_make_note(fm_build_state *state, const fm_sha256 *key, fm_bytes value);

/* Appends a result. Copies the name and the reason (that of `refusal`, or the result's own), and
 * takes over what else is on the heap. Takes the lock. */
void fm_build_add_result(fm_build_state *state, const char *name, const fm_build_result *result,
                         const fm_error *refusal);

/* Count a chain without alignments, an entity of a complex without any, a chain without a list of
 * template hits, and alignments that were left out. Each takes the lock. */
void fm_build_count_without_alignments(fm_build_state *state);
void fm_build_count_bare_entity(fm_build_state *state);
void fm_build_count_without_hits(fm_build_state *state);
void fm_build_count_left_out(fm_build_state *state, uint32_t n);

/* init sets up any memory; fini frees what the state holds. */
void fm_build_state_init(fm_build_state *state, const fm_source *source,
                         const fm_build_options *options);
void fm_build_state_fini(fm_build_state *state);

/* Writes CACHE/name to `out`. FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_build_path(const char *cache, const char *name, char out[PATH_MAX],
                                    fm_error *reterr);

/* Fills blobs, notes and shards from the cache: the current generation, which is read into the
 * arena (number 0: there is none), and sealed shards that it does not name. The latter are hashed
 * first; a damaged one is ignored. Call it while no thread runs. */
FM_MUST_USE fm_status fm_build_take_known(fm_build_state *state, fm_arena *arena,
                                          fm_generation *ret_base, fm_error *reterr);

/* Adds the blobs, notes and shards of a generation of the cache that are not known yet. Blobs of
 * missing shards are left out. FM_ERR_IO, FM_ERR_NOMEM. Call it while no thread runs. */
FM_MUST_USE fm_status fm_build_take_generation(fm_build_state *state, const fm_generation *base,
                                               fm_arena *arena, fm_error *reterr);

/* Adds the entries of a sealed shard of the cache, after checking its hash. FM_ERR_CORRUPT,
 * FM_ERR_IO. Call it while no thread runs. */
FM_MUST_USE fm_status fm_build_take_shard(fm_build_state *state, const fm_sha256 *hash,
                                          fm_error *reterr);

/* What becomes of the chains of other datasets (build_others.c). */
typedef struct fm_build_others {
    bool keep_named;  /* keep those of datasets with another name */
    bool keep_all;    /* keep all that have no result */
    bool is_inferred; /* as in the report */
} fm_build_others;

/* Decides from the datasets that the base records, and from its chains. FM_ERR_EXISTS when the
 * options do not say what becomes of chains that would be lost. */
FM_MUST_USE fm_status fm_build_check_others(const fm_source *source,
                                            const fm_build_options *options,
                                            const fm_generation *base, fm_arena *arena,
                                            fm_build_others *ret_others, fm_error *reterr);

/* Adds results for the kept chains and refusals of the base, marks their notes as used, and
 * prepares the record of the datasets. FM_ERR_CORRUPT when a part of a kept chain is missing.
 * Call it while no thread runs. */
FM_MUST_USE fm_status fm_build_keep_others(fm_build_state *state, const fm_build_others *others,
                                           const fm_generation *base, fm_arena *arena,
                                           fm_error *reterr);

/* Counts the chains that came and went. */
void fm_build_count_change(const fm_generation *base, const fm_generation *generation,
                           fm_build_report *report);

/* Sorts results by name. A name may occur twice (a chain's and a whole structure's); the first
 * stays. */
void fm_build_sort_results(fm_build_state *state);

/* Makes the generation after `base` from the results, whose blobs are all known and sealed, and
 * publishes it unless it is the same; a first record of datasets alone is no reason to.
 * FM_ERR_DATA when there is no chain. Call it while no thread runs. */
FM_MUST_USE fm_status fm_build_publish(fm_build_state *state, const fm_generation *base,
                                       fm_arena *arena, fm_generation *ret_generation,
                                       bool *ret_published, fm_error *reterr);

/* Runs options->n_job workers and the writer until they end, and reports progress. */
FM_MUST_USE fm_status fm_build_run_threads(fm_build_state *state, fm_error *reterr);

/* Seconds since fm_build_state_init. */
double fm_build_seconds(const fm_build_state *state);

/* Counts and lists the sorted results in a report. */
FM_MUST_USE fm_status fm_build_report_results(const fm_build_state *state, fm_arena *arena,
                                              fm_build_report *report, fm_error *reterr);

/* Counts the content of the generation in a report. */
void fm_build_report_generation(const fm_generation *generation, fm_build_report *report);

/* Thread functions; the argument is the fm_build_state. */
void *fm_build_writer(void *context);
void *fm_build_worker(void *context);

#endif
