/* rna.c: the alignment of a synthetic strand of RNA: rows that evolved along a random tree, as A3M
 * with the headers of Rfam. */
#include "featurizer/synth/nucleic.h"
#include "featurizer/synth/draw.h"
#include "featurizer/synth/text.h"

#include <string.h>

/* Changes up to a third of the letters, and at times cuts an end or deletes a piece. */
static void evolve(fm_synth_draws *draws, char *letters, uint32_t n) {
    uint32_t n_change = fm_synth_draw_below(draws, n / 3 + 1);
    for (uint32_t i = 0; i < n_change; i++) {
        uint32_t at = fm_synth_draw_below(draws, n);
        char letter = "ACGU"[fm_synth_draw_below(draws, 4)];
        if (letters[at] != '-') letters[at] = letter;
    }
    if (!fm_synth_draw_chance(draws, 1, 5)) return;
    uint32_t at = fm_synth_draw_below(draws, n), length = fm_synth_draw_between(draws, 1, 2);
    for (uint32_t i = at; i < n && i < at + length; i++)
        letters[i] = '-';
}

fm_status fm_synth_rna_alignment(fm_arena *arena, const fm_synth_options *options,
                                 const fm_synth_entry *entry, fm_synth_file *ret_file,
                                 fm_error *reterr) {
    enum { MOST_ROWS = 200, HEADER_BYTES = 48 };
    fm_synth_strand strand;
    fm_synth_strand_draw(options->seed, entry, 0, &strand);
    fm_synth_draws depth = fm_synth_draws_of(options->seed, FM_SYNTH_DRAW_RNA, entry->index, 0);
    uint32_t most = options->max_depth < MOST_ROWS ? options->max_depth : MOST_ROWS;
    uint32_t n_row = fm_synth_draw_between(&depth, 1, most);
    if (n_row < options->min_depth) n_row = options->min_depth;
    char *rows = fm_arena_alloc_array(arena, (size_t)n_row + 1, strand.n);
    if (!rows) return fm_arena_full(arena, reterr);
    fm_synth_text text;
    fm_status status =
        fm_synth_text_begin(&text, arena, ((size_t)n_row + 1) * (strand.n + HEADER_BYTES), reterr);
    if (status) return status;
    memcpy(rows, strand.letters, strand.n);
    for (uint32_t r = 0; r <= n_row; r++) {
        char *row = rows + (size_t)r * strand.n;
        if (r == 0) {
            fm_synth_text_string(&text, ">query\n");
        } else {
            fm_synth_draws draws =
                fm_synth_draws_of(options->seed, FM_SYNTH_DRAW_RNA, entry->index, r);
            uint32_t parent = fm_synth_draw_below(&draws, r);
            memcpy(row, rows + (size_t)parent * strand.n, strand.n);
            evolve(&draws, row, strand.n);
            fm_synth_text_format(&text, ">URS%06X%04X/1-%u\n", entry->index, r, strand.n);
        }
        fm_synth_text_bytes(&text, row, strand.n);
        fm_synth_text_char(&text, '\n');
    }
    *ret_file = (fm_synth_file){"rfam_hits.a3m", fm_synth_text_end(&text)};
    return FM_OK;
}
