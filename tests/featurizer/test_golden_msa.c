/* test_golden_msa.c: alignments against the reference, bit for bit (golden/manifest.json and
 * dev/digests.tsv). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "featurizer/parse/a3m.h"
#include "featurizer/parse/stockholm.h"
#include "proto/base/file.h"
#include "proto/limits.h"
#include "tests/testing/alignments.h"
#include "tests/testing/testing.h"

#define ARENA_BYTES ((size_t)4 << 30)

static const fm_a3m_options a3m_compat = {.compat_openfold = true};
static const fm_stockholm_options stockholm_compat = {.compat_openfold = true};
static const fm_msa_options msa_compat = {.compat_openfold = true};

static int set_up(void **state) {
    static fm_arena arena;
    *state = &arena;
    return fm_arena_init(&arena, ARENA_BYTES, NULL) ? -1 : 0;
}

static int tear_down(void **state) {
    fm_arena_fini(*state);
    return 0;
}

static fm_bytes read_reference(fm_arena *arena, const char *folder, const char *path) {
    char relative[2048], whole[4096];
    fm_bytes content = {0};
    snprintf(relative, sizeof relative, "%s/%s", folder, path);
    fm_test_reference_path(whole, sizeof whole, relative);
    assert_int_equal(fm_file_read_text(arena, whole, FM_LIMIT_INPUT_BYTES, &content, NULL), FM_OK);
    return content;
}

/* Parses a text as the kind requires, in compat mode. */
static fm_status parse_as(const char *kind, fm_bytes text, fm_arena *arena, fm_alignment *alignment,
                          fm_error *error) {
    if (strcmp(kind, "parse_a3m") == 0) {
        return fm_a3m_parse(text, &a3m_compat, arena, alignment, error);
    }
    return fm_stockholm_parse(text, &stockholm_compat, arena, alignment, error);
}

static void check_parse_kind(fm_arena *arena, const char *kind, size_t expected) {
    fm_test_manifest *manifest = fm_test_manifest_open();
    assert_non_null(manifest);
    size_t n = 0;
    for (size_t i = 0; i < fm_test_manifest_count(manifest); i++) {
        const fm_test_item *item = fm_test_manifest_item(manifest, i);
        if (strcmp(item->kind, kind) != 0) continue;
        fm_arena_reset(arena);
        fm_bytes text = read_reference(arena, "golden", item->source);
        fm_alignment alignment;
        assert_int_equal(parse_as(kind, text, arena, &alignment, NULL), FM_OK);
        assert_int_equal(item->n_array, 3);
        for (size_t j = 0; j < item->n_array; j++) {
            if (!fm_test_alignment_agrees(&item->array[j], text, &alignment, arena)) {
                fail_msg("%s: %s", item->source, item->array[j].key);
            }
        }
        n++;
    }
    assert_int_equal(n, expected);
    fm_test_golden_line(kind, 3 * n, 3 * n);
    fm_test_manifest_close(manifest);
}

static void golden_parse_a3m(void **state) {
    check_parse_kind(*state, "parse_a3m", 18);
}

static void golden_parse_sto(void **state) {
    check_parse_kind(*state, "parse_sto", 59);
}

static void check_features(const fm_test_item *item, fm_arena *arena) {
    fm_msa_input inputs[16];
    fm_part_msa part;
    fm_error error;
    fm_arena_reset(arena);
    assert_true(item->n_file <= 16);
    for (size_t i = 0; i < item->n_file; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", item->source, item->files[i]);
        size_t reverse = item->n_file - 1 - i; /* the inputs' order must not matter */
        inputs[reverse] = (fm_msa_input){.name = item->files[i],
                                         .content = read_reference(arena, "golden", path)};
    }
    fm_status status =
        fm_msa_build(inputs, item->n_file, (fm_bytes){0}, &msa_compat, arena, &part, NULL, &error);
    if (status) fail_msg("%s: %s: %s", item->source, error.source, error.message);
    for (size_t j = 0; j < item->n_array; j++) {
        if (!fm_test_msa_agrees(&item->array[j], &part, arena)) {
            fail_msg("%s: %s", item->source, item->array[j].key);
        }
    }
}

static void golden_msa_features(void **state) {
    fm_test_manifest *manifest = fm_test_manifest_open();
    assert_non_null(manifest);
    size_t n = 0, n_array = 0;
    for (size_t i = 0; i < fm_test_manifest_count(manifest); i++) {
        const fm_test_item *item = fm_test_manifest_item(manifest, i);
        if (strcmp(item->kind, "msa_features") != 0) continue;
        check_features(item, *state);
        n_array += item->n_array;
        n++;
    }
    fm_test_golden_line("msa_features", n_array, n_array);
    assert_int_equal(n, 18);
    fm_test_manifest_close(manifest);
}

/* The outcomes for the files of a table. */
typedef struct digest_tally {
    size_t agree;         /* every array has the reference's bytes */
    size_t refused_alike; /* the reference fails and we refuse */
    size_t read_more;     /* the reference fails, we read */
    size_t refused_more;  /* we refuse what the reference reads */
    size_t differ;
} digest_tally;

static bool is_stockholm(const char *path, fm_bytes text) {
    size_t n = strlen(path);
    return (n > 4 && strcmp(path + n - 4, ".sto") == 0) ||
           (text.size > 11 && memcmp(text.data, "# STOCKHOLM", 11) == 0);
}

/* One file, read as its digest rows require. */
typedef struct digest_read {
    fm_bytes text;
    fm_alignment alignment;
    fm_part_msa part;
    fm_error error;
} digest_read;

static fm_status read_digest(const fm_test_digest *row, bool compat, fm_arena *arena,
                             digest_read *read) {
    read->text = read_reference(arena, "dev", row->path);
    if (strcmp(row->kind, "msa_features") != 0) {
        return parse_as(row->kind, read->text, arena, &read->alignment, &read->error);
    }
    fm_msa_input input = {"file", read->text, FM_MSA_A3M};
    if (is_stockholm(row->path, read->text)) input.format = FM_MSA_STOCKHOLM;
    return fm_msa_build(&input, 1, (fm_bytes){0}, compat ? &msa_compat : NULL, arena, &read->part,
                        NULL, &read->error);
}

static void say(const char *what, const fm_test_digest *row, const fm_error *error) {
    fprintf(stderr, "%s: %s %s: reference '%s %s', here '%s'\n", what, row->kind, row->path,
            row->error_class, row->error, error->message);
}

/* Checks the digest rows [first, last) of one file and kind. */
static void check_digest(const fm_test_digests *digests, size_t first, size_t last, bool compat,
                         fm_arena *arena, digest_tally *tally) {
    const fm_test_digest *row = &digests->row[first];
    bool expected = strcmp(row->array.key, "ERROR") != 0, agrees = true;
    digest_read read = {0};
    fm_arena_reset(arena);
    fm_status status = read_digest(row, compat, arena, &read);
    for (size_t i = first; !status && expected && i < last; i++) {
        const fm_test_array *array = &digests->row[i].array;
        agrees &= read.part.n_seq
                      ? fm_test_msa_agrees(array, &read.part, arena)
                      : fm_test_alignment_agrees(array, read.text, &read.alignment, arena);
    }
    if (status) assert_true(read.error.message[0] != 0);
    if (!expected) {
        *(status ? &tally->refused_alike : &tally->read_more) += 1;
    } else if (status) {
        tally->refused_more++;
        say("refused", row, &read.error);
    } else {
        *(agrees ? &tally->agree : &tally->differ) += 1;
        if (!agrees) say("differs", row, &read.error);
    }
}

static digest_tally check_table(const char *name, const char *kind, bool compat, fm_arena *arena) {
    fm_test_digests digests;
    digest_tally tally = {0};
    assert_true(fm_test_digests_open(&digests, name));
    for (size_t i = 0, next; i < digests.n_row; i = next) {
        const fm_test_digest *row = &digests.row[i];
        for (next = i + 1; next < digests.n_row; next++) {
            const fm_test_digest *other = &digests.row[next];
            if (strcmp(row->kind, other->kind) != 0 || strcmp(row->path, other->path) != 0) break;
        }
        if (strcmp(row->kind, kind) == 0) check_digest(&digests, i, next, compat, arena, &tally);
    }
    fm_test_digests_close(&digests);
    if (!compat) {
        printf("default reading: %zu files as the reference's, %zu others: %s in %s\n", tally.agree,
               tally.differ, kind, name);
        return tally;
    }
    size_t n_other = tally.differ + tally.read_more + tally.refused_more;
    printf("digests: %zu agree, %zu disagree: files of %s in %s\n",
           tally.agree + tally.refused_alike, n_other, kind, name);
    return tally;
}

/* In compat mode every file gives the reference's bytes, or is refused where the reference
 * fails. */
static void check_compat(const char *name, const char *kind, size_t refused_more, fm_arena *arena) {
    digest_tally tally = check_table(name, kind, true, arena);
    assert_true(tally.agree > 0);
    assert_int_equal(tally.differ, 0);
    assert_int_equal(tally.read_more, 0);
    assert_int_equal(tally.refused_more, refused_more);
}

static void digests_parse_a3m(void **state) {
    check_compat("digests.tsv", "parse_a3m", 0, *state);
    check_compat("digests_extra.tsv", "parse_a3m", 0, *state);
}

static void digests_parse_sto(void **state) {
    check_compat("digests.tsv", "parse_sto", 0, *state);
    check_compat("digests_extra.tsv", "parse_sto", 0, *state);
}

static void digests_msa_features(void **state) {
    check_compat("digests.tsv", "msa_features", 0, *state);
    /* easel's fasta.bad.2, fasta.bad.3 and fasta.odd.1 have a query without residues, from which
     * the reference makes features of width 0. Here a chain has at least one residue. */
    check_compat("digests_extra.tsv", "msa_features", 3, *state);
}

/* The default gives the same features wherever the reference gives any. It also reads other valid
 * files: NUL-terminated alignments, '.' gaps of Stockholm, annotation records, A2M padding. */
static void defaults_read_more(void **state) {
    digest_tally tally = check_table("digests.tsv", "msa_features", false, *state);
    assert_int_equal(tally.differ, 0);
    assert_int_equal(tally.refused_more, 0);
    assert_int_equal(tally.read_more, 50);
    /* rows of different lengths, and ChimeraX's test.sto, which ends without "//" */
    assert_int_equal(tally.refused_alike, 3);
    tally = check_table("digests_extra.tsv", "msa_features", false, *state);
    assert_int_equal(tally.differ, 0);
    /* easel's three again, scikit-bio's stockholm_multiple_msa with two alignments in one file,
     * whose rows the reference joins, and stockholm_missing_footer, which ends without "//". */
    assert_int_equal(tally.refused_more, 5);
}

int main(void) {
    if (!fm_test_reference()) {
        fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
        return FM_TEST_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(golden_parse_a3m, set_up, tear_down),
        cmocka_unit_test_setup_teardown(golden_parse_sto, set_up, tear_down),
        cmocka_unit_test_setup_teardown(golden_msa_features, set_up, tear_down),
        cmocka_unit_test_setup_teardown(digests_parse_a3m, set_up, tear_down),
        cmocka_unit_test_setup_teardown(digests_parse_sto, set_up, tear_down),
        cmocka_unit_test_setup_teardown(digests_msa_features, set_up, tear_down),
        cmocka_unit_test_setup_teardown(defaults_read_more, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
