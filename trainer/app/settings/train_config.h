/* train_config.h: the settings of a training run: a preset, and the changes that a file makes to
 * it.
 *
 * The text form is INI: [section], key = value, comments after ';'. A preset gives every key a
 * value, itself or through the preset that it names as its base ([preset] base = NAME, before all
 * other keys). A file given with --config starts from a preset and has only the changed keys; it
 * has no [preset] section. Unknown sections and keys are refused with their line. The presets are
 * the files of trainer/presets/, embedded in the program. */
#ifndef FM_TRAINER_TRAIN_CONFIG_H
#define FM_TRAINER_TRAIN_CONFIG_H

#include "proto/base/bytes.h"
#include "proto/base/status.h"
#include "trainer/loss/complex_terms.h"
#include "trainer/loss/terms.h"
#include "trainer/model/af3/config.h"
#include "trainer/model/model_config.h"
#include "trainer/optim/optimizer.h"

enum { FM_PLAN_NAME_BYTES = 32 };

/* The networks that a run can train. Some keys belong to one of them, the others to both. */
typedef enum fm_network_kind { FM_NETWORK_AF2, FM_NETWORK_AF3 } fm_network_kind;

typedef enum fm_af3_trains { FM_AF3_TRAINS_ALL, FM_AF3_TRAINS_CONFIDENCE } fm_af3_trains;

typedef enum fm_af3_conformers {
    FM_AF3_CONFORMERS_STORED,
    FM_AF3_CONFORMERS_DRAWN
} fm_af3_conformers;

typedef struct fm_train_config {
    fm_network_kind network;
    fm_model_config model; /* of af2; n_res and n_seq follow from data */
    fm_af3_config af3;     /* of af3; shapes of samples follow from data, recompute from model */
    fm_complex_weights af3_loss;
    fm_af3_trains af3_trains;
    fm_af3_conformers af3_conformers;
    double memory_budget_gib; /* of device memory; 0: as fm_trainer_options says */
    struct {
        char plan[FM_PLAN_NAME_BYTES]; /* the server's plan by name, and changes to it; "": none */
        int64_t crop_size, max_msa_clusters, max_extra_msa, max_cycle, global_batch;
        uint32_t max_template_date;             /* rule of proto/template_date.h */
        int64_t max_atoms, max_msa, n_template; /* of af3 */
    } data;
    struct {
        int32_t dap, bp; /* ranks of a sample: parts of its arrays, branches of its blocks */
    } parallel;
    struct {
        double learning_rate, beta1, beta2, eps;
        fm_clip_policy clip;
        double clip_norm; /* of each sample's gradient before the average, or of the average */
        double ema_decay;
        int64_t warmup_samples; /* linear from 0 */
        int64_t
            decay_at_samples; /* from then on the rate is multiplied by decay_factor; 0 = never */
        double decay_factor;
        double l2;                   /* of af3, as the next one */
        int64_t decay_every_samples; /* 0 = never */
    } optimizer;
    double loss[FM_LOSS_TERMS]; /* weights of the terms: loss/terms.h */
    struct {
        int64_t structure_every;   /* steps between scores of predicted structures; 0 = never */
        int64_t eval_every;        /* steps between evaluations on other chains; 0 = never */
        int64_t eval_rollout_step; /* of af3: denoising steps there; 0 = af3.n_rollout_step */
    } metrics;
} fm_train_config;

/* Writes a line for each preset: its name and what it is for. Asserts that it fits. */
enum { FM_TRAIN_CONFIG_PRESETS_BYTES = 4096 };
void fm_train_config_list_presets(char out[FM_TRAIN_CONFIG_PRESETS_BYTES]);

/* Reads the preset of that name. FM_ERR_USAGE, listing the presets, when there is none. */
FM_MUST_USE fm_status fm_train_config_preset(const char *name, fm_train_config *ret_config,
                                             fm_error *reterr);

/* Reads the preset and applies the file at `path` to it; NULL applies nothing. Errors of the file
 * name it as their source. */
FM_MUST_USE fm_status fm_train_config_load(const char *preset, const char *path,
                                           fm_train_config *ret_config, fm_error *reterr);

/* Applies the text of a file to *config. On failure *config stays as it is. FM_ERR_USAGE with the
 * line, FM_ERR_LIMIT, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_train_config_parse(fm_bytes text, fm_train_config *config,
                                            fm_error *reterr);

/* Reads the settings that the checkpoint at `path` stores, `text` (fm_train_config_format). Errors
 * name the path as their source. */
FM_MUST_USE fm_status fm_train_config_read_stored(const char *text, const char *path,
                                                  fm_train_config *ret_config, fm_error *reterr);

/* Writes the keys that a run's numbers depend on (all but recompute, memory_budget and [metrics])
 * in the text form, for checkpoints: equal settings give equal text. A run without a plan has no
 * such key. Asserts that it fits. */
enum { FM_TRAIN_CONFIG_TEXT_BYTES = 8192 };
void fm_train_config_format(const fm_train_config *config, char out[FM_TRAIN_CONFIG_TEXT_BYTES]);
/* Writes the keys of the network that this text leaves out at one value, with that value: files
 * without such a key have it. Asserts that it fits. */
void fm_train_config_format_implied(const fm_train_config *config,
                                    char out[FM_TRAIN_CONFIG_TEXT_BYTES]);
/* Writes every key; fm_train_config_parse of that text gives the same settings. */
void fm_train_config_format_all(const fm_train_config *config,
                                char out[FM_TRAIN_CONFIG_TEXT_BYTES]);

/* Writes a Markdown table of all keys: section, key, values, unit, default and meaning, one row
 * each. The defaults are the values of `af3` for the keys that only AlphaFold 3 has, and else of
 * `af2`. Asserts that it fits. */
enum { FM_TRAIN_CONFIG_DOCUMENT_BYTES = 49152 };
void fm_train_config_document(const fm_train_config *af2, const fm_train_config *af3,
                              char out[FM_TRAIN_CONFIG_DOCUMENT_BYTES]);

#endif
