/* leaving.c: see leaving.h. */
#include "featurizer/complex/leaving.h"

#include <string.h>

static fm_status make_neighbours(const fm_component *component, fm_arena *arena, fm_leaving *out,
                                 fm_error *reterr) {
    uint32_t *first = fm_arena_calloc(arena, (size_t)component->n_atom + 2, sizeof *first);
    uint16_t *neighbours =
        fm_arena_alloc_array(arena, (size_t)component->n_bond * 2, sizeof *neighbours);
    if (!first || !neighbours) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < component->n_bond; i++) {
        first[component->bonds[i].a + 2]++;
        first[component->bonds[i].b + 2]++;
    }
    for (uint32_t i = 2; i < component->n_atom + 2; i++)
        first[i] += first[i - 1];
    /* Bonds ascend by (a, b), so every atom's neighbours come in order. */
    for (uint32_t i = 0; i < component->n_bond; i++) {
        neighbours[first[component->bonds[i].a + 1]++] = component->bonds[i].b;
        neighbours[first[component->bonds[i].b + 1]++] = component->bonds[i].a;
    }
    out->first_neighbour = first;
    out->neighbours = neighbours;
    return FM_OK;
}

/* Adds what hangs on the bond from `centre` to `from`. Returns false if that holds an atom that
 * does not leave. Groups are disjoint, so `is_met` is common to all. */
static bool add_group(const fm_component *component, fm_leaving *out, uint32_t centre,
                      uint32_t from, bool *is_met) {
    uint32_t begin = out->first[out->n_group], n = begin;
    out->members[n++] = (uint16_t)from;
    is_met[from] = true;
    for (uint32_t i = begin; i < n; i++) {
        uint32_t at = out->members[i];
        if (!component->atoms[at].is_leaving) return false;
        for (uint32_t k = out->first_neighbour[at]; k < out->first_neighbour[at + 1]; k++) {
            uint32_t next = out->neighbours[k];
            if (at == from && next == centre) continue;
            if (next == centre || !component->atoms[next].is_leaving) return false;
            if (is_met[next]) continue;
            is_met[next] = true;
            out->members[n++] = (uint16_t)next;
        }
    }
    out->centres[out->n_group++] = (uint16_t)centre;
    out->first[out->n_group] = n;
    return true;
}

fm_status fm_leaving_find(const fm_component *component, fm_arena *arena, fm_leaving *ret_leaving,
                          fm_error *reterr) {
    fm_leaving out = {0};
    fm_status status = make_neighbours(component, arena, &out, reterr);
    if (status) return status;
    out.centres = fm_arena_alloc_array(arena, component->n_atom, sizeof *out.centres);
    out.first = fm_arena_calloc(arena, (size_t)component->n_atom + 1, sizeof *out.first);
    out.members = fm_arena_alloc_array(arena, component->n_atom, sizeof *out.members);
    bool *is_met = fm_arena_calloc(arena, component->n_atom, 1);
    if (!out.centres || !out.first || !out.members || !is_met) return fm_arena_full(arena, reterr);
    for (uint32_t centre = 0; centre < component->n_atom; centre++) {
        if (component->atoms[centre].is_leaving) continue;
        for (uint32_t k = out.first_neighbour[centre]; k < out.first_neighbour[centre + 1]; k++) {
            uint32_t next = out.neighbours[k];
            if (!component->atoms[next].is_leaving) continue;
            if (!is_met[next] && add_group(component, &out, centre, next, is_met)) continue;
            out.is_ambiguous = true;
            out.n_group = 0;
            *ret_leaving = out;
            return FM_OK;
        }
    }
    *ret_leaving = out;
    return FM_OK;
}

static bool has_resolved(const fm_leaving *leaving, uint32_t group, const bool *is_resolved) {
    for (uint32_t k = leaving->first[group]; k < leaving->first[group + 1]; k++)
        if (is_resolved[leaving->members[k]]) return true;
    return false;
}

bool fm_leaving_is_resolved(const fm_leaving *leaving, uint32_t centre, const bool *is_resolved) {
    for (uint32_t group = 0; group < leaving->n_group; group++) {
        if (leaving->centres[group] == centre && !has_resolved(leaving, group, is_resolved)) {
            return false;
        }
    }
    return true;
}

uint32_t fm_leaving_mark(const fm_leaving *leaving, uint32_t centre, uint32_t n_bond,
                         const bool *is_resolved, bool *leaves) {
    uint32_t n_group = 0, n_left = n_bond;
    for (uint32_t group = 0; group < leaving->n_group; group++)
        n_group += leaving->centres[group] == centre;
    for (uint32_t pass = 0; pass < 2 && n_group; pass++) {
        for (uint32_t group = 0; group < leaving->n_group && n_left; group++) {
            if (leaving->centres[group] != centre) continue;
            if (has_resolved(leaving, group, is_resolved) != (pass == 1)) continue;
            for (uint32_t k = leaving->first[group]; k < leaving->first[group + 1]; k++)
                leaves[leaving->members[k]] = true;
            n_left--;
        }
    }
    return n_group;
}

void fm_component_find_link(const fm_component *one, const fm_component *two, int32_t *ret_a,
                            int32_t *ret_b) {
    *ret_a = *ret_b = -1;
    if (one->molecule == FM_MOLECULE_LIGAND || two->molecule == FM_MOLECULE_LIGAND) return;
    bool is_peptide = one->molecule == FM_MOLECULE_PROTEIN;
    if (is_peptide != (two->molecule == FM_MOLECULE_PROTEIN)) return;
    *ret_a = fm_component_find_atom(one, is_peptide ? "C" : "O3'");
    *ret_b = fm_component_find_atom(two, is_peptide ? "N" : "P");
    if (*ret_a < 0 || *ret_b < 0) *ret_a = *ret_b = -1;
}
