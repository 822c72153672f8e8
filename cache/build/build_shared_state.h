/* build_shared_state.h: what the threads of a shared build share beside build_state.h, whose lock
 * guards it. For cache/build_shared*.c only. */
#ifndef FM_CACHE_BUILD_SHARED_STATE_H
#define FM_CACHE_BUILD_SHARED_STATE_H

#include "cache/build/build_items.h"
#include "cache/build/build_shared.h"
#include "cache/build/build_state.h"

#define FM_BUILD_NO_SHARD UINT32_MAX

typedef enum fm_shared_stage {
    FM_SHARED_HELD,    /* claimed, no worker has it yet */
    FM_SHARED_WORKING, /* a worker has it */
    FM_SHARED_MADE,    /* its parts and its note are on the way into a shard */
    FM_SHARED_FAILED,  /* refused, or it could not be read: to be told */
    FM_SHARED_UNDONE,  /* the job ended under it: to be given back */
    FM_SHARED_DONE,    /* the catalogue has taken it */
    FM_SHARED_REFUSED, /* the catalogue has taken its failure, which was final */
    FM_SHARED_VOID,    /* given back, failed for now, or somebody else's by now */
} fm_shared_stage;

/* A claim of this worker's. Positions are stable; an item that is claimed again has a new one. */
typedef struct fm_shared_item {
    fm_catalogue_lease lease;
    uint32_t entry; /* of the list */
    fm_shared_stage stage;
    char *reason; /* heap: FAILED, why */
    bool final;
    uint32_t n_chain;
    uint32_t note_shard;             /* MADE: where its note lies; FM_BUILD_NO_SHARD = not yet */
    uint32_t first_result, n_result; /* of state->result, those of its task; [first, first + n) */
    uint32_t checked_at;             /* number of shards when it was last looked at */
} fm_shared_item;

/* What a worker takes at a time; in the queue, and while it is at work. */
typedef struct fm_shared_task {
    struct fm_shared_task *next;
    fm_build_task task;
    uint32_t n_item;
    uint32_t *item;         /* [n_item] positions; parallel to the chains, singles last */
    fm_source_chain *chain; /* [n_item] */
} fm_shared_task;

typedef struct fm_shared_build {
    fm_build_state state;
    const fm_build_share *share;
    fm_build_items items;
    fm_build_feed feed;
    pthread_cond_t wake; /* for the thread that talks to the catalogue; CLOCK_MONOTONIC */

    fm_shared_item *item;
    uint32_t n_item, max_item;
    uint32_t first_open;          /* items before this one are closed */
    fm_hash_map item_of;          /* key of a note -> position */
    fm_shared_task *first;        /* queue to the workers */
    fm_shared_task *working;      /* those that workers have */
    uint32_t n_queued, n_working; /* items */
    bool finished;                /* there will be no more */
    bool workers_gone;

    /* Of the talking thread alone. */
    fm_catalogue *catalogue;
    bool *recorded; /* [max_recorded] shards that the catalogue knows */
    uint32_t max_recorded;
    uint32_t suspect; /* position of an item that failed before and is done alone; or NO_ITEM */
    uint32_t claim_size;
    bool is_dry; /* the last claim came to nothing */
    int64_t next_heartbeat_ms, next_claim_ms, next_look_ms, retry_at_ms;
    uint32_t retry_pause_ms;
    fm_build_share_report report;
} fm_shared_build;

/* The feed: what workers and the writer call. */
void fm_shared_feed_init(fm_shared_build *self);

/* Puts claims [first, n_item) into the queue, chains of one structure together. Lock held. False
 * when memory ran out. */
bool fm_shared_enqueue(fm_shared_build *self, uint32_t first);
void fm_shared_free_tasks(fm_shared_task *task);

static inline bool fm_shared_is_open(const fm_shared_item *item) {
    return item->stage <= FM_SHARED_UNDONE;
}

/* With fewer items in the queue, more are wanted: they must last until a claim is answered. */
static inline uint32_t fm_shared_low_water(const fm_shared_build *self) {
    return self->state.options->n_job + self->claim_size / 2;
}

/* The thread that talks to the catalogue; the argument is the fm_shared_build. */
void *fm_shared_talk(void *context);

#endif
