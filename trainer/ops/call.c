/* call.c: see call.h. */
#include "trainer/ops/call.h"

#include <assert.h>

int64_t fm_call_chunk(const fm_tape *tape, int64_t n, int64_t elements) {
    enum { STEP = 16 };
    int64_t bytes = elements * (int64_t)fm_element_bytes(tape->kernels->act);
    int64_t most = tape->chunk_bytes / bytes / STEP * STEP;
    if (most < STEP) most = STEP;
    if (most >= n) return n;
    int64_t slabs = (n + most - 1) / most, even = (n + slabs - 1) / slabs;
    return (even + STEP - 1) / STEP * STEP;
}

/* -- layer normalisation */

void fm_call_layernorm(fm_run *run, const fm_layernorm *args) {
    fm_layernorm whole = *args;
    whole.ldx = whole.ldy = args->c;
    whole.eps = FM_LAYERNORM_EPS;
    if (!run->dry) run->kernels->layernorm(run->stream, &whole);
}

void fm_call_layernorm_grad(fm_run *run, const fm_layernorm_grad *args) {
    fm_layernorm_grad whole = *args;
    int64_t mark = fm_run_mark(run);
    void *workspace =
        fm_run_workspace(run, (int64_t)run->kernels->layernorm_grad_workspace(args->rows, args->c));
    whole.ldx = whole.lddy = whole.lddx = args->c;
    whole.eps = FM_LAYERNORM_EPS;
    if (!run->dry) run->kernels->layernorm_grad(run->stream, &whole, workspace);
    fm_run_release(run, mark);
}

fm_norm fm_call_norm_later(const fm_run *run, int64_t rows, int64_t c, const void *x,
                           const void *weights) {
    if (!weights) return (fm_norm){.rows = rows, .c = c, .x = x, .y = (void *)x};
    const void *beta = fm_run_at(weights, c, run->kernels->act);
    return (fm_norm){.rows = rows, .c = c, .x = x, .gamma = weights, .beta = beta};
}

/* Makes a norm with weights, in its place y or in the workspace. */
static void make_norm(fm_run *run, fm_norm *norm) {
    if (!norm->y) norm->y = fm_run_workspace_act(run, norm->rows * norm->c);
    norm->mean = fm_run_workspace_acc(run, norm->rows);
    norm->rstd = fm_run_workspace_acc(run, norm->rows);
    fm_call_layernorm(run, &(fm_layernorm){.rows = norm->rows,
                                           .c = norm->c,
                                           .x = norm->x,
                                           .gamma = norm->gamma,
                                           .beta = norm->beta,
                                           .y = norm->y,
                                           .mean = norm->mean,
                                           .rstd = norm->rstd});
}

fm_norm fm_call_norm(fm_run *run, int64_t rows, int64_t c, const void *x, const void *weights) {
    fm_norm norm = fm_call_norm_later(run, rows, c, x, weights);
    if (weights) make_norm(run, &norm);
    return norm;
}

fm_out fm_call_norm_gradient(fm_run *run, const fm_norm *norm, fm_out dx) {
    return norm->gamma ? (fm_out){fm_run_workspace_act(run, norm->rows * norm->c), FM_WRITE} : dx;
}

void fm_call_norm_grad(fm_run *run, const fm_norm *norm, const void *dy, fm_out dx,
                       fm_out dweights) {
    if (!norm->gamma) return;
    fm_call_layernorm_grad(
        run, &(fm_layernorm_grad){.rows = norm->rows,
                                  .c = norm->c,
                                  .x = norm->x,
                                  .gamma = norm->gamma,
                                  .dy = dy,
                                  .mean = norm->mean,
                                  .rstd = norm->rstd,
                                  .dx = dx,
                                  .dgamma = dweights,
                                  .dbeta = fm_out_at(dweights, norm->c, run->kernels->acc)});
}

/* -- linear layers */

/* Products of more rows are made in pieces, because libraries have smaller limits. */
enum { MOST_GEMM_ROWS = 1 << 23 };

static void gemm_in_pieces(fm_run *run, const fm_gemm *args) {
    fm_element act = run->kernels->act;
    for (int64_t first = 0; first < args->m; first += MOST_GEMM_ROWS) {
        fm_gemm piece = *args;
        piece.m = args->m - first < MOST_GEMM_ROWS ? args->m - first : MOST_GEMM_ROWS;
        piece.a = fm_run_at(args->a, first * args->lda, act);
        piece.addend = fm_run_at(args->addend, first * args->ldc, act);
        piece.c = fm_run_at(args->c, first * args->ldc, act);
        fm_call_gemm(run, &piece);
    }
}

void fm_call_gemm(fm_run *run, const fm_gemm *args) {
    bool is_forward =
        args->batch == 1 && !args->trans_a && !args->c_is_acc && !args->relu && !args->sum.data;
    if (args->m > MOST_GEMM_ROWS && is_forward) {
        gemm_in_pieces(run, args);
        return;
    }
    int64_t mark = fm_run_mark(run);
    void *workspace = fm_run_workspace(run, (int64_t)run->kernels->gemm_workspace(args));
    run->flops += 2.0 * (double)args->m * (double)args->n * (double)args->k * (double)args->batch;
    if (!run->dry) run->kernels->gemm(run->stream, args, workspace);
    fm_run_release(run, mark);
}

void fm_call_linear(fm_run *run, const fm_linear *linear, bool relu, void *y) {
    fm_epilogue epilogue = !linear->bias ? FM_EPILOGUE_NONE
                           : relu        ? FM_EPILOGUE_BIAS_RELU
                                         : FM_EPILOGUE_BIAS;
    assert(!relu || (linear->bias && !linear->residual));
    const void *bias = linear->bias;
    if (bias && !run->dry) bias = fm_run_at(bias, -linear->bias_first, run->kernels->act);
    fm_call_gemm(run, &(fm_gemm){.m = linear->rows,
                                 .n = linear->c_out,
                                 .k = linear->c_in,
                                 .batch = 1,
                                 .trans_b = true,
                                 .alpha = 1,
                                 .beta = linear->residual ? 1 : 0,
                                 .a = linear->x,
                                 .b = linear->w,
                                 .c = y,
                                 .addend = linear->residual,
                                 .lda = linear->ldx,
                                 .ldb = linear->c_in,
                                 .ldc = linear->ldy,
                                 .epilogue = epilogue,
                                 .bias = bias});
}

void fm_call_norm_linear(fm_run *run, const fm_linear *linear, const void *weights, int64_t n_few,
                         const void *few_w, void *few, void *y) {
    int64_t mark = fm_run_mark(run);
    fm_element act = run->kernels->act;
    fm_norm_linear args = {.rows = linear->rows,
                           .c_in = linear->c_in,
                           .c_out = linear->c_out,
                           .eps = FM_LAYERNORM_EPS,
                           .gamma = weights,
                           .beta = fm_run_at(weights, linear->c_in, act),
                           .x = linear->x,
                           .w = linear->w,
                           .bias = linear->bias,
                           .bias_first = linear->bias_first,
                           .y = y,
                           .few = {n_few, few_w, few}};
    assert(linear->ldx == linear->c_in && linear->ldy == linear->c_out && !linear->residual);
    if (args.bias && !run->dry) args.bias = fm_run_at(args.bias, -args.bias_first, act);
    void *workspace = fm_run_workspace(run, (int64_t)run->kernels->norm_linear_workspace(&args));
    run->flops +=
        2.0 * (double)linear->rows * (double)linear->c_in * (double)(linear->c_out + n_few);
    if (!run->dry) run->kernels->norm_linear(run->stream, &args, workspace);
    fm_run_release(run, mark);
}

/* dw [c_out, c_in] (+)= dy^T x; dbias (+)= sum of dy's rows */
static void linear_weight_grad(fm_run *run, const fm_linear *linear, const void *dy, fm_out dw,
                               fm_out dbias) {
    fm_gemm args = {.m = linear->c_out,
                    .n = linear->c_in,
                    .k = linear->rows,
                    .batch = 1,
                    .trans_a = true,
                    .alpha = 1,
                    .beta = dw.beta,
                    .a = dy,
                    .b = linear->x,
                    .c = dw.data,
                    .c_is_acc = true,
                    .lda = linear->ldy,
                    .ldb = linear->ldx,
                    .ldc = linear->c_in,
                    .sum = dbias,
                    .sum_first = linear->bias_first};
    if (dw.data) {
        fm_call_gemm(run, &args);
    } else if (dbias.data) {
        fm_call_sum(run, 1, linear->rows, linear->c_out - linear->bias_first, 0, linear->ldy,
                    fm_run_at(dy, linear->bias_first, run->kernels->act), dbias, true);
    }
}

/* dx [rows, c_in] (+)= dy W */
static void linear_input_grad(fm_run *run, const fm_linear *linear, const void *dy, fm_out dx) {
    fm_gemm args = {.m = linear->rows,
                    .n = linear->c_in,
                    .k = linear->c_out,
                    .batch = 1,
                    .alpha = 1,
                    .beta = dx.beta,
                    .a = dy,
                    .b = linear->w,
                    .c = dx.data,
                    .lda = linear->ldy,
                    .ldb = linear->c_in,
                    .ldc = linear->ldx,
                    .epilogue = linear->x_is_relu ? FM_EPILOGUE_RELU_GRAD : FM_EPILOGUE_NONE,
                    .relu = linear->x_is_relu ? linear->x : NULL,
                    .sum = linear->x_dbias};
    assert(!linear->x_is_relu || (dx.data && dx.beta == FM_WRITE));
    if (dx.data) fm_call_gemm(run, &args);
}

/* Whether one call makes both gradients: without a bias, rows without gaps. */
static bool has_few_outputs(const fm_linear *linear, fm_out dx, fm_out dw, fm_out dbias) {
    enum { FEW = 8 };
    return linear->c_out <= FEW && dx.data && dw.data && !dbias.data && !linear->x_is_relu &&
           linear->ldx == linear->c_in && linear->ldy == linear->c_out &&
           linear->rows <= MOST_GEMM_ROWS;
}

static void few_grad(fm_run *run, const fm_few_grad *args) {
    int64_t mark = fm_run_mark(run);
    void *workspace = fm_run_workspace(run, (int64_t)run->kernels->few_grad_workspace(args));
    run->flops += 4.0 * (double)args->rows * (double)args->c_in * (double)args->c_out;
    if (!run->dry) run->kernels->few_grad(run->stream, args, workspace);
    fm_run_release(run, mark);
}

static fm_few_grad few_grad_of(const fm_linear *linear, const void *x, const void *dy, fm_out dx,
                               fm_out dw) {
    return (fm_few_grad){.rows = linear->rows,
                         .c_in = linear->c_in,
                         .c_out = linear->c_out,
                         .x = x,
                         .w = linear->w,
                         .dy = dy,
                         .dx = dx,
                         .dw = dw};
}

void fm_call_linear_grad(fm_run *run, const fm_linear *linear, const void *dy, fm_out dx, fm_out dw,
                         fm_out dbias) {
    if (has_few_outputs(linear, dx, dw, dbias)) {
        fm_few_grad args = few_grad_of(linear, linear->x, dy, dx, dw);
        few_grad(run, &args);
        return;
    }
    linear_weight_grad(run, linear, dy, dw, dbias);
    linear_input_grad(run, linear, dy, dx);
}

void fm_call_norm_few_grad(fm_run *run, const fm_norm *norm, const fm_linear *linear,
                           const void *dy, fm_out dnormed, fm_out dx, fm_out dweights, fm_out dw) {
    if (norm->gamma && has_few_outputs(linear, dx, dw, (fm_out){0})) {
        fm_few_grad args = few_grad_of(linear, norm->x, dy, dx, dw);
        args.norm.eps = FM_LAYERNORM_EPS;
        args.norm.gamma = norm->gamma, args.norm.beta = norm->beta;
        args.norm.dn = dnormed.beta == FM_ADD ? dnormed.data : NULL;
        args.norm.n = norm->y;
        args.norm.dgamma = dweights;
        args.norm.dbeta = fm_out_at(dweights, norm->c, run->kernels->acc);
        few_grad(run, &args);
        return;
    }
    fm_norm made = *norm;
    if (norm->gamma) make_norm(run, &made);
    fm_linear reader = *linear;
    reader.x = made.y;
    fm_call_linear_grad(run, &reader, dy, dnormed, dw, (fm_out){0});
    fm_call_norm_grad(run, &made, dnormed.data, dx, dweights);
}

/* -- updates */

fm_update fm_update_of(const fm_tensor *x, double rate, fm_shared_axis shared) {
    int axis = x->rank - 3;
    assert(axis == 0 || (axis == 1 && x->shard_axis <= 0));
    return (fm_update){.n_group = axis ? x->local[0] : 1,
                       .n0 = x->local[axis],
                       .n1 = x->local[axis + 1],
                       .c = x->local[axis + 2],
                       .first0 = fm_tensor_first(x, axis),
                       .first1 = fm_tensor_first(x, axis + 1),
                       .global_n1 = x->shape[axis + 1],
                       .rate = rate,
                       .shared = shared};
}

int64_t fm_update_group_count(const fm_update *args) {
    return args->n0 * args->n1 * args->c;
}

int64_t fm_update_count(const fm_update *args) {
    return args->n_group * fm_update_group_count(args);
}

/* Calls of a kernel per update. Without dropout groups are further rows of one group. */
static int64_t update_calls(const fm_update *args) {
    return args->rate > 0 ? args->n_group : 1;
}

fm_dropout fm_update_dropout(const fm_run *run, const fm_node *node, const fm_update *args,
                             int64_t group) {
    fm_dropout dropout = {.n0 = args->rate > 0 ? args->n0 : args->n_group * args->n0,
                          .n1 = args->n1,
                          .c = args->c,
                          .offset0 = args->first0,
                          .offset1 = args->first1,
                          .global_n1 = args->global_n1,
                          .shared = args->shared,
                          .rate = args->rate,
                          .draw = fm_run_draw(run, node)};
    dropout.draw.layer += (uint32_t)group * node->rng_step;
    return dropout;
}

void fm_call_update(fm_run *run, const fm_node *node, const fm_update *args, const void *residual,
                    const void *update, void *y) {
    fm_element act = run->kernels->act;
    for (int64_t g = 0; g < update_calls(args) && !run->dry; g++) {
        fm_dropout dropout = fm_update_dropout(run, node, args, g);
        int64_t at = g * fm_update_group_count(args);
        run->kernels->dropout(run->stream, &dropout, fm_run_at(residual, at, act),
                              fm_run_at(update, at, act), fm_run_at(y, at, act));
    }
}

const void *fm_call_update_grad(fm_run *run, const fm_node *node, const fm_update *args,
                                const void *dy) {
    if (args->rate == 0) return dy;
    void *dupdate = fm_run_workspace_act(run, fm_update_count(args));
    fm_call_dropout_grad(run, node, args, dy, (fm_out){dupdate, FM_WRITE});
    return dupdate;
}

void fm_call_dropout_grad(fm_run *run, const fm_node *node, const fm_update *args, const void *dy,
                          fm_out dupdate) {
    fm_element act = run->kernels->act;
    for (int64_t g = 0; g < update_calls(args) && !run->dry && dupdate.data; g++) {
        fm_dropout dropout = fm_update_dropout(run, node, args, g);
        int64_t at = g * fm_update_group_count(args);
        run->kernels->dropout_grad(run->stream, &dropout, fm_run_at(dy, at, act),
                                   fm_out_at(dupdate, at, act));
    }
}

static fm_update_norm update_norm_of(const fm_run *run, const fm_node *node, const fm_update *args,
                                     int64_t group, const void *norm) {
    return (fm_update_norm){.dropout = fm_update_dropout(run, node, args, group),
                            .eps = FM_LAYERNORM_EPS,
                            .gamma = norm,
                            .beta = fm_run_at(norm, args->c, run->kernels->act)};
}

void fm_call_linear_update(fm_run *run, const fm_node *node, const fm_update *args,
                           const fm_linear *linear, const void *norm, const void *residual, void *y,
                           void *n) {
    int64_t mark = fm_run_mark(run), calls = update_calls(args);
    fm_element act = run->kernels->act;
    assert(linear->ldx == linear->c_in && linear->ldy == linear->c_out);
    for (int64_t g = 0; g < calls; g++) {
        int64_t at = g * fm_update_group_count(args), rows = linear->rows / calls;
        fm_linear_update one = {.end = update_norm_of(run, node, args, g, norm),
                                .c_in = linear->c_in,
                                .x = fm_run_at(linear->x, g * rows * linear->c_in, act),
                                .w = linear->w,
                                .bias = linear->bias,
                                .residual = fm_run_at(residual, at, act),
                                .y = fm_run_at(y, at, act),
                                .n = fm_run_at(n, at, act)};
        void *workspace =
            fm_run_workspace(run, (int64_t)run->kernels->linear_update_workspace(&one));
        double products = linear->x ? 2.0 : 0.0;
        run->flops += products * (double)rows * (double)linear->c_in * (double)linear->c_out;
        if (!run->dry) run->kernels->linear_update(run->stream, &one, workspace);
        fm_run_release(run, mark);
    }
}

static fm_transition whole_transition(const fm_run *run, const fm_transition *args) {
    fm_transition one = *args;
    one.end.eps = FM_LAYERNORM_EPS;
    one.end.beta = fm_run_at(args->end.gamma, args->end.dropout.c, run->kernels->act);
    one.later.beta = fm_run_at(args->later.gamma, args->end.dropout.c, run->kernels->act);
    return one;
}

void fm_call_transition(fm_run *run, const fm_transition *args) {
    int64_t mark = fm_run_mark(run);
    fm_transition one = whole_transition(run, args);
    const fm_dropout *d = &args->end.dropout;
    void *workspace = fm_run_workspace(run, (int64_t)run->kernels->transition_workspace(&one));
    double products = args->x ? 4.0 : 0.0;
    run->flops += products * (double)(d->n0 * d->n1) * (double)d->c * (double)args->hidden;
    if (!run->dry) run->kernels->transition(run->stream, &one, workspace);
    fm_run_release(run, mark);
}

void fm_call_transition_grad(fm_run *run, const fm_transition *args,
                             const fm_transition_grad *grad) {
    int64_t mark = fm_run_mark(run);
    fm_transition one = whole_transition(run, args);
    fm_transition_grad two = *grad;
    const fm_dropout *d = &args->end.dropout;
    two.dbeta = fm_out_at(grad->dgamma, d->c, run->kernels->acc);
    void *workspace =
        fm_run_workspace(run, (int64_t)run->kernels->transition_grad_workspace(&one, &two));
    double products = args->kept ? 8.0 : 10.0;
    run->flops += products * (double)(d->n0 * d->n1) * (double)d->c * (double)args->hidden;
    if (!run->dry) run->kernels->transition_grad(run->stream, &one, &two, workspace);
    fm_run_release(run, mark);
}

void fm_call_update_norm_grad(fm_run *run, const fm_node *node, const fm_update *args,
                              const void *norm, const fm_update_norm_grad *grad, fm_out dnorm) {
    int64_t mark = fm_run_mark(run), rows = args->n_group * args->n0 * args->n1;
    int64_t calls = update_calls(args);
    fm_element act = run->kernels->act;
    void *workspace = fm_run_workspace(
        run, (int64_t)run->kernels->update_norm_grad_workspace(rows / calls, args->c));
    for (int64_t g = 0; g < calls && !run->dry; g++) {
        fm_update_norm one = update_norm_of(run, node, args, g, norm);
        int64_t at = g * fm_update_group_count(args);
        fm_out dweights = {dnorm.data, g ? FM_ADD : dnorm.beta};
        fm_update_norm_grad part = {.y = fm_run_at(grad->y, at, act),
                                    .dn = fm_run_at(grad->dn, at, act),
                                    .dy = fm_out_at(grad->dy, at, act),
                                    .dupdate = fm_run_at(grad->dupdate, at, act),
                                    .dgamma = dweights,
                                    .dbeta = fm_out_at(dweights, args->c, run->kernels->acc)};
        run->kernels->update_norm_grad(run->stream, &one, &part, workspace);
    }
    fm_run_release(run, mark);
}

void fm_call_gate(fm_run *run, const fm_gate *args) {
    if (!run->dry) run->kernels->gate(run->stream, args);
}

void fm_call_gate_grad(fm_run *run, const fm_gate *args, const fm_gate_grad *grad) {
    if (!run->dry) run->kernels->gate_grad(run->stream, args, grad);
}

void fm_call_swiglu(fm_run *run, const fm_swiglu *args) {
    if (!run->dry) run->kernels->swiglu(run->stream, args);
}

void fm_call_swiglu_grad(fm_run *run, const fm_swiglu *args, const void *dy, fm_out dx) {
    if (!run->dry) run->kernels->swiglu_grad(run->stream, args, dy, dx);
}

static fm_swiglu_transition whole_swiglu(const fm_swiglu_transition *args) {
    fm_swiglu_transition whole = *args;
    whole.eps = FM_LAYERNORM_EPS;
    return whole;
}

static double swiglu_flops(const fm_swiglu_transition *a) {
    return 6.0 * (double)a->rows * (double)a->c * (double)a->hidden;
}

void fm_call_swiglu_transition(fm_run *run, const fm_swiglu_transition *args) {
    int64_t mark = fm_run_mark(run);
    fm_swiglu_transition whole = whole_swiglu(args);
    void *workspace =
        fm_run_workspace(run, (int64_t)run->kernels->swiglu_transition_workspace(&whole));
    run->flops += swiglu_flops(args) * (args->y ? 1 : 2.0 / 3);
    if (!run->dry) run->kernels->swiglu_transition(run->stream, &whole, workspace);
    fm_run_release(run, mark);
}

void fm_call_swiglu_transition_grad(fm_run *run, const fm_swiglu_transition *args,
                                    const fm_swiglu_transition_grad *grad) {
    int64_t mark = fm_run_mark(run);
    fm_swiglu_transition whole = whole_swiglu(args);
    void *workspace = fm_run_workspace(
        run, (int64_t)run->kernels->swiglu_transition_grad_workspace(&whole, grad));
    run->flops += 2 * swiglu_flops(args);
    if (!run->dry) run->kernels->swiglu_transition_grad(run->stream, &whole, grad, workspace);
    fm_run_release(run, mark);
}

void fm_call_scale_rows(fm_run *run, int64_t rows, int64_t c, const void *scale, const void *x,
                        fm_out y) {
    if (!run->dry) run->kernels->scale_rows(run->stream, rows, c, c, c, scale, x, y);
}

void fm_call_copy_strided(fm_run *run, const fm_strided *args) {
    if (!run->dry && args->y.data) run->kernels->copy_strided(run->stream, args);
}

/* -- elements */

void fm_call_copy(fm_run *run, int64_t count, const void *x, void *y) {
    if (!run->dry && x != y) run->kernels->copy(run->stream, count, x, y);
}

void fm_call_fill(fm_run *run, int64_t count, double value, void *y) {
    if (!run->dry) run->kernels->fill(run->stream, count, value, y);
}

/* The table's fill writes act elements. An acc element of 0 has the same bytes as act elements of
 * 0. */
void fm_call_fill_acc(fm_run *run, int64_t count, double value, void *y) {
    assert(value == 0 || run->kernels->act == run->kernels->acc);
    size_t ratio = fm_element_bytes(run->kernels->acc) / fm_element_bytes(run->kernels->act);
    fm_call_fill(run, count * (int64_t)ratio, value, y);
}

void fm_call_to_f32(fm_run *run, int64_t count, const void *x, float *y) {
    const fm_kernels *own = run->kernels, *to = own->wide ? own->wide : own->f32;
    if (own->act == FM_ELEMENT_F32) to = own;
    if (!run->dry) to->cast(run->stream, count, own->act, x, y);
}

void fm_call_clear_rest(fm_run *run, int64_t written, int64_t count, fm_out dx) {
    if (dx.data && dx.beta == FM_WRITE && written < count) {
        fm_call_fill(run, count - written, 0.0, fm_run_at(dx.data, written, run->kernels->act));
    }
}

fm_out fm_call_part_of(fm_run *run, int64_t count, fm_out dw) {
    if (dw.data && dw.beta == FM_WRITE) fm_call_fill_acc(run, count, 0.0, dw.data);
    return (fm_out){dw.data, FM_ADD};
}

void fm_call_axpy(fm_run *run, int64_t count, double alpha, const void *x, fm_out y) {
    if (!run->dry && y.data) run->kernels->axpy(run->stream, count, alpha, x, y);
}

void fm_call_add(fm_run *run, int64_t rows, int64_t c, const void *x, const void *update, void *y) {
    const fm_dropout none = {.n0 = 1, .n1 = rows, .c = c, .global_n1 = rows};
    if (!run->dry) run->kernels->dropout(run->stream, &none, x, update, y);
}

void fm_call_relu_grad(fm_run *run, int64_t count, const void *y, const void *dy, fm_out dx) {
    if (!run->dry && dx.data) run->kernels->relu_grad(run->stream, count, y, dy, dx);
}

const void *fm_call_bias_or_zeros(fm_run *run, int64_t count, const void *bias) {
    if (bias) return bias;
    void *zeros = fm_run_workspace_act(run, count);
    fm_call_fill(run, count, 0.0, zeros);
    return zeros;
}

void fm_call_sum(fm_run *run, int64_t n_a, int64_t n_r, int64_t n_c, int64_t stride_a,
                 int64_t stride_r, const void *x, fm_out y, bool y_is_acc) {
    int64_t mark = fm_run_mark(run);
    void *workspace = fm_run_workspace(run, (int64_t)run->kernels->sum_workspace(n_a, n_r, n_c));
    if (!run->dry && y.data) {
        int64_t stride[2] = {stride_a, stride_r};
        run->kernels->sum(run->stream, n_a, n_r, n_c, stride, x, y, y_is_acc, workspace);
    }
    fm_run_release(run, mark);
}

/* -- embeddings */

void fm_call_lookup(fm_run *run, const fm_lookup *args, int64_t rows, const uint8_t *ids,
                    fm_out y) {
    if (!run->dry) run->kernels->lookup(run->stream, args, rows, ids, y);
}

void fm_call_bias_add(fm_run *run, int64_t rows, int64_t c, const void *bias, void *x) {
    if (!run->dry) run->kernels->bias_add(run->stream, rows, c, x, bias, x);
}

void fm_call_outer_sum(fm_run *run, int64_t n_i, int64_t n_j, int64_t c, int64_t ld, const void *a,
                       const void *b, fm_out z) {
    if (!run->dry) run->kernels->outer_sum(run->stream, n_i, n_j, c, ld, ld, a, b, z);
}

void fm_call_outer_sum_grad(fm_run *run, int64_t n_i, int64_t n_j, int64_t c, int64_t ld,
                            const void *dz, fm_out da, fm_out db) {
    if (!run->dry) run->kernels->outer_sum_grad(run->stream, n_i, n_j, c, ld, ld, dz, da, db);
}

void fm_call_relpos(fm_run *run, const fm_lookup *args, int64_t first, int64_t n_i, int64_t n_j,
                    const int32_t *index, fm_out z) {
    if (!run->dry) run->kernels->relpos(run->stream, args, n_i, n_j, index + first, index, z);
}

void fm_call_msa_features(fm_run *run, const fm_msa_features *args) {
    if (!run->dry) run->kernels->msa_features(run->stream, args);
}

void fm_call_masked_mean(fm_run *run, const fm_masked_mean *args, void *y) {
    if (!run->dry) run->kernels->masked_mean(run->stream, args, y);
}

void fm_call_masked_mean_grad(fm_run *run, const fm_masked_mean *args, const void *dy, fm_out dx) {
    if (!run->dry && dx.data) run->kernels->masked_mean_grad(run->stream, args, dy, dx);
}

/* -- cores */

/* FLOPs are those of the products in the algorithm: twice as many backward as forward. Products
 * that a kernel computes again are not counted. */
static double attention_flops(const fm_attention *a) {
    return 4.0 * (double)(a->n_group * a->n_batch * a->n_head) * (double)(a->n_query * a->n_key) *
           (double)a->c_head;
}

static double outer_flops(const fm_outer *a) {
    return 2.0 * (double)(a->n_i * a->n_j) * (double)(a->c * a->c) * (double)(a->n_seq + a->c_z);
}

static double triangle_flops(const fm_triangle *a) {
    return 2.0 * (double)(a->n_i * a->n_j) * (double)(a->n_k * a->c);
}

static double triangle_block_flops(const fm_triangle_block *a) {
    return 2.0 * (double)(a->n * (a->n_part ? a->n_part : a->n)) *
           (double)(a->c_z * (4 * a->c + a->c_z) + a->n * a->c + a->c * a->c_z);
}

void fm_call_attention(fm_run *run, const fm_attention *args) {
    int64_t mark = fm_run_mark(run);
    void *workspace = fm_run_workspace(run, (int64_t)run->kernels->attention_workspace(args));
    run->flops += attention_flops(args);
    if (!run->dry) run->kernels->attention(run->stream, args, workspace);
    fm_run_release(run, mark);
}

void fm_call_attention_grad(fm_run *run, const fm_attention *args, const fm_attention_grad *grad) {
    int64_t mark = fm_run_mark(run);
    void *workspace = fm_run_workspace(run, (int64_t)run->kernels->attention_grad_workspace(args));
    run->flops += 2 * attention_flops(args);
    if (!grad->dout) {
        double rows = (double)(args->n_group * args->n_batch * args->n_query);
        double width = (double)(args->n_head * args->c_head);
        run->flops += 2 * rows * width * width;
    }
    if (!run->dry) run->kernels->attention_grad(run->stream, args, grad, workspace);
    fm_run_release(run, mark);
}

void fm_call_outer(fm_run *run, const fm_outer *args) {
    int64_t mark = fm_run_mark(run);
    void *workspace = fm_run_workspace(run, (int64_t)run->kernels->outer_workspace(args));
    run->flops += outer_flops(args);
    if (!run->dry) run->kernels->outer(run->stream, args, workspace);
    fm_run_release(run, mark);
}

void fm_call_outer_grad(fm_run *run, const fm_outer *args, const fm_outer_grad *grad) {
    int64_t mark = fm_run_mark(run);
    void *workspace = fm_run_workspace(run, (int64_t)run->kernels->outer_grad_workspace(args));
    run->flops += 2 * outer_flops(args);
    if (!run->dry) run->kernels->outer_grad(run->stream, args, grad, workspace);
    fm_run_release(run, mark);
}

void fm_call_triangle(fm_run *run, const fm_triangle *args) {
    int64_t mark = fm_run_mark(run);
    void *workspace = fm_run_workspace(run, (int64_t)run->kernels->triangle_workspace(args));
    run->flops += triangle_flops(args);
    if (!run->dry) run->kernels->triangle(run->stream, args, workspace);
    fm_run_release(run, mark);
}

void fm_call_triangle_grad(fm_run *run, const fm_triangle *args, const fm_triangle_grad *grad) {
    int64_t mark = fm_run_mark(run);
    void *workspace = fm_run_workspace(run, (int64_t)run->kernels->triangle_grad_workspace(args));
    run->flops += 2 * triangle_flops(args);
    if (!run->dry) run->kernels->triangle_grad(run->stream, args, grad, workspace);
    fm_run_release(run, mark);
}

void fm_call_triangle_block(fm_run *run, const fm_triangle_block *args) {
    int64_t mark = fm_run_mark(run);
    void *workspace = fm_run_workspace(run, (int64_t)run->kernels->triangle_block_workspace(args));
    run->flops += triangle_block_flops(args);
    if (!run->dry) run->kernels->triangle_block(run->stream, args, workspace);
    fm_run_release(run, mark);
}

void fm_call_triangle_block_grad(fm_run *run, const fm_triangle_block *args,
                                 const fm_triangle_block_grad *grad) {
    int64_t mark = fm_run_mark(run);
    void *workspace =
        fm_run_workspace(run, (int64_t)run->kernels->triangle_block_grad_workspace(args));
    run->flops += 2 * triangle_block_flops(args);
    if (!run->dry) run->kernels->triangle_block_grad(run->stream, args, grad, workspace);
    fm_run_release(run, mark);
}

void fm_call_triangle_part(fm_run *run, fm_triangle_stage stage, const fm_triangle_part *args,
                           void *workspace) {
    if (stage == FM_TRIANGLE_BACK) run->flops += triangle_block_flops(&args->block);
    if (stage == FM_TRIANGLE_FRONT_GRAD) run->flops += 2 * triangle_block_flops(&args->block);
    if (!run->dry) run->kernels->triangle_part(run->stream, stage, args, workspace);
}

void fm_call_lookup_grad(fm_run *run, const fm_lookup *args, int64_t rows, const uint8_t *ids,
                         const void *dy, fm_out dw) {
    int64_t mark = fm_run_mark(run);
    void *workspace =
        fm_run_workspace(run, (int64_t)run->kernels->lookup_grad_workspace(args, rows));
    if (!run->dry && dw.data) {
        run->kernels->lookup_grad(run->stream, args, rows, ids, dy, dw, workspace);
    }
    fm_run_release(run, mark);
}

void fm_call_relpos_grad(fm_run *run, const fm_lookup *args, int64_t first, int64_t n_i,
                         int64_t n_j, const int32_t *index, const void *dz, fm_out dw) {
    int64_t mark = fm_run_mark(run);
    void *workspace =
        fm_run_workspace(run, (int64_t)run->kernels->relpos_grad_workspace(args, n_i, n_j));
    if (!run->dry && dw.data) {
        run->kernels->relpos_grad(run->stream, args, n_i, n_j, index + first, index, dz, dw,
                                  workspace);
    }
    fm_run_release(run, mark);
}

void fm_call_cross_entropy(fm_run *run, const fm_cross_entropy *args) {
    int64_t mark = fm_run_mark(run);
    void *workspace =
        fm_run_workspace(run, (int64_t)run->kernels->cross_entropy_workspace(args->rows));
    if (!run->dry) run->kernels->cross_entropy(run->stream, args, workspace);
    fm_run_release(run, mark);
}

void fm_call_cross_entropy_grad(fm_run *run, const fm_cross_entropy *args, const void *dloss,
                                fm_out dx) {
    if (!run->dry) run->kernels->cross_entropy_grad(run->stream, args, dloss, dx);
}

void fm_call_distance_bins(fm_run *run, int64_t n, const float *x, const float *mask, int32_t n_bin,
                           float first, float last, int32_t *target, void *w) {
    if (!run->dry) {
        run->kernels->distance_bins(run->stream, n, n, x, x, mask, mask, n_bin, first, last, target,
                                    w);
    }
}

void fm_call_distance_ids(fm_run *run, int64_t at, int64_t n_i, int64_t n_j, const float *x,
                          const fm_distance_classes *classes, uint8_t *ids) {
    if (!run->dry) {
        run->kernels->distance_ids(run->stream, n_i, n_j, x + 3 * at, x, classes->n, classes->first,
                                   classes->last, classes->most_square, ids);
    }
}

void fm_call_axpy_device(fm_run *run, int64_t count, const double *alpha, const void *x, fm_out y) {
    if (!run->dry && y.data) run->kernels->axpy_device(run->stream, count, alpha, x, y);
}
