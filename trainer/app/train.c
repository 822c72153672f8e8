/* train.c: `foldmill train`; see train.h.
 *
 * Two threads work: the loader's thread receives samples ahead, and this one queues and collects
 * them. A sample is queued (its upload and its passes are submitted to the device) before the
 * previous one is collected (its loss and norm are read back), so the device never waits for the
 * host:
 *
 *     queue 1 | queue 2 | collect 1 | queue 3 | collect 2 | ...
 *
 * A step is samples_per_step samples; the last one also makes the update. When the last sample of a
 * step is collected, finish_step reports the step. drain() collects until a given number of samples
 * is left in flight. It collects everything before a checkpoint, before a reconnect, at the end,
 * and after each sample where overlap is impossible: on the CPU, and when the sample's structure is
 * scored from the step's memory.
 *
 * The token counts the samples that were collected; step_token is the token at the last finished
 * step and goes into checkpoints. After a failure, the trainer drops what is queued behind the
 * failed sample, and drain() gives these samples back to the loader. */
#include "trainer/app/train.h"

#include "proto/base/file.h"
#include "proto/base/log.h"
#include "proto/base/options.h"
#include "trainer/app/train_config.h"
#include "trainer/data/loader.h"
#include "trainer/app/choose_device.h"
#include "trainer/backend/fallback.h"
#include "trainer/app/sample_features.h"
#include "trainer/metrics/event_file.h"
#include "trainer/metrics/metrics.h"
#include "trainer/app/resume.h"
#include "trainer/app/setup.h"
#include "trainer/step/score.h"
#include "trainer/step/team.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum {
    EXIT_OK = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    N_WINDOW = 10,    /* steps at each end of a run whose mean loss is reported */
    QUIET_STEPS = 10, /* without a terminal, a progress line every so many steps */
};

static const char program[] = "foldmill train";

static const char description[] =
    "Trains on the samples of a feature server. Each step appends one JSON object\n"
    "to DIR/metrics.jsonl. Sizes, rates and the sampling plan come from a preset;\n"
    "--config FILE changes settings of it, in the form that --show-config prints.\n"
    "The section [parallel] splits each sample over several ranks (dap, bp), which\n"
    "are CPU threads. The same data, seed and settings give the same parameters,\n"
    "bit for bit. SIGINT and SIGTERM stop the run after the current step.\n\n"
    "If the server disconnects, the run waits up to --wait for it or for another\n"
    "server of the same snapshot. Otherwise it ends with a checkpoint of the last\n"
    "step.\n\n"
    "The state of the run is saved in DIR every --checkpoint-every steps and at the\n"
    "end. --resume continues from the newest whole checkpoint, or starts the run if\n"
    "there is none. A run that was killed and resumed gives the same bits as one\n"
    "that was not. It needs the same snapshot, seed and settings. --from starts a\n"
    "new run with the parameters and the average of a checkpoint of another run or\n"
    "of `foldmill import`; steps, moments and the data stream start from 0.\n\n"
    "examples:\n"
    "  foldmill train --data unix:/run/foldmill.sock --preset tiny --steps 200\n"
    "  foldmill train --preset tiny --show-config >mine.ini\n"
    "  foldmill train --data tcp://host:7420 --config mine.ini --steps 5000 --resume\n\n"
    "exit codes: 0 done or stopped on request, 1 failed, 2 bad usage";

typedef struct settings {
    const char *data, *preset, *config, *from, *out, *tensorboard, *order, *device, *dtype;
    uint64_t steps, seed, ahead, wait_ms;
    uint64_t checkpoint_every, keep_last, keep_every; /* steps, files, steps; 0 = never */
    bool quiet, resume, show_config, help_config;
} settings;

/* The results of a step's samples, summed. */
typedef struct step_sums {
    double loss, norm, wait_s;
    uint64_t done_ns; /* the device's clock after the last */
    double term[FM_LOSS_TERMS];
    double score[FM_METRICS_SCORES];
    uint32_t n_scored; /* samples that have scores */
    uint64_t index;
    uint32_t n_cycle;
    char name[FM_LIMIT_NAME_BYTES + 1];
} step_sums;

/* A sample that is queued and not yet collected. */
typedef struct flight {
    fm_loaded loaded;
    fm_features features;
    bool is_first, is_last; /* of its step */
    bool is_scored;
    double rate, wait_s;
} flight;

/* A run in progress. */
typedef struct train_run {
    const settings *set;
    fm_train_config config;
    fm_team *team;
    fm_trainer *trainer; /* the first trainer of the team */
    fm_loader *loader;
    fm_loader_stats earlier; /* counts of earlier connections */
    fm_metrics *metrics;
    fm_event_file *events; /* NULL without --tensorboard */
    bool terminal;
    flight flight[FM_MOST_QUEUED];
    uint64_t n_queued, n_collected; /* samples */
    step_sums sums;                 /* of the step under collection */
    /* updates queued; the device's clock after the last collected step */
    uint64_t queued_step, done_ns;
    uint64_t n_step, start_ns; /* updates collected in the whole run; monotonic clock */
    /* step at which this process began; step of the newest checkpoint */
    uint64_t first_step, saved_step;
    fm_token token;      /* the samples collected */
    fm_token step_token; /* those of them that finished updates have seen */
    /* of the server, or of the checkpoint before there is a server; all zero = any is accepted */
    fm_sha256 snapshot;
    bool data_ended;                   /* the stream ended early; the state up to then is whole */
    int lock;                          /* of the folder */
    bool said_slow[FM_FALLBACK_KINDS]; /* slow paths that have had their log line */
    double first_sum, last[N_WINDOW];  /* losses of the first and of the newest N_WINDOW steps */
} train_run;

/* -- the command line */

static int report(const fm_error *error) {
    char text[FM_ERROR_SOURCE_BYTES + FM_ERROR_MESSAGE_BYTES + 64];
    fm_error_format(error, text, sizeof text);
    fprintf(stderr, "%s: %s\n", program, text);
    return error->status == FM_ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
}

static int parse(settings *set, int argc, char **argv) {
    const fm_option options[] = {
        {"data", FM_OPTION_STRING, &set->data, "URL",
         .help = "server, unix:PATH or tcp://HOST:PORT (required)"},
        {"preset", FM_OPTION_STRING, &set->preset, "NAME",
         .help = "af2-initial, af2-finetuning, overfit, tiny (tiny)"},
        {"config", FM_OPTION_STRING, &set->config, "FILE",
         .help = "INI file with changes to the preset"},
        {"show-config", FM_OPTION_FLAG, &set->show_config, NULL,
         .help = "print all settings as --config takes them, and end"},
        {"help-config", FM_OPTION_FLAG, &set->help_config, NULL,
         .help = "print a Markdown table of all settings"},
        {"device", FM_OPTION_STRING, &set->device, "NAME", .help = "cpu or cuda (cpu)"},
        {"dtype", FM_OPTION_STRING, &set->dtype, "TYPE",
         .help = "of activations: fp32, or bf16 on cuda (fp32)"},
        {"steps", FM_OPTION_U64, &set->steps, "N", .help = "updates in all (100)", .letter = 'n',
         .min = 1, .max = FM_LIMIT_STEP},
        {"seed", FM_OPTION_U64, &set->seed, "S",
         .help = "seed of parameters, dropout and stream (0)"},
        {"out", FM_OPTION_STRING, &set->out, "DIR", .help = "folder of the run (foldmill-run)",
         .letter = 'o'},
        {"tensorboard", FM_OPTION_STRING, &set->tensorboard, "DIR",
         .help = "write TensorBoard events to DIR as well"},
        {"order", FM_OPTION_STRING, &set->order, "ORDER",
         .help = "of samples: strict or bounded:W (strict)"},
        {"ahead", FM_OPTION_U64, &set->ahead, "N",
         .help = "samples to receive ahead of the step (8)", .min = 2, .max = 1024},
        {"wait", FM_OPTION_U64, &set->wait_ms, "MS",
         .help = "how long to try to connect or reconnect (5000)", .max = 3600000},
        {"checkpoint-every", FM_OPTION_U64, &set->checkpoint_every, "N",
         .help = "steps between checkpoints, 0 = none (1000)", .max = FM_LIMIT_STEP},
        {"keep", FM_OPTION_U64, &set->keep_last, "N", .help = "newest checkpoints to keep (3)",
         .min = 1, .max = 10000},
        {"keep-every", FM_OPTION_U64, &set->keep_every, "M",
         .help = "never remove those of every M-th step (0 = none)", .max = FM_LIMIT_STEP},
        {"from", FM_OPTION_STRING, &set->from, "CHECKPOINT",
         .help = "start a new run with its parameters"},
        {"resume", FM_OPTION_FLAG, &set->resume, NULL,
         .help = "continue from the newest checkpoint in --out"},
        {"quiet", FM_OPTION_FLAG, &set->quiet, NULL, .help = "print only the summary, no progress",
         .letter = 'q'},
        {0}};
    const fm_command command = {.program = program,
                                .arguments = "--data URL [options]",
                                .summary = "train on the samples of a feature server",
                                .description = description,
                                .options = options};
    fm_error error;
    int n_positional;
    fm_status status = fm_options_parse(&command, argc, argv, &n_positional, &error);
    if (!status && !set->data && !set->show_config && !set->help_config) {
        status = fm_fail(&error, FM_ERR_USAGE, "--data URL is required");
    }
    if (status == FM_ERR_CANCELLED) return EXIT_OK;
    return status ? report(&error) : -1;
}

static int show_config(const settings *set) {
    fm_train_config config;
    fm_error error;
    fm_status status = fm_train_config_load(set->preset, set->config, &config, &error);
    if (status) return report(&error);
    char text[FM_TRAIN_CONFIG_TEXT_BYTES];
    fm_train_config_format_all(&config, text);
    fputs(text, stdout);
    return EXIT_OK;
}

static int help_config(void) {
    fm_train_config config;
    fm_error error;
    fm_status status = fm_train_config_preset("af2-initial", &config, &error);
    if (status) return report(&error);
    static char text[FM_TRAIN_CONFIG_DOCUMENT_BYTES];
    fm_train_config_document(&config, text);
    fputs(text, stdout);
    return EXIT_OK;
}

/* -- opening what a run needs */

static fm_status open_loader(train_run *run, uint32_t wait_ms, fm_loader **ret_loader,
                             fm_error *reterr) {
    const fm_train_config *config = &run->config;
    fm_loader_options options = {
        .client = {.url = run->set->data,
                   .agent = program,
                   .snapshot = run->snapshot,
                   .retry_ms = wait_ms},
        .stream = {.global_batch = (uint32_t)config->data.global_batch,
                   .crop_size = (uint32_t)config->data.crop_size,
                   .max_msa_clusters = (uint32_t)config->data.max_msa_clusters,
                   .max_extra_msa = (uint32_t)config->data.max_extra_msa,
                   .max_cycle = (uint32_t)config->data.max_cycle,
                   .max_template_date = config->data.max_template_date,
                   .seed = run->set->seed,
                   .n_step = run->set->steps,
                   .n_group = 1,
                   .policy = FM_WIRE_STOP,
                   .token = run->token},
        .n_slab = (uint32_t)run->set->ahead,
    };
    fm_wire_text(options.stream.plan, sizeof options.stream.plan, config->data.plan);
    fm_status status =
        fm_wire_order_parse(run->set->order, &options.stream.order, &options.stream.window, reterr);
    return status ? status : fm_loader_open(&options, ret_loader, reterr);
}

static fm_status create_trainer(train_run *run, fm_error *reterr) {
    const fm_kernels *kernels;
    fm_status status = fm_device_find(run->set->device, run->set->dtype, &kernels, reterr);
    if (status) return status;
    const fm_train_config *config = &run->config;
    const fm_trainer_options options = fm_trainer_options_of(config, kernels, run->set->seed);
    const fm_layout layout = {config->parallel.dap, config->parallel.bp, 1};
    if (fm_layout_ranks(&layout) > 1 && strcmp(run->set->device, "cpu") != 0) {
        return fm_fail(
            reterr, FM_ERR_UNSUPPORTED,
            "[parallel] dap = %d, bp = %d: ranks are CPU threads, but --device %s has one rank; "
            "set dap and bp to 1 or use --device cpu",
            (int)layout.dap, (int)layout.bp, run->set->device);
    }
    status = fm_team_create(&options, &layout, &run->team, reterr);
    if (!status) run->trainer = fm_team_get_first(run->team);
    return status;
}

/* Finds the path of metrics.jsonl. Refuses a folder that has one already, so that two runs do not
 * share a folder. */
static fm_status find_metrics_path(const train_run *run, char path[PATH_MAX], fm_error *reterr) {
    if (snprintf(path, PATH_MAX, "%s/metrics.jsonl", run->set->out) >= PATH_MAX) {
        return fm_fail(reterr, FM_ERR_USAGE, "--out: the path is too long");
    }
    if (run->set->resume || access(path, F_OK) != 0) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_EXISTS, path,
                      "the folder has a run already; give --resume or another --out");
}

static fm_resume_options resume_options(const train_run *run) {
    return (fm_resume_options){.folder = run->set->out,
                               .keep_last = (uint32_t)run->set->keep_last,
                               .keep_every = run->set->keep_every,
                               .seed = run->set->seed,
                               .snapshot = run->snapshot,
                               .config = &run->config};
}

/* Loads the newest checkpoint if --resume is given and there is one. Otherwise begins with the
 * checkpoint of --from or with drawn parameters. */
static fm_status resume(train_run *run, fm_error *reterr) {
    fm_status status = FM_ERR_NOT_FOUND;
    if (run->set->resume) {
        fm_resume_options options = resume_options(run);
        status = fm_resume_load(&options, run->trainer, &run->n_step, &run->token, &run->snapshot,
                                reterr);
        run->first_step = run->n_step;
        run->step_token = run->token;
    }
    if (status != FM_ERR_NOT_FOUND) return status;
    return run->set->from ? fm_resume_begin_from(run->set->from, run->trainer, reterr) : FM_OK;
}

static fm_status save(train_run *run, fm_error *reterr) {
    fm_resume_options options = resume_options(run);
    fm_status status =
        fm_resume_save(&options, run->trainer, run->n_step, &run->step_token, reterr);
    if (!status) run->saved_step = run->n_step;
    return status;
}

/* Writes the last checkpoint of a run, also if its data ended early; *reterr then says so, with the
 * step reached and what to do. */
static fm_status save_last(train_run *run, fm_status status, fm_error *reterr) {
    if (status && !run->data_ended) return status;
    fm_error error;
    fm_status saved = FM_OK;
    if (run->set->checkpoint_every && run->n_step > run->first_step &&
        run->saved_step != run->n_step) {
        saved = save(run, &error);
    }
    if (!status) {
        if (saved) *reterr = error;
        return saved;
    }
    char why[FM_ERROR_MESSAGE_BYTES], what[FM_ERROR_MESSAGE_BYTES] = "";
    snprintf(why, sizeof why, "%s", reterr->message);
    if (saved) {
        snprintf(what, sizeof what, "; the checkpoint cannot be written: %.150s", error.message);
    } else if (run->n_step && (run->saved_step == run->n_step || run->n_step == run->first_step)) {
        snprintf(what, sizeof what, "; --resume continues from its checkpoint");
    }
    return fm_fail(reterr, status, "%.200s, after step %llu of %llu%.200s", why,
                   (unsigned long long)run->n_step, (unsigned long long)run->set->steps, what);
}

/* Set by SIGINT and SIGTERM and checked between steps. A signalfd does not work here: the threads
 * that OpenBLAS starts before main leave the signals unblocked, so one of them would take the
 * default action. */
static volatile sig_atomic_t stop_asked;

static void ask_to_stop(int signal_number) {
    (void)signal_number;
    stop_asked = 1;
}

static void catch_signals(void) {
    struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static void announce(const train_run *run) {
    char text[256];
    fm_trainer_describe(run->trainer, text, sizeof text);
    const fm_wire_welcome *server = fm_loader_get_server(run->loader);
    fprintf(stderr, "model     preset %s: %s\n", run->set->preset, text);
    fprintf(stderr, "data      %s: snapshot %s, %u chains, plan %s, %u samples per step\n",
            run->set->data, server->snapshot_name, server->n_chain, run->config.data.plan,
            fm_loader_get_stream(run->loader)->samples_per_step);
    if (run->n_step >= run->set->steps) {
        fprintf(stderr, "steps     %llu are done already; --steps %llu needs no more\n",
                (unsigned long long)run->n_step, (unsigned long long)run->set->steps);
    }
}

/* -- a step */

/* Counts the sample as delivered. It is called when the sample is collected; a checkpoint stores
 * the token of the last whole step. */
static fm_status note_delivered(train_run *run, uint64_t index, fm_error *reterr) {
    fm_status status = fm_token_deliver(&run->token, index, reterr);
    run->token.epoch =
        (uint32_t)(run->token.watermark / fm_loader_get_stream(run->loader)->epoch_samples);
    return status;
}

static const char *const score_names[FM_METRICS_SCORES] = {
    "lddt_ca", "lddt", "rmsd_ca", "drmsd_ca", "tm_score", "gdt_ts", "gdt_ha"};

/* Whether the samples of the step being queued are scored. */
static bool is_scored(const train_run *run) {
    int64_t every = run->config.metrics.structure_every;
    return run->trainer->atoms != FM_TENSOR_NONE && every &&
           (run->queued_step + 1) % (uint64_t)every == 0;
}

/* Adds the sample's scores to the sums. A crop without known CA atoms has no scores and does not
 * count. */
static fm_status add_scores(train_run *run, const fm_features *features, step_sums *sums,
                            fm_error *reterr) {
    fm_structure_scores s;
    fm_status status = fm_trainer_score(run->trainer, features, &s, reterr);
    if (status || !isfinite(s.lddt_ca) || !isfinite(s.lddt)) return status;
    const double values[FM_METRICS_SCORES] = {s.lddt_ca, s.lddt,   s.rmsd,  s.drmsd,
                                              s.tm,      s.gdt_ts, s.gdt_ha};
    for (int i = 0; i < FM_METRICS_SCORES; i++)
        sums->score[i] += values[i];
    sums->n_scored++;
    return FM_OK;
}

static void name_sample(const fm_sample *sample, fm_error *reterr) {
    if (reterr->source[0] != '\0') return;
    char source[FM_ERROR_SOURCE_BYTES + 32];
    snprintf(source, sizeof source, "sample %llu (%s)", (unsigned long long)sample->index,
             sample->name);
    fm_error_in(reterr, source);
}

/* -- a server that disconnected */

static void add_stats(fm_loader_stats *sum, const fm_loader_stats *more) {
    sum->n_sample += more->n_sample;
    sum->n_skipped += more->n_skipped;
    sum->bytes += more->bytes;
    fm_histogram_merge(&sum->ready_wait_ns, &more->ready_wait_ns);
}

static fm_status drain(train_run *run, uint64_t left, fm_error *reterr);

/* Whether the error means that the server is not reachable, so that it is worth trying again. */
static bool is_absence(fm_status status) {
    return status == FM_ERR_CLOSED || status == FM_ERR_IO;
}

/* Collects what is in flight, then opens a new stream at the sample after it. Retries until --wait
 * has passed. */
static fm_status reconnect(train_run *run, fm_error *reterr) {
    enum { SLICE_MS = 250 }; /* so that a signal is noticed */
    uint64_t begin_ns = fm_clock_ns(), wait_ns = run->set->wait_ms * 1000000u;
    fm_loader *loader = NULL;
    fm_status status = drain(run, 0, reterr);
    if (status) return status;
    do {
        uint64_t left_ms = (wait_ns - (fm_clock_ns() - begin_ns)) / 1000000u;
        status =
            open_loader(run, (uint32_t)(left_ms < SLICE_MS ? left_ms : SLICE_MS), &loader, reterr);
    } while (is_absence(status) && !stop_asked && fm_clock_ns() - begin_ns < wait_ns);
    if (status) return status;
    fm_loader_stats stats = fm_loader_get_stats(run->loader);
    add_stats(&run->earlier, &stats);
    fm_loader_close(run->loader);
    run->loader = loader;
    fm_log(FM_LOG_WARN, "reconnected", "server=%s after_s=%.1f sample=%llu", run->set->data,
           (double)(fm_clock_ns() - begin_ns) * 1e-9, (unsigned long long)run->token.watermark);
    return FM_OK;
}

/* The next sample; reconnects if the server disconnected. A server that has sent nothing since the
 * last connect is not tried again. */
static fm_status next_sample(train_run *run, fm_loaded *ret_loaded, fm_error *reterr) {
    fm_status status = fm_loader_next(run->loader, ret_loaded, reterr);
    if (status == FM_ERR_CLOSED && fm_loader_get_stats(run->loader).n_sample && run->set->wait_ms) {
        fm_error error;
        status = reconnect(run, &error);
        if (!status) status = fm_loader_next(run->loader, ret_loaded, &error);
        if (status) *reterr = error;
    }
    return status;
}

static fm_status queue_sample(train_run *run, bool is_first, bool is_last, fm_error *reterr) {
    flight *f = &run->flight[run->n_queued % FM_MOST_QUEUED];
    uint64_t asked_ns = fm_clock_ns();
    fm_status status = next_sample(run, &f->loaded, reterr);
    run->data_ended = status;
    if (status) return status;
    f->wait_s = (double)(fm_clock_ns() - asked_ns) * 1e-9;
    f->is_first = is_first;
    f->is_last = is_last;
    f->is_scored = is_scored(run);
    status = fm_features_of(f->loaded.sample, &f->features, reterr);
    if (!status) status = fm_team_queue(run->team, &f->features, is_last, reterr);
    if (status) {
        name_sample(f->loaded.sample, reterr);
        fm_loader_release(run->loader, &f->loaded);
        return status;
    }
    f->rate = fm_trainer_rate(run->trainer);
    run->n_queued++;
    return FM_OK;
}

static void add_result(step_sums *sums, const flight *f, const fm_sample_result *result) {
    const fm_sample *sample = f->loaded.sample;
    if (f->is_first) {
        *sums = (step_sums){.index = sample->index, .n_cycle = sample->n_cycle};
        memcpy(sums->name, sample->name, sizeof sums->name);
    }
    sums->wait_s += f->wait_s;
    sums->loss += result->loss;
    sums->norm += result->gradient_norm;
    sums->done_ns = result->done_ns;
    for (int i = 0; i < FM_LOSS_TERMS; i++)
        sums->term[i] += result->term[i];
}

/* Columns for a progress line: $COLUMNS, else the terminal's width, else 80, each less the last
 * column, where terminals wrap. A log file without $COLUMNS has no limit (0). */
static size_t progress_columns(bool terminal) {
    const char *given = getenv("COLUMNS");
    long columns = given ? strtol(given, NULL, 10) : 0;
    struct winsize window;
    if (columns <= 0 && terminal) {
        bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
        columns = known ? window.ws_col : 80;
    }
    return columns > 1 ? (size_t)columns - 1 : 0;
}

static void say(const train_run *run, const fm_metrics_step *step) {
    bool last = step->step == run->set->steps;
    if (run->set->quiet ||
        (!run->terminal && step->step != 1 && step->step % QUIET_STEPS != 0 && !last)) {
        return;
    }
    char text[512]; /* a line that wraps could not be erased */
    fm_metrics_format(step, run->set->steps, progress_columns(run->terminal), text, sizeof text);
    fprintf(stderr,
            run->terminal && !last ? "\r\033[K%s"
            : run->terminal        ? "\r\033[K%s\n"
                                   : "%s\n",
            text);
}

/* The loss terms that the model has. */
static void add_terms(const fm_trainer *trainer, const double *sums, double n,
                      fm_metrics_step *step) {
    static_assert((int)FM_LOSS_TERMS <= (int)FM_METRICS_TERMS, "a step has room for all terms");
    for (int i = 0; i < FM_LOSS_TERMS; i++) {
        if (trainer->term[i] == FM_TENSOR_NONE) continue;
        step->term[step->n_term].name = fm_loss_terms[i].name;
        step->term[step->n_term++].value = sums[i] / n;
    }
}

static double wall_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Logs each kind of slow path that the device's kernels have taken so far, once. */
static void say_slow_paths(train_run *run) {
    fm_fallback fallbacks[FM_FALLBACK_KINDS];
    fm_backend_fallbacks(fallbacks);
    for (int i = 0; i < FM_FALLBACK_KINDS; i++) {
        if (fallbacks[i].count == 0 || run->said_slow[i]) continue;
        char reason[FM_FALLBACK_TEXT + 8];
        fm_log(FM_LOG_WARN, "slow path", "kernel=%s calls=%llu reason=%s", fallbacks[i].name,
               (unsigned long long)fallbacks[i].count,
               fm_log_quote(reason, sizeof reason, fallbacks[i].text));
        run->said_slow[i] = true;
    }
}

/* The step's last sample has been collected. */
static fm_status finish_step(train_run *run, double rate, fm_error *reterr) {
    uint32_t n = fm_loader_get_stream(run->loader)->samples_per_step;
    const step_sums *sums = &run->sums;
    /* By the device's clock: the host may see the end of a step when the next one is well under
     * way. */
    uint64_t step_ns = run->done_ns ? sums->done_ns - run->done_ns : fm_clock_ns() - run->start_ns;
    run->n_step++;
    fm_metrics_step step = {
        .step = run->n_step,
        .index = sums->index,
        .sample = sums->name,
        .n_cycle = sums->n_cycle,
        .loss = sums->loss / n,
        .grad_norm = sums->norm / n,
        .learning_rate = rate,
        .step_s = (double)step_ns * 1e-9,
        .data_wait_s = sums->wait_s,
        .left_s = (double)(fm_clock_ns() - run->start_ns) * 1e-9 *
                  (double)(run->set->steps - run->n_step) / (double)(run->n_step - run->first_step),
    };
    run->done_ns = sums->done_ns;
    run->step_token = run->token;
    add_terms(run->trainer, sums->term, n, &step);
    for (uint32_t i = 0; sums->n_scored && i < FM_METRICS_SCORES; i++) {
        step.score[i].name = score_names[i];
        step.score[step.n_score++].value = sums->score[i] / sums->n_scored;
    }
    uint64_t n_here = run->n_step - run->first_step;
    if (n_here <= N_WINDOW) run->first_sum += step.loss;
    run->last[(n_here - 1) % N_WINDOW] = step.loss;
    say_slow_paths(run);
    say(run, &step);
    fm_status status = fm_metrics_write(run->metrics, &step, reterr);
    if (!status && run->events) status = fm_event_file_write(run->events, &step, wall_s(), reterr);
    return status;
}

static fm_status collect_sample(train_run *run, fm_error *reterr) {
    flight *f = &run->flight[run->n_collected++ % FM_MOST_QUEUED];
    fm_sample_result result;
    fm_status status = fm_team_collect(run->team, &result, reterr);
    if (!status) {
        add_result(&run->sums, f, &result);
        if (f->is_scored) status = add_scores(run, &f->features, &run->sums, reterr);
    }
    if (!status) {
        status = note_delivered(run, f->loaded.sample->index, reterr);
    } else {
        name_sample(f->loaded.sample, reterr);
    }
    fm_loader_release(run->loader, &f->loaded);
    return !status && f->is_last ? finish_step(run, f->rate, reterr) : status;
}

/* Collects until at most `left` samples are in flight. After a failure the trainer has dropped what
 * was queued behind the failed sample, so the rest is given back to the loader. */
static fm_status drain(train_run *run, uint64_t left, fm_error *reterr) {
    fm_status status = FM_OK;
    while (!status && run->n_queued - run->n_collected > left)
        status = collect_sample(run, reterr);
    while (status && run->n_collected < run->n_queued)
        fm_loader_release(run->loader, &run->flight[run->n_collected++ % FM_MOST_QUEUED].loaded);
    return status;
}

static fm_status queue_step(train_run *run, fm_error *reterr) {
    uint32_t n = fm_loader_get_stream(run->loader)->samples_per_step;
    fm_status status = FM_OK;
    for (uint32_t s = 0; s < n && !status; s++) {
        status = queue_sample(run, s == 0, s + 1 == n, reterr);
        if (status) {
            fm_error later;
            if (drain(run, 0, &later)) run->data_ended = false;
            return status; /* samples before the failed one still count */
        }
        /* A scored structure is still in the step's memory, so nothing may be queued behind it. On
         * the CPU a sample is computed while it is queued; collecting at once ends its step's time
         * there. */
        bool at_once = is_scored(run) || strcmp(run->set->device, "cpu") == 0;
        status = drain(run, at_once ? 0 : FM_MOST_QUEUED - 1, reterr);
    }
    if (status) return status;
    run->queued_step++;
    if (!run->set->checkpoint_every || run->queued_step % run->set->checkpoint_every != 0) {
        return FM_OK;
    }
    status = drain(run, 0, reterr); /* so that parameters and results are of the same step */
    return status ? status : save(run, reterr);
}

/* -- a run */

static double percentile_ms(const fm_histogram *histogram, uint32_t per_mille) {
    return (double)fm_histogram_percentile(histogram, per_mille) * 1e-6;
}

static void summarize(train_run *run) {
    fm_loader_stats stats = fm_loader_get_stats(run->loader);
    add_stats(&stats, &run->earlier);
    uint64_t n_here = run->n_step - run->first_step, window = n_here < N_WINDOW ? n_here : N_WINDOW;
    double seconds = (double)(fm_clock_ns() - run->start_ns) * 1e-9, last_sum = 0;
    for (uint64_t i = 0; i < window; i++)
        last_sum += run->last[i];
    printf("steps     %llu in %.2f s, %.3f s per step", (unsigned long long)n_here, seconds,
           n_here ? seconds / (double)n_here : 0.0);
    if (run->first_step) printf(", resumed at step %llu", (unsigned long long)run->first_step);
    printf("\n");
    printf("samples   %llu received, %.1f MB\n", (unsigned long long)stats.n_sample,
           (double)stats.bytes / 1e6);
    printf("wait ms   p50 %.3f  p90 %.3f  p99 %.3f  max %.3f\n",
           percentile_ms(&stats.ready_wait_ns, 500), percentile_ms(&stats.ready_wait_ns, 900),
           percentile_ms(&stats.ready_wait_ns, 990), percentile_ms(&stats.ready_wait_ns, 1000));
    if (window > 0) {
        printf("loss      %.4f mean of the first %llu steps, %.4f of the last\n",
               run->first_sum / (double)window, (unsigned long long)window,
               last_sum / (double)window);
    }
    printf("outputs   %s/metrics.jsonl", run->set->out);
    if (run->saved_step) printf(", checkpoint of step %llu", (unsigned long long)run->saved_step);
    printf("\n");
}

/* Prepares everything that can fail before the first step, in an order that leaves nothing on disk
 * of a run that never began. */
static fm_status begin(train_run *run, fm_error *reterr) {
    char path[PATH_MAX];
    const settings *set = run->set;
    fm_status status = find_metrics_path(run, path, reterr);
    if (!status) status = fm_train_config_load(set->preset, set->config, &run->config, reterr);
    if (!status) status = create_trainer(run, reterr);
    if (!status) status = resume(run, reterr);
    if (!status) fm_team_copy_first(run->team);
    if (!status) status = open_loader(run, (uint32_t)set->wait_ms, &run->loader, reterr);
    if (!status) run->snapshot = fm_loader_get_server(run->loader)->snapshot;
    if (!status) status = fm_resume_lock(set->out, &run->lock, reterr);
    if (!status) status = fm_metrics_truncate(path, run->n_step, reterr);
    if (!status && set->tensorboard) {
        status = fm_event_file_open(set->tensorboard, set->resume, run->n_step, wall_s(),
                                    &run->events, reterr);
    }
    return status ? status : fm_metrics_open(path, &run->metrics, reterr);
}

static fm_status train(train_run *run, fm_error *reterr) {
    fm_status status = begin(run, reterr);
    if (status) return status;
    catch_signals();
    announce(run);
    run->start_ns = fm_clock_ns();
    run->queued_step = run->n_step;
    while (!status && run->queued_step < run->set->steps && !stop_asked)
        status = queue_step(run, reterr);
    if (!status) status = drain(run, 0, reterr);
    status = save_last(run, status, reterr);
    if (run->terminal && run->n_step < run->set->steps) fputc('\n', stderr);
    summarize(run);
    return status;
}

int fm_train_main(int argc, char **argv) {
    settings set = {.preset = "tiny",
                    .out = "foldmill-run",
                    .order = "strict",
                    .device = "cpu",
                    .dtype = "fp32",
                    .steps = 100,
                    .checkpoint_every = 1000,
                    .keep_last = 3,
                    .ahead = 8,
                    .wait_ms = 5000};
    int code = parse(&set, argc, argv);
    if (code >= 0) return code;
    if (set.show_config) return show_config(&set);
    if (set.help_config) return help_config();
    train_run run = {.set = &set, .lock = -1, .terminal = isatty(STDERR_FILENO) == 1};
    fm_error error = {.status = FM_OK};
    fm_status status = train(&run, &error);
    fm_loader_close(run.loader);
    fm_team_destroy(run.team);
    fm_metrics_close(run.metrics);
    fm_event_file_close(run.events);
    if (run.lock >= 0) close(run.lock);
    return status ? report(&error) : EXIT_OK;
}
