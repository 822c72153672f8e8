/* cofold_results.h: what a predicted complex leaves: scores of each structure, taken from the
 * logits of the heads, and its files. */
#ifndef FM_TRAINER_COFOLD_RESULTS_H
#define FM_TRAINER_COFOLD_RESULTS_H

#include "trainer/app/prediction/cofold_input.h"
#include "trainer/infer/cofold.h"
#include "trainer/predict/complex/files.h"

/* One structure. */
typedef struct fm_cofold_result {
    uint32_t seed, sample;
    double ptm, iptm; /* iptm: NAN for one chain */
    double mean_plddt, ranking_score, fraction_disordered;
    bool has_clash;
} fm_cofold_result;

/* What the page shows of the best structure so far of those with names. It begins as zeroes, and
 * the caller frees the text. */
typedef struct fm_cofold_best {
    double ranking_score;
    char *text;
    size_t bytes;
} fm_cofold_best;

/* Where results go, and what they say of their making. */
typedef struct fm_cofold_target {
    const char *folder;
    const char *model, *software; /* of the weights; version of this program */
} fm_cofold_target;

/* Judges all structures of the run that `cofold` has made of the input, and writes the files of
 * each: with names those of files.h in FOLDER/seed-S_sample-K/, else FOLDER/seed-S_sample-K.npz.
 * results [n] receives their scores, and `best` is kept up. FM_ERR_IO, FM_ERR_NOMEM,
 * FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_cofold_judge_all(fm_cofold *cofold, const fm_cofold_input *input,
                                          const fm_cofold_target *target, uint32_t seed, uint32_t n,
                                          fm_cofold_result *results, fm_cofold_best *best,
                                          fm_error *reterr);

/* Writes FOLDER/NAME_ranking_scores.csv with n rows in their order, FOLDER/NAME_data.json if the
 * input has it, and with names copies of the best structure's files, FOLDER/NAME_model.cif and
 * others, and the page FOLDER/NAME.html.
 * FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_cofold_finish(const fm_cofold_input *input, const fm_cofold_target *target,
                                       const fm_cofold_result *results, uint32_t n,
                                       const fm_cofold_best *best, fm_error *reterr);

#endif
