/* cofold_results.h: what a predicted complex leaves: scores of each structure, taken from the
 * logits of the heads, and its files. */
#ifndef FM_TRAINER_COFOLD_RESULTS_H
#define FM_TRAINER_COFOLD_RESULTS_H

#include "trainer/app/prediction/cofold_record.h"
#include "trainer/infer/cofold.h"
#include "trainer/predict/complex/page.h"

/* What the page shows of the best structure so far of those with names. It begins as zeroes, and
 * the caller frees the text. */
typedef struct fm_cofold_best {
    double ranking_score;
    uint32_t number; /* the structure's place in the order of seeds and samples */
    fm_cofold_part part;
} fm_cofold_best;

/* Takes the part of a structure, and keeps it if no better one was offered: of equal scores, that
 * of the lower number is better. */
void fm_cofold_best_offer(fm_cofold_best *best, const fm_cofold_result *result, uint32_t number,
                          fm_cofold_part *part);

/* What pages show of a structure. */
fm_complex_page_row fm_cofold_page_row(const fm_cofold_result *result);

/* Judges structures of one seed, and writes their files. */
typedef struct fm_cofold_writer fm_cofold_writer;

/* After the trunk: takes the contacts, which all structures share. FM_ERR_NOMEM, FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_cofold_writer_open(fm_cofold *cofold, const fm_cofold_input *input,
                                            const fm_cofold_target *target, uint32_t seed,
                                            fm_cofold_writer **ret_writer, fm_error *reterr);
/* Judges a structure that was sampled, and writes its files and its record (cofold_record.h).
 * FM_ERR_IO, FM_ERR_NOMEM, FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_cofold_writer_write(fm_cofold_writer *writer, uint32_t sample,
                                             uint32_t number, fm_cofold_result *ret_result,
                                             fm_cofold_best *best, fm_error *reterr);
/* NULL is allowed. */
void fm_cofold_writer_close(fm_cofold_writer *writer);

/* Writes FOLDER/NAME_ranking_scores.csv with n rows in their order, FOLDER/NAME_data.json if the
 * input has it, and with names copies of the best structure's files, FOLDER/NAME_model.cif and
 * others, and the page FOLDER/NAME.html. ret_order [n] receives the numbers of the results, best
 * first. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_cofold_finish(const fm_cofold_input *input, const fm_cofold_target *target,
                                       const fm_cofold_result *results, uint32_t n,
                                       const fm_cofold_best *best, uint32_t *ret_order,
                                       fm_error *reterr);

#endif
