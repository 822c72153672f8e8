/* train_order.c: see train_order.h. */
#include "trainer/app/train/train_order.h"

#include "proto/base/hash.h"
#include "proto/base/json_tree.h"
#include "proto/base/log.h"
#include "trainer/app/train/batch_schedule.h"
#include "trainer/app/train/ledger.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fm_train_order {
    char name[32];   /* as --order has it */
    uint32_t window; /* the most places that a sample may be late or early; 0: strict */
    bool is_free;    /* --order free */
    fm_batch_schedule batches;
    long scores_read;        /* bytes of eval.jsonl that were read */
    uint64_t first_place;    /* samples that the run had used before this process */
    uint64_t epoch_samples;  /* of the source */
    fm_ledger_record replay; /* with --replay */
    fm_ledger *ledger;       /* NULL: another rank writes it */
};

fm_status fm_train_order_create(fm_train_run *run, fm_error *reterr) {
    run->order = calloc(1, sizeof *run->order);
    return run->order ? FM_OK : fm_fail(reterr, FM_ERR_NOMEM, "no memory for a run");
}

void fm_train_order_destroy(fm_train_run *run) {
    if (!run->order) return;
    fm_ledger_close(run->order->ledger);
    fm_ledger_release(&run->order->replay);
    free(run->order);
    run->order = NULL;
}

/* Of the stream. */
static uint64_t global_batch(const fm_train_run *run) {
    return (uint64_t)run->config.data.global_batch;
}

static bool is_replay(const fm_train_run *run) {
    return run->set->replay != NULL;
}

uint64_t fm_train_place(const fm_train_run *run, uint64_t step, uint32_t slot) {
    const fm_batch_schedule *batches = &run->order->batches;
    return run->order->first_place + fm_batch_before(batches, step) -
           fm_batch_before(batches, run->first.step) + slot - run->first.n_sample;
}

uint64_t fm_train_first_place(const fm_train_run *run) {
    return run->order->first_place;
}

/* What the ledger that is replayed has at a place. */
static const fm_ledger_use *use_at(const fm_train_run *run, uint64_t step, uint32_t slot) {
    uint64_t place = fm_train_place(run, step, slot);
    assert(place < run->order->replay.n); /* fm_train_order_begin */
    return &run->order->replay.use[place];
}

/* -- batches */

fm_status fm_train_order_set_batches(fm_train_run *run, fm_error *reterr) {
    fm_batch_schedule *batches = &run->order->batches;
    *batches = fm_batch_schedule_of((uint32_t)run->config.data.global_batch);
    if (!run->set->batch_schedule) return FM_OK;
    fm_status status = fm_batch_schedule_parse(run->set->batch_schedule, batches, reterr);
    if (!status) run->config.data.global_batch = batches->stage[0].batch;
    return status;
}

fm_status fm_train_order_check_batches(const fm_train_run *run, fm_error *reterr) {
    const int32_t n_group = run->layout.dp;
    if (run->order->batches.score[0]) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--batch-schedule: a batch that waits for a score needs a run of one rank; "
                       "give the step");
    }
    if (run->order->batches.n > 1 && run->config.data.global_batch % n_group != 0) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--batch-schedule: the first batch of %lld samples cannot be divided evenly "
                       "over %d groups of ranks",
                       (long long)run->config.data.global_batch, (int)n_group);
    }
    return FM_OK;
}

const char *fm_train_order_awaited_score(const fm_train_run *run) {
    return run->order->batches.score;
}

uint32_t fm_train_batch_at(const fm_train_run *run, uint64_t step) {
    return fm_batch_at(&run->order->batches, step);
}

fm_status fm_train_order_find_batches(fm_train_run *run, fm_error *reterr) {
    const fm_checkpoint_place *place = &run->state.place;
    uint64_t n_used = fm_token_count(&run->state.token) - place->n_sample;
    return fm_batch_find_last(&run->order->batches, place->step, n_used, reterr);
}

uint64_t fm_train_order_stream_steps(const fm_train_run *run) {
    fm_batch_schedule most = run->order->batches;
    const uint64_t step = run->state.place.step, steps = run->set->steps;
    bool is_open = fm_batch_is_waiting(&most) && most.stage[most.n - 2].step < steps;
    if (is_open) {
        uint64_t after = most.stage[most.n - 2].step + 1;
        fm_batch_begin_last(&most, after > step ? after : step);
    }
    return (fm_batch_before(&most, steps) + global_batch(run) - 1) / global_batch(run);
}

/* Looks at one line of eval.jsonl. */
static void look_at_score(fm_train_run *run, const char *line, size_t bytes) {
    fm_batch_schedule *s = &run->order->batches;
    fm_json *row = fm_json_parse(line, bytes);
    double score = fm_json_get_number(fm_json_get_member(row, s->score), -INFINITY);
    if (fm_batch_is_waiting(s) && score >= s->least) {
        uint64_t begun = s->stage[s->n - 2].step + 1;
        uint64_t next = run->queued_step + (run->slot > 0);
        fm_batch_begin_last(s, next > begun ? next : begun);
        fm_log(FM_LOG_INFO, "batch_grows", "samples=%u after_step=%llu %s=%.6g of_step=%.0f",
               s->stage[s->n - 1].batch, (unsigned long long)s->stage[s->n - 1].step, s->score,
               score, fm_json_get_number(fm_json_get_member(row, "step"), NAN));
    }
    fm_json_free(row);
}

fm_status fm_train_order_read_scores(fm_train_run *run, fm_error *reterr) {
    char path[PATH_MAX], *line = NULL;
    size_t room = 0;
    if (!fm_batch_is_waiting(&run->order->batches)) return FM_OK;
    snprintf(path, sizeof path, "%s/eval.jsonl", fm_train_folder(run));
    FILE *file = fopen(path, "re");
    if (!file && errno == ENOENT) return FM_OK;
    if (!file || fseek(file, run->order->scores_read, SEEK_SET) != 0) {
        fm_status status =
            fm_fail_in(reterr, FM_ERR_IO, path, "cannot read the scores: %s", strerror(errno));
        if (file) fclose(file);
        return status;
    }
    ssize_t n;
    while ((n = getline(&line, &room, file)) > 0 && line[n - 1] == '\n') {
        run->order->scores_read += n;
        look_at_score(run, line, (size_t)n);
    }
    free(line);
    fclose(file);
    return FM_OK;
}

/* -- preparing */

/* The groups of ranks and their share of the samples, as the server counts them. */
static fm_wire_open group_of(const fm_train_run *run) {
    int32_t rank = run->ranks ? fm_ranks_rank(run->ranks) : 0;
    return (fm_wire_open){.group = (uint32_t)fm_layout_place(&run->layout, rank).dp,
                          .n_group = (uint32_t)run->layout.dp};
}

fm_status fm_train_order_find(fm_train_run *run, fm_error *reterr) {
    const fm_train_options *set = run->set;
    fm_train_order *order = run->order;
    fm_wire_open asked = group_of(run);
    fm_status status = FM_OK;
    snprintf(order->name, sizeof order->name, "%s", set->order);
    if (is_replay(run)) {
        status = fm_ledger_read(set->replay, &order->replay, reterr);
        if (status) return status;
        uint32_t window = order->replay.facts.window;
        if (window == FM_LEDGER_FREE) {
            snprintf(order->name, sizeof order->name, "free");
        } else if (window > 0) {
            snprintf(order->name, sizeof order->name, "bounded:%u", window);
        }
    }
    status = fm_wire_order_parse(order->name, &asked.order, &asked.window, reterr);
    order->is_free = asked.order == FM_WIRE_FREE;
    order->window = fm_wire_open_window(&asked, (uint32_t)global_batch(run));
    return status;
}

const char *fm_train_order_name(const fm_train_run *run) {
    return run->order->name;
}

bool fm_train_order_is_strict(const fm_train_run *run) {
    return run->order->window == 0;
}

uint64_t fm_train_order_hash(const fm_train_run *run) {
    const fm_train_order *order = run->order;
    fm_xxh3_state *hash = fm_xxh3_create();
    fm_xxh3_update(hash, order->name, strlen(order->name) + 1);
    for (uint64_t i = 0; i < order->replay.n; i++)
        fm_xxh3_update(hash, &order->replay.use[i].index, sizeof order->replay.use[i].index);
    uint64_t digest = fm_xxh3_digest(hash);
    fm_xxh3_destroy(hash);
    return digest;
}

/* What a strict stream needs so that this rank's group can use its samples as the ledger says: the
 * samples to hold, and the distance of places. */
static void measure_replay(const fm_train_run *run, uint32_t *ret_held, uint32_t *ret_reach) {
    const fm_wire_open group = group_of(run);
    const uint32_t batch = (uint32_t)global_batch(run);
    uint64_t received = 0, held = 0, reach = 0;
    for (uint64_t place = 0; place < run->order->replay.n; place++) {
        if (place % batch % group.n_group != group.group) continue;
        uint64_t used = fm_wire_open_place(&group, batch, place);
        uint64_t own = fm_wire_open_place(&group, batch, run->order->replay.use[place].index);
        uint64_t far = used > own ? used - own : own - used;
        if (own + 1 > received) received = own + 1;
        if (received - used > held) held = received - used;
        if (far > reach) reach = far;
    }
    *ret_held = held < FM_LIMIT_FREE_WINDOW ? (uint32_t)held : FM_LIMIT_FREE_WINDOW;
    *ret_reach = reach < FM_LIMIT_FREE_WINDOW ? (uint32_t)reach : FM_LIMIT_FREE_WINDOW;
}

fm_status fm_train_order_ask(const fm_train_run *run, fm_feed *feed, fm_error *reterr) {
    fm_wire_open *stream = &feed->options.stream;
    stream->order = FM_WIRE_STRICT;
    stream->reach = run->order->window;
    if (is_replay(run)) {
        measure_replay(run, &feed->most_held, &stream->reach);
        stream->n_step += stream->reach; /* the last steps may use samples of later ones */
    } else if (run->order->window) {
        stream->order = run->order->is_free ? FM_WIRE_FREE : FM_WIRE_BOUNDED;
        stream->window = run->order->is_free ? 0 : run->order->window;
    }
    /* The first of the ranks that share a sample takes the next sample that arrives, at most W
     * places early. The server may send W other samples to the other ranks before it. */
    bool follows = run->ranks && run->layout.dap * run->layout.bp > 1 && !is_replay(run);
    if (follows && run->order->is_free) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--order free: ranks that share a sample hold those that come early; give "
                       "--order bounded:W");
    }
    if (follows) feed->most_held = 2 * run->order->window;
    feed->options.n_slab += feed->most_held;
    return FM_OK;
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
        if (n == fm_wire_open_place(&group, batch, run->order->first_place)) continue;
        return fm_fail(reterr, FM_ERR_USAGE,
                       "the checkpoint's samples were used out of order by another number of "
                       "groups; go on with as many ranks as before");
    }
    return FM_OK;
}

/* Whether the ledger is one of this run, as far as it has come. */
static fm_status check_replay(const fm_train_run *run, fm_error *reterr) {
    const fm_ledger_record *replay = &run->order->replay;
    const fm_ledger_facts *facts = &replay->facts;
    uint64_t n_due = fm_train_place(run, run->set->steps, 0), n_same = 0;
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
    while (n_same < run->order->first_place &&
           fm_token_has(&run->state.token, replay->use[n_same].index))
        n_same++;
    if (n_same == run->order->first_place) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "the checkpoint's run did not use sample %llu, which its ledger has",
                   (unsigned long long)replay->use[n_same].index);
}

fm_status fm_train_order_begin(fm_train_run *run, uint64_t epoch_samples, fm_error *reterr) {
    const uint64_t most = (uint64_t)FM_LIMIT_TOKEN_BYTES * 8;
    const uint64_t n_group = (uint64_t)run->layout.dp;
    /* The checkpoint's token is that of all groups; one may be a window late, another early. */
    uint64_t span = (n_group > 1 ? 2 : 1) * run->order->window * n_group + global_batch(run);
    if (run->order->window && span > most) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--order %s: the samples that %d groups use out of order may be %llu apart, "
                       "and a checkpoint can name %llu; give a smaller W",
                       run->order->name, (int)run->layout.dp, (unsigned long long)span,
                       (unsigned long long)most);
    }
    run->order->epoch_samples = epoch_samples;
    run->order->first_place = fm_token_count(&run->state.token);
    fm_status status = check_groups(run, reterr);
    if (!status && is_replay(run)) {
        status = check_replay(run, reterr);
        if (status && reterr) (void)fm_error_in(reterr, run->set->replay);
    }
    return status;
}

fm_status fm_train_order_open_ledger(fm_train_run *run, fm_error *reterr) {
    char path[PATH_MAX];
    const fm_ledger_facts facts = {.seed = run->set->seed,
                                   .snapshot = run->state.snapshot,
                                   .n_group = (uint32_t)run->layout.dp,
                                   .window =
                                       run->order->is_free ? FM_LEDGER_FREE : run->order->window};
    if (snprintf(path, sizeof path, "%s/ledger", fm_train_folder(run)) >= (int)sizeof path) {
        return fm_fail(reterr, FM_ERR_USAGE, "--out: the path is too long");
    }
    bool is_whole;
    fm_status status = fm_ledger_open(path, &facts, run->first.step, run->first.n_sample, &is_whole,
                                      &run->order->ledger, reterr);
    if (!status && !is_whole) {
        fm_log(FM_LOG_WARN, "ledger_incomplete",
               "path=%s/ledger steps=%llu why=\"lines are damaged or were removed; the run cannot "
               "be replayed from it\"",
               run->set->out, (unsigned long long)run->first.step);
    }
    return status;
}

fm_status fm_train_order_write_ledger(fm_train_run *run, fm_error *reterr) {
    return fm_ledger_write(run->order->ledger, reterr);
}

fm_status fm_train_order_sync_ledger(fm_train_run *run, fm_error *reterr) {
    return fm_ledger_sync(run->order->ledger, reterr);
}

/* -- samples */

uint64_t fm_train_order_wanted(const fm_train_run *run, uint64_t step, uint32_t slot) {
    return is_replay(run) ? use_at(run, step, slot)->index : FM_FEED_ANY;
}

bool fm_train_order_leaves_out(const fm_train_run *run, uint64_t step, uint32_t slot) {
    return is_replay(run) && use_at(run, step, slot)->is_skipped;
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

fm_status fm_train_order_deliver(fm_train_run *run, const fm_train_sample *sample, bool is_skipped,
                                 fm_error *reterr) {
    const fm_ledger_use use = {sample->step + 1, sample->slot, is_skipped, sample->index};
    fm_token *token = &run->state.token;
    fm_status status = check_use(run, &use, reterr);
    if (!status) status = fm_token_deliver(token, sample->index, reterr);
    if (!status && run->order->ledger) status = fm_ledger_add(run->order->ledger, &use, reterr);
    run->is_torn = run->is_torn || status;
    token->epoch = (uint32_t)(token->watermark / run->order->epoch_samples);
    return status;
}
