/* cmd_build.c: foldmill build: a dataset becomes a cache. */
#include "cache/build/build.h"
#include "server/cli/build_plan.h"
#include "server/cli/build_report.h"
#include "server/cli/build_share.h"
#include "server/cli/commands.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Address space for the source and the new generation's lists. */
#define ARENA_BYTES ((size_t)24 << 30)

typedef struct build_arguments {
    const char *cache, *compat, *report, *progress;
    fm_source_options source; /* of the one dataset without a name */
    fm_option_list datasets;
    uint64_t jobs, shard_mb, worker_memory;
    bool single_sequence, quiet, dry_run, no_space_check;
    fm_build_share_arguments sharing;
    fm_build_share share;
    fm_source_options dataset[FM_OPTION_LIST_MAX];
    uint32_t n_dataset;
} build_arguments;

/* Set by the first SIGINT or SIGTERM; a second one ends the process the usual way. */
static volatile sig_atomic_t stop_asked;

static void ask_stop(int signal_number) {
    stop_asked = 1;
    signal(signal_number, SIG_DFL);
}

static void catch_signals(void) {
    struct sigaction action = {.sa_handler = ask_stop};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* Past a limit on file sizes, writes fail with an error that can be told. */
    signal(SIGXFSZ, SIG_IGN);
}

static const char description[] =
    "Reads the folders an OpenFold user has and keeps what is computed once: sequences,\n"
    "de-duplicated MSAs, template hits, structures.\n\n"
    "    DATASET/alignments/<id>_<chain>/*.a3m *.sto [.gz]\n"
    "    DATASET/pdb/<id>_<chain>/{a3m,hhr}/        (OpenProteinSet)\n"
    "    DATASET/alignment_db/*.db *.index          (sharded or legacy index)\n"
    "    DATASET/duplicate_pdb_chains.txt           (chains that share alignments)\n"
    "    DATASET/mmcifs/<id>.cif[.gz]               (or data, pdb_mmcif, mmcif_files;\n"
    "                                               also divided: mmcifs/ab/1abc.cif.gz;\n"
    "                                               also zip archives: pdb_mmcif.zip)\n"
    "    DATASET/data/<id>.pdb[.gz]                 (predictions, alignments/<id>/)\n"
    "    DATASET/uniclust30/<name>/{a3m,pdb}/       (OpenProteinSet's predictions)\n"
    "    DATASET/{,data_caches/}chain_data_cache.json, mmcif_cache.json; obsolete.dat\n\n"
    "What is there is recognised, and said; --dry-run says it without building. Symbolic\n"
    "links are followed. A chain is built when it has a folder of alignments and\n"
    "its structure. What cannot be read is refused with its place and reason, listed at\n"
    "the end and kept in the cache; the job goes on.\n\n"
    "Several datasets become one cache: --dataset NAME=DIR, once for each. Their chains are\n"
    "called NAME:<id>_<chain>. --dataset NAME:predicted=DIR says that the structures are\n"
    "predictions, whose B factors are confidence; so are those of the names distillation and\n"
    "uniclust30, and what lies in PDB files. Template hits name structures of the datasets\n"
    "that are no predictions, in the order given.\n\n"
    "Safe to interrupt at any instant and to run again: what was sealed is not made again,\n"
    "and the result is the same as that of an undisturbed run. Run again after the dataset\n"
    "changed, it makes what is new. The cache that was there stays readable throughout.\n\n"
    "Several workers, on any number of machines, build one dataset with --catalogue: each takes\n"
    "chains from the catalogue and writes shards of its own into its --cache, until nothing is\n"
    "left; foldmill merge makes one cache of them. docs/catalogue.md says more.\n\n"
    "Exit codes: 0 all chains built, 3 some refused, 1 none, or the job failed or was\n"
    "stopped, 2 bad usage.\n\n"
    "Examples: foldmill build ~/openproteinset --cache /fast/cache --jobs 16\n"
    "          foldmill build --dataset pdb=~/pdb --dataset distillation=~/uniclust30 --cache C";

static bool is_word(const char *text, size_t length, const char *word) {
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

/* "NAME=DIR" or "NAME:KIND=DIR"; the name is put into the arena. */
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
                       "--dataset is '%.200s'; expected NAME=DIR, NAME:predicted=DIR or "
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
        return fm_fail(reterr, FM_ERR_USAGE, "either DATASET or --dataset, not both");
    }
    if (!positional && !list->n) {
        return fm_fail(reterr, FM_ERR_USAGE, "expected DATASET, or --dataset NAME=DIR");
    }
    if (list->n && (one->structures || one->alignments || one->duplicates || one->is_predicted)) {
        return fm_fail(
            reterr, FM_ERR_USAGE,
            "--structures, --alignments, --duplicates, --chain-data and --predicted are of one "
            "DATASET; those of --dataset are found by themselves, and kinds are said "
            "as NAME:predicted=DIR");
    }
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < list->n && !status; i++)
        status = read_dataset(list->value[i], arena, &arguments->dataset[i], reterr);
    /* Templates are those of all datasets. */
    arguments->dataset[0].mmcif_cache = one->mmcif_cache;
    arguments->dataset[0].obsolete = one->obsolete;
    if (positional) arguments->dataset[0] = *one;
    if (positional) arguments->dataset[0].dataset = positional;
    arguments->n_dataset = positional ? 1 : list->n;
    return status;
}

/* A report that cannot be written: better said before days of building than after. */
static fm_status check_report(const char *path, fm_error *reterr) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (slash)
        snprintf(folder, sizeof folder, "%.*s/", (int)(slash - path), path);
    else
        snprintf(folder, sizeof folder, ".");
    if (access(folder, W_OK) == 0) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_IO, path, "cannot write the report here: %s", strerror(errno));
}

static fm_status check(const build_arguments *arguments, fm_error *reterr) {
    if (!arguments->cache && !arguments->dry_run) {
        return fm_fail(reterr, FM_ERR_USAGE, "--cache DIR is required");
    }
    if (arguments->progress && strcmp(arguments->progress, "json") != 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--progress is '%s'; only 'json' is known",
                       arguments->progress);
    }
    if (arguments->compat && strcmp(arguments->compat, "openfold") != 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--compat is '%s'; only 'openfold' is known",
                       arguments->compat);
    }
    return arguments->report ? check_report(arguments->report, reterr) : FM_OK;
}

enum { OPTIONS_MAX = 48 };

static void list_options(build_arguments *arguments, fm_option out[OPTIONS_MAX]) {
    const fm_option options[] = {
        {"cache", FM_OPTION_STRING, &arguments->cache, "DIR",
         "the cache to build or to bring up to date (required)", .letter = 0},
        {"jobs", FM_OPTION_U64, &arguments->jobs, "N",
         "worker threads; as many as there are processors when not given", .letter = 'j', .min = 1,
         .max = 1024},
        {"single-sequence", FM_OPTION_FLAG, &arguments->single_sequence, NULL,
         "also take chains without alignments, as single sequences", .letter = 0},
        {"compat", FM_OPTION_STRING, &arguments->compat, "MODE",
         "'openfold': the features of OpenFold's pipeline bit for bit, its quirks among them",
         .letter = 0},
        {"report", FM_OPTION_STRING, &arguments->report, "FILE",
         "write the report as JSON to FILE, too", .letter = 0},
        {"shard-mb", FM_OPTION_U64, &arguments->shard_mb, "N",
         "seal a shard at about N MB; 1024 when not given", .min = 1, .max = 1u << 20},
        {"worker-memory", FM_OPTION_U64, &arguments->worker_memory, "MIB",
         "memory of each worker at most (49152); a chain that needs more is refused", .min = 64,
         .max = 1u << 24},
        {"dataset", FM_OPTION_LIST, &arguments->datasets, "NAME=DIR",
         "one of several datasets; NAME:predicted=DIR: of predictions", .letter = 0},
        {"predicted", FM_OPTION_FLAG, &arguments->source.is_predicted, NULL,
         "the structures of DATASET are predictions", .letter = 0},
        {"structures", FM_OPTION_STRING, &arguments->source.structures, "DIR",
         "the folder or zip archive of structures, where it is not found by itself", .letter = 0},
        {"alignments", FM_OPTION_STRING, &arguments->source.alignments, "DIR",
         "the folder of alignments, or the .index of an alignment database", .letter = 0},
        {"duplicates", FM_OPTION_STRING, &arguments->source.duplicates, "FILE",
         "chains that share alignments, as duplicate_pdb_chains.txt", .letter = 0},
        {"chain-data", FM_OPTION_STRING, &arguments->source.chain_data, "FILE",
         "sizes of clusters, dates and resolutions of chains, as chain_data_cache.json",
         .letter = 0},
        {"mmcif-cache", FM_OPTION_STRING, &arguments->source.mmcif_cache, "FILE",
         "release dates of templates, as mmcif_cache.json", .letter = 0},
        {"obsolete", FM_OPTION_STRING, &arguments->source.obsolete, "FILE",
         "ids that others replaced, as the PDB's obsolete.dat", .letter = 0},
        {"no-space-check", FM_OPTION_FLAG, &arguments->no_space_check, NULL,
         "build even where the estimate says that the disk has no room", .letter = 0},
        {"dry-run", FM_OPTION_FLAG, &arguments->dry_run, NULL,
         "list chains, their files and what does not fit together; build nothing", .letter = 'n'},
        {"progress", FM_OPTION_STRING, &arguments->progress, "FORM",
         "'json': one JSON object a second to stderr", .letter = 0},
        {"quiet", FM_OPTION_FLAG, &arguments->quiet, NULL, "no progress", .letter = 'q'}};
    _Static_assert(sizeof options / sizeof options[0] + FM_BUILD_SHARE_OPTIONS <= OPTIONS_MAX,
                   "room for both tables");
    memcpy(out, options, sizeof options);
    fm_build_share_list(&arguments->sharing, out + sizeof options / sizeof options[0]);
}

static int parse(int argc, char **argv, build_arguments *arguments, fm_arena *arena) {
    fm_option options[OPTIONS_MAX];
    list_options(arguments, options);
    const fm_command command = {
        .program = "foldmill build",
        .arguments = "DATASET|--dataset NAME=DIR ... --cache DIR [options]",
        .summary = "make a cache of training features from a dataset",
        .description = description,
        .options = options,
        .min_positional = 0,
        .max_positional = 1,
    };
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_error error;
    fm_status status = check(arguments, &error);
    if (!status) status = fm_build_share_read(&arguments->sharing, &arguments->share, &error);
    if (!status) {
        status = read_datasets(arguments, n_positional ? argv[0] : NULL, arena, &error);
    }
    return status ? fm_cli_report(command.program, &error) : -1;
}

static int finish(const build_arguments *arguments, const char *dataset, fm_status status,
                  const fm_build_report *report, fm_error *error) {
    const char *outcome = status == FM_ERR_CANCELLED ? "stopped"
                          : status                   ? "none"
                          : report->n_refused        ? "some"
                                                     : "all";
    fm_build_print_report(stdout, arguments->cache, report);
    fflush(stdout);
    if (arguments->report) {
        fm_error write_error;
        if (fm_build_write_json(arguments->report, dataset, arguments->cache, outcome, report,
                                &write_error)) {
            return fm_cli_report("foldmill build", &write_error);
        }
    }
    if (status) return fm_cli_report("foldmill build", error);
    return report->n_refused ? FM_EXIT_PARTIAL : FM_EXIT_OK;
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
        fprintf(stderr, "structures: %s: %u\nalignments: %s: %u chains", dataset->structures_found,
                dataset->n_structure, dataset->alignments_found, dataset->n_chain);
        if (dataset->n_duplicate) fprintf(stderr, " (%u share another's)", dataset->n_duplicate);
        fprintf(stderr, "\n");
        fm_build_print_lists(stderr, dataset);
    }
    fprintf(stderr, "%u jobs\n", n_job);
}

static int build(const build_arguments *arguments, const fm_source *source, fm_arena *arena) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    fm_build_display display = {.quiet = arguments->quiet,
                                .json = arguments->progress != NULL,
                                .terminal = isatty(STDERR_FILENO)};
    const fm_build_options options = {
        .cache = arguments->cache,
        .n_job = arguments->jobs ? (uint32_t)arguments->jobs
                 : online > 0    ? (uint32_t)online
                                 : 1,
        .single_sequence = arguments->single_sequence,
        .features = {.compat_openfold = arguments->compat != NULL},
        .shard_bytes = arguments->shard_mb << 20,
        .worker_bytes = arguments->worker_memory << 20,
        .stop = &stop_asked,
        .progress = fm_build_display_show,
        .progress_context = &display,
    };
    fm_build_report report = {0};
    fm_build_share_report shared = {.n_item = 0};
    fm_error error;
    const fm_build_share *share = arguments->share.where ? &arguments->share : NULL;
    if (!arguments->quiet && !display.json) print_found(source, options.n_job);
    fm_status status =
        share ? fm_build_run_shared(source, &options, share, arena, &report, &shared, &error)
              : fm_build_run(source, &options, arena, &report, &error);
    fm_build_display_end(&display);
    if (status && status != FM_ERR_CANCELLED && (share || status != FM_ERR_DATA)) {
        return fm_cli_report("foldmill build", &error);
    }
    int code = finish(arguments, name_datasets(arguments, arena), status, &report, &error);
    if (share) fm_build_share_print(stdout, share, &shared);
    bool is_partial = code == FM_EXIT_OK && shared.job.n[FM_CATALOGUE_REFUSED];
    return is_partial ? FM_EXIT_PARTIAL : code;
}

/* Lists what would be done; fails where the build would be refused. */
static int plan(const build_arguments *arguments, const fm_source *source, fm_arena *arena) {
    fm_space space;
    fm_error error;
    int code = fm_build_dry_run(source, arena);
    fm_status status = fm_space_estimate(source, arguments->cache, arguments->single_sequence,
                                         arena, &space, &error);
    if (status) return fm_cli_report("foldmill build", &error);
    fm_build_print_room(stdout, &space, arguments->cache);
    fflush(stdout);
    if (!arguments->no_space_check) status = fm_space_check(&space, arguments->cache, &error);
    return status ? fm_cli_report("foldmill build", &error) : code;
}

/* Before anything is written: is there room, and is the disk of a kind that caches are built on? */
static fm_status check_room(const build_arguments *arguments, const fm_source *source,
                            fm_arena *arena, fm_error *reterr) {
    fm_space space;
    fm_status status = fm_space_estimate(source, arguments->cache, arguments->single_sequence,
                                         arena, &space, reterr);
    /* What share of a shared job will be this worker's, nobody knows. */
    if (status || arguments->no_space_check || arguments->share.where) return status;
    if (!arguments->quiet && !arguments->progress) {
        fm_build_print_room(stderr, &space, arguments->cache);
    }
    return fm_space_check(&space, arguments->cache, reterr);
}

static int run(const build_arguments *arguments, fm_arena *arena) {
    fm_source source;
    fm_error error;
    fm_status status =
        fm_source_scan_all(arguments->dataset, arguments->n_dataset, arena, &source, &error);
    if (status) return fm_cli_report("foldmill build", &error);
    int code;
    if (arguments->dry_run)
        code = plan(arguments, &source, arena);
    else if (check_room(arguments, &source, arena, &error))
        code = fm_cli_report("foldmill build", &error);
    else
        code = build(arguments, &source, arena);
    fm_source_close(&source);
    return code;
}

int fm_cmd_build(int argc, char **argv) {
    build_arguments arguments = {0};
    fm_arena arena;
    fm_error error;
    if (fm_arena_init(&arena, ARENA_BYTES, &error)) {
        return fm_cli_report("foldmill build", &error);
    }
    int code = parse(argc, argv, &arguments, &arena);
    if (code < 0) {
        catch_signals();
        code = run(&arguments, &arena);
    }
    fm_arena_fini(&arena);
    return code;
}
