/* near_atoms.c: see near_atoms.h. The cells are a table sorted by the cells' places, so that its
 * memory does not depend on how far apart the atoms are. */
#include "trainer/predict/complex/near_atoms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Atoms farther out than this many cells share the outermost ones; there are none in practice. */
enum { MOST_CELLS = 1 << 20 };

typedef struct cell_atom {
    uint64_t cell;
    uint32_t atom;
} cell_atom;

struct fm_near_atoms {
    const float *position;
    double size;
    uint32_t n;
    cell_atom *sorted; /* [n] by cell, then by atom */
};

static int64_t cell_along(double size, float at) {
    double cell = floor((double)at / size);
    return (int64_t)fmin(fmax(cell, -MOST_CELLS + 2), MOST_CELLS - 2) + MOST_CELLS;
}

/* The cell of an atom, moved by a step along each axis. */
static uint64_t cell_of(double size, const float at[3], const int step[3]) {
    uint64_t cell = 0;
    for (int axis = 0; axis < 3; axis++)
        cell = cell << 21 | (uint64_t)(cell_along(size, at[axis]) + step[axis]);
    return cell;
}

static int compare(const void *a, const void *b) {
    const cell_atom *first = a, *second = b;
    if (first->cell != second->cell) return first->cell < second->cell ? -1 : 1;
    return first->atom < second->atom ? -1 : first->atom > second->atom;
}

fm_status fm_near_atoms_make(const uint32_t *atom, uint32_t n, const float *position, double size,
                             fm_near_atoms **ret_near, fm_error *reterr) {
    fm_near_atoms *near = malloc(sizeof *near);
    cell_atom *sorted = calloc(n ? n : 1, sizeof *sorted);
    if (!near || !sorted) {
        free(near);
        free(sorted);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a grid of %u atoms", n);
    }
    *near = (fm_near_atoms){.position = position, .size = size, .sorted = sorted};
    for (uint32_t i = 0; i < n; i++) {
        const float *at = position + (size_t)atom[i] * 3;
        if (!isfinite(at[0]) || !isfinite(at[1]) || !isfinite(at[2])) continue;
        sorted[near->n++] = (cell_atom){cell_of(size, at, (const int[]){0, 0, 0}), atom[i]};
    }
    qsort(sorted, near->n, sizeof *sorted, compare);
    *ret_near = near;
    return FM_OK;
}

void fm_near_atoms_free(fm_near_atoms *near) {
    if (near) free(near->sorted);
    free(near);
}

/* The first place of the sorted atoms whose cell is not before `cell`. */
static uint32_t find_cell(const fm_near_atoms *near, uint64_t cell) {
    uint32_t low = 0, high = near->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (near->sorted[middle].cell < cell) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void fm_near_atoms_visit(const fm_near_atoms *near, uint32_t atom,
                         int (*visit)(void *context, uint32_t other), void *context) {
    const float *at = near->position + (size_t)atom * 3;
    for (int x = -1; x <= 1; x++) {
        for (int y = -1; y <= 1; y++) {
            /* Three cells along the last axis are neighbours in the table. */
            uint64_t first = cell_of(near->size, at, (const int[]){x, y, -1});
            for (uint32_t i = find_cell(near, first);
                 i < near->n && near->sorted[i].cell <= first + 2; i++) {
                if (visit(context, near->sorted[i].atom)) return;
            }
        }
    }
}
