/* cache_case.h: shared by the cache's tests: a folder with a synthetic dataset, built in
 * process. */
#ifndef FM_TESTS_CACHE_CASE_H
#define FM_TESTS_CACHE_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cache/build/build.h"
#include "cache/store/store.h"
#include "tests/testing/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct cache_case {
    char folder[128], data[160], cache[160];
    fm_arena arena;
    fm_error error;
} cache_case;

static int run_shell(const char *format, ...) FM_PRINTF(1, 2);

static int run_shell(const char *format, ...) {
    char command[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    return system(command);
}

static inline void setup_case(cache_case *test, unsigned n_chain) {
    memset(test, 0, sizeof *test);
    fm_test_make_folder(test->folder, sizeof test->folder);
    snprintf(test->data, sizeof test->data, "%s/data", test->folder);
    snprintf(test->cache, sizeof test->cache, "%s/cache", test->folder);
    assert_int_equal(fm_arena_init(&test->arena, (size_t)4 << 30, &test->error), FM_OK);
    assert_int_equal(run_shell("$FM_BIN/foldmill synth --chains %u --seed 3 --max-length 60 "
                               "--depth 60 --quiet -o %s >/dev/null",
                               n_chain, test->data),
                     0);
}

static inline void teardown_case(cache_case *test) {
    fm_arena_fini(&test->arena);
    fm_test_remove_tree(test->folder);
}

static inline fm_status build_with(cache_case *test, const char *data, const char *cache,
                                   fm_build_options options, fm_build_report *report) {
    fm_source source;
    options.cache = cache;
    if (!options.n_job) options.n_job = 2;
    assert_int_equal(fm_source_scan(&(fm_source_options){.dataset = data}, 1, &test->arena, &source,
                                    &test->error),
                     FM_OK);
    return fm_build_run(&source, &options, &test->arena, report, &test->error);
}

static inline fm_build_report build(cache_case *test) {
    fm_build_report report;
    fm_status status = build_with(test, test->data, test->cache, (fm_build_options){0}, &report);
    if (status) print_error("%s\n", test->error.message);
    assert_int_equal(status, FM_OK);
    return report;
}

/* The progress of a check never goes back, and never past the end. */
typedef struct check_watch {
    uint64_t done_bytes, all_bytes;
} check_watch;

static inline void watch_check(void *context, uint64_t done_bytes, uint64_t all_bytes) {
    check_watch *seen = context;
    assert_true(done_bytes >= seen->done_bytes && done_bytes <= all_bytes);
    *seen = (check_watch){done_bytes, all_bytes};
}

static inline fm_status verify(cache_case *test, const char *cache) {
    fm_store *store;
    fm_store_check check;
    check_watch seen = {0};
    const fm_store_watch watch = {&seen, watch_check};
    fm_arena arena;
    fm_status status = fm_store_open(cache, &store, &test->error);
    if (status) return status;
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 30, NULL), FM_OK);
    status = fm_store_verify(store, &watch, &arena, &check, &test->error);
    if (!status && check.n_chain) assert_int_equal(seen.done_bytes, seen.all_bytes);
    fm_arena_fini(&arena);
    fm_store_close(store);
    return status;
}

#define assert_same_content(a, b) assert_memory_equal(&(a).content, &(b).content, 32)
#define assert_other_content(a, b) assert_memory_not_equal(&(a).content, &(b).content, 32)

#endif
