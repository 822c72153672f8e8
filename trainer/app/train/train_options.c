/* train_options.c: see train_options.h. */
#include "trainer/app/train/train_options.h"

#include "proto/limits.h"
#include "trainer/app/settings/train_config.h"
#include "trainer/app/train/batch_schedule.h"
#include "trainer/dist/groups.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = FM_LAYOUT_RANKS };

const char fm_train_program[] = "foldmill train";

static const char description[] =
    "Trains on the samples of a feature server. Each step appends one JSON object\n"
    "to DIR/metrics.jsonl. Sizes, rates and the sampling plan come from a preset;\n"
    "--config FILE changes settings of it, in the form that --show-config prints.\n"
    "The same data, seed and settings give the same parameters, bit for bit.\n\n"
    "Samples come from a server: that of --data, or one that --cache starts for this\n"
    "run alone, on a Unix socket that only this user can open. It ends with the run.\n\n"
    "Several ranks train together as processes. --ranks N starts them on this host,\n"
    "each on its share of the cores. A group of dap * bp ranks shares each sample,\n"
    "and the samples of a step are divided over the groups. Processes that torchrun,\n"
    "mpirun or srun has started find their rank in the environment. They meet at\n"
    "rank 0, or where --meet says: tcp://HOST:PORT, or file:PATH on a shared file\n"
    "system.\n"
    "--dap and --bp stand for the settings of the section [parallel].\n"
    "Rank 0 writes all outputs. When a rank is lost, all end, and --resume\n"
    "continues from the last checkpoint.\n\n"
    "SIGTERM, SIGINT and SIGHUP stop the run after the sample in hand, also inside\n"
    "a batch; a second signal ends it at once. SIGUSR1 writes a checkpoint and the\n"
    "run continues.\n\n"
    "If the server disconnects, the run waits up to --wait for it or for another\n"
    "server of the same snapshot. A server that sends no sample for --data-timeout\n"
    "counts as disconnected. One that has no room for another connection or stream\n"
    "is asked again for up to --full-wait.\n\n"
    "With --order bounded:W a slow sample does not stop the run: at most W later\n"
    "ones are used before it, and any number with --order free. DIR/ledger says which\n"
    "sample was used at which step and slot; --replay LEDGER uses them in that order\n"
    "again and gives the same bits.\n\n"
    "A model of AlphaFold 3 (--preset af3-...) trains on the complexes of the server,\n"
    "or on stored samples, the files DIR/*.npz of --samples, in a random order that\n"
    "follows from the seed. Every --eval-every steps and after the last, the files of\n"
    "--eval-samples, or the complexes of --eval-snapshot, are scored between steps,\n"
    "into DIR/eval.jsonl.\n\n"
    "The state of the run is saved in DIR every --checkpoint-every steps, every\n"
    "--checkpoint-minutes, and at every end. --resume continues from the newest\n"
    "whole checkpoint, or starts the run if there is none. A run that was killed\n"
    "and resumed gives the same bits as one that was not. It needs the same\n"
    "snapshot, seed and settings; --change K=V allows a setting to differ. --from\n"
    "starts a new run with the parameters and the average of a checkpoint of\n"
    "another run or of `foldmill import`. Steps, moments and the data stream start\n"
    "from 0.\n\n"
    "--supervise starts a run again that was killed or has failed, with --resume, up\n"
    "to --restarts times, after 1 s, 2 s, 4 s and so on. DIR/restarts.jsonl has the\n"
    "reasons. A signal stops the run for good.\n\n"
    "--eval-every N scores the moving average of the parameters every N steps on the\n"
    "whole chains of --eval-snapshot. A process beside the run (foldmill eval) does\n"
    "it on another GPU, on the CPU, or with --eval-share on this GPU between steps. The\n"
    "scores go to DIR/eval.jsonl and, as TensorBoard events, to DIR/eval. The run\n"
    "does not wait for it and continues when it fails. --stop-at ends the run when a\n"
    "score is reached, and prints the time that it took; exit code 3 says that --steps\n"
    "ended first.\n\n"
    "Examples:\n"
    "  foldmill train --cache cache --snapshot train --preset tiny --steps 200\n"
    "  foldmill train --data unix:/run/foldmill.sock --preset tiny --steps 200\n"
    "  foldmill train --preset tiny --show-config >mine.ini\n"
    "  foldmill train --data tls://host:7420 --tls-ca ca.crt \\\n"
    "      --config mine.ini --resume\n"
    "  foldmill train --data unix:/run/foldmill.sock --ranks 4 --dap 2\n"
    "  foldmill train --preset af2-initial --device cuda --gpus 256 --dap 2 --dry-run\n"
    "  foldmill train --samples samples --preset af3-tiny --steps 200\n\n"
    "Exit codes: 0 done, 1 failed, 2 bad usage, 3 all steps made without reaching\n"
    "--stop-at, 129, 130 or 143 stopped by SIGHUP, SIGINT or SIGTERM";

/* Where samples come from, and which of them count. */
#define SAMPLE_OPTIONS(set)                                                                        \
    {"data", FM_OPTION_STRING, &(set)->data, "URL",                                                \
     .help = "servers: unix:PATH, tls://HOST:PORT or tcp://HOST:PORT, separated by commas "        \
             "(or --cache)"},                                                                      \
        {"cache", FM_OPTION_STRING, &(set)->cache, "DIR",                                          \
         .help = "start a server of this cache for the run"},                                      \
        {"samples", FM_OPTION_STRING, &(set)->samples, "DIR",                                      \
         .help = "stored samples of complexes instead, for a model of af3"},                       \
        {"check-samples", FM_OPTION_FLAG, &(set)->check_samples, NULL,                             \
         .help = "read all stored samples, print what is wrong with each, and end"},               \
        {"snapshot", FM_OPTION_STRING, &(set)->snapshot, "NAME",                                   \
         .help = "the snapshot to train on (all, or the server's first)"},                         \
        {"jobs",                                                                                   \
         FM_OPTION_U64,                                                                            \
         &(set)->jobs,                                                                             \
         "N",                                                                                      \
         .help = "worker threads of the server of --cache (2)",                                    \
         .letter = 'j',                                                                            \
         .min = 1,                                                                                 \
         .max = 512},                                                                              \
        FM_CREDENTIALS_OPTIONS(&(set)->credentials, FM_CREDENTIALS_TOKEN_HELP),                    \
        {"order", FM_OPTION_STRING, &(set)->order, "ORDER",                                        \
         .help = "of samples: strict, bounded:W or free (strict)"},                                \
        {"replay", FM_OPTION_STRING, &(set)->replay, "LEDGER",                                     \
         .help = "use the samples in the order of that run's ledger"},                             \
        {"ahead",                                                                                  \
         FM_OPTION_U64,                                                                            \
         &(set)->ahead,                                                                            \
         "N",                                                                                      \
         .help = "samples to receive ahead of the step (8)",                                       \
         .min = 2,                                                                                 \
         .max = 1024},                                                                             \
        {"wait",                                                                                   \
         FM_OPTION_U64,                                                                            \
         &(set)->wait_ms,                                                                          \
         "MS",                                                                                     \
         .help = "how long to try to connect or reconnect (5000)",                                 \
         .max = 3600000},                                                                          \
        {"full-wait",                                                                              \
         FM_OPTION_U64,                                                                            \
         &(set)->full_wait_s,                                                                      \
         "S",                                                                                      \
         .help = "how long to ask a server again that has no room (300)",                          \
         .max = 86400},                                                                            \
        {"data-timeout",                                                                           \
         FM_OPTION_U64,                                                                            \
         &(set)->data_timeout_s,                                                                   \
         "S",                                                                                      \
         .help = "reconnect after so long without a sample (600)",                                 \
         .min = 1,                                                                                 \
         .max = 604800},                                                                           \
        {"bad-samples", FM_OPTION_STRING, &(set)->bad_samples, "POLICY",                           \
         .help = "unreadable or not finite samples: stop or skip (stop)"},                         \
        {"bad-sample-budget",                                                                      \
         FM_OPTION_U64,                                                                            \
         &(set)->bad_sample_budget,                                                                \
         "N",                                                                                      \
         .help = "bad samples to skip before the run stops (100)",                                 \
         .max = 4000},                                                                             \
    {                                                                                              \
        "skip-sample", FM_OPTION_LIST, &(set)->skip_sample, "I",                                   \
            .help = "skip sample I; may be repeated"                                               \
    }

/* What a run writes, and what it begins with. */
#define SAVE_OPTIONS(set)                                                                           \
    {"checkpoint-every",                                                                            \
     FM_OPTION_U64,                                                                                 \
     &(set)->checkpoint_every,                                                                      \
     "N",                                                                                           \
     .help = "steps between checkpoints (1000); 0 = write none",                                    \
     .max = FM_LIMIT_STEP},                                                                         \
        {"checkpoint-minutes", FM_OPTION_F64, &(set)->checkpoint_minutes, "M",                      \
         .help = "minutes between checkpoints, 0 = by steps only (15)"},                            \
        {"keep",   FM_OPTION_U64, &(set)->keep_last, "N", .help = "newest checkpoints to keep (3)", \
         .min = 1, .max = 10000},                                                                   \
        {"keep-every",                                                                              \
         FM_OPTION_U64,                                                                             \
         &(set)->keep_every,                                                                        \
         "M",                                                                                       \
         .help = "never remove those of every M-th step (10000; 0 = none)",                         \
         .max = FM_LIMIT_STEP},                                                                     \
        {"from", FM_OPTION_STRING, &(set)->from, "CHECKPOINT",                                      \
         .help = "start a new run with its parameters"},                                            \
        {"resume", FM_OPTION_FLAG, &(set)->resume, NULL,                                            \
         .help = "continue from the newest checkpoint in --out"},                                   \
    {                                                                                               \
        "change", FM_OPTION_LIST, &(set)->change, "K=V",                                            \
            .help = "resume with another value of a setting; may be repeated"                       \
    }

/* Scores on other chains during the run. */
#define EVAL_OPTIONS(set)                                                                          \
    {"eval-every",                                                                                 \
     FM_OPTION_U64,                                                                                \
     &(set)->eval_every,                                                                           \
     "N",                                                                                          \
     .help = "score a checkpoint every N steps, beside the run (0: never)",                        \
     .max = FM_LIMIT_STEP},                                                                        \
        {"eval-samples", FM_OPTION_STRING, &(set)->eval_samples, "DIR",                            \
         .help = "stored samples to score, for a model of af3"},                                   \
        {"eval-snapshot", FM_OPTION_STRING, &(set)->eval_snapshot, "NAME",                         \
         .help = "the chains to score, or complexes for a model of af3"},                          \
        {"eval-data", FM_OPTION_STRING, &(set)->eval_data, "URL",                                  \
         .help = "server of these (that of --data or --cache)"},                                   \
        {"eval-device", FM_OPTION_STRING, &(set)->eval_device, "NAME",                             \
         .help = "cpu, cuda or cuda:N to score on (cpu when training on it)"},                     \
        {"eval-dtype", FM_OPTION_STRING, &(set)->eval_dtype, "TYPE",                               \
         .help = "fp32, or bf16 on cuda (as the run)"},                                            \
        {"eval-share", FM_OPTION_FLAG, &(set)->eval_share, NULL,                                   \
         .help = "score on the run's device; steps wait meanwhile"},                               \
        {"eval-wait",                                                                              \
         FM_OPTION_U64,                                                                            \
         &(set)->eval_wait_s,                                                                      \
         "S",                                                                                      \
         .help = "wait for scores at the end, or with --eval-share (600)",                         \
         .max = 604800},                                                                           \
    {                                                                                              \
        "stop-at", FM_OPTION_STRING, &(set)->stop_at, "SCORE=V",                                   \
            .help = "end the run when a score reaches V, as lddt_ca=0.8"                           \
    }

static fm_status read_options(fm_train_options *set, int argc, char **argv, fm_error *reterr) {
    const fm_option options[] = {
        SAMPLE_OPTIONS(set),
        {"preset", FM_OPTION_STRING, &set->preset, "NAME",
         .help = "settings to begin with; the list is above (tiny)"},
        {"config", FM_OPTION_STRING, &set->config, "FILE",
         .help = "INI file with changes to the preset"},
        {"show-config", FM_OPTION_FLAG, &set->show_config, NULL,
         .help = "print all settings as --config takes them, and end"},
        {"help-config", FM_OPTION_FLAG, &set->help_config, NULL,
         .help = "print a Markdown table of all settings"},
        {"dry-run", FM_OPTION_FLAG, &set->dry_run, NULL,
         .help = "print layout, memory and a forecast of the steps, and end"},
        {"device", FM_OPTION_STRING, &set->device, "NAME", .help = "cpu or cuda (cpu)"},
        {"dtype", FM_OPTION_STRING, &set->dtype, "TYPE",
         .help = "of activations: fp32, or bf16 on cuda (fp32)"},
        {"ranks", FM_OPTION_U64, &set->ranks, "N", "CPU processes (dap * bp)", .min = 1,
         .max = MOST_RANKS},
        {"gpus", FM_OPTION_U64, &set->gpus, "N", "processes with a GPU each", .min = 1,
         .max = MOST_RANKS},
        {"dap", FM_OPTION_U64, &set->dap, "D", "ranks for a sample's parts", .min = 1,
         .max = FM_LAYOUT_DAP},
        {"bp", FM_OPTION_U64, &set->bp, "B", "ranks for a block's branches", .min = 1, .max = 2},
        {"meet", FM_OPTION_STRING, &set->meet, "ADDRESS", .help = "where rank 0 meets the others"},
        {"across-hosts", FM_OPTION_FLAG, &set->crosses_hosts, NULL,
         .help = "let the ranks of a sample be on several hosts, which is slow"},
        {"patience", FM_OPTION_U64, &set->patience_s, "S",
         .help = "seconds that a rank may give no sign before it is lost (20)", .min = 5,
         .max = 3600},
        {"supervise", FM_OPTION_FLAG, &set->supervises, NULL,
         .help = "start the run again from its newest checkpoint when it fails"},
        {"restarts", FM_OPTION_U64, &set->restarts, "N",
         .help = "how often --supervise starts it again (20)", .min = 1, .max = 100000},
        {"steps", FM_OPTION_U64, &set->steps, "N", .help = "updates in all (100)", .letter = 'n',
         .min = 1, .max = FM_LIMIT_STEP},
        {"batch-schedule", FM_OPTION_STRING, &set->batch_schedule, "B@S,...",
         .help = "samples per step after S steps; the last @lddt_ca>=X (af3: lddt) waits for it"},
        {"seed", FM_OPTION_U64, &set->seed, "S",
         .help = "seed of parameters, dropout and stream (0)"},
        {"out", FM_OPTION_STRING, &set->out, "DIR", .help = "folder of the run (foldmill-run)",
         .letter = 'o'},
        {"tensorboard", FM_OPTION_STRING, &set->tensorboard, "DIR",
         .help = "write TensorBoard events to DIR as well"},
        {"stop-on-divergence", FM_OPTION_FLAG, &set->stop_on_divergence, NULL,
         .help = "end the run when its loss or gradients diverge"},
        SAVE_OPTIONS(set),
        EVAL_OPTIONS(set),
        {"quiet", FM_OPTION_FLAG, &set->quiet, NULL, .help = "print only the summary, no progress",
         .letter = 'q'},
        {0}};
    static char text[sizeof description + FM_TRAIN_CONFIG_PRESETS_BYTES + 64];
    char presets[FM_TRAIN_CONFIG_PRESETS_BYTES];
    fm_train_config_list_presets(presets);
    snprintf(text, sizeof text, "%s\n\nPresets:\n%.*s", description, (int)strlen(presets) - 1,
             presets);
    const fm_command command = {.program = fm_train_program,
                                .arguments = "--data URL | --cache DIR | --samples DIR [options]",
                                .summary = "train on the samples of a feature server",
                                .description = text,
                                .options = options};
    int n_positional;
    return fm_options_parse(&command, argc, argv, &n_positional, reterr);
}

fm_status fm_train_options_index(const char *text, uint64_t *ret_index, fm_error *reterr) {
    char *end;
    errno = 0;
    *ret_index = strtoull(text, &end, 10);
    if (*text >= '0' && *text <= '9' && !*end && errno == 0) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "--skip-sample: found '%.64s', expected the number of a sample", text);
}

static fm_status check(fm_train_options *set, fm_error *reterr) {
    const bool has_source = set->data || set->cache || set->samples;
    if (!has_source && !set->show_config && !set->help_config && !set->dry_run) {
        return fm_fail(
            reterr, FM_ERR_USAGE,
            "--data URL or --cache DIR is required, or --samples DIR for a model of af3");
    }
    if (set->data && set->cache) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--data is the server of others and --cache starts one: give one of them");
    }
    if (!set->cache && set->jobs) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--jobs is for the server of --cache; the server of --data has its own");
    }
    if (set->change.n && !set->resume) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--change is for --resume; a new run takes its settings as they are");
    }
    if (set->replay && strcmp(set->order, "strict") != 0) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--order and --replay: the ledger has the order; give one of the two");
    }
    set->skips_bad = strcmp(set->bad_samples, "skip") == 0;
    if (!set->skips_bad && strcmp(set->bad_samples, "stop") != 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--bad-samples: found '%.32s', expected stop or skip",
                       set->bad_samples);
    }
    if (!(set->checkpoint_minutes >= 0 && set->checkpoint_minutes <= 1e6)) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--checkpoint-minutes: found %g, expected 0 to 1000000",
                       set->checkpoint_minutes);
    }
    fm_batch_schedule schedule;
    fm_status status = FM_OK;
    if (set->batch_schedule) {
        status = fm_batch_schedule_parse(set->batch_schedule, &schedule, reterr);
    }
    uint64_t index;
    for (uint32_t i = 0; !status && i < set->skip_sample.n; i++)
        status = fm_train_options_index(set->skip_sample.value[i], &index, reterr);
    return status;
}

fm_status fm_train_options_parse(fm_train_options *set, int argc, char **argv, fm_error *reterr) {
    *set = (fm_train_options){.preset = "tiny",
                              .out = "foldmill-run",
                              .order = "strict",
                              .device = "cpu",
                              .dtype = "fp32",
                              .bad_samples = "stop",
                              .steps = 100,
                              .checkpoint_every = 1000,
                              .checkpoint_minutes = 15,
                              .keep_last = 3,
                              .keep_every = 10000,
                              .bad_sample_budget = 100,
                              .ahead = 8,
                              .wait_ms = 5000,
                              .full_wait_s = 300,
                              .data_timeout_s = 600,
                              .eval_wait_s = 600,
                              .patience_s = 20,
                              .restarts = 20,
                              .argc = argc,
                              .argv = argv};
    fm_status status = read_options(set, argc, argv, reterr);
    return status ? status : check(set, reterr);
}

/* Whether a shell takes the word as it is. */
static bool is_plain(const char *word) {
    return *word && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                 "-_=+./:,@%") == strlen(word);
}

/* Adds a blank and the word as a shell reads it back; an apostrophe cannot be between two others.
 * Returns the length of the text, which is cut at out_bytes. */
static size_t add_word(const char *word, char *out, size_t at, size_t out_bytes) {
    if (is_plain(word)) return at + (size_t)snprintf(out + at, out_bytes - at, " %s", word);
    at += (size_t)snprintf(out + at, out_bytes - at, " '");
    for (; *word && at < out_bytes; word++) {
        const char letter[] = {*word, '\0'};
        at += (size_t)snprintf(out + at, out_bytes - at, "%s", *word == '\'' ? "'\\''" : letter);
    }
    if (at < out_bytes) at += (size_t)snprintf(out + at, out_bytes - at, "'");
    return at;
}

void fm_train_options_advise(const fm_train_options *set, const char *more, char *out,
                             size_t out_bytes) {
    size_t at = (size_t)snprintf(out, out_bytes, "%s", fm_train_program);
    for (int i = 1; i < set->argc && at < out_bytes; i++)
        at = add_word(set->argv[i], out, at, out_bytes);
    if (at < out_bytes) {
        at += (size_t)snprintf(out + at, out_bytes - at, "%s%s%s", set->resume ? "" : " --resume",
                               *more ? " " : "", more);
    }
    if (at >= out_bytes) memcpy(out + out_bytes - 4, "...", 4);
}
