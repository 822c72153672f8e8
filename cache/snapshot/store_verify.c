/* store_verify.c: the full check of a store. See fm_store_verify in store.h. */
#include "cache/store/store_open.h"

#include "cache/snapshot/snapshot.h"

#include <stdio.h>
#include <string.h>

/* The state of a walk over one shard that compares its entries with the index. */
typedef struct shard_check {
    const fm_store *store;
    uint32_t shard;
    uint32_t n_named; /* blobs of this shard that the index names */
} shard_check;

static fm_status check_entry(void *context, const fm_sha256 *hash, const fm_shard_blob *blob,
                             fm_error *reterr) {
    shard_check *check = context;
    uint32_t at;
    /* A blob that the index lacks belongs to another generation. */
    if (!fm_store_find_blob(check->store, hash, &at)) return FM_OK;
    const fm_blob_entry *entry = &check->store->generation.blob[at];
    if (entry->shard != check->shard) return FM_OK;
    check->n_named++;
    if (entry->offset == blob->offset && entry->stored_bytes == blob->stored_bytes) return FM_OK;
    return fm_fail(reterr, FM_ERR_CORRUPT, "the index names another place of the blob at %llu",
                   (unsigned long long)blob->offset);
}

static fm_status check_shard(const fm_store *store, uint32_t shard, uint64_t *n_named,
                             fm_error *reterr) {
    const fm_shard_info *expected = &store->generation.shard[shard];
    char path[PATH_MAX];
    if (!fm_shard_path(store->path, &expected->hash, path, sizeof path)) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
    }
    shard_check check = {store, shard, 0};
    const fm_shard_visitor visitor = {&check, check_entry, NULL};
    fm_shard_info found;
    fm_status status = fm_shard_walk(path, &expected->hash, &visitor, &found, reterr);
    if (!status && (found.n_blob != expected->n_blob || found.bytes != expected->bytes)) {
        status = fm_fail(reterr, FM_ERR_CORRUPT, "the shard has %u blobs, the manifest says %u",
                         found.n_blob, expected->n_blob);
        if (reterr) fm_error_in(reterr, path);
    }
    *n_named += check.n_named;
    return status;
}

/* Each hit's structure part must exist; the walk over the chains decodes the parts themselves. */
static fm_status check_hits(const fm_store *store, const fm_part_hits *hits, fm_error *reterr) {
    for (uint32_t i = 0; hits && i < hits->n_hit; i++) {
        uint32_t blob;
        if (hits->hit[i].fault) continue;
        if (!fm_store_find_blob(store, &hits->hit[i].structure, &blob) ||
            store->generation.blob[blob].kind != FM_PART_STRUCTURE) {
            return fm_fail(reterr, FM_ERR_CORRUPT,
                           "hit %u (%.60s) names a structure part that is not there", i + 1,
                           hits->hit[i].name);
        }
    }
    return FM_OK;
}

/* A row of facts must agree with the parts. It may know more only where they say nothing. */
static fm_status check_facts(const fm_record *record, const fm_chain_facts *facts,
                             fm_error *reterr) {
    if (!facts || !(facts->flags & FM_FACTS_KNOWN)) return FM_OK;
    const fm_chain_facts found = fm_facts_of(record->sequence, record->structure);
    bool good = found.n_res == facts->n_res && found.n_unknown == facts->n_unknown &&
                found.n_most == facts->n_most &&
                found.flags == (facts->flags & ~(uint32_t)FM_FACTS_LISTED);
    bool may_differ = facts->flags & FM_FACTS_LISTED;
    bool has_date = found.release_date[0] || !may_differ;
    bool has_resolution = found.resolution > 0.0f || !may_differ;
    good &= !has_date || strcmp(found.release_date, facts->release_date) == 0;
    good &= !has_resolution || found.resolution == facts->resolution;
    if (good) return FM_OK;
    return fm_fail(reterr, FM_ERR_CORRUPT, "the table of facts says something else than the parts");
}

static fm_status check_rows(const fm_store *store, const fm_sha256 *identity, uint32_t n_residue,
                            fm_arena *arena, fm_error *reterr) {
    fm_part_msa msa;
    if (!fm_entity_has_part(identity)) return FM_OK;
    fm_status status = fm_store_load_msa(store, identity, arena, &msa, reterr);
    if (!status) status = fm_part_msa_check_profile(&msa, arena, reterr);
    if (status || msa.n_res == n_residue) return status;
    return fm_fail(reterr, FM_ERR_CORRUPT, "an entity has %u residues, and its rows %u", n_residue,
                   msa.n_res);
}

static fm_status check_entity(const fm_store *store, const fm_part_entity_inputs *inputs,
                              uint32_t n_residue, fm_arena *arena, fm_error *reterr) {
    fm_part_hits hits;
    size_t mark = fm_arena_mark(arena);
    fm_status status = check_rows(store, &inputs->unpaired, n_residue, arena, reterr);
    if (!status) status = check_rows(store, &inputs->paired, n_residue, arena, reterr);
    if (!status && fm_entity_has_part(&inputs->hits)) {
        status = fm_store_load_hits_part(store, &inputs->hits, arena, &hits, reterr);
        if (!status && hits.n_res != n_residue) {
            status = fm_fail(reterr, FM_ERR_CORRUPT, "an entity has %u residues, and its hits %u",
                             n_residue, hits.n_res);
        }
        if (!status) status = check_hits(store, &hits, reterr);
    }
    fm_arena_rewind(arena, mark);
    return status;
}

/* The facts that a complex's part has alone; its tokens need the components. */
static fm_status check_complex_facts(const fm_part_assembly *assembly, const fm_chain_facts *facts,
                                     fm_error *reterr) {
    bool has_date = strcmp(assembly->release_date, "9999-12-31") != 0;
    float resolution = assembly->resolution > 0 ? assembly->resolution : 0;
    if (facts && (facts->flags & FM_FACTS_COMPLEX) && facts->resolution == resolution &&
        strcmp(facts->release_date, has_date ? assembly->release_date : "") == 0) {
        return FM_OK;
    }
    return fm_fail(reterr, FM_ERR_CORRUPT, "the table of facts says something else than the parts");
}

static fm_status check_complex(const fm_store *store, uint32_t item, const fm_chain_facts *facts,
                               fm_arena *arena, fm_error *reterr) {
    fm_part_assembly assembly;
    fm_part_entities entities = {0};
    uint32_t blob;
    fm_status status = fm_store_load_assembly(store, item, arena, &assembly, reterr);
    if (!status) status = fm_store_load_entities(store, item, arena, &entities, reterr);
    if (status) return status;
    if (entities.n_entity != assembly.n_entity ||
        !fm_store_find_blob(store, &assembly.components, &blob) ||
        store->generation.blob[blob].kind != FM_PART_COMPONENTS) {
        return fm_fail(reterr, FM_ERR_CORRUPT,
                       "the entities or the components of the assembly are not there");
    }
    status = check_complex_facts(&assembly, facts, reterr);
    for (uint32_t i = 0; i < entities.n_entity && !status; i++)
        status =
            check_entity(store, &entities.inputs[i], assembly.entities[i].n_residue, arena, reterr);
    return status;
}

/* The walks over items do not reach the sets of components. */
static fm_status check_components(const fm_store *store, fm_arena *arena, fm_error *reterr) {
    const fm_complex_row *rows;
    fm_status status = FM_OK;
    uint32_t n;
    for (uint32_t i = 0; i < store->generation.n_blob && !status; i++) {
        fm_bytes form;
        fm_arena_reset(arena);
        if (store->generation.blob[i].kind != FM_PART_COMPONENTS) continue;
        status = fm_store_read_blob(store, i, arena, &form, reterr);
    }
    fm_arena_reset(arena);
    return status ? status : fm_store_read_complex_rows(store, arena, &rows, &n, reterr);
}

static fm_status check_chain(const fm_store *store, uint32_t chain, const fm_chain_facts *facts,
                             fm_arena *arena, fm_error *reterr) {
    fm_record record;
    size_t mark = fm_arena_mark(arena);
    if (fm_store_item_kind(store, chain) == FM_STORED_COMPLEX) {
        fm_status found = check_complex(store, chain, facts, arena, reterr);
        fm_arena_rewind(arena, mark);
        if (found && reterr) fm_error_in(reterr, fm_store_chain_name(store, chain));
        return found;
    }
    fm_status status = fm_store_load(store, chain, arena, &record, reterr);
    if (!status && record.msa) status = fm_part_msa_check_profile(record.msa, arena, reterr);
    if (!status) status = check_hits(store, record.hits, reterr);
    if (!status) status = check_facts(&record, facts, reterr);
    fm_arena_rewind(arena, mark);
    if (status && reterr) fm_error_in(reterr, fm_store_chain_name(store, chain));
    return status;
}

static void tell(const fm_store *store, const fm_store_watch *watch, uint64_t done_bytes) {
    if (watch) watch->tell(watch->context, done_bytes, 2 * store->info.stored_bytes);
}

static fm_status check_shards(const fm_store *store, const fm_store_watch *watch,
                              fm_error *reterr) {
    const fm_generation *generation = &store->generation;
    uint64_t n_named = 0, done_bytes = 0;
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < generation->n_shard && !status; i++) {
        status = check_shard(store, i, &n_named, reterr);
        done_bytes += generation->shard[i].bytes;
        tell(store, watch, done_bytes);
    }
    if (!status && n_named != generation->n_blob) {
        status = fm_fail(reterr, FM_ERR_CORRUPT, "the index names %u blobs, the shards have %llu",
                         generation->n_blob, (unsigned long long)n_named);
    }
    return status;
}

fm_status fm_store_verify(const fm_store *store, const fm_store_watch *watch, fm_arena *arena,
                          fm_store_check *ret_check, fm_error *reterr) {
    const fm_generation *generation = &store->generation;
    const uint64_t shard_bytes = store->info.stored_bytes;
    fm_status status = check_shards(store, watch, reterr);
    const fm_chain_facts *facts = NULL;
    fm_arena_reset(arena);
    if (!status) status = check_components(store, arena, reterr);
    fm_arena_reset(arena);
    if (!status) status = fm_store_read_facts(store, arena, &facts, reterr);
    for (uint32_t i = 0; i < generation->n_chain && !status; i++) {
        status = check_chain(store, i, facts ? &facts[i] : NULL, arena, reterr);
        double share = (double)(i + 1) / generation->n_chain;
        tell(store, watch, shard_bytes + (uint64_t)((double)shard_bytes * share));
    }
    fm_generation lists; /* the same generation, with notes and refusals */
    fm_arena_reset(arena);
    if (!status) {
        status = fm_generation_read_at(store->path, generation->number, FM_GENERATION_ALL, arena,
                                       &lists, reterr);
    }
    fm_snapshot snapshot;
    fm_arena_reset(arena);
    if (!status && generation->n_chain) {
        status = fm_snapshot_open(store, "all", arena, &snapshot, reterr);
    }
    if (!status) {
        *ret_check = (fm_store_check){generation->n_shard, generation->n_blob, generation->n_chain,
                                      store->info.stored_bytes, store->info.decoded_bytes};
    }
    return status;
}
