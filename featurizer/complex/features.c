/* features.c: tokens and atoms of a crop as arrays; see features.h. What needs geometry is in
 * features_geometry.c, bonds and symmetries are in features_bonds.c. */
#include "featurizer/complex/features.h"

#include "featurizer/complex/features_internal.h"
#include "featurizer/complex/tokens.h"

#include <assert.h>
#include <string.h>

enum { ELEMENT_NONE = 127 };

/* -- the crop */

static fm_status fail_full(const feature_crop *crop) {
    return fm_arena_full(crop->arena, crop->reterr);
}

static fm_status take_tokens(feature_crop *crop, const uint32_t *tokens) {
    const fm_assembly *assembly = crop->assembly;
    crop->tokens = fm_arena_alloc_array(crop->arena, crop->n_token, sizeof *crop->tokens);
    crop->first_atom =
        fm_arena_alloc_array(crop->arena, (size_t)crop->n_token + 1, sizeof *crop->first_atom);
    if (!crop->tokens || !crop->first_atom) return fail_full(crop);
    uint32_t n = 0;
    for (uint32_t t = 0; t < crop->n_token; t++) {
        uint32_t token = tokens ? tokens[t] : t;
        assert(token < assembly->n_token && (t == 0 || crop->tokens[t - 1] < token));
        crop->tokens[t] = token;
        crop->first_atom[t] = n;
        n += assembly->tokens[token].n_atom;
    }
    crop->first_atom[crop->n_token] = crop->n_atom = n;
    return FM_OK;
}

static fm_status take_atoms(feature_crop *crop) {
    const fm_assembly *assembly = crop->assembly;
    uint32_t n = crop->n_atom;
    crop->atoms = fm_arena_alloc_array(crop->arena, n, sizeof *crop->atoms);
    crop->residues = fm_arena_alloc_array(crop->arena, n, sizeof *crop->residues);
    crop->residue_first =
        fm_arena_alloc_array(crop->arena, (size_t)n + 1, sizeof *crop->residue_first);
    if (!crop->atoms || !crop->residues || !crop->residue_first) return fail_full(crop);
    for (uint32_t t = 0; t < crop->n_token; t++) {
        const fm_assembly_token *token = &assembly->tokens[crop->tokens[t]];
        for (uint32_t k = 0; k < token->n_atom; k++)
            crop->atoms[crop->first_atom[t] + k] = token->first_atom + k;
        if (crop->n_residue && crop->residues[crop->n_residue - 1] == token->residue) continue;
        crop->residues[crop->n_residue] = token->residue;
        crop->residue_first[crop->n_residue++] = crop->first_atom[t];
    }
    crop->residue_first[crop->n_residue] = n;
    return FM_OK;
}

uint32_t fm_feature_crop_find(const feature_crop *crop, uint32_t atom) {
    uint32_t low = 0, high = crop->n_atom;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (crop->atoms[middle] < atom) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < crop->n_atom && crop->atoms[low] == atom ? low : CROP_NONE;
}

/* Returns the first bond whose lower end is at least `atom`. */
static uint32_t first_bond_of(const fm_assembly *assembly, uint32_t atom) {
    uint32_t low = 0, high = assembly->n_bond;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (assembly->bonds[middle].a < atom) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

feature_bonds fm_feature_bonds_start(const feature_crop *crop) {
    uint32_t first = crop->n_atom ? first_bond_of(crop->assembly, crop->atoms[0]) : 0;
    return (feature_bonds){.crop = crop, .bond = first};
}

/* Walks along the crop's atoms and the bonds together, since both ascend; gaps between the atoms
 * are jumped over. */
bool fm_feature_bonds_next(feature_bonds *bonds, uint32_t *ret_a, uint32_t *ret_b) {
    const feature_crop *crop = bonds->crop;
    const fm_assembly *assembly = crop->assembly;
    while (bonds->at < crop->n_atom && bonds->bond < assembly->n_bond) {
        const fm_assembly_bond *bond = &assembly->bonds[bonds->bond];
        uint32_t atom = crop->atoms[bonds->at];
        if (bond->a > atom) {
            bonds->at++;
        } else if (bond->a < atom) {
            bonds->bond = first_bond_of(assembly, atom);
        } else {
            bonds->bond++;
            *ret_a = bonds->at;
            *ret_b = fm_feature_crop_find(crop, bond->b);
            if (*ret_b != CROP_NONE) return true;
        }
    }
    return false;
}

/* -- arrays */

#define MAKE(field, n)                                                                             \
    (out->field = fm_arena_alloc_array(arena, n, sizeof *out->field),                              \
     is_made = is_made && out->field)

static fm_status make_arrays(const feature_crop *crop, fm_complex_features *out) {
    fm_arena *arena = crop->arena;
    bool is_made = true;
    uint32_t t = crop->n_token, a = crop->n_atom;
    MAKE(token_index, t);
    MAKE(residue_index, t);
    MAKE(asym_id, t);
    MAKE(entity_id, t);
    MAKE(sym_id, t);
    MAKE(restype, t);
    MAKE(frame_atom_index, t);
    MAKE(has_frame, t);
    MAKE(atom_to_token_idx, a);
    MAKE(ref_space_uid, a);
    MAKE(mol_id, a);
    MAKE(mol_atom_index, a);
    MAKE(entity_mol_id, a);
    MAKE(atom_to_tokatom_idx, a);
    MAKE(is_protein, a);
    MAKE(is_rna, a);
    MAKE(is_dna, a);
    MAKE(is_ligand, a);
    MAKE(pae_rep_atom_mask, a);
    MAKE(distogram_rep_atom_mask, a);
    MAKE(plddt_m_rep_atom_mask, a);
    MAKE(modified_res_mask, a);
    MAKE(coordinate_mask, a);
    MAKE(ref_mask, a);
    MAKE(ref_charge, a);
    MAKE(ref_element, a);
    MAKE(ref_atom_name_chars, a);
    MAKE(ref_pos, a);
    MAKE(coordinate, a);
    MAKE(resolution, 1);
    MAKE(permutation_first_atom, (size_t)crop->n_residue + 1);
    MAKE(permutation_count, crop->n_residue);
    return is_made ? FM_OK : fail_full(crop);
}

static void fill_token(const feature_crop *crop, uint32_t t, fm_complex_features *out) {
    const fm_assembly *assembly = crop->assembly;
    const fm_assembly_residue *residue =
        &assembly->residues[assembly->tokens[crop->tokens[t]].residue];
    const fm_assembly_chain *chain = &assembly->chains[residue->chain];
    out->token_index[t] = (int32_t)t;
    out->residue_index[t] = residue->number;
    out->asym_id[t] = chain->asym_id;
    out->entity_id[t] = chain->entity_id;
    out->sym_id[t] = chain->sym_id;
    out->restype[t] = residue->restype;
    for (uint32_t a = crop->first_atom[t]; a < crop->first_atom[t + 1]; a++)
        out->atom_to_token_idx[a] = (int32_t)t;
}

static void fill_names(const fm_assembly_atom *atom, uint8_t chars[4]) {
    size_t n = strnlen(atom->name, 4);
    for (size_t i = 0; i < 4; i++)
        chars[i] = (uint8_t)(i < n ? atom->name[i] - ' ' : 0);
}

static void fill_atom(const feature_crop *crop, uint32_t a, fm_complex_features *out) {
    const fm_assembly *assembly = crop->assembly;
    const fm_assembly_atom *atom = &assembly->atoms[crop->atoms[a]];
    const fm_assembly_residue *residue = &assembly->residues[atom->residue];
    const fm_assembly_chain *chain = &assembly->chains[residue->chain];
    const fm_component_atom *known = residue->component && atom->in_component >= 0
                                         ? &residue->component->atoms[atom->in_component]
                                         : NULL;
    out->ref_space_uid[a] = residue->ref_space_uid;
    out->mol_id[a] = chain->mol_id;
    out->mol_atom_index[a] = atom->mol_atom_index;
    out->entity_mol_id[a] = chain->entity_mol_id;
    out->atom_to_tokatom_idx[a] = atom->slot;
    out->is_protein[a] = chain->molecule == FM_MOLECULE_PROTEIN;
    out->is_rna[a] = chain->molecule == FM_MOLECULE_RNA;
    out->is_dna[a] = chain->molecule == FM_MOLECULE_DNA;
    out->is_ligand[a] = chain->molecule == FM_MOLECULE_LIGAND;
    out->pae_rep_atom_mask[a] = atom->is_centre;
    out->distogram_rep_atom_mask[a] = atom->is_distogram_rep;
    out->plddt_m_rep_atom_mask[a] = atom->is_plddt_rep;
    out->modified_res_mask[a] = residue->is_modified;
    out->coordinate_mask[a] = atom->is_resolved;
    out->ref_charge[a] = (int8_t)(known ? known->charge : 0);
    out->ref_element[a] = (uint8_t)(atom->element ? atom->element - 1 : ELEMENT_NONE);
    fill_names(atom, out->ref_atom_name_chars[a]);
    memcpy(out->coordinate[a], atom->position, sizeof out->coordinate[a]);
}

fm_status fm_complex_features_make(const fm_assembly *assembly, const uint32_t *tokens,
                                   uint32_t n_token, const fm_complex_feature_options *options,
                                   fm_arena *arena, fm_complex_features *ret_features,
                                   fm_error *reterr) {
    static const fm_complex_feature_options defaults = {0};
    feature_crop crop = {.assembly = assembly,
                         .options = options ? options : &defaults,
                         .arena = arena,
                         .reterr = reterr,
                         .n_token = tokens ? n_token : assembly->n_token};
    fm_complex_features out = {0};
    fm_status status = take_tokens(&crop, tokens);
    if (!status) status = take_atoms(&crop);
    if (!status) status = make_arrays(&crop, &out);
    if (status) return status;
    out.n_token = crop.n_token;
    out.n_atom = crop.n_atom;
    out.n_residue = crop.n_residue;
    out.resolution[0] = assembly->resolution;
    for (uint32_t t = 0; t < crop.n_token; t++)
        fill_token(&crop, t, &out);
    for (uint32_t a = 0; a < crop.n_atom; a++)
        fill_atom(&crop, a, &out);
    status = fm_feature_positions(&crop, &out);
    if (!status) status = fm_feature_frames(&crop, &out);
    if (!status) status = fm_feature_bond_pairs(&crop, &out);
    if (!status) status = fm_feature_permutations(&crop, &out);
    if (!status) *ret_features = out;
    return status;
}

/* -- the list */

/* Appends an array of n rows of `width` values; width 0: a vector. */
static bool list_array(fm_array *array, const char *prefix, const char *name, const char *dtype,
                       uint64_t n, uint64_t width, const void *data, fm_arena *arena) {
    size_t head = strlen(prefix), tail = strlen(name);
    char *key = fm_arena_alloc(arena, head + tail + 1);
    if (!key) return false;
    memcpy(key, prefix, head);
    memcpy(key + head, name, tail + 1);
    *array = (fm_array){
        .key = key, .dtype = dtype, .rank = width ? 2 : 1, .shape = {n, width}, .data = data};
    return true;
}

fm_status fm_complex_features_list(const fm_complex_features *f, const char *prefix,
                                   fm_arena *arena, fm_array ret_arrays[FM_COMPLEX_FEATURE_ARRAYS],
                                   size_t *ret_n, fm_error *reterr) {
    uint64_t t = f->n_token, a = f->n_atom, r = f->n_residue;
    const struct {
        const char *name, *dtype;
        uint64_t n, width;
        const void *data;
    } rows[] = {
        {"token_index", "<i4", t, 0, f->token_index},
        {"residue_index", "<i4", t, 0, f->residue_index},
        {"asym_id", "<i4", t, 0, f->asym_id},
        {"entity_id", "<i4", t, 0, f->entity_id},
        {"sym_id", "<i4", t, 0, f->sym_id},
        {"restype", "|u1", t, 0, f->restype},
        {"frame_atom_index", "<i4", t, 3, f->frame_atom_index},
        {"has_frame", "|u1", t, 0, f->has_frame},
        {"atom_to_token_idx", "<i4", a, 0, f->atom_to_token_idx},
        {"atom_to_tokatom_idx", "|u1", a, 0, f->atom_to_tokatom_idx},
        {"ref_space_uid", "<i4", a, 0, f->ref_space_uid},
        {"mol_id", "<i4", a, 0, f->mol_id},
        {"mol_atom_index", "<i4", a, 0, f->mol_atom_index},
        {"entity_mol_id", "<i4", a, 0, f->entity_mol_id},
        {"is_protein", "|u1", a, 0, f->is_protein},
        {"is_rna", "|u1", a, 0, f->is_rna},
        {"is_dna", "|u1", a, 0, f->is_dna},
        {"is_ligand", "|u1", a, 0, f->is_ligand},
        {"pae_rep_atom_mask", "|u1", a, 0, f->pae_rep_atom_mask},
        {"distogram_rep_atom_mask", "|u1", a, 0, f->distogram_rep_atom_mask},
        {"plddt_m_rep_atom_mask", "|u1", a, 0, f->plddt_m_rep_atom_mask},
        {"modified_res_mask", "|u1", a, 0, f->modified_res_mask},
        {"coordinate_mask", "|u1", a, 0, f->coordinate_mask},
        {"coordinate", "<f4", a, 3, f->coordinate},
        {"ref_mask", "|u1", a, 0, f->ref_mask},
        {"ref_charge", "|i1", a, 0, f->ref_charge},
        {"ref_element", "|u1", a, 0, f->ref_element},
        {"ref_atom_name_chars", "|u1", a, 4, f->ref_atom_name_chars},
        {"ref_pos", "<f4", a, 3, f->ref_pos},
        {"resolution", "<f4", 1, 0, f->resolution},
        {"token_bonds_pairs", "<i4", f->n_token_bond, 2, f->token_bonds},
        {"bond_mask_pairs", "<i4", f->n_bond_mask, 2, f->bond_mask},
        {"atom_perm/first_atom", "<i4", r + 1, 0, f->permutation_first_atom},
        {"atom_perm/count", "<i4", r, 0, f->permutation_count},
        {"atom_perm/data", "<i2", f->n_permuted, 0, f->permutations},
    };
    const size_t n = sizeof rows / sizeof rows[0];
    static_assert(sizeof rows / sizeof rows[0] == FM_COMPLEX_FEATURE_ARRAYS, "one row for each");
    for (size_t i = 0; i < n; i++) {
        if (!list_array(&ret_arrays[i], prefix, rows[i].name, rows[i].dtype, rows[i].n,
                        rows[i].width, rows[i].data, arena)) {
            return fm_arena_full(arena, reterr);
        }
    }
    *ret_n = n;
    return FM_OK;
}
