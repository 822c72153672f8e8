/* predict_model.h: loads a model from a file of weights: a checkpoint of foldmill, AlphaFold's
 * .npz, or safetensors with OpenFold's names. The kind of file, the model's sizes and its variant
 * (templates, aligned error head) are read from the content. */
#ifndef FM_TRAINER_PREDICT_MODEL_H
#define FM_TRAINER_PREDICT_MODEL_H

#include "trainer/app/settings/train_config.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/infer/infer.h"

#include "proto/base/directory.h"
#include "proto/base/hash.h"

typedef struct fm_predict_model_options {
    const char *path;
    const char *device, *dtype;
    fm_checkpoint_set set;       /* of a checkpoint */
    uint64_t n_cluster, n_extra; /* rows of a sample; 0: a checkpoint's own, else 508 and 5,120 */
    double memory_budget_gib;    /* of the device; 0: all that is free */
    double recycle_tol;          /* as in fm_infer_options */
    bool dropout;
    uint32_t n_draw;         /* of MSA rows in each cycle */
    const fm_groups *groups; /* the ranks that share each chain; NULL: one */
} fm_predict_model_options;

typedef struct fm_predict_model {
    fm_train_config config; /* sizes of the model, rows of a sample */
    fm_infer *infer;
    fm_sha256 hash;    /* of the file; set by fm_predict_model_load */
    fm_path_mark mark; /* of the file whose sizes were read */
    char about[256];   /* "checkpoint of step 75000", for people */
    bool is_checkpoint;
} fm_predict_model;

/* Reads the sizes and the network. Returns FM_ERR_UNSUPPORTED for a file that has no weights or a
 * model of AlphaFold2 without a structure module, FM_ERR_DATA for weights that fit no model,
 * FM_ERR_USAGE for a folder, or an error of reading. */
FM_MUST_USE fm_status fm_predict_model_look(const fm_predict_model_options *options,
                                            fm_predict_model *ret_model, fm_error *reterr);
/* Opens the device, loads the values of a model of AlphaFold2 after fm_predict_model_look, and
 * hashes the file. FM_ERR_DATA if the file changed between the two. */
FM_MUST_USE fm_status fm_predict_model_load(const fm_predict_model_options *options,
                                            fm_predict_model *model, fm_error *reterr);
/* The same for a model of either network whose memory the caller has: loads the values into
 * params. */
FM_MUST_USE fm_status fm_predict_model_fill(const fm_predict_model_options *options,
                                            fm_predict_model *model, fm_params *params,
                                            fm_error *reterr);
void fm_predict_model_unload(fm_predict_model *model);

#endif
