/* cofold_input.h: a prepared sample of a complex, read from its file. */
#ifndef FM_TRAINER_COFOLD_INPUT_H
#define FM_TRAINER_COFOLD_INPUT_H

#include "trainer/predict/complex/layout.h"
#include "trainer/step/af3/stored.h"

typedef struct fm_cofold_input {
    fm_arena arena; /* of everything */
    fm_af3_features features;
    fm_complex_layout layout; /* of the sample alone: chains are those of asym_id */
} fm_cofold_input;

/* Reads a file in either form of docs/reference/complex-samples.md. Labels are not used. Errors
 * have the path: those of fm_stored_sample_read. */
FM_MUST_USE fm_status fm_cofold_input_read(const char *path, fm_cofold_input *ret_input,
                                           fm_error *reterr);
void fm_cofold_input_release(fm_cofold_input *input);

#endif
