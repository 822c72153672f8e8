/* test_train_faults.c: calls of import, export-weights, train and a resumed train to the system
 * fail one at a time (tests/testing/faults.h). After each failure all checkpoints are whole, and
 * --resume ends with the bytes of a run that was never disturbed. */
#include "tests/testing/faults.h"
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[160];
static pid_t server;

/* half: a run of two steps; weights.npz and weights.st: its parameters, with names of others;
 * older: a checkpoint of them. */
static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    int failed = fm_test_shell(
        folder, "mkdir w && foldmill synth --chains 3 --seed 5 --max-length 40 --depth 30 -o data "
                "--quiet && foldmill build data --cache cache --quiet >log && "
                "printf '[model]\\nn_block = 1\\nn_structure_iteration = 1\\nn_extra_block = 0\\n"
                "n_template = 0\\n[data]\\ncrop_size = 16\\nmax_msa_clusters = 4\\n"
                "global_batch = 2\\n' >train.ini");
    if (failed) return failed;
    server = fm_test_serve(folder, "socket", "--cache cache -q");
    return fm_test_shell(folder,
                         "foldmill train --data unix:socket --seed 3 --config train.ini --out half "
                         "--tensorboard half/events --steps 2 -q >log && "
                         "c=half/checkpoint-000000000002.safetensors && "
                         "foldmill export-weights $c --out weights.npz >log && "
                         "foldmill export-weights $c --names openfold --out weights.st >log && "
                         "foldmill import weights.npz --seed 1 --out older >log");
}

static int tear_down(void **state) {
    (void)state;
    int code = server ? fm_test_stop(server, SIGTERM) : 0;
    fm_test_remove_tree(folder);
    return code;
}

#define TRAIN                                                                                      \
    "$T train --data unix:socket --seed 3 --config $ROOT/train.ini --out $ROOT/run "               \
    "--tensorboard $ROOT/run/events --steps 4 --checkpoint-every 2 --keep 2 -q"

/* A whole checkpoint can be exported; all checkpoints of the folder are tried. */
#define WHOLE                                                                                      \
    "for c in w/run/checkpoint-*.safetensors; do test ! -e $c || "                                 \
    "$T export-weights $c --out whole.npz --replace >log || exit 1; done"

/* Times are the only numbers that differ between two runs. */
#define RUN                                                                                        \
    "sha256sum <w/run/checkpoint-000000000004.safetensors && "                                     \
    "sed 's/,\"step_s\".*//' w/run/metrics.jsonl && "                                              \
    "\"$OLDPWD\"/tests/e2e/read_events.py w/run/events/* | sed 's/\"wall_time\": [^,]*//; "        \
    "s/\"time.[a-z_]*\": [^,}]*//g'"

static void test_train(void **state) {
    (void)state;
    fm_test_faults(folder, &(fm_fault_case){.name = "train",
                                            .prepare = "rm -rf w && mkdir w && cp train.ini w",
                                            .command = TRAIN,
                                            .again = TRAIN " --resume",
                                            .check = WHOLE,
                                            .result = RUN,
                                            .n_try = 60});
}

static void test_resume(void **state) {
    (void)state;
    fm_test_faults(
        folder,
        &(fm_fault_case){.name = "resume",
                         .prepare = "rm -rf w && mkdir w && cp train.ini w && cp -r half w/run",
                         .command = TRAIN " --resume",
                         .again = TRAIN " --resume",
                         .check = WHOLE " && cd w/run && cmp checkpoint-000000000002.safetensors "
                                        "../../half/checkpoint-000000000002.safetensors",
                         .result = RUN,
                         .n_try = 60});
}

/* The checkpoint of another program's weights; `w/in` holds an older one, which stays whole. */
static void import_from(const char *name, const char *weights) {
    char prepare[256];
    snprintf(prepare, sizeof prepare, "rm -rf w && mkdir w && cp %s w/weights && cp older w/in",
             weights);
    fm_test_faults(folder, &(fm_fault_case){.name = name,
                                            .prepare = prepare,
                                            .command = "$T import $ROOT/weights --out $ROOT/in "
                                                       "--replace",
                                            .check = "$T export-weights w/in --out whole.npz "
                                                     "--replace >log",
                                            .result = "sha256sum <w/in",
                                            .n_try = 40});
}

static void test_import_npz(void **state) {
    (void)state;
    import_from("import of npz", "weights.npz");
}

static void test_import_safetensors(void **state) {
    (void)state;
    import_from("import of safetensors", "weights.st");
}

static void test_export_weights(void **state) {
    (void)state;
    static const char *const formats[] = {"npz", "safetensors"};
    for (size_t i = 0; i < 2; i++) {
        char name[64], command[256];
        snprintf(name, sizeof name, "export-weights to %s", formats[i]);
        snprintf(command, sizeof command, "$T export-weights $ROOT/in --format %s --out $ROOT/out",
                 formats[i]);
        fm_test_faults(folder,
                       &(fm_fault_case){.name = name,
                                        .prepare = "rm -rf w && mkdir w && cp half/ch* w/in",
                                        .command = command,
                                        .check = "test ! -e w/out || $T import w/out --out in "
                                                 "--replace >log",
                                        .result = "sha256sum <w/out",
                                        .n_try = 30});
    }
}

int main(void) {
    if (!fm_test_has_faults()) return FM_TEST_SKIPPED;
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    cmocka_set_test_filter(getenv("FM_TEST_ONLY"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_train),          cmocka_unit_test(test_resume),
        cmocka_unit_test(test_import_npz),     cmocka_unit_test(test_import_safetensors),
        cmocka_unit_test(test_export_weights),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
