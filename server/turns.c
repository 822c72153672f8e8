/* turns.c: see turns.h. Peers and streams are kept in arrays in the order of their turns. */
#include "server/turns.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The streams of a peer. */
typedef struct peer_streams {
    const void *peer;
    fm_server_stream **stream; /* [capacity] */
    size_t n, capacity;
    size_t turn; /* the stream that is asked next */
} peer_streams;

struct fm_turns {
    fm_counters *counters;
    peer_streams *peers; /* [peers_capacity] */
    size_t n_peer, peers_capacity;
    size_t turn;                /* the peer that is asked next */
    fm_server_stream **dropped; /* [dropped_capacity] not idle yet */
    size_t n_dropped, dropped_capacity;
    size_t n_stream; /* of peers and dropped */
};

fm_status fm_turns_create(fm_counters *counters, fm_turns **ret_turns, fm_error *reterr) {
    fm_turns *turns = calloc(1, sizeof *turns);
    if (!turns) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the streams of a server");
    turns->counters = counters;
    *ret_turns = turns;
    return FM_OK;
}

void fm_turns_destroy(fm_turns *turns) {
    if (!turns) return;
    assert(turns->n_stream == 0);
    for (size_t i = 0; i < turns->n_peer; i++) /* one without streams, for which memory ran out */
        free(turns->peers[i].stream);
    free(turns->peers);
    free(turns->dropped);
    free(turns);
}

/* -- adding and dropping */

/* The array with room for one more element of `size` bytes than n; NULL when there is no memory,
 * and the array stays as it is. */
static void *grow(void *array, size_t size, size_t n, size_t *capacity) {
    if (n < *capacity) return array;
    void *grown = realloc(array, (*capacity * 2 + 4) * size);
    if (grown) *capacity = *capacity * 2 + 4;
    return grown;
}

/* Makes room for one more stream of the peer, and for all streams among the dropped ones. */
static bool make_room(fm_turns *turns, peer_streams *of) {
    fm_server_stream **streams = grow(of->stream, sizeof *streams, of->n, &of->capacity);
    if (!streams) return false;
    of->stream = streams;
    streams = grow(turns->dropped, sizeof *streams, turns->n_stream, &turns->dropped_capacity);
    if (!streams) return false;
    turns->dropped = streams;
    return true;
}

static peer_streams *find_peer(fm_turns *turns, const void *peer) {
    for (size_t i = 0; i < turns->n_peer; i++) {
        if (turns->peers[i].peer == peer) return &turns->peers[i];
    }
    return NULL;
}

/* Adds a peer without streams; NULL when there is no memory. */
static peer_streams *add_peer(fm_turns *turns, const void *peer) {
    peer_streams *peers = grow(turns->peers, sizeof *peers, turns->n_peer, &turns->peers_capacity);
    if (!peers) return NULL;
    turns->peers = peers;
    peers[turns->n_peer] = (peer_streams){.peer = peer};
    return &peers[turns->n_peer++];
}

fm_status fm_turns_add(fm_turns *turns, const void *peer, fm_server_stream *stream,
                       fm_error *reterr) {
    peer_streams *of = find_peer(turns, peer);
    if (!of) of = add_peer(turns, peer);
    if (!of || !make_room(turns, of)) {
        return fm_fail(reterr, FM_ERR_NOMEM, "the server has no memory for a stream");
    }
    of->stream[of->n++] = stream;
    turns->n_stream++;
    return FM_OK;
}

/* Removes element `at` of an array of *n elements, keeping the order and whose turn it is. */
static void remove_at(void *first, size_t size, size_t at, size_t *n, size_t *turn) {
    uint8_t *bytes = first;
    memmove(bytes + at * size, bytes + (at + 1) * size, (*n - at - 1) * size);
    (*n)--;
    if (*turn > at) (*turn)--;
}

void fm_turns_drop(fm_turns *turns, const void *peer, fm_server_stream *stream) {
    peer_streams *of = find_peer(turns, peer);
    size_t at = 0;
    while (of->stream[at] != stream)
        at++;
    remove_at(of->stream, sizeof of->stream[0], at, &of->n, &of->turn);
    turns->dropped[turns->n_dropped++] = stream; /* add made room for it */
    if (of->n) return;
    free(of->stream);
    remove_at(turns->peers, sizeof turns->peers[0], (size_t)(of - turns->peers), &turns->n_peer,
              &turns->turn);
}

void fm_turns_reap(fm_turns *turns) {
    for (size_t i = 0; i < turns->n_dropped;) {
        if (!fm_server_stream_is_idle(turns->dropped[i])) {
            i++;
            continue;
        }
        fm_server_stream_destroy(turns->dropped[i]);
        turns->dropped[i] = turns->dropped[--turns->n_dropped];
        turns->n_stream--;
    }
}

size_t fm_turns_get_n_stream(const fm_turns *turns) {
    return turns->n_stream;
}

/* -- jobs */

void fm_turns_reclaim(fm_turns *turns) {
    uint64_t n_evicted = 0;
    for (size_t p = 0; p < turns->n_peer; p++) {
        for (size_t i = 0; i < turns->peers[p].n; i++)
            n_evicted += fm_server_stream_give_back(turns->peers[p].stream[i]);
    }
    fm_count(turns->counters, FM_COUNT_SAMPLES_REMADE, n_evicted);
}

static fm_job *ask(fm_turns *turns, fm_server_stream *stream) {
    fm_job *job = fm_server_stream_next_job(stream);
    if (job || !fm_server_stream_got_in_line(stream)) return job;
    fm_count(turns->counters, FM_COUNT_MEMORY_WAITS, 1);
    fm_turns_reclaim(turns);
    return fm_server_stream_next_job(stream);
}

static fm_job *ask_peer(fm_turns *turns, peer_streams *of) {
    for (size_t i = 0; i < of->n; i++) {
        of->turn %= of->n;
        fm_job *job = ask(turns, of->stream[of->turn++]);
        if (job) return job;
    }
    return NULL;
}

fm_job *fm_turns_next_job(fm_turns *turns) {
    for (size_t i = 0; i < turns->n_peer; i++) {
        turns->turn %= turns->n_peer;
        fm_job *job = ask_peer(turns, &turns->peers[turns->turn++]);
        if (job) return job;
    }
    return NULL;
}

size_t fm_turns_describe(const fm_turns *turns, fm_report_stream *rows, size_t capacity) {
    size_t n = 0;
    for (size_t p = 0; p < turns->n_peer; p++) {
        const peer_streams *of = &turns->peers[p];
        for (size_t i = 0; i < of->n && n < capacity; i++)
            fm_server_stream_describe(of->stream[i], &rows[n++]);
    }
    return n;
}
