/* train_work.h: what the kinds of work offer to a run. A kind of work is the source of a run's
 * samples and the network that computes them: chains of a server for AlphaFold2, complexes of a
 * server or stored ones for AlphaFold 3. */
#ifndef FM_TRAINER_TRAIN_WORK_H
#define FM_TRAINER_TRAIN_WORK_H

#include "trainer/app/train/batch_sums.h"
#include "trainer/backend/kernels.h"
#include "trainer/step/step.h"

typedef struct fm_train_run fm_train_run;

/* The sample that a rank has taken for the next round. */
typedef struct fm_train_next {
    bool is_taken;
    uint64_t index, bytes; /* bytes: as it was sent */
} fm_train_next;

/* What a rank knows about that sample. */
typedef struct fm_train_seen {
    const char *name; /* as fm_train_sample's */
    uint32_t n_cycle;
    bool is_bad; /* it cannot be used, but the run can continue without it */
} fm_train_seen;

/* What the rounds of several ranks need of a kind of work (train_rounds.h). The work holds the next
 * sample and those in flight; `number` is that of a flight in the queue. */
typedef struct fm_train_round_work {
    /* Samples are queued behind each other, the last of a step with its update. Else each is
     * computed when it is collected, at once, and fm_train_work.update makes all updates. */
    bool is_queued;
    /* Takes the next sample, for `slot` of the step being queued: sample `wanted`, or the one that
     * comes first (FM_FEED_ANY), unless none comes soon. *ret_is_lost: the error is that of a lost
     * server, to which all ranks connect again. */
    fm_status (*take_next)(fm_train_run *run, uint32_t slot, uint64_t wanted,
                           fm_train_next *ret_next, bool *ret_is_lost, fm_error *reterr);
    /* Looks at the next sample. An error with is_bad is that of the sample. */
    fm_status (*check_next)(fm_train_run *run, uint32_t slot, fm_train_seen *ret_seen,
                            fm_error *reterr);
    void (*drop_next)(fm_train_run *run);
    /* Begins again where the run is, after a lost server; no sample is taken or in flight. */
    fm_status (*reconnect)(fm_train_run *run, fm_error *reterr);
    /* Queues the next sample, which is the flight's from then on. */
    fm_status (*queue_next)(fm_train_run *run, uint64_t number, bool updates, fm_error *reterr);
    /* Queues a flight again that was behind a bad sample. */
    fm_status (*requeue)(fm_train_run *run, uint64_t number, bool updates, fm_error *reterr);
    /* Waits for the oldest sample. FM_ERR_DATA: it is bad; nothing of it counts. */
    fm_status (*collect)(fm_train_run *run, fm_sample_result *ret_result, fm_error *reterr);
    void (*release)(fm_train_run *run, uint64_t number);
    /* Whether the samples of the step being queued are scored; NULL: none ever is. The second adds
     * the scores of the sample that was collected last to the sums. */
    bool (*is_scored)(const fm_train_run *run);
    fm_status (*add_scores)(fm_train_run *run, uint64_t number, fm_batch_sums *sums,
                            fm_error *reterr);
    /* The exchanges of a step as a number; as fm_schedule_digest. */
    uint64_t (*digest)(const fm_train_run *run, bool joint);
} fm_train_round_work;

typedef struct fm_train_work {
    int n_term;                      /* loss terms; a sample's results have them in this order */
    const char *(*term_name)(int i); /* in metrics */
    int lddt_term; /* the term that is 1 minus an lDDT, which metrics have as `lddt`; -1: none */
    /* Checks settings, before anything is opened. FM_ERR_USAGE. */
    fm_status (*check)(const fm_train_run *run, fm_error *reterr);
    /* Finds the source of samples, before other ranks are started. is_rank: this process is one. */
    fm_status (*find)(fm_train_run *run, bool is_rank, fm_error *reterr);
    /* Creates the trainer, and sets run->optimizer and run->terms. */
    fm_status (*create)(fm_train_run *run, const fm_kernels *kernels, fm_error *reterr);
    /* Opens the samples, once the state is loaded, and begins the order. */
    fm_status (*open)(fm_train_run *run, fm_error *reterr);
    /* Starts evaluation, once the outputs are open. */
    fm_status (*start)(fm_train_run *run, fm_error *reterr);
    /* Does what was due after the step of the checkpoint and is not done, on all ranks together,
     * before the first step. NULL if nothing may be left. */
    fm_status (*make_up)(fm_train_run *run, fm_error *reterr);
    /* Of a single rank: queues, computes or skips one sample. */
    fm_status (*advance)(fm_train_run *run, fm_error *reterr);
    /* Of a single rank: collects the oldest sample in flight. NULL if none ever is. */
    fm_status (*collect)(fm_train_run *run, fm_error *reterr);
    /* Makes the update with the samples that have been collected, n of them over all groups of
     * ranks. On an error nothing was updated, and the state is torn. */
    fm_status (*update)(fm_train_run *run, uint32_t n, fm_error *reterr);
    /* Does what is due after a reported step, on all ranks together. NULL if nothing is due.
     * FM_ERR_CANCELLED: it was given up on a signal that all ranks have heard. */
    fm_status (*finish)(fm_train_run *run, fm_error *reterr);
    /* Writes what `finish` left for the disk to take, on the first rank. NULL if it leaves nothing.
     * FM_ERR_IO, FM_ERR_NOMEM: it waits on. */
    fm_status (*sync)(fm_train_run *run, fm_error *reterr);
    int64_t (*memory_bytes)(const fm_train_run *run);
    void (*describe)(const fm_train_run *run, char *out, size_t out_bytes); /* the model */
    void (*announce)(const fm_train_run *run);  /* prints where samples come from */
    void (*summarize)(const fm_train_run *run); /* prints what they were */
    void (*stop)(fm_train_run *run);            /* ends it, however far it came */
    fm_train_round_work rounds;
} fm_train_work;

#endif
