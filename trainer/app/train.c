/* train.c: `foldmill train`; see train.h.
 *
 * Two threads work: the loader's thread receives samples ahead, and this one queues and collects
 * them. A sample is queued (its upload and its passes are submitted to the device) before the
 * previous one is collected (its loss and norm are read back), so the device never waits for the
 * host:
 *
 *     queue 1 | queue 2 | collect 1 | queue 3 | collect 2 | ...
 *
 * Several ranks do the same in rounds (train_ranks.c).
 *
 * A step is a batch of fm_run_batch samples; the last one also makes the update. When the last
 * sample of a step is collected, fm_run_finish_step reports the step. fm_run_drain() collects
 * until a given number of samples is left in flight. It collects everything before a checkpoint,
 * before a reconnect, at the end, and after each sample where overlap is impossible: on the CPU,
 * and when the sample's structure is scored from the step's memory.
 *
 * run->state is the state at the last collected sample. It is whole between any two samples: the
 * sum of gradients of the batch in hand is in the trainer, and a checkpoint stores both. So a
 * signal, a lost server or a bad sample never costs a sample that was collected.
 *
 * A bad sample (unreadable, refused, or not finite) ends the run or is skipped. The trainer drops
 * what was queued behind a sample that is not finite; these samples wait in run->backlog and are
 * queued again. A skipped sample adds nothing to the sum, and the step's mean is over the samples
 * that counted. If the last one of a step is skipped, close_step makes the update; a step of which
 * no sample counted makes none. */
#include "trainer/app/train.h"

#include "proto/base/directory.h"
#include "proto/base/log.h"
#include "proto/base/machine.h"
#include "proto/base/plural.h"
#include "trainer/app/begin_from.h"
#include "trainer/app/choose_device.h"
#include "trainer/app/gpu_cores.h"
#include "trainer/app/launch.h"
#include "trainer/app/sample_features.h"
#include "trainer/app/setup.h"
#include "trainer/app/stop.h"
#include "trainer/app/train_run.h"
#include "trainer/step/score.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    EXIT_OK = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
};

static int report(const fm_error *error) {
    char text[FM_ERROR_SOURCE_BYTES + FM_ERROR_MESSAGE_BYTES + 64];
    fm_error_format(error, text, sizeof text);
    fprintf(stderr, "%s: %s\n", fm_train_program, text);
    return error->status == FM_ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
}

static int show_config(const fm_train_options *set) {
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
    fm_train_config af2, af3;
    fm_error error;
    fm_status status = fm_train_config_preset("af2-initial", &af2, &error);
    if (!status) status = fm_train_config_preset("af3-initial", &af3, &error);
    if (status) return report(&error);
    static char text[FM_TRAIN_CONFIG_DOCUMENT_BYTES];
    fm_train_config_document(&af2, &af3, text);
    fputs(text, stdout);
    return EXIT_OK;
}

/* -- opening what a run needs */

static fm_status open_feed(fm_train_run *run, fm_error *reterr) {
    const fm_train_options *set = run->set;
    const fm_train_config *config = &run->config;
    int32_t rank = run->ranks ? fm_ranks_rank(run->ranks) : 0;
    uint32_t group = (uint32_t)fm_layout_place(&run->layout, rank).dp;
    fm_loader_options options = {
        .supply = {.client = {.url = run->data,
                              .credentials = set->credentials,
                              .agent = fm_train_program,
                              .snapshot_name = set->snapshot,
                              .snapshot = run->state.snapshot}},
        .stream = {.global_batch = (uint32_t)config->data.global_batch,
                   .crop_size = (uint32_t)config->data.crop_size,
                   .max_msa_clusters = (uint32_t)config->data.max_msa_clusters,
                   .max_extra_msa = (uint32_t)config->data.max_extra_msa,
                   .max_cycle = (uint32_t)config->data.max_cycle,
                   .max_template_date = config->data.max_template_date,
                   .seed = set->seed,
                   .n_step = fm_run_stream_steps(run),
                   .group = group,
                   .n_group = (uint32_t)run->layout.dp,
                   .policy = FM_WIRE_SKIP}, /* the run decides what a bad sample means */
        .n_slab = (uint32_t)set->ahead,
    };
    fm_wire_text(options.stream.plan, sizeof options.stream.plan, config->data.plan);
    const char *exposed = fm_credentials_exposed(&set->credentials);
    if (exposed) {
        char quoted[300];
        fm_log(FM_LOG_WARN, "secret_exposed", "file=%s why=\"every user can read it; chmod 600\"",
               fm_log_quote(quoted, sizeof quoted, exposed));
    }
    run->feed = (fm_feed){.options = options,
                          .wait_ms = (uint32_t)set->wait_ms,
                          .full_ms = set->full_wait_s * 1000,
                          .timeout_ms = set->data_timeout_s * 1000};
    fm_status status = fm_run_ask_order(run, &run->feed, reterr);
    if (!status) status = fm_feed_open(&run->feed, &run->state.token, reterr);
    if (status) return status;
    /* A server that comes back must serve the same data. */
    run->state.snapshot = fm_loader_get_server(run->feed.loader)->snapshot;
    run->feed.options.supply.client.snapshot = run->state.snapshot;
    return FM_OK;
}

static fm_status create_trainer(fm_train_run *run, const fm_kernels *kernels, fm_error *reterr) {
    fm_status status = FM_OK;
    fm_trainer_options options = fm_trainer_options_of(&run->config, kernels, run->set->seed);
    if (run->ranks) {
        status = fm_ranks_join(run->ranks, run->set->device, kernels, &options.groups, reterr);
    }
    return status ? status : fm_trainer_create(&options, &run->trainer, reterr);
}

/* Finds the path of metrics.jsonl. Refuses a folder that has one already, so that two runs do not
 * share a folder. */
static fm_status find_metrics_path(const fm_train_run *run, char path[PATH_MAX], fm_error *reterr) {
    if (snprintf(path, PATH_MAX, "%s/metrics.jsonl", run->set->out) >= PATH_MAX) {
        return fm_fail(reterr, FM_ERR_USAGE, "--out: the path is too long");
    }
    if (run->set->resume) return FM_OK;
    fm_path_kind kind;
    fm_status status = fm_path_look(path, &kind, reterr);
    if (status || kind == FM_PATH_ABSENT) return status;
    return fm_fail_in(reterr, FM_ERR_EXISTS, path,
                      "the folder has a run already; give --resume or another --out");
}

/* Loads the newest checkpoint if --resume is given and there is one. Otherwise begins with the
 * checkpoint of --from or with drawn parameters. */
static fm_status resume(fm_train_run *run, fm_error *reterr) {
    const fm_device *device = run->trainer->params.kernels->device;
    char build[FM_MACHINE_BUILD_BYTES];
    fm_machine_build(build);
    char dp[16] = ""; /* one group needs no line */
    if (run->layout.dp > 1) snprintf(dp, sizeof dp, "%d", (int)run->layout.dp);
    const fm_identity identity = {.program = FM_VERSION,
                                  .build = build,
                                  .device = run->set->device,
                                  .processor = device->processor(),
                                  .library = device->library(),
                                  .dtype = run->set->dtype,
                                  .order = run->order,
                                  .dp = dp,
                                  .batch_schedule =
                                      run->set->batch_schedule ? run->set->batch_schedule : ""};
    fm_identity_format(&identity, run->identity);
    fm_status status = FM_ERR_NOT_FOUND;
    if (run->set->resume) {
        fm_resume_options options = fm_run_resume_options(run);
        status = fm_resume_load(&options, run->trainer, &run->state, reterr);
    }
    if (status == FM_ERR_NOT_FOUND && run->set->from) {
        status = fm_begin_from(run->set->from, run->trainer, reterr);
    } else if (status == FM_ERR_NOT_FOUND) {
        status = FM_OK;
    }
    for (uint32_t i = 0; !status && i < run->set->skip_sample.n; i++) {
        uint64_t index;
        status = fm_train_options_index(run->set->skip_sample.value[i], &index, reterr);
        if (!status) status = fm_skipped_add(&run->state.skipped, index, true, reterr);
    }
    if (!status) status = fm_run_find_batches(run, reterr);
    run->first = run->state.place;
    run->queued_step = run->state.place.step;
    run->slot = run->state.place.n_sample;
    return status;
}

static void announce(const fm_train_run *run) {
    char text[256];
    fm_trainer_describe(run->trainer, text, sizeof text);
    const fm_wire_welcome *server = fm_loader_get_server(run->feed.loader);
    fprintf(stderr, "model     preset %s: %s\n", run->set->preset, text);
    if (run->ranks) {
        fprintf(stderr, "ranks     %d: dap %d, bp %d, dp %d\n", (int)fm_layout_ranks(&run->layout),
                (int)run->layout.dap, (int)run->layout.bp, (int)run->layout.dp);
    }
    const uint32_t batch = fm_loader_get_stream(run->feed.loader)->global_batch;
    fprintf(stderr, "data      %s: snapshot %s, %u chain%s, plan %s, %u sample%s per step\n",
            run->set->cache ? run->set->cache : run->data, server->snapshot_name, server->n_chain,
            fm_plural(server->n_chain), run->config.data.plan, batch, fm_plural(batch));
    if (run->set->batch_schedule) fprintf(stderr, "batches   %s\n", run->set->batch_schedule);
    if (run->state.place.n_sample) {
        fprintf(stderr, "batch     %u samples of step %llu are done already\n",
                run->state.place.n_sample, (unsigned long long)run->state.place.step + 1);
    }
    if (run->state.place.step >= run->set->steps) {
        fprintf(stderr, "steps     %llu are done already; --steps %llu needs no more\n",
                (unsigned long long)run->state.place.step, (unsigned long long)run->set->steps);
    }
}

/* -- bad samples */

/* The last sample of a step was skipped: makes the update with the samples that counted, if any,
 * and finishes the step. */
static fm_status close_step(fm_train_run *run, fm_error *reterr) {
    if (run->trainer->optimizer.pending > 0) fm_trainer_update(run->trainer);
    run->queued_step++;
    run->slot = 0;
    return fm_run_finish_step(run, fm_trainer_rate(run->trainer), reterr);
}

/* The chain of a sample, "" where the server could not make it. */
static const char *name_of(const fm_sample *sample) {
    return sample ? sample->name : "";
}

static void name_sample(uint64_t index, const char *name, fm_error *reterr) {
    char source[FM_ERROR_SOURCE_BYTES + 32];
    if (reterr->source[0] != '\0') return;
    snprintf(source, sizeof source, "sample %llu%s%s%s", (unsigned long long)index,
             name[0] ? " (" : "", name, name[0] ? ")" : "");
    (void)fm_error_in(reterr, source);
}

/* Prepares the command that goes on without the sample. */
static void advise_to_skip(fm_train_run *run, uint64_t index) {
    char more[64], command[FM_RUN_ADVICE_BYTES - 64];
    snprintf(more, sizeof more, "--skip-sample %llu", (unsigned long long)index);
    fm_train_options_advise(run->set, more, command, sizeof command);
    snprintf(run->advice, sizeof run->advice, "to go on without it: %s", command);
}

fm_status fm_run_note_skipped(fm_train_run *run, const fm_run_sample *sample, const fm_error *why,
                              fm_error *reterr) {
    const uint64_t index = sample->index;
    const char *name = sample->name;
    fm_status status = fm_skipped_add(&run->state.skipped, index, !why, reterr);
    if (!status) status = fm_run_note_delivered(run, sample, true, reterr);
    if (status) return status;
    char quoted[FM_ERROR_MESSAGE_BYTES];
    fm_log(FM_LOG_WARN, "sample_skipped", "sample=%llu%s%s why=%s", (unsigned long long)index,
           name[0] ? " chain=" : "", name,
           fm_log_quote(quoted, sizeof quoted, why ? why->message : "named on the command line"));
    if (run->state.sums.n_counted == 0) run->state.sums.index = index;
    return FM_OK;
}

/* The sample that is next to be queued. */
static fm_run_sample next_of(const fm_train_run *run, const fm_loaded *loaded) {
    return (fm_run_sample){run->queued_step, run->slot, loaded->index, name_of(loaded->sample)};
}

/* Leaves out the sample at run->slot, which is not in flight, as nothing is. Whether that is
 * allowed was asked before. */
static fm_status skip(fm_train_run *run, const fm_run_sample *sample, const fm_error *why,
                      fm_error *reterr) {
    fm_status status = fm_run_note_skipped(run, sample, why, reterr);
    if (status) return status;
    run->slot++;
    run->state.place.n_sample = run->slot;
    return run->slot == fm_run_batch(run) ? close_step(run, reterr) : FM_OK;
}

fm_status fm_run_judge(fm_train_run *run, const fm_run_sample *sample, fm_status status,
                       fm_error *reterr) {
    uint32_t n_bad = fm_skipped_bad(&run->state.skipped);
    if (fm_run_left_out(run, sample->step, sample->slot)) return FM_OK;
    if (run->set->skips_bad && n_bad < run->set->bad_sample_budget) return FM_OK;
    name_sample(sample->index, sample->name, reterr);
    advise_to_skip(run, sample->index);
    if (run->set->skips_bad) {
        char why[FM_ERROR_MESSAGE_BYTES];
        snprintf(why, sizeof why, "%s", reterr->message);
        snprintf(reterr->message, sizeof reterr->message,
                 "%.250s; %u bad samples were skipped already, the budget", why, n_bad);
    }
    return status;
}

/* The oldest sample in flight is not finite. The trainer has dropped it and what was queued behind
 * it. */
static fm_status drop_bad(fm_train_run *run, const fm_run_flight *bad, fm_status status,
                          fm_error *reterr) {
    for (; run->n_collected < run->n_queued; run->n_collected++) {
        assert(run->n_backlog < FM_RUN_BACKLOG);
        run->backlog[run->n_backlog++] = run->flight[run->n_collected % FM_MOST_QUEUED].loaded;
    }
    run->queued_step = bad->step;
    run->slot = bad->slot;
    const fm_run_sample sample = next_of(run, &bad->loaded);
    const fm_error why = *reterr;
    status = fm_run_judge(run, &sample, status, reterr);
    return status ? status : skip(run, &sample, &why, reterr);
}

/* -- samples */

bool fm_run_is_scored(const fm_train_run *run) {
    int64_t every = run->config.metrics.structure_every;
    return run->trainer->atoms != FM_TENSOR_NONE && every &&
           (run->queued_step + 1) % (uint64_t)every == 0;
}

fm_status fm_run_add_scores(fm_train_run *run, const fm_features *features, fm_batch_sums *sums,
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

void fm_run_add_result(fm_batch_sums *sums, uint64_t index, uint32_t n_cycle, const char *name,
                       double wait_s, const fm_sample_result *result) {
    if (sums->n_counted++ == 0) {
        sums->index = index;
        sums->n_cycle = n_cycle;
        snprintf(sums->name, sizeof sums->name, "%s", name);
    }
    sums->wait_s += wait_s;
    sums->loss += result->loss;
    sums->norm += result->gradient_norm;
    sums->done_ns = result->done_ns;
    for (int i = 0; i < FM_LOSS_TERMS; i++) {
        sums->term[i] += result->term[i];
        sums->part[i] += result->part[i];
    }
}

static fm_status collect_sample(fm_train_run *run, fm_error *reterr) {
    const fm_run_flight f = run->flight[run->n_collected++ % FM_MOST_QUEUED];
    fm_sample_result result;
    fm_status status = fm_trainer_collect(run->trainer, &result, reterr);
    if (status) {
        /* An update was not made: its step may be reported already, so nothing may be saved. */
        run->is_torn = run->is_torn || status == FM_ERR_LIMIT;
        if (status != FM_ERR_LIMIT) status = drop_bad(run, &f, status, reterr);
        fm_loader_release(run->feed.loader, &f.loaded);
        return status;
    }
    const fm_run_sample sample = {f.step, f.slot, f.loaded.index, f.loaded.sample->name};
    fm_run_add_result(&run->state.sums, sample.index, f.features.n_cycle, sample.name, f.wait_s,
                      &result);
    run->state.place.n_sample = f.slot + 1;
    status = fm_run_note_delivered(run, &sample, false, reterr);
    if (!status && f.is_scored) {
        status = fm_run_add_scores(run, &f.features, &run->state.sums, reterr);
        run->is_torn = run->is_torn || status;
    }
    if (status) name_sample(sample.index, sample.name, reterr);
    fm_loader_release(run->feed.loader, &f.loaded);
    return !status && f.is_last ? fm_run_finish_step(run, f.rate, reterr) : status;
}

fm_status fm_run_drain(fm_train_run *run, uint64_t left, fm_error *reterr) {
    fm_status status = FM_OK;
    while (!status && run->n_queued - run->n_collected > left)
        status = run->ranks ? fm_run_collect_round(run, reterr) : collect_sample(run, reterr);
    return status;
}

/* Takes the next sample of the backlog or the feed. Reconnects if the server was lost: samples that
 * are not collected by then come again. */
static fm_status take_sample(fm_train_run *run, fm_loaded *ret_loaded, fm_error *reterr) {
    if (run->n_backlog) {
        *ret_loaded = run->backlog[0];
        memmove(run->backlog, run->backlog + 1, --run->n_backlog * sizeof run->backlog[0]);
        return FM_OK;
    }
    const uint64_t wanted = fm_run_wanted(run, run->slot);
    fm_status status = fm_feed_next(&run->feed, wanted, ret_loaded, reterr);
    while (fm_feed_may_reconnect(&run->feed, status)) {
        char quoted[FM_ERROR_MESSAGE_BYTES];
        fm_log(FM_LOG_WARN, "server_lost", "why=%s",
               fm_log_quote(quoted, sizeof quoted, reterr->message));
        status = fm_run_drain(run, 0, reterr);
        if (status) return status;
        run->n_backlog = 0; /* they belong to the old connection */
        status = fm_feed_reconnect(&run->feed, &run->state.token, reterr);
        if (status) return status;
        status = fm_feed_next(&run->feed, fm_run_wanted(run, run->slot), ret_loaded, reterr);
    }
    return status;
}

/* Leaves the sample out, if that is allowed. `why`: what is bad about it; NULL: the command line
 * names it. */
static fm_status leave_out(fm_train_run *run, const fm_loaded *loaded, const fm_error *why,
                           fm_error *reterr) {
    fm_status status = fm_run_drain(run, 0, reterr);
    if (!status && run->n_backlog) { /* the samples before it come first, after all */
        assert(run->n_backlog < FM_RUN_BACKLOG);
        run->backlog[run->n_backlog++] = *loaded;
        return FM_OK;
    }
    const fm_run_sample sample = next_of(run, loaded);
    if (!status && why) {
        *reterr = *why;
        status = fm_run_judge(run, &sample, why->status, reterr);
    }
    if (!status) status = skip(run, &sample, why, reterr);
    fm_loader_release(run->feed.loader, loaded);
    return status;
}

/* Queues a sample behind those in flight. */
static fm_status queue_sample(fm_train_run *run, const fm_loaded *loaded, double wait_s,
                              fm_error *reterr) {
    fm_run_flight *f = &run->flight[run->n_queued % FM_MOST_QUEUED];
    *f = (fm_run_flight){.loaded = *loaded,
                         .step = run->queued_step,
                         .slot = run->slot,
                         .is_last = run->slot + 1 == fm_run_batch(run),
                         .is_scored = fm_run_is_scored(run),
                         .wait_s = wait_s};
    if (fm_token_has(&run->state.token, loaded->index)) {
        return fm_fail(reterr, FM_ERR_EXISTS, "the server sent sample %llu a second time",
                       (unsigned long long)loaded->index);
    }
    fm_status status = fm_features_of(loaded->sample, &f->features, reterr);
    if (!status) status = fm_run_place_features(run, run->slot, &f->features, reterr);
    if (!status) status = fm_trainer_queue(run->trainer, &f->features, f->is_last, reterr);
    if (status) return status;
    f->rate = fm_trainer_rate(run->trainer);
    run->n_queued++;
    run->slot = f->is_last ? 0 : run->slot + 1;
    run->queued_step += f->is_last;
    return FM_OK;
}

/* Takes one sample and queues it or leaves it out. */
static fm_status advance(fm_train_run *run, fm_error *reterr) {
    fm_loaded loaded;
    uint64_t asked_ns = fm_clock_ns();
    fm_status status = take_sample(run, &loaded, reterr);
    if (status) return status;
    double wait_s = fm_run_seconds_since(asked_ns);
    fm_error error = {.message = ""};
    if (fm_skipped_by_hand(&run->state.skipped, loaded.index)) {
        return leave_out(run, &loaded, NULL, reterr);
    }
    if (!loaded.sample) {
        error = *loaded.why; /* the slab is given back before the error is used */
        return leave_out(run, &loaded, &error, reterr);
    }
    if (fm_run_left_out(run, run->queued_step, run->slot)) {
        fm_fail(&error, FM_ERR_DATA, "the run that is replayed left it out");
        return leave_out(run, &loaded, &error, reterr);
    }
    /* A scored structure is still in the step's memory, so nothing may be queued behind it. On
     * the CPU a sample is computed while it is queued; collecting at once ends its step's time
     * there. */
    bool at_once = fm_run_is_scored(run) || strcmp(run->set->device, "cpu") == 0;
    status = queue_sample(run, &loaded, wait_s, &error);
    if (status == FM_ERR_DATA || status == FM_ERR_LIMIT) {
        return leave_out(run, &loaded, &error, reterr);
    }
    if (status) {
        *reterr = error;
        return status;
    }
    return fm_run_drain(run, at_once ? 0 : FM_MOST_QUEUED - 1, reterr);
}

/* -- a run */

static double percentile_ms(const fm_histogram *histogram, uint32_t per_mille) {
    return (double)fm_histogram_percentile(histogram, per_mille) * 1e-6;
}

static void summarize(const fm_train_run *run) {
    fm_loader_stats stats = fm_feed_get_stats(&run->feed);
    uint64_t n_here = run->state.place.step - run->first.step,
             window = run->n_loss < FM_RUN_WINDOW ? run->n_loss : FM_RUN_WINDOW;
    double seconds = fm_run_seconds_since(run->start_ns), last_sum = 0;
    for (uint64_t i = 0; i < window; i++)
        last_sum += run->last[i];
    printf("steps     %llu in %.2f s, %.3f s per step", (unsigned long long)n_here, seconds,
           n_here ? seconds / (double)n_here : 0.0);
    if (run->first.step) printf(", resumed at step %llu", (unsigned long long)run->first.step);
    printf("\n");
    printf("samples   %llu received, %.1f MB\n", (unsigned long long)stats.n_sample,
           (double)stats.bytes / 1e6);
    if (run->state.skipped.n) {
        printf("skipped   %u sample%s, %u of them bad\n", run->state.skipped.n,
               fm_plural(run->state.skipped.n), fm_skipped_bad(&run->state.skipped));
    }
    printf("wait ms   p50 %.3f  p90 %.3f  p99 %.3f  max %.3f\n",
           percentile_ms(&stats.ready_wait_ns, 500), percentile_ms(&stats.ready_wait_ns, 900),
           percentile_ms(&stats.ready_wait_ns, 990), percentile_ms(&stats.ready_wait_ns, 1000));
    if (window > 0) {
        printf("loss      %.4f mean of the first %llu step%s, %.4f of the last\n",
               run->first_sum / (double)window, (unsigned long long)window, fm_plural(window),
               last_sum / (double)window);
    }
    printf("outputs   %s/metrics.jsonl", run->set->out);
    if (run->is_saved) {
        printf(", checkpoint of step %llu", (unsigned long long)run->saved.step);
        if (run->saved.n_sample) {
            printf(" and %u sample%s", run->saved.n_sample, fm_plural(run->saved.n_sample));
        }
    }
    printf("\n");
}

static fm_status open_outputs(fm_train_run *run, const char *metrics_path, fm_error *reterr) {
    const fm_train_options *set = run->set;
    uint64_t n_step = run->state.place.step, n_row = 0;
    fm_status status = fm_resume_lock(set->out, &run->lock, reterr);
    if (!status) status = fm_metrics_truncate(metrics_path, n_step, &n_row, reterr);
    if (!status && n_row != n_step) {
        fm_log(FM_LOG_WARN, "metrics_incomplete",
               "path=%s rows=%llu steps=%llu why=\"rows are damaged or were removed\"",
               metrics_path, (unsigned long long)n_row, (unsigned long long)n_step);
    }
    if (!status && set->tensorboard) {
        status = fm_event_file_open(set->tensorboard, set->resume, n_step, fm_run_wall_s(),
                                    &run->events, reterr);
    }
    if (!status) status = fm_run_open_ledger(run, reterr);
    return status ? status : fm_metrics_open(metrics_path, &run->metrics, reterr);
}

/* Binds a rank with a GPU to the cores near it. */
static void stay_near(const fm_kernels *kernels) {
    char address[64];
    if (!fm_device_address(kernels, address, sizeof address)) return;
    int n_core = fm_gpu_cores_bind(FM_PCI_DEVICES, address);
    fm_log(FM_LOG_DEBUG, "near_cores", "gpu=%s cores=%d", address, n_core);
}

/* Prepares everything that can fail before the first step, in an order that leaves nothing on disk
 * of a run that never began. */
static fm_status begin(fm_train_run *run, fm_error *reterr) {
    char path[PATH_MAX];
    const fm_kernels *kernels = NULL;
    bool is_first = fm_run_is_first(run);
    fm_status status = is_first ? find_metrics_path(run, path, reterr) : FM_OK;
    if (!status) status = fm_run_find_order(run, reterr);
    if (!status) status = fm_device_find(run->set->device, run->set->dtype, &kernels, reterr);
    if (!status && run->ranks) stay_near(kernels);
    if (run->ranks) status = fm_run_share(run, status, reterr);
    if (status) return status;
    status = create_trainer(run, kernels, reterr);
    if (!status) status = resume(run, reterr);
    if (!status) status = open_feed(run, reterr);
    if (!status) status = fm_run_check_order(run, reterr);
    if (run->ranks) status = fm_run_compare(run, status, reterr);
    if (!status && run->ranks) status = fm_run_prepare_ranks(run, reterr);
    if (!status && is_first) status = open_outputs(run, path, reterr);
    if (!status && is_first) status = fm_run_start_evaluator(run, reterr);
    return run->ranks ? fm_run_share(run, status, reterr) : status;
}

/* Whether a signal, and not the target, asked the run to stop. */
static bool was_signalled(void) {
    return fm_stop_signal() && fm_stop_signal() != FM_STOP_TARGET;
}

/* Says that the run stopped because it was asked to. */
static void say_stopped(const fm_train_run *run) {
    char place[128];
    fm_run_describe_place(run, place, sizeof place);
    fprintf(stderr, "%s: stopped by %s %s%s\n", fm_train_program, fm_stop_name(fm_stop_signal()),
            place, run->is_saved ? "; --resume continues" : "");
}

/* Makes the steps that are left. */
static fm_status make_steps(fm_train_run *run, fm_error *reterr) {
    fm_status status = FM_OK;
    while (!status && run->queued_step < run->set->steps) {
        fm_run_look_at_evaluator(run);
        if (!run->ranks && fm_stop_signal()) break; /* several ranks agree on it */
        status = run->ranks ? fm_run_advance_ranks(run, reterr) : advance(run, reterr);
        if (!status && !run->ranks) status = fm_run_save_if_due(run, reterr);
        /* A sample that is skipped now may leave the last step open. */
        if (!status && run->queued_step >= run->set->steps) status = fm_run_drain(run, 0, reterr);
    }
    if (status == FM_ERR_CANCELLED) status = FM_OK;
    if (!status) return fm_run_drain(run, 0, reterr);
    fm_error later; /* the first error is the one to report */
    fm_status ignored = fm_run_drain(run, 0, &later);
    (void)ignored;
    return status;
}

static fm_status train(fm_train_run *run, fm_error *reterr) {
    bool is_first = fm_run_is_first(run);
    fm_status status = begin(run, reterr);
    if (status) return status == FM_ERR_CANCELLED ? FM_OK : status;
    if (is_first) announce(run);
    run->progress = fm_progress_of(run->set->steps, run->set->quiet || !is_first);
    run->start_ns = run->saved_ns = fm_clock_ns();
    status = make_steps(run, reterr);
    if (!is_first) return status;
    /* When ranks are lost, this one may hold a part of a sum. */
    run->is_torn = run->is_torn || (status && run->ranks && !run->is_agreed);
    status = fm_run_save_last(run, status, reterr);
    /* The first error is the one to report; the log has the other one. */
    fm_status rows = fm_run_sync_metrics(run, status ? NULL : reterr);
    if (!status) status = rows;
    fm_progress_end(&run->progress, run->state.place.step);
    summarize(run);
    fm_run_end_evaluator(run, status);
    if (!status && was_signalled() && run->state.place.step < run->set->steps) say_stopped(run);
    return status;
}

/* -- ranks */

/* Finds how many ranks the run has, and how they share the work. */
static fm_status find_layout(fm_train_run *run, int32_t n_world, int32_t *ret_n, fm_error *reterr) {
    const fm_train_options *set = run->set;
    fm_train_config *config = &run->config;
    if (set->ranks && set->gpus) {
        return fm_fail(reterr, FM_ERR_USAGE, "--ranks is for CPUs and --gpus for GPUs: give one");
    }
    if (set->gpus && strcmp(set->device, "cpu") == 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--gpus needs --device cuda");
    }
    fm_status status = fm_train_config_load(set->preset, set->config, config, reterr);
    if (status) return status;
    run->batches = fm_batch_schedule_of((uint32_t)config->data.global_batch);
    if (set->batch_schedule) {
        status = fm_batch_schedule_parse(set->batch_schedule, &run->batches, reterr);
        if (status) return status;
        config->data.global_batch = run->batches.stage[0].batch;
    }
    if (set->dap) config->parallel.dap = (int32_t)set->dap;
    if (set->bp) config->parallel.bp = (int32_t)set->bp;
    const int32_t of_sample = config->parallel.dap * config->parallel.bp;
    const int32_t given = (int32_t)(set->ranks ? set->ranks : set->gpus);
    if (given && n_world > 1 && given != n_world) {
        return fm_fail(reterr, FM_ERR_USAGE, "--ranks %d, but %d processes were started",
                       (int)given, (int)n_world);
    }
    int32_t n_rank = n_world > 1 ? n_world : given ? given : of_sample;
    run->layout = (fm_layout){config->parallel.dap, config->parallel.bp, n_rank / of_sample};
    *ret_n = n_rank;
    status = fm_run_check_layout(run, n_rank, reterr);
    return status ? status : fm_run_check_evaluator(run, reterr);
}

static bool is_stopped(void) {
    return fm_stop_signal() != 0;
}

/* Finds the server of samples. With --cache this process starts it, or the launcher of this rank
 * has done so. */
static fm_status find_data(fm_train_run *run, bool is_rank, fm_error *reterr) {
    const fm_train_options *set = run->set;
    run->data = set->data ? set->data : is_rank ? getenv(fm_private_server_name) : NULL;
    if (run->data) return FM_OK;
    if (is_rank) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--cache starts a server for the ranks of --ranks or --gpus; ranks of "
                       "another launcher need a server and its address, --data");
    }
    fm_stop_catch(true);
    const fm_private_server_options options = {.cache = set->cache,
                                               .snapshot = set->snapshot,
                                               .jobs = set->jobs,
                                               .is_cancelled = is_stopped};
    fm_status status = fm_private_server_start(&options, &run->server, reterr);
    if (status) return status;
    run->data = fm_private_server_address(run->server);
    setenv(fm_private_server_name, run->data, 1);
    return FM_OK;
}

/* Trains as the only process, as one of several, or starts several. */
static fm_status train_in_place(fm_train_run *run, int *ret_code, fm_error *reterr) {
    const fm_train_options *set = run->set;
    bool is_rank;
    fm_world world = {.size = 1};
    int32_t n_rank;
    fm_status status = fm_world_find(set->meet, &is_rank, &world, reterr);
    if (!status) status = find_layout(run, is_rank ? world.size : 1, &n_rank, reterr);
    if (status) return status;
    status = find_data(run, is_rank, reterr);
    if (status == FM_ERR_CANCELLED) *ret_code = 128 + fm_stop_signal();
    if (status) return status == FM_ERR_CANCELLED ? FM_OK : status;
    if (n_rank > 1 && !is_rank) {
        const fm_launch_options options = {.program = fm_train_program,
                                           .argc = set->argc,
                                           .argv = set->argv,
                                           .n_rank = n_rank,
                                           .meets = n_rank,
                                           .divides = set->gpus == 0};
        fm_stop_catch(true);
        return fm_launch(&options, ret_code, reterr);
    }
    fm_stop_catch(!is_rank);
    if (is_rank) {
        fm_world_put_gpu_first(&world);
        if (world.rank > 0) fm_log_set_level(FM_LOG_ERROR); /* the first rank speaks for all */
        status = fm_ranks_open(fm_train_program, &world, &run->layout, &run->ranks, reterr);
        if (status) return status;
    }
    status = train(run, reterr);
    if (!status && was_signalled() && run->state.place.step < set->steps) {
        *ret_code = 128 + fm_stop_signal();
    }
    return status;
}

/* Reports the error of one of several ranks: what all know, the first one says. */
static int report_rank(fm_train_run *run, const fm_error *error) {
    if (!run->is_agreed) fm_ranks_fail(run->ranks, error);
    if (run->is_agreed && fm_run_is_first(run)) return report(error);
    return error->status == FM_ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
}

int fm_train_main(int argc, char **argv) {
    fm_train_options set;
    fm_error error = {.status = FM_OK};
    fm_status status = fm_train_options_parse(&set, argc, argv, &error);
    if (status) return status == FM_ERR_CANCELLED ? EXIT_OK : report(&error);
    if (set.show_config) return show_config(&set);
    if (set.help_config) return help_config();
    fm_train_run *run = calloc(1, sizeof *run);
    if (!run) {
        fm_fail(&error, FM_ERR_NOMEM, "no memory for a run");
        return report(&error);
    }
    int code = EXIT_OK;
    run->set = &set;
    run->lock = -1;
    status = train_in_place(run, &code, &error);
    if (status) code = run->ranks ? report_rank(run, &error) : report(&error);
    bool is_first = fm_run_is_first(run);
    if (status && is_first && run->advice[0]) {
        fprintf(stderr, "%s: %s\n", fm_train_program, run->advice);
    }
    if (run->ranks && (!status || run->is_agreed)) fm_ranks_leave(run->ranks);
    fm_feed_close(&run->feed);
    fm_evaluator_stop(run->evaluator);
    fm_private_server_stop(run->eval_server);
    fm_private_server_stop(run->server);
    fm_trainer_destroy(run->trainer);
    fm_metrics_close(run->metrics);
    fm_event_file_close(run->events);
    fm_ledger_close(run->ledger);
    fm_ledger_release(&run->replay);
    if (run->lock >= 0) close(run->lock);
    fm_run_release_ranks(run);
    free(run);
    return code;
}
