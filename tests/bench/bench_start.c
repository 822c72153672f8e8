/* bench_start.c: measures how long a server takes to open a large cache.
 *
 *     bench_start [--chains N] [--rounds N]
 *
 * The cache has an index of N (600,000) chains, as OpenFold's PDB set: three chains share sequence,
 * alignment and hits, each has a structure of its own. The shard that the index names has the right
 * size and no content, since opening reads none of it. The rows are the steps of a start: reading
 * and checking the generation, the snapshot "all", and the table of weights that the first stream
 * needs. Figures are medians of processor time with a warm page cache. */
#include "cache/snapshot/snapshot_encode.h"
#include "cache/snapshot/snapshot.h"
#include "featurizer/sample/plan.h"
#include "proto/base/directory.h"
#include "proto/base/log.h"
#include "server/library.h"
#include "tests/bench/bench_set.h"

enum { SHARED_BY = 3, SHARD_BYTES = 1 << 20, BLOB_BYTES = 4096 };
#define ARENA_BYTES ((size_t)24 << 30)

typedef struct bench_state {
    char folder[256];
    uint32_t n_chain;
    fm_arena arena;
} bench_state;

static void *take(fm_arena *arena, size_t bytes) {
    void *at = fm_arena_alloc(arena, bytes);
    if (!at) exit(1);
    return at;
}

/* A hash that sorts by `i`. */
static fm_sha256 hash_of(uint32_t i) {
    fm_sha256 hash = fm_sha256_of(&i, sizeof i);
    for (int k = 0; k < 4; k++)
        hash.bytes[k] = (uint8_t)(i >> (24 - 8 * k));
    return hash;
}

/* Parts of kinds 1 to 3 are those of the first chain that shares them. */
static void make_index(bench_state *bench, fm_generation *generation, fm_shard_info *shard) {
    fm_arena *arena = &bench->arena;
    uint32_t n = bench->n_chain, n_family = (n + SHARED_BY - 1) / SHARED_BY;
    uint32_t n_blob = n + n_family * (FM_N_PART - 1);
    fm_blob_entry *blobs = take(arena, n_blob * sizeof *blobs);
    fm_chain_entry *chains = take(arena, n * sizeof *chains);
    char *names = take(arena, (size_t)n * 10);
    for (uint32_t i = 0; i < n_blob; i++) {
        uint32_t kind = i < n ? FM_PART_STRUCTURE : 1 + (i - n) % (FM_N_PART - 1);
        blobs[i] = (fm_blob_entry){.hash = hash_of(i),
                                   .offset = 4096,
                                   .stored_bytes = BLOB_BYTES,
                                   .decoded_bytes = 3 * BLOB_BYTES,
                                   .kind = kind};
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t family = n + i / SHARED_BY * (FM_N_PART - 1);
        snprintf(names + (size_t)i * 9, 10, "%06x_%c", i / SHARED_BY, 'A' + (int)(i % SHARED_BY));
        chains[i] = (fm_chain_entry){.name_at = (uint64_t)i * 9,
                                     .part = {family, family + 1, family + 2, i}};
    }
    *shard = (fm_shard_info){.hash = hash_of(n_blob), .bytes = SHARD_BYTES, .n_blob = n_blob};
    *generation = (fm_generation){.number = 1,
                                  .n_shard = 1,
                                  .n_chain = n,
                                  .n_blob = n_blob,
                                  .shard = shard,
                                  .chain = chains,
                                  .names = names,
                                  .name_bytes = (uint64_t)n * 9,
                                  .blob = blobs};
}

static void make_cache(bench_state *bench) {
    char path[600];
    fm_error error;
    fm_shard_info shard;
    fm_generation generation;
    fm_bytes all;
    uint32_t *weights = take(&bench->arena, bench->n_chain * sizeof *weights);
    make_index(bench, &generation, &shard);
    for (uint32_t i = 0; i < bench->n_chain; i++)
        weights[i] = fm_snapshot_weight(50 + i % 700);
    snprintf(path, sizeof path, "%s/shards", bench->folder);
    check(fm_dir_make(path, &error), &error);
    if (!fm_shard_path(bench->folder, &shard.hash, path, sizeof path)) exit(1);
    FILE *file = fopen(path, "w");
    if (!file || ftruncate(fileno(file), SHARD_BYTES) || fclose(file)) exit(1);
    check(fm_snapshot_encode_all(&generation, weights, &bench->arena, &all, &error), &error);
    check(fm_generation_publish(bench->folder, &generation, all, &bench->arena, &error), &error);
}

typedef enum row { ROW_GENERATION, ROW_SNAPSHOT, ROW_WEIGHTS, ROW_SERVER, ROW_TWO, N_ROW } row;

static void measure(bench_state *bench, double seconds[N_ROW]) {
    fm_error error;
    fm_store *store;
    fm_snapshot snapshot;
    fm_chooser *chooser;
    fm_plan plan;
    fm_arena arena;
    double at = cpu_s();
    check(fm_store_open(bench->folder, &store, &error), &error);
    seconds[ROW_GENERATION] = cpu_s() - at;
    check(fm_arena_init(&arena, ARENA_BYTES, &error), &error);
    at = cpu_s();
    check(fm_snapshot_open(store, "all", &arena, &snapshot, &error), &error);
    seconds[ROW_SNAPSHOT] = cpu_s() - at;
    check(fm_plan_find("af2-initial", &plan, &error), &error);
    at = cpu_s();
    check(fm_chooser_create(&plan, snapshot.n_chain, snapshot.weight, NULL, &chooser, &error),
          &error);
    seconds[ROW_WEIGHTS] = cpu_s() - at;
    fm_chooser_destroy(chooser);
    fm_arena_fini(&arena);
    fm_store_close(store);

    const fm_library_cache caches[] = {{.name = "", .path = bench->folder},
                                       {.name = "second", .path = bench->folder}};
    for (uint32_t n = 1; n <= 2; n++) {
        const fm_library_options options = {.cache = caches, .n_cache = n};
        fm_library *library;
        at = cpu_s();
        check(fm_library_open(&options, &library, &error), &error);
        seconds[ROW_SERVER + n - 1] = cpu_s() - at;
        fm_library_close(library);
    }
}

int main(int argc, char **argv) {
    static const char *const names[N_ROW] = {
        "generation: read and checked", "snapshot all", "weights of the first stream",
        "the server's whole start", "the same with two caches"};
    bench_state bench = {.n_chain = 600000};
    int rounds = 5;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--chains") == 0) bench.n_chain = (uint32_t)atoi(argv[i + 1]);
        if (strcmp(argv[i], "--rounds") == 0) rounds = atoi(argv[i + 1]);
    }
    if (bench.n_chain < 1 || rounds < 1 || rounds > ROUNDS_MAX) return 2;
    make_memory_folder(bench.folder, sizeof bench.folder);
    fm_error error;
    check(fm_arena_init(&bench.arena, ARENA_BYTES, &error), &error);
    make_cache(&bench);
    fm_arena_fini(&bench.arena);
    fm_log_set_level(FM_LOG_WARN);
    print_load();
    printf("%u chains; %d rounds\n", bench.n_chain, rounds);
    double seconds[N_ROW][ROUNDS_MAX];
    for (int r = 0; r < rounds; r++) {
        double of_round[N_ROW];
        measure(&bench, of_round);
        for (int i = 0; i < N_ROW; i++)
            seconds[i][r] = of_round[i];
    }
    for (int i = 0; i < N_ROW; i++)
        printf("%-30s %8.3f s\n", names[i], median(seconds[i], rounds));
    fm_test_remove_tree(bench.folder);
    return 0;
}
