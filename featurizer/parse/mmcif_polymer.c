/* mmcif_polymer.c: finds the protein chains and their monomers; see mmcif_internal.h.
 *
 * _entity_poly_seq lists the monomers of each polymer entity, _chem_comp gives the type of each
 * component, and _struct_asym lists the chains (label_asym_id) of each entity. An entity is protein
 * when the type of any of its monomers contains "peptide". */
#include "featurizer/parse/mmcif_internal.h"

#include "featurizer/parse/decimal.h"
#include "proto/chem/residue.h"

#include <string.h>
#include <strings.h>

typedef struct poly_entity {
    uint32_t first_monomer, n_monomer; /* range in comps and nums below */
    uint32_t first_chain, n_chain;     /* range in chains below */
    bool is_protein;
} poly_entity;

typedef struct entity_table {
    uint32_t n, n_monomer, n_chain;
    poly_entity *all;
    fm_mmcif_map by_id;
    fm_cif_view *comps;  /* [n_monomer] grouped by entity, within one in file order */
    int32_t *nums;       /* [n_monomer] */
    fm_cif_view *chains; /* [n_chain] label ids, grouped likewise */
} entity_table;

/* Checks that all or none of a category's columns are given and that they are equally long. */
static fm_status check_category(fm_mmcif_scan *scan, const char *name,
                                const fm_mmcif_column *columns, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        const fm_mmcif_list *first = &scan->columns[columns[0]],
                            *other = &scan->columns[columns[i]];
        if (first->is_given == other->is_given && first->n == other->n) continue;
        const fm_mmcif_list *longer = first->n > other->n ? first : other;
        uint32_t place = longer->n > 0 ? longer->views[longer->n - 1].start : 0;
        return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_DATA, place,
                           "the columns of %s do not have the same number of values", name);
    }
    return FM_OK;
}

static fm_status fail_full(fm_mmcif_scan *scan) {
    return fm_arena_full(scan->arena, scan->reterr);
}

/* Numbers the entities in the order of their first monomers and counts the monomers. */
static fm_status count_monomers(fm_mmcif_scan *scan, entity_table *out) {
    const fm_mmcif_list *ids = &scan->columns[COLUMN_POLY_ENTITY];
    fm_status status =
        fm_mmcif_map_init(&out->by_id, &scan->cif, scan->arena, ids->n, scan->reterr);
    if (status) return status;
    out->all = fm_arena_calloc(scan->arena, ids->n, sizeof *out->all);
    if (!out->all) return fail_full(scan);
    uint32_t last = MMCIF_NONE;
    for (uint32_t i = 0; i < ids->n; i++) {
        if (i == 0 || !fm_mmcif_same(&scan->cif, ids->views[i], ids->views[i - 1])) {
            uint32_t *number = fm_mmcif_map_at(&out->by_id, ids->views[i]);
            if (*number == MMCIF_NONE) *number = out->n++;
            last = *number;
        }
        out->all[last].n_monomer++;
    }
    return FM_OK;
}

static fm_status group_monomers(fm_mmcif_scan *scan, entity_table *out) {
    const fm_mmcif_list *ids = &scan->columns[COLUMN_POLY_ENTITY];
    fm_status status = count_monomers(scan, out);
    if (status) return status;
    out->n_monomer = ids->n;
    out->comps = fm_arena_alloc_array(scan->arena, ids->n, sizeof *out->comps);
    out->nums = fm_arena_alloc_array(scan->arena, ids->n, sizeof *out->nums);
    if (!out->comps || !out->nums) return fail_full(scan);
    uint32_t at = 0;
    for (uint32_t i = 0; i < out->n; i++) {
        out->all[i].first_monomer = at;
        at += out->all[i].n_monomer;
        out->all[i].n_monomer = 0; /* counted again while filling */
    }
    for (uint32_t i = 0; i < ids->n; i++) {
        poly_entity *entity = &out->all[fm_mmcif_map_get(&out->by_id, ids->views[i])];
        uint32_t place = entity->first_monomer + entity->n_monomer++;
        fm_cif_view num = scan->columns[COLUMN_POLY_NUM].views[i];
        out->comps[place] = scan->columns[COLUMN_POLY_COMP].views[i];
        if (!fm_integer_parse(fm_cif_text(&scan->cif, num), fm_cif_size(num), &out->nums[place])) {
            return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_FORMAT, num.start,
                               "_entity_poly_seq.num is '%.*s', expected an integer",
                               MMCIF_SHOW(scan, num));
        }
    }
    return FM_OK;
}

/* Returns whether a type contains "peptide"; only the reference distinguishes case. */
static bool is_peptide(const fm_cif *cif, fm_cif_view type) {
    static const char word[] = "peptide";
    const size_t size = sizeof word - 1;
    const char *text = (const char *)fm_cif_text(cif, type);
    for (size_t i = 0; i + size <= fm_cif_size(type); i++) {
        int differs =
            cif->compat_openfold ? memcmp(text + i, word, size) : strncasecmp(text + i, word, size);
        if (!differs) return true;
    }
    return false;
}

/* Returns whether a component without an entry in _chem_comp is one of the 20 amino acids, which
 * need no entry. */
static bool is_amino_acid(const fm_cif *cif, fm_cif_view comp) {
    if (fm_cif_size(comp) != 3) return false;
    for (uint32_t i = 0; i < FM_N_RESTYPE; i++) {
        if (memcmp(fm_cif_text(cif, comp), fm_restype_names[i], 3) == 0) return true;
    }
    return false;
}

static fm_status mark_proteins(fm_mmcif_scan *scan, entity_table *out) {
    const fm_cif *cif = &scan->cif;
    const fm_mmcif_list *ids = &scan->columns[COLUMN_COMP_ID];
    const fm_mmcif_list *types = &scan->columns[COLUMN_COMP_TYPE];
    fm_mmcif_map peptides;
    fm_status status = fm_mmcif_map_init(&peptides, cif, scan->arena, ids->n, scan->reterr);
    if (status) return status;
    for (uint32_t i = 0; i < ids->n; i++) {
        bool known =
            types->n == ids->n && (cif->compat_openfold || !fm_cif_is_unset(cif, types->views[i]));
        *fm_mmcif_map_at(&peptides, ids->views[i]) =
            known ? is_peptide(cif, types->views[i]) : is_amino_acid(cif, ids->views[i]);
    }
    for (uint32_t e = 0; e < out->n; e++) {
        poly_entity *entity = &out->all[e];
        for (uint32_t i = 0; i < entity->n_monomer; i++) {
            fm_cif_view comp = out->comps[entity->first_monomer + i];
            uint32_t known = fm_mmcif_map_get(&peptides, comp);
            if (known == MMCIF_NONE && cif->compat_openfold) {
                return fm_cif_fail(cif, scan->reterr, FM_ERR_DATA, comp.start,
                                   "component '%.*s' is not in _chem_comp", MMCIF_SHOW(scan, comp));
            }
            entity->is_protein |= known == MMCIF_NONE ? is_amino_acid(cif, comp) : known == 1;
        }
    }
    return FM_OK;
}

static fm_status group_chains(fm_mmcif_scan *scan, entity_table *out) {
    const fm_mmcif_list *ids = &scan->columns[COLUMN_ASYM_ID];
    const fm_mmcif_list *owners = &scan->columns[COLUMN_ASYM_ENTITY];
    out->chains = fm_arena_alloc_array(scan->arena, ids->n, sizeof *out->chains);
    if (!out->chains) return fail_full(scan);
    for (uint32_t i = 0; i < ids->n; i++) {
        uint32_t e = fm_mmcif_map_get(&out->by_id, owners->views[i]);
        if (e != MMCIF_NONE) out->all[e].n_chain++;
    }
    for (uint32_t e = 0; e < out->n; e++) {
        out->all[e].first_chain = out->n_chain;
        out->n_chain += out->all[e].n_chain;
        out->all[e].n_chain = 0; /* counted again while filling */
    }
    for (uint32_t i = 0; i < ids->n; i++) {
        uint32_t e = fm_mmcif_map_get(&out->by_id, owners->views[i]);
        if (e == MMCIF_NONE) continue;
        out->chains[out->all[e].first_chain + out->all[e].n_chain++] = ids->views[i];
    }
    return FM_OK;
}

/* Adds a chain. A chain named twice is an error; in the reference the later entity replaces the
 * first. */
static fm_status add_polymer(fm_mmcif_scan *scan, const entity_table *entities,
                             const poly_entity *entity, fm_cif_view label,
                             fm_mmcif_polymers *polymers) {
    uint32_t *number = fm_mmcif_map_at(&polymers->by_label, label);
    if (*number == MMCIF_NONE) {
        *number = polymers->n++;
    } else if (!scan->cif.compat_openfold) {
        return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_DATA, label.start,
                           "chain '%.*s' occurs twice in _struct_asym", MMCIF_SHOW(scan, label));
    }
    polymers->all[*number] = (fm_mmcif_polymer){
        .label = label,
        .n_monomer = entity->n_monomer,
        .comps = entities->comps + entity->first_monomer,
        .nums = entities->nums + entity->first_monomer,
        .first_run = MMCIF_NONE,
        .last_run = MMCIF_NONE,
    };
    return FM_OK;
}

static fm_status list_polymers(fm_mmcif_scan *scan, const entity_table *entities,
                               fm_mmcif_polymers *polymers) {
    fm_status status = fm_mmcif_map_init(&polymers->by_label, &scan->cif, scan->arena,
                                         entities->n_chain, scan->reterr);
    if (status) return status;
    polymers->all = fm_arena_alloc_array(scan->arena, entities->n_chain, sizeof *polymers->all);
    if (!polymers->all) return fail_full(scan);
    for (uint32_t e = 0; e < entities->n; e++) {
        const poly_entity *entity = &entities->all[e];
        if (!entity->is_protein) continue;
        for (uint32_t i = 0; i < entity->n_chain; i++) {
            fm_cif_view label = entities->chains[entity->first_chain + i];
            status = add_polymer(scan, entities, entity, label, polymers);
            if (status) return status;
        }
    }
    return FM_OK;
}

fm_status fm_mmcif_find_polymers(fm_mmcif_scan *scan, fm_mmcif_polymers *ret_polymers) {
    static const fm_mmcif_column poly[] = {COLUMN_POLY_ENTITY, COLUMN_POLY_NUM, COLUMN_POLY_COMP};
    static const fm_mmcif_column asym[] = {COLUMN_ASYM_ID, COLUMN_ASYM_ENTITY};
    static const fm_mmcif_column comp[] = {COLUMN_COMP_ID, COLUMN_COMP_TYPE};
    entity_table entities = {0};
    fm_mmcif_polymers polymers = {0};
    fm_status status = check_category(scan, "_entity_poly_seq", poly, 3);
    if (!status) status = check_category(scan, "_struct_asym", asym, 2);
    if (!status && scan->cif.compat_openfold) status = check_category(scan, "_chem_comp", comp, 2);
    if (!status) status = group_monomers(scan, &entities);
    if (!status) status = mark_proteins(scan, &entities);
    if (!status) status = group_chains(scan, &entities);
    if (!status) status = list_polymers(scan, &entities, &polymers);
    if (status) return status;
    if (!scan->columns[COLUMN_POLY_ENTITY].is_given && !scan->cif.compat_openfold) {
        return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_DATA, 0,
                           "the file has no _entity_poly_seq, which says the sequences of its "
                           "chains; programs that write models leave it out; take the PDB's file, "
                           "or add the sequences, for example with gemmi");
    }
    if (polymers.n == 0) {
        return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_NOT_FOUND, 0,
                           "the file has no protein chain (_entity_poly_seq, _chem_comp and "
                           "_struct_asym name none)");
    }
    *ret_polymers = polymers;
    return FM_OK;
}
