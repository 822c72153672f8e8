/* call.h: how ops reach kernels: one wrapper for each entry of the kernel table that an op uses.
 *
 * A wrapper asks the table for the size of the kernel's workspace and takes it from the workspace
 * of the step. It calls the kernel unless the run is dry, and returns the workspace. So the forward
 * and backward of an op are straight lists of calls, and the dry run executes the same code.
 *
 * The linear layer, which every sublayer is made of, is here as well, forward and backward. Shapes
 * are given at each declaration. Pointers are device memory and must not be read in a dry run. */
#ifndef FM_TRAINER_CALL_H
#define FM_TRAINER_CALL_H

#include "trainer/autograd/tape.h"

static const double FM_LAYERNORM_EPS = 1e-5; /* AlphaFold's, for every LayerNorm */

/* Returns how many of `n` rows a chunked node processes at a time, if one row needs `elements`
 * elements of the act type. A slab is at most about chunk_bytes of the tape. Slabs are multiples of
 * 16 rows, at least 16, and of about the same size. */
int64_t fm_call_chunk(const fm_tape *tape, int64_t n, int64_t elements);

/* y = LayerNorm(x), x and y [rows, c]; mean and rstd acc [rows]; eps 1e-5. Without weights (gamma
 * NULL) x is normalised already (ops/linear_update.h); y is then x and must not be written. */
typedef struct fm_norm {
    int64_t rows, c;
    const void *x, *gamma, *beta;
    void *y, *mean, *rstd;
} fm_norm;

/* Makes y, mean and rstd in the workspace, where they stay to the end of the step. `weights` is the
 * block [2, c] of gamma and beta; NULL: x is normalised already. */
fm_norm fm_call_norm(fm_run *run, int64_t rows, int64_t c, const void *x, const void *weights);

/* Describes the same norm for fm_call_norm_few_grad and makes nothing: with weights, y, mean and
 * rstd are NULL. */
fm_norm fm_call_norm_later(const fm_run *run, int64_t rows, int64_t c, const void *x,
                           const void *weights);

/* The kernels themselves, for rows without gaps; callers leave ld and eps empty. */
void fm_call_layernorm(fm_run *run, const fm_layernorm *args);
void fm_call_layernorm_grad(fm_run *run, const fm_layernorm_grad *args);

/* Returns where the caller writes dy for fm_call_norm_grad: in the workspace, or in dx. */
fm_out fm_call_norm_gradient(fm_run *run, const fm_norm *norm, fm_out dx);

/* The backward of the norm: dx is written or added to as its beta says, and dweights is the
 * gradient [2, c] of the block. Without weights it does nothing. */
void fm_call_norm_grad(fm_run *run, const fm_norm *norm, const void *dy, fm_out dx,
                       fm_out dweights);

/* A linear layer y [rows, c_out] = x [rows, c_in] W^T + bias. Rows are ldx and ldy elements apart.
 */
typedef struct fm_linear {
    int64_t rows, c_in, c_out, ldx, ldy;
    const void *x, *w, *bias; /* w [c_out, c_in]; bias [c_out - bias_first] or NULL */
    /* The bias applies to the outputs from this one on. As many zeros must precede it in memory: a
     * block of fm_params_add_block_after_zeros. */
    int64_t bias_first;
    const void *residual; /* added to y, rows ldy apart; may be y; NULL: none; only forward */
    /* x is the output of a ReLU. fm_call_linear_grad then passes through the ReLU: dx is the
     * gradient of its input, and x_dbias (acc [c_in]) that of the bias of the layer before it. */
    bool x_is_relu;
    fm_out x_dbias;
} fm_linear;

/* relu: y = max(.., 0); it needs a bias and excludes a residual. */
void fm_call_linear(fm_run *run, const fm_linear *linear, bool relu, void *y);

/* The linear layer of LayerNorm(x), and `few` [rows, n_few] by few_w [n_few, c_in] of the same
 * rows. weights: the block [2, c_in] of the norm; NULL: x is normalised already. Rows have no gaps,
 * and there is no residual. */
void fm_call_norm_linear(fm_run *run, const fm_linear *linear, const void *weights, int64_t n_few,
                         const void *few_w, void *few, void *y);

/* dy has rows ldy apart, dx [rows, c_in] rows ldx apart; dw acc [c_out, c_in]; dbias acc [c_out -
 * bias_first]. A gradient with a NULL place is not made. */
void fm_call_linear_grad(fm_run *run, const fm_linear *linear, const void *dy, fm_out dx, fm_out dw,
                         fm_out dbias);

/* The backward of a linear layer with few outputs and without a bias, and of the norm whose rows
 * the layer reads, in one kernel where the shape allows that. `norm` comes from fm_call_norm_later.
 * If the caller has set norm->y, the normalised rows are written there for later readers. `dnormed`
 * comes from fm_call_norm_gradient; its beta is FM_ADD if other readers of the rows have written
 * their gradient into it. If the norm has weights, the content of dnormed is lost. linear->x is not
 * read. */
void fm_call_norm_few_grad(fm_run *run, const fm_norm *norm, const fm_linear *linear,
                           const void *dy, fm_out dnormed, fm_out dx, fm_out dweights, fm_out dw);

/* The end of a sublayer: an update [n_group, n0, n1, c] with a dropout mask that is shared over an
 * axis, added to a residual. Each group has a mask of its own (fm_tape_group_draws). */
typedef struct fm_update {
    int64_t n_group, n0, n1, c;
    /* The first element of this rank's part along axes 0 and 1; the extent of all of axis 1. */
    int64_t first0, first1, global_n1;
    double rate;
    fm_shared_axis shared;
} fm_update;

/* Describes an update of the shape of x [n0, n1, c], or [n_group, n0, n1, c], which is not
 * split. */
fm_update fm_update_of(const fm_tensor *x, double rate, fm_shared_axis shared);
/* Elements of an update, and of one group. */
int64_t fm_update_count(const fm_update *args);
int64_t fm_update_group_count(const fm_update *args);

/* y = residual + keep * update; y = keep * update where residual is NULL. y may be either. */
void fm_call_update(fm_run *run, const fm_node *node, const fm_update *args, const void *residual,
                    const void *update, void *y);
/* Returns the gradient of `update`: dy without dropout, else made in the workspace. */
const void *fm_call_update_grad(fm_run *run, const fm_node *node, const fm_update *args,
                                const void *dy);

/* The dropout of one group of an update, for kernels that end in one. */
fm_dropout fm_update_dropout(const fm_run *run, const fm_node *node, const fm_update *args,
                             int64_t group);

/* dupdate = keep * dy. */
void fm_call_dropout_grad(fm_run *run, const fm_node *node, const fm_update *args, const void *dy,
                          fm_out dupdate);
/* y = residual + keep * linear and n = LayerNorm(y); norm [2, c], NULL: no n. Rows of the linear
 * layer have no gaps. y may be residual. If linear->x is NULL, y is an input, and the call makes
 * only n. */
void fm_call_linear_update(fm_run *run, const fm_node *node, const fm_update *args,
                           const fm_linear *linear, const void *norm, const void *residual, void *y,
                           void *n);
/* A transition behind its norm. The caller leaves end.eps and both betas empty; end.gamma is the
 * block [2, c] of the next norm, NULL: no n; later.gamma that of the later one. */
void fm_call_transition(fm_run *run, const fm_transition *args);
/* Its backward. The caller leaves grad.dbeta empty; grad.dgamma is the gradient of the block of the
 * norm that makes n. */
void fm_call_transition_grad(fm_run *run, const fm_transition *args,
                             const fm_transition_grad *grad);
/* The backward of y and n: dnorm is the gradient of the block of the norm; grad leaves its own
 * weights' gradients empty. */
void fm_call_update_norm_grad(fm_run *run, const fm_node *node, const fm_update *args,
                              const void *norm, const fm_update_norm_grad *grad, fm_out dnorm);

void fm_call_gate(fm_run *run, const fm_gate *args);
void fm_call_gate_grad(fm_run *run, const fm_gate *args, const fm_gate_grad *grad);
void fm_call_swiglu(fm_run *run, const fm_swiglu *args);
void fm_call_swiglu_grad(fm_run *run, const fm_swiglu *args, const void *dy, fm_out dx);
/* AlphaFold 3's transition. Callers leave eps empty. */
void fm_call_swiglu_transition(fm_run *run, const fm_swiglu_transition *args);
void fm_call_swiglu_transition_grad(fm_run *run, const fm_swiglu_transition *args,
                                    const fm_swiglu_transition_grad *grad);
/* y[r, :] = scale[r] * x[r, :]; y may be x. Contiguous rows. */
void fm_call_scale_rows(fm_run *run, int64_t rows, int64_t c, const void *scale, const void *x,
                        fm_out y);
void fm_call_copy_strided(fm_run *run, const fm_strided *args);
/* y = x, `count` elements. */
void fm_call_copy(fm_run *run, int64_t count, const void *x, void *y);
/* y = value, `count` elements of the act or acc type. */
void fm_call_fill(fm_run *run, int64_t count, double value, void *y);
void fm_call_fill_acc(fm_run *run, int64_t count, double value, void *y);
/* y = x, act, converted to f32. */
void fm_call_to_f32(fm_run *run, int64_t count, const void *x, float *y);
/* Sets the rest of a gradient to 0 where the op is its first writer; the op has written only the
 * first `written` of `count` elements. */
void fm_call_clear_rest(fm_run *run, int64_t written, int64_t count, fm_out dx);
/* For an op that writes a part of a parameter block of `count` elements: where it is the first
 * writer, the whole block is cleared first. Returns dw to be added to. */
fm_out fm_call_part_of(fm_run *run, int64_t count, fm_out dw);
void fm_call_axpy(fm_run *run, int64_t count, double alpha, const void *x, fm_out y);
/* y = x + update, [rows, c]; y may be x. */
void fm_call_add(fm_run *run, int64_t rows, int64_t c, const void *x, const void *update, void *y);
/* dx = dy where y > 0; dx may be dy. */
void fm_call_relu_grad(fm_run *run, int64_t count, const void *y, const void *dy, fm_out dx);
void fm_call_gemm(fm_run *run, const fm_gemm *args);
/* Returns the parameter `bias` of `count` elements, or zeros in the workspace if it is NULL.
 * Kernels that always add a bias need it. */
const void *fm_call_bias_or_zeros(fm_run *run, int64_t count, const void *bias);
void fm_call_masked_mean(fm_run *run, const fm_masked_mean *args, void *y);
void fm_call_masked_mean_grad(fm_run *run, const fm_masked_mean *args, const void *dy, fm_out dx);
void fm_call_attention(fm_run *run, const fm_attention *args);
void fm_call_attention_grad(fm_run *run, const fm_attention *args, const fm_attention_grad *grad);
void fm_call_outer(fm_run *run, const fm_outer *args);
void fm_call_outer_grad(fm_run *run, const fm_outer *args, const fm_outer_grad *grad);
void fm_call_triangle(fm_run *run, const fm_triangle *args);
void fm_call_triangle_grad(fm_run *run, const fm_triangle *args, const fm_triangle_grad *grad);
void fm_call_triangle_block(fm_run *run, const fm_triangle_block *args);
/* One stage of the sublayer on a part; `workspace` is that of the stages of its direction. */
void fm_call_triangle_part(fm_run *run, fm_triangle_stage stage, const fm_triangle_part *args,
                           void *workspace);
void fm_call_triangle_block_grad(fm_run *run, const fm_triangle_block *args,
                                 const fm_triangle_block_grad *grad);
/* y [n_a, n_c] = sum over r of x[a*stride_a + r*stride_r + c], acc when y_is_acc, else act. */
void fm_call_sum(fm_run *run, int64_t n_a, int64_t n_r, int64_t n_c, int64_t stride_a,
                 int64_t stride_r, const void *x, fm_out y, bool y_is_acc);
/* lookup: y[r] = w[ids[r]]. bias_add: x += bias [c] in every row. outer_sum: z[i, j] = a[i] + b[j],
 * for n_i by n_j pairs; rows of a and b are ld apart. */
void fm_call_lookup(fm_run *run, const fm_lookup *args, int64_t rows, const uint8_t *ids, fm_out y);
void fm_call_bias_add(fm_run *run, int64_t rows, int64_t c, const void *bias, void *x);
void fm_call_outer_sum(fm_run *run, int64_t n_i, int64_t n_j, int64_t c, int64_t ld, const void *a,
                       const void *b, fm_out z);
void fm_call_outer_sum_grad(fm_run *run, int64_t n_i, int64_t n_j, int64_t c, int64_t ld,
                            const void *dz, fm_out da, fm_out db);
/* index [n_j]; i starts at `first`. */
void fm_call_relpos(fm_run *run, const fm_lookup *args, int64_t first, int64_t n_i, int64_t n_j,
                    const int32_t *index, fm_out z);
void fm_call_msa_features(fm_run *run, const fm_msa_features *args);
void fm_call_lookup_grad(fm_run *run, const fm_lookup *args, int64_t rows, const uint8_t *ids,
                         const void *dy, fm_out dw);
void fm_call_relpos_grad(fm_run *run, const fm_lookup *args, int64_t first, int64_t n_i,
                         int64_t n_j, const int32_t *index, const void *dz, fm_out dw);
void fm_call_cross_entropy(fm_run *run, const fm_cross_entropy *args);
void fm_call_cross_entropy_grad(fm_run *run, const fm_cross_entropy *args, const void *dloss,
                                fm_out dx);
/* Distances within one set of positions x f32 [n, 3] with mask f32 [n]: target [n, n], w [n, n]. */
void fm_call_distance_bins(fm_run *run, int64_t n, const float *x, const float *mask, int32_t n_bin,
                           float first, float last, int32_t *target, void *w);
/* The classes of distances (distance_ids of kernels.h). */
typedef struct fm_distance_classes {
    int32_t n;
    float first, last; /* bounds, in the unit of the positions */
    float most_square; /* squares from here on have no class */
} fm_distance_classes;

/* The classes of the distances between positions x f32 [n_j, 3], for n_i of them starting at `at`:
 * ids u8 [n_i, n_j]. */
void fm_call_distance_ids(fm_run *run, int64_t at, int64_t n_i, int64_t n_j, const float *x,
                          const fm_distance_classes *classes, uint8_t *ids);
/* y = *alpha x (+ y) over acc elements, *alpha in device memory. */
void fm_call_axpy_device(fm_run *run, int64_t count, const double *alpha, const void *x, fm_out y);

#endif
