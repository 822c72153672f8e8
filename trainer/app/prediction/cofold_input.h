/* cofold_input.h: a complex to predict: a prepared sample, read from its file. */
#ifndef FM_TRAINER_COFOLD_INPUT_H
#define FM_TRAINER_COFOLD_INPUT_H

#include "proto/base/hash.h"
#include "proto/description_files.h"
#include "trainer/predict/complex/layout.h"
#include "trainer/step/af3/stored.h"

enum {
    FM_COFOLD_NAME_BYTES = 256,
    FM_COFOLD_NAME_MOST = FM_DESCRIPTION_NAME_MOST, /* bytes */
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

/* Reads only what the file says of the job: its name, seeds and text. The same errors, but for
 * those of the sample's arrays. Either way the caller releases the input, also on failure. */
FM_MUST_USE fm_status fm_cofold_input_peek(const char *path, fm_cofold_input *ret_input,
                                           fm_error *reterr);

void fm_cofold_input_release(fm_cofold_input *input);

#endif
