/* af3_predict_run.h: predicts a complex with the draws of a recorded prediction of the reference,
 * and compares what comes out with it. */
#ifndef FM_TESTS_TRAINER_AF3_PREDICT_RUN_H
#define FM_TESTS_TRAINER_AF3_PREDICT_RUN_H

#include "tests/trainer/parity/af3_bench.h"
#include "trainer/infer/cofold.h"

typedef struct af3_predict_files {
    const char *config;    /* path of the JSON with the sizes */
    const fm_npz *in;      /* in/ with draws, out/ and f64/ */
    const fm_npz *weights; /* w/ */
    fm_slabs slabs;        /* zeros: whole arrays */
    int64_t side;          /* structures side by side; 0: as in a prediction */
    bool padded;           /* recorded sizes are rounded up, as in a prediction */
    bool rounds;           /* the plain composition in bf16 */
    fm_af3_products products;
    af3_noise *noise; /* of bf16; NULL: the gates are those of f32 or f64 */
} af3_predict_files;

/* Runs one rank; `groups` is NULL for one rank. Prints one line for each group of arrays. Returns
 * whether everything agrees. *ret_hash receives the hash of the structures. */
bool af3_predict_run(const af3_predict_files *files, const fm_groups *groups,
                     const fm_kernels *kernels, uint64_t *ret_hash);

#endif
