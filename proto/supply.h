/* supply.h: a stream of samples from one of several servers: it goes on from another server when
 * one is lost, and moves to another when its own keeps it waiting.
 *
 *     fm_supply_open -> { fm_supply_next -> use -> fm_supply_release } -> fm_supply_close
 *
 * Every server of the list serves the same snapshot, and a sample's bytes depend on its number
 * alone, so the stream is the same wherever it comes from. A supply has one connection at a time.
 * It keeps a resume token of what fm_supply_next returned, and a new connection begins behind it:
 * every sample comes exactly once, within the order that was asked for. What an old server had made
 * ahead is made again by the new one.
 *
 * Losses. A server that is gone, silent, stopping or broken is replaced by the next one that
 * answers with the same snapshot and plan. Refusals and samples that cannot be made end the stream
 * as they do with one server.
 *
 * Balance. The consumers of a run begin at different servers, in the order of their groups. One
 * that waits for its server for more than half of the time measures how long a sample takes there.
 * It then tries the servers that it does not know, and stays with the quickest. What it knows of
 * the others fades, so that it looks again after some hundred samples. It opens the new connection
 * before it leaves the old one.
 *
 * Threads. As of proto/client.h: fm_supply_next belongs to one thread. Any other may call release
 * and interrupt. */
#ifndef FM_SUPPLY_H
#define FM_SUPPLY_H

#include "proto/address.h"
#include "proto/client.h"

typedef struct fm_supply fm_supply;

/* The stream goes on from another server. Texts are valid during the call. */
typedef struct fm_supply_change {
    const char *from, *to; /* addresses */
    const char *why;       /* of a loss; NULL: the other one is expected to be quicker */
} fm_supply_change;

typedef struct fm_supply_options {
    fm_client_options client; /* url: one or several addresses (proto/address_list.h). retry_ms: how
                                 long to look for a first server */
    uint32_t resume_ms;       /* how long to look for a server after a loss. 0: each one is asked
                                 once, and a list of one address ends with the loss */
    /* Is told of every change, in the thread that receives; NULL: nobody is. */
    void (*on_change)(void *context, const fm_supply_change *change);
    void *context;
} fm_supply_options;

/* What came from one server. */
typedef struct fm_supply_server {
    char url[FM_ADDRESS_TEXT_BYTES];
    uint64_t n_sample; /* and reports of samples left out */
    uint32_t n_lost;   /* connections that were lost, or could not be opened */
    bool is_current;
} fm_supply_server;

/* Connects to the first server that answers and opens the stream. The texts of the options must
 * outlive the supply. Errors are those of fm_address_list_parse, fm_client_connect and
 * fm_client_open. When every server fails, FM_ERR_LIMIT of one that has no room comes first, then
 * other refusals, then that no server answers. */
FM_MUST_USE fm_status fm_supply_open(const fm_supply_options *options, const fm_wire_open *params,
                                     fm_supply **ret_supply, fm_wire_opened *ret_opened,
                                     fm_error *reterr);

/* Asks whether one of the servers accepts these options, with the errors of fm_supply_open. */
FM_MUST_USE fm_status fm_supply_ask(const fm_supply_options *options, fm_error *reterr);

/* Closes the connection; NULL is fine. */
void fm_supply_close(fm_supply *supply);

/* The WELCOME of the first server; its snapshot is that of all. */
const fm_wire_welcome *fm_supply_get_welcome(const fm_supply *supply);

/* As fm_client_next, over as many connections as it takes; wait_ns counts them all. After
 * FM_CLIENT_END and after a failure the supply can only be closed. */
FM_MUST_USE fm_status fm_supply_next(fm_supply *supply, void *slab, size_t capacity,
                                     fm_client_event *ret_event, fm_error *reterr);

/* As fm_client_release. fm_supply_next reports a connection that this breaks. */
void fm_supply_release(fm_supply *supply, uint32_t items, uint64_t bytes);

/* As fm_client_interrupt; an attempt to connect that is under way ends first. */
void fm_supply_interrupt(fm_supply *supply);

/* The number of servers, and what came from number i, for the thread that calls fm_supply_next. */
uint32_t fm_supply_n_server(const fm_supply *supply);
fm_supply_server fm_supply_get_server(const fm_supply *supply, uint32_t i);

#endif
