/* af3_case.h: a run of the reference as a case for tests: the sizes from its JSON, and the sample
 * and its labels from its file. */
#ifndef FM_TESTS_TRAINER_AF3_CASE_H
#define FM_TESTS_TRAINER_AF3_CASE_H

#include "proto/base/json_tree.h"
#include "proto/npz.h"
#include "trainer/loss/complex.h"
#include "trainer/model/af3/sample.h"

typedef struct af3_case {
    const fm_npz *in; /* in/ and w/; the caller sets it, and the arena, before af3_case_open */
    fm_arena *arena;
    fm_json *json;
    fm_af3_config config;
    int64_t n_row; /* of the MSA in each cycle, without padding */
    fm_af3_sample sample;
    fm_complex_labels labels;
} af3_case;

/* Reads everything. `pad` tokens, rows of the MSA and twice as many atoms are added to the recorded
 * shapes. Errors of the JSON's file; a missing array ends the program. */
FM_MUST_USE fm_status af3_case_open(af3_case *s, const char *path, int pad, fm_error *reterr);
void af3_case_close(af3_case *s);

/* Returns the array PREFIX NAME, or NULL. */
const fm_npy *case_find(const fm_npz *file, const char *prefix, const char *name);
/* The same of the case's file; a missing one ends the program. */
const fm_npy *case_array(const af3_case *s, const char *prefix, const char *name);
double case_value(const fm_npy *array, int64_t i);
/* The data of in/NAME. */
const int64_t *case_integers(const af3_case *s, const char *name);
const float *case_floats(const af3_case *s, const char *name);
/* The number at "model.hidden.c_noise" of the JSON; `missing` where it has none. */
double case_number(const af3_case *s, const char *path, double missing);

#endif
