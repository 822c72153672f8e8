/* resume.c: see resume.h.
 *
 * Loading tries the checkpoints of the folder from the newest to the oldest. A damaged one is
 * logged and the next one is tried; any other error ends the search. Seed and settings are
 * compared before the parameters are loaded, so a run with other settings never changes the
 * trainer. */
#include "trainer/app/train/resume.h"

#include "proto/base/held_folder.h"
#include "proto/base/log.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for the texts of a checkpoint. */
enum { NOTE_BYTES = 1 << 20 };

/* The texts of a state, for a checkpoint. */
typedef struct state_texts {
    char config[FM_TRAIN_CONFIG_TEXT_BYTES], token[FM_TOKEN_TEXT_BYTES], snapshot[FM_SHA256_HEX],
        batch[FM_BATCH_SUMS_TEXT_BYTES], skipped[FM_SKIPPED_TEXT_BYTES];
} state_texts;

static fm_status write_checkpoint(const fm_resume_options *options, const fm_optimizer *optimizer,
                                  const fm_train_state *run, state_texts *texts, fm_error *reterr) {
    char path[FM_CHECKPOINT_PATH_BYTES];
    fm_status status = fm_checkpoint_path(options->folder, run->place, path, reterr);
    if (status) return status;
    const fm_sha256 unknown = {{0}};
    bool known = memcmp(&run->snapshot, &unknown, sizeof unknown) != 0;
    fm_train_config_format(options->config, texts->config);
    fm_token_format(&run->token, texts->token);
    fm_sha256_format(&run->snapshot, texts->snapshot);
    fm_batch_sums_format(&run->sums, texts->batch);
    fm_skipped_format(&run->skipped, texts->skipped);
    /* The state may be that of the last whole step, where the trainer is inside the next. */
    uint64_t n_added = optimizer->pending;
    uint32_t n_pending = run->place.n_sample ? optimizer->pending : 0;
    const fm_checkpoint_state state = {.step = optimizer->step,
                                       .samples = optimizer->samples - n_added,
                                       .seed = options->seed,
                                       .token = texts->token,
                                       .config = texts->config,
                                       .snapshot = known ? texts->snapshot : NULL,
                                       .identity = options->identity,
                                       .history = run->history[0] ? run->history : NULL,
                                       .skipped = run->skipped.n ? texts->skipped : NULL,
                                       .batch = run->place.n_sample ? texts->batch : NULL,
                                       .n_pending = n_pending,
                                       .sum = optimizer->sum};
    return fm_checkpoint_save(path, optimizer->params, &state, reterr);
}

fm_status fm_resume_save(const fm_resume_options *options, const fm_optimizer *optimizer,
                         const fm_train_state *state, fm_error *reterr) {
    state_texts *texts = malloc(sizeof *texts);
    if (!texts) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a checkpoint's texts");
    fm_status status = write_checkpoint(options, optimizer, state, texts, reterr);
    free(texts);
    if (status || !options->keep_last) return status;
    fm_error error;
    if (fm_checkpoint_prune(options->folder, state->place, options->keep_last, options->keep_every,
                            &error)) {
        char quoted[FM_ERROR_MESSAGE_BYTES], folder[PATH_MAX];
        fm_held_folder_show(options->folder, folder, sizeof folder);
        fm_log(FM_LOG_WARN, "old_checkpoints_stay", "folder=%s why=%s", folder,
               fm_log_quote(quoted, sizeof quoted, error.message));
    }
    return FM_OK;
}

static void fill_zero(const fm_params *params, void *flat) {
    /* `fill` counts elements of the act type */
    int64_t n = params->n_element * (int64_t)(fm_element_bytes(params->element) /
                                              fm_element_bytes(params->kernels->act));
    params->kernels->fill(NULL, n, 0.0, flat);
    params->kernels->synchronize(NULL);
}

static fm_status check_same_run(const fm_resume_options *options, const fm_checkpoint_state *state,
                                uint64_t step, const char *path, fm_train_state *run,
                                fm_error *reterr) {
    if (state->seed != options->seed) {
        return fm_fail_in(
            reterr, FM_ERR_USAGE, path,
            "the checkpoint's run has seed %llu, but --seed is %llu; give --seed %llu",
            (unsigned long long)state->seed, (unsigned long long)options->seed,
            (unsigned long long)state->seed);
    }
    if (!state->identity) {
        fm_log(FM_LOG_WARN, "identity_unknown",
               "path=%s why=\"an older program wrote the checkpoint; device, dtype, order and "
               "program version are not compared\"",
               path);
    }
    char config[FM_TRAIN_CONFIG_TEXT_BYTES], implied[FM_TRAIN_CONFIG_TEXT_BYTES];
    fm_train_config_format(options->config, config);
    fm_train_config_format_implied(options->config, implied);
    const fm_identity_texts saved = {state->config, state->identity, implied},
                            now = {config, options->identity, implied};
    fm_status status = fm_identity_check(&saved, &now, step, options->change, options->n_change,
                                         run->history, reterr);
    if (status && reterr) (void)fm_error_in(reterr, path);
    return status;
}

/* Parses the texts of a checkpoint into *run. */
static fm_status read_texts(const fm_checkpoint_state *state, fm_train_state *run,
                            fm_error *reterr) {
    fm_status status = fm_token_parse(state->token, &run->token, reterr);
    if (!status && state->snapshot &&
        fm_sha256_parse(state->snapshot, strlen(state->snapshot), &run->snapshot)) {
        status = fm_fail(reterr, FM_ERR_CORRUPT,
                         "found snapshot '%.80s', expected 64 hexadecimal digits", state->snapshot);
    }
    if (!status && state->skipped) status = fm_skipped_parse(state->skipped, &run->skipped, reterr);
    if (!status && state->batch) status = fm_batch_sums_parse(state->batch, &run->sums, reterr);
    if (!status &&
        (!state->batch != !run->place.n_sample || state->n_pending != run->sums.n_counted)) {
        status = fm_fail(reterr, FM_ERR_CORRUPT, "the batch in hand has another number of samples");
    }
    if (!status && state->history) {
        snprintf(run->history, sizeof run->history, "%s", state->history);
    }
    return status;
}

/* Loads the checkpoint at run->place; *run is partly filled on failure. */
static fm_status load_one(const fm_resume_options *options, const char *path,
                          fm_optimizer *optimizer, fm_arena *arena, fm_train_state *run,
                          fm_error *reterr) {
    fm_checkpoint_state state;
    fm_arena_reset(arena);
    fm_status status = fm_checkpoint_peek(path, arena, &state, reterr);
    if (!status) {
        status = read_texts(&state, run, reterr);
        if (status && reterr) (void)fm_error_in(reterr, path);
    }
    if (!status) status = check_same_run(options, &state, run->place.step, path, run, reterr);
    state.sum = optimizer->sum;
    if (!status) fill_zero(optimizer->params, state.sum); /* the gaps between blocks, too */
    if (!status) status = fm_checkpoint_load(path, optimizer->params, &state, reterr);
    if (!status) {
        optimizer->step = state.step;
        optimizer->samples = state.samples + state.n_pending;
        optimizer->pending = state.n_pending;
    }
    /* The folder lists the file: that it cannot be opened must not look like "no checkpoint". */
    return status == FM_ERR_NOT_FOUND ? FM_ERR_IO : status;
}

static void log_damaged(const char *path, const fm_error *error) {
    char quoted[FM_ERROR_MESSAGE_BYTES];
    fm_log(FM_LOG_WARN, "checkpoint_damaged", "path=%s why=%s", path,
           fm_log_quote(quoted, sizeof quoted, error->message));
}

static fm_status fail_damaged(const char *folder, uint64_t n, fm_error *reterr) {
    static const char advice[] = "put a whole copy of one into it, or start again with another "
                                 "--out";
    if (n == 1) {
        return fm_fail_in(reterr, FM_ERR_CORRUPT, folder,
                          "the only checkpoint in this folder is damaged; %s", advice);
    }
    return fm_fail_in(reterr, FM_ERR_CORRUPT, folder,
                      "all %llu checkpoints in this folder are damaged; %s", (unsigned long long)n,
                      advice);
}

/* Finds and loads the newest whole checkpoint; see fm_resume_load. */
static fm_status load_newest(const fm_resume_options *options, fm_optimizer *optimizer,
                             fm_arena *arena, fm_train_state *run, fm_error *reterr) {
    fm_checkpoint_place before = FM_CHECKPOINT_END;
    for (uint64_t n_damaged = 0;; n_damaged++) {
        char path[FM_CHECKPOINT_PATH_BYTES];
        *run = (fm_train_state){.history = ""};
        fm_status status = fm_checkpoint_find(options->folder, before, &run->place, reterr);
        if (status == FM_ERR_NOT_FOUND && n_damaged) {
            return fail_damaged(options->folder, n_damaged, reterr);
        }
        if (!status) status = fm_checkpoint_path(options->folder, run->place, path, reterr);
        if (status) return status;
        before = run->place;
        status = load_one(options, path, optimizer, arena, run, reterr);
        if (status != FM_ERR_CORRUPT && status != FM_ERR_FORMAT) return status;
        log_damaged(path, reterr);
    }
}

/* Shows the deliberate changes of the run so far, one log line each. */
static void log_history(const char *history) {
    while (*history) {
        size_t n = strcspn(history, "\n");
        char line[FM_ERROR_MESSAGE_BYTES], quoted[FM_ERROR_MESSAGE_BYTES];
        snprintf(line, sizeof line, "%.*s", (int)n, history);
        fm_log(FM_LOG_INFO, "changed", "what=%s", fm_log_quote(quoted, sizeof quoted, line));
        history += n + (history[n] == '\n');
    }
}

fm_status fm_resume_load(const fm_resume_options *options, fm_optimizer *optimizer,
                         fm_train_state *state, fm_error *reterr) {
    fm_arena arena;
    fm_error error = {.message = ""};
    fm_train_state *run = malloc(sizeof *run);
    if (!run) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a checkpoint's texts");
    fm_status status = fm_arena_init(&arena, NOTE_BYTES, &error);
    if (!status) {
        status = load_newest(options, optimizer, &arena, run, &error);
        fm_arena_fini(&arena);
    }
    if (!status) {
        *state = *run;
        log_history(run->history);
    } else if (reterr) {
        *reterr = error;
    }
    free(run);
    return status;
}
