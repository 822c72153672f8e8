/* molfile.c: see molfile.h. Source: CTfile Formats (Biovia, 2020), "Molfile V2000": values stand in
 * fixed columns. */
#include "featurizer/job/molfile.h"

#include "featurizer/parse/decimal.h"
#include "featurizer/parse/lines.h"
#include "proto/chem/element.h"
#include "proto/limits.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ATOM = 999, NAME_BYTES = 4 /* that tables and the network take */ };

typedef struct molfile_reader {
    fm_bytes text;
    fm_lines lines;
    fm_line line;
    fm_arena *arena;
    fm_error *reterr;
    uint32_t n_atom, n_bond; /* hydrogens included */
    fm_component_atom *atoms;
    fm_component_bond *bonds;
    uint16_t count[FM_N_ELEMENT];
} molfile_reader;

static fm_status fail(const molfile_reader *m, fm_status status, size_t column, const char *what) {
    return fm_fail_at(m->reterr, status, m->line.number, column + 1, m->line.start + column, "%s",
                      what);
}

static bool next_line(molfile_reader *m) {
    return fm_lines_next(&m->lines, &m->line);
}

/* The characters of columns from..from+width-1 without blanks around them. */
static fm_bytes field(const molfile_reader *m, size_t from, size_t width) {
    size_t begin = m->line.start + from, end = begin + width;
    if (end > m->line.stop) end = m->line.stop;
    while (begin < end && m->text.data[begin] <= ' ')
        begin++;
    while (end > begin && m->text.data[end - 1] <= ' ')
        end--;
    return begin < end ? (fm_bytes){m->text.data + begin, end - begin}
                       : (fm_bytes){m->text.data, 0};
}

static fm_status read_number(const molfile_reader *m, size_t from, int32_t low, int32_t high,
                             int32_t *ret_value) {
    fm_bytes text = field(m, from, 3);
    int32_t value = 0;
    bool is_number = text.size == 0 || fm_integer_parse(text.data, text.size, &value);
    if (is_number && value >= low && value <= high) {
        *ret_value = value;
        return FM_OK;
    }
    return fm_fail_at(m->reterr, FM_ERR_FORMAT, m->line.number, from + 1, m->line.start + from,
                      "found '%.*s', expected a whole number from %d to %d", (int)text.size,
                      (const char *)text.data, low, high);
}

/* -- the header */

static fm_status read_counts(molfile_reader *m) {
    int32_t n_atom = 0, n_bond = 0;
    for (int i = 0; i < 4; i++) {
        if (!next_line(m)) return fail(m, FM_ERR_FORMAT, 0, "found the end, expected a molecule");
        fm_bytes dimension = field(m, 20, 2);
        bool is_flat = i == 1 && dimension.size == 2 && dimension.data[0] == '2' &&
                       toupper(dimension.data[1]) == 'D';
        if (is_flat) {
            return fail(m, FM_ERR_UNSUPPORTED, 20,
                        "found a molecule in two dimensions, expected three");
        }
    }
    fm_bytes version = field(m, 33, 6);
    if (version.size == 5 && memcmp(version.data, "V3000", 5) == 0) {
        return fail(m, FM_ERR_UNSUPPORTED, 34, "found V3000, expected V2000");
    }
    fm_status status = read_number(m, 0, 1, MAX_ATOM, &n_atom);
    if (!status) status = read_number(m, 3, 0, MAX_ATOM, &n_bond);
    if (status) return status;
    m->n_atom = (uint32_t)n_atom;
    m->n_bond = (uint32_t)n_bond;
    m->atoms = fm_arena_calloc(m->arena, m->n_atom, sizeof *m->atoms);
    m->bonds = fm_arena_calloc(m->arena, (size_t)m->n_bond + 1, sizeof *m->bonds);
    return m->atoms && m->bonds ? FM_OK : fm_arena_full(m->arena, m->reterr);
}

/* -- atoms */

/* Names the atom by its element's symbol in capitals and its number. */
static fm_status name_atom(molfile_reader *m, fm_bytes symbol, fm_component_atom *atom) {
    char name[24];
    int n = snprintf(name, sizeof name, "%.*s%u", (int)symbol.size, (const char *)symbol.data,
                     ++m->count[atom->element]);
    for (char *at = name; *at; at++)
        *at = (char)toupper((unsigned char)*at);
    if (atom->element != 1 && n > NAME_BYTES) {
        return fail(m, FM_ERR_LIMIT, 31,
                    "found so many atoms of an element that their names have more than 4 letters");
    }
    memcpy(atom->name, name, (size_t)(n < FM_COMPONENT_NAME ? n : FM_COMPONENT_NAME - 1));
    return FM_OK;
}

static fm_status read_atom(molfile_reader *m, fm_component_atom *atom) {
    static const int8_t charges[] = {0, 3, 2, 1, 0, -1, -2, -3};
    int32_t charge = 0;
    if (!next_line(m)) return fail(m, FM_ERR_FORMAT, 0, "found the end, expected an atom");
    for (size_t axis = 0; axis < 3; axis++) {
        fm_bytes text = field(m, 10 * axis, 10);
        double value = NAN;
        bool is_number = fm_decimal_parse(text.data, text.size, false, &value);
        if (!is_number || !(fabs(value) < 1e4)) {
            return fail(m, FM_ERR_FORMAT, 10 * axis, "found no coordinate, expected one in Å");
        }
        atom->ideal[axis] = (float)value;
    }
    fm_bytes symbol = field(m, 31, 3);
    atom->element = fm_element_from_symbol(symbol.data, symbol.size);
    if (atom->element == FM_ELEMENT_NONE || atom->element == 0) {
        return fail(m, FM_ERR_FORMAT, 31, "found no element, expected the symbol of one");
    }
    atom->has_ideal = true;
    atom->stereo = 'N';
    fm_status status = read_number(m, 36, 0, 7, &charge);
    atom->charge = charges[charge];
    return status ? status : name_atom(m, symbol, atom);
}

static fm_status read_bond(molfile_reader *m, fm_component_bond *bond) {
    static const uint8_t orders[] = {FM_BOND_ANY, FM_BOND_SINGLE, FM_BOND_DOUBLE, FM_BOND_TRIPLE,
                                     FM_BOND_AROMATIC};
    int32_t a = 0, b = 0, type = 0;
    if (!next_line(m)) return fail(m, FM_ERR_FORMAT, 0, "found the end, expected a bond");
    fm_status status = read_number(m, 0, 1, (int32_t)m->n_atom, &a);
    if (!status) status = read_number(m, 3, 1, (int32_t)m->n_atom, &b);
    if (!status) status = read_number(m, 6, 1, 4, &type);
    if (status) return status;
    if (a == b) return fail(m, FM_ERR_FORMAT, 3, "found a bond of an atom with itself");
    *bond = (fm_component_bond){.a = (uint16_t)((a < b ? a : b) - 1),
                                .b = (uint16_t)((a < b ? b : a) - 1),
                                .order = orders[type],
                                .stereo = 'N'};
    return FM_OK;
}

/* -- properties */

/* M  CHG: pairs of an atom and its charge, in place of all charges of the atoms' lines. */
static fm_status read_charges(molfile_reader *m, bool *is_first) {
    int32_t n = 0;
    fm_status status = read_number(m, 6, 1, 8, &n);
    if (status) return status;
    for (uint32_t i = 0; i < m->n_atom && *is_first; i++)
        m->atoms[i].charge = 0;
    *is_first = false;
    for (int32_t i = 0; i < n; i++) {
        int32_t atom = 0, charge = 0;
        status = read_number(m, 10 + 8 * (size_t)i, 1, (int32_t)m->n_atom, &atom);
        if (!status) status = read_number(m, 14 + 8 * (size_t)i, -15, 15, &charge);
        if (status) return status;
        m->atoms[atom - 1].charge = (int8_t)charge;
    }
    return FM_OK;
}

static bool begins_with(const molfile_reader *m, const char *word) {
    size_t n = strlen(word);
    return m->line.stop - m->line.start >= n && memcmp(m->text.data + m->line.start, word, n) == 0;
}

static fm_status read_rest(molfile_reader *m) {
    bool is_first = true, is_end = false;
    while (!is_end && next_line(m)) {
        is_end = begins_with(m, "M  END");
        fm_status status = begins_with(m, "M  CHG") ? read_charges(m, &is_first) : FM_OK;
        if (status) return status;
    }
    if (!is_end) return fail(m, FM_ERR_FORMAT, 0, "found the end, expected 'M  END'");
    while (next_line(m) && !begins_with(m, "$$$$"))
        ; /* data of the molecule */
    while (next_line(m)) {
        if (m->line.begin == m->line.end) continue;
        return fail(m, FM_ERR_UNSUPPORTED, 0, "found a second molecule, expected one");
    }
    return FM_OK;
}

/* -- the component */

static int compare_bonds(const void *left, const void *right) {
    const fm_component_bond *a = left, *b = right;
    if (a->a != b->a) return a->a < b->a ? -1 : 1;
    return a->b < b->b ? -1 : a->b > b->b;
}

/* Leaves heavy atoms and the bonds among them. */
static fm_status drop_hydrogens(molfile_reader *m, fm_component *component) {
    uint16_t heavy[MAX_ATOM];
    uint32_t n = 0, n_bond = 0;
    for (uint32_t i = 0; i < m->n_atom; i++)
        heavy[i] = (uint16_t)(m->atoms[i].element == 1 ? UINT16_MAX : n++);
    for (uint32_t i = 0; i < m->n_bond; i++) {
        fm_component_bond bond = m->bonds[i];
        bool has_a = heavy[bond.a] != UINT16_MAX, has_b = heavy[bond.b] != UINT16_MAX;
        if (has_a != has_b) m->atoms[has_a ? bond.a : bond.b].n_hydrogen++;
        if (!has_a || !has_b) continue;
        bond.a = heavy[bond.a];
        bond.b = heavy[bond.b];
        m->bonds[n_bond++] = bond;
    }
    for (uint32_t i = 0; i < m->n_atom; i++)
        if (heavy[i] != UINT16_MAX) m->atoms[heavy[i]] = m->atoms[i];
    if (n_bond) qsort(m->bonds, n_bond, sizeof *m->bonds, compare_bonds);
    for (uint32_t i = 1; i < n_bond; i++) {
        if (compare_bonds(&m->bonds[i - 1], &m->bonds[i]) != 0) continue;
        return fm_fail(m->reterr, FM_ERR_FORMAT,
                       "found a bond of %s and %s twice, expected it once",
                       m->atoms[m->bonds[i].a].name, m->atoms[m->bonds[i].b].name);
    }
    component->n_atom = n;
    component->n_bond = n_bond;
    component->atoms = m->atoms;
    component->bonds = m->bonds;
    return FM_OK;
}

/* Positions that were never set lie all at one place. */
static fm_status check_positions(const molfile_reader *m, const fm_component *component) {
    for (uint32_t i = 1; i < component->n_atom; i++) {
        const float *a = component->atoms[0].ideal, *b = component->atoms[i].ideal;
        if (a[0] != b[0] || a[1] != b[1] || a[2] != b[2]) return FM_OK;
    }
    if (component->n_atom == 1) return FM_OK;
    return fm_fail(m->reterr, FM_ERR_DATA,
                   component->n_atom ? "found all atoms at one place, expected positions"
                                     : "found no atom but hydrogen, expected a molecule");
}

fm_status fm_molfile_parse(fm_bytes text, const char *id, fm_arena *arena,
                           fm_component *ret_component, fm_error *reterr) {
    molfile_reader m = {
        .text = text, .lines = fm_lines_of(text, false, 0, 1), .arena = arena, .reterr = reterr};
    fm_component component = {.molecule = FM_MOLECULE_LIGAND};
    fm_component_clear_words(&component);
    component.type = "NON-POLYMER";
    fm_status status = fm_text_check_kind(text, reterr);
    if (!status) status = read_counts(&m);
    for (uint32_t i = 0; i < m.n_atom && !status; i++)
        status = read_atom(&m, &m.atoms[i]);
    for (uint32_t i = 0; i < m.n_bond && !status; i++)
        status = read_bond(&m, &m.bonds[i]);
    if (!status) status = read_rest(&m);
    if (!status) status = drop_hydrogens(&m, &component);
    if (!status) status = check_positions(&m, &component);
    if (status) return status;
    memcpy(component.id, id, strlen(id));
    *ret_component = component;
    return FM_OK;
}
