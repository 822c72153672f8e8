/* tables.c: interfaces, and the tables of an assembly; see assemble.h. */
#include "featurizer/complex/assemble.h"
#include "featurizer/complex/cells.h"
#include "featurizer/complex/tokens.h"
#include "featurizer/parse/mmcif_util.h"

#include <math.h>
#include <stdlib.h>

#define INTERFACE_DISTANCE 5.0F

/* -- which chains touch */

typedef struct pair_finder {
    const fm_copies *copies;
    uint32_t *rank;    /* by copy: its place among the chains by id */
    uint32_t *by_rank; /* copies that stay, by id */
    uint8_t *touches;  /* [n_order, n_order] by rank, bits: the lower rank first */
} pair_finder;

static size_t bit_of(const pair_finder *finder, uint32_t a, uint32_t b) {
    size_t low = a < b ? a : b, high = a < b ? b : a;
    return low * finder->copies->n_order + high;
}
static bool touch(const pair_finder *finder, uint32_t a, uint32_t b) {
    size_t bit = bit_of(finder, a, b);
    return finder->touches[bit / 8] >> bit % 8 & 1;
}

static fm_status take_cells(void *context, const fm_cells *cells, const fm_cell *one,
                            const fm_cell *two, fm_error *reterr) {
    const pair_finder *finder = context;
    const fm_copies *copies = finder->copies;
    (void)reterr; /* nothing fails here */
    for (uint32_t i = 0; i < one->n; i++) {
        uint32_t a = cells->points[one->first + i], first = finder->rank[copies->owners[a]];
        for (uint32_t k = one == two ? i + 1 : 0; k < two->n; k++) {
            uint32_t b = cells->points[two->first + k], second = finder->rank[copies->owners[b]];
            if (first == second || touch(finder, first, second)) continue;
            float distance2 = fm_asym_distance2(copies->positions[a], copies->positions[b]);
            if (distance2 > INTERFACE_DISTANCE * INTERFACE_DISTANCE) continue;
            size_t bit = bit_of(finder, first, second);
            finder->touches[bit / 8] |= (uint8_t)(1U << bit % 8);
        }
    }
    return FM_OK;
}

static fm_status find_pairs(const fm_copies *copies, pair_finder *finder) {
    const fm_asym *asym = copies->asym;
    size_t n = copies->n_order;
    uint32_t *points = fm_arena_alloc_array(asym->arena, copies->n_atom, sizeof *points);
    finder->rank = fm_arena_alloc_array(asym->arena, copies->n, sizeof *finder->rank);
    finder->by_rank = fm_arena_alloc_array(asym->arena, n, sizeof *finder->by_rank);
    finder->touches = fm_arena_calloc(asym->arena, n * n / 8 + 1, 1);
    if (!points || !finder->rank || !finder->by_rank || !finder->touches) {
        return fm_arena_full(asym->arena, asym->reterr);
    }
    uint32_t n_point = 0, n_rank = 0;
    for (uint32_t i = 0; i < copies->n; i++) {
        const fm_copy *copy = &copies->items[copies->by_id[i]];
        if (copy->is_out) continue;
        finder->by_rank[n_rank] = copies->by_id[i];
        finder->rank[copies->by_id[i]] = n_rank++;
        for (uint32_t k = 0; k < copy->n_atom; k++)
            if (copies->atoms[copy->source_atom + k].is_resolved) {
                points[n_point++] = copy->first_atom + k;
            }
    }
    fm_cells cells;
    fm_status status =
        fm_cells_make((const float(*)[3])copies->positions, copies->owners, points, n_point,
                      INTERFACE_DISTANCE, asym->arena, &cells, asym->reterr);
    return status ? status : fm_cells_each_pair(&cells, take_cells, finder, asym->reterr);
}

/* Numbers residues by (asym_id, number); a component's conformer is placed for each. */
static void number_residues(fm_copies *copies) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < copies->n; i++) { /* asym_id is a copy's place */
        fm_copy *copy = &copies->items[i];
        const fm_asym_chain *chain = &copies->asym->chains[copy->chain];
        if (copy->is_out) continue;
        copy->first_uid = n;
        n += chain->end_residue - chain->first_residue;
    }
}

/* -- which chains belong together */

static uint32_t count_resolved(const fm_copies *copies, uint32_t copy) {
    const fm_copy *item = &copies->items[copy];
    uint32_t n = 0;
    for (uint32_t k = 0; k < item->n_atom; k++)
        n += copies->atoms[item->source_atom + k].is_resolved;
    return n;
}

/* Returns the root of the largest set of chains that touch; without any, the chain with most
 * resolved atoms. */
static uint32_t find_largest(const fm_copies *copies, const pair_finder *finder, uint32_t *root,
                             uint32_t *n_chain) {
    uint32_t n = copies->n_order, best = 0, n_best = 0;
    bool any = false;
    for (uint32_t a = 0; a < n; a++)
        root[a] = a;
    for (uint32_t a = 0; a < n; a++) {
        for (uint32_t b = a + 1; b < n; b++) {
            if (!touch(finder, a, b)) continue;
            fm_union_join(root, a, b);
            any = true;
        }
    }
    for (uint32_t a = 0; a < n; a++)
        n_chain[fm_union_root(root, a)]++;
    for (uint32_t a = 0; a < n; a++) {
        uint32_t own = fm_union_root(root, a);
        uint32_t size = any ? n_chain[own] : count_resolved(copies, finder->by_rank[a]);
        if (size <= n_best) continue;
        n_best = size;
        best = own;
    }
    return best;
}

static fm_status drop_unconnected(fm_copies *copies, const pair_finder *finder) {
    fm_arena *arena = copies->asym->arena;
    uint32_t *root = fm_arena_alloc_array(arena, copies->n_order, sizeof *root), n = 0;
    uint32_t *n_chain = fm_arena_calloc(arena, copies->n_order, sizeof *n_chain);
    if (!root || !n_chain) return fm_asym_full(copies->asym);
    uint32_t largest = find_largest(copies, finder, root, n_chain);
    for (uint32_t i = 0; i < copies->n_order; i++) {
        fm_copy *copy = &copies->items[copies->order[i]];
        copy->is_out = fm_union_root(root, finder->rank[copies->order[i]]) != largest;
        if (!copy->is_out) copies->order[n++] = copies->order[i];
    }
    copies->n_order = n;
    return FM_OK;
}

/* -- the list of interfaces */

typedef struct pair_key {
    int32_t entities[2];
    uint32_t place; /* in the order of ids */
    uint32_t first; /* place of the first pair of these entities */
    fm_assembly_pair pair;
} pair_key;

static int by_entities(const void *x, const void *y) {
    const pair_key *a = x, *b = y;
    for (int i = 0; i < 2; i++) {
        if (a->entities[i] != b->entities[i]) return a->entities[i] < b->entities[i] ? -1 : 1;
    }
    return a->place < b->place ? -1 : a->place > b->place;
}

static int by_first(const void *x, const void *y) {
    const pair_key *a = x, *b = y;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

/* Puts pairs of the same entities together, where the first of them is. */
static void sort_pairs(pair_key *keys, uint32_t n) {
    qsort(keys, n, sizeof *keys, by_entities);
    for (uint32_t i = 0; i < n; i++) {
        bool is_first =
            i == 0 || memcmp(keys[i].entities, keys[i - 1].entities, sizeof keys[i].entities) != 0;
        keys[i].first = is_first ? keys[i].place : keys[i - 1].first;
    }
    qsort(keys, n, sizeof *keys, by_first);
}

/* Lists the pairs of chains that touch and are not both further copies. place: by copy, its chain
 * in the assembly. */
static fm_status list_pairs(const fm_copies *copies, const pair_finder *finder, uint32_t n_rank,
                            const uint32_t *place, fm_assembly *assembly) {
    pair_key *keys = NULL;
    for (uint32_t pass = 0; pass < 2; pass++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < n_rank * n_rank; i++) {
            uint32_t a = i / n_rank, b = i % n_rank;
            if (a >= b ||
                !(finder->touches[((size_t)a * n_rank + b) / 8] >> ((size_t)a * n_rank + b) % 8 &
                  1)) {
                continue;
            }
            a = finder->by_rank[a];
            b = finder->by_rank[b];
            const fm_copy *one = &copies->items[a], *two = &copies->items[b];
            if (one->is_out || two->is_out || (one->is_expanded && two->is_expanded)) continue;
            bool turn = two->entity_id < one->entity_id;
            if (keys) {
                keys[n] = (pair_key){.entities = {turn ? two->entity_id : one->entity_id,
                                                  turn ? one->entity_id : two->entity_id},
                                     .place = n,
                                     .pair = {place[turn ? b : a], place[turn ? a : b]}};
            }
            n++;
        }
        assembly->n_pair = n;
        if (pass == 0) keys = fm_arena_alloc_array(copies->asym->arena, n, sizeof *keys);
        if (!keys) return fm_asym_full(copies->asym);
    }
    sort_pairs(keys, assembly->n_pair);
    fm_assembly_pair *pairs =
        fm_arena_alloc_array(copies->asym->arena, assembly->n_pair, sizeof *pairs);
    if (!pairs) return fm_asym_full(copies->asym);
    for (uint32_t i = 0; i < assembly->n_pair; i++)
        pairs[i] = keys[i].pair;
    assembly->pairs = pairs;
    return FM_OK;
}

/* -- tables */

typedef struct table_maker {
    const fm_copies *copies;
    fm_assembly *assembly;
    fm_assembly_chain *chains;
    fm_assembly_residue *residues;
    fm_assembly_atom *atoms;
    fm_assembly_bond *bonds;
    uint32_t *place; /* by copy: its chain in the assembly */
} table_maker;

static fm_status alloc_tables(table_maker *maker, uint32_t n_bond) {
    const fm_copies *copies = maker->copies;
    fm_arena *arena = copies->asym->arena;
    fm_assembly *assembly = maker->assembly;
    for (uint32_t i = 0; i < copies->n_order; i++) {
        const fm_copy *copy = &copies->items[copies->order[i]];
        const fm_asym_chain *chain = &copies->asym->chains[copy->chain];
        assembly->n_atom += copy->n_atom;
        assembly->n_residue += chain->end_residue - chain->first_residue;
    }
    assembly->n_chain = copies->n_order;
    maker->chains = fm_arena_calloc(arena, assembly->n_chain, sizeof *maker->chains);
    maker->residues = fm_arena_alloc_array(arena, assembly->n_residue, sizeof *maker->residues);
    maker->atoms = fm_arena_alloc_array(arena, assembly->n_atom, sizeof *maker->atoms);
    maker->bonds = fm_arena_alloc_array(arena, n_bond, sizeof *maker->bonds);
    maker->place = fm_arena_alloc_array(arena, copies->n, sizeof *maker->place);
    if (!maker->chains || !maker->residues || !maker->atoms || !maker->bonds || !maker->place) {
        return fm_asym_full(copies->asym);
    }
    memset(maker->place, 0xff, copies->n * sizeof *maker->place);
    assembly->chains = maker->chains;
    assembly->residues = maker->residues;
    assembly->atoms = maker->atoms;
    assembly->bonds = maker->bonds;
    return FM_OK;
}

static uint8_t molecule_of(const fm_asym *asym, const fm_asym_chain *chain) {
    uint32_t n[FM_N_MOLECULE] = {0};
    for (uint32_t i = chain->first_residue; i < chain->end_residue; i++)
        n[fm_asym_molecule(asym, i)] += fm_asym_end_atom(asym, i) - asym->residues[i].first_atom;
    return fm_molecule_of_most(n);
}

static fm_status fill_chain(table_maker *maker, uint32_t c, uint32_t *n_residue, uint32_t *n_atom) {
    const fm_copies *copies = maker->copies;
    fm_asym *asym = copies->asym;
    const fm_copy *copy = &copies->items[copies->order[c]];
    const fm_asym_chain *chain = &asym->chains[copy->chain];
    maker->place[copies->order[c]] = c;
    maker->chains[c] = (fm_assembly_chain){
        .id = copy->id,
        .label_asym_id = fm_mmcif_copy(&asym->cif, chain->label, asym->arena),
        .auth_asym_id = fm_mmcif_copy(&asym->cif, chain->author, asym->arena),
        .entity = chain->entity,
        .first_residue = *n_residue,
        .first_atom = *n_atom,
        .asym_id = copy->asym_id,
        .entity_id = copy->entity_id,
        .sym_id = copy->sym_id,
        .mol_id = copy->mol_id,
        .entity_mol_id = copy->entity_mol_id,
        .molecule = molecule_of(asym, chain),
        .is_expanded = copy->is_expanded,
    };
    if (!maker->chains[c].label_asym_id || !maker->chains[c].auth_asym_id) {
        return fm_asym_full(asym);
    }
    for (uint32_t i = chain->first_residue; i < chain->end_residue; i++) {
        fm_assembly_residue *residue = &maker->residues[(*n_residue)++];
        *residue = copies->residues[i];
        residue->chain = c;
        residue->first_atom = *n_atom;
        residue->ref_space_uid = (int32_t)(copy->first_uid + (i - chain->first_residue));
        for (uint32_t k = asym->residues[i].first_atom; k < fm_asym_end_atom(asym, i); k++) {
            uint32_t at = k - copy->source_atom;
            fm_assembly_atom *atom = &maker->atoms[*n_atom];
            *atom = copies->atoms[k];
            atom->residue = *n_residue - 1;
            atom->mol_atom_index = (int32_t)(copy->mol_first_atom + at);
            memcpy(atom->position, copies->positions[copy->first_atom + at], sizeof atom->position);
            (*n_atom)++;
        }
    }
    return FM_OK;
}

static uint32_t new_atom(const table_maker *maker, uint32_t copy, uint32_t source) {
    return maker->chains[maker->place[copy]].first_atom +
           (source - maker->copies->items[copy].source_atom);
}

static void push_bond(table_maker *maker, uint32_t a, uint32_t b, uint8_t order) {
    maker->bonds[maker->assembly->n_bond++] =
        (fm_assembly_bond){.a = a < b ? a : b, .b = a < b ? b : a, .order = order};
}

/* Bonds within chains are those of the asymmetric unit; between chains, those of the copies. */
static fm_status fill_bonds(table_maker *maker, const uint32_t *first_bond) {
    const fm_copies *copies = maker->copies;
    const fm_asym *asym = copies->asym;
    for (uint32_t c = 0; c < copies->n_order; c++) {
        const fm_copy *copy = &copies->items[copies->order[c]];
        uint32_t end = copy->source_atom + copy->n_atom;
        for (uint32_t i = first_bond[copy->source_atom]; i < first_bond[end]; i++) {
            const fm_asym_bond *bond = &asym->bonds[i];
            if (bond->b >= end) continue;
            push_bond(maker, new_atom(maker, copies->order[c], bond->a),
                      new_atom(maker, copies->order[c], bond->b), bond->order);
        }
    }
    for (uint32_t i = 0; i < copies->n_bond; i++) {
        uint32_t a = copies->bonds[i].a, b = copies->bonds[i].b;
        uint32_t one = copies->owners[a], two = copies->owners[b];
        if (copies->items[one].is_out || copies->items[two].is_out) continue;
        push_bond(maker, new_atom(maker, one, fm_copies_source(copies, a)),
                  new_atom(maker, two, fm_copies_source(copies, b)), copies->bonds[i].order);
    }
    return fm_bonds_sort(maker->bonds, &maker->assembly->n_bond, maker->assembly->n_atom,
                         asym->arena, asym->reterr);
}

/* Counts the bonds of the assembly at most, and finds the first bond of each atom. */
static fm_status count_bonds(const fm_copies *copies, uint32_t **ret_first, uint64_t *ret_n) {
    const fm_asym *asym = copies->asym;
    uint32_t *first = fm_arena_alloc_array(asym->arena, (size_t)asym->n_atom + 1, sizeof *first);
    if (!first) return fm_arena_full(asym->arena, asym->reterr);
    uint32_t bond = 0;
    for (uint32_t k = 0; k <= asym->n_atom; k++) {
        while (bond < asym->n_bond && asym->bonds[bond].a < k)
            bond++;
        first[k] = bond;
    }
    *ret_n = copies->n_bond;
    for (uint32_t c = 0; c < copies->n_order; c++) {
        const fm_copy *copy = &copies->items[copies->order[c]];
        *ret_n += first[copy->source_atom + copy->n_atom] - first[copy->source_atom];
    }
    if (*ret_n > FM_LIMIT_N_COMPLEX_BOND) {
        return fm_fail(asym->reterr, FM_ERR_LIMIT, "the assembly has more than %u bonds",
                       FM_LIMIT_N_COMPLEX_BOND);
    }
    *ret_first = first;
    return FM_OK;
}

static fm_status fill_entities(const fm_asym *asym, fm_assembly *assembly) {
    fm_assembly_entity *entities = fm_arena_calloc(asym->arena, asym->n_entity, sizeof *entities);
    if (!entities) return fm_arena_full(asym->arena, asym->reterr);
    for (uint32_t i = 0; i < asym->n_entity; i++) {
        const fm_asym_entity *from = &asym->entities[i];
        entities[i] = (fm_assembly_entity){.id = fm_mmcif_copy(&asym->cif, from->id, asym->arena),
                                           .sequence = from->n_number ? from->sequence : NULL,
                                           .n_residue = from->is_polymer ? from->n_number : 0,
                                           .polymer = from->polymer};
        if (!entities[i].id) return fm_arena_full(asym->arena, asym->reterr);
    }
    assembly->n_entity = asym->n_entity;
    assembly->entities = entities;
    return FM_OK;
}

/* Tells how the chains were made; operations stay where they are. */
static fm_status fill_origin(const fm_copies *copies, fm_assembly *assembly) {
    const fm_asym *asym = copies->asym;
    uint32_t n = copies->n_order, n_step = 0;
    for (uint32_t c = 0; c < n; c++)
        n_step += copies->items[copies->order[c]].n_step;
    fm_assembly_origin *origin = fm_arena_alloc(asym->arena, sizeof *origin);
    uint32_t *unit = fm_arena_alloc_array(asym->arena, n, 3 * sizeof *unit);
    uint32_t *first_step = fm_arena_alloc_array(asym->arena, (size_t)n + 1, sizeof *first_step);
    uint32_t *steps = fm_arena_alloc_array(asym->arena, n_step, sizeof *steps);
    float(*positions)[3] = fm_arena_alloc_array(asym->arena, asym->n_atom, sizeof *positions);
    if (!origin || !unit || !first_step || !steps || !positions) {
        return fm_arena_full(asym->arena, asym->reterr);
    }
    uint32_t *again = unit + n, *first_position = again + n;
    first_step[0] = 0;
    for (uint32_t c = 0; c < n; c++) {
        const fm_copy *copy = &copies->items[copies->order[c]];
        unit[c] = copy->chain;
        again[c] = copy->again;
        first_position[c] = copy->source_atom;
        if (copy->n_step) memcpy(steps + first_step[c], copy->steps, copy->n_step * sizeof *steps);
        first_step[c + 1] = first_step[c] + copy->n_step;
    }
    for (uint32_t i = 0; i < asym->n_atom; i++)
        memcpy(positions[i], asym->atoms[i].position, sizeof positions[i]);
    *origin = (fm_assembly_origin){.unit = unit,
                                   .again = again,
                                   .first_step = first_step,
                                   .steps = steps,
                                   .n_operation = copies->n_operation,
                                   .operations = (const double(*)[3][4])copies->operations,
                                   .first_position = first_position,
                                   .positions = (const float(*)[3])positions};
    assembly->origin = origin;
    return FM_OK;
}

fm_status fm_copies_fill(fm_copies *copies, fm_assembly *ret_assembly) {
    fm_asym *asym = copies->asym;
    pair_finder finder = {.copies = copies};
    table_maker maker = {.copies = copies, .assembly = ret_assembly};
    uint32_t n_rank = copies->n_order, *first_bond, n_residue = 0, n_atom = 0;
    uint64_t n_bond;
    fm_status status = find_pairs(copies, &finder);
    if (status) return status;
    number_residues(copies);
    if (!asym->is_prediction) status = drop_unconnected(copies, &finder);
    if (!status) status = count_bonds(copies, &first_bond, &n_bond);
    if (!status) status = alloc_tables(&maker, (uint32_t)n_bond);
    for (uint32_t c = 0; c < copies->n_order && !status; c++)
        status = fill_chain(&maker, c, &n_residue, &n_atom);
    if (!status) status = fill_bonds(&maker, first_bond);
    if (!status) status = fill_entities(asym, ret_assembly);
    if (!status) status = list_pairs(copies, &finder, n_rank, maker.place, ret_assembly);
    if (!status) status = fill_origin(copies, ret_assembly);
    return status ? status
                  : fm_assembly_tokenize(ret_assembly, maker.chains, maker.residues, maker.atoms,
                                         asym->arena, asym->reterr);
}
