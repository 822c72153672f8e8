/* tape_plan.c: turns a recorded tape into a schedule and a memory plan; see tape.h.
 *
 * The plan is made in this order, and each stage uses the results of the stages before it:
 *
 *   1. Gradients. Nodes are visited backwards. The first visit to a tensor creates its gradient,
 *      and that writer gets beta 0 (overwrite); each later writer gets beta 1 (add). A residual
 *      input uses the output's gradient buffer if no other writer comes first.
 *   2. Dropped buffers. A saved tensor marked FM_RECOMPUTE loses its content after forward. So does
 *      every saved tensor and inner output of a recomputed segment. So does a derived output whose
 *      readers all run again, or that the model drops. A dropped buffer has two lives: one in
 *      forward, one from its recompute step to its last reader in backward.
 *   3. Nodes that run again. A backward pass over a recomputed segment finds which dropped tensors
 *      backward reads, directly or through other recomputed nodes. Only their writers run again.
 *   4. Schedule. All forward steps, then for each node backwards its recompute steps (for a
 *      segment: just before the backward of its last node) and its backward step. Before these come
 *      the steps that derive what it reads as the last one.
 *   5. Lives. One pass over the schedule notes the first and last step that touches each buffer.
 *   6. Workspace. A dry run of every step measures how much workspace it asks for.
 *   7. Places. Buffers that live from forward into backward go to the low end of the arena. All
 *      others go to the high end: workspace too, and what the caller reads after the run.
 *      tensor/plan.h assigns the offsets. */
#include "trainer/autograd/tape_internal.h"

#include <assert.h>
#include <string.h>

/* -- gradients */

static bool output_has_gradient(const fm_tape *tape, const fm_node *node) {
    for (int i = 0; i < node->n_output; i++) {
        if (tape->tensor[node->output[i]].gradient != FM_TENSOR_NONE) return true;
    }
    return false;
}

/* Decides how input i of `node` receives its gradient: by overwriting, by adding, or by taking over
 * the output's gradient in place. */
static void plan_input_gradient(fm_tape *tape, fm_node *node, int i) {
    fm_tensor_ref input = node->input[i];
    uint32_t bit = 1u << i;
    node->input_written |= bit;
    fm_tensor_ref present = tape->tensor[input].gradient;
    /* A gradient that the caller reads after backward must not be added to. */
    bool passes = (i == node->passes_if_first && present == FM_TENSOR_NONE) ||
                  (i == node->residual && !tape->tensor[node->output[0]].wants_gradient);
    fm_tensor_ref above = tape->tensor[node->output[0]].gradient;
    if (present == FM_TENSOR_NONE) {
        fm_tensor_ref like = node->gradient_like != FM_TENSOR_NONE ? node->gradient_like : input;
        fm_tensor_ref gradient = passes ? above : fm_tape_add_gradient(tape, like);
        tape->tensor[input].gradient = gradient;
    }
    if (passes || present != FM_TENSOR_NONE) node->input_beta |= bit;
    if (i == node->residual) node->residual_adds = tape->tensor[input].gradient != above;
    if (tape->tensor[input].wants_gradient) {
        tape->buffer[tape->tensor[tape->tensor[input].gradient].buffer].kept = true;
    }
}

/* Gives output 0 a gradient that no later node writes: backward passes on zeros or writes the
 * gradient itself. */
static void plan_zero_gradient(fm_tape *tape, fm_node *node) {
    node->gradient_is_zero = true;
    fm_tensor_ref gradient = fm_tape_add_gradient(tape, node->output[0]);
    tape->tensor[node->output[0]].gradient = gradient;
    tape->buffer[tape->tensor[gradient].buffer].kept = tape->tensor[node->output[0]].wants_gradient;
}

static void plan_gradients(fm_tape *tape) {
    for (int32_t n = tape->n_node - 1; n >= 0 && tape->with_gradient; n--) {
        fm_node *node = &tape->node[n];
        if (node->on_all_ranks && !output_has_gradient(tape, node)) plan_zero_gradient(tape, node);
        node->has_backward = node->op->backward && output_has_gradient(tape, node);
        if (node->has_backward && node->completes &&
            tape->tensor[node->output[0]].gradient == FM_TENSOR_NONE) {
            plan_zero_gradient(tape, node);
        }
        if (!node->has_backward) continue;
        for (int i = 0; i < node->n_input; i++) {
            bool takes = node->input[i] != FM_TENSOR_NONE && !(node->without_gradient >> i & 1);
            if (takes && tape->tensor[node->input[i]].needs_gradient) {
                plan_input_gradient(tape, node, i);
            }
        }
        for (int j = 0; j < node->n_param; j++) {
            if (node->param[j] == FM_PARAM_NONE) continue;
            node->param_beta |= (uint32_t)tape->param_written[node->param[j]] << j;
            tape->param_written[node->param[j]] = true;
        }
    }
}

/* -- schedule */

static void add_step(fm_tape *tape, int32_t node, fm_phase phase, bool wants_output) {
    tape->step[tape->n_step++] =
        (fm_step){.node = node, .phase = phase, .wants_output = wants_output};
}

static bool in_recomputed_segment(const fm_tape *tape, int32_t segment) {
    return tape->with_gradient && segment >= 0 && tape->segment[segment].recompute;
}

/* Marks the buffers that are dropped after forward: saved tensors marked FM_RECOMPUTE, all saved
 * tensors of a recomputed segment, and its outputs that no node outside the segment reads. */
static void plan_dropped(fm_tape *tape) {
    for (int32_t n = 0; n < tape->n_node; n++) {
        const fm_node *node = &tape->node[n];
        bool recompute = in_recomputed_segment(tape, node->segment);
        for (int i = 0; i < node->n_saved; i++) {
            fm_buffer *buffer = &tape->buffer[tape->tensor[node->saved[i]].buffer];
            buffer->dropped = tape->with_gradient && (recompute || node->keep[i] == FM_RECOMPUTE);
        }
        for (int i = 0; i < node->n_output && recompute; i++) {
            fm_buffer *buffer = &tape->buffer[tape->tensor[node->output[i]].buffer];
            buffer->dropped = !buffer->kept && buffer->state_offset < 0;
        }
    }
    for (int32_t n = 0; n < tape->n_node; n++) {
        const fm_node *node = &tape->node[n];
        for (int i = 0; i < node->n_input; i++) {
            if (node->input[i] != FM_TENSOR_NONE) {
                fm_buffer *buffer = &tape->buffer[tape->tensor[node->input[i]].buffer];
                buffer->dropped = buffer->dropped && buffer->segment == node->segment;
            }
        }
    }
}

static bool output_is_dropped(const fm_tape *tape, const fm_node *node) {
    for (int i = 0; i < node->n_output; i++) {
        if (!tape->buffer[tape->tensor[node->output[i]].buffer].dropped) return false;
    }
    return true;
}

/* Drops all outputs of a node or none, because a recompute step writes all of them or none. */
static void plan_dropped_together(fm_tape *tape) {
    for (int32_t n = 0; n < tape->n_node; n++) {
        const fm_node *node = &tape->node[n];
        bool dropped = output_is_dropped(tape, node);
        for (int i = 0; i < node->n_output; i++)
            tape->buffer[tape->tensor[node->output[i]].buffer].dropped = dropped;
    }
}

/* Notes for each buffer which node reads it last, and whether all that do are in recomputed
 * segments. */
static void plan_last_readers(fm_tape *tape) {
    for (int32_t n = 0; n < tape->n_node; n++) {
        const fm_node *node = &tape->node[n];
        for (int i = 0; i < node->n_input; i++) {
            if (node->input[i] == FM_TENSOR_NONE) continue;
            fm_buffer *buffer = &tape->buffer[tape->tensor[node->input[i]].buffer];
            buffer->last_reader = n;
            buffer->is_read_outside |= !in_recomputed_segment(tape, node->segment);
        }
    }
}

/* Drops derived outputs where output 0 is kept. */
static void plan_derived(fm_tape *tape) {
    plan_last_readers(tape);
    for (int32_t n = 0; n < tape->n_node; n++) {
        const fm_node *node = &tape->node[n];
        for (int i = 1; i < node->n_output && node->derive && tape->with_gradient; i++) {
            fm_buffer *buffer = &tape->buffer[tape->tensor[node->output[i]].buffer];
            bool stays = buffer->dropped || buffer->kept || node->output_read_again >> i & 1;
            if (stays || (buffer->is_read_outside && !node->drops_derived)) continue;
            buffer->dropped = buffer->derived = true;
        }
    }
}

static void want_again(fm_tape *tape, const fm_node *node, uint32_t inputs) {
    for (int i = 0; i < node->n_input; i++) {
        if (inputs >> i & 1 && node->input[i] != FM_TENSOR_NONE) {
            tape->buffer[tape->tensor[node->input[i]].buffer].wanted_again = true;
        }
    }
}

static bool is_wanted_again(const fm_tape *tape, const fm_node *node) {
    bool wanted = node->has_backward && node->n_saved > 0;
    for (int i = 0; i < node->n_output; i++) {
        const fm_buffer *buffer = &tape->buffer[tape->tensor[node->output[i]].buffer];
        wanted |=
            buffer->dropped && !buffer->derived && (buffer->wanted_again || node->on_all_ranks);
    }
    return wanted;
}

/* Whether the node runs again outside a recomputed segment, for saved tensors that were dropped. */
static bool saves_again(const fm_node *node) {
    bool needed = false;
    for (int i = 0; i < node->n_saved; i++)
        needed |= node->keep[i] == FM_RECOMPUTE;
    return needed && node->has_backward;
}

/* Finds the nodes of recomputed segments that run again. A node runs again if backward needs its
 * saved tensors or if a later reader needs its dropped outputs. Results without a reader are not
 * computed and not sent to other ranks. An exchange that all ranks share always runs again, because
 * another rank may need it even if this one does not. */
static void plan_runs_again(fm_tape *tape) {
    for (int32_t n = tape->n_node - 1; n >= 0; n--) {
        fm_node *node = &tape->node[n];
        if (!in_recomputed_segment(tape, node->segment)) {
            want_again(tape, node, node->has_backward ? node->reads_again : 0);
            want_again(tape, node, saves_again(node) ? UINT32_MAX : 0);
            continue;
        }
        for (int i = 0; i < node->n_output && node->has_backward; i++) {
            tape->buffer[tape->tensor[node->output[i]].buffer].wanted_again |=
                node->output_read_again >> i & 1;
        }
        node->runs_again = is_wanted_again(tape, node);
        want_again(tape, node, node->has_backward ? node->reads_again : 0);
        want_again(tape, node, node->runs_again ? UINT32_MAX : 0);
    }
}

/* Adds the step that makes those outputs of node n again whose last reader is first .. end - 1. */
static void schedule_derived(fm_tape *tape, int32_t n, int32_t first, int32_t end) {
    const fm_node *node = &tape->node[n];
    uint32_t derived = 0;
    for (int i = 1; i < node->n_output && node->derive; i++) {
        const fm_buffer *buffer = &tape->buffer[tape->tensor[node->output[i]].buffer];
        bool is_due = buffer->derived && buffer->wanted_again && buffer->last_reader >= first &&
                      buffer->last_reader < end;
        derived |= (uint32_t)is_due << i;
    }
    if (!derived) return;
    add_step(tape, n, FM_PHASE_DERIVE, false);
    tape->step[tape->n_step - 1].derived = derived;
}

static void schedule_segment(fm_tape *tape, const fm_segment *segment) {
    for (int32_t n = 0; n < segment->end; n++) {
        const fm_node *node = &tape->node[n];
        if (n >= segment->first && node->runs_again) {
            add_step(tape, n, FM_PHASE_RECOMPUTE, output_is_dropped(tape, node));
        }
        schedule_derived(tape, n, segment->first, segment->end);
    }
}

static void schedule_recompute(fm_tape *tape, int32_t n) {
    const fm_node *node = &tape->node[n];
    if (in_recomputed_segment(tape, node->segment)) {
        const fm_segment *segment = &tape->segment[node->segment];
        if (n == segment->end - 1) schedule_segment(tape, segment);
        return;
    }
    for (int32_t maker = 0; maker < n; maker++)
        schedule_derived(tape, maker, n, n + 1);
    if (saves_again(node)) add_step(tape, n, FM_PHASE_RECOMPUTE, false);
}

static void plan_schedule(fm_tape *tape) {
    for (int32_t n = 0; n < tape->n_node; n++)
        add_step(tape, n, FM_PHASE_FORWARD, true);
    tape->n_forward = tape->n_step;
    for (int32_t n = tape->n_node - 1; n >= 0 && tape->with_gradient; n--) {
        schedule_recompute(tape, n);
        if (tape->node[n].has_backward) add_step(tape, n, FM_PHASE_BACKWARD, false);
    }
}

/* -- lives of buffers */

static void touch(fm_tape *tape, fm_tensor_ref tensor, int32_t step) {
    if (tensor == FM_TENSOR_NONE) return;
    fm_buffer *buffer = &tape->buffer[tape->tensor[tensor].buffer];
    int life = buffer->dropped && step >= tape->n_forward;
    if (buffer->life[life].first < 0) buffer->life[life].first = step;
    buffer->life[life].last = buffer->kept ? tape->n_step - 1 : step;
}

static void touch_backward(fm_tape *tape, const fm_node *node, int32_t step) {
    for (int i = 0; i < node->n_input; i++) {
        if (node->reads_again >> i & 1) {
            touch(tape, node->input[i], step);
            assert(node->input_version[i] == tape->tensor[node->input[i]].version &&
                   "an input that backward reads was overwritten in place");
        }
        if (node->input_written >> i & 1) touch(tape, tape->tensor[node->input[i]].gradient, step);
    }
    for (int i = 0; i < node->n_output; i++) {
        touch(tape, tape->tensor[node->output[i]].gradient, step);
        if (node->output_read_again >> i & 1) touch(tape, node->output[i], step);
    }
    if (node->holds_gradient_of != FM_TENSOR_NONE) {
        touch(tape, tape->tensor[node->holds_gradient_of].gradient, step);
    }
    for (int i = 0; i < node->n_saved; i++)
        touch(tape, node->saved[i], step);
}

static void touch_forward(fm_tape *tape, const fm_node *node, const fm_step *step, int32_t at) {
    for (int i = 0; i < node->n_input; i++)
        touch(tape, node->input[i], at);
    for (int i = 0; i < node->n_output && step->wants_output; i++)
        touch(tape, node->output[i], at);
    for (int i = 0; i < node->n_saved; i++)
        touch(tape, node->saved[i], at);
}

static void touch_derived(fm_tape *tape, const fm_node *node, const fm_step *step, int32_t at) {
    touch(tape, node->output[0], at);
    for (int i = 1; i < node->n_output; i++)
        if (step->derived >> i & 1) touch(tape, node->output[i], at);
}

/* A buffer that another stream touches is ordered against stream 0 only at tickets. It keeps its
 * place through the whole pass. */
static void pin_other_streams(fm_tape *tape, const fm_node *node) {
    for (int i = 0; i < node->n_input + node->n_output + node->n_saved; i++) {
        int out = i - node->n_input, save = out - node->n_output;
        fm_tensor_ref tensor = out < 0    ? node->input[i]
                               : save < 0 ? node->output[out]
                                          : node->saved[save];
        if (tensor != FM_TENSOR_NONE) {
            fm_buffer *buffer = &tape->buffer[tape->tensor[tensor].buffer];
            buffer->life[0].first = 0;
            buffer->life[0].last = tape->n_step - 1;
            buffer->dropped = false;
        }
    }
}

/* -- lives of what is sent */

enum { MOST_SENT = 64 };

/* What exchanges have sent, from the step that begins one to the end of a later one. */
typedef struct sent_list {
    struct {
        fm_tensor_ref tensor;
        int32_t step; /* that began the exchange */
        int32_t end;  /* step that finished it, which then waits for a later one; -1: under way */
    } item[MOST_SENT];
    int32_t count;
} sent_list;

/* Returns the tensor that is sent by the exchange that this step begins or finishes, or
 * FM_TENSOR_NONE when it does neither. It also returns FM_TENSOR_NONE for an exchange between ranks
 * that record different nodes: they could not agree whether one of them waits for its readers. */
static fm_tensor_ref sent_by(const fm_tape *tape, const fm_step *step, bool *ret_begins) {
    const fm_node *node = &tape->node[step->node];
    bool back = step->phase == FM_PHASE_BACKWARD;
    *ret_begins = back ? node->begins_backward : node->begins_forward;
    if (!node->begins_backward && !node->begins_forward) return FM_TENSOR_NONE;
    if (node->on_all_ranks) return FM_TENSOR_NONE;
    if (!back) return node->n_input > 0 ? node->input[node->n_input - 1] : FM_TENSOR_NONE;
    fm_tensor_ref view = node->begins_backward ? node->output[0] : node->holds_gradient_of;
    return tape->tensor[view].gradient;
}

static int32_t find_sent(const sent_list *list, fm_tensor_ref tensor) {
    int32_t i = list->count - 1;
    while (i >= 0 && list->item[i].tensor != tensor)
        i--;
    return i;
}

/* Lets a tensor that lives at some step before `at` live until then. */
static void extend(fm_tape *tape, fm_tensor_ref tensor, int32_t at) {
    fm_buffer *buffer = &tape->buffer[tape->tensor[tensor].buffer];
    int life = buffer->dropped && at >= tape->n_forward;
    if (buffer->life[life].last < at) buffer->life[life].last = at;
}

/* An exchange has ended: those that had ended before it began are held until here. */
static void release_sent(fm_tape *tape, sent_list *list, int32_t ended, int32_t at) {
    int32_t kept = 0, began = list->item[ended].step;
    list->item[ended].end = at;
    for (int32_t i = 0; i < list->count; i++) {
        if (list->item[i].end >= 0 && list->item[i].end < began) {
            extend(tape, list->item[i].tensor, at);
            tape->step[list->item[i].step].held = true;
        } else {
            list->item[kept++] = list->item[i];
        }
    }
    list->count = kept;
}

/* Keeps what an exchange sends until a later one has ended, so that ranks need not wait for its
 * readers. The last exchange before backward, and the last of all, have no later one. */
static void plan_sent(fm_tape *tape) {
    sent_list list = {.count = 0};
    for (int32_t at = 0; at < tape->n_step; at++) {
        bool begins;
        fm_tensor_ref sent = sent_by(tape, &tape->step[at], &begins);
        if (at == tape->n_forward) list.count = 0;
        if (sent == FM_TENSOR_NONE) continue;
        if (begins) {
            assert(list.count < MOST_SENT);
            list.item[list.count].tensor = sent;
            list.item[list.count].end = -1;
            list.item[list.count++].step = at;
        } else {
            int32_t ended = find_sent(&list, sent);
            if (ended >= 0) release_sent(tape, &list, ended, at);
        }
    }
}

static void plan_lives(fm_tape *tape) {
    for (int32_t at = 0; at < tape->n_step; at++) {
        const fm_step *step = &tape->step[at];
        const fm_node *node = &tape->node[step->node];
        switch (step->phase) {
        case FM_PHASE_FORWARD:
        case FM_PHASE_RECOMPUTE: touch_forward(tape, node, step, at); break;
        case FM_PHASE_DERIVE: touch_derived(tape, node, step, at); break;
        case FM_PHASE_BACKWARD: touch_backward(tape, node, at); break;
        }
    }
    plan_sent(tape);
    for (int32_t n = 0; n < tape->n_node; n++) {
        if (tape->node[n].stream != 0) pin_other_streams(tape, &tape->node[n]);
    }
}

/* -- memory plan */

static void dry_walk(fm_tape *tape) {
    for (int32_t at = 0; at < tape->n_step; at++) {
        fm_step *step = &tape->step[at];
        fm_node *node = &tape->node[step->node];
        step->workspace_bytes = fm_tape_run_step(tape, at, NULL, true);
        int64_t *most = step->phase == FM_PHASE_BACKWARD ? &node->workspace_backward_bytes
                                                         : &node->workspace_forward_bytes;
        *most = step->workspace_bytes > *most ? step->workspace_bytes : *most;
    }
}

static bool spans(const fm_tape *tape, int32_t first, int32_t last) {
    return first < tape->n_forward && last >= tape->n_forward;
}

/* Saved tensors are released in reverse order, so the low end shrinks during backward. A loss that
 * the caller reads is written last and lives to the end. At the low end it would keep the memory
 * below it from the transient tensors of all of backward, so it goes to the high end. */
static int32_t list_requests(const fm_tape *tape, fm_plan_request *request) {
    int32_t count = 0;
    if (tape->sums_bytes > 0) {
        request[count++] = (fm_plan_request){.bytes = tape->sums_bytes,
                                             .first = tape->n_forward,
                                             .last = tape->n_step - 1,
                                             .high = true};
    }
    for (int32_t b = 0; b < tape->n_buffer; b++) {
        const fm_buffer *buffer = &tape->buffer[b];
        for (int life = 0; life < 2 && buffer->state_offset < 0; life++) {
            int32_t first = buffer->life[life].first, last = buffer->life[life].last;
            if (first >= 0) {
                request[count++] =
                    (fm_plan_request){.bytes = buffer->bytes,
                                      .first = first,
                                      .last = last,
                                      .high = buffer->kept || !spans(tape, first, last)};
            }
        }
    }
    for (int32_t at = 0; at < tape->n_step; at++) {
        if (tape->step[at].workspace_bytes) {
            bool apart = tape->node[tape->step[at].node].stream != 0;
            request[count++] = (fm_plan_request){.bytes = tape->step[at].workspace_bytes,
                                                 .first = apart ? 0 : at,
                                                 .last = apart ? tape->n_step - 1 : at,
                                                 .high = true};
        }
    }
    return count;
}

/* Copies the placed offsets back, in the order of list_requests. */
static void take_places(fm_tape *tape, const fm_plan_request *request) {
    int64_t arena_bytes = tape->size.arena_bytes;
    if (tape->sums_bytes > 0) tape->sums_at = fm_plan_offset(request++, arena_bytes);
    for (int32_t b = 0; b < tape->n_buffer; b++) {
        fm_buffer *buffer = &tape->buffer[b];
        for (int life = 0; life < 2 && buffer->state_offset < 0; life++) {
            if (buffer->life[life].first >= 0) {
                buffer->life[life].offset = fm_plan_offset(request, arena_bytes);
                buffer->life[life].high = request->high;
                request++;
            }
        }
    }
    for (int32_t at = 0; at < tape->n_step; at++) {
        if (tape->step[at].workspace_bytes) {
            tape->step[at].workspace_at = fm_plan_offset(request++, arena_bytes);
        }
    }
    for (int32_t t = 0; t < tape->n_tensor; t++) {
        const fm_buffer *buffer = &tape->buffer[tape->tensor[t].buffer];
        if (buffer->state_offset < 0 && buffer->life[0].first >= 0 && !buffer->life[0].high) {
            tape->tensor[t].pool = FM_POOL_SAVED;
        }
    }
}

fm_status fm_tape_plan(fm_tape *tape, fm_error *reterr) {
    assert(tape->open_segment < 0 && tape->n_step == 0);
    assert(tape->n_outside == 0);
    /* Blocks may have been added until here, as modules are recorded. */
    tape->param_written =
        fm_arena_calloc(&tape->tables, (size_t)tape->params->n_block + 1, sizeof(bool));
    if (!tape->param_written) return fm_arena_full(&tape->tables, reterr);
    plan_gradients(tape);
    plan_dropped(tape);
    plan_dropped_together(tape);
    plan_derived(tape);
    plan_runs_again(tape);
    plan_schedule(tape);
    plan_lives(tape);
    dry_walk(tape);
    size_t mark = fm_arena_mark(&tape->tables);
    bool has_backward = tape->n_step > tape->n_forward;
    if (has_backward) tape->sums_bytes = (int64_t)tape->main_kernels->sums_room();
    size_t most = (size_t)tape->n_buffer * 2 + (size_t)tape->n_step + 1;
    fm_plan_request *request = fm_arena_alloc_array(&tape->tables, most, sizeof(*request));
    if (!request) return fm_arena_full(&tape->tables, reterr);
    fm_plan_size size;
    int32_t count = list_requests(tape, request);
    fm_status status = fm_plan_place(request, count, &tape->tables, &size, reterr);
    if (status) return status;
    tape->size = (fm_tape_size){.arena_bytes = size.arena_bytes,
                                .saved_bytes = size.low_bytes,
                                .transient_bytes = size.high_bytes,
                                .n_node = tape->n_node,
                                .n_tensor = tape->n_tensor,
                                .n_step = tape->n_step};
    take_places(tape, request);
    fm_arena_rewind(&tape->tables, mark);
    return FM_OK;
}
