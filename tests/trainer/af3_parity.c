/* af3_parity.c: compares AlphaFold 3's modules with runs of the reference.
 *
 *     af3_parity [--device cpu|cuda] --unit FILE.npz...
 *
 * Each FILE is a run of one module, which its name tells; the module is recorded in float32 and, on
 * the CPU, in double precision. The program prints one line per group: the worst relative error
 * ||a - b|| / ||b|| of its arrays, the name of that array, and the gate. The last line is
 * "parity: ok" or "parity: FAIL". A path that does not exist as given is looked for below
 * $FM_REFERENCE_DATA. Without either, or without that device, the program exits with 77. */
#include "tests/trainer/af3_unit.h"

#include "proto/base/file.h"
#include "tests/testing/testing.h"
#include "trainer/app/choose_device.h"

#include <assert.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const size_t FILE_BYTES = (size_t)1 << 30;

typedef struct settings {
    const char *device;
    bool units;
} settings;

static const af3_unit_entry *find_unit(const char *path) {
    static const af3_unit_entry *const registries[] = {AF3_TRUNK_UNITS};
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    size_t n = strcspn(name, ".");
    for (size_t r = 0; r < sizeof registries / sizeof registries[0]; r++) {
        for (const af3_unit_entry *e = registries[r]; e->name; e++) {
            if (strlen(e->name) == n && !strncmp(e->name, name, n)) return e;
        }
    }
    return NULL;
}

/* Finds the file as given or below the reference data. */
static bool locate(const char *given, char *path, size_t bytes) {
    snprintf(path, bytes, "%s", given);
    if (access(path, R_OK) == 0) return true;
    if (!fm_test_reference()) return false;
    fm_test_reference_path(path, bytes, given);
    return access(path, R_OK) == 0;
}

static fm_status open_npz(fm_arena *arena, const char *path, fm_npz *ret_npz, fm_error *error) {
    fm_bytes content;
    fm_status status = fm_arena_init(arena, 4 * FILE_BYTES, error);
    if (!status) status = fm_file_read(arena, path, FILE_BYTES, &content, error);
    return status ? status : fm_npz_parse(arena, content, ret_npz, error);
}

/* Returns 0, 1 for a difference, or the exit status of a file that is missing. */
static int run_unit(const settings *set, const char *given) {
    char path[1024];
    const af3_unit_entry *entry = find_unit(given);
    if (!entry) {
        fprintf(stderr, "af3_parity: there is no unit for %s\n", given);
        return 1;
    }
    if (!locate(given, path, sizeof path)) return FM_TEST_SKIPPED;
    fm_arena arena = {0};
    fm_npz npz;
    fm_error error = {0};
    const fm_kernels *kernels = NULL;
    fm_status status = fm_device_find(set->device, "fp32", &kernels, &error);
    if (!status) status = open_npz(&arena, path, &npz, &error);
    bool good = !status && unit_run(entry, &npz, kernels);
    if (good && !strcmp(set->device, "cpu")) {
        good = unit_run(entry, &npz, fm_kernels_cpu(FM_ELEMENT_F64));
    }
    if (status) fprintf(stderr, "af3_parity: %s: %s\n", path, error.message);
    fm_arena_fini(&arena);
    return status == FM_ERR_UNSUPPORTED ? FM_TEST_SKIPPED : !good;
}

static void usage(void) {
    fprintf(stderr, "usage: af3_parity [--device cpu|cuda] --unit FILE.npz...\n");
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"device", required_argument, NULL, 'd'}, {"unit", no_argument, NULL, 'u'}, {0}};
    settings set = {.device = "cpu"};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'd': set.device = optarg; break;
        case 'u': set.units = true; break;
        default: usage(); return 2;
        }
    }
    if (!set.units || optind == argc) {
        usage();
        return 2;
    }
    int result = 0;
    for (int i = optind; i < argc; i++) {
        int one = run_unit(&set, argv[i]);
        if (one == FM_TEST_SKIPPED) return FM_TEST_SKIPPED;
        result |= one;
    }
    printf("parity: %s\n", result ? "FAIL" : "ok");
    return result;
}
