/* tape.h: records the operations of one pass over the model, then runs them forward and backward in
 * one fixed order.
 *
 * The model's code calls ops (trainer/ops), and every op adds one node to the tape. Recording
 * computes nothing and needs no memory for tensors. After recording, three calls do the work:
 *
 *     fm_tape_plan      builds the schedule: all forward steps, then the backward steps with
 *                       recomputed forwards in between. It runs the schedule once dry: the same op
 *                       code that computes later asks for its workspace and returns. It gives each
 *                       writer of a gradient beta 0 or 1 and places every buffer in the step arena.
 *     fm_tape_forward,  run the schedule. They allocate nothing, do not branch on data, and do not
 *     fm_tape_backward  wait for the device, so a CUDA graph can capture them.
 *
 *     schedule:  F0 F1 F2 ... Fn | [R..] Bn ... [R..] B1 B0        F forward  B backward
 *                                                                  R recomputed forward
 *
 * Gradients. In backward order, the first writer of a gradient overwrites it and later writers add
 * to it, so no gradient needs clearing. A node with a residual, y = x + f(x), passes dy through to
 * dx. If dx has no earlier writer, dx uses dy's buffer and the node updates it in place. A residual
 * stream therefore needs one gradient buffer only.
 *
 * What backward needs from forward is listed on the node: the inputs that it reads again and the
 * tensors that it saves. A saved tensor is either kept or recomputed. A kept tensor stays at the
 * low end of the arena until its backward step. A recomputed tensor is dropped after the forward
 * step, and a recompute step fills it again. A whole segment (a block of the model) can be
 * recomputed too; its inner outputs are then dropped as well.
 *
 * Derived outputs. The outputs behind output 0 may be functions of output 0 (the LayerNorm that the
 * next sublayer needs). Where output 0 is kept, such an output is dropped if only recomputed
 * segments read it, or if the model asks for it. A step of its own makes it again of output 0,
 * before the last node (or segment) that reads it runs backward.
 *
 * In place. On a tape without gradients, residual updates overwrite their input. Each such update
 * raises the tensor's version. A node whose backward reads an input asserts that the version is
 * still the one it recorded.
 *
 * Streams. A node names its CUDA stream and has a private workspace. Buffers that a node off stream
 * 0 touches are not reused within the pass. Nodes run on stream 0 in recording order. A
 * communication node (dist/comm.h) starts an exchange and keeps its ticket; the node that needs the
 * result finishes it.
 *
 * Random numbers. A node that draws has a number (rng), which is the `layer` of fm_draw. Step, slot
 * and cycle are in the clock, in device memory. No dropout mask is stored.
 *
 * Islands. If the tape's kernel table stores activations in a narrow type (bf16), the same backend
 * provides a second table, `kernels->wide`. A node belongs to the table that is current when it is
 * recorded. It runs on that table: its activations, saved tensors, workspace and gradients have
 * that table's act type. A node of the wide table reads its parameters from the master weights, not
 * from the narrow copy. Only fm_op_cast (ops/cast.h) moves tensors from one table to the other. If
 * there is no wide table, an island uses the main table and nothing is cast.
 *
 *     main    .. m, z, single --.                              bf16 forward, bf16 gradients
 *     island                     '- cast -- structure, heads, losses       f32, f32 gradients
 *
 * The tape's own arena holds its tables. A tape that outgrows this arena is a programming error
 * (assert). */
#ifndef FM_TRAINER_TAPE_H
#define FM_TRAINER_TAPE_H

#include "proto/base/arena.h"
#include "trainer/tensor/params.h"
#include "trainer/tensor/plan.h"
#include "trainer/tensor/state.h"
#include "trainer/tensor/tensor.h"

enum {
    FM_NODE_INPUTS = 12,
    FM_NODE_OUTPUTS = 3,
    FM_NODE_SAVED = 12,
    FM_NODE_PARAMS = 12,
    FM_N_STREAM = 4,
    FM_TAPE_ISLANDS = 4 /* that may be open at once */
};

typedef struct fm_node fm_node;
typedef struct fm_run fm_run;
typedef struct fm_tape fm_tape;

/* The functions of an op. Both call kernels only through the wrappers of ops/call.h. In a dry run a
 * wrapper asks for its workspace and launches nothing; pointers are then not NULL but must not be
 * read. `forward` returns before it writes outputs if !fm_run_wants_output (a recompute that only
 * fills saved tensors). `backward` writes the gradient of each input and parameter whose fm_out has
 * a data pointer. */
typedef struct fm_op {
    const char *name;
    void (*forward)(fm_run *run, const fm_node *node);
    void (*backward)(fm_run *run, const fm_node *node); /* NULL: no gradient passes */
} fm_op;

typedef enum fm_keep { FM_KEEP, FM_RECOMPUTE } fm_keep;

struct fm_node {
    const fm_op *op;
    const fm_kernels *kernels; /* the table that it runs on */
    const char *name;          /* the module's name, for messages */
    const void *attributes;    /* the op's own plain struct */
    int32_t n_input, n_output, n_saved, n_param;
    fm_tensor_ref input[FM_NODE_INPUTS]; /* FM_TENSOR_NONE = absent */
    int32_t input_version[FM_NODE_INPUTS];
    uint32_t reads_again; /* bit i: backward reads input i */
    fm_tensor_ref output[FM_NODE_OUTPUTS];
    fm_tensor_ref saved[FM_NODE_SAVED];
    fm_keep keep[FM_NODE_SAVED];
    fm_param_ref param[FM_NODE_PARAMS];
    uint32_t output_read_again;      /* bit i: backward reads output i */
    uint32_t without_gradient;       /* bit i: this node gives input i no gradient */
    fm_tensor_ref holds_gradient_of; /* its gradient stays alive until this node's backward */
    /* An exchange that ranks with different nodes run backward together. It has a backward step
     * whether or not its inputs and its output have gradients on this rank. */
    bool on_all_ranks;
    bool casts; /* reads tensors of the tape's other table */
    /* The output of this node (in backward: its input's gradient) is valid only after a later node
     * has run. */
    bool begins_forward, begins_backward;
    int32_t residual; /* position of the input added to output 0, -1 = none */
    /* Position of the input that shares output 0's gradient where no other node has written one
     * before in backward; -1 = none. */
    int32_t passes_if_first;
    fm_tensor_ref gradient_like; /* the shape of input 0's gradient where it is not input 0's own */
    /* Makes outputs 1 .. again that fm_run_derives names, of output 0; NULL: it cannot. */
    void (*derive)(fm_run *run, const fm_node *node);
    bool drops_derived; /* fm_tape_drop_derived */
    bool completes;     /* backward adds to output 0's gradient before it passes it on */
    int32_t stream;
    uint32_t rng;
    uint32_t rng_step; /* group g of the node's arrays draws with the number rng + g * rng_step */
    int32_t segment;   /* -1 = none */
    /* Set by fm_tape_plan. */
    bool has_backward;
    bool runs_again; /* recomputed segment: backward needs its saved tensors or outputs */
    /* on_all_ranks or completes, and no later node writes output 0's gradient: backward does */
    bool gradient_is_zero;
    bool residual_adds;     /* the residual's gradient is not passed in place */
    uint32_t input_beta;    /* bit i: gradient of input i is added to */
    uint32_t param_beta;    /* bit j: gradient of param j is added to */
    uint32_t input_written; /* bit i: backward writes a gradient for input i */
    int64_t workspace_forward_bytes, workspace_backward_bytes;
};

typedef enum fm_phase {
    FM_PHASE_FORWARD,
    FM_PHASE_RECOMPUTE,
    FM_PHASE_DERIVE,
    FM_PHASE_BACKWARD
} fm_phase;

typedef struct fm_step {
    int32_t node;
    fm_phase phase;
    bool wants_output;                     /* forward, recompute: write outputs */
    uint32_t derived;                      /* derive: bit i: write output i */
    int64_t workspace_bytes, workspace_at; /* size; offset in the arena */
    double flops;                          /* of matrix products and attention */
    bool touched;                          /* a real run used the workspace */
    bool held; /* what this step sends is alive until an exchange has finished that began later
                * than this one ended */
} fm_step;

/* A buffer has one life. It has two if its content is dropped after forward and recomputed. */
typedef struct fm_buffer {
    int64_t bytes;
    int64_t state_offset; /* >= 0: in the state, not in the step arena */
    int64_t row_bytes;    /* in the state: each row of the tape is so much further on */
    bool kept;            /* the caller reads it: alive to the end of the schedule */
    int32_t segment;      /* of the node that writes it, -1 = none */
    int32_t last_reader;  /* the last node that reads it; 0 = none */
    bool is_read_outside; /* a node outside all recomputed segments reads it */
    bool dropped;         /* two lives: dropped after forward, recomputed */
    bool derived;         /* dropped, and made again of its node's output 0, which is kept */
    bool wanted_again;    /* read in backward or by a node that runs again */
    struct {
        int32_t first, last; /* steps, inclusive; first < 0 = unused */
        int64_t offset;      /* in the step arena */
        bool high;           /* placed from the high end */
        bool touched;        /* a real run used it */
    } life[2];
} fm_buffer;

typedef struct fm_segment {
    int32_t first, end; /* nodes */
    bool recompute;
} fm_segment;

typedef struct fm_tape_size {
    int64_t arena_bytes, saved_bytes, transient_bytes; /* saved, transient: reach of each end */
    int32_t n_node, n_tensor, n_step;
} fm_tape_size;

struct fm_tape {
    fm_arena tables;
    const fm_kernels *kernels;                  /* while recording: table of the next node */
    const fm_kernels *main_kernels;             /* table of all nodes outside islands */
    const fm_kernels *outside[FM_TAPE_ISLANDS]; /* while recording: around each open island */
    int32_t n_outside;
    fm_params *params;
    const fm_state *state;
    bool with_gradient, in_place;
    /* If > 0, on a tape without gradient, sublayers work slab by slab, each with a workspace of
     * about this size (ops/call.h, fm_call_chunk). 0: they work on the whole array. */
    int64_t chunk_bytes;
    bool chunks_triangles; /* with chunk_bytes: triangle multiplications work slab by slab, too */
    fm_node *node;
    fm_tensor *tensor;
    fm_buffer *buffer;
    fm_segment *segment;
    fm_step *step;
    int32_t n_node, n_tensor, n_buffer, n_segment, n_step, n_forward;
    /* Memory of sums that end later in backward (fm_kernels' put_off_sums), and its offset. */
    int64_t sums_bytes, sums_at;
    int32_t open_segment;  /* -1 = none */
    bool *param_written;   /* [params->n_block] while planning */
    uint32_t n_draw;       /* number of the next node that draws */
    uint32_t draw_step;    /* rng_step of the nodes that follow */
    uint64_t seed;         /* for dropout */
    const uint32_t *clock; /* device memory (backend/draw.h); may be NULL */
    int64_t row;           /* that runs read of the tensors of fm_tape_state_row */
    fm_tape_size size;
    void *memory; /* the step arena, bound before a run */
    /* Runs write NaN over memory before its first use, which reveals an op that reads memory before
     * anything has written it. Results keep the same bits. Slow. */
    bool spoils;
    /* Runs round to bf16 what nodes outside islands write, outputs and gradients. On a CPU table of
     * f32 that has a wide table, this is the plain composition that bf16 is judged by. Slow. */
    bool rounds;
    /* Device memory [n_step + 1], or NULL: runs store the device's clock here (fm_device.stamp)
     * before the first step and after each step. */
    uint64_t *stamp;
};

/* What the functions of an op receive. */
struct fm_run {
    fm_tape *tape;
    const fm_kernels *kernels;
    fm_stream *stream;
    int32_t step;
    bool dry, wants_output;
    int64_t workspace_used_bytes, workspace_peak_bytes;
    double flops; /* the wrappers of matrix products add to it, dry runs included */
};

/* -- recording */

/* Initialises an empty tape. with_gradient false: there is no backward and residual updates work in
 * place. `state` holds the tensors that outlive the pass; it must outlive the tape.
 * FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_tape_init(fm_tape *tape, const fm_kernels *kernels, fm_params *params,
                                   const fm_state *state, bool with_gradient, fm_error *reterr);
void fm_tape_fini(fm_tape *tape);

/* Adds a tensor of the state (tensor/state.h) to the tape. Only tests and recycled values need a
 * gradient. */
fm_tensor_ref fm_tape_state(fm_tape *tape, int32_t state_tensor, bool needs_gradient);

/* Adds slice `part` of the first axis of a tensor of the state. Neither it nor the next one has a
 * gradient. */
fm_tensor_ref fm_tape_state_part(fm_tape *tape, int32_t state_tensor, int64_t part);
/* Adds the slice of the first axis of `of`, a tensor of the state, that tape->row names when the
 * tape runs. A captured graph keeps the row of its capture. */
fm_tensor_ref fm_tape_state_row(fm_tape *tape, fm_tensor_ref of);

/* Adds a node that computes nothing. Other work may use `bytes` of the arena between the runs of
 * the node before and of this one. Returns its number. */
int32_t fm_tape_add_room(fm_tape *tape, const char *name, int64_t bytes);
/* The memory of that node, after fm_tape_bind; NULL where it has none. */
void *fm_tape_room(const fm_tape *tape, int32_t node);

/* Adds a node. *ret_attributes is a zeroed struct of attribute_bytes that the caller fills. */
fm_node *fm_tape_add(fm_tape *tape, const fm_op *op, const char *name, size_t attribute_bytes,
                     void **ret_attributes);
/* Appends an input. reads_again: backward reads its value. Returns the input's position. */
int fm_node_input(fm_tape *tape, fm_node *node, fm_tensor_ref tensor, bool reads_again);
/* Appends a parameter; FM_PARAM_NONE if this node does without it. Returns its position. */
int fm_node_param(fm_tape *tape, fm_node *node, fm_param_ref param);
/* Adds an output: a new tensor with a new buffer. Whether it needs a gradient follows from
 * the inputs and parameters added so far, so add those first. */
fm_tensor_ref fm_node_output(fm_tape *tape, fm_node *node, fm_element element, int rank,
                             const int64_t *shape);
/* The same with the type, shape and split of a description. */
fm_tensor_ref fm_node_output_described(fm_tape *tape, fm_node *node, const fm_tensor *description);
/* Adds an output that shares the input's buffer but has a separate gradient. For nodes that make
 * content valid without moving it (the end of an exchange). */
fm_tensor_ref fm_node_view(fm_tape *tape, fm_node *node, int input);
/* Appends an input that the node does not read but that must stay alive until the node has run. */
void fm_node_holds(fm_tape *tape, fm_node *node, fm_tensor_ref tensor);
/* Declares output 0 = input `input` + something. Where the tape works in place, output 0 is the
 * input tensor with its version raised; otherwise it is a new tensor of the same shape. */
fm_tensor_ref fm_node_residual(fm_tape *tape, fm_node *node, int input);
/* Backward reads output i. */
void fm_node_reads_output(fm_node *node, int i);
/* Declares that backward itself adds to output 0's gradient, at fm_run_completed_gradient, before
 * any node that receives this gradient reads it. For nodes with further outputs that are functions
 * of output 0. */
void fm_node_completes(fm_node *node);
/* Declares that outputs 1 .. are functions of output 0 and of parameters, which `derive` computes
 * with the bits that forward gives them. It may read output 0 and parameters only. */
void fm_node_derives(fm_node *node, void (*derive)(fm_run *run, const fm_node *node));
/* Drops the derived outputs of the node that was recorded last, whoever reads them. */
void fm_tape_drop_derived(fm_tape *tape);
/* Declares that the gradient of `input` is output 0's gradient if this node is the first in
 * backward that gives it one. Otherwise backward adds to the gradient that it already has. */
void fm_node_passes_if_first(fm_node *node, int input);
/* Gives the node the next random-number id. Nodes that do not draw have none, so adding
 * communication nodes does not change the draws of other nodes. */
void fm_node_draws(fm_tape *tape, fm_node *node);
/* Sets the id of the next node that draws, for code that records nodes in another order than their
 * ids. */
void fm_tape_seek_draw(fm_tape *tape, uint32_t draw);
/* Nodes recorded from here on draw for group g of their arrays (ops/call.h) with their id plus
 * g * step. Each group then draws as nodes of its own would, recorded one after the other. 0: no
 * groups. */
void fm_tape_group_draws(fm_tape *tape, uint32_t step);
/* Skips `count` ids: those of nodes that another rank records in this rank's place. */
void fm_tape_skip_draws(fm_tape *tape, uint32_t count);
/* Adds a saved tensor: forward writes it for backward. Returns its position among the saved
 * tensors. */
int fm_node_save(fm_tape *tape, fm_node *node, fm_keep keep, fm_element element, int rank,
                 const int64_t *shape);

/* Nodes recorded between enter and leave belong to the wide table, see above, or to `kernels`: the
 * main table, its wide one, or another one of the same backend that has the wide table's types.
 * Islands may nest. */
void fm_tape_enter_island(fm_tape *tape);
void fm_tape_enter_table(fm_tape *tape, const fm_kernels *kernels);
void fm_tape_leave_island(fm_tape *tape);

/* Nodes recorded between begin and end form a segment. recompute: only tensors that leave the
 * segment are kept. Segments do not nest. */
void fm_tape_begin_segment(fm_tape *tape, bool recompute);
void fm_tape_end_segment(fm_tape *tape);

/* Keeps the tensor's value (or gradient) readable after the run: fm_tape_data, fm_tape_gradient. */
void fm_tape_keep(fm_tape *tape, fm_tensor_ref tensor);

/* Names the state tensor in which the caller puts `tensor`'s gradient before backward: for tests
 * and as the seed of a loss. Backward may update its buffer in place. */
void fm_tape_seed_gradient(fm_tape *tape, fm_tensor_ref tensor, int32_t state_tensor);

/* Keeps the tensor's gradient for the caller to read after backward, as tests of gradients do. It
 * is not passed on in place. */
void fm_tape_want_gradient(fm_tape *tape, fm_tensor_ref tensor);

static inline const fm_tensor *fm_tape_tensor(const fm_tape *tape, fm_tensor_ref tensor) {
    return &tape->tensor[tensor];
}

/* -- planning and running */

/* Plans the tape, see above. Call it once, after recording. FM_ERR_NOMEM if the tables have no room
 * for the scratch memory of the placement. */
FM_MUST_USE fm_status fm_tape_plan(fm_tape *tape, fm_error *reterr);

/* Binds tape->size.arena_bytes bytes of device memory, aligned as the kernel table's alloc aligns.
 * The caller owns the memory. Two tapes that never run at the same time may share it. */
void fm_tape_bind(fm_tape *tape, void *memory);

void fm_tape_forward(fm_tape *tape, fm_stream *stream);
/* Runs the forward steps of the nodes first .. end - 1 only. A pass that other work interrupts runs
 * in pieces, in order and without gaps. */
void fm_tape_forward_nodes(fm_tape *tape, int32_t first, int32_t end, fm_stream *stream);
void fm_tape_backward(fm_tape *tape, fm_stream *stream);

/* Sets to 0 the gradients of parameters that backward does not write. Ranks that run different
 * nodes call this before backward, because a sum over ranks leaves other ranks' gradients there. */
void fm_tape_clear_unwritten(const fm_tape *tape, fm_stream *stream);

/* Returns the largest sum of both ends' reach over the places that real runs have used so far. It
 * equals size.arena_bytes after forward and backward, which tests assert. */
int64_t fm_tape_used_bytes(const fm_tape *tape);

/* Runs the whole schedule again, backward included, and checks what each step writes. It runs to
 * the end even after a find, because other ranks wait for this one. On true, `out` names the first
 * tensor with a value that is not finite, by node and op. Examples are "element 7 of output 0 [12,
 * 32] of msa transition (op transition, node 12)" and "the gradient of
 * evoformer.1.msa_transition.2.weight in msa transition (...)". Gaps between parameters are checked
 * last. `flag` is one word of device memory. Slow, and allocates host memory. */
bool fm_tape_name_nonfinite(fm_tape *tape, fm_stream *stream, uint32_t *flag, char *out,
                            size_t out_bytes);

/* After a run: device pointer to the value (gradient) of a kept or state tensor. */
void *fm_tape_data(const fm_tape *tape, fm_tensor_ref tensor);
void *fm_tape_gradient(const fm_tape *tape, fm_tensor_ref tensor);

/* -- functions for ops */

/* Returns `bytes` of the step's workspace, aligned to FM_PLAN_ALIGN_BYTES; NULL if bytes is 0. The
 * memory is released at the end of the step, or by going back to a mark. */
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
static inline bool fm_run_wants_output(const fm_run *run) {
    return run->wants_output;
}

/* Whether the `derive` of a node writes output i in this step. */
bool fm_run_derives(const fm_run *run, int i);

/* Device pointers; NULL for an absent input. In backward, fm_run_input asserts that the node
 * declared the input as read again. */
void *fm_run_input(const fm_run *run, const fm_node *node, int i);
void *fm_run_output(const fm_run *run, const fm_node *node, int i);
void *fm_run_saved(const fm_run *run, const fm_node *node, int i);
/* Whether what forward saves as tensor i is lost before backward, which has it made again. Forward
 * need not write it then. */
bool fm_run_drops_saved(const fm_run *run, const fm_node *node, int i);
/* Whether saved tensor i has its content since forward, so that a recompute step need not write it.
 */
bool fm_run_has_saved(const fm_run *run, const fm_node *node, int i);
void *fm_run_param(const fm_run *run, const fm_node *node, int j); /* NULL for FM_PARAM_NONE */

/* The gradient of output i (to read), of input i and of parameter j (to write; data NULL = not
 * needed). */
void *fm_run_output_gradient(const fm_run *run, const fm_node *node, int i);
fm_out fm_run_gradient(const fm_run *run, const fm_node *node, int i);
/* For a node that completes it: the gradient of output 0, to add to or to write. */
fm_out fm_run_completed_gradient(const fm_run *run, const fm_node *node);
fm_out fm_run_param_gradient(const fm_run *run, const fm_node *node, int j);

/* Returns `data` advanced by `elements`, for slices of fused blocks; NULL stays NULL. Parameters
 * and activations have the act type, parameter gradients the acc type. */
static inline void *fm_run_at(const void *data, int64_t elements, fm_element element) {
    return data ? (char *)data + elements * (int64_t)fm_element_bytes(element) : NULL;
}
static inline fm_out fm_out_at(fm_out out, int64_t elements, fm_element element) {
    return (fm_out){fm_run_at(out.data, elements, element), out.beta};
}

/* The node's dropout draw. */
fm_draw fm_run_draw(const fm_run *run, const fm_node *node);

#endif
