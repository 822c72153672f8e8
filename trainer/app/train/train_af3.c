/* train_af3.c: see train_af3.h.
 *
 * Every --eval-every steps and after the last, the moving average of the parameters is scored on
 * held-out samples (train_held_out.h), which are called files here. This comes before the step's
 * checkpoint is written: a resumed run scores no step twice, because it removes the lines behind
 * its checkpoint. Group g of P scores the files g, g + P, ..., and all ranks add up the results in
 * the order of the files. An evaluation may take longer than a scheduler waits after its signal, so
 * a signal to stop ends it between two files. The checkpoint then has no line in eval.jsonl, and a
 * resumed run evaluates it first. */
#include "trainer/app/train/train_af3.h"

#include "proto/base/log.h"
#include "proto/base/plural.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/evaluation/sample_scores.h"
#include "trainer/app/settings/setup.h"
#include "trainer/app/train/train_held_out.h"
#include "trainer/app/train/train_order.h"
#include "trainer/app/train/train_rounds.h"
#include "trainer/app/train/train_scores.h"
#include "trainer/app/train/train_skip.h"
#include "trainer/app/train/train_step.h"
#include "trainer/metrics/appender.h"
#include "trainer/step/schedule.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fm_train_af3 {
    fm_held_out held_out;
    fm_af3_trainer *trainer;
    /* Forward only, with the moving average; NULL without held-out samples. */
    fm_af3_trainer *judge;
    fm_appender *scores; /* eval.jsonl, on the first rank: */
    bool lacks_scores;   /* it has no line of the checkpoint that the run began with */
    /* eval.csv: the newest evaluation of the first rank, which was made after table_step steps. */
    fm_sample_scores table;
    uint64_t table_step;
    bool table_waits;    /* it could not be written yet */
    uint64_t n_left_out; /* groups of equivalent atoms of all samples that this rank has computed */
};

/* A rank's result for its file of an evaluation. */
typedef struct fm_file_score {
    fm_scored_file scored;
    uint32_t status, signal;
    char why[256];
} fm_file_score;

/* -- settings */

static bool has_held_out(const fm_train_run *run) {
    return run->set->eval_samples || run->set->eval_snapshot;
}

fm_status fm_train_af3_check(const fm_train_run *run, fm_error *reterr) {
    const fm_train_options *set = run->set;
    if (set->eval_device || set->eval_dtype || set->eval_share || set->stop_at) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--eval-samples or --eval-snapshot, --eval-data and --eval-every choose an "
                       "evaluation; the other options of evaluations are for models of af2");
    }
    if (set->eval_snapshot && (set->eval_samples || set->samples)) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--eval-snapshot names complexes of the server of --data or --cache; give "
                       "no --samples or --eval-samples with it");
    }
    if (set->eval_data && !set->eval_snapshot) {
        return fm_fail(reterr, FM_ERR_USAGE, "--eval-data needs --eval-snapshot NAME");
    }
    if (fm_train_eval_every(run) && !has_held_out(run)) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "%s needs --eval-samples DIR or --eval-snapshot NAME, the samples to score",
                       set->eval_every ? "--eval-every" : "[metrics] eval_every");
    }
    if (run->layout.bp != 1) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "found bp = %d; blocks of af3 have one branch, expected bp = 1",
                       (int)run->layout.bp);
    }
    const char *awaited = fm_train_order_awaited_score(run);
    const bool rises = strcmp(awaited, "lddt") == 0 || strcmp(awaited, "rollout_lddt") == 0;
    return fm_train_check_awaited_score(run, rises, "lddt, rollout_lddt", reterr);
}

/* -- opening */

static fm_status create_judge(fm_train_run *run, fm_af3_trainer_options options, fm_error *reterr) {
    options.forward_only = true;
    if (run->config.metrics.eval_rollout_step > 0) {
        options.model.n_rollout_step = (int32_t)run->config.metrics.eval_rollout_step;
    }
    return fm_af3_trainer_create(&options, &run->af3->judge, reterr);
}

/* The judge comes first: without a budget, recompute = auto takes what the device has free then. */
fm_status fm_train_af3_create(fm_train_run *run, const fm_kernels *kernels, fm_error *reterr) {
    fm_train_af3 *af3 = run->af3 = calloc(1, sizeof *run->af3);
    if (!af3) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a run");
    fm_af3_trainer_options options =
        fm_af3_trainer_options_of(&run->config, kernels, run->set->seed);
    fm_status status = FM_OK;
    if (run->ranks) {
        status =
            fm_ranks_join(run->ranks, run->set->device, kernels, &options.model.groups, reterr);
        fm_train_end_phase(run, FM_START_LINKS);
    }
    if (!status && has_held_out(run)) status = create_judge(run, options, reterr);
    if (!status) status = fm_af3_trainer_create(&options, &af3->trainer, reterr);
    if (status) return status;
    run->optimizer = &af3->trainer->recording.optimizer;
    for (unsigned i = 0; i < FM_COMPLEX_TERMS; i++) {
        bool counts = i >= FM_COMPLEX_STRUCTURE_TERMS || !options.confidence_only;
        run->terms |= (unsigned)counts << i;
    }
    return FM_OK;
}

/* Opens eval.jsonl, without the lines behind the checkpoint. */
fm_status fm_train_af3_start(fm_train_run *run, fm_error *reterr) {
    char path[PATH_MAX];
    fm_metrics_kept kept;
    if (!run->af3->judge) return FM_OK;
    if (snprintf(path, sizeof path, "%s/eval.jsonl", fm_train_folder(run)) >= (int)sizeof path) {
        return fm_fail(reterr, FM_ERR_USAGE, "--out: the path is too long");
    }
    fm_status status = fm_metrics_truncate(path, run->state.place.step, &kept, reterr);
    run->af3->lacks_scores = kept.last != run->state.place.step;
    return status ? status : fm_appender_open(path, &run->af3->scores, reterr);
}

/* All evaluations have the same draws: those of sample `i` of step 0. */
static fm_status read_features(const fm_train_run *run, uint32_t i, fm_af3_features *ret_features,
                               fm_error *reterr) {
    fm_status status = fm_held_out_read(&run->af3->held_out, i,
                                        (uint32_t)run->config.data.max_cycle, ret_features, reterr);
    if (!status) ret_features->slot = i & 0xffff;
    return status;
}

/* Reads every held-out sample once, so that a run does not end at its first evaluation. */
static fm_status check_held_out(const fm_train_run *run, fm_error *reterr) {
    fm_held_out *held_out = &run->af3->held_out;
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < held_out->n && !status; i++) {
        char path[PATH_MAX];
        fm_af3_features features;
        status = read_features(run, i, &features, reterr);
        if (!status) status = fm_af3_trainer_check(run->af3->judge, &features, reterr);
        if (!status) continue;
        snprintf(path, sizeof path, "%s/%s%s", held_out->from, held_out->name[i],
                 run->set->eval_samples ? ".npz" : "");
        if (reterr) (void)fm_error_in(reterr, path);
    }
    return status;
}

fm_status fm_train_af3_open(fm_train_run *run, const char *data, fm_error *reterr) {
    fm_status status = fm_held_out_open(run, data, &run->af3->held_out, reterr);
    return status ? status : check_held_out(run, reterr);
}

/* -- evaluation */

/* The judge's parameters become the moving average. */
static void take_average(const fm_train_af3 *af3) {
    const fm_params *from = &af3->trainer->recording.params, *to = &af3->judge->recording.params;
    const fm_kernels *kernels = from->kernels;
    int64_t ratio = (int64_t)(fm_element_bytes(from->element) / fm_element_bytes(kernels->act));
    assert(from->n_element == to->n_element);
    kernels->copy(af3->judge->recording.stream, from->n_element * ratio, from->ema, to->master);
    kernels->synchronize(af3->judge->recording.stream);
    fm_params_refresh_copy(&af3->judge->recording.params);
}

/* Writes the lines of eval.jsonl and the table that wait for the disk. */
fm_status fm_train_af3_sync(fm_train_run *run, fm_error *reterr) {
    fm_train_af3 *af3 = run->af3;
    char path[PATH_MAX];
    if (!af3->scores) return FM_OK;
    fm_status status = fm_appender_sync(af3->scores, reterr);
    if (!af3->table_waits) return status;
    /* The path of eval.jsonl, which is open, is longer. */
    snprintf(path, sizeof path, "%.*s/eval.csv", PATH_MAX - 10, fm_train_folder(run));
    fm_status table =
        fm_sample_scores_write(&af3->table, af3->table_step, path, status ? NULL : reterr);
    af3->table_waits = table;
    return status ? status : table;
}

/* Appends the means to eval.jsonl, and replaces the table of the files by these scores, which
 * become those of the run. As with metrics, what the disk does not take waits in memory. */
static fm_status write_scores(fm_train_run *run, fm_sample_scores *scores,
                              const fm_sample_means *means, fm_error *reterr) {
    fm_train_af3 *af3 = run->af3;
    char line[2048];
    const uint64_t step = run->state.place.step;
    size_t n =
        fm_sample_means_line(means, scores->n_file, step, fm_train_wall_s(), line, sizeof line);
    fm_sample_scores_fini(&af3->table);
    af3->table = *scores;
    *scores = (fm_sample_scores){.name = NULL};
    af3->table_step = step;
    af3->table_waits = true;
    fm_status status = fm_appender_add(af3->scores, line, n, reterr);
    if (status && status != FM_ERR_IO) return status;
    fm_status rows = fm_train_sync_metrics(run, NULL);
    (void)rows; /* it is in the log, and the end of the run looks again */
    return FM_OK;
}

/* Tells the other ranks what came of this one's part, and hears what came of theirs. The first
 * failure is that of all, except that a lost exchange is known to this rank only. FM_ERR_CANCELLED:
 * a rank was asked to stop. */
static fm_status agree_on_scores(fm_train_run *run, fm_status status, const fm_error *why,
                                 fm_file_score *own, fm_file_score *all, fm_error *reterr) {
    if (!run->ranks || status == FM_ERR_CLOSED) {
        all[0] = *own;
        if (status && reterr) *reterr = *why;
        return status;
    }
    own->status = status;
    if (status) fm_error_format(why, own->why, sizeof own->why);
    status = fm_ranks_gather(run->ranks, own, sizeof *own, all, reterr);
    for (int32_t r = 0; r < fm_ranks_size(run->ranks) && !status; r++) {
        all[r].why[sizeof all[r].why - 1] = '\0';
        if (all[r].status == FM_ERR_CANCELLED) fm_stop_request(FM_STOP_SIGNAL, (int)all[r].signal);
        if (all[r].status) status = fm_fail(reterr, (fm_status)all[r].status, "%s", all[r].why);
    }
    return status;
}

/* Reads a file that is to be scored, if there is one, unless this rank was asked to stop. */
static fm_status read_held_out(fm_train_run *run, uint32_t file, fm_af3_features *ret_features,
                               fm_file_score *own, fm_error *reterr) {
    own->signal = (uint32_t)fm_stop_signal();
    if (own->signal) return fm_fail(reterr, FM_ERR_CANCELLED, "stopped on request");
    return file < run->af3->held_out.n ? read_features(run, file, ret_features, reterr) : FM_OK;
}

/* Scores a file, if there is one. No rank computes before all have read their files. */
static fm_status score_file(fm_train_run *run, uint32_t file, fm_file_score *all,
                            fm_error *reterr) {
    fm_train_af3 *af3 = run->af3;
    fm_af3_features features;
    fm_file_score own = {.why = ""};
    fm_error why = {.message = ""};
    fm_status status = read_held_out(run, file, &features, &own, &why);
    status = agree_on_scores(run, status, &why, &own, all, reterr);
    if (status) return status;
    if (file < af3->held_out.n) {
        status = fm_af3_trainer_add_sample(af3->judge, &features, &own.scored.losses, &why);
        own.scored.rollout = af3->judge->score;
        if (status) fm_train_name_sample(file, af3->held_out.name[file], &why);
    }
    return agree_on_scores(run, status, &why, &own, all, reterr);
}

/* Scores the moving average on all files. The ranks agree on a failure and on a request to stop. */
static fm_status score_files(fm_train_run *run, fm_sample_scores *scores, fm_error *reterr) {
    const uint32_t n = scores->n_file, group = (uint32_t)fm_train_group(run);
    const uint32_t n_group = (uint32_t)run->layout.dp, of_group = (uint32_t)run->layout.dap;
    fm_file_score *all = calloc((size_t)n_group * of_group, sizeof *all);
    if (!all) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for scores");
    take_average(run->af3);
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < n && !status; i += n_group) {
        status = score_file(run, i + group, all, reterr);
        for (uint32_t g = 0; g < n_group && i + g < n && !status; g++)
            scores->file[i + g] = all[g * of_group].scored;
    }
    free(all);
    return status;
}

static fm_status evaluate(fm_train_run *run, fm_error *reterr) {
    const fm_held_out *files = &run->af3->held_out;
    const uint64_t began_ns = fm_clock_ns();
    fm_sample_scores scores;
    fm_status status = fm_sample_scores_init(files->name, files->n, &scores, reterr);
    if (status) return status;
    status = score_files(run, &scores, reterr);
    const bool is_scored = !status;
    const fm_sample_means means = fm_sample_scores_means(&scores);
    if (is_scored && fm_train_is_first(run)) status = write_scores(run, &scores, &means, reterr);
    fm_sample_scores_fini(&scores);
    if (is_scored && run->ranks) status = fm_train_rounds_share(run, status, reterr);
    if (status == FM_ERR_CANCELLED) {
        fm_log(FM_LOG_WARN, "evaluation_given_up",
               "step=%llu why=\"stopped on request; a resumed run makes it first\"",
               (unsigned long long)run->state.place.step);
    }
    if (status) return status;
    fm_log(FM_LOG_INFO, "evaluated", "step=%llu lddt=%.4f loss=%.4f samples=%u s=%.1f",
           (unsigned long long)run->state.place.step, 1 - means.term[FM_COMPLEX_SMOOTH_LDDT],
           means.loss, files->n, fm_train_seconds_since(began_ns));
    return FM_OK;
}

/* Whether the step that was made last is to be scored. */
static bool is_evaluation_due(const fm_train_run *run) {
    const uint64_t step = run->state.place.step;
    const uint64_t every = fm_train_eval_every(run);
    return run->af3->judge && step > 0 && (step == run->set->steps || (every && step % every == 0));
}

fm_status fm_train_af3_finish(fm_train_run *run, fm_error *reterr) {
    return is_evaluation_due(run) ? evaluate(run, reterr) : FM_OK;
}

/* Whether the step of the checkpoint has no scores: the first rank, which has read eval.jsonl,
 * tells it to all. */
static fm_status look_for_scores(fm_train_run *run, bool *ret_is_missing, fm_error *reterr) {
    const bool own = run->af3->lacks_scores;
    *ret_is_missing = own;
    if (!run->ranks) return FM_OK;
    bool *all = calloc((size_t)fm_ranks_size(run->ranks), sizeof *all);
    if (!all) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for what the ranks say");
    fm_status status = fm_ranks_gather(run->ranks, &own, sizeof own, all, reterr);
    *ret_is_missing = all[0];
    free(all);
    return status;
}

/* The parameters of a checkpoint inside a batch are those of its last step. */
fm_status fm_train_af3_make_up(fm_train_run *run, fm_error *reterr) {
    bool is_missing;
    if (!is_evaluation_due(run)) return FM_OK;
    fm_status status = look_for_scores(run, &is_missing, reterr);
    return !status && is_missing ? evaluate(run, reterr) : status;
}

/* -- samples */

fm_af3_trainer *fm_train_af3_trainer(const fm_train_run *run) {
    return run->af3->trainer;
}

fm_status fm_train_af3_compute(fm_train_run *run, const fm_af3_features *features,
                               fm_sample_result *ret_result, fm_error *reterr) {
    fm_status status = fm_af3_trainer_add_sample(run->af3->trainer, features, ret_result, reterr);
    ret_result->done_ns = fm_clock_ns();
    run->af3->n_left_out += features->n_left_out;
    return status;
}

bool fm_train_af3_find_next(const fm_train_run *run, uint64_t *step, uint32_t *slot) {
    *slot += (uint32_t)run->layout.dp;
    if (*slot >= fm_train_batch_at(run, *step)) {
        (*step)++;
        *slot = (uint32_t)fm_train_group(run);
    }
    return *step < run->set->steps && *slot < fm_train_batch_at(run, *step);
}

/* The sample is computed when it is collected. */
fm_status fm_train_af3_queue_next(fm_train_run *run, uint64_t number, bool updates,
                                  fm_error *reterr) {
    (void)run, (void)number, (void)updates, (void)reterr;
    return FM_OK;
}

fm_status fm_train_af3_update(fm_train_run *run, uint32_t n, fm_error *reterr) {
    return fm_af3_trainer_update_with(run->af3->trainer, n, reterr);
}

fm_status fm_train_af3_count(fm_train_run *run, const fm_train_sample *sample, uint32_t n_cycle,
                             double wait_s, const fm_sample_result *result, fm_error *reterr) {
    fm_train_add_result(&run->state.sums, sample->index, n_cycle, sample->name, wait_s, result);
    fm_status status = fm_train_order_deliver(run, sample, false, reterr);
    run->slot = run->state.place.n_sample = sample->slot + 1;
    if (status || run->slot < fm_train_batch(run)) return status;
    status = fm_train_af3_update(run, run->optimizer->pending, reterr);
    run->is_torn = run->is_torn || status;
    if (status) return status;
    run->queued_step++;
    run->slot = 0;
    return fm_train_finish_step(run, fm_train_rate(run), reterr);
}

/* The exchanges of all tapes, those of evaluations included. */
uint64_t fm_train_af3_digest(const fm_train_run *run, bool joint) {
    const fm_train_af3 *af3 = run->af3;
    const fm_tape *tape[2 * FM_AF3_TAPES];
    int n = 0;
    for (int i = 0; i < FM_AF3_TAPES; i++) {
        tape[n++] = &af3->trainer->recording.tape[i];
        if (af3->judge) tape[n++] = &af3->judge->recording.tape[i];
    }
    return fm_schedule_digest_tapes(tape, n, joint);
}

/* -- messages and metrics */

const char *fm_train_af3_term_name(int i) {
    return fm_complex_terms[i].name;
}

int64_t fm_train_af3_memory_bytes(const fm_train_run *run) {
    const fm_train_af3 *af3 = run->af3;
    return fm_af3_trainer_memory_bytes(af3->trainer) +
           (af3->judge ? fm_af3_trainer_memory_bytes(af3->judge) : 0);
}

void fm_train_af3_describe(const fm_train_run *run, char *out, size_t out_bytes) {
    fm_af3_trainer_describe(run->af3->trainer, out, out_bytes);
}

void fm_train_af3_announce(const fm_train_run *run) {
    const fm_train_af3 *af3 = run->af3;
    if (!af3->judge) return;
    fprintf(stderr, "held out  %s: %u sample%s", af3->held_out.from, af3->held_out.n,
            fm_plural(af3->held_out.n));
    if (af3->held_out.n_left_out) {
        fprintf(stderr, ", and %u that could not be made", af3->held_out.n_left_out);
    }
    fputc('\n', stderr);
}

void fm_train_af3_summarize(const fm_train_run *run) {
    const uint64_t n = run->af3->n_left_out;
    if (n) {
        printf("labels    %llu group%s of equivalent atoms %s too large to exchange labels\n",
               (unsigned long long)n, fm_plural(n), n == 1 ? "is" : "are");
    }
    fm_train_print_skipped(run);
}

void fm_train_af3_stop(fm_train_run *run) {
    fm_train_af3 *af3 = run->af3;
    if (!af3) return;
    fm_appender_close(af3->scores);
    fm_sample_scores_fini(&af3->table);
    fm_held_out_close(&af3->held_out);
    fm_af3_trainer_destroy(af3->judge);
    fm_af3_trainer_destroy(af3->trainer);
    free(af3);
    run->af3 = NULL;
}
