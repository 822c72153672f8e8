/* components.c: reads chemical components from mmCIF text; see components.h.
 *
 * A data block is one component. Its atoms and bonds are collected in scratch arrays as places in
 * the text, because a block may hold its categories in any order and as pairs where there is only
 * one row. The end of the block makes the component of them: heavy atoms get their final numbers,
 * hydrogens are counted at their neighbours, and bonds are sorted. */
#include "featurizer/complex/components.h"

#include "featurizer/complex/components_code.h"
#include "featurizer/parse/cif.h"
#include "featurizer/parse/decimal.h"
#include "proto/base/utf8.h"
#include "proto/chem/element.h"
#include "proto/limits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    COLUMN_ID,
    COLUMN_TYPE,
    COLUMN_LETTER,
    COLUMN_DATE,
    COLUMN_NAME,
    COLUMN_FORMULA,
    COLUMN_WEIGHT,
    COLUMN_ATOM,
    COLUMN_ATOM_NAME = COLUMN_ATOM,
    COLUMN_ELEMENT,
    COLUMN_CHARGE,
    COLUMN_AROMATIC,
    COLUMN_LEAVING,
    COLUMN_STEREO,
    COLUMN_MODEL,
    COLUMN_IDEAL = COLUMN_MODEL + 3,
    COLUMN_BOND = COLUMN_IDEAL + 3,
    COLUMN_BOND_A = COLUMN_BOND,
    COLUMN_BOND_B,
    COLUMN_BOND_ORDER,
    COLUMN_BOND_AROMATIC,
    COLUMN_BOND_STEREO,
    N_COLUMN,
};

static const char *const column_names[N_COLUMN] = {
    [COLUMN_ID] = "_chem_comp.id",
    [COLUMN_TYPE] = "_chem_comp.type",
    [COLUMN_LETTER] = "_chem_comp.one_letter_code",
    [COLUMN_DATE] = "_chem_comp.pdbx_initial_date",
    [COLUMN_NAME] = "_chem_comp.name",
    [COLUMN_FORMULA] = "_chem_comp.formula",
    [COLUMN_WEIGHT] = "_chem_comp.formula_weight",
    [COLUMN_ATOM_NAME] = "_chem_comp_atom.atom_id",
    [COLUMN_ELEMENT] = "_chem_comp_atom.type_symbol",
    [COLUMN_CHARGE] = "_chem_comp_atom.charge",
    [COLUMN_AROMATIC] = "_chem_comp_atom.pdbx_aromatic_flag",
    [COLUMN_LEAVING] = "_chem_comp_atom.pdbx_leaving_atom_flag",
    [COLUMN_STEREO] = "_chem_comp_atom.pdbx_stereo_config",
    [COLUMN_MODEL] = "_chem_comp_atom.model_Cartn_x",
    [COLUMN_MODEL + 1] = "_chem_comp_atom.model_Cartn_y",
    [COLUMN_MODEL + 2] = "_chem_comp_atom.model_Cartn_z",
    [COLUMN_IDEAL] = "_chem_comp_atom.pdbx_model_Cartn_x_ideal",
    [COLUMN_IDEAL + 1] = "_chem_comp_atom.pdbx_model_Cartn_y_ideal",
    [COLUMN_IDEAL + 2] = "_chem_comp_atom.pdbx_model_Cartn_z_ideal",
    [COLUMN_BOND_A] = "_chem_comp_bond.atom_id_1",
    [COLUMN_BOND_B] = "_chem_comp_bond.atom_id_2",
    [COLUMN_BOND_ORDER] = "_chem_comp_bond.value_order",
    [COLUMN_BOND_AROMATIC] = "_chem_comp_bond.pdbx_aromatic_flag",
    [COLUMN_BOND_STEREO] = "_chem_comp_bond.pdbx_stereo_config",
};

enum { NO_COLUMN = N_COLUMN, N_SLOT = 2 * FM_LIMIT_COMPONENT_ATOM };

/* The values of a row in the order of columns; a column that is not given is empty. */
typedef struct row_values {
    fm_cif_view at[N_COLUMN];
} row_values;

typedef struct scratch_bond {
    fm_cif_view a, b; /* names */
    uint8_t order;
    char stereo;
} scratch_bond;

typedef struct sorted_component {
    fm_component component;
    uint32_t at; /* offset of its id */
} sorted_component;

typedef struct scan {
    fm_cif cif;
    fm_arena *arena;
    fm_error *reterr;
    sorted_component *items;
    uint32_t n, max;
    /* The block that is open. */
    bool is_open, has_row, has_pairs[3]; /* component, atom, bond */
    row_values pairs;
    uint32_t n_atom, n_bond;
    fm_component_atom *atoms;  /* [FM_LIMIT_COMPONENT_ATOM], hydrogens included */
    uint16_t *heavy;           /* [atom] its number among the heavy ones */
    scratch_bond *bonds;       /* [FM_LIMIT_COMPONENT_BOND] */
    fm_component_bond *sorted; /* [FM_LIMIT_COMPONENT_BOND] */
    uint16_t *slots;           /* [N_SLOT] a table from names to atom + 1 */
} scan;

#define SHOW(scan, view)                                                                           \
    (int)(fm_cif_size(view) < 40 ? fm_cif_size(view) : 40),                                        \
        (const char *)fm_cif_text(&(scan)->cif, view)

/* -- values */

static bool is_given(const scan *s, fm_cif_view view) {
    return fm_cif_size(view) > 0 && !fm_cif_is_unset(&s->cif, view);
}

static bool is_yes(const scan *s, fm_cif_view view) {
    return fm_cif_equals(&s->cif, view, "Y");
}

/* Copies a value into a field of `bytes` bytes, padded with zeros. */
static fm_status copy_word(scan *s, fm_cif_view view, uint32_t name, char *out, size_t bytes) {
    if (!is_given(s, view) || fm_cif_size(view) >= bytes) {
        return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, view.start,
                           "%s is '%.*s', expected 1 to %zu letters", column_names[name],
                           SHOW(s, view), bytes - 1);
    }
    memset(out, 0, bytes);
    memcpy(out, fm_cif_text(&s->cif, view), fm_cif_size(view));
    return FM_OK;
}

/* Copies a text without its control bytes, since long names are broken into lines. */
static fm_status copy_text(scan *s, uint32_t column, const char **ret_text) {
    const fm_cif_view view = s->pairs.at[column];
    *ret_text = "";
    if (!is_given(s, view)) return FM_OK;
    const size_t size = fm_cif_size(view);
    const char *from = (const char *)fm_cif_text(&s->cif, view);
    if (size > FM_LIMIT_COMPONENT_TEXT || !fm_utf8_is_whole(from, size)) {
        return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, view.start,
                           "%s has %zu bytes, expected at most %u of UTF-8", column_names[column],
                           size, FM_LIMIT_COMPONENT_TEXT);
    }
    char *text = fm_arena_alloc(s->arena, size + 1);
    size_t n = 0;
    if (!text) return fm_arena_full(s->arena, s->reterr);
    for (size_t i = 0; i < size; i++) {
        if ((uint8_t)from[i] >= ' ' && from[i] != 0x7f) text[n++] = from[i];
    }
    text[n] = '\0';
    *ret_text = text;
    return FM_OK;
}

static fm_status read_weight(scan *s, float *ret_weight) {
    const fm_cif_view view = s->pairs.at[COLUMN_WEIGHT];
    double value = 0;
    if (!is_given(s, view)) return FM_OK;
    if (!fm_decimal_parse(fm_cif_text(&s->cif, view), fm_cif_size(view), false, &value) ||
        !isfinite((float)value) || value < 0) {
        return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, view.start,
                           "%s is '%.*s', expected a number from 0 on", column_names[COLUMN_WEIGHT],
                           SHOW(s, view));
    }
    *ret_weight = value > 0 ? (float)value : 0;
    return FM_OK;
}

static fm_status read_words(scan *s, fm_component *component) {
    fm_component_clear_words(component);
    fm_status status = copy_text(s, COLUMN_TYPE, &component->type);
    if (!status) status = copy_text(s, COLUMN_NAME, &component->name);
    if (!status) status = copy_text(s, COLUMN_FORMULA, &component->formula);
    return status ? status : read_weight(s, &component->weight);
}

static fm_status read_position(scan *s, const row_values *row, uint32_t first, float out[3],
                               bool *ret_given) {
    *ret_given = is_given(s, row->at[first]);
    for (uint32_t axis = 0; axis < 3 && *ret_given; axis++) {
        fm_cif_view view = row->at[first + axis];
        double value = NAN;
        if (!fm_decimal_parse(fm_cif_text(&s->cif, view), fm_cif_size(view), false, &value) ||
            !isfinite((float)value)) {
            return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, view.start,
                               "%s is '%.*s', expected a number", column_names[first + axis],
                               SHOW(s, view));
        }
        out[axis] = (float)value;
    }
    return FM_OK;
}

static fm_status read_charge(scan *s, fm_cif_view view, int8_t *ret_charge) {
    int32_t value = 0;
    if (is_given(s, view) &&
        (!fm_integer_parse(fm_cif_text(&s->cif, view), fm_cif_size(view), &value) ||
         value < INT8_MIN || value > INT8_MAX)) {
        return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, view.start,
                           "%s is '%.*s', expected a whole number from -128 to 127",
                           column_names[COLUMN_CHARGE], SHOW(s, view));
    }
    *ret_charge = (int8_t)value;
    return FM_OK;
}

/* Returns the first letter of a stereo configuration among `letters`, else N. */
static char read_stereo(const scan *s, fm_cif_view view, const char *letters) {
    if (fm_cif_size(view) != 1) return 'N';
    char letter = (char)*fm_cif_text(&s->cif, view);
    return strchr(letters, letter) && letter ? letter : 'N';
}

/* An order with its aromatic flag, as the reference's library reads both. */
static uint8_t read_order(const scan *s, fm_cif_view order, bool is_aromatic) {
    static const struct {
        char name[5];
        uint8_t plain, aromatic;
    } orders[] = {{"SING", FM_BOND_SINGLE, FM_BOND_AROMATIC_SINGLE},
                  {"DOUB", FM_BOND_DOUBLE, FM_BOND_AROMATIC_DOUBLE},
                  {"TRIP", FM_BOND_TRIPLE, FM_BOND_AROMATIC_TRIPLE},
                  {"QUAD", FM_BOND_QUADRUPLE, FM_BOND_ANY},
                  {"AROM", FM_BOND_ANY, FM_BOND_AROMATIC}};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        if (fm_cif_size(order) == 4 &&
            strncasecmp((const char *)fm_cif_text(&s->cif, order), orders[i].name, 4) == 0) {
            return is_aromatic ? orders[i].aromatic : orders[i].plain;
        }
    }
    return FM_BOND_ANY;
}

/* Returns whether the value has `word` in it, in any case. */
static bool has_word(const scan *s, fm_cif_view view, const char *word) {
    const char *text = (const char *)fm_cif_text(&s->cif, view);
    size_t size = fm_cif_size(view), n = strlen(word);
    for (size_t i = 0; i + n <= size; i++) {
        if (strncasecmp(text + i, word, n) == 0) return true;
    }
    return false;
}

static uint8_t molecule_of(const scan *s, fm_cif_view type) {
    if (has_word(s, type, "PEPTIDE") && !has_word(s, type, "PEPTIDE-LIKE")) {
        return FM_MOLECULE_PROTEIN;
    }
    if (has_word(s, type, "DNA")) return FM_MOLECULE_DNA;
    return has_word(s, type, "RNA") ? FM_MOLECULE_RNA : FM_MOLECULE_LIGAND;
}

/* -- rows */

static fm_status add_atom(scan *s, const row_values *row) {
    fm_cif_view name = row->at[COLUMN_ATOM_NAME], element = row->at[COLUMN_ELEMENT];
    if (s->n_atom >= FM_LIMIT_COMPONENT_ATOM) {
        return fm_cif_fail(&s->cif, s->reterr, FM_ERR_LIMIT, name.start,
                           "the component has more than %u atoms", FM_LIMIT_COMPONENT_ATOM);
    }
    fm_component_atom atom = {.is_leaving = is_yes(s, row->at[COLUMN_LEAVING]),
                              .is_aromatic = is_yes(s, row->at[COLUMN_AROMATIC]),
                              .stereo = read_stereo(s, row->at[COLUMN_STEREO], "RS")};
    fm_status status = copy_word(s, name, COLUMN_ATOM_NAME, atom.name, sizeof atom.name);
    if (!status) status = read_charge(s, row->at[COLUMN_CHARGE], &atom.charge);
    if (!status) status = read_position(s, row, COLUMN_IDEAL, atom.ideal, &atom.has_ideal);
    if (!status) status = read_position(s, row, COLUMN_MODEL, atom.model, &atom.has_model);
    if (status) return status;
    atom.element = fm_element_from_symbol(fm_cif_text(&s->cif, element), fm_cif_size(element));
    if (atom.element == FM_ELEMENT_NONE) {
        return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, element.start,
                           "%s is '%.*s', expected the symbol of an element",
                           column_names[COLUMN_ELEMENT], SHOW(s, element));
    }
    s->atoms[s->n_atom++] = atom;
    return FM_OK;
}

static fm_status add_bond(scan *s, const row_values *row) {
    if (s->n_bond >= FM_LIMIT_COMPONENT_BOND) {
        return fm_cif_fail(&s->cif, s->reterr, FM_ERR_LIMIT, row->at[COLUMN_BOND_A].start,
                           "the component has more than %u bonds", FM_LIMIT_COMPONENT_BOND);
    }
    bool is_aromatic = is_yes(s, row->at[COLUMN_BOND_AROMATIC]);
    s->bonds[s->n_bond++] =
        (scratch_bond){.a = row->at[COLUMN_BOND_A],
                       .b = row->at[COLUMN_BOND_B],
                       .order = read_order(s, row->at[COLUMN_BOND_ORDER], is_aromatic),
                       .stereo = read_stereo(s, row->at[COLUMN_BOND_STEREO], "EZ")};
    return FM_OK;
}

/* Takes a row of the category to which `column` belongs. */
static fm_status add_row(scan *s, uint32_t column, const row_values *row) {
    if (column >= COLUMN_BOND) return add_bond(s, row);
    if (column >= COLUMN_ATOM) return add_atom(s, row);
    if (s->has_row) {
        return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, row->at[COLUMN_ID].start,
                           "a second row of _chem_comp, expected a data block for each component");
    }
    s->has_row = true;
    for (uint32_t i = 0; i < COLUMN_ATOM; i++)
        s->pairs.at[i] = row->at[i];
    return FM_OK;
}

static uint32_t category_of(uint32_t column) {
    return column >= COLUMN_BOND ? 2 : column >= COLUMN_ATOM ? 1 : 0;
}

/* -- a block's end */

static uint32_t slot_of(const char name[FM_COMPONENT_NAME], uint32_t mask) {
    return (uint32_t)fm_xxh3(name, FM_COMPONENT_NAME) & mask;
}

/* Enters the atoms' names in the table. A name that comes twice is refused. */
static fm_status enter_names(scan *s, uint32_t *ret_mask) {
    uint32_t room = 16;
    while (room < 2 * s->n_atom)
        room *= 2;
    memset(s->slots, 0, room * sizeof *s->slots);
    for (uint32_t i = 0; i < s->n_atom; i++) {
        uint32_t slot = slot_of(s->atoms[i].name, room - 1);
        for (; s->slots[slot]; slot = (slot + 1) & (room - 1)) {
            const char *other = s->atoms[s->slots[slot] - 1].name;
            if (memcmp(other, s->atoms[i].name, FM_COMPONENT_NAME) == 0) {
                return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, s->pairs.at[COLUMN_ID].start,
                                   "the component %.*s has the atom %s twice",
                                   SHOW(s, s->pairs.at[COLUMN_ID]), other);
            }
        }
        s->slots[slot] = (uint16_t)(i + 1);
    }
    *ret_mask = room - 1;
    return FM_OK;
}

static fm_status find_end(scan *s, fm_cif_view view, uint32_t column, uint32_t mask,
                          uint32_t *ret_atom) {
    char name[FM_COMPONENT_NAME];
    fm_status status = copy_word(s, view, column, name, sizeof name);
    if (status) return status;
    for (uint32_t slot = slot_of(name, mask); s->slots[slot]; slot = (slot + 1) & mask) {
        *ret_atom = (uint32_t)s->slots[slot] - 1;
        if (memcmp(s->atoms[*ret_atom].name, name, sizeof name) == 0) return FM_OK;
    }
    return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, view.start,
                       "a bond of %s, which is no atom of the component %.*s", name,
                       SHOW(s, s->pairs.at[COLUMN_ID]));
}

static int compare_bonds(const void *left, const void *right) {
    const fm_component_bond *a = left, *b = right;
    if (a->a != b->a) return a->a < b->a ? -1 : 1;
    return a->b < b->b ? -1 : a->b > b->b;
}

/* Numbers the heavy atoms. */
static uint32_t number_heavy(scan *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_atom; i++)
        s->heavy[i] = s->atoms[i].element == 1 ? UINT16_MAX : (uint16_t)n++;
    return n;
}

static fm_status take_bonds(scan *s, uint32_t mask, uint32_t *ret_n) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_bond; i++) {
        const scratch_bond *bond = &s->bonds[i];
        uint32_t a = 0, b = 0;
        fm_status status = find_end(s, bond->a, COLUMN_BOND_A, mask, &a);
        if (!status) status = find_end(s, bond->b, COLUMN_BOND_B, mask, &b);
        if (status) return status;
        if (a == b) {
            return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, bond->b.start,
                               "a bond of the atom %s with itself", s->atoms[a].name);
        }
        bool is_heavy_a = s->heavy[a] != UINT16_MAX, is_heavy_b = s->heavy[b] != UINT16_MAX;
        if (is_heavy_a != is_heavy_b) {
            fm_component_atom *atom = &s->atoms[is_heavy_a ? a : b];
            if (atom->n_hydrogen < UINT8_MAX) atom->n_hydrogen++;
        }
        if (!is_heavy_a || !is_heavy_b) continue;
        uint16_t low = s->heavy[a < b ? a : b], high = s->heavy[a < b ? b : a];
        s->sorted[n++] =
            (fm_component_bond){.a = low, .b = high, .order = bond->order, .stereo = bond->stereo};
    }
    qsort(s->sorted, n, sizeof *s->sorted, compare_bonds);
    for (uint32_t i = 1; i < n; i++) {
        if (compare_bonds(&s->sorted[i - 1], &s->sorted[i]) == 0) {
            return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, s->pairs.at[COLUMN_ID].start,
                               "the component %.*s has a bond twice",
                               SHOW(s, s->pairs.at[COLUMN_ID]));
        }
    }
    *ret_n = n;
    return FM_OK;
}

static fm_status push_component(scan *s, fm_component component) {
    if (s->n == s->max) {
        if (s->n >= FM_LIMIT_N_COMPONENT) {
            return fm_cif_fail(&s->cif, s->reterr, FM_ERR_LIMIT, s->pairs.at[COLUMN_ID].start,
                               "the file has more than %u components", FM_LIMIT_N_COMPONENT);
        }
        s->max = s->max ? s->max * 2 : 64;
        sorted_component *items = fm_arena_alloc_array(s->arena, s->max, sizeof *items);
        if (!items) return fm_arena_full(s->arena, s->reterr);
        if (s->n) memcpy(items, s->items, s->n * sizeof *items);
        s->items = items;
    }
    s->items[s->n++] = (sorted_component){component, s->pairs.at[COLUMN_ID].start};
    return FM_OK;
}

/* Makes the component's arrays of the heavy ones among the scratch atoms. */
static fm_status keep_component(scan *s, fm_component component) {
    fm_component_atom *atoms = fm_arena_alloc_array(s->arena, component.n_atom, sizeof *atoms);
    fm_component_bond *bonds = fm_arena_alloc_array(s->arena, component.n_bond, sizeof *bonds);
    if (!atoms || !bonds) return fm_arena_full(s->arena, s->reterr);
    for (uint32_t i = 0; i < s->n_atom; i++) {
        if (s->heavy[i] != UINT16_MAX) atoms[s->heavy[i]] = s->atoms[i];
    }
    if (component.n_bond) memcpy(bonds, s->sorted, component.n_bond * sizeof *bonds);
    component.atoms = atoms;
    component.bonds = bonds;
    return push_component(s, component);
}

static fm_status close_block(scan *s) {
    if (!s->is_open) return FM_OK;
    fm_status status = FM_OK;
    for (uint32_t category = 1; category < 3 && !status; category++) {
        if (s->has_pairs[category]) {
            status = add_row(s, category == 1 ? COLUMN_ATOM : COLUMN_BOND, &s->pairs);
        }
    }
    if (status) return status;
    fm_cif_view date = s->pairs.at[COLUMN_DATE], letter = s->pairs.at[COLUMN_LETTER];
    fm_component component = {.molecule = molecule_of(s, s->pairs.at[COLUMN_TYPE])};
    uint32_t mask = 0;
    status = copy_word(s, s->pairs.at[COLUMN_ID], COLUMN_ID, component.id, sizeof component.id);
    if (!status && is_given(s, date)) {
        status = copy_word(s, date, COLUMN_DATE, component.date, sizeof component.date);
    }
    if (!status) status = read_words(s, &component);
    if (!status) status = enter_names(s, &mask);
    if (!status) {
        component.n_atom = number_heavy(s);
        status = take_bonds(s, mask, &component.n_bond);
    }
    if (status) return status;
    if (fm_cif_size(letter) == 1 && is_given(s, letter)) {
        component.one_letter = (char)*fm_cif_text(&s->cif, letter);
    }
    return keep_component(s, component);
}

static fm_status open_block(scan *s, fm_cif_view name) {
    fm_status status = close_block(s);
    s->is_open = true;
    s->has_row = false;
    s->n_atom = s->n_bond = 0;
    memset(s->has_pairs, 0, sizeof s->has_pairs);
    for (uint32_t i = 0; i < N_COLUMN; i++)
        s->pairs.at[i] = (fm_cif_view){name.start, name.start};
    return status;
}

/* -- the text */

static uint32_t find_column(const scan *s, fm_cif_view name) {
    for (uint32_t i = 0; i < N_COLUMN; i++) {
        if (strlen(column_names[i]) == fm_cif_size(name) &&
            strncasecmp((const char *)fm_cif_text(&s->cif, name), column_names[i],
                        fm_cif_size(name)) == 0) {
            return i;
        }
    }
    return NO_COLUMN;
}

/* Reads the names of a loop: the place of each wanted column, or FM_CIF_ABSENT. */
static fm_status read_loop_names(scan *s, uint32_t at[N_COLUMN], uint32_t *ret_n,
                                 uint32_t *ret_column) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_COLUMN; i++)
        at[i] = FM_CIF_ABSENT;
    *ret_column = NO_COLUMN;
    for (;;) {
        fm_cif before = s->cif;
        fm_cif_kind kind;
        fm_cif_view view;
        fm_status status = fm_cif_next(&s->cif, &kind, &view, s->reterr);
        if (status) return status;
        if (kind != FM_CIF_NAME) {
            s->cif = before;
            break;
        }
        if (n >= FM_LIMIT_CIF_COLUMN) {
            return fm_cif_fail(&s->cif, s->reterr, FM_ERR_LIMIT, view.start,
                               "a loop has more than %u columns", FM_LIMIT_CIF_COLUMN);
        }
        uint32_t column = find_column(s, view);
        if (column != NO_COLUMN) {
            at[column] = n;
            *ret_column = column;
        }
        n++;
    }
    *ret_n = n;
    return FM_OK;
}

static fm_status read_loop(scan *s, fm_cif_view loop) {
    uint32_t at[N_COLUMN], n_column, wanted, n;
    fm_cif_row cells;
    fm_cif_row_init(&cells);
    fm_status status = read_loop_names(s, at, &n_column, &wanted);
    if (status) return status;
    if (n_column == 0) {
        return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, loop.start,
                           "a loop without names of columns");
    }
    while (!(status = fm_cif_next_row(&s->cif, n_column, &cells, &n, s->reterr)) && n > 0) {
        if (n < n_column) {
            return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, cells.start[0],
                               "a row of %u values, expected %u", n, n_column);
        }
        if (wanted == NO_COLUMN) continue;
        row_values values;
        for (uint32_t i = 0; i < N_COLUMN; i++) {
            values.at[i] = fm_cif_row_at(&cells, at[i]);
            if (at[i] == FM_CIF_ABSENT) values.at[i].start = values.at[i].end = cells.start[0];
        }
        status = add_row(s, wanted, &values);
        if (status) return status;
    }
    return status;
}

static fm_status read_pair(scan *s, fm_cif_view name) {
    fm_cif_kind kind;
    fm_cif_view view;
    fm_status status = fm_cif_next(&s->cif, &kind, &view, s->reterr);
    if (status) return status;
    if (kind != FM_CIF_VALUE) {
        return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, name.start, "%.*s has no value",
                           SHOW(s, name));
    }
    uint32_t column = find_column(s, name);
    if (column == NO_COLUMN) return FM_OK;
    s->pairs.at[column] = view;
    s->has_pairs[category_of(column)] = true;
    return FM_OK;
}

static fm_status read_token(scan *s, fm_cif_kind kind, fm_cif_view view) {
    if (kind == FM_CIF_DATA) return open_block(s, view);
    if (kind == FM_CIF_END) return close_block(s);
    if (kind != FM_CIF_LOOP && kind != FM_CIF_NAME) {
        return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, view.start,
                           "found '%.*s', expected a name, loop_ or data_", SHOW(s, view));
    }
    if (!s->is_open) {
        return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, view.start,
                           "found '%.*s' before the first data_", SHOW(s, view));
    }
    return kind == FM_CIF_LOOP ? read_loop(s, view) : read_pair(s, view);
}

static int compare_components(const void *left, const void *right) {
    const sorted_component *a = left, *b = right;
    int order = memcmp(a->component.id, b->component.id, FM_COMPONENT_ID);
    if (order) return order;
    return a->at < b->at ? -1 : a->at > b->at;
}

static fm_status sort_components(scan *s, fm_components *ret_components) {
    fm_component *items = fm_arena_alloc_array(s->arena, s->n, sizeof *items);
    if (!items) return fm_arena_full(s->arena, s->reterr);
    if (s->n == 0) {
        return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, 0, "no component in the file");
    }
    qsort(s->items, s->n, sizeof *s->items, compare_components);
    for (uint32_t i = 0; i < s->n; i++) {
        items[i] = s->items[i].component;
        if (i > 0 && memcmp(items[i].id, items[i - 1].id, FM_COMPONENT_ID) == 0) {
            return fm_cif_fail(&s->cif, s->reterr, FM_ERR_FORMAT, s->items[i].at,
                               "the component %s comes twice", items[i].id);
        }
    }
    fm_components components = {.n = s->n, .items = items, .has_words = true};
    size_t mark = fm_arena_mark(s->arena);
    fm_bytes form = {0};
    fm_status status = fm_components_encode(&components, s->arena, &form, s->reterr);
    if (status) return status;
    components.hash = fm_sha256_of(form.data, form.size);
    fm_arena_rewind(s->arena, mark);
    *ret_components = components;
    return FM_OK;
}

fm_status fm_components_parse(fm_bytes text, fm_arena *arena, fm_components *ret_components,
                              fm_error *reterr) {
    scan s = {.arena = arena, .reterr = reterr};
    s.atoms = fm_arena_alloc_array(arena, FM_LIMIT_COMPONENT_ATOM, sizeof *s.atoms);
    s.heavy = fm_arena_alloc_array(arena, FM_LIMIT_COMPONENT_ATOM, sizeof *s.heavy);
    s.bonds = fm_arena_alloc_array(arena, FM_LIMIT_COMPONENT_BOND, sizeof *s.bonds);
    s.sorted = fm_arena_alloc_array(arena, FM_LIMIT_COMPONENT_BOND, sizeof *s.sorted);
    s.slots = fm_arena_alloc_array(arena, N_SLOT, sizeof *s.slots);
    if (!s.atoms || !s.heavy || !s.bonds || !s.sorted || !s.slots) {
        return fm_arena_full(arena, reterr);
    }
    fm_status status = fm_cif_init(&s.cif, text, false, reterr);
    fm_cif_kind kind = FM_CIF_DATA;
    while (!status && kind != FM_CIF_END) {
        fm_cif_view view;
        status = fm_cif_next(&s.cif, &kind, &view, reterr);
        if (!status) status = read_token(&s, kind, view);
    }
    return status ? status : sort_components(&s, ret_components);
}
