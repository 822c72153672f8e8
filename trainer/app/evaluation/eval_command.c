/* eval_command.c: `foldmill eval`: scores a checkpoint on the chains of a snapshot; see
 * eval_command.h. The work is in chain_scorer.c; here are the options, the lines for people and the
 * files. */
#include "trainer/app/evaluation/eval_command.h"

#include "proto/base/directory.h"
#include "proto/base/file.h"
#include "proto/base/histogram.h"
#include "proto/base/machine.h"
#include "proto/base/plural.h"
#include "proto/base/program.h"
#include "trainer/app/common/folder_lock.h"
#include "trainer/app/common/progress.h"
#include "trainer/app/common/results_folder.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/evaluation/chain_scorer.h"
#include "trainer/app/evaluation/follow_run.h"
#include "trainer/app/samples/private_server.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { N_SHOWN = 10 };

static const char program[] = "foldmill eval";

static const char description[] =
    "Predicts every chain of a snapshot whole and compares it with the known structure.\n"
    "Nothing is cropped, masked or dropped, and each chain has the same cycles and the\n"
    "best templates. So the same checkpoint, chains and seed give the same numbers.\n\n"
    "The settings come from the checkpoint. Files are written when all chains are done.\n"
    "A DIR with an earlier evaluation is refused without --replace. A cache, a dataset and\n"
    "the folder of a training run are always refused. DIR gets these files:\n\n"
    "  chains.csv       a row for each chain: lDDT-CA, lDDT, RMSD, TM, GDT, pLDDT,\n"
    "                   losses\n"
    "  summary.json     means, calibration of pLDDT, chains that failed\n"
    "  lddt.svg         how many chains have each lDDT-CA\n"
    "  calibration.svg  pLDDT against lDDT-CA of residues\n"
    "  length.svg       lDDT-CA against length\n\n"
    "With --against the summary of an earlier evaluation, the differences are printed\n"
    "and stored. `foldmill train --eval-every` evaluates while it trains, with the same\n"
    "results.\n\n"
    "Examples:\n"
    "  foldmill eval --checkpoint run/checkpoint-000000001000.safetensors \\\n"
    "      --data unix:eval.sock --snapshot eval --out scores\n\n"
    "Exit codes: 0 done, 1 failed, 2 bad usage, 3 some chains failed (the others are\n"
    "scored), 129, 130 or 143 stopped by SIGHUP, SIGINT or SIGTERM, without files";

typedef struct eval_settings {
    const char *checkpoint, *data, *cache, *snapshot, *out, *set, *device, *dtype, *against,
        *follow;
    fm_credentials credentials;
    uint64_t seed, cycles, max_length, wait_ms, data_timeout_s, memory_mib, jobs;
    double device_gib;
    bool replace, quiet;
} eval_settings;

/* -- options */

static fm_status check(const eval_settings *set, fm_error *reterr) {
    if (!set->data == !set->cache) {
        return fm_fail(reterr, FM_ERR_USAGE, "expected one of --data URL and --cache DIR");
    }
    if (set->follow && (set->checkpoint || set->out || set->against)) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--follow takes checkpoints from the run and writes into its folder: give "
                       "no --checkpoint, --out or --against");
    }
    if (!set->follow && (!set->checkpoint || !set->out)) {
        return fm_fail(reterr, FM_ERR_USAGE, "%s is required",
                       set->checkpoint ? "--out DIR" : "--checkpoint FILE");
    }
    if (!(set->device_gib >= 0 && set->device_gib <= 1e6)) {
        return fm_fail(reterr, FM_ERR_USAGE, "--device-memory: found %g, expected 0 to 1000000 GiB",
                       set->device_gib);
    }
    return FM_OK;
}

static fm_status parse(eval_settings *set, int argc, char **argv, fm_error *reterr) {
    const fm_option options[] = {
        {"checkpoint", FM_OPTION_STRING, &set->checkpoint, "FILE",
         .help = "the checkpoint to evaluate (required)", .letter = 'c'},
        {"data", FM_OPTION_STRING, &set->data, "URL",
         .help = "servers: unix:PATH, tls://HOST:PORT or tcp://HOST:PORT, separated by commas "
                 "(or --cache)"},
        {"cache", FM_OPTION_STRING, &set->cache, "DIR",
         .help = "start a server of this cache for the evaluation"},
        {"snapshot", FM_OPTION_STRING, &set->snapshot, "NAME",
         .help = "the snapshot to score (any that --data serves; all of --cache)"},
        {"jobs", FM_OPTION_U64, &set->jobs, "N",
         .help = "worker threads of the server of --cache (2)", .letter = 'j', .min = 1,
         .max = 512},
        {"out", FM_OPTION_STRING, &set->out, "DIR", .help = "folder of the results (required)",
         .letter = 'o'},
        {"follow", FM_OPTION_STRING, &set->follow, "RUN",
         .help = "evaluate the checkpoints that a run hands over, without --checkpoint and --out"},
        {"set", FM_OPTION_STRING, &set->set, "SET",
         .help = "ema (the moving average) or model (ema)"},
        {"against", FM_OPTION_STRING, &set->against, "FILE",
         .help = "summary.json of an earlier evaluation to compare with"},
        {"device", FM_OPTION_STRING, &set->device, "NAME", .help = "cpu or cuda (cpu)"},
        {"dtype", FM_OPTION_STRING, &set->dtype, "TYPE",
         .help = "of activations: fp32, or bf16 on cuda (fp32)"},
        {"cycles", FM_OPTION_U64, &set->cycles, "N",
         .help = "recycling cycles of a chain (the checkpoint's max_cycle)", .min = 1, .max = 21},
        {"seed", FM_OPTION_U64, &set->seed, "S", .help = "seed of the choice of MSA rows (0)"},
        {"max-length", FM_OPTION_U64, &set->max_length, "N",
         .help = "chains with more residues fail (what a sample can hold)", .min = 1,
         .max = FM_LIMIT_N_RES},
        {"memory", FM_OPTION_U64, &set->memory_mib, "MIB",
         .help = "host memory for chains; more chains run in pieces (1/4 of the machine's)",
         .min = 1, .max = (uint64_t)1 << 30},
        {"device-memory", FM_OPTION_F64, &set->device_gib, "GIB",
         .help = "device memory to use at most (all that is free)"},
        FM_CREDENTIALS_OPTIONS(&set->credentials, FM_CREDENTIALS_TOKEN_HELP),
        {"wait", FM_OPTION_U64, &set->wait_ms, "MS",
         .help = "how long to try to connect or reconnect (5000)", .max = 3600000},
        {"data-timeout", FM_OPTION_U64, &set->data_timeout_s, "S",
         .help = "how long without a chain before it reconnects (600)", .min = 1, .max = 604800},
        {"replace", FM_OPTION_FLAG, &set->replace, NULL,
         .help = "replace an earlier evaluation in DIR"},
        {"quiet", FM_OPTION_FLAG, &set->quiet, NULL, .help = "print only the summary, no progress",
         .letter = 'q'},
        {0}};
    const fm_command command = {.program = program,
                                .arguments =
                                    "--checkpoint FILE --data URL|--cache DIR --out DIR [options]",
                                .summary = "score a checkpoint on the chains of a snapshot",
                                .description = description,
                                .options = options};
    int n_positional;
    fm_status status = fm_options_parse(&command, argc, argv, &n_positional, reterr);
    if (!status) status = check(set, reterr);
    if (!status && strcmp(set->set, "ema") != 0 && strcmp(set->set, "model") != 0) {
        status =
            fm_fail(reterr, FM_ERR_USAGE, "--set: found '%.32s', expected ema or model", set->set);
    }
    return status;
}

static fm_chain_scorer_options options_of(const eval_settings *set) {
    const uint64_t least = (uint64_t)64 << 20;
    uint64_t memory = set->memory_mib
                          ? set->memory_mib << 20
                          : fm_machine_fit(UINT64_MAX, fm_machine_memory(), 0.25, least);
    return (fm_chain_scorer_options){.url = set->data,
                                     .credentials = set->credentials,
                                     .agent = program,
                                     .snapshot = set->snapshot,
                                     .device = set->device,
                                     .dtype = set->dtype,
                                     .set = strcmp(set->set, "ema") == 0 ? FM_CHECKPOINT_EMA
                                                                         : FM_CHECKPOINT_MODEL,
                                     .seed = set->seed,
                                     .n_cycle = (uint32_t)set->cycles,
                                     .max_length = (uint32_t)set->max_length,
                                     .wait_ms = set->wait_ms,
                                     .data_timeout_s = set->data_timeout_s,
                                     .memory_bytes = memory,
                                     .memory_budget_gib = set->device_gib};
}

/* -- lines for people */

typedef struct progress {
    bool quiet, has_terminal;
    uint64_t begin_ns;
    uint32_t n_done;
} progress;

static void show_progress(void *context, const fm_eval_chain *chain, uint32_t n_done,
                          uint32_t n_chain, double share) {
    progress *p = context;
    enum { EVERY = 10 }; /* without a terminal, a line every so many chains */
    p->n_done = n_done;
    if (p->quiet) return;
    if (!p->has_terminal && n_done % EVERY != 0 && n_done != 1 && n_done != n_chain) return;
    double seconds = (double)(fm_clock_ns() - p->begin_ns) * 1e-9;
    unsigned long left = share > 0 ? (unsigned long)(seconds * (1 - share) / share + 0.5) : 0;
    char score[32] = "failed";
    if (!chain->status) snprintf(score, sizeof score, "lddt_ca %.3f", chain->scores.lddt_ca);
    char text[256];
    snprintf(text, sizeof text,
             "chain %u/%u  %.40s  %u residues  %s  %.2f chains/s  ETA %lu:%02lu:%02lu", n_done,
             n_chain, chain->name, chain->n_res, score, seconds > 0 ? n_done / seconds : 0.0,
             left / 3600, left / 60 % 60, left % 60);
    if (p->has_terminal) fm_progress_cut(text);
    fprintf(stderr, "%s%s%s", p->has_terminal ? "\r\033[K" : "", text,
            p->has_terminal && n_done < n_chain ? "" : "\n");
}

static void print_summary(const fm_eval_summary *s, const fm_eval_summary *then) {
    printf("chains    %u scored, %u failed, %llu residues\n", s->n_chain, s->n_failed,
           (unsigned long long)s->n_residue);
    for (uint32_t i = 0; i < s->n_value; i++) {
        printf("%-18s %10.4f", s->value[i].name, s->value[i].value);
        if (then) {
            double before = fm_eval_value(then, s->value[i].name);
            printf("  %10.4f before  %+10.4f", before, s->value[i].value - before);
        }
        printf("\n");
    }
}

static void print_failed(const fm_eval_table *table) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < table->n; i++) {
        const fm_eval_chain *c = &table->chain[i];
        if (c->status && n++ < N_SHOWN) fprintf(stderr, "%s: %s: %s\n", program, c->name, c->why);
    }
    if (n > N_SHOWN) {
        fprintf(stderr, "%s: and %u more; chains.csv names them all\n", program, n - N_SHOWN);
    }
}

/* -- the command */

typedef struct results {
    fm_eval_table table;
    fm_eval_summary summary, then;
    fm_arena arena; /* of `then` */
    uint64_t step;
    double seconds;
} results;

static fm_status write_results(const eval_settings *set, const fm_chain_scorer *e, const results *r,
                               fm_error *reterr) {
    char hash[FM_SHA256_HEX];
    fm_sha256_format(fm_chain_scorer_get_snapshot_hash(e), hash);
    const fm_eval_about about = {.checkpoint = set->checkpoint,
                                 .set = set->set,
                                 .snapshot = fm_chain_scorer_get_snapshot(e),
                                 .snapshot_hash = hash,
                                 .device = set->device,
                                 .dtype = set->dtype,
                                 .step = r->step,
                                 .seed = set->seed,
                                 .max_cycle = fm_chain_scorer_n_cycle(e),
                                 .seconds = r->seconds,
                                 .against = set->against,
                                 .then = &r->then};
    fm_status status = fm_eval_remove_summary(set->out, reterr);
    if (!status) status = fm_eval_write_csv(set->out, &r->table, reterr);
    if (!status) status = fm_eval_draw(set->out, &r->table, &r->summary, reterr);
    if (!status) status = fm_eval_write_summary(set->out, &r->table, &r->summary, &about, reterr);
    return status;
}

static void announce(const eval_settings *set, const fm_chain_scorer *e, uint64_t step) {
    char text[256];
    fm_chain_scorer_describe(e, text, sizeof text);
    fprintf(stderr, "model     step %llu, %s: %s\n", (unsigned long long)step, set->set, text);
    uint32_t n = fm_chain_scorer_n_chain(e);
    fprintf(stderr, "data      %s: snapshot %s, %u chain%s, %u cycles\n",
            set->cache ? set->cache : set->data, fm_chain_scorer_get_snapshot(e), n, fm_plural(n),
            fm_chain_scorer_n_cycle(e));
}

static fm_status evaluate_open(const eval_settings *set, fm_chain_scorer *e, results *r,
                               fm_error *reterr) {
    progress p = {.quiet = set->quiet, .has_terminal = isatty(STDERR_FILENO) == 1};
    fm_status status = fm_chain_scorer_load(e, set->checkpoint, &r->step, reterr);
    if (status) return status;
    announce(set, e, r->step);
    p.begin_ns = fm_clock_ns();
    status = fm_chain_scorer_run(e, show_progress, &p, &r->table, reterr);
    r->seconds = (double)(fm_clock_ns() - p.begin_ns) * 1e-9;
    if (status == FM_ERR_CANCELLED) {
        fprintf(stderr, "%s%s: stopped by %s after %u of %u chains; nothing was written\n",
                p.has_terminal ? "\n" : "", program, fm_stop_name(fm_stop_signal()), p.n_done,
                fm_chain_scorer_n_chain(e));
    }
    if (!status) status = fm_eval_summarise(&r->table, &r->summary, reterr);
    return status ? status : write_results(set, e, r, reterr);
}

/* Starts a server of the cache, where one is named. */
static fm_status start_server(eval_settings *set, fm_private_server **ret_server,
                              fm_error *reterr) {
    if (!set->cache) return FM_OK;
    const fm_private_server_options options = {.cache = set->cache,
                                               .snapshot = set->snapshot,
                                               .jobs = set->jobs,
                                               .cancel = &fm_stop_cancel};
    fm_status status = fm_private_server_start(&options, ret_server, reterr);
    if (!status) set->data = fm_private_server_address(*ret_server);
    return status;
}

/* Refuses a folder that has an evaluation or belongs to something else, before any work is done for
 * it. */
static fm_status check_folder(const eval_settings *set, fm_error *reterr) {
    char path[PATH_MAX];
    if (set->follow) return FM_OK;
    fm_status status = fm_results_folder_check(set->out, reterr);
    if (status || set->replace) return status;
    if (snprintf(path, sizeof path, "%s/summary.json", set->out) >= (int)sizeof path) {
        return fm_fail(reterr, FM_ERR_USAGE, "--out: the path is too long");
    }
    fm_path_kind kind;
    status = fm_path_look(path, &kind, reterr);
    if (status || kind == FM_PATH_ABSENT) return status;
    return fm_fail_in(reterr, FM_ERR_EXISTS, path,
                      "the folder has an evaluation already; give another --out, or --replace");
}

static fm_status evaluate(eval_settings *set, results *r, fm_error *reterr) {
    fm_chain_scorer *e = NULL;
    fm_private_server *server = NULL;
    fm_folder_lock lock = {.fd = -1};
    fm_status status = check_folder(set, reterr);
    if (!status && !set->follow) status = fm_folder_lock_take(set->out, &lock, reterr);
    if (!status) status = start_server(set, &server, reterr);
    const fm_chain_scorer_options options = options_of(set);
    if (!status && set->follow) {
        status = fm_follow_run(&options, set->follow, reterr);
        fm_private_server_stop(server);
        return status;
    }
    if (!status && set->against) {
        status = fm_eval_read_summary(set->against, &r->arena, &r->then, reterr);
    }
    if (!status) status = fm_chain_scorer_open(&options, set->checkpoint, &e, reterr);
    if (!status) status = evaluate_open(set, e, r, reterr);
    fm_chain_scorer_close(e);
    fm_private_server_stop(server);
    if (!set->follow) fm_folder_lock_end(set->out, &lock);
    return status;
}

int fm_eval_main(int argc, char **argv) {
    eval_settings set = {
        .set = "ema", .device = "cpu", .dtype = "fp32", .wait_ms = 5000, .data_timeout_s = 600};
    fm_error error;
    results r = {.step = 0};
    fm_status status = parse(&set, argc, argv, &error);
    if (status) return status == FM_ERR_CANCELLED ? FM_EXIT_OK : fm_program_report(program, &error);
    if (set.follow) {
        fm_stop_catch(false); /* the run speaks */
    } else {
        fm_stop_catch_saying("\nfoldmill eval: stopping after the chain in hand; nothing will be "
                             "written; a second signal ends the process at once\n");
    }
    status = fm_arena_init(&r.arena, (size_t)1 << 30, &error);
    if (!status) status = evaluate(&set, &r, &error);
    int code = FM_EXIT_OK;
    if (status == FM_ERR_CANCELLED) {
        code = set.follow ? FM_EXIT_OK : 128 + fm_stop_signal();
    } else if (status) {
        code = fm_program_report(program, &error);
    } else {
        print_summary(&r.summary, set.against ? &r.then : NULL);
        printf("outputs   %s/summary.json, %.1f s\n", set.out, r.seconds);
        print_failed(&r.table);
        bool none = r.summary.n_failed && !r.summary.n_chain;
        code = none ? FM_EXIT_FAILED : r.summary.n_failed ? FM_EXIT_PARTIAL : FM_EXIT_OK;
    }
    fm_eval_table_release(&r.table);
    fm_arena_fini(&r.arena);
    return code;
}
