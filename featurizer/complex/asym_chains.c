/* asym_chains.c: entities, chains and sequences of an asymmetric unit; see asym.h. */
#include "featurizer/complex/asym.h"
#include "featurizer/parse/decimal.h"
#include "featurizer/parse/mmcif_util.h"

#include <strings.h>

enum { POLY_ENTITY, POLY_TYPE };
enum { SEQ_ENTITY, SEQ_NUMBER, SEQ_COMPONENT };

/* -- entities */

static uint8_t polymer_of(const fm_asym *asym, fm_cif_view type) {
    static const struct {
        const char *name;
        uint8_t polymer;
    } types[] = {
        {"polypeptide(L)", FM_POLYMER_PEPTIDE_L},
        {"polypeptide(D)", FM_POLYMER_PEPTIDE_D},
        {"polyribonucleotide", FM_POLYMER_RNA},
        {"polydeoxyribonucleotide", FM_POLYMER_DNA},
        {"polydeoxyribonucleotide/polyribonucleotide hybrid", FM_POLYMER_HYBRID},
        {"peptide nucleic acid", FM_POLYMER_PEPTIDE_NUCLEIC},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strlen(types[i].name) != fm_cif_size(type)) continue;
        if (strncasecmp((const char *)fm_cif_text(&asym->cif, type), types[i].name,
                        fm_cif_size(type)) == 0) {
            return types[i].polymer;
        }
    }
    return FM_POLYMER_OTHER;
}

/* Polymers come first, in the order of _entity_poly; the others follow with their first atoms. */
static fm_status list_polymers(fm_asym *asym, fm_mmcif_map *by_id) {
    const fm_cif_table *poly = &asym->tables[ASYM_TABLE_ENTITY_POLY];
    for (uint32_t i = 0; i < poly->n_row; i++) {
        fm_cif_view id = fm_cif_table_at(poly, i, POLY_ENTITY);
        uint32_t *number = fm_mmcif_map_at(by_id, id);
        if (*number != MMCIF_NONE) {
            return fm_asym_fail(asym, FM_ERR_DATA, id.start,
                                "_entity_poly has the entity '%.*s' a second time",
                                FM_ASYM_SHOW(asym, id));
        }
        *number = asym->n_entity;
        asym->entities[asym->n_entity++] =
            (fm_asym_entity){.id = id,
                             .polymer = polymer_of(asym, fm_cif_table_at(poly, i, POLY_TYPE)),
                             .is_polymer = true};
    }
    return FM_OK;
}

/* Returns the entity of a chain: that of its atoms, or of _struct_asym where atoms name none. */
static fm_cif_view entity_of(const fm_asym *asym, const fm_asym_residue *residue,
                             const fm_mmcif_map *asyms) {
    fm_cif_view id = residue->key[ASYM_KEY_ENTITY];
    if (fm_cif_size(id) && !fm_cif_is_unset(&asym->cif, id)) return id;
    uint32_t row = fm_mmcif_map_get(asyms, residue->key[ASYM_KEY_LABEL_ASYM]);
    return row == MMCIF_NONE ? (fm_cif_view){0, 0}
                             : fm_cif_table_at(&asym->tables[ASYM_TABLE_STRUCT_ASYM], row, 1);
}

/* -- chains */

typedef struct chain_maps {
    fm_mmcif_map entities, labels, authors, asyms;
} chain_maps;

static fm_status init_maps(fm_asym *asym, chain_maps *maps) {
    const fm_cif_table *struct_asym = &asym->tables[ASYM_TABLE_STRUCT_ASYM];
    uint32_t n_entity = asym->tables[ASYM_TABLE_ENTITY_POLY].n_row + asym->n_residue;
    fm_mmcif_map *all[] = {&maps->entities, &maps->labels, &maps->authors, &maps->asyms};
    const uint32_t n[] = {n_entity, asym->n_residue, asym->n_residue, struct_asym->n_row};
    for (uint32_t i = 0; i < 4; i++) {
        fm_status status = fm_mmcif_map_init(all[i], &asym->cif, asym->arena, n[i], asym->reterr);
        if (status) return status;
    }
    for (uint32_t i = 0; i < struct_asym->n_row; i++)
        *fm_mmcif_map_at(&maps->asyms, fm_cif_table_at(struct_asym, i, 0)) = i;
    asym->entities = fm_arena_alloc_array(asym->arena, n_entity, sizeof *asym->entities);
    asym->chains = fm_arena_alloc_array(asym->arena, asym->n_residue, sizeof *asym->chains);
    return asym->entities && asym->chains ? FM_OK : fm_asym_full(asym);
}

static fm_status open_chain(fm_asym *asym, chain_maps *maps, uint32_t i) {
    fm_asym_residue *residue = &asym->residues[i];
    fm_cif_view label = residue->key[ASYM_KEY_LABEL_ASYM];
    uint32_t *number = fm_mmcif_map_at(&maps->labels, label);
    if (*number != MMCIF_NONE) {
        return fm_asym_fail(asym, FM_ERR_DATA, label.start,
                            "atoms of label_asym_id '%.*s' continue after those of another chain",
                            FM_ASYM_SHOW(asym, label));
    }
    fm_cif_view id = entity_of(asym, residue, &maps->asyms);
    if (!fm_cif_size(id)) {
        return fm_asym_fail(asym, FM_ERR_DATA, label.start,
                            "the file does not say which entity chain '%.*s' is",
                            FM_ASYM_SHOW(asym, label));
    }
    uint32_t *entity = fm_mmcif_map_at(&maps->entities, id);
    if (*entity == MMCIF_NONE) {
        *entity = asym->n_entity;
        asym->entities[asym->n_entity++] = (fm_asym_entity){.id = id};
    }
    fm_cif_view seq = residue->key[ASYM_KEY_LABEL_SEQ], author = residue->key[ASYM_KEY_AUTH_ASYM];
    bool is_ligand = !fm_cif_size(seq) || fm_cif_is_unset(&asym->cif, seq);
    if (asym->is_prediction) is_ligand = !asym->entities[*entity].is_polymer;
    if (asym->has_numbered_ligands) is_ligand |= !asym->entities[*entity].is_polymer;
    if (!is_ligand && !asym->entities[*entity].is_polymer) {
        return fm_asym_fail(asym, FM_ERR_DATA, seq.start,
                            "chain '%.*s' has label_seq_id, but _entity_poly does not have its "
                            "entity '%.*s'",
                            FM_ASYM_SHOW(asym, label), FM_ASYM_SHOW(asym, id));
    }
    if (is_ligand && asym->entities[*entity].is_polymer && !asym->compat) {
        return fm_asym_fail(asym, FM_ERR_DATA, fm_cif_size(seq) ? seq.start : label.start,
                            "chain '%.*s' has no label_seq_id, but its entity '%.*s' is in "
                            "_entity_poly, expected numbers of _entity_poly_seq",
                            FM_ASYM_SHOW(asym, label), FM_ASYM_SHOW(asym, id));
    }
    *number = asym->n_chain;
    asym->chains[asym->n_chain++] = (fm_asym_chain){.label = label,
                                                    .author = fm_cif_size(author) ? author : label,
                                                    .entity = *entity,
                                                    .is_ligand = is_ligand};
    return FM_OK;
}

/* The author's chain and number, which the reference links polymers by. */
static fm_status read_author(fm_asym *asym, chain_maps *maps, fm_asym_residue *residue) {
    fm_cif_view chain = residue->key[ASYM_KEY_AUTH_ASYM], seq = residue->key[ASYM_KEY_AUTH_SEQ];
    uint32_t *number = fm_mmcif_map_at(
        &maps->authors, fm_cif_size(chain) ? chain : residue->key[ASYM_KEY_LABEL_ASYM]);
    if (*number == MMCIF_NONE) *number = residue->label;
    residue->link = *number;
    residue->number = -1;
    if (!fm_cif_size(seq)) seq = residue->key[ASYM_KEY_LABEL_SEQ];
    if (!fm_cif_size(seq) || fm_cif_is_unset(&asym->cif, seq)) return FM_OK;
    if (fm_integer_parse(fm_cif_text(&asym->cif, seq), fm_cif_size(seq), &residue->number)) {
        return FM_OK;
    }
    return fm_asym_fail(asym, FM_ERR_FORMAT, seq.start,
                        "_atom_site.auth_seq_id is '%.*s', expected an integer",
                        FM_ASYM_SHOW(asym, seq));
}

fm_status fm_asym_find_chains(fm_asym *asym) {
    chain_maps maps;
    fm_status status = init_maps(asym, &maps);
    if (!status) status = list_polymers(asym, &maps.entities);
    for (uint32_t i = 0; i < asym->n_residue && !status; i++) {
        fm_asym_residue *residue = &asym->residues[i];
        bool is_new = i == 0 || !fm_mmcif_same(&asym->cif, residue->key[ASYM_KEY_LABEL_ASYM],
                                               asym->residues[i - 1].key[ASYM_KEY_LABEL_ASYM]);
        if (is_new) status = open_chain(asym, &maps, i);
        residue->label = asym->n_chain - 1;
        if (!status && asym->compat) status = read_author(asym, &maps, residue);
    }
    return status;
}

fm_status fm_asym_relabel(fm_asym *asym) {
    for (uint32_t i = 0; i < asym->n_residue; i++) {
        fm_asym_residue *residue = &asym->residues[i];
        residue->link = residue->label;
        bool is_first = i == 0 || asym->residues[i - 1].label != residue->label;
        if (asym->chains[residue->label].is_ligand) {
            residue->number = is_first ? 1 : asym->residues[i - 1].number + 1;
            continue;
        }
        fm_cif_view seq = residue->key[ASYM_KEY_LABEL_SEQ];
        int32_t number = 0;
        if (!fm_integer_parse(fm_cif_text(&asym->cif, seq), fm_cif_size(seq), &number)) {
            return fm_asym_fail(asym, FM_ERR_FORMAT, seq.start,
                                "_atom_site.label_seq_id is '%.*s', expected an integer",
                                FM_ASYM_SHOW(asym, seq));
        }
        residue->number = number;
        if (!is_first && number < asym->residues[i - 1].number) {
            return fm_asym_fail(asym, FM_ERR_DATA, seq.start,
                                "residue %d follows residue %d in its chain, expected numbers "
                                "that do not go down",
                                number, asym->residues[i - 1].number);
        }
    }
    return FM_OK;
}

/* -- sequences */

static fm_status read_component_name(fm_asym *asym, fm_cif_view view, char name[FM_COMPONENT_ID]) {
    size_t size = fm_cif_size(view);
    if (size == 0 || size >= FM_COMPONENT_ID) {
        return fm_asym_fail(asym, FM_ERR_LIMIT, view.start,
                            "found '%.*s', expected a component of 1 to %d letters",
                            FM_ASYM_SHOW(asym, view), FM_COMPONENT_ID - 1);
    }
    memset(name, 0, FM_COMPONENT_ID);
    memcpy(name, fm_cif_text(&asym->cif, view), size);
    if (fm_asym_is_name(name, "MSE")) memcpy(name, "MET", 4);
    return FM_OK;
}

/* Takes one row of _entity_poly_seq. Several rows with one number are alternatives, of which the
 * first is taken for now. */
static fm_status take_monomer(fm_asym *asym, fm_asym_entity *entity, uint32_t row) {
    const fm_cif_table *seq = &asym->tables[ASYM_TABLE_ENTITY_POLY_SEQ];
    fm_cif_view view = fm_cif_table_at(seq, row, SEQ_NUMBER);
    int32_t number = 0;
    bool is_number = fm_integer_parse(fm_cif_text(&asym->cif, view), fm_cif_size(view), &number);
    if (is_number && number > 0 && (uint32_t)number == entity->n_number) return FM_OK;
    if (!is_number || number <= 0 || (uint32_t)number != entity->n_number + 1) {
        return fm_asym_fail(asym, FM_ERR_DATA, view.start,
                            "_entity_poly_seq.num is '%.*s', expected %u%s",
                            FM_ASYM_SHOW(asym, view), entity->n_number ? entity->n_number : 1,
                            entity->n_number ? " or its successor" : "");
    }
    fm_status status = read_component_name(asym, fm_cif_table_at(seq, row, SEQ_COMPONENT),
                                           entity->names[entity->n_number]);
    entity->first_row[entity->n_number++] = row;
    return status;
}

/* Counts each entity's rows and gives it room for them. */
static fm_status open_sequences(fm_asym *asym, fm_mmcif_map *by_id, uint32_t *entity_of_row) {
    const fm_cif_table *seq = &asym->tables[ASYM_TABLE_ENTITY_POLY_SEQ];
    uint32_t *n = fm_arena_calloc(asym->arena, asym->n_entity + 1, sizeof *n);
    if (!n) return fm_asym_full(asym);
    for (uint32_t i = 0; i < asym->n_entity; i++)
        *fm_mmcif_map_at(by_id, asym->entities[i].id) = i;
    for (uint32_t row = 0; row < seq->n_row; row++) {
        entity_of_row[row] = fm_mmcif_map_get(by_id, fm_cif_table_at(seq, row, SEQ_ENTITY));
        if (entity_of_row[row] != MMCIF_NONE) n[entity_of_row[row]]++;
    }
    for (uint32_t i = 0; i < asym->n_entity; i++) {
        fm_asym_entity *entity = &asym->entities[i];
        entity->names = fm_arena_alloc_array(asym->arena, n[i], sizeof *entity->names);
        entity->components = fm_arena_calloc(asym->arena, n[i], sizeof *entity->components);
        entity->first_row = fm_arena_alloc_array(asym->arena, n[i] + 1, sizeof(uint32_t));
        if (!entity->names || !entity->components || !entity->first_row) return fm_asym_full(asym);
    }
    return FM_OK;
}

/* Where a number has several components, the one that the atoms have is taken; the last chain of
 * the entity decides. */
static fm_status choose_monomers(fm_asym *asym, const uint32_t *entity_of_row) {
    const fm_cif_table *seq = &asym->tables[ASYM_TABLE_ENTITY_POLY_SEQ];
    for (uint32_t i = 0; i < asym->n_residue; i++) {
        const fm_asym_residue *residue = &asym->residues[i];
        const fm_asym_chain *chain = &asym->chains[residue->label];
        uint32_t number = (uint32_t)residue->number;
        fm_asym_entity *entity = &asym->entities[chain->entity];
        if (chain->is_ligand || number == 0 || number > entity->n_number) continue;
        uint32_t row = entity->first_row[number - 1];
        for (uint32_t k = 0; row < seq->n_row && k < FM_LIMIT_ALTERNATIVE; row++, k++) {
            if (entity_of_row[row] != chain->entity ||
                !fm_mmcif_same(&asym->cif, fm_cif_table_at(seq, row, SEQ_NUMBER),
                               fm_cif_table_at(seq, entity->first_row[number - 1], SEQ_NUMBER))) {
                break;
            }
            char name[FM_COMPONENT_ID];
            fm_status status =
                read_component_name(asym, fm_cif_table_at(seq, row, SEQ_COMPONENT), name);
            if (status) return status;
            if (!fm_asym_same_name(name, residue->name)) continue;
            memcpy(entity->names[number - 1], name, sizeof name);
        }
    }
    return FM_OK;
}

static fm_status name_sequences(fm_asym *asym) {
    for (uint32_t i = 0; i < asym->n_entity; i++) {
        fm_asym_entity *entity = &asym->entities[i];
        if (!entity->is_polymer) continue;
        char *sequence = fm_arena_alloc(asym->arena, (size_t)entity->n_number + 1);
        if (!sequence) return fm_asym_full(asym);
        for (uint32_t k = 0; k < entity->n_number; k++) {
            const fm_component *component = fm_components_find(asym->components, entity->names[k]);
            entity->components[k] = component;
            sequence[k] = component && component->one_letter ? component->one_letter : 'X';
        }
        sequence[entity->n_number] = '\0';
        entity->sequence = sequence;
    }
    return FM_OK;
}

fm_status fm_asym_read_sequences(fm_asym *asym) {
    const fm_cif_table *seq = &asym->tables[ASYM_TABLE_ENTITY_POLY_SEQ];
    uint32_t *entity_of_row = fm_arena_alloc_array(asym->arena, seq->n_row, sizeof *entity_of_row);
    if (!entity_of_row) return fm_asym_full(asym);
    fm_mmcif_map by_id;
    fm_status status =
        fm_mmcif_map_init(&by_id, &asym->cif, asym->arena, asym->n_entity, asym->reterr);
    if (!status) status = open_sequences(asym, &by_id, entity_of_row);
    for (uint32_t row = 0; row < seq->n_row && !status; row++) {
        if (entity_of_row[row] == MMCIF_NONE) continue;
        fm_asym_entity *entity = &asym->entities[entity_of_row[row]];
        if (entity->is_polymer) status = take_monomer(asym, entity, row);
    }
    if (!status) status = choose_monomers(asym, entity_of_row);
    return status ? status : name_sequences(asym);
}
