/* features_bonds.c: pairs of bonded tokens and atoms, and symmetries of residues; see features.h.
 */
#include "featurizer/complex/features_internal.h"
#include "featurizer/complex/symmetries.h"
#include "proto/limits.h"

#include <stdlib.h>
#include <string.h>

/* -- bonds */

static bool is_polymer(const fm_assembly_residue *residue) {
    return residue->molecule != FM_MOLECULE_LIGAND;
}

static bool is_far_bond(const fm_assembly_residue *a, const fm_assembly_residue *b) {
    int64_t apart = (int64_t)a->number - b->number;
    return a->chain != b->chain || apart > 1 || apart < -1;
}

/* Bonds within a polymer are known from its sequence, but for those inside a modified residue. */
static bool is_token_bond(const feature_crop *crop, const fm_assembly_residue *a,
                          const fm_assembly_residue *b) {
    if (!is_polymer(a) || !is_polymer(b)) return true;
    if (crop->options->has_far_bonds && is_far_bond(a, b)) return true;
    return !a->is_standard && !b->is_standard && a->ref_space_uid == b->ref_space_uid;
}

static int compare_pairs(const void *left, const void *right) {
    const fm_complex_pair *a = left, *b = right;
    if (a->a != b->a) return a->a < b->a ? -1 : 1;
    return a->b < b->b ? -1 : a->b > b->b;
}

/* Sorts pairs and leaves each once. Returns their number. */
static uint32_t sort_pairs(fm_complex_pair *pairs, uint32_t n) {
    uint32_t n_kept = 0;
    if (n) qsort(pairs, n, sizeof *pairs, compare_pairs);
    for (uint32_t i = 0; i < n; i++) {
        if (n_kept && compare_pairs(&pairs[n_kept - 1], &pairs[i]) == 0) continue;
        pairs[n_kept++] = pairs[i];
    }
    return n_kept;
}

/* Returns whether the chains of this label have more than one atom in the crop, all copies
 * together. Only the crop's own chains are looked through. */
static bool has_several_atoms(const feature_crop *crop, const char *label) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < crop->n_residue && n < 2; r++) {
        uint32_t chain = crop->assembly->residues[crop->residues[r]].chain;
        if (strcmp(crop->assembly->chains[chain].label_asym_id, label) == 0) {
            n += crop->residue_first[r + 1] - crop->residue_first[r];
        }
    }
    return n > 1;
}

/* A bond between a polymer and a ligand of more than one atom. */
static bool is_masked_bond(const feature_crop *crop, const fm_assembly_residue *a,
                           const fm_assembly_residue *b) {
    if (is_polymer(a) == is_polymer(b)) return false;
    const fm_assembly_residue *ligand = is_polymer(a) ? b : a;
    return has_several_atoms(crop, crop->assembly->chains[ligand->chain].label_asym_id);
}

static uint32_t count_bonds(const feature_crop *crop) {
    feature_bonds bonds = fm_feature_bonds_start(crop);
    uint32_t n = 0, a, b;
    while (fm_feature_bonds_next(&bonds, &a, &b))
        n++;
    return n;
}

fm_status fm_feature_bond_pairs(const feature_crop *crop, fm_complex_features *out) {
    uint32_t n = count_bonds(crop), n_token_bond = 0, n_mask = 0, a, b;
    out->token_bonds = fm_arena_alloc_array(crop->arena, n, sizeof *out->token_bonds);
    out->bond_mask = fm_arena_alloc_array(crop->arena, n, sizeof *out->bond_mask);
    if (!out->token_bonds || !out->bond_mask) return fm_arena_full(crop->arena, crop->reterr);
    feature_bonds bonds = fm_feature_bonds_start(crop);
    while (fm_feature_bonds_next(&bonds, &a, &b)) {
        const fm_assembly_residue *of_a = fm_feature_residue(crop, a);
        const fm_assembly_residue *of_b = fm_feature_residue(crop, b);
        int32_t t = out->atom_to_token_idx[a], u = out->atom_to_token_idx[b];
        if (t != u && is_token_bond(crop, of_a, of_b)) {
            out->token_bonds[n_token_bond++] = (fm_complex_pair){t, u};
        }
        if (is_masked_bond(crop, of_a, of_b)) {
            out->bond_mask[n_mask++] = (fm_complex_pair){(int32_t)a, (int32_t)b};
        }
    }
    out->n_token_bond = sort_pairs(out->token_bonds, n_token_bond);
    out->n_bond_mask = sort_pairs(out->bond_mask, n_mask);
    return FM_OK;
}

/* -- symmetries */

/* The symmetries of the components met so far. */
typedef struct known_symmetries {
    const fm_component *component;
    fm_symmetries symmetries;
} known_symmetries;

typedef struct permutation_work {
    const feature_crop *crop;
    known_symmetries *known; /* [n_residue] */
    uint32_t n_known;
    bool *is_joined;    /* [n_atom] bonded to another residue */
    int16_t *place;     /* [FM_SYMMETRY_ATOMS] place in the residue by atom of its component */
    uint16_t **columns; /* [n_residue] of [count][atoms of the residue] */
} permutation_work;

static fm_status fail_full(const feature_crop *crop) {
    return fm_arena_full(crop->arena, crop->reterr);
}

static fm_status find_symmetries(permutation_work *work, const fm_component *component,
                                 const fm_symmetries **ret_symmetries) {
    for (uint32_t i = 0; i < work->n_known; i++) {
        *ret_symmetries = &work->known[i].symmetries;
        if (work->known[i].component == component) return FM_OK;
    }
    known_symmetries *known = &work->known[work->n_known++];
    known->component = component;
    *ret_symmetries = &known->symmetries;
    return fm_component_symmetries(component, work->crop->arena, &known->symmetries,
                                   work->crop->reterr);
}

static void mark_joined(permutation_work *work) {
    feature_bonds bonds = fm_feature_bonds_start(work->crop);
    uint32_t a, b;
    while (fm_feature_bonds_next(&bonds, &a, &b)) {
        if (fm_feature_residue(work->crop, a) == fm_feature_residue(work->crop, b)) continue;
        work->is_joined[a] = work->is_joined[b] = true;
    }
}

/* Returns whether column `image` of a component's symmetries keeps the n atoms from `first` among
 * themselves and moves none that is joined. If so, it is `column` of the residue. */
static bool restrict_column(const permutation_work *work, uint32_t first, uint32_t n,
                            const uint16_t *image, uint16_t *column) {
    const feature_crop *crop = work->crop;
    for (uint32_t i = 0; i < n; i++) {
        const fm_assembly_atom *atom = &crop->assembly->atoms[crop->atoms[first + i]];
        int16_t to = work->place[image[atom->in_component]];
        if (to < 0 || (to != (int16_t)i && work->is_joined[first + i])) return false;
        column[i] = (uint16_t)to;
    }
    return true;
}

static int compare_columns(const uint16_t *a, const uint16_t *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    }
    return 0;
}

/* Inserts a column among n_column ascending ones of n values, unless it is there. Returns their new
 * number. */
static uint32_t insert_column(uint16_t *columns, uint32_t n_column, uint32_t n,
                              const uint16_t *column) {
    uint32_t at = n_column;
    int order = -1;
    while (at > 0 && (order = compare_columns(columns + (size_t)(at - 1) * n, column, n)) > 0)
        at--;
    if (at > 0 && order == 0) return n_column;
    uint16_t *place = columns + (size_t)at * n;
    memmove(place + n, place, (size_t)(n_column - at) * n * sizeof *place);
    memcpy(place, column, n * sizeof *place);
    return n_column + 1;
}

/* Returns whether every atom of the residue's part in the crop is one of its component. */
static bool is_of_component(const feature_crop *crop, const fm_component *component, uint32_t first,
                            uint32_t n) {
    if (!component || component->n_atom > FM_SYMMETRY_ATOMS) return false;
    for (uint32_t i = 0; i < n; i++) {
        if (crop->assembly->atoms[crop->atoms[first + i]].in_component < 0) return false;
    }
    return true;
}

/* Lists the columns of residue r of the crop. */
static fm_status list_columns(permutation_work *work, uint32_t r, uint32_t *ret_n) {
    const feature_crop *crop = work->crop;
    const fm_component *component = crop->assembly->residues[crop->residues[r]].component;
    uint32_t first = crop->residue_first[r], n = crop->residue_first[r + 1] - first;
    const fm_symmetries *symmetries = NULL;
    bool has_symmetries = is_of_component(crop, component, first, n);
    if (n > FM_LIMIT_COMPONENT_ATOM) {
        return fm_fail(crop->reterr, FM_ERR_LIMIT, "a residue has %u atoms, at most %u", n,
                       FM_LIMIT_COMPONENT_ATOM);
    }
    fm_status status = has_symmetries ? find_symmetries(work, component, &symmetries) : FM_OK;
    if (status) return status;
    uint32_t n_image = has_symmetries ? symmetries->n : 1;
    uint16_t *columns = fm_arena_alloc_array(crop->arena, (size_t)n * (n_image + 1), 2);
    if (!columns) return fail_full(crop);
    uint16_t *column = columns + (size_t)n * n_image; /* behind all others */
    for (uint32_t i = 0; i < n; i++)
        columns[i] = (uint16_t)i;
    *ret_n = 1;
    if (has_symmetries) {
        memset(work->place, 0xff, FM_SYMMETRY_ATOMS * sizeof *work->place);
        for (uint32_t i = 0; i < n; i++)
            work->place[crop->assembly->atoms[crop->atoms[first + i]].in_component] = (int16_t)i;
    }
    for (uint32_t c = 1; c < n_image; c++) {
        const uint16_t *image = symmetries->images + (size_t)c * symmetries->n_atom;
        if (restrict_column(work, first, n, image, column)) {
            *ret_n = insert_column(columns, *ret_n, n, column);
        }
    }
    work->columns[r] = columns;
    fm_arena_trim(crop->arena, columns, (size_t)n * *ret_n * sizeof *columns);
    return FM_OK;
}

/* Copies a residue's columns into its block [n, n_column]. */
static void write_block(const uint16_t *columns, uint32_t n_column, uint32_t n, int16_t *block) {
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t c = 0; c < n_column; c++)
            block[(size_t)i * n_column + c] = (int16_t)columns[(size_t)c * n + i];
    }
}

static fm_status write_blocks(const permutation_work *work, fm_complex_features *out) {
    const feature_crop *crop = work->crop;
    out->permutations =
        fm_arena_alloc_array(crop->arena, out->n_permuted, sizeof *out->permutations);
    if (!out->permutations) return fail_full(crop);
    int16_t *block = out->permutations;
    for (uint32_t r = 0; r < crop->n_residue; r++) {
        uint32_t n = crop->residue_first[r + 1] - crop->residue_first[r];
        uint32_t n_column = (uint32_t)out->permutation_count[r];
        write_block(work->columns[r], n_column, n, block);
        block += (size_t)n * n_column;
    }
    return FM_OK;
}

fm_status fm_feature_permutations(const feature_crop *crop, fm_complex_features *out) {
    permutation_work work = {.crop = crop};
    fm_arena *arena = crop->arena;
    work.known = fm_arena_alloc_array(arena, crop->n_residue, sizeof *work.known);
    work.is_joined = fm_arena_calloc(arena, crop->n_atom, sizeof *work.is_joined);
    work.place = fm_arena_alloc_array(arena, FM_SYMMETRY_ATOMS, sizeof *work.place);
    work.columns = fm_arena_alloc_array(arena, crop->n_residue, sizeof *work.columns);
    if (!work.known || !work.is_joined || !work.place || !work.columns) return fail_full(crop);
    if (!crop->options->moves_bonded_atoms) mark_joined(&work);
    uint64_t n_permuted = 0;
    for (uint32_t r = 0; r <= crop->n_residue; r++) {
        out->permutation_first_atom[r] = (int32_t)crop->residue_first[r];
        if (r == crop->n_residue) break;
        uint32_t n_column = 0;
        fm_status status = list_columns(&work, r, &n_column);
        if (status) return status;
        out->permutation_count[r] = (int32_t)n_column;
        n_permuted += (uint64_t)n_column * (crop->residue_first[r + 1] - crop->residue_first[r]);
    }
    if (n_permuted > UINT32_MAX) {
        return fm_fail(crop->reterr, FM_ERR_LIMIT,
                       "the symmetries of the residues have more than 2^32 values");
    }
    out->n_permuted = (uint32_t)n_permuted;
    return write_blocks(&work, out);
}
