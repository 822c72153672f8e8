/* catalogue.h: who builds what: the items of a job, leased to workers that share it, and the shards
 * that came of it.
 *
 *     pending --claim--> leased --complete--> done
 *        ^                 |
 *        |   fail, or the lease ran out: later again, at most `max_failures` times
 *        +-----------------+--------------------> quarantined, with the reason
 *
 * An item is one thing to build, named by its chain; what it is made of is summed up in a hash. A
 * claim hands it to one worker for a time (the lease), which the worker extends (the heartbeat).
 * Every claim gives the item its next attempt number, and that number is the fencing token: only
 * the newest attempt can complete, fail or extend, so that a worker that was stopped or cut off
 * past its lease publishes nothing that another has been given meanwhile.
 *
 * The catalogue coordinates; sealed shards and manifests are the truth, and a catalogue can be made
 * anew from them (catalogue_rebuild.h). Two implementations behind one struct of functions: a file
 * for the processes of one machine (embedded, LMDB), and PostgreSQL for many machines. docs: see
 * docs/catalogue.md.
 *
 * One thread at a time. Calls block, each for at most about options.patience_ms, so they are made
 * on a thread that nothing else waits for. FM_ERR_CLOSED, from any of them: the connection is lost
 * and nothing is known of the call; the next call connects again. All of them may be repeated. */
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
    FM_CATALOGUE_REASON_BYTES = 4096, /* of a reason, terminator included; more is cut off */
    FM_CATALOGUE_JOB_BYTES = 64,      /* of a job's name, terminator included */
};

typedef enum fm_catalogue_state {
    FM_CATALOGUE_PENDING,
    FM_CATALOGUE_LEASED,
    FM_CATALOGUE_DONE,
    FM_CATALOGUE_REFUSED,
    FM_N_CATALOGUE_STATE
} fm_catalogue_state;

/* "pending", "leased", "done", "quarantined". */
const char *fm_catalogue_state_name(fm_catalogue_state state);

typedef struct fm_catalogue_options {
    const char *job;       /* name; NULL = "build" */
    const char *worker;    /* name of who claims, unique among all; NULL = only looks */
    const char *cache;     /* folder below which the worker's shards are published; with worker */
    uint32_t lease_ms;     /* 0 = FM_CATALOGUE_LEASE_MS */
    uint32_t backoff_ms;   /* pause after the first failure, doubled by each other one; 0 =
                              FM_CATALOGUE_BACKOFF_MS */
    uint32_t max_failures; /* 0 = FM_CATALOGUE_FAILURES_MAX */
    uint32_t patience_ms;  /* for an answer; 0 = FM_CATALOGUE_PATIENCE_MS */
    bool is_there;         /* a file that is not there is FM_ERR_NOT_FOUND, and not made */
} fm_catalogue_options;

/* Something to build. */
typedef struct fm_catalogue_entry {
    const char *name; /* 1..FM_LIMIT_NAME_BYTES bytes */
    fm_sha256 source; /* of where its inputs lie: another one means another item */
} fm_catalogue_entry;

typedef struct fm_catalogue_listing {
    fm_sha256 options; /* of what is made of every item: stages, modes */
    uint32_t n;
    const fm_catalogue_entry *entry; /* [n] sorted by name, none twice; claimed in this order */
} fm_catalogue_listing;

typedef enum fm_catalogue_mode {
    FM_CATALOGUE_JOIN,  /* the job's list must be this one */
    FM_CATALOGUE_RENEW, /* it becomes this one; what is done and is listed as before stays done */
    FM_CATALOGUE_AGAIN, /* it becomes this one, all pending */
} fm_catalogue_mode;

typedef struct fm_catalogue_lease {
    uint64_t id;      /* of the item */
    uint32_t attempt; /* the fencing token; >= 1 */
} fm_catalogue_lease;

typedef struct fm_catalogue_claim {
    fm_catalogue_lease lease;
    uint32_t failures; /* so far; one that failed twice comes alone */
    char name[FM_LIMIT_NAME_BYTES + 1];
} fm_catalogue_claim;

typedef struct fm_catalogue_completion {
    fm_catalogue_lease lease;
    fm_sha256 shard;  /* where the item's note lies (item_note.h); recorded before */
    uint32_t n_chain; /* that came of it */
} fm_catalogue_completion;

/* A sealed shard and where it can be had. */
typedef struct fm_catalogue_shard {
    fm_shard_info info;
    const char *worker; /* who wrote or published it */
    const char *cache;  /* folder of a cache that has it, on that worker's machine */
} fm_catalogue_shard;

/* An item as it stands. */
typedef struct fm_catalogue_row {
    const char *name;
    fm_sha256 source;
    fm_catalogue_state state;
    uint32_t attempt, failures, n_chain;
    int64_t due_ms;     /* from now: of a lease's end, or until a pending item may be claimed */
    const char *worker; /* who has or had it; "" = nobody yet */
    const char *reason; /* of the last failure; "" = none */
    bool has_shard;
    fm_sha256 shard;
} fm_catalogue_row;

typedef struct fm_catalogue_counts {
    uint32_t n[FM_N_CATALOGUE_STATE];
    uint32_t n_lapsed; /* of the leased: past their end */
    uint32_t n_shard;
    uint64_t shard_bytes;
    int64_t next_due_ms; /* from now until something can be claimed; INT64_MAX = never */
} fm_catalogue_counts;

typedef struct fm_catalogue_worker {
    const char *name, *cache;
    int64_t seen_ms; /* ago: its last claim, heartbeat or completion */
    uint32_t n_leased, n_done;
} fm_catalogue_worker;

/* Called for each of a list, which is borrowed for the call; a status ends the list. */
typedef fm_status (*fm_catalogue_see_row)(void *context, const fm_catalogue_row *row,
                                          fm_error *reterr);
typedef fm_status (*fm_catalogue_see_shard)(void *context, const fm_catalogue_shard *shard,
                                            fm_error *reterr);
typedef fm_status (*fm_catalogue_see_worker)(void *context, const fm_catalogue_worker *worker,
                                             fm_error *reterr);

/* What an implementation does. Use the functions below. */
typedef struct fm_catalogue fm_catalogue;
struct fm_catalogue {
    const char *where; /* as opened, without a password; owned */
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

/* Is it the address of a PostgreSQL database ("postgresql://..." or "postgres://...")? */
bool fm_catalogue_is_postgresql(const char *where);

/* Opens the catalogue at `where`: an address of PostgreSQL, whose schema must be the newest known
 * (FM_ERR_UNSUPPORTED says what to do), or the path of a file, which is made when it is not there.
 * FM_ERR_CLOSED when the server cannot be reached, FM_ERR_UNSUPPORTED for a file on a network file
 * system, or for PostgreSQL where foldmill was built without libpq. */
FM_MUST_USE fm_status fm_catalogue_open(const char *where, const fm_catalogue_options *options,
                                        fm_catalogue **ret_catalogue, fm_error *reterr);
/* NULL is fine. Leases that are held stay until they run out. */
void fm_catalogue_close(fm_catalogue *catalogue);

/* Begins the job, or joins it. With the same list again, nothing changes. FM_ERR_EXISTS in mode
 * JOIN when the job has another list or other options. */
FM_MUST_USE fm_status fm_catalogue_begin(fm_catalogue *catalogue,
                                         const fm_catalogue_listing *listing,
                                         fm_catalogue_mode mode, fm_error *reterr);

/* Leases up to `max` items that are due into ret_claim[max], oldest first. *ret_n = 0: none is due
 * now. Items whose lease ran out `max_failures` times are put into quarantine on the way.
 * FM_ERR_NOT_FOUND when there is no such job. */
FM_MUST_USE fm_status fm_catalogue_claim_items(fm_catalogue *catalogue, uint32_t max,
                                               fm_catalogue_claim *ret_claim, uint32_t *ret_n,
                                               fm_error *reterr);

/* Extends leases. ret_held[i]: false when lease i is not the newest attempt any more. */
FM_MUST_USE fm_status fm_catalogue_heartbeat(fm_catalogue *catalogue, uint32_t n,
                                             const fm_catalogue_lease *lease, bool *ret_held,
                                             fm_error *reterr);

/* Records a sealed shard; one that is there stays. worker and cache NULL = the options'. */
FM_MUST_USE fm_status fm_catalogue_add_shard(fm_catalogue *catalogue,
                                             const fm_catalogue_shard *shard, fm_error *reterr);

/* Items are done. ret_taken[i]: false when attempt i is not the newest, which is then void; true
 * also when this attempt had completed before. */
FM_MUST_USE fm_status fm_catalogue_complete(fm_catalogue *catalogue, uint32_t n,
                                            const fm_catalogue_completion *completion,
                                            bool *ret_taken, fm_error *reterr);

/* An attempt failed. Due again after a pause, or, when `final` or for the max_failures-th time, in
 * quarantine. `reason`: one line; what is no UTF-8 in it becomes '?'. */
FM_MUST_USE fm_status fm_catalogue_fail(fm_catalogue *catalogue, const fm_catalogue_lease *lease,
                                        const char *reason, bool final, bool *ret_taken,
                                        fm_error *reterr);

/* Gives leases back unused: due at once, no failure. Those that are not held are left alone. */
FM_MUST_USE fm_status fm_catalogue_release(fm_catalogue *catalogue, uint32_t n,
                                           const fm_catalogue_lease *lease, fm_error *reterr);

/* Puts items down as they are known to be from shards and manifests (name, source, state, attempt,
 * n_chain, reason, shard); the job is made when it is not there. An item that is there with the
 * same attempt or a newer one stays. The next `begin` in any mode brings the list. */
FM_MUST_USE fm_status fm_catalogue_restore(fm_catalogue *catalogue, const fm_sha256 *options,
                                           const fm_catalogue_row *row, uint32_t n,
                                           fm_error *reterr);

/* How many items are pending or leased, and in how many ms one can be claimed (>= 0; INT64_MAX =
 * never). Cheap when few are left. */
FM_MUST_USE fm_status fm_catalogue_left(fm_catalogue *catalogue, uint32_t *ret_n,
                                        int64_t *ret_next_due_ms, fm_error *reterr);
FM_MUST_USE fm_status fm_catalogue_count(fm_catalogue *catalogue, fm_catalogue_counts *ret_counts,
                                         fm_error *reterr);
/* Items in one of `states` (bits 1 << state), sorted by name (bytes). */
FM_MUST_USE fm_status fm_catalogue_each_row(fm_catalogue *catalogue, unsigned states,
                                            fm_catalogue_see_row see, void *context,
                                            fm_error *reterr);
/* The job's shards, sorted by hash; workers, sorted by name. */
FM_MUST_USE fm_status fm_catalogue_each_shard(fm_catalogue *catalogue, fm_catalogue_see_shard see,
                                              void *context, fm_error *reterr);
FM_MUST_USE fm_status fm_catalogue_each_worker(fm_catalogue *catalogue, fm_catalogue_see_worker see,
                                               void *context, fm_error *reterr);

/* Brings the schema of the PostgreSQL database at `where` up to date. ret_n_applied: migrations
 * that were not there. Several may do so at once. FM_ERR_CORRUPT when a migration that was applied
 * is not the one foldmill knows by that number. */
FM_MUST_USE fm_status fm_catalogue_migrate(const char *where, uint32_t patience_ms,
                                           uint32_t *ret_n_applied, uint32_t *ret_n_known,
                                           fm_error *reterr);

#endif
