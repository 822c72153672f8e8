/* test_af3_modules.c: the modules of AlphaFold 3 alone, in f64 and at small shapes: gradients of
 * the composed blocks against central differences, and padded modules against unpadded ones.
 *
 * A module declares its inputs for some numbers of tokens, MSA rows and atoms. The padded form has
 * more of each. Its masks are 0 there, its indices name nothing, and its other inputs are large, so
 * that anything that reaches a result shows. Outputs and gradients must be those of the unpadded
 * form, to rounding. */
#include "tests/trainer/common/op_check.h"

#include "trainer/loss/diffusion_losses.h"
#include "trainer/model/af3/blocks.h"
#include "trainer/model/af3/conditioned.h"
#include "trainer/ops/augment.h"
#include "trainer/ops/gather.h"
#include "trainer/ops/windows.h"

enum { S = 2, C_S = 6, C_Z = 4, C_M = 5, C = 8, C_PAIR = 3, N_HEAD = 2, C_HEAD = 3, BINS = 5 };

typedef enum input_kind {
    INPUT_DATA,     /* padding holds large numbers */
    INPUT_CONSTANT, /* the same, without a gradient */
    INPUT_ZERO,     /* as INPUT_CONSTANT, but zero in padding, as the writer of labels leaves it */
    INPUT_MASK,     /* 1, and 0 in padding */
    INPUT_INDEX     /* i32, which the module fills */
} input_kind;

typedef struct module module;

typedef struct setup {
    op_bench bench;
    const module *of;
    int64_t n_token, n_row, n_atom;
    bool recompute;
    input_kind kind[OP_INPUTS];
    fm_af3_config config;
    fm_triangle_weights triangle;
    fm_attention_weights attention;
    fm_averaging_weights averaging;
    fm_outer_weights outer;
    fm_conditioned_block_weights conditioned;
    fm_af3_block_weights block;
} setup;

struct module {
    const char *name;
    void (*declare)(setup *s);
    op_builder build;
    void (*fill)(setup *s); /* the indices; NULL: there are none */
    bool without_gradient;
};

static void add(setup *s, input_kind kind, fm_element element, int rank, const int64_t *shape) {
    s->kind[s->bench.n_input] = kind;
    op_input_of(&s->bench, element, rank, shape, kind == INPUT_DATA);
}

static void add_act(setup *s, input_kind kind, int rank, const int64_t *shape) {
    add(s, kind, FM_ELEMENT_F64, rank, shape);
}

static fm_scope scope_of(setup *s) {
    return (fm_scope){.params = &s->bench.params,
                      .arena = &s->bench.arena,
                      .name = "",
                      .openfold = "",
                      .deepmind_layer = -1};
}

/* -- pairs: 12 to 15 */

static void declare_pairs(setup *s) {
    add_act(s, INPUT_DATA, 3, (int64_t[]){s->n_token, s->n_token, C_Z});
    add_act(s, INPUT_MASK, 2, (int64_t[]){s->n_token, s->n_token});
}

static void declare_triangle(setup *s) {
    declare_pairs(s);
    fm_scope scope = scope_of(s);
    s->triangle = fm_af3_triangle(&scope, C_Z, C);
}

static fm_tensor_ref build_outgoing(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    return fm_op_triangle_multiplication(tape, "", false, in[0], in[1], &s->triangle, true, 0);
}

static fm_tensor_ref build_incoming(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    return fm_op_triangle_multiplication(tape, "", true, in[0], in[1], &s->triangle, true, 0);
}

static void declare_triangle_attention(setup *s) {
    declare_pairs(s);
    fm_scope scope = scope_of(s);
    s->attention = fm_af3_triangle_attention(&scope, C_Z, N_HEAD, C_HEAD);
}

static fm_tensor_ref build_starting(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    return fm_op_attention(tape, "", FM_AXIAL_STARTING, in[0], in[1], FM_TENSOR_NONE, &s->attention,
                           true, 0);
}

static fm_tensor_ref build_ending(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    return fm_op_attention(tape, "", FM_AXIAL_ENDING, in[0], in[1], FM_TENSOR_NONE, &s->attention,
                           true, 0);
}

/* -- rows: 9, 10, 24 without conditioning */

enum { R_X, R_MASK, R_Z };

static void declare_rows(setup *s, int64_t n_row, int64_t c) {
    add_act(s, INPUT_DATA, 3, (int64_t[]){n_row, s->n_token, c});
    add_act(s, INPUT_MASK, 2, (int64_t[]){n_row, s->n_token});
    add_act(s, INPUT_DATA, 3, (int64_t[]){s->n_token, s->n_token, C_Z});
}

static void declare_outer(setup *s) {
    declare_rows(s, s->n_row, C_M);
    fm_scope scope = scope_of(s);
    s->outer = fm_af3_outer(&scope, C_M, 3, C_Z);
}

static fm_tensor_ref build_outer(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    return fm_op_outer_product_mean(tape, "", in[R_X], in[R_MASK], in[R_Z], &s->outer);
}

static void declare_averaging(setup *s) {
    declare_rows(s, s->n_row, C_M);
    fm_scope scope = scope_of(s);
    s->averaging = fm_af3_averaging(&scope, C_M, C_Z, N_HEAD, C_HEAD);
}

static fm_tensor_ref build_averaging(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    return fm_op_weighted_averaging(tape, "", in[R_X], in[R_MASK], in[R_Z], &s->averaging, true, 0);
}

static void declare_single(setup *s) {
    declare_rows(s, 1, C_S);
    fm_scope scope = scope_of(s);
    s->attention = fm_af3_single_attention(&scope, C_S, C_Z, N_HEAD);
}

static fm_tensor_ref build_single(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    return fm_op_attention(tape, "", FM_AXIAL_ROW, in[R_X], in[R_MASK], in[R_Z], &s->attention,
                           true, 0);
}

/* -- blocks of the trunk */

enum { B_X, B_MASK, B_Z, B_PAIR_MASK };

static void configure(setup *s) {
    s->config = (fm_af3_config){.c_s = C_S,
                                .c_z = C_Z,
                                .c_m = C_M,
                                .n_head_single = N_HEAD,
                                .n_head_pair = N_HEAD,
                                .c_head_pair = C_HEAD,
                                .n_head_msa = N_HEAD,
                                .c_head_msa = C_HEAD,
                                .c_triangle = 5,
                                .c_outer = 3,
                                .transition_factor = 2,
                                .recompute = s->recompute ? FM_RECOMPUTE_BLOCK : FM_RECOMPUTE_NONE};
}

static void declare_pairformer(setup *s) {
    configure(s);
    declare_rows(s, 1, C_S);
    add_act(s, INPUT_MASK, 2, (int64_t[]){s->n_token, s->n_token});
    fm_scope scope = scope_of(s);
    s->block = fm_af3_pairformer_weights(&scope, &s->config);
}

/* Returns the single representation; its attention reads the updated pairs. */
static fm_tensor_ref build_pairformer(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    const fm_af3_masks masks = {.single = in[B_MASK], .pair = in[B_PAIR_MASK]};
    const fm_af3_pair_of x = {in[B_X], in[B_Z]};
    return fm_af3_pairformer(tape, &s->config, FM_AF3_STACK_PAIRFORMER, &s->block, 1, &masks, x).s;
}

static void declare_msa_block(setup *s) {
    configure(s);
    declare_rows(s, s->n_row, C_M);
    add_act(s, INPUT_MASK, 2, (int64_t[]){s->n_token, s->n_token});
    fm_scope scope = scope_of(s);
    s->block = fm_af3_msa_weights(&scope, &s->config, true);
}

static fm_tensor_ref build_msa_block(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    const fm_af3_masks masks = {.msa = in[B_MASK], .pair = in[B_PAIR_MASK]};
    const fm_af3_pair_of x = {in[B_X], in[B_Z]};
    return fm_af3_msa_blocks(tape, &s->config, &s->block, 1, true, &masks, x).z;
}

/* -- conditioned sublayers and blocks of tokens: 23 to 25 */

enum { T_A, T_S, T_Z, T_MASK };

static void declare_tokens(setup *s) {
    add_act(s, INPUT_DATA, 3, (int64_t[]){S, s->n_token, C});
    add_act(s, INPUT_DATA, 3, (int64_t[]){S, s->n_token, C_S});
    add_act(s, INPUT_DATA, 3, (int64_t[]){s->n_token, s->n_token, C_Z});
    add_act(s, INPUT_MASK, 2, (int64_t[]){S, s->n_token});
    fm_scope scope = scope_of(s);
    s->conditioned = fm_af3_conditioned_block_weights(&scope, C, C_S, C_Z, N_HEAD, 2, false);
}

static fm_tensor_ref build_conditioned_attention(fm_tape *tape, const fm_tensor_ref *in,
                                                 const void *context) {
    const fm_conditioned_attention_weights *w = &((const setup *)context)->conditioned.attention;
    fm_tensor_ref bias = fm_af3_pair_bias(tape, NULL, in[T_Z], w);
    return fm_af3_conditioned_attention(tape, in[T_A], in[T_S], bias, in[T_MASK], w, false);
}

static void declare_transition(setup *s) {
    add_act(s, INPUT_DATA, 3, (int64_t[]){S, s->n_token, C});
    add_act(s, INPUT_DATA, 3, (int64_t[]){S, s->n_token, C_S});
    fm_scope scope = scope_of(s);
    s->conditioned.transition = fm_af3_conditioned_transition_weights(&scope, C, C_S, 2);
}

static fm_tensor_ref build_transition(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    return fm_af3_conditioned_transition(tape, in[T_A], in[T_S], &s->conditioned.transition, true);
}

static fm_tensor_ref build_token_block(fm_tape *tape, const fm_tensor_ref *in,
                                       const void *context) {
    const setup *s = context;
    const fm_af3_block_inputs pairs = {.z = in[T_Z]};
    return fm_af3_diffusion_transformer(tape, in[T_A], in[T_S], &pairs, in[T_MASK], &s->conditioned,
                                        1, s->recompute);
}

/* -- atoms: 5, 7, 24 in windows */

enum { A_Q, A_C, A_P, A_MASK };

static void declare_atom_block(setup *s) {
    add_act(s, INPUT_DATA, 3, (int64_t[]){S, s->n_atom, C});
    add_act(s, INPUT_DATA, 2, (int64_t[]){s->n_atom, C});
    add_act(s, INPUT_DATA, 4,
            (int64_t[]){fm_windows_count(s->n_atom), FM_WINDOW_QUERIES, FM_WINDOW_KEYS, C_PAIR});
    add_act(s, INPUT_MASK, 1, (int64_t[]){s->n_atom});
    fm_scope scope = scope_of(s);
    s->conditioned = fm_af3_conditioned_block_weights(&scope, C, C, C_PAIR, N_HEAD, 2, true);
}

static fm_tensor_ref build_atom_block(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    const fm_af3_block_inputs pairs = {.z = in[A_P]};
    return fm_af3_atom_transformer(tape, in[A_Q], in[A_C], &pairs, in[A_MASK], &s->conditioned, 1,
                                   s->recompute);
}

enum { M_X, M_TOKEN, M_FIRST };

static void declare_mean(setup *s) {
    add_act(s, INPUT_DATA, 3, (int64_t[]){S, s->n_atom, C});
    add(s, INPUT_INDEX, FM_ELEMENT_I32, 1, (int64_t[]){s->n_atom});
    add(s, INPUT_INDEX, FM_ELEMENT_I32, 1, (int64_t[]){s->n_token + 1});
}

enum { TOKENS = 5, ROWS = 3, ATOMS = 37 };

/* Token t of the unpadded form has the atoms from t * ATOMS / TOKENS on. */
static void fill_mean(setup *s) {
    int32_t *token = op_input_data(&s->bench, M_TOKEN), *first = op_input_data(&s->bench, M_FIRST);
    for (int64_t t = 0; t <= s->n_token; t++)
        first[t] = (int32_t)(t < TOKENS ? t * ATOMS / TOKENS : ATOMS);
    for (int64_t l = 0, t = 0; l < s->n_atom; l++) {
        while (t < TOKENS && l >= first[t + 1])
            t++;
        token[l] = t < TOKENS ? (int32_t)t : -1;
    }
}

static fm_tensor_ref build_mean(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    const fm_atom_map map = {in[M_TOKEN], in[M_FIRST], s->n_atom, s->n_token};
    return fm_op_mean_of_atoms(tape, "", in[M_X], &map);
}

/* -- structures: 19, 28 and the losses */

static void declare_augment(setup *s) {
    add_act(s, INPUT_CONSTANT, 2, (int64_t[]){s->n_atom, 3});
    add_act(s, INPUT_MASK, 1, (int64_t[]){s->n_atom});
    add_act(s, INPUT_CONSTANT, 2, (int64_t[]){S, 9});
    add_act(s, INPUT_CONSTANT, 2, (int64_t[]){S, 3});
}

static fm_tensor_ref build_augment(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    (void)context;
    const fm_structure_draws draws = {in[2], in[3], FM_TENSOR_NONE};
    return fm_op_augment(tape, in[0], in[1], &draws);
}

enum { X_X, X_TRUTH, X_MASK, X_WEIGHT, X_RADIUS, X_SCALE };

/* The radius of lDDT is that of inputs in [-1, 1). */
static void declare_structures(setup *s) {
    add_act(s, INPUT_DATA, 3, (int64_t[]){S, s->n_atom, 3});
    add_act(s, INPUT_CONSTANT, 2, (int64_t[]){s->n_atom, 3});
    add_act(s, INPUT_MASK, 1, (int64_t[]){s->n_atom});
    add_act(s, INPUT_MASK, 1, (int64_t[]){s->n_atom});
    add_act(s, INPUT_CONSTANT, 1, (int64_t[]){s->n_atom});
    add_act(s, INPUT_CONSTANT, 1, (int64_t[]){S});
}

static fm_atom_truth truth_of(const fm_tensor_ref *in) {
    return (fm_atom_truth){in[X_TRUTH], in[X_MASK], in[X_WEIGHT], in[X_RADIUS]};
}

static fm_tensor_ref build_align(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    (void)context;
    const fm_atom_truth truth = truth_of(in);
    return fm_op_align_truth(tape, in[X_X], &truth);
}

static fm_tensor_ref build_mse(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const fm_atom_truth truth = truth_of(in);
    fm_tensor_ref aligned = build_align(tape, in, context);
    return fm_op_mse_loss(tape, in[X_X], aligned, &truth, in[X_SCALE]);
}

static fm_tensor_ref build_lddt(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    (void)context;
    const fm_atom_truth truth = truth_of(in);
    return fm_op_smooth_lddt_loss(tape, in[X_X], &truth);
}

static void declare_bonds(setup *s) {
    add_act(s, INPUT_DATA, 3, (int64_t[]){S, s->n_atom, 3});
    add(s, INPUT_INDEX, FM_ELEMENT_I32, 2, (int64_t[]){s->n_row, 2});
    add_act(s, INPUT_ZERO, 1, (int64_t[]){s->n_row});
    add_act(s, INPUT_MASK, 1, (int64_t[]){s->n_row});
    add_act(s, INPUT_CONSTANT, 1, (int64_t[]){S});
}

static void fill_bonds(setup *s) {
    int32_t *bond = op_input_data(&s->bench, 1);
    for (int64_t k = 0; k < 2 * s->n_row; k++)
        bond[k] = k < 2 * ROWS ? (int32_t)(k * 11 % ATOMS) : -1;
}

static fm_tensor_ref build_bonds(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    (void)context;
    const fm_bonds bonds = {in[1], in[2], in[3]};
    return fm_op_bond_loss(tape, in[0], &bonds, in[4]);
}

static void declare_pde(setup *s) {
    add_act(s, INPUT_DATA, 3, (int64_t[]){s->n_token, s->n_token, BINS});
    add_act(s, INPUT_CONSTANT, 3, (int64_t[]){1, s->n_token, 3});
    add_act(s, INPUT_CONSTANT, 2, (int64_t[]){s->n_token, 3});
    add_act(s, INPUT_MASK, 1, (int64_t[]){s->n_token});
}

static fm_tensor_ref build_pde(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    (void)context;
    return fm_op_pde_loss(tape, in[0], in[1], in[2], in[3]);
}

static fm_tensor_ref build_distances(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    (void)context;
    return fm_op_distance_loss(tape, in[0], in[1], in[2], 0.25f, 1.5f);
}

static void declare_distances(setup *s) {
    add_act(s, INPUT_DATA, 3, (int64_t[]){s->n_token, s->n_token, BINS});
    add(s, INPUT_CONSTANT, FM_ELEMENT_F32, 2, (int64_t[]){s->n_token, 3});
    add(s, INPUT_MASK, FM_ELEMENT_F32, 1, (int64_t[]){s->n_token});
}

enum { L_LOGITS, L_X, L_TRUTH, L_MASK, L_RADIUS, L_OTHER, L_CENTRE };

static void declare_confidence(setup *s, int64_t n_logit, bool of_pairs) {
    const int64_t pairs[] = {n_logit, n_logit, BINS}, atoms[] = {n_logit, BINS};
    add_act(s, INPUT_DATA, of_pairs ? 3 : 2, of_pairs ? pairs : atoms);
    add_act(s, INPUT_CONSTANT, 3, (int64_t[]){1, s->n_atom, 3});
    add_act(s, INPUT_CONSTANT, 2, (int64_t[]){s->n_atom, 3});
    add_act(s, INPUT_MASK, 1, (int64_t[]){s->n_atom});
    add_act(s, INPUT_CONSTANT, 1, (int64_t[]){s->n_atom});
}

static fm_atom_truth confidence_truth(const fm_tensor_ref *in) {
    return (fm_atom_truth){in[L_TRUTH], in[L_MASK], in[L_MASK], in[L_RADIUS]};
}

static void declare_plddt(setup *s) {
    declare_confidence(s, s->n_atom, false);
    add_act(s, INPUT_MASK, 1, (int64_t[]){s->n_atom});
}

static fm_tensor_ref build_plddt(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    (void)context;
    const fm_atom_truth truth = confidence_truth(in);
    return fm_op_atom_plddt_loss(tape, in[L_LOGITS], in[L_X], &truth, in[L_OTHER]);
}

static void declare_pae(setup *s) {
    declare_confidence(s, s->n_token, true);
    add(s, INPUT_INDEX, FM_ELEMENT_I32, 2, (int64_t[]){s->n_token, 3});
    add(s, INPUT_INDEX, FM_ELEMENT_I32, 1, (int64_t[]){s->n_token});
}

static void fill_pae(setup *s) {
    int32_t *frame = op_input_data(&s->bench, L_OTHER);
    int32_t *centre = op_input_data(&s->bench, L_CENTRE);
    for (int32_t t = 0; t < s->n_token; t++) {
        centre[t] = t < TOKENS ? 7 * t + 1 : -1;
        for (int32_t k = 0; k < 3; k++)
            frame[3 * t + k] = t < TOKENS ? 7 * t + k : -1;
    }
}

static fm_tensor_ref build_pae(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    (void)context;
    const fm_atom_truth truth = confidence_truth(in);
    return fm_op_pae_loss(tape, in[L_LOGITS], in[L_X], &truth, in[L_OTHER], in[L_CENTRE]);
}

static void declare_classes(setup *s) {
    add_act(s, INPUT_DATA, 2, (int64_t[]){s->n_atom, BINS});
    add(s, INPUT_INDEX, FM_ELEMENT_I32, 1, (int64_t[]){s->n_atom});
    add_act(s, INPUT_MASK, 1, (int64_t[]){s->n_atom});
}

static void fill_classes(setup *s) {
    int32_t *target = op_input_data(&s->bench, 1);
    for (int32_t l = 0; l < s->n_atom; l++)
        target[l] = l < ATOMS ? l % BINS : 0;
}

static fm_tensor_ref build_classes(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    (void)context;
    return fm_op_class_loss(tape, "", in[0], in[1], in[2]);
}

/* -- padding */

static const module MODULES[] = {
    {"triangle multiplication, outgoing (12)", declare_triangle, .build = build_outgoing},
    {"triangle multiplication, incoming (13)", declare_triangle, .build = build_incoming},
    {"triangle attention, starting (14)", declare_triangle_attention, .build = build_starting},
    {"triangle attention, ending (15)", declare_triangle_attention, .build = build_ending},
    {"outer product mean (9)", declare_outer, .build = build_outer},
    {"pair-weighted averaging (10)", declare_averaging, .build = build_averaging},
    {"single attention (24)", declare_single, .build = build_single},
    {"Pairformer block (17)", declare_pairformer, .build = build_pairformer},
    {"last block of the MSA module (8)", declare_msa_block, .build = build_msa_block},
    {"conditioned attention (24)", declare_tokens, .build = build_conditioned_attention},
    {"diffusion transformer block (23)", declare_tokens, .build = build_token_block},
    {"atom transformer block (7)", declare_atom_block, .build = build_atom_block},
    {"mean of atoms (5)", declare_mean, .build = build_mean, .fill = fill_mean},
    {"augmentation (19)", declare_augment, .build = build_augment, .without_gradient = true},
    {"alignment (28)", declare_structures, .build = build_align, .without_gradient = true},
    {"square error", declare_structures, .build = build_mse},
    {"smooth lDDT (27)", declare_structures, .build = build_lddt},
    {"bonds", declare_bonds, .build = build_bonds, .fill = fill_bonds},
    {"distogram", declare_distances, .build = build_distances},
    {"predicted distance error", declare_pde, .build = build_pde},
    {"predicted aligned error", declare_pae, .build = build_pae, .fill = fill_pae},
    {"pLDDT", declare_plddt, .build = build_plddt},
    {"resolved", declare_classes, .build = build_classes, .fill = fill_classes},
};

static void put(const op_bench *bench, int input, int64_t at, double value) {
    if (bench->state.tensor[bench->input[input]].element == FM_ELEMENT_F32) {
        ((float *)op_input_data(bench, input))[at] = (float)value;
    } else {
        op_set(bench, op_input_data(bench, input), at, value);
    }
}

/* Inputs are in [-1, 1). Padding, where `kind` allows it, is a hundred times larger. */
static void fill_input(const op_bench *bench, int i, input_kind kind, bool is_padding) {
    const double scale = kind == INPUT_MASK || kind == INPUT_ZERO ? 0 : 100;
    for (int64_t k = 0; k < op_input_count(bench, i); k++) {
        double drawn = op_uniform((uint32_t)i + 1, k);
        put(bench, i, k, is_padding ? scale * drawn : kind == INPUT_MASK ? 1 : drawn);
    }
}

/* Returns where element k of a tensor is in a larger one. */
static int64_t place(const fm_tensor *small, const fm_tensor *large, int64_t k) {
    int64_t at = 0, stride = 1;
    for (int axis = small->rank - 1; axis >= 0; axis--) {
        at += k % small->shape[axis] * stride;
        stride *= large->shape[axis];
        k /= small->shape[axis];
    }
    return at;
}

static void begin(setup *s, const module *of, bool is_padded, bool recompute) {
    *s = (setup){.of = of,
                 .n_token = is_padded ? TOKENS + 3 : TOKENS,
                 .n_row = is_padded ? ROWS + 2 : ROWS,
                 .n_atom = is_padded ? ATOMS + 33 : ATOMS,
                 .recompute = recompute};
    op_begin(&s->bench, FM_ELEMENT_F64);
    s->bench.without_gradient = of->without_gradient;
    of->declare(s);
    op_finish(&s->bench, of->build, s);
    for (int i = 0; i < s->bench.n_input; i++)
        if (s->kind[i] != INPUT_INDEX) fill_input(&s->bench, i, s->kind[i], is_padded);
    if (of->fill) of->fill(s);
}

/* Copies the inputs and the output's gradient of the unpadded form into the padded one. */
static void copy_inputs(const setup *from, setup *to) {
    const fm_state *small = &from->bench.state, *large = &to->bench.state;
    for (int i = 0; i < from->bench.n_input; i++) {
        if (from->kind[i] == INPUT_INDEX) continue;
        const fm_tensor *tensor = &small->tensor[from->bench.input[i]];
        for (int64_t k = 0; k < op_input_count(&from->bench, i); k++) {
            const void *data = op_input_data(&from->bench, i);
            double value = tensor->element == FM_ELEMENT_F32 ? (double)((const float *)data)[k]
                                                             : ((const double *)data)[k];
            put(&to->bench, i, place(tensor, &large->tensor[to->bench.input[i]], k), value);
        }
    }
    const fm_tensor *tensor = &small->tensor[from->bench.output_gradient];
    const fm_tensor *padded = &large->tensor[to->bench.output_gradient];
    const double *gradient = fm_state_data(small, from->bench.output_gradient);
    double *out = fm_state_data(large, to->bench.output_gradient);
    memset(out, 0, (size_t)fm_tensor_local_bytes(padded));
    for (int64_t k = 0; k < fm_tensor_local_count(tensor); k++)
        out[place(tensor, padded, k)] = gradient[k];
}

static void expect_near(const module *of, const char *what, int64_t k, double found,
                        double expected) {
    if (fabs(found - expected) < 1e-11 * (1 + fabs(expected))) return;
    fail_msg("%s: %s %lld is %.17g padded, and %.17g unpadded", of->name, what, (long long)k, found,
             expected);
}

static void expect_same(const setup *a, const setup *b) {
    const fm_tape *small = &a->bench.tape, *large = &b->bench.tape;
    const fm_tensor *out = fm_tape_tensor(small, a->bench.output_tensor);
    const fm_tensor *padded = fm_tape_tensor(large, b->bench.output_tensor);
    const double *x = fm_tape_data(small, a->bench.output_tensor);
    const double *y = fm_tape_data(large, b->bench.output_tensor);
    for (int64_t k = 0; k < fm_tensor_local_count(out); k++)
        expect_near(a->of, "output", k, y[place(out, padded, k)], x[k]);
    if (a->of->without_gradient) return;
    for (int i = 0; i < a->bench.n_input; i++) {
        if (a->kind[i] != INPUT_DATA) continue;
        const fm_tensor *from = &a->bench.state.tensor[a->bench.input[i]];
        const fm_tensor *to = &b->bench.state.tensor[b->bench.input[i]];
        x = fm_tape_gradient(small, a->bench.input_tensor[i]);
        y = fm_tape_gradient(large, b->bench.input_tensor[i]);
        for (int64_t k = 0; k < fm_tensor_local_count(from); k++)
            expect_near(a->of, "gradient of an input", k, y[place(from, to, k)], x[k]);
    }
    x = a->bench.params.gradient;
    y = b->bench.params.gradient;
    assert_int_equal(a->bench.params.n_element, b->bench.params.n_element);
    for (int64_t k = 0; k < a->bench.params.n_element; k++)
        expect_near(a->of, "gradient of a parameter", k, y[k], x[k]);
}

static void run(setup *s) {
    fm_tape_forward(&s->bench.tape, NULL);
    if (!s->of->without_gradient) fm_tape_backward(&s->bench.tape, NULL);
}

static void padding_changes_nothing(void **state) {
    (void)state;
    static setup plain, padded;
    for (size_t i = 0; i < sizeof MODULES / sizeof MODULES[0]; i++) {
        begin(&plain, &MODULES[i], false, false);
        begin(&padded, &MODULES[i], true, false);
        copy_inputs(&plain, &padded);
        run(&plain), run(&padded);
        expect_same(&plain, &padded);
        op_end(&plain.bench);
        op_end(&padded.bench);
    }
}

/* -- gradients */

static const module BLOCKS[] = {
    {"conditioned attention (24)", declare_tokens, .build = build_conditioned_attention},
    {"conditioned transition (25)", declare_transition, .build = build_transition},
    {"diffusion transformer block (23)", declare_tokens, .build = build_token_block},
    {"atom transformer block (7)", declare_atom_block, .build = build_atom_block},
    {"Pairformer block (17)", declare_pairformer, .build = build_pairformer},
    {"last block of the MSA module (8)", declare_msa_block, .build = build_msa_block},
};

static void composed_blocks_match_differences(void **state) {
    (void)state;
    static setup s;
    for (size_t i = 0; i < sizeof BLOCKS / sizeof BLOCKS[0]; i++) {
        for (int recompute = 0; recompute < 2; recompute++) {
            begin(&s, &BLOCKS[i], false, recompute == 1);
            op_check_gradients(&s.bench);
            op_end(&s.bench);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(padding_changes_nothing),
        cmocka_unit_test(composed_blocks_match_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
