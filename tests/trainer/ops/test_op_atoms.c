/* test_op_atoms.c: tests the ops of atoms, tokens and conditioning: gradients against central
 * differences, window attention against a loop over pairs, and padding. */
#include "tests/trainer/common/op_check.h"

#include "trainer/ops/adaln.h"
#include "trainer/ops/atom_features.h"
#include "trainer/ops/atom_pairs.h"
#include "trainer/ops/concat.h"
#include "trainer/ops/layer_norm.h"
#include "trainer/ops/modulate.h"
#include "trainer/ops/reshape.h"
#include "trainer/ops/scale_groups.h"
#include "trainer/ops/swiglu.h"
#include "trainer/ops/window_attention.h"
#include "trainer/ops/windows.h"

/* -- rows */

typedef struct norm_setup {
    fm_param_ref weights;
    fm_norm_kind kind;
} norm_setup;

static fm_tensor_ref build_norm(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const norm_setup *s = context;
    return fm_op_layer_norm(tape, "norm", in[0], s->weights, s->kind);
}

static void every_kind_of_layer_norm(void **state) {
    (void)state;
    for (int kind = FM_NORM_WIDE; kind <= FM_NORM_PLAIN; kind++) {
        norm_setup s = {FM_PARAM_NONE, (fm_norm_kind)kind};
        op_bench bench;
        op_begin(&bench, FM_ELEMENT_F64);
        op_input(&bench, 3, (int64_t[]){2, 3, 7}, true);
        if (kind == FM_NORM_WIDE) s.weights = op_block(&bench, 2, 7);
        if (kind == FM_NORM_SCALE) s.weights = op_block(&bench, 7, 0);
        op_finish(&bench, build_norm, &s);
        op_check_gradients(&bench);
        op_end(&bench);
    }
}

/* The node, and the nodes that it replaces. */
typedef struct adaln_setup {
    fm_adaln_weights weights;
    bool is_composed;
} adaln_setup;

static fm_tensor_ref build_adaln(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const adaln_setup *s = context;
    const fm_adaln_weights *w = &s->weights;
    if (!s->is_composed) return fm_op_adaln(tape, "adaln", in[0], in[1], w);
    fm_tensor_ref n = fm_op_layer_norm(tape, "s", in[1], w->norm_s, FM_NORM_SCALE);
    fm_tensor_ref hat = fm_op_layer_norm(tape, "a", in[0], FM_PARAM_NONE, FM_NORM_PLAIN);
    return fm_op_modulate(tape, "adaln", fm_op_linear_all(tape, "gate", n, &w->gate), hat,
                          fm_op_linear_all(tape, "shift", n, &w->shift), FM_TENSOR_NONE);
}

static void adaln_is_its_parts(void **state) {
    (void)state;
    enum { S = 3, N = 4, C = 6, C_S = 5 };
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        double *values[2];
        int64_t count[2];
        for (int is_composed = 0; is_composed < 2; is_composed++) {
            adaln_setup s = {.is_composed = is_composed == 1};
            op_bench bench;
            op_begin(&bench, FM_ELEMENT_F64);
            op_input(&bench, 3, (int64_t[]){S, N, C}, true);
            op_input(&bench, is_shared ? 2 : 3,
                     is_shared ? (int64_t[]){N, C_S} : (int64_t[]){S, N, C_S}, true);
            s.weights.norm_s = op_block(&bench, C_S, 0);
            s.weights.gate =
                (fm_linear_weights){op_block(&bench, C, C_S), op_block(&bench, C, 0), C};
            s.weights.shift = (fm_linear_weights){op_block(&bench, C, C_S), FM_PARAM_NONE, C};
            op_finish(&bench, build_adaln, &s);
            op_check_gradients(&bench);
            count[is_composed] = op_run(&bench, &values[is_composed]);
            op_end(&bench);
        }
        op_expect_same(count[0], values[0], count[1], values[1]);
    }
}

/* The gate that ends a sublayer and the next AdaLN: one node, or two. Gives both results. */
static fm_tensor_ref build_adaln_after(fm_tape *tape, const fm_tensor_ref *in,
                                       const void *context) {
    const fm_adaln_signal signal = {in[3], in[4]};
    fm_tensor_ref both[2];
    if (*(const bool *)context) {
        both[0] = fm_op_modulate(tape, "end", in[2], in[1], FM_TENSOR_NONE, in[0]);
        both[1] = fm_op_adaln_given(tape, "adaln", both[0], signal);
    } else {
        both[0] = fm_op_adaln_after(tape, "adaln", in[0], in[1], in[2], signal, &both[1]);
    }
    return fm_op_concat(tape, "both", both, 2);
}

static void adaln_after_a_gate_is_both(void **state) {
    (void)state;
    enum { S = 3, N = 4, C = 6 };
    double *values[2];
    int64_t count[2];
    for (int is_composed = 0; is_composed < 2; is_composed++) {
        const bool context = is_composed == 1;
        op_bench bench;
        op_begin(&bench, FM_ELEMENT_F64);
        bench.without_gradient = true;
        for (int i = 0; i < 2; i++)
            op_input(&bench, 3, (int64_t[]){S, N, C}, false);
        for (int i = 0; i < 3; i++)
            op_input(&bench, 2, (int64_t[]){N, C}, false);
        op_finish(&bench, build_adaln_after, &context);
        count[is_composed] = op_run(&bench, &values[is_composed]);
        op_end(&bench);
    }
    op_expect_same(count[0], values[0], count[1], values[1]);
}

enum { ROW_CONCAT, ROW_SWIGLU, ROW_MODULATE, ROW_MODULATE_BARE, ROW_SCALE, ROW_LIFT, N_ROW };

static fm_tensor_ref build_rows(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    switch (*(const int *)context) {
    case ROW_CONCAT: return fm_op_concat(tape, "concat", in, 3);
    case ROW_SWIGLU: return fm_op_swiglu(tape, "swiglu", in[0]);
    case ROW_MODULATE: return fm_op_modulate(tape, "modulate", in[0], in[1], in[2], in[3]);
    case ROW_MODULATE_BARE:
        return fm_op_modulate(tape, "modulate", in[0], in[1], FM_TENSOR_NONE, FM_TENSOR_NONE);
    case ROW_SCALE: return fm_op_scale_groups(tape, "scale", in[0], in[1]);
    default: return fm_op_lift(tape, "lift", in[0]);
    }
}

static void rows_match_differences(void **state) {
    (void)state;
    enum { S = 3, N = 4, C = 6 };
    static const int64_t whole[] = {S, N, C}, shared[] = {N, C}, samples[] = {S};
    for (int which = 0; which < N_ROW; which++) {
        op_bench bench;
        op_begin(&bench, FM_ELEMENT_F64);
        if (which == ROW_CONCAT) {
            for (int64_t c = 1; c <= 3; c++)
                op_input(&bench, 3, (int64_t[]){S, N, c}, true);
        } else if (which == ROW_MODULATE || which == ROW_MODULATE_BARE) {
            op_input(&bench, 2, shared, true);
            op_input(&bench, 3, whole, true);
            if (which == ROW_MODULATE) op_input(&bench, 2, shared, true);
            if (which == ROW_MODULATE) op_input(&bench, 3, whole, true);
        } else {
            op_input(&bench, 3, whole, true);
            if (which == ROW_SCALE) op_input(&bench, 1, samples, false);
        }
        op_finish(&bench, build_rows, &which);
        op_check_gradients(&bench);
        op_end(&bench);
    }
}

/* -- tokens and atoms */

enum { ATOMS = 70, TOKENS = 9 };

/* Token t has t + 4 atoms, but token 3 has none; the last atoms are padding. */
static void fill_map(op_bench *bench, int token, int first) {
    int32_t *to = op_input_data(bench, token), *from = op_input_data(bench, first);
    int32_t l = 0;
    for (int32_t t = 0; t < TOKENS; t++) {
        from[t] = l;
        for (int32_t k = 0; k < (t == 3 ? 0 : t + 4); k++)
            to[l++] = t;
    }
    from[TOKENS] = l;
    assert_true(l < ATOMS);
    for (; l < ATOMS; l++)
        to[l] = -1;
}

enum { G_X, G_TOKEN, G_FIRST };

static fm_tensor_ref build_gather(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    fm_atom_map map = {in[G_TOKEN], in[G_FIRST], ATOMS, TOKENS};
    return *(const bool *)context ? fm_op_to_atoms(tape, "atoms", in[G_X], &map)
                                  : fm_op_mean_of_atoms(tape, "tokens", in[G_X], &map);
}

static void tokens_and_atoms_match_differences(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool to_atoms = i == 1;
        op_bench bench;
        op_begin(&bench, FM_ELEMENT_F64);
        op_input(&bench, 3, (int64_t[]){2, to_atoms ? TOKENS : ATOMS, 3}, true);
        op_input_of(&bench, FM_ELEMENT_I32, 1, (int64_t[]){ATOMS}, false);
        op_input_of(&bench, FM_ELEMENT_I32, 1, (int64_t[]){TOKENS + 1}, false);
        op_finish(&bench, build_gather, &to_atoms);
        fill_map(&bench, G_TOKEN, G_FIRST);
        op_check_gradients(&bench);
        op_end(&bench);
    }
}

static fm_tensor_ref build_index(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    (void)context;
    return fm_op_gather(tape, "gather", in[0], in[1], in[2]);
}

static void chosen_rows_match_differences(void **state) {
    (void)state;
    static const int32_t index[5] = {6, -1, 0, 3, 1}, inverse[7] = {2, 4, -1, 3, -1, -1, 0};
    op_bench bench;
    op_begin(&bench, FM_ELEMENT_F64);
    op_input(&bench, 3, (int64_t[]){2, 7, 3}, true);
    op_input_of(&bench, FM_ELEMENT_I32, 1, (int64_t[]){5}, false);
    op_input_of(&bench, FM_ELEMENT_I32, 1, (int64_t[]){7}, false);
    op_finish(&bench, build_index, NULL);
    memcpy(op_input_data(&bench, 1), index, sizeof index);
    memcpy(op_input_data(&bench, 2), inverse, sizeof inverse);
    op_check_gradients(&bench);
    op_end(&bench);
}

static fm_tensor_ref build_features(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const fm_atom_feature_inputs inputs = {in[0], in[1], in[2], in[3]};
    return fm_op_atom_features(tape, &inputs, context);
}

static void atom_features_match_differences(void **state) {
    (void)state;
    enum { N = 7, C = 3 };
    fm_atom_feature_weights w = {.c = C};
    op_bench bench;
    op_begin(&bench, FM_ELEMENT_F64);
    op_input(&bench, 2, (int64_t[]){N, 3}, false);
    op_input(&bench, 2, (int64_t[]){N, 1}, false);
    op_input(&bench, 1, (int64_t[]){N}, false);
    op_input_of(&bench, FM_ELEMENT_U8, 2, (int64_t[]){FM_ATOM_CLASSES, N}, false);
    w.position = op_block(&bench, C, 3);
    w.charge = op_block(&bench, C, 1);
    w.one_hot = op_block(&bench, C, FM_ATOM_ONE_HOT);
    op_finish(&bench, build_features, &w);
    uint8_t *classes = op_input_data(&bench, 3);
    for (int k = 0; k < FM_ATOM_CLASSES * N; k++)
        classes[k] = k < N ? 0 : k == 10 ? 255 : (uint8_t)(k * 7 % FM_ATOM_CHARACTERS);
    op_fill_mask(&bench, 2, 3);
    op_check_gradients(&bench);
    op_end(&bench);
}

enum { R_POSITION, R_SPACE, R_TOKEN, R_FIRST, R_Z, R_Q, R_K };

static fm_tensor_ref build_pairs(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    fm_atom_map map = {in[R_TOKEN], in[R_FIRST], ATOMS, TOKENS};
    return fm_op_atom_pairs(tape, in[R_POSITION], in[R_SPACE], in[R_Z], in[R_Q], in[R_K], &map,
                            context);
}

static void atom_pairs_match_differences(void **state) {
    (void)state;
    enum { C = 2 };
    fm_atom_pair_weights w = {.c = C};
    op_bench bench;
    op_begin(&bench, FM_ELEMENT_F64);
    op_input_of(&bench, FM_ELEMENT_F32, 2, (int64_t[]){ATOMS, 3}, false);
    op_input_of(&bench, FM_ELEMENT_I32, 1, (int64_t[]){ATOMS}, false);
    op_input_of(&bench, FM_ELEMENT_I32, 1, (int64_t[]){ATOMS}, false);
    op_input_of(&bench, FM_ELEMENT_I32, 1, (int64_t[]){TOKENS + 1}, false);
    op_input(&bench, 3, (int64_t[]){TOKENS, TOKENS, C}, true);
    op_input(&bench, 2, (int64_t[]){ATOMS, C}, true);
    op_input(&bench, 2, (int64_t[]){ATOMS, C}, true);
    w.offset = op_block(&bench, C, 3);
    w.inverse = op_block(&bench, C, 1);
    w.valid = op_block(&bench, C, 1);
    op_finish(&bench, build_pairs, &w);
    fill_map(&bench, R_TOKEN, R_FIRST);
    for (int l = 0; l < ATOMS; l++) {
        ((int32_t *)op_input_data(&bench, R_SPACE))[l] = l / 20;
        for (int axis = 0; axis < 3; axis++)
            ((float *)op_input_data(&bench, R_POSITION))[3 * l + axis] =
                (float)op_uniform(9, 3 * l + axis);
    }
    op_check_gradients(&bench);
    op_end(&bench);
}

/* -- window attention */

enum { W_X, W_Y, W_BIAS, W_MASK };

static fm_tensor_ref build_windows(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    return fm_op_window_attention(tape, "windows", in[W_X], in[W_Y], in[W_BIAS], in[W_MASK],
                                  context);
}

typedef struct window_shape {
    int64_t n_sample, n_atom, c, n_head, c_head;
} window_shape;

static void begin_windows(op_bench *bench, fm_window_attention_weights *w, const window_shape *s) {
    int64_t width = s->n_head * s->c_head;
    op_begin(bench, FM_ELEMENT_F64);
    op_input(bench, 3, (int64_t[]){s->n_sample, s->n_atom, s->c}, true);
    op_input(bench, 3, (int64_t[]){s->n_sample, s->n_atom, s->c}, true);
    op_input(bench, 4,
             (int64_t[]){fm_windows_count(s->n_atom), FM_WINDOW_QUERIES, FM_WINDOW_KEYS, s->n_head},
             true);
    op_input(bench, 1, (int64_t[]){s->n_atom}, false);
    *w = (fm_window_attention_weights){.n_head = s->n_head, .c_head = s->c_head};
    w->qkvg = op_block(bench, 4 * width, s->c);
    w->q_bias = op_block(bench, width, 0);
    w->out = op_block(bench, s->c, width);
    op_finish(bench, build_windows, w);
    for (int64_t l = 0; l < s->n_atom; l++)
        op_set(bench, op_input_data(bench, W_MASK), l, 1);
}

static void window_attention_matches_differences(void **state) {
    (void)state;
    static const window_shape shapes[] = {
        {1, 5, 4, 1, 3}, {2, 33, 3, 2, 2}, {2, 64, 2, 1, 2}, {1, 150, 3, 1, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        fm_window_attention_weights w;
        op_bench bench;
        begin_windows(&bench, &w, &shapes[i]);
        op_check_gradients(&bench);
        op_end(&bench);
    }
}

/* One number of q (kind 0), k, v or g for an atom. */
static double projected(const op_bench *bench, const fm_window_attention_weights *w,
                        const window_shape *s, int kind, int64_t at, int64_t channel) {
    const double *x = op_input_data(bench, kind == 1 || kind == 2 ? W_Y : W_X);
    const double *master = bench->params.master;
    int64_t width = s->n_head * s->c_head;
    const double *row =
        master + bench->params.block[w->qkvg].offset + (kind * width + channel) * s->c;
    double sum = kind == 0 ? master[bench->params.block[w->q_bias].offset + channel] : 0;
    for (int64_t c = 0; c < s->c; c++)
        sum += row[c] * x[at * s->c + c];
    return sum;
}

/* The gated core of one atom and channel, by a loop over the keys of its window. */
static double core_of(const op_bench *bench, const fm_window_attention_weights *w,
                      const window_shape *s, int64_t query, int64_t head, int64_t channel) {
    const double *bias = op_input_data(bench, W_BIAS);
    int64_t window = query / FM_WINDOW_QUERIES;
    int64_t first = window * FM_WINDOW_QUERIES - FM_WINDOW_BEFORE;
    double total = 0, value = 0;
    for (int64_t k = 0; k < FM_WINDOW_KEYS; k++) {
        int64_t key = first + k;
        if (key < 0 || key >= s->n_atom) continue;
        double logit = bias[(query * FM_WINDOW_KEYS + k) * s->n_head + head];
        for (int64_t c = head * s->c_head; c < (head + 1) * s->c_head; c++)
            logit += projected(bench, w, s, 0, query, c) * projected(bench, w, s, 1, key, c) /
                     sqrt((double)s->c_head);
        total += exp(logit);
        value += exp(logit) * projected(bench, w, s, 2, key, channel);
    }
    return value / total / (1 + exp(-projected(bench, w, s, 3, query, channel)));
}

static void window_attention_matches_a_loop_over_pairs(void **state) {
    (void)state;
    const window_shape s = {1, 100, 2, 2, 2};
    fm_window_attention_weights w;
    op_bench bench;
    begin_windows(&bench, &w, &s);
    fm_tape_forward(&bench.tape, NULL);
    const double *out = fm_tape_data(&bench.tape, bench.output_tensor);
    const double *last = (double *)bench.params.master + bench.params.block[w.out].offset;
    for (int64_t query = 0; query < s.n_atom; query++) {
        double core[4];
        for (int64_t c = 0; c < 4; c++)
            core[c] = core_of(&bench, &w, &s, query, c / 2, c);
        for (int64_t c = 0; c < s.c; c++) {
            double expected = 0;
            for (int64_t k = 0; k < 4; k++)
                expected += last[c * 4 + k] * core[k];
            assert_true(fabs(out[query * s.c + c] - expected) < 1e-12);
        }
    }
    op_end(&bench);
}

/* Atoms behind the last one, masked, change nothing for the others. */
static void masked_atoms_change_nothing(void **state) {
    (void)state;
    const window_shape less = {1, 41, 3, 1, 2}, more = {1, 64, 3, 1, 2};
    fm_window_attention_weights w[2];
    op_bench bench[2];
    begin_windows(&bench[0], &w[0], &less);
    begin_windows(&bench[1], &w[1], &more);
    for (int i = W_X; i <= W_Y; i++)
        memcpy(op_input_data(&bench[1], i), op_input_data(&bench[0], i),
               (size_t)(less.n_atom * less.c) * sizeof(double));
    for (int64_t l = less.n_atom; l < more.n_atom; l++)
        op_set(&bench[1], op_input_data(&bench[1], W_MASK), l, 0);
    for (int i = 0; i < 2; i++)
        fm_tape_forward(&bench[i].tape, NULL);
    const double *a = fm_tape_data(&bench[0].tape, bench[0].output_tensor);
    const double *b = fm_tape_data(&bench[1].tape, bench[1].output_tensor);
    for (int64_t k = 0; k < less.n_atom * less.c; k++)
        assert_true(fabs(a[k] - b[k]) < 1e-13);
    op_end(&bench[0]);
    op_end(&bench[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_layer_norm),
        cmocka_unit_test(rows_match_differences),
        cmocka_unit_test(adaln_is_its_parts),
        cmocka_unit_test(adaln_after_a_gate_is_both),
        cmocka_unit_test(tokens_and_atoms_match_differences),
        cmocka_unit_test(chosen_rows_match_differences),
        cmocka_unit_test(atom_features_match_differences),
        cmocka_unit_test(atom_pairs_match_differences),
        cmocka_unit_test(window_attention_matches_differences),
        cmocka_unit_test(window_attention_matches_a_loop_over_pairs),
        cmocka_unit_test(masked_atoms_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
