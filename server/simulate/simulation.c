/* simulation.c: see simulation.h.
 *
 * The simulation processes events in the order of time. The heap holds future events: a worker
 * finishes a sample, a sample arrives at its rank, a step ends. Between two events a server's idle
 * workers take samples from the streams that may begin one, in turn (begin_jobs), and ready samples
 * leave a stream while it has credit (send_ready). Events of the same moment happen in the order in
 * which they were planned, so a simulation has one result. */
#include "server/simulate/simulation.h"

#include "proto/base/rng.h"
#include "proto/wire.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Those of server/stream.c. */
enum {
    AHEAD = 2,
    N_SLOT_MIN = 64,
    MOST_MAKING = 256,
    MEASURE_EVERY = 16,
};
enum { LOADER_AHEAD = 2 }; /* samples that PyTorch asks of each worker ahead (prefetch_factor) */

static const double most_ms = 86400e3; /* a day */

typedef enum slot_state { EMPTY, MAKING, READY, SENT } slot_state;

typedef enum event_kind { JOB_DONE, ARRIVED, STEP_END } event_kind;

typedef struct event {
    uint64_t at_ns, number; /* planned as the number-th */
    event_kind kind;
    uint32_t rank;
    uint64_t place, ns; /* JOB_DONE: the job's time */
} event;

/* A rank and its stream. */
typedef struct rank_stream {
    uint8_t *slot; /* [n_slot] states of the places from head on */
    uint64_t head, next;
    uint32_t n_pending, n_making; /* READY or MAKING; of these MAKING */
    uint32_t credit, have;        /* have: samples that arrived and are not in use */
    uint32_t look_ahead;
    uint64_t interval_ns, picked_ns;
    bool is_in_line;
    fm_histogram make_ns;
} rank_stream;

typedef struct server {
    uint32_t n_idle;
    uint64_t link_free_ns;
    uint32_t *line; /* [streams_each] a ring: streams that may begin a sample */
    uint32_t first, n;
} server;

typedef struct model {
    const fm_simulation *plan;
    const fm_prepare_times *times;
    rank_stream *rank; /* [n_rank] that of rank r is at server r % n_server */
    server *server;    /* [n_server] */
    uint32_t n_slot, window, streams_each;
    event *heap;
    size_t n_event, capacity;
    uint64_t n_planned, now_ns;
    uint64_t step_ns, send_ns;
    bool is_waiting; /* for samples, since step_end_ns */
    uint32_t n_lacking;
    uint64_t step_end_ns, n_begun;
    bool is_out_of_memory;
    fm_simulated result;
} model;

double fm_simulated_time_ms(const fm_prepare_times *times, uint64_t seed, uint32_t rank,
                            uint64_t place) {
    fm_philox_counter drawn =
        fm_philox(seed, (fm_philox_counter){{(uint32_t)place, (uint32_t)(place >> 32), rank, 0}});
    uint64_t bits = drawn.word[0] | (uint64_t)drawn.word[1] << 32;
    return fm_prepare_times_at(times, (double)(bits >> 11) * 0x1p-53);
}

static uint64_t ns_of(double ms) {
    return (uint64_t)(ms * 1e6);
}

/* -- events */

static bool is_sooner(const event *a, const event *b) {
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->number < b->number;
}

static void plan_event(model *m, event e) {
    if (m->n_event == m->capacity) {
        size_t capacity = m->capacity * 2 + 1024;
        event *grown = realloc(m->heap, capacity * sizeof *grown);
        m->is_out_of_memory |= !grown;
        if (!grown) return;
        m->heap = grown;
        m->capacity = capacity;
    }
    e.number = m->n_planned++;
    size_t at = m->n_event++;
    for (; at && is_sooner(&e, &m->heap[(at - 1) / 2]); at = (at - 1) / 2)
        m->heap[at] = m->heap[(at - 1) / 2];
    m->heap[at] = e;
}

static event next_event(model *m) {
    assert(m->heap && m->n_event);
    event first = m->heap[0], last = m->heap[--m->n_event];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= m->n_event) break;
        if (child + 1 < m->n_event && is_sooner(&m->heap[child + 1], &m->heap[child])) child++;
        if (!is_sooner(&m->heap[child], &last)) break;
        m->heap[at] = m->heap[child];
        at = child;
    }
    m->heap[at] = last;
    return first;
}

/* -- steps */

static void begin_step(model *m) {
    const fm_simulation *plan = m->plan;
    uint64_t wait_ns = m->now_ns - m->step_end_ns;
    if (m->n_begun >= plan->n_warm) {
        fm_histogram_add(&m->result.wait_ns, wait_ns);
        m->result.wait_ms += (double)wait_ns * 1e-6;
        m->result.steps_ms += plan->step_ms;
    }
    m->n_begun++;
    m->is_waiting = false;
    for (uint32_t r = 0; r < plan->n_rank; r++)
        m->rank[r].have -= plan->per_rank;
    plan_event(m, (event){.at_ns = m->now_ns + m->step_ns, .kind = STEP_END});
}

static void take_sample(model *m, uint32_t r) {
    m->rank[r].have++;
    if (!m->is_waiting || m->rank[r].have != m->plan->per_rank) return;
    if (--m->n_lacking == 0) begin_step(m);
}

/* -- streams; the rules are those of server/stream.c */

static uint8_t *slot_at(const model *m, const rank_stream *stream, uint64_t place) {
    return &stream->slot[place % m->n_slot];
}

static bool may_begin(const model *m, const rank_stream *stream) {
    if (*slot_at(m, stream, stream->next) != EMPTY) return false;
    uint32_t limit = stream->credit + AHEAD;
    if (m->plan->order == FM_SIMULATED_FREE) {
        return stream->n_pending < MOST_MAKING + limit &&
               stream->n_pending - stream->n_making < limit;
    }
    if (stream->credit && limit < m->window + 1) limit = m->window + 1;
    if (limit < stream->look_ahead) limit = stream->look_ahead;
    return stream->n_pending < limit;
}

static void begin_job(model *m, server *s, uint32_t r) {
    rank_stream *stream = &m->rank[r];
    uint64_t ns = ns_of(fm_simulated_time_ms(m->times, m->plan->seed, r, stream->next));
    *slot_at(m, stream, stream->next) = MAKING;
    stream->n_pending++;
    stream->n_making++;
    s->n_idle--;
    m->result.work_ms += (double)ns * 1e-6;
    m->result.n_sample++;
    plan_event(m, (event){.at_ns = m->now_ns + ns,
                          .kind = JOB_DONE,
                          .rank = r,
                          .place = stream->next++,
                          .ns = ns});
}

static void begin_jobs(model *m, server *s) {
    while (s->n_idle && s->n) {
        uint32_t r = s->line[s->first];
        s->first = (s->first + 1) % m->streams_each;
        s->n--;
        m->rank[r].is_in_line = false;
        if (!may_begin(m, &m->rank[r])) continue;
        begin_job(m, s, r);
        if (!may_begin(m, &m->rank[r])) continue;
        s->line[(s->first + s->n++) % m->streams_each] = r;
        m->rank[r].is_in_line = true;
    }
}

/* Lets the stream take its turns if it may begin a sample. */
static void queue_stream(model *m, uint32_t r) {
    server *s = &m->server[r % m->plan->n_server];
    if (!m->rank[r].is_in_line && may_begin(m, &m->rank[r])) {
        s->line[(s->first + s->n++) % m->streams_each] = r;
        m->rank[r].is_in_line = true;
    }
    begin_jobs(m, s);
}

/* Sends one sample: the first that is ready within the window from head. */
static bool send_one(model *m, uint32_t r) {
    rank_stream *stream = &m->rank[r];
    uint64_t end = stream->head + m->window + 1, p = stream->head;
    if (end > stream->next) end = stream->next;
    while (p < end && *slot_at(m, stream, p) != READY)
        p++;
    if (p == end || stream->credit == 0) return false;
    *slot_at(m, stream, p) = SENT;
    stream->credit--;
    stream->n_pending--;
    if (stream->picked_ns) {
        uint64_t gap = m->now_ns - stream->picked_ns, mean = stream->interval_ns;
        stream->interval_ns = mean ? mean - mean / MEASURE_EVERY + gap / MEASURE_EVERY : gap + 1;
    }
    stream->picked_ns = m->now_ns;
    for (; stream->head < stream->next && *slot_at(m, stream, stream->head) == SENT; stream->head++)
        *slot_at(m, stream, stream->head) = EMPTY;
    server *s = &m->server[r % m->plan->n_server];
    if (m->send_ns == 0) {
        take_sample(m, r);
        return true;
    }
    if (s->link_free_ns < m->now_ns) s->link_free_ns = m->now_ns;
    s->link_free_ns += m->send_ns;
    plan_event(m, (event){.at_ns = s->link_free_ns, .kind = ARRIVED, .rank = r});
    return true;
}

static void send_ready(model *m, uint32_t r) {
    while (send_one(m, r)) {
    }
    queue_stream(m, r);
}

static void finish_job(model *m, const event *e) {
    rank_stream *stream = &m->rank[e->rank];
    *slot_at(m, stream, e->place) = READY;
    stream->n_making--;
    m->server[e->rank % m->plan->n_server].n_idle++;
    fm_histogram_add(&stream->make_ns, e->ns);
    if (stream->make_ns.n % MEASURE_EVERY == 0 && stream->interval_ns) {
        uint64_t n = fm_histogram_percentile(&stream->make_ns, 995) / stream->interval_ns + 1;
        stream->look_ahead = n < m->n_slot ? (uint32_t)n : m->n_slot;
    }
    send_ready(m, e->rank);
}

static void end_step(model *m) {
    const fm_simulation *plan = m->plan;
    m->step_end_ns = m->now_ns;
    for (uint32_t r = 0; r < plan->n_rank; r++) {
        m->rank[r].credit += plan->per_rank;
        send_ready(m, r);
    }
    m->n_lacking = 0;
    for (uint32_t r = 0; r < plan->n_rank; r++)
        m->n_lacking += m->rank[r].have < plan->per_rank;
    m->is_waiting = true;
    if (m->n_lacking == 0) begin_step(m);
}

/* -- running */

static bool make_model(model *m) {
    const fm_simulation *plan = m->plan;
    const fm_wire_open stream = {
        .order = plan->order == FM_SIMULATED_FREE ? FM_WIRE_FREE : FM_WIRE_BOUNDED,
        .window = plan->order == FM_SIMULATED_BOUNDED ? plan->window : 0,
        .n_group = plan->n_rank,
    };
    m->window = fm_wire_open_window(&stream, plan->n_rank * plan->per_rank);
    m->n_slot = m->window + 1 > N_SLOT_MIN ? m->window + 1 : N_SLOT_MIN;
    m->streams_each = (plan->n_rank + plan->n_server - 1) / plan->n_server;
    m->step_ns = ns_of(plan->step_ms);
    m->send_ns = ns_of(plan->send_ms);
    m->rank = calloc(plan->n_rank, sizeof *m->rank);
    m->server = calloc(plan->n_server, sizeof *m->server);
    if (!m->rank || !m->server) return false;
    for (uint32_t r = 0; r < plan->n_rank; r++) {
        m->rank[r].slot = calloc(m->n_slot, 1);
        if (!m->rank[r].slot) return false;
        m->rank[r].credit = plan->ahead;
    }
    for (uint32_t s = 0; s < plan->n_server; s++) {
        m->server[s].line = calloc(m->streams_each, sizeof *m->server[s].line);
        if (!m->server[s].line) return false;
        m->server[s].n_idle = plan->n_worker;
    }
    return true;
}

static void free_model(model *m) {
    for (uint32_t r = 0; m->rank && r < m->plan->n_rank; r++)
        free(m->rank[r].slot);
    for (uint32_t s = 0; m->server && s < m->plan->n_server; s++)
        free(m->server[s].line);
    free(m->rank);
    free(m->server);
    free(m->heap);
}

static void run_servers(model *m) {
    const fm_simulation *plan = m->plan;
    m->now_ns = m->step_end_ns = 1; /* in a stream, 0 means that nothing was picked */
    m->is_waiting = true;
    m->n_lacking = plan->n_rank;
    for (uint32_t r = 0; r < plan->n_rank; r++)
        queue_stream(m, r);
    while (m->n_begun < (uint64_t)plan->n_warm + plan->n_step && !m->is_out_of_memory) {
        event e = next_event(m);
        m->now_ns = e.at_ns;
        switch (e.kind) {
        case JOB_DONE: finish_job(m, &e); break;
        case ARRIVED: take_sample(m, e.rank); break;
        case STEP_END: end_step(m); break;
        }
    }
    m->result.total_ms = (double)(m->now_ns + m->step_ns) * 1e-6;
}

/* -- PyTorch's DataLoader */

/* The loader of one rank. Worker i % n prepares sample i after its previous sample, but not before
 * sample i was requested. The request is made when sample i - n * LOADER_AHEAD is used. */
typedef struct loader {
    uint64_t *free_ns;  /* [n] when worker k has finished its samples */
    uint64_t *asked_ns; /* [n * LOADER_AHEAD] of sample i at i % (n * LOADER_AHEAD) */
} loader;

/* Returns the time when all samples of a step are ready. Sample `first` is the first of each rank.
 */
static uint64_t find_ready(model *m, const loader *loaders, uint32_t n, uint64_t first) {
    const fm_simulation *plan = m->plan;
    uint64_t ready_ns = m->now_ns;
    for (uint32_t r = 0; r < plan->n_rank; r++) {
        const loader *of = &loaders[r];
        assert(of->free_ns && of->asked_ns);
        uint64_t used_ns = m->now_ns; /* this rank takes its samples one after the other */
        for (uint64_t i = first; i < first + plan->per_rank; i++) {
            uint64_t ns = ns_of(fm_simulated_time_ms(m->times, plan->seed, r, i));
            uint64_t *asked_ns = &of->asked_ns[i % (n * (uint64_t)LOADER_AHEAD)];
            uint64_t *free_ns = &of->free_ns[i % n];
            if (*free_ns < *asked_ns) *free_ns = *asked_ns;
            *free_ns += ns;
            if (used_ns < *free_ns) used_ns = *free_ns;
            *asked_ns = used_ns;
            m->result.work_ms += (double)ns * 1e-6;
            m->result.n_sample++;
        }
        if (ready_ns < used_ns) ready_ns = used_ns;
    }
    return ready_ns;
}

static void run_loaders(model *m, const loader *loaders, uint32_t n) {
    const fm_simulation *plan = m->plan;
    for (uint64_t k = 0; k < (uint64_t)plan->n_warm + plan->n_step; k++) {
        uint64_t ready_ns = find_ready(m, loaders, n, k * plan->per_rank);
        uint64_t wait_ns = ready_ns - m->now_ns;
        if (k >= plan->n_warm) {
            fm_histogram_add(&m->result.wait_ns, wait_ns);
            m->result.wait_ms += (double)wait_ns * 1e-6;
            m->result.steps_ms += plan->step_ms;
        }
        m->now_ns = ready_ns + m->step_ns;
    }
    m->result.total_ms = (double)m->now_ns * 1e-6;
}

static void simulate_loaders(model *m) {
    const fm_simulation *plan = m->plan;
    uint32_t n = (uint32_t)((uint64_t)plan->n_server * plan->n_worker / plan->n_rank);
    loader *loaders = calloc(plan->n_rank, sizeof *loaders);
    size_t each = (size_t)n * (1 + LOADER_AHEAD);
    uint64_t *times_ns = calloc(plan->n_rank, each * sizeof *times_ns);
    m->is_out_of_memory = !loaders || !times_ns;
    m->step_ns = ns_of(plan->step_ms);
    for (uint32_t r = 0; !m->is_out_of_memory && r < plan->n_rank; r++)
        loaders[r] = (loader){times_ns + r * each, times_ns + r * each + n};
    if (!m->is_out_of_memory) run_loaders(m, loaders, n);
    free(loaders);
    free(times_ns);
}

/* -- the parameters */

static fm_status check(const fm_simulation *plan, fm_error *reterr) {
    const struct {
        const char *name;
        uint64_t value, least, most;
    } rows[] = {
        {"ranks", plan->n_rank, 1, FM_SIMULATED_MOST_RANKS},
        {"samples of a rank in a step", plan->per_rank, 1, FM_LIMIT_GLOBAL_BATCH},
        {"samples of a step", (uint64_t)plan->n_rank * plan->per_rank, 1, FM_LIMIT_GLOBAL_BATCH},
        {"servers", plan->n_server, 1, plan->n_rank},
        {"workers of a server", plan->n_worker, 1, FM_SIMULATED_MOST_WORKERS},
        {"samples ahead", plan->ahead, plan->per_rank, FM_LIMIT_CREDIT_ITEMS},
        {"W of bounded:W", plan->window, plan->order == FM_SIMULATED_BOUNDED, FM_LIMIT_WINDOW},
        {"measured steps", plan->n_step, 1, UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].value >= rows[i].least && rows[i].value <= rows[i].most) continue;
        return fm_fail(reterr, FM_ERR_USAGE, "%s: found %llu, expected %llu to %llu", rows[i].name,
                       (unsigned long long)rows[i].value, (unsigned long long)rows[i].least,
                       (unsigned long long)rows[i].most);
    }
    uint64_t n_worker = (uint64_t)plan->n_server * plan->n_worker;
    if (plan->order == FM_SIMULATED_LOADER && n_worker < plan->n_rank) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "a data loader needs a worker for each of %u ranks; found %llu workers",
                       plan->n_rank, (unsigned long long)n_worker);
    }
    bool are_times = plan->step_ms > 0 && plan->step_ms <= most_ms && plan->send_ms >= 0 &&
                     plan->send_ms <= most_ms;
    return are_times ? FM_OK
                     : fm_fail(reterr, FM_ERR_USAGE,
                               "a step must take more than 0 ms, sending a sample at least 0, and "
                               "each at most a day");
}

fm_status fm_simulate(const fm_simulation *plan, const fm_prepare_times *times,
                      fm_simulated *ret_result, fm_error *reterr) {
    fm_status status = check(plan, reterr);
    if (status) return status;
    model m = {.plan = plan, .times = times};
    if (plan->order == FM_SIMULATED_LOADER) {
        simulate_loaders(&m);
    } else if (make_model(&m)) {
        run_servers(&m);
    } else {
        m.is_out_of_memory = true;
    }
    free_model(&m);
    if (m.is_out_of_memory) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a simulation");
    *ret_result = m.result;
    return FM_OK;
}
