/* test_run.c: what a run remembers and judges: the list of skipped samples, the results of a
 * batch in hand, the identity of a run and changes to it, the watch for divergence, and how long
 * its start took. */
#include "proto/base/json_tree.h"
#include "trainer/app/train/batch_sums.h"
#include "trainer/app/train/divergence.h"
#include "trainer/app/train/identity.h"
#include "trainer/app/evaluation/sample_scores.h"
#include "trainer/app/train/skipped.h"
#include "trainer/app/train/start_phases.h"
#include "trainer/app/ranks/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void skipped_samples_are_written_and_read(void **state) {
    (void)state;
    static fm_skipped list, again;
    static char text[FM_SKIPPED_TEXT_BYTES], other[FM_SKIPPED_TEXT_BYTES];
    assert_int_equal(fm_skipped_add(&list, 12, false, NULL), FM_OK);
    assert_int_equal(fm_skipped_add(&list, UINT64_MAX, true, NULL), FM_OK);
    assert_int_equal(fm_skipped_add(&list, 12, true, NULL), FM_OK); /* stays as it is */
    fm_skipped_format(&list, text);
    assert_string_equal(text, "12 bad\n18446744073709551615 hand\n");
    assert_int_equal(fm_skipped_parse(text, &again, NULL), FM_OK);
    assert_int_equal(again.n, 2);
    assert_int_equal(fm_skipped_bad(&again), 1);
    assert_true(fm_skipped_by_hand(&again, UINT64_MAX));
    assert_false(fm_skipped_by_hand(&again, 12));
    assert_false(fm_skipped_by_hand(&again, 13));
    static const char *const wrong[] = {"12", "12 good\n", "x bad\n", "12 bad\n13", "bad\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(fm_skipped_parse(wrong[i], &again, NULL), FM_ERR_FORMAT);
    list.n = 0;
    for (uint64_t i = 0; i < FM_SKIPPED_MAX; i++)
        assert_int_equal(fm_skipped_add(&list, UINT64_MAX - i, true, NULL), FM_OK);
    fm_skipped_format(&list, text); /* the longest text */
    assert_int_equal(fm_skipped_parse(text, &again, NULL), FM_OK);
    fm_skipped_format(&again, other);
    assert_string_equal(text, other);
    assert_int_equal(fm_skipped_add(&list, 1, false, NULL), FM_ERR_LIMIT);
}

static void a_batch_in_hand_keeps_its_bits(void **state) {
    (void)state;
    fm_batch_sums sums = {.n_counted = 3,
                          .index = UINT64_MAX,
                          .n_cycle = 4,
                          .name = "1abc A \"x\"",
                          .loss = 1.0 / 3,
                          .norm = HUGE_VAL,
                          .wait_s = -0.0,
                          .n_scored = 2};
    for (int i = 0; i < FM_RESULT_TERMS; i++) {
        sums.term[i] = -1e-300 / (i + 1);
        sums.part[i] = 1e-200 / (i + 3);
    }
    for (int i = 0; i < FM_METRICS_SCORES; i++)
        sums.score[i] = -1e300 / (i + 7);
    char text[FM_BATCH_SUMS_TEXT_BYTES], cut[FM_BATCH_SUMS_TEXT_BYTES];
    fm_batch_sums again;
    fm_batch_sums_format(&sums, text);
    assert_int_equal(fm_batch_sums_parse(text, &again, NULL), FM_OK);
    assert_memory_equal(&again.loss, &sums.loss, sizeof again.loss);
    assert_memory_equal(&again.wait_s, &sums.wait_s, sizeof again.wait_s);
    assert_memory_equal(again.term, sums.term, sizeof again.term);
    assert_memory_equal(again.part, sums.part, sizeof again.part);
    assert_memory_equal(again.score, sums.score, sizeof again.score);
    assert_true(isinf(again.norm) && again.index == sums.index && again.n_counted == 3 &&
                again.n_cycle == 4 && again.n_scored == 2);
    assert_string_equal(again.name, sums.name);
    size_t numbers = strlen(text) - strlen(sums.name);
    for (size_t n = 0; n < numbers; n++) { /* cut off anywhere before the name */
        snprintf(cut, sizeof cut, "%.*s", (int)n, text);
        if (n + 1 == numbers) continue;
        assert_int_equal(fm_batch_sums_parse(cut, &again, NULL), FM_ERR_FORMAT);
    }
    memset(sums.name, 'n', sizeof sums.name - 1);
    fm_batch_sums_format(&sums, text);
    assert_int_equal(fm_batch_sums_parse(text, &again, NULL), FM_OK);
    assert_string_equal(again.name, sums.name);
}

/* The text of a program that stored no parts. */
static void an_older_batch_in_hand_is_read(void **state) {
    (void)state;
    char text[FM_BATCH_SUMS_TEXT_BYTES];
    int n = snprintf(text, sizeof text, "2 7 1 0 0x1p+3 0x1p-1 0x0p+0 %d", (int)FM_RESULT_TERMS);
    for (int i = 0; i < FM_RESULT_TERMS; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " 0x1p+%d", i);
    n += snprintf(text + n, sizeof text - (size_t)n, " %d", (int)FM_METRICS_SCORES);
    for (int i = 0; i < FM_METRICS_SCORES; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " 0x0p+0");
    snprintf(text + n, sizeof text - (size_t)n, " 1abc_A");
    fm_batch_sums sums;
    assert_int_equal(fm_batch_sums_parse(text, &sums, NULL), FM_OK);
    assert_true(sums.n_counted == 2 && sums.index == 7 && sums.loss == 8);
    assert_string_equal(sums.name, "1abc_A");
    for (int i = 0; i < FM_RESULT_TERMS; i++)
        assert_true(sums.term[i] == ldexp(1, i) && sums.part[i] == 0);
}

static const char old_config[] =
    "[model]\nn_block = 1\n\n[optimizer]\nlearning_rate = 0.0030000000000000001\n";
static const char implied[] = "[af3]\ndiffusion_products = f32\n";
static const char old_identity[] = "program = 1.0\ndevice = cpu\nprocessor = Haswell\n";

static fm_status check(const char *config, const char *identity, const char *saved_identity,
                       const char *const *change, char *history, fm_error *error) {
    const fm_identity_texts saved = {old_config, saved_identity, implied},
                            now = {config, identity, implied};
    uint32_t n = 0;
    while (change[n])
        n++;
    return fm_identity_check(&saved, &now, 40, change, n, history, error);
}

/* A run whose file does not name a key has the value that the key had before it existed. The
 * refusal names it, the setting that keeps it and the change that leaves it. */
static void a_key_that_older_files_lack_has_a_value(void **state) {
    (void)state;
    static char history[FM_HISTORY_BYTES];
    static const char *const none[] = {NULL}, *const to_auto[] = {"af3.diffusion_products=auto",
                                                                  NULL};
    static const char *const to_f32[] = {"af3.diffusion_products=f32", NULL};
    char now[256];
    fm_error error;
    snprintf(now, sizeof now, "%s[af3]\ndiffusion_products = auto\n", old_config);
    assert_int_equal(check(now, old_identity, old_identity, none, history, &error), FM_ERR_USAGE);
    assert_string_equal(
        error.message,
        "the checkpoint's run has 'diffusion_products = f32', which its file leaves out, but this "
        "run has 'diffusion_products = auto'; resume with the same settings ([af3] "
        "diffusion_products = f32 in --config), or change them on purpose: "
        "--change af3.diffusion_products=auto");
    assert_int_equal(check(now, old_identity, old_identity, to_auto, history, &error), FM_OK);
    assert_string_equal(history, "step 40: af3.diffusion_products: f32 -> auto\n");
    /* The same value, written or left out, is no difference. */
    snprintf(now, sizeof now, "%s[af3]\ndiffusion_products = f32\n", old_config);
    assert_int_equal(check(now, old_identity, old_identity, none, history, &error), FM_OK);
    /* Back to the value that is left out. */
    snprintf(now, sizeof now, "%s[af3]\ndiffusion_products = auto\n", old_config);
    const fm_identity_texts named = {now, old_identity, implied},
                            left_out = {old_config, old_identity, implied};
    history[0] = '\0';
    assert_int_equal(fm_identity_check(&named, &left_out, 40, NULL, 0, history, &error),
                     FM_ERR_USAGE);
    assert_non_null(strstr(error.message, "but this run has 'diffusion_products = f32'; resume "
                                          "with the same settings, or change them on purpose: "
                                          "--change af3.diffusion_products=f32"));
    assert_int_equal(fm_identity_check(&named, &left_out, 40, to_f32, 1, history, &error), FM_OK);
    assert_string_equal(history, "step 40: af3.diffusion_products: auto -> f32\n");
}

static void a_run_is_resumed_as_it_was_or_with_named_changes(void **state) {
    (void)state;
    static char history[FM_HISTORY_BYTES];
    static const char *const none[] = {NULL};
    static const char *const rate[] = {"optimizer.learning_rate=0.0005", NULL};
    static const char *const device[] = {"device=cuda", "processor=none", NULL};
    const char *slow =
        "[model]\nn_block = 1\n[optimizer]\nlearning_rate = 0.00050000000000000001\n";
    const char *cuda = "program = 1.0\ndevice = cuda\n";
    fm_error error;
    assert_int_equal(check(old_config, old_identity, old_identity, none, history, &error), FM_OK);
    assert_string_equal(history, "");
    assert_int_equal(check(slow, old_identity, old_identity, none, history, &error), FM_ERR_USAGE);
    assert_string_equal(
        error.message,
        "the checkpoint's run has 'learning_rate = 0.0030000000000000001', but this run has "
        "'learning_rate = 0.00050000000000000001'; resume with the same settings, or change them "
        "on "
        "purpose: --change optimizer.learning_rate=0.0005");
    assert_int_equal(check(slow, old_identity, old_identity, rate, history, &error), FM_OK);
    assert_string_equal(history, "step 40: optimizer.learning_rate: 0.003 -> 0.0005\n");
    assert_int_equal(check(old_config, cuda, old_identity, none, history, &error), FM_ERR_USAGE);
    assert_non_null(strstr(error.message, "purpose: --change device=cuda --change processor=none"));
    assert_int_equal(check(old_config, cuda, old_identity, device, history, &error), FM_OK);
    assert_string_equal(history, "step 40: optimizer.learning_rate: 0.003 -> 0.0005\n"
                                 "step 40: device: cpu -> cuda\n"
                                 "step 40: processor: Haswell -> none\n");
    /* A file of an older program has no identity: only the settings are compared. */
    assert_int_equal(check(old_config, cuda, NULL, none, history, &error), FM_OK);
    /* Or it has less of it. */
    const char *longer =
        "program = 1.0\ndevice = cpu\nprocessor = Haswell\nlibrary = OpenBLAS 0.3\n";
    const char *other =
        "program = 1.0\ndevice = cpu\nprocessor = Haswell\nlibrary = OpenBLAS 0.4\n";
    assert_int_equal(check(old_config, longer, old_identity, none, history, &error), FM_OK);
    assert_int_equal(check(old_config, other, longer, none, history, &error), FM_ERR_USAGE);
    assert_non_null(strstr(error.message, " --change 'library=OpenBLAS 0.4'"));
    /* Another build is recorded and allowed. */
    static char rebuilt[FM_HISTORY_BYTES];
    assert_int_equal(check(old_config, "program = 1.0\nbuild = 12ab\n",
                           "program = 1.0\nbuild = 34cd\n", none, rebuilt, &error),
                     FM_OK);
    assert_string_equal(rebuilt, "step 40: build: 34cd -> 12ab\n");
    /* A change that was made already is no change; one that this run does not have is a slip. */
    history[0] = '\0';
    static const char *const same[] = {"device=cpu", NULL}, *const slip[] = {"device=cuda", NULL},
                             *const unknown[] = {"devise=cpu", NULL},
                             *const odd[] = {"device", NULL};
    assert_int_equal(check(old_config, old_identity, old_identity, same, history, &error), FM_OK);
    assert_string_equal(history, "");
    assert_int_equal(check(old_config, old_identity, old_identity, slip, history, &error),
                     FM_ERR_USAGE);
    assert_string_equal(error.message,
                        "--change device=cuda: this run has cpu; set it with --config "
                        "or its option as well");
    assert_int_equal(check(old_config, old_identity, old_identity, unknown, history, &error),
                     FM_ERR_USAGE);
    assert_non_null(strstr(error.message, "no setting of that name; expected one such as"));
    assert_int_equal(check(old_config, old_identity, old_identity, odd, history, &error),
                     FM_ERR_USAGE);
    assert_non_null(strstr(error.message, "expected key=value"));
    memset(history, 'h', sizeof history - 1);
    assert_int_equal(check(slow, old_identity, old_identity, rate, history, &error), FM_ERR_LIMIT);
}

/* A run of one group, or of one batch, writes no line of it: more of them are a change. */
static void one_group_and_one_batch_are_compared(void **state) {
    (void)state;
    static char history[FM_HISTORY_BYTES];
    static const char *const none[] = {NULL}, *const two[] = {"dp=2", NULL};
    static const char *const batches[] = {"batch_schedule=2@0,4@1", NULL};
    fm_error error;
    assert_int_equal(
        check(old_config, "program = 1.0\ndp = 2\n", old_identity, none, history, &error),
        FM_ERR_USAGE);
    assert_non_null(strstr(error.message, "has no 'dp', but this run has 'dp = 2'; "));
    assert_non_null(strstr(error.message, " --change dp=2"));
    assert_int_equal(check(old_config, "program = 1.0\ndevice = cpu\nprocessor = Haswell\ndp = 2\n",
                           old_identity, two, history, &error),
                     FM_OK);
    assert_string_equal(history, "step 40: dp: none -> 2\n");
    static const char scheduled[] =
        "program = 1.0\ndevice = cpu\nprocessor = Haswell\nbatch_schedule = 2@0,4@1\n";
    history[0] = '\0';
    assert_int_equal(check(old_config, scheduled, old_identity, none, history, &error),
                     FM_ERR_USAGE);
    assert_int_equal(check(old_config, scheduled, old_identity, batches, history, &error), FM_OK);
    assert_string_equal(history, "step 40: batch_schedule: none -> 2@0,4@1\n");
}

/* The message has room for a few options; none is cut, and the others are counted. */
static void many_differences_are_counted(void **state) {
    (void)state;
    static char history[FM_HISTORY_BYTES];
    static const char *const none[] = {NULL};
    char config[1024] = "[optimizer]\n";
    for (int i = 0; i < 20; i++) {
        size_t at = strlen(config);
        snprintf(config + at, sizeof config - at, "setting_number_%02d = 1\n", i);
    }
    fm_error error;
    assert_int_equal(check(config, old_identity, old_identity, none, history, &error),
                     FM_ERR_USAGE);
    const char *last = strrchr(error.message, '=');
    assert_non_null(last);
    assert_string_equal(last, "=1 and 17 more differences");
    assert_string_equal(history, "");
}

static void an_identity_has_a_line_for_each_field(void **state) {
    (void)state;
    char text[FM_IDENTITY_BYTES];
    const fm_identity identity = {
        "1.2", "12ab", "cuda", "NVIDIA H200", "cuBLASLt 13.1.0", "bf16", "strict", "", ""};
    fm_identity_format(&identity, text);
    assert_string_equal(text,
                        "program = 1.2\nbuild = 12ab\ndevice = cuda\nprocessor = NVIDIA H200\n"
                        "library = cuBLASLt 13.1.0\ndtype = bf16\norder = strict\n");
}

/* A number from 0 to 1 that looks random. */
static double noise(uint64_t i) {
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
    return (double)(x >> 11) * 0x1p-53;
}

static void divergence_is_noticed_and_noise_is_not(void **state) {
    (void)state;
    fm_divergence d = {.n = 0};
    char why[256];
    for (uint64_t i = 0; i < 3000; i++) { /* a falling, noisy loss with single bad samples */
        double loss = 10 / (1 + (double)i / 500) + noise(i) + (i % 200 == 7 ? 100 : 0);
        assert_false(fm_divergence_add(&d, loss, 1 + noise(i + 9000), why, sizeof why));
    }
    int first = -1;
    for (int i = 0; i < 40 && first < 0; i++) {
        if (fm_divergence_add(&d, 20 + i, 1, why, sizeof why)) first = i;
    }
    assert_in_range(first, FM_DIVERGENCE_NEWEST / 2 - 1, FM_DIVERGENCE_NEWEST - 1);
    assert_non_null(strstr(why, "the loss diverges: the median of the last 16 steps is"));
    assert_non_null(strstr(why, "of the 240 steps before, 99 % were at most"));
    d = (fm_divergence){.n = 0};
    for (uint64_t i = 0; i < 500; i++) { /* numbers that are not finite are left out */
        double norm = i < 300 ? noise(i) : 50 + noise(i), loss = i % 9 ? 1 + noise(i) : (double)NAN;
        if (fm_divergence_add(&d, loss, norm, why, sizeof why)) break;
        assert_true(i < 330);
    }
    assert_non_null(strstr(why, "the gradient norm diverges"));
    d = (fm_divergence){.n = 0}; /* too few steps to judge */
    for (uint64_t i = 0; i + 1 < FM_DIVERGENCE_LEAST + FM_DIVERGENCE_NEWEST; i++)
        assert_false(fm_divergence_add(&d, (double)i, 1, why, sizeof why));
}

/* -- ranks */

static void set_world(const char *const *variables) {
    static const char *const all[] = {"FOLDMILL_RANK",
                                      "FOLDMILL_RANKS",
                                      "FOLDMILL_LOCAL_RANK",
                                      "FOLDMILL_MEETING",
                                      "FOLDMILL_BEGAN_NS",
                                      "RANK",
                                      "WORLD_SIZE",
                                      "LOCAL_RANK",
                                      "MASTER_ADDR",
                                      "MASTER_PORT",
                                      "TORCHELASTIC_RUN_ID",
                                      "TORCHELASTIC_USE_AGENT_STORE",
                                      "SLURM_PROCID",
                                      "SLURM_STEP_NUM_TASKS",
                                      "SLURM_LOCALID",
                                      "SLURM_STEP_NODELIST",
                                      "SLURM_JOB_ID",
                                      "SLURM_STEP_ID",
                                      "PMI_RANK",
                                      "PMI_SIZE",
                                      "OMPI_COMM_WORLD_RANK",
                                      "OMPI_COMM_WORLD_SIZE"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        unsetenv(all[i]);
    for (; variables[0]; variables += 2)
        assert_int_equal(setenv(variables[0], variables[1], 1), 0);
}

static void a_rank_is_found_in_its_environment(void **state) {
    (void)state;
    static const struct {
        const char *variables[13];
        int32_t rank, size, local;
        const char *meeting;
    } cases[] = {
        {{"FOLDMILL_RANK", "3", "FOLDMILL_RANKS", "4", "FOLDMILL_LOCAL_RANK", "3",
          "FOLDMILL_MEETING", "unix:/tmp/x", "RANK", "0", "WORLD_SIZE", "2"},
         3,
         4,
         3,
         "unix:/tmp/x"},
        {{"RANK", "5", "WORLD_SIZE", "16", "LOCAL_RANK", "1", "MASTER_ADDR", "node1", "MASTER_PORT",
          "29500"},
         5,
         16,
         1,
         "tcp://node1:29500#"},
        {{"RANK", "5", "WORLD_SIZE", "16", "MASTER_ADDR", "fe80::1", "MASTER_PORT", "29500",
          "TORCHELASTIC_USE_AGENT_STORE", "True", "TORCHELASTIC_RUN_ID", "job"},
         5,
         16,
         0,
         "tcp://[fe80::1]:29501#job"},
        {{"SLURM_PROCID", "17", "SLURM_STEP_NUM_TASKS", "2080", "SLURM_JOB_ID", "1234567",
          "SLURM_STEP_ID", "0", "SLURM_STEP_NODELIST", "gpu[007-031,40],other"},
         17,
         2080,
         0,
         "tcp://gpu007:24567#1234567.0"},
        {{"SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "2", "SLURM_LOCALID", "1", "SLURM_JOB_ID",
          "8", "SLURM_STEP_NODELIST", "alone"},
         1,
         2,
         1,
         "tcp://alone:20008#8."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool is_found;
        fm_world world;
        set_world(cases[i].variables);
        assert_int_equal(fm_world_find(NULL, &is_found, &world, NULL), FM_OK);
        assert_true(is_found && world.rank == cases[i].rank && world.size == cases[i].size);
        assert_int_equal(world.local_rank, cases[i].local);
        assert_string_equal(world.meeting, cases[i].meeting);
        assert_int_equal(fm_world_find("file:/x", &is_found, &world, NULL), FM_OK);
        assert_string_equal(world.meeting, "file:/x");
    }
    static const char *const none[][7] = {
        {"RANK", "0", "WORLD_SIZE", "1"}, {"SLURM_PROCID", "0", "SLURM_JOB_ID", "5"}, {NULL}};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        bool is_found;
        fm_world world;
        set_world(none[i]);
        assert_int_equal(fm_world_find(NULL, &is_found, &world, NULL), FM_OK);
        assert_false(is_found);
    }
}

static void wrong_variables_are_refused(void **state) {
    (void)state;
    static const char *const wrong[][9] = {
        {"RANK", "2", "WORLD_SIZE", "2"},
        {"RANK", "-1", "WORLD_SIZE", "2"},
        {"RANK", "0", "WORLD_SIZE", "1e3"},
        {"PMI_RANK", "0", "PMI_SIZE", "99999"},
        {"PMI_RANK", "0", "PMI_SIZE", "2"}, /* nobody says where they meet */
        {"RANK", "0", "WORLD_SIZE", "0"},
        {"RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "node1", "MASTER_PORT", "http"},
        {"RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "node1", "MASTER_PORT", "0"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        bool is_found;
        fm_world world;
        set_world(wrong[i]);
        assert_int_equal(fm_world_find(NULL, &is_found, &world, NULL), FM_ERR_USAGE);
    }
}

static void a_rank_knows_when_its_command_began(void **state) {
    (void)state;
    static const char *const given[][2] = {{"0", NULL},      {"18446744073709551615", NULL},
                                           {"", "wrong"},    {"-1", "wrong"},
                                           {"1e9", "wrong"}, {"18446744073709551616", "wrong"}};
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        const char *const variables[] = {"FOLDMILL_RANK",
                                         "0",
                                         "FOLDMILL_RANKS",
                                         "2",
                                         "FOLDMILL_MEETING",
                                         "unix:/tmp/x",
                                         "FOLDMILL_BEGAN_NS",
                                         given[i][0],
                                         NULL};
        bool is_found;
        fm_world world;
        set_world(variables);
        assert_int_equal(fm_world_find(NULL, &is_found, &world, NULL),
                         given[i][1] ? FM_ERR_USAGE : FM_OK);
        if (!given[i][1]) assert_int_equal(world.began_ns, strtoull(given[i][0], NULL, 10));
    }
    static const char *const other[] = {"RANK", "0", "WORLD_SIZE", "2", NULL};
    bool is_found;
    fm_world world;
    set_world(other);
    assert_int_equal(fm_world_find("file:/x", &is_found, &world, NULL), FM_OK);
    assert_true(is_found && world.began_ns == 0);
}

/* The phases fill the time from the start to the newest mark. */
static void a_start_is_the_sum_of_its_phases(void **state) {
    (void)state;
    char text[FM_START_TEXT_BYTES];
    const uint64_t second = 1000000000, begin = UINT64_MAX / 2;
    fm_start_phases p = fm_start_phases_from(begin);
    fm_start_phases_mark(&p, FM_START_COMMAND, begin + second / 2);
    fm_start_phases_mark(&p, FM_START_LINKS, begin + second);
    fm_start_phases_mark(&p, FM_START_MODEL, begin + second);
    fm_start_phases_mark(&p, FM_START_LINKS, begin + 3 * second);
    fm_start_phases_mark(&p, FM_START_STEP, begin + 13 * second);
    fm_start_phases_format(&p, text);
    assert_string_equal(text, "after_s=13.00 command_s=0.50 meeting_s=0.00 device_s=0.00 "
                              "links_s=2.50 model_s=0.00 data_s=0.00 checks_s=0.00 step_s=10.00");
    p = (fm_start_phases){.marked_ns = UINT64_MAX}; /* the longest text */
    for (int i = 0; i < FM_START_PHASES; i++)
        p.spent_ns[i] = UINT64_MAX;
    fm_start_phases_format(&p, text);
    assert_string_equal(text + strlen(text) - 5, "73.71");
}

static void the_gpu_of_a_rank_comes_first(void **state) {
    (void)state;
    static const struct {
        const char *given;
        int32_t local;
        const char *found;
    } cases[] = {{"4,5,6,7", 0, "4,5,6,7"},
                 {"4,5,6,7", 1, "5,4,6,7"},
                 {"4,5,6,7", 3, "7,4,5,6"},
                 {"GPU-1,GPU-2", 1, "GPU-2,GPU-1"},
                 {"3", 0, "3"},
                 {"3", 2, "3"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const fm_world world = {.local_rank = cases[i].local};
        assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", cases[i].given, 1), 0);
        fm_world_put_gpu_first(&world);
        assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), cases[i].found);
    }
    unsetenv("CUDA_VISIBLE_DEVICES");
    const fm_world world = {.local_rank = 2};
    fm_world_put_gpu_first(&world);
    assert_true(strncmp(getenv("CUDA_VISIBLE_DEVICES"), "2,0,1,3,4,", 10) == 0);
    unsetenv("CUDA_VISIBLE_DEVICES");
}

/* A sampled structure may be far off or not finite; the line is JSON in any case. */
static void scores_are_json_also_where_they_are_not_finite(void **state) {
    (void)state;
    char line[2048];
    fm_sample_means means = {.loss = 1.5, .rmsd = NAN, .rmsd_max = INFINITY, .n_rollout = 2};
    means.term[0] = NAN;
    for (int i = 0; i < FM_N_PART_SCORE; i++)
        means.parts.of[i] = (fm_mean_score){.n = i, .mean = i == 1 ? NAN : -1.23456789e-300};
    for (int i = 1; i < FM_COMPLEX_TERMS; i++)
        means.term[i] = -1.23456789e-300;
    size_t bytes = fm_sample_means_line(&means, 3, UINT64_MAX / 2, 1e9, line, sizeof line);
    assert_int_equal(strlen(line), bytes);
    fm_json *tree = fm_json_parse(line, bytes);
    assert_true(fm_json_is_object(tree));
    assert_true(fm_json_get_number(fm_json_get_member(tree, "loss"), 0) == 1.5);
    assert_true(isnan(fm_json_get_number(fm_json_get_member(tree, "rollout_rmsd"), NAN)));
    assert_true(isnan(fm_json_get_number(fm_json_get_member(tree, "rollout_rmsd_max"), NAN)));
    assert_true(fm_json_get_number(fm_json_get_member(tree, "rollout_lddt"), NAN) == 0);
    assert_null(fm_json_get_member(tree, fm_part_score_names[0]));
    assert_true(isnan(fm_json_get_number(fm_json_get_member(tree, fm_part_score_names[1]), NAN)));
    assert_true(fm_json_get_number(fm_json_get_member(tree, "rollout_pocket_rmsd"), NAN) < 0);
    fm_json_free(tree);
}

/* It is neither the best structure nor one of the right hand. */
static void a_structure_that_is_not_finite_has_no_score(void **state) {
    (void)state;
    char *names[] = {"a", "b", "c"};
    fm_sample_scores scores;
    assert_int_equal(fm_sample_scores_init(names, 3, &scores, NULL), FM_OK);
    for (int i = 0; i < 3; i++)
        scores.file[i].rollout =
            (fm_af3_score){.is_known = true, .rmsd = 2 + i, .mirror_rmsd = 1, .lddt = 0.5};
    fm_sample_means means = fm_sample_scores_means(&scores);
    assert_true(means.rmsd == 3 && means.rmsd_max == 4 && means.mirrored == 1);
    scores.file[1].rollout = (fm_af3_score){.is_known = true, .rmsd = NAN, .mirror_rmsd = NAN};
    means = fm_sample_scores_means(&scores);
    assert_true(isnan(means.rmsd) && isnan(means.rmsd_max) && isnan(means.mirrored));
    assert_true(means.lddt == 1.0 / 3);
    fm_sample_scores_fini(&scores);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_json_also_where_they_are_not_finite),
        cmocka_unit_test(a_structure_that_is_not_finite_has_no_score),
        cmocka_unit_test(skipped_samples_are_written_and_read),
        cmocka_unit_test(a_batch_in_hand_keeps_its_bits),
        cmocka_unit_test(an_older_batch_in_hand_is_read),
        cmocka_unit_test(a_run_is_resumed_as_it_was_or_with_named_changes),
        cmocka_unit_test(a_key_that_older_files_lack_has_a_value),
        cmocka_unit_test(one_group_and_one_batch_are_compared),
        cmocka_unit_test(many_differences_are_counted),
        cmocka_unit_test(an_identity_has_a_line_for_each_field),
        cmocka_unit_test(divergence_is_noticed_and_noise_is_not),
        cmocka_unit_test(a_rank_is_found_in_its_environment),
        cmocka_unit_test(wrong_variables_are_refused),
        cmocka_unit_test(a_rank_knows_when_its_command_began),
        cmocka_unit_test(a_start_is_the_sum_of_its_phases),
        cmocka_unit_test(the_gpu_of_a_rank_comes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
