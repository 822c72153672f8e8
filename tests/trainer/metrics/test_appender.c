/* test_appender.c: records on a disk that is full, that takes half of a record, and that does not
 * even shorten the file. The write and ftruncate below replace those of the C library. */
#include "trainer/metrics/appender.h"

#include "tests/testing/testing.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

/* What the disk does: bytes that it still takes, and whether it shortens files. */
static struct {
    size_t room;
    bool cuts;
} disk;

ssize_t write(int fd, const void *data, size_t size) {
    if (disk.room == 0) {
        errno = ENOSPC;
        return -1;
    }
    size_t n = size < disk.room ? size : disk.room;
    disk.room -= n;
    return syscall(SYS_write, fd, data, n);
}

int ftruncate(int fd, off_t size) {
    if (disk.cuts) return (int)syscall(SYS_ftruncate, fd, size);
    errno = EIO;
    return -1;
}

static char folder[256], path[300];
static fm_appender *appender;

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/records", folder);
    disk.room = 1000;
    disk.cuts = true;
    return fm_appender_open(path, &appender, NULL) ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_appender_close(appender);
    fm_test_remove_tree(folder);
    return 0;
}

static fm_status add(const char *record) {
    return fm_appender_add(appender, record, strlen(record), NULL);
}

static void expect_content(const char *expected) {
    char text[64] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    assert_string_equal(text, expected);
}

static void records_wait_for_room(void **state) {
    (void)state;
    assert_int_equal(add("one\n"), FM_OK);
    disk.room = 0;
    assert_int_equal(add("two\n"), FM_ERR_IO);
    assert_int_equal(add("three\n"), FM_ERR_IO);
    assert_int_equal(fm_appender_sync(appender, NULL), FM_ERR_IO);
    expect_content("one\n");
    disk.room = 1000;
    assert_int_equal(add("four\n"), FM_OK);
    expect_content("one\ntwo\nthree\nfour\n");
    assert_int_equal(fm_appender_sync(appender, NULL), FM_OK);
}

static void a_part_is_cut_off(void **state) {
    (void)state;
    assert_int_equal(add("one\n"), FM_OK);
    disk.room = 2;
    assert_int_equal(add("two\n"), FM_ERR_IO);
    expect_content("one\n");
    disk.room = 1000;
    assert_int_equal(fm_appender_sync(appender, NULL), FM_OK);
    expect_content("one\ntwo\n");
}

static void a_part_that_stays_is_cut_off_before_the_next_write(void **state) {
    (void)state;
    assert_int_equal(add("one\n"), FM_OK);
    disk.room = 2;
    disk.cuts = false;
    assert_int_equal(add("two\n"), FM_ERR_IO);
    expect_content("one\ntw");
    disk.room = 1000;
    assert_int_equal(add("three\n"), FM_ERR_IO); /* nothing is written behind the part */
    assert_int_equal(fm_appender_sync(appender, NULL), FM_ERR_IO);
    expect_content("one\ntw");
    disk.cuts = true;
    assert_int_equal(fm_appender_sync(appender, NULL), FM_OK);
    expect_content("one\ntwo\nthree\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(records_wait_for_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_part_is_cut_off, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_part_that_stays_is_cut_off_before_the_next_write, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
