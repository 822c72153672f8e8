/* pq.h: a connection to PostgreSQL that cannot hang; the door of libpq (pq.c alone includes it).
 *
 * Every call is sent and waited for with poll, for at most `patience_ms`; after that, and after any
 * loss, the connection is dropped, FM_ERR_CLOSED is returned, and the next call connects anew. (The
 * look-up of a host's name is the system's and has its own time-out.) So are statements that the
 * server gave up itself: time-outs, deadlocks, shutdown, too many clients.
 *
 * A connection that the server refuses (no such role or database, wrong password) is FM_ERR_IO.
 *
 * Values go as parameters in text form, never in the statement. One thread at a time. */
#ifndef FM_CACHE_POSTGRESQL_PQ_H
#define FM_CACHE_POSTGRESQL_PQ_H

#include "proto/base/hash.h"
#include "proto/base/status.h"

#include <stdbool.h>

enum { FM_PQ_PARAM_MAX = 12 };

typedef struct fm_pq fm_pq;
typedef struct fm_pq_result fm_pq_result;

/* Of "postgresql://..."; connects with the first call. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_pq_create(const char *url, uint32_t patience_ms, fm_pq **ret_pq,
                                   fm_error *reterr);
void fm_pq_destroy(fm_pq *pq);
/* The address without passwords; lives as long as pq. */
const char *fm_pq_where(const fm_pq *pq);

/* Runs one statement with parameters $1..$n ($i NULL = SQL's NULL). *ret_result, which may be NULL
 * when rows do not matter, is to be cleared. FM_ERR_CLOSED; FM_ERR_UNSUPPORTED when a table is not
 * there; FM_ERR_IO with the server's words. */
FM_MUST_USE fm_status fm_pq_exec(fm_pq *pq, const char *sql, int n, const char *const *param,
                                 fm_pq_result **ret_result, fm_error *reterr);
/* Runs statements without parameters. */
FM_MUST_USE fm_status fm_pq_script(fm_pq *pq, const char *sql, fm_error *reterr);
/* ROLLBACK; whatever comes of it, no transaction is open afterwards. */
void fm_pq_rollback(fm_pq *pq);

int fm_pq_rows(const fm_pq_result *result);
/* "" for NULL. Borrowed until the clear. */
const char *fm_pq_text(const fm_pq_result *result, int row, int column);
int64_t fm_pq_number(const fm_pq_result *result, int row, int column);
/* Of 64 hex digits; false for NULL and anything else. */
bool fm_pq_hash(const fm_pq_result *result, int row, int column, fm_sha256 *ret_hash);
void fm_pq_clear(fm_pq_result *result);

/* An array literal, as a parameter of type text[] or bigint[]: '{"a","b"}', grown on the heap. */
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
