/* cofold_input.h: a complex to predict: a prepared sample, read from its file, or made of a
 * description by `foldmill parse job`. */
#ifndef FM_TRAINER_COFOLD_INPUT_H
#define FM_TRAINER_COFOLD_INPUT_H

#include "proto/base/hash.h"
#include "trainer/predict/complex/layout.h"
#include "trainer/step/af3/stored.h"

enum {
    FM_COFOLD_NAME_BYTES = 256,
    FM_COFOLD_NAME_MOST = 180, /* bytes: names of files have 70 more, and at most 255 */
};

typedef struct fm_cofold_input {
    fm_arena arena; /* of everything */
    fm_af3_features features;
    char name[FM_COFOLD_NAME_BYTES]; /* of the job, as a folder's; of a bare sample, of its file */
    fm_sha256 hash;                  /* of all arrays but those of the job, such as its seeds */
    uint32_t n_seed;
    const uint32_t *seeds; /* [n_seed] of the job; none of a bare sample */
    fm_bytes data;         /* the job as AlphaFold 3's JSON; size 0: there is none */
    bool has_names;
    fm_complex_atoms names; /* with has_names */
    /* Without names it is of the sample alone: chains are those of asym_id. */
    fm_complex_layout layout;
} fm_cofold_input;

/* Writes the name that a bare sample has: that of its file, without folders and ending. */
void fm_cofold_input_name(const char *path, char out[FM_COFOLD_NAME_BYTES]);

/* Reads a file in either form of docs/reference/complex-samples.md. Labels are not used. Errors
 * have the path: those of fm_stored_sample_read. */
FM_MUST_USE fm_status fm_cofold_input_read(const char *path, fm_cofold_input *ret_input,
                                           fm_error *reterr);

typedef struct fm_cofold_describe {
    const char *components; /* the dictionary */
    bool single_sequence;
} fm_cofold_describe;

/* Whether the file is a prepared sample, by its ending. */
bool fm_cofold_input_is_prepared(const char *path);
/* Makes the prepared sample `out` of the description `path`, which has one job. What is wrong with
 * it is printed by the program that reads it; FM_ERR_DATA then. FM_ERR_CANCELLED, FM_ERR_IO. */
FM_MUST_USE fm_status fm_cofold_input_prepare(const char *path, const fm_cofold_describe *describe,
                                              const char *out, fm_error *reterr);
void fm_cofold_input_release(fm_cofold_input *input);

#endif
