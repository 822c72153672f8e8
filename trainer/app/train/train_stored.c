/* train_stored.c: see train_stored.h.
 *
 * Sample k of a run is a file of the folder (sample_folder.h). It is read, checked and computed at
 * once, so nothing is in flight between two samples. Before a sample is computed, this rank's next
 * one is read too and announced, so that the host writes its features while the device works. A
 * file that cannot be used is a bad sample: it ends the run or is skipped, when its turn comes. On
 * several ranks the rounds of train_rounds.h do the same: every rank reads the files of its group.
 *
 * Every --eval-every steps and after the last, the moving average of the parameters is scored on
 * the files of another folder, before the step's checkpoint is written: a resumed run scores no
 * step twice, because it removes the lines behind its checkpoint. Group g of P scores the files
 * g, g + P, ..., and all ranks add up the results in the order of the files. An evaluation may take
 * longer than a scheduler waits after its signal, so a signal to stop ends it between two files.
 * The checkpoint then has no line in eval.jsonl, and a resumed run evaluates it first. */
#include "trainer/app/train/train_stored.h"

#include "proto/base/log.h"
#include "proto/base/plural.h"
#include "proto/step_cycles.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/evaluation/sample_scores.h"
#include "trainer/app/samples/sample_folder.h"
#include "trainer/app/settings/setup.h"
#include "trainer/app/train/train_order.h"
#include "trainer/app/train/train_rounds.h"
#include "trainer/app/train/train_run.h"
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

/* A sample that was read, and its place: `slot` of `step`. */
typedef struct fm_read_sample {
    fm_af3_features features;
    uint64_t step;
    uint32_t slot;
    bool is_read;
} fm_read_sample;

struct fm_train_stored {
    fm_sample_folder samples, held_out;
    fm_af3_trainer *trainer;
    fm_af3_trainer *judge; /* forward only, with the moving average; NULL without --eval-samples */
    fm_appender *scores;   /* eval.jsonl, on the first rank: */
    bool lacks_scores;     /* it has no line of the checkpoint that the run began with */
    /* eval.csv: the newest evaluation of the first rank, which was made after table_step steps. */
    fm_sample_scores table;
    uint64_t table_step;
    bool table_waits;       /* it could not be written yet */
    fm_read_sample read[2]; /* the current sample and the one that is read ahead */
    int current;
    uint64_t next_index; /* of several ranks: of this one's next sample */
};

/* A rank's result for its file of an evaluation. */
typedef struct fm_file_score {
    fm_scored_file scored;
    uint32_t status, signal;
    char why[256];
} fm_file_score;

/* -- settings */

static fm_status check(const fm_train_run *run, fm_error *reterr) {
    const fm_train_options *set = run->set;
    const struct {
        bool is_given;
        const char *what;
    } strange[] = {{set->data || set->cache || set->snapshot, "--data, --cache and --snapshot are"},
                   {set->replay || strcmp(set->order, "strict") != 0, "--order and --replay are"},
                   {set->eval_snapshot || set->eval_data || set->eval_device || set->eval_dtype ||
                        set->eval_share || set->stop_at,
                    "--eval-samples and --eval-every choose an evaluation; the other options of "
                    "evaluations are"}};
    if (!set->samples) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "a model of af3 trains on stored samples: --samples DIR");
    }
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        if (!strange[i].is_given) continue;
        return fm_fail(reterr, FM_ERR_USAGE, "%s for models of af2", strange[i].what);
    }
    if (fm_train_eval_every(run) && !set->eval_samples) {
        return fm_fail(reterr, FM_ERR_USAGE, "%s needs --eval-samples DIR, the samples to score",
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

static fm_status find(fm_train_run *run, bool is_rank, fm_error *reterr) {
    (void)is_rank;
    run->stored = calloc(1, sizeof *run->stored);
    if (run->stored) return FM_OK;
    return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a run");
}

/* -- opening */

static fm_status create_judge(fm_train_run *run, fm_af3_trainer_options options, fm_error *reterr) {
    options.forward_only = true;
    if (run->config.metrics.eval_rollout_step > 0) {
        options.model.n_rollout_step = (int32_t)run->config.metrics.eval_rollout_step;
    }
    return fm_af3_trainer_create(&options, &run->stored->judge, reterr);
}

/* The judge comes first: without a budget, recompute = auto takes what the device has free then. */
static fm_status create(fm_train_run *run, const fm_kernels *kernels, fm_error *reterr) {
    fm_train_stored *stored = run->stored;
    fm_af3_trainer_options options =
        fm_af3_trainer_options_of(&run->config, kernels, run->set->seed);
    fm_status status = FM_OK;
    if (run->ranks) {
        status =
            fm_ranks_join(run->ranks, run->set->device, kernels, &options.model.groups, reterr);
        fm_train_end_phase(run, FM_START_LINKS);
    }
    if (!status && run->set->eval_samples) status = create_judge(run, options, reterr);
    if (!status) status = fm_af3_trainer_create(&options, &stored->trainer, reterr);
    if (status) return status;
    run->optimizer = &stored->trainer->recording.optimizer;
    for (unsigned i = 0; i < FM_COMPLEX_TERMS; i++) {
        bool counts = i >= FM_COMPLEX_STRUCTURE_TERMS || !options.confidence_only;
        run->terms |= (unsigned)counts << i;
    }
    return FM_OK;
}

/* Opens eval.jsonl, without the lines behind the checkpoint. */
static fm_status open_scores(fm_train_run *run, fm_error *reterr) {
    char path[PATH_MAX];
    fm_metrics_kept kept;
    if (!run->stored->judge) return FM_OK;
    if (snprintf(path, sizeof path, "%s/eval.jsonl", run->set->out) >= (int)sizeof path) {
        return fm_fail(reterr, FM_ERR_USAGE, "--out: the path is too long");
    }
    fm_status status = fm_metrics_truncate(path, run->state.place.step, &kept, reterr);
    run->stored->lacks_scores = kept.last != run->state.place.step;
    return status ? status : fm_appender_open(path, &run->stored->scores, reterr);
}

/* Reads every held-out file once, so that a run does not end at its first evaluation. */
static fm_status check_held_out(fm_train_stored *stored, fm_error *reterr) {
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
    fm_train_stored *stored = run->stored;
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
    return fm_train_order_begin(run, stored->samples.n, reterr);
}

/* -- evaluation */

/* The judge's parameters become the moving average. */
static void take_average(const fm_train_stored *stored) {
    const fm_params *from = &stored->trainer->recording.params,
                    *to = &stored->judge->recording.params;
    const fm_kernels *kernels = from->kernels;
    int64_t ratio = (int64_t)(fm_element_bytes(from->element) / fm_element_bytes(kernels->act));
    assert(from->n_element == to->n_element);
    kernels->copy(stored->judge->recording.stream, from->n_element * ratio, from->ema, to->master);
    kernels->synchronize(stored->judge->recording.stream);
    fm_params_refresh_copy(&stored->judge->recording.params);
}

/* Writes the lines of eval.jsonl and the table that wait for the disk. */
static fm_status sync_scores(fm_train_run *run, fm_error *reterr) {
    fm_train_stored *stored = run->stored;
    char path[PATH_MAX];
    if (!stored->scores) return FM_OK;
    fm_status status = fm_appender_sync(stored->scores, reterr);
    if (!stored->table_waits) return status;
    /* The path of eval.jsonl, which is open, is longer. */
    snprintf(path, sizeof path, "%.*s/eval.csv", PATH_MAX - 10, run->set->out);
    fm_status table =
        fm_sample_scores_write(&stored->table, stored->table_step, path, status ? NULL : reterr);
    stored->table_waits = table;
    return status ? status : table;
}

/* Appends the means to eval.jsonl, and replaces the table of the files by these scores, which
 * become those of the run. As with metrics, what the disk does not take waits in memory. */
static fm_status write_scores(fm_train_run *run, fm_sample_scores *scores,
                              const fm_sample_means *means, fm_error *reterr) {
    fm_train_stored *stored = run->stored;
    char line[2048];
    const uint64_t step = run->state.place.step;
    size_t n =
        fm_sample_means_line(means, scores->n_file, step, fm_train_wall_s(), line, sizeof line);
    fm_sample_scores_fini(&stored->table);
    stored->table = *scores;
    *scores = (fm_sample_scores){.name = NULL};
    stored->table_step = step;
    stored->table_waits = true;
    fm_status status = fm_appender_add(stored->scores, line, n, reterr);
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
static fm_status read_held_out(fm_train_run *run, uint32_t file, const fm_stored_sample **ret_read,
                               fm_file_score *own, fm_error *reterr) {
    fm_sample_folder *files = &run->stored->held_out;
    own->signal = (uint32_t)fm_stop_signal();
    if (own->signal) return fm_fail(reterr, FM_ERR_CANCELLED, "stopped on request");
    return file < files->n ? fm_sample_folder_read(files, file, ret_read, reterr) : FM_OK;
}

/* Scores a file, if there is one. The draws are those of sample `file` of step 0, so every
 * evaluation has the same draws. No rank computes before all have read their files. */
static fm_status score_file(fm_train_run *run, uint32_t file, fm_file_score *all,
                            fm_error *reterr) {
    fm_train_stored *stored = run->stored;
    const fm_stored_sample *sample = NULL;
    fm_file_score own = {.why = ""};
    fm_error why = {.message = ""};
    fm_status status = read_held_out(run, file, &sample, &own, &why);
    status = agree_on_scores(run, status, &why, &own, all, reterr);
    if (status) return status;
    if (sample) {
        fm_af3_features features = sample->features;
        features.slot = file & 0xffff;
        features.n_cycle = (uint32_t)run->config.data.max_cycle;
        status = fm_af3_trainer_add_sample(stored->judge, &features, &own.scored.losses, &why);
        own.scored.rollout = stored->judge->score;
        if (status) fm_train_name_sample(file, stored->held_out.file[file], &why);
    }
    return agree_on_scores(run, status, &why, &own, all, reterr);
}

/* Scores the moving average on all files. The ranks agree on a failure and on a request to stop. */
static fm_status score_files(fm_train_run *run, fm_sample_scores *scores, fm_error *reterr) {
    const uint32_t n = scores->n_file, group = (uint32_t)fm_train_group(run);
    const uint32_t n_group = (uint32_t)run->layout.dp, of_group = (uint32_t)run->layout.dap;
    fm_file_score *all = calloc((size_t)n_group * of_group, sizeof *all);
    if (!all) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for scores");
    take_average(run->stored);
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
    const fm_sample_folder *files = &run->stored->held_out;
    const uint64_t began_ns = fm_clock_ns();
    fm_sample_scores scores;
    fm_status status = fm_sample_scores_init(files->file, files->n, &scores, reterr);
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
    return run->stored->judge && step > 0 &&
           (step == run->set->steps || (every && step % every == 0));
}

static fm_status evaluate_if_due(fm_train_run *run, fm_error *reterr) {
    return is_evaluation_due(run) ? evaluate(run, reterr) : FM_OK;
}

/* Whether the step of the checkpoint has no scores: the first rank, which has read eval.jsonl,
 * tells it to all. */
static fm_status look_for_scores(fm_train_run *run, bool *ret_is_missing, fm_error *reterr) {
    const bool own = run->stored->lacks_scores;
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
static fm_status make_up_for_evaluation(fm_train_run *run, fm_error *reterr) {
    bool is_missing;
    if (!is_evaluation_due(run)) return FM_OK;
    fm_status status = look_for_scores(run, &is_missing, reterr);
    return !status && is_missing ? evaluate(run, reterr) : status;
}

/* -- samples */

/* The file of sample `index` of the run. */
static uint32_t file_of(const fm_train_run *run, uint64_t index) {
    return fm_sample_folder_file(&run->stored->samples, run->set->seed, index);
}

/* Reads the sample of `slot` of `step`. The folder keeps the last two that were read. */
static fm_status read_sample(fm_train_run *run, uint64_t step, uint32_t slot, fm_read_sample *to,
                             fm_error *reterr) {
    const fm_stored_sample *read;
    const uint32_t file = file_of(run, fm_train_place(run, step, slot));
    to->is_read = false;
    fm_status status = fm_sample_folder_read(&run->stored->samples, file, &read, reterr);
    if (status) return status;
    *to = (fm_read_sample){read->features, step, slot, true};
    to->features.slot = slot;
    to->features.n_cycle =
        fm_step_cycles(run->set->seed, step, (uint32_t)run->config.data.max_cycle);
    return FM_OK;
}

static bool is_at(const fm_read_sample *read, uint64_t step, uint32_t slot) {
    return read->is_read && read->step == step && read->slot == slot;
}

/* Makes the sample of `slot` of the step being queued the current one, and reads it if it is not
 * the one that was read ahead. */
static fm_status take_sample(fm_train_run *run, uint32_t slot, fm_error *reterr) {
    fm_train_stored *stored = run->stored;
    if (is_at(&stored->read[stored->current], run->queued_step, slot)) return FM_OK;
    if (is_at(&stored->read[!stored->current], run->queued_step, slot)) {
        stored->current = !stored->current;
        return FM_OK;
    }
    stored->read[!stored->current].is_read = false;
    fm_af3_trainer_announce(stored->trainer, NULL, 0);
    return read_sample(run, run->queued_step, slot, &stored->read[stored->current], reterr);
}

/* Reads this rank's sample after the current one, and announces it. A sample that cannot be read is
 * reported in its turn. */
static void look_ahead(fm_train_run *run) {
    fm_train_stored *stored = run->stored;
    const fm_read_sample *current = &stored->read[stored->current];
    fm_read_sample *next = &stored->read[!stored->current];
    uint64_t step = current->step;
    uint32_t slot = current->slot + (uint32_t)run->layout.dp;
    if (slot >= fm_train_batch_at(run, step)) step++, slot = (uint32_t)fm_train_group(run);
    bool is_any = step < run->set->steps && slot < fm_train_batch_at(run, step) &&
                  !fm_skipped_by_hand(&run->state.skipped, fm_train_place(run, step, slot));
    if (is_any && !read_sample(run, step, slot, next, NULL)) {
        fm_af3_trainer_announce(stored->trainer, &next->features, step);
    }
}

/* Computes the current sample, which is none afterwards. */
static fm_status compute(fm_train_run *run, fm_sample_result *ret_result, fm_error *reterr) {
    fm_train_stored *stored = run->stored;
    fm_read_sample *current = &stored->read[stored->current];
    fm_status status =
        fm_af3_trainer_add_sample(stored->trainer, &current->features, ret_result, reterr);
    current->is_read = false;
    ret_result->done_ns = fm_clock_ns();
    return status;
}

static fm_status update(fm_train_run *run, uint32_t n, fm_error *reterr) {
    return fm_af3_trainer_update_with(run->stored->trainer, n, reterr);
}

/* Counts a sample that was computed, and ends its step if it is the last one. */
static fm_status count(fm_train_run *run, const fm_train_sample *sample, uint32_t n_cycle,
                       double wait_s, const fm_sample_result *result, fm_error *reterr) {
    fm_train_add_result(&run->state.sums, sample->index, n_cycle, sample->name, wait_s, result);
    fm_status status = fm_train_order_deliver(run, sample, false, reterr);
    run->slot = run->state.place.n_sample = sample->slot + 1;
    if (status || run->slot < fm_train_batch(run)) return status;
    status = update(run, run->optimizer->pending, reterr);
    run->is_torn = run->is_torn || status;
    if (status) return status;
    run->queued_step++;
    run->slot = 0;
    return fm_train_finish_step(run, fm_train_rate(run), reterr);
}

static fm_status advance(fm_train_run *run, fm_error *reterr) {
    const uint64_t index = fm_train_place(run, run->queued_step, run->slot);
    const uint32_t file = file_of(run, index);
    const fm_train_sample sample = {run->queued_step, run->slot, index,
                                    run->stored->samples.file[file]};
    if (fm_skipped_by_hand(&run->state.skipped, index)) {
        return fm_train_skip(run, &sample, NULL, reterr);
    }
    fm_sample_result result;
    fm_error why = {.message = ""};
    const uint64_t began_ns = fm_clock_ns();
    fm_status status = take_sample(run, run->slot, &why);
    if (!status) look_ahead(run);
    const uint32_t n_cycle = run->stored->read[run->stored->current].features.n_cycle;
    const double wait_s = fm_train_seconds_since(began_ns);
    if (!status) status = compute(run, &result, &why);
    if (!status) return count(run, &sample, n_cycle, wait_s, &result, reterr);
    if (reterr) *reterr = why;
    if (fm_is_bad_sample(status)) status = fm_train_judge(run, &sample, status, reterr);
    return status ? status : fm_train_skip(run, &sample, &why, reterr);
}

/* -- rounds of several ranks */

/* Nothing is waited for, so there is always a sample. */
static fm_status take_next(fm_train_run *run, uint32_t slot, uint64_t wanted,
                           fm_train_next *ret_next, bool *ret_is_lost, fm_error *reterr) {
    (void)wanted, (void)reterr;
    run->stored->next_index = fm_train_place(run, run->queued_step, slot);
    *ret_next = (fm_train_next){.is_taken = true, .index = run->stored->next_index};
    *ret_is_lost = false;
    return FM_OK;
}

static fm_status check_next(fm_train_run *run, uint32_t slot, fm_train_seen *ret_seen,
                            fm_error *reterr) {
    fm_train_stored *stored = run->stored;
    ret_seen->name = stored->samples.file[file_of(run, stored->next_index)];
    fm_status status = take_sample(run, slot, reterr);
    const fm_af3_features *features = &stored->read[stored->current].features;
    if (!status) status = fm_af3_trainer_check(stored->trainer, features, reterr);
    ret_seen->n_cycle = status ? 0 : features->n_cycle;
    ret_seen->is_bad = fm_is_bad_sample(status);
    return status;
}

static void drop_next(fm_train_run *run) {
    run->stored->read[run->stored->current].is_read = false;
}

static fm_status queue_next(fm_train_run *run, uint64_t number, bool updates, fm_error *reterr) {
    (void)run, (void)number, (void)updates, (void)reterr; /* it is computed when it is collected */
    return FM_OK;
}

static fm_status collect(fm_train_run *run, fm_sample_result *ret_result, fm_error *reterr) {
    look_ahead(run);
    fm_status status = compute(run, ret_result, reterr);
    return fm_is_bad_sample(status) ? FM_ERR_DATA : status; /* as one rank judges it */
}

static void release(fm_train_run *run, uint64_t number) {
    (void)number;
    drop_next(run);
}

/* The exchanges of all tapes, those of evaluations included. */
static uint64_t digest(const fm_train_run *run, bool joint) {
    const fm_train_stored *stored = run->stored;
    const fm_tape *tape[2 * FM_AF3_TAPES];
    int n = 0;
    for (int i = 0; i < FM_AF3_TAPES; i++) {
        tape[n++] = &stored->trainer->recording.tape[i];
        if (stored->judge) tape[n++] = &stored->judge->recording.tape[i];
    }
    return fm_schedule_digest_tapes(tape, n, joint);
}

/* -- messages and metrics */

static int64_t memory_bytes(const fm_train_run *run) {
    const fm_train_stored *stored = run->stored;
    return fm_af3_trainer_memory_bytes(stored->trainer) +
           (stored->judge ? fm_af3_trainer_memory_bytes(stored->judge) : 0);
}

static void describe(const fm_train_run *run, char *out, size_t out_bytes) {
    fm_af3_trainer_describe(run->stored->trainer, out, out_bytes);
}

static void announce(const fm_train_run *run) {
    const fm_train_stored *stored = run->stored;
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
    fm_train_print_skipped(run);
}

static void stop(fm_train_run *run) {
    fm_train_stored *stored = run->stored;
    if (!stored) return;
    fm_appender_close(stored->scores);
    fm_sample_scores_fini(&stored->table);
    fm_sample_folder_close(&stored->samples);
    fm_sample_folder_close(&stored->held_out);
    fm_af3_trainer_destroy(stored->judge);
    fm_af3_trainer_destroy(stored->trainer);
    free(stored);
    run->stored = NULL;
}

static const char *term_name(int i) {
    return fm_complex_terms[i].name;
}

const fm_train_work fm_train_stored_work = {.n_term = FM_COMPLEX_TERMS,
                                            .term_name = term_name,
                                            .lddt_term = FM_COMPLEX_SMOOTH_LDDT,
                                            .check = check,
                                            .find = find,
                                            .create = create,
                                            .open = open_samples,
                                            .start = open_scores,
                                            .make_up = make_up_for_evaluation,
                                            .advance = advance,
                                            .update = update,
                                            .finish = evaluate_if_due,
                                            .sync = sync_scores,
                                            .memory_bytes = memory_bytes,
                                            .describe = describe,
                                            .announce = announce,
                                            .summarize = summarize,
                                            .stop = stop,
                                            .rounds = {.take_next = take_next,
                                                       .check_next = check_next,
                                                       .drop_next = drop_next,
                                                       .queue_next = queue_next,
                                                       .collect = collect,
                                                       .release = release,
                                                       .digest = digest}};
