/* asym_struct_conn.c: the bonds of _struct_conn; see asym.h.
 *
 * An end names a residue by up to seven ids and then an atom. The ends' residues are found by a
 * hash of those ids that both tables have, so that each residue of the file is looked up once. */
#include "featurizer/complex/asym.h"
#include "proto/base/hash.h"

#include <math.h>

/* Columns of ASYM_TABLE_STRUCT_CONN: for each end the keys, and then these. */
enum {
    CONN_NAME = ASYM_N_CONN_KEY,
    CONN_ALT,
    CONN_SYMMETRY,
    N_CONN_END,
    CONN_TYPE = 2 * N_CONN_END
};
enum { ENDS_OF_ATOM = 1024 }; /* that are compared with an atom, on average: a file has a few */

typedef struct conn_end {
    uint32_t row, column; /* of its first value in the table */
    uint32_t next;        /* of the same bucket */
    uint32_t atom;        /* found, or FM_ASYM_NONE */
} conn_end;

typedef struct conn_finder {
    fm_asym *asym;
    const fm_cif_table *table;
    uint32_t columns[2]; /* bit i: key i is compared for this end */
    conn_end *ends;
    uint32_t n_end;
    uint32_t *buckets[2];
    uint32_t mask;
    uint64_t n_step; /* atoms compared */
} conn_finder;

static fm_cif_view normal(const fm_cif *cif, fm_cif_view view) {
    return fm_cif_is_unset(cif, view) ? (fm_cif_view){view.start, view.start} : view;
}

static bool is_same(const fm_cif *cif, fm_cif_view a, fm_cif_view b) {
    a = normal(cif, a);
    b = normal(cif, b);
    size_t size = fm_cif_size(a);
    return size == fm_cif_size(b) && memcmp(fm_cif_text(cif, a), fm_cif_text(cif, b), size) == 0;
}

/* Hashes the keys of a residue that are compared. */
static uint32_t hash_keys(const conn_finder *finder, const fm_cif_view *keys, uint32_t columns) {
    uint64_t hash = 0;
    for (uint32_t i = 0; i < ASYM_N_CONN_KEY; i++) {
        if (!(columns >> i & 1)) continue;
        fm_cif_view key = normal(&finder->asym->cif, keys[i]);
        hash = (hash ^ fm_xxh3(fm_cif_text(&finder->asym->cif, key), fm_cif_size(key))) *
               UINT64_C(0x9E3779B97F4A7C15);
    }
    return (uint32_t)(hash >> 32) & finder->mask;
}

static const fm_cif_view *values_of(const conn_finder *finder, const conn_end *end) {
    return finder->table->values + (size_t)end->row * finder->table->n_column + end->column;
}

/* -- which rows are bonds */

static bool is_bond(const conn_finder *finder, uint32_t row) {
    static const char *const types[] = {"covale", "covale_base", "covale_phosphate", "covale_sugar",
                                        "disulf", "modres",      "modres_link"};
    const fm_cif *cif = &finder->asym->cif;
    fm_cif_view type = fm_cif_table_at(finder->table, row, CONN_TYPE);
    bool is_known = false;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        is_known |= fm_cif_equals(cif, type, types[i]);
    for (uint32_t end = 0; end < 2 && is_known; end++) {
        fm_cif_view symmetry =
            fm_cif_table_at(finder->table, row, end * N_CONN_END + CONN_SYMMETRY);
        is_known = fm_cif_size(symmetry) == 0 || fm_cif_is_unset(cif, symmetry) ||
                   fm_cif_equals(cif, symmetry, "1_555");
    }
    return is_known;
}

static fm_status list_ends(conn_finder *finder) {
    fm_asym *asym = finder->asym;
    uint32_t max = finder->table->n_row * 2, room = 16;
    while (room < max)
        room *= 2;
    finder->mask = room - 1;
    finder->ends = fm_arena_alloc_array(asym->arena, max, sizeof *finder->ends);
    for (uint32_t end = 0; end < 2; end++) {
        finder->buckets[end] = fm_arena_alloc_array(asym->arena, room, sizeof(uint32_t));
        if (!finder->buckets[end]) return fm_asym_full(asym);
        memset(finder->buckets[end], 0xff, room * sizeof(uint32_t));
        for (uint32_t i = 0; i < ASYM_N_CONN_KEY; i++) {
            bool both = fm_cif_table_has(finder->table, end * N_CONN_END + i) &&
                        fm_cif_table_has(&asym->tables[ASYM_TABLE_ATOM], i);
            finder->columns[end] |= (uint32_t)both << i;
        }
    }
    if (!finder->ends) return fm_asym_full(asym);
    for (uint32_t row = 0; row < finder->table->n_row; row++) {
        if (!is_bond(finder, row)) continue;
        for (uint32_t end = 0; end < 2; end++) {
            conn_end *item = &finder->ends[finder->n_end];
            *item = (conn_end){.row = row, .column = end * N_CONN_END, .atom = FM_ASYM_NONE};
            uint32_t *bucket = &finder->buckets[end][hash_keys(finder, values_of(finder, item),
                                                               finder->columns[end])];
            item->next = *bucket;
            *bucket = finder->n_end++;
        }
    }
    return FM_OK;
}

/* -- which atoms are ends */

static bool is_end_residue(const conn_finder *finder, const conn_end *item, uint32_t columns,
                           const fm_asym_residue *residue) {
    const fm_cif_view *values = values_of(finder, item);
    for (uint32_t i = 0; i < ASYM_N_CONN_KEY; i++) {
        if (!(columns >> i & 1)) continue;
        if (!is_same(&finder->asym->cif, values[i], residue->key[i])) return false;
    }
    return true;
}

static fm_status find_end_atom(conn_finder *finder, conn_end *item, uint32_t residue) {
    fm_asym *asym = finder->asym;
    fm_cif_view name = values_of(finder, item)[CONN_NAME], alt = values_of(finder, item)[CONN_ALT];
    uint32_t packed = 0;
    bool has_alt = fm_cif_table_has(finder->table, item->column + CONN_ALT) &&
                   fm_cif_table_has(&asym->tables[ASYM_TABLE_ATOM], ASYM_ATOM_ALT);
    if (fm_cif_size(name) > 7 || !fm_asym_pack(asym, alt, &packed)) return FM_OK;
    char padded[8] = {0};
    memcpy(padded, fm_cif_text(&asym->cif, name), fm_cif_size(name));
    uint32_t first = asym->residues[residue].first_atom, end = fm_asym_end_atom(asym, residue);
    finder->n_step += end - first;
    if (finder->n_step > ((uint64_t)asym->n_atom + finder->n_end) * ENDS_OF_ATOM) {
        return fm_asym_fail(asym, FM_ERR_LIMIT, name.start,
                            "_struct_conn has more than %d bonds to look for at each atom",
                            ENDS_OF_ATOM);
    }
    for (uint32_t k = first; k < end; k++) {
        const fm_asym_atom *atom = &asym->atoms[k];
        if (!fm_asym_same_name(atom->label_name, padded)) continue;
        if (has_alt && atom->alt != packed) continue;
        if (item->atom != FM_ASYM_NONE) {
            return fm_asym_fail(asym, FM_ERR_DATA, name.start,
                                "an end of this bond, %.7s, is two atoms of the first model",
                                padded);
        }
        item->atom = k;
    }
    return FM_OK;
}

fm_status fm_asym_bond_struct_conn(fm_asym *asym) {
    conn_finder finder = {.asym = asym, .table = &asym->tables[ASYM_TABLE_STRUCT_CONN]};
    if (finder.table->n_row == 0) return FM_OK;
    fm_status status = list_ends(&finder);
    if (status || finder.n_end == 0) return status;
    for (uint32_t i = 0; i < asym->n_residue; i++) {
        for (uint32_t end = 0; end < 2; end++) {
            const fm_asym_residue *residue = &asym->residues[i];
            uint32_t columns = finder.columns[end];
            uint32_t at = finder.buckets[end][hash_keys(&finder, residue->key, columns)];
            for (; at != FM_ASYM_NONE && !status; at = finder.ends[at].next) {
                if (!is_end_residue(&finder, &finder.ends[at], columns, residue)) continue;
                status = find_end_atom(&finder, &finder.ends[at], i);
            }
            if (status) return status;
        }
    }
    for (uint32_t i = 0; i < finder.n_end && !status; i += 2) {
        uint32_t a = finder.ends[i].atom, b = finder.ends[i + 1].atom;
        if (a == FM_ASYM_NONE || b == FM_ASYM_NONE || a == b) continue;
        float distance2 = fm_asym_distance2(asym->atoms[a].position, asym->atoms[b].position);
        if (sqrtf(distance2) < 2.4F) status = fm_asym_add_bond(asym, a, b, FM_BOND_SINGLE);
    }
    return status;
}
