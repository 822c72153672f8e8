/* test_torch_file.c: tensors of files as torch.save writes them are found and read; files that
 * contradict themselves are refused. test_pickle.c tests the tables in them. */
#include "proto/base/file.h"
#include "proto/torch_file.h"
#include "tests/testing/testing.h"
#include "tests/testing/torch_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char folder[512], path[600];
static fm_test_torch pickle, archive;
static const uint32_t two_three[2] = {2, 3}, rows[2] = {3, 1}, columns[2] = {1, 2};
static const float numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7};

static int setup(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/x.pt", folder);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

/* {"model": OrderedDict(a.w = tensor of storage 0 at offset 2, with a state), "step": 7, ...} */
static void write_pickle(uint32_t count, const uint32_t stride[2]) {
    fm_test_torch_begin(&pickle);
    fm_test_torch_code(&pickle, "\x80\x02}(");
    fm_test_torch_text(&pickle, "model");
    fm_test_torch_code(&pickle, "ccollections\nOrderedDict\n)R(");
    fm_test_torch_text(&pickle, "a.w");
    fm_test_torch_tensor(&pickle, "FloatStorage", "0", count, 2, two_three, stride);
    fm_test_torch_code(&pickle, "u}");
    fm_test_torch_text(&pickle, "_metadata");
    fm_test_torch_code(&pickle, "Nsb");
    fm_test_torch_text(&pickle, "list");
    fm_test_torch_code(&pickle, "](K\x01N\x88"
                                "e");
    fm_test_torch_text(&pickle, "step");
    fm_test_torch_code(&pickle, "\x8a\x05\x01\x02\x03\x04\xff");
    fm_test_torch_code(&pickle, "u.");
}

static void write_archive(uint32_t n_byte, uint16_t method, const char *order) {
    fm_test_torch_begin(&archive);
    fm_test_torch_member(&archive, "x/data.pkl", pickle.bytes, (uint32_t)pickle.out.at, 0);
    if (order) fm_test_torch_member(&archive, "x/byteorder", order, (uint32_t)strlen(order), 0);
    fm_test_torch_member(&archive, "x/data/0", numbers, n_byte, method);
    fm_test_torch_end(&archive);
}

static fm_status open_bytes(size_t bytes, fm_torch_file **file, fm_error *error) {
    assert_int_equal(fm_file_write_unsynced(path, archive.bytes, bytes, NULL), FM_OK);
    return fm_torch_file_open(path, file, error);
}

static void test_reads(void **state) {
    (void)state;
    fm_torch_file *file;
    fm_error error = {.message = ""};
    write_pickle(8, rows);
    write_archive(32, 0, "little");
    if (open_bytes(archive.out.at, &file, &error)) fail_msg("%s", error.message);
    assert_int_equal(fm_torch_file_count(file), 1);
    const fm_pickled_tensor *t = fm_torch_file_at(file, 0);
    float found[6];
    assert_string_equal(t->name, "model.a.w");
    assert_string_equal(t->dtype, "F32");
    assert_true(t->is_contiguous);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(fm_torch_file_read(file, t, found, NULL), FM_OK);
    assert_memory_equal(found, numbers + 2, sizeof found);
    fm_torch_file_close(file);
    write_pickle(8, columns);
    write_archive(32, 0, NULL);
    assert_int_equal(open_bytes(archive.out.at, &file, NULL), FM_OK);
    assert_false(fm_torch_file_at(file, 0)->is_contiguous);
    fm_torch_file_close(file);
}

static void expect_archive(size_t bytes, fm_status expected, const char *part) {
    fm_torch_file *file;
    fm_error error = {.message = ""};
    assert_int_equal(open_bytes(bytes, &file, &error), expected);
    if (!strstr(error.message, part)) fail_msg("found: %s", error.message);
}

static void test_contradictions(void **state) {
    (void)state;
    write_pickle(8, rows);
    write_archive(31, 0, NULL);
    expect_archive(archive.out.at, FM_ERR_FORMAT, "found 31 bytes of numbers, expected 8 elements");
    write_archive(32, 8, NULL);
    expect_archive(archive.out.at, FM_ERR_UNSUPPORTED, "compressed or encrypted");
    write_archive(32, 0, "big");
    expect_archive(archive.out.at, FM_ERR_UNSUPPORTED, "another byte order");
    write_pickle(0x7fffffff, rows);
    write_archive(32, 0, NULL);
    expect_archive(archive.out.at, FM_ERR_FORMAT, "found 32 bytes of numbers");
    write_pickle(7, rows);
    write_archive(32, 0, NULL);
    expect_archive(archive.out.at, FM_ERR_FORMAT, "expected a tensor inside of its storage");
    write_pickle(8, rows);
    fm_test_torch_begin(&archive);
    fm_test_torch_member(&archive, "x/data.pkl", pickle.bytes, (uint32_t)pickle.out.at, 0);
    fm_test_torch_end(&archive);
    expect_archive(archive.out.at, FM_ERR_FORMAT, "found no member data/0 with its numbers");
    /* An archive that is cut off has no end record. */
    for (size_t n = 0; n < archive.out.at; n += 17)
        expect_archive(n, FM_ERR_FORMAT, "found no zip end record");
    fm_test_torch_begin(&archive);
    fm_test_torch_member(&archive, "x/data/0", numbers, 32, 0);
    fm_test_torch_end(&archive);
    expect_archive(archive.out.at, FM_ERR_FORMAT, "found no member NAME/data.pkl");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reads),
                                       cmocka_unit_test(test_contradictions)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
