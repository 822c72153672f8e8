/* nccl_watch.h: a thread that ends exchanges between GPUs that would not end by themselves.
 *
 * NCCL waits without a limit for a rank that has ended or was stopped, and for a GPU or a link that
 * hangs. Who waits for such a stream waits, too. So the thread looks, several times a second,
 * whether the run is over, whether NCCL reports an error, and whether an exchange has begun and not
 * ended for too long. Then it aborts all communicators. What is queued runs to its end with wrong
 * results, and fm_nccl_watch_check says why. Nothing here needs CUDA. */
#ifndef FM_TRAINER_NCCL_WATCH_H
#define FM_TRAINER_NCCL_WATCH_H

#ifdef __cplusplus
extern "C" {
#endif

#include "trainer/dist/nccl.h"

#include <stdbool.h>

enum {
    FM_NCCL_WATCH_GROUPS = 4,        /* at most */
    FM_NCCL_WATCH_GROUP_BYTES = 100, /* of the words for a group */
};

/* How many exchanges of a group have begun on the device and how many have ended there; `name` of
 * the last one that has begun. The numbers may wrap around. */
typedef struct fm_nccl_beat {
    uint32_t begun, ended;
    const char *name;
} fm_nccl_beat;

typedef struct fm_nccl_watch_options {
    const fm_nccl *nccl; /* NULL: there are no communicators */
    double wait_s;       /* an exchange may last so long */
    /* What follows is called by the thread, with `context`. */
    fm_nccl_beat (*look)(void *context, int32_t group);
    const char *(*reason)(void *context);        /* why the run is over; NULL while it is not */
    void (*end)(void *context, const char *why); /* ends the run for all ranks of the host */
    void (*stop)(void *context);                 /* ends other waits; called once */
    void *context;
} fm_nccl_watch_options;

typedef struct fm_nccl_watch fm_nccl_watch;

/* Starts the thread. The library and the context must outlive it. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_nccl_watch_start(const fm_nccl_watch_options *options,
                                          fm_nccl_watch **ret_watch, fm_error *reterr);
/* Ends the thread, and aborts the communicators that are left. NULL is allowed. */
void fm_nccl_watch_stop(fm_nccl_watch *watch);

/* Gives a communicator to the thread, which aborts it in the end. Groups are numbered in this
 * order, from 0. `what` names the group in messages: "ranks 0, 8 and 16". */
void fm_nccl_watch_add(fm_nccl_watch *watch, void *comm, const char *what);

/* Every use of a communicator is between these two. Returns false where all are aborted, so that
 * none may be used and `leave` is not called. */
bool fm_nccl_watch_enter(fm_nccl_watch *watch);
void fm_nccl_watch_leave(fm_nccl_watch *watch);
/* Whether the communicators are aborted or about to be, so that errors of NCCL say nothing. */
bool fm_nccl_watch_is_over(const fm_nccl_watch *watch);

/* FM_ERR_CLOSED with the reason why exchanges were ended, if they were. Does not wait. */
FM_MUST_USE fm_status fm_nccl_watch_check(const fm_nccl_watch *watch, fm_error *reterr);

#ifdef __cplusplus
}
#endif

#endif
