/* begin_from.c: see begin_from.h. The settings that a checkpoint stores give the parameters of its
 * model, which are compared with those of the run by name and shape. */
#include "trainer/app/train/begin_from.h"

#include "proto/base/log.h"
#include "trainer/app/settings/network.h"
#include "trainer/app/settings/train_config.h"
#include "trainer/checkpoint/checkpoint.h"

#include <string.h>

enum { NOTE_BYTES = 1 << 20, TABLE_BYTES = 64 << 20 };

/* A part of a model that one stage of training has and another has not: the parameters whose names
 * begin with the prefix. */
typedef struct part {
    const char *name, *prefix;
    bool may_be_new;
    int64_t n_new, n_left_out; /* values */
} part;

static part *part_of(part *parts, size_t n_part, const char *name) {
    for (size_t i = 0; i < n_part; i++)
        if (strncmp(name, parts[i].prefix, strlen(parts[i].prefix)) == 0) return &parts[i];
    return NULL;
}

static bool is_same_shape(const fm_param *a, const fm_param *b) {
    return a->rank == b->rank && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

/* Counts the parameters of parts that are new or not used. Returns the first parameter by which the
 * two models differ otherwise, or NULL. */
static const char *compare(const fm_params *saved, const fm_params *params, part *parts,
                           size_t n_part) {
    for (int32_t i = 0; i < params->n_param; i++) {
        const fm_param *now = &params->param[i], *before = fm_params_find(saved, now->name);
        if (before && is_same_shape(now, before)) continue;
        part *p = part_of(parts, n_part, now->name);
        if (before || !p || !p->may_be_new) return now->name;
        p->n_new += fm_param_count(now);
    }
    for (int32_t i = 0; i < saved->n_param; i++) {
        const fm_param *before = &saved->param[i];
        if (fm_params_find(params, before->name)) continue;
        part *p = part_of(parts, n_part, before->name);
        if (!p) return before->name;
        p->n_left_out += fm_param_count(before);
    }
    return NULL;
}

static void say_parts(const char *path, const part *parts, size_t n_part) {
    for (size_t i = 0; i < n_part; i++) {
        if (parts[i].n_new) {
            fm_log(FM_LOG_INFO, "part_added",
                   "part=\"%s\" parameters=%lld from=%s why=\"the checkpoint has none; its values "
                   "are drawn\"",
                   parts[i].name, (long long)parts[i].n_new, path);
        }
        if (parts[i].n_left_out) {
            fm_log(FM_LOG_INFO, "part_left_out",
                   "part=\"%s\" parameters=%lld from=%s why=\"this model has none\"", parts[i].name,
                   (long long)parts[i].n_left_out, path);
        }
    }
}

/* Lists the parameters of the checkpoint's model. */
static fm_status list_saved(const char *path, const fm_checkpoint_state *state, fm_arena *arena,
                            fm_params *ret_saved, fm_error *reterr) {
    fm_train_config config;
    fm_status status = fm_train_config_read_stored(state->config, path, &config, reterr);
    return status ? status
                  : fm_network_of(&config)->list_parameters(&config, arena, ret_saved, reterr);
}

static fm_status load(const char *path, fm_params *params, fm_arena *arena, fm_error *reterr) {
    part parts[] = {{.name = "aligned error head", .prefix = "aligned_error.", .may_be_new = true},
                    {.name = "template embedders", .prefix = "template."}};
    const size_t n_part = sizeof parts / sizeof parts[0];
    fm_checkpoint_state state;
    fm_params saved;
    fm_status status = fm_checkpoint_peek_named(path, arena, &state, reterr);
    if (!status) status = list_saved(path, &state, arena, &saved, reterr);
    if (status) return status;
    const char *misfit = compare(&saved, params, parts, n_part);
    if (misfit) {
        return fm_fail_in(reterr, FM_ERR_CORRUPT, path,
                          "the checkpoint lacks a parameter of this model or has it in another "
                          "shape (%s); both must have the same sizes",
                          misfit);
    }
    status = fm_checkpoint_load_shared(path, &saved, params, &state, reterr);
    if (!status) say_parts(path, parts, n_part);
    return status;
}

fm_status fm_begin_from(const char *path, fm_params *params, fm_error *reterr) {
    fm_arena arena;
    fm_status status = fm_arena_init(&arena, NOTE_BYTES + TABLE_BYTES, reterr);
    if (status) return status;
    status = load(path, params, &arena, reterr);
    fm_arena_fini(&arena);
    return status;
}
