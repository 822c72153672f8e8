/* test_npz.c: .npz archives: we read back what we write, NumPy reads it, and we read what NumPy
 * writes. Archives with each part broken are refused with the offset and a message. */
#include "proto/base/compress.h"
#include "proto/base/file.h"
#include "proto/npz.h"
#include "tests/testing/testing.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct fixture {
    char folder[PATH_MAX - 64], path[PATH_MAX];
    fm_arena arena;
} fixture;

static int setup(void **state) {
    fixture *f = calloc(1, sizeof *f);
    fm_test_make_folder(f->folder, sizeof f->folder);
    snprintf(f->path, sizeof f->path, "%s/a.npz", f->folder);
    *state = f;
    return fm_arena_init(&f->arena, (size_t)1 << 30, NULL);
}

static int teardown(void **state) {
    fixture *f = *state;
    fm_arena_fini(&f->arena);
    fm_test_remove_tree(f->folder);
    free(f);
    return 0;
}

static const float some_floats[6] = {0.0f, 1.5f, -2.25f, 3e38f, 1e-40f, 7.0f};
static const uint8_t some_bytes[3] = {1, 0, 255};
static const int64_t one_integer = INT64_MIN;
static const uint64_t shape_2_3[] = {2, 3}, shape_3[] = {3}, shape_0_4[] = {0, 4}, shape_2[] = {2};

static void write_sample(const char *path) {
    fm_npz_writer *writer;
    assert_int_equal(fm_npz_writer_create(path, &writer, NULL), FM_OK);
    assert_int_equal(
        fm_npz_writer_append(writer, "positions", "<f4", 2, shape_2_3, some_floats, NULL), FM_OK);
    assert_int_equal(fm_npz_writer_append(writer, "mask", "|u1", 1, shape_3, some_bytes, NULL),
                     FM_OK);
    assert_int_equal(fm_npz_writer_append(writer, "n", "<i8", 0, NULL, &one_integer, NULL), FM_OK);
    assert_int_equal(fm_npz_writer_append(writer, "empty", "<f8", 2, shape_0_4, NULL, NULL), FM_OK);
    assert_int_equal(
        fm_npz_writer_append(writer, "name", "|S5", 1, shape_2, "1abc_2\0\0\0\0", NULL), FM_OK);
    assert_int_equal(fm_npz_writer_finish(writer, NULL), FM_OK);
}

static fm_bytes read_bytes(fixture *f, const char *path) {
    fm_bytes content;
    assert_int_equal(fm_file_read(&f->arena, path, (size_t)1 << 29, &content, NULL), FM_OK);
    return content;
}

static void round_trip(void **state) {
    fixture *f = *state;
    fm_npz npz;
    write_sample(f->path);
    assert_int_equal(fm_npz_parse(&f->arena, read_bytes(f, f->path), &npz, NULL), FM_OK);
    assert_int_equal(npz.n_array, 5);
    const fm_npy *positions = fm_npz_find(&npz, "positions"), *n = fm_npz_find(&npz, "n");
    assert_ptr_equal(positions, &npz.arrays[0]);
    assert_string_equal(positions->dtype, "<f4");
    assert_int_equal(positions->rank, 2);
    assert_int_equal(positions->shape[0], 2);
    assert_int_equal(positions->shape[1], 3);
    assert_memory_equal(positions->data, some_floats, sizeof some_floats);
    assert_int_equal(n->rank, 0);
    assert_int_equal(n->count, 1);
    assert_memory_equal(n->data, &one_integer, 8);
    assert_int_equal(fm_npz_find(&npz, "empty")->count, 0);
    assert_int_equal(fm_npz_find(&npz, "name")->item_bytes, 5);
    assert_memory_equal(fm_npz_find(&npz, "name")->data, "1abc_2\0\0\0\0", 10);
    assert_null(fm_npz_find(&npz, "positions.npy"));
    for (size_t i = 0; i < npz.n_array; i++)
        assert_int_equal((uintptr_t)npz.arrays[i].data % 64, 0);
}

static void same_arrays_same_bytes(void **state) {
    fixture *f = *state;
    char other[PATH_MAX];
    snprintf(other, sizeof other, "%s/b.npz", f->folder);
    write_sample(f->path);
    write_sample(other);
    fm_bytes a = read_bytes(f, f->path), b = read_bytes(f, other);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
}

static void nothing_appears_before_finish(void **state) {
    fixture *f = *state;
    fm_npz_writer *writer;
    assert_int_equal(fm_npz_writer_create(f->path, &writer, NULL), FM_OK);
    assert_int_equal(fm_npz_writer_append(writer, "a", "|u1", 1, shape_3, some_bytes, NULL), FM_OK);
    assert_int_not_equal(access(f->path, F_OK), 0);
    fm_npz_writer_destroy(writer);
    assert_int_equal(rmdir(f->folder), 0); /* no temporary file is left */
    fm_test_make_folder(f->folder, sizeof f->folder);
    fm_error error;
    assert_int_equal(fm_npz_writer_create("/nonexistent/x.npz", &writer, &error), FM_ERR_NOT_FOUND);
}

/* 70,000 members do not fit the plain end record's u16. */
static void many_members_take_zip64(void **state) {
    fixture *f = *state;
    fm_npz_writer *writer;
    fm_npz npz;
    char name[16];
    enum { N = 70000 };
    assert_int_equal(fm_npz_writer_create(f->path, &writer, NULL), FM_OK);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "a%d", i);
        assert_int_equal(fm_npz_writer_append(writer, name, "<i4", 0, NULL, &i, NULL), FM_OK);
    }
    assert_int_equal(fm_npz_writer_finish(writer, NULL), FM_OK);
    assert_int_equal(fm_npz_parse(&f->arena, read_bytes(f, f->path), &npz, NULL), FM_OK);
    assert_int_equal(npz.n_array, N);
    assert_string_equal(npz.arrays[N - 1].name, "a69999");
    assert_int_equal(*(const int *)npz.arrays[N - 1].data, N - 1);
}

/* -- against numpy */

/* Runs a script in the fixture's folder; skips the test when there is no NumPy. */
static void run_numpy(fixture *f, const char *script) {
    char path[PATH_MAX], command[2 * PATH_MAX];
    if (system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") != 0) {
        fprintf(stderr, "skipped: /usr/bin/python3 has no numpy\n");
        skip();
    }
    snprintf(path, sizeof path, "%s/script.py", f->folder);
    assert_int_equal(fm_file_write_atomic(path, script, strlen(script), NULL), FM_OK);
    snprintf(command, sizeof command, "cd '%s' && /usr/bin/python3 script.py", f->folder);
    assert_int_equal(system(command), 0);
}

static void numpy_reads_ours(void **state) {
    fixture *f = *state;
    write_sample(f->path);
    run_numpy(f,
              "import numpy as np, zipfile\n"
              "assert zipfile.ZipFile('a.npz').testzip() is None\n"
              "z = np.load('a.npz')\n"
              "assert z.files == ['positions', 'mask', 'n', 'empty', 'name'], z.files\n"
              "p = np.array([[0, 1.5, -2.25], [3e38, 1e-40, 7]], np.float32)\n"
              "assert z['positions'].dtype == np.float32 and (z['positions'] == p).all()\n"
              "assert z['mask'].tolist() == [1, 0, 255] and z['mask'].dtype == np.uint8\n"
              "assert z['n'].shape == () and z['n'] == -2**63 and z['n'].dtype == np.int64\n"
              "assert z['empty'].shape == (0, 4) and z['empty'].dtype == np.float64\n"
              "assert z['name'].tolist() == [b'1abc_', b'2'] and z['name'].dtype.str == '|S5'\n");
}

static void check_numpy_file(fixture *f, const char *name) {
    char path[PATH_MAX + 32];
    fm_npz npz;
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    assert_int_equal(fm_npz_parse(&f->arena, read_bytes(f, path), &npz, NULL), FM_OK);
    static const char *const dtypes[] = {"|b1", "|u1", "|i1", "<u2", "<i2", "<f2",
                                         "<u4", "<i4", "<f4", "<u8", "<i8", "<f8"};
    assert_int_equal(npz.n_array, 14);
    for (size_t i = 0; i < 12; i++) {
        assert_string_equal(npz.arrays[i].dtype, dtypes[i]);
        assert_int_equal(npz.arrays[i].rank, 3);
        assert_int_equal(npz.arrays[i].count, 24);
    }
    const double *doubles = npz.arrays[11].data;
    for (int i = 0; i < 24; i++)
        assert_true(doubles[i] == (double)i);
    const fm_npy *text = fm_npz_find(&npz, "text");
    assert_string_equal(text->dtype, "|S7");
    assert_memory_equal(text->data, "foldmill", 7);
    assert_int_equal(fm_npz_find(&npz, "folder/zero")->rank, 0);
}

static void we_read_numpys(void **state) {
    fixture *f = *state;
    run_numpy(f, "import numpy as np\n"
                 "t = 'b1 u1 i1 u2 i2 f2 u4 i4 f4 u8 i8 f8'.split()\n"
                 "d = {x: np.arange(24).reshape(2, 3, 4).astype(x) for x in t}\n"
                 "d['text'] = np.array([b'foldmil'])\n"
                 "d['folder/zero'] = np.float32(0)\n"
                 "np.savez('stored.npz', **d)\n"
                 "np.savez_compressed('deflated.npz', **d)\n"
                 "f = {x: np.asfortranarray(v) if v.ndim > 1 else v for x, v in d.items()}\n"
                 "np.savez('fortran.npz', **f)\n"
                 "np.savez('big.npz', a=np.ones(3, '>f4'))\n"
                 "np.savez('object.npz', a=np.array([None]))\n"
                 "np.savez('unicode.npz', a=np.array(['x']))\n");
    check_numpy_file(f, "stored.npz");
    check_numpy_file(f, "deflated.npz");
    check_numpy_file(f, "fortran.npz");
    static const char *const refused[][2] = {{"big.npz", "a: the dtype '>f4' is none of"},
                                             {"object.npz", "a: the dtype '|O' is none of"},
                                             {"unicode.npz", "a: the dtype '<U1' is none of"}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char path[PATH_MAX + 32];
        fm_npz npz;
        fm_error error;
        snprintf(path, sizeof path, "%s/%s", f->folder, refused[i][0]);
        fm_status status = fm_npz_parse(&f->arena, read_bytes(f, path), &npz, &error);
        assert_int_equal(status, FM_ERR_UNSUPPORTED);
        assert_memory_equal(error.message, refused[i][1], strlen(refused[i][1]));
        assert_true(error.offset > 0);
    }
}

static void we_read_the_reference(void **state) {
    fixture *f = *state;
    char path[PATH_MAX];
    fm_npz npz;
    if (!fm_test_reference()) {
        fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    fm_test_reference_path(path, sizeof path, "golden/nonensembled/1psm_A.npz");
    assert_int_equal(fm_npz_parse(&f->arena, read_bytes(f, path), &npz, NULL), FM_OK);
    const fm_npy *aatype = fm_npz_find(&npz, "aatype");
    assert_non_null(aatype);
    assert_int_equal(aatype->rank, 1);
    fm_test_reference_path(path, sizeof path, "model/af2.npz");
    assert_int_equal(fm_npz_parse(&f->arena, read_bytes(f, path), &npz, NULL), FM_OK);
    assert_true(npz.n_array > 100);
}

/* -- refusals */

/* Parses an .npy with this dictionary text and `data_bytes` zero bytes. */
static fm_status parse_npy_text(fixture *f, const char *text, size_t data_bytes, fm_error *error) {
    uint8_t bytes[512] = {0};
    fm_writer writer = fm_writer_of(bytes, sizeof bytes);
    fm_npy array;
    fm_write_bytes(&writer, "\x93NUMPY\x01\x00", 8);
    fm_write_u16(&writer, (uint16_t)strlen(text));
    fm_write_bytes(&writer, text, strlen(text));
    return fm_npy_parse(&f->arena, (fm_bytes){bytes, writer.at + data_bytes}, &array, error);
}

static void bad_npy_headers(void **state) {
    fixture *f = *state;
    fm_error error;
    static const struct {
        const char *text;
        size_t data_bytes;
        fm_status status;
        uint64_t offset;
    } cases[] = {
        {"", 0, FM_ERR_FORMAT, 10},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", 8, FM_ERR_FORMAT, 64},
        {"{'descr': '<f4', 'fortran_order': False}", 4, FM_ERR_FORMAT, 50},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': ()}", 4, FM_ERR_FORMAT, 34},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 7, FM_ERR_CORRUPT, 65},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 9, FM_ERR_CORRUPT, 65},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", 8, FM_ERR_FORMAT, 61},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387905, 4)}", 16,
         FM_ERR_CORRUPT, 85},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 4,
         FM_ERR_FORMAT, 80},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 1, FM_ERR_FORMAT,
         77},
        {"{'descr': '|S0', 'fortran_order': False, 'shape': ()}", 0, FM_ERR_UNSUPPORTED, 20},
        {"{'descr': '|S99999999', 'fortran_order': False, 'shape': ()}", 0, FM_ERR_UNSUPPORTED, 20},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': ()}", 4, FM_ERR_FORMAT, 44},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': ()} extra", 4, FM_ERR_FORMAT, 64},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(parse_npy_text(f, cases[i].text, cases[i].data_bytes, &error),
                         cases[i].status);
        assert_int_equal(error.offset, cases[i].offset);
    }
    const char *odd = "{ \"shape\":(2 , 1),'fortran_order' :False,'descr':\"<f4\" }";
    assert_int_equal(parse_npy_text(f, odd, 8, &error), FM_OK);
}

/* Every prefix of a good archive is refused, and so is every archive with one changed byte in its
 * member (the CRC detects it); nothing crashes. */
/* Other readers take the first or the last of two arrays, so neither would be surely right. */
static void a_name_is_used_once(void **state) {
    fixture *f = *state;
    static const char *const names[] = {"n", "mask", "a", "mask"};
    fm_npz_writer *writer;
    fm_npz npz;
    fm_error error;
    assert_int_equal(fm_npz_writer_create(f->path, &writer, NULL), FM_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_int_equal(
            fm_npz_writer_append(writer, names[i], "|u1", 1, shape_3, some_bytes, NULL), FM_OK);
    assert_int_equal(fm_npz_writer_finish(writer, NULL), FM_OK);
    assert_int_equal(fm_npz_parse(&f->arena, read_bytes(f, f->path), &npz, &error), FM_ERR_FORMAT);
    assert_string_equal(error.message, "found the array mask twice, expected it once");
}

static void cut_and_changed_archives(void **state) {
    fixture *f = *state;
    write_sample(f->path);
    fm_bytes good = read_bytes(f, f->path);
    size_t mark = fm_arena_mark(&f->arena);
    fm_npz npz;
    for (size_t size = 0; size < good.size; size++) {
        fm_error error = {0};
        fm_status status = fm_npz_parse(&f->arena, (fm_bytes){good.data, size}, &npz, &error);
        assert_int_equal(status, FM_ERR_FORMAT);
        assert_string_not_equal(error.message, "");
        fm_arena_rewind(&f->arena, mark);
    }
    uint8_t *changed = malloc(good.size);
    memcpy(changed, good.data, good.size);
    for (size_t at = 30 + strlen("positions.npy"); at < 150; at++) {
        changed[at] ^= 0x10;
        assert_int_equal(fm_npz_parse(&f->arena, (fm_bytes){changed, good.size}, &npz, NULL),
                         FM_ERR_CORRUPT);
        changed[at] ^= 0x10;
    }
    for (size_t at = 0; at < good.size; at++) {
        changed[at] ^= 0xff;
        (void)!fm_npz_parse(&f->arena, (fm_bytes){changed, good.size}, &npz, NULL);
        changed[at] ^= 0xff;
        fm_arena_rewind(&f->arena, mark);
    }
    free(changed);
}

static void declared_sizes_are_not_believed(void **state) {
    fixture *f = *state;
    write_sample(f->path);
    fm_bytes good = read_bytes(f, f->path);
    uint8_t *bytes = malloc(good.size);
    memcpy(bytes, good.data, good.size);
    fm_reader end = fm_reader_of(bytes + good.size - 6, 4);
    size_t directory = fm_read_u32(&end);
    fm_npz npz;
    fm_error error;
    /* the first member: deflated, claiming 3.9 GB from a few bytes */
    bytes[directory + 10] = 8;
    memset(bytes + directory + 24, 0xee, 4);
    assert_int_equal(fm_npz_parse(&f->arena, (fm_bytes){bytes, good.size}, &npz, &error),
                     FM_ERR_CORRUPT);
    assert_int_equal(error.offset, directory);
    /* an archive that is larger than its arena */
    fm_arena small;
    assert_int_equal(fm_arena_init(&small, 1024, NULL), FM_OK);
    assert_int_equal(fm_npz_parse(&small, (fm_bytes){good.data, good.size}, &npz, &error),
                     FM_ERR_LIMIT);
    fm_arena_fini(&small);
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(same_arrays_same_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_appears_before_finish, setup, teardown),
        cmocka_unit_test_setup_teardown(many_members_take_zip64, setup, teardown),
        cmocka_unit_test_setup_teardown(numpy_reads_ours, setup, teardown),
        cmocka_unit_test_setup_teardown(we_read_numpys, setup, teardown),
        cmocka_unit_test_setup_teardown(we_read_the_reference, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_npy_headers, setup, teardown),
        cmocka_unit_test_setup_teardown(a_name_is_used_once, setup, teardown),
        cmocka_unit_test_setup_teardown(cut_and_changed_archives, setup, teardown),
        cmocka_unit_test_setup_teardown(declared_sizes_are_not_believed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
