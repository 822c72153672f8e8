/* test_golden_nonensembled.c: the transforms that draw no random numbers, bit for bit: every chain
 * of the golden files, from the reference's own chain features, templates included. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "featurizer/msa.h"
#include "featurizer/nonensembled.h"
#include "proto/base/file.h"
#include "proto/limits.h"
#include "proto/npz.h"
#include "tests/testing/arrays.h"
#include "tests/testing/manifest.h"
#include "tests/testing/testing.h"

#define ARENA_BYTES ((size_t)4 << 30)

static void *take(fm_arena *arena, size_t count, size_t size) {
    void *data = fm_arena_calloc(arena, count, size);
    assert_non_null(data);
    return data;
}

static const fm_npy *find(const fm_npz *npz, const char *key) {
    const fm_npy *array = fm_npz_find(npz, key);
    if (!array) fail_msg("no array %s", key);
    return array;
}

static void read_features(fm_arena *arena, const char *name, fm_npz *ret_npz) {
    char relative[512], path[4096];
    fm_bytes bytes;
    fm_error error;
    snprintf(relative, sizeof relative, "golden/chain_features/%s.npz", name);
    fm_test_reference_path(path, sizeof path, relative);
    assert_int_equal(fm_file_read(arena, path, FM_LIMIT_INPUT_BYTES, &bytes, &error), FM_OK);
    assert_int_equal(fm_npz_parse(arena, bytes, ret_npz, &error), FM_OK);
}

/* Converts 0.0 and 1.0 to bytes. */
static const uint8_t *to_mask(fm_arena *arena, const fm_npy *array) {
    const float *from = array->data;
    uint8_t *mask = take(arena, array->count, 1);
    for (size_t i = 0; i < array->count; i++)
        mask[i] = from[i] != 0.0f;
    return mask;
}

static void make_msa(fm_arena *arena, const fm_npz *npz, fm_part_msa *ret_msa) {
    const fm_npy *msa = find(npz, "msa"), *deletions = find(npz, "deletion_matrix_int");
    const int32_t *ids = msa->data, *counts = deletions->data;
    uint8_t *cells = take(arena, msa->count, 1);
    uint16_t *deletion_matrix = take(arena, msa->count, sizeof *deletion_matrix);
    uint32_t *profile = take(arena, msa->shape[1] * FM_N_HHBLITS, sizeof *profile);
    for (size_t i = 0; i < msa->count; i++) {
        cells[i] = (uint8_t)ids[i];
        deletion_matrix[i] = (uint16_t)counts[i];
    }
    fm_msa_scalar.count(cells, msa->shape[0], msa->shape[1], profile);
    *ret_msa = (fm_part_msa){.n_seq = (uint32_t)msa->shape[0],
                             .n_res = (uint32_t)msa->shape[1],
                             .msa = cells,
                             .deletion_matrix = deletion_matrix,
                             .profile = profile};
}

static void make_structure(fm_arena *arena, const fm_npz *npz, fm_part_structure *ret_structure) {
    const fm_npy *positions = find(npz, "all_atom_positions");
    *ret_structure = (fm_part_structure){
        .n_res = (uint32_t)positions->shape[0],
        .all_atom_positions = positions->data,
        .all_atom_mask = to_mask(arena, find(npz, "all_atom_mask")),
        .resolution = *(const float *)find(npz, "resolution")->data,
        .is_distillation = *(const float *)find(npz, "is_distillation")->data != 0.0f,
    };
}

static void make_templates(fm_arena *arena, const fm_npz *npz,
                           fm_template_features *ret_templates) {
    const fm_npy *one_hot = find(npz, "template_aatype");
    const int64_t *hot = one_hot->data; /* float when there are none */
    size_t n_residue = one_hot->count / FM_N_HHBLITS;
    uint8_t *aatype = take(arena, n_residue, 1);
    for (size_t i = 0; i < one_hot->count; i++) {
        if (hot[i]) aatype[i / FM_N_HHBLITS] = (uint8_t)(i % FM_N_HHBLITS);
    }
    *ret_templates = (fm_template_features){
        .n_templ = (uint32_t)one_hot->shape[0],
        .n_res = (uint32_t)one_hot->shape[1],
        .template_aatype = aatype,
        .template_all_atom_positions = find(npz, "template_all_atom_positions")->data,
        .template_all_atom_mask = to_mask(arena, find(npz, "template_all_atom_mask")),
        .template_sum_probs = find(npz, "template_sum_probs")->data,
    };
}

/* Returns how many of the item's arrays differ. */
static size_t check_item(const fm_test_item *item, fm_arena *arena) {
    fm_npz npz;
    fm_part_msa msa;
    fm_part_structure structure;
    fm_template_features templates;
    fm_array arrays[FM_NONENSEMBLED_N_ARRAY];
    fm_error error;
    size_t n = 0, n_different = 0;
    fm_arena_reset(arena);
    bool is_predicted = strcmp(item->source, "6KWC") == 0;
    read_features(arena, is_predicted ? "6KWC_distill" : item->source, &npz);
    const fm_npy *letters = find(&npz, "sequence");
    const fm_part_sequence sequence = {(uint32_t)letters->count, letters->data};
    make_msa(arena, &npz, &msa);
    make_structure(arena, &npz, &structure);
    make_templates(arena, &npz, &templates);
    const fm_nonensembled_input input = {&sequence, &msa, &structure, &templates};
    fm_status status = fm_nonensembled_list_arrays(&input, arena, arrays, &n, &error);
    if (status) fail_msg("%s: %s", item->source, error.message);
    assert_int_equal(n, item->n_array);
    for (size_t k = 0; k < item->n_array; k++) {
        if (fm_test_listed_agrees(&item->array[k], arrays, n)) continue;
        fprintf(stderr, "differs: %s %s\n", item->source, item->array[k].key);
        n_different++;
    }
    return n_different;
}

static void every_chain_agrees(void **state) {
    (void)state;
    fm_test_manifest *manifest = fm_test_manifest_open();
    if (!manifest) {
        fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    fm_arena arena;
    assert_int_equal(fm_arena_init(&arena, ARENA_BYTES, NULL), FM_OK);
    size_t n_chain = 0, n_array = 0, n_different = 0;
    for (size_t i = 0; i < fm_test_manifest_count(manifest); i++) {
        const fm_test_item *item = fm_test_manifest_item(manifest, i);
        if (strcmp(item->kind, "nonensembled") != 0) continue;
        n_different += check_item(item, &arena);
        n_array += item->n_array;
        n_chain++;
    }
    fm_arena_fini(&arena);
    fm_test_manifest_close(manifest);
    fm_test_golden_line("nonensembled", n_array, n_array - n_different);
    assert_int_equal(n_chain, 23);
    assert_int_equal(n_different, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_chain_agrees)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
