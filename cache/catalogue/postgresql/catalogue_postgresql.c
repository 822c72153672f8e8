/* catalogue_postgresql.c: the catalogue in PostgreSQL, for many machines. See catalogue.h; the
 * tables are in deploy/postgresql/.
 *
 * Claims take rows FOR UPDATE SKIP LOCKED, so workers never wait for each other and never get the
 * same row. All times are the server's (statement_timestamp()), so the clocks of the machines do
 * not matter. Each call is one statement, except `begin`: its list is sent in parts, in one
 * transaction that locks the job's row. */
#include "cache/catalogue/catalogue_open.h"

#include "cache/catalogue/postgresql/migrations.h"
#include "cache/catalogue/postgresql/pq.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_ROWS = 2000 /* rows of a list in one statement */ };

typedef struct remote {
    fm_catalogue base;
    fm_pq *pq;
} remote;

typedef struct number_text {
    char text[24];
} number_text;

static number_text number_of(uint64_t value) {
    number_text out;
    snprintf(out.text, sizeof out.text, "%llu", (unsigned long long)value);
    return out;
}

static fm_status no_memory(fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list");
}

/* -- the list */

static const char begin_sql[] = "INSERT INTO foldmill.job (name, options) "
                                "VALUES ($1, decode($2, 'hex')) ON CONFLICT (name) DO NOTHING";
static const char job_sql[] =
    "SELECT id, encode(options, 'hex'), encode(listing, 'hex') FROM foldmill.job "
    "WHERE name = $1 FOR UPDATE";
static const char worker_sql[] =
    "INSERT INTO foldmill.worker (name, cache) VALUES ($1, $2) ON CONFLICT (name) "
    "DO UPDATE SET cache = EXCLUDED.cache, seen = statement_timestamp()";
/* $2 < names <= $3, NULL = no bound */
static const char unlist_sql[] =
    "DELETE FROM foldmill.item i WHERE job = $1 AND ($2::text IS NULL OR name > $2) "
    "AND ($3::text IS NULL OR name <= $3) AND NOT EXISTS (SELECT FROM unnest($4::text[]) "
    "AS l (name) WHERE l.name = i.name)";
static const char list_sql[] =
    "INSERT INTO foldmill.item AS i (job, name, source) "
    "SELECT $1, l.name, decode(l.source, 'hex') "
    "FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS l (name, source, n) ORDER BY l.n "
    "ON CONFLICT (job, name) DO UPDATE SET source = EXCLUDED.source, state = 'pending', "
    "failures = 0, due = 'epoch', worker = NULL, shard = NULL, n_chain = 0, reason = '' "
    "WHERE NOT ($4::boolean AND i.source = EXCLUDED.source AND i.state IN ('done', 'leased'))";
static const char listed_sql[] = "UPDATE foldmill.job SET options = decode($2, 'hex'), "
                                 "listing = decode($3, 'hex') WHERE id = $1";

typedef struct job_row {
    number_text id;
    fm_sha256 options, listing;
    bool has_listing;
} job_row;

static fm_status lock_job(remote *self, const fm_sha256 *options, job_row *ret_job,
                          fm_error *reterr) {
    char hex[FM_SHA256_HEX];
    fm_sha256_format(options, hex);
    const char *const param[] = {self->base.options.job, hex};
    fm_pq_result *result;
    fm_status status = fm_pq_exec(self->pq, begin_sql, 2, param, NULL, reterr);
    if (!status) status = fm_pq_exec(self->pq, job_sql, 1, param, &result, reterr);
    if (status) return status;
    job_row job = {{""}, {{0}}, {{0}}, false};
    bool good = fm_pq_rows(result) == 1 && fm_pq_hash(result, 0, 1, &job.options);
    if (good) {
        job.id = number_of((uint64_t)fm_pq_number(result, 0, 0));
        job.has_listing = fm_pq_hash(result, 0, 2, &job.listing);
    }
    fm_pq_clear(result);
    if (!good) return fm_fail_in(reterr, FM_ERR_CORRUPT, self->base.where, "a job without options");
    *ret_job = job;
    return FM_OK;
}

/* Sends entries [first, first + n). The database deletes the names that are not among them, from
 * after the entry before the first to the last one; the last part deletes all names after it, too.
 */
static fm_status send_part(remote *self, const job_row *job, const fm_catalogue_listing *listing,
                           uint32_t first, uint32_t n, bool keep, fm_error *reterr) {
    fm_pq_array names = {0}, sources = {0};
    for (uint32_t i = first; i < first + n; i++) {
        fm_pq_array_add(&names, listing->entry[i].name);
        fm_pq_array_add_hash(&sources, &listing->entry[i].source);
    }
    const char *name_text = fm_pq_array_end(&names), *source_text = fm_pq_array_end(&sources);
    bool is_last = first + n == listing->n;
    fm_status status = name_text && source_text ? FM_OK : no_memory(reterr);
    if (!status) {
        const char *const param[] = {job->id.text, first ? listing->entry[first - 1].name : NULL,
                                     is_last ? NULL : listing->entry[first + n - 1].name,
                                     name_text};
        status = fm_pq_exec(self->pq, unlist_sql, 4, param, NULL, reterr);
    }
    if (!status) {
        const char *const param[] = {job->id.text, name_text, source_text, keep ? "t" : "f"};
        status = fm_pq_exec(self->pq, list_sql, 4, param, NULL, reterr);
    }
    fm_pq_array_free(&names);
    fm_pq_array_free(&sources);
    return status;
}

static fm_status send_list(remote *self, const job_row *job, const fm_catalogue_listing *listing,
                           const fm_sha256 *hash, bool keep, fm_error *reterr) {
    char options[FM_SHA256_HEX], text[FM_SHA256_HEX];
    fm_status status = FM_OK;
    uint32_t first = 0;
    do {
        uint32_t n = listing->n - first < LIST_ROWS ? listing->n - first : LIST_ROWS;
        status = send_part(self, job, listing, first, n, keep, reterr);
        first += n;
    } while (!status && first < listing->n);
    if (status) return status;
    fm_sha256_format(&listing->options, options);
    fm_sha256_format(hash, text);
    const char *const param[] = {job->id.text, options, text};
    return fm_pq_exec(self->pq, listed_sql, 3, param, NULL, reterr);
}

static fm_status see_worker(remote *self, fm_error *reterr) {
    const fm_catalogue_options *options = &self->base.options;
    const char *const param[] = {options->worker, options->cache ? options->cache : ""};
    return options->worker ? fm_pq_exec(self->pq, worker_sql, 2, param, NULL, reterr) : FM_OK;
}

static fm_status begin_within(remote *self, const fm_catalogue_listing *listing,
                              const fm_sha256 *hash, fm_catalogue_mode mode, fm_error *reterr) {
    job_row job;
    fm_status status = lock_job(self, &listing->options, &job, reterr);
    if (status) return status;
    bool same_options = memcmp(&job.options, &listing->options, sizeof job.options) == 0;
    bool same = job.has_listing && memcmp(&job.listing, hash, sizeof *hash) == 0;
    if (!same && mode == FM_CATALOGUE_JOIN && (job.has_listing || !same_options)) {
        return fm_catalogue_fail_listing(&self->base, !same_options, reterr);
    }
    status = see_worker(self, reterr);
    if (status || (same && mode != FM_CATALOGUE_AGAIN)) return status;
    bool keep = mode != FM_CATALOGUE_AGAIN && same_options;
    return send_list(self, &job, listing, hash, keep, reterr);
}

static fm_status begin_job(fm_catalogue *catalogue, const fm_catalogue_listing *listing,
                           const fm_sha256 *hash, fm_catalogue_mode mode, fm_error *reterr) {
    remote *self = (remote *)catalogue;
    fm_status status = fm_pq_script(self->pq, "BEGIN", reterr);
    if (!status) status = begin_within(self, listing, hash, mode, reterr);
    if (!status) status = fm_pq_script(self->pq, "COMMIT", reterr);
    if (status) fm_pq_rollback(self->pq);
    return status;
}

/* -- leases */

/* Items that failed less than twice are claimed in batches, the others alone ($8), so that an item
 * that kills its worker loses no other item. */
static const char claim_sql[] =
    "WITH w AS (INSERT INTO foldmill.worker (name, cache) VALUES ($2, $3) ON CONFLICT (name) "
    "  DO UPDATE SET cache = EXCLUDED.cache, seen = statement_timestamp() RETURNING id, name), "
    "due AS (SELECT i.id, i.due, i.worker AS before, "
    "    i.failures + (i.state = 'leased')::integer AS failures "
    "  FROM foldmill.item i WHERE i.job = (SELECT id FROM foldmill.job WHERE name = $1) "
    "  AND i.state IN ('pending', 'leased') AND i.due <= statement_timestamp() "
    "  AND (i.failures + (i.state = 'leased')::integer >= 2) = $8::boolean "
    "  ORDER BY i.due, i.id LIMIT $4 FOR UPDATE SKIP LOCKED), "
    "taken AS (UPDATE foldmill.item i SET failures = due.failures, "
    "    state = CASE WHEN due.failures < $5 THEN 'leased' ELSE 'refused' END, "
    "    attempt = i.attempt + (due.failures < $5)::integer, "
    "    due = statement_timestamp() + $6::bigint * interval '1 millisecond', "
    "    worker = CASE WHEN due.failures < $5 THEN (SELECT id FROM w) ELSE i.worker END, "
    "    reason = CASE WHEN due.failures < $5 THEN i.reason "
    "      ELSE format($7, due.failures, (SELECT name FROM foldmill.worker WHERE id = due.before)) "
    "      END "
    "  FROM due WHERE i.id = due.id "
    "  RETURNING i.id, i.attempt, i.failures, i.name, i.state, due.due AS was) "
    "SELECT id, attempt, failures, name, state = 'leased' FROM taken ORDER BY was, id";

/* *ret_more: all rows that were taken are refused now; try again. */
static fm_status claim_some(remote *self, uint32_t max, bool suspects,
                            fm_catalogue_claim *ret_claim, uint32_t *ret_n, bool *ret_more,
                            fm_error *reterr) {
    const fm_catalogue_options *options = &self->base.options;
    number_text limit = number_of(max), failures = number_of(options->max_failures);
    number_text lease = number_of(options->lease_ms);
    const char *const param[] = {
        options->job,
        options->worker,
        options->cache ? options->cache : "",
        limit.text,
        failures.text,
        lease.text,
        "%s attempts failed; the last worker, %s, was not heard of again",
        suspects ? "t" : "f",
    };
    fm_pq_result *result;
    fm_status status = fm_pq_exec(self->pq, claim_sql, 8, param, &result, reterr);
    if (status) return status;
    uint32_t n = 0;
    int rows = fm_pq_rows(result);
    for (int i = 0; i < rows && n < max; i++) {
        if (fm_pq_text(result, i, 4)[0] != 't') continue;
        fm_catalogue_claim *claim = &ret_claim[n++];
        claim->lease.id = (uint64_t)fm_pq_number(result, i, 0);
        claim->lease.attempt = (uint32_t)fm_pq_number(result, i, 1);
        claim->failures = (uint32_t)fm_pq_number(result, i, 2);
        snprintf(claim->name, sizeof claim->name, "%s", fm_pq_text(result, i, 3));
    }
    fm_pq_clear(result);
    *ret_n = n;
    *ret_more = rows && !n;
    return FM_OK;
}

static fm_status check_job(remote *self, fm_error *reterr) {
    fm_pq_result *result;
    const char *const param[] = {self->base.options.job};
    fm_status status = fm_pq_exec(self->pq, "SELECT 1 FROM foldmill.job WHERE name = $1", 1, param,
                                  &result, reterr);
    if (status) return status;
    bool there = fm_pq_rows(result) == 1;
    fm_pq_clear(result);
    return there ? FM_OK
                 : fm_fail_in(reterr, FM_ERR_NOT_FOUND, self->base.where, "there is no job '%s'",
                              self->base.options.job);
}

static fm_status claim(fm_catalogue *catalogue, uint32_t max, fm_catalogue_claim *ret_claim,
                       uint32_t *ret_n, fm_error *reterr) {
    remote *self = (remote *)catalogue;
    uint32_t n = 0;
    fm_status status = FM_OK;
    for (int suspects = 0; suspects < 2 && !n && !status; suspects++) {
        bool more = true;
        while (more && !n && !status)
            status = claim_some(self, suspects ? 1 : max, suspects, ret_claim, &n, &more, reterr);
    }
    if (!status && !n) status = check_job(self, reterr);
    if (!status) *ret_n = n;
    return status;
}

/* Sets ret_true[i] for each position i + 1 in the first column. */
static void mark_rows(fm_pq_result *result, uint32_t n, bool *ret_true) {
    memset(ret_true, 0, n * sizeof *ret_true);
    for (int i = 0; i < fm_pq_rows(result); i++) {
        int64_t position = fm_pq_number(result, i, 0);
        if (position >= 1 && position <= n) ret_true[position - 1] = true;
    }
    fm_pq_clear(result);
}

/* Leases as two arrays. */
typedef struct lease_arrays {
    fm_pq_array id, attempt;
} lease_arrays;

static void add_lease(lease_arrays *arrays, const fm_catalogue_lease *lease) {
    fm_pq_array_add_number(&arrays->id, lease->id);
    fm_pq_array_add_number(&arrays->attempt, lease->attempt);
}

static void free_leases(lease_arrays *arrays) {
    fm_pq_array_free(&arrays->id);
    fm_pq_array_free(&arrays->attempt);
}

/* Locks the rows of those leases l (id, attempt, ..., n) that worker $2 of job $1 holds. Each row
 * is looked up by its id, because the planner may misjudge tables that were just filled: another
 * join could compare each of a thousand leases with each item. */
#define HELD(list, columns, condition)                                                             \
    "WITH held AS MATERIALIZED (SELECT l.*, x.item FROM unnest(" list ") WITH ORDINALITY "         \
    "AS l (" columns ", n) CROSS JOIN LATERAL (SELECT i.id AS item FROM foldmill.item i "          \
    "WHERE i.id = l.id AND i.attempt = l.attempt "                                                 \
    "AND i.job = (SELECT id FROM foldmill.job WHERE name = $1) "                                   \
    "AND i.worker = (SELECT id FROM foldmill.worker WHERE name = $2) AND (" condition ") "         \
    "LIMIT 1 FOR UPDATE) x) "
#define LEASED HELD("$3::bigint[], $4::bigint[]", "id, attempt", "i.state = 'leased'")
#define SEEN ", me AS (UPDATE foldmill.worker SET seen = statement_timestamp() WHERE name = $2) "

static const char heartbeat_sql[] =
    LEASED SEEN "UPDATE foldmill.item i SET due = statement_timestamp() + $5::bigint * "
                "interval '1 millisecond' FROM held WHERE i.id = held.item RETURNING held.n";
static const char release_sql[] =
    LEASED "UPDATE foldmill.item i SET state = 'pending', due = statement_timestamp() "
           "FROM held WHERE i.id = held.item RETURNING held.n";

static fm_status change_leases(remote *self, const char *sql, uint32_t n,
                               const fm_catalogue_lease *lease, bool with_time, bool *ret_held,
                               fm_error *reterr) {
    const fm_catalogue_options *options = &self->base.options;
    number_text time = number_of(options->lease_ms);
    lease_arrays arrays = {{0}, {0}};
    fm_pq_result *result;
    for (uint32_t i = 0; i < n; i++)
        add_lease(&arrays, &lease[i]);
    const char *const param[] = {options->job, options->worker, fm_pq_array_end(&arrays.id),
                                 fm_pq_array_end(&arrays.attempt), time.text};
    fm_status status = param[2] && param[3] ? FM_OK : no_memory(reterr);
    if (!status) status = fm_pq_exec(self->pq, sql, with_time ? 5 : 4, param, &result, reterr);
    free_leases(&arrays);
    if (status) return status;
    if (ret_held) {
        mark_rows(result, n, ret_held);
    } else {
        fm_pq_clear(result);
    }
    return FM_OK;
}

static fm_status heartbeat(fm_catalogue *catalogue, uint32_t n, const fm_catalogue_lease *lease,
                           bool *ret_held, fm_error *reterr) {
    return change_leases((remote *)catalogue, heartbeat_sql, n, lease, true, ret_held, reterr);
}

static fm_status release(fm_catalogue *catalogue, uint32_t n, const fm_catalogue_lease *lease,
                         fm_error *reterr) {
    return change_leases((remote *)catalogue, release_sql, n, lease, false, NULL, reterr);
}

static const char complete_sql[] =
    HELD("$3::bigint[], $4::bigint[], $5::text[], $6::bigint[]", "id, attempt, shard, n_chain",
         "i.state = 'leased' OR (i.state = 'done' AND i.shard = decode(l.shard, 'hex'))") SEEN
    "UPDATE foldmill.item i SET state = 'done', shard = decode(held.shard, 'hex'), "
    "n_chain = held.n_chain, reason = '' FROM held WHERE i.id = held.item RETURNING held.n";

static fm_status complete(fm_catalogue *catalogue, uint32_t n,
                          const fm_catalogue_completion *completion, bool *ret_taken,
                          fm_error *reterr) {
    remote *self = (remote *)catalogue;
    lease_arrays arrays = {{0}, {0}};
    fm_pq_array shards = {0}, chains = {0};
    fm_pq_result *result;
    for (uint32_t i = 0; i < n; i++) {
        add_lease(&arrays, &completion[i].lease);
        fm_pq_array_add_hash(&shards, &completion[i].shard);
        fm_pq_array_add_number(&chains, completion[i].n_chain);
    }
    const char *const param[] = {catalogue->options.job,      catalogue->options.worker,
                                 fm_pq_array_end(&arrays.id), fm_pq_array_end(&arrays.attempt),
                                 fm_pq_array_end(&shards),    fm_pq_array_end(&chains)};
    bool good = param[2] && param[3] && param[4] && param[5];
    fm_status status =
        good ? fm_pq_exec(self->pq, complete_sql, 6, param, &result, reterr) : no_memory(reterr);
    free_leases(&arrays);
    fm_pq_array_free(&shards);
    fm_pq_array_free(&chains);
    if (!status) mark_rows(result, n, ret_taken);
    return status;
}

static const char fail_sql[] = LEASED
    "UPDATE foldmill.item i SET failures = i.failures + 1, reason = $5, "
    "state = CASE WHEN $6::boolean OR i.failures + 1 >= $7 THEN 'refused' ELSE 'pending' END, "
    "due = statement_timestamp() + least($8::double precision * 2 ^ least(i.failures, 40), "
    "$9::double precision) * interval '1 millisecond' FROM held WHERE i.id = held.item "
    "RETURNING held.n";

static fm_status fail(fm_catalogue *catalogue, const fm_catalogue_lease *lease, const char *reason,
                      bool final, bool *ret_taken, fm_error *reterr) {
    remote *self = (remote *)catalogue;
    const fm_catalogue_options *options = &catalogue->options;
    char id[32], attempt[32];
    number_text failures = number_of(options->max_failures);
    number_text pause = number_of(options->backoff_ms);
    number_text longest = number_of(FM_CATALOGUE_BACKOFF_MAX_MS);
    fm_pq_result *result;
    snprintf(id, sizeof id, "{%llu}", (unsigned long long)lease->id);
    snprintf(attempt, sizeof attempt, "{%u}", lease->attempt);
    const char *const param[] = {options->job,  options->worker, id,
                                 attempt,       reason,          final ? "t" : "f",
                                 failures.text, pause.text,      longest.text};
    fm_status status = fm_pq_exec(self->pq, fail_sql, 9, param, &result, reterr);
    if (!status) mark_rows(result, 1, ret_taken);
    return status;
}

/* -- shards and restored items */

static const char shard_sql[] =
    "WITH w AS (INSERT INTO foldmill.worker (name, cache) VALUES ($6, $7) ON CONFLICT (name) "
    "  DO UPDATE SET seen = statement_timestamp() RETURNING id) "
    "INSERT INTO foldmill.shard (job, hash, bytes, n_blob, n_note, worker, cache) "
    "SELECT j.id, decode($2, 'hex'), $3, $4, $5, w.id, $7 FROM foldmill.job j, w "
    "WHERE j.name = $1 ON CONFLICT (job, hash) DO NOTHING";

static fm_status add_shard(fm_catalogue *catalogue, const fm_catalogue_shard *shard,
                           fm_error *reterr) {
    remote *self = (remote *)catalogue;
    char hex[FM_SHA256_HEX];
    number_text bytes = number_of(shard->info.bytes), blobs = number_of(shard->info.n_blob);
    number_text notes = number_of(shard->info.n_note);
    fm_sha256_format(&shard->info.hash, hex);
    const char *const param[] = {
        catalogue->options.job, hex,         bytes.text, blobs.text, notes.text,
        shard->worker,          shard->cache};
    return fm_pq_exec(self->pq, shard_sql, 7, param, NULL, reterr);
}

static const char restore_sql[] =
    "INSERT INTO foldmill.item AS i (job, name, source, state, attempt, n_chain, reason, shard) "
    "VALUES ($1, $2, decode($3, 'hex'), $4, $5, $6, $7, decode($8, 'hex')) "
    "ON CONFLICT (job, name) DO UPDATE SET source = EXCLUDED.source, state = EXCLUDED.state, "
    "attempt = EXCLUDED.attempt, n_chain = EXCLUDED.n_chain, reason = EXCLUDED.reason, "
    "shard = EXCLUDED.shard, worker = NULL WHERE i.attempt < EXCLUDED.attempt";

static fm_status restore_row(remote *self, const job_row *job, const fm_catalogue_row *row,
                             fm_error *reterr) {
    char source[FM_SHA256_HEX], shard[FM_SHA256_HEX];
    number_text attempt = number_of(row->attempt), chains = number_of(row->n_chain);
    fm_sha256_format(&row->source, source);
    fm_sha256_format(&row->shard, shard);
    const char *const param[] = {job->id.text,
                                 row->name,
                                 source,
                                 fm_catalogue_state_name(row->state),
                                 attempt.text,
                                 chains.text,
                                 row->reason ? row->reason : "",
                                 row->has_shard ? shard : NULL};
    return fm_pq_exec(self->pq, restore_sql, 8, param, NULL, reterr);
}

static fm_status restore_within(remote *self, const fm_sha256 *options, const fm_catalogue_row *row,
                                uint32_t n, fm_error *reterr) {
    job_row job;
    fm_status status = lock_job(self, options, &job, reterr);
    if (!status && memcmp(&job.options, options, sizeof *options) != 0) {
        status = fm_catalogue_fail_listing(&self->base, true, reterr);
    }
    for (uint32_t i = 0; i < n && !status; i++)
        status = restore_row(self, &job, &row[i], reterr);
    return status;
}

static fm_status restore(fm_catalogue *catalogue, const fm_sha256 *options,
                         const fm_catalogue_row *row, uint32_t n, fm_error *reterr) {
    remote *self = (remote *)catalogue;
    fm_status status = fm_pq_script(self->pq, "BEGIN", reterr);
    if (!status) status = restore_within(self, options, row, n, reterr);
    if (!status) status = fm_pq_script(self->pq, "COMMIT", reterr);
    if (status) fm_pq_rollback(self->pq);
    return status;
}

/* -- queries */

static const char left_sql[] =
    "SELECT count(*), min(due) IS NULL, ceil(extract(epoch FROM min(due) - "
    "statement_timestamp()) * 1000)::bigint FROM foldmill.item "
    "WHERE job = (SELECT id FROM foldmill.job WHERE name = $1) "
    "AND state IN ('pending', 'leased')";

static fm_status left(fm_catalogue *catalogue, uint32_t *ret_n, int64_t *ret_next_due_ms,
                      fm_error *reterr) {
    remote *self = (remote *)catalogue;
    const char *const param[] = {catalogue->options.job};
    fm_pq_result *result;
    fm_status status = fm_pq_exec(self->pq, left_sql, 1, param, &result, reterr);
    if (status) return status;
    int64_t next = fm_pq_number(result, 0, 2);
    *ret_n = (uint32_t)fm_pq_number(result, 0, 0);
    *ret_next_due_ms = fm_pq_text(result, 0, 1)[0] == 't' ? INT64_MAX : next > 0 ? next : 0;
    fm_pq_clear(result);
    return FM_OK;
}

static const char count_sql[] =
    "WITH j AS (SELECT id FROM foldmill.job WHERE name = $1), "
    "i AS (SELECT count(*) FILTER (WHERE state = 'pending') AS pending, "
    "  count(*) FILTER (WHERE state = 'leased') AS leased, "
    "  count(*) FILTER (WHERE state = 'done') AS done, "
    "  count(*) FILTER (WHERE state = 'refused') AS refused, "
    "  count(*) FILTER (WHERE state = 'leased' AND due <= statement_timestamp()) AS lapsed, "
    "  ceil(extract(epoch FROM min(due) FILTER (WHERE state IN ('pending', 'leased')) - "
    "  statement_timestamp()) * 1000)::bigint AS next FROM foldmill.item "
    "  WHERE job = (SELECT id FROM j)), "
    "s AS (SELECT count(*) AS n, coalesce(sum(bytes), 0) AS bytes FROM foldmill.shard "
    "  WHERE job = (SELECT id FROM j)) "
    "SELECT pending, leased, done, refused, lapsed, next IS NULL, next, n, s.bytes FROM i, s";

static fm_status count(fm_catalogue *catalogue, fm_catalogue_counts *ret_counts, fm_error *reterr) {
    remote *self = (remote *)catalogue;
    const char *const param[] = {catalogue->options.job};
    fm_pq_result *result;
    fm_status status = fm_pq_exec(self->pq, count_sql, 1, param, &result, reterr);
    if (status) return status;
    fm_catalogue_counts counts = {0};
    for (int i = 0; i < FM_N_CATALOGUE_STATE; i++)
        counts.n[i] = (uint32_t)fm_pq_number(result, 0, i);
    counts.n_lapsed = (uint32_t)fm_pq_number(result, 0, 4);
    counts.next_due_ms = fm_pq_number(result, 0, 6);
    if (counts.next_due_ms < 0) counts.next_due_ms = 0;
    if (fm_pq_text(result, 0, 5)[0] == 't') counts.next_due_ms = INT64_MAX;
    counts.n_shard = (uint32_t)fm_pq_number(result, 0, 7);
    counts.shard_bytes = (uint64_t)fm_pq_number(result, 0, 8);
    fm_pq_clear(result);
    *ret_counts = counts;
    return FM_OK;
}

static const char row_sql[] =
    "SELECT i.name, encode(i.source, 'hex'), i.state, i.attempt, i.failures, i.n_chain, "
    "ceil(extract(epoch FROM i.due - statement_timestamp()) * 1000)::bigint, w.name, i.reason, "
    "encode(i.shard, 'hex') FROM foldmill.item i LEFT JOIN foldmill.worker w ON w.id = i.worker "
    "WHERE i.job = (SELECT id FROM foldmill.job WHERE name = $1) AND i.state = ANY ($2::text[]) "
    "ORDER BY i.name";

static fm_catalogue_state state_of(const char *text) {
    fm_catalogue_state state = FM_CATALOGUE_PENDING;
    while (state < FM_N_CATALOGUE_STATE && strcmp(fm_catalogue_state_name(state), text) != 0)
        state++;
    return state < FM_N_CATALOGUE_STATE ? state : FM_CATALOGUE_PENDING;
}

static fm_status each_row(fm_catalogue *catalogue, unsigned states, fm_catalogue_see_row see,
                          void *context, fm_error *reterr) {
    remote *self = (remote *)catalogue;
    fm_pq_array wanted = {0};
    fm_pq_result *result;
    for (int i = 0; i < FM_N_CATALOGUE_STATE; i++) {
        if (states >> i & 1) {
            fm_pq_array_add(&wanted, fm_catalogue_state_name((fm_catalogue_state)i));
        }
    }
    const char *const param[] = {catalogue->options.job, fm_pq_array_end(&wanted)};
    fm_status status =
        param[1] ? fm_pq_exec(self->pq, row_sql, 2, param, &result, reterr) : no_memory(reterr);
    fm_pq_array_free(&wanted);
    if (status) return status;
    for (int i = 0; i < fm_pq_rows(result) && !status; i++) {
        fm_catalogue_row row = {.name = fm_pq_text(result, i, 0),
                                .state = state_of(fm_pq_text(result, i, 2)),
                                .attempt = (uint32_t)fm_pq_number(result, i, 3),
                                .failures = (uint32_t)fm_pq_number(result, i, 4),
                                .n_chain = (uint32_t)fm_pq_number(result, i, 5),
                                .due_ms = fm_pq_number(result, i, 6),
                                .worker = fm_pq_text(result, i, 7),
                                .reason = fm_pq_text(result, i, 8)};
        (void)fm_pq_hash(result, i, 1, &row.source);
        row.has_shard = fm_pq_hash(result, i, 9, &row.shard);
        status = see(context, &row, reterr);
    }
    fm_pq_clear(result);
    return status;
}

static const char shards_sql[] =
    "SELECT encode(s.hash, 'hex'), s.bytes, s.n_blob, s.n_note, w.name, s.cache "
    "FROM foldmill.shard s JOIN foldmill.worker w ON w.id = s.worker "
    "WHERE s.job = (SELECT id FROM foldmill.job WHERE name = $1) ORDER BY s.hash";

static fm_status each_shard(fm_catalogue *catalogue, fm_catalogue_see_shard see, void *context,
                            fm_error *reterr) {
    remote *self = (remote *)catalogue;
    const char *const param[] = {catalogue->options.job};
    fm_pq_result *result;
    fm_status status = fm_pq_exec(self->pq, shards_sql, 1, param, &result, reterr);
    if (status) return status;
    for (int i = 0; i < fm_pq_rows(result) && !status; i++) {
        fm_catalogue_shard shard = {.info = {.bytes = (uint64_t)fm_pq_number(result, i, 1),
                                             .n_blob = (uint32_t)fm_pq_number(result, i, 2),
                                             .n_note = (uint32_t)fm_pq_number(result, i, 3)},
                                    .worker = fm_pq_text(result, i, 4),
                                    .cache = fm_pq_text(result, i, 5)};
        if (fm_pq_hash(result, i, 0, &shard.info.hash)) status = see(context, &shard, reterr);
    }
    fm_pq_clear(result);
    return status;
}

static const char workers_sql[] =
    "SELECT w.name, w.cache, (extract(epoch FROM statement_timestamp() - w.seen) * 1000)::bigint, "
    "count(i.id) FILTER (WHERE i.state = 'leased'), count(i.id) FILTER (WHERE i.state = 'done') "
    "FROM foldmill.worker w LEFT JOIN foldmill.item i ON i.worker = w.id "
    "AND i.job = (SELECT id FROM foldmill.job WHERE name = $1) "
    "GROUP BY w.id ORDER BY w.name COLLATE \"C\"";

static fm_status each_worker(fm_catalogue *catalogue, fm_catalogue_see_worker see, void *context,
                             fm_error *reterr) {
    remote *self = (remote *)catalogue;
    const char *const param[] = {catalogue->options.job};
    fm_pq_result *result;
    fm_status status = fm_pq_exec(self->pq, workers_sql, 1, param, &result, reterr);
    if (status) return status;
    for (int i = 0; i < fm_pq_rows(result) && !status; i++) {
        const fm_catalogue_worker worker = {.name = fm_pq_text(result, i, 0),
                                            .cache = fm_pq_text(result, i, 1),
                                            .seen_ms = fm_pq_number(result, i, 2),
                                            .n_leased = (uint32_t)fm_pq_number(result, i, 3),
                                            .n_done = (uint32_t)fm_pq_number(result, i, 4)};
        status = see(context, &worker, reterr);
    }
    fm_pq_clear(result);
    return status;
}

/* -- the connection */

static void close_remote(fm_catalogue *catalogue) {
    remote *self = (remote *)catalogue;
    fm_pq_destroy(self->pq);
    free(self);
}

fm_status fm_catalogue_open_postgresql(const char *url, const fm_catalogue_options *options,
                                       fm_catalogue **ret_catalogue, fm_error *reterr) {
    remote *self = calloc(1, sizeof *self);
    if (!self) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a catalogue");
    fm_status status = fm_pq_create(url, options->patience_ms, &self->pq, reterr);
    if (!status) status = fm_migrations_check(self->pq, reterr);
    if (status) {
        close_remote(&self->base);
        return status;
    }
    self->base = (fm_catalogue){.where = fm_pq_where(self->pq),
                                .options = *options,
                                .close = close_remote,
                                .begin = begin_job,
                                .claim = claim,
                                .heartbeat = heartbeat,
                                .add_shard = add_shard,
                                .complete = complete,
                                .fail = fail,
                                .release = release,
                                .restore = restore,
                                .left = left,
                                .count = count,
                                .each_row = each_row,
                                .each_shard = each_shard,
                                .each_worker = each_worker};
    *ret_catalogue = &self->base;
    return FM_OK;
}

fm_status fm_catalogue_migrate_postgresql(const char *url, uint32_t patience_ms,
                                          uint32_t *ret_n_applied, uint32_t *ret_n_known,
                                          fm_error *reterr) {
    fm_pq *pq;
    fm_status status = fm_pq_create(url, patience_ms, &pq, reterr);
    if (status) return status;
    status = fm_migrations_apply(pq, ret_n_applied, ret_n_known, reterr);
    fm_pq_destroy(pq);
    return status;
}
