/* limits.c: see limits.h. Accounts are in a small hash table of lists. */
#include "server/limits.h"

#include "proto/base/hash.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_LIST = 256,
    N_ACCOUNT_MAX = 16384, /* each takes about 250 bytes */
    KEEP_MS = 60000,       /* an unused account is kept for so long */
    BURST_S = 10,          /* seconds of requests that may come at once */
};

struct in6_addr fm_peer_network(const fm_peer *peer) {
    struct in6_addr network;
    memcpy(&network, peer->ip, sizeof network);
    if (!IN6_IS_ADDR_V4MAPPED(&network)) memset(network.s6_addr + 8, 0, 8);
    return network;
}

const char *fm_peer_name(const fm_peer *peer, char out[FM_PEER_BYTES]) {
    char text[INET6_ADDRSTRLEN];
    const struct in6_addr network = fm_peer_network(peer);
    if (peer->kind == FM_ADDRESS_UNIX) {
        snprintf(out, FM_PEER_BYTES, "uid:%u", peer->uid);
    } else if (IN6_IS_ADDR_V4MAPPED(&network)) {
        snprintf(out, FM_PEER_BYTES, "%s", peer->text);
    } else {
        inet_ntop(AF_INET6, &network, text, sizeof text);
        snprintf(out, FM_PEER_BYTES, "%s/64", text);
    }
    return out;
}

struct fm_accounts {
    uint32_t n_account;
    uint32_t next_list; /* the list that the next tick looks through */
    fm_account *lists[N_LIST];
};

fm_status fm_accounts_create(fm_accounts **ret_accounts, fm_error *reterr) {
    fm_accounts *accounts = calloc(1, sizeof *accounts);
    if (!accounts) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for accounts");
    *ret_accounts = accounts;
    return FM_OK;
}

/* Frees the accounts of a list that nobody used for at least `unused_ms`. A stream whose connection
 * is over uses its budget until the last of its jobs is done, which may take long where a disk does
 * not answer. */
static void sweep(fm_accounts *accounts, fm_account **list, uint64_t now_ms, uint64_t unused_ms) {
    while (*list) {
        fm_account *account = *list;
        bool is_used = account->n_user || account->memory.n_stream;
        if (is_used || now_ms - account->left_ms < unused_ms) {
            list = &account->next;
            continue;
        }
        *list = account->next;
        free(account);
        accounts->n_account--;
    }
}

void fm_accounts_destroy(fm_accounts *accounts) {
    if (!accounts) return;
    for (size_t i = 0; i < N_LIST; i++)
        sweep(accounts, &accounts->lists[i], UINT64_MAX, 0);
    free(accounts);
}

/* One list each time, so that a tick stays short. */
void fm_accounts_tick(fm_accounts *accounts, uint64_t now_ms) {
    sweep(accounts, &accounts->lists[accounts->next_list++ % N_LIST], now_ms, KEEP_MS);
}

/* The thousandths of requests that may come at once. */
static int64_t full_of(const fm_limits *limits) {
    return (int64_t)limits->requests_per_s * BURST_S * 1000;
}

static fm_account *open_account(fm_accounts *accounts, fm_account **list, const char *peer,
                                uint64_t now_ms) {
    if (accounts->n_account >= N_ACCOUNT_MAX) {
        for (size_t i = 0; i < N_LIST; i++)
            sweep(accounts, &accounts->lists[i], now_ms, 0);
    }
    fm_account *account = accounts->n_account < N_ACCOUNT_MAX ? calloc(1, sizeof *account) : NULL;
    if (!account) return NULL;
    snprintf(account->peer, sizeof account->peer, "%s", peer);
    account->next = *list;
    *list = account;
    accounts->n_account++;
    return account;
}

fm_account *fm_accounts_use(fm_accounts *accounts, const char *peer, const fm_limits *limits,
                            uint64_t now_ms) {
    fm_account **list = &accounts->lists[fm_xxh3(peer, strlen(peer)) % N_LIST];
    fm_account *account = *list;
    while (account && strcmp(account->peer, peer) != 0)
        account = account->next;
    if (!account) {
        account = open_account(accounts, list, peer, now_ms);
        if (!account) return NULL;
        account->filled_ms = now_ms;
        account->requests_left_thousand = full_of(limits);
    }
    account->limits = *limits;
    account->memory.max_bytes = limits->memory_bytes ? limits->memory_bytes : SIZE_MAX;
    account->n_user++;
    return account;
}

fm_account *fm_accounts_use_token(fm_accounts *accounts, const fm_access_token *token,
                                  const fm_limits *others, uint64_t now_ms) {
    char peer[FM_PEER_BYTES];
    fm_limits limits = *others;
    if (token->max_stream) limits.n_stream = token->max_stream;
    limits.n_byte = token->max_bytes;
    snprintf(peer, sizeof peer, "token:%s", token->name);
    return fm_accounts_use(accounts, peer, &limits, now_ms);
}

void fm_accounts_leave(fm_account *account, uint64_t now_ms) {
    account->n_user--;
    account->left_ms = now_ms;
}

bool fm_account_take_request(fm_account *account, uint64_t now_ms) {
    const int64_t per_s = account->limits.requests_per_s, full = full_of(&account->limits);
    if (per_s == 0) return true;
    account->requests_left_thousand += (int64_t)(now_ms - account->filled_ms) * per_s;
    account->filled_ms = now_ms;
    if (account->requests_left_thousand > full) account->requests_left_thousand = full;
    if (account->requests_left_thousand < 1000) return false;
    account->requests_left_thousand -= 1000;
    return true;
}

void fm_account_take_work(fm_account *account, uint32_t n) {
    if (account->limits.requests_per_s) account->requests_left_thousand -= (int64_t)n * 1000;
}
