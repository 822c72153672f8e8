/* model_parity_full.c: compares the full-size model with the reference.
 *
 *     model_parity_full [--device cpu|cuda] [--dtype fp32|bf16] [--dap D] [--backend NAME]
 *                       [--blocks N] [--inject-bins] [--verbose] [FOLDER]
 *
 * FOLDER (full/ below $FM_REFERENCE_DATA) has full_inputs.npz, full_golden.npz and
 * full_config.json: 256 residues, 124 clusters, 1024 extra rows, 4 templates, AlphaFold2's own
 * widths. A formula over the OpenFold name of each parameter gives its values. Samples of each
 * array, at places that follow from its key, are compared with the reference's float64 run:
 * relative L2 over those at real positions. The program prints one line per group with its worst
 * array and the gate. The last line is "parity: ok" or "parity: FAIL".
 *
 * --blocks N (1 to 47) runs the embedders, templates, extra MSA and the first N Evoformer blocks of
 * the cycle without gradient. All 48 blocks, the default, are one training step: a cycle without
 * gradient, one with all losses, backward, clipping, Adam and the moving average. With
 * --inject-bins the second cycle starts from the positions that the reference predicted, so that
 * distances near the edge of a bin do not matter; without it the positions are our own. The option
 * --dap D (1, 2, 4 or 8) splits the model over D ranks: threads of this process on the CPU, or
 * processes with --backend shm; processes with a GPU each on GPUs. The first process prints. The
 * program puts split arrays together to compare them.
 *
 * In bf16 the error of an activation or a gradient is given in units of the error that the
 * reference's own bf16 run has in that array. Activations must stay within 2 of these units;
 * gradients are only reported, since the reference's own differ from the truth by a fifth. That run
 * used the recycled distance classes of the reference, so --inject-bins is implied. The program
 * exits with 77 where the files or the device do not exist. */
#include "tests/trainer/parity/parity_full.h"

#include "tests/testing/ranks.h"
#include "tests/trainer/parity/parity_ways.h"
#include "tests/testing/model_configs.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/dist/sum.h"

#include <pthread.h>

#include <time.h>

/* -- comparing */

static bool is_bf16(const full *f) {
    return f->kernels->act == FM_ELEMENT_BF16;
}

static void note(full *f, group_id id, const char *key, double error) {
    note_in(&f->group[id], key, error, f->arguments->verbose);
}

/* Notes an error; in bf16 in units of the error of the reference's bf16 run, line `at` of `noise`.
 */
static void note_noise(full *f, group_id id, const char *key, double error, const char *noise,
                       int64_t at) {
    double unit = is_bf16(f) ? value(golden(&f->golden, noise), at) : 1;
    note(f, id, key, error / unit);
}

/* Returns a copy of device memory as f32; the caller frees it. */
static float *fetch(const full *f, fm_element element, const void *device, uint64_t count) {
    float *copy = malloc((size_t)count * sizeof *copy);
    uint16_t *narrow = element == FM_ELEMENT_BF16 ? malloc((size_t)count * sizeof *narrow) : NULL;
    assert(copy && (narrow || element == FM_ELEMENT_F32));
    f->kernels->download(NULL, narrow ? (void *)narrow : copy, device,
                         (size_t)count * fm_element_bytes(element));
    f->kernels->synchronize(NULL);
    for (uint64_t i = 0; narrow && i < count; i++)
        copy[i] = from_bf16(narrow[i]);
    free(narrow);
    return copy;
}

/* Gathers `bytes` of every rank that is a process; the caller frees them. */
static void *gather_all(const full *f, const void *own, size_t bytes) {
    char *all = malloc(bytes * (size_t)f->arguments->dap);
    fm_error error = {0};
    if (!all ||
        fm_meeting_gather(f->meeting, own, bytes, all, ranks_s(f->arguments->device), &error)) {
        fprintf(stderr, "model_parity_full: cannot gather %zu bytes: %s\n", bytes, error.message);
        exit(1);
    }
    return all;
}

static const void *data_in(const fm_tape *tape, fm_tensor_ref ref, bool gradient) {
    return gradient ? fm_tape_gradient(tape, ref) : fm_tape_data(tape, ref);
}

/* The same as `whole`, where the other ranks are processes. */
static float *whole_of_processes(const full *f, const fm_tape *tape, fm_tensor_ref ref,
                                 bool gradient) {
    fm_tensor t = *fm_tape_tensor(tape, ref);
    uint64_t local = (uint64_t)fm_tensor_local_count(&t);
    float *own = fetch(f, t.element, data_in(tape, ref, gradient), local);
    if (t.shard_count == 1) return own;
    float *all = gather_all(f, own, local * sizeof *own);
    float *out = malloc(local * (uint64_t)t.shard_count * sizeof *out);
    assert(out);
    for (int p = 0; p < t.shard_count; p++) {
        t.shard_rank = p;
        put_part(&t, all + (uint64_t)p * local, out);
    }
    free(own);
    free(all);
    return out;
}

/* Returns a copy of a tensor or of its gradient, put together where it is split over ranks. */
static float *whole(const full *f, const fm_tape *tape, fm_tensor_ref ref, bool gradient) {
    if (f->meeting) return whole_of_processes(f, tape, ref, gradient);
    const fm_tensor *t = fm_tape_tensor(tape, ref);
    uint64_t local = (uint64_t)fm_tensor_local_count(t);
    float *out = malloc(local * (uint64_t)t->shard_count * sizeof *out);
    assert(out);
    for (int p = 0; p < t->shard_count; p++) {
        const full *rank = f->rank[p];
        const fm_tape *its = tape == &f->last.tape ? &rank->last.tape : &rank->first.tape;
        float *part = fetch(f, t->element, data_in(its, ref, gradient), local);
        put_part(fm_tape_tensor(its, ref), part, out);
        free(part);
    }
    return out;
}

/* The layout of one of our arrays on the host: `parts` tensors that follow each other, or a slice
 * of one. Values from `scaled_from` on in a row are multiplied. compare frees the parts. */
typedef struct layout {
    float *part[N_PARTS];
    int n_part;
    int64_t skip; /* elements before it */
    int64_t row, scaled_from;
    double scale;
} layout;

static layout whole_of(float *data) {
    return (layout){.part = {data}, .n_part = 1, .row = 1, .scaled_from = 1, .scale = 1};
}

static layout value_of(const full *f, const fm_tape *tape, fm_tensor_ref ref) {
    return whole_of(whole(f, tape, ref, false));
}

static void compare_line(full *f, group_id id, const char *key, int64_t at, const layout *ours) {
    const int32_t *shape = (const int32_t *)golden(&f->golden, "act_shape")->data + 8 * at;
    const fm_npy *samples = golden(&f->golden, "act_samples_f64");
    unsigned axes = ((const uint8_t *)golden(&f->golden, "act_res_axes")->data)[at];
    uint64_t count = 1, hash = fnv1a(key);
    for (int d = 0; d < 8; d++)
        count *= shape[d] ? (uint64_t)shape[d] : 1;
    uint64_t each = count / (uint64_t)ours->n_part;
    distance sum = {0};
    for (int64_t j = 0; j < N_ACT_SAMPLE; j++) {
        uint64_t flat = splitmix(hash + (uint64_t)j) % count;
        if (is_real(shape, axes, flat)) {
            bool scaled = (int64_t)flat % ours->row >= ours->scaled_from;
            const float *data = ours->part[flat / each] + ours->skip;
            add_sample(&sum, (double)data[flat % each] * (scaled ? ours->scale : 1),
                       value(samples, at * N_ACT_SAMPLE + j));
        }
    }
    note_noise(f, id, key, relative(&sum), "act_noise_bf16", at);
}

/* Compares an array of the reference, where the file has it. */
static void compare(full *f, group_id id, const char *key, const layout *ours) {
    int64_t at = line_of(golden(&f->golden, "act_names"), key);
    if (at >= 0) compare_line(f, id, key, at, ours);
    for (int p = 0; p < ours->n_part; p++)
        free(ours->part[p]);
}

static void compare_node(full *f, group_id id, const char *key, const fm_tape *tape,
                         const char *node, int nth) {
    if (line_of(golden(&f->golden, "act_names"), key) >= 0) {
        layout ours = value_of(f, tape, find(tape, node, nth));
        compare(f, id, key, &ours);
    }
}

static void compare_blocks(full *f, const fm_tape *tape, int cycle, const char *stack, int count,
                           int first, group_id m) {
    char key[128];
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "act/c%d/%s.blocks.%d.m", cycle, stack, i);
        compare_node(f, m, key, tape, "msa transition", first + i);
        snprintf(key, sizeof key, "act/c%d/%s.blocks.%d.z", cycle, stack, i);
        compare_node(f, m + 1, key, tape, "pair transition", first + i);
    }
}

static void compare_template_stack(full *f, const fm_tape *tape, int cycle) {
    const fm_model_config *c = &f->in.config;
    char key[128];
    for (int block = 0; block < c->n_template_block; block++) {
        layout ours = whole_of(NULL);
        ours.n_part = templates_are_together(f) ? 1 : (int)c->n_template;
        for (int t = 0; t < ours.n_part; t++) {
            int nth = t * c->n_template_block + block;
            ours.part[t] = whole(f, tape, find(tape, "template transition", nth), false);
        }
        snprintf(key, sizeof key, "act/c%d/template_embedder.template_pair_stack.blocks.%d.t",
                 cycle, block);
        compare(f, G_TEMPLATES, key, &ours);
    }
}

static void compare_trunk(full *f, const fm_tape *tape, int cycle) {
    const fm_model_config *c = &f->in.config;
    char key[128];
    snprintf(key, sizeof key, "act/c%d/input_embedder.m", cycle);
    compare_node(f, G_EMBEDDERS, key, tape, "input msa", 0);
    snprintf(key, sizeof key, "act/c%d/input_embedder.z", cycle);
    compare_node(f, G_EMBEDDERS, key, tape, "input pair", 0);
    for (int t = 0; t < c->n_template; t++) {
        snprintf(key, sizeof key, "act/c%d/template_embedder.template_pair_embedder@%d.t", cycle,
                 t);
        bool together = templates_are_together(f);
        layout pairs = value_of(f, tape, find(tape, "template pair embedder", together ? 0 : t));
        pairs.skip = together ? t * c->n_res * c->n_res * c->c_t : 0;
        compare(f, G_TEMPLATES, key, &pairs);
    }
    compare_template_stack(f, tape, cycle);
    snprintf(key, sizeof key, "act/c%d/template_embedder.template_single_embedding", cycle);
    layout rows = value_of(f, tape, find(tape, "template torsion rows", 0));
    rows.skip = c->n_seq * c->n_res * c->c_m;
    compare(f, G_TEMPLATES, key, &rows);
    snprintf(key, sizeof key, "act/c%d/extra_msa_embedder.m", cycle);
    compare_node(f, G_EXTRA_M, key, tape, "extra msa embedder", 0);
    compare_blocks(f, tape, cycle, "extra_msa_stack", c->n_extra_block, 0, G_EXTRA_M);
    compare_blocks(f, tape, cycle, "evoformer", c->n_block, c->n_extra_block, G_EVOFORMER_M);
}

/* Compares slice i of a tensor of all iterations. */
static void compare_iteration(full *f, const char *key, const fm_tape *tape, fm_tensor_ref tensor,
                              int i, int64_t row, int64_t scaled_from) {
    layout ours = value_of(f, tape, tensor);
    ours.skip = i * f->in.config.n_res * row;
    ours.row = row;
    ours.scaled_from = scaled_from;
    ours.scale = f->in.config.structure.position_scale;
    compare(f, G_STRUCTURE, key, &ours);
}

static void compare_structure(full *f, const pass *p, int cycle) {
    const fm_structure_outputs *o = &p->out.structure;
    char key[128];
    snprintf(key, sizeof key, "act/c%d/evoformer.s", cycle);
    compare_node(f, G_EVOFORMER_M, key, &p->tape, "single", 0);
    for (int i = 0; i < f->in.config.structure.n_iteration; i++) {
        snprintf(key, sizeof key, "act/c%d/structure_module.transition@%d.s", cycle, i);
        compare_node(f, G_STRUCTURE, key, &p->tape, "transition norm", i);
        snprintf(key, sizeof key, "act/c%d/structure_module.bb_update@%d.u", cycle, i);
        compare_node(f, G_STRUCTURE, key, &p->tape, "backbone update",
                     2 * i); /* then the frame's */
        snprintf(key, sizeof key, "act/c%d/structure_module.frames.%d", cycle, i);
        compare_iteration(f, key, &p->tape, o->frames, i, 7, 4);
        snprintf(key, sizeof key, "act/c%d/structure_module.angles.%d", cycle, i);
        compare_iteration(f, key, &p->tape, o->angles, i, 14, 14);
        snprintf(key, sizeof key, "act/c%d/structure_module.unnormalized_angles.%d", cycle, i);
        compare_iteration(f, key, &p->tape, o->unnormalised, i, 14, 14);
    }
    snprintf(key, sizeof key, "act/c%d/structure_module.positions.%d", cycle,
             f->in.config.structure.n_iteration - 1);
    compare_iteration(f, key, &p->tape, o->atoms.atoms, 0, 42, 42);
}

static double scalar(const full *f, fm_tensor_ref tensor) {
    const fm_tape *tape = &f->last.tape;
    float *one = fetch(f, fm_tape_tensor(tape, tensor)->element, fm_tape_data(tape, tensor), 1);
    double got = (double)*one;
    free(one);
    return got;
}

static void compare_heads_and_losses(full *f) {
    const fm_tape *tape = &f->last.tape;
    const double *weight = f->sm.weight;
    double t[FM_LOSS_TERMS];
    compare_node(f, G_HEADS, "out/lddt_logits", tape, "plddt head", 0);
    compare_node(f, G_HEADS, "out/experimentally_resolved_logits", tape, "experimentally resolved",
                 0);
    compare_node(f, G_HEADS, "out/tm_logits", tape, "aligned error", 0);
    for (int i = 0; i < FM_LOSS_TERMS; i++)
        t[i] = scalar(f, f->sm.term[i]);
    const struct {
        const char *name;
        double got;
    } losses[] = {{"fape", weight[FM_TERM_BACKBONE] * t[FM_TERM_BACKBONE] +
                               weight[FM_TERM_SIDE_CHAIN] * t[FM_TERM_SIDE_CHAIN]},
                  {"supervised_chi", t[FM_TERM_TORSION]},
                  {"plddt_loss", t[FM_TERM_PLDDT]},
                  {"experimentally_resolved", t[FM_TERM_RESOLVED]},
                  {"tm", t[FM_TERM_ALIGNED_ERROR]},
                  {"violation", t[FM_TERM_VIOLATION]},
                  {"distogram", t[FM_TERM_DISTOGRAM]},
                  {"masked_msa", t[FM_TERM_MASKED_MSA]},
                  {"loss", scalar(f, f->sm.total)}};
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        int64_t line = line_of(golden(&f->golden, "loss_names"), losses[i].name);
        assert(line >= 0);
        double expected = value(golden(&f->golden, "loss_f64"), line);
        note(f, G_LOSSES, losses[i].name, fabs(losses[i].got - expected) / fabs(expected));
    }
}

static void compare_cotangents(full *f) {
    const fm_tape *tape = &f->last.tape;
    char key[96];
    for (int extra = 0; extra < 2; extra++) {
        int count = extra ? f->in.config.n_extra_block : f->in.config.n_block;
        for (int i = 0; i < count; i++) {
            for (int which = 0; which < 2; which++) {
                fm_tensor_ref tensor = block_input(f, tape, extra, i, "mz"[which]);
                snprintf(key, sizeof key, "dact/%s.blocks.%d.in.%c", STACKS[extra], i, "mz"[which]);
                if (tensor != FM_TENSOR_NONE &&
                    line_of(golden(&f->golden, "act_names"), key) >= 0) {
                    layout ours = whole_of(whole(f, tape, tensor, true));
                    compare(f, G_COTANGENTS, key, &ours);
                }
            }
        }
    }
    layout z = whole_of(whole(f, tape, f->last.out.z, true));
    layout s = whole_of(whole(f, tape, f->last.out.single, true));
    if (f->arguments->dap > 1) { /* gathered: each rank has its share of the gradient */
        z.scaled_from = s.scaled_from = 0;
        z.scale = s.scale = f->arguments->dap;
    }
    compare(f, G_COTANGENTS, "dact/evoformer.out.z", &z);
    compare(f, G_COTANGENTS, "dact/evoformer.out.s", &s);
}

static void download_values(full *f, const void *from) {
    f->kernels->download(NULL, f->values, from, (size_t)f->params.n_element * sizeof *f->values);
    f->kernels->synchronize(NULL);
}

static int64_t line_of_param(const full *f, const fm_param *row) {
    int64_t line = line_of(golden(&f->golden, "param_names"), row->openfold);
    assert(line >= 0);
    return line;
}

static void compare_gradients(full *f) {
    const uint8_t *zero = golden(&f->golden, "grad_is_zero")->data;
    double total = value(golden(&f->golden, "clip_total_norm_f64"), 0);
    download_values(f, f->params.gradient);
    for (int32_t p = 0; p < f->params.n_param; p++) {
        const fm_param *row = &f->params.param[p];
        int64_t line = line_of_param(f, row);
        double norm = norm_of(f->values, row),
               expected = value(golden(&f->golden, "grad_norm_f64"), line);
        if (zero[line]) {
            note(f, G_ZERO_GRADIENTS, row->openfold, norm / total);
            continue;
        }
        note(f, G_GRADIENT_NORMS, row->openfold, fabs(norm - expected) / expected);
        note_noise(f, G_GRADIENTS, row->openfold,
                   compare_samples(f->values, row, golden(&f->golden, "grad_samples_f64"), line),
                   "grad_noise_bf16", line);
    }
}

static void compare_step(full *f) {
    double expected = value(golden(&f->golden, "clip_total_norm_f64"), 0), got = NAN;
    if (fm_optimizer_add_sample(&f->optimizer, NULL)) {
        got = sqrt(fm_optimizer_get_state(&f->optimizer, NULL).norm_squared);
        fm_optimizer_step(&f->optimizer, NULL);
    }
    note(f, G_CLIP_NORM, "total norm", fabs(got - expected) / expected);
    const struct {
        const void *from;
        const char *array;
        group_id id;
    } results[] = {{f->params.master, "post_samples_f64", G_PARAMETERS},
                   {f->params.ema, "ema_samples_f32", G_EMA}};
    for (int i = 0; i < 2; i++) {
        download_values(f, results[i].from);
        for (int32_t p = 0; p < f->params.n_param; p++) {
            const fm_param *row = &f->params.param[p];
            note(f, results[i].id, row->openfold,
                 compare_samples(f->values, row, golden(&f->golden, results[i].array),
                                 line_of_param(f, row)));
        }
    }
}

/* -- the program */

/* C-beta, or C-alpha of glycine, of the positions that the reference predicted in cycle 0. */
static void inject_previous(const full *f) {
    const fm_npy *positions = golden(&f->golden, "final_atom_positions_c0_f64");
    const uint8_t *aatype = data_of(&f->in, f->in.inputs.aatype);
    int64_t n = f->in.config.n_res;
    float *x = calloc((size_t)n * 3, sizeof *x);
    assert(x);
    for (int64_t i = 0; i < n; i++) {
        int64_t atom = aatype[i] == GLYCINE ? ATOM37_CA : ATOM37_CB;
        for (int64_t a = 0; a < 3; a++)
            x[3 * i + a] = (float)value(positions, (i * N_ATOM37 + atom) * 3 + a);
    }
    f->kernels->upload(NULL, fm_state_data(&f->in.state, f->in.inputs.previous_pseudo_beta), x,
                       (size_t)n * 3 * sizeof *x);
    f->kernels->synchronize(NULL);
    free(x);
}

/* Counts the pairs of real residues that were recycled in another distance class. */
static void count_bins(full *f) {
    const fm_npy *expected = golden(&f->golden, "recycle_bins");
    int64_t n = f->in.config.n_res, other = 0, rows = n / f->arguments->dap;
    uint8_t *bins = calloc((size_t)(n * n), 1);
    assert(bins);
    for (int r = 0; r < f->n_rank; r++) {
        const fm_tape *tape = &f->rank[r]->last.tape;
        f->kernels->download(NULL, bins + r * rows * n,
                             fm_tape_data(tape, find(tape, "recycle bins", 0)), (size_t)(rows * n));
    }
    f->kernels->synchronize(NULL);
    if (f->meeting) {
        uint8_t *all = gather_all(f, bins, (size_t)(rows * n));
        free(bins);
        bins = all;
    }
    for (int64_t k = 0; k < n * n; k++) {
        bool real = k / n < N_REAL && k % n < N_REAL;
        uint8_t none = (uint8_t)f->in.config.n_recycle_bin;
        uint8_t ours = bins[k] < none ? bins[k] : none; /* in no class */
        other += real && ours != ((const uint8_t *)expected->data)[k];
    }
    printf("recycling bins: %lld of %d pairs in another\n", (long long)other, N_REAL * N_REAL);
    free(bins);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Runs `work` on every rank at the same time. */
static void run_on_all(full *f, void *(*work)(void *)) {
    pthread_t threads[MAX_DAP] = {0};
    for (int r = 1; r < f->n_rank; r++) {
        int failed = pthread_create(&threads[r], NULL, work, f->rank[r]);
        assert(!failed);
        (void)failed;
    }
    work(f);
    for (int r = 1; r < f->n_rank; r++)
        pthread_join(threads[r], NULL);
}

static void *run_forward(void *argument) {
    full *f = argument;
    load_trunk(&f->in, f->cycle);
    if (is_whole(f)) load_truth(&f->in, &f->sm, f->cycle);
    send_inputs(&f->in);
    fm_tape_forward(f->cycle ? &f->last.tape : &f->first.tape, NULL);
    f->kernels->synchronize(NULL);
    return NULL;
}

static void *run_backward(void *argument) {
    full *f = argument;
    fm_tape_backward(&f->last.tape, NULL);
    f->kernels->synchronize(NULL);
    if (f->in.config.groups) {
        fm_comm_sum(f->in.config.groups->sample, f->params.n_element, f->params.gradient,
                    f->scratch, PIECE, NULL);
        f->kernels->synchronize(NULL);
    }
    return NULL;
}

static void forward(full *f, pass *p, int cycle) {
    double start = now();
    for (int r = 0; r < f->n_rank; r++)
        f->rank[r]->cycle = cycle;
    run_on_all(f, run_forward);
    printf("cycle %d: %.1f s\n", cycle, now() - start);
    compare_trunk(f, &p->tape, cycle);
    if (is_whole(f)) compare_structure(f, p, cycle);
}

static void load_parameters(full *f) {
    size_t bytes = (size_t)f->params.n_element * sizeof *f->values;
    memset(f->values, 0, bytes);
    draw_parameters(&f->params, f->values);
    for (int r = 0; r < f->n_rank; r++) {
        f->kernels->upload(NULL, f->rank[r]->params.master, f->values, bytes);
        f->kernels->upload(NULL, f->rank[r]->params.ema, f->values, bytes);
        fm_params_refresh_copy(&f->rank[r]->params);
    }
}

static void run(full *f) {
    load_parameters(f);
    forward(f, &f->first, 0);
    if (!is_whole(f)) return;
    for (int r = 0; r < f->n_rank && f->arguments->inject_bins; r++)
        inject_previous(f->rank[r]);
    forward(f, &f->last, 1);
    count_bins(f);
    compare_heads_and_losses(f);
    double start = now();
    run_on_all(f, run_backward);
    printf("backward: %.1f s\n", now() - start);
    compare_cotangents(f);
    compare_gradients(f);
    compare_step(f);
}

static fm_status prepare(full *f, const fm_groups *groups, char paths[3][1024], fm_error *error) {
    memcpy(f->group, GROUPS, sizeof f->group);
    if (is_bf16(f)) allow_noise(f->group);
    f->in.prefix = "";
    f->in.n_cycle = 2;
    f->in.config = fm_model_config_af2_initial();
    f->in.config.n_block = f->arguments->n_block;
    f->in.config.dropout_msa = f->in.config.dropout_pair = 0;
    f->in.config.recompute = FM_RECOMPUTE_BLOCK;
    f->in.config.groups = groups; /* all sizes are multiples of 8 */
    fm_test_json *json = fm_test_json_open(paths[2]);
    read_structure_config(json, &f->in, &f->sm);
    fm_test_json_close(json);
    if (!is_whole(f)) f->in.config.structure.n_iteration = 0;
    fm_status status = open_npz(&f->inputs_arena, paths[0], &f->in.file, error);
    if (!status) status = open_npz(&f->golden_arena, paths[1], &f->golden, error);
    return status ? status : build(f, error);
}

/* Prepares all ranks of this process; the first is `f`. groups: of each of them. */
static fm_status prepare_ranks(full *f, const fm_groups *const *groups, char paths[3][1024],
                               fm_error *error) {
    fm_status status = FM_OK;
    for (int r = 0; r < f->n_rank && !status; r++) {
        full *rank = r ? calloc(1, sizeof *rank) : f;
        assert(rank);
        rank->arguments = f->arguments;
        rank->kernels = f->kernels;
        f->rank[r] = rank;
        status = prepare(rank, groups[r], paths, error);
    }
    return status;
}

static bool parse(arguments *set, int argc, char **argv) {
    *set = (arguments){.device = "cpu",
                       .backend = "peer",
                       .dtype = "fp32",
                       .folder = "full",
                       .n_block = N_BLOCK,
                       .dap = 1};
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (more && !strcmp(argv[i], "--device")) {
            set->device = argv[++i];
        } else if (more && !strcmp(argv[i], "--dtype")) {
            set->dtype = argv[++i];
            set->inject_bins |= !strcmp(set->dtype, "bf16");
        } else if (more && !strcmp(argv[i], "--backend")) {
            set->backend = argv[++i];
        } else if (more && !strcmp(argv[i], "--dap")) {
            set->dap = atoi(argv[++i]);
        } else if (more && !strcmp(argv[i], "--blocks")) {
            set->n_block = atoi(argv[++i]);
        } else if (!strcmp(argv[i], "--inject-bins")) {
            set->inject_bins = true;
        } else if (!strcmp(argv[i], "--verbose")) {
            set->verbose = true;
        } else if (argv[i][0] != '-') {
            set->folder = argv[i];
        } else {
            return false;
        }
    }
    bool split = set->dap == 1 || set->dap == 2 || set->dap == 4 || set->dap == MAX_DAP;
    return split && set->n_block >= 1 && set->n_block <= N_BLOCK;
}

typedef struct task {
    arguments set;
    char path[3][1024]; /* inputs, golden, config */
} task;

/* Compares all ranks of this process; returns its exit code. */
static int run_process(task *t, fm_meeting *meeting) {
    full *f = calloc(1, sizeof *f);
    assert(f);
    f->arguments = &t->set;
    f->meeting = meeting;
    fm_error error = {0};
    ways w = {0};
    const fm_layout split = {t->set.dap, 1, 1};
    const fm_groups *groups[MAX_DAP] = {0};
    fm_status status = fm_device_find(t->set.device, t->set.dtype, &f->kernels, &error);
    int code = status == FM_ERR_UNSUPPORTED ? FM_TEST_SKIPPED : 1;
    if (!status) {
        status =
            open_ways(&w, &split, t->set.backend, f->kernels, meeting, groups, &f->n_rank, &error);
    }
    if (!status) status = prepare_ranks(f, groups, t->path, &error);
    if (!status) {
        run(f);
        status = check_ways(&w, &error);
        code = report_groups(f->group, is_whole(f) ? N_GROUP : G_STRUCTURE) && !status ? 0 : 1;
    }
    if (status) fprintf(stderr, "model_parity_full: %s\n", error.message);
    close_ways(&w);
    for (int r = 1; r < f->n_rank && f->rank[r]; r++) {
        close_full(f->rank[r]);
        free(f->rank[r]);
    }
    close_full(f);
    free(f);
    return code;
}

/* A rank that is a process; the first one prints. */
static int run_rank(int32_t rank, const char *address, void *context) {
    task *t = context;
    fm_meeting *meeting = NULL;
    fm_error error = {0};
    if (rank > 0 && !freopen("/dev/null", "w", stdout)) return 1;
    if (fm_meeting_open(&meeting, address, rank, t->set.dap, ranks_s(t->set.device), &error)) {
        fprintf(stderr, "model_parity_full: %s\n", error.message);
        return 1;
    }
    int code = run_process(t, meeting);
    fm_meeting_close(meeting);
    return code;
}

int main(int argc, char **argv) {
    static const char *const names[] = {"full_inputs.npz", "full_golden.npz", "full_config.json"};
    task t;
    char relative_path[512];
    int exits[FM_TEST_RANKS];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!parse(&t.set, argc, argv)) {
        fprintf(stderr, "usage: model_parity_full [--device cpu|cuda] [--dtype fp32|bf16] "
                        "[--dap 1|2|4|8] [--backend peer|nccl|shm] [--blocks N] [--inject-bins] "
                        "[--verbose] [FOLDER]\n");
        return 2;
    }
    for (int i = 0; i < 3; i++) {
        snprintf(relative_path, sizeof relative_path, "%s/%s", t.set.folder, names[i]);
        if (!locate(relative_path, t.path[i], sizeof t.path[i])) return FM_TEST_SKIPPED;
    }
    bool processes = are_processes(t.set.device, t.set.backend, t.set.dap);
    return processes ? fm_test_run_ranks(t.set.dap, run_rank, &t, ranks_s(t.set.device), exits)
                     : run_process(&t, NULL);
}
