/* bench_snapshot.c: measures choosing the chains of a snapshot, with and without the table of
 * facts.
 *
 *     bench_snapshot [--chains N] [--rounds N]
 *
 * A cache of N (3,000) synthetic chains is built, and a snapshot is chosen from it by resolution
 * and date. Then the generation is published again without facts, as in caches of older versions,
 * and the same snapshot is chosen: every chain's sequence and structure part is read and decoded.
 * Figures are medians of processor time with a warm page cache. */
#include "cache/build/build.h"
#include "cache/store/generation.h"
#include "cache/snapshot/snapshot_select.h"
#include "tests/bench/bench_set.h"

#define ARENA_BYTES ((size_t)24 << 30)

typedef struct bench_state {
    char folder[256], data[300], cache[300];
    fm_arena arena;
    uint32_t n_chain;
} bench_state;

static void make_cache(bench_state *bench) {
    char command[800];
    fm_error error;
    fm_source source;
    fm_build_report report;
    const char *programs = getenv("FM_BIN");
    snprintf(command, sizeof command,
             "%s/foldmill synth --chains %u --max-length 120 --depth 20 --quiet -o %s >/dev/null",
             programs ? programs : "build/release/bin", bench->n_chain, bench->data);
    if (system(command) != 0) exit(1);
    const fm_build_options options = {.cache = bench->cache, .n_job = 2};
    check(fm_source_scan(&(fm_source_options){.dataset = bench->data}, 1, &bench->arena, &source,
                         &error),
          &error);
    check(fm_build_run(&source, &options, &bench->arena, &report, &error), &error);
    bench->n_chain = report.n_chain;
}

static void drop_facts(bench_state *bench) {
    fm_error error;
    fm_generation generation;
    fm_bytes all;
    check(fm_generation_read(bench->cache, FM_GENERATION_ALL, &bench->arena, &generation, &error),
          &error);
    check(fm_generation_read_all(bench->cache, &generation, &bench->arena, &all, &error), &error);
    generation.facts = NULL;
    generation.number++;
    check(fm_generation_publish(bench->cache, &generation, all, &bench->arena, &error), &error);
}

static uint32_t measure(bench_state *bench, const char *what, int rounds) {
    const fm_select_rules rules = {
        .max_unknown = 0, .max_single_percent = 80, .max_resolution = 3.0, .until = "2015-01-01"};
    double seconds[ROUNDS_MAX];
    fm_select_report report;
    fm_snapshot_text text = {0};
    fm_error error;
    fm_store *store;
    check(fm_store_open(bench->cache, &store, &error), &error);
    for (int i = 0; i < rounds; i++) {
        size_t mark = fm_arena_mark(&bench->arena);
        double begun = cpu_s();
        check(fm_snapshot_select(store, &rules, &bench->arena, &text, &report, &error), &error);
        seconds[i] = cpu_s() - begun;
        fm_arena_rewind(&bench->arena, mark);
    }
    fm_store_close(store);
    double middle = median(seconds, rounds);
    printf("%-16s %9.3f ms, %8.2f us a chain; %u taken, parts of %u read\n", what, middle * 1e3,
           middle * 1e6 / bench->n_chain, text.n_line, report.n_read);
    return text.n_line;
}

int main(int argc, char **argv) {
    bench_state bench = {.n_chain = 3000};
    int rounds = 11;
    fm_error error;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--chains") == 0) bench.n_chain = (uint32_t)atoi(argv[i + 1]);
        if (strcmp(argv[i], "--rounds") == 0) rounds = atoi(argv[i + 1]);
    }
    if (bench.n_chain < 1 || rounds < 1 || rounds > ROUNDS_MAX) return 2;
    make_memory_folder(bench.folder, sizeof bench.folder);
    snprintf(bench.data, sizeof bench.data, "%s/data", bench.folder);
    snprintf(bench.cache, sizeof bench.cache, "%s/cache", bench.folder);
    check(fm_arena_init(&bench.arena, ARENA_BYTES, &error), &error);
    make_cache(&bench);
    print_load();
    printf("%u chains; %d rounds\n", bench.n_chain, rounds);
    uint32_t with = measure(&bench, "table of facts", rounds);
    drop_facts(&bench);
    uint32_t without = measure(&bench, "parts", rounds);
    fm_arena_fini(&bench.arena);
    fm_test_remove_tree(bench.folder);
    return with == without ? 0 : 1;
}
