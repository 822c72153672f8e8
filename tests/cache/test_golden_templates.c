/* test_golden_templates.c: template features against the reference's, bit for bit: from hits to
 * mappings, through the encoded parts, to arrays; with kalign where a hit is realigned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cache/build/kalign.h"
#include "featurizer/parse/hhr.h"
#include "featurizer/parse/hmmsearch.h"
#include "proto/npz.h"
#include "tests/featurizer/template_case.h"
#include "tests/testing/arrays.h"
#include "tests/testing/testing.h"

static bool has_kalign(void) {
    return system("command -v kalign >/dev/null 2>&1") == 0;
}

static fm_status run_kalign(void *context, fm_bytes hit, fm_bytes chain, fm_arena *arena,
                            const char **ret_hit_row, const char **ret_chain_row,
                            size_t *ret_n_column, fm_error *reterr) {
    (void)context;
    return fm_kalign_align(NULL, hit, chain, arena, ret_hit_row, ret_chain_row, ret_n_column,
                           reterr);
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* The item's template search file: the source itself, or the .hhr of the folder. */
static fm_bytes read_search(template_case *test, const char *source) {
    char path[1024], relative[800];
    fm_bytes text;
    bool file = ends_with(source, ".sto");
    snprintf(relative, sizeof relative, "golden/%s%s", source, file ? "" : "/pdb70_hits.hhr");
    fm_test_reference_path(path, sizeof path, relative);
    assert_int_equal(fm_file_read_text(&test->work, path, 1 << 28, &text, NULL), FM_OK);
    return text;
}

/* The chain's sequence: the item's, or that of the chain in its structure file. */
static fm_part_sequence find_query(template_case *test, const char *text, const char *chain_name) {
    if (text) return (fm_part_sequence){(uint32_t)strlen(text), text};
    char id[8] = {0};
    const fm_mmcif_chain *chain;
    memcpy(id, chain_name, 4);
    template_case_entry *entry = template_case_find(test, id);
    assert_int_equal(entry->status, FM_OK);
    assert_int_equal(fm_mmcif_find_chain(&entry->mmcif, chain_name + 5, &chain, NULL), FM_OK);
    return (fm_part_sequence){chain->n_res, chain->sequence};
}

/* The reference read only the hits whose structure exists. */
static fm_hits keep_known(template_case *test, const fm_hits *hits) {
    fm_hit *kept = fm_arena_alloc_array(&test->work, hits->n_hit, sizeof *kept);
    uint32_t n = 0;
    assert_non_null(kept);
    for (uint32_t i = 0; i < hits->n_hit; i++) {
        char path[1024];
        fm_bytes text;
        snprintf(path, sizeof path, "%s/%.4s.cif", test->folder,
                 (const char *)hits->hit[i].name.data);
        size_t mark = fm_arena_mark(&test->work);
        if (!fm_file_read(&test->work, path, 1 << 28, &text, NULL)) kept[n++] = hits->hit[i];
        fm_arena_rewind(&test->work, mark);
    }
    return (fm_hits){n, kept};
}

/* The chain's name in the path: ".../<id>_<chain>" or ".../<id>_<chain>/file". */
static void name_chain(const char *source, char out[64]) {
    const char *end = ends_with(source, ".sto") ? strrchr(source, '/') : source + strlen(source);
    const char *start = end;
    while (start > source && start[-1] != '/')
        start--;
    snprintf(out, 64, "%.*s", (int)(end - start), start);
}

/* Maps the item and makes its features; returns how many of its template arrays agree. */
static size_t check_item(const fm_test_manifest *manifest, size_t index, size_t *n_array) {
    const fm_test_item *item = fm_test_manifest_item(manifest, index);
    bool hmmsearch = ends_with(item->source, ".sto");
    bool chain_features = strcmp(item->kind, "chain_features") == 0;
    template_case test;
    char folder[512], chain[64];
    template_case_init(&test, fm_test_reference_path(folder, sizeof folder, "golden/inputs/mmcifs"),
                       true);
    name_chain(item->source, chain);
    fm_part_sequence query = find_query(&test, fm_test_item_text(manifest, index, "query"), chain);
    fm_bytes text = read_search(&test, item->source);
    fm_hits hits;
    fm_error error = {0};
    fm_status status =
        hmmsearch
            ? fm_hmmsearch_parse(text, (fm_bytes){(const uint8_t *)query.sequence, query.n_res},
                                 true, &test.work, &hits, &error)
            : fm_hhr_parse(text, true, &test.work, &hits, &error);
    assert_int_equal(status, FM_OK);
    if (hmmsearch) hits = keep_known(&test, &hits);
    fm_template_source source = template_case_source(&test);
    source.align = run_kalign;
    /* For the reference, the file of 1hf9 existed and was empty. */
    template_case_find(&test, "1hf9")->status = FM_ERR_DATA;
    const fm_template_options options = {
        .compat_openfold = true,
        .max_date = strstr(item->file, "date_2010") ? "2010-01-01" : "2099-01-01",
        .max_templates = chain_features ? 4 : 20,
        .keep_position = strstr(item->file, "__raw") != NULL,
    };
    fm_part_hits part;
    fm_template_features features;
    fm_array arrays[FM_TEMPLATES_N_ARRAY];
    status = fm_templates_map(&query, &hits, 1, true, &source, &test.work, &part, &error);
    if (!status) status = template_case_featurize(&test, &part, &options, &features, &error);
    if (!status) status = fm_templates_list_arrays(&features, &test.work, arrays, &error);
    if (status) print_message("%s: %s\n", item->file, error.message);
    assert_int_equal(status, FM_OK);
    size_t n_same = 0;
    for (size_t k = 0; k < item->n_array; k++) {
        if (strncmp(item->array[k].key, "template_", 9) != 0) continue;
        bool same = fm_test_listed_agrees(&item->array[k], arrays, FM_TEMPLATES_N_ARRAY);
        if (!same) print_message("%s %s differs\n", item->file, item->array[k].key);
        n_same += same;
        (*n_array)++;
    }
    template_case_fini(&test);
    return n_same;
}

static void check_kind(const char *kind, size_t n_expected) {
    fm_test_manifest *manifest = fm_test_manifest_open();
    if (!manifest) {
        print_message("skipped: no reference data\n");
        skip();
    }
    size_t n_item = 0, n_array = 0, n_same = 0, n_left = 0;
    for (size_t i = 0; i < fm_test_manifest_count(manifest); i++) {
        const fm_test_item *item = fm_test_manifest_item(manifest, i);
        if (strcmp(item->kind, kind) != 0 || !item->file || strstr(item->file, "distill")) continue;
        if (strstr(item->file, "realign") && !has_kalign()) {
            print_message("left out: %s needs the program kalign\n", item->file);
            n_left++;
            continue;
        }
        n_same += check_item(manifest, i, &n_array);
        n_item++;
    }
    fm_test_manifest_close(manifest);
    fm_test_golden_line(kind, n_array, n_same);
    assert_int_equal(n_item + n_left, n_expected);
    assert_int_equal(n_same, n_array);
}

static void templates_equal_the_reference(void **state) {
    (void)state;
    check_kind("templates", 23);
}

static void chains_templates_equal_the_reference(void **state) {
    (void)state;
    check_kind("chain_features", 22);
}

static const fm_npy *load_array(const fm_npz *npz, const char *name) {
    const fm_npy *array = fm_npz_find(npz, name);
    assert_non_null(array);
    return array;
}

/* When three residues of a hit are not in its chain, the reference copies the chain's last residue
 * for each of them. The item is a direct call and has no line in the manifest. */
static void copies_the_last_residue_as_the_reference(void **state) {
    (void)state;
    static const char inserted[] =
        "SEFKVTVCFGRTRVVVPCGDWWWGRMKVFSLIQQAVTRYRKAVAKDPNYWIQVHRLEHGDGGILDLDDILCDVADDKDRLVAVFDEQ";
    enum { N_RES = sizeof inserted - 1 };
    if (!fm_test_reference() || !has_kalign()) {
        print_message("skipped: needs the reference data and the program kalign\n");
        skip();
    }
    template_case test;
    char path[512];
    int32_t index[N_RES];
    template_case_init(&test, fm_test_reference_path(path, sizeof path, "golden/inputs/mmcifs"),
                       true);
    for (int i = 0; i < N_RES; i++)
        index[i] = i;
    const fm_hit hit = {.index = 1,
                        .name = {(const uint8_t *)"3zee_A", 6},
                        .aligned_cols = N_RES,
                        .n_query = N_RES,
                        .n_hit = N_RES,
                        .n_column = N_RES,
                        .query = inserted,
                        .hit = inserted,
                        .indices_query = index,
                        .indices_hit = index};
    const fm_hits hits = {1, &hit};
    const fm_part_sequence query = {N_RES, inserted};
    fm_template_source source = template_case_source(&test);
    source.align = run_kalign;
    fm_part_hits part;
    fm_template_features features;
    fm_bytes archive;
    fm_npz npz;
    const uint32_t chosen[] = {0};
    assert_int_equal(fm_templates_map(&query, &hits, 1, true, &source, &test.work, &part, NULL), 0);
    assert_int_equal(part.hit[0].fault, FM_HIT_MAPPED);
    assert_int_equal(fm_templates_featurize(&part, chosen, 1, false, template_case_load, &test,
                                            &test.work, &features, NULL),
                     FM_OK);
    fm_test_reference_path(path, sizeof path,
                           "golden/templates/3zee_A__realign_insertion_direct.npz");
    assert_int_equal(fm_file_read(&test.work, path, 1 << 28, &archive, NULL), FM_OK);
    assert_int_equal(fm_npz_parse(&test.work, archive, &npz, NULL), FM_OK);
    assert_memory_equal(features.template_sequence, load_array(&npz, "template_sequence")->data,
                        N_RES);
    assert_memory_equal(features.template_all_atom_positions,
                        load_array(&npz, "template_all_atom_positions")->data,
                        (size_t)N_RES * 37 * 3 * sizeof(float));
    const float *mask = load_array(&npz, "template_all_atom_mask")->data;
    for (size_t i = 0; i < (size_t)N_RES * 37; i++)
        assert_true(mask[i] == features.template_all_atom_mask[i]);
    assert_string_equal(features.template_domain_names[0], "3zee_A");
    template_case_fini(&test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_equal_the_reference),
        cmocka_unit_test(chains_templates_equal_the_reference),
        cmocka_unit_test(copies_the_last_residue_as_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
