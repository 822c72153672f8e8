/* stream.c: see stream.h for positions, credits and memory.
 *
 * The positions from `head` on are kept in a ring of slots. A slot goes through these states:
 *
 *     EMPTY --next_job--> MAKING --finish_job--> READY --pick--> SENDING --release--> SENT or EMPTY
 *                           ^                      |
 *                           '------- EVICTED <-----' give_back: no credit, and others need memory
 *
 * pick moves `head` over every position that is being sent or was sent. A block that is released
 * behind `head` empties its slot at once. One that is released before `head` reaches it (it was
 * sent out of order) leaves SENT, and `head` empties the slot when it passes. A new job needs an
 * EMPTY slot, so a position never meets an older one in its slot.
 *
 * `index` is a sample's number in the whole run, and `position` its number in this stream. They
 * differ, since the stream covers one group of each step and skips the samples of its token. */
#include "server/stream.h"

#include "proto/base/histogram.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    AHEAD = 2,       /* samples made ahead of credit */
    N_SLOT_MIN = 64, /* slots of a stream with a small window */
    BLOCK_ALIGN = 4096,
    MOST_MAKING = 256,  /* samples of a free stream that are being made */
    MEASURE_EVERY = 16, /* samples between two measurements of the look-ahead */
};

typedef enum slot_state {
    SLOT_EMPTY,
    SLOT_MAKING,
    SLOT_READY,
    SLOT_EVICTED,
    SLOT_SENDING,
    SLOT_SENT
} slot_state;

typedef struct slot {
    slot_state state;
    fm_work *work;
    uint64_t index; /* of an evicted sample */
} slot;

struct fm_server_stream {
    fm_sample_source *source;
    fm_budgets budgets;
    void *owner;
    fm_wire_open params;
    fm_wire_opened opened;
    void *plan;
    size_t block_bytes;
    fm_work *free_works;
    uint32_t n_work;                /* blocks of this stream */
    uint32_t n_pending;             /* samples MAKING or READY */
    uint32_t n_making;              /* of these, MAKING */
    uint32_t n_under_way;           /* blocks that are not free */
    uint32_t n_evicted;             /* samples to be made again */
    uint64_t next_index, end_index; /* of the next job; there is none when they are equal */
    uint64_t head, next_position, n_sent;
    uint64_t credit_items;
    int64_t credit_bytes;
    bool is_abandoned, got_in_line;
    fm_report_stream label; /* what does not change of its row of a report */
    uint64_t opened_ns, n_byte, n_failed;
    fm_histogram wait_ns;         /* of its samples, from ready to picked */
    fm_histogram make_ns;         /* of its samples, a worker's time */
    uint64_t interval_ns;         /* running mean between two picks; 0: not known */
    uint64_t picked_ns;           /* when the newest was picked; 0: none was */
    uint32_t look_ahead;          /* samples to be under way, by these times */
    fm_histogram *send_ns;        /* of the server; NULL: not measured */
    fm_report_consumer *consumer; /* NULL: not measured */
    uint32_t window;              /* by how many others a sample may be overtaken */
    uint32_t n_slot;
    slot slot[]; /* [n_slot] that of a position is slot[position % n_slot] */
};

/* -- sample numbers */

/* Moves next_index to the first wanted index at or after it. */
static void settle(fm_server_stream *stream) {
    uint64_t next =
        fm_wire_open_next(&stream->params, stream->opened.global_batch, stream->next_index);
    stream->next_index = next < stream->end_index ? next : stream->end_index;
}

static void set_range(fm_server_stream *stream) {
    uint64_t batch = stream->opened.global_batch;
    uint64_t last_step = stream->params.n_step ? stream->params.first_step + stream->params.n_step
                                               : 2 * FM_LIMIT_STEP;
    stream->end_index = last_step * batch;
    stream->opened.n_sample = fm_wire_open_count(&stream->params, stream->opened.global_batch);
    stream->next_index = stream->params.first_step * batch;
    if (stream->next_index < stream->params.token.watermark) {
        stream->next_index = stream->params.token.watermark;
    }
    settle(stream);
}

/* -- memory */

static bool has_credit(const fm_server_stream *stream) {
    return stream->credit_items > 0 && stream->credit_bytes > 0;
}

static bool leaves_a_quarter(const fm_budget *budget, size_t more_bytes) {
    return budget->used_bytes + more_bytes <= budget->max_bytes / 4 * 3;
}

/* Limits the blocks beyond the one that a stream with credit always gets, so that clients that do
 * not read leave memory for others. */
static bool may_take_more(const fm_server_stream *stream) {
    size_t block = stream->block_bytes;
    return (stream->n_work + 1) * block <= stream->budgets.server->max_bytes / 4 &&
           leaves_a_quarter(stream->budgets.server, block) &&
           leaves_a_quarter(stream->budgets.peer, block);
}

/* The narrower budget comes first. A stream that waits for its peer's memory must not keep others
 * from that of the server. NULL: both have room. */
static fm_budget *find_lacking(const fm_server_stream *stream) {
    fm_budget *const both[] = {stream->budgets.peer, stream->budgets.server};
    for (size_t i = 0; i < 2; i++) {
        bool is_turn = !both[i]->first_in_line || both[i]->first_in_line == stream;
        if (!is_turn || both[i]->used_bytes + stream->block_bytes > both[i]->max_bytes) {
            return both[i];
        }
    }
    return NULL;
}

static void leave_line(const fm_server_stream *stream) {
    fm_budget *const both[] = {stream->budgets.peer, stream->budgets.server};
    for (size_t i = 0; i < 2; i++) {
        if (both[i]->first_in_line == stream) both[i]->first_in_line = NULL;
    }
}

static bool add_block(fm_server_stream *stream) {
    fm_work *work = calloc(1, sizeof *work);
    uint8_t *out = work ? aligned_alloc(BLOCK_ALIGN, stream->block_bytes) : NULL;
    if (!out) {
        free(work);
        return false;
    }
    stream->budgets.peer->used_bytes += stream->block_bytes;
    stream->budgets.server->used_bytes += stream->block_bytes;
    work->job = (fm_job){.owner = work,
                         .make = stream->source->make,
                         .plan = stream->plan,
                         .out = out,
                         .capacity = stream->block_bytes};
    work->stream = stream;
    work->next = stream->free_works;
    stream->free_works = work;
    stream->n_work++;
    return true;
}

/* Takes one more block from the budgets. Where there is none, a stream without any block gets in
 * line. */
static bool take_block(fm_server_stream *stream) {
    fm_budget *lacking = find_lacking(stream);
    if (!lacking) {
        leave_line(stream);
        return add_block(stream);
    }
    if (stream->n_work == 0 && lacking->first_in_line != stream) {
        leave_line(stream);
        stream->got_in_line = !lacking->first_in_line;
        if (stream->got_in_line) lacking->first_in_line = stream;
    }
    return false;
}

static void give_block_back(fm_server_stream *stream, fm_work *work) {
    stream->budgets.peer->used_bytes -= stream->block_bytes;
    stream->budgets.server->used_bytes -= stream->block_bytes;
    stream->n_work--;
    free(work->job.out);
    free(work);
}

/* Does another stream wait for memory that this one could give back? */
static bool is_contended(const fm_server_stream *stream) {
    return stream->budgets.peer->first_in_line || stream->budgets.server->first_in_line;
}

/* Should a block that is no longer used go back? A stream keeps its last one as long as nobody
 * waits for memory. */
static bool must_give_back(const fm_server_stream *stream) {
    if (stream->is_abandoned || is_contended(stream)) return true;
    return stream->n_work > 1 && !(leaves_a_quarter(stream->budgets.peer, 0) &&
                                   leaves_a_quarter(stream->budgets.server, 0));
}

static void give_free_blocks_back(fm_server_stream *stream) {
    while (stream->free_works) {
        fm_work *work = stream->free_works;
        stream->free_works = work->next;
        give_block_back(stream, work);
    }
}

/* -- opening and closing */

static fm_status check_against_plan(const fm_wire_open *params, const fm_source_facts *facts,
                                    fm_error *reterr) {
    assert(facts->global_batch >= 1 && facts->global_batch <= FM_LIMIT_GLOBAL_BATCH);
    assert(facts->max_sample_bytes <= FM_LIMIT_FRAME_BYTES && facts->epoch_samples >= 1);
    if (params->n_group > facts->global_batch) {
        return fm_fail(reterr, FM_ERR_USAGE, "%u groups cannot share a global batch of %u",
                       params->n_group, facts->global_batch);
    }
    uint64_t epoch = params->token.watermark / facts->epoch_samples;
    if (params->token.watermark && epoch != params->token.epoch) {
        return fm_fail(
            reterr, FM_ERR_USAGE,
            "the resume token is of another plan: epoch %u, the watermark %llu is in %llu",
            params->token.epoch, (unsigned long long)params->token.watermark,
            (unsigned long long)epoch);
    }
    return FM_OK;
}

static fm_wire_opened opened_of(const fm_wire_open *params, const fm_source_facts *facts) {
    return (fm_wire_opened){
        .max_sample_bytes = facts->max_sample_bytes,
        .global_batch = facts->global_batch,
        .crop_size = facts->crop_size,
        .max_msa_clusters = facts->max_msa_clusters,
        .max_extra_msa = facts->max_extra_msa,
        .max_cycle = facts->max_cycle,
        .epoch_samples = facts->epoch_samples,
        .max_template_date = facts->max_template_date,
        .samples_per_step = fm_wire_open_per_step(params, facts->global_batch),
    };
}

static fm_server_stream *make_stream(fm_sample_source *source, const fm_wire_open *params,
                                     fm_budgets budgets, void *owner, void *plan,
                                     const fm_source_facts *facts) {
    uint32_t window = fm_wire_open_window(params, facts->global_batch);
    uint32_t n_slot = window + 1 > N_SLOT_MIN ? window + 1 : N_SLOT_MIN;
    fm_server_stream *stream = calloc(1, sizeof *stream + n_slot * sizeof stream->slot[0]);
    if (!stream) return NULL;
    stream->source = source;
    stream->budgets = budgets;
    stream->owner = owner;
    stream->params = *params;
    stream->opened = opened_of(params, facts);
    stream->plan = plan;
    stream->block_bytes = (facts->max_sample_bytes + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    stream->credit_items = params->credit_items;
    stream->credit_bytes = (int64_t)params->credit_bytes;
    stream->n_slot = n_slot;
    stream->window = window;
    set_range(stream);
    return stream;
}

/* A stream that could never have a block is refused when it is opened. */
static fm_status check_memory(const fm_server_stream *stream, fm_error *reterr) {
    size_t most = stream->budgets.peer->max_bytes;
    if (most > stream->budgets.server->max_bytes) most = stream->budgets.server->max_bytes;
    if (stream->block_bytes <= most) return FM_OK;
    return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                   "a sample of this plan takes up to %zu bytes, and the server has %zu for all "
                   "samples of a peer",
                   stream->block_bytes, most);
}

fm_status fm_server_stream_create(fm_sample_source *source, const fm_wire_open *params,
                                  fm_budgets budgets, void *owner, fm_server_stream **ret_stream,
                                  fm_error *reterr) {
    void *plan;
    fm_source_facts facts;
    fm_status status = source->open(source->context, params, &plan, &facts, reterr);
    if (status) return status;
    status = check_against_plan(params, &facts, reterr);
    if (status) {
        source->close(plan);
        return status;
    }
    fm_server_stream *stream = make_stream(source, params, budgets, owner, plan, &facts);
    status = stream ? check_memory(stream, reterr)
                    : fm_fail(reterr, FM_ERR_NOMEM, "the server has no memory for a stream");
    if (status) {
        free(stream);
        source->close(plan);
        return status;
    }
    source->n_user++;
    budgets.peer->n_stream++;
    budgets.server->n_stream++;
    *ret_stream = stream;
    return FM_OK;
}

void fm_server_stream_destroy(fm_server_stream *stream) {
    assert(fm_server_stream_is_idle(stream));
    leave_line(stream);
    give_free_blocks_back(stream);
    assert(stream->n_work == 0);
    stream->source->close(stream->plan);
    stream->source->n_user--;
    stream->budgets.peer->n_stream--;
    stream->budgets.server->n_stream--;
    free(stream);
}

void *fm_server_stream_get_owner(const fm_server_stream *stream) {
    return stream->owner;
}

fm_sample_source *fm_server_stream_get_source(const fm_server_stream *stream) {
    return stream->source;
}

const fm_wire_opened *fm_server_stream_get_opened(const fm_server_stream *stream) {
    return &stream->opened;
}

fm_wire_policy fm_server_stream_get_policy(const fm_server_stream *stream) {
    return (fm_wire_policy)stream->params.policy;
}

uint64_t fm_server_stream_get_n_sent(const fm_server_stream *stream) {
    return stream->n_sent;
}

/* -- making */

static slot *slot_at(fm_server_stream *stream, uint64_t position) {
    return &stream->slot[position % stream->n_slot];
}

/* How many samples must be under way, so that one that takes as long as one in two hundred is
 * ready when the consumer has used those before it. */
static void measure_look_ahead(fm_server_stream *stream) {
    if (stream->make_ns.n % MEASURE_EVERY != 0 || stream->interval_ns == 0) return;
    uint64_t n = fm_histogram_percentile(&stream->make_ns, 995) / stream->interval_ns + 1;
    stream->look_ahead = n < stream->n_slot ? (uint32_t)n : stream->n_slot;
}

static void note_pick(fm_server_stream *stream, uint64_t now_ns) {
    if (stream->picked_ns) {
        uint64_t gap = now_ns - stream->picked_ns, mean = stream->interval_ns;
        stream->interval_ns = mean ? mean - mean / MEASURE_EVERY + gap / MEASURE_EVERY : gap + 1;
    }
    stream->picked_ns = now_ns;
}

/* May a new sample begin? Credit limits the samples that are made but not sent; the ring of slots
 * limits how far they run ahead of head. */
static bool may_begin(fm_server_stream *stream) {
    if (stream->next_index >= stream->end_index) return false;
    if (slot_at(stream, stream->next_position)->state != SLOT_EMPTY) return false;
    uint64_t limit = stream->credit_items + AHEAD;
    if (stream->params.order == FM_WIRE_FREE) {
        /* A sample that is still being made delays no other, so only ready ones count. */
        return stream->n_pending < MOST_MAKING + limit &&
               stream->n_pending - stream->n_making < limit;
    }
    if (stream->credit_items && limit < stream->window + 1) limit = stream->window + 1;
    if (limit < stream->look_ahead) limit = stream->look_ahead;
    return stream->n_pending < limit;
}

/* The lowest position that must be made again; only when there is one. */
static uint64_t first_evicted(fm_server_stream *stream) {
    uint64_t p = stream->head;
    while (slot_at(stream, p)->state != SLOT_EVICTED)
        p++;
    assert(p < stream->next_position);
    return p;
}

static void free_work(fm_server_stream *stream, fm_work *work) {
    stream->n_under_way--;
    if (must_give_back(stream)) {
        give_block_back(stream, work);
        return;
    }
    work->next = stream->free_works;
    stream->free_works = work;
}

/* Frees the block of a ready sample for this stream; the sample is made again later. */
static void evict(fm_server_stream *stream, slot *at) {
    fm_work *work = at->work;
    *at = (slot){.state = SLOT_EVICTED, .index = work->job.index};
    stream->n_pending--;
    stream->n_evicted++;
    stream->n_under_way--;
    work->next = stream->free_works;
    stream->free_works = work;
}

/* Makes sure that there is a free block. A sample at head may have been evicted while later ones
 * were made; it then takes the block of the last that is ready, since those wait for it. */
static bool find_block(fm_server_stream *stream) {
    if (stream->free_works) return true;
    bool is_owed = stream->n_work == 0 && has_credit(stream);
    if ((is_owed || may_take_more(stream)) && take_block(stream)) return true;
    if (stream->n_evicted == 0 || first_evicted(stream) != stream->head || !has_credit(stream)) {
        return false;
    }
    for (uint64_t p = stream->next_position - 1; p > stream->head; p--) {
        if (slot_at(stream, p)->state != SLOT_READY) continue;
        evict(stream, slot_at(stream, p));
        return true;
    }
    return false;
}

static fm_job *begin(fm_server_stream *stream, uint64_t position, uint64_t index) {
    fm_work *work = stream->free_works;
    stream->free_works = work->next;
    work->position = position;
    work->job.index = index;
    *slot_at(stream, position) = (slot){.state = SLOT_MAKING, .work = work};
    stream->n_pending++;
    stream->n_making++;
    stream->n_under_way++;
    return &work->job;
}

fm_job *fm_server_stream_next_job(fm_server_stream *stream) {
    if (stream->is_abandoned) return NULL;
    if (stream->n_evicted) {
        uint64_t position = first_evicted(stream);
        bool is_due = position == stream->head || stream->n_pending < stream->credit_items;
        if (!is_due || !has_credit(stream) || !find_block(stream)) return NULL;
        stream->n_evicted--;
        return begin(stream, position, slot_at(stream, position)->index);
    }
    if (!may_begin(stream) || !find_block(stream)) return NULL;
    fm_job *job = begin(stream, stream->next_position++, stream->next_index++);
    settle(stream);
    return job;
}

bool fm_server_stream_got_in_line(fm_server_stream *stream) {
    bool got = stream->got_in_line;
    stream->got_in_line = false;
    return got;
}

uint32_t fm_server_stream_give_back(fm_server_stream *stream) {
    if (!is_contended(stream)) return 0;
    uint32_t before = stream->n_evicted;
    for (uint64_t p = stream->head; !has_credit(stream) && p < stream->next_position; p++) {
        if (slot_at(stream, p)->state == SLOT_READY) evict(stream, slot_at(stream, p));
    }
    give_free_blocks_back(stream);
    return stream->n_evicted - before;
}

void fm_server_stream_finish_job(fm_server_stream *stream, fm_job *job) {
    fm_work *work = job->owner;
    slot *at = slot_at(stream, work->position);
    assert(at->state == SLOT_MAKING);
    at->state = stream->is_abandoned ? SLOT_SENT : SLOT_READY;
    stream->n_making--;
    work->ready_ns = fm_clock_ns();
    fm_histogram_add(&stream->make_ns, job->end_ns - job->begin_ns);
    measure_look_ahead(stream);
    if (stream->is_abandoned) {
        stream->n_pending--;
        free_work(stream, work);
    }
}

/* -- sending */

/* Moves head over the positions that were picked, and empties the slots of those whose block is
 * free already. */
static void advance_head(fm_server_stream *stream) {
    while (stream->head < stream->next_position) {
        slot *at = slot_at(stream, stream->head);
        if (at->state != SLOT_SENDING && at->state != SLOT_SENT) return;
        if (at->state == SLOT_SENT) *at = (slot){.state = SLOT_EMPTY};
        stream->head++;
    }
}

/* The place of a position's sample in its group of the whole run. */
static uint64_t place_at(fm_server_stream *stream, uint64_t position) {
    const slot *at = slot_at(stream, position);
    uint64_t index = at->state == SLOT_EVICTED ? at->index : at->work->job.index;
    return fm_wire_open_place(&stream->params, stream->opened.global_batch, index);
}

fm_work *fm_server_stream_pick(fm_server_stream *stream) {
    if (stream->is_abandoned || !has_credit(stream)) return NULL;
    if (stream->head == stream->next_position) return NULL;
    /* Samples that the token names count as sent, by an earlier stream. So a sample that was
     * overtaken before a restart is not overtaken by another window of samples after it. */
    uint64_t last = place_at(stream, stream->head) + stream->window;
    for (uint64_t p = stream->head; p < stream->next_position; p++) {
        slot *at = slot_at(stream, p);
        if (at->state == SLOT_SENT || at->state == SLOT_SENDING) continue;
        if (place_at(stream, p) > last) return NULL;
        if (at->state != SLOT_READY) continue;
        fm_work *work = at->work;
        assert(work->position == p);
        at->state = SLOT_SENDING;
        stream->credit_items--;
        work->picked_ns = fm_clock_ns();
        note_pick(stream, work->picked_ns);
        fm_histogram_add(&stream->wait_ns, work->picked_ns - work->ready_ns);
        if (work->job.status) {
            stream->n_failed++;
        } else {
            stream->credit_bytes -= (int64_t)work->job.bytes;
            stream->n_byte += work->job.bytes;
            stream->n_sent++;
        }
        stream->n_pending--;
        advance_head(stream);
        return work;
    }
    return NULL;
}

void fm_server_stream_release(fm_server_stream *stream, fm_work *work) {
    slot *at = slot_at(stream, work->position);
    assert(at->state == SLOT_SENDING && at->work == work);
    *at = (slot){.state = work->position < stream->head ? SLOT_EMPTY : SLOT_SENT};
    uint64_t send_ns = fm_clock_ns() - work->picked_ns;
    if (stream->send_ns && !work->job.status) fm_histogram_add(stream->send_ns, send_ns);
    if (stream->consumer && !work->job.status) {
        fm_histogram_add(&stream->consumer->times.send, send_ns);
    }
    free_work(stream, work);
}

fm_status fm_server_stream_grant(fm_server_stream *stream, uint32_t items, uint64_t bytes,
                                 fm_error *reterr) {
    uint64_t all_items = stream->credit_items + items;
    int64_t all_bytes = stream->credit_bytes + (int64_t)bytes; /* both below 2^41 */
    if (all_items > FM_LIMIT_CREDIT_ITEMS || all_bytes > (int64_t)FM_LIMIT_CREDIT_BYTES) {
        return fm_fail(reterr, FM_ERR_LIMIT, "credit for %llu items and %lld bytes in all",
                       (unsigned long long)all_items, (long long)all_bytes);
    }
    stream->credit_items = all_items;
    stream->credit_bytes = all_bytes;
    return FM_OK;
}

bool fm_server_stream_is_delivered(const fm_server_stream *stream) {
    return stream->next_index >= stream->end_index && stream->head == stream->next_position;
}

void fm_server_stream_abandon(fm_server_stream *stream) {
    stream->owner = NULL;
    stream->is_abandoned = true;
    leave_line(stream);
    for (uint64_t p = stream->head; p < stream->next_position; p++) {
        slot *at = slot_at(stream, p);
        if (at->state != SLOT_READY) continue;
        at->state = SLOT_SENT;
        stream->n_pending--;
        free_work(stream, at->work);
    }
    give_free_blocks_back(stream);
}

bool fm_server_stream_is_idle(const fm_server_stream *stream) {
    return stream->n_under_way == 0;
}

/* -- for reports */

void fm_server_stream_set_label(fm_server_stream *stream, uint64_t connection, uint32_t id,
                                const char *peer, const char *agent) {
    fm_report_stream *label = &stream->label;
    label->connection = connection;
    label->stream = id;
    snprintf(label->peer, sizeof label->peer, "%s", peer);
    snprintf(label->agent, sizeof label->agent, "%s", agent);
    snprintf(label->plan, sizeof label->plan, "%s", stream->params.plan);
    snprintf(label->snapshot, sizeof label->snapshot, "%s", stream->source->snapshot_name);
    label->generation = stream->source->generation;
    label->group = stream->params.group;
    label->n_group = stream->params.n_group;
    label->window = stream->window;
    label->n_total = stream->opened.n_sample;
    stream->opened_ns = fm_clock_ns();
}

void fm_server_stream_set_send_times(fm_server_stream *stream, fm_histogram *send_ns) {
    stream->send_ns = send_ns;
}

void fm_server_stream_set_consumer(fm_server_stream *stream, fm_report_consumer *consumer) {
    stream->consumer = consumer;
}

fm_report_consumer *fm_server_stream_get_consumer(const fm_server_stream *stream) {
    return stream->consumer;
}

const fm_report_stream *fm_server_stream_get_label(const fm_server_stream *stream) {
    return &stream->label;
}

void fm_server_stream_describe(const fm_server_stream *stream, fm_report_stream *ret_row) {
    *ret_row = stream->label;
    ret_row->n_sample = stream->n_sent;
    ret_row->n_byte = stream->n_byte;
    ret_row->n_failed = stream->n_failed;
    ret_row->credit_items = stream->credit_items;
    ret_row->n_pending = stream->n_pending;
    ret_row->wait_p50_ns = fm_histogram_percentile(&stream->wait_ns, 500);
    ret_row->wait_p99_ns = fm_histogram_percentile(&stream->wait_ns, 990);
    ret_row->age_s = (double)(fm_clock_ns() - stream->opened_ns) * 1e-9;
}
