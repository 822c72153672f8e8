/* cells.h: finds points near one another by sorting them into cubes.
 *
 * Each point has an owner, a chain or a molecule. Pairs of cubes whose points are all of one owner
 * are passed over, since only neighbours of different owners are asked for. */
#ifndef FM_COMPLEX_CELLS_H
#define FM_COMPLEX_CELLS_H

#include "proto/base/arena.h"

#include <stdbool.h>

#define FM_CELLS_MIXED UINT32_MAX /* a cube with points of several owners */
/* Coordinates must be below this in size. */
#define FM_CELLS_FAR 1e6F

typedef struct fm_cell {
    int32_t at[3];
    uint32_t first, n; /* in fm_cells.points */
    uint32_t owner;
} fm_cell;

typedef struct fm_cells {
    float size; /* Å, the edge of a cube */
    uint32_t n_cell, mask;
    fm_cell *cells;
    uint32_t *slots;  /* [mask + 1] hash table of cells, UINT32_MAX: free */
    uint32_t *points; /* the caller's indices, by cube and then as they came */
} fm_cells;

/* Sorts the points positions[points[i]], which are owned by owners[points[i]]. */
FM_MUST_USE fm_status fm_cells_make(const float (*positions)[3], const uint32_t *owners,
                                    const uint32_t *points, uint32_t n_point, float size,
                                    fm_arena *arena, fm_cells *ret_cells, fm_error *reterr);

/* Returns the cube at that place, or NULL. */
const fm_cell *fm_cells_find(const fm_cells *cells, const int32_t at[3]);

/* The cube of a position. */
void fm_cells_place(float size, const float position[3], int32_t at[3]);

/* Takes two cubes that touch, or one cube twice, with points of at least two owners. */
typedef fm_status fm_cells_take_pair(void *context, const fm_cells *cells, const fm_cell *a,
                                     const fm_cell *b, fm_error *reterr);

/* Hands over every pair of cubes once. Returns FM_ERR_LIMIT when they have so many pairs of points
 * that the atoms must lie on one another, and what `take` returns. */
FM_MUST_USE fm_status fm_cells_each_pair(const fm_cells *cells, fm_cells_take_pair *take,
                                         void *context, fm_error *reterr);

#endif
