/* bench_bytes.c: measures the stored bytes of each part of a chain and compares them with other
 * programs.
 *
 *     bench_bytes [--chains N]
 *
 * First the eight chains of the reference data (if $FM_REFERENCE_DATA is set), beside the
 * reference's pickled dictionary and a compact one, both under zstd 3. These dictionaries have at
 * most four templates, and the compact one clips deletions at 255.
 *
 * Then N (16) chains of the synthetic set of bench_set.h, beside the 3.1 MB that MegaFold stores
 * per complex (395 GB for 127,234). Last the size of that set's alignments at other levels of zstd.
 *
 * "Templates" are all structure parts that the chain's hits name, as if no other chain named them.
 * A cache stores each once for all chains. */
#include "cache/build/build.h"
#include "cache/store/store_open.h"
#include "proto/base/compress.h"
#include "tests/bench/bench_set.h"

#include <assert.h>

#define MEGAFOLD_BYTES 3.1e6

/* Bytes of the reference's feature dictionary of a chain: pickled under zstd 3, and a compact form
 * (u8 rows, u8 deletions, packed masks, present atoms only) under zstd 3. */
typedef struct reference_bytes {
    const char *chain;
    double pickle, compact;
} reference_bytes;

static const reference_bytes reference[] = {
    {"1psm_A", 7849, 5649},   {"2crb_A", 64970, 44070}, {"2q2k_A", 16601, 13025},
    {"3u8v_A", 89376, 52668}, {"3zee_A", 80033, 47319}, {"4i6p_A", 83105, 48936},
    {"4zey_A", 57817, 39093}, {"5kc1_A", 38061, 26657},
};

typedef struct chain_bytes {
    uint64_t part[FM_N_PART], templates;
    uint32_t n_seq, n_res, n_hit, n_named;
} chain_bytes;

static fm_store *build_and_open(const char *dataset, const char *cache, fm_arena *arena) {
    fm_error error;
    fm_source source;
    fm_build_report report;
    fm_store *store;
    const fm_build_options options = {.cache = cache, .n_job = 2};
    check(fm_source_scan(&(fm_source_options){.dataset = dataset}, 1, arena, &source, &error),
          &error);
    check(fm_build_run(&source, &options, arena, &report, &error), &error);
    check(fm_store_open(cache, &store, &error), &error);
    return store;
}

/* Stored bytes of the structure parts that the hits name, each counted once. */
static void count_templates(const fm_store *store, const fm_part_hits *hits, chain_bytes *bytes) {
    for (uint32_t i = 0; hits && i < hits->n_hit; i++) {
        uint32_t blob;
        bool seen = hits->hit[i].fault != 0;
        for (uint32_t j = 0; j < i && !seen; j++) {
            seen = !hits->hit[j].fault &&
                   memcmp(&hits->hit[j].structure, &hits->hit[i].structure, sizeof(fm_sha256)) == 0;
        }
        if (seen || !fm_store_find_blob(store, &hits->hit[i].structure, &blob)) continue;
        bytes->templates += store->generation.blob[blob].stored_bytes;
        bytes->n_named++;
    }
}

static chain_bytes count_chain(const fm_store *store, uint32_t chain, fm_arena *arena) {
    chain_bytes bytes = {0};
    fm_record record;
    fm_error error;
    for (int k = 0; k < FM_N_PART; k++) {
        fm_store_part part;
        if (fm_store_get_part(store, chain, (fm_part_kind)(k + 1), &part)) {
            bytes.part[k] = part.stored_bytes;
        }
    }
    size_t mark = fm_arena_mark(arena);
    check(fm_store_load(store, chain, arena, &record, &error), &error);
    bytes.n_res = record.sequence->n_res;
    bytes.n_seq = record.msa ? record.msa->n_seq : 0;
    bytes.n_hit = record.hits ? record.hits->n_hit : 0;
    count_templates(store, record.hits, &bytes);
    fm_arena_rewind(arena, mark);
    return bytes;
}

static uint64_t sum_of(const chain_bytes *bytes) {
    uint64_t sum = 0;
    for (int k = 0; k < FM_N_PART; k++)
        sum += bytes->part[k];
    return sum;
}

static void print_parts(const chain_bytes *bytes) {
    printf(" %8llu %8llu %6llu %9llu %9llu", (unsigned long long)bytes->part[FM_PART_SEQUENCE - 1],
           (unsigned long long)bytes->part[FM_PART_MSA - 1],
           (unsigned long long)bytes->part[FM_PART_HITS - 1],
           (unsigned long long)bytes->part[FM_PART_STRUCTURE - 1],
           (unsigned long long)sum_of(bytes));
}

static void print_head(const char *more) {
    printf("\n%-8s %13s %6s %8s %8s %6s %9s %9s%s\n", "chain", "N_seq x N_res", "N_hit", "sequence",
           "msa", "hits", "structure", "sum", more);
}

static void print_reference_chains(const char *folder, fm_arena *arena) {
    char dataset[512], cache[512];
    fm_error error;
    uint32_t n_below = 0, n = sizeof reference / sizeof reference[0];
    if (!fm_test_reference()) {
        printf("the reference data is not there (FM_REFERENCE_DATA): its chains are left out\n");
        return;
    }
    fm_test_reference_path(dataset, sizeof dataset, "golden/dataset");
    snprintf(cache, sizeof cache, "%s/reference", folder);
    fm_store *store = build_and_open(dataset, cache, arena);
    print_head("  pickle zstd 3  ratio  compact zstd 3  ratio  templates");
    for (uint32_t i = 0; i < n; i++) {
        uint32_t chain;
        check(fm_store_find(store, reference[i].chain, &chain, &error), &error);
        chain_bytes bytes = count_chain(store, chain, arena);
        double sum = (double)sum_of(&bytes);
        printf("%-8s %6u x %-4u %6u", reference[i].chain, bytes.n_seq, bytes.n_res, bytes.n_hit);
        print_parts(&bytes);
        printf(" %14.0f %6.2f %15.0f %6.2f %6llu (%u)\n", reference[i].pickle,
               sum / reference[i].pickle, reference[i].compact, sum / reference[i].compact,
               (unsigned long long)bytes.templates, bytes.n_named);
        n_below += sum < reference[i].pickle;
    }
    printf("below the pickled zstd 3: %u of %u chains\n", n_below, n);
    fm_store_close(store);
}

/* -- the synthetic set */

static void print_levels(const fm_store *store, uint32_t n_chain, fm_arena *arena) {
    static const int levels[] = {1, 2, 3, 4, 6, 9, 12};
    fm_error error;
    printf("\nalignments of the set under zstd, one frame each (processor time of this thread)\n"
           "%5s %12s %14s %16s\n",
           "level", "bytes/chain", "ms to compress", "ms to decompress");
    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
        double packing = 0, unpacking = 0, bytes = 0;
        for (uint32_t i = 0; i < n_chain; i++) {
            size_t mark = fm_arena_mark(arena), packed_bytes;
            fm_bytes part;
            uint32_t blob = store->generation.chain[i].part[FM_PART_MSA - 1];
            check(fm_store_read_blob(store, blob, arena, &part, &error), &error);
            uint8_t *packed = fm_arena_alloc(arena, fm_zstd_bound(part.size));
            uint8_t *back = fm_arena_alloc(arena, part.size);
            assert(packed && back);
            memset(back, 0, part.size);
            double begun = cpu_s();
            check(fm_zstd_compress(packed, fm_zstd_bound(part.size), part.data, part.size,
                                   levels[l], &packed_bytes, &error),
                  &error);
            packing += cpu_s() - begun;
            begun = cpu_s();
            check(fm_zstd_decompress(back, part.size, packed, packed_bytes, &error), &error);
            unpacking += cpu_s() - begun;
            bytes += (double)packed_bytes;
            fm_arena_rewind(arena, mark);
        }
        printf("%5d %12.0f %14.1f %16.1f\n", levels[l], bytes / n_chain, packing / n_chain * 1e3,
               unpacking / n_chain * 1e3);
    }
}

static void print_synthetic(const char *folder, uint32_t n_chain, fm_arena *arena) {
    char dataset[512], cache[512];
    chain_bytes mean = {0};
    snprintf(dataset, sizeof dataset, "%s/data", folder);
    snprintf(cache, sizeof cache, "%s/synthetic", folder);
    write_set(dataset, n_chain, arena);
    fm_arena_reset(arena);
    fm_store *store = build_and_open(dataset, cache, arena);
    uint32_t n = fm_store_get_info(store)->n_chain;
    for (uint32_t i = 0; i < n; i++) {
        chain_bytes bytes = count_chain(store, i, arena);
        for (int k = 0; k < FM_N_PART; k++)
            mean.part[k] += bytes.part[k];
        mean.n_seq += bytes.n_seq;
        mean.n_res += bytes.n_res;
        mean.n_hit += bytes.n_hit;
    }
    for (int k = 0; k < FM_N_PART; k++)
        mean.part[k] /= n;
    double sum = (double)sum_of(&mean);
    print_head("");
    printf("%-8s %6u x %-4u %6u", "mean", mean.n_seq / n, mean.n_res / n, mean.n_hit / n);
    print_parts(&mean);
    printf("\nof the synthetic set, %u chains; MegaFold stores %.1f MB a complex: %.2f of that\n",
           n, MEGAFOLD_BYTES / 1e6, sum / MEGAFOLD_BYTES);
    print_levels(store, n, arena);
    fm_store_close(store);
}

int main(int argc, char **argv) {
    char folder[256];
    fm_error error;
    fm_arena arena;
    uint64_t n_chain = 16;
    if (argc == 3 && strcmp(argv[1], "--chains") == 0) n_chain = strtoull(argv[2], NULL, 10);
    if (n_chain < 1 || n_chain > 10000) n_chain = 16;
    make_memory_folder(folder, sizeof folder);
    check(fm_arena_init(&arena, (size_t)8 << 30, &error), &error);
    print_reference_chains(folder, &arena);
    print_synthetic(folder, (uint32_t)n_chain, &arena);
    fm_arena_fini(&arena);
    fm_test_remove_tree(folder);
    return 0;
}
