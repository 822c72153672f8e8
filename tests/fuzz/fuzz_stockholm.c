/* fuzz_stockholm.c: arbitrary bytes as a Stockholm text, in both modes.
 *
 * Refused input has a place and a message. Accepted input gives the same value with both inner
 * loops, and every cell's place in the text holds its letter. Printing it as Stockholm and reading
 * it again gives the same value. */
#include "featurizer/msa.h"
#include "featurizer/parse/stockholm.h"

#include <assert.h>
#include <string.h>

enum { PRINT_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_refusal(fm_status status, const fm_error *error) {
    assert(error->message[0] != '\0' && error->status == status);
    assert(status == FM_ERR_FORMAT || status == FM_ERR_LIMIT || status == FM_ERR_UNSUPPORTED);
    if (status != FM_ERR_LIMIT) assert(error->line >= 1 && error->column >= 1);
}

static void check_equal(const fm_alignment *a, const fm_alignment *b) {
    size_t n = (size_t)a->n_seq * a->n_col;
    assert(a->n_seq == b->n_seq && a->n_col == b->n_col);
    assert(memcmp(a->letters, b->letters, n) == 0);
    assert(memcmp(a->deletion, b->deletion, n * sizeof *a->deletion) == 0);
}

static uint8_t stored_form(uint8_t letter, bool compat) {
    if (compat) return letter;
    if (letter == '.') return '-';
    return letter >= 'a' && letter <= 'z' ? (uint8_t)(letter - 32) : letter;
}

static void check_places(fm_bytes text, const fm_stockholm_options *options,
                         const fm_alignment *read) {
    for (uint32_t row = 0; row < read->n_seq && row < 8; row++) {
        for (size_t column = 0; column < read->n_col; column += 1 + column) {
            fm_text_place found = fm_stockholm_locate(text, options, &read->row[row], column);
            assert(found.offset < text.size && found.line >= 1 && found.column >= 1);
            assert(stored_form(text.data[found.offset], options->compat_openfold) ==
                   read->letters[row * read->n_col + column]);
        }
    }
}

/* Returns the number of deletion columns before match column `column`: the most of any row. */
static size_t widest(const fm_alignment *read, size_t column) {
    size_t most = 0;
    for (uint32_t row = 0; row < read->n_seq; row++) {
        size_t n = read->deletion[row * (size_t)read->n_col + column];
        if (n > most) most = n;
    }
    return most;
}

/* Prints the rows as Stockholm, one line each; size 0 when that is too large. */
static fm_bytes print(fm_arena *arena, fm_bytes text, const fm_alignment *read) {
    size_t width = 0, size = 0;
    for (size_t i = 0; i < read->n_col; i++)
        width += 1 + widest(read, i);
    for (uint32_t i = 0; i < read->n_seq; i++)
        size += read->row[i].description_bytes + width + 2;
    uint8_t *out = size < PRINT_MAX ? fm_arena_alloc(arena, size) : NULL, *p = out;
    if (!out) return (fm_bytes){0};
    for (uint32_t row = 0; row < read->n_seq; row++) {
        const fm_alignment_row *place = &read->row[row];
        memcpy(p, text.data + place->description, place->description_bytes);
        p += place->description_bytes;
        *p++ = ' ';
        for (size_t i = 0; i < read->n_col; i++) {
            size_t cell = row * (size_t)read->n_col + i, n = widest(read, i);
            memset(p, '-', n);
            memset(p, 'g', read->deletion[cell]);
            p += n;
            *p++ = read->letters[cell];
        }
        *p++ = '\n';
    }
    assert((size_t)(p - out) == size);
    return (fm_bytes){out, size};
}

/* Letters of two pieces can become a blank of several bytes when they are joined. */
static bool has_wide(const fm_alignment *read) {
    for (size_t i = 0; i < (size_t)read->n_seq * read->n_col; i++) {
        if (read->letters[i] >= 0x80) return true;
    }
    return false;
}

static void check_printed(fm_arena *arena, fm_bytes text, const fm_stockholm_options *options,
                          const fm_alignment *read) {
    fm_alignment again;
    if (read->n_col == 0 || (options->compat_openfold && has_wide(read))) return;
    fm_bytes printed = print(arena, text, read);
    if (!printed.data) return;
    fm_status status = fm_stockholm_parse(printed, options, arena, &again, NULL);
    if (status == FM_ERR_LIMIT) return;
    assert(!status);
    check_equal(read, &again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_arena arena;
    fm_bytes text = {data, size};
    if (fm_arena_init(&arena, (size_t)256 << 20, NULL)) return 0;
    for (int mode = 0; mode < 2; mode++) {
        fm_stockholm_options options = {.compat_openfold = mode == 1}, plain = options;
        plain.kernel = &fm_match_scalar;
        fm_alignment one, other;
        fm_error error = {0};
        fm_arena_reset(&arena);
        fm_status status = fm_stockholm_parse(text, &options, &arena, &one, &error);
        assert(fm_stockholm_parse(text, &plain, &arena, &other, NULL) == status);
        if (status) {
            check_refusal(status, &error);
            continue;
        }
        check_equal(&one, &other);
        check_places(text, &options, &one);
        check_printed(&arena, text, &options, &one);
        fm_msa_input input = {"f.sto", text, FM_MSA_NONE};
        fm_msa_options msa_options = {.compat_openfold = mode == 1};
        fm_part_msa part;
        status = fm_msa_build(&input, 1, (fm_bytes){0}, &msa_options, &arena, &part, NULL, &error);
        if (status) assert(error.message[0] != '\0');
    }
    fm_arena_fini(&arena);
    return 0;
}
