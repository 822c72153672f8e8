/* cmd_export.c: foldmill export: writes a chain's features as NumPy arrays with the reference's
 * names. */
#include "cache/export/chain_features.h"
#include "cache/source/names.h"
#include "featurizer/nonensembled.h"
#include "featurizer/structure.h"
#include "featurizer/templates.h"
#include "proto/base/date.h"
#include "server/cli/commands.h"
#include "server/cli/open_cache.h"
#include "server/cli/parse.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define ARENA_BYTES ((size_t)16 << 30)

typedef struct export_arguments {
    const char *cache, *chain, *stage, *out, *compat, *max_date;
} export_arguments;

enum { MAX_TEMPLATES = 4 };

static fm_status append_arrays(fm_npz_writer *writer, const fm_array *arrays, size_t n,
                               fm_error *reterr) {
    fm_status status = FM_OK;
    for (size_t i = 0; !status && i < n; i++) {
        status = fm_npz_writer_append(writer, arrays[i].key, arrays[i].dtype, arrays[i].rank,
                                      arrays[i].shape, arrays[i].data, reterr);
    }
    return status;
}

static fm_status append_structure(fm_npz_writer *writer, const fm_record *record, fm_arena *arena,
                                  fm_error *reterr) {
    fm_structure_array arrays[FM_STRUCTURE_N_ARRAY];
    size_t n;
    fm_status status =
        fm_structure_list_arrays(record->sequence, record->structure,
                                 fm_name_in_dataset(record->name), arena, arrays, &n, reterr);
    for (size_t i = 0; !status && i < n; i++) {
        status = fm_npz_writer_append(writer, arrays[i].key, arrays[i].dtype, arrays[i].rank,
                                      arrays[i].shape, arrays[i].data, reterr);
    }
    return status;
}

/* Stage chain: the features before any transform. */
static fm_status append_chain(fm_npz_writer *writer, const fm_record *record,
                              const fm_template_features *templates, fm_arena *arena,
                              fm_error *reterr) {
    fm_array arrays[FM_TEMPLATES_N_ARRAY];
    fm_status status = fm_templates_list_arrays(templates, arena, arrays, reterr);
    if (!status && record->structure) status = append_structure(writer, record, arena, reterr);
    if (!status) status = append_arrays(writer, arrays, FM_TEMPLATES_N_ARRAY, reterr);
    if (!status && record->msa) status = fm_parse_append_msa(writer, record->msa, arena, reterr);
    return status;
}

/* Stage nonensembled: the features after every transform that draws no random numbers. */
static fm_status append_nonensembled(fm_npz_writer *writer, const fm_record *record,
                                     const fm_template_features *templates, fm_arena *arena,
                                     fm_error *reterr) {
    const fm_nonensembled_input input = {record->sequence, record->msa, record->structure,
                                         templates};
    fm_array arrays[FM_NONENSEMBLED_N_ARRAY];
    size_t n = 0;
    fm_status status = fm_nonensembled_list_arrays(&input, arena, arrays, &n, reterr);
    return status ? status : append_arrays(writer, arrays, n, reterr);
}

static fm_status write_record(const export_arguments *arguments, const fm_store *store,
                              const fm_record *record, fm_arena *arena, fm_error *reterr) {
    fm_npz_writer *writer;
    fm_template_features templates;
    const fm_template_options options = {.compat_openfold = arguments->compat != NULL,
                                         .max_date = arguments->max_date,
                                         .max_templates = MAX_TEMPLATES};
    fm_status status = fm_chain_templates(store, record, &options, arena, &templates, reterr);
    if (!status) status = fm_npz_writer_create(arguments->out, &writer, reterr);
    if (status) return status;
    bool is_chain = strcmp(arguments->stage, "chain") == 0;
    status =
        (is_chain ? append_chain : append_nonensembled)(writer, record, &templates, arena, reterr);
    if (!status) return fm_npz_writer_finish(writer, reterr);
    fm_npz_writer_destroy(writer);
    return status;
}

static fm_status export_chain(const export_arguments *arguments, fm_error *reterr) {
    fm_arena arena;
    fm_store *store;
    uint32_t chain;
    fm_record record;
    fm_status status = fm_cli_open_store(arguments->cache, &store, reterr);
    if (status) return status;
    status = fm_arena_init(&arena, ARENA_BYTES, reterr);
    if (!status) {
        status =
            fm_cli_find_chain(arguments->cache, store, arguments->chain, &arena, &chain, reterr);
        if (!status) status = fm_store_load(store, chain, &arena, &record, reterr);
        if (!status) status = write_record(arguments, store, &record, &arena, reterr);
        fm_arena_fini(&arena);
    }
    fm_store_close(store);
    return status;
}

static fm_status check(const export_arguments *arguments, fm_error *reterr) {
    bool is_known =
        strcmp(arguments->stage, "chain") == 0 || strcmp(arguments->stage, "nonensembled") == 0;
    if (!is_known) {
        return fm_fail(reterr, FM_ERR_USAGE, "--stage: found '%s', expected chain or nonensembled",
                       arguments->stage);
    }
    if (arguments->compat && strcmp(arguments->compat, "openfold") != 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--compat: found '%s', expected openfold",
                       arguments->compat);
    }
    if (arguments->max_date && !fm_date_parse(arguments->max_date)) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--max-template-date: found '%.32s', expected a day as YYYY-MM-DD",
                       arguments->max_date);
    }
    return FM_OK;
}

int fm_cmd_export(int argc, char **argv) {
    export_arguments arguments = {.stage = "chain"};
    const fm_option options[] = {{"cache", FM_OPTION_STRING, &arguments.cache, "DIR",
                                  "the cache to read", .is_required = true},
                                 {"chain", FM_OPTION_STRING, &arguments.chain, "ID",
                                  "the chain, e.g. 1abc_A", .is_required = true},
                                 {"stage", FM_OPTION_STRING, &arguments.stage, "STAGE",
                                  "which features: 'chain' or 'nonensembled' (chain)", .letter = 0},
                                 {"compat", FM_OPTION_STRING, &arguments.compat, "openfold",
                                  "choose templates as OpenFold does", .letter = 0},
                                 {"max-template-date", FM_OPTION_STRING, &arguments.max_date,
                                  "YYYY-MM-DD", "ignore templates that were released later",
                                  .letter = 0},
                                 {"out", FM_OPTION_STRING, &arguments.out, "FILE",
                                  "the .npz file to write", .letter = 'o', .is_required = true},
                                 {0}};
    const fm_command command = {
        .program = "foldmill export",
        .arguments = "--cache DIR --chain ID -o OUT.npz",
        .summary = "write a chain's features as a NumPy archive",
        .description =
            "Writes the arrays of the reference's feature dictionary for one chain, with its\n"
            "names, dtypes and shapes: aatype (one-hot), between_segment_residues, domain_name,\n"
            "residue_index, seq_length, sequence, all_atom_positions (Å), all_atom_mask,\n"
            "resolution, release_date, is_distillation, msa (HHblits ids), deletion_matrix_int,\n"
            "num_alignments, msa_species_identifiers. For the 4 best templates: template_aatype,\n"
            "template_all_atom_mask, template_all_atom_positions (Å, centred),\n"
            "template_sequence, template_domain_names, template_sum_probs. Strings are uint8,\n"
            "joined by newlines.\n\n"
            "--stage nonensembled writes the features after every transform that draws no random\n"
            "numbers: ids in restype order, masks, hhblits_profile, atom14, rigid groups, torsion\n"
            "angles, and pseudo-beta of the structure and the templates.\n"
            "docs/reference/inputs.md lists them.\n\n"
            "Exit codes: 0 written, 1 failed or no such chain, 2 bad usage.\n\n"
            "Example: foldmill export --cache /fast/cache --chain 1ubq_A -o 1ubq_A.npz",
        .options = options,
    };
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_error error;
    fm_status status = check(&arguments, &error);
    if (!status) status = export_chain(&arguments, &error);
    return status ? fm_cli_report(command.program, &error) : FM_EXIT_OK;
}
