/* train_config.h: everything a training run is told beside its data: a preset, or a file of the same
 * form.
 *
 * INI: [section], key = value, comments after ';'. A preset names every key; a file given with
 * --config starts from a preset and changes what it names. Unknown sections and keys are refused
 * with their line. The presets are the files of trainer/presets/, carried inside the program. */
#ifndef FM_TRAINER_TRAIN_CONFIG_H
#define FM_TRAINER_TRAIN_CONFIG_H

#include "proto/base/bytes.h"
#include "proto/base/status.h"
#include "trainer/model/model_config.h"
#include "trainer/optim/optimizer.h"

enum { FM_PLAN_NAME_BYTES = 32 };

typedef struct fm_train_config {
    fm_model_config model;    /* n_res and n_seq follow from data */
    double memory_budget_gib; /* of device memory; 0: as fm_trainer_options says */
    struct {
        char plan[FM_PLAN_NAME_BYTES]; /* the server's plan by name, and changes to it */
        int64_t crop_size, max_msa_clusters, max_extra_msa, max_cycle, global_batch;
        uint32_t max_template_date; /* YYYYMMDD, proto/base/date.h; 0 = any */
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
    } optimizer;
    struct {
        double distogram, masked_msa;
        /* Where the model has a structure module. */
        double backbone_fape, side_chain_fape, torsion, plddt, resolved, aligned_error, violation;
    } loss; /* weights */
    struct {
        int64_t structure_every; /* steps between scores of predicted structures; 0 = never */
    } metrics;
} fm_train_config;

/* The preset of that name. FM_ERR_USAGE lists the presets there are. */
FM_MUST_USE fm_status fm_train_config_preset(const char *name, fm_train_config *ret_config,
                                             fm_error *reterr);

/* The preset, changed by the file at `path` (NULL = as it is). Errors of the file carry its name.
 */
FM_MUST_USE fm_status fm_train_config_load(const char *preset, const char *path,
                                           fm_train_config *ret_config, fm_error *reterr);

/* Changes *config by the text of a file. On failure *config is as it was. */
FM_MUST_USE fm_status fm_train_config_parse(fm_bytes text, fm_train_config *config,
                                            fm_error *reterr);

/* The keys that a run's numbers depend on (all but recompute, memory_budget and [metrics]) as text
 * of the same form, for checkpoints: equal settings give equal text. Asserts that it fits. */
enum { FM_TRAIN_CONFIG_TEXT_BYTES = 8192 };
void fm_train_config_format(const fm_train_config *config, char out[FM_TRAIN_CONFIG_TEXT_BYTES]);
/* The same with every key: what fm_train_config_parse makes the same config of. */
void fm_train_config_format_all(const fm_train_config *config,
                                char out[FM_TRAIN_CONFIG_TEXT_BYTES]);

#endif
