/* infer.h: inference: predicts the structures and confidences of whole chains.
 *
 *     fm_infer_create          the parameters' memory; the caller loads a checkpoint into it
 *     fm_infer_run             one chain: all its cycles, its losses and the last cycle's atoms
 *     fm_infer_head            logits of that chain's heads
 *     fm_infer_aligned_error   the same for some rows of the aligned error head
 *
 * A run has no gradient and no saved tensors. It has dropout only with the option `dropout`. A
 * chain is not cropped. It is padded to the next length of fm_infer_round and masked, so one
 * recording (tapes, memory plan, CUDA graphs) serves all chains of about that length. The recorded
 * length depends only on the chain's length, so the bits of a result do not depend on other chains.
 * A longer recording changes results only by rounding. Recordings are kept as far as memory allows:
 * 64, or eight where the free memory is not known. A caller that orders chains by length needs each
 * recording once.
 *
 * Memory is planned before anything runs. Where the arrays of a sublayer are too large for the
 * memory, or for the 32-bit indices of kernels, the recording is chunked. Then attention,
 * transitions, outer products and template attention work on slabs of the largest size that fits
 * (fm_tape.chunk_bytes). The values are those of the whole arrays to rounding
 * (docs/reference/inference.md). */
#ifndef FM_TRAINER_INFER_H
#define FM_TRAINER_INFER_H

#include "trainer/infer/forward.h"

typedef struct fm_infer_options {
    /* n_res and dropout are ignored. n_seq and n_extra are the recorded numbers of rows. With
     * `predicts` they are upper limits: fewer are recorded for a chain with fewer rows. */
    fm_model_config model;
    const fm_kernels *kernels; /* the device; NULL: the CPU's table of f32 */
    /* The ranks that share each chain (DAP); NULL: one rank. All of them call fm_infer_run with the
     * same chains in the same order, and all get the same results. Memory is that of one rank. */
    const fm_groups *groups;
    double weight[FM_LOSS_TERMS];
    unsigned heads; /* bits 1 << FM_HEAD_...: the logits that fm_infer_head can give */
    /* No truth and no losses: the all_atom arrays, true_msa and bert_mask of the features are not
     * read. All cycles use one recording. */
    bool predicts;
    /* With `predicts`: draws of MSA rows in each cycle (AlphaFold's num_ensemble), whose m and z
     * are averaged; 0 is 1. A sample has n_draw draws for each cycle, and those of one cycle are
     * neighbours. */
    int32_t n_draw;
    bool dropout; /* keeps the model's rates, for sampling; see fm_infer_seed */
    /* In Å. If > 0, with `predicts`: recycling ends when a cycle changes the distances between
     * CA atoms by less. The change is the root of the mean square over all pairs. 0: all cycles
     * run. */
    double recycle_tol;
    /* Bytes of device memory for everything. 0: what the device has free, where that is known. */
    int64_t memory_budget_bytes;
    int64_t chunk_bytes;   /* for tests: fm_tape.chunk_bytes instead of the planner's choice */
    bool chunks_triangles; /* with chunk_bytes, for tests: fm_tape.chunks_triangles */
    bool direct, spoils;   /* as in fm_forward_options: for comparisons and checks */
    bool exact; /* for comparisons: a recording has exactly the chain's length, and all rows */
} fm_infer_options;

typedef struct fm_infer fm_infer;

/* FM_ERR_NOMEM, FM_ERR_UNSUPPORTED as fm_forward_create. */
FM_MUST_USE fm_status fm_infer_create(const fm_infer_options *options, fm_infer **ret_infer,
                                      fm_error *reterr);
void fm_infer_destroy(fm_infer *infer);

/* The parameters: master, and the copy in the activations' type. No chain may be running. */
fm_params *fm_infer_get_params(fm_infer *infer);

/* Returns the recorded length for a chain: n_res rounded up, to a multiple of 16 below 512, and by
 * at most 1/8 above 128. */
int64_t fm_infer_round(int64_t n_res);

/* The memory that a chain needs. */
typedef struct fm_infer_need {
    int64_t bytes;           /* of device memory, the parameters among them */
    int64_t available_bytes; /* of the budget or the device; 0: not known */
    int64_t locked_bytes;    /* page-locked memory of the host; 0 on a CPU */
    int64_t n_res;           /* the recorded length */
    int64_t chunk_bytes;     /* of the workspace of a chunked recording; 0: not chunked */
    bool chunks_triangles;   /* triangle multiplications work in slabs, too */
} fm_infer_need;

/* Plans a chain of n_res residues and runs nothing. Returns FM_ERR_LIMIT when the chain does not
 * fit; *ret_need is set then too. The message has the bytes needed and available, the longest chain
 * that fits, and whether the chain would fit with fewer extra MSA rows. Also FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_infer_find_need(const fm_infer *infer, int64_t n_res,
                                         fm_infer_need *ret_need, fm_error *reterr);

/* Sets the seed of dropout for the following runs; it is 0 at first. Equal seeds give equal
 * results.
 */
void fm_infer_seed(fm_infer *infer, uint64_t seed);

/* The results of a chain. Arrays are in the caller's arena. */
typedef struct fm_infer_result {
    fm_sample_result losses; /* without gradient_norm; terms that the model lacks are 0 */
    /* Without a structure module the arrays below are NULL; truth and known with `predicts` too. */
    float *atoms;     /* [N_res, 14, 3] Å, predicted */
    float *truth;     /* [N_res, 14, 3] Å, of the sample's coordinates */
    uint8_t *known;   /* [N_res, 14]; 1 = the true atom is known */
    float *plddt;     /* [N_res] 0..100 (Algorithm 29); NULL without FM_HEAD_PLDDT */
    uint32_t n_cycle; /* cycles that ran */
    /* Change of the distances between CA atoms in the last cycle, Å. NaN without recycle_tol, and
     * after a single cycle. */
    double ca_change;
    double record_s, run_s; /* to plan and take memory, 0 for a kept recording; to run */
} fm_infer_result;

/* Runs one chain. FM_ERR_LIMIT when its memory does not fit, as fm_infer_find_need. FM_ERR_DATA
 * when the sample is refused or a value is not finite, as fm_forward_score.
 * FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_infer_run(fm_infer *infer, const fm_features *features, fm_arena *arena,
                                   fm_infer_result *ret_result, fm_error *reterr);

/* Copies the logits of a head of the chain that ran last, without padding: f32 [N_res, n_bin], or
 * [N_res, N_res, n_bin] of pairs. Those of the distogram are made symmetric. *ret_logits is NULL
 * and *ret_n_bin 0 if the model lacks the head or the options did not name it. FM_ERR_LIMIT if the
 * arena is full. */
FM_MUST_USE fm_status fm_infer_head(fm_infer *infer, fm_head head, fm_arena *arena,
                                    float **ret_logits, int64_t *ret_n_bin, fm_error *reterr);

/* Copies the logits of the aligned error head of that chain for some rows of pairs: f32 [n_row,
 * N_res, n_bin] of rows first .. first + n_row - 1, which must be rows of the chain (assert).
 * Everything else is as in fm_infer_head. */
FM_MUST_USE fm_status fm_infer_aligned_error(fm_infer *infer, uint32_t first, uint32_t n_row,
                                             fm_arena *arena, float **ret_logits,
                                             int64_t *ret_n_bin, fm_error *reterr);

/* Returns the recording that ran last, for tests and benchmarks; NULL before the first run. */
fm_forward *fm_infer_get_recording(const fm_infer *infer);

/* Writes a description of the recording that ran last to out. */
void fm_infer_describe(const fm_infer *infer, char *out, size_t out_bytes);

#endif
