/* replay_main.c: runs a fuzz target over stored inputs without libFuzzer, so that the normal tests
 * replay every corpus.
 *
 *     fuzz_NAME FOLDER|FILE...
 *
 * Folders are read one level deep, in name order; names that start with a dot are skipped. It
 * prints how many inputs were run and exits with 77 (skipped) when there were none. A finding is a
 * crash. */
#include "proto/base/file.h"
#include "proto/limits.h"
#include "tests/testing/testing.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns 1 when the file was run, -1 when it cannot be read. */
static int replay_file(const char *path) {
    fm_arena arena;
    fm_bytes content;
    fm_error error;
    fm_status status = fm_arena_init(&arena, FM_LIMIT_INPUT_BYTES, &error);
    if (!status) status = fm_file_read(&arena, path, FM_LIMIT_INPUT_BYTES - 64, &content, &error);
    /* The target gets a block of the exact size, so that a sanitizer sees reads past it. */
    uint8_t *copy = status ? NULL : malloc(content.size ? content.size : 1);
    if (!copy) {
        fprintf(stderr, "%s: %s\n", path, status ? error.message : "no memory");
        if (!status) fm_arena_fini(&arena);
        return -1;
    }
    memcpy(copy, content.data, content.size);
    size_t size = content.size;
    fm_arena_fini(&arena);
    fprintf(stderr, "replay %s (%zu bytes)\n", path, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    return 1;
}

static int is_input(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

/* Returns how many were run, or -1 when a file cannot be read. */
static int replay_folder(const char *folder) {
    struct dirent **names;
    int n = scandir(folder, &names, is_input, alphasort), run = 0;
    if (n < 0) return 0; /* a target without a corpus */
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        int length = snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        struct stat info;
        bool regular = length > 0 && (size_t)length < sizeof path && stat(path, &info) == 0 &&
                       S_ISREG(info.st_mode);
        if (run >= 0 && regular) run = replay_file(path) > 0 ? run + 1 : -1;
        free(names[i]);
    }
    free(names);
    return run;
}

int main(int argc, char **argv) {
    int run = 0;
    for (int i = 1; i < argc; i++) {
        struct stat info;
        bool folder = stat(argv[i], &info) != 0 || S_ISDIR(info.st_mode);
        int here = folder ? replay_folder(argv[i]) : replay_file(argv[i]);
        if (here < 0) return 1;
        run += here;
    }
    printf("%d inputs replayed\n", run);
    return run > 0 ? 0 : FM_TEST_SKIPPED;
}
