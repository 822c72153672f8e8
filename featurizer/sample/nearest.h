/* nearest.h: finds for alignment rows the cluster centre with which each shares the most residues.
 *
 * A column counts when row and centre hold the same HHblits id 0..20; gaps (21) and mask tokens
 * (22) never count. Ties go to the lowest centre, and so does a row that shares nothing with any
 * centre (centre 0).
 *
 * Three variants give the same result; fm_nearest_best chooses one for this processor. The portable
 * one compares byte by byte. AVX2 compares 32 columns at once against padded copies of the centres.
 * AVX-512 turns ids into bit planes with 64 columns per word and compares with eight centres per
 * vector. Five three-operand logic instructions find the columns that differ, and one instruction
 * counts them. */
#ifndef FM_SAMPLE_NEAREST_H
#define FM_SAMPLE_NEAREST_H

#include <stddef.h>
#include <stdint.h>

typedef struct fm_nearest_task {
    const uint8_t *msa; /* [N_seq, N_res] HHblits ids 0..21 */
    size_t n_res;
    const uint32_t *row; /* [n_row] the rows of msa to assign */
    size_t n_row;
    const uint8_t *centres; /* [n_centre, N_res] HHblits ids and mask tokens, 0..22 */
    size_t n_centre;        /* >= 1 */
    void *scratch;          /* [fm_nearest_scratch_bytes] aligned to 64 */
} fm_nearest_task;

/* Returns the scratch size that is enough for every variant. */
size_t fm_nearest_scratch_bytes(size_t n_centre, size_t n_res);

/* Writes the nearest centre of each row into best [n_row]. */
typedef void (*fm_nearest_fn)(const fm_nearest_task *task, uint32_t *best);

void fm_nearest_portable(const fm_nearest_task *task, uint32_t *best);
void fm_nearest_avx2(const fm_nearest_task *task, uint32_t *best);
void fm_nearest_avx512(const fm_nearest_task *task, uint32_t *best); /* also needs VPOPCNTDQ */

/* Returns the fastest variant that this processor runs. */
fm_nearest_fn fm_nearest_best(void);

#endif
