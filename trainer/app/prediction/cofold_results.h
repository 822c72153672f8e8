/* cofold_results.h: what a predicted complex leaves: scores of each structure, taken from the
 * logits of the heads, and its files. */
#ifndef FM_TRAINER_COFOLD_RESULTS_H
#define FM_TRAINER_COFOLD_RESULTS_H

#include "trainer/app/prediction/cofold_input.h"
#include "trainer/infer/cofold.h"
#include "trainer/predict/complex/scores.h"

/* One structure. */
typedef struct fm_cofold_result {
    uint32_t seed, sample;
    double ptm, iptm; /* iptm: NAN for one chain */
    double mean_plddt, ranking_score;
    bool has_clash;
} fm_cofold_result;

/* Judges all structures of the run that `cofold` has made of the input, and writes
 * FOLDER/seed-S_sample-K.npz for each. results [n] receives their scores. FM_ERR_IO, FM_ERR_NOMEM,
 * FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_cofold_judge_all(fm_cofold *cofold, const fm_cofold_input *input,
                                          uint32_t seed, uint32_t n, const char *folder,
                                          fm_cofold_result *results, fm_error *reterr);

/* Writes FOLDER/ranking_scores.csv with n rows in their order. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_cofold_write_ranking(const char *folder, const fm_cofold_result *results,
                                              uint32_t n, fm_error *reterr);

#endif
