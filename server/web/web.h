/* web.h: the server's pages for people and for monitoring, over HTTP on a listener of its own.
 *
 *     GET /            the page: who is connected, rates, waits, slow and refused chains
 *     GET /report.json the numbers behind it (report.h)
 *     GET /metrics     the same for Prometheus
 *     GET /healthz     200 when the thread of the loop answers within two seconds, else 503
 *     GET /readyz      200 when the server takes new clients, else 503
 *
 * The listener has a thread and limits of its own, so nothing that it does can delay a stream.
 * It only reads: there is no request that changes the server. It is not encrypted and asks
 * nobody who they are, so it belongs on the loopback interface or behind a proxy. A page that
 * was opened from elsewhere cannot read it. On the loopback interface the Host header must name
 * this host, which defeats DNS rebinding. Every answer forbids foreign scripts, frames and
 * embedding. */
#ifndef FM_SERVER_WEB_WEB_H
#define FM_SERVER_WEB_WEB_H

#include "proto/address.h"
#include "server/web/report.h"

/* The server behind the pages. */
typedef struct fm_web_site {
    void *context;
    /* Returns a report that the caller frees, or NULL when the server did not answer in time or has
     * no memory. The listener's thread calls it. */
    fm_web_report *(*report)(void *context);
    uint32_t request_ms; /* for one request and its answer; 0: 20 s */
} fm_web_site;

typedef struct fm_web fm_web;

/* Listens on `address`, "HOST:PORT"; port 0 takes any free one. `site` is copied. FM_ERR_USAGE for
 * an address, and for one beyond this machine without is_insecure; FM_ERR_EXISTS when it is in use,
 * FM_ERR_UNSUPPORTED when the program was built without libmicrohttpd, FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_web_start(const char *address, bool is_insecure, const fm_web_site *site,
                                   fm_web **ret_web, fm_error *reterr);
/* The same on a listening TCP socket, which is owned from now on, also on failure. */
FM_MUST_USE fm_status fm_web_start_on(int listening, const fm_address *bound,
                                      const fm_web_site *site, fm_web **ret_web, fm_error *reterr);
/* Closes all connections and waits for the thread. NULL is fine. */
void fm_web_stop(fm_web *web);
/* "http://HOST:PORT" with the port that was bound; it belongs to `web`. */
const char *fm_web_get_url(const fm_web *web);

#endif
