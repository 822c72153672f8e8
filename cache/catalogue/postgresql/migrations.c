/* migrations.c: see migrations.h. The table foldmill.schema_migrations has the number, name and
 * SHA-256 of each applied migration. */
#include "cache/catalogue/postgresql/migrations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Only one process migrates at a time; the key is "fold" in ASCII. */
static const char lock_sql[] = "SELECT pg_advisory_xact_lock(1718578276)";

static uint32_t count_known(void) {
    uint32_t n = 0;
    while (fm_migrations[n].name)
        n++;
    return n;
}

/* *ret_n = number of applied migrations. Those known here must be identical: FM_ERR_CORRUPT. */
static fm_status read_applied(fm_pq *pq, uint32_t *ret_n, fm_error *reterr) {
    fm_pq_result *result;
    fm_status status =
        fm_pq_exec(pq, "SELECT to_regclass('foldmill.schema_migrations') IS NOT NULL", 0, NULL,
                   &result, reterr);
    if (status) return status;
    bool there = fm_pq_text(result, 0, 0)[0] == 't';
    fm_pq_clear(result);
    *ret_n = 0;
    if (!there) return FM_OK;
    status = fm_pq_exec(pq,
                        "SELECT number, name, sha256 FROM foldmill.schema_migrations "
                        "ORDER BY number",
                        0, NULL, &result, reterr);
    if (status) return status;
    uint32_t n = (uint32_t)fm_pq_rows(result), known = count_known();
    for (uint32_t i = 0; i < n && i < known && !status; i++) {
        const char *sql = fm_migrations[i].sql;
        fm_sha256 here = fm_sha256_of(sql, strlen(sql)), there_hash;
        if (fm_pq_number(result, (int)i, 0) == i + 1 &&
            fm_pq_hash(result, (int)i, 2, &there_hash) &&
            memcmp(&here, &there_hash, sizeof here) == 0) {
            continue;
        }
        status = fm_fail_in(reterr, FM_ERR_CORRUPT, fm_pq_where(pq),
                            "migration %lld, %s, is not the one that this foldmill knows as %s",
                            (long long)fm_pq_number(result, (int)i, 0),
                            fm_pq_text(result, (int)i, 1), fm_migrations[i].name);
    }
    fm_pq_clear(result);
    if (!status) *ret_n = n;
    return status;
}

static fm_status fail_newer(fm_pq *pq, uint32_t n, fm_error *reterr) {
    return fm_fail_in(reterr, FM_ERR_UNSUPPORTED, fm_pq_where(pq),
                      "the catalogue's schema is %u, newer than %u, the newest known here: use a "
                      "newer foldmill",
                      n, count_known());
}

fm_status fm_migrations_check(fm_pq *pq, fm_error *reterr) {
    uint32_t n, known = count_known();
    fm_status status = read_applied(pq, &n, reterr);
    if (status || n == known) return status;
    if (n > known) return fail_newer(pq, n, reterr);
    return fm_fail_in(reterr, FM_ERR_UNSUPPORTED, fm_pq_where(pq),
                      "the catalogue's schema is %u, %u is needed: run foldmill catalogue migrate",
                      n, known);
}

/* Applies the next migration if there is one. */
static fm_status apply_next(fm_pq *pq, bool *ret_applied, fm_error *reterr) {
    uint32_t n;
    fm_status status = fm_pq_exec(pq, lock_sql, 0, NULL, NULL, reterr);
    if (!status) status = read_applied(pq, &n, reterr);
    if (status) return status;
    *ret_applied = false;
    if (n > count_known()) return fail_newer(pq, n, reterr);
    if (n == count_known()) return FM_OK;
    const fm_migration *migration = &fm_migrations[n];
    fm_sha256 hash = fm_sha256_of(migration->sql, strlen(migration->sql));
    char number[16], hex[FM_SHA256_HEX];
    snprintf(number, sizeof number, "%u", n + 1);
    fm_sha256_format(&hash, hex);
    status = fm_pq_script(pq, migration->sql, reterr);
    if (status && reterr) fm_error_in(reterr, migration->name);
    const char *const param[] = {number, migration->name, hex};
    if (!status) {
        status = fm_pq_exec(pq,
                            "INSERT INTO foldmill.schema_migrations (number, name, sha256) "
                            "VALUES ($1, $2, $3)",
                            3, param, NULL, reterr);
    }
    if (!status) *ret_applied = true;
    return status;
}

fm_status fm_migrations_apply(fm_pq *pq, uint32_t *ret_n_applied, uint32_t *ret_n_known,
                              fm_error *reterr) {
    uint32_t n_applied = 0;
    for (bool applied = true; applied; n_applied += applied) {
        fm_status status = fm_pq_script(pq, "BEGIN", reterr);
        if (!status) status = apply_next(pq, &applied, reterr);
        if (!status) status = fm_pq_script(pq, "COMMIT", reterr);
        if (status) {
            fm_pq_rollback(pq);
            return status;
        }
    }
    *ret_n_applied = n_applied;
    *ret_n_known = count_known();
    return FM_OK;
}
