/* params.c: see params.h. */
#include "trainer/tensor/params.h"

#include <assert.h>
#include <string.h>

fm_status fm_params_init(fm_params *params, int32_t max_param, fm_arena *arena, fm_error *reterr) {
    *params = (fm_params){.max_param = max_param, .max_block = max_param};
    params->param = fm_arena_alloc_array(arena, (size_t)max_param, sizeof(fm_param));
    params->block = fm_arena_alloc_array(arena, (size_t)max_param, sizeof(fm_param_block));
    return params->param && params->block ? FM_OK : fm_arena_full(arena, reterr);
}

fm_param_ref fm_params_add_block_after_zeros(fm_params *params, int64_t zeros) {
    assert(params->n_block < params->max_block);
    params->n_element =
        (params->n_element + zeros + FM_PARAMS_ALIGN - 1) / FM_PARAMS_ALIGN * FM_PARAMS_ALIGN;
    params->block[params->n_block] = (fm_param_block){.offset = params->n_element, .zeros = zeros};
    return params->n_block++;
}

fm_param_ref fm_params_add_block(fm_params *params) {
    return fm_params_add_block_after_zeros(params, 0);
}

int64_t fm_param_count(const fm_param *param) {
    int64_t count = 1;
    for (int axis = 0; axis < param->rank; axis++)
        count *= param->shape[axis];
    return count;
}

void fm_params_begin_constants(fm_params *params) {
    assert(!params->has_constants);
    params->n_trained =
        (params->n_element + FM_PARAMS_ALIGN - 1) / FM_PARAMS_ALIGN * FM_PARAMS_ALIGN;
    params->has_constants = true;
}

void fm_params_add(fm_params *params, const fm_param *row) {
    assert(params->n_block > 0 && params->n_param < params->max_param);
    assert(row->rank >= 1 && row->rank <= FM_PARAM_RANK);
    fm_param *added = &params->param[params->n_param++];
    *added = *row;
    added->block = params->n_block - 1;
    added->offset = params->n_element;
    int64_t count = fm_param_count(row);
    params->block[added->block].count += count;
    params->n_element += count;
    if (!params->has_constants) params->n_value += count;
}

const fm_param *fm_params_find(const fm_params *params, const char *name) {
    for (int32_t i = 0; i < params->n_param; i++) {
        if (params->param[i].name && !strcmp(params->param[i].name, name)) return &params->param[i];
    }
    return NULL;
}

/* Allocates the first n_flat flat buffers of master, gradient, moment1, moment2, ema, and the copy.
 */
static fm_status allocate(fm_params *params, const fm_kernels *kernels, int n_flat,
                          fm_error *reterr) {
    params->kernels = kernels;
    params->element = kernels->acc;
    params->n_element =
        (params->n_element + FM_PARAMS_ALIGN - 1) / FM_PARAMS_ALIGN * FM_PARAMS_ALIGN;
    int64_t flat_bytes = params->n_element * (int64_t)fm_element_bytes(params->element);
    bool narrow = kernels->act != kernels->acc;
    params->memory_bytes = n_flat * flat_bytes;
    if (narrow) params->memory_bytes += params->n_element * (int64_t)fm_element_bytes(kernels->act);
    params->memory = kernels->alloc((size_t)params->memory_bytes);
    if (!params->memory) {
        return fm_fail(reterr, FM_ERR_NOMEM,
                       "cannot allocate %.1f MiB of device memory for parameters",
                       (double)params->memory_bytes / (1 << 20));
    }
    void **flat[] = {&params->master, &params->gradient, &params->moment1, &params->moment2,
                     &params->ema};
    for (int i = 0; i < n_flat; i++)
        *flat[i] = (char *)params->memory + i * flat_bytes;
    params->copy = narrow ? (char *)params->memory + n_flat * flat_bytes : NULL;
    int64_t act_bytes = (int64_t)fm_element_bytes(kernels->act);
    kernels->fill(NULL, params->memory_bytes / act_bytes, 0.0, params->memory);
    return FM_OK;
}

fm_status fm_params_allocate(fm_params *params, const fm_kernels *kernels, fm_error *reterr) {
    return allocate(params, kernels, 5, reterr);
}

fm_status fm_params_allocate_values(fm_params *params, const fm_kernels *kernels,
                                    fm_error *reterr) {
    return allocate(params, kernels, 1, reterr);
}

void fm_params_borrow(fm_params *params, const fm_params *owner) {
    assert(params->n_param == owner->n_param && params->n_block == owner->n_block);
    params->kernels = owner->kernels;
    params->element = owner->element;
    params->n_element = owner->n_element;
    params->master = owner->master;
    params->copy = owner->copy;
}

void fm_params_release(fm_params *params) {
    if (params->kernels && params->memory) params->kernels->release(params->memory);
    params->memory = NULL;
}

/* FNV-1a. A parameter's draws depend on its name, not on its place in the table. */
static uint32_t name_hash(const char *name) {
    uint32_t hash = 2166136261u;
    for (const char *at = name ? name : ""; *at; at++)
        hash = (hash ^ (uint8_t)*at) * 16777619u;
    return hash;
}

void fm_params_draw(fm_params *params, uint64_t seed) {
    for (int32_t i = 0; i < params->n_param; i++) {
        const fm_param *row = &params->param[i];
        fm_draw draw = {.seed = seed, .layer = name_hash(row->name), .purpose = FM_PURPOSE_INIT};
        params->kernels->init(NULL, row->init, fm_param_count(row), 0, row->init_scale, &draw,
                              fm_params_at(params, params->master, row->offset));
    }
    /* the kernel `copy` counts elements of the act type */
    int64_t ratio =
        (int64_t)(fm_element_bytes(params->element) / fm_element_bytes(params->kernels->act));
    if (params->ema) {
        params->kernels->copy(NULL, params->n_element * ratio, params->master, params->ema);
    }
    fm_params_refresh_copy(params);
}

void fm_params_refresh_copy(fm_params *params) {
    if (params->copy) {
        params->kernels->cast(NULL, params->n_element, params->element, params->master,
                              params->copy);
    }
}
