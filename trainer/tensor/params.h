/* params.h: all parameters as ONE offset map over flat buffers.
 *
 *     master   |block|block|block| ...   fp32 (f64 in gradient checks)
 *     gradient |block|block|block| ...   same offsets in all of them
 *     m, v     |block|block|block| ...   Adam's moments
 *     ema      |block|block|block| ...   exponential moving average
 *     copy     |block|block|block| ...   what ops read, where activations are narrower (bf16)
 *
 * A block is what one GEMM reads: a single matrix, or several matrices of one module side by side
 * (q k v g of an attention; the five of a triangle multiplication; a and b of an outer product
 * mean), each [c_out, c_in] in C order, stacked along c_out. A parameter (a row of the table) is a
 * slice of a block with a name of ours and the two foreign names under which OpenFold and DeepMind
 * keep it; checkpoints store logical names, so that another fusion never breaks a file.
 *
 * Blocks start at multiples of FM_PARAMS_ALIGN elements; the gap is zero in every buffer and stays
 * so, which lets clip, Adam, EMA and the norm run over the whole flat length. */
#ifndef FM_TRAINER_PARAMS_H
#define FM_TRAINER_PARAMS_H

#include "proto/base/arena.h"
#include "trainer/tensor/tensor.h"

enum { FM_PARAMS_ALIGN = 64, FM_PARAM_RANK = 2, FM_PARAM_NONE = -1 };

/* How DeepMind's array differs from ours ([c_out, c_in]). */
typedef enum fm_deepmind_layout {
    FM_DEEPMIND_SAME,       /* vectors */
    FM_DEEPMIND_TRANSPOSED, /* [c_in, c_out] */
    FM_DEEPMIND_HEADS_OUT,  /* [c_in, N_head, c]: q, k, v, gate weights; [N_head, c] their biases */
    FM_DEEPMIND_HEADS_IN,   /* [N_head, c, c_out]: output weights; OPM [c, c, c_z] */
} fm_deepmind_layout;

typedef struct fm_param {
    const char *name;       /* "evoformer.0.msa_row_attention.q.weight" */
    const char *openfold;   /* "evoformer.blocks.0.msa_att_row.mha.linear_q.weight" */
    const char *deepmind;   /* ".../evoformer_iteration/...//query_w", below alphafold_iteration/ */
    int32_t deepmind_layer; /* index on the leading axis of DeepMind's stacked array, -1 = none */
    fm_deepmind_layout deepmind_layout;
    int64_t deepmind_heads; /* N_head of the two layouts that have it (c of an OPM), else 0 */
    uint8_t rank;
    int64_t shape[FM_PARAM_RANK]; /* [c_out, c_in] or [c] */
    fm_init_kind init;
    double init_scale; /* of the kind: fm_init_kind */
    int32_t block;
    int64_t offset; /* elements from the start of a flat buffer */
} fm_param;

typedef struct fm_param_block {
    int64_t offset; /* elements, a multiple of FM_PARAMS_ALIGN */
    int64_t count;  /* elements */
    int64_t zeros;  /* elements before it that belong to no block, at least */
} fm_param_block;

/* Position of a block: what an op holds. */
typedef int32_t fm_param_ref;

typedef struct fm_params {
    fm_param *param; /* [n_param] */
    int32_t n_param, max_param;
    fm_param_block *block; /* [n_block] */
    int32_t n_block, max_block;
    int64_t n_element; /* of one flat buffer, alignment gaps included */
    int64_t n_value;   /* parameters proper: the count people quote */
    /* Set by fm_params_allocate; flat buffers of n_element elements on the device. */
    const fm_kernels *kernels;
    fm_element element;
    void *master, *gradient, *moment1, *moment2, *ema;
    void *copy; /* act; NULL where act is acc: ops read master then */
    void *memory;
    int64_t memory_bytes;
} fm_params;

/* An empty table in the arena. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_params_init(fm_params *params, int32_t max_param, fm_arena *arena,
                                     fm_error *reterr);

/* Opens a new block; rows added from now on lie side by side in it. */
fm_param_ref fm_params_add_block(fm_params *params);
/* The same with a gap of at least `zeros` elements before it: the bias of a product whose first
 * outputs have none reads the gap. */
fm_param_ref fm_params_add_block_after_zeros(fm_params *params, int64_t zeros);

/* Appends *row (its block and offset are filled in) to the newest block. */
void fm_params_add(fm_params *params, const fm_param *row);

/* The row of one of our names / of an OpenFold name; NULL when there is none. Linear search. */
const fm_param *fm_params_find(const fm_params *params, const char *name);
const fm_param *fm_params_find_openfold(const fm_params *params, const char *name);

/* Elements of one row. */
int64_t fm_param_count(const fm_param *param);

/* Takes device memory for the flat buffers, zeroed; elements are the table's acc type.
 * FM_ERR_NOMEM says how much was asked for. fm_params_release gives it back. */
FM_MUST_USE fm_status fm_params_allocate(fm_params *params, const fm_kernels *kernels,
                                         fm_error *reterr);
void fm_params_release(fm_params *params);

/* Fills master (and ema) from the table's initialisers. A parameter draws with the hash of its name
 * as layer, so that values depend neither on fusion nor on what else is in the table. */
void fm_params_draw(fm_params *params, uint64_t seed);

/* Makes the copy of a narrower type again from master, after a load; nothing where there is none.
 */
void fm_params_refresh_copy(fm_params *params);

/* Pointer to an element offset of a flat buffer of the acc type. */
static inline void *fm_params_at(const fm_params *params, void *flat, int64_t offset) {
    return (char *)flat + offset * (int64_t)fm_element_bytes(params->element);
}

#endif
