/* test_stockholm.c: the Stockholm parser: what it reads, and the exact place and message of what it
 * refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "featurizer/parse/stockholm.h"
#include "proto/limits.h"
#include "tests/featurizer/alignment_case.h"

static const fm_stockholm_options compat = {.compat_openfold = true};

static fm_status parse(fixture *f, fm_bytes text, const fm_stockholm_options *options) {
    forget(f);
    return fm_stockholm_parse(text, options, &f->arena, &f->alignment, &f->error);
}

static void expect_rows(fixture *f, const char *text, const fm_stockholm_options *options,
                        const char *rows, const char *deletions) {
    assert_rows(f, parse(f, text_of(text), options), rows, deletions);
}

static void expect_error(fixture *f, const char *text, const fm_stockholm_options *options,
                         fm_status kind, uint64_t line, uint64_t column, const char *message) {
    assert_refused(f, parse(f, text_of(text), options), kind, line, column, message);
}

#define HEAD "# STOCKHOLM 1.0\n"

static void reads_match_columns_and_deletions(void **state) {
    fixture *f = *state;
    expect_rows(f, HEAD "q AC--DE\nr ACxyDE\ns A--y-E\nt -CxyD-\n//\n", NULL, "ACDE/ACDE/A--E/-CD-",
                "0000/0020/0010/0020");
    expect_rows(f, HEAD "q --AC--\nr xyACzz\n//\n", NULL, "AC/AC", "00/20");
    expect_rows(f, "q AC\n", NULL, "AC", "00");
    expect_rows(
        f, HEAD "#=GS r DE words\n\nq\tA-C \n r   AxC\n#=GR r PP 999\n#=GC RF x.x\n//\n\n# end\n",
        NULL, "AC/AC", "00/01");
}

static void joins_blocks(void **state) {
    fixture *f = *state;
    expect_rows(f, "q AC-\nr A-x\n\nq -DE\nr yDE\n//\n", NULL, "ACDE/A-DE", "0000/0020");
    expect_rows(f, "q AC\nr A-\ns -C\n\ns D-\nr -E\nq DE\n", NULL, "ACDE/A--E/-CD-",
                "0000/0000/0000");
    expect_rows(f, "q AC\n\nq DE\nr A-\nr -E\n", NULL, "ACDE/A--E", "0000/0000");
    assert_int_equal(f->alignment.row[1].line, 4);
    assert_int_equal(f->alignment.row[1].description_bytes, 1);
    expect_rows(f, "\xef\xbb\xbf# STOCKHOLM 1.0\nq ACDE\nr A--E\n//\n", NULL, "ACDE/A--E",
                "0000/0000");
    expect_rows(f, "q AC\r\nr A-\r\n\r\nq DE\r\nr -E\r\n//\r\n", NULL, "ACDE/A--E", "0000/0000");
}

static void gaps_and_case_by_mode(void **state) {
    fixture *f = *state;
    expect_rows(f, "q A.C-E\nr a.cxe\ns .yC.E\n", NULL, "ACE/ACE/-CE", "000/001/010");
    expect_rows(f, "q A.C-E\nr a.cxe\ns .yC.E\n", &compat, "A.CE/a.ce/.yCE", "0000/0001/0001");
    expect_rows(f, "q AC\nr A-\n//\nq DE\nr -E\n//\n", &compat, "ACDE/A--E", "0000/0000");
    /* rows that are shorter by gap columns only, and longer ones, behave as with the reference's
     * zip() and indexing */
    expect_rows(f, "q AC--\nr AC\ns ACxyzzz\n", &compat, "AC/AC/AC", "00/00/00");
    expect_rows(f,
                "q\xc2\xa0"
                "AC\n",
                &compat, "AC", "00");
}

static void refuses_with_place_and_reason(void **state) {
    fixture *f = *state;
    expect_error(f, HEAD "q ABC\nr AB\n//\n", NULL, FM_ERR_FORMAT, 3, 1,
                 "row 1 has 2 columns, the query has 3");
    expect_error(f, HEAD "q ABC\nr AB\n//\n", &compat, FM_ERR_FORMAT, 3, 1,
                 "row 1 has 2 columns, the query has 3");
    expect_error(f, HEAD "q A\nr A\nr A\n//\n", NULL, FM_ERR_FORMAT, 3, 1,
                 "row 1 has 2 columns, the query has 1");
    expect_error(f, HEAD "q ABC\nr\n", NULL, FM_ERR_FORMAT, 3, 2,
                 "found a name without a sequence, expected a name and a sequence");
    expect_error(f, HEAD "q ABC\n  r  AB C\n", NULL, FM_ERR_FORMAT, 3, 8,
                 "found a blank inside the sequence, expected a name and a sequence");
    expect_error(f, "", NULL, FM_ERR_FORMAT, 1, 1,
                 "the alignment has no sequences, expected at least one");
    expect_error(f, HEAD "//\n", NULL, FM_ERR_FORMAT, 1, 1,
                 "the alignment has no sequences, expected at least one");
    expect_error(f, HEAD "q .-\nr AC\n//\n", NULL, FM_ERR_FORMAT, 2, 1,
                 "the query (row 0) has no residues");
    expect_error(f, HEAD "q AC\n//\n" HEAD "q AC\n//\n", NULL, FM_ERR_UNSUPPORTED, 5, 1,
                 "found a second alignment after \"//\", expected one alignment per file");
}

static void refuses_what_was_cut_off(void **state) {
    static const char reason[] =
        "found the end of the file, expected \"//\", which ends an alignment; the file was cut off";
    static const char whole[] = HEAD "q AC-\nr A-x\n\nq -DE\nr yDE\n//\n";
    fixture *f = *state;
    char text[sizeof whole];
    expect_error(f, HEAD "q AC\nr AC\n", NULL, FM_ERR_FORMAT, 4, 1, reason);
    expect_error(f, HEAD "q AC\nr AC\n\nq AC\nr AC", NULL, FM_ERR_FORMAT, 6, 5, reason);
    expect_rows(f, HEAD "q AC\nr AC\n", &compat, "AC/AC", "00/00");
    expect_rows(f, whole, NULL, "ACDE/A-DE", "0000/0020");
    for (size_t n = sizeof HEAD - 1; n < sizeof whole - 2; n++) {
        memcpy(text, whole, n);
        text[n] = '\0';
        assert_int_equal(parse(f, text_of(text), NULL), FM_ERR_FORMAT);
    }
}

/* Appends a text and returns its end. */
static char *put(char *to, const char *text) {
    size_t n = strlen(text);
    memcpy(to, text, n);
    return to + n;
}

static void holds_its_limits(void **state) {
    fixture *f = *state;
    enum { N = 70000 };
    char *text = malloc(4 * N), *p = text;
    assert_non_null(text);
    p = put(p, "q A");
    p = (char *)memset(p, '-', FM_LIMIT_DELETION + 1) + FM_LIMIT_DELETION + 1;
    p = put(p, "C\nr A");
    p = (char *)memset(p, 'g', FM_LIMIT_DELETION + 1) + FM_LIMIT_DELETION + 1;
    *put(p, "C\n") = 0;
    expect_error(f, text, NULL, FM_ERR_LIMIT, 2, 1,
                 "row 1 has 65536 deletions before one column, the limit is 65535");
    p[-1] = '-';
    assert_int_equal(parse(f, text_of(text), NULL), FM_OK);
    assert_int_equal(f->alignment.deletion[3], 65535);
    memcpy(text, "q ", 2);
    memset(text + 2, 'A', FM_LIMIT_N_RES + 1);
    text[FM_LIMIT_N_RES + 3] = 0;
    expect_error(f, text, NULL, FM_ERR_LIMIT, 1, 1,
                 "the query has 65536 match columns, the limit is 65535");
    fm_arena small;
    assert_int_equal(fm_arena_init(&small, 4096, NULL), FM_OK);
    text[2000] = 0;
    assert_int_equal(fm_stockholm_parse(text_of(text), NULL, &small, &f->alignment, &f->error),
                     FM_ERR_LIMIT);
    assert_int_equal(small.used, 0);
    fm_arena_fini(&small);
    free(text);
}

static void finds_the_place_of_a_column(void **state) {
    (void)state;
    fm_bytes text = text_of("q A-C\nr AxC\n\nq -DE\nr yDE\n");
    const fm_alignment_row row = {.description = 6, .description_bytes = 1, .line = 2};
    fm_text_place place = fm_stockholm_locate(text, NULL, &row, 3);
    assert_int_equal(place.line, 5);
    assert_int_equal(place.column, 5);
    assert_int_equal(place.offset, 23);
}

/* Compares the loops on rows cut into blocks of every length around a chunk. */
static void loops_agree(void **state) {
    fixture *f = *state;
    uint32_t random = 7;
    char text[4096], rows[3][256];
    for (int round = 0; round < 3000; round++) {
        static const char letters[] = "ACDEabyz----..--WXYZ@[`{";
        size_t length = (size_t)(round % 200) + 1, n = 0;
        for (size_t row = 0; row < 3; row++) {
            for (size_t i = 0; i < length; i++) {
                random = random * 1664525 + 1013904223;
                bool same_kind = random >> 28 > 3 && i;
                rows[row][i] =
                    same_kind ? rows[row][i - 1] : letters[(random >> 16) % (sizeof letters - 1)];
            }
        }
        for (size_t at = 0, piece; at < length; at += piece) {
            random = random * 1664525 + 1013904223;
            piece = (random >> 20) % 90 + 1;
            if (piece > length - at) piece = length - at;
            for (size_t row = 0; row < 3; row++) {
                n += (size_t)snprintf(text + n, sizeof text - n, "%c %.*s\n", "qrs"[row],
                                      (int)piece, rows[row] + at);
            }
        }
        fm_alignment expected, other;
        fm_bytes bytes = {(const uint8_t *)text, n};
        fm_stockholm_options options = {round % 2, &fm_match_scalar};
        fm_arena_reset(&f->arena);
        fm_status status = fm_stockholm_parse(bytes, &options, &f->arena, &expected, NULL);
        for (size_t i = 1; fm_match_kernels[i]; i++) {
            options.kernel = fm_match_kernels[i];
            if (!fm_match_runs(options.kernel)) continue;
            assert_int_equal(fm_stockholm_parse(bytes, &options, &f->arena, &other, NULL), status);
            if (status) continue;
            size_t cells = (size_t)expected.n_seq * expected.n_col;
            assert_int_equal(cells, (size_t)other.n_seq * other.n_col);
            assert_memory_equal(other.letters, expected.letters, cells);
            assert_memory_equal(other.deletion, expected.deletion, cells * 2);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reads_match_columns_and_deletions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(joins_blocks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(gaps_and_case_by_mode, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_what_was_cut_off, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_with_place_and_reason, set_up, tear_down),
        cmocka_unit_test_setup_teardown(holds_its_limits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(finds_the_place_of_a_column, set_up, tear_down),
        cmocka_unit_test_setup_teardown(loops_agree, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
