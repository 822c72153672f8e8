/* test_hostile_shards.c: shards whose pages were changed and whose hashes were made again, as
 * somebody may do who hands a cache on. Each is in the manifest of a cache that is verified and
 * loaded, then a stray file that a build finds. Whatever the pages say, there is an error or the
 * right content, and no crash and no hang. `--all` tries every change, which takes minutes. */
#include "tests/cache/cache_case.h"

#include "cache/store/generation_files.h"
#include "proto/base/file.h"
#include "proto/base/rng.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PAGE_BYTES = 4096,
    HANG_SECONDS = 60, /* a busy machine, with sanitizers */
    SHARD_MAX = 1 << 20,
    N_DRAWN = 5000,
    N_SHARE = 97, /* one of so many changes is tried without --all */
};

static bool tries_all;
static unsigned seed; /* of a run by hand; 0 is that of CI */

typedef struct attack {
    cache_case test;
    char shards[200], generations[200], stray[200];
    fm_build_report base;
    uint8_t *whole, *changed; /* heap: the shard, and its copy that is changed */
    size_t bytes;
    char name[FM_SHA256_HEX + 8]; /* of the shard's file that is there now */
    uint32_t n_tried, n_refused, n_right, n_stray_refused, n_stray_right;
} attack;

/* -- a cache with one shard */

static void find_name(const char *folder, const char *suffix, char *out, size_t out_bytes) {
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    struct dirent *entry = readdir(dir);
    while (entry && !strstr(entry->d_name, suffix))
        entry = readdir(dir);
    assert_non_null(entry);
    snprintf(out, out_bytes, "%s", entry->d_name);
    closedir(dir);
}

static void set_up(attack *self) {
    memset(self, 0, sizeof *self);
    cache_case *test = &self->test;
    setup_case(test, 2);
    self->base = build(test);
    snprintf(self->shards, sizeof self->shards, "%s/shards", test->cache);
    snprintf(self->generations, sizeof self->generations, "%s/generations", test->cache);
    snprintf(self->stray, sizeof self->stray, "%s/stray", test->folder);
    find_name(self->shards, ".lmdb", self->name, sizeof self->name);
    char path[400];
    fm_bytes content;
    snprintf(path, sizeof path, "%s/%s", self->shards, self->name);
    assert_int_equal(fm_file_read(&test->arena, path, SHARD_MAX, &content, &test->error), FM_OK);
    self->bytes = content.size;
    self->whole = malloc(content.size);
    self->changed = malloc(content.size);
    assert_non_null(self->whole);
    assert_non_null(self->changed);
    memcpy(self->whole, content.data, content.size);
    memcpy(self->changed, content.data, content.size);
}

static void tear_down(attack *self) {
    free(self->whole);
    free(self->changed);
    teardown_case(&self->test);
}

/* -- hashes made again */

/* Replaces the shard by `changed`, with its name and the manifest as if it had always been so. */
static void put_shard(attack *self, size_t bytes) {
    cache_case *test = &self->test;
    char path[400], hex[FM_SHA256_HEX];
    fm_bytes text, again;
    fm_generation generation;
    fm_sha256 index_hash;
    snprintf(path, sizeof path, "%s/%s", self->shards, self->name);
    assert_int_equal(unlink(path), 0);
    const fm_sha256 hash = fm_sha256_of(self->changed, bytes);
    fm_sha256_format(&hash, hex);
    snprintf(self->name, sizeof self->name, "%s.lmdb", hex);
    snprintf(path, sizeof path, "%s/%s", self->shards, self->name);
    assert_int_equal(fm_file_write_unsynced(path, self->changed, bytes, NULL), FM_OK);
    snprintf(path, sizeof path, "%s/00000001.manifest", self->generations);
    assert_int_equal(fm_file_read(&test->arena, path, SHARD_MAX, &text, &test->error), FM_OK);
    assert_int_equal(
        fm_manifest_decode(text, 1, &test->arena, &generation, &index_hash, &test->error), FM_OK);
    fm_shard_info shard = generation.shard[0];
    shard.hash = hash;
    shard.bytes = bytes;
    generation.shard = &shard;
    assert_int_equal(
        fm_manifest_encode(&generation, &index_hash, &test->arena, &again, &test->error), FM_OK);
    assert_int_equal(fm_file_write_unsynced(path, again.data, again.size, NULL), FM_OK);
}

static void verify_changed(attack *self, size_t bytes) {
    put_shard(self, bytes);
    fm_status status = verify(&self->test, self->test.cache);
    if (status) assert_int_equal(status, FM_ERR_CORRUPT);
    if (status) {
        self->n_refused++;
    } else {
        self->n_right++;
    }
}

/* A build in a folder that has nothing but the shard. What it takes from it is right, or the check
 * of the new cache finds it. */
static void build_over(attack *self) {
    cache_case *test = &self->test;
    fm_build_report report;
    assert_int_equal(run_shell("rm -rf %s && mkdir -p %s/shards && cp %s/%s %s/shards", self->stray,
                               self->stray, self->shards, self->name, self->stray),
                     0);
    fm_status status =
        build_with(test, test->data, self->stray, (fm_build_options){.n_job = 1}, &report);
    bool is_right = !status && !verify(test, self->stray);
    if (is_right) assert_same_content(report, self->base);
    self->n_stray_right += is_right;
    self->n_stray_refused += !is_right;
}

static void attack_with(attack *self, size_t bytes) {
    size_t mark = fm_arena_mark(&self->test.arena);
    alarm(HANG_SECONDS);
    verify_changed(self, bytes);
    if (self->n_tried % (tries_all ? 4 : 2) == 0) build_over(self);
    alarm(0);
    fm_arena_rewind(&self->test.arena, mark);
    memcpy(self->changed, self->whole, self->bytes);
    self->n_tried++;
}

/* -- changes */

static bool is_chosen(uint32_t number) {
    return tries_all || number % N_SHARE == seed % N_SHARE;
}

static bool has_structure(const attack *self, size_t page) {
    const uint8_t *at = self->whole + page * PAGE_BYTES;
    uint64_t own;
    memcpy(&own, at, sizeof own);
    return own == page && at[11] == 0 && at[10] && !(at[10] & (at[10] - 1)) && at[10] <= 8;
}

static void put_u16(attack *self, size_t at, unsigned value) {
    self->changed[at] = (uint8_t)value;
    self->changed[at + 1] = (uint8_t)(value >> 8);
}

/* Every number of 16 bits in the heads of pages, in the first pointers and in the nodes, with the
 * values that are wrong in the most ways. */
static void test_single_numbers(void **state) {
    (void)state;
    static const unsigned values[] = {0, 1, 2, 8, 0x0fff, 0x1000, 0x7fff, 0x8000, 0xffff};
    enum { N_VALUE = sizeof values / sizeof values[0], HEAD = 64, CHANGES = 3 };
    attack self;
    set_up(&self);
    uint32_t n = 0;
    for (size_t page = 0; page < self.bytes / PAGE_BYTES; page++) {
        if (!has_structure(&self, page)) continue;
        for (size_t at = page * PAGE_BYTES; at < (page + 1) * PAGE_BYTES; at += 2) {
            unsigned was = self.whole[at] | (unsigned)self.whole[at + 1] << 8;
            bool is_head = at % PAGE_BYTES < HEAD || (page < 2 && at % PAGE_BYTES < 200);
            if (!is_head && !was && at % 64) continue; /* of what is empty, a little */
            for (unsigned i = 0; i < (is_head ? N_VALUE + CHANGES : CHANGES); i++) {
                if (!is_chosen(n++)) continue;
                unsigned value = i == 0 ? was ^ 1u << at / 2 % 16 : i == 1 ? was + 2 : was - 1;
                put_u16(&self, at, i < CHANGES ? value : values[i - CHANGES]);
                attack_with(&self, self.bytes);
            }
        }
    }
    print_message("%u numbers changed: %u refused, %u without effect; builds: %u, %u\n",
                  self.n_tried, self.n_refused, self.n_right, self.n_stray_refused,
                  self.n_stray_right);
    assert_true(self.n_tried >= 10);
    tear_down(&self);
}

/* Pages that name others, pages in the place of others, shorter files, several bytes at once. */
static void change_drawn(attack *self, uint32_t number, size_t *ret_bytes) {
    fm_philox_counter draw = fm_philox(seed, (fm_philox_counter){{number, 0, 0, 38}});
    size_t n_page = self->bytes / PAGE_BYTES, page = draw.word[0] % n_page;
    size_t other = draw.word[1] % n_page, at = page * PAGE_BYTES + draw.word[2] % PAGE_BYTES;
    *ret_bytes = self->bytes;
    switch (draw.word[3] % 6) {
    case 0:
        memcpy(self->changed + page * PAGE_BYTES, self->whole + other * PAGE_BYTES, PAGE_BYTES);
        break;
    case 1: /* with the number of the place where it lies now */
        memcpy(self->changed + page * PAGE_BYTES + 8, self->whole + other * PAGE_BYTES + 8,
               PAGE_BYTES - 8);
        break;
    case 2: *ret_bytes = at; break;
    case 3: /* a number of a page, at a place that is even */
        at &= ~(size_t)1;
        for (size_t i = 0; i < 8 && at + i < self->bytes; i++)
            self->changed[at + i] = (uint8_t)(other >> 8 * i);
        break;
    case 4: self->changed[at] ^= (uint8_t)(1u << draw.word[1] % 8); break;
    default:
        for (size_t i = 0; i < 16 && at + i < self->bytes; i++)
            self->changed[at + i] = (uint8_t)(draw.word[i % 4] >> i);
    }
}

static void test_drawn_changes(void **state) {
    (void)state;
    attack self;
    set_up(&self);
    for (uint32_t i = 0; i < N_DRAWN; i++) {
        size_t bytes;
        if (!is_chosen(i)) continue;
        change_drawn(&self, i, &bytes);
        attack_with(&self, bytes);
    }
    print_message("%u drawn changes: %u refused, %u without effect; builds: %u, %u\n", self.n_tried,
                  self.n_refused, self.n_right, self.n_stray_refused, self.n_stray_right);
    tear_down(&self);
}

/* -- names */

/* An index whose hash would be right, with one byte of a name changed. */
static void test_names_without_control_bytes(void **state) {
    (void)state;
    enum { ALIGNMENT = 64 };
    attack self;
    set_up(&self);
    cache_case *test = &self.test;
    char path[400];
    fm_bytes text, index;
    fm_generation generation;
    fm_sha256 index_hash;
    snprintf(path, sizeof path, "%s/00000001.manifest", self.generations);
    assert_int_equal(fm_file_read(&test->arena, path, SHARD_MAX, &text, &test->error), FM_OK);
    assert_int_equal(
        fm_manifest_decode(text, 1, &test->arena, &generation, &index_hash, &test->error), FM_OK);
    snprintf(path, sizeof path, "%s/00000001.index", self.generations);
    assert_int_equal(fm_file_read(&test->arena, path, SHARD_MAX, &index, &test->error), FM_OK);
    size_t room = (index.size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    uint8_t *bytes = aligned_alloc(ALIGNMENT, room);
    assert_non_null(bytes);
    memcpy(bytes, index.data, index.size);
    assert_int_equal(fm_index_decode((fm_bytes){bytes, index.size}, &generation, NULL), FM_OK);
    bytes[index.size - 2] = 0x7f; /* the end of the last name, which stays the last one */
    assert_int_equal(fm_index_decode((fm_bytes){bytes, index.size}, &generation, &test->error),
                     FM_ERR_CORRUPT);
    assert_non_null(strstr(test->error.message, "a control byte"));
    free(bytes);
    tear_down(&self);
}

int main(int argc, char **argv) {
    tries_all = argc > 1 && strcmp(argv[1], "--all") == 0;
    if (argc > 2) seed = (unsigned)strtoul(argv[2], NULL, 10);
    /* In memory if possible: hundreds of caches would wait for the disk. */
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_single_numbers),
        cmocka_unit_test(test_drawn_changes),
        cmocka_unit_test(test_names_without_control_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
