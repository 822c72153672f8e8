/* test_kills.c: builds killed with SIGKILL at random instants. The published generation stays
 * readable at every moment, and a rerun ends with the content of an undisturbed build.
 *
 * Builds of chains get 200 kills and those of complexes 40, or as many as $FM_TEST_KILLS says, and
 * of either 1 / $FM_TEST_SHARE; the sanitizers' presets ask for fewer. The program builds by
 * starting itself with the arguments "build DATASET CACHE [COMPONENTS]". */
#include "tests/cache/complexes_case.h"

#include "proto/base/rng.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N_KILL = 200, N_KILL_COMPLEXES = 40, FRESH_EACH = 4 };

extern char **environ;

static uint32_t draw(uint32_t n, uint32_t below) {
    fm_philox_counter counter = fm_philox(23, (fm_philox_counter){{n, 0, 0, 0}});
    return fm_uniform_below((uint64_t)counter.word[0] << 32 | counter.word[1], below);
}

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* -- a build in a separate process */

/* Puts the components into the cache, where the build finds them. */
static fm_status put_components(const char *cache, const char *path, fm_arena *arena,
                                fm_error *reterr) {
    const fm_source_file file = {.name = "components", .path = path, .bytes = UINT64_MAX};
    fm_components components;
    fm_bytes text = {0};
    bool was_there;
    fm_status status = fm_source_read(&file, 1 << 20, arena, &text, reterr);
    if (!status) status = fm_components_parse(text, arena, &components, reterr);
    if (status) return status;
    return fm_build_put_components(cache, &components, arena, &was_there, reterr);
}

static int build_and_exit(const char *data, const char *cache, const char *components) {
    fm_arena arena;
    fm_error error;
    fm_source source;
    fm_build_report report;
    /* Small shards, so that many kills hit the sealing of one. */
    const fm_build_options options = {
        .cache = cache, .n_job = 2, .shard_bytes = 40000, .complexes = components != NULL};
    fm_status status = fm_arena_init(&arena, (size_t)4 << 30, &error);
    if (!status) {
        status = fm_source_scan(&(fm_source_options){.dataset = data}, 1, &arena, &source, &error);
    }
    if (!status && components) status = put_components(cache, components, &arena, &error);
    if (!status) status = fm_build_run(&source, &options, &arena, &report, &error);
    if (status) fprintf(stderr, "build: %s\n", error.message);
    return status ? 1 : 0;
}

static pid_t start_build(const cache_case *test, const char *components) {
    char program[] = "/proc/self/exe", verb[] = "build", data[200], cache[200], file[200];
    char *const arguments[] = {program, verb, data, cache, components ? file : NULL, NULL};
    snprintf(data, sizeof data, "%s", test->data);
    snprintf(cache, sizeof cache, "%s", test->cache);
    snprintf(file, sizeof file, "%s", components ? components : "");
    pid_t child;
    assert_int_equal(posix_spawn(&child, program, NULL, NULL, arguments, environ), 0);
    return child;
}

static int end_of(pid_t child) {
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* True when the build was killed before its end. */
static bool kill_build(const cache_case *test, const char *components, double seconds) {
    pid_t child = start_build(test, components);
    struct timespec wait = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&wait, NULL);
    kill(child, SIGKILL);
    int status = end_of(child);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
}

/* -- a reader beside it */

typedef struct reader {
    const char *cache;
    const fm_sha256 *few, *whole;
    atomic_bool stop, bad;
    uint32_t n_read;
    fm_error error;
} reader;

/* Opens and checks the current generation: the previous one, or the new one. */
static fm_status read_once(reader *self, fm_arena *arena) {
    fm_store *store;
    fm_store_check check;
    fm_status status = fm_store_open(self->cache, &store, &self->error);
    if (status) return status;
    const fm_sha256 *content = &fm_store_get_info(store)->content;
    if (memcmp(content, self->few, sizeof *content) != 0 &&
        memcmp(content, self->whole, sizeof *content) != 0) {
        status = fm_fail(&self->error, FM_ERR_DATA, "neither the generation before nor the new");
    }
    if (!status) status = fm_store_verify(store, NULL, arena, &check, &self->error);
    fm_store_close(store);
    return status;
}

static void *read_on(void *context) {
    reader *self = context;
    fm_arena arena;
    if (fm_arena_init(&arena, (size_t)1 << 30, &self->error)) atomic_store(&self->bad, true);
    while (!atomic_load(&self->stop) && !atomic_load(&self->bad)) {
        if (read_once(self, &arena)) atomic_store(&self->bad, true);
        self->n_read++;
        sched_yield();
    }
    fm_arena_fini(&arena);
    return NULL;
}

/* -- the test */

typedef struct kills_case {
    cache_case test;
    char base[180], file[180];
    const char *components; /* NULL = no complexes, else the file */
    fm_sha256 few, whole;
    double build_seconds;
    uint32_t n_killed, n_ended, n_read, n_draw;
} kills_case;

static void check_is_whole(kills_case *kc) {
    fm_store *store;
    assert_int_equal(fm_store_open(kc->test.cache, &store, &kc->test.error), FM_OK);
    assert_memory_equal(&fm_store_get_info(store)->content, &kc->whole, sizeof kc->whole);
    fm_store_close(store);
    assert_int_equal(verify(&kc->test, kc->test.cache), FM_OK);
}

/* Builds the small dataset into the base, and the whole one to know its content and its time. */
static void build_both(kills_case *kc, const char *few, fm_build_options options) {
    cache_case *test = &kc->test;
    char clean[180];
    fm_build_report report;
    snprintf(kc->base, sizeof kc->base, "%s/base", test->folder);
    snprintf(clean, sizeof clean, "%s/clean", test->folder);
    assert_int_equal(build_with(test, few, kc->base, options, &report), FM_OK);
    kc->few = report.content;
    assert_int_equal(build_with(test, test->data, clean, options, &report), FM_OK);
    kc->whole = report.content;
    double begun = now_seconds();
    assert_int_equal(end_of(start_build(test, kc->components)), 0);
    kc->build_seconds = now_seconds() - begun;
    check_is_whole(kc);
}

static void setup_chains(kills_case *kc) {
    cache_case *test = &kc->test;
    char few[180];
    memset(kc, 0, sizeof *kc);
    setup_case(test, 24);
    snprintf(few, sizeof few, "%s/few", test->folder);
    assert_int_equal(run_shell("mkdir -p %s/alignments && cp -r %s/mmcifs %s && "
                               "cd %s/alignments && cp -r $(ls | head -3) %s/alignments",
                               few, test->data, few, test->data, few),
                     0);
    build_both(kc, few, (fm_build_options){0});
}

/* 26 complexes, two of them in the base, and a chain beside them. */
static void setup_complexes(kills_case *kc) {
    complexes_case complexes;
    cache_case *test = &kc->test;
    char few[180];
    memset(kc, 0, sizeof *kc);
    set_up(&complexes);
    snprintf(few, sizeof few, "%s/few", complexes.base.folder);
    assert_int_equal(run_shell("cp -r %s %s", complexes.base.data, few), 0);
    write_entries(&complexes, 400);
    write_text(complexes.base.folder, "components.cif", components_text);
    kc->test = complexes.base;
    snprintf(kc->file, sizeof kc->file, "%s/components.cif", test->folder);
    kc->components = kc->file;
    build_both(kc, few, (fm_build_options){.complexes = true, .components = &complexes.components});
}

/* Kills build after build, each on the remains of the one before, until one ends. On a machine that
 * is slower now than when the build was timed, each would be killed before its end. So the longest
 * time grows from kill to kill. */
static void kill_round(kills_case *kc, bool fresh) {
    cache_case *test = &kc->test;
    reader reads = {.cache = test->cache, .few = &kc->few, .whole = &kc->whole};
    pthread_t thread;
    assert_int_equal(fresh
                         ? run_shell("rm -rf %s", test->cache)
                         : run_shell("rm -rf %s; cp -r %s %s", test->cache, kc->base, test->cache),
                     0);
    if (!fresh) assert_int_equal(pthread_create(&thread, NULL, read_on, &reads), 0);
    double longest = kc->build_seconds;
    for (bool killed = true; killed; longest *= 1.02) {
        double part = draw(kc->n_draw++, 1000000) * 1e-6;
        killed = kill_build(test, kc->components, longest * part);
        kc->n_killed += killed;
        kc->n_ended += !killed;
    }
    atomic_store(&reads.stop, true);
    if (!fresh) assert_int_equal(pthread_join(thread, NULL), 0);
    if (atomic_load(&reads.bad)) {
        fail_msg("a reader: %s: %s", reads.error.source, reads.error.message);
    }
    kc->n_read += reads.n_read;
    check_is_whole(kc);
}

static uint32_t count_kills(uint32_t n) {
    const char *share = getenv("FM_TEST_SHARE"), *all = getenv("FM_TEST_KILLS");
    if (all) n = (uint32_t)strtoul(all, NULL, 10);
    return n / (share ? (uint32_t)strtoul(share, NULL, 10) : 1);
}

static void kill_all(kills_case *kc, uint32_t n_kill) {
    /* At least one round has no generation before it, and one has, which is read. */
    for (uint32_t round = 0; kc->n_killed < n_kill || round < 2; round++) {
        assert_true(kc->n_ended < 10 * (n_kill + 1));
        kill_round(kc, round % FRESH_EACH == 0);
    }
    print_message("%u kills of builds of %.0f ms, in %u rounds; %u readings of the published "
                  "generation meanwhile\n",
                  kc->n_killed, kc->build_seconds * 1e3, kc->n_ended, kc->n_read);
    assert_true(kc->n_read > kc->n_killed / 8);
    teardown_case(&kc->test);
}

static void killed_builds_of_chains_are_whole(void **state) {
    (void)state;
    kills_case kc;
    setup_chains(&kc);
    kill_all(&kc, count_kills(N_KILL));
}

static void killed_builds_of_complexes_are_whole(void **state) {
    (void)state;
    kills_case kc;
    setup_complexes(&kc);
    kill_all(&kc, count_kills(N_KILL_COMPLEXES));
}

int main(int argc, char **argv) {
    if (argc >= 4 && strcmp(argv[1], "build") == 0) {
        return build_and_exit(argv[2], argv[3], argc > 4 ? argv[4] : NULL);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(killed_builds_of_chains_are_whole),
                                       cmocka_unit_test(killed_builds_of_complexes_are_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
