/* admission.c: see admission.h. */
#include "server/admission.h"

#include "proto/base/log.h"

enum {
    N_TURNED_AWAY = 64,    /* connections at a time that get an ERROR because there is no room */
    GREEDY_GREETINGS = 16, /* a peer with this many unfinished greetings makes room at once */
};

static void count_connections(fm_admission *a) {
    fm_gauge(a->host->counters, FM_COUNT_GREETINGS, a->n_greeting);
    fm_gauge(a->host->counters, FM_COUNT_CONNECTIONS, a->n_admitted + a->n_turned_away);
}

void fm_admission_greeted(fm_admission *a, fm_conn *conn) {
    a->n_greeting--;
    fm_conn_get_account(conn)->n_greeting--;
    fm_gauge(a->host->counters, FM_COUNT_GREETINGS, a->n_greeting);
}

void fm_admission_begin_waiting(fm_admission *a) {
    for (fm_conn *conn = a->conns; conn; conn = fm_conn_get_next(conn))
        if (fm_conn_is_waiting(conn)) fm_conn_begin(conn);
}

void fm_admission_remove(fm_admission *a, fm_conn *conn) {
    fm_conn *before = NULL, *at = a->conns;
    while (at != conn) {
        before = at;
        at = fm_conn_get_next(at);
    }
    if (before) {
        fm_conn_set_next(before, fm_conn_get_next(conn));
    } else {
        a->conns = fm_conn_get_next(conn);
    }
    if (fm_conn_was_turned_away(conn)) {
        a->n_turned_away--;
    } else {
        a->n_admitted--;
        fm_conn_get_account(conn)->n_connection--;
    }
    count_connections(a);
}

/* -- making room */

/* Finds a connection without a HELLO that makes room for a new one of the account. It is the one
 * that has waited longest, if longer than the grace time. Else it is the oldest one of the peer
 * with most such connections, if that peer has many. With `is_own` it must be of the same account.
 * Returns NULL if there is none. */
static fm_conn *find_evictable(const fm_admission *a, const fm_account *account, bool is_own,
                               uint64_t now_ms) {
    fm_conn *oldest = NULL, *of_greedy = NULL;
    uint32_t most = account->n_greeting > GREEDY_GREETINGS ? account->n_greeting : GREEDY_GREETINGS;
    for (fm_conn *conn = a->conns; conn; conn = fm_conn_get_next(conn)) {
        const fm_account *other = fm_conn_get_account(conn);
        uint64_t waited_ms = fm_conn_greeting_ms(conn, now_ms);
        if (!waited_ms || fm_conn_was_turned_away(conn) || (is_own && other != account)) continue;
        if (waited_ms > a->rules.grace_ms) oldest = conn;
        if (other->n_greeting < most) continue;
        most = other->n_greeting;
        of_greedy = other == account ? of_greedy : conn;
    }
    return oldest ? oldest : of_greedy;
}

/* Ends a connection that has not said HELLO. Returns false if none may be ended. */
static bool evict_greeting(fm_admission *a, const fm_account *account, bool is_own,
                           uint64_t now_ms) {
    fm_conn *conn = find_evictable(a, account, is_own, now_ms);
    if (!conn) return false;
    fm_admission_greeted(a, conn);
    a->n_admitted--;
    fm_conn_get_account(conn)->n_connection--;
    a->n_turned_away++;
    fm_conn_evict(conn, a->n_turned_away <= N_TURNED_AWAY);
    return true;
}

typedef struct refusal {
    fm_counter which;
    const char *text;
} refusal;

/* Returns whether there is room for one more connection of the account; if not, sets *ret_why. */
static bool has_room(fm_admission *a, const fm_account *account, bool is_unix, uint64_t now_ms,
                     refusal *ret_why) {
    uint32_t most = a->rules.max_connection - (is_unix ? 0 : a->rules.n_unix_slot);
    if (a->n_admitted >= most) {
        *ret_why = (refusal){FM_COUNT_REFUSED_FULL,
                             "the server has reached its limit of connections (--max-connections)"};
        return false;
    }
    if (!fm_is_within(account->n_connection, account->limits.n_connection)) {
        *ret_why = (refusal){FM_COUNT_REFUSED_PEER,
                             "the server has reached its limit of connections of one peer "
                             "(--peer-connections)"};
        return false;
    }
    bool is_within_peer = fm_is_within(account->n_greeting, account->limits.n_greeting);
    if (is_within_peer && (is_unix || a->n_greeting < a->rules.max_greeting)) return true;
    *ret_why = (refusal){FM_COUNT_REFUSED_GREETING,
                         "too many connections wait for their HELLO; try again"};
    return evict_greeting(a, account, !is_within_peer, now_ms);
}

/* -- new connections */

/* Makes the connection; `why` is set when it is not admitted. */
static void meet(fm_admission *a, fm_socket *socket, fm_account *account, bool is_admitted,
                 const refusal *why, uint64_t now_ms) {
    fm_conn *conn = fm_conn_create(a->host, socket, account, is_admitted, ++a->number, now_ms);
    if (!conn) return;
    fm_conn_set_next(conn, a->conns);
    a->conns = conn;
    if (is_admitted) {
        a->n_admitted++;
        a->n_greeting++;
        account->n_connection++;
        account->n_greeting++;
    } else {
        a->n_turned_away++;
    }
    count_connections(a);
    fm_conn_start(conn);
    if (!is_admitted) fm_conn_turn_away(conn, why->which, why->text);
}

void fm_admission_take(fm_admission *a, fm_socket *socket, uint64_t now_ms) {
    if (!fm_access_admits(a->host->access, socket)) {
        fm_log(FM_LOG_WARN, "user_refused", "peer=\"%s\"", fm_socket_get_peer(socket)->text);
        fm_count(a->host->counters, FM_COUNT_USERS_REFUSED, 1);
        fm_socket_close(socket);
        return;
    }
    char peer[FM_PEER_BYTES];
    refusal why;
    const fm_peer *who = fm_socket_get_peer(socket);
    fm_account *account =
        fm_accounts_use(a->host->accounts, fm_peer_name(who, peer), a->host->peer_limits, now_ms);
    bool is_calm = account && fm_account_take_request(account, now_ms);
    bool is_admitted = is_calm && has_room(a, account, who->kind == FM_ADDRESS_UNIX, now_ms, &why);
    if (is_admitted || (is_calm && a->n_turned_away < N_TURNED_AWAY)) {
        fm_count(a->host->counters, FM_COUNT_ACCEPTED, 1);
        meet(a, socket, account, is_admitted, &why, now_ms);
        return;
    }
    fm_count(a->host->counters, FM_COUNT_REFUSED_FLOOD, 1);
    if (account) fm_accounts_leave(account, now_ms);
    fm_socket_close(socket);
}
