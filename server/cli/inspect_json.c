/* inspect_json.c: see inspect_json.h. */
#include "server/cli/inspect_json.h"

#include "cache/store/refusals.h"
#include "server/cli/json_text.h"

#include <stdio.h>

/* -- a cache */

static void print_part_totals(const fm_store *store) {
    uint32_t n_chain = fm_store_get_info(store)->n_chain;
    const char *between = "";
    printf("  \"parts\": {");
    for (int k = 1; k <= FM_N_PART; k++) {
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
        printf("%s\"%s\": {\"chains\": %u, \"stored_bytes\": %llu, \"decoded_bytes\": %llu}",
               between, fm_part_name((fm_part_kind)k), n, (unsigned long long)stored,
               (unsigned long long)decoded);
        between = ", ";
    }
    printf("},\n");
}

fm_status fm_inspect_cache_json(const char *path, const fm_store *store, fm_arena *arena,
                                fm_error *reterr) {
    const fm_store_info *info = fm_store_get_info(store);
    char hex[FM_SHA256_HEX];
    fm_refusals refusals;
    fm_status status = fm_refusals_read(path, arena, &refusals, reterr);
    if (status) return status;
    fm_sha256_format(&info->content, hex);
    printf("{\n  \"generation\": %llu,\n  \"content\": \"%s\",\n  \"chains\": %u,\n"
           "  \"refused\": %u,\n  \"shards\": %u,\n  \"shard_bytes\": %llu,\n",
           (unsigned long long)info->generation, hex, info->n_chain, info->n_refused, info->n_shard,
           (unsigned long long)info->stored_bytes);
    print_part_totals(store);
    printf("  \"refusals\": [");
    for (uint32_t i = 0; i < refusals.n; i++) {
        printf("%s\n    {\"chain\": ", i ? "," : "");
        fm_json_print_string(stdout, refusals.refusal[i].chain);
        printf(", \"reason\": ");
        fm_json_print_string(stdout, refusals.refusal[i].reason);
        printf("}");
    }
    printf("]\n}\n");
    return FM_OK;
}

/* -- a chain */

static void print_msa(const fm_part_msa *msa) {
    printf("  \"msa\": {\"rows\": %u, \"sources\": [", msa->n_seq);
    for (uint32_t i = 0; i < msa->n_source; i++) {
        printf("%s{\"name\": ", i ? ", " : "");
        fm_json_print_string(stdout, msa->source[i].name);
        printf(", \"rows\": %u}", msa->source[i].n_row);
    }
    printf("]},\n");
}

static void print_hits(const fm_part_hits *hits) {
    uint32_t n_mapped = 0;
    for (uint32_t i = 0; i < hits->n_hit; i++)
        n_mapped += hits->hit[i].fault == FM_HIT_MAPPED;
    printf("  \"hits\": {\"hits\": %u, \"mapped\": %u},\n", hits->n_hit, n_mapped);
}

static void print_structure(const fm_part_structure *structure) {
    uint64_t n_atom = 0;
    for (size_t i = 0; i < (size_t)structure->n_res * FM_N_ATOM37; i++)
        n_atom += structure->all_atom_mask[i];
    printf("  \"structure\": {\"atoms\": %llu", (unsigned long long)n_atom);
    if (structure->resolution > 0) printf(", \"resolution\": %.9g", (double)structure->resolution);
    if (structure->release_date[0]) {
        printf(", \"release_date\": ");
        fm_json_print_string(stdout, structure->release_date);
    }
    printf(", \"predicted\": %s},\n", structure->is_distillation ? "true" : "false");
}

static void print_parts(const fm_store *store, uint32_t chain) {
    const char *between = "";
    printf("  \"parts\": {");
    for (int k = 1; k <= FM_N_PART; k++) {
        fm_store_part part;
        char hex[FM_SHA256_HEX];
        if (!fm_store_get_part(store, chain, (fm_part_kind)k, &part)) continue;
        fm_sha256_format(&part.hash, hex);
        printf("%s\"%s\": {\"hash\": \"%s\", \"stored_bytes\": %llu, \"decoded_bytes\": %llu}",
               between, fm_part_name((fm_part_kind)k), hex, (unsigned long long)part.stored_bytes,
               (unsigned long long)part.decoded_bytes);
        between = ", ";
    }
    printf("}\n");
}

fm_status fm_inspect_chain_json(const fm_store *store, const char *name, fm_arena *arena,
                                fm_error *reterr) {
    uint32_t chain;
    fm_record record;
    fm_status status = fm_store_find(store, name, &chain, reterr);
    if (!status) status = fm_store_load(store, chain, arena, &record, reterr);
    if (status) return status;
    printf("{\n  \"chain\": ");
    fm_json_print_string(stdout, record.name);
    printf(",\n  \"residues\": %u,\n  \"sequence\": \"%.*s\",\n", record.sequence->n_res,
           (int)record.sequence->n_res, record.sequence->sequence);
    if (record.msa) print_msa(record.msa);
    if (record.hits) print_hits(record.hits);
    if (record.structure) print_structure(record.structure);
    print_parts(store, chain);
    printf("}\n");
    return FM_OK;
}
