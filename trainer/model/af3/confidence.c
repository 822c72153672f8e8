/* confidence.c: see confidence.h. */
#include "trainer/model/af3/confidence.h"

#include "trainer/ops/arithmetic.h"
#include "trainer/ops/cast.h"
#include "trainer/ops/gather.h"
#include "trainer/ops/one_hot_linear.h"
#include "trainer/ops/pair_linear.h"
#include "trainer/ops/reshape.h"
#include "trainer/ops/slot_linear.h"
#include "trainer/ops/structure_layers.h"
#include "trainer/ops/token_distances.h"

#include <assert.h>

static const double CLIP = 512;
static const fm_distance_bounds BOUNDS = {FM_AF3_DISTANCE_CLASSES, 3.25, 50.75};

void fm_af3_confidence_add(const fm_scope *scope, const fm_af3_config *config,
                           fm_af3_confidence_weights *ret_weights) {
    int64_t c_s = config->c_s, c_z = config->c_z, c_in = fm_af3_config_s_inputs(config);
    int64_t slots = config->max_atoms_per_token;
    ret_weights->norm_trunk = fm_af3_norm(scope, "input_strunk_ln", c_s);
    ret_weights->s1 = fm_af3_linear(scope, "linear_no_bias_s1", c_in, c_z, FM_AF3_DEFAULT);
    ret_weights->s2 = fm_af3_linear(scope, "linear_no_bias_s2", c_in, c_z, FM_AF3_DEFAULT);
    ret_weights->distance_class =
        fm_af3_linear(scope, "linear_no_bias_d", FM_AF3_DISTANCE_CLASSES, c_z, FM_AF3_DEFAULT);
    ret_weights->distance =
        fm_af3_linear(scope, "linear_no_bias_d_wo_onehot", 1, c_z, FM_AF3_DEFAULT);
    assert(config->n_confidence_block <= FM_AF3_MAX_BLOCK);
    for (int32_t i = 0; i < config->n_confidence_block; i++) {
        fm_scope block = fm_af3_enter_block(scope, "pairformer_stack.blocks", i);
        ret_weights->block[i] = fm_af3_pairformer_weights(&block, config);
    }
    ret_weights->norm_pae = fm_af3_norm(scope, "pae_ln", c_z);
    ret_weights->pae =
        fm_af3_linear(scope, "linear_no_bias_pae", c_z, config->n_pae_bin, FM_AF3_ZERO);
    ret_weights->norm_pde = fm_af3_norm(scope, "pde_ln", c_z);
    ret_weights->pde =
        fm_af3_linear(scope, "linear_no_bias_pde", c_z, config->n_pde_bin, FM_AF3_ZERO);
    ret_weights->norm_plddt = fm_af3_norm(scope, "plddt_ln", c_s);
    ret_weights->plddt = fm_af3_add_stack(scope, "plddt_weight", slots, c_s, config->n_plddt_bin);
    ret_weights->norm_resolved = fm_af3_norm(scope, "resolved_ln", c_s);
    ret_weights->resolved =
        fm_af3_add_stack(scope, "resolved_weight", slots, c_s, FM_AF3_RESOLVED_CLASSES);
}

/* Adds the token inputs and the distances to z. */
static fm_tensor_ref pairs(fm_tape *tape, const fm_groups *groups,
                           const fm_af3_confidence_weights *w, const fm_af3_confidence_inputs *in) {
    fm_tape_enter_island(tape);
    fm_token_distances tokens = fm_op_token_distances(tape, in->structure, in->representative,
                                                      &BOUNDS, fm_groups_part(groups));
    fm_tensor_ref distance = fm_op_linear_all(tape, "distances", tokens.distance, &w->distance);
    fm_tape_leave_island(tape);
    fm_tensor_ref j = fm_op_linear_all(tape, "confidence of j", in->s_inputs, &w->s1);
    fm_tensor_ref i = fm_op_linear_all(tape, "confidence of i", in->s_inputs, &w->s2);
    i = fm_af3_split_rows(tape, groups, "confidence of i", i);
    fm_tensor_ref z = fm_op_outer_sum(tape, "confidence pairs", i, j);
    z = fm_op_add(tape, "confidence pairs", z, in->z);
    z = fm_op_add(tape, "confidence pairs", z,
                  fm_op_one_hot_linear(tape, "distance classes", tokens.classes,
                                       FM_AF3_DISTANCE_CLASSES, &w->distance_class));
    return fm_op_add(tape, "confidence pairs", z, fm_op_cast(tape, "distances", distance));
}

/* Records the logits of every atom. Each slot of a token has a separate matrix. */
static fm_tensor_ref of_atoms(fm_tape *tape, const char *name, const fm_af3_config *config,
                              const fm_af3_confidence_inputs *in, fm_tensor_ref s,
                              fm_param_ref norm, fm_param_ref weights, int64_t n_bin) {
    fm_tensor_ref x = fm_op_norm(tape, name, s, norm, 0);
    x = fm_op_slot_linear(tape, name, x, weights, config->max_atoms_per_token, n_bin);
    return fm_op_gather(tape, name, x, in->slot_row, in->atom_of_row);
}

/* Records the heads of pairs, in an island. z is of the main table's type. */
static void logits_of_pairs(fm_tape *tape, const fm_af3_confidence_weights *w, fm_tensor_ref z,
                            fm_af3_confidence_logits *out) {
    if (tape->chunk_bytes > 0) {
        fm_pair_linear of = {
            .norm = w->norm_pae, .kind = FM_NORM_WIDE, .positions = FM_TENSOR_NONE};
        out->pae = fm_op_pair_linear(tape, "pae", z, &of, &w->pae);
        of.norm = w->norm_pde;
        of.is_symmetric = true;
        out->pde = fm_op_pair_linear(tape, "pde", z, &of, &w->pde);
        return;
    }
    z = fm_op_cast(tape, "confidence pairs", z);
    out->pae = fm_op_linear_all(tape, "pae", fm_op_norm(tape, "pae", z, w->norm_pae, 0), &w->pae);
    z = fm_op_norm(tape, "pde", fm_op_symmetrise(tape, "pde", z), w->norm_pde, 0);
    out->pde = fm_op_linear_all(tape, "pde", z, &w->pde);
}

/* Records the heads, in an island. */
static fm_af3_confidence_logits logits_of(fm_tape *tape, const fm_af3_config *config,
                                          const fm_af3_confidence_weights *w,
                                          const fm_af3_confidence_inputs *in, fm_tensor_ref s,
                                          fm_tensor_ref pairs_z) {
    fm_af3_confidence_logits out;
    logits_of_pairs(tape, w, pairs_z, &out);
    out.plddt =
        of_atoms(tape, "plddt", config, in, s, w->norm_plddt, w->plddt, config->n_plddt_bin);
    out.resolved = of_atoms(tape, "resolved", config, in, s, w->norm_resolved, w->resolved,
                            FM_AF3_RESOLVED_CLASSES);
    return out;
}

fm_af3_confidence_logits fm_af3_confidence(fm_tape *tape, const fm_af3_config *config,
                                           const fm_af3_confidence_weights *w,
                                           const fm_af3_confidence_inputs *in) {
    fm_af3_config own = *config;
    own.dropout_msa = own.dropout_pair = 0;
    fm_tensor_ref s = fm_op_clip(tape, "confidence single", in->s, CLIP);
    s = fm_op_norm(tape, "confidence single", s, w->norm_trunk, 0);
    fm_af3_pair_of x = {fm_op_lift(tape, "confidence single", s),
                        pairs(tape, config->groups, w, in)};
    x = fm_af3_pairformer(tape, &own, FM_AF3_STACK_CONFIDENCE, w->block, own.n_confidence_block,
                          &in->masks, x);
    s = fm_op_lower(tape, "confidence single", x.s);
    x.z = fm_af3_split_gather(tape, config->groups, "confidence pairs", x.z);
    fm_tape_enter_island(tape);
    fm_af3_confidence_logits out =
        logits_of(tape, config, w, in, fm_op_cast(tape, "confidence single", s), x.z);
    fm_tape_leave_island(tape);
    return out;
}
