/* private_server.h: a server of samples for one run on this machine. It is a child process
 * `foldmill serve` on a Unix socket, in a temporary folder that only this user can open.
 *
 * The server ends with this process, also when this process is killed. It watches its standard
 * input, a pipe from here, and the kernel signals it when its parent dies. It is not in the
 * terminal's process group, so Ctrl-C reaches it only through its parent. A server that dies is
 * started again at the same address, and clients reconnect there. */
#ifndef FM_TRAINER_PRIVATE_SERVER_H
#define FM_TRAINER_PRIVATE_SERVER_H

#include "proto/base/cancel.h"
#include "proto/base/status.h"

#include <stdbool.h>

/* The variable by which a process tells its children the address of its server. */
extern const char fm_private_server_name[];

typedef struct fm_private_server fm_private_server;

typedef struct fm_private_server_options {
    const char *cache;    /* the folder to serve */
    const char *snapshot; /* NULL: all chains */
    /* One that clients can ask for beside it; NULL, or the same: none. */
    const char *other_snapshot;
    uint64_t jobs;           /* worker threads; 0: the server's default */
    const fm_cancel *cancel; /* of the server's start */
} fm_private_server_options;

/* Starts the server and waits until it listens; `foldmill` is the program beside this one, else
 * that on PATH. The server's warnings and errors appear on standard error behind the words `private
 * server:`. The texts of the options must outlive the server. FM_ERR_USAGE and FM_ERR_IO with the
 * reason that the server itself gave for its end, or when it does not listen within two minutes;
 * FM_ERR_CANCELLED; FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_private_server_start(const fm_private_server_options *options,
                                              fm_private_server **ret_server, fm_error *reterr);

/* Its address, "unix:PATH". */
const char *fm_private_server_address(const fm_private_server *server);

/* Returns whether the server has ended and is not started again; *reterr then has the reason. */
bool fm_private_server_has_failed(fm_private_server *server, fm_error *reterr);

/* Stops the server and removes its folder; NULL is allowed. Close all connections to it first. */
void fm_private_server_stop(fm_private_server *server);

#endif
