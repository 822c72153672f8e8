/* meeting_tree.c: see meeting_tree.h. A rank receives from one child after another as they come,
 * and listens to its parent and the other children meanwhile. These speak then only to say that the
 * gather has failed. */
#include "trainer/dist/meeting_tree.h"

#include "proto/base/histogram.h"
#include "trainer/dist/host_connect.h"
#include "trainer/dist/meeting_link.h"
#include "trainer/dist/meeting_open.h"
#include "trainer/dist/tree.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OWN_GROUP = -1 }; /* of the connections, beside those of exchanges */

typedef struct peer {
    fm_attendee who;
    int32_t rank;
    bool has_come; /* a child, in the gather under way */
} peer;

struct fm_meeting_tree {
    fm_tree tree;
    int32_t rank, n_child;
    bool has_parent;
    peer *peer;           /* [n_child + 1] the children, then the parent */
    struct pollfd *polls; /* [n_child + 1] */
    uint8_t *below;       /* the bytes of this rank's subtree; grows */
    size_t room;
    fm_ear ear;
};

/* -- opening */

/* What a rank is called in messages. */
typedef struct card {
    int32_t process;
} card;

static int32_t n_peer(const fm_meeting_tree *t) {
    return t->n_child + (t->has_parent ? 1 : 0);
}

static fm_status connect_peers(fm_meeting_tree *t, fm_meeting *meeting, const fm_topology *topology,
                               fm_host_end *ends, int *fds, card *all, double seconds,
                               fm_error *reterr) {
    const card own = {.process = getpid()};
    for (int32_t i = 0; i < n_peer(t); i++)
        ends[i] = (fm_host_end){OWN_GROUP, t->peer[i].rank};
    fm_status status = fm_meeting_gather(meeting, &own, sizeof own, all, seconds, reterr);
    if (!status) status = fm_host_connect(meeting, topology, ends, n_peer(t), seconds, fds, reterr);
    for (int32_t i = 0; i < n_peer(t) && !status; i++) {
        peer *p = &t->peer[i];
        p->who.fd = fds[i];
        snprintf(p->who.name, sizeof p->who.name, "rank %d (process %d on %s)", (int)p->rank,
                 (int)all[p->rank].process, topology->host[topology->rank[p->rank].host].name);
    }
    return status;
}

static fm_status open_with(fm_meeting_tree *t, fm_meeting *meeting, const fm_topology *topology,
                           double seconds, fm_error *reterr) {
    fm_status status = fm_tree_make(topology, &t->tree, reterr);
    if (status) return status;
    t->rank = fm_meeting_rank(meeting);
    t->n_child = fm_tree_children(&t->tree, t->rank);
    t->has_parent = t->rank > 0;
    const size_t n = (size_t)t->n_child + 1;
    t->peer = calloc(n, sizeof *t->peer);
    t->polls = calloc(n, sizeof *t->polls);
    fm_host_end *ends = calloc(n, sizeof *ends);
    int *fds = calloc(n, sizeof *fds);
    card *all = calloc((size_t)topology->n_rank, sizeof *all);
    for (size_t i = 0; i < n && t->peer; i++)
        t->peer[i].who.fd = -1;
    if (t->peer && t->polls && ends && fds && all) {
        int32_t child = fm_tree_child(&t->tree, t->rank);
        for (int32_t i = 0; i < t->n_child; i++, child = fm_tree_next(&t->tree, child))
            t->peer[i].rank = child;
        if (t->has_parent) t->peer[t->n_child].rank = t->tree.parent[t->rank];
        status = connect_peers(t, meeting, topology, ends, fds, all, seconds, reterr);
    } else {
        status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for the tree of the hosts");
    }
    free(ends);
    free(fds);
    free(all);
    return status;
}

fm_status fm_meeting_tree_open(fm_meeting *meeting, const fm_topology *topology, double seconds,
                               fm_meeting_tree **ret_tree, fm_error *reterr) {
    fm_meeting_tree *tree = calloc(1, sizeof *tree);
    if (!tree) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the tree of the hosts");
    fm_status status = open_with(tree, meeting, topology, seconds, reterr);
    if (status) {
        fm_meeting_tree_close(tree);
        return status;
    }
    *ret_tree = tree;
    return FM_OK;
}

void fm_meeting_tree_cancel(fm_meeting_tree *tree) {
    for (int32_t i = 0; i < n_peer(tree); i++)
        if (tree->peer[i].who.fd >= 0) shutdown(tree->peer[i].who.fd, SHUT_RDWR);
}

void fm_meeting_tree_heed(fm_meeting_tree *tree, const fm_ear *ear) {
    tree->ear = *ear;
}

void fm_meeting_tree_close(fm_meeting_tree *tree) {
    if (!tree) return;
    for (int32_t i = 0; tree->peer && i < n_peer(tree); i++)
        if (tree->peer[i].who.fd >= 0) close(tree->peer[i].who.fd);
    fm_tree_free(&tree->tree);
    free(tree->peer);
    free(tree->polls);
    free(tree->below);
    free(tree);
}

/* -- a gather */

/* One gather on its way through this rank. */
typedef struct passage {
    fm_meeting_tree *t;
    fm_tree_gather state;
    uint32_t number;
    size_t bytes; /* of a rank */
    uint8_t *all;
    double seconds;
    uint64_t collects_ns, waits_ns; /* deadlines */
} passage;

/* Receives a frame from a peer, whose error names it unless it has told a reason. */
static fm_status receive_from(const passage *g, int32_t number, fm_frame_kind kind, size_t bytes,
                              uint8_t *to, uint64_t deadline_ns, fm_error *error) {
    const fm_attendee *who = &g->t->peer[number].who;
    const fm_frame frame = {kind, g->number, (uint32_t)bytes, 0};
    bool is_reason;
    fm_status status = fm_link_receive_frame(who->fd, &frame, to, deadline_ns, &is_reason, error);
    return !status || is_reason ? status : fm_attendee_fail(who, status, error);
}

static fm_status send_to(const passage *g, int32_t number, const fm_frame *frame,
                         const uint8_t *from, fm_error *error) {
    const fm_attendee *who = &g->t->peer[number].who;
    fm_status status = fm_link_send(who->fd, frame, from, g->waits_ns, error);
    return status ? fm_attendee_fail(who, status, error) : FM_OK;
}

/* Lists the children that have not come, as far as they fit. */
static fm_status fail_late(const passage *g, fm_error *error) {
    char names[256] = "";
    int32_t n_late = 0;
    for (int32_t i = 0; i < g->t->n_child; i++) {
        const size_t at = strlen(names);
        if (g->t->peer[i].has_come || n_late++ >= 2) continue;
        snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", g->t->peer[i].who.name);
    }
    return fm_fail(error, FM_ERR_CLOSED, "%s%s did not come to gather %u within %.0f s", names,
                   n_late > 2 ? " and others" : "", g->number, g->seconds);
}

/* Takes the bytes of a child's subtree to their place among those of this rank's. */
static fm_status take_child(passage *g, int32_t i, fm_error *error) {
    fm_meeting_tree *t = g->t;
    const int32_t child = t->peer[i].rank;
    const size_t at = (size_t)(t->tree.first[child] - t->tree.first[t->rank]) * g->bytes;
    fm_status status = receive_from(g, i, FM_FRAME_GIVE, (size_t)t->tree.size[child] * g->bytes,
                                    t->below + at, g->collects_ns, error);
    t->peer[i].has_come = !status;
    return status;
}

/* Waits for the children that have not come. The others and the parent have nothing good to say. */
static fm_status collect(passage *g, fm_tree_action *action, fm_error *error) {
    fm_meeting_tree *t = g->t;
    fm_status status = FM_OK;
    while (!status && g->state.state == FM_TREE_COLLECTS) {
        for (int32_t i = 0; i < n_peer(t); i++)
            t->polls[i] = (struct pollfd){.fd = t->peer[i].who.fd, .events = POLLIN};
        int ready;
        status = fm_link_wait(t->polls, n_peer(t), g->collects_ns, &t->ear, &ready, error);
        if (!status && ready == 0) return fail_late(g, error);
        for (int32_t i = 0; i < n_peer(t) && !status; i++) {
            if (!t->polls[i].revents) continue;
            if (i == t->n_child || t->peer[i].has_come) {
                status = receive_from(g, i, FM_FRAME_FAIL, 0, g->all, g->collects_ns, error);
            } else {
                status = take_child(g, i, error);
                if (!status) *action = fm_tree_child_came(&g->state);
            }
        }
    }
    return status;
}

/* Receives the bytes of all ranks from the parent. */
static fm_status hear_parent(const passage *g, size_t all_bytes, fm_error *error) {
    fm_meeting_tree *t = g->t;
    const fm_attendee *parent = &t->peer[t->n_child].who;
    const uint64_t begin_ns = fm_clock_ns();
    int ready;
    t->polls[0] = (struct pollfd){.fd = parent->fd, .events = POLLIN};
    fm_status status = fm_link_wait(t->polls, 1, g->waits_ns, &t->ear, &ready, error);
    if (status) return status;
    if (ready > 0) {
        return receive_from(g, t->n_child, FM_FRAME_ALL, all_bytes, g->all, g->waits_ns, error);
    }
    status = fm_fail(error, FM_ERR_CLOSED, "did not answer within %.0f s",
                     (double)(fm_clock_ns() - begin_ns) * 1e-9);
    return fm_attendee_fail(parent, status, error);
}

/* Puts the bytes of all ranks into the order of ranks. */
static void sort(const passage *g) {
    const fm_tree *tree = &g->t->tree;
    for (int32_t at = 0; at < tree->n_rank; at++)
        memcpy(g->all + (size_t)tree->order[at] * g->bytes, g->t->below + (size_t)at * g->bytes,
               g->bytes);
}

/* The frame of a gather with these bytes. */
static fm_frame frame_of(const passage *g, fm_frame_kind kind, const uint8_t *from, size_t bytes) {
    return (fm_frame){kind, g->number, (uint32_t)bytes, fm_frame_check(from, bytes)};
}

static fm_status pass(passage *g, fm_error *error) {
    fm_meeting_tree *t = g->t;
    const size_t all_bytes = (size_t)t->tree.n_rank * g->bytes;
    fm_tree_action action = fm_tree_begin(&t->tree, t->rank, &g->state);
    fm_status status = collect(g, &action, error);
    if (!status && action == FM_TREE_SEND_UP) {
        const size_t bytes = (size_t)t->tree.size[t->rank] * g->bytes;
        const fm_frame give = frame_of(g, FM_FRAME_GIVE, t->below, bytes);
        status = send_to(g, t->n_child, &give, t->below, error);
        /* Where the parent has ended the connection, its reason may still be there to read. */
        fm_status waited = hear_parent(g, all_bytes, error);
        status = waited ? waited : status;
        if (!status) action = fm_tree_all_came(&g->state);
    } else if (!status) {
        sort(g);
    }
    if (status || action != FM_TREE_SEND_DOWN) return status;
    const fm_frame down = frame_of(g, FM_FRAME_ALL, g->all, all_bytes);
    for (int32_t i = 0; i < t->n_child && !status; i++)
        status = send_to(g, i, &down, g->all, error);
    return status;
}

fm_status fm_meeting_tree_gather(fm_meeting_tree *tree, uint32_t number, const void *mine,
                                 size_t bytes, void *all, double seconds, fm_error *error) {
    const double waits_s = fm_tree_waits_s(&tree->tree, tree->rank, seconds);
    const double collects_s = fm_tree_collects_s(&tree->tree, tree->rank, seconds);
    passage g = {.t = tree,
                 .number = number,
                 .bytes = bytes,
                 .all = all,
                 .seconds = seconds,
                 .collects_ns = fm_link_deadline(collects_s),
                 .waits_ns = fm_link_deadline(waits_s)};
    const size_t room = (size_t)tree->tree.size[tree->rank] * bytes + 1; /* bytes may be 0 */
    if (room > tree->room) {
        free(tree->below);
        tree->below = malloc(room);
        tree->room = tree->below ? room : 0;
    }
    if (!tree->below) return fm_fail(error, FM_ERR_NOMEM, "no memory for a gather");
    memcpy(tree->below, mine, bytes);
    for (int32_t i = 0; i < tree->n_child; i++)
        tree->peer[i].has_come = false;
    fm_status status = fm_ear_ask(&tree->ear, error);
    if (!status) status = pass(&g, error);
    if (status && fm_tree_fail(&g.state) == FM_TREE_TELL) {
        for (int32_t i = 0; i < n_peer(tree); i++)
            fm_link_send_reason(tree->peer[i].who.fd, error);
    }
    return status;
}
