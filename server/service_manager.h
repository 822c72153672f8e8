/* service_manager.h: the server's side of systemd: sockets that it was handed, and what it reports.
 *
 * The protocol is four variables of the environment and datagrams of text to a Unix socket. Each of
 * these parts is optional, and without them nothing is done:
 *
 *     LISTEN_FDS, LISTEN_FDNAMES, LISTEN_PID    listening sockets, from descriptor 3 on
 *     NOTIFY_SOCKET                             where READY=1, RELOADING=1, STOPPING=1, STATUS= go
 *     WATCHDOG_USEC, WATCHDOG_PID               WATCHDOG=1 is due in this time, again and again
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
    fm_address address; /* that it is bound to */
} fm_service_socket;

typedef struct fm_service_sockets {
    size_t n_data;
    fm_service_socket data[FM_SERVICE_N_SOCKET]; /* those that are called "data" */
    fm_service_socket http;                      /* that called "http"; fd 0 = none */
} fm_service_sockets;

/* Takes the handed sockets from the environment, where they are meant for this process; any program
 * that it starts gets none of them. Network sockets called "data" are tls:// if is_tls, else
 * tcp://, which stays on this machine unless is_insecure. FM_ERR_USAGE for other names and for what
 * is no listening stream socket. Call it before other threads read the environment. */
FM_MUST_USE fm_status fm_service_take_sockets(bool is_tls, bool is_insecure,
                                              fm_service_sockets *ret_sockets, fm_error *reterr);

typedef struct fm_service_manager fm_service_manager;

/* Reads where to report, and takes it from the environment. *ret_manager is NULL, which all
 * functions below accept, when nobody asks for reports. FM_ERR_USAGE for variables that make no
 * sense, FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_service_manager_create(fm_service_manager **ret_manager, fm_error *reterr);
void fm_service_manager_destroy(fm_service_manager *manager);

/* The server takes connections: at its start, and when a reload is over. */
void fm_service_ready(fm_service_manager *manager);
/* Configuration is read again; fm_service_ready ends it, whether or not it was good. */
void fm_service_reloading(fm_service_manager *manager);
void fm_service_stopping(fm_service_manager *manager);

/* What a status line tells: the first two at present, the others since the start. */
typedef struct fm_service_state {
    uint64_t n_connection, n_stream, n_sample, n_byte;
} fm_service_state;

/* Feeds the watchdog, and reports the state every ten seconds. Call it at every tick. */
void fm_service_tick(fm_service_manager *manager, const fm_service_state *state, uint64_t now_ms);

#endif
