/* test_damaged_catalogue.c: an embedded catalogue whose file is damaged, or of something else. */
#include "tests/testing/testing.h"

#include "cache/catalogue/catalogue.h"
#include "cache/store/table.h"
#include "proto/base/file.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_ITEM = 500 };

static char folder[256], file[300];

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    snprintf(file, sizeof file, "%s/catalogue", folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static fm_catalogue *open_file(void) {
    fm_catalogue *catalogue;
    const fm_catalogue_options options = {.job = "job", .worker = "w", .cache = "/caches/mine"};
    assert_int_equal(fm_catalogue_open(file, &options, &catalogue, NULL), FM_OK);
    return catalogue;
}

static fm_status begin(fm_catalogue *catalogue) {
    static char names[N_ITEM][32];
    static fm_catalogue_entry entries[N_ITEM];
    for (int i = 0; i < N_ITEM; i++) {
        snprintf(names[i], sizeof names[i], "chain-%03d", i);
        entries[i] = (fm_catalogue_entry){names[i], fm_sha256_of("source", 6)};
    }
    const fm_catalogue_listing listing = {fm_sha256_of("options", 7), N_ITEM, entries};
    return fm_catalogue_begin(catalogue, &listing, FM_CATALOGUE_JOIN, NULL);
}

/* Clears the pages of the file that hold keys, as a bad disk may do. */
static void clear_leaves(void) {
    enum { PAGE_BYTES = 4096, FIRST = 2, FLAGS_AT = 10, IS_LEAF = 2 };
    uint8_t page[PAGE_BYTES];
    int n_cleared = 0, fd = open(file, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    for (off_t at = (off_t)FIRST * PAGE_BYTES; pread(fd, page, PAGE_BYTES, at) == PAGE_BYTES;
         at += PAGE_BYTES) {
        if (page[FLAGS_AT] != IS_LEAF || page[FLAGS_AT + 1]) continue;
        memset(page, 0, PAGE_BYTES);
        assert_int_equal(pwrite(fd, page, PAGE_BYTES, at), PAGE_BYTES);
        n_cleared++;
    }
    close(fd);
    assert_true(n_cleared > 0);
}

static fm_status see_row(void *context, const fm_catalogue_row *row, fm_error *reterr) {
    (void)context;
    (void)row;
    (void)reterr;
    return FM_OK;
}

static fm_status see_worker(void *context, const fm_catalogue_worker *worker, fm_error *reterr) {
    (void)context;
    (void)worker;
    (void)reterr;
    return FM_OK;
}

/* Items that cannot be read are not taken for items that are done: a build would publish a
 * generation without them. */
static void it_is_no_finished_job(void **state) {
    (void)state;
    fm_catalogue *catalogue = open_file();
    assert_int_equal(begin(catalogue), FM_OK);
    clear_leaves();
    uint32_t n = 7;
    int64_t due_ms;
    fm_catalogue_counts counts;
    fm_catalogue_claim claimed;
    fm_error error = {.message = ""};
    assert_int_equal(fm_catalogue_left(catalogue, &n, &due_ms, &error), FM_ERR_CORRUPT);
    assert_int_equal(n, 7);
    assert_non_null(strstr(error.message, "the catalogue is damaged"));
    assert_string_equal(error.source, file);
    assert_int_equal(fm_catalogue_count(catalogue, &counts, NULL), FM_ERR_CORRUPT);
    assert_int_equal(fm_catalogue_each_row(catalogue, ~0u, see_row, NULL, NULL), FM_ERR_CORRUPT);
    assert_int_equal(fm_catalogue_each_worker(catalogue, see_worker, NULL, NULL), FM_ERR_CORRUPT);
    assert_int_equal(fm_catalogue_claim_items(catalogue, 1, &claimed, &n, NULL), FM_ERR_CORRUPT);
    assert_int_equal(begin(catalogue), FM_ERR_CORRUPT);
    fm_catalogue_close(catalogue);
}

/* Another file of LMDB, such as a shard, would be changed. Neither it nor its folder is. */
static void files_of_others_stay(void **state) {
    (void)state;
    static const char *const made[] = {"text", "folder", "pipe", "shard"};
    fm_catalogue *catalogue;
    fm_table *table;
    fm_error error;
    const fm_catalogue_options options = {.job = NULL};
    char path[300], locks[310];
    snprintf(path, sizeof path, "%s/text", folder);
    assert_int_equal(fm_file_write_atomic(path, "[model]\n", 8, NULL), FM_OK);
    snprintf(path, sizeof path, "%s/folder", folder);
    assert_int_equal(fm_dir_make(path, NULL), FM_OK);
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes, so opening it must not wait */
    snprintf(path, sizeof path, "%s/shard", folder);
    assert_int_equal(fm_table_open(path, &table, NULL), FM_OK);
    assert_int_equal(fm_table_begin(table, true, NULL), FM_OK);
    fm_table_put(table, (fm_bytes){(const uint8_t *)"blobs", 5},
                 (fm_bytes){(const uint8_t *)"x", 1});
    assert_int_equal(fm_table_commit(table, NULL), FM_OK);
    fm_table_close(table);
    snprintf(locks, sizeof locks, "%s-lock", path);
    assert_int_equal(unlink(locks), 0);
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, made[i]);
        snprintf(locks, sizeof locks, "%s-lock", path);
        assert_int_equal(fm_catalogue_open(path, &options, &catalogue, &error), FM_ERR_CORRUPT);
        assert_non_null(strstr(error.message, "catalogue"));
        assert_int_not_equal(access(locks, F_OK), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_is_no_finished_job, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_of_others_stay, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
