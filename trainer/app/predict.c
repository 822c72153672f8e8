/* predict.c: see predict.h. It has the options and the printed lines. Both commands share one table
 * of options, and each uses some of its rows. */
#include "trainer/app/predict.h"

#include "proto/base/histogram.h"
#include "proto/base/machine.h"
#include "proto/base/plural.h"
#include "proto/base/program.h"
#include "proto/limits.h"
#include "proto/template_date.h"
#include "trainer/app/choose_device.h"
#include "trainer/app/folder_lock.h"
#include "trainer/app/predict_inputs.h"
#include "trainer/app/predict_pages.h"
#include "trainer/app/predict_print.h"
#include "trainer/app/predict_ranks.h"
#include "trainer/app/predict_run.h"
#include "trainer/app/predict_tables.h"
#include "trainer/app/progress.h"
#include "trainer/app/results_folder.h"
#include "trainer/app/stop.h"
#include "trainer/backend/cpu_threads.h"
#include "trainer/predict/chain_file.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_INPUTS = 1 << 20, MOST_RANKS = 64 };

static const char predict_description[] =
    "Alignments must exist already, because foldmill does not search databases. Make them\n"
    "with ColabFold's MMseqs2 search (colabfold_search, or its public server), or with\n"
    "jackhmmer, HHblits and hhsearch as AlphaFold runs them. Each INPUT is one chain:\n\n"
    "  NAME.fasta        its alignments are in alignments/NAME/ or NAME/ beside it,\n"
    "                    in NAME.a3m, NAME.sto and NAME.hhr, or in --alignments DIR\n"
    "  NAME.a3m, .sto    an alignment whose first row is the chain (ColabFold)\n\n"
    "Files may be compressed (.gz, .xz, .zst). Template hits (NAME.hhr) refer to the mmCIF\n"
    "files of --templates. Instead of files, --cache DIR or --data URL give chains that\n"
    "`foldmill build` or `foldmill featurize` prepared.\n\n"
    "--weights is a checkpoint of foldmill, AlphaFold's params_model_*.npz, or safetensors\n"
    "with OpenFold's names. The file gives the model's sizes, and whether it has templates\n"
    "and a pTM head. Several --weights and --seeds give a prediction each, which are ranked\n"
    "by mean pLDDT. A chain's result does not depend on the other chains.\n\n"
    "For each model and seed, DIR/CHAIN has the files CHAIN_MODEL_seed-S with these endings:\n\n"
    "  .cif              structure (ModelCIF), pLDDT as B factors; .pdb with --pdb\n"
    "  _scores.json      plddt, pae, ptm, max_pae, as ColabFold writes them\n"
    "  _pae.json         predicted aligned errors, in the AlphaFold database's layout\n"
    "  _pae.svg          the aligned errors as a picture\n"
    "  _trace.svg        the path of the chain as a picture\n"
    "  _run.json         inputs, weights, settings and times of the prediction\n\n"
    "DIR/CHAIN also has ranking.json, coverage.svg, plddt.svg and CHAIN.html, a page with\n"
    "all pictures that needs no other file. DIR has summary.csv and timings.json. foldmill\n"
    "neither adds hydrogens nor relaxes structures; the guide shows programs that do.\n\n"
    "Examples:\n"
    "  foldmill predict T1024.a3m --weights model_1.npz --out results --device cuda\n"
    "  foldmill predict seqs/*.fasta --alignments msas --templates pdb_mmcif \\\n"
    "      --weights model_1.npz --weights model_3.npz --seeds 0,1,2 --out results\n\n"
    "Exit codes: 0 done, 3 some chains failed (the others are predicted), 1 failed, 2 bad\n"
    "usage, 129, 130 or 143 stopped by SIGHUP, SIGINT or SIGTERM. --resume continues a\n"
    "stopped command: it keeps predictions of the same inputs, weights and settings.";

static const char distill_description[] =
    "Predicts each chain of a cache once, for self-distillation, and keeps the structures\n"
    "in which the model is confident. DIR becomes a dataset of predictions:\n\n"
    "  data/CHAIN.cif          structures whose mean pLDDT is at least --min-plddt\n"
    "  rejected/CHAIN.cif      the other structures, which the build does not read\n"
    "  confidences/            _scores.json and _run.json of every chain\n"
    "  chains.txt              the names of the kept chains\n"
    "  summary.csv             a row for each chain\n\n"
    "Chains of a cache of several datasets, DATASET:CHAIN, are in the folders DIR/DATASET,\n"
    "which become datasets of the same names.\n\n"
    "`foldmill build DIR --predicted --alignments DIR2` builds a cache of it with the\n"
    "alignments of the chains, and masks residues with a pLDDT of 50 or less. To train on\n"
    "experimental structures too, use `foldmill build --dataset NAME:predicted=DIR`.\n\n"
    "Examples:\n"
    "  foldmill distill --cache unlabelled --weights teacher.safetensors --out d \\\n"
    "      --device cuda --dtype bf16\n"
    "  foldmill build d --predicted --alignments msas --cache distilled\n"
    "  foldmill train --cache distilled --preset af2-initial --out student\n\n"
    "Exit codes are those of `foldmill predict`. --resume continues a stopped command. With\n"
    "another --min-plddt it moves structures and predicts no finished chain again.";

typedef struct predict_settings {
    const char *program; /* "foldmill predict" or "foldmill distill" */
    bool distils;
    double min_plddt;
    fm_option_list weights, chains;
    const char *out, *alignments, *templates, *cache, *data, *snapshot, *seeds, *set, *device,
        *dtype, *date;
    fm_credentials credentials;
    uint64_t recycles, max_length, n_cluster, n_extra, wait_ms, data_timeout_s, memory_mib, jobs;
    double device_gib, recycle_tol;
    bool resume, pdb, dropout, single_sequence, quiet;
    uint64_t n_rank, gpus, dap, ensemble, threads;
    fm_predict_ranks_options ranks;
    uint32_t date_rule;
    uint32_t n_seed;
    uint64_t seed[FM_PREDICT_MOST_SEEDS];
    uint32_t n_input;
    char **input;
    char name[FM_PREDICT_MOST_MODELS][FM_LIMIT_NAME_BYTES + 1]; /* of the models */
} predict_settings;

/* -- options */

/* Reads "0,1,5" into the list of seeds. */
static fm_status read_seeds(predict_settings *set, fm_error *reterr) {
    const char *at = set->seeds;
    for (;;) {
        char *end = NULL;
        errno = 0;
        unsigned long long seed = strtoull(at, &end, 10);
        bool is_number = *at >= '0' && *at <= '9' && errno == 0; /* no sign and no blank */
        if (!is_number || (*end && *end != ',')) {
            return fm_fail(reterr, FM_ERR_USAGE, "--seeds: found '%.64s', expected 0,1,2", at);
        }
        for (uint32_t i = 0; i < set->n_seed; i++) {
            if (set->seed[i] != seed) continue;
            return fm_fail(reterr, FM_ERR_USAGE, "--seeds: %llu is listed twice", seed);
        }
        if (set->n_seed == FM_PREDICT_MOST_SEEDS) {
            return fm_fail(reterr, FM_ERR_USAGE, "--seeds: found more than %d seeds",
                           FM_PREDICT_MOST_SEEDS);
        }
        set->seed[set->n_seed++] = seed;
        if (!*end) return FM_OK;
        at = end + 1;
    }
}

/* Names each model after its file, without folders and ending; equal names get a number. */
static void name_models(predict_settings *set) {
    for (uint32_t m = 0; m < set->weights.n; m++) {
        const char *slash = strrchr(set->weights.value[m], '/');
        const char *leaf = slash ? slash + 1 : set->weights.value[m];
        const char *dot = strrchr(leaf, '.');
        int length = dot && dot != leaf ? (int)(dot - leaf) : (int)strlen(leaf);
        uint32_t n = 0;
        if (length > FM_CHAIN_MODEL_MOST) length = FM_CHAIN_MODEL_MOST;
        snprintf(set->name[m], sizeof set->name[m], "%.*s", length, leaf);
        for (uint32_t k = 0; k < m; k++) {
            if (strcmp(set->name[k], set->name[m]) != 0) continue;
            snprintf(set->name[m], sizeof set->name[m], "%.*s-%u", length, leaf, 2 + n++);
            k = UINT32_MAX; /* compare with all again */
        }
    }
}

static fm_status check_distillation(const predict_settings *set, fm_error *reterr) {
    if (!set->distils) return FM_OK;
    if (set->weights.n > 1 || set->n_seed > 1) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "distill predicts each chain once: give one --weights and one seed");
    }
    if (!(set->min_plddt >= 0 && set->min_plddt <= 100)) {
        return fm_fail(reterr, FM_ERR_USAGE, "--min-plddt: expected 0 to 100");
    }
    return FM_OK;
}

static fm_status check_source(const predict_settings *set, fm_error *reterr) {
    int n = (set->n_input > 0) + (set->cache != NULL) + (set->data != NULL);
    if (n != 1) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "expected one source of chains: %s--cache DIR or --data "
                       "URL",
                       set->distils ? "" : "INPUT files, ");
    }
    if (!set->n_input && (set->alignments || set->templates || set->single_sequence)) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--alignments, --templates and --single-sequence are for INPUT files only; "
                       "a cache already has its alignments");
    }
    if (set->chains.n && !set->cache) {
        return fm_fail(reterr, FM_ERR_USAGE, "--chain can only be used with --cache");
    }
    if (set->chains.n && set->snapshot) {
        return fm_fail(reterr, FM_ERR_USAGE, "give either --chain or --snapshot, not both");
    }
    if (set->n_input && set->snapshot) {
        return fm_fail(reterr, FM_ERR_USAGE, "--snapshot can only be used with --cache or --data");
    }
    return FM_OK;
}

/* Finds how many ranks share a chain, and how many there are. */
static fm_status check_ranks(predict_settings *set, fm_error *reterr) {
    const uint64_t given = set->n_rank ? set->n_rank : set->gpus;
    if (set->n_rank && set->gpus) {
        return fm_fail(reterr, FM_ERR_USAGE, "--ranks is for CPUs and --gpus for GPUs: give one");
    }
    if (set->gpus && strcmp(set->device, "cpu") == 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--gpus needs --device cuda");
    }
    set->ranks.dap = (int32_t)set->dap;
    set->ranks.n_rank = (int32_t)(given ? given : set->dap);
    set->ranks.divides = strcmp(set->device, "cpu") == 0;
    if (given % set->dap == 0) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE, "--dap %llu: found %llu ranks, expected a multiple of it",
                   (unsigned long long)set->dap, (unsigned long long)given);
}

static fm_status check(predict_settings *set, fm_error *reterr) {
    fm_status status = check_source(set, reterr);
    if (!status) status = check_ranks(set, reterr);
    if (status) return status;
    if (!set->weights.n || !set->out) {
        return fm_fail(reterr, FM_ERR_USAGE, "%s is required",
                       set->weights.n ? "--out DIR" : "--weights FILE");
    }
    if (strcmp(set->set, "ema") != 0 && strcmp(set->set, "model") != 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--set: found '%.32s', expected ema or model",
                       set->set);
    }
    if (!(set->device_gib >= 0 && set->device_gib <= 1e6)) {
        return fm_fail(reterr, FM_ERR_USAGE, "--device-memory: expected 0 to 1000000");
    }
    if (!(set->recycle_tol >= 0 && set->recycle_tol <= 1000)) {
        return fm_fail(reterr, FM_ERR_USAGE, "--recycle-tol: expected 0 to 1000 Å");
    }
    if ((set->recycles + 1) * set->ensemble > FM_MAX_CYCLE) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--ensemble %llu with %llu cycles needs more than %d draws of MSA rows, the "
                       "most that a sample has",
                       (unsigned long long)set->ensemble, (unsigned long long)set->recycles + 1,
                       FM_MAX_CYCLE);
    }
    if (!set->date) set->date = set->n_input ? "any" : "query";
    set->date_rule = fm_template_date_parse(set->date);
    if (!set->date_rule) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--max-template-date: found '%.32s', expected YYYY-MM-DD, any or query",
                       set->date);
    }
    name_models(set);
    status = read_seeds(set, reterr);
    return status ? status : check_distillation(set, reterr);
}

enum { MOST_OPTIONS = 40 };

/* Options of the devices, the processes and the server. */
static void list_machine_options(predict_settings *set, fm_option *out, size_t most) {
    const fm_option options[] = {
        {"set", FM_OPTION_STRING, &set->set, "SET",
         .help = "weights of a checkpoint: ema (the moving average) or model (ema)"},
        {"device", FM_OPTION_STRING, &set->device, "NAME", .help = "cpu or cuda (cpu)"},
        {"dtype", FM_OPTION_STRING, &set->dtype, "TYPE",
         .help = "type of activations: fp32, or bf16 on cuda (fp32)"},
        {"threads", FM_OPTION_U64, &set->threads, "N",
         .help =
             "threads of each process on the CPU; they change no bit (one per core, at most 16)",
         .min = 1, .max = 256},
        {"ranks", FM_OPTION_U64, &set->n_rank, "N",
         .help = "processes on CPUs that divide the chains (as many as --dap)", .max = MOST_RANKS},
        {"gpus", FM_OPTION_U64, &set->gpus, "N",
         .help = "the same with one GPU each, on --device cuda", .max = MOST_RANKS},
        {"dap", FM_OPTION_U64, &set->dap, "D",
         .help = "split each chain over D of them, for long chains (1)", .min = 1,
         .max = FM_LAYOUT_DAP},
        {"device-memory", FM_OPTION_F64, &set->device_gib, "GIB",
         .help = "most device memory to use (all that is free)"},
        {"max-length", FM_OPTION_U64, &set->max_length, "N",
         .help = "refuse chains with more residues (the most that a sample can hold)", .min = 1,
         .max = FM_LIMIT_N_RES},
        {"memory", FM_OPTION_U64, &set->memory_mib, "MIB",
         .help = "host memory for chains, which else run in pieces (1/4 of the machine's)",
         .min = 1, .max = (uint64_t)1 << 30},
        {"jobs", FM_OPTION_U64, &set->jobs, "N",
         .help = "threads that prepare inputs (one per processor) and samples (2)", .letter = 'j',
         .min = 1, .max = 512},
        FM_CREDENTIALS_OPTIONS(&set->credentials, FM_CREDENTIALS_TOKEN_HELP),
        {"wait", FM_OPTION_U64, &set->wait_ms, "MS",
         .help = "how long to try to connect or reconnect (5000)", .max = 3600000},
        {"data-timeout", FM_OPTION_U64, &set->data_timeout_s, "S",
         .help = "reconnect after so long without a chain (600)", .min = 1, .max = 604800},
        {"quiet", FM_OPTION_FLAG, &set->quiet, NULL, .help = "print only the summary, no progress",
         .letter = 'q'},
        {0}};
    assert(sizeof options / sizeof options[0] <= most);
    (void)most;
    memcpy(out, options, sizeof options);
}

static void list_options(predict_settings *set, fm_option out[MOST_OPTIONS]) {
    const fm_option options[] = {
        {"weights", FM_OPTION_LIST, &set->weights, "FILE",
         .help = "checkpoint, .npz or safetensors (required); may be repeated", .letter = 'w'},
        {"out", FM_OPTION_STRING, &set->out, "DIR", .help = "folder of the results (required)",
         .letter = 'o'},
        {"alignments", FM_OPTION_STRING, &set->alignments, "DIR",
         .help = "folder of the FASTA files' alignments (beside each file)"},
        {"templates", FM_OPTION_STRING, &set->templates, "DIR",
         .help = "folder or zip archive of the mmCIF files that template hits name"},
        {"max-template-date", FM_OPTION_STRING, &set->date, "DATE",
         .help = "templates released by YYYY-MM-DD; any: all; query: none newer than the chain "
                 "(any for files, query for a cache)"},
        {"single-sequence", FM_OPTION_FLAG, &set->single_sequence, NULL,
         .help = "predict from the sequences alone, without alignments and templates"},
        {"cache", FM_OPTION_STRING, &set->cache, "DIR", .help = "predict the chains of a cache"},
        {"snapshot", FM_OPTION_STRING, &set->snapshot, "NAME",
         .help = "chains of this snapshot (of --cache all chains, of --data the one it serves)"},
        {"chain", FM_OPTION_LIST, &set->chains, "ID",
         .help = "only this chain of --cache; may be repeated"},
        {"data", FM_OPTION_STRING, &set->data, "URL",
         .help = "predict the chains of servers: unix:PATH, tls://HOST:PORT or tcp://HOST:PORT, "
                 "separated by commas"},
        {"recycles", FM_OPTION_U64, &set->recycles, "N",
         .help = "recycling cycles after the first (3)", .max = 20},
        {"recycle-tol", FM_OPTION_F64, &set->recycle_tol, "ANGSTROM",
         .help = "end recycling when a cycle changes CA distances by less; 0: never (0.5)"},
        {"ensemble", FM_OPTION_U64, &set->ensemble, "N",
         .help = "draws of MSA rows in each cycle, whose representations are averaged (1)",
         .min = 1, .max = FM_MAX_CYCLE},
        {"dropout", FM_OPTION_FLAG, &set->dropout, NULL,
         .help = "keep dropout on, for seeds that differ more"},
        {"seeds", FM_OPTION_STRING, &set->seeds, "LIST",
         .help = "seeds that choose the MSA rows, one prediction for each (0)"},
        {"msa-clusters", FM_OPTION_U64, &set->n_cluster, "N",
         .help = "clustered MSA rows (as a checkpoint says; else 508)", .min = 1,
         .max = FM_LIMIT_N_CLUSTER},
        {"extra-msa", FM_OPTION_U64, &set->n_extra, "N",
         .help = "extra MSA rows (as a checkpoint says; else 5120)", .min = 1,
         .max = FM_LIMIT_N_EXTRA},
        {"min-plddt", FM_OPTION_F64, &set->min_plddt, "P",
         .help = "keep structures whose mean pLDDT is at least this (70)"},
        {"resume", FM_OPTION_FLAG, &set->resume, NULL,
         .help = "keep predictions that an earlier command finished"},
        {"pdb", FM_OPTION_FLAG, &set->pdb, NULL, .help = "also write PDB files"},
    };
    enum { N = sizeof options / sizeof options[0] };
    memcpy(out, options, sizeof options);
    list_machine_options(set, out + N, MOST_OPTIONS - N);
}

/* Removes the rows of options that the command does not have. foldmill distill takes one file of
 * weights and one seed, and its help says so. */
static void choose_options(fm_option *options, bool distils) {
    static const char *const of_files[] = {"alignments", "templates", "single-sequence",
                                           "chain",      "ensemble",  "pdb"};
    size_t kept = 0;
    for (size_t i = 0; options[i].name; i++) {
        bool is_wanted = distils || strcmp(options[i].name, "min-plddt") != 0;
        for (size_t k = 0; distils && k < sizeof of_files / sizeof of_files[0]; k++)
            is_wanted &= strcmp(options[i].name, of_files[k]) != 0;
        if (is_wanted) options[kept++] = options[i];
        if (distils && strcmp(options[i].name, "weights") == 0) {
            options[kept - 1].help = "checkpoint, .npz or safetensors (required)";
        } else if (distils && strcmp(options[i].name, "seeds") == 0) {
            options[kept - 1].help = "the seed of the choice of MSA rows (0)";
            options[kept - 1].value_name = "S";
        }
    }
    options[kept] = (fm_option){0};
}

static fm_status parse(predict_settings *set, int argc, char **argv, fm_error *reterr) {
    fm_option options[MOST_OPTIONS];
    list_options(set, options);
    choose_options(options, set->distils);
    const fm_command predict = {.program = set->program,
                                .arguments = "INPUT... --weights FILE --out DIR [options]",
                                .summary = "predict structures from sequences with alignments",
                                .description = predict_description,
                                .options = options,
                                .max_positional = MOST_INPUTS};
    const fm_command distill = {.program = set->program,
                                .arguments = "--cache DIR|--data URL --weights FILE --out DIR "
                                             "[options]",
                                .summary = "predict the chains of a cache for self-distillation",
                                .description = distill_description,
                                .options = options};
    int n_positional;
    fm_status status =
        fm_options_parse(set->distils ? &distill : &predict, argc, argv, &n_positional, reterr);
    if (status) return status;
    set->n_input = (uint32_t)n_positional;
    set->input = argv;
    return check(set, reterr);
}

/* -- lines for people */

typedef struct progress {
    const predict_settings *set;
    bool has_terminal;
    bool has_line; /* on the terminal, without a newline */
    uint64_t begin_ns;
    fm_predict_pace pace; /* after the last chain */
} progress;

static void clear_line(progress *p) {
    if (p->has_line) fputs("\r\033[K", stderr);
    p->has_line = false;
}

static void end_line(progress *p) {
    if (p->has_line) fputc('\n', stderr);
    p->has_line = false;
}

/* Prints a line; the terminal's is cut to its width, and the next one replaces it. */
static void print_line(const progress *p, char *text) {
    if (p->has_line) fm_progress_cut(text);
    fprintf(stderr, p->has_line ? "%s" : "%s\n", text);
}

static void show_model(void *context, uint32_t model, const fm_predict_model *loaded) {
    progress *p = context;
    if (p->set->quiet) return;
    char text[256];
    fm_infer_describe(loaded->infer, text, sizeof text);
    clear_line(p);
    fprintf(stderr, "model     %s: %s; %s; %s, %s\n", p->set->name[model], loaded->about, text,
            loaded->config.model.n_template ? "templates" : "no templates",
            loaded->config.model.structure.n_aligned_error_bin ? "pTM" : "no pTM");
}

/* The predictions of this command in an hour. */
static double hourly_rate(const fm_predict_pace *pace) {
    double n = (double)(pace->n_done - pace->n_resumed);
    return pace->elapsed_s > 0 ? n / pace->elapsed_s * 3600 : 0;
}

/* "1204 an hour, 13 min left"; "" before there is a rate. */
static const char *format_pace(const fm_predict_pace *pace, char out[64]) {
    const double minute = 60, hour = 3600;
    double left = pace->left_s;
    out[0] = '\0';
    if (!isfinite(left) || pace->n_done == pace->n_all) return out;
    int n = snprintf(out, 64, "  %.0f an hour, ", hourly_rate(pace));
    if (left < 2 * minute) {
        snprintf(out + n, 64 - (size_t)n, "%.0f s left", left);
    } else if (left < 2 * hour) {
        snprintf(out + n, 64 - (size_t)n, "%.0f min left", left / minute);
    } else {
        snprintf(out + n, 64 - (size_t)n, "%.1f h left", left / hour);
    }
    return out;
}

/* Says once that no hit of a chain of files fits the structures of --templates. */
static void note_templates(const predict_settings *set, const fm_result_chain *chain,
                           const fm_result_run *run) {
    const fm_json *hits = fm_json_get_member(chain->about, "hits");
    int64_t n_hit = 0, n_mapped = 0;
    bool is_first = run->model == set->name[0] && run->seed == set->seed[0];
    if (!set->templates || !is_first) return;
    if (!fm_json_get_integer(fm_json_get_member(hits, "hits"), &n_hit) || n_hit == 0) return;
    if (!fm_json_get_integer(fm_json_get_member(hits, "mapped"), &n_mapped) || n_mapped) return;
    fprintf(stderr, "%s: %s: none of its %lld template hit%s is used; no structure in %s fits\n",
            set->program, chain->name, (long long)n_hit, fm_plural((uint64_t)n_hit),
            set->templates);
}

/* A long chain takes minutes, so a terminal shows which one is running. */
static void show_chain(void *context, const fm_result_chain *chain, const fm_result_run *run,
                       const fm_predict_pace *pace) {
    progress *p = context;
    if (p->set->quiet || !p->has_terminal) return;
    char text[256];
    clear_line(p);
    snprintf(text, sizeof text, "%llu/%llu  %.40s  %u residues  %.60s  running",
             (unsigned long long)pace->n_done + 1, (unsigned long long)pace->n_all, chain->name,
             chain->n_res, run->name);
    p->has_line = true;
    print_line(p, text);
}

static void show_result(void *context, const fm_result_chain *chain, const fm_result_run *run,
                        const fm_result *result, const fm_predict_pace *pace) {
    progress *p = context;
    p->pace = *pace;
    clear_line(p);
    if (!result->status) note_templates(p->set, chain, run);
    if (p->set->quiet) return;
    char score[64] = "failed";
    if (!result->status && isfinite(result->ptm)) {
        snprintf(score, sizeof score, "pLDDT %.1f  pTM %.3f", result->mean_plddt, result->ptm);
    } else if (!result->status) {
        snprintf(score, sizeof score, "pLDDT %.1f", result->mean_plddt);
    }
    char rate[64], text[384];
    p->has_line = p->has_terminal && pace->n_done < pace->n_all;
    snprintf(text, sizeof text, "%llu/%llu  %.40s  %u residues  %.60s  %s  %s%.2f s%s",
             (unsigned long long)pace->n_done, (unsigned long long)pace->n_all, chain->name,
             chain->n_res, run->name, score, result->is_resumed ? "done earlier, " : "",
             result->status ? 0.0 : result->run_s, format_pace(pace, rate));
    print_line(p, text);
}

/* -- the command */

typedef struct predict_models {
    fm_predict_model_options options[FM_PREDICT_MOST_MODELS];
    const char *name[FM_PREDICT_MOST_MODELS];
    fm_predict_model looked[FM_PREDICT_MOST_MODELS];
} predict_models;

/* Reads the sizes of all models, so that unusable weights and a missing device are refused before
 * the work begins. */
static fm_status look_at_models(const predict_settings *set, predict_models *models,
                                fm_error *reterr) {
    const fm_kernels *unused;
    /* The command that starts ranks leaves the devices to them. */
    fm_status status =
        set->ranks.n_rank > 1 ? FM_OK : fm_device_find(set->device, set->dtype, &unused, reterr);
    for (uint32_t m = 0; m < set->weights.n && !status; m++) {
        models->name[m] = set->name[m];
        models->options[m] = (fm_predict_model_options){
            .path = set->weights.value[m],
            .device = set->device,
            .dtype = set->dtype,
            .set = strcmp(set->set, "ema") == 0 ? FM_CHECKPOINT_EMA : FM_CHECKPOINT_MODEL,
            .recycle_tol = set->recycle_tol,
            .dropout = set->dropout,
            .n_draw = (uint32_t)set->ensemble,
            .n_cluster = set->n_cluster,
            .n_extra = set->n_extra,
            .memory_budget_gib = set->device_gib};
        status = fm_predict_model_look(&models->options[m], &models->looked[m], reterr);
    }
    return status;
}

static fm_predict_run_options run_options(const predict_settings *set, const predict_models *models,
                                          fm_predict_inputs *inputs) {
    const uint64_t least = (uint64_t)64 << 20;
    uint64_t memory = set->memory_mib
                          ? set->memory_mib << 20
                          : fm_machine_fit(UINT64_MAX, fm_machine_memory(), 0.25, least);
    fm_predict_run_options options = {.chains = {.url = fm_predict_inputs_url(inputs),
                                                 .credentials = set->credentials,
                                                 .agent = set->program,
                                                 .plan = "predict",
                                                 .snapshot = set->snapshot,
                                                 .max_template_date = set->date_rule,
                                                 .max_length = (uint32_t)set->max_length,
                                                 .wait_ms = set->wait_ms,
                                                 .data_timeout_s = set->data_timeout_s,
                                                 .memory_bytes = memory},
                                      .n_model = set->weights.n,
                                      .n_seed = set->n_seed,
                                      .model = models->options,
                                      .looked = models->looked,
                                      .model_name = models->name,
                                      .seed = set->seed,
                                      .n_recycle = (uint32_t)set->recycles,
                                      .out = set->out,
                                      .software = FM_VERSION,
                                      .resumes = set->resume,
                                      .writes_pdb = set->pdb,
                                      .distils = set->distils,
                                      .least_plddt = set->min_plddt,
                                      .about = set->distils ? NULL : fm_predict_inputs_about,
                                      .about_context = inputs};
    options.chains.only = fm_predict_inputs_only(inputs, &options.chains.n_only);
    options.refused = fm_predict_inputs_refused(inputs, &options.n_refused);
    return options;
}

/* Prints the last line of a command that has done its work. */
static void print_outputs(const predict_settings *set, const fm_predict_run_options *options,
                          const fm_results *results, const fm_predict_pace *pace, double all_s) {
    const uint64_t n_failed = fm_results_n_failed(results), n_made = pace->n_done - n_failed;
    printf("outputs   %s/summary.csv, %llu prediction%s", set->out, (unsigned long long)n_made,
           fm_plural(n_made));
    if (pace->n_resumed) printf(" (%llu done earlier)", (unsigned long long)pace->n_resumed);
    if (n_failed) printf(", %llu failed", (unsigned long long)n_failed);
    if (options->n_refused) {
        printf(", %u input%s refused", options->n_refused, fm_plural(options->n_refused));
    }
    printf(", %.1f s", all_s);
    bool has_rate = set->distils && n_made > pace->n_resumed;
    if (has_rate) printf(", %.0f an hour", hourly_rate(pace));
    fputc('\n', stdout);
}

static fm_status run(predict_settings *set, const predict_models *models, fm_predict_inputs *inputs,
                     double inputs_s, fm_results *results, fm_error *reterr) {
    progress p = {.set = set, .has_terminal = isatty(STDERR_FILENO) == 1};
    fm_predict_run_options options = run_options(set, models, inputs);
    options.on_model = show_model;
    options.on_chain = show_chain;
    options.on_result = show_result;
    options.context = &p;
    p.begin_ns = fm_clock_ns();
    fm_status status = set->ranks.n_rank > 1
                           ? fm_predict_ranks_run(&set->ranks, &options, results, reterr)
                           : fm_predict_run(&options, results, reterr);
    double all_s = inputs_s + (double)(fm_clock_ns() - p.begin_ns) * 1e-9;
    end_line(&p);
    if (status == FM_ERR_CANCELLED && fm_stop_signal()) {
        const uint64_t n_made = p.pace.n_done - fm_results_n_failed(results);
        fprintf(stderr, "%s: stopped by %s after %llu prediction%s%s\n", set->program,
                fm_stop_name(fm_stop_signal()), (unsigned long long)n_made, fm_plural(n_made),
                n_made ? "; --resume continues" : "");
    }
    if (!status) status = fm_predict_write_tables(&options, results, reterr);
    if (!status && !set->distils) status = fm_predict_write_pages(&options, results, reterr);
    if (!status) status = fm_predict_write_timings(&options, results, inputs_s, all_s, reterr);
    if (!status) {
        if (set->distils) {
            fm_predict_print_kept(results, set->min_plddt);
        } else {
            fm_predict_print_best(results);
            fm_predict_print_pages(set->out, results);
        }
        print_outputs(set, &options, results, &p.pace, all_s);
    }
    return status;
}

/* server: the address of a server that serves these inputs already, or NULL. */
static fm_predict_inputs_options inputs_options(const predict_settings *set, const char *server) {
    return (fm_predict_inputs_options){.program = set->program,
                                       .input = (const char *const *)set->input,
                                       .n_input = set->n_input,
                                       .alignments = set->alignments,
                                       .templates = set->templates,
                                       .single_sequence = set->single_sequence,
                                       .cache = set->cache,
                                       .data = set->data,
                                       .snapshot = set->snapshot,
                                       .chain = &set->chains,
                                       .date = set->date,
                                       .out = set->out,
                                       .jobs = set->jobs,
                                       .quiet = set->quiet,
                                       .server = server};
}

/* Prepares the inputs below the folder of the results, which is locked so that no other command
 * uses it, and predicts them. */
static fm_status prepare_and_run(predict_settings *set, const predict_models *models,
                                 fm_results *results, uint32_t *ret_refused, fm_error *reterr) {
    const fm_predict_inputs_options options = inputs_options(set, NULL);
    fm_predict_inputs *inputs = NULL;
    uint64_t begin_ns = fm_clock_ns();
    fm_folder_lock lock = {.fd = -1};
    fm_status status = fm_folder_lock_take(set->out, &lock, reterr);
    if (!status) status = fm_predict_inputs_open(&options, &inputs, reterr);
    double inputs_s = (double)(fm_clock_ns() - begin_ns) * 1e-9;
    if (!status) (void)fm_predict_inputs_refused(inputs, ret_refused);
    if (!status) status = run(set, models, inputs, inputs_s, results, reterr);
    fm_predict_inputs_close(inputs);
    fm_folder_lock_end(set->out, &lock);
    return status;
}

/* Makes all checks that need no work, before the work begins. */
static fm_status check_and_run(predict_settings *set, fm_results *results, uint32_t *ret_refused,
                               fm_error *reterr) {
    predict_models *models = calloc(1, sizeof *models);
    if (!models) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the models' settings");
    fm_status status = fm_results_folder_check(set->out, reterr);
    if (!status) status = look_at_models(set, models, reterr);
    if (!status) status = prepare_and_run(set, models, results, ret_refused, reterr);
    free(models);
    return status;
}

/* Predicts as one of the ranks that another process of this command has started. */
static fm_status predict_as_rank(predict_settings *set, predict_models *models, const char *server,
                                 fm_error *reterr) {
    const fm_predict_inputs_options options = inputs_options(set, server);
    fm_predict_inputs *inputs = NULL;
    fm_predict_rank *rank = NULL;
    progress p = {.set = set};
    fm_status status = fm_predict_rank_open(&set->ranks, set->device, set->dtype, &rank, reterr);
    if (status) return status;
    status = fm_predict_inputs_open(&options, &inputs, reterr);
    if (!status) status = look_at_models(set, models, reterr);
    if (status) {
        fm_predict_rank_fail(rank, reterr);
    } else {
        fm_predict_run_options run = run_options(set, models, inputs);
        run.on_model = show_model;
        run.context = &p;
        status = fm_predict_rank_run(rank, &run, reterr);
    }
    fm_predict_rank_close(rank);
    fm_predict_inputs_close(inputs);
    return status;
}

static int run_rank(predict_settings *set, const char *server) {
    fm_error error;
    predict_models *models = calloc(1, sizeof *models);
    fm_status status = models ? predict_as_rank(set, models, server, &error) : FM_ERR_NOMEM;
    free(models);
    if (status == FM_ERR_USAGE) return FM_EXIT_USAGE;
    return status ? FM_EXIT_FAILED : FM_EXIT_OK;
}

/* Predicts as the only process, or as the command that starts the ranks. */
static int run_alone(predict_settings *set, const char *farewell) {
    fm_error error;
    fm_results results = {.chain = NULL};
    uint32_t n_refused = 0;
    fm_stop_catch_saying(farewell);
    fm_status status = check_and_run(set, &results, &n_refused, &error);
    int code = FM_EXIT_OK;
    if (status == FM_ERR_CANCELLED && fm_stop_signal()) {
        code = 128 + fm_stop_signal();
    } else if (status) {
        code = fm_program_report(set->program, &error);
    } else {
        fm_predict_print_failed(set->program, &results);
        code = n_refused || fm_results_n_failed(&results) ? FM_EXIT_PARTIAL : FM_EXIT_OK;
    }
    fm_results_release(&results);
    return code;
}

static int count_cores(pid_t process) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    return sched_getaffinity(process, sizeof cores, &cores) < 0 ? 1 : CPU_COUNT(&cores);
}

/* Without --threads, each process uses its cores. Where the command has fewer cores than ranks,
 * the ranks share all of them, and each uses one thread. */
static int count_threads(const predict_settings *set, bool is_rank) {
    enum { MOST_CORES = 16 };
    if (set->threads) return (int)set->threads;
    if (strcmp(set->device, "cpu") != 0) return 1;
    if (is_rank && count_cores(getppid()) < set->ranks.n_rank) return 1;
    const int n = count_cores(0);
    return n < MOST_CORES ? n : MOST_CORES;
}

static int run_command(predict_settings *set, const char *farewell, int argc, char **argv) {
    fm_error error;
    char **line = calloc((size_t)argc + 1, sizeof *line); /* parsing moves the words of argv */
    if (!line) {
        fm_fail(&error, FM_ERR_NOMEM, "no memory for the command line");
        return fm_program_report(set->program, &error);
    }
    memcpy(line, argv, (size_t)argc * sizeof *line);
    set->ranks = (fm_predict_ranks_options){.program = set->program, .argc = argc, .argv = line};
    fm_status status = parse(set, argc, argv, &error);
    const char *server = fm_predict_rank_server();
    int code = FM_EXIT_OK;
    if (status) {
        code = status == FM_ERR_CANCELLED ? FM_EXIT_OK : fm_program_report(set->program, &error);
    } else {
        fm_cpu_use_threads(count_threads(set, server != NULL));
        code = server ? run_rank(set, server) : run_alone(set, farewell);
    }
    free(line);
    return code;
}

/* What both commands begin with. */
static const predict_settings defaults = {.seeds = "0",
                                          .set = "ema",
                                          .device = "cpu",
                                          .dtype = "fp32",
                                          .recycles = 3,
                                          .dap = 1,
                                          .ensemble = 1,
                                          .recycle_tol = 0.5,
                                          .min_plddt = 70,
                                          .wait_ms = 5000,
                                          .data_timeout_s = 600};

int fm_predict_main(int argc, char **argv) {
    predict_settings set = defaults;
    set.program = "foldmill predict";
    return run_command(&set,
                       "\nfoldmill predict: stopping after the chain in hand; finished predictions "
                       "stay; a second signal ends the process at once\n",
                       argc, argv);
}

int fm_distill_main(int argc, char **argv) {
    predict_settings set = defaults;
    set.program = "foldmill distill";
    set.distils = true;
    return run_command(&set,
                       "\nfoldmill distill: stopping after the chain in hand; finished predictions "
                       "stay; a second signal ends the process at once\n",
                       argc, argv);
}
