/* model_parity_full.c: the full-size trunk against the reference's.
 *
 *     model_parity_full [BLOCKS [FOLDER]]
 *
 * FOLDER (full/ below $FM_REFERENCE_DATA) has full_inputs.npz and full_golden.npz: 256 residues,
 * 124 clusters, 1024 extra rows, 4 templates, AlphaFold2's own widths. Weights come from a formula
 * over each parameter's OpenFold name, and 4096 values of each activation, at places that come from
 * its key, are compared with the reference's float64 run: relative L2 over those at real positions,
 * gate 1e-5.
 *
 * Runs the embedders, templates, extra MSA and the first BLOCKS (2) Evoformer blocks of the cycle
 * without gradient; with all 48 also the second cycle, whose recycled positions are the
 * reference's. Forward only, on the CPU in f32. Exits with 77 where the files are not there. */
#include "tests/trainer/parity.h"

#include <time.h>

enum { N_BLOCK = 48, N_SAMPLE = 4096, ATOM37_CA = 1, ATOM37_CB = 3, MASKED_TEMPLATE_ROW = 126 };

static const double GATE = 1e-5;

typedef struct full {
    parity in;
    fm_npz golden;
    fm_arena arena, inputs_arena, golden_arena;
    const fm_kernels *kernels;
    fm_params params;
    fm_model_weights weights;
    fm_tape tape;
    fm_model_outputs out;
    void *memory;
    int compared;
    bool failed;
} full;

/* ---- the formula ----------------------------------------------------------------------------- */

static uint64_t fnv1a(const char *text) {
    uint64_t h = 14695981039346656037u;
    for (; *text; text++) {
        h = (h ^ (uint8_t)*text) * 1099511628211u;
    }
    return h;
}

static uint64_t splitmix(uint64_t x) {
    uint64_t z = x + 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* value = base + u * scale, u in [-1, 1), each operation rounded to f32. */
static void formula_of(const fm_param *row, float *ret_base, float *ret_scale) {
    const char *name = row->openfold;
    *ret_base = 0;
    *ret_scale = 0.1f;
    if (row->rank == 2) {
        *ret_scale = (float)(1.0 / sqrt((double)row->shape[1]));
        if (strstr(name, "bb_update")) {
            *ret_scale = *ret_scale * 0.1f;
        }
    } else if (strstr(name, "layer_norm") && ends_with(name, "weight")) {
        *ret_base = 1;
    } else if (strstr(name, "head_weights")) {
        *ret_base = 0.54f;
    } else if (strstr(name, "linear_g") && ends_with(name, "bias")) {
        *ret_base = 1;
    }
}

static void draw_parameters(full *f) {
    float *master = f->params.master;
    for (int32_t p = 0; p < f->params.n_param; p++) {
        const fm_param *row = &f->params.param[p];
        uint64_t hash = fnv1a(row->openfold);
        float base, scale;
        formula_of(row, &base, &scale);
        for (int64_t i = 0; i < fm_param_count(row); i++) {
            uint64_t h = splitmix(hash + (uint64_t)i);
            float u = (float)(h >> 40) * 0x1p-23f - 1.0f, part = u * scale;
            master[row->offset + i] = base + part;
        }
    }
}

/* ---- building -------------------------------------------------------------------------------- */

/* Everything that is compared is kept; a block's inside is given up. */
static void keep_outputs(full *f) {
    static const char *const names[] = {"input msa",
                                        "input pair",
                                        "template pair embedder",
                                        "template transition",
                                        "template torsion rows",
                                        "extra msa embedder",
                                        "msa transition",
                                        "pair transition",
                                        "single",
                                        NULL};
    for (int32_t n = 0; n < f->tape.n_node; n++) {
        for (int i = 0; names[i]; i++) {
            if (!strcmp(f->tape.node[n].name, names[i])) {
                fm_tape_keep(&f->tape, f->tape.node[n].output[0]);
            }
        }
    }
}

static fm_status build(full *f, fm_error *error) {
    f->kernels = fm_kernels_cpu(FM_ELEMENT_F32);
    fm_status status = fm_arena_init(&f->arena, (size_t)1 << 28, error);
    if (!status) {
        status = fm_params_init(&f->params, FM_MAX_PARAM, &f->arena, error);
    }
    if (!status) {
        fm_model_add_parameters(&f->params, &f->arena, &f->in.config, &f->weights);
        status = fm_params_allocate(&f->params, f->kernels, error);
    }
    if (!status) {
        declare_trunk(&f->in, f->kernels);
        status = fm_state_allocate(&f->in.state, f->kernels, error);
    }
    if (!status) {
        status = fm_tape_init(&f->tape, f->kernels, &f->params, &f->in.state, true, error);
    }
    if (!status) {
        f->out = fm_model_record_cycle(&f->tape, &f->in.config, &f->weights, &f->in.inputs, true);
        keep_outputs(f);
        status = fm_tape_plan(&f->tape, error);
    }
    if (!status) {
        f->memory = f->kernels->alloc((size_t)f->tape.size.arena_bytes);
        assert(f->memory);
        fm_tape_bind(&f->tape, f->memory);
    }
    return status;
}

static void close_full(full *f) {
    fm_tape_fini(&f->tape);
    if (f->kernels) {
        f->kernels->release(f->memory);
    }
    fm_state_release(&f->in.state);
    fm_params_release(&f->params);
    fm_arena_fini(&f->arena);
    fm_arena_fini(&f->golden_arena);
    fm_arena_fini(&f->inputs_arena);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static const fm_npy *golden(const full *f, const char *name) {
    const fm_npy *array = fm_npz_find(&f->golden, name);
    assert(array);
    return array;
}

/* Position of a key among act_names, -1 where it is not. */
static int64_t position_of(const full *f, const char *key) {
    const fm_npy *names = golden(f, "act_names");
    const char *at = (const char *)names->data, *end = at + names->count;
    size_t n = strlen(key);
    for (int64_t line = 0; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        if ((size_t)(stop - at) == n && !memcmp(at, key, n)) {
            return line;
        }
        at = stop + 1;
    }
    return -1;
}

/* A flat index is real when its index on every residue axis is below n_real. */
static bool is_real(const int32_t *shape, unsigned axes, int64_t n_real, uint64_t flat) {
    bool real = true;
    for (int d = 7; d >= 0; d--) {
        if (shape[d] == 0) {
            continue;
        }
        int64_t index = (int64_t)(flat % (uint64_t)shape[d]);
        flat /= (uint64_t)shape[d];
        real &= !(axes >> d & 1 && index >= n_real);
        real &= !(axes >> 7 & 1 && d == 1 && index == MASKED_TEMPLATE_ROW);
    }
    return real;
}

static void compare(full *f, const char *key, const float *data) {
    int64_t at = position_of(f, key);
    if (at < 0) {
        return;
    }
    const int32_t *shape = (const int32_t *)golden(f, "act_shape")->data + 8 * at;
    const float *expected = (const float *)golden(f, "act_samples_f64")->data + N_SAMPLE * at;
    unsigned axes = ((const uint8_t *)golden(f, "act_res_axes")->data)[at];
    uint64_t count = 1, hash = fnv1a(key);
    for (int d = 0; d < 8; d++) {
        count *= shape[d] ? (uint64_t)shape[d] : 1;
    }
    double difference = 0, norm = 0;
    for (uint64_t j = 0; j < N_SAMPLE; j++) {
        uint64_t flat = splitmix(hash + j) % count;
        if (is_real(shape, axes, 253, flat)) {
            double e = (double)data[flat] - (double)expected[j];
            difference += e * e;
            norm += (double)expected[j] * (double)expected[j];
        }
    }
    double error = sqrt(difference / norm);
    bool ok = error <= GATE;
    printf("%-60s %.2e %s\n", key, error, ok ? "ok" : "FAIL");
    fflush(stdout);
    f->compared++;
    f->failed |= !ok;
}

static const float *probe(const full *f, const char *node, int nth) {
    for (int32_t n = 0; n < f->tape.n_node; n++) {
        if (!strcmp(f->tape.node[n].name, node) && nth-- == 0) {
            return fm_tape_data(&f->tape, f->tape.node[n].output[0]);
        }
    }
    assert(!"no such node");
    return NULL;
}

static void compare_blocks(full *f, int cycle, const char *stack, int32_t count, int32_t first) {
    char key[128];
    for (int32_t i = 0; i < count; i++) {
        snprintf(key, sizeof key, "act/c%d/%s.blocks.%d.m", cycle, stack, (int)i);
        compare(f, key, probe(f, "msa transition", first + i));
        snprintf(key, sizeof key, "act/c%d/%s.blocks.%d.z", cycle, stack, (int)i);
        compare(f, key, probe(f, "pair transition", first + i));
    }
}

static void compare_cycle(full *f, int cycle) {
    const fm_model_config *c = &f->in.config;
    char key[128];
    snprintf(key, sizeof key, "act/c%d/input_embedder.m", cycle);
    compare(f, key, probe(f, "input msa", 0));
    snprintf(key, sizeof key, "act/c%d/input_embedder.z", cycle);
    compare(f, key, probe(f, "input pair", 0));
    for (int t = 0; t < c->n_template; t++) {
        snprintf(key, sizeof key, "act/c%d/template_embedder.template_pair_embedder@%d.t", cycle,
                 t);
        compare(f, key, probe(f, "template pair embedder", t));
    }
    snprintf(key, sizeof key, "act/c%d/template_embedder.template_single_embedding", cycle);
    compare(f, key, probe(f, "template torsion rows", 0) + c->n_seq * c->n_res * c->c_m);
    snprintf(key, sizeof key, "act/c%d/extra_msa_embedder.m", cycle);
    compare(f, key, probe(f, "extra msa embedder", 0));
    compare_blocks(f, cycle, "extra_msa_stack", c->n_extra_block, 0);
    compare_blocks(f, cycle, "evoformer", c->n_block, c->n_extra_block);
    if (c->n_block == N_BLOCK) {
        snprintf(key, sizeof key, "act/c%d/evoformer.s", cycle);
        compare(f, key, probe(f, "single", 0));
    }
}

/* ---- the program ----------------------------------------------------------------------------- */

/* C-beta, or C-alpha of glycine, of the positions that the reference predicted in cycle 0. */
static void load_previous(const full *f) {
    const fm_npy *positions = golden(f, "final_atom_positions_c0_f64");
    const uint8_t *aatype = data_of(&f->in, f->in.inputs.aatype);
    float *x = data_of(&f->in, f->in.inputs.previous_pseudo_beta);
    for (int64_t i = 0; i < f->in.config.n_res; i++) {
        int64_t atom = aatype[i] == GLYCINE ? ATOM37_CA : ATOM37_CB;
        for (int64_t a = 0; a < 3; a++) {
            x[3 * i + a] = (float)value(positions, (i * N_ATOM37 + atom) * 3 + a);
        }
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run(full *f) {
    draw_parameters(f);
    int n_cycle = f->in.config.n_block == N_BLOCK ? 2 : 1;
    for (int c = 0; c < n_cycle; c++) {
        load_trunk(&f->in, c);
        if (c > 0) {
            load_previous(f);
        }
        double start = now();
        fm_tape_forward(&f->tape, NULL);
        printf("cycle %d: %.1f s\n", c, now() - start);
        compare_cycle(f, c);
    }
    printf("parity: %s (%d activations)\n", f->failed || !f->compared ? "FAIL" : "ok", f->compared);
}

static fm_status prepare(full *f, int n_block, const char *inputs, const char *expected,
                         fm_error *error) {
    f->in.prefix = "";
    f->in.n_cycle = 2;
    f->in.config = fm_model_config_initial_training();
    f->in.config.n_block = n_block;
    f->in.config.dropout_msa = f->in.config.dropout_pair = 0;
    f->in.config.recompute = FM_RECOMPUTE_BLOCK;
    fm_status status = open_npz(&f->inputs_arena, inputs, &f->in.file, error);
    if (!status) {
        status = open_npz(&f->golden_arena, expected, &f->golden, error);
    }
    return status ? status : build(f, error);
}

int main(int argc, char **argv) {
    int n_block = argc > 1 ? atoi(argv[1]) : 2;
    const char *folder = argc > 2 ? argv[2] : "full";
    char path[2][1024], relative[512];
    static const char *const names[] = {"full_inputs.npz", "full_golden.npz"};
    if (n_block < 1 || n_block > N_BLOCK) {
        fprintf(stderr, "usage: model_parity_full [BLOCKS [FOLDER]], 1 to %d blocks\n", N_BLOCK);
        return 2;
    }
    for (int i = 0; i < 2; i++) {
        snprintf(relative, sizeof relative, "%s/%s", folder, names[i]);
        if (!locate(relative, path[i], sizeof path[i])) {
            return FM_TEST_SKIPPED;
        }
    }
    full *f = calloc(1, sizeof *f);
    assert(f);
    fm_error error = {0};
    fm_status status = prepare(f, n_block, path[0], path[1], &error);
    if (status) {
        fprintf(stderr, "model_parity_full: %s\n", error.message);
    } else {
        run(f);
    }
    bool good = !status && !f->failed && f->compared > 0;
    close_full(f);
    free(f);
    return good ? 0 : 1;
}
