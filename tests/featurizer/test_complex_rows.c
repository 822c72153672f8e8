/* test_complex_rows.c: the MSA of complexes: rows of a sequence, pairing by species, and what crops
 * gather; against the reference (complex/msa), and by small alignments made for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "featurizer/complex/paired_rows.h"
#include "proto/base/file.h"
#include "proto/base/json_tree.h"
#include "proto/limits.h"
#include "proto/npz.h"
#include "tests/testing/manifest.h"
#include "tests/testing/testing.h"

#define ARENA_BYTES ((size_t)8 << 30)

enum { MAX_CHAIN = 8, MAX_FILE = 4 };

static int set_up(void **state) {
    static fm_arena arena;
    *state = &arena;
    return fm_arena_init(&arena, ARENA_BYTES, NULL) ? -1 : 0;
}

static int tear_down(void **state) {
    fm_arena_fini(*state);
    return 0;
}

static fm_bytes text_of(const char *text) {
    return (fm_bytes){(const uint8_t *)text, strlen(text)};
}

/* -- against the reference */

/* A chain of a case, and its place among the crop's chains; -1: not in the crop. */
typedef struct case_chain {
    int64_t asym_id, entity;
    fm_sequence_rows paired, unpaired;
    fm_paired_chain chain;
    bool is_present;
} case_chain;

typedef struct golden_case {
    fm_arena *arena;
    const char *name;
    fm_npz npz;
    case_chain chains[MAX_CHAIN];
    uint32_t n_chain, n_array, n_same;
} golden_case;

static fm_bytes read_reference(fm_arena *arena, const char *folder, const char *name) {
    char relative[512], whole[1024];
    fm_bytes content = {0};
    snprintf(relative, sizeof relative, "complex/msa/%s%s", folder, name);
    fm_test_reference_path(whole, sizeof whole, relative);
    assert_int_equal(fm_file_read(arena, whole, FM_LIMIT_INPUT_BYTES, &content, NULL), FM_OK);
    return content;
}

static fm_polymer polymer_of(const char *type) {
    if (strcmp(type, "polypeptide(L)") == 0) return FM_POLYMER_PEPTIDE_L;
    if (strcmp(type, "polyribonucleotide") == 0) return FM_POLYMER_RNA;
    if (strcmp(type, "polydeoxyribonucleotide") == 0) return FM_POLYMER_DNA;
    return FM_POLYMER_NONE;
}

static fm_sequence_rows read_set(golden_case *c, const fm_json *files, fm_bytes sequence,
                                 fm_polymer polymer) {
    fm_msa_input inputs[MAX_FILE];
    size_t n = fm_json_count(files);
    assert_true(n <= MAX_FILE);
    for (size_t i = 0; i < n; i++) {
        const char *name = fm_json_get_text(fm_json_get_element(files, i));
        inputs[i] = (fm_msa_input){name, read_reference(c->arena, "inputs/", name), FM_MSA_A3M};
    }
    fm_sequence_rows rows;
    fm_error error;
    fm_status status = fm_sequence_rows_read(inputs, n, sequence, polymer,
                                             &(fm_sequence_rows_options){.compat_protenix = true},
                                             c->arena, &rows, &error);
    if (status) fail_msg("%s: %s", c->name, error.message);
    return rows;
}

static const fm_npy *array_of(const golden_case *c, const char *name) {
    const fm_npy *array = fm_npz_find(&c->npz, name);
    if (!array) fail_msg("%s: no array %s", c->name, name);
    return array;
}

static bool is_in_crop(const golden_case *c, int64_t asym_id) {
    const fm_npy *asym = array_of(c, "token_asym");
    const int32_t *of = asym->data;
    for (uint64_t i = 0; i < asym->count; i++)
        if (of[i] == asym_id) return true;
    return false;
}

static void read_chains(golden_case *c, const fm_json *list) {
    for (size_t i = 0; i < fm_json_count(list); i++) {
        const fm_json *from = fm_json_get_element(list, i);
        case_chain *to = &c->chains[c->n_chain++];
        assert_true(fm_json_get_integer(fm_json_get_member(from, "asym_id"), &to->asym_id));
        to->entity = fm_json_get_text(fm_json_get_member(from, "entity"))[0];
        fm_bytes sequence = text_of(fm_json_get_text(fm_json_get_member(from, "sequence")));
        fm_polymer polymer = polymer_of(fm_json_get_text(fm_json_get_member(from, "type")));
        to->paired = read_set(c, fm_json_get_member(from, "paired"), sequence, polymer);
        to->unpaired = read_set(c, fm_json_get_member(from, "unpaired"), sequence, polymer);
        to->chain = (fm_paired_chain){sequence, polymer, &to->paired, &to->unpaired};
        to->is_present = is_in_crop(c, to->asym_id);
    }
}

static void compare(golden_case *c, const char *name, const void *ours, size_t bytes) {
    const fm_npy *array = array_of(c, name);
    bool same = array->count * array->item_bytes == bytes && memcmp(array->data, ours, bytes) == 0;
    c->n_array++;
    c->n_same += same;
    if (!same) print_message("%s: %s differs\n", c->name, name);
}

static void compare_number(golden_case *c, const char *name, uint32_t ours) {
    int32_t number = (int32_t)ours;
    compare(c, name, &number, sizeof number);
}

static void compare_species(golden_case *c, const case_chain *chain, const char *set,
                            const fm_sequence_rows *rows) {
    char name[64];
    snprintf(name, sizeof name, "chain%d/%s_species", (int)chain->asym_id, set);
    char *joined = fm_arena_alloc(c->arena, (size_t)rows->n_row * 64);
    assert_non_null(joined);
    size_t at = 0;
    for (uint32_t i = 0; i < rows->n_row; i++) {
        if (i > 0) joined[at++] = '\n';
        memcpy(joined + at, rows->species[i].data, rows->species[i].size);
        at += rows->species[i].size;
    }
    compare(c, name, joined, at);
}

/* Where the chains of the crop are, ordered by entity and then by asym_id. */
static uint32_t order_chains(const golden_case *c, fm_paired_chain *chains, uint32_t *place) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_chain; i++) {
        uint32_t before = 0;
        if (!c->chains[i].is_present) continue;
        for (uint32_t k = 0; k < c->n_chain; k++) {
            bool first = c->chains[k].entity < c->chains[i].entity ||
                         (c->chains[k].entity == c->chains[i].entity &&
                          c->chains[k].asym_id < c->chains[i].asym_id);
            before += c->chains[k].is_present && first;
        }
        chains[before] = c->chains[i].chain;
        place[i] = before;
        n++;
    }
    return n;
}

static fm_paired_column *list_columns(golden_case *c, const uint32_t *place, uint32_t *ret_n) {
    const fm_npy *asym = array_of(c, "token_asym"), *number = array_of(c, "token_res");
    fm_paired_column *columns = fm_arena_alloc_array(c->arena, asym->count, sizeof *columns);
    assert_non_null(columns);
    for (uint64_t t = 0; t < asym->count; t++) {
        uint32_t i = 0, residue = (uint32_t)((const int32_t *)number->data)[t];
        while (c->chains[i].asym_id != ((const int32_t *)asym->data)[t])
            i++;
        uint32_t n_col = c->chains[i].unpaired.n_col;
        columns[t] = (fm_paired_column){place[i], residue <= n_col ? residue - 1 : 0};
    }
    *ret_n = (uint32_t)asym->count;
    return columns;
}

static void compare_profile(golden_case *c, const fm_paired_chain *chains,
                            const fm_paired_column *columns, uint32_t n) {
    float *profile = fm_arena_alloc_array(c->arena, n, FM_N_RESTYPE32 * sizeof *profile);
    double *mean = fm_arena_alloc_array(c->arena, n, sizeof *mean);
    assert_true(profile && mean);
    for (uint32_t t = 0; t < n; t++) {
        const fm_sequence_rows *rows = chains[columns[t].chain].unpaired;
        memcpy(profile + t * FM_N_RESTYPE32, rows->profile + columns[t].column * FM_N_RESTYPE32,
               FM_N_RESTYPE32 * sizeof *profile);
        mean[t] = rows->deletion_mean[columns[t].column];
    }
    compare(c, "profile", profile, n * FM_N_RESTYPE32 * sizeof *profile);
    compare(c, "deletion_mean", mean, n * sizeof *mean);
}

static void compare_rows(golden_case *c, const fm_paired_rows *rows, const fm_paired_chain *chains,
                         const fm_paired_column *columns, uint32_t n) {
    size_t n_cell = (size_t)rows->n_row * n;
    uint8_t *ids = fm_arena_alloc(c->arena, n_cell), *deletion = fm_arena_alloc(c->arena, n_cell);
    float *value = fm_arena_alloc_array(c->arena, n_cell, sizeof *value);
    assert_true(ids && deletion && value);
    for (uint32_t r = 0; r < rows->n_row; r++) {
        fm_paired_rows_gather(rows, chains, r, columns, n, ids + (size_t)r * n,
                              deletion + (size_t)r * n);
    }
    for (size_t i = 0; i < n_cell; i++)
        value[i] = (float)(atan(deletion[i] / 3.0) * (2.0 / M_PI));
    compare(c, "msa", ids, n_cell);
    compare(c, "deletion_matrix", deletion, n_cell);
    compare(c, "deletion_value_f32", value, n_cell * sizeof *value);
}

static void check_case(golden_case *c, const fm_json *from) {
    char file[128];
    int64_t max_row;
    fm_paired_chain chains[MAX_CHAIN];
    uint32_t place[MAX_CHAIN], n_token;
    c->name = fm_json_get_text(fm_json_get_member(from, "name"));
    snprintf(file, sizeof file, "%s.npz", c->name);
    assert_int_equal(fm_npz_parse(c->arena, read_reference(c->arena, "", file), &c->npz, NULL),
                     FM_OK);
    assert_true(fm_json_get_integer(fm_json_get_member(from, "max_msa_size"), &max_row));
    read_chains(c, fm_json_get_member(from, "chains"));
    for (uint32_t i = 0; i < c->n_chain; i++) {
        bool has_rows = c->chains[i].is_present && c->chains[i].unpaired.n_row > 1;
        if (has_rows) compare_species(c, &c->chains[i], "unpaired", &c->chains[i].unpaired);
        if (has_rows) compare_species(c, &c->chains[i], "paired", &c->chains[i].paired);
    }
    uint32_t n_chain = order_chains(c, chains, place);
    const fm_paired_column *columns = list_columns(c, place, &n_token);
    fm_paired_rows rows;
    fm_paired_options options = {(uint32_t)max_row, .repeats_query = true};
    assert_int_equal(fm_paired_rows_plan(chains, n_chain, &options, c->arena, &rows, NULL), FM_OK);
    compare_profile(c, chains, columns, n_token);
    compare_rows(c, &rows, chains, columns, n_token);
    compare_number(c, "prot_pair_num_alignments", rows.n_paired);
    compare_number(c, "prot_unpair_num_alignments", rows.n_unpaired_protein);
    compare_number(c, "rna_unpair_num_alignments", rows.n_unpaired_rna);
}

static void golden_msa(void **state) {
    fm_arena *arena = *state;
    uint32_t n_array = 0, n_same = 0;
    if (!fm_test_reference()) skip();
    fm_arena_reset(arena);
    fm_bytes text = read_reference(arena, "", "cases.json");
    fm_json *cases = fm_json_parse(text.data, text.size);
    assert_int_equal(fm_json_count(cases), 15);
    for (size_t i = 0; i < fm_json_count(cases); i++) {
        fm_arena_reset(arena);
        golden_case c = {.arena = arena};
        check_case(&c, fm_json_get_element(cases, i));
        n_array += c.n_array;
        n_same += c.n_same;
    }
    fm_json_free(cases);
    fm_test_golden_line("complex msa", n_array, n_same);
    assert_int_equal(n_same, n_array);
}

/* -- small alignments */

static fm_status read_text(fm_arena *arena, const char *text, const char *sequence,
                           fm_polymer polymer, bool compat, fm_sequence_rows *rows,
                           fm_error *error) {
    fm_msa_input input = {"x.a3m", text_of(text), FM_MSA_A3M};
    return fm_sequence_rows_read(&input, 1, text_of(sequence), polymer,
                                 &(fm_sequence_rows_options){.compat_protenix = compat}, arena,
                                 rows, error);
}

static fm_sequence_rows rows_of(fm_arena *arena, const char *text, const char *sequence) {
    fm_sequence_rows rows;
    fm_error error;
    if (read_text(arena, text, sequence, FM_POLYMER_PEPTIDE_L, false, &rows, &error)) {
        fail_msg("%s", error.message);
    }
    return rows;
}

static void species_of_descriptions(void **state) {
    (void)state;
    static const struct {
        const char *description, *species;
    } cases[] = {
        {"tr|A0A146SKV9|A0A146SKV9_FUNHE", "FUNHE"},
        {"sp|P0C2L1|A3X1_LOXLA/60-100 some words", "LOXLA"},
        {"sp|P0C2L1_2|A3X1_LOXLA", "LOXLA"},
        {"tr|P0C2L|A3X1_LOXLA", ""},
        {"UniRef100_A0A146_9606/1-90", "9606"},
        {"UniRef100_A0A146_9606_x", "9606"},
        {"UniRef100_A0A146", ""},
        {"UniRef90_A0A146_9606", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_bytes found = fm_sequence_species(text_of(cases[i].description));
        assert_int_equal(found.size, strlen(cases[i].species));
        assert_memory_equal(found.data, cases[i].species, found.size);
    }
}

static void rows_without_duplicates(void **state) {
    fm_arena *arena = *state;
    fm_arena_reset(arena);
    fm_sequence_rows rows =
        rows_of(arena, ">q\nMKTAY\n>a\nMKaaTA-\n>b\nMKTA-\n>c\nMBZUJ\n", "MKTAY");
    static const uint8_t expected[] = {12, 11, 16, 0, 18, 12, 11, 16, 0, 31, 12, 3, 6, 4, 20};
    assert_int_equal(rows.n_row, 3);
    assert_memory_equal(rows.ids, expected, sizeof expected);
    assert_int_equal(rows.deletion[5 + 2], 2);
    assert_true(rows.profile[12] == 1.0f);
    assert_true(rows.profile[4 * FM_N_RESTYPE32 + 18] == (float)(1.0 / 3));
    assert_true(rows.deletion_mean[2] == 2.0 / 3);
}

static void rows_of_nucleic_acids(void **state) {
    fm_arena *arena = *state;
    fm_sequence_rows rows;
    fm_arena_reset(arena);
    const char *text = ">q\nAGCUN\n>a\nTTTTT\n";
    static const uint8_t rna[] = {21, 22, 23, 24, 25, 24, 24, 24, 24, 24};
    assert_int_equal(read_text(arena, text, "AGCUN", FM_POLYMER_RNA, false, &rows, NULL), FM_OK);
    assert_int_equal(rows.n_row, 2);
    assert_memory_equal(rows.ids, rna, sizeof rna);
    assert_int_equal(read_text(arena, text, "AGCUN", FM_POLYMER_RNA, true, &rows, NULL), FM_OK);
    assert_int_equal(rows.ids[5], 25);
    static const uint8_t dna[] = {26, 27, 28, 29, 30};
    assert_int_equal(read_text(arena, text, "AGCTN", FM_POLYMER_DNA, false, &rows, NULL), FM_OK);
    assert_int_equal(rows.n_row, 1);
    assert_memory_equal(rows.ids, dna, sizeof dna);
}

static void rows_of_wrong_lengths(void **state) {
    fm_arena *arena = *state;
    fm_sequence_rows rows;
    fm_error error;
    fm_arena_reset(arena);
    const char *text = ">q\nMKTAY\n>a\nMKTAYYY\n>b\nMK\n";
    assert_int_equal(read_text(arena, text, "MKTAY", FM_POLYMER_PEPTIDE_L, false, &rows, &error),
                     FM_ERR_FORMAT);
    assert_string_equal(error.source, "x.a3m");
    assert_int_equal(error.line, 4);
    assert_int_equal(read_text(arena, text, "MKTAY", FM_POLYMER_PEPTIDE_L, true, &rows, NULL),
                     FM_OK);
    assert_int_equal(rows.n_row, 3);
    assert_int_equal(rows.ids[2 * 5 + 4], 0);
    const char *other = ">q\nMKTAW\n";
    assert_int_equal(read_text(arena, other, "MKTAY", FM_POLYMER_PEPTIDE_L, false, &rows, &error),
                     FM_ERR_DATA);
    assert_int_equal(error.line, 2);
    assert_int_equal(error.column, 5);
}

static void deletions_are_limited(void **state) {
    fm_arena *arena = *state;
    char text[1024], many[301];
    memset(many, 'a', 300);
    many[300] = 0;
    fm_arena_reset(arena);
    snprintf(text, sizeof text, ">q\nMKTAY\n>a\nMK%sTAY\n>b\nMK%sTA-\n", many, many);
    fm_sequence_rows rows = rows_of(arena, text, "MKTAY");
    assert_int_equal(rows.n_row, 2);
    assert_int_equal(rows.deletion[5 + 2], FM_DELETION_LIMIT);
    assert_true(rows.deletion_mean[2] == 150);
}

/* Two proteins and a ligand: species X is in both, twice in A; Y only in A. */
static void pairs_by_species(void **state) {
    fm_arena *arena = *state;
    fm_arena_reset(arena);
    fm_sequence_rows a = rows_of(arena,
                                 ">q\nMKTAY\n>sp|P12345|A_YYYYY\nMKTA-\n"
                                 ">sp|P12346|B_XXXXX\nMKT--\n>sp|P12347|C_XXXXX\nMK---\n",
                                 "MKTAY");
    fm_sequence_rows b =
        rows_of(arena, ">q\nWWWWW\n>sp|P12348|D_XXXXX\nWWW--\n>e\nW----\n", "WWWWW");
    fm_sequence_rows x;
    fm_bytes ligand = text_of("XXX");
    assert_int_equal(fm_sequence_rows_read(NULL, 0, ligand, FM_POLYMER_NONE, NULL, arena, &x, NULL),
                     FM_OK);
    const fm_paired_chain chains[] = {{text_of("MKTAY"), FM_POLYMER_PEPTIDE_L, &a, &a},
                                      {text_of("WWWWW"), FM_POLYMER_PEPTIDE_L, &b, &b},
                                      {ligand, FM_POLYMER_NONE, &x, &x}};
    fm_paired_rows rows;
    fm_paired_options options = {.max_row = 16};
    assert_int_equal(fm_paired_rows_plan(chains, 3, &options, arena, &rows, NULL), FM_OK);
    assert_int_equal(rows.n_paired, 2);
    assert_int_equal(rows.n_row, 4);
    static const int32_t of_a[] = {0, 2, 1, 3}, of_b[] = {0, 1, 2, FM_ROW_GAP},
                         of_x[] = {0, 0, 0, 0};
    assert_memory_equal(rows.row[0], of_a, sizeof of_a);
    assert_memory_equal(rows.row[1], of_b, sizeof of_b);
    assert_memory_equal(rows.row[2], of_x, sizeof of_x);
    static const fm_paired_column columns[] = {{0, 0}, {1, 4}, {2, 2}};
    uint8_t ids[3], deletion[3];
    fm_paired_rows_gather(&rows, chains, 3, columns, 3, ids, deletion);
    assert_int_equal(ids[0], 12);
    assert_int_equal(ids[1], FM_RESTYPE32_GAP);
    assert_int_equal(ids[2], 20);
}

/* One protein alone: its query comes once, and as the reference has it twice. */
static void takes_the_query_once(void **state) {
    fm_arena *arena = *state;
    fm_arena_reset(arena);
    fm_sequence_rows a = rows_of(arena, ">q\nMKTAY\n>a\nMKTA-\n", "MKTAY");
    const fm_paired_chain chain = {text_of("MKTAY"), FM_POLYMER_PEPTIDE_L, &a, &a};
    fm_paired_rows rows;
    fm_paired_options options = {.max_row = 16};
    assert_int_equal(fm_paired_rows_plan(&chain, 1, &options, arena, &rows, NULL), FM_OK);
    assert_int_equal(rows.n_row, 2);
    options.repeats_query = true;
    assert_int_equal(fm_paired_rows_plan(&chain, 1, &options, arena, &rows, NULL), FM_OK);
    assert_int_equal(rows.n_row, 3);
    options.max_row = 2;
    assert_int_equal(fm_paired_rows_plan(&chain, 1, &options, arena, &rows, NULL), FM_OK);
    assert_int_equal(rows.n_row, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_msa),
        cmocka_unit_test(species_of_descriptions),
        cmocka_unit_test(rows_without_duplicates),
        cmocka_unit_test(rows_of_nucleic_acids),
        cmocka_unit_test(rows_of_wrong_lengths),
        cmocka_unit_test(deletions_are_limited),
        cmocka_unit_test(pairs_by_species),
        cmocka_unit_test(takes_the_query_once),
    };
    return cmocka_run_group_tests_name("complex_rows", tests, set_up, tear_down);
}
