/* af3_sample.h: runs AlphaFold 3 as in an evaluation and compares it with a file of the reference:
 * the trunk, several denoising steps of several samples with the file's draws, and the confidence
 * head on each of them. */
#ifndef FM_TESTS_TRAINER_AF3_SAMPLE_H
#define FM_TESTS_TRAINER_AF3_SAMPLE_H

#include "proto/npz.h"
#include "trainer/backend/kernels.h"

#include "trainer/dist/groups.h"

#include <stdbool.h>

typedef struct af3_sample_files {
    const char *config;     /* path of the JSON with the sizes */
    const fm_npz *features; /* in/ and w/ of the training step */
    const fm_npz *draws;    /* in/rnd_... of the sampling run */
    const fm_npz *expected; /* out/ */
    int pad;                /* more tokens and MSA rows than the sample has; twice as many atoms */
} af3_sample_files;

/* Runs one rank; `groups` is NULL for one rank. Prints one line per group. Returns whether
 * everything agrees. *ret_hash receives the hash of the structures. */
bool af3_sample_run(const af3_sample_files *files, const fm_groups *groups,
                    const fm_kernels *kernels, uint64_t *ret_hash);

#endif
