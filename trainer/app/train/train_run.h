/* train_run.h: a run of `foldmill train` in progress, shared by the files that make it. Start with
 * train.c, which leads a run from its command line to its end.
 *
 *     train_stream.c     AlphaFold2's samples, which come from a server
 *     train_stored.c    AlphaFold 3's samples, which are stored
 *     train_ranks.c      both on several ranks
 *     train_order.c      which sample is used where
 *     train_skip.c       bad samples
 *     train_step.c       the end of a step
 *     train_save.c       checkpoints
 *     train_scores.c       scores */
#ifndef FM_TRAINER_TRAIN_RUN_H
#define FM_TRAINER_TRAIN_RUN_H

#include "trainer/app/common/folder_lock.h"
#include "trainer/app/common/progress.h"
#include "trainer/app/evaluation/eval_child.h"
#include "trainer/app/ranks/ranks.h"
#include "trainer/app/samples/feed.h"
#include "trainer/app/samples/private_server.h"
#include "trainer/app/settings/train_config.h"
#include "trainer/app/train/batch_schedule.h"
#include "trainer/app/train/divergence.h"
#include "trainer/app/train/ledger.h"
#include "trainer/app/train/resume.h"
#include "trainer/app/train/start_phases.h"
#include "trainer/app/train/train_options.h"
#include "trainer/backend/fallback.h"
#include "trainer/metrics/event_file.h"
#include "trainer/metrics/metrics.h"
#include "trainer/step/step.h"

enum {
    FM_TRAIN_WINDOW = 10, /* steps at each end of a run whose mean loss is reported */
    FM_TRAIN_BACKLOG = FM_MOST_QUEUED + 1,
    FM_TRAIN_ADVICE_BYTES = 1024,
};

/* A sample that is queued and not yet collected. */
typedef struct fm_train_flight {
    fm_loaded loaded;
    fm_features features;
    uint64_t step; /* run->queued_step when it was queued */
    uint32_t slot; /* its position in the batch */
    bool is_last;  /* of its step */
    bool is_scored;
    bool plays; /* of several ranks: this one's group has a sample in the round */
    double rate, wait_s;
} fm_train_flight;

/* A sample and the place where it is used: samples `slot` of the step after `step` steps. */
typedef struct fm_train_sample {
    uint64_t step;
    uint32_t slot;
    uint64_t index;
    const char *name; /* its chain, "" where that is not known */
} fm_train_sample;

typedef struct fm_train_run fm_train_run;

/* What a rank knows about the sample in its hand. */
typedef struct fm_train_seen {
    const char *name; /* as fm_train_sample's */
    uint32_t n_cycle;
    bool is_bad; /* it cannot be used, but the run can continue without it */
} fm_train_seen;

/* What the rounds of several ranks need of a kind of work (train_ranks.c). The sample in hand is
 * run->hand, where run->has_hand. */
typedef struct fm_train_rounds {
    /* Samples are queued behind each other, the last of a step with its update. Else each is
     * computed when it is collected, at once, and fm_train_work.update makes all updates. */
    bool is_queued;
    /* Takes sample `wanted` in hand, or the next one (FM_FEED_ANY), unless none comes soon.
     * *ret_is_lost: the error is that of a lost server, to which all ranks connect again. */
    fm_status (*take)(fm_train_run *run, uint64_t wanted, bool *ret_is_lost, fm_error *reterr);
    /* Looks at the sample in hand. An error with is_bad is that of the sample. */
    fm_status (*look)(fm_train_run *run, fm_train_seen *ret_seen, fm_error *reterr);
    void (*drop)(fm_train_run *run); /* the sample in hand */
    /* Begins again where the run is, after a lost server; nothing is in hand or in flight. */
    fm_status (*reconnect)(fm_train_run *run, fm_error *reterr);
    /* Queues the sample in hand, which is the flight's from then on. */
    fm_status (*queue)(fm_train_run *run, fm_train_flight *flight, bool updates, fm_error *reterr);
    /* Queues a flight again that was behind a bad sample. */
    fm_status (*requeue)(fm_train_run *run, const fm_train_flight *flight, bool updates,
                         fm_error *reterr);
    /* Waits for the oldest sample. FM_ERR_DATA: it is bad; nothing of it counts. */
    fm_status (*collect)(fm_train_run *run, const fm_train_flight *flight,
                         fm_sample_result *ret_result, fm_error *reterr);
    void (*release)(fm_train_run *run, const fm_train_flight *flight);
    /* The exchanges of a step as a number; as fm_schedule_digest. */
    uint64_t (*digest)(const fm_train_run *run, bool joint);
} fm_train_rounds;

/* A kind of work: the source of a run's samples and the network that computes them. The run's
 * network decides which of the two kinds it is. */
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
    /* Opens the samples, once the state is loaded; sets run->epoch_samples. */
    fm_status (*open)(fm_train_run *run, fm_error *reterr);
    /* Starts evaluation, once the outputs are open. */
    fm_status (*start)(fm_train_run *run, fm_error *reterr);
    /* Does what was due after the step of the checkpoint and is not done, on all ranks together,
     * before the first step. NULL if nothing may be left. */
    fm_status (*make_up)(fm_train_run *run, fm_error *reterr);
    fm_status (*advance)(fm_train_run *run, fm_error *reterr); /* queues or skips one sample */
    fm_status (*collect)(fm_train_run *run, fm_error *reterr); /* the oldest one in flight */
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
    fm_train_rounds rounds;
} fm_train_work;

extern const fm_train_work fm_train_stream_work, fm_train_stored_work;

typedef struct fm_rank_report fm_rank_report; /* train_ranks.c */
typedef struct fm_rank_outcome fm_rank_outcome;

/* A run in progress. */
struct fm_train_run {
    const fm_train_options *set;
    const fm_train_work *work;
    fm_train_config config;
    char identity[FM_IDENTITY_BYTES];
    fm_optimizer *optimizer;        /* of the trainer below, with its parameters */
    unsigned terms;                 /* bit i: the model has loss term i */
    fm_trainer *trainer;            /* of a stream, as the next ones */
    struct fm_train_stored *stored; /* of stored samples (train_stored.c) */
    uint64_t epoch_samples;
    fm_layout layout;
    fm_ranks *ranks;           /* NULL: this process is the only one */
    const char *data;          /* address of the server of samples */
    fm_private_server *server; /* that this process has started; NULL = none */
    fm_feed feed;
    char order[32];  /* of samples, as --order has it */
    uint32_t window; /* the most places that a sample may be late or early; 0: strict */
    bool is_free;    /* --order free */
    fm_batch_schedule batches;
    long scores_at;          /* bytes of eval.jsonl that were read */
    uint64_t first_place;    /* samples that the run had used before this process */
    fm_ledger_record replay; /* with --replay */
    fm_ledger *ledger;       /* NULL: another rank writes it */
    fm_metrics *metrics;
    fm_event_file *events; /* NULL without --tensorboard */
    fm_progress progress;
    fm_train_flight flight[FM_MOST_QUEUED];
    uint64_t n_queued, n_collected;      /* samples */
    fm_loaded backlog[FM_TRAIN_BACKLOG]; /* samples to be queued before those of the feed */
    uint32_t n_backlog;
    fm_train_state state; /* at the last collected sample */
    /* Updates queued, and samples of the next one that are queued or done with. Equal to
     * state.place when nothing is in flight. */
    uint64_t queued_step;
    uint32_t slot;
    uint64_t done_ns;          /* the device's clock after the last collected step */
    fm_start_phases start;     /* up to the first step */
    uint64_t start_ns;         /* monotonic clock */
    fm_checkpoint_place first; /* where this process began */
    fm_checkpoint_place saved; /* the newest checkpoint, where is_saved */
    bool is_saved, is_torn;    /* torn: state and trainer differ; no checkpoint may be made */
    bool is_cut_short;         /* a signal has ended what was being done */
    uint64_t looked_ns;        /* at the device's memory: */
    size_t used_bytes, free_bytes;
    uint64_t saved_ns,
        failed_ns;            /* when a checkpoint was made, or could not be; 0 = the last was */
    fm_eval_child *evaluator; /* NULL without --eval-every, and on other ranks */
    fm_private_server *eval_server; /* of its chains; NULL: another one's */
    bool has_missed_target;         /* all steps are made, and no score reached --stop-at */
    fm_divergence divergence;
    bool is_diverging;
    bool is_disk_full;                 /* metrics wait in memory */
    bool said_unknown;                 /* that a sample has no structure */
    fm_folder_lock lock;               /* of the folder */
    bool said_slow[FM_FALLBACK_KINDS]; /* slow paths that have had their log line */
    uint64_t n_loss;                   /* steps with a loss: those of which a sample counted */
    double first_sum,
        last[FM_TRAIN_WINDOW]; /* losses of the first and of the newest FM_TRAIN_WINDOW of them */
    char advice[FM_TRAIN_ADVICE_BYTES]; /* what to do about the error; "" = nothing known */
    /* Of several ranks; train_ranks.c. */
    fm_rank_report *words;                 /* [ranks] of the round being agreed on */
    fm_rank_report *round[FM_MOST_QUEUED]; /* [groups] of the rounds in flight */
    fm_rank_outcome *outcomes;             /* [ranks] of the round being collected */
    fm_train_state *boundary;              /* after the last whole step */
    fm_loaded hand; /* this rank's next sample, where has_hand; of stored samples only its index */
    fm_features hand_features; /* of a stream */
    bool has_hand;
    unsigned saves_now;   /* what all have agreed on, as fm_train_wants_checkpoint */
    bool is_agreed;       /* the error is that of all ranks */
    fm_error own_failure; /* of this rank, to be told to the others; status 0: none */
    bool is_in_order;     /* place p takes sample p */
    uint32_t own_slot;    /* of this rank's next sample, where it has one in the round */
    uint64_t told;        /* what the first rank of its group has in hand, or FM_FEED_ANY */
};

/* Whether this process writes the outputs. */
static inline bool fm_train_is_first(const fm_train_run *run) {
    return !run->ranks || fm_ranks_rank(run->ranks) == 0;
}

static inline double fm_train_seconds_since(uint64_t ns) {
    return (double)(fm_clock_ns() - ns) * 1e-9;
}

/* Ends a phase of the start. */
static inline void fm_train_end_phase(fm_train_run *run, fm_start_phase phase) {
    fm_start_phases_mark(&run->start, phase, fm_clock_ns());
}

/* Collects until at most `left` samples are in flight. (train.c) */
FM_MUST_USE fm_status fm_train_drain(fm_train_run *run, uint64_t left, fm_error *reterr);
/* Prints how many samples were skipped, if any were. (train.c) */
void fm_train_say_skipped(const fm_train_run *run);

/* Decides about a bad sample: FM_OK to skip it, else the error in *reterr, with its sample.
 * (train_skip.c, as the next three) */
FM_MUST_USE fm_status fm_train_judge(fm_train_run *run, const fm_train_sample *sample,
                                     fm_status status, fm_error *reterr);
/* Notes that the sample is skipped. `why` says what is bad about it; NULL when the command line
 * names the sample. */
FM_MUST_USE fm_status fm_train_note_skipped(fm_train_run *run, const fm_train_sample *sample,
                                            const fm_error *why, fm_error *reterr);
/* Skips the sample at run->slot. No sample is in flight, and the caller has asked whether a skip is
 * allowed. */
FM_MUST_USE fm_status fm_train_skip(fm_train_run *run, const fm_train_sample *sample,
                                    const fm_error *why, fm_error *reterr);
/* Makes the sample the source of the error, unless it has one. */
void fm_train_name_sample(uint64_t index, const char *name, fm_error *reterr);

/* Whether the samples of the step being queued are scored; those of a stream may be.
 * (train_stream.c, as the next one) */
bool fm_train_is_scored(const fm_train_run *run);
/* Adds a sample's scores to the sums. A crop without known CA atoms has none and does not count. */
FM_MUST_USE fm_status fm_train_add_scores(fm_train_run *run, const fm_features *features,
                                          fm_batch_sums *sums, fm_error *reterr);

/* Finds the order of samples: that of --order, or of the ledger that is replayed. The errors of
 * fm_ledger_read; FM_ERR_USAGE. (train_order.c, as the next nine) */
FM_MUST_USE fm_status fm_train_order_find(fm_train_run *run, fm_error *reterr);
/* Completes the feed's options with the order. FM_ERR_USAGE when ranks that share a sample
 * would have to hold more than they can. */
FM_MUST_USE fm_status fm_train_order_ask(const fm_train_run *run, fm_feed *feed, fm_error *reterr);
/* Checks whether the run can continue in this order. Call it once the state is loaded and the feed
 * is open. FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_train_order_begin(fm_train_run *run, fm_error *reterr);
/* Opens DIR/ledger. The errors of fm_ledger_open. */
FM_MUST_USE fm_status fm_train_order_open_ledger(fm_train_run *run, fm_error *reterr);
/* The place of slot `slot` of the step after `step` steps. */
uint64_t fm_train_place(const fm_train_run *run, uint64_t step, uint32_t slot);
/* Samples of the step that is being queued. */
static inline uint32_t fm_train_batch(const fm_train_run *run) {
    return fm_batch_at(&run->batches, run->queued_step);
}
/* Finds how far the batch schedule is at the checkpoint. FM_ERR_USAGE when the two do not fit. */
FM_MUST_USE fm_status fm_train_order_find_batches(fm_train_run *run, fm_error *reterr);
/* Steps of the stream, whose batch is the first, that the run may need. */
uint64_t fm_train_order_stream_steps(const fm_train_run *run);
/* Begins the last batch with the next step, once an evaluation has its score. */
FM_MUST_USE fm_status fm_train_order_read_scores(fm_train_run *run, fm_error *reterr);
/* The number of the sample that the slot of the step being queued takes, or FM_FEED_ANY. */
uint64_t fm_train_order_wanted(const fm_train_run *run, uint32_t slot);
/* Whether the run that is replayed has skipped its sample there. */
bool fm_train_order_leaves_out(const fm_train_run *run, uint64_t step, uint32_t slot);
/* Gives the features the cycles and the slot of the place: `slot` of the step being queued.
 * FM_ERR_PROTOCOL when the sample has fewer cycles. */
FM_MUST_USE fm_status fm_train_place_features(const fm_train_run *run, uint32_t slot,
                                              fm_features *features, fm_error *reterr);
/* Counts the sample as done with. FM_ERR_DATA when the ledger that is replayed has another one
 * there. */
FM_MUST_USE fm_status fm_train_order_deliver(fm_train_run *run, const fm_train_sample *sample,
                                             bool is_skipped, fm_error *reterr);

/* Compares this rank with the others before the first step; `status` is what its preparations came
 * to. (train_ranks.c, as the next seven) */
FM_MUST_USE fm_status fm_train_ranks_compare(fm_train_run *run, fm_status status, fm_error *reterr);
/* Fails on all ranks when one has failed; `status` is this one's. */
FM_MUST_USE fm_status fm_train_ranks_share(fm_train_run *run, fm_status status, fm_error *reterr);
/* Takes the memory for rounds, once the state is loaded. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_train_ranks_prepare(fm_train_run *run, fm_error *reterr);
void fm_train_ranks_release(fm_train_run *run);
/* Agrees on the next round, and queues or skips its samples. */
FM_MUST_USE fm_status fm_train_ranks_advance(fm_train_run *run, fm_error *reterr);
/* Notes whether all ranks have the error of what they did together after a step; returns it. */
FM_MUST_USE fm_status fm_train_ranks_agree_to_fail(fm_train_run *run, fm_status status);
/* Collects the oldest round in flight. */
FM_MUST_USE fm_status fm_train_ranks_collect(fm_train_run *run, fm_error *reterr);
/* The group of this rank, below run->layout.dp. */
int32_t fm_train_group(const fm_train_run *run);

/* The settings by which checkpoints are written and resumed. (train_save.c, as the next four) */
fm_resume_options fm_train_resume_options(const fm_train_run *run);

/* FM_TRAIN_SAVE_IS_DUE and FM_TRAIN_SAVE_IS_ASKED, where a checkpoint is due or was asked for;
 * several ranks agree on it. */
enum { FM_TRAIN_SAVE_IS_DUE = 1, FM_TRAIN_SAVE_IS_ASKED = 2 };
unsigned fm_train_wants_checkpoint(fm_train_run *run);

/* Writes a checkpoint when one is due or asked for. One that cannot be written is logged and tried
 * again later; the older ones stay. */
FM_MUST_USE fm_status fm_train_save(fm_train_run *run, fm_error *reterr);

/* Writes the last checkpoint of a run, whatever ended it: `status`, with its error in *reterr,
 * which then says how far the run came and what to do. */
FM_MUST_USE fm_status fm_train_save_last(fm_train_run *run, fm_status status, fm_error *reterr);

/* Writes the end of a sentence about where the run is: "after step 12 of 40 and 3 samples". */
void fm_train_describe_place(const fm_train_run *run, char *out, size_t out_bytes);

/* Adds the results of a sample that counts. (train_step.c, as the next four) */
void fm_train_add_result(fm_batch_sums *sums, uint64_t index, uint32_t n_cycle, const char *name,
                         double wait_s, const fm_sample_result *result);

/* The learning rate of the update that was queued or made last. */
double fm_train_rate(const fm_train_run *run);

/* All samples of the step have been collected or skipped: reports the step and begins the next. */
FM_MUST_USE fm_status fm_train_finish_step(fm_train_run *run, double rate, fm_error *reterr);

/* Writes metrics that still wait in memory, and syncs their files. A checkpoint is written after
 * it: a resumed run begins behind the checkpoint, so the rows before must be on disk. FM_ERR_IO. */
FM_MUST_USE fm_status fm_train_sync_metrics(fm_train_run *run, fm_error *reterr);

/* Steps between evaluations; 0 = never. (train_scores.c, as the next seven) */
uint64_t fm_train_eval_every(const fm_train_run *run);
/* Checks the score that the batch schedule waits for, if it does: `rises` says whether it is among
 * `rising`, the scores of this work of which more is better. Another program may write the scores.
 * FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_train_check_gate(const fm_train_run *run, bool rises, const char *rising,
                                          fm_error *reterr);
/* Refuses settings of the evaluator that contradict each other. FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_train_scores_check(const fm_train_run *run, fm_error *reterr);
/* Starts the evaluator, once the outputs are open. FM_ERR_NOT_FOUND when its server has other
 * chains, and the errors of connecting and starting. */
FM_MUST_USE fm_status fm_train_scores_start(fm_train_run *run, fm_error *reterr);
/* Whether the checkpoint of that step is evaluated. */
bool fm_train_is_evaluated(const fm_train_run *run, uint64_t step);
/* Hands the newest checkpoint over, where it is to be evaluated. */
void fm_train_scores_offer(fm_train_run *run);
/* Looks after the evaluator, and asks the run to stop at its target. */
void fm_train_scores_look(fm_train_run *run);
/* Waits for the last scores where the run ended well, reports the target and ends the evaluator. */
void fm_train_scores_end(fm_train_run *run, fm_status status);

/* Seconds since 1970. */
double fm_train_wall_s(void);

#endif
