/* sublayer.h: one sublayer of a block as data: a block (evoformer.h) is a list of these.
 *
 * A block updates two representations: that of the MSA, m [N_seq, N_res, c_m], and that of the
 * pairs, z [N_res, N_res, c_z]. In AlphaFold 3's Pairformer the single representation, [1, N_res,
 * c_s], takes the place of the MSA. Each sublayer adds an update to one of them. MSA row attention
 * also reads the pairs, for its bias; so does pair-weighted averaging, for its weights. The outer
 * product mean reads the MSA. Facts that follow from the list are derived from it (block.c) and
 * stated nowhere else. They are the LayerNorm that reads a value next, the changes of an array's
 * split axis, and the numbers of the random draws. */
#ifndef FM_TRAINER_MODEL_SUBLAYER_H
#define FM_TRAINER_MODEL_SUBLAYER_H

#include "trainer/ops/attention.h"

#include <stddef.h>

typedef enum fm_representation { FM_MSA, FM_PAIR, FM_N_REPRESENTATION } fm_representation;

typedef enum fm_sublayer_kind {
    FM_SUBLAYER_ATTENTION,        /* weights: fm_attention_weights */
    FM_SUBLAYER_GLOBAL_ATTENTION, /* fm_global_attention_weights */
    FM_SUBLAYER_TRANSITION,       /* fm_transition_weights */
    FM_SUBLAYER_SWIGLU,           /* fm_swiglu_transition_weights */
    FM_SUBLAYER_AVERAGING,        /* fm_averaging_weights */
    FM_SUBLAYER_TRIANGLE,         /* fm_triangle_weights */
    FM_SUBLAYER_OUTER             /* fm_outer_weights */
} fm_sublayer_kind;

typedef enum fm_dropout_rate {
    FM_DROPOUT_NONE,
    FM_DROPOUT_MSA, /* fm_model_config.dropout_msa */
    FM_DROPOUT_PAIR /* fm_model_config.dropout_pair */
} fm_dropout_rate;

typedef struct fm_sublayer {
    fm_sublayer_kind kind;
    fm_representation updates;
    const char *name; /* of its node, for messages */
    /* Of the first of two nodes, where the node `name` ends the sublayer (recorder.h). Attentions
     * have one. */
    const char *update_name;
    size_t weights; /* offset in the weights of the block */
    /* Along which axis DAP splits each representation for it; FM_UNTOUCHED: it does not use it.
     * FM_WHOLE holds for all sublayers of a representation or for none. */
    int axis[FM_N_REPRESENTATION];
    fm_axial axial; /* of an attention */
    bool incoming;  /* of a triangle multiplication */
    fm_dropout_rate dropout;
} fm_sublayer;

/* FM_WHOLE: every rank has the whole array, and computes the same. */
enum { FM_UNTOUCHED = -1, FM_WHOLE = -2 };

/* Returns the representation that the sublayer must read first: the pairs for MSA row attention
 * and pair-weighted averaging, the MSA for the outer product mean, else the one that it updates. */
static inline fm_representation fm_sublayer_reads(const fm_sublayer *s) {
    fm_representation other = s->updates == FM_MSA ? FM_PAIR : FM_MSA;
    return s->axis[other] == FM_UNTOUCHED ? s->updates : other;
}

/* Whether the sublayer takes a number of the random draws, with or without dropout
 * (autograd/tape.h). */
static inline bool fm_sublayer_draws(const fm_sublayer *s) {
    return s->kind == FM_SUBLAYER_ATTENTION || s->kind == FM_SUBLAYER_TRIANGLE ||
           s->kind == FM_SUBLAYER_AVERAGING;
}

#endif
