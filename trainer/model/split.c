/* split.c: see split.h. */
#include "trainer/model/split.h"

#include "trainer/dist/groups.h"
#include "trainer/ops/attention_split.h"
#include "trainer/ops/triangle_split.h"

#include <assert.h>

static fm_comm *dap_of(const fm_model_config *config) {
    return config->groups ? config->groups->dap : NULL;
}

static fm_comm *bp_of(const fm_model_config *config) {
    return config->groups ? config->groups->bp : NULL;
}

bool fm_split_is_split(const fm_model_config *config) {
    return dap_of(config) != NULL;
}

bool fm_split_is_whole(const fm_model_config *config) {
    return !dap_of(config) && !bp_of(config);
}

bool fm_split_has_msa(const fm_model_config *config) {
    return !bp_of(config) || config->groups->place.bp == 0;
}

bool fm_split_has_pair(const fm_model_config *config) {
    return !bp_of(config) || config->groups->place.bp == 1;
}

static int64_t round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

fm_model_config fm_split_pad(const fm_model_config *config) {
    fm_model_config padded = *config;
    int64_t ranks = fm_groups_part(config->groups).count;
    padded.n_res = round_up(config->n_res, ranks);
    padded.n_seq = round_up(fm_model_config_rows(config), ranks) - config->n_template;
    padded.n_extra = round_up(config->n_extra, ranks);
    return padded;
}

/* ---- changes --------------------------------------------------------------------------------- */

fm_tensor_ref fm_split_slice(fm_tape *tape, const fm_model_config *config, const char *name,
                             fm_tensor_ref x, int axis) {
    return dap_of(config) ? fm_dap_slice(tape, name, fm_groups_part(config->groups), x, axis) : x;
}

fm_views fm_split_views(fm_tape *tape, const fm_model_config *config, fm_tensor_ref mask) {
    return (fm_views){.whole = mask,
                      .rows = fm_split_slice(tape, config, "mask rows", mask, 0),
                      .columns = fm_split_slice(tape, config, "mask columns", mask, 1)};
}

fm_change fm_split_change_begin(fm_tape *tape, const fm_model_config *config, const char *name,
                                fm_tensor_ref x, int axis) {
    if (!dap_of(config)) {
        return (fm_change){.x = x};
    }
    return (fm_change){FM_TENSOR_NONE, fm_dap_switch_begin(tape, name, dap_of(config), x, axis)};
}

fm_tensor_ref fm_split_change_finish(fm_tape *tape, const fm_change *change) {
    return change->x != FM_TENSOR_NONE ? change->x : fm_dap_switch_finish(tape, &change->exchange);
}

fm_tensor_ref fm_split_change(fm_tape *tape, const fm_model_config *config, const char *name,
                              fm_tensor_ref x, int axis) {
    fm_change change = fm_split_change_begin(tape, config, name, x, axis);
    return fm_split_change_finish(tape, &change);
}

fm_tensor_ref fm_split_gather(fm_tape *tape, const fm_model_config *config, const char *name,
                              fm_tensor_ref x) {
    if (!dap_of(config)) {
        return x;
    }
    fm_gather gather = fm_dap_gather_begin(tape, name, dap_of(config), x);
    return fm_dap_gather_finish(tape, &gather);
}

/* ---- sublayers ------------------------------------------------------------------------------- */

fm_gather fm_split_bias_begin(fm_tape *tape, const fm_model_config *config, const char *name,
                              fm_axial axial, fm_tensor_ref from, const fm_attention_weights *w) {
    fm_tensor_ref bias = fm_op_attention_bias(tape, name, axial, from, w);
    return fm_dap_gather_begin(tape, name, dap_of(config), bias);
}

fm_tensor_ref fm_split_bias_finish(fm_tape *tape, const char *name, fm_axial axial,
                                   const fm_gather *bias, fm_tensor_ref x, const fm_views *mask,
                                   const fm_attention_weights *w, double dropout) {
    fm_tensor_ref qkvg = fm_op_attention_project(tape, name, x, w);
    fm_tensor_ref whole = fm_dap_gather_finish(tape, bias);
    fm_tensor_ref part = axial == FM_AXIAL_ENDING ? mask->columns : mask->rows;
    return fm_op_attention_core(tape, name, axial, x, qkvg, part, whole, w, dropout);
}

fm_tensor_ref fm_split_attention(fm_tape *tape, const fm_model_config *config, const char *name,
                                 fm_axial axial, fm_tensor_ref x, const fm_views *mask,
                                 fm_tensor_ref z, const fm_attention_weights *w, double dropout) {
    if (!dap_of(config)) {
        return fm_op_attention(tape, name, axial, x, mask->whole, z, w, true, dropout);
    }
    fm_tensor_ref from = axial == FM_AXIAL_ROW ? z : x;
    fm_gather bias = fm_split_bias_begin(tape, config, name, axial, from, w);
    return fm_split_bias_finish(tape, name, axial, &bias, x, mask, w, dropout);
}

fm_tensor_ref fm_split_triangle(fm_tape *tape, const fm_model_config *config, const char *name,
                                bool incoming, fm_tensor_ref z, const fm_views *mask,
                                const fm_triangle_weights *w, double dropout) {
    if (!dap_of(config)) {
        return fm_op_triangle_multiplication(tape, name, incoming, z, mask->whole, w, true,
                                             dropout);
    }
    fm_tensor_ref part = incoming ? mask->columns : mask->rows;
    fm_triangle_operands operands = fm_op_triangle_operands(tape, name, incoming, z, part, w);
    fm_tensor_ref *wanted = incoming ? &operands.a : &operands.b;
    fm_gather gather = fm_dap_gather_begin(tape, name, dap_of(config), *wanted);
    fm_tensor_ref gate = fm_op_triangle_gate(tape, name, z, w);
    *wanted = fm_dap_gather_finish(tape, &gather);
    return fm_op_triangle_core(tape, name, z, &operands, gate, w, dropout);
}

fm_split_outer fm_split_outer_begin(fm_tape *tape, const fm_model_config *config, const char *name,
                                    fm_tensor_ref m, const fm_outer_weights *w) {
    fm_split_outer outer = {.name = name, .weights = w, .m = m};
    if (dap_of(config)) {
        outer.operands = fm_op_outer_operands(tape, name, m, w);
        outer.gather = fm_dap_gather_begin(tape, name, dap_of(config), outer.operands.b);
    }
    return outer;
}

fm_tensor_ref fm_split_outer_finish(fm_tape *tape, const fm_model_config *config,
                                    const fm_split_outer *outer, const fm_views *mask,
                                    fm_tensor_ref z) {
    if (!dap_of(config)) {
        return fm_op_outer_product_mean(tape, outer->name, outer->m, mask->whole, z,
                                        outer->weights);
    }
    fm_outer_operands operands = outer->operands;
    operands.b = fm_dap_gather_finish(tape, &outer->gather);
    return fm_op_outer_core(tape, outer->name, &operands, mask->columns, mask->whole, z,
                            outer->weights, fm_groups_part(config->groups));
}

/* ---- branches -------------------------------------------------------------------------------- */

fm_tensor_ref fm_split_join(fm_tape *tape, const fm_model_config *config, const char *name,
                            fm_tensor_ref x) {
    if (!bp_of(config)) {
        return x;
    }
    fm_pending *sum = fm_bp_join_begin(tape, name, bp_of(config), x);
    return fm_exchange_finish(tape, sum);
}

fm_tensor_ref fm_split_share(fm_tape *tape, const fm_model_config *config, const char *name,
                             int32_t root, fm_tensor_ref x, const fm_tensor *like) {
    if (!bp_of(config)) {
        return x;
    }
    fm_pending *sent = fm_bp_share_begin(tape, name, bp_of(config), root, x, like);
    return fm_exchange_finish(tape, sent);
}
