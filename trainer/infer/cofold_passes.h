/* cofold_passes.h: forward passes of AlphaFold 3's network that predict structures of one complex,
 * recorded for one size. They have no gradient, and use the parameters of another owner.
 *
 *     cycle        input embedder and trunk; any cycle may be the last   once for each cycle
 *     distogram    logits of the trunk's pairs                           when they are asked for
 *     prepare      what all denoising steps read (model/af3/model.h)     after the last cycle
 *     step         one denoising step of S structures side by side       once for each step
 *     confidence   the confidence head on one structure                  once for each structure
 *
 * All tapes share one arena, so a kept tensor is readable until another pass runs. A structure's
 * draws depend on the seed, the structure's number, the step and the atom alone. */
#ifndef FM_TRAINER_INFER_COFOLD_PASSES_H
#define FM_TRAINER_INFER_COFOLD_PASSES_H

#include "trainer/infer/memory.h"
#include "trainer/infer/step_rows.h"
#include "trainer/model/af3/sample.h"
#include "trainer/step/recording.h"

typedef struct fm_cofold_passes_options {
    /* The recorded sizes. n_sample is 0, and cycles and steps of a rollout are not read. */
    fm_af3_config model;
    const fm_kernels *kernels;
    const fm_params *params; /* whose values are used; they must outlive the passes */
    int64_t n_structure;     /* S: that are denoised side by side */
    int32_t n_step;          /* denoising steps, at most FM_COFOLD_STEPS */
    fm_slabs slabs;
    bool given;          /* draws are those of the caller */
    bool spoils, rounds; /* for checks: the fields of each tape */
    bool direct;         /* captures no graph: for comparisons */
} fm_cofold_passes_options;

enum { FM_COFOLD_STEPS = 65536 };

typedef enum fm_cofold_tape {
    FM_COFOLD_CYCLE,
    FM_COFOLD_DISTOGRAM,
    FM_COFOLD_PREPARE,
    FM_COFOLD_STEP,
    FM_COFOLD_CONFIDENCE,
    FM_COFOLD_TAPES
} fm_cofold_tape;

/* Recorded draws of another program, for N structures of A atoms and K steps. */
typedef struct fm_cofold_draws {
    const int64_t *msa_rows; /* [n_cycle, n_row]; rows below 0 behind the last one are no rows */
    int64_t n_row;
    const float *start;    /* [N, A, 3], standard normal, as offset and noise */
    const float *rotation; /* [K, N, 9] by rows */
    const float *offset;   /* [K, N, 3] */
    const float *noise;    /* [K, N, A, 3] */
    int64_t n_structure;   /* N */
} fm_cofold_draws;

typedef struct fm_cofold_passes {
    fm_cofold_passes_options options;
    fm_recording recording; /* its passes have the numbers of the tapes */
    fm_af3_weights weights;
    fm_af3_inputs inputs;
    fm_af3_rollout rollout;
    fm_af3_step_rows rows;
    int32_t clocks;           /* in the state, [S, FM_CLOCK_WORDS]: of the structures in a step */
    int32_t structure;        /* in the state, acc [n_atom, 3]: that the confidence head judges */
    fm_af3_step_results made; /* of the step */
    fm_af3_confidence_logits logits; /* of the confidence head */
    fm_tensor_ref distogram;         /* act [N, N, 64] */
    fm_mirror mirror;
    void *room; /* device memory: of what each step makes before its blocks (modulation.h) */
    fm_arena scratch;
    /* Of the complex in hand. */
    const fm_af3_sample *sample;
    const fm_cofold_draws *draws;
    uint32_t seed;
} fm_cofold_passes;

/* Records the passes. FM_ERR_NOMEM, and as fm_af3_check_products. */
FM_MUST_USE fm_status fm_cofold_passes_create(const fm_cofold_passes_options *options,
                                              fm_cofold_passes **ret_passes, fm_error *reterr);
void fm_cofold_passes_destroy(fm_cofold_passes *passes);

typedef struct fm_cofold_bytes {
    int64_t device;                /* that the passes take, without the parameters */
    int64_t locked;                /* of the host, page-locked; 0 on a CPU */
    int64_t state;                 /* of `device`: what outlives a pass; the rest is the arena */
    int64_t tape[FM_COFOLD_TAPES]; /* of the arena, which is as large as the largest of them */
} fm_cofold_bytes;

fm_cofold_bytes fm_cofold_passes_taken(const fm_cofold_passes *passes);
/* Finds it without taking it. Errors as above. */
FM_MUST_USE fm_status fm_cofold_passes_plan(const fm_cofold_passes_options *options,
                                            fm_cofold_bytes *ret_bytes, fm_error *reterr);

/* Takes a complex, which must stay as it is until the work has ended, and writes its features. It
 * must fit the recorded sizes (assert). `draws` is NULL without `given`. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_cofold_passes_begin(fm_cofold_passes *passes, const fm_af3_sample *sample,
                                             uint32_t seed, const fm_cofold_draws *draws,
                                             fm_error *reterr);
/* Queues a cycle with its own MSA rows, of which it reads at most the recorded number. */
void fm_cofold_passes_queue_cycle(fm_cofold_passes *passes, uint32_t cycle);
/* Queues `prepare`, after the last cycle. */
void fm_cofold_passes_queue_prepare(fm_cofold_passes *passes);
/* Writes the structures first .. first + n - 1 at the first noise level, n <= S, and what their
 * steps need. */
FM_MUST_USE fm_status fm_cofold_passes_start(fm_cofold_passes *passes, int64_t first, int64_t n,
                                             fm_error *reterr);
/* Queues denoising step k of the structures that were started last. */
void fm_cofold_passes_queue_step(fm_cofold_passes *passes, int32_t k);
/* Reads those structures: x [n, A, 3] Å, with the sample's A atoms. Waits for the steps.
 * FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_cofold_passes_read(fm_cofold_passes *passes, int64_t n, double *x,
                                            fm_error *reterr);
void fm_cofold_passes_queue_distogram(fm_cofold_passes *passes);
/* Queues the confidence head on x [A, 3] Å. */
void fm_cofold_passes_queue_confidence(fm_cofold_passes *passes, const double *x);

#endif
