/* expand.c: makes the copies of assembly 1; see assemble.h.
 *
 * An expression such as (1-60)(P,X0) is a product of groups of operations. The rightmost group is
 * applied first, and its operations vary slowest. */
#include "featurizer/complex/assemble.h"
#include "featurizer/complex/cells.h"
#include "featurizer/complex/tokens.h"
#include "featurizer/parse/decimal.h"
#include "featurizer/parse/mmcif_util.h"

#include <math.h>
#include <stdio.h>

enum { GEN_ASSEMBLY, GEN_EXPRESSION, GEN_CHAINS };
enum { OPERATION_ID, OPERATION_MATRIX };
enum { MAX_GROUP = 8 };

typedef struct group {
    uint32_t *operations; /* rows of the table */
    uint32_t n, max;
} group;

/* A set of copies: those that one operation makes of the chains that one row lists. */
typedef struct copy_set {
    uint32_t first_copy, n_operation;
    const uint32_t *operations;
} copy_set;

typedef struct expander {
    fm_asym *asym;
    fm_copies *copies;
    fm_mmcif_map by_operation, by_label;
    int32_t *numbers; /* by operation: its id if that is a number, else -1 */
    group groups[MAX_GROUP];
    uint32_t n_group;
    uint32_t max_copy, max_bond;
    uint32_t *n_copy;  /* by chain: copies so far */
    uint32_t *copy_of; /* by chain: its copy in the present set, or FM_ASYM_NONE */
    uint32_t *listed;  /* chains of the present row, in order */
    uint32_t n_listed;
    uint32_t *outer_bonds; /* bonds between two chains */
    uint32_t n_outer_bond;
    uint32_t *row_bonds; /* those of the present row */
    uint32_t n_row_bond;
    copy_set *sets;
    uint32_t n_set, max_set;
} expander;

/* -- operations */

static fm_status read_operations(expander *e) {
    fm_asym *asym = e->asym;
    const fm_cif_table *table = &asym->tables[ASYM_TABLE_OPERATION];
    if (table->n_row > FM_LIMIT_N_COMPLEX_CHAIN) {
        return fm_asym_fail(asym, FM_ERR_LIMIT, fm_cif_table_at(table, 0, OPERATION_ID).start,
                            "the file has more than %u operations", FM_LIMIT_N_COMPLEX_CHAIN);
    }
    double(*operations)[3][4] = fm_arena_alloc_array(asym->arena, table->n_row, sizeof *operations);
    e->numbers = fm_arena_alloc_array(asym->arena, table->n_row, sizeof *e->numbers);
    if (!operations || !e->numbers) return fm_asym_full(asym);
    e->copies->operations = operations;
    e->copies->n_operation = table->n_row;
    fm_status status =
        fm_mmcif_map_init(&e->by_operation, &asym->cif, asym->arena, table->n_row, asym->reterr);
    for (uint32_t row = 0; row < table->n_row && !status; row++) {
        fm_cif_view id = fm_cif_table_at(table, row, OPERATION_ID);
        *fm_mmcif_map_at(&e->by_operation, id) = row;
        e->numbers[row] = -1;
        (void)fm_integer_parse(fm_cif_text(&asym->cif, id), fm_cif_size(id), &e->numbers[row]);
        for (uint32_t i = 0; i < 12 && !status; i++) {
            fm_cif_view value = fm_cif_table_at(table, row, OPERATION_MATRIX + i);
            if (fm_mmcif_number(&asym->cif, value, &operations[row][i / 4][i % 4])) continue;
            status = fm_asym_fail(asym, FM_ERR_FORMAT, value.start,
                                  "found '%.*s' in an operation of the assembly, expected a number",
                                  FM_ASYM_SHOW(asym, value));
        }
    }
    return status;
}

static fm_status push_operation(expander *e, group *into, fm_cif_view id) {
    fm_asym *asym = e->asym;
    uint32_t row = fm_mmcif_map_get(&e->by_operation, id);
    if (row == MMCIF_NONE) {
        return fm_asym_fail(asym, FM_ERR_DATA, id.start,
                            "the assembly's operation '%.*s' is not in _pdbx_struct_oper_list",
                            FM_ASYM_SHOW(asym, id));
    }
    if (into->n == into->max) {
        if (into->n >= FM_LIMIT_N_COMPLEX_CHAIN) {
            return fm_asym_fail(asym, FM_ERR_LIMIT, id.start,
                                "the assembly has more than %u operations",
                                FM_LIMIT_N_COMPLEX_CHAIN);
        }
        uint32_t max = into->max ? into->max * 2 : 64;
        uint32_t *operations = fm_arena_alloc_array(asym->arena, max, sizeof *operations);
        if (!operations) return fm_asym_full(asym);
        if (into->n) memcpy(operations, into->operations, into->n * sizeof *operations);
        into->operations = operations;
        into->max = max;
    }
    into->operations[into->n++] = row;
    return FM_OK;
}

/* Pushes one operation, or those from the first to the last number of a range such as 1-60. */
static fm_status push_item(expander *e, group *into, fm_cif_view item) {
    fm_asym *asym = e->asym;
    const uint8_t *text = fm_cif_text(&asym->cif, item);
    const uint8_t *dash = memchr(text, '-', fm_cif_size(item));
    int32_t first = 0, last = 0;
    if (!dash || !fm_integer_parse(text, (size_t)(dash - text), &first) ||
        !fm_integer_parse(dash + 1, fm_cif_size(item) - (size_t)(dash - text) - 1, &last)) {
        return push_operation(e, into, item);
    }
    const fm_cif_table *table = &asym->tables[ASYM_TABLE_OPERATION];
    for (int64_t number = first; number <= last; number++) {
        uint32_t row = 0;
        while (row < table->n_row && e->numbers[row] != number)
            row++;
        if (row == table->n_row) {
            return fm_asym_fail(asym, FM_ERR_DATA, item.start,
                                "the assembly's operation %d is not in _pdbx_struct_oper_list",
                                (int)number);
        }
        fm_status status = push_operation(e, into, fm_cif_table_at(table, row, OPERATION_ID));
        if (status) return status;
    }
    return FM_OK;
}

static bool is_separator(uint8_t byte) {
    return byte == ',' || byte == '(' || byte == ')' || byte == ' ' || byte == '\t' ||
           byte == '\n' || byte == '\r';
}

/* Splits an expression into its groups; without brackets it is one group. */
static fm_status read_expression(expander *e, fm_cif_view expression) {
    fm_asym *asym = e->asym;
    const uint8_t *data = asym->cif.data;
    bool has_brackets = memchr(data + expression.start, '(', fm_cif_size(expression)) != NULL;
    memset(e->groups, 0, sizeof e->groups);
    e->n_group = !has_brackets;
    for (uint32_t i = expression.start; i < expression.end;) {
        if (data[i] == '(') {
            if (e->n_group == MAX_GROUP) {
                return fm_asym_fail(asym, FM_ERR_LIMIT, i,
                                    "an expression of operations has more than %d groups",
                                    MAX_GROUP);
            }
            e->n_group++;
        }
        if (is_separator(data[i])) {
            i++;
            continue;
        }
        fm_cif_view item = {.start = i, .end = i};
        while (item.end < expression.end && !is_separator(data[item.end]))
            item.end++;
        if (e->n_group == 0) {
            return fm_asym_fail(asym, FM_ERR_DATA, i,
                                "an operation stands before the first group of its expression");
        }
        fm_status status = push_item(e, &e->groups[e->n_group - 1], item);
        if (status) return status;
        i = item.end;
    }
    return FM_OK;
}

/* -- copies */

static uint32_t chain_of(const fm_asym *asym, uint32_t atom) {
    return asym->residues[asym->atoms[atom].residue].label;
}

static fm_status push_copy(expander *e, const copy_set *set, uint32_t chain_number) {
    fm_asym *asym = e->asym;
    fm_copies *copies = e->copies;
    const fm_asym_chain *chain = &asym->chains[chain_number];
    if (copies->n == e->max_copy) {
        if (copies->n >= FM_LIMIT_N_COMPLEX_CHAIN) {
            return fm_asym_fail(asym, FM_ERR_LIMIT, chain->label.start,
                                "the assembly has more than %u chains", FM_LIMIT_N_COMPLEX_CHAIN);
        }
        uint32_t max = e->max_copy ? e->max_copy * 2 : 64;
        fm_copy *items = fm_arena_alloc_array(asym->arena, max, sizeof *items);
        if (!items) return fm_asym_full(asym);
        if (copies->n) memcpy(items, copies->items, copies->n * sizeof *items);
        copies->items = items;
        e->max_copy = max;
    }
    uint32_t first = asym->residues[chain->first_residue].first_atom;
    uint32_t n_atom = fm_asym_end_atom(asym, chain->end_residue - 1) - first;
    if (n_atom > FM_LIMIT_N_COMPLEX_ATOM - copies->n_atom) {
        return fm_asym_fail(asym, FM_ERR_LIMIT, chain->label.start,
                            "the assembly has more than %u atoms", FM_LIMIT_N_COMPLEX_ATOM);
    }
    size_t room = fm_cif_size(chain->label) + 12;
    char *id = fm_arena_alloc(asym->arena, room);
    if (!id) return fm_asym_full(asym);
    memcpy(id, fm_cif_text(&asym->cif, chain->label), fm_cif_size(chain->label));
    id[fm_cif_size(chain->label)] = '\0';
    uint32_t again = e->n_copy[chain_number]++;
    if (again) snprintf(id + fm_cif_size(chain->label), 12, ".%u", again);
    e->copy_of[chain_number] = copies->n;
    copies->items[copies->n] = (fm_copy){.id = id,
                                         .chain = chain_number,
                                         .first_atom = copies->n_atom,
                                         .source_atom = first,
                                         .n_atom = n_atom,
                                         .asym_id = (int32_t)copies->n,
                                         .steps = set->operations,
                                         .n_step = set->n_operation,
                                         .again = again,
                                         .is_expanded = again > 0};
    copies->n++;
    copies->n_atom += n_atom;
    return FM_OK;
}

static fm_status push_copy_bond(expander *e, const fm_asym_bond *bond) {
    fm_asym *asym = e->asym;
    fm_copies *copies = e->copies;
    if (copies->n_bond == e->max_bond) {
        if (copies->n_bond >= FM_LIMIT_N_COMPLEX_BOND) {
            return fm_fail(asym->reterr, FM_ERR_LIMIT, "the assembly has more than %u bonds",
                           FM_LIMIT_N_COMPLEX_BOND);
        }
        uint32_t max = e->max_bond ? e->max_bond * 2 : 64;
        fm_asym_bond *bonds = fm_arena_alloc_array(asym->arena, max, sizeof *bonds);
        if (!bonds) return fm_asym_full(asym);
        if (copies->n_bond) memcpy(bonds, copies->bonds, copies->n_bond * sizeof *bonds);
        copies->bonds = bonds;
        e->max_bond = max;
    }
    const fm_copy *first = &copies->items[e->copy_of[chain_of(asym, bond->a)]];
    const fm_copy *second = &copies->items[e->copy_of[chain_of(asym, bond->b)]];
    copies->bonds[copies->n_bond++] =
        (fm_asym_bond){.a = first->first_atom + (bond->a - first->source_atom),
                       .b = second->first_atom + (bond->b - second->source_atom),
                       .order = bond->order};
    return FM_OK;
}

/* -- positions */

static fm_status place_copies(expander *e, const copy_set *set) {
    fm_copies *copies = e->copies;
    for (uint32_t i = set->first_copy; i < copies->n; i++) {
        const fm_copy *copy = &copies->items[i];
        for (uint32_t k = 0; k < copy->n_atom; k++) {
            const fm_asym_atom *atom = &e->asym->atoms[copy->source_atom + k];
            float *position = copies->positions[copy->first_atom + k];
            copies->owners[copy->first_atom + k] = i;
            memcpy(position, atom->position, sizeof atom->position);
            if (atom->is_resolved) {
                fm_operations_apply((const double(*)[3][4])copies->operations, set->operations,
                                    set->n_operation, position);
            }
            for (int axis = 0; axis < 3; axis++) {
                if (fabsf(position[axis]) < FM_CELLS_FAR) continue;
                return fm_asym_fail(e->asym, FM_ERR_LIMIT, atom->at,
                                    "an operation moves this atom to %g, expected less than "
                                    "10^6 Å from the origin",
                                    (double)position[axis]);
            }
        }
    }
    return FM_OK;
}

/* -- rows of the assembly */

static fm_status open_set(expander *e, const uint32_t *operations, uint32_t n_operation) {
    fm_asym *asym = e->asym;
    if (e->n_set == e->max_set) {
        if (e->n_set >= FM_LIMIT_N_COMPLEX_CHAIN) {
            return fm_fail(asym->reterr, FM_ERR_LIMIT, "the assembly has more than %u operations",
                           FM_LIMIT_N_COMPLEX_CHAIN);
        }
        uint32_t max = e->max_set ? e->max_set * 2 : 16;
        copy_set *sets = fm_arena_alloc_array(asym->arena, max, sizeof *sets);
        if (!sets) return fm_asym_full(asym);
        if (e->n_set) memcpy(sets, e->sets, e->n_set * sizeof *sets);
        e->sets = sets;
        e->max_set = max;
    }
    uint32_t *kept = fm_arena_alloc_array(asym->arena, n_operation, sizeof *kept);
    if (!kept) return fm_asym_full(asym);
    if (n_operation) memcpy(kept, operations, n_operation * sizeof *kept);
    copy_set *set = &e->sets[e->n_set++];
    *set = (copy_set){e->copies->n, n_operation, kept};
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < e->n_listed && !status; i++)
        status = push_copy(e, set, e->listed[i]);
    for (uint32_t i = 0; i < e->n_row_bond && !status; i++)
        status = push_copy_bond(e, &asym->bonds[e->row_bonds[i]]);
    return status;
}

/* Most bonds are within a chain, and rows may be many. */
static void list_outer_bonds(expander *e) {
    const fm_asym *asym = e->asym;
    for (uint32_t i = 0; i < asym->n_bond; i++)
        if (chain_of(asym, asym->bonds[i].a) != chain_of(asym, asym->bonds[i].b)) {
            e->outer_bonds[e->n_outer_bond++] = i;
        }
}

/* Notes which chains a row lists, without those of which nothing is left, and their bonds. */
static void list_chains(expander *e, const bool *is_listed) {
    const fm_asym *asym = e->asym;
    e->n_listed = e->n_row_bond = 0;
    for (uint32_t i = 0; i < asym->n_chain; i++) {
        const fm_asym_chain *chain = &asym->chains[i];
        if (is_listed[i] && chain->first_residue < chain->end_residue) e->listed[e->n_listed++] = i;
    }
    for (uint32_t i = 0; i < e->n_outer_bond; i++) {
        const fm_asym_bond *bond = &asym->bonds[e->outer_bonds[i]];
        if (is_listed[chain_of(asym, bond->a)] && is_listed[chain_of(asym, bond->b)]) {
            e->row_bonds[e->n_row_bond++] = e->outer_bonds[i];
        }
    }
}

static void read_chain_list(const expander *e, fm_cif_view list, bool *is_listed) {
    const uint8_t *data = e->asym->cif.data;
    memset(is_listed, 0, e->asym->n_chain);
    for (uint32_t i = list.start; i < list.end;) {
        fm_cif_view item = {.start = i, .end = i};
        while (item.end < list.end && !is_separator(data[item.end]))
            item.end++;
        uint32_t chain = fm_mmcif_map_get(&e->by_label, item);
        if (chain != MMCIF_NONE) is_listed[chain] = true;
        i = item.end + 1;
    }
}

/* Counts the operations of an expression, which are the products of its groups. */
static fm_status count_products(const expander *e, fm_cif_view expression, uint32_t *ret_n) {
    uint64_t n = 1;
    if (e->n_group == 0) n = 0;
    for (uint32_t i = 0; i < e->n_group && n > 0; i++) {
        n *= e->groups[i].n;
        if (n > FM_LIMIT_N_COMPLEX_CHAIN) {
            return fm_asym_fail(e->asym, FM_ERR_LIMIT, expression.start,
                                "the assembly has more than %u operations",
                                FM_LIMIT_N_COMPLEX_CHAIN);
        }
    }
    if (n == 0) {
        return fm_asym_fail(e->asym, FM_ERR_DATA, expression.start,
                            "a group of operations of the assembly is empty");
    }
    *ret_n = (uint32_t)n;
    return FM_OK;
}

/* Makes the copies of one row; their positions follow when all copies are counted. */
static fm_status expand_row(expander *e, uint32_t row, bool *is_listed) {
    const fm_cif_table *table = &e->asym->tables[ASYM_TABLE_ASSEMBLY_GEN];
    fm_cif_view expression = fm_cif_table_at(table, row, GEN_EXPRESSION);
    uint32_t n = 0;
    fm_status status = read_expression(e, expression);
    if (!status) status = count_products(e, expression, &n);
    if (status) return status;
    read_chain_list(e, fm_cif_table_at(table, row, GEN_CHAINS), is_listed);
    list_chains(e, is_listed);
    for (uint32_t i = 0; i < n && !status; i++) {
        uint32_t operations[MAX_GROUP], rest = i;
        /* The leftmost group varies fastest. */
        for (uint32_t k = 0; k < e->n_group; k++) {
            operations[k] = e->groups[k].operations[rest % e->groups[k].n];
            rest /= e->groups[k].n;
        }
        status = open_set(e, operations, e->n_group);
    }
    return status;
}

static bool is_assembly_one(const fm_asym *asym, uint32_t row) {
    return fm_cif_equals(&asym->cif,
                         fm_cif_table_at(&asym->tables[ASYM_TABLE_ASSEMBLY_GEN], row, GEN_ASSEMBLY),
                         "1");
}

/* Makes the sets of copies; a file without an assembly is one set as it stands. */
static fm_status make_sets(expander *e) {
    fm_asym *asym = e->asym;
    const fm_cif_table *table = &asym->tables[ASYM_TABLE_ASSEMBLY_GEN];
    bool *is_listed = fm_arena_alloc(asym->arena, asym->n_chain);
    if (!is_listed) return fm_asym_full(asym);
    if (table->n_row == 0 || asym->tables[ASYM_TABLE_OPERATION].n_row == 0) {
        memset(is_listed, 1, asym->n_chain);
        list_chains(e, is_listed);
        return open_set(e, NULL, 0);
    }
    bool has_one = false;
    fm_status status = read_operations(e);
    for (uint32_t row = 0; row < table->n_row && !status; row++) {
        if (!is_assembly_one(asym, row)) continue;
        has_one = true;
        status = expand_row(e, row, is_listed);
    }
    if (!status && !has_one) {
        status = fm_asym_fail(asym, FM_ERR_NOT_FOUND, fm_cif_table_at(table, 0, GEN_ASSEMBLY).start,
                              "the file has no assembly 1");
    }
    return status;
}

/* -- ids */

static int compare_text(const fm_asym *asym, fm_cif_view a, fm_cif_view b) {
    size_t one = fm_cif_size(a), two = fm_cif_size(b);
    int order =
        memcmp(fm_cif_text(&asym->cif, a), fm_cif_text(&asym->cif, b), one < two ? one : two);
    return order ? order : (one > two) - (one < two);
}

/* Entities are numbered by the order of their ids as text, among those that have copies. */
static fm_status number_entities(fm_copies *copies) {
    const fm_asym *asym = copies->asym;
    int32_t *rank = fm_arena_alloc_array(asym->arena, asym->n_entity, sizeof *rank);
    int32_t *n_copy = fm_arena_calloc(asym->arena, asym->n_entity, sizeof *n_copy);
    uint32_t *sorted = fm_arena_alloc_array(asym->arena, asym->n_entity, sizeof *sorted), n = 0;
    if (!rank || !n_copy || !sorted) return fm_arena_full(asym->arena, asym->reterr);
    memset(rank, 0xff, asym->n_entity * sizeof *rank);
    for (uint32_t i = 0; i < copies->n; i++) {
        uint32_t entity = asym->chains[copies->items[i].chain].entity;
        if (rank[entity] >= 0) continue;
        rank[entity] = 0;
        uint32_t place = n++;
        for (; place > 0 && compare_text(asym, asym->entities[sorted[place - 1]].id,
                                         asym->entities[entity].id) > 0;
             place--)
            sorted[place] = sorted[place - 1];
        sorted[place] = entity;
    }
    for (uint32_t i = 0; i < n; i++)
        rank[sorted[i]] = (int32_t)i;
    for (uint32_t i = 0; i < copies->n; i++) {
        uint32_t entity = asym->chains[copies->items[i].chain].entity;
        copies->items[i].entity_id = rank[entity];
        copies->items[i].sym_id = n_copy[entity]++;
    }
    return FM_OK;
}

/* The residues and atoms of the asymmetric unit as the assembly has them. */
static fm_status make_sources(fm_copies *copies) {
    const fm_asym *asym = copies->asym;
    copies->residues = fm_arena_calloc(asym->arena, asym->n_residue, sizeof *copies->residues);
    copies->atoms = fm_arena_calloc(asym->arena, asym->n_atom, sizeof *copies->atoms);
    if (!copies->residues || !copies->atoms) return fm_arena_full(asym->arena, asym->reterr);
    for (uint32_t i = 0; i < asym->n_residue; i++) {
        const fm_asym_residue *from = &asym->residues[i];
        uint32_t end = fm_asym_end_atom(asym, i);
        fm_assembly_residue *to = &copies->residues[i];
        *to = (fm_assembly_residue){.component = from->component,
                                    .number = from->number,
                                    .molecule = fm_asym_molecule(asym, i)};
        memcpy(to->name, from->name, sizeof to->name);
        for (uint32_t k = from->first_atom; k < end; k++) {
            const fm_asym_atom *atom = &asym->atoms[k];
            copies->atoms[k] = (fm_assembly_atom){.occupancy = atom->occupancy,
                                                  .b_factor = atom->b_factor,
                                                  .in_component = atom->in_component,
                                                  .element = atom->element,
                                                  .is_resolved = atom->is_resolved};
            memcpy(copies->atoms[k].name, atom->name, sizeof atom->name);
        }
        fm_residue_classify(to);
        fm_residue_mark_atoms(to, copies->atoms + from->first_atom, end - from->first_atom);
    }
    return FM_OK;
}

static fm_status sort_bonds(fm_copies *copies) {
    for (uint32_t i = 0; i < copies->n_bond; i++) {
        fm_asym_bond *bond = &copies->bonds[i];
        if (bond->a < bond->b) continue;
        uint32_t a = bond->a;
        bond->a = bond->b;
        bond->b = a;
    }
    return fm_bonds_sort(copies->bonds, &copies->n_bond, copies->n_atom, copies->asym->arena,
                         copies->asym->reterr);
}

fm_status fm_copies_expand(fm_asym *asym, fm_copies *ret_copies) {
    fm_copies copies = {.asym = asym};
    expander e = {.asym = asym, .copies = &copies};
    e.n_copy = fm_arena_calloc(asym->arena, asym->n_chain, sizeof *e.n_copy);
    e.copy_of = fm_arena_alloc_array(asym->arena, asym->n_chain, sizeof *e.copy_of);
    e.listed = fm_arena_alloc_array(asym->arena, asym->n_chain, sizeof *e.listed);
    e.outer_bonds = fm_arena_alloc_array(asym->arena, asym->n_bond, sizeof *e.outer_bonds);
    e.row_bonds = fm_arena_alloc_array(asym->arena, asym->n_bond, sizeof *e.row_bonds);
    if (!e.n_copy || !e.copy_of || !e.listed || !e.outer_bonds || !e.row_bonds) {
        return fm_asym_full(asym);
    }
    list_outer_bonds(&e);
    fm_status status =
        fm_mmcif_map_init(&e.by_label, &asym->cif, asym->arena, asym->n_chain, asym->reterr);
    if (status) return status;
    for (uint32_t i = 0; i < asym->n_chain; i++)
        *fm_mmcif_map_at(&e.by_label, asym->chains[i].label) = i;
    status = make_sets(&e);
    if (!status && copies.n == 0) {
        status = fm_fail(asym->reterr, FM_ERR_DATA,
                         "assembly 1 has none of the chains that are "
                         "left");
    }
    if (status) return status;
    copies.positions = fm_arena_alloc_array(asym->arena, copies.n_atom, sizeof *copies.positions);
    copies.owners = fm_arena_alloc_array(asym->arena, copies.n_atom, sizeof *copies.owners);
    if (!copies.positions || !copies.owners) return fm_asym_full(asym);
    uint32_t n_copy = copies.n;
    for (uint32_t i = 0; i < e.n_set && !status; i++) {
        copies.n = i + 1 < e.n_set ? e.sets[i + 1].first_copy : n_copy;
        status = place_copies(&e, &e.sets[i]);
    }
    copies.n = n_copy;
    if (!status) status = number_entities(&copies);
    if (!status) status = make_sources(&copies);
    if (!status) status = sort_bonds(&copies);
    if (!status) *ret_copies = copies;
    return status;
}
