/* test_msa.c: from a chain's alignment files to its MSA features. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "featurizer/msa.h"
#include "proto/base/compress.h"
#include "proto/base/file.h"
#include "proto/chem/residue.h"
#include "proto/limits.h"
#include "tests/testing/testing.h"

enum { ARENA_BYTES = 64 << 20 };

typedef struct fixture {
    fm_arena arena;
    fm_part_msa part;
    fm_msa_report report;
    fm_error error;
} fixture;

static int set_up(void **state) {
    fixture *f = calloc(1, sizeof *f);
    if (!f || fm_arena_init(&f->arena, ARENA_BYTES, NULL)) return -1;
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    fm_arena_fini(&f->arena);
    free(f);
    return 0;
}

static fm_bytes text_of(const char *text) {
    return (fm_bytes){(const uint8_t *)text, strlen(text)};
}

static fm_msa_input file(const char *name, const char *text) {
    return (fm_msa_input){.name = name, .content = text_of(text)};
}

static const fm_msa_options compat = {.compat_openfold = true};

static fm_status build(fixture *f, const fm_msa_input *inputs, size_t n, const char *query,
                       const fm_msa_options *options) {
    fm_arena_reset(&f->arena);
    memset(&f->error, 0, sizeof f->error);
    return fm_msa_build(inputs, n, text_of(query), options, &f->arena, &f->part, &f->report,
                        &f->error);
}

/* Asserts rows as letters ("ACD/A-D"), sources ("uniref90_hits.a3m:2 ...") and species
 * ("HUMAN//"). */
static void expect_part(fixture *f, const char *rows, const char *sources, const char *species) {
    char text[512];
    size_t n = 0, at = 0;
    for (uint32_t i = 0; i < f->part.n_seq; i++) {
        for (uint32_t j = 0; j < f->part.n_res; j++)
            text[n++] =
                fm_restype_letters[fm_restype_from_hhblits[f->part.msa[i * f->part.n_res + j]]];
        text[n++] = '/';
    }
    text[n - 1] = 0;
    assert_string_equal(text, rows);
    n = 0;
    for (uint32_t i = 0; i < f->part.n_source; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s:%u", i ? " " : "",
                              f->part.source[i].name, f->part.source[i].n_row);
    }
    assert_string_equal(text, sources);
    n = 0;
    for (uint32_t i = 0; i < f->part.n_seq; i++) {
        for (; at < f->part.species_end[i]; at++)
            text[n++] = f->part.species[at];
        text[n++] = '/';
    }
    text[n - 1] = 0;
    assert_string_equal(text, species);
}

static void expect_error(fixture *f, const fm_msa_input *inputs, size_t n, const char *query,
                         const fm_msa_options *options, const char *formatted) {
    char text[1024];
    assert_int_not_equal(build(f, inputs, n, query, options), FM_OK);
    fm_error_format(&f->error, text, sizeof text);
    assert_string_equal(text, formatted);
    assert_int_equal(f->arena.used, 0);
}

static void knows_alignments_by_name(void **state) {
    (void)state;
    assert_int_equal(fm_msa_format_of_name("bfd_uniclust_hits.a3m"), FM_MSA_A3M);
    assert_int_equal(fm_msa_format_of_name("bfd_uniclust_hits.a3m.gz"), FM_MSA_A3M);
    assert_int_equal(fm_msa_format_of_name("uniref90_hits.sto"), FM_MSA_STOCKHOLM);
    assert_int_equal(fm_msa_format_of_name("uniprot.sto"), FM_MSA_STOCKHOLM);
    assert_int_equal(fm_msa_format_of_name("uniprot_hits.sto"), FM_MSA_NONE);
    assert_int_equal(fm_msa_format_of_name("hmm_output.sto.gz"), FM_MSA_NONE);
    assert_int_equal(fm_msa_format_of_name("pdb70_hits.hhr"), FM_MSA_NONE);
    assert_int_equal(fm_msa_format_of_name("a3m"), FM_MSA_NONE);
    assert_int_equal(fm_msa_format_of_name(""), FM_MSA_NONE);
}

static void merges_in_canonical_order(void **state) {
    fixture *f = *state;
    const fm_msa_input inputs[] = {
        file("other.a3m", ">q\nACD\n>o\nWWW\n"),
        file("mgnify_hits.sto", "q ACD\nm YYY\n"),
        file("pdb70_hits.hhr", "not read"),
        file("uniref90_hits.a3m.gz", ">q\nACD\n>sp|P12345|ABC_HUMAN/2-4 x\nAxxCE\n>r\nACE\n"),
        file("hmm_output.sto", "not read either"),
        file("bfd_uniclust_hits.a3m", ">q\nxACD\n>b\nACE\n>c\nVVV\n"),
    };
    assert_int_equal(build(f, inputs, 6, "ACD", NULL), FM_OK);
    expect_part(f, "ACD/ACE/VVV/YYY/WWW",
                "uniref90_hits.a3m:2 bfd_uniclust_hits.a3m:1 mgnify_hits.sto:1 other.a3m:1",
                "/HUMAN///");
    assert_int_equal(f->report.n_file, 4);
    assert_int_equal(f->report.n_row, 10);
    assert_int_equal(f->part.deletion_matrix[0], 0); /* the first of equal rows */
    assert_int_equal(f->part.deletion_matrix[4], 2);
    assert_int_equal(f->part.profile[0 * 22 + 0], 2);  /* A in column 0 */
    assert_int_equal(f->part.profile[2 * 22 + 3], 1);  /* E in column 2 */
    assert_int_equal(f->part.profile[1 * 22 + 17], 1); /* V in column 1 */
    assert_int_equal(build(f, inputs, 6, "", &compat), FM_OK);
    expect_part(f, "ACD/ACE/VVV/YYY/WWW",
                "bfd_uniclust_hits.a3m:3 mgnify_hits.sto:1 other.a3m:1 uniref90_hits.a3m:0",
                "////");
    assert_int_equal(f->part.deletion_matrix[0], 1);
    assert_int_equal(f->part.deletion_matrix[4], 0);
}

static void encodes_every_letter(void **state) {
    fixture *f = *state;
    const fm_msa_input input = file("a.a3m", ">q\nABCDEFGHIJKLMNOPQRSTUVWXYZ-\n");
    static const uint8_t expected[] = {0,  2,  1,  2,  3,  4,  5, 6,  7,  20, 8,  9, 10, 11,
                                       20, 12, 13, 14, 15, 16, 1, 17, 18, 20, 19, 3, 21};
    assert_int_equal(build(f, &input, 1, "", NULL), FM_OK);
    assert_int_equal(f->part.n_res, 27);
    assert_memory_equal(f->part.msa, expected, 27);
}

/* Equal ids from different letters are different rows, because rows are compared as text. */
static void compares_letters(void **state) {
    fixture *f = *state;
    const fm_msa_input input = file("a.a3m", ">q\nDB\n>r\nBD\n>s\nDB\n>t\nDdB\n");
    assert_int_equal(build(f, &input, 1, "", NULL), FM_OK);
    expect_part(f, "DD/DD", "a.a3m:2", "/");
}

static void takes_the_query_alone(void **state) {
    fixture *f = *state;
    const fm_msa_input other = file("pdb70_hits.hhr", "x");
    assert_int_equal(build(f, NULL, 0, "ACX", NULL), FM_OK);
    expect_part(f, "ACX", "query:1", "");
    assert_int_equal(build(f, &other, 1, "MK", &compat), FM_OK);
    expect_part(f, "MK", "query:1", "");
    assert_int_equal(f->report.n_file, 0);
    expect_error(f, NULL, 0, "", NULL, "there is neither an alignment nor a query sequence");
    expect_error(f, NULL, 0, "AC*", NULL, "residue 3 of the query is not a residue letter");
    expect_error(f, &other, 1, "Ac", NULL, "residue 2 of the query is not a residue letter");
}

static void refuses_with_file_and_place(void **state) {
    fixture *f = *state;
    const fm_msa_input ragged[] = {file("a.a3m", ">q\nACD\n"), file("b.a3m", ">q\nACD\n>r\nAC\n")};
    expect_error(f, ragged, 2, "", NULL, "b.a3m:4:1: row 1 has 2 match columns, the query has 3");
    expect_error(f, ragged, 2, "ACDE", NULL,
                 "a.a3m:2:1: row 0 has 3 match columns, the query has 4; the alignment is of "
                 "another sequence");
    const fm_msa_input wide[] = {file("a.a3m", ">q\nACD\n"), file("b.sto", "q ACDE\n")};
    expect_error(f, wide, 2, "", NULL,
                 "b.sto:1:1: row 0 has 4 match columns, the query has 3; the alignment is of "
                 "another sequence");
    const fm_msa_input letter = file("a.a3m", ">q\nACD\n>r\nA\nxx*D\n");
    expect_error(f, &letter, 1, "", NULL,
                 "a.a3m:5:3: found '*' in match column 2, expected a residue letter or '-'");
    const fm_msa_input byte = file("a.sto", "q AC--D\nr A\xff--D\n");
    expect_error(f, &byte, 1, "", NULL,
                 "a.sto:2:4: found byte 0xff in match column 2, expected a residue letter or '-'");
    const fm_msa_input dot = file("a.sto", "q AC\nr A.\n");
    assert_int_equal(build(f, &dot, 1, "", NULL), FM_OK);
    expect_part(f, "AC/A-", "a.sto:2", "/");
    expect_error(f, &dot, 1, "", &compat,
                 "a.sto:2:4: found '.' in match column 2, expected a residue letter or '-'");
    const fm_msa_input empty[] = {file("a.a3m", ">q\nAC\n"), file("b.a3m", "")};
    expect_error(f, empty, 2, "", NULL,
                 "b.a3m:1:1: the alignment has no sequences, expected at least one");
    expect_error(f, empty, 2, "", &compat,
                 "b.a3m:1:1: the alignment has no sequences, expected at least one");
}

static void chooses_the_alignment_of_the_query(void **state) {
    fixture *f = *state;
    static const char bytes[] = ">101\nAC\n>r\nA-\n\0>102\nACD\n>s\nWWW\n\0>103\nACE\n\0";
    const fm_msa_input input = {"u.a3m", {(const uint8_t *)bytes, sizeof bytes - 1}, FM_MSA_NONE};
    assert_int_equal(build(f, &input, 1, "", NULL), FM_OK);
    expect_part(f, "AC/A-", "u.a3m:2", "/");
    assert_int_equal(build(f, &input, 1, "ACE", NULL), FM_OK);
    expect_part(f, "ACE", "u.a3m:1", "");
    assert_int_equal(build(f, &input, 1, "ACD", NULL), FM_OK);
    expect_part(f, "ACD/WWW", "u.a3m:2", "/");
    expect_error(f, &input, 1, "ACDEF", NULL,
                 "u.a3m:2:1: row 0 has 2 match columns, the query has 5; the alignment is of "
                 "another sequence");
}

/* A search of several databases gives an alignment of the query for each of them. */
static void joins_the_alignments_of_the_query(void **state) {
    fixture *f = *state;
    static const char bytes[] = ">q\nAC\n>r\nA-\n\0>q\nAC\n>s\n-C\n\0>other\nWW\n>t\nWC\n\0"
                                ">q\nAX\n>u\nWW\n>v\nA\n\0";
    const fm_msa_input whole = {"u.a3m", {(const uint8_t *)bytes, sizeof bytes - 7}, FM_MSA_NONE};
    const fm_msa_input ragged = {"u.a3m", {(const uint8_t *)bytes, sizeof bytes - 1}, FM_MSA_NONE};
    assert_int_equal(build(f, &whole, 1, "AC", NULL), FM_OK);
    expect_part(f, "AC/A-/-C/AX/WW", "u.a3m:5", "////");
    assert_int_equal(build(f, &whole, 1, "", NULL), FM_OK);
    expect_part(f, "AC/A-/-C/AX/WW", "u.a3m:5", "////");
    assert_int_equal(build(f, &whole, 1, "WW", NULL), FM_OK);
    expect_part(f, "WW/WC", "u.a3m:2", "/");
    expect_error(f, &ragged, 1, "AC", NULL,
                 "u.a3m:18:1: row 2 has 1 match column, the query has 2");
}

/* A text of many alignments must be searched in one pass. */
static void looks_through_many_alignments(void **state) {
    fixture *f = *state;
    enum { N = 200000 };
    char *text = malloc(N * 6 + 8);
    assert_non_null(text);
    for (size_t i = 0; i < N; i++)
        memcpy(text + 6 * i, ">\nA\n\n", 6);
    for (size_t i = 0; i < N; i++)
        text[6 * i + 5] = 0;
    memcpy(text + N * 6, ">\nC\n", 5);
    const fm_msa_input input = {"u.a3m", {(const uint8_t *)text, N * 6 + 5}, FM_MSA_NONE};
    assert_int_equal(build(f, &input, 1, "C", NULL), FM_OK);
    expect_part(f, "C", "u.a3m:1", "");
    free(text);
}

/* A file cut anywhere is read or refused, and an alignment that is read has whole rows only. */
static void reads_or_refuses_every_prefix(void **state) {
    fixture *f = *state;
    static const char a3m[] = "#3\n>q one\nAC\nDE\n>r\nA-xx\r\nDE\n>sp|P12345|A_HUMAN\n--DE\n";
    static const char sto[] = "# STOCKHOLM 1.0\n#=GS r DE x\nq AC-D\nr A-xD\n\nq E\nr -\n//\n";
    for (int k = 0; k < 2; k++) {
        const char *text = k ? sto : a3m;
        size_t n_read = 0, n_refused = 0;
        for (size_t size = 0; size <= strlen(text); size++) {
            /* in its own block, so that a sanitizer sees reads past it */
            uint8_t *cut = malloc(size + 1);
            assert_non_null(cut);
            memcpy(cut, text, size);
            const fm_msa_input input = {k ? "x.sto" : "x.a3m", {cut, size}, FM_MSA_NONE};
            if (build(f, &input, 1, "", size % 2 ? &compat : NULL)) {
                assert_string_equal(f->error.source, input.name);
                assert_true(f->error.line >= 1 && f->error.column >= 1 && f->error.message[0]);
                n_refused++;
            } else {
                n_read++;
            }
            free(cut);
        }
        assert_true(n_read > 5 && n_refused > 5);
    }
}

static void finds_species(void **state) {
    (void)state;
    static const struct {
        const char *description, *species;
    } cases[] = {
        {"sp|P69905|HBA_HUMAN Hemoglobin", "HUMAN"},
        {"tr|A0A146SKV9|A0A146SKV9_FUNHE/1-99 x", "FUNHE"},
        {" \ttr|A0A146SKV9_1|A0A146SKV9_FUNHE_12", "FUNHE"},
        {"tr|Q6DHU0|Q6DHU0_9", "9"},
        {"sp|P69905|HBA_HUMANS", ""},
        {"sp|P6990|HBA_HUMAN", ""},
        {"sp|P699056789|HBA_HUMAN", "HUMAN"},
        {"sp|P6990567890|HBA_HUMAN", ""},
        {"sp|P69905|_HUMAN", ""},
        {"sp|P69905|HBA_", ""},
        {"sp|P69905|HBA", ""},
        {"sp|P69905_12|HBA_HUMAN", ""},
        {"sp|P69905|HBA_HUMAN_", ""},
        {"sp|P69905|HBA_HUMAN_1x", ""},
        {"SP|P69905|HBA_HUMAN", ""},
        {"UniRef90_A0A1", ""},
        {"sp|", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_bytes found = fm_msa_species(text_of(cases[i].description), false);
        assert_int_equal(found.size, strlen(cases[i].species));
        if (found.size) assert_memory_equal(found.data, cases[i].species, found.size);
    }
}

static void holds_its_limits(void **state) {
    fixture *f = *state;
    char *query = malloc(FM_LIMIT_N_RES + 2);
    assert_non_null(query);
    memset(query, 'A', FM_LIMIT_N_RES + 1);
    query[FM_LIMIT_N_RES + 1] = 0;
    expect_error(f, NULL, 0, query, NULL, "the query has 65536 residues, the limit is 65535");
    query[FM_LIMIT_N_RES] = 0;
    assert_int_equal(build(f, NULL, 0, query, NULL), FM_OK);
    /* An arena that runs out anywhere gives an error and is as before. */
    const fm_msa_input inputs[] = {file("a.a3m", ">q\nACD\n>r\nACE\n"), file("b.sto", "q ACD\n")};
    size_t n_refused = 0;
    for (size_t max = 64; max < 65536; max += 64) {
        fm_arena small;
        assert_int_equal(fm_arena_init(&small, max, NULL), FM_OK);
        fm_status status =
            fm_msa_build(inputs, 2, text_of("ACD"), NULL, &small, &f->part, NULL, &f->error);
        assert_true(!status || status == FM_ERR_LIMIT);
        if (status) assert_int_equal(small.used, 0);
        if (status) n_refused++;
        fm_arena_fini(&small);
    }
    assert_true(n_refused > 5 && n_refused < 1000);
    free(query);
}

static void loops_agree(void **state) {
    (void)state;
    if (!__builtin_cpu_supports("avx2")) skip();
    enum { N_RES_MAX = 100, N_ROW_MAX = 600 };
    static uint8_t one[N_RES_MAX * N_ROW_MAX], other[N_RES_MAX * N_ROW_MAX];
    static uint32_t sums[N_RES_MAX * 22], expected[N_RES_MAX * 22];
    for (int c = 0; c < 256; c++)
        one[c] = other[c] = (uint8_t)c;
    assert_false(fm_msa_scalar.encode(one, 256));
    assert_false(fm_msa_avx2.encode(other, 256));
    assert_memory_equal(one, other, 256);
    uint32_t random = 3;
    for (size_t n_res = 1; n_res <= N_RES_MAX; n_res += n_res < 70 ? 1 : 7) {
        size_t n_row = n_res * 37 % N_ROW_MAX + 1;
        for (size_t i = 0; i < n_res * n_row; i++) {
            random = random * 1664525 + 1013904223;
            one[i] = other[i] = (uint8_t) "ACDEFGHIKLMNPQRSTVWYX-BJOUZ"[(random >> 16) % 27];
        }
        assert_true(fm_msa_scalar.encode(one, n_res * n_row));
        assert_true(fm_msa_avx2.encode(other, n_res * n_row));
        assert_memory_equal(one, other, n_res * n_row);
        memset(sums, 0, sizeof sums);
        memset(expected, 0, sizeof expected);
        fm_msa_scalar.count(one, n_row, n_res, expected);
        fm_msa_avx2.count(one, n_row, n_res, sums);
        assert_memory_equal(sums, expected, sizeof sums);
    }
}

/* gz content as the cache builder passes it: decompressed by the file layer, named with ".gz". */
static void reads_gz_files(void **state) {
    fixture *f = *state;
    static const uint8_t stored[] = {0x1f, 0x8b, 8,    0,    0,   0,   0,    0,   0,   3,   1,
                                     6,    0,    0xf9, 0xff, '>', 'q', '\n', 'A', 'C', '\n'};
    uint8_t gz[sizeof stored + 8];
    uint32_t crc = fm_crc32(0, stored + 15, 6);
    memcpy(gz, stored, sizeof stored);
    for (int i = 0; i < 4; i++)
        gz[sizeof stored + i] = (uint8_t)(crc >> 8 * i);
    memcpy(gz + sizeof stored + 4, "\6\0\0\0", 4);
    char folder[256], path[300];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/uniref90_hits.a3m.gz", folder);
    assert_int_equal(fm_file_write_atomic(path, gz, sizeof gz, NULL), FM_OK);
    fm_msa_input input = {.name = "uniref90_hits.a3m.gz"};
    fm_arena_reset(&f->arena);
    assert_int_equal(fm_file_read_text(&f->arena, path, 4096, &input.content, &f->error), FM_OK);
    assert_int_equal(fm_msa_build(&input, 1, (fm_bytes){0}, NULL, &f->arena, &f->part, NULL, NULL),
                     FM_OK);
    expect_part(f, "AC", "uniref90_hits.a3m:1", "");
    assert_int_equal(fm_file_write_atomic(path, gz, sizeof gz - 9, NULL), FM_OK);
    assert_int_equal(fm_file_read_text(&f->arena, path, 4096, &input.content, &f->error),
                     FM_ERR_CORRUPT);
    fm_test_remove_tree(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(knows_alignments_by_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(merges_in_canonical_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(encodes_every_letter, set_up, tear_down),
        cmocka_unit_test_setup_teardown(compares_letters, set_up, tear_down),
        cmocka_unit_test_setup_teardown(takes_the_query_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_with_file_and_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(chooses_the_alignment_of_the_query, set_up, tear_down),
        cmocka_unit_test_setup_teardown(joins_the_alignments_of_the_query, set_up, tear_down),
        cmocka_unit_test_setup_teardown(looks_through_many_alignments, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reads_or_refuses_every_prefix, set_up, tear_down),
        cmocka_unit_test_setup_teardown(finds_species, set_up, tear_down),
        cmocka_unit_test_setup_teardown(holds_its_limits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(loops_agree, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reads_gz_files, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
