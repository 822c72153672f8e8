/* test_nccl.c: which libraries are taken for NCCL, and what is said of those that are not. They are
 * built from tests/testing/nccl_stub.c. */
#include "tests/testing/testing.h"

#include "trainer/dist/host.h"
#include "trainer/dist/nccl.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PATH_BYTES = 300 };

/* Makes FM_NCCL name a library of this build, and writes its path. */
static void choose(const char *name, char path[PATH_BYTES]) {
    snprintf(path, PATH_BYTES, "%s/../tests/libfm_nccl_%s.so", getenv("FM_BIN"), name);
    assert_int_equal(setenv("FM_NCCL", path, 1), 0);
}

/* Opens the library that FM_NCCL names, which is refused with this sentence. */
static void expect_refusal(const char *expected) {
    fm_nccl nccl = {.version = 77};
    fm_error error;
    assert_int_equal(fm_nccl_open(&nccl, &error), FM_ERR_UNSUPPORTED);
    assert_string_equal(error.message, expected);
    assert_int_equal(nccl.version, 77);
}

static void versions_from_2_20_on_are_opened(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int version;
    } cases[] = {{"first", 22000}, {"last", 29999}};
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_nccl nccl;
        fm_nccl_id id = {{0}};
        choose(cases[i].name, path);
        assert_int_equal(fm_nccl_open(&nccl, NULL), FM_OK);
        assert_int_equal(nccl.version, cases[i].version);
        assert_int_equal(nccl.make_id(&id), 1);
        assert_int_equal(nccl.join(NULL, 0, id, 0), 2);
        assert_int_equal(nccl.abort(NULL), 3);
        assert_int_equal(nccl.async_error(NULL, NULL), 4);
        assert_int_equal(nccl.start(), 5);
        assert_int_equal(nccl.end(), 6);
        assert_int_equal(nccl.send(NULL, 0, 0, 0, NULL, NULL), 7);
        assert_int_equal(nccl.receive(NULL, 0, 0, 0, NULL, NULL), 8);
        assert_string_equal(nccl.text(0), "none");
    }
}

static void other_libraries_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *name, *found;
    } cases[] = {
        {"older", "found NCCL 2.19.3"},
        {"oldest", "found NCCL 2.8.4"},
        {"next", "found NCCL 3.0.0"},
        {"failing", "ncclGetVersion failed with error 3"},
        {"no_version", "found no function ncclGetVersion"},
        {"no_recv", "found no function ncclRecv"},
        {"old_no_recv", "found NCCL 2.6.4"}, /* the version says more */
    };
    char path[PATH_BYTES], expected[2 * PATH_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        choose(cases[i].name, path);
        snprintf(expected, sizeof expected, "%s: %s, expected NCCL 2, version 2.20 or later", path,
                 cases[i].found);
        expect_refusal(expected);
    }
}

/* The system's own words say which file it is and what is wrong with it. */
static void expect_unopened(const char *path) {
    char expected[FM_ERROR_MESSAGE_BYTES];
    assert_null(dlopen(path, RTLD_NOW | RTLD_LOCAL));
    const char *why = dlerror();
    assert_int_equal(strncmp(why, path, strlen(path)), 0);
    snprintf(expected, sizeof expected,
             "NCCL cannot be opened (%s); the environment variable FM_NCCL gives the path of "
             "libnccl.so.2",
             why);
    expect_refusal(expected);
}

static void files_that_are_no_libraries_are_refused(void **state) {
    (void)state;
    char folder[PATH_BYTES - 20], path[PATH_BYTES];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/libnccl.so.2", folder);
    assert_int_equal(setenv("FM_NCCL", path, 1), 0);
    expect_unopened(path); /* there is none */
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 1000; i++)
        fputs("no library\n", file);
    assert_int_equal(fclose(file), 0);
    expect_unopened(path);
    assert_int_equal(setenv("FM_NCCL", folder, 1), 0);
    expect_unopened(folder);
    fm_test_remove_tree(folder);
}

/* Without the variable it is the library of that name. The one that is loaded here calls itself so,
 * and therefore comes before one that this host may have. */
static void without_the_variable_the_usual_name_counts(void **state) {
    (void)state;
    char path[PATH_BYTES];
    fm_nccl nccl;
    choose("usual", path);
    void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(file);
    assert_int_equal(setenv("FM_NCCL", "", 1), 0);
    assert_int_equal(fm_nccl_open(&nccl, NULL), FM_OK);
    assert_int_equal(nccl.version, 28888);
    assert_int_equal(unsetenv("FM_NCCL"), 0);
    nccl.version = 0;
    assert_int_equal(fm_nccl_open(&nccl, NULL), FM_OK);
    assert_int_equal(nccl.version, 28888);
    dlclose(file);
}

/* What a user has set stays. */
static void the_environment_names_the_host(void **state) {
    (void)state;
    static const char *const names[] = {"NCCL_HOSTID", "NCCL_SOCKET_NTHREADS",
                                        "NCCL_NSOCKS_PERTHREAD"};
    fm_host host;
    for (int i = 0; i < 3; i++)
        assert_int_equal(unsetenv(names[i]), 0);
    fm_host_find(&host);
    fm_nccl_set_environment();
    assert_string_equal(getenv(names[0]), host.id);
    assert_string_equal(getenv(names[1]), "4");
    assert_string_equal(getenv(names[2]), "4");
    assert_int_equal(setenv(names[0], "mine", 1), 0);
    assert_int_equal(setenv(names[1], "2", 1), 0);
    assert_int_equal(unsetenv(names[2]), 0);
    fm_nccl_set_environment();
    assert_string_equal(getenv(names[0]), "mine");
    assert_string_equal(getenv(names[1]), "2");
    assert_null(getenv(names[2]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_from_2_20_on_are_opened),
        cmocka_unit_test(other_libraries_are_refused),
        cmocka_unit_test(files_that_are_no_libraries_are_refused),
        cmocka_unit_test(without_the_variable_the_usual_name_counts),
        cmocka_unit_test(the_environment_names_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
