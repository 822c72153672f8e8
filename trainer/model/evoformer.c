/* evoformer.c: see evoformer.h. */
#include "trainer/model/evoformer.h"

#include <assert.h>

/* Draws of the sublayers that the other branch's rank records: row and column attention (global
 * column attention draws nothing); two triangle multiplications and two attentions. */
enum { PAIR_DRAWS = 4 };

static uint32_t msa_draws(const fm_model_config *config) {
    return config->global_column ? 1 : 2;
}

static fm_keep keep_hidden(const fm_model_config *config) {
    return config->recompute == FM_RECOMPUTE_HIDDEN ? FM_RECOMPUTE : FM_KEEP;
}

static const char ROW[] = "msa row attention", OUTGOING[] = "triangle multiplication outgoing",
                  INCOMING[] = "triangle multiplication incoming",
                  STARTING[] = "triangle attention starting",
                  ENDING[] = "triangle attention ending";

static fm_tensor_ref msa_column(fm_tape *tape, const fm_model_config *config,
                                const fm_evoformer_weights *w, fm_tensor_ref m,
                                const fm_views *mask) {
    if (config->global_column) {
        return fm_op_global_attention(tape, "msa column global attention", m, mask->columns,
                                      &w->global_column, true); /* A18:3 */
    }
    return fm_op_attention(tape, "msa column attention", FM_AXIAL_COLUMN, m, mask->columns,
                           FM_TENSOR_NONE, &w->column, true, 0); /* A6:3 */
}

/* m split along axis 0 before, along axis 1 after. */
static fm_tensor_ref msa_stack(fm_tape *tape, const fm_model_config *config,
                               const fm_evoformer_weights *w, fm_tensor_ref m, fm_tensor_ref z,
                               const fm_views *mask) {
    m = fm_split_attention(tape, config, ROW, FM_AXIAL_ROW, m, mask, z, &w->row,
                           config->dropout_msa); /* A6:2 */
    m = fm_split_change(tape, config, "msa to columns", m, 1);
    m = msa_column(tape, config, w, m, mask);
    return fm_op_transition(tape, "msa transition", m, &w->msa_transition, true,
                            keep_hidden(config)); /* A6:4 */
}

fm_tensor_ref fm_evoformer_pair_stack(fm_tape *tape, const fm_model_config *config,
                                      const fm_evoformer_weights *w, fm_tensor_ref z,
                                      const fm_views *mask) {
    double rate = config->dropout_pair;
    z = fm_split_triangle(tape, config, OUTGOING, false, z, mask, &w->outgoing, rate); /* A6:6 */
    z = fm_split_change(tape, config, "pair to columns", z, 1);
    z = fm_split_triangle(tape, config, INCOMING, true, z, mask, &w->incoming, rate); /* A6:7 */
    z = fm_split_change(tape, config, "pair to rows", z, 0);
    z = fm_split_attention(tape, config, STARTING, FM_AXIAL_STARTING, z, mask, FM_TENSOR_NONE,
                           &w->starting, rate); /* A6:8 */
    z = fm_split_change(tape, config, "pair to columns", z, 1);
    z = fm_split_attention(tape, config, ENDING, FM_AXIAL_ENDING, z, mask, FM_TENSOR_NONE,
                           &w->ending, rate); /* A6:9 */
    z = fm_op_transition(tape, "pair transition", z, &w->pair_transition, true,
                         keep_hidden(config)); /* A6:10 */
    return fm_split_change(tape, config, "pair to rows", z, 0);
}

/* The pair stack, and under it the change of m for the next block's first sublayer. */
static fm_pair_of_streams pair_stack(fm_tape *tape, const fm_model_config *config,
                                     const fm_evoformer_weights *w, fm_pair_of_streams x,
                                     const fm_views *mask, bool last) {
    if (last) {
        x.z = fm_evoformer_pair_stack(tape, config, w, x.z, mask);
        return x;
    }
    fm_change rows = fm_split_change_begin(tape, config, "msa to rows", x.m, 0);
    x.z = fm_evoformer_pair_stack(tape, config, w, x.z, mask);
    x.m = fm_split_change_finish(tape, &rows);
    return x;
}

/* Both stacks on split arrays where neither waits for the other: each change of one runs under work
 * of the other. Draws are numbered as if the MSA's stack came first. m becomes split along axis 0
 * by *msa_rows and ends split along axis 1; z begins along axis 0 and is on its way back there. */
static fm_pair_of_streams both_stacks(fm_tape *tape, const fm_model_config *config,
                                      const fm_evoformer_weights *w, const fm_change *msa_rows,
                                      fm_tensor_ref z, const fm_views *msa_mask,
                                      const fm_views *pair_mask, fm_change *ret_pair_rows) {
    uint32_t msa_draw = tape->n_draw, pair_draw = msa_draw + msa_draws(config);
    double rate = config->dropout_pair;
    fm_pair_of_streams x;
    fm_gather bias = fm_split_bias_begin(tape, config, ROW, FM_AXIAL_ROW, z, &w->row);
    fm_tape_seek_draw(tape, pair_draw);
    x.z = fm_split_triangle(tape, config, OUTGOING, false, z, pair_mask, &w->outgoing, rate);
    fm_change columns = fm_split_change_begin(tape, config, "pair to columns", x.z, 1);
    x.m = fm_split_change_finish(tape, msa_rows);
    fm_tape_seek_draw(tape, msa_draw);
    x.m = fm_split_bias_finish(tape, ROW, FM_AXIAL_ROW, &bias, x.m, msa_mask, &w->row,
                               config->dropout_msa);
    fm_change msa_columns = fm_split_change_begin(tape, config, "msa to columns", x.m, 1);
    x.z = fm_split_change_finish(tape, &columns);
    fm_tape_seek_draw(tape, pair_draw + 1);
    x.z = fm_split_triangle(tape, config, INCOMING, true, x.z, pair_mask, &w->incoming, rate);
    fm_change rows = fm_split_change_begin(tape, config, "pair to rows", x.z, 0);
    x.m = fm_split_change_finish(tape, &msa_columns);
    fm_tape_seek_draw(tape, msa_draw + 1);
    x.m = msa_column(tape, config, w, x.m, msa_mask);
    x.z = fm_split_change_finish(tape, &rows);
    fm_tape_seek_draw(tape, pair_draw + 2);
    x.z = fm_split_attention(tape, config, STARTING, FM_AXIAL_STARTING, x.z, pair_mask,
                             FM_TENSOR_NONE, &w->starting, rate);
    columns = fm_split_change_begin(tape, config, "pair to columns", x.z, 1);
    x.m = fm_op_transition(tape, "msa transition", x.m, &w->msa_transition, true,
                           keep_hidden(config));
    x.z = fm_split_change_finish(tape, &columns);
    x.z = fm_split_attention(tape, config, ENDING, FM_AXIAL_ENDING, x.z, pair_mask, FM_TENSOR_NONE,
                             &w->ending, rate);
    x.z = fm_op_transition(tape, "pair transition", x.z, &w->pair_transition, true,
                           keep_hidden(config));
    *ret_pair_rows = fm_split_change_begin(tape, config, "pair to rows", x.z, 0);
    return x;
}

static fm_split_outer outer_begin(fm_tape *tape, const fm_model_config *config,
                                  const fm_evoformer_weights *w, fm_tensor_ref m) {
    return fm_split_outer_begin(tape, config, "outer product mean", m, &w->outer);
}

static fm_tensor_ref outer(fm_tape *tape, const fm_model_config *config,
                           const fm_evoformer_weights *w, fm_tensor_ref m, fm_tensor_ref z,
                           const fm_views *mask) {
    fm_split_outer begun = outer_begin(tape, config, w, m);
    return fm_split_outer_finish(tape, config, &begun, mask, z);
}

static fm_pair_of_streams original(fm_tape *tape, const fm_model_config *config,
                                   const fm_evoformer_weights *w, fm_pair_of_streams x,
                                   const fm_views *msa_mask, const fm_views *pair_mask, bool last) {
    assert(fm_split_has_msa(config) && fm_split_has_pair(config) &&
           "the original order has no branches to run side by side");
    x.m = msa_stack(tape, config, w, x.m, x.z, msa_mask);
    x.z = outer(tape, config, w, x.m, x.z, msa_mask); /* A6:5 */
    return pair_stack(tape, config, w, x, pair_mask, last);
}

static fm_pair_of_streams outer_first(fm_tape *tape, const fm_model_config *config,
                                      const fm_evoformer_weights *w, fm_pair_of_streams x,
                                      const fm_views *msa_mask, const fm_views *pair_mask) {
    bool msa = fm_split_has_msa(config), pair = fm_split_has_pair(config);
    fm_change rows = {.x = FM_TENSOR_NONE};
    if (msa) {
        fm_split_outer begun = outer_begin(tape, config, w, x.m);
        rows = fm_split_change_begin(tape, config, "msa to rows", x.m, 0);
        x.z = fm_split_outer_finish(tape, config, &begun, msa_mask, pair ? x.z : FM_TENSOR_NONE);
    }
    if (msa && pair && fm_split_is_split(config)) {
        fm_change pair_rows;
        x = both_stacks(tape, config, w, &rows, x.z, msa_mask, pair_mask, &pair_rows);
        x.z = fm_split_change_finish(tape, &pair_rows);
        return x;
    }
    x.z = fm_split_join(tape, config, "branches", x.z);
    if (msa) {
        x.m = fm_split_change_finish(tape, &rows);
        x.m = msa_stack(tape, config, w, x.m, x.z, msa_mask);
    } else {
        fm_tape_skip_draws(tape, msa_draws(config));
    }
    if (pair) {
        x.z = fm_evoformer_pair_stack(tape, config, w, x.z, pair_mask);
    } else {
        fm_tape_skip_draws(tape, PAIR_DRAWS);
        x.z = FM_TENSOR_NONE;
    }
    return x;
}

/* The order parallel on split arrays, both branches here. */
static fm_pair_of_streams parallel_split(fm_tape *tape, const fm_model_config *config,
                                         const fm_evoformer_weights *w, fm_pair_of_streams x,
                                         const fm_views *msa_mask, const fm_views *pair_mask,
                                         bool last) {
    fm_change rows = {.x = x.m}, pair_rows;
    x = both_stacks(tape, config, w, &rows, x.z, msa_mask, pair_mask, &pair_rows);
    fm_split_outer begun = outer_begin(tape, config, w, x.m);
    if (!last) {
        rows = fm_split_change_begin(tape, config, "msa to rows", x.m, 0);
    }
    x.z = fm_split_change_finish(tape, &pair_rows);
    x.z = fm_split_outer_finish(tape, config, &begun, msa_mask, x.z);
    x.m = last ? x.m : fm_split_change_finish(tape, &rows);
    return x;
}

static fm_pair_of_streams parallel(fm_tape *tape, const fm_model_config *config,
                                   const fm_evoformer_weights *w, fm_pair_of_streams x,
                                   const fm_views *msa_mask, const fm_views *pair_mask, bool last) {
    bool msa = fm_split_has_msa(config), pair = fm_split_has_pair(config);
    if (msa && pair && fm_split_is_split(config)) {
        return parallel_split(tape, config, w, x, msa_mask, pair_mask, last);
    }
    fm_split_outer begun = {0};
    if (msa) {
        x.m = msa_stack(tape, config, w, x.m, x.z, msa_mask);
        begun = outer_begin(tape, config, w, x.m);
    } else {
        fm_tape_skip_draws(tape, msa_draws(config));
    }
    fm_change rows = {.x = x.m};
    if (msa && !last) {
        rows = fm_split_change_begin(tape, config, "msa to rows", x.m, 0);
    }
    if (pair) {
        x.z = fm_evoformer_pair_stack(tape, config, w, x.z, pair_mask);
    } else {
        fm_tape_skip_draws(tape, PAIR_DRAWS);
    }
    if (msa) {
        x.z = fm_split_outer_finish(tape, config, &begun, msa_mask, pair ? x.z : FM_TENSOR_NONE);
    }
    x.m = msa && !last ? fm_split_change_finish(tape, &rows) : x.m;
    x.z = fm_split_join(tape, config, "branches", x.z);
    return x;
}

fm_pair_of_streams fm_evoformer_block(fm_tape *tape, const fm_model_config *config,
                                      const fm_evoformer_weights *w, fm_pair_of_streams in,
                                      const fm_views *msa_mask, const fm_views *pair_mask,
                                      bool last) {
    fm_tape_begin_segment(tape, config->recompute == FM_RECOMPUTE_BLOCK);
    switch (config->order) {
    case FM_ORDER_ORIGINAL: in = original(tape, config, w, in, msa_mask, pair_mask, last); break;
    case FM_ORDER_OUTER_FIRST: in = outer_first(tape, config, w, in, msa_mask, pair_mask); break;
    case FM_ORDER_PARALLEL: in = parallel(tape, config, w, in, msa_mask, pair_mask, last); break;
    }
    fm_tape_end_segment(tape);
    return in;
}

fm_tensor_ref fm_template_block(fm_tape *tape, const fm_model_config *config,
                                const fm_template_block_weights *w, fm_tensor_ref t,
                                const fm_views *mask) {
    double rate = config->dropout_pair;
    fm_tape_begin_segment(tape, config->recompute == FM_RECOMPUTE_BLOCK);
    t = fm_split_attention(tape, config, "template attention starting", FM_AXIAL_STARTING, t, mask,
                           FM_TENSOR_NONE, &w->starting, rate); /* A16:2 */
    t = fm_split_change(tape, config, "template to columns", t, 1);
    t = fm_split_attention(tape, config, "template attention ending", FM_AXIAL_ENDING, t, mask,
                           FM_TENSOR_NONE, &w->ending, rate); /* A16:3 */
    t = fm_split_change(tape, config, "template to rows", t, 0);
    t = fm_split_triangle(tape, config, "template multiplication outgoing", false, t, mask,
                          &w->outgoing, rate); /* A16:4 */
    t = fm_split_change(tape, config, "template to columns", t, 1);
    t = fm_split_triangle(tape, config, "template multiplication incoming", true, t, mask,
                          &w->incoming, rate); /* A16:5 */
    t = fm_op_transition(tape, "template transition", t, &w->transition, true,
                         keep_hidden(config)); /* A16:6 */
    t = fm_split_change(tape, config, "template to rows", t, 0);
    fm_tape_end_segment(tape);
    return t;
}
