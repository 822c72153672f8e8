/* test_structure.c: a chain's parts, and the arrays under the reference's names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "featurizer/sequence.h"
#include "featurizer/structure.h"
#include "tests/featurizer/mmcif_text.h"

static fm_arena arena;

static int set_up(void **state) {
    (void)state;
    return fm_arena_init(&arena, (size_t)64 << 20, NULL) ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    return 0;
}

static fm_mmcif read_text(const char *text, bool compat) {
    fm_mmcif mmcif;
    uint64_t line, column;
    fm_arena_reset(&arena);
    assert_int_equal(mmcif_text_parse(&arena, text, compat, &mmcif, NULL, &line, &column), FM_OK);
    return mmcif;
}

static void a_chain_becomes_its_parts(void **state) {
    (void)state;
    const fm_mmcif_options options = {0};
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_error error;
    fm_mmcif mmcif = read_text(HEAD DATES COMPS ASYMS THREE
                               "_refine.ls_d_res_high 1.9\n" SITE ATOM("CA", "ALA", "1", "1.0"),
                               false);
    assert_int_equal(fm_structure_from_mmcif(&mmcif, &options, "X", &sequence, &structure, &error),
                     FM_OK);
    assert_int_equal(sequence.n_res, 3);
    assert_memory_equal(sequence.sequence, "AMR", 3);
    assert_int_equal(structure.n_res, 3);
    assert_true(structure.resolution == 1.9f);
    assert_string_equal(structure.release_date, "1999-12-31");
    assert_int_equal(structure.is_distillation, 0);
    assert_null(structure.confidence);
    assert_int_equal(structure.all_atom_mask[1], 1);
    assert_true(structure.all_atom_positions[3] == 1.0f);
    assert_int_equal(fm_structure_from_mmcif(&mmcif, &options, "A", &sequence, &structure, &error),
                     FM_ERR_NOT_FOUND);
    assert_string_equal(error.message, "no protein chain 'A'; the file has X");
}

/* Atom rows of three residues with the B factor as confidence. */
#define SURE(name, comp, seq, b)                                                                   \
    "ATOM 1 " name " . " comp " A " seq " ? 1.0 2.5 -3.5 1.00 " b " " seq " X 1\n"

static fm_status parse_predicted(const char *text, bool compat, fm_mmcif *mmcif, fm_error *error) {
    const fm_mmcif_options options = {.compat_openfold = compat, .is_predicted = true};
    fm_arena_reset(&arena);
    return fm_mmcif_parse((fm_bytes){(const uint8_t *)text, strlen(text)}, &options, &arena, mmcif,
                          error);
}

static void a_prediction_has_confidence(void **state) {
    (void)state;
    static const char *const text =
        HEAD COMPS ASYMS THREE SITE SURE("N", "ALA", "1", "49.5") SURE("CA", "ALA", "1", "50.5")
            SURE("CA", "MSE", "2", "50.0") SURE("CA", "ARG", "3", "91.25");
    const fm_mmcif_options options = {.is_predicted = true};
    uint8_t mask[3 * FM_N_ATOM37];
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_error error;
    fm_mmcif mmcif;
    assert_int_equal(parse_predicted(text, false, &mmcif, &error), FM_OK);
    assert_int_equal(fm_structure_from_mmcif(&mmcif, &options, "X", &sequence, &structure, &error),
                     FM_OK);
    assert_int_equal(structure.is_distillation, 1);
    assert_true(structure.confidence[0] == 50.5f && structure.confidence[1] == 50.0f &&
                structure.confidence[2] == 91.25f);
    fm_structure_list_mask(&structure, mask);
    assert_int_equal(mask[FM_ATOM37_CA], 1);
    assert_int_equal(mask[FM_N_ATOM37 + FM_ATOM37_CA], 0);
    assert_int_equal(mask[2 * FM_N_ATOM37 + FM_ATOM37_CA], 1);
    assert_int_equal(parse_predicted(text, true, &mmcif, &error), FM_ERR_UNSUPPORTED);
    assert_int_equal(parse_predicted(HEAD COMPS ASYMS THREE SITE SURE("N", "ALA", "1", "149.5"),
                                     false, &mmcif, &error),
                     FM_ERR_DATA);
    assert_string_equal(error.message,
                        "B_iso_or_equiv is 149.5, expected a confidence of 0 to 100");
    assert_true(error.line > 1 && error.column == 40);
}

/* What masks every residue is refused, and a resolution may have an uncertainty. */
static void there_must_be_something_to_learn_from(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
        bool is_predicted;
    } cases[] = {
        {HEAD COMPS ASYMS THREE SITE SURE("CA", "ALA", "1", "0.97") SURE("CA", "MSE", "2", "0.5"),
         "the highest B factor of the prediction is 0.97, expected pLDDT on 0 to 100", true},
        {HEAD COMPS ASYMS THREE SITE SURE("CA", "ALA", "1", "0.00"),
         "the highest B factor of the prediction is 0, expected pLDDT on 0 to 100", true},
        {HEAD COMPS ASYMS THREE SITE SURE("C1X", "ALA", "1", "90.00"),
         "the chain has no atom of a known name", false},
    };
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_error error;
    fm_mmcif mmcif;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const fm_mmcif_options options = {.is_predicted = cases[i].is_predicted};
        const fm_bytes text = {(const uint8_t *)cases[i].text, strlen(cases[i].text)};
        assert_int_equal(fm_mmcif_parse(text, &options, &arena, &mmcif, &error), FM_OK);
        assert_int_equal(
            fm_structure_from_mmcif(&mmcif, &options, "X", &sequence, &structure, &error),
            FM_ERR_DATA);
        assert_string_equal(error.message, cases[i].message);
    }
    mmcif = read_text(HEAD DATES COMPS ASYMS THREE
                      "_refine.ls_d_res_high 1.80(2)\n" SITE ATOM("CA", "ALA", "1", "1.0"),
                      false);
    assert_true(mmcif.resolution == 1.8);
}

static void the_reference_needs_a_release_date(void **state) {
    (void)state;
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_error error;
    for (int compat = 0; compat < 2; compat++) {
        const fm_mmcif_options options = {.compat_openfold = compat};
        fm_mmcif mmcif =
            read_text(HEAD COMPS ASYMS THREE SITE ATOM("CA", "ALA", "1", "1.0"), compat);
        fm_status status =
            fm_structure_from_mmcif(&mmcif, &options, "X", &sequence, &structure, &error);
        assert_int_equal(status, compat ? FM_ERR_DATA : FM_OK);
    }
    assert_string_equal(error.message, "chain X: the file has no release date");
}

static void a_chain_with_a_fault_is_refused_alone(void **state) {
    (void)state;
    const fm_mmcif_options options = {.compat_openfold = true};
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_error error;
    fm_mmcif mmcif = read_text(ENTRY "ATOM 1 CA . ALA A 1 ? 1.0 2 3 1 9 1 X 2\n"
                                     "ATOM 1 CA . ARG A 3 ? 8.0 2 3 1 9 3 X 1\n",
                               true);
    assert_int_equal(fm_structure_from_mmcif(&mmcif, &options, "X", &sequence, &structure, &error),
                     FM_ERR_DATA);
    assert_string_equal(error.message,
                        "chain X: a residue of model 1 is not in the file's first model");
}

static void arrays_have_the_reference_s_names_and_shapes(void **state) {
    (void)state;
    static const struct {
        const char *key, *dtype;
        size_t rank;
        uint64_t shape[3];
    } expected[FM_STRUCTURE_N_ARRAY] = {
        {"aatype", "<i4", 2, {3, 21}},
        {"between_segment_residues", "<i4", 1, {3}},
        {"domain_name", "|u1", 1, {6}},
        {"residue_index", "<i4", 1, {3}},
        {"seq_length", "<i4", 1, {3}},
        {"sequence", "|u1", 1, {3}},
        {"all_atom_positions", "<f4", 3, {3, 37, 3}},
        {"all_atom_mask", "<f4", 2, {3, 37}},
        {"resolution", "<f4", 1, {1}},
        {"release_date", "|u1", 1, {10}},
        {"is_distillation", "<f4", 0, {0}},
    };
    const fm_mmcif_options options = {0};
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_structure_array arrays[FM_STRUCTURE_N_ARRAY];
    size_t n;
    fm_mmcif mmcif = read_text(ENTRY ATOM("CA", "ALA", "1", "1.0"), false);
    assert_int_equal(fm_structure_from_mmcif(&mmcif, &options, "X", &sequence, &structure, NULL),
                     FM_OK);
    assert_int_equal(
        fm_structure_list_arrays(&sequence, &structure, "1abc_X", &arena, arrays, &n, NULL), FM_OK);
    assert_int_equal(n, FM_STRUCTURE_N_ARRAY);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(arrays[i].key, expected[i].key);
        assert_string_equal(arrays[i].dtype, expected[i].dtype);
        assert_int_equal(arrays[i].rank, expected[i].rank);
        assert_memory_equal(arrays[i].shape, expected[i].shape, sizeof arrays[i].shape);
    }
    const float *mask = arrays[7].data;
    assert_true(mask[0] == 0.0f && mask[1] == 1.0f);
    structure.release_date[0] = '\0'; /* not known, so no array */
    assert_int_equal(
        fm_structure_list_arrays(&sequence, &structure, "1abc_X", &arena, arrays, &n, NULL), FM_OK);
    assert_int_equal(n, FM_STRUCTURE_N_ARRAY - 1);
}

static void sequence_features_follow_the_letters(void **state) {
    (void)state;
    fm_sequence_features features;
    fm_error error;
    fm_part_sequence sequence = {.n_res = 4, .sequence = "AVUX"};
    fm_arena_reset(&arena);
    assert_int_equal(fm_sequence_featurize(&sequence, &arena, &features, &error), FM_OK);
    for (int res = 0; res < 4; res++) {
        static const int restypes[] = {0, 19, 20, 20};
        for (int type = 0; type < FM_N_AATYPE; type++)
            assert_int_equal(features.aatype[res * FM_N_AATYPE + type], type == restypes[res]);
        assert_int_equal(features.residue_index[res], res);
        assert_int_equal(features.seq_length[res], 4);
        assert_int_equal(features.between_segment_residues[res], 0);
    }
    sequence.sequence = "AVgX";
    assert_int_equal(fm_sequence_featurize(&sequence, &arena, &features, &error), FM_ERR_FORMAT);
    assert_string_equal(error.message, "the sequence has byte 0x67, expected a letter A-Z");
    assert_int_equal(error.line, 1);
    assert_int_equal(error.column, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_becomes_its_parts),
        cmocka_unit_test(a_prediction_has_confidence),
        cmocka_unit_test(there_must_be_something_to_learn_from),
        cmocka_unit_test(the_reference_needs_a_release_date),
        cmocka_unit_test(a_chain_with_a_fault_is_refused_alone),
        cmocka_unit_test(arrays_have_the_reference_s_names_and_shapes),
        cmocka_unit_test(sequence_features_follow_the_letters),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
