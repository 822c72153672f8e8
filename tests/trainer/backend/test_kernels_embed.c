/* test_kernels_embed.c: lookups, relative positions, outer sums, and the MSA features. */
#include "tests/trainer/backend/kernel_check.h"

/* -- lookup of a one-hot linear layer; both layouts of the table */

typedef struct table_case {
    fm_lookup lookup;
    int64_t rows;
    const uint8_t *ids;
} table_case;

static void lookup_forward(const fm_kernels *k, const void *ctx, void **in, void *out) {
    const table_case *t = ctx;
    fm_lookup lookup = t->lookup;
    lookup.w = in[0];
    k->lookup(NULL, &lookup, t->rows, t->ids, (fm_out){out, FM_WRITE});
    k->lookup(NULL, &lookup, t->rows, t->ids, (fm_out){out, FM_ADD});
}

static void lookup_backward(const fm_kernels *k, const void *ctx, void **in, const void *dout,
                            fm_out *din) {
    const table_case *t = ctx;
    (void)in;
    void *workspace = check_workspace(k->lookup_grad_workspace(&t->lookup, t->rows));
    k->lookup_grad(NULL, &t->lookup, t->rows, t->ids, dout, din[0], workspace);
    din[0].beta = FM_ADD; /* forward was called twice */
    k->lookup_grad(NULL, &t->lookup, t->rows, t->ids, dout, din[0], workspace);
    free(workspace);
}

static void lookup_formula(const void *ctx, double **in, double *out) {
    const table_case *t = ctx;
    const fm_lookup *l = &t->lookup;
    for (int64_t i = 0; i < t->rows * l->c; i++) {
        int64_t id = t->ids[i / l->c];
        out[i] =
            id < l->n_class ? 2 * in[0][id * l->class_stride + i % l->c * l->channel_stride] : 0;
    }
}

static void lookups(void **state) {
    (void)state;
    static const uint8_t ids[9] = {0, 3, 3, 2, 9, 0, 3, 4, 255}; /* 9 and 255 are not classes */
    table_case cases[] = {
        {{5, 7, 7, 1, NULL}, 9, ids}, {{5, 3, 1, 5, NULL}, 9, ids}, {{1, 1, 1, 1, NULL}, 1, ids}};
    for (int i = 0; i < 3; i++) {
        const fm_lookup *l = &cases[i].lookup;
        kernel_case test = {.name = "lookup",
                            .n_in = 1,
                            .in_size = {l->n_class * l->c},
                            .out_size = cases[i].rows * l->c,
                            .forward = lookup_forward,
                            .backward = lookup_backward,
                            .formula = lookup_formula,
                            .ctx = &cases[i],
                            .tolerance_f32 = 1e-6};
        check_kernel(&test);
    }
}

/* -- relative positions, added to an outer sum as in A3 */

typedef struct pair_case {
    int64_t n_i, n_j, c, ld;
    const int32_t *index_i, *index_j;
} pair_case;

static fm_lookup relpos_table(const pair_case *p, void *w) {
    return (fm_lookup){65, p->c, 1, 65, w}; /* a linear layer's [c, 65] */
}

static void pair_forward(const fm_kernels *k, const void *ctx, void **in, void *out) {
    const pair_case *p = ctx;
    fm_lookup w = relpos_table(p, in[2]);
    k->outer_sum(NULL, p->n_i, p->n_j, p->c, p->ld, p->ld, in[0], in[1], (fm_out){out, FM_WRITE});
    k->relpos(NULL, &w, p->n_i, p->n_j, p->index_i, p->index_j, (fm_out){out, FM_ADD});
}

static void pair_backward(const fm_kernels *k, const void *ctx, void **in, const void *dout,
                          fm_out *din) {
    const pair_case *p = ctx;
    fm_lookup w = relpos_table(p, in[2]);
    k->outer_sum_grad(NULL, p->n_i, p->n_j, p->c, p->ld, p->ld, dout, din[0], din[1]);
    if (!din[2].data) return;
    void *workspace = check_workspace(k->relpos_grad_workspace(&w, p->n_i, p->n_j));
    k->relpos_grad(NULL, &w, p->n_i, p->n_j, p->index_i, p->index_j, dout, din[2], workspace);
    free(workspace);
}

static void pair_formula(const void *ctx, double **in, double *out) {
    const pair_case *p = ctx;
    for (int64_t i = 0; i < p->n_i; i++) {
        for (int64_t j = 0; j < p->n_j; j++) {
            int64_t d = p->index_i[i] - p->index_j[j];
            d = d < -32 ? 0 : d > 32 ? 64 : d + 32;
            for (int64_t c = 0; c < p->c; c++)
                out[(i * p->n_j + j) * p->c + c] =
                    in[0][i * p->ld + c] + in[1][j * p->ld + c] + in[2][c * 65 + d];
        }
    }
}

static void pair_embedding(void **state) {
    (void)state;
    static const int32_t index[8] = {0, 1, 2, 31, 32, 33, 34, 2000000000};
    pair_case cases[] = {
        {8, 8, 3, 5, index, index}, {3, 8, 4, 4, index + 5, index}, {1, 1, 1, 1, index, index}};
    for (int i = 0; i < 3; i++) {
        const pair_case *p = &cases[i];
        kernel_case test = {.name = "pair embedding",
                            .n_in = 3,
                            .in_size = {p->n_i * p->ld, p->n_j * p->ld, p->c * 65},
                            .gap = {p->n_i * (p->ld - p->c), p->n_j * (p->ld - p->c)},
                            .out_size = p->n_i * p->n_j * p->c,
                            .forward = pair_forward,
                            .backward = pair_backward,
                            .formula = pair_formula,
                            .ctx = p,
                            .tolerance_f32 = 1e-6};
        check_kernel(&test);
    }
}

/* -- MSA features */

enum { S = 2, N = 3 };

static void check_features(const fm_kernels *k, const fm_msa_features *f, const uint32_t *profile,
                           double tolerance) {
    int64_t width = f->profile ? 49 : 25;
    for (int at = 0; at < S * N; at++) {
        double n = 1e-6 + f->cluster_size[at / N], expected[49] = {0};
        expected[f->msa[at]] = 1;
        expected[23] = f->deletion[at] > 0;
        expected[24] = atan(f->deletion[at] / 3.0) * 2 / acos(-1);
        for (int i = 0; i < 23; i++)
            expected[25 + i] = profile[at * 23 + i] / n;
        expected[48] = atan(f->deletion_sum[at] / n / 3) * 2 / acos(-1);
        for (int i = 0; i < width; i++)
            check_below(fabs(check_get(k, f->y, at * width + i) - expected[i]), tolerance,
                        "feature %d of position %d", i, at);
    }
}

static void msa_features(void **state) {
    (void)state;
    const uint8_t msa[S * N] = {0, 22, 21, 5, 20, 7};
    const uint16_t deletion[S * N] = {0, 1, 65535, 3, 0, 12};
    const uint32_t deletion_sum[S * N] = {0, 9, 4000000000u, 3, 1, 12}, size[S] = {1, 57};
    uint8_t narrow[S * N * 23];
    uint16_t middle[S * N * 23];
    uint32_t wide[S * N * 23];
    for (int i = 0; i < S * N * 23; i++)
        wide[i] = middle[i] = narrow[i] = (uint8_t)(i * 7);
    const void *profiles[] = {NULL, narrow, middle, wide};
    const fm_element types[] = {FM_ELEMENT_U8, FM_ELEMENT_U8, FM_ELEMENT_U16, FM_ELEMENT_U32};
    for (int which = 0; which < 2; which++) {
        const fm_kernels *k = fm_kernels_cpu(which ? FM_ELEMENT_F32 : FM_ELEMENT_F64);
        for (int i = 0; i < 4; i++) {
            fm_msa_features f = {S,
                                 N,
                                 msa,
                                 deletion,
                                 profiles[i],
                                 types[i],
                                 deletion_sum,
                                 size,
                                 check_buffer(k, NULL, S * N * 49)};
            k->msa_features(NULL, &f);
            check_features(k, &f, wide, which ? 3e-5 : 1e-12); /* profile counts up to 255 */
            free(f.y);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lookups),
        cmocka_unit_test(pair_embedding),
        cmocka_unit_test(msa_features),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
