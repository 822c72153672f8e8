/* test_damaged_cache.c: a small cache with one wrong bit, in each of its files. Whoever reads it
 * gets an error or the right content: names, parts, facts, the snapshot. A build over wrong notes
 * makes the right content, or stops. `--all` flips every bit, which takes minutes. */
#include "tests/cache/cache_case.h"

#include "cache/snapshot/snapshot.h"
#include "proto/base/directory.h"
#include "proto/base/file.h"

#include <unistd.h>

enum {
    N_CHAIN = 3,
    N_SHARE = 211, /* one of so many bits is flipped without --all */
    N_SHARE_BUILD = 1511,
    FILE_MAX = 1 << 20,
};

static bool tries_all;

/* What a reader takes from a cache. */
typedef struct content {
    char name[N_CHAIN][64];
    fm_sha256 parts[N_CHAIN]; /* over the kinds and hashes of a chain's parts */
    fm_chain_facts facts[N_CHAIN];
    fm_sha256 content, snapshot;
} content;

typedef struct attack {
    cache_case test;
    content whole;
    uint32_t n_tried, n_refused, n_right;
} attack;

/* Loads every chain, whose parts are checked against their hashes in the index. */
static fm_status load_chains(fm_store *store, fm_arena *arena, content *found, fm_error *reterr) {
    const fm_chain_facts *facts;
    fm_status status = fm_store_read_facts(store, arena, &facts, reterr);
    if (status) return status;
    assert_non_null(facts);
    for (uint32_t i = 0; i < N_CHAIN && !status; i++) {
        fm_record record;
        snprintf(found->name[i], sizeof found->name[i], "%s", fm_store_chain_name(store, i));
        found->parts[i] = fm_store_chain_hash(store, i);
        found->facts[i] = facts[i];
        status = fm_store_load(store, i, arena, &record, reterr);
    }
    return status;
}

static fm_status read_cache(cache_case *test, content *found) {
    const size_t mark = fm_arena_mark(&test->arena);
    fm_store *store;
    fm_snapshot snapshot;
    memset(found, 0, sizeof *found);
    fm_status status = fm_store_open(test->cache, &store, &test->error);
    if (status) return status;
    if (fm_store_get_info(store)->n_chain == N_CHAIN) {
        found->content = fm_store_get_info(store)->content;
        status = load_chains(store, &test->arena, found, &test->error);
    }
    if (!status) status = fm_snapshot_open(store, "all", &test->arena, &snapshot, &test->error);
    if (!status) found->snapshot = snapshot.hash;
    fm_store_close(store);
    fm_arena_rewind(&test->arena, mark);
    return status;
}

static void set_up(attack *self) {
    memset(self, 0, sizeof *self);
    setup_case(&self->test, N_CHAIN);
    build(&self->test);
    assert_int_equal(read_cache(&self->test, &self->whole), FM_OK);
}

/* -- one file */

static void read_flipped(attack *self) {
    content found;
    fm_status status = read_cache(&self->test, &found);
    if (status) assert_true(self->test.error.message[0] != '\0');
    if (!status) assert_memory_equal(&found, &self->whole, sizeof found);
    self->n_refused += status ? 1 : 0;
    self->n_right += status ? 0 : 1;
}

/* Builds again over a copy, which takes what it can from the notes and the generation. */
static void build_flipped(attack *self) {
    cache_case *test = &self->test;
    char cache[sizeof test->cache], copy[sizeof test->cache];
    fm_build_report report;
    content found;
    snprintf(copy, sizeof copy, "%.120s/copy", test->folder);
    assert_int_equal(run_shell("rm -rf %s && cp -r %s %s", copy, test->cache, copy), 0);
    fm_status status = build_with(test, test->data, copy, (fm_build_options){.n_job = 1}, &report);
    memcpy(cache, test->cache, sizeof cache);
    memcpy(test->cache, copy, sizeof copy);
    if (!status) status = read_cache(test, &found);
    memcpy(test->cache, cache, sizeof cache);
    if (!status) assert_memory_equal(&found, &self->whole, sizeof found);
    self->n_refused += status ? 1 : 0;
    self->n_right += status ? 0 : 1;
}

static void flip_bits(attack *self, const char *path, size_t share, void (*look)(attack *self)) {
    cache_case *test = &self->test;
    fm_bytes file;
    assert_int_equal(fm_file_read(&test->arena, path, FILE_MAX, &file, &test->error), FM_OK);
    uint8_t *changed = malloc(file.size + 1);
    assert_non_null(changed);
    if (file.size) memcpy(changed, file.data, file.size);
    const uint32_t n_refused = self->n_refused, n_right = self->n_right;
    for (size_t bit = 0; bit < 8 * file.size; bit += tries_all ? 1 : share) {
        const size_t mark = fm_arena_mark(&test->arena);
        changed[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(fm_file_write_unsynced(path, changed, file.size, NULL), FM_OK);
        changed[bit / 8] = file.data[bit / 8];
        look(self);
        self->n_tried++;
        fm_arena_rewind(&test->arena, mark);
    }
    assert_int_equal(fm_file_write_unsynced(path, changed, file.size, NULL), FM_OK);
    print_message("%s: %zu bytes, %u flips refused, %u right\n", strrchr(path, '/'), file.size,
                  self->n_refused - n_refused, self->n_right - n_right);
    free(changed);
}

/* -- all files */

static void flip_files(attack *self, const char *folder, size_t share) {
    cache_case *test = &self->test;
    char path[400];
    fm_name_list list;
    snprintf(path, sizeof path, "%s/%s", test->cache, folder);
    assert_int_equal(fm_directory_list(path, false, 100, &test->arena, &list, &test->error), FM_OK);
    assert_true(list.n > 0);
    for (size_t i = 0; i < list.n; i++) {
        snprintf(path, sizeof path, "%s/%s/%s", test->cache, folder, list.name[i]);
        flip_bits(self, path, share, read_flipped);
    }
    free(list.name);
}

static void readers_get_an_error_or_the_content(void **state) {
    (void)state;
    attack self;
    char current[400];
    set_up(&self);
    snprintf(current, sizeof current, "%s/CURRENT", self.test.cache);
    flip_bits(&self, current, 1, read_flipped);
    flip_files(&self, "generations", N_SHARE);
    flip_files(&self, "shards", N_SHARE);
    assert_true(self.n_refused > 0);
    teardown_case(&self.test);
}

static void builds_over_wrong_notes_are_right_or_stop(void **state) {
    (void)state;
    attack self;
    char path[400];
    set_up(&self);
    static const char *const files[] = {"notes", "index", "manifest", "facts"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/generations/00000001.%s", self.test.cache, files[i]);
        flip_bits(&self, path, N_SHARE_BUILD, build_flipped);
    }
    assert_true(self.n_refused + self.n_right > 0);
    teardown_case(&self.test);
}

int main(int argc, char **argv) {
    tries_all = argc > 1 && strcmp(argv[1], "--all") == 0;
    /* In memory if possible: thousands of files would wait for the disk. */
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_get_an_error_or_the_content),
        cmocka_unit_test(builds_over_wrong_notes_are_right_or_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
