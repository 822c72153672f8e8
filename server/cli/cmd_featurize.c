/* cmd_featurize.c: foldmill featurize: makes a cache of chains that have no structure, from FASTA
 * files and alignments. foldmill predict runs it for its inputs. */
#include "cache/build/build.h"
#include "proto/base/machine.h"
#include "server/cli/build_report.h"
#include "server/cli/commands.h"
#include "server/cli/open_cache.h"
#include "server/cli/progress.h"

#include <signal.h>
#include <unistd.h>

/* Address space for the source and the new generation's lists. */
#define ARENA_BYTES ((size_t)8 << 30)

enum { MOST_INPUTS = 1 << 20 };

typedef struct featurize_arguments {
    const char *cache;
    fm_source_queries queries;
    uint64_t jobs;
    bool quiet, json;
} featurize_arguments;

static const char program[] = "foldmill featurize";

static volatile sig_atomic_t stop_asked;

static void ask_stop(int signal_number) {
    stop_asked = signal_number;
    signal(signal_number, SIG_DFL);
}

static const char description[] =
    "Alignments must exist already, because foldmill does not search databases. ColabFold's\n"
    "MMseqs2 search (colabfold_search, or its public server) makes them, as do jackhmmer and\n"
    "HHblits in AlphaFold's pipeline; hhsearch makes template hits.\n\n"
    "Makes a cache of chains that have no structure. Each INPUT is one chain:\n\n"
    "  NAME.fasta        one chain (.fa, .fas, .faa, .seq), with its alignments beside it: in\n"
    "                    the folder alignments/NAME or NAME, or in the files NAME.a3m,\n"
    "                    NAME.sto, NAME.hhr\n"
    "  NAME.a3m, .sto    an alignment whose first row is the chain, such as ColabFold's;\n"
    "                    NAME.hhr beside it has template hits\n\n"
    "Every file may be compressed: .gz, .xz or .zst. `foldmill predict --cache` predicts the\n"
    "chains of the cache, and `foldmill predict INPUT...` runs this command for its inputs. A\n"
    "cache of earlier inputs is replaced as a whole; one of foldmill build is refused. Template\n"
    "hits refer to the mmCIF files of --templates; without it no template is used.\n\n"
    "An input that cannot be read is refused with the place and the reason, and the other\n"
    "inputs are prepared. --json prints the report of `foldmill build --json`.\n\n"
    "Exit codes: 0 all inputs accepted, 3 some refused, 1 all refused or failed, 2 bad usage;\n"
    "stopped by a signal: 143 SIGTERM, 130 SIGINT, 129 SIGHUP.\n\n"
    "Examples:\n"
    "  foldmill featurize targets/*.a3m --cache targets.cache\n"
    "  foldmill featurize T1024.fasta --templates pdb_mmcif --cache targets.cache";

static int finish(const featurize_arguments *arguments, const fm_build_report *report,
                  fm_status status, const fm_error *error) {
    const fm_build_summary summary = {.outcome = status == FM_ERR_CANCELLED ? "stopped"
                                                 : status                   ? "none"
                                                 : report->n_refused        ? "some"
                                                                            : "all",
                                      .dataset = "inputs",
                                      .cache = arguments->cache,
                                      .report = report};
    if (arguments->json) {
        fm_build_print_json(stdout, &summary);
    } else {
        fm_build_print_report(stdout, arguments->cache, report);
    }
    fflush(stdout);
    if (status == FM_ERR_CANCELLED && stop_asked) {
        (void)fm_program_report(program, error);
        return fm_cli_signal_code(stop_asked);
    }
    /* The JSON report says why every input was refused; one more line would only repeat it. */
    bool says_all = arguments->json && report->n_refused == arguments->queries.n;
    if (status == FM_ERR_DATA && says_all) return FM_EXIT_FAILED;
    if (status) return fm_program_report(program, error);
    return report->n_refused ? FM_EXIT_PARTIAL : FM_EXIT_OK;
}

static int featurize(const featurize_arguments *arguments, fm_arena *arena) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    const uint64_t least = (uint64_t)1 << 30, most = (uint64_t)48 << 30;
    uint32_t n_job = arguments->jobs ? (uint32_t)arguments->jobs
                     : online > 0    ? (uint32_t)online
                                     : 1;
    if (n_job > arguments->queries.n) n_job = arguments->queries.n;
    fm_build_display display = {.quiet = arguments->quiet, .terminal = fm_progress_has_terminal()};
    const fm_build_options options = {
        .cache = arguments->cache,
        .n_job = n_job,
        .others = FM_BUILD_OTHERS_REPLACE,
        .worker_bytes = fm_machine_fit(most, fm_machine_memory(), 1.0 / n_job, least),
        .stop = &stop_asked,
        .progress = fm_build_display_show,
        .progress_context = &display,
    };
    fm_source source;
    fm_error error;
    fm_build_report report = {0};
    fm_status status = fm_cli_check_target("--cache", arguments->cache, NULL, &error);
    if (!status) status = fm_build_check_queries(arguments->cache, arena, &error);
    if (!status) status = fm_source_of_queries(&arguments->queries, arena, &source, &error);
    if (status) return fm_program_report(program, &error);
    status = fm_build_run(&source, &options, arena, &report, &error);
    fm_build_display_end(&display);
    int code = status && status != FM_ERR_CANCELLED && status != FM_ERR_DATA
                   ? fm_program_report(program, &error)
                   : finish(arguments, &report, status, &error);
    fm_source_close(&source);
    return code;
}

int fm_cmd_featurize(int argc, char **argv) {
    featurize_arguments arguments = {.cache = NULL};
    const fm_option options[] = {
        {"cache", FM_OPTION_STRING, &arguments.cache, "DIR", "the cache to make",
         .is_required = true},
        {"alignments", FM_OPTION_STRING, &arguments.queries.alignments, "DIR",
         "folder of the FASTA files' alignments (beside each file)",
         .again = "the files must be in one place"},
        {"templates", FM_OPTION_STRING, &arguments.queries.templates, "DIR",
         "folder or zip archive of the mmCIF files that template hits name",
         .again = "the files must be in one place"},
        {"single-sequence", FM_OPTION_FLAG, &arguments.queries.single_sequence, NULL,
         .help = "use the sequences alone, without alignments and hits"},
        {"jobs", FM_OPTION_U64, &arguments.jobs, "N", "worker threads (one per processor)",
         .letter = 'j', .min = 1, .max = 1024},
        {"json", FM_OPTION_FLAG, &arguments.json, NULL,
         .help = "print the report as one JSON object"},
        {"quiet", FM_OPTION_FLAG, &arguments.quiet, NULL, "no progress", .letter = 'q'},
        {0}};
    const fm_command command = {.program = program,
                                .arguments = "INPUT... --cache DIR [options]",
                                .summary = "make a cache of chains to predict, from alignments",
                                .description = description,
                                .options = options,
                                .min_positional = 1,
                                .max_positional = MOST_INPUTS};
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    arguments.queries.path = (const char *const *)argv;
    arguments.queries.n = (uint32_t)n_positional;
    fm_error error;
    fm_arena arena;
    fm_cli_catch_signals(ask_stop);
    fm_cli_survive_writes();
    fm_status status = fm_arena_init(&arena, ARENA_BYTES, &error);
    if (status) return fm_program_report(program, &error);
    code = featurize(&arguments, &arena);
    fm_arena_fini(&arena);
    return code;
}
