/* cycles.h: what the training step and the inference of AlphaFold2 both have: where a recording
 * (recording.h) takes its samples from, the passes of their cycles, and the losses of the last one.
 *
 * A pass begins by taking its packet (ring.h, upload.h). Samples smaller than the recorded shape
 * are padded and masked. */
#ifndef FM_TRAINER_STEP_CYCLES_H
#define FM_TRAINER_STEP_CYCLES_H

#include "trainer/loss/terms.h"
#include "trainer/model/model.h"
#include "trainer/step/recording.h"
#include "trainer/step/result.h"
#include "trainer/step/ring.h"
#include "trainer/step/step_features.h"
#include "trainer/step/structure_truth.h"

typedef struct fm_cycles {
    fm_recording *recording;      /* the owner's */
    const fm_model_config *model; /* the owner's, with the recorded sizes */
    /* [FM_LOSS_TERMS] of the loss terms, the owner's; a term that the model does not have is
     * ignored. NULL: no losses, and samples need no ground truth. */
    const double *weight;
    int32_t n_slot; /* of the ring, on an asynchronous device */
    fm_model_weights weights;
    fm_model_inputs inputs;
    int32_t true_msa, bert_mask, pseudo_beta, pseudo_beta_mask; /* in the state, with losses */
    fm_structure_truth truth;                                   /* with a structure module, too */
    int32_t factors, seed_gradient;
    fm_tensor_ref term[FM_LOSS_TERMS], total; /* FM_TENSOR_NONE: no such term */
    fm_tensor_ref atoms; /* [N_res, 14, 3] Å of the last cycle; FM_TENSOR_NONE without a module */
    uint8_t *host; /* owned copy of the state's layout, in which the host makes small tensors */
    fm_ring ring;
} fm_cycles;

/* Returns the device's table, or the CPU's of `element` for NULL. FM_ERR_UNSUPPORTED when the
 * device lacks the type or the model's structure module. */
FM_MUST_USE fm_status fm_cycles_find_kernels(const fm_model_config *model,
                                             const fm_kernels *kernels, fm_element element,
                                             const fm_kernels **ret_kernels, fm_error *reterr);

/* Returns the model with the sizes that are recorded for ranks and device. */
fm_model_config fm_cycles_pad(const fm_model_config *model, const fm_groups *groups,
                              const fm_kernels *kernels);

/* Declares the state, for n_draw draws of MSA rows in each cycle, and says how much scratch memory
 * the sums over ranks take. The caller has filled the fields down to n_slot and listed the
 * parameters. */
void fm_cycles_declare(fm_cycles *cycles, int32_t n_draw);
/* Takes the state's memory. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_cycles_take_state(fm_cycles *cycles, fm_error *reterr);

/* Records the losses of a last cycle, in its tape's island, and keeps them and the atoms. Returns
 * what the losses read, for further heads. */
fm_loss_inputs fm_cycles_record_losses(fm_cycles *cycles, fm_tape *tape,
                                       const fm_model_outputs *out);

/* Makes the ring and the host's memory, once the recording is bound. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_cycles_open(fm_cycles *cycles, fm_error *reterr);
/* Releases them. The recording's work has ended. */
void fm_cycles_close(fm_cycles *cycles);

/* Bytes of the ring: device memory, and on an asynchronous device page-locked memory of the host.
 */
int64_t fm_cycles_ring_bytes(const fm_cycles *cycles);
/* The page-locked bytes. */
int64_t fm_cycles_locked_bytes(const fm_cycles *cycles);

/* A sample on its way, with the counters that its packets have. */
typedef struct fm_cycles_sample {
    const fm_features *features;
    uint64_t step; /* part of the draws; the update after it has the number step + 1 */
    double rate;   /* of that update */
    uint32_t pending;
    bool holds; /* no update follows the sample */
} fm_cycles_sample;

/* Sends cycle `cycle` and runs the pass, which takes it. */
void fm_cycles_run(fm_cycles *cycles, const fm_cycles_sample *sample, uint32_t cycle,
                   fm_pass *pass);
/* Queues the kernel that takes the next packet; every pass begins with it. */
void fm_cycles_take_packet(const fm_cycles *cycles, fm_stream *stream);

/* Runs the first n_cycle cycles again and checks what every step writes, backward included. Every
 * `period`-th cycle has the tape `last`, the others `before`. Returns FM_ERR_DATA with the name of
 * the first tensor that has a value that is not finite. */
FM_MUST_USE fm_status fm_cycles_name_nonfinite(fm_cycles *cycles, const fm_cycles_sample *sample,
                                               uint32_t n_cycle, uint32_t period, fm_tape *before,
                                               fm_tape *last, fm_error *reterr);

/* Writes what each term of the sample's loss is multiplied by, for the terms that the model has,
 * one after the other: at most FM_LOSS_TERMS numbers. */
void fm_cycles_put_factors(const fm_cycles *cycles, const fm_features *features, double *factors);

/* Fills the terms and parts of a result from the values of the terms that the model has, one after
 * the other. */
void fm_cycles_put_terms(const fm_cycles *cycles, const fm_features *features, const double *values,
                         fm_sample_result *result);

#endif
