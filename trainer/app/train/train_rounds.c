/* train_rounds.c: see train_rounds.h. */
#include "trainer/app/train/train_rounds.h"

#include "proto/base/hash.h"
#include "proto/base/log.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/samples/feed.h"
#include "trainer/app/train/train_order.h"
#include "trainer/app/train/train_save.h"
#include "trainer/app/train/train_skip.h"
#include "trainer/app/train/train_step.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHY_BYTES = 256 };

/* What a rank has for the next round. */
typedef enum rank_has {
    HAS_NO_PLACE,    /* its group has no sample left in this step */
    HAS_NOTHING_YET, /* the server has not sent it yet */
    HAS_SAMPLE,      /* one that can be queued */
    HAS_BAD_SAMPLE,  /* one that cannot */
    HAS_NO_SERVER,   /* it was lost */
    HAS_FAILED,      /* this rank cannot go on */
} rank_has;

/* What a rank says before a round. */
typedef struct rank_report {
    uint32_t has, status, saves;
    uint32_t stop_reason, stop_signal; /* as in stop.h */
    uint64_t step, index, bytes;
    uint32_t slot, n_cycle;
    uint32_t sample_slot; /* of its sample; `slot` is the first one of the round */
    char name[FM_LIMIT_NAME_BYTES + 1], why[WHY_BYTES];
} rank_report;

/* What a rank says after a round. */
typedef struct rank_outcome {
    uint32_t status, is_scored;
    double loss, norm, term[FM_RESULT_TERMS], part[FM_RESULT_TERMS], score[FM_METRICS_SCORES],
        wait_s;
    uint64_t done_ns;
    char why[WHY_BYTES];
} rank_outcome;

struct fm_train_rounds {
    rank_report *reports;                 /* [ranks] of the round being agreed on */
    rank_report *samples[FM_MOST_QUEUED]; /* [groups] of the rounds in flight */
    rank_outcome *outcomes;               /* [ranks] of the round being collected */
    fm_train_next next;                   /* this rank's next sample, where it is taken, and */
    uint32_t next_slot;                   /* its slot, where its group has one in the round */
    uint64_t first_has;   /* the sample that the first rank of its group has, or FM_FEED_ANY */
    bool is_in_order;     /* place p takes sample p */
    bool is_agreed;       /* the error is that of all ranks */
    fm_error own_failure; /* of this rank, which the others do not know yet; status 0: none */
};

fm_status fm_train_rounds_create(fm_train_run *run, fm_error *reterr) {
    run->rounds = calloc(1, sizeof *run->rounds);
    return run->rounds ? FM_OK : fm_fail(reterr, FM_ERR_NOMEM, "no memory for a run");
}

void fm_train_rounds_destroy(fm_train_run *run) {
    fm_train_rounds *rounds = run->rounds;
    if (!rounds) return;
    free(rounds->reports);
    free(rounds->outcomes);
    for (int i = 0; i < FM_MOST_QUEUED; i++)
        free(rounds->samples[i]);
    free(rounds);
    run->rounds = NULL;
}

bool fm_train_rounds_is_agreed(const fm_train_run *run) {
    return run->rounds && run->rounds->is_agreed;
}

static int32_t n_group(const fm_train_run *run) {
    return run->layout.dp;
}

static const fm_train_round_work *work_of(const fm_train_run *run) {
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
    const uint64_t numbers[] = {set->steps,
                                set->skips_bad,
                                set->bad_sample_budget,
                                set->stop_on_divergence,
                                set->skip_sample.n,
                                fm_train_order_hash(run)};
    fm_xxh3_update(hash, numbers, sizeof numbers);
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
    run->rounds->is_agreed = status && is_met;
    return status;
}

fm_status fm_train_rounds_compare(fm_train_run *run, fm_status status, fm_error *reterr) {
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
        papers.paper[FM_PAPER_BRANCHES] = work_of(run)->digest(run, true);
        papers.paper[FM_PAPER_SCHEDULE] = work_of(run)->digest(run, false);
    }
    return compare(run, &papers, status, reterr);
}

fm_status fm_train_rounds_share(fm_train_run *run, fm_status status, fm_error *reterr) {
    return compare(run, &(fm_papers){{0}}, status, reterr);
}

/* After a checkpoint inside a batch, the first group goes on with its sum of gradients. */
static void give_sum_to_first_group(fm_train_run *run) {
    fm_optimizer *optimizer = run->optimizer;
    if (fm_train_group(run) == 0) return;
    optimizer->samples -= optimizer->pending;
    optimizer->pending = 0;
}

fm_status fm_train_rounds_prepare(fm_train_run *run, fm_error *reterr) {
    fm_train_rounds *rounds = run->rounds;
    const size_t size = (size_t)fm_ranks_size(run->ranks);
    rounds->reports = calloc(size, sizeof *rounds->reports);
    rounds->outcomes = calloc(size, sizeof *rounds->outcomes);
    for (int i = 0; i < FM_MOST_QUEUED; i++)
        rounds->samples[i] = calloc((size_t)n_group(run), sizeof *rounds->samples[i]);
    if (!rounds->reports || !rounds->outcomes || !rounds->samples[0] || !rounds->samples[1]) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for what %zu ranks say", size);
    }
    static_assert(FM_MOST_QUEUED == 2, "the rounds that are checked above");
    rounds->first_has = FM_FEED_ANY;
    rounds->is_in_order =
        fm_train_order_is_strict(run) && !run->set->replay && run->state.token.bitmap_bytes == 0;
    fm_status status = fm_train_saves_keep_steps(run, reterr);
    if (!status) give_sum_to_first_group(run);
    return status;
}

/* -- agreeing */

/* Finds the slot of this rank's group in the round, which has as many slots as there are groups;
 * false when the group has none left in the step. */
static bool find_slot(fm_train_run *run) {
    const uint32_t groups = (uint32_t)n_group(run), own = (uint32_t)fm_train_group(run);
    run->rounds->next_slot = run->slot + (own + groups - run->slot % groups) % groups;
    return run->rounds->next_slot < fm_train_batch(run);
}

/* Whether this rank's group takes the sample that arrives first at this rank. */
static bool is_first_of_group(const fm_train_run *run) {
    return fm_ranks_rank(run->ranks) % fm_train_ranks_per_group(run) == 0;
}

/* The number of the sample to be taken; false when this rank does not know it yet. */
static bool find_wanted(const fm_train_run *run, uint64_t *ret_wanted) {
    *ret_wanted = fm_train_order_wanted(run, run->queued_step, run->rounds->next_slot);
    bool is_known = *ret_wanted != FM_FEED_ANY || fm_train_order_is_strict(run);
    if (is_known || is_first_of_group(run)) return true;
    *ret_wanted = run->rounds->first_has;
    return run->rounds->first_has != FM_FEED_ANY;
}

static void refuse(rank_report *report, rank_has kind, const fm_error *why) {
    report->has = kind;
    report->status = why->status;
    fm_error_format(why, report->why, sizeof report->why);
}

/* Takes the next sample, if it comes soon. */
static void take_next(fm_train_run *run, rank_report *report) {
    fm_train_rounds *rounds = run->rounds;
    fm_error error;
    bool is_lost = false;
    uint64_t wanted;
    report->has = HAS_NOTHING_YET;
    if (!find_wanted(run, &wanted)) return;
    const bool works = fm_ranks_note_work(run->ranks, false);
    fm_status status =
        work_of(run)->take_next(run, rounds->next_slot, wanted, &rounds->next, &is_lost, &error);
    fm_ranks_note_work(run->ranks, works);
    if (is_lost) {
        char quoted[FM_ERROR_MESSAGE_BYTES];
        fm_log(FM_LOG_WARN, "server_lost", "why=%s",
               fm_log_quote(quoted, sizeof quoted, error.message));
        refuse(report, HAS_NO_SERVER, &error);
    } else if (status) {
        refuse(report, HAS_FAILED, &error);
    }
}

/* Whether the next sample can be that of this rank's slot. */
static bool is_due(const fm_train_run *run) {
    const fm_train_rounds *rounds = run->rounds;
    const uint64_t index = rounds->next.index;
    if (fm_token_has(&run->state.token, index)) return false;
    if (rounds->is_in_order) {
        return index == fm_train_place(run, run->queued_step, rounds->next_slot);
    }
    return index % global_batch(run) % (uint64_t)n_group(run) == (uint64_t)fm_train_group(run);
}

/* Describes the next sample. */
static void describe_next(fm_train_run *run, rank_report *report) {
    const fm_train_next *next = &run->rounds->next;
    fm_train_seen seen = {.name = ""};
    fm_error error;
    report->index = next->index;
    report->bytes = next->bytes;
    report->has = HAS_SAMPLE;
    if (!is_due(run)) {
        fm_fail(&error, FM_ERR_PROTOCOL,
                "the server sent sample %llu, which is not one of step %llu, slot %u",
                (unsigned long long)next->index, (unsigned long long)run->queued_step + 1,
                run->rounds->next_slot);
        refuse(report, HAS_FAILED, &error);
        return;
    }
    fm_status status = work_of(run)->check_next(run, run->rounds->next_slot, &seen, &error);
    snprintf(report->name, sizeof report->name, "%s", seen.name);
    report->n_cycle = seen.n_cycle;
    if (status) refuse(report, seen.is_bad ? HAS_BAD_SAMPLE : HAS_FAILED, &error);
}

static void make_report(fm_train_run *run, rank_report *report) {
    *report = (rank_report){.has = HAS_NO_PLACE,
                            .stop_reason = fm_stop_get_reason(),
                            .stop_signal = (uint32_t)fm_stop_signal(),
                            .saves = fm_train_wants_checkpoint(run),
                            .step = run->queued_step,
                            .slot = run->slot};
    if (run->rounds->own_failure.status) {
        refuse(report, HAS_FAILED, &run->rounds->own_failure);
    } else if (find_slot(run)) {
        report->sample_slot = run->rounds->next_slot;
        if (!run->rounds->next.is_taken) take_next(run, report);
        if (run->rounds->next.is_taken) describe_next(run, report);
    }
}

/* Returns an error that all ranks return. */
static fm_status agree_to_fail(fm_train_run *run, fm_status status) {
    run->rounds->is_agreed = true;
    return status;
}

/* Only this rank knows that an exchange was lost, and a request to stop is no failure. */
fm_status fm_train_rounds_agree_to_fail(fm_train_run *run, fm_status status) {
    bool is_other =
        !run->rounds || !status || status == FM_ERR_CLOSED || status == FM_ERR_CANCELLED;
    return is_other ? status : agree_to_fail(run, status);
}

/* All samples of a step have the same number of cycles. */
static fm_status check_cycles(fm_train_run *run, fm_error *reterr) {
    const rank_report *first = NULL;
    for (int32_t r = 0; r < fm_ranks_size(run->ranks); r++) {
        const rank_report *report = &run->rounds->reports[r];
        if (report->has != HAS_SAMPLE) continue;
        first = first ? first : report;
        if (report->n_cycle == first->n_cycle) continue;
        fm_fail(reterr, FM_ERR_DATA, "rank %d has %u cycles in step %llu, another rank has %u",
                (int)r, report->n_cycle, (unsigned long long)report->step + 1, first->n_cycle);
        return agree_to_fail(run, FM_ERR_DATA);
    }
    return FM_OK;
}

/* The first failure that a rank speaks of, or a contradiction between two ranks. */
static fm_status check_reports(fm_train_run *run, fm_error *reterr) {
    const int32_t n = fm_train_ranks_per_group(run);
    for (int32_t r = 0; r < fm_ranks_size(run->ranks); r++) {
        rank_report *report = &run->rounds->reports[r];
        const rank_report *first = &run->rounds->reports[r / n * n];
        report->name[FM_LIMIT_NAME_BYTES] = report->why[WHY_BYTES - 1] = '\0';
        if (report->has == HAS_FAILED) {
            fm_fail(reterr, FM_ERR_CLOSED, "rank %d: %s", (int)r, report->why);
            return agree_to_fail(run, FM_ERR_CLOSED);
        }
        bool is_here = report->step == run->queued_step && report->slot == run->slot;
        bool is_same = report->has != HAS_SAMPLE || first->has != HAS_SAMPLE ||
                       (report->index == first->index && report->bytes == first->bytes);
        if (is_here && is_same) continue;
        fm_fail(reterr, FM_ERR_DATA,
                "rank %d has sample %llu of step %llu, but another rank of its group has %llu",
                (int)r, (unsigned long long)report->index, (unsigned long long)report->step + 1,
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
    run->rounds->next.is_taken = false; /* it belongs to the old connection */
    run->rounds->first_has = FM_FEED_ANY;
    fm_error error;
    const bool works = fm_ranks_note_work(run->ranks, false);
    status = work_of(run)->reconnect(run, &error);
    fm_ranks_note_work(run->ranks, works);
    if (status && status != FM_ERR_CANCELLED) run->rounds->own_failure = error;
    return FM_OK;
}

/* Out of order, the first rank of a group decides by what it has. */
static void hear_first(fm_train_run *run) {
    const int32_t rank = fm_train_group(run) * fm_train_ranks_per_group(run);
    const rank_report *first = &run->rounds->reports[rank];
    bool has_sample = first->has == HAS_SAMPLE || first->has == HAS_BAD_SAMPLE;
    run->rounds->first_has = has_sample ? first->index : FM_FEED_ANY;
}

static bool any_has(const fm_train_run *run, rank_has kind) {
    for (int32_t r = 0; r < fm_ranks_size(run->ranks); r++)
        if (run->rounds->reports[r].has == kind) return true;
    return false;
}

/* Agrees until every group has a sample or none left. *ret_saves: whether a checkpoint is due, as
 * fm_train_wants_checkpoint. FM_ERR_CANCELLED when a rank was asked to stop. */
static fm_status agree(fm_train_run *run, unsigned *ret_saves, fm_error *reterr) {
    *ret_saves = 0;
    const rank_report *reports = run->rounds->reports;
    do {
        rank_report own;
        make_report(run, &own);
        fm_status status =
            fm_ranks_gather(run->ranks, &own, sizeof own, run->rounds->reports, reterr);
        if (!status) status = check_reports(run, reterr);
        if (status) return status;
        /* A signal that this rank has heard since is for the next round. */
        const rank_report *stops = NULL;
        for (int32_t r = 0; r < fm_ranks_size(run->ranks); r++) {
            *ret_saves |= reports[r].saves;
            if (!stops && reports[r].stop_reason) stops = &reports[r];
        }
        if (stops) {
            fm_stop_request((fm_stop_reason)stops->stop_reason, (int)stops->stop_signal);
            return fm_fail(reterr, FM_ERR_CANCELLED, "stopped on request");
        }
        hear_first(run);
        if (any_has(run, HAS_NO_SERVER)) status = reconnect_all(run, reterr);
        if (status) return status;
    } while (any_has(run, HAS_NO_SERVER) || any_has(run, HAS_NOTHING_YET));
    return FM_OK;
}

/* -- skipping */

/* The first report of group g that says that its sample is bad, else its first rank's. */
static const rank_report *report_of(const fm_train_run *run, int32_t g) {
    const rank_report *first = &run->rounds->reports[g * fm_train_ranks_per_group(run)];
    for (int32_t r = 0; r < fm_train_ranks_per_group(run); r++)
        if (first[r].has == HAS_BAD_SAMPLE) return &first[r];
    return first;
}

/* Decides about a bad sample, and notes on every rank that it is skipped. why "": the command line
 * names it. */
static fm_status skip(fm_train_run *run, const rank_report *report, fm_status status,
                      const char *why, fm_error *reterr) {
    bool by_hand = !why[0];
    const fm_train_sample sample = {report->step, report->sample_slot, report->index, report->name};
    if (!by_hand) {
        fm_fail(reterr, status, "%s", why);
        status = fm_train_judge(run, &sample, status, reterr);
        if (status) return agree_to_fail(run, status);
    }
    fm_error reason = {.message = ""};
    snprintf(reason.message, sizeof reason.message, "%s", why);
    return fm_train_note_skipped(run, &sample, by_hand ? NULL : &reason, reterr);
}

static void drop_next(fm_train_run *run) {
    work_of(run)->drop_next(run);
    run->rounds->next.is_taken = false;
    run->rounds->first_has = FM_FEED_ANY;
}

/* Leaves out the samples of this round that are bad or named on the command line. *ret_n: how many
 * are left to be queued; round[g].has says which. */
static fm_status skip_bad(fm_train_run *run, rank_report *round, uint32_t *ret_n,
                          fm_error *reterr) {
    *ret_n = 0;
    for (int32_t g = 0; g < n_group(run); g++) {
        round[g] = *report_of(run, g);
        if (round[g].has == HAS_NO_PLACE) continue;
        bool by_hand = fm_skipped_by_hand(&run->state.skipped, round[g].index);
        bool is_left_out = fm_train_order_leaves_out(run, round[g].step, round[g].sample_slot);
        if (round[g].has == HAS_SAMPLE && !by_hand && !is_left_out) {
            ++*ret_n;
            continue;
        }
        if (round[g].has == HAS_SAMPLE) {
            round[g].status = FM_ERR_DATA;
            snprintf(round[g].why, WHY_BYTES, "the run that is replayed left it out");
        }
        fm_status status = fm_train_drain(run, 0, reterr);
        if (!status) {
            status = skip(run, &round[g], (fm_status)round[g].status, by_hand ? "" : round[g].why,
                          reterr);
        }
        if (status) return status;
        round[g].has = HAS_NO_PLACE;
        run->slot++;
        run->state.place.n_sample = run->slot;
        if (g == fm_train_group(run)) drop_next(run);
    }
    return FM_OK;
}

/* -- the end of a step */

static bool has_groups(const fm_train_run *run) {
    return n_group(run) > 1;
}

/* Whether the update is queued with the last sample of a step. */
static bool updates_with_last(const fm_train_run *run) {
    return !has_groups(run) && work_of(run)->is_queued;
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
    const bool works = fm_ranks_note_work(run->ranks, false); /* it writes files */
    fm_status status = fm_train_finish_step(run, rate, reterr);
    fm_ranks_note_work(run->ranks, works);
    fm_train_saves_note_step(run); /* the update was made, also when what follows it has failed */
    return fm_train_rounds_agree_to_fail(run, status);
}

/* -- rounds */

static bool is_scored(const fm_train_run *run) {
    return work_of(run)->is_scored && work_of(run)->is_scored(run);
}

/* Fails when this rank cannot go on; a sample that is bad is an outcome. */
static fm_status make_outcome(fm_train_run *run, uint64_t number, rank_outcome *own,
                              fm_error *reterr) {
    const fm_train_flight *f = &run->queue.flight[number % FM_MOST_QUEUED];
    *own = (rank_outcome){.wait_s = f->wait_s};
    if (!f->has_sample) return FM_OK;
    fm_sample_result result;
    fm_status status = work_of(run)->collect(run, &result, reterr);
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
    status = work_of(run)->add_scores(run, number, &sums, reterr);
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
    const int32_t first = g * fm_train_ranks_per_group(run);
    const rank_outcome *a = &run->rounds->outcomes[first];
    for (int32_t r = first; r < first + fm_train_ranks_per_group(run); r++) {
        rank_outcome *b = &run->rounds->outcomes[r];
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
static fm_status add_group(fm_train_run *run, const rank_report *report, int32_t g,
                           fm_error *reterr) {
    const rank_outcome *o = &run->rounds->outcomes[g * fm_train_ranks_per_group(run)];
    fm_status status = check_group(run, g, reterr);
    if (!status && o->status) status = skip(run, report, (fm_status)o->status, o->why, reterr);
    if (status) return status;
    run->state.place.n_sample++;
    if (o->status) return FM_OK;
    fm_batch_sums *sums = &run->state.sums;
    fm_sample_result result = {.loss = o->loss, .gradient_norm = o->norm, .done_ns = o->done_ns};
    memcpy(result.term, o->term, sizeof result.term);
    memcpy(result.part, o->part, sizeof result.part);
    fm_train_add_result(sums, report->index, report->n_cycle, report->name, o->wait_s, &result);
    for (int i = 0; i < FM_METRICS_SCORES; i++)
        sums->score[i] += o->score[i];
    sums->n_scored += o->is_scored;
    const fm_train_sample sample = {report->step, report->sample_slot, report->index, report->name};
    return fm_train_order_deliver(run, &sample, false, reterr);
}

/* The trainer has dropped what was queued behind a bad sample: queues it again. */
static fm_status requeue(fm_train_run *run, fm_error *reterr) {
    fm_status status = FM_OK;
    for (uint64_t i = run->queue.n_collected; i < run->queue.n_queued && !status; i++) {
        const fm_train_flight *f = &run->queue.flight[i % FM_MOST_QUEUED];
        if (!f->has_sample) continue;
        status = work_of(run)->requeue(run, i, f->is_last && updates_with_last(run), reterr);
    }
    return status;
}

fm_status fm_train_rounds_collect(fm_train_run *run, fm_error *reterr) {
    const uint64_t number = run->queue.n_collected++;
    const fm_train_flight f = run->queue.flight[number % FM_MOST_QUEUED];
    const rank_report *round = run->rounds->samples[number % FM_MOST_QUEUED];
    rank_outcome own;
    fm_status status = make_outcome(run, number, &own, reterr);
    if (!status) {
        status = fm_ranks_gather(run->ranks, &own, sizeof own, run->rounds->outcomes, reterr);
    }
    for (int32_t g = 0; g < n_group(run) && !status; g++)
        if (round[g].has == HAS_SAMPLE) status = add_group(run, &round[g], g, reterr);
    bool is_dropped = f.has_sample && own.status;
    if (!status && f.is_last) {
        bool is_updated = updates_with_last(run) && !is_dropped;
        status = finish_step(run, f.rate, is_updated, reterr);
    }
    if (!status && is_dropped) status = requeue(run, reterr);
    if (f.has_sample) work_of(run)->release(run, number);
    return status;
}

/* Queues the samples of a round behind those in flight: this rank its group's, if it has one. */
static fm_status queue_round(fm_train_run *run, uint32_t n_sample, double wait_s,
                             fm_error *reterr) {
    const uint64_t number = run->queue.n_queued;
    fm_train_flight *f = &run->queue.flight[number % FM_MOST_QUEUED];
    const rank_report *round = run->rounds->samples[number % FM_MOST_QUEUED];
    bool is_last = run->slot + n_sample == fm_train_batch(run);
    *f = (fm_train_flight){.step = run->queued_step,
                           .slot = run->slot,
                           .is_last = is_last,
                           .is_scored = is_scored(run),
                           .has_sample = round[fm_train_group(run)].has == HAS_SAMPLE,
                           .wait_s = wait_s};
    if (f->has_sample) {
        run->rounds->next.is_taken = false;
        run->rounds->first_has = FM_FEED_ANY;
        bool updates = is_last && updates_with_last(run);
        fm_status status = work_of(run)->queue_next(run, number, updates, reterr);
        if (status) return status; /* it was checked before */
        f->rate = fm_train_rate(run);
    }
    run->queue.n_queued++;
    run->slot = is_last ? 0 : run->slot + n_sample;
    run->queued_step += is_last;
    return FM_OK;
}

static fm_status advance(fm_train_run *run, fm_error *reterr) {
    uint64_t asked_ns = fm_clock_ns();
    unsigned saves;
    fm_status status = agree(run, &saves, reterr);
    double wait_s = fm_train_seconds_since(asked_ns);
    if (!status && saves) {
        const bool works = fm_ranks_note_work(run->ranks, false);
        status = fm_train_save(run, saves, reterr);
        fm_ranks_note_work(run->ranks, works);
    }
    if (status) return status;
    uint32_t n_sample;
    rank_report *round = run->rounds->samples[run->queue.n_queued % FM_MOST_QUEUED];
    status = skip_bad(run, round, &n_sample, reterr);
    if (status) return status;
    if (n_sample > 0) {
        bool at_once =
            !work_of(run)->is_queued || is_scored(run) || strcmp(run->set->device, "cpu") == 0;
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

fm_status fm_train_rounds_advance(fm_train_run *run, fm_error *reterr) {
    fm_ranks_note_work(run->ranks, true);
    fm_status status = advance(run, reterr);
    fm_ranks_note_work(run->ranks, false);
    return status;
}
