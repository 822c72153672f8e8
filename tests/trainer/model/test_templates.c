/* test_templates.c: the template inputs that a step makes of a sample's templates equal the
 * reference's features, where those are not masked. */
#include "tests/trainer/common/golden.h"

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

/* Masked angles are 0; everything else is what it is with the reference's noise. */
static void check_masked(const fm_features *f, const fm_template_inputs *noisy,
                         const fm_template_inputs *clean) {
    enum { ROW = FM_TEMPLATE_ROW_FEATURES, ANGLES = 22, MASKS = 50 };
    for (size_t i = 0; i < f->n_res; i++) {
        const float *a = clean->rows + i * ROW, *b = noisy->rows + i * ROW;
        for (size_t k = 0; k < ROW; k++) {
            bool is_angle = k >= ANGLES && k < MASKS;
            bool is_masked = is_angle && !(b[MASKS + (k - ANGLES) / 2 % N_TORSION] > 0);
            assert_true(a[k] == (is_masked ? 0 : b[k]));
        }
    }
}

static void check_template(const golden *g, const fm_features *f, uint32_t t, fm_arena *arena) {
    fm_template_inputs made, clean;
    assert_true(fm_template_make(f, t, FM_COMPAT_OPENFOLD, arena, &made));
    assert_true(fm_template_make(f, t, FM_COMPAT_NONE, arena, &clean));
    enum { ROW = FM_TEMPLATE_ROW_FEATURES };
    check_masked(f, &made, &clean);
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

/* Reads cycle 0 of an array [1, T, N_res, ..., 2] of the full-size sample. */
static float *first_cycle(golden *g, const char *name) {
    const fm_npy *array = golden_find(g, "template_", name);
    float *values = take(g, array->count / 2, sizeof *values);
    for (uint64_t k = 0; k < array->count / 2; k++)
        values[k] = (float)golden_value(array, 2 * k);
    return values;
}

/* The crop of a whole training sample. Only unmasked angles are compared, so not those of its first
 * residue, which depend on the one before it. */
static void angles_of_a_sample_are_the_references(void **state) {
    (void)state;
    enum { N_TEMPL = 4, N_RES = 256, ROW = FM_TEMPLATE_ROW_FEATURES, PARTS = 2 * N_TORSION };
    golden g;
    golden_open(&g, "full/full_inputs.npz");
    const float *ids = first_cycle(&g, "aatype"), *atoms = first_cycle(&g, "all_atom_mask");
    const float *angles = first_cycle(&g, "torsion_angles_sin_cos");
    uint8_t *aatype = take(&g, (uint64_t)N_TEMPL * N_RES, sizeof *aatype);
    uint64_t *mask = take(&g, (uint64_t)N_TEMPL * N_RES, sizeof *mask);
    for (size_t k = 0; k < (size_t)N_TEMPL * N_RES * N_ATOM37; k++) {
        aatype[k / N_ATOM37] = (uint8_t)ids[k / N_ATOM37];
        mask[k / N_ATOM37] |= (uint64_t)(atoms[k] > 0) << k % N_ATOM37;
    }
    const fm_features f = {.n_res = N_RES,
                           .n_templ = N_TEMPL,
                           .template_aatype = aatype,
                           .template_all_atom_positions = first_cycle(&g, "all_atom_positions"),
                           .template_all_atom_mask = mask};
    size_t n_angle = 0;
    for (uint32_t t = 0; t < N_TEMPL; t++) {
        fm_template_inputs made;
        assert_true(fm_template_make(&f, t, FM_COMPAT_NONE, &g.arena, &made));
        for (size_t k = 0; k < (size_t)N_RES * PARTS; k++) {
            const float *row = made.rows + k / PARTS * ROW;
            if (!(row[50 + k % PARTS / 2] > 0)) continue;
            assert_true(row[22 + k % PARTS] == angles[(size_t)t * N_RES * PARTS + k]);
            n_angle++;
        }
    }
    assert_true(n_angle > 5000);
    golden_close(&g);
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
        assert_true(fm_template_make(&f, 0, FM_COMPAT_NONE, &arena, &made) == (bytes == 65536));
        fm_arena_fini(&arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_are_the_references),
        cmocka_unit_test(angles_of_a_sample_are_the_references),
        cmocka_unit_test(a_full_arena_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
