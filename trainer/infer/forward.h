/* forward.h: forward passes of AlphaFold2's network on whole chains, recorded for one size. They
 * have no gradient, keep nothing for one, and use the parameters of another owner.
 *
 * With losses a sample is scored as in training: its cycles, the losses and the atoms of the last
 * one. In a prediction there are no losses and no ground truth, and each cycle ends with atoms and
 * logits, so that the caller can stop after any of them. */
#ifndef FM_TRAINER_INFER_FORWARD_H
#define FM_TRAINER_INFER_FORWARD_H

#include "trainer/step/cycles.h"

/* Heads whose logits a forward pass can keep for its caller, where the model has them. */
typedef enum fm_head {
    FM_HEAD_PLDDT,         /* [N_res, n_plddt_bin] */
    FM_HEAD_DISTOGRAM,     /* [N_res, N_res, n_distogram_bin], before it is made symmetric */
    FM_HEAD_ALIGNED_ERROR, /* [N_res, N_res, n_aligned_error_bin] */
    FM_HEADS
} fm_head;

typedef struct fm_forward_options {
    fm_model_config model;
    const fm_kernels *kernels;
    const fm_groups *groups; /* the ranks that share each chain; NULL: none */
    const fm_params *params; /* whose values are used; they must outlive the passes */
    bool has_losses;         /* a prediction has none */
    double weight[FM_LOSS_TERMS];
    /* Of a prediction: draws of MSA rows in each cycle, whose representations are averaged; 0 is 1.
     * A sample's `cycle` then has the draws of the first cycle, then those of the next one. */
    int32_t n_draw;
    unsigned heads;      /* bits 1 << FM_HEAD_...; their logits are kept */
    bool dropout;        /* as in training */
    int64_t chunk_bytes; /* as the next two: the field of each tape */
    bool chunks_triangles, spoils;
    bool direct; /* captures no graph: for comparisons */
} fm_forward_options;

/* The tapes, and the passes that run them. The first has what the caller reads: the last cycle with
 * its losses, or the last draw and the end of a prediction's cycle. The second has what comes
 * before: the other cycles, or the other draws of a cycle, where there are any. */
enum { FM_FORWARD_RESULTS, FM_FORWARD_BEFORE, FM_FORWARD_TAPES };

typedef struct fm_forward {
    fm_forward_options options;
    fm_recording recording; /* it has no stamps of its own */
    fm_cycles cycles;
    fm_tensor_ref head[FM_HEADS]; /* logits that are kept; FM_TENSOR_NONE: not kept */
} fm_forward;

/* Records the passes. FM_ERR_NOMEM, FM_ERR_UNSUPPORTED when the device lacks the structure module.
 */
FM_MUST_USE fm_status fm_forward_create(const fm_forward_options *options, fm_forward **ret_forward,
                                        fm_error *reterr);
void fm_forward_destroy(fm_forward *forward);

/* The memory that the passes take, without the parameters. */
typedef struct fm_forward_need {
    int64_t device_bytes;
    int64_t locked_bytes; /* of the host, page-locked, for samples on their way; 0 on a CPU */
} fm_forward_need;
fm_forward_need fm_forward_taken(const fm_forward *forward);
/* Finds it without taking it. Errors as above. */
FM_MUST_USE fm_status fm_forward_plan(const fm_forward_options *options, fm_forward_need *ret_need,
                                      fm_error *reterr);

/* Runs all cycles of a sample with losses, and waits for them. FM_ERR_LIMIT when the sample is
 * larger than the recorded shape, FM_ERR_DATA when a value of it is out of range or a result is not
 * finite, naming the tensor; FM_ERR_CLOSED when a rank did not come to an exchange. */
FM_MUST_USE fm_status fm_forward_score(fm_forward *forward, const fm_features *features,
                                       fm_sample_result *ret_result, fm_error *reterr);

/* Queues one cycle of a prediction, with all of its draws. fm_upload_check (step/upload.h) must
 * have accepted the sample. `seed` is that of dropout. The features must stay valid until the work
 * has ended. */
void fm_forward_queue_cycle(fm_forward *forward, const fm_features *features, uint64_t seed,
                            uint32_t cycle);

/* Runs the first n_cycle cycles of a prediction again. Returns FM_ERR_DATA with the name of the
 * first tensor that has a value that is not finite. */
FM_MUST_USE fm_status fm_forward_name_nonfinite(fm_forward *forward, const fm_features *features,
                                                uint64_t seed, uint32_t n_cycle, fm_error *reterr);

#endif
