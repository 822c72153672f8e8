/* test_damaged_weights.c: files of weights and checkpoints with one wrong bit: safetensors that we
 * wrote, .npz, what PyTorch saves, checkpoints of a run. Whatever the bit, there is an error or the
 * right numbers. One of 13 bits is tried, with `--all` every one. */
#include "trainer/checkpoint/weights_file.h"

#include "proto/base/file.h"
#include "tests/testing/testing.h"
#include "tests/testing/torch_text.h"
#include "trainer/checkpoint/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_SHARE = 13, FILE_MAX = 1 << 16, N_VALUE = 8 };

static bool tries_all;
static char folder[256], path[300];
static uint8_t whole[FILE_MAX], changed[FILE_MAX];
static size_t bytes;

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/weights", folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static void read_whole(void) {
    fm_arena arena;
    fm_bytes content;
    assert_int_equal(fm_arena_init(&arena, FILE_MAX, NULL), FM_OK);
    assert_int_equal(fm_file_read(&arena, path, FILE_MAX, &content, NULL), FM_OK);
    bytes = content.size;
    memcpy(whole, content.data, bytes);
    fm_arena_fini(&arena);
}

/* Flips the bits of the file, one at a time. `read` returns an error, or FM_OK after it has checked
 * that what it read is right. */
static void flip_bits(const char *kind, fm_status (*read)(fm_error *reterr)) {
    size_t n_refused = 0, n_right = 0;
    read_whole();
    assert_int_equal(read(NULL), FM_OK);
    memcpy(changed, whole, bytes);
    for (size_t bit = 0; bit < 8 * bytes; bit += tries_all ? 1 : N_SHARE) {
        fm_error error = {.message = ""};
        changed[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(fm_file_write_unsynced(path, changed, bytes, NULL), FM_OK);
        changed[bit / 8] = whole[bit / 8];
        if (read(&error)) {
            assert_true(error.message[0] != '\0');
            n_refused++;
        } else {
            n_right++;
        }
    }
    print_message("%s: %zu bytes, %zu flips refused, %zu right\n", kind, bytes, n_refused, n_right);
    assert_true(n_refused > n_right);
}

/* -- files of weights */

static const float numbers[N_VALUE] = {0, 1, 2, 3, 4, 5, 6, 7};
static const char *const names[] = {"layer.bias", "layer.weight"};
static const char *settings; /* that the file must have; NULL: none */

static fm_status read_arrays(const fm_weights_file *file, fm_error *reterr) {
    fm_status status = fm_weights_file_check(file, reterr);
    for (size_t i = 0; i < 2 && !status; i++) {
        const fm_weights_array *array = fm_weights_file_find(file, names[i]);
        float found[N_VALUE];
        if (!array || !array->is_float || array->count != (i ? 6 : 2)) {
            return fm_fail(reterr, FM_ERR_DATA, "%s is missing", names[i]);
        }
        if (array->rank != 2 || array->shape[1] != (i ? 3 : 1)) {
            return fm_fail(reterr, FM_ERR_DATA, "%s has another shape", names[i]);
        }
        status = fm_weights_file_read(file, array, found, reterr);
        if (status) return status;
        assert_memory_equal(found, numbers + (i ? 2 : 0), array->count * sizeof *found);
    }
    if (!status && settings) assert_string_equal(fm_weights_file_settings(file), settings);
    return status;
}

static fm_status read_weights(fm_error *reterr) {
    fm_weights_file *file;
    fm_status status = fm_weights_file_open(path, &file, reterr);
    if (status) return status;
    status = read_arrays(file, reterr);
    fm_weights_file_close(file);
    return status;
}

static void write_weights(fm_weights_format format) {
    const fm_weights_out array[] = {{names[0], 2, {2, 1}, numbers},
                                    {names[1], 2, {2, 3}, numbers + 2}};
    assert_int_equal(fm_weights_file_write(path, format, array, 2, settings, NULL), FM_OK);
}

static void safetensors_are_refused_or_right(void **state) {
    (void)state;
    settings = "[model]\nn_block = 1\n";
    write_weights(FM_WEIGHTS_SAFETENSORS);
    flip_bits("safetensors", read_weights);
    settings = NULL;
    write_weights(FM_WEIGHTS_SAFETENSORS);
    flip_bits("safetensors without settings", read_weights);
}

static void npz_are_refused_or_right(void **state) {
    (void)state;
    settings = NULL;
    write_weights(FM_WEIGHTS_NPZ);
    flip_bits("npz", read_weights);
}

/* {"layer": {"bias": rows 0 and 1 of storage 0, "weight": storage 1}} */
static void files_of_pytorch_are_refused_or_right(void **state) {
    (void)state;
    static fm_test_torch pickle, archive;
    static const uint32_t bias[2] = {2, 1}, weight[2] = {2, 3}, strides[2][2] = {{1, 1}, {3, 1}};
    settings = NULL;
    fm_test_torch_begin(&pickle);
    fm_test_torch_code(&pickle, "\x80\x02}(");
    fm_test_torch_text(&pickle, names[0]);
    fm_test_torch_tensor(&pickle, "FloatStorage", "0", 2, 0, bias, strides[0]);
    fm_test_torch_text(&pickle, names[1]);
    fm_test_torch_tensor(&pickle, "FloatStorage", "1", 6, 0, weight, strides[1]);
    fm_test_torch_code(&pickle, "u.");
    fm_test_torch_begin(&archive);
    fm_test_torch_member(&archive, "x/data.pkl", pickle.bytes, (uint32_t)pickle.out.at, 0);
    fm_test_torch_member(&archive, "x/data/0", numbers, 2 * sizeof *numbers, 0);
    fm_test_torch_member(&archive, "x/data/1", numbers + 2, 6 * sizeof *numbers, 0);
    fm_test_torch_end(&archive);
    assert_int_equal(fm_file_write_unsynced(path, archive.bytes, archive.out.at, NULL), FM_OK);
    flip_bits("PyTorch", read_weights);
}

/* -- checkpoints */

static fm_params params, loaded;
static fm_arena arena;
static const fm_checkpoint_state saved = {.step = 12,
                                          .samples = 24,
                                          .seed = 11,
                                          .token = "0 4 -",
                                          .config = "[model]\nn = 1\n",
                                          .snapshot = "5a2f",
                                          .identity = "dtype = float32\n",
                                          .history = "step 4: dp: 1 -> 2\n",
                                          .skipped = "3 bad\n"};

static void make_params(fm_params *made) {
    const fm_param weight = {.name = "layer.weight", .rank = 2, .shape = {2, 3}};
    assert_int_equal(fm_params_init(made, 4, &arena, NULL), FM_OK);
    fm_params_add_block(made);
    fm_params_add(made, &weight);
    assert_int_equal(fm_params_allocate(made, fm_kernels_cpu(FM_ELEMENT_F32), NULL), FM_OK);
    float *sets[] = {made->master, made->moment1, made->moment2, made->ema};
    for (int set = 0; set < 4; set++) {
        for (int i = 0; i < 6; i++)
            sets[set][i] = (float)(10 * set + i);
    }
}

static void assert_same_text(const char *found, const char *wanted) {
    assert_non_null(found);
    assert_string_equal(found, wanted);
}

static fm_status read_checkpoint(fm_error *reterr) {
    const size_t mark = fm_arena_mark(&arena), size = 6 * sizeof(float);
    fm_checkpoint_state found;
    fm_status status = fm_checkpoint_peek(path, &arena, &found, reterr);
    if (!status) status = fm_checkpoint_load(path, &loaded, &found, reterr);
    if (!status) {
        assert_int_equal(found.step, saved.step);
        assert_int_equal(found.samples, saved.samples);
        assert_int_equal(found.seed, saved.seed);
        assert_int_equal(found.n_pending, 0);
        assert_same_text(found.token, saved.token);
        assert_same_text(found.config, saved.config);
        assert_same_text(found.snapshot, saved.snapshot);
        assert_same_text(found.identity, saved.identity);
        assert_same_text(found.history, saved.history);
        assert_same_text(found.skipped, saved.skipped);
        assert_memory_equal(loaded.master, params.master, size);
        assert_memory_equal(loaded.moment1, params.moment1, size);
        assert_memory_equal(loaded.moment2, params.moment2, size);
        assert_memory_equal(loaded.ema, params.ema, size);
    }
    fm_arena_rewind(&arena, mark);
    return status;
}

static void checkpoints_are_refused_or_right(void **state) {
    (void)state;
    assert_int_equal(fm_arena_init(&arena, 1 << 24, NULL), FM_OK);
    make_params(&params);
    make_params(&loaded);
    assert_int_equal(fm_checkpoint_save(path, &params, &saved, NULL), FM_OK);
    flip_bits("checkpoint", read_checkpoint);
    fm_params_release(&params);
    fm_params_release(&loaded);
    fm_arena_fini(&arena);
}

int main(int argc, char **argv) {
    tries_all = argc > 1 && strcmp(argv[1], "--all") == 0;
    /* In memory if possible: thousands of files would wait for the disk. */
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(safetensors_are_refused_or_right, set_up, tear_down),
        cmocka_unit_test_setup_teardown(npz_are_refused_or_right, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_of_pytorch_are_refused_or_right, set_up, tear_down),
        cmocka_unit_test_setup_teardown(checkpoints_are_refused_or_right, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
