/* score_align.c: see score_align.h. Rows are residues of the predicted chain, columns those of the
 * true one. A cell has three states by how its last column ends: with a pair, with a gap in the
 * true chain, or with a gap in the predicted one. */
#include "server/cli/score_align.h"

#include <string.h>

enum { SAME = 4, OTHER = -2, OPEN = -6, LONGER = -1, LOW = INT32_MIN / 2 };
/* The states. For each of a cell, two bits keep the state that its best alignment comes from. */
enum { PAIR, ABOVE, LEFT, STATES };

typedef struct aligner {
    const fm_assembly_residue *row, *column;
    uint32_t n_row, n_column;
    int32_t *best[STATES]; /* [n_column + 1] of the row in hand */
    uint8_t *from;         /* [n_row + 1, n_column + 1]: two bits for each state */
} aligner;

static uint32_t count_residues(const fm_assembly *assembly, uint32_t chain) {
    const uint32_t end = chain + 1 < assembly->n_chain ? assembly->chains[chain + 1].first_residue
                                                       : assembly->n_residue;
    return end - assembly->chains[chain].first_residue;
}

static bool is_same(const aligner *a, uint32_t i, uint32_t j) {
    return memcmp(a->row[i].name, a->column[j].name, FM_COMPONENT_ID) == 0;
}

/* The state with the highest value; of equal ones, the first. */
static uint8_t find_best(const int32_t value[STATES]) {
    int best = PAIR;
    for (int s = ABOVE; s < STATES; s++)
        if (value[s] > value[best]) best = s;
    return (uint8_t)best;
}

/* Gaps before the first and behind the last residue of the other chain are free. */
static int32_t gap_cost(bool is_end, bool is_longer) {
    if (is_end) return 0;
    return is_longer ? LONGER : OPEN;
}

/* Fills row i from the one above, which `best` has. */
static void fill_row(aligner *a, uint32_t i) {
    uint8_t *from = a->from + (size_t)i * (a->n_column + 1);
    int32_t corner[STATES]; /* of the cell above and to the left */
    for (uint32_t j = 0; j <= a->n_column; j++) {
        int32_t above[STATES], left[STATES], now[STATES];
        const bool is_edge_row = i == a->n_row, is_edge_column = j == 0 || j == a->n_column;
        for (int s = 0; s < STATES; s++) {
            above[s] = a->best[s][j];
            left[s] = j ? a->best[s][j - 1] : LOW;
            now[s] = above[s] + gap_cost(is_edge_column, s == ABOVE);
        }
        const uint8_t by_above = find_best(now);
        const int32_t above_best = now[by_above];
        for (int s = 0; s < STATES; s++)
            now[s] = left[s] + gap_cost(is_edge_row, s == LEFT);
        const uint8_t by_left = find_best(now);
        const uint8_t by_pair = j ? find_best(corner) : PAIR;
        const int32_t left_best = j ? now[by_left] : LOW;
        const int32_t pair_best =
            j ? corner[by_pair] + (is_same(a, i - 1, j - 1) ? SAME : OTHER) : LOW;
        memcpy(corner, above, sizeof corner);
        a->best[PAIR][j] = pair_best;
        a->best[ABOVE][j] = above_best;
        a->best[LEFT][j] = left_best;
        from[j] = (uint8_t)(by_pair | by_above << 2 | by_left << 4);
    }
}

static void fill(aligner *a) {
    for (uint32_t j = 0; j <= a->n_column; j++) {
        a->best[PAIR][j] = j ? LOW : 0;
        a->best[ABOVE][j] = LOW;
        a->best[LEFT][j] = j ? 0 : LOW;
        a->from[j] = (uint8_t)((j > 1 ? LEFT : PAIR) << 4);
    }
    for (uint32_t i = 1; i <= a->n_row; i++)
        fill_row(a, i);
}

/* Follows the best alignment from its end. */
static void trace(const aligner *a, uint8_t state, uint32_t *place, fm_chain_alignment *out) {
    uint32_t i = a->n_row, j = a->n_column;
    while (i > 0 || j > 0) {
        const uint8_t from = a->from[(size_t)i * (a->n_column + 1) + j] >> (2 * state) & 3;
        if (state == PAIR && is_same(a, i - 1, j - 1)) {
            place[i - 1] = j - 1;
            out->n_same++;
        }
        if (state != LEFT) i--;
        if (state != ABOVE) j--;
        state = from;
    }
}

fm_status fm_chain_align(const fm_assembly *predicted, uint32_t chain, const fm_assembly *truth,
                         uint32_t other, fm_arena *arena, fm_chain_alignment *ret_alignment,
                         fm_error *reterr) {
    aligner a = {.row = predicted->residues + predicted->chains[chain].first_residue,
                 .column = truth->residues + truth->chains[other].first_residue,
                 .n_row = count_residues(predicted, chain),
                 .n_column = count_residues(truth, other)};
    uint32_t *place = fm_arena_alloc_array(arena, a.n_row + 1, sizeof *place);
    if (!place) return fm_arena_full(arena, reterr);
    const size_t mark = fm_arena_mark(arena), width = (size_t)a.n_column + 1;
    int32_t *best = fm_arena_alloc_array(arena, STATES * width, sizeof *best);
    a.from = fm_arena_alloc_array(arena, (size_t)a.n_row + 1, width);
    if (!best || !a.from) return fm_arena_full(arena, reterr);
    for (int s = 0; s < STATES; s++)
        a.best[s] = best + (size_t)s * width;
    memset(place, 0xff, (a.n_row + 1) * sizeof *place);
    fill(&a);
    const int32_t end[STATES] = {a.best[PAIR][a.n_column], a.best[ABOVE][a.n_column],
                                 a.best[LEFT][a.n_column]};
    const uint8_t state = find_best(end);
    *ret_alignment = (fm_chain_alignment){.place = place, .score = end[state]};
    trace(&a, state, place, ret_alignment);
    fm_arena_rewind(arena, mark);
    return FM_OK;
}
