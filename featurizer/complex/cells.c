/* cells.c: see cells.h. */
#include "featurizer/complex/cells.h"

#include <math.h>
#include <string.h>

/* Pairs of points to look at for each point: a protein has about 250 at 5 Å. */
enum { PAIRS_PER_POINT = 4096 };

void fm_cells_place(float size, const float position[3], int32_t at[3]) {
    for (int axis = 0; axis < 3; axis++)
        at[axis] = (int32_t)floorf(position[axis] / size);
}

static uint32_t slot_of(const fm_cells *cells, const int32_t at[3]) {
    uint64_t hash = (uint64_t)(uint32_t)at[0] * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ (uint32_t)at[1]) * UINT64_C(0xC2B2AE3D27D4EB4F);
    hash = (hash ^ (uint32_t)at[2]) * UINT64_C(0x165667B19E3779F9);
    uint32_t slot = (uint32_t)(hash >> 32) & cells->mask;
    while (cells->slots[slot] != UINT32_MAX &&
           memcmp(cells->cells[cells->slots[slot]].at, at, 3 * sizeof *at) != 0)
        slot = (slot + 1) & cells->mask;
    return slot;
}

const fm_cell *fm_cells_find(const fm_cells *cells, const int32_t at[3]) {
    uint32_t i = cells->slots[slot_of(cells, at)];
    return i == UINT32_MAX ? NULL : &cells->cells[i];
}

fm_status fm_cells_make(const float (*positions)[3], const uint32_t *owners, const uint32_t *points,
                        uint32_t n_point, float size, fm_arena *arena, fm_cells *ret_cells,
                        fm_error *reterr) {
    fm_cells cells = {.size = size, .mask = 15};
    while (cells.mask / 2 < n_point)
        cells.mask = cells.mask * 2 + 1;
    size_t n_slot = (size_t)cells.mask + 1;
    cells.cells = fm_arena_alloc_array(arena, n_point, sizeof *cells.cells);
    cells.slots = fm_arena_alloc_array(arena, n_slot, sizeof *cells.slots);
    cells.points = fm_arena_alloc_array(arena, n_point, sizeof *cells.points);
    uint32_t *cell_of = fm_arena_alloc_array(arena, n_point, sizeof *cell_of);
    if (!cells.cells || !cells.slots || !cells.points || !cell_of) {
        return fm_arena_full(arena, reterr);
    }
    memset(cells.slots, 0xff, n_slot * sizeof *cells.slots);
    for (uint32_t i = 0; i < n_point; i++) {
        int32_t at[3];
        fm_cells_place(size, positions[points[i]], at);
        uint32_t *slot = &cells.slots[slot_of(&cells, at)];
        if (*slot == UINT32_MAX) {
            *slot = cells.n_cell;
            cells.cells[cells.n_cell++] =
                (fm_cell){.at = {at[0], at[1], at[2]}, .owner = owners[points[i]]};
        }
        fm_cell *cell = &cells.cells[*slot];
        if (cell->owner != owners[points[i]]) cell->owner = FM_CELLS_MIXED;
        cell->n++;
        cell_of[i] = *slot;
    }
    for (uint32_t i = 1; i < cells.n_cell; i++)
        cells.cells[i].first = cells.cells[i - 1].first + cells.cells[i - 1].n;
    for (uint32_t i = 0; i < cells.n_cell; i++)
        cells.cells[i].n = 0;
    for (uint32_t i = 0; i < n_point; i++) {
        fm_cell *cell = &cells.cells[cell_of[i]];
        cells.points[cell->first + cell->n++] = points[i];
    }
    *ret_cells = cells;
    return FM_OK;
}

fm_status fm_cells_each_pair(const fm_cells *cells, fm_cells_take_pair *take, void *context,
                             fm_error *reterr) {
    uint64_t n_pair = 0, n_point = 1024;
    for (uint32_t i = 0; i < cells->n_cell; i++)
        n_point += cells->cells[i].n;
    for (uint32_t i = 0; i < cells->n_cell; i++) {
        const fm_cell *cell = &cells->cells[i];
        /* The cube itself, and half of the 26 around it: those that come later in this order. */
        for (int32_t step = 13; step < 27; step++) {
            const int32_t at[3] = {cell->at[0] + step / 9 - 1, cell->at[1] + step / 3 % 3 - 1,
                                   cell->at[2] + step % 3 - 1};
            const fm_cell *other = step == 13 ? cell : fm_cells_find(cells, at);
            if (!other || (cell->owner == other->owner && cell->owner != FM_CELLS_MIXED)) continue;
            n_pair += (uint64_t)cell->n * other->n;
            if (n_pair > n_point * PAIRS_PER_POINT) {
                return fm_fail(reterr, FM_ERR_LIMIT,
                               "more than %d pairs of near atoms for each atom, expected atoms "
                               "that do not lie on one another",
                               PAIRS_PER_POINT);
            }
            fm_status status = take(context, cells, cell, other, reterr);
            if (status) return status;
        }
    }
    return FM_OK;
}
