/* step.h: a training step, made of model, losses and optimiser.
 *
 *     fm_trainer_create          parameters, both tapes, one arena; nothing is allocated later
 *     for each step
 *         for each sample        fm_trainer_queue: cycles, backward, clip, add to the batch; with
 *                                the last sample of the step also Adam and EMA with the mean
 *         for each sample        fm_trainer_collect: losses and norms, when they are ready
 *
 * Two tapes share one arena: the cycle without gradient, run n_cycle - 1 times, and the last cycle
 * with losses and backward. Each is a pass (pass.h): on a GPU one graph, which is replayed. A pass
 * begins by taking its packet (ring.h, upload.h). The last pass ends with the update and a record
 * of the sample's results. So a sample takes one launch per cycle, the copy of the next sample runs
 * beside it, and the host waits only for a record. Samples smaller than the recorded shape are
 * padded and masked. Results are a function of (options, samples): same seed, same bits. */
#ifndef FM_TRAINER_STEP_H
#define FM_TRAINER_STEP_H

#include "trainer/step/cycles.h"
#include "trainer/step/result.h"

typedef struct fm_trainer_options {
    fm_model_config model;
    fm_optimizer_options optimizer;
    const fm_kernels *kernels; /* the device; NULL: the CPU's table of `element` */
    fm_element element;        /* FM_ELEMENT_F32; F64 for checks */
    uint64_t seed;             /* for initial parameters and dropout */
    double weight
        [FM_LOSS_TERMS]; /* of the loss terms; a term that the model does not have is ignored */
    /* The ranks that this one works with (trainer/dist/groups.h); NULL: none. The sizes of the
     * model are then rounded up to multiples of the number of parts. */
    const fm_groups *groups;
    /* Bytes of device memory. 0 sets no bound. FM_RECOMPUTE_AUTO then takes what the device has
     * free, of ranks the least, and where that is not known the least memory possible.
     * FM_RECOMPUTE_NONE drops normalised rows until the step fits what is free
     * (memory_budget.h). */
    int64_t memory_budget_bytes;
    bool direct; /* captures no graph: for comparisons */
    bool spoils; /* fm_tape.spoils of the tapes: for checks */
} fm_trainer_options;

/* The largest number of samples that are queued and not yet collected. */
enum { FM_MOST_QUEUED = 2 };

/* A queued sample, with the counters as they were before it. */
typedef struct fm_flight {
    const fm_features *features;
    fm_event *done;
    uint64_t step, samples;
    uint32_t pending;
} fm_flight;

/* Time stamps that a pass leaves in device memory, around those of its tape. */
enum { FM_STAMP_BEGIN, FM_STAMP_SUMMED, FM_STAMP_UPDATED, FM_STAMPS };

/* The tapes of a step, and the passes that run them. */
enum { FM_TRAINER_CYCLE, FM_TRAINER_LAST, FM_TRAINER_TAPES };

typedef struct fm_trainer {
    fm_trainer_options options;
    fm_recording recording; /* its own stamps: FM_STAMPS */
    fm_cycles cycles;
    fm_step_record *record; /* [FM_MOST_QUEUED] in page-locked memory, written by the device */
    uint64_t *n_made;       /* device memory: the number of records made */
    fm_flight flight[FM_MOST_QUEUED];
    uint64_t n_queued, n_collected;
} fm_trainer;

/* Checks that a model can be divided like that; dp does not matter. FM_ERR_USAGE names the setting
 * that does not allow it. */
FM_MUST_USE fm_status fm_trainer_check_layout(const fm_model_config *model, const fm_layout *layout,
                                              fm_error *reterr);

/* Creates a trainer. With FM_RECOMPUTE_AUTO it repeats the dry run to find the least recomputation
 * that stays within the budget; the model's config then has its choice. FM_ERR_LIMIT when no policy
 * fits, FM_ERR_NOMEM, FM_ERR_UNSUPPORTED when the device lacks a type or the structure module. */
FM_MUST_USE fm_status fm_trainer_create(const fm_trainer_options *options, fm_trainer **ret_trainer,
                                        fm_error *reterr);
void fm_trainer_destroy(fm_trainer *trainer);

/* What a trainer would take. */
typedef struct fm_trainer_plan {
    int64_t bytes;          /* of device memory, as fm_trainer_memory_bytes */
    int64_t gradient_bytes; /* of these, which are summed over the ranks */
} fm_trainer_plan;

/* Records and plans a step, and takes no memory but that of parameters meanwhile. Nothing is
 * exchanged, so the communicators of options->groups may lack everything but rank, size and
 * kernels. The errors of fm_trainer_create. */
FM_MUST_USE fm_status fm_trainer_make_plan(const fm_trainer_options *options,
                                           fm_trainer_plan *ret_plan, fm_error *reterr);

/* Bytes of device memory that the trainer has taken. */
int64_t fm_trainer_memory_bytes(const fm_trainer *trainer);

/* Writes a description to out; see fm_recording_describe. */
void fm_trainer_describe(const fm_trainer *trainer, char *out, size_t out_bytes);

/* Queues one sample and returns; its clipped gradient is added to the batch. With the last sample
 * of the step Adam and EMA follow. `features` and the arrays that it points to must stay valid
 * until the sample is collected. At most FM_MOST_QUEUED samples may be queued (assert).
 * FM_ERR_LIMIT when the sample is larger than the recorded shape, FM_ERR_DATA naming an id that is
 * out of range; in both cases it is not queued. The ranks of a sample call it together, with the
 * same sample, and get the same result. Ranks of several samples (DP) pass is_last false and update
 * with fm_trainer_update. */
FM_MUST_USE fm_status fm_trainer_queue(fm_trainer *trainer, const fm_features *features,
                                       bool is_last, fm_error *reterr);

/* Waits for the oldest queued sample and returns its results. FM_ERR_DATA, naming the first
 * tensor, when a value of it was not finite. Then neither it nor the samples behind it have
 * changed the batch or the parameters, and no further sample is queued. FM_ERR_LIMIT, naming the
 * step, when the samples were finite and the norm of their sum was not (clip by batch);
 * FM_ERR_CLOSED when a rank did not come to an exchange. After these two the trainer can only be
 * destroyed. */
FM_MUST_USE fm_status fm_trainer_collect(fm_trainer *trainer, fm_sample_result *ret_result,
                                         fm_error *reterr);

static inline uint64_t fm_trainer_n_queued(const fm_trainer *trainer) {
    return trainer->n_queued - trainer->n_collected;
}

/* The learning rate of the update that was queued or made last. */
double fm_trainer_rate(const fm_trainer *trainer);

/* Queues and collects one sample, without an update. */
FM_MUST_USE fm_status fm_trainer_add_sample(fm_trainer *trainer, const fm_features *features,
                                            fm_sample_result *ret_result, fm_error *reterr);

/* Makes an update with the mean over the samples of all DP groups since the last one, and waits for
 * it. All groups must have added the same number. No sample may be queued. Returns the learning
 * rate used. Tests call it; programs know the number and call the next function. */
double fm_trainer_update(fm_trainer *trainer);

/* The same where the groups have added different numbers of samples, `n_sample` in all, at least
 * one. */
double fm_trainer_update_with(fm_trainer *trainer, uint32_t n_sample);

/* Makes passes leave time stamps (of the recording and of its tapes). They are captured again
 * and run a little slower. No sample may be queued. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_trainer_stamp(fm_trainer *trainer, fm_error *reterr);

#endif
