/* checkpoint.h: all that a run is at the end of a step, in one file that appears whole or not at
 * all.
 *
 *     DIR/checkpoint-000000000100.safetensors
 *         model.<name>  adam_m.<name>  adam_v.<name>  ema.<name>    one tensor a parameter, by its
 * logical name
 *         __metadata__  format, step, samples, seed, token, config, snapshot, xxh3
 *
 * Logical names, not the flat buffers: another fusion of projections reads the same file. `xxh3` is
 * over step, samples, seed, token, config, snapshot and every tensor with its name, and is checked
 * before anything is taken over. docs/formats/checkpoint.md. */
#ifndef FM_TRAINER_CHECKPOINT_H
#define FM_TRAINER_CHECKPOINT_H

#include "trainer/tensor/params.h"

enum { FM_CHECKPOINT_FORMAT = 1, FM_CHECKPOINT_PATH_BYTES = 4096 };

/* What is kept beside the parameters. */
typedef struct fm_checkpoint_state {
    uint64_t step, samples; /* updates made, samples seen: the optimiser's */
    uint64_t seed;
    const char *token;    /* the data stream's place, in the caller's own words */
    const char *config;   /* the run's settings as text; a resumed run must have the same */
    const char *snapshot; /* what it trains on, the caller's words again; NULL = not known */
} fm_checkpoint_state;

/* "DIR/checkpoint-000000000100.safetensors" into out. FM_ERR_USAGE when it does not fit. */
FM_MUST_USE fm_status fm_checkpoint_path(const char *folder, uint64_t step,
                                         char out[FM_CHECKPOINT_PATH_BYTES], fm_error *reterr);

/* Saves parameters, both moments and the average. */
FM_MUST_USE fm_status fm_checkpoint_save(const char *path, const fm_params *params,
                                         const fm_checkpoint_state *state, fm_error *reterr);

/* What a file keeps beside the parameters; the texts lie in the arena. FM_ERR_CORRUPT,
 * FM_ERR_UNSUPPORTED (format). */
FM_MUST_USE fm_status fm_checkpoint_peek(const char *path, fm_arena *arena,
                                         fm_checkpoint_state *ret_state, fm_error *reterr);

/* Loads a file into params: all four buffers, and the copy that ops read is refreshed. `state` is
 * what fm_checkpoint_peek gave. FM_ERR_CORRUPT when it is damaged or another model's; params are
 * then as they were. */
FM_MUST_USE fm_status fm_checkpoint_load(const char *path, fm_params *params,
                                         const fm_checkpoint_state *state, fm_error *reterr);

/* Step of the newest checkpoint in the folder that is below `before`; FM_ERR_NOT_FOUND when there
 * is none. */
FM_MUST_USE fm_status fm_checkpoint_find(const char *folder, uint64_t before, uint64_t *ret_step,
                                         fm_error *reterr);

/* Removes all but the newest `keep_last` and those whose step is a multiple of keep_every (0 =
 * none), and what killed saves have left. */
FM_MUST_USE fm_status fm_checkpoint_prune(const char *folder, uint32_t keep_last,
                                          uint64_t keep_every, fm_error *reterr);

#endif
