/* model_parity.c: the model against one run of the reference.
 *
 *     model_parity CONFIG.json FILE.npz
 *
 * FILE.npz holds a run's inputs, parameters, activations, gradients (keys in/ w/ act/ dact/ grad/
 * out/ loss/), CONFIG.json its sizes. Paths that are not there as given are looked for below
 * $FM_REFERENCE_DATA; without either the program exits with 77.
 *
 * What is run: every recycling cycle, each from what the one before left, backward from all losses
 * through the last one, and one step of the optimiser. One line a group: the worst relative error
 * ||a - b|| / ||b|| of its arrays, which array, the gate; last line "parity: ok" or "parity: FAIL".
 *
 * Masked positions are left out: values there depend on the precision. Gradients that are truly
 * zero are rounding noise in the file and compared absolutely. */
#include "tests/trainer/parity_structure.h"

#include "trainer/optim/optimizer.h"

static const double OUTPUT_GATE = 1e-5, GRADIENT_GATE = 1e-4;
/* Of the norm of all gradients: the least divisor, and that of gradients known to be zero. */
static const double GRADIENT_FLOOR = 1e-6, ZERO_FLOOR = 1e-4;

typedef struct bench {
    parity in;
    fm_arena arena, file_arena;
    const fm_kernels *kernels;
    fm_params params;
    fm_model_weights weights;
    structure_part sm;
    fm_tape cycle, last;
    fm_model_outputs out; /* on `last` */
    fm_optimizer optimizer;
    void *memory;
    bool failed;
} bench;

/* ---- building -------------------------------------------------------------------------------- */

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

static void read_config(bench *b, const char *path) {
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
    read_structure_config(json, &b->in, &b->sm);
    fm_test_json_close(json);
    assert(b->in.n_cycle >= 1 && b->in.n_cycle <= MAX_CYCLE);
}

static fm_status record(bench *b, fm_error *error) {
    fm_tape *tape = &b->last;
    fm_status status = fm_tape_init(&b->cycle, b->kernels, &b->params, &b->in.state, false, error);
    if (!status) {
        status = fm_tape_init(tape, b->kernels, &b->params, &b->in.state, true, error);
    }
    if (status) {
        return status;
    }
    fm_model_record_cycle(&b->cycle, &b->in.config, &b->weights, &b->in.inputs, true);
    b->out = fm_model_record_cycle(tape, &b->in.config, &b->weights, &b->in.inputs, false);
    record_losses(tape, &b->in, &b->sm, &b->out, &b->weights);
    for (int32_t n = 0; n < tape->n_node; n++) { /* everything is looked at */
        for (int i = 0; i < tape->node[n].n_output; i++) {
            fm_tape_keep(tape, tape->node[n].output[i]);
        }
    }
    status = fm_tape_plan(&b->cycle, error);
    return status ? status : fm_tape_plan(tape, error);
}

static fm_status build(bench *b, fm_error *error) {
    b->kernels = fm_kernels_cpu(FM_ELEMENT_F32);
    fm_status status = fm_arena_init(&b->arena, (size_t)1 << 28, error);
    if (!status) {
        status = fm_params_init(&b->params, FM_MAX_PARAM, &b->arena, error);
    }
    if (!status) {
        fm_model_add_parameters(&b->params, &b->arena, &b->in.config, &b->weights);
        status = fm_params_allocate(&b->params, b->kernels, error);
    }
    if (!status) {
        declare_trunk(&b->in, b->kernels);
        declare_losses(&b->in, &b->sm, b->kernels);
        status = fm_state_allocate(&b->in.state, b->kernels, error);
    }
    if (!status) {
        status = record(b, error);
    }
    const fm_optimizer_options options = {.rate = 1e-3,
                                          .beta1 = 0.9,
                                          .beta2 = 0.999,
                                          .eps = 1e-5,
                                          .ema_decay = 0.999,
                                          .clip_norm = 0.1,
                                          .decay_factor = 1};
    if (!status) {
        status = fm_optimizer_init(&b->optimizer, &b->params, &options, error);
    }
    if (!status) {
        fm_structure_upload_tables(&b->in.state, &b->in.inputs.tables);
        int64_t one = b->cycle.size.arena_bytes, other = b->last.size.arena_bytes;
        b->memory = b->kernels->alloc((size_t)(one > other ? one : other));
        assert(b->memory);
        fm_tape_bind(&b->cycle, b->memory);
        fm_tape_bind(&b->last, b->memory);
    }
    return status;
}

static void close_bench(bench *b) {
    fm_optimizer_fini(&b->optimizer);
    fm_tape_fini(&b->last);
    fm_tape_fini(&b->cycle);
    if (b->kernels) {
        b->kernels->release(b->memory);
    }
    fm_state_release(&b->in.state);
    fm_params_release(&b->params);
    fm_arena_fini(&b->arena);
    fm_arena_fini(&b->file_arena);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* Every parameter of the table, by its OpenFold name. */
static void load_parameters(bench *b) {
    float *master = b->params.master;
    for (int32_t p = 0; p < b->params.n_param; p++) {
        const fm_param *row = &b->params.param[p];
        const fm_npy *array = need(&b->in, "w/", row->openfold);
        assert((int64_t)array->count == fm_param_count(row));
        for (int64_t i = 0; i < (int64_t)array->count; i++) {
            master[row->offset + i] = (float)value(array, i);
        }
    }
    b->kernels->copy(NULL, b->params.n_element, master, b->params.ema);
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Which positions of an array [.., c] count. */
typedef enum weight { ALL, MSA, EXTRA, PAIR } weight;

typedef struct worst {
    double error;
    char name[160];
    int count;
} worst;

static double weight_at(const bench *b, weight kind, int64_t position) {
    switch (kind) {
    case MSA: return ((const float *)data_of(&b->in, b->in.inputs.msa_mask))[position];
    case EXTRA: return ((const float *)data_of(&b->in, b->in.inputs.extra_msa_mask))[position];
    case PAIR: return ((const float *)data_of(&b->in, b->in.inputs.pair_mask))[position];
    default: return 1;
    }
}

static void note(worst *w, const char *name, double error) {
    if (!(error <= w->error) || w->count == 0) { /* not-a-number is the worst */
        w->error = error;
        snprintf(w->name, sizeof w->name, "%s", name);
    }
    w->count++;
}

static void compare(const bench *b, worst *w, const char *name, const float *data,
                    const fm_npy *array, weight kind, double floor) {
    int64_t c = array->rank ? (int64_t)array->shape[array->rank - 1] : 1;
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < (int64_t)array->count; i++) {
        double expected = value(array, i), counts = weight_at(b, kind, kind == ALL ? 0 : i / c);
        difference += counts * ((double)data[i] - expected) * ((double)data[i] - expected);
        norm += counts * expected * expected;
    }
    note(w, name, sqrt(difference) / fmax(sqrt(norm), floor));
}

/* [.., N_res, row]: leading axes, e.g. iterations; `scale` for the file's element k % row >= from.
 */
static void compare_residues(const bench *b, worst *w, const char *name, const float *data,
                             const fm_npy *array, int64_t row, int64_t from, double scale) {
    const float *mask = data_of(&b->in, b->in.inputs.seq_mask);
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < (int64_t)array->count; i++) {
        double counts = mask[i / row % b->in.config.n_res], expected = value(array, i);
        double e = (double)data[i] * (i % row >= from ? scale : 1) - expected;
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

/* Output of the `nth` node of that name on the last cycle's tape. */
static const float *probe(const bench *b, const char *node, int nth) {
    for (int32_t n = 0; n < b->last.n_node; n++) {
        if (!strcmp(b->last.node[n].name, node) && nth-- == 0) {
            return fm_tape_data(&b->last, b->last.node[n].output[0]);
        }
    }
    fprintf(stderr, "model_parity: no node %s on the tape\n", node);
    exit(1);
}

/* An activation of the reference, where the file has it. */
static void compare_activation(const bench *b, worst *w, const char *key, const char *node, int nth,
                               int64_t skip, weight kind) {
    const fm_npy *array = fm_npz_find(&b->in.file, key);
    if (array) {
        compare(b, w, key, probe(b, node, nth) + skip, array, kind, 1e-3);
    }
}

static void compare_blocks(const bench *b, worst *w, const char *stack, int32_t count,
                           int32_t first, weight rows) {
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
        compare_activation(b, &w, key, "template pair embedder", t, 0, PAIR);
    }
    snprintf(key, sizeof key, "act/template_embedder@%d.template_single_embedding", at);
    compare_activation(b, &w, key, "template torsion rows", 0, c->n_seq * c->n_res * c->c_m, ALL);
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

static double term(const bench *b, int which) {
    return *(const float *)fm_tape_data(&b->last, b->sm.term[which]);
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
                  {"distogram", term(b, TERM_DISTOGRAM)},
                  {"masked_msa", term(b, TERM_MASKED_MSA)},
                  {"loss", *(const float *)fm_tape_data(&b->last, b->sm.total)}};
    worst w = {0};
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        double expected = value(need(&b->in, "loss/", losses[i].name), 0);
        note(&w, losses[i].name, fabs(losses[i].got - expected) / fmax(fabs(expected), 1e-3));
    }
    report(b, "losses", &w, OUTPUT_GATE);
}

/* A bias that all keys of a softmax share changes nothing. */
static bool is_truly_zero(const char *name) {
    return strstr(name, "msa_att_row.layer_norm_z.bias") || strstr(name, "ipa.linear_b.bias");
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

/* One step: the norm before clipping, parameters and their moving average after it. */
static void compare_step(bench *b) {
    worst norm = {0}, post = {0}, ema = {0};
    if (!fm_optimizer_add_sample(&b->optimizer, NULL)) {
        printf("the gradient is not finite\n");
        b->failed = true;
        return;
    }
    double expected = value(need(&b->in, "clip/", "total_norm"), 0);
    double got = sqrt(fm_optimizer_get_state(&b->optimizer, NULL).norm_squared);
    note(&norm, "total_norm", fabs(got - expected) / expected);
    fm_optimizer_step(&b->optimizer, NULL);
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
}

/* The file's parameters are all in the table, and no others. */
static void compare_names(bench *b) {
    int32_t in_file = 0;
    for (size_t i = 0; i < b->in.file.n_array; i++) {
        in_file += !strncmp(b->in.file.arrays[i].name, "w/", 2);
    }
    printf("parameters of the table %d, of the file %d %s\n", (int)b->params.n_param, (int)in_file,
           in_file == b->params.n_param ? "ok" : "FAIL");
    b->failed |= in_file != b->params.n_param;
}

static void run(bench *b) {
    load_parameters(b);
    compare_names(b);
    for (int c = 0; c < b->in.n_cycle; c++) {
        bool last = c + 1 == b->in.n_cycle;
        load_trunk(&b->in, c);
        load_truth(&b->in, &b->sm, c);
        fm_tape_forward(last ? &b->last : &b->cycle, NULL);
    }
    compare_activations(b);
    compare_outputs(b);
    compare_losses(b);
    fm_tape_backward(&b->last, NULL);
    compare_gradients(b);
    compare_step(b);
}

/* ---- the program ----------------------------------------------------------------------------- */

int main(int argc, char **argv) {
    char config[1024], file[1024];
    if (argc != 3) {
        fprintf(stderr, "usage: model_parity CONFIG.json FILE.npz\n");
        return 2;
    }
    if (!locate(argv[1], config, sizeof config) || !locate(argv[2], file, sizeof file)) {
        return FM_TEST_SKIPPED;
    }
    bench *b = calloc(1, sizeof *b);
    assert(b);
    b->in.prefix = "in/";
    fm_error error = {0};
    fm_status status = open_npz(&b->file_arena, file, &b->in.file, &error);
    if (!status) {
        read_config(b, config);
        status = build(b, &error);
    }
    if (status) {
        fprintf(stderr, "model_parity: %s: %s\n", file, error.message);
    } else {
        run(b);
        printf("parity: %s\n", b->failed ? "FAIL" : "ok");
    }
    bool good = !status && !b->failed;
    close_bench(b);
    free(b);
    return good ? 0 : 1;
}
