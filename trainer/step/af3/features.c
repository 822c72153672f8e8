/* features.c: see features.h. */
#include "trainer/step/af3/features.h"

#include "trainer/backend/draw.h"
#include "trainer/backend/normal.h"

void fm_af3_place_conformers(uint64_t seed, const uint32_t *clock, const fm_af3_sample *sample,
                             float *position) {
    const fm_draw translations = {seed, clock, FM_DRAW_TRANSLATION, FM_PURPOSE_CONFORMER};
    const fm_draw rotations = {seed, clock, FM_DRAW_ROTATION, FM_PURPOSE_CONFORMER};
    double offset[3], rotation[9];
    for (int64_t l = 0; l < sample->n_atom; l++) {
        const uint64_t uid = (uint64_t)sample->ref_space_uid[l];
        if (l == 0 || sample->ref_space_uid[l] != sample->ref_space_uid[l - 1]) {
            const fm_philox_counter words = fm_draw_block(&translations, 4 * uid);
            for (int k = 0; k < 3; k++)
                offset[k] = fm_uniform_two_sided(words.word[k]);
            fm_uniform_rotation(fm_draw_block(&rotations, 4 * uid).word, rotation);
        }
        double p[3];
        for (int k = 0; k < 3; k++)
            p[k] = (double)sample->ref_pos[3 * l + k] + offset[k];
        for (int k = 0; k < 3; k++) {
            const double *row = rotation + (ptrdiff_t)3 * k;
            position[3 * l + k] = (float)(row[0] * p[0] + row[1] * p[1] + row[2] * p[2]);
        }
    }
}

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
