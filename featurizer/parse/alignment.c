/* alignment.c: see alignment.h. */
#include "featurizer/parse/alignment.h"

#include "featurizer/parse/match.h"
#include "proto/limits.h"

size_t fm_alignment_max_rows(size_t text_bytes, size_t n_col) {
    size_t rows = text_bytes / (n_col + 1) + 1; /* each row ends a line */
    return rows < FM_LIMIT_N_SEQ ? rows : FM_LIMIT_N_SEQ;
}

fm_status fm_alignment_init(fm_alignment *alignment, fm_arena *arena, size_t n_col, size_t max_seq,
                            fm_error *reterr) {
    if (max_seq > FM_LIMIT_N_SEQ) max_seq = FM_LIMIT_N_SEQ;
    size_t mark = fm_arena_mark(arena);
    size_t cells = max_seq * n_col; /* both factors are below 2^32 */
    fm_alignment made = {.n_col = (uint32_t)n_col, .max_seq = (uint32_t)max_seq};
    made.row = fm_arena_alloc_array(arena, max_seq, sizeof *made.row);
    made.deletion = fm_arena_alloc_array(arena, cells, sizeof *made.deletion);
    made.letters = fm_arena_alloc(arena, cells + FM_MATCH_SLACK);
    if (!made.row || !made.deletion || !made.letters) {
        fm_arena_rewind(arena, mark);
        return fm_arena_full(arena, reterr);
    }
    *alignment = made;
    return FM_OK;
}
