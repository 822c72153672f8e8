/* test_machine.c: memory limits of control groups, old and new, and defaults that fit a machine. */
#include "proto/base/machine.h"
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[256];

#define run(...) fm_test_shell_format(folder, __VA_ARGS__)

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static uint64_t limit(void) {
    char list[300], root[300];
    snprintf(list, sizeof list, "%s/list", folder);
    snprintf(root, sizeof root, "%s/groups", folder);
    return fm_machine_group_limit(list, root);
}

static void the_least_limit_of_all_groups_above_counts(void **state) {
    (void)state;
    assert_true(limit() == UINT64_MAX); /* nothing is there */
    assert_int_equal(run("mkdir -p groups/job/step/task && echo 0::/job/step/task > list && "
                         "echo max > groups/job/step/task/memory.max && "
                         "echo max > groups/memory.max"),
                     0);
    assert_true(limit() == UINT64_MAX);
    assert_int_equal(run("echo 5000000000 > groups/job/memory.max"), 0);
    assert_true(limit() == 5000000000);
    assert_int_equal(run("echo 4000000000 > groups/job/step/task/memory.max"), 0);
    assert_true(limit() == 4000000000);
    assert_int_equal(run("echo 0::/ > list && echo 3000000000 > groups/memory.max"), 0);
    assert_true(limit() == 3000000000);
}

static void the_old_groups_have_a_folder_for_memory(void **state) {
    (void)state;
    assert_int_equal(run("mkdir -p groups/memory/job groups/job && "
                         "printf '5:cpu:/job\\n4:memory:/job\\n' > list && "
                         "echo 7000000000 > groups/memory/job/memory.limit_in_bytes && "
                         "echo 1 > groups/job/memory.max"),
                     0);
    assert_true(limit() == 7000000000);
    /* In a container the group is not visible by its name. */
    assert_int_equal(run("rm -r groups/memory/job && "
                         "echo 6000000000 > groups/memory/memory.limit_in_bytes"),
                     0);
    assert_true(limit() == 6000000000);
    assert_int_equal(run("echo 'no list' > list && echo junk > groups/memory.max"), 0);
    assert_true(limit() == 6000000000);
}

static void a_default_is_a_share_within_bounds(void **state) {
    (void)state;
    assert_int_equal(fm_machine_fit(4096, 64000, 0.25, 256), 4096);
    assert_int_equal(fm_machine_fit(4096, 8000, 0.25, 256), 2000);
    assert_int_equal(fm_machine_fit(4096, 500, 0.25, 256), 256);
    assert_int_equal(fm_machine_fit(4096, UINT64_MAX, 0.001, 256), 4096);
}

/* As the linker wrote it; file(1) and readelf(1) read the same. */
static void a_program_knows_its_build(void **state) {
    (void)state;
    char build[FM_MACHINE_BUILD_BYTES], path[512];
    fm_machine_build(build);
    assert_true(build[0] == '\0' || strlen(build) == FM_MACHINE_BUILD_BYTES - 1);
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    assert_true(n > 0);
    path[n] = '\0';
    if (run("command -v readelf > /dev/null") != 0) skip();
    assert_int_equal(run("readelf -n '%s' | sed -n 's/.*Build ID: //p' > id && "
                         "test \"$(cat id)\" = '%s'",
                         path, build),
                     0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_least_limit_of_all_groups_above_counts, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_old_groups_have_a_folder_for_memory, set_up, tear_down),
        cmocka_unit_test(a_default_is_a_share_within_bounds),
        cmocka_unit_test_setup_teardown(a_program_knows_its_build, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
