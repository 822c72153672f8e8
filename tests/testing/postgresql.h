/* postgresql.h: a real PostgreSQL server of the test's own: in a temporary folder, on a Unix socket
 * only, as user nobody where the test is run by root (the server refuses to run as root). It ends
 * with the test, however that ends. */
#ifndef FM_TESTS_POSTGRESQL_H
#define FM_TESTS_POSTGRESQL_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct fm_test_postgresql {
    char folder[64]; /* "" = not made */
    char bin[128];   /* folder of the server's programs */
    char url[192];   /* of its database "postgres", as a superuser */
    pid_t pid;       /* 0 = not running */
} fm_test_postgresql;

/* Makes and starts a server. False, with a line on stderr, where PostgreSQL is not installed. Looks
 * in $FM_POSTGRESQL_BIN, then /usr/lib/postgresql. */
bool fm_test_postgresql_create(fm_test_postgresql *server);
/* Waits until it takes connections. */
void fm_test_postgresql_start(fm_test_postgresql *server);
/* Throws all connections out and waits for its end; `crash`: without so much as a checkpoint. */
void fm_test_postgresql_stop(fm_test_postgresql *server, bool crash);
/* Stops it and removes everything; fine when it was not made. */
void fm_test_postgresql_destroy(fm_test_postgresql *server);

/* The address of its database "postgres" for another user. Returns out. */
const char *fm_test_postgresql_url(const fm_test_postgresql *server, const char *user, char *out,
                                   size_t out_bytes);

#endif
