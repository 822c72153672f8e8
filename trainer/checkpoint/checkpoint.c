/* checkpoint.c: see checkpoint.h.
 *
 * Saving downloads the four flat buffers to the host and builds a table of tensors that point into
 * these copies. It hashes metadata and tensors in the order of the file and lets
 * fm_safetensors_write publish the file by renaming. Loading fills the same table from the file and
 * computes the same hash. It uploads to the device only if the hash matches, so a damaged file
 * never changes the parameters. */
#include "trainer/checkpoint/checkpoint.h"

#include "proto/base/hash.h"
#include "trainer/checkpoint/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_SET = 4, NUMBER_BYTES = 24, NAME_BYTES = 256, MAX_FILES = 65536 };

static const char prefix[] = "checkpoint-", suffix[] = ".safetensors";
static const char *const set_names[N_SET] = {"model", "adam_m", "adam_v", "ema"};

static void *set_of(const fm_params *params, int set) {
    void *const sets[N_SET] = {params->master, params->moment1, params->moment2, params->ema};
    return sets[set];
}

static const char *dtype_of(const fm_params *params) {
    return params->element == FM_ELEMENT_F64 ? "F64" : "F32";
}

/* -- names */

fm_status fm_checkpoint_path(const char *folder, uint64_t step, char out[FM_CHECKPOINT_PATH_BYTES],
                             fm_error *reterr) {
    int n = snprintf(out, FM_CHECKPOINT_PATH_BYTES, "%s/%s%012" PRIu64 "%s", folder, prefix, step,
                     suffix);
    if (n > 0 && n < FM_CHECKPOINT_PATH_BYTES) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE, "the checkpoint's path is too long");
}

/* Parses the step from a file name; false if the name is not a checkpoint's. */
static bool step_of_name(const char *name, uint64_t *ret_step) {
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return false;
    char *end;
    errno = 0;
    uint64_t step = strtoull(name + sizeof prefix - 1, &end, 10);
    *ret_step = step;
    return errno == 0 && end != name + sizeof prefix - 1 && strcmp(end, suffix) == 0;
}

/* Lists the steps of the folder's checkpoints in steps[0..MAX_FILES-1], unsorted. */
static fm_status list_steps(const char *folder, uint64_t *steps, size_t *ret_n, fm_error *reterr) {
    DIR *dir = opendir(folder);
    if (!dir) {
        return fm_fail_in(reterr, errno == ENOENT ? FM_ERR_NOT_FOUND : FM_ERR_IO, folder,
                          "cannot open folder: %s", strerror(errno));
    }
    size_t n = 0;
    for (struct dirent *entry; n < MAX_FILES && (entry = readdir(dir));)
        n += step_of_name(entry->d_name, &steps[n]);
    closedir(dir);
    *ret_n = n;
    return FM_OK;
}

static int newest_first(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

static fm_status sorted_steps(const char *folder, uint64_t **ret_steps, size_t *ret_n,
                              fm_error *reterr) {
    uint64_t *steps = malloc((MAX_FILES + 1) * sizeof *steps);
    if (!steps) return fm_fail(reterr, FM_ERR_NOMEM, "no memory to list checkpoints");
    fm_status status = list_steps(folder, steps, ret_n, reterr);
    if (status) {
        free(steps);
        return status;
    }
    qsort(steps, *ret_n, sizeof *steps, newest_first);
    *ret_steps = steps;
    return FM_OK;
}

fm_status fm_checkpoint_find(const char *folder, uint64_t before, uint64_t *ret_step,
                             fm_error *reterr) {
    uint64_t *steps;
    size_t n;
    fm_status status = sorted_steps(folder, &steps, &n, reterr);
    if (status) return status;
    size_t i = 0;
    while (i < n && steps[i] >= before)
        i++;
    if (i < n) *ret_step = steps[i];
    free(steps);
    if (i < n) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_NOT_FOUND, folder, "this folder has no checkpoint");
}

/* Removes the temporary files of killed saves: a checkpoint's name, ".tmp." and the process. This
 * is safe because one run at a time owns the folder. */
static void remove_leftovers(const char *folder) {
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char name[NAME_MAX + 1];
        snprintf(name, sizeof name, "%s", entry->d_name);
        char *temporary = strstr(name, ".safetensors.tmp.");
        uint64_t step;
        if (!temporary) continue;
        temporary[sizeof suffix - 1] = '\0';
        if (step_of_name(name, &step)) unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir) closedir(dir);
}

fm_status fm_checkpoint_prune(const char *folder, uint32_t keep_last, uint64_t keep_every,
                              fm_error *reterr) {
    uint64_t *steps = NULL;
    size_t n = 0;
    remove_leftovers(folder);
    fm_status status = sorted_steps(folder, &steps, &n, reterr);
    for (size_t i = keep_last; !status && i < n; i++) {
        char path[FM_CHECKPOINT_PATH_BYTES];
        if (keep_every && steps[i] % keep_every == 0) continue;
        status = fm_checkpoint_path(folder, steps[i], path, reterr);
        if (!status && unlink(path) != 0 && errno != ENOENT) {
            status = fm_fail_in(reterr, FM_ERR_IO, path, "cannot remove: %s", strerror(errno));
        }
    }
    free(steps);
    return status;
}

/* -- saving */

/* Host copies of the four flat buffers, and the table of tensors that point into them. */
typedef struct bundle {
    void *host[N_SET];
    fm_safetensor *tensor;
    size_t n_tensor;
    char *names;
} bundle;

static void free_bundle(bundle *b) {
    for (int set = 0; set < N_SET; set++)
        free(b->host[set]);
    free(b->tensor);
    free(b->names);
}

static fm_status make_bundle(const fm_params *params, bundle *b, fm_error *reterr) {
    size_t n = (size_t)params->n_param, element = fm_element_bytes(params->element);
    *b = (bundle){.n_tensor = N_SET * n};
    b->tensor = calloc(b->n_tensor, sizeof *b->tensor);
    b->names = malloc(b->n_tensor * NAME_BYTES);
    bool whole = b->tensor && b->names;
    for (int set = 0; set < N_SET; set++) {
        b->host[set] = malloc((size_t)params->n_element * element);
        whole = whole && b->host[set];
    }
    if (!whole) {
        free_bundle(b);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a checkpoint of %" PRId64 " parameters",
                       params->n_value);
    }
    for (size_t i = 0; i < b->n_tensor; i++) {
        const fm_param *param = &params->param[i % n];
        char *name = b->names + i * NAME_BYTES;
        snprintf(name, NAME_BYTES, "%s.%s", set_names[i / n], param->name);
        b->tensor[i] =
            (fm_safetensor){.name = name,
                            .dtype = dtype_of(params),
                            .rank = param->rank,
                            .data = (char *)b->host[i / n] + (size_t)param->offset * element,
                            .bytes = (uint64_t)fm_param_count(param) * element};
        for (int axis = 0; axis < param->rank; axis++)
            b->tensor[i].shape[axis] = param->shape[axis];
    }
    return FM_OK;
}

/* Hash over the metadata and then the tensors, in the order of the file. */
static uint64_t hash_of(const bundle *b, const fm_checkpoint_state *state) {
    const uint64_t numbers[] = {state->step, state->samples, state->seed};
    fm_xxh3_state *hash = fm_xxh3_create();
    fm_xxh3_update(hash, numbers, sizeof numbers);
    fm_xxh3_update(hash, state->token, strlen(state->token) + 1);
    fm_xxh3_update(hash, state->config, strlen(state->config) + 1);
    if (state->snapshot) fm_xxh3_update(hash, state->snapshot, strlen(state->snapshot) + 1);
    for (size_t i = 0; i < b->n_tensor; i++) {
        fm_xxh3_update(hash, b->tensor[i].name, strlen(b->tensor[i].name) + 1);
        fm_xxh3_update(hash, b->tensor[i].data, b->tensor[i].bytes);
    }
    uint64_t digest = fm_xxh3_digest(hash);
    fm_xxh3_destroy(hash);
    return digest;
}

fm_status fm_checkpoint_save(const char *path, const fm_params *params,
                             const fm_checkpoint_state *state, fm_error *reterr) {
    bundle b;
    fm_status status = make_bundle(params, &b, reterr);
    if (status) return status;
    size_t bytes = (size_t)params->n_element * fm_element_bytes(params->element);
    for (int set = 0; set < N_SET; set++)
        params->kernels->download(NULL, b.host[set], set_of(params, set), bytes);
    params->kernels->synchronize(NULL);
    char format[NUMBER_BYTES], step[NUMBER_BYTES], samples[NUMBER_BYTES], seed[NUMBER_BYTES],
        hash[NUMBER_BYTES];
    snprintf(format, sizeof format, "%d", FM_CHECKPOINT_FORMAT);
    snprintf(step, sizeof step, "%" PRIu64, state->step);
    snprintf(samples, sizeof samples, "%" PRIu64, state->samples);
    snprintf(seed, sizeof seed, "%" PRIu64, state->seed);
    snprintf(hash, sizeof hash, "%016" PRIx64, hash_of(&b, state));
    const fm_safetensors_note notes[] = {{"format", format},      {"step", step},
                                         {"samples", samples},    {"seed", seed},
                                         {"token", state->token}, {"config", state->config},
                                         {"xxh3", hash},          {"snapshot", state->snapshot}};
    size_t n_note = sizeof notes / sizeof notes[0] - !state->snapshot;
    status = fm_safetensors_write(path, b.tensor, b.n_tensor, notes, n_note, reterr);
    free_bundle(&b);
    return status;
}

/* -- loading */

static fm_status damaged(const char *path, fm_error *reterr, const char *what, const char *name) {
    return fm_fail_in(reterr, FM_ERR_CORRUPT, path, "%s%s%.100s", what, name ? ": " : "",
                      name ? name : "");
}

static bool read_number(const fm_safetensors *file, const char *key, uint64_t *ret_value) {
    const char *text = fm_safetensors_note_of(file, key);
    char *end;
    errno = 0;
    *ret_value = text ? strtoull(text, &end, 10) : 0;
    return text && *text && !*end && errno == 0;
}

static const char *copy_note(const fm_safetensors *file, const char *key, fm_arena *arena) {
    const char *text = fm_safetensors_note_of(file, key);
    char *copy = text ? fm_arena_alloc(arena, strlen(text) + 1) : NULL;
    return copy ? memcpy(copy, text, strlen(text) + 1) : NULL;
}

static fm_status read_state(const fm_safetensors *file, const char *path, fm_arena *arena,
                            fm_checkpoint_state *state, fm_error *reterr) {
    uint64_t format;
    if (!read_number(file, "format", &format)) {
        return damaged(path, reterr, "this is not a foldmill checkpoint", NULL);
    }
    if (format != FM_CHECKPOINT_FORMAT) {
        return fm_fail_in(reterr, FM_ERR_UNSUPPORTED, path,
                          "the checkpoint has format %" PRIu64 "; this program reads format %d",
                          format, FM_CHECKPOINT_FORMAT);
    }
    bool whole = read_number(file, "step", &state->step) &&
                 read_number(file, "samples", &state->samples) &&
                 read_number(file, "seed", &state->seed);
    state->token = copy_note(file, "token", arena);
    state->config = copy_note(file, "config", arena);
    state->snapshot = copy_note(file, "snapshot", arena);
    return whole && state->token && state->config
               ? FM_OK
               : damaged(path, reterr, "the checkpoint lacks a metadata entry", NULL);
}

/* Reads every tensor into the bundle's host copies. Checks name, dtype and shape of each, then the
 * hash over all. */
static fm_status read_tensors(const fm_safetensors *file, const char *path, bundle *b,
                              const fm_checkpoint_state *state, fm_error *reterr) {
    fm_status status = FM_OK;
    if (fm_safetensors_count(file) != b->n_tensor) {
        return damaged(path, reterr,
                       "the checkpoint has another number of parameters than this model; both must "
                       "have the same sizes",
                       NULL);
    }
    for (size_t i = 0; !status && i < b->n_tensor; i++) {
        const fm_safetensor *want = &b->tensor[i], *got = fm_safetensors_find(file, want->name);
        bool same = got && strcmp(got->dtype, want->dtype) == 0 && got->rank == want->rank &&
                    memcmp(got->shape, want->shape, sizeof want->shape) == 0;
        if (!same) {
            return damaged(
                path, reterr,
                "the checkpoint lacks a parameter of this model or has it in another shape",
                want->name);
        }
        status = fm_safetensors_read(file, got, (void *)(uintptr_t)want->data, reterr);
    }
    if (status) return status;
    char hash[NUMBER_BYTES];
    snprintf(hash, sizeof hash, "%016" PRIx64, hash_of(b, state));
    const char *stored = fm_safetensors_note_of(file, "xxh3");
    return stored && strcmp(stored, hash) == 0
               ? FM_OK
               : damaged(path, reterr, "the content does not match its hash; the file is damaged",
                         NULL);
}

/* Uploads parameter by parameter, so the gaps between blocks stay zero. */
static void take_over(fm_params *params, const bundle *b) {
    size_t element = fm_element_bytes(params->element);
    for (size_t i = 0; i < b->n_tensor; i++) {
        size_t set = i / (size_t)params->n_param;
        const fm_param *param = &params->param[i % (size_t)params->n_param];
        params->kernels->upload(NULL,
                                (char *)set_of(params, (int)set) + (size_t)param->offset * element,
                                b->tensor[i].data, b->tensor[i].bytes);
    }
    params->kernels->synchronize(NULL);
    fm_params_refresh_copy(params);
}

fm_status fm_checkpoint_peek(const char *path, fm_arena *arena, fm_checkpoint_state *ret_state,
                             fm_error *reterr) {
    fm_safetensors *file;
    fm_status status = fm_safetensors_open(path, &file, reterr);
    if (status) return status;
    fm_checkpoint_state state = {0};
    status = read_state(file, path, arena, &state, reterr);
    fm_safetensors_close(file);
    if (!status) *ret_state = state;
    return status;
}

fm_status fm_checkpoint_load(const char *path, fm_params *params, const fm_checkpoint_state *state,
                             fm_error *reterr) {
    fm_safetensors *file;
    fm_status status = fm_safetensors_open(path, &file, reterr);
    if (status) return status;
    bundle b;
    status = make_bundle(params, &b, reterr);
    if (!status) {
        status = read_tensors(file, path, &b, state, reterr);
        if (!status) take_over(params, &b);
        free_bundle(&b);
    }
    fm_safetensors_close(file);
    return status;
}
