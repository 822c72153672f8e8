/* stored.h: reads a stored sample of a complex, an .npz archive of features and labels
 * (docs/reference/complex-samples.md).
 *
 * Samples come from outside. Before anything is used, every array's type, shape and values are
 * checked, and that the arrays agree with each other. Indices are in their range, numbers are
 * finite, sizes are bounded. Errors say the array, the element, what was found and what was
 * expected. */
#ifndef FM_TRAINER_STEP_AF3_STORED_H
#define FM_TRAINER_STEP_AF3_STORED_H

#include "proto/base/bytes.h"
#include "proto/npz.h"
#include "trainer/step/af3/features.h"

/* Limits of a sample. */
enum {
    FM_STORED_TOKENS = 4096,
    FM_STORED_ATOMS = 65536,
    FM_STORED_MSA = 65536,
    FM_STORED_TEMPLATES = 20,
    FM_STORED_SLOTS = 24, /* of a token's atoms */
};
#define FM_STORED_FILE_BYTES ((size_t)1 << 30)

typedef struct fm_stored_sample {
    fm_arena arena;           /* of all arrays */
    fm_af3_features features; /* without slot and cycles; MSA rows are drawn */
} fm_stored_sample;

/* Checks the arrays of an archive and describes them as features, which borrow them. A compact
 * sample (proto/complex_sample.h) is expanded into the arena first, and orders of atoms are made
 * there. FM_ERR_DATA, FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_stored_sample_check(const fm_npz *npz, fm_arena *arena,
                                             fm_af3_features *ret_features, fm_error *reterr);

/* The same for a prediction, which reads no labels of bonds and of equivalent atoms. A compact
 * sample may be larger (FM_COMPLEX_PREDICTED_TOKENS), and its templates stay as atoms. */
FM_MUST_USE fm_status fm_stored_sample_check_predicted(const fm_npz *npz, fm_arena *arena,
                                                       fm_af3_features *ret_features,
                                                       fm_error *reterr);

/* Reads an archive, which the sample does not refer to afterwards. FM_ERR_DATA means that the
 * sample does not fit the format. Other errors are those of fm_npz_parse. */
FM_MUST_USE fm_status fm_stored_sample_parse(fm_bytes archive, fm_stored_sample *ret_sample,
                                             fm_error *reterr);

/* Reads a file; errors have its path. FM_ERR_NOT_FOUND, FM_ERR_IO, FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_stored_sample_read(const char *path, fm_stored_sample *ret_sample,
                                            fm_error *reterr);

void fm_stored_sample_release(fm_stored_sample *sample);

#endif
