/* asym_bonds.c: bonds within residues and along polymers; see asym.h. */
#include "featurizer/complex/asym.h"

#include <math.h>

/* -- lists of bonds */

fm_status fm_asym_add_bond(fm_asym *asym, uint32_t a, uint32_t b, uint8_t order) {
    if (asym->n_bond == asym->max_bond) {
        if (asym->n_bond >= FM_LIMIT_N_COMPLEX_BOND) {
            return fm_fail(asym->reterr, FM_ERR_LIMIT, "the structure has more than %u bonds",
                           FM_LIMIT_N_COMPLEX_BOND);
        }
        uint32_t max = asym->max_bond ? asym->max_bond * 2 : 4096;
        fm_asym_bond *bonds = fm_arena_alloc_array(asym->arena, max, sizeof *bonds);
        if (!bonds) return fm_asym_full(asym);
        if (asym->n_bond) memcpy(bonds, asym->bonds, asym->n_bond * sizeof *bonds);
        asym->bonds = bonds;
        asym->max_bond = max;
    }
    asym->bonds[asym->n_bond++] =
        (fm_asym_bond){.a = a < b ? a : b, .b = a < b ? b : a, .order = order};
    return FM_OK;
}

/* One pass of a stable counting sort, by the upper or the lower end. */
static void sort_by_end(const fm_asym_bond *from, uint32_t n, bool upper, uint32_t *place,
                        uint32_t n_atom, fm_asym_bond *to) {
    memset(place, 0, ((size_t)n_atom + 1) * sizeof *place);
    for (uint32_t i = 0; i < n; i++)
        place[(upper ? from[i].b : from[i].a) + 1]++;
    for (uint32_t i = 0; i < n_atom; i++)
        place[i + 1] += place[i];
    for (uint32_t i = 0; i < n; i++)
        to[place[upper ? from[i].b : from[i].a]++] = from[i];
}

fm_status fm_bonds_sort(fm_asym_bond *bonds, uint32_t *n_bond, uint32_t n_atom, fm_arena *arena,
                        fm_error *reterr) {
    size_t mark = fm_arena_mark(arena);
    fm_asym_bond *sorted = fm_arena_alloc_array(arena, *n_bond, sizeof *sorted);
    uint32_t *place = fm_arena_alloc_array(arena, (size_t)n_atom + 2, sizeof *place);
    if (!sorted || !place) return fm_arena_full(arena, reterr);
    sort_by_end(bonds, *n_bond, true, place, n_atom, sorted);
    sort_by_end(sorted, *n_bond, false, place, n_atom, bonds);
    uint32_t n = 0;
    for (uint32_t i = 0; i < *n_bond; i++) {
        bool is_same = n > 0 && bonds[n - 1].a == bonds[i].a && bonds[n - 1].b == bonds[i].b;
        if (!is_same) n++;
        bonds[n - 1] = bonds[i];
    }
    *n_bond = n;
    fm_arena_rewind(arena, mark);
    return FM_OK;
}

fm_status fm_asym_sort_bonds(fm_asym *asym) {
    return fm_bonds_sort(asym->bonds, &asym->n_bond, asym->n_atom, asym->arena, asym->reterr);
}

fm_status fm_asym_make_graph(const fm_asym *asym, fm_asym_graph *ret_graph) {
    size_t n = asym->n_atom;
    uint32_t *first = fm_arena_calloc(asym->arena, n + 2, sizeof *first);
    uint32_t *neighbours =
        fm_arena_alloc_array(asym->arena, (size_t)asym->n_bond * 2, sizeof *neighbours);
    if (!first || !neighbours) return fm_arena_full(asym->arena, asym->reterr);
    for (uint32_t i = 0; i < asym->n_bond; i++) {
        first[asym->bonds[i].a + 2]++;
        first[asym->bonds[i].b + 2]++;
    }
    for (size_t i = 2; i < n + 2; i++)
        first[i] += first[i - 1];
    for (uint32_t i = 0; i < asym->n_bond; i++) {
        neighbours[first[asym->bonds[i].a + 1]++] = asym->bonds[i].b;
        neighbours[first[asym->bonds[i].b + 1]++] = asym->bonds[i].a;
    }
    *ret_graph = (fm_asym_graph){first, neighbours};
    return FM_OK;
}

/* -- within residues */

/* Finds an atom of a component; the place behind the last one found is tried first. */
static int32_t find_in_component(const fm_component *component, const char name[8],
                                 uint32_t *hint) {
    if (*hint < component->n_atom && fm_asym_same_name(component->atoms[*hint].name, name)) {
        return (int32_t)(*hint)++;
    }
    for (uint32_t i = 0; i < component->n_atom; i++) {
        if (!fm_asym_same_name(component->atoms[i].name, name)) continue;
        *hint = i + 1;
        return (int32_t)i;
    }
    return -1;
}

typedef struct residue_rows {
    uint32_t *first; /* by atom of the component: its first row, or none */
    uint32_t *next;  /* by row, from the residue's first */
    uint32_t max_component, max_row;
} residue_rows;

/* Lists the rows of each atom of the component, in order. */
static fm_status list_rows(fm_asym *asym, uint32_t i, residue_rows *rows) {
    const fm_asym_residue *residue = &asym->residues[i];
    uint32_t end = fm_asym_end_atom(asym, i), hint = 0;
    for (uint32_t k = residue->first_atom; k < end; k++)
        asym->atoms[k].in_component =
            find_in_component(residue->component, asym->atoms[k].name, &hint);
    memset(rows->first, 0xff, residue->component->n_atom * sizeof *rows->first);
    for (uint32_t k = end; k-- > residue->first_atom;) {
        int32_t at = asym->atoms[k].in_component;
        if (at < 0) continue;
        rows->next[k - residue->first_atom] = rows->first[at];
        rows->first[at] = k;
    }
    for (uint32_t at = 0; at < residue->component->n_atom; at++) {
        uint32_t n = 0;
        for (uint32_t k = rows->first[at]; k != FM_ASYM_NONE;
             k = rows->next[k - residue->first_atom]) {
            if (++n <= FM_LIMIT_ALTERNATIVE) continue;
            return fm_asym_fail(asym, FM_ERR_LIMIT, asym->atoms[k].at,
                                "the residue has more than %u atoms named %.7s",
                                FM_LIMIT_ALTERNATIVE, asym->atoms[k].name);
        }
    }
    return FM_OK;
}

static fm_status bond_residue(fm_asym *asym, uint32_t i, const residue_rows *rows) {
    const fm_asym_residue *residue = &asym->residues[i];
    for (uint32_t k = 0; k < residue->component->n_bond; k++) {
        const fm_component_bond *bond = &residue->component->bonds[k];
        for (uint32_t a = rows->first[bond->a]; a != FM_ASYM_NONE;
             a = rows->next[a - residue->first_atom]) {
            for (uint32_t b = rows->first[bond->b]; b != FM_ASYM_NONE;
                 b = rows->next[b - residue->first_atom]) {
                fm_status status = fm_asym_add_bond(asym, a, b, bond->order);
                if (status) return status;
            }
        }
    }
    return FM_OK;
}

fm_status fm_asym_bond_residues(fm_asym *asym) {
    residue_rows rows = {0};
    for (uint32_t i = 0; i < asym->n_residue; i++) {
        const fm_component *component = asym->residues[i].component;
        uint32_t n_row = fm_asym_end_atom(asym, i) - asym->residues[i].first_atom;
        if (component && component->n_atom > rows.max_component) {
            rows.max_component = component->n_atom;
        }
        if (n_row > rows.max_row) rows.max_row = n_row;
    }
    rows.first = fm_arena_alloc_array(asym->arena, rows.max_component, sizeof *rows.first);
    rows.next = fm_arena_alloc_array(asym->arena, rows.max_row, sizeof *rows.next);
    if (!rows.first || !rows.next) return fm_asym_full(asym);
    for (uint32_t i = 0; i < asym->n_residue; i++) {
        uint32_t end = fm_asym_end_atom(asym, i);
        if (!asym->residues[i].component) {
            for (uint32_t k = asym->residues[i].first_atom; k < end; k++)
                asym->atoms[k].in_component = -1;
            continue;
        }
        fm_status status = list_rows(asym, i, &rows);
        if (!status) status = bond_residue(asym, i, &rows);
        if (status) return status;
    }
    return FM_OK;
}

/* -- along polymers */

static uint32_t find_atom(const fm_asym *asym, uint32_t residue, const char *name) {
    for (uint32_t k = asym->residues[residue].first_atom; k < fm_asym_end_atom(asym, residue); k++)
        if (fm_asym_is_name(asym->atoms[k].name, name)) return k;
    return FM_ASYM_NONE;
}

/* Finds the two atoms by which residue i and the next one are linked; `b` is N or P, and `held` is
 * N or O3', which must not have another link. */
static bool find_link(const fm_asym *asym, uint32_t i, uint32_t *a, uint32_t *b, uint32_t *held) {
    const fm_asym_residue *residue = &asym->residues[i], *next = residue + 1;
    if (residue->link != next->link) return false;
    if ((int64_t)next->number - residue->number > 1) return false;
    if (!residue->component || !next->component) return false;
    uint8_t one = residue->component->molecule, two = next->component->molecule;
    if (one == FM_MOLECULE_LIGAND || two == FM_MOLECULE_LIGAND) return false;
    if ((one == FM_MOLECULE_PROTEIN) != (two == FM_MOLECULE_PROTEIN)) return false;
    bool is_peptide = one == FM_MOLECULE_PROTEIN;
    *a = find_atom(asym, i, is_peptide ? "C" : "O3'");
    *b = find_atom(asym, i + 1, is_peptide ? "N" : "P");
    *held = is_peptide ? *b : *a;
    return *a != FM_ASYM_NONE && *b != FM_ASYM_NONE;
}

/* Whether an atom is bonded to an atom of a neighbouring residue of its chain that is not the usual
 * one. */
static bool is_held(const fm_asym *asym, const fm_asym_graph *graph, uint32_t atom) {
    uint32_t residue = asym->atoms[atom].residue;
    for (uint32_t k = graph->first[atom]; k < graph->first[atom + 1]; k++) {
        const fm_asym_atom *other = &asym->atoms[graph->neighbours[k]];
        bool is_neighbour = other->residue + 1 == residue || other->residue == residue + 1;
        if (!is_neighbour) continue;
        if (asym->residues[other->residue].link != asym->residues[residue].link) continue;
        if (fm_asym_is_name(other->name, "C") || fm_asym_is_name(other->name, "P")) continue;
        return true;
    }
    return false;
}

static bool is_far(const fm_asym *asym, uint32_t a, uint32_t b) {
    uint32_t one = asym->residues[asym->atoms[a].residue].label;
    uint32_t two = asym->residues[asym->atoms[b].residue].label;
    if (one == two) return false;
    return sqrtf(fm_asym_distance2(asym->atoms[a].position, asym->atoms[b].position)) > 2.5F;
}

/* Removes bonds whose lower end is a lower end of links that were left out, and whose upper end is
 * an upper end of any of these. */
static void remove_left_out(fm_asym *asym, const uint8_t *left_out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < asym->n_bond; i++) {
        const fm_asym_bond *bond = &asym->bonds[i];
        if ((left_out[bond->a] & 1) && (left_out[bond->b] & 2)) continue;
        asym->bonds[n++] = *bond;
    }
    asym->n_bond = n;
}

fm_status fm_asym_bond_polymers(fm_asym *asym, bool only_near) {
    fm_status status = fm_asym_sort_bonds(asym);
    if (status) return status;
    /* The list of bonds may move when it grows, so nothing here is given back. */
    fm_asym_graph graph;
    uint8_t *left_out = fm_arena_calloc(asym->arena, asym->n_atom, 1);
    fm_asym_bond *links = fm_arena_alloc_array(asym->arena, asym->n_residue, sizeof *links);
    if (!left_out || !links) return fm_asym_full(asym);
    status = fm_asym_make_graph(asym, &graph);
    if (status) return status;
    uint32_t n_link = 0, n_left_out = 0;
    for (uint32_t i = 0; i + 1 < asym->n_residue; i++) {
        uint32_t a, b, held;
        if (!find_link(asym, i, &a, &b, &held)) continue;
        if (is_held(asym, &graph, held) || (only_near && is_far(asym, a, b))) {
            left_out[a] |= 1;
            left_out[b] |= 2;
            n_left_out++;
        } else {
            links[n_link++] = (fm_asym_bond){.a = a, .b = b};
        }
    }
    if (n_left_out) remove_left_out(asym, left_out);
    for (uint32_t i = 0; i < n_link && !status; i++)
        status = fm_asym_add_bond(asym, links[i].a, links[i].b, FM_BOND_SINGLE);
    return status ? status : fm_asym_sort_bonds(asym);
}
