/* Tests `foldmill export --snapshot`: one file for each chain in both formats, an export that
 * continues after a kill, a folder of other data that is refused, and a damaged chain that is
 * skipped. `foldmill fetch --save` keeps the samples of a stream in the same way. */
#include "proto/base/file.h"
#include "proto/npz.h"
#include "proto/safetensors.h"
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/testing/must.h"

static char folder[200];

static void must(const char *command) {
    fm_test_must(folder, command, "out err");
}

static int make_cache(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    must("$FOLDMILL synth --seed 5 --chains 6 --depth 60 --max-length 120 --min-length 60 -o data "
         ">/dev/null 2>err && $FOLDMILL build data --cache cache --quiet >/dev/null 2>err");
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static void a_file_of_a_snapshot_is_that_of_the_chain(void **state) {
    (void)state;
    must("$FOLDMILL export --cache cache --snapshot all -o all >out 2>err && "
         "grep -q '^export    6 of 6 chains written, 0 kept, 0 failed, 0 left' out && "
         "test $(ls all | grep -c npz) = 6 && for file in all/*.npz; do "
         "chain=$(basename $file .npz); "
         "$FOLDMILL export --cache cache --chain $chain -o one.npz --replace && cmp one.npz $file "
         "|| exit 1; "
         "done");
}

/* Every array of the .npz is in the .safetensors, and nothing else. */
static void compare(const fm_npz *npz, const fm_safetensors *file) {
    static uint8_t bytes[1 << 22];
    assert_int_equal(fm_safetensors_count(file), npz->n_array);
    for (size_t i = 0; i < npz->n_array; i++) {
        const fm_npy *array = &npz->arrays[i];
        const fm_safetensor *tensor = fm_safetensors_find(file, array->name);
        fm_error error;
        assert_non_null(tensor);
        assert_int_equal(tensor->bytes, array->count * array->item_bytes);
        assert_int_equal(tensor->offset % array->item_bytes, 0);
        assert_int_equal(tensor->rank, (int)array->rank);
        for (size_t k = 0; k < array->rank; k++)
            assert_int_equal(tensor->shape[k], array->shape[k]);
        assert_true(tensor->bytes <= sizeof bytes);
        assert_int_equal(fm_safetensors_read(file, tensor, bytes, &error), FM_OK);
        if (tensor->bytes) assert_memory_equal(bytes, array->data, tensor->bytes);
    }
}

static void both_formats_have_the_same_arrays(void **state) {
    (void)state;
    fm_arena arena;
    fm_bytes content;
    fm_npz npz;
    fm_safetensors *file;
    fm_error error;
    char path[300];
    must("for stage in chain nonensembled; do for format in npz safetensors; do "
         "$FOLDMILL export --cache cache --snapshot all --stage $stage --format $format "
         "-o $stage.$format >out 2>err || exit 1; "
         "cp $(ls $stage.$format/*.$format | head -n 1) $stage-one.$format; done; done");
    static const char *const stages[] = {"chain", "nonensembled"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fm_arena_init(&arena, (size_t)1 << 28, &error), FM_OK);
        snprintf(path, sizeof path, "%s/%s-one.npz", folder, stages[i]);
        assert_int_equal(fm_file_read(&arena, path, 1 << 26, &content, &error), FM_OK);
        assert_int_equal(fm_npz_parse(&arena, content, &npz, &error), FM_OK);
        snprintf(path, sizeof path, "%s/%s-one.safetensors", folder, stages[i]);
        assert_int_equal(fm_safetensors_open(path, &file, &error), FM_OK);
        compare(&npz, file);
        fm_safetensors_close(file);
        fm_arena_fini(&arena);
    }
}

/* The export is killed as soon as its first file is there. */
static void a_killed_export_continues(void **state) {
    (void)state;
    must("$FOLDMILL export --cache cache --snapshot all -o whole >out 2>err && "
         "{ $FOLDMILL export --cache cache --snapshot all -o part >out 2>err & } && pid=$! && "
         "for i in $(seq 2000); do ls part/*.npz >/dev/null 2>&1 && break; sleep 0.01; done; "
         "kill -9 $pid 2>/dev/null; wait $pid; n=$(ls part/*.npz | wc -l) && "
         "for file in part/*.npz; do cmp $file whole/$(basename $file) || exit 1; done && "
         "$FOLDMILL export --cache cache --snapshot all -o part --json >out 2>err && "
         "grep -q '\"kept\": '$n out && test $(ls part/*.npz | wc -l) = 6 && "
         "for file in part/*.npz; do cmp $file whole/$(basename $file) || exit 1; done");
}

/* What a sample's file has is what the stream brought: the arrays are the same in both formats, and
 * the same whether the stream is fetched at once or in two parts. An empty file is no sample. */
static void samples_of_a_stream_are_kept(void **state) {
    (void)state;
    fm_arena arena;
    fm_bytes content;
    fm_npz npz;
    fm_safetensors *file;
    fm_error error;
    char path[300];
    pid_t server = fm_test_serve(folder, "s", "--cache cache");
    must("$FOLDMILL fetch --data unix:s --steps 4 --batch 2 --save kept >out 2>err && "
         "grep -q '^files     8 written, 0 kept -> kept' out && "
         "test $(ls kept/*.npz | wc -l) = 8");
    must("$FOLDMILL fetch --data unix:s --steps 2 --batch 2 --save parts >out 2>err && "
         ": >parts/000000000001.npz && "
         "$FOLDMILL fetch --data unix:s --steps 4 --batch 2 --order free --save parts --json >out "
         "2>err && grep -q '\"written\": 5' out && grep -q '\"kept\": 3' out && "
         "diff -r kept parts");
    must("$FOLDMILL fetch --data unix:s --steps 1 --batch 2 --save st --format safetensors >out "
         "2>err");
    assert_int_equal(fm_test_shell(folder, "$FOLDMILL fetch --data unix:s --steps 1 --batch 2 "
                                           "--seed 9 --save kept >out 2>err"),
                     1);
    must("grep -q 'fetch.json.*samples of another snapshot, plan or seed' err");
    assert_int_equal(fm_test_shell(folder, "$FOLDMILL fetch --data unix:s --steps 1 --format npz "
                                           ">out 2>err"),
                     2);
    assert_int_equal(fm_test_stop(server, SIGTERM), 0);
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 28, &error), FM_OK);
    snprintf(path, sizeof path, "%s/kept/000000000001.npz", folder);
    assert_int_equal(fm_file_read(&arena, path, 1 << 26, &content, &error), FM_OK);
    assert_int_equal(fm_npz_parse(&arena, content, &npz, &error), FM_OK);
    snprintf(path, sizeof path, "%s/st/000000000001.safetensors", folder);
    assert_int_equal(fm_safetensors_open(path, &file, &error), FM_OK);
    compare(&npz, file);
    assert_int_equal(*(const uint64_t *)fm_npz_find(&npz, "index")->data, 1);
    assert_non_null(fm_npz_find(&npz, "aatype"));
    assert_non_null(fm_npz_find(&npz, "msa.0"));
    fm_safetensors_close(file);
    fm_arena_fini(&arena);
}

static void a_folder_of_other_data_is_refused(void **state) {
    (void)state;
    must("$FOLDMILL export --cache cache --snapshot all -o mixed >out 2>err");
    must("! $FOLDMILL export --cache cache --snapshot all --stage nonensembled -o mixed 2>err && "
         "grep -q 'mixed/export.json: the folder has an export of another' err");
    must("before=$(find cache | sort) && ! $FOLDMILL export --cache cache --snapshot all -o cache "
         "2>err && grep -q 'cache: the folder has other files (CURRENT) and no export.json' err && "
         "test \"$before\" = \"$(find cache | sort)\"");
    must("mkdir left && echo >left/export.json.tmp.1 && "
         "$FOLDMILL export --cache cache --snapshot all -o left >out 2>err");
    must("$FOLDMILL export --cache cache --snapshot all --chain 1 -o x 2>err; test $? = 2 && "
         "grep -q 'either --chain or --snapshot' err");
    must("$FOLDMILL export --cache cache --snapshot all --format zip -o x 2>err; test $? = 2 && "
         "grep -q \"found 'zip', expected npz or safetensors\" err && test ! -e x");
}

/* The order in which chains reach a shard depends on the build's threads, and pages that a later
 * commit replaced stay in the file. The damage therefore hits a record on pages of its own, which
 * is never moved: its zstd frame begins 40 bytes into a page of 4,096. */
static void a_damaged_chain_does_not_stop_the_others(void **state) {
    (void)state;
    must("cp -R cache damaged && shard=$(ls damaged/shards/*) && chmod u+w $shard && "
         "at=$(LC_ALL=C grep -obUaP '\\x28\\xb5\\x2f\\xfd' $shard | "
         "awk -F: '$1 % 4096 == 40 { print $1 + 16; exit }') && test -n \"$at\" && "
         "head -c 64 /dev/zero | tr '\\0' X | "
         "dd of=$shard bs=1 seek=$at conv=notrunc 2>/dev/null; "
         "$FOLDMILL export --cache damaged --snapshot all -o rest --json >out 2>err; "
         "test $? = 3 && grep -q '\"failed\": [1-5]' out && grep -q 'foldmill export: ' err && "
         "test $(ls rest | grep -c npz) -ge 1");
}

/* The longest name has 240 bytes: ".npz" and what a temporary file's name has are added to it. */
static void a_long_name_does_not_stop_the_others(void **state) {
    (void)state;
    must("id=$(basename $(ls data/mmcifs/*.cif | head -n 1) .cif) && mkdir long && "
         "cp -R data/alignments data/mmcifs long && for n in 238 239 249; do "
         "name=$(head -c $n /dev/zero | tr '\\0' n) && "
         "cp -R data/alignments/${id}_A long/alignments/${name}_A && "
         "cp data/mmcifs/$id.cif long/mmcifs/$name.cif || exit 1; done && "
         "$FOLDMILL build long --cache named --quiet >out 2>err");
    must("$FOLDMILL export --cache named --snapshot all -o names --json >out 2>err; test $? = 3 && "
         "grep -q '\"written\": 7,' out && grep -q '\"failed\": 2,' out && "
         "grep -q 'name of 241 bytes, expected at most 240' err && "
         "grep -q 'name of 251 bytes, expected at most 240' err && "
         "test $(ls names | grep -c npz) = 7");
    must("name=$(head -c 249 /dev/zero | tr '\\0' n)_A && "
         "$FOLDMILL export --cache named --chain $name -o alone.npz >out 2>err && test -s "
         "alone.npz");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_of_a_snapshot_is_that_of_the_chain),
        cmocka_unit_test(both_formats_have_the_same_arrays),
        cmocka_unit_test(a_killed_export_continues),
        cmocka_unit_test(samples_of_a_stream_are_kept),
        cmocka_unit_test(a_folder_of_other_data_is_refused),
        cmocka_unit_test(a_damaged_chain_does_not_stop_the_others),
        cmocka_unit_test(a_long_name_does_not_stop_the_others),
    };
    return cmocka_run_group_tests(tests, make_cache, drop_folder);
}
