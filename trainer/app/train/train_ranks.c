/* train_ranks.c: a run of several ranks; see train_run.h.
 *
 * Ranks that share a sample form a group. Group g of P takes the samples whose slot in the batch is
 * g modulo P, in order, so the batch is the same for every number of ranks. Out of order it takes
 * those of its samples that come first to its first rank; the others of the group ask their feeds
 * for the same. The groups go forward in rounds, each of P slots that follow each other; in each,
 * every group that has a sample left in the step adds one:
 *
 *     agree      every rank says what it has: the sample in its hand, a signal, a lost server.
 *                All decide by the same words. A rank that still waits for its server says so,
 *                and the round begins again, so that signals are heard meanwhile.
 *     queue      each group queues its sample; a bad one is skipped by all ranks
 *     collect    every rank says what came out, and all add up the results of all groups
 *
 * All ranks therefore hold the same fm_train_state, and rank 0 writes it. The gradients of a batch
 * are summed over the groups when its last round is collected. With several groups, a checkpoint is
 * that of the last whole step: a sum of gradients that is divided over groups would give other bits
 * when it is resumed by fewer. */
#include "trainer/app/train/train_run.h"

#include "proto/base/hash.h"
#include "proto/base/log.h"
#include "trainer/app/common/stop.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHY_BYTES = 256 };

/* What a rank holds for the next round. */
typedef enum hand {
    HAND_NONE,   /* its group has no sample left in this step */
    HAND_EMPTY,  /* the server has not sent it yet */
    HAND_READY,  /* a sample that can be queued */
    HAND_BAD,    /* a sample that cannot */
    HAND_LOST,   /* the server is gone */
    HAND_FAILED, /* this rank cannot go on */
} hand;

/* What a rank says before a round. */
struct fm_rank_report {
    uint32_t hand, status, saves;
    uint32_t stop_reason, stop_signal; /* as in stop.h */
    uint64_t step, index, bytes;
    uint32_t slot, n_cycle;
    uint32_t own_slot; /* of its sample; `slot` is the first one of the round */
    char name[FM_LIMIT_NAME_BYTES + 1], why[WHY_BYTES];
};

/* What a rank says after a round. */
struct fm_rank_outcome {
    uint32_t status, is_scored;
    double loss, norm, term[FM_RESULT_TERMS], part[FM_RESULT_TERMS], score[FM_METRICS_SCORES],
        wait_s;
    uint64_t done_ns;
    char why[WHY_BYTES];
};

static int32_t n_group(const fm_train_run *run) {
    return run->layout.dp;
}

static int32_t ranks_per_group(const fm_train_run *run) {
    return run->layout.dap * run->layout.bp;
}

int32_t fm_train_group(const fm_train_run *run) {
    return run->ranks ? fm_ranks_rank(run->ranks) / ranks_per_group(run) : 0;
}

static const fm_train_rounds *rounds_of(const fm_train_run *run) {
    return &run->work->rounds;
}

/* Of the stream. */
static uint64_t global_batch(const fm_train_run *run) {
    return (uint64_t)run->config.data.global_batch;
}

/* -- preparing */

static uint64_t paper_of_options(const fm_train_run *run) {
    const fm_train_options *set = run->set;
    fm_xxh3_state *hash = fm_xxh3_create();
    const uint64_t numbers[] = {
        set->steps,         set->skips_bad, set->bad_sample_budget, set->stop_on_divergence,
        set->skip_sample.n, run->replay.n};
    fm_xxh3_update(hash, numbers, sizeof numbers);
    fm_xxh3_update(hash, run->order, strlen(run->order) + 1);
    for (uint64_t i = 0; i < run->replay.n; i++)
        fm_xxh3_update(hash, &run->replay.use[i].index, sizeof run->replay.use[i].index);
    for (uint32_t i = 0; i < set->skip_sample.n; i++)
        fm_xxh3_update(hash, set->skip_sample.value[i], strlen(set->skip_sample.value[i]) + 1);
    const char *schedule = set->batch_schedule ? set->batch_schedule : "";
    fm_xxh3_update(hash, schedule, strlen(schedule) + 1);
    uint64_t digest = fm_xxh3_digest(hash);
    fm_xxh3_destroy(hash);
    return digest;
}

/* The result is the same on all ranks, unless one of them is lost. */
static fm_status compare(fm_train_run *run, const fm_papers *papers, fm_status status,
                         fm_error *reterr) {
    bool is_met;
    status = fm_ranks_compare(run->ranks, papers, status, &is_met, reterr);
    run->is_agreed = status && is_met;
    return status;
}

fm_status fm_train_ranks_compare(fm_train_run *run, fm_status status, fm_error *reterr) {
    char config[FM_TRAIN_CONFIG_TEXT_BYTES];
    fm_papers papers = {{0}};
    fm_train_config_format_all(&run->config, config);
    papers.paper[FM_PAPER_PROGRAM] = fm_paper_of_program();
    papers.paper[FM_PAPER_CONFIGURATION] = fm_xxh3(config, strlen(config));
    papers.paper[FM_PAPER_SEED] = run->set->seed;
    papers.paper[FM_PAPER_OPTIONS] = paper_of_options(run);
    papers.paper[FM_PAPER_DEVICE] = fm_xxh3(run->identity, strlen(run->identity));
    if (!status) {
        papers.paper[FM_PAPER_CHECKPOINT] = fm_paper_of_parameters(run->optimizer->params) +
                                            run->state.place.step * 65537 +
                                            run->state.place.n_sample;
        papers.paper[FM_PAPER_DATA] = fm_xxh3(&run->state.snapshot, sizeof run->state.snapshot);
        papers.paper[FM_PAPER_BRANCHES] = rounds_of(run)->digest(run, true);
        papers.paper[FM_PAPER_SCHEDULE] = rounds_of(run)->digest(run, false);
    }
    return compare(run, &papers, status, reterr);
}

fm_status fm_train_ranks_share(fm_train_run *run, fm_status status, fm_error *reterr) {
    return compare(run, &(fm_papers){{0}}, status, reterr);
}

/* After a checkpoint inside a batch, the first group goes on with its sum of gradients. */
static void give_sum_to_first_group(fm_train_run *run) {
    fm_optimizer *optimizer = run->optimizer;
    if (fm_train_group(run) == 0) return;
    optimizer->samples -= optimizer->pending;
    optimizer->pending = 0;
}

fm_status fm_train_ranks_prepare(fm_train_run *run, fm_error *reterr) {
    const size_t size = (size_t)fm_ranks_size(run->ranks);
    run->words = calloc(size, sizeof *run->words);
    run->outcomes = calloc(size, sizeof *run->outcomes);
    for (int i = 0; i < FM_MOST_QUEUED; i++)
        run->round[i] = calloc((size_t)n_group(run), sizeof *run->round[i]);
    run->boundary = malloc(sizeof *run->boundary);
    if (!run->words || !run->outcomes || !run->round[0] || !run->round[1] || !run->boundary) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for what %zu ranks say", size);
    }
    static_assert(FM_MOST_QUEUED == 2, "the rounds that are checked above");
    *run->boundary = run->state;
    run->told = FM_FEED_ANY;
    run->is_in_order = run->window == 0 && !run->set->replay && run->state.token.bitmap_bytes == 0;
    give_sum_to_first_group(run);
    return FM_OK;
}

void fm_train_ranks_release(fm_train_run *run) {
    free(run->words);
    free(run->outcomes);
    for (int i = 0; i < FM_MOST_QUEUED; i++)
        free(run->round[i]);
    free(run->boundary);
    fm_ranks_close(run->ranks);
}

/* -- agreeing */

/* Finds the slot of this rank's group in the round, which has as many slots as there are groups;
 * false when the group has none left in the step. */
static bool find_slot(fm_train_run *run) {
    const uint32_t groups = (uint32_t)n_group(run), own = (uint32_t)fm_train_group(run);
    run->own_slot = run->slot + (own + groups - run->slot % groups) % groups;
    return run->own_slot < fm_train_batch(run);
}

/* Whether this rank's group takes the sample that arrives first at this rank. */
static bool is_first_of_group(const fm_train_run *run) {
    return fm_ranks_rank(run->ranks) % ranks_per_group(run) == 0;
}

/* The number of the sample to be taken in hand; false when this rank does not know it yet. */
static bool find_wanted(const fm_train_run *run, uint64_t *ret_wanted) {
    *ret_wanted = fm_train_order_wanted(run, run->own_slot);
    if (*ret_wanted != FM_FEED_ANY || run->window == 0 || is_first_of_group(run)) return true;
    *ret_wanted = run->told;
    return run->told != FM_FEED_ANY;
}

static void refuse(fm_rank_report *word, hand kind, const fm_error *why) {
    word->hand = kind;
    word->status = why->status;
    fm_error_format(why, word->why, sizeof word->why);
}

/* Takes the next sample in hand, if it comes soon. */
static void take_in_hand(fm_train_run *run, fm_rank_report *word) {
    fm_error error;
    bool is_lost = false;
    uint64_t wanted;
    word->hand = HAND_EMPTY;
    if (!find_wanted(run, &wanted)) return;
    fm_status status = rounds_of(run)->take(run, wanted, &is_lost, &error);
    if (is_lost) {
        char quoted[FM_ERROR_MESSAGE_BYTES];
        fm_log(FM_LOG_WARN, "server_lost", "why=%s",
               fm_log_quote(quoted, sizeof quoted, error.message));
        refuse(word, HAND_LOST, &error);
    } else if (status) {
        refuse(word, HAND_FAILED, &error);
    }
}

/* Whether the sample in hand can be that of this rank's slot. */
static bool is_due(const fm_train_run *run) {
    const uint64_t index = run->hand.index;
    if (fm_token_has(&run->state.token, index)) return false;
    if (run->is_in_order) return index == fm_train_place(run, run->queued_step, run->own_slot);
    return index % global_batch(run) % (uint64_t)n_group(run) == (uint64_t)fm_train_group(run);
}

/* Describes the sample in hand. */
static void describe_hand(fm_train_run *run, fm_rank_report *word) {
    const fm_loaded *loaded = &run->hand;
    fm_train_seen seen = {.name = ""};
    fm_error error;
    word->index = loaded->index;
    word->bytes = loaded->bytes;
    word->hand = HAND_READY;
    if (!is_due(run)) {
        fm_fail(&error, FM_ERR_PROTOCOL,
                "the server sent sample %llu, which is not one of step %llu, slot %u",
                (unsigned long long)loaded->index, (unsigned long long)run->queued_step + 1,
                run->own_slot);
        refuse(word, HAND_FAILED, &error);
        return;
    }
    fm_status status = rounds_of(run)->look(run, &seen, &error);
    snprintf(word->name, sizeof word->name, "%s", seen.name);
    word->n_cycle = seen.n_cycle;
    if (status) refuse(word, seen.is_bad ? HAND_BAD : HAND_FAILED, &error);
}

static void make_word(fm_train_run *run, fm_rank_report *word) {
    *word = (fm_rank_report){.hand = HAND_NONE,
                             .stop_reason = fm_stop_get_reason(),
                             .stop_signal = (uint32_t)fm_stop_signal(),
                             .saves = fm_train_wants_checkpoint(run),
                             .step = run->queued_step,
                             .slot = run->slot};
    if (run->own_failure.status) {
        refuse(word, HAND_FAILED, &run->own_failure);
    } else if (find_slot(run)) {
        word->own_slot = run->own_slot;
        if (!run->has_hand) take_in_hand(run, word);
        if (run->has_hand) describe_hand(run, word);
    }
}

/* Returns an error that all ranks return. */
static fm_status agree_to_fail(fm_train_run *run, fm_status status) {
    run->is_agreed = true;
    return status;
}

/* Only this rank knows that an exchange was lost, and a request to stop is no failure. */
fm_status fm_train_ranks_agree_to_fail(fm_train_run *run, fm_status status) {
    bool is_other = !status || status == FM_ERR_CLOSED || status == FM_ERR_CANCELLED;
    return is_other ? status : agree_to_fail(run, status);
}

/* All samples of a step have the same number of cycles. */
static fm_status check_cycles(fm_train_run *run, fm_error *reterr) {
    const fm_rank_report *first = NULL;
    for (int32_t r = 0; r < fm_ranks_size(run->ranks); r++) {
        const fm_rank_report *word = &run->words[r];
        if (word->hand != HAND_READY) continue;
        first = first ? first : word;
        if (word->n_cycle == first->n_cycle) continue;
        fm_fail(reterr, FM_ERR_DATA, "rank %d has %u cycles in step %llu, another rank has %u",
                (int)r, word->n_cycle, (unsigned long long)word->step + 1, first->n_cycle);
        return agree_to_fail(run, FM_ERR_DATA);
    }
    return FM_OK;
}

/* The first failure that a rank speaks of, or a contradiction between two ranks. */
static fm_status check_words(fm_train_run *run, fm_error *reterr) {
    for (int32_t r = 0; r < fm_ranks_size(run->ranks); r++) {
        fm_rank_report *word = &run->words[r];
        const fm_rank_report *first = &run->words[r / ranks_per_group(run) * ranks_per_group(run)];
        word->name[FM_LIMIT_NAME_BYTES] = word->why[WHY_BYTES - 1] = '\0';
        if (word->hand == HAND_FAILED) {
            fm_fail(reterr, FM_ERR_CLOSED, "rank %d: %s", (int)r, word->why);
            return agree_to_fail(run, FM_ERR_CLOSED);
        }
        bool is_here = word->step == run->queued_step && word->slot == run->slot;
        bool is_same = word->hand != HAND_READY || first->hand != HAND_READY ||
                       (word->index == first->index && word->bytes == first->bytes);
        if (is_here && is_same) continue;
        fm_fail(reterr, FM_ERR_DATA,
                "rank %d has sample %llu of step %llu, but another rank of its group has %llu",
                (int)r, (unsigned long long)word->index, (unsigned long long)word->step + 1,
                (unsigned long long)first->index);
        return agree_to_fail(run, FM_ERR_DATA);
    }
    return check_cycles(run, reterr);
}

/* A rank has lost the server: all connect again where the run is, as one that comes back may have
 * begun anew for all. A failure is told to the others in the next round. */
static fm_status reconnect_all(fm_train_run *run, fm_error *reterr) {
    fm_status status = fm_train_drain(run, 0, reterr);
    if (status) return status;
    run->has_hand = false; /* it belongs to the old connection */
    run->told = FM_FEED_ANY;
    fm_error error;
    status = rounds_of(run)->reconnect(run, &error);
    if (status && status != FM_ERR_CANCELLED) run->own_failure = error;
    return FM_OK;
}

/* Out of order, the first rank of a group decides by what it has in hand. */
static void hear_first(fm_train_run *run) {
    const fm_rank_report *first = &run->words[fm_train_group(run) * ranks_per_group(run)];
    bool has_sample = first->hand == HAND_READY || first->hand == HAND_BAD;
    run->told = has_sample ? first->index : FM_FEED_ANY;
}

static bool any_hand(const fm_train_run *run, hand kind) {
    for (int32_t r = 0; r < fm_ranks_size(run->ranks); r++)
        if (run->words[r].hand == kind) return true;
    return false;
}

/* Agrees until every group has a sample or none left. FM_ERR_CANCELLED when a rank was asked to
 * stop. */
static fm_status agree(fm_train_run *run, fm_error *reterr) {
    do {
        fm_rank_report own;
        make_word(run, &own);
        fm_status status = fm_ranks_gather(run->ranks, &own, sizeof own, run->words, reterr);
        if (!status) status = check_words(run, reterr);
        if (status) return status;
        /* A signal that this rank has heard since is for the next round. */
        const fm_rank_report *stops = NULL;
        for (int32_t r = 0; r < fm_ranks_size(run->ranks); r++) {
            run->saves_now |= run->words[r].saves;
            if (!stops && run->words[r].stop_reason) stops = &run->words[r];
        }
        if (stops) {
            fm_stop_request((fm_stop_reason)stops->stop_reason, (int)stops->stop_signal);
            return fm_fail(reterr, FM_ERR_CANCELLED, "stopped on request");
        }
        hear_first(run);
        if (any_hand(run, HAND_LOST)) status = reconnect_all(run, reterr);
        if (status) return status;
    } while (any_hand(run, HAND_LOST) || any_hand(run, HAND_EMPTY));
    return FM_OK;
}

/* -- skipping */

/* The first word of group g that says that its sample is bad, else its first rank's. */
static const fm_rank_report *word_of(const fm_train_run *run, int32_t g) {
    const fm_rank_report *first = &run->words[g * ranks_per_group(run)];
    for (int32_t r = 0; r < ranks_per_group(run); r++)
        if (first[r].hand == HAND_BAD) return &first[r];
    return first;
}

/* Decides about a bad sample, and notes on every rank that it is skipped. why "": the command line
 * names it. */
static fm_status skip(fm_train_run *run, const fm_rank_report *word, fm_status status,
                      const char *why, fm_error *reterr) {
    bool by_hand = !why[0];
    const fm_train_sample sample = {word->step, word->own_slot, word->index, word->name};
    if (!by_hand) {
        fm_fail(reterr, status, "%s", why);
        status = fm_train_judge(run, &sample, status, reterr);
        if (status) return agree_to_fail(run, status);
    }
    fm_error reason = {.message = ""};
    snprintf(reason.message, sizeof reason.message, "%s", why);
    return fm_train_note_skipped(run, &sample, by_hand ? NULL : &reason, reterr);
}

static void drop_hand(fm_train_run *run) {
    rounds_of(run)->drop(run);
    run->has_hand = false;
    run->told = FM_FEED_ANY;
}

/* Leaves out the samples of this round that are bad or named on the command line. *ret_n: how many
 * are left to be queued; round[g].hand says which. */
static fm_status skip_bad(fm_train_run *run, fm_rank_report *round, uint32_t *ret_n,
                          fm_error *reterr) {
    *ret_n = 0;
    for (int32_t g = 0; g < n_group(run); g++) {
        round[g] = *word_of(run, g);
        if (round[g].hand == HAND_NONE) continue;
        bool by_hand = fm_skipped_by_hand(&run->state.skipped, round[g].index);
        bool is_left_out = fm_train_order_leaves_out(run, round[g].step, round[g].own_slot);
        if (round[g].hand == HAND_READY && !by_hand && !is_left_out) {
            ++*ret_n;
            continue;
        }
        if (round[g].hand == HAND_READY) {
            round[g].status = FM_ERR_DATA;
            snprintf(round[g].why, WHY_BYTES, "the run that is replayed left it out");
        }
        fm_status status = fm_train_drain(run, 0, reterr);
        if (!status) {
            status = skip(run, &round[g], (fm_status)round[g].status, by_hand ? "" : round[g].why,
                          reterr);
        }
        if (status) return status;
        round[g].hand = HAND_NONE;
        run->slot++;
        run->state.place.n_sample = run->slot;
        if (g == fm_train_group(run)) drop_hand(run);
    }
    return FM_OK;
}

/* -- the end of a step */

static bool has_groups(const fm_train_run *run) {
    return n_group(run) > 1;
}

/* Whether the update is queued with the last sample of a step. */
static bool updates_with_last(const fm_train_run *run) {
    return !has_groups(run) && rounds_of(run)->is_queued;
}

/* Makes the update that was not queued with the last sample, and reports the step. Nothing may be
 * in flight where there are several groups. */
static fm_status finish_step(fm_train_run *run, double rate, bool is_updated, fm_error *reterr) {
    uint32_t n_counted = run->state.sums.n_counted;
    if (!is_updated && n_counted > 0) {
        run->is_torn = true; /* until all parts of the sum have come */
        fm_status status = run->work->update(run, n_counted, reterr);
        if (status == FM_ERR_CLOSED) return status; /* this rank alone knows it */
        if (status) return agree_to_fail(run, status);
        run->is_torn = fm_ranks_is_over(run->ranks);
        rate = fm_train_rate(run);
    }
    if (run->is_torn) return fm_fail(reterr, FM_ERR_CLOSED, "the update was not completed");
    fm_status status = fm_train_finish_step(run, rate, reterr);
    *run->boundary = run->state; /* the update was made, also when what follows it has failed */
    return fm_train_ranks_agree_to_fail(run, status);
}

/* -- rounds */

/* Fails when this rank cannot go on; a sample that is bad is an outcome. */
static fm_status make_outcome(fm_train_run *run, const fm_train_flight *f, fm_rank_outcome *own,
                              fm_error *reterr) {
    *own = (fm_rank_outcome){.wait_s = f->wait_s};
    if (!f->plays) return FM_OK;
    fm_sample_result result;
    fm_status status = rounds_of(run)->collect(run, f, &result, reterr);
    if (status == FM_ERR_DATA) {
        own->status = status;
        snprintf(own->why, sizeof own->why, "%s", reterr->message);
        return FM_OK;
    }
    /* An update was not made: its step may be reported already, so nothing may be saved. */
    run->is_torn = run->is_torn || status == FM_ERR_LIMIT;
    if (status) return status;
    own->loss = result.loss;
    own->norm = result.gradient_norm;
    own->done_ns = result.done_ns;
    memcpy(own->term, result.term, sizeof own->term);
    memcpy(own->part, result.part, sizeof own->part);
    if (!f->is_scored) return FM_OK;
    fm_batch_sums sums = {.n_counted = 0};
    status = fm_train_add_scores(run, &f->features, &sums, reterr);
    run->is_torn = run->is_torn || status; /* the sample is in the sum of gradients */
    own->is_scored = sums.n_scored;
    memcpy(own->score, sums.score, sizeof own->score);
    return status;
}

static uint64_t bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* All ranks of a group must have found the same. */
static fm_status check_group(fm_train_run *run, int32_t g, fm_error *reterr) {
    const int32_t first = g * ranks_per_group(run);
    const fm_rank_outcome *a = &run->outcomes[first];
    for (int32_t r = first; r < first + ranks_per_group(run); r++) {
        fm_rank_outcome *b = &run->outcomes[r];
        b->why[WHY_BYTES - 1] = '\0';
        bool is_same = a->status == b->status && bits_of(a->loss) == bits_of(b->loss) &&
                       bits_of(a->norm) == bits_of(b->norm);
        if (is_same) continue;
        run->is_torn = true;
        fm_fail(reterr, FM_ERR_DATA,
                "ranks %d and %d have other results of one sample: losses %.17g and %.17g, norms "
                "%.17g and %.17g",
                (int)first, (int)r, a->loss, b->loss, a->norm, b->norm);
        return agree_to_fail(run, FM_ERR_DATA);
    }
    return FM_OK;
}

/* Adds what group g has found. */
static fm_status add_group(fm_train_run *run, const fm_rank_report *word, int32_t g,
                           fm_error *reterr) {
    const fm_rank_outcome *o = &run->outcomes[g * ranks_per_group(run)];
    fm_status status = check_group(run, g, reterr);
    if (!status && o->status) status = skip(run, word, (fm_status)o->status, o->why, reterr);
    if (status) return status;
    run->state.place.n_sample++;
    if (o->status) return FM_OK;
    fm_batch_sums *sums = &run->state.sums;
    fm_sample_result result = {.loss = o->loss, .gradient_norm = o->norm, .done_ns = o->done_ns};
    memcpy(result.term, o->term, sizeof result.term);
    memcpy(result.part, o->part, sizeof result.part);
    fm_train_add_result(sums, word->index, word->n_cycle, word->name, o->wait_s, &result);
    for (int i = 0; i < FM_METRICS_SCORES; i++)
        sums->score[i] += o->score[i];
    sums->n_scored += o->is_scored;
    const fm_train_sample sample = {word->step, word->own_slot, word->index, word->name};
    return fm_train_order_deliver(run, &sample, false, reterr);
}

/* The trainer has dropped what was queued behind a bad sample: queues it again. */
static fm_status requeue(fm_train_run *run, fm_error *reterr) {
    fm_status status = FM_OK;
    for (uint64_t i = run->n_collected; i < run->n_queued && !status; i++) {
        const fm_train_flight *f = &run->flight[i % FM_MOST_QUEUED];
        if (!f->plays) continue;
        status = rounds_of(run)->requeue(run, f, f->is_last && updates_with_last(run), reterr);
    }
    return status;
}

fm_status fm_train_ranks_collect(fm_train_run *run, fm_error *reterr) {
    const uint64_t number = run->n_collected++;
    const fm_train_flight f = run->flight[number % FM_MOST_QUEUED];
    const fm_rank_report *round = run->round[number % FM_MOST_QUEUED];
    fm_rank_outcome own;
    fm_status status = make_outcome(run, &f, &own, reterr);
    if (!status) status = fm_ranks_gather(run->ranks, &own, sizeof own, run->outcomes, reterr);
    for (int32_t g = 0; g < n_group(run) && !status; g++)
        if (round[g].hand == HAND_READY) status = add_group(run, &round[g], g, reterr);
    bool is_dropped = f.plays && own.status;
    if (!status && f.is_last) {
        bool is_updated = updates_with_last(run) && !is_dropped;
        status = finish_step(run, f.rate, is_updated, reterr);
    }
    if (!status && is_dropped) status = requeue(run, reterr);
    if (f.plays) rounds_of(run)->release(run, &f);
    return status;
}

/* Queues the samples of a round behind those in flight: this rank its group's, if it has one. */
static fm_status queue_round(fm_train_run *run, uint32_t n_sample, double wait_s,
                             fm_error *reterr) {
    fm_train_flight *f = &run->flight[run->n_queued % FM_MOST_QUEUED];
    const fm_rank_report *round = run->round[run->n_queued % FM_MOST_QUEUED];
    bool is_last = run->slot + n_sample == fm_train_batch(run);
    *f = (fm_train_flight){.step = run->queued_step,
                           .slot = run->slot,
                           .is_last = is_last,
                           .is_scored = fm_train_is_scored(run),
                           .plays = round[fm_train_group(run)].hand == HAND_READY,
                           .wait_s = wait_s};
    if (f->plays) {
        run->has_hand = false;
        run->told = FM_FEED_ANY;
        bool updates = is_last && updates_with_last(run);
        fm_status status = rounds_of(run)->queue(run, f, updates, reterr);
        if (status) return status; /* it was checked before */
        f->rate = fm_train_rate(run);
    }
    run->n_queued++;
    run->slot = is_last ? 0 : run->slot + n_sample;
    run->queued_step += is_last;
    return FM_OK;
}

fm_status fm_train_ranks_advance(fm_train_run *run, fm_error *reterr) {
    uint64_t asked_ns = fm_clock_ns();
    fm_status status = agree(run, reterr);
    double wait_s = fm_train_seconds_since(asked_ns);
    if (!status) status = fm_train_save(run, reterr);
    if (status) return status;
    uint32_t n_sample;
    status = skip_bad(run, run->round[run->n_queued % FM_MOST_QUEUED], &n_sample, reterr);
    if (status) return status;
    if (n_sample > 0) {
        bool at_once = !rounds_of(run)->is_queued || fm_train_is_scored(run) ||
                       strcmp(run->set->device, "cpu") == 0;
        status = queue_round(run, n_sample, wait_s, reterr);
        /* The update sums the gradients of all groups, so nothing may be queued behind them. */
        at_once |= has_groups(run) && run->slot == 0;
        return status ? status : fm_train_drain(run, at_once ? 0 : FM_MOST_QUEUED - 1, reterr);
    }
    if (run->slot < fm_train_batch(run)) return FM_OK;
    run->queued_step++;
    run->slot = 0;
    return finish_step(run, fm_train_rate(run), false, reterr);
}
