/* bench_set.h: the code that the benchmarks of the store share: checks of what they call, and a
 * synthetic set. The set resembles OpenProteinSet: chains of 300 residues, alignments of 10,000
 * rows after de-duplication, template hits. Only one source file of a program may include it. */
#ifndef FM_TESTS_BENCH_SET_H
#define FM_TESTS_BENCH_SET_H

#include "featurizer/synth/synth.h"
#include "proto/base/file.h"
#include "tests/bench/bench_time.h"
#include "tests/testing/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SET_LENGTH = 300,
    SET_DEPTH = 10110, /* homologues per family, of which 10,000 different rows remain */
};

static inline void check(fm_status status, const fm_error *error) {
    if (!status) return;
    char text[1024];
    fm_error_format(error, text, sizeof text);
    fprintf(stderr, "bench: %s\n", text);
    exit(1);
}

/* A folder on a memory-backed disk if there is one; $TMPDIR overrides it. */
static inline void make_memory_folder(char *out, size_t out_bytes) {
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    fm_test_make_folder(out, out_bytes);
}

static inline void print_load(void) {
    double load[1] = {0};
    if (getloadavg(load, 1) == 1) {
        printf("load of the machine: %.1f on %ld cores\n", load[0], sysconf(_SC_NPROCESSORS_ONLN));
    }
}

static inline void write_plain(const char *path, fm_bytes content) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(content.data, 1, content.size, file) != content.size || fclose(file)) {
        perror(path);
        exit(1);
    }
}

static inline void write_chain(const char *folder, const fm_synth_options *options,
                               const fm_synth_entry *entry, uint32_t slot, fm_arena *arena) {
    char path[512];
    fm_error error;
    fm_synth_file files[FM_SYNTH_MAX_FILES];
    uint32_t n_file;
    int at = snprintf(path, sizeof path, "%s/alignments/%s_%c", folder, entry->id,
                      entry->auth_chain[slot]);
    fm_arena_reset(arena);
    check(fm_dir_make(path, &error), &error);
    check(fm_synth_alignments(arena, options, entry, slot, files, &n_file, &error), &error);
    for (uint32_t i = 0; i < n_file; i++) {
        snprintf(path + at, sizeof path - (size_t)at, "/%s", files[i].name);
        write_plain(path, files[i].content);
    }
}

/* Writes at least n_chain chains of the set below `folder`. */
static inline void write_set(const char *folder, uint32_t n_chain, fm_arena *arena) {
    const fm_synth_options options = {.seed = 1,
                                      .min_length = SET_LENGTH,
                                      .max_length = SET_LENGTH,
                                      .max_depth = SET_DEPTH,
                                      .min_depth = SET_DEPTH};
    fm_error error;
    fm_bytes text;
    char path[512];
    snprintf(path, sizeof path, "%s/mmcifs", folder);
    check(fm_dir_make(path, &error), &error);
    for (uint32_t index = 0, n = 0; n < n_chain; index++) {
        fm_synth_entry entry = fm_synth_entry_of(&options, index);
        fm_arena_reset(arena);
        check(fm_synth_mmcif(arena, &options, &entry, &text, &error), &error);
        snprintf(path, sizeof path, "%s/mmcifs/%s.cif", folder, entry.id);
        write_plain(path, text);
        for (uint32_t slot = 0; slot < entry.n_chain; slot++, n++)
            write_chain(folder, &options, &entry, slot, arena);
    }
}

#endif
