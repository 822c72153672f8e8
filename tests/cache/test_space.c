/* test_space.c: the estimate of a build's room against what builds write; a full disk; disks on
 * which no cache is built. The statfs and statvfs below replace those of the C library. */
#include "tests/cache/complexes_case.h"

#include "cache/build/build_sample.h"
#include "cache/build/space.h"
#include "cache/store/shard.h"

#include <dlfcn.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

/* What the replaced functions report; 0 = the truth. */
static struct {
    uint32_t magic;
    uint64_t free_bytes;
} said;

int statfs(const char *path, struct statfs *info) {
    int (*real)(const char *, struct statfs *);
    *(void **)&real = dlsym(RTLD_NEXT, "statfs");
    int code = real(path, info);
    if (!code && said.magic) info->f_type = (__typeof__(info->f_type))said.magic;
    return code;
}

int statvfs(const char *path, struct statvfs *info) {
    int (*real)(const char *, struct statvfs *);
    *(void **)&real = dlsym(RTLD_NEXT, "statvfs");
    int code = real(path, info);
    if (!code && said.free_bytes) {
        info->f_frsize = 1;
        info->f_bavail = said.free_bytes;
    }
    return code;
}

static fm_space estimate(cache_case *test, const char *data, bool single_sequence) {
    fm_source source;
    fm_space space;
    assert_int_equal(fm_source_scan(&(fm_source_options){.dataset = data}, 1, &test->arena, &source,
                                    &test->error),
                     FM_OK);
    assert_int_equal(fm_space_estimate(&source,
                                       &(fm_space_options){.cache = test->cache,
                                                           .single_sequence = single_sequence},
                                       &test->arena, &space, &test->error),
                     FM_OK);
    return space;
}

static uint64_t shard_bytes(cache_case *test) {
    fm_store *store;
    assert_int_equal(fm_store_open(test->cache, &store, &test->error), FM_OK);
    uint64_t bytes = fm_store_get_info(store)->stored_bytes;
    fm_store_close(store);
    return bytes;
}

static void test_estimate(void **state) {
    (void)state;
    cache_case test;
    char packed[200];
    setup_case(&test, 12);
    const fm_space before = estimate(&test, test.data, false);
    assert_int_equal(before.n_chain, 12);
    assert_int_equal(before.n_new, 12);
    assert_true(before.input_bytes > 0);
    (void)build(&test);
    /* At least enough, and less than ten times as much, even for small datasets. */
    uint64_t written = shard_bytes(&test);
    assert_true(before.need_bytes >= written && before.need_bytes < 10 * written);
    /* Nothing is left to do; two more chains are counted alone. */
    const fm_space after = estimate(&test, test.data, false);
    assert_int_equal(after.n_new, 0);
    assert_int_equal(after.need_bytes, 0);
    assert_int_equal(run_shell("cd %s/alignments && first=$(ls | head -1) && "
                               "cp -r $first ${first%%_*}_Z9 && mkdir ${first%%_*}_Z8",
                               test.data),
                     0);
    const fm_space grown = estimate(&test, test.data, false);
    assert_int_equal(grown.n_new, 2);
    assert_true(grown.need_bytes > 0 && grown.need_bytes < before.need_bytes);
    /* The same set compressed: less on disk, about as much to write. */
    static const char *const programs[] = {"gzip", "xz", "zstd -19 -q --rm"};
    snprintf(packed, sizeof packed, "%s/packed", test.folder);
    assert_int_equal(run_shell("rm -r %s/alignments/*_Z* %s", test.data, test.cache), 0);
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        assert_int_equal(run_shell("rm -rf %s && cp -r %s %s && find %s -type f -exec %s {} +",
                                   packed, test.data, packed, packed, programs[i]),
                         0);
        const fm_space less = estimate(&test, packed, false);
        assert_true(less.input_bytes < before.input_bytes);
        assert_true(less.need_bytes >= written && less.need_bytes < 10 * written);
    }
    /* Structures without alignments count with --single-sequence. */
    assert_int_equal(run_shell("rm -r %s/alignments", packed), 0);
    assert_int_equal(estimate(&test, packed, false).n_new, 0);
    assert_true(estimate(&test, packed, true).n_new > 0);
    teardown_case(&test);
}

/* A sample of the chains represents all: the estimate for 500 is near the sum of each. */
static void test_sample(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 6);
    const fm_space few = estimate(&test, test.data, false);
    assert_int_equal(run_shell("cd %s && set -- alignments/* && for i in $(seq 100); do "
                               "for a; do ln -s ${a##*/} ${a%%_*}_X$i; done; done && "
                               "test $(ls alignments | wc -l) = 606",
                               test.data),
                     0);
    const fm_space many = estimate(&test, test.data, false);
    assert_int_equal(many.n_new, 606);
    /* More chains share the files of a structure now, so only the alignments grow. */
    double ratio = (double)many.need_bytes / (double)few.need_bytes;
    assert_true(ratio > 60 && ratio < 110);
    teardown_case(&test);
}

static void test_no_room(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 4);
    said.free_bytes = 10000;
    const fm_space space = estimate(&test, test.data, false);
    said.free_bytes = 0;
    assert_int_equal(space.free_bytes, 10000);
    assert_int_equal(fm_space_check(&space, test.cache, &test.error), FM_ERR_LIMIT);
    assert_non_null(strstr(test.error.message, "--no-space-check"));
    assert_non_null(strstr(test.error.message, " MB here, and 0.0 MB are free"));
    assert_string_equal(test.error.source, test.cache);
    fm_space large = {.n_new = 3, .need_bytes = 96000000000, .free_bytes = 40200000000};
    assert_int_equal(fm_space_check(&large, test.cache, &test.error), FM_ERR_LIMIT);
    assert_non_null(strstr(test.error.message, "about 96.0 GB here, and 40.2 GB are free"));
    const fm_space real = estimate(&test, test.data, false);
    assert_int_equal(fm_space_check(&real, test.cache, &test.error), FM_OK);
    teardown_case(&test);
}

/* Network file systems are refused by name, by the estimate and by the build itself. */
static void test_network(void **state) {
    (void)state;
    static const struct {
        uint32_t magic;
        const char *name;
    } cases[] = {{0x6969, "NFS"},        {0x517b, "SMB"},           {0xff534d42, "CIFS"},
                 {0x00c36400, "Ceph"},   {0x0bd00bd0, "Lustre"},    {0x47504653, "GPFS"},
                 {0x19830326, "BeeGFS"}, {0xef53 /* ext4 */, NULL}, {0x01021994 /* tmpfs */, NULL}};
    cache_case test;
    setup_case(&test, 3);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_source source;
        fm_space space;
        fm_build_report report;
        char named[64];
        said.magic = 0;
        assert_int_equal(run_shell("rm -rf %s", test.cache), 0);
        assert_int_equal(fm_source_scan(&(fm_source_options){.dataset = test.data}, 1, &test.arena,
                                        &source, &test.error),
                         FM_OK);
        said.magic = cases[i].magic;
        fm_status status = fm_space_estimate(&source, &(fm_space_options){.cache = test.cache},
                                             &test.arena, &space, &test.error);
        fm_status built = build_with(&test, test.data, test.cache, (fm_build_options){0}, &report);
        said.magic = 0;
        if (!cases[i].name) {
            assert_int_equal(status, FM_OK);
            assert_int_equal(built, FM_OK);
            continue;
        }
        assert_int_equal(status, FM_ERR_UNSUPPORTED);
        assert_int_equal(built, FM_ERR_UNSUPPORTED);
        snprintf(named, sizeof named, "the folder lies on %s;", cases[i].name);
        assert_non_null(strstr(test.error.message, named));
        assert_int_equal(run_shell("test ! -e %s/CURRENT", test.cache), 0);
    }
    teardown_case(&test);
}

/* A sample of complexes is measured, and tells better than the sizes of files what they take. */
static void test_complexes(void **state) {
    (void)state;
    complexes_case test;
    cache_case *base = &test.base;
    fm_source source;
    fm_space space;
    fm_build_sample sample;
    fm_build_report report;
    set_up(&test);
    write_entries(&test, 60);
    assert_int_equal(fm_source_scan(&(fm_source_options){.dataset = base->data}, 1, &base->arena,
                                    &source, &base->error),
                     FM_OK);
    const fm_space_options options = {.cache = base->cache, .complexes = true};
    fm_build_options building = {.cache = base->cache, .n_job = 2, .complexes = true};
    assert_int_equal(fm_space_estimate(&source, &options, &base->arena, &space, &base->error),
                     FM_OK);
    assert_int_equal(space.n_complex, 26);
    assert_int_equal(space.n_new_complex, 26);
    assert_int_equal(space.n_new, 2); /* a protein's chain, and one of RNA that is of its complex */
    assert_true(space.complex_input_bytes > 0);
    /* Neither the options nor the cache have components. */
    assert_int_equal(fm_build_measure(&source, &building, 60, &base->arena, &sample, &base->error),
                     FM_ERR_USAGE);
    assert_non_null(strstr(base->error.message, "complexes need the chemical components"));
    building.components = &test.components;
    assert_int_equal(fm_build_measure(&source, &building, 60, &base->arena, &sample, &base->error),
                     FM_OK);
    assert_int_equal(run_shell("test ! -e %s", base->cache), 0);
    assert_int_equal(sample.n_structure, 26);
    assert_int_equal(sample.n_complex, 26);
    assert_int_equal(sample.n_refused, 0);
    assert_int_equal(sample.n_token, 2 * 24 + 24 * 2 * 66); /* two copies of glycines, 5 and 1 */
    assert_true(sample.seconds > 0);
    fm_build_sample_apply(&sample, &space);
    assert_true(fm_build_sample_seconds(&sample, &space, 2) > 0);
    assert_int_equal(build_with(base, base->data, base->cache, building, &report), FM_OK);
    assert_int_equal(report.n_complex, 26);
    uint64_t written = shard_bytes(base);
    assert_true(space.need_bytes >= written && space.need_bytes < 3 * written);
    /* All is there; of one that is refused the sample says so. The limit of time leaves one. */
    assert_int_equal(fm_space_estimate(&source, &options, &base->arena, &space, &base->error),
                     FM_OK);
    assert_int_equal(space.n_new_complex, 0);
    assert_int_equal(space.complex_need_bytes, 0);
    assert_int_equal(run_shell("cd %s/mmcifs && head -c 3000 1abc.cif > 9cut.cif && "
                               "cp 9cut.cif 9zzz.cif",
                               base->data),
                     0);
    assert_int_equal(fm_source_scan(&(fm_source_options){.dataset = base->data}, 1, &base->arena,
                                    &source, &base->error),
                     FM_OK);
    building.components = NULL; /* those of the cache */
    assert_int_equal(fm_build_measure(&source, &building, 0, &base->arena, &sample, &base->error),
                     FM_OK);
    assert_int_equal(sample.n_structure, 1);
    assert_int_equal(sample.n_refused, 1);
    assert_int_equal(sample.component_bytes, 0);
    tear_down(&test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_estimate),  cmocka_unit_test(test_sample),
        cmocka_unit_test(test_no_room),   cmocka_unit_test(test_network),
        cmocka_unit_test(test_complexes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
