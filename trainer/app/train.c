/* train.c: see train.h. One thread computes; the loader's thread receives ahead of it. */
#include "trainer/app/train.h"

#include "proto/base/file.h"
#include "proto/base/log.h"
#include "proto/base/options.h"
#include "trainer/app/train_config.h"
#include "trainer/data/loader.h"
#include "trainer/app/choose_device.h"
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
    N_WINDOW = 10,    /* steps whose mean loss is reported at both ends of a run */
    QUIET_STEPS = 10, /* a line for people every so many steps when standard error is no terminal */
};

static const char program[] = "foldmill train";

static const char description[] =
    "Connects to a feature server, trains on what it streams, and writes DIR/metrics.jsonl,\n"
    "one JSON object a step. Sizes, rates and the sampling plan come from a preset; --config\n"
    "FILE changes what it names (--show-config prints the form). Its section [parallel] puts\n"
    "several ranks to each sample (dap, bp), threads of the CPU. The same server content,\n"
    "seed and settings give the same parameters, bit for bit. SIGINT and SIGTERM stop after\n"
    "the step in hand. A server that goes away has --wait to come back, and any server of the\n"
    "same snapshot will do; else the run ends with a checkpoint of what it has done.\n\n"
    "The run's whole state is kept in DIR every --checkpoint-every steps and at the end;\n"
    "--resume goes on from the newest whole checkpoint, or begins when there is none. A run\n"
    "that was killed and resumed ends with the same bits as one that was not; so it asks for\n"
    "the snapshot it was trained on, and for its seed and settings. --from begins a\n"
    "new run with the parameters and the average of another run's checkpoint, or of one that\n"
    "`foldmill import` has made: steps, moments and the data stream start anew.\n\n"
    "examples:\n"
    "  foldmill train --data unix:/run/foldmill.sock --preset tiny --steps 200 --out run1\n"
    "  foldmill train --preset tiny --show-config >mine.ini\n"
    "  foldmill train --data tcp://host:7420 --config mine.ini --steps 5000 --resume\n\n"
    "exit codes: 0 done or stopped on request, 1 failed, 2 bad usage";

typedef struct settings {
    const char *data, *preset, *config, *from, *out, *tensorboard, *order, *device, *dtype;
    uint64_t steps, seed, ahead, wait_ms;
    uint64_t checkpoint_every, keep_last, keep_every; /* steps, files, steps; 0 = never */
    bool quiet, resume, show_config, help_config;
} settings;

/* What a step's samples gave, summed. */
typedef struct step_sums {
    double loss, norm, wait_s;
    uint64_t done_ns; /* the device's clock after the last */
    double term[FM_LOSS_TERMS];
    double score[FM_METRICS_SCORES];
    uint32_t n_scored; /* samples with a score */
    uint64_t index;
    uint32_t n_cycle;
    char name[FM_LIMIT_NAME_BYTES + 1];
} step_sums;

/* A sample between being queued and being collected. */
typedef struct flight {
    fm_loaded loaded;
    fm_features features;
    bool is_first, is_last; /* of its step */
    bool is_scored;
    double rate, wait_s;
} flight;

/* A run in progress. Samples are queued one ahead of what is collected, so that the device never
 * waits for the host. */
typedef struct train_run {
    const settings *set;
    fm_train_config config;
    fm_team *team;
    fm_trainer *trainer; /* the team's first */
    fm_loader *loader;
    fm_loader_stats earlier; /* of connections that broke off */
    fm_metrics *metrics;
    fm_event_file *events; /* NULL: not asked for */
    bool terminal;
    flight flight[FM_MOST_QUEUED];
    uint64_t n_queued, n_collected; /* samples */
    step_sums sums;                 /* of the step that is being collected */
    uint64_t queued_step, done_ns; /* updates queued; the device's clock after the last collected */
    uint64_t n_step, start_ns;     /* updates collected, of the whole run; monotonic */
    uint64_t first_step, saved_step; /* where this process went on; of the newest checkpoint */
    fm_token token;                  /* samples collected */
    fm_token step_token;             /* those of them that updates have seen */
    fm_sha256 snapshot; /* of the server; before that, of the checkpoint; all zero = any will do */
    bool data_ended;    /* the stream broke off; what was trained until then is whole */
    int lock;           /* of the folder */
    double first_sum, last[N_WINDOW]; /* losses of the first and of the newest N_WINDOW steps */
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
         .help = "unix:PATH or tcp://HOST:PORT of a server (required)"},
        {"preset", FM_OPTION_STRING, &set->preset, "NAME",
         .help = "sizes and recipe: tiny, overfit, af2-initial, af2-finetuning (tiny)"},
        {"config", FM_OPTION_STRING, &set->config, "FILE",
         .help = "changes to the preset, as an INI file"},
        {"show-config", FM_OPTION_FLAG, &set->show_config, NULL,
         .help = "print all settings as --config takes them, and end"},
        {"help-config", FM_OPTION_FLAG, &set->help_config, NULL,
         .help = "print a Markdown table of all settings with their meanings, and end"},
        {"device", FM_OPTION_STRING, &set->device, "NAME", .help = "cpu or cuda (cpu)"},
        {"dtype", FM_OPTION_STRING, &set->dtype, "TYPE",
         .help = "activations: fp32, or bf16 on cuda; structure module, heads and losses are fp32 "
                 "in either (fp32)"},
        {"steps", FM_OPTION_U64, &set->steps, "N", .help = "updates to make (100)", .letter = 'n',
         .min = 1, .max = FM_LIMIT_STEP},
        {"seed", FM_OPTION_U64, &set->seed, "S",
         .help = "of parameters, dropout and the stream (0)"},
        {"out", FM_OPTION_STRING, &set->out, "DIR",
         .help = "where the run's files go (foldmill-run)", .letter = 'o'},
        {"tensorboard", FM_OPTION_STRING, &set->tensorboard, "DIR",
         .help = "write the metrics as TensorBoard events, too (docs/formats/events.md)"},
        {"order", FM_OPTION_STRING, &set->order, "ORDER", .help = "strict or bounded:W (strict)"},
        {"ahead", FM_OPTION_U64, &set->ahead, "N", .help = "samples received ahead of the step (8)",
         .min = 2, .max = 1024},
        {"wait", FM_OPTION_U64, &set->wait_ms, "MS",
         .help = "go on trying to connect for so long, also when the server went away (5000)",
         .max = 3600000},
        {"checkpoint-every", FM_OPTION_U64, &set->checkpoint_every, "N",
         .help = "steps between checkpoints (1000); 0 = none at all", .max = FM_LIMIT_STEP},
        {"keep", FM_OPTION_U64, &set->keep_last, "N", .help = "newest checkpoints kept (3)",
         .min = 1, .max = 10000},
        {"keep-every", FM_OPTION_U64, &set->keep_every, "M",
         .help = "keep those of every M-th step for good (0 = none)", .max = FM_LIMIT_STEP},
        {"from", FM_OPTION_STRING, &set->from, "CHECKPOINT",
         .help = "begin with the parameters of this checkpoint, as of `foldmill import`"},
        {"resume", FM_OPTION_FLAG, &set->resume, NULL,
         .help = "go on from the newest checkpoint in --out"},
        {"quiet", FM_OPTION_FLAG, &set->quiet, NULL, .help = "no line a step, only the summary",
         .letter = 'q'},
        {0}};
    const fm_command command = {.program = program,
                                .arguments = "--data URL [options]",
                                .summary = "train on what a feature server streams",
                                .description = description,
                                .options = options};
    fm_error error;
    int n_positional;
    fm_status status = fm_options_parse(&command, argc, argv, &n_positional, &error);
    if (status == FM_OK && !set->data && !set->show_config && !set->help_config)
        status = fm_fail(&error, FM_ERR_USAGE, "--data URL is needed");
    if (status == FM_ERR_CANCELLED) return EXIT_OK;
    return status == FM_OK ? -1 : report(&error);
}

static int show_config(const settings *set) {
    fm_train_config config;
    fm_error error;
    fm_status status = fm_train_config_load(set->preset, set->config, &config, &error);
    if (status != FM_OK) return report(&error);
    char text[FM_TRAIN_CONFIG_TEXT_BYTES];
    fm_train_config_format_all(&config, text);
    fputs(text, stdout);
    return EXIT_OK;
}

static int help_config(void) {
    fm_train_config config;
    fm_error error;
    fm_status status = fm_train_config_preset("af2-initial", &config, &error);
    if (status != FM_OK) return report(&error);
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
    return status == FM_OK ? fm_loader_open(&options, ret_loader, reterr) : status;
}

static fm_status create_trainer(train_run *run, fm_error *reterr) {
    const fm_kernels *kernels;
    fm_status status = fm_device_find(run->set->device, run->set->dtype, &kernels, reterr);
    if (status != FM_OK) return status;
    const fm_train_config *config = &run->config;
    const fm_trainer_options options = fm_trainer_options_of(config, kernels, run->set->seed);
    const fm_layout layout = {config->parallel.dap, config->parallel.bp, 1};
    if (fm_layout_ranks(&layout) > 1 && strcmp(run->set->device, "cpu") != 0) {
        return fm_fail(
            reterr, FM_ERR_UNSUPPORTED,
            "[parallel] dap = %d, bp = %d: ranks are threads on the CPU, --device %s has "
            "one",
            (int)layout.dap, (int)layout.bp, run->set->device);
    }
    status = fm_team_create(&options, &layout, &run->team, reterr);
    if (status == FM_OK) run->trainer = fm_team_get_first(run->team);
    return status;
}

/* Two runs never share a folder. */
static fm_status find_metrics_path(const train_run *run, char path[PATH_MAX], fm_error *reterr) {
    if (snprintf(path, PATH_MAX, "%s/metrics.jsonl", run->set->out) >= PATH_MAX) {
        return fm_fail(reterr, FM_ERR_USAGE, "--out: the path is too long");
    }
    if (run->set->resume || access(path, F_OK) != 0) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_EXISTS, path,
                      "there is a run here already; give --resume or another --out");
}

static fm_resume_options resume_options(const train_run *run) {
    return (fm_resume_options){.folder = run->set->out,
                               .keep_last = (uint32_t)run->set->keep_last,
                               .keep_every = run->set->keep_every,
                               .seed = run->set->seed,
                               .snapshot = run->snapshot,
                               .config = &run->config};
}

/* Goes on from the folder's newest checkpoint when asked to; begins when there is none, with what
 * --from names or with drawn parameters. */
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
    if (status == FM_OK) run->saved_step = run->n_step;
    return status;
}

/* At the end of a run, also of one whose data broke off: then *reterr says so, and more. */
static fm_status save_last(train_run *run, fm_status status, fm_error *reterr) {
    if (status != FM_OK && !run->data_ended) return status;
    fm_error error;
    fm_status saved = FM_OK;
    if (run->set->checkpoint_every && run->n_step > run->first_step &&
        run->saved_step != run->n_step)
        saved = save(run, &error);
    if (status == FM_OK) {
        if (saved != FM_OK) *reterr = error;
        return saved;
    }
    char why[FM_ERROR_MESSAGE_BYTES], what[FM_ERROR_MESSAGE_BYTES] = "";
    snprintf(why, sizeof why, "%s", reterr->message);
    if (saved != FM_OK) {
        snprintf(what, sizeof what, "; its checkpoint could not be written: %.150s", error.message);
    } else if (run->n_step && (run->saved_step == run->n_step || run->n_step == run->first_step)) {
        snprintf(what, sizeof what, "; --resume goes on from its checkpoint");
    }
    return fm_fail(reterr, status, "%.200s, after step %llu of %llu%.200s", why,
                   (unsigned long long)run->n_step, (unsigned long long)run->set->steps, what);
}

/* Set by SIGINT and SIGTERM, looked at between steps. A signalfd would not do: the threads that
 * OpenBLAS starts before main leave the signals unblocked, and one of them would take the default
 * action. */
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
    fprintf(stderr, "data      %s: snapshot %s, %u chains, plan %s, %u samples a step\n",
            run->set->data, server->snapshot_name, server->n_chain, run->config.data.plan,
            fm_loader_get_stream(run->loader)->samples_per_step);
    if (run->n_step >= run->set->steps) {
        fprintf(stderr, "steps     %llu are made already, --steps %llu asks for no more\n",
                (unsigned long long)run->n_step, (unsigned long long)run->set->steps);
    }
}

/* -- a step */

/* The sample counts as delivered once an update has seen it, which is when a checkpoint can be
 * written. */
static fm_status note_delivered(train_run *run, uint64_t index, fm_error *reterr) {
    fm_status status = fm_token_deliver(&run->token, index, reterr);
    run->token.epoch =
        (uint32_t)(run->token.watermark / fm_loader_get_stream(run->loader)->epoch_samples);
    return status;
}

static const char *const score_names[FM_METRICS_SCORES] = {
    "lddt_ca", "lddt", "rmsd_ca", "drmsd_ca", "tm_score", "gdt_ts", "gdt_ha"};

/* Whether the samples that are now queued are. */
static bool is_scored(const train_run *run) {
    int64_t every = run->config.metrics.structure_every;
    return run->trainer->atoms != FM_TENSOR_NONE && every &&
           (run->queued_step + 1) % (uint64_t)every == 0;
}

/* A crop without known CA atoms has no scores and does not count. */
static fm_status add_scores(train_run *run, const fm_features *features, step_sums *sums,
                            fm_error *reterr) {
    fm_structure_scores s;
    fm_status status = fm_trainer_score(run->trainer, features, &s, reterr);
    if (status != FM_OK || !isfinite(s.lddt_ca) || !isfinite(s.lddt)) return status;
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

/* -- a server that went away */

static void add_stats(fm_loader_stats *sum, const fm_loader_stats *more) {
    sum->n_sample += more->n_sample;
    sum->n_skipped += more->n_skipped;
    sum->bytes += more->bytes;
    fm_histogram_merge(&sum->ready_wait_ns, &more->ready_wait_ns);
}

static fm_status drain(train_run *run, uint64_t left, fm_error *reterr);

/* Whether a server that is asked again may be there. */
static bool is_absence(fm_status status) {
    return status == FM_ERR_CLOSED || status == FM_ERR_IO;
}

/* Finishes what is under way and goes on with the sample behind it, for which a server may take
 * --wait to come back. */
static fm_status reconnect(train_run *run, fm_error *reterr) {
    enum { SLICE_MS = 250 }; /* after which a signal is seen */
    uint64_t begin_ns = fm_clock_ns(), wait_ns = run->set->wait_ms * 1000000u;
    fm_loader *loader = NULL;
    fm_status status = drain(run, 0, reterr);
    if (status != FM_OK) return status;
    do {
        uint64_t left_ms = (wait_ns - (fm_clock_ns() - begin_ns)) / 1000000u;
        status =
            open_loader(run, (uint32_t)(left_ms < SLICE_MS ? left_ms : SLICE_MS), &loader, reterr);
    } while (is_absence(status) && !stop_asked && fm_clock_ns() - begin_ns < wait_ns);
    if (status != FM_OK) return status;
    fm_loader_stats stats = fm_loader_get_stats(run->loader);
    add_stats(&run->earlier, &stats);
    fm_loader_close(run->loader);
    run->loader = loader;
    fm_log(FM_LOG_WARN, "reconnected", "server=%s after_s=%.1f sample=%llu", run->set->data,
           (double)(fm_clock_ns() - begin_ns) * 1e-9, (unsigned long long)run->token.watermark);
    return FM_OK;
}

/* The next sample, of a server that came back where one went away. One that gave nothing since it
 * came is not asked again. */
static fm_status next_sample(train_run *run, fm_loaded *ret_loaded, fm_error *reterr) {
    fm_status status = fm_loader_next(run->loader, ret_loaded, reterr);
    if (status == FM_ERR_CLOSED && fm_loader_get_stats(run->loader).n_sample && run->set->wait_ms) {
        fm_error error;
        status = reconnect(run, &error);
        if (status == FM_OK) status = fm_loader_next(run->loader, ret_loaded, &error);
        if (status != FM_OK) *reterr = error;
    }
    return status;
}

static fm_status queue_sample(train_run *run, bool is_first, bool is_last, fm_error *reterr) {
    flight *f = &run->flight[run->n_queued % FM_MOST_QUEUED];
    uint64_t asked_ns = fm_clock_ns();
    fm_status status = next_sample(run, &f->loaded, reterr);
    run->data_ended = status != FM_OK;
    if (status != FM_OK) return status;
    f->wait_s = (double)(fm_clock_ns() - asked_ns) * 1e-9;
    f->is_first = is_first;
    f->is_last = is_last;
    f->is_scored = is_scored(run);
    status = fm_features_of(f->loaded.sample, &f->features, reterr);
    if (status == FM_OK) status = fm_team_queue(run->team, &f->features, is_last, reterr);
    if (status != FM_OK) {
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

static void say(const train_run *run, const fm_metrics_step *step) {
    bool last = step->step == run->set->steps;
    if (run->set->quiet ||
        (!run->terminal && step->step != 1 && step->step % QUIET_STEPS != 0 && !last))
        return;
    char text[512];
    fm_metrics_format(step, run->set->steps, text, sizeof text);
    struct winsize window; /* a longer line would wrap, and stay */
    if (run->terminal && ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1 &&
        window.ws_col <= sizeof text)
        text[window.ws_col - 1] = '\0';
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

/* The step's last sample has been collected. */
static fm_status finish_step(train_run *run, double rate, fm_error *reterr) {
    uint32_t n = fm_loader_get_stream(run->loader)->samples_per_step;
    const step_sums *sums = &run->sums;
    /* By the device's clock: the host may learn of a step's end when the next is well under way. */
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
    say(run, &step);
    fm_status status = fm_metrics_write(run->metrics, &step, reterr);
    if (status == FM_OK && run->events)
        status = fm_event_file_write(run->events, &step, wall_s(), reterr);
    return status;
}

static fm_status collect_sample(train_run *run, fm_error *reterr) {
    flight *f = &run->flight[run->n_collected++ % FM_MOST_QUEUED];
    fm_sample_result result;
    fm_status status = fm_team_collect(run->team, &result, reterr);
    if (status == FM_OK) {
        add_result(&run->sums, f, &result);
        if (f->is_scored) status = add_scores(run, &f->features, &run->sums, reterr);
    }
    if (status == FM_OK) {
        status = note_delivered(run, f->loaded.sample->index, reterr);
    } else {
        name_sample(f->loaded.sample, reterr);
    }
    fm_loader_release(run->loader, &f->loaded);
    return status == FM_OK && f->is_last ? finish_step(run, f->rate, reterr) : status;
}

/* Collects until at most `left` samples are queued. After a failure the trainer has dropped what
 * was queued behind it, and so does this. */
static fm_status drain(train_run *run, uint64_t left, fm_error *reterr) {
    fm_status status = FM_OK;
    while (status == FM_OK && run->n_queued - run->n_collected > left)
        status = collect_sample(run, reterr);
    while (status != FM_OK && run->n_collected < run->n_queued)
        fm_loader_release(run->loader, &run->flight[run->n_collected++ % FM_MOST_QUEUED].loaded);
    return status;
}

static fm_status queue_step(train_run *run, fm_error *reterr) {
    uint32_t n = fm_loader_get_stream(run->loader)->samples_per_step;
    fm_status status = FM_OK;
    for (uint32_t s = 0; s < n && status == FM_OK; s++) {
        status = queue_sample(run, s == 0, s + 1 == n, reterr);
        if (status != FM_OK) {
            fm_error later;
            if (drain(run, 0, &later) != FM_OK) run->data_ended = false;
            return status; /* what came before it still counts */
        }
        /* What is scored is still in the step's memory: nothing may be queued behind it. On the CPU
         * a sample is done when it is queued, and its step's time ends there. */
        bool at_once = is_scored(run) || strcmp(run->set->device, "cpu") == 0;
        status = drain(run, at_once ? 0 : FM_MOST_QUEUED - 1, reterr);
    }
    if (status != FM_OK) return status;
    run->queued_step++;
    if (!run->set->checkpoint_every || run->queued_step % run->set->checkpoint_every != 0)
        return FM_OK;
    status = drain(run, 0, reterr); /* parameters and results of the same step */
    return status == FM_OK ? save(run, reterr) : status;
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
    printf("steps     %llu in %.2f s, %.3f s a step", (unsigned long long)n_here, seconds,
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

/* Everything that can fail before the first step; nothing is left on disk of a run that never
 * began. */
static fm_status begin(train_run *run, fm_error *reterr) {
    char path[PATH_MAX];
    const settings *set = run->set;
    fm_status status = find_metrics_path(run, path, reterr);
    if (status == FM_OK)
        status = fm_train_config_load(set->preset, set->config, &run->config, reterr);
    if (status == FM_OK) status = create_trainer(run, reterr);
    if (status == FM_OK) status = resume(run, reterr);
    if (status == FM_OK) fm_team_copy_first(run->team);
    if (status == FM_OK) status = open_loader(run, (uint32_t)set->wait_ms, &run->loader, reterr);
    if (status == FM_OK) run->snapshot = fm_loader_get_server(run->loader)->snapshot;
    if (status == FM_OK) status = fm_resume_lock(set->out, &run->lock, reterr);
    if (status == FM_OK) status = fm_metrics_truncate(path, run->n_step, reterr);
    if (status == FM_OK && set->tensorboard)
        status = fm_event_file_open(set->tensorboard, set->resume, run->n_step, wall_s(),
                                    &run->events, reterr);
    return status == FM_OK ? fm_metrics_open(path, &run->metrics, reterr) : status;
}

static fm_status train(train_run *run, fm_error *reterr) {
    fm_status status = begin(run, reterr);
    if (status != FM_OK) return status;
    catch_signals();
    announce(run);
    run->start_ns = fm_clock_ns();
    run->queued_step = run->n_step;
    while (status == FM_OK && run->queued_step < run->set->steps && !stop_asked)
        status = queue_step(run, reterr);
    if (status == FM_OK) status = drain(run, 0, reterr);
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
    return status == FM_OK ? EXIT_OK : report(&error);
}
