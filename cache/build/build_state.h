/* build_state.h: what the threads of a build share; for cache/build*.c only.
 *
 * One lock guards everything below it. Lists grow by doubling; positions in them are stable. */
#ifndef FM_CACHE_BUILD_STATE_H
#define FM_CACHE_BUILD_STATE_H

#include "cache/build/build.h"
#include "cache/store/generation.h"
#include "cache/build/hash_map.h"

#include <limits.h>
#include <pthread.h>

enum {
    FM_BUILD_NOTE_BYTES = 2 * FM_SHA256_BYTES, /* the longest value of a fixed size */
};

#define FM_BUILD_PENDING UINT32_MAX /* shard of a blob that is not sealed yet */

/* What the writer is to put: a blob or a note. */
typedef struct fm_build_packet {
    struct fm_build_packet *next;
    bool is_note;
    fm_sha256 hash;
    size_t size;
    uint8_t data[];
} fm_build_packet;

typedef struct fm_build_note {
    fm_sha256 key;
    uint8_t *value; /* heap */
    uint32_t value_bytes;
    bool used; /* by this run: goes into the generation */
} fm_build_note;

#define FM_BUILD_NO_ITEM UINT32_MAX

/* What a worker does at a time: chains of one structure. */
typedef struct fm_build_task {
    const fm_source_structure *structure;
    const fm_source_chain *chain; /* [n_chain] of it, to be made */
    uint32_t n_chain;
    bool singles;          /* also those chains of the structure that have no alignments */
    const uint32_t *item;  /* [n_chain + singles] who ordered them; NULL = nobody */
    uint32_t first_result; /* results before this one are not of this task */
} fm_build_task;

/* Where tasks come from when others work on the same job (build_shared.c). Called by workers,
 * without the lock. */
typedef struct fm_build_feed {
    void *context;
    /* Waits for a task; false when there will be none. What it points to lasts until `done`. */
    bool (*next)(void *context, fm_build_task *ret_task);
    /* All results of the task are there, and what they name has been pushed; or the job ends. */
    void (*done)(void *context, const fm_build_task *task);
    /* A note came to lie in shard `shard`. By the writer. */
    void (*note_sealed)(void *context, const fm_sha256 *key, uint32_t shard);
} fm_build_feed;

typedef struct fm_build_result {
    char *name;    /* heap */
    uint32_t item; /* who ordered it, or FM_BUILD_NO_ITEM */
    char *reason;  /* heap; NULL = made */
    fm_status status;
    bool reused;
    bool has[FM_N_PART];
    fm_sha256 part[FM_N_PART];
    bool has_key[FM_N_PART];
    fm_sha256 key[FM_N_PART]; /* the notes it was made under: structure, msa, hits; at the
                                 sequence: that of the list of chains, for single sequences */
    bool has_listed;
    fm_listed listed; /* what a list of the dataset says; its name is NULL */
    fm_sha256 *named; /* heap; [n_named] structure parts that the hits part names */
    uint32_t n_named;
} fm_build_result;

struct fm_build_templates;

typedef struct fm_build_state {
    const fm_source *source;
    struct fm_build_templates *templates; /* build_hits.h */
    const fm_build_options *options;
    const fm_build_feed *feed; /* NULL = every structure of the source, once */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* any of the below; CLOCK_MONOTONIC */

    fm_hash_map blob_of, note_of; /* -> position in blob, note */
    fm_blob_entry *blob;
    uint32_t n_blob, max_blob;
    fm_build_note *note;
    uint32_t n_note, max_note;
    fm_shard_info *shard;
    uint32_t n_shard, max_shard, n_base_shard; /* n_base_shard: of the generation before */

    fm_build_packet *first, **last; /* queue to the writer */
    size_t queued_bytes;
    bool no_more; /* workers are gone */
    bool flush;   /* seal when the queue is empty; the writer takes it back */

    fm_build_result *result;
    uint32_t n_result, max_result;
    uint32_t next_structure;
    uint32_t n_working; /* threads that have not ended */
    bool ending;        /* take no new chain: stopped or failed */
    fm_status failed;
    fm_error error;
    double begun; /* CLOCK_MONOTONIC seconds */
    fm_build_progress progress;
    uint64_t written_bytes;
    uint32_t n_without_hits, n_no_protein;
} fm_build_state;

/* Bytes of `eighths` eighths of a worker's memory: six for a chain, one for its structure's file,
 * one for that of a template. Address space; it becomes memory as it is touched. */
static inline size_t fm_build_worker_bytes(const fm_build_state *state, unsigned eighths) {
    uint64_t bytes = state->options->worker_bytes;
    return (size_t)((bytes ? bytes : (uint64_t)48 << 30) / 8 * eighths);
}

/* Makes room for one more element; false when memory ran out. */
FM_MUST_USE bool fm_build_grow(void **list, uint32_t n, uint32_t *max, size_t size);

/* Records the first error that ends the job and wakes everybody. Takes the lock. */
void fm_build_fail(fm_build_state *state, const fm_error *error);

/* True when no new chain may be begun. Takes the lock. */
bool fm_build_is_ending(fm_build_state *state);

/* Is this blob known? Takes the lock. */
bool fm_build_knows_blob(fm_build_state *state, const fm_sha256 *hash);
/* The same; if not it is now, and the caller must bring it. Takes the lock. */
bool fm_build_claim_blob(fm_build_state *state, const fm_sha256 *hash, fm_part_kind kind,
                         uint64_t decoded_bytes);
/* Hands bytes to the writer; waits while its queue is full. Takes the lock. */
void fm_build_push(fm_build_state *state, bool is_note, const fm_sha256 *hash, fm_bytes bytes);

/* Adds a note, as read from a shard or a generation (used = false) or as made now. Lock held. */
void fm_build_add_note(fm_build_state *state, const fm_sha256 *key, fm_bytes value, bool used);
/* Adds a blob with its place. Lock held. */
void fm_build_add_blob(fm_build_state *state, const fm_blob_entry *entry);

/* Copies the value of a note out and marks it used: true when it is there, has value_bytes and, as
 * a list of content hashes, names known blobs only. Takes the lock. */
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

/* Appends a result; name and reason (that of `refusal`, or the result's own) are copied, the list
 * of named parts is taken over. Takes the lock. */
void fm_build_add_result(fm_build_state *state, const char *name, const fm_build_result *result,
                         const fm_error *refusal);

/* Counts a chain whose alignments have no list of template hits. Takes the lock. */
void fm_build_count_without_hits(fm_build_state *state);

/* Of a zeroed or new state; fini frees what it holds. */
void fm_build_state_init(fm_build_state *state, const fm_source *source,
                         const fm_build_options *options);
void fm_build_state_fini(fm_build_state *state);

/* CACHE/name into out. FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_build_path(const char *cache, const char *name, char out[PATH_MAX],
                                    fm_error *reterr);

/* Fills blobs, notes and shards with what the cache has: the generation in force, into the arena
 * (number 0: there is none), and sealed shards that it does not name, which are hashed first. A
 * damaged one of those is left alone. No thread runs. */
FM_MUST_USE fm_status fm_build_take_known(fm_build_state *state, fm_arena *arena,
                                          fm_generation *ret_base, fm_error *reterr);

/* Adds what a sealed shard of the cache has; its hash is checked first. FM_ERR_CORRUPT, FM_ERR_IO.
 * No thread runs. */
FM_MUST_USE fm_status fm_build_take_shard(fm_build_state *state, const fm_sha256 *hash,
                                          fm_error *reterr);

/* Sorts results by name. A name may come twice (a chain's and a whole structure's): the first
 * stays. */
void fm_build_sort_results(fm_build_state *state);

/* Makes the generation after `base` of the results, whose blobs are all known and sealed, and puts
 * it in force, unless it is the same. FM_ERR_DATA when there is not one chain. No thread runs. */
FM_MUST_USE fm_status fm_build_publish(fm_build_state *state, const fm_generation *base,
                                       fm_arena *arena, fm_generation *ret_generation,
                                       bool *ret_published, fm_error *reterr);

/* Runs options->n_job workers and the writer to their end, telling progress. */
FM_MUST_USE fm_status fm_build_run_threads(fm_build_state *state, fm_error *reterr);

/* Since the state was initialised. */
double fm_build_seconds(const fm_build_state *state);

/* Counts and lists results, which are sorted, in a report. */
FM_MUST_USE fm_status fm_build_report_results(const fm_build_state *state, fm_arena *arena,
                                              fm_build_report *report, fm_error *reterr);

/* Counts what the generation holds. */
void fm_build_report_generation(const fm_generation *generation, fm_build_report *report);

/* Thread functions; the argument is the fm_build_state. */
void *fm_build_writer(void *context);
void *fm_build_worker(void *context);

#endif
