/* infer.h: inference: the structures and confidences that a model predicts for whole chains.
 *
 *     fm_infer_create          the parameters' memory; the caller loads a checkpoint into it
 *     fm_infer_run             one chain: all its cycles, its losses and the last cycle's atoms
 *     fm_infer_head            logits of that chain's heads
 *
 * A run has no gradient, no dropout and no saved tensors. A chain is not cropped. It is padded to
 * the next length of fm_infer_round and masked, so one recording (tapes, memory plan, CUDA graphs)
 * serves all chains of about its length. The recorded length depends on the chain's length alone,
 * so the bits of a result do not depend on other chains; a longer recording changes results only by
 * rounding. At most eight recordings are kept, fewer if memory is short. Callers that order chains
 * by length make each recording once. */
#ifndef FM_TRAINER_INFER_H
#define FM_TRAINER_INFER_H

#include "trainer/step/step.h"

typedef struct fm_infer_options {
    fm_model_config model;     /* n_res and dropout do not matter; n_seq and n_extra are recorded */
    const fm_kernels *kernels; /* the device; NULL: the CPU's table of f32 */
    double weight[FM_LOSS_TERMS];
    unsigned heads; /* bits 1 << FM_HEAD_...: the logits that fm_infer_head can give */
    /* Bytes of device memory for everything. 0: what the device has free, where that is known. */
    int64_t memory_budget_bytes;
    bool direct, spoils; /* as in fm_trainer_options: for comparisons and checks */
} fm_infer_options;

typedef struct fm_infer fm_infer;

/* FM_ERR_NOMEM, FM_ERR_UNSUPPORTED as fm_trainer_create. */
FM_MUST_USE fm_status fm_infer_create(const fm_infer_options *options, fm_infer **ret_infer,
                                      fm_error *reterr);
void fm_infer_destroy(fm_infer *infer);

/* The parameters: master, and the copy in the activations' type. No chain may be running. */
fm_params *fm_infer_get_params(fm_infer *infer);

/* Returns the recorded length for a chain: n_res rounded up, to a multiple of 16 below 512, and by
 * at most 1/8 above 128. */
int64_t fm_infer_round(int64_t n_res);

/* Finds the bytes of device memory that a chain of n_res residues takes, the parameters among
 * them, and runs nothing. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_infer_plan(const fm_infer *infer, int64_t n_res, int64_t *ret_bytes,
                                    fm_error *reterr);

/* The results of a chain. Arrays are in the caller's arena. */
typedef struct fm_infer_result {
    fm_sample_result losses; /* without gradient_norm; terms that the model lacks are 0 */
    /* Without a structure module the fields below are NULL. */
    float *atoms;   /* [N_res, 14, 3] Å, predicted */
    float *truth;   /* [N_res, 14, 3] Å, of the sample's coordinates */
    uint8_t *known; /* [N_res, 14]; 1 = the true atom is known */
    float *plddt;   /* [N_res] 0..100 (Algorithm 29); NULL without FM_HEAD_PLDDT */
} fm_infer_result;

/* Runs one chain. FM_ERR_LIMIT when its memory does not fit the budget or the device: the message
 * has both and the longest chain that fits. FM_ERR_DATA when the sample is refused or a value is
 * not finite, as fm_trainer_queue and fm_trainer_collect. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_infer_run(fm_infer *infer, const fm_features *features, fm_arena *arena,
                                   fm_infer_result *ret_result, fm_error *reterr);

/* Copies the logits of a head of the chain that ran last, without padding: f32 [N_res, n_bin], or
 * [N_res, N_res, n_bin] of pairs. Those of the distogram are made symmetric. *ret_logits is NULL
 * and *ret_n_bin 0 where the model lacks the head or it was not asked for. FM_ERR_LIMIT if the
 * arena is full. */
FM_MUST_USE fm_status fm_infer_head(fm_infer *infer, fm_head head, fm_arena *arena,
                                    float **ret_logits, int64_t *ret_n_bin, fm_error *reterr);

/* Returns the recording that ran last, for measurements; NULL before the first run. */
fm_trainer *fm_infer_get_recording(const fm_infer *infer);

/* Writes a description of the recording that ran last to out. */
void fm_infer_describe(const fm_infer *infer, char *out, size_t out_bytes);

#endif
