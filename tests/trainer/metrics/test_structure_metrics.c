/* test_structure_metrics.c: tests structure metrics against values of other programs and against
 * cases worked by hand, and that they do not depend on the position and orientation of a
 * structure. */
#include "trainer/metrics/structure_metrics.h"
#include "trainer/metrics/superposition.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 150 };

typedef struct chain {
    size_t n;
    double truth[MOST][3], predicted[MOST][3];
} chain;

static fm_arena arena;

static int set_up(void **state) {
    (void)state;
    return fm_arena_init(&arena, (size_t)1 << 26, NULL) ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    return 0;
}

/* Rounded as in a PDB file. */
static double rounded(double x) {
    return floor(x * 1000 + 0.5) / 1000;
}

/* A bent helix. The prediction has noise and, from residue `hinge` on, is rotated by `angle`. */
static void make_chain(size_t n, double noise, size_t hinge, double angle, chain *c) {
    const double pi = 3.14159265358979323846;
    c->n = n;
    for (size_t i = 0; i < n; i++) {
        double k = (double)i, t = k * 100 * pi / 180;
        c->truth[i][0] = rounded(2.3 * cos(t) + 4 * sin(k * 0.11));
        c->truth[i][1] = rounded(2.3 * sin(t) + 5 * cos(k * 0.07));
        c->truth[i][2] = rounded(1.5 * k * 0.8 + 3 * sin(k * 0.31));
    }
    for (size_t i = 0; i < n; i++) {
        double p[3], k = (double)i;
        for (int a = 0; a < 3; a++)
            p[a] = c->truth[i][a] + noise * sin(1.7 * k * (a + 1) + 0.9 * a + 0.3 * k * k);
        if (i >= hinge) {
            const double *h = c->truth[hinge];
            double x = p[0] - h[0], z = p[2] - h[2];
            p[0] = h[0] + cos(angle) * x - sin(angle) * z;
            p[2] = h[2] + sin(angle) * x + cos(angle) * z;
        }
        c->predicted[i][0] = rounded(20 + p[1]);
        c->predicted[i][1] = rounded(-7 - p[0]);
        c->predicted[i][2] = rounded(5 + p[2]);
    }
}

static fm_tm_scores tm_of(const chain *c, size_t length) {
    fm_tm_scores scores;
    assert_int_equal(fm_tm_score(c->n, c->predicted[0], c->truth[0], length, &arena, &scores, NULL),
                     FM_OK);
    return scores;
}

static void assert_near(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance)) fail_msg("%.9f, expected %.9f", got, want);
}

/* RMSD, TM and GDT are the values that Zhang's TMscore (Debian tm-align 20190822) prints for these
 * chains, with 3 and 4 digits. lDDT and dRMSD were computed separately, straight from their
 * definitions. */
static void scores_are_those_of_other_programs(void **state) {
    (void)state;
    static const struct {
        size_t n;
        double noise;
        size_t hinge;
        double angle, rmsd, tm, gdt_ts, gdt_ha, lddt, drmsd;
    } known[] = {
        {60, 0.6, 35, 0.7, 3.417, 0.6150, 0.7583, 0.5583, 0.862745098, 1.080414321},
        {120, 3.5, 200, 0, 4.169, 0.5112, 0.4042, 0.1583, 0.362896825, 3.522962679},
        {20, 1.2, 12, 1.5, 3.182, 0.1098, 0.6875, 0.4500, 0.634831461, 1.976639624},
        {9, 0.4, 5, 0.6, 0.879, 0.4948, 0.9722, 0.8889, 0.868055556, 0.742348379},
        {150, 1.0, 70, 2.2, 37.213, 0.5168, 0.4567, 0.3217, 0.733354471, 33.477120876},
        {100, 0.0, 40, 1.0, 6.089, 0.6322, 0.6725, 0.6100, 0.981064238, 3.138113616},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        chain c;
        make_chain(known[i].n, known[i].noise, known[i].hinge, known[i].angle, &c);
        fm_tm_scores tm = tm_of(&c, c.n);
        assert_near(fm_rmsd(c.n, c.predicted[0], c.truth[0]), known[i].rmsd, 0.0006);
        assert_near(tm.tm, known[i].tm, 0.00006);
        assert_near(tm.gdt_ts, known[i].gdt_ts, 0.00006);
        assert_near(tm.gdt_ha, known[i].gdt_ha, 0.00006);
        assert_near(fm_lddt(c.n, c.predicted[0], c.truth[0], NULL), known[i].lddt, 1e-9);
        assert_near(fm_drmsd(c.n, c.predicted[0], c.truth[0]), known[i].drmsd, 1e-8);
    }
}

/* The first chain without residues 10..19 of the prediction, with the values of TMscore. */
static void residues_that_are_not_predicted_count_in_the_length(void **state) {
    (void)state;
    chain c;
    make_chain(60, 0.6, 35, 0.7, &c);
    memmove(c.truth[10], c.truth[20], 40 * sizeof c.truth[0]);
    memmove(c.predicted[10], c.predicted[20], 40 * sizeof c.predicted[0]);
    c.n = 50;
    fm_tm_scores tm = tm_of(&c, 60);
    assert_near(fm_rmsd(c.n, c.predicted[0], c.truth[0]), 3.603, 0.0006);
    assert_near(tm.tm, 0.5028, 0.00006);
    assert_near(tm.gdt_ts, 0.6083, 0.00006);
    assert_near(tm.gdt_ha, 0.4292, 0.00006);
}

static void d0_follows_its_formula(void **state) {
    (void)state;
    assert_near(fm_tm_d0(10), 0.5, 0);
    assert_near(fm_tm_d0(18), 0.5, 0);
    assert_near(fm_tm_d0(23), 0.68, 1e-12);   /* 1.24 * 2 - 1.8 */
    assert_near(fm_tm_d0(140), 4.4, 1e-12);   /* 1.24 * 5 - 1.8 */
    assert_near(fm_tm_d0(1015), 10.6, 1e-12); /* 1.24 * 10 - 1.8 */
}

/* Four points on a line, 3 Å apart; the last is predicted 0.75 Å too far: three of six distances
 * change by 0.75, which keeps 3 of 4 thresholds. */
static void cases_worked_by_hand(void **state) {
    (void)state;
    double truth[4][3] = {{0, 0, 0}, {3, 0, 0}, {6, 0, 0}, {9, 0, 0}};
    double moved[4][3] = {{0, 0, 0}, {3, 0, 0}, {6, 0, 0}, {9.75, 0, 0}};
    double local[4];
    assert_near(fm_lddt(4, moved[0], truth[0], local), (3 + 3 * 0.75) / 6, 1e-15);
    assert_near(local[0], (2 + 0.75) / 3, 1e-15);
    assert_near(local[3], 0.75, 1e-15);
    assert_near(fm_drmsd(4, moved[0], truth[0]), sqrt(3 * 0.5625 / 6), 1e-15);
    /* After centring, the errors are 3/4 and -1/4 of 0.75. */
    assert_near(fm_rmsd(4, moved[0], truth[0]), 0.75 * sqrt((9.0 / 16 + 3.0 / 16) / 4), 1e-12);
    /* An object and its mirror image, because no rotation may reflect: unit vectors on three axes
     * and their negatives, of lengths 1, 2, 3. The best rotation leaves the shortest pair wrong. */
    double image[6][3] = {{1, 0, 0}, {-1, 0, 0}, {0, 2, 0}, {0, -2, 0}, {0, 0, 3}, {0, 0, -3}};
    double mirror[6][3];
    memcpy(mirror, image, sizeof mirror);
    mirror[0][0] = -1, mirror[1][0] = 1;
    assert_near(fm_rmsd(6, mirror[0], image[0]), sqrt(2 * 4.0 / 6), 1e-9);
    /* Nothing is close enough to count. */
    double far[2][3] = {{0, 0, 0}, {15, 0, 0}};
    assert_true(isnan(fm_lddt(2, far[0], far[0], NULL)));
    assert_true(isnan(fm_drmsd(1, far[0], far[0])));
    assert_near(fm_rmsd(1, far[1], far[0]), 0, 1e-12);
}

static void a_moved_structure_scores_perfectly(void **state) {
    (void)state;
    for (size_t n = 1; n <= 40; n += 3) {
        chain c;
        make_chain(n, 0, n, 0, &c);
        fm_tm_scores tm = tm_of(&c, c.n);
        assert_near(tm.tm, 1, 1e-4); /* coordinates are rounded */
        assert_near(tm.gdt_ts, 1, 0);
        assert_near(tm.gdt_ha, 1, 0);
        assert_near(fm_rmsd(n, c.predicted[0], c.truth[0]), 0, 2e-3);
        if (n > 1) assert_near(fm_lddt(n, c.predicted[0], c.truth[0], NULL), 1, 0);
    }
}

static void a_motion_of_either_changes_nothing(void **state) {
    (void)state;
    chain c, moved;
    make_chain(70, 0.8, 30, 1.1, &c);
    fm_tm_scores tm = tm_of(&c, c.n);
    for (int turn = 0; turn < 5; turn++) {
        double a = 0.4 + turn, b = 2.1 * turn;
        const fm_motion motion = {.rotation = {{cos(a) * cos(b), -sin(a), cos(a) * sin(b)},
                                               {sin(a) * cos(b), cos(a), sin(a) * sin(b)},
                                               {-sin(b), 0, cos(b)}},
                                  .translation = {100 * turn, -3, 0.5 * turn}};
        moved = c;
        for (size_t i = 0; i < c.n; i++)
            fm_motion_apply(&motion, c.predicted[i], moved.predicted[i]);
        fm_tm_scores again = tm_of(&moved, moved.n);
        assert_near(again.tm, tm.tm, 1e-9);
        assert_near(again.gdt_ts, tm.gdt_ts, 1e-12);
        assert_near(fm_rmsd(c.n, moved.predicted[0], c.truth[0]),
                    fm_rmsd(c.n, c.predicted[0], c.truth[0]), 1e-9);
        assert_near(fm_lddt(c.n, moved.predicted[0], c.truth[0], NULL),
                    fm_lddt(c.n, c.predicted[0], c.truth[0], NULL), 1e-12);
    }
}

/* The motion found is the best: small changes of it make it worse. */
static void no_motion_near_the_superposition_is_better(void **state) {
    (void)state;
    chain c;
    make_chain(25, 2, 10, 1.4, &c);
    fm_motion best = fm_superpose(c.n, c.predicted[0], c.truth[0]);
    double rmsd = fm_rmsd(c.n, c.predicted[0], c.truth[0]);
    for (int a = 0; a < 3; a++) {
        for (int b = 0; b < 3; b++) { /* the matrix must be a rotation */
            double dot = 0;
            for (int k = 0; k < 3; k++)
                dot += best.rotation[a][k] * best.rotation[b][k];
            assert_near(dot, a == b, 1e-12);
        }
        for (int sign = -1; sign <= 1; sign += 2) {
            fm_motion other = best;
            int p = (a + 1) % 3, q = (a + 2) % 3;
            double sum = 0, t = 1e-3 * sign;
            for (int k = 0; k < 3; k++) {
                other.rotation[p][k] = cos(t) * best.rotation[p][k] - sin(t) * best.rotation[q][k];
                other.rotation[q][k] = sin(t) * best.rotation[p][k] + cos(t) * best.rotation[q][k];
            }
            other.translation[p] = cos(t) * best.translation[p] - sin(t) * best.translation[q];
            other.translation[q] = sin(t) * best.translation[p] + cos(t) * best.translation[q];
            other.translation[a] += 1e-3 * sign;
            for (size_t i = 0; i < c.n; i++) {
                double at[3];
                fm_motion_apply(&other, c.predicted[i], at);
                for (int k = 0; k < 3; k++)
                    sum += (at[k] - c.truth[i][k]) * (at[k] - c.truth[i][k]);
            }
            assert_true(sqrt(sum / (double)c.n) > rmsd);
        }
    }
}

/* -- all atoms */

enum { N_RES = 3 };

typedef struct residues {
    uint8_t aatype[N_RES];
    float truth[N_RES][14][3], predicted[N_RES][14][3];
    uint8_t mask[N_RES][14];
} residues;

static double all_atom(const residues *r) {
    const fm_structure_pair pair = {N_RES, r->aatype, r->predicted[0][0], r->truth[0][0],
                                    r->mask[0]};
    double lddt = -1;
    assert_int_equal(fm_lddt_all_atom(&pair, &arena, &lddt, NULL), FM_OK);
    return lddt;
}

/* Residues with all atoms of their types, predicted exactly. */
static void make_residues(const char *letters, residues *r) {
    *r = (residues){.aatype = {0}};
    for (int i = 0; i < N_RES; i++) {
        r->aatype[i] = fm_restype_from_letter(letters[i]);
        for (int a = 0; a < 14; a++) {
            r->mask[i][a] = fm_atom14_to_atom37[r->aatype[i]][a] != FM_ATOM37_NONE;
            r->truth[i][a][0] = 3.8f * (float)i + 0.1f * (float)a;
            r->truth[i][a][1] = a % 2 ? 1.3f * (float)a : -0.9f * (float)a;
            r->truth[i][a][2] = 0.4f * (float)(a * a % 7);
        }
    }
    memcpy(r->predicted, r->truth, sizeof r->truth);
}

static void swap_atoms(residues *r, int residue, int a, int b) {
    float kept[3];
    memcpy(kept, r->predicted[residue][a], sizeof kept);
    memcpy(r->predicted[residue][a], r->predicted[residue][b], sizeof kept);
    memcpy(r->predicted[residue][b], kept, sizeof kept);
}

static void swapped_names_of_symmetric_atoms_cost_nothing(void **state) {
    (void)state;
    static const struct {
        const char *letters;
        int a, b;
        bool symmetric;
    } pairs[] = {{"ARG", 9, 10, true}, {"ADG", 6, 7, true},  {"AEG", 7, 8, true},
                 {"AVG", 5, 6, true},  {"ALG", 6, 7, true},  {"ANG", 6, 7, false},
                 {"AQG", 7, 8, false}, {"ATG", 5, 6, false}, {"AIG", 5, 6, false}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        residues r;
        make_residues(pairs[i].letters, &r);
        assert_near(all_atom(&r), 1, 0);
        swap_atoms(&r, 1, pairs[i].a, pairs[i].b);
        if (pairs[i].symmetric) {
            assert_near(all_atom(&r), 1, 0);
        } else {
            assert_true(all_atom(&r) < 1);
        }
    }
    residues r;
    make_residues("FYF", &r); /* rings flip as a whole: both pairs or none */
    for (int i = 0; i < N_RES; i++) {
        swap_atoms(&r, i, 6, 7);
        swap_atoms(&r, i, 8, 9);
    }
    assert_near(all_atom(&r), 1, 0);
    swap_atoms(&r, 1, 6, 7);
    assert_true(all_atom(&r) < 1);
}

/* Two alanines and a glycine with one known atom each: three pairs. */
static void atoms_of_other_residues_that_are_known_count(void **state) {
    (void)state;
    residues r;
    make_residues("AAG", &r);
    memset(r.mask, 0, sizeof r.mask);
    for (int i = 0; i < N_RES; i++)
        r.mask[i][1] = 1;
    r.predicted[2][1][0] += 0.6f; /* along the line of the three: two distances lose one of four */
    assert_near(all_atom(&r), (1 + 0.75 + 0.75) / 3, 1e-12);
    r.mask[0][0] = 1; /* pairs within a residue do not count, and this atom is exact */
    r.predicted[0][0][1] += 0.01f;
    assert_near(all_atom(&r), (1 + 0.75 + 0.75 + 1 + 0.75) / 5, 1e-12);
    memset(r.mask, 0, sizeof r.mask);
    assert_true(isnan(all_atom(&r)));
}

/* All residue types, with unknown atoms and swapped names. The value was computed separately, by
 * atom names. Coordinates are rounded, so that no distance is close to a threshold by chance. */
static void all_atom_lddt_is_that_of_another_program(void **state) {
    (void)state;
    enum { N = 27 };
    static const char sequence[N + 1] = "MARDVLEFYGKPSTWHQNCIRDELFVY";
    static uint8_t aatype[N], mask[N][14];
    static float truth[N][14][3], predicted[N][14][3];
    for (int i = 0; i < N; i++) {
        aatype[i] = fm_restype_from_letter(sequence[i]);
        for (int a = 0; a < 14; a++) {
            double x = rounded(5 * cos(1.7 * i) + 1.1 * sin(2.1 * a + 0.4 * i) + 0.35 * a);
            double y = rounded(5 * sin(1.7 * i) + 1.2 * cos(1.3 * a + 0.2 * i));
            double z = rounded(1.5 * i + 0.9 * sin(0.7 * a * a + 0.5 * i));
            truth[i][a][0] = (float)x, truth[i][a][1] = (float)y, truth[i][a][2] = (float)z;
            predicted[i][a][0] = (float)rounded(x + 0.9 * sin(3.1 * i + 1.9 * a));
            predicted[i][a][1] = (float)rounded(y + 0.9 * sin(1.3 * i + 2.3 * a + 1));
            predicted[i][a][2] =
                (float)rounded(z + 0.9 * sin(2.2 * i + 0.7 * a + 2) + (i > 13 ? 1.5 : 0));
            mask[i][a] = (7 * i + 3 * a) % 11 != 5;
        }
    }
    static const struct {
        char letter;
        int a, b;
    } pairs[] = {{'R', 9, 10}, {'D', 6, 7}, {'E', 7, 8}, {'L', 6, 7}, {'V', 5, 6},
                 {'F', 6, 7},  {'F', 8, 9}, {'Y', 6, 7}, {'Y', 8, 9}};
    for (size_t i = 0; i < N; i += 2) {
        for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
            float kept[3];
            if (sequence[i] != pairs[p].letter) continue;
            memcpy(kept, predicted[i][pairs[p].a], sizeof kept);
            memcpy(predicted[i][pairs[p].a], predicted[i][pairs[p].b], sizeof kept);
            memcpy(predicted[i][pairs[p].b], kept, sizeof kept);
        }
    }
    const fm_structure_pair pair = {N, aatype, predicted[0][0], truth[0][0], mask[0]};
    double lddt;
    assert_int_equal(fm_lddt_all_atom(&pair, &arena, &lddt, NULL), FM_OK);
    assert_near(lddt, 0.734916766, 1e-9);
}

static void a_chain_is_scored_by_its_known_ca_atoms(void **state) {
    (void)state;
    enum { N = 40 };
    chain c, known;
    make_chain(N, 0.9, 20, 0.8, &c);
    static uint8_t aatype[N], mask[N][14];
    static float truth[N][14][3], predicted[N][14][3];
    known.n = 0;
    for (size_t i = 0; i < N; i++) {
        for (int k = 0; k < 3; k++) {
            truth[i][1][k] = (float)c.truth[i][k];
            predicted[i][1][k] = (float)c.predicted[i][k];
        }
        mask[i][1] = i % 7 != 3;
        if (!mask[i][1]) continue;
        memcpy(known.truth[known.n], c.truth[i], sizeof c.truth[i]);
        memcpy(known.predicted[known.n++], c.predicted[i], sizeof c.predicted[i]);
    }
    const fm_structure_pair pair = {N, aatype, predicted[0][0], truth[0][0], mask[0]};
    fm_structure_scores s;
    size_t used = arena.used;
    assert_int_equal(fm_structure_score(&pair, &arena, &s, NULL), FM_OK);
    assert_int_equal(arena.used, used);
    fm_tm_scores tm = tm_of(&known, known.n);
    assert_int_equal(s.n, known.n);
    assert_near(s.rmsd, fm_rmsd(known.n, known.predicted[0], known.truth[0]), 1e-5);
    assert_near(s.drmsd, fm_drmsd(known.n, known.predicted[0], known.truth[0]), 1e-5);
    assert_near(s.tm, tm.tm, 1e-5);
    assert_near(s.gdt_ts, tm.gdt_ts, 1e-12);
    assert_near(s.gdt_ha, tm.gdt_ha, 1e-12);
    assert_near(s.lddt_ca, fm_lddt(known.n, known.predicted[0], known.truth[0], NULL), 1e-12);
    assert_near(s.lddt, s.lddt_ca, 1e-12); /* there are only CA atoms */
    memset(mask, 0, sizeof mask);
    assert_int_equal(fm_structure_score(&pair, &arena, &s, NULL), FM_OK);
    assert_true(s.n == 0 && isnan(s.tm) && isnan(s.lddt_ca));
}

static void a_full_arena_is_an_error(void **state) {
    (void)state;
    fm_arena small;
    fm_tm_scores scores;
    chain c;
    fm_error error;
    make_chain(100, 0, 100, 0, &c);
    assert_int_equal(fm_arena_init(&small, 4096, NULL), FM_OK);
    assert_int_equal(fm_tm_score(c.n, c.predicted[0], c.truth[0], c.n, &small, &scores, &error),
                     FM_ERR_LIMIT);
    assert_int_equal(small.used, 0);
    fm_arena_fini(&small);
}

/* Predictions that are not finite must not hang the search. */
static void numbers_that_are_not_finite_end(void **state) {
    (void)state;
    chain c;
    make_chain(30, 0.5, 30, 0, &c);
    for (size_t i = 0; i < c.n; i++)
        c.predicted[i][0] = i % 2 ? NAN : 1e30;
    (void)tm_of(&c, c.n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_those_of_other_programs),
        cmocka_unit_test(residues_that_are_not_predicted_count_in_the_length),
        cmocka_unit_test(d0_follows_its_formula),
        cmocka_unit_test(cases_worked_by_hand),
        cmocka_unit_test(a_moved_structure_scores_perfectly),
        cmocka_unit_test(a_motion_of_either_changes_nothing),
        cmocka_unit_test(no_motion_near_the_superposition_is_better),
        cmocka_unit_test(swapped_names_of_symmetric_atoms_cost_nothing),
        cmocka_unit_test(atoms_of_other_residues_that_are_known_count),
        cmocka_unit_test(all_atom_lddt_is_that_of_another_program),
        cmocka_unit_test(a_chain_is_scored_by_its_known_ca_atoms),
        cmocka_unit_test(a_full_arena_is_an_error),
        cmocka_unit_test(numbers_that_are_not_finite_end),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
