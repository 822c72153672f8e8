/* template_align.c: see template_align.h.
 *
 * Gotoh's algorithm. Row i of the matrix compares letter i-1 of the hit with every residue of the
 * chain. Three scores compete in each cell: the pair of letters (from the diagonal), a gap in the
 * hit (`horizontal`, from the left), a gap in the chain (`vertical`, from above). Scores are kept
 * for one row only. For every cell one byte records which of the three won and whether either gap
 * opens there, which is enough for trace() to walk back from the best end. Row 0 and column 0 score
 * 0 and the alignment may end in the last row or the last column, so gaps at the ends are free. */
#include "featurizer/template_align.h"

#include "proto/chem/residue.h"

#include <stdbool.h>

enum { GAP_OPEN = 11, GAP_EXTEND = 1, LEAST = INT32_MIN / 2 };

/* How a cell reaches its best score. The low two bits say: from a pair, or by a gap in one of the
 * two sequences. The next two bits say whether each gap opens at this cell. */
enum { FROM_PAIR = 0, FROM_GAP_IN_HIT = 1, FROM_GAP_IN_CHAIN = 2, FROM_MASK = 3 };
enum { OPENS_IN_HIT = 4, OPENS_IN_CHAIN = 8 };

/* BLOSUM62 (Henikoff and Henikoff 1992), in restype order. */
static const int8_t blosum62[FM_N_RESTYPE][FM_N_RESTYPE] = {
    {4, -1, -2, -2, 0, -1, -1, 0, -2, -1, -1, -1, -1, -2, -1, 1, 0, -3, -2, 0},
    {-1, 5, 0, -2, -3, 1, 0, -2, 0, -3, -2, 2, -1, -3, -2, -1, -1, -3, -2, -3},
    {-2, 0, 6, 1, -3, 0, 0, 0, 1, -3, -3, 0, -2, -3, -2, 1, 0, -4, -2, -3},
    {-2, -2, 1, 6, -3, 0, 2, -1, -1, -3, -4, -1, -3, -3, -1, 0, -1, -4, -3, -3},
    {0, -3, -3, -3, 9, -3, -4, -3, -3, -1, -1, -3, -1, -2, -3, -1, -1, -2, -2, -1},
    {-1, 1, 0, 0, -3, 5, 2, -2, 0, -3, -2, 1, 0, -3, -1, 0, -1, -2, -1, -2},
    {-1, 0, 0, 2, -4, 2, 5, -2, 0, -3, -3, 1, -2, -3, -1, 0, -1, -3, -2, -2},
    {0, -2, 0, -1, -3, -2, -2, 6, -2, -4, -4, -2, -3, -3, -2, 0, -2, -2, -3, -3},
    {-2, 0, 1, -1, -3, 0, 0, -2, 8, -3, -3, -1, -2, -1, -2, -1, -2, -2, 2, -3},
    {-1, -3, -3, -3, -1, -3, -3, -4, -3, 4, 2, -3, 1, 0, -3, -2, -1, -3, -1, 3},
    {-1, -2, -3, -4, -1, -2, -3, -4, -3, 2, 4, -2, 2, 0, -3, -2, -1, -2, -1, 1},
    {-1, 2, 0, -1, -3, 1, 1, -2, -1, -3, -2, 5, -1, -3, -1, 0, -1, -3, -2, -2},
    {-1, -1, -2, -3, -1, 0, -2, -3, -2, 1, 2, -1, 5, 0, -2, -1, -1, -1, -1, 1},
    {-2, -3, -3, -3, -2, -3, -3, -3, -1, 0, 0, -3, 0, 6, -4, -2, -2, 1, 3, -1},
    {-1, -2, -2, -1, -3, -1, -1, -2, -2, -3, -3, -1, -2, -4, 7, -1, -1, -4, -3, -2},
    {1, -1, 1, 0, -1, 0, 0, 0, -1, -2, -2, 0, -1, -2, -1, 4, 1, -3, -2, -2},
    {0, -1, 0, -1, -1, -1, -1, -2, -2, -1, -1, -1, -1, -2, -1, 1, 5, -2, -2, 0},
    {-3, -3, -4, -4, -2, -2, -3, -2, -2, -3, -2, -3, -1, 1, -4, -3, -2, 11, 2, -3},
    {-2, -2, -2, -3, -2, -1, -2, -3, 2, -1, -1, -2, -1, 3, -3, -2, -2, 2, 7, -1},
    {0, -3, -3, -3, -1, -2, -2, -3, -3, 3, 1, -2, 1, -1, -2, -2, 0, -3, -1, 4},
};

static int32_t pair_score(uint8_t a, uint8_t b) {
    uint8_t x = fm_restype_from_letter((char)a), y = fm_restype_from_letter((char)b);
    return x < FM_N_RESTYPE && y < FM_N_RESTYPE ? blosum62[x][y] : -1;
}

typedef struct matrix {
    fm_bytes hit, chain;
    uint8_t *from;             /* [hit.size + 1, chain.size + 1] */
    int32_t *best, *vertical;  /* [chain.size + 1]; left of j this row, from j on the row before */
    size_t end_hit, end_chain; /* where the best alignment ends */
    int32_t end_score;
} matrix;

static void keep_end(matrix *m, size_t i, size_t j, int32_t score) {
    if (score <= m->end_score) return;
    m->end_score = score;
    m->end_hit = i;
    m->end_chain = j;
}

/* Fills one row: letter i-1 of the hit against the whole chain. */
static void fill_row(matrix *m, size_t i) {
    size_t n_chain = m->chain.size;
    uint8_t *from = m->from + i * (n_chain + 1);
    int32_t diagonal = m->best[0], horizontal = LEAST;
    m->best[0] = 0;
    for (size_t j = 1; j <= n_chain; j++) {
        int32_t opened = m->best[j] - GAP_OPEN, extended = m->vertical[j] - GAP_EXTEND;
        uint8_t how = opened >= extended ? OPENS_IN_CHAIN : 0;
        m->vertical[j] = opened >= extended ? opened : extended;
        opened = m->best[j - 1] - GAP_OPEN;
        extended = horizontal - GAP_EXTEND;
        how |= opened >= extended ? OPENS_IN_HIT : 0;
        horizontal = opened >= extended ? opened : extended;
        int32_t best = diagonal + pair_score(m->hit.data[i - 1], m->chain.data[j - 1]);
        uint8_t source = FROM_PAIR;
        if (horizontal > best) {
            best = horizontal;
            source = FROM_GAP_IN_HIT;
        }
        if (m->vertical[j] > best) {
            best = m->vertical[j];
            source = FROM_GAP_IN_CHAIN;
        }
        from[j] = how | source;
        diagonal = m->best[j];
        m->best[j] = best;
        if (i == m->hit.size || j == n_chain) keep_end(m, i, j, best);
    }
}

/* Walks from the end back to the start of either sequence and writes the pairs. */
static void trace(const matrix *m, fm_template_alignment *alignment) {
    size_t i = m->end_hit, j = m->end_chain, n_chain = m->chain.size;
    uint8_t inside = FROM_PAIR; /* the gap being followed */
    while (i > 0 && j > 0) {
        uint8_t from = m->from[i * (n_chain + 1) + j];
        uint8_t state = inside ? inside : from & FROM_MASK;
        if (state == FROM_PAIR) {
            i--;
            j--;
            alignment->place[i] = (int32_t)j;
            alignment->n_same += m->hit.data[i] == m->chain.data[j];
        } else if (state == FROM_GAP_IN_HIT) {
            inside = from & OPENS_IN_HIT ? FROM_PAIR : FROM_GAP_IN_HIT;
            j--;
        } else {
            inside = from & OPENS_IN_CHAIN ? FROM_PAIR : FROM_GAP_IN_CHAIN;
            i--;
        }
    }
}

static fm_status take_places(fm_bytes hit, fm_arena *arena, fm_template_alignment *alignment,
                             fm_error *reterr) {
    *alignment = (fm_template_alignment){
        .place = fm_arena_alloc_array(arena, hit.size, sizeof *alignment->place)};
    if (!alignment->place) return fm_arena_full(arena, reterr);
    for (size_t i = 0; i < hit.size; i++)
        alignment->place[i] = -1;
    return FM_OK;
}

fm_status fm_template_align(fm_bytes hit, fm_bytes chain, fm_arena *arena,
                            fm_template_alignment *ret_alignment, fm_error *reterr) {
    fm_template_alignment alignment;
    if (hit.size >= FM_TEMPLATE_ALIGN_CELLS / (chain.size + 1)) {
        return fm_fail(reterr, FM_ERR_LIMIT,
                       "a hit of %zu letters and a chain of %zu residues are too long to align",
                       hit.size, chain.size);
    }
    fm_status status = take_places(hit, arena, &alignment, reterr);
    if (status) return status;
    size_t mark = fm_arena_mark(arena), n = chain.size + 1;
    matrix m = {.hit = hit, .chain = chain, .end_score = INT32_MIN};
    m.from = fm_arena_alloc_array(arena, hit.size + 1, n);
    m.best = fm_arena_calloc(arena, n, sizeof *m.best);
    m.vertical = fm_arena_alloc_array(arena, n, sizeof *m.vertical);
    if (!m.from || !m.best || !m.vertical) return fm_arena_full(arena, reterr);
    for (size_t j = 0; j < n; j++)
        m.vertical[j] = LEAST;
    for (size_t i = 1; i <= hit.size; i++)
        fill_row(&m, i);
    trace(&m, &alignment);
    fm_arena_rewind(arena, mark);
    *ret_alignment = alignment;
    return FM_OK;
}

fm_status fm_template_alignment_of(fm_bytes hit, fm_bytes chain, const char *hit_row,
                                   const char *chain_row, size_t n_column, fm_arena *arena,
                                   fm_template_alignment *ret_alignment, fm_error *reterr) {
    fm_template_alignment alignment;
    fm_status status = take_places(hit, arena, &alignment, reterr);
    if (status) return status;
    size_t i = 0, j = 0;
    bool good = true;
    for (size_t column = 0; column < n_column && good; column++) {
        uint8_t a = (uint8_t)hit_row[column], b = (uint8_t)chain_row[column];
        if (a != '-') good &= i < hit.size && a == hit.data[i];
        if (b != '-') good &= j < chain.size && b == chain.data[j];
        if (good && a != '-' && b != '-') {
            alignment.place[i] = (int32_t)j;
            alignment.n_same += a == b;
        }
        i += a != '-';
        j += b != '-';
    }
    if (!good || i != hit.size || j != chain.size) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "the rows of an alignment are not the two sequences that were aligned");
    }
    *ret_alignment = alignment;
    return FM_OK;
}
