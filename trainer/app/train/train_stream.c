/* train_stream.c: see train_stream.h.
 *
 * Two threads work: the loader's thread receives samples ahead, and this one queues and collects
 * them. To queue a sample is to submit its upload and its passes to the device; to collect it is to
 * read back its loss and norm. A sample is queued before the previous one is collected, so the
 * device never waits for the host:
 *
 *     queue 1 | queue 2 | collect 1 | queue 3 | collect 2 | ...
 *
 * Several ranks do the same in rounds (train_rounds.h).
 *
 * train.c explains steps, fm_train_drain() and run->state. Here everything is also collected before
 * a reconnect, and after each sample where overlap is impossible: on the CPU, and when the sample's
 * structure is scored from the step's memory.
 *
 * A bad sample (unreadable, refused, or not finite) ends the run or is skipped. The trainer drops
 * what was queued behind a sample that is not finite; these samples wait in the backlog and are
 * queued again. A skipped sample adds nothing to the sum, and the step's mean is over the samples
 * that counted. If the last one of a step is skipped, fm_train_skip makes the update; a step of
 * which no sample counted makes none. */
#include "trainer/app/train/train_stream.h"

#include "proto/base/log.h"
#include "trainer/app/samples/sample_features.h"
#include "trainer/app/settings/setup.h"
#include "trainer/app/train/train_feed.h"
#include "trainer/app/train/train_order.h"
#include "trainer/app/train/train_queue.h"
#include "trainer/app/train/train_run.h"
#include "trainer/app/train/train_scores.h"
#include "trainer/app/train/train_skip.h"
#include "trainer/app/train/train_step.h"
#include "trainer/step/schedule.h"
#include "trainer/step/score.h"
#include "trainer/step/upload.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WAIT_MS = 200, /* for a sample, before a rank says that it has none */
    BACKLOG = FM_MOST_QUEUED + 1,
};

/* A sample that was received. */
typedef struct received {
    fm_loaded loaded;
    fm_features features; /* at its place */
} received;

struct fm_train_stream {
    fm_trainer *trainer;
    fm_train_feed source;
    received flight[FM_MOST_QUEUED]; /* those of the queue */
    fm_loaded backlog[BACKLOG];      /* samples to be queued before those of the feed */
    uint32_t n_backlog;
    received next; /* of several ranks: this one's next sample */
    bool no_structure_logged;
};

/* -- opening */

static fm_status find_data(fm_train_run *run, bool is_rank, fm_error *reterr) {
    run->stream = calloc(1, sizeof *run->stream);
    if (!run->stream) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a run");
    return fm_train_feed_find(run, is_rank, &run->stream->source, reterr);
}

static fm_status create_trainer(fm_train_run *run, const fm_kernels *kernels, fm_error *reterr) {
    fm_status status = FM_OK;
    fm_trainer_options options = fm_trainer_options_of(&run->config, kernels, run->set->seed);
    if (run->ranks) {
        status = fm_ranks_join(run->ranks, run->set->device, kernels, &options.groups, reterr);
        fm_train_end_phase(run, FM_START_LINKS);
    }
    if (!status) status = fm_trainer_create(&options, &run->stream->trainer, reterr);
    if (status) return status;
    run->optimizer = &run->stream->trainer->recording.optimizer;
    for (unsigned i = 0; i < FM_LOSS_TERMS; i++)
        run->terms |= (run->stream->trainer->cycles.term[i] != FM_TENSOR_NONE) << i;
    return FM_OK;
}

static fm_status open_stream(fm_train_run *run, fm_error *reterr) {
    return fm_train_feed_open(run, &run->stream->source, reterr);
}

static fm_status check(const fm_train_run *run, fm_error *reterr) {
    if (run->set->samples || run->set->eval_samples) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--samples and --eval-samples are for models of af3, such as --preset "
                       "af3-tiny; a model of af2 needs --data or --cache");
    }
    fm_status status = fm_trainer_check_layout(&run->config.model, &run->layout, reterr);
    return status ? status : fm_train_scores_check(run, reterr);
}

static fm_status start(fm_train_run *run, fm_error *reterr) {
    return fm_train_scores_start(run, run->stream->source.data, reterr);
}

/* -- samples */

/* The chain of a sample, "" where the server could not make it. */
static const char *name_of(const fm_sample *sample) {
    return sample ? sample->name : "";
}

/* The sample that is next to be queued. */
static fm_train_sample next_of(const fm_train_run *run, const fm_loaded *loaded) {
    return (fm_train_sample){run->queued_step, run->slot, loaded->index, name_of(loaded->sample)};
}

/* Says once that a sample has no structure. No loss of structure applies to such samples, so the
 * loss of a run on chains that were prepared for a prediction looks very good. */
static void look_for_structure(fm_train_run *run, const fm_sample *sample,
                               const fm_features *features) {
    uint32_t i = 0;
    if (run->stream->no_structure_logged) return;
    while (i < features->n_res && !features->all_atom_mask[i])
        i++;
    if (i < features->n_res) return;
    run->stream->no_structure_logged = true;
    fm_log(FM_LOG_WARN, "no_structure",
           "sample=%s why=\"no atom of it is known, so nothing is learnt of its structure; chains "
           "of foldmill featurize have none\"",
           sample->name);
}

/* Gives the features the cycles and the slot of their place: `slot` of the step being queued.
 * FM_ERR_PROTOCOL when the sample has fewer cycles. */
static fm_status place_features(const fm_train_run *run, uint32_t slot, fm_features *features,
                                fm_error *reterr) {
    const uint32_t n_cycle =
        fm_train_feed_cycles(run, &run->stream->source, run->queued_step, slot);
    return fm_features_use(features, slot, n_cycle, reterr);
}

/* The features of a sample at its place in the step. */
static fm_status place_sample(fm_train_run *run, const fm_sample *sample, uint32_t slot,
                              fm_features *ret_features, fm_error *reterr) {
    fm_status status = fm_features_of(sample, ret_features, reterr);
    if (!status) status = place_features(run, slot, ret_features, reterr);
    if (!status) look_for_structure(run, sample, ret_features);
    return status;
}

/* The oldest sample in flight is not finite. The trainer has dropped it and what was queued behind
 * it. */
static fm_status drop_bad(fm_train_run *run, const fm_train_flight *bad, const fm_loaded *loaded,
                          fm_status status, fm_error *reterr) {
    fm_train_stream *stream = run->stream;
    fm_train_queue *queue = &run->queue;
    for (; queue->n_collected < queue->n_queued; queue->n_collected++) {
        assert(stream->n_backlog < BACKLOG);
        stream->backlog[stream->n_backlog++] =
            stream->flight[queue->n_collected % FM_MOST_QUEUED].loaded;
    }
    run->queued_step = bad->step;
    run->slot = bad->slot;
    const fm_train_sample sample = next_of(run, loaded);
    const fm_error why = *reterr;
    status = fm_train_judge(run, &sample, status, reterr);
    return status ? status : fm_train_skip(run, &sample, &why, reterr);
}

static bool is_scored(const fm_train_run *run) {
    int64_t every = run->config.metrics.structure_every;
    return run->stream->trainer->cycles.atoms != FM_TENSOR_NONE && every &&
           (run->queued_step + 1) % (uint64_t)every == 0;
}

/* Adds a sample's scores to the sums. A crop without known CA atoms has none and does not count. */
static fm_status add_scores(fm_train_run *run, uint64_t number, fm_batch_sums *sums,
                            fm_error *reterr) {
    const fm_features *features = &run->stream->flight[number % FM_MOST_QUEUED].features;
    fm_structure_scores s;
    fm_status status = fm_trainer_score(run->stream->trainer, features, &s, reterr);
    if (status || !isfinite(s.lddt_ca) || !isfinite(s.lddt)) return status;
    const double values[FM_METRICS_SCORES] = {s.lddt_ca, s.lddt,   s.rmsd,  s.drmsd,
                                              s.tm,      s.gdt_ts, s.gdt_ha};
    for (int i = 0; i < FM_METRICS_SCORES; i++)
        sums->score[i] += values[i];
    sums->n_scored++;
    return FM_OK;
}

static fm_status collect_sample(fm_train_run *run, fm_error *reterr) {
    const uint64_t number = run->queue.n_collected++;
    const fm_train_flight f = run->queue.flight[number % FM_MOST_QUEUED];
    const received r = run->stream->flight[number % FM_MOST_QUEUED];
    fm_sample_result result;
    fm_status status = fm_trainer_collect(run->stream->trainer, &result, reterr);
    if (status) {
        /* An update was not made: its step may be reported already, so nothing may be saved. */
        run->is_torn = run->is_torn || status == FM_ERR_LIMIT;
        if (status != FM_ERR_LIMIT) status = drop_bad(run, &f, &r.loaded, status, reterr);
        fm_loader_release(run->stream->source.feed.loader, &r.loaded);
        return status;
    }
    const fm_train_sample sample = {f.step, f.slot, r.loaded.index, r.loaded.sample->name};
    fm_train_add_result(&run->state.sums, sample.index, r.features.n_cycle, sample.name, f.wait_s,
                        &result);
    run->state.place.n_sample = f.slot + 1;
    status = fm_train_order_deliver(run, &sample, false, reterr);
    if (!status && f.is_scored) {
        status = add_scores(run, number, &run->state.sums, reterr);
        run->is_torn = run->is_torn || status;
    }
    if (status) fm_train_name_sample(sample.index, sample.name, reterr);
    fm_loader_release(run->stream->source.feed.loader, &r.loaded);
    return !status && f.is_last ? fm_train_finish_step(run, f.rate, reterr) : status;
}

/* Takes the next sample of the backlog or the feed. Reconnects if the server was lost: samples that
 * are not collected by then come again. */
static fm_status take_sample(fm_train_run *run, fm_loaded *ret_loaded, fm_error *reterr) {
    if (run->stream->n_backlog) {
        *ret_loaded = run->stream->backlog[0];
        memmove(run->stream->backlog, run->stream->backlog + 1,
                --run->stream->n_backlog * sizeof run->stream->backlog[0]);
        return FM_OK;
    }
    const uint64_t wanted = fm_train_order_wanted(run, run->queued_step, run->slot);
    fm_status status = fm_feed_next(&run->stream->source.feed, wanted, ret_loaded, reterr);
    while (fm_feed_may_reconnect(&run->stream->source.feed, status)) {
        char quoted[FM_ERROR_MESSAGE_BYTES];
        fm_log(FM_LOG_WARN, "server_lost", "why=%s",
               fm_log_quote(quoted, sizeof quoted, reterr->message));
        status = fm_train_drain(run, 0, reterr);
        if (status) return status;
        run->stream->n_backlog = 0; /* they belong to the old connection */
        status = fm_feed_reconnect(&run->stream->source.feed, &run->state.token, reterr);
        if (status) return status;
        status = fm_feed_next(&run->stream->source.feed,
                              fm_train_order_wanted(run, run->queued_step, run->slot), ret_loaded,
                              reterr);
    }
    return status;
}

/* Leaves the sample out, if that is allowed. `why`: what is bad about it; NULL: the command line
 * names it. */
static fm_status leave_out(fm_train_run *run, const fm_loaded *loaded, const fm_error *why,
                           fm_error *reterr) {
    fm_status status = fm_train_drain(run, 0, reterr);
    if (!status && run->stream->n_backlog) { /* the samples before it come first, after all */
        assert(run->stream->n_backlog < BACKLOG);
        run->stream->backlog[run->stream->n_backlog++] = *loaded;
        return FM_OK;
    }
    const fm_train_sample sample = next_of(run, loaded);
    if (!status && why) {
        *reterr = *why;
        status = fm_train_judge(run, &sample, why->status, reterr);
    }
    if (!status) status = fm_train_skip(run, &sample, why, reterr);
    fm_loader_release(run->stream->source.feed.loader, loaded);
    return status;
}

/* Queues a sample behind those in flight. */
static fm_status queue_sample(fm_train_run *run, const fm_loaded *loaded, double wait_s,
                              fm_error *reterr) {
    fm_train_flight *f = &run->queue.flight[run->queue.n_queued % FM_MOST_QUEUED];
    received *r = &run->stream->flight[run->queue.n_queued % FM_MOST_QUEUED];
    r->loaded = *loaded;
    *f = (fm_train_flight){.step = run->queued_step,
                           .slot = run->slot,
                           .is_last = run->slot + 1 == fm_train_batch(run),
                           .is_scored = is_scored(run),
                           .wait_s = wait_s};
    if (fm_token_has(&run->state.token, loaded->index)) {
        return fm_fail(reterr, FM_ERR_EXISTS, "the server sent sample %llu a second time",
                       (unsigned long long)loaded->index);
    }
    fm_status status = place_sample(run, loaded->sample, run->slot, &r->features, reterr);
    if (!status) status = fm_trainer_queue(run->stream->trainer, &r->features, f->is_last, reterr);
    if (status) return status;
    f->rate = fm_trainer_rate(run->stream->trainer);
    run->queue.n_queued++;
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
    double wait_s = fm_train_seconds_since(asked_ns);
    fm_error error = {.message = ""};
    if (fm_skipped_by_hand(&run->state.skipped, loaded.index)) {
        return leave_out(run, &loaded, NULL, reterr);
    }
    if (!loaded.sample) {
        error = *loaded.why; /* the slab is given back before the error is used */
        return leave_out(run, &loaded, &error, reterr);
    }
    if (fm_train_order_leaves_out(run, run->queued_step, run->slot)) {
        fm_fail(&error, FM_ERR_DATA, "the run that is replayed left it out");
        return leave_out(run, &loaded, &error, reterr);
    }
    /* A scored structure is still in the step's memory, so nothing may be queued behind it. On
     * the CPU a sample is computed while it is queued; collecting at once ends its step's time
     * there. */
    bool at_once = is_scored(run) || strcmp(run->set->device, "cpu") == 0;
    status = queue_sample(run, &loaded, wait_s, &error);
    if (status == FM_ERR_DATA || status == FM_ERR_LIMIT) {
        return leave_out(run, &loaded, &error, reterr);
    }
    if (status) {
        *reterr = error;
        return status;
    }
    return fm_train_drain(run, at_once ? 0 : FM_MOST_QUEUED - 1, reterr);
}

/* -- rounds of several ranks */

static fm_status take_next(fm_train_run *run, uint32_t slot, uint64_t wanted,
                           fm_train_next *ret_next, bool *ret_is_lost, fm_error *reterr) {
    (void)slot;
    fm_feed *feed = &run->stream->source.feed;
    const fm_loaded *loaded = &run->stream->next.loaded;
    bool is_ready;
    fm_status status =
        fm_feed_next_within(feed, wanted, WAIT_MS, &is_ready, &run->stream->next.loaded, reterr);
    *ret_next = (fm_train_next){.is_taken = !status && is_ready};
    if (ret_next->is_taken) {
        ret_next->index = loaded->index;
        ret_next->bytes = loaded->bytes;
    }
    *ret_is_lost = status && fm_feed_may_reconnect(feed, status);
    return status;
}

static fm_status check_next(fm_train_run *run, uint32_t slot, fm_train_seen *ret_seen,
                            fm_error *reterr) {
    const fm_loaded *loaded = &run->stream->next.loaded;
    fm_features *features = &run->stream->next.features;
    ret_seen->is_bad = !loaded->sample;
    if (!loaded->sample) {
        *reterr = *loaded->why;
        return loaded->why->status;
    }
    ret_seen->name = loaded->sample->name;
    fm_status status = place_sample(run, loaded->sample, slot, features, reterr);
    ret_seen->n_cycle = features->n_cycle;
    if (!status) status = fm_upload_check(&run->stream->trainer->cycles, features, reterr);
    ret_seen->is_bad = status == FM_ERR_DATA || status == FM_ERR_LIMIT;
    return status;
}

static void drop_next(fm_train_run *run) {
    fm_loader_release(run->stream->source.feed.loader, &run->stream->next.loaded);
}

static fm_status reconnect(fm_train_run *run, fm_error *reterr) {
    return fm_feed_reconnect(&run->stream->source.feed, &run->state.token, reterr);
}

static fm_status requeue(fm_train_run *run, uint64_t number, bool updates, fm_error *reterr) {
    const received *r = &run->stream->flight[number % FM_MOST_QUEUED];
    return fm_trainer_queue(run->stream->trainer, &r->features, updates, reterr);
}

static fm_status queue_next(fm_train_run *run, uint64_t number, bool updates, fm_error *reterr) {
    run->stream->flight[number % FM_MOST_QUEUED] = run->stream->next;
    return requeue(run, number, updates, reterr);
}

static fm_status collect_own(fm_train_run *run, fm_sample_result *ret_result, fm_error *reterr) {
    return fm_trainer_collect(run->stream->trainer, ret_result, reterr);
}

static void release(fm_train_run *run, uint64_t number) {
    fm_loader_release(run->stream->source.feed.loader,
                      &run->stream->flight[number % FM_MOST_QUEUED].loaded);
}

static uint64_t digest(const fm_train_run *run, bool joint) {
    return fm_schedule_digest(run->stream->trainer, joint);
}

static fm_status update(fm_train_run *run, uint32_t n, fm_error *reterr) {
    (void)reterr; /* a sum that is not finite is found when the next sample is collected */
    fm_trainer_update_with(run->stream->trainer, n);
    return FM_OK;
}

/* -- messages and metrics */

static int64_t memory_bytes(const fm_train_run *run) {
    return fm_trainer_memory_bytes(run->stream->trainer);
}

static void describe(const fm_train_run *run, char *out, size_t out_bytes) {
    fm_trainer_describe(run->stream->trainer, out, out_bytes);
}

static void announce(const fm_train_run *run) {
    fm_train_feed_announce(run, &run->stream->source);
}

static void summarize(const fm_train_run *run) {
    fm_train_feed_print_samples(&run->stream->source);
    fm_train_print_skipped(run);
    fm_train_feed_print_waits(&run->stream->source);
}

static void stop(fm_train_run *run) {
    fm_train_stream *stream = run->stream;
    if (!stream) return;
    fm_train_feed_close(&stream->source);
    fm_trainer_destroy(stream->trainer);
    free(stream);
    run->stream = NULL;
}

static const char *term_name(int i) {
    return fm_loss_terms[i].name;
}

const fm_train_work fm_train_stream_work = {.n_term = FM_LOSS_TERMS,
                                            .term_name = term_name,
                                            .lddt_term = -1,
                                            .check = check,
                                            .find = find_data,
                                            .create = create_trainer,
                                            .open = open_stream,
                                            .start = start,
                                            .advance = advance,
                                            .collect = collect_sample,
                                            .update = update,
                                            .memory_bytes = memory_bytes,
                                            .describe = describe,
                                            .announce = announce,
                                            .summarize = summarize,
                                            .stop = stop,
                                            .rounds = {.is_queued = true,
                                                       .take_next = take_next,
                                                       .check_next = check_next,
                                                       .drop_next = drop_next,
                                                       .reconnect = reconnect,
                                                       .queue_next = queue_next,
                                                       .requeue = requeue,
                                                       .collect = collect_own,
                                                       .release = release,
                                                       .is_scored = is_scored,
                                                       .add_scores = add_scores,
                                                       .digest = digest}};
