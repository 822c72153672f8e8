/* train_samples.c: a run of AlphaFold 3 on stored samples; see train_run.h.
 *
 * Sample k of a run is a file of the folder (sample_folder.h). It is read, checked and computed at
 * once, so nothing is in flight between two samples. A file that cannot be used is a bad sample: it
 * ends the run or is skipped. Every eval_every steps and after the last, the moving average of the
 * parameters is scored on the files of another folder, before the step's checkpoint is written: a
 * resumed run scores no step twice, because it removes the lines behind its checkpoint. */
#include "trainer/app/train_run.h"

#include "proto/base/log.h"
#include "proto/base/plural.h"
#include "proto/step_cycles.h"
#include "trainer/app/network.h"
#include "trainer/app/sample_folder.h"
#include "trainer/app/setup.h"
#include "trainer/metrics/appender.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert((int)FM_COMPLEX_TERMS <= (int)FM_LOSS_TERMS, "a result has room for all terms");

typedef struct fm_stored_run {
    fm_sample_folder samples, held_out;
    fm_af3_trainer *trainer;
    fm_af3_trainer *judge; /* forward only, with the moving average; NULL without --eval-samples */
    fm_appender *scores;   /* eval.jsonl */
} fm_stored_run;

/* -- settings */

static fm_status check(const fm_train_run *run, fm_error *reterr) {
    const fm_train_options *set = run->set;
    const struct {
        bool is_given;
        const char *what;
    } strange[] = {{set->data || set->cache || set->snapshot, "--data, --cache and --snapshot are"},
                   {set->replay || strcmp(set->order, "strict") != 0, "--order and --replay are"},
                   {set->eval_every || set->eval_snapshot || set->eval_data || set->eval_device ||
                        set->eval_dtype || set->eval_share || set->stop_at,
                    "--eval-samples and eval_every in [metrics] choose an evaluation; the other "
                    "options of evaluations are"}};
    if (!set->samples) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "a model of af3 trains on stored samples: --samples DIR");
    }
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        if (!strange[i].is_given) continue;
        return fm_fail(reterr, FM_ERR_USAGE, "%s for models of af2", strange[i].what);
    }
    if (run->config.metrics.eval_every && !set->eval_samples) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "[metrics] eval_every needs --eval-samples DIR, the samples to score");
    }
    if (fm_layout_ranks(&run->layout) == 1) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE, "found %d ranks; a run of af3 has one",
                   (int)fm_layout_ranks(&run->layout));
}

static fm_status find(fm_train_run *run, bool is_rank, fm_error *reterr) {
    (void)is_rank;
    run->stored = calloc(1, sizeof *run->stored);
    if (run->stored) return FM_OK;
    return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a run");
}

/* -- opening */

static fm_status create(fm_train_run *run, const fm_kernels *kernels, fm_error *reterr) {
    fm_stored_run *stored = run->stored;
    fm_af3_trainer_options options =
        fm_af3_trainer_options_of(&run->config, kernels, run->set->seed);
    fm_status status = fm_af3_trainer_create(&options, &stored->trainer, reterr);
    if (status) return status;
    run->optimizer = &stored->trainer->optimizer;
    for (unsigned i = 0; i < FM_COMPLEX_TERMS; i++) {
        bool counts = i >= FM_COMPLEX_STRUCTURE_TERMS || !options.confidence_only;
        run->terms |= (unsigned)counts << i;
    }
    if (!run->set->eval_samples) return FM_OK;
    options.forward_only = true;
    return fm_af3_trainer_create(&options, &stored->judge, reterr);
}

/* Opens eval.jsonl, without the lines behind the checkpoint. */
static fm_status open_scores(fm_train_run *run, fm_error *reterr) {
    char path[PATH_MAX];
    uint64_t n_row;
    if (!run->stored->judge) return FM_OK;
    if (snprintf(path, sizeof path, "%s/eval.jsonl", run->set->out) >= (int)sizeof path) {
        return fm_fail(reterr, FM_ERR_USAGE, "--out: the path is too long");
    }
    fm_status status = fm_metrics_truncate(path, run->state.place.step, &n_row, reterr);
    return status ? status : fm_appender_open(path, &run->stored->scores, reterr);
}

/* Reads every held-out file once, so that a run does not end at its first evaluation. */
static fm_status check_held_out(fm_stored_run *stored, fm_error *reterr) {
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < stored->held_out.n && !status; i++) {
        char path[PATH_MAX];
        const fm_stored_sample *sample;
        status = fm_sample_folder_read(&stored->held_out, i, &sample, reterr);
        if (!status) status = fm_af3_trainer_check(stored->judge, &sample->features, reterr);
        if (!status) continue;
        snprintf(path, sizeof path, "%s/%s.npz", stored->held_out.path, stored->held_out.file[i]);
        if (reterr) (void)fm_error_in(reterr, path);
    }
    return status;
}

static fm_status open_samples(fm_train_run *run, fm_error *reterr) {
    const fm_sha256 unknown = {{0}};
    fm_stored_run *stored = run->stored;
    fm_status status = fm_sample_folder_open(run->set->samples, &stored->samples, reterr);
    if (!status && run->set->eval_samples) {
        status = fm_sample_folder_open(run->set->eval_samples, &stored->held_out, reterr);
        if (!status) status = check_held_out(stored, reterr);
    }
    if (status) return status;
    bool is_known = memcmp(&run->state.snapshot, &unknown, sizeof unknown) != 0;
    if (is_known && memcmp(&run->state.snapshot, &stored->samples.hash, sizeof unknown) != 0) {
        return fm_fail_in(reterr, FM_ERR_USAGE, run->set->samples,
                          "the checkpoint's run had other samples: their names or sizes differ");
    }
    run->state.snapshot = stored->samples.hash;
    run->epoch_samples = stored->samples.n;
    return fm_run_check_order(run, reterr);
}

/* -- evaluation */

/* The judge's parameters become the moving average. */
static void take_average(const fm_stored_run *stored) {
    const fm_params *from = &stored->trainer->params, *to = &stored->judge->params;
    const fm_kernels *kernels = from->kernels;
    int64_t ratio = (int64_t)(fm_element_bytes(from->element) / fm_element_bytes(kernels->act));
    assert(from->n_element == to->n_element);
    kernels->copy(stored->judge->stream, from->n_element * ratio, from->ema, to->master);
    kernels->synchronize(stored->judge->stream);
    fm_params_refresh_copy(&stored->judge->params);
}

static fm_status write_scores(fm_train_run *run, const fm_af3_result *sum, fm_error *reterr) {
    char line[1024];
    const double n = run->stored->held_out.n;
    int at =
        snprintf(line, sizeof line, "{\"step\":%llu,\"samples\":%u,\"loss\":%.9g",
                 (unsigned long long)run->state.place.step, run->stored->held_out.n, sum->loss / n);
    for (int i = 0; i < FM_COMPLEX_TERMS; i++)
        at += snprintf(line + at, sizeof line - (size_t)at, ",\"%s\":%.9g", fm_complex_term_name(i),
                       sum->term[i] / n);
    at += snprintf(line + at, sizeof line - (size_t)at, ",\"lddt\":%.9g,\"wall_s\":%.3f}\n",
                   1 - sum->term[FM_COMPLEX_SMOOTH_LDDT] / n, fm_run_wall_s());
    assert(at > 0 && (size_t)at < sizeof line);
    return fm_appender_add(run->stored->scores, line, (size_t)at, reterr);
}

/* Scores the moving average. The draws for a file are those of sample `file` of step 0, so every
 * evaluation has the same draws. */
static fm_status evaluate(fm_train_run *run, fm_error *reterr) {
    fm_stored_run *stored = run->stored;
    fm_af3_result sum = {0}, one;
    fm_status status = FM_OK;
    const uint64_t began_ns = fm_clock_ns();
    take_average(stored);
    for (uint32_t i = 0; i < stored->held_out.n && !status; i++) {
        const fm_stored_sample *sample;
        status = fm_sample_folder_read(&stored->held_out, i, &sample, reterr);
        if (status) return status;
        fm_af3_features features = sample->features;
        features.slot = i & 0xffff;
        features.n_cycle = (uint32_t)run->config.data.max_cycle;
        status = fm_af3_trainer_add_sample(stored->judge, &features, &one, reterr);
        if (status) fm_run_name_sample(i, stored->held_out.file[i], reterr);
        sum.loss += one.loss;
        for (int k = 0; k < FM_COMPLEX_TERMS && !status; k++)
            sum.term[k] += one.term[k];
    }
    if (!status) status = write_scores(run, &sum, reterr);
    if (status) return status;
    fm_log(FM_LOG_INFO, "evaluated", "step=%llu lddt=%.4f loss=%.4f samples=%u s=%.1f",
           (unsigned long long)run->state.place.step,
           1 - sum.term[FM_COMPLEX_SMOOTH_LDDT] / stored->held_out.n, sum.loss / stored->held_out.n,
           stored->held_out.n, fm_run_seconds_since(began_ns));
    return FM_OK;
}

static fm_status evaluate_if_due(fm_train_run *run, fm_error *reterr) {
    const uint64_t step = run->state.place.step;
    const uint64_t every = (uint64_t)run->config.metrics.eval_every;
    bool is_due = step == run->set->steps || (every && step % every == 0);
    return run->stored->judge && is_due ? evaluate(run, reterr) : FM_OK;
}

/* -- samples */

/* Errors of a sample; others end the run. */
static bool is_of_sample(fm_status status) {
    return status == FM_ERR_DATA || status == FM_ERR_LIMIT || status == FM_ERR_CORRUPT ||
           status == FM_ERR_FORMAT || status == FM_ERR_UNSUPPORTED;
}

static fm_status compute(fm_train_run *run, const fm_run_sample *sample, uint32_t file,
                         fm_af3_result *ret_result, uint32_t *ret_cycles, double *ret_wait_s,
                         fm_error *reterr) {
    const fm_stored_sample *read;
    const uint64_t began_ns = fm_clock_ns();
    fm_status status = fm_sample_folder_read(&run->stored->samples, file, &read, reterr);
    if (status) return status;
    *ret_wait_s = fm_run_seconds_since(began_ns);
    fm_af3_features features = read->features;
    features.slot = sample->slot;
    features.n_cycle = *ret_cycles =
        fm_step_cycles(run->set->seed, sample->step, (uint32_t)run->config.data.max_cycle);
    return fm_af3_trainer_add_sample(run->stored->trainer, &features, ret_result, reterr);
}

static void update(fm_train_run *run) {
    fm_optimizer_step(run->optimizer, run->stored->trainer->stream);
}

/* Counts a sample that was computed, and ends its step if it is the last one. */
static fm_status count(fm_train_run *run, const fm_run_sample *sample, uint32_t n_cycle,
                       double wait_s, const fm_af3_result *from, fm_error *reterr) {
    fm_sample_result result = {
        .loss = from->loss, .gradient_norm = from->gradient_norm, .done_ns = fm_clock_ns()};
    memcpy(result.term, from->term, sizeof from->term);
    memcpy(result.part, from->part, sizeof from->part);
    fm_run_add_result(&run->state.sums, sample->index, n_cycle, sample->name, wait_s, &result);
    fm_status status = fm_run_note_delivered(run, sample, false, reterr);
    run->slot = run->state.place.n_sample = sample->slot + 1;
    if (status || run->slot < fm_run_batch(run)) return status;
    update(run);
    run->queued_step++;
    run->slot = 0;
    status = fm_run_finish_step(run, fm_run_rate(run), reterr);
    return status ? status : evaluate_if_due(run, reterr);
}

static fm_status advance(fm_train_run *run, fm_error *reterr) {
    const uint64_t index = fm_run_place(run, run->queued_step, run->slot);
    const uint32_t file = fm_sample_folder_file(&run->stored->samples, run->set->seed, index);
    const fm_run_sample sample = {run->queued_step, run->slot, index,
                                  run->stored->samples.file[file]};
    if (fm_skipped_by_hand(&run->state.skipped, index)) {
        return fm_run_skip(run, &sample, NULL, reterr);
    }
    fm_af3_result result;
    fm_error why = {.message = ""};
    uint32_t n_cycle = 1;
    double wait_s = 0;
    fm_status status = compute(run, &sample, file, &result, &n_cycle, &wait_s, &why);
    if (!status) return count(run, &sample, n_cycle, wait_s, &result, reterr);
    if (reterr) *reterr = why;
    if (is_of_sample(status)) status = fm_run_judge(run, &sample, status, reterr);
    return status ? status : fm_run_skip(run, &sample, &why, reterr);
}

/* -- messages and metrics */

static int64_t memory_bytes(const fm_train_run *run) {
    const fm_stored_run *stored = run->stored;
    return fm_af3_trainer_memory_bytes(stored->trainer) +
           (stored->judge ? fm_af3_trainer_memory_bytes(stored->judge) : 0);
}

static void describe(const fm_train_run *run, char *out, size_t out_bytes) {
    fm_af3_trainer_describe(run->stored->trainer, out, out_bytes);
}

static void announce(const fm_train_run *run) {
    const fm_stored_run *stored = run->stored;
    const uint32_t batch = (uint32_t)run->config.data.global_batch;
    fprintf(stderr, "data      %s: %u sample%s, %u per step\n", stored->samples.path,
            stored->samples.n, fm_plural(stored->samples.n), batch);
    if (!stored->judge) return;
    fprintf(stderr, "held out  %s: %u sample%s\n", stored->held_out.path, stored->held_out.n,
            fm_plural(stored->held_out.n));
}

static void summarize(const fm_train_run *run) {
    const uint64_t n_read = run->stored->samples.n_read;
    printf("samples   %llu file%s read\n", (unsigned long long)n_read, fm_plural(n_read));
    fm_run_say_skipped(run);
}

static void stop(fm_train_run *run) {
    fm_stored_run *stored = run->stored;
    if (!stored) return;
    fm_appender_close(stored->scores);
    fm_sample_folder_close(&stored->samples);
    fm_sample_folder_close(&stored->held_out);
    fm_af3_trainer_destroy(stored->judge);
    fm_af3_trainer_destroy(stored->trainer);
    free(stored);
    run->stored = NULL;
}

const fm_run_work fm_run_samples = {.check = check,
                                    .find = find,
                                    .create = create,
                                    .open = open_samples,
                                    .start = open_scores,
                                    .advance = advance,
                                    .update = update,
                                    .memory_bytes = memory_bytes,
                                    .describe = describe,
                                    .announce = announce,
                                    .summarize = summarize,
                                    .stop = stop};
