/* test_gpu_cores.c: tests trainer/app/gpu_cores.h on a synthetic folder of PCI devices. */
#include "trainer/app/gpu_cores.h"

#include "tests/testing/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

static char folder[512];
static cpu_set_t before; /* the cores that this process may use */

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return sched_getaffinity(0, sizeof before, &before);
}

static int tear_down(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return sched_setaffinity(0, sizeof before, &before);
}

static void write_file(const char *name, const char *text) {
    char path[700];
    snprintf(path, sizeof path, "%s/0000:1b:00.0", folder);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/0000:1b:00.0/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void lists_of_cores_are_read(void **state) {
    (void)state;
    cpu_set_t cores;
    assert_true(fm_gpu_cores_parse("0-3,8,10-11\n", &cores));
    assert_int_equal(CPU_COUNT(&cores), 7);
    assert_true(CPU_ISSET(8, &cores) && CPU_ISSET(11, &cores) && !CPU_ISSET(9, &cores));
    assert_true(fm_gpu_cores_parse("5", &cores));
    assert_int_equal(CPU_COUNT(&cores), 1);
    static const char *const wrong[] = {"",        "\n",  "a",     "1-",
                                        "3-1",     "1,",  "1, 2",  "-1",
                                        "0-99999", "1;2", "1-2-3", "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(fm_gpu_cores_parse(wrong[i], &cores));
}

/* The first core that this process may use. */
static int first_core(void) {
    int core = 0;
    while (!CPU_ISSET(core, &before))
        core++;
    return core;
}

static void a_process_keeps_the_near_cores_that_it_may_use(void **state) {
    (void)state;
    char text[64];
    int core = first_core();
    snprintf(text, sizeof text, "%d,%d\n", core, CPU_SETSIZE - 1);
    write_file("local_cpulist", text);
    write_file("numa_node", "0\n");
    assert_int_equal(fm_gpu_cores_bind(folder, "0000:1B:00.0"), 1);
    cpu_set_t now;
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_true(CPU_COUNT(&now) == 1 && CPU_ISSET(core, &now));
}

static void nothing_changes_where_no_core_is_known_or_allowed(void **state) {
    (void)state;
    char text[64];
    cpu_set_t now;
    assert_int_equal(fm_gpu_cores_bind(folder, "0000:1B:00.0"), 0); /* no such device */
    write_file("local_cpulist", "no list\n");
    assert_int_equal(fm_gpu_cores_bind(folder, "0000:1B:00.0"), 0);
    snprintf(text, sizeof text, "%d\n", CPU_SETSIZE - 1);
    write_file("local_cpulist", text);
    if (!CPU_ISSET(CPU_SETSIZE - 1, &before)) {
        assert_int_equal(fm_gpu_cores_bind(folder, "0000:1B:00.0"), 0);
    }
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_true(CPU_EQUAL(&now, &before));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_cores_are_read),
        cmocka_unit_test_setup_teardown(a_process_keeps_the_near_cores_that_it_may_use, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(nothing_changes_where_no_core_is_known_or_allowed, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
