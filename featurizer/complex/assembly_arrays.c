/* assembly_arrays.c: see assembly_arrays.h. */
#include "featurizer/complex/assembly_arrays.h"

#include "featurizer/complex/tokens.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const char *fm_polymer_name(uint8_t polymer) {
    static const char *const names[FM_N_POLYMER] = {
        [FM_POLYMER_NONE] = "non-poly",
        [FM_POLYMER_PEPTIDE_L] = "polypeptide(L)",
        [FM_POLYMER_PEPTIDE_D] = "polypeptide(D)",
        [FM_POLYMER_RNA] = "polyribonucleotide",
        [FM_POLYMER_DNA] = "polydeoxyribonucleotide",
        [FM_POLYMER_HYBRID] = "polydeoxyribonucleotide/polyribonucleotide hybrid",
        [FM_POLYMER_PEPTIDE_NUCLEIC] = "peptide nucleic acid",
        [FM_POLYMER_OTHER] = "other",
    };
    return names[polymer];
}

typedef struct lister {
    const fm_assembly *assembly;
    fm_arena *arena;
    fm_array *arrays;
    size_t n;
    bool is_full; /* the arena */
} lister;

/* Adds an array of n rows of `width` elements (0: of rank 1) and returns its zeroed data. */
static void *add(lister *list, const char *key, const char *dtype, size_t n, size_t width) {
    size_t size = strcmp(dtype, "<i4") == 0 || strcmp(dtype, "<f4") == 0 ? 4 : 1;
    void *data = fm_arena_calloc(list->arena, n * (width ? width : 1), size);
    assert(list->n < FM_ASSEMBLY_ARRAYS);
    if (!data) list->is_full = true;
    list->arrays[list->n++] = (fm_array){
        .key = key, .dtype = dtype, .rank = width ? 2 : 1, .shape = {n, width}, .data = data};
    return list->is_full ? NULL : data;
}

/* -- strings */

typedef const char *name_of(const fm_assembly *assembly, uint32_t i);

/* Adds strings joined by newlines; NULL strings are left out. */
static void add_strings(lister *list, const char *key, uint32_t n, name_of *name) {
    size_t size = 0, at = 0;
    for (uint32_t i = 0; i < n; i++) {
        const char *text = name(list->assembly, i);
        if (text) size += strlen(text) + 1;
    }
    char *out = add(list, key, "|u1", size ? size - 1 : 0, 0);
    for (uint32_t i = 0; i < n && out; i++) {
        const char *text = name(list->assembly, i);
        if (!text) continue;
        if (at) out[at++] = '\n';
        memcpy(out + at, text, strlen(text));
        at += strlen(text);
    }
}

static const char *chain_id(const fm_assembly *assembly, uint32_t i) {
    return assembly->chains[i].id;
}
static const char *chain_label(const fm_assembly *assembly, uint32_t i) {
    return assembly->chains[i].label_asym_id;
}
static const char *chain_author(const fm_assembly *assembly, uint32_t i) {
    return assembly->chains[i].auth_asym_id;
}
static const char *chain_entity(const fm_assembly *assembly, uint32_t i) {
    return assembly->entities[assembly->chains[i].entity].id;
}
static const char *chain_polymer(const fm_assembly *assembly, uint32_t i) {
    return fm_polymer_name(assembly->entities[assembly->chains[i].entity].polymer);
}
static const char *entity_id(const fm_assembly *assembly, uint32_t i) {
    return assembly->entities[i].sequence ? assembly->entities[i].id : NULL;
}
static const char *entity_sequence(const fm_assembly *assembly, uint32_t i) {
    return assembly->entities[i].sequence;
}

/* -- chains and entities */

static void list_chains(lister *list) {
    const fm_assembly *assembly = list->assembly;
    uint32_t n = assembly->n_chain;
    int32_t *first = add(list, "assembly/chain/first_atom", "<i4", (size_t)n + 1, 0);
    add_strings(list, "assembly/chain/id", n, chain_id);
    add_strings(list, "assembly/chain/label_asym_id", n, chain_label);
    add_strings(list, "assembly/chain/auth_asym_id", n, chain_author);
    add_strings(list, "assembly/chain/label_entity_id", n, chain_entity);
    int32_t *asym = add(list, "assembly/chain/asym_id", "<i4", n, 0);
    int32_t *entity = add(list, "assembly/chain/entity_id", "<i4", n, 0);
    int32_t *sym = add(list, "assembly/chain/sym_id", "<i4", n, 0);
    int32_t *mol = add(list, "assembly/chain/mol_id", "<i4", n, 0);
    int32_t *entity_mol = add(list, "assembly/chain/entity_mol_id", "<i4", n, 0);
    uint8_t *type = add(list, "assembly/chain/type", "|u1", n, 0);
    add_strings(list, "assembly/chain/poly_type", n, chain_polymer);
    add_strings(list, "assembly/entity/id", assembly->n_entity, entity_id);
    add_strings(list, "assembly/entity/sequence", assembly->n_entity, entity_sequence);
    if (list->is_full) return;
    for (uint32_t i = 0; i < n; i++) {
        const fm_assembly_chain *chain = &assembly->chains[i];
        first[i] = (int32_t)chain->first_atom;
        asym[i] = chain->asym_id;
        entity[i] = chain->entity_id;
        sym[i] = chain->sym_id;
        mol[i] = chain->mol_id;
        entity_mol[i] = chain->entity_mol_id;
        type[i] = chain->molecule;
    }
    first[n] = (int32_t)assembly->n_atom;
}

/* -- residues and tokens */

static void list_residues(lister *list) {
    enum { WIDTH = 5 };
    const fm_assembly *assembly = list->assembly;
    uint32_t n = assembly->n_residue;
    int32_t *first = add(list, "assembly/residue/first_atom", "<i4", (size_t)n + 1, 0);
    char *name = add(list, "assembly/residue/name", "|u1", n, WIDTH);
    int32_t *number = add(list, "assembly/residue/res_id", "<i4", n, 0);
    int32_t *asym = add(list, "assembly/residue/asym_id", "<i4", n, 0);
    uint8_t *type = add(list, "assembly/residue/mol_type", "|u1", n, 0);
    uint8_t *restype = add(list, "assembly/residue/restype", "|u1", n, 0);
    uint8_t *modified = add(list, "assembly/residue/modified", "|u1", n, 0);
    int32_t *uid = add(list, "assembly/residue/ref_space_uid", "<i4", n, 0);
    if (list->is_full) return;
    for (uint32_t i = 0; i < n; i++) {
        const fm_assembly_residue *residue = &assembly->residues[i];
        first[i] = (int32_t)residue->first_atom;
        memcpy(name + (size_t)i * WIDTH, residue->name, WIDTH);
        number[i] = residue->number;
        asym[i] = assembly->chains[residue->chain].asym_id;
        type[i] = residue->molecule;
        restype[i] = residue->restype;
        modified[i] = residue->is_modified;
        uid[i] = residue->ref_space_uid;
    }
    first[n] = (int32_t)assembly->n_atom;
}

/* The class of a token by itself: the residue's, or behind these the element of a single atom. */
static uint8_t token_value(const fm_assembly *assembly, const fm_assembly_token *token) {
    const fm_assembly_residue *residue = &assembly->residues[token->residue];
    if (residue->is_standard) return residue->restype;
    uint8_t element = assembly->atoms[token->first_atom].element;
    return (uint8_t)(FM_RESTYPE32_GAP + (element ? element - 1 : 127));
}

static void list_tokens(lister *list) {
    const fm_assembly *assembly = list->assembly;
    uint32_t n = assembly->n_token;
    uint8_t *value = add(list, "assembly/token/value", "|u1", n, 0);
    int32_t *centre = add(list, "assembly/token/centre_atom", "<i4", n, 0);
    int32_t *n_atom = add(list, "assembly/token/n_atom", "<i4", n, 0);
    if (list->is_full) return;
    for (uint32_t i = 0; i < n; i++) {
        value[i] = token_value(assembly, &assembly->tokens[i]);
        centre[i] = (int32_t)assembly->tokens[i].centre;
        n_atom[i] = (int32_t)assembly->tokens[i].n_atom;
    }
}

/* -- atoms and bonds */

static void list_reference(lister *list) {
    const fm_assembly *assembly = list->assembly;
    uint32_t n = assembly->n_atom;
    uint8_t *mask = add(list, "assembly/atom/ref_mask", "|u1", n, 0);
    int8_t *charge = add(list, "assembly/atom/ref_charge", "|i1", n, 0);
    float *position = add(list, "assembly/atom/ref_pos_ccd", "<f4", n, 3);
    if (list->is_full) return;
    for (uint32_t i = 0; i < n; i++) {
        const fm_assembly_atom *atom = &assembly->atoms[i];
        const fm_component *component = assembly->residues[atom->residue].component;
        if (!component || atom->in_component < 0) continue;
        const fm_component_atom *known = &component->atoms[atom->in_component];
        mask[i] = known->has_ideal;
        charge[i] = known->charge;
        memcpy(position + (size_t)i * 3, known->ideal, sizeof known->ideal);
    }
}

static void list_atoms(lister *list) {
    enum { WIDTH = 4 };
    const fm_assembly *assembly = list->assembly;
    uint32_t n = assembly->n_atom;
    char *name = add(list, "assembly/atom/name", "|u1", n, WIDTH);
    uint8_t *element = add(list, "assembly/atom/element", "|u1", n, 0);
    float *position = add(list, "assembly/atom/coord", "<f4", n, 3);
    uint8_t *resolved = add(list, "assembly/atom/is_resolved", "|u1", n, 0);
    float *occupancy = add(list, "assembly/atom/occupancy", "<f4", n, 0);
    float *b_factor = add(list, "assembly/atom/b_factor", "<f4", n, 0);
    uint8_t *centre = add(list, "assembly/atom/centre_atom_mask", "|u1", n, 0);
    uint8_t *distogram = add(list, "assembly/atom/distogram_rep_atom_mask", "|u1", n, 0);
    uint8_t *plddt = add(list, "assembly/atom/plddt_m_rep_atom_mask", "|u1", n, 0);
    uint8_t *slot = add(list, "assembly/atom/tokatom_idx", "|u1", n, 0);
    int32_t *index = add(list, "assembly/atom/mol_atom_index", "<i4", n, 0);
    if (list->is_full) return;
    for (uint32_t i = 0; i < n; i++) {
        const fm_assembly_atom *atom = &assembly->atoms[i];
        memcpy(name + (size_t)i * WIDTH, atom->name, WIDTH);
        element[i] = (uint8_t)(atom->element ? atom->element - 1 : 127);
        memcpy(position + (size_t)i * 3, atom->position, sizeof atom->position);
        resolved[i] = atom->is_resolved;
        occupancy[i] = atom->occupancy;
        b_factor[i] = atom->b_factor;
        centre[i] = atom->is_centre;
        distogram[i] = atom->is_distogram_rep;
        plddt[i] = atom->is_plddt_rep;
        slot[i] = atom->slot;
        index[i] = atom->mol_atom_index;
    }
}

static void list_bonds(lister *list) {
    const fm_assembly *assembly = list->assembly;
    int32_t *bonds = add(list, "assembly/bond/atoms_type", "<i4", assembly->n_bond, 3);
    for (uint32_t i = 0; i < assembly->n_bond && bonds; i++) {
        bonds[3 * (size_t)i] = (int32_t)assembly->bonds[i].a;
        bonds[3 * (size_t)i + 1] = (int32_t)assembly->bonds[i].b;
        bonds[3 * (size_t)i + 2] = assembly->bonds[i].order;
    }
}

/* -- interfaces and the entry */

/* A line for each: the entities' ids, and then the chains'. */
static void list_pairs(lister *list) {
    const fm_assembly *assembly = list->assembly;
    size_t size = 0, at = 0;
    char *out = NULL;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < assembly->n_pair; i++) {
            uint32_t a = assembly->pairs[i].a, b = assembly->pairs[i].b;
            const char *texts[4] = {chain_entity(assembly, a), chain_entity(assembly, b),
                                    chain_id(assembly, a), chain_id(assembly, b)};
            for (int k = 0; k < 4; k++) {
                size_t length = strlen(texts[k]);
                if (out) {
                    memcpy(out + at, texts[k], length);
                    if (at + length < size) out[at + length] = k < 3 ? '\t' : '\n';
                    at += length + 1;
                } else {
                    size += length + 1;
                }
            }
        }
        if (pass > 0) return;
        if (size) size--; /* nothing behind the last line */
        out = add(list, "assembly/index/chain_pairs", "|u1", size, 0);
        if (!out) return;
    }
}

static void list_entry(lister *list) {
    const fm_assembly *assembly = list->assembly;
    size_t date = strlen(assembly->release_date), method = strlen(assembly->method);
    float *resolution = add(list, "assembly/entry/resolution", "<f4", 1, 0);
    char *release_date = add(list, "assembly/entry/release_date", "|u1", date, 0);
    char *methods = add(list, "assembly/entry/method", "|u1", method, 0);
    if (list->is_full) return;
    *resolution = assembly->resolution;
    memcpy(release_date, assembly->release_date, date);
    memcpy(methods, assembly->method, method);
}

fm_status fm_assembly_list_arrays(const fm_assembly *assembly, fm_arena *arena,
                                  fm_array ret_arrays[FM_ASSEMBLY_ARRAYS], size_t *ret_n,
                                  fm_error *reterr) {
    lister list = {.assembly = assembly, .arena = arena, .arrays = ret_arrays};
    list_chains(&list);
    list_residues(&list);
    list_atoms(&list);
    list_reference(&list);
    list_bonds(&list);
    list_tokens(&list);
    list_pairs(&list);
    list_entry(&list);
    if (list.is_full) return fm_arena_full(arena, reterr);
    *ret_n = list.n;
    return FM_OK;
}
