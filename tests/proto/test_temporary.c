/* test_temporary.c: what a killed process leaves is removed, and what another one uses stays. */
#include "proto/base/temporary.h"
#include "tests/testing/testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[512], goal[600];

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    snprintf(goal, sizeof goal, "%s/goal", folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static int count_entries(const char *path) {
    int n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2; /* . and .. */
}

static bool ends_with(const char *path, const char *end) {
    return strcmp(path + strlen(path) - strlen(end), end) == 0;
}

/* Calls `work` in a process that is then killed. */
static void kill_after(bool (*work)(void)) {
    int state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (work()) raise(SIGKILL);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &state, 0), child);
    assert_true(WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL);
}

static bool write_two(void) {
    static fm_temporary_file first, second;
    return fm_temporary_file_create(goal, &first) && fm_temporary_file_create(goal, &second) &&
           write(second.fd, "half", 4) == 4;
}

static void killed_writers_leave_nothing_for_long(void **state) {
    (void)state;
    fm_temporary_file file;
    kill_after(write_two);
    assert_int_equal(count_entries(folder), 2);
    assert_true(fm_temporary_file_create(goal, &file));
    assert_true(ends_with(file.path, "/goal.tmp.000000"));
    assert_int_equal(count_entries(folder), 1);
    fm_temporary_file_end(&file, true);
    assert_int_equal(count_entries(folder), 0);
}

static void writers_that_live_keep_their_files(void **state) {
    (void)state;
    fm_temporary_file first, second, third;
    assert_true(fm_temporary_file_create(goal, &first));
    assert_true(fm_temporary_file_create(goal, &second));
    assert_true(ends_with(second.path, ".tmp.000001"));
    assert_int_equal(close(first.fd), 0); /* as before a rename: the lock is still there */
    first.fd = -1;
    assert_true(fm_temporary_file_create(goal, &third));
    assert_true(ends_with(third.path, ".tmp.000002"));
    assert_int_equal(count_entries(folder), 3);
    fm_temporary_file_end(&first, true);
    fm_temporary_file_end(&second, true);
    fm_temporary_file_end(&third, true);
}

/* Links, folders and files of another name are nobody's leftovers. */
static void other_things_stay(void **state) {
    (void)state;
    fm_temporary_file file;
    assert_int_equal(fm_test_shell(folder, "echo mine >mine && ln -s mine goal.tmp.000000 && mkdir "
                                           "goal.tmp.000001 && echo x >goal.tmp.mine"),
                     0);
    assert_true(fm_temporary_file_create(goal, &file));
    assert_true(ends_with(file.path, ".tmp.000002"));
    fm_temporary_file_end(&file, true);
    assert_int_equal(count_entries(folder), 4);
    assert_int_equal(fm_test_shell(folder, "grep -q mine mine && test -L goal.tmp.000000"), 0);
}

static bool fill_folder(void) {
    static fm_temporary_folder made;
    char path[PATH_MAX + 8];
    if (fm_temporary_folder_make(PATH_MAX, &made, NULL)) return false;
    snprintf(path, sizeof path, "%s/input.fasta.tmp.000000", made.path);
    return close(open(path, O_CREAT | O_WRONLY, 0600)) == 0 && count_entries(folder) == 4;
}

/* This program's first folder comes after the killed one's; a later one looks for no leftovers. */
static bool make_one(void) {
    static fm_temporary_folder made;
    return !fm_temporary_folder_make(PATH_MAX, &made, NULL);
}

static void folders_of_killed_programs_go(void **state) {
    (void)state;
    char before[512] = "";
    fm_temporary_folder live, next;
    fm_error error;
    int go[2], state_of_child;
    if (getenv("TMPDIR")) snprintf(before, sizeof before, "%s", getenv("TMPDIR"));
    setenv("TMPDIR", folder, 1);
    assert_int_equal(fm_test_shell(folder, "mkdir -m 700 goal foldmill_backup && "
                                           "echo x >foldmill_backup/mine"),
                     0); /* another name, and a user's */
    assert_int_equal(pipe(go), 0);
    pid_t child = fork(); /* has made none yet, so that its first looks for leftovers */
    if (child == 0) {
        char byte;
        bool done = read(go[0], &byte, 1) == 1 && make_one() && count_entries(folder) == 4;
        _exit(done ? 0 : 1);
    }
    assert_int_equal(fm_temporary_folder_make(PATH_MAX, &live, NULL), FM_OK);
    kill_after(fill_folder);
    assert_int_equal(count_entries(folder), 4);
    assert_int_equal(write(go[1], "x", 1), 1);
    assert_int_equal(waitpid(child, &state_of_child, 0), child);
    assert_int_equal(state_of_child, 0); /* the killed one went, and its own came */
    assert_int_equal(access(live.path, F_OK), 0);
    assert_int_equal(fm_test_shell(folder, "test -e foldmill_backup/mine"), 0);
    fm_temporary_folder_end(&live);
    assert_int_equal(fm_temporary_folder_make(20, &next, &error), FM_ERR_USAGE);
    setenv("TMPDIR", "/tmp/a,b", 1);
    assert_int_equal(fm_temporary_folder_make(PATH_MAX, &next, &error), FM_ERR_USAGE);
    assert_non_null(strstr(error.message, "found TMPDIR=/tmp/a,b, expected a folder without a"));
    setenv("TMPDIR", "/nowhere", 1);
    assert_int_equal(fm_temporary_folder_make(PATH_MAX, &next, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "TMPDIR names another place"));
    unsetenv("TMPDIR");
    if (before[0]) setenv("TMPDIR", before, 1);
    close(go[0]);
    close(go[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(killed_writers_leave_nothing_for_long, set_up, tear_down),
        cmocka_unit_test_setup_teardown(writers_that_live_keep_their_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_things_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(folders_of_killed_programs_go, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
