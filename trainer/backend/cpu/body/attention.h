/* body/attention.h: gated attention with pair bias and mask, one block of queries at a time.
 *
 * For one (group, batch, head) and a block of queries, the logits [block, n_key] begin as bias plus
 * mask, and one matrix product is added. They stay in the workspace. Backward computes them again
 * and uses the saved log-sum-exp. The bias is gathered once per group into [head, query, key], and
 * its gradient is summed there over the batches, in order.
 *
 * In a batch without a valid key, mask_value would be added to all logits, which changes no
 * probability. Nothing is added then, which keeps the log-sum-exp of such a row exact in f32. */
#include "trainer/backend/cpu/body/real.h"
#include "trainer/backend/cpu_threads.h"

enum { ATTENTION_BLOCK = 128 };

typedef struct attention_space {
    real *logits, *dlogits; /* [block, n_key] */
    real *mask;             /* [n_key], added to the logits */
    real *bias, *dbias;     /* [n_head, n_query, n_key], where there is a bias */
    real *o, *dout;         /* [block, c_head], ungated */
} attention_space;

/* Divides the workspace; returns the number of its elements. With base NULL it only counts. */
static int64_t attention_layout(const fm_attention *a, bool backward, real *base,
                                attention_space *ret) {
    int64_t block = min_size(ATTENTION_BLOCK, a->n_query), plane = block * a->n_key;
    int64_t bias = a->bias ? a->n_head * a->n_query * a->n_key : 0, rows = block * a->c_head;
    int64_t sizes[] = {plane, backward ? plane : 0, a->n_key, bias, backward ? bias : 0,
                       rows,  backward ? rows : 0};
    real **slots[] = {&ret->logits, &ret->dlogits, &ret->mask, &ret->bias,
                      &ret->dbias,  &ret->o,       &ret->dout};
    int64_t used = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        *slots[i] = base ? base + used : NULL;
        used += sizes[i];
    }
    return used;
}

/* Elements of a thread's own workspace: all but the bias. */
static int64_t attention_own(const fm_attention *a) {
    attention_space space;
    fm_attention without = *a;
    without.bias = NULL;
    return attention_layout(&without, false, NULL, &space);
}

/* Forward: the workspace of one thread, and those of the others behind it. */
static size_t attention_workspace(const fm_attention *args) {
    attention_space space;
    int64_t others = (fm_cpu_threads() - 1) * attention_own(args);
    return (size_t)(attention_layout(args, false, NULL, &space) + others) * sizeof(real);
}

static bool attention_opens(const fm_attention *args, int64_t c_y) {
    (void)args, (void)c_y;
    return false;
}

static size_t attention_grad_workspace(const fm_attention *args) {
    attention_space space;
    return (size_t)attention_layout(args, true, NULL, &space) * sizeof(real);
}

static int64_t offset_of(fm_attention_stride s, int64_t group, int64_t batch, int64_t row,
                         int64_t head) {
    return group * s.group + batch * s.batch + row * s.row + head * s.head;
}

/* Copies the bias of one group from its strides to [head, query, key]. */
static void gather_bias(const fm_attention *a, int64_t group, real *packed) {
    fm_strided move = {.rank = 3,
                       .shape = {a->n_head, a->n_query, a->n_key},
                       .x_stride = {a->bias_stride[1], a->bias_stride[2], a->bias_stride[3]},
                       .y_stride = {a->n_query * a->n_key, a->n_key, 1},
                       .alpha = 1,
                       .x = (const real *)a->bias + group * a->bias_stride[0],
                       .y = {packed, FM_WRITE}};
    copy_strided(NULL, &move);
}

static void scatter_dbias(const fm_attention *a, int64_t group, const real *packed, fm_out dbias) {
    fm_strided move = {.rank = 3,
                       .shape = {a->n_head, a->n_query, a->n_key},
                       .x_stride = {a->n_query * a->n_key, a->n_key, 1},
                       .y_stride = {a->bias_stride[1], a->bias_stride[2], a->bias_stride[3]},
                       .alpha = 1,
                       .x = packed,
                       .y = {(real *)dbias.data + group * a->bias_stride[0], dbias.beta}};
    copy_strided(NULL, &move);
}

static void gather_mask(const fm_attention *a, int64_t group, int64_t batch, real *added) {
    bool any = false;
    for (int64_t k = 0; k < a->n_key; k++)
        added[k] = 0;
    if (!a->mask) return;
    const real *mask =
        (const real *)a->mask + group * a->mask_stride[0] + batch * a->mask_stride[1];
    for (int64_t k = 0; k < a->n_key; k++) {
        real valid = mask[k * a->mask_stride[2]];
        assert(valid == 0 || valid == 1);
        any |= valid != 0;
    }
    if (!any) return;
    for (int64_t k = 0; k < a->n_key; k++)
        added[k] = (real)a->mask_value * (mask[k * a->mask_stride[2]] - (real)1);
}

/* One (group, batch, head) and a block of queries. */
typedef struct attention_block {
    int64_t group, batch, head, kv_head, first, n_row; /* queries first .. first + n_row - 1 */
} attention_block;

static void block_logits(const fm_attention *a, const attention_block *at,
                         const attention_space *space) {
    int64_t n_key = a->n_key;
    for (int64_t r = 0; r < at->n_row; r++) {
        real *restrict row = space->logits + r * n_key;
        const real *restrict mask = space->mask;
        if (a->bias) {
            const real *bias = space->bias + (at->head * a->n_query + at->first + r) * n_key;
            for (int64_t k = 0; k < n_key; k++)
                row[k] = bias[k] + mask[k];
        } else {
            for (int64_t k = 0; k < n_key; k++)
                row[k] = mask[k];
        }
    }
    const real *q =
        (const real *)a->q + offset_of(a->q_stride, at->group, at->batch, at->first, at->head);
    const real *k =
        (const real *)a->k + offset_of(a->k_stride, at->group, at->batch, 0, at->kv_head);
    REAL_GEMM(false, true, at->n_row, n_key, a->c_head, (real)a->scale, q,
              row_distance(a->q_stride.row, a->c_head), k, row_distance(a->k_stride.row, a->c_head),
              1, space->logits, n_key);
}

/* o[block, c_head] = P V, ungated, into the workspace. */
static void block_values(const fm_attention *a, const attention_block *at,
                         const attention_space *space) {
    const real *v =
        (const real *)a->v + offset_of(a->v_stride, at->group, at->batch, 0, at->kv_head);
    REAL_GEMM(false, false, at->n_row, a->c_head, a->n_key, 1, space->logits, a->n_key, v,
              row_distance(a->v_stride.row, a->c_head), 0, space->o, a->c_head);
}

static real *block_lse(const fm_attention *a, const attention_block *at) {
    return (real *)a->lse +
           ((at->group * a->n_batch + at->batch) * a->n_head + at->head) * a->n_query + at->first;
}

static void forward_block(const fm_attention *a, const attention_block *at,
                          const attention_space *space) {
    real *lse = block_lse(a, at);
    block_logits(a, at, space);
    for (int64_t r = 0; r < at->n_row; r++) {
        real *restrict row = space->logits + r * a->n_key;
        real largest = max_of(row, a->n_key);
        for (int64_t k = 0; k < a->n_key; k++)
            row[k] = real_exp(row[k] - largest);
        real total = (real)sum_of(row, a->n_key), inverse = (real)1 / total;
        for (int64_t k = 0; k < a->n_key; k++)
            row[k] *= inverse;
        lse[r] = largest + REAL_LOG(total);
    }
    block_values(a, at, space);
    for (int64_t r = 0; r < at->n_row; r++) {
        const real *restrict x = space->o + r * a->c_head;
        real *restrict o =
            (real *)a->o + offset_of(a->o_stride, at->group, at->batch, at->first + r, at->head);
        if (a->g) {
            const real *g = (const real *)a->g +
                            offset_of(a->g_stride, at->group, at->batch, at->first + r, at->head);
            for (int64_t c = 0; c < a->c_head; c++)
                o[c] = sigmoid(g[c]) * x[c];
        } else {
            for (int64_t c = 0; c < a->c_head; c++)
                o[c] = x[c];
        }
    }
}

typedef void attention_visit(const fm_attention *a, const attention_block *at,
                             const attention_space *space, const fm_attention_grad *grad);

/* Calls visit for all blocks of batches `begin` to `end` of a group in a fixed order: batch, head,
 * query. */
static void visit_blocks(const fm_attention *a, int64_t group, int64_t begin, int64_t end,
                         const attention_space *space, const fm_attention_grad *grad,
                         attention_visit *visit) {
    for (int64_t batch = begin; batch < end; batch++) {
        gather_mask(a, group, batch, space->mask);
        for (int64_t head = 0; head < a->n_head; head++) {
            for (int64_t first = 0; first < a->n_query; first += ATTENTION_BLOCK) {
                attention_block at = {group, batch,
                                      head,  a->n_kv_head == 1 ? 0 : head,
                                      first, min_size(ATTENTION_BLOCK, a->n_query - first)};
                visit(a, &at, space, grad);
            }
        }
    }
}

static void visit_forward(const fm_attention *a, const attention_block *at,
                          const attention_space *space, const fm_attention_grad *grad) {
    (void)grad;
    forward_block(a, at, space);
}

/* A group's batches, divided over the threads. */
typedef struct attention_round {
    const fm_attention *a;
    int64_t group;
    attention_space space; /* of the first thread */
    real *others;          /* workspaces of the other threads */
} attention_round;

static void attention_share(void *context, int part) {
    const attention_round *round = context;
    const fm_attention *a = round->a;
    const int n_part = fm_cpu_threads();
    attention_space space = round->space;
    if (part > 0) {
        fm_attention without = *a;
        without.bias = NULL;
        attention_layout(&without, false, round->others + (part - 1) * attention_own(a), &space);
        space.bias = round->space.bias;
    }
    visit_blocks(a, round->group, fm_cpu_part_begin(a->n_batch, 1, part, n_part),
                 fm_cpu_part_begin(a->n_batch, 1, part + 1, n_part), &space, NULL, visit_forward);
}

static void attention(fm_stream *stream, const fm_attention *args, void *workspace) {
    (void)stream;
    assert(args->n_kv_head == 1 || args->n_kv_head == args->n_head);
    attention_round round = {.a = args};
    round.others = (real *)workspace + attention_layout(args, false, workspace, &round.space);
    for (int64_t group = 0; group < args->n_group; group++) {
        round.group = group;
        if (args->bias) gather_bias(args, group, round.space.bias);
        fm_cpu_run_parts(attention_share, &round, fm_cpu_threads());
    }
}

/* Writes the gradient of the ungated output to the workspace, and dg. */
static void block_gate_grad(const fm_attention *a, const attention_block *at,
                            const attention_space *space, const fm_attention_grad *grad) {
    if (a->g && grad->dg.data) block_values(a, at, space);
    for (int64_t r = 0; r < at->n_row; r++) {
        const real *dout = (const real *)grad->dout +
                           offset_of(a->o_stride, at->group, at->batch, at->first + r, at->head);
        real *restrict ungated = space->dout + r * a->c_head;
        if (!a->g) {
            for (int64_t c = 0; c < a->c_head; c++)
                ungated[c] = dout[c];
            continue;
        }
        int64_t at_g = offset_of(a->g_stride, at->group, at->batch, at->first + r, at->head);
        const real *g = (const real *)a->g + at_g, *o = space->o + r * a->c_head;
        for (int64_t c = 0; c < a->c_head; c++)
            ungated[c] = dout[c] * sigmoid(g[c]);
        if (!grad->dg.data) continue;
        real *dg = (real *)grad->dg.data + at_g;
        for (int64_t c = 0; c < a->c_head; c++)
            put(&dg[c], grad->dg.beta, ungated[c] * o[c] * ((real)1 - sigmoid(g[c])));
    }
}

/* From P in logits and dP in dlogits: dlogits = P * (dP - <P, dP>), summed into dbias. */
static void block_softmax_grad(const fm_attention *a, const attention_block *at,
                               const attention_space *space, bool with_bias) {
    for (int64_t r = 0; r < at->n_row; r++) {
        const real *restrict p = space->logits + r * a->n_key;
        real *restrict d = space->dlogits + r * a->n_key;
        real delta = (real)dot_product(p, d, a->n_key);
        for (int64_t k = 0; k < a->n_key; k++)
            d[k] = p[k] * (d[k] - delta);
        if (!with_bias) continue;
        real *restrict dbias = space->dbias + (at->head * a->n_query + at->first + r) * a->n_key;
        for (int64_t k = 0; k < a->n_key; k++)
            dbias[k] += d[k];
    }
}

static void backward_block(const fm_attention *a, const attention_block *at,
                           const attention_space *space, const fm_attention_grad *grad) {
    int64_t n = at->n_row, n_key = a->n_key, c = a->c_head;
    int64_t at_q = offset_of(a->q_stride, at->group, at->batch, at->first, at->head);
    int64_t at_k = offset_of(a->k_stride, at->group, at->batch, 0, at->kv_head);
    int64_t at_v = offset_of(a->v_stride, at->group, at->batch, 0, at->kv_head);
    int64_t ldq = row_distance(a->q_stride.row, c), ldk = row_distance(a->k_stride.row, c);
    int64_t ldv = row_distance(a->v_stride.row, c);
    const real *q = (const real *)a->q + at_q, *k = (const real *)a->k + at_k;
    const real *v = (const real *)a->v + at_v, *lse = block_lse(a, at);
    /* The first block that contributes to a key's gradient obeys its beta; later ones add. */
    bool is_first = at->first == 0 && (a->n_kv_head > 1 || at->head == 0);
    real beta_k = is_first && grad->dk.beta == FM_WRITE ? 0 : 1;
    real beta_v = is_first && grad->dv.beta == FM_WRITE ? 0 : 1;

    block_logits(a, at, space);
    for (int64_t r = 0; r < n; r++) {
        real *restrict row = space->logits + r * n_key, shift = lse[r];
        for (int64_t i = 0; i < n_key; i++)
            row[i] = real_exp(row[i] - shift);
    }
    block_gate_grad(a, at, space, grad);
    if (grad->dv.data) {
        REAL_GEMM(true, false, n_key, c, n, 1, space->logits, n_key, space->dout, c, beta_v,
                  (real *)grad->dv.data + at_v, ldv);
    }
    REAL_GEMM(false, true, n, n_key, c, 1, space->dout, c, v, ldv, 0, space->dlogits, n_key);
    block_softmax_grad(a, at, space, a->bias && grad->dbias.data);
    if (grad->dq.data) {
        REAL_GEMM(false, false, n, c, n_key, (real)a->scale, space->dlogits, n_key, k, ldk,
                  grad->dq.beta == FM_ADD, (real *)grad->dq.data + at_q, ldq);
    }
    if (grad->dk.data) {
        REAL_GEMM(true, false, n_key, c, n, (real)a->scale, space->dlogits, n_key, q, ldq, beta_k,
                  (real *)grad->dk.data + at_k, ldk);
    }
}

static void attention_grad(fm_stream *stream, const fm_attention *args,
                           const fm_attention_grad *grad, void *workspace) {
    (void)stream;
    assert(args->n_kv_head == 1 || args->n_kv_head == args->n_head);
    attention_space space;
    attention_layout(args, true, workspace, &space);
    bool with_bias = args->bias && grad->dbias.data;
    int64_t n_bias = args->n_head * args->n_query * args->n_key;
    for (int64_t group = 0; group < args->n_group; group++) {
        if (args->bias) gather_bias(args, group, space.bias);
        if (with_bias) fill(NULL, n_bias, 0, space.dbias);
        visit_blocks(args, group, 0, args->n_batch, &space, grad, backward_block);
        if (with_bias) scatter_dbias(args, group, space.dbias, grad->dbias);
    }
}
