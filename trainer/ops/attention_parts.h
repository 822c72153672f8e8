/* attention_parts.h: the parts that attention in one node (attention.c), in several nodes
 * (attention_split.c) and slab by slab (attention_chunked.c) share. Only these files may include
 * it. */
#ifndef FM_TRAINER_ATTENTION_PARTS_H
#define FM_TRAINER_ATTENTION_PARTS_H

#include "trainer/ops/attention.h"
#include "trainer/ops/call.h"

typedef struct fm_attention_shape {
    fm_axial axial;
    int64_t n_group, n0, n1, c, n_head, c_head;
    int64_t rows;             /* n_group * n0 * n1 */
    int64_t n_query, n_batch; /* extents of the attended and of the other axis */
    int64_t width;            /* n_head * c_head */
    fm_update update;
} fm_attention_shape;

/* x [n0, n1, c] is whole along the attended axis; x [n_group, n0, n1, c] is whole. */
fm_attention_shape fm_attention_shape_of(fm_axial axial, const fm_tensor *x,
                                         const fm_attention_weights *weights, double dropout);

/* The operands of the attention kernel, except mask, bias, o and lse. qkvg [n0, n1, 4 width]. */
fm_attention fm_attention_core(const fm_run *run, const fm_attention_shape *at, const void *qkvg);

/* Sets the bias [query, key, head] of the core of row, starting and ending attention. */
void fm_attention_set_bias(fm_attention *core, const fm_attention_shape *at, const void *bias);

/* What is projected at once. */
typedef struct fm_attention_rows {
    const void *x;
    const void *norm;      /* [2, c]; NULL: x is normalised already */
    const void *w;         /* [4 width, c] */
    const void *gate_bias; /* [width], behind 3 width zeros; may be NULL */
    int64_t n_few;         /* channels of the bias that is made of the same rows; 0: none */
    const void *few_w;     /* [n_few, c] */
    void *few;             /* [n0 * n1, n_few] */
    void *qkvg;            /* [n0, n1, 4 width] */
} fm_attention_rows;

/* Makes q k v g of LayerNorm(x), and the bias; by one kernel where there is one. */
void fm_attention_project_at_once(fm_run *run, const fm_attention_shape *at,
                                  const fm_attention_rows *rows);

/* Makes q k v g of normed [n0, n1, c]; w [4 width, c]; biases [width], each may be NULL; 3 width
 * zeros precede gate_bias. */
void fm_attention_project(fm_run *run, const fm_attention_shape *at, const void *normed,
                          const void *w, const void *q_bias, const void *gate_bias, void *qkvg);
void fm_attention_project_grad(fm_run *run, const fm_attention_shape *at, const void *normed,
                               const void *w, const void *dqkvg, fm_out dnormed, fm_out dw,
                               fm_out dq_bias, fm_out dgate_bias);

/* The gradients of what fm_attention_project_at_once makes with a bias. */
typedef struct fm_attention_rows_grad {
    const fm_norm *norm;        /* of x, not made yet (fm_call_norm_later) */
    const fm_linear *bias;      /* fm_attention_bias; its rows are those of the norm */
    const void *w;              /* [4 width, c] */
    const void *dqkvg;          /* [n0, n1, 4 width] */
    const void *dbias;          /* [n0 * n1, n_head] */
    fm_out dx, dnorm;           /* [n0, n1, c], [2, c] */
    fm_out dw, dbias_w;         /* [4 width, c], [n_head, c] */
    fm_out dq_bias, dgate_bias; /* [width] each */
} fm_attention_rows_grad;

/* Computes the gradient of the rows before that of the weights of q k v g. The pass over the rows
 * that computes the first also makes the normalised rows again, which the second reads. */
void fm_attention_project_at_once_grad(fm_run *run, const fm_attention_shape *at,
                                       const fm_attention_rows_grad *grad);

/* Asserts that 3 width zeros precede the gate's bias. */
void fm_attention_assert_zeros(const fm_tape *tape, const fm_attention_weights *weights,
                               int64_t width);

/* The linear layer that makes the bias [rows, n_head] of normed [rows, c]; w [n_head, c]. */
fm_linear fm_attention_bias(int64_t rows, int64_t c, int64_t n_head, const void *normed,
                            const void *w);
/* The linear layer that makes the update [n0, n1, c] of the gated values o. */
fm_linear fm_attention_out(const fm_attention_shape *at, const void *o, const void *w,
                           const void *bias);

#endif
