/* crop_spatial.c: the tokens nearest to one of the sample's chains, or to one at an interface; see
 * crop.h. */
#include "featurizer/complex/crop_internal.h"

#include <math.h>
#include <string.h>

/* Å between centres of tokens that face each other, and the same as the side of a cell. */
#define INTERFACE_DISTANCE 15.0f
/* What a token's number adds to its distance, as in the reference. */
#define NUMBER_WEIGHT 0.001f

static const fm_assembly_atom *centre_of(const crop_work *work, uint32_t token) {
    return &work->assembly->atoms[work->assembly->tokens[token].centre];
}

static float distance(const fm_assembly_atom *a, const fm_assembly_atom *b) {
    double x = (double)a->position[0] - b->position[0], y = (double)a->position[1] - b->position[1];
    double z = (double)a->position[2] - b->position[2];
    return (float)sqrt(x * x + y * y + z * z);
}

static uint32_t chain_of(const crop_work *work, uint32_t token) {
    const fm_assembly *assembly = work->assembly;
    return assembly->residues[assembly->tokens[token].residue].chain;
}

/* -- a grid of cells, to find out which tokens face another chain */

static const uint32_t chain_mixed = UINT32_MAX, no_token = UINT32_MAX;

typedef struct grid_cell {
    uint32_t first; /* token; no_token: empty */
    uint32_t chain; /* of all its tokens, or chain_mixed */
} grid_cell;

/* Cells are hashed, since coordinates may be anywhere. Cells that share a place hold each other's
 * tokens, which costs time and changes nothing. The grid is asked once: with the sorted cubes of
 * cells.h an interface crop takes an eighth longer. */
typedef struct token_grid {
    grid_cell *cells; /* [mask + 1] */
    uint32_t *next;   /* [n_token] the cell's next token */
    uint32_t mask;
} token_grid;

/* Far coordinates are taken together: neighbours stay neighbours. */
static int32_t cell_coordinate(float value) {
    float cell = floorf(value / INTERFACE_DISTANCE);
    return (int32_t)fminf(1e8f, fmaxf(-1e8f, cell));
}

static grid_cell *cell_at(const token_grid *grid, int32_t x, int32_t y, int32_t z) {
    uint64_t key = (uint64_t)(uint32_t)x * 0x9e3779b97f4a7c15u ^
                   (uint64_t)(uint32_t)y * 0xc2b2ae3d27d4eb4fu ^
                   (uint64_t)(uint32_t)z * 0x165667b19e3779f9u;
    return &grid->cells[(uint32_t)(key >> 32) & grid->mask];
}

static grid_cell *cell_of(const token_grid *grid, const fm_assembly_atom *atom) {
    return cell_at(grid, cell_coordinate(atom->position[0]), cell_coordinate(atom->position[1]),
                   cell_coordinate(atom->position[2]));
}

static fm_status make_grid(const crop_work *work, token_grid *grid) {
    uint32_t n = work->assembly->n_token, room = 64;
    while (room < n)
        room *= 2;
    grid->mask = room - 1;
    grid->cells = fm_arena_alloc_array(work->arena, room, sizeof *grid->cells);
    grid->next = fm_arena_alloc_array(work->arena, n, sizeof *grid->next);
    if (!grid->cells || !grid->next) return fm_arena_full(work->arena, work->reterr);
    memset(grid->cells, 0xff, room * sizeof *grid->cells);
    for (uint32_t t = 0; t < n; t++) {
        const fm_assembly_atom *atom = centre_of(work, t);
        if (!atom->is_resolved) continue;
        grid_cell *cell = cell_of(grid, atom);
        uint32_t chain = chain_of(work, t);
        cell->chain = cell->first == no_token || cell->chain == chain ? chain : chain_mixed;
        grid->next[t] = cell->first;
        cell->first = t;
    }
    return FM_OK;
}

/* Returns whether a token of another chain is near enough, among those of one cell. */
static bool cell_faces(const crop_work *work, const token_grid *grid, const grid_cell *cell,
                       uint32_t token, uint32_t chain) {
    if (cell->first == no_token || cell->chain == chain) return false;
    for (uint32_t t = cell->first; t != no_token; t = grid->next[t]) {
        if (chain_of(work, t) != chain &&
            distance(centre_of(work, t), centre_of(work, token)) < INTERFACE_DISTANCE) {
            return true;
        }
    }
    return false;
}

static bool faces_another_chain(const crop_work *work, const token_grid *grid, uint32_t token) {
    const float *position = centre_of(work, token)->position;
    uint32_t chain = chain_of(work, token);
    int32_t at[3];
    for (int axis = 0; axis < 3; axis++)
        at[axis] = cell_coordinate(position[axis]);
    for (int32_t x = at[0] - 1; x <= at[0] + 1; x++) {
        for (int32_t y = at[1] - 1; y <= at[1] + 1; y++) {
            for (int32_t z = at[2] - 1; z <= at[2] + 1; z++) {
                if (cell_faces(work, grid, cell_at(grid, x, y, z), token, chain)) return true;
            }
        }
    }
    return false;
}

/* -- the reference token */

static bool is_reference(const crop_work *work, uint32_t chain) {
    for (uint32_t i = 0; i < work->request->n_reference; i++) {
        if (work->assembly->chains[chain].asym_id == work->request->reference[i]) return true;
    }
    return false;
}

/* Lists the resolved tokens of the reference chains; with a grid, those that face another chain. */
static uint32_t list_candidates(const crop_work *work, const token_grid *grid, uint32_t *out) {
    const fm_assembly *assembly = work->assembly;
    uint32_t n = 0;
    for (uint32_t c = 0; c < assembly->n_chain; c++) {
        if (!is_reference(work, c)) continue;
        uint32_t end = fm_crop_chain_end(assembly, c);
        for (uint32_t t = assembly->chains[c].first_token; t < end; t++) {
            if (!centre_of(work, t)->is_resolved) continue;
            if (!grid || faces_another_chain(work, grid, t)) out[n++] = t;
        }
    }
    return n;
}

static fm_status draw_reference(crop_work *work) {
    uint32_t n = 0, n_token = work->assembly->n_token;
    uint32_t *candidates = fm_arena_alloc_array(work->arena, n_token, sizeof *candidates);
    if (!candidates) return fm_arena_full(work->arena, work->reterr);
    bool is_interface = work->request->method == FM_CROP_INTERFACE;
    if (is_interface) {
        token_grid grid = {0};
        fm_status status = make_grid(work, &grid);
        if (status) return status;
        n = list_candidates(work, &grid, candidates);
    }
    if (!is_interface || (n == 0 && work->request->n_reference == 1)) {
        n = list_candidates(work, NULL, candidates);
    }
    if (n == 0) {
        return fm_fail(work->reterr, FM_ERR_DATA,
                       "the crop fails: no token of its chains is resolved%s",
                       is_interface ? " and within 15 A of another chain" : "");
    }
    work->reference = (int32_t)candidates[work->draws->below(
        work->draws->context, FM_SAMPLE_DRAW_COMPLEX_CENTRE, 0, 0, n)];
    return FM_OK;
}

/* -- the nearest tokens */

/* A token's key above its number: keys are not negative, so their bits ascend as they do, and ties
 * go to the lower number. */
static uint64_t rank_of(const crop_work *work, const fm_assembly_atom *reference, uint32_t t) {
    const fm_assembly_atom *atom = centre_of(work, t);
    float key = INFINITY;
    uint32_t bits;
    if (atom->is_resolved) key = distance(reference, atom) + (float)t * NUMBER_WEIGHT;
    memcpy(&bits, &key, sizeof bits);
    return (uint64_t)bits << 32 | t;
}

/* Moves heap[at] down to its place in a heap of n whose root is the largest. */
static void sift_down(uint64_t *heap, uint32_t n, uint32_t at) {
    uint64_t value = heap[at];
    for (uint32_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= value) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = value;
}

/* Leaves the `n` smallest ranks in heap[0..n-1], ascending. */
static void select_nearest(const crop_work *work, uint64_t *heap, uint32_t n) {
    const fm_assembly_atom *reference = centre_of(work, (uint32_t)work->reference);
    for (uint32_t t = 0; t < n; t++)
        heap[t] = rank_of(work, reference, t);
    for (uint32_t at = n / 2; at > 0; at--)
        sift_down(heap, n, at - 1);
    for (uint32_t t = n; t < work->assembly->n_token; t++) {
        uint64_t rank = rank_of(work, reference, t);
        if (rank >= heap[0]) continue;
        heap[0] = rank;
        sift_down(heap, n, 0);
    }
    for (uint32_t left = n; left > 1; left--) {
        uint64_t largest = heap[0];
        heap[0] = heap[left - 1];
        heap[left - 1] = largest;
        sift_down(heap, left - 1, 0);
    }
}

/* Takes the nearest tokens, as long as their atoms are within the limit. */
static fm_status take_nearest(crop_work *work) {
    const fm_assembly *assembly = work->assembly;
    uint32_t size = work->request->size;
    uint32_t n = size < assembly->n_token ? size : assembly->n_token;
    uint64_t n_atom = 0, max_atoms = work->request->max_atoms;
    uint64_t *heap = fm_arena_alloc_array(work->arena, n, sizeof *heap);
    if (!heap) return fm_arena_full(work->arena, work->reterr);
    select_nearest(work, heap, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t token = (uint32_t)heap[i];
        n_atom += assembly->tokens[token].n_atom;
        if (max_atoms && n_atom > max_atoms) break;
        work->tokens[work->n_token++] = token;
    }
    return FM_OK;
}

fm_status fm_crop_spatial(crop_work *work) {
    fm_status status = draw_reference(work);
    return status ? status : take_nearest(work);
}
