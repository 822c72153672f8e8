/* sample_scores.h: the scores of the held-out files of one evaluation of a model of af3: their
 * means for eval.jsonl, and a table with a row for each file. */
#ifndef FM_TRAINER_SAMPLE_SCORES_H
#define FM_TRAINER_SAMPLE_SCORES_H

#include "proto/base/status.h"
#include "trainer/step/af3/step.h"

#include <stddef.h>
#include <stdint.h>

typedef struct fm_scored_file {
    fm_sample_result losses;
    fm_af3_score rollout;
} fm_scored_file;

typedef struct fm_sample_scores {
    char *const *name;    /* [n_file] of the files, borrowed */
    fm_scored_file *file; /* [n_file] in the order of the files; owned */
    uint32_t n_file;      /* at least 1 */
} fm_sample_scores;

/* Makes room for the results of n_file files. FM_ERR_NOMEM. The names are borrowed. */
FM_MUST_USE fm_status fm_sample_scores_init(char *const *name, uint32_t n_file,
                                            fm_sample_scores *ret_scores, fm_error *reterr);
void fm_sample_scores_fini(fm_sample_scores *scores);

/* The mean of the losses, and of each term, over the files. */
typedef struct fm_sample_means {
    double loss, term[FM_COMPLEX_TERMS];
    /* Of the sampled structures of the n_rollout files that have scores; 0 if there are none. If
     * one of them is not finite, only lddt is. */
    double rmsd, rmsd_max, lddt;
    double mirrored; /* share of the files whose structure is nearer to the truth's mirror image */
    uint32_t n_rollout;
    fm_part_scores parts; /* over the chains, interfaces and ligands of all files */
} fm_sample_means;
fm_sample_means fm_sample_scores_means(const fm_sample_scores *scores);

/* Writes the line of eval.jsonl for the model after `step` steps; a mean that is not finite is
 * null. Returns its length. `out` must have room for it, 2,048 bytes. */
size_t fm_sample_means_line(const fm_sample_means *means, uint32_t n_file, uint64_t step,
                            double wall_s, char *out, size_t out_bytes);

/* Writes the table to `path`, whole or not at all: comma-separated, with a header, numbers with as
 * many digits as they need to be read back unchanged, and empty cells where a file has no score.
 * FM_ERR_NOMEM, FM_ERR_IO. */
FM_MUST_USE fm_status fm_sample_scores_write(const fm_sample_scores *scores, uint64_t step,
                                             const char *path, fm_error *reterr);

#endif
