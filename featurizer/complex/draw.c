/* draw.c: see draw.h. */
#include "featurizer/complex/draw.h"

#include "featurizer/complex/crop.h"
#include "featurizer/complex/draw_templates.h"
#include "featurizer/complex/sample.h"
#include "proto/complex_sample.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

typedef struct drawer {
    const fm_complex_request *request;
    const fm_plan *plan;
    const fm_assembly *assembly;
    const fm_draws *draws;
    fm_arena *arena;
    fm_error *reterr;
    fm_complex_crop crop;
    fm_tensor_view *tensor;
    uint32_t n_tensor;
} drawer;

/* -- the crop */

/* The draws of one attempt to crop: the attempt takes the place of the cycle. */
typedef struct attempt_draws {
    const fm_draws *draws;
    uint32_t attempt;
} attempt_draws;

static uint32_t below_in_attempt(void *context, fm_sample_purpose purpose, uint32_t cycle,
                                 uint32_t number, uint32_t below) {
    const attempt_draws *a = context;
    return a->draws->below(a->draws->context, purpose, cycle + a->attempt, number, below);
}

static void pick_in_attempt(void *context, fm_sample_purpose purpose, uint32_t cycle,
                            uint32_t number, uint32_t *list, uint32_t n, uint32_t n_pick) {
    const attempt_draws *a = context;
    a->draws->pick(a->draws->context, purpose, cycle + a->attempt, number, list, n, n_pick);
}

/* The crop's chains: that of the record, or one of the pairs of chains that have the same entities
 * as the record's interface and touch. */
static fm_status draw_reference(const drawer *d, fm_crop_request *crop) {
    const fm_assembly *a = d->assembly;
    const fm_complex_row *record = d->request->record;
    const uint32_t *chain = record->chain;
    crop->n_reference = record->is_interface ? 2 : 1;
    for (uint32_t k = 0; k < crop->n_reference; k++) {
        if (chain[k] >= a->n_chain || a->chains[chain[k]].asym_id != record->asym_id[k]) {
            return fm_fail(d->reterr, FM_ERR_DATA,
                           "the record's chain %u with asym_id %d is not one of the complex's %u",
                           chain[k], record->asym_id[k], a->n_chain);
        }
        crop->reference[k] = record->asym_id[k];
    }
    if (!record->is_interface) return FM_OK;
    uint32_t n = 0, *pairs = fm_arena_alloc_array(d->arena, a->n_pair, sizeof *pairs);
    if (!pairs) return fm_arena_full(d->arena, d->reterr);
    uint32_t entity[2] = {a->chains[chain[0]].entity, a->chains[chain[1]].entity};
    for (uint32_t p = 0; p < a->n_pair; p++) {
        uint32_t x = a->chains[a->pairs[p].a].entity, y = a->chains[a->pairs[p].b].entity;
        bool is_same = (x == entity[0] && y == entity[1]) || (x == entity[1] && y == entity[0]);
        if (is_same) pairs[n++] = p;
    }
    if (n == 0) return FM_OK;
    const fm_assembly_pair *pair =
        &a->pairs[pairs[d->draws->below(d->draws->context, FM_SAMPLE_DRAW_COMPLEX_PAIR, 0, 0, n)]];
    crop->reference[0] = a->chains[pair->a].asym_id;
    crop->reference[1] = a->chains[pair->b].asym_id;
    return FM_OK;
}

static fm_crop_method draw_method(const drawer *d, uint32_t attempt) {
    const uint32_t *weight = d->plan->crop_weight;
    uint32_t total = 0, method = 0;
    for (uint32_t k = 0; k < FM_N_CROP_METHOD; k++)
        total += weight[k];
    uint32_t left =
        d->draws->below(d->draws->context, FM_SAMPLE_DRAW_COMPLEX_METHOD, 0, attempt, total);
    while (left >= weight[method])
        left -= weight[method++];
    return (fm_crop_method)method;
}

/* Crops anew until a crop does not fail. The last way takes residues in part, so that it fails only
 * where no token of the record is resolved. */
static fm_status draw_crop(drawer *d) {
    fm_crop_request crop = {.size = d->plan->crop_size, .max_atoms = d->plan->max_atoms};
    fm_status status = draw_reference(d, &crop);
    if (status) return status;
    size_t mark = fm_arena_mark(d->arena);
    for (uint32_t attempt = 0; attempt <= FM_COMPLEX_CROP_DRAWS; attempt++) {
        attempt_draws context = {d->draws, attempt};
        const fm_draws draws = {
            .context = &context, .below = below_in_attempt, .pick = pick_in_attempt};
        crop.is_complete = attempt < FM_COMPLEX_CROP_DRAWS;
        crop.method = crop.is_complete ? draw_method(d, attempt) : FM_CROP_SPATIAL;
        fm_arena_rewind(d->arena, mark);
        status = fm_complex_crop_make(d->assembly, &crop, &draws, d->arena, &d->crop, d->reterr);
        if (status != FM_ERR_DATA) return status;
    }
    return status;
}

/* -- tensors */

static fm_tensor_view *enter(drawer *d, const fm_tensor_rule *rule, uint32_t cycle) {
    fm_tensor_view *view = &d->tensor[d->n_tensor++];
    *view = (fm_tensor_view){.id = (uint16_t)rule->id, .cycle = (uint8_t)cycle};
    while (!(rule->dtypes >> view->dtype & 1))
        view->dtype++;
    return view;
}

/* Enters the arrays as shared tensors, by id. */
static void enter_arrays(drawer *d, const fm_array *arrays, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const fm_array *array = &arrays[i];
        const fm_tensor_rule *rule = fm_schema_find_named(FM_SAMPLE_OF_COMPLEX, array->key);
        assert(rule);
        fm_tensor_view *view = enter(d, rule, FM_SHARED);
        assert(strcmp(fm_dtype_numpy(view->dtype), array->dtype) == 0);
        view->rank = (uint8_t)array->rank;
        view->bytes = fm_dtype_bytes(view->dtype);
        for (size_t axis = 0; axis < array->rank; axis++)
            view->bytes *= view->shape[axis] = (uint32_t)array->shape[axis];
        view->data = array->data ? array->data : "";
        fm_tensor_view moving = *view;
        uint32_t at = d->n_tensor - 1;
        for (; at > 0 && d->tensor[at - 1].id > moving.id; at--)
            d->tensor[at] = d->tensor[at - 1];
        d->tensor[at] = moving;
    }
}

/* Draws the rows of a cycle: a uniform number of the planned ones, at most max_msa. */
static fm_status add_cycle(drawer *d, const fm_complex_rows *rows, uint32_t cycle) {
    const fm_draws *draws = d->draws;
    uint32_t n_planned = rows->rows.n_row, n_token = rows->n_column;
    uint32_t n =
        1 + draws->below(draws->context, FM_SAMPLE_DRAW_COMPLEX_ROW_COUNT, cycle, 0, n_planned);
    if (n > d->plan->max_msa) n = d->plan->max_msa;
    const size_t bytes = (size_t)n * n_token;
    uint8_t *ids = fm_arena_alloc(d->arena, bytes), *deletion = fm_arena_alloc(d->arena, bytes);
    size_t mark = fm_arena_mark(d->arena);
    uint32_t *list = fm_arena_alloc_array(d->arena, n_planned, sizeof *list);
    if (!ids || !deletion || !list) return fm_arena_full(d->arena, d->reterr);
    for (uint32_t i = 0; i < n_planned; i++)
        list[i] = i;
    draws->pick(draws->context, FM_SAMPLE_DRAW_COMPLEX_ROWS, cycle, 0, list, n_planned, n);
    fm_complex_rows_gather(rows, list, n, ids, deletion);
    fm_arena_rewind(d->arena, mark);
    const uint8_t *const data[] = {ids, deletion};
    static const fm_tensor_id of[] = {FM_T_COMPLEX_MSA, FM_T_COMPLEX_DELETION};
    for (int k = 0; k < 2; k++) {
        fm_tensor_view *view = enter(d, fm_schema_find(of[k]), cycle);
        view->rank = 2;
        view->shape[0] = n;
        view->shape[1] = n_token;
        view->bytes = bytes;
        view->data = data[k];
    }
    return FM_OK;
}

static fm_status make_tensors(drawer *d, const fm_complex_entity_inputs *inputs,
                              uint32_t *ret_n_row) {
    const fm_complex_sample_options options = {.max_row = d->plan->max_planned_msa,
                                               .n_template = d->plan->max_templates,
                                               .compat_protenix = d->plan->compat_protenix,
                                               .prefix = ""};
    fm_array arrays[FM_COMPLEX_SAMPLE_ARRAYS];
    size_t n_array;
    fm_complex_rows rows;
    fm_status status =
        fm_complex_sample_plan(d->assembly, inputs, d->crop.tokens, d->crop.n_token, &options,
                               d->arena, arrays, &n_array, &rows, d->reterr);
    if (status) return status;
    const uint32_t n_cycle = d->request->n_cycle;
    d->tensor = fm_arena_alloc_array(d->arena, n_array + 2 * (size_t)n_cycle, sizeof *d->tensor);
    if (!d->tensor) return fm_arena_full(d->arena, d->reterr);
    enter_arrays(d, arrays, n_array);
    *ret_n_row = rows.rows.n_row;
    for (uint32_t cycle = 0; cycle < n_cycle && !status; cycle++)
        status = add_cycle(d, &rows, cycle);
    return status;
}

/* -- the whole sample */

static void fill_header(const drawer *d, uint32_t n_row, fm_sample *sample) {
    const fm_complex_request *request = d->request;
    const uint64_t index = request->index;
    *sample = (fm_sample){
        .seed = request->seed,
        .index = index,
        .step = index / d->plan->global_batch,
        .slot = (uint32_t)(index % d->plan->global_batch),
        .epoch = (uint32_t)(index / d->plan->epoch_samples),
        .chain = request->place,
        .n_cycle = request->n_cycle,
        .n_res_chain = d->assembly->n_token,
        .n_res = d->crop.n_token,
        .n_seq_chain = n_row,
        .resolution = d->assembly->resolution > 0 ? d->assembly->resolution : 0,
        .n_tensor = d->n_tensor,
        .tensor = d->tensor,
    };
    snprintf(sample->name, sizeof sample->name, "%s", request->complex->name);
}

static fm_status check_size(const drawer *d, const fm_sample *sample) {
    const fm_plan *plan = d->plan;
    size_t bytes = fm_sample_encoded_bytes(sample);
    size_t most = fm_sample_max_complex_bytes(plan->crop_size, plan->max_atoms, plan->max_msa,
                                              plan->max_templates, sample->n_cycle);
    if (bytes <= most) return FM_OK;
    return fm_fail(d->reterr, FM_ERR_LIMIT, "the sample of %s has %zu bytes, at most %zu",
                   sample->name, bytes, most);
}

static fm_status draw_sample(drawer *d, fm_sample *ret_sample) {
    const fm_complex_entity_inputs *inputs;
    uint32_t n_row;
    if (d->assembly->n_token > FM_LIMIT_N_RES) {
        return fm_fail(d->reterr, FM_ERR_LIMIT, "the complex has %u tokens, at most %u",
                       d->assembly->n_token, FM_LIMIT_N_RES);
    }
    fm_status status = draw_crop(d);
    if (!status) {
        status =
            fm_draw_entity_inputs(d->request, d->draws, &d->crop, d->arena, &inputs, d->reterr);
    }
    if (!status) status = make_tensors(d, inputs, &n_row);
    if (status) return status;
    fill_header(d, n_row, ret_sample);
    return check_size(d, ret_sample);
}

fm_status fm_complex_sample_draw(const fm_complex_request *request, fm_arena *arena,
                                 fm_sample *ret_sample, fm_error *reterr) {
    assert(request->plan->kind == FM_SAMPLE_OF_COMPLEX);
    assert(request->n_cycle >= 1 && request->n_cycle <= FM_LIMIT_N_CYCLE);
    fm_sample_draw key = {.seed = request->seed, .index = request->index};
    const fm_draws draws = fm_draws_philox(&key);
    drawer d = {.request = request,
                .plan = request->plan,
                .assembly = &request->complex->assembly,
                .draws = request->draws ? request->draws : &draws,
                .arena = arena,
                .reterr = reterr};
    return draw_sample(&d, ret_sample);
}
