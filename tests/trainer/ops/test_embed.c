/* test_embed.c: embedders, the linear layer and the losses: gradients compared with central
 * differences in f64, on odd, masked and size-one shapes. */
#include "tests/trainer/common/op_check.h"

#include "trainer/loss/losses.h"
#include "trainer/ops/embed.h"

typedef enum kind {
    INPUT_MSA,
    INPUT_PAIR,
    RECYCLE_MSA,
    RECYCLE_PAIR,
    RECYCLE_PAIR_WITHOUT_COORDINATES,
    LINEAR,
    LINEAR_ALL,
    DISTOGRAM,
    MASKED_MSA,
    TOTAL,
    N_KIND
} kind;

typedef struct setup {
    kind kind;
    int64_t n_seq, n_res, c;
    fm_input_msa_weights msa;
    fm_input_pair_weights pair;
    fm_recycle_weights recycle;
    fm_linear_weights linear;
} setup;

enum { N_BIN = 5, RELPOS_K = 3 };

static fm_tensor_ref build(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    const fm_distogram_options distogram = {8, 2.3125f, 21.6875f, 1e-8};
    switch (s->kind) {
    case INPUT_MSA: return fm_op_input_msa(tape, in[0], in[1], &s->msa);
    case INPUT_PAIR: return fm_op_input_pair(tape, in[0], in[1], &s->pair, (fm_part){0, 1});
    case RECYCLE_MSA: return fm_op_recycle_msa(tape, in[0], in[1], &s->recycle);
    case RECYCLE_PAIR: return fm_op_recycle_pair(tape, in[0], in[1], in[2], &s->recycle);
    case RECYCLE_PAIR_WITHOUT_COORDINATES:
        return fm_op_recycle_pair(tape, in[0], in[1], FM_TENSOR_NONE, &s->recycle);
    case LINEAR: return fm_op_linear(tape, "linear", in[0], s->n_res, &s->linear);
    case LINEAR_ALL: return fm_op_linear_all(tape, "linear", in[0], &s->linear);
    case DISTOGRAM: return fm_op_distogram_loss(tape, in[0], in[1], in[2], &s->linear, &distogram);
    case MASKED_MSA: return fm_op_masked_msa_loss(tape, in[0], in[1], in[2], &s->linear);
    default: return fm_op_total_loss(tape, in, 2, in[2]);
    }
}

static void add_embedder(op_bench *bench, setup *s) {
    const int64_t residues[] = {s->n_res}, pair[] = {s->n_res, s->n_res};
    const int64_t m[] = {s->n_seq, s->n_res, s->c}, z[] = {s->n_res, s->n_res, s->c};
    if (s->kind == INPUT_MSA) {
        op_input(bench, 3, (int64_t[]){s->n_seq, s->n_res, FM_MSA_FEATURES}, true);
        op_input_of(bench, FM_ELEMENT_U8, 1, residues, false);
        s->msa = (fm_input_msa_weights){
            op_block(bench, s->c, FM_MSA_FEATURES), op_block(bench, s->c, 0),
            op_block(bench, s->c, FM_TARGET_FEATURES), op_block(bench, s->c, 0), s->c};
    } else if (s->kind == INPUT_PAIR) {
        op_input_of(bench, FM_ELEMENT_U8, 1, residues, false);
        op_input_of(bench, FM_ELEMENT_I32, 1, residues, false);
        s->pair = (fm_input_pair_weights){op_block(bench, 2 * s->c, FM_TARGET_FEATURES),
                                          op_block(bench, 2 * s->c, 0),
                                          op_block(bench, s->c, 2 * RELPOS_K + 1),
                                          op_block(bench, s->c, 0),
                                          s->c,
                                          RELPOS_K};
    } else {
        bool msa = s->kind == RECYCLE_MSA;
        op_input(bench, 3, msa ? m : z, true);
        op_input(bench, msa ? 2 : 3, msa ? (int64_t[]){s->n_res, s->c} : z, true);
        if (s->kind == RECYCLE_PAIR) op_input_of(bench, FM_ELEMENT_U8, 2, pair, false);
        s->recycle.norm_m = op_block(bench, 2, s->c);
        s->recycle.norm_z = op_block(bench, 2, s->c);
        s->recycle.distance = op_block(bench, s->c, N_BIN);
        s->recycle.distance_bias = op_block(bench, s->c, 0);
        s->recycle.n_bin = N_BIN;
    }
}

static void add_head(op_bench *bench, setup *s) {
    const int64_t residues[] = {s->n_res}, msa[] = {s->n_seq, s->n_res}, one[] = {1};
    const int64_t m[] = {s->n_seq + 1, s->n_res, s->c}, z[] = {s->n_res, s->n_res, s->c};
    if (s->kind == TOTAL) {
        op_input(bench, 1, one, true);
        op_input(bench, 1, one, true);
        op_input_of(bench, FM_ELEMENT_F64, 1, (int64_t[]){2}, false);
        return;
    }
    op_input(bench, 3, s->kind == DISTOGRAM ? z : m, true);
    if (s->kind == DISTOGRAM) {
        op_input_of(bench, FM_ELEMENT_F32, 2, (int64_t[]){s->n_res, 3}, false);
        op_input_of(bench, FM_ELEMENT_F32, 1, residues, false);
    } else if (s->kind == MASKED_MSA) {
        op_input_of(bench, FM_ELEMENT_I32, 2, msa, false);
        op_input(bench, 2, msa, false);
    }
    int64_t c_out = s->kind == DISTOGRAM ? 8 : 7;
    s->linear = (fm_linear_weights){op_block(bench, c_out, s->c), op_block(bench, c_out, 0), c_out};
}

/* Valid ids, indices, coordinates and masks. */
static void fill_integers(op_bench *bench, const setup *s) {
    for (int i = 0; i < bench->n_input; i++) {
        fm_element element = bench->state.tensor[bench->input[i]].element;
        void *data = op_input_data(bench, i);
        for (int64_t k = 0; k < op_input_count(bench, i); k++) {
            double u = (op_uniform(60 + (uint32_t)i, k) + 1) / 2;
            if (element == FM_ELEMENT_U8) {
                ((uint8_t *)data)[k] = (uint8_t)(u * (s->kind == RECYCLE_PAIR ? N_BIN + 2 : 22));
            } else if (element == FM_ELEMENT_I32) {
                ((int32_t *)data)[k] = s->kind == MASKED_MSA ? (int32_t)(u * 7) : (int32_t)(2 * k);
            } else if (element == FM_ELEMENT_F32) {
                ((float *)data)[k] = i == 2 ? (float)(k != 1) : (float)(20 * u);
            }
        }
    }
    if (s->kind == MASKED_MSA) op_fill_mask(bench, 2, 33);
}

static void gradients_match_differences(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{3, 5, 8}, {1, 1, 4}, {4, 3, 7}, {2, 6, 32}};
    for (int k = 0; k < N_KIND; k++) {
        for (int shape = 0; shape < 4; shape++) {
            setup s = {.kind = (kind)k,
                       .n_seq = shapes[shape][0],
                       .n_res = shapes[shape][1],
                       .c = shapes[shape][2]};
            op_bench bench;
            op_begin(&bench, FM_ELEMENT_F64);
            if (k < LINEAR) {
                add_embedder(&bench, &s);
            } else {
                add_head(&bench, &s);
            }
            op_finish(&bench, build, &s);
            fill_integers(&bench, &s);
            op_check_gradients(&bench);
            op_end(&bench);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
