/* source.c: see source.h. */
#include "tests/testing/source.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct test_plan {
    fm_test_source *test;
    uint32_t global_batch;
    uint64_t seed;
} test_plan;

enum { ARENA_BYTES = 256 << 20, NAME_ROOM = 32 /* names have different lengths */ };

static fm_status open_plan(void *context, const fm_wire_open *params, void **ret_plan,
                           fm_source_facts *ret_facts, fm_error *reterr) {
    fm_test_source *test = context;
    if (strcmp(params->plan, "test") != 0) {
        return fm_fail(reterr, FM_ERR_NOT_FOUND, "no plan is called '%s'; there is: test",
                       params->plan);
    }
    test_plan *plan = malloc(sizeof *plan);
    assert(plan);
    uint32_t batch = params->global_batch ? params->global_batch : test->global_batch;
    *plan = (test_plan){test, batch, params->seed};
    atomic_fetch_add(&test->n_plan, 1);
    *ret_plan = plan;
    *ret_facts =
        (fm_source_facts){.global_batch = batch,
                          .crop_size = test->shape.n_res,
                          .max_msa_clusters = test->shape.n_clust,
                          .max_extra_msa = test->shape.n_extra,
                          .max_cycle = test->shape.n_cycle,
                          .epoch_samples = 1000,
                          .max_sample_bytes = fm_test_source_sample_bytes(test) + NAME_ROOM};
    return FM_OK;
}

static void close_plan(void *context) {
    test_plan *plan = context;
    atomic_fetch_sub(&plan->test->n_plan, 1);
    free(plan);
}

static void sleep_ms(uint32_t ms) {
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&pause, NULL);
}

static fm_status make(const void *context, uint64_t index, fm_arena *scratch, uint8_t *out,
                      size_t capacity, size_t *ret_bytes, fm_error *reterr) {
    const test_plan *plan = context;
    fm_test_source *test = plan->test;
    atomic_fetch_add(&test->n_made, 1);
    if (test->slow_every && index % test->slow_every == 0) sleep_ms(test->slow_ms);
    if (test->delay_ms) sleep_ms(test->delay_ms(index));
    if (test->fail_every && index % test->fail_every == 0) {
        return fm_fail_in(reterr, FM_ERR_DATA, test->fail_source, "sample %llu is made to fail",
                          (unsigned long long)index);
    }
    if (test->copies) {
        assert(test->copied.size <= capacity);
        memcpy(out, test->copied.data, test->copied.size);
        *ret_bytes = test->copied.size;
        return FM_OK;
    }
    fm_sample sample;
    fm_test_sample(&test->shape, plan->seed, index, plan->global_batch, scratch, &sample);
    size_t bytes = fm_sample_encoded_bytes(&sample);
    assert(bytes <= capacity);
    fm_sample_encode(&sample, out);
    *ret_bytes = bytes;
    return FM_OK;
}

void fm_test_source_init(fm_test_source *test, fm_sample_source *ret_source) {
    fm_status status = fm_arena_init(&test->arena, ARENA_BYTES, NULL);
    assert(!status);
    (void)status;
    fm_sample sample;
    fm_test_sample(&test->shape, 0, 0, test->global_batch, &test->arena, &sample);
    test->copied = fm_test_sample_bytes(&sample, &test->arena);
    *ret_source = (fm_sample_source){.context = test,
                                     .snapshot_name = "made-up",
                                     .snapshot = fm_sha256_of("made-up", 7),
                                     .n_chain = 1000,
                                     .open = open_plan,
                                     .make = make,
                                     .close = close_plan};
}

void fm_test_source_fini(fm_test_source *test) {
    fm_arena_fini(&test->arena);
}

size_t fm_test_source_sample_bytes(const fm_test_source *test) {
    return test->copied.size;
}
