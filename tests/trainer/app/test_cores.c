/* test_cores.c: tests trainer/app/ranks/cores.h: the cores of ranks on CPUs, and those near a GPU,
 * on a synthetic folder of PCI devices. */
#include "trainer/app/ranks/cores.h"

#include "tests/testing/testing.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static const char bus[] = "0000:1B:00.0"; /* as CUDA writes it */
static char folder[512];
static cpu_set_t before; /* the cores that this process may use */

static int set_up(void **state) {
    char path[700];
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/0000:1b:00.0", folder);
    if (mkdir(path, 0700) < 0) return -1;
    return sched_getaffinity(0, sizeof before, &before);
}

static int tear_down(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    (void)syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0ul);
    return sched_setaffinity(0, sizeof before, &before);
}

static void write_file(const char *name, const char *text) {
    char path[700];
    snprintf(path, sizeof path, "%s/0000:1b:00.0/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void lists_of_cores_are_read(void **state) {
    (void)state;
    cpu_set_t cores;
    assert_true(fm_cores_parse("0-3,8,10-11", &cores));
    assert_int_equal(CPU_COUNT(&cores), 7);
    assert_true(CPU_ISSET(8, &cores) && CPU_ISSET(11, &cores) && !CPU_ISSET(9, &cores));
    assert_true(fm_cores_parse("5", &cores));
    assert_int_equal(CPU_COUNT(&cores), 1);
    static const char *const wrong[] = {"",        "\n",  "a",     "1-",
                                        "3-1",     "1,",  "1, 2",  "-1",
                                        "0-99999", "1;2", "1-2-3", "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(fm_cores_parse(wrong[i], &cores));
}

/* The first core that this process may use. */
static int first_core(void) {
    int core = 0;
    while (!CPU_ISSET(core, &before))
        core++;
    return core;
}

/* The cores that the process may use after binding, which returns *ret_n. */
static cpu_set_t bind_near(int *ret_n) {
    cpu_set_t now;
    fm_error error;
    assert_int_equal(fm_cores_bind_near(folder, bus, ret_n, &error), FM_OK);
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    return now;
}

static void a_process_keeps_the_near_cores_that_it_may_use(void **state) {
    (void)state;
    char text[64];
    int n, core = first_core();
    snprintf(text, sizeof text, "%d,%d\n", core, CPU_SETSIZE - 1);
    write_file("local_cpulist", text);
    write_file("numa_node", "-1\n");
    cpu_set_t now = bind_near(&n);
    assert_int_equal(n, 1);
    assert_true(CPU_COUNT(&now) == 1 && CPU_ISSET(core, &now));
}

static void memory_comes_from_the_near_node(void **state) {
    (void)state;
    char text[64];
    int n, policy;
    unsigned long nodes = 0, most = 8 * sizeof nodes + 1, zero = 1;
    bool allowed = syscall(SYS_set_mempolicy, MPOL_PREFERRED, &zero, most) == 0;
    bool lacks = !allowed && errno == ENOSYS;
    snprintf(text, sizeof text, "%d\n", first_core());
    write_file("local_cpulist", text);
    write_file("numa_node", "0\n");
    if (!allowed && !lacks) { /* as in some containers: the refusal is reported */
        fm_error error;
        assert_int_equal(fm_cores_bind_near(folder, bus, &n, &error), FM_ERR_IO);
        return;
    }
    assert_int_equal(syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0ul), lacks ? -1 : 0);
    (void)bind_near(&n);
    assert_int_equal(n, 1);
    if (lacks || syscall(SYS_get_mempolicy, &policy, &nodes, most, NULL, 0ul) < 0) return;
    assert_int_equal(policy, MPOL_PREFERRED);
    assert_int_equal(nodes, 1);
}

static void nothing_changes_where_no_core_is_known_or_allowed(void **state) {
    (void)state;
    char text[64];
    int n;
    cpu_set_t now = bind_near(&n); /* no file */
    assert_true(n == 0 && CPU_EQUAL(&now, &before));
    write_file("numa_node", "0\n");
    write_file("local_cpulist", "\n"); /* near no core */
    now = bind_near(&n);
    assert_true(n == 0 && CPU_EQUAL(&now, &before));
    if (CPU_ISSET(CPU_SETSIZE - 1, &before)) return;
    snprintf(text, sizeof text, "%d\n", CPU_SETSIZE - 1);
    write_file("local_cpulist", text);
    now = bind_near(&n);
    assert_true(n == 0 && CPU_EQUAL(&now, &before));
}

/* A file that is there and cannot be used is never taken for one that is absent. */
static void damaged_files_are_errors(void **state) {
    (void)state;
    char path[700], core[64], *long_line = calloc(1, 8192);
    int n = -1;
    fm_error error;
    assert_non_null(long_line);
    memset(long_line, '1', 8191);
    snprintf(core, sizeof core, "%d\n", first_core());
    const char *const lists[] = {"no list\n", "1,\n", "1\n2\n", long_line};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        write_file("local_cpulist", lists[i]);
        assert_int_equal(fm_cores_bind_near(folder, bus, &n, &error), FM_ERR_FORMAT);
        assert_non_null(strstr(error.source, "0000:1b:00.0/local_cpulist"));
    }
    write_file("local_cpulist", core);
    static const char *const nodes[] = {"", "x\n", "1x\n", "-2\n", "64\n"};
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
        write_file("numa_node", nodes[i]);
        assert_int_equal(fm_cores_bind_near(folder, bus, &n, &error), FM_ERR_FORMAT);
    }
    snprintf(path, sizeof path, "%s/0000:1b:00.0/numa_node", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0); /* it can be opened, not read */
    assert_int_equal(fm_cores_bind_near(folder, bus, &n, &error), FM_ERR_IO);
    assert_int_equal(n, -1);
    free(long_line);
}

static void ranks_divide_the_cores(void **state) {
    (void)state;
    cpu_set_t all, part, sum, both;
    assert_true(fm_cores_parse("1-3,8-9,40,1000", &all)); /* 7 */
    for (int32_t n = 1; n <= 7; n++) {
        CPU_ZERO(&sum);
        for (int32_t rank = 0; rank < n; rank++) {
            assert_true(fm_cores_divide(&all, rank, n, &part));
            CPU_AND(&both, &sum, &part);
            assert_int_equal(CPU_COUNT(&both), 0);
            assert_in_range(CPU_COUNT(&part), 7 / n, (7 + n - 1) / n);
            CPU_OR(&sum, &sum, &part);
        }
        assert_true(CPU_EQUAL(&sum, &all));
    }
    /* With fewer cores than ranks none is bound. */
    for (int32_t rank = 0; rank < 8; rank++)
        assert_false(fm_cores_divide(&all, rank, 8, &part));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_cores_are_read),
        cmocka_unit_test(ranks_divide_the_cores),
        cmocka_unit_test_setup_teardown(a_process_keeps_the_near_cores_that_it_may_use, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(memory_comes_from_the_near_node, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_changes_where_no_core_is_known_or_allowed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(damaged_files_are_errors, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
