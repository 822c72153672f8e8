/* postgresql.h: runs a real PostgreSQL server for one test, in a temporary folder and on a Unix
 * socket only. When root runs the test, the server's user is nobody, since the server refuses to
 * run as root. It ends with the test, however the test ends. */
#ifndef FM_TESTS_POSTGRESQL_H
#define FM_TESTS_POSTGRESQL_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct fm_test_postgresql {
    char folder[64]; /* "" = not created */
    char bin[128];   /* folder of the server's programs */
    char url[192];   /* of its database "postgres", as a superuser */
    pid_t pid;       /* 0 = not running */
} fm_test_postgresql;

/* Creates and starts a server. Returns false, with a line on stderr, where PostgreSQL is not
 * installed. Looks in $FM_POSTGRESQL_BIN, then in /usr/lib/postgresql. */
bool fm_test_postgresql_create(fm_test_postgresql *server);
/* Starts the server and waits until it accepts connections. */
void fm_test_postgresql_start(fm_test_postgresql *server);
/* Closes all connections and waits for the server to end; with `crash`, not even a checkpoint is
 * made. */
void fm_test_postgresql_stop(fm_test_postgresql *server, bool crash);
/* Sends a signal, such as "STOP", to the processes that the server has started. */
void fm_test_postgresql_signal(const fm_test_postgresql *server, const char *name);
/* Stops it and removes everything; allowed when it was not created. */
void fm_test_postgresql_destroy(fm_test_postgresql *server);

/* Writes the address of its database "postgres" for another user. Returns out. */
const char *fm_test_postgresql_url(const fm_test_postgresql *server, const char *user, char *out,
                                   size_t out_bytes);

#endif
