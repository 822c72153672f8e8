/* cofold_work.h: the work of predicting complexes, seed by seed: that of the command alone, of a
 * rank, and of a command that gathers what its ranks have made. */
#ifndef FM_TRAINER_COFOLD_WORK_H
#define FM_TRAINER_COFOLD_WORK_H

#include "trainer/app/prediction/cofold_results.h"
#include "trainer/app/prediction/predict_group.h"
#include "trainer/app/prediction/predict_options.h"

#include <limits.h>

typedef struct fm_cofold_work {
    const fm_predict_settings *set;
    uint32_t n_seed, seed[FM_PREDICT_MOST_SEEDS]; /* of the command line */
    fm_cofold_options options;
    fm_sha256 weights;               /* of their file */
    fm_cofold *cofold;               /* NULL: ranks compute */
    fm_predict_group *group;         /* of this rank; NULL: the command itself */
    bool is_silent;                  /* prints no lines about structures */
    bool has_failed_alone;           /* an error did not come to the other ranks of the group */
    uint64_t n_structure, n_resumed; /* finished; of these, by an earlier command */
} fm_cofold_work;

/* Takes options and sizes. `group` is NULL in the command itself. FM_ERR_UNSUPPORTED for heads with
 * other bins than those of the scores. */
FM_MUST_USE fm_status fm_cofold_work_make(const fm_predict_settings *set,
                                          const fm_predict_model *model, fm_predict_group *group,
                                          fm_cofold_work *ret_work, fm_error *reterr);
/* Opens the device and loads the weights. The errors of fm_device_find, fm_cofold_create and
 * fm_predict_model_fill. */
FM_MUST_USE fm_status fm_cofold_work_load(fm_cofold_work *work,
                                          const fm_predict_model_options *options,
                                          fm_predict_model *model, fm_error *reterr);
void fm_cofold_work_end(fm_cofold_work *work);

/* Whether an error is about one input alone, so that the others are predicted. */
bool fm_cofold_is_of_input(fm_status status);

/* A complex in hand. */
typedef struct fm_cofold_complex {
    fm_cofold_input input;
    fm_cofold_target target;
    char folder[PATH_MAX];
    uint32_t n_seed;
    const uint32_t *seed;      /* [n_seed] */
    fm_cofold_result *results; /* [n_seed, n_structure] */
    bool *is_done;             /* [n_structure] of the seed in hand */
    fm_cofold_best best;
    uint32_t first; /* number of the best result; set by fm_cofold_complex_finish */
} fm_cofold_complex;

/* The seeds of the command line, else those of the job. */
const uint32_t *fm_cofold_seeds(const fm_cofold_work *work, const fm_cofold_input *input,
                                uint32_t *ret_n);

/* Begins a complex whose input has been read into the complex, and makes its folder. A work that
 * computes checks that it fits, which is collective; `says_need`: prints what it needs. Errors have
 * the path: of fm_cofold_check, of fm_cofold_find_need, FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_cofold_complex_begin(fm_cofold_work *work, const char *path,
                                              bool says_need, fm_cofold_complex *complex,
                                              fm_error *reterr);
/* Makes the structures of seed i, and with --resume keeps those that an earlier command has made.
 * FM_ERR_CANCELLED after a signal. Collective in a group. */
FM_MUST_USE fm_status fm_cofold_complex_make(fm_cofold_work *work, fm_cofold_complex *complex,
                                             uint32_t i, fm_error *reterr);
/* Takes the structures of all seeds, which ranks have made, from their records. FM_ERR_NOT_FOUND
 * for one that is missing; FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_cofold_complex_gather(fm_cofold_work *work, fm_cofold_complex *complex,
                                               fm_error *reterr);
/* Writes what compares the structures of all seeds, and the rows of the summary. FM_ERR_IO,
 * FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_cofold_complex_finish(fm_cofold_work *work, fm_cofold_complex *complex,
                                               FILE *summary, fm_error *reterr);
/* Releases the input, too. */
void fm_cofold_complex_release(fm_cofold_complex *complex);

#endif
