/* scene.c: see scene.h. */
#include "trainer/predict/complex/scene.h"

#include "proto/base/json_text.h"
#include "proto/base/markup.h"
#include "proto/chem/element.h"
#include "trainer/predict/complex/cif_model.h"
#include "trainer/predict/pictures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNITS_PER_ANGSTROM 100

typedef struct scene {
    const fm_complex_prediction *p;
    const fm_complex_atoms *atoms;
    fm_json_writer json;
    double centre[3];
    uint32_t *first_atom;           /* [residues + 1] of each residue */
    uint32_t *first_component_atom; /* [components + 1] */
    uint32_t *first_bond;           /* [components] a bond of each, or the number of bonds */
    uint32_t *next_bond;            /* [component bonds] the next one of the same component */
    uint32_t *row_of;               /* [A + 1] rows of the drawn atoms, or FM_SCENE_ROWS */
    uint32_t *atom_of;              /* [component atoms] of the residue in hand, or the number of
                                       atoms */
    bool *is_drawn;                 /* [residues] with atoms and bonds */
    uint32_t n_left_out;            /* residues and atoms */
} scene;

/* -- what is drawn */

static uint32_t find_atom(const scene *s, uint32_t residue, const char *name) {
    uint32_t i = s->first_atom[residue];
    while (i < s->first_atom[residue + 1] && strcmp(s->atoms->atom_name[i], name) != 0)
        i++;
    return i < s->first_atom[residue + 1] ? i : s->atoms->n_atom;
}

/* Finds the place and the two atoms of the direction of a residue. Returns false for one that is
 * no part of a ribbon. */
static bool find_trace(const scene *s, uint32_t residue, uint32_t trace[3], bool *ret_is_nucleic) {
    const fm_complex_atoms *a = s->atoms;
    const uint8_t kind = a->entity_kind[a->chain_entity[a->residue_chain[residue]]];
    if (kind == FM_COMPLEX_LIGAND) return false;
    *ret_is_nucleic = kind != FM_COMPLEX_PROTEIN;
    if (*ret_is_nucleic) {
        const bool is_purine = find_atom(s, residue, "N9") < a->n_atom;
        trace[0] = trace[1] = find_atom(s, residue, "C4'");
        trace[2] = find_atom(s, residue, is_purine ? "N1" : "N3");
    } else {
        trace[0] = find_atom(s, residue, "CA");
        trace[1] = find_atom(s, residue, "C");
        trace[2] = find_atom(s, residue, "O");
    }
    return trace[0] < a->n_atom;
}

static void choose_residues(scene *s) {
    const fm_complex_atoms *a = s->atoms;
    for (uint32_t r = 0; r < a->n_residue; r++)
        s->is_drawn[r] = !fm_complex_is_polymer(a, (uint32_t)a->residue_chain[r]) ||
                         !fm_cif_is_standard(a->component_id[a->residue_component[r]]);
    for (uint32_t b = 0; b < a->n_bond; b++) {
        const int32_t first = a->bond[2 * b], second = a->bond[2 * b + 1];
        if (fm_cif_is_link(a, first, second)) continue;
        s->is_drawn[a->atom_residue[first]] = true;
        s->is_drawn[a->atom_residue[second]] = true;
    }
}

/* Fills first [n_owner + 1] for rows whose owners ascend. */
static void find_ranges(const int32_t *owner, uint32_t n, uint32_t n_owner, uint32_t *first) {
    uint32_t row = 0;
    for (uint32_t k = 0; k <= n_owner; k++) {
        while (row < n && (uint32_t)owner[row] < k)
            row++;
        first[k] = row;
    }
}

/* Lists the bonds of each component, in their order. */
static void chain_bonds(scene *s) {
    const fm_complex_atoms *a = s->atoms;
    for (uint32_t k = 0; k < a->n_component; k++)
        s->first_bond[k] = a->n_component_bond;
    for (uint32_t b = a->n_component_bond; b-- > 0;) {
        const int32_t component = a->component_atom_component[a->component_bond[2 * (size_t)b]];
        s->next_bond[b] = s->first_bond[component];
        s->first_bond[component] = b;
    }
}

static fm_status prepare(scene *s, fm_error *reterr) {
    const fm_complex_atoms *a = s->atoms;
    s->first_atom = calloc((size_t)a->n_residue + 1, sizeof *s->first_atom);
    s->first_component_atom = calloc((size_t)a->n_component + 1, sizeof *s->first_component_atom);
    s->first_bond = calloc((size_t)a->n_component + 1, sizeof *s->first_bond);
    s->next_bond = calloc((size_t)a->n_component_bond + 1, sizeof *s->next_bond);
    s->row_of = calloc((size_t)a->n_atom + 1, sizeof *s->row_of);
    s->atom_of = calloc((size_t)a->n_component_atom + 1, sizeof *s->atom_of);
    s->is_drawn = calloc((size_t)a->n_residue + 1, sizeof *s->is_drawn);
    if (!s->first_atom || !s->first_component_atom || !s->first_bond || !s->next_bond ||
        !s->row_of || !s->atom_of || !s->is_drawn) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a view of %u atoms", a->n_atom);
    }
    find_ranges(a->atom_residue, a->n_atom, a->n_residue, s->first_atom);
    find_ranges(a->component_atom_component, a->n_component_atom, a->n_component,
                s->first_component_atom);
    chain_bonds(s);
    choose_residues(s);
    s->row_of[a->n_atom] = FM_SCENE_ROWS; /* no atom */
    for (uint32_t i = 0; i < a->n_atom; i++) {
        s->row_of[i] = FM_SCENE_ROWS;
        for (int c = 0; c < 3; c++)
            s->centre[c] += (double)s->p->position[3 * (size_t)i + (size_t)c] / a->n_atom;
    }
    return FM_OK;
}

static void release(scene *s) {
    free(s->first_atom);
    free(s->first_component_atom);
    free(s->first_bond);
    free(s->next_bond);
    free(s->row_of);
    free(s->atom_of);
    free(s->is_drawn);
}

/* -- rows */

static void put_number(scene *s, double value) {
    fm_json_put_i64(&s->json, NULL, llround(value));
}

static void put_place(scene *s, uint32_t atom) {
    for (int c = 0; c < 3; c++)
        put_number(s, UNITS_PER_ANGSTROM *
                          ((double)s->p->position[3 * (size_t)atom + (size_t)c] - s->centre[c]));
}

static void put_direction(scene *s, uint32_t from, uint32_t to) {
    const bool is_known = from < s->atoms->n_atom && to < s->atoms->n_atom;
    const float *x = s->p->position;
    for (size_t c = 0; c < 3; c++)
        put_number(s, is_known ? UNITS_PER_ANGSTROM *
                                     (double)(x[3 * (size_t)to + c] - x[3 * (size_t)from + c])
                               : 0);
}

static void put_owner(scene *s, uint32_t residue, double plddt) {
    const fm_complex_atoms *a = s->atoms;
    put_number(s, a->residue_chain[residue]);
    put_number(s, a->residue_number[residue]);
    put_number(s, a->residue_component[residue]);
    fm_json_put_f64(&s->json, NULL, 100 * plddt, 1);
}

static void put_residues(scene *s) {
    uint32_t n = 0;
    fm_json_open_array(&s->json, "residues");
    for (uint32_t r = 0; r < s->atoms->n_residue; r++) {
        uint32_t trace[3];
        bool is_nucleic;
        if (!find_trace(s, r, trace, &is_nucleic)) continue;
        if (n == FM_SCENE_ROWS) {
            s->n_left_out++;
            continue;
        }
        n++;
        double plddt = 0;
        for (uint32_t i = s->first_atom[r]; i < s->first_atom[r + 1]; i++)
            plddt += s->p->plddt[i] / (s->first_atom[r + 1] - s->first_atom[r]);
        put_owner(s, r, plddt);
        put_number(s, is_nucleic);
        put_place(s, trace[0]);
        put_direction(s, trace[1], trace[2]);
    }
    fm_json_close(&s->json);
}

static void put_atoms(scene *s) {
    const fm_complex_atoms *a = s->atoms;
    uint32_t n = 0;
    fm_json_open_array(&s->json, "atoms");
    for (uint32_t i = 0; i < a->n_atom; i++) {
        const uint32_t residue = (uint32_t)a->atom_residue[i];
        if (!s->is_drawn[residue]) continue;
        if (n == FM_SCENE_ROWS) {
            s->n_left_out++;
            continue;
        }
        s->row_of[i] = n++;
        put_owner(s, residue, s->p->plddt[i]);
        put_place(s, i);
    }
    fm_json_close(&s->json);
    fm_json_open_array(&s->json, "names");
    for (uint32_t i = 0; i < a->n_atom; i++) {
        if (s->row_of[i] == FM_SCENE_ROWS) continue;
        fm_json_put_string(&s->json, NULL, a->atom_name[i]);
        fm_json_put_string(&s->json, NULL, fm_element_symbol(a->atom_element[i]));
    }
    fm_json_close(&s->json);
}

/* Atoms may be the number of atoms, which is no atom. */
static void put_bond(scene *s, uint32_t first, uint32_t second, uint8_t order) {
    const uint32_t one = s->row_of[first], other = s->row_of[second];
    if (one == FM_SCENE_ROWS || other == FM_SCENE_ROWS) return;
    const bool is_double = order == FM_BOND_DOUBLE || order == FM_BOND_AROMATIC_DOUBLE;
    const bool is_triple = order == FM_BOND_TRIPLE || order == FM_BOND_AROMATIC_TRIPLE;
    put_number(s, one);
    put_number(s, other);
    put_number(s, is_triple ? 3 : is_double ? 2 : 1);
}

/* The bonds inside a residue: those of its component between atoms that are there. */
static void put_inner_bonds(scene *s, uint32_t residue) {
    const fm_complex_atoms *a = s->atoms;
    const uint32_t component = (uint32_t)a->residue_component[residue];
    for (uint32_t i = s->first_component_atom[component];
         i < s->first_component_atom[component + 1]; i++)
        s->atom_of[i] = find_atom(s, residue, a->component_atom_name[i]);
    for (uint32_t b = s->first_bond[component]; b < a->n_component_bond; b = s->next_bond[b]) {
        const int32_t *bond = a->component_bond + (size_t)b * 2;
        put_bond(s, s->atom_of[bond[0]], s->atom_of[bond[1]], a->component_bond_order[b]);
    }
}

static void put_bonds(scene *s) {
    const fm_complex_atoms *a = s->atoms;
    fm_json_open_array(&s->json, "bonds");
    for (uint32_t r = 0; r < a->n_residue; r++) {
        if (s->is_drawn[r]) put_inner_bonds(s, r);
    }
    for (uint32_t b = 0; b < a->n_bond; b++)
        put_bond(s, (uint32_t)a->bond[2 * (size_t)b], (uint32_t)a->bond[2 * (size_t)b + 1],
                 FM_BOND_SINGLE);
    fm_json_close(&s->json);
}

/* -- the object */

static void put_classes(scene *s) {
    fm_json_open_array(&s->json, "classes");
    for (int k = 0; k < FM_PLDDT_CLASSES; k++) {
        fm_json_open_array(&s->json, NULL);
        put_number(s, fm_plddt_classes[k].least);
        fm_json_put_string(&s->json, NULL, fm_plddt_classes[k].name);
        fm_json_put_string(&s->json, NULL, fm_plddt_classes[k].colour);
        fm_json_close(&s->json);
    }
    fm_json_close(&s->json);
}

static void put_ids(scene *s, const char *key, const char *const *id, uint32_t n) {
    fm_json_open_array(&s->json, key);
    for (uint32_t k = 0; k < n; k++)
        fm_json_put_string(&s->json, NULL, id[k]);
    fm_json_close(&s->json);
}

fm_status fm_complex_scene_put(FILE *out, const fm_complex_prediction *p, uint32_t *ret_left_out,
                               fm_error *reterr) {
    scene s = {.p = p, .atoms = p->atoms};
    char *text = NULL;
    size_t bytes;
    fm_status status = prepare(&s, reterr);
    FILE *json = status ? NULL : open_memstream(&text, &bytes);
    bool is_whole = json != NULL;
    if (json) {
        fm_json_begin_line(&s.json, json);
        put_classes(&s);
        put_ids(&s, "chains", s.atoms->chain_id, s.atoms->n_chain);
        put_ids(&s, "components", s.atoms->component_id, s.atoms->n_component);
        put_residues(&s);
        put_atoms(&s);
        put_bonds(&s);
        fm_json_end(&s.json);
        is_whole = !ferror(json);
        if (fclose(json)) is_whole = false;
    }
    if (is_whole) fm_markup_put(out, text);
    *ret_left_out = s.n_left_out;
    free(text);
    release(&s);
    if (!status && !is_whole) {
        status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for the view of a structure");
    }
    return status;
}
