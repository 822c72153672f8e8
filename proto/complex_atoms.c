/* complex_atoms.c: see complex_atoms.h. One table says which array each member of the struct is;
 * writing and reading follow it. */
#include "proto/complex_atoms.h"

#include "proto/base/utf8.h"
#include "proto/chem/element.h"
#include "proto/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the texts of an array may be. */
typedef enum text_rule {
    NO_TEXT,
    NAME, /* not empty, no blanks */
    TEXT,
} text_rule;

typedef struct column {
    const char *name;
    const char *dtype; /* of numbers */
    text_rule text;
    uint32_t width;      /* numbers of a row: 2 for pairs */
    size_t count_at, at; /* in fm_complex_atoms: the number of rows, and the pointer */
    int64_t least, most; /* of numbers; most -1: less than the number at most_at */
    size_t most_at;
} column;

#define AT(member) offsetof(fm_complex_atoms, member)
#define NUMBERS(name, dtype, width, rows, member, least, most)                                     \
    { name, dtype, NO_TEXT, width, AT(rows), AT(member), least, most, 0 }
#define INDICES(name, width, rows, member, end)                                                    \
    { name, "<i4", NO_TEXT, width, AT(rows), AT(member), 0, -1, AT(end) }
#define TEXTS(name, rule, rows, member)                                                            \
    { name, NULL, rule, 1, AT(rows), AT(member), 0, 0, 0 }

static const column columns[] = {
    NUMBERS("names/entity_kind", "|u1", 1, n_entity, entity_kind, 0, FM_N_COMPLEX_KIND - 1),
    TEXTS("names/entity_description", TEXT, n_entity, entity_description),
    TEXTS("names/chain_id", NAME, n_chain, chain_id),
    INDICES("names/chain_entity", 1, n_chain, chain_entity, n_entity),
    INDICES("names/residue_chain", 1, n_residue, residue_chain, n_chain),
    NUMBERS("names/residue_number", "<i4", 1, n_residue, residue_number, 1, INT32_MAX),
    INDICES("names/residue_component", 1, n_residue, residue_component, n_component),
    NUMBERS("names/residue_letter", "|u1", 1, n_residue, residue_letter, '?', 'Z'),
    INDICES("names/atom_residue", 1, n_atom, atom_residue, n_residue),
    TEXTS("names/atom_name", NAME, n_atom, atom_name),
    NUMBERS("names/atom_element", "|u1", 1, n_atom, atom_element, 0, FM_N_ELEMENT - 1),
    NUMBERS("names/atom_charge", "|i1", 1, n_atom, atom_charge, INT8_MIN, INT8_MAX),
    INDICES("names/bond", 2, n_bond, bond, n_atom),
    TEXTS("names/component_id", NAME, n_component, component_id),
    TEXTS("names/component_type", TEXT, n_component, component_type),
    TEXTS("names/component_description", TEXT, n_component, component_description),
    TEXTS("names/component_formula", TEXT, n_component, component_formula),
    NUMBERS("names/component_weight", "<f4", 1, n_component, component_weight, 0, 1000000),
    INDICES("names/component_atom_component", 1, n_component_atom, component_atom_component,
            n_component),
    TEXTS("names/component_atom_name", NAME, n_component_atom, component_atom_name),
    NUMBERS("names/component_atom_element", "|u1", 1, n_component_atom, component_atom_element, 0,
            FM_N_ELEMENT - 1),
    NUMBERS("names/component_atom_charge", "|i1", 1, n_component_atom, component_atom_charge,
            INT8_MIN, INT8_MAX),
    NUMBERS("names/component_atom_is_aromatic", "|u1", 1, n_component_atom,
            component_atom_is_aromatic, 0, 1),
    NUMBERS("names/component_atom_is_leaving", "|u1", 1, n_component_atom,
            component_atom_is_leaving, 0, 1),
    INDICES("names/component_bond", 2, n_component_bond, component_bond, n_component_atom),
    NUMBERS("names/component_bond_order", "|u1", 1, n_component_bond, component_bond_order, 0,
            FM_BOND_AROMATIC),
};
enum { N_COLUMN = sizeof columns / sizeof columns[0] };

static uint32_t count_at(const fm_complex_atoms *atoms, size_t at) {
    uint32_t count;
    memcpy(&count, (const char *)atoms + at, sizeof count);
    return count;
}

static const void *pointer_at(const fm_complex_atoms *atoms, size_t at) {
    const void *pointer;
    memcpy(&pointer, (const char *)atoms + at, sizeof pointer);
    return pointer;
}

/* -- writing */

static fm_status append_texts(fm_npz_writer *writer, const column *c, const char *const *texts,
                              uint64_t n, fm_error *reterr) {
    size_t bytes = 1; /* NumPy has no strings of 0 bytes in files */
    for (uint64_t i = 0; i < n; i++) {
        size_t length = strlen(texts[i]);
        bytes = length > bytes ? length : bytes;
    }
    char dtype[FM_NPZ_DTYPE_BYTES];
    snprintf(dtype, sizeof dtype, "|S%zu", bytes);
    char *data = calloc(n ? n : 1, bytes);
    if (!data) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the array %s", c->name);
    for (uint64_t i = 0; i < n; i++)
        memcpy(data + i * bytes, texts[i], strlen(texts[i]));
    fm_status status = fm_npz_writer_append(writer, c->name, dtype, 1, &n, data, reterr);
    free(data);
    return status;
}

fm_status fm_complex_atoms_append(fm_npz_writer *writer, const fm_complex_atoms *atoms,
                                  fm_error *reterr) {
    fm_status status = FM_OK;
    for (size_t i = 0; !status && i < N_COLUMN; i++) {
        const column *c = &columns[i];
        const uint64_t shape[] = {count_at(atoms, c->count_at), c->width};
        const void *data = pointer_at(atoms, c->at);
        if (c->text) {
            status = append_texts(writer, c, data, shape[0], reterr);
        } else {
            status = fm_npz_writer_append(writer, c->name, c->dtype, c->width == 1 ? 1 : 2, shape,
                                          data, reterr);
        }
    }
    return status;
}

/* -- reading */

static fm_status read_texts(const column *c, const fm_npy *array, fm_arena *arena,
                            const char *const **ret_texts, fm_error *reterr) {
    const char **texts = fm_arena_alloc_array(arena, array->count, sizeof *texts);
    char *to = fm_arena_alloc_array(arena, array->count, array->item_bytes + 1);
    if (!texts || !to) return fm_arena_full(arena, reterr);
    const char *from = array->data;
    for (uint64_t i = 0; i < array->count; i++, from += array->item_bytes) {
        size_t bytes = strnlen(from, array->item_bytes);
        bool is_lawful = fm_utf8_is_whole(from, bytes);
        for (size_t k = 0; k < bytes; k++) {
            is_lawful = is_lawful && (unsigned char)from[k] >= ' ' && from[k] != 0x7f &&
                        (c->text == TEXT || from[k] != ' ');
        }
        if (!is_lawful || (c->text == NAME && (bytes == 0 || bytes > FM_LIMIT_NAME_BYTES))) {
            return fm_fail(reterr, FM_ERR_DATA,
                           "%s[%" PRIu64 "]: found %zu bytes that are no %s, expected %s", c->name,
                           i, bytes, c->text == NAME ? "name" : "text",
                           c->text == NAME ? "1 to 255 letters without blanks"
                                           : "UTF-8 without control bytes");
        }
        texts[i] = to;
        memcpy(to, from, bytes);
        to[bytes] = '\0';
        to += bytes + 1;
    }
    *ret_texts = texts;
    return FM_OK;
}

/* The number at `i` of an array of the types of the columns; false: it is no finite number. */
static bool number_at(const fm_npy *array, uint64_t i, double *ret_number) {
    if (array->dtype[1] == 'f') {
        *ret_number = (double)((const float *)array->data)[i];
        return *ret_number - *ret_number == 0;
    }
    if (array->item_bytes == 4) {
        *ret_number = ((const int32_t *)array->data)[i];
    } else if (array->dtype[1] == 'i') {
        *ret_number = ((const int8_t *)array->data)[i];
    } else {
        *ret_number = ((const uint8_t *)array->data)[i];
    }
    return true;
}

static fm_status check_numbers(const fm_complex_atoms *atoms, const column *c, const fm_npy *array,
                               fm_error *reterr) {
    const int64_t most = c->most >= 0 ? c->most : (int64_t)count_at(atoms, c->most_at) - 1;
    for (uint64_t i = 0; i < array->count; i++) {
        double number;
        if (number_at(array, i, &number) && number >= (double)c->least && number <= (double)most) {
            continue;
        }
        return fm_fail(reterr, FM_ERR_DATA,
                       "%s[%" PRIu64 "]: found %g, expected %" PRId64 " to %" PRId64, c->name, i,
                       number, c->least, most);
    }
    return FM_OK;
}

/* Finds the array of a column and notes its rows. Columns of one table must agree. */
static fm_status find_array(const fm_npz *npz, const column *c, fm_complex_atoms *atoms,
                            bool is_first, const fm_npy **ret_array, fm_error *reterr) {
    const fm_npy *array = fm_npz_find(npz, c->name);
    if (!array) return fm_fail(reterr, FM_ERR_DATA, "%s: the array is missing", c->name);
    bool is_type = c->text ? array->dtype[1] == 'S' : strcmp(array->dtype, c->dtype) == 0;
    if (!is_type) {
        return fm_fail(reterr, FM_ERR_DATA, "%s: found type %s, expected %s", c->name, array->dtype,
                       c->text ? "|SN" : c->dtype);
    }
    uint64_t rows = array->rank ? array->shape[0] : 0;
    bool is_shape = c->width == 1 ? array->rank == 1 : array->rank == 2 && array->shape[1] == 2;
    if (!is_shape || rows > INT32_MAX) {
        return fm_fail(reterr, FM_ERR_DATA, "%s: found another shape, expected [n%s]", c->name,
                       c->width == 1 ? "" : ", 2");
    }
    if (!is_first && rows != count_at(atoms, c->count_at)) {
        return fm_fail(reterr, FM_ERR_DATA, "%s: found %" PRIu64 " rows, expected %u", c->name,
                       rows, count_at(atoms, c->count_at));
    }
    uint32_t count = (uint32_t)rows;
    memcpy((char *)atoms + c->count_at, &count, sizeof count);
    *ret_array = array;
    return FM_OK;
}

/* Checks that rows name their groups in order, each group at least once: 0, 0, 1, 2, 2. */
static fm_status check_groups(const char *name, const int32_t *group, uint32_t n, uint32_t n_group,
                              fm_error *reterr) {
    int32_t due = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (group[i] == due) due++;
        if (group[i] != due - 1) {
            return fm_fail(reterr, FM_ERR_DATA, "%s[%u]: found %d, expected %d or %d", name, i,
                           group[i], due ? due - 1 : 0, due);
        }
    }
    if ((uint32_t)due == n_group) return FM_OK;
    return fm_fail(reterr, FM_ERR_DATA, "%s: found rows of %d, expected rows of %u", name, due,
                   n_group);
}

static fm_status check_pairs(const char *name, const int32_t *pair, uint32_t n,
                             const int32_t *group, fm_error *reterr) {
    for (uint32_t i = 0; i < n; i++) {
        int32_t first = pair[2 * i], second = pair[2 * i + 1];
        if (first >= second || (group && group[first] != group[second])) {
            return fm_fail(reterr, FM_ERR_DATA, "%s[%u]: found %d and %d, expected %s", name, i,
                           first, second,
                           group ? "two of one component, the less first" : "the less first");
        }
    }
    return FM_OK;
}

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static fm_status check_chains(const fm_complex_atoms *a, fm_arena *arena, fm_error *reterr) {
    size_t mark = fm_arena_mark(arena);
    const char **sorted = fm_arena_alloc_array(arena, a->n_chain, sizeof *sorted);
    uint8_t *has_chain = fm_arena_calloc(arena, a->n_entity, 1);
    if (!sorted || !has_chain) return fm_arena_full(arena, reterr);
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < a->n_chain; i++) {
        sorted[i] = a->chain_id[i];
        has_chain[a->chain_entity[i]] = 1;
    }
    qsort(sorted, a->n_chain, sizeof *sorted, compare_texts);
    for (uint32_t i = 1; !status && i < a->n_chain; i++) {
        if (strcmp(sorted[i - 1], sorted[i]) != 0) continue;
        status = fm_fail(reterr, FM_ERR_DATA,
                         "names/chain_id: found %.200s twice, expected every id once", sorted[i]);
    }
    for (uint32_t i = 0; !status && i < a->n_entity; i++) {
        if (has_chain[i]) continue;
        status = fm_fail(reterr, FM_ERR_DATA,
                         "names/chain_entity: found no chain of entity %u, expected one", i);
    }
    fm_arena_rewind(arena, mark);
    return status;
}

static fm_status check_residues(const fm_complex_atoms *a, fm_error *reterr) {
    for (uint32_t i = 0; i < a->n_residue; i++) {
        bool goes_on = i > 0 && a->residue_chain[i] == a->residue_chain[i - 1];
        int32_t expected = goes_on ? a->residue_number[i - 1] + 1 : 1;
        if (a->residue_number[i] != expected) {
            return fm_fail(reterr, FM_ERR_DATA, "names/residue_number[%u]: found %d, expected %d",
                           i, a->residue_number[i], expected);
        }
        if (a->residue_letter[i] == '@') {
            return fm_fail(reterr, FM_ERR_DATA,
                           "names/residue_letter[%u]: found 64, expected a capital letter or ?", i);
        }
    }
    return FM_OK;
}

static fm_status check_table(const fm_complex_atoms *a, fm_arena *arena, fm_error *reterr) {
    if (a->n_atom == 0) {
        return fm_fail(reterr, FM_ERR_DATA, "names/atom_name: found no atoms, expected some");
    }
    fm_status status =
        check_groups("names/residue_chain", a->residue_chain, a->n_residue, a->n_chain, reterr);
    if (!status) {
        status =
            check_groups("names/atom_residue", a->atom_residue, a->n_atom, a->n_residue, reterr);
    }
    if (!status) {
        status = check_groups("names/component_atom_component", a->component_atom_component,
                              a->n_component_atom, a->n_component, reterr);
    }
    if (!status) status = check_pairs("names/bond", a->bond, a->n_bond, NULL, reterr);
    if (!status) {
        status = check_pairs("names/component_bond", a->component_bond, a->n_component_bond,
                             a->component_atom_component, reterr);
    }
    if (!status) status = check_chains(a, arena, reterr);
    if (!status) status = check_residues(a, reterr);
    return status;
}

fm_status fm_complex_atoms_read(const fm_npz *npz, fm_arena *arena, fm_complex_atoms *ret_atoms,
                                fm_error *reterr) {
    fm_complex_atoms atoms = {.n_entity = 0};
    const fm_npy *arrays[N_COLUMN];
    fm_status status = FM_OK;
    for (size_t i = 0; !status && i < N_COLUMN; i++) {
        bool is_first = i == 0 || columns[i].count_at != columns[i - 1].count_at;
        status = find_array(npz, &columns[i], &atoms, is_first, &arrays[i], reterr);
    }
    for (size_t i = 0; !status && i < N_COLUMN; i++) {
        const column *c = &columns[i];
        const void *data = arrays[i]->data;
        if (c->text) {
            const char *const *texts = NULL;
            status = read_texts(c, arrays[i], arena, &texts, reterr);
            data = texts;
        } else {
            status = check_numbers(&atoms, c, arrays[i], reterr);
        }
        memcpy((char *)&atoms + c->at, &data, sizeof data);
    }
    if (!status) status = check_table(&atoms, arena, reterr);
    if (!status) *ret_atoms = atoms;
    return status;
}
