/* asym_complete.c: makes chains whole by their sequences, and ligands by their components; see
 * asym.h.
 *
 *     file      C CA N . . | - | C CA N O         (of number 1, none of 2, of number 3)
 *     sequence  N CA C O CB OXT | N CA C O OXT | ...
 *
 * Each polymer entity has its reference atoms: those of its sequence's components, one after the
 * other. An atom of the file has the place of its name there. What leaves with bonds is decided for
 * each reference atom, over all chains of the entity, and for each ligand by its own bonds. */
#include "featurizer/complex/asym.h"
#include "featurizer/complex/leaving.h"

#include <assert.h>

/* Reference atoms of an entity. */
typedef struct reference {
    uint32_t *first; /* [n_number + 1] place of a number's atoms; NULL: no chain has the entity */
    uint32_t n;
    uint16_t *n_bond;  /* [n] most bonds to other residues */
    uint32_t *copy;    /* [n] the file's first atom, or FM_ASYM_NONE */
    bool *is_resolved; /* [n] some chain has it */
    bool *leaves;      /* [n] */
    bool *is_broken;   /* [n_number] a chain has no link from this number to the next one */
} reference;

typedef struct completion {
    fm_asym *asym;
    fm_asym_graph graph;
    fm_leaving **leaving;    /* by component; NULL: not yet found */
    reference *references;   /* by entity */
    uint32_t *place;         /* by atom of the file: in its component; FM_ASYM_NONE: not there */
    uint32_t *new_atom;      /* by atom of the file, once emitted; FM_ASYM_NONE: gone */
    uint32_t *scratch;       /* by atom of the largest component */
    bool *resolved, *leaves; /* the same */
    fm_asym_atom *atoms;
    fm_asym_residue *residues;
    uint32_t n_atom, n_residue, max_atom, max_residue;
} completion;

static fm_status leaving_of(completion *c, const fm_component *component,
                            const fm_leaving **ret_leaving) {
    fm_leaving **slot = &c->leaving[component - c->asym->components->items];
    if (!*slot) {
        fm_leaving *leaving = fm_arena_alloc(c->asym->arena, sizeof *leaving);
        if (!leaving) return fm_asym_full(c->asym);
        fm_status status = fm_leaving_find(component, c->asym->arena, leaving, c->asym->reterr);
        if (status) return status;
        *slot = leaving;
    }
    *ret_leaving = *slot;
    return FM_OK;
}

static fm_status fail_atoms(fm_asym *asym) {
    return fm_fail(asym->reterr, FM_ERR_LIMIT, "the completed chains have more than %u atoms",
                   FM_LIMIT_N_COMPLEX_ATOM);
}

/* -- reference atoms of polymers */

static fm_status open_reference(completion *c, const fm_asym_chain *chain) {
    fm_asym *asym = c->asym;
    const fm_asym_entity *entity = &asym->entities[chain->entity];
    reference *ref = &c->references[chain->entity];
    if (ref->first) return FM_OK;
    ref->first =
        fm_arena_alloc_array(asym->arena, (size_t)entity->n_number + 1, sizeof *ref->first);
    if (!ref->first) return fm_asym_full(asym);
    for (uint32_t i = 0; i < entity->n_number; i++) {
        ref->first[i] = ref->n;
        if (!entity->components[i]) {
            fm_cif_view at =
                fm_cif_table_at(&asym->tables[ASYM_TABLE_ENTITY_POLY_SEQ], entity->first_row[i], 2);
            return fm_asym_fail(asym, FM_ERR_NOT_FOUND, at.start,
                                "component %.7s of the polymer is not among the components",
                                entity->names[i]);
        }
        ref->n += entity->components[i]->n_atom;
        if (ref->n > FM_LIMIT_N_COMPLEX_ATOM) return fail_atoms(asym);
    }
    ref->first[entity->n_number] = ref->n;
    ref->n_bond = fm_arena_calloc(asym->arena, ref->n, sizeof *ref->n_bond);
    ref->copy = fm_arena_alloc_array(asym->arena, ref->n, sizeof *ref->copy);
    ref->is_resolved = fm_arena_calloc(asym->arena, ref->n, 1);
    ref->leaves = fm_arena_calloc(asym->arena, ref->n, 1);
    ref->is_broken = fm_arena_calloc(asym->arena, entity->n_number, 1);
    if (!ref->n_bond || !ref->copy || !ref->is_resolved || !ref->leaves || !ref->is_broken) {
        return fm_asym_full(asym);
    }
    memset(ref->copy, 0xff, ref->n * sizeof *ref->copy);
    return FM_OK;
}

/* Returns the sequence's component of a residue of a polymer; the residue's own for ligands. */
static fm_status component_of(const completion *c, uint32_t i, const fm_component **ret) {
    fm_asym *asym = c->asym;
    const fm_asym_residue *residue = &asym->residues[i];
    const fm_asym_chain *chain = &asym->chains[residue->label];
    const fm_asym_entity *entity = &asym->entities[chain->entity];
    *ret = residue->component;
    if (chain->is_ligand) return FM_OK;
    uint32_t at = residue->key[ASYM_KEY_LABEL_SEQ].start;
    if (entity->n_number == 0) {
        return fm_asym_fail(asym, FM_ERR_DATA, at,
                            "residue %d is of a polymer, but _entity_poly_seq has no row of its "
                            "entity '%.*s'",
                            residue->number, FM_ASYM_SHOW(asym, entity->id));
    }
    if (residue->number < 1 || (uint32_t)residue->number > entity->n_number) {
        return fm_asym_fail(asym, FM_ERR_DATA, at,
                            "residue %d is outside its chain's sequence of %u residues",
                            residue->number, entity->n_number);
    }
    if (i > chain->first_residue && asym->residues[i - 1].number == residue->number) {
        return fm_asym_fail(asym, FM_ERR_DATA, at, "residue %d comes a second time in its chain",
                            residue->number);
    }
    const char *name = entity->names[residue->number - 1];
    if (!asym->compat && !fm_asym_same_name(name, residue->name)) {
        return fm_asym_fail(asym, FM_ERR_DATA, residue->key[ASYM_KEY_LABEL_COMP].start,
                            "residue %d is %.7s, but _entity_poly_seq says %.7s", residue->number,
                            residue->name, name);
    }
    *ret = entity->components[residue->number - 1];
    return FM_OK;
}

/* Finds the places of a residue's atoms in the component that it is completed by. */
static fm_status place_residue(completion *c, uint32_t i) {
    fm_asym *asym = c->asym;
    const fm_component *component;
    fm_status status = component_of(c, i, &component);
    if (status) return status;
    uint32_t first = asym->residues[i].first_atom, end = fm_asym_end_atom(asym, i);
    for (uint32_t k = first; k < end; k++) {
        const fm_asym_atom *atom = &asym->atoms[k];
        if (component && component != asym->residues[i].component) {
            c->place[k] = (uint32_t)fm_component_find_atom(component, atom->name);
        } else {
            c->place[k] = component ? (uint32_t)atom->in_component : FM_ASYM_NONE;
        }
    }
    if (!component) return FM_OK;
    memset(c->leaves, 0, component->n_atom);
    for (uint32_t k = first; k < end; k++) {
        if (c->place[k] == FM_ASYM_NONE) continue;
        if (c->leaves[c->place[k]]) {
            return fm_asym_fail(asym, FM_ERR_DATA, asym->atoms[k].at,
                                "atom %.7s comes a second time in its residue",
                                asym->atoms[k].name);
        }
        c->leaves[c->place[k]] = true;
    }
    return FM_OK;
}

static uint32_t count_outer_bonds(const completion *c, uint32_t atom) {
    const fm_asym *asym = c->asym;
    uint32_t n = 0;
    for (uint32_t k = c->graph.first[atom]; k < c->graph.first[atom + 1]; k++)
        n += asym->atoms[c->graph.neighbours[k]].residue != asym->atoms[atom].residue;
    return n;
}

static bool are_bonded(const completion *c, uint32_t a, uint32_t b) {
    for (uint32_t k = c->graph.first[a]; k < c->graph.first[a + 1]; k++)
        if (c->graph.neighbours[k] == b) return true;
    return false;
}

static void note_copy(completion *c, uint32_t i) {
    const fm_asym_residue *residue = &c->asym->residues[i];
    reference *ref = &c->references[c->asym->chains[residue->label].entity];
    uint32_t first = ref->first[residue->number - 1];
    for (uint32_t k = residue->first_atom; k < fm_asym_end_atom(c->asym, i); k++) {
        if (c->place[k] == FM_ASYM_NONE) continue;
        uint32_t at = first + c->place[k], n = count_outer_bonds(c, k);
        if (ref->copy[at] == FM_ASYM_NONE) ref->copy[at] = k;
        ref->is_resolved[at] = true;
        if (n > ref->n_bond[at]) ref->n_bond[at] = (uint16_t)(n < UINT16_MAX ? n : UINT16_MAX);
    }
}

static uint32_t file_atom(const completion *c, uint32_t i, int32_t place) {
    for (uint32_t k = c->asym->residues[i].first_atom; k < fm_asym_end_atom(c->asym, i); k++)
        if (c->place[k] == (uint32_t)place) return k;
    return FM_ASYM_NONE;
}

/* Notes whether residue i and the next one have both atoms of a link and no bond between them. */
static void note_break(completion *c, uint32_t i) {
    const fm_asym_residue *residue = &c->asym->residues[i];
    const fm_asym_chain *chain = &c->asym->chains[residue->label];
    const fm_asym_entity *entity = &c->asym->entities[chain->entity];
    if (i + 1 == chain->end_residue || residue[1].number != residue->number + 1) return;
    int32_t a, b;
    fm_component_find_link(entity->components[residue->number - 1],
                           entity->components[residue->number], &a, &b);
    if (a < 0) return;
    uint32_t one = file_atom(c, i, a), two = file_atom(c, i + 1, b);
    if (one == FM_ASYM_NONE || two == FM_ASYM_NONE || are_bonded(c, one, two)) return;
    c->references[chain->entity].is_broken[residue->number - 1] = true;
}

/* C, or P of nucleic acids, has the bond to its neighbour even where no chain has both atoms. */
static void note_links(const fm_asym_entity *entity, reference *ref) {
    for (uint32_t i = 0; i + 1 < entity->n_number; i++) {
        int32_t a, b;
        if (ref->is_broken[i]) continue;
        fm_component_find_link(entity->components[i], entity->components[i + 1], &a, &b);
        if (a < 0) continue;
        bool is_peptide = entity->components[i]->molecule == FM_MOLECULE_PROTEIN;
        uint32_t at = is_peptide ? ref->first[i] + (uint32_t)a : ref->first[i + 1] + (uint32_t)b;
        if (ref->n_bond[at] == 0) ref->n_bond[at] = 1;
    }
}

/* Some components do not mark the atoms that leave. Where an atom with a bond to another residue
 * has no group that leaves, its terminal neighbours leave that its copy in the file lacks. */
static void repair(const completion *c, const fm_component *component, const fm_leaving *leaving,
                   uint32_t centre, uint32_t copy, bool *leaves) {
    if (copy == FM_ASYM_NONE) return;
    for (uint32_t k = leaving->first_neighbour[centre]; k < leaving->first_neighbour[centre + 1];
         k++) {
        uint32_t next = leaving->neighbours[k];
        if (!fm_leaving_is_terminal(leaving, next)) continue;
        bool has_it = false;
        for (uint32_t m = c->graph.first[copy]; m < c->graph.first[copy + 1]; m++) {
            const fm_asym_atom *other = &c->asym->atoms[c->graph.neighbours[m]];
            has_it |= other->residue == c->asym->atoms[copy].residue &&
                      fm_asym_same_name(other->name, component->atoms[next].name);
        }
        if (!has_it) leaves[next] = true;
    }
}

static fm_status decide_polymer(completion *c, const fm_asym_entity *entity, reference *ref) {
    note_links(entity, ref);
    for (uint32_t i = 0; i < entity->n_number; i++) {
        const fm_component *component = entity->components[i];
        const fm_leaving *leaving;
        fm_status status = leaving_of(c, component, &leaving);
        if (status) return status;
        uint32_t first = ref->first[i];
        for (uint32_t atom = 0; atom < component->n_atom && !leaving->is_ambiguous; atom++) {
            uint32_t n = ref->n_bond[first + atom];
            if (n == 0) continue;
            uint32_t n_group =
                fm_leaving_mark(leaving, atom, n, ref->is_resolved + first, ref->leaves + first);
            if (n_group == 0) {
                repair(c, component, leaving, atom, ref->copy[first + atom], ref->leaves + first);
            }
        }
    }
    return FM_OK;
}

/* -- ligands */

/* Marks in c->leaves what leaves a ligand; c->resolved says which atoms the file has. */
static void decide_ligand(completion *c, uint32_t i, const fm_component *component,
                          const fm_leaving *leaving) {
    const fm_asym_residue *residue = &c->asym->residues[i];
    uint32_t end = fm_asym_end_atom(c->asym, i);
    memset(c->resolved, 0, component->n_atom);
    memset(c->leaves, 0, component->n_atom);
    for (uint32_t k = residue->first_atom; k < end; k++)
        if (c->place[k] != FM_ASYM_NONE) c->resolved[c->place[k]] = true;
    for (uint32_t k = residue->first_atom; k < end; k++) {
        uint32_t centre = c->place[k], n = count_outer_bonds(c, k), n_group = 0;
        if (centre == FM_ASYM_NONE || n == 0) continue;
        for (uint32_t group = 0; group < leaving->n_group; group++)
            n_group += leaving->centres[group] == centre;
        const char *name = component->atoms[centre].name;
        bool is_boron = fm_asym_is_name(name, "B") || fm_asym_is_name(name, "BE");
        if (is_boron && n < n_group && fm_leaving_is_resolved(leaving, centre, c->resolved)) {
            continue;
        }
        if (fm_leaving_mark(leaving, centre, n, c->resolved, c->leaves) == 0) {
            repair(c, component, leaving, centre, k, c->leaves);
        }
    }
}

/* -- the new atoms */

static void push_residue(completion *c, const fm_asym_residue *residue) {
    assert(c->n_residue < c->max_residue);
    c->residues[c->n_residue] = *residue;
    c->residues[c->n_residue++].first_atom = c->n_atom;
}

static void push_atom(completion *c, const fm_asym_atom *atom) {
    assert(c->n_atom < c->max_atom);
    c->atoms[c->n_atom] = *atom;
    c->atoms[c->n_atom++].residue = c->n_residue - 1;
}

/* Adds a component's atoms but those that leave. `i` is the residue of the file that they come
 * from, or FM_ASYM_NONE. */
static fm_status emit_component(completion *c, uint32_t i, const fm_component *component,
                                const bool *leaves) {
    fm_asym *asym = c->asym;
    uint32_t first = i == FM_ASYM_NONE ? 0 : asym->residues[i].first_atom;
    uint32_t end = i == FM_ASYM_NONE ? 0 : fm_asym_end_atom(asym, i), n_lost = 0;
    memset(c->scratch, 0xff, component->n_atom * sizeof *c->scratch);
    for (uint32_t k = first; k < end; k++) {
        uint32_t at = c->place[k];
        if (at == FM_ASYM_NONE || leaves[at]) {
            n_lost++;
        } else {
            c->scratch[at] = k;
        }
    }
    bool is_lost = 2 * n_lost >= end - first;
    for (uint32_t at = 0; at < component->n_atom; at++) {
        if (leaves[at]) continue;
        fm_asym_atom atom = {.in_component = (int32_t)at, .element = component->atoms[at].element};
        memcpy(atom.name, component->atoms[at].name, sizeof atom.name);
        uint32_t k = is_lost ? FM_ASYM_NONE : c->scratch[at];
        c->scratch[at] = c->n_atom;
        if (k != FM_ASYM_NONE) {
            const fm_asym_atom *from = &asym->atoms[k];
            memcpy(atom.position, from->position, sizeof atom.position);
            atom.occupancy = from->occupancy;
            atom.b_factor = from->b_factor;
            atom.alt = from->alt;
            atom.at = from->at;
            atom.is_resolved = true;
            c->new_atom[k] = c->n_atom;
        }
        push_atom(c, &atom);
    }
    for (uint32_t k = 0; k < component->n_bond; k++) {
        const fm_component_bond *bond = &component->bonds[k];
        if (leaves[bond->a] || leaves[bond->b]) continue;
        fm_status status =
            fm_asym_add_bond(asym, c->scratch[bond->a], c->scratch[bond->b], bond->order);
        if (status) return status;
    }
    return FM_OK;
}

static fm_status emit_polymer(completion *c, const fm_asym_chain *chain) {
    const fm_asym_entity *entity = &c->asym->entities[chain->entity];
    const reference *ref = &c->references[chain->entity];
    uint32_t i = chain->first_residue, label = c->asym->residues[i].label;
    for (uint32_t number = 1; number <= entity->n_number; number++) {
        const fm_component *component = entity->components[number - 1];
        bool is_there = i < chain->end_residue && c->asym->residues[i].number == (int32_t)number;
        fm_asym_residue residue = {
            .component = component, .label = label, .link = label, .number = (int32_t)number};
        memcpy(residue.name, component->id, sizeof residue.name);
        push_residue(c, &residue);
        fm_status status = emit_component(c, is_there ? i : FM_ASYM_NONE, component,
                                          ref->leaves + ref->first[number - 1]);
        if (status) return status;
        i += is_there;
    }
    return FM_OK;
}

static fm_status emit_ligand(completion *c, uint32_t i) {
    fm_asym *asym = c->asym;
    const fm_component *component = asym->residues[i].component;
    const fm_leaving *leaving = NULL;
    push_residue(c, &asym->residues[i]);
    fm_status status = component ? leaving_of(c, component, &leaving) : FM_OK;
    if (status) return status;
    if (leaving && !leaving->is_ambiguous) {
        decide_ligand(c, i, component, leaving);
        return emit_component(c, i, component, c->leaves);
    }
    for (uint32_t k = asym->residues[i].first_atom; k < fm_asym_end_atom(asym, i); k++) {
        c->new_atom[k] = c->n_atom;
        push_atom(c, &asym->atoms[k]);
    }
    return FM_OK;
}

/* -- all of it */

static fm_status init_completion(completion *c) {
    fm_asym *asym = c->asym;
    uint32_t max_component = 0;
    for (uint32_t i = 0; i < asym->n_residue; i++) {
        const fm_component *component = asym->residues[i].component;
        if (component && component->n_atom > max_component) max_component = component->n_atom;
    }
    for (uint32_t i = 0; i < asym->n_entity; i++) {
        for (uint32_t k = 0; k < asym->entities[i].n_number; k++) {
            const fm_component *component = asym->entities[i].components[k];
            if (component && component->n_atom > max_component) max_component = component->n_atom;
        }
    }
    c->leaving = fm_arena_calloc(asym->arena, asym->components->n, sizeof *c->leaving);
    c->references = fm_arena_calloc(asym->arena, asym->n_entity, sizeof *c->references);
    c->place = fm_arena_alloc_array(asym->arena, asym->n_atom, sizeof *c->place);
    c->new_atom = fm_arena_alloc_array(asym->arena, asym->n_atom, sizeof *c->new_atom);
    c->scratch = fm_arena_alloc_array(asym->arena, max_component, sizeof *c->scratch);
    c->resolved = fm_arena_alloc(asym->arena, max_component);
    c->leaves = fm_arena_alloc(asym->arena, max_component);
    if (!c->leaving || !c->references || !c->place || !c->new_atom || !c->scratch || !c->resolved ||
        !c->leaves) {
        return fm_asym_full(asym);
    }
    memset(c->new_atom, 0xff, asym->n_atom * sizeof *c->new_atom);
    return fm_asym_make_graph(asym, &c->graph);
}

/* Prepares the reference atoms and counts the room that the new atoms need. */
static fm_status read_copies(completion *c) {
    fm_asym *asym = c->asym;
    fm_status status = FM_OK;
    uint64_t n_atom = 0, n_residue = 0;
    for (uint32_t i = 0; i < asym->n_chain && !status; i++) {
        const fm_asym_chain *chain = &asym->chains[i];
        if (chain->first_residue == chain->end_residue) continue;
        if (!chain->is_ligand) status = open_reference(c, chain);
        for (uint32_t k = chain->first_residue; k < chain->end_residue && !status; k++) {
            const fm_component *own = asym->residues[k].component;
            uint32_t n = fm_asym_end_atom(asym, k) - asym->residues[k].first_atom;
            status = place_residue(c, k);
            if (chain->is_ligand) n_atom += own && own->n_atom > n ? own->n_atom : n;
            n_residue += chain->is_ligand;
            if (!status && !chain->is_ligand) note_copy(c, k);
        }
        for (uint32_t k = chain->first_residue; k < chain->end_residue && !status; k++)
            if (!chain->is_ligand) note_break(c, k);
        if (status || chain->is_ligand) continue;
        n_atom += c->references[chain->entity].n;
        n_residue += asym->entities[chain->entity].n_number;
        if (n_atom > FM_LIMIT_N_COMPLEX_ATOM || n_residue > FM_LIMIT_N_COMPLEX_ATOM) {
            return fail_atoms(asym);
        }
    }
    if (status) return status;
    if (n_atom > FM_LIMIT_N_COMPLEX_ATOM) return fail_atoms(asym);
    c->max_atom = (uint32_t)n_atom;
    c->max_residue = (uint32_t)n_residue;
    c->atoms = fm_arena_alloc_array(asym->arena, c->max_atom, sizeof *c->atoms);
    c->residues = fm_arena_alloc_array(asym->arena, c->max_residue, sizeof *c->residues);
    return c->atoms && c->residues ? FM_OK : fm_asym_full(asym);
}

static fm_status emit_all(completion *c) {
    fm_asym *asym = c->asym;
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < asym->n_chain && !status; i++) {
        const fm_asym_chain *chain = &asym->chains[i];
        if (chain->first_residue == chain->end_residue) continue;
        if (!chain->is_ligand) {
            status = emit_polymer(c, chain);
            continue;
        }
        for (uint32_t k = chain->first_residue; k < chain->end_residue && !status; k++)
            status = emit_ligand(c, k);
    }
    return status;
}

/* Carries the file's bonds over to the new atoms. */
static fm_status carry_bonds(completion *c, const fm_asym_bond *bonds, uint32_t n_bond) {
    for (uint32_t i = 0; i < n_bond; i++) {
        uint32_t a = c->new_atom[bonds[i].a], b = c->new_atom[bonds[i].b];
        if (a == FM_ASYM_NONE || b == FM_ASYM_NONE) continue;
        fm_status status = fm_asym_add_bond(c->asym, a, b, bonds[i].order);
        if (status) return status;
    }
    return FM_OK;
}

fm_status fm_asym_complete(fm_asym *asym) {
    completion c = {.asym = asym};
    fm_status status = init_completion(&c);
    if (!status) status = read_copies(&c);
    for (uint32_t i = 0; i < asym->n_entity && !status; i++) {
        if (c.references[i].first) {
            status = decide_polymer(&c, &asym->entities[i], &c.references[i]);
        }
    }
    if (status) return status;
    const fm_asym_bond *bonds = asym->bonds;
    uint32_t n_bond = asym->n_bond;
    asym->bonds = NULL;
    asym->n_bond = asym->max_bond = 0;
    status = emit_all(&c);
    if (!status) status = carry_bonds(&c, bonds, n_bond);
    if (status) return status;
    asym->atoms = c.atoms;
    asym->residues = c.residues;
    asym->n_atom = c.n_atom;
    asym->n_residue = c.n_residue;
    fm_asym_find_ranges(asym);
    return fm_asym_bond_polymers(asym, true);
}
