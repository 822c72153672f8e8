/* cofold.h: predicts the structures of complexes with AlphaFold 3's network.
 *
 *     fm_cofold_create      the parameters' memory; the caller loads weights into it
 *     for each complex
 *         fm_cofold_find_need   optional: the memory that it takes
 *         for each seed
 *             fm_cofold_run_trunk   the trunk's cycles
 *             fm_cofold_sample      all denoising steps of the structures that are side by side
 *             fm_cofold_run         both, for all structures
 *             fm_cofold_structure   positions of a structure
 *             fm_cofold_distogram   makes logits of the trunk's pairs
 *             fm_cofold_judge       makes logits of the confidence head for a structure
 *             fm_cofold_logits      some rows of logits that were made last
 *
 * Heads may run between the structures of a seed: they change nothing that steps read.
 *
 * A run has no gradient and no dropout. A complex is padded to the next recorded sizes and masked,
 * so one recording (tapes, memory plan, CUDA graphs) serves all complexes of about its sizes. It is
 * kept until a complex of other sizes comes.
 *
 * Structures are denoised side by side: one at a time on a CPU, FM_COFOLD_SIDE on a GPU, however
 * many there are. Draws depend on the seed and on the structure's number. So structure k has the
 * same bits for every number of structures.
 *
 * Memory is planned before anything runs, with whole arrays or with the largest slabs that fit
 * (memory.h). */
#ifndef FM_TRAINER_INFER_COFOLD_H
#define FM_TRAINER_INFER_COFOLD_H

#include "trainer/infer/cofold_passes.h"

enum { FM_COFOLD_SIDE = 5, FM_COFOLD_STRUCTURES = 65536, FM_COFOLD_ROWS = 16384 };

typedef struct fm_cofold_options {
    /* The network. The sizes of a sample, cycles, steps and rates of dropout are not read; `noise`
     * is the schedule of the sampler with its factors, and `groups` are the ranks that share each
     * complex. */
    fm_af3_config model;
    const fm_kernels *kernels; /* the device; NULL: the CPU's table of f32 */
    int32_t n_cycle;           /* passes of the trunk, at least 1 */
    int32_t n_step;            /* denoising steps, 1 to FM_COFOLD_STEPS */
    int64_t n_structure;       /* of each seed, 1 to FM_COFOLD_STRUCTURES */
    /* Most rows of the MSA that a cycle reads. Each draws a number of rows that is uniform from 1
     * to all, and at most this. */
    int64_t n_row;
    /* Bytes of device memory for everything. 0: what the device has free, where that is known. */
    int64_t memory_budget_bytes;
    fm_slabs slabs;              /* for tests: instead of the planner's choice */
    int64_t side;                /* for tests: structures side by side; 0: as many as possible */
    bool exact;                  /* for comparisons: a recording has exactly the sample's sizes */
    bool given;                  /* for comparisons: every run has recorded draws */
    bool direct, spoils, rounds; /* as in fm_cofold_passes_options */
} fm_cofold_options;

typedef struct fm_cofold fm_cofold;

/* FM_ERR_NOMEM, FM_ERR_UNSUPPORTED as fm_af3_check_products. */
FM_MUST_USE fm_status fm_cofold_create(const fm_cofold_options *options, fm_cofold **ret_cofold,
                                       fm_error *reterr);
void fm_cofold_destroy(fm_cofold *cofold);

/* The parameters: master, and the copy in the activations' type. Nothing may be running. */
fm_params *fm_cofold_get_params(fm_cofold *cofold);

/* The sizes of a complex. */
typedef struct fm_cofold_sizes {
    int64_t n_token, n_atom, n_msa, n_template;
} fm_cofold_sizes;

/* The memory that a complex needs. */
typedef struct fm_cofold_need {
    int64_t bytes;           /* of device memory, the parameters among them */
    int64_t available_bytes; /* of the budget or the device; 0: not known */
    fm_cofold_sizes of;      /* as recorded; n_msa: rows of a cycle */
    int64_t n_side;          /* structures side by side */
    fm_slabs slabs;
    fm_cofold_bytes part; /* without the parameters */
} fm_cofold_need;

/* Plans a complex of these sizes and runs nothing. Returns FM_ERR_LIMIT when it does not fit;
 * *ret_need is set then, too, and the message has the bytes needed and available. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_cofold_find_need(const fm_cofold *cofold, const fm_cofold_sizes *sizes,
                                          fm_cofold_need *ret_need, fm_error *reterr);

/* FM_ERR_LIMIT when the sample has atoms in slots that the network does not have. fm_cofold_run
 * checks it, too. A sample may have any number of templates: no parameter depends on it. */
FM_MUST_USE fm_status fm_cofold_check(const fm_cofold *cofold, const fm_af3_sample *sample,
                                      fm_error *reterr);

typedef struct fm_cofold_times {
    double record_s;     /* to plan and take memory; 0 for a kept recording */
    double features_s;   /* to write the features */
    double trunk_s;      /* all cycles */
    double structures_s; /* all denoising steps */
} fm_cofold_times;

/* Runs the trunk, and waits for it. `draws` is NULL without `given`. The sample must stay as it is
 * until the next run or fm_cofold_destroy. FM_ERR_LIMIT as fm_cofold_find_need and
 * fm_cofold_check; FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_cofold_run_trunk(fm_cofold *cofold, const fm_af3_sample *sample,
                                          uint32_t seed, const fm_cofold_draws *draws,
                                          fm_cofold_times *ret_times, fm_error *reterr);
/* The structures that are denoised side by side, however many there are. */
int64_t fm_cofold_side(const fm_cofold *cofold);
/* Samples the structures first .. first + side - 1, as far as there are so many, and waits for
 * them; first must be a multiple of fm_cofold_side (assert). Adds its seconds to *times.
 * FM_ERR_DATA with the name of the first tensor when a position is not finite; FM_ERR_CLOSED when
 * a rank did not come to an exchange; FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_cofold_sample(fm_cofold *cofold, int64_t first, fm_cofold_times *times,
                                       fm_error *reterr);
/* Runs the trunk and samples all structures. The errors of both. */
FM_MUST_USE fm_status fm_cofold_run(fm_cofold *cofold, const fm_af3_sample *sample, uint32_t seed,
                                    const fm_cofold_draws *draws, fm_cofold_times *ret_times,
                                    fm_error *reterr);

/* The positions of structure k of the last run: [n_atom, 3] Å, valid until the next run. */
const double *fm_cofold_structure(const fm_cofold *cofold, int64_t k);

/* Makes the distogram's logits of the last run. Those of the confidence head are lost. */
void fm_cofold_distogram(fm_cofold *cofold);
/* Makes the confidence head's logits for structure k of the last run; others are lost. */
void fm_cofold_judge(fm_cofold *cofold, int64_t k);

/* Waits for the device: what ranks do that read no logits, between two heads. */
void fm_cofold_wait(const fm_cofold *cofold);

/* Heads, and the logits that they make. */
typedef enum fm_cofold_head {
    FM_COFOLD_PLDDT,          /* [n_atom, 50] */
    FM_COFOLD_RESOLVED,       /* [n_atom, 2] */
    FM_COFOLD_ALIGNED_ERROR,  /* [n_token, n_token, 64]: row = the frame's token */
    FM_COFOLD_DISTANCE_ERROR, /* the same, symmetric */
    FM_COFOLD_DISTANCE,       /* [n_token, n_token, 64]: the distogram, symmetric */
    FM_COFOLD_HEADS
} fm_cofold_head;

/* Bins of a head. */
int64_t fm_cofold_bins(const fm_cofold *cofold, fm_cofold_head head);

/* Copies logits of a head, made last, without padding: rows first .. first + n_row - 1, which must
 * be rows of the complex (assert), as f32 [n_row, n_bin] or [n_row, n_token, n_bin] in the arena.
 * Waits for the device. FM_ERR_LIMIT if the arena is full. */
FM_MUST_USE fm_status fm_cofold_logits(fm_cofold *cofold, fm_cofold_head head, int64_t first,
                                       int64_t n_row, fm_arena *arena, float **ret_logits,
                                       fm_error *reterr);

/* Returns the recording of the last run, for tests and benchmarks; NULL before the first. */
fm_cofold_passes *fm_cofold_get_passes(const fm_cofold *cofold);

#endif
