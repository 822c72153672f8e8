/* cmd_inspect.c: foldmill inspect: shows the content of a cache or of one chain. */
#include "cache/export/complex_load.h"
#include "featurizer/templates.h"
#include "proto/base/plural.h"
#include "proto/template_date.h"
#include "server/cli/commands.h"
#include "server/cli/inspect_json.h"
#include "server/cli/open_cache.h"

#include <stdio.h>

#define ARENA_BYTES ((size_t)16 << 30)

enum { N_REFUSAL_SHOWN = 20 };

static void print_totals(const fm_store *store) {
    const fm_store_info *info = fm_store_get_info(store);
    uint64_t stored[FM_PART_KIND_MAX] = {0}, decoded[FM_PART_KIND_MAX] = {0};
    uint32_t n[FM_PART_KIND_MAX] = {0};
    char hex[FM_SHA256_HEX];
    for (uint32_t chain = 0; chain < info->n_chain; chain++) {
        for (int k = 1; k <= FM_PART_KIND_MAX; k++) {
            fm_store_part part;
            if (!fm_store_get_part(store, chain, (fm_part_kind)k, &part)) continue;
            n[k - 1]++;
            stored[k - 1] += part.stored_bytes;
            decoded[k - 1] += part.decoded_bytes;
        }
    }
    fm_sha256_format(&info->content, hex);
    printf("generation  %llu\ncontent     %s\n", (unsigned long long)info->generation, hex);
    printf("chains      %u, %u refused\n", info->n_chain - info->n_complex, info->n_refused);
    if (info->n_complex) printf("complexes   %u\n", info->n_complex);
    printf("shards      %u, %.1f MB on disk\n", info->n_shard, (double)info->stored_bytes / 1e6);
    for (int k = 0; k < FM_PART_KIND_MAX; k++) {
        if (!n[k]) continue;
        const char *one = k < FM_N_PART ? "chain" : "complex", *many = k < FM_N_PART ? "s" : "es";
        printf("%-10s  %u %s%s, %.0f bytes per %s stored, %.0f decoded\n",
               fm_part_name((fm_part_kind)(k + 1)), n[k], one, n[k] == 1 ? "" : many,
               (double)stored[k] / n[k], one, (double)decoded[k] / n[k]);
    }
    if (info->n_chain) {
        printf("names       %s .. %s\n", fm_store_chain_name(store, 0),
               fm_store_chain_name(store, info->n_chain - 1));
    }
}

static fm_status print_cache(const char *path, const fm_store *store, fm_arena *arena,
                             fm_error *reterr) {
    fm_refusals refusals;
    print_totals(store);
    fm_status status = fm_refusals_read(path, arena, &refusals, reterr);
    if (status) return status;
    for (uint32_t i = 0; i < refusals.n && i < N_REFUSAL_SHOWN; i++)
        printf("refused     %s  %s\n", refusals.refusal[i].chain, refusals.refusal[i].reason);
    if (refusals.n > N_REFUSAL_SHOWN) printf("and %u more\n", refusals.n - N_REFUSAL_SHOWN);
    return FM_OK;
}

static void print_msa(const fm_part_msa *msa) {
    uint64_t n_deletion = 0, max = 0, n_species = 0;
    for (size_t i = 0; i < (size_t)msa->n_seq * msa->n_res; i++) {
        n_deletion += msa->deletion_matrix[i] > 0;
        if (msa->deletion_matrix[i] > max) max = msa->deletion_matrix[i];
    }
    for (uint32_t i = 0; i < msa->n_seq; i++)
        n_species += msa->species_end[i] > (i ? msa->species_end[i - 1] : 0);
    printf("msa         %u row%s, %llu with a species; deletions at %llu places, at most %llu\n",
           msa->n_seq, fm_plural(msa->n_seq), (unsigned long long)n_species,
           (unsigned long long)n_deletion, (unsigned long long)max);
    for (uint32_t i = 0; i < msa->n_source; i++)
        printf("            %u from %s\n", msa->source[i].n_row, msa->source[i].name);
}

static void print_structure(const fm_part_structure *structure) {
    uint32_t n_atom = 0, n_present = 0;
    for (uint32_t i = 0; i < structure->n_res; i++) {
        uint32_t here = 0;
        for (int atom = 0; atom < FM_N_ATOM37; atom++)
            here += structure->all_atom_mask[(size_t)i * FM_N_ATOM37 + (size_t)atom];
        n_atom += here;
        n_present += here > 0;
    }
    printf("structure   %u atoms in %u of %u residues", n_atom, n_present, structure->n_res);
    if (structure->resolution > 0) printf("; %.2f Å", (double)structure->resolution);
    if (structure->release_date[0]) printf("; released %s", structure->release_date);
    printf("%s\n", structure->is_distillation ? "; predicted" : "");
}

static void print_hits(const fm_part_hits *hits) {
    uint32_t n[FM_HIT_FAULT_MAX + 1] = {0};
    for (uint32_t i = 0; i < hits->n_hit; i++)
        n[hits->hit[i].fault]++;
    printf("hits        %u template hits, %u mapped", hits->n_hit, n[FM_HIT_MAPPED]);
    for (int fault = 1; fault <= FM_HIT_FAULT_MAX; fault++) {
        if (n[fault]) printf("; %u: %s", n[fault], fm_template_fault_text((fm_hit_fault)fault));
    }
    printf("\n");
}

static void print_parts(const fm_store *store, uint32_t item) {
    for (int k = 1; k <= FM_PART_KIND_MAX; k++) {
        fm_store_part part;
        char hex[FM_SHA256_HEX];
        if (!fm_store_get_part(store, item, (fm_part_kind)k, &part)) continue;
        fm_sha256_format(&part.hash, hex);
        printf("%-10s  %s, %llu bytes stored, %llu decoded\n", fm_part_name((fm_part_kind)k), hex,
               (unsigned long long)part.stored_bytes, (unsigned long long)part.decoded_bytes);
    }
}

static void print_loaded(const fm_complex *loaded) {
    const fm_assembly *assembly = &loaded->assembly;
    printf("complex     %s, %u chains, %u tokens, %u atoms, %u interfaces\n", loaded->name,
           assembly->n_chain, assembly->n_token, assembly->n_atom, assembly->n_pair);
    printf("structure   %s; released %s", assembly->method, assembly->release_date);
    if (assembly->resolution > 0) printf("; %.2f Å", (double)assembly->resolution);
    printf("\n");
    for (uint32_t i = 0; i < assembly->n_entity; i++) {
        const fm_complex_entity *entity = &loaded->entities[i];
        if (!entity->unpaired) continue;
        printf("entity      %s: %u residues, %u row%s", assembly->entities[i].id,
               assembly->entities[i].n_residue, entity->unpaired->n_row,
               fm_plural(entity->unpaired->n_row));
        if (entity->paired) printf(", %u to pair", entity->paired->n_row);
        if (entity->hits) printf(", %u template hits", entity->hits->n_hit);
        printf("\n");
    }
}

static fm_status print_complex(const fm_store *store, uint32_t item, fm_arena *arena,
                               fm_error *reterr) {
    fm_complex_reader *reader;
    fm_complex loaded;
    const fm_complex_row *rows;
    uint32_t n_row, n = 0;
    fm_status status = fm_complex_reader_create(store, &reader, reterr);
    if (status) return status;
    status = fm_complex_load(reader, item, arena, &loaded, reterr);
    if (!status) status = fm_store_read_complex_rows(store, arena, &rows, &n_row, reterr);
    if (!status) {
        print_loaded(&loaded);
        for (uint32_t i = 0; i < n_row; i++)
            n += rows[i].item == item;
        printf("records     %u that training draws\n", n);
        print_parts(store, item);
    }
    fm_complex_reader_destroy(reader);
    return status;
}

static fm_status print_chain(const fm_store *store, uint32_t chain, fm_arena *arena,
                             fm_error *reterr) {
    fm_record record;
    if (fm_store_item_kind(store, chain) == FM_STORED_COMPLEX) {
        return print_complex(store, chain, arena, reterr);
    }
    fm_status status = fm_store_load(store, chain, arena, &record, reterr);
    if (status) return status;
    printf("chain       %s, %u residues\n", record.name, record.sequence->n_res);
    printf("sequence    %.*s\n", (int)record.sequence->n_res, record.sequence->sequence);
    if (record.msa) print_msa(record.msa);
    if (record.hits) print_hits(record.hits);
    if (record.structure) print_structure(record.structure);
    print_parts(store, chain);
    return FM_OK;
}

static fm_status inspect_chain(const char *path, const fm_store *store, const char *name, bool json,
                               uint32_t input_rule, fm_arena *arena, fm_error *reterr) {
    uint32_t chain;
    fm_status status = fm_cli_find_chain(path, store, name, arena, &chain, reterr);
    if (status) return status;
    return json ? fm_inspect_chain_json(store, chain, input_rule, arena, reterr)
                : print_chain(store, chain, arena, reterr);
}

static fm_status inspect(const char *path, const char *chain, bool json, uint32_t input_rule,
                         fm_error *reterr) {
    fm_arena arena = {0};
    fm_store *store;
    fm_status status = fm_cli_open_store(path, &store, reterr);
    if (status) return status;
    status = fm_arena_init(&arena, ARENA_BYTES, reterr);
    if (!status && chain) {
        status = inspect_chain(path, store, chain, json, input_rule, &arena, reterr);
    } else if (!status) {
        status = json ? fm_inspect_cache_json(path, store, &arena, reterr)
                      : print_cache(path, store, &arena, reterr);
    }
    fm_arena_fini(&arena);
    fm_store_close(store);
    return status;
}

int fm_cmd_inspect(int argc, char **argv) {
    const char *cache = NULL, *chain = NULL, *as_input = NULL;
    bool json = false;
    const fm_option options[] = {
        {"cache", FM_OPTION_STRING, &cache, "DIR", "the cache to show", .is_required = true},
        {"chain", FM_OPTION_STRING, &chain, "ID", .help = "show this chain, e.g. 1abc_A"},
        {"json", FM_OPTION_FLAG, &json, NULL, .help = "print one JSON object"},
        {"as-input", FM_OPTION_STRING, &as_input, "DATE",
         .help = "with --chain and --json: also the coverage by the MSA, and the templates of a "
                 "prediction, none released after DATE (YYYY-MM-DD, any, query)"},
        {0}};
    const fm_command command = {
        .program = "foldmill inspect",
        .arguments = "--cache DIR [--chain ID] [options]",
        .summary = "show what a cache, or one chain of it, holds",
        .description =
            "Without --chain, the command shows counts, sizes, the content digest, and which\n"
            "chains the build refused. With --chain, it shows the chain's sequence, the sources\n"
            "of its MSA, its structure, and the hashes and sizes of its parts. The id of a chain\n"
            "is found in upper and lower case: 1ABC_A is 1abc_A. Where the build refused the\n"
            "chain, the command says why.\n\n"
            "--json prints one object. Of a cache: generation, content, chains, complexes,\n"
            "refused, shards, shard_bytes, parts {NAME: {chains, stored_bytes, decoded_bytes}},\n"
            "refusals [{chain, reason}]. In the parts assembly and entities, chains is a number\n"
            "of complexes. Of a chain: chain, number (its place), residues, sequence, msa {rows,\n"
            "sources [{name, rows}]}, hits {hits, mapped}, structure {atoms, resolution,\n"
            "release_date, predicted}, parts {NAME: {hash, stored_bytes, decoded_bytes}}; with\n"
            "--as-input: coverage {columns, bands [{rows, identity, cells}]}, templates [{name,\n"
            "sum_probs, release_date}]. What a chain lacks is omitted. Of a complex: complex,\n"
            "number, chains, tokens, atoms, interfaces, release_date, resolution, entities\n"
            "[{entity, residues, rows, paired_rows, hits}], parts.\n\n"
            "Exit codes: 0 shown, 1 not readable or no such chain, 2 bad usage.",
        .options = options,
    };
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_error error;
    uint32_t input_rule = as_input ? fm_template_date_parse(as_input) : 0;
    if (as_input && (!input_rule || !chain || !json)) {
        (void)fm_fail(&error, FM_ERR_USAGE,
                      "--as-input: found '%.32s', expected YYYY-MM-DD, any or query, with --chain "
                      "and --json",
                      as_input);
        return fm_program_report(command.program, &error);
    }
    fm_status status = inspect(cache, chain, json, input_rule, &error);
    return status ? fm_program_report(command.program, &error) : FM_EXIT_OK;
}
