/* molecules.c: the order of chains, the molecules that bonds make of them, and which 20 molecules
 * of a larger assembly stay; see assemble.h. */
#include "featurizer/complex/assemble.h"
#include "featurizer/complex/cells.h"
#include "featurizer/complex/pcg64.h"
#include "proto/base/hash.h"

#include <stdlib.h>

enum { MAX_MOLECULE = 20, SHUFFLE_SEED = 42 };
#define CENTRE_DISTANCE 15.0F

/* -- order */

typedef struct sort_key {
    const char *id;
    int32_t entity_id;
    uint32_t n_atom, copy;
} sort_key;

static int by_entity_and_size(const void *x, const void *y) {
    const sort_key *a = x, *b = y;
    if (a->entity_id != b->entity_id) return a->entity_id < b->entity_id ? -1 : 1;
    if (a->n_atom != b->n_atom) return a->n_atom > b->n_atom ? -1 : 1;
    return a->copy < b->copy ? -1 : a->copy > b->copy;
}

static int by_id_text(const void *x, const void *y) {
    const sort_key *a = x, *b = y;
    int order = strcmp(a->id, b->id); /* a chain "A.1" has the id of a copy of A */
    if (order) return order;
    return a->copy < b->copy ? -1 : a->copy > b->copy;
}

static fm_status sort_copies(fm_copies *copies) {
    fm_arena *arena = copies->asym->arena;
    sort_key *keys = fm_arena_alloc_array(arena, copies->n, sizeof *keys);
    copies->order = fm_arena_alloc_array(arena, copies->n, sizeof *copies->order);
    copies->by_id = fm_arena_alloc_array(arena, copies->n, sizeof *copies->by_id);
    if (!keys || !copies->order || !copies->by_id) return fm_asym_full(copies->asym);
    for (uint32_t i = 0; i < copies->n; i++) {
        const fm_copy *copy = &copies->items[i];
        keys[i] = (sort_key){copy->id, copy->entity_id, copy->n_atom, i};
    }
    qsort(keys, copies->n, sizeof *keys, by_entity_and_size);
    copies->n_order = 0;
    for (uint32_t i = 0; i < copies->n; i++)
        if (!copies->items[keys[i].copy].is_out) copies->order[copies->n_order++] = keys[i].copy;
    qsort(keys, copies->n, sizeof *keys, by_id_text);
    for (uint32_t i = 0; i < copies->n; i++)
        copies->by_id[i] = keys[i].copy;
    return FM_OK;
}

/* -- molecules */

/* Joins chains by bonds between resolved atoms; bonds between two polymers do not count. */
static fm_status join_chains(fm_copies *copies, uint32_t *root) {
    for (uint32_t i = 0; i < copies->n; i++)
        root[i] = i;
    for (uint32_t i = 0; i < copies->n_bond; i++) {
        uint32_t a = copies->bonds[i].a, b = copies->bonds[i].b;
        uint32_t one = copies->owners[a], two = copies->owners[b];
        if (copies->items[one].is_out || copies->items[two].is_out) continue;
        if (!copies->atoms[fm_copies_source(copies, a)].is_resolved ||
            !copies->atoms[fm_copies_source(copies, b)].is_resolved) {
            continue;
        }
        if (fm_copies_entity(copies, one)->is_polymer &&
            fm_copies_entity(copies, two)->is_polymer) {
            continue;
        }
        fm_union_join(root, one, two);
    }
    return FM_OK;
}

/* Numbers molecules in the order of their chains' ids, and the atoms of each in that of chains. */
static fm_status number_molecules(fm_copies *copies) {
    fm_arena *arena = copies->asym->arena;
    uint32_t *root = fm_arena_alloc_array(arena, copies->n, sizeof *root);
    int32_t *number = fm_arena_alloc_array(arena, copies->n, sizeof *number);
    uint32_t *n_atom = fm_arena_calloc(arena, copies->n, sizeof *n_atom);
    if (!root || !number || !n_atom) return fm_asym_full(copies->asym);
    fm_status status = join_chains(copies, root);
    if (status) return status;
    memset(number, 0xff, copies->n * sizeof *number);
    for (uint32_t i = 0; i < copies->n; i++) {
        fm_copy *copy = &copies->items[copies->by_id[i]];
        if (copy->is_out) continue;
        uint32_t own = fm_union_root(root, copies->by_id[i]);
        if (number[own] < 0) number[own] = (int32_t)copies->n_molecule++;
        copy->mol_id = number[own];
    }
    for (uint32_t i = 0; i < copies->n_order; i++) {
        fm_copy *copy = &copies->items[copies->order[i]];
        copy->mol_first_atom = n_atom[copy->mol_id];
        n_atom[copy->mol_id] += copy->n_atom;
    }
    return FM_OK;
}

/* -- equal molecules */

/* Chains by molecule: chains[first[m] .. first[m + 1] - 1], in order. */
typedef struct molecule_lists {
    uint32_t *first, *chains;
} molecule_lists;

static fm_status list_molecules(fm_copies *copies, molecule_lists *lists) {
    fm_arena *arena = copies->asym->arena;
    lists->first = fm_arena_calloc(arena, (size_t)copies->n_molecule + 2, sizeof(uint32_t));
    lists->chains = fm_arena_alloc_array(arena, copies->n_order, sizeof(uint32_t));
    if (!lists->first || !lists->chains) return fm_asym_full(copies->asym);
    for (uint32_t i = 0; i < copies->n_order; i++)
        lists->first[copies->items[copies->order[i]].mol_id + 2]++;
    for (uint32_t i = 0; i < copies->n_molecule; i++)
        lists->first[i + 2] += lists->first[i + 1];
    for (uint32_t i = 0; i < copies->n_order; i++) {
        int32_t molecule = copies->items[copies->order[i]].mol_id;
        lists->chains[lists->first[molecule + 1]++] = copies->order[i];
    }
    return FM_OK;
}

/* What molecules with equal entity_mol_id have in common: the entities of their chains, which are
 * in the order of entities, and the names of their atoms. */
typedef struct molecule_key {
    uint64_t entities, names;
    uint32_t molecule;
    uint32_t list; /* place of the first molecule with these entities */
} molecule_key;

static void make_key(const fm_copies *copies, const molecule_lists *lists, uint32_t molecule,
                     const uint64_t *name_hashes, molecule_key *key) {
    *key = (molecule_key){.molecule = molecule};
    for (uint32_t i = lists->first[molecule]; i < lists->first[molecule + 1]; i++) {
        const fm_copy *copy = &copies->items[lists->chains[i]];
        const uint64_t entity[2] = {key->entities, (uint64_t)copy->entity_id + 1};
        const uint64_t names[3] = {key->names, copy->n_atom, name_hashes[copy->chain]};
        key->entities = fm_xxh3(entity, sizeof entity);
        key->names = fm_xxh3(names, sizeof names);
    }
}

static int by_entities(const void *x, const void *y) {
    const molecule_key *a = x, *b = y;
    if (a->entities != b->entities) return a->entities < b->entities ? -1 : 1;
    return a->molecule < b->molecule ? -1 : a->molecule > b->molecule;
}

static int by_list_and_names(const void *x, const void *y) {
    const molecule_key *a = x, *b = y;
    if (a->list != b->list) return a->list < b->list ? -1 : 1;
    if (a->names != b->names) return a->names < b->names ? -1 : 1;
    return a->molecule < b->molecule ? -1 : a->molecule > b->molecule;
}

static int by_list(const void *x, const void *y) {
    const molecule_key *a = x, *b = y;
    if (a->list != b->list) return a->list < b->list ? -1 : 1;
    return a->molecule < b->molecule ? -1 : a->molecule > b->molecule;
}

/* Gives equal molecules one number: lists of entities in order of their first molecules, and in
 * each the names in order of theirs. Hashes of 64 bits stand for lists and names. */
static void number_keys(molecule_key *keys, uint32_t n, int32_t *numbers, uint32_t *first_equal) {
    qsort(keys, n, sizeof *keys, by_entities);
    for (uint32_t i = 0; i < n; i++) {
        bool is_first = i == 0 || keys[i].entities != keys[i - 1].entities;
        keys[i].list = is_first ? keys[i].molecule : keys[i - 1].list;
    }
    qsort(keys, n, sizeof *keys, by_list_and_names);
    for (uint32_t i = 0; i < n; i++) {
        bool is_first =
            i == 0 || keys[i].list != keys[i - 1].list || keys[i].names != keys[i - 1].names;
        first_equal[keys[i].molecule] =
            is_first ? keys[i].molecule : first_equal[keys[i - 1].molecule];
    }
    qsort(keys, n, sizeof *keys, by_list);
    int32_t next = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t molecule = keys[i].molecule, first = first_equal[molecule];
        numbers[molecule] = first == molecule ? next++ : numbers[first];
    }
}

static fm_status find_equal_molecules(fm_copies *copies) {
    const fm_asym *asym = copies->asym;
    molecule_lists lists;
    uint32_t n = copies->n_molecule;
    uint64_t *name_hashes = fm_arena_calloc(asym->arena, asym->n_chain, sizeof *name_hashes);
    molecule_key *keys = fm_arena_alloc_array(asym->arena, n, sizeof *keys);
    int32_t *numbers = fm_arena_alloc_array(asym->arena, n, sizeof *numbers);
    uint32_t *first_equal = fm_arena_alloc_array(asym->arena, n, sizeof *first_equal);
    if (!name_hashes || !keys || !numbers || !first_equal) return fm_asym_full(copies->asym);
    fm_status status = list_molecules(copies, &lists);
    if (status) return status;
    for (uint32_t i = 0; i < asym->n_chain; i++) {
        const fm_asym_chain *chain = &asym->chains[i];
        if (chain->first_residue == chain->end_residue) continue;
        uint32_t end = fm_asym_end_atom(asym, chain->end_residue - 1);
        for (uint32_t k = asym->residues[chain->first_residue].first_atom; k < end; k++) {
            uint64_t link[2] = {name_hashes[i], 0};
            memcpy(&link[1], asym->atoms[k].name, sizeof link[1]);
            name_hashes[i] = fm_xxh3(link, sizeof link);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        make_key(copies, &lists, i, name_hashes, &keys[i]);
    number_keys(keys, n, numbers, first_equal);
    for (uint32_t i = 0; i < copies->n_order; i++) {
        fm_copy *copy = &copies->items[copies->order[i]];
        copy->entity_mol_id = numbers[copy->mol_id];
    }
    return FM_OK;
}

fm_status fm_copies_sort(fm_copies *copies) {
    fm_status status = sort_copies(copies);
    if (!status) status = number_molecules(copies);
    return status ? status : find_equal_molecules(copies);
}

/* -- at most 20 molecules */

typedef struct centre_finder {
    const fm_copies *copies;
    uint32_t *points; /* resolved centre atoms, in the assembly's order */
    uint32_t n_point;
    uint32_t *candidates; /* those of chains that are no further copies, shuffled */
    uint32_t n_candidate;
    uint32_t *molecules; /* by atom */
    fm_cells cells;
} centre_finder;

static fm_status list_centres(centre_finder *finder) {
    const fm_copies *copies = finder->copies;
    fm_arena *arena = copies->asym->arena;
    finder->points = fm_arena_alloc_array(arena, copies->n_atom, sizeof(uint32_t));
    finder->candidates = fm_arena_alloc_array(arena, copies->n_atom, sizeof(uint32_t));
    finder->molecules = fm_arena_alloc_array(arena, copies->n_atom, sizeof(uint32_t));
    if (!finder->points || !finder->candidates || !finder->molecules) {
        return fm_asym_full(copies->asym);
    }
    for (uint32_t i = 0; i < copies->n_order; i++) {
        const fm_copy *copy = &copies->items[copies->order[i]];
        for (uint32_t k = 0; k < copy->n_atom; k++) {
            uint32_t atom = copy->first_atom + k;
            const fm_assembly_atom *source = &copies->atoms[copy->source_atom + k];
            finder->molecules[atom] = (uint32_t)copy->mol_id;
            if (!source->is_centre || !source->is_resolved) continue;
            finder->points[finder->n_point++] = atom;
            if (!copy->is_expanded) finder->candidates[finder->n_candidate++] = atom;
        }
    }
    fm_pcg64_shuffle(SHUFFLE_SEED, finder->candidates, finder->n_candidate);
    return fm_cells_make((const float(*)[3])copies->positions, finder->molecules, finder->points,
                         finder->n_point, CENTRE_DISTANCE, arena, &finder->cells,
                         copies->asym->reterr);
}

/* Whether a centre atom of another molecule is near. */
static bool has_neighbour(const centre_finder *finder, uint32_t atom) {
    const float *position = finder->copies->positions[atom];
    int32_t at[3];
    fm_cells_place(CENTRE_DISTANCE, position, at);
    for (int32_t step = 0; step < 27; step++) {
        const int32_t place[3] = {at[0] + step / 9 - 1, at[1] + step / 3 % 3 - 1,
                                  at[2] + step % 3 - 1};
        const fm_cell *cell = fm_cells_find(&finder->cells, place);
        if (!cell || cell->owner == finder->molecules[atom]) continue;
        for (uint32_t i = 0; i < cell->n; i++) {
            uint32_t other = finder->cells.points[cell->first + i];
            if (finder->molecules[other] != finder->molecules[atom] &&
                fm_asym_distance2(finder->copies->positions[other], position) <=
                    CENTRE_DISTANCE * CENTRE_DISTANCE) {
                return true;
            }
        }
    }
    return false;
}

typedef struct near_molecule {
    float distance2;
    bool is_expanded; /* it has no first copy of a chain */
    uint32_t molecule;
} near_molecule;

static int by_distance(const void *x, const void *y) {
    const near_molecule *a = x, *b = y;
    if (a->is_expanded != b->is_expanded) return a->is_expanded ? 1 : -1;
    if (a->distance2 < b->distance2 || a->distance2 > b->distance2) {
        return a->distance2 < b->distance2 ? -1 : 1;
    }
    return a->molecule < b->molecule ? -1 : a->molecule > b->molecule;
}

static fm_status keep_nearest(fm_copies *copies, const centre_finder *finder, uint32_t centre) {
    fm_arena *arena = copies->asym->arena;
    near_molecule *all = fm_arena_alloc_array(arena, copies->n_molecule, sizeof *all);
    bool *stays = fm_arena_calloc(arena, copies->n_molecule, 1);
    if (!all || !stays) return fm_asym_full(copies->asym);
    for (uint32_t i = 0; i < copies->n_molecule; i++)
        all[i] = (near_molecule){1e30F, true, i};
    for (uint32_t i = 0; i < copies->n_order; i++) {
        const fm_copy *copy = &copies->items[copies->order[i]];
        if (!copy->is_expanded) all[copy->mol_id].is_expanded = false;
    }
    for (uint32_t i = 0; i < finder->n_point; i++) {
        near_molecule *own = &all[finder->molecules[finder->points[i]]];
        float distance2 =
            fm_asym_distance2(copies->positions[finder->points[i]], copies->positions[centre]);
        if (distance2 < own->distance2) own->distance2 = distance2;
    }
    qsort(all, copies->n_molecule, sizeof *all, by_distance);
    for (uint32_t i = 0; i < MAX_MOLECULE; i++)
        stays[all[i].molecule] = true;
    uint32_t n = 0;
    for (uint32_t i = 0; i < copies->n_order; i++) {
        fm_copy *copy = &copies->items[copies->order[i]];
        copy->is_out = !stays[copy->mol_id];
        if (!copy->is_out) copies->order[n++] = copies->order[i];
    }
    copies->n_order = n;
    return FM_OK;
}

fm_status fm_copies_limit(fm_copies *copies) {
    if (copies->n_molecule <= MAX_MOLECULE) return FM_OK;
    centre_finder finder = {.copies = copies};
    size_t mark = fm_arena_mark(copies->asym->arena);
    fm_status status = list_centres(&finder);
    for (uint32_t i = 0; i < finder.n_candidate && !status; i++) {
        if (!has_neighbour(&finder, finder.candidates[i])) continue;
        status = keep_nearest(copies, &finder, finder.candidates[i]);
        fm_arena_rewind(copies->asym->arena, mark); /* only marks of copies stay */
        return status;
    }
    if (status) return status;
    return fm_fail(copies->asym->reterr, FM_ERR_DATA,
                   "of %u molecules no two are within %g Å, expected some 20 that belong together",
                   copies->n_molecule, (double)CENTRE_DISTANCE);
}
