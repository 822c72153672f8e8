/* train_step.c: see train_step.h. */
#include "trainer/app/train/train_step.h"

#include "proto/base/log.h"
#include "proto/base/plural.h"
#include "trainer/app/common/progress.h"
#include "trainer/app/train/divergence.h"
#include "trainer/app/train/train_order.h"
#include "trainer/backend/fallback.h"
#include "trainer/metrics/event_file.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    MEMORY_S = 5,
    LOSS_WINDOW = 10, /* steps at each end of a run whose mean loss is reported */
};

struct fm_train_steps {
    fm_metrics *metrics;
    fm_event_file *events; /* NULL without --tensorboard */
    fm_progress progress;
    uint64_t done_ns;   /* the device's clock after the last collected step */
    uint64_t looked_ns; /* at the device's memory: */
    size_t used_bytes, free_bytes;
    fm_divergence divergence;
    bool is_diverging;
    bool is_disk_full;                        /* metrics wait in memory */
    bool slow_path_logged[FM_FALLBACK_KINDS]; /* slow paths that have had their log line */
    uint64_t n_loss; /* steps with a loss: those of which a sample counted */
    double first_loss_sum, last_loss[LOSS_WINDOW]; /* of the first and of the newest of them */
};

fm_status fm_train_steps_create(fm_train_run *run, fm_error *reterr) {
    run->steps = calloc(1, sizeof *run->steps);
    return run->steps ? FM_OK : fm_fail(reterr, FM_ERR_NOMEM, "no memory for a run");
}

fm_status fm_train_steps_open(fm_train_run *run, const char *path, fm_error *reterr) {
    const fm_train_options *set = run->set;
    fm_status status = FM_OK;
    if (set->tensorboard) {
        status = fm_event_file_open(set->tensorboard, set->resume, run->state.place.step,
                                    fm_train_wall_s(), &run->steps->events, reterr);
    }
    return status ? status : fm_metrics_open(path, &run->steps->metrics, reterr);
}

void fm_train_steps_begin(fm_train_run *run, bool quiet) {
    run->steps->progress = fm_progress_of(run->set->steps, quiet);
}

void fm_train_steps_end(const fm_train_run *run) {
    fm_progress_end(&run->steps->progress, run->state.place.step);
}

void fm_train_steps_print_losses(const fm_train_run *run) {
    const fm_train_steps *steps = run->steps;
    uint64_t window = steps->n_loss < LOSS_WINDOW ? steps->n_loss : LOSS_WINDOW;
    double last_sum = 0;
    if (window == 0) return;
    for (uint64_t i = 0; i < window; i++)
        last_sum += steps->last_loss[i];
    printf("loss      %.4f mean of the first %llu step%s, %.4f of the last\n",
           steps->first_loss_sum / (double)window, (unsigned long long)window, fm_plural(window),
           last_sum / (double)window);
}

void fm_train_steps_destroy(fm_train_run *run, bool discards) {
    if (!run->steps) return;
    fm_metrics_close(run->steps->metrics);
    if (discards) {
        fm_event_file_discard(run->steps->events);
    } else {
        fm_event_file_close(run->steps->events);
    }
    free(run->steps);
    run->steps = NULL;
}

bool fm_train_is_diverging(const fm_train_run *run) {
    return run->steps->is_diverging;
}

static const char *const score_names[FM_METRICS_SCORES] = {
    "lddt_ca", "lddt", "rmsd_ca", "drmsd_ca", "tm_score", "gdt_ts", "gdt_ha"};

/* The loss terms that the model has, and the lDDT that one of them gives. */
static void add_terms(const fm_train_run *run, const fm_batch_sums *sums, double n,
                      fm_metrics_step *step) {
    static_assert((int)FM_RESULT_TERMS <= (int)FM_METRICS_TERMS, "a step has room for all terms");
    const fm_train_work *work = run->work;
    for (int i = 0; i < work->n_term; i++) {
        if (!(run->terms >> i & 1)) continue;
        step->term[step->n_term].name = work->term_name(i);
        step->term[step->n_term].part = sums->part[i] / n;
        step->term[step->n_term++].value = sums->term[i] / n;
    }
    const int lddt = work->lddt_term;
    if (lddt < 0 || !(run->terms >> lddt & 1)) return;
    step->score[step->n_score].name = "lddt";
    step->score[step->n_score++].value = 1 - sums->term[lddt] / n;
}

double fm_train_wall_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Logs each kind of slow path that the device's kernels have taken so far, once. */
static void say_slow_paths(fm_train_run *run) {
    fm_fallback fallbacks[FM_FALLBACK_KINDS];
    fm_backend_fallbacks(fallbacks);
    for (int i = 0; i < FM_FALLBACK_KINDS; i++) {
        if (fallbacks[i].count == 0 || run->steps->slow_path_logged[i]) continue;
        char reason[FM_FALLBACK_TEXT + 8];
        fm_log(FM_LOG_WARN, "slow path", "kernel=%s calls=%llu reason=%s", fallbacks[i].name,
               (unsigned long long)fallbacks[i].count,
               fm_log_quote(reason, sizeof reason, fallbacks[i].text));
        run->steps->slow_path_logged[i] = true;
    }
}

/* Logs when the disk stops to take metrics, and when it takes them again. */
static void note_disk(fm_train_run *run, fm_status status, uint64_t step, const fm_error *error) {
    if (status && (!run->steps->is_disk_full || status == FM_ERR_NOMEM)) {
        char text[FM_ERROR_TEXT_BYTES], quoted[sizeof text];
        fm_error_format(error, text, sizeof text);
        fm_log(FM_LOG_WARN, "metrics_wait", "step=%llu why=%s", (unsigned long long)step,
               fm_log_quote(quoted, sizeof quoted, text));
    } else if (!status && run->steps->is_disk_full) {
        fm_log(FM_LOG_INFO, "metrics_written", "step=%llu", (unsigned long long)step);
    }
    run->steps->is_disk_full = status;
}

/* Writes the step's metrics and its places in the ledger. What the disk does not take waits in
 * memory. */
static void write_metrics(fm_train_run *run, const fm_metrics_step *step) {
    fm_error error;
    if (!fm_train_is_first(run)) return;
    fm_status status = fm_metrics_write(run->steps->metrics, step, &error), events = FM_OK;
    if (run->steps->events) {
        events = fm_event_file_write(run->steps->events, step, fm_train_wall_s(),
                                     status ? NULL : &error);
    }
    if (!status) status = events;
    fm_status ledger = fm_train_order_write_ledger(run, status ? NULL : &error);
    note_disk(run, status ? status : ledger, step->step, &error);
}

fm_status fm_train_sync_metrics(fm_train_run *run, fm_error *reterr) {
    fm_error error;
    fm_status status = fm_metrics_sync(run->steps->metrics, &error), events = FM_OK;
    if (run->steps->events) events = fm_event_file_sync(run->steps->events, status ? NULL : &error);
    if (!status) status = events;
    fm_status ledger = fm_train_order_sync_ledger(run, status ? NULL : &error);
    if (!status) status = ledger;
    fm_status others = run->work->sync ? run->work->sync(run, status ? NULL : &error) : FM_OK;
    if (!status) status = others;
    note_disk(run, status, run->state.place.step, &error);
    if (status && reterr) *reterr = error;
    return status;
}

/* Says when the run begins to diverge. With --stop-on-divergence that ends it, naming the newest
 * checkpoint from before. */
static fm_status watch_divergence(fm_train_run *run, const fm_metrics_step *step,
                                  fm_error *reterr) {
    char why[256], quoted[FM_ERROR_MESSAGE_BYTES], good[FM_CHECKPOINT_PATH_BYTES] = "none";
    bool was_diverging = run->steps->is_diverging;
    run->steps->is_diverging =
        fm_divergence_add(&run->steps->divergence, step->loss, step->grad_norm, why, sizeof why);
    if (!run->steps->is_diverging || was_diverging) return FM_OK;
    uint64_t since = step->step > FM_DIVERGENCE_NEWEST ? step->step - FM_DIVERGENCE_NEWEST : 0;
    const fm_checkpoint_place before = {since + 1, 0};
    fm_checkpoint_place place;
    fm_error error;
    fm_status status = fm_checkpoint_find(fm_train_folder(run), before, &place, &error);
    if (!status) status = fm_checkpoint_path(run->set->out, place, good, &error);
    if (status && status != FM_ERR_NOT_FOUND) {
        snprintf(good, sizeof good, "unknown");
        fm_log(FM_LOG_WARN, "checkpoints_not_listed", "folder=%s why=%s", run->set->out,
               fm_log_quote(quoted, sizeof quoted, error.message));
    }
    fm_log(FM_LOG_WARN, "diverging", "step=%llu why=%s last_good_checkpoint=%s",
           (unsigned long long)step->step, fm_log_quote(quoted, sizeof quoted, why), good);
    if (!run->set->stop_on_divergence) return FM_OK;
    snprintf(run->advice, sizeof run->advice,
             "the last good checkpoint is %.500s; move the newer ones away and --resume goes on "
             "from it",
             good);
    return fm_fail(reterr, FM_ERR_DATA, "%s", why);
}

/* Asking the device takes longer than a short step may, so it is asked every few seconds. */
static void add_memory(fm_train_run *run, fm_metrics_step *step) {
    const fm_device *device = run->optimizer->kernels->device;
    if (!run->steps->looked_ns || fm_train_seconds_since(run->steps->looked_ns) > MEMORY_S) {
        run->steps->looked_ns = fm_clock_ns();
        run->steps->used_bytes = device->used_bytes();
        run->steps->free_bytes = device->free_bytes();
    }
    step->memory_bytes = (uint64_t)run->work->memory_bytes(run);
    step->device_used_bytes = run->steps->used_bytes;
    step->device_free_bytes = run->steps->free_bytes;
}

/* The time that is left when `n_step` steps are made, by the samples of them. */
static double left_s(const fm_train_run *run, uint64_t n_step) {
    uint64_t at = fm_train_place(run, n_step, 0), end = fm_train_place(run, run->set->steps, 0);
    return fm_train_seconds_since(run->start_ns) * (double)(end - at) /
           (double)(at - fm_train_first_place(run));
}

void fm_train_add_result(fm_batch_sums *sums, uint64_t index, uint32_t n_cycle, const char *name,
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
    for (int i = 0; i < FM_RESULT_TERMS; i++) {
        sums->term[i] += result->term[i];
        sums->part[i] += result->part[i];
    }
}

double fm_train_rate(const fm_train_run *run) {
    return fm_optimizer_rate(&run->optimizer->options, run->optimizer->samples);
}

/* Logs how long the start took, by phases, after the first step of this process. */
static void say_start(fm_train_run *run, double data_wait_s) {
    char text[FM_START_TEXT_BYTES];
    if (!fm_train_is_first(run) || run->state.place.step != run->first.step + 1) return;
    fm_train_end_phase(run, FM_START_STEP);
    fm_start_phases_format(&run->start, text);
    fm_log(FM_LOG_INFO, "first_step", "%s sample_wait_s=%.2f", text, data_wait_s);
}

fm_status fm_train_finish_step(fm_train_run *run, double rate, fm_error *reterr) {
    fm_train_state *state = &run->state;
    const fm_batch_sums *sums = &state->sums;
    double n = sums->n_counted; /* 0: no sample counted, and the numbers are not finite */
    /* By the device's clock: the host may see the end of a step when the next one is well under
     * way. */
    uint64_t step_ns = run->steps->done_ns && sums->done_ns ? sums->done_ns - run->steps->done_ns
                                                            : fm_clock_ns() - run->start_ns;
    state->place = (fm_checkpoint_place){state->place.step + 1, 0};
    uint64_t n_step = state->place.step;
    fm_metrics_step step = {
        .step = n_step,
        .index = sums->index,
        .sample = sums->name,
        .n_cycle = sums->n_cycle,
        .loss = sums->loss / n,
        .grad_norm = sums->norm / n,
        .learning_rate = rate,
        .step_s = (double)step_ns * 1e-9,
        .data_wait_s = sums->wait_s,
        .left_s = left_s(run, n_step),
    };
    run->steps->done_ns = sums->done_ns;
    add_memory(run, &step);
    add_terms(run, sums, n, &step);
    for (uint32_t i = 0; sums->n_scored && i < FM_METRICS_SCORES; i++) {
        step.score[i].name = score_names[i];
        step.score[step.n_score++].value = sums->score[i] / sums->n_scored;
    }
    if (sums->n_counted) {
        if (run->steps->n_loss < LOSS_WINDOW) run->steps->first_loss_sum += step.loss;
        run->steps->last_loss[run->steps->n_loss++ % LOSS_WINDOW] = step.loss;
    }
    say_slow_paths(run);
    say_start(run, step.data_wait_s);
    fm_progress_say(&run->steps->progress, &step);
    write_metrics(run, &step);
    state->sums = (fm_batch_sums){.n_counted = 0};
    fm_status status = fm_folder_lock_check(run->set->out, &run->lock, reterr);
    if (!status) status = fm_train_order_read_scores(run, reterr);
    if (!status) status = watch_divergence(run, &step, reterr);
    return status || !run->work->finish ? status : run->work->finish(run, reterr);
}
