/* checkpoint.h: saves the whole state of a run in one file, and loads it: after an update, or
 * between two samples of a batch.
 *
 *     DIR/checkpoint-000000000100.safetensors       after update 100
 *     DIR/checkpoint-000000000100+3.safetensors     and 3 samples of the next update
 *         model.<name>  adam_m.<name>       one tensor for each parameter and set, by the
 *         adam_v.<name> ema.<name>          parameter's logical name
 *         sum.<name>                        inside a batch: its sum of gradients so far
 *         __metadata__                      format, step, samples, seed, token, config, xxh3,
 *                                           snapshot, and the notes of fm_checkpoint_state
 *
 * A save writes a temporary file beside the target, syncs it and renames it. A checkpoint therefore
 * appears whole or not at all, even if the process is killed. The file has logical names, not flat
 * buffers, so a program that fuses projections differently can read it.
 *
 * `xxh3` is the hash of step, samples, seed, token, config, snapshot and every tensor but `sum`
 * with its name. `xxh3_more` is the hash of the other notes and of `sum`, where there are any; it
 * is separate so that `xxh3` means the same in files without them. A load checks both before it
 * changes anything. docs/reference/checkpoint.md. */
#ifndef FM_TRAINER_CHECKPOINT_H
#define FM_TRAINER_CHECKPOINT_H

#include "trainer/tensor/params.h"

enum { FM_CHECKPOINT_FORMAT = 1, FM_CHECKPOINT_PATH_BYTES = 4096 };

/* How far a run has come: updates made, and samples of the next update that are done with. The
 * order of places is the order of steps, then of samples. */
typedef struct fm_checkpoint_place {
    uint64_t step;
    uint32_t n_sample;
} fm_checkpoint_place;

/* A place behind all others. */
#define FM_CHECKPOINT_END ((fm_checkpoint_place){UINT64_MAX, UINT32_MAX})

/* What a checkpoint stores beside the parameters. */
typedef struct fm_checkpoint_state {
    uint64_t step, samples; /* updates made and samples seen, as the optimiser counts */
    uint64_t seed;
    const char *token;  /* position in the data stream, as text of the caller */
    const char *config; /* the run's settings as text; a resumed run must have the same */
    /* the data that the run trains on, as text of the caller; NULL = not known */
    const char *snapshot;
    /* Texts of the caller; NULL = none, as in files of older programs. What else decides the run's
     * bits; the deliberate changes so far; the samples that were skipped; the batch in hand. */
    const char *identity, *history, *skipped, *batch;
    uint32_t n_pending; /* samples in the sum of gradients; 0 = no sum is stored */
    void *sum; /* the sum, laid out as params->gradient; set by the caller of save and load;
                           NULL: load leaves it out */
} fm_checkpoint_state;

/* Writes "DIR/checkpoint-000000000100.safetensors", or "DIR/checkpoint-000000000100+3.safetensors"
 * inside a batch, to out. FM_ERR_USAGE if it does not fit. */
FM_MUST_USE fm_status fm_checkpoint_path(const char *folder, fm_checkpoint_place place,
                                         char out[FM_CHECKPOINT_PATH_BYTES], fm_error *reterr);

/* Saves the parameters, both moments, the average and, if n_pending is not 0, the sum. FM_ERR_IO,
 * FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_checkpoint_save(const char *path, const fm_params *params,
                                         const fm_checkpoint_state *state, fm_error *reterr);

/* Whether a file is a checkpoint: safetensors with the settings in its notes. False for one that
 * cannot be opened, for which other readers have a message. */
bool fm_checkpoint_is(const char *path);

/* Reads a file's data beside the parameters; the texts are allocated in the arena. FM_ERR_CORRUPT;
 * FM_ERR_UNSUPPORTED for another format. */
FM_MUST_USE fm_status fm_checkpoint_peek(const char *path, fm_arena *arena,
                                         fm_checkpoint_state *ret_state, fm_error *reterr);

/* Loads all four buffers of params from a file, and state->sum if it is set and the file has one,
 * and refreshes the copy that ops read. `state` is the result of fm_checkpoint_peek.
 * FM_ERR_CORRUPT if the file is damaged or belongs to another model; nothing is changed then. */
FM_MUST_USE fm_status fm_checkpoint_load(const char *path, fm_params *params,
                                         const fm_checkpoint_state *state, fm_error *reterr);

/* Loads parameters and average from a file whose model has the parameters `saved`, a table without
 * memory. Only parameters that `params` has as well are loaded. Others keep their values, and the
 * moments are not loaded. Rows of the same name must have the same shape. Errors as above. */
FM_MUST_USE fm_status fm_checkpoint_load_shared(const char *path, const fm_params *saved,
                                                fm_params *params, const fm_checkpoint_state *state,
                                                fm_error *reterr);

/* The sets of values that a model can be evaluated with. */
typedef enum fm_checkpoint_set {
    FM_CHECKPOINT_MODEL, /* the parameters themselves */
    FM_CHECKPOINT_EMA    /* their moving average */
} fm_checkpoint_set;

/* Loads one set into params->master and refreshes the copy that ops read: params as of
 * fm_params_allocate_values. The whole file is read and checked. Errors as above. */
FM_MUST_USE fm_status fm_checkpoint_load_set(const char *path, fm_params *params,
                                             const fm_checkpoint_state *state,
                                             fm_checkpoint_set set, fm_error *reterr);

/* Finds the newest checkpoint in the folder that is before `before`. FM_ERR_NOT_FOUND if there is
 * none; FM_ERR_IO, and never that, if the folder cannot be read to its end. */
FM_MUST_USE fm_status fm_checkpoint_find(const char *folder, fm_checkpoint_place before,
                                         fm_checkpoint_place *ret_place, fm_error *reterr);

/* Refuses a path that is a folder: FM_ERR_USAGE. The message names what was `expected`, such as "a
 * checkpoint", or the newest checkpoint if the folder is that of a run. FM_ERR_IO. */
FM_MUST_USE fm_status fm_checkpoint_refuse_folder(const char *path, const char *expected,
                                                  fm_error *reterr);

/* fm_checkpoint_peek of a file that a user named. It refuses a folder as above, and the message of
 * FM_ERR_CORRUPT adds what was expected. */
FM_MUST_USE fm_status fm_checkpoint_peek_named(const char *path, fm_arena *arena,
                                               fm_checkpoint_state *ret_state, fm_error *reterr);

/* Removes old checkpoints and temporary files of killed saves. It keeps the newest `keep_last`
 * checkpoints up to `newest`, the run's place, and those after updates whose number is a multiple
 * of keep_every (0 = none). Files after `newest` stay and do not count: the run passed them over
 * when it resumed, because they are damaged. */
FM_MUST_USE fm_status fm_checkpoint_prune(const char *folder, fm_checkpoint_place newest,
                                          uint32_t keep_last, uint64_t keep_every,
                                          fm_error *reterr);

#endif
