/* checkpoint.h: saves the whole state of a run at the end of a step in one file, and loads it.
 *
 *     DIR/checkpoint-000000000100.safetensors
 *         model.<name>  adam_m.<name>       one tensor for each parameter and set, by the
 *         adam_v.<name> ema.<name>          parameter's logical name
 *         __metadata__                      format, step, samples, seed, token, config, snapshot,
 *                                           xxh3
 *
 * A save writes a temporary file beside the target, syncs it and renames it. A checkpoint therefore
 * appears whole or not at all, even if the process is killed. The file has logical names, not flat
 * buffers, so a program that fuses projections differently can read it.
 *
 * `xxh3` is the hash of step, samples, seed, token, config, snapshot and every tensor with its
 * name. A load checks it before it changes anything. docs/reference/checkpoint.md. */
#ifndef FM_TRAINER_CHECKPOINT_H
#define FM_TRAINER_CHECKPOINT_H

#include "trainer/tensor/params.h"

enum { FM_CHECKPOINT_FORMAT = 1, FM_CHECKPOINT_PATH_BYTES = 4096 };

/* What a checkpoint stores beside the parameters. */
typedef struct fm_checkpoint_state {
    uint64_t step, samples; /* updates made and samples seen, as the optimiser counts */
    uint64_t seed;
    const char *token;  /* position in the data stream, as text of the caller */
    const char *config; /* the run's settings as text; a resumed run must have the same */
    /* the data that the run trains on, as text of the caller; NULL = not known */
    const char *snapshot;
} fm_checkpoint_state;

/* Writes "DIR/checkpoint-000000000100.safetensors" to out. FM_ERR_USAGE if it does not fit. */
FM_MUST_USE fm_status fm_checkpoint_path(const char *folder, uint64_t step,
                                         char out[FM_CHECKPOINT_PATH_BYTES], fm_error *reterr);

/* Saves the parameters, both moments and the average. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_checkpoint_save(const char *path, const fm_params *params,
                                         const fm_checkpoint_state *state, fm_error *reterr);

/* Reads a file's data beside the parameters; the texts are allocated in the arena. FM_ERR_CORRUPT;
 * FM_ERR_UNSUPPORTED for another format. */
FM_MUST_USE fm_status fm_checkpoint_peek(const char *path, fm_arena *arena,
                                         fm_checkpoint_state *ret_state, fm_error *reterr);

/* Loads all four buffers of params from a file and refreshes the copy that ops read. `state` is the
 * result of fm_checkpoint_peek. FM_ERR_CORRUPT if the file is damaged or belongs to another model;
 * params are then unchanged. */
FM_MUST_USE fm_status fm_checkpoint_load(const char *path, fm_params *params,
                                         const fm_checkpoint_state *state, fm_error *reterr);

/* Finds the newest checkpoint in the folder with a step below `before`. FM_ERR_NOT_FOUND if there
 * is none. */
FM_MUST_USE fm_status fm_checkpoint_find(const char *folder, uint64_t before, uint64_t *ret_step,
                                         fm_error *reterr);

/* Removes old checkpoints and temporary files of killed saves. It keeps the newest `keep_last`
 * checkpoints and those whose step is a multiple of keep_every (0 = none). */
FM_MUST_USE fm_status fm_checkpoint_prune(const char *folder, uint32_t keep_last,
                                          uint64_t keep_every, fm_error *reterr);

#endif
