/* inspect_json.c: see inspect_json.h. */
#include "server/cli/inspect_json.h"

#include "cache/export/complex_load.h"
#include "server/cli/inspect_input.h"

/* -- a cache */

void fm_inspect_json_info(fm_json_writer *json, const fm_store_info *info) {
    fm_json_put_u64(json, "generation", info->generation);
    fm_json_put_hash(json, "content", &info->content);
    fm_json_put_u64(json, "chains", info->n_chain - info->n_complex);
    fm_json_put_u64(json, "complexes", info->n_complex);
    fm_json_put_u64(json, "refused", info->n_refused);
    fm_json_put_u64(json, "shards", info->n_shard);
    fm_json_put_u64(json, "shard_bytes", info->stored_bytes);
}

void fm_inspect_json_parts(fm_json_writer *json, const fm_store *store) {
    uint32_t n_chain = fm_store_get_info(store)->n_chain;
    fm_json_open_object(json, "parts");
    for (int k = 1; k <= FM_PART_KIND_MAX; k++) {
        uint64_t stored = 0, decoded = 0;
        uint32_t n = 0;
        for (uint32_t chain = 0; chain < n_chain; chain++) {
            fm_store_part part;
            if (!fm_store_get_part(store, chain, (fm_part_kind)k, &part)) continue;
            n++;
            stored += part.stored_bytes;
            decoded += part.decoded_bytes;
        }
        if (!n) continue;
        fm_json_open_object(json, fm_part_name((fm_part_kind)k));
        fm_json_put_u64(json, "chains", n);
        fm_json_put_u64(json, "stored_bytes", stored);
        fm_json_put_u64(json, "decoded_bytes", decoded);
        fm_json_close(json);
    }
    fm_json_close(json);
}

void fm_inspect_json_refusals(fm_json_writer *json, const fm_refusal *refusal, uint32_t n) {
    fm_json_open_array(json, "refusals");
    for (uint32_t i = 0; i < n; i++) {
        fm_json_open_object(json, NULL);
        fm_json_put_string(json, "chain", refusal[i].chain);
        fm_json_put_string(json, "reason", refusal[i].reason);
        fm_json_close(json);
    }
    fm_json_close(json);
}

fm_status fm_inspect_cache_json(const char *path, const fm_store *store, fm_arena *arena,
                                fm_error *reterr) {
    fm_json_writer json;
    fm_refusals refusals;
    fm_status status = fm_refusals_read(path, arena, &refusals, reterr);
    if (status) return status;
    fm_json_begin(&json, stdout);
    fm_inspect_json_info(&json, fm_store_get_info(store));
    fm_inspect_json_parts(&json, store);
    fm_inspect_json_refusals(&json, refusals.refusal, refusals.n);
    fm_json_end(&json);
    return FM_OK;
}

/* -- a chain */

static void print_msa(fm_json_writer *json, const fm_part_msa *msa) {
    fm_json_open_object(json, "msa");
    fm_json_put_u64(json, "rows", msa->n_seq);
    fm_json_open_array(json, "sources");
    for (uint32_t i = 0; i < msa->n_source; i++) {
        fm_json_open_object(json, NULL);
        fm_json_put_string(json, "name", msa->source[i].name);
        fm_json_put_u64(json, "rows", msa->source[i].n_row);
        fm_json_close(json);
    }
    fm_json_close(json);
    fm_json_close(json);
}

static void print_hits(fm_json_writer *json, const fm_part_hits *hits) {
    uint32_t n_mapped = 0;
    for (uint32_t i = 0; i < hits->n_hit; i++)
        n_mapped += hits->hit[i].fault == FM_HIT_MAPPED;
    fm_json_open_object(json, "hits");
    fm_json_put_u64(json, "hits", hits->n_hit);
    fm_json_put_u64(json, "mapped", n_mapped);
    fm_json_close(json);
}

static void print_structure(fm_json_writer *json, const fm_part_structure *structure) {
    uint64_t n_atom = 0;
    for (size_t i = 0; i < (size_t)structure->n_res * FM_N_ATOM37; i++)
        n_atom += structure->all_atom_mask[i];
    fm_json_open_object(json, "structure");
    fm_json_put_u64(json, "atoms", n_atom);
    if (structure->resolution > 0) {
        fm_json_put_f64(json, "resolution", (double)structure->resolution, 3);
    }
    if (structure->release_date[0]) {
        fm_json_put_string(json, "release_date", structure->release_date);
    }
    fm_json_put_bool(json, "predicted", structure->is_distillation);
    fm_json_close(json);
}

static void print_parts(fm_json_writer *json, const fm_store *store, uint32_t chain) {
    fm_json_open_object(json, "parts");
    for (int k = 1; k <= FM_PART_KIND_MAX; k++) {
        fm_store_part part;
        if (!fm_store_get_part(store, chain, (fm_part_kind)k, &part)) continue;
        fm_json_open_object(json, fm_part_name((fm_part_kind)k));
        fm_json_put_hash(json, "hash", &part.hash);
        fm_json_put_u64(json, "stored_bytes", part.stored_bytes);
        fm_json_put_u64(json, "decoded_bytes", part.decoded_bytes);
        fm_json_close(json);
    }
    fm_json_close(json);
}

static void print_entities(fm_json_writer *json, const fm_complex *loaded) {
    fm_json_open_array(json, "entities");
    for (uint32_t i = 0; i < loaded->assembly.n_entity; i++) {
        const fm_complex_entity *entity = &loaded->entities[i];
        fm_json_open_object(json, NULL);
        fm_json_put_string(json, "entity", loaded->assembly.entities[i].id);
        fm_json_put_u64(json, "residues", loaded->assembly.entities[i].n_residue);
        fm_json_put_u64(json, "rows", entity->unpaired ? entity->unpaired->n_row : 0);
        fm_json_put_u64(json, "paired_rows", entity->paired ? entity->paired->n_row : 0);
        fm_json_put_u64(json, "hits", entity->hits ? entity->hits->n_hit : 0);
        fm_json_close(json);
    }
    fm_json_close(json);
}

static fm_status print_complex(const fm_store *store, uint32_t item, fm_arena *arena,
                               fm_error *reterr) {
    fm_json_writer json;
    fm_complex_reader *reader;
    fm_complex loaded;
    fm_status status = fm_complex_reader_create(store, &reader, reterr);
    if (status) return status;
    status = fm_complex_load(reader, item, arena, &loaded, reterr);
    if (!status) {
        fm_json_begin(&json, stdout);
        fm_json_put_string(&json, "complex", loaded.name);
        fm_json_put_u64(&json, "number", item);
        fm_json_put_u64(&json, "chains", loaded.assembly.n_chain);
        fm_json_put_u64(&json, "tokens", loaded.assembly.n_token);
        fm_json_put_u64(&json, "atoms", loaded.assembly.n_atom);
        fm_json_put_u64(&json, "interfaces", loaded.assembly.n_pair);
        fm_json_put_string(&json, "release_date", loaded.assembly.release_date);
        fm_json_put_f64(&json, "resolution", (double)loaded.assembly.resolution, 3);
        print_entities(&json, &loaded);
        print_parts(&json, store, item);
        fm_json_end(&json);
    }
    fm_complex_reader_destroy(reader);
    return status;
}

fm_status fm_inspect_chain_json(const fm_store *store, uint32_t chain, uint32_t input_rule,
                                fm_arena *arena, fm_error *reterr) {
    fm_json_writer json;
    fm_record record;
    if (fm_store_item_kind(store, chain) == FM_STORED_COMPLEX) {
        return print_complex(store, chain, arena, reterr);
    }
    fm_status status = fm_store_load(store, chain, arena, &record, reterr);
    if (status) return status;
    fm_json_begin(&json, stdout);
    fm_json_put_string(&json, "chain", record.name);
    fm_json_put_u64(&json, "number", chain);
    fm_json_put_u64(&json, "residues", record.sequence->n_res);
    fm_json_put_text(&json, "sequence", record.sequence->sequence, record.sequence->n_res);
    if (record.msa) print_msa(&json, record.msa);
    if (record.hits) print_hits(&json, record.hits);
    if (record.structure) print_structure(&json, record.structure);
    print_parts(&json, store, chain);
    if (input_rule) status = fm_inspect_input_json(&json, &record, input_rule, arena, reterr);
    fm_json_end(&json);
    return status;
}
