/* bench_catalogue.c: measures the coordination of a job of MegaFold's size. One worker claims a
 * list of 127,234 items in batches of 256 and completes them in batches of 1,000, with the
 * catalogue in a file and in a private PostgreSQL server. Run: ./run bench catalogue */
#include "cache/catalogue/catalogue.h"
#include "tests/bench/bench_time.h"
#include "tests/testing/postgresql.h"
#include "tests/testing/testing.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_ITEM = 127234, CLAIM = 256, COMPLETE = 1000 };

static void check(fm_status status, const fm_error *error) {
    if (status) fprintf(stderr, "bench_catalogue: %s: %s\n", error->source, error->message);
    if (status) exit(1);
}

static fm_catalogue_listing make_list(void) {
    fm_catalogue_entry *entry = calloc(N_ITEM, sizeof *entry);
    char(*name)[16] = calloc(N_ITEM, sizeof *name);
    assert(entry && name);
    for (uint32_t i = 0; i < N_ITEM; i++) {
        snprintf(name[i], sizeof name[i], "%07u_A", i);
        entry[i] = (fm_catalogue_entry){name[i], fm_sha256_of(name[i], 9)};
    }
    return (fm_catalogue_listing){.n = N_ITEM, .entry = entry};
}

static uint32_t claim_all(fm_catalogue *catalogue, fm_catalogue_completion *completion,
                          const fm_sha256 *shard) {
    static fm_catalogue_claim claim[CLAIM];
    fm_error error;
    uint32_t total = 0, n = 0;
    do {
        check(fm_catalogue_claim_items(catalogue, CLAIM, claim, &n, &error), &error);
        for (uint32_t i = 0; i < n; i++)
            completion[total++] = (fm_catalogue_completion){claim[i].lease, *shard, 1};
    } while (n);
    return total;
}

static void measure(const char *title, const char *where, const fm_catalogue_listing *list) {
    const fm_catalogue_options options = {.worker = "bench", .cache = "/cache"};
    const fm_catalogue_shard shard = {.info = {.hash = fm_sha256_of("shard", 5), .bytes = 1}};
    fm_catalogue_completion *completion = calloc(N_ITEM, sizeof *completion);
    static bool taken[COMPLETE];
    fm_catalogue *catalogue;
    fm_catalogue_counts counts;
    fm_error error;
    double time[6];
    assert(completion);
    check(fm_catalogue_open(where, &options, &catalogue, &error), &error);
    time[0] = now_s();
    check(fm_catalogue_begin(catalogue, list, FM_CATALOGUE_JOIN, &error), &error);
    time[1] = now_s();
    check(fm_catalogue_begin(catalogue, list, FM_CATALOGUE_JOIN, &error), &error);
    time[2] = now_s();
    uint32_t n = claim_all(catalogue, completion, &shard.info.hash);
    assert(n == N_ITEM);
    time[3] = now_s();
    check(fm_catalogue_add_shard(catalogue, &shard, &error), &error);
    for (uint32_t i = 0; i < n; i += COMPLETE) {
        uint32_t some = n - i < COMPLETE ? n - i : COMPLETE;
        check(fm_catalogue_complete(catalogue, some, completion + i, taken, &error), &error);
    }
    time[4] = now_s();
    check(fm_catalogue_count(catalogue, &counts, &error), &error);
    time[5] = now_s();
    assert(counts.n[FM_CATALOGUE_DONE] == N_ITEM);
    printf("%-11s list %.2f s, join %.3f s, claims %.0f items/s, completions %.0f items/s, "
           "count %.3f s\n",
           title, time[1] - time[0], time[2] - time[1], n / (time[3] - time[2]),
           n / (time[4] - time[3]), time[5] - time[4]);
    fm_catalogue_close(catalogue);
    free(completion);
}

int main(void) {
    char folder[256], file[300];
    fm_test_postgresql server;
    fm_error error;
    uint32_t n;
    fm_catalogue_listing list = make_list();
    fm_test_make_folder(folder, sizeof folder);
    snprintf(file, sizeof file, "%s/catalogue", folder);
    printf("%u items; claims of %u, completions of %u\n", list.n, CLAIM, COMPLETE);
    measure("embedded", file, &list);
    if (fm_test_postgresql_create(&server)) {
        if (!fm_catalogue_migrate(server.url, 0, &n, &n, &error)) {
            measure("PostgreSQL", server.url, &list);
        } else {
            printf("%s\n", error.message);
        }
        fm_test_postgresql_destroy(&server);
    }
    fm_test_remove_tree(folder);
    free((void *)(uintptr_t)list.entry[0].name);
    free((void *)(uintptr_t)list.entry);
    return 0;
}
