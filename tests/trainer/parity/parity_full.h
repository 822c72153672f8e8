/* parity_full.h: the full-size model of model_parity_full: its two recorded cycles, planned, bound
 * and ready to run. */
#ifndef FM_TESTS_TRAINER_PARITY_FULL_H
#define FM_TESTS_TRAINER_PARITY_FULL_H

#include "tests/trainer/parity/parity_groups.h"
#include "tests/trainer/parity/parity_structure.h"

#include "trainer/dist/meeting.h"
#include "trainer/optim/optimizer.h"

enum { N_BLOCK = 48, ATOM37_CA = 1, ATOM37_CB = 3, N_PARTS = FM_MAX_TEMPLATE, MAX_DAP = 8 };
enum { PIECE = 1 << 16 /* elements of the scratch memory for sums over ranks */ };

typedef struct arguments {
    const char *device, *backend, *dtype, *folder;
    int n_block, dap;
    bool inject_bins, verbose;
} arguments;

/* A recorded cycle. */
typedef struct pass {
    fm_tape tape;
    fm_model_outputs out;
} pass;

typedef struct full {
    const arguments *arguments;
    parity in;
    structure_part sm;
    fm_npz golden;
    fm_arena arena, inputs_arena, golden_arena;
    const fm_kernels *kernels;
    fm_params params;
    fm_model_weights weights;
    /* first: without losses, stores recycled values; last: with losses, if the model is whole */
    pass first, last;
    fm_optimizer optimizer;
    void *memory, *scratch;
    float *values; /* host: the parameters, or their gradients */
    group group[N_GROUP];
    struct full *rank[MAX_DAP]; /* the first rank's list of the ranks of this process */
    int n_rank;
    fm_meeting *meeting; /* of ranks that are processes; NULL: threads, or one rank */
    int cycle;           /* the cycle that runs */
} full;

static inline bool is_whole(const full *f) {
    return f->in.config.n_block == N_BLOCK;
}

/* One node has all templates. */
static inline bool templates_are_together(const full *f) {
    return fm_split_has_whole_templates(&f->in.config);
}

/* Keeps everything that is compared; the inside of a block is not. */
static inline void keep_outputs(fm_tape *tape) {
    static const char *const names[] = {"input msa",
                                        "input pair",
                                        "recycle bins",
                                        "template pair embedder",
                                        "template transition",
                                        "template pointwise attention",
                                        "template torsion rows",
                                        "extra msa embedder",
                                        "msa transition",
                                        "pair transition",
                                        "single",
                                        "backbone update",
                                        "transition norm",
                                        "stack",
                                        "torsion angles",
                                        "unit pairs",
                                        "plddt head",
                                        "experimentally resolved",
                                        "aligned error",
                                        NULL};
    for (int32_t n = 0; n < tape->n_node; n++) {
        for (int i = 0; names[i]; i++) {
            if (!strcmp(tape->node[n].name, names[i])) fm_tape_keep(tape, tape->node[n].output[0]);
        }
    }
}

/* Output of the `nth` node with that name. */
static inline fm_tensor_ref find(const fm_tape *tape, const char *node, int nth) {
    for (int32_t n = 0; n < tape->n_node; n++) {
        if (!strcmp(tape->node[n].name, node) && nth-- == 0) return tape->node[n].output[0];
    }
    fprintf(stderr, "model_parity_full: no node %s on the tape\n", node);
    exit(1);
}

/* The tensors whose gradients are compared: the z that leaves a block, and the inputs of a stack.
 * An m between two blocks is omitted: its gradient has a part from within the block that made it,
 * which the reference's gradient does not contain. */
static inline fm_tensor_ref block_input(const full *f, const fm_tape *tape, bool extra, int block,
                                        char which) {
    if (block == 0 && which == 'm') {
        return find(tape, extra ? "extra msa embedder" : "template torsion rows", 0);
    }
    if (block == 0 && extra) return find(tape, "template pointwise attention", 0);
    return which == 'm' ? FM_TENSOR_NONE
                        : find(tape, "pair transition",
                               block - 1 + (extra ? 0 : (int)f->in.config.n_extra_block));
}

static const char *const STACKS[] = {"evoformer", "extra_msa_stack"};

static inline void want_gradients(full *f) {
    fm_tape *tape = &f->last.tape;
    for (int extra = 0; extra < 2; extra++) {
        int count = extra ? f->in.config.n_extra_block : f->in.config.n_block;
        for (int i = 0; i < count; i++) {
            for (int which = 0; which < 2; which++) {
                fm_tensor_ref tensor = block_input(f, tape, extra, i, "mz"[which]);
                char key[96];
                snprintf(key, sizeof key, "dact/%s.blocks.%d.in.%c", STACKS[extra], i, "mz"[which]);
                if (tensor != FM_TENSOR_NONE &&
                    line_of(golden(&f->golden, "act_names"), key) >= 0) {
                    fm_tape_want_gradient(tape, tensor);
                }
            }
        }
    }
    fm_tape_want_gradient(tape, f->last.out.z);
    fm_tape_want_gradient(tape, f->last.out.single);
}

static inline fm_status record(full *f, fm_error *error) {
    pass *passes[] = {&f->first, &f->last};
    for (int i = 0; i < (is_whole(f) ? 2 : 1); i++) {
        fm_tape *tape = &passes[i]->tape;
        fm_status status = fm_tape_init(tape, f->kernels, &f->params, &f->in.state, true, error);
        if (status) return status;
        passes[i]->out = fm_model_record_cycle(tape, &f->in.config, &f->weights, &f->in.inputs,
                                               i == 0 ? FM_CYCLE_STORES : FM_CYCLE_OUTPUTS);
        if (i == 1) {
            record_losses(tape, &f->in, &f->sm, &passes[i]->out, &f->weights);
            for (int k = 0; k < FM_LOSS_TERMS; k++)
                fm_tape_keep(tape, f->sm.term[k]);
            fm_tape_keep(tape, f->sm.total);
            want_gradients(f);
        }
        keep_outputs(tape);
        if (is_whole(f)) fm_tape_keep(tape, passes[i]->out.structure.atoms.atoms);
        status = fm_tape_plan(tape, error);
        if (status) return status;
    }
    return FM_OK;
}

static inline int64_t arena_bytes_of(const full *f) {
    int64_t one = f->first.tape.size.arena_bytes, other = f->last.tape.size.arena_bytes;
    return one > other ? one : other;
}

/* Lets the other ranks read everything that exchanges may send. */
static inline fm_status share_memory(full *f, fm_error *error) {
    const fm_groups *groups = f->in.config.groups;
    if (!groups || !groups->share) return FM_OK;
    const struct {
        void *memory;
        int64_t bytes;
    } shared[] = {{f->params.memory, f->params.memory_bytes},
                  {f->in.state.memory, f->in.state.bytes},
                  {f->memory, arena_bytes_of(f)},
                  {f->scratch, PIECE * (int64_t)sizeof(float)}};
    fm_status status = FM_OK;
    for (size_t i = 0; i < sizeof shared / sizeof shared[0] && !status; i++)
        status = groups->share(groups, shared[i].memory, (size_t)shared[i].bytes, error);
    return status;
}

static inline fm_status bind(full *f) {
    int64_t bytes = arena_bytes_of(f);
    f->memory = f->kernels->alloc((size_t)bytes);
    f->values = malloc((size_t)f->params.n_element * sizeof *f->values);
    f->scratch = f->kernels->alloc(PIECE * sizeof(float));
    if (!f->memory || !f->values || !f->scratch) return FM_ERR_NOMEM;
    printf("%lld parameters, step arena %.2f GiB\n", (long long)f->params.n_value,
           (double)bytes / (1 << 30));
    fm_tape_bind(&f->first.tape, f->memory);
    if (is_whole(f)) fm_tape_bind(&f->last.tape, f->memory);
    return FM_OK;
}

/* Makes the host's copy of a device's state, with the tables that are already in it. */
static inline fm_status mirror_state(full *f) {
    if (is_whole(f)) fm_structure_upload_tables(&f->in.state, &f->in.inputs.tables);
    if (!strcmp(f->arguments->device, "cpu")) return FM_OK;
    f->in.host = malloc((size_t)f->in.state.bytes);
    if (!f->in.host) return FM_ERR_NOMEM;
    f->kernels->download(NULL, f->in.host, f->in.state.memory, (size_t)f->in.state.bytes);
    f->kernels->synchronize(NULL);
    return FM_OK;
}

static inline fm_status build(full *f, fm_error *error) {
    const fm_optimizer_options options = {.rate = 1e-3,
                                          .beta1 = 0.9,
                                          .beta2 = 0.999,
                                          .eps = 1e-5,
                                          .ema_decay = 0.999,
                                          .clip_norm = 0.1,
                                          .decay_factor = 1};
    fm_status status = fm_arena_init(&f->arena, (size_t)1 << 28, error);
    if (!status) status = fm_params_init(&f->params, FM_MAX_PARAM, &f->arena, error);
    if (!status) {
        fm_model_add_parameters(&f->params, &f->arena, &f->in.config, &f->weights);
        status = fm_params_allocate(&f->params, f->kernels, error);
    }
    if (!status) {
        declare_trunk(&f->in, f->kernels);
        if (is_whole(f)) declare_losses(&f->in, &f->sm, f->kernels);
        status = fm_state_allocate(&f->in.state, f->kernels, error);
    }
    if (!status) status = mirror_state(f);
    if (!status) status = record(f, error);
    if (!status) status = fm_optimizer_init(&f->optimizer, &f->params, &options, error);
    if (!status) status = bind(f);
    return status ? status : share_memory(f, error);
}

static inline void close_full(full *f) {
    fm_optimizer_fini(&f->optimizer);
    fm_tape_fini(&f->last.tape);
    fm_tape_fini(&f->first.tape);
    if (f->kernels) {
        f->kernels->release(f->scratch);
        f->kernels->release(f->memory);
    }
    fm_state_release(&f->in.state);
    fm_params_release(&f->params);
    fm_arena_fini(&f->arena);
    fm_arena_fini(&f->golden_arena);
    fm_arena_fini(&f->inputs_arena);
    free(f->values);
    free(f->in.host);
}

#endif
