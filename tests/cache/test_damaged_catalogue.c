/* test_damaged_catalogue.c: an embedded catalogue whose file is damaged, or of something else.
 * `--all` flips every bit of a small one. */
#include "tests/testing/testing.h"

#include "cache/catalogue/catalogue.h"
#include "cache/store/shard.h"
#include "cache/store/table.h"
#include "proto/base/file.h"

#include <fcntl.h>
#include <lmdb.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_ITEM = 500, HANG_SECONDS = 60 };

static char folder[256], file[300];
static bool tries_all; /* --all: minutes */

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    snprintf(file, sizeof file, "%s/catalogue", folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static fm_catalogue *open_file(void) {
    fm_catalogue *catalogue;
    const fm_catalogue_options options = {.job = "job", .worker = "w", .cache = "/caches/mine"};
    assert_int_equal(fm_catalogue_open(file, &options, &catalogue, NULL), FM_OK);
    return catalogue;
}

static fm_status begin(fm_catalogue *catalogue) {
    static char names[N_ITEM][32];
    static fm_catalogue_entry entries[N_ITEM];
    for (int i = 0; i < N_ITEM; i++) {
        snprintf(names[i], sizeof names[i], "chain-%03d", i);
        entries[i] = (fm_catalogue_entry){names[i], fm_sha256_of("source", 6)};
    }
    const fm_catalogue_listing listing = {fm_sha256_of("options", 7), N_ITEM, entries};
    return fm_catalogue_begin(catalogue, &listing, FM_CATALOGUE_JOIN, NULL);
}

/* Clears the pages of the file that hold keys, as a bad disk may do. */
static void clear_leaves(void) {
    enum { PAGE_BYTES = 4096, FIRST = 2, FLAGS_AT = 10, IS_LEAF = 2 };
    uint8_t page[PAGE_BYTES];
    int n_cleared = 0, fd = open(file, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    for (off_t at = (off_t)FIRST * PAGE_BYTES; pread(fd, page, PAGE_BYTES, at) == PAGE_BYTES;
         at += PAGE_BYTES) {
        if (page[FLAGS_AT] != IS_LEAF || page[FLAGS_AT + 1]) continue;
        memset(page, 0, PAGE_BYTES);
        assert_int_equal(pwrite(fd, page, PAGE_BYTES, at), PAGE_BYTES);
        n_cleared++;
    }
    close(fd);
    assert_true(n_cleared > 0);
}

static fm_status see_row(void *context, const fm_catalogue_row *row, fm_error *reterr) {
    (void)context;
    (void)row;
    (void)reterr;
    return FM_OK;
}

static fm_status see_worker(void *context, const fm_catalogue_worker *worker, fm_error *reterr) {
    (void)context;
    (void)worker;
    (void)reterr;
    return FM_OK;
}

/* Items that cannot be read are not taken for items that are done: a build would publish a
 * generation without them. */
static void it_is_no_finished_job(void **state) {
    (void)state;
    fm_catalogue *catalogue = open_file();
    assert_int_equal(begin(catalogue), FM_OK);
    clear_leaves();
    uint32_t n = 7;
    int64_t due_ms;
    fm_catalogue_counts counts;
    fm_catalogue_claim claimed;
    fm_error error = {.message = ""};
    assert_int_equal(fm_catalogue_left(catalogue, &n, &due_ms, &error), FM_ERR_CORRUPT);
    assert_int_equal(n, 7);
    assert_non_null(strstr(error.message, "the catalogue is damaged"));
    assert_string_equal(error.source, file);
    assert_int_equal(fm_catalogue_count(catalogue, &counts, NULL), FM_ERR_CORRUPT);
    assert_int_equal(fm_catalogue_each_row(catalogue, ~0u, see_row, NULL, NULL), FM_ERR_CORRUPT);
    assert_int_equal(fm_catalogue_each_worker(catalogue, see_worker, NULL, NULL), FM_ERR_CORRUPT);
    assert_int_equal(fm_catalogue_claim_items(catalogue, 1, &claimed, &n, NULL), FM_ERR_CORRUPT);
    assert_int_equal(begin(catalogue), FM_ERR_CORRUPT);
    fm_catalogue_close(catalogue);
}

/* A shard in the folder, as a file of LMDB that is no table. */
static void make_shard(const char *path) {
    fm_shard_writer *writer;
    fm_shard_info info;
    char sealed[400];
    const fm_sha256 key = fm_sha256_of("key", 3);
    const fm_shard_visitor visitor = {0};
    assert_int_equal(fm_shard_writer_create(folder, 0, &writer, NULL), FM_OK);
    assert_int_equal(fm_shard_writer_note(writer, &key, (fm_bytes){key.bytes, 32}, NULL), FM_OK);
    assert_int_equal(fm_shard_writer_seal(writer, &visitor, &info, NULL), FM_OK);
    assert_true(fm_shard_path(folder, &info.hash, sealed, sizeof sealed));
    assert_int_equal(rename(sealed, path), 0);
}

/* A table as foldmill wrote it before rows had checks. */
static void make_old(const char *path) {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi main_database;
    MDB_val key = {6, "jbuild"}, value = {5, "value"};
    char locks[310];
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_open(env, path, MDB_NOSUBDIR | MDB_NOTLS, 0666), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, NULL, 0, &main_database), 0);
    assert_int_equal(mdb_put(txn, main_database, &key, &value, 0), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
    snprintf(locks, sizeof locks, "%s-lock", path);
    assert_int_equal(unlink(locks), 0);
}

/* Another file of LMDB, such as a shard, would be changed. Neither it nor its folder is. */
static void files_of_others_stay(void **state) {
    (void)state;
    static const char *const made[] = {"text", "folder", "pipe", "shard", "old"};
    static const char *const expected[] = {"is no catalogue", "a catalogue is a file",
                                           "a catalogue is a file", "is no catalogue",
                                           "foldmill catalogue rebuild makes a new one"};
    fm_catalogue *catalogue;
    fm_error error;
    const fm_catalogue_options options = {.job = NULL};
    char path[300], locks[310];
    snprintf(path, sizeof path, "%s/text", folder);
    assert_int_equal(fm_file_write_atomic(path, "[model]\n", 8, NULL), FM_OK);
    snprintf(path, sizeof path, "%s/folder", folder);
    assert_int_equal(fm_dir_make(path, NULL), FM_OK);
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes, so opening it must not wait */
    snprintf(path, sizeof path, "%s/shard", folder);
    make_shard(path);
    snprintf(path, sizeof path, "%s/old", folder);
    make_old(path);
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, made[i]);
        snprintf(locks, sizeof locks, "%s-lock", path);
        assert_int_equal(fm_catalogue_open(path, &options, &catalogue, &error), FM_ERR_CORRUPT);
        assert_non_null(strstr(error.message, expected[i]));
        assert_int_not_equal(access(locks, F_OK), 0);
    }
}

/* -- single bits */

/* What merge and status read of a catalogue, without the times, which pass. */
typedef struct content {
    char text[16384];
    size_t n;
} content;

static void add_text(content *all, const char *format, ...) FM_PRINTF(2, 3);

static void add_text(content *all, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    all->n += (size_t)vsnprintf(all->text + all->n, sizeof all->text - all->n, format, arguments);
    va_end(arguments);
    assert_true(all->n < sizeof all->text);
}

static fm_status note_row(void *context, const fm_catalogue_row *row, fm_error *reterr) {
    (void)reterr;
    char hex[FM_SHA256_HEX];
    fm_sha256_format(&row->shard, hex);
    add_text(context, "%s %u %u %u %u %s %s %s\n", row->name, row->state, row->attempt,
             row->failures, row->n_chain, row->worker, row->reason, row->has_shard ? hex : "");
    return FM_OK;
}

static fm_status note_shard(void *context, const fm_catalogue_shard *shard, fm_error *reterr) {
    (void)reterr;
    char hex[FM_SHA256_HEX];
    fm_sha256_format(&shard->info.hash, hex);
    add_text(context, "%s %llu %s %s\n", hex, (unsigned long long)shard->info.bytes, shard->worker,
             shard->cache);
    return FM_OK;
}

static fm_status note_worker(void *context, const fm_catalogue_worker *worker, fm_error *reterr) {
    (void)reterr;
    add_text(context, "%s %s %u %u\n", worker->name, worker->cache, worker->n_leased,
             worker->n_done);
    return FM_OK;
}

/* Reads the file whole, and then changes it as a worker does. */
static fm_status read_all(content *all) {
    fm_catalogue *catalogue;
    uint32_t n;
    static fm_catalogue_claim claimed[4];
    const fm_catalogue_options options = {.job = "job", .worker = "w", .cache = "/caches/mine"};
    fm_status status = fm_catalogue_open(file, &options, &catalogue, NULL);
    if (status) return status;
    all->n = 0;
    status = fm_catalogue_each_row(catalogue, ~0u, note_row, all, NULL);
    if (!status) status = fm_catalogue_each_shard(catalogue, note_shard, all, NULL);
    if (!status) status = fm_catalogue_each_worker(catalogue, note_worker, all, NULL);
    if (!status) status = fm_catalogue_claim_items(catalogue, 4, claimed, &n, NULL);
    fm_catalogue_close(catalogue);
    return status;
}

/* A job with items in all states. */
static void make_job(void) {
    enum { N_SMALL = 12 };
    fm_catalogue *catalogue = open_file();
    static char names[N_SMALL][32];
    fm_catalogue_entry entries[N_SMALL];
    for (int i = 0; i < N_SMALL; i++) {
        snprintf(names[i], sizeof names[i], "chain-%02d", i);
        entries[i] = (fm_catalogue_entry){names[i], fm_sha256_of("source", 6)};
    }
    const fm_catalogue_listing listing = {fm_sha256_of("options", 7), N_SMALL, entries};
    assert_int_equal(fm_catalogue_begin(catalogue, &listing, FM_CATALOGUE_JOIN, NULL), FM_OK);
    fm_catalogue_claim claimed[6];
    uint32_t n;
    bool taken;
    assert_int_equal(fm_catalogue_claim_items(catalogue, 6, claimed, &n, NULL), FM_OK);
    assert_int_equal(n, 6);
    const fm_catalogue_shard shard = {.info = {.hash = fm_sha256_of("shard", 5), .bytes = 4096}};
    assert_int_equal(fm_catalogue_add_shard(catalogue, &shard, NULL), FM_OK);
    for (int i = 0; i < 4; i++) {
        const fm_catalogue_completion completion = {claimed[i].lease, shard.info.hash, 1};
        assert_int_equal(fm_catalogue_complete(catalogue, 1, &completion, &taken, NULL), FM_OK);
    }
    assert_int_equal(fm_catalogue_fail(catalogue, &claimed[4].lease, "no", true, &taken, NULL),
                     FM_OK);
    fm_catalogue_close(catalogue);
}

static uint8_t *read_file(fm_arena *arena, size_t *ret_bytes) {
    fm_bytes bytes;
    assert_int_equal(fm_file_read(arena, file, 1 << 20, &bytes, NULL), FM_OK);
    uint8_t *copy = malloc(bytes.size);
    assert_non_null(copy);
    memcpy(copy, bytes.data, bytes.size);
    *ret_bytes = bytes.size;
    return copy;
}

/* Writes the file's first bytes anew and reads it. True when it has the right content. */
static bool is_right(const uint8_t *bytes, size_t size, const content *right) {
    static content found;
    char locks[310];
    snprintf(locks, sizeof locks, "%s-lock", file);
    unlink(locks);
    assert_int_equal(fm_file_write_unsynced(file, bytes, size, NULL), FM_OK);
    alarm(HANG_SECONDS);
    fm_status status = read_all(&found);
    alarm(0);
    if (status) return false;
    assert_int_equal(found.n, right->n);
    assert_memory_equal(found.text, right->text, right->n);
    return true;
}

/* Each bit that is flipped, and each place where the file is cut: an error, or the right rows. */
static void no_bit_changes_the_content(void **state) {
    (void)state;
    enum { N_SHARE = 997 };
    static content right;
    fm_arena arena;
    size_t size;
    uint32_t n_right = 0, n_tried = 0;
    make_job();
    assert_int_equal(fm_arena_init(&arena, 1 << 22, NULL), FM_OK);
    uint8_t *bytes = read_file(&arena, &size);
    assert_int_equal(read_all(&right), FM_OK);
    assert_true(is_right(bytes, size, &right));
    for (size_t bit = 0; bit < size * 8; bit += tries_all ? 1 : N_SHARE) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        n_right += is_right(bytes, size, &right);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        n_tried++;
    }
    for (size_t cut = 1; cut < size; cut += tries_all ? 64 : N_SHARE) {
        n_right += is_right(bytes, cut, &right);
        n_tried++;
    }
    print_message("%u damages of %zu bytes: %u refused, %u without effect\n", n_tried, size,
                  n_tried - n_right, n_right);
    free(bytes);
    fm_arena_fini(&arena);
}

/* -- others at work */

/* Changes the table until it is killed. */
static void change_for_ever(void) {
    fm_table *table;
    if (fm_table_open(file, &table, NULL)) _exit(1);
    for (uint32_t i = 0;; i++) {
        const fm_bytes row = {(const uint8_t *)&i, sizeof i};
        if (fm_table_begin(table, true, NULL)) _exit(1);
        fm_table_put(table, row, row);
        fm_table_remove(table, row);
        if (fm_table_commit(table, NULL)) _exit(1);
    }
}

/* What changes while it is looked at is not taken for damage. */
static void a_file_that_others_change_can_be_opened(void **state) {
    (void)state;
    enum { N_OTHER = 2, N_OPEN = 500 };
    pid_t other[N_OTHER];
    fm_error error = {.message = ""};
    fm_status status = FM_OK;
    int ended = 0;
    make_job();
    for (int i = 0; i < N_OTHER; i++) {
        other[i] = fork();
        assert_true(other[i] >= 0);
        if (other[i] == 0) change_for_ever();
    }
    for (int i = 0; i < N_OPEN && !status; i++) {
        fm_table *table;
        status = fm_table_open(file, &table, &error);
        if (!status) fm_table_close(table);
    }
    for (int i = 0; i < N_OTHER; i++) {
        int code;
        kill(other[i], SIGKILL);
        ended += waitpid(other[i], &code, 0) == other[i] && WIFSIGNALED(code);
    }
    if (status) fail_msg("%s", error.message); /* a try that was repeated leaves its text, too */
    assert_int_equal(ended, N_OTHER);
}

/* Processes that use a link and processes that use the file share its locks. */
static void a_link_is_no_other_catalogue(void **state) {
    (void)state;
    char alias[300], locks[310];
    fm_table *table;
    make_job();
    snprintf(alias, sizeof alias, "%s/link", folder);
    assert_int_equal(symlink(file, alias), 0);
    assert_int_equal(fm_table_open(alias, &table, NULL), FM_OK);
    fm_table_close(table);
    snprintf(locks, sizeof locks, "%s-lock", file);
    assert_int_equal(access(locks, F_OK), 0);
    snprintf(locks, sizeof locks, "%s-lock", alias);
    assert_int_not_equal(access(locks, F_OK), 0);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(fm_table_open(alias, &table, NULL), FM_ERR_IO);
}

/* -- a clock that was set back */

enum { HOUR_MS = 3600000, LEASE_MS = 1000 };

/* Lets the worker's row say that it was seen in an hour, as where the clock was set back since. */
static void see_in_an_hour(const char *worker) {
    char key[64];
    uint8_t row[512];
    fm_table *table;
    fm_bytes value;
    const int n = snprintf(key, sizeof key, "wjob%c%s", 0, worker);
    assert_int_equal(fm_table_open(file, &table, NULL), FM_OK);
    assert_int_equal(fm_table_begin(table, true, NULL), FM_OK);
    assert_true(fm_table_get(table, (fm_bytes){(const uint8_t *)key, (size_t)n}, &value));
    assert_true(value.size <= sizeof row);
    memcpy(row, value.data, value.size);
    fm_reader reader = fm_reader_of(row, value.size);
    const uint64_t seen = fm_read_u64(&reader);
    fm_writer writer = fm_writer_of(row, sizeof row);
    fm_write_u64(&writer, seen + HOUR_MS);
    fm_table_put(table, (fm_bytes){(const uint8_t *)key, (size_t)n}, (fm_bytes){row, value.size});
    assert_int_equal(fm_table_commit(table, NULL), FM_OK);
    fm_table_close(table);
}

static fm_catalogue *open_worker(const char *worker, uint32_t lease_ms) {
    fm_catalogue *catalogue;
    const fm_catalogue_options options = {
        .job = "job", .worker = worker, .cache = "/caches/mine", .lease_ms = lease_ms};
    assert_int_equal(fm_catalogue_open(file, &options, &catalogue, NULL), FM_OK);
    return catalogue;
}

/* A worker with short leases claims all that it can. Returns when the next item is due. */
static int64_t claim_next_due(fm_catalogue *catalogue) {
    fm_catalogue_claim claimed;
    uint32_t n = 0;
    int64_t due_ms;
    assert_int_equal(fm_catalogue_claim_items(catalogue, 1, &claimed, &n, NULL), FM_OK);
    assert_int_equal(n, 0);
    assert_int_equal(fm_catalogue_left(catalogue, &n, &due_ms, NULL), FM_OK);
    assert_true(n > 0);
    return due_ms;
}

/* Whoever took an item before the clock was set back by an hour holds it for longer than a lease.
 * For others it is as if the lease had begun now. A lease that is only long stays: its worker may
 * have asked for that. */
static void leases_before_a_jump_end_in_time(void **state) {
    (void)state;
    static fm_catalogue_claim claimed;
    uint32_t n = 0;
    make_job();
    fm_catalogue *catalogue = open_worker("earlier", HOUR_MS);
    do {
        assert_int_equal(fm_catalogue_claim_items(catalogue, 1, &claimed, &n, NULL), FM_OK);
    } while (n);
    fm_catalogue_close(catalogue);
    catalogue = open_worker("now", LEASE_MS);
    assert_true(claim_next_due(catalogue) > LEASE_MS);
    fm_catalogue_close(catalogue);
    see_in_an_hour("earlier");
    catalogue = open_worker("now", LEASE_MS);
    assert_true(claim_next_due(catalogue) <= LEASE_MS);
    fm_catalogue_close(catalogue);
}

int main(int argc, char **argv) {
    tries_all = argc > 1 && strcmp(argv[1], "--all") == 0;
    /* In memory if possible: hundreds of files would wait for the disk. */
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_is_no_finished_job, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_of_others_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_bit_changes_the_content, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_others_change_can_be_opened, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_link_is_no_other_catalogue, set_up, tear_down),
        cmocka_unit_test_setup_teardown(leases_before_a_jump_end_in_time, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
