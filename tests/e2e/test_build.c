/* foldmill build, verify, inspect and export as a user runs them: exit codes, damage, a
 * limit on the size of files, and the features of the golden chains. */
#include "tests/testing/manifest.h"
#include "tests/testing/testing.h"

#include "proto/base/file.h"
#include "proto/npz.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[256];

#define run(...) fm_test_shell_format(folder, __VA_ARGS__)

static int make_folder(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return run("$FOLDMILL synth --chains 24 --seed 4 --max-length 80 --depth 300 --quiet -o data > "
               "/dev/null");
}

static int drop_folder(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static void exit_codes(void **state) {
    (void)state;
    assert_int_equal(run("$FOLDMILL build --help | grep -q -- --single-sequence"), 0);
    assert_int_equal(run("$FOLDMILL build data 2>/dev/null"), 2);
    assert_int_equal(run("$FOLDMILL build data --cache c --compat casp 2>/dev/null"), 2);
    assert_int_equal(run("$FOLDMILL build nowhere --cache c 2>/dev/null"), 1);
    assert_int_equal(run("$FOLDMILL verify --cache c 2>/dev/null"), 1);
    assert_int_equal(run("$FOLDMILL build data --cache c -q --report r.json > out"), 0);
    assert_int_equal(run("grep -q 'content   [0-9a-f]\\{64\\}' out"), 0);
    assert_int_equal(run("grep -q '^memory    at most [1-9][0-9]* MiB' out"), 0);
    assert_int_equal(run("grep -q '\"peak_resident_bytes\": [1-9][0-9]*,' r.json"), 0);
    assert_int_equal(run("grep -q '\"outcome\": \"all\"' r.json"), 0);
    assert_int_equal(run("$FOLDMILL verify --cache c | grep -q '^content: [0-9a-f]*$'"), 0);
    assert_int_equal(run("$FOLDMILL inspect --cache c | grep -q '^chains      24, 0 refused'"), 0);
    assert_int_equal(run("$FOLDMILL inspect --cache c --chain nobody_A 2>/dev/null"), 1);
    assert_int_equal(run("$FOLDMILL export --cache c --chain nobody_A -o x.npz 2>/dev/null"), 1);
    assert_int_equal(run("$FOLDMILL export --cache c -o x.npz 2>/dev/null"), 2);
    assert_int_equal(run("cp -r data some && cd some/alignments && set -- * && "
                         "printf 'no fasta\\n' > $1/mgnify_hits.a3m"),
                     0);
    assert_int_equal(run("$FOLDMILL build some --cache c -q --report r.json > out"), 3);
    assert_int_equal(run("grep -q 'mgnify_hits.a3m:1' out && grep -q '\"refused\": 1' r.json"), 0);
    assert_int_equal(run("mkdir -p none/mmcifs && $FOLDMILL build none --cache n -q > out 2>&1"),
                     1);
    assert_int_equal(run("test ! -e n/CURRENT"), 0);
}

/* A shard that is gone: verify does not ask to remove it. */
static void lost_shards_are_mended(void **state) {
    (void)state;
    assert_int_equal(run("rm -rf d && $FOLDMILL build data --cache d -q > out && rm d/shards/*"),
                     0);
    assert_int_equal(run("$FOLDMILL verify --cache d 2> log"), 1);
    assert_int_equal(run("grep -q 'to mend it, run foldmill build again' log"), 0);
    assert_int_equal(run("$FOLDMILL build data --cache d -q > out && "
                         "$FOLDMILL verify --cache d > out"),
                     0);
}

/* Damage of any file of a cache is found, also where no load reads it, and verify says how to
 * mend it. */
static void damage_is_found_and_mended(void **state) {
    (void)state;
    const char *const files[] = {"generations/*.notes", "generations/*.refused", "shards/*"};
    assert_int_equal(run("$FOLDMILL build data --cache w -q > out"), 0);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        assert_int_equal(run("rm -rf d && cp -r w d && truncate -s +1 d/%s", files[i]), 0);
        assert_int_equal(run("$FOLDMILL verify --cache d 2> log"), 1);
        assert_int_equal(
            run("sed -n 's/.*to mend it, remove \\(.*\\) and run .*/\\1/p' log > name; "
                "test -f $(cat name) && rm $(cat name)"),
            0);
        assert_int_equal(run("$FOLDMILL build data --cache d -q > out"), 0);
        assert_int_equal(run("$FOLDMILL verify --cache d | grep content > a; "
                             "$FOLDMILL verify --cache w | grep content | cmp - a"),
                         0);
    }
}

/* A failed write is reported, and the previous generation stays in force. */
static void full_disk(void **state) {
    (void)state;
    assert_int_equal(run("mkdir -p few/mmcifs few/alignments && cp data/mmcifs/* few/mmcifs && "
                         "cp -r $(ls -d data/alignments/* | head -3) few/alignments && "
                         "$FOLDMILL build few --cache f -q > /dev/null && "
                         "$FOLDMILL verify --cache f > before"),
                     0);
    /* Limits of 512-byte blocks: on the shard, and then on the files of the generation. */
    static const int limits[] = {1, 2, 3, 8, 20, 40};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        assert_int_equal(
            run("sh -c 'ulimit -f %d; exec $FOLDMILL build data --cache f -q' > out 2> err",
                limits[i]),
            1);
        assert_int_equal(
            run("grep -q -e 'disk full' -e 'File too large' err && $FOLDMILL verify --cache f | "
                "cmp - before"),
            0);
    }
    assert_int_equal(run("$FOLDMILL build data --cache f -q > /dev/null && ! ls f/build | grep -v "
                         "lock && test $(ls f/generations | grep -c tmp) = 0"),
                     0);
}

/* -- golden */

static void compare_chain(fm_arena *arena, const fm_test_item *item, const char *chain,
                          const char *stage, size_t n_array) {
    char path[600];
    fm_error error;
    fm_bytes bytes;
    fm_npz npz;
    assert_int_equal(run("$FOLDMILL export --cache golden --chain %s --compat openfold --stage %s "
                         "-o %s.npz --replace",
                         chain, stage, chain),
                     0);
    snprintf(path, sizeof path, "%s/%s.npz", folder, chain);
    assert_int_equal(fm_file_read(arena, path, (size_t)1 << 28, &bytes, &error), FM_OK);
    assert_int_equal(fm_npz_parse(arena, bytes, &npz, &error), FM_OK);
    size_t n_compared = 0;
    for (size_t i = 0; i < item->n_array; i++) {
        const fm_npy *array = fm_npz_find(&npz, item->array[i].key);
        size_t shape[FM_NPZ_RANK_MAX];
        assert_non_null(array);
        for (size_t d = 0; d < array->rank; d++)
            shape[d] = (size_t)array->shape[d];
        assert_true(fm_test_array_agrees(&item->array[i], shape, array->rank, array->data,
                                         array->count * array->item_bytes));
        n_compared++;
    }
    assert_int_equal(n_compared, npz.n_array);
    assert_int_equal(n_compared, n_array);
}

static void golden_chains(void **state) {
    (void)state;
    fm_test_manifest *manifest = fm_test_manifest_open();
    fm_arena arena;
    size_t n_chain = 0;
    if (!manifest) {
        print_message("skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 30, NULL), FM_OK);
    assert_int_equal(run("$FOLDMILL build $FM_REFERENCE_DATA/golden/dataset --cache golden "
                         "--compat openfold -q > /dev/null"),
                     0);
    for (size_t i = 0; i < fm_test_manifest_count(manifest); i++) {
        const fm_test_item *item = fm_test_manifest_item(manifest, i);
        fm_arena_reset(&arena);
        bool is_chain = strcmp(item->kind, "chain_features") == 0 && item->source &&
                        strncmp(item->source, "inputs/align/", 13) == 0;
        if (is_chain) compare_chain(&arena, item, item->source + 13, "chain", 21);
        /* The predicted structure is no part of the dataset. */
        bool is_transformed =
            strcmp(item->kind, "nonensembled") == 0 && strcmp(item->source, "6KWC") != 0;
        if (is_transformed) compare_chain(&arena, item, item->source, "nonensembled", 48);
        n_chain += is_chain || is_transformed;
    }
    assert_int_equal(n_chain, 2 * 22);
    fm_arena_fini(&arena);
    fm_test_manifest_close(manifest);
}

/* A predicted structure as part of a dataset for distillation: a PDB file, found by its folder's
 * name. Its search found templates that the reference did not have either. */
static void golden_prediction(void **state) {
    (void)state;
    fm_test_manifest *manifest = fm_test_manifest_open();
    fm_arena arena;
    size_t n_compared = 0;
    if (!manifest) {
        print_message("skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 30, NULL), FM_OK);
    assert_int_equal(run("from=$FM_REFERENCE_DATA/golden/inputs && mkdir -p set/alignments/6KWC && "
                         "cp -r $from/distill_pdb set/data && cp $from/chains/6KWC_1/*.a3m "
                         "$from/chains/6KWC_1/*.sto set/alignments/6KWC && "
                         "$FOLDMILL build --dataset distillation=set --cache golden "
                         "--compat openfold -q > /dev/null"),
                     0);
    for (size_t i = 0; i < fm_test_manifest_count(manifest); i++) {
        const fm_test_item *item = fm_test_manifest_item(manifest, i);
        fm_arena_reset(&arena);
        bool is_chain = strcmp(item->kind, "chain_features") == 0 && item->source &&
                        strcmp(item->source, "inputs/distill_pdb/6KWC.pdb") == 0;
        bool is_transformed =
            strcmp(item->kind, "nonensembled") == 0 && strcmp(item->source, "6KWC") == 0;
        if (is_chain) compare_chain(&arena, item, "distillation:6KWC", "chain", 20);
        if (is_transformed) compare_chain(&arena, item, "distillation:6KWC", "nonensembled", 48);
        n_compared += is_chain || is_transformed;
    }
    assert_int_equal(n_compared, 2);
    fm_arena_fini(&arena);
    fm_test_manifest_close(manifest);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(exit_codes, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(damage_is_found_and_mended, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(lost_shards_are_mended, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(full_disk, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(golden_chains, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(golden_prediction, make_folder, drop_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
