/* resume.c: see resume.h.
 *
 * Loading tries the checkpoints of the folder from the newest to the oldest. A damaged one is
 * logged and the next one is tried; any other error ends the search. Seed and settings are compared
 * before the parameters are loaded, so a run with other settings never changes the trainer. */
#include "trainer/app/resume.h"

#include "proto/base/file.h"
#include "proto/base/log.h"
#include "trainer/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Room for the texts of a checkpoint. */
enum { NOTE_BYTES = 1 << 20 };

fm_status fm_resume_lock(const char *folder, int *ret_fd, fm_error *reterr) {
    char path[PATH_MAX];
    fm_status status = fm_dir_make(folder, reterr);
    if (status) return status;
    if (snprintf(path, sizeof path, "%s/lock", folder) >= (int)sizeof path) {
        return fm_fail_in(reterr, FM_ERR_LIMIT, folder, "the path is too long");
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return fm_fail_in(reterr, FM_ERR_IO, path, "cannot open: %s", strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(fd);
        return fm_fail_in(
            reterr, FM_ERR_EXISTS, folder,
            "another process is training into this folder; wait for it or choose another --out");
    }
    *ret_fd = fd;
    return FM_OK;
}

fm_status fm_resume_save(const fm_resume_options *options, const fm_trainer *trainer, uint64_t step,
                         const fm_token *token, fm_error *reterr) {
    char path[FM_CHECKPOINT_PATH_BYTES], config[FM_TRAIN_CONFIG_TEXT_BYTES],
        place[FM_TOKEN_TEXT_BYTES];
    fm_status status = fm_checkpoint_path(options->folder, step, path, reterr);
    if (status) return status;
    const fm_sha256 unknown = {{0}};
    char snapshot[FM_SHA256_HEX];
    fm_train_config_format(options->config, config);
    fm_token_format(token, place);
    fm_sha256_format(&options->snapshot, snapshot);
    bool known = memcmp(&options->snapshot, &unknown, sizeof unknown) != 0;
    const fm_checkpoint_state state = {.step = trainer->optimizer.step,
                                       .samples = trainer->optimizer.samples -
                                                  (uint64_t)trainer->optimizer.pending,
                                       .seed = options->seed,
                                       .token = place,
                                       .config = config,
                                       .snapshot = known ? snapshot : NULL};
    status = fm_checkpoint_save(path, &trainer->params, &state, reterr);
    if (status) return status;
    return fm_checkpoint_prune(options->folder, options->keep_last, options->keep_every, reterr);
}

fm_status fm_resume_begin_from(const char *path, fm_trainer *trainer, fm_error *reterr) {
    fm_params *params = &trainer->params;
    fm_checkpoint_state state;
    fm_arena arena;
    fm_status status = fm_arena_init(&arena, NOTE_BYTES, reterr);
    if (status) return status;
    status = fm_checkpoint_peek(path, &arena, &state, reterr);
    if (!status) status = fm_checkpoint_load(path, params, &state, reterr);
    if (!status) {
        /* `fill` counts elements of the act type */
        int64_t n = params->n_element * (int64_t)(fm_element_bytes(params->element) /
                                                  fm_element_bytes(params->kernels->act));
        params->kernels->fill(NULL, n, 0.0, params->moment1);
        params->kernels->fill(NULL, n, 0.0, params->moment2);
        params->kernels->synchronize(NULL);
    }
    fm_arena_fini(&arena);
    return status;
}

/* The start of the line that contains `at`. */
static const char *line_start(const char *text, const char *at) {
    while (at > text && at[-1] != '\n')
        at--;
    return at;
}

static fm_status check_same_run(const fm_resume_options *options, const fm_checkpoint_state *state,
                                const char *path, fm_error *reterr) {
    if (state->seed != options->seed) {
        return fm_fail_in(reterr, FM_ERR_USAGE, path,
                          "the checkpoint's run has seed %llu, but --seed is %llu",
                          (unsigned long long)state->seed, (unsigned long long)options->seed);
    }
    char config[FM_TRAIN_CONFIG_TEXT_BYTES];
    fm_train_config_format(options->config, config);
    if (strcmp(config, state->config) == 0) return FM_OK;
    size_t same = 0;
    while (config[same] && config[same] == state->config[same])
        same++;
    const char *ours = line_start(config, config + same),
               *theirs = line_start(state->config, state->config + same);
    return fm_fail_in(
        reterr, FM_ERR_USAGE, path,
        "the checkpoint's run has '%.*s', but this run has '%.*s'; resume with the same settings",
        (int)strcspn(theirs, "\n"), theirs, (int)strcspn(ours, "\n"), ours);
}

static fm_status load_one(const fm_resume_options *options, const char *path, fm_trainer *trainer,
                          fm_arena *arena, fm_token *ret_token, fm_sha256 *ret_snapshot,
                          fm_error *reterr) {
    fm_checkpoint_state state;
    *ret_snapshot = (fm_sha256){{0}};
    fm_arena_reset(arena);
    fm_status status = fm_checkpoint_peek(path, arena, &state, reterr);
    if (!status) status = check_same_run(options, &state, path, reterr);
    if (!status) status = fm_token_parse(state.token, ret_token, reterr);
    if (!status && state.snapshot &&
        fm_sha256_parse(state.snapshot, strlen(state.snapshot), ret_snapshot)) {
        status =
            fm_fail_in(reterr, FM_ERR_CORRUPT, path,
                       "found snapshot '%.80s', expected 64 hexadecimal digits", state.snapshot);
    }
    if (!status) status = fm_checkpoint_load(path, &trainer->params, &state, reterr);
    if (!status) {
        trainer->optimizer.step = state.step;
        trainer->optimizer.samples = state.samples;
    }
    return status;
}

static void log_damaged(const char *path, const fm_error *error) {
    char quoted[FM_ERROR_MESSAGE_BYTES];
    fm_log(FM_LOG_WARN, "checkpoint_damaged", "path=%s why=%s", path,
           fm_log_quote(quoted, sizeof quoted, error->message));
}

fm_status fm_resume_load(const fm_resume_options *options, fm_trainer *trainer, uint64_t *ret_step,
                         fm_token *ret_token, fm_sha256 *ret_snapshot, fm_error *reterr) {
    fm_arena arena;
    fm_status status = fm_arena_init(&arena, NOTE_BYTES, reterr);
    if (status) return status;
    uint64_t step = UINT64_MAX, n_damaged = 0;
    fm_sha256 snapshot = {{0}};
    for (;; n_damaged++) {
        char path[FM_CHECKPOINT_PATH_BYTES];
        fm_error error;
        status = fm_checkpoint_find(options->folder, step, &step, &error);
        if (!status) status = fm_checkpoint_path(options->folder, step, path, &error);
        if (!status) {
            status = load_one(options, path, trainer, &arena, ret_token, &snapshot, &error);
        }
        if (status == FM_ERR_CORRUPT || status == FM_ERR_FORMAT) {
            log_damaged(path, &error);
            continue;
        }
        if (status && reterr) *reterr = error;
        break;
    }
    fm_arena_fini(&arena);
    if (!status) {
        *ret_step = step;
        *ret_snapshot = snapshot;
    }
    if (status == FM_ERR_NOT_FOUND && n_damaged) {
        return fm_fail_in(reterr, FM_ERR_CORRUPT, options->folder,
                          "all %llu checkpoints in this folder are damaged",
                          (unsigned long long)n_damaged);
    }
    return status;
}
