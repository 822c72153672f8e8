/* fuzz_hhr.c: arbitrary bytes as an HHR text, in both modes. Refused input has a place and a
 * message. Accepted input has equally many columns on both sides, positions that count up between
 * gaps, and arrays that can be listed. */
#include "featurizer/parse/hhr.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_side(const char *letters, const int32_t *index, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        assert(letters[i] == '-' || (letters[i] >= 'A' && letters[i] <= 'Z'));
        assert((letters[i] == '-') == (index[i] == -1) || index[i] == -1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_arena arena;
    if (fm_arena_init(&arena, (size_t)256 << 20, NULL)) return 0;
    for (int mode = 0; mode < 2; mode++) {
        fm_hits hits;
        fm_error error = {0};
        fm_array arrays[FM_HITS_N_ARRAY];
        fm_arena_reset(&arena);
        fm_status status = fm_hhr_parse((fm_bytes){data, size}, mode == 1, &arena, &hits, &error);
        if (status) {
            assert(error.status == status && error.message[0]);
            assert(status == FM_ERR_LIMIT || (error.line >= 1 && error.column >= 1));
            continue;
        }
        for (uint32_t i = 0; i < hits.n_hit; i++) {
            const fm_hit *hit = &hits.hit[i];
            assert(hit->n_hit == hit->n_column);
            check_side(hit->query, hit->indices_query, hit->n_query);
            check_side(hit->hit, hit->indices_hit, hit->n_column);
        }
        status = fm_hits_list_arrays(&hits, &arena, arrays, &error);
        assert(!status || status == FM_ERR_LIMIT);
    }
    fm_arena_fini(&arena);
    return 0;
}
