/* bench_complex.c: measures crops of real complexes and their features.
 *
 *     bench_complex [--rounds N] [--size TOKENS]
 *
 * Each of the reference's structures is cropped N times in each of the three ways, whole residues
 * only, around chains in turn; a crop's features are computed from it. Processor time of one core,
 * warm memory. The tables of the assemblies are the reference's, so the reading of mmCIF files is
 * not in these times. */
#include "featurizer/complex/crop.h"
#include "featurizer/complex/features.h"
#include "tests/bench/bench_time.h"
#include "tests/featurizer/complex_case.h"

#include <stdio.h>

enum { N_MOST = 1 << 20 };

typedef struct times {
    double *seconds; /* [N_MOST] */
    size_t n;
} times;

static void print_times(const char *what, times *t) {
    if (t->n == 0) return;
    qsort(t->seconds, t->n, sizeof *t->seconds, compare_doubles);
    printf("%-22s %8zu  median %7.3f ms  p99 %7.3f ms  p99.9 %7.3f ms  most %7.3f ms\n", what, t->n,
           t->seconds[t->n / 2] * 1e3, t->seconds[t->n * 99 / 100] * 1e3,
           t->seconds[t->n * 999 / 1000] * 1e3, t->seconds[t->n - 1] * 1e3);
}

static void add(times *t, double seconds) {
    if (t->n < N_MOST) t->seconds[t->n++] = seconds;
}

/* Crops once, and computes the features. Crops that fail are not counted. */
static void measure_crop(complex_case *test, const fm_crop_request *request, uint64_t index,
                         times *crops, times *features) {
    size_t mark = fm_arena_mark(&test->arena);
    fm_sample_draw key = {.seed = 1, .index = index};
    fm_draws draws = fm_draws_philox(&key);
    fm_complex_crop crop;
    fm_complex_features made;
    fm_error error = {0};
    double begun = cpu_s();
    fm_status status =
        fm_complex_crop_make(&test->assembly, request, &draws, &test->arena, &crop, &error);
    if (!status) {
        double between = cpu_s();
        complex_must(fm_complex_features_make(&test->assembly, crop.tokens, crop.n_token, NULL,
                                              &test->arena, &made, &error),
                     &error);
        double end = cpu_s();
        add(crops, between - begun);
        add(features, end - between);
    }
    fm_arena_rewind(&test->arena, mark);
}

static void measure_whole(complex_case *test, int rounds, times *whole) {
    for (int i = 0; i < rounds; i++) {
        size_t mark = fm_arena_mark(&test->arena);
        fm_complex_features made;
        fm_error error = {0};
        double begun = cpu_s();
        complex_must(
            fm_complex_features_make(&test->assembly, NULL, 0, NULL, &test->arena, &made, &error),
            &error);
        add(whole, cpu_s() - begun);
        fm_arena_rewind(&test->arena, mark);
    }
}

static times make_times(void) {
    times t = {.seconds = malloc(N_MOST * sizeof(double))};
    if (!t.seconds) abort();
    return t;
}

int main(int argc, char **argv) {
    int rounds = 20, size = 384;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--rounds") == 0) rounds = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--size") == 0) size = atoi(argv[i + 1]);
    }
    if (rounds < 1 || size < 1) return 2;
    if (!fm_test_reference()) {
        fprintf(stderr, "bench_complex: FM_REFERENCE_DATA is not set\n");
        return FM_TEST_SKIPPED;
    }
    static const char *const names[] = {"contiguous crop", "spatial crop", "interface crop"};
    complex_case test = {0};
    times crops[FM_N_CROP_METHOD], features = make_times(), whole = make_times();
    for (int k = 0; k < FM_N_CROP_METHOD; k++)
        crops[k] = make_times();
    complex_case_init(&test);
    for (uint32_t i = 0; i < N_COMPLEX; i++) {
        complex_case_load(&test, complex_ids[i]);
        const fm_assembly *a = &test.assembly;
        for (int k = 0; k < rounds * FM_N_CROP_METHOD; k++) {
            fm_crop_request request = {.method = (fm_crop_method)(k % FM_N_CROP_METHOD),
                                       .size = (uint32_t)size,
                                       .is_complete = true,
                                       .n_reference = 1};
            request.reference[0] = a->chains[(uint32_t)(k / 3) % a->n_chain].asym_id;
            measure_crop(&test, &request, (uint64_t)k, &crops[request.method], &features);
        }
        measure_whole(&test, rounds, &whole);
    }
    for (int k = 0; k < FM_N_CROP_METHOD; k++)
        print_times(names[k], &crops[k]);
    print_times("features of a crop", &features);
    print_times("features of the whole", &whole);
    for (int k = 0; k < FM_N_CROP_METHOD; k++)
        free(crops[k].seconds);
    free(features.seconds);
    free(whole.seconds);
    fm_arena_fini(&test.arena);
    return 0;
}
