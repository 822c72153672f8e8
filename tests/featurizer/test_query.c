/* test_query.c: tests how sequences of chains without structures are read from FASTA files and
 * alignments, and that mistakes are refused with their place. */
#include "featurizer/query.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static fm_arena arena;

static int set_up(void **state) {
    (void)state;
    return fm_arena_init(&arena, (size_t)1 << 26, NULL) ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    return 0;
}

static fm_status parse_bytes(fm_bytes bytes, fm_query_format format, fm_part_sequence *sequence,
                             fm_error *error) {
    *error = (fm_error){.status = FM_OK};
    fm_arena_reset(&arena);
    return fm_query_parse(bytes, format, &arena, sequence, error);
}

static fm_status parse(const char *text, fm_query_format format, fm_part_sequence *sequence,
                       fm_error *error) {
    const fm_bytes bytes = {(const uint8_t *)text, strlen(text)};
    return parse_bytes(bytes, format, sequence, error);
}

static void names_tell_the_format(void **state) {
    (void)state;
    size_t bare;
    assert_int_equal(fm_query_format_of_name("T1024.fasta", &bare), FM_QUERY_FASTA);
    assert_int_equal(bare, 5);
    assert_int_equal(fm_query_format_of_name("a.b.fa.gz", &bare), FM_QUERY_FASTA);
    assert_int_equal(bare, 3);
    assert_int_equal(fm_query_format_of_name("x.A3M.zst", &bare), FM_QUERY_A3M);
    assert_int_equal(fm_query_format_of_name("x.sto", NULL), FM_QUERY_STOCKHOLM);
    assert_int_equal(fm_query_format_of_name("x.cif", NULL), FM_QUERY_NONE);
    assert_int_equal(fm_query_format_of_name(".fasta", NULL), FM_QUERY_NONE);
}

static void sequences_are_read(void **state) {
    (void)state;
    static const struct {
        const char *text;
        fm_query_format format;
        const char *sequence;
    } cases[] = {
        {">a title\nMKTa\n yx\n\n", FM_QUERY_FASTA, "MKTAYX"},
        {"; comment\r\n>a\r\nMK T*\r\n", FM_QUERY_FASTA, "MKT"},
        {"MKT", FM_QUERY_FASTA, "MKT"},
        {"\xef\xbb\xbf>a\r\nMKT\r\n", FM_QUERY_FASTA, "MKT"},
        {"\xef\xbb\xbf>q\r\nMKT\r\n>h\r\nM-T\r\n", FM_QUERY_A3M, "MKT"},
        {"\xef\xbb\xbf# STOCKHOLM 1.0\nq MKT\n//\n", FM_QUERY_STOCKHOLM, "MKT"},
        {"#4\t1\n>101\nMKTA\n>hit\nM-tgKA\n", FM_QUERY_A3M, "MKTA"},
        {">q\nMXT\n", FM_QUERY_A3M, "MXT"},
        {"\xef\xbb\xbf>q\r\nMKT\r\n>h\r\nM-aT\r\n", FM_QUERY_A3M, "MKT"},
        {"\xef\xbb\xbf#3\t1\n>101\nMKT\n", FM_QUERY_A3M, "MKT"},
        {"\xef\xbb\xbf# STOCKHOLM 1.0\r\nq MKT\r\n//\r\n", FM_QUERY_STOCKHOLM, "MKT"},
        {"\xef\xbb\xbfq MKT\n", FM_QUERY_STOCKHOLM, "MKT"},
        {"# STOCKHOLM 1.0\nq MK-\nh M-A\nq TA\nh TA\n//\n", FM_QUERY_STOCKHOLM, "MKTA"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_part_sequence sequence;
        fm_error error;
        if (parse(cases[i].text, cases[i].format, &sequence, &error)) {
            fail_msg("case %zu: %s", i, error.message);
        }
        assert_int_equal(sequence.n_res, strlen(cases[i].sequence));
        assert_memory_equal(sequence.sequence, cases[i].sequence, sequence.n_res);
    }
}

static void mistakes_have_their_places(void **state) {
    (void)state;
    static const struct {
        const char *text;
        fm_query_format format;
        fm_status status;
        uint64_t line, column;
        const char *words;
    } cases[] = {
        {">a\nMKT\nMJK\n", FM_QUERY_FASTA, FM_ERR_FORMAT, 3, 2, "found 'J'"},
        {">a\nMK1\n", FM_QUERY_FASTA, FM_ERR_FORMAT, 2, 3, "found '1'"},
        {">a\nMK-T\n", FM_QUERY_FASTA, FM_ERR_FORMAT, 2, 3, "found a gap '-'"},
        {">a\nMK\x9fT\n", FM_QUERY_FASTA, FM_ERR_FORMAT, 2, 3, "found the byte 0x9f"},
        {">a\nMK*T\n", FM_QUERY_FASTA, FM_ERR_FORMAT, 2, 4, "behind '*'"},
        {">a\nMK\n>b\nTA\n", FM_QUERY_FASTA, FM_ERR_DATA, 3, 1, "a separate file"},
        {">a\nMK:TA\n", FM_QUERY_FASTA, FM_ERR_DATA, 2, 3, "a separate file"},
        {">a\n\n", FM_QUERY_FASTA, FM_ERR_FORMAT, 3, 1, "no sequence"},
        {"", FM_QUERY_FASTA, FM_ERR_FORMAT, 0, 1, "no sequence"},
        {"#2,3\t1,1\n>101\t102\nMKTAY\n", FM_QUERY_A3M, FM_ERR_DATA, 1, 1, "a separate file"},
        {"\n\n#2,3\t1,1\n>101\t102\nMKTAY\n", FM_QUERY_A3M, FM_ERR_DATA, 3, 1, "a separate file"},
        {"#5\t2\n>101\nMKTAY\n", FM_QUERY_A3M, FM_ERR_DATA, 1, 1, "a separate file"},
        {">q\nMKB\n", FM_QUERY_A3M, FM_ERR_FORMAT, 2, 3, "found 'B'"},
        {"\xef\xbb\xbf>q\nMKB\n", FM_QUERY_A3M, FM_ERR_FORMAT, 2, 3, "found 'B'"},
        {"\xef\xbb\xbfMKJ\n", FM_QUERY_FASTA, FM_ERR_FORMAT, 1, 3, "found 'J'"},
        {"\xff\xfe>", FM_QUERY_FASTA, FM_ERR_FORMAT, 1, 1, "UTF-16"},
        {"\xff\xfe>\x01", FM_QUERY_A3M, FM_ERR_FORMAT, 1, 1, "UTF-16"},
        {">q\nMKt\n>h\nMKT\n", FM_QUERY_A3M, FM_ERR_FORMAT, 2, 3, "found 't'"},
        {">q\n\nmkt\n>h\nMKT\n", FM_QUERY_A3M, FM_ERR_FORMAT, 3, 1, "in upper case"},
        {"# m\n>ss_pred\nccc\n>q\nMK\nTa\n", FM_QUERY_A3M, FM_ERR_FORMAT, 6, 2, "found 'a'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_part_sequence sequence;
        fm_error error;
        fm_status status = parse(cases[i].text, cases[i].format, &sequence, &error);
        if (status != cases[i].status || error.column != cases[i].column ||
            (cases[i].line && error.line != cases[i].line) ||
            !strstr(error.message, cases[i].words)) {
            fail_msg("case %zu: status %d at %llu:%llu: %s", i, status,
                     (unsigned long long)error.line, (unsigned long long)error.column,
                     error.message);
        }
    }
}

static void nul_bytes_are_no_residues(void **state) {
    (void)state;
    static const struct {
        fm_bytes text;
        fm_query_format format;
        uint64_t line, column;
        const char *words;
    } cases[] = {
        {{(const uint8_t *)">q\nMK\0T\n", 8}, FM_QUERY_FASTA, 2, 3, "the byte 0x00"},
        {{(const uint8_t *)"q MK\0T\n", 7}, FM_QUERY_STOCKHOLM, 1, 5, "the byte 0x00"},
        {{(const uint8_t *)"\xef\xbb\xbf\0>q\nMK", 9}, FM_QUERY_A3M, 1, 4, "a NUL byte"},
        {{(const uint8_t *)">\0q\0\n\0", 6}, FM_QUERY_A3M, 1, 1, "UTF-16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_part_sequence sequence;
        fm_error error;
        fm_status status = parse_bytes(cases[i].text, cases[i].format, &sequence, &error);
        if (status != FM_ERR_FORMAT || error.line != cases[i].line ||
            error.column != cases[i].column || !strstr(error.message, cases[i].words)) {
            fail_msg("case %zu: status %d at %llu:%llu: %s", i, status,
                     (unsigned long long)error.line, (unsigned long long)error.column,
                     error.message);
        }
    }
}

static void a_query_has_no_atoms(void **state) {
    (void)state;
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_error error;
    assert_int_equal(parse(">a\nMKTAY\n", FM_QUERY_FASTA, &sequence, &error), FM_OK);
    assert_int_equal(fm_query_structure(&sequence, &arena, &structure, NULL), FM_OK);
    assert_int_equal(structure.n_res, 5);
    assert_null(structure.confidence);
    for (size_t i = 0; i < 5 * FM_N_ATOM37; i++)
        assert_int_equal(structure.all_atom_mask[i], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_tell_the_format),      cmocka_unit_test(sequences_are_read),
        cmocka_unit_test(mistakes_have_their_places), cmocka_unit_test(nul_bytes_are_no_residues),
        cmocka_unit_test(a_query_has_no_atoms),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
