/* test_catalogue.c: the same tests for the embedded catalogue and for PostgreSQL (on the test's own
 * server), then those of PostgreSQL alone: migrations, roles, lost connections. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cache/catalogue/catalogue.h"
#include "tests/testing/postgresql.h"
#include "tests/testing/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char folder[256], file[300];
static fm_test_postgresql server;
static const char *where; /* of the catalogue under test */
static unsigned n_job;    /* each test has its own job */

/* A job's name that no test has used, valid until the test's end. */
static const char *new_job(void) {
    static char name[32];
    snprintf(name, sizeof name, "job-%u", n_job++);
    return name;
}

static fm_catalogue *open_as(const char *worker, fm_catalogue_options options) {
    fm_catalogue *catalogue;
    fm_error error = {.message = ""};
    options.worker = worker;
    options.cache = "/caches/mine";
    fm_status status = fm_catalogue_open(where, &options, &catalogue, &error);
    if (status) print_error("%s: %s\n", error.source, error.message);
    assert_int_equal(status, FM_OK);
    return catalogue;
}

enum { LIST_MAX = 500 };
static char names[LIST_MAX][32];
static fm_catalogue_entry entries[LIST_MAX];

/* chain-000 ... of `version`. */
static fm_catalogue_listing list_of(uint32_t n, const char *version) {
    assert_true(n <= LIST_MAX);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "chain-%03u", i);
        entries[i] = (fm_catalogue_entry){names[i], fm_sha256_of(version, strlen(version))};
    }
    return (fm_catalogue_listing){fm_sha256_of("options", 7), n, entries};
}

static void begin(fm_catalogue *catalogue, uint32_t n) {
    fm_catalogue_listing listing = list_of(n, "one");
    assert_int_equal(fm_catalogue_begin(catalogue, &listing, FM_CATALOGUE_JOIN, NULL), FM_OK);
}

static fm_catalogue_counts count(fm_catalogue *catalogue) {
    fm_catalogue_counts counts;
    assert_int_equal(fm_catalogue_count(catalogue, &counts, NULL), FM_OK);
    return counts;
}

static uint32_t claim(fm_catalogue *catalogue, uint32_t max, fm_catalogue_claim *ret) {
    uint32_t n;
    fm_error error;
    fm_status status = fm_catalogue_claim_items(catalogue, max, ret, &n, &error);
    if (status) print_error("%s\n", error.message);
    assert_int_equal(status, FM_OK);
    return n;
}

/* Claims until something is due, which takes milliseconds. */
static uint32_t claim_soon(fm_catalogue *catalogue, uint32_t max, fm_catalogue_claim *ret) {
    for (int i = 0; i < 3000; i++) {
        uint32_t n = claim(catalogue, max, ret);
        if (n) return n;
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    fail_msg("nothing fell due in 30 s");
    return 0;
}

static fm_sha256 add_shard(fm_catalogue *catalogue, const char *content) {
    const fm_catalogue_shard shard = {
        .info = {.hash = fm_sha256_of(content, strlen(content)), .bytes = 4096, .n_blob = 3}};
    assert_int_equal(fm_catalogue_add_shard(catalogue, &shard, NULL), FM_OK);
    return shard.info.hash;
}

static bool complete(fm_catalogue *catalogue, const fm_catalogue_claim *claimed,
                     const fm_sha256 *shard) {
    const fm_catalogue_completion completion = {claimed->lease, *shard, 1};
    bool taken;
    assert_int_equal(fm_catalogue_complete(catalogue, 1, &completion, &taken, NULL), FM_OK);
    return taken;
}

static bool fail_with(fm_catalogue *catalogue, const fm_catalogue_claim *claimed,
                      const char *reason, bool final) {
    bool taken;
    assert_int_equal(fm_catalogue_fail(catalogue, &claimed->lease, reason, final, &taken, NULL),
                     FM_OK);
    return taken;
}

static bool beat(fm_catalogue *catalogue, const fm_catalogue_claim *claimed) {
    bool held;
    assert_int_equal(fm_catalogue_heartbeat(catalogue, 1, &claimed->lease, &held, NULL), FM_OK);
    return held;
}

/* -- tests of both catalogues */

static void adding_is_idempotent(void **state) {
    (void)state;
    const char *job = new_job();
    fm_catalogue *one = open_as("one", (fm_catalogue_options){.job = job});
    fm_catalogue *two = open_as("two", (fm_catalogue_options){.job = job});
    fm_catalogue_claim claimed[LIST_MAX];
    fm_catalogue_listing listing = list_of(5, "one");
    uint32_t n;
    assert_int_equal(fm_catalogue_claim_items(one, 1, claimed, &n, NULL), FM_ERR_NOT_FOUND);
    begin(one, 5);
    begin(two, 5);
    assert_int_equal(count(one).n[FM_CATALOGUE_PENDING], 5);
    assert_int_equal(claim(one, 2, claimed), 2);
    fm_sha256 shard = add_shard(one, "shard");
    assert_true(complete(one, &claimed[0], &shard));
    begin(two, 5);
    assert_int_equal(count(two).n[FM_CATALOGUE_DONE], 1);
    /* Another list, or other options, mean another job, unless they replace this one's. */
    fm_error error;
    listing = list_of(7, "one");
    assert_int_equal(fm_catalogue_begin(two, &listing, FM_CATALOGUE_JOIN, &error), FM_ERR_EXISTS);
    assert_non_null(strstr(error.message, "another list"));
    listing.n = 5;
    listing.options = fm_sha256_of("other", 5);
    assert_int_equal(fm_catalogue_begin(two, &listing, FM_CATALOGUE_JOIN, &error), FM_ERR_EXISTS);
    assert_non_null(strstr(error.message, "other options"));
    assert_int_equal(count(two).n[FM_CATALOGUE_DONE], 1);
    /* chain-000 is done, chain-001 leased; 000 goes, 001's source changes, three are new. */
    listing = list_of(8, "one");
    listing.entry = &entries[1];
    listing.n = 7;
    entries[1].source = fm_sha256_of("changed", 7);
    assert_int_equal(fm_catalogue_begin(two, &listing, FM_CATALOGUE_RENEW, NULL), FM_OK);
    assert_int_equal(count(two).n[FM_CATALOGUE_PENDING], 7);
    assert_int_equal(count(two).n[FM_CATALOGUE_DONE], 0);
    assert_false(complete(one, &claimed[1], &shard)); /* its item is no longer in the list */
    assert_int_equal(claim(two, LIST_MAX, claimed), 7);
    assert_true(complete(two, &claimed[3], &shard));
    assert_int_equal(fm_catalogue_begin(one, &listing, FM_CATALOGUE_RENEW, NULL), FM_OK);
    assert_int_equal(count(one).n[FM_CATALOGUE_DONE], 1);
    assert_int_equal(fm_catalogue_begin(one, &listing, FM_CATALOGUE_AGAIN, NULL), FM_OK);
    assert_int_equal(count(one).n[FM_CATALOGUE_PENDING], 7);
    fm_catalogue_close(one);
    fm_catalogue_close(two);
}

enum { N_CHILD = 4, N_CONTENDED = 400 };

/* Claims until nothing is left and writes the names to its file. */
static void claim_all(const char *job, int number) {
    char worker[32], path[400];
    fm_catalogue_claim claimed[7];
    fm_catalogue *catalogue;
    uint32_t n;
    snprintf(worker, sizeof worker, "child-%d", number);
    snprintf(path, sizeof path, "%s/claimed-%d", folder, number);
    FILE *out = fopen(path, "w");
    const fm_catalogue_options options = {.job = job, .worker = worker, .cache = "/c"};
    if (!out || fm_catalogue_open(where, &options, &catalogue, NULL)) _exit(1);
    do {
        if (fm_catalogue_claim_items(catalogue, 7, claimed, &n, NULL)) _exit(2);
        for (uint32_t i = 0; i < n; i++)
            fprintf(out, "%s\n", claimed[i].name);
    } while (n);
    fclose(out);
    fm_catalogue_close(catalogue);
    _exit(0);
}

static void claims_never_overlap(void **state) {
    (void)state;
    const char *job = new_job();
    unsigned seen[N_CONTENDED] = {0};
    fm_catalogue *catalogue = open_as("first", (fm_catalogue_options){.job = job});
    begin(catalogue, N_CONTENDED);
    fm_catalogue_close(catalogue);
    pid_t child[N_CHILD];
    for (int i = 0; i < N_CHILD; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i] == 0) claim_all(job, i);
    }
    for (int i = 0; i < N_CHILD; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_int_equal(status, 0);
        char path[400], line[64];
        unsigned number;
        snprintf(path, sizeof path, "%s/claimed-%d", folder, i);
        FILE *in = fopen(path, "r");
        assert_non_null(in);
        while (fgets(line, sizeof line, in)) {
            assert_int_equal(sscanf(line, "chain-%u", &number), 1);
            seen[number]++;
        }
        fclose(in);
    }
    for (int i = 0; i < N_CONTENDED; i++)
        assert_int_equal(seen[i], 1);
    catalogue = open_as("first", (fm_catalogue_options){.job = job});
    assert_int_equal(count(catalogue).n[FM_CATALOGUE_LEASED], N_CONTENDED);
    fm_catalogue_close(catalogue);
}

static void a_stale_worker_is_fenced_off(void **state) {
    (void)state;
    const char *job = new_job();
    fm_catalogue *stale = open_as("stale", (fm_catalogue_options){.job = job, .lease_ms = 1});
    fm_catalogue *fresh = open_as("fresh", (fm_catalogue_options){.job = job});
    fm_catalogue_claim old, taken;
    begin(stale, 1);
    assert_int_equal(claim(stale, 1, &old), 1);
    assert_int_equal(old.lease.attempt, 1);
    assert_string_equal(old.name, "chain-000");
    assert_int_equal(claim_soon(fresh, 1, &taken), 1);
    assert_int_equal(taken.lease.attempt, 2);
    assert_int_equal(taken.failures, 1);
    assert_int_equal(claim(stale, 1, &(fm_catalogue_claim){0}), 0);
    fm_sha256 shard = add_shard(stale, "stale"), good = add_shard(fresh, "fresh");
    assert_false(beat(stale, &old));
    assert_true(beat(fresh, &taken));
    assert_false(complete(stale, &old, &shard));
    assert_false(fail_with(stale, &old, "late", false));
    assert_int_equal(fm_catalogue_release(stale, 1, &old.lease, NULL), FM_OK);
    assert_int_equal(count(fresh).n[FM_CATALOGUE_LEASED], 1);
    assert_true(complete(fresh, &taken, &good));
    assert_true(complete(fresh, &taken, &good)); /* the answer may have been lost */
    assert_false(complete(fresh, &taken, &shard));
    assert_false(complete(stale, &old, &shard));
    assert_false(beat(fresh, &taken));
    assert_int_equal(count(fresh).n[FM_CATALOGUE_DONE], 1);
    fm_catalogue_close(stale);
    fm_catalogue_close(fresh);
}

/* A lease that ran out is still valid until another worker claims the item. */
static void late_but_alone(void **state) {
    (void)state;
    const char *job = new_job();
    fm_catalogue *late = open_as("late", (fm_catalogue_options){.job = job, .lease_ms = 1});
    fm_catalogue_claim claimed;
    begin(late, 1);
    assert_int_equal(claim(late, 1, &claimed), 1);
    nanosleep(&(struct timespec){0, 5000000}, NULL);
    assert_int_equal(count(late).n_lapsed, 1);
    fm_sha256 shard = add_shard(late, "late");
    assert_true(complete(late, &claimed, &shard));
    fm_catalogue_close(late);
}

static fm_status keep_row(void *context, const fm_catalogue_row *row, fm_error *reterr) {
    (void)reterr;
    snprintf(context, 512, "%s %s %u %u %s", row->name, fm_catalogue_state_name(row->state),
             row->attempt, row->failures, row->reason);
    return FM_OK;
}

static void failures_wait_and_end_as_refused(void **state) {
    (void)state;
    const char *job = new_job();
    char row[512];
    fm_catalogue_claim claimed;
    fm_catalogue *slow = open_as("slow", (fm_catalogue_options){.job = job, .backoff_ms = 600000});
    begin(slow, 1);
    assert_int_equal(claim(slow, 1, &claimed), 1);
    assert_true(fail_with(slow, &claimed, "disk is away", false));
    assert_false(fail_with(slow, &claimed, "disk is away", false));
    assert_int_equal(claim(slow, 1, &claimed), 0);
    int64_t due = count(slow).next_due_ms;
    assert_in_range(due, 300000, 600000);
    fm_catalogue_close(slow);
    job = new_job();
    fm_catalogue *quick = open_as("quick", (fm_catalogue_options){.job = job, .backoff_ms = 1});
    begin(quick, 1);
    for (uint32_t i = 1; i <= 5; i++) {
        assert_int_equal(claim_soon(quick, 1, &claimed), 1);
        assert_int_equal(claimed.lease.attempt, i);
        assert_int_equal(claimed.failures, i - 1);
        assert_true(
            fail_with(quick, &claimed, "a \"reason\" with 'quotes' \\ and {braces}", false));
    }
    assert_int_equal(claim(quick, 1, &claimed), 0);
    assert_int_equal(count(quick).n[FM_CATALOGUE_REFUSED], 1);
    assert_true(count(quick).next_due_ms == INT64_MAX);
    assert_int_equal(fm_catalogue_each_row(quick, 1u << FM_CATALOGUE_REFUSED, keep_row, row, NULL),
                     FM_OK);
    assert_string_equal(row, "chain-000 refused 5 5 a \"reason\" with 'quotes' \\ and {braces}");
    fm_catalogue_close(quick);
}

static void a_final_failure_is_not_tried_again(void **state) {
    (void)state;
    fm_catalogue *catalogue = open_as("one", (fm_catalogue_options){.job = new_job()});
    fm_catalogue_claim claimed[2];
    begin(catalogue, 2);
    assert_int_equal(claim(catalogue, 2, claimed), 2);
    assert_true(fail_with(catalogue, &claimed[0], "x.a3m:3:1: no letter", true));
    assert_int_equal(count(catalogue).n[FM_CATALOGUE_REFUSED], 1);
    assert_int_equal(count(catalogue).n[FM_CATALOGUE_LEASED], 1);
    fm_catalogue_close(catalogue);
}

/* An item that kills its worker is refused in the end, and no other item is lost with it. */
static void lost_workers_count(void **state) {
    (void)state;
    const char *job = new_job();
    char row[512] = "";
    const fm_catalogue_options options = {.job = job, .lease_ms = 1, .max_failures = 4};
    fm_catalogue *mortal = open_as("mortal", options);
    fm_catalogue_claim claimed[3];
    begin(mortal, 3);
    assert_int_equal(claim(mortal, 3, claimed), 3);
    nanosleep(&(struct timespec){0, 5000000}, NULL);
    assert_int_equal(claim(mortal, 3, claimed), 3); /* one loss may be an accident */
    fm_sha256 shard = add_shard(mortal, "shard");
    for (int i = 0; i < 2; i++) { /* after two failures, each alone */
        assert_int_equal(claim_soon(mortal, 3, claimed), 1);
        assert_true(complete(mortal, &claimed[0], &shard));
    }
    for (uint32_t i = 3; i <= 4; i++) {
        assert_int_equal(claim_soon(mortal, 3, claimed), 1);
        assert_int_equal(claimed[0].failures, i - 1);
    }
    for (int i = 0; i < 3000 && count(mortal).n[FM_CATALOGUE_REFUSED] == 0; i++) {
        nanosleep(&(struct timespec){0, 5000000}, NULL);
        assert_int_equal(claim(mortal, 3, claimed), 0);
    }
    assert_int_equal(count(mortal).n[FM_CATALOGUE_DONE], 2);
    assert_int_equal(fm_catalogue_each_row(mortal, 1u << FM_CATALOGUE_REFUSED, keep_row, row, NULL),
                     FM_OK);
    assert_string_equal(row, "chain-002 refused 4 4 4 attempts failed; the last worker, "
                             "mortal, was not heard of again");
    fm_catalogue_close(mortal);
}

static void returned_items_are_due_at_once(void **state) {
    (void)state;
    fm_catalogue *catalogue = open_as("one", (fm_catalogue_options){.job = new_job()});
    fm_catalogue_claim claimed[3];
    begin(catalogue, 3);
    assert_int_equal(claim(catalogue, 3, claimed), 3);
    const fm_catalogue_lease back[2] = {claimed[0].lease, claimed[2].lease};
    assert_int_equal(fm_catalogue_release(catalogue, 2, back, NULL), FM_OK);
    assert_int_equal(claim(catalogue, 3, claimed), 2);
    assert_int_equal(claimed[0].lease.attempt, 2);
    assert_int_equal(claimed[0].failures, 0);
    assert_string_equal(claimed[0].name, "chain-000");
    assert_string_equal(claimed[1].name, "chain-002");
    fm_catalogue_close(catalogue);
}

static fm_status see_shard(void *context, const fm_catalogue_shard *shard, fm_error *reterr) {
    (void)reterr;
    assert_string_equal(shard->worker, "one");
    assert_string_equal(shard->cache, "/caches/mine");
    assert_int_equal(shard->info.bytes, 4096);
    assert_int_equal(shard->info.n_blob, 3);
    ++*(int *)context;
    return FM_OK;
}

static fm_status see_worker(void *context, const fm_catalogue_worker *worker, fm_error *reterr) {
    (void)reterr;
    if (strcmp(worker->name, "one") != 0) return FM_OK;
    assert_string_equal(worker->cache, "/caches/mine");
    assert_int_equal(worker->n_done, 1);
    assert_int_equal(worker->n_leased, 1);
    assert_in_range(worker->seen_ms, 0, 120000);
    ++*(int *)context;
    return FM_OK;
}

static fm_status count_row(void *context, const fm_catalogue_row *row, fm_error *reterr) {
    int *n = context;
    char expected[32];
    snprintf(expected, sizeof expected, "chain-%03d", (*n)++);
    assert_string_equal(row->name, expected);
    return *n == 3 ? fm_fail(reterr, FM_ERR_CANCELLED, "enough") : FM_OK;
}

static void items_shards_and_workers_can_be_listed(void **state) {
    (void)state;
    fm_catalogue *catalogue = open_as("one", (fm_catalogue_options){.job = new_job()});
    fm_catalogue_claim claimed[2];
    int n_shard = 0, n_worker = 0, n_row = 0;
    begin(catalogue, 4);
    assert_int_equal(claim(catalogue, 2, claimed), 2);
    fm_sha256 shard = add_shard(catalogue, "a");
    add_shard(catalogue, "b");
    add_shard(catalogue, "b");
    assert_true(complete(catalogue, &claimed[0], &shard));
    assert_int_equal(fm_catalogue_each_shard(catalogue, see_shard, &n_shard, NULL), FM_OK);
    assert_int_equal(n_shard, 2);
    assert_int_equal(fm_catalogue_each_worker(catalogue, see_worker, &n_worker, NULL), FM_OK);
    assert_int_equal(n_worker, 1);
    assert_int_equal(fm_catalogue_each_row(catalogue, ~0u, count_row, &n_row, NULL),
                     FM_ERR_CANCELLED);
    assert_int_equal(n_row, 3);
    uint32_t n_left;
    int64_t next_due_ms;
    assert_int_equal(fm_catalogue_left(catalogue, &n_left, &next_due_ms, NULL), FM_OK);
    assert_int_equal(n_left, 3);
    assert_int_equal(next_due_ms, 0);
    fm_catalogue_counts counts = count(catalogue);
    assert_int_equal(counts.n_shard, 2);
    assert_int_equal(counts.shard_bytes, 8192);
    assert_int_equal(counts.next_due_ms, 0);
    fm_catalogue_close(catalogue);
}

static void items_of_shards_are_recorded(void **state) {
    (void)state;
    const char *job = new_job();
    fm_catalogue *catalogue = open_as("rebuild", (fm_catalogue_options){.job = job});
    fm_catalogue_listing listing = list_of(4, "one");
    fm_sha256 options = listing.options, shard = fm_sha256_of("s", 1);
    const fm_catalogue_row rows[] = {
        {.name = "chain-000",
         .source = entries[0].source,
         .state = FM_CATALOGUE_DONE,
         .attempt = 3,
         .n_chain = 1,
         .has_shard = true,
         .shard = shard},
        {.name = "chain-001",
         .source = entries[1].source,
         .state = FM_CATALOGUE_REFUSED,
         .reason = "bad"},
        {.name = "chain-009", .source = entries[0].source, .state = FM_CATALOGUE_REFUSED}};
    const fm_catalogue_shard known = {.info = {.hash = shard, .bytes = 1}};
    assert_int_equal(fm_catalogue_restore(catalogue, &options, rows, 0, NULL), FM_OK);
    assert_int_equal(fm_catalogue_add_shard(catalogue, &known, NULL), FM_OK);
    assert_int_equal(fm_catalogue_restore(catalogue, &options, rows, 3, NULL), FM_OK);
    assert_int_equal(fm_catalogue_restore(catalogue, &options, rows, 3, NULL), FM_OK);
    assert_int_equal(count(catalogue).n[FM_CATALOGUE_DONE], 1);
    assert_int_equal(count(catalogue).n[FM_CATALOGUE_REFUSED], 2);
    /* The next worker brings the list: done items stay, the rest is tried. */
    begin(catalogue, 4);
    assert_int_equal(count(catalogue).n[FM_CATALOGUE_DONE], 1);
    assert_int_equal(count(catalogue).n[FM_CATALOGUE_PENDING], 3);
    assert_int_equal(count(catalogue).n[FM_CATALOGUE_REFUSED], 0);
    fm_catalogue_close(catalogue);
}

static void strange_names(void **state) {
    (void)state;
    fm_catalogue *catalogue = open_as("o'ne \\ {\"}", (fm_catalogue_options){.job = new_job()});
    const fm_catalogue_entry strange[] = {
        {.name = " "},       {.name = "'; DROP TABLE foldmill.item; --"},
        {.name = "1abc/"},   {.name = "NULL"},
        {.name = "\\\",{}"}, {.name = "\xc3\xa9_A"}};
    const fm_catalogue_listing listing = {.n = 6, .entry = strange};
    fm_catalogue_claim claimed[6];
    assert_int_equal(fm_catalogue_begin(catalogue, &listing, FM_CATALOGUE_JOIN, NULL), FM_OK);
    assert_int_equal(claim(catalogue, 6, claimed), 6);
    for (int i = 0; i < 6; i++)
        assert_string_equal(claimed[i].name, strange[i].name);
    fm_catalogue_close(catalogue);
}

static fm_status expect_reason(void *context, const fm_catalogue_row *row, fm_error *reterr) {
    (void)reterr;
    if (row->state == FM_CATALOGUE_REFUSED) assert_string_equal(row->reason, context);
    return FM_OK;
}

/* Reasons quote files and paths, whose bytes need not be UTF-8. A reason that the catalogue could
 * not store would end each worker that meets the item. */
static void reasons_of_any_bytes(void **state) {
    (void)state;
    fm_catalogue *catalogue = open_as("w", (fm_catalogue_options){.job = new_job()});
    fm_catalogue_claim claimed;
    begin(catalogue, 1);
    assert_int_equal(claim(catalogue, 1, &claimed), 1);
    assert_true(fail_with(catalogue, &claimed, "\xff 3 \xc3\x85\xe2\x82", true));
    char expected[] = "? 3 \xc3\x85??";
    assert_int_equal(fm_catalogue_each_row(catalogue, ~0u, expect_reason, expected, NULL), FM_OK);
    fm_catalogue_close(catalogue);
}

static void bad_addresses(void **state) {
    (void)state;
    fm_catalogue *catalogue;
    fm_error error;
    const fm_catalogue_options bad = {.job = "a b"}, good = {.job = NULL};
    assert_int_equal(fm_catalogue_open(where, &bad, &catalogue, &error), FM_ERR_USAGE);
    assert_int_equal(fm_catalogue_open("mysql://u:secret@x", &good, &catalogue, &error),
                     FM_ERR_USAGE);
    assert_null(strstr(error.message, "secret"));
    const fm_catalogue_options there = {.is_there = true};
    char none[300];
    snprintf(none, sizeof none, "%s/none", folder);
    assert_int_equal(fm_catalogue_open(none, &there, &catalogue, &error), FM_ERR_NOT_FOUND);
    assert_int_not_equal(access(none, F_OK), 0);
    assert_int_not_equal(fm_catalogue_open("/proc/nowhere/c", &good, &catalogue, &error), FM_OK);
}

/* -- PostgreSQL alone */

static void migrations(void **state) {
    (void)state;
    fm_catalogue *catalogue;
    fm_error error;
    uint32_t n_applied, n_known;
    const fm_catalogue_options options = {.worker = "x", .cache = "/"};
    assert_int_equal(fm_catalogue_open(server.url, &options, &catalogue, &error),
                     FM_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "foldmill catalogue migrate"));
    assert_int_equal(fm_catalogue_migrate(server.url, 0, &n_applied, &n_known, &error), FM_OK);
    assert_int_equal(n_applied, n_known);
    assert_true(n_known >= 3);
    assert_int_equal(fm_catalogue_migrate(server.url, 0, &n_applied, &n_known, &error), FM_OK);
    assert_int_equal(n_applied, 0);
    assert_int_equal(fm_catalogue_open(server.url, &options, &catalogue, &error), FM_OK);
    fm_catalogue_close(catalogue);
    assert_int_equal(fm_catalogue_migrate("/tmp/file", 0, &n_applied, &n_known, NULL),
                     FM_ERR_USAGE);
}

static int psql(const char *statement) {
    char command[1024];
    snprintf(command, sizeof command, "%s/psql -q -X -v ON_ERROR_STOP=1 '%s' -c \"%s\" >/dev/null",
             server.bin, server.url, statement);
    return system(command);
}

/* A database of an older foldmill calls a refused item "quarantined". */
static void older_rows_are_renamed(void **state) {
    (void)state;
    fm_error error;
    uint32_t n_applied, n_known;
    fm_catalogue_claim claimed;
    char row[512] = "";
    const fm_catalogue_options options = {.job = new_job()};
    fm_catalogue *catalogue = open_as("old", options);
    begin(catalogue, 2);
    assert_int_equal(claim(catalogue, 1, &claimed), 1);
    assert_true(fail_with(catalogue, &claimed, "x.a3m:3:1: no letter", true));
    fm_catalogue_close(catalogue);
    assert_int_equal(psql("ALTER TABLE foldmill.item DROP CONSTRAINT item_state_check; "
                          "UPDATE foldmill.item SET state = 'quarantined' "
                          "WHERE state = 'refused'; "
                          "ALTER TABLE foldmill.item ADD CONSTRAINT item_state_check "
                          "CHECK (state IN ('pending', 'leased', 'done', 'quarantined')); "
                          "DELETE FROM foldmill.schema_migrations WHERE number = 3"),
                     0);
    assert_int_equal(fm_catalogue_open(server.url, &options, &catalogue, &error),
                     FM_ERR_UNSUPPORTED);
    assert_int_equal(fm_catalogue_migrate(server.url, 0, &n_applied, &n_known, &error), FM_OK);
    assert_int_equal(n_applied, 1);
    catalogue = open_as("new", options);
    assert_int_equal(count(catalogue).n[FM_CATALOGUE_REFUSED], 1);
    assert_int_equal(count(catalogue).n[FM_CATALOGUE_PENDING], 1);
    assert_int_equal(
        fm_catalogue_each_row(catalogue, 1u << FM_CATALOGUE_REFUSED, keep_row, row, NULL), FM_OK);
    assert_string_equal(row, "chain-000 refused 1 1 x.a3m:3:1: no letter");
    fm_catalogue_close(catalogue);
    assert_int_not_equal(psql("UPDATE foldmill.item SET state = 'quarantined'"), 0);
}

static void schemas_that_do_not_fit(void **state) {
    (void)state;
    fm_catalogue *catalogue;
    fm_error error;
    const fm_catalogue_options options = {.worker = "x", .cache = "/"};
    assert_int_equal(psql("INSERT INTO foldmill.schema_migrations SELECT max(number) + 1, "
                          "'later', repeat('0', 64) FROM foldmill.schema_migrations"),
                     0);
    assert_int_equal(fm_catalogue_open(server.url, &options, &catalogue, &error),
                     FM_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "newer foldmill"));
    uint32_t n_applied, n_known;
    assert_int_equal(fm_catalogue_migrate(server.url, 0, &n_applied, &n_known, &error),
                     FM_ERR_UNSUPPORTED);
    assert_int_equal(psql("DELETE FROM foldmill.schema_migrations WHERE name = 'later'; "
                          "UPDATE foldmill.schema_migrations SET sha256 = translate(sha256, "
                          "'0123456789', '1234567890') WHERE number = 2"),
                     0);
    assert_int_equal(fm_catalogue_open(server.url, &options, &catalogue, &error), FM_ERR_CORRUPT);
    assert_int_equal(psql("UPDATE foldmill.schema_migrations SET sha256 = translate(sha256, "
                          "'1234567890', '0123456789') WHERE number = 2"),
                     0);
    assert_int_equal(fm_catalogue_open(server.url, &options, &catalogue, &error), FM_OK);
    fm_catalogue_close(catalogue);
}

static fm_status ignore_row(void *context, const fm_catalogue_row *row, fm_error *reterr) {
    (void)context;
    (void)row;
    (void)reterr;
    return FM_OK;
}

static void roles_have_the_needed_rights(void **state) {
    (void)state;
    char url[192];
    fm_error error;
    fm_catalogue_claim claimed;
    uint32_t n, n_applied, n_known;
    fm_catalogue *catalogue;
    assert_int_equal(psql("CREATE ROLE tom LOGIN IN ROLE foldmill_worker; "
                          "CREATE ROLE ann LOGIN IN ROLE foldmill_reader"),
                     0);
    where = fm_test_postgresql_url(&server, "tom", url, sizeof url);
    const char *job = new_job();
    catalogue = open_as("tom", (fm_catalogue_options){.job = job, .lease_ms = 1});
    fm_catalogue_listing listing = list_of(3, "one");
    assert_int_equal(fm_catalogue_begin(catalogue, &listing, FM_CATALOGUE_JOIN, &error), FM_OK);
    listing.n = 2;
    assert_int_equal(fm_catalogue_begin(catalogue, &listing, FM_CATALOGUE_RENEW, &error), FM_OK);
    assert_int_equal(claim(catalogue, 1, &claimed), 1);
    fm_sha256 shard = add_shard(catalogue, "tom's");
    assert_true(beat(catalogue, &claimed));
    assert_true(complete(catalogue, &claimed, &shard));
    fm_catalogue_close(catalogue);
    where = fm_test_postgresql_url(&server, "ann", url, sizeof url);
    catalogue = open_as("ann", (fm_catalogue_options){.job = job});
    assert_int_equal(count(catalogue).n[FM_CATALOGUE_DONE], 1);
    assert_int_equal(fm_catalogue_each_row(catalogue, ~0u, ignore_row, NULL, NULL), FM_OK);
    assert_int_equal(fm_catalogue_claim_items(catalogue, 1, &claimed, &n, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "permission denied"));
    fm_catalogue_close(catalogue);
    assert_int_equal(fm_catalogue_migrate(url, 0, &n_applied, &n_known, &error), FM_OK);
    where = server.url;
}

/* A user who migrates need not be a superuser. */
static void an_owner_without_all_rights(void **state) {
    (void)state;
    char url[192];
    fm_error error = {.message = ""};
    fm_catalogue *catalogue;
    uint32_t n_applied, n_known;
    assert_int_equal(psql("CREATE ROLE dba LOGIN CREATEROLE"), 0);
    assert_int_equal(psql("CREATE DATABASE other OWNER dba"), 0);
    snprintf(url, sizeof url, "postgresql:///other?host=%s&user=dba", server.folder);
    fm_status status = fm_catalogue_migrate(url, 0, &n_applied, &n_known, &error);
    if (status) print_error("%s: %s\n", error.source, error.message);
    assert_int_equal(status, FM_OK);
    assert_int_equal(n_applied, n_known);
    snprintf(url, sizeof url, "postgresql:///other?host=%s&user=tom", server.folder);
    const fm_catalogue_options options = {.worker = "tom", .cache = "/"};
    assert_int_equal(fm_catalogue_open(url, &options, &catalogue, &error), FM_OK);
    fm_catalogue_close(catalogue);
}

/* A refused connection and a lost one are different errors: trying again helps only with the
 * latter. */
static void refused_and_lost_connections_differ(void **state) {
    (void)state;
    char url[192];
    fm_error error;
    fm_catalogue *catalogue;
    const fm_catalogue_options options = {.job = NULL};
    fm_test_postgresql_url(&server, "nobody-known", url, sizeof url);
    assert_int_equal(fm_catalogue_open(url, &options, &catalogue, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "nobody-known"));
    snprintf(url, sizeof url, "postgresql:///absent?host=%s&user=postgres", server.folder);
    assert_int_equal(fm_catalogue_open(url, &options, &catalogue, &error), FM_ERR_IO);
}

static void lost_connections_are_reopened(void **state) {
    (void)state;
    fm_error error;
    fm_catalogue_claim claimed[2];
    fm_catalogue_counts counts;
    fm_catalogue *catalogue = open_as("one", (fm_catalogue_options){.job = new_job()});
    begin(catalogue, 2);
    assert_int_equal(claim(catalogue, 1, &claimed[0]), 1);
    fm_test_postgresql_stop(&server, false);
    assert_int_equal(fm_catalogue_count(catalogue, &counts, &error), FM_ERR_CLOSED);
    assert_int_equal(fm_catalogue_count(catalogue, &counts, &error), FM_ERR_CLOSED);
    fm_test_postgresql_start(&server);
    fm_sha256 shard = add_shard(catalogue, "after");
    assert_true(beat(catalogue, &claimed[0]));
    assert_true(complete(catalogue, &claimed[0], &shard));
    assert_int_equal(psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                          "WHERE application_name = 'foldmill'"),
                     0);
    assert_int_equal(fm_catalogue_count(catalogue, &counts, &error), FM_ERR_CLOSED);
    assert_int_equal(fm_catalogue_count(catalogue, &counts, &error), FM_OK);
    assert_int_equal(counts.n[FM_CATALOGUE_DONE], 1);
    fm_catalogue_close(catalogue);
}

/* Calls to a server that accepts connections but does not answer end in time. */
static void calls_to_a_silent_server_time_out(void **state) {
    (void)state;
    fm_error error;
    fm_catalogue_counts counts;
    struct timespec begun, ended;
    fm_catalogue *catalogue =
        open_as("one", (fm_catalogue_options){.job = new_job(), .patience_ms = 300});
    fm_test_postgresql_signal(&server, "STOP");
    clock_gettime(CLOCK_MONOTONIC, &begun);
    assert_int_equal(fm_catalogue_count(catalogue, &counts, &error), FM_ERR_CLOSED);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    assert_in_range(ended.tv_sec - begun.tv_sec, 0, 20);
    fm_test_postgresql_signal(&server, "CONT");
    fm_catalogue_close(catalogue);
}

static void errors_hide_passwords(void **state) {
    (void)state;
    fm_catalogue *catalogue;
    fm_error error;
    const fm_catalogue_options options = {.patience_ms = 2000};
    static const char *const urls[] = {
        "postgresql://u:secret@[::1]:1/x",
        "postgresql:///x?host=/nowhere&password=secret&user=u",
        "postgresql:///x?host=/nowhere&sslpassword=secret&password=secret",
        "postgresql://u:not/secret@[::1]:1/x",
        "postgresql://u:not@secret@[::1]:1/x",
    };
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        assert_int_equal(fm_catalogue_open(urls[i], &options, &catalogue, &error), FM_ERR_CLOSED);
        assert_null(strstr(error.source, "secret"));
        assert_null(strstr(error.message, "secret"));
    }
}

/* -- the lists of tests */

static int use_file(void **state) {
    (void)state;
    where = file;
    return 0;
}

static int use_server(void **state) {
    (void)state;
    where = server.url;
    return server.pid ? 0 : -1;
}

#define COMMON                                                                                     \
    cmocka_unit_test(adding_is_idempotent), cmocka_unit_test(claims_never_overlap),                \
        cmocka_unit_test(a_stale_worker_is_fenced_off), cmocka_unit_test(late_but_alone),          \
        cmocka_unit_test(failures_wait_and_end_as_refused),                                        \
        cmocka_unit_test(a_final_failure_is_not_tried_again),                                      \
        cmocka_unit_test(lost_workers_count), cmocka_unit_test(returned_items_are_due_at_once),    \
        cmocka_unit_test(items_shards_and_workers_can_be_listed),                                  \
        cmocka_unit_test(items_of_shards_are_recorded), cmocka_unit_test(strange_names),           \
        cmocka_unit_test(reasons_of_any_bytes)

/* False when foldmill was built without libpq. */
static bool has_postgresql(void) {
    uint32_t n;
    return fm_catalogue_migrate("postgresql:///x?host=/nowhere", 100, &n, &n, NULL) !=
           FM_ERR_UNSUPPORTED;
}

int main(void) {
    const struct CMUnitTest embedded[] = {COMMON, cmocka_unit_test(bad_addresses)};
    const struct CMUnitTest postgresql[] = {
        cmocka_unit_test(migrations),
        COMMON,
        cmocka_unit_test(older_rows_are_renamed),
        cmocka_unit_test(schemas_that_do_not_fit),
        cmocka_unit_test(roles_have_the_needed_rights),
        cmocka_unit_test(an_owner_without_all_rights),
        cmocka_unit_test(refused_and_lost_connections_differ),
        cmocka_unit_test(lost_connections_are_reopened),
        cmocka_unit_test(calls_to_a_silent_server_time_out),
        cmocka_unit_test(errors_hide_passwords),
    };
    fm_test_make_folder(folder, sizeof folder);
    snprintf(file, sizeof file, "%s/new/catalogue", folder);
    int failed = cmocka_run_group_tests_name("embedded", embedded, use_file, NULL);
    if (!has_postgresql()) {
        print_message("skipped: built without libpq\n");
    } else if (fm_test_postgresql_create(&server)) {
        failed += cmocka_run_group_tests_name("postgresql", postgresql, use_server, NULL);
        fm_test_postgresql_destroy(&server);
    }
    fm_test_remove_tree(folder);
    return failed;
}
