/* test_sample_folder.c: which samples of a folder stay in memory while others are read. */
#include "tests/testing/complex_sample.h"
#include "tests/trainer/common/golden.h"
#include "trainer/app/samples/sample_folder.h"

enum { FILES = 3 };

static char path[512];

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(path, sizeof path);
    for (uint64_t i = 0; i < FILES; i++) {
        char file[600];
        fm_test_complex c;
        fm_test_complex_make(&c, i + 1);
        fm_test_complex_set(fm_test_complex_find(&c, "ref_pos"), 0, (double)i + 10);
        snprintf(file, sizeof file, "%s/%c.npz", path, (char)('a' + i));
        fm_test_complex_write(&c, file);
        fm_test_complex_free(&c);
    }
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_test_remove_tree(path);
    return 0;
}

static void expect(const fm_stored_sample *sample, uint32_t file) {
    assert_true(sample->features.sample.ref_pos[0] == (float)file + 10);
}

/* Reads files in turn. The sample of the call before must still be there after each. */
static uint64_t read_in_turn(fm_sample_folder *folder, const uint32_t *file, int n) {
    const fm_stored_sample *sample, *before = NULL;
    for (int i = 0; i < n; i++, before = sample) {
        fm_error error;
        if (fm_sample_folder_read(folder, file[i], &sample, &error)) fail_msg("%s", error.message);
        expect(sample, file[i]);
        if (before) expect(before, file[i - 1]);
    }
    return folder->n_read;
}

static void the_last_two_samples_stay(void **state) {
    (void)state;
    const uint32_t turns[] = {0, 1, 1, 0, 2, 0, 2, 1, 2, 0};
    const int n = sizeof turns / sizeof turns[0];
    fm_sample_folder folder;
    fm_error error;
    if (fm_sample_folder_open(path, &folder, &error)) fail_msg("%s", error.message);
    assert_true(folder.keeps);
    assert_int_equal(read_in_turn(&folder, turns, n), FILES);
    fm_sample_folder_close(&folder);
    if (fm_sample_folder_open(path, &folder, &error)) fail_msg("%s", error.message);
    folder.keeps = false; /* as if the files were large */
    assert_int_equal(read_in_turn(&folder, turns, n), FILES + 2);
    assert_false(folder.is_read[1]);
    fm_sample_folder_close(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_last_two_samples_stay)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
