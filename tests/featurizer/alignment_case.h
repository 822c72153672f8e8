/* alignment_case.h: the fixture and the assertions of the tests that parse alignments. Only one
 * source file of a program may include it, after cmocka.h. */
#ifndef FM_TESTS_ALIGNMENT_CASE_H
#define FM_TESTS_ALIGNMENT_CASE_H

#include "featurizer/parse/alignment.h"
#include "proto/base/arena.h"

#include <stdlib.h>
#include <string.h>

enum { ARENA_BYTES = 64 << 20 };

typedef struct fixture {
    fm_arena arena; /* holds the alignment */
    fm_alignment alignment;
    fm_error error;
} fixture;

static int set_up(void **state) {
    fixture *f = calloc(1, sizeof *f);
    if (!f || fm_arena_init(&f->arena, ARENA_BYTES, NULL)) return -1;
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    fm_arena_fini(&f->arena);
    free(f);
    return 0;
}

static fm_bytes text_of(const char *text) {
    return (fm_bytes){(const uint8_t *)text, strlen(text)};
}

/* Discards the last alignment and its error, before the next one is parsed. */
static void forget(fixture *f) {
    fm_arena_reset(&f->arena);
    memset(&f->error, 0, sizeof f->error);
}

/* Asserts that parsing returned FM_OK, with these rows ("ABC/A-C") and deletion counts ("000/210",
 * one digit each). */
static void assert_rows(const fixture *f, fm_status status, const char *rows,
                        const char *deletions) {
    const fm_alignment *a = &f->alignment;
    if (status) fail_msg("refused: %s", f->error.message);
    char found[512], counts[512];
    size_t n = 0;
    for (uint32_t i = 0; i < a->n_seq; i++) {
        for (uint32_t j = 0; j < a->n_col; j++, n++) {
            found[n] = (char)a->letters[i * a->n_col + j];
            counts[n] = (char)('0' + a->deletion[i * a->n_col + j]);
        }
        found[n] = counts[n] = '/';
        n++;
    }
    found[n ? n - 1 : 0] = counts[n ? n - 1 : 0] = 0;
    assert_string_equal(found, rows);
    assert_string_equal(counts, deletions);
}

/* Asserts that parsing returned `kind`, said where and why, and kept no memory. */
static void assert_refused(const fixture *f, fm_status status, fm_status kind, uint64_t line,
                           uint64_t column, const char *message) {
    assert_int_equal(status, kind);
    assert_string_equal(f->error.message, message);
    assert_int_equal(f->error.line, line);
    assert_int_equal(f->error.column, column);
    assert_int_equal(f->arena.used, 0);
}

#endif
