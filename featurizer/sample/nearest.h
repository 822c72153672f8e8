/* nearest.h: the nearest cluster centre of alignment rows: the one that shares most residues.
 *
 * A column counts when row and centre hold the same HHblits id 0..20: gaps (21) and mask tokens
 * (22) never count. Ties go to the lowest centre, as does a row that shares nothing with any.
 *
 * Three variants with the same result; fm_nearest_best chooses one for this processor. The portable
 * one compares byte by byte. AVX2 compares 32 columns at once against padded copies of the centres.
 * AVX-512 turns ids into bit planes, 64 columns a word, and takes eight centres a vector: five
 * three-operand logic instructions find the columns that differ, one counts them. */
#ifndef FM_SAMPLE_NEAREST_H
#define FM_SAMPLE_NEAREST_H

#include <stddef.h>
#include <stdint.h>

typedef struct fm_nearest_task {
    const uint8_t *msa; /* [N_seq, N_res] HHblits ids 0..21 */
    size_t n_res;
    const uint32_t *row; /* [n_row] which rows of it */
    size_t n_row;
    const uint8_t *centres; /* [n_centre, N_res] HHblits ids and mask tokens, 0..22 */
    size_t n_centre;        /* >= 1 */
    void *scratch;          /* [fm_nearest_scratch_bytes] aligned to 64 */
} fm_nearest_task;

/* Scratch that every variant makes do with. */
size_t fm_nearest_scratch_bytes(size_t n_centre, size_t n_res);

/* The nearest centre of each row into best [n_row]. */
typedef void (*fm_nearest_fn)(const fm_nearest_task *task, uint32_t *best);

void fm_nearest_portable(const fm_nearest_task *task, uint32_t *best);
void fm_nearest_avx2(const fm_nearest_task *task, uint32_t *best);
void fm_nearest_avx512(const fm_nearest_task *task, uint32_t *best); /* also needs VPOPCNTDQ */

/* The fastest variant this processor runs. */
fm_nearest_fn fm_nearest_best(void);

#endif
