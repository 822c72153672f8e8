/* test_complex_tensors.c: a decoded sample of a complex as arrays of the compact form. */
#include "proto/complex_sample.h"
#include "tests/testing/sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { N = 5, ROWS = 3, CYCLES = 3 };
static const fm_test_shape shape = {
    .n_res = N, .n_clust = ROWS, .n_cycle = CYCLES, .n_templ = 2, .n_atom = 9};

static int set_up(void **state) {
    static fm_arena arena;
    *state = &arena;
    return fm_arena_init(&arena, 16 << 20, NULL) ? -1 : 0;
}

static int tear_down(void **state) {
    fm_arena_fini(*state);
    return 0;
}

static void tensors_become_arrays_of_their_names(void **state) {
    fm_arena *arena = *state;
    fm_sample sample;
    fm_npz compact;
    uint32_t first[CYCLES + 1];
    fm_error error = {.message = ""};
    fm_test_sample(&shape, 1, 2, 1, arena, &sample);
    if (fm_complex_sample_list(&sample, 1, arena, &compact, first, &error)) {
        fail_msg("%s", error.message);
    }
    assert_true(fm_complex_sample_is_compact(&compact));
    const fm_npy *atoms = fm_npz_find(&compact, "template_atoms");
    assert_non_null(atoms);
    assert_string_equal(atoms->dtype, "<f4");
    assert_int_equal(atoms->rank, 4);
    assert_int_equal(atoms->count, 2 * N * 4 * 3);
    assert_ptr_equal(atoms->data,
                     fm_sample_find(&sample, FM_T_COMPLEX_TEMPLATE_ATOMS, FM_SHARED)->data);
    assert_string_equal(fm_npz_find(&compact, "ref_charge")->dtype, "|i1");
    assert_string_equal(fm_npz_find(&compact, "atom_perm/data")->dtype, "<i2");
    assert_int_equal(fm_npz_find(&compact, "msa")->shape[0], ROWS);
    assert_int_equal(first[1], ROWS);
}

/* The rows of later cycles follow, and those of cycles that are not asked for are left out. */
static void rows_of_cycles_follow_each_other(void **state) {
    fm_arena *arena = *state;
    fm_sample sample;
    fm_npz compact;
    uint32_t first[CYCLES + 1];
    fm_test_sample(&shape, 1, 2, 1, arena, &sample);
    assert_int_equal(fm_complex_sample_list(&sample, 2, arena, &compact, first, NULL), FM_OK);
    assert_int_equal(first[0], 0);
    assert_int_equal(first[1], ROWS);
    assert_int_equal(first[2], 2 * ROWS + 1);
    static const struct {
        const char *name;
        fm_tensor_id id;
    } arrays[] = {{"msa", FM_T_COMPLEX_MSA}, {"deletion", FM_T_COMPLEX_DELETION}};
    for (size_t k = 0; k < 2; k++) {
        const fm_npy *array = fm_npz_find(&compact, arrays[k].name);
        assert_int_equal(array->shape[0], 2 * ROWS + 1);
        assert_int_equal(array->count, (2 * ROWS + 1) * N);
        for (uint32_t c = 0; c < 2; c++) {
            const fm_tensor_view *view = fm_sample_find(&sample, arrays[k].id, c);
            assert_memory_equal((const uint8_t *)array->data + first[c] * N, view->data,
                                view->bytes);
        }
    }
}

static void other_samples_are_refused(void **state) {
    fm_arena *arena = *state;
    fm_sample sample;
    fm_npz compact;
    uint32_t first[CYCLES + 1];
    fm_error error = {.message = ""};
    const fm_test_shape chain = {.n_res = N, .n_clust = 2, .n_extra = 2, .n_cycle = 1};
    fm_test_sample(&chain, 1, 2, 1, arena, &sample);
    assert_int_equal(fm_complex_sample_list(&sample, 1, arena, &compact, first, &error),
                     FM_ERR_DATA);
    assert_string_equal(error.message, "the sample of test_2 is not one of a complex");
    fm_test_sample(&shape, 1, 2, 1, arena, &sample);
    sample.n_tensor--; /* the last cycle's deletions */
    assert_int_equal(fm_complex_sample_list(&sample, CYCLES, arena, &compact, first, &error),
                     FM_ERR_DATA);
    assert_string_equal(error.message, "deletion: cycle 2 of 3 has no rows");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_become_arrays_of_their_names),
        cmocka_unit_test(rows_of_cycles_follow_each_other),
        cmocka_unit_test(other_samples_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
