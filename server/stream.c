/* stream.c: see stream.h for positions, credits and memory.
 *
 * The positions from `head` on are kept in a ring of slots. A slot goes through these states:
 *
 *     EMPTY --next_job--> MAKING --finish_job--> READY --pick--> SENDING --release--> SENT or EMPTY
 *
 * pick moves `head` over every position that is being sent or was sent. A block that is released
 * behind `head` empties its slot at once. One that is released before `head` reaches it (it was
 * sent out of order) leaves SENT, and `head` empties the slot when it passes. A new job needs an
 * EMPTY slot, so a position never meets an older one in its slot.
 *
 * `index` is a sample's number in the whole run, and `position` its number in this stream. They
 * differ, since the stream covers one group of each step and skips the samples of its token. */
#include "server/stream.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    AHEAD = 2,       /* samples made ahead of credit */
    N_SLOT_MIN = 64, /* slots of a stream with a small window */
    BLOCK_ALIGN = 4096,
};

typedef enum slot_state { SLOT_EMPTY, SLOT_MAKING, SLOT_READY, SLOT_SENDING, SLOT_SENT } slot_state;

typedef struct slot {
    slot_state state;
    fm_work *work;
} slot;

struct fm_server_stream {
    const fm_sample_source *source;
    fm_budget *budget;
    void *owner;
    fm_wire_open params;
    fm_wire_opened opened;
    void *plan;
    size_t block_bytes;
    fm_work *free_works;
    uint32_t n_work;                /* blocks of this stream */
    uint32_t n_pending;             /* samples MAKING or READY */
    uint32_t n_under_way;           /* blocks that are not free */
    uint64_t next_index, end_index; /* of the next job; there is none when they are equal */
    uint64_t head, next_position, n_sent;
    uint64_t credit_items;
    int64_t credit_bytes;
    bool is_abandoned;
    uint32_t n_slot;
    slot slot[]; /* [n_slot] that of a position is slot[position % n_slot] */
};

/* -- sample numbers */

static bool is_wanted(const fm_server_stream *stream, uint64_t index) {
    uint32_t in_step = (uint32_t)(index % stream->opened.global_batch);
    return in_step % stream->params.n_group == stream->params.group &&
           !fm_token_has(&stream->params.token, index);
}

/* Moves next_index to the first wanted index at or after it. */
static void settle(fm_server_stream *stream) {
    while (stream->next_index < stream->end_index && !is_wanted(stream, stream->next_index))
        stream->next_index++;
}

/* The number of slots s < in_step with s % n_group == group. */
static uint64_t slots_below(uint64_t in_step, uint64_t group, uint64_t n_group) {
    return in_step > group ? (in_step - group + n_group - 1) / n_group : 0;
}

/* The number of indices below `index` that belong to the group. */
static uint64_t group_count(const fm_server_stream *stream, uint64_t index) {
    uint64_t batch = stream->opened.global_batch, g = stream->params.group;
    uint64_t per_step = slots_below(batch, g, stream->params.n_group);
    return index / batch * per_step + slots_below(index % batch, g, stream->params.n_group);
}

/* The number of samples that the stream will deliver: those of the group in its steps, without
 * those of the token. The bits of the token are checked one by one; below its watermark, all
 * are. */
static uint64_t count_samples(const fm_server_stream *stream) {
    if (stream->params.n_step == 0) return UINT64_MAX;
    const fm_token *token = &stream->params.token;
    uint64_t start = stream->params.first_step * stream->opened.global_batch;
    if (start < token->watermark) start = token->watermark;
    if (start >= stream->end_index) return 0;
    uint64_t n = group_count(stream, stream->end_index) - group_count(stream, start);
    for (uint64_t k = 0; k < (uint64_t)token->bitmap_bytes * 8; k++) {
        uint64_t index = token->watermark + k;
        uint32_t in_step = (uint32_t)(index % stream->opened.global_batch);
        bool ours = in_step % stream->params.n_group == stream->params.group;
        if (index >= start && index < stream->end_index && ours && fm_token_has(token, index)) n--;
    }
    return n;
}

static void set_range(fm_server_stream *stream) {
    uint64_t batch = stream->opened.global_batch;
    uint64_t last_step = stream->params.n_step ? stream->params.first_step + stream->params.n_step
                                               : 2 * FM_LIMIT_STEP;
    stream->end_index = last_step * batch;
    stream->opened.n_sample = count_samples(stream);
    stream->next_index = stream->params.first_step * batch;
    if (stream->next_index < stream->params.token.watermark) {
        stream->next_index = stream->params.token.watermark;
    }
    settle(stream);
}

/* -- memory */

/* Limits the blocks beyond a stream's first to a quarter of the budget for one stream and three
 * quarters for all. Clients that do not read thus leave memory for new streams. */
static bool may_take_more(const fm_server_stream *stream) {
    const fm_budget *budget = stream->budget;
    return (stream->n_work + 1) * stream->block_bytes <= budget->max_bytes / 4 &&
           budget->used_bytes + stream->block_bytes <= budget->max_bytes / 4 * 3;
}

/* Takes one more block from the budget; false when there is none. */
static bool take_block(fm_server_stream *stream) {
    fm_budget *budget = stream->budget;
    if (stream->block_bytes > budget->max_bytes - budget->used_bytes) return false;
    fm_work *work = calloc(1, sizeof *work);
    uint8_t *out = work ? aligned_alloc(BLOCK_ALIGN, stream->block_bytes) : NULL;
    if (!out) {
        free(work);
        return false;
    }
    budget->used_bytes += stream->block_bytes;
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

static void give_block_back(fm_server_stream *stream, fm_work *work) {
    stream->budget->used_bytes -= stream->block_bytes;
    stream->n_work--;
    free(work->job.out);
    free(work);
}

/* True when less than a quarter is left; streams then give their free blocks back. */
static bool is_memory_short(const fm_budget *budget) {
    return budget->max_bytes - budget->used_bytes < budget->max_bytes / 4;
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
        .samples_per_step =
            (uint32_t)slots_below(facts->global_batch, params->group, params->n_group),
    };
}

static fm_server_stream *make_stream(const fm_sample_source *source, const fm_wire_open *params,
                                     fm_budget *budget, void *owner, void *plan,
                                     const fm_source_facts *facts) {
    uint32_t n_slot = params->window + 1 > N_SLOT_MIN ? params->window + 1 : N_SLOT_MIN;
    fm_server_stream *stream = calloc(1, sizeof *stream + n_slot * sizeof stream->slot[0]);
    if (!stream) return NULL;
    stream->source = source;
    stream->budget = budget;
    stream->owner = owner;
    stream->params = *params;
    stream->opened = opened_of(params, facts);
    stream->plan = plan;
    stream->block_bytes = (facts->max_sample_bytes + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    stream->credit_items = params->credit_items;
    stream->credit_bytes = (int64_t)params->credit_bytes;
    stream->n_slot = n_slot;
    set_range(stream);
    return stream;
}

fm_status fm_server_stream_create(const fm_sample_source *source, const fm_wire_open *params,
                                  fm_budget *budget, void *owner, fm_server_stream **ret_stream,
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
    fm_server_stream *stream = make_stream(source, params, budget, owner, plan, &facts);
    if (!stream || !take_block(stream)) {
        free(stream);
        source->close(plan);
        return fm_fail(reterr, FM_ERR_LIMIT,
                       "the server has no memory left for a sample of %zu bytes: %zu of %zu are "
                       "taken",
                       facts.max_sample_bytes, budget->used_bytes, budget->max_bytes);
    }
    *ret_stream = stream;
    return FM_OK;
}

void fm_server_stream_destroy(fm_server_stream *stream) {
    assert(fm_server_stream_is_idle(stream));
    while (stream->free_works) {
        fm_work *work = stream->free_works;
        stream->free_works = work->next;
        give_block_back(stream, work);
    }
    assert(stream->n_work == 0);
    stream->source->close(stream->plan);
    free(stream);
}

void *fm_server_stream_get_owner(const fm_server_stream *stream) {
    return stream->owner;
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

/* May a job begin? Credit limits the samples that are made but not sent; the ring of slots limits
 * how far they run ahead of head. */
static bool may_begin(fm_server_stream *stream) {
    if (stream->is_abandoned || stream->next_index >= stream->end_index) return false;
    uint64_t limit = stream->credit_items + AHEAD;
    if (stream->credit_items && limit < stream->params.window + 1) {
        limit = stream->params.window + 1;
    }
    return stream->n_pending < limit &&
           slot_at(stream, stream->next_position)->state == SLOT_EMPTY &&
           (stream->free_works || (may_take_more(stream) && take_block(stream)));
}

fm_job *fm_server_stream_next_job(fm_server_stream *stream) {
    if (!may_begin(stream)) return NULL;
    fm_work *work = stream->free_works;
    stream->free_works = work->next;
    work->position = stream->next_position++;
    work->job.index = stream->next_index++;
    settle(stream);
    *slot_at(stream, work->position) = (slot){SLOT_MAKING, work};
    stream->n_pending++;
    stream->n_under_way++;
    return &work->job;
}

static void free_work(fm_server_stream *stream, fm_work *work) {
    stream->n_under_way--;
    if (stream->n_work > 1 && (stream->is_abandoned || is_memory_short(stream->budget))) {
        give_block_back(stream, work);
        return;
    }
    work->next = stream->free_works;
    stream->free_works = work;
}

void fm_server_stream_finish_job(fm_server_stream *stream, fm_job *job) {
    fm_work *work = job->owner;
    assert(slot_at(stream, work->position)->state == SLOT_MAKING);
    slot_at(stream, work->position)->state = SLOT_READY;
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
        if (at->state == SLOT_SENT) *at = (slot){SLOT_EMPTY, NULL};
        stream->head++;
    }
}

fm_work *fm_server_stream_pick(fm_server_stream *stream) {
    if (stream->is_abandoned || stream->credit_items == 0 || stream->credit_bytes <= 0) return NULL;
    uint64_t last = stream->head + stream->params.window;
    for (uint64_t p = stream->head; p <= last && p < stream->next_position; p++) {
        slot *at = slot_at(stream, p);
        if (at->state != SLOT_READY) continue;
        fm_work *work = at->work;
        assert(work->position == p);
        at->state = SLOT_SENDING;
        stream->credit_items--;
        if (!work->job.status) {
            stream->credit_bytes -= (int64_t)work->job.bytes;
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
    *at = (slot){work->position < stream->head ? SLOT_EMPTY : SLOT_SENT, NULL};
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
    for (uint64_t p = stream->head; p < stream->next_position; p++) {
        slot *at = slot_at(stream, p);
        if (at->state != SLOT_READY) continue;
        at->state = SLOT_SENT;
        stream->n_pending--;
        free_work(stream, at->work);
    }
}

bool fm_server_stream_is_idle(const fm_server_stream *stream) {
    return stream->n_under_way == 0;
}
