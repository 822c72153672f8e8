/* supply.h: a stream of samples from one of several servers. When a server is lost, the stream
 * continues from another one. When a server keeps it waiting, it moves to a quicker one.
 *
 *     fm_supply_open -> { fm_supply_next -> use -> fm_supply_release } -> fm_supply_close
 *
 * Every server of the list serves the same snapshot, and a sample's bytes depend on its number
 * alone. So all servers send the same stream. A supply has one connection at a time. It keeps a
 * resume token of the samples that fm_supply_next returned, and a new connection begins after them.
 * Every sample therefore arrives exactly once, within the requested order. The new server prepares
 * again what the old one had prepared ahead.
 *
 * Losses. When a server is gone, silent, stopping or broken, the next one that answers with the
 * same snapshot and plan replaces it. A refusal, or a sample that cannot be prepared, ends the
 * stream as it does with one server.
 *
 * Balance. The consumers of a run begin at different servers, in the order of their groups. A
 * consumer that waits for its server for more than half of the time measures how long a sample
 * takes there. It then tries the servers that it has not measured, and stays with the quickest. Its
 * measurements of the others fade, so it tries them again after some hundred samples. It opens the
 * new connection before it closes the old one.
 *
 * Threads. As in proto/client.h, one thread calls fm_supply_next. Any thread may call release and
 * interrupt. */
#ifndef FM_SUPPLY_H
#define FM_SUPPLY_H

#include "proto/address.h"
#include "proto/client.h"

typedef struct fm_supply fm_supply;

/* A change of server. The texts are valid during the call. */
typedef struct fm_supply_change {
    const char *from, *to; /* addresses */
    const char *why;       /* of a loss; NULL: the stream moves to a quicker server */
} fm_supply_change;

typedef struct fm_supply_options {
    /* Its url has one or several addresses (proto/address_list.h); retry_ms says how long to look
     * for a first server. `cancel` ends that search. */
    fm_client_options client;
    /* How long to look for a server after a loss. 0: each is tried once, and a list of one
     * address ends with the loss. */
    uint32_t resume_ms;
    /* Called after every change, in the receiving thread; may be NULL. */
    void (*on_change)(void *context, const fm_supply_change *change);
    void *context;
} fm_supply_options;

/* What the supply received from one server. */
typedef struct fm_supply_server {
    char url[FM_ADDRESS_TEXT_BYTES];
    uint64_t n_sample; /* including reports of skipped samples */
    uint32_t n_lost;   /* connections that were lost, or could not be opened */
    bool is_current;
} fm_supply_server;

/* Connects to the first server that answers and opens the stream. The texts of the options must
 * outlive the supply. Errors are those of fm_address_list_parse, fm_client_connect and
 * fm_client_open. When every server fails, one error is returned: FM_ERR_LIMIT if a server has no
 * room, else another refusal, else that no server answers. */
FM_MUST_USE fm_status fm_supply_open(const fm_supply_options *options, const fm_wire_open *params,
                                     fm_supply **ret_supply, fm_wire_opened *ret_opened,
                                     fm_error *reterr);

/* Asks whether one of the servers accepts these options, with the errors of fm_supply_open. */
FM_MUST_USE fm_status fm_supply_ask(const fm_supply_options *options, fm_error *reterr);

/* Closes the connection and frees the supply; NULL is allowed. */
void fm_supply_close(fm_supply *supply);

/* Returns the WELCOME of the first server. All servers have its snapshot. */
const fm_wire_welcome *fm_supply_get_welcome(const fm_supply *supply);

/* As fm_client_next, over as many connections as needed; wait_ns is the time over all of them.
 * After FM_CLIENT_END or a failure the caller may only close the supply. */
FM_MUST_USE fm_status fm_supply_next(fm_supply *supply, void *slab, size_t capacity,
                                     fm_client_event *ret_event, fm_error *reterr);

/* As fm_client_release. fm_supply_next reports a connection that this breaks. */
void fm_supply_release(fm_supply *supply, uint32_t items, uint64_t bytes);

/* As fm_client_interrupt; it ends an attempt to connect, too. */
void fm_supply_interrupt(fm_supply *supply);

/* The number of servers, and the facts of server i. Only the thread that calls fm_supply_next may
 * call them. */
uint32_t fm_supply_n_server(const fm_supply *supply);
fm_supply_server fm_supply_get_server(const fm_supply *supply, uint32_t i);

#endif
