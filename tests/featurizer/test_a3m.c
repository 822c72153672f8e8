/* test_a3m.c: the A3M parser: what it reads, and the exact place and message of what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "featurizer/parse/a3m.h"
#include "proto/limits.h"
#include "tests/featurizer/alignment_case.h"

static const fm_a3m_options compat = {.compat_openfold = true};

static fm_status parse(fixture *f, fm_bytes text, const fm_a3m_options *options) {
    forget(f);
    return fm_a3m_parse(text, options, &f->arena, &f->alignment, &f->error);
}

static void expect_rows(fixture *f, fm_bytes text, const fm_a3m_options *options, const char *rows,
                        const char *deletions) {
    assert_rows(f, parse(f, text, options), rows, deletions);
}

static void expect_error(fixture *f, fm_bytes text, const fm_a3m_options *options, fm_status kind,
                         uint64_t line, uint64_t column, const char *message) {
    assert_refused(f, parse(f, text, options), kind, line, column, message);
}

static void reads_match_columns_and_deletions(void **state) {
    fixture *f = *state;
    expect_rows(f, text_of(">q\nACDE\n>r\nxxACyDEzzz\n"), NULL, "ACDE/ACDE", "0000/2010");
    expect_rows(f, text_of(">q\nACDE\n>r\n--aa--\n"), NULL, "ACDE/----", "0000/0020");
    expect_rows(f, text_of(">q\nAC\nDE\n\n>r\nAx\nxC\nDE"), NULL, "ACDE/ACDE", "0000/0200");
    expect_rows(f, text_of("#4\t1\n>q\nAC\n#note\n>r\nA-\n"), NULL, "AC/A-", "00/00");
    expect_rows(f,
                text_of(">q"
                        "\n \t AC \t\n  > r\n A-\n"),
                NULL, "AC/A-", "00/00");
}

static void keeps_descriptions_and_places(void **state) {
    fixture *f = *state;
    const char *text = ">q one two \nAC\n> r\n\nAC\n>\nAC\n";
    assert_int_equal(parse(f, text_of(text), NULL), FM_OK);
    const fm_alignment_row *row = f->alignment.row;
    assert_int_equal(f->alignment.n_seq, 3);
    assert_int_equal(row[0].description_bytes, 9);
    assert_memory_equal(text + row[0].description, "q one two", 9);
    assert_int_equal(row[1].description_bytes, 2);
    assert_memory_equal(text + row[1].description, " r", 2);
    assert_int_equal(row[2].description_bytes, 0);
    assert_int_equal(row[1].line, 5);
    fm_text_place place = fm_a3m_locate(text_of(">q\nABC\n>r\nAx\n xC-\n"), NULL,
                                        &(fm_alignment_row){.sequence = 10, .line = 4}, 2);
    assert_int_equal(place.line, 5);
    assert_int_equal(place.column, 4);
    assert_int_equal(place.offset, 16);
}

static void reads_every_line_end(void **state) {
    fixture *f = *state;
    expect_rows(f, text_of(">q\r\nACDE\r\n>r\r\nAxC-E\r\n"), NULL, "ACDE/AC-E", "0000/0100");
    expect_rows(f, text_of(">q\rACDE\r>r\rAxC-E\r"), NULL, "ACDE/AC-E", "0000/0100");
    expect_rows(f, text_of("\xef\xbb\xbf>q\r\nACDE\r\n>r\r\nAxC-E\r\n"), NULL, "ACDE/AC-E",
                "0000/0100");
    assert_int_equal(f->alignment.row[0].description, 4);
    expect_rows(f, text_of(">q\r\nACDE\r\n>r\r\nAxC-E\r\n"), &compat, "ACDE/AC-E", "0000/0100");
    expect_rows(f, text_of(">q\rACDE\r>r\rAxC-E"), &compat, "ACDE/AC-E", "0000/0100");
    /* str.splitlines() ends a description at a vertical tab and at U+2028 */
    expect_rows(f,
                text_of(">q\vAC\x1c"
                        "DE\n>r\xe2\x80\xa8"
                        "AC\xc2\x85"
                        "DE\xe3\x80\x80\n"),
                &compat, "ACDE/ACDE", "0000/0000");
}

static void reads_files_of_other_programs(void **state) {
    fixture *f = *state;
    expect_rows(f, text_of("; made by hand\n>q\nA.C\n>r\n.A..C.\n"), NULL, "AC/AC", "00/00");
    expect_rows(f, text_of(">ss_pred PSIPRED\nHE\n>q\nAC\n>ss_conf\n99\n>r\nA-\n>ss_dssp\nCC"),
                NULL, "AC/A-", "00/00");
    expect_rows(f, text_of(">ss_predator\nAC\n>r\nA-\n"), NULL, "AC/A-", "00/00");
    expect_rows(f, text_of(">q\nA.C\n>r\n.-.\n"), &compat, "A.C/.-.", "000/000");
    expect_rows(f, text_of(">\n\n>r"), &compat, "/", "/");
}

static void reads_nul_ended_alignments(void **state) {
    fixture *f = *state;
    static const char bytes[] = ">101\nAC\n>r\nA-\n\0>102\nACD\n\0";
    fm_bytes text = {(const uint8_t *)bytes, sizeof bytes - 1};
    fm_a3m_options second = {0};
    size_t next;
    assert_true(fm_a3m_next(text, false, 0, &second.begin));
    assert_int_equal(second.begin, 15);
    assert_false(fm_a3m_next(text, false, second.begin, &next));
    assert_false(fm_a3m_next(text, true, 0, &next));
    expect_rows(f, text, NULL, "AC/A-", "00/00");
    expect_rows(f, text, &second, "ACD", "000");
    assert_int_equal(f->alignment.row[0].line, 6);
    expect_error(f, text, &compat, FM_ERR_FORMAT, 4, 1,
                 "row 1 has 11 match columns, the query has 2");
    static const char inside[] = ">q\nAC\n>r\nA\0-\n";
    expect_error(f, (fm_bytes){(const uint8_t *)inside, sizeof inside - 1}, NULL, FM_ERR_FORMAT, 4,
                 2,
                 "found a NUL byte inside a line, expected it only at the start of a line, where "
                 "it ends an alignment");
    static const char at_end[] = ">q\nAC\0";
    expect_rows(f, (fm_bytes){(const uint8_t *)at_end, sizeof at_end - 1}, NULL, "AC", "00");
}

static void refuses_with_place_and_reason(void **state) {
    fixture *f = *state;
    expect_error(f, text_of(">q\nABC\n>r\nAB\n"), NULL, FM_ERR_FORMAT, 4, 1,
                 "row 1 has 2 match columns, the query has 3");
    expect_error(f, text_of(">q\nABC\n>r\nAB"), NULL, FM_ERR_FORMAT, 4, 1,
                 "row 1 has 2 match columns, the query has 3");
    expect_error(f, text_of(">q\nAB\n>r\nABCD\n>s\nAB\n"), NULL, FM_ERR_FORMAT, 4, 1,
                 "row 1 has 4 match columns, the query has 2");
    expect_error(f, text_of(">q\nAB\n>r\n>s\nA\n"), NULL, FM_ERR_FORMAT, 3, 1,
                 "row 1 has 0 match columns, the query has 2");
    expect_error(f, text_of(">q\nAB\n>r\nAB\n>s\n\nA\n"), NULL, FM_ERR_FORMAT, 7, 1,
                 "row 2 has 1 match column, the query has 2");
    expect_error(
        f, text_of("\xef\xbb\xbf>q\nABC\n"), &compat, FM_ERR_FORMAT, 1, 1,
        "found a byte order mark, which OpenFold does not skip, before the first '>' line");
    expect_error(f, text_of("\xef\xbb\xbf MKT\n"), NULL, FM_ERR_FORMAT, 1, 2,
                 "found sequence data before the first '>' line");
    expect_error(f, text_of("\n  AB\n>q\nAB\n"), NULL, FM_ERR_FORMAT, 2, 3,
                 "found sequence data before the first '>' line");
    expect_error(f, text_of("; note\n>q\nAB\n"), &compat, FM_ERR_FORMAT, 1, 1,
                 "found sequence data before the first '>' line");
    expect_error(f, text_of(">q \xc3\xa9\nAB\n>r\nA\xe9\n"), &compat, FM_ERR_FORMAT, 4, 2,
                 "byte 0xe9 is not UTF-8 text");
    expect_error(f, text_of(""), NULL, FM_ERR_FORMAT, 1, 1,
                 "the alignment has no sequences, expected at least one");
    expect_error(f, text_of("# only a note\n\n"), NULL, FM_ERR_FORMAT, 1, 1,
                 "the alignment has no sequences, expected at least one");
    expect_error(f, text_of(">ss_pred\nHH\n"), NULL, FM_ERR_FORMAT, 1, 1,
                 "the alignment has no sequences, expected at least one");
    expect_error(f, text_of(">q\n\n>r\nAC\n"), NULL, FM_ERR_FORMAT, 1, 1,
                 "the query (row 0) has no residues");
    static const char nul[] = "\0\0\0\0";
    expect_error(f, (fm_bytes){(const uint8_t *)nul, 4}, NULL, FM_ERR_FORMAT, 1, 1,
                 "the alignment has no sequences, expected at least one");
}

/* A '*' behind the last residue of the query is no column, of it or of the other rows. */
static void a_stop_behind_the_query_is_no_column(void **state) {
    fixture *f = *state;
    assert_int_equal(parse(f, text_of(">q\nMK\nT*\n>r\nMKg-*\n>s\n-KT-\n"), NULL), FM_OK);
    assert_int_equal(f->alignment.n_col, 3);
    assert_int_equal(f->alignment.n_seq, 3);
    assert_memory_equal(f->alignment.letters, "MKTMK--KT", 9);
    assert_int_equal(f->alignment.deletion[5], 1);
    expect_error(f, text_of(">q\nMKT*\n>r\nMKTA\n"), NULL, FM_ERR_FORMAT, 4, 1,
                 "row 1 has 4 match columns, the query has 3");
    expect_error(f, text_of(">q\nMKT*\n>r\nMKT\n"), NULL, FM_ERR_FORMAT, 4, 1,
                 "row 1 has 3 match columns, the query has 3 and a '*' behind them");
    expect_error(f, text_of(">q\nMKT\n>r\nMKT*\n"), NULL, FM_ERR_FORMAT, 4, 1,
                 "row 1 has 4 match columns, the query has 3");
    expect_error(f, text_of(">q\n*\n"), NULL, FM_ERR_FORMAT, 2, 1,
                 "the query (row 0) has no residues");
    assert_int_equal(parse(f, text_of(">q\nMKT*\n"), &compat), FM_OK);
    assert_int_equal(f->alignment.n_col, 4);
}

/* Appends a text and returns its end. */
static char *put(char *to, const char *text) {
    size_t n = strlen(text);
    memcpy(to, text, n);
    return to + n;
}

/* Writes a query of `n_col` columns, then a row with `deletions` letters before its last column. */
static fm_bytes long_text(char *out, size_t n_col, size_t deletions) {
    char *p = out;
    p = put(p, ">q\n");
    p = (char *)memset(p, 'A', n_col) + n_col;
    p = put(p, "\n>r\n");
    p = (char *)memset(p, 'C', n_col - 1) + n_col - 1;
    p = (char *)memset(p, 'g', deletions) + deletions;
    p = put(p, "D\n");
    return (fm_bytes){(const uint8_t *)out, (size_t)(p - out)};
}

static void holds_its_limits(void **state) {
    fixture *f = *state;
    char *text = malloc(1 << 20);
    assert_non_null(text);
    assert_int_equal(parse(f, long_text(text, 100, FM_LIMIT_DELETION), NULL), FM_OK);
    assert_int_equal(f->alignment.deletion[199], 65535);
    expect_error(f, long_text(text, 100, FM_LIMIT_DELETION + 1), NULL, FM_ERR_LIMIT, 4, 1,
                 "row 1 has 65536 deletions before one column, the limit is 65535");
    assert_int_equal(parse(f, long_text(text, FM_LIMIT_N_RES, 0), NULL), FM_OK);
    expect_error(f, long_text(text, FM_LIMIT_N_RES + 1, 0), NULL, FM_ERR_LIMIT, 2, 1,
                 "the query has 65536 match columns, the limit is 65535");
    fm_arena small;
    assert_int_equal(fm_arena_init(&small, 4096, NULL), FM_OK);
    assert_int_equal(fm_a3m_parse(long_text(text, 2000, 0), NULL, &small, &f->alignment, &f->error),
                     FM_ERR_LIMIT);
    assert_int_equal(small.used, 0);
    fm_arena_fini(&small);
    free(text);
}

static void appends_to_one_alignment(void **state) {
    fixture *f = *state;
    fm_arena_reset(&f->arena);
    fm_alignment alignment;
    assert_int_equal(fm_alignment_init(&alignment, &f->arena, 2, 3, NULL), FM_OK);
    assert_int_equal(fm_a3m_append(text_of(">q\nAC\n>r\nAx-\n"), NULL, &alignment, NULL), FM_OK);
    assert_int_equal(fm_a3m_append(text_of(">q\nyDE\n"), NULL, &alignment, NULL), FM_OK);
    assert_int_equal(alignment.n_seq, 3);
    assert_memory_equal(alignment.letters, "ACA-DE", 6);
    assert_int_equal(alignment.deletion[3], 1);
    assert_int_equal(alignment.deletion[4], 1);
    assert_int_equal(fm_a3m_append(text_of(">q\nAC\n"), NULL, &alignment, &f->error), FM_ERR_LIMIT);
    assert_string_equal(f->error.message, "the alignment has more rows than the 3 that fit");
    alignment.n_seq = 0;
    assert_int_equal(fm_a3m_append(text_of(">q\nABC\n"), NULL, &alignment, &f->error),
                     FM_ERR_FORMAT);
    assert_string_equal(
        f->error.message,
        "row 0 has 3 match columns, the query has 2; the alignment is of another sequence");
}

/* Line ends without a newline must not make a text of many lines slow. */
static void reads_many_short_lines(void **state) {
    fixture *f = *state;
    enum { N = 1 << 20 };
    char *text = malloc(2 * N + 3);
    assert_non_null(text);
    memcpy(text, ">q\r", 3);
    for (size_t i = 0; i < N; i++)
        memcpy(text + 3 + 2 * i, i < 1000 ? "A\r" : "a\r", 2);
    fm_bytes bytes = {(const uint8_t *)text, 2 * (size_t)N + 3};
    assert_int_equal(parse(f, bytes, NULL), FM_OK);
    assert_int_equal(f->alignment.n_col, 1000);
    assert_int_equal(parse(f, bytes, &compat), FM_OK);
    free(text);
}

/* Compares the loops on rows of every length around a chunk, with runs of every kind. */
static void loops_agree(void **state) {
    fixture *f = *state;
    uint32_t random = 1;
    char text[1024];
    for (int round = 0; round < 4000; round++) {
        static const char letters[] = "ACDEabcd--.WYzAAAAAAAAA[`{@Z\x80\xff";
        size_t n = 0;
        n += (size_t)(put(text, ">q\n") - text);
        bool same_kind = false;
        for (int i = 0; i < round % 230; i++) {
            random = random * 1664525 + 1013904223;
            same_kind = random >> 28 > 2 && i;
            text[n] = same_kind ? text[n - 1] : letters[(random >> 16) % (sizeof letters - 1)];
            n++;
        }
        fm_bytes bytes = {(const uint8_t *)text, n};
        fm_alignment expected, other;
        fm_a3m_options options = {.kernel = &fm_match_scalar, .compat_openfold = round % 2};
        fm_arena_reset(&f->arena);
        fm_status status = fm_a3m_parse(bytes, &options, &f->arena, &expected, NULL);
        for (size_t i = 1; fm_match_kernels[i]; i++) {
            options.kernel = fm_match_kernels[i];
            if (!fm_match_runs(options.kernel)) continue;
            assert_int_equal(fm_a3m_parse(bytes, &options, &f->arena, &other, NULL), status);
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
        cmocka_unit_test_setup_teardown(keeps_descriptions_and_places, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reads_every_line_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reads_files_of_other_programs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reads_nul_ended_alignments, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_with_place_and_reason, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stop_behind_the_query_is_no_column, set_up, tear_down),
        cmocka_unit_test_setup_teardown(holds_its_limits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(appends_to_one_alignment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reads_many_short_lines, set_up, tear_down),
        cmocka_unit_test_setup_teardown(loops_agree, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
