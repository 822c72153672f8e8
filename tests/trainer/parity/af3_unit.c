/* af3_unit.c: see af3_unit.h. */
#include "tests/trainer/parity/af3_unit.h"

#include "tests/trainer/parity/af3_formula.h"
#include "tests/trainer/parity/af3_keep.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Relative errors ||a - b|| / ||b||. The reference's double precision gradients are rounded once to
 * float32. */
static const double OUTPUT_GATE = 5e-6, BOND_GATE = 1e-5, GRADIENT_GATE = 3e-5;
static const double WIDE_OUTPUT_GATE = 1e-12, WIDE_GRADIENT_GATE = 1e-7, SAMPLED_GATE = 1e-11;
/* Gradients of a smaller norm are zero in exact arithmetic and compared absolutely. */
static const double ZERO_NORM = 1e-4, ZERO_GATE = 1e-5;

enum { KEY_BYTES = 256, MAX_ROW = 4096 };

/* -- the file */

const fm_npy *unit_array(const af3_unit *u, const char *key) {
    const fm_npy *array = fm_npz_find(u->file, key);
    if (!array) {
        fprintf(stderr, "af3_parity: the file of unit %s has no array %s\n", u->name, key);
        exit(1);
    }
    return array;
}

int64_t unit_extent(const af3_unit *u, const char *key, int axis) {
    const fm_npy *array = unit_array(u, key);
    assert(axis >= 0 && (size_t)axis < array->rank);
    return (int64_t)array->shape[axis];
}

double unit_value(const fm_npy *array, int64_t i) {
    assert(i >= 0 && (uint64_t)i < array->count);
    if (!strcmp(array->dtype, "<i8")) return (double)((const int64_t *)array->data)[i];
    if (array->item_bytes == 1) return ((const uint8_t *)array->data)[i];
    return !strcmp(array->dtype, "<f8") ? ((const double *)array->data)[i]
                                        : (double)((const float *)array->data)[i];
}

double *unit_numbers(af3_unit *u, int64_t count) {
    double *numbers = fm_arena_alloc_array(&u->arena, (size_t)count, sizeof(double));
    assert(numbers);
    return numbers;
}

double *unit_values(af3_unit *u, const fm_npy *array) {
    double *values = unit_numbers(u, (int64_t)array->count);
    for (uint64_t i = 0; i < array->count; i++)
        values[i] = unit_value(array, (int64_t)i);
    return values;
}

/* The hash of "UNIT/PREFIX NAME". */
static uint64_t hash_of(const af3_unit *u, const char *prefix, const char *name) {
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s/%s%s", u->name, prefix, name);
    return fnv1a(key);
}

/* The drawn numbers of "UNIT/PREFIX NAME". */
static double *drawn_values(af3_unit *u, const char *prefix, const char *name, int64_t count) {
    uint64_t hash = hash_of(u, prefix, name);
    double *values = unit_numbers(u, count);
    for (int64_t i = 0; i < count; i++)
        values[i] = (double)af3_drawn(hash, i);
    return values;
}

/* The array PREFIX KEY with "f64." before it in double precision, or its samples; NULL if there is
 * none. */
static const fm_npy *expected(const af3_unit *u, const char *prefix, const char *key) {
    char name[KEY_BYTES];
    if (u->sampled) {
        snprintf(name, sizeof name, "%s/%s%s.samples", u->name, prefix, key);
    } else {
        snprintf(name, sizeof name, "%s%s%s", u->wide ? "f64." : "", prefix, key);
    }
    return fm_npz_find(u->file, name);
}

/* -- inputs and outputs */

static fm_tensor_ref add_input(af3_unit *u, const char *name, fm_element element, int rank,
                               const int64_t *shape, const double *values, bool differentiable) {
    assert(u->n_input < AF3_UNIT_INPUTS);
    af3_unit_input *input = &u->input[u->n_input++];
    *input = (af3_unit_input){.name = name, .values = values, .differentiable = differentiable};
    input->state = fm_state_add(&u->state, name ? name : "made", element, rank, shape);
    input->tensor = fm_tape_state(&u->tape, input->state, differentiable);
    return input->tensor;
}

fm_tensor_ref unit_input_as(af3_unit *u, const char *name, fm_element element, int rank,
                            const int64_t *shape) {
    char key[KEY_BYTES], gradient[KEY_BYTES];
    snprintf(key, sizeof key, "in.%s", name);
    snprintf(gradient, sizeof gradient, "gin.%s", name);
    const fm_npy *array = unit_array(u, key);
    bool differentiable = element == u->kernels->act && fm_npz_find(u->file, gradient) != NULL;
    fm_tensor_ref tensor =
        add_input(u, name, element, rank, shape, unit_values(u, array), differentiable);
    assert(fm_tensor_local_count(fm_tape_tensor(&u->tape, tensor)) == (int64_t)array->count);
    return tensor;
}

fm_tensor_ref unit_input(af3_unit *u, const char *name) {
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "in.%s", name);
    const fm_npy *array = unit_array(u, key);
    int64_t shape[FM_TENSOR_RANK] = {1};
    assert(array->rank <= FM_TENSOR_RANK);
    for (size_t i = 0; i < array->rank; i++)
        shape[i] = (int64_t)array->shape[i];
    return unit_input_as(u, name, u->kernels->act, array->rank ? (int)array->rank : 1, shape);
}

fm_tensor_ref unit_drawn(af3_unit *u, const char *name, int rank, const int64_t *shape) {
    int64_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= shape[i];
    return add_input(u, name, u->kernels->act, rank, shape, drawn_values(u, "in.", name, count),
                     expected(u, "gin.", name) != NULL);
}

fm_tensor_ref unit_made(af3_unit *u, fm_element element, int rank, const int64_t *shape,
                        const double *values) {
    return add_input(u, NULL, element, rank, shape, values, false);
}

fm_tensor_ref unit_ones(af3_unit *u, int rank, const int64_t *shape) {
    int64_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= shape[i];
    double *ones = unit_numbers(u, count);
    for (int64_t i = 0; i < count; i++)
        ones[i] = 1;
    return unit_made(u, u->kernels->act, rank, shape, ones);
}

void unit_output(af3_unit *u, fm_tensor_ref tensor) {
    unit_output_part(u, tensor, u->n_output, 0);
}

void unit_output_part(af3_unit *u, fm_tensor_ref tensor, int of, int64_t first) {
    assert(u->n_output < AF3_UNIT_OUTPUTS);
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "gout.%d", of);
    af3_unit_output *output = &u->output[u->n_output++];
    *output = (af3_unit_output){.tensor = tensor, .of = of, .first = first, .gradient = -1};
    fm_tape_keep(&u->tape, tensor);
    const fm_tensor *described = fm_tape_tensor(&u->tape, tensor);
    if ((u->sampled || fm_npz_find(u->file, key)) && described->needs_gradient) {
        output->gradient = fm_state_add_like(&u->state, described);
        fm_tape_seed_gradient(&u->tape, tensor, output->gradient);
    }
}

/* -- values on the device */

static void put(fm_element element, void *data, int64_t i, double value) {
    switch (element) {
    case FM_ELEMENT_F64: ((double *)data)[i] = value; break;
    case FM_ELEMENT_F32: ((float *)data)[i] = (float)value; break;
    case FM_ELEMENT_U8: ((uint8_t *)data)[i] = (uint8_t)value; break;
    case FM_ELEMENT_I32: ((int32_t *)data)[i] = (int32_t)value; break;
    default: assert(!"a type of an input");
    }
}

static double get(fm_element element, const void *data, int64_t i) {
    if (element == FM_ELEMENT_I32) return ((const int32_t *)data)[i];
    return element == FM_ELEMENT_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

void unit_upload(const af3_unit *u, void *device, fm_element element, int64_t count,
                 const double *values) {
    size_t bytes = (size_t)count * fm_element_bytes(element);
    void *host = malloc(bytes + 1);
    assert(host);
    for (int64_t i = 0; i < count; i++)
        put(element, host, i, values[i]);
    u->kernels->upload(NULL, device, host, bytes);
    u->kernels->synchronize(NULL);
    free(host);
}

double *unit_download(af3_unit *u, const void *device, fm_element element, int64_t count) {
    size_t bytes = (size_t)count * fm_element_bytes(element);
    void *host = malloc(bytes + 1);
    assert(host);
    u->kernels->download(NULL, host, device, bytes);
    u->kernels->synchronize(NULL);
    double *values = unit_numbers(u, count);
    for (int64_t i = 0; i < count; i++)
        values[i] = get(element, host, i);
    free(host);
    return values;
}

static void upload_state(af3_unit *u, int32_t tensor, const double *values) {
    const fm_tensor *to = &u->state.tensor[tensor];
    unit_upload(u, fm_state_data(&u->state, tensor), to->element, fm_tensor_local_count(to),
                values);
}

/* -- building */

/* Makes dropout use the masks of the file. */
static void use_masks(af3_unit *u, int n) {
    char key[KEY_BYTES];
    const double *mask[AF3_KEEP_MASKS];
    assert(n <= AF3_KEEP_MASKS);
    for (int i = 0; i < n; i++) {
        snprintf(key, sizeof key, "in.keep%d", i);
        mask[i] = unit_values(u, unit_array(u, key));
    }
    u->kernels = af3_keep_table(u->kernels, mask, n);
}

static fm_status build(af3_unit *u, const af3_unit_entry *entry, fm_error *error) {
    fm_status status = fm_arena_init(&u->arena, (size_t)4 << 30, error);
    if (!status && entry->n_keep) use_masks(u, entry->n_keep);
    if (!status) status = fm_params_init(&u->params, MAX_ROW, &u->arena, error);
    if (!status) status = fm_tape_init(&u->tape, u->kernels, &u->params, &u->state, true, error);
    if (status) return status;
    u->scope = (fm_scope){
        .params = &u->params, .arena = &u->arena, .name = "", .openfold = "", .deepmind_layer = -1};
    entry->record(u);
    for (int i = 0; i < u->n_input; i++) {
        if (u->input[i].differentiable) fm_tape_want_gradient(&u->tape, u->input[i].tensor);
    }
    status = fm_params_allocate(&u->params, u->kernels, error);
    if (!status) status = fm_state_allocate(&u->state, u->kernels, error);
    if (!status) status = fm_tape_plan(&u->tape, error);
    if (status) return status;
    u->memory = u->kernels->alloc((size_t)u->tape.size.arena_bytes + 1);
    assert(u->memory);
    fm_tape_bind(&u->tape, u->memory);
    u->tape.spoils = true;
    return FM_OK;
}

static void draw_weights(af3_unit *u) {
    for (int32_t p = 0; p < u->params.n_param; p++) {
        const fm_param *row = &u->params.param[p];
        uint64_t hash = hash_of(u, "", row->name);
        int64_t n = fm_param_count(row);
        double *values = unit_numbers(u, n);
        for (int64_t i = 0; i < n; i++)
            values[i] = (double)af3_drawn_parameter(row, hash, i);
        unit_upload(u, fm_params_at(&u->params, u->params.master, row->offset), u->params.element,
                    n, values);
    }
    fm_params_refresh_copy(&u->params);
}

static void load(af3_unit *u) {
    char key[KEY_BYTES];
    for (int i = 0; i < u->n_input; i++)
        upload_state(u, u->input[i].state, u->input[i].values);
    for (int i = 0; i < u->n_output; i++) {
        if (u->output[i].gradient < 0) continue;
        snprintf(key, sizeof key, "gout.%d", u->output[i].of);
        int64_t count = fm_tensor_local_count(&u->state.tensor[u->output[i].gradient]);
        upload_state(u, u->output[i].gradient,
                     u->sampled ? drawn_values(u, "", key, count)
                                : unit_values(u, unit_array(u, key)) + u->output[i].first);
    }
    if (u->sampled) {
        draw_weights(u);
        return;
    }
    int32_t used = 0;
    for (int32_t p = 0; p < u->params.n_param; p++) {
        const fm_param *row = &u->params.param[p];
        snprintf(key, sizeof key, "w.%s", row->name);
        const fm_npy *array = unit_array(u, key);
        assert((int64_t)array->count == fm_param_count(row));
        unit_upload(u, fm_params_at(&u->params, u->params.master, row->offset), u->params.element,
                    (int64_t)array->count, unit_values(u, array));
        used++;
    }
    fm_params_refresh_copy(&u->params);
    for (size_t i = 0; i < u->file->n_array; i++)
        used -= !strncmp(u->file->arrays[i].name, "w.", 2);
    if (used < 0) printf("%s: %d weights of the file have no row\n", u->name, (int)-used);
}

/* -- comparing */

typedef struct worst {
    double error;
    char name[KEY_BYTES];
    int count;
} worst;

static void note(worst *w, const char *name, double error) {
    if (!(error <= w->error) || w->count == 0) { /* not-a-number is the worst */
        w->error = error;
        snprintf(w->name, sizeof w->name, "%s", name);
    }
    w->count++;
}

/* The elements of a tensor of n that the file has: all, or the samples of "UNIT/PREFIX NAME". */
static const double *elements_of(af3_unit *u, const char *prefix, const char *name,
                                 const void *device, fm_element element, int64_t n,
                                 const fm_npy *array) {
    double *data = unit_download(u, device, element, n);
    if (!u->sampled) return data;
    uint64_t hash = hash_of(u, prefix, name);
    double *samples = unit_numbers(u, (int64_t)array->count);
    for (int64_t j = 0; j < (int64_t)array->count; j++)
        samples[j] = data[af3_sample_place(hash, j, n, (int64_t)array->count)];
    return samples;
}

/* `data` has the array's elements. */
static void compare(worst *w, worst *zero, const char *name, const double *data,
                    const fm_npy *array, const double *count) {
    double difference = 0, norm = 0, largest = 0;
    for (uint64_t i = 0; i < array->count; i++) {
        if (count && count[i] == 0) continue;
        double b = unit_value(array, (int64_t)i), e = data[i] - b;
        difference += e * e;
        norm += b * b;
        if (!(fabs(data[i]) <= largest)) largest = fabs(data[i]);
    }
    if (zero && sqrt(norm) < ZERO_NORM) {
        note(zero, name, largest);
    } else {
        note(w, name, sqrt(difference) / fmax(sqrt(norm), 1e-30));
    }
}

static void report(af3_unit *u, const char *group, const worst *w, double gate) {
    bool ok = w->error <= gate;
    if (w->count == 0) return;
    printf("%-28s %s %-5s %3d arrays, worst %.2e of %s (gate %.0e) %s\n", u->name,
           u->wide ? "f64" : "f32", group, w->count, w->error, w->name, gate, ok ? "ok" : "FAIL");
    u->failed |= !ok;
}

/* Every array of the file below the prefix must have been compared; `used` says with what. */
static void expect_all(af3_unit *u, const char *prefix,
                       bool (*used)(const af3_unit *, const char *)) {
    char whole[KEY_BYTES];
    if (u->sampled) return;
    int n = snprintf(whole, sizeof whole, "%s%s", u->wide ? "f64." : "", prefix);
    for (size_t i = 0; i < u->file->n_array; i++) {
        const char *name = u->file->arrays[i].name;
        if (strncmp(name, whole, (size_t)n) != 0 || used(u, name + n)) continue;
        printf("%-28s %s the unit has no %s FAIL\n", u->name, u->wide ? "f64" : "f32", name);
        u->failed = true;
    }
}

static bool is_output(const af3_unit *u, const char *name) {
    for (int i = 0; i < u->n_output; i++)
        if (strtol(name, NULL, 10) == u->output[i].of) return true;
    return false;
}

static bool is_differentiable_input(const af3_unit *u, const char *name) {
    for (int i = 0; i < u->n_input; i++) {
        const af3_unit_input *input = &u->input[i];
        if (input->differentiable && input->name && !strcmp(input->name, name)) return true;
    }
    return false;
}

static bool is_weight(const af3_unit *u, const char *name) {
    for (int32_t p = 0; p < u->params.n_param; p++)
        if (!strcmp(u->params.param[p].name, name)) return true;
    return false;
}

static void compare_outputs(af3_unit *u) {
    worst w = {0};
    char key[KEY_BYTES];
    for (int i = 0; i < u->n_output; i++) {
        const af3_unit_output *output = &u->output[i];
        snprintf(key, sizeof key, "%d", output->of);
        const fm_npy *array = expected(u, "out.", key);
        if (!array) continue;
        const fm_tensor *described = fm_tape_tensor(&u->tape, output->tensor);
        int64_t n = fm_tensor_local_count(described);
        fm_npy part = *array;
        if (!u->sampled) part.count = (uint64_t)n;
        assert((uint64_t)output->first + part.count <= array->count);
        part.data = (const char *)array->data + (size_t)output->first * array->item_bytes;
        compare(&w, NULL, key,
                elements_of(u, "out.", key, fm_tape_data(&u->tape, output->tensor),
                            described->element, n, &part),
                &part, output->count);
    }
    double gate = u->wide                         ? WIDE_OUTPUT_GATE
                  : !strcmp(u->name, "loss_bond") ? BOND_GATE
                                                  : OUTPUT_GATE;
    report(u, "out", &w, gate);
    expect_all(u, "out.", is_output);
}

static void compare_gradients(af3_unit *u) {
    worst inputs = {0}, weights = {0}, zero = {0};
    for (int i = 0; i < u->n_input; i++) {
        const af3_unit_input *input = &u->input[i];
        const fm_npy *array = input->differentiable ? expected(u, "gin.", input->name) : NULL;
        if (!array) continue;
        int64_t n = fm_tensor_local_count(fm_tape_tensor(&u->tape, input->tensor));
        compare(&inputs, &zero, input->name,
                elements_of(u, "gin.", input->name, fm_tape_gradient(&u->tape, input->tensor),
                            u->kernels->act, n, array),
                array, NULL);
    }
    for (int32_t p = 0; p < u->params.n_param; p++) {
        const fm_param *row = &u->params.param[p];
        const fm_npy *array = expected(u, "gw.", row->name);
        if (!array) continue;
        compare(&weights, &zero, row->name,
                elements_of(u, "gw.", row->name,
                            fm_params_at(&u->params, u->params.gradient, row->offset),
                            u->params.element, fm_param_count(row), array),
                array, NULL);
    }
    double wide = u->sampled ? SAMPLED_GATE : WIDE_GRADIENT_GATE;
    double gate = u->wide ? wide : GRADIENT_GATE;
    report(u, "gin", &inputs, gate);
    report(u, "gw", &weights, gate);
    report(u, "zero", &zero, ZERO_GATE);
    expect_all(u, "gin.", is_differentiable_input);
    expect_all(u, "gw.", is_weight);
}

bool unit_run(const af3_unit_entry *entry, const fm_npz *file, const fm_kernels *kernels) {
    if (entry->n_keep && kernels != fm_kernels_cpu(kernels->act)) return true;
    af3_unit *u = calloc(1, sizeof *u);
    assert(u);
    *u = (af3_unit){.name = entry->name,
                    .file = file,
                    .sampled = entry->sampled,
                    .kernels = kernels,
                    .wide = kernels->act == FM_ELEMENT_F64};
    fm_error error = {0};
    if (build(u, entry, &error)) {
        fprintf(stderr, "af3_parity: %s: %s\n", u->name, error.message);
        u->failed = true;
    } else {
        load(u);
        fm_tape_forward(&u->tape, NULL);
        compare_outputs(u);
        fm_tape_clear_unwritten(&u->tape, NULL);
        fm_tape_backward(&u->tape, NULL);
        compare_gradients(u);
    }
    bool good = !u->failed;
    fm_tape_fini(&u->tape);
    kernels->release(u->memory);
    fm_state_release(&u->state);
    fm_params_release(&u->params);
    fm_arena_fini(&u->arena);
    free(u);
    return good;
}
