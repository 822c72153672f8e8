/* tape.c: records nodes and tensors, see tape.h. Planning is in tape_plan.c, running in tape_run.c.
 *
 * Every function appends rows to tables in the tape's arena: nodes, tensors, buffers and segments.
 * A tensor row refers to a buffer row by number. Usually each tensor has a separate buffer; a
 * view and an in-place residual share the buffer of their input. Positions in the tables never
 * change, so nodes refer to tensors by position. */
#include "trainer/autograd/tape_internal.h"

#include <assert.h>
#include <string.h>

/* Capacity of a tape. The full model has about 600 nodes. The arena reserves address space, which
 * costs no memory until it is touched. */
enum { MAX_NODE = 8192, MAX_TENSOR = 1 << 17, MAX_SEGMENT = 1024 };
static const size_t TABLE_BYTES = (size_t)512 << 20;

fm_status fm_tape_init(fm_tape *tape, const fm_kernels *kernels, fm_params *params,
                       const fm_state *state, bool with_gradient, fm_error *reterr) {
    *tape = (fm_tape){.kernels = kernels,
                      .main_kernels = kernels,
                      .params = params,
                      .state = state,
                      .with_gradient = with_gradient,
                      .in_place = !with_gradient,
                      .open_segment = -1};
    fm_status status = fm_arena_init(&tape->tables, TABLE_BYTES, reterr);
    if (status) return status;
    tape->node = fm_arena_alloc_array(&tape->tables, MAX_NODE, sizeof(fm_node));
    tape->tensor = fm_arena_alloc_array(&tape->tables, MAX_TENSOR, sizeof(fm_tensor));
    tape->buffer = fm_arena_alloc_array(&tape->tables, MAX_TENSOR, sizeof(fm_buffer));
    tape->segment = fm_arena_alloc_array(&tape->tables, MAX_SEGMENT, sizeof(fm_segment));
    tape->step = fm_arena_alloc_array(&tape->tables, (size_t)4 * MAX_NODE, sizeof(fm_step));
    bool fits = tape->node && tape->tensor && tape->buffer && tape->segment && tape->step;
    return fits ? FM_OK : fm_arena_full(&tape->tables, reterr);
}

void fm_tape_fini(fm_tape *tape) {
    fm_arena_fini(&tape->tables);
    *tape = (fm_tape){0};
}

/* Adds a tensor with a new buffer. `like` must not point into the tape's table. */
static fm_tensor_ref add_tensor(fm_tape *tape, const fm_tensor *like) {
    assert(tape->n_tensor < MAX_TENSOR);
    fm_tensor *tensor = &tape->tensor[tape->n_tensor];
    *tensor = *like;
    tensor->pool = FM_POOL_TRANSIENT;
    tensor->buffer = tape->n_buffer++;
    fm_buffer *buffer = &tape->buffer[tensor->buffer];
    *buffer = (fm_buffer){
        .bytes = fm_tensor_local_bytes(tensor), .state_offset = -1, .segment = tape->open_segment};
    buffer->life[0].first = buffer->life[1].first = -1;
    return tape->n_tensor++;
}

fm_tensor_ref fm_tape_state(fm_tape *tape, int32_t state_tensor, bool needs_gradient) {
    const fm_tensor *source = &tape->state->tensor[state_tensor];
    fm_tensor like = fm_tensor_like(source, source->name);
    fm_tensor_ref ref = add_tensor(tape, &like);
    fm_tensor *tensor = &tape->tensor[ref];
    tensor->pool = FM_POOL_STATE;
    tensor->needs_gradient = needs_gradient && tape->with_gradient;
    tape->buffer[tensor->buffer].state_offset = tape->state->offset[state_tensor];
    return ref;
}

/* Adds the slice of the first axis of `of` that begins at `offset` in the state. */
static fm_tensor_ref add_slice(fm_tape *tape, const fm_tensor *of, int64_t offset,
                               bool follows_row) {
    fm_tensor like;
    assert(of->pool == FM_POOL_STATE && of->rank > 1 && of->shard_axis < 0);
    fm_tensor_init(&like, of->name, of->element, of->rank - 1, of->shape + 1);
    fm_tensor_ref ref = add_tensor(tape, &like);
    fm_tensor *tensor = &tape->tensor[ref];
    tensor->pool = FM_POOL_STATE;
    tape->buffer[tensor->buffer].state_offset = offset;
    tape->buffer[tensor->buffer].row_bytes = follows_row ? fm_tensor_local_bytes(&like) : 0;
    return ref;
}

fm_tensor_ref fm_tape_state_part(fm_tape *tape, int32_t state_tensor, int64_t part) {
    const fm_tensor *of = &tape->state->tensor[state_tensor];
    assert(part >= 0 && part < of->shape[0]);
    int64_t offset = part * (fm_tensor_local_bytes(of) / of->shape[0]);
    return add_slice(tape, of, tape->state->offset[state_tensor] + offset, false);
}

fm_tensor_ref fm_tape_state_row(fm_tape *tape, fm_tensor_ref of) {
    const fm_tensor from = tape->tensor[of];
    assert(tape->buffer[from.buffer].row_bytes == 0);
    return add_slice(tape, &from, tape->buffer[from.buffer].state_offset, true);
}

fm_tensor_ref fm_tape_add_gradient(fm_tape *tape, fm_tensor_ref of) {
    fm_tensor like = fm_tensor_like(&tape->tensor[of], tape->tensor[of].name);
    return add_tensor(tape, &like);
}

fm_node *fm_tape_add(fm_tape *tape, const fm_op *op, const char *name, size_t attribute_bytes,
                     void **ret_attributes) {
    assert(tape->n_node < MAX_NODE);
    fm_node *node = &tape->node[tape->n_node];
    void *attributes = fm_arena_calloc(&tape->tables, 1, attribute_bytes);
    assert(attributes);
    *node = (fm_node){.op = op,
                      .kernels = tape->kernels,
                      .name = name,
                      .attributes = attributes,
                      .residual = -1,
                      .passes_if_first = -1,
                      .gradient_like = FM_TENSOR_NONE,
                      .holds_gradient_of = FM_TENSOR_NONE,
                      .segment = tape->open_segment};
    tape->n_node++;
    *ret_attributes = attributes;
    return node;
}

static void room_forward(fm_run *run, const fm_node *node) {
    (void)fm_run_workspace(run, *(const int64_t *)node->attributes);
}

static const fm_op ROOM = {"room", room_forward, NULL};

int32_t fm_tape_add_room(fm_tape *tape, const char *name, int64_t bytes) {
    void *memory;
    (void)fm_tape_add(tape, &ROOM, name, sizeof bytes, &memory);
    memcpy(memory, &bytes, sizeof bytes);
    return tape->n_node - 1;
}

void *fm_tape_room(const fm_tape *tape, int32_t node) {
    const fm_step *step = &tape->step[node]; /* the forward step of node i is step i */
    assert(tape->node[node].op == &ROOM && tape->n_step > 0);
    return step->workspace_bytes ? (char *)tape->memory + step->workspace_at : NULL;
}

int fm_node_input(fm_tape *tape, fm_node *node, fm_tensor_ref tensor, bool reads_again) {
    assert(node->n_input < FM_NODE_INPUTS);
    int at = node->n_input++;
    node->input[at] = tensor;
    if (tensor != FM_TENSOR_NONE) {
        assert(node->casts || tape->tensor[tensor].element != FM_ELEMENT_BF16 ||
               node->kernels->act == FM_ELEMENT_BF16);
        node->input_version[at] = tape->tensor[tensor].version;
        node->reads_again |= (uint32_t)reads_again << at;
    }
    return at;
}

void fm_node_holds(fm_tape *tape, fm_node *node, fm_tensor_ref tensor) {
    int at = fm_node_input(tape, node, tensor, false);
    node->without_gradient |= 1u << at;
}

void fm_node_reads_output(fm_node *node, int i) {
    node->output_read_again |= 1u << i;
}

void fm_node_completes(fm_node *node) {
    node->completes = true;
}

void fm_node_derives(fm_node *node, void (*derive)(fm_run *run, const fm_node *node)) {
    node->derive = derive;
}

void fm_tape_drop_derived(fm_tape *tape) {
    tape->node[tape->n_node - 1].drops_derived = true;
}

void fm_node_passes_if_first(fm_node *node, int input) {
    node->passes_if_first = input;
}

void fm_node_draws(fm_tape *tape, fm_node *node) {
    node->rng = tape->n_draw++;
    node->rng_step = tape->draw_step;
}

void fm_tape_group_draws(fm_tape *tape, uint32_t step) {
    tape->draw_step = step;
}

void fm_tape_seek_draw(fm_tape *tape, uint32_t draw) {
    tape->n_draw = draw;
}

void fm_tape_skip_draws(fm_tape *tape, uint32_t count) {
    tape->n_draw += count;
}

int fm_node_param(fm_tape *tape, fm_node *node, fm_param_ref param) {
    assert(node->n_param < FM_NODE_PARAMS && param >= FM_PARAM_NONE);
    assert(param < tape->params->n_block);
    node->param[node->n_param] = param;
    return node->n_param++;
}

static bool needs_gradient(const fm_tape *tape, const fm_node *node) {
    bool needs = node->n_param > 0 || node->on_all_ranks;
    for (int i = 0; i < node->n_input; i++) {
        needs |= node->input[i] != FM_TENSOR_NONE && !(node->without_gradient >> i & 1) &&
                 tape->tensor[node->input[i]].needs_gradient;
    }
    return needs && tape->with_gradient && node->op->backward;
}

static fm_tensor_ref add_output(fm_tape *tape, fm_node *node, fm_tensor_ref ref) {
    assert(node->n_output < FM_NODE_OUTPUTS);
    tape->tensor[ref].needs_gradient = needs_gradient(tape, node);
    node->output[node->n_output++] = ref;
    return ref;
}

fm_tensor_ref fm_node_output(fm_tape *tape, fm_node *node, fm_element element, int rank,
                             const int64_t *shape) {
    fm_tensor like;
    fm_tensor_init(&like, node->name, element, rank, shape);
    return add_output(tape, node, add_tensor(tape, &like));
}

fm_tensor_ref fm_node_output_described(fm_tape *tape, fm_node *node, const fm_tensor *description) {
    fm_tensor like = fm_tensor_like(description, node->name);
    return add_output(tape, node, add_tensor(tape, &like));
}

fm_tensor_ref fm_node_view(fm_tape *tape, fm_node *node, int input) {
    fm_tensor_ref from = node->input[input];
    fm_tensor like = fm_tensor_like(&tape->tensor[from], node->name);
    fm_tensor_ref ref = add_tensor(tape, &like);
    tape->n_buffer--; /* shares the input's buffer */
    tape->tensor[ref].buffer = tape->tensor[from].buffer;
    tape->tensor[ref].pool = tape->tensor[from].pool;
    return add_output(tape, node, ref);
}

fm_tensor_ref fm_node_residual(fm_tape *tape, fm_node *node, int input) {
    assert(node->n_output == 0 && node->residual < 0);
    node->residual = input;
    fm_tensor_ref from = node->input[input];
    if (tape->in_place && tape->tensor[from].pool != FM_POOL_STATE) {
        tape->tensor[from].version++;
        return add_output(tape, node, from);
    }
    return fm_node_output_described(tape, node, &tape->tensor[from]);
}

int fm_node_save(fm_tape *tape, fm_node *node, fm_keep keep, fm_element element, int rank,
                 const int64_t *shape) {
    assert(node->n_saved < FM_NODE_SAVED);
    fm_tensor like;
    fm_tensor_init(&like, node->name, element, rank, shape);
    node->saved[node->n_saved] = add_tensor(tape, &like);
    node->keep[node->n_saved] = keep;
    return node->n_saved++;
}

void fm_tape_enter_table(fm_tape *tape, const fm_kernels *kernels) {
    const fm_kernels *main = tape->main_kernels;
    assert(tape->n_outside < FM_TAPE_ISLANDS);
    assert(kernels == main || (kernels->act == main->acc && kernels->acc == main->acc));
    tape->outside[tape->n_outside++] = tape->kernels;
    tape->kernels = kernels;
}

void fm_tape_enter_island(fm_tape *tape) {
    const fm_kernels *main = tape->main_kernels;
    fm_tape_enter_table(tape, main->wide ? main->wide : main);
}

void fm_tape_leave_island(fm_tape *tape) {
    assert(tape->n_outside > 0);
    tape->kernels = tape->outside[--tape->n_outside];
}

void fm_tape_begin_segment(fm_tape *tape, bool recompute) {
    assert(tape->open_segment < 0 && tape->n_segment < MAX_SEGMENT);
    tape->segment[tape->n_segment] =
        (fm_segment){.first = tape->n_node, .end = tape->n_node, .recompute = recompute};
    tape->open_segment = tape->n_segment++;
}

void fm_tape_end_segment(fm_tape *tape) {
    assert(tape->open_segment >= 0);
    tape->segment[tape->open_segment].end = tape->n_node;
    tape->open_segment = -1;
}

void fm_tape_keep(fm_tape *tape, fm_tensor_ref tensor) {
    tape->buffer[tape->tensor[tensor].buffer].kept = true;
}

void fm_tape_seed_gradient(fm_tape *tape, fm_tensor_ref tensor, int32_t state_tensor) {
    assert(tape->tensor[tensor].gradient == FM_TENSOR_NONE);
    tape->tensor[tensor].gradient = fm_tape_state(tape, state_tensor, false);
}

void fm_tape_want_gradient(fm_tape *tape, fm_tensor_ref tensor) {
    tape->tensor[tensor].wants_gradient = true;
}
