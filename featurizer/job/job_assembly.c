/* job_assembly.c: the chains of a job as an assembly without coordinates; see prepare.h.
 *
 * A chain first has all heavy atoms of its components. What leaves with the bonds of the polymer is
 * marked, then what leaves with the bonds of the description, and then atoms get their numbers. */
#include "featurizer/complex/assemble.h"
#include "featurizer/complex/leaving.h"
#include "featurizer/job/prepare.h"
#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>

#define NO_ATOM UINT32_MAX

/* A bond between atoms of the whole components. `is_counted`: atoms leave with it. */
typedef struct plan_bond {
    uint32_t a, b;
    bool is_counted;
} plan_bond;

typedef struct builder {
    fm_job_work *work;
    fm_leaving **leaving; /* by component; NULL: not yet found */
    fm_assembly assembly;
    fm_assembly_chain *chains;
    fm_assembly_residue *residues;
    uint32_t *first; /* [n_residue + 1] atoms of the whole components */
    uint32_t n_all;
    bool *leaves;     /* [n_all] */
    uint32_t *n_link; /* [n_all] counted bonds */
    plan_bond *links; /* of polymers and of the description */
    uint32_t n_link_bond;
    uint32_t *chain_of; /* [n_entity] the first chain of each entity */
    bool *none;         /* no atom is resolved; for the longest component */
} builder;

static fm_status fail_full(const builder *b) {
    return fm_arena_full(b->work->arena, b->work->reterr);
}

static uint32_t end_of_chain(const builder *b, uint32_t c) {
    return c + 1 < b->assembly.n_chain ? b->chains[c + 1].first_residue : b->assembly.n_residue;
}

/* -- chains and residues */

typedef struct entity_rank {
    char text[12];
    uint32_t entity;
} entity_rank;

static int by_text(const void *left, const void *right) {
    return strcmp(((const entity_rank *)left)->text, ((const entity_rank *)right)->text);
}

/* Entities are numbered from 1, and ranked by these numbers as text, as the reference does. */
static fm_status make_entities(builder *b, int32_t **ret_rank) {
    static const uint8_t polymers[] = {FM_POLYMER_PEPTIDE_L, FM_POLYMER_RNA, FM_POLYMER_DNA,
                                       FM_POLYMER_NONE};
    const fm_complex_job *job = b->work->job;
    fm_arena *arena = b->work->arena;
    fm_assembly_entity *entities = fm_arena_calloc(arena, job->n_entity, sizeof *entities);
    entity_rank *ranks = fm_arena_alloc_array(arena, job->n_entity, sizeof *ranks);
    char(*ids)[12] = fm_arena_alloc_array(arena, job->n_entity, sizeof *ids);
    *ret_rank = fm_arena_alloc_array(arena, job->n_entity, sizeof **ret_rank);
    if (!entities || !ranks || !ids || !*ret_rank) return fail_full(b);
    for (uint32_t e = 0; e < job->n_entity; e++) {
        snprintf(ids[e], sizeof ids[e], "%u", e + 1);
        memcpy(ranks[e].text, ids[e], sizeof ids[e]);
        ranks[e].entity = e;
        entities[e] = (fm_assembly_entity){.id = ids[e],
                                           .sequence = job->entities[e].sequence,
                                           .n_residue = job->entities[e].n_residue,
                                           .polymer = polymers[job->entities[e].molecule]};
        if (!entities[e].sequence) entities[e].n_residue = 0;
    }
    qsort(ranks, job->n_entity, sizeof *ranks, by_text);
    for (uint32_t i = 0; i < job->n_entity; i++)
        (*ret_rank)[ranks[i].entity] = (int32_t)i;
    b->assembly.n_entity = job->n_entity;
    b->assembly.entities = entities;
    return FM_OK;
}

static void make_residues(builder *b, const fm_job_entity *entity, uint32_t chain) {
    for (uint32_t i = 0; i < entity->n_residue; i++) {
        uint32_t r = b->assembly.n_residue++;
        const fm_component *component =
            fm_components_find(&b->work->components, entity->components[i]);
        fm_assembly_residue *residue = &b->residues[r];
        *residue = (fm_assembly_residue){.component = component,
                                         .chain = chain,
                                         .number = (int32_t)i + 1,
                                         .ref_space_uid = (int32_t)r,
                                         .molecule = entity->molecule == FM_MOLECULE_LIGAND
                                                         ? (uint8_t)FM_MOLECULE_LIGAND
                                                         : component->molecule};
        memcpy(residue->name, entity->components[i], sizeof residue->name);
        b->first[r] = b->n_all;
        b->n_all += component->n_atom;
        b->first[r + 1] = b->n_all;
    }
}

static fm_status make_chains(builder *b) {
    const fm_complex_job *job = b->work->job;
    fm_arena *arena = b->work->arena;
    uint64_t n_residue = 0;
    int32_t *rank;
    for (uint32_t e = 0; e < job->n_entity; e++)
        n_residue += (uint64_t)job->entities[e].n_residue * job->entities[e].n_copy;
    fm_status status = make_entities(b, &rank);
    if (status) return status;
    b->chains = fm_arena_calloc(arena, job->n_chain, sizeof *b->chains);
    b->residues = fm_arena_calloc(arena, n_residue, sizeof *b->residues);
    b->first = fm_arena_calloc(arena, n_residue + 1, sizeof *b->first);
    b->chain_of = fm_arena_calloc(arena, job->n_entity, sizeof *b->chain_of);
    if (!b->chains || !b->residues || !b->first || !b->chain_of) return fail_full(b);
    for (uint32_t e = 0; e < job->n_entity; e++) {
        const fm_job_entity *entity = &job->entities[e];
        b->chain_of[e] = b->assembly.n_chain;
        for (uint32_t k = 0; k < entity->n_copy; k++) {
            uint32_t c = b->assembly.n_chain++;
            b->chains[c] = (fm_assembly_chain){.id = entity->ids[k],
                                               .label_asym_id = entity->ids[k],
                                               .auth_asym_id = entity->ids[k],
                                               .entity = e,
                                               .first_residue = b->assembly.n_residue,
                                               .asym_id = (int32_t)c,
                                               .entity_id = rank[e],
                                               .sym_id = (int32_t)k,
                                               .mol_id = (int32_t)c,
                                               .entity_mol_id = rank[e]};
            make_residues(b, entity, c);
        }
    }
    return FM_OK;
}

/* -- what leaves */

static fm_status leaving_of(builder *b, const fm_component *component,
                            const fm_leaving **ret_leaving) {
    fm_leaving **slot = &b->leaving[component - b->work->components.items];
    if (!*slot) {
        fm_leaving *leaving = fm_arena_alloc(b->work->arena, sizeof *leaving);
        if (!leaving) return fail_full(b);
        fm_status status = fm_leaving_find(component, b->work->arena, leaving, b->work->reterr);
        if (status) return status;
        *slot = leaving;
    }
    *ret_leaving = *slot;
    return FM_OK;
}

/* Marks what leaves the atoms of a residue that have bonds; *n_link: their number by atom. */
static fm_status mark_residue(builder *b, uint32_t r) {
    const fm_component *component = b->residues[r].component;
    const fm_leaving *leaving;
    fm_status status = leaving_of(b, component, &leaving);
    for (uint32_t i = 0; i < component->n_atom && !status; i++) {
        uint32_t n = b->n_link[b->first[r] + i];
        if (n) (void)fm_leaving_mark(leaving, i, n, b->none, b->leaves + b->first[r]);
    }
    return status;
}

static void add_link(builder *b, uint32_t one, uint32_t two, bool is_counted) {
    b->links[b->n_link_bond++] = (plan_bond){one, two, is_counted};
    if (!is_counted) return;
    b->n_link[one]++;
    b->n_link[two]++;
}

static bool is_named(const fm_component *component, const char *id) {
    return strcmp(component->id, id) == 0;
}

/* Finds the atoms that join residues r and r + 1 of a polymer; -1 for none. Caps are ligands by
 * their type. The reference does not count their bonds, so that OXT stays before NME. */
static bool find_link(const builder *b, uint32_t r, uint32_t first, uint32_t end, int32_t *ret_a,
                      int32_t *ret_b) {
    const fm_component *one = b->residues[r].component, *two = b->residues[r + 1].component;
    fm_component_find_link(one, two, ret_a, ret_b);
    if (*ret_a >= 0) return true;
    if ((r == first && is_named(one, "ACE")) || (r + 2 == end && is_named(two, "NME"))) {
        *ret_a = fm_component_find_atom(one, "C");
        *ret_b = fm_component_find_atom(two, "N");
    }
    return !b->work->options->compat_protenix;
}

/* Atoms that leave go from residues that nothing joins, except at the ends of the chain. */
static void mark_unjoined(builder *b, uint32_t r, uint32_t first, uint32_t end) {
    const fm_component *component = b->residues[r].component;
    bool is_nucleic =
        component->molecule == FM_MOLECULE_RNA || component->molecule == FM_MOLECULE_DNA;
    for (uint32_t i = 0; i < component->n_atom; i++) {
        const fm_component_atom *atom = &component->atoms[i];
        bool is_first = r == first && is_nucleic && strcmp(atom->name, "OP3") == 0;
        bool is_last = r + 1 == end && component->molecule == FM_MOLECULE_PROTEIN &&
                       strcmp(atom->name, "OXT") == 0;
        if (atom->is_leaving && !is_first && !is_last) b->leaves[b->first[r] + i] = true;
    }
}

static fm_status link_polymer(builder *b, uint32_t c) {
    uint32_t first = b->chains[c].first_residue, end = end_of_chain(b, c);
    for (uint32_t r = first; r + 1 < end; r++) {
        int32_t one, two;
        bool is_counted = find_link(b, r, first, end, &one, &two);
        if (one >= 0 && two >= 0) {
            add_link(b, b->first[r] + (uint32_t)one, b->first[r + 1] + (uint32_t)two, is_counted);
        } else {
            mark_unjoined(b, r, first, end);
            mark_unjoined(b, r + 1, first, end);
        }
    }
    fm_status status = FM_OK;
    for (uint32_t r = first; r < end && !status; r++)
        status = mark_residue(b, r);
    return status;
}

/* -- bonds of the description */

static fm_status fail_atom(const builder *b, const fm_job_end *end, uint32_t r, bool has_left) {
    const fm_component *component = b->residues[r].component;
    char list[200];
    size_t n = 0;
    for (uint32_t i = 0; i < component->n_atom && n + 8 < sizeof list; i++) {
        if (b->leaves[b->first[r] + i]) continue;
        n +=
            (size_t)snprintf(list + n, sizeof list - n, n ? " %s" : "%s", component->atoms[i].name);
    }
    return fm_job_fail(b->work, &end->place, FM_ERR_DATA,
                       "found the atom %s of %s %d in chain %s%s, expected one of %s", end->atom,
                       component->id, (int)b->residues[r].number,
                       b->chains[b->residues[r].chain].id,
                       has_left ? ", which leaves with a bond of the polymer" : "", list);
}

static fm_status find_end(const builder *b, const fm_job_end *end, uint32_t *ret_atom) {
    uint32_t r = b->chains[b->chain_of[end->entity] + end->copy].first_residue + end->residue;
    int32_t place = fm_component_find_atom(b->residues[r].component, end->atom);
    bool has_left = place >= 0 && b->leaves[b->first[r] + (uint32_t)place];
    if (place < 0 || has_left) return fail_atom(b, end, r, has_left);
    *ret_atom = b->first[r] + (uint32_t)place;
    return FM_OK;
}

static uint32_t residue_of(const builder *b, uint32_t atom) {
    uint32_t low = 0, high = b->assembly.n_residue;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (b->first[middle] <= atom) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* All ends are looked up before anything leaves with these bonds. */
static fm_status add_bonds(builder *b) {
    const fm_complex_job *job = b->work->job;
    uint32_t first = b->n_link_bond;
    memset(b->n_link, 0, b->n_all * sizeof *b->n_link);
    for (uint32_t i = 0; i < job->n_bond; i++) {
        uint32_t one = 0, two = 0;
        fm_status status = find_end(b, &job->bonds[i].a, &one);
        if (!status) status = find_end(b, &job->bonds[i].b, &two);
        if (status) return status;
        uint32_t r = residue_of(b, one), s = residue_of(b, two);
        add_link(b, one, two, true);
        if (b->residues[r].molecule != FM_MOLECULE_LIGAND &&
            b->residues[s].molecule != FM_MOLECULE_LIGAND) {
            fm_job_warn(b->work->arena, b->work->warnings, job->bonds[i].a.place.path,
                        "a bond between two residues of polymers, of which published networks "
                        "have seen few");
        }
    }
    for (uint32_t i = first; i < b->n_link_bond; i++) {
        fm_status status = mark_residue(b, residue_of(b, b->links[i].a));
        if (!status) status = mark_residue(b, residue_of(b, b->links[i].b));
        if (status) return status;
    }
    for (uint32_t i = 0; i < job->n_bond; i++) {
        const plan_bond *link = &b->links[first + i];
        if (!b->leaves[link->a] && !b->leaves[link->b]) continue;
        const fm_job_end *end = b->leaves[link->a] ? &job->bonds[i].a : &job->bonds[i].b;
        return fm_job_fail(b->work, &end->place, FM_ERR_DATA,
                           "found a bond of the atom %s, which leaves with another bond, expected "
                           "an atom that stays",
                           end->atom);
    }
    return FM_OK;
}

static fm_status plan_leaving(builder *b) {
    fm_arena *arena = b->work->arena;
    const fm_complex_job *job = b->work->job;
    size_t n_link = (size_t)b->assembly.n_residue + job->n_bond;
    b->leaves = fm_arena_calloc(arena, b->n_all, 1);
    b->n_link = fm_arena_calloc(arena, b->n_all, sizeof *b->n_link);
    b->links = fm_arena_alloc_array(arena, n_link, sizeof *b->links);
    b->leaving = fm_arena_calloc(arena, b->work->components.n, sizeof *b->leaving);
    b->none = fm_arena_calloc(arena, FM_LIMIT_COMPONENT_ATOM, 1);
    if (!b->leaves || !b->n_link || !b->links || !b->leaving || !b->none) return fail_full(b);
    for (uint32_t c = 0; c < b->assembly.n_chain; c++) {
        if (job->entities[b->chains[c].entity].molecule == FM_MOLECULE_LIGAND) continue;
        fm_status status = link_polymer(b, c);
        if (status) return status;
    }
    return add_bonds(b);
}

/* -- atoms and bonds of the assembly */

/* Selenomethionine counts as methionine; its conformer stays its own. */
static void rename_selenium(fm_assembly_residue *residue, fm_assembly_atom *atoms, uint32_t n) {
    if (strncmp(residue->name, "MSE", FM_COMPONENT_ID) != 0) return;
    memset(residue->name, 0, sizeof residue->name);
    memcpy(residue->name, "MET", 3);
    for (uint32_t i = 0; i < n; i++) {
        if (strncmp(atoms[i].name, "SE", FM_COMPONENT_NAME) != 0) continue;
        memcpy(atoms[i].name, "SD", 3);
        atoms[i].element = 16;
    }
}

static fm_status make_atoms(builder *b, uint32_t *number, fm_assembly_atom **ret_atoms) {
    fm_assembly *assembly = &b->assembly;
    fm_assembly_atom *atoms = fm_arena_calloc(b->work->arena, b->n_all, sizeof *atoms);
    if (!atoms) return fail_full(b);
    for (uint32_t c = 0; c < assembly->n_chain; c++) {
        uint32_t n_of[FM_N_MOLECULE] = {0}, first = assembly->n_atom;
        b->chains[c].first_atom = first;
        for (uint32_t r = b->chains[c].first_residue; r < end_of_chain(b, c); r++) {
            const fm_component *component = b->residues[r].component;
            uint32_t begin = b->residues[r].first_atom = assembly->n_atom;
            for (uint32_t i = 0; i < component->n_atom; i++) {
                uint32_t at = b->first[r] + i;
                number[at] = b->leaves[at] ? NO_ATOM : assembly->n_atom;
                if (b->leaves[at]) continue;
                fm_assembly_atom *atom = &atoms[assembly->n_atom];
                *atom = (fm_assembly_atom){.occupancy = 1,
                                           .residue = r,
                                           .in_component = (int32_t)i,
                                           .mol_atom_index = (int32_t)(assembly->n_atom - first),
                                           .element = component->atoms[i].element};
                memcpy(atom->name, component->atoms[i].name, sizeof atom->name);
                assembly->n_atom++;
            }
            n_of[b->residues[r].molecule] += assembly->n_atom - begin;
            rename_selenium(&b->residues[r], atoms + begin, assembly->n_atom - begin);
        }
        b->chains[c].molecule = fm_molecule_of_most(n_of);
    }
    *ret_atoms = atoms;
    return FM_OK;
}

static fm_status make_bonds(builder *b, const uint32_t *number) {
    fm_assembly *assembly = &b->assembly;
    uint64_t most = b->n_link_bond;
    for (uint32_t r = 0; r < assembly->n_residue; r++)
        most += b->residues[r].component->n_bond;
    if (most > FM_LIMIT_N_COMPLEX_BOND) {
        return fm_fail(b->work->reterr, FM_ERR_LIMIT, "the job has more than %u bonds",
                       FM_LIMIT_N_COMPLEX_BOND);
    }
    fm_assembly_bond *bonds = fm_arena_alloc_array(b->work->arena, most, sizeof *bonds);
    if (!bonds) return fail_full(b);
    for (uint32_t r = 0; r < assembly->n_residue; r++) {
        const fm_component *component = b->residues[r].component;
        for (uint32_t i = 0; i < component->n_bond; i++) {
            uint32_t one = number[b->first[r] + component->bonds[i].a];
            uint32_t two = number[b->first[r] + component->bonds[i].b];
            if (one == NO_ATOM || two == NO_ATOM) continue;
            bonds[assembly->n_bond++] = (fm_assembly_bond){one, two, component->bonds[i].order};
        }
    }
    for (uint32_t i = 0; i < b->n_link_bond; i++) {
        uint32_t one = number[b->links[i].a], two = number[b->links[i].b];
        if (one == NO_ATOM || two == NO_ATOM) continue;
        bonds[assembly->n_bond++] =
            (fm_assembly_bond){one < two ? one : two, one < two ? two : one, FM_BOND_SINGLE};
    }
    assembly->bonds = bonds;
    return fm_bonds_sort(bonds, &assembly->n_bond, assembly->n_atom, b->work->arena,
                         b->work->reterr);
}

/* The slots of selenomethionine are those of methionine. A standard residue of the user's with more
 * atoms than the network has slots is refused. */
static fm_status check_slots(const builder *b, fm_assembly_atom *atoms) {
    enum { N_SLOT = 24 };
    const fm_component *met = fm_components_find(&b->work->components, "MET");
    for (uint32_t i = 0; i < b->assembly.n_atom; i++) {
        const fm_assembly_residue *residue = &b->residues[atoms[i].residue];
        if (!residue->is_standard) continue;
        if (is_named(residue->component, "MSE")) {
            int32_t slot = fm_component_find_atom(met, atoms[i].name);
            if (slot >= 0) atoms[i].slot = (uint8_t)slot;
        }
        if (atoms[i].in_component < N_SLOT) continue;
        return fm_fail(
            b->work->reterr, FM_ERR_DATA,
            "found the component %s with more than %d atoms under the name of a standard "
            "residue, expected another name",
            residue->component->id, N_SLOT);
    }
    return FM_OK;
}

static fm_status check_tokens(const fm_job_work *work, uint64_t n) {
    uint32_t most = work->options->max_token ? work->options->max_token : FM_LIMIT_N_JOB_TOKEN;
    if (n <= most) return FM_OK;
    return fm_fail(work->reterr, FM_ERR_LIMIT, "found at least %llu tokens, expected at most %u",
                   (unsigned long long)n, most);
}

fm_status fm_job_assemble(fm_job_work *work, fm_assembly *ret_assembly) {
    builder b = {.work = work,
                 .assembly = {.resolution = -1, .release_date = "9999-12-31", .method = ""}};
    const fm_complex_job *job = work->job;
    fm_assembly_atom *atoms;
    uint64_t n_residue = 0, n_all = 0;
    for (uint32_t e = 0; e < job->n_entity; e++)
        n_residue += (uint64_t)job->entities[e].n_residue * job->entities[e].n_copy;
    fm_status status = check_tokens(work, n_residue); /* each has one or more */
    if (!status) status = make_chains(&b);
    if (status) return status;
    for (uint32_t r = 0; r < b.assembly.n_residue; r++)
        n_all += b.residues[r].component->n_atom;
    if (n_all > FM_LIMIT_N_COMPLEX_ATOM) {
        return fm_fail(work->reterr, FM_ERR_LIMIT, "found %llu atoms, expected at most %u",
                       (unsigned long long)n_all, FM_LIMIT_N_COMPLEX_ATOM);
    }
    uint32_t *number = fm_arena_alloc_array(work->arena, n_all, sizeof *number);
    if (!number) return fail_full(&b);
    status = plan_leaving(&b);
    if (!status) status = make_atoms(&b, number, &atoms);
    if (!status) status = make_bonds(&b, number);
    if (status) return status;
    b.assembly.chains = b.chains;
    b.assembly.residues = b.residues;
    b.assembly.atoms = atoms;
    status =
        fm_assembly_tokenize(&b.assembly, b.chains, b.residues, atoms, work->arena, work->reterr);
    if (!status) status = check_slots(&b, atoms);
    if (!status) status = check_tokens(work, b.assembly.n_token);
    if (!status) *ret_assembly = b.assembly;
    return status;
}
