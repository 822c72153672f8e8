/* test_pickle.c: the tables of tensors in a Python pickle, written here instruction by instruction,
 * and pickles that are refused: what runs code, what is cut off, what contradicts itself. */
#include "proto/pickle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ARENA_BYTES = 256 << 20 };

/* A tensor of 2 x 3 floats that begins at element 1 of the storage "7" of 9. */
#define STORAGE "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0007X\3\0\0\0cpuK\x09tQ"
#define TENSOR                                                                                     \
    "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE "K\1K\2K\3\x86K\3K\1\x86\x89" HOOKS "tR"
#define HOOKS "ccollections\nOrderedDict\n)R"
#define BYTES(text)                                                                                \
    (fm_bytes) {                                                                                   \
        (const uint8_t *)(text), sizeof(text) - 1                                                  \
    }

typedef struct fixture {
    fm_arena arena;
    const fm_pickled_tensor *tensor;
    size_t n;
    fm_error error;
} fixture;

static fm_status read_pickle(fixture *f, fm_bytes pickle) {
    f->n = 0;
    return fm_pickle_read(pickle, &f->arena, &f->tensor, &f->n, &f->error);
}

static int setup(void **state) {
    static fixture f;
    *state = &f;
    return fm_arena_init(&f.arena, ARENA_BYTES, NULL);
}

static int teardown(void **state) {
    fm_arena_fini(&((fixture *)*state)->arena);
    return 0;
}

static void a_table_is_read(void **state) {
    fixture *f = *state;
    /* {"a": {"w": TENSOR}, 5: {"w": the same tensor by the memo}, "step": 12} */
    static const char pickle[] =
        "\x80\2}(X\1\0\0\0a}X\1\0\0\0w" TENSOR "q\0sK\5}X\1\0\0\0wh\0sX\4\0\0\0stepK\x0cu.";
    assert_int_equal(read_pickle(f, BYTES(pickle)), FM_OK);
    assert_int_equal(f->n, 2);
    const fm_pickled_tensor *t = &f->tensor[0];
    assert_string_equal(t->name, "a.w");
    assert_string_equal(f->tensor[1].name, "5.w");
    assert_string_equal(t->storage, "7");
    assert_string_equal(t->dtype, "F32");
    assert_int_equal(t->item_bytes, 4);
    assert_int_equal(t->storage_count, 9);
    assert_int_equal(t->offset, 1);
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->count, 6);
    assert_true(t->is_contiguous);
}

static void a_transposed_tensor_is_said_to_be_one(void **state) {
    fixture *f = *state;
    static const char pickle[] = "\x80\2}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(" STORAGE
                                 "K\1K\2K\3\x86K\1K\2\x86\x89" HOOKS "tRs.";
    assert_int_equal(read_pickle(f, BYTES(pickle)), FM_OK);
    assert_int_equal(f->n, 1);
    assert_false(f->tensor[0].is_contiguous);
}

static void what_is_no_table_is_refused(void **state) {
    fixture *f = *state;
    const struct {
        fm_bytes pickle;
        fm_status status;
        uint64_t offset;
        const char *message;
    } cases[] = {
        {BYTES("\x80\2cos\nsystem\nX\4\0\0\0true\x85R."), FM_ERR_UNSUPPORTED, 2,
         "the pickle asks for os system, which is no part of a table of tensors"},
        {BYTES("\x80\2ctorch\nFloatStorage\n)R."), FM_ERR_FORMAT, 23,
         "a name that makes a dictionary or a tensor"},
        {BYTES("\x80\4."), FM_ERR_FORMAT, 0, "protocol 2"},
        {BYTES(""), FM_ERR_FORMAT, 0, "the pickle is cut off"},
        {BYTES("\x80\2}"), FM_ERR_FORMAT, 3, "the pickle is cut off"},
        {BYTES("\x80\2}X\xff\xff\xff\xffw"), FM_ERR_FORMAT, 3, "a text inside of the pickle"},
        {BYTES("\x80\2K\1."), FM_ERR_FORMAT, 4, "a dictionary, and nothing else"},
        {BYTES("\x80\2}}."), FM_ERR_FORMAT, 4, "a dictionary, and nothing else"},
        {BYTES("\x80\2}(K\1u."), FM_ERR_FORMAT, 6, "a value for every key"},
        {BYTES("\x80\2}u."), FM_ERR_FORMAT, 3, "a mark on the stack"},
        {BYTES("\x80\2t."), FM_ERR_FORMAT, 2, "a mark on the stack"},
        {BYTES("\x80\2NNNs."), FM_ERR_FORMAT, 5, "a dictionary below the keys"},
        {BYTES("\x80\2Na."), FM_ERR_FORMAT, 3, "a list below the values"},
        {BYTES("\x80\2NNa."), FM_ERR_FORMAT, 4, "a list below the values"},
        {BYTES("\x80\2}Nb"), FM_ERR_FORMAT, 5, "the pickle is cut off"},
        {BYTES("\x80\2s."), FM_ERR_FORMAT, 2, "more values on the stack"},
        {BYTES("\x80\2(K\1s."), FM_ERR_FORMAT, 5, "more values on the stack"},
        {BYTES("\x80\2h\0."), FM_ERR_FORMAT, 2, "a number that the memo has"},
        {BYTES("\x80\2}q\5."), FM_ERR_FORMAT, 3, "the next number of the memo"},
        {BYTES("\x80\2}r\xff\xff\xff\x7f."), FM_ERR_FORMAT, 3, "the next number of the memo"},
        {BYTES("\x80\2\x93."), FM_ERR_UNSUPPORTED, 2, "the instruction 0x93"},
        {BYTES("\x80\2K\1Q."), FM_ERR_FORMAT, 4, "a storage: its type, its key"},
        {BYTES("\x80\2}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(" STORAGE
               "K\4K\2K\3\x86K\3K\1\x86\x89" HOOKS "tRs."),
         FM_ERR_FORMAT, 135, "a tensor inside of its storage"},
        {BYTES("\x80\2}X\1\0\0\0\n" TENSOR "s."), FM_ERR_FORMAT, 137, "names of at most 255 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_status status = read_pickle(f, cases[i].pickle);
        if (status != cases[i].status || !strstr(f->error.message, cases[i].message) ||
            f->error.offset != cases[i].offset) {
            fail_msg("case %zu: status %d at %llu: %s", i, (int)status,
                     (unsigned long long)f->error.offset, f->error.message);
        }
    }
}

/* Every beginning of a pickle is refused; none is read past its end. */
static void cut_pickles_are_refused(void **state) {
    fixture *f = *state;
    /* {"m": OrderedDict(w = TENSOR) with the state {"v": None}, "l": [1, None, True], "s": a long
     * number} */
    static const char pickle[] =
        "\x80\2}(X\1\0\0\0mccollections\nOrderedDict\n)R(X\1\0\0\0w" TENSOR "u}X\1\0\0\0vNsb"
        "X\1\0\0\0l](K\1N\x88"
        "eX\1\0\0\0s\x8a\5\1\2\3\4\xff"
        "u.";
    const size_t whole = sizeof pickle - 1;
    for (size_t bytes = 0; bytes < whole; bytes++) {
        uint8_t *cut = malloc(bytes + 1); /* its end is that of the memory */
        assert_non_null(cut);
        memcpy(cut + 1, pickle, bytes);
        assert_int_not_equal(read_pickle(f, (fm_bytes){cut + 1, bytes}), FM_OK);
        free(cut);
    }
    assert_int_equal(read_pickle(f, BYTES(pickle)), FM_OK);
    assert_int_equal(f->n, 1);
    assert_string_equal(f->tensor[0].name, "m.w");
}

/* A dictionary that contains itself, and one that is met on 8^14 ways, end at their limits. */
static void dictionaries_in_each_other_are_bounded(void **state) {
    fixture *f = *state;
    assert_int_equal(read_pickle(f, BYTES("\x80\2}q\0X\1\0\0\0ah\0s.")), FM_ERR_LIMIT);
    assert_non_null(strstr(f->error.message, "15 nested dictionaries"));
    /* Each dictionary has the one before under eight names; a list takes them from the stack. */
    uint8_t wide[1024] = "\x80\2]}q";
    size_t n = 6; /* with the 0 of the first memo */
    wide[n++] = 'a';
    for (uint8_t i = 1; i < 15; i++) {
        wide[n++] = '}', wide[n++] = '(';
        for (uint8_t k = 0; k < 8; k++) {
            const uint8_t pair[] = {'K', k, 'h', (uint8_t)(i - 1)};
            memcpy(wide + n, pair, sizeof pair);
            n += sizeof pair;
        }
        wide[n++] = 'u', wide[n++] = 'q', wide[n++] = i, wide[n++] = 'a';
    }
    /* {"l": the list, "d": the last dictionary} */
    static const uint8_t begin[] = "\x80\2}(X\1\0\0\0l", end[] = "X\1\0\0\0dh\16u.";
    uint8_t whole[1100];
    memcpy(whole, begin, sizeof begin - 1);
    memcpy(whole + sizeof begin - 1, wide + 2, n - 2);
    memcpy(whole + sizeof begin - 1 + n - 2, end, sizeof end - 1);
    const size_t bytes = sizeof begin - 1 + n - 2 + sizeof end - 1;
    assert_int_equal(read_pickle(f, (fm_bytes){whole, bytes}), FM_ERR_LIMIT);
    assert_non_null(strstr(f->error.message, "entries of dictionaries"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_table_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(a_transposed_tensor_is_said_to_be_one, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_no_table_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(cut_pickles_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(dictionaries_in_each_other_are_bounded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
