/* predict_options.c: see predict_options.h. */
#include "trainer/app/prediction/predict_options.h"

#include "proto/base/utf8.h"
#include "proto/template_date.h"
#include "trainer/infer/cofold.h"
#include "trainer/predict/chain_file.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    "Weights of AlphaFold 3's network predict complexes. Each INPUT is then a description of\n"
    "complexes (JSON of AlphaFold 3, AlphaFold Server or Protenix, YAML of Boltz, FASTA), which\n"
    "needs --components, a job that `foldmill prepare` prepared (.npz), or a folder of both.\n"
    "DIR/summary.csv has a row for each structure and each job that failed. DIR/NAME has\n"
    "AlphaFold 3's files; the guide's page on complexes describes them. Such weights are a\n"
    "checkpoint, or safetensors or PyTorch's file with Protenix's names; AlphaFold 3's own are\n"
    "not free and cannot be read. One process predicts complexes.\n\n"
    "Examples:\n"
    "  foldmill predict T1024.a3m --weights model_1.npz --out results --device cuda\n"
    "  foldmill predict seqs/*.fasta --alignments msas --templates pdb_mmcif \\\n"
    "      --weights model_1.npz --weights model_3.npz --seeds 0,1,2 --out results\n"
    "  foldmill predict job.json --components components.cif --weights protenix.pt \\\n"
    "      --out results --device cuda --dtype bf16\n\n"
    "Exit codes: 0 done, 3 some chains failed (the others are predicted), 1 failed, 2 bad\n"
    "usage, 129, 130 or 143 stopped by SIGHUP, SIGINT or SIGTERM. --resume continues a\n"
    "stopped command: it keeps predictions of the same inputs, weights and settings, also\n"
    "single structures of a complex.";

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

/* Reads "0,1,5" into the list of seeds. */
static fm_status read_seeds(fm_predict_settings *set, fm_error *reterr) {
    const char *at = set->seeds;
    for (;;) {
        char *end = NULL;
        errno = 0;
        unsigned long long seed = strtoull(at, &end, 10);
        bool is_number = *at >= '0' && *at <= '9' && errno == 0; /* no sign and no blank */
        if (!is_number || (*end && *end != ',')) {
            return fm_fail(reterr, FM_ERR_USAGE, "--seeds: found '%.64s', expected 0,1,2", at);
        }
        if (seed > INT64_MAX) { /* files of JSON hold signed numbers */
            return fm_fail(reterr, FM_ERR_USAGE, "--seeds: %llu is larger than %lld", seed,
                           (long long)INT64_MAX);
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

/* The file's name without folders and ending. It becomes part of file names and texts. So a byte
 * that belongs to no UTF-8 character becomes '_', also where the end of a long name is cut. */
static void name_after(const char *path, char out[FM_CHAIN_MODEL_MOST + 1]) {
    const char *slash = strrchr(path, '/'), *leaf = slash ? slash + 1 : path;
    const char *dot = strrchr(leaf, '.');
    int length = dot && dot != leaf ? (int)(dot - leaf) : (int)strlen(leaf);
    snprintf(out, FM_CHAIN_MODEL_MOST + 1, "%.*s", length, leaf);
    for (size_t left = strlen(out), size; left; out += size, left -= size) {
        size = fm_utf8_size((const uint8_t *)out, left);
        if (size) continue;
        *out = '_';
        size = 1;
    }
}

/* Names each model after its file; equal names get a number. */
static void name_models(fm_predict_settings *set) {
    for (uint32_t m = 0; m < set->weights.n; m++) {
        char name[FM_CHAIN_MODEL_MOST + 1];
        uint32_t n = 0;
        name_after(set->weights.value[m], name);
        snprintf(set->name[m], sizeof set->name[m], "%s", name);
        for (uint32_t k = 0; k < m; k++) {
            if (strcmp(set->name[k], set->name[m]) != 0) continue;
            snprintf(set->name[m], sizeof set->name[m], "%s-%u", name, 2 + n++);
            k = UINT32_MAX; /* compare with all again */
        }
    }
}

static fm_status check_selection(const fm_predict_settings *set, fm_error *reterr) {
    if (set->command->predicts_once && (set->weights.n > 1 || set->n_seed > 1)) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "distill predicts each chain once: give one --weights and one seed");
    }
    if (!(set->min_plddt >= 0 && set->min_plddt <= 100)) {
        return fm_fail(reterr, FM_ERR_USAGE, "--min-plddt: found %g, expected 0 to 100",
                       set->min_plddt);
    }
    return FM_OK;
}

static fm_status check_source(const fm_predict_settings *set, fm_error *reterr) {
    int n = (set->n_input > 0) + (set->cache != NULL) + (set->data != NULL);
    if (n != 1) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "expected one source of chains: %s--cache DIR or --data "
                       "URL",
                       set->command->most_inputs ? "INPUT files, " : "");
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
static fm_status check_ranks(fm_predict_settings *set, fm_error *reterr) {
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

static fm_status check(fm_predict_settings *set, fm_error *reterr) {
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
        return fm_fail(reterr, FM_ERR_USAGE, "--device-memory: found %g, expected 0 to 1000000 GiB",
                       set->device_gib);
    }
    if (!(set->recycle_tol >= 0 && set->recycle_tol <= 1000)) {
        return fm_fail(reterr, FM_ERR_USAGE, "--recycle-tol: found %g, expected 0 to 1000 Å",
                       set->recycle_tol);
    }
    const uint64_t cycles = fm_predict_settings_recycles(set) + 1;
    if (cycles * set->ensemble > FM_MAX_CYCLE) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--ensemble %llu with %llu cycles needs more than %d draws of MSA rows, the "
                       "most that a sample has",
                       (unsigned long long)set->ensemble, (unsigned long long)cycles, FM_MAX_CYCLE);
    }
    if (!set->date) set->date = set->n_input ? "any" : "query";
    set->date_rule = fm_template_date_parse(set->date);
    if (!set->date_rule) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--max-template-date: found '%.32s', expected YYYY-MM-DD, any or query",
                       set->date);
    }
    name_models(set);
    set->has_seeds = set->seeds != NULL;
    if (!set->seeds) set->seeds = "0";
    status = read_seeds(set, reterr);
    return status ? status : check_selection(set, reterr);
}

enum { MOST_OPTIONS = 48 };

/* Options of the devices, the processes and the server. */
static void list_machine_options(fm_predict_settings *set, fm_option *out, size_t most) {
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
         .help =
             "processes on CPUs that divide the chains, or seeds of complexes (as many as --dap)",
         .min = 1, .max = MOST_RANKS},
        {"gpus", FM_OPTION_U64, &set->gpus, "N",
         .help = "the same with one GPU each, on --device cuda", .min = 1, .max = MOST_RANKS},
        {"dap", FM_OPTION_U64, &set->dap, "D",
         .help = "split each chain or complex over D of them, for long ones (1)", .min = 1,
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

static void list_options(fm_predict_settings *set, fm_option out[MOST_OPTIONS]) {
    const fm_option options[] = {
        {"weights", FM_OPTION_LIST, &set->weights, "FILE",
         .help = "checkpoint, .npz or safetensors (required); may be repeated", .letter = 'w'},
        {"out", FM_OPTION_STRING, &set->out, "DIR", .help = "folder of the results (required)",
         .letter = 'o'},
        {"alignments", FM_OPTION_STRING, &set->alignments, "DIR",
         .help = "folder of the FASTA files' alignments (beside each file)",
         .again = "the files must be in one place"},
        {"templates", FM_OPTION_STRING, &set->templates, "DIR",
         .help = "folder or zip archive of the mmCIF files that template hits name",
         .again = "the files must be in one place"},
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
         .help = "recycling cycles after the first (3); of complexes: all cycles (10)", .max = 20},
        {"recycle-tol", FM_OPTION_F64, &set->recycle_tol, "ANGSTROM",
         .help = "end recycling when a cycle changes CA distances by less; 0: never (0.5)"},
        {"ensemble", FM_OPTION_U64, &set->ensemble, "N",
         .help = "draws of MSA rows in each cycle, whose representations are averaged (1)",
         .min = 1, .max = FM_MAX_CYCLE},
        {"dropout", FM_OPTION_FLAG, &set->dropout, NULL,
         .help = "keep dropout on, for seeds that differ more"},
        {"seeds", FM_OPTION_STRING, &set->seeds, "LIST",
         .help = "seeds that choose the MSA rows, one prediction for each (0)"},
        {"components", FM_OPTION_STRING, &set->components, "FILE",
         .help = "of complexes: the dictionary of chemical components (mmCIF), for descriptions"},
        {"steps", FM_OPTION_U64, &set->steps, "N", .help = "of complexes: denoising steps (200)",
         .min = 1, .max = FM_COFOLD_STEPS},
        {"samples", FM_OPTION_U64, &set->samples, "N",
         .help = "of complexes: structures of each seed (5)", .min = 1,
         .max = FM_COFOLD_STRUCTURES},
        {"msa-rows", FM_OPTION_U64, &set->msa_rows, "N",
         .help = "of complexes: most MSA rows of a cycle (16384)", .min = 1, .max = FM_COFOLD_ROWS},
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

/* Removes the rows of options that the command does not have. One that predicts each chain once
 * takes one file of weights and one seed, and its help says so. */
static void choose_options(fm_option *options, const fm_predict_command_kind *command) {
    size_t kept = 0;
    for (size_t i = 0; options[i].name; i++) {
        bool is_wanted = true;
        for (const char *const *other = command->lacks; *other; other++)
            is_wanted &= strcmp(options[i].name, *other) != 0;
        if (is_wanted) options[kept++] = options[i];
        if (command->predicts_once && strcmp(options[i].name, "weights") == 0) {
            options[kept - 1].help = "checkpoint, .npz or safetensors (required)";
        } else if (command->predicts_once && strcmp(options[i].name, "seeds") == 0) {
            options[kept - 1].help = "the seed of the choice of MSA rows (0)";
            options[kept - 1].value_name = "S";
        }
    }
    options[kept] = (fm_option){0};
}

const fm_predict_command_kind fm_predict_command = {
    .program = "foldmill predict",
    .arguments = "INPUT... --weights FILE --out DIR [options]",
    .summary = "predict structures from sequences with alignments",
    .description = predict_description,
    .most_inputs = MOST_INPUTS,
    .lacks = (const char *const[]){"min-plddt", NULL},
    .outputs = &fm_predict_ranked};
const fm_predict_command_kind fm_distill_command = {
    .program = "foldmill distill",
    .arguments = "--cache DIR|--data URL --weights FILE --out DIR [options]",
    .summary = "predict the chains of a cache for self-distillation",
    .description = distill_description,
    .predicts_once = true,
    .lacks =
        (const char *const[]){"alignments", "templates", "single-sequence", "chain", "ensemble",
                              "pdb", "components", "steps", "samples", "msa-rows", NULL},
    .outputs = &fm_predict_distilled};

fm_status fm_predict_settings_parse(fm_predict_settings *set, int argc, char **argv,
                                    fm_error *reterr) {
    fm_option options[MOST_OPTIONS];
    list_options(set, options);
    choose_options(options, set->command);
    const fm_command command = {.program = set->command->program,
                                .arguments = set->command->arguments,
                                .summary = set->command->summary,
                                .description = set->command->description,
                                .options = options,
                                .max_positional = set->command->most_inputs};
    int n_positional;
    fm_status status = fm_options_parse(&command, argc, argv, &n_positional, reterr);
    if (status) return status;
    set->n_input = (uint32_t)n_positional;
    set->input = argv;
    return check(set, reterr);
}

static const fm_predict_settings defaults = {.set = "ema",
                                             .device = "cpu",
                                             .dtype = "fp32",
                                             .recycles = FM_PREDICT_NOT_GIVEN,
                                             .dap = 1,
                                             .ensemble = 1,
                                             .recycle_tol = 0.5,
                                             .min_plddt = 70,
                                             .wait_ms = 5000,
                                             .data_timeout_s = 600};

uint64_t fm_predict_settings_recycles(const fm_predict_settings *set) {
    return set->recycles == FM_PREDICT_NOT_GIVEN ? 3 : set->recycles;
}

fm_predict_settings fm_predict_settings_default(const fm_predict_command_kind *command) {
    fm_predict_settings set = defaults;
    set.command = command;
    return set;
}
