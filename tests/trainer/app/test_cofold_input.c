/* test_cofold_input.c: what a prepared sample says of its job: the name of the results' folder and
 * the seeds. Another program may have written it. */
#include "tests/testing/complex_sample.h"
#include "tests/trainer/common/golden.h"
#include "proto/limits.h"
#include "trainer/app/prediction/cofold_input.h"

static char folder[512], path[600];

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/bare.npz", folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

/* An array that is added to the sample. */
typedef struct extra {
    const char *name, *dtype;
    size_t item_bytes;
    uint64_t n;
    const void *data;
} extra;

static void add(fm_test_complex *c, const extra *from) {
    const size_t bytes = from->n * from->item_bytes;
    fm_npy *array = &c->array[c->npz.n_array++];
    void *data = calloc(1, bytes + 1);
    assert_non_null(data);
    if (bytes) memcpy(data, from->data, bytes);
    *array = (fm_npy){.name = from->name,
                      .item_bytes = from->item_bytes,
                      .rank = 1,
                      .shape = {from->n},
                      .count = from->n,
                      .data = data};
    snprintf(array->dtype, sizeof array->dtype, "%s", from->dtype);
}

/* Writes the sample with these arrays, and reads it as an input. */
static fm_status read_with(const extra *array, size_t n, fm_cofold_input *input, fm_error *error) {
    fm_test_complex c;
    fm_test_complex_make(&c, 1);
    for (size_t i = 0; i < n; i++)
        add(&c, &array[i]);
    fm_test_complex_write(&c, path);
    fm_test_complex_free(&c);
    fm_status status = fm_cofold_input_read(path, input, error);
    assert_int_equal(remove(path), 0);
    return status;
}

static void a_job_has_a_name_and_seeds(void **state) {
    (void)state;
    static const uint32_t seeds[] = {7, 4294967295u};
    const extra job[] = {{"job/folder", "|u1", 1, 3, "a_b"},
                         {"job/seeds", "<u4", 4, 2, seeds},
                         {"job/data", "|u1", 1, 2, "{}"}};
    fm_cofold_input input;
    fm_error error = {.message = ""};
    if (read_with(job, 3, &input, &error)) fail_msg("%s", error.message);
    assert_string_equal(input.name, "a_b");
    assert_int_equal(input.n_seed, 2);
    assert_int_equal(input.seeds[1], 4294967295u);
    assert_int_equal(input.data.size, 2);
    assert_memory_equal(input.data.data, "{}", 2);
    fm_cofold_input_release(&input);
}

static void a_bare_sample_has_the_name_of_its_file(void **state) {
    (void)state;
    fm_cofold_input input;
    fm_error error = {.message = ""};
    if (read_with(NULL, 0, &input, &error)) fail_msg("%s", error.message);
    assert_string_equal(input.name, "bare");
    assert_int_equal(input.n_seed, 0);
    assert_false(input.has_names);
    assert_int_equal(input.data.size, 0);
    assert_int_equal(input.layout.n_chain, 3);
    fm_cofold_input_release(&input);
}

/* A name must not lead out of the results, and seeds are bounded. */
static void other_names_and_seeds_are_refused(void **state) {
    (void)state;
    static const uint32_t many[FM_LIMIT_N_JOB_SEED + 1];
    static const char letters[FM_COFOLD_NAME_BYTES + 1];
    static const struct {
        extra array;
        const char *message;
    } cases[] = {
        {{"job/folder", "|u1", 1, 4, "../x"}, "job/folder: found 4 elements of type |u1"},
        {{"job/folder", "|u1", 1, 3, "a/b"}, "expected the name of a folder"},
        {{"job/folder", "|u1", 1, 2, ".a"}, "expected the name of a folder"},
        {{"job/folder", "|u1", 1, 3, "a\0b"}, "expected the name of a folder"},
        {{"job/folder", "|u1", 1, 0, ""}, "job/folder: found 0 elements"},
        {{"job/folder", "|u1", 1, FM_COFOLD_NAME_BYTES, letters}, "job/folder: found 256 elements"},
        {{"job/folder", "<u4", 4, 2, many}, "job/folder: found 2 elements of type <u4"},
        {{"job/data", "<u4", 4, 2, many}, "job/data: found type <u4, expected |u1"},
        {{"job/seeds", "<u4", 4, 0, many}, "job/seeds: found 0 numbers"},
        {{"job/seeds", "|u1", 1, 4, letters}, "job/seeds: found 4 numbers of type |u1 in 1"},
        {{"job/seeds", "<u4", 4, FM_LIMIT_N_JOB_SEED + 1, many},
         "job/seeds: found 10001 numbers of type <u4 in 1 dimensions, expected type <u4 in one, "
         "1 to 10000 numbers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_cofold_input input;
        fm_error error = {.message = ""};
        assert_int_equal(read_with(&cases[i].array, 1, &input, &error), FM_ERR_DATA);
        if (!strstr(error.message, cases[i].message)) fail_msg("case %zu: %s", i, error.message);
        assert_string_equal(error.source, path);
        fm_cofold_input_release(&input);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_has_a_name_and_seeds),
        cmocka_unit_test(a_bare_sample_has_the_name_of_its_file),
        cmocka_unit_test(other_names_and_seeds_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
