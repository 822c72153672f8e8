/* test_alignment_index.c: the JSON reader, and the indices of alignment databases. */
#include "tests/cache/cache_case.h"

#include "cache/source/alignment_index.h"

static fm_status read_all(const char *text, size_t size, char *trace, size_t trace_bytes,
                          fm_error *error) {
    static const char letters[] = "$<>[]ksntf0";
    fm_json_reader *json = malloc(sizeof *json);
    fm_json_bytes bytes = {(const uint8_t *)text, size, 0};
    fm_json_token token;
    fm_status status;
    size_t n = 0;
    assert_non_null(json);
    fm_json_init(json, fm_json_of_bytes(&bytes));
    do {
        status = fm_json_next(json, &token, error);
        if (!status && n + 1 < trace_bytes) trace[n++] = letters[token];
    } while (!status && token != FM_JSON_END);
    trace[n] = '\0';
    free(json);
    return status;
}

static void test_json_grammar(void **state) {
    (void)state;
    static const struct {
        const char *text, *trace;
    } good[] = {
        {"{}", "<>$"},
        {" [ ] \n", "[]$"},
        {"{\"a\":[1,-0,2.5e+3,\"x\\u00e9\\ud83d\\ude00\\n\"],\"b\":{\"c\":null}}",
         "<k[nnns]k<k0>>$"},
        {"[true,false]", "[tf]$"},
        {"12", "n$"},
        {"\"\"", "s$"},
    };
    static const struct {
        const char *text;
        uint64_t line, column;
    } bad[] = {
        {"", 1, 1},          {"{", 1, 2},          {"[1,]", 1, 4},          {"[1 2]", 1, 4},
        {"{\"a\" 1}", 1, 6}, {"{\"a\":1,}", 1, 8}, {"{1:2}", 1, 2},         {"[01]", 1, 3},
        {"[1.]", 1, 4},      {"[-]", 1, 3},        {"[\"\\x\"]", 1, 4},     {"[\"\\ud800\"]", 1, 9},
        {"[\"\n\"]", 1, 3},  {"[]]", 1, 3},        {"[tru]", 1, 5},         {"{\"a\":}", 1, 6},
        {"\n\n[}", 3, 2},    {"{\"a\":1]", 1, 7},  {"[\"\\u0000\"]", 1, 9}, {"[1", 1, 3},
        {"[\"a", 1, 4},      {"{]", 1, 2},
    };
    char trace[64];
    fm_error error;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(read_all(good[i].text, strlen(good[i].text), trace, sizeof trace, &error),
                         FM_OK);
        assert_string_equal(trace, good[i].trace);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(read_all(bad[i].text, strlen(bad[i].text), trace, sizeof trace, &error),
                         FM_ERR_FORMAT);
        if (error.line != bad[i].line || error.column != bad[i].column) {
            fail_msg("%s: %d:%d %s", bad[i].text, (int)error.line, (int)error.column,
                     error.message);
        }
    }
    char deep[80];
    memset(deep, '[', sizeof deep);
    assert_int_equal(read_all(deep, sizeof deep, trace, sizeof trace, &error), FM_ERR_LIMIT);
}

/* A text longer than the reader's block, with strings longer than it keeps. */
static void test_json_blocks(void **state) {
    (void)state;
    const size_t size = 3 * FM_JSON_BLOCK_BYTES + 5;
    char *text = malloc(size), trace[16];
    fm_error error;
    assert_non_null(text);
    memset(text, 'x', size);
    memcpy(text, "[\"", 2);
    memcpy(text + size - 2, "\"]", 2);
    assert_int_equal(read_all(text, size, trace, sizeof trace, &error), FM_OK);
    assert_string_equal(trace, "[s]$");
    memset(text, ' ', size);
    text[0] = '[';
    text[size - 1] = ']';
    memcpy(text + FM_JSON_BLOCK_BYTES - 3, "\"\\u0041\"", 8);
    assert_int_equal(read_all(text, size, trace, sizeof trace, &error), FM_OK);
    assert_string_equal(trace, "[s]$");
    free(text);
}

static fm_status parse(cache_case *test, const char *text, fm_alignment_index *index) {
    fm_json_bytes bytes = {(const uint8_t *)text, strlen(text), 0};
    fm_arena_reset(&test->arena);
    return fm_alignment_index_parse(fm_json_of_bytes(&bytes), strlen(text), "own.db", &test->arena,
                                    index, &test->error);
}

static void test_index_forms(void **state) {
    (void)state;
    cache_case test = {0};
    fm_alignment_index index;
    assert_int_equal(fm_arena_init(&test.arena, (size_t)1 << 30, NULL), FM_OK);
    assert_int_equal(parse(&test,
                           "{\"1abc_A\": {\"extra\": [{}], \"files\": [[\"a.a3m\", 3, 4]], \"db\": "
                           "\"x.db\"},\n \"2abc_B\": [[\"a.a3m\", 0, 3], [\"b.hhr\", 7, 0]]}",
                           &index),
                     FM_OK);
    assert_int_equal(index.n_entry, 2);
    assert_int_equal(index.n_db, 2);
    assert_int_equal(index.n_file, 3);
    assert_string_equal(index.db[index.entry[0].db], "x.db");
    assert_string_equal(index.db[index.entry[1].db], "own.db");
    assert_int_equal(index.entry[0].file[0].offset, 3);
    assert_int_equal(index.entry[0].file[0].bytes, 4);
    assert_int_equal(index.entry[1].n_file, 2);
    assert_string_equal(index.entry[1].file[1].name, "b.hhr");
    assert_int_equal(index.entry[1].line, 2);
    const uint64_t sizes[] = {7, 7};
    assert_int_equal(fm_alignment_index_check(&index, sizes, &test.arena, &test.error), FM_OK);
    assert_null(index.entry[0].refusal);
    assert_null(index.entry[1].refusal);
    assert_int_equal(parse(&test, "[]", &index), FM_ERR_FORMAT);
    assert_int_equal(parse(&test, "{}", &index), FM_OK);
    assert_int_equal(index.n_entry, 0);
    fm_arena_fini(&test.arena);
}

/* The error in the entry "bad", beside a file x.db of 100 bytes; the entry "good" is kept. */
static void test_index_faults(void **state) {
    (void)state;
    static const struct {
        const char *entry, *fault;
    } cases[] = {
        {"{\"db\": \"../x.db\", \"files\": []}", "cannot be the name of a database"},
        {"{\"db\": \"/etc/passwd\", \"files\": []}", "cannot be the name of a database"},
        {"{\"db\": \"..\", \"files\": []}", "cannot be the name of a database"},
        {"{\"db\": \"\", \"files\": []}", "cannot be the name of a database"},
        {"{\"db\": 5, \"files\": []}", "not what it should be"},
        {"{\"files\": []}", "no \"db\""},
        {"{\"db\": \"x.db\"}", "no \"files\""},
        {"{\"db\": \"x.db\", \"files\": {}}", "not what it should be"},
        {"{\"db\": \"y.db\", \"files\": []}", "there is no database y.db"},
        {"7", "neither"},
        {"{\"db\": \"x.db\", \"files\": [7]}", "not [name"},
        {"{\"db\": \"x.db\", \"files\": [[\"a\", 1]]}", "not [name"},
        {"{\"db\": \"x.db\", \"files\": [[\"a\", 1, 2, [3]]]}", "not [name"},
        {"{\"db\": \"x.db\", \"files\": [[\"a\", -1, 2]]}", "not [name"},
        {"{\"db\": \"x.db\", \"files\": [[\"a\", 1.0, 2]]}", "not [name"},
        {"{\"db\": \"x.db\", \"files\": [[\"a\", 1, 18446744073709551616]]}", "not [name"},
        {"{\"db\": \"x.db\", \"files\": [[\"../a\", 1, 2]]}", "cannot be the name of an alignment"},
        {"{\"db\": \"x.db\", \"files\": [[\"a\", 60, 41]]}", "passes the end"},
        {"{\"db\": \"x.db\", \"files\": [[\"a\", 101, 0]]}", "passes the end"},
        {"{\"db\": \"x.db\", \"files\": [[\"a\", 18446744073709551615, 18446744073709551615]]}",
         "passes the end"},
        {"{\"db\": \"x.db\", \"files\": [[\"a\", 60, 20], [\"b\", 79, 1]]}", "overlaps"},
    };
    cache_case test = {0};
    assert_int_equal(fm_arena_init(&test.arena, (size_t)1 << 30, NULL), FM_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[400];
        fm_alignment_index index;
        snprintf(text, sizeof text,
                 "{\"good\": {\"db\": \"x.db\", \"files\": [[\"a\", 0, 50]]}, \"bad\": %s, "
                 "\"same\": {\"db\": \"x.db\", \"files\": [[\"a\", 0, 50]]}}",
                 cases[i].entry);
        assert_int_equal(parse(&test, text, &index), FM_OK);
        assert_int_equal(index.n_entry, 3);
        const uint64_t sizes[] = {100, UINT64_MAX};
        assert_int_equal(fm_alignment_index_check(&index, sizes, &test.arena, &test.error), FM_OK);
        assert_null(index.entry[0].refusal);
        assert_null(index.entry[2].refusal);
        assert_non_null(index.entry[1].refusal);
        if (!strstr(index.entry[1].refusal, cases[i].fault)) {
            fail_msg("%s: %s", cases[i].entry, index.entry[1].refusal);
        }
    }
    fm_arena_fini(&test.arena);
}

/* The same in the legacy form, which means the index's own database. */
static void test_legacy_faults(void **state) {
    (void)state;
    static const struct {
        const char *entry, *fault;
    } cases[] = {
        {"[[\"../a\", 1, 2]]", "'../a' cannot be the name of an alignment"},
        {"[[\"/etc/passwd\", 1, 2]]", "cannot be the name of an alignment"},
        {"[[\"a\", 1, 18446744073709551616]]", "whole numbers below 2^64"},
        {"[[\"a\", 18446744073709551616, 1]]", "whole numbers below 2^64"},
        {"[[\"a\", 18446744073709551615, 18446744073709551615]]", "passes the end"},
        {"[[\"a\", 60, 41]]", "passes the end of own.db (100 bytes)"},
        {"[[\"a\", 60, 20], [\"b\", 79, 1]]", "overlaps that of bad at 60"},
        {"[[\"a\", 49, 2]]", "overlaps that of good at 0"},
        {"[7]", "not [name"},
    };
    cache_case test = {0};
    assert_int_equal(fm_arena_init(&test.arena, (size_t)1 << 30, NULL), FM_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[400];
        fm_alignment_index index;
        const uint64_t size = 100;
        snprintf(text, sizeof text,
                 "{\"good\": [[\"a\", 0, 50]], \"bad\": %s, \"far\": [[\"a\", 90, 10]]}",
                 cases[i].entry);
        assert_int_equal(parse(&test, text, &index), FM_OK);
        assert_int_equal(index.n_entry, 3);
        assert_int_equal(fm_alignment_index_check(&index, &size, &test.arena, &test.error), FM_OK);
        assert_null(index.entry[2].refusal);
        assert_non_null(index.entry[1].refusal);
        if (!strstr(index.entry[1].refusal, cases[i].fault)) {
            fail_msg("%s: %s", cases[i].entry, index.entry[1].refusal);
        }
    }
    fm_arena_fini(&test.arena);
}

/* Two chains whose ranges overlap without being equal are both refused. */
static void test_overlap_of_two(void **state) {
    (void)state;
    cache_case test = {0};
    fm_alignment_index index;
    const uint64_t size = 100;
    assert_int_equal(fm_arena_init(&test.arena, (size_t)1 << 30, NULL), FM_OK);
    assert_int_equal(parse(&test,
                           "{\"a\": [[\"x\", 0, 40]], \"b\": [[\"x\", 39, 10]], "
                           "\"c\": [[\"x\", 49, 10]], \"d\": [[\"x\", 49, 10]]}",
                           &index),
                     FM_OK);
    assert_int_equal(fm_alignment_index_check(&index, &size, &test.arena, &test.error), FM_OK);
    assert_string_equal(index.entry[0].refusal,
                        "its range at 0 of own.db overlaps that of b at 39");
    assert_string_equal(index.entry[1].refusal,
                        "its range at 39 of own.db overlaps that of a at 0");
    assert_null(index.entry[2].refusal);
    assert_null(index.entry[3].refusal);
    fm_arena_fini(&test.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_grammar),  cmocka_unit_test(test_json_blocks),
        cmocka_unit_test(test_index_forms),   cmocka_unit_test(test_index_faults),
        cmocka_unit_test(test_legacy_faults), cmocka_unit_test(test_overlap_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
