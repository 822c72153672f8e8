/* train_complexes.c: see train_complexes.h.
 *
 * The loader's thread receives samples ahead. This one expands them to the whole form, checks them
 * as stored ones and computes each at once, so nothing is in flight between two samples. While the
 * device computes a sample, this rank's next one is taken, expanded and announced, if it has come
 * already, so that the device waits for none of that. Without it, results are the same.
 *
 * A sample that cannot be used ends the run or is skipped, when its turn comes. On several ranks
 * the rounds of train_rounds.h do the same. Out of order they agree on each sample, so they take
 * none ahead. */
#include "trainer/app/train/train_complexes.h"

#include "proto/base/log.h"
#include "trainer/app/samples/complex_features.h"
#include "trainer/app/samples/sample_folder.h"
#include "trainer/app/train/train_af3.h"
#include "trainer/app/train/train_feed.h"
#include "trainer/app/train/train_order.h"
#include "trainer/app/train/train_skip.h"

#include <assert.h>
#include <stdlib.h>

enum { WAIT_MS = 200 /* for a sample, before a rank says that it has none */ };

static const size_t ARENA_BYTES = (size_t)4 << 30; /* address space: an expanded sample */

/* A sample that was received. */
typedef struct received {
    fm_loaded loaded;
    fm_arena arena;           /* of the expanded arrays; others borrow from `loaded` */
    fm_af3_features features; /* where it is placed: */
    uint64_t step;
    uint32_t slot;
    bool is_taken, is_placed;
} received;

struct fm_train_complexes {
    fm_train_feed source;
    received sample[2]; /* the current sample and the one that is taken ahead */
    int current;
};

/* -- settings and opening */

static fm_status find(fm_train_run *run, bool is_rank, fm_error *reterr) {
    run->complexes = calloc(1, sizeof *run->complexes);
    if (!run->complexes) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a run");
    return fm_train_feed_find(run, is_rank, &run->complexes->source, reterr);
}

static fm_status open_samples(fm_train_run *run, fm_error *reterr) {
    fm_train_complexes *complexes = run->complexes;
    fm_status status = FM_OK;
    for (int i = 0; i < 2 && !status; i++)
        status = fm_arena_init(&complexes->sample[i].arena, ARENA_BYTES, reterr);
    if (!status) status = fm_train_af3_open(run, complexes->source.data, reterr);
    return status ? status : fm_train_feed_open(run, &complexes->source, reterr);
}

/* -- samples */

static received *current_of(const fm_train_run *run) {
    return &run->complexes->sample[run->complexes->current];
}

static received *next_of(const fm_train_run *run) {
    return &run->complexes->sample[!run->complexes->current];
}

static bool is_at(const received *r, uint64_t step, uint32_t slot) {
    return r->is_placed && r->step == step && r->slot == slot;
}

/* Gives the sample back to the feed. */
static void drop(const fm_train_run *run, received *r) {
    if (r->is_taken) fm_loader_release(run->complexes->source.feed.loader, &r->loaded);
    r->is_taken = r->is_placed = false;
}

/* Forgets the sample that was taken ahead, and one whose turn has not come. */
static void forget(const fm_train_run *run) {
    fm_af3_trainer_announce(fm_train_af3_trainer(run), NULL, 0);
    drop(run, current_of(run));
    drop(run, next_of(run));
}

/* Makes the features that the sample has at `slot` of `step`. The error is that of the sample. */
static fm_status place(const fm_train_run *run, received *r, uint64_t step, uint32_t slot,
                       fm_error *reterr) {
    const uint32_t n_cycle = fm_train_feed_cycles(run, &run->complexes->source, step, slot);
    r->is_placed = false;
    if (!r->loaded.sample) {
        if (reterr) *reterr = *r->loaded.why;
        return r->loaded.why->status;
    }
    fm_arena_reset(&r->arena);
    fm_status status =
        fm_complex_features_of(r->loaded.sample, n_cycle, &r->arena, &r->features, reterr);
    if (status) return status;
    r->features.slot = slot;
    r->step = step;
    r->slot = slot;
    r->is_placed = true;
    return FM_OK;
}

/* Makes the sample that was taken ahead the current one. */
static bool take_next_as_current(const fm_train_run *run) {
    if (!next_of(run)->is_taken) return false;
    drop(run, current_of(run));
    run->complexes->current = !run->complexes->current;
    return true;
}

/* Takes this rank's sample after the current one, if it has come, and announces it. A sample that
 * cannot be used is reported in its turn, as a lost server is. */
static void look_ahead(void *context) {
    fm_train_run *run = context;
    const received *current = current_of(run);
    received *next = next_of(run);
    uint64_t step = current->step;
    uint32_t slot = current->slot;
    const bool is_known = !run->ranks || (fm_train_order_is_strict(run) && !run->set->replay);
    if (next->is_taken || !is_known || !fm_train_af3_find_next(run, &step, &slot)) return;
    fm_status status =
        fm_feed_next_within(&run->complexes->source.feed, fm_train_order_wanted(run, step, slot), 0,
                            &next->is_taken, &next->loaded, NULL);
    next->is_taken = next->is_taken && !status;
    if (next->is_taken && !place(run, next, step, slot, NULL)) {
        fm_af3_trainer_announce(fm_train_af3_trainer(run), &next->features, step);
    }
}

/* Makes sure that the current sample has the features of its place. One that was announced for
 * another place is written anew. */
static fm_status place_current(fm_train_run *run, uint32_t slot, fm_error *reterr) {
    received *r = current_of(run);
    if (is_at(r, run->queued_step, slot)) return FM_OK;
    fm_af3_trainer_announce(fm_train_af3_trainer(run), NULL, 0);
    return place(run, r, run->queued_step, slot, reterr);
}

static fm_status compute_current(fm_train_run *run, fm_sample_result *ret_result,
                                 fm_error *reterr) {
    fm_af3_trainer_set_look_ahead(fm_train_af3_trainer(run), look_ahead, run);
    return fm_train_af3_compute(run, &current_of(run)->features, ret_result, reterr);
}

/* -- one rank */

/* Takes the next sample; connects again if the server was lost. */
static fm_status take_current(fm_train_run *run, fm_error *reterr) {
    fm_feed *feed = &run->complexes->source.feed;
    received *r = current_of(run);
    const uint64_t wanted = fm_train_order_wanted(run, run->queued_step, run->slot);
    if (take_next_as_current(run)) return FM_OK;
    fm_status status = fm_feed_next(feed, wanted, &r->loaded, reterr);
    while (fm_feed_may_reconnect(feed, status)) {
        char quoted[FM_ERROR_MESSAGE_BYTES];
        fm_log(FM_LOG_WARN, "server_lost", "why=%s",
               fm_log_quote(quoted, sizeof quoted, reterr->message));
        status = fm_feed_reconnect(feed, &run->state.token, reterr);
        if (!status) status = fm_feed_next(feed, wanted, &r->loaded, reterr);
    }
    r->is_taken = !status;
    return status;
}

/* Whether the current sample cannot or may not be used; *reterr says why, with status 0 where the
 * command line names it. */
static bool is_left_out(fm_train_run *run, fm_error *reterr) {
    const received *r = current_of(run);
    *reterr = (fm_error){.message = ""};
    if (fm_skipped_by_hand(&run->state.skipped, r->loaded.index)) return true;
    if (r->loaded.sample && fm_train_order_leaves_out(run, run->queued_step, run->slot)) {
        fm_fail(reterr, FM_ERR_DATA, "the run that is replayed left it out");
        return true;
    }
    return place_current(run, run->slot, reterr);
}

/* Leaves the current sample out, if that is allowed. */
static fm_status leave_out(fm_train_run *run, const fm_train_sample *sample, const fm_error *why,
                           fm_error *reterr) {
    const bool by_hand = !why->status, is_unreadable = !current_of(run)->loaded.sample;
    fm_status status = why->status;
    if (reterr) *reterr = *why;
    if (is_unreadable || fm_is_bad_sample(status)) {
        status = fm_train_judge(run, sample, status, reterr);
    }
    if (!status) status = fm_train_skip(run, sample, by_hand ? NULL : why, reterr);
    return status;
}

/* Uses the current sample. */
static fm_status use_current(fm_train_run *run, double wait_s, fm_error *reterr) {
    received *r = current_of(run);
    const fm_train_sample sample = {run->queued_step, run->slot, r->loaded.index,
                                    r->loaded.sample ? r->loaded.sample->name : ""};
    fm_error why;
    fm_sample_result result;
    if (fm_token_has(&run->state.token, sample.index)) {
        return fm_fail(reterr, FM_ERR_EXISTS, "the server sent sample %llu a second time",
                       (unsigned long long)sample.index);
    }
    if (is_left_out(run, &why)) return leave_out(run, &sample, &why, reterr);
    const uint32_t n_cycle = r->features.n_cycle;
    fm_status status = compute_current(run, &result, &why);
    if (status) return leave_out(run, &sample, &why, reterr);
    return fm_train_af3_count(run, &sample, n_cycle, wait_s, &result, reterr);
}

static fm_status advance(fm_train_run *run, fm_error *reterr) {
    const uint64_t began_ns = fm_clock_ns();
    fm_status status = take_current(run, reterr);
    if (status) return status;
    const double wait_s = fm_train_seconds_since(began_ns);
    received *r = current_of(run);
    status = use_current(run, wait_s, reterr);
    drop(run, r);
    return status;
}

/* -- rounds of several ranks */

static fm_status take_next(fm_train_run *run, uint32_t slot, uint64_t wanted,
                           fm_train_next *ret_next, bool *ret_is_lost, fm_error *reterr) {
    (void)slot;
    fm_feed *feed = &run->complexes->source.feed;
    fm_status status = FM_OK;
    bool is_taken = take_next_as_current(run);
    received *r = current_of(run);
    if (!is_taken) {
        status = fm_feed_next_within(feed, wanted, WAIT_MS, &is_taken, &r->loaded, reterr);
        r->is_taken = is_taken = is_taken && !status;
    }
    *ret_next = (fm_train_next){.is_taken = is_taken};
    if (is_taken) {
        ret_next->index = r->loaded.index;
        ret_next->bytes = r->loaded.bytes;
    }
    *ret_is_lost = status && fm_feed_may_reconnect(feed, status);
    return status;
}

static fm_status check_next(fm_train_run *run, uint32_t slot, fm_train_seen *ret_seen,
                            fm_error *reterr) {
    received *r = current_of(run);
    ret_seen->name = r->loaded.sample ? r->loaded.sample->name : "";
    fm_status status = place_current(run, slot, reterr);
    if (!status) {
        ret_seen->n_cycle = r->features.n_cycle;
        status = fm_af3_trainer_check(fm_train_af3_trainer(run), &r->features, reterr);
    }
    ret_seen->is_bad = !r->loaded.sample || fm_is_bad_sample(status);
    return status;
}

static void drop_next(fm_train_run *run) {
    drop(run, current_of(run));
}

static fm_status reconnect(fm_train_run *run, fm_error *reterr) {
    forget(run);
    return fm_feed_reconnect(&run->complexes->source.feed, &run->state.token, reterr);
}

static fm_status collect(fm_train_run *run, fm_sample_result *ret_result, fm_error *reterr) {
    fm_status status = compute_current(run, ret_result, reterr);
    return fm_is_bad_sample(status) ? FM_ERR_DATA : status; /* as one rank judges it */
}

static void release(fm_train_run *run, uint64_t number) {
    (void)number;
    drop(run, current_of(run));
}

/* -- messages */

static void announce(const fm_train_run *run) {
    fm_train_feed_announce(run, &run->complexes->source);
    fm_train_af3_announce(run);
}

static void summarize(const fm_train_run *run) {
    fm_train_feed_print_samples(&run->complexes->source);
    fm_train_af3_summarize(run);
    fm_train_feed_print_waits(&run->complexes->source);
}

static void stop(fm_train_run *run) {
    fm_train_complexes *complexes = run->complexes;
    fm_train_af3_stop(run);
    if (!complexes) return;
    fm_train_feed_close(&complexes->source);
    for (int i = 0; i < 2; i++)
        fm_arena_fini(&complexes->sample[i].arena);
    free(complexes);
    run->complexes = NULL;
}

const fm_train_work fm_train_complexes_work = {FM_TRAIN_AF3_WORK,
                                               .check = fm_train_af3_check,
                                               .find = find,
                                               .open = open_samples,
                                               .advance = advance,
                                               .announce = announce,
                                               .summarize = summarize,
                                               .stop = stop,
                                               .rounds = {.take_next = take_next,
                                                          .check_next = check_next,
                                                          .drop_next = drop_next,
                                                          .reconnect = reconnect,
                                                          .queue_next = fm_train_af3_queue_next,
                                                          .collect = collect,
                                                          .release = release,
                                                          .digest = fm_train_af3_digest}};
