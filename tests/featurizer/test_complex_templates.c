/* test_complex_templates.c: templates of complexes: atoms of a crop's tokens, features of pairs;
 * against the reference (complex/templates), and at the edges of bins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "featurizer/complex/template_tokens.h"
#include "proto/base/file.h"
#include "proto/limits.h"
#include "proto/npz.h"
#include "tests/testing/manifest.h"
#include "tests/testing/testing.h"

#define ARENA_BYTES ((size_t)4 << 30)

enum { MAX_CHAIN = 8, N_TEMPLATE = 4, DENSE = 24 };

static int set_up(void **state) {
    static fm_arena arena;
    *state = &arena;
    return fm_arena_init(&arena, ARENA_BYTES, NULL) ? -1 : 0;
}

static int tear_down(void **state) {
    fm_arena_fini(*state);
    return 0;
}

typedef struct golden_case {
    fm_arena *arena;
    const char *name;
    fm_npz npz;
    uint32_t n_token, n_array, n_same;
    fm_mapped_hits chains[MAX_CHAIN];
    fm_mapped_hit hits[MAX_CHAIN][N_TEMPLATE];
    fm_paired_column *columns;
    uint8_t *class, *mask;
    float *positions;
} golden_case;

static const fm_npy *array_of(const golden_case *c, const char *name) {
    const fm_npy *array = fm_npz_find(&c->npz, name);
    if (!array) fail_msg("%s: no array %s", c->name, name);
    return array;
}

static void compare(golden_case *c, const char *name, const void *ours, size_t bytes) {
    const fm_npy *array = array_of(c, name);
    bool same = array->count * array->item_bytes == bytes && memcmp(array->data, ours, bytes) == 0;
    c->n_array++;
    c->n_same += same;
    if (!same) print_message("%s: %s differs\n", c->name, name);
}

static void *allocate(golden_case *c, size_t n, size_t size) {
    void *memory = fm_arena_calloc(c->arena, n, size);
    assert_non_null(memory);
    return memory;
}

static void read_case(golden_case *c) {
    char relative[256], whole[1024], name[64];
    fm_bytes content;
    snprintf(relative, sizeof relative, "complex/templates/%s.npz", c->name);
    fm_test_reference_path(whole, sizeof whole, relative);
    assert_int_equal(fm_file_read(c->arena, whole, FM_LIMIT_INPUT_BYTES, &content, NULL), FM_OK);
    assert_int_equal(fm_npz_parse(c->arena, content, &c->npz, NULL), FM_OK);
    for (int chain = 0; chain < MAX_CHAIN; chain++) {
        fm_mapped_hits *to = &c->chains[chain];
        to->hits = c->hits[chain];
        for (; to->n_hit < N_TEMPLATE; to->n_hit++) {
            fm_mapped_hit *hit = &c->hits[chain][to->n_hit];
            snprintf(name, sizeof name, "in/chain%d/hit%u/sequence", chain, to->n_hit);
            if (!fm_npz_find(&c->npz, name)) break;
            hit->letters = array_of(c, name)->data;
            snprintf(name, sizeof name, "in/chain%d/hit%u/positions", chain, to->n_hit);
            hit->positions = array_of(c, name)->data;
            snprintf(name, sizeof name, "in/chain%d/hit%u/mask", chain, to->n_hit);
            hit->mask = array_of(c, name)->data;
        }
    }
    const fm_npy *asym = array_of(c, "token_asym"), *number = array_of(c, "token_res");
    c->n_token = (uint32_t)asym->count;
    c->columns = allocate(c, c->n_token, sizeof *c->columns);
    for (uint32_t t = 0; t < c->n_token; t++) {
        c->columns[t] = (fm_paired_column){(uint32_t)((const int32_t *)asym->data)[t],
                                           (uint32_t)((const int32_t *)number->data)[t] - 1};
    }
}

/* The reference lists 24 atoms of each token; the first three are N, CA and C, and the fifth is CB.
 * Returns whether these agree with ours. */
static void compare_atoms(golden_case *c) {
    static const int dense[FM_N_TEMPLATE_ATOM] = {0, 1, 2, 4};
    const uint8_t *mask = array_of(c, "template_atom_mask")->data;
    const float *positions = array_of(c, "template_atom_positions")->data;
    bool same = true;
    for (size_t i = 0; i < (size_t)N_TEMPLATE * c->n_token; i++) {
        for (int k = 0; k < FM_N_TEMPLATE_ATOM; k++) {
            bool is_glycine = c->class[i] == 7 && k == FM_TEMPLATE_BETA;
            size_t theirs = i * DENSE + (size_t)(is_glycine ? 1 : dense[k]);
            same = same && (c->mask[i] >> k & 1) == mask[theirs];
            same = same && memcmp(c->positions + (i * FM_N_TEMPLATE_ATOM + (size_t)k) * 3,
                                  positions + theirs * 3, 3 * sizeof *positions) == 0;
        }
    }
    c->n_array += 2;
    c->n_same += same ? 2 : 0;
}

static void compare_pairs(golden_case *c) {
    size_t n_pair = (size_t)c->n_token * c->n_token;
    fm_template_pairs all = {
        allocate(c, N_TEMPLATE * n_pair, 1), allocate(c, N_TEMPLATE * n_pair, 1),
        allocate(c, N_TEMPLATE * n_pair, 1), allocate(c, N_TEMPLATE * n_pair, 3 * sizeof(float))};
    for (size_t k = 0; k < N_TEMPLATE; k++) {
        const fm_template_atoms atoms = {c->positions + k * c->n_token * FM_N_TEMPLATE_ATOM * 3,
                                         c->mask + k * c->n_token};
        const fm_template_pairs pairs = {all.bin + k * n_pair, all.beta_mask + k * n_pair,
                                         all.frame_mask + k * n_pair,
                                         all.unit_vector + k * n_pair * 3};
        fm_template_pairs_list(&atoms, c->n_token, &pairs);
    }
    compare(c, "template_distogram_bin", all.bin, N_TEMPLATE * n_pair);
    compare(c, "template_pseudo_beta_mask", all.beta_mask, N_TEMPLATE * n_pair);
    compare(c, "template_backbone_frame_mask", all.frame_mask, N_TEMPLATE * n_pair);
    compare(c, "template_unit_vector", all.unit_vector, N_TEMPLATE * n_pair * 3 * sizeof(float));
}

static void golden_templates(void **state) {
    static const char *const names[] = {"none", "monomer_1", "monomer_4", "mixed"};
    uint32_t n_array = 0, n_same = 0;
    if (!fm_test_reference()) skip();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fm_arena_reset(*state);
        golden_case c = {.arena = *state, .name = names[i]};
        read_case(&c);
        size_t n = (size_t)N_TEMPLATE * c.n_token;
        c.class = allocate(&c, n, 1);
        c.mask = allocate(&c, n, 1);
        c.positions = allocate(&c, n, FM_N_TEMPLATE_ATOM * 3 * sizeof(float));
        fm_template_tokens_list(c.chains, c.columns, c.n_token,
                                &(fm_template_tokens_options){N_TEMPLATE, true}, c.class,
                                c.positions, c.mask);
        compare(&c, "template_aatype", c.class, n);
        compare_atoms(&c);
        compare_pairs(&c);
        n_array += c.n_array;
        n_same += c.n_same;
    }
    fm_test_golden_line("complex templates", n_array, n_same);
    assert_int_equal(n_same, n_array);
}

/* Two tokens whose pseudo-beta atoms are `distance` apart. */
static uint8_t bin_at(float distance) {
    float positions[2 * FM_N_TEMPLATE_ATOM * 3] = {0};
    static const uint8_t mask[] = {1 << FM_TEMPLATE_BETA, 1 << FM_TEMPLATE_BETA};
    uint8_t bin[4];
    positions[(FM_N_TEMPLATE_ATOM + FM_TEMPLATE_BETA) * 3] = distance;
    fm_template_pairs_list(&(fm_template_atoms){positions, mask}, 2,
                           &(fm_template_pairs){.bin = bin});
    assert_int_equal(bin[1], bin[2]);
    return bin[1];
}

static void edges_of_bins(void **state) {
    (void)state;
    assert_int_equal(bin_at(0), FM_TEMPLATE_BIN_NONE);
    for (int b = 0; b < FM_N_TEMPLATE_BIN; b++) {
        float edge = 3.25f + 1.25f * (float)b;
        assert_int_equal(bin_at(edge), FM_TEMPLATE_BIN_NONE);
        assert_int_equal(bin_at(__builtin_nextafterf(edge, 100)), b);
        assert_int_equal(bin_at(edge + 1), b);
        assert_int_equal(bin_at(__builtin_nextafterf(edge, 0)), b ? b - 1 : FM_TEMPLATE_BIN_NONE);
    }
    assert_int_equal(bin_at(1e6f), FM_N_TEMPLATE_BIN - 1);
}

/* An unknown residue has its own atoms; for the reference each of them is its nitrogen. */
static void unknown_residues(void **state) {
    (void)state;
    float positions[37 * 3] = {1, 2, 3, 4, 5, 6}, ours[FM_N_TEMPLATE_ATOM * 3];
    uint8_t mask[37] = {1, 1}, class, present;
    const fm_mapped_hit hit = {(const uint8_t *)"X", positions, mask};
    const fm_mapped_hits chain = {1, &hit};
    const fm_paired_column column = {0, 0};
    fm_template_tokens_options options = {1, false};
    fm_template_tokens_list(&chain, &column, 1, &options, &class, ours, &present);
    assert_int_equal(class, 20);
    assert_int_equal(present, 1 << FM_TEMPLATE_N | 1 << FM_TEMPLATE_CA);
    assert_true(ours[3] == 4);
    options.compat_protenix = true;
    fm_template_tokens_list(&chain, &column, 1, &options, &class, ours, &present);
    assert_int_equal(present, (1 << FM_N_TEMPLATE_ATOM) - 1);
    assert_true(ours[3] == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_templates),
        cmocka_unit_test(edges_of_bins),
        cmocka_unit_test(unknown_residues),
    };
    return cmocka_run_group_tests_name("complex_templates", tests, set_up, tear_down);
}
