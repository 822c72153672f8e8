/* test_kalign.c: kalign as a process: its rows, and the error when it is missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cache/build/kalign.h"
#include "featurizer/template_align.h"
#include "proto/base/rng.h"

#include <stdlib.h>
#include <string.h>

static fm_bytes of_text(const char *text) {
    return (fm_bytes){(const uint8_t *)text, strlen(text)};
}

static fm_status align(const char *program, fm_arena *arena, const char **a, const char **b,
                       size_t *n, fm_error *error) {
    return fm_kalign_align(program, of_text("SEFKVTVCFGRTRAVVPCGD"), of_text("SEFKVTVCFGRTRVVVPC"),
                           arena, a, b, n, error);
}

static void aligns_two_sequences(void **state) {
    (void)state;
    if (system("command -v kalign >/dev/null 2>&1") != 0) {
        print_message("skipped: the program kalign is not installed\n");
        skip();
    }
    fm_arena arena;
    const char *a, *b;
    size_t n;
    fm_error error = {0};
    assert_int_equal(fm_arena_init(&arena, (size_t)64 << 20, NULL), FM_OK);
    fm_status status = align("kalign", &arena, &a, &b, &n, &error);
    if (status) print_message("%s\n", error.message);
    assert_int_equal(status, FM_OK);
    assert_int_equal(n, 20);
    assert_memory_equal(a, "SEFKVTVCFGRTRAVVPCGD", 20);
    assert_memory_equal(b, "SEFKVTVCFGRTRVVVPC--", 20);
    fm_arena_fini(&arena);
}

static void a_missing_program_is_reported(void **state) {
    (void)state;
    fm_arena arena;
    const char *a, *b;
    size_t n;
    fm_error error = {0};
    assert_int_equal(fm_arena_init(&arena, (size_t)64 << 20, NULL), FM_OK);
    assert_int_equal(align("/no/such/kalign", &arena, &a, &b, &n, &error), FM_ERR_NOT_FOUND);
    assert_string_equal(error.message, "cannot run /no/such/kalign: No such file or directory");
    assert_int_equal(align("false", &arena, &a, &b, &n, &error), FM_ERR_IO);
    assert_int_equal(align("true", &arena, &a, &b, &n, &error), FM_ERR_NOT_FOUND);
    fm_arena_fini(&arena);
}

/* A made-up chain, and a stretch of another version of it: every 16th letter is replaced, and
 * `n_gap` residues in the middle are missing. */
static void make_versions(uint32_t seed, size_t n_gap, char *chain, size_t n_chain, char *hit) {
    static const char letters[] = "ACDEFGHIKLMNPQRSTVWY";
    size_t n_hit = 0;
    for (size_t i = 0; i < n_chain; i++) {
        fm_philox_counter draw = fm_philox(seed, (fm_philox_counter){{(uint32_t)i, 0, 0, 0}});
        chain[i] = letters[fm_uniform_below((uint64_t)draw.word[0] << 32, 20)];
        bool missing = i >= n_chain / 2 && i < n_chain / 2 + n_gap;
        if (i < 8 || i >= n_chain - 6 || missing) continue;
        hit[n_hit++] =
            i % 16 == 3 ? letters[fm_uniform_below((uint64_t)draw.word[1] << 32, 20)] : chain[i];
    }
    chain[n_chain] = hit[n_hit] = 0;
}

/* The default alignment differs from kalign's as docs/reference/inputs.md states. It does not
 * differ where letters are only replaced, and differs at the ends of the gap where residues are
 * missing. */
static void agrees_with_our_alignment(void **state) {
    (void)state;
    if (system("command -v kalign >/dev/null 2>&1") != 0) {
        print_message("skipped: the program kalign is not installed\n");
        skip();
    }
    fm_arena arena;
    char chain[256], hit[256];
    size_t n_same[2] = {0}, n_place[2] = {0}, n_differ[2] = {0};
    assert_int_equal(fm_arena_init(&arena, (size_t)64 << 20, NULL), FM_OK);
    for (uint32_t seed = 0; seed < 24; seed++) {
        int gap = seed % 2;
        const char *a, *b;
        size_t n;
        fm_template_alignment ours, theirs;
        fm_arena_reset(&arena);
        make_versions(seed, gap ? 1 + seed % 4 : 0, chain, 80 + 4 * seed, hit);
        fm_bytes x = of_text(hit), y = of_text(chain);
        assert_int_equal(fm_kalign_align(NULL, x, y, &arena, &a, &b, &n, NULL), FM_OK);
        assert_int_equal(fm_template_alignment_of(x, y, a, b, n, &arena, &theirs, NULL), FM_OK);
        assert_int_equal(fm_template_align(x, y, &arena, &ours, NULL), FM_OK);
        size_t before = n_differ[gap];
        for (size_t i = 0; i < x.size; i++)
            n_differ[gap] += ours.place[i] != theirs.place[i];
        n_place[gap] += x.size;
        n_same[gap] += n_differ[gap] == before;
    }
    print_message("replaced letters: %zu of 12 alignments the same, %zu of %zu places differ\n",
                  n_same[0], n_differ[0], n_place[0]);
    print_message("missing residues: %zu of 12 alignments the same, %zu of %zu places differ\n",
                  n_same[1], n_differ[1], n_place[1]);
    assert_int_equal(n_same[0], 12);
    assert_true(n_same[1] >= 10 && n_differ[1] <= 4);
    fm_arena_fini(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aligns_two_sequences),
        cmocka_unit_test(a_missing_program_is_reported),
        cmocka_unit_test(agrees_with_our_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
