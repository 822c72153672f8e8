/* predict_model.c: see predict_model.h. */
#include "trainer/app/prediction/predict_model.h"

#include "proto/base/file.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/app/settings/infer_preset.h"
#include "trainer/app/settings/network.h"
#include "trainer/checkpoint/foreign.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FOREIGN_CLUSTERS = 508, FOREIGN_EXTRA = 5120 };

static const size_t arena_bytes = (size_t)1 << 32; /* address space for tables and reports */

/* -- the hash of the file */

/* A thread hashes the file while its values are read, because a checkpoint has 1.5 GB. */
typedef struct hashing {
    const char *path;
    fm_sha256 hash;
    fm_status status;
    fm_error error;
    pthread_t thread;
    bool has_thread;
} hashing;

static fm_status hash_file(const char *path, fm_sha256 *ret_hash, fm_error *reterr) {
    uint8_t bytes[1 << 16];
    uint64_t size;
    int fd;
    fm_status status = fm_file_open(path, &fd, &size, reterr);
    if (status) return status;
    fm_sha256_state *state = fm_sha256_create();
    ssize_t n;
    while ((n = read(fd, bytes, sizeof bytes)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) break;
        fm_sha256_update(state, bytes, (size_t)n);
    }
    if (n < 0) status = fm_fail_in(reterr, FM_ERR_IO, path, "cannot read: %s", strerror(errno));
    *ret_hash = fm_sha256_digest(state);
    fm_sha256_destroy(state);
    close(fd);
    return status;
}

static void *hash_in_thread(void *argument) {
    hashing *h = argument;
    h->status = hash_file(h->path, &h->hash, &h->error);
    return NULL;
}

static void begin_hash(hashing *h, const char *path) {
    *h = (hashing){.path = path};
    h->has_thread = pthread_create(&h->thread, NULL, hash_in_thread, h) == 0;
    if (!h->has_thread) (void)hash_in_thread(h);
}

static fm_status end_hash(hashing *h, fm_sha256 *ret_hash, fm_error *reterr) {
    if (h->has_thread) pthread_join(h->thread, NULL);
    if (h->status && reterr) *reterr = h->error;
    *ret_hash = h->hash;
    return h->status;
}

/* -- sizes */

/* The settings that a checkpoint stores. FM_ERR_UNSUPPORTED for a file of another kind. */
static fm_status look_at_checkpoint(const char *path, fm_arena *arena, fm_predict_model *model,
                                    fm_error *reterr) {
    fm_checkpoint_state state;
    fm_status status = fm_checkpoint_peek(path, arena, &state, reterr);
    if (status) return status;
    status = fm_train_config_read_stored(state.config, path, &model->config, reterr);
    model->is_checkpoint = true;
    snprintf(model->about, sizeof model->about, "checkpoint of step %llu",
             (unsigned long long)state.step);
    return status;
}

static fm_status look_at_foreign(const char *path, fm_arena *arena, fm_predict_model *model,
                                 fm_error *reterr) {
    fm_weights_file *file;
    fm_inferred_preset found;
    fm_status status = fm_weights_file_open_named(path, &file, reterr);
    if (status) return status;
    status = fm_preset_infer(file, NULL, arena, &found, &model->config, reterr);
    const char *network = fm_foreign_name_network(file);
    fm_weights_file_close(file);
    if (status) {
        fm_error_in(reterr, path);
        return status;
    }
    if (found.n_difference) {
        return fm_fail_in(reterr, FM_ERR_DATA, path,
                          "these weights fit no model of foldmill; the nearest is %s, from which "
                          "%zu array%s. `foldmill import %s --out FILE` lists them%s",
                          found.name, found.n_difference,
                          found.n_difference == 1 ? " differs" : "s differ", path, network);
    }
    char assumed[FM_PRESET_ASSUMED_BYTES] = "";
    if (!found.is_stored) fm_preset_list_assumed(&model->config, assumed);
    model->config.data.max_msa_clusters = FOREIGN_CLUSTERS;
    model->config.data.max_extra_msa = FOREIGN_EXTRA;
    model->config.data.max_cycle = 4;
    snprintf(model->about, sizeof model->about, "weights of %s%s%.80s%s%s", found.name,
             *found.changes ? " with " : "", found.changes, *assumed ? "; assumed " : "", assumed);
    return FM_OK;
}

fm_status fm_predict_model_look(const fm_predict_model_options *options,
                                fm_predict_model *ret_model, fm_error *reterr) {
    fm_arena arena;
    *ret_model = (fm_predict_model){.infer = NULL};
    fm_status status = fm_checkpoint_refuse_folder(
        options->path,
        "a file of weights: a checkpoint of foldmill, an .npz of AlphaFold, or safetensors with "
        "OpenFold's names",
        reterr);
    if (!status) status = fm_arena_init(&arena, arena_bytes, reterr);
    if (status) return status;
    status = fm_checkpoint_is(options->path)
                 ? look_at_checkpoint(options->path, &arena, ret_model, reterr)
                 : look_at_foreign(options->path, &arena, ret_model, reterr);
    fm_arena_fini(&arena);
    fm_train_config *config = &ret_model->config;
    if (!status && config->network == FM_NETWORK_AF2 && config->model.structure.n_iteration == 0) {
        status = fm_fail_in(reterr, FM_ERR_UNSUPPORTED, options->path,
                            "the model has no structure module, so it predicts no structures");
    }
    if (status) return status;
    if (options->n_cluster) config->data.max_msa_clusters = (int64_t)options->n_cluster;
    if (options->n_extra) config->data.max_extra_msa = (int64_t)options->n_extra;
    config->model.n_seq = config->data.max_msa_clusters;
    config->model.n_extra = config->data.max_extra_msa;
    return fm_path_mark_read(options->path, &ret_model->mark, reterr);
}

/* -- values */

/* The hash, which goes into the results, must be that of the values, and these must have the sizes
 * that were read. */
static fm_status check_is_same(const char *path, const fm_path_mark *before, fm_error *reterr) {
    fm_path_mark now;
    fm_status status = fm_path_mark_read(path, &now, reterr);
    if (status || fm_path_mark_is_same(&now, before)) return status;
    return fm_fail_in(reterr, FM_ERR_DATA, path,
                      "the weights changed while this command ran; start it again");
}

static fm_status load_checkpoint(const fm_predict_model_options *options, fm_params *params,
                                 fm_arena *arena, fm_error *reterr) {
    fm_checkpoint_state state;
    fm_status status = fm_checkpoint_peek(options->path, arena, &state, reterr);
    if (status) return status;
    return fm_checkpoint_load_set(options->path, params, &state, options->set, reterr);
}

static fm_status load_values(const fm_predict_model_options *options, const fm_predict_model *model,
                             fm_params *params, fm_error *reterr) {
    const fm_import_options strict = {.allow_missing = false};
    fm_arena arena;
    fm_import_report report;
    fm_status status = fm_arena_init(&arena, arena_bytes, reterr);
    if (status) return status;
    status = model->is_checkpoint
                 ? load_checkpoint(options, params, &arena, reterr)
                 : fm_foreign_import(options->path, params, &strict, &arena, &report, reterr);
    fm_arena_fini(&arena);
    return status;
}

fm_status fm_predict_model_fill(const fm_predict_model_options *options, fm_predict_model *model,
                                fm_params *params, fm_error *reterr) {
    hashing hash;
    begin_hash(&hash, options->path);
    fm_status status = load_values(options, model, params, reterr);
    fm_status hashed = end_hash(&hash, &model->hash, status ? NULL : reterr);
    if (!status) status = hashed;
    return status ? status : check_is_same(options->path, &model->mark, reterr);
}

fm_status fm_predict_model_load(const fm_predict_model_options *options, fm_predict_model *model,
                                fm_error *reterr) {
    const double gib = 1 << 30;
    fm_infer_options infer = {.model = model->config.model,
                              .predicts = true,
                              .groups = options->groups,
                              .dropout = options->dropout,
                              .n_draw = (int32_t)options->n_draw,
                              .recycle_tol = options->recycle_tol,
                              .heads = 1u << FM_HEAD_PLDDT | 1u << FM_HEAD_ALIGNED_ERROR,
                              .memory_budget_bytes = (int64_t)(options->memory_budget_gib * gib)};
    memcpy(infer.weight, model->config.loss, sizeof infer.weight);
    fm_status status = fm_device_find(options->device, options->dtype, &infer.kernels, reterr);
    if (!status) status = fm_infer_create(&infer, &model->infer, reterr);
    if (status) return status;
    return fm_predict_model_fill(options, model, fm_infer_get_params(model->infer), reterr);
}

void fm_predict_model_unload(fm_predict_model *model) {
    fm_infer_destroy(model->infer);
    model->infer = NULL;
}
