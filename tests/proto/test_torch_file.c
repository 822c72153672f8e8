/* test_torch_file.c: tensors of files as torch.save writes them are found and read; pickles that
 * want anything else, and files that contradict themselves, are refused with the place. */
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

static fm_status read_pickle(size_t bytes, size_t *ret_n, fm_error *error) {
    fm_arena arena;
    const fm_pickled_tensor *tensor;
    assert_int_equal(fm_arena_init(&arena, (size_t)256 << 20, NULL), FM_OK);
    fm_status status =
        fm_pickle_read((fm_bytes){pickle.bytes, bytes}, &arena, &tensor, ret_n, error);
    fm_arena_fini(&arena);
    return status;
}

/* Refuses the codes behind the head of a pickle. */
static void expect_pickle(const char *codes, fm_status expected, uint64_t offset,
                          const char *part) {
    fm_error error = {.message = ""};
    size_t n;
    fm_test_torch_begin(&pickle);
    fm_test_torch_code(&pickle, "\x80\x02");
    fm_test_torch_code(&pickle, codes);
    assert_int_equal(read_pickle(pickle.out.at, &n, &error), expected);
    if (!strstr(error.message, part)) fail_msg("found: %s", error.message);
    assert_int_equal(error.offset, offset);
}

static void test_refused_pickles(void **state) {
    (void)state;
    expect_pickle("cos\nsystem\n.", FM_ERR_UNSUPPORTED, 2, "the pickle asks for os system, which");
    expect_pickle("}i.", FM_ERR_UNSUPPORTED, 3, "the instruction 0x69");
    expect_pickle("}}.", FM_ERR_FORMAT, 4, "a dictionary, and nothing else");
    expect_pickle("N.", FM_ERR_FORMAT, 3, "a dictionary, and nothing else");
    expect_pickle("s.", FM_ERR_FORMAT, 2, "more values on the stack");
    expect_pickle("t.", FM_ERR_FORMAT, 2, "a mark on the stack");
    expect_pickle("}(Nu.", FM_ERR_FORMAT, 5, "a value for every key");
    expect_pickle("NNNs.", FM_ERR_FORMAT, 5, "a dictionary below the keys");
    expect_pickle("}q\x05.", FM_ERR_FORMAT, 3, "the next number of the memo");
    expect_pickle("h\x05.", FM_ERR_FORMAT, 2, "a number that the memo has");
    expect_pickle("Na.", FM_ERR_FORMAT, 3, "a list below the values");
    expect_pickle("NNa.", FM_ERR_FORMAT, 4, "a list below the values");
    expect_pickle("}Nb", FM_ERR_FORMAT, 5, "the pickle is cut off");
    expect_pickle("X\xff\xff\xff\x7f", FM_ERR_FORMAT, 2, "a text inside of the pickle");
    expect_pickle("ctorch\nFloatStorage\n)R.", FM_ERR_FORMAT, 23, "a name that makes a dictionary");
    expect_pickle("NQ.", FM_ERR_FORMAT, 3, "a storage: its type");
}

/* Every beginning of a pickle is refused; none is read past its end. */
static void test_cut_pickles(void **state) {
    (void)state;
    size_t n = 0;
    write_pickle(8, rows);
    const size_t whole = pickle.out.at;
    for (size_t bytes = 0; bytes < whole; bytes++)
        assert_int_not_equal(read_pickle(bytes, &n, NULL), FM_OK);
    assert_int_equal(read_pickle(whole, &n, NULL), FM_OK);
    assert_int_equal(n, 1);
}

/* A dictionary in itself, and dictionaries that each hold the next one many times. */
static void test_bombs(void **state) {
    (void)state;
    fm_error error = {.message = ""};
    size_t n;
    fm_test_torch_begin(&pickle);
    fm_test_torch_code(&pickle, "\x80\x02}q");
    fm_write_u8(&pickle.out, 0);
    fm_test_torch_text(&pickle, "me");
    fm_test_torch_code(&pickle, "h");
    fm_write_u8(&pickle.out, 0);
    fm_test_torch_code(&pickle, "s.");
    assert_int_equal(read_pickle(pickle.out.at, &n, &error), FM_ERR_LIMIT);
    assert_non_null(strstr(error.message, "nested dictionaries"));
    fm_test_torch_begin(&pickle);
    fm_test_torch_code(&pickle, "\x80\x02}q");
    fm_write_u8(&pickle.out, 0);
    /* Each level is an entry of the one before, ten times; the outermost is built last. */
    for (uint8_t level = 1; level < 10; level++) {
        fm_test_torch_code(&pickle, "}q");
        fm_write_u8(&pickle.out, level);
        fm_test_torch_code(&pickle, "(");
        for (uint32_t k = 0; level > 1 && k < 10; k++) {
            fm_test_torch_integer(&pickle, k);
            fm_test_torch_code(&pickle, "h");
            fm_write_u8(&pickle.out, (uint8_t)(level - 1));
        }
        fm_test_torch_code(&pickle, "u");
    }
    /* One dictionary has the others below it on the stack as its state, level by level. */
    for (int level = 1; level < 10; level++)
        fm_test_torch_code(&pickle, "b");
    fm_test_torch_text(&pickle, "all");
    fm_test_torch_code(&pickle, "h\x09s.");
    assert_int_equal(read_pickle(pickle.out.at, &n, &error), FM_ERR_LIMIT);
    assert_non_null(strstr(error.message, "entries of dictionaries"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),           cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_refused_pickles), cmocka_unit_test(test_cut_pickles),
        cmocka_unit_test(test_bombs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
