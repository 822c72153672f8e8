/* limits.h: what each peer may use of a server, and what it uses now.
 *
 * A peer is an address (`192.0.2.7`, or the /64 network of an IPv6 address), a user of this host
 * who connects through a Unix socket (`uid:1000`), or the holder of a token. Each has an account.
 * Connections are charged to the account of their address. Their streams, memory and requests are
 * charged to the account of the token, where there is one, else to that of the address.
 *
 * An account lives while it is in use and a minute longer, so that a peer that reconnects does not
 * get a new allowance of requests. It also lives as long as a stream has its budget. All functions
 * are called on the thread of the loop. */
#ifndef FM_SERVER_LIMITS_H
#define FM_SERVER_LIMITS_H

#include "proto/address.h"
#include "server/access_tokens.h"
#include "server/stream.h"

#include <netinet/in.h>
#include <stdbool.h>

enum { FM_PEER_BYTES = 80 }; /* a peer's name with its terminator */

/* What counts as one address of tcp or tls: an IPv4 address, mapped into IPv6, or the /64 network
 * of an IPv6 address. A host may choose from its whole network. */
struct in6_addr fm_peer_network(const fm_peer *peer);

/* The name of a peer's account without a token: `uid:1000`, `192.0.2.7`, `2001:db8:0:1::/64`.
 * Returns out. */
const char *fm_peer_name(const fm_peer *peer, char out[FM_PEER_BYTES]);

/* 0 means without limit. */
typedef struct fm_limits {
    uint32_t n_connection;
    uint32_t n_greeting; /* connections that have not said HELLO */
    uint32_t n_stream;
    uint32_t requests_per_s; /* a burst may have ten times as many */
    size_t memory_bytes;     /* of samples that are made or sent */
    uint64_t n_byte;         /* of samples sent, while the account exists */
} fm_limits;

typedef struct fm_account {
    char peer[FM_PEER_BYTES];
    fm_limits limits;
    uint32_t n_connection, n_greeting, n_stream;
    uint64_t n_byte;
    fm_budget memory;
    /* Used by limits.c. */
    uint32_t n_user;                /* references */
    uint64_t left_ms, filled_ms;    /* when it lost its last reference; when requests were added */
    int64_t requests_left_thousand; /* thousandths of requests; below 0: what it owes */
    struct fm_account *next;
} fm_account;

typedef struct fm_accounts fm_accounts;

FM_MUST_USE fm_status fm_accounts_create(fm_accounts **ret_accounts, fm_error *reterr);
/* No account may be in use. NULL is allowed. */
void fm_accounts_destroy(fm_accounts *accounts);

/* Finds or opens the account of a peer and takes a reference to it. `limits` apply from now on, to
 * an existing account too. NULL when there is no memory or there are too many accounts. */
fm_account *fm_accounts_use(fm_accounts *accounts, const char *peer, const fm_limits *limits,
                            uint64_t now_ms);
/* The same for the holder of a token, `token:NAME`; `others` are the limits of a peer without. */
fm_account *fm_accounts_use_token(fm_accounts *accounts, const fm_access_token *token,
                                  const fm_limits *others, uint64_t now_ms);
/* Returns a reference. */
void fm_accounts_leave(fm_account *account, uint64_t now_ms);
/* Frees accounts that were not used for a minute. */
void fm_accounts_tick(fm_accounts *accounts, uint64_t now_ms);

/* True when one more is within the limit. */
static inline bool fm_is_within(uint32_t n, uint32_t limit) {
    return limit == 0 || n < limit;
}

static inline bool fm_is_within_bytes(const fm_account *account) {
    return account->limits.n_byte == 0 || account->n_byte < account->limits.n_byte;
}

/* Charges one request; false when the peer sends too many. */
bool fm_account_take_request(fm_account *account, uint64_t now_ms);
/* Charges work that is as much as `n` requests, beyond the one that was taken for it. It is not
 * refused, but the peer's next requests are until it has paid. */
void fm_account_take_work(fm_account *account, uint32_t n);

#endif
