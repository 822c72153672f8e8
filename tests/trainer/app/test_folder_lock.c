/* test_folder_lock.c: the lock of a folder of results: who gets it, what is left behind, and two
 * processes that take it and give it back again and again. */
#include "tests/testing/testing.h"

#include "proto/base/directory.h"
#include "proto/base/file.h"
#include "trainer/app/common/folder_lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char base[512], folder[600];

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(base, sizeof base);
    snprintf(folder, sizeof folder, "%s/out", base);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_test_remove_tree(base);
    return 0;
}

static fm_path_kind kind_of(const char *path) {
    fm_path_kind kind;
    assert_int_equal(fm_path_look(path, &kind, NULL), FM_OK);
    return kind;
}

static void one_holder_at_a_time(void **state) {
    (void)state;
    fm_folder_lock first, second;
    fm_error error;
    assert_int_equal(fm_folder_lock_take(folder, &first, &error), FM_OK);
    assert_int_equal(fm_folder_lock_take(folder, &second, &error), FM_ERR_EXISTS);
    assert_int_equal(second.fd, -1);
    fm_folder_lock_end(folder, &second);
    fm_folder_lock_end(folder, &first);
    assert_int_equal(kind_of(folder), FM_PATH_ABSENT);
}

/* All folders that were made for the lock go again, also when one of them cannot be made. */
static void made_parents_go(void **state) {
    (void)state;
    char path[700], below[1024], name[300];
    fm_folder_lock lock;
    fm_error error;
    assert_int_equal(mkdir(folder, 0777), 0);
    snprintf(path, sizeof path, "%s/a", folder);
    snprintf(below, sizeof below, "%s/a/b/c/", folder);
    assert_int_equal(fm_folder_lock_take(below, &lock, &error), FM_OK);
    assert_int_equal(kind_of(below), FM_PATH_FOLDER);
    fm_folder_lock_end(below, &lock);
    assert_int_equal(kind_of(path), FM_PATH_ABSENT);
    assert_int_equal(kind_of(folder), FM_PATH_FOLDER);
    memset(name, 'x', sizeof name - 1); /* longer than a name may be */
    name[sizeof name - 1] = '\0';
    snprintf(below, sizeof below, "%s/a/%s", folder, name);
    assert_int_equal(fm_folder_lock_take(below, &lock, &error), FM_ERR_IO);
    assert_int_equal(lock.fd, -1);
    assert_int_equal(kind_of(path), FM_PATH_ABSENT);
    assert_int_equal(rmdir(folder), 0);
}

/* What was there before stays, and so does a folder with results. */
static void results_stay(void **state) {
    (void)state;
    char path[700];
    fm_folder_lock lock;
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_int_equal(fm_folder_lock_take(folder, &lock, NULL), FM_OK);
    fm_folder_lock_end(folder, &lock);
    assert_int_equal(kind_of(folder), FM_PATH_FOLDER);
    snprintf(path, sizeof path, "%s/lock", folder);
    assert_int_equal(kind_of(path), FM_PATH_ABSENT);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(fm_folder_lock_take(folder, &lock, NULL), FM_OK);
    snprintf(path, sizeof path, "%s/result", folder);
    assert_int_equal(fm_file_write_atomic(path, "x", 1, NULL), FM_OK);
    fm_folder_lock_end(folder, &lock);
    assert_int_equal(kind_of(path), FM_PATH_FILE);
}

/* Takes and ends the lock. Returns whether every try took it or found it held. */
static bool take_often(int n) {
    for (int i = 0; i < n; i++) {
        fm_folder_lock lock;
        fm_error error;
        fm_status status = fm_folder_lock_take(folder, &lock, &error);
        if (!status) fm_folder_lock_end(folder, &lock);
        if (status && status != FM_ERR_EXISTS) {
            print_error("%s\n", error.message);
            return false;
        }
    }
    return true;
}

/* A link in the place of the lock is not followed, and said; one to the folder is fine. */
static void links_are_not_followed(void **state) {
    (void)state;
    char alias[600], leaf[620], target[600];
    fm_folder_lock lock;
    fm_error error;
    snprintf(alias, sizeof alias, "%s/alias", base);
    snprintf(leaf, sizeof leaf, "%s/lock", folder);
    snprintf(target, sizeof target, "%s/target", base);
    assert_int_equal(fm_dir_make(folder, NULL), FM_OK);
    assert_int_equal(symlink(folder, alias), 0);
    assert_int_equal(fm_folder_lock_take(alias, &lock, &error), FM_OK);
    fm_folder_lock_end(alias, &lock);
    assert_int_equal(fm_dir_make(folder, NULL), FM_OK);
    assert_int_equal(symlink(target, leaf), 0);
    assert_int_equal(fm_folder_lock_take(folder, &lock, &error), FM_ERR_IO);
    assert_string_equal(error.message, "is a symbolic link, expected a file or none");
    assert_int_equal(kind_of(target), FM_PATH_ABSENT);
}

/* Each removes the folder as the other one makes it. */
static void two_processes_never_meet_a_removed_folder(void **state) {
    (void)state;
    enum { MANY = 2000 };
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(take_often(MANY) ? 0 : 1);
    bool is_good = take_often(MANY);
    int code = -1;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(is_good && WIFEXITED(code) && WEXITSTATUS(code) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_holder_at_a_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(made_parents_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(results_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(links_are_not_followed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(two_processes_never_meet_a_removed_folder, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
