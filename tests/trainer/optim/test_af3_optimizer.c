/* Tests of the optimiser as AlphaFold 3 uses it, against 12 updates of the reference: clipping of
 * the whole gradient, Adam with L2, a rate that begins with 0 and falls repeatedly, and the moving
 * average. */
#include "tests/trainer/common/golden.h"

#include "trainer/optim/optimizer.h"

enum { N_TENSOR = 3, N_UPDATE = 12 };

static const char *const NAMES[N_TENSOR] = {"a", "b", "c"};

typedef struct bench {
    golden file;
    fm_arena arena;
    fm_params params;
    fm_optimizer optimizer;
} bench;

static double value(const fm_npy *array, uint64_t i) {
    return array->item_bytes == 8 ? ((const double *)array->data)[i]
                                  : (double)((const float *)array->data)[i];
}

static void open_bench(bench *b) {
    golden_open(&b->file, "af3/optimizer.npz");
    assert_int_equal(fm_arena_init(&b->arena, (size_t)1 << 20, NULL), FM_OK);
    assert_int_equal(fm_params_init(&b->params, N_TENSOR, &b->arena, NULL), FM_OK);
    for (int i = 0; i < N_TENSOR; i++) {
        const fm_npy *array = golden_find(&b->file, "w/", NAMES[i]);
        fm_params_add_block(&b->params);
        fm_params_add(&b->params, &(fm_param){.name = NAMES[i],
                                              .openfold = NAMES[i],
                                              .deepmind_layer = -1,
                                              .rank = 1,
                                              .shape = {(int64_t)array->count}});
    }
    const fm_optimizer_options options = {.rate = 1.8e-3,
                                          .beta1 = 0.9,
                                          .beta2 = 0.95,
                                          .eps = 1e-8,
                                          .ema_decay = 0.999,
                                          .l2 = 1e-8,
                                          .clip = FM_CLIP_BATCH,
                                          .clip_norm = 10,
                                          .warmup_samples = 4,
                                          .decay_factor = 0.95,
                                          .decay_every_samples = 5,
                                          .behind_samples = 1};
    const fm_kernels *kernels = fm_kernels_cpu(FM_ELEMENT_F64);
    assert_int_equal(fm_params_allocate(&b->params, kernels, NULL), FM_OK);
    assert_int_equal(fm_optimizer_init(&b->optimizer, &b->params, &options, NULL), FM_OK);
}

static void close_bench(bench *b) {
    fm_optimizer_fini(&b->optimizer);
    fm_params_release(&b->params);
    fm_arena_fini(&b->arena);
    golden_close(&b->file);
}

/* Element k of row p in a flat buffer. */
static double *at(const bench *b, void *flat, int p, uint64_t k) {
    return (double *)fm_params_at(&b->params, flat, b->params.param[p].offset) + k;
}

static void expect(const bench *b, const char *prefix, void *flat, int update) {
    for (int p = 0; p < N_TENSOR; p++) {
        const fm_npy *array = golden_find(&b->file, prefix, NAMES[p]);
        uint64_t n = array->count / N_UPDATE;
        for (uint64_t k = 0; k < n; k++) {
            double expected = value(array, (uint64_t)update * n + k), got = *at(b, flat, p, k);
            assert_true(fabs(got - expected) <= 1e-12 * (1 + fabs(expected)));
        }
    }
}

static void twelve_updates_are_those_of_the_reference(void **state) {
    (void)state;
    bench b = {0};
    open_bench(&b);
    for (int p = 0; p < N_TENSOR; p++) {
        const fm_npy *array = golden_find(&b.file, "w/", NAMES[p]);
        for (uint64_t k = 0; k < array->count; k++)
            *at(&b, b.params.master, p, k) = *at(&b, b.params.ema, p, k) = value(array, k);
    }
    for (int update = 0; update < N_UPDATE; update++) {
        for (int p = 0; p < N_TENSOR; p++) {
            const fm_npy *array = golden_find(&b.file, "in/grad.", NAMES[p]);
            uint64_t n = array->count / N_UPDATE;
            for (uint64_t k = 0; k < n; k++)
                *at(&b, b.params.gradient, p, k) = value(array, (uint64_t)update * n + k);
        }
        assert_true(fm_optimizer_add_sample(&b.optimizer, NULL));
        fm_optimizer_step(&b.optimizer, NULL);
        fm_step_state scalars = fm_optimizer_get_state(&b.optimizer, NULL);
        double norm = value(golden_find(&b.file, "f64.out/", "norm"), (uint64_t)update);
        double rate = value(golden_find(&b.file, "f64.out/", "lr"), (uint64_t)update);
        assert_true(fabs(sqrt(scalars.norm_squared) - norm) <= 1e-12 * norm);
        assert_true(fabs(scalars.lr - rate) <= 1e-15);
        expect(&b, "f64.out/post.", b.params.master, update);
        expect(&b, "f64.out/ema.", b.params.ema, update);
    }
    close_bench(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(twelve_updates_are_those_of_the_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
