/* test_store.c: a store returns what was put in, and any damage is found and is only an error. */
#include "tests/cache/cache_case.h"

#include "cache/store/generation_files.h"
#include "cache/snapshot/snapshot.h"
#include "proto/base/file.h"
#include "proto/base/rng.h"

#include <dirent.h>
#include <unistd.h>

/* -- files */

static fm_bytes read_file(cache_case *test, const char *path) {
    fm_bytes bytes = {0};
    assert_int_equal(fm_file_read(&test->arena, path, (size_t)1 << 30, &bytes, &test->error),
                     FM_OK);
    return bytes;
}

static void write_file(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* The one shard's path. */
static void find_shard(const cache_case *test, char *out, size_t out_bytes) {
    char folder[200];
    snprintf(folder, sizeof folder, "%s/shards", test->cache);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    out[0] = '\0';
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (strstr(entry->d_name, ".lmdb")) {
            assert_int_equal(out[0], 0);
            snprintf(out, out_bytes, "%s/%s", folder, entry->d_name);
        }
    }
    closedir(dir);
}

static uint32_t draw(uint32_t n, uint32_t below) {
    fm_philox_counter counter = fm_philox(11, (fm_philox_counter){{n, 0, 0, 0}});
    return fm_uniform_below((uint64_t)counter.word[0] << 32 | counter.word[1], below);
}

/* -- tests */

static void test_load(void **state) {
    (void)state;
    cache_case test;
    fm_store *store;
    fm_record record;
    uint32_t chain;
    setup_case(&test, 6);
    fm_build_report report = build(&test);
    assert_int_equal(fm_store_open(test.cache, &store, &test.error), FM_OK);
    const fm_store_info *info = fm_store_get_info(store);
    assert_int_equal(info->n_chain, 6);
    assert_int_equal(info->decoded_bytes, report.decoded_bytes);
    assert_memory_equal(&info->content, &report.content, 32);
    for (uint32_t i = 0; i < info->n_chain; i++) {
        assert_int_equal(fm_store_load(store, i, &test.arena, &record, &test.error), FM_OK);
        assert_string_equal(record.name, fm_store_chain_name(store, i));
        assert_non_null(record.msa);
        assert_non_null(record.structure);
        assert_int_equal(record.msa->n_res, record.sequence->n_res);
        assert_int_equal(fm_store_find(store, record.name, &chain, &test.error), FM_OK);
        assert_int_equal(chain, i);
        if (i) assert_true(strcmp(fm_store_chain_name(store, i - 1), record.name) < 0);
    }
    assert_int_equal(fm_store_find(store, "zzzz_Z", &chain, &test.error), FM_ERR_NOT_FOUND);
    fm_store_close(store);
    assert_int_equal(fm_store_open(test.folder, &store, &test.error), FM_ERR_NOT_FOUND);
    teardown_case(&test);
}

static void test_snapshot(void **state) {
    (void)state;
    cache_case test;
    fm_store *store;
    fm_snapshot all, copy;
    setup_case(&test, 4);
    build(&test);
    assert_int_equal(fm_store_open(test.cache, &store, &test.error), FM_OK);
    assert_int_equal(fm_snapshot_open(store, "all", &test.arena, &all, &test.error), FM_OK);
    assert_int_equal(all.n_chain, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(all.chain[i], i);
        assert_int_equal(all.weight[i], 256); /* chains of up to 60 residues */
    }
    assert_int_equal(run_shell("mkdir %s/snapshots && cp %s/generations/00000001.all "
                               "%s/snapshots/mine && awk 'NR == 3 { $2 = sprintf(\"%%064d\", 7) } "
                               "1' %s/snapshots/mine > "
                               "%s/snapshots/other",
                               test.cache, test.cache, test.cache, test.cache, test.cache),
                     0);
    assert_int_equal(fm_snapshot_open(store, "mine", &test.arena, &copy, &test.error), FM_OK);
    assert_memory_equal(&copy.hash, &all.hash, 32);
    assert_int_equal(fm_snapshot_open(store, "other", &test.arena, &copy, &test.error),
                     FM_ERR_DATA);
    assert_int_equal(fm_snapshot_open(store, "none", &test.arena, &copy, &test.error),
                     FM_ERR_NOT_FOUND);
    assert_non_null(strstr(test.error.message, "all, mine, other"));
    assert_int_equal(fm_snapshot_open(store, "../CURRENT", &test.arena, &copy, &test.error),
                     FM_ERR_NOT_FOUND);
    assert_int_equal(fm_snapshot_weight(1), 256);
    assert_int_equal(fm_snapshot_weight(300), 300);
    assert_int_equal(fm_snapshot_weight(5000), 512);
    fm_store_close(store);
    teardown_case(&test);
}

/* Loads each chain; true when all loads succeed. */
static bool load_all(cache_case *test, const fm_store *store) {
    bool good = true;
    size_t mark = fm_arena_mark(&test->arena);
    for (uint32_t i = 0; i < fm_store_get_info(store)->n_chain; i++) {
        fm_record record;
        fm_status status = fm_store_load(store, i, &test->arena, &record, &test->error);
        assert_true(!status || status == FM_ERR_CORRUPT);
        good &= !status;
        fm_arena_rewind(&test->arena, mark);
    }
    return good;
}

/* The places of the generation's blobs in the file. */
static bool in_a_blob(const fm_generation *generation, uint64_t at) {
    for (uint32_t i = 0; i < generation->n_blob; i++) {
        const fm_blob_entry *blob = &generation->blob[i];
        if (at >= blob->offset && at < blob->offset + blob->stored_bytes) return true;
    }
    return false;
}

static void test_flipped_bits(void **state) {
    (void)state;
    cache_case test;
    char path[400];
    fm_generation generation;
    uint32_t n_in_blob = 0;
    fm_build_report report;
    setup_case(&test, 5);
    /* One worker makes the same file every time, so the random bits hit the same places. */
    assert_int_equal(
        build_with(&test, test.data, test.cache, (fm_build_options){.n_job = 1}, &report), FM_OK);
    find_shard(&test, path, sizeof path);
    fm_bytes shard = read_file(&test, path);
    uint8_t *copy = fm_arena_alloc(&test.arena, shard.size);
    assert_non_null(copy);
    assert_int_equal(
        fm_generation_read(test.cache, FM_GENERATION_ALL, &test.arena, &generation, &test.error),
        FM_OK);
    for (uint32_t i = 0; i < 600; i++) {
        fm_store *store;
        uint32_t bit = draw(i, (uint32_t)shard.size * 8);
        memcpy(copy, shard.data, shard.size);
        copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
        write_file(path, copy, shard.size);
        assert_int_equal(fm_store_open(test.cache, &store, &test.error), FM_OK);
        bool within = in_a_blob(&generation, bit / 8);
        assert_int_equal(load_all(&test, store), !within);
        n_in_blob += within;
        fm_store_close(store);
        if (i % 20 == 0) assert_int_equal(verify(&test, test.cache), FM_ERR_CORRUPT);
    }
    assert_true(n_in_blob > 100);
    for (uint32_t bit = 0; bit < 24 * 8; bit++) { /* a blob's header */
        fm_store *store;
        memcpy(copy, shard.data, shard.size);
        copy[generation.blob[0].offset + bit / 8] ^= (uint8_t)(1u << bit % 8);
        write_file(path, copy, shard.size);
        assert_int_equal(fm_store_open(test.cache, &store, &test.error), FM_OK);
        assert_false(load_all(&test, store));
        fm_store_close(store);
    }
    write_file(path, shard.data, shard.size);
    assert_int_equal(verify(&test, test.cache), FM_OK);
    teardown_case(&test);
}

/* Damage that comes after a part was loaded, and checked, is found by the next load; the part is
 * good again once its bytes are. */
static void test_damage_under_an_open_store(void **state) {
    (void)state;
    cache_case test;
    char path[400];
    fm_store *store;
    fm_generation generation;
    setup_case(&test, 3);
    build(&test);
    find_shard(&test, path, sizeof path);
    fm_bytes shard = read_file(&test, path);
    uint8_t *copy = fm_arena_alloc(&test.arena, shard.size);
    assert_non_null(copy);
    assert_int_equal(
        fm_generation_read(test.cache, FM_GENERATION_ALL, &test.arena, &generation, &test.error),
        FM_OK);
    assert_int_equal(fm_store_open(test.cache, &store, &test.error), FM_OK);
    assert_true(load_all(&test, store));
    for (uint32_t i = 0; i < generation.n_blob; i++) {
        const fm_blob_entry *blob = &generation.blob[i];
        memcpy(copy, shard.data, shard.size);
        copy[blob->offset + draw(i, blob->stored_bytes)] ^= 1;
        write_file(path, copy, shard.size);
        assert_false(load_all(&test, store));
        write_file(path, shard.data, shard.size);
        assert_true(load_all(&test, store));
    }
    fm_store_close(store);
    teardown_case(&test);
}

static void test_truncated_shard(void **state) {
    (void)state;
    cache_case test;
    fm_store *store;
    char path[400];
    setup_case(&test, 2);
    build(&test);
    find_shard(&test, path, sizeof path);
    fm_bytes shard = read_file(&test, path);
    const size_t sizes[] = {0, 1, 4096, shard.size / 2, shard.size - 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        write_file(path, shard.data, sizes[i]);
        assert_int_equal(fm_store_open(test.cache, &store, &test.error), FM_ERR_CORRUPT);
        assert_non_null(strstr(test.error.source, ".lmdb"));
    }
    /* Truncated while it is open: an error, not a signal. */
    write_file(path, shard.data, shard.size);
    assert_int_equal(fm_store_open(test.cache, &store, &test.error), FM_OK);
    assert_int_equal(truncate(path, 100), 0);
    assert_false(load_all(&test, store));
    fm_store_close(store);
    teardown_case(&test);
}

/* Opening or verifying finds any change of a generation's small files. */
static void test_changed_generation(void **state) {
    (void)state;
    static const char *const files[] = {"generations/00000001.manifest",
                                        "generations/00000001.index", "generations/00000001.all",
                                        "generations/00000001.facts", "CURRENT"};
    cache_case test;
    setup_case(&test, 3);
    build(&test);
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s", test.cache, files[f]);
        fm_bytes bytes = read_file(&test, path);
        uint8_t *copy = fm_arena_alloc(&test.arena, bytes.size + 1);
        assert_non_null(copy);
        for (uint32_t i = 0; i < 60; i++) {
            uint32_t bit = draw(i + 1000 * (uint32_t)f, (uint32_t)bytes.size * 8);
            memcpy(copy, bytes.data, bytes.size);
            copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
            write_file(path, copy, bytes.size);
            assert_int_not_equal(verify(&test, test.cache), FM_OK);
        }
        write_file(path, bytes.data, bytes.size / 2);
        assert_int_not_equal(verify(&test, test.cache), FM_OK);
        write_file(path, bytes.data, bytes.size);
        assert_int_equal(verify(&test, test.cache), FM_OK);
    }
    teardown_case(&test);
}

/* A manifest with a correct own hash and wrong content. */
static void test_lying_manifest(void **state) {
    (void)state;
    static const char *const lies[] = {
        "s/^chains .*/chains 4000000000/",
        "s/^chains .*/chains 2/",
        "s/^shards .*/shards 99999/",
        "s/^number .*/number 7/",
        "s/^refused .*/refused 1/",
        "s/^shard \\([^ ]*\\) .*/shard \\1 5 1/",
        "s/^shard \\([^ ]*\\) \\([^ ]*\\) .*/shard \\1 \\2 1/",
        "s/^content ...../content 00000/",
        "s/^foldmill generation 2/foldmill generation 3/",
        "s/^foldmill generation 2/foldmill generation 1/",
        "s/^facts ...../facts 00000/",
    };
    cache_case test;
    char path[300];
    setup_case(&test, 3);
    build(&test);
    snprintf(path, sizeof path, "%s/generations/00000001.manifest", test.cache);
    fm_bytes manifest = read_file(&test, path);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        write_file(path, manifest.data, manifest.size);
        assert_int_equal(run_shell("sed -i -e '/^end /d' -e '%s' %s && "
                                   "echo end $(sha256sum < %s | cut -c 1-64) >> %s",
                                   lies[i], path, path, path),
                         0);
        fm_status status = verify(&test, test.cache);
        if (i == 4) { /* readers of the refusals check their count */
            fm_generation generation;
            status = fm_generation_read(test.cache, FM_GENERATION_ALL, &test.arena, &generation,
                                        &test.error);
        }
        assert_true(status == FM_ERR_CORRUPT || (i == 8 && status == FM_ERR_UNSUPPORTED));
    }
    teardown_case(&test);
}

/* A cache of a newer foldmill: readers and builds say so and change nothing. */
static void test_newer_format(void **state) {
    (void)state;
    cache_case test;
    fm_store *store;
    fm_build_report report;
    setup_case(&test, 2);
    build(&test);
    assert_int_equal(
        run_shell(
            "cd %s/generations && sed -i -e '/^end /d' -e '1s/ [0-9]*$/ 99/' -e '2i mood good' "
            "00000001.manifest && echo end $(sha256sum < 00000001.manifest | cut -c 1-64) >> "
            "00000001.manifest && "
            "cd ../.. && find cache -type f | sort | xargs sha256sum > before",
            test.cache),
        0);
    assert_int_equal(fm_store_open(test.cache, &store, &test.error), FM_ERR_UNSUPPORTED);
    assert_non_null(strstr(test.error.message, "format 99"));
    assert_non_null(strstr(test.error.message, "newer"));
    assert_non_null(strstr(test.error.source, ".manifest"));
    assert_int_equal(build_with(&test, test.data, test.cache, (fm_build_options){0}, &report),
                     FM_ERR_UNSUPPORTED);
    assert_non_null(strstr(test.error.message, "newer"));
    assert_int_equal(
        run_shell("cd %s && find cache -type f | sort | xargs sha256sum | cmp - before",
                  test.folder),
        0);
    teardown_case(&test);
}

/* The decoders alone, without the hashes that protect them: each single bit of an index and of
 * notes. */
static void test_decoders(void **state) {
    (void)state;
    cache_case test;
    fm_generation good, found;
    fm_bytes index, notes;
    setup_case(&test, 3);
    build(&test);
    assert_int_equal(
        fm_generation_read(test.cache, FM_GENERATION_ALL, &test.arena, &good, &test.error), FM_OK);
    assert_int_equal(fm_index_encode(&good, &test.arena, &index, &test.error), FM_OK);
    assert_int_equal(fm_notes_encode(&good, &test.arena, &notes, &test.error), FM_OK);
    size_t mark = fm_arena_mark(&test.arena);
    for (size_t bit = 0; bit < (index.size + notes.size) * 8; bit++) {
        bool is_index = bit < index.size * 8;
        fm_bytes from = is_index ? index : notes, again;
        uint8_t *copy = fm_arena_alloc(&test.arena, from.size);
        assert_non_null(copy);
        memcpy(copy, from.data, from.size);
        size_t at = is_index ? bit : bit - index.size * 8;
        copy[at / 8] ^= (uint8_t)(1u << at % 8);
        found = good;
        fm_bytes changed = {copy, from.size};
        if (is_index ? !fm_index_decode(changed, &found, NULL)
                     : !fm_notes_decode(changed, &test.arena, &found, NULL)) {
            assert_int_equal(is_index ? fm_index_encode(&found, &test.arena, &again, NULL)
                                      : fm_notes_encode(&found, &test.arena, &again, NULL),
                             FM_OK);
            assert_int_equal(again.size, from.size);
            assert_memory_equal(again.data, copy, from.size);
        }
        fm_arena_rewind(&test.arena, mark);
    }
    for (size_t size = 0; size < index.size; size++) {
        found = good;
        assert_int_not_equal(fm_index_decode((fm_bytes){index.data, size}, &found, NULL), FM_OK);
    }
    teardown_case(&test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_snapshot),
        cmocka_unit_test(test_flipped_bits),
        cmocka_unit_test(test_damage_under_an_open_store),
        cmocka_unit_test(test_truncated_shard),
        cmocka_unit_test(test_changed_generation),
        cmocka_unit_test(test_lying_manifest),
        cmocka_unit_test(test_newer_format),
        cmocka_unit_test(test_decoders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
