/* rows.c: see rows.h. The portable variant is the oracle of the other. */
#include "featurizer/sample/rows.h"

#include "proto/chem/residue.h"
#include "proto/schema.h"

static void restypes(const uint8_t *ids, size_t n, uint8_t *ret_restypes) {
    for (size_t i = 0; i < n; i++)
        ret_restypes[i] = ids[i] == FM_MSA_MASK ? FM_MSA_MASK : fm_restype_from_hhblits[ids[i]];
}

static void add_deletions(const uint16_t *deletions, size_t n, uint32_t *sum) {
    for (size_t i = 0; i < n; i++)
        sum[i] += deletions[i];
}

const fm_row_kernels fm_row_kernels_portable = {restypes, add_deletions};

const fm_row_kernels *fm_row_kernels_best(void) {
    return __builtin_cpu_supports("avx2") ? &fm_row_kernels_avx2 : &fm_row_kernels_portable;
}
