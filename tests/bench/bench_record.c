/* bench_record.c: measures encoding and decoding of msa and structure parts, beside copying their
 * bytes.
 *
 *     bench_record [--rounds N]
 *
 * The msa has 10,000 rows of 382 residues with deletions in 1 % of its cells; its letters are
 * random, so nothing is easier than in real data. The structure has 382 residues with 8 atoms each.
 * One core, warm memory, medians. The bound is memcpy of the decoded value: one byte per cell of
 * the msa and two for its deletion count. */
#include "proto/base/rng.h"
#include "proto/record.h"
#include "tests/bench/bench_time.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SEQ = 10000, N_RES = 382, N_CELL = N_SEQ * N_RES };

typedef struct bench_state {
    fm_arena arena, work;
    int rounds;
    double seconds[ROUNDS_MAX];
} bench_state;

static uint32_t draw(uint32_t n, uint32_t below) {
    fm_philox_counter counter = fm_philox(5, (fm_philox_counter){{n, 0, 0, 0}});
    return fm_uniform_below((uint64_t)counter.word[0] << 32 | counter.word[1], below);
}

static void *take(fm_arena *arena, size_t count, size_t size) {
    void *memory = fm_arena_calloc(arena, count, size);
    assert(memory);
    return memory;
}

static fm_part_msa make_msa(fm_arena *arena) {
    uint8_t *msa = take(arena, N_CELL, 1);
    uint16_t *deletion = take(arena, N_CELL, 2);
    uint32_t *profile = take(arena, (size_t)N_RES * FM_N_HHBLITS, 4);
    uint32_t *species_end = take(arena, N_SEQ, 4);
    fm_msa_source *source = take(arena, 1, sizeof *source);
    for (uint32_t cell = 0; cell < N_CELL; cell++) {
        msa[cell] = (uint8_t)draw(cell, FM_N_HHBLITS);
        if (draw(cell ^ 0x80000000u, 100) == 0) deletion[cell] = (uint16_t)(1 + draw(cell, 30));
        profile[cell % N_RES * FM_N_HHBLITS + msa[cell]]++;
    }
    *source = (fm_msa_source){"uniref90_hits.sto", N_SEQ};
    return (fm_part_msa){N_SEQ, N_RES, msa, deletion, profile, "", species_end, 1, source};
}

static fm_part_structure make_structure(fm_arena *arena) {
    float *positions = take(arena, (size_t)N_RES * FM_N_ATOM37 * 3, sizeof *positions);
    uint8_t *mask = take(arena, (size_t)N_RES * FM_N_ATOM37, 1);
    for (uint32_t i = 0; i < N_RES * 8; i++) {
        uint32_t cell = i / 8 * FM_N_ATOM37 + i % 8;
        mask[cell] = 1;
        for (uint32_t axis = 0; axis < 3; axis++)
            positions[3 * cell + axis] = (float)(draw(3 * cell + axis, 100000) / 1000.0);
    }
    return (fm_part_structure){N_RES, positions, mask, 1.5f, "2001-02-03", 0, NULL};
}

static double print_median(bench_state *bench, const char *what, double bytes, double bound) {
    double middle = median(bench->seconds, (size_t)bench->rounds);
    printf("%-28s %9.3f ms %9.0f MB/s", what, middle * 1e3, bytes / 1e6 / middle);
    if (bound > 0) printf(" %6.2f of memcpy's time", middle / bound);
    printf("\n");
    return middle;
}

static double measure_copy(bench_state *bench, const void *from, size_t bytes) {
    uint8_t *to = take(&bench->work, bytes, 1);
    for (int i = 0; i < bench->rounds; i++) {
        double begun = now_s();
        memcpy(to, from, bytes);
        __asm__ volatile("" ::"r"(to) : "memory");
        bench->seconds[i] = now_s() - begun;
    }
    fm_arena_reset(&bench->work);
    return print_median(bench, "memcpy of the decoded value", (double)bytes, 0);
}

static void measure_msa(bench_state *bench) {
    const fm_part_msa part = make_msa(&bench->arena);
    fm_bytes bytes;
    fm_part_msa again;
    double dense = 3.0 * N_CELL;
    double bound = measure_copy(bench, part.deletion_matrix, (size_t)2 * N_CELL);
    bound *= 1.5; /* and the rows */
    for (int i = 0; i < bench->rounds; i++) {
        fm_arena_reset(&bench->work);
        double begun = now_s();
        if (fm_part_msa_encode(&part, &bench->work, &bytes, NULL)) abort();
        bench->seconds[i] = now_s() - begun;
    }
    print_median(bench, "msa encode", dense, bound);
    size_t mark = fm_arena_mark(&bench->work);
    for (int i = 0; i < bench->rounds; i++) {
        fm_arena_rewind(&bench->work, mark);
        double begun = now_s();
        if (fm_part_msa_decode(bytes, &bench->work, &again, NULL)) abort();
        bench->seconds[i] = now_s() - begun;
    }
    print_median(bench, "msa decode", dense, bound);
    printf("msa encoded: %.2f bytes a cell\n", (double)bytes.size / N_CELL);
    for (int i = 0; i < bench->rounds; i++) {
        double begun = now_s();
        fm_sha256 hash = fm_sha256_of(bytes.data, bytes.size);
        __asm__ volatile("" ::"r"(&hash) : "memory");
        bench->seconds[i] = now_s() - begun;
    }
    print_median(bench, "msa SHA-256 of its bytes", (double)bytes.size, 0);
    fm_arena_reset(&bench->work);
}

static void measure_structure(bench_state *bench) {
    const fm_part_structure part = make_structure(&bench->arena);
    fm_bytes bytes;
    fm_part_structure again;
    size_t dense = (size_t)N_RES * FM_N_ATOM37 * 13;
    double bound = measure_copy(bench, part.all_atom_positions, dense / 13 * 12) * 13 / 12;
    for (int i = 0; i < bench->rounds; i++) {
        fm_arena_reset(&bench->work);
        double begun = now_s();
        if (fm_part_structure_encode(&part, &bench->work, &bytes, NULL)) abort();
        bench->seconds[i] = now_s() - begun;
    }
    print_median(bench, "structure encode", (double)dense, bound);
    size_t mark = fm_arena_mark(&bench->work);
    for (int i = 0; i < bench->rounds; i++) {
        fm_arena_rewind(&bench->work, mark);
        double begun = now_s();
        if (fm_part_structure_decode(bytes, &bench->work, &again, NULL)) abort();
        bench->seconds[i] = now_s() - begun;
    }
    print_median(bench, "structure decode", (double)dense, bound);
}

int main(int argc, char **argv) {
    bench_state bench = {.rounds = 21};
    if (argc == 3 && strcmp(argv[1], "--rounds") == 0) bench.rounds = atoi(argv[2]);
    if (bench.rounds < 1 || bench.rounds > ROUNDS_MAX) bench.rounds = 21;
    if (fm_arena_init(&bench.arena, (size_t)1 << 30, NULL)) return 1;
    if (fm_arena_init(&bench.work, (size_t)1 << 30, NULL)) return 1;
    measure_msa(&bench);
    measure_structure(&bench);
    fm_arena_fini(&bench.arena);
    fm_arena_fini(&bench.work);
    return 0;
}
