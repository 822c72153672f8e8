/* catalogue.c: what both implementations share. See catalogue.h. */
#include "cache/catalogue/catalogue.h"

#include "cache/catalogue/catalogue_open.h"
#include "proto/base/directory.h"
#include "proto/base/utf8.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *fm_catalogue_state_name(fm_catalogue_state state) {
    static const char *const names[] = {"pending", "leased", "done", "refused"};
    return (unsigned)state < FM_N_CATALOGUE_STATE ? names[state] : "unknown";
}

static bool is_postgresql(const char *where) {
    return strncmp(where, "postgresql://", 13) == 0 || strncmp(where, "postgres://", 11) == 0;
}

uint64_t fm_catalogue_backoff_ms(const fm_catalogue_options *options, uint32_t failures) {
    uint64_t pause = options->backoff_ms;
    for (uint32_t i = 1; i < failures && pause < FM_CATALOGUE_BACKOFF_MAX_MS; i++)
        pause *= 2;
    return pause < FM_CATALOGUE_BACKOFF_MAX_MS ? pause : FM_CATALOGUE_BACKOFF_MAX_MS;
}

fm_status fm_catalogue_fail_listing(const fm_catalogue *catalogue, bool other_options,
                                    fm_error *reterr) {
    return fm_fail_in(reterr, FM_ERR_EXISTS, catalogue->where,
                      "job '%s' was begun with %s; --job NAME begins another one, --renew makes "
                      "this the job's",
                      catalogue->options.job,
                      other_options ? "other options, or by another version of foldmill"
                                    : "another list of chains");
}

static fm_status check_job(const char *job, fm_error *reterr) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = strlen(job);
    if (n >= 1 && n < FM_CATALOGUE_JOB_BYTES && strspn(job, allowed) == n) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "the job's name is '%.80s'; 1 to %d letters, digits, '.', '_' and '-' make one",
                   job, FM_CATALOGUE_JOB_BYTES - 1);
}

fm_status fm_catalogue_open(const char *where, const fm_catalogue_options *options,
                            fm_catalogue **ret_catalogue, fm_error *reterr) {
    fm_catalogue_options complete = *options;
    if (!complete.job) complete.job = "build";
    if (!complete.lease_ms) complete.lease_ms = FM_CATALOGUE_LEASE_MS;
    if (!complete.backoff_ms) complete.backoff_ms = FM_CATALOGUE_BACKOFF_MS;
    if (!complete.max_failures) complete.max_failures = FM_CATALOGUE_FAILURES_MAX;
    if (!complete.patience_ms) complete.patience_ms = FM_CATALOGUE_PATIENCE_MS;
    fm_status status = check_job(complete.job, reterr);
    if (status) return status;
    if (is_postgresql(where)) {
        return fm_catalogue_open_postgresql(where, &complete, ret_catalogue, reterr);
    }
    if (strstr(where, "://")) {
        /* The rest may contain a password. */
        return fm_fail(reterr, FM_ERR_USAGE,
                       "the catalogue is '%.*s://...'; a path or postgresql://... was expected",
                       (int)strcspn(where, ":"), where);
    }
    fm_path_kind kind = FM_PATH_FILE;
    if (complete.is_there) status = fm_path_look(where, &kind, reterr);
    if (status) return status;
    if (kind == FM_PATH_ABSENT) {
        return fm_fail_in(reterr, FM_ERR_NOT_FOUND, where,
                          "cannot open the catalogue: %s; foldmill build --catalogue makes one",
                          strerror(ENOENT));
    }
    return fm_catalogue_open_embedded(where, &complete, ret_catalogue, reterr);
}

fm_status fm_catalogue_migrate(const char *where, uint32_t patience_ms, uint32_t *ret_n_applied,
                               uint32_t *ret_n_known, fm_error *reterr) {
    if (!is_postgresql(where)) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "'%s' has no schema to bring up to date; postgresql://... was expected",
                       where);
    }
    return fm_catalogue_migrate_postgresql(where,
                                           patience_ms ? patience_ms : FM_CATALOGUE_PATIENCE_MS,
                                           ret_n_applied, ret_n_known, reterr);
}

void fm_catalogue_close(fm_catalogue *catalogue) {
    if (catalogue) catalogue->close(catalogue);
}

/* The list's identity: SHA-256 of its options and, for each entry, name, zero byte and source. */
static fm_sha256 hash_listing(const fm_catalogue_listing *listing) {
    static const char title[] = "foldmill listing 1\n";
    fm_sha256_state *state = fm_sha256_create();
    fm_sha256_update(state, title, sizeof title - 1);
    fm_sha256_update(state, &listing->options, sizeof listing->options);
    for (uint32_t i = 0; i < listing->n; i++) {
        const fm_catalogue_entry *entry = &listing->entry[i];
        fm_sha256_update(state, entry->name, strlen(entry->name) + 1);
        fm_sha256_update(state, &entry->source, sizeof entry->source);
    }
    fm_sha256 hash = fm_sha256_digest(state);
    fm_sha256_destroy(state);
    return hash;
}

fm_status fm_catalogue_begin(fm_catalogue *catalogue, const fm_catalogue_listing *listing,
                             fm_catalogue_mode mode, fm_error *reterr) {
    for (uint32_t i = 0; i < listing->n; i++) {
        size_t n = strlen(listing->entry[i].name);
        assert(n >= 1 && n <= FM_LIMIT_NAME_BYTES);
        assert(i == 0 || strcmp(listing->entry[i - 1].name, listing->entry[i].name) < 0);
    }
    fm_sha256 hash = hash_listing(listing);
    return catalogue->begin(catalogue, listing, &hash, mode, reterr);
}

fm_status fm_catalogue_claim_items(fm_catalogue *catalogue, uint32_t max,
                                   fm_catalogue_claim *ret_claim, uint32_t *ret_n,
                                   fm_error *reterr) {
    assert(catalogue->options.worker && max >= 1);
    return catalogue->claim(catalogue, max, ret_claim, ret_n, reterr);
}

fm_status fm_catalogue_heartbeat(fm_catalogue *catalogue, uint32_t n,
                                 const fm_catalogue_lease *lease, bool *ret_held,
                                 fm_error *reterr) {
    return n ? catalogue->heartbeat(catalogue, n, lease, ret_held, reterr) : FM_OK;
}

fm_status fm_catalogue_add_shard(fm_catalogue *catalogue, const fm_catalogue_shard *shard,
                                 fm_error *reterr) {
    fm_catalogue_shard complete = *shard;
    if (!complete.worker) complete.worker = catalogue->options.worker;
    if (!complete.cache) complete.cache = catalogue->options.cache;
    assert(complete.worker && complete.cache);
    return catalogue->add_shard(catalogue, &complete, reterr);
}

fm_status fm_catalogue_complete(fm_catalogue *catalogue, uint32_t n,
                                const fm_catalogue_completion *completion, bool *ret_taken,
                                fm_error *reterr) {
    return n ? catalogue->complete(catalogue, n, completion, ret_taken, reterr) : FM_OK;
}

fm_status fm_catalogue_fail(fm_catalogue *catalogue, const fm_catalogue_lease *lease,
                            const char *reason, bool final, bool *ret_taken, fm_error *reterr) {
    char plain[FM_CATALOGUE_REASON_BYTES];
    snprintf(plain, sizeof plain, "%s", reason);
    fm_utf8_make_plain(plain);
    return catalogue->fail(catalogue, lease, plain, final, ret_taken, reterr);
}

fm_status fm_catalogue_release(fm_catalogue *catalogue, uint32_t n, const fm_catalogue_lease *lease,
                               fm_error *reterr) {
    return n ? catalogue->release(catalogue, n, lease, reterr) : FM_OK;
}

fm_status fm_catalogue_restore(fm_catalogue *catalogue, const fm_sha256 *options,
                               const fm_catalogue_row *row, uint32_t n, fm_error *reterr) {
    return catalogue->restore(catalogue, options, row, n, reterr);
}

fm_status fm_catalogue_left(fm_catalogue *catalogue, uint32_t *ret_n, int64_t *ret_next_due_ms,
                            fm_error *reterr) {
    return catalogue->left(catalogue, ret_n, ret_next_due_ms, reterr);
}

fm_status fm_catalogue_count(fm_catalogue *catalogue, fm_catalogue_counts *ret_counts,
                             fm_error *reterr) {
    return catalogue->count(catalogue, ret_counts, reterr);
}

fm_status fm_catalogue_each_row(fm_catalogue *catalogue, unsigned states, fm_catalogue_see_row see,
                                void *context, fm_error *reterr) {
    return catalogue->each_row(catalogue, states, see, context, reterr);
}

fm_status fm_catalogue_each_shard(fm_catalogue *catalogue, fm_catalogue_see_shard see,
                                  void *context, fm_error *reterr) {
    return catalogue->each_shard(catalogue, see, context, reterr);
}

fm_status fm_catalogue_each_worker(fm_catalogue *catalogue, fm_catalogue_see_worker see,
                                   void *context, fm_error *reterr) {
    return catalogue->each_worker(catalogue, see, context, reterr);
}
