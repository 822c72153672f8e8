/* cofold_command.h: `foldmill predict` with weights of AlphaFold 3's network. Complexes come
 * one after the other, each with all seeds. Inputs are those of cofold_jobs.h.
 *
 * OUT gets a table and a page of all jobs, summary.csv and index.html. OUT/NAME gets the files of
 * each structure and a table of their scores; NAME is that of the job.
 * docs/guide/predict-complexes.md describes the files. */
#ifndef FM_TRAINER_COFOLD_COMMAND_H
#define FM_TRAINER_COFOLD_COMMAND_H

#include "trainer/app/prediction/predict_options.h"

typedef struct fm_cofold_counts {
    uint32_t n_done, n_failed, n_refused; /* complexes; n_refused: before anything was predicted */
    uint64_t n_structure, n_resumed;      /* finished; of these, by an earlier command */
} fm_cofold_counts;

/* Refuses options of the command line that do not belong to complexes. FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_cofold_check_settings(const fm_predict_settings *set, fm_error *reterr);
/* Refuses options of complexes for weights of AlphaFold2. FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_cofold_refuse_settings(const fm_predict_settings *set, fm_error *reterr);

/* Predicts all inputs with the model, whose sizes have been read. An input that fails is reported,
 * and the others are predicted. FM_ERR_CANCELLED after a signal, FM_ERR_IO when results cannot be
 * written, and what stops all inputs: errors of the weights and of the device. */
FM_MUST_USE fm_status fm_cofold_predict(const fm_predict_settings *set,
                                        const fm_predict_model_options *options,
                                        fm_predict_model *model, fm_cofold_counts *ret_counts,
                                        fm_error *reterr);

#endif
