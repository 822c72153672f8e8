/* fuzz_hmmsearch.c: arbitrary bytes as hmmsearch's alignment, in both modes. Refused input has a
 * place and a message. Accepted input has no more columns than letters, increasing positions, and
 * arrays that can be listed. */
#include "featurizer/parse/hmmsearch.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_hit(const fm_hit *hit) {
    int32_t last = -1;
    assert(hit->n_query == 5 && hit->n_column <= hit->n_hit && hit->name.size >= 3);
    assert(hit->index >= 1 && hit->aligned_cols >= 0);
    for (uint32_t i = 0; i < hit->n_column; i++) {
        if (hit->indices_hit[i] == -1) continue;
        assert(hit->indices_hit[i] > last);
        last = hit->indices_hit[i];
    }
    for (uint32_t i = 0; i < hit->n_hit; i++)
        assert(hit->hit[i] < 'a' || hit->hit[i] > 'z');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint8_t query[] = {'A', 'C', 'D', 'E', 'F'};
    fm_arena arena;
    if (fm_arena_init(&arena, (size_t)256 << 20, NULL)) return 0;
    for (int mode = 0; mode < 2; mode++) {
        fm_hits hits;
        fm_error error = {0};
        fm_array arrays[FM_HITS_N_ARRAY];
        fm_arena_reset(&arena);
        fm_status status =
            fm_hmmsearch_parse((fm_bytes){data, size}, (fm_bytes){query, sizeof query}, mode == 1,
                               &arena, &hits, &error);
        if (status) {
            assert(error.status == status && error.message[0]);
            assert(status == FM_ERR_LIMIT || (error.line >= 1 && error.column >= 1));
            continue;
        }
        for (uint32_t i = 0; i < hits.n_hit; i++)
            check_hit(&hits.hit[i]);
        status = fm_hits_list_arrays(&hits, &arena, arrays, &error);
        assert(!status || status == FM_ERR_LIMIT);
    }
    fm_arena_fini(&arena);
    return 0;
}
