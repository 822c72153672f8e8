/* symmetries.c: lists colour- and bond-preserving maps of a component; see symmetries.h.
 *
 * Atoms are assigned in their own order, each to its images in ascending order, so that maps are
 * found sorted and the first ones suffice. An image must have the atom's colour, refined to a fixed
 * point by its neighbours, and the atom's distances in the graph and bonds to all earlier atoms.
 * With the distances a wrong choice is noticed at once in nearly every molecule. */
#include "featurizer/complex/symmetries.h"

#include <assert.h>
#include <string.h>

enum { FAR = UINT16_MAX, COLOUR_ALIKE = 0x80, BOND_ALIKE = 15, BOND_NONE = 0 };

typedef struct molecule_graph {
    uint32_t n;
    uint64_t *colour;   /* [n] */
    uint16_t *distance; /* [n][n] bonds between two atoms; FAR where there is no path */
    uint8_t *bond;      /* [n][n] a bond's colour; BOND_NONE where there is none */
    uint16_t *queue;    /* [n] */
} molecule_graph;

typedef struct symmetry_search {
    const molecule_graph *graph;
    uint16_t *image; /* [n] */
    bool *is_used;   /* [n] */
    uint16_t *found; /* [FM_SYMMETRY_COLUMNS][n] */
    uint32_t n_found, n_step;
    bool is_cut;
} symmetry_search;

/* -- the graph */

static uint8_t colour_of_bond(uint8_t order) {
    bool is_aromatic = order >= FM_BOND_AROMATIC_SINGLE;
    return (uint8_t)(1 + (is_aromatic ? FM_BOND_AROMATIC : order));
}

static uint64_t colour_of_atom(const fm_component_atom *atom) {
    return (uint64_t)atom->element | (uint64_t)(uint8_t)atom->charge << 8 |
           (uint64_t)atom->n_hydrogen << 16 | (uint64_t)(uint8_t)atom->stereo << 24;
}

static uint32_t degree(const molecule_graph *graph, uint32_t atom) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < graph->n; i++)
        n += graph->bond[(size_t)atom * graph->n + i] != BOND_NONE;
    return n;
}

/* Returns whether atom `end`, bonded to a centre by that bond, is a terminal O or N. An =NH is
 * none. */
static bool is_terminal(const molecule_graph *graph, const fm_component_atom *atom, uint32_t end,
                        uint8_t bond) {
    bool is_double = bond == colour_of_bond(FM_BOND_DOUBLE);
    if (atom->element != 7 && atom->element != 8) return false;
    if (atom->element == 7 && is_double && atom->n_hydrogen == 1) return false;
    return degree(graph, end) == 1;
}

/* Makes the terminal atoms of one centre alike, if there are two or more with both orders. */
static void mark_alike(molecule_graph *graph, const fm_component *component, uint32_t centre) {
    uint32_t n = graph->n, n_end = 0;
    bool has_single = false, has_double = false;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t bond = graph->bond[(size_t)centre * n + i];
        if (bond == BOND_NONE || !is_terminal(graph, &component->atoms[i], i, bond)) continue;
        graph->queue[n_end++] = (uint16_t)i;
        has_single = has_single || bond == colour_of_bond(FM_BOND_SINGLE);
        has_double = has_double || bond == colour_of_bond(FM_BOND_DOUBLE);
    }
    if (n_end < 2 || !has_single || !has_double) return;
    for (uint32_t k = 0; k < n_end; k++) {
        uint32_t end = graph->queue[k];
        graph->colour[end] = component->atoms[end].element | (uint64_t)COLOUR_ALIKE << 32;
        graph->bond[(size_t)centre * n + end] = graph->bond[(size_t)end * n + centre] = BOND_ALIKE;
    }
}

static void measure_distances(molecule_graph *graph, uint32_t from) {
    uint32_t n = graph->n, head = 0, tail = 0;
    uint16_t *distance = graph->distance + (size_t)from * n;
    memset(distance, 0xff, n * sizeof *distance);
    distance[from] = 0;
    graph->queue[tail++] = (uint16_t)from;
    while (head < tail) {
        uint32_t at = graph->queue[head++];
        for (uint32_t i = 0; i < n; i++) {
            if (graph->bond[(size_t)at * n + i] == BOND_NONE || distance[i] != FAR) continue;
            distance[i] = (uint16_t)(distance[at] + 1);
            graph->queue[tail++] = (uint16_t)i;
        }
    }
}

/* Replaces each colour by a hash of it and of the neighbours' colours, as often as a change can
 * travel. The sum over neighbours does not depend on their order. */
static fm_status refine(molecule_graph *graph, fm_arena *arena, fm_error *reterr) {
    uint32_t n = graph->n;
    uint64_t *next = fm_arena_alloc_array(arena, n, sizeof *next);
    if (!next) return fm_arena_full(arena, reterr);
    uint32_t n_round = n < 32 ? n : 32;
    for (uint32_t round = 0; round < n_round; round++) {
        for (uint32_t i = 0; i < n; i++) {
            uint64_t sum = 0;
            for (uint32_t k = 0; k < n; k++) {
                uint8_t bond = graph->bond[(size_t)i * n + k];
                uint64_t pair[2] = {graph->colour[k], bond};
                if (bond != BOND_NONE) sum += fm_xxh3(pair, sizeof pair);
            }
            uint64_t own[2] = {graph->colour[i], sum};
            next[i] = fm_xxh3(own, sizeof own);
        }
        memcpy(graph->colour, next, n * sizeof *next);
    }
    return FM_OK;
}

static fm_status make_graph(const fm_component *component, fm_arena *arena,
                            molecule_graph *ret_graph, fm_error *reterr) {
    uint32_t n = component->n_atom;
    molecule_graph graph = {.n = n};
    graph.colour = fm_arena_alloc_array(arena, n, sizeof *graph.colour);
    graph.distance = fm_arena_alloc_array(arena, (size_t)n * n, sizeof *graph.distance);
    graph.bond = fm_arena_calloc(arena, n, n);
    graph.queue = fm_arena_alloc_array(arena, n, sizeof *graph.queue);
    if (!graph.colour || !graph.distance || !graph.bond || !graph.queue) {
        return fm_arena_full(arena, reterr);
    }
    for (uint32_t i = 0; i < component->n_bond; i++) {
        const fm_component_bond *bond = &component->bonds[i];
        uint8_t colour = colour_of_bond(bond->order);
        graph.bond[(size_t)bond->a * n + bond->b] = graph.bond[(size_t)bond->b * n + bond->a] =
            colour;
    }
    for (uint32_t i = 0; i < n; i++)
        graph.colour[i] = colour_of_atom(&component->atoms[i]);
    for (uint32_t i = 0; i < n; i++)
        mark_alike(&graph, component, i);
    for (uint32_t i = 0; i < n; i++)
        measure_distances(&graph, i);
    *ret_graph = graph;
    return refine(ret_graph, arena, reterr);
}

/* -- the search */

static bool fits(const symmetry_search *s, uint32_t atom, uint32_t image) {
    const molecule_graph *graph = s->graph;
    uint32_t n = graph->n;
    if (s->is_used[image] || graph->colour[atom] != graph->colour[image]) return false;
    const uint16_t *far_a = graph->distance + (size_t)atom * n;
    const uint16_t *far_b = graph->distance + (size_t)image * n;
    const uint8_t *bond_a = graph->bond + (size_t)atom * n;
    const uint8_t *bond_b = graph->bond + (size_t)image * n;
    for (uint32_t i = 0; i < atom; i++) {
        uint32_t k = s->image[i];
        if (far_a[i] != far_b[k] || bond_a[i] != bond_b[k]) return false;
    }
    return true;
}

/* Walks over all maps without recursion: `next` is the image to try for `atom`. */
static void walk(symmetry_search *s) {
    uint32_t n = s->graph->n, atom = 0, next = 0;
    for (;;) {
        while (next < n && !fits(s, atom, next))
            next++;
        if (++s->n_step > FM_SYMMETRY_STEPS) {
            s->is_cut = true;
            return;
        }
        if (next < n) {
            s->image[atom] = (uint16_t)next;
            s->is_used[next] = true;
            if (atom + 1 < n) {
                atom++;
                next = 0;
                continue;
            }
            if (s->n_found == FM_SYMMETRY_COLUMNS) {
                s->is_cut = true;
                return;
            }
            memcpy(s->found + (size_t)s->n_found++ * n, s->image, n * sizeof *s->image);
        } else if (atom-- == 0) {
            return;
        }
        next = s->image[atom];
        s->is_used[next++] = false;
    }
}

static fm_status only_identity(uint32_t n, fm_arena *arena, fm_symmetries *ret_symmetries,
                               fm_error *reterr) {
    uint16_t *images = fm_arena_alloc_array(arena, n, sizeof *images);
    if (!images) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < n; i++)
        images[i] = (uint16_t)i;
    *ret_symmetries = (fm_symmetries){.n_atom = n, .n = 1, .is_cut = n > 0, .images = images};
    return FM_OK;
}

fm_status fm_component_symmetries(const fm_component *component, fm_arena *arena,
                                  fm_symmetries *ret_symmetries, fm_error *reterr) {
    uint32_t n = component->n_atom;
    if (n == 0 || n > FM_SYMMETRY_ATOMS) return only_identity(n, arena, ret_symmetries, reterr);
    uint16_t *found = fm_arena_alloc_array(arena, (size_t)n * FM_SYMMETRY_COLUMNS, sizeof *found);
    if (!found) return fm_arena_full(arena, reterr);
    size_t mark = fm_arena_mark(arena);
    molecule_graph graph = {0};
    fm_status status = make_graph(component, arena, &graph, reterr);
    if (status) return status;
    symmetry_search s = {.graph = &graph, .found = found};
    s.image = fm_arena_alloc_array(arena, n, sizeof *s.image);
    s.is_used = fm_arena_calloc(arena, n, sizeof *s.is_used);
    if (!s.image || !s.is_used) return fm_arena_full(arena, reterr);
    walk(&s);
    assert(s.n_found > 0); /* the identity is found first */
    fm_arena_rewind(arena, mark);
    fm_arena_trim(arena, found, (size_t)s.n_found * n * sizeof *found);
    *ret_symmetries =
        (fm_symmetries){.n_atom = n, .n = s.n_found, .is_cut = s.is_cut, .images = found};
    return FM_OK;
}
