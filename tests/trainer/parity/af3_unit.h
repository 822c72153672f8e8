/* af3_unit.h: runs one module of AlphaFold 3 on a tape, with the inputs, weights and output
 * gradients of a file of the reference, and compares outputs and gradients.
 *
 * A unit is a name and a function that records it. The function declares inputs, adds parameters by
 * the reference's names below unit_scope, calls the model's code and declares the outputs:
 *
 *     static void record_transition(af3_unit *u) {
 *         fm_tensor_ref x = unit_input(u, "x");
 *         fm_swiglu_transition_weights w = fm_af3_transition(&u->scope, c, 4);
 *         unit_output(u, fm_op_swiglu_transition(&u->tape, "", x, &w, false, FM_KEEP));
 *     }
 *
 * Arrays of a file: in.X, w.P, gout.I, out.I, gin.X, gw.P, and the double precision results with
 * "f64." before the key. An input X has a gradient if the file has gin.X.
 *
 * A file of units of published width has samples in place of whole arrays, "UNIT/KEY.samples", and
 * its inputs, weights and output gradients follow from their names (af3_formula.h). */
#ifndef FM_TESTS_TRAINER_AF3_UNIT_H
#define FM_TESTS_TRAINER_AF3_UNIT_H

#include "tests/testing/model_configs.h"
#include "proto/npz.h"
#include "trainer/autograd/tape.h"
#include "trainer/model/af3/params.h"

#include <stdbool.h>

enum { AF3_UNIT_INPUTS = 48, AF3_UNIT_OUTPUTS = 16 };

typedef struct af3_unit_input {
    const char *name; /* "x" of in.x; NULL: made by the unit */
    int32_t state;
    fm_tensor_ref tensor;
    const double *values;
    bool differentiable;
} af3_unit_input;

typedef struct af3_unit_output {
    fm_tensor_ref tensor;
    int of;              /* compared with out.OF */
    int64_t first;       /* from this element on */
    int32_t gradient;    /* in the state; -1: none */
    const double *count; /* [elements] 0 for those that are not compared; NULL: all are */
} af3_unit_output;

typedef struct af3_unit {
    const char *name;
    const fm_npz *file;
    const fm_kernels *kernels;
    bool wide;    /* double precision */
    bool sampled; /* of published width */
    fm_arena arena;
    fm_params params;
    fm_state state;
    fm_tape tape;
    fm_scope scope; /* of the unit's module: names begin with "" */
    int n_input, n_output;
    af3_unit_input input[AF3_UNIT_INPUTS];
    af3_unit_output output[AF3_UNIT_OUTPUTS];
    void *memory;
    bool failed;
} af3_unit;

typedef struct af3_unit_entry {
    const char *name; /* of the file, without ".npz" */
    void (*record)(af3_unit *u);
    int n_keep; /* dropout masks in.keep0 and so on; such a unit runs on the CPU only */
    bool sampled;
} af3_unit_entry;

/* The registries; each ends with a name of NULL. */
extern const af3_unit_entry AF3_TRUNK_UNITS[];
extern const af3_unit_entry AF3_ATOM_UNITS[];
extern const af3_unit_entry AF3_LOSS_UNITS[];
extern const af3_unit_entry AF3_FULL_UNITS[]; /* all in one file */

/* -- for recording */

/* Returns the array of that whole key; a missing one ends the program. */
const fm_npy *unit_array(const af3_unit *u, const char *key);
/* Returns its extent along an axis. */
int64_t unit_extent(const af3_unit *u, const char *key, int axis);
/* Returns element i of an array of any type. */
double unit_value(const fm_npy *array, int64_t i);
/* Returns memory of the unit's life for `count` numbers. */
double *unit_numbers(af3_unit *u, int64_t count);
/* Returns the elements of an array as such numbers. */
double *unit_values(af3_unit *u, const fm_npy *array);

/* in.NAME as a tensor of the act type, with the array's shape. */
fm_tensor_ref unit_input(af3_unit *u, const char *name);
/* The same with another type and shape of as many elements. */
fm_tensor_ref unit_input_as(af3_unit *u, const char *name, fm_element element, int rank,
                            const int64_t *shape);
/* in.NAME of a sampled unit, of the act type. */
fm_tensor_ref unit_drawn(af3_unit *u, const char *name, int rank, const int64_t *shape);
/* A tensor of values that the unit has made, which must outlive it (unit_numbers). */
fm_tensor_ref unit_made(af3_unit *u, fm_element element, int rank, const int64_t *shape,
                        const double *values);
/* A mask of ones, of the act type. */
fm_tensor_ref unit_ones(af3_unit *u, int rank, const int64_t *shape);

/* Declares the next output: compared with out.I, and its gradient is gout.I. */
void unit_output(af3_unit *u, fm_tensor_ref tensor);
/* Declares a tensor that is a part of output `of`: elements `first` and so on. */
void unit_output_part(af3_unit *u, fm_tensor_ref tensor, int of, int64_t first);

/* -- values on the device, as doubles on the host */

void unit_upload(const af3_unit *u, void *device, fm_element element, int64_t count,
                 const double *values);
/* The values live as long as the unit. */
double *unit_download(af3_unit *u, const void *device, fm_element element, int64_t count);

/* -- running */

/* Runs the unit of `file` with that table and prints its lines. Returns whether everything
 * agrees. */
bool unit_run(const af3_unit_entry *entry, const fm_npz *file, const fm_kernels *kernels);

#endif
