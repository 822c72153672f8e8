/* fuzz_a3m.c: arbitrary bytes as an A3M text, in both modes.
 *
 * Refused input has a place and a message. Accepted input gives the same value with both inner
 * loops, and every cell's place in the text holds its letter. Printing it as A3M and reading it
 * again gives the same value. Where every letter has an id, its features are the same with both
 * encoders and have a profile that counts every row. */
#include "featurizer/msa.h"
#include "featurizer/parse/a3m.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_refusal(fm_status status, const fm_error *error) {
    assert(error->message[0] != '\0' && error->status == status);
    assert(status == FM_ERR_FORMAT || status == FM_ERR_LIMIT);
    if (status == FM_ERR_FORMAT) assert(error->line >= 1 && error->column >= 1);
}

static void check_equal(const fm_alignment *a, const fm_alignment *b) {
    size_t n = (size_t)a->n_seq * a->n_col;
    assert(a->n_seq == b->n_seq && a->n_col == b->n_col);
    assert(memcmp(a->letters, b->letters, n) == 0);
    assert(memcmp(a->deletion, b->deletion, n * sizeof *a->deletion) == 0);
}

static void check_places(fm_bytes text, const fm_a3m_options *options, const fm_alignment *read) {
    for (uint32_t row = 0; row < read->n_seq && row < 8; row++) {
        const fm_alignment_row *place = &read->row[row];
        assert((size_t)place->description + place->description_bytes <= text.size);
        for (size_t column = 0; column < read->n_col; column += 1 + column) {
            fm_text_place found = fm_a3m_locate(text, options, place, column);
            assert(found.offset < text.size);
            assert(text.data[found.offset] == read->letters[row * read->n_col + column]);
        }
    }
}

/* Prints the rows as A3M. A '.' or a deleted letter at a row's ends keeps its letters in place. */
static fm_bytes print(fm_arena *arena, fm_bytes text, bool compat, const fm_alignment *read) {
    size_t n = (size_t)read->n_seq * read->n_col, size = n;
    for (size_t i = 0; i < n; i++)
        size += read->deletion[i];
    for (uint32_t i = 0; i < read->n_seq; i++)
        size += read->row[i].description_bytes + 6;
    uint8_t *out = fm_arena_alloc(arena, size), *p = out;
    if (!out) return (fm_bytes){0};
    for (uint32_t row = 0; row < read->n_seq; row++) {
        const fm_alignment_row *place = &read->row[row];
        *p++ = '>';
        memcpy(p, text.data + place->description, place->description_bytes);
        p += place->description_bytes;
        *p++ = '\n';
        if (!compat) *p++ = '.';
        for (size_t i = row * (size_t)read->n_col; i < (row + 1) * (size_t)read->n_col; i++) {
            memset(p, 'g', read->deletion[i]);
            p += read->deletion[i];
            *p++ = read->letters[i];
        }
        *p++ = 'g';
        *p++ = '\n';
    }
    assert((size_t)(p - out) <= size);
    return (fm_bytes){out, (size_t)(p - out)};
}

/* Letters of two lines can become a blank of several bytes when they are joined. */
static bool has_wide(const fm_alignment *read) {
    for (size_t i = 0; i < (size_t)read->n_seq * read->n_col; i++) {
        if (read->letters[i] >= 0x80) return true;
    }
    return false;
}

static void check_printed(fm_arena *arena, fm_bytes text, const fm_a3m_options *options,
                          const fm_alignment *read) {
    fm_alignment again;
    fm_error error = {0};
    if (options->compat_openfold && has_wide(read)) return;
    fm_a3m_options whole = *options;
    whole.begin = 0;
    fm_bytes printed = print(arena, text, options->compat_openfold, read);
    if (!printed.data) return;
    fm_status status = fm_a3m_parse(printed, &whole, arena, &again, &error);
    if (status == FM_ERR_LIMIT) return;
    assert(!status);
    check_equal(read, &again);
}

static void check_features(fm_arena *arena, fm_bytes text, bool compat) {
    fm_msa_input input = {"f.a3m", text, FM_MSA_NONE};
    fm_msa_options plain = {.compat_openfold = compat, .kernel = &fm_msa_scalar};
    fm_msa_options best = {.compat_openfold = compat};
    fm_part_msa one, other;
    fm_error error = {0};
    fm_status status = fm_msa_build(&input, 1, (fm_bytes){0}, &plain, arena, &one, NULL, &error);
    assert(fm_msa_build(&input, 1, (fm_bytes){0}, &best, arena, &other, NULL, NULL) == status);
    if (status) {
        assert(error.message[0] != '\0');
        return;
    }
    size_t n = (size_t)one.n_seq * one.n_res;
    assert(one.n_seq == other.n_seq && one.n_res == other.n_res);
    assert(memcmp(one.msa, other.msa, n) == 0);
    assert(memcmp(one.profile, other.profile, one.n_res * 22 * sizeof *one.profile) == 0);
    for (uint32_t i = 0; i < one.n_res; i++) {
        uint64_t sum = 0;
        for (int k = 0; k < 22; k++)
            sum += one.profile[i * 22 + (uint32_t)k];
        assert(sum == one.n_seq);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_arena arena;
    fm_bytes text = {data, size};
    if (fm_arena_init(&arena, (size_t)256 << 20, NULL)) return 0;
    for (int mode = 0; mode < 3; mode++) {
        fm_a3m_options options = {.compat_openfold = mode == 1};
        if (mode == 2 && !fm_a3m_next(text, false, 0, &options.begin)) continue;
        fm_a3m_options plain = options;
        plain.kernel = &fm_match_scalar;
        fm_alignment one, other;
        fm_error error = {0};
        fm_arena_reset(&arena);
        fm_status status = fm_a3m_parse(text, &options, &arena, &one, &error);
        assert(fm_a3m_parse(text, &plain, &arena, &other, NULL) == status);
        if (status) {
            check_refusal(status, &error);
            continue;
        }
        check_equal(&one, &other);
        check_places(text, &options, &one);
        check_printed(&arena, text, &options, &one);
        if (mode < 2) check_features(&arena, text, options.compat_openfold);
    }
    fm_arena_fini(&arena);
    return 0;
}
