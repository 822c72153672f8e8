/* pq.c: see pq.h. */
#include "cache/catalogue/postgresql/pq.h"

#include <assert.h>
#include <errno.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WHERE_BYTES = 512, FIRST_ARRAY_BYTES = 256 };

struct fm_pq {
    char *url;
    char where[WHERE_BYTES];
    uint32_t patience_ms;
    PGconn *connection; /* NULL = not connected */
};

/* -- time */

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits until the socket is readable or, if `write`, writable. False at the deadline. */
static bool wait_for(const PGconn *connection, bool write, int64_t deadline) {
    struct pollfd one = {.fd = PQsocket(connection),
                         .events = (short)(write ? POLLIN | POLLOUT : POLLIN)};
    int64_t left = deadline - now_ms();
    if (one.fd < 0 || left <= 0) return false;
    return poll(&one, 1, (int)left) >= 0 || errno == EINTR; /* the caller checks again */
}

/* -- connecting */

/* Copies the address without the text between ':' and the last '@', and after each "password=". The
 * last '@' counts because a user may not have escaped a '/' or '?' in the password; the error must
 * not show it even then. */
static void hide_password(const char *url, char out[WHERE_BYTES]) {
    const char *user = strstr(url, "://");
    const char *at = user ? strrchr(user + 3, '@') : NULL;
    const char *colon = at ? memchr(user + 3, ':', (size_t)(at - user - 3)) : NULL;
    if (colon) {
        snprintf(out, WHERE_BYTES, "%.*s%s", (int)(colon - url), url, at);
    } else {
        snprintf(out, WHERE_BYTES, "%s", url);
    }
    for (char *password = out; (password = strstr(password, "password=")) != NULL;) {
        password += strlen("password=");
        size_t bytes = strcspn(password, "&");
        memmove(password, password + bytes, strlen(password + bytes) + 1);
    }
}

fm_status fm_pq_create(const char *url, uint32_t patience_ms, fm_pq **ret_pq, fm_error *reterr) {
    fm_pq *pq = calloc(1, sizeof *pq);
    char *copy = strdup(url);
    if (!pq || !copy) {
        free(pq);
        free(copy);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a connection");
    }
    pq->url = copy;
    pq->patience_ms = patience_ms;
    hide_password(url, pq->where);
    *ret_pq = pq;
    return FM_OK;
}

void fm_pq_destroy(fm_pq *pq) {
    if (!pq) return;
    PQfinish(pq->connection);
    free(pq->url);
    free(pq);
}

const char *fm_pq_where(const fm_pq *pq) {
    return pq->where;
}

static fm_status lose(fm_pq *pq, const char *what, const char *words, fm_error *reterr) {
    char line[256];
    snprintf(line, sizeof line, "%s", words && words[0] ? words : "no answer in time");
    line[strcspn(line, "\n")] = '\0';
    PQfinish(pq->connection);
    pq->connection = NULL;
    return fm_fail_in(reterr, FM_ERR_CLOSED, pq->where, "%s: %s", what, line);
}

/* True for errors that another try cannot change. libpq gives no code for a failed connection, so
 * the server's words must do. */
static bool is_refusal(const char *words) {
    static const char *const refusals[] = {"does not exist",       "authentication failed",
                                           "no pg_hba.conf entry", "permission denied",
                                           "no password supplied", "invalid connection option",
                                           "invalid URI",          NULL};
    for (int i = 0; refusals[i]; i++) {
        if (strstr(words, refusals[i])) return true;
    }
    return false;
}

static fm_status fail_connect(fm_pq *pq, fm_error *reterr) {
    bool refused = is_refusal(PQerrorMessage(pq->connection));
    fm_status status = lose(pq, "cannot connect", PQerrorMessage(pq->connection), reterr);
    if (!refused) return status;
    if (reterr) reterr->status = FM_ERR_IO;
    return FM_ERR_IO;
}

static void keep_quiet(void *context, const char *message) {
    (void)context;
    (void)message;
}

static fm_status connect_now(fm_pq *pq, int64_t deadline, fm_error *reterr) {
    char timeout[64];
    snprintf(timeout, sizeof timeout, "-c statement_timeout=%u", pq->patience_ms);
    /* Later values override earlier ones, so the address overrides these. */
    static const char *const keys[] = {"fallback_application_name",
                                       "tcp_user_timeout",
                                       "keepalives_idle",
                                       "options",
                                       "dbname",
                                       NULL};
    const char *const values[] = {"foldmill", "20000", "20", timeout, pq->url, NULL};
    pq->connection = PQconnectStartParams(keys, values, 1);
    if (!pq->connection) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a connection");
    PostgresPollingStatusType state = PGRES_POLLING_WRITING;
    while (state != PGRES_POLLING_OK) {
        if (state == PGRES_POLLING_FAILED || PQstatus(pq->connection) == CONNECTION_BAD) {
            return fail_connect(pq, reterr);
        }
        /* PQconnectPoll must not be called before the socket is ready for what it waits for. */
        struct pollfd one = {.fd = PQsocket(pq->connection),
                             .events = state == PGRES_POLLING_WRITING ? POLLOUT : POLLIN};
        int64_t left = deadline - now_ms();
        int ready = left > 0 ? poll(&one, 1, (int)left) : 0;
        if (ready == 0 || (ready < 0 && errno != EINTR)) {
            return lose(pq, "cannot connect", NULL, reterr);
        }
        if (ready > 0) state = PQconnectPoll(pq->connection);
    }
    PQsetNoticeProcessor(pq->connection, keep_quiet, NULL);
    return FM_OK;
}

static fm_status ensure_connected(fm_pq *pq, int64_t deadline, fm_error *reterr) {
    if (pq->connection && PQstatus(pq->connection) == CONNECTION_BAD) {
        PQfinish(pq->connection);
        pq->connection = NULL;
    }
    return pq->connection ? FM_OK : connect_now(pq, deadline, reterr);
}

/* -- statements */

/* SQLSTATE classes that another try may not meet: connection, resources, shutdown, time-outs,
 * deadlocks. */
static bool is_passing(const char *code) {
    static const char *const classes[] = {"08", "53", "57", "40", NULL};
    for (int i = 0; classes[i]; i++) {
        if (strncmp(code, classes[i], 2) == 0) return true;
    }
    return false;
}

static fm_status check(fm_pq *pq, const PGresult *result, fm_error *reterr) {
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK || status == PGRES_EMPTY_QUERY) {
        return FM_OK;
    }
    const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *words = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (!code || is_passing(code)) {
        return lose(pq, "the database gave up", words ? words : PQresultErrorMessage(result),
                    reterr);
    }
    bool absent = strcmp(code, "42P01") == 0 || strcmp(code, "3F000") == 0;
    return fm_fail_in(reterr, absent ? FM_ERR_UNSUPPORTED : FM_ERR_IO, pq->where, "%s (%s)%s",
                      words ? words : "failed", code,
                      absent ? "; foldmill catalogue migrate makes the tables" : "");
}

/* Sends what is queued, and reads meanwhile, so that the two sides do not wait for each other. */
static bool flush(fm_pq *pq, int64_t deadline) {
    for (int left; (left = PQflush(pq->connection)) != 0;) {
        if (left < 0 || !wait_for(pq->connection, true, deadline) ||
            !PQconsumeInput(pq->connection)) {
            return false;
        }
    }
    return true;
}

/* Reads all results; keeps the last one, or the first error. */
static fm_status collect(fm_pq *pq, int64_t deadline, PGresult **ret_result, fm_error *reterr) {
    PGresult *kept = NULL;
    fm_status status = FM_OK;
    for (bool more = true; more && pq->connection;) {
        while (PQisBusy(pq->connection)) {
            if (!wait_for(pq->connection, false, deadline)) {
                PQclear(kept);
                return lose(pq, "the connection is lost", NULL, reterr);
            }
            if (!PQconsumeInput(pq->connection)) break;
        }
        PGresult *result = PQgetResult(pq->connection);
        more = result != NULL;
        if (!result) break;
        if (status) {
            PQclear(result);
            continue;
        }
        PQclear(kept);
        kept = result;
        status = check(pq, result, reterr);
    }
    if (status || !kept) {
        PQclear(kept);
        return status ? status : lose(pq, "the connection is lost", NULL, reterr);
    }
    *ret_result = kept;
    return FM_OK;
}

static fm_status run(fm_pq *pq, const char *sql, int n, const char *const *param,
                     PGresult **ret_result, fm_error *reterr) {
    int64_t deadline = now_ms() + pq->patience_ms;
    fm_status status = ensure_connected(pq, deadline, reterr);
    if (status) return status;
    PQsetnonblocking(pq->connection, 1);
    int sent = n < 0 ? PQsendQuery(pq->connection, sql)
                     : PQsendQueryParams(pq->connection, sql, n, NULL, param, NULL, NULL, 0);
    if (!sent || !flush(pq, deadline)) {
        return lose(pq, "the connection is lost", PQerrorMessage(pq->connection), reterr);
    }
    return collect(pq, deadline, ret_result, reterr);
}

fm_status fm_pq_exec(fm_pq *pq, const char *sql, int n, const char *const *param,
                     fm_pq_result **ret_result, fm_error *reterr) {
    PGresult *result;
    assert(n >= 0 && n <= FM_PQ_PARAM_MAX);
    fm_status status = run(pq, sql, n, param, &result, reterr);
    if (status) return status;
    if (ret_result) {
        *ret_result = (fm_pq_result *)result;
    } else {
        PQclear(result);
    }
    return FM_OK;
}

fm_status fm_pq_script(fm_pq *pq, const char *sql, fm_error *reterr) {
    PGresult *result;
    fm_status status = run(pq, sql, -1, NULL, &result, reterr);
    if (!status) PQclear(result);
    return status;
}

void fm_pq_rollback(fm_pq *pq) {
    if (pq->connection && fm_pq_script(pq, "ROLLBACK", NULL) && pq->connection) {
        PQfinish(pq->connection);
        pq->connection = NULL;
    }
}

/* -- results */

int fm_pq_rows(const fm_pq_result *result) {
    return PQntuples((const PGresult *)result);
}

const char *fm_pq_text(const fm_pq_result *result, int row, int column) {
    return PQgetvalue((const PGresult *)result, row, column);
}

int64_t fm_pq_number(const fm_pq_result *result, int row, int column) {
    return strtoll(fm_pq_text(result, row, column), NULL, 10);
}

bool fm_pq_hash(const fm_pq_result *result, int row, int column, fm_sha256 *ret_hash) {
    const char *text = fm_pq_text(result, row, column);
    return !fm_sha256_parse(text, strlen(text), ret_hash);
}

void fm_pq_clear(fm_pq_result *result) {
    PQclear((PGresult *)result);
}

/* -- arrays */

static void add_text(fm_pq_array *array, const char *text, size_t n) {
    if (array->used + n + 1 > array->max) {
        size_t wanted = 2 * array->max + n + FIRST_ARRAY_BYTES;
        char *grown = array->failed ? NULL : realloc(array->text, wanted);
        array->failed |= !grown;
        if (!grown) return;
        array->text = grown;
        array->max = wanted;
    }
    memcpy(array->text + array->used, text, n);
    array->used += n;
    array->text[array->used] = '\0';
}

void fm_pq_array_add(fm_pq_array *array, const char *value) {
    add_text(array, array->used ? ",\"" : "{\"", 2);
    for (const char *at = value; *at;) {
        size_t plain = strcspn(at, "\"\\");
        add_text(array, at, plain);
        at += plain;
        if (!*at) break;
        add_text(array, "\\", 1);
        add_text(array, at++, 1);
    }
    add_text(array, "\"", 1);
}

void fm_pq_array_add_number(fm_pq_array *array, uint64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    fm_pq_array_add(array, text);
}

void fm_pq_array_add_hash(fm_pq_array *array, const fm_sha256 *hash) {
    char hex[FM_SHA256_HEX];
    fm_sha256_format(hash, hex);
    fm_pq_array_add(array, hex);
}

const char *fm_pq_array_end(fm_pq_array *array) {
    add_text(array, array->used ? "}" : "{}", array->used ? 1 : 2);
    return array->failed ? NULL : array->text;
}

void fm_pq_array_free(fm_pq_array *array) {
    free(array->text);
    *array = (fm_pq_array){0};
}
