/* service_manager.h: the server's side of systemd's protocol: sockets that it hands over, and
 * reports.
 *
 * The protocol is four variables of the environment and datagrams of text to a Unix socket. Each
 * part is optional, and a part that is not set does nothing:
 *
 *     LISTEN_FDS, LISTEN_FDNAMES, LISTEN_PID    listening sockets, from descriptor 3 on
 *     NOTIFY_SOCKET                             where READY=1, RELOADING=1, STOPPING=1, STATUS= go
 *     WATCHDOG_USEC, WATCHDOG_PID               WATCHDOG=1 is due within each such time
 *
 * The thread of the loop reports, so a loop that hangs is noticed. A report never waits: one that
 * does not fit is sent again at the next tick.
 *
 * docs/notes/decisions/0017 says why this is not libsystemd. */
#ifndef FM_SERVER_SERVICE_MANAGER_H
#define FM_SERVER_SERVICE_MANAGER_H

#include "proto/address.h"

enum { FM_SERVICE_N_SOCKET = 8 };

/* A listening socket that was handed over. */
typedef struct fm_service_socket {
    int fd;
    fm_address address; /* the address that it is bound to */
} fm_service_socket;

typedef struct fm_service_sockets {
    size_t n_data;
    fm_service_socket data[FM_SERVICE_N_SOCKET]; /* those that are called "data" */
    fm_service_socket http;                      /* that called "http"; fd 0 = none */
} fm_service_sockets;

/* Takes the sockets that were handed over to this process, and clears their variables; programs
 * that this process starts inherit none of them. Network sockets called "data" are tls:// if
 * is_tls, else tcp://, which stays on this machine unless is_insecure. FM_ERR_USAGE for other names
 * and for descriptors that are not listening stream sockets. Call it before other threads read the
 * environment. */
FM_MUST_USE fm_status fm_service_take_sockets(bool is_tls, bool is_insecure,
                                              fm_service_sockets *ret_sockets, fm_error *reterr);

typedef struct fm_service_manager fm_service_manager;

/* Reads where to report, and removes the variables from the environment. *ret_manager is NULL,
 * which all functions below accept, when no reports are requested. FM_ERR_USAGE for variables that
 * make no sense, FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_service_manager_create(fm_service_manager **ret_manager, fm_error *reterr);
void fm_service_manager_destroy(fm_service_manager *manager);

/* The server takes connections: at its start, and when a reload is over. */
void fm_service_ready(fm_service_manager *manager);
/* Configuration is read again; fm_service_ready ends it, whether or not it was good. */
void fm_service_reloading(fm_service_manager *manager);
void fm_service_stopping(fm_service_manager *manager);

/* The numbers of a status line: the first two at present, the others since the start. */
typedef struct fm_service_state {
    uint64_t n_connection, n_stream, n_sample, n_byte;
} fm_service_state;

/* Feeds the watchdog, and reports the state every ten seconds. Call it at every tick. */
void fm_service_tick(fm_service_manager *manager, const fm_service_state *state, uint64_t now_ms);

#endif
