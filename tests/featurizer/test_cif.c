/* test_cif.c: tokens and rows of CIF text, and the places of what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "featurizer/parse/cif.h"

static fm_bytes bytes_of(const char *text) {
    return (fm_bytes){(const uint8_t *)text, strlen(text)};
}

static void open_cif(fm_cif *cif, const char *text, bool compat) {
    assert_int_equal(fm_cif_init(cif, bytes_of(text), compat, NULL), FM_OK);
}

/* Returns all tokens of a text as "kind:text|kind:text|", with one letter per kind. */
static const char *tokens_of(const char *text, bool compat) {
    static char out[1024];
    static const char kinds[] = {[FM_CIF_DATA] = 'd',
                                 [FM_CIF_SAVE] = 's',
                                 [FM_CIF_LOOP] = 'l',
                                 [FM_CIF_NAME] = 'n',
                                 [FM_CIF_VALUE] = 'v'};
    fm_cif cif;
    size_t at = 0;
    open_cif(&cif, text, compat);
    out[0] = '\0';
    for (;;) {
        fm_cif_kind kind;
        fm_cif_view view;
        assert_int_equal(fm_cif_next(&cif, &kind, &view, NULL), FM_OK);
        if (kind == FM_CIF_END) return out;
        at += (size_t)snprintf(out + at, sizeof out - at, "%c:%.*s|", kinds[kind],
                               (int)fm_cif_size(view), (const char *)fm_cif_text(&cif, view));
        assert_true(at < sizeof out);
    }
}

static void tokens_have_their_kinds(void **state) {
    (void)state;
    assert_string_equal(tokens_of("data_x _a 1 loop_ _b _c 2 save_f save_", false),
                        "d:data_x|n:_a|v:1|l:loop_|n:_b|n:_c|v:2|s:save_f|s:save_|");
    assert_string_equal(tokens_of("DATA_X LOOP_ Save_f loop_x", false),
                        "d:DATA_X|l:LOOP_|s:Save_f|v:loop_x|");
    assert_string_equal(tokens_of("  \t\r\n", false), "");
    assert_string_equal(tokens_of("\xef\xbb\xbf"
                                  "data_x",
                                  false),
                        "d:data_x|");
}

static void quotes_close_before_white_space_only(void **state) {
    (void)state;
    assert_string_equal(tokens_of("'a b' \"c'd\" 'it's' O5' 'x'\n'' '_n' 'loop_'", false),
                        "v:a b|v:c'd|v:it's|v:O5'|v:x|v:|v:_n|v:loop_|");
    /* In the reference, quotes do not protect names. */
    assert_string_equal(tokens_of("'_n' 'loop_' data_y", true), "n:_n|l:loop_|v:data_y|");
}

static void comments_start_where_a_token_could(void **state) {
    (void)state;
    assert_string_equal(tokens_of("# all\ndata_x#y # rest 'open\n1 #\r2 '#'\n#", false),
                        "d:data_x#y|v:1|v:2|v:#|");
}

static void text_blocks_run_to_the_closing_line(void **state) {
    (void)state;
    assert_string_equal(tokens_of("_a\n;one\n two; \n; _b\n;\n;\n;x\r\n;", false),
                        "n:_a|v:one\n two;|n:_b|v:|v:x|");
    assert_string_equal(tokens_of("1 ;2\n", false), "v:1|v:;2|");
}

typedef struct refusal {
    const char *text;
    uint64_t line, column, offset;
    const char *message;
} refusal;

static void refusals_name_their_place(void **state) {
    (void)state;
    static const refusal refusals[] = {
        {"data_x\n_a 'open\n", 2, 4, 10, "the quote ' is not closed on its line"},
        {"data_x\r\n_a \"open' ", 2, 4, 11, "the quote \" is not closed on its line"},
        {"_a\n;text\n", 2, 1, 3, "the text block has no closing ';' at the start of a line"},
        {"\r\r;text\n;x", 4, 2, 9, "expected white space after the ';' that closes a text block"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        fm_cif cif;
        fm_cif_kind kind = FM_CIF_VALUE;
        fm_cif_view view;
        fm_error error;
        fm_status status = FM_OK;
        open_cif(&cif, refusals[i].text, false);
        while (!status && kind != FM_CIF_END)
            status = fm_cif_next(&cif, &kind, &view, &error);
        assert_int_equal(status, FM_ERR_FORMAT);
        assert_string_equal(error.message, refusals[i].message);
        assert_int_equal(error.line, refusals[i].line);
        assert_int_equal(error.column, refusals[i].column);
        assert_int_equal(error.offset, refusals[i].offset);
    }
}

static void bytes_that_are_no_text_are_refused(void **state) {
    (void)state;
    fm_cif cif;
    fm_error error;
    static const char nul[] = "data_x\n_a.long.name b\0c";
    fm_bytes bytes = {(const uint8_t *)nul, sizeof nul - 1};
    assert_int_equal(fm_cif_init(&cif, bytes, false, &error), FM_ERR_FORMAT);
    assert_string_equal(error.message, "found byte 0x00, expected the text of a CIF file");
    assert_int_equal(error.line, 2);
    assert_int_equal(error.column, 15);
    assert_int_equal(fm_cif_init(&cif, bytes, true, &error), FM_OK);
    assert_false(cif.is_plain);
    assert_int_equal(fm_cif_init(&cif, bytes_of(""), false, &error), FM_ERR_FORMAT);
    assert_string_equal(error.message, "the file is empty");
    assert_int_equal(error.line, 1);
    /* Latin-1 passes by default; the reference requires UTF-8. */
    assert_int_equal(fm_cif_init(&cif, bytes_of("data_x # \xb4\n"), false, &error), FM_OK);
    assert_int_equal(fm_cif_init(&cif, bytes_of("data_x # \xb4\n"), true, &error), FM_ERR_FORMAT);
    assert_int_equal(error.column, 10);
    static const char *const bad[] = {
        "\xc0\x80",         "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
        "\xf0\x80\x80\x80", "\xff",         "\xc3",         "\xe2\x82"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(fm_cif_init(&cif, bytes_of(bad[i]), true, &error), FM_ERR_FORMAT);
    static const char good[] = "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf";
    assert_int_equal(fm_cif_init(&cif, bytes_of(good), true, &error), FM_OK);
}

static void files_past_the_limit_are_refused(void **state) {
    (void)state;
    fm_cif cif;
    fm_error error;
    fm_bytes bytes = {(const uint8_t *)"x", FM_LIMIT_INPUT_BYTES + 1};
    assert_int_equal(fm_cif_init(&cif, bytes, false, &error), FM_ERR_LIMIT);
    assert_string_equal(error.message, "the file has 2147483649 bytes, the limit is 2147483648");
}

/* Reads rows of n columns and compares them, joined by spaces, with the expected ones. */
static void check_rows(const char *text, uint32_t n_column, size_t n_row, const char *const *rows,
                       uint32_t last_n) {
    static fm_cif_row row;
    fm_cif cif;
    uint32_t n;
    open_cif(&cif, text, false);
    for (size_t i = 0; i < n_row; i++) {
        char joined[256] = "";
        size_t at = 0;
        assert_int_equal(fm_cif_next_row(&cif, n_column, &row, &n, NULL), FM_OK);
        assert_int_equal(n, n_column);
        for (uint32_t k = 0; k < n; k++) {
            fm_cif_view view = fm_cif_row_at(&row, k);
            at += (size_t)snprintf(joined + at, sizeof joined - at, "%s%.*s", k ? " " : "",
                                   (int)fm_cif_size(view), (const char *)fm_cif_text(&cif, view));
        }
        assert_string_equal(joined, rows[i]);
    }
    assert_int_equal(fm_cif_next_row(&cif, n_column, &row, &n, NULL), FM_OK);
    assert_int_equal(n, last_n);
}

static void rows_end_where_the_loop_does(void **state) {
    (void)state;
    static const char *const two[] = {"1 2", "3 4"};
    check_rows("1 2\n3 4\n", 2, 2, two, 0);
    check_rows("1\n2 3\n\n4 # end\nloop_\n", 2, 2, two, 0);
    check_rows("1 2 3 4 _name x", 2, 2, two, 0);
    check_rows("1 2 3 4 5 loop_", 2, 2, two, 1);
    check_rows("1 2 3 4 5 data_b", 2, 2, two, 1);
    static const char *const names[] = {"1 _2", "3 _4"};
    check_rows("1 _2 3 _4\n_name", 2, 2, names, 0);
}

static void long_rows_are_read_fast_and_right(void **state) {
    (void)state;
    char text[4096] = "";
    char line[200];
    const char *rows[20];
    /* One token crosses a 64-byte step, and too few bytes follow the last rows. */
    snprintf(line, sizeof line, "ATOM 1 %060d x", 7);
    for (size_t i = 0; i < 20; i++) {
        strcat(text, line);
        strcat(text, i % 3 ? "\n" : "   \t \r\n");
        rows[i] = line;
    }
    check_rows(text, 4, 20, rows, 0);
    strcat(text, "ATOM '1' ");
    check_rows(text, 4, 20, rows, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_have_their_kinds),
        cmocka_unit_test(quotes_close_before_white_space_only),
        cmocka_unit_test(comments_start_where_a_token_could),
        cmocka_unit_test(text_blocks_run_to_the_closing_line),
        cmocka_unit_test(refusals_name_their_place),
        cmocka_unit_test(bytes_that_are_no_text_are_refused),
        cmocka_unit_test(files_past_the_limit_are_refused),
        cmocka_unit_test(rows_end_where_the_loop_does),
        cmocka_unit_test(long_rows_are_read_fast_and_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
