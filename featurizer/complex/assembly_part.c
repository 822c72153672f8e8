/* assembly_part.c: turns an assembly into its part and back; see complex.h.
 *
 * A part keeps each chain of the asymmetric unit once. What its residues' components say is not
 * kept: the names and elements of atoms, and their bonds. Both directions make the same list of the
 * components' bonds, and the part has what differs from it. */
#include "featurizer/complex/assemble.h"
#include "featurizer/complex/cells.h"
#include "featurizer/complex/complex.h"
#include "featurizer/complex/tokens.h"
#include "proto/limits.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

static_assert((int)FM_PART_N_POLYMER == (int)FM_N_POLYMER, "the part checks the polymer");
static_assert((int)FM_PART_NAME_BYTES == (int)FM_COMPONENT_ID &&
                  (int)FM_PART_NAME_BYTES == (int)FM_COMPONENT_NAME,
              "names have one size");
static_assert(sizeof(fm_part_bond) == sizeof(fm_assembly_bond), "both have one layout");

/* Residues and atoms of the asymmetric unit's chains, one after the other. */
typedef struct unit_tables {
    uint32_t n_residue, n_atom;
    const fm_component **components; /* [n_residue] */
    const uint32_t *n_atom_of;       /* [n_residue] */
    const int32_t *in_component;     /* [n_atom] */
} unit_tables;

/* -- bonds of components */

static uint32_t count_component_bonds(const unit_tables *units) {
    uint64_t n = 0;
    for (uint32_t r = 0; r < units->n_residue; r++)
        n += units->components[r] ? units->components[r]->n_bond : 0;
    return n <= FM_LIMIT_N_COMPLEX_BOND ? (uint32_t)n : UINT32_MAX;
}

/* Appends the bonds that a residue's component has between its atoms, the first of which is
 * `first`. places: [atoms of the component] for work. */
static void add_component_bonds(const unit_tables *units, uint32_t residue, uint32_t first,
                                uint32_t *places, fm_assembly_bond *bonds, uint32_t *n) {
    const fm_component *component = units->components[residue];
    if (!component) return;
    memset(places, 0xff, component->n_atom * sizeof *places);
    for (uint32_t k = first; k < first + units->n_atom_of[residue]; k++)
        if (units->in_component[k] >= 0) places[units->in_component[k]] = k;
    for (uint32_t i = 0; i < component->n_bond; i++) {
        const fm_component_bond *bond = &component->bonds[i];
        uint32_t a = places[bond->a], b = places[bond->b];
        if (a == UINT32_MAX || b == UINT32_MAX) continue;
        bonds[(*n)++] =
            (fm_assembly_bond){.a = a < b ? a : b, .b = a < b ? b : a, .order = bond->order};
    }
}

/* Lists the bonds of all residues' components, ascending. extra: room for more at the end. */
static fm_status list_component_bonds(const unit_tables *units, uint32_t extra, fm_arena *arena,
                                      fm_assembly_bond **ret_bonds, uint32_t *ret_n,
                                      fm_error *reterr) {
    uint32_t most = count_component_bonds(units), most_atom = 0, n = 0;
    if (most > FM_LIMIT_N_COMPLEX_BOND || extra > FM_LIMIT_N_COMPLEX_BOND) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the assembly has more than %u bonds",
                       FM_LIMIT_N_COMPLEX_BOND);
    }
    for (uint32_t r = 0; r < units->n_residue; r++)
        if (units->components[r] && units->components[r]->n_atom > most_atom) {
            most_atom = units->components[r]->n_atom;
        }
    fm_assembly_bond *bonds = fm_arena_alloc_array(arena, (size_t)most + extra, sizeof *bonds);
    uint32_t *places = fm_arena_alloc_array(arena, most_atom, sizeof *places);
    if (!bonds || !places) return fm_arena_full(arena, reterr);
    for (uint32_t r = 0, first = 0; r < units->n_residue; first += units->n_atom_of[r++])
        add_component_bonds(units, r, first, places, bonds, &n);
    fm_status status = fm_bonds_sort(bonds, &n, units->n_atom, arena, reterr);
    *ret_bonds = bonds;
    *ret_n = n;
    return status;
}

/* -- packing */

typedef struct packer {
    const fm_assembly *assembly;
    const fm_assembly_origin *origin;
    fm_arena *arena;
    fm_part_assembly part;
    uint32_t *unit;      /* [n_chain] number of its unit in the part */
    uint32_t *first_of;  /* [n_unit] the first chain that is a copy of it */
    uint32_t *unit_atom; /* [n_unit + 1] its first atom in the part */
    unit_tables tables;
} packer;

static uint32_t end_of_residues(const fm_assembly *assembly, uint32_t chain) {
    return chain + 1 < assembly->n_chain ? assembly->chains[chain + 1].first_residue
                                         : assembly->n_residue;
}

/* Numbers units by the first chain that each has. */
static fm_status number_units(packer *p, fm_error *reterr) {
    uint32_t n_chain = p->assembly->n_chain, most = 0, n = 0;
    for (uint32_t c = 0; c < n_chain; c++)
        if (p->origin->unit[c] > most) most = p->origin->unit[c];
    uint32_t *number = fm_arena_alloc_array(p->arena, (size_t)most + 1, sizeof *number);
    p->unit = fm_arena_alloc_array(p->arena, n_chain, sizeof *p->unit);
    p->first_of = fm_arena_alloc_array(p->arena, n_chain, sizeof *p->first_of);
    p->unit_atom = fm_arena_alloc_array(p->arena, (size_t)n_chain + 1, sizeof *p->unit_atom);
    if (!number || !p->unit || !p->first_of || !p->unit_atom) {
        return fm_arena_full(p->arena, reterr);
    }
    memset(number, 0xff, ((size_t)most + 1) * sizeof *number);
    for (uint32_t c = 0; c < n_chain; c++) {
        uint32_t *own = &number[p->origin->unit[c]];
        if (*own == UINT32_MAX) {
            p->first_of[n] = c;
            p->unit_atom[n] = p->part.n_atom;
            p->part.n_residue +=
                end_of_residues(p->assembly, c) - p->assembly->chains[c].first_residue;
            p->part.n_atom +=
                fm_assembly_chain_end_atom(p->assembly, c) - p->assembly->chains[c].first_atom;
            *own = n++;
        }
        p->unit[c] = *own;
    }
    p->unit_atom[n] = p->part.n_atom;
    p->part.n_unit = n;
    return FM_OK;
}

/* Whether an atom is what its component's atom says. */
static bool is_of_component(const fm_component *component, const fm_assembly_atom *atom) {
    if (!component || atom->in_component < 0) return false;
    const fm_component_atom *own = &component->atoms[atom->in_component];
    return own->element == atom->element && fm_asym_same_name(own->name, atom->name);
}

/* The columns of the part that packing fills. */
typedef struct unit_columns {
    char (*name)[FM_PART_NAME_BYTES];
    int32_t *number, *in_component;
    uint32_t *n_atom;
    uint8_t *is_resolved;
    float (*positions)[3];
    float *occupancy, *b_factor;
    fm_part_other_atom *others;
    uint32_t n_residue_done, n_atom_done;
} unit_columns;

static void pack_atom(packer *p, unit_columns *columns, const fm_component *component,
                      const fm_assembly_atom *atom, const float position[3]) {
    uint32_t i = columns->n_atom_done++;
    columns->in_component[i] = atom->in_component;
    columns->is_resolved[i] = atom->is_resolved;
    columns->occupancy[i] = atom->occupancy;
    columns->b_factor[i] = atom->b_factor;
    memset(columns->positions[i], 0, sizeof columns->positions[i]);
    if (atom->is_resolved) memcpy(columns->positions[i], position, sizeof columns->positions[i]);
    if (is_of_component(component, atom)) return;
    fm_part_other_atom *other = &columns->others[p->part.n_other++];
    *other = (fm_part_other_atom){.atom = i, .element = atom->element};
    memcpy(other->name, atom->name, sizeof other->name);
}

static void pack_unit(packer *p, unit_columns *columns, uint32_t unit) {
    const fm_assembly *assembly = p->assembly;
    uint32_t chain = p->first_of[unit], first_atom = assembly->chains[chain].first_atom;
    const float(*positions)[3] = p->origin->positions + p->origin->first_position[chain];
    for (uint32_t r = assembly->chains[chain].first_residue; r < end_of_residues(assembly, chain);
         r++) {
        const fm_assembly_residue *residue = &assembly->residues[r];
        uint32_t i = columns->n_residue_done++, end = fm_assembly_residue_end_atom(assembly, r);
        memcpy(columns->name[i], residue->name, sizeof columns->name[i]);
        columns->number[i] = residue->number;
        columns->n_atom[i] = end - residue->first_atom;
        p->tables.components[i] = residue->component;
        for (uint32_t k = residue->first_atom; k < end; k++)
            pack_atom(p, columns, residue->component, &assembly->atoms[k],
                      positions[k - first_atom]);
    }
}

static fm_status pack_units(packer *p, fm_error *reterr) {
    fm_arena *arena = p->arena;
    fm_part_assembly *part = &p->part;
    size_t n_residue = part->n_residue, n_atom = part->n_atom;
    fm_part_unit *units = fm_arena_alloc_array(arena, part->n_unit, sizeof *units);
    unit_columns columns = {
        .name = fm_arena_alloc_array(arena, n_residue, sizeof *columns.name),
        .number = fm_arena_alloc_array(arena, n_residue, sizeof *columns.number),
        .n_atom = fm_arena_alloc_array(arena, n_residue, sizeof *columns.n_atom),
        .in_component = fm_arena_alloc_array(arena, n_atom, sizeof *columns.in_component),
        .is_resolved = fm_arena_alloc(arena, n_atom),
        .positions = fm_arena_alloc_array(arena, n_atom, sizeof *columns.positions),
        .occupancy = fm_arena_alloc_array(arena, n_atom, sizeof *columns.occupancy),
        .b_factor = fm_arena_alloc_array(arena, n_atom, sizeof *columns.b_factor),
        .others = fm_arena_alloc_array(arena, n_atom, sizeof *columns.others),
    };
    p->tables.components = fm_arena_alloc_array(arena, n_residue, sizeof(fm_component *));
    if (!units || !columns.name || !columns.number || !columns.n_atom || !columns.in_component ||
        !columns.is_resolved || !columns.positions || !columns.occupancy || !columns.b_factor ||
        !columns.others || !p->tables.components) {
        return fm_arena_full(arena, reterr);
    }
    for (uint32_t u = 0; u < part->n_unit; u++) {
        const fm_assembly_chain *chain = &p->assembly->chains[p->first_of[u]];
        units[u] =
            (fm_part_unit){chain->label_asym_id, chain->auth_asym_id, chain->entity,
                           end_of_residues(p->assembly, p->first_of[u]) - chain->first_residue};
        pack_unit(p, &columns, u);
    }
    part->units = units;
    part->residue_name = (const char(*)[FM_PART_NAME_BYTES])columns.name;
    part->residue_number = columns.number;
    part->residue_n_atom = p->tables.n_atom_of = columns.n_atom;
    part->in_component = p->tables.in_component = columns.in_component;
    part->is_resolved = columns.is_resolved;
    part->positions = (const float(*)[3])columns.positions;
    part->occupancy = columns.occupancy;
    part->b_factor = columns.b_factor;
    part->others = columns.others;
    p->tables.n_residue = part->n_residue;
    p->tables.n_atom = part->n_atom;
    return FM_OK;
}

/* Copies, and the operations that they use in the order of first use. */
static fm_status pack_copies(packer *p, fm_error *reterr) {
    const fm_assembly *assembly = p->assembly;
    const fm_assembly_origin *origin = p->origin;
    fm_part_assembly *part = &p->part;
    uint32_t n_step = origin->first_step[assembly->n_chain];
    fm_part_copy *copies = fm_arena_alloc_array(p->arena, assembly->n_chain, sizeof *copies);
    uint32_t *steps = fm_arena_alloc_array(p->arena, n_step, sizeof *steps);
    uint32_t *number = fm_arena_alloc_array(p->arena, origin->n_operation, sizeof *number);
    double(*operations)[3][4] =
        fm_arena_alloc_array(p->arena, origin->n_operation, sizeof *operations);
    if (!copies || !steps || !number || !operations) return fm_arena_full(p->arena, reterr);
    if (origin->n_operation) memset(number, 0xff, origin->n_operation * sizeof *number);
    for (uint32_t c = 0; c < assembly->n_chain; c++) {
        const fm_assembly_chain *chain = &assembly->chains[c];
        copies[c] = (fm_part_copy){
            .unit = p->unit[c],
            .again = origin->again[c],
            .asym_id = chain->asym_id,
            .entity_id = chain->entity_id,
            .sym_id = chain->sym_id,
            .mol_id = chain->mol_id,
            .entity_mol_id = chain->entity_mol_id,
            .first_uid = (uint32_t)assembly->residues[chain->first_residue].ref_space_uid,
            .mol_first_atom = (uint32_t)assembly->atoms[chain->first_atom].mol_atom_index,
            .n_step = origin->first_step[c + 1] - origin->first_step[c]};
    }
    for (uint32_t i = 0; i < n_step; i++) {
        uint32_t *own = &number[origin->steps[i]];
        if (*own == UINT32_MAX) {
            memcpy(operations[part->n_operation], origin->operations[origin->steps[i]],
                   sizeof *operations);
            *own = part->n_operation++;
        }
        steps[i] = *own;
    }
    part->n_copy = assembly->n_chain;
    part->n_step = n_step;
    part->copies = copies;
    part->steps = steps;
    part->operations = (const double(*)[3][4])operations;
    return FM_OK;
}

static uint32_t chain_of(const fm_assembly *assembly, uint32_t atom) {
    return assembly->residues[assembly->atoms[atom].residue].chain;
}

/* The bonds within units, as the first copy of each has them, and those between copies. */
static void split_bonds(packer *p, fm_part_bond *inner, uint32_t *n_inner, fm_part_bond *outer) {
    const fm_assembly *assembly = p->assembly;
    for (uint32_t i = 0; i < assembly->n_bond; i++) {
        const fm_assembly_bond *bond = &assembly->bonds[i];
        uint32_t chain = chain_of(assembly, bond->a), unit = p->unit[chain];
        if (chain != chain_of(assembly, bond->b)) {
            outer[p->part.n_copy_bond++] = (fm_part_bond){bond->a, bond->b, bond->order};
        } else if (p->first_of[unit] == chain) {
            uint32_t first = assembly->chains[chain].first_atom, at = p->unit_atom[unit];
            inner[(*n_inner)++] =
                (fm_part_bond){bond->a - first + at, bond->b - first + at, bond->order};
        }
    }
}

static int compare_bonds(const fm_assembly_bond *known, const fm_part_bond *bond) {
    if (known->a != bond->a) return known->a < bond->a ? -1 : 1;
    if (known->b != bond->b) return known->b < bond->b ? -1 : 1;
    return 0;
}

/* Keeps what differs from the components' bonds. Both lists are ascending. */
static fm_status pack_bonds(packer *p, fm_error *reterr) {
    fm_part_assembly *part = &p->part;
    uint32_t n_known, n_inner = 0, k = 0;
    fm_assembly_bond *known;
    fm_part_bond *inner = fm_arena_alloc_array(p->arena, p->assembly->n_bond, sizeof *inner);
    fm_part_bond *outer = fm_arena_alloc_array(p->arena, p->assembly->n_bond, sizeof *outer);
    fm_status status = list_component_bonds(&p->tables, 0, p->arena, &known, &n_known, reterr);
    if (status) return status;
    uint32_t *absent = fm_arena_alloc_array(p->arena, n_known, sizeof *absent);
    fm_part_bond *added = fm_arena_alloc_array(p->arena, p->assembly->n_bond, sizeof *added);
    if (!inner || !outer || !absent || !added) return fm_arena_full(p->arena, reterr);
    split_bonds(p, inner, &n_inner, outer);
    for (uint32_t i = 0; i < n_inner; i++) {
        while (k < n_known && compare_bonds(&known[k], &inner[i]) < 0)
            absent[part->n_absent++] = k++;
        bool is_here = k < n_known && compare_bonds(&known[k], &inner[i]) == 0;
        bool is_same = is_here && known[k].order == inner[i].order;
        if (is_here && !is_same) absent[part->n_absent++] = k;
        if (!is_same) added[part->n_unit_bond++] = inner[i];
        k += is_here;
    }
    for (; k < n_known; k++)
        absent[part->n_absent++] = k;
    part->absent = absent;
    part->unit_bonds = added;
    part->copy_bonds = outer;
    return FM_OK;
}

static fm_status pack_lists(packer *p, fm_error *reterr) {
    const fm_assembly *assembly = p->assembly;
    fm_part_entity *entities = fm_arena_alloc_array(p->arena, assembly->n_entity, sizeof *entities);
    uint32_t(*pairs)[2] = fm_arena_alloc_array(p->arena, assembly->n_pair, sizeof *pairs);
    if (!entities || !pairs) return fm_arena_full(p->arena, reterr);
    for (uint32_t i = 0; i < assembly->n_entity; i++) {
        const fm_assembly_entity *from = &assembly->entities[i];
        entities[i] = (fm_part_entity){from->id, from->sequence, from->n_residue, from->polymer};
    }
    for (uint32_t i = 0; i < assembly->n_pair; i++) {
        pairs[i][0] = assembly->pairs[i].a;
        pairs[i][1] = assembly->pairs[i].b;
    }
    p->part.n_entity = assembly->n_entity;
    p->part.entities = entities;
    p->part.n_pair = assembly->n_pair;
    p->part.pairs = (const uint32_t(*)[2])pairs;
    return FM_OK;
}

fm_status fm_assembly_pack(const fm_assembly *assembly, const fm_sha256 *components,
                           fm_arena *arena, fm_part_assembly *ret_part, fm_error *reterr) {
    packer p = {.assembly = assembly, .origin = assembly->origin, .arena = arena};
    assert(assembly->origin);
    p.part = (fm_part_assembly){
        .resolution = assembly->resolution, .components = *components, .method = assembly->method};
    memcpy(p.part.release_date, assembly->release_date, sizeof p.part.release_date);
    fm_status status = number_units(&p, reterr);
    if (!status) status = pack_units(&p, reterr);
    if (!status) status = pack_copies(&p, reterr);
    if (!status) status = pack_bonds(&p, reterr);
    if (!status) status = pack_lists(&p, reterr);
    if (!status) *ret_part = p.part;
    return status;
}

/* -- unpacking */

typedef struct unpacker {
    const fm_part_assembly *part;
    fm_arena *arena;
    fm_assembly assembly;
    fm_assembly_chain *chains;
    fm_assembly_residue *residues;
    fm_assembly_atom *atoms;
    uint32_t *unit_residue, *unit_atom; /* [n_unit + 1] first ones */
    fm_assembly_residue *unit_residues; /* what all copies have in common */
    fm_assembly_atom *unit_atoms;
    unit_tables tables;
} unpacker;

static fm_status fail_part(fm_error *reterr, const char *what) {
    return fm_fail(reterr, FM_ERR_CORRUPT, "the assembly part does not fit its components: %s",
                   what);
}

static fm_status find_components(unpacker *u, const fm_components *components, fm_error *reterr) {
    const fm_part_assembly *part = u->part;
    const fm_component *last = NULL;
    u->tables = (unit_tables){part->n_residue, part->n_atom,
                              fm_arena_alloc_array(u->arena, part->n_residue, sizeof last),
                              part->residue_n_atom, part->in_component};
    if (!u->tables.components) return fm_arena_full(u->arena, reterr);
    for (uint32_t r = 0, atom = 0; r < part->n_residue; r++) {
        const char *name = part->residue_name[r];
        /* Equal residues often follow one another. */
        bool is_last = r > 0 && fm_asym_same_name(name, part->residue_name[r - 1]);
        if (!is_last) last = fm_components_find(components, name);
        u->tables.components[r] = last;
        int32_t most = last ? (int32_t)last->n_atom : 0;
        for (uint32_t end = atom + part->residue_n_atom[r]; atom < end; atom++)
            if (part->in_component[atom] >= most) return fail_part(reterr, "an atom is not there");
    }
    return FM_OK;
}

/* Fills what the copies of a residue have in common. */
static void fill_residue(unpacker *u, uint32_t r, bool is_polymer, uint32_t *atom,
                         uint32_t *other) {
    const fm_part_assembly *part = u->part;
    const fm_component *component = u->tables.components[r];
    fm_assembly_residue *residue = &u->unit_residues[r];
    *residue = (fm_assembly_residue){.component = component, .number = part->residue_number[r]};
    memcpy(residue->name, part->residue_name[r], sizeof residue->name);
    residue->molecule = is_polymer && component ? component->molecule : (uint8_t)FM_MOLECULE_LIGAND;
    for (uint32_t end = *atom + part->residue_n_atom[r]; *atom < end; (*atom)++) {
        fm_assembly_atom *to = &u->unit_atoms[*atom];
        *to = (fm_assembly_atom){.occupancy = part->occupancy[*atom],
                                 .b_factor = part->b_factor[*atom],
                                 .in_component = part->in_component[*atom],
                                 .is_resolved = part->is_resolved[*atom]};
        memcpy(to->position, part->positions[*atom], sizeof to->position);
        if (*other < part->n_other && part->others[*other].atom == *atom) {
            memcpy(to->name, part->others[*other].name, sizeof to->name);
            to->element = part->others[(*other)++].element;
        } else if (component && to->in_component >= 0) {
            const fm_component_atom *own = &component->atoms[to->in_component];
            memcpy(to->name, own->name, sizeof to->name);
            to->element = own->element;
        }
    }
}

static fm_status fill_units(unpacker *u, fm_error *reterr) {
    const fm_part_assembly *part = u->part;
    fm_arena *arena = u->arena;
    uint32_t r = 0, atom = 0, other = 0;
    u->unit_residue = fm_arena_alloc_array(arena, (size_t)part->n_unit + 1, sizeof(uint32_t));
    u->unit_atom = fm_arena_alloc_array(arena, (size_t)part->n_unit + 1, sizeof(uint32_t));
    u->unit_residues = fm_arena_alloc_array(arena, part->n_residue, sizeof *u->unit_residues);
    u->unit_atoms = fm_arena_alloc_array(arena, part->n_atom, sizeof *u->unit_atoms);
    if (!u->unit_residue || !u->unit_atom || !u->unit_residues || !u->unit_atoms) {
        return fm_arena_full(arena, reterr);
    }
    for (uint32_t i = 0; i < part->n_unit; i++) {
        bool is_polymer = part->entities[part->units[i].entity].polymer != FM_POLYMER_NONE;
        u->unit_residue[i] = r;
        u->unit_atom[i] = atom;
        for (uint32_t end = r + part->units[i].n_residue; r < end; r++)
            fill_residue(u, r, is_polymer, &atom, &other);
    }
    u->unit_residue[part->n_unit] = r;
    u->unit_atom[part->n_unit] = atom;
    for (uint32_t i = 0; i < part->n_atom; i++)
        if (!u->unit_atoms[i].name[0]) return fail_part(reterr, "an atom has no name");
    return FM_OK;
}

static fm_status alloc_assembly(unpacker *u, fm_error *reterr) {
    fm_assembly *assembly = &u->assembly;
    for (uint32_t c = 0; c < u->part->n_copy; c++) {
        uint32_t unit = u->part->copies[c].unit;
        assembly->n_residue += u->part->units[unit].n_residue;
        assembly->n_atom += u->unit_atom[unit + 1] - u->unit_atom[unit];
    }
    assembly->n_chain = u->part->n_copy;
    u->chains = fm_arena_calloc(u->arena, assembly->n_chain, sizeof *u->chains);
    u->residues = fm_arena_alloc_array(u->arena, assembly->n_residue, sizeof *u->residues);
    u->atoms = fm_arena_alloc_array(u->arena, assembly->n_atom, sizeof *u->atoms);
    if (!u->chains || !u->residues || !u->atoms) return fm_arena_full(u->arena, reterr);
    assembly->chains = u->chains;
    assembly->residues = u->residues;
    assembly->atoms = u->atoms;
    return FM_OK;
}

static const char *name_copy(unpacker *u, const fm_part_unit *unit, uint32_t again) {
    if (!again) return unit->label_asym_id;
    size_t room = strlen(unit->label_asym_id) + 12;
    char *id = fm_arena_alloc(u->arena, room);
    if (id) snprintf(id, room, "%s.%u", unit->label_asym_id, again);
    return id;
}

static fm_status fill_atoms(unpacker *u, uint32_t c, const uint32_t *steps, uint32_t *n_residue,
                            uint32_t *n_atom, fm_error *reterr) {
    const fm_part_copy *copy = &u->part->copies[c];
    uint32_t unit_first = u->unit_atom[copy->unit], from = unit_first;
    for (uint32_t r = u->unit_residue[copy->unit]; r < u->unit_residue[copy->unit + 1]; r++) {
        fm_assembly_residue *residue = &u->residues[*n_residue];
        *residue = u->unit_residues[r];
        residue->chain = c;
        residue->first_atom = *n_atom;
        residue->ref_space_uid = (int32_t)(copy->first_uid + (r - u->unit_residue[copy->unit]));
        for (uint32_t end = from + u->part->residue_n_atom[r]; from < end; from++, (*n_atom)++) {
            fm_assembly_atom *atom = &u->atoms[*n_atom];
            *atom = u->unit_atoms[from];
            atom->residue = *n_residue;
            atom->mol_atom_index = (int32_t)(copy->mol_first_atom + (from - unit_first));
            if (!atom->is_resolved) continue;
            fm_operations_apply(u->part->operations, steps, copy->n_step, atom->position);
            for (int axis = 0; axis < 3; axis++)
                if (!(fabsf(atom->position[axis]) < FM_CELLS_FAR)) {
                    return fail_part(reterr, "an atom is too far away");
                }
        }
        (*n_residue)++;
    }
    return FM_OK;
}

static fm_status fill_copies(unpacker *u, fm_error *reterr) {
    const fm_part_assembly *part = u->part;
    const uint32_t *steps = part->steps;
    uint32_t n_residue = 0, n_atom = 0;
    for (uint32_t c = 0; c < part->n_copy; c++) {
        const fm_part_copy *copy = &part->copies[c];
        const fm_part_unit *unit = &part->units[copy->unit];
        uint32_t n[FM_N_MOLECULE] = {0};
        for (uint32_t r = u->unit_residue[copy->unit]; r < u->unit_residue[copy->unit + 1]; r++)
            n[u->unit_residues[r].molecule] += part->residue_n_atom[r];
        u->chains[c] = (fm_assembly_chain){.id = name_copy(u, unit, copy->again),
                                           .label_asym_id = unit->label_asym_id,
                                           .auth_asym_id = unit->auth_asym_id,
                                           .entity = unit->entity,
                                           .first_residue = n_residue,
                                           .first_atom = n_atom,
                                           .asym_id = copy->asym_id,
                                           .entity_id = copy->entity_id,
                                           .sym_id = copy->sym_id,
                                           .mol_id = copy->mol_id,
                                           .entity_mol_id = copy->entity_mol_id,
                                           .molecule = fm_molecule_of_most(n),
                                           .is_expanded = copy->again > 0};
        if (!u->chains[c].id) return fm_arena_full(u->arena, reterr);
        fm_status status = fill_atoms(u, c, steps, &n_residue, &n_atom, reterr);
        if (status) return status;
        steps += copy->n_step;
    }
    return FM_OK;
}

/* The bonds within all units, ascending. */
static fm_status unit_bonds_of(unpacker *u, fm_assembly_bond **ret_bonds, uint32_t *ret_n,
                               fm_error *reterr) {
    const fm_part_assembly *part = u->part;
    uint32_t n_known, n = 0, skip = 0;
    fm_assembly_bond *bonds;
    fm_status status =
        list_component_bonds(&u->tables, part->n_unit_bond, u->arena, &bonds, &n_known, reterr);
    if (status) return status;
    for (uint32_t i = 0; i < n_known; i++) {
        if (skip < part->n_absent && part->absent[skip] == i) {
            skip++;
        } else {
            bonds[n++] = bonds[i];
        }
    }
    if (skip < part->n_absent) return fail_part(reterr, "a bond that goes is not there");
    for (uint32_t i = 0, unit = 0; i < part->n_unit_bond; i++) {
        const fm_part_bond *bond = &part->unit_bonds[i];
        while (bond->a >= u->unit_atom[unit + 1])
            unit++;
        if (bond->b >= u->unit_atom[unit + 1]) return fail_part(reterr, "a bond leaves its chain");
        bonds[n++] = (fm_assembly_bond){.a = bond->a, .b = bond->b, .order = bond->order};
    }
    *ret_bonds = bonds;
    *ret_n = n;
    return fm_bonds_sort(bonds, ret_n, part->n_atom, u->arena, reterr);
}

static fm_status fill_bonds(unpacker *u, fm_error *reterr) {
    const fm_part_assembly *part = u->part;
    fm_assembly_bond *inner;
    uint32_t n_inner, k = 0;
    fm_status status = unit_bonds_of(u, &inner, &n_inner, reterr);
    uint32_t *first = fm_arena_alloc_array(u->arena, (size_t)part->n_unit + 1, sizeof *first);
    if (status) return status;
    if (!first) return fm_arena_full(u->arena, reterr);
    for (uint32_t i = 0; i <= part->n_unit; i++) {
        while (k < n_inner && inner[k].a < u->unit_atom[i])
            k++;
        first[i] = k;
    }
    uint64_t n = part->n_copy_bond;
    for (uint32_t c = 0; c < part->n_copy; c++)
        n += first[part->copies[c].unit + 1] - first[part->copies[c].unit];
    if (n > FM_LIMIT_N_COMPLEX_BOND) return fail_part(reterr, "it has too many bonds");
    fm_assembly_bond *bonds = fm_arena_alloc_array(u->arena, n, sizeof *bonds);
    if (!bonds) return fm_arena_full(u->arena, reterr);
    u->assembly.bonds = bonds;
    for (uint32_t c = 0; c < part->n_copy; c++) {
        uint32_t unit = part->copies[c].unit, shift = u->chains[c].first_atom - u->unit_atom[unit];
        for (uint32_t i = first[unit]; i < first[unit + 1]; i++) {
            bonds[u->assembly.n_bond] = inner[i];
            bonds[u->assembly.n_bond].a += shift;
            bonds[u->assembly.n_bond++].b += shift;
        }
    }
    for (uint32_t i = 0; i < part->n_copy_bond; i++) {
        const fm_part_bond *bond = &part->copy_bonds[i];
        bonds[u->assembly.n_bond++] =
            (fm_assembly_bond){.a = bond->a, .b = bond->b, .order = bond->order};
    }
    return fm_bonds_sort(bonds, &u->assembly.n_bond, u->assembly.n_atom, u->arena, reterr);
}

static fm_status fill_lists(unpacker *u, fm_error *reterr) {
    const fm_part_assembly *part = u->part;
    fm_assembly_entity *entities = fm_arena_alloc_array(u->arena, part->n_entity, sizeof *entities);
    fm_assembly_pair *pairs = fm_arena_alloc_array(u->arena, part->n_pair, sizeof *pairs);
    if (!entities || !pairs) return fm_arena_full(u->arena, reterr);
    for (uint32_t i = 0; i < part->n_entity; i++) {
        const fm_part_entity *from = &part->entities[i];
        entities[i] =
            (fm_assembly_entity){from->id, from->sequence, from->n_residue, from->polymer};
    }
    for (uint32_t i = 0; i < part->n_pair; i++)
        pairs[i] = (fm_assembly_pair){part->pairs[i][0], part->pairs[i][1]};
    u->assembly.n_entity = part->n_entity;
    u->assembly.entities = entities;
    u->assembly.n_pair = part->n_pair;
    u->assembly.pairs = pairs;
    return FM_OK;
}

fm_status fm_assembly_unpack(const fm_part_assembly *part, const fm_components *components,
                             fm_arena *arena, fm_assembly *ret_assembly, fm_error *reterr) {
    unpacker u = {.part = part, .arena = arena};
    if (memcmp(&part->components, &components->hash, sizeof part->components) != 0) {
        return fail_part(reterr, "it names another set");
    }
    u.assembly = (fm_assembly){.resolution = part->resolution, .method = part->method};
    memcpy(u.assembly.release_date, part->release_date, sizeof u.assembly.release_date);
    fm_status status = find_components(&u, components, reterr);
    if (!status) status = fill_units(&u, reterr);
    if (!status) status = alloc_assembly(&u, reterr);
    if (!status) status = fill_copies(&u, reterr);
    if (!status) status = fill_bonds(&u, reterr);
    if (!status) status = fill_lists(&u, reterr);
    if (!status) {
        status = fm_assembly_tokenize(&u.assembly, u.chains, u.residues, u.atoms, arena, reterr);
    }
    if (!status) *ret_assembly = u.assembly;
    return status;
}
