/* test_memory.c: the memory of a build. The largest alignments fit into 2 GiB per worker; a worker
 * with less refuses the chain and says so. The test writes the alignment: 40,000 rows of 2,000
 * residues, or 40,000 / $FM_TEST_SHARE. */
#include "tests/cache/cache_case.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_ROW = 40000, N_RES = 2000, SMALL_MIB = 64 };

static uint32_t n_row(void) {
    const char *share = getenv("FM_TEST_SHARE");
    return N_ROW / (share ? (uint32_t)strtoul(share, NULL, 10) : 1);
}

/* Rows with random letters at every other place, some with insertions: they compress worse than
 * real ones. */
static void write_rows(FILE *file, const char *query, uint32_t n) {
    static const char letters[] = "ACDEFGHIKLMNPQRSTVWY------------";
    char row[N_RES + 8];
    uint64_t draws = 88172645463325252u; /* xorshift64 */
    for (uint32_t r = 0; r < n; r++) {
        size_t at = 0;
        for (uint32_t i = 0; i < N_RES; i++) {
            draws ^= draws << 13;
            draws ^= draws >> 7;
            draws ^= draws << 17;
            row[at++] = draws & 1 ? query[i] : letters[draws >> 1 & 31];
        }
        memcpy(row + at, r % 4 ? "\n" : "acd\n", r % 4 ? 2 : 5);
        fprintf(file, ">row%u\n%s", r, row);
    }
}

/* A dataset of one chain of 2,000 residues; its alignment is n rows. */
static void write_dataset(cache_case *test, uint32_t n) {
    char path[400], query[N_RES + 2] = "", line[64];
    assert_int_equal(
        run_shell("rm -r %s && \"$FM_BIN\"/foldmill synth --chains 1 --seed 3 --min-length "
                  "%d --max-length %d --depth 20 --quiet -o %s >/dev/null && "
                  "cd %s/alignments/* && rm bfd* mgnify* *.hhr",
                  test->data, N_RES, N_RES, test->data, test->data),
        0);
    snprintf(path, sizeof path, "%s/alignments", test->data);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    struct dirent *entry = readdir(dir);
    while (entry && entry->d_name[0] == '.')
        entry = readdir(dir);
    assert_non_null(entry);
    snprintf(path, sizeof path, "%s/alignments/%.100s/uniref90_hits.a3m", test->data,
             entry->d_name);
    closedir(dir);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_non_null(fgets(query, sizeof query, file));
    assert_int_equal(strcspn(query, "\n"), N_RES);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    write_rows(file, query, n);
    assert_int_equal(fclose(file), 0);
}

/* Builds in a separate process; returns its peak resident bytes. */
static uint64_t build_apart(cache_case *test) {
    int status;
    struct rusage usage;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fm_build_report report;
        const fm_build_options options = {.n_job = 1, .worker_bytes = (uint64_t)2 << 30};
        fm_status built = build_with(test, test->data, test->cache, options, &report);
        /* The report has the system's count. */
        _exit(built || report.n_built != 1 || report.peak_bytes < (uint64_t)n_row() * N_RES);
    }
    assert_int_equal(wait4(child, &status, 0, &usage), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    return (uint64_t)usage.ru_maxrss << 10;
}

static void test_largest_alignment(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 1);
    write_dataset(&test, n_row());
    uint64_t peak = build_apart(&test);
    print_message("an alignment of %u x %d builds with %llu MiB resident\n", n_row(), N_RES,
                  (unsigned long long)(peak >> 20));
    assert_true(peak < (uint64_t)2 << 30);
    fm_store *store;
    fm_record record;
    assert_int_equal(fm_store_open(test.cache, &store, &test.error), FM_OK);
    assert_int_equal(fm_store_load(store, 0, &test.arena, &record, &test.error), FM_OK);
    assert_true(record.msa->n_seq >= n_row());
    assert_int_equal(record.msa->n_res, N_RES);
    fm_store_close(store);
    teardown_case(&test);
}

/* Seven thousand rows and their text do not fit; small chains do. */
static void test_bounded(void **state) {
    (void)state;
    cache_case test;
    fm_build_report report;
    setup_case(&test, 1);
    write_dataset(&test, 7000);
    assert_int_equal(
        run_shell(
            "cd %s && \"$FM_BIN\"/foldmill synth --chains 4 --seed 5 --max-length 60 --depth 60 "
            "--quiet -o more >/dev/null && id=$(basename data/mmcifs/* .cif) && "
            "rm -r more/mmcifs/$id.cif more/alignments/${id}_* && "
            "cp -r more/mmcifs more/alignments data",
            test.folder),
        0);
    const fm_build_options options = {.n_job = 1, .worker_bytes = (uint64_t)SMALL_MIB << 20};
    assert_int_equal(build_with(&test, test.data, test.cache, options, &report), FM_OK);
    assert_int_equal(report.n_refused, 1);
    assert_true(report.n_built >= 2);
    assert_int_equal(report.refused[FM_ERR_LIMIT], 1);
    assert_non_null(strstr(report.refusal[0], "needs more than the 48 MiB of memory"));
    teardown_case(&test);
}

int main(void) {
    /* In memory if possible: 100 MB would wait for the disk. */
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_largest_alignment),
        cmocka_unit_test(test_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
