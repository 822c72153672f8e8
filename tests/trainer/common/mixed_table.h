/* mixed_table.h: a kernel table for tests. It relates to f32 and f64 as a GPU's bf16 table relates
 * to bf16 and f32: act is f32, acc is f64, and islands use the f64 table.
 *
 * Every entry is the f32 table's or, if it uses acc operands only, the f64 table's. An entry that
 * reads or writes both types converts its acc operands through a temporary array. Kernels that run
 * on islands only (structure module, losses) have no entry: calling one here ends the test. */
#ifndef FM_TESTS_TRAINER_MIXED_TABLE_H
#define FM_TESTS_TRAINER_MIXED_TABLE_H

#include "trainer/backend/few_grad.h"
#include "trainer/backend/kernels.h"
#include "trainer/backend/row_end.h"
#include "trainer/backend/swiglu_transition.h"
#include "trainer/backend/triangle_block.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static inline const fm_kernels *mixed_f32(void) {
    return fm_kernels_cpu(FM_ELEMENT_F32);
}

/* A float array for an acc operand, with its values if it has any. */
static inline float *mixed_take(const void *x, int64_t n) {
    float *to = calloc((size_t)n, sizeof *to);
    assert(to);
    for (int64_t i = 0; x && i < n; i++)
        to[i] = (float)((const double *)x)[i];
    return to;
}

static inline void mixed_give(float *from, int64_t n, fm_out y) {
    for (int64_t i = 0; y.data && i < n; i++) {
        double *to = (double *)y.data + i;
        *to = (y.beta == FM_ADD ? *to : 0) + (double)from[i];
    }
    free(from);
}

static inline void mixed_sum(fm_stream *stream, int64_t n_a, int64_t n_r, int64_t n_c,
                             const int64_t stride[2], const void *x, fm_out y, bool y_is_acc,
                             void *workspace) {
    float *sum = y_is_acc ? mixed_take(NULL, n_a * n_c) : y.data;
    fm_out to = {sum, y_is_acc ? FM_WRITE : y.beta};
    mixed_f32()->sum(stream, n_a, n_r, n_c, stride, x, to, y_is_acc, workspace);
    if (y_is_acc) mixed_give(sum, n_a * n_c, y);
}

static inline void mixed_gemm(fm_stream *stream, const fm_gemm *args, void *workspace) {
    fm_gemm g = *args;
    if (!g.c_is_acc) {
        float *sum = g.sum.data ? mixed_take(NULL, g.n) : NULL;
        g.sum = (fm_out){sum, FM_WRITE};
        mixed_f32()->gemm(stream, &g, workspace);
        if (sum) mixed_give(sum, g.n, args->sum);
        return;
    }
    assert(g.batch == 1 && g.epilogue == FM_EPILOGUE_NONE && !g.addend);
    float *product = mixed_take(NULL, g.m * g.n);
    g.c = product;
    g.ldc = g.n;
    g.beta = 0;
    int64_t sums = g.m - g.sum_first;
    float *sum = g.sum.data ? mixed_take(NULL, sums) : NULL;
    g.sum = (fm_out){sum, FM_WRITE};
    mixed_f32()->gemm(stream, &g, workspace);
    if (sum) mixed_give(sum, sums, args->sum);
    for (int64_t i = 0; i < g.m * g.n; i++) {
        double *to = (double *)args->c + i / g.n * args->ldc + i % g.n;
        *to = (args->beta != 0 ? args->beta * *to : 0) + (double)product[i];
    }
    free(product);
}

static inline void mixed_layernorm(fm_stream *stream, const fm_layernorm *args) {
    fm_layernorm a = *args;
    float *mean = mixed_take(NULL, a.rows), *rstd = mixed_take(NULL, a.rows);
    a.mean = mean;
    a.rstd = rstd;
    mixed_f32()->layernorm(stream, &a);
    mixed_give(mean, a.rows, (fm_out){args->mean, FM_WRITE});
    mixed_give(rstd, a.rows, (fm_out){args->rstd, FM_WRITE});
}

static inline void mixed_layernorm_grad(fm_stream *stream, const fm_layernorm_grad *args,
                                        void *workspace) {
    fm_layernorm_grad a = *args;
    float *mean = a.mean ? mixed_take(a.mean, a.rows) : NULL;
    float *rstd = a.rstd ? mixed_take(a.rstd, a.rows) : NULL;
    float *dgamma = mixed_take(NULL, a.c), *dbeta = mixed_take(NULL, a.c);
    a.mean = mean;
    a.rstd = rstd;
    a.dgamma = (fm_out){args->dgamma.data ? dgamma : NULL, FM_WRITE};
    a.dbeta = (fm_out){args->dbeta.data ? dbeta : NULL, FM_WRITE};
    mixed_f32()->layernorm_grad(stream, &a, workspace);
    mixed_give(dgamma, a.c, args->dgamma);
    mixed_give(dbeta, a.c, args->dbeta);
    free(mean);
    free(rstd);
}

static inline void mixed_update_norm_grad(fm_stream *stream, const fm_update_norm *args,
                                          const fm_update_norm_grad *grad, void *workspace) {
    fm_update_norm_grad g = *grad;
    int64_t c = args->dropout.c;
    float *dgamma = mixed_take(NULL, c), *dbeta = mixed_take(NULL, c);
    g.dgamma = (fm_out){grad->dgamma.data ? dgamma : NULL, FM_WRITE};
    g.dbeta = (fm_out){grad->dbeta.data ? dbeta : NULL, FM_WRITE};
    mixed_f32()->update_norm_grad(stream, args, &g, workspace);
    mixed_give(dgamma, c, grad->dgamma);
    mixed_give(dbeta, c, grad->dbeta);
}

static inline const fm_kernels *mixed_table(void);

static inline void mixed_transition_grad(fm_stream *stream, const fm_transition *args,
                                         const fm_transition_grad *grad, void *workspace) {
    fm_transition_grad_composed(mixed_table(), stream, args, grad, workspace);
}

static inline size_t mixed_few_grad_workspace(const fm_few_grad *args) {
    return fm_few_grad_composed_workspace(mixed_table(), args);
}

static inline void mixed_few_grad(fm_stream *stream, const fm_few_grad *args, void *workspace) {
    fm_few_grad_composed(mixed_table(), stream, args, workspace);
}

static inline size_t mixed_swiglu_transition_grad_workspace(const fm_swiglu_transition *args,
                                                            const fm_swiglu_transition_grad *grad) {
    return fm_swiglu_transition_grad_composed_workspace(mixed_table(), args, grad);
}

static inline void mixed_swiglu_transition_grad(fm_stream *stream, const fm_swiglu_transition *args,
                                                const fm_swiglu_transition_grad *grad,
                                                void *workspace) {
    fm_swiglu_transition_grad_composed(mixed_table(), stream, args, grad, workspace);
}

static inline size_t mixed_triangle_block_grad_workspace(const fm_triangle_block *args) {
    return fm_triangle_block_composed_grad_workspace(mixed_table(), args);
}

static inline void mixed_triangle_block_grad(fm_stream *stream, const fm_triangle_block *args,
                                             const fm_triangle_block_grad *grad, void *workspace) {
    fm_triangle_block_composed_grad(mixed_table(), stream, args, grad, workspace);
}

static inline int64_t mixed_rows(const fm_attention *a) {
    return a->n_group * a->n_batch * a->n_head * a->n_query;
}

static inline void mixed_attention(fm_stream *stream, const fm_attention *args, void *workspace) {
    fm_attention a = *args;
    float *lse = mixed_take(NULL, mixed_rows(args));
    a.lse = lse;
    mixed_f32()->attention(stream, &a, workspace);
    mixed_give(lse, mixed_rows(args), (fm_out){args->lse, FM_WRITE});
}

static inline void mixed_attention_grad(fm_stream *stream, const fm_attention *args,
                                        const fm_attention_grad *grad, void *workspace) {
    fm_attention a = *args;
    a.lse = mixed_take(args->lse, mixed_rows(args));
    mixed_f32()->attention_grad(stream, &a, grad, workspace);
    free(a.lse);
}

static inline void mixed_outer_grad(fm_stream *stream, const fm_outer *args,
                                    const fm_outer_grad *grad, void *workspace) {
    fm_outer_grad g = *grad;
    int64_t n = args->c_z * args->c * args->c;
    float *dw = mixed_take(NULL, n), *dbias = mixed_take(NULL, args->c_z);
    g.dw = (fm_out){grad->dw.data ? dw : NULL, FM_WRITE};
    g.dbias = (fm_out){grad->dbias.data ? dbias : NULL, FM_WRITE};
    mixed_f32()->outer_grad(stream, args, &g, workspace);
    mixed_give(dw, n, grad->dw);
    mixed_give(dbias, args->c_z, grad->dbias);
}

/* Copies the rows of a look-up table [n_class, c] to their strided place. */
static inline void mixed_give_classes(const fm_lookup *a, float *rows, fm_out dw) {
    for (int64_t i = 0; i < a->n_class * a->c; i++) {
        double *to = (double *)dw.data + i / a->c * a->class_stride + i % a->c * a->channel_stride;
        *to = (dw.beta == FM_ADD ? *to : 0) + (double)rows[i];
    }
    free(rows);
}

static inline fm_lookup mixed_contiguous(const fm_lookup *args) {
    fm_lookup a = *args;
    a.class_stride = a.c;
    a.channel_stride = 1;
    return a;
}

static inline void mixed_lookup_grad(fm_stream *stream, const fm_lookup *args, int64_t rows,
                                     const uint8_t *ids, const void *dy, fm_out dw,
                                     void *workspace) {
    fm_lookup a = mixed_contiguous(args);
    float *sum = mixed_take(NULL, a.n_class * a.c);
    mixed_f32()->lookup_grad(stream, &a, rows, ids, dy, (fm_out){sum, FM_WRITE}, workspace);
    mixed_give_classes(args, sum, dw);
}

static inline void mixed_relpos_grad(fm_stream *stream, const fm_lookup *args, int64_t n_i,
                                     int64_t n_j, const int32_t *index_i, const int32_t *index_j,
                                     const void *dz, fm_out dw, void *workspace) {
    fm_lookup a = mixed_contiguous(args);
    float *sum = mixed_take(NULL, a.n_class * a.c);
    fm_out to = {sum, FM_WRITE};
    mixed_f32()->relpos_grad(stream, &a, n_i, n_j, index_i, index_j, dz, to, workspace);
    mixed_give_classes(args, sum, dw);
}

static inline void mixed_adam(fm_stream *stream, const fm_adam *args) {
    fm_adam a = *args;
    a.copy = NULL;
    fm_kernels_cpu(FM_ELEMENT_F64)->adam(stream, &a);
    if (args->copy) mixed_f32()->cast(stream, a.n, FM_ELEMENT_F64, a.param, args->copy);
}

static inline void mixed_forget_island_entries(fm_kernels *k) {
    k->ipa = NULL;
    k->ipa_grad = NULL;
    k->frame_update = NULL;
    k->frame_update_grad = NULL;
    k->matrix_frames = NULL;
    k->matrix_frames_grad = NULL;
    k->unit_pairs = NULL;
    k->residue_atoms = NULL;
    k->residue_atoms_grad = NULL;
    k->pseudo_beta = NULL;
    k->fape = NULL;
    k->fape_grad = NULL;
    k->choose_naming = NULL;
    k->torsion_loss = NULL;
    k->lddt_bins = NULL;
    k->aligned_error_bins = NULL;
    k->binary_entropy = NULL;
    k->violation = NULL;
    k->distance_bins = NULL;
    k->cross_entropy = NULL;
    k->cross_entropy_grad = NULL;
    k->rigid_align = NULL;
    k->square_loss = NULL;
    k->square_loss_grad = NULL;
    k->bond_loss = NULL;
    k->bond_loss_grad = NULL;
    k->smooth_lddt = NULL;
    k->smooth_lddt_grad = NULL;
}

/* Rounds to bf16, as fm_tape.rounds does. */
static inline void mixed_round(int64_t n, void *data) {
    uint32_t *bits = data;
    for (int64_t i = 0; i < n; i++)
        bits[i] = (bits[i] + 0x7fff + (bits[i] >> 16 & 1)) & 0xffff0000u;
}

static inline void mixed_cast_rounded(fm_stream *stream, int64_t n, fm_element from, const void *x,
                                      void *y) {
    mixed_f32()->cast(stream, n, from, x, y);
    mixed_round(n, y);
}

/* Filled by the first call, which must come before ranks run as threads: kernels call this, too. */
static inline const fm_kernels *mixed_table(void) {
    static fm_kernels k;
    if (k.wide) return &k;
    const fm_kernels *wide = fm_kernels_cpu(FM_ELEMENT_F64);
    k = *mixed_f32();
    k.name = "cpu-f32-f64";
    k.acc = FM_ELEMENT_F64;
    k.wide = wide;
    k.tf32 = NULL;
    k.sum = mixed_sum;
    k.gemm = mixed_gemm;
    k.few_grad_workspace = mixed_few_grad_workspace;
    k.few_grad = mixed_few_grad;
    k.layernorm = mixed_layernorm;
    k.layernorm_grad = mixed_layernorm_grad;
    k.update_norm_grad = mixed_update_norm_grad;
    k.transition_grad = mixed_transition_grad;
    k.swiglu_transition_grad_workspace = mixed_swiglu_transition_grad_workspace;
    k.swiglu_transition_grad = mixed_swiglu_transition_grad;
    k.triangle_block_grad_workspace = mixed_triangle_block_grad_workspace;
    k.triangle_block_grad = mixed_triangle_block_grad;
    k.attention = mixed_attention;
    k.attention_grad = mixed_attention_grad;
    k.outer_grad = mixed_outer_grad;
    k.lookup_grad = mixed_lookup_grad;
    k.relpos_grad = mixed_relpos_grad;
    k.adam = mixed_adam;
    k.axpy_device = wide->axpy_device;
    k.grad_norm_workspace = wide->grad_norm_workspace;
    k.grad_norm = wide->grad_norm;
    k.accumulate = wide->accumulate;
    k.report = wide->report;
    k.init = wide->init;
    mixed_forget_island_entries(&k);
    return &k;
}

/* The same with the weights of bf16, and values of bf16 where an island ends. With fm_tape.rounds a
 * step is then a plain composition in bf16. Not for concurrent first calls either. */
static inline const fm_kernels *mixed_bf16_table(void) {
    static fm_kernels k;
    if (k.wide) return &k;
    k = *mixed_table();
    k.name = "cpu-bf16-f64";
    k.cast = mixed_cast_rounded;
    return &k;
}

#endif
