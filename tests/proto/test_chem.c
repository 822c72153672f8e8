/* test_chem.c: atom14, frames and torsions of residues with known geometry. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "proto/chem/atom14.h"
#include "proto/chem/element.h"
#include "proto/chem/frames.h"
#include "proto/chem/geometry.h"
#include "proto/chem/torsions.h"

enum { N_RES = 3, ASP = 3, GLY = 7, TRP = 17 };

/* An aspartate with chi1 and chi2 between a glycine and an X; the backbone is turned by psi and phi
 * of the degrees below. All atoms are present, but X has none. */
typedef struct chain_case {
    uint8_t aatype[N_RES];
    float positions[N_RES * FM_N_ATOM37 * 3];
    uint8_t mask[N_RES * FM_N_ATOM37];
    fm_atom37 chain;
} chain_case;

enum { OMEGA_DEGREES = 175, PHI_DEGREES = -63, OXYGEN_DEGREES = 137, CHI1 = 57, CHI2 = -121 };

static void put(chain_case *test, size_t residue, size_t atom, fm_vec3 at) {
    size_t cell = residue * FM_N_ATOM37 + atom;
    test->positions[cell * 3] = (float)at.x;
    test->positions[cell * 3 + 1] = (float)at.y;
    test->positions[cell * 3 + 2] = (float)at.z;
    test->mask[cell] = 1;
}

static void make_chain(chain_case *test) {
    memset(test, 0, sizeof *test);
    test->aatype[0] = GLY;
    test->aatype[1] = ASP;
    test->aatype[2] = FM_RESTYPE_X;
    test->chain = (fm_atom37){N_RES, test->aatype, test->positions, test->mask};
    fm_vec3 n0 = {1, 2, 3}, ca0 = {2.1, 2.9, 3.3}, c0 = {3.4, 2.2, 3.7};
    fm_vec3 n = fm_geometry_place(n0, ca0, c0, 1.33, 116, 140);
    fm_vec3 ca = fm_geometry_place(ca0, c0, n, 1.46, 121, OMEGA_DEGREES);
    fm_vec3 c = fm_geometry_place(c0, n, ca, 1.52, 111, PHI_DEGREES);
    fm_vec3 o = fm_geometry_place(n, ca, c, 1.23, 120, OXYGEN_DEGREES);
    fm_vec3 cb = fm_geometry_place(c, n, ca, 1.53, 110, -180);
    fm_vec3 cg = fm_geometry_place(n, ca, cb, 1.52, 113, CHI1);
    fm_vec3 od1 = fm_geometry_place(ca, cb, cg, 1.25, 118, CHI2);
    fm_vec3 od2 = fm_geometry_place(ca, cb, cg, 1.25, 118, CHI2 + 180);
    put(test, 0, FM_ATOM37_N, n0), put(test, 0, FM_ATOM37_CA, ca0), put(test, 0, FM_ATOM37_C, c0);
    put(test, 1, FM_ATOM37_N, n), put(test, 1, FM_ATOM37_CA, ca), put(test, 1, FM_ATOM37_C, c);
    put(test, 1, FM_ATOM37_O, o), put(test, 1, FM_ATOM37_CB, cb);
    put(test, 1, fm_atom37_from_name("CG", 2), cg);
    put(test, 1, fm_atom37_from_name("OD1", 3), od1);
    put(test, 1, fm_atom37_from_name("OD2", 3), od2);
}

static void check_angle(const float *sin_cos, double degrees) {
    double sine, cosine;
    fm_geometry_sincos(degrees, &sine, &cosine);
    assert_true(fabs(sin_cos[0] - sine) < 1e-5 && fabs(sin_cos[1] - cosine) < 1e-5);
}

static void torsions_are_the_angles_that_placed_the_atoms(void **state) {
    (void)state;
    chain_case test;
    float sin_cos[N_RES * FM_N_TORSION * 2], other[N_RES * FM_N_TORSION * 2];
    float mask[N_RES * FM_N_TORSION];
    make_chain(&test);
    fm_torsions_list(&test.chain, &(fm_torsions){sin_cos, other, mask});
    const float *aspartate = sin_cos + FM_N_TORSION * 2, *turned = other + FM_N_TORSION * 2;
    check_angle(aspartate, OMEGA_DEGREES);
    check_angle(aspartate + 2, PHI_DEGREES);
    check_angle(aspartate + 4, OXYGEN_DEGREES + 180); /* negated */
    check_angle(aspartate + 6, CHI1);
    check_angle(aspartate + 8, CHI2);
    check_angle(turned + 6, CHI1);
    check_angle(turned + 8, CHI2 + 180);
    const float expected[N_RES * FM_N_TORSION] = {[7] = 1, 1, 1, 1, 1, 0, 0};
    for (size_t i = 0; i < N_RES * FM_N_TORSION; i++)
        assert_true(mask[i] == expected[i]);
}

static void check_rotation(const float *matrix) {
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++) {
            float product = 0;
            for (int k = 0; k < 3; k++)
                product += matrix[4 * i + k] * matrix[4 * j + k];
            assert_true(fabsf(product - (i == j ? 1.0f : 0.0f)) < 1e-5f);
        }
    }
    const float last[4] = {0, 0, 0, 1};
    assert_memory_equal(matrix + 12, last, sizeof last);
}

static void frames_hold_the_atoms_where_they_should_be(void **state) {
    (void)state;
    chain_case test;
    float frames[N_RES * 8 * 16], others[N_RES * 8 * 16], tensor[N_RES * 16], backbone[N_RES];
    float exists[N_RES * 8], known[N_RES * 8], ambiguous[N_RES * 8], local[3];
    make_chain(&test);
    fm_rigid_list_groups(&test.chain, &(fm_rigid_groups){frames, exists, known, ambiguous, others});
    fm_rigid_list_backbone(&test.chain, tensor, backbone);
    const float has[N_RES * 8] = {1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1, 1, 0, 0};
    const float knows[N_RES * 8] = {1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 1};
    for (size_t i = 0; i < N_RES * 8; i++) {
        assert_true(exists[i] == has[i] && known[i] == knows[i]);
        assert_true(ambiguous[i] == (i == 8 + 5));
        if (exists[i]) check_rotation(frames + i * 16);
        int differs = memcmp(frames + i * 16, others + i * 16, 16 * sizeof *frames);
        assert_true((differs != 0) == (i == 8 + 5));
    }
    for (size_t i = 0; i < N_RES; i++) {
        assert_memory_equal(tensor + i * 16, frames + i * 8 * 16, 16 * sizeof *tensor);
        assert_true(backbone[i] == exists[i * 8]);
    }
    fm_rigid rigid;
    for (int i = 0; i < 3; i++) {
        memcpy(rigid.rotation[i], tensor + 16 + 4 * i, sizeof rigid.rotation[i]);
        rigid.translation[i] = tensor[16 + 4 * i + 3];
    }
    fm_rigid_to_local(&rigid, fm_atom37_position(&test.chain, 1, FM_ATOM37_C), local);
    assert_true(fabsf(local[0] - 1.52f) < 1e-4f && fabsf(local[1]) < 1e-4f &&
                fabsf(local[2]) < 1e-4f);
    fm_rigid_to_local(&rigid, fm_atom37_position(&test.chain, 1, FM_ATOM37_N), local);
    assert_true(local[1] > 0 && fabsf(local[2]) < 1e-4f);
}

static void atom14_is_atom37_in_another_order(void **state) {
    (void)state;
    chain_case test;
    float atom14_exists[N_RES * 14], atom37_exists[N_RES * 37], gt[N_RES * 14], alt[N_RES * 14];
    float positions[N_RES * 42], others[N_RES * 42], ambiguous[N_RES * 14];
    uint8_t to37[N_RES * 14], to14[N_RES * 37];
    make_chain(&test);
    fm_atom14_list_masks(&test.chain, &(fm_atom14_masks){atom14_exists, to37, to14, atom37_exists});
    fm_atom14_ground_truth(&test.chain, &(fm_atom14_truth){gt, positions, others, alt, ambiguous});
    for (size_t i = 0; i < N_RES; i++) {
        for (size_t place = 0; place < 14; place++) {
            size_t at = i * 14 + place;
            if (!atom14_exists[at]) continue;
            assert_int_equal(to14[i * 37 + to37[at]], place);
            assert_true(atom37_exists[i * 37 + to37[at]] == 1.0f);
            assert_true(gt[at] == fm_atom37_present(&test.chain, i, to37[at]));
            assert_memory_equal(positions + at * 3, fm_atom37_position(&test.chain, i, to37[at]),
                                3 * sizeof *positions);
            size_t twin = i * 14 + fm_atom14_swap[test.aatype[i]][place];
            assert_memory_equal(others + at * 3, positions + twin * 3, 3 * sizeof *positions);
            assert_true(ambiguous[at] == (i == 1 && (place == 6 || place == 7)));
        }
    }
    for (size_t at = 2 * 14; at < 3 * 14; at++)
        assert_true(atom14_exists[at] == 0.0f && gt[at] == 0.0f && to37[at] == 0);
}

/* The tables agree with each other: every heavy atom of a type has one place, and every chi one
 * group. */
static void the_tables_agree(void **state) {
    (void)state;
    for (size_t restype = 0; restype <= FM_N_RESTYPE; restype++) {
        uint64_t atoms = 0;
        for (size_t place = 0; place < FM_N_ATOM14; place++) {
            uint8_t atom = fm_atom14_to_atom37[restype][place];
            assert_int_equal(fm_atom14_swap[restype][fm_atom14_swap[restype][place]], place);
            if (atom == FM_ATOM37_NONE) continue;
            assert_false(atoms >> atom & 1);
            atoms |= 1ull << atom;
        }
        assert_true(atoms == fm_restype_atom37[restype]);
        const fm_chi_atoms *chi = &fm_residue_chi[restype];
        assert_true(chi->pi_periodic >> chi->n_chi == 0);
        for (size_t c = 0; c < chi->n_chi; c++) {
            for (int k = 0; k < 4; k++)
                assert_true(atoms >> chi->atom[c][k] & 1);
            if (c > 0) assert_memory_equal(chi->atom[c], chi->atom[c - 1] + 1, 3);
        }
    }
    assert_int_equal(fm_atom14_to_atom37[TRP][13], fm_atom37_from_name("CH2", 3));
}

static void pseudo_beta_of_glycine_is_ca(void **state) {
    (void)state;
    chain_case test;
    float beta[N_RES * 3], mask[N_RES];
    make_chain(&test);
    fm_atom14_pseudo_beta(&test.chain, beta, mask);
    assert_memory_equal(beta, fm_atom37_position(&test.chain, 0, FM_ATOM37_CA), 3 * sizeof *beta);
    assert_memory_equal(beta + 3, fm_atom37_position(&test.chain, 1, FM_ATOM37_CB),
                        3 * sizeof *beta);
    assert_true(mask[0] == 1.0f && mask[1] == 1.0f && mask[2] == 0.0f);
}

static void symbols_of_elements_come_back(void **state) {
    (void)state;
    assert_string_equal(fm_element_symbol(0), "X");
    assert_string_equal(fm_element_symbol(12), "MG");
    for (int i = 0; i < FM_N_ELEMENT; i++) {
        const char *symbol = fm_element_symbol((uint8_t)i);
        assert_int_equal(fm_element_from_symbol((const uint8_t *)symbol, strlen(symbol)), i);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(symbols_of_elements_come_back),
        cmocka_unit_test(torsions_are_the_angles_that_placed_the_atoms),
        cmocka_unit_test(frames_hold_the_atoms_where_they_should_be),
        cmocka_unit_test(atom14_is_atom37_in_another_order),
        cmocka_unit_test(the_tables_agree),
        cmocka_unit_test(pseudo_beta_of_glycine_is_ca),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
