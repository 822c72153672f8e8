/* test_checkpoint.c: tests checkpoints and the safetensors files below them: round trips, files
 * that other programs can read, and damage that must be refused. */
#include "trainer/checkpoint/checkpoint.h"

#include "proto/base/file.h"
#include "tests/testing/testing.h"
#include "proto/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct fixture {
    char folder[256], path[FM_CHECKPOINT_PATH_BYTES];
    fm_arena arena;
    fm_params params;
} fixture;

/* Two blocks, three parameters; all values are different. */
static void make_params(fm_params *params, fm_arena *arena, int64_t rows) {
    const fm_param weight = {.name = "layer.weight", .rank = 2, .shape = {rows, 5}};
    const fm_param bias = {.name = "layer.bias", .rank = 1, .shape = {rows}};
    const fm_param norm = {.name = "norm.gamma", .rank = 1, .shape = {7}};
    assert_int_equal(fm_params_init(params, 16, arena, NULL), FM_OK);
    fm_params_add_block(params);
    fm_params_add(params, &weight);
    fm_params_add(params, &bias);
    fm_params_add_block(params);
    fm_params_add(params, &norm);
    assert_int_equal(fm_params_allocate(params, fm_kernels_cpu(FM_ELEMENT_F32), NULL), FM_OK);
    float *sets[] = {params->master, params->moment1, params->moment2, params->ema};
    for (int set = 0; set < 4; set++) {
        for (int p = 0; p < params->n_param; p++) {
            for (int64_t i = 0; i < fm_param_count(&params->param[p]); i++)
                sets[set][params->param[p].offset + i] = (float)(1000 * set + 100 * p + i) + 0.5f;
        }
    }
}

static void set_up(fixture *f) {
    fm_test_make_folder(f->folder, sizeof f->folder);
    assert_int_equal(fm_arena_init(&f->arena, 1 << 24, NULL), FM_OK);
    make_params(&f->params, &f->arena, 3);
}

static void tear_down(fixture *f) {
    fm_params_release(&f->params);
    fm_arena_fini(&f->arena);
    fm_test_remove_tree(f->folder);
}

static void save(fixture *f, uint64_t step) {
    const fm_checkpoint_state state = {.step = step,
                                       .samples = 2 * step,
                                       .seed = 11,
                                       .token = "0 4 -",
                                       .config = "[model]\nn = 1\n",
                                       .snapshot = step % 2 ? NULL : "5a2f"};
    char path[FM_CHECKPOINT_PATH_BYTES];
    assert_int_equal(fm_checkpoint_path(f->folder, (fm_checkpoint_place){step, 0}, path, NULL),
                     FM_OK);
    assert_int_equal(fm_checkpoint_save(path, &f->params, &state, NULL), FM_OK);
    snprintf(f->path, sizeof f->path, "%s", path);
}

static void loading_restores_a_checkpoint(void **state) {
    (void)state;
    fixture f;
    set_up(&f);
    save(&f, 12);
    fm_params other;
    make_params(&other, &f.arena, 3);
    size_t bytes = (size_t)other.n_element * sizeof(float);
    memset(other.master, 0, bytes);
    memset(other.moment2, 0, bytes);
    fm_checkpoint_state got;
    assert_int_equal(fm_checkpoint_peek(f.path, &f.arena, &got, NULL), FM_OK);
    assert_int_equal(fm_checkpoint_load(f.path, &other, &got, NULL), FM_OK);
    assert_memory_equal(other.master, f.params.master, bytes);
    assert_memory_equal(other.moment1, f.params.moment1, bytes);
    assert_memory_equal(other.moment2, f.params.moment2, bytes);
    assert_memory_equal(other.ema, f.params.ema, bytes);
    assert_int_equal(got.step, 12);
    assert_int_equal(got.samples, 24);
    assert_int_equal(got.seed, 11);
    assert_string_equal(got.token, "0 4 -");
    assert_string_equal(got.config, "[model]\nn = 1\n");
    assert_string_equal(got.snapshot, "5a2f");
    got.snapshot = "5a2e"; /* the hash covers it */
    assert_int_equal(fm_checkpoint_load(f.path, &other, &got, NULL), FM_ERR_CORRUPT);
    save(&f, 13);
    assert_int_equal(fm_checkpoint_peek(f.path, &f.arena, &got, NULL), FM_OK);
    assert_null(got.snapshot);
    assert_int_equal(fm_checkpoint_load(f.path, &other, &got, NULL), FM_OK);
    fm_params_release(&other);
    tear_down(&f);
}

/* A model that only goes forward takes one set of values, checked like a whole checkpoint. */
static void one_set_is_loaded_alone(void **state) {
    (void)state;
    fixture f;
    set_up(&f);
    save(&f, 12);
    fm_params forward = f.params;
    assert_int_equal(fm_params_allocate_values(&forward, f.params.kernels, NULL), FM_OK);
    fm_checkpoint_state loaded;
    fm_error error;
    assert_int_equal(fm_checkpoint_peek(f.path, &f.arena, &loaded, &error), FM_OK);
    size_t bytes = (size_t)f.params.n_element * sizeof(float);
    assert_int_equal(fm_checkpoint_load_set(f.path, &forward, &loaded, FM_CHECKPOINT_EMA, &error),
                     FM_OK);
    assert_memory_equal(forward.master, f.params.ema, bytes);
    assert_int_equal(fm_checkpoint_load_set(f.path, &forward, &loaded, FM_CHECKPOINT_MODEL, &error),
                     FM_OK);
    assert_memory_equal(forward.master, f.params.master, bytes);
    fm_params_release(&forward);
    tear_down(&f);
}

static void python_reads_it_by_the_formats_words(void **state) {
    (void)state;
    fixture f;
    set_up(&f);
    save(&f, 1);
    char command[2048];
    snprintf(command, sizeof command,
             "python3 -c \"import json,struct,sys; b=open('%s','rb').read(); "
             "n=struct.unpack('<Q',b[:8])[0]; "
             "h=json.loads(b[8:8+n]); m=h.pop('__metadata__'); t=h['adam_v.layer.bias']; "
             "v=struct.unpack('<3f',b[8+n+t['data_offsets'][0]:8+n+t['data_offsets'][1]]); "
             "sys.exit(not (v==(2100.5,2101.5,2102.5) and t['dtype']=='F32' and t['shape']==[3] "
             "and len(h)==12 and "
             "m['config']=='[model]\\nn = 1\\n' and sorted(x['data_offsets'][0] for x in "
             "h.values())[0]==0 and "
             "max(x['data_offsets'][1] for x in h.values())==len(b)-8-n))\"",
             f.path);
    if (system("python3 -c pass 2>/dev/null") == 0) assert_int_equal(system(command), 0);
    tear_down(&f);
}

/* Flips bits and cuts the file at many places: each time an error, and the parameters keep their
 * values. */
static void damage_is_refused(void **state) {
    (void)state;
    fixture f;
    set_up(&f);
    save(&f, 3);
    fm_bytes file;
    assert_int_equal(fm_file_read(&f.arena, f.path, 1 << 20, &file, NULL), FM_OK);
    uint8_t *copy = malloc(file.size);
    size_t bytes = (size_t)f.params.n_element * sizeof(float), n_refused = 0, n_tried = 0;
    float *before = malloc(bytes);
    memcpy(before, f.params.master, bytes);
    for (size_t at = 0; at < file.size; at += 1 + at % 3) {
        size_t size = at % 2 ? at : file.size;
        memcpy(copy, file.data, file.size);
        copy[at] ^= 1;
        FILE *out = fopen(f.path, "wb");
        assert_non_null(out);
        assert_int_equal(fwrite(copy, 1, size, out), size);
        fclose(out);
        size_t mark = fm_arena_mark(&f.arena);
        fm_checkpoint_state got;
        fm_error error = {.message = ""};
        fm_status status = fm_checkpoint_peek(f.path, &f.arena, &got, &error);
        if (!status) status = fm_checkpoint_load(f.path, &f.params, &got, &error);
        fm_arena_rewind(&f.arena, mark);
        n_tried++;
        if (status) n_refused++;
        if (status) assert_true(error.message[0] != '\0');
        assert_memory_equal(f.params.master, before, bytes);
    }
    assert_int_equal(n_refused, n_tried);
    free(copy);
    free(before);
    tear_down(&f);
}

static void another_models_file_is_refused(void **state) {
    (void)state;
    fixture f;
    set_up(&f);
    save(&f, 3);
    fm_params other;
    make_params(&other, &f.arena, 4);
    fm_checkpoint_state got;
    fm_error error;
    assert_int_equal(fm_checkpoint_peek(f.path, &f.arena, &got, &error), FM_OK);
    assert_int_equal(fm_checkpoint_load(f.path, &other, &got, &error), FM_ERR_CORRUPT);
    assert_string_equal(error.message,
                        "the checkpoint lacks a parameter of this model or has it in another "
                        "shape: model.layer.weight");
    fm_params_release(&other);
    tear_down(&f);
}

static void the_newest_and_the_milestones_are_kept(void **state) {
    (void)state;
    fixture f;
    set_up(&f);
    for (uint64_t step = 5; step <= 40; step += 5)
        save(&f, step);
    char leftover[600], other[600];
    snprintf(leftover, sizeof leftover, "%s/checkpoint-000000000041.safetensors.tmp.123", f.folder);
    snprintf(other, sizeof other, "%s/mine.safetensors.tmp.123", f.folder);
    assert_int_equal(fm_file_write_atomic(leftover, "x", 1, NULL), FM_OK);
    assert_int_equal(fm_file_write_atomic(other, "x", 1, NULL), FM_OK);
    assert_int_equal(fm_checkpoint_prune(f.folder, (fm_checkpoint_place){40, 0}, 2, 20, NULL),
                     FM_OK);
    assert_int_not_equal(access(leftover, F_OK), 0);
    assert_int_equal(access(other, F_OK), 0);
    static const uint64_t kept[] = {40, 35, 20};
    fm_checkpoint_place place = FM_CHECKPOINT_END;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(fm_checkpoint_find(f.folder, place, &place, NULL), FM_OK);
        assert_int_equal(place.step, kept[i]);
    }
    assert_int_equal(fm_checkpoint_find(f.folder, place, &place, NULL), FM_ERR_NOT_FOUND);
    tear_down(&f);
}

static void touch(const char *folder, const char *name) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(fm_file_write_atomic(path, "x", 1, NULL), FM_OK);
}

/* Checkpoints inside a batch are newer than the one before the batch; other names are no
 * checkpoints. Those inside a batch are never milestones. */
static void a_batch_in_hand_has_its_place_in_the_order(void **state) {
    (void)state;
    fixture f;
    set_up(&f);
    static const char *const names[] = {"checkpoint-000000000020.safetensors",
                                        "checkpoint-000000000020+3.safetensors",
                                        "checkpoint-000000000020+12.safetensors",
                                        "checkpoint-000000000021.safetensors",
                                        "checkpoint-000000000022+.safetensors",
                                        "checkpoint-000000000022+x.safetensors",
                                        "checkpoint-000000000022+0.safetensors",
                                        "checkpoint-000000000022+01.safetensors",
                                        "checkpoint-0000000000022.safetensors",
                                        "checkpoint-22.safetensors",
                                        "checkpoint--00000000022.safetensors",
                                        "checkpoint-000000000022.safetensors.old",
                                        "checkpoint-000000000022+99999999999.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        touch(f.folder, names[i]);
    touch(f.folder, "checkpoint-000000000022+1.safetensors.tmp.7");
    static const fm_checkpoint_place order[] = {{21, 0}, {20, 12}, {20, 3}, {20, 0}};
    fm_checkpoint_place place = FM_CHECKPOINT_END;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(fm_checkpoint_find(f.folder, place, &place, NULL), FM_OK);
        assert_int_equal(place.step, order[i].step);
        assert_int_equal(place.n_sample, order[i].n_sample);
    }
    assert_int_equal(fm_checkpoint_find(f.folder, place, &place, NULL), FM_ERR_NOT_FOUND);
    assert_int_equal(fm_checkpoint_prune(f.folder, (fm_checkpoint_place){21, 0}, 1, 10, NULL),
                     FM_OK);
    assert_int_equal(fm_test_shell(f.folder, "test $(ls | wc -l) = 11 && test ! -e *.tmp.7 && "
                                             "test -e checkpoint-000000000021.safetensors"),
                     0);
    tear_down(&f);
}

/* A run that passed over damaged checkpoints keeps those that it makes. */
static void passed_checkpoints_do_not_count(void **state) {
    (void)state;
    fixture f;
    set_up(&f);
    static const uint64_t steps[] = {5, 10, 12, 30, 40}, kept[] = {40, 30, 12};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        save(&f, steps[i]);
    assert_int_equal(fm_checkpoint_prune(f.folder, (fm_checkpoint_place){12, 0}, 1, 0, NULL),
                     FM_OK);
    fm_checkpoint_place place = FM_CHECKPOINT_END;
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        assert_int_equal(fm_checkpoint_find(f.folder, place, &place, NULL), FM_OK);
        assert_int_equal(place.step, kept[i]);
    }
    assert_int_equal(fm_checkpoint_find(f.folder, place, &place, NULL), FM_ERR_NOT_FOUND);
    tear_down(&f);
}

/* A folder that cannot be listed is an error, never an empty folder. */
static void a_folder_that_cannot_be_read_is_no_empty_folder(void **state) {
    (void)state;
    fixture f;
    set_up(&f);
    touch(f.folder, "file");
    char path[600];
    fm_checkpoint_place place = FM_CHECKPOINT_END;
    snprintf(path, sizeof path, "%s/file", f.folder);
    assert_int_equal(fm_checkpoint_find(path, place, &place, NULL), FM_ERR_IO);
    snprintf(path, sizeof path, "%s/nothing", f.folder);
    assert_int_equal(fm_checkpoint_find(path, place, &place, NULL), FM_ERR_NOT_FOUND);
    tear_down(&f);
}

/* The sum of gradients and the notes come back; every change to them is seen. */
static void a_batch_in_hand_is_saved_and_loaded(void **state) {
    (void)state;
    fixture f;
    set_up(&f);
    size_t bytes = (size_t)f.params.n_element * sizeof(float);
    float *sum = calloc(1, bytes), *loaded = calloc(1, bytes);
    assert_true(sum && loaded);
    for (int p = 0; p < f.params.n_param; p++) {
        for (int64_t i = 0; i < fm_param_count(&f.params.param[p]); i++)
            sum[f.params.param[p].offset + i] = (float)(10 * p + i) + 0.25f;
    }
    fm_checkpoint_state saved = {.step = 4,
                                 .samples = 20,
                                 .token = "0 7 -",
                                 .config = "[model]\nn = 1\n",
                                 .identity = "dtype = fp32\n",
                                 .history = "step 2: \"a\\b\"\n",
                                 .batch = "2 1 1",
                                 .n_pending = 2,
                                 .sum = sum};
    assert_int_equal(fm_checkpoint_path(f.folder, (fm_checkpoint_place){4, 2}, f.path, NULL),
                     FM_OK);
    assert_non_null(strstr(f.path, "/checkpoint-000000000004+2.safetensors"));
    assert_int_equal(fm_checkpoint_save(f.path, &f.params, &saved, NULL), FM_OK);
    fm_checkpoint_state got;
    assert_int_equal(fm_checkpoint_peek(f.path, &f.arena, &got, NULL), FM_OK);
    assert_int_equal(got.n_pending, 2);
    assert_string_equal(got.identity, saved.identity);
    assert_string_equal(got.history, saved.history);
    assert_string_equal(got.batch, saved.batch);
    assert_null(got.skipped);
    assert_int_equal(fm_checkpoint_load(f.path, &f.params, &got, NULL), FM_OK); /* no sum wanted */
    got.sum = loaded;
    assert_int_equal(fm_checkpoint_load(f.path, &f.params, &got, NULL), FM_OK);
    assert_memory_equal(loaded, sum, bytes);
    fm_checkpoint_state other = got;
    other.identity = "dtype = bf16\n";
    assert_int_equal(fm_checkpoint_load(f.path, &f.params, &other, NULL), FM_ERR_CORRUPT);
    other = got;
    other.skipped = "1 bad\n";
    assert_int_equal(fm_checkpoint_load(f.path, &f.params, &other, NULL), FM_ERR_CORRUPT);
    /* The last tensor of the file is of the sum. */
    assert_int_equal(fm_test_shell_format(f.folder,
                                          "printf x | dd of=%s bs=1 conv=notrunc 2>err seek=$(("
                                          "$(stat -c %%s %s) - 3))",
                                          f.path, f.path),
                     0);
    assert_int_equal(fm_checkpoint_load(f.path, &f.params, &got, NULL), FM_ERR_CORRUPT);
    free(sum);
    free(loaded);
    tear_down(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loading_restores_a_checkpoint),
        cmocka_unit_test(one_set_is_loaded_alone),
        cmocka_unit_test(python_reads_it_by_the_formats_words),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(another_models_file_is_refused),
        cmocka_unit_test(the_newest_and_the_milestones_are_kept),
        cmocka_unit_test(passed_checkpoints_do_not_count),
        cmocka_unit_test(a_batch_in_hand_has_its_place_in_the_order),
        cmocka_unit_test(a_folder_that_cannot_be_read_is_no_empty_folder),
        cmocka_unit_test(a_batch_in_hand_is_saved_and_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
