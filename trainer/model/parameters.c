/* parameters.c: see parameters.h. Each module is a small table of rows, one per array, in the order
 * in which the arrays are stored. A row that opens a block starts a new matrix of one GEMM; the
 * rows after it are stacked below it. Shapes are given as positions in the list of dimensions of
 * the module. */
#include "trainer/model/parameters.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The initialisations of supplement 1.11.4. */
typedef enum start { START_ZERO, START_ONE, START_LECUN, START_HE, START_GLOROT } start;

enum { AFTER_ZEROS = 2 };

/* One row of a module's table. Extents are positions in the list of dimensions of the module; c_in
 * 0 makes a vector. */
typedef struct row {
    int opens_block; /* AFTER_ZEROS: a gap of zeros precedes the block */
    const char *name, *openfold, *deepmind;
    fm_deepmind_layout layout;
    int c_out, c_in;
    start start;
} row;

static const char *join(fm_arena *arena, const char *prefix, const char *rest) {
    if (!prefix || !rest) return NULL;
    size_t bytes = strlen(prefix) + strlen(rest) + 1;
    char *text = fm_arena_alloc(arena, bytes);
    assert(text);
    int n = snprintf(text, bytes, "%s%s", prefix, rest);
    assert(n >= 0 && (size_t)n + 1 == bytes);
    (void)n;
    return text;
}

fm_scope fm_scope_enter(const fm_scope *scope, const char *name, const char *openfold,
                        const char *deepmind) {
    fm_scope inner = *scope;
    inner.name = join(scope->arena, scope->name, name);
    inner.openfold = join(scope->arena, scope->openfold, openfold);
    inner.deepmind = join(scope->arena, scope->deepmind, deepmind);
    return inner;
}

static void set_start(fm_param *param, start kind) {
    double fan_in = (double)param->shape[param->rank - 1], fan_out = (double)param->shape[0];
    switch (kind) {
    case START_ZERO: param->init = FM_INIT_CONSTANT; break;
    case START_ONE:
        param->init = FM_INIT_CONSTANT;
        param->init_scale = 1;
        break;
    case START_LECUN:
        param->init = FM_INIT_TRUNCATED_NORMAL;
        param->init_scale = sqrt(1 / fan_in);
        break;
    case START_HE:
        param->init = FM_INIT_TRUNCATED_NORMAL;
        param->init_scale = sqrt(2 / fan_in);
        break;
    case START_GLOROT:
        param->init = FM_INIT_UNIFORM;
        param->init_scale = sqrt(6 / (fan_in + fan_out));
        break;
    }
}

static bool has_heads(fm_deepmind_layout layout) {
    return layout == FM_DEEPMIND_HEADS_OUT || layout == FM_DEEPMIND_HEADS_IN;
}

/* Adds rows[0..n_row-1] and returns the blocks that they open in block[0..]. zeros: the size of the
 * gap before AFTER_ZEROS blocks. */
static void add_rows_with_zeros(const fm_scope *scope, const row *rows, int n_row,
                                const int64_t *dims, int64_t zeros, fm_param_ref *block) {
    int n_block = 0;
    for (int i = 0; i < n_row; i++) {
        const row *from = &rows[i];
        if (from->opens_block) {
            block[n_block++] = fm_params_add_block_after_zeros(
                scope->params, from->opens_block == AFTER_ZEROS ? zeros : 0);
        }
        fm_param param = {.name = join(scope->arena, scope->name, from->name),
                          .openfold = join(scope->arena, scope->openfold, from->openfold),
                          .deepmind = join(scope->arena, scope->deepmind, from->deepmind),
                          .deepmind_layer = scope->deepmind_layer,
                          .deepmind_layout = from->layout,
                          .deepmind_heads = has_heads(from->layout) ? scope->deepmind_heads : 0,
                          .rank = from->c_in ? 2 : 1,
                          .shape = {dims[from->c_out], from->c_in ? dims[from->c_in] : 0}};
        set_start(&param, from->start);
        fm_params_add(scope->params, &param);
    }
}

static void add_rows(const fm_scope *scope, const row *rows, int n_row, const int64_t *dims,
                     fm_param_ref *block) {
    add_rows_with_zeros(scope, rows, n_row, dims, 0, block);
}

#define N_ROW(table) ((int)(sizeof(table) / sizeof((table)[0])))

/* -- attention */

enum { A_NONE, A_C, A_WIDTH, A_HEADS, A_Z };

#define ATTENTION_ROWS                                                                             \
    {true,    "q.weight", "mha.linear_q.weight", "attention//query_w", FM_DEEPMIND_HEADS_OUT,      \
     A_WIDTH, A_C,        START_GLOROT},                                                           \
        {false,   "k.weight", "mha.linear_k.weight", "attention//key_w", FM_DEEPMIND_HEADS_OUT,    \
         A_WIDTH, A_C,        START_GLOROT},                                                       \
        {false,   "v.weight", "mha.linear_v.weight", "attention//value_w", FM_DEEPMIND_HEADS_OUT,  \
         A_WIDTH, A_C,        START_GLOROT},                                                       \
        {false,                                                                                    \
         "gate.weight",                                                                            \
         "mha.linear_g.weight",                                                                    \
         "attention//gating_w",                                                                    \
         FM_DEEPMIND_HEADS_OUT,                                                                    \
         A_WIDTH,                                                                                  \
         A_C,                                                                                      \
         START_ZERO},                                                                              \
        {AFTER_ZEROS,                                                                              \
         "gate.bias",                                                                              \
         "mha.linear_g.bias",                                                                      \
         "attention//gating_b",                                                                    \
         FM_DEEPMIND_HEADS_OUT,                                                                    \
         A_WIDTH,                                                                                  \
         A_NONE,                                                                                   \
         START_ONE},                                                                               \
        {true,                                                                                     \
         "out.weight",                                                                             \
         "mha.linear_o.weight",                                                                    \
         "attention//output_w",                                                                    \
         FM_DEEPMIND_HEADS_IN,                                                                     \
         A_C,                                                                                      \
         A_WIDTH,                                                                                  \
         START_ZERO},                                                                              \
    {                                                                                              \
        true, "out.bias", "mha.linear_o.bias", "attention//output_b", FM_DEEPMIND_SAME, A_C,       \
            A_NONE, START_ZERO                                                                     \
    }

#define NORM_ROWS(ours, openfold, deepmind, c)                                                     \
    {true, ours ".weight", openfold ".weight", deepmind "//scale", FM_DEEPMIND_SAME,               \
     c,    A_NONE,         START_ONE},                                                             \
    {                                                                                              \
        false, ours ".bias", openfold ".bias", deepmind "//offset", FM_DEEPMIND_SAME, c, A_NONE,   \
            START_ZERO                                                                             \
    }

static const row ROW_ATTENTION[] = {
    NORM_ROWS("norm", "layer_norm_m", "query_norm", A_C),
    ATTENTION_ROWS,
    {true, "pair_bias.weight", "linear_z.weight", "/feat_2d_weights", FM_DEEPMIND_TRANSPOSED,
     A_HEADS, A_Z, START_LECUN},
    NORM_ROWS("pair_norm", "layer_norm_z", "feat_2d_norm", A_Z),
};
static const row COLUMN_ATTENTION[] = {
    NORM_ROWS("norm", "layer_norm_m", "query_norm", A_C),
    ATTENTION_ROWS,
};
static const row TRIANGLE_ATTENTION[] = {
    NORM_ROWS("norm", "layer_norm", "query_norm", A_C),
    ATTENTION_ROWS,
    {true, "pair_bias.weight", "linear.weight", "/feat_2d_weights", FM_DEEPMIND_TRANSPOSED, A_HEADS,
     A_Z, START_LECUN},
};

fm_attention_weights fm_scope_attention(const fm_scope *scope, fm_axial axial, int64_t c,
                                        int64_t c_z, int64_t n_head, int64_t c_head) {
    const int64_t dims[] = {0, c, n_head * c_head, n_head, c_z}, zeros = 3 * n_head * c_head;
    fm_param_ref block[8] = {0};
    fm_scope heads = *scope;
    heads.deepmind_heads = n_head;
    if (axial == FM_AXIAL_ROW) {
        add_rows_with_zeros(&heads, ROW_ATTENTION, N_ROW(ROW_ATTENTION), dims, zeros, block);
    } else if (axial == FM_AXIAL_COLUMN) {
        /* OpenFold wraps the column attention in one more module. */
        fm_scope inner = fm_scope_enter(&heads, "", "_msa_att.", "");
        add_rows_with_zeros(&inner, COLUMN_ATTENTION, N_ROW(COLUMN_ATTENTION), dims, zeros, block);
    } else {
        add_rows_with_zeros(&heads, TRIANGLE_ATTENTION, N_ROW(TRIANGLE_ATTENTION), dims, zeros,
                            block);
    }
    return (fm_attention_weights){.norm = block[0],
                                  .qkvg = block[1],
                                  .gate_bias = block[2],
                                  .q_bias = FM_PARAM_NONE,
                                  .out = block[3],
                                  .out_bias = block[4],
                                  .bias = axial == FM_AXIAL_COLUMN ? FM_PARAM_NONE : block[5],
                                  .norm_z = axial == FM_AXIAL_ROW ? block[6] : FM_PARAM_NONE,
                                  .n_head = n_head,
                                  .c_head = c_head};
}

enum { G_NONE, G_C, G_WIDTH, G_HEAD };

static const row GLOBAL_ATTENTION[] = {
    NORM_ROWS("norm", "layer_norm_m", "query_norm", G_C),
    {true, "q.weight", "global_attention.linear_q.weight", "attention//query_w",
     FM_DEEPMIND_HEADS_OUT, G_WIDTH, G_C, START_GLOROT},
    {true, "k.weight", "global_attention.linear_k.weight", "attention//key_w",
     FM_DEEPMIND_TRANSPOSED, G_HEAD, G_C, START_GLOROT},
    {false, "v.weight", "global_attention.linear_v.weight", "attention//value_w",
     FM_DEEPMIND_TRANSPOSED, G_HEAD, G_C, START_GLOROT},
    {false, "gate.weight", "global_attention.linear_g.weight", "attention//gating_w",
     FM_DEEPMIND_HEADS_OUT, G_WIDTH, G_C, START_ZERO},
    {AFTER_ZEROS, "gate.bias", "global_attention.linear_g.bias", "attention//gating_b",
     FM_DEEPMIND_HEADS_OUT, G_WIDTH, G_NONE, START_ONE},
    {true, "out.weight", "global_attention.linear_o.weight", "attention//output_w",
     FM_DEEPMIND_HEADS_IN, G_C, G_WIDTH, START_ZERO},
    {true, "out.bias", "global_attention.linear_o.bias", "attention//output_b", FM_DEEPMIND_SAME,
     G_C, G_NONE, START_ZERO},
};

fm_global_attention_weights fm_scope_global_attention(const fm_scope *scope, int64_t c,
                                                      int64_t n_head, int64_t c_head) {
    const int64_t dims[] = {0, c, n_head * c_head, c_head};
    fm_param_ref b[6];
    fm_scope heads = *scope;
    heads.deepmind_heads = n_head;
    add_rows_with_zeros(&heads, GLOBAL_ATTENTION, N_ROW(GLOBAL_ATTENTION), dims, 2 * c_head, b);
    return (fm_global_attention_weights){b[0], b[1],   b[2],   b[3],   b[4],
                                         b[5], n_head, c_head, FM_KEEP};
}

/* -- the other sublayers */

enum { D_NONE, D_C, D_HIDDEN, D_OUT, D_SQUARE };

static const row TRANSITION[] = {
    NORM_ROWS("norm", "layer_norm", "input_layer_norm", D_C),
    {true, "1.weight", "linear_1.weight", "transition1//weights", FM_DEEPMIND_TRANSPOSED, D_HIDDEN,
     D_C, START_HE},
    {true, "1.bias", "linear_1.bias", "transition1//bias", FM_DEEPMIND_SAME, D_HIDDEN, D_NONE,
     START_ZERO},
    {true, "2.weight", "linear_2.weight", "transition2//weights", FM_DEEPMIND_TRANSPOSED, D_C,
     D_HIDDEN, START_ZERO},
    {true, "2.bias", "linear_2.bias", "transition2//bias", FM_DEEPMIND_SAME, D_C, D_NONE,
     START_ZERO},
};

fm_transition_weights fm_scope_transition(const fm_scope *scope, int64_t c, int64_t hidden) {
    const int64_t dims[] = {0, c, hidden};
    fm_param_ref block[5];
    add_rows(scope, TRANSITION, N_ROW(TRANSITION), dims, block);
    return (fm_transition_weights){block[0], block[1], block[2], block[3], block[4], hidden};
}

static const row OUTER[] = {
    NORM_ROWS("norm", "layer_norm", "layer_norm_input", D_C),
    {true, "a.weight", "linear_1.weight", "left_projection//weights", FM_DEEPMIND_TRANSPOSED,
     D_HIDDEN, D_C, START_LECUN},
    {false, "b.weight", "linear_2.weight", "right_projection//weights", FM_DEEPMIND_TRANSPOSED,
     D_HIDDEN, D_C, START_LECUN},
    {true, "a.bias", "linear_1.bias", "left_projection//bias", FM_DEEPMIND_SAME, D_HIDDEN, D_NONE,
     START_ZERO},
    {false, "b.bias", "linear_2.bias", "right_projection//bias", FM_DEEPMIND_SAME, D_HIDDEN, D_NONE,
     START_ZERO},
    {true, "out.weight", "linear_out.weight", "/output_w", FM_DEEPMIND_HEADS_IN, D_OUT, D_SQUARE,
     START_ZERO},
    {true, "out.bias", "linear_out.bias", "/output_b", FM_DEEPMIND_SAME, D_OUT, D_NONE, START_ZERO},
};

fm_outer_weights fm_scope_outer(const fm_scope *scope, int64_t c_m, int64_t c, int64_t c_z) {
    const int64_t dims[] = {0, c_m, c, c_z, c * c};
    fm_param_ref block[5];
    fm_scope heads = *scope;
    heads.deepmind_heads = c;
    add_rows(&heads, OUTER, N_ROW(OUTER), dims, block);
    return (fm_outer_weights){block[0], block[1], block[2], block[3], block[4], c, c_z, FM_KEEP};
}

/* DeepMind's left and right projections are our a and b for outgoing edges, and b and a for
 * incoming edges. */
#define TRIANGLE_ROWS(a, b)                                                                         \
    NORM_ROWS("norm_in", "layer_norm_in", "layer_norm_input", D_C), {true,                          \
                                                                     "a.weight",                    \
                                                                     "linear_a_p.weight",           \
                                                                     a "_projection//weights",      \
                                                                     FM_DEEPMIND_TRANSPOSED,        \
                                                                     D_HIDDEN,                      \
                                                                     D_C,                           \
                                                                     START_LECUN},                  \
        {false,                                                                                     \
         "a_gate.weight",                                                                           \
         "linear_a_g.weight",                                                                       \
         a "_gate//weights",                                                                        \
         FM_DEEPMIND_TRANSPOSED,                                                                    \
         D_HIDDEN,                                                                                  \
         D_C,                                                                                       \
         START_ZERO},                                                                               \
        {false,                                                                                     \
         "b.weight",                                                                                \
         "linear_b_p.weight",                                                                       \
         b "_projection//weights",                                                                  \
         FM_DEEPMIND_TRANSPOSED,                                                                    \
         D_HIDDEN,                                                                                  \
         D_C,                                                                                       \
         START_LECUN},                                                                              \
        {false,                                                                                     \
         "b_gate.weight",                                                                           \
         "linear_b_g.weight",                                                                       \
         b "_gate//weights",                                                                        \
         FM_DEEPMIND_TRANSPOSED,                                                                    \
         D_HIDDEN,                                                                                  \
         D_C,                                                                                       \
         START_ZERO},                                                                               \
        {false, "gate.weight", "linear_g.weight", "gating_linear//weights", FM_DEEPMIND_TRANSPOSED, \
         D_C,   D_C,           START_ZERO},                                                         \
        {true,     "a.bias", "linear_a_p.bias", a "_projection//bias", FM_DEEPMIND_SAME,            \
         D_HIDDEN, D_NONE,   START_ZERO},                                                           \
        {false,    "a_gate.bias", "linear_a_g.bias", a "_gate//bias", FM_DEEPMIND_SAME,             \
         D_HIDDEN, D_NONE,        START_ONE},                                                       \
        {false,    "b.bias", "linear_b_p.bias", b "_projection//bias", FM_DEEPMIND_SAME,            \
         D_HIDDEN, D_NONE,   START_ZERO},                                                           \
        {false,    "b_gate.bias", "linear_b_g.bias", b "_gate//bias", FM_DEEPMIND_SAME,             \
         D_HIDDEN, D_NONE,        START_ONE},                                                       \
        {false, "gate.bias", "linear_g.bias", "gating_linear//bias", FM_DEEPMIND_SAME,              \
         D_C,   D_NONE,      START_ONE},                                                            \
        NORM_ROWS("norm_out", "layer_norm_out", "center_layer_norm", D_HIDDEN),                     \
        {true,                                                                                      \
         "out.weight",                                                                              \
         "linear_z.weight",                                                                         \
         "output_projection//weights",                                                              \
         FM_DEEPMIND_TRANSPOSED,                                                                    \
         D_C,                                                                                       \
         D_HIDDEN,                                                                                  \
         START_ZERO},                                                                               \
    {                                                                                               \
        true, "out.bias", "linear_z.bias", "output_projection//bias", FM_DEEPMIND_SAME, D_C,        \
            D_NONE, START_ZERO                                                                      \
    }

static const row OUTGOING[] = {TRIANGLE_ROWS("left", "right")};
static const row INCOMING[] = {TRIANGLE_ROWS("right", "left")};

fm_triangle_weights fm_scope_triangle(const fm_scope *scope, bool incoming, int64_t c_z,
                                      int64_t c) {
    const int64_t dims[] = {0, c_z, c};
    fm_param_ref block[6];
    add_rows(scope, incoming ? INCOMING : OUTGOING, N_ROW(OUTGOING), dims, block);
    return (fm_triangle_weights){block[0], block[1], block[2], block[3],
                                 block[4], block[5], c,        FM_KEEP};
}

fm_linear_weights fm_scope_linear(const fm_scope *scope, int64_t c_in, int64_t c_out, bool zero) {
    const row rows[] = {
        {true, ".weight", ".weight", "//weights", FM_DEEPMIND_TRANSPOSED, 1, 2,
         zero ? START_ZERO : START_LECUN},
        {true, ".bias", ".bias", "//bias", FM_DEEPMIND_SAME, 1, 0, START_ZERO},
    };
    const int64_t dims[] = {0, c_out, c_in};
    fm_param_ref block[2];
    add_rows(scope, rows, 2, dims, block);
    return (fm_linear_weights){block[0], block[1], c_out};
}

/* -- the block */

fm_evoformer_weights fm_scope_evoformer(const fm_scope *scope, const fm_model_config *c) {
    fm_scope row_scope = fm_scope_enter(scope, "msa_row_attention.", "msa_att_row.",
                                        "msa_row_attention_with_pair_bias/");
    fm_scope column =
        fm_scope_enter(scope, "msa_column_attention.", "msa_att_col.",
                       c->global_column ? "msa_column_global_attention/" : "msa_column_attention/");
    fm_scope msa = fm_scope_enter(scope, "msa_transition.", "msa_transition.", "msa_transition/");
    fm_scope outer =
        fm_scope_enter(scope, "outer_product_mean.", "outer_product_mean.", "outer_product_mean/");
    fm_scope outgoing =
        fm_scope_enter(scope, "triangle_multiplication_outgoing.", "pair_stack.tri_mul_out.",
                       "triangle_multiplication_outgoing/");
    fm_scope incoming =
        fm_scope_enter(scope, "triangle_multiplication_incoming.", "pair_stack.tri_mul_in.",
                       "triangle_multiplication_incoming/");
    fm_scope starting =
        fm_scope_enter(scope, "triangle_attention_starting.", "pair_stack.tri_att_start.",
                       "triangle_attention_starting_node/");
    fm_scope ending = fm_scope_enter(scope, "triangle_attention_ending.", "pair_stack.tri_att_end.",
                                     "triangle_attention_ending_node/");
    fm_scope pair = fm_scope_enter(scope, "pair_transition.", "pair_stack.pair_transition.",
                                   "pair_transition/");
    int64_t n_msa = c->n_head_msa, n_pair = c->n_head_pair, factor = c->transition_factor;
    fm_evoformer_weights w = {0};
    w.row = fm_scope_attention(&row_scope, FM_AXIAL_ROW, c->c_m, c->c_z, n_msa, c->c_head_msa);
    if (c->global_column) {
        w.global_column = fm_scope_global_attention(&column, c->c_m, n_msa, c->c_head_msa);
    } else {
        w.column = fm_scope_attention(&column, FM_AXIAL_COLUMN, c->c_m, 0, n_msa, c->c_head_msa);
    }
    w.msa_transition = fm_scope_transition(&msa, c->c_m, factor * c->c_m);
    w.outer = fm_scope_outer(&outer, c->c_m, c->c_outer, c->c_z);
    w.outgoing = fm_scope_triangle(&outgoing, false, c->c_z, c->c_triangle);
    w.incoming = fm_scope_triangle(&incoming, true, c->c_z, c->c_triangle);
    w.starting =
        fm_scope_attention(&starting, FM_AXIAL_STARTING, c->c_z, c->c_z, n_pair, c->c_head_pair);
    w.ending = fm_scope_attention(&ending, FM_AXIAL_ENDING, c->c_z, c->c_z, n_pair, c->c_head_pair);
    w.pair_transition = fm_scope_transition(&pair, c->c_z, factor * c->c_z);
    return w;
}

static fm_template_block_weights template_block_of(const fm_scope *scope,
                                                   const fm_model_config *c) {
    fm_scope starting = fm_scope_enter(scope, "triangle_attention_starting.", "tri_att_start.",
                                       "triangle_attention_starting_node/");
    fm_scope ending = fm_scope_enter(scope, "triangle_attention_ending.", "tri_att_end.",
                                     "triangle_attention_ending_node/");
    fm_scope outgoing = fm_scope_enter(scope, "triangle_multiplication_outgoing.", "tri_mul_out.",
                                       "triangle_multiplication_outgoing/");
    fm_scope incoming = fm_scope_enter(scope, "triangle_multiplication_incoming.", "tri_mul_in.",
                                       "triangle_multiplication_incoming/");
    fm_scope pair =
        fm_scope_enter(scope, "pair_transition.", "pair_transition.", "pair_transition/");
    int64_t n_head = c->n_head_template, c_head = c->c_head_template;
    fm_template_block_weights w;
    w.starting = fm_scope_attention(&starting, FM_AXIAL_STARTING, c->c_t, c->c_t, n_head, c_head);
    w.ending = fm_scope_attention(&ending, FM_AXIAL_ENDING, c->c_t, c->c_t, n_head, c_head);
    w.outgoing = fm_scope_triangle(&outgoing, false, c->c_t, c->c_triangle_template);
    w.incoming = fm_scope_triangle(&incoming, true, c->c_t, c->c_triangle_template);
    w.transition = fm_scope_transition(&pair, c->c_t, c->template_transition_factor * c->c_t);
    return w;
}

/* -- embedders */

enum { E_NONE, E_M, E_Z, E_MSA, E_TARGET, E_RELPOS, E_BIN };

static const row INPUT_MSA[] = {
    {true, "msa.weight", "linear_msa_m.weight", "preprocess_msa//weights", FM_DEEPMIND_TRANSPOSED,
     E_M, E_MSA, START_LECUN},
    {true, "msa.bias", "linear_msa_m.bias", "preprocess_msa//bias", FM_DEEPMIND_SAME, E_M, E_NONE,
     START_ZERO},
    {true, "target_m.weight", "linear_tf_m.weight", "preprocess_1d//weights",
     FM_DEEPMIND_TRANSPOSED, E_M, E_TARGET, START_LECUN},
    {true, "target_m.bias", "linear_tf_m.bias", "preprocess_1d//bias", FM_DEEPMIND_SAME, E_M,
     E_NONE, START_ZERO},
};
static const row INPUT_PAIR[] = {
    {true, "target_i.weight", "linear_tf_z_i.weight", "left_single//weights",
     FM_DEEPMIND_TRANSPOSED, E_Z, E_TARGET, START_LECUN},
    {false, "target_j.weight", "linear_tf_z_j.weight", "right_single//weights",
     FM_DEEPMIND_TRANSPOSED, E_Z, E_TARGET, START_LECUN},
    {true, "target_i.bias", "linear_tf_z_i.bias", "left_single//bias", FM_DEEPMIND_SAME, E_Z,
     E_NONE, START_ZERO},
    {false, "target_j.bias", "linear_tf_z_j.bias", "right_single//bias", FM_DEEPMIND_SAME, E_Z,
     E_NONE, START_ZERO},
    /* This is DeepMind's spelling. */
    {true, "relpos.weight", "linear_relpos.weight", "pair_activiations//weights",
     FM_DEEPMIND_TRANSPOSED, E_Z, E_RELPOS, START_LECUN},
    {true, "relpos.bias", "linear_relpos.bias", "pair_activiations//bias", FM_DEEPMIND_SAME, E_Z,
     E_NONE, START_ZERO},
};
static const row RECYCLE[] = {
    NORM_ROWS("norm_m", "layer_norm_m", "prev_msa_first_row_norm", E_M),
    NORM_ROWS("norm_z", "layer_norm_z", "prev_pair_norm", E_Z),
    {true, "distance.weight", "linear.weight", "prev_pos_linear//weights", FM_DEEPMIND_TRANSPOSED,
     E_Z, E_BIN, START_LECUN},
    {true, "distance.bias", "linear.bias", "prev_pos_linear//bias", FM_DEEPMIND_SAME, E_Z, E_NONE,
     START_ZERO},
};

static void add_embedders(const fm_scope *root, const fm_model_config *c, fm_model_weights *w) {
    const int64_t dims[] = {0,
                            c->c_m,
                            c->c_z,
                            FM_MSA_FEATURES,
                            FM_TARGET_FEATURES,
                            2 * c->relpos_k + 1,
                            c->n_recycle_bin};
    fm_scope input = fm_scope_enter(root, "input_embedder.", "input_embedder.", "evoformer/");
    fm_param_ref b[4];
    add_rows(&input, INPUT_MSA, N_ROW(INPUT_MSA), dims, b);
    w->input_msa = (fm_input_msa_weights){b[0], b[1], b[2], b[3], c->c_m};
    add_rows(&input, INPUT_PAIR, N_ROW(INPUT_PAIR), dims, b);
    w->input_pair = (fm_input_pair_weights){b[0], b[1], b[2], b[3], c->c_z, c->relpos_k};
    fm_scope recycle =
        fm_scope_enter(root, "recycling_embedder.", "recycling_embedder.", "evoformer/");
    add_rows(&recycle, RECYCLE, N_ROW(RECYCLE), dims, b);
    w->recycle = (fm_recycle_weights){b[0], b[1], b[2], b[3], c->n_recycle_bin};
}

/* The scope of block `layer` of a stack, which has numbered names and is a slice of DeepMind's
 * stacked arrays. */
static fm_scope enter_block(const fm_scope *root, int32_t layer, const char *name,
                            const char *openfold, const char *deepmind) {
    char number[16];
    snprintf(number, sizeof number, "%d.", (int)layer);
    fm_scope stack = fm_scope_enter(root, name, openfold, deepmind);
    fm_scope block = fm_scope_enter(&stack, number, number, "");
    block.deepmind_layer = layer;
    return block;
}

enum { T_NONE, T_T, T_Z, T_M, T_WIDTH, T_PAIR, T_ROW };

static const row TEMPLATE_PAIR[] = {
    {true, "pair.weight", "template_pair_embedder.linear.weight",
     "template_embedding/single_template_embedding/embedding2d//weights", FM_DEEPMIND_TRANSPOSED,
     T_T, T_PAIR, START_HE},
    {true, "pair.bias", "template_pair_embedder.linear.bias",
     "template_embedding/single_template_embedding/embedding2d//bias", FM_DEEPMIND_SAME, T_T,
     T_NONE, START_ZERO},
};
static const row TEMPLATE_ATTENTION[] = {
    NORM_ROWS("norm", "template_pair_stack.layer_norm",
              "template_embedding/single_template_embedding/output_layer_norm", T_T),
    {true, "q.weight", "template_pointwise_att.mha.linear_q.weight",
     "template_embedding/attention//query_w", FM_DEEPMIND_HEADS_OUT, T_WIDTH, T_Z, START_GLOROT},
    {true, "k.weight", "template_pointwise_att.mha.linear_k.weight",
     "template_embedding/attention//key_w", FM_DEEPMIND_HEADS_OUT, T_WIDTH, T_T, START_GLOROT},
    {false, "v.weight", "template_pointwise_att.mha.linear_v.weight",
     "template_embedding/attention//value_w", FM_DEEPMIND_HEADS_OUT, T_WIDTH, T_T, START_GLOROT},
    {true, "out.weight", "template_pointwise_att.mha.linear_o.weight",
     "template_embedding/attention//output_w", FM_DEEPMIND_HEADS_IN, T_Z, T_WIDTH, START_ZERO},
    {true, "out.bias", "template_pointwise_att.mha.linear_o.bias",
     "template_embedding/attention//output_b", FM_DEEPMIND_SAME, T_Z, T_NONE, START_ZERO},
};
static const row TEMPLATE_ROWS[] = {
    {true, "row1.weight", "template_single_embedder.linear_1.weight",
     "template_single_embedding//weights", FM_DEEPMIND_TRANSPOSED, T_M, T_ROW, START_HE},
    {true, "row1.bias", "template_single_embedder.linear_1.bias", "template_single_embedding//bias",
     FM_DEEPMIND_SAME, T_M, T_NONE, START_ZERO},
    {true, "row2.weight", "template_single_embedder.linear_2.weight",
     "template_projection//weights", FM_DEEPMIND_TRANSPOSED, T_M, T_M, START_HE},
    {true, "row2.bias", "template_single_embedder.linear_2.bias", "template_projection//bias",
     FM_DEEPMIND_SAME, T_M, T_NONE, START_ZERO},
};

static void add_templates(const fm_scope *root, const fm_model_config *c, fm_model_weights *w) {
    if (c->n_template == 0) return;
    assert(c->n_template <= FM_MAX_TEMPLATE && c->n_template_block <= FM_MAX_TEMPLATE_BLOCK);
    int64_t width = c->n_head_pointwise * c->c_head_pointwise;
    const int64_t dims[] = {
        0, c->c_t, c->c_z, c->c_m, width, FM_TEMPLATE_PAIR_FEATURES, FM_TEMPLATE_ROW_FEATURES};
    fm_scope scope = fm_scope_enter(root, "template.", "template_embedder.", "evoformer/");
    fm_param_ref b[5];
    add_rows(&scope, TEMPLATE_PAIR, N_ROW(TEMPLATE_PAIR), dims, b);
    w->template_pair = (fm_template_pair_weights){b[0], b[1], c->c_t};
    for (int32_t i = 0; i < c->n_template_block; i++) {
        fm_scope block = enter_block(&scope, i, "", "template_pair_stack.blocks.",
                                     "template_embedding/single_template_embedding/"
                                     "template_pair_stack/__layer_stack_no_state/");
        w->template_block[i] = template_block_of(&block, c);
    }
    fm_scope heads = scope;
    heads.deepmind_heads = c->n_head_pointwise;
    add_rows(&heads, TEMPLATE_ATTENTION, N_ROW(TEMPLATE_ATTENTION), dims, b);
    w->template_attention = (fm_template_attention_weights){
        b[0], b[1], b[2], b[3], b[4], c->n_head_pointwise, c->c_head_pointwise};
    add_rows(&scope, TEMPLATE_ROWS, N_ROW(TEMPLATE_ROWS), dims, b);
    w->template_rows = (fm_template_row_weights){b[0], b[1], b[2], b[3], c->c_m};
}

static void add_extra_msa(const fm_scope *root, const fm_model_config *c, fm_model_weights *w) {
    if (c->n_extra_block == 0) return;
    assert(c->n_extra_block <= FM_MAX_EXTRA_BLOCK);
    fm_scope embedder = fm_scope_enter(root, "extra_msa_embedder", "extra_msa_embedder.linear",
                                       "evoformer/extra_msa_activations");
    w->extra_msa = fm_scope_linear(&embedder, FM_EXTRA_MSA_FEATURES, c->c_e, false);
    fm_model_config extra = fm_model_config_extra(c);
    for (int32_t i = 0; i < c->n_extra_block; i++) {
        fm_scope block = enter_block(root, i, "extra_msa_stack.", "extra_msa_stack.blocks.",
                                     "evoformer/extra_msa_stack/");
        w->extra_block[i] = fm_scope_evoformer(&block, &extra);
    }
}

void fm_model_add_parameters(fm_params *params, fm_arena *arena, const fm_model_config *c,
                             fm_model_weights *ret_weights) {
    assert(c->n_block <= FM_MAX_BLOCK);
    fm_scope root = {params, arena, "", "", "", -1, 0};
    add_embedders(&root, c, ret_weights);
    add_templates(&root, c, ret_weights);
    add_extra_msa(&root, c, ret_weights);
    for (int32_t i = 0; i < c->n_block; i++) {
        fm_scope block = enter_block(&root, i, "evoformer.", "evoformer.blocks.",
                                     "evoformer/evoformer_iteration/");
        ret_weights->block[i] = fm_scope_evoformer(&block, c);
    }
    fm_scope single =
        fm_scope_enter(&root, "single", "evoformer.linear", "evoformer/single_activations");
    ret_weights->single = fm_scope_linear(&single, c->c_m, c->c_s, false);
    fm_scope distogram = fm_scope_enter(&root, "distogram", "aux_heads.distogram.linear",
                                        "distogram_head/half_logits");
    ret_weights->distogram = fm_scope_linear(&distogram, c->c_z, c->n_distogram_bin, true);
    fm_scope masked = fm_scope_enter(&root, "masked_msa", "aux_heads.masked_msa.linear",
                                     "masked_msa_head/logits");
    ret_weights->masked_msa = fm_scope_linear(&masked, c->c_m, FM_MSA_CLASSES, true);
    if (c->structure.n_iteration > 0) {
        fm_structure_config sizes = fm_model_config_structure(c);
        fm_scope structure =
            fm_scope_enter(&root, "structure.", "structure_module.", "structure_module/");
        ret_weights->structure = fm_scope_structure(&structure, &sizes);
        ret_weights->heads = fm_scope_structure_heads(&root, &sizes);
    }
}
