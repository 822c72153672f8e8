/* kbench_module.c: see kbench_module.h. */
#include "tests/kbench/kbench_module.h"

#include "trainer/autograd/tape.h"
#include "trainer/ops/attention.h"
#include "trainer/ops/global_attention.h"
#include "trainer/ops/outer_product_mean.h"
#include "trainer/ops/transition.h"
#include "trainer/ops/triangle_multiplication.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct kbench_module {
    const fm_kernels *kernels;
    kbench_shape shape;
    fm_arena arena;
    fm_params params;
    fm_state state;
    fm_tape tape;
    int32_t x, mask, z, dy; /* in the state; z -1: none */
    fm_tensor_ref x_ref, mask_ref, z_ref, y_ref;
    void *memory;
};

static void must(fm_status status, const fm_error *error) {
    if (!status) return;
    fprintf(stderr, "kbench: %s\n", error->message);
    abort();
}

/* A block of one matrix [c_out, c_in] of LeCun's size, or a vector where c_in is 0, after a gap of
 * zeros. */
static fm_param_ref block_after(kbench_module *m, int64_t zeros, int64_t c_out, int64_t c_in) {
    fm_param_ref ref = fm_params_add_block_after_zeros(&m->params, zeros);
    fm_params_add(&m->params, &(fm_param){.name = "",
                                          .rank = c_in ? 2 : 1,
                                          .shape = {c_out, c_in},
                                          .init = FM_INIT_UNIFORM,
                                          .init_scale = c_in ? sqrt(3.0 / (double)c_in) : 0.5});
    return ref;
}

static fm_param_ref block(kbench_module *m, int64_t c_out, int64_t c_in) {
    return block_after(m, 0, c_out, c_in);
}

static fm_param_ref norm(kbench_module *m, int64_t c) {
    return block(m, 2 * c, 0);
}

static fm_tensor_ref add_attention(kbench_module *m) {
    static const fm_axial axial[] = {FM_AXIAL_ROW, FM_AXIAL_COLUMN, FM_AXIAL_STARTING,
                                     FM_AXIAL_ENDING};
    const kbench_shape *s = &m->shape;
    int64_t width = s->n_head * s->c_inner;
    bool is_row = s->kind == KBENCH_ROW;
    fm_attention_weights w = {.norm = norm(m, s->c),
                              .qkvg = block(m, 4 * width, s->c),
                              .q_bias = FM_PARAM_NONE,
                              .gate_bias = block_after(m, 3 * width, width, 0),
                              .out = block(m, s->c, width),
                              .out_bias = block(m, s->c, 0),
                              .bias = FM_PARAM_NONE,
                              .norm_z = FM_PARAM_NONE,
                              .n_head = s->n_head,
                              .c_head = s->c_inner};
    if (s->kind != KBENCH_COLUMN) w.bias = block(m, s->n_head, is_row ? s->c_z : s->c);
    if (is_row) w.norm_z = norm(m, s->c_z);
    return fm_op_attention(&m->tape, "attention", axial[s->kind], m->x_ref, m->mask_ref,
                           is_row ? m->z_ref : FM_TENSOR_NONE, &w, true, s->dropout);
}

static fm_tensor_ref add_global(kbench_module *m) {
    const kbench_shape *s = &m->shape;
    int64_t width = s->n_head * s->c_inner;
    fm_global_attention_weights w = {.norm = norm(m, s->c),
                                     .q = block(m, width, s->c),
                                     .kvg = block(m, 2 * s->c_inner + width, s->c),
                                     .gate_bias = block_after(m, 2 * s->c_inner, width, 0),
                                     .out = block(m, s->c, width),
                                     .out_bias = block(m, s->c, 0),
                                     .n_head = s->n_head,
                                     .c_head = s->c_inner};
    return fm_op_global_attention(&m->tape, "global attention", m->x_ref, m->mask_ref, &w, true);
}

static fm_tensor_ref add_transition(kbench_module *m) {
    int64_t c = m->shape.c, hidden = m->shape.c_inner * c;
    fm_transition_weights w = {.norm = norm(m, c),
                               .w1 = block(m, hidden, c),
                               .b1 = block(m, hidden, 0),
                               .w2 = block(m, c, hidden),
                               .b2 = block(m, c, 0),
                               .hidden = hidden};
    return fm_op_transition(&m->tape, "transition", m->x_ref, &w, true, FM_KEEP);
}

static fm_tensor_ref add_outer(kbench_module *m) {
    const kbench_shape *s = &m->shape;
    fm_outer_weights w = {.norm = norm(m, s->c),
                          .ab = block(m, 2 * s->c_inner, s->c),
                          .ab_bias = block(m, 2 * s->c_inner, 0),
                          .out = block(m, s->c_z, s->c_inner * s->c_inner),
                          .out_bias = block(m, s->c_z, 0),
                          .c = s->c_inner,
                          .c_z = s->c_z};
    return fm_op_outer_product_mean(&m->tape, "outer product mean", m->x_ref, m->mask_ref, m->z_ref,
                                    &w);
}

static fm_tensor_ref add_triangle(kbench_module *m) {
    const kbench_shape *s = &m->shape;
    int64_t c_projected = 4 * s->c_inner + s->c;
    fm_triangle_weights w = {.norm_in = norm(m, s->c),
                             .projections = block(m, c_projected, s->c),
                             .projections_bias = block(m, c_projected, 0),
                             .norm_out = norm(m, s->c_inner),
                             .out = block(m, s->c, s->c_inner),
                             .out_bias = block(m, s->c, 0),
                             .c = s->c_inner};
    return fm_op_triangle_multiplication(&m->tape, "triangle multiplication",
                                         s->kind == KBENCH_INCOMING, m->x_ref, m->mask_ref, &w,
                                         true, s->dropout);
}

static fm_tensor_ref add_node(kbench_module *m) {
    switch (m->shape.kind) {
    case KBENCH_GLOBAL_COLUMN: return add_global(m);
    case KBENCH_TRANSITION: return add_transition(m);
    case KBENCH_OUTER: return add_outer(m);
    case KBENCH_OUTGOING:
    case KBENCH_INCOMING: return add_triangle(m);
    default: return add_attention(m);
    }
}

/* The input that is not the residual's, FM_TENSOR_NONE where there is none. */
static fm_tensor_ref other_input(const kbench_module *m) {
    return m->shape.kind == KBENCH_OUTER ? m->x_ref
           : m->shape.kind == KBENCH_ROW ? m->z_ref
                                         : FM_TENSOR_NONE;
}

static void add_inputs(kbench_module *m) {
    const kbench_shape *s = &m->shape;
    fm_element act = m->kernels->act;
    m->x = fm_state_add(&m->state, "x", act, 3, (int64_t[]){s->n0, s->n1, s->c});
    m->mask = fm_state_add(&m->state, "mask", act, 2, (int64_t[]){s->n0, s->n1});
    m->z = -1;
    if (s->kind == KBENCH_ROW || s->kind == KBENCH_OUTER) {
        m->z = fm_state_add(&m->state, "z", act, 3, (int64_t[]){s->n1, s->n1, s->c_z});
    }
    m->x_ref = fm_tape_state(&m->tape, m->x, true);
    m->mask_ref = fm_tape_state(&m->tape, m->mask, false);
    m->z_ref = m->z < 0 ? FM_TENSOR_NONE : fm_tape_state(&m->tape, m->z, true);
}

kbench_module *kbench_module_create(const fm_kernels *kernels, const kbench_shape *shape) {
    fm_error error = {0};
    kbench_module *m = calloc(1, sizeof *m);
    if (!m) abort();
    m->kernels = kernels, m->shape = *shape;
    must(fm_arena_init(&m->arena, (size_t)64 << 20, &error), &error);
    must(fm_params_init(&m->params, 64, &m->arena, &error), &error);
    must(fm_tape_init(&m->tape, kernels, &m->params, &m->state, true, &error), &error);
    m->tape.seed = 4711;
    add_inputs(m);
    m->y_ref = add_node(m);
    fm_tape_keep(&m->tape, m->y_ref);
    m->dy = fm_state_add_like(&m->state, fm_tape_tensor(&m->tape, m->y_ref));
    fm_tape_seed_gradient(&m->tape, m->y_ref, m->dy);
    if (other_input(m) != FM_TENSOR_NONE) fm_tape_want_gradient(&m->tape, other_input(m));
    must(fm_params_allocate(&m->params, kernels, &error), &error);
    must(fm_state_allocate(&m->state, kernels, &error), &error);
    must(fm_tape_plan(&m->tape, &error), &error);
    m->memory = kernels->alloc((size_t)m->tape.size.arena_bytes + 1);
    if (!m->memory) abort();
    fm_tape_bind(&m->tape, m->memory);
    return m;
}

void kbench_module_destroy(kbench_module *m) {
    fm_tape_fini(&m->tape);
    m->kernels->release(m->memory);
    fm_state_release(&m->state);
    fm_params_release(&m->params);
    fm_arena_fini(&m->arena);
    free(m);
}

static kbench_tensor state_tensor(kbench_module *m, int32_t at, const char *name, double range) {
    return (kbench_tensor){name, fm_state_data(&m->state, at),
                           fm_tensor_local_count(&m->state.tensor[at]), range};
}

int kbench_module_inputs(kbench_module *m, kbench_tensor out[KBENCH_TENSORS]) {
    out[0] = state_tensor(m, m->x, "x", 2);
    out[1] = state_tensor(m, m->mask, "mask", 0);
    if (m->z < 0) return 2;
    out[2] = state_tensor(m, m->z, "z", 2);
    return 3;
}

/* Each block of a flat buffer, named by its shape. */
static int blocks_of(kbench_module *m, void *flat, kbench_tensor out[KBENCH_TENSORS]) {
    int n = 0;
    for (; n < m->params.n_block && n < KBENCH_TENSORS; n++) {
        const fm_param *p = &m->params.param[n];
        char *name = fm_arena_alloc(&m->arena, 32);
        if (!name) abort();
        snprintf(name, 32, p->rank == 2 ? "dw%d %lldx%lld" : "dw%d %lld", n, (long long)p->shape[0],
                 (long long)p->shape[1]);
        out[n] = (kbench_tensor){name, fm_params_at(&m->params, flat, m->params.block[n].offset),
                                 m->params.block[n].count, p->init_scale};
    }
    return n;
}

int kbench_module_parameters(kbench_module *m, kbench_tensor out[KBENCH_TENSORS]) {
    return blocks_of(m, m->params.master, out);
}

int kbench_module_gradients(kbench_module *m, kbench_tensor out[KBENCH_TENSORS]) {
    return blocks_of(m, m->params.gradient, out);
}

void kbench_module_refresh(kbench_module *m) {
    fm_params_refresh_copy(&m->params);
}

kbench_tensor kbench_module_output(kbench_module *m) {
    return (kbench_tensor){"y", fm_tape_data(&m->tape, m->y_ref),
                           fm_tensor_local_count(fm_tape_tensor(&m->tape, m->y_ref)), 0};
}

kbench_tensor kbench_module_output_gradient(kbench_module *m) {
    return state_tensor(m, m->dy, "dx", 1);
}

kbench_tensor kbench_module_other_gradient(kbench_module *m) {
    fm_tensor_ref other = other_input(m);
    if (other == FM_TENSOR_NONE) return (kbench_tensor){0};
    return (kbench_tensor){"dx of the other", fm_tape_gradient(&m->tape, other),
                           fm_tensor_local_count(fm_tape_tensor(&m->tape, other)), 0};
}

void kbench_module_forward(kbench_module *m, fm_stream *stream) {
    fm_tape_forward(&m->tape, stream);
}

void kbench_module_backward(kbench_module *m, fm_stream *stream) {
    fm_tape_backward(&m->tape, stream);
}

double kbench_module_flops(const kbench_module *m, bool backward) {
    double flops = 0;
    for (int32_t i = 0; i < m->tape.n_step; i++)
        if ((i >= m->tape.n_forward) == backward) flops += m->tape.step[i].flops;
    return flops;
}
