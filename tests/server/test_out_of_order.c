/* test_out_of_order.c: runs of real trainer processes whose samples come out of order, from a real
 * server in this process that holds single samples back. Each run is replayed from its ledger, and
 * the checkpoints must be the same to the last byte.
 *
 * No test depends on time. The source finishes a slow sample only when one that comes `later`
 * places after it has begun. The server begins that one only after it has sent samples that
 * overtake the slow one. */
#include "proto/base/directory.h"
#include "proto/base/log.h"
#include "server/server.h"
#include "server/source_cache.h"
#include "tests/testing/testing.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { LATER = 5, EVERY = 7, NONE = 1 << 30 };

static char folder[512], url[640];
static fm_store *store;
static fm_sample_source *inner, source;
static fm_server *server;
static pthread_t thread;
static _Atomic bool is_slow;           /* one sample of EVERY is held back */
static _Atomic uint64_t later = LATER; /* until one so many places behind it has begun */
static _Atomic uint64_t bad = NONE;    /* the sample that cannot be made */
static _Atomic uint64_t stops = NONE;  /* no sample from this one on is made */

/* A plan of one stream. */
typedef struct slow_plan {
    void *inner;
    uint64_t later; /* indices that are LATER places of the stream */
    uint64_t end;   /* one past the last index */
    _Atomic uint64_t last_begun;
} slow_plan;

static fm_status open_plan(void *context, const fm_wire_open *params, void **ret_plan,
                           fm_source_facts *ret_facts, fm_error *reterr) {
    slow_plan *plan = calloc(1, sizeof *plan);
    assert_non_null(plan);
    plan->later = later * params->n_group;
    *ret_plan = plan;
    fm_status status = inner->open(context, params, &plan->inner, ret_facts, reterr);
    plan->end = status ? 0 : (params->first_step + params->n_step) * ret_facts->global_batch;
    if (status) free(plan);
    return status;
}

static void close_plan(void *context) {
    slow_plan *plan = context;
    inner->close(plan->inner);
    free(plan);
}

/* A stream that is closed begins no later sample: after a minute nothing is held. */
static void hold(slow_plan *plan, uint64_t index) {
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 60000; i++) {
        uint64_t awaited = index + plan->later;
        bool is_held =
            is_slow && index % EVERY == 3 && awaited < plan->end && plan->last_begun < awaited;
        if (!is_held && index < stops) return;
        nanosleep(&pause, NULL);
    }
}

static fm_status make(const void *context, uint64_t index, fm_arena *scratch, uint8_t *out,
                      size_t capacity, size_t *ret_bytes, fm_error *reterr) {
    slow_plan *plan = (slow_plan *)(uintptr_t)context;
    uint64_t last = plan->last_begun;
    while (last < index && !atomic_compare_exchange_weak(&plan->last_begun, &last, index))
        continue;
    hold(plan, index);
    if (index == bad) return fm_fail(reterr, FM_ERR_DATA, "the test spoils sample %d", (int)index);
    return inner->make(plan->inner, index, scratch, out, capacity, ret_bytes, reterr);
}

static void *serve(void *argument) {
    fm_server_run(argument);
    return NULL;
}

static int run(const char *command) {
    return fm_test_shell(folder, command);
}

/* Writes "STEP SLOT INDEX SKIPPED" for each place of a run's ledger, whose lines may be cut at a
 * checkpoint. */
static const char places[] =
    "places() {\n"
    "    tail -n +2 $1/ledger | awk '{ s = $2; for (i = 3; i < NF; i++) { n = split($i, r, "
    "\"-\");\n"
    "        for (k = r[1] + 0; k <= r[n] + 0; k++) print $1, s++, k, $i ~ /!/ } }'\n"
    "}\n";

static bool write_places(void) {
    char path[600];
    snprintf(path, sizeof path, "%s/places", folder);
    FILE *file = fopen(path, "w");
    return file && fputs(places, file) >= 0 && fclose(file) == 0;
}

static int set_up(void **state) {
    (void)state;
    char path[600];
    fm_error error;
    fm_log_set_level(FM_LOG_ERROR);
    fm_test_make_folder(folder, sizeof folder);
    if (!write_places()) return 1;
    int failed =
        run("cp \"$OLDPWD/tests/e2e/endure.sh\" lib && "
            "foldmill synth --chains 6 --seed 5 --max-length 60 --depth 100 -o data --quiet && "
            "foldmill build data --cache cache --quiet >build.log && "
            "printf '[model]\\nn_block = 1\\nn_structure_iteration = 1\\nn_extra_block = 0\\n"
            "n_template = 0\\n[data]\\ncrop_size = 16\\nmax_msa_clusters = 4\\nmax_cycle = 4\\n"
            "global_batch = 4\\n' >batch.ini");
    snprintf(url, sizeof url, "unix:%s/socket", folder);
    snprintf(path, sizeof path, "%s/cache", folder);
    if (failed || fm_store_open(path, &store, &error)) return 1;
    if (fm_cache_source_open(store, "all", "all", &inner, &error)) return 1;
    source = *inner;
    source.open = open_plan;
    source.make = make;
    source.close = close_plan;
    source.name = NULL;
    const fm_server_options options = {.listen = {url}, .n_job = 8};
    if (fm_server_create(&options, &source, &server, &error)) return 1;
    if (pthread_create(&thread, NULL, serve, server) != 0) return 1;
    return run(". ./lib; $train --steps 12 --out strict -q >strict.log 2>&1");
}

static int tear_down(void **state) {
    (void)state;
    if (server) {
        fm_server_stop(server);
        pthread_join(thread, NULL);
        fm_server_destroy(server);
    }
    fm_cache_source_close(inner);
    fm_store_close(store);
    fm_test_remove_tree(folder);
    return 0;
}

/* Makes a run out of order, with more arguments, and checks that it was. */
static void train_out_of_order(const char *name, const char *order, const char *arguments) {
    is_slow = true;
    int code = fm_test_shell_format(folder,
                                    ". ./lib; $train --steps 12 --order %s --ahead 2 --out "
                                    "%s -q %s >%s.log 2>&1 && "
                                    "! { tail -n +2 %s/ledger | cmp -s - strict.rows; }",
                                    order, name, arguments, name, name);
    is_slow = false;
    if (code) (void)fm_test_shell_format(folder, "cat %s.log %s/ledger", name, name);
    assert_int_equal(code, 0);
}

/* Replays a run and compares all that it leaves. */
static void replay(const char *name, const char *arguments) {
    int code = fm_test_shell_format(
        folder,
        ". ./lib; . ./places; $train --steps 12 --replay %s/ledger --out %s.again -q %s "
        ">%s.again.log 2>&1 && "
        "same %s %s.again 12 && places %s >a && places %s.again >b && cmp a b && "
        "test $(wc -l <a) = 48",
        name, name, arguments, name, name, name, name, name);
    if (code) (void)fm_test_shell_format(folder, "cat %s.again.log", name);
    assert_int_equal(code, 0);
}

/* The number of cycles is that of the step, whichever samples it has. */
static void a_run_out_of_order_is_replayed(void **state) {
    (void)state;
    assert_int_equal(run("tail -n +2 strict/ledger >strict.rows"), 0);
    train_out_of_order("slow", "bounded:4", "");
    assert_int_equal(run("for r in strict slow; do sed 's/.*\"cycles\":\\([0-9]*\\).*/\\1/' "
                         "$r/metrics.jsonl >$r.cycles; done && cmp strict.cycles slow.cycles && "
                         "test $(sort -u slow.cycles | wc -l) -ge 3"),
                     0);
    replay("slow", "");
}

/* Several groups of ranks, and groups of several ranks: all ranks agree on sample and cycles. */
static void ranks_agree_out_of_order(void **state) {
    (void)state;
    train_out_of_order("groups", "bounded:4", "--ranks 2");
    replay("groups", "--ranks 2");
    train_out_of_order("parts", "bounded:4", "--ranks 2 --dap 2");
    replay("parts", "--ranks 2 --dap 2");
}

/* In order free a sample is overtaken by more than any window of the other tests. */
static void a_free_run_is_replayed(void **state) {
    (void)state;
    later = 14;
    train_out_of_order("free", "free", "");
    later = LATER;
    assert_int_equal(run(". ./places; places free | awk '{ late = 4 * ($1 - 1) + $2 - $3; "
                         "if (late > most) most = late } END { exit !(most > 4) }'"),
                     0);
    replay("free", "");
    assert_int_equal(run(". ./lib; $train --order free --ranks 2 --dap 2 --out none 2>err"), 2);
    assert_int_equal(run("grep -q 'ranks that share a sample' err && test ! -e none"), 0);
}

/* A sample that was skipped is skipped again, although it can be made now. */
static void a_skipped_sample_is_skipped_again(void **state) {
    (void)state;
    bad = 9;
    train_out_of_order("spoiled", "bounded:4", "--bad-samples skip");
    bad = NONE;
    assert_int_equal(run("grep -q ' 9!' spoiled/ledger"), 0);
    replay("spoiled", "");
}

/* A run is killed away from a checkpoint, and stopped inside a batch. The ledger continues from the
 * checkpoint, and one replay gives the whole run. */
static void a_resumed_run_keeps_its_ledger(void **state) {
    (void)state;
    static const struct {
        int signal;
        uint64_t stops;
        int code;
    } lives[] = {{SIGKILL, 18, 137}, {SIGTERM, 31, 143}, {SIGKILL, 39, 137}};
    assert_int_equal(run("echo '. ./lib; exec $train --steps 12 --order bounded:4 --ahead 2 "
                         "--checkpoint-every 3 --resume --out lives -q >>lives.log 2>&1' >life"),
                     0);
    is_slow = true;
    for (size_t i = 0; i < sizeof lives / sizeof lives[0]; i++) {
        stops = lives[i].stops;
        pid_t pid = fm_test_start(folder, "sh life");
        /* The samples before the last step and its neighbours come, whatever is overtaken. */
        assert_int_equal(
            fm_test_shell_format(folder,
                                 ". ./lib; await sh -c 'test $(wc -l <lives/metrics.jsonl) -ge "
                                 "%d'",
                                 (int)(lives[i].stops / 4) - 2),
            0);
        int code = fm_test_stop(pid, lives[i].signal);
        assert_int_equal(code, lives[i].code);
        stops = NONE;
    }
    int code = run("sh life");
    is_slow = false;
    if (code) (void)run("cat lives.log");
    assert_int_equal(code, 0);
    assert_int_equal(run("! grep ledger_incomplete lives.log"), 0);
    replay("lives", "");
}

/* A replay is stopped and resumed like any run. */
static void a_replay_is_resumed(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; $train --steps 5 --replay slow/ledger --out part -q >part.log "
                         "2>&1 && $train --steps 12 --replay slow/ledger --out part --resume -q "
                         ">>part.log 2>&1 && same slow part 12 && cmp slow/ledger part/ledger"),
                     0);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *arguments, *message;
    } cases[] = {
        {"--steps 13 --replay slow/ledger", "slow/ledger: the ledger ends in step 12"},
        {"--steps 12 --replay slow/ledger --seed 4", "run has seed 3, but --seed is 4"},
        {"--steps 12 --replay slow/ledger --ranks 2", "has 1 groups of ranks, and this one has 2"},
        {"--steps 12 --replay slow/ledger --order bounded:4", "give one of the two"},
        {"--steps 12 --replay torn", "torn:3:.*found a damaged line"},
        {"--steps 12 --replay gap", "gap:3:.*lines are missing"},
        {"--steps 12 --replay absent", "absent"},
    };
    assert_int_equal(run("sed '3s/ /  /' slow/ledger >torn && sed 3d slow/ledger >gap"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int code = fm_test_shell_format(
            folder,
            ". ./lib; ! $train --out none %s 2>err >&2 && grep -q -- '%s' err && test ! -e none",
            cases[i].arguments, cases[i].message);
        if (code) (void)run("cat err");
        assert_int_equal(code, 0);
    }
}

int main(void) {
    fm_test_die_with_parent();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_out_of_order_is_replayed),
        cmocka_unit_test(a_free_run_is_replayed),
        cmocka_unit_test(ranks_agree_out_of_order),
        cmocka_unit_test(a_skipped_sample_is_skipped_again),
        cmocka_unit_test(a_resumed_run_keeps_its_ledger),
        cmocka_unit_test(a_replay_is_resumed),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
