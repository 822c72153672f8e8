/* test_sim_hosts.c [RUNS]: gathers of 2,080 ranks on 260 hosts along their tree (tree.h), under
 * virtual time: links with random latencies, processes that are killed, ranks that are stopped, and
 * hosts that are cut off. Each seed gives another order of events. RUNS seeds are tried (100).
 *
 * It checks that all ranks that are left learn of a mishap in time, by which rank, that no rank
 * goes on where another has failed, and how many bytes a rank sends. */
#include "trainer/dist/tree.h"

#include <assert.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { HOSTS = 260, HOST_RANKS = 8, RANKS = HOSTS * HOST_RANKS, WORD_BYTES = 568, NOBODY = -1 };
static const double seconds = 20, pause_s = 1, never = 1e9;
static int n_run = 100;

/* -- the world */

typedef enum event_kind {
    EVENT_BEGINS,    /* a rank begins its next gather */
    EVENT_COLLECTED, /* it has waited long enough for its children */
    EVENT_WAITED,    /* and for its parent */
    EVENT_GIVES,     /* the bytes of a subtree arrive at the parent */
    EVENT_ALL,       /* the bytes of all arrive at a child */
    EVENT_FAILS,     /* the reason of a failure arrives: `culprit` */
    EVENT_ENDS,      /* the end of a connection */
    EVENT_MISHAP,
} event_kind;

typedef struct event {
    double at;
    uint64_t turn; /* of events at one time: by their order */
    event_kind kind;
    int32_t rank, from, number, culprit;
} event;

typedef enum condition { WELL, KILLED, STOPPED, CUT_OFF, HAS_FAILED } condition;

/* Events that a rank has not looked at: it reads its children only while it collects. */
typedef struct mail {
    event *event;
    int32_t n, room;
} mail;

typedef struct sim_rank {
    condition condition;
    fm_tree_gather gather;
    int32_t number, n_done; /* the gather under way, from 1; gathers that this rank has completed */
    double began, failed;
    int32_t culprit;
    uint64_t sent;
    mail mail;
} sim_rank;

static fm_topology topology;
static fm_tree tree;
static sim_rank ranks[RANKS];
static event *heap;
static size_t n_heap, heap_room;
static uint64_t turn, seed;
static double now;

/* -- chance */

static uint64_t draw(void) {
    seed += 0x9e3779b97f4a7c15u;
    uint64_t x = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static double draw_below(double most) {
    return most * (double)(draw() >> 11) * 0x1p-53;
}

/* -- events */

static bool is_before(const event *a, const event *b) {
    return a->at < b->at || (a->at == b->at && a->turn < b->turn);
}

static void post(event e) {
    if (n_heap == heap_room) {
        heap_room = heap_room ? 2 * heap_room : 1024;
        heap = realloc(heap, heap_room * sizeof *heap);
        assert(heap);
    }
    e.turn = turn++;
    size_t i = n_heap++;
    for (; i && is_before(&e, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = e;
}

static event take(void) {
    const event first = heap[0], last = heap[--n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < n_heap; i = child) {
        if (child + 1 < n_heap && is_before(&heap[child + 1], &heap[child])) child++;
        if (!is_before(&heap[child], &last)) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return first;
}

/* A message takes 20 to 500 us, and longer the more bytes it has (10 GB/s). What was sent first
 * arrives first, because a later one is never faster than the time between both. */
static void send_to(int32_t from, int32_t to, event_kind kind, uint64_t bytes, int32_t culprit) {
    sim_rank *r = &ranks[from];
    if (r->condition == CUT_OFF || ranks[to].condition == CUT_OFF) {
        const int32_t a = topology.rank[from].host, b = topology.rank[to].host;
        if (a != b) return;
    }
    const double last = kind == EVENT_ENDS ? 501e-6 : 20e-6 + draw_below(480e-6);
    r->sent += bytes;
    post((event){.at = now + last + (double)bytes / 10e9,
                 .kind = kind,
                 .rank = to,
                 .from = from,
                 .number = r->number,
                 .culprit = culprit});
}

/* -- a rank, as meeting_tree.c has it */

static void act(int32_t rank, fm_tree_action action);

static void fail_rank(int32_t rank, int32_t culprit) {
    sim_rank *r = &ranks[rank];
    r->culprit = culprit;
    r->failed = now;
    act(rank, fm_tree_fail(&r->gather));
}

static void tell_peers(int32_t rank, event_kind kind, int32_t culprit) {
    for (int32_t c = fm_tree_child(&tree, rank); c >= 0; c = fm_tree_next(&tree, c))
        send_to(rank, c, kind, 0, culprit);
    if (tree.parent[rank] >= 0) send_to(rank, tree.parent[rank], kind, 0, culprit);
}

static void act(int32_t rank, fm_tree_action action) {
    sim_rank *r = &ranks[rank];
    switch (action) {
    case FM_TREE_DO_NOTHING: break;
    case FM_TREE_SEND_UP:
        send_to(rank, tree.parent[rank], EVENT_GIVES, (uint64_t)tree.size[rank] * WORD_BYTES,
                NOBODY);
        break;
    case FM_TREE_SEND_DOWN:
        for (int32_t c = fm_tree_child(&tree, rank); c >= 0; c = fm_tree_next(&tree, c))
            send_to(rank, c, EVENT_ALL, (uint64_t)RANKS * WORD_BYTES, NOBODY);
        r->n_done++;
        post((event){.at = now + pause_s, .kind = EVENT_BEGINS, .rank = rank});
        break;
    case FM_TREE_TELL:
        tell_peers(rank, EVENT_FAILS, r->culprit);
        tell_peers(rank, EVENT_ENDS, NOBODY);
        r->condition = HAS_FAILED;
        break;
    }
}

/* Whether the rank reads from that peer now. */
static bool reads(const sim_rank *r, const event *e) {
    if (r->gather.state == FM_TREE_COLLECTS) return true;
    return r->gather.state == FM_TREE_WAITS && e->from == tree.parent[e->rank];
}

static void hear(const event *e) {
    sim_rank *r = &ranks[e->rank];
    switch (e->kind) {
    case EVENT_GIVES:
        assert(e->number == r->number);
        act(e->rank, fm_tree_child_came(&r->gather));
        break;
    case EVENT_ALL:
        assert(e->number == r->number);
        act(e->rank, fm_tree_all_came(&r->gather));
        break;
    case EVENT_FAILS: fail_rank(e->rank, e->culprit); break;
    default: fail_rank(e->rank, e->from); break;
    }
}

static void keep(mail *m, const event *e) {
    if (m->n == m->room) {
        m->room = m->room ? 2 * m->room : 4;
        m->event = realloc(m->event, (size_t)m->room * sizeof *m->event);
        assert(m->event);
    }
    m->event[m->n++] = *e;
}

/* Reads what has come from those to whom the rank listens now. */
static void read_mail(sim_rank *r) {
    for (int32_t i = 0; i < r->mail.n && r->condition != HAS_FAILED;) {
        const event e = r->mail.event[i];
        if (!reads(r, &e)) {
            i++;
            continue;
        }
        r->mail.n--;
        memmove(&r->mail.event[i], &r->mail.event[i + 1],
                (size_t)(r->mail.n - i) * sizeof *r->mail.event);
        hear(&e);
        i = 0;
    }
}

static void begin(int32_t rank) {
    sim_rank *r = &ranks[rank];
    r->number++;
    r->began = now;
    const double collects = fm_tree_collects_s(&tree, rank, seconds);
    post((event){.at = now + collects, .kind = EVENT_COLLECTED, .rank = rank, .number = r->number});
    post((event){.at = now + fm_tree_waits_s(&tree, rank, seconds),
                 .kind = EVENT_WAITED,
                 .rank = rank,
                 .number = r->number});
    act(rank, fm_tree_begin(&tree, rank, &r->gather));
    read_mail(r);
}

/* The first child that has not given. In a gather no child gives twice, so what lies unread does
 * not matter. */
static int32_t find_late(int32_t rank) {
    for (int32_t c = fm_tree_child(&tree, rank); c >= 0; c = fm_tree_next(&tree, c)) {
        const sim_rank *child = &ranks[c];
        const bool has_given = child->number == ranks[rank].number &&
                               child->gather.state != FM_TREE_COLLECTS && child->condition == WELL;
        if (!has_given) return c;
    }
    return NOBODY;
}

static void run_out(const event *e) {
    sim_rank *r = &ranks[e->rank];
    const bool collects = e->kind == EVENT_COLLECTED;
    if (e->number != r->number) return;
    if (collects && r->gather.state == FM_TREE_COLLECTS) fail_rank(e->rank, find_late(e->rank));
    if (!collects && r->gather.state == FM_TREE_WAITS) fail_rank(e->rank, tree.parent[e->rank]);
}

/* -- a run */

typedef struct mishap {
    condition kind;
    int32_t rank; /* CUT_OFF: one of the host */
    double at;
} mishap;

static void befall(const mishap *m) {
    const int32_t host = topology.rank[m->rank].host;
    for (int32_t r = 0; r < RANKS; r++) {
        const bool is_hit = m->kind == CUT_OFF ? topology.rank[r].host == host : r == m->rank;
        if (is_hit && ranks[r].condition == WELL) ranks[r].condition = m->kind;
    }
    if (m->kind == KILLED) tell_peers(m->rank, EVENT_ENDS, NOBODY);
}

static void handle(const event *e, const mishap *m) {
    sim_rank *r = &ranks[e->rank];
    if (e->kind == EVENT_MISHAP) {
        befall(m);
        return;
    }
    if (r->condition == HAS_FAILED || r->condition == KILLED || r->condition == STOPPED) return;
    switch (e->kind) {
    case EVENT_BEGINS: begin(e->rank); break;
    case EVENT_COLLECTED:
    case EVENT_WAITED: run_out(e); break;
    default:
        keep(&r->mail, e);
        read_mail(r);
        break;
    }
}

static void simulate(const mishap *m, double until) {
    n_heap = 0;
    turn = 0;
    now = 0;
    for (int32_t r = 0; r < RANKS; r++) {
        const mail kept = ranks[r].mail;
        ranks[r] = (sim_rank){.gather.state = FM_TREE_HAS_ALL, /* it has not begun */
                              .failed = never,
                              .culprit = NOBODY,
                              .mail = kept};
        ranks[r].mail.n = 0;
        /* Not all are equally fast. */
        post((event){.at = draw_below(0.3), .kind = EVENT_BEGINS, .rank = r});
    }
    if (m) post((event){.at = m->at, .kind = EVENT_MISHAP});
    while (n_heap > 0) {
        const event e = take();
        if (e.at > until) break;
        now = e.at;
        handle(&e, m);
    }
}

static bool is_blamed_rightly(int32_t culprit, const mishap *m) {
    if (culprit == m->rank) return true;
    return m->kind == CUT_OFF && culprit >= 0 &&
           topology.rank[culprit].host == topology.rank[m->rank].host;
}

/* A rank that is cut off blames whom it does not reach. */
static void check(const mishap *m) {
    /* Nobody is silent for longer than a gather and its waits. */
    const double allowed =
        m->kind == KILLED ? pause_s + 1 : pause_s + fm_tree_waits_s(&tree, RANKS - 1, seconds) + 1;
    int32_t least = INT32_MAX, most = 0;
    for (int32_t r = 0; r < RANKS; r++) {
        const sim_rank *s = &ranks[r];
        const bool is_far =
            m->kind == CUT_OFF && topology.rank[r].host == topology.rank[m->rank].host;
        if (s->condition == KILLED || s->condition == STOPPED) continue;
        assert_int_equal(s->condition, HAS_FAILED);
        assert_true(s->failed <= m->at + allowed);
        if (!is_far) assert_true(is_blamed_rightly(s->culprit, m));
        if (s->n_done < least) least = s->n_done;
        if (s->n_done > most) most = s->n_done;
    }
    assert_true(most - least <= 1); /* some have the last result, and nobody a later one */
}

/* -- the tests */

static int set_up(void **state) {
    (void)state;
    fm_host *hosts = calloc(RANKS, sizeof *hosts);
    if (!hosts) return 1;
    for (int r = 0; r < RANKS; r++)
        snprintf(hosts[r].id, sizeof hosts[r].id, "%d", r / HOST_RANKS);
    fm_status status = fm_topology_make(hosts, RANKS, &topology, NULL);
    if (!status) status = fm_tree_make(&topology, &tree, NULL);
    free(hosts);
    return status ? 1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    for (int r = 0; r < RANKS; r++)
        free(ranks[r].mail.event);
    free(heap);
    fm_tree_free(&tree);
    fm_topology_free(&topology);
    return 0;
}

/* A star would send the words of all to each from rank 0. */
static void nobody_sends_much(void **state) {
    (void)state;
    seed = 1;
    simulate(NULL, 5);
    const uint64_t all = (uint64_t)RANKS * WORD_BYTES;
    for (int32_t r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].condition, WELL);
        assert_true(ranks[r].n_done >= 3);
        const uint64_t gathers = (uint64_t)ranks[r].number;
        assert_true(ranks[r].sent <= gathers * all * (FM_TREE_WIDTH + HOST_RANKS));
    }
    assert_true(ranks[0].sent / (uint64_t)ranks[0].number <= 23 * all);
}

static void mishaps_reach_all(void **state) {
    (void)state;
    static const condition kinds[] = {KILLED, STOPPED, CUT_OFF};
    for (int i = 0; i < n_run; i++) {
        seed = (uint64_t)i * 1000003;
        mishap m = {
            .kind = kinds[i % 3], .rank = (int32_t)(draw() % RANKS), .at = 0.5 + draw_below(3)};
        if (i % 4 == 3) m.rank -= m.rank % HOST_RANKS; /* a leader */
        if (m.kind == CUT_OFF && m.rank < HOST_RANKS) m.rank += HOST_RANKS;
        simulate(&m, 100);
        check(&m);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_sends_much),
        cmocka_unit_test(mishaps_reach_all),
    };
    if (argc > 1) n_run = (int)strtol(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
