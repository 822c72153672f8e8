/* step.h: a training step, made of model, losses and optimiser.
 *
 *     fm_trainer_create          parameters, both tapes, one arena; nothing is allocated later
 *     for each step
 *         for each sample        fm_trainer_queue: cycles, backward, clip, add; with the step's
 *                                last sample Adam and EMA with the mean
 *         for each sample        fm_trainer_collect: losses and norms, when they are there
 *
 * Two tapes share one arena: the cycle without gradient, run n_cycle - 1 times, and the last cycle
 * with losses and backward. Each is a pass (pass.h): on a GPU one graph, replayed. A pass begins by
 * taking its packet (ring.h, upload.h) and the last one ends with the update and a record of what
 * the sample gave; so a sample is as many launches as it has cycles, the copy of the next sample
 * runs beside it, and the host waits for nothing but a record. Samples smaller than the recorded
 * shape are padded and masked. Results are a function of (options, samples): same seed, same bits.
 */
#ifndef FM_TRAINER_STEP_H
#define FM_TRAINER_STEP_H

#include "trainer/dist/groups.h"
#include "trainer/loss/terms.h"
#include "trainer/model/model.h"
#include "trainer/optim/optimizer.h"
#include "trainer/step/step_features.h"
#include "trainer/step/pass.h"
#include "trainer/step/ring.h"
#include "trainer/step/structure_truth.h"

typedef struct fm_trainer_options {
    fm_model_config model;
    fm_optimizer_options optimizer;
    const fm_kernels *kernels;    /* the device; NULL: the CPU's table of `element` */
    fm_element element;           /* FM_ELEMENT_F32; F64 for checks */
    uint64_t seed;                /* of initial parameters and dropout */
    double weight[FM_LOSS_TERMS]; /* of the loss terms; those that the model has are used */
    /* The ranks that this one works with (trainer/dist/groups.h); NULL: none. Sizes of the model
     * are then padded to what they are split over. */
    const fm_groups *groups;
    /* Of device memory. 0 = no bound; for FM_RECOMPUTE_AUTO what the device has, where it is
     * known and one rank alone, else the least that there is. */
    int64_t memory_budget_bytes;
    bool direct; /* nothing is captured: for comparisons */
    bool spoils; /* the tapes' (autograd/tape.h): for checks */
} fm_trainer_options;

/* The tiny preset with AlphaFold2's recipe. */
fm_trainer_options fm_trainer_options_tiny(void);

/* Samples queued and not collected. */
enum { FM_MOST_QUEUED = 2 };

/* One of them, with the counters as they were before it. */
typedef struct fm_flight {
    const fm_features *features;
    fm_event *done;
    uint64_t step, samples;
    uint32_t pending;
} fm_flight;

/* Time stamps of a pass around its tape, in device memory. */
enum { FM_STAMP_BEGIN, FM_STAMP_SUMMED, FM_STAMP_UPDATED, FM_STAMPS };

typedef struct fm_trainer fm_trainer;
struct fm_trainer {
    fm_trainer_options options;
    fm_arena arena; /* tables and the host's copy of the state */
    fm_params params;
    fm_model_weights weights;
    fm_state state;
    fm_model_inputs inputs;
    int32_t true_msa, bert_mask, pseudo_beta, pseudo_beta_mask; /* in the state */
    int32_t factors, seed_gradient, clock, flag;
    fm_tape cycle, last;
    fm_tensor_ref term[FM_LOSS_TERMS], total; /* on `last`; FM_TENSOR_NONE: no such term */
    fm_structure_truth truth;                 /* with a structure module */
    fm_tensor_ref atoms; /* [N_res, 14, 3] Å of the last cycle; FM_TENSOR_NONE without a module */
    fm_optimizer optimizer;
    void *memory;  /* the step arena */
    void *scratch; /* of sums over ranks, acc; NULL on one rank */
    uint8_t *host; /* same layout as the state: where small tensors are made */
    fm_stream *stream;
    fm_ring ring;
    fm_pass cycle_pass, last_pass;
    fm_step_record *record; /* [FM_MOST_QUEUED] in page-locked memory, written by the device */
    uint64_t *n_made;       /* device memory: records so far */
    fm_flight flight[FM_MOST_QUEUED];
    uint64_t n_queued, n_collected;
    uint64_t *stamp; /* device memory [FM_STAMPS], then one of each tape; NULL: no stamps */
};

/* What one sample gave. Losses are unweighted but `loss`, which is what was differentiated: the sum
 * of weight * term, times sqrt(n_res). */
typedef struct fm_sample_result {
    double loss;
    double term[FM_LOSS_TERMS]; /* 0 where there is no such term */
    double gradient_norm;       /* before clipping */
    uint64_t done_ns;           /* the device's clock when it was done */
} fm_sample_result;

/* With FM_RECOMPUTE_AUTO the dry run is repeated to find the least recomputation that stays within
 * the budget; the model's config is then what it took. FM_ERR_LIMIT when nothing does,
 * FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_trainer_create(const fm_trainer_options *options, fm_trainer **ret_trainer,
                                        fm_error *reterr);
void fm_trainer_destroy(fm_trainer *trainer);

/* Device memory that the trainer has taken or, before it is bound, will take. */
int64_t fm_trainer_memory_bytes(const fm_trainer *trainer);

/* Elements of trainer->scratch. */
int64_t fm_trainer_scratch_count(const fm_trainer *trainer);

/* "0.12 M parameters (2.4 MiB), step arena 10.1 MiB (saved 7.2, transient 3.0), 24 nodes, recompute
 * none", in out. */
void fm_trainer_describe(const fm_trainer *trainer, char *out, size_t out_bytes);

/* Queues one sample and returns; its gradient, clipped, is added to the batch. With the step's
 * last sample Adam and EMA follow. `features` and what it points to must stay until the sample is
 * collected; at most FM_MOST_QUEUED may be queued (assert). FM_ERR_LIMIT when the sample is larger
 * than the recorded shape, FM_ERR_DATA naming an id that is out of range: it is not queued then.
 * Ranks of a sample call it together, with the same sample, and have the same result; ranks of
 * several samples (DP) update with fm_trainer_update, is_last is false. */
FM_MUST_USE fm_status fm_trainer_queue(fm_trainer *trainer, const fm_features *features,
                                       bool is_last, fm_error *reterr);

/* What the oldest queued sample gave; waits for it. FM_ERR_DATA, naming the first tensor, when
 * something of it was not finite: neither it nor what was queued behind it has changed the batch or
 * the parameters, and nothing is queued any more. */
FM_MUST_USE fm_status fm_trainer_collect(fm_trainer *trainer, fm_sample_result *ret_result,
                                         fm_error *reterr);

static inline uint64_t fm_trainer_n_queued(const fm_trainer *trainer) {
    return trainer->n_queued - trainer->n_collected;
}

/* The rate of the update that was queued or made last. */
double fm_trainer_rate(const fm_trainer *trainer);

/* One sample at a time: queue and collect, without an update. */
FM_MUST_USE fm_status fm_trainer_add_sample(fm_trainer *trainer, const fm_features *features,
                                            fm_sample_result *ret_result, fm_error *reterr);

/* Adam and EMA with the mean over the samples added since the last update, those of all DP groups
 * (each has added as many); waits. Nothing may be queued. Returns the rate used. */
double fm_trainer_update(fm_trainer *trainer);

/* From now on passes leave time stamps (trainer->stamp and the tapes' own): captured anew, a little
 * slower. Nothing may be queued. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_trainer_stamp(fm_trainer *trainer, fm_error *reterr);

#endif
