/* test_directory.c: what is at a path and in a folder, and that a failure is never absence.
 * readdir, stat and fstatat below replace those of the C library, so that they can fail. */
#include "proto/base/directory.h"
#include "proto/base/file.h"
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[200];
static fm_arena arena;
static int readdir_fails_at, stat_code, fstatat_code; /* 0 = never */
static int n_early;                                   /* calls of stat before the path is there */

struct dirent *readdir(DIR *dir) {
    static struct dirent *(*real)(DIR *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "readdir");
    if (readdir_fails_at && --readdir_fails_at == 0) {
        errno = EIO;
        return NULL;
    }
    return real(dir);
}

int stat(const char *path, struct stat *info) {
    static int (*real)(const char *, struct stat *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "stat");
    errno = n_early ? ENOENT : stat_code;
    if (n_early) n_early--;
    return errno ? -1 : real(path, info);
}

int fstatat(int dir, const char *path, struct stat *info, int flags) {
    static int (*real)(int, const char *, struct stat *, int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fstatat");
    errno = fstatat_code;
    return fstatat_code ? -1 : real(dir, path, info, flags);
}

static const char *at(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_entries(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 24, NULL), FM_OK);
    assert_int_equal(fm_file_write_atomic(at("file"), "abc", 3, NULL), FM_OK);
    assert_int_equal(mkdir(at("inside"), 0777), 0);
    assert_int_equal(mkfifo(at("pipe"), 0666), 0);
    assert_int_equal(symlink("nowhere", at("lost")), 0);
    assert_int_equal(symlink("loop", at("loop")), 0);
    assert_int_equal(symlink("file", at("linked")), 0);
    assert_int_equal(symlink("inside", at("way")), 0);
    assert_int_equal(fm_file_write_atomic(at(".hidden"), "", 0, NULL), FM_OK);
    return 0;
}

static int drop_entries(void **state) {
    (void)state;
    readdir_fails_at = stat_code = fstatat_code = 0;
    fm_arena_fini(&arena);
    fm_test_remove_tree(folder);
    return 0;
}

static void entries_have_their_kinds(void **state) {
    (void)state;
    static const struct {
        const char *name;
        fm_path_kind kind;
        int code;
    } expected[] = {{"file", FM_PATH_FILE, 0},
                    {"inside", FM_PATH_FOLDER, 0},
                    {"linked", FM_PATH_FILE, 0},
                    {"loop", FM_PATH_UNREADABLE, ELOOP},
                    {"lost", FM_PATH_UNREADABLE, ENOENT},
                    {"pipe", FM_PATH_OTHER, 0},
                    {"way", FM_PATH_FOLDER, 0}};
    size_t n = sizeof expected / sizeof expected[0];
    fm_entry_list list;
    assert_int_equal(fm_directory_read(folder, 100, &arena, &list, NULL), FM_OK);
    assert_int_equal(list.n, n);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(list.entry[i].name, expected[i].name);
        assert_int_equal(list.entry[i].kind, expected[i].kind);
        assert_int_equal(list.entry[i].code, expected[i].code);
        assert_true(!fm_path_refusal(list.entry[i].kind, list.entry[i].code) ==
                    (expected[i].kind == FM_PATH_FILE));
    }
    free(list.entry);
    fm_name_list names;
    assert_int_equal(fm_directory_list(folder, true, 100, &arena, &names, NULL), FM_OK);
    assert_int_equal(names.n, 2);
    free(names.name);
    assert_int_equal(fm_directory_list(folder, false, 100, &arena, &names, NULL), FM_OK);
    assert_int_equal(names.n, 5); /* with those that fail when they are read */
    free(names.name);
    assert_int_equal(fm_directory_read(folder, 3, &arena, &list, NULL), FM_ERR_LIMIT);
}

static void a_failure_is_not_absence(void **state) {
    (void)state;
    fm_path_kind kind;
    uint64_t bytes;
    fm_error error;
    assert_int_equal(fm_path_size(at("linked"), &kind, &bytes, NULL), FM_OK);
    assert_true(kind == FM_PATH_FILE && bytes == 3);
    assert_int_equal(fm_path_size(at("pipe"), &kind, &bytes, NULL), FM_OK);
    assert_true(kind == FM_PATH_OTHER && bytes == 0);
    assert_int_equal(fm_path_look(at("none"), &kind, NULL), FM_OK);
    assert_int_equal(kind, FM_PATH_ABSENT);
    assert_int_equal(fm_path_look(at("file/below"), &kind, NULL), FM_OK);
    assert_int_equal(kind, FM_PATH_ABSENT);
    assert_int_equal(fm_path_look(at("lost"), &kind, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "a symbolic link that leads nowhere"));
    assert_string_equal(error.source, at("lost"));
    assert_int_equal(fm_path_look(at("loop"), &kind, NULL), FM_ERR_IO);
    stat_code = EIO;
    assert_int_equal(fm_path_look(at("file"), &kind, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, strerror(EIO)));
    stat_code = EACCES;
    assert_int_equal(fm_path_look(at("none"), &kind, NULL), FM_ERR_IO);
}

/* Another process makes the file between the look through links and the look at the path itself. */
static void a_path_that_appears_is_no_link(void **state) {
    (void)state;
    char path[300];
    fm_path_kind kind;
    snprintf(path, sizeof path, "%s/appears", folder);
    assert_int_equal(fm_file_write_atomic(path, "x", 1, NULL), FM_OK);
    n_early = 2;
    assert_int_equal(fm_path_look(path, &kind, NULL), FM_OK);
    assert_int_equal(kind, FM_PATH_FILE);
    assert_int_equal(n_early, 0);
    assert_int_equal(unlink(path), 0);
}

static void a_folder_is_listed_to_its_end_or_not_at_all(void **state) {
    (void)state;
    fm_entry_list list;
    fm_name_list names;
    fm_error error;
    bool empty;
    for (int n = 1; n <= 11; n++) { /* with ".", ".." and the hidden file, then the end */
        readdir_fails_at = n;
        assert_int_equal(fm_directory_read(folder, 100, &arena, &list, &error), FM_ERR_IO);
        assert_true(list.n == 0 && !list.entry);
        assert_non_null(strstr(error.message, "cannot list the folder"));
    }
    readdir_fails_at = 1;
    assert_int_equal(fm_directory_is_empty(folder, NULL, &empty, NULL), FM_ERR_IO);
    readdir_fails_at = 0;
    assert_int_equal(fm_directory_is_empty(folder, NULL, &empty, NULL), FM_OK);
    assert_false(empty);
    assert_int_equal(fm_directory_is_empty(at("inside"), NULL, &empty, NULL), FM_OK);
    assert_true(empty);
    assert_int_equal(fm_file_write_atomic(at("inside/lock"), "", 0, NULL), FM_OK);
    assert_int_equal(fm_directory_is_empty(at("inside"), NULL, &empty, NULL), FM_OK);
    assert_false(empty);
    assert_int_equal(fm_directory_is_empty(at("inside"), "lock", &empty, NULL), FM_OK);
    assert_true(empty);
    assert_int_equal(unlink(at("inside/lock")), 0);
    assert_int_equal(fm_directory_list(at("none"), true, 9, &arena, &names, NULL),
                     FM_ERR_NOT_FOUND);
    assert_int_equal(fm_directory_list(at("file/below"), true, 9, &arena, &names, NULL),
                     FM_ERR_NOT_FOUND);
    assert_int_equal(fm_directory_list(at("file"), true, 9, &arena, &names, NULL), FM_ERR_IO);
    assert_int_equal(fm_directory_list(at("lost"), true, 9, &arena, &names, NULL), FM_ERR_IO);
    fstatat_code = EIO;
    assert_int_equal(fm_directory_read(folder, 100, &arena, &list, NULL), FM_OK);
    assert_string_equal(list.entry[2].name, "linked");
    assert_int_equal(list.entry[2].kind, FM_PATH_UNREADABLE);
    assert_int_equal(list.entry[2].code, EIO);
    free(list.entry);
}

/* A pipe without a writer would keep an open that waits for ever. */
static void only_files_are_opened(void **state) {
    (void)state;
    fm_bytes content;
    fm_error error;
    assert_int_equal(fm_file_read(&arena, at("pipe"), 100, &content, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "not a regular file but a device, a pipe"));
    assert_int_equal(fm_file_read(&arena, at("inside"), 100, &content, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "not a regular file but a folder"));
    assert_int_equal(fm_file_read(&arena, at("lost"), 100, &content, &error), FM_ERR_IO);
    assert_int_equal(fm_file_read(&arena, at("none"), 100, &content, &error), FM_ERR_NOT_FOUND);
    assert_int_equal(fm_file_read(&arena, at("linked"), 100, &content, &error), FM_OK);
    assert_int_equal(content.size, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(entries_have_their_kinds, make_entries, drop_entries),
        cmocka_unit_test_setup_teardown(a_failure_is_not_absence, make_entries, drop_entries),
        cmocka_unit_test_setup_teardown(a_path_that_appears_is_no_link, make_entries, drop_entries),
        cmocka_unit_test_setup_teardown(a_folder_is_listed_to_its_end_or_not_at_all, make_entries,
                                        drop_entries),
        cmocka_unit_test_setup_teardown(only_files_are_opened, make_entries, drop_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
