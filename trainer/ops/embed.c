/* embed.c: the input embedder; see embed.h. The recycling embedder is in recycle.c. */
#include "trainer/ops/embed.h"

#include "trainer/ops/call.h"

#include <assert.h>

enum { N_RESTYPE = 21 };

/* -- features */

enum { F_MSA, F_DELETION, F_PROFILE, F_DELETION_SUM, F_CLUSTER_SIZE };

static void features_forward(fm_run *run, const fm_node *node) {
    const fm_tensor *msa = fm_tape_tensor(run->tape, node->input[F_MSA]);
    fm_tensor_ref profile = node->input[F_PROFILE];
    fm_msa_features args = {.n_seq = msa->local[0],
                            .n_res = msa->local[1],
                            .msa = fm_run_input(run, node, F_MSA),
                            .deletion = fm_run_input(run, node, F_DELETION),
                            .profile = fm_run_input(run, node, F_PROFILE),
                            .profile_element = profile == FM_TENSOR_NONE
                                                   ? FM_ELEMENT_U32
                                                   : fm_tape_tensor(run->tape, profile)->element,
                            .deletion_sum = fm_run_input(run, node, F_DELETION_SUM),
                            .cluster_size = fm_run_input(run, node, F_CLUSTER_SIZE),
                            .y = fm_run_output(run, node, 0)};
    fm_call_msa_features(run, &args);
}

static const fm_op FEATURES = {"msa features", features_forward, NULL};

fm_tensor_ref fm_op_msa_features(fm_tape *tape, const fm_feature_inputs *inputs) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &FEATURES, "msa features", 1, &memory);
    const fm_tensor_ref refs[] = {inputs->msa, inputs->deletion, inputs->profile,
                                  inputs->deletion_sum, inputs->cluster_size};
    for (int i = 0; i < 5; i++)
        fm_node_input(tape, node, refs[i], false);
    const fm_tensor *msa = fm_tape_tensor(tape, inputs->msa);
    int64_t width =
        inputs->profile == FM_TENSOR_NONE ? FM_EXTRA_MSA_FEATURES : FM_MSA_FEATURES; /* A3:5 A18 */
    return fm_node_output(tape, node, tape->kernels->act, 3,
                          (int64_t[]){msa->local[0], msa->local[1], width});
}

/* -- MSA */

typedef struct msa_attributes {
    int64_t n_seq, n_res, c_m;
    int64_t first; /* this rank's first residue */
} msa_attributes;

static const uint8_t *own_types(const fm_run *run, const fm_node *node, int input, int64_t first) {
    return fm_run_at(fm_run_input(run, node, input), first, FM_ELEMENT_U8);
}

enum { M_FEATURES, M_AATYPE };
enum { PM_MSA, PM_MSA_BIAS, PM_TARGET, PM_TARGET_BIAS };

/* The columns of a [c, 22] weight, selected by residue types. */
static fm_lookup target_lookup(int64_t c, const void *w, fm_element act) {
    return (fm_lookup){.n_class = N_RESTYPE,
                       .c = c,
                       .class_stride = 1,
                       .channel_stride = FM_TARGET_FEATURES,
                       .w = fm_run_at(w, 1, act)};
}

/* The gradient of the columns, from that of the rows. Column 0 belongs to no residue type: its
 * gradient is 0. */
static void target_lookup_grad(fm_run *run, const fm_lookup *lookup, int64_t n, const uint8_t *type,
                               const void *dy, fm_out dw) {
    if (dw.beta == FM_WRITE) fm_call_fill_acc(run, lookup->c * FM_TARGET_FEATURES, 0.0, dw.data);
    fm_call_lookup_grad(run, lookup, n, type, dy, fm_out_at(dw, 1, run->kernels->acc));
}

static fm_linear msa_linear(const fm_run *run, const fm_node *node) {
    const msa_attributes *at = node->attributes;
    return (fm_linear){.rows = at->n_seq * at->n_res,
                       .c_in = FM_MSA_FEATURES,
                       .c_out = at->c_m,
                       .ldx = FM_MSA_FEATURES,
                       .ldy = at->c_m,
                       .x = fm_run_input(run, node, M_FEATURES),
                       .w = fm_run_param(run, node, PM_MSA),
                       .bias = fm_run_param(run, node, PM_MSA_BIAS)};
}

static void msa_forward(fm_run *run, const fm_node *node) {
    const msa_attributes *at = node->attributes;
    if (!fm_run_wants_output(run)) return;
    void *m = fm_run_output(run, node, 0);
    void *target = fm_run_workspace_act(run, at->n_res * at->c_m);
    fm_linear linear = msa_linear(run, node);
    fm_call_linear(run, &linear, false, m); /* A3:4 */
    fm_lookup lookup =
        target_lookup(at->c_m, fm_run_param(run, node, PM_TARGET), run->kernels->act);
    fm_call_lookup(run, &lookup, at->n_res, own_types(run, node, M_AATYPE, at->first),
                   (fm_out){target, FM_WRITE});
    fm_call_bias_add(run, at->n_res, at->c_m, fm_run_param(run, node, PM_TARGET_BIAS), target);
    fm_call_copy_strided(run, &(fm_strided){.rank = 2,
                                            .shape = {at->n_seq, at->n_res * at->c_m},
                                            .x_stride = {0, 1},
                                            .y_stride = {at->n_res * at->c_m, 1},
                                            .alpha = 1,
                                            .x = target,
                                            .y = {m, FM_ADD}});
}

static void msa_backward(fm_run *run, const fm_node *node) {
    const msa_attributes *at = node->attributes;
    const void *dm = fm_run_output_gradient(run, node, 0);
    fm_linear linear = msa_linear(run, node);
    fm_call_linear_grad(run, &linear, dm, fm_run_gradient(run, node, M_FEATURES),
                        fm_run_param_gradient(run, node, PM_MSA),
                        fm_run_param_gradient(run, node, PM_MSA_BIAS));
    void *dtarget = fm_run_workspace_act(run, at->n_res * at->c_m);
    fm_call_sum(run, 1, at->n_seq, at->n_res * at->c_m, 0, at->n_res * at->c_m, dm,
                (fm_out){dtarget, FM_WRITE}, false);
    fm_lookup lookup =
        target_lookup(at->c_m, fm_run_param(run, node, PM_TARGET), run->kernels->act);
    target_lookup_grad(run, &lookup, at->n_res, own_types(run, node, M_AATYPE, at->first), dtarget,
                       fm_run_param_gradient(run, node, PM_TARGET));
    fm_call_sum(run, 1, at->n_res, at->c_m, 0, at->c_m, dtarget,
                fm_run_param_gradient(run, node, PM_TARGET_BIAS), true);
}

static const fm_op INPUT_MSA = {"input msa", msa_forward, msa_backward};

fm_tensor_ref fm_op_input_msa(fm_tape *tape, fm_tensor_ref features, fm_tensor_ref aatype,
                              const fm_input_msa_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &INPUT_MSA, "input msa", sizeof(msa_attributes), &memory);
    msa_attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, features);
    assert(x->rank == 3 && x->local[2] == FM_MSA_FEATURES && x->shard_axis != 0);
    *at = (msa_attributes){.n_seq = x->local[0],
                           .n_res = x->local[1],
                           .c_m = weights->c_m,
                           .first = fm_tensor_first(x, 1)};
    fm_node_input(tape, node, features, true);
    fm_node_input(tape, node, aatype, true);
    const fm_param_ref params[] = {weights->msa, weights->msa_bias, weights->target,
                                   weights->target_bias};
    for (int i = 0; i < 4; i++)
        fm_node_param(tape, node, params[i]);
    fm_tensor out = fm_tensor_of_width(x, "input msa", at->c_m);
    return fm_node_output_described(tape, node, &out);
}

/* -- pair */

typedef struct pair_attributes {
    int64_t first, n_i, n_j; /* pairs (first + 0 .. n_i - 1, 0 .. n_j - 1) */
    int64_t c_z, n_relpos;
} pair_attributes;

enum { Z_AATYPE, Z_INDEX };
enum { PZ_TARGET, PZ_TARGET_BIAS, PZ_RELPOS, PZ_RELPOS_BIAS };

static fm_lookup relpos_lookup(const fm_run *run, const fm_node *node) {
    const pair_attributes *at = node->attributes;
    return (fm_lookup){.n_class = at->n_relpos,
                       .c = at->c_z,
                       .class_stride = 1,
                       .channel_stride = at->n_relpos,
                       .w = fm_run_param(run, node, PZ_RELPOS)};
}

static void pair_forward(fm_run *run, const fm_node *node) {
    const pair_attributes *at = node->attributes;
    if (!fm_run_wants_output(run)) return;
    fm_element act = run->kernels->act;
    void *z = fm_run_output(run, node, 0);
    void *both = fm_run_workspace_act(run, at->n_j * 2 * at->c_z);
    fm_lookup target = target_lookup(2 * at->c_z, fm_run_param(run, node, PZ_TARGET), act);
    fm_call_lookup(run, &target, at->n_j, fm_run_input(run, node, Z_AATYPE),
                   (fm_out){both, FM_WRITE}); /* A3:1 */
    fm_call_bias_add(run, at->n_j, 2 * at->c_z, fm_run_param(run, node, PZ_TARGET_BIAS), both);
    fm_call_outer_sum(run, at->n_i, at->n_j, at->c_z, 2 * at->c_z,
                      fm_run_at(both, at->first * 2 * at->c_z, act), fm_run_at(both, at->c_z, act),
                      (fm_out){z, FM_WRITE}); /* A3:2 */
    fm_lookup relpos = relpos_lookup(run, node);
    fm_call_relpos(run, &relpos, at->first, at->n_i, at->n_j, fm_run_input(run, node, Z_INDEX),
                   (fm_out){z, FM_ADD}); /* A3:3, A4 */
    fm_call_bias_add(run, at->n_i * at->n_j, at->c_z, fm_run_param(run, node, PZ_RELPOS_BIAS), z);
}

static void pair_backward(fm_run *run, const fm_node *node) {
    const pair_attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    const void *dz = fm_run_output_gradient(run, node, 0);
    fm_lookup relpos = relpos_lookup(run, node);
    fm_call_relpos_grad(run, &relpos, at->first, at->n_i, at->n_j, fm_run_input(run, node, Z_INDEX),
                        dz, fm_run_param_gradient(run, node, PZ_RELPOS));
    fm_call_sum(run, 1, at->n_i * at->n_j, at->c_z, 0, at->c_z, dz,
                fm_run_param_gradient(run, node, PZ_RELPOS_BIAS), true);
    void *dboth = fm_run_workspace_act(run, at->n_j * 2 * at->c_z);
    if (at->n_i < at->n_j) { /* this rank makes no gradient of a for the residues of other ranks */
        fm_call_fill(run, at->n_j * 2 * at->c_z, 0.0, dboth);
    }
    fm_call_outer_sum_grad(run, at->n_i, at->n_j, at->c_z, 2 * at->c_z, dz,
                           (fm_out){fm_run_at(dboth, at->first * 2 * at->c_z, act), FM_WRITE},
                           (fm_out){fm_run_at(dboth, at->c_z, act), FM_WRITE});
    fm_lookup target = target_lookup(2 * at->c_z, fm_run_param(run, node, PZ_TARGET), act);
    target_lookup_grad(run, &target, at->n_j, fm_run_input(run, node, Z_AATYPE), dboth,
                       fm_run_param_gradient(run, node, PZ_TARGET));
    fm_call_sum(run, 1, at->n_j, 2 * at->c_z, 0, 2 * at->c_z, dboth,
                fm_run_param_gradient(run, node, PZ_TARGET_BIAS), true);
}

static const fm_op INPUT_PAIR = {"input pair", pair_forward, pair_backward};

fm_tensor_ref fm_op_input_pair(fm_tape *tape, fm_tensor_ref aatype, fm_tensor_ref residue_index,
                               const fm_input_pair_weights *weights, fm_part part) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &INPUT_PAIR, "input pair", sizeof(pair_attributes), &memory);
    pair_attributes *at = memory;
    int64_t n = fm_tape_tensor(tape, aatype)->local[0];
    fm_tensor out = fm_tensor_rows_of(tape->kernels->act, n, weights->c_z, part);
    *at = (pair_attributes){.first = fm_tensor_first(&out, 0),
                            .n_i = out.local[0],
                            .n_j = n,
                            .c_z = weights->c_z,
                            .n_relpos = 2 * weights->relpos_k + 1};
    fm_node_input(tape, node, aatype, true);
    fm_node_input(tape, node, residue_index, true);
    const fm_param_ref params[] = {weights->target, weights->target_bias, weights->relpos,
                                   weights->relpos_bias};
    for (int i = 0; i < 4; i++)
        fm_node_param(tape, node, params[i]);
    return fm_node_output_described(tape, node, &out);
}
