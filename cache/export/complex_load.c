/* complex_load.c: see complex_load.h. */
#include "cache/export/complex_load.h"

#include "cache/store/store_open.h"
#include "featurizer/complex/components_code.h"

#include <stdlib.h>
#include <string.h>

/* Address space for the sets of components of a store. */
#define ARENA_BYTES ((size_t)16 << 30)

struct fm_complex_reader {
    const fm_store *store;
    fm_arena arena;
    uint32_t n_set;
    fm_components *sets; /* [n_set] in the order of the index */
};

static fm_status read_sets(fm_complex_reader *reader, fm_error *reterr) {
    const fm_generation *generation = &reader->store->generation;
    uint32_t n = 0;
    for (uint32_t i = 0; i < generation->n_blob; i++)
        n += generation->blob[i].kind == FM_PART_COMPONENTS;
    reader->sets = fm_arena_alloc_array(&reader->arena, n, sizeof *reader->sets);
    if (!reader->sets) return fm_arena_full(&reader->arena, reterr);
    for (uint32_t i = 0; i < generation->n_blob; i++) {
        fm_bytes form = {0};
        if (generation->blob[i].kind != FM_PART_COMPONENTS) continue;
        fm_status status = fm_store_read_blob(reader->store, i, &reader->arena, &form, reterr);
        if (!status) {
            status =
                fm_components_decode(form, &reader->arena, &reader->sets[reader->n_set++], reterr);
        }
        if (status) return status;
    }
    return FM_OK;
}

fm_status fm_complex_reader_create(const fm_store *store, fm_complex_reader **ret_reader,
                                   fm_error *reterr) {
    fm_complex_reader *reader = calloc(1, sizeof *reader);
    if (!reader) return fm_fail(reterr, FM_ERR_NOMEM, "no memory to read complexes");
    reader->store = store;
    fm_status status = fm_arena_init(&reader->arena, ARENA_BYTES, reterr);
    if (!status) status = read_sets(reader, reterr);
    if (status) {
        fm_complex_reader_destroy(reader);
        return status;
    }
    *ret_reader = reader;
    return FM_OK;
}

void fm_complex_reader_destroy(fm_complex_reader *reader) {
    if (!reader) return;
    fm_arena_fini(&reader->arena);
    free(reader);
}

const fm_components *fm_complex_reader_components(const fm_complex_reader *reader,
                                                  const fm_sha256 *hash) {
    for (uint32_t i = 0; i < reader->n_set; i++)
        if (memcmp(&reader->sets[i].hash, hash, sizeof *hash) == 0) return &reader->sets[i];
    return NULL;
}

/* -- parts */

static fm_status load_assembly(const fm_complex_reader *reader, uint32_t item, fm_arena *arena,
                               fm_assembly *ret_assembly, fm_error *reterr) {
    fm_part_assembly part;
    fm_status status = fm_store_load_assembly(reader->store, item, arena, &part, reterr);
    if (status) return status;
    const fm_components *components = fm_complex_reader_components(reader, &part.components);
    if (!components) {
        char hex[FM_SHA256_HEX];
        fm_sha256_format(&part.components, hex);
        return fm_fail(reterr, FM_ERR_CORRUPT, "the set of components %s is not in the cache", hex);
    }
    return fm_assembly_unpack(&part, components, arena, ret_assembly, reterr);
}

/* Loads the rows with that identity; NULL for zeros. */
static fm_status load_rows(const fm_complex_reader *reader, const fm_sha256 *identity,
                           const fm_assembly_entity *entity, fm_arena *arena,
                           const fm_sequence_rows **ret_rows, fm_error *reterr) {
    fm_part_msa msa;
    *ret_rows = NULL;
    if (!fm_entity_has_part(identity)) return FM_OK;
    fm_status status = fm_store_load_msa(reader->store, identity, arena, &msa, reterr);
    if (status) return status;
    if (msa.n_res != entity->n_residue) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "entity %s has %u residues, and its rows %u",
                       entity->id, entity->n_residue, msa.n_res);
    }
    fm_sequence_rows *rows = fm_arena_alloc(arena, sizeof *rows);
    if (!rows) return fm_arena_full(arena, reterr);
    *ret_rows = rows;
    return fm_sequence_rows_of_msa(&msa, (fm_polymer)entity->polymer, arena, rows, reterr);
}

static fm_status load_entity(const fm_complex_reader *reader, const fm_part_entity_inputs *inputs,
                             const fm_assembly_entity *entity, fm_arena *arena,
                             fm_complex_entity *ret_entity, fm_error *reterr) {
    bool is_one = memcmp(&inputs->paired, &inputs->unpaired, sizeof inputs->paired) == 0;
    fm_status status =
        load_rows(reader, &inputs->unpaired, entity, arena, &ret_entity->unpaired, reterr);
    ret_entity->paired = ret_entity->unpaired;
    if (!status && !is_one) {
        status = load_rows(reader, &inputs->paired, entity, arena, &ret_entity->paired, reterr);
    }
    if (status || !fm_entity_has_part(&inputs->hits)) return status;
    fm_part_hits *hits = fm_arena_alloc(arena, sizeof *hits);
    if (!hits) return fm_arena_full(arena, reterr);
    status = fm_store_load_hits_part(reader->store, &inputs->hits, arena, hits, reterr);
    if (!status && hits->n_res != entity->n_residue) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "entity %s has %u residues, and its hits %u",
                       entity->id, entity->n_residue, hits->n_res);
    }
    ret_entity->hits = hits;
    return status;
}

fm_status fm_complex_load_assembly(const fm_complex_reader *reader, uint32_t item, fm_arena *arena,
                                   fm_assembly *ret_assembly, fm_error *reterr) {
    fm_status status = load_assembly(reader, item, arena, ret_assembly, reterr);
    if (status && reterr) fm_error_in(reterr, fm_store_chain_name(reader->store, item));
    return status;
}

fm_status fm_complex_load(const fm_complex_reader *reader, uint32_t item, fm_arena *arena,
                          fm_complex *ret_complex, fm_error *reterr) {
    fm_complex loaded = {.name = fm_store_chain_name(reader->store, item)};
    fm_part_entities part;
    fm_status status = load_assembly(reader, item, arena, &loaded.assembly, reterr);
    if (!status) status = fm_store_load_entities(reader->store, item, arena, &part, reterr);
    if (!status && part.n_entity != loaded.assembly.n_entity) {
        status = fm_fail(reterr, FM_ERR_CORRUPT, "the assembly has %u entities, not %u",
                         loaded.assembly.n_entity, part.n_entity);
    }
    fm_complex_entity *entities =
        status ? NULL : fm_arena_calloc(arena, part.n_entity, sizeof *entities);
    if (!status && !entities) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; !status && i < part.n_entity; i++)
        status = load_entity(reader, &part.inputs[i], &loaded.assembly.entities[i], arena,
                             &entities[i], reterr);
    if (status) return reterr ? fm_error_in(reterr, loaded.name) : status;
    loaded.entities = entities;
    *ret_complex = loaded;
    return FM_OK;
}
