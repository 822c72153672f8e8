/* parity_structure.h: the structure module, its heads and all losses after a recorded trunk, with
 * the ground truth from the file of a reference run. */
#ifndef FM_TESTS_TRAINER_PARITY_STRUCTURE_H
#define FM_TESTS_TRAINER_PARITY_STRUCTURE_H

#include "tests/trainer/parity/parity.h"

#include "tests/testing/manifest.h"
#include "trainer/dist/groups.h"
#include "trainer/loss/terms.h"
#include "trainer/step/structure_truth.h"

/* The arrays of the file for the tensors of fm_structure_list_truth, in its order. Each row has the
 * number of elements per residue that are used, the first of them, and the total. 0: one value for
 * all residues. */
static const struct {
    const char *name;
    int64_t row, first, all;
} TRUTH[FM_STRUCTURE_TRUTHS] = {
    {"backbone_rigid_tensor", 16, 0, 16},
    {"backbone_rigid_mask", 1, 0, 1},
    {"use_clamped_fape", 0, 0, 0},
    {"atom14_gt_positions", 42, 0, 42},
    {"atom14_alt_gt_positions", 42, 0, 42},
    {"atom14_gt_exists", 14, 0, 14},
    {"atom14_alt_gt_exists", 14, 0, 14},
    {"atom14_atom_is_ambiguous", 14, 0, 14},
    {"rigidgroups_gt_frames", 128, 0, 128},
    {"rigidgroups_alt_gt_frames", 128, 0, 128},
    {"rigidgroups_gt_exists", 8, 0, 8},
    {"chi_angles_sin_cos", 8, 0, 8},
    {"chi_mask", 4, 0, 4},
    {"seq_mask", 1, 0, 1},
    {"atom14_atom_exists", 14, 0, 14},
    {"all_atom_mask", 37, 0, 37},
    {"atom37_atom_exists", 37, 0, 37},
    {"all_atom_positions", 3, 3, 111}, /* CA is the second of 37 atoms */
    {"all_atom_mask", 1, 1, 37}};

typedef struct structure_part {
    fm_structure_truth truth;
    int32_t true_msa, bert_mask, pseudo_beta, pseudo_beta_mask, factors, seed; /* in the state */
    double weight[FM_LOSS_TERMS];
    fm_tensor_ref term[FM_LOSS_TERMS], total; /* on the tape with losses */
} structure_part;

static inline int64_t size_at(const fm_test_json *json, const char *path) {
    return (int64_t)fm_test_json_number(json, path);
}

static inline void read_structure_config(const fm_test_json *json, parity *in, structure_part *s) {
    in->config.structure = (fm_structure_config){
        .n_iteration = (int32_t)size_at(json, "model.structure_module.no_blocks"),
        .n_head = size_at(json, "model.structure_module.no_heads_ipa"),
        .c_head = size_at(json, "model.structure_module.c_ipa"),
        .n_qk = size_at(json, "model.structure_module.no_qk_points"),
        .n_v = size_at(json, "model.structure_module.no_v_points"),
        .c_angle = size_at(json, "model.structure_module.c_resnet"),
        .n_angle_block = (int32_t)size_at(json, "model.structure_module.no_resnet_blocks"),
        .c_plddt = size_at(json, "model.heads.lddt.c_hidden"),
        .n_plddt_bin = size_at(json, "model.heads.lddt.no_bins"),
        .n_aligned_error_bin = size_at(json, "model.heads.tm.no_bins"),
        .position_scale = fm_test_json_number(json, "model.structure_module.trans_scale_factor")};
    static const char *const weights[FM_LOSS_TERMS] = {
        [FM_TERM_BACKBONE] = "loss.fape.backbone.weight",
        [FM_TERM_SIDE_CHAIN] = "loss.fape.sidechain.weight",
        [FM_TERM_TORSION] = "loss.supervised_chi.weight",
        [FM_TERM_PLDDT] = "loss.plddt_loss.weight",
        [FM_TERM_RESOLVED] = "loss.experimentally_resolved.weight",
        [FM_TERM_ALIGNED_ERROR] = "loss.tm.weight",
        [FM_TERM_VIOLATION] = "loss.violation.weight",
        [FM_TERM_DISTOGRAM] = "loss.distogram.weight",
        [FM_TERM_MASKED_MSA] = "loss.masked_msa.weight",
    };
    for (int i = 0; i < FM_LOSS_TERMS; i++)
        s->weight[i] = fm_test_json_number(json, weights[i]);
}

static inline void declare_losses(parity *in, structure_part *s, const fm_kernels *kernels) {
    const fm_model_config *c = &in->config;
    fm_state *state = &in->state;
    const int64_t msa[] = {c->n_seq, c->n_res}, terms[] = {FM_LOSS_TERMS}, one[] = {1};
    const int64_t points[] = {c->n_res, 3}, residues[] = {c->n_res};
    fm_structure_declare_truth(state, c->n_res, &s->truth);
    s->true_msa = fm_state_add(state, "true_msa", FM_ELEMENT_I32, 2, msa);
    s->bert_mask = fm_state_add(state, "bert_mask", kernels->act, 2, msa);
    s->pseudo_beta = fm_state_add(state, "pseudo_beta", FM_ELEMENT_F32, 2, points);
    s->pseudo_beta_mask = fm_state_add(state, "pseudo_beta_mask", FM_ELEMENT_F32, 1, residues);
    s->factors = fm_state_add(state, "factors", FM_ELEMENT_F64, 1, terms);
    s->seed = fm_state_add(state, "gradient of the loss", kernels->acc, 1, one);
}

/* Records all losses after a recorded cycle, in its island; the gradient of the total is 1. */
static inline void record_losses(fm_tape *tape, const parity *in, structure_part *s,
                                 const fm_model_outputs *out, const fm_model_weights *w) {
    fm_tape_enter_island(tape);
    fm_loss_inputs loss = fm_loss_inputs_of(&in->config, w, out);
    loss.true_msa = fm_tape_state(tape, s->true_msa, false);
    loss.bert_mask = fm_tape_state(tape, s->bert_mask, false);
    loss.pseudo_beta = fm_tape_state(tape, s->pseudo_beta, false);
    loss.pseudo_beta_mask = fm_tape_state(tape, s->pseudo_beta_mask, false);
    fm_structure_add_truth(tape, &s->truth, &in->inputs, &loss);
    s->total = fm_loss_record(tape, &loss, fm_tape_state(tape, s->factors, false), s->term);
    fm_tape_leave_island(tape);
    fm_tape_seed_gradient(tape, s->total, s->seed);
}

/* Loads the truth of cycle c and the factors: weight times sqrt(residues). */
static inline void load_truth(const parity *in, const structure_part *s, int c) {
    int32_t tensors[FM_STRUCTURE_TRUTHS];
    double length = 0;
    for (int f = 0; f < fm_structure_list_truth(&s->truth, tensors); f++) {
        const fm_npy *array = need(in, in->prefix, TRUTH[f].name);
        int64_t row = TRUTH[f].row, count = row ? file_residues(in) * row : 1;
        for (int64_t k = 0; k < count; k++) {
            int64_t from = row ? k / row * TRUTH[f].all + TRUTH[f].first + k % row : 0;
            put(in, tensors[f], k, input(in, array, from, c));
        }
    }
    put_input(in, in->inputs.seq_mask, "seq_mask", c);
    put_input(in, s->true_msa, "true_msa", c);
    put_input(in, s->bert_mask, "bert_mask", c);
    put_input(in, s->pseudo_beta, "pseudo_beta", c);
    put_input(in, s->pseudo_beta_mask, "pseudo_beta_mask", c);
    for (int64_t i = 0; i < file_residues(in); i++)
        length += input(in, need(in, in->prefix, "seq_mask"), i, c);
    for (int i = 0; i < FM_LOSS_TERMS; i++)
        ((double *)data_of(in, s->factors))[i] = s->weight[i] * sqrt(length);
    put(in, s->seed, 0, 1.0 / fm_groups_sample_ranks(in->config.groups));
}

#endif
