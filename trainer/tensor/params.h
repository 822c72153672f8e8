/* params.h: the table of all parameters, as one map of offsets over flat buffers.
 *
 *     master   |block|block|block| ...   fp32 (f64 in gradient checks)
 *     gradient |block|block|block| ...   same offsets in all of them
 *     m, v     |block|block|block| ...   Adam's moments
 *     ema      |block|block|block| ...   exponential moving average
 *     copy     |block|block|block| ...   what ops read if activations are narrower (bf16)
 *
 * A block is what one GEMM reads. It is a single matrix, or several matrices of one module side by
 * side: q k v g of an attention; the five of a triangle multiplication; a and b of an outer product
 * mean. Each matrix is [c_out, c_in] in C order, and they are stacked along c_out.
 *
 * A parameter (a row of the table) is a slice of a block. It has our own name and the two foreign
 * names that OpenFold and DeepMind use for it. Checkpoints store our names, so a file stays
 * readable when projections are fused differently.
 *
 * Constants are values that are drawn once and never trained, such as AlphaFold 3's Fourier
 * embedding. Their rows are the last ones of the table, so everything that trains works on the
 * elements before them (fm_params_trained), while checkpoints, imports and exports treat them like
 * all rows.
 *
 * Blocks start at multiples of FM_PARAMS_ALIGN elements. The gap before a block is zero in every
 * buffer and stays zero, so clipping, Adam, the average and the norm run over the whole flat
 * length. */
#ifndef FM_TRAINER_PARAMS_H
#define FM_TRAINER_PARAMS_H

#include "proto/base/arena.h"
#include "trainer/tensor/tensor.h"

enum { FM_PARAMS_ALIGN = 64, FM_PARAM_RANK = 3, FM_PARAM_NONE = -1 };

/* How DeepMind's array differs from ours, which is [c_out, c_in]. */
typedef enum fm_deepmind_layout {
    FM_DEEPMIND_SAME,       /* vectors */
    FM_DEEPMIND_TRANSPOSED, /* [c_in, c_out] */
    /* weights of q, k, v, gate: [c_in, N_head, c]; their biases: [N_head, c] */
    FM_DEEPMIND_HEADS_OUT,
    /* output weights: [N_head, c, c_out]; outer product mean: [c, c, c_z] */
    FM_DEEPMIND_HEADS_IN,
} fm_deepmind_layout;

typedef struct fm_param {
    const char *name;       /* "evoformer.0.msa_row_attention.q.weight" */
    const char *openfold;   /* "evoformer.blocks.0.msa_att_row.mha.linear_q.weight" */
    const char *deepmind;   /* ".../evoformer_iteration/...//query_w", below alphafold_iteration/ */
    int32_t deepmind_layer; /* index on the leading axis of DeepMind's stacked array, -1 = none */
    fm_deepmind_layout deepmind_layout;
    int64_t deepmind_heads; /* N_head of the two layouts with heads (c of an OPM), else 0 */
    uint8_t rank;
    int64_t shape[FM_PARAM_RANK]; /* [c_out, c_in] or [c]; AF3: a stack of matrices */
    fm_init_kind init;
    double init_scale; /* meaning depends on init */
    int32_t block;
    int64_t offset; /* elements from the start of a flat buffer */
} fm_param;

typedef struct fm_param_block {
    int64_t offset; /* elements, a multiple of FM_PARAMS_ALIGN */
    int64_t count;  /* elements */
    int64_t zeros;  /* at least this many elements before it belong to no block and are 0 */
} fm_param_block;

/* Position of a block in the table; ops refer to blocks by it. */
typedef int32_t fm_param_ref;

typedef struct fm_params {
    fm_param *param; /* [n_param] */
    int32_t n_param, max_param;
    bool has_constants;    /* the rows whose offset is n_trained or more */
    fm_param_block *block; /* [n_block] */
    int32_t n_block, max_block;
    int64_t n_element;     /* of one flat buffer, alignment gaps included */
    int64_t first_trained; /* elements before this one stay as they are; a multiple of the align */
    int64_t n_trained;     /* elements before the first constant, where there are constants */
    int64_t n_value; /* trained parameters without gaps: the model's size as people quote it */
    /* Set by fm_params_allocate; flat buffers of n_element elements on the device. */
    const fm_kernels *kernels;
    fm_element element;
    void *master, *gradient, *moment1, *moment2, *ema;
    void *copy; /* act type; NULL if act is acc: ops then read master */
    void *memory;
    int64_t memory_bytes;
} fm_params;

/* Initialises an empty table with room for max_param rows; the arena must outlive it.
 * FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_params_init(fm_params *params, int32_t max_param, fm_arena *arena,
                                     fm_error *reterr);

/* Opens a new block. Rows added from now on are stored side by side in it. */
fm_param_ref fm_params_add_block(fm_params *params);
/* The same with a gap of at least `zeros` elements before the block. The bias of a product whose
 * first outputs have no bias starts in this gap and reads zeros. */
fm_param_ref fm_params_add_block_after_zeros(fm_params *params, int64_t zeros);

/* Appends *row to the newest block; fills in its block and offset. Texts of the row are
 * borrowed. */
void fm_params_add(fm_params *params, const fm_param *row);

/* Rows that are added after this call are constants. */
void fm_params_begin_constants(fm_params *params);

/* The end of the elements that are trained; constants and their gaps follow it. */
static inline int64_t fm_params_trained(const fm_params *params) {
    return params->has_constants ? params->n_trained : params->n_element;
}

/* Returns the row of that name; NULL if there is none. Linear search. */
const fm_param *fm_params_find(const fm_params *params, const char *name);

/* Elements of one row. */
int64_t fm_param_count(const fm_param *param);

/* Allocates zeroed device memory for the flat buffers; elements have the table's acc type. On
 * FM_ERR_NOMEM the message says how much was asked for. fm_params_release frees the memory. */
FM_MUST_USE fm_status fm_params_allocate(fm_params *params, const fm_kernels *kernels,
                                         fm_error *reterr);
void fm_params_release(fm_params *params);

/* The same with master and copy only, for inference; the other buffers are NULL. */
FM_MUST_USE fm_status fm_params_allocate_values(fm_params *params, const fm_kernels *kernels,
                                                fm_error *reterr);
/* Makes a table use the memory of another one with the same rows, which must outlive it. */
void fm_params_borrow(fm_params *params, const fm_params *owner);

/* Fills master and ema, where there is one, from the table's initialisers. A parameter draws with
 * the hash of its name as layer, so its values depend neither on the fusion nor on the other rows
 * of the table. */
void fm_params_draw(fm_params *params, uint64_t seed);

/* Fills the narrow copy from master, after a load. Does nothing if there is no copy. */
void fm_params_refresh_copy(fm_params *params);

/* Pointer to an element of a flat buffer of the acc type. */
static inline void *fm_params_at(const fm_params *params, void *flat, int64_t offset) {
    return (char *)flat + offset * (int64_t)fm_element_bytes(params->element);
}

#endif
