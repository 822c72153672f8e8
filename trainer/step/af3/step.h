/* step.h: a training step of AlphaFold 3.
 *
 *     fm_af3_trainer_create         parameters, all tapes, two arenas; nothing is allocated later
 *     for each sample
 *         fm_af3_trainer_add_sample runs all parts; the gradient is added to the batch's sum
 *     fm_optimizer_step             clips the mean, Adam, moving average
 *
 * A sample is computed in parts. A part is a pass (step/pass.h): it reads everything that varies
 * from device memory, waits for nothing, and can be captured as a graph. The host works between
 * parts.
 *
 *     part        runs                                                  arena   before it, the host
 *     cycle       a cycle without gradient; n_cycle - 1 times           first   writes MSA rows
 *     trunk       the last cycle up to s and z                          first   writes MSA rows
 *     rollout     prepare, then all denoising steps                     both    writes levels
 *     learn       noisy structures, the diffusion module, distogram,    both    chooses and writes
 *                 losses, backward                                              the labels
 *     confidence  the confidence head on the rollout, losses, backward  first   -
 *
 * Labels are chosen to fit the rollout (label_permutation.h), so it comes between the two halves of
 * the last cycle, whose trunk waits in the first arena. Of the memory there that only the second
 * half needs, the rollout takes a part for its modulations: it is the room of the state. Results
 * are a function of (options, samples): same seed, same bits.
 *
 * The ranks of options.model.groups share a sample (model/af3/split.h): all get the same samples
 * and have the same results. With several groups each adds its own samples, and
 * fm_af3_trainer_update_with replaces fm_optimizer_step: it sums over the groups first. */
#ifndef FM_TRAINER_STEP_AF3_STEP_H
#define FM_TRAINER_STEP_AF3_STEP_H

#include "trainer/model/af3/rollout.h"
#include "trainer/step/af3/features.h"
#include "trainer/step/af3/mirror.h"
#include "trainer/step/af3/score.h"
#include "trainer/step/recording.h"
#include "trainer/step/result.h"

typedef struct fm_af3_trainer_options {
    fm_af3_config model;
    fm_optimizer_options optimizer;
    fm_complex_weights loss;
    const fm_kernels *kernels;
    uint64_t seed;  /* of initial parameters and everything that is drawn */
    int64_t n_bond; /* the most bonds of a sample that count in the loss of bonds */
    /* Bytes of device memory; 0 sets no bound. With FM_RECOMPUTE_AUTO, 0 takes what the device has
     * free, where that is known, else the least memory possible. */
    int64_t memory_budget_bytes;
    bool forward_only;     /* losses without gradient, optimiser and dropout */
    bool confidence_only;  /* only the confidence head learns; the part `learn` does not run */
    bool given;            /* draws and the places of conformers are those of the samples */
    bool keeps_conformers; /* the places alone are */
    bool keeps_outputs; /* for comparisons: results of the network stay readable after their part */
    bool spoils;        /* fm_tape.spoils of all tapes: for checks */
    bool rounds;        /* fm_tape.rounds of all tapes: for checks */
    bool direct;        /* parts are never captured as graphs */
} fm_af3_trainer_options;

/* The parts, in the order in which they run. */
enum {
    FM_AF3_PART_CYCLE,
    FM_AF3_PART_TRUNK,
    FM_AF3_PART_ROLLOUT,
    FM_AF3_PART_LEARN,
    FM_AF3_PART_CONFIDENCE,
    FM_AF3_PARTS
};

/* The tapes; those from FM_AF3_PREPARE on are in the second arena. */
enum {
    FM_AF3_CYCLE,
    FM_AF3_LAST,
    FM_AF3_CONFIDENCE,
    FM_AF3_PREPARE,
    FM_AF3_DENOISE,
    FM_AF3_STRUCTURES,
    FM_AF3_TAPES
};

enum {
    FM_AF3_SUM_ELEMENTS = 1 << 20 /* elements of a rank that a sum over ranks takes at a time */
};

typedef struct fm_af3_trainer {
    fm_af3_trainer_options options;
    /* Its passes are the parts. Its own stamps are the clock before and after each part. */
    fm_recording recording;
    fm_af3_weights weights;
    fm_af3_inputs inputs;
    fm_af3_training_noise noise;
    fm_af3_rollout rollout;
    fm_complex_targets targets;
    int32_t seed_gradient;           /* in the state */
    int32_t clocks;                  /* in the state: the clocks of the rollout's steps */
    fm_af3_outputs out;              /* of FM_AF3_LAST */
    fm_af3_confidence_logits logits; /* of FM_AF3_CONFIDENCE */
    fm_tensor_ref term[FM_COMPLEX_TERMS], structure_total, confidence_total;
    fm_mirror mirror;                  /* of everything else that the host writes */
    fm_mirror shared;                  /* of the features that all cycles of a sample share */
    const fm_af3_features *next;       /* announced; NULL: none */
    uint64_t next_step;                /* its step */
    bool is_announced;                 /* for after the sample in hand */
    void (*look_ahead)(void *context); /* NULL: none */
    void *look_ahead_context;
    const fm_af3_features *written; /* the sample whose features `shared` holds; NULL: none */
    /* The sample whose conformers and first MSA rows `mirror` holds; NULL: of none. They were drawn
     * for this step and slot. */
    const fm_af3_features *drawn_of;
    uint64_t drawn_step;
    uint32_t drawn_slot;
    /* Of the sample in hand. */
    const fm_af3_features *features;
    double *x, *raw;  /* [n_atom, 3] Å: the rollout's result; room for downloads */
    fm_arena scratch; /* of the host's work between parts */
    fm_sample_result result;
    fm_af3_score score; /* of the rollout against the labels; only with forward_only */
} fm_af3_trainer;

/* Creates a step. The model's sizes are rounded up as fm_af3_split_pad does. With FM_RECOMPUTE_AUTO
 * it takes the fewest steps of fm_af3_config_order that fit the budget; the model's config then has
 * its choice. FM_ERR_LIMIT when no steps fit, FM_ERR_NOMEM, and as fm_af3_check_products. */
FM_MUST_USE fm_status fm_af3_trainer_create(const fm_af3_trainer_options *options,
                                            fm_af3_trainer **ret_trainer, fm_error *reterr);
void fm_af3_trainer_destroy(fm_af3_trainer *trainer);

/* Bytes of device memory that the step has taken. */
int64_t fm_af3_trainer_memory_bytes(const fm_af3_trainer *trainer);
/* Writes a description as fm_trainer_describe does. */
void fm_af3_trainer_describe(const fm_af3_trainer *trainer, char *out, size_t out_bytes);

/* Makes parts and tapes store the device's clock from now on, and captures their graphs again. The
 * stream must have ended. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_af3_trainer_stamp(fm_af3_trainer *trainer, fm_error *reterr);

/* FM_ERR_LIMIT when the sample is larger than a step of these options is recorded for, or has
 * another number of templates. */
FM_MUST_USE fm_status fm_af3_check_features(const fm_af3_trainer_options *options,
                                            const fm_af3_features *features, fm_error *reterr);
/* The same for the trainer's options. */
FM_MUST_USE fm_status fm_af3_trainer_check(const fm_af3_trainer *trainer,
                                           const fm_af3_features *features, fm_error *reterr);

/* Names the sample after the one that is computed next, for one such call, and its step: how many
 * updates come before it. Its features must stay as they are until it is computed. The host writes
 * and uploads them while the device works. Results are the same without it, and with another step.
 * NULL forgets an announced sample, also one that was written: call it before other features take
 * that sample's address. */
void fm_af3_trainer_announce(fm_af3_trainer *trainer, const fm_af3_features *next, uint64_t step);

/* Sets a function that is called while the device works on a sample, until one is announced. It may
 * make the features of the next sample and announce it, so the device does not wait for that. NULL
 * sets none. */
void fm_af3_trainer_set_look_ahead(fm_af3_trainer *trainer, void (*look_ahead)(void *context),
                                   void *context);

/* Computes one sample and adds its gradient to the batch's sum. FM_ERR_LIMIT as
 * fm_af3_trainer_check. FM_ERR_DATA, naming the first tensor, when a value is not finite. In both
 * cases nothing was added. FM_ERR_CLOSED when another rank was lost; the parameters and sums of
 * gradients are not valid then. The features must be those of a sample that was checked
 * (stored.h). */
FM_MUST_USE fm_status fm_af3_trainer_add_sample(fm_af3_trainer *trainer,
                                                const fm_af3_features *features,
                                                fm_sample_result *ret_result, fm_error *reterr);

/* Makes the update with the samples of all groups, `n_sample` of them, at least one. Collective:
 * every rank of every group calls it, also one whose group added none. FM_ERR_LIMIT when the norm
 * of the sum of gradients is not finite: the parameters are as before. FM_ERR_CLOSED when another
 * rank was lost. */
FM_MUST_USE fm_status fm_af3_trainer_update_with(fm_af3_trainer *trainer, uint32_t n_sample,
                                                 fm_error *reterr);

/* -- the parts, for callers that read results between them; call all of them in this order */

/* Takes a sample and writes what all cycles share. FM_ERR_LIMIT, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_af3_trainer_begin(fm_af3_trainer *trainer, const fm_af3_features *features,
                                           fm_error *reterr);
/* Runs all cycles, the last up to s and z. */
void fm_af3_trainer_trunk(fm_af3_trainer *trainer);
/* Makes the rollout's structure, trainer->x. The host writes its numbers before, while the device
 * works on the cycles, and the labels meanwhile. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_af3_trainer_rollout(fm_af3_trainer *trainer, fm_error *reterr);
/* Exchanges labels to fit the rollout, and writes what the confidence head reads of it.
 * FM_ERR_LIMIT, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_af3_trainer_label(fm_af3_trainer *trainer, fm_error *reterr);
/* Completes the last cycle, backward included, and reads its terms. */
void fm_af3_trainer_learn(fm_af3_trainer *trainer);
/* Runs the confidence head, backward included, and reads its terms. */
void fm_af3_trainer_confidence(fm_af3_trainer *trainer);
/* Replaces the gradient by its sum over the ranks that share the sample. */
void fm_af3_trainer_sum_gradients(fm_af3_trainer *trainer);

#endif
