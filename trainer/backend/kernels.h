/* kernels.h: the contract of a backend: one table of functions over pointers and sizes.
 *
 * A backend has one table for each storage type of activations (fm_kernels_cpu: f32 and f64;
 * cuda.h: f32 and bf16). The ops of the trainer check shapes and call through the table; they never
 * ask which backend it is. This file has the rules for all entries and the operand structs;
 * kernel_entries.h lists the entries and says what each one does.
 *
 * Element types. Every real operand belongs to a class, and the table gives the type of each class:
 *     act  activations, their gradients, masks, and parameters as the ops read them
 *     acc  statistics (mean, rstd, log-sum-exp), parameter gradients, scalars, optimiser state
 * Both are f32 in the f32 table and f64 in the f64 table; a bf16 table has act bf16 and acc f32.
 * Arithmetic and sums inside a kernel have at least the precision of acc.
 * docs/reference/numerics.md says for each kernel how sums are ordered and what error to expect.
 *
 * Rules for all entries
 *  - An entry allocates nothing and does not wait. Memory that it needs beside its operands is the
 *    `workspace` that the caller passes. It is 64-byte aligned, has at least the bytes that the
 *    _workspace query of the entry returns for the same shapes (for 0 bytes NULL is fine), and is
 *    not read or written after the call.
 *  - Work goes to `stream`. On the CPU the work is finished when the call returns; stream is NULL.
 *  - Outputs never alias inputs unless the entry says so.
 *  - Matrices are row-major. A dimension called ld is the distance between two rows. It is in
 *    elements, as all strides are. The channel axis is contiguous everywhere.
 *  - Linear weights are [c_out, c_in], so that the projections of one input are neighbouring rows
 *    of one matrix (q k v g; the gates and projections of triangle multiplication).
 *  - A gradient output is an fm_out: a place and whether to write (beta 0: the old content is not
 *    read) or to add (beta 1). data NULL means that this gradient is not needed. Gradients have the
 *    strides of the forward operand that they belong to.
 *  - The same inputs give the same bits: every sum has one order, which depends on shapes alone.
 *  - Sizes are >= 1, except where "may be 0" is written. A violation is a mistake of ours (assert).
 *  - The device's scalars (clock, step size, clip scale) are read from memory when the kernel runs,
 *    so that a captured graph can be replayed with other values.
 *
 * References such as "A6" and "A10" are algorithms of the AlphaFold2 supplement. */
#ifndef FM_BACKEND_KERNELS_H
#define FM_BACKEND_KERNELS_H

#include "trainer/backend/atom_operands.h"
#include "trainer/backend/device.h"
#include "trainer/backend/draw.h"
#include "trainer/backend/element.h"
#include "trainer/backend/structure_operands.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -- memory */

enum { FM_STRIDED_RANK = 5 };

/* y[i0..] = alpha * x[i0..] (+ y[i0..]) over `shape`, each side with its own strides. This covers
 * permutations, slices, concatenations, and, with an x stride of 0, broadcasts. No two indices may
 * give the same element of y. */
typedef struct fm_strided {
    int32_t rank; /* 1 .. FM_STRIDED_RANK */
    int64_t shape[FM_STRIDED_RANK], x_stride[FM_STRIDED_RANK], y_stride[FM_STRIDED_RANK];
    double alpha;
    const void *x; /* act */
    fm_out y;      /* act */
} fm_strided;

/* -- matrix products */

typedef enum fm_epilogue {
    FM_EPILOGUE_NONE = 0,
    FM_EPILOGUE_BIAS = 1,      /* C += bias[n], the same for every row */
    FM_EPILOGUE_BIAS_RELU = 2, /* C = max(C + bias[n], 0) */
    FM_EPILOGUE_RELU_GRAD = 3, /* C = 0 where relu is not above 0 */
} fm_epilogue;

/* For each b in [0, batch): C_b[m, n] = alpha op(A_b)[m, k] op(B_b)[k, n] + beta C_b, then the
 * epilogue. op is the transpose when trans_a or trans_b is set: A_b is stored [k, m], B_b [n, k]. A
 * linear layer y = x W^T has trans_b and B = W. With beta 0, C is not read.
 *
 * An addend takes the place of the old C in the sum: y = x W^T + residual. It cannot be combined
 * with BIAS_RELU.
 *
 * RELU_GRAD needs batch 1 and beta 0. `relu` is the ReLU's output; C becomes the gradient of its
 * input. `sum` is the bias gradient of the layer before the ReLU: sum[i] = the sum of C[:, i] after
 * the epilogue.
 *
 * A weight gradient dW = dy^T x (trans_a and c_is_acc, batch 1, no epilogue) may also have a `sum`,
 * which is the gradient of the layer's bias: sum[i] = the sum over the rows r of A as it is stored
 * of A[r, sum_first + i]. alpha and beta apply to C alone. */
typedef struct fm_gemm {
    int64_t m, n, k, batch;
    bool trans_a, trans_b;
    double alpha, beta;
    const void *a, *b; /* act */
    void *c;           /* act; acc when c_is_acc (weight gradients of a bf16 table) */
    bool c_is_acc;
    int64_t lda, ldb, ldc, stride_a, stride_b, stride_c;
    fm_epilogue epilogue;
    const void *bias;   /* act [n], for BIAS and BIAS_RELU */
    const void *addend; /* like C, or NULL */
    const void *relu;   /* like C, for RELU_GRAD */
    fm_out sum;         /* acc [n] for RELU_GRAD; [m - sum_first] for a weight gradient */
    int64_t sum_first;  /* for a weight gradient: A's first column that is summed */
} fm_gemm;

/* -- layer normalisation */

/* y = (x - mean) * rstd * gamma + beta over the last axis, where rstd = 1/sqrt(var + eps) and var
 * is the mean of squared deviations. AlphaFold's eps is 1e-5. There may be gaps between rows (ld >=
 * c). A gamma of NULL means ones, a beta of NULL zeros. */
typedef struct fm_layernorm {
    int64_t rows, c, ldx, ldy;
    double eps;
    const void *x, *gamma, *beta; /* act [rows, c] [c] [c] */
    void *y;                      /* act [rows, c] */
    void *mean, *rstd;            /* acc [rows], saved for backward; NULL: not written */
} fm_layernorm;

typedef struct fm_layernorm_grad {
    int64_t rows, c, ldx, lddy, lddx;
    const void *x, *gamma, *dy; /* act */
    const void *mean, *rstd;    /* acc [rows]; NULL: made again from x, with eps */
    fm_out dx;                  /* act [rows, c] */
    fm_out dgamma, dbeta;       /* acc [c] */
    double eps;                 /* of the forward; read only without mean and rstd */
} fm_layernorm_grad;

/* -- gates */

/* y[r, :] = mask[r] * sigmoid(g[r, :]) * x[r, :]. A mask of NULL means ones. Backward recomputes
 * the sigmoid from g. With x_rows, x is [x_rows, c] and row r reads x[r % x_rows, :]. */
typedef struct fm_gate {
    int64_t rows, c, ldg, ldx, ldy;
    const void *g, *x; /* act [rows, c] */
    const void *mask;  /* act [rows] or NULL */
    void *y;           /* act [rows, c]; forward only; may be x, unless x_rows */
    int64_t x_rows;    /* 0: rows */
} fm_gate;

typedef struct fm_gate_grad {
    const void *dy; /* act [rows, c], ld = ldy of the forward */
    fm_out dg, dx;  /* act [rows, c] with ldg, ldx; dx is not summed over rows that read one x */
} fm_gate_grad;

/* y[r, :] = swish(a[r, :]) * b[r, :] with swish(a) = a * sigmoid(a) (the transition of AlphaFold 3,
 * AF3-11). a and b are the two halves of a row of one projection [rows, 2c]. Backward needs only
 * the projection. */
typedef struct fm_swiglu {
    int64_t rows, c, ldx, ldy;
    const void *x; /* act [rows, 2c]: a, b */
    void *y;       /* act [rows, c] */
} fm_swiglu;

/* The transition sublayer of AlphaFold 3 (AF3-11):
 *
 *     a | b = w1 LayerNorm(x),   y = x + w2 (swish(a) * b)          x only if `residual`
 *
 * `kept` holds what backward needs beside the operands, in a form of the backend's choice. */
typedef struct fm_swiglu_transition {
    int64_t rows, c, hidden;
    double eps;
    bool residual;
    const void *x, *norm; /* act [rows, c]; [2, c]: gamma, beta */
    const void *w1, *w2;  /* act [2 hidden, c]: of a, then of b; [c, hidden] */
    void *kept;           /* act, swiglu_transition_kept elements; forward: NULL keeps nothing */
    void *y;              /* act [rows, c], may be x; NULL: only `kept` is made. Forward only */
} fm_swiglu_transition;

typedef struct fm_swiglu_transition_grad {
    const void *dy; /* act [rows, c] */
    fm_out dx; /* act, without the residual's part, which is dy itself; may be dy with FM_ADD */
    fm_out dnorm, dw1, dw2; /* acc, like the parameters */
} fm_swiglu_transition_grad;

/* -- masked mean */

/* y[r, :] = sum_s mask[s, r] x[s, r, :] / (eps + sum_s mask[s, r]): the mean query of global column
 * attention (A19:2), eps 1e-10. x [n_s, n_r, c] and mask [n_s, n_r] are contiguous. */
typedef struct fm_masked_mean {
    int64_t n_s, n_r, c;
    double eps;
    const void *x;    /* act; forward only */
    const void *mask; /* act */
} fm_masked_mean;

/* -- attention */

/* Element (group, batch, row, head, channel) is at group*stride.group + batch*stride.batch +
 * row*stride.row + head*stride.head + channel. So row, column and both triangle attentions read the
 * same [N, N, c] memory, and q k v g may be slices of one matrix. */
typedef struct fm_attention_stride {
    int64_t group, batch, row, head;
} fm_attention_stride;

/* For every group, batch and head (A7, A8, A13, A14, A17):
 *
 *     logits[q, k] = scale * <Q[q], K[k]> + bias[group, head, q, k] + mask_value * (mask[k] - 1)
 *     o[q]         = sigmoid(G[q]) * sum_k softmax_k(logits[q, :]) V[k]
 *
 * The mask has one element per key and is 0 or 1; other values are asserted against on the CPU, and
 * on CUDA on request (cuda.h). A batch without a valid key is computed as if it had no mask.
 *
 * The bias is the same for all batches of a group, and its gradient is summed over them in order.
 * Only the log-sum-exp of each row is saved: backward recomputes the probabilities and, when there
 * is a gate, the ungated output.
 *
 *     MSA row attention        batch = MSA rows
 *     MSA column attention     batch = residues
 *     starting node            batch = i
 *     ending node              the same, with rows and columns of z exchanged by strides
 *     templates                group = template
 *
 * n_kv_head is n_head, or 1 when all heads share one key and value (A19). The gradients of a shared
 * key and value are summed over the heads in order. */
typedef struct fm_attention {
    int64_t n_group, n_batch, n_query, n_key, n_head, n_kv_head, c_head;
    double scale;          /* 1 / sqrt(c_head) */
    double mask_value;     /* 1e9 in the stacks, 1e5 in template attention */
    const void *q, *k, *v; /* act */
    const void *g;         /* act, like q; NULL: no gate */
    const void *bias;      /* act; NULL: none */
    const void *mask;      /* act, 0 or 1; NULL: all ones */
    fm_attention_stride q_stride, k_stride, v_stride, g_stride, o_stride;
    int64_t bias_stride[4]; /* group, head, query, key */
    int64_t mask_stride[3]; /* group, batch, key */
    void *o;                /* act; written by forward, read by backward */
    void *lse;              /* acc [n_group, n_batch, n_head, n_query]; written by forward */
} fm_attention;

typedef struct fm_attention_grad {
    const void *dout; /* act, strides of o: gradient of the gated output; NULL: dy w */
    /* act [rows, c_y] and [c_y, n_head * c_head], where o is a matrix [rows, n_head * c_head]: dout
     * as the gradient of y = o w^T. Only with a bias, and where attention_opens says so. */
    const void *dy, *w;
    fm_out dq, dk, dv, dg; /* act, strides of q k v g */
    fm_out dbias;          /* act, strides of bias */
} fm_attention_grad;

/* -- outer product mean (A10) */

/* z[i, j, :] = (W vec(sum_s a[s,i,:] (x) b[s,j,:]) + bias) / (eps + sum_s mask_a[s,i] mask_b[s,j])
 *              + residual[i, j, :]
 *
 * The index of vec is (channel of a) * c + (channel of b). In the formula a[s,i,:] is mask_a[s,i]
 * times the stored value, and b is the same with mask_b; da and db are gradients of the stored
 * values. The [n_i, n_j, c, c] tensor is never stored as a whole: its pieces pass through the
 * workspace. The split axis under DAP is i, so n_i may be smaller than n_j. */
typedef struct fm_outer {
    int64_t n_seq, n_i, n_j, c, c_z;
    double eps;        /* 1e-3 */
    const void *a, *b; /* act: a[s,i,ch] at s*a_stride[0] + i*a_stride[1] + ch */
    int64_t a_stride[2], b_stride[2];
    const void *mask_a, *mask_b; /* act [n_seq, n_i], [n_seq, n_j] contiguous */
    const void *w, *bias;        /* act [c_z, c*c], [c_z] */
    fm_out z;                    /* act [n_i, n_j, c_z] contiguous; forward only */
    const void *residual;        /* like z, but other memory; z.beta is then FM_WRITE. NULL: none */
} fm_outer;

typedef struct fm_outer_grad {
    const void *dz;   /* act [n_i, n_j, c_z] */
    fm_out da, db;    /* act, strides of a and b */
    fm_out dw, dbias; /* acc [c_z, c*c], [c_z] */
} fm_outer_grad;

/* -- triangle multiplication (A11, A12) */

/* a = mask * sigmoid(ga) * pa and b likewise, then for each channel
 *     outgoing: x[i, j] = sum_k a[i, k] b[j, k]     a [n_i, n_k], b [n_j, n_k]
 *     incoming: x[i, j] = sum_k a[k, i] b[k, j]     a [n_k, n_i], b [n_k, n_j]
 *
 * pa ga pb gb are [rows, c] over the flattened pair axes, each with one ld (slices of one fused
 * projection). When ga or gb is NULL, the operand a or b is pa or pb unchanged: its mask is not
 * read, and dga or dgb is not written. */
typedef struct fm_triangle {
    int64_t n_i, n_j, n_k, c;
    bool incoming;
    const void *pa, *ga, *pb, *gb; /* act; ga, gb may be NULL */
    int64_t lda, ldb;              /* of pa and ga; of pb and gb */
    const void *mask_a, *mask_b;   /* act, one for each row of a and of b */
    void *x;                       /* act [n_i, n_j, c] contiguous; forward only */
} fm_triangle;

typedef struct fm_triangle_grad {
    const void *dx;            /* act [n_i, n_j, c] */
    fm_out dpa, dga, dpb, dgb; /* act, with lda and ldb */
} fm_triangle_grad;

/* -- dropout */

/* Shared-axis dropout of an update [n0, n1, c], which is the slice from (offset0, offset1) on of a
 * global [.., global_n1, c]. keep(i, j, k) is 0 or 1/(1-rate), drawn by global index (draw.h). A
 * rate of 0 keeps everything and draws nothing. */
typedef struct fm_dropout {
    int64_t n0, n1, c, offset0, offset1, global_n1;
    fm_shared_axis shared;
    double rate;
    fm_draw draw;
} fm_dropout;

/* -- triangle multiplication, the whole sublayer (A11, A12) */

/* On n x n pairs:
 *
 *     pa ga pb gb (c channels each), g (c_z) = projections LayerNorm(z) + projections_bias
 *     x                                      = as in fm_triangle
 *     y = z + keep * sigmoid(g) * (out LayerNorm(x) + out_bias)       z only if `residual`
 *
 * `kept` holds what backward needs beside the operands, in a form of the backend's choice. */
typedef struct fm_triangle_block {
    int64_t n, c_z, c;
    int64_t n_part; /* 0: all pairs. Else those of a part, see fm_triangle_stage */
    bool incoming, residual;
    bool keeps; /* backward follows and `kept` is written; else `kept` is ignored */
    double eps;
    const void *z, *mask;           /* act [n, n, c_z], [n, n] */
    const void *norm_in, *norm_out; /* act [2, c_z], [2, c]: gamma, beta */
    const void *projections;        /* act [4c + c_z, c_z]: rows pa ga pb gb g */
    const void *projections_bias;   /* act [4c + c_z] */
    const void *out, *out_bias;     /* act [c_z, c], [c_z] */
    fm_dropout dropout;             /* of an update [n, n, c_z] */
    void *kept;                     /* act, triangle_block_kept elements */
    void *y; /* act [n, n, c_z], may be z; NULL: only `kept` is made. Forward only */
} fm_triangle_block;

typedef struct fm_triangle_block_grad {
    const void *dy; /* act [n, n, c_z] */
    /* act, without the residual's part, which is dy itself; may be dy with FM_ADD */
    fm_out dz;
    fm_out dnorm_in, dnorm_out; /* acc, like the parameters, as are the next two lines */
    fm_out dprojections, dprojections_bias;
    fm_out dout, dout_bias;
} fm_triangle_block_grad;

/* The whole sublayer on a part of the pairs, in stages, for ranks that have n_part of the n rows of
 * z: [n_part, n]. mask, y, dropout and the gradients of z and y are of the part; rows = n * n_part.
 * `kept` begins with a, b and x, [3, c, rows], the workspace of backward with their gradients in
 * the same order. Between two stages the caller exchanges one of the three with the other ranks:
 *
 *     stage         outgoing edges                        incoming edges
 *     ----------    ----------------------------------    ----------------------------------------
 *     FRONT         z to a and b                          and to `whole` [c, n, n], this part's
 *                                                         share of x
 *                   gather of b from all ranks            sum of x over the ranks, this part's rows
 *     BACK          `whole`, all of b, to x and y         x to y
 *     BACK_GRAD     dy to dx and da, and to `dwhole`      dy to dx
 *                   [c, n, n], this part's share of db
 *                   sum of db over the ranks              gather of dx from all ranks
 *     FRONT_GRAD    to dz, parameters' gradients          `dwhole`, all of dx, to da, db; the same
 *
 * With incoming edges x_ij sums over the rows k of z, so each part has a share of all of x. The
 * workspace keeps its content from BACK_GRAD to FRONT_GRAD, and block.kept, which is never NULL,
 * from FRONT on. */
typedef enum fm_triangle_stage {
    FM_TRIANGLE_FRONT,
    FM_TRIANGLE_BACK,
    FM_TRIANGLE_BACK_GRAD,
    FM_TRIANGLE_FRONT_GRAD
} fm_triangle_stage;

typedef struct fm_triangle_part {
    fm_triangle_block block;
    void *whole;                        /* act */
    void *dwhole;                       /* act */
    const fm_triangle_block_grad *grad; /* dy: BACK_GRAD; the others: FRONT_GRAD */
} fm_triangle_part;

/* The end of a sublayer and the LayerNorm that the next one begins with, in one pass over rows
 * [n0 * n1, c]:
 *
 *     y = residual + keep * update,   n = LayerNorm(y)
 *
 * LayerNorm reads y as it is stored, rounded to act. The results are those of dropout followed by
 * layernorm. */
typedef struct fm_update_norm {
    fm_dropout dropout;
    double eps;
    const void *gamma, *beta; /* act [c] */
} fm_update_norm;

/* Adds the gradient of y that comes through n to dy; then dupdate = keep * dy, and dy is the
 * residual's gradient. */
typedef struct fm_update_norm_grad {
    const void *y, *dn;   /* act; the statistics of y are computed again */
    fm_out dy;            /* act; FM_WRITE when y has no other reader */
    void *dupdate;        /* act; NULL: not written */
    fm_out dgamma, dbeta; /* acc [c] */
} fm_update_norm_grad;

/* The last linear layer of a sublayer, and update_norm of its result:
 *
 *     update = x w^T + bias,   y = residual + keep * update,   n = LayerNorm(y)
 *
 * Rows [n0 * n1], c: those of end.dropout. update may be unrounded.
 *
 * If x is NULL, y is an input. The entry then makes only n, with the bits that it has when y is
 * made, and reads no w, bias or residual; c_in is still that of the layer. */
typedef struct fm_linear_update {
    fm_update_norm end; /* gamma NULL: no n */
    int64_t c_in;
    const void *x, *w, *bias; /* act [rows, c_in], [c, c_in], [c]; bias NULL: none */
    const void *residual;     /* act [rows, c] */
    void *y, *n;              /* act [rows, c]; y may be residual */
} fm_linear_update;

/* A second LayerNorm of the end of a sublayer, for a sublayer that reads y later. */
typedef struct fm_later_norm {
    const void *gamma, *beta; /* act [c] */
    void *n;                  /* act [rows, c]; NULL: none */
} fm_later_norm;

/* A transition (A9, A15) behind its LayerNorm:
 *
 *     kept = max(x w1^T + b1, 0),   update = kept w2^T + b2,   y and n as above
 *
 * If x is NULL, y is an input. The entry then makes only n and later.n, each if its pointer is not
 * NULL. Their bits are the same as when the entry makes them together with y. */
typedef struct fm_transition {
    fm_update_norm end; /* gamma NULL: no n */
    int64_t hidden;
    const void *x;                 /* act [rows, c], normalised; NULL: y is an input */
    const void *w1, *b1, *w2, *b2; /* act [hidden, c], [hidden], [c, hidden], [c] */
    void *kept;                    /* act [rows, hidden], for backward; NULL: not kept */
    const void *residual;          /* act [rows, c] */
    void *y, *n;                   /* act [rows, c]; y may be residual */
    fm_later_norm later;           /* with x only where there is an n; only in the forward */
} fm_transition;

/* The backward of a transition: through its end, both linear layers and the ReLU. It reads `kept`.
 * Where that is NULL, it makes the hidden layer again, which has the same bits. The gradient that
 * arrives through n is added to dy, which is then the gradient of the residual and of the update.
 */
typedef struct fm_transition_grad {
    const void *dn;       /* act [rows, c], where there is an n */
    fm_out dy;            /* act [rows, c]; as in fm_update_norm_grad. Without n it is only read */
    fm_out dx;            /* act [rows, c] */
    fm_out dgamma, dbeta; /* acc [c], of the norm that makes n */
    fm_out dw1, db1;      /* acc, like the parameters, as are the next two */
    fm_out dw2, db2;
} fm_transition_grad;

/* A linear layer behind its LayerNorm, and a second one with few outputs of the same rows:
 *
 *     n = LayerNorm(x),   y = n w^T + bias,   few.y = n few.w^T */
typedef struct fm_norm_linear {
    int64_t rows, c_in, c_out;
    double eps;
    const void *gamma, *beta; /* act [c_in]; gamma NULL: x is normalised already */
    const void *x, *w;        /* act [rows, c_in], [c_out, c_in] */
    const void *bias;         /* act [c_out]; NULL: none */
    int64_t bias_first;       /* the bias is 0 before this output */
    void *y;                  /* act [rows, c_out] */
    struct {
        int64_t n;     /* 0: there is no second layer */
        const void *w; /* act [n, c_in] */
        void *y;       /* act [rows, n] */
    } few;
} fm_norm_linear;

/* The gradients of a linear layer y = x w^T with few outputs, as the pair bias of an attention has:
 *
 *     dx (+)= dy w,   dw (+)= dy^T x
 *
 * With a norm, the layer reads n = LayerNorm(x), whose other readers have left dn:
 *
 *     dn' = dn + dy w,   dw (+)= dy^T n,   dx (+)= the gradient of x that comes from dn' */
typedef struct fm_few_grad {
    int64_t rows, c_in, c_out;
    const void *x, *w, *dy; /* act [rows, c_in], [c_out, c_in], [rows, c_out] */
    fm_out dx;              /* act [rows, c_in] */
    fm_out dw;              /* acc [c_out, c_in] */
    struct {
        double eps;
        const void *gamma, *beta; /* act [c_in]; gamma NULL: there is no norm */
        const void *dn;           /* act [rows, c_in]; NULL: there are no other readers */
        void *n;                  /* act [rows, c_in], made again; NULL: not written */
        fm_out dgamma, dbeta;     /* acc [c_in] */
    } norm;
} fm_few_grad;

/* -- embeddings */

/* A table with a row for each class. Element (class, channel) is at class*class_stride +
 * channel*channel_stride. The strides are {c, 1} for a table [n_class, c], and {1, n_class} for a
 * linear weight [c, n_class] that is applied to one-hot features. */
typedef struct fm_lookup {
    int64_t n_class, c, class_stride, channel_stride;
    const void *w; /* act; forward only */
} fm_lookup;

/* -- MSA features */

/* Makes the features of A3:5 and A18 from the integers that the wire carries. A row of `y` has the
 * 25 columns
 *     one-hot of msa (23) | deletion > 0 | 2/pi atan(deletion/3)
 * and, when profile is not NULL, 24 more:
 *     profile / n (23) | 2/pi atan(deletion_sum / n / 3),    n = (1e-6 + 1) + (cluster_size - 1) */
typedef struct fm_msa_features {
    int64_t n_seq, n_res;
    const uint8_t *msa;           /* [n_seq, n_res] 0..22 */
    const uint16_t *deletion;     /* [n_seq, n_res] */
    const void *profile;          /* [n_seq, n_res, 23] counts, or NULL */
    fm_element profile_element;   /* FM_ELEMENT_U8, _U16 or _U32 */
    const uint32_t *deletion_sum; /* [n_seq, n_res] */
    const uint32_t *cluster_size; /* [n_seq] rows of the cluster with its centre, >= 1 */
    void *y;                      /* act [n_seq*n_res, 25 or 49] */
} fm_msa_features;
enum { FM_MSA_CLASSES = 23, FM_MSA_FEATURES = 49, FM_EXTRA_MSA_FEATURES = 25 };

/* -- losses */

/* loss = sum_r w[r] * (logsumexp(x[r,:]) - x[r, target[r]]) / (eps + sum_r w[r]). A row whose
 * target is not in 0 .. n_class-1 has weight 0. Forward writes loss, lse and weight_sum; backward
 * reads the last two. */
typedef struct fm_cross_entropy {
    int64_t rows, n_class, ldx;
    double eps;            /* masked MSA 1e-8, distogram 1e-6 */
    const void *x;         /* act [rows, n_class] logits */
    const int32_t *target; /* [rows], 0 .. n_class-1 */
    const void *w;         /* act [rows] */
    void *lse;             /* acc [rows] */
    void *weight_sum;      /* acc [1] */
    void *loss;            /* acc [1]; forward only */
} fm_cross_entropy;

/* -- optimiser */

/* What was not finite: a gradient or a loss of a sample, or the norm of a sum over samples that
 * were finite. */
enum { FM_NONFINITE_SAMPLE = 1, FM_NONFINITE_SUM = 2 };

/* The scalars of a step, in device memory. The host writes step and lr before a step; kernels write
 * the rest. */
typedef struct fm_step_state {
    double norm_squared; /* of the gradient that was measured last */
    double clip_scale;   /* min(1, max_norm / (norm + 1e-6)); 0 when not finite */
    double lr;
    uint64_t step;      /* 1, 2, ...: the exponent of Adam's bias corrections */
    uint32_t nonfinite; /* FM_NONFINITE_...; where it is not 0, accumulate and adam do nothing */
    uint32_t pending;   /* samples of the batch that are already in its gradient sum */
    uint32_t holds;     /* not 0: more samples of this step follow; adam does nothing */
    uint32_t reserved;
} fm_step_state;

/* One pass over flat buffers of n elements. It computes g = grad * grad_scale / (pending + 1),
 * times clip_scale if `clip`, plus l2 * param. Adam, the moving average (EMA), and the act copy of
 * the parameters follow. Nothing is done when state->nonfinite or state->holds is set. When the
 * sample is the only one of its batch (pending 0) and `only` is given, the gradient is `only` times
 * clip_scale, and grad is not read. */
typedef struct fm_adam {
    int64_t n;
    double beta1, beta2, eps, ema_decay; /* AlphaFold: 0.9 0.999 1e-6 0.999 */
    double grad_scale;                   /* 1 */
    bool clip;                           /* multiply grad by state->clip_scale */
    const fm_step_state *state;          /* device memory */
    const void *grad;                    /* acc [n]: the batch's sum of clipped gradients */
    const void *only;                    /* acc [n]: the gradient of one sample; NULL: none */
    void *param, *m, *v;                 /* acc [n], updated */
    void *ema;                           /* acc [n], updated; NULL: none */
    void *copy;                          /* act [n], written; NULL: none */
    double l2;                           /* weight of the parameter in its gradient; 0: none */
} fm_adam;

/* -- packets */

/* The host sends one packet for each cycle: the scalars of the step, and a list of items that say
 * where the data behind the header goes in the state. The sizes of a sample are at most the
 * recorded ones and differ between packets. They are in the packet only, never in the arguments of
 * a call, so a captured pass can begin by taking the next packet. The code that packs checks all
 * sizes and places (trainer/step/upload.h). */
typedef enum fm_item_kind {
    FM_ITEM_BYTES = 1,  /* y = x, n bytes (rounded up to 16, on both sides) */
    FM_ITEM_ZERO = 2,   /* y = 0, n bytes (rounded up to 16); no x */
    FM_ITEM_VALUES = 3, /* y[i, j, k] = x[i, j, k] where i < n0 and j < n1, else `padding` */
    FM_ITEM_BITS = 4,   /* y[i, j] = bit i * n1 + j of x (bit b of byte b / 8), else padding */
    FM_ITEM_INSIDE = 5, /* y[i, j] = 1 where i < n0 and j < n1, else padding; no x */
} fm_item_kind;

/* Unsigned integers are converted to integers or reals of any width, f32 to any real. */
typedef struct fm_item {
    int64_t x, y;    /* bytes from the packet's and from the state's start; multiples of 16 */
    int64_t n;       /* elements of y, or bytes */
    int64_t rows, c; /* y [n / (rows * c), rows, c] contiguous */
    int64_t n0, n1;  /* x [n0, n1, c] contiguous */
    uint8_t kind, x_element, y_element;
    uint8_t padding; /* an integer value */
    uint32_t reserved;
} fm_item;

enum { FM_PACKET_ITEMS = 64 };

typedef struct fm_packet {
    uint32_t clock[FM_CLOCK_WORDS];
    double lr; /* lr, step, pending and holds are copied to fm_step_state */
    uint64_t step;
    uint32_t pending, holds;
    uint32_t n_item, reserved;
    fm_item item[FM_PACKET_ITEMS];
} fm_packet;

/* Packets are in a ring. The next one is in slot *n_taken % n_slot; taking it increments *n_taken.
 * Everything is in device memory. */
typedef struct fm_take {
    const uint8_t *ring; /* [n_slot, slot_bytes], 16-byte aligned */
    int64_t slot_bytes;
    int32_t n_slot;
    uint64_t *n_taken;
    void *state; /* where the items go */
    uint32_t *clock;
    fm_step_state *step;
} fm_take;

enum { FM_STEP_RECORD_TERMS = 12 };

/* The results of a sample, which the host reads when the work is done. */
typedef struct fm_step_record {
    double term[FM_STEP_RECORD_TERMS];
    double norm_squared;
    uint64_t done_ns; /* the device's clock when this was written (fm_device.stamp) */
    uint32_t nonfinite, reserved;
} fm_step_record;

/* Judges the sample and records it: sets step->nonfinite when a term is not finite, writes the
 * terms and the step's scalars to record[*n_made % n_record], and increments *n_made. */
typedef struct fm_report {
    int32_t n_term, n_record;
    const void *term[FM_STEP_RECORD_TERMS]; /* acc [1] each */
    fm_step_state *step;
    uint64_t *n_made;       /* device memory */
    fm_step_record *record; /* host memory that the device writes to (fm_device.host_alloc) */
} fm_report;

/* -- initial parameters */

typedef enum fm_init_kind {
    FM_INIT_CONSTANT = 0, /* scale */
    /* Normal cut at +-2, times scale / 0.87962566, so that the standard deviation is scale. LeCun:
     * scale = sqrt(1/fan_in); He: sqrt(2/fan_in). */
    FM_INIT_TRUNCATED_NORMAL = 1,
    FM_INIT_UNIFORM = 2, /* [-scale, scale]. Glorot: scale = sqrt(6/(fan_in+fan_out)) */
} fm_init_kind;

/* -- the table */

typedef struct fm_kernels {
    const char *name; /* "cpu-f32", ... */
    fm_element act, acc;
    const fm_device *device; /* streams, events, graphs */
    /* The table of the same backend whose act is this table's acc. Work that needs more digits than
     * act has runs on it (fm_tape_enter_island). NULL where act is acc. */
    const struct fm_kernels *wide;
    /* The table of the same backend for act and acc f32 whose products round their operands to
     * tf32, 11 significant bits: those of gemm, attention, linear_update, transition, norm_linear,
     * few_grad and swiglu_transition. A GPU's other entries are those of the f32 table; the CPU's
     * table also rounds in triangles and outer products, which the diffusion module has none of.
     * NULL where act or acc is f64, and in that table itself. */
    const struct fm_kernels *tf32;
    /* The table of the same backend for f32; NULL where act or acc is f32. */
    const struct fm_kernels *f32;
    /* N_res, N_extra and the number of MSA rows that are multiples of this take the fast kernels;
     * others take plain ones, many times slower. 1 when every size is alike. */
    int64_t axis_multiple;

    /* One function pointer for each row of the list; none is NULL. */
#define FM_KERNEL(kind, result, name, ...) result (*name)(__VA_ARGS__);
#include "trainer/backend/kernel_entries.h"
} fm_kernels;

/* The CPU's table for f32 or f64; NULL for other types. It is never freed. Sets OpenBLAS to one
 * thread. */
const fm_kernels *fm_kernels_cpu(fm_element act);

#endif
