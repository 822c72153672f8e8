/* train_run.h: a run of `foldmill train` in progress: its settings, its state, and pointers to its
 * parts. Each part has a header, and only its own file knows what is in it. A part calls those
 * before it in this list, and the kind of work through the table of train_work.h:
 *
 *     train_order.h      which sample is used where
 *     train_step.h       the end of a step: metrics, progress, divergence
 *     train_skip.h       bad samples
 *     train_queue.h      the samples in flight
 *     train_scores.h     the evaluator
 *     train_save.h       checkpoints
 *     train_rounds.h     the rounds of several ranks
 *     train_feed.h       the server of samples
 *     train_held_out.h   the held-out samples of AlphaFold 3
 *     train_af3.h        AlphaFold 3's network and its evaluations
 *     train_stream.h     AlphaFold2's work: samples of chains from a server
 *     train_complexes.h  AlphaFold 3's work: samples of complexes from a server
 *     train_stored.h     AlphaFold 3's work: stored samples
 *     train.h            leads a run from its command line to its end */
#ifndef FM_TRAINER_TRAIN_RUN_H
#define FM_TRAINER_TRAIN_RUN_H

#include "proto/base/histogram.h"
#include "trainer/app/common/folder_lock.h"
#include "trainer/app/ranks/ranks.h"
#include "trainer/app/settings/train_config.h"
#include "trainer/app/train/resume.h"
#include "trainer/app/train/start_phases.h"
#include "trainer/app/train/train_options.h"
#include "trainer/app/train/train_queue.h"
#include "trainer/app/train/train_work.h"

enum { FM_TRAIN_ADVICE_BYTES = 1024 };

/* A sample and the place where it is used: samples `slot` of the step after `step` steps. */
typedef struct fm_train_sample {
    uint64_t step;
    uint32_t slot;
    uint64_t index;
    const char *name; /* its chain, "" where that is not known */
} fm_train_sample;

typedef struct fm_train_order fm_train_order;
typedef struct fm_train_steps fm_train_steps;
typedef struct fm_train_saves fm_train_saves;
typedef struct fm_train_scores fm_train_scores;
typedef struct fm_train_rounds fm_train_rounds;
typedef struct fm_train_af3 fm_train_af3;
typedef struct fm_train_stream fm_train_stream;
typedef struct fm_train_complexes fm_train_complexes;
typedef struct fm_train_stored fm_train_stored;

struct fm_train_run {
    const fm_train_options *set;
    fm_train_config config;
    char identity[FM_IDENTITY_BYTES];
    const fm_train_work *work;
    fm_layout layout;
    fm_ranks *ranks;         /* NULL: this process is the only one */
    fm_optimizer *optimizer; /* of the trainer, which the work owns, with its parameters */
    unsigned terms;          /* bit i: the model has loss term i */
    fm_folder_lock lock;     /* of the folder, which fm_train_folder finds */

    /* The clock of samples and steps. */
    fm_checkpoint_place first; /* where this process began */
    fm_train_state state;      /* at the last collected sample */
    bool is_torn;              /* state and trainer differ; no checkpoint may be made */
    /* Updates queued, and samples of the next one that are queued or done with. Equal to
     * state.place when nothing is in flight. */
    uint64_t queued_step;
    uint32_t slot;
    fm_train_queue queue;
    fm_start_phases start; /* up to the first step */
    uint64_t start_ns;     /* monotonic clock */

    bool is_cut_short;                  /* a signal has ended what was being done */
    char advice[FM_TRAIN_ADVICE_BYTES]; /* what to do about the error; "" = nothing known */

    /* The parts. */
    fm_train_order *order;
    fm_train_steps *steps;
    fm_train_saves *saves;
    fm_train_scores *scores;
    fm_train_rounds *rounds; /* of several ranks, else NULL */
    fm_train_af3 *af3;       /* of AlphaFold 3's works */
    fm_train_stream *stream; /* of one kind of work each, as the next two: */
    fm_train_complexes *complexes;
    fm_train_stored *stored;
};

/* Whether this process writes the outputs. */
static inline bool fm_train_is_first(const fm_train_run *run) {
    return !run->ranks || fm_ranks_rank(run->ranks) == 0;
}

/* The ranks of a group share a sample. */
static inline int32_t fm_train_ranks_per_group(const fm_train_run *run) {
    return run->layout.dap * run->layout.bp;
}

/* The group of this rank, below run->layout.dp. */
static inline int32_t fm_train_group(const fm_train_run *run) {
    return run->ranks ? fm_ranks_rank(run->ranks) / fm_train_ranks_per_group(run) : 0;
}

/* The path of the run's folder: of the one that this process locked, also when it was renamed. */
static inline const char *fm_train_folder(const fm_train_run *run) {
    return fm_folder_lock_path(run->set->out, &run->lock);
}

static inline double fm_train_seconds_since(uint64_t ns) {
    return (double)(fm_clock_ns() - ns) * 1e-9;
}

/* Ends a phase of the start. */
static inline void fm_train_end_phase(fm_train_run *run, fm_start_phase phase) {
    fm_start_phases_mark(&run->start, phase, fm_clock_ns());
}

#endif
