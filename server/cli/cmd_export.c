/* cmd_export.c: foldmill export: writes the features of one chain, or of a snapshot's chains, as
 * arrays with the reference's names. */
#include "proto/base/date.h"
#include "proto/base/json_text.h"
#include "server/cli/commands.h"
#include "server/cli/export_chain.h"
#include "server/cli/open_cache.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define ARENA_BYTES ((size_t)16 << 30)

typedef struct export_arguments {
    const char *cache, *chain, *snapshot, *out, *format;
    fm_export_options options;
    bool replace, quiet, json;
} export_arguments;

/* The first SIGINT, SIGTERM or SIGHUP; a second one ends the process the usual way. */
static volatile sig_atomic_t stop_asked;

static void ask_stop(int signal_number) {
    stop_asked = signal_number;
    signal(signal_number, SIG_DFL);
}

static fm_status export_chain(const export_arguments *arguments, const fm_export_options *options,
                              const fm_store *store, fm_arena *arena, fm_error *reterr) {
    uint32_t chain;
    fm_status status = fm_array_output_check(arguments->out, arguments->replace, arena, reterr);
    if (!status) {
        status =
            fm_cli_find_chain(arguments->cache, store, arguments->chain, arena, &chain, reterr);
    }
    if (status) return status;
    bool is_complex = fm_store_item_kind(store, chain) == FM_STORED_COMPLEX;
    if (is_complex && (options->compat || strcmp(options->stage, "chain") != 0)) {
        return fm_fail(reterr, FM_ERR_USAGE, "%s is a complex: --stage and --compat are of chains",
                       arguments->chain);
    }
    return fm_export_chain(options, store, chain, arguments->out, arena, reterr);
}

static fm_status export(const export_arguments *arguments, fm_export_report *report,
                        fm_error *reterr) {
    fm_arena arena = {0};
    fm_store *store;
    fm_complex_reader *reader = NULL;
    fm_export_options options = arguments->options;
    fm_status status = fm_cli_open_store(arguments->cache, &store, reterr);
    if (status) return status;
    if (fm_store_get_info(store)->n_complex) {
        status = fm_complex_reader_create(store, &reader, reterr);
        options.complexes = reader;
    }
    if (!status) status = fm_arena_init(&arena, ARENA_BYTES, reterr);
    if (!status && arguments->chain) {
        status = export_chain(arguments, &options, store, &arena, reterr);
    } else if (!status) {
        status = fm_export_snapshot(&options, store, arguments->snapshot, arguments->out,
                                    arguments->quiet, &stop_asked, &arena, report, reterr);
    }
    fm_arena_fini(&arena);
    fm_complex_reader_destroy(reader);
    fm_store_close(store);
    return status;
}

/* Prints what a whole snapshot's export did, and returns the exit code. */
static int print_report(const export_arguments *arguments, const fm_export_report *report) {
    uint32_t n_left = report->n_chain - report->n_written - report->n_kept - report->n_failed;
    if (arguments->json) {
        fm_json_writer json;
        fm_json_begin(&json, stdout);
        fm_json_put_string(&json, "snapshot", arguments->snapshot);
        fm_json_put_u64(&json, "chains", report->n_chain);
        fm_json_put_u64(&json, "written", report->n_written);
        fm_json_put_u64(&json, "kept", report->n_kept);
        fm_json_put_u64(&json, "failed", report->n_failed);
        fm_json_put_u64(&json, "left", n_left);
        fm_json_put_f64(&json, "seconds", report->seconds, 3);
        fm_json_end(&json);
    } else {
        printf("export    %u of %u chains written, %u kept, %u failed, %u left, %.1f s\n",
               report->n_written, report->n_chain, report->n_kept, report->n_failed, n_left,
               report->seconds);
    }
    if (stop_asked) return fm_cli_signal_code(stop_asked);
    return report->n_failed ? FM_EXIT_PARTIAL : FM_EXIT_OK;
}

static fm_status check(export_arguments *arguments, fm_error *reterr) {
    const fm_export_options *options = &arguments->options;
    bool is_known =
        strcmp(options->stage, "chain") == 0 || strcmp(options->stage, "nonensembled") == 0;
    if (!arguments->chain == !arguments->snapshot) {
        return fm_fail(reterr, FM_ERR_USAGE, "give either --chain or --snapshot");
    }
    if (arguments->replace && arguments->snapshot) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--replace is for --chain: the files of a snapshot are kept");
    }
    if (!is_known) {
        return fm_fail(reterr, FM_ERR_USAGE, "--stage: found '%s', expected chain or nonensembled",
                       options->stage);
    }
    if (options->compat && strcmp(options->compat, "openfold") != 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--compat: found '%s', expected openfold",
                       options->compat);
    }
    if (options->max_date && !fm_date_parse(options->max_date)) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--max-template-date: found '%.32s', expected a day as YYYY-MM-DD",
                       options->max_date);
    }
    return fm_array_format_parse(arguments->format, &arguments->options.format, reterr);
}

static const char description[] =
    "Writes the arrays of the reference's feature dictionary for one chain, with its\n"
    "names, dtypes and shapes: aatype (one-hot), between_segment_residues, domain_name,\n"
    "residue_index, seq_length, sequence, all_atom_positions (Å), all_atom_mask,\n"
    "resolution, release_date, is_distillation, msa (HHblits ids), deletion_matrix_int,\n"
    "num_alignments, msa_species_identifiers. For the 4 best templates: template_aatype,\n"
    "template_all_atom_mask, template_all_atom_positions (Å, centred),\n"
    "template_sequence, template_domain_names, template_sum_probs. Strings are uint8,\n"
    "joined by newlines.\n\n"
    "A complex (--chain 1abc) is written as foldmill parse complex writes it, with the\n"
    "alignments and the best templates of its entities. --stage and --compat are of chains: with\n"
    "--snapshot they leave complexes as they are, and for a complex alone they are refused.\n\n"
    "--stage nonensembled writes the features after every transform that draws no random\n"
    "numbers: ids in restype order, masks, hhblits_profile, atom14, rigid groups, torsion\n"
    "angles, and pseudo-beta of the structure and the templates.\n"
    "docs/reference/inputs.md lists them.\n\n"
    "--snapshot writes every chain of a snapshot to a file of its name in the folder OUT.\n"
    "The command can be interrupted and run again. Each file is complete or missing, and\n"
    "complete files are kept. OUT/export.json records the cache, snapshot and options of the\n"
    "files. A folder with other files, or with another record, is refused. A chain that cannot\n"
    "be exported is reported on standard error, and the other chains are exported.\n\n"
    "--json prints one object for a snapshot: snapshot, chains, written, kept, failed, left,\n"
    "seconds.\n\n"
    "Exit codes: 0 written, 1 failed or no such chain, 2 bad usage, 3 some chains of the\n"
    "snapshot failed; stopped by a signal: 143 SIGTERM, 130 SIGINT, 129 SIGHUP.\n\n"
    "Examples:\n"
    "  foldmill export --cache /fast/cache --chain 1ubq_A -o 1ubq_A.npz\n"
    "  foldmill export --cache /fast/cache --snapshot train --stage nonensembled \\\n"
    "      --format safetensors -o features";

int fm_cmd_export(int argc, char **argv) {
    export_arguments arguments = {.options = {.stage = "chain"}, .format = "npz"};
    const fm_option options[] = {
        {"cache", FM_OPTION_STRING, &arguments.cache, "DIR", "the cache to read",
         .is_required = true},
        {"chain", FM_OPTION_STRING, &arguments.chain, "ID",
         .help = "the chain or complex, e.g. 1abc_A or 1abc"},
        {"snapshot", FM_OPTION_STRING, &arguments.snapshot, "NAME",
         .help = "all chains and complexes of this snapshot; every cache has 'all'"},
        {"stage", FM_OPTION_STRING, &arguments.options.stage, "STAGE",
         .help = "which features: 'chain' or 'nonensembled' (chain)"},
        {"format", FM_OPTION_STRING, &arguments.format, "FORMAT",
         .help = "format of the files: 'npz' or 'safetensors' (npz)"},
        {"compat", FM_OPTION_STRING, &arguments.options.compat, "openfold",
         .help = "choose templates as OpenFold chooses them"},
        {"max-template-date", FM_OPTION_STRING, &arguments.options.max_date, "YYYY-MM-DD",
         .help = "ignore templates that were released later"},
        {"out", FM_OPTION_STRING, &arguments.out, "OUT",
         "the file to write, or with --snapshot the folder", .letter = 'o', .is_required = true},
        {"replace", FM_OPTION_FLAG, &arguments.replace, NULL,
         .help = "with --chain: replace an earlier file of features"},
        {"json", FM_OPTION_FLAG, &arguments.json, NULL, .help = "print one JSON object"},
        {"quiet", FM_OPTION_FLAG, &arguments.quiet, NULL, .help = "no progress", .letter = 'q'},
        {0}};
    const fm_command command = {
        .program = "foldmill export",
        .arguments = "--cache DIR --chain ID|--snapshot NAME -o OUT [options]",
        .summary = "write the features of chains and complexes as NumPy archives or safetensors",
        .description = description,
        .options = options,
    };
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_error error;
    fm_export_report report = {0};
    if (arguments.snapshot) {
        fm_cli_catch_signals(ask_stop);
        fm_cli_survive_writes();
    }
    fm_status status = check(&arguments, &error);
    if (!status) status = export(&arguments, &report, &error);
    if (status) return fm_program_report(command.program, &error);
    return arguments.snapshot ? print_report(&arguments, &report) : FM_EXIT_OK;
}
