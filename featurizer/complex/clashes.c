/* clashes.c: leaves out chains that lie in other chains; see assemble.h.
 *
 * A centre atom clashes if one of another chain is at most 1.6 Å away and not bonded to it. While
 * more than 30 % of a chain's centre atoms clash, the worst chain goes. */
#include "featurizer/complex/assemble.h"
#include "featurizer/complex/cells.h"

#define CLASH_DISTANCE 1.6F

typedef struct clash {
    uint32_t a, b; /* atoms */
} clash;

typedef struct clash_finder {
    fm_copies *copies;
    clash *clashes;
    uint32_t n, max;
} clash_finder;

static bool are_bonded(const fm_copies *copies, uint32_t a, uint32_t b) {
    uint32_t low = 0, high = copies->n_bond;
    if (a > b) return are_bonded(copies, b, a);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const fm_asym_bond *bond = &copies->bonds[middle];
        if (bond->a < a || (bond->a == a && bond->b < b)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < copies->n_bond && copies->bonds[low].a == a && copies->bonds[low].b == b;
}

static fm_status push_clash(clash_finder *finder, uint32_t a, uint32_t b, fm_error *reterr) {
    fm_arena *arena = finder->copies->asym->arena;
    if (finder->n == finder->max) {
        if (finder->n >= FM_LIMIT_N_COMPLEX_BOND) {
            return fm_fail(reterr, FM_ERR_LIMIT, "more than %u pairs of atoms clash",
                           FM_LIMIT_N_COMPLEX_BOND);
        }
        uint32_t max = finder->max ? finder->max * 2 : 256;
        clash *clashes = fm_arena_alloc_array(arena, max, sizeof *clashes);
        if (!clashes) return fm_arena_full(arena, reterr);
        if (finder->n) memcpy(clashes, finder->clashes, finder->n * sizeof *clashes);
        finder->clashes = clashes;
        finder->max = max;
    }
    finder->clashes[finder->n++] = (clash){a, b};
    return FM_OK;
}

static fm_status take_cells(void *context, const fm_cells *cells, const fm_cell *one,
                            const fm_cell *two, fm_error *reterr) {
    clash_finder *finder = context;
    const fm_copies *copies = finder->copies;
    for (uint32_t i = 0; i < one->n; i++) {
        uint32_t a = cells->points[one->first + i];
        for (uint32_t k = one == two ? i + 1 : 0; k < two->n; k++) {
            uint32_t b = cells->points[two->first + k];
            if (copies->owners[a] == copies->owners[b]) continue;
            float distance2 = fm_asym_distance2(copies->positions[a], copies->positions[b]);
            if (distance2 > CLASH_DISTANCE * CLASH_DISTANCE) continue;
            if (are_bonded(copies, a, b)) continue;
            fm_status status = push_clash(finder, a, b, reterr);
            if (status) return status;
        }
    }
    return FM_OK;
}

/* -- which chain goes */

typedef struct chain_state {
    uint32_t n_centre, n_clash;
    double occupancy; /* mean of its centre atoms */
    uint32_t alt;     /* its smallest alternative id */
} chain_state;

/* Whether chain a goes rather than chain b. */
static bool goes_before(const fm_copies *copies, const chain_state *states, uint32_t a,
                        uint32_t b) {
    const fm_copy *one = &copies->items[a], *two = &copies->items[b];
    const chain_state *x = &states[a], *y = &states[b];
    if (one->is_expanded != two->is_expanded) return one->is_expanded;
    if (x->occupancy < y->occupancy || x->occupancy > y->occupancy) {
        return x->occupancy < y->occupancy;
    }
    if (x->alt != y->alt) return x->alt > y->alt;
    uint64_t left = (uint64_t)x->n_clash * y->n_centre, right = (uint64_t)y->n_clash * x->n_centre;
    if (left != right) return left > right;
    if (x->n_centre != y->n_centre) return x->n_centre < y->n_centre;
    return strcmp(one->id, two->id) > 0;
}

static void count_centres(const fm_copies *copies, const uint32_t *points, uint32_t n_point,
                          chain_state *states) {
    for (uint32_t i = 0; i < n_point; i++) {
        const fm_asym_atom *atom = &copies->asym->atoms[fm_copies_source(copies, points[i])];
        chain_state *state = &states[copies->owners[points[i]]];
        if (state->n_centre == 0 || atom->alt < state->alt) state->alt = atom->alt;
        state->occupancy += (double)atom->occupancy;
        state->n_centre++;
    }
    for (uint32_t i = 0; i < copies->n; i++)
        if (states[i].n_centre) states[i].occupancy /= states[i].n_centre;
}

/* Partners of each clashing atom: partners[first[atom] .. first[atom + 1] - 1]. */
typedef struct partner_lists {
    uint32_t *first, *partners;
    uint32_t *n_left; /* by atom: partners in chains that are still there */
} partner_lists;

static fm_status list_partners(const clash_finder *finder, partner_lists *lists) {
    const fm_copies *copies = finder->copies;
    fm_arena *arena = copies->asym->arena;
    lists->first = fm_arena_calloc(arena, (size_t)copies->n_atom + 2, sizeof(uint32_t));
    lists->partners = fm_arena_alloc_array(arena, (size_t)finder->n * 2, sizeof(uint32_t));
    lists->n_left = fm_arena_calloc(arena, copies->n_atom, sizeof(uint32_t));
    if (!lists->first || !lists->partners || !lists->n_left) {
        return fm_arena_full(arena, copies->asym->reterr);
    }
    for (uint32_t i = 0; i < finder->n; i++) {
        lists->n_left[finder->clashes[i].a]++;
        lists->n_left[finder->clashes[i].b]++;
    }
    for (uint32_t i = 0; i < copies->n_atom; i++)
        lists->first[i + 2] = lists->first[i + 1] + lists->n_left[i];
    for (uint32_t i = 0; i < finder->n; i++) {
        uint32_t a = finder->clashes[i].a, b = finder->clashes[i].b;
        lists->partners[lists->first[a + 1]++] = b;
        lists->partners[lists->first[b + 1]++] = a;
    }
    return FM_OK;
}

static void drop(fm_copies *copies, chain_state *states, partner_lists *lists, uint32_t worst) {
    fm_copy *copy = &copies->items[worst];
    copy->is_out = true;
    for (uint32_t atom = copy->first_atom; atom < copy->first_atom + copy->n_atom; atom++) {
        for (uint32_t k = lists->first[atom]; k < lists->first[atom + 1]; k++) {
            uint32_t other = lists->partners[k];
            if (--lists->n_left[other] == 0) states[copies->owners[other]].n_clash--;
        }
    }
}

static fm_status drop_worst(clash_finder *finder, chain_state *states) {
    fm_copies *copies = finder->copies;
    partner_lists lists;
    fm_status status = list_partners(finder, &lists);
    if (status) return status;
    for (uint32_t i = 0; i < copies->n_atom; i++)
        states[copies->owners[i]].n_clash += lists.n_left[i] > 0;
    for (;;) {
        uint32_t worst = FM_ASYM_NONE;
        for (uint32_t i = 0; i < copies->n; i++) {
            if (copies->items[i].is_out || states[i].n_centre == 0) continue;
            /* the reference compares a double quotient */
            if (!((double)states[i].n_clash / states[i].n_centre > 0.3)) continue;
            if (worst == FM_ASYM_NONE || goes_before(copies, states, i, worst)) worst = i;
        }
        if (worst == FM_ASYM_NONE) return FM_OK;
        drop(copies, states, &lists, worst);
    }
}

fm_status fm_copies_drop_clashing(fm_copies *copies) {
    fm_asym *asym = copies->asym;
    clash_finder finder = {.copies = copies};
    size_t mark = fm_arena_mark(asym->arena);
    uint32_t *points = fm_arena_alloc_array(asym->arena, copies->n_atom, sizeof *points), n = 0;
    chain_state *states = fm_arena_calloc(asym->arena, copies->n, sizeof *states);
    if (!points || !states) return fm_asym_full(asym);
    for (uint32_t i = 0; i < copies->n_atom; i++) {
        const fm_assembly_atom *atom = &copies->atoms[fm_copies_source(copies, i)];
        if (atom->is_centre && atom->is_resolved) points[n++] = i;
    }
    fm_cells cells;
    fm_status status = fm_cells_make((const float(*)[3])copies->positions, copies->owners, points,
                                     n, CLASH_DISTANCE, asym->arena, &cells, asym->reterr);
    if (!status) status = fm_cells_each_pair(&cells, take_cells, &finder, asym->reterr);
    if (status) return status;
    if (finder.n > 0) {
        count_centres(copies, points, n, states);
        status = drop_worst(&finder, states);
    }
    fm_arena_rewind(asym->arena, mark); /* only marks of copies stay */
    return status;
}
