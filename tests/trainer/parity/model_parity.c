/* model_parity.c: compares the model with one run of the reference.
 *
 *     model_parity [--device cpu|cuda] [--dap D] [--bp B] [--backend NAME] CONFIG.json FILE.npz
 *
 * FILE.npz has a run's inputs, parameters, activations and gradients (keys in/ w/ act/ dact/ grad/
 * out/ loss/), CONFIG.json its sizes. A path that does not exist as given is looked for below
 * $FM_REFERENCE_DATA. Without either, or without that device, the program exits with 77.
 *
 * It runs every recycling cycle, each starting from the results of the one before, backward from
 * all losses through the last cycle, and one step of the optimiser. It prints one line per group:
 * the worst relative error ||a - b|| / ||b|| of its arrays, the name of that array, and the gate.
 * The last line is "parity: ok" or "parity: FAIL".
 *
 * --dap D splits the model over D ranks, --bp 2 runs the two branches of its blocks on two ranks.
 * On the CPU ranks are threads that communicate through tests/testing/comm_local.h. With --dap and
 * --backend shm they are processes that communicate through trainer/dist/comm_shm.h. With --dap and
 * --device cuda they are processes with a GPU each, which communicate as --backend says (peer or
 * nccl). Each process compares everything. The program puts split arrays together again and takes
 * whole arrays from the first rank; gradients are summed over the ranks. All ranks must end with
 * the same bits of norm and parameters, and must have used all planned memory.
 *
 * Masked positions are not compared, since their values depend on the precision. Gradients whose
 * true value is zero are rounding noise in the file and compared absolutely. */
#include "tests/trainer/parity/parity_gather.h"
#include "tests/trainer/parity/parity_structure.h"
#include "tests/trainer/parity/parity_ways.h"

#include "proto/base/hash.h"
#include "tests/testing/ranks.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/dist/sum.h"
#include "trainer/optim/optimizer.h"

#include <getopt.h>
#include <pthread.h>

static const double OUTPUT_GATE = 1e-5, GRADIENT_GATE = 1e-4;
/* Relative to the norm of all gradients: the smallest divisor, and that for gradients known to be
 * zero. */
static const double GRADIENT_FLOOR = 1e-6, ZERO_FLOOR = 1e-4;

enum { MAX_RANK = 16, SCRATCH = 1 << 14 };

/* One rank. */
typedef struct bench {
    parity in;
    fm_arena arena;
    int64_t n_seq, n_res; /* of the file; the recorded ones may be padded */
    const fm_kernels *kernels;
    fm_params params;
    fm_model_weights weights;
    structure_part sm;
    fm_tape cycle, last;
    fm_model_outputs out; /* on `last` */
    fm_optimizer optimizer;
    void *memory;
    float *copy; /* of the last fetched values, where they are on a device */
    bool finite;
    struct bench *rank[MAX_RANK]; /* of the first rank: all of them, by number */
    int n_rank;
    bool failed;
    fm_meeting *meeting; /* of ranks that are processes; NULL for threads */
    gathered gathered;   /* from them */
    void *scratch;       /* for sums over ranks */
} bench;

/* -- building */

static void read_extra_sizes(const fm_test_json *json, fm_model_config *c) {
    c->n_extra_block = (int32_t)size_at(json, "model.extra_msa.extra_msa_stack.no_blocks");
    c->c_e = size_at(json, "model.extra_msa.extra_msa_stack.c_m");
    c->c_head_extra = size_at(json, "model.extra_msa.extra_msa_stack.c_hidden_msa_att");
    c->c_outer_extra = size_at(json, "model.extra_msa.extra_msa_stack.c_hidden_opm");
    c->c_triangle_extra = size_at(json, "model.extra_msa.extra_msa_stack.c_hidden_mul");
    c->c_t = size_at(json, "model.template.template_pair_stack.c_t");
    c->n_template_block = (int32_t)size_at(json, "model.template.template_pair_stack.no_blocks");
    c->n_head_template = size_at(json, "model.template.template_pair_stack.no_heads");
    c->c_head_template = size_at(json, "model.template.template_pair_stack.c_hidden_tri_att");
    c->c_triangle_template = size_at(json, "model.template.template_pair_stack.c_hidden_tri_mul");
    c->template_transition_factor =
        size_at(json, "model.template.template_pair_stack.pair_transition_n");
    c->n_head_pointwise = size_at(json, "model.template.template_pointwise_attention.no_heads");
    c->c_head_pointwise = size_at(json, "model.template.template_pointwise_attention.c_hidden");
}

static void read_config(bench *b, const char *path, const fm_groups *groups) {
    fm_test_json *json = fm_test_json_open(path);
    const fm_npy *msa = need(&b->in, "in/", "msa_feat"), *extra = need(&b->in, "in/", "extra_msa");
    b->in.n_cycle = (int)msa->shape[msa->rank - 1];
    b->in.config = (fm_model_config){
        .n_seq = (int64_t)msa->shape[1],
        .n_res = (int64_t)msa->shape[2],
        .n_extra = (int64_t)extra->shape[1],
        .n_template = (int64_t)need(&b->in, "in/", "template_aatype")->shape[1],
        .n_block = (int32_t)size_at(json, "model.evoformer_stack.no_blocks"),
        .c_m = size_at(json, "model.evoformer_stack.c_m"),
        .c_z = size_at(json, "model.evoformer_stack.c_z"),
        .c_s = size_at(json, "model.evoformer_stack.c_s"),
        .n_head_msa = size_at(json, "model.evoformer_stack.no_heads_msa"),
        .c_head_msa = size_at(json, "model.evoformer_stack.c_hidden_msa_att"),
        .n_head_pair = size_at(json, "model.evoformer_stack.no_heads_pair"),
        .c_head_pair = size_at(json, "model.evoformer_stack.c_hidden_pair_att"),
        .c_outer = size_at(json, "model.evoformer_stack.c_hidden_opm"),
        .c_triangle = size_at(json, "model.evoformer_stack.c_hidden_mul"),
        .transition_factor = size_at(json, "model.evoformer_stack.transition_n"),
        .relpos_k = size_at(json, "model.input_embedder.relpos_k"),
        .n_distogram_bin = size_at(json, "model.heads.distogram.no_bins"),
        .n_recycle_bin = size_at(json, "model.recycling_embedder.no_bins"),
        .order = size_at(json, "model.evoformer_stack.opm_first") ? FM_ORDER_OUTER_FIRST
                                                                  : FM_ORDER_ORIGINAL};
    read_extra_sizes(json, &b->in.config);
    b->n_seq = b->in.config.n_seq;
    b->n_res = b->in.config.n_res;
    b->in.config.groups = groups;
    b->in.config = fm_split_pad(&b->in.config);
    read_structure_config(json, &b->in, &b->sm);
    fm_test_json_close(json);
    assert(b->in.n_cycle >= 1 && b->in.n_cycle <= MAX_CYCLE);
}

/* Whether the node's output leaves a half of a block. The gradient there is compared where one rank
 * on the CPU has everything; elsewhere gradients are passed on in place, as in training. */
static bool ends_half_a_block(const bench *b, const char *node) {
    const fm_model_config *c = &b->in.config;
    bool all = !fm_split_is_split(c) && fm_split_has_msa(c) && fm_split_has_pair(c) &&
               b->kernels == fm_kernels_cpu(FM_ELEMENT_F32);
    return all && (!strcmp(node, "msa transition") || !strcmp(node, "pair transition"));
}

static fm_status record(bench *b, fm_error *error) {
    fm_tape *tape = &b->last;
    fm_status status = fm_tape_init(&b->cycle, b->kernels, &b->params, &b->in.state, false, error);
    if (!status) status = fm_tape_init(tape, b->kernels, &b->params, &b->in.state, true, error);
    if (status) return status;
    fm_model_record_cycle(&b->cycle, &b->in.config, &b->weights, &b->in.inputs, FM_CYCLE_STORES);
    b->out =
        fm_model_record_cycle(tape, &b->in.config, &b->weights, &b->in.inputs, FM_CYCLE_OUTPUTS);
    record_losses(tape, &b->in, &b->sm, &b->out, &b->weights);
    for (int32_t n = 0; n < tape->n_node; n++) { /* every output is compared */
        for (int i = 0; i < tape->node[n].n_output; i++)
            fm_tape_keep(tape, tape->node[n].output[i]);
        if (ends_half_a_block(b, tape->node[n].name)) {
            fm_tape_want_gradient(tape, tape->node[n].output[0]);
        }
    }
    status = fm_tape_plan(&b->cycle, error);
    return status ? status : fm_tape_plan(tape, error);
}

/* Makes the host's copy of a device's state, with the tables that it already has. */
static void mirror_state(bench *b) {
    if (b->kernels == fm_kernels_cpu(FM_ELEMENT_F32)) return;
    b->in.host = malloc((size_t)b->in.state.bytes);
    assert(b->in.host);
    b->kernels->download(NULL, b->in.host, b->in.state.memory, (size_t)b->in.state.bytes);
    b->kernels->synchronize(NULL);
}

static fm_status build(bench *b, fm_error *error) {
    fm_status status = fm_arena_init(&b->arena, (size_t)1 << 28, error);
    if (!status) status = fm_params_init(&b->params, FM_MAX_PARAM, &b->arena, error);
    if (!status) {
        fm_model_add_parameters(&b->params, &b->arena, &b->in.config, &b->weights);
        status = fm_params_allocate(&b->params, b->kernels, error);
    }
    if (!status) {
        declare_trunk(&b->in, b->kernels);
        declare_losses(&b->in, &b->sm, b->kernels);
        status = fm_state_allocate(&b->in.state, b->kernels, error);
    }
    if (!status) status = record(b, error);
    const fm_optimizer_options options = {.rate = 1e-3,
                                          .beta1 = 0.9,
                                          .beta2 = 0.999,
                                          .eps = 1e-5,
                                          .ema_decay = 0.999,
                                          .clip_norm = 0.1,
                                          .decay_factor = 1};
    if (!status) status = fm_optimizer_init(&b->optimizer, &b->params, &options, error);
    if (!status) {
        fm_structure_upload_tables(&b->in.state, &b->in.inputs.tables);
        mirror_state(b);
        int64_t one = b->cycle.size.arena_bytes, other = b->last.size.arena_bytes;
        b->memory = b->kernels->alloc((size_t)(one > other ? one : other));
        assert(b->memory);
        fm_tape_bind(&b->cycle, b->memory);
        fm_tape_bind(&b->last, b->memory);
        b->scratch = b->kernels->alloc(SCRATCH * sizeof(float));
        assert(b->scratch);
    }
    return status;
}

/* Lets the other ranks read what exchanges send. */
static fm_status share_memory(bench *b, fm_error *error) {
    const fm_groups *groups = b->in.config.groups;
    if (!groups || !groups->share) return FM_OK;
    int64_t one = b->cycle.size.arena_bytes, other = b->last.size.arena_bytes;
    fm_status status =
        groups->share(groups, b->params.memory, (size_t)b->params.memory_bytes, error);
    if (!status) {
        status = groups->share(groups, b->in.state.memory, (size_t)b->in.state.bytes, error);
    }
    if (!status) {
        status = groups->share(groups, b->memory, (size_t)(one > other ? one : other), error);
    }
    return status ? status : groups->share(groups, b->scratch, SCRATCH * sizeof(float), error);
}

static void close_bench(bench *b) {
    fm_optimizer_fini(&b->optimizer);
    fm_tape_fini(&b->last);
    fm_tape_fini(&b->cycle);
    if (b->kernels) {
        b->kernels->release(b->memory);
        b->kernels->release(b->scratch);
        gathered_release(b->kernels, &b->gathered);
    }
    fm_state_release(&b->in.state);
    fm_params_release(&b->params);
    fm_arena_fini(&b->arena);
    free(b->in.host);
    free(b->copy);
}

/* -- inputs */

/* Loads every parameter of the table, by its OpenFold name. */
static void load_parameters(bench *b) {
    size_t bytes = (size_t)b->params.n_element * sizeof(float);
    float *master = calloc(1, bytes);
    assert(master);
    for (int32_t p = 0; p < b->params.n_param; p++) {
        const fm_param *row = &b->params.param[p];
        const fm_npy *array = need(&b->in, "w/", row->openfold);
        assert((int64_t)array->count == fm_param_count(row));
        for (int64_t i = 0; i < (int64_t)array->count; i++)
            master[row->offset + i] = (float)value(array, i);
    }
    b->kernels->upload(NULL, b->params.master, master, bytes);
    b->kernels->copy(NULL, b->params.n_element, b->params.master, b->params.ema);
    b->kernels->synchronize(NULL);
    free(master);
}

/* -- comparing */

/* The leading axes of an array [.., c], and with them the mask of its positions. */
typedef enum weight { ALL, MSA, EXTRA, PAIR, TEMPLATE_ROWS } weight;

typedef struct worst {
    double error;
    char name[160];
    int count;
} worst;

static int32_t mask_of(const bench *b, weight kind) {
    return kind == MSA     ? b->in.inputs.msa_mask
           : kind == EXTRA ? b->in.inputs.extra_msa_mask
           : kind == PAIR  ? b->in.inputs.pair_mask
                           : -1;
}

/* Returns where position p of the file's array is in the recorded one: residues are padded, and so
 * are the clusters before the template rows. */
static int64_t recorded_position(const bench *b, weight kind, int64_t p) {
    int64_t row = p / b->n_res, pad = b->in.config.n_seq - b->n_seq;
    if (kind == ALL) return p;
    row += kind == MSA && row >= b->n_seq ? pad : 0;
    return row * b->in.config.n_res + p % b->n_res;
}

/* `count` numbers of the device's memory, valid until the next call. */
static const float *fetch(bench *b, const void *device, int64_t count) {
    if (!b->in.host) return device;
    b->copy = realloc(b->copy, (size_t)count * sizeof *b->copy);
    assert(b->copy);
    b->kernels->download(NULL, b->copy, device, (size_t)count * sizeof *b->copy);
    b->kernels->synchronize(NULL);
    return b->copy;
}

static void note(worst *w, const char *name, double error) {
    if (!(error <= w->error) || w->count == 0) { /* not-a-number is the worst */
        w->error = error;
        snprintf(w->name, sizeof w->name, "%s", name);
    }
    w->count++;
}

static void compare(bench *b, worst *w, const char *name, const void *device, const fm_npy *array,
                    weight kind, double floor) {
    int64_t c = array->rank ? (int64_t)array->shape[array->rank - 1] : 1;
    /* The recorded array is larger than the file's where it is padded. */
    int64_t last = recorded_position(b, kind, (int64_t)array->count / c - 1);
    const float *data = fetch(b, device, (last + 1) * c);
    const float *mask = mask_of(b, kind) < 0 ? NULL : data_of(&b->in, mask_of(b, kind));
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < (int64_t)array->count; i++) {
        int64_t at = recorded_position(b, kind, i / c);
        double expected = value(array, i), counts = mask ? (double)mask[at] : 1;
        double e = (double)data[at * c + i % c] - expected;
        difference += counts * e * e;
        norm += counts * expected * expected;
    }
    note(w, name, sqrt(difference) / fmax(sqrt(norm), floor));
}

/* [.., N_res, row]: leading axes, e.g. iterations; `scale` for the file's element k % row >= from.
 */
static void compare_residues(bench *b, worst *w, const char *name, const void *device,
                             const fm_npy *array, int64_t row, int64_t from, double scale) {
    int64_t last = padded_position(&b->in, (int64_t)array->count / row - 1);
    const float *data = fetch(b, device, (last + 1) * row);
    const float *mask = data_of(&b->in, b->in.inputs.seq_mask);
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < (int64_t)array->count; i++) {
        int64_t at = padded_position(&b->in, i / row);
        double counts = mask[at % b->in.config.n_res], expected = value(array, i);
        double e = (double)data[at * row + i % row] * (i % row >= from ? scale : 1) - expected;
        difference += counts * e * e;
        norm += counts * expected * expected;
    }
    note(w, name, sqrt(difference) / fmax(sqrt(norm), 1e-3));
}

static void report(bench *b, const char *group, const worst *w, double gate) {
    bool ok = w->count > 0 && w->error <= gate;
    printf("%-12s %4d arrays, worst %.2e of %s (gate %.0e) %s\n", group, w->count, w->error,
           w->count ? w->name : "none", gate, ok ? "ok" : "FAIL");
    b->failed |= !ok;
}

/* Returns the output of the `nth` node of that name on the last cycle's tape, or FM_TENSOR_NONE. */
static fm_tensor_ref find_output(const bench *b, const char *node, int nth) {
    for (int32_t n = 0; n < b->last.n_node; n++) {
        if (!strcmp(b->last.node[n].name, node) && nth-- == 0) return b->last.node[n].output[0];
    }
    return FM_TENSOR_NONE;
}

/* Returns the node's whole output, put together from the ranks of the branch that has it, in the
 * arena of the first rank. */
static const float *probe(bench *b, const char *node, int nth) {
    float *whole = NULL;
    for (int r = 0; r < b->n_rank; r++) {
        const bench *rank = b->rank[r];
        fm_tensor_ref ref = find_output(rank, node, nth);
        if (ref == FM_TENSOR_NONE) continue;
        const fm_tensor *t = fm_tape_tensor(&rank->last, ref);
        const void *data = fm_tape_data(&rank->last, ref);
        if (t->shard_axis < 0) return data;
        if (b->meeting) return gather_parts(b->kernels, b->meeting, t, data, &b->gathered);
        int64_t count = fm_tensor_local_count(t) * t->shard_count;
        whole = whole ? whole : fm_arena_alloc_array(&b->arena, (size_t)count, sizeof *whole);
        assert(whole);
        put_part(t, data, whole);
    }
    if (!whole) {
        fprintf(stderr, "model_parity: no node %s on the tape\n", node);
        exit(1);
    }
    return whole;
}

/* Compares an activation of the reference, where the file has it. */
static void compare_activation(bench *b, worst *w, const char *key, const char *node, int nth,
                               int64_t skip, weight kind) {
    const fm_npy *array = fm_npz_find(&b->in.file, key);
    if (array) compare(b, w, key, probe(b, node, nth) + skip, array, kind, 1e-3);
}

static void compare_blocks(bench *b, worst *w, const char *stack, int32_t count, int32_t first,
                           weight rows) {
    char key[128];
    for (int32_t i = 0; i < count; i++) {
        snprintf(key, sizeof key, "act/%s.blocks.%d@%d.0", stack, (int)i, b->in.n_cycle - 1);
        compare_activation(b, w, key, "msa transition", first + i, 0, rows);
        snprintf(key, sizeof key, "act/%s.blocks.%d@%d.1", stack, (int)i, b->in.n_cycle - 1);
        compare_activation(b, w, key, "pair transition", first + i, 0, PAIR);
    }
}

static void compare_activations(bench *b) {
    const fm_model_config *c = &b->in.config;
    worst w = {0};
    char key[128];
    int at = b->in.n_cycle - 1;
    snprintf(key, sizeof key, "act/input_embedder@%d.0", at);
    compare_activation(b, &w, key, "input msa", 0, 0, MSA);
    snprintf(key, sizeof key, "act/input_embedder@%d.1", at);
    compare_activation(b, &w, key, "input pair", 0, 0, PAIR);
    for (int t = 0; t < c->n_template; t++) {
        snprintf(key, sizeof key, "act/template_embedder.template_pair_embedder@%d",
                 at * (int)c->n_template + t);
        bool together = fm_split_has_whole_templates(c); /* one node has them all */
        compare_activation(b, &w, key, "template pair embedder", together ? 0 : t,
                           together ? t * c->n_res * c->n_res * c->c_t : 0, PAIR);
    }
    snprintf(key, sizeof key, "act/template_embedder@%d.template_single_embedding", at);
    compare_activation(b, &w, key, "template torsion rows", 0, c->n_seq * c->n_res * c->c_m,
                       TEMPLATE_ROWS);
    snprintf(key, sizeof key, "act/extra_msa_embedder@%d", at);
    compare_activation(b, &w, key, "extra msa embedder", 0, 0, EXTRA);
    compare_blocks(b, &w, "extra_msa_stack", c->n_extra_block, 0, EXTRA);
    compare_blocks(b, &w, "evoformer", c->n_block, c->n_extra_block, MSA);
    report(b, "activations", &w, OUTPUT_GATE);
}

static void compare_outputs(bench *b) {
    worst w = {0};
    compare(b, &w, "out/msa", fm_tape_data(&b->last, b->out.m), need(&b->in, "out/", "msa"), MSA,
            1e-3);
    compare(b, &w, "out/pair", fm_tape_data(&b->last, b->out.z), need(&b->in, "out/", "pair"), PAIR,
            1e-3);
    const fm_structure_outputs *o = &b->out.structure;
    int64_t c_s = b->in.config.c_s;
    compare_residues(b, &w, "out/single", fm_tape_data(&b->last, b->out.single),
                     need(&b->in, "out/", "single"), c_s, c_s, 1);
    compare_residues(b, &w, "out/sm.frames", fm_tape_data(&b->last, o->frames),
                     need(&b->in, "out/", "sm.frames"), 7, 4,
                     b->in.config.structure.position_scale);
    compare_residues(b, &w, "out/sm.angles", fm_tape_data(&b->last, o->angles),
                     need(&b->in, "out/", "sm.angles"), 14, 14, 1);
    compare_residues(b, &w, "out/sm.unnormalized_angles", fm_tape_data(&b->last, o->unnormalised),
                     need(&b->in, "out/", "sm.unnormalized_angles"), 14, 14, 1);
    compare_residues(b, &w, "out/sm.single", fm_tape_data(&b->last, o->s),
                     need(&b->in, "out/", "sm.single"), c_s, c_s, 1);
    fm_npy positions = *need(&b->in, "out/", "sm.positions"); /* the last iteration's */
    positions.count /= (uint64_t)b->in.config.structure.n_iteration;
    positions.data = (const float *)positions.data +
                     positions.count * (uint64_t)(b->in.config.structure.n_iteration - 1);
    compare_residues(b, &w, "out/sm.positions", fm_tape_data(&b->last, o->atoms.atoms), &positions,
                     42, 42, 1);
    compare_residues(b, &w, "out/experimentally_resolved_logits",
                     probe(b, "experimentally resolved", 0),
                     need(&b->in, "out/", "experimentally_resolved_logits"), 37, 37, 1);
    compare(b, &w, "out/tm_logits", probe(b, "aligned error", 0), need(&b->in, "out/", "tm_logits"),
            PAIR, 1e-3);
    report(b, "outputs", &w, OUTPUT_GATE);
}

static double scalar(bench *b, fm_tensor_ref tensor) {
    return *fetch(b, fm_tape_data(&b->last, tensor), 1);
}

static double term(bench *b, int which) {
    return scalar(b, b->sm.term[which]);
}

static void compare_losses(bench *b) {
    const double *scale = b->sm.weight;
    const struct {
        const char *name;
        double got;
    } losses[] = {{"fape", scale[FM_TERM_BACKBONE] * term(b, FM_TERM_BACKBONE) +
                               scale[FM_TERM_SIDE_CHAIN] * term(b, FM_TERM_SIDE_CHAIN)},
                  {"supervised_chi", term(b, FM_TERM_TORSION)},
                  {"plddt_loss", term(b, FM_TERM_PLDDT)},
                  {"experimentally_resolved", term(b, FM_TERM_RESOLVED)},
                  {"tm", term(b, FM_TERM_ALIGNED_ERROR)},
                  {"violation", term(b, FM_TERM_VIOLATION)},
                  {"distogram", term(b, FM_TERM_DISTOGRAM)},
                  {"masked_msa", term(b, FM_TERM_MASKED_MSA)},
                  {"loss", scalar(b, b->sm.total)}};
    worst w = {0};
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        double expected = value(need(&b->in, "loss/", losses[i].name), 0);
        note(&w, losses[i].name, fabs(losses[i].got - expected) / fmax(fabs(expected), 1e-3));
    }
    report(b, "losses", &w, OUTPUT_GATE);
}

/* A bias that all keys of a softmax share has no effect. */
static bool is_truly_zero(const char *name) {
    return strstr(name, "msa_att_row.layer_norm_z.bias") || strstr(name, "ipa.linear_b.bias");
}

/* Compares dL/dm and dL/dz behind each block of a stack. */
static void compare_cotangents_of(bench *b, worst *w, const char *stack, int32_t count,
                                  int32_t first, weight rows) {
    static const char *const nodes[] = {"msa transition", "pair transition"};
    double floor = GRADIENT_FLOOR * value(need(&b->in, "clip/", "total_norm"), 0);
    char key[128];
    for (int32_t i = 0; i < 2 * count; i++) {
        snprintf(key, sizeof key, "dact/%s.blocks.%d@%d.%d", stack, (int)i / 2, b->in.n_cycle - 1,
                 (int)i % 2);
        const fm_npy *array = fm_npz_find(&b->in.file, key);
        fm_tensor_ref tensor = find_output(b, nodes[i % 2], first + i / 2);
        if (array && fm_tape_tensor(&b->last, tensor)->gradient != FM_TENSOR_NONE) {
            compare(b, w, key, fm_tape_gradient(&b->last, tensor), array, i % 2 ? PAIR : rows,
                    floor);
        }
    }
}

static void compare_cotangents(bench *b) {
    const fm_model_config *c = &b->in.config;
    worst w = {0};
    if (ends_half_a_block(b, "pair transition")) {
        compare_cotangents_of(b, &w, "extra_msa_stack", c->n_extra_block, 0, EXTRA);
        compare_cotangents_of(b, &w, "evoformer", c->n_block, c->n_extra_block, MSA);
        report(b, "cotangents", &w, GRADIENT_GATE);
    }
}

static void compare_gradients(bench *b) {
    worst w = {0};
    double norm = value(need(&b->in, "clip/", "total_norm"), 0);
    for (int32_t p = 0; p < b->params.n_param; p++) {
        const fm_param *row = &b->params.param[p];
        compare(b, &w, row->openfold, (const float *)b->params.gradient + row->offset,
                need(&b->in, "grad/", row->openfold), ALL,
                norm * (is_truly_zero(row->openfold) ? ZERO_FLOOR : GRADIENT_FLOOR));
    }
    report(b, "gradients", &w, GRADIENT_GATE);
}

static bool same_on_all_ranks(const bench *b) {
    size_t bytes = (size_t)b->params.n_element * sizeof(float);
    bool same = true;
    for (int r = 1; r < b->n_rank; r++)
        same &= !memcmp(b->rank[r]->params.master, b->params.master, bytes);
    if (b->meeting) {
        float *own = malloc(bytes);
        assert(own);
        b->kernels->download(NULL, own, b->params.master, bytes);
        b->kernels->synchronize(NULL);
        uint64_t digest = fm_xxh3(own, bytes), all[MAX_RANK] = {0};
        same = !fm_meeting_gather(b->meeting, &digest, sizeof digest, all, GPU_RANKS_S, NULL);
        for (int r = 0; r < fm_meeting_size(b->meeting); r++)
            same &= all[r] == digest;
        free(own);
    }
    return same;
}

/* Compares one step: the norm before clipping, and the parameters and their moving average after
 * it. */
static void compare_step(bench *b) {
    worst norm = {0}, post = {0}, ema = {0};
    if (!b->finite) {
        printf("the gradient is not finite\n");
        b->failed = true;
        return;
    }
    double expected = value(need(&b->in, "clip/", "total_norm"), 0);
    double got = sqrt(fm_optimizer_get_state(&b->optimizer, NULL).norm_squared);
    note(&norm, "total_norm", fabs(got - expected) / expected);
    for (int32_t p = 0; p < b->params.n_param; p++) {
        const fm_param *row = &b->params.param[p];
        compare(b, &post, row->openfold, (const float *)b->params.master + row->offset,
                need(&b->in, "post/", row->openfold), ALL, 1e-3);
        compare(b, &ema, row->openfold, (const float *)b->params.ema + row->offset,
                need(&b->in, "ema/", row->openfold), ALL, 1e-3);
    }
    report(b, "clip norm", &norm, OUTPUT_GATE);
    report(b, "parameters", &post, OUTPUT_GATE);
    report(b, "ema", &ema, OUTPUT_GATE);
    if (b->n_rank > 1 || b->meeting) {
        bool same = same_on_all_ranks(b);
        printf("parameters of all %d ranks: %s\n",
               b->meeting ? (int)fm_meeting_size(b->meeting) : b->n_rank,
               same ? "the same bits" : "not the same FAIL");
        b->failed |= !same;
    }
}

/* Compares the size of the dry run with the memory that the real walks used. */
static void compare_memory(bench *b) {
    for (int r = 0; r < b->n_rank; r++) {
        const fm_tape *tape = &b->rank[r]->last;
        long long used = (long long)fm_tape_used_bytes(tape), planned = tape->size.arena_bytes;
        bool ok = used == planned;
        printf("memory       rank %d: %lld bytes planned, %lld used %s\n", r, planned, used,
               ok ? "ok" : "FAIL");
        b->failed |= !ok;
    }
}

/* The table has all parameters of the file, and no others. */
static void compare_names(bench *b) {
    int32_t in_file = 0;
    for (size_t i = 0; i < b->in.file.n_array; i++)
        in_file += !strncmp(b->in.file.arrays[i].name, "w/", 2);
    printf("parameters of the table %d, of the file %d %s\n", (int)b->params.n_param, (int)in_file,
           in_file == b->params.n_param ? "ok" : "FAIL");
    b->failed |= in_file != b->params.n_param;
}

/* -- running */

static void *run_forward(void *argument) {
    bench *b = argument;
    load_parameters(b);
    for (int c = 0; c < b->in.n_cycle; c++) {
        bool last = c + 1 == b->in.n_cycle;
        load_trunk(&b->in, c);
        load_truth(&b->in, &b->sm, c);
        send_inputs(&b->in);
        fm_tape_forward(last ? &b->last : &b->cycle, NULL);
    }
    return NULL;
}

static void *run_backward(void *argument) {
    bench *b = argument;
    fm_tape_clear_unwritten(&b->last, NULL);
    fm_tape_backward(&b->last, NULL);
    if (b->in.config.groups) {
        fm_comm_sum(b->in.config.groups->sample, b->params.n_element, b->params.gradient,
                    b->scratch, SCRATCH, NULL);
    }
    return NULL;
}

static void *run_step(void *argument) {
    bench *b = argument;
    b->finite = fm_optimizer_add_sample(&b->optimizer, NULL);
    if (b->finite) fm_optimizer_step(&b->optimizer, NULL);
    return NULL;
}

/* Runs `work` on every rank at the same time. */
static void run_on_all(bench *b, void *(*work)(void *)) {
    pthread_t threads[MAX_RANK];
    for (int r = 0; r < b->n_rank; r++) {
        int failed = pthread_create(&threads[r], NULL, work, b->rank[r]);
        assert(!failed);
        (void)failed;
    }
    for (int r = 0; r < b->n_rank; r++)
        pthread_join(threads[r], NULL);
}

static void run(bench *b) {
    compare_names(b);
    run_on_all(b, run_forward);
    compare_activations(b);
    compare_outputs(b);
    compare_losses(b);
    run_on_all(b, run_backward);
    compare_cotangents(b);
    compare_gradients(b);
    run_on_all(b, run_step);
    compare_step(b);
    compare_memory(b);
}

/* -- the program */

typedef struct settings {
    const char *device, *backend, *config, *file;
    fm_layout layout;
} settings;

static void usage(FILE *out) {
    fprintf(out, "usage: model_parity [--device cpu|cuda] [--dap D] [--bp B] "
                 "[--backend peer|nccl|shm] CONFIG.json FILE.npz\n");
}

/* Returns the index of the first positional argument, or 0 after printing the usage. */
static int parse_options(int argc, char **argv, settings *ret_set) {
    static const struct option options[] = {{"device", required_argument, NULL, 'd'},
                                            {"dap", required_argument, NULL, 'a'},
                                            {"bp", required_argument, NULL, 'b'},
                                            {"backend", required_argument, NULL, 'c'},
                                            {0}};
    *ret_set = (settings){.device = "cpu", .backend = "peer", .layout = {1, 1, 1}};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'a': ret_set->layout.dap = atoi(optarg); break;
        case 'b': ret_set->layout.bp = atoi(optarg); break;
        case 'c': ret_set->backend = optarg; break;
        case 'd': ret_set->device = optarg; break;
        default: usage(stderr); return 0;
        }
    }
    bool is_cpu = strcmp(ret_set->device, "cpu") == 0;
    bool processes = !is_cpu || strcmp(ret_set->backend, "peer") != 0;
    if (argc - optind != 2) {
        usage(stderr);
        return 0;
    }
    if (processes && ret_set->layout.bp != 1) {
        fprintf(stderr,
                "model_parity: --bp %d: only ranks that are threads (--device cpu) put the "
                "parts of branches together\n",
                ret_set->layout.bp);
        return 0;
    }
    return optind;
}

/* Builds all ranks of this process on one file. */
static fm_status build_ranks(bench *first, const fm_npz *file, const char *config,
                             const fm_groups *const *groups, int n_rank, fm_error *error) {
    fm_status status = FM_OK;
    first->n_rank = n_rank;
    for (int r = 0; r < n_rank && !status; r++) {
        bench *b = r ? calloc(1, sizeof *b) : first;
        assert(b);
        first->rank[r] = b;
        b->in.prefix = "in/";
        b->in.file = *file;
        b->kernels = first->kernels;
        read_config(b, config, groups[r]);
        status = b->in.config.order == FM_ORDER_ORIGINAL && !fm_split_has_pair(&b->in.config)
                     ? fm_fail(error, FM_ERR_USAGE,
                               "--bp 2: the original order of a block has no "
                               "two branches to run side by side")
                     : build(b, error);
        if (!status) status = share_memory(b, error);
    }
    return status;
}

static int run_process(const settings *set, fm_meeting *meeting) {
    bench *b = calloc(1, sizeof *b);
    assert(b);
    b->meeting = meeting;
    fm_arena file_arena = {0};
    fm_npz npz;
    ways w = {0};
    const fm_groups *groups[MAX_RANK] = {0};
    int n_rank = 0;
    fm_error error = {0};
    fm_status status = fm_device_find(set->device, "fp32", &b->kernels, &error);
    if (status) {
        fprintf(stderr, "model_parity: %s\n", error.message);
        free(b);
        return status == FM_ERR_UNSUPPORTED ? FM_TEST_SKIPPED : 2;
    }
    status =
        open_ways(&w, &set->layout, set->backend, b->kernels, meeting, groups, &n_rank, &error);
    if (!status) status = open_npz(&file_arena, set->file, &npz, &error);
    if (!status) status = build_ranks(b, &npz, set->config, groups, n_rank, &error);
    if (!status) {
        run(b);
        status = check_ways(&w, &error);
        printf("parity: %s\n", b->failed || status ? "FAIL" : "ok");
    }
    if (status) fprintf(stderr, "model_parity: %s: %s\n", set->file, error.message);
    bool good = !status && !b->failed;
    close_ways(&w);
    for (int r = b->n_rank - 1; r >= 0; r--) {
        if (b->rank[r]) close_bench(b->rank[r]);
        free(r ? b->rank[r] : NULL);
    }
    free(b);
    fm_arena_fini(&file_arena);
    return good ? 0 : 1;
}

/* A rank that is a process; the first one prints. */
static int run_rank(int32_t rank, const char *address, void *context) {
    const settings *set = context;
    fm_meeting *meeting = NULL;
    fm_error error = {0};
    if (rank > 0 && !freopen("/dev/null", "w", stdout)) return 1;
    if (fm_meeting_open(&meeting, address, rank, set->layout.dap, ranks_s(set->device), &error)) {
        fprintf(stderr, "model_parity: %s\n", error.message);
        return 1;
    }
    int result = run_process(set, meeting);
    fm_meeting_close(meeting);
    return result;
}

int main(int argc, char **argv) {
    char config[1024], file[1024];
    settings set;
    int at = parse_options(argc, argv, &set), exits[FM_TEST_RANKS];
    if (!at) return 2;
    if (!locate(argv[at], config, sizeof config) || !locate(argv[at + 1], file, sizeof file)) {
        return FM_TEST_SKIPPED;
    }
    set.config = config;
    set.file = file;
    bool processes = are_processes(set.device, set.backend, set.layout.dap);
    return processes ? fm_test_run_ranks(set.layout.dap, run_rank, &set, ranks_s(set.device), exits)
                     : run_process(&set, NULL);
}
