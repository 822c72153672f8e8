/* features.c: see features.h. */
#include "trainer/step/af3/features.h"

#include "trainer/backend/draw.h"

/* Returns a number below n from word `at`. */
static uint64_t below(const fm_draw *draw, uint64_t at, uint64_t n) {
    return (uint64_t)fm_draw_word(draw, at) * n >> 32;
}

int64_t fm_af3_draw_msa_rows(uint64_t seed, const uint32_t *clock, int64_t n_msa, int64_t most,
                             int64_t *rows) {
    const fm_draw draw = {.seed = seed, .clock = clock, .purpose = FM_PURPOSE_MSA_ROWS};
    int64_t n = 1 + (int64_t)below(&draw, 0, (uint64_t)n_msa);
    n = n < most ? n : most;
    for (int64_t i = 0; i < n_msa; i++)
        rows[i] = i;
    for (int64_t i = 0; i < n; i++) { /* the first n places of a shuffle */
        int64_t other = i + (int64_t)below(&draw, 1 + (uint64_t)i, (uint64_t)(n_msa - i));
        int64_t row = rows[other];
        rows[other] = rows[i];
        rows[i] = row;
    }
    return n;
}
