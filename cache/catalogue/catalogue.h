/* catalogue.h: coordinates workers that share one build job: which worker builds which item, and
 * which shards exist.
 *
 *     pending --claim--> leased --complete--> done
 *        ^                 |
 *        |   fail, or the lease ran out: later again, at most `max_failures` times
 *        +-----------------+--------------------> refused, with the reason
 *
 * An item is one thing to build, named by its chain; a hash sums up its inputs. A claim gives it to
 * one worker for a limited time, the lease, which the worker extends by heartbeats. Each claim
 * increments the item's attempt number, and that number is the fencing token: only the newest
 * attempt can complete, fail or extend. A worker that was stopped or cut off past its lease
 * therefore cannot publish an item that another worker has received meanwhile.
 *
 * The catalogue only coordinates. Sealed shards and manifests are the truth, and a catalogue can be
 * rebuilt from them (catalogue_rebuild.h). One struct of functions has two implementations: a file
 * for the processes of one machine (embedded, LMDB), and PostgreSQL for many machines.
 * docs/reference/catalogue.md.
 *
 * One thread at a time. Each call blocks for at most about options.patience_ms, so make calls on a
 * thread that nothing else waits for. Any call may return FM_ERR_CLOSED: the connection is lost,
 * and it is unknown whether the call took effect; the next call connects again. Every call may be
 * repeated. */
#ifndef FM_CACHE_CATALOGUE_H
#define FM_CACHE_CATALOGUE_H

#include "cache/store/shard.h"
#include "proto/limits.h"

enum {
    FM_CATALOGUE_LEASE_MS = 60000,
    FM_CATALOGUE_BACKOFF_MS = 1000,
    FM_CATALOGUE_BACKOFF_MAX_MS = 3600000,
    FM_CATALOGUE_FAILURES_MAX = 5,
    FM_CATALOGUE_PATIENCE_MS = 20000,
    FM_CATALOGUE_REASON_BYTES = 4096, /* size of a reason with its terminator; longer ones are
                                         cut */
    FM_CATALOGUE_JOB_BYTES = 64,      /* size of a job's name with its terminator */
};

typedef enum fm_catalogue_state {
    FM_CATALOGUE_PENDING,
    FM_CATALOGUE_LEASED,
    FM_CATALOGUE_DONE,
    FM_CATALOGUE_REFUSED,
    FM_N_CATALOGUE_STATE
} fm_catalogue_state;

/* "pending", "leased", "done", "refused". */
const char *fm_catalogue_state_name(fm_catalogue_state state);

typedef struct fm_catalogue_options {
    const char *job;       /* name of the job; NULL = "build" */
    const char *worker;    /* unique name of the worker that claims; NULL opens read-only */
    const char *cache;     /* cache folder with the worker's shards; required with `worker` */
    uint32_t lease_ms;     /* 0 = FM_CATALOGUE_LEASE_MS */
    uint32_t backoff_ms;   /* pause after the first failure, doubled by each further one; 0 =
                              FM_CATALOGUE_BACKOFF_MS */
    uint32_t max_failures; /* 0 = FM_CATALOGUE_FAILURES_MAX */
    uint32_t patience_ms;  /* longest wait for an answer; 0 = FM_CATALOGUE_PATIENCE_MS */
    bool is_there;         /* FM_ERR_NOT_FOUND for a missing file, instead of making it */
} fm_catalogue_options;

/* One item to build. */
typedef struct fm_catalogue_entry {
    const char *name; /* 1..FM_LIMIT_NAME_BYTES bytes */
    fm_sha256 source; /* hash of its inputs' places; another hash means another item */
} fm_catalogue_entry;

typedef struct fm_catalogue_listing {
    fm_sha256 options; /* hash of the options of all items: stages, modes */
    uint32_t n;
    const fm_catalogue_entry *entry; /* [n] sorted by name, no name twice; claims follow this
                                        order */
} fm_catalogue_listing;

typedef enum fm_catalogue_mode {
    FM_CATALOGUE_JOIN,  /* the job's list must equal this one */
    FM_CATALOGUE_RENEW, /* this list replaces the job's; unchanged items that are done stay done */
    FM_CATALOGUE_AGAIN, /* this list replaces the job's, and all items are pending */
} fm_catalogue_mode;

typedef struct fm_catalogue_lease {
    uint64_t id;      /* id of the item */
    uint32_t attempt; /* the fencing token; >= 1 */
} fm_catalogue_lease;

typedef struct fm_catalogue_claim {
    fm_catalogue_lease lease;
    uint32_t failures; /* failures so far; an item that failed twice is claimed alone */
    char name[FM_LIMIT_NAME_BYTES + 1];
} fm_catalogue_claim;

typedef struct fm_catalogue_completion {
    fm_catalogue_lease lease;
    fm_sha256 shard;  /* shard with the item's note (item_note.h); recorded before */
    uint32_t n_chain; /* chains made of the item */
} fm_catalogue_completion;

/* A sealed shard and a place where it is stored. */
typedef struct fm_catalogue_shard {
    fm_shard_info info;
    const char *worker; /* worker that wrote or published it */
    const char *cache;  /* cache folder that has it, on that worker's machine */
} fm_catalogue_shard;

/* The state of one item. */
typedef struct fm_catalogue_row {
    const char *name;
    fm_sha256 source;
    fm_catalogue_state state;
    uint32_t attempt, failures, n_chain;
    int64_t due_ms;     /* from now: end of the lease, or when a pending item may be claimed */
    const char *worker; /* worker that has or had it; "" = none yet */
    const char *reason; /* reason of the last failure or refusal; "" = none */
    bool has_shard;
    fm_sha256 shard;
} fm_catalogue_row;

typedef struct fm_catalogue_counts {
    uint32_t n[FM_N_CATALOGUE_STATE];
    uint32_t n_lapsed; /* leased items whose lease has ended */
    uint32_t n_shard;
    uint64_t shard_bytes;
    int64_t next_due_ms; /* time until an item can be claimed; INT64_MAX = never */
} fm_catalogue_counts;

typedef struct fm_catalogue_worker {
    const char *name, *cache;
    int64_t seen_ms; /* time since its last claim, heartbeat or completion */
    uint32_t n_leased, n_done;
} fm_catalogue_worker;

/* Called for each element of a list. The element is borrowed for the call; a status other than
 * FM_OK ends the list and is returned. */
typedef fm_status (*fm_catalogue_see_row)(void *context, const fm_catalogue_row *row,
                                          fm_error *reterr);
typedef fm_status (*fm_catalogue_see_shard)(void *context, const fm_catalogue_shard *shard,
                                            fm_error *reterr);
typedef fm_status (*fm_catalogue_see_worker)(void *context, const fm_catalogue_worker *worker,
                                             fm_error *reterr);

/* The functions of an implementation. Call the functions below instead. */
typedef struct fm_catalogue fm_catalogue;
struct fm_catalogue {
    const char *where; /* where it was opened, without a password; owned */
    fm_catalogue_options options;
    void (*close)(fm_catalogue *catalogue);
    fm_status (*begin)(fm_catalogue *catalogue, const fm_catalogue_listing *listing,
                       const fm_sha256 *listing_hash, fm_catalogue_mode mode, fm_error *reterr);
    fm_status (*claim)(fm_catalogue *catalogue, uint32_t max, fm_catalogue_claim *ret_claim,
                       uint32_t *ret_n, fm_error *reterr);
    fm_status (*heartbeat)(fm_catalogue *catalogue, uint32_t n, const fm_catalogue_lease *lease,
                           bool *ret_held, fm_error *reterr);
    fm_status (*add_shard)(fm_catalogue *catalogue, const fm_catalogue_shard *shard,
                           fm_error *reterr);
    fm_status (*complete)(fm_catalogue *catalogue, uint32_t n,
                          const fm_catalogue_completion *completion, bool *ret_taken,
                          fm_error *reterr);
    fm_status (*fail)(fm_catalogue *catalogue, const fm_catalogue_lease *lease, const char *reason,
                      bool final, bool *ret_taken, fm_error *reterr);
    fm_status (*release)(fm_catalogue *catalogue, uint32_t n, const fm_catalogue_lease *lease,
                         fm_error *reterr);
    fm_status (*restore)(fm_catalogue *catalogue, const fm_sha256 *options,
                         const fm_catalogue_row *row, uint32_t n, fm_error *reterr);
    fm_status (*left)(fm_catalogue *catalogue, uint32_t *ret_n, int64_t *ret_next_due_ms,
                      fm_error *reterr);
    fm_status (*count)(fm_catalogue *catalogue, fm_catalogue_counts *ret_counts, fm_error *reterr);
    fm_status (*each_row)(fm_catalogue *catalogue, unsigned states, fm_catalogue_see_row see,
                          void *context, fm_error *reterr);
    fm_status (*each_shard)(fm_catalogue *catalogue, fm_catalogue_see_shard see, void *context,
                            fm_error *reterr);
    fm_status (*each_worker)(fm_catalogue *catalogue, fm_catalogue_see_worker see, void *context,
                             fm_error *reterr);
};

/* Opens the catalogue at `where`: the address of a PostgreSQL database, or the path of a file,
 * which is made if needed. FM_ERR_CLOSED when the server cannot be reached; FM_ERR_UNSUPPORTED when
 * the database schema is not the newest known (the message names the remedy), the file is on a
 * network file system, or foldmill lacks libpq; FM_ERR_USAGE, FM_ERR_NOT_FOUND, FM_ERR_IO. */
FM_MUST_USE fm_status fm_catalogue_open(const char *where, const fm_catalogue_options *options,
                                        fm_catalogue **ret_catalogue, fm_error *reterr);
/* NULL is fine. Leases that are still held end by their time. */
void fm_catalogue_close(fm_catalogue *catalogue);

/* Begins the job, or joins it. The same list again changes nothing. FM_ERR_EXISTS in mode JOIN when
 * the job has another list or other options. */
FM_MUST_USE fm_status fm_catalogue_begin(fm_catalogue *catalogue,
                                         const fm_catalogue_listing *listing,
                                         fm_catalogue_mode mode, fm_error *reterr);

/* Leases up to `max` due items into ret_claim[max], the oldest first. *ret_n = 0: none is due now.
 * An item whose lease ran out `max_failures` times is refused on the way. FM_ERR_NOT_FOUND when
 * there is no such job. */
FM_MUST_USE fm_status fm_catalogue_claim_items(fm_catalogue *catalogue, uint32_t max,
                                               fm_catalogue_claim *ret_claim, uint32_t *ret_n,
                                               fm_error *reterr);

/* Extends leases. ret_held[i] = false when lease i is no longer the newest attempt. */
FM_MUST_USE fm_status fm_catalogue_heartbeat(fm_catalogue *catalogue, uint32_t n,
                                             const fm_catalogue_lease *lease, bool *ret_held,
                                             fm_error *reterr);

/* Records a sealed shard; a known one stays as it is. worker and cache NULL = those of the
 * options. */
FM_MUST_USE fm_status fm_catalogue_add_shard(fm_catalogue *catalogue,
                                             const fm_catalogue_shard *shard, fm_error *reterr);

/* Completes items. ret_taken[i] = false when attempt i is not the newest; its work is then void.
 * true also when this attempt was completed before. */
FM_MUST_USE fm_status fm_catalogue_complete(fm_catalogue *catalogue, uint32_t n,
                                            const fm_catalogue_completion *completion,
                                            bool *ret_taken, fm_error *reterr);

/* Reports a failed attempt. The item is due again after a pause; it is refused when `final`, or at
 * the max_failures-th failure. `reason` is one line; bytes that are not UTF-8 become '?'.
 * *ret_taken as above. */
FM_MUST_USE fm_status fm_catalogue_fail(fm_catalogue *catalogue, const fm_catalogue_lease *lease,
                                        const char *reason, bool final, bool *ret_taken,
                                        fm_error *reterr);

/* Gives leases back: the items are due at once, without a failure. Leases that are not held are
 * ignored. */
FM_MUST_USE fm_status fm_catalogue_release(fm_catalogue *catalogue, uint32_t n,
                                           const fm_catalogue_lease *lease, fm_error *reterr);

/* Records items as shards and manifests show them (name, source, state, attempt, n_chain, reason,
 * shard), and makes the job if needed. A known item with the same or a newer attempt stays. The
 * next `begin`, in any mode, brings the list. */
FM_MUST_USE fm_status fm_catalogue_restore(fm_catalogue *catalogue, const fm_sha256 *options,
                                           const fm_catalogue_row *row, uint32_t n,
                                           fm_error *reterr);

/* Counts the items that are pending or leased, and the time in ms until one can be claimed (>= 0;
 * INT64_MAX = never). Cheap when few are left. */
FM_MUST_USE fm_status fm_catalogue_left(fm_catalogue *catalogue, uint32_t *ret_n,
                                        int64_t *ret_next_due_ms, fm_error *reterr);
FM_MUST_USE fm_status fm_catalogue_count(fm_catalogue *catalogue, fm_catalogue_counts *ret_counts,
                                         fm_error *reterr);
/* Lists the items in any of `states` (bits 1 << state), sorted by name (bytes). */
FM_MUST_USE fm_status fm_catalogue_each_row(fm_catalogue *catalogue, unsigned states,
                                            fm_catalogue_see_row see, void *context,
                                            fm_error *reterr);
/* Lists the job's shards, sorted by hash, and its workers, sorted by name. */
FM_MUST_USE fm_status fm_catalogue_each_shard(fm_catalogue *catalogue, fm_catalogue_see_shard see,
                                              void *context, fm_error *reterr);
FM_MUST_USE fm_status fm_catalogue_each_worker(fm_catalogue *catalogue, fm_catalogue_see_worker see,
                                               void *context, fm_error *reterr);

/* Brings the schema of the PostgreSQL database at `where` up to date. *ret_n_applied = migrations
 * that were missing. Several processes may do so at the same time. FM_ERR_CORRUPT when an applied
 * migration differs from the known one with its number. */
FM_MUST_USE fm_status fm_catalogue_migrate(const char *where, uint32_t patience_ms,
                                           uint32_t *ret_n_applied, uint32_t *ret_n_known,
                                           fm_error *reterr);

#endif
