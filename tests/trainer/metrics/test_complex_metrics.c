/* test_complex_metrics.c: tests the scores of a predicted complex against cases with known results
 * and a plain computation over all pairs of atoms. DockQ of real chains is compared with another
 * program in tests/e2e/test_score.sh. */
#include "proto/base/rng.h"
#include "trainer/backend/normal.h"
#include "trainer/metrics/complex_metrics.h"
#include "trainer/metrics/structure_metrics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Two copies of a protein of residues with N, CA, C, O and CB; RNA with five atoms a residue; and a
 * ligand of four atoms, each a token. Chains are strands along z, side by side. */
enum {
    PROTEIN = 10,
    RNA = 6,
    LIGAND = 4,
    PER_RESIDUE = 5,
    TOKENS = 2 * PROTEIN + RNA + LIGAND,
    ATOMS = PER_RESIDUE * (2 * PROTEIN + RNA) + LIGAND,
    FIRST_LIGAND = ATOMS - LIGAND,
    PROTEIN_ATOMS = PROTEIN * PER_RESIDUE,
};
enum { A, B, R, L, CHAINS }; /* the chains */

typedef struct model {
    int64_t asym[TOKENS], entity[TOKENS], number[TOKENS], first[TOKENS + 1], centre[TOKENS];
    uint8_t kind[TOKENS], is_backbone[ATOMS];
    float x[3 * ATOMS];
    fm_labelled_complex complex;
} model;

static fm_arena arena;

static int set_up(void **state) {
    (void)state;
    return fm_arena_init(&arena, (size_t)1 << 24, NULL) ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    return 0;
}

static void assert_near(double found, double expected, double tolerance) {
    if (!(fabs(found - expected) <= tolerance)) fail_msg("%.9g is not %.9g", found, expected);
}

static float draw(uint32_t i, uint32_t what) {
    fm_philox_counter counter = {{i, what, 0, 0}};
    return (float)fm_uniform_two_sided(fm_philox(5, counter).word[0]);
}

static int chain_of(int64_t atom) {
    return atom < PROTEIN_ATOMS ? A : atom < 2 * PROTEIN_ATOMS ? B : atom < FIRST_LIGAND ? R : L;
}

static int64_t residue_of(int64_t atom) {
    return chain_of(atom) == L ? -1 : atom / PER_RESIDUE;
}

static void fill(model *m) {
    static const uint8_t kinds[CHAINS] = {FM_CHAIN_PROTEIN, FM_CHAIN_PROTEIN, FM_CHAIN_RNA,
                                          FM_CHAIN_LIGAND};
    static const float place[CHAINS][2] = {{0, 0}, {6, 0}, {0, 9}, {3, -3}};
    static const int64_t length[CHAINS] = {PROTEIN, PROTEIN, RNA, LIGAND};
    int64_t token = 0, atom = 0;
    for (int c = 0; c < CHAINS; c++) {
        for (int64_t i = 0; i < length[c]; i++, token++) {
            m->asym[token] = c;
            m->entity[token] = c == B ? A : c;
            m->number[token] = i;
            m->first[token] = m->centre[token] = atom;
            m->kind[token] = kinds[c];
            for (int k = 0; k < (c == L ? 1 : PER_RESIDUE); k++, atom++) {
                m->is_backbone[atom] = c < R && k < 4;
                m->x[3 * atom] = place[c][0] + 2 * draw((uint32_t)atom, 0);
                m->x[3 * atom + 1] = place[c][1] + 2 * draw((uint32_t)atom, 1);
                m->x[3 * atom + 2] = (float)(3 * i) + draw((uint32_t)atom, 2);
            }
        }
    }
    m->first[TOKENS] = atom;
    assert_int_equal(token, TOKENS);
    assert_int_equal(atom, ATOMS);
    m->complex = (fm_labelled_complex){TOKENS,    ATOMS,    m->asym,   m->entity,
                                       m->number, m->first, m->centre, m->x};
}

/* Turns by 90 degrees about z and moves. */
static void turn(model *m) {
    for (int i = 0; i < ATOMS; i++) {
        float x = m->x[3 * i], y = m->x[3 * i + 1];
        m->x[3 * i] = -y + 3;
        m->x[3 * i + 1] = x - 7;
        m->x[3 * i + 2] += 11;
    }
}

static void shift(model *m, int64_t first, int64_t end, float x, float y, float z) {
    for (int64_t i = first; i < end; i++) {
        m->x[3 * i] += x;
        m->x[3 * i + 1] += y;
        m->x[3 * i + 2] += z;
    }
}

static void add_noise(model *m, float size) {
    for (uint32_t i = 0; i < 3 * ATOMS; i++)
        m->x[i] += size * draw(i, 7);
}

/* The ligand's last two atoms are symmetric. */
static fm_complex_comparison compare(const model *predicted, const model *truth,
                                     const float *resolved) {
    static const int32_t swap_last[8] = {0, 1, 2, 3, 0, 1, 3, 2};
    const fm_atom_orders orders = {FIRST_LIGAND, LIGAND, 2, swap_last};
    const fm_compared_complex pair = {.predicted = &predicted->complex,
                                      .truth = &truth->complex,
                                      .resolved = resolved,
                                      .orders = &orders,
                                      .n_orders = 1,
                                      .kind = predicted->kind,
                                      .residue = predicted->number,
                                      .is_backbone = predicted->is_backbone};
    fm_complex_comparison comparison;
    fm_error error = {0};
    fm_arena_reset(&arena);
    assert_int_equal(fm_compare_complex(&pair, &arena, &comparison, &error), FM_OK);
    assert_int_equal(comparison.n_chain, CHAINS);
    return comparison;
}

static const float *all_resolved(void) {
    static float resolved[ATOMS];
    for (int i = 0; i < ATOMS; i++)
        resolved[i] = 1;
    return resolved;
}

static const fm_compared_interface *find(const fm_complex_comparison *c, int64_t a, int64_t b) {
    for (int64_t i = 0; i < c->n_interface; i++)
        if (c->interfaces[i].a == a && c->interfaces[i].b == b) return &c->interfaces[i];
    fail_msg("chains %d and %d do not touch", (int)a, (int)b);
    return NULL;
}

static void expect_perfect(const fm_complex_comparison *c) {
    assert_true(c->lddt == 1);
    for (int64_t i = 0; i < CHAINS; i++)
        assert_true(c->chains[i].kind == FM_CHAIN_LIGAND ? isnan(c->chains[i].lddt)
                                                         : c->chains[i].lddt == 1);
    assert_true(c->n_interface > 2);
    for (int64_t i = 0; i < c->n_interface; i++)
        assert_true(c->interfaces[i].lddt == 1);
    const fm_dockq *dockq = &find(c, A, B)->dockq;
    assert_true(find(c, A, B)->has_dockq && dockq->n_contact > 0 && dockq->fnat == 1);
    assert_near(dockq->dockq, 1, 1e-9);
    assert_near(dockq->irmsd, 0, 1e-4);
    assert_near(dockq->lrmsd, 0, 1e-4);
    assert_near(c->chains[L].pocket_rmsd, 0, 1e-4);
    assert_true(c->chains[A].pocket_chain == -1 && isnan(c->chains[A].pocket_rmsd));
}

static void a_moved_truth_is_perfect(void **state) {
    (void)state;
    model truth, predicted;
    fill(&truth), fill(&predicted);
    turn(&predicted);
    fm_complex_comparison c = compare(&predicted, &truth, all_resolved());
    expect_perfect(&c);
    assert_int_equal(c.chains[A].copy, A);
    assert_int_equal(c.chains[R].n_known, RNA * PER_RESIDUE);
}

/* The copies of the protein and two atoms of the ligand have each other's structure. */
static void exchanged_names_are_perfect(void **state) {
    (void)state;
    model truth, predicted;
    const size_t chain = 3 * PROTEIN_ATOMS, atom = 3;
    fill(&truth), fill(&predicted);
    memcpy(predicted.x, truth.x + chain, chain * sizeof(float));
    memcpy(predicted.x + chain, truth.x, chain * sizeof(float));
    float *last = predicted.x + 3 * (ATOMS - 1), *before = last - 3;
    memcpy(last, truth.x + 3 * (ATOMS - 2), atom * sizeof(float));
    memcpy(before, truth.x + 3 * (ATOMS - 1), atom * sizeof(float));
    turn(&predicted);
    fm_complex_comparison c = compare(&predicted, &truth, all_resolved());
    expect_perfect(&c);
    assert_int_equal(c.chains[A].copy, B);
    assert_int_equal(c.chains[B].copy, A);
    assert_int_equal(c.label[ATOMS - 1], ATOMS - 2);
}

/* 3, 4 and 12 Å make 13 Å. */
static void a_shifted_ligand_has_that_rmsd(void **state) {
    (void)state;
    model truth, predicted;
    fill(&truth), fill(&predicted);
    shift(&predicted, FIRST_LIGAND, ATOMS, 3, 4, 12);
    turn(&predicted);
    fm_complex_comparison c = compare(&predicted, &truth, all_resolved());
    assert_near(c.chains[L].pocket_rmsd, 13, 1e-4);
    assert_true(c.chains[A].lddt == 1 && find(&c, A, L)->lddt < 1);
}

/* One protein and the ligand have turned together by 180 degrees about the line x = 0, z = 4.5. The
 * turn brings the symmetric atoms to each other's places, so a superposition of all chains would
 * exchange them. In the pocket, which has turned, too, they are not exchanged. */
static void symmetric_atoms_are_ordered_in_the_pocket(void **state) {
    (void)state;
    static const float ligand[LIGAND][3] = {
        {0, -4, 4.5F}, {0, -5, 4.5F}, {0, -4, 6.5F}, {0, -4, 2.5F}};
    model truth, predicted;
    fill(&truth), fill(&predicted);
    memcpy(truth.x + 3 * FIRST_LIGAND, ligand, sizeof ligand);
    memcpy(predicted.x, truth.x, sizeof truth.x);
    for (int64_t i = 0; i < ATOMS; i++) {
        if (chain_of(i) != A && chain_of(i) != L) continue;
        predicted.x[3 * i] = -predicted.x[3 * i];
        predicted.x[3 * i + 2] = 9 - predicted.x[3 * i + 2];
    }
    fm_complex_comparison c = compare(&predicted, &truth, all_resolved());
    assert_int_equal(c.chains[A].copy, A);
    assert_int_equal(c.label[ATOMS - 1], ATOMS - 1);
    assert_int_equal(c.chains[L].pocket_chain, A);
    assert_near(c.chains[L].pocket_rmsd, 0, 1e-4);
}

/* A chain that has moved as a whole has that LRMSD, keeps its own lDDT and loses contacts. */
static void a_shifted_chain_has_that_lrmsd(void **state) {
    (void)state;
    model truth, predicted;
    fill(&truth), fill(&predicted);
    shift(&predicted, PROTEIN_ATOMS, 2 * PROTEIN_ATOMS, 2, 3, 6);
    fm_complex_comparison c = compare(&predicted, &truth, all_resolved());
    const fm_dockq *dockq = &find(&c, A, B)->dockq;
    assert_true(c.chains[A].lddt == 1 && c.chains[B].lddt == 1);
    assert_near(dockq->lrmsd, 7, 1e-4);
    assert_true(dockq->fnat < 1 && dockq->irmsd > 1 && dockq->irmsd < 7);
    double sum = dockq->fnat + 1 / (1 + pow(dockq->irmsd / 1.5, 2)) + 1 / (1 + pow(7 / 8.5, 2));
    assert_near(dockq->dockq, sum / 3, 1e-6);
}

/* -- a plain computation */

static double apart(const model *m, int64_t i, int64_t k) {
    double sum = 0;
    for (int axis = 0; axis < 3; axis++) {
        double d = (double)m->x[3 * i + axis] - (double)m->x[3 * k + axis];
        sum += d * d;
    }
    return sqrt(sum);
}

/* lDDT of the pairs of chains a and b; of all pairs if a is below 0. */
static double plain_lddt(const model *p, const model *t, const float *resolved, int a, int b) {
    double kept = 0, pairs = 0;
    for (int64_t i = 0; i < ATOMS; i++) {
        for (int64_t k = 0; k < i; k++) {
            int one = chain_of(k), two = chain_of(i);
            bool is_same = one == two && (one == L ? i == k : residue_of(i) == residue_of(k));
            if ((a >= 0 && (one != a || two != b)) || is_same) continue;
            if (resolved[i] == 0 || resolved[k] == 0) continue;
            double d = apart(t, i, k), change = fabs(apart(p, i, k) - d);
            if (d >= (one == R || two == R ? 30 : 15)) continue;
            pairs++;
            kept += ((change < 0.5) + (change < 1) + (change < 2) + (change < 4)) / 4.0;
        }
    }
    return kept / pairs;
}

static double plain_fnat(const model *p, const model *t) {
    int contacts = 0, kept = 0;
    for (int64_t i = 0; i < PROTEIN; i++) {
        for (int64_t k = PROTEIN; k < 2 * PROTEIN; k++) {
            bool is_true = false, is_made = false;
            for (int64_t u = i * PER_RESIDUE; u < (i + 1) * PER_RESIDUE; u++) {
                for (int64_t v = k * PER_RESIDUE; v < (k + 1) * PER_RESIDUE; v++) {
                    is_true |= apart(t, u, v) < 5;
                    is_made |= apart(p, u, v) < 5;
                }
            }
            contacts += is_true;
            kept += is_true && is_made;
        }
    }
    return (double)kept / contacts;
}

/* Superposes the backbone of residues with an atom near the other protein. */
static double plain_irmsd(const model *p, const model *t) {
    double made[3 * ATOMS], known[3 * ATOMS];
    size_t n = 0;
    for (int64_t i = 0; i < 2 * PROTEIN_ATOMS; i++) {
        bool is_near = false;
        for (int64_t u = 0; u < 2 * PROTEIN_ATOMS; u++)
            for (int64_t v = 0; v < 2 * PROTEIN_ATOMS; v++)
                is_near |= residue_of(u) == residue_of(i) && chain_of(v) != chain_of(u) &&
                           apart(t, u, v) < 10;
        if (!is_near || i % PER_RESIDUE == 4) continue;
        for (int axis = 0; axis < 3; axis++) {
            made[3 * n + (size_t)axis] = (double)p->x[3 * i + axis];
            known[3 * n + (size_t)axis] = (double)t->x[3 * i + axis];
        }
        n++;
    }
    return fm_rmsd(n, made, known);
}

static void scores_agree_with_a_plain_computation(void **state) {
    (void)state;
    model truth, predicted;
    fill(&truth), fill(&predicted);
    add_noise(&predicted, 2);
    shift(&predicted, PROTEIN_ATOMS, 2 * PROTEIN_ATOMS, 1, 1, 0);
    const float *resolved = all_resolved();
    fm_complex_comparison c = compare(&predicted, &truth, resolved);
    for (int i = 0; i < ATOMS; i++)
        assert_int_equal(c.label[i], i);
    assert_near(c.lddt, plain_lddt(&predicted, &truth, resolved, -1, -1), 1e-12);
    assert_true(c.lddt > 0.2 && c.lddt < 0.9);
    for (int chain = A; chain < L; chain++)
        assert_near(c.chains[chain].lddt, plain_lddt(&predicted, &truth, resolved, chain, chain),
                    1e-12);
    for (int64_t i = 0; i < c.n_interface; i++)
        assert_near(c.interfaces[i].lddt,
                    plain_lddt(&predicted, &truth, resolved, (int)c.interfaces[i].a,
                               (int)c.interfaces[i].b),
                    1e-12);
    assert_near(find(&c, A, B)->dockq.fnat, plain_fnat(&predicted, &truth), 1e-12);
    assert_near(find(&c, A, B)->dockq.irmsd, plain_irmsd(&predicted, &truth), 1e-9);
}

static void unknown_atoms_do_not_count(void **state) {
    (void)state;
    model truth, predicted;
    float resolved[ATOMS];
    fill(&truth), fill(&predicted);
    add_noise(&predicted, 1);
    memcpy(resolved, all_resolved(), sizeof resolved);
    for (int i = 7; i < 19; i++)
        resolved[i] = 0;
    fm_complex_comparison c = compare(&predicted, &truth, resolved);
    assert_int_equal(c.chains[A].n_atom, PROTEIN_ATOMS);
    assert_int_equal(c.chains[A].n_known, PROTEIN_ATOMS - 12);
    assert_near(c.chains[A].lddt, plain_lddt(&predicted, &truth, resolved, A, A), 1e-12);
    memset(resolved, 0, sizeof resolved);
    c = compare(&predicted, &truth, resolved);
    assert_true(isnan(c.lddt) && isnan(c.chains[A].lddt) && isnan(c.chains[L].pocket_rmsd));
    assert_int_equal(c.n_interface, 0);
}

static void means_are_by_kind(void **state) {
    (void)state;
    model truth, predicted;
    fm_complex_means means;
    fill(&truth), fill(&predicted);
    add_noise(&predicted, 2);
    fm_complex_comparison c = compare(&predicted, &truth, all_resolved());
    fm_complex_means_of(&c, &means);
    assert_int_equal(means.lddt[FM_CHAIN_PROTEIN].n, 2);
    assert_near(means.lddt[FM_CHAIN_PROTEIN].mean, (c.chains[A].lddt + c.chains[B].lddt) / 2,
                1e-12);
    assert_int_equal(means.lddt[FM_CHAIN_LIGAND].n, 0);
    assert_true(isnan(means.lddt[FM_CHAIN_DNA].mean));
    assert_near(means.interface_lddt[FM_CHAIN_PROTEIN][FM_CHAIN_PROTEIN].mean, find(&c, A, B)->lddt,
                1e-12);
    assert_int_equal(means.interface_lddt[FM_CHAIN_LIGAND][FM_CHAIN_PROTEIN].n, 0);
    assert_near(means.dockq.mean, find(&c, A, B)->dockq.dockq, 1e-12);
    assert_near(means.pocket_rmsd.mean, c.chains[L].pocket_rmsd, 1e-12);
}

static void too_little_memory_is_an_error(void **state) {
    (void)state;
    model truth, predicted;
    fm_complex_comparison comparison;
    fm_error error = {0};
    fm_arena small;
    fill(&truth), fill(&predicted);
    const fm_compared_complex pair = {.predicted = &predicted.complex,
                                      .truth = &truth.complex,
                                      .resolved = all_resolved(),
                                      .kind = predicted.kind,
                                      .residue = predicted.number,
                                      .is_backbone = predicted.is_backbone};
    assert_int_equal(fm_arena_init(&small, 4096, NULL), FM_OK);
    assert_int_equal(fm_compare_complex(&pair, &small, &comparison, &error), FM_ERR_LIMIT);
    fm_arena_fini(&small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_moved_truth_is_perfect),
        cmocka_unit_test(exchanged_names_are_perfect),
        cmocka_unit_test(a_shifted_ligand_has_that_rmsd),
        cmocka_unit_test(symmetric_atoms_are_ordered_in_the_pocket),
        cmocka_unit_test(a_shifted_chain_has_that_lrmsd),
        cmocka_unit_test(scores_agree_with_a_plain_computation),
        cmocka_unit_test(unknown_atoms_do_not_count),
        cmocka_unit_test(means_are_by_kind),
        cmocka_unit_test(too_little_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
