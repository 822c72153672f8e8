/* infer_preset.h: finds the preset whose model fits a file of weights.
 *
 * A preset fits if the file has exactly the arrays of the preset's model, under one of the namings
 * of foreign.h. Some sizes are read from the file before the comparison, so that variations of a
 * preset fit too:
 *
 *     n_block, n_extra_block, n_template_block   number of blocks of each stack
 *     n_template                                 0 if the file has no template arrays
 *     n_structure_iteration                      0 if the file has no structure module
 *     n_aligned_error_bin                        bins of the aligned error head; 0 without it
 *
 * A checkpoint, and a file that `foldmill export-weights` wrote as safetensors, have all settings
 * of the model. They are taken instead, where the arrays agree with them. */
#ifndef FM_TRAINER_INFER_PRESET_H
#define FM_TRAINER_INFER_PRESET_H

#include "trainer/app/settings/train_config.h"
#include "trainer/checkpoint/weights_file.h"
#include "trainer/tensor/params.h"

typedef struct fm_inferred_preset {
    const char *name;    /* of the preset */
    char changes[256];   /* sizes read from the file, "n_template = 0, ..."; "" = as the preset */
    bool is_stored;      /* the file has settings of the model, and they were taken */
    size_t n_difference; /* arrays that are missing, extra or of another shape; 0 = it fits */
} fm_inferred_preset;

/* Finds the preset with the fewest differences, and of equally good ones the one with the fewest
 * changes; af2-initial is the first to be tried. `config_path` (NULL = none) is a file of settings
 * that applies to every preset; with it, no size is read from the weights. *ret_config has the
 * settings of the preset with its changes. Memory of the arena is released again.
 * FM_ERR_FORMAT if no array has a known name; errors of the file of settings; FM_ERR_LIMIT,
 * FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_preset_infer(const fm_weights_file *file, const char *config_path,
                                      fm_arena *arena, fm_inferred_preset *ret_preset,
                                      fm_train_config *ret_config, fm_error *reterr);

/* Writes the settings of the model, with which fm_foreign_export keeps what no array shows. */
void fm_preset_format_model(const fm_train_config *config, char out[FM_TRAIN_CONFIG_TEXT_BYTES]);

/* Writes "key = value, ..." for the settings of the model in which *now differs, as far as they
 * fit. */
void fm_preset_list_changes(const fm_train_config *before, const fm_train_config *now, char *out,
                            size_t out_bytes);

/* Writes "key = value, ..." for what decides the values of a model of AlphaFold2 and is in no
 * array's shape, so that a preset has decided it; "" for other models. */
enum { FM_PRESET_ASSUMED_BYTES = 128 };
void fm_preset_list_assumed(const fm_train_config *config, char out[FM_PRESET_ASSUMED_BYTES]);

#endif
