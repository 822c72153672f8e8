/* test_digests_nonensembled.c: whole chains of public files, from structure and alignments to the
 * features that draw no random numbers, against the hashes of the reference's results. The
 * reference was run without templates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "featurizer/msa.h"
#include "featurizer/nonensembled.h"
#include "tests/featurizer/mmcif_case.h"
#include "tests/testing/alignments.h"
#include "tests/testing/arrays.h"

enum { MAX_FILE = 256 };

/* A chain with its parts; everything is in the arena of `files`. */
typedef struct sample_case {
    mmcif_case files;
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_part_msa msa;
    fm_array nonensembled[FM_NONENSEMBLED_N_ARRAY];
    size_t n_nonensembled;
    fm_structure_array chain[FM_STRUCTURE_N_ARRAY];
    size_t n_chain;
} sample_case;

typedef struct sample_tally {
    size_t n_sample, agree, disagree, refused_alike;
} sample_tally;

/* Reads the files in a row's list, "a|b|c" or a remark in parentheses, in this order. Files are
 * ordered by name, so each name gets a number in front. */
static size_t read_alignments(sample_case *test, const char *list, fm_msa_input *inputs) {
    fm_arena *arena = &test->files.arena;
    size_t n = 0;
    if (list[0] == '(') return 0;
    while (*list) {
        size_t size = strcspn(list, "|");
        char relative[1024], path[4096], *name = fm_arena_alloc(arena, size + 8);
        fm_bytes content;
        assert_true(n < MAX_FILE && name);
        snprintf(relative, sizeof relative, "dev/%.*s", (int)size, list);
        fm_test_reference_path(path, sizeof path, relative);
        assert_int_equal(fm_file_read_text(arena, path, FM_LIMIT_INPUT_BYTES, &content, NULL),
                         FM_OK);
        snprintf(name, size + 8, "%03zu_%s", n, strrchr(relative, '/') + 1);
        inputs[n++] = (fm_msa_input){.name = name, .content = content};
        list += size + (list[size] == '|');
    }
    return n;
}

/* path is "complete/1abc_A"; the structure is mmcif/1abc.cif. */
static fm_status make_sample(sample_case *test, const fm_test_digest *info, fm_error *error) {
    static const fm_mmcif_options reading = {.compat_openfold = true};
    static const fm_msa_options msa_options = {.compat_openfold = true};
    fm_msa_input inputs[MAX_FILE];
    char relative[256];
    fm_mmcif mmcif;
    const char *id = strchr(info->path, '/') + 1;
    snprintf(relative, sizeof relative, "dev/mmcif/%.*s.cif", (int)strcspn(id, "_"), id);
    assert_true(mmcif_case_read(&test->files, relative));
    fm_status status = mmcif_case_parse(&test->files, true, &mmcif, error);
    if (!status) {
        status = fm_structure_from_mmcif(&mmcif, &reading, info->chain, &test->sequence,
                                         &test->structure, error);
    }
    if (status) return status;
    fm_arena *arena = &test->files.arena;
    const fm_bytes query = {(const uint8_t *)test->sequence.sequence, test->sequence.n_res};
    size_t n = read_alignments(test, info->error, inputs);
    status = fm_msa_build(inputs, n, query, &msa_options, arena, &test->msa, NULL, error);
    const fm_nonensembled_input input = {
        .sequence = &test->sequence, .msa = &test->msa, .structure = &test->structure};
    if (!status) {
        status = fm_nonensembled_list_arrays(&input, arena, test->nonensembled,
                                             &test->n_nonensembled, error);
    }
    if (!status) {
        status = fm_structure_list_arrays(&test->sequence, &test->structure, id, arena, test->chain,
                                          &test->n_chain, error);
    }
    return status;
}

/* Checks a row of kind chain_features: structure, alignment, or one of the empty template
 * arrays. */
static bool chain_row_agrees(sample_case *test, const fm_test_array *expected) {
    const fm_structure_array *array = find_array(test->chain, test->n_chain, expected->key);
    if (array) return array_agrees(array, expected);
    if (strncmp(expected->key, "template_", 9) == 0) {
        size_t count = 1;
        for (size_t i = 0; i < expected->rank; i++)
            count *= expected->shape[i];
        return count == 0;
    }
    return fm_test_msa_agrees(expected, &test->msa, &test->files.arena);
}

static bool kind_is(const fm_test_digest *row, const char *name, const char *suffix) {
    size_t n = strlen(name);
    return strncmp(row->kind, name, n) == 0 && strcmp(row->kind + n, suffix) == 0;
}

/* Checks all rows of the sample of row `info`, whose kind ends in `suffix`. */
static void check_sample(sample_case *test, const fm_test_digests *digests,
                         const fm_test_digest *info, const char *suffix, sample_tally *tally) {
    fm_error error;
    fm_status status = make_sample(test, info, &error);
    size_t mark = fm_arena_mark(&test->files.arena);
    tally->n_sample++;
    for (size_t i = 0; i < digests->n_row; i++) {
        const fm_test_digest *row = &digests->row[i];
        if (strcmp(row->path, info->path) != 0) continue;
        bool is_chain = kind_is(row, "chain_features", suffix);
        if (!is_chain && !kind_is(row, "nonensembled", suffix)) continue;
        fm_arena_rewind(&test->files.arena, mark);
        bool agrees = false;
        if (strcmp(row->array.key, "ERROR") == 0) {
            if (status) tally->refused_alike++;
            if (status) continue;
        } else if (!status && is_chain) {
            agrees = chain_row_agrees(test, &row->array);
        } else if (!status) {
            agrees = fm_test_listed_agrees(&row->array, test->nonensembled, test->n_nonensembled);
        }
        tally->agree += agrees;
        tally->disagree += !agrees;
        if (agrees) continue;
        fprintf(stderr, "differs: %s %s %s%s%s\n", row->kind, row->path, row->array.key,
                status ? ": " : "", status ? error.message : "");
    }
}

/* Returns false when the reference data is missing. */
static bool check_table(const char *name, const char *suffix, sample_tally *ret_tally) {
    static sample_case test;
    fm_test_digests digests;
    if (!fm_test_digests_open(&digests, name)) return false;
    mmcif_case_init(&test.files);
    *ret_tally = (sample_tally){0};
    for (size_t i = 0; i < digests.n_row; i++) {
        const fm_test_digest *row = &digests.row[i];
        bool is_list = strcmp(row->array.key, "msa_files") == 0;
        if (is_list && kind_is(row, "sample_info", suffix)) {
            check_sample(&test, &digests, row, suffix, ret_tally);
        }
    }
    fm_arena_fini(&test.files.arena);
    fm_test_digests_close(&digests);
    printf("digests: %zu agree, %zu disagree (chain_features%s and nonensembled%s of %zu chains; "
           "%zu refused as the reference does)\n",
           ret_tally->agree, ret_tally->disagree, suffix, suffix, ret_tally->n_sample,
           ret_tally->refused_alike);
    return true;
}

/* The chain's structure is refused before its alignments are read, so it has no list of them. */
static void a_chain_whose_structure_fails_is_refused(void **state) {
    (void)state;
    static sample_case test;
    const fm_test_digest info = {.path = "complete/7qrr_F", .chain = "F", .error = "(none)"};
    fm_error error;
    if (!fm_test_reference()) skip();
    mmcif_case_init(&test.files);
    assert_int_not_equal(make_sample(&test, &info, &error), FM_OK);
    fm_arena_fini(&test.files.arena);
}

static void whole_chains_agree(void **state) {
    (void)state;
    sample_tally tally;
    if (!check_table("digests.tsv", "", &tally)) {
        fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    assert_int_equal(tally.n_sample, 50);
    assert_int_equal(tally.disagree, 0);
}

static void chains_without_their_bad_alignments_agree(void **state) {
    (void)state;
    sample_tally tally;
    if (!check_table("digests_extra.tsv", "_clean", &tally)) {
        fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    assert_int_equal(tally.n_sample, 3);
    assert_int_equal(tally.disagree, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_chains_agree),
        cmocka_unit_test(a_chain_whose_structure_fails_is_refused),
        cmocka_unit_test(chains_without_their_bad_alignments_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
