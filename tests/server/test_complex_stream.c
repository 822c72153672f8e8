/* test_complex_stream.c: `foldmill train` on complexes of a server: the same bytes after a kill, in
 * a replay and on two ranks, the rows of each cycle as they were sent, and bad samples. */
#include "tests/testing/compact_sample.h"
#include "tests/testing/in_folder.h"

#include "proto/base/log.h"
#include "proto/batch.h"
#include "proto/template_date.h"
#include "server/server.h"
#include "trainer/app/samples/complex_features.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N_COMPLEX = 3, CYCLES = 2, BATCH = 2, MOST_BYTES = 1 << 16, BAD_INDEX = 5 };

typedef struct fixture {
    fm_test_compact complexes[N_COMPLEX];
    fm_sample_source source;
    fm_server *server;
    pthread_t thread;
} fixture;

static fixture the;

/* -- samples */

static uint8_t dtype_of(const fm_npy *array) {
    uint8_t dtype = FM_U8;
    while (strcmp(fm_dtype_numpy(dtype), array->dtype) != 0)
        dtype++;
    return dtype;
}

/* The tensor `id` with the first n_row rows of its array, or with all for 0. */
static void add_tensor(fm_tensor_view *views, uint32_t *n, fm_test_complex *c, uint16_t id,
                       uint8_t cycle, uint32_t n_row) {
    const fm_npy *array = fm_test_complex_find(c, fm_schema_find(id)->name);
    fm_tensor_view *view = &views[(*n)++];
    *view = (fm_tensor_view){.id = id, .cycle = cycle, .dtype = dtype_of(array)};
    view->rank = (uint8_t)array->rank;
    view->data = array->data;
    view->bytes = array->item_bytes;
    for (size_t axis = 0; axis < array->rank; axis++) {
        view->shape[axis] = (uint32_t)array->shape[axis];
        if (axis == 0 && n_row) view->shape[0] = n_row;
        view->bytes *= view->shape[axis];
    }
}

static bool has_array(const fm_test_complex *c, const char *name) {
    size_t i = 0;
    while (i < c->npz.n_array && strcmp(c->npz.arrays[i].name, name) != 0)
        i++;
    return i < c->npz.n_array;
}

/* Sample `index`: its cycle c has 2 + c rows. */
static void make_sample(uint64_t index, fm_tensor_view *views, fm_sample *ret_sample) {
    fm_test_complex *c = &the.complexes[index % N_COMPLEX].compact;
    size_t n_rule;
    uint32_t n = 0;
    const fm_tensor_rule *rules = fm_schema_rules(&n_rule);
    for (int cycle = -1; cycle < CYCLES; cycle++) {
        for (size_t r = 0; r < n_rule; r++) {
            const bool is_of = fm_schema_kind(rules[r].id) == FM_SAMPLE_OF_COMPLEX &&
                               rules[r].per_cycle == (cycle >= 0) && has_array(c, rules[r].name);
            if (!is_of) continue;
            add_tensor(views, &n, c, (uint16_t)rules[r].id, cycle < 0 ? FM_SHARED : (uint8_t)cycle,
                       cycle < 0 ? 0 : 2 + (uint32_t)cycle);
        }
    }
    *ret_sample = (fm_sample){.index = index,
                              .step = index / BATCH,
                              .slot = (uint32_t)(index % BATCH),
                              .n_cycle = CYCLES,
                              .n_res_chain = FM_TEST_TOKENS,
                              .n_res = FM_TEST_TOKENS,
                              .n_seq_chain = FM_TEST_ROWS,
                              .n_tensor = n,
                              .tensor = views};
    snprintf(ret_sample->name, sizeof ret_sample->name, "%uabc", (unsigned)(index % N_COMPLEX) + 1);
}

static fm_status open_plan(void *context, const fm_wire_open *params, void **ret_plan,
                           fm_source_facts *ret_facts, fm_error *reterr) {
    (void)context;
    const bool is_asked = strcmp(params->plan, "af3-tiny") == 0 && params->crop_size == 10 &&
                          params->max_msa_clusters == 8 && params->max_extra_msa == 16 &&
                          params->max_template_date == FM_TEMPLATE_DATE_ANY;
    if (!is_asked && strcmp(params->plan, "bad") != 0) {
        return fm_fail(reterr, FM_ERR_NOT_FOUND, "no plan is called '%s'", params->plan);
    }
    *ret_plan = strcmp(params->plan, "bad") == 0 ? (void *)&the : (void *)&the.source;
    *ret_facts = (fm_source_facts){.global_batch = BATCH,
                                   .crop_size = params->crop_size,
                                   .max_msa_clusters = params->max_msa_clusters,
                                   .max_extra_msa = params->max_extra_msa,
                                   .max_cycle = CYCLES,
                                   .epoch_samples = 1000,
                                   .max_template_date = params->max_template_date,
                                   .max_sample_bytes = MOST_BYTES};
    return FM_OK;
}

static void close_plan(void *plan) {
    (void)plan;
}

/* In the plan "bad" one sample cannot be made, and another one has an unknown class. */
static fm_status make(const void *plan, uint64_t index, fm_arena *scratch, uint8_t *out,
                      size_t capacity, size_t *ret_bytes, fm_error *reterr) {
    fm_sample sample;
    fm_tensor_view *views = fm_arena_alloc_array(scratch, 64, sizeof *views);
    const bool is_bad = plan == &the;
    if (is_bad && index == 1) return fm_fail_in(reterr, FM_ERR_DATA, "2abc", "it is made to fail");
    make_sample(index, views, &sample);
    *ret_bytes = fm_sample_encoded_bytes(&sample);
    if (*ret_bytes > capacity) return fm_fail(reterr, FM_ERR_LIMIT, "it is too large");
    static const uint8_t classes[FM_TEST_TOKENS] = {99};
    for (uint32_t i = 0; is_bad && index == BAD_INDEX && i < sample.n_tensor; i++)
        if (views[i].id == FM_T_RESTYPE) views[i].data = classes;
    fm_sample_encode(&sample, out);
    return FM_OK;
}

/* -- the server */

static void *server_thread(void *argument) {
    fm_server_run(argument);
    return NULL;
}

/* `same A B N` compares the checkpoints of step N; `refuses TEXT COMMAND` its last error. */
static const char functions[] =
    "train='foldmill train --data unix:socket --config small.ini --preset af3-tiny -q'; "
    "same() { cmp $1/checkpoint-00000000000$3.safetensors "
    "$2/checkpoint-00000000000$3.safetensors; }; "
    "refuses() { text=$1; shift; \"$@\" >refused.log 2>&1 && return 9; "
    "grep -q -- \"$text\" refused.log || { cat refused.log; return 8; }; }; ";

static int set_up(void **state) {
    (void)state;
    char url[600];
    fm_error error;
    fm_log_set_level(FM_LOG_ERROR);
    fm_test_make_folder(folder, sizeof folder);
    snprintf(url, sizeof url, "unix:%s/socket", folder);
    for (uint64_t i = 0; i < N_COMPLEX; i++) {
        fm_test_compact_make(&the.complexes[i], i + 1);
        fm_test_compact_add_symmetries(&the.complexes[i]);
    }
    the.source = (fm_sample_source){.context = &the,
                                    .snapshot_name = "made-up",
                                    .snapshot = fm_sha256_of("made-up", 7),
                                    .n_chain = N_COMPLEX,
                                    .open = open_plan,
                                    .make = make,
                                    .close = close_plan};
    const fm_server_options options = {.listen = {url}, .n_job = 2, .goodbye_ms = 500};
    if (fm_server_create(&options, &the.source, &the.server, &error)) fail_msg("%s", error.message);
    assert_int_equal(pthread_create(&the.thread, NULL, server_thread, the.server), 0);
    run_first = functions;
    return run("printf '[data]\\ncrop_size = 10\\nmax_atoms = 16\\nglobal_batch = 2\\n"
               "max_template_date = any\\n[af3]\\n"
               "n_sample = 2\\nn_rollout_step = 2\\n' >small.ini && "
               "sed 's/.data./&\\nplan = bad/' small.ini >bad.ini && "
               "sed 's/.data./&\\nplan = other/' small.ini >other.ini && "
               "$train --steps 5 --out whole --checkpoint-every 1 --keep 9 >whole.log 2>&1");
}

static int stop_server(void **state) {
    fm_server_stop(the.server);
    pthread_join(the.thread, NULL);
    fm_server_destroy(the.server);
    for (int i = 0; i < N_COMPLEX; i++) {
        fm_test_complex_free(&the.complexes[i].whole);
        fm_test_complex_free(&the.complexes[i].compact);
    }
    return tear_down(state);
}

/* -- tests */

/* The rows of a cycle are those that were sent for it. */
static void cycles_have_their_own_rows(void **state) {
    (void)state;
    fm_arena arena;
    fm_tensor_view views[64];
    fm_sample sample;
    fm_af3_features features;
    fm_error error;
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 24, NULL), FM_OK);
    make_sample(1, views, &sample);
    if (fm_complex_features_of(&sample, CYCLES, &arena, &features, &error)) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(features.sample.n_msa, 5);
    assert_int_equal(features.first_row[1], 2);
    assert_int_equal(features.first_row[2], 5);
    const fm_npy *msa = fm_test_complex_find(&the.complexes[1].compact, "msa");
    for (size_t i = 0; i < 3 * (size_t)FM_TEST_TOKENS; i++)
        assert_int_equal(features.sample.msa[2 * FM_TEST_TOKENS + i],
                         ((const uint8_t *)msa->data)[i]);
    assert_int_equal(features.n_orders, 1);
    assert_int_equal(fm_complex_features_of(&sample, CYCLES + 1, &arena, &features, &error),
                     FM_ERR_PROTOCOL);
    fm_arena_fini(&arena);
}

static void a_resumed_run_has_the_same_bytes(void **state) {
    (void)state;
    assert_int_equal(run("test $(wc -l <whole/metrics.jsonl) = 5 && "
                         "grep -q 'data .*snapshot made-up, plan af3-tiny' whole.log && "
                         "grep -q '^samples   1[0-9] received' whole.log && "
                         "$train --steps 2 --out again >again.log 2>&1 && "
                         "$train --steps 5 --out again --resume >again.log 2>&1 && "
                         "same whole again 5"),
                     0);
}

/* Out of order the ledger has the samples; with it the run is repeated. */
static void a_replay_has_the_same_bytes(void **state) {
    (void)state;
    assert_int_equal(run("$train --order bounded:2 --steps 4 --out free >free.log 2>&1 && "
                         "$train --replay free/ledger --steps 4 --out replay >replay.log 2>&1 && "
                         "same free replay 4"),
                     0);
}

/* Two groups have the bytes of one rank. Two ranks that share a sample have nearly its losses. */
static void ranks_share_the_samples(void **state) {
    (void)state;
    assert_int_equal(
        run("export OPENBLAS_NUM_THREADS=1; "
            "$train --ranks 2 --steps 3 --checkpoint-every 1 --keep 9 --out groups >log 2>&1 && "
            "$train --ranks 2 --dap 2 --steps 3 --out shared >log 2>&1 && "
            "python3 -c 'import json; a,b,c=[[json.loads(l) for l in open(f\"{x}/metrics.jsonl\")]"
            "[2] for x in (\"whole\",\"groups\",\"shared\")]; "
            "exit(not (a[\"loss\"] == b[\"loss\"] and abs(a[\"loss\"] - c[\"loss\"]) < 1e-4))'"),
        0);
}

static void bad_samples_end_the_run_or_are_skipped(void **state) {
    (void)state;
    assert_int_equal(
        run("bad='foldmill train --data unix:socket --config bad.ini --preset af3-tiny -q'; "
            "refuses 'sample 1.*made to fail' $bad --steps 4 --out bad && "
            "$bad --steps 4 --bad-samples skip --out skips >skips.log 2>&1 && "
            "grep -q 'skipped   2 samples, 2 of them bad' skips.log && "
            "grep -q 'sample=5 chain=3abc why=.restype.*found 99' skips.log && "
            "$bad --steps 4 --skip-sample 1 --skip-sample 5 --out named >log 2>&1 && "
            "refuses \"no plan is called 'other'\" foldmill train --data unix:socket --config "
            "other.ini --preset af3-tiny --out x"),
        0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cycles_have_their_own_rows),
        cmocka_unit_test(a_resumed_run_has_the_same_bytes),
        cmocka_unit_test(a_replay_has_the_same_bytes),
        cmocka_unit_test(ranks_share_the_samples),
        cmocka_unit_test(bad_samples_end_the_run_or_are_skipped),
    };
    return cmocka_run_group_tests(tests, set_up, stop_server);
}
