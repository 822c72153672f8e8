/* rows.c: see rows.h. */
#include "featurizer/synth/rows.h"

#include <string.h>

/* Draws the number of changes between a row and its parent. It is mostly up to some tenths of the
 * sites and sometimes nearly zero, so that close relatives and exact copies occur. */
static uint32_t draw_changes(fm_synth_draws *draws, uint32_t n_site) {
    static const uint16_t weight[3] = {2, 3, 5};
    switch (fm_synth_draw_weighted(draws, weight, 3)) {
    case 0: return fm_synth_draw_below(draws, 3);
    case 1: return fm_synth_draw_below(draws, n_site / 8 + 2);
    default: return fm_synth_draw_below(draws, n_site * 2 / 5 + 2);
    }
}

static void draw_deletion(const fm_synth_family *family, fm_synth_draws *draws, fm_synth_row *row) {
    uint32_t at = fm_synth_draw_below(draws, family->n_site);
    uint32_t length = fm_synth_draw_between(draws, 1, 6);
    /* Loops lose residues easily, helices and strands rarely. */
    if (family->sites[at].ss != FM_SYNTH_LOOP && !fm_synth_draw_chance(draws, 1, 5)) return;
    for (uint32_t i = at; i < family->n_site && i < at + length; i++)
        row->states[i] = FM_SYNTH_GAP;
}

static void draw_insertion(const fm_synth_family *family, fm_synth_draws *draws, uint32_t number,
                           fm_synth_row *row) {
    if (row->n_insert == FM_SYNTH_MAX_INSERTS) return;
    uint32_t before = fm_synth_draw_below(draws, family->n_site);
    if (family->sites[before].ss != FM_SYNTH_LOOP && !fm_synth_draw_chance(draws, 1, 5)) return;
    /* Insertions are mostly short; one in sixteen is a whole extra piece. */
    uint32_t longest = fm_synth_draw_chance(draws, 1, 16) ? 60 : 5;
    uint32_t length = fm_synth_draw_between(draws, 1, longest);
    row->inserts[row->n_insert++] = (fm_synth_insert){number, (uint16_t)before, (uint16_t)length};
}

static void draw_coverage(const fm_synth_family *family, fm_synth_draws *draws, fm_synth_row *row) {
    uint32_t n = family->n_site;
    row->first = 0;
    row->last = n;
    switch (fm_synth_draw_below(draws, 8)) {
    case 0: row->first = fm_synth_draw_below(draws, n / 2 + 1); break;
    case 1: row->last = n - fm_synth_draw_below(draws, n / 2 + 1); break;
    case 2:
        row->first = fm_synth_draw_below(draws, n / 3 + 1);
        row->last = n - fm_synth_draw_below(draws, n / 3 + 1);
        break;
    case 3:
    case 4:
        row->first = fm_synth_draw_below(draws, n / 12 + 1);
        row->last = n - fm_synth_draw_below(draws, n / 12 + 1);
        break;
    default: break;
    }
}

static void evolve(const fm_synth_family *family, fm_synth_draws *draws, uint32_t number,
                   fm_synth_row *row) {
    uint32_t n_change = draw_changes(draws, family->n_site);
    for (uint32_t i = 0; i < n_change; i++)
        fm_synth_family_mutate(family, draws, row->states);
    if (fm_synth_draw_chance(draws, 1, 5)) draw_deletion(family, draws, row);
    if (fm_synth_draw_chance(draws, 1, 4)) draw_insertion(family, draws, number, row);
    draw_coverage(family, draws, row);
    row->found = (uint8_t)((fm_synth_draw_chance(draws, 6, 10) ? FM_SYNTH_UNIREF : 0) |
                           (fm_synth_draw_chance(draws, 5, 10) ? FM_SYNTH_BFD : 0) |
                           (fm_synth_draw_chance(draws, 3, 10) ? FM_SYNTH_MGNIFY : 0));
    if (row->found == 0) row->found = FM_SYNTH_BFD;
    if (fm_synth_draw_chance(draws, 5, 10)) row->found |= FM_SYNTH_UNIPROT;
}

fm_status fm_synth_rows_make(fm_arena *arena, const fm_synth_options *options,
                             const fm_synth_family *family, fm_synth_row **ret_rows,
                             fm_error *reterr) {
    uint32_t n_site = family->n_site;
    fm_synth_row *rows = fm_arena_calloc(arena, family->n_row, sizeof *rows);
    uint8_t *states = fm_arena_alloc_array(arena, family->n_row, n_site);
    if (!rows || !states) return fm_arena_full(arena, reterr);
    for (uint32_t r = 0; r < family->n_row; r++) {
        fm_synth_draws draws =
            fm_synth_draws_of(options->seed, FM_SYNTH_DRAW_ROW, family->number, r);
        uint32_t parent = fm_synth_draw_below(&draws, r + 1); /* 0: ancestor; p: row p - 1 */
        uint8_t *mine = states + (size_t)r * n_site;
        if (parent == 0) {
            for (uint32_t i = 0; i < n_site; i++)
                mine[i] = family->sites[i].ancestor;
        } else {
            rows[r] = rows[parent - 1];
            memcpy(mine, rows[parent - 1].states, n_site);
        }
        rows[r].states = mine;
        evolve(family, &draws, r, &rows[r]);
    }
    *ret_rows = rows;
    return FM_OK;
}
