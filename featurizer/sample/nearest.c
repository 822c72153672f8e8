/* nearest.c: see nearest.h. The portable variant is the oracle of the others. */
#include "featurizer/sample/nearest.h"

#include "proto/schema.h"

static uint32_t count_shared(const uint8_t *row, const uint8_t *centre, size_t n_res) {
    uint32_t shared = 0;
    for (size_t i = 0; i < n_res; i++)
        shared += (row[i] == centre[i]) & (row[i] < FM_MSA_GAP);
    return shared;
}

void fm_nearest_portable(const fm_nearest_task *task, uint32_t *best) {
    size_t n_res = task->n_res;
    for (size_t r = 0; r < task->n_row; r++) {
        uint32_t most = 0, index = 0;
        for (size_t c = 0; c < task->n_centre; c++) {
            uint32_t shared =
                count_shared(task->msa + task->row[r] * n_res, task->centres + c * n_res, n_res);
            if (shared > most) {
                most = shared;
                index = (uint32_t)c;
            }
        }
        best[r] = index;
    }
}

size_t fm_nearest_scratch_bytes(size_t n_centre, size_t n_res) {
    /* AVX-512 needs whole groups of 8 centres and a block of 4 rows: per 64 columns 5 words of 8
     * bytes each. AVX2 needs copies of the centres and of one row, padded to 32 columns. */
    size_t words = (n_res + 63) / 64, groups = (n_centre + 7) / 8;
    size_t planes = (groups * 8 + 4) * words * 5 * 8, copies = (n_centre + 1) * words * 64;
    return planes > copies ? planes : copies;
}

fm_nearest_fn fm_nearest_best(void) {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vpopcntdq")) {
        return fm_nearest_avx512;
    }
    return __builtin_cpu_supports("avx2") ? fm_nearest_avx2 : fm_nearest_portable;
}
