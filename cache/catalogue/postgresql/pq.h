/* pq.h: a connection to PostgreSQL that cannot hang; only pq.c includes libpq.
 *
 * Each call sends its request and waits with poll for at most `patience_ms`. After that time, and
 * after any loss, it closes the connection and returns FM_ERR_CLOSED; the next call connects again.
 * (The look-up of a host name is the system's and has its own time-out.) Statements that the server
 * itself gave up also return FM_ERR_CLOSED: time-outs, deadlocks, shutdown, too many clients. A
 * connection that the server refuses (no such role or database, wrong password) is FM_ERR_IO.
 *
 * Values are sent as parameters in text form, never inside the statement. One thread at a time. */
#ifndef FM_CACHE_POSTGRESQL_PQ_H
#define FM_CACHE_POSTGRESQL_PQ_H

#include "proto/base/hash.h"
#include "proto/base/status.h"

#include <stdbool.h>

enum { FM_PQ_PARAM_MAX = 12 };

typedef struct fm_pq fm_pq;
typedef struct fm_pq_result fm_pq_result;

/* Makes a connection to "postgresql://..."; the first call connects. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_pq_create(const char *url, uint32_t patience_ms, fm_pq **ret_pq,
                                   fm_error *reterr);
void fm_pq_destroy(fm_pq *pq);
/* The address without passwords; valid as long as pq. */
const char *fm_pq_where(const fm_pq *pq);

/* Runs one statement with parameters $1..$n; a NULL parameter is SQL's NULL. ret_result may be NULL
 * when the rows do not matter; otherwise the caller clears *ret_result. FM_ERR_CLOSED;
 * FM_ERR_UNSUPPORTED when a table does not exist; FM_ERR_IO with the server's message. */
FM_MUST_USE fm_status fm_pq_exec(fm_pq *pq, const char *sql, int n, const char *const *param,
                                 fm_pq_result **ret_result, fm_error *reterr);
/* Runs statements without parameters. */
FM_MUST_USE fm_status fm_pq_script(fm_pq *pq, const char *sql, fm_error *reterr);
/* ROLLBACK. No transaction is open afterwards, even if it fails. */
void fm_pq_rollback(fm_pq *pq);

int fm_pq_rows(const fm_pq_result *result);
/* "" for NULL. Borrowed until the clear. */
const char *fm_pq_text(const fm_pq_result *result, int row, int column);
int64_t fm_pq_number(const fm_pq_result *result, int row, int column);
/* Reads 64 hex digits; false for NULL and anything else. */
bool fm_pq_hash(const fm_pq_result *result, int row, int column, fm_sha256 *ret_hash);
void fm_pq_clear(fm_pq_result *result);

/* An array literal '{"a","b"}' for a parameter of type text[] or bigint[], on the heap. */
typedef struct fm_pq_array {
    char *text;
    size_t used, max;
    bool failed; /* memory ran out */
} fm_pq_array;
void fm_pq_array_add(fm_pq_array *array, const char *value);
void fm_pq_array_add_number(fm_pq_array *array, uint64_t value);
void fm_pq_array_add_hash(fm_pq_array *array, const fm_sha256 *hash);
/* The literal; NULL when memory ran out. */
const char *fm_pq_array_end(fm_pq_array *array);
void fm_pq_array_free(fm_pq_array *array);

#endif
