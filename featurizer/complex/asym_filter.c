/* asym_filter.c: which atoms of an asymmetric unit go; see asym.h. */
#include "featurizer/complex/asym.h"

#include <math.h>
#include <strings.h>

/* -- leaving atoms out */

static void renumber_bonds(fm_asym *asym, const uint32_t *new_number) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < asym->n_bond; i++) {
        fm_asym_bond bond = asym->bonds[i];
        bond.a = new_number[bond.a];
        bond.b = new_number[bond.b];
        if (bond.a == FM_ASYM_NONE || bond.b == FM_ASYM_NONE) continue;
        asym->bonds[n++] = bond;
    }
    asym->n_bond = n;
}

static bool is_one_residue(const fm_asym_residue *a, const fm_asym_residue *b) {
    return a->label == b->label && a->number == b->number && a->insertion == b->insertion &&
           fm_asym_same_name(a->name, b->name);
}

void fm_asym_find_ranges(fm_asym *asym) {
    for (uint32_t i = 0; i < asym->n_chain; i++)
        asym->chains[i].first_residue = asym->chains[i].end_residue = 0;
    for (uint32_t i = 0; i < asym->n_residue; i++) {
        fm_asym_chain *chain = &asym->chains[asym->residues[i].label];
        if (chain->end_residue == 0) chain->first_residue = i;
        chain->end_residue = i + 1;
    }
}

fm_status fm_asym_compact(fm_asym *asym, const bool *keep, const char *step) {
    uint32_t *new_number = fm_arena_alloc_array(asym->arena, asym->n_atom, sizeof *new_number);
    if (!new_number) return fm_asym_full(asym);
    uint32_t n_atom = 0, n_residue = 0, at = asym->atoms[0].at;
    for (uint32_t i = 0; i < asym->n_residue; i++) {
        uint32_t end = fm_asym_end_atom(asym, i), first = n_atom;
        fm_asym_residue residue = asym->residues[i];
        bool joins = n_residue > 0 && is_one_residue(&asym->residues[n_residue - 1], &residue);
        uint32_t own = joins ? n_residue - 1 : n_residue;
        for (uint32_t k = residue.first_atom; k < end; k++) {
            new_number[k] = keep[k] ? n_atom : FM_ASYM_NONE;
            if (!keep[k]) continue;
            asym->atoms[n_atom] = asym->atoms[k];
            asym->atoms[n_atom++].residue = own;
        }
        if (n_atom == first || joins) continue;
        residue.first_atom = first;
        asym->residues[n_residue++] = residue;
    }
    if (n_atom == 0) return fm_asym_fail(asym, FM_ERR_DATA, at, "no atoms are left: %s", step);
    renumber_bonds(asym, new_number);
    asym->n_atom = n_atom;
    asym->n_residue = n_residue;
    fm_asym_find_ranges(asym);
    return FM_OK;
}

static uint32_t chain_first_atom(const fm_asym *asym, const fm_asym_chain *chain) {
    return asym->residues[chain->first_residue].first_atom;
}
static uint32_t chain_end_atom(const fm_asym *asym, const fm_asym_chain *chain) {
    return fm_asym_end_atom(asym, chain->end_residue - 1);
}

static fm_status new_keep(fm_asym *asym, bool **ret_keep) {
    *ret_keep = fm_arena_alloc(asym->arena, asym->n_atom);
    if (!*ret_keep) return fm_asym_full(asym);
    memset(*ret_keep, 1, asym->n_atom);
    return FM_OK;
}

static void drop_chain(const fm_asym *asym, const fm_asym_chain *chain, bool *keep) {
    uint32_t first = chain_first_atom(asym, chain), end = chain_end_atom(asym, chain);
    memset(keep + first, 0, end - first);
}

/* -- what the file has */

/* Selenomethionine counts as methionine. */
static void rename_selenomethionine(fm_asym *asym) {
    const fm_component *met = fm_components_find(asym->components, "MET");
    for (uint32_t i = 0; i < asym->n_residue; i++) {
        fm_asym_residue *residue = &asym->residues[i];
        if (!fm_asym_is_name(residue->name, "MSE")) continue;
        memset(residue->name, 0, sizeof residue->name);
        memcpy(residue->name, "MET", 3);
        residue->component = met;
        for (uint32_t k = residue->first_atom; k < fm_asym_end_atom(asym, i); k++) {
            fm_asym_atom *atom = &asym->atoms[k];
            if (fm_asym_is_name(atom->name, "SE")) {
                memcpy(atom->name, "SD", 3);
                atom->element = 16;
            }
            atom->in_component = met ? fm_component_find_atom(met, atom->name) : -1;
        }
    }
}

static bool are_all_named(const fm_asym *asym, const fm_asym_chain *chain, const char *name) {
    for (uint32_t i = chain->first_residue; i < chain->end_residue; i++)
        if (!fm_asym_is_name(asym->residues[i].name, name)) return false;
    return true;
}

/* Whether two CA atoms that follow one another, of residues n and n + 1, are more than 10 Å
 * apart. */
static bool has_far_neighbours(const fm_asym *asym, const fm_asym_chain *chain) {
    const fm_asym_atom *last = NULL;
    uint32_t end = chain_end_atom(asym, chain);
    for (uint32_t k = chain_first_atom(asym, chain); k < end; k++) {
        const fm_asym_atom *atom = &asym->atoms[k];
        if (!fm_asym_is_name(atom->name, "CA")) continue;
        int64_t number = asym->residues[atom->residue].number;
        if (last && number - asym->residues[last->residue].number == 1 &&
            sqrtf(fm_asym_distance2(atom->position, last->position)) > 10.0F) {
            return true;
        }
        last = atom;
    }
    return false;
}

static fm_status drop_bad_chains(fm_asym *asym) {
    bool *keep;
    fm_status status = new_keep(asym, &keep);
    if (status) return status;
    for (uint32_t i = 0; i < asym->n_chain; i++) {
        const fm_asym_chain *chain = &asym->chains[i];
        if (chain->first_residue == chain->end_residue) continue;
        uint8_t polymer = asym->entities[chain->entity].polymer;
        bool is_bad = false;
        if (polymer == FM_POLYMER_PEPTIDE_L) {
            is_bad = are_all_named(asym, chain, "UNK") || has_far_neighbours(asym, chain);
        } else if (polymer == FM_POLYMER_RNA || polymer == FM_POLYMER_DNA) {
            is_bad = are_all_named(asym, chain, "N");
        }
        if (is_bad) drop_chain(asym, chain, keep);
    }
    return fm_asym_compact(asym, keep, "chains of unknown residues and impossible distances go");
}

/* In arginine, NH1 is the one nearer to CD. The reference takes the first atom of all for a missing
 * one. */
static void order_arginines(fm_asym *asym) {
    for (uint32_t i = 0; i < asym->n_residue; i++) {
        uint32_t cd = FM_ASYM_NONE, nh1 = FM_ASYM_NONE, nh2 = FM_ASYM_NONE;
        if (!fm_asym_is_name(asym->residues[i].name, "ARG")) continue;
        for (uint32_t k = asym->residues[i].first_atom; k < fm_asym_end_atom(asym, i); k++) {
            if (k == 0 && asym->compat) continue;
            if (fm_asym_is_name(asym->atoms[k].name, "CD")) cd = k;
            if (fm_asym_is_name(asym->atoms[k].name, "NH1")) nh1 = k;
            if (fm_asym_is_name(asym->atoms[k].name, "NH2")) nh2 = k;
        }
        if (cd == FM_ASYM_NONE || nh1 == FM_ASYM_NONE || nh2 == FM_ASYM_NONE) continue;
        float *one = asym->atoms[nh1].position, *two = asym->atoms[nh2].position;
        const float *from = asym->atoms[cd].position;
        if (!(fm_asym_distance2(two, from) < fm_asym_distance2(one, from))) continue;
        float first[3];
        memcpy(first, one, sizeof first);
        memcpy(one, two, sizeof first);
        memcpy(two, first, sizeof first);
    }
}

fm_status fm_asym_filter_file(fm_asym *asym) {
    rename_selenomethionine(asym);
    bool *keep;
    fm_status status = new_keep(asym, &keep);
    if (status) return status;
    for (uint32_t k = 0; k < asym->n_atom; k++)
        keep[k] = asym->atoms[k].element != 1;
    status = fm_asym_compact(asym, keep, "water and hydrogens go");
    if (!status && !asym->is_prediction) status = drop_bad_chains(asym);
    if (!status) order_arginines(asym);
    return status;
}

/* -- what completion has added */

/* Leaves out atoms of ligands that no copy of the component has resolved. */
static fm_status drop_absent(fm_asym *asym) {
    uint8_t **seen = fm_arena_calloc(asym->arena, asym->components->n, sizeof *seen);
    bool *keep;
    if (!seen) return fm_asym_full(asym);
    fm_status status = new_keep(asym, &keep);
    if (status) return status;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t k = 0; k < asym->n_atom; k++) {
            const fm_asym_atom *atom = &asym->atoms[k];
            const fm_asym_residue *residue = &asym->residues[atom->residue];
            if (!asym->chains[residue->label].is_ligand || atom->in_component < 0) continue;
            uint8_t **own = &seen[residue->component - asym->components->items];
            if (!*own) *own = fm_arena_calloc(asym->arena, residue->component->n_atom, 1);
            if (!*own) return fm_asym_full(asym);
            if (pass == 0) {
                (*own)[atom->in_component] |= atom->is_resolved;
            } else {
                keep[k] = (*own)[atom->in_component];
            }
        }
    }
    return fm_asym_compact(asym, keep, "unresolved atoms of ligands go");
}

/* Walks from an atom over bonds that are not cut. Returns whether nothing that it meets is resolved
 * or of another residue; `queue` then has the n atoms met. */
static bool find_unresolved_group(const fm_asym *asym, const fm_asym_graph *graph,
                                  const bool *is_cut, uint32_t from, uint32_t *mark, uint32_t stamp,
                                  uint32_t *queue, uint32_t *ret_n) {
    uint32_t n = 1, residue = asym->atoms[from].residue;
    queue[0] = from;
    mark[from] = stamp;
    for (uint32_t i = 0; i < n; i++) {
        const fm_asym_atom *atom = &asym->atoms[queue[i]];
        if (atom->is_resolved || atom->residue != residue) return false;
        for (uint32_t k = graph->first[queue[i]]; k < graph->first[queue[i] + 1]; k++) {
            uint32_t next = graph->neighbours[k];
            if (mark[next] == stamp || is_cut[next]) continue;
            mark[next] = stamp;
            queue[n++] = next;
        }
    }
    *ret_n = n;
    return true;
}

static bool is_bonded_outside(const fm_asym *asym, const fm_asym_graph *graph, uint32_t atom) {
    for (uint32_t k = graph->first[atom]; k < graph->first[atom + 1]; k++)
        if (asym->atoms[graph->neighbours[k]].residue != asym->atoms[atom].residue) return true;
    return false;
}

/* Leaves out what hangs on a ligand's bond to another residue and is not resolved. The bonds of
 * atoms that had their turn are cut. */
static fm_status drop_leaving(fm_asym *asym) {
    fm_asym_graph graph;
    bool *keep, *is_cut = fm_arena_calloc(asym->arena, asym->n_atom, 1);
    uint32_t *mark = fm_arena_calloc(asym->arena, asym->n_atom, sizeof *mark), stamp = 0;
    uint32_t *queue = fm_arena_alloc_array(asym->arena, asym->n_atom, sizeof *queue);
    if (!is_cut || !mark || !queue) return fm_asym_full(asym);
    fm_status status = fm_asym_make_graph(asym, &graph);
    if (!status) status = new_keep(asym, &keep);
    if (status) return status;
    for (uint32_t i = 0; i < asym->n_atom; i++) {
        if (!asym->chains[asym->residues[asym->atoms[i].residue].label].is_ligand) continue;
        if (!is_bonded_outside(asym, &graph, i)) continue;
        is_cut[i] = true;
        uint32_t n_resolved = 0;
        for (uint32_t k = graph.first[i]; k < graph.first[i + 1]; k++) {
            uint32_t next = graph.neighbours[k];
            n_resolved += !is_cut[next] && asym->atoms[next].is_resolved;
        }
        if (n_resolved == 1) continue;
        for (uint32_t k = graph.first[i]; k < graph.first[i + 1]; k++) {
            uint32_t next = graph.neighbours[k], n = 0;
            if (is_cut[next] || asym->atoms[next].is_resolved) continue;
            if (!find_unresolved_group(asym, &graph, is_cut, next, mark, ++stamp, queue, &n)) {
                continue;
            }
            for (uint32_t m = 0; m < n; m++)
                keep[queue[m]] = false;
        }
    }
    return fm_asym_compact(asym, keep, "leaving atoms of ligands go");
}

/* Decides between the two that an ambiguous residue may be. */
static void resolve_ambiguous(fm_asym *asym, uint32_t i) {
    static const char *const names[][3] = {{"ASX", "ASP", "D"}, {"GLX", "GLU", "E"}};
    fm_asym_residue *residue = &asym->residues[i];
    for (size_t n = 0; n < 2; n++) {
        if (!fm_asym_is_name(residue->name, names[n][0])) continue;
        memcpy(residue->name, names[n][1], 3);
        residue->component = fm_components_find(asym->components, names[n][1]);
        for (uint32_t k = residue->first_atom; k < fm_asym_end_atom(asym, i); k++) {
            fm_asym_atom *atom = &asym->atoms[k];
            if (atom->name[0] == 'X' && atom->name[1] == names[n][2][0]) {
                atom->name[0] = 'O';
                if (atom->element == 0) atom->element = 8;
            }
            atom->in_component =
                residue->component ? fm_component_find_atom(residue->component, atom->name) : -1;
        }
        return;
    }
}

static fm_status drop_unknown(fm_asym *asym) {
    bool *keep;
    fm_status status = new_keep(asym, &keep);
    if (status) return status;
    for (uint32_t i = 0; i < asym->n_residue; i++) {
        const fm_asym_residue *residue = &asym->residues[i];
        if (fm_asym_is_name(residue->name, "UNX") || fm_asym_is_name(residue->name, "UNL")) {
            memset(keep + residue->first_atom, 0, fm_asym_end_atom(asym, i) - residue->first_atom);
        } else {
            resolve_ambiguous(asym, i);
        }
    }
    return fm_asym_compact(asym, keep, "unknown ligands go");
}

static fm_status drop_unresolved_chains(fm_asym *asym) {
    bool *keep;
    fm_status status = new_keep(asym, &keep);
    if (status) return status;
    for (uint32_t i = 0; i < asym->n_chain; i++) {
        const fm_asym_chain *chain = &asym->chains[i];
        if (chain->first_residue == chain->end_residue) continue;
        bool is_resolved = false;
        uint32_t end = chain_end_atom(asym, chain);
        for (uint32_t k = chain_first_atom(asym, chain); k < end; k++)
            is_resolved |= asym->atoms[k].is_resolved;
        if (!is_resolved) drop_chain(asym, chain, keep);
    }
    return fm_asym_compact(asym, keep, "unresolved chains go");
}

/* -- what crystals need */

static bool is_crystal(const fm_asym *asym) {
    static const char *const methods[] = {"X-RAY DIFFRACTION",      "NEUTRON DIFFRACTION",
                                          "FIBER DIFFRACTION",      "ELECTRON CRYSTALLOGRAPHY",
                                          "POWDER CRYSTALLOGRAPHY", "POWDER DIFFRACTION"};
    const fm_cif_table *exptl = &asym->tables[ASYM_TABLE_EXPTL];
    size_t n = sizeof methods / sizeof methods[0] - asym->compat; /* the reference lacks the last */
    for (uint32_t row = 0; row < exptl->n_row; row++) {
        fm_cif_view method = fm_cif_table_at(exptl, row, 0);
        const char *text = (const char *)fm_cif_text(&asym->cif, method);
        for (size_t i = 0; i < n; i++) {
            if (strlen(methods[i]) != fm_cif_size(method)) continue;
            if (asym->compat ? memcmp(text, methods[i], fm_cif_size(method)) == 0
                             : strncasecmp(text, methods[i], fm_cif_size(method)) == 0) {
                return true;
            }
        }
    }
    return false;
}

static fm_status drop_aids(fm_asym *asym) {
    static const char aids[][4] = {"SO4", "GOL", "EDO", "PO4", "ACT", "PEG", "DMS", "TRS",
                                   "PGE", "PG4", "FMT", "EPE", "MPD", "MES", "CD",  "IOD"};
    bool *keep;
    if (!is_crystal(asym)) return FM_OK;
    fm_status status = new_keep(asym, &keep);
    if (status) return status;
    for (uint32_t i = 0; i < asym->n_residue; i++) {
        const fm_asym_residue *residue = &asym->residues[i];
        if (fm_asym_is_polymer(asym, i)) continue;
        for (size_t n = 0; n < sizeof aids / sizeof aids[0]; n++) {
            if (!fm_asym_is_name(residue->name, aids[n])) continue;
            memset(keep + residue->first_atom, 0, fm_asym_end_atom(asym, i) - residue->first_atom);
        }
    }
    return fm_asym_compact(asym, keep, "crystallisation aids go");
}

fm_status fm_asym_filter_completed(fm_asym *asym) {
    fm_status status = drop_absent(asym);
    if (!status) status = drop_leaving(asym);
    if (!status) status = drop_unknown(asym);
    if (!status) status = drop_unresolved_chains(asym);
    return status ? status : drop_aids(asym);
}
