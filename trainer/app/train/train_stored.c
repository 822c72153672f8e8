/* train_stored.c: see train_stored.h.
 *
 * Sample k of a run is a file of the folder (sample_folder.h). It is read, checked and computed at
 * once, so nothing is in flight between two samples. Before a sample is computed, this rank's next
 * one is read too and announced, so that the host writes its features while the device works. A
 * file that cannot be used is a bad sample: it ends the run or is skipped, when its turn comes. On
 * several ranks the rounds of train_rounds.h do the same: every rank reads the files of its
 * group. */
#include "trainer/app/train/train_stored.h"

#include "proto/base/plural.h"
#include "proto/step_cycles.h"
#include "trainer/app/samples/sample_folder.h"
#include "trainer/app/train/train_af3.h"
#include "trainer/app/train/train_order.h"
#include "trainer/app/train/train_run.h"
#include "trainer/app/train/train_skip.h"

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
    fm_sample_folder samples;
    fm_read_sample read[2]; /* the current sample and the one that is read ahead */
    int current;
    uint64_t next_index; /* of several ranks: of this one's next sample */
};

/* -- settings and opening */

static fm_status check(const fm_train_run *run, fm_error *reterr) {
    const fm_train_options *set = run->set;
    const struct {
        bool is_given;
        const char *what;
    } strange[] = {{set->data || set->cache || set->snapshot, "--data, --cache and --snapshot"},
                   {set->replay || strcmp(set->order, "strict") != 0, "--order and --replay"}};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        if (!strange[i].is_given) continue;
        return fm_fail(reterr, FM_ERR_USAGE,
                       "%s are for samples of a server, and --samples names a folder",
                       strange[i].what);
    }
    return fm_train_af3_check(run, reterr);
}

static fm_status find(fm_train_run *run, bool is_rank, fm_error *reterr) {
    (void)is_rank;
    run->config.data.plan[0] = '\0'; /* a folder has none, so the run's checkpoints name none */
    run->stored = calloc(1, sizeof *run->stored);
    if (run->stored) return FM_OK;
    return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a run");
}

static fm_status open_samples(fm_train_run *run, fm_error *reterr) {
    const fm_sha256 unknown = {{0}};
    fm_train_stored *stored = run->stored;
    fm_status status = fm_sample_folder_open(run->set->samples, &stored->samples, reterr);
    if (!status) status = fm_train_af3_open(run, NULL, reterr);
    if (status) return status;
    bool is_known = memcmp(&run->state.snapshot, &unknown, sizeof unknown) != 0;
    if (is_known && memcmp(&run->state.snapshot, &stored->samples.hash, sizeof unknown) != 0) {
        return fm_fail_in(reterr, FM_ERR_USAGE, run->set->samples,
                          "the checkpoint's run had other samples: their names or sizes differ");
    }
    run->state.snapshot = stored->samples.hash;
    return fm_train_order_begin(run, stored->samples.n, reterr);
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
    fm_af3_trainer_announce(fm_train_af3_trainer(run), NULL, 0);
    return read_sample(run, run->queued_step, slot, &stored->read[stored->current], reterr);
}

/* Reads this rank's sample after the current one, and announces it. A sample that cannot be read is
 * reported in its turn. */
static void look_ahead(void *context) {
    fm_train_run *run = context;
    fm_train_stored *stored = run->stored;
    const fm_read_sample *current = &stored->read[stored->current];
    fm_read_sample *next = &stored->read[!stored->current];
    uint64_t step = current->step;
    uint32_t slot = current->slot;
    bool is_any = !next->is_read && fm_train_af3_find_next(run, &step, &slot) &&
                  !fm_skipped_by_hand(&run->state.skipped, fm_train_place(run, step, slot));
    if (is_any && !read_sample(run, step, slot, next, NULL)) {
        fm_af3_trainer_announce(fm_train_af3_trainer(run), &next->features, step);
    }
}

/* Computes the current sample, which is none afterwards. */
static fm_status compute(fm_train_run *run, fm_sample_result *ret_result, fm_error *reterr) {
    fm_read_sample *current = &run->stored->read[run->stored->current];
    fm_af3_trainer_set_look_ahead(fm_train_af3_trainer(run), look_ahead, run);
    fm_status status = fm_train_af3_compute(run, &current->features, ret_result, reterr);
    current->is_read = false;
    return status;
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
    const uint32_t n_cycle = run->stored->read[run->stored->current].features.n_cycle;
    const double wait_s = fm_train_seconds_since(began_ns);
    if (!status) status = compute(run, &result, &why);
    if (!status) return fm_train_af3_count(run, &sample, n_cycle, wait_s, &result, reterr);
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
    if (!status) status = fm_af3_trainer_check(fm_train_af3_trainer(run), features, reterr);
    ret_seen->n_cycle = status ? 0 : features->n_cycle;
    ret_seen->is_bad = fm_is_bad_sample(status);
    return status;
}

static void drop_next(fm_train_run *run) {
    run->stored->read[run->stored->current].is_read = false;
}

static fm_status collect(fm_train_run *run, fm_sample_result *ret_result, fm_error *reterr) {
    fm_status status = compute(run, ret_result, reterr);
    return fm_is_bad_sample(status) ? FM_ERR_DATA : status; /* as one rank judges it */
}

static void release(fm_train_run *run, uint64_t number) {
    (void)number;
    drop_next(run);
}

/* -- messages */

static void announce(const fm_train_run *run) {
    const fm_sample_folder *samples = &run->stored->samples;
    const uint32_t batch = (uint32_t)run->config.data.global_batch;
    fprintf(stderr, "data      %s: %u sample%s, %u per step\n", samples->path, samples->n,
            fm_plural(samples->n), batch);
    fm_train_af3_announce(run);
}

static void summarize(const fm_train_run *run) {
    const uint64_t n_read = run->stored->samples.n_read;
    printf("samples   %llu file%s read\n", (unsigned long long)n_read, fm_plural(n_read));
    fm_train_af3_summarize(run);
}

static void stop(fm_train_run *run) {
    fm_train_stored *stored = run->stored;
    fm_train_af3_stop(run);
    if (!stored) return;
    fm_sample_folder_close(&stored->samples);
    free(stored);
    run->stored = NULL;
}

const fm_train_work fm_train_stored_work = {FM_TRAIN_AF3_WORK,
                                            .check = check,
                                            .find = find,
                                            .open = open_samples,
                                            .advance = advance,
                                            .announce = announce,
                                            .summarize = summarize,
                                            .stop = stop,
                                            .rounds = {.take_next = take_next,
                                                       .check_next = check_next,
                                                       .drop_next = drop_next,
                                                       .queue_next = fm_train_af3_queue_next,
                                                       .collect = collect,
                                                       .release = release,
                                                       .digest = fm_train_af3_digest}};
