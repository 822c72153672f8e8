/* train_order.c: which sample a run uses at which step and slot; see train_run.h.
 *
 * Places. Place p is that of the p-th sample that the run uses, counted from its very first one.
 * In strict order it takes sample p. Out of order it takes the sample that comes next; that sample
 * then has the recycling cycles and the slot of the place, and not its own, so that all samples of
 * a step have the same number of cycles and no two of them share a dropout mask.
 *
 * The ledger notes what each place took. A run that replays a ledger asks its feed for these
 * samples, by number. The feed then receives samples in strict order and holds those that are not
 * yet due: at most W of bounded:W, as no sample is used more than W places before its own. */
#include "trainer/app/train_run.h"

#include "proto/base/log.h"
#include "proto/step_cycles.h"
#include "trainer/app/sample_features.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static uint64_t global_batch(const fm_train_run *run) {
    return (uint64_t)run->config.data.global_batch;
}

static bool is_replay(const fm_train_run *run) {
    return run->set->replay != NULL;
}

uint64_t fm_run_place(const fm_train_run *run, uint64_t step, uint32_t slot) {
    return run->first_place + (step - run->first.step) * global_batch(run) + slot -
           run->first.n_sample;
}

/* What the ledger that is replayed has at a place. */
static const fm_ledger_use *use_at(const fm_train_run *run, uint64_t step, uint32_t slot) {
    uint64_t place = fm_run_place(run, step, slot);
    assert(place < run->replay.n); /* fm_run_check_order */
    return &run->replay.use[place];
}

/* -- preparing */

fm_status fm_run_find_order(fm_train_run *run, fm_error *reterr) {
    const fm_train_options *set = run->set;
    uint32_t order;
    if (!is_replay(run)) {
        snprintf(run->order, sizeof run->order, "%s", set->order);
        return fm_wire_order_parse(set->order, &order, &run->window, reterr);
    }
    fm_status status = fm_ledger_read(set->replay, &run->replay, reterr);
    if (status) return status;
    run->window = run->replay.facts.window;
    if (run->window) {
        snprintf(run->order, sizeof run->order, "bounded:%u", run->window);
    } else {
        snprintf(run->order, sizeof run->order, "strict");
    }
    return FM_OK;
}

void fm_run_ask_order(const fm_train_run *run, fm_feed *feed) {
    fm_wire_open *stream = &feed->options.stream;
    bool follows = run->ranks && run->layout.dap * run->layout.bp > 1;
    bool is_strict = is_replay(run) || run->window == 0;
    stream->order = is_strict ? FM_WIRE_STRICT : FM_WIRE_BOUNDED;
    stream->window = is_strict ? 0 : run->window;
    stream->reach = run->window;
    /* The last steps of a ledger may use samples of later ones. */
    if (is_replay(run)) stream->n_step += run->window;
    /* Of the ranks that share a sample, the first one takes what comes, at most W places before its
     * own, and the server may send W others to the rest before it. */
    feed->most_held = is_replay(run) ? run->window : follows ? 2 * run->window : 0;
    feed->options.n_slab += feed->most_held;
}

/* Whether the samples used so far leave each group of ranks as many as its steps need. */
static fm_status check_groups(const fm_train_run *run, fm_error *reterr) {
    const fm_token *token = &run->state.token;
    fm_wire_open group = {.n_group = (uint32_t)run->layout.dp};
    const uint32_t batch = (uint32_t)global_batch(run);
    for (; token->bitmap_bytes && group.group < group.n_group; group.group++) {
        uint64_t n = fm_wire_open_place(&group, batch, token->watermark);
        for (uint64_t k = 0; k < (uint64_t)token->bitmap_bytes * 8; k++) {
            uint64_t index = token->watermark + k;
            n += index % batch % group.n_group == group.group && fm_token_has(token, index);
        }
        if (n == fm_wire_open_place(&group, batch, run->first_place)) continue;
        return fm_fail(reterr, FM_ERR_USAGE,
                       "the checkpoint's samples were used out of order by another number of "
                       "groups; go on with as many ranks as before");
    }
    return FM_OK;
}

/* Whether the ledger is one of this run, as far as it has come. */
static fm_status check_replay(const fm_train_run *run, fm_error *reterr) {
    const fm_ledger_record *replay = &run->replay;
    const fm_ledger_facts *facts = &replay->facts;
    uint64_t n_due = fm_run_place(run, run->set->steps, 0), n_same = 0;
    if (facts->seed != run->set->seed) {
        return fm_fail(reterr, FM_ERR_USAGE, "the ledger's run has seed %llu, but --seed is %llu",
                       (unsigned long long)facts->seed, (unsigned long long)run->set->seed);
    }
    if (memcmp(&facts->snapshot, &run->state.snapshot, sizeof facts->snapshot) != 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "the ledger's run has another snapshot");
    }
    if (facts->n_group != (uint32_t)run->layout.dp) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "the ledger's run has %u groups of ranks, and this one has %d",
                       facts->n_group, (int)run->layout.dp);
    }
    if (replay->n < n_due) {
        const uint64_t last = replay->n ? replay->use[replay->n - 1].step : 0;
        return fm_fail(reterr, FM_ERR_USAGE, "the ledger ends in step %llu, and --steps is %llu",
                       (unsigned long long)last, (unsigned long long)run->set->steps);
    }
    while (n_same < run->first_place && fm_token_has(&run->state.token, replay->use[n_same].index))
        n_same++;
    if (n_same == run->first_place) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "the checkpoint's run did not use sample %llu, which its ledger has",
                   (unsigned long long)replay->use[n_same].index);
}

fm_status fm_run_check_order(fm_train_run *run, fm_error *reterr) {
    const uint64_t most = (uint64_t)FM_LIMIT_TOKEN_BYTES * 8;
    uint64_t ahead = (uint64_t)run->window * (uint64_t)run->layout.dp + global_batch(run);
    if (run->window && ahead > most) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--order %s: samples of %d groups come up to %llu places early, at most "
                       "%llu are possible",
                       run->order, (int)run->layout.dp, (unsigned long long)ahead,
                       (unsigned long long)most);
    }
    run->first_place = fm_token_count(&run->state.token);
    fm_status status = check_groups(run, reterr);
    if (!status && is_replay(run)) {
        status = check_replay(run, reterr);
        if (status && reterr) (void)fm_error_in(reterr, run->set->replay);
    }
    return status;
}

fm_status fm_run_open_ledger(fm_train_run *run, fm_error *reterr) {
    char path[PATH_MAX];
    const fm_ledger_facts facts = {.seed = run->set->seed,
                                   .snapshot = run->state.snapshot,
                                   .n_group = (uint32_t)run->layout.dp,
                                   .window = run->window};
    if (snprintf(path, sizeof path, "%s/ledger", run->set->out) >= (int)sizeof path) {
        return fm_fail(reterr, FM_ERR_USAGE, "--out: the path is too long");
    }
    bool is_whole;
    fm_status status = fm_ledger_open(path, &facts, run->first.step, run->first.n_sample, &is_whole,
                                      &run->ledger, reterr);
    if (!status && !is_whole) {
        fm_log(FM_LOG_WARN, "ledger_incomplete",
               "path=%s steps=%llu why=\"lines are damaged or were removed; the run cannot be "
               "replayed from it\"",
               path, (unsigned long long)run->first.step);
    }
    return status;
}

/* -- samples */

uint64_t fm_run_wanted(const fm_train_run *run, uint32_t slot) {
    return is_replay(run) ? use_at(run, run->queued_step, slot)->index : FM_FEED_ANY;
}

bool fm_run_left_out(const fm_train_run *run, uint64_t step, uint32_t slot) {
    return is_replay(run) && use_at(run, step, slot)->is_skipped;
}

fm_status fm_run_place_features(const fm_train_run *run, uint32_t slot, fm_features *features,
                                fm_error *reterr) {
    const fm_wire_opened *stream = fm_loader_get_stream(run->feed.loader);
    uint64_t place = fm_run_place(run, run->queued_step, slot);
    uint32_t n_cycle =
        fm_step_cycles(run->set->seed, place / stream->global_batch, stream->max_cycle);
    return fm_features_use(features, (uint32_t)(place % stream->global_batch), n_cycle, reterr);
}

/* Compares what a place took with the ledger that is replayed. */
static fm_status check_use(const fm_train_run *run, const fm_ledger_use *use, fm_error *reterr) {
    if (!is_replay(run)) return FM_OK;
    const fm_ledger_use *due = use_at(run, use->step - 1, use->slot);
    bool is_same = due->step == use->step && due->slot == use->slot && due->index == use->index &&
                   due->is_skipped == use->is_skipped;
    if (is_same) return FM_OK;
    return fm_fail(reterr, FM_ERR_DATA,
                   "step %llu, slot %u: the run %s sample %llu, and its ledger %s sample %llu at "
                   "step %llu, slot %u",
                   (unsigned long long)use->step, use->slot, use->is_skipped ? "skips" : "uses",
                   (unsigned long long)use->index, due->is_skipped ? "skips" : "uses",
                   (unsigned long long)due->index, (unsigned long long)due->step, due->slot);
}

fm_status fm_run_note_delivered(fm_train_run *run, const fm_run_sample *sample, bool is_skipped,
                                fm_error *reterr) {
    const fm_ledger_use use = {sample->step + 1, sample->slot, is_skipped, sample->index};
    fm_token *token = &run->state.token;
    fm_status status = check_use(run, &use, reterr);
    if (!status) status = fm_token_deliver(token, sample->index, reterr);
    if (!status && run->ledger) status = fm_ledger_add(run->ledger, &use, reterr);
    run->is_torn = run->is_torn || status;
    token->epoch =
        (uint32_t)(token->watermark / fm_loader_get_stream(run->feed.loader)->epoch_samples);
    return status;
}
