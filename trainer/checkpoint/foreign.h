/* foreign.h: parameters to and from files with names and layouts of others.
 *
 * | naming   | names | layout |
 * |----------|-------|--------|
 * | foldmill | the table's own; in our checkpoints behind "ema." or "model." | [c_out, c_in] |
 * | openfold | OpenFold's modules (fm_param.openfold), behind nothing, "model." or "module."; those
 * |          | of its first releases are understood, too | [c_out, c_in] |
 * | deepmind | params_model_*.npz: "alphafold/alphafold_iteration/" + fm_param.deepmind; one array
 * |          | holds a parameter of all blocks of a stack | [c_in, c_out], heads apart |
 *
 * Which naming and prefix a file has is found out: the one under which most names are there. */
#ifndef FM_TRAINER_FOREIGN_H
#define FM_TRAINER_FOREIGN_H

#include "trainer/checkpoint/weights_file.h"
#include "trainer/tensor/params.h"

typedef enum fm_weight_names {
    FM_NAMING_FOLDMILL,
    FM_NAMING_OPENFOLD,
    FM_NAMING_OPENFOLD_1, /* of OpenFold 1.0 */
    FM_NAMING_DEEPMIND,
    FM_N_NAMING
} fm_weight_names;

/* "foldmill", "openfold", "openfold-1", "deepmind". */
const char *fm_weight_names_word(fm_weight_names naming);

enum { FM_FOREIGN_RANK = 4 };

/* One array of a file: a parameter, or one parameter of all blocks of a stack. */
typedef struct fm_foreign_array {
    const char *name; /* without a prefix that a file may have */
    int rank;
    uint64_t shape[FM_FOREIGN_RANK];
    bool transposed;    /* a slice is [c_in, c_out], ours [c_out, c_in] */
    uint32_t n_slice;   /* 1, or the blocks of the stack */
    const int32_t *row; /* [n_slice] rows of the table, by block */
} fm_foreign_array;

typedef struct fm_foreign_list {
    size_t n_array;
    fm_foreign_array *array; /* sorted by name */
} fm_foreign_list;

/* The arrays that hold the whole table under a naming; in the arena. FM_ERR_LIMIT when it is full.
 */
FM_MUST_USE fm_status fm_foreign_list_arrays(const fm_params *params, fm_weight_names naming,
                                             fm_arena *arena, fm_foreign_list *ret_list,
                                             fm_error *reterr);

typedef struct fm_import_options {
    bool allow_missing; /* what the file lacks keeps its value */
    bool allow_extra;   /* what the model lacks is passed over */
} fm_import_options;

typedef struct fm_import_report {
    fm_weight_names naming;
    const char *prefix;                 /* before every name: "", "model.", ... */
    size_t n_array;                     /* taken over */
    size_t n_missing, n_extra, n_wrong; /* of names; wrong shape or dtype */
    const char *text; /* a line for each of those, with what was expected; "" when there are none */
} fm_import_report;

/* Takes a file's values over into master and average (and the copy that ops read), all or nothing.
 * The report lies in the arena and is filled in whenever names could be compared. FM_ERR_DATA when
 * names are missing, extra or of another shape and that is not allowed, or when a value is not
 * finite; FM_ERR_FORMAT when no name of any naming is there. */
FM_MUST_USE fm_status fm_foreign_import(const char *path, fm_params *params,
                                        const fm_import_options *options, fm_arena *arena,
                                        fm_import_report *ret_report, fm_error *reterr);

/* Writes one flat buffer of the parameters (params->ema or params->master) under a naming, without
 * a prefix but DeepMind's own. */
FM_MUST_USE fm_status fm_foreign_export(const char *path, fm_weights_format format,
                                        fm_weight_names naming, const fm_params *params,
                                        const void *flat, fm_arena *arena, fm_error *reterr);

#endif
