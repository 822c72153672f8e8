/* test_recording.c: tests the recording of the model, without running it: the nodes of a cycle in
 * order, their tensors, draws and segments, and the bytes of the memory plan. The cases are every
 * block order, split over ranks and recompute policy. Each case has a digest, so a change of the
 * recording code that should change nothing shows at once.
 *
 * A case covers all recompute policies, all ranks, and both tapes of a step (the cycle without
 * gradient and the last one). When a digest differs on purpose, run the test with
 * FM_RECORDING_DUMP=DIR before and after, compare the files, and copy the digests that it prints.
 */
#include "tests/testing/local_groups.h"
#include "tests/testing/model_configs.h"
#include "trainer/model/model.h"

#include "proto/base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N_RECOMPUTE = 5, MAX_LINE = 2048 };

static const char *const ORDER_NAMES[] = {"original", "opm_first", "parallel"};
static const char *const RECOMPUTE_NAMES[N_RECOMPUTE] = {"none", "hidden", "projections",
                                                         "operands", "block"};

/* -- a tape as text */

typedef struct writer {
    fm_xxh3_state *hash;
    FILE *file; /* NULL: the digest alone */
    char line[MAX_LINE];
    size_t used;
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(w->line + w->used, MAX_LINE - w->used, format, arguments);
    va_end(arguments);
    assert_true(n >= 0 && w->used + (size_t)n < MAX_LINE);
    w->used += (size_t)n;
}

static void end_line(writer *w) {
    put(w, "\n");
    fm_xxh3_update(w->hash, w->line, w->used);
    if (w->file) fputs(w->line, w->file);
    w->used = 0;
}

static void put_list(writer *w, const char *what, const int32_t *values, int32_t n) {
    put(w, " %s", what);
    for (int32_t i = 0; i < n; i++)
        put(w, "%c%d", i ? ',' : ' ', (int)values[i]);
}

static void put_node(writer *w, const fm_tape *tape, int32_t i) {
    const fm_node *node = &tape->node[i];
    int32_t keep[FM_NODE_SAVED];
    for (int32_t k = 0; k < node->n_saved; k++)
        keep[k] = (int32_t)node->keep[k];
    put(w, "node %d %s (%s)", (int)i, node->op->name, node->name);
    put_list(w, "in", node->input, node->n_input);
    put_list(w, "out", node->output, node->n_output);
    put_list(w, "saved", node->saved, node->n_saved);
    put_list(w, "keep", keep, node->n_saved);
    put_list(w, "param", node->param, node->n_param);
    put(w, " again %x/%x residual %d completes %d", node->reads_again, node->output_read_again,
        (int)node->residual, node->completes);
    put(w, " all %d stream %d rng %u segment %d island %d", node->on_all_ranks, (int)node->stream,
        node->rng, (int)node->segment, node->kernels != tape->main_kernels);
    put(w, " workspace %lld/%lld", (long long)node->workspace_forward_bytes,
        (long long)node->workspace_backward_bytes);
    end_line(w);
}

static void put_tensor(writer *w, const fm_tape *tape, int32_t i) {
    const fm_tensor *tensor = &tape->tensor[i];
    put(w, "tensor %d %s %d [", (int)i, tensor->name ? tensor->name : "-", (int)tensor->element);
    for (int axis = 0; axis < tensor->rank; axis++)
        put(w, " %lld/%lld", (long long)tensor->local[axis], (long long)tensor->shape[axis]);
    put(w, " ] split %d version %d gradient %d", (int)tensor->shard_axis, (int)tensor->version,
        (int)tensor->gradient);
    end_line(w);
}

static void put_tape(writer *w, const fm_tape *tape) {
    for (int32_t i = 0; i < tape->n_node; i++)
        put_node(w, tape, i);
    for (int32_t i = 0; i < tape->n_tensor; i++)
        put_tensor(w, tape, i);
    for (int32_t i = 0; i < tape->n_segment; i++) {
        const fm_segment *segment = &tape->segment[i];
        put(w, "segment %d %d..%d %d", (int)i, (int)segment->first, (int)segment->end,
            segment->recompute);
        end_line(w);
    }
    put(w, "draws %u steps %d arena %lld saved %lld transient %lld", tape->n_draw,
        (int)tape->n_step, (long long)tape->size.arena_bytes, (long long)tape->size.saved_bytes,
        (long long)tape->size.transient_bytes);
    end_line(w);
}

/* -- recording */

/* Parameters and their weights, which depend on the sizes alone: the same for all cases of a size.
 */
typedef struct model {
    fm_model_config config;
    fm_arena arena;
    fm_params params;
    fm_model_weights weights;
} model;

static void begin_model(model *m) {
    assert_int_equal(fm_arena_init(&m->arena, (size_t)64 << 20, NULL), FM_OK);
    assert_int_equal(fm_params_init(&m->params, FM_MAX_PARAM, &m->arena, NULL), FM_OK);
    fm_model_add_parameters(&m->params, &m->arena, &m->config, &m->weights);
    assert_int_equal(fm_params_allocate(&m->params, fm_kernels_cpu(FM_ELEMENT_F32), NULL), FM_OK);
}

static void end_model(model *m) {
    fm_params_release(&m->params);
    fm_arena_fini(&m->arena);
}

/* The tapes of a step. The last one is seeded where the losses are: at m, the single representation
 * and z. */
static void record_tapes(writer *w, model *m, const fm_model_config *config) {
    fm_model_inputs inputs;
    fm_state state = {0};
    const fm_kernels *kernels = fm_kernels_cpu(FM_ELEMENT_F32);
    const int64_t rows = fm_model_config_rows(config), n = config->n_res;
    fm_model_declare_inputs(&state, config, kernels, &inputs);
    int32_t dm = fm_state_add(&state, "dm", FM_ELEMENT_F32, 3, (int64_t[]){rows, n, config->c_m});
    int32_t ds = fm_state_add(&state, "ds", FM_ELEMENT_F32, 2, (int64_t[]){n, config->c_s});
    int32_t dz = fm_state_add(&state, "dz", FM_ELEMENT_F32, 3, (int64_t[]){n, n, config->c_z});
    assert_int_equal(fm_state_allocate(&state, kernels, NULL), FM_OK);
    for (int last = 0; last < 2; last++) {
        fm_tape tape;
        assert_int_equal(fm_tape_init(&tape, kernels, &m->params, &state, last, NULL), FM_OK);
        fm_model_outputs out = fm_model_record_cycle(&tape, config, &m->weights, &inputs,
                                                     last ? FM_CYCLE_OUTPUTS : FM_CYCLE_STORES);
        if (last) {
            fm_tape_seed_gradient(&tape, out.m, dm);
            fm_tape_seed_gradient(&tape, out.single, ds);
            fm_tape_seed_gradient(&tape, out.z, dz);
        }
        assert_int_equal(fm_tape_plan(&tape, NULL), FM_OK);
        put_tape(w, &tape);
        fm_tape_fini(&tape);
    }
    fm_state_release(&state);
}

static FILE *open_dump(const char *name) {
    const char *folder = getenv("FM_RECORDING_DUMP");
    char path[512];
    if (!folder) return NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    return file;
}

static uint64_t digest_of(const char *name, model *m, fm_block_order order, fm_layout layout) {
    writer w = {.hash = fm_xxh3_create(), .file = open_dump(name)};
    fm_local_groups *groups = NULL;
    int32_t ranks = fm_layout_ranks(&layout);
    if (ranks > 1) {
        assert_int_equal(
            fm_local_groups_create(&layout, fm_kernels_cpu(FM_ELEMENT_F32), &groups, NULL), FM_OK);
    }
    for (int policy = 0; policy < N_RECOMPUTE; policy++) {
        for (int32_t rank = 0; rank < ranks; rank++) {
            fm_model_config own = m->config;
            own.order = order;
            own.recompute = (fm_recompute_policy)policy;
            own.groups = groups ? fm_local_groups_get(groups, rank) : NULL;
            own = fm_split_pad(&own);
            put(&w, "recompute %s rank %d", RECOMPUTE_NAMES[policy], (int)rank);
            end_line(&w);
            record_tapes(&w, m, &own);
        }
    }
    fm_local_groups_destroy(groups);
    uint64_t digest = fm_xxh3_digest(w.hash);
    fm_xxh3_destroy(w.hash);
    if (w.file) fclose(w.file);
    return digest;
}

/* -- cases */

typedef struct recording_case {
    fm_block_order order;
    fm_layout layout;
    uint64_t tiny, af2;
} recording_case;

/* The original order has no two branches, so no BP. */
static const recording_case CASES[] = {
    {FM_ORDER_ORIGINAL, {1, 1, 1}, 0xae8428515fc0150f, 0xafbe703a9cdfa75b},
    {FM_ORDER_ORIGINAL, {2, 1, 1}, 0x4e3a2616570029dd, 0xff956e7a690f89b9},
    {FM_ORDER_ORIGINAL, {4, 1, 1}, 0x9710144455c63255, 0x3512f00d942fd512},
    {FM_ORDER_OUTER_FIRST, {1, 1, 1}, 0x5cb983f71d3ce125, 0x9ede3f31dd81273a},
    {FM_ORDER_OUTER_FIRST, {2, 1, 1}, 0x5876d4f800d93ee7, 0x3e4957273251e9e0},
    {FM_ORDER_OUTER_FIRST, {4, 1, 1}, 0x4097cdaed2de650b, 0xe55ffe024a43e95f},
    {FM_ORDER_OUTER_FIRST, {1, 2, 1}, 0x6355858e65e86fad, 0x3476b3d127ca8ee0},
    {FM_ORDER_OUTER_FIRST, {2, 2, 1}, 0xfdd7d3e73b2e8ba6, 0xfd157b9f24fee7f0},
    {FM_ORDER_PARALLEL, {1, 1, 1}, 0x437b861779f29314, 0x1f1f8a3c93a77d42},
    {FM_ORDER_PARALLEL, {2, 1, 1}, 0xc810b7a96d02016a, 0x382510bb0aa7ce5b},
    {FM_ORDER_PARALLEL, {4, 1, 1}, 0x8928de9362e78a3d, 0x3614c536a1f82d48},
    {FM_ORDER_PARALLEL, {1, 2, 1}, 0xa004d8a785564b74, 0x28374f7df3b89ed5},
    {FM_ORDER_PARALLEL, {2, 2, 1}, 0xc904152ce47cb2b3, 0x4e25e1a768f8af49},
};
enum { N_CASE = sizeof CASES / sizeof CASES[0] };

static bool is_as_before(const char *size, model *m, const recording_case *c, uint64_t expected) {
    char name[64];
    snprintf(name, sizeof name, "%s-%s-dap%d-bp%d", size, ORDER_NAMES[c->order], (int)c->layout.dap,
             (int)c->layout.bp);
    uint64_t digest = digest_of(name, m, c->order, c->layout);
    if (digest != expected) {
        print_message("%s: 0x%016llx, expected 0x%016llx\n", name, (unsigned long long)digest,
                      (unsigned long long)expected);
    }
    return digest == expected;
}

static void tiny_records_the_same(void **state) {
    (void)state;
    static model m;
    m.config = fm_model_config_tiny();
    m.config.n_template = 2;
    m.config.n_extra_block = 2;
    bool same = true;
    begin_model(&m);
    for (int i = 0; i < N_CASE; i++)
        same &= is_as_before("tiny", &m, &CASES[i], CASES[i].tiny);
    end_model(&m);
    assert_true(same);
}

/* AlphaFold2's sizes with fewer blocks: those between the first and the last are alike. */
static void af2_initial_records_the_same(void **state) {
    (void)state;
    static model m;
    m.config = fm_model_config_af2_initial();
    m.config.n_block = 3;
    m.config.n_extra_block = 2;
    bool same = true;
    begin_model(&m);
    for (int i = 0; i < N_CASE; i++)
        same &= is_as_before("af2-initial", &m, &CASES[i], CASES[i].af2);
    end_model(&m);
    assert_true(same);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_records_the_same),
        cmocka_unit_test(af2_initial_records_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
