/* test_complex_scores.c: the scores of complexes on cases that can be worked out by hand. The
 * references' own numbers are compared in trainer/parity/af3_scores.c. */
#include "tests/testing/complex_names.h"
#include "trainer/backend/cpu_threads.h"
#include "trainer/predict/complex/bins.h"
#include "trainer/predict/complex/disorder.h"
#include "trainer/predict/complex/scores.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 3, BINS = FM_COMPLEX_ERROR_BINS };

static fm_arena arena;

static int setup(void **state) {
    (void)state;
    return fm_arena_init(&arena, (size_t)64 << 20, NULL);
}

static int teardown(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    return 0;
}

static void expect(double found, double expected) {
    if (!(fabs(found - expected) <= 1e-7)) fail_msg("found %.9g, expected %.9g", found, expected);
}

/* Two tokens of a protein and an ion without a frame. Each token has one atom. */
static const int32_t token_chain[N] = {0, 0, 1}, atom_token[N] = {0, 1, 2}, residue[N] = {1, 2, 1};
static const uint8_t has_frame[N] = {1, 1, 0}, no_frame[N] = {0, 0, 0}, is_polymer[2] = {1, 0};

static fm_complex_layout make_layout(const uint8_t *frames) {
    fm_complex_layout layout = {.n_token = N,
                                .n_atom = N,
                                .n_chain = 2,
                                .token_chain = token_chain,
                                .token_has_frame = frames,
                                .atom_token = atom_token,
                                .atom_residue = residue,
                                .chain_is_polymer = is_polymer};
    assert_int_equal(fm_complex_layout_complete(&layout, &arena, NULL), FM_OK);
    return layout;
}

/* All weight on one class of each pair. */
static void choose(float logits[N * N * BINS], const int class[N * N]) {
    for (int i = 0; i < N * N * BINS; i++)
        logits[i] = i % BINS == class[i / BINS] ? 0 : -1e9F;
}

/* What the class adds to a TM-score: 19 tokens are the least of which d0 is made. */
static double term(int class) {
    double ratio = (class + 0.5) / 2 / (1.24 * cbrt(4) - 1.8);
    return 1 / (1 + ratio * ratio);
}

typedef struct scored {
    fm_complex_scores af3;
    fm_protenix_scores protenix;
} scored;

static const int pae_class[N * N] = {0, 2, 3, /**/ 1, 0, 9, /**/ 1, 1, 0};
static const int pde_class[N * N] = {0, 4, 6, /**/ 4, 0, 8, /**/ 6, 8, 0};
static const int distance_class[N * N] = {0, 18, 19, /**/ 18, 0, 40, /**/ 19, 40, 0};
static const double plddt[N] = {0.5, 0.7, 0.9};
static const float apart[N * 3] = {0, 0, 0, 4, 0, 0, 8, 0, 0};

static scored score(const uint8_t *frames) {
    static float logits[N * N * BINS];
    const fm_complex_layout layout = make_layout(frames);
    fm_complex_contacts contacts;
    fm_complex_pairs pairs;
    scored s;
    assert_int_equal(fm_complex_contacts_make(&layout, &contacts, NULL), FM_OK);
    assert_int_equal(fm_complex_pairs_make(&layout, &pairs, NULL), FM_OK);
    choose(logits, distance_class);
    fm_complex_reduce_contacts(&layout, logits, 0, N, &contacts);
    expect(contacts.probability[1], 1); /* class 18 ends at 7.94 Å, class 19 at 8.25 Å */
    expect(contacts.probability[2], 0);
    choose(logits, pae_class);
    fm_complex_reduce_pae(&layout, logits, 0, 1, &pairs);
    fm_complex_reduce_pae(&layout, logits + N * BINS, 1, 2, &pairs);
    choose(logits, pde_class);
    fm_complex_reduce_pde(&layout, logits, &contacts, 0, N, &pairs);
    expect((double)pairs.pae[5], 4.75);
    expect((double)pairs.pde[2], 3.25);
    assert_int_equal(fm_complex_score(&layout, &pairs, plddt, apart, 0.25, &arena, &s.af3, NULL),
                     FM_OK);
    assert_int_equal(fm_complex_score_protenix(&layout, &contacts, &pairs, plddt, apart, &arena,
                                               &s.protenix, NULL),
                     FM_OK);
    fm_complex_pairs_release(&pairs);
    fm_complex_contacts_release(&contacts);
    return s;
}

static void test_alphafold(void **state) {
    (void)state;
    const fm_complex_scores s = score(has_frame).af3;
    double ptm = (term(1) + term(0) + term(9)) / 3; /* row 0 has two far terms */
    double first = (term(0) + term(2) + term(3)) / 3;
    ptm = first > ptm ? first : ptm;
    expect(s.ptm, ptm);
    expect(s.iptm, term(3)); /* row 0 to the ion */
    expect(s.mean_plddt, 70);
    assert_false(s.has_clash);
    expect(s.ranking_score, 0.8 * term(3) + 0.2 * ptm + 0.5 * 0.25);
    double chain = (term(1) + term(0)) / 2;
    expect(s.chain_ptm[0], chain);
    assert_true(isnan(s.chain_ptm[1])); /* no frame */
    expect(s.chain_pair_iptm[0], chain);
    expect(s.chain_pair_iptm[1], term(3));
    expect(s.chain_pair_iptm[2], term(3));
    expect(s.chain_iptm[0], term(3));
    expect(s.chain_iptm[1], term(3));
    expect(s.chain_pair_pae_min[0], 0.25);
    expect(s.chain_pair_pae_min[1], 1.75);
    assert_true(isnan(s.chain_pair_pae_min[2]));
}

static void test_protenix(void **state) {
    (void)state;
    const fm_protenix_scores s = score(has_frame).protenix;
    expect(s.plddt, 70);
    /* Contacts: the diagonal with 0.25 Å, and the pair of the protein's tokens with 2.25 Å. */
    expect(s.gpde, (3 * 0.25 + 2 * 2.25) / 5);
    expect(s.chain_gpde[0], (2 * 0.25 + 2 * 2.25) / 4);
    expect(s.chain_gpde[1], 0.25);
    expect(s.chain_pair_gpde[1], 0);
    expect(s.iptm, term(3));
    expect(s.chain_ptm[1], 0);
    expect(s.chain_pair_iptm[0], 0);
    expect(s.chain_pair_iptm[1], term(3));
    expect(s.chain_pair_iptm_global[1], term(3));
    expect(s.chain_plddt[0], 0.6);
    expect(s.chain_pair_plddt[1], 0.7);
    expect(s.ranking_score, 0.8 * s.iptm + 0.2 * s.ptm);
}

static void test_no_frames(void **state) {
    (void)state;
    const scored s = score(no_frame);
    assert_true(isnan(s.af3.ptm) && isnan(s.af3.iptm) && isnan(s.af3.ranking_score));
    assert_true(isnan(s.af3.chain_pair_iptm[1]) && isnan(s.af3.chain_iptm[0]));
    expect(s.protenix.ptm, 0);
    expect(s.protenix.iptm, 0);
    expect(s.protenix.ranking_score, 0);
}

/* Rows have the same bits on one thread and on several, alone and together. */
static void test_threads(void **state) {
    (void)state;
    static float logits[N * N * BINS];
    const fm_complex_layout layout = make_layout(has_frame);
    fm_complex_pairs one, several;
    assert_int_equal(fm_complex_pairs_make(&layout, &one, NULL), FM_OK);
    assert_int_equal(fm_complex_pairs_make(&layout, &several, NULL), FM_OK);
    for (int i = 0; i < N * N * BINS; i++)
        logits[i] = (float)((i * 37) % 101) / 10;
    for (uint32_t row = N; row-- > 0;)
        fm_complex_reduce_pae(&layout, logits + row * N * BINS, row, 1, &one);
    fm_cpu_use_threads(2);
    fm_complex_reduce_pae(&layout, logits, 0, N, &several);
    fm_cpu_use_threads(1);
    for (int i = 0; i < N; i++) {
        assert_true(one.tm_all[i] == several.tm_all[i]);
        assert_true(one.tm_by_chain[2 * i + 1] == several.tm_by_chain[2 * i + 1]);
        assert_true(one.pae[4 * i] == several.pae[4 * i]);
    }
    logits[5] = (float)NAN;
    fm_complex_reduce_pae(&layout, logits, 0, 1, &one);
    assert_true(isnan(one.tm_all[0]) && isnan(one.pae[0]) && isnan(one.pae_least[0]));
    fm_complex_pairs_release(&one);
    fm_complex_pairs_release(&several);
}

/* Both variants of the innermost loop give the same bits. */
static void test_variants(void **state) {
    (void)state;
    float logits[FM_BINS];
    double first[FM_BINS], second[FM_BINS];
    fm_bins_means any, wide;
    if (!__builtin_cpu_supports("avx2")) skip();
    for (int b = 0; b < FM_BINS; b++) {
        logits[b] = (float)((b * 37) % 64) / 7;
        first[b] = 1 / (b + 1.3);
        second[b] = b * 0.7;
    }
    fm_bins_take_any(logits, first, second, &any);
    fm_bins_take_avx2(logits, first, second, &wide);
    assert_true(any.centre == wide.centre && any.near == wide.near);
    assert_true(any.first == wide.first && any.second == wide.second);
}

/* A protein of two chains with three atoms each, one a residue. */
static void find_clashes(const float position[18], bool *af3, bool *protenix) {
    static const int32_t chain[6] = {0, 0, 0, 1, 1, 1}, token[6] = {0, 1, 2, 3, 4, 5};
    static const int32_t number[6] = {1, 2, 3, 1, 2, 3};
    static const uint8_t polymers[2] = {1, 1}, frames[6] = {1, 1, 1, 1, 1, 1};
    fm_complex_layout layout = {.n_token = 6,
                                .n_atom = 6,
                                .n_chain = 2,
                                .token_chain = chain,
                                .token_has_frame = frames,
                                .atom_token = token,
                                .atom_residue = number,
                                .chain_is_polymer = polymers};
    assert_int_equal(fm_complex_layout_complete(&layout, &arena, NULL), FM_OK);
    assert_int_equal(fm_complex_find_clashes(&layout, position, af3, protenix, NULL), FM_OK);
}

static void test_clashes(void **state) {
    (void)state;
    bool af3, protenix;
    float x[18] = {0, 0, 0, 9, 0, 0, 18, 0, 0, -1, 9, 0, 9, 9, 0, 18, 9, 0};
    find_clashes(x, &af3, &protenix);
    assert_false(af3 || protenix);
    x[9] = 0.5F, x[10] = -0.5F; /* one of three atoms */
    find_clashes(x, &af3, &protenix);
    assert_false(af3 || protenix);
    x[13] = 1.0F; /* two of three, and two pairs */
    find_clashes(x, &af3, &protenix);
    assert_true(af3 && protenix);
    x[13] = 1.2F;
    find_clashes(x, &af3, &protenix);
    assert_false(af3 || protenix);
    x[10] = 9;
    x[6] = 0.5F; /* residues 1 and 3 of one chain */
    find_clashes(x, &af3, &protenix);
    assert_true(af3);
    assert_false(protenix);
    x[6] = (float)NAN;
    find_clashes(x, &af3, &protenix);
    assert_false(af3 || protenix);
    x[6] = 18;
    x[3] = 0.5F; /* neighbours in a chain never clash */
    find_clashes(x, &af3, &protenix);
    assert_false(af3 || protenix);
}

static void test_rank(void **state) {
    (void)state;
    static const double score[] = {0.5, (double)NAN, 0.7, 0.5, -99, 0.7};
    static const uint32_t expected[] = {2, 5, 0, 3, 4, 1};
    uint32_t order[6];
    fm_complex_rank(score, 6, order);
    assert_memory_equal(order, expected, sizeof order);
}

/* The peptide of complex_names.h with its atoms far apart, or all in one place. */
static void test_disorder(void **state) {
    (void)state;
    const fm_complex_atoms atoms = fm_test_complex_names();
    float position[FM_TEST_NAMES_ATOMS * 3] = {0};
    double fraction;
    for (int a = 0; a < FM_TEST_NAMES_ATOMS; a++)
        position[3 * a] = 20.0F * (float)a;
    fm_disorder_chain chain = {.n_atom = 9,
                               .n_residue = 2,
                               .atom_name = atoms.atom_name,
                               .atom_residue = atoms.atom_residue,
                               .residue_letter = atoms.residue_letter,
                               .position = position};
    int32_t surface[2];
    double mean[2];
    uint32_t n;
    assert_int_equal(fm_disorder_measure(&chain, &n, surface, mean, NULL), FM_OK);
    assert_int_equal(n, 2);
    assert_int_equal(surface[0], 475); /* 4 pi (3.05^2 + 3.27^2 + 3.16^2 + 2.8^2) */
    assert_int_equal(surface[1], 604); /* and 3.2^2 for the sulfur */
    expect(mean[0], 1);
    assert_int_equal(fm_complex_find_disorder(&atoms, position, &fraction, NULL), FM_OK);
    expect(fraction, 1);
    /* The first residue alone has water around it: its 84 Å^2 are the most of a glycine. */
    for (int a = 4; a < 9; a++)
        position[3 * a] = 80 + 0.02F * (float)a;
    assert_int_equal(fm_disorder_measure(&chain, &n, surface, mean, NULL), FM_OK);
    assert_true(surface[1] > 100 && surface[1] < 200);
    chain.atom_name = (const char *const[]){"N", "CA", "C", "OD", "N", "CA", "C", "O", "SG"};
    assert_int_equal(fm_disorder_measure(&chain, &n, surface, mean, NULL), FM_OK);
    assert_int_equal(n, 1); /* a residue without O is none */
}

static void test_layout(void **state) {
    (void)state;
    const fm_complex_atoms atoms = fm_test_complex_names();
    static const int32_t token[] = {0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    static const int32_t across[] = {0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8};
    static const uint8_t frames[10] = {1, 1};
    fm_complex_layout layout;
    fm_error error;
    assert_int_equal(fm_complex_layout_make(&atoms, 10, token, frames, &arena, &layout, NULL),
                     FM_OK);
    assert_int_equal(layout.chain_tokens[0], 2);
    assert_int_equal(layout.chain_tokens[1], 7);
    assert_int_equal(layout.chain_atoms[2], 1);
    assert_int_equal(layout.atom_residue[13], 2);
    assert_true(layout.chain_is_polymer[0] && !layout.chain_is_polymer[1]);
    assert_int_equal(fm_complex_layout_make(&atoms, 10, across, frames, &arena, &layout, &error),
                     FM_ERR_DATA);
    assert_string_equal(error.message, "token 1: found atoms of the chains A and B, expected one");
    assert_int_equal(fm_complex_layout_make(&atoms, 9, token, frames, &arena, &layout, &error),
                     FM_ERR_DATA);
    assert_string_equal(error.message, "atom 16: found token 9, expected 0 to 8");
    assert_int_equal(fm_complex_layout_make(&atoms, 11, token, frames, &arena, &layout, &error),
                     FM_ERR_DATA);
    assert_string_equal(error.message, "token 10: found no atoms, expected some");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alphafold), cmocka_unit_test(test_protenix),
        cmocka_unit_test(test_no_frames), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_variants),  cmocka_unit_test(test_clashes),
        cmocka_unit_test(test_rank),      cmocka_unit_test(test_disorder),
        cmocka_unit_test(test_layout),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
