/* test_file.c: what is read, what is refused, and which outputs appear. */
#include "proto/base/file.h"
#include "tests/testing/testing.h"

#include <dirent.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct fixture {
    char folder[PATH_MAX - 64], path[PATH_MAX];
    fm_arena arena;
} fixture;

static int setup(void **state) {
    fixture *f = calloc(1, sizeof *f);
    fm_test_make_folder(f->folder, sizeof f->folder);
    snprintf(f->path, sizeof f->path, "%s/file", f->folder);
    *state = f;
    return fm_arena_init(&f->arena, (size_t)1 << 24, NULL);
}

static int teardown(void **state) {
    fixture *f = *state;
    fm_arena_fini(&f->arena);
    fm_test_remove_tree(f->folder);
    free(f);
    return 0;
}

static int count_files(const char *folder) {
    DIR *dir = opendir(folder);
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2; /* . and .. */
}

static void write_then_read(void **state) {
    fixture *f = *state;
    fm_bytes content;
    assert_int_equal(fm_file_write_atomic(f->path, "first", 5, NULL), FM_OK);
    assert_int_equal(fm_file_write_atomic(f->path, "second!", 7, NULL), FM_OK);
    assert_int_equal(count_files(f->folder), 1); /* no temporary file is left */
    assert_int_equal(fm_file_read(&f->arena, f->path, 7, &content, NULL), FM_OK);
    assert_int_equal(content.size, 7);
    assert_memory_equal(content.data, "second!", 7);
    assert_int_equal(fm_file_write_atomic(f->path, NULL, 0, NULL), FM_OK);
    assert_int_equal(fm_file_read(&f->arena, f->path, 0, &content, NULL), FM_OK);
    assert_int_equal(content.size, 0);
}

static void writing_in_pieces(void **state) {
    fixture *f = *state;
    fm_file_writer *writer;
    fm_bytes content;
    assert_int_equal(fm_file_write_atomic(f->path, "old", 3, NULL), FM_OK);
    assert_int_equal(fm_file_writer_open(f->path, &writer, NULL), FM_OK);
    assert_int_equal(fm_file_writer_append(writer, "new", 3, NULL), FM_OK);
    assert_int_equal(fm_file_read(&f->arena, f->path, 100, &content, NULL), FM_OK);
    assert_memory_equal(content.data, "old", 3);
    assert_int_equal(fm_file_writer_append(writer, "er", 2, NULL), FM_OK);
    assert_int_equal(fm_file_writer_commit(writer, NULL), FM_OK);
    assert_int_equal(fm_file_read(&f->arena, f->path, 100, &content, NULL), FM_OK);
    assert_int_equal(content.size, 5);
    assert_memory_equal(content.data, "newer", 5);

    assert_int_equal(fm_file_writer_open(f->path, &writer, NULL), FM_OK);
    assert_int_equal(fm_file_writer_append(writer, "no", 2, NULL), FM_OK);
    fm_file_writer_discard(writer);
    fm_file_writer_discard(NULL);
    assert_int_equal(count_files(f->folder), 1);
    assert_int_equal(fm_file_read(&f->arena, f->path, 100, &content, NULL), FM_OK);
    assert_memory_equal(content.data, "newer", 5);
}

static void refused(fixture *f, const char *path, size_t max_bytes, fm_status status,
                    const char *words) {
    fm_error error;
    fm_bytes content;
    assert_int_equal(fm_file_read(&f->arena, path, max_bytes, &content, &error), status);
    assert_string_equal(error.source, path);
    assert_non_null(strstr(error.message, words));
    assert_int_equal(fm_file_read(&f->arena, path, max_bytes, &content, NULL), status);
}

/* As processes of two containers may do that have the same id. */
static void two_writers_of_one_path_do_not_meet(void **state) {
    fixture *f = *state;
    fm_file_writer *first, *second;
    fm_bytes content;
    assert_int_equal(fm_file_writer_open(f->path, &first, NULL), FM_OK);
    assert_int_equal(fm_file_writer_append(first, "fir", 3, NULL), FM_OK);
    assert_int_equal(fm_file_writer_open(f->path, &second, NULL), FM_OK);
    assert_int_equal(count_files(f->folder), 2);
    assert_int_equal(fm_file_writer_append(second, "second", 6, NULL), FM_OK);
    assert_int_equal(fm_file_writer_append(first, "st", 2, NULL), FM_OK);
    assert_int_equal(fm_file_writer_commit(first, NULL), FM_OK);
    assert_int_equal(fm_file_read(&f->arena, f->path, 9, &content, NULL), FM_OK);
    assert_int_equal(content.size, 5);
    assert_memory_equal(content.data, "first", 5);
    assert_int_equal(fm_file_writer_commit(second, NULL), FM_OK);
    assert_int_equal(fm_file_read(&f->arena, f->path, 9, &content, NULL), FM_OK);
    assert_int_equal(content.size, 6);
    assert_memory_equal(content.data, "second", 6);
    assert_int_equal(count_files(f->folder), 1);
}

static void unreadable_files_are_errors(void **state) {
    fixture *f = *state;
    refused(f, f->path, 100, FM_ERR_NOT_FOUND, "No such file");
    refused(f, f->folder, SIZE_MAX, FM_ERR_IO, "not a regular file");
    assert_int_equal(mkfifo(f->path, 0600), 0);
    refused(f, f->path, SIZE_MAX, FM_ERR_IO, "not a regular file"); /* and does not hang */
    unlink(f->path);
    assert_int_equal(fm_file_write_atomic(f->path, "12345678", 8, NULL), FM_OK);
    refused(f, f->path, 7, FM_ERR_LIMIT, "file has 8 bytes, at most 7");
    assert_int_equal(truncate(f->path, (off_t)1 << 40), 0); /* a sparse terabyte */
    refused(f, f->path, (size_t)1 << 30, FM_ERR_LIMIT, "at most");
    refused(f, f->path, SIZE_MAX, FM_ERR_LIMIT, "MiB of memory");
}

static void compressed_text(void **state) {
    fixture *f = *state;
    /* "hello" as gzip, xz -0 --check=none and zstd compress it. */
    static const uint8_t gz[] = {0x1f, 0x8b, 8,    0,    0,    0,    0,    0, 0,
                                 3,    0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0, 0x86,
                                 0xa6, 0x10, 0x36, 5,    0,    0,    0};
    static const uint8_t xz[] = {
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0,    0,    0,    0xff, 0x12, 0xd9, 0x41, 2,    0,
        0x21, 1,    0x0c, 0,    0,    0,    0x8f, 0x98, 0x41, 0x9c, 1,    0,    4,    'h',
        'e',  'l',  'l',  'o',  0,    0,    0,    0,    0,    1,    0x15, 5,    0xb0, 0xa7,
        0x59, 0x67, 6,    0x72, 0x9e, 0x7a, 1,    0,    0,    0,    0,    0,    0x59, 0x5a};
    static const uint8_t zst[] = {0x28, 0xb5, 0x2f, 0xfd, 4,   0x58, 0x29, 0,    0,
                                  'h',  'e',  'l',  'l',  'o', 0xa3, 0x6d, 0x9f, 0x88};
    static const fm_bytes packed[] = {{gz, sizeof gz}, {xz, sizeof xz}, {zst, sizeof zst}};
    fm_bytes content;
    fm_error error;
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++) {
        const fm_bytes data = packed[i];
        assert_int_equal(fm_file_write_atomic(f->path, data.data, data.size, NULL), FM_OK);
        assert_int_equal(fm_file_read_text(&f->arena, f->path, 100, &content, &error), FM_OK);
        assert_int_equal(content.size, 5);
        assert_memory_equal(content.data, "hello", 5);
        assert_int_equal(fm_file_write_atomic(f->path, data.data, data.size - 5, NULL), FM_OK);
        assert_int_equal(fm_file_read_text(&f->arena, f->path, 100, &content, &error),
                         FM_ERR_CORRUPT);
        assert_string_equal(error.source, f->path);
    }
    assert_int_equal(fm_file_write_atomic(f->path, "plain", 5, NULL), FM_OK);
    assert_int_equal(fm_file_read_text(&f->arena, f->path, 100, &content, &error), FM_OK);
    assert_memory_equal(content.data, "plain", 5);
}

static void unwritable_paths_are_errors(void **state) {
    fixture *f = *state;
    fm_error error;
    char path[PATH_MAX + 16], *longest = malloc(PATH_MAX + 10);
    snprintf(path, sizeof path, "%s/no/such", f->folder);
    assert_int_equal(fm_file_write_atomic(path, "x", 1, &error), FM_ERR_NOT_FOUND);
    assert_int_equal(mkdir(f->path, 0777), 0); /* a folder is in the way */
    assert_int_equal(fm_file_write_atomic(f->path, "x", 1, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "a folder is here"));
    assert_int_equal(count_files(f->folder), 1);
    memset(longest, 'a', PATH_MAX + 9);
    longest[PATH_MAX + 9] = '\0';
    assert_int_equal(fm_file_write_atomic(longest, "x", 1, &error), FM_ERR_IO);
    assert_int_equal(fm_dir_make(longest, &error), FM_ERR_IO);
    free(longest);
}

/* As root, -o /dev/null must not turn it into a plain file. */
static void devices_and_links_stay(void **state) {
    fixture *f = *state;
    fm_error error;
    fm_bytes content;
    char link[PATH_MAX + 16];
    struct stat info;
    assert_int_equal(mkfifo(f->path, 0666), 0);
    assert_int_equal(fm_file_write_atomic(f->path, "x", 1, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "a device or a pipe is here"));
    assert_int_equal(count_files(f->folder), 1);
    assert_int_equal(unlink(f->path), 0);

    snprintf(link, sizeof link, "%s/link", f->folder);
    assert_int_equal(symlink("file", link), 0); /* leads nowhere: replaced */
    assert_int_equal(fm_file_write_atomic(link, "lone", 4, &error), FM_OK);
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISREG(info.st_mode));
    assert_int_equal(unlink(link), 0);

    assert_int_equal(fm_file_write_atomic(f->path, "first", 5, &error), FM_OK);
    assert_int_equal(symlink("file", link), 0);
    assert_int_equal(fm_file_write_atomic(link, "second", 6, &error), FM_OK);
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(fm_file_read(&f->arena, f->path, 100, &content, &error), FM_OK);
    assert_memory_equal(content.data, "second", 6);
    assert_int_equal(count_files(f->folder), 2);
}

static void folders(void **state) {
    fixture *f = *state;
    char path[PATH_MAX + 16];
    struct stat info;
    fm_error error;
    snprintf(path, sizeof path, "%s/a/b//c/", f->folder);
    size_t existed;
    assert_int_equal(fm_dir_make_noting(path, &existed, NULL), FM_OK);
    assert_int_equal(existed, strlen(f->folder));
    fm_dir_unmake(path, existed);
    assert_int_equal(count_files(f->folder), 0);
    assert_int_equal(fm_dir_make(path, NULL), FM_OK);
    assert_int_equal(fm_dir_make_noting(path, &existed, NULL), FM_OK);
    assert_int_equal(existed, strlen(path));
    fm_dir_unmake(path, existed);
    assert_true(stat(path, &info) == 0 && S_ISDIR(info.st_mode));
    assert_int_equal(fm_dir_sync(path, NULL), FM_OK);
    fm_dir_unmake(f->folder, 0); /* it is not empty */
    assert_int_equal(fm_file_write_atomic(f->path, "x", 1, NULL), FM_OK);
    assert_int_equal(fm_dir_make(f->path, &error), FM_ERR_IO);
    snprintf(path, sizeof path, "%s/below", f->path);
    assert_int_equal(fm_dir_make(path, &error), FM_ERR_IO);
    assert_int_equal(fm_dir_sync(f->path, &error), FM_ERR_IO);
    assert_int_equal(fm_dir_sync("/nonexistent", &error), FM_ERR_NOT_FOUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(write_then_read, setup, teardown),
        cmocka_unit_test_setup_teardown(writing_in_pieces, setup, teardown),
        cmocka_unit_test_setup_teardown(two_writers_of_one_path_do_not_meet, setup, teardown),
        cmocka_unit_test_setup_teardown(unreadable_files_are_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(compressed_text, setup, teardown),
        cmocka_unit_test_setup_teardown(unwritable_paths_are_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(devices_and_links_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(folders, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
