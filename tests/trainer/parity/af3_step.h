/* af3_step.h: runs one training step of AlphaFold 3 from a file of the reference and compares it.
 *
 * The file has inputs and recorded draws (in/), parameters (w/), activations, outputs, losses and
 * gradients. A second file with the same keys may hold the expected values in double precision. */
#ifndef FM_TESTS_TRAINER_AF3_STEP_H
#define FM_TESTS_TRAINER_AF3_STEP_H

#include "proto/npz.h"
#include "tests/trainer/parity/af3_bench.h"
#include "trainer/backend/kernels.h"
#include "trainer/dist/groups.h"

#include <stdbool.h>

typedef struct af3_step_files {
    const char *config; /* path of the JSON with the sizes */
    const fm_npz *in;   /* in/ and w/ */
    const fm_npz *expected;
    int pad; /* tokens and so on of padding (af3_case.h) */
    fm_recompute_policy recompute;
    fm_af3_products products;
    af3_noise *noise; /* of a run in bf16 and of the plain composition before it; else NULL */
} af3_step_files;

/* Runs one rank; `groups` is NULL for one rank. Prints one line per group. Returns whether
 * everything agrees. *ret_hash receives the hash of the updated parameters, or 0 for the published
 * model. */
bool af3_step_run(const af3_step_files *files, const fm_groups *groups, const fm_kernels *kernels,
                  uint64_t *ret_hash);

#endif
