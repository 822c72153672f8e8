/* job_names.c: the names of a job's chains, residues, atoms and components; see
 * proto/complex_atoms.h. */
#include "featurizer/job/prepare.h"
#include "proto/chem/residue.h"
#include "featurizer/complex/tokens.h"

#include <assert.h>
#include <string.h>

typedef struct namer {
    fm_job_work *work;
    const fm_assembly *assembly;
    int32_t *row; /* by component of the job: its row in the table; -1: no residue has it */
    fm_complex_atoms *out;
    bool is_full;
} namer;

static void *take(namer *n, size_t count, size_t size) {
    void *data = fm_arena_calloc(n->work->arena, count, size);
    if (!data) n->is_full = true;
    return data;
}

static void list_entities(namer *n) {
    const fm_complex_job *job = n->work->job;
    uint8_t *kind = take(n, job->n_entity, sizeof *kind);
    const char **description = take(n, job->n_entity, sizeof *description);
    n->out->n_entity = job->n_entity;
    n->out->entity_kind = kind;
    n->out->entity_description = description;
    for (uint32_t e = 0; e < job->n_entity && !n->is_full; e++) {
        kind[e] = job->entities[e].molecule;
        description[e] = job->entities[e].description ? job->entities[e].description : "";
    }
}
static_assert((int)FM_COMPLEX_PROTEIN == (int)FM_MOLECULE_PROTEIN &&
                  (int)FM_COMPLEX_RNA == (int)FM_MOLECULE_RNA &&
                  (int)FM_COMPLEX_DNA == (int)FM_MOLECULE_DNA &&
                  (int)FM_COMPLEX_LIGAND == (int)FM_MOLECULE_LIGAND,
              "kinds of entities are molecules");

static void list_chains(namer *n) {
    const fm_assembly *a = n->assembly;
    const char **id = take(n, a->n_chain, sizeof *id);
    int32_t *entity = take(n, a->n_chain, sizeof *entity);
    n->out->n_chain = a->n_chain;
    n->out->chain_id = id;
    n->out->chain_entity = entity;
    for (uint32_t c = 0; c < a->n_chain && !n->is_full; c++) {
        id[c] = a->chains[c].id;
        entity[c] = (int32_t)a->chains[c].entity;
    }
}

/* The letter of the standard residue that a residue is or is made from. */
static uint8_t letter_of(const fm_assembly_residue *residue) {
    static const char rna[] = "AGCUN", dna[] = "AGCTN";
    uint8_t class = residue->restype;
    if (residue->molecule == FM_MOLECULE_LIGAND) return '?';
    if (class < FM_RESTYPE32_UNK) return (uint8_t)fm_restype_letters[class];
    if (class == FM_RESTYPE32_UNK) return 'X';
    return (uint8_t)(class < FM_RESTYPE32_DNA ? rna[class - FM_RESTYPE32_RNA]
                                              : dna[class - FM_RESTYPE32_DNA]);
}

static void list_residues(namer *n) {
    const fm_assembly *a = n->assembly;
    const fm_components *components = &n->work->components;
    int32_t *chain = take(n, a->n_residue, sizeof *chain);
    int32_t *number = take(n, a->n_residue, sizeof *number);
    int32_t *component = take(n, a->n_residue, sizeof *component);
    uint8_t *letter = take(n, a->n_residue, sizeof *letter);
    n->row = take(n, components->n, sizeof *n->row);
    n->out->n_residue = a->n_residue;
    n->out->residue_chain = chain;
    n->out->residue_number = number;
    n->out->residue_component = component;
    n->out->residue_letter = letter;
    if (n->is_full) return;
    memset(n->row, 0xff, components->n * sizeof *n->row);
    for (uint32_t r = 0; r < a->n_residue; r++) {
        const fm_assembly_residue *residue = &a->residues[r];
        size_t i = (size_t)(fm_components_find(components, residue->name) - components->items);
        if (n->row[i] < 0) n->row[i] = (int32_t)n->out->n_component++;
        chain[r] = (int32_t)residue->chain;
        number[r] = residue->number;
        component[r] = n->row[i];
        letter[r] = letter_of(residue);
    }
}

static void list_atoms(namer *n) {
    const fm_assembly *a = n->assembly;
    int32_t *residue = take(n, a->n_atom, sizeof *residue);
    const char **name = take(n, a->n_atom, sizeof *name);
    uint8_t *element = take(n, a->n_atom, sizeof *element);
    int8_t *charge = take(n, a->n_atom, sizeof *charge);
    int32_t(*bond)[2] = take(n, a->n_bond, sizeof *bond);
    n->out->n_atom = a->n_atom;
    n->out->atom_residue = residue;
    n->out->atom_name = name;
    n->out->atom_element = element;
    n->out->atom_charge = charge;
    n->out->bond = (const int32_t *)bond;
    for (uint32_t i = 0; i < a->n_atom && !n->is_full; i++) {
        const fm_assembly_atom *atom = &a->atoms[i];
        residue[i] = (int32_t)atom->residue;
        name[i] = atom->name;
        element[i] = atom->element;
        charge[i] = a->residues[atom->residue].component->atoms[atom->in_component].charge;
    }
    for (uint32_t i = 0; i < a->n_bond && !n->is_full; i++) {
        uint32_t one = a->bonds[i].a, two = a->bonds[i].b;
        if (a->atoms[one].residue == a->atoms[two].residue) continue;
        bond[n->out->n_bond][0] = (int32_t)one;
        bond[n->out->n_bond++][1] = (int32_t)two;
    }
}

/* -- components */

static void list_component_atoms(namer *n, const fm_component *const *rows) {
    uint32_t n_atom = 0, n_bond = 0;
    for (uint32_t i = 0; i < n->out->n_component; i++) {
        n_atom += rows[i]->n_atom;
        n_bond += rows[i]->n_bond;
    }
    int32_t *of = take(n, n_atom, sizeof *of);
    const char **name = take(n, n_atom, sizeof *name);
    uint8_t *element = take(n, n_atom, sizeof *element), *aromatic = take(n, n_atom, 1);
    uint8_t *leaving = take(n, n_atom, 1), *order = take(n, n_bond, 1);
    int8_t *charge = take(n, n_atom, sizeof *charge);
    int32_t(*bond)[2] = take(n, n_bond, sizeof *bond);
    if (n->is_full) return;
    uint32_t at = 0, k = 0;
    for (uint32_t i = 0; i < n->out->n_component; i++) {
        for (uint32_t b = 0; b < rows[i]->n_bond; b++, k++) {
            bond[k][0] = (int32_t)(at + rows[i]->bonds[b].a);
            bond[k][1] = (int32_t)(at + rows[i]->bonds[b].b);
            order[k] = rows[i]->bonds[b].order;
        }
        for (uint32_t a = 0; a < rows[i]->n_atom; a++, at++) {
            const fm_component_atom *atom = &rows[i]->atoms[a];
            of[at] = (int32_t)i;
            name[at] = atom->name;
            element[at] = atom->element;
            aromatic[at] = atom->is_aromatic;
            leaving[at] = atom->is_leaving;
            charge[at] = atom->charge;
        }
    }
    n->out->n_component_atom = n_atom;
    n->out->component_atom_component = of;
    n->out->component_atom_name = name;
    n->out->component_atom_element = element;
    n->out->component_atom_charge = charge;
    n->out->component_atom_is_aromatic = aromatic;
    n->out->component_atom_is_leaving = leaving;
    n->out->n_component_bond = n_bond;
    n->out->component_bond = (const int32_t *)bond;
    n->out->component_bond_order = order;
}

static void list_components(namer *n) {
    uint32_t count = n->out->n_component;
    const fm_component **rows = take(n, count, sizeof *rows);
    const char **id = take(n, count, sizeof *id), **type = take(n, count, sizeof *type);
    const char **name = take(n, count, sizeof *name), **formula = take(n, count, sizeof *formula);
    float *weight = take(n, count, sizeof *weight);
    if (n->is_full) return;
    for (uint32_t i = 0; i < n->work->components.n; i++)
        if (n->row[i] >= 0) rows[n->row[i]] = &n->work->components.items[i];
    for (uint32_t i = 0; i < count; i++) {
        id[i] = rows[i]->id;
        type[i] = rows[i]->type;
        name[i] = rows[i]->name;
        formula[i] = rows[i]->formula;
        weight[i] = rows[i]->weight;
    }
    n->out->component_id = id;
    n->out->component_type = type;
    n->out->component_description = name;
    n->out->component_formula = formula;
    n->out->component_weight = weight;
    list_component_atoms(n, rows);
}

fm_status fm_job_list_names(fm_job_work *work, const fm_assembly *assembly,
                            fm_complex_atoms *ret_atoms) {
    memset(ret_atoms, 0, sizeof *ret_atoms);
    namer n = {.work = work, .assembly = assembly, .out = ret_atoms};
    list_entities(&n);
    list_chains(&n);
    list_residues(&n);
    if (!n.is_full) list_atoms(&n);
    if (!n.is_full) list_components(&n);
    return n.is_full ? fm_arena_full(work->arena, work->reterr) : FM_OK;
}
