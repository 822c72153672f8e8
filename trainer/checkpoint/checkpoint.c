/* checkpoint.c: see checkpoint.h.
 *
 * Saving downloads the flat buffers to the host and builds a table of tensors that point into these
 * copies. It hashes metadata and tensors in the order of the file, and fm_safetensors_write
 * publishes the file by renaming. Loading fills the same table from the file and computes the same
 * hash. It uploads to the device only if the hash matches, so a damaged file never changes the
 * parameters. */
#include "trainer/checkpoint/checkpoint.h"

#include "proto/base/directory.h"
#include "proto/base/hash.h"
#include "proto/safetensors.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    N_SET = 4,     /* sets that every checkpoint has */
    MAX_SET = 5,   /* with the sum of a batch */
    N_MORE = 4,    /* notes that xxh3_more covers */
    MAX_NOTE = 14, /* all notes */
    NUMBER_BYTES = 24,
    NAME_BYTES = 256,
    FILE_NAME_BYTES = 64,
    MAX_FILES = 1 << 20,
    LIST_BYTES = 1 << 29, /* address space for the names of a folder */
};

static const char prefix[] = "checkpoint-", suffix[] = ".safetensors";
enum { SET_MODEL = 0, SET_EMA = 3 }; /* positions in set_names */
static const char *const set_names[MAX_SET] = {"model", "adam_m", "adam_v", "ema", "sum"};
static const char *const more_names[N_MORE] = {"identity", "history", "skipped", "batch"};

static void *set_of(const fm_params *params, const fm_checkpoint_state *state, int set) {
    void *const sets[MAX_SET] = {params->master, params->moment1, params->moment2, params->ema,
                                 state->sum};
    return sets[set];
}

static const char **more_of(fm_checkpoint_state *state, int i) {
    const char **const more[N_MORE] = {&state->identity, &state->history, &state->skipped,
                                       &state->batch};
    return more[i];
}

static const char *dtype_of(const fm_params *params) {
    return params->element == FM_ELEMENT_F64 ? "F64" : "F32";
}

/* -- names */

/* Returns the length of the name. */
static size_t format_name(fm_checkpoint_place place, char out[FILE_NAME_BYTES]) {
    char sample[16] = "";
    if (place.n_sample) snprintf(sample, sizeof sample, "+%" PRIu32, place.n_sample);
    return (size_t)snprintf(out, FILE_NAME_BYTES, "%s%012" PRIu64 "%s%s", prefix, place.step,
                            sample, suffix);
}

fm_status fm_checkpoint_path(const char *folder, fm_checkpoint_place place,
                             char out[FM_CHECKPOINT_PATH_BYTES], fm_error *reterr) {
    char name[FILE_NAME_BYTES];
    format_name(place, name);
    int n = snprintf(out, FM_CHECKPOINT_PATH_BYTES, "%s/%s", folder, name);
    if (n > 0 && n < FM_CHECKPOINT_PATH_BYTES) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE, "the checkpoint's path is too long");
}

/* Parses a number of digits only at *at, and moves *at behind it. */
static bool take_number(const char **at, uint64_t max, uint64_t *ret_value) {
    char *end;
    if (**at < '0' || **at > '9') return false;
    errno = 0;
    *ret_value = strtoull(*at, &end, 10);
    *at = end;
    return errno == 0 && *ret_value <= max;
}

/* Parses the place from a file name that is a checkpoint's followed by `rest`. A place has one
 * name: a file "checkpoint-7.safetensors" of the user's is not the checkpoint of step 7. */
static bool place_of_name(const char *name, const char *rest, fm_checkpoint_place *ret_place) {
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return false;
    const char *at = name + sizeof prefix - 1;
    uint64_t step, n_sample = 0;
    if (!take_number(&at, UINT64_MAX, &step)) return false;
    if (*at == '+') {
        at++;
        if (!take_number(&at, UINT32_MAX, &n_sample)) return false;
    }
    *ret_place = (fm_checkpoint_place){step, (uint32_t)n_sample};
    char own[FILE_NAME_BYTES];
    size_t n = format_name(*ret_place, own);
    return strncmp(name, own, n) == 0 && strncmp(name + n, rest, strlen(rest)) == 0 &&
           (*rest || !name[n]);
}

static int compare_places(fm_checkpoint_place a, fm_checkpoint_place b) {
    int by_step = (a.step > b.step) - (a.step < b.step);
    return by_step ? by_step : (a.n_sample > b.n_sample) - (a.n_sample < b.n_sample);
}

static int newest_first(const void *a, const void *b) {
    return compare_places(*(const fm_checkpoint_place *)b, *(const fm_checkpoint_place *)a);
}

/* The places of a folder's checkpoints, the newest first, in the arena. The names of all its files
 * are in *list, whose array the caller frees. */
typedef struct folder_content {
    fm_arena arena;
    fm_name_list list;
    fm_checkpoint_place *place;
    size_t n;
} folder_content;

static void free_content(folder_content *content) {
    free(content->list.name);
    fm_arena_fini(&content->arena);
}

static fm_status read_folder(const char *folder, folder_content *content, fm_error *reterr) {
    *content = (folder_content){0};
    fm_status status = fm_arena_init(&content->arena, LIST_BYTES, reterr);
    if (status) return status;
    status = fm_directory_list(folder, false, MAX_FILES, &content->arena, &content->list, reterr);
    if (!status) {
        content->place =
            fm_arena_alloc_array(&content->arena, content->list.n + 1, sizeof *content->place);
        if (!content->place) status = fm_arena_full(&content->arena, reterr);
    }
    if (status) {
        free_content(content);
        return status;
    }
    for (size_t i = 0; i < content->list.n; i++)
        content->n += place_of_name(content->list.name[i], "", &content->place[content->n]);
    if (content->n) qsort(content->place, content->n, sizeof *content->place, newest_first);
    return FM_OK;
}

fm_status fm_checkpoint_find(const char *folder, fm_checkpoint_place before,
                             fm_checkpoint_place *ret_place, fm_error *reterr) {
    folder_content content;
    fm_status status = read_folder(folder, &content, reterr);
    if (status) return status;
    size_t i = 0;
    while (i < content.n && compare_places(content.place[i], before) >= 0)
        i++;
    bool found = i < content.n;
    if (found) *ret_place = content.place[i];
    free_content(&content);
    if (found) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_NOT_FOUND, folder, "this folder has no checkpoint");
}

fm_status fm_checkpoint_refuse_folder(const char *path, const char *expected, fm_error *reterr) {
    fm_path_kind kind;
    fm_checkpoint_place place;
    char newest[FM_CHECKPOINT_PATH_BYTES];
    fm_status status = fm_path_look(path, &kind, reterr);
    if (status || kind != FM_PATH_FOLDER) return status;
    if (!fm_checkpoint_find(path, FM_CHECKPOINT_END, &place, NULL) &&
        !fm_checkpoint_path(path, place, newest, NULL)) {
        return fm_fail_in(reterr, FM_ERR_USAGE, path,
                          "found the folder of a training run, expected a file; its newest "
                          "checkpoint is %s",
                          newest);
    }
    return fm_fail_in(reterr, FM_ERR_USAGE, path, "found a folder, expected %s", expected);
}

static fm_status remove_file(const char *path, fm_error *reterr) {
    if (unlink(path) == 0 || errno == ENOENT) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_IO, path, "cannot remove: %s", strerror(errno));
}

/* Removes the temporary files of killed saves: a checkpoint's name, ".tmp." and digits. This is
 * safe because one run at a time owns the folder. */
static fm_status remove_leftovers(const char *folder, const fm_name_list *list, fm_error *reterr) {
    fm_status status = FM_OK;
    for (size_t i = 0; !status && i < list->n; i++) {
        char path[FM_CHECKPOINT_PATH_BYTES];
        fm_checkpoint_place place;
        if (!place_of_name(list->name[i], ".tmp.", &place)) continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, list->name[i]) < (int)sizeof path) {
            status = remove_file(path, reterr);
        }
    }
    return status;
}

fm_status fm_checkpoint_prune(const char *folder, fm_checkpoint_place newest, uint32_t keep_last,
                              uint64_t keep_every, fm_error *reterr) {
    folder_content content;
    fm_status status = read_folder(folder, &content, reterr);
    if (status) return status;
    status = remove_leftovers(folder, &content.list, reterr);
    size_t first = 0;
    while (first < content.n && compare_places(content.place[first], newest) > 0)
        first++;
    for (size_t i = first + keep_last; !status && i < content.n; i++) {
        fm_checkpoint_place place = content.place[i];
        char path[FM_CHECKPOINT_PATH_BYTES];
        if (keep_every && place.step % keep_every == 0 && !place.n_sample) continue;
        status = fm_checkpoint_path(folder, place, path, reterr);
        if (!status) status = remove_file(path, reterr);
    }
    free_content(&content);
    return status;
}

/* -- saving */

/* Host copies of the flat buffers, and the table of tensors that point into them. */
typedef struct bundle {
    int n_set; /* N_SET, or MAX_SET with the sum of a batch */
    void *host[MAX_SET];
    fm_safetensor *tensor;
    size_t n_tensor;
    char *names;
} bundle;

static void free_bundle(bundle *b) {
    for (int set = 0; set < MAX_SET; set++)
        free(b->host[set]);
    free(b->tensor);
    free(b->names);
}

static fm_status make_bundle(const fm_params *params, const fm_checkpoint_state *state, bundle *b,
                             fm_error *reterr) {
    size_t n = (size_t)params->n_param, element = fm_element_bytes(params->element);
    int n_set = state->n_pending && state->sum ? MAX_SET : N_SET;
    *b = (bundle){.n_set = n_set, .n_tensor = (size_t)n_set * n};
    b->tensor = calloc(b->n_tensor, sizeof *b->tensor);
    b->names = malloc(b->n_tensor * NAME_BYTES);
    bool whole = b->tensor && b->names;
    for (int set = 0; set < n_set; set++) {
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

static void update_with_tensors(fm_xxh3_state *hash, const bundle *b, size_t first, size_t end) {
    for (size_t i = first; i < end; i++) {
        fm_xxh3_update(hash, b->tensor[i].name, strlen(b->tensor[i].name) + 1);
        fm_xxh3_update(hash, b->tensor[i].data, b->tensor[i].bytes);
    }
}

static void finish_hash(fm_xxh3_state *hash, char out[NUMBER_BYTES]) {
    snprintf(out, NUMBER_BYTES, "%016" PRIx64, fm_xxh3_digest(hash));
    fm_xxh3_destroy(hash);
}

/* Hash over the metadata and then the tensors of the first N_SET sets, in the order of the file. */
static void hash_of(const bundle *b, const fm_checkpoint_state *state, char out[NUMBER_BYTES]) {
    const uint64_t numbers[] = {state->step, state->samples, state->seed};
    fm_xxh3_state *hash = fm_xxh3_create();
    fm_xxh3_update(hash, numbers, sizeof numbers);
    fm_xxh3_update(hash, state->token, strlen(state->token) + 1);
    fm_xxh3_update(hash, state->config, strlen(state->config) + 1);
    if (state->snapshot) fm_xxh3_update(hash, state->snapshot, strlen(state->snapshot) + 1);
    update_with_tensors(hash, b, 0, b->n_tensor / (size_t)b->n_set * N_SET);
    finish_hash(hash, out);
}

static bool has_more(const fm_checkpoint_state *state) {
    return state->identity || state->history || state->skipped || state->batch || state->n_pending;
}

/* Hash over n_pending, the notes that follow it, each with its name, and the tensors of the sum. */
static void more_hash_of(const bundle *b, const fm_checkpoint_state *state,
                         char out[NUMBER_BYTES]) {
    fm_checkpoint_state copy = *state;
    const uint64_t n_pending = state->n_pending;
    fm_xxh3_state *hash = fm_xxh3_create();
    fm_xxh3_update(hash, &n_pending, sizeof n_pending);
    for (int i = 0; i < N_MORE; i++) {
        const char *text = *more_of(&copy, i);
        if (!text) continue;
        fm_xxh3_update(hash, more_names[i], strlen(more_names[i]) + 1);
        fm_xxh3_update(hash, text, strlen(text) + 1);
    }
    update_with_tensors(hash, b, b->n_tensor / (size_t)b->n_set * N_SET, b->n_tensor);
    finish_hash(hash, out);
}

/* Numbers of a checkpoint as text. */
typedef struct number_notes {
    char format[NUMBER_BYTES], step[NUMBER_BYTES], samples[NUMBER_BYTES], seed[NUMBER_BYTES],
        hash[NUMBER_BYTES], pending[NUMBER_BYTES], more[NUMBER_BYTES];
} number_notes;

/* Lists the notes that are not NULL; returns their number. */
static size_t list_notes(const fm_checkpoint_state *state, const number_notes *n,
                         fm_safetensors_note notes[MAX_NOTE]) {
    bool more = has_more(state);
    const fm_safetensors_note all[] = {
        {"format", n->format},
        {"step", n->step},
        {"samples", n->samples},
        {"seed", n->seed},
        {"token", state->token},
        {"config", state->config},
        {"xxh3", n->hash},
        {"snapshot", state->snapshot},
        {"identity", state->identity},
        {"history", state->history},
        {"skipped", state->skipped},
        {"batch", state->batch},
        {"pending", state->n_pending ? n->pending : NULL},
        {"xxh3_more", more ? n->more : NULL},
    };
    static_assert(sizeof all / sizeof all[0] == MAX_NOTE, "notes has room for all");
    size_t n_note = 0;
    for (size_t i = 0; i < MAX_NOTE; i++) {
        if (all[i].value) notes[n_note++] = all[i];
    }
    return n_note;
}

fm_status fm_checkpoint_save(const char *path, const fm_params *params,
                             const fm_checkpoint_state *state, fm_error *reterr) {
    assert(!state->n_pending || state->sum);
    bundle b;
    fm_status status = make_bundle(params, state, &b, reterr);
    if (status) return status;
    size_t bytes = (size_t)params->n_element * fm_element_bytes(params->element);
    for (int set = 0; set < b.n_set; set++)
        params->kernels->download(NULL, b.host[set], set_of(params, state, set), bytes);
    params->kernels->synchronize(NULL);
    number_notes numbers;
    snprintf(numbers.format, NUMBER_BYTES, "%d", FM_CHECKPOINT_FORMAT);
    snprintf(numbers.step, NUMBER_BYTES, "%" PRIu64, state->step);
    snprintf(numbers.samples, NUMBER_BYTES, "%" PRIu64, state->samples);
    snprintf(numbers.seed, NUMBER_BYTES, "%" PRIu64, state->seed);
    snprintf(numbers.pending, NUMBER_BYTES, "%" PRIu32, state->n_pending);
    hash_of(&b, state, numbers.hash);
    more_hash_of(&b, state, numbers.more);
    fm_safetensors_note notes[MAX_NOTE];
    size_t n_note = list_notes(state, &numbers, notes);
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
    for (int i = 0; i < N_MORE; i++)
        *more_of(state, i) = copy_note(file, more_names[i], arena);
    uint64_t n_pending = 0;
    if (fm_safetensors_note_of(file, "pending")) {
        whole = whole && read_number(file, "pending", &n_pending) && n_pending > 0 &&
                n_pending <= UINT32_MAX;
    }
    state->n_pending = (uint32_t)n_pending;
    return whole && state->token && state->config
               ? FM_OK
               : damaged(path, reterr, "the checkpoint lacks a metadata entry", NULL);
}

static bool is_note(const fm_safetensors *file, const char *key, const char *expected) {
    const char *stored = fm_safetensors_note_of(file, key);
    return stored && strcmp(stored, expected) == 0;
}

/* Whether the content matches its hashes. Without the sum, the second cannot be computed. */
static bool is_intact(const fm_safetensors *file, const bundle *b,
                      const fm_checkpoint_state *state) {
    char hash[NUMBER_BYTES];
    hash_of(b, state, hash);
    if (!is_note(file, "xxh3", hash)) return false;
    if (!has_more(state)) return !fm_safetensors_note_of(file, "xxh3_more");
    if (state->n_pending && b->n_set == N_SET) return true;
    more_hash_of(b, state, hash);
    return is_note(file, "xxh3_more", hash);
}

/* Reads every tensor into the bundle's host copies. Checks name, dtype and shape of each, then the
 * hashes over all. */
static fm_status read_tensors(const fm_safetensors *file, const char *path, bundle *b,
                              const fm_checkpoint_state *state, fm_error *reterr) {
    fm_status status = FM_OK;
    size_t n_set = state->n_pending ? MAX_SET : N_SET;
    if (fm_safetensors_count(file) != b->n_tensor / (size_t)b->n_set * n_set) {
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
    return is_intact(file, b, state)
               ? FM_OK
               : damaged(path, reterr, "the content does not match its hash; the file is damaged",
                         NULL);
}

/* Uploads one set parameter by parameter, so the gaps between blocks stay zero. */
static void upload_set(const fm_params *params, const bundle *b, int set, void *flat) {
    size_t element = fm_element_bytes(params->element), n = (size_t)params->n_param;
    for (size_t i = 0; i < n; i++) {
        const fm_safetensor *tensor = &b->tensor[(size_t)set * n + i];
        params->kernels->upload(NULL, (char *)flat + (size_t)params->param[i].offset * element,
                                tensor->data, tensor->bytes);
    }
}

static void take_over(fm_params *params, const fm_checkpoint_state *state, const bundle *b) {
    for (int set = 0; set < b->n_set; set++)
        upload_set(params, b, set, set_of(params, state, set));
    params->kernels->synchronize(NULL);
    fm_params_refresh_copy(params);
}

bool fm_checkpoint_is(const char *path) {
    fm_safetensors *file;
    if (fm_safetensors_open(path, &file, NULL)) return false;
    bool has_settings = fm_safetensors_note_of(file, "config") != NULL;
    fm_safetensors_close(file);
    return has_settings;
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

fm_status fm_checkpoint_peek_named(const char *path, fm_arena *arena,
                                   fm_checkpoint_state *ret_state, fm_error *reterr) {
    fm_error why;
    fm_status status = fm_checkpoint_refuse_folder(path, "a checkpoint", reterr);
    if (status) return status;
    status = fm_checkpoint_peek(path, arena, ret_state, &why);
    if (status == FM_ERR_CORRUPT) {
        return fm_fail_in(
            reterr, status, path,
            "%.300s; expected a whole checkpoint of foldmill train or foldmill import",
            why.message);
    }
    if (status && reterr) *reterr = why;
    return status;
}

/* Reads and checks a whole file into a bundle, which the caller frees on success. */
static fm_status read_bundle(const char *path, const fm_params *params,
                             const fm_checkpoint_state *state, bundle *b, fm_error *reterr) {
    fm_safetensors *file;
    fm_status status = fm_safetensors_open(path, &file, reterr);
    if (status) return status;
    status = make_bundle(params, state, b, reterr);
    if (!status) {
        status = read_tensors(file, path, b, state, reterr);
        if (status) free_bundle(b);
    }
    fm_safetensors_close(file);
    return status;
}

fm_status fm_checkpoint_load(const char *path, fm_params *params, const fm_checkpoint_state *state,
                             fm_error *reterr) {
    bundle b;
    fm_status status = read_bundle(path, params, state, &b, reterr);
    if (status) return status;
    take_over(params, state, &b);
    free_bundle(&b);
    return FM_OK;
}

fm_status fm_checkpoint_load_shared(const char *path, const fm_params *saved, fm_params *params,
                                    const fm_checkpoint_state *state, fm_error *reterr) {
    static const int sets[] = {SET_MODEL, SET_EMA};
    bundle b;
    fm_checkpoint_state without_sum = *state;
    fm_params rows = *saved;
    without_sum.sum = NULL;
    rows.element = params->element;
    fm_status status = read_bundle(path, &rows, &without_sum, &b, reterr);
    if (status) return status;
    for (size_t i = 0; i < 2 * (size_t)rows.n_param; i++) {
        size_t set = i / (size_t)rows.n_param, k = i % (size_t)rows.n_param;
        const fm_param *param = fm_params_find(params, rows.param[k].name);
        if (!param) continue;
        const fm_safetensor *tensor = &b.tensor[(size_t)sets[set] * (size_t)rows.n_param + k];
        char *flat = set_of(params, &without_sum, sets[set]);
        size_t at = (size_t)param->offset * fm_element_bytes(params->element);
        assert(tensor->bytes ==
               (uint64_t)fm_param_count(param) * fm_element_bytes(params->element));
        params->kernels->upload(NULL, flat + at, tensor->data, tensor->bytes);
    }
    params->kernels->synchronize(NULL);
    fm_params_refresh_copy(params);
    free_bundle(&b);
    return FM_OK;
}

fm_status fm_checkpoint_load_set(const char *path, fm_params *params,
                                 const fm_checkpoint_state *state, fm_checkpoint_set set,
                                 fm_error *reterr) {
    bundle b;
    fm_checkpoint_state without_sum = *state;
    without_sum.sum = NULL;
    fm_status status = read_bundle(path, params, &without_sum, &b, reterr);
    if (status) return status;
    upload_set(params, &b, set == FM_CHECKPOINT_EMA ? SET_EMA : SET_MODEL, params->master);
    params->kernels->synchronize(NULL);
    fm_params_refresh_copy(params);
    free_bundle(&b);
    return FM_OK;
}
