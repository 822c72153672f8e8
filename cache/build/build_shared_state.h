/* build_shared_state.h: the state that the threads of a shared build share in addition to
 * build_state.h, whose lock guards it.
 *
 * The stages of an item. A claim makes it HELD. A worker takes it (WORKING) and leaves it MADE,
 * FAILED or UNDONE. The talking thread then reports it to the catalogue and leaves it DONE, REFUSED
 * or VOID. An item is open until then, and its lease is extended. */
#ifndef FM_CACHE_BUILD_SHARED_STATE_H
#define FM_CACHE_BUILD_SHARED_STATE_H

#include "cache/build/build_items.h"
#include "cache/build/build_shared.h"
#include "cache/build/build_state.h"

#define FM_BUILD_NO_SHARD UINT32_MAX

typedef enum fm_shared_stage {
    FM_SHARED_HELD,    /* claimed, and in the queue */
    FM_SHARED_WORKING, /* a worker has it */
    FM_SHARED_MADE,    /* its parts and its note are on the way into a shard */
    FM_SHARED_FAILED,  /* refused, or not readable this time; the catalogue must be told */
    FM_SHARED_UNDONE,  /* the job ended before it was done; must be returned */
    FM_SHARED_DONE,    /* the catalogue has taken it */
    FM_SHARED_REFUSED, /* the catalogue has taken its final failure */
    FM_SHARED_VOID,    /* returned, failed for now, or claimed by another worker */
} fm_shared_stage;

/* One claim of this worker. Positions stay valid; an item that is claimed again gets a new one. */
typedef struct fm_shared_item {
    fm_catalogue_lease lease;
    uint32_t entry;    /* position in the list */
    uint32_t failures; /* before this claim */
    fm_shared_stage stage;
    char *reason; /* heap; reason of FAILED */
    bool final;
    uint32_t n_chain;
    /* MADE: shard of its note; FM_BUILD_NO_SHARD = not sealed yet. */
    uint32_t note_shard;
    uint32_t first_result, n_result; /* results of its task: state->result[first, first + n) */
    uint32_t checked_at;             /* number of shards when it was last checked */
} fm_shared_item;

/* A task in the queue, or at work. */
typedef struct fm_shared_task {
    struct fm_shared_task *next;
    fm_build_task task;
    uint32_t n_item;
    uint32_t
        *item; /* positions, as in `task`: [n_item], or the one of a structure again and again */
    fm_source_chain *chain; /* those of the items; unused where a structure is one item */
} fm_shared_task;

typedef struct fm_shared_build {
    fm_build_state state;
    const fm_build_share *share;
    fm_build_items items;
    fm_build_feed feed;
    pthread_cond_t wake; /* wakes the talking thread; CLOCK_MONOTONIC */

    fm_shared_item *item;
    uint32_t n_item, max_item;
    uint32_t first_open;          /* items before this one are not open */
    fm_hash_map item_of;          /* key of an item's note -> position */
    fm_shared_task *first;        /* queue to the workers */
    fm_shared_task *working;      /* tasks that workers have */
    uint32_t n_queued, n_working; /* counted in items */
    bool finished;                /* no further tasks */
    bool workers_gone;

    /* Used by the talking thread alone: */
    fm_catalogue *catalogue;
    bool *recorded; /* [max_recorded] shards that the catalogue knows */
    uint32_t max_recorded;
    /* Position of an item that failed before and is done alone; or FM_BUILD_NO_ITEM. */
    uint32_t suspect;
    uint32_t claim_size;
    bool is_dry; /* the last claim got nothing */
    int64_t next_heartbeat_ms, next_claim_ms, next_look_ms, retry_at_ms;
    uint32_t retry_pause_ms;
    fm_build_share_report report;
} fm_shared_build;

/* Sets up the feed that workers and the writer call. */
void fm_shared_feed_init(fm_shared_build *self);

/* Puts claims [first, n_item) into the queue, the chains of one structure as one task. Lock held.
 * False when memory ran out. */
bool fm_shared_enqueue(fm_shared_build *self, uint32_t first);
void fm_shared_free_tasks(fm_shared_task *task);

static inline bool fm_shared_is_open(const fm_shared_item *item) {
    return item->stage <= FM_SHARED_UNDONE;
}

/* With fewer items in the queue, more are claimed: they must last until a claim is answered. */
static inline uint32_t fm_shared_low_water(const fm_shared_build *self) {
    return self->state.options->n_job + self->claim_size / 2;
}

/* The talking thread; the argument is the fm_shared_build. */
void *fm_shared_talk(void *context);

#endif
