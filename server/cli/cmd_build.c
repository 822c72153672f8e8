/* cmd_build.c: foldmill build: makes a cache from a dataset. */
#include "cache/build/build.h"
#include "featurizer/complex/components.h"
#include "proto/base/directory.h"
#include "proto/base/machine.h"
#include "proto/base/plural.h"
#include "server/cli/build_plan.h"
#include "server/cli/build_report.h"
#include "server/cli/build_share.h"
#include "server/cli/commands.h"
#include "server/cli/open_cache.h"
#include "server/cli/output_note.h"
#include "server/cli/progress.h"
#include "server/cli/read_input.h"
#include "server/cli/template_counts.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Address space for the source and the new generation's lists. */
#define ARENA_BYTES ((size_t)24 << 30)

typedef struct build_arguments {
    const char *cache, *compat, *report, *progress, *components;
    fm_source_options source; /* of the one dataset without a name */
    fm_option_list datasets;
    uint64_t jobs, shard_mb, worker_memory;
    bool single_sequence, complexes, quiet, dry_run, no_space_check, json, add, replace;
    fm_build_share_arguments sharing;
    fm_build_share share;
    fm_source_options dataset[FM_OPTION_LIST_MAX];
    uint32_t n_dataset;
} build_arguments;

/* The first SIGINT, SIGTERM or SIGHUP; a second one ends the process the usual way. */
static volatile sig_atomic_t stop_asked;

static void ask_stop(int signal_number) {
    stop_asked = signal_number;
    signal(signal_number, SIG_DFL);
}

/* In two parts, because C compilers need not take longer literals. */
static const char what_it_does[] =
    "Reads the folders that an OpenFold user has and computes everything that does not depend on\n"
    "chance: sequences, de-duplicated MSAs, template hits, structures. A cache keeps the results.\n"
    "\n"
    "    DATASET/alignments/<id>_<chain>/*.a3m *.sto\n"
    "    DATASET/alignments/<id>_<chain>.{a3m,sto,hhr}   flat, as ColabFold writes it\n"
    "    DATASET/pdb/<id>_<chain>/{a3m,hhr}/       OpenProteinSet\n"
    "    DATASET/alignment_db/*.db *.index         sharded or legacy index\n"
    "    DATASET/duplicate_pdb_chains.txt          chains that share alignments\n"
    "    DATASET/mmcifs/<id>.cif                   or data, pdb_mmcif, mmcif_files;\n"
    "                                              or divided: mmcifs/ab/1abc.cif.gz;\n"
    "                                              or zip archives: pdb_mmcif.zip\n"
    "    DATASET/data/<id>.pdb                     predictions, with alignments/<id>/\n"
    "    DATASET/uniclust30/<name>/{a3m,pdb}/      OpenProteinSet's predictions\n"
    "    DATASET/{,data_caches/}chain_data_cache.json, mmcif_cache.json\n"
    "    DATASET/obsolete.dat, clusters-by-entity-40.txt\n"
    "    DATASET/{mmcif,mmcif_msa_template,common,rna_msa}/    Protenix, for complexes\n\n"
    "Every file may be compressed: .gz, .xz or .zst. PDB ids may be in any case.\n"
    "The command recognises which of these exist and reports them; --dry-run reports them\n"
    "without building. Symbolic links are followed. A chain is built when it has a folder of\n"
    "alignments and its structure. An input that cannot be read is refused: the report gives\n"
    "the place and the reason, the cache keeps both, and the job goes on.\n\n"
    "Several datasets become one cache with --dataset NAME=DIR, once for each. Their chains are\n"
    "called NAME:<id>_<chain>. --dataset NAME:predicted=DIR marks the structures as\n"
    "predictions, whose B factors are confidence. The names distillation and uniclust30 imply\n"
    "that, and so do PDB files. Template hits refer to structures of the datasets that are not\n"
    "predictions, in the order given.\n\n"
    "A cache may hold several datasets that were built one after the other. Chains of datasets\n"
    "with other names always stay in it. The cache may have been built from another dataset of\n"
    "the same name, or both may have no name. Then the build is refused: --add keeps the chains\n"
    "that are in the cache, --replace leaves them out. The report counts what was added, kept\n"
    "and left.\n\n"
    "The command can be interrupted at any time and run again. Sealed shards are kept, and the\n"
    "result is the same as that of an undisturbed run. After a change of the dataset it builds\n"
    "only what is new. The existing cache stays readable throughout.\n\n"
    "With --catalogue, several workers on any number of machines build one dataset. Each takes\n"
    "chains from the catalogue and writes shards into its own --cache, until no chain is left.\n"
    "Then foldmill merge makes one cache of them. docs/reference/catalogue.md explains it.\n\n"
    "--complexes also makes what AlphaFold 3 trains on: the biological assembly of every\n"
    "experimental mmCIF file, called <id>, with the alignments of its chains. An entity whose\n"
    "chains have none is built of its sequence alone, and the report counts it. Rows to pair\n"
    "by species are in uniprot_hits.sto or .a3m. The chemical components come from --components,\n"
    "or from the cache, into which foldmill components FILE --cache DIR puts them. A build\n"
    "without --complexes leaves the complexes of its datasets out. With --dry-run, some of the\n"
    "complexes are made for at most 5 s, and kept nowhere, to estimate space and time.\n\n";

static const char what_it_prints[] =
    "--json prints the report as one object, and --report FILE writes it to a file: outcome\n"
    "(all, some, none, stopped), dataset, cache, generation, published, content, chains,\n"
    "complexes, refused, refused_by_reason {REASON: n}, refusals [{chain, reason}],\n"
    "proteins_of_complexes, proteins_without_cluster, stored_bytes, decoded_bytes, added,\n"
    "kept, left, dataset_inferred, built, reused, refused_inputs {REASON: n},\n"
    "without_alignments, entities_without_alignments, alignments_left_out,\n"
    "without_template_hits, templates (as foldmill stats), input_bytes, mb_per_s,\n"
    "bytes_per_chain, written_bytes, peak_resident_bytes, seconds. With --catalogue it also has\n"
    "worker {name, items, lost, connections_lost} and job {name, done, refused, leased,\n"
    "pending}. With --dry-run, the object has datasets [{name, predicted, structures_found, "
    "structures,\n"
    "alignments_found, chains}], chains [{chain, structure, files [{name, bytes}] or\n"
    "refused}], refused_inputs [{name, reason}], refused,\n"
    "single_sequence_structures, complexes, duplicates, without_alignments, "
    "without_template_hits,\n"
    "files, file_bytes, sample {structures, complexes, refused, tokens, input_bytes,\n"
    "stored_bytes, seconds} or not_sampled, need_seconds, need_bytes, free_bytes.\n\n"
    "Exit codes: 0 all chains built, 3 some refused, 1 none built or failed, 2 bad usage;\n"
    "stopped by a signal: 143 SIGTERM, 130 SIGINT, 129 SIGHUP.\n\n"
    "Examples:\n"
    "  foldmill build ~/openproteinset --cache /fast/cache --jobs 16\n"
    "  foldmill build --dataset pdb=~/pdb --dataset distillation=~/uniclust30 \\\n"
    "      --cache /fast/cache";

static bool is_word(const char *text, size_t length, const char *word) {
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

/* Reads "NAME=DIR" or "NAME:KIND=DIR"; the name is copied into the arena. */
static fm_status read_dataset(const char *text, fm_arena *arena, fm_source_options *ret_options,
                              fm_error *reterr) {
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : 0, name_bytes = strcspn(text, ":=");
    const char *kind = name_bytes < length ? text + name_bytes + 1 : NULL;
    size_t kind_bytes = kind ? (size_t)(equals - kind) : 0;
    bool is_predicted =
        kind ? is_word(kind, kind_bytes, "predicted")
             : is_word(text, name_bytes, "distillation") || is_word(text, name_bytes, "uniclust30");
    if (!equals || !equals[1] ||
        (kind && !is_predicted && !is_word(kind, kind_bytes, "experimental"))) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--dataset: found '%.200s', expected NAME=DIR, NAME:predicted=DIR or "
                       "NAME:experimental=DIR",
                       text);
    }
    char *name = fm_arena_alloc(arena, name_bytes + 1);
    if (!name) return fm_arena_full(arena, reterr);
    memcpy(name, text, name_bytes);
    name[name_bytes] = '\0';
    *ret_options =
        (fm_source_options){.dataset = equals + 1, .name = name, .is_predicted = is_predicted};
    return FM_OK;
}

static fm_status read_datasets(build_arguments *arguments, const char *positional, fm_arena *arena,
                               fm_error *reterr) {
    const fm_option_list *list = &arguments->datasets;
    const fm_source_options *one = &arguments->source;
    if (positional && list->n) {
        return fm_fail(reterr, FM_ERR_USAGE, "give either DATASET or --dataset, not both");
    }
    if (!positional && !list->n) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "a dataset is required: DATASET, or --dataset NAME=DIR");
    }
    if (list->n && (one->structures || one->alignments || one->duplicates || one->chain_data ||
                    one->entity_clusters || one->is_predicted)) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--structures, --alignments, --duplicates, --chain-data, --entity-clusters "
                       "and --predicted need DATASET; with --dataset they are found in DIR, and "
                       "NAME:predicted=DIR marks predictions");
    }
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < list->n && !status; i++)
        status = read_dataset(list->value[i], arena, &arguments->dataset[i], reterr);
    /* The lists about templates hold for all datasets. */
    arguments->dataset[0].mmcif_cache = one->mmcif_cache;
    arguments->dataset[0].obsolete = one->obsolete;
    if (positional) arguments->dataset[0] = *one;
    if (positional) arguments->dataset[0].dataset = positional;
    arguments->n_dataset = positional ? 1 : list->n;
    return status;
}

/* Checks before days of building that the report can be written. An earlier one begins as
 * fm_build_print_json begins it; inputs are JSON, too. */
static fm_status check_report(const char *path, fm_error *reterr) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (slash) {
        snprintf(folder, sizeof folder, "%.*s/", (int)(slash - path), path);
    } else {
        snprintf(folder, sizeof folder, ".");
    }
    if (fm_path_is_writable(folder)) {
        return fm_output_check_like(path, "--report", "report", "{\n  \"outcome\": ", reterr);
    }
    return fm_fail_in(reterr, FM_ERR_IO, path, "cannot write the report here: %s", strerror(errno));
}

static bool is_compat(const build_arguments *arguments, const char *mode) {
    return arguments->compat && strcmp(arguments->compat, mode) == 0;
}

static fm_status check(const build_arguments *arguments, fm_error *reterr) {
    if (!arguments->cache && !arguments->dry_run) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--cache DIR is required; foldmill build --help explains it");
    }
    if (arguments->progress && strcmp(arguments->progress, "json") != 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--progress: found '%s', expected json",
                       arguments->progress);
    }
    if (arguments->compat && !is_compat(arguments, "openfold") &&
        !is_compat(arguments, "protenix")) {
        return fm_fail(reterr, FM_ERR_USAGE, "--compat: found '%s', expected openfold or protenix",
                       arguments->compat);
    }
    if (is_compat(arguments, "protenix") && !arguments->complexes) {
        return fm_fail(reterr, FM_ERR_USAGE, "--compat protenix is for --complexes");
    }
    if (arguments->components && !arguments->complexes) {
        return fm_fail(reterr, FM_ERR_USAGE, "--components is for --complexes");
    }
    if (arguments->source.entity_clusters && !arguments->complexes) {
        return fm_fail(reterr, FM_ERR_USAGE, "--entity-clusters is for --complexes");
    }
    if (arguments->add && arguments->replace) {
        return fm_fail(reterr, FM_ERR_USAGE, "give either --add or --replace, not both");
    }
    return arguments->report ? check_report(arguments->report, reterr) : FM_OK;
}

enum { OPTIONS_MAX = 48 };

static void list_options(build_arguments *arguments, fm_option out[OPTIONS_MAX]) {
    const fm_option options[] = {
        {"cache", FM_OPTION_STRING, &arguments->cache, "DIR",
         .help = "the cache to build or to extend (required)"},
        {"jobs", FM_OPTION_U64, &arguments->jobs, "N", "worker threads (one per processor)",
         .letter = 'j', .min = 1, .max = 1024},
        {"single-sequence", FM_OPTION_FLAG, &arguments->single_sequence, NULL,
         .help = "also build chains without alignments, as single sequences"},
        {"complexes", FM_OPTION_FLAG, &arguments->complexes, NULL,
         .help = "also build complexes: the biological assemblies of experimental mmCIF files"},
        {"components", FM_OPTION_STRING, &arguments->components, "FILE",
         .help = "the chemical components of complexes, as foldmill components reads them (the "
                 "cache's)"},
        {"compat", FM_OPTION_STRING, &arguments->compat, "MODE",
         .help =
             "'openfold': the features of OpenFold's pipeline bit for bit, including its quirks; "
             "'protenix': the complexes of Protenix's"},
        {"report", FM_OPTION_STRING, &arguments->report, "FILE",
         .help =
             "also write the report to FILE, as --json prints it; an earlier report is replaced"},
        {"shard-mb", FM_OPTION_U64, &arguments->shard_mb, "N", "seal a shard at about N MB (1024)",
         .min = 1, .max = 1u << 20},
        {"worker-memory", FM_OPTION_U64, &arguments->worker_memory, "MIB",
         "memory limit of each worker (its share of the machine's memory, 1024 to 49152); a chain "
         "that needs more is refused, and so is a file that unpacks to a quarter of it",
         .min = 64, .max = 1u << 24},
        {"dataset", FM_OPTION_LIST, &arguments->datasets, "NAME=DIR",
         .help = "one of several datasets; NAME:predicted=DIR for predictions; may be repeated"},
        {"add", FM_OPTION_FLAG, &arguments->add, NULL,
         .help = "keep the cache's chains of another dataset beside the new ones"},
        {"replace", FM_OPTION_FLAG, &arguments->replace, NULL,
         .help = "leave the cache's chains of another dataset out"},
        {"predicted", FM_OPTION_FLAG, &arguments->source.is_predicted, NULL,
         .help = "the structures of DATASET are predictions"},
        {"structures", FM_OPTION_STRING, &arguments->source.structures, "DIR",
         "the folder or zip archive of structures, where it is not recognised",
         .again = "the files must be in one place"},
        {"alignments", FM_OPTION_STRING, &arguments->source.alignments, "DIR",
         "the folder of alignments, or the .index of an alignment database",
         .again = "the files must be in one place"},
        {"duplicates", FM_OPTION_STRING, &arguments->source.duplicates, "FILE",
         .help = "chains that share alignments, in the format of duplicate_pdb_chains.txt"},
        {"chain-data", FM_OPTION_STRING, &arguments->source.chain_data, "FILE",
         .help = "cluster sizes, dates and resolutions of chains, in the format of "
                 "chain_data_cache.json"},
        {"mmcif-cache", FM_OPTION_STRING, &arguments->source.mmcif_cache, "FILE",
         .help = "release dates of templates, in the format of mmcif_cache.json"},
        {"obsolete", FM_OPTION_STRING, &arguments->source.obsolete, "FILE",
         .help = "replaced ids, in the format of the PDB's obsolete.dat"},
        {"entity-clusters", FM_OPTION_STRING, &arguments->source.entity_clusters, "FILE",
         .help = "clusters of the proteins of complexes, in the format of RCSB's "
                 "clusters-by-entity-40.txt"},
        {"no-space-check", FM_OPTION_FLAG, &arguments->no_space_check, NULL,
         .help = "build even if the estimate exceeds the free space of the disk"},
        {"dry-run", FM_OPTION_FLAG, &arguments->dry_run, NULL,
         "list chains, their files and refused inputs; build nothing", .letter = 'n'},
        {"progress", FM_OPTION_STRING, &arguments->progress, "FORM",
         .help = "'json': print one JSON object per second to stderr"},
        {"json", FM_OPTION_FLAG, &arguments->json, NULL,
         .help = "print the report as one JSON object"},
        {"quiet", FM_OPTION_FLAG, &arguments->quiet, NULL, "no progress", .letter = 'q'}};
    static_assert(sizeof options / sizeof options[0] + FM_BUILD_SHARE_OPTIONS <= OPTIONS_MAX,
                  "room for both tables");
    memcpy(out, options, sizeof options);
    fm_build_share_list(&arguments->sharing, out + sizeof options / sizeof options[0]);
}

static int parse(int argc, char **argv, build_arguments *arguments, fm_arena *arena) {
    fm_option options[OPTIONS_MAX];
    char description[sizeof what_it_does + sizeof what_it_prints];
    list_options(arguments, options);
    snprintf(description, sizeof description, "%s%s", what_it_does, what_it_prints);
    const fm_command command = {
        .program = "foldmill build",
        .arguments = "DATASET|--dataset NAME=DIR ... --cache DIR [options]",
        .summary = "make a cache of training features from a dataset",
        .description = description,
        .options = options,
        .min_positional = 0,
        .max_positional = 2, /* one; two get an error with advice */
    };
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_error error;
    fm_status status = FM_OK;
    if (n_positional == 2) {
        status =
            fm_fail(&error, FM_ERR_USAGE, "unexpected argument '%.200s'; did you mean '%s%.200s'?",
                    argv[1], arguments->cache ? "--dataset NAME=" : "--cache ", argv[1]);
    }
    if (!status) status = check(arguments, &error);
    if (!status) status = fm_build_share_read(&arguments->sharing, &arguments->share, &error);
    if (!status) status = read_datasets(arguments, n_positional ? argv[0] : NULL, arena, &error);
    return status ? fm_program_report(command.program, &error) : -1;
}

/* Prints and writes the report; the exit code. */
static int finish(const build_arguments *arguments, fm_build_summary *summary, fm_status status,
                  fm_error *error) {
    const fm_build_report *report = summary->report;
    summary->outcome = status == FM_ERR_CANCELLED ? "stopped"
                       : status                   ? "none"
                       : report->n_refused        ? "some"
                                                  : "all";
    if (arguments->json) {
        fm_build_print_json(stdout, summary);
    } else {
        fm_build_print_report(stdout, arguments->cache, report);
    }
    if (summary->templates && !arguments->json) fm_template_print(stdout, summary->templates);
    if (summary->share && !arguments->json) {
        fm_build_share_print(stdout, summary->share, summary->shared);
    }
    fflush(stdout);
    if (arguments->report) {
        fm_error write_error;
        if (fm_build_write_json(arguments->report, summary, &write_error)) {
            return fm_program_report("foldmill build", &write_error);
        }
    }
    if (status == FM_ERR_CANCELLED && stop_asked) {
        (void)fm_program_report("foldmill build", error);
        return fm_cli_signal_code(stop_asked);
    }
    if (status) return fm_program_report("foldmill build", error);
    bool job_refused = summary->share && summary->shared->job.n[FM_CATALOGUE_REFUSED];
    return report->n_refused || job_refused ? FM_EXIT_PARTIAL : FM_EXIT_OK;
}

/* The datasets as the report names them: "DIR", or "NAME=DIR NAME=DIR". */
static const char *name_datasets(const build_arguments *arguments, fm_arena *arena) {
    size_t bytes = 1, at = 0;
    if (!arguments->dataset[0].name) return arguments->dataset[0].dataset;
    for (uint32_t i = 0; i < arguments->n_dataset; i++)
        bytes += strlen(arguments->dataset[i].name) + strlen(arguments->dataset[i].dataset) + 2;
    char *text = fm_arena_alloc(arena, bytes);
    for (uint32_t i = 0; i < arguments->n_dataset && text; i++) {
        at += (size_t)snprintf(text + at, bytes - at, "%s%s=%s", i ? " " : "",
                               arguments->dataset[i].name, arguments->dataset[i].dataset);
    }
    return text ? text : "";
}

static void print_found(const fm_source *source, uint32_t n_job) {
    for (uint32_t i = 0; i < source->n_dataset; i++) {
        const fm_source_dataset *dataset = &source->dataset[i];
        if (dataset->name[0]) {
            fprintf(stderr, "dataset %s%s\n", dataset->name,
                    dataset->is_predicted ? ": predictions" : "");
        }
        fprintf(stderr, "structures: %s: %u\nalignments: %s: %u chain%s", dataset->structures_found,
                dataset->n_structure, dataset->alignments_found, dataset->n_chain,
                fm_plural(dataset->n_chain));
        if (dataset->n_duplicate) {
            fprintf(stderr, " (%u share the alignments of another)", dataset->n_duplicate);
        }
        fprintf(stderr, "\n");
        fm_build_print_lists(stderr, dataset);
    }
    fprintf(stderr, "jobs: %u\n", n_job);
}

static uint32_t count_jobs(const build_arguments *arguments) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return arguments->jobs ? (uint32_t)arguments->jobs : online > 0 ? (uint32_t)online : 1;
}

/* The limit of a worker: as given, or its share of the machine's memory within bounds. Says so when
 * all workers together could need more than the machine has. */
static uint64_t choose_memory(const build_arguments *arguments, uint32_t n_job) {
    const uint64_t least = (uint64_t)1 << 30, most = (uint64_t)48 << 30;
    uint64_t machine = fm_machine_memory(), bytes = arguments->worker_memory << 20;
    if (!bytes) {
        bytes = machine / n_job;
        bytes = bytes < least ? least : bytes > most ? most : bytes;
    }
    if (bytes > machine / n_job && !arguments->quiet) {
        fprintf(stderr,
                "foldmill build: %u workers may need %llu MiB each, and there are %llu MiB; fewer "
                "--jobs or less --worker-memory is safe\n",
                n_job, (unsigned long long)(bytes >> 20), (unsigned long long)(machine >> 20));
    }
    return bytes;
}

static fm_status estimate(const build_arguments *arguments, const fm_source *source,
                          fm_arena *arena, fm_space *ret_space, fm_error *reterr) {
    const fm_space_options options = {arguments->cache, arguments->single_sequence,
                                      arguments->complexes};
    return fm_space_estimate(source, &options, arena, ret_space, reterr);
}

static fm_build_others_policy others_of(const build_arguments *arguments) {
    return arguments->add       ? FM_BUILD_OTHERS_ADD
           : arguments->replace ? FM_BUILD_OTHERS_REPLACE
                                : FM_BUILD_OTHERS_CHECK;
}

/* Counts the template hits of the generation in force. The build is done; if they cannot be
 * read, it says so, and foldmill verify finds out more. */
static bool count_templates(const build_arguments *arguments, fm_arena *arena,
                            fm_template_counts *ret_counts) {
    fm_store *store;
    fm_error error;
    fm_status status = fm_store_open(arguments->cache, &store, &error);
    if (!status) {
        status = fm_template_count(store, arena, ret_counts, &error);
        fm_store_close(store);
    }
    if (status) {
        (void)fm_program_report("foldmill build: the template hits are not counted", &error);
    }
    return !status;
}

/* Reads the components that the command names; *ret_components = NULL when it names none. */
static fm_status read_components(const build_arguments *arguments, fm_arena *arena,
                                 fm_components *components, const fm_components **ret_components,
                                 fm_error *reterr) {
    *ret_components = NULL;
    if (!arguments->components) return FM_OK;
    fm_status status = fm_cli_read_components(arguments->components, arena, components, reterr);
    if (!status) *ret_components = components;
    return status;
}

static int build(const build_arguments *arguments, const fm_source *source, fm_arena *arena) {
    fm_components components;
    const fm_components *named;
    fm_error error;
    if (read_components(arguments, arena, &components, &named, &error)) {
        return fm_program_report("foldmill build", &error);
    }
    fm_build_display display = {.quiet = arguments->quiet,
                                .json = arguments->progress != NULL,
                                .terminal = fm_progress_has_terminal()};
    uint32_t n_job = count_jobs(arguments);
    const fm_build_options options = {
        .cache = arguments->cache,
        .n_job = n_job,
        .single_sequence = arguments->single_sequence,
        .complexes = arguments->complexes,
        .components = named,
        .compat_protenix = is_compat(arguments, "protenix"),
        .features = {.compat_openfold = is_compat(arguments, "openfold")},
        .others = others_of(arguments),
        .shard_bytes = arguments->shard_mb << 20,
        .worker_bytes = choose_memory(arguments, n_job),
        .stop = &stop_asked,
        .progress = fm_build_display_show,
        .progress_context = &display,
    };
    fm_build_report report = {0};
    fm_build_share_report shared = {.n_item = 0};
    const fm_build_share *share = arguments->share.where ? &arguments->share : NULL;
    if (!arguments->quiet && !display.json) print_found(source, options.n_job);
    fm_status status =
        share ? fm_build_run_shared(source, &options, share, arena, &report, &shared, &error)
              : fm_build_run(source, &options, arena, &report, &error);
    fm_build_display_end(&display);
    if (status && status != FM_ERR_CANCELLED && (share || status != FM_ERR_DATA)) {
        return fm_program_report("foldmill build", &error);
    }
    fm_build_summary summary = {.dataset = name_datasets(arguments, arena),
                                .cache = arguments->cache,
                                .report = &report,
                                .share = share,
                                .shared = &shared};
    fm_template_counts templates;
    if (!status && !share && count_templates(arguments, arena, &templates)) {
        summary.templates = &templates;
    }
    return finish(arguments, &summary, status, &error);
}

/* Makes some of the complexes to estimate the rest, for at most so many seconds. *ret_why says why
 * nothing was measured; NULL = it was. */
static fm_status measure(const build_arguments *arguments, const fm_source *source, fm_arena *arena,
                         fm_space *space, fm_build_sample *ret_sample, const char **ret_why,
                         fm_error *reterr) {
    enum { SECONDS = 5 };
    const char *path = arguments->components;
    fm_components components;
    fm_build_options options = {.cache = arguments->cache,
                                .n_job = 1,
                                .single_sequence = arguments->single_sequence,
                                .complexes = true,
                                .compat_protenix = is_compat(arguments, "protenix"),
                                .features = {.compat_openfold = is_compat(arguments, "openfold")},
                                .worker_bytes = arguments->worker_memory << 20};
    *ret_why = NULL;
    if (path && !fm_cli_reads_components_fast(path)) {
        *ret_why = "the components are a long text; foldmill components FILE -o OUT makes a file "
                   "that is read at once";
        return FM_OK;
    }
    if (!path && !arguments->cache) {
        *ret_why = "complexes need the chemical components: --components FILE, or a --cache that "
                   "has them";
        return FM_OK;
    }
    fm_status status = read_components(arguments, arena, &components, &options.components, reterr);
    if (!status) status = fm_build_measure(source, &options, SECONDS, arena, ret_sample, reterr);
    if (!status) fm_build_sample_apply(ret_sample, space);
    return status;
}

/* Shows what a build would do; fails where the build would refuse to start. */
static int plan(const build_arguments *arguments, const fm_source *source, fm_arena *arena) {
    fm_space space;
    fm_build_sample sample = {0};
    fm_error error;
    const char *why = NULL;
    fm_status status = estimate(arguments, source, arena, &space, &error);
    bool has_space = !status;
    if (!status && space.n_new_complex) {
        status = measure(arguments, source, arena, &space, &sample, &why, &error);
    }
    const fm_build_plan shown = {.space = has_space ? &space : NULL,
                                 .sample = sample.n_structure ? &sample : NULL,
                                 .not_sampled = why,
                                 .cache = arguments->cache,
                                 .n_job = count_jobs(arguments),
                                 .json = arguments->json,
                                 .single_sequence = arguments->single_sequence,
                                 .complexes = arguments->complexes,
                                 .takes_empty = arguments->single_sequence ||
                                                is_compat(arguments, "openfold")};
    int code = fm_build_dry_run(source, &shown, arena);
    fflush(stdout);
    if (!status && !arguments->no_space_check) {
        status = fm_space_check(&space, arguments->cache, &error);
    }
    const fm_build_options options = {.cache = arguments->cache,
                                      .n_job = 1,
                                      .single_sequence = arguments->single_sequence,
                                      .others = others_of(arguments)};
    if (!status && arguments->cache && !arguments->share.where) {
        status = fm_build_check_datasets(source, &options, arena, &error);
    }
    return status ? fm_program_report("foldmill build", &error) : code;
}

/* Checks before anything is written that the disk has the space, and is of a kind that a cache can
 * be built on. The estimate is high: where it is more than the disk has, complexes are measured. */
static fm_status check_room(const build_arguments *arguments, const fm_source *source,
                            fm_arena *arena, fm_error *reterr) {
    fm_space space;
    fm_build_sample sample;
    const char *why;
    fm_status status = estimate(arguments, source, arena, &space, reterr);
    /* The share of this worker in a shared job is not known. */
    if (status || arguments->no_space_check || arguments->share.where) return status;
    if (space.n_new_complex && space.need_bytes > space.free_bytes) {
        status = measure(arguments, source, arena, &space, &sample, &why, reterr);
        if (status) return status;
    }
    if (!arguments->quiet && !arguments->progress) {
        fm_build_print_room(stderr, &space, arguments->cache);
    }
    return fm_space_check(&space, arguments->cache, reterr);
}

static int run(const build_arguments *arguments, fm_arena *arena) {
    fm_source source;
    fm_error error;
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < arguments->n_dataset && !status; i++) {
        const char *dataset = arguments->dataset[i].dataset;
        status = fm_cli_check_dataset(dataset, &error);
        if (!status && arguments->cache) {
            status = fm_cli_check_target("--cache", arguments->cache, dataset, &error);
        }
        if (!status && arguments->share.publish) {
            status = fm_cli_check_target("--publish", arguments->share.publish, dataset, &error);
        }
    }
    if (!status) {
        status = fm_source_scan(arguments->dataset, arguments->n_dataset, arena, &source, &error);
    }
    if (status) return fm_program_report("foldmill build", &error);
    int code;
    if (arguments->dry_run) {
        code = plan(arguments, &source, arena);
    } else if (check_room(arguments, &source, arena, &error)) {
        code = fm_program_report("foldmill build", &error);
    } else {
        code = build(arguments, &source, arena);
    }
    fm_source_close(&source);
    return code;
}

int fm_cmd_build(int argc, char **argv) {
    build_arguments arguments = {0};
    fm_arena arena;
    fm_error error;
    if (fm_arena_init(&arena, ARENA_BYTES, &error)) {
        return fm_program_report("foldmill build", &error);
    }
    int code = parse(argc, argv, &arguments, &arena);
    if (code < 0) {
        if (!arguments.dry_run) {
            fm_cli_catch_signals(ask_stop);
            fm_cli_survive_writes();
        }
        code = run(&arguments, &arena);
    }
    fm_arena_fini(&arena);
    return code;
}
