/* train_run.h: a run of `foldmill train` in progress, shared by the files that make it: train.c
 * (the loop over samples; start there), train_save.c (checkpoints), train_step.c (the end of a
 * step). */
#ifndef FM_TRAINER_TRAIN_RUN_H
#define FM_TRAINER_TRAIN_RUN_H

#include "trainer/app/divergence.h"
#include "trainer/app/feed.h"
#include "trainer/app/progress.h"
#include "trainer/app/resume.h"
#include "trainer/app/train_config.h"
#include "trainer/app/train_options.h"
#include "trainer/backend/fallback.h"
#include "trainer/metrics/event_file.h"
#include "trainer/metrics/metrics.h"
#include "trainer/step/team.h"

enum {
    FM_RUN_WINDOW = 10, /* steps at each end of a run whose mean loss is reported */
    FM_RUN_BACKLOG = FM_MOST_QUEUED + 1,
    FM_RUN_ADVICE_BYTES = 1024,
};

/* A sample that is queued and not yet collected. */
typedef struct fm_run_flight {
    fm_loaded loaded;
    fm_features features;
    uint64_t step; /* run->queued_step when it was queued */
    uint32_t slot; /* its position in the batch */
    bool is_last;  /* of its step */
    bool is_scored;
    double rate, wait_s;
} fm_run_flight;

/* A run in progress. */
typedef struct fm_train_run {
    const fm_train_options *set;
    fm_train_config config;
    char identity[FM_IDENTITY_BYTES];
    fm_team *team;
    fm_trainer *trainer; /* the first trainer of the team */
    fm_feed feed;
    fm_metrics *metrics;
    fm_event_file *events; /* NULL without --tensorboard */
    fm_progress progress;
    fm_run_flight flight[FM_MOST_QUEUED];
    uint64_t n_queued, n_collected;    /* samples */
    fm_loaded backlog[FM_RUN_BACKLOG]; /* samples to be queued before those of the feed */
    uint32_t n_backlog;
    fm_run_state state; /* at the last collected sample */
    /* Updates queued, and samples of the next one that are queued or done with. Equal to
     * state.place when nothing is in flight. */
    uint64_t queued_step;
    uint32_t slot;
    uint64_t done_ns;           /* the device's clock after the last collected step */
    uint64_t start_ns, data_ns; /* monotonic clock; data_ns: spent waiting for this sample */
    fm_checkpoint_place first;  /* where this process began */
    fm_checkpoint_place saved;  /* the newest checkpoint, where is_saved */
    bool is_saved, is_torn;     /* torn: state and trainer differ; no checkpoint may be made */
    uint64_t saved_ns,
        failed_ns; /* when a checkpoint was made, or could not be; 0 = the last was */
    fm_divergence divergence;
    bool is_diverging;
    bool is_disk_full;                 /* metrics wait in memory */
    int lock;                          /* of the folder */
    bool said_slow[FM_FALLBACK_KINDS]; /* slow paths that have had their log line */
    double first_sum,
        last[FM_RUN_WINDOW]; /* losses of the first and of the newest FM_RUN_WINDOW steps */
    char advice[FM_RUN_ADVICE_BYTES]; /* what to do about the error; "" = nothing known */
} fm_train_run;

static inline double fm_run_seconds_since(uint64_t ns) {
    return (double)(fm_clock_ns() - ns) * 1e-9;
}

/* Collects until at most `left` samples are in flight. (train.c) */
FM_MUST_USE fm_status fm_run_drain(fm_train_run *run, uint64_t left, fm_error *reterr);

/* The settings by which checkpoints are written and resumed. (train_save.c, as the next three) */
fm_resume_options fm_run_resume_options(const fm_train_run *run);

/* Writes a checkpoint when one is due or asked for. One that cannot be written is logged and tried
 * again later; the older ones stay. */
FM_MUST_USE fm_status fm_run_save_if_due(fm_train_run *run, fm_error *reterr);

/* Writes the last checkpoint of a run, whatever ended it: `status`, with its error in *reterr,
 * which then says how far the run came and what to do. */
FM_MUST_USE fm_status fm_run_save_last(fm_train_run *run, fm_status status, fm_error *reterr);

/* Writes the end of a sentence about where the run is: "after step 12 of 40 and 3 samples". */
void fm_run_describe_place(const fm_train_run *run, char *out, size_t out_bytes);

/* All samples of the step have been collected or skipped: reports the step and begins the next.
 * (train_step.c, as the next two) */
FM_MUST_USE fm_status fm_run_finish_step(fm_train_run *run, double rate, fm_error *reterr);

/* Writes metrics that still wait in memory, and syncs their files. A checkpoint is written after
 * it: a resumed run begins behind the checkpoint, so the rows before must be on disk. FM_ERR_IO. */
FM_MUST_USE fm_status fm_run_sync_metrics(fm_train_run *run, fm_error *reterr);

/* Seconds since 1970. */
double fm_run_wall_s(void);

#endif
