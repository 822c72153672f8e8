/* test_templates.c: the template inputs that a step makes of a sample's templates equal the
 * reference's features of whole chains, bit for bit. */
#include "tests/trainer/golden.h"

#include "trainer/ops/template.h"
#include "trainer/step/template_inputs.h"

#include <assert.h>

enum { N_ATOM37 = 37, N_TORSION = 7, PSI = 2 };

static void *take(golden *g, uint64_t count, size_t size) {
    void *data = fm_arena_calloc(&g->arena, (size_t)count, size);
    assert_non_null(data);
    return data;
}

static const float *floats(const golden *g, const char *name) {
    const fm_npy *array = golden_find(g, "template_", name);
    assert_string_equal(array->dtype, "<f4");
    return array->data;
}

/* Reads the golden file's templates in the form of a sample. */
static fm_features read_templates(golden *g) {
    const fm_npy *ids = golden_find(g, "template_", "aatype");
    const float *present = floats(g, "all_atom_mask");
    uint8_t *aatype = take(g, ids->count, sizeof *aatype);
    uint64_t *mask = take(g, ids->count, sizeof *mask);
    for (uint64_t k = 0; k < ids->count; k++) {
        aatype[k] = (uint8_t)golden_value(ids, k);
        for (uint64_t atom = 0; atom < N_ATOM37; atom++)
            mask[k] |= (uint64_t)(present[k * N_ATOM37 + atom] != 0) << atom;
    }
    return (fm_features){.n_res = (uint32_t)ids->shape[1],
                         .n_templ = (uint32_t)ids->shape[0],
                         .template_aatype = aatype,
                         .template_all_atom_positions = floats(g, "all_atom_positions"),
                         .template_all_atom_mask = mask};
}

/* Compares `count` values per residue: column `first` of our `columns` with the reference's. */
static void check(const fm_features *f, uint32_t t, const char *what, const float *ours,
                  size_t columns, const float *reference, size_t count) {
    for (size_t i = 0; i < f->n_res; i++) {
        const float *a = ours + i * columns, *b = reference + (t * f->n_res + i) * count;
        for (size_t k = 0; k < count; k++) {
            if (a[k] != b[k]) {
                fail_msg("%s of template %u, residue %zu: %g, expected %g", what, t, i,
                         (double)a[k], (double)b[k]);
            }
        }
    }
}

static void check_template(const golden *g, const fm_features *f, uint32_t t, fm_arena *arena) {
    fm_template_inputs made;
    assert_true(fm_template_make(f, t, arena, &made));
    enum { ROW = FM_TEMPLATE_ROW_FEATURES };
    check(f, t, "pseudo_beta", made.pseudo_beta, 3, floats(g, "pseudo_beta"), 3);
    check(f, t, "pseudo_beta_mask", made.pseudo_beta_mask, 1, floats(g, "pseudo_beta_mask"), 1);
    check(f, t, "angles", made.rows + 22, ROW, floats(g, "torsion_angles_sin_cos"), 14);
    check(f, t, "other angles", made.rows + 36, ROW, floats(g, "alt_torsion_angles_sin_cos"), 14);
    const float *masks = floats(g, "torsion_angles_mask"), *atoms = floats(g, "all_atom_mask");
    check(f, t, "masks", made.rows + 50, ROW, masks, N_TORSION);
    for (size_t i = 0; i < f->n_res; i++) {
        size_t k = t * f->n_res + i;
        for (int id = 0; id < FM_TEMPLATE_CLASSES; id++)
            assert_true(made.rows[i * ROW + (size_t)id] == (id == f->template_aatype[k]));
        assert_true(made.psi_mask[i] == masks[k * N_TORSION + PSI]);
        const float *a = atoms + k * N_ATOM37;
        assert_true(made.backbone_mask[i] == a[0] * a[1] * a[2]);
    }
}

static void inputs_are_the_references(void **state) {
    (void)state;
    static const char *const chains[] = {"2crb_A", "4zey_A", "5kc1_A"};
    uint32_t n_templ = 0;
    for (size_t c = 0; c < sizeof chains / sizeof chains[0]; c++) {
        golden g;
        fm_arena arena;
        char name[64];
        snprintf(name, sizeof name, "golden/nonensembled/%s.npz", chains[c]);
        golden_open(&g, name);
        assert_int_equal(fm_arena_init(&arena, (size_t)64 << 20, NULL), FM_OK);
        fm_features f = read_templates(&g);
        for (uint32_t t = 0; t < f.n_templ; t++)
            check_template(&g, &f, t, &arena);
        n_templ += f.n_templ;
        fm_arena_fini(&arena);
        golden_close(&g);
    }
    print_message("%u templates\n", n_templ);
    assert_true(n_templ > 4);
}

static void a_full_arena_is_reported(void **state) {
    (void)state;
    enum { N = 9 };
    const uint8_t aatype[N] = {FM_TEMPLATE_CLASSES - 1};
    const uint64_t mask[N] = {0};
    static const float positions[N * N_ATOM37 * 3];
    const fm_features f = {.n_res = N,
                           .n_templ = 1,
                           .template_aatype = aatype,
                           .template_all_atom_positions = positions,
                           .template_all_atom_mask = mask};
    fm_template_inputs made;
    for (size_t bytes = 64; bytes <= 65536; bytes *= 32) {
        fm_arena arena;
        assert_int_equal(fm_arena_init(&arena, bytes, NULL), FM_OK);
        assert_true(fm_template_make(&f, 0, &arena, &made) == (bytes == 65536));
        fm_arena_fini(&arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_are_the_references),
        cmocka_unit_test(a_full_arena_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
