/* tape.h: the recorded pass: nodes over tensors, run forward and backward in one fixed order.
 *
 * A tape is recorded once, by the model's own code calling ops (trainer/ops); every op adds one
 * node. Nothing is computed while recording and there are no pointers. Then
 *
 *     fm_tape_plan   lays out the schedule (forward steps, then backward steps with recomputed
 *                    forwards in between), walks it once dry (the same op code that will compute
 *                    asks for its workspace and returns), gives each gradient writer beta 0 or 1,
 *                    and places every buffer in the step arena;
 *     fm_tape_forward, fm_tape_backward   walk the schedule for real. They allocate nothing,
 *                    branch on no data, and wait for nothing: they can be captured.
 *
 *     schedule:  F0 F1 F2 ... Fn | [R..] Bn ... [R..] B1 B0        F forward  B backward
 *                                                                  R recomputed forward
 *
 * Gradients. The first writer of a gradient (in backward order) overwrites, later ones add, so that
 * nothing is cleared. A node with a residual, y = x + f(x), passes dy through: where dx has no
 * earlier writer it IS dy's buffer, updated in place, so a residual stream has one gradient buffer.
 *
 * What backward needs from forward is a list on the node: inputs that it reads again, and tensors
 * that it saves. A saved tensor is kept (low end of the arena until its backward) or recomputed
 * (given up after the forward, made again by a recompute step). A whole segment (a block of the
 * model) can be recomputed: then its inner outputs are given up as well.
 *
 * In place. On a tape without gradients residual updates overwrite their input. Each such update
 * raises the tensor's version; a node that wants to read an input again in backward asserts that
 * the version is still the one it saw.
 *
 * Streams. A node names its stream; its workspace is its own. Buffers touched by a node off stream
 * 0 are not reused by others within the pass. Recording order is the order on stream 0; a
 * communication node (dist/comm.h) begins with a ticket, and the node that needs the result
 * finishes it.
 *
 * Random numbers: a node has a number (rng id) that is its `layer` in fm_draw; step, slot and cycle
 * are in the clock, in device memory. No masks are stored.
 *
 * Islands. A tape whose kernel table stores activations in a narrow type (bf16) has a second table
 * of the same backend, `kernels->wide`. A node belongs to the table that was current when it was
 * recorded and runs on it: its activations, saved tensors, workspace and gradients are of that
 * table's act type, and its parameters are read from the master, not from the narrow copy. Tensors
 * go from one table to the other by fm_op_cast (ops/cast.h) alone. Without a wide table an island
 * is the main table, and nothing is cast.
 *
 *     main    .. m, z, single --.                              bf16 forward, bf16 gradients
 *     island                     '- cast -- structure, heads, losses       f32, f32 gradients
 *
 * Memory of the tables is the tape's own arena; a tape that outgrows it is our own fault. */
#ifndef FM_TRAINER_TAPE_H
#define FM_TRAINER_TAPE_H

#include "proto/base/arena.h"
#include "trainer/tensor/params.h"
#include "trainer/tensor/plan.h"
#include "trainer/tensor/state.h"
#include "trainer/tensor/tensor.h"

enum {
    FM_NODE_INPUTS = 12,
    FM_NODE_OUTPUTS = 2,
    FM_NODE_SAVED = 12,
    FM_NODE_PARAMS = 12,
    FM_N_STREAM = 4
};

typedef struct fm_node fm_node;
typedef struct fm_run fm_run;
typedef struct fm_tape fm_tape;

/* What an op does. Both functions reach kernels only through wrappers (ops/call.h) that do nothing
 * when the run is dry but ask for the same workspace; pointers are there but must not be read.
 * `forward` returns before writing outputs when !fm_run_wants_output (a recompute that only refills
 * saved tensors). `backward` writes the gradient of each input and parameter for which it is given
 * a place. */
typedef struct fm_op {
    const char *name;
    void (*forward)(fm_run *run, const fm_node *node);
    void (*backward)(fm_run *run, const fm_node *node); /* NULL: no gradient flows through */
} fm_op;

typedef enum fm_keep { FM_KEEP, FM_RECOMPUTE } fm_keep;

struct fm_node {
    const fm_op *op;
    const fm_kernels *kernels; /* what it runs on */
    const char *name;          /* for messages: the module's name */
    const void *attributes;    /* the op's own plain struct */
    int32_t n_input, n_output, n_saved, n_param;
    fm_tensor_ref input[FM_NODE_INPUTS]; /* FM_TENSOR_NONE = absent */
    int32_t input_version[FM_NODE_INPUTS];
    uint32_t reads_again; /* bit i: backward reads input i */
    fm_tensor_ref output[FM_NODE_OUTPUTS];
    fm_tensor_ref saved[FM_NODE_SAVED];
    fm_keep keep[FM_NODE_SAVED];
    fm_param_ref param[FM_NODE_PARAMS];
    uint32_t output_read_again; /* bit i: backward reads output i */
    uint32_t without_gradient;  /* bit i: input i is held or read, and gets no gradient from here */
    fm_tensor_ref holds_gradient_of; /* whose gradient must last until this node's backward */
    /* An exchange that ranks with different nodes run backward together: it has a backward whether
     * or not its inputs and its output have gradients here. */
    bool on_all_ranks;
    bool casts; /* it reads tensors of the tape's other table */
    /* Its output, or in backward its input's gradient, is there only when a later node has run. */
    bool begins_forward, begins_backward;
    int32_t residual; /* input whose value is added to output 0, -1 = none */
    int32_t shares;   /* input whose gradient is output 0's, in its place, -1 = none */
    bool completes;   /* backward adds to output 0's gradient before it hands it on */
    int32_t stream;
    uint32_t rng;
    int32_t segment; /* -1 = none */
    /* Set by fm_tape_plan. */
    bool has_backward;
    bool runs_again; /* in a recomputed segment: backward wants what it saves or puts out */
    /* on_all_ranks or completes, and nobody writes output 0's gradient: backward does */
    bool gradient_is_zero;
    bool residual_adds;     /* the residual's gradient could not be passed in place */
    uint32_t input_beta;    /* bit i: gradient of input i is added to */
    uint32_t param_beta;    /* bit j: gradient of param j is added to */
    uint32_t input_written; /* bit i: backward writes a gradient for input i */
    int64_t workspace_forward_bytes, workspace_backward_bytes;
};

typedef enum fm_phase { FM_PHASE_FORWARD, FM_PHASE_RECOMPUTE, FM_PHASE_BACKWARD } fm_phase;

typedef struct fm_step {
    int32_t node;
    fm_phase phase;
    bool wants_output;                     /* forward and recompute: write the outputs */
    int64_t workspace_bytes, workspace_at; /* size; offset in the arena */
    double flops;                          /* of its matrix products and attentions */
    bool touched;                          /* a real walk used the workspace */
} fm_step;

/* A buffer has one life, or two when its content is given up and made again. */
typedef struct fm_buffer {
    int64_t bytes;
    int64_t state_offset; /* >= 0: lies in the state, not in the step arena */
    bool kept;            /* alive to the end of the schedule (asked for by the caller) */
    int32_t segment;      /* of the node that makes it, -1 = none */
    bool dropped;         /* two lives: given up after forward, made again */
    bool wanted_again;    /* in backward, or by a node that runs again */
    struct {
        int32_t first, last; /* steps; first < 0 = not lived */
        int64_t offset;      /* in the step arena */
        bool high;           /* end it was placed from */
        bool touched;        /* a real walk used it */
    } life[2];
} fm_buffer;

typedef struct fm_segment {
    int32_t first, end; /* nodes */
    bool recompute;
} fm_segment;

typedef struct fm_tape_size {
    int64_t arena_bytes, saved_bytes, transient_bytes; /* saved and transient: each end's reach */
    int32_t n_node, n_tensor, n_step;
} fm_tape_size;

struct fm_tape {
    fm_arena tables;
    const fm_kernels *kernels;      /* while recording: of what is recorded now */
    const fm_kernels *main_kernels; /* of all that is outside islands */
    fm_params *params;
    const fm_state *state;
    bool with_gradient, in_place;
    fm_node *node;
    fm_tensor *tensor;
    fm_buffer *buffer;
    fm_segment *segment;
    fm_step *step;
    int32_t n_node, n_tensor, n_buffer, n_segment, n_step, n_forward;
    int32_t open_segment;  /* -1 = none */
    bool *param_written;   /* [params->n_block] while planning */
    uint32_t n_draw;       /* nodes that draw random numbers */
    uint64_t seed;         /* of dropout */
    const uint32_t *clock; /* device memory, see backend/draw.h; may be NULL */
    fm_tape_size size;
    void *memory;    /* the step arena, bound before a walk */
    bool spoils;     /* walks write NaN over memory before its first use: what an op reads without
                        having written it shows. Results are the same bits. Slow. */
    uint64_t *stamp; /* device memory [n_step + 1], or NULL: where walks leave the device's clock
                        (fm_device.stamp) before the first step and after each */
};

/* What an op's functions see. */
struct fm_run {
    fm_tape *tape;
    const fm_kernels *kernels;
    fm_stream *stream;
    int32_t step;
    bool dry, wants_output;
    int64_t workspace_used_bytes, workspace_peak_bytes;
    double flops; /* raised by the wrappers of matrix products, in dry runs, too */
};

/* -- recording */

/* An empty tape. with_gradient false: no backward, residual updates in place. `state` holds the
 * tensors that outlive the pass. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_tape_init(fm_tape *tape, const fm_kernels *kernels, fm_params *params,
                                   const fm_state *state, bool with_gradient, fm_error *reterr);
void fm_tape_fini(fm_tape *tape);

/* A tensor of the state (tensor/state.h). needs_gradient only for tests and recycled values. */
fm_tensor_ref fm_tape_state(fm_tape *tape, int32_t state_tensor, bool needs_gradient);

/* A new node; its attributes are a zeroed struct of attribute_bytes, to be filled by the caller
 * through *ret_attributes. */
fm_node *fm_tape_add(fm_tape *tape, const fm_op *op, const char *name, size_t attribute_bytes,
                     void **ret_attributes);
/* Appends an input; reads_again: backward reads its value. Returns the input's position. */
int fm_node_input(fm_tape *tape, fm_node *node, fm_tensor_ref tensor, bool reads_again);
/* Appends a parameter; FM_PARAM_NONE: one that this node does without. Returns its position. */
int fm_node_param(fm_tape *tape, fm_node *node, fm_param_ref param);
/* A new tensor, not in place. needs_gradient follows from inputs and parameters added so far. */
fm_tensor_ref fm_node_output(fm_tape *tape, fm_node *node, fm_element element, int rank,
                             const int64_t *shape);
/* The same, of the type and shape of a description, split as it is. */
fm_tensor_ref fm_node_output_described(fm_tape *tape, fm_node *node, const fm_tensor *description);
/* A new tensor, with a gradient of its own, in the input's buffer: for nodes that make content
 * valid without moving it (the end of an exchange). */
fm_tensor_ref fm_node_view(fm_tape *tape, fm_node *node, int input);
/* Appends an input that must merely live until this node has run. */
void fm_node_holds(fm_tape *tape, fm_node *node, fm_tensor_ref tensor);
/* Output 0 = input `input` + something: a new tensor of the same shape, or the same tensor with its
 * version raised where the tape works in place. */
fm_tensor_ref fm_node_residual(fm_tape *tape, fm_node *node, int input);
/* Backward reads output i. */
void fm_node_reads_output(fm_node *node, int i);
/* Backward adds to output 0's gradient itself, at fm_run_completed_gradient, before anybody who is
 * handed it on reads it: where y has a second output that is a function of it. */
void fm_node_completes(fm_node *node);
/* The gradient of `input`, which has no other reader, is output 0's as backward leaves it. */
void fm_node_shares(fm_node *node, int input);
/* The node draws random numbers: gives it the next number. Nodes that do not draw have none, so
 * that communication nodes do not move the others' draws. */
void fm_node_draws(fm_tape *tape, fm_node *node);
/* The next node that draws has the number `draw`: where nodes are recorded in another order than
 * their numbers'. */
void fm_tape_seek_draw(fm_tape *tape, uint32_t draw);
/* As many draws as nodes that another rank records in this rank's place would have taken. */
void fm_tape_skip_draws(fm_tape *tape, uint32_t count);
/* A tensor for backward. Returns its position among the saved. */
int fm_node_save(fm_tape *tape, fm_node *node, fm_keep keep, fm_element element, int rank,
                 const int64_t *shape);

/* Between the two, nodes belong to the wide table, see above. Islands do not nest. */
void fm_tape_enter_island(fm_tape *tape);
void fm_tape_leave_island(fm_tape *tape);

/* Nodes recorded between begin and end form a segment; recompute: only what leaves it is kept. */
void fm_tape_begin_segment(fm_tape *tape, bool recompute);
void fm_tape_end_segment(fm_tape *tape);

/* The tensor's value (or gradient) stays readable after the walk: fm_tape_data, _gradient. */
void fm_tape_keep(fm_tape *tape, fm_tensor_ref tensor);

/* A gradient that the caller fills before backward: tests, and losses' seeds. It is a tensor of the
 * state; backward may update its buffer in place. */
void fm_tape_seed_gradient(fm_tape *tape, fm_tensor_ref tensor, int32_t state_tensor);

/* A gradient that the caller reads after backward: kept to the end, and not handed down in place.
 */
void fm_tape_want_gradient(fm_tape *tape, fm_tensor_ref tensor);

static inline const fm_tensor *fm_tape_tensor(const fm_tape *tape, fm_tensor_ref tensor) {
    return &tape->tensor[tensor];
}

/* -- planning and running */

/* See above. FM_ERR_NOMEM when the tables are too small for the placement's scratch. */
FM_MUST_USE fm_status fm_tape_plan(fm_tape *tape, fm_error *reterr);

/* Binds tape->size.arena_bytes bytes of device memory, as the kernel table's alloc aligns. Two
 * tapes that never run at the same time may share it. */
void fm_tape_bind(fm_tape *tape, void *memory);

void fm_tape_forward(fm_tape *tape, fm_stream *stream);
void fm_tape_backward(fm_tape *tape, fm_stream *stream);

/* Gradients of the parameters that backward does not write become 0: on ranks that run different
 * nodes, before backward, since a sum over ranks leaves others' gradients there. */
void fm_tape_clear_unwritten(const fm_tape *tape, fm_stream *stream);

/* The largest sum of both ends' reach over the places that real walks have handed out so far:
 * equals size.arena_bytes after forward and backward. */
int64_t fm_tape_used_bytes(const fm_tape *tape);

/* Walks again to the end (other ranks wait for this one), backward too, and looks at what each step
 * has written. True: `out` names the first tensor with a value that is not finite, by its node and
 * op ("element 7 of output 0 [12, 32] of msa transition (op transition, node 12)"; "the gradient of
 * evoformer.1.msa_transition.2.weight in msa transition (...)"; what lies between parameters comes
 * last). `flag` is a word in device memory. Slow, and takes memory. */
bool fm_tape_name_nonfinite(fm_tape *tape, fm_stream *stream, uint32_t *flag, char *out,
                            size_t out_bytes);

/* After a walk: pointer to a kept or state tensor's value / gradient. */
void *fm_tape_data(const fm_tape *tape, fm_tensor_ref tensor);
void *fm_tape_gradient(const fm_tape *tape, fm_tensor_ref tensor);

/* -- for ops */

/* `bytes` of the step's workspace, aligned to FM_PLAN_ALIGN_BYTES; NULL when bytes is 0.
 * Given back at the end of the step, or by going back to a mark. */
void *fm_run_workspace(fm_run *run, int64_t bytes);
static inline int64_t fm_run_mark(const fm_run *run) {
    return run->workspace_used_bytes;
}
static inline void fm_run_release(fm_run *run, int64_t mark) {
    run->workspace_used_bytes = mark;
}
/* The same for `count` elements of the act or acc type. */
void *fm_run_workspace_act(fm_run *run, int64_t count);
void *fm_run_workspace_acc(fm_run *run, int64_t count);
static inline bool fm_run_is_dry(const fm_run *run) {
    return run->dry;
}
static inline bool fm_run_wants_output(const fm_run *run) {
    return run->wants_output;
}

/* Pointers, NULL for an absent input. In backward fm_run_input asserts that the node declared the
 * input as read again, and that nobody has overwritten it. */
void *fm_run_input(const fm_run *run, const fm_node *node, int i);
void *fm_run_output(const fm_run *run, const fm_node *node, int i);
void *fm_run_saved(const fm_run *run, const fm_node *node, int i);
void *fm_run_param(const fm_run *run, const fm_node *node, int j); /* NULL for FM_PARAM_NONE */

/* Gradient of output i (to read), of input i and parameter j (to write, data NULL = not wanted). */
void *fm_run_output_gradient(const fm_run *run, const fm_node *node, int i);
fm_out fm_run_gradient(const fm_run *run, const fm_node *node, int i);
/* Of a node that completes it: the gradient of output 0, to add to or to write. */
fm_out fm_run_completed_gradient(const fm_run *run, const fm_node *node);
fm_out fm_run_param_gradient(const fm_run *run, const fm_node *node, int j);

/* `elements` further, for slices of fused blocks; NULL stays NULL. Params and activations are act,
 * parameter gradients acc. */
static inline void *fm_run_at(const void *data, int64_t elements, fm_element element) {
    return data ? (char *)data + elements * (int64_t)fm_element_bytes(element) : NULL;
}
static inline fm_out fm_out_at(fm_out out, int64_t elements, fm_element element) {
    return (fm_out){fm_run_at(out.data, elements, element), out.beta};
}

/* The node's dropout draw. */
fm_draw fm_run_draw(const fm_run *run, const fm_node *node);

#endif
