/* test_shards.c: a map that grows with its content, and shards on read-only media. */
#include "tests/cache/cache_case.h"

#include "cache/store/blob.h"
#include "cache/store/shard.h"
#include "proto/base/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534 };

/* Bytes that do not compress. */
static void fill(uint32_t n, uint32_t *words, size_t n_word) {
    for (size_t i = 0; i + 4 <= n_word; i += 4) {
        fm_philox_counter counter = fm_philox(5, (fm_philox_counter){{n, (uint32_t)i, 0, 0}});
        memcpy(words + i, counter.word, sizeof counter.word);
    }
}

typedef struct growth {
    uint32_t n_blob, n_note;
    uint64_t bytes;
    int fd; /* the shard's file */
} growth;

static fm_status count_blob(void *context, const fm_sha256 *hash, const fm_shard_blob *place,
                            fm_error *reterr) {
    growth *found = context;
    fm_blob blob;
    uint8_t *packed = malloc(place->stored_bytes), *out = malloc(place->decoded_bytes);
    assert_non_null(packed);
    assert_non_null(out);
    assert_int_equal(pread(found->fd, packed, place->stored_bytes, (off_t)place->offset),
                     place->stored_bytes);
    fm_status status = fm_blob_open((fm_bytes){packed, place->stored_bytes}, &blob, reterr);
    if (!status) status = fm_blob_unpack(&blob, hash, out, reterr);
    free(out);
    free(packed);
    found->n_blob++;
    found->bytes += place->stored_bytes;
    return status;
}

static fm_status count_note(void *context, const fm_sha256 *key, fm_bytes value, fm_error *reterr) {
    growth *found = context;
    (void)key;
    (void)value;
    (void)reterr;
    found->n_note++;
    return FM_OK;
}

/* Values from a few bytes up to one that is larger than the whole initial map. */
static void test_map_grows(void **state) {
    (void)state;
    static const size_t sizes[] = {64, 2000, 4000, 300000, 5 << 20, 40 << 20, 1 << 20, 128};
    enum { N_NOTE = 30000, N_ROUND = 2, N_SIZE = sizeof sizes / sizeof sizes[0] };
    cache_case test = {0};
    fm_shard_writer *writer;
    fm_shard_info info;
    growth put = {0}, found = {0};
    fm_test_make_folder(test.folder, sizeof test.folder);
    assert_int_equal(fm_arena_init(&test.arena, (size_t)1 << 30, &test.error), FM_OK);
    assert_int_equal(fm_shard_writer_create(test.folder, 0, &writer, &test.error), FM_OK);
    for (uint32_t n = 0; n < N_ROUND * N_SIZE; n++) {
        size_t size = sizes[n % N_SIZE];
        fm_arena_reset(&test.arena);
        uint32_t *words = fm_arena_calloc(&test.arena, size, 1);
        assert_non_null(words);
        fill(n, words, size / sizeof *words);
        fm_bytes packed, part = {(const uint8_t *)words, size};
        fm_sha256 hash = fm_sha256_of(part.data, part.size);
        assert_int_equal(fm_blob_pack(part, FM_PART_MSA, &test.arena, &packed, &test.error), FM_OK);
        assert_int_equal(fm_shard_writer_put(writer, &hash, packed, &test.error), FM_OK);
        put.n_blob++;
        put.bytes += packed.size;
    }
    for (uint32_t n = 0; n < N_NOTE; n++) {
        fm_sha256 key = fm_sha256_of(&n, sizeof n);
        assert_int_equal(fm_shard_writer_note(writer, &key, (fm_bytes){key.bytes, 32}, &test.error),
                         FM_OK);
    }
    const fm_shard_visitor visitor = {&found, count_blob, count_note};
    char path[300];
    snprintf(path, sizeof path, "%s/build/shard.tmp", test.folder);
    found.fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(found.fd >= 0);
    assert_int_equal(fm_shard_writer_seal(writer, &visitor, &info, &test.error), FM_OK);
    close(found.fd);
    assert_int_equal(found.n_blob, put.n_blob);
    assert_int_equal(found.n_note, N_NOTE);
    assert_int_equal(found.bytes, put.bytes);
    assert_true(info.bytes > (uint64_t)90 << 20);
    teardown_case(&test);
}

/* Uses a cache on a read-only medium in a child process; returns its exit code. */
static int use_read_only(const cache_case *test) {
    cache_case mine = *test;
    fm_store *store;
    fm_build_report report;
    char path[300];
    snprintf(path, sizeof path, "%s/build/lock", test->cache);
    if (open(path, O_RDWR) >= 0) return 10; /* otherwise the test would prove nothing */
    if (fm_arena_init(&mine.arena, (size_t)1 << 30, NULL)) return 11;
    if (verify(&mine, test->cache)) return 12;
    if (fm_store_open(test->cache, &store, &mine.error)) return 13;
    for (uint32_t i = 0; i < fm_store_get_info(store)->n_chain; i++) {
        fm_record record;
        if (fm_store_load(store, i, &mine.arena, &record, &mine.error)) return 14;
    }
    fm_store_close(store);
    fm_status status =
        build_with(&mine, test->data, test->cache, (fm_build_options){.n_job = 1}, &report);
    if (status != FM_ERR_IO || !strstr(mine.error.message, "Permission denied")) return 15;
    return 0;
}

/* Loading and checking need nothing writable: no lock, no access time, no writable map. */
static void test_read_only(void **state) {
    (void)state;
    cache_case test;
    int status;
    setup_case(&test, 4);
    build(&test);
    assert_int_equal(run_shell("chmod 755 %s && chmod -R a-w,a+rX %s", test.folder, test.cache), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool dropped = geteuid() != 0 || (setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
        _exit(dropped ? use_read_only(&test) : 9);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(run_shell("chmod -R u+w %s", test.cache), 0);
    assert_int_equal(WEXITSTATUS(status), 0);
    /* Shards on another medium, behind a link. */
    assert_int_equal(run_shell("mv %s/shards %s/medium && ln -s ../medium %s/shards", test.cache,
                               test.folder, test.cache),
                     0);
    assert_int_equal(verify(&test, test.cache), FM_OK);
    teardown_case(&test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map_grows),
        cmocka_unit_test(test_read_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
