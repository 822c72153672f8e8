/* complex_case.h: the reference's tables of a structure as an fm_assembly, and its components. With
 * them features and crops are compared apart from the reading of mmCIF files. */
#ifndef FM_TESTS_COMPLEX_CASE_H
#define FM_TESTS_COMPLEX_CASE_H

#include "featurizer/complex/components_code.h"
#include "featurizer/complex/tokens.h"
#include "proto/base/file.h"
#include "proto/limits.h"
#include "proto/npz.h"
#include "tests/testing/testing.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const complex_ids[] = {
    "1a2c", "1a9n", "1bjp", "1bna", "1cbn", "1d83", "1dsr", "1ejg", "1ema", "1gfr",
    "1hho", "1i9k", "1j59", "1l2y", "1v9g", "2hvw", "2m6z", "2q2k", "2x72", "3gnn",
    "4bvm", "4nmg", "4r3i", "4wvp", "4x1c", "5o45", "6s6v", "6yrq", "7rpz", "8jjs"};
enum { N_COMPLEX = sizeof complex_ids / sizeof complex_ids[0] };

typedef struct complex_case {
    fm_arena arena; /* the components stay; each structure starts at the mark */
    size_t mark;
    fm_components components;
    fm_npz npz;
    fm_assembly assembly;
    /* The writable arrays of the assembly. */
    fm_assembly_chain *chains;
    fm_assembly_residue *residues;
    fm_assembly_atom *atoms;
} complex_case;

static inline void complex_must(fm_status status, const fm_error *error) {
    if (!status) return;
    fprintf(stderr, "%s: %s\n", error->source, error->message);
    abort();
}

static inline void *complex_alloc(complex_case *test, size_t n, size_t size) {
    void *data = fm_arena_calloc(&test->arena, n, size);
    assert(data);
    return data;
}

static inline void complex_case_init(complex_case *test) {
    fm_error error = {0};
    fm_bytes text = {0};
    char path[4096];
    complex_must(fm_arena_init(&test->arena, (size_t)2 << 30, &error), &error);
    fm_test_reference_path(path, sizeof path, "complex/components/components.cif");
    complex_must(fm_file_read_text(&test->arena, path, FM_LIMIT_INPUT_BYTES, &text, &error),
                 &error);
    complex_must(fm_components_parse(text, &test->arena, &test->components, &error), &error);
    test->mark = fm_arena_mark(&test->arena);
}

static inline const fm_npy *complex_array(const complex_case *test, const char *name) {
    const fm_npy *array = fm_npz_find(&test->npz, name);
    if (!array) fprintf(stderr, "no array %s\n", name);
    assert(array);
    return array;
}
static inline const int32_t *complex_i4(const complex_case *test, const char *name) {
    const fm_npy *array = complex_array(test, name);
    assert(strcmp(array->dtype, "<i4") == 0);
    return array->data;
}
static inline const uint8_t *complex_u1(const complex_case *test, const char *name) {
    const fm_npy *array = complex_array(test, name);
    assert(array->item_bytes == 1);
    return array->data;
}
static inline const float *complex_f4(const complex_case *test, const char *name) {
    const fm_npy *array = complex_array(test, name);
    assert(strcmp(array->dtype, "<f4") == 0);
    return array->data;
}

/* Returns the texts of a list joined by newlines. */
static inline const char **complex_texts(complex_case *test, const char *name, uint32_t *ret_n) {
    const fm_npy *array = complex_array(test, name);
    char *text = complex_alloc(test, (size_t)array->count + 1, 1);
    memcpy(text, array->data, (size_t)array->count);
    const char **texts = complex_alloc(test, (size_t)array->count + 1, sizeof *texts);
    uint32_t n = 0;
    for (char *at = text; at; n++) {
        texts[n] = at;
        at = strchr(at, '\n');
        if (at) *at++ = '\0';
    }
    *ret_n = n;
    return texts;
}

static inline uint8_t complex_polymer(const char *type) {
    static const struct {
        const char *name;
        uint8_t polymer;
    } types[] = {{"polypeptide(L)", FM_POLYMER_PEPTIDE_L},
                 {"polypeptide(D)", FM_POLYMER_PEPTIDE_D},
                 {"polyribonucleotide", FM_POLYMER_RNA},
                 {"polydeoxyribonucleotide", FM_POLYMER_DNA},
                 {"polydeoxyribonucleotide/polyribonucleotide hybrid", FM_POLYMER_HYBRID},
                 {"non-poly", FM_POLYMER_NONE}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].name, type) == 0) return types[i].polymer;
    }
    return FM_POLYMER_OTHER;
}

/* Fills entities and chains. Entities without a sequence follow the polymers. */
static inline void complex_load_chains(complex_case *test) {
    fm_assembly *a = &test->assembly;
    uint32_t n_entity, n_sequence, n;
    const char **ids = complex_texts(test, "assembly/chain/id", &a->n_chain);
    const char **labels = complex_texts(test, "assembly/chain/label_asym_id", &n);
    const char **authors = complex_texts(test, "assembly/chain/auth_asym_id", &n);
    const char **entities = complex_texts(test, "assembly/chain/label_entity_id", &n);
    const char **types = complex_texts(test, "assembly/chain/poly_type", &n);
    const char **names = complex_texts(test, "assembly/entity/id", &n_entity);
    const char **sequences = complex_texts(test, "assembly/entity/sequence", &n_sequence);
    fm_assembly_entity *all = complex_alloc(test, n_entity + a->n_chain, sizeof *all);
    for (uint32_t e = 0; e < n_entity; e++) {
        all[e] = (fm_assembly_entity){
            .id = names[e], .sequence = sequences[e], .n_residue = (uint32_t)strlen(sequences[e])};
    }
    test->chains = complex_alloc(test, a->n_chain, sizeof *test->chains);
    for (uint32_t c = 0; c < a->n_chain; c++) {
        uint32_t e = 0;
        while (e < n_entity && strcmp(all[e].id, entities[c]) != 0)
            e++;
        if (e == n_entity) all[n_entity++] = (fm_assembly_entity){.id = entities[c]};
        all[e].polymer = complex_polymer(types[c]);
        test->chains[c] = (fm_assembly_chain){
            .id = ids[c],
            .label_asym_id = labels[c],
            .auth_asym_id = authors[c],
            .entity = e,
            .first_atom = (uint32_t)complex_i4(test, "assembly/chain/first_atom")[c],
            .asym_id = complex_i4(test, "assembly/chain/asym_id")[c],
            .entity_id = complex_i4(test, "assembly/chain/entity_id")[c],
            .sym_id = complex_i4(test, "assembly/chain/sym_id")[c],
            .mol_id = complex_i4(test, "assembly/chain/mol_id")[c],
            .entity_mol_id = complex_i4(test, "assembly/chain/entity_mol_id")[c],
            .molecule = complex_u1(test, "assembly/chain/type")[c],
            .is_expanded = strchr(ids[c], '.') != NULL};
    }
    a->n_entity = n_entity;
    a->entities = all;
    a->chains = test->chains;
}

static inline void complex_load_residues(complex_case *test) {
    fm_assembly *a = &test->assembly;
    const fm_npy *name = complex_array(test, "assembly/residue/name");
    a->n_residue = (uint32_t)name->shape[0];
    test->residues = complex_alloc(test, a->n_residue, sizeof *test->residues);
    const int32_t *first = complex_i4(test, "assembly/residue/first_atom");
    for (uint32_t r = 0, c = 0; r < a->n_residue; r++) {
        fm_assembly_residue *residue = &test->residues[r];
        while (c + 1 < a->n_chain && test->chains[c + 1].first_atom <= (uint32_t)first[r])
            c++;
        if ((uint32_t)first[r] == test->chains[c].first_atom) test->chains[c].first_residue = r;
        memcpy(residue->name, (const char *)name->data + (size_t)r * 5, 5);
        residue->component = fm_components_find(&test->components, residue->name);
        residue->chain = c;
        residue->first_atom = (uint32_t)first[r];
        residue->number = complex_i4(test, "assembly/residue/res_id")[r];
        residue->ref_space_uid = complex_i4(test, "assembly/residue/ref_space_uid")[r];
        residue->molecule = complex_u1(test, "assembly/residue/mol_type")[r];
    }
    a->residues = test->residues;
}

static inline void complex_load_atoms(complex_case *test) {
    fm_assembly *a = &test->assembly;
    const fm_npy *name = complex_array(test, "assembly/atom/name");
    a->n_atom = (uint32_t)name->shape[0];
    test->atoms = complex_alloc(test, a->n_atom, sizeof *test->atoms);
    a->atoms = test->atoms;
    const float *position = complex_f4(test, "assembly/atom/coord");
    const float *occupancy = complex_f4(test, "assembly/atom/occupancy");
    const uint8_t *is_resolved = complex_u1(test, "assembly/atom/is_resolved");
    for (uint32_t i = 0, r = 0; i < a->n_atom; i++) {
        fm_assembly_atom *atom = &test->atoms[i];
        while (r + 1 < a->n_residue && a->residues[r + 1].first_atom <= i)
            r++;
        memcpy(atom->name, (const char *)name->data + (size_t)i * 4, 4);
        memcpy(atom->position, position + (size_t)i * 3, sizeof atom->position);
        atom->occupancy = occupancy[i];
        atom->residue = r;
        atom->in_component = a->residues[r].component
                                 ? fm_component_find_atom(a->residues[r].component, atom->name)
                                 : -1;
        atom->mol_atom_index = complex_i4(test, "assembly/atom/mol_atom_index")[i];
        /* The golden's elements count from 0. */
        atom->element = (uint8_t)(complex_u1(test, "assembly/atom/element")[i] + 1);
        atom->is_resolved = is_resolved[i];
    }
    const fm_npy *bonds = complex_array(test, "assembly/bond/atoms_type");
    fm_assembly_bond *list = complex_alloc(test, (size_t)bonds->shape[0], sizeof *list);
    a->n_bond = (uint32_t)bonds->shape[0];
    for (uint32_t i = 0; i < a->n_bond; i++) {
        const int32_t *row = (const int32_t *)bonds->data + (size_t)i * 3;
        list[i] = (fm_assembly_bond){(uint32_t)row[0], (uint32_t)row[1], (uint8_t)row[2]};
    }
    a->bonds = list;
}

static inline uint32_t complex_find_chain(const complex_case *test, const char *id) {
    uint32_t chain = 0;
    while (chain < test->assembly.n_chain && strcmp(test->chains[chain].id, id) != 0)
        chain++;
    assert(chain < test->assembly.n_chain);
    return chain;
}

/* Fills the interfaces: lines of two entities and two chains. */
static inline void complex_load_pairs(complex_case *test) {
    uint32_t n;
    const char **lines = complex_texts(test, "assembly/index/chain_pairs", &n);
    fm_assembly_pair *pairs = complex_alloc(test, n, sizeof *pairs);
    for (uint32_t i = 0; i < n && lines[i][0]; i++) {
        char a[64], b[64];
        int n_read = sscanf(lines[i], "%*s %*s %63s %63s", a, b);
        assert(n_read == 2);
        (void)n_read;
        pairs[test->assembly.n_pair++] =
            (fm_assembly_pair){complex_find_chain(test, a), complex_find_chain(test, b)};
    }
    test->assembly.pairs = pairs;
}

/* Replaces the case's structure. */
static inline void complex_case_load(complex_case *test, const char *id) {
    fm_error error = {0};
    fm_bytes bytes = {0};
    char relative[64], path[4096];
    fm_arena_rewind(&test->arena, test->mark);
    snprintf(relative, sizeof relative, "complex/structures/%s.npz", id);
    fm_test_reference_path(path, sizeof path, relative);
    complex_must(fm_file_read(&test->arena, path, FM_LIMIT_INPUT_BYTES, &bytes, &error), &error);
    complex_must(fm_npz_parse(&test->arena, bytes, &test->npz, &error), &error);
    test->assembly =
        (fm_assembly){.resolution = complex_f4(test, "assembly/entry/resolution")[0], .method = ""};
    complex_load_chains(test);
    complex_load_residues(test);
    complex_load_atoms(test);
    complex_load_pairs(test);
    complex_must(fm_assembly_tokenize(&test->assembly, test->chains, test->residues, test->atoms,
                                      &test->arena, &error),
                 &error);
}

#endif
