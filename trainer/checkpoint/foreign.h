/* foreign.h: imports and exports parameters in files with the names and layouts of other programs.
 *
 * | naming     | names                                                        | layout          |
 * |------------|--------------------------------------------------------------|-----------------|
 * | foldmill   | our own; in our checkpoints behind "ema." or "model."; those | [c_out, c_in]   |
 * |            | of AlphaFold 3 are its reference's, there after "module." or |                 |
 * |            | "model.module."                                              |                 |
 * | openfold   | OpenFold's modules (fm_param.openfold), with no prefix,      | [c_out, c_in]   |
 * |            | "model.", "module.", "ema.params." or "state_dict.model."    |                 |
 * | openfold-1 | the same, as OpenFold's first releases name them             | [c_out, c_in]   |
 * | deepmind   | params_model_*.npz: "alphafold/alphafold_iteration/" +       | [c_in, c_out],  |
 * |            | fm_param.deepmind; one array holds a parameter of all        | heads as axes   |
 * |            | blocks of a stack                                            |                 |
 *
 * The naming and the prefix of a file are detected: those under which most names are found. */
#ifndef FM_TRAINER_FOREIGN_H
#define FM_TRAINER_FOREIGN_H

#include "trainer/checkpoint/weights_file.h"
#include "trainer/tensor/params.h"

typedef enum fm_weight_names {
    FM_NAMING_FOLDMILL,
    FM_NAMING_OPENFOLD,
    FM_NAMING_OPENFOLD_1, /* as OpenFold 1.0 has them */
    FM_NAMING_DEEPMIND,
    FM_N_NAMING
} fm_weight_names;

/* The naming's word: "foldmill", "openfold", "openfold-1", "deepmind". */
const char *fm_weight_names_word(fm_weight_names naming);

enum { FM_FOREIGN_RANK = 4 };

/* One array of a file: one parameter, or the same parameter of all blocks of a stack. */
typedef struct fm_foreign_array {
    const char *name; /* without the file's prefix */
    int rank;
    uint64_t shape[FM_FOREIGN_RANK];
    bool transposed;    /* a slice is [c_in, c_out], ours [c_out, c_in] */
    uint32_t n_slice;   /* 1, or the number of blocks of the stack */
    const int32_t *row; /* [n_slice] rows of the parameter table, by block */
} fm_foreign_array;

typedef struct fm_foreign_list {
    size_t n_array;
    fm_foreign_array *array; /* sorted by name */
} fm_foreign_list;

/* Returns whether the table has names in that naming. AlphaFold 3 has foldmill's names only, which
 * are its reference's. */
bool fm_foreign_has_names(const fm_params *params, fm_weight_names naming);

/* Lists the arrays that together hold the whole table under a naming; allocated in the arena.
 * FM_ERR_LIMIT if it is full. */
FM_MUST_USE fm_status fm_foreign_list_arrays(const fm_params *params, fm_weight_names naming,
                                             fm_arena *arena, fm_foreign_list *ret_list,
                                             fm_error *reterr);

typedef struct fm_import_options {
    bool allow_missing; /* parameters that the file lacks keep their value */
    bool allow_extra;   /* arrays that the model lacks are ignored */
} fm_import_options;

typedef struct fm_import_report {
    fm_weight_names naming;
    const char *prefix;                 /* comes before every name: "", "model.", ... */
    size_t n_array;                     /* arrays imported */
    size_t n_missing, n_extra, n_wrong; /* n_wrong: of another shape or dtype */
    /* Arrays that do not begin with the prefix, which are something else, such as the state of an
     * optimizer; the name of the first of them. NULL: there are none. */
    size_t n_outside;
    const char *outside;
    /* one line for each missing, extra or wrong array, with what was expected; "" if there is
     * none */
    const char *text;
} fm_import_report;

/* Compares the names, shapes and dtypes of an open file with the parameter table, which needs no
 * device memory. The report is allocated in the arena. FM_ERR_FORMAT if no name of any naming is
 * found; FM_ERR_LIMIT if the arena is full. */
FM_MUST_USE fm_status fm_foreign_compare(const fm_weights_file *file, const fm_params *params,
                                         fm_arena *arena, fm_import_report *ret_report,
                                         fm_error *reterr);

/* Returns what an error adds about a file of a network that foldmill does not have: " They are
 * AlphaFold-Multimer's ...", or "". Static. */
const char *fm_foreign_name_network(const fm_weights_file *file);

/* Imports the values of an open file into master, into average where params has one, and into the
 * copy that ops read: all of them or none. The report is allocated in the arena. It is filled in
 * once names are compared, also when an error follows. FM_ERR_DATA means that a value is not
 * finite, or that arrays are missing, extra or of another shape and the options do not allow this.
 * FM_ERR_FORMAT means that the file has no name of any known naming. */
FM_MUST_USE fm_status fm_foreign_import_file(const fm_weights_file *file, fm_params *params,
                                             const fm_import_options *options, fm_arena *arena,
                                             fm_import_report *ret_report, fm_error *reterr);
/* Opens the file at `path` and does the same; errors carry the path. */
FM_MUST_USE fm_status fm_foreign_import(const char *path, fm_params *params,
                                        const fm_import_options *options, fm_arena *arena,
                                        fm_import_report *ret_report, fm_error *reterr);

/* Writes one flat buffer of the parameters (params->ema or params->master) under a naming. Names
 * have no prefix except DeepMind's own. `settings`: as fm_weights_file_write. */
FM_MUST_USE fm_status fm_foreign_export(const char *path, fm_weights_format format,
                                        fm_weight_names naming, const fm_params *params,
                                        const void *flat, const char *settings, fm_arena *arena,
                                        fm_error *reterr);

#endif
