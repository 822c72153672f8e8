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

#include "trainer/dist/groups.h"
#include "trainer/model/model.h"
#include "trainer/optim/optimizer.h"
#include "trainer/step/step_features.h"
#include "trainer/step/pass.h"
#include "trainer/step/result.h"
#include "trainer/step/ring.h"
#include "trainer/step/structure_truth.h"

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
    /* Inference (trainer/infer): no gradient, no optimiser, and dropout only with keeps_dropout. A
     * sample is one forward pass per cycle with its losses, and the caller must not request an
     * update. */
    bool forward_only;
    /* With forward_only: no losses and no ground truth. One tape serves all cycles, and each cycle
     * has the outputs of a last cycle. Samples are queued by fm_trainer_queue_cycle. */
    bool predicts;
    /* With predicts: draws of MSA rows in each cycle, whose representations are averaged; 0 is 1. A
     * sample's `cycle` then has the draws of the first cycle, then those of the next one. */
    int32_t n_draw;
    bool keeps_dropout;      /* with forward_only: dropout as in training */
    int64_t chunk_bytes;     /* with forward_only: fm_tape.chunk_bytes */
    bool chunks_triangles;   /* the same: fm_tape.chunks_triangles */
    const fm_params *params; /* with forward_only: whose values are used; NULL: own ones */
    unsigned heads;          /* with forward_only: bits 1 << FM_HEAD_...; their logits are kept */
    bool direct;             /* captures no graph: for comparisons */
    bool spoils;             /* fm_tape.spoils of the tapes: for checks */
} fm_trainer_options;

/* Heads whose logits a forward pass can keep for its caller, where the model has them. */
typedef enum fm_head {
    FM_HEAD_PLDDT,         /* [N_res, n_plddt_bin] */
    FM_HEAD_DISTOGRAM,     /* [N_res, N_res, n_distogram_bin], before it is made symmetric */
    FM_HEAD_ALIGNED_ERROR, /* [N_res, N_res, n_aligned_error_bin] */
    FM_HEADS
} fm_head;

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
    fm_tensor_ref head[FM_HEADS]; /* logits that are kept; FM_TENSOR_NONE: not kept */
    fm_optimizer optimizer;
    void *memory;  /* the step arena */
    void *scratch; /* for sums over ranks, acc; NULL on one rank */
    uint8_t *host; /* owned copy of the state's layout, in which the host makes small tensors */
    fm_stream *stream;
    fm_ring ring;
    fm_pass cycle_pass, last_pass;
    fm_step_record *record; /* [FM_MOST_QUEUED] in page-locked memory, written by the device */
    uint64_t *n_made;       /* device memory: the number of records made */
    fm_flight flight[FM_MOST_QUEUED];
    uint64_t n_queued, n_collected;
    uint64_t *stamp; /* device memory [FM_STAMPS], then those of each tape; NULL: none */
};

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

/* The memory that a trainer takes. */
typedef struct fm_trainer_need {
    int64_t device_bytes;
    int64_t locked_bytes; /* of the host, page-locked, for samples on their way; 0 on a CPU */
} fm_trainer_need;

/* Finds the memory that a trainer would take, without allocating the state and the step arena.
 * Errors as above. */
FM_MUST_USE fm_status fm_trainer_plan(const fm_trainer_options *options, fm_trainer_need *ret_need,
                                      fm_error *reterr);

/* Bytes of device memory that the trainer has taken or, before fm_trainer_create has finished, will
 * take. */
int64_t fm_trainer_memory_bytes(const fm_trainer *trainer);

/* Page-locked bytes of the host, as in fm_trainer_need. */
int64_t fm_trainer_locked_bytes(const fm_trainer *trainer);

/* Elements of trainer->scratch. */
int64_t fm_trainer_scratch_count(const fm_trainer *trainer);

/* Writes a description such as "0.12 M parameters (2.4 MiB with moments and average), batch 1.0
 * MiB, step arena 10.1 MiB (saved 7.2, transient 3.0), 24 nodes, recompute none" to out. */
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

/* Queues one cycle of a sample with all of its draws, for a trainer with `predicts`.
 * fm_upload_check (step/upload.h) must have accepted the sample. `seed` is that of dropout. The
 * features must stay valid until the work has ended. */
void fm_trainer_queue_cycle(fm_trainer *trainer, const fm_features *features, uint64_t seed,
                            uint32_t cycle);

/* Runs the first n_cycle cycles again, for a trainer with `predicts`. Returns FM_ERR_DATA with the
 * name of the first tensor that has a value that is not finite. */
FM_MUST_USE fm_status fm_trainer_name_nonfinite(fm_trainer *trainer, const fm_features *features,
                                                uint64_t seed, uint32_t n_cycle, fm_error *reterr);

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

/* Makes passes leave time stamps (trainer->stamp and those of the tapes). They are captured again
 * and run a little slower. No sample may be queued. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_trainer_stamp(fm_trainer *trainer, fm_error *reterr);

#endif
