/* af3_bench.c: see af3_bench.h. */
#include "tests/trainer/parity/af3_full.h"
#include "trainer/model/af3/split.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t ARENA_BYTES = (size_t)8 << 30;

/* -- values of the state */

static void put_element(fm_element element, void *data, int64_t i, double value) {
    switch (element) {
    case FM_ELEMENT_F64: ((double *)data)[i] = value; break;
    case FM_ELEMENT_F32: ((float *)data)[i] = (float)value; break;
    case FM_ELEMENT_U8: ((uint8_t *)data)[i] = (uint8_t)value; break;
    case FM_ELEMENT_I32: ((int32_t *)data)[i] = (int32_t)value; break;
    default: assert(!"a type of an input");
    }
}

static double get_element(fm_element element, const void *data, int64_t i) {
    float value;
    switch (element) {
    case FM_ELEMENT_F64: return ((const double *)data)[i];
    case FM_ELEMENT_BF16: {
        uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
        memcpy(&value, &bits, sizeof value);
        return (double)value;
    }
    default: return (double)((const float *)data)[i];
    }
}

void bench_put(void *context, int32_t tensor, int64_t at, double value) {
    af3_bench *b = context;
    const fm_tensor *to = &b->state.tensor[tensor];
    assert(at >= 0 && at < fm_tensor_local_count(to));
    put_element(to->element, b->host + b->state.offset[tensor], at, value);
    b->written[tensor] = true;
}

void bench_clear(af3_bench *b, int32_t tensor) {
    memset(b->host + b->state.offset[tensor], 0,
           (size_t)fm_tensor_local_bytes(&b->state.tensor[tensor]));
    b->written[tensor] = true;
}

/* Uploads what has been written since the last call. */
void bench_send(af3_bench *b) {
    for (int32_t t = 0; t < b->state.n_tensor; t++) {
        if (!b->written[t]) continue;
        b->kernels->upload(NULL, fm_state_data(&b->state, t), b->host + b->state.offset[t],
                           (size_t)fm_tensor_local_bytes(&b->state.tensor[t]));
        b->written[t] = false;
    }
    b->kernels->synchronize(NULL);
}

/* Returns numbers of the device in memory of the step's life. */
double *bench_fetch(af3_bench *b, const void *device, fm_element element, int64_t count) {
    size_t bytes = (size_t)count * fm_element_bytes(element);
    void *host = malloc(bytes + 1);
    double *values = fm_arena_alloc_array(&b->arena, (size_t)count, sizeof *values);
    assert(host && values);
    b->kernels->download(NULL, host, device, bytes);
    b->kernels->synchronize(NULL);
    for (int64_t i = 0; i < count; i++)
        values[i] = get_element(element, host, i);
    free(host);
    return values;
}

/* -- building */

fm_status bench_open_case(af3_bench *b, const char *config, const fm_npz *in, int pad,
                          fm_error *reterr) {
    b->wide = b->kernels->act == FM_ELEMENT_F64;
    fm_status status = fm_arena_init(&b->arena, ARENA_BYTES, reterr);
    b->of = (af3_case){.in = in, .arena = &b->arena};
    if (!status) status = af3_case_open(&b->of, config, pad, reterr);
    b->of.config.groups = b->groups;
    b->of.config = fm_af3_split_pad(&b->of.config);
    return status;
}

fm_status bench_open(af3_bench *b, const char *config, const fm_npz *in, int pad,
                     fm_error *reterr) {
    fm_status status = bench_open_case(b, config, in, pad, reterr);
    b->params = &b->own;
    if (!status) status = fm_params_init(b->params, FM_AF3_MAX_PARAM, &b->arena, reterr);
    if (status) return status;
    fm_af3_add_parameters(b->params, &b->arena, &b->of.config, &b->weights);
    fm_af3_declare_inputs(&b->state, &b->of.config, b->kernels, &b->inputs);
    return FM_OK;
}

fm_status bench_allocate(af3_bench *b, fm_error *reterr) {
    fm_status status = fm_params_allocate(b->params, b->kernels, reterr);
    if (!status) status = fm_state_allocate(&b->state, b->kernels, reterr);
    if (status) return status;
    b->host = calloc(1, (size_t)b->state.bytes);
    assert(b->host);
    return FM_OK;
}

void bench_close(af3_bench *b) {
    fm_state_release(&b->state);
    fm_params_release(&b->own);
    af3_case_close(&b->of);
    free(b->host);
    fm_arena_fini(&b->arena);
}

bool bench_prints(const af3_bench *b) {
    return !b->groups || b->groups->place.rank == 0;
}

void bench_upload(af3_bench *b, void *device, fm_element element, int64_t count,
                  const double *values) {
    size_t size = fm_element_bytes(element);
    void *host = malloc((size_t)count * size);
    assert(host);
    for (int64_t i = 0; i < count; i++)
        put_element(element, host, i, values[i]);
    b->kernels->upload(NULL, device, host, (size_t)count * size);
    b->kernels->synchronize(NULL);
    free(host);
}

void af3_load_parameters(const fm_npz *weights, fm_params *params) {
    size_t size = fm_element_bytes(params->element);
    void *master = calloc((size_t)params->n_element, size);
    assert(master);
    for (int32_t p = 0; p < params->n_param; p++) {
        const fm_param *row = &params->param[p];
        const fm_npy *array = case_find(weights, "w/", row->name);
        assert(array && (int64_t)array->count == fm_param_count(row));
        for (int64_t i = 0; i < (int64_t)array->count; i++)
            put_element(params->element, master, row->offset + i, case_value(array, i));
    }
    void *const flat[] = {params->master, params->ema};
    for (int k = 0; k < 2; k++) {
        if (!flat[k]) continue;
        params->kernels->upload(NULL, flat[k], master, (size_t)params->n_element * size);
    }
    params->kernels->synchronize(NULL);
    fm_params_refresh_copy(params);
    free(master);
}

void bench_load_parameters(af3_bench *b) {
    af3_load_parameters(b->of.in, b->params);
}

/* -- comparing */

void af3_note(af3_worst *w, const char *name, double error) {
    if (!(error <= w->error) || w->count == 0) { /* not-a-number is the af3_worst */
        w->error = error;
        snprintf(w->name, sizeof w->name, "%s", name);
    }
    w->sum += error;
    w->count++;
}

double af3_relative(const double *data, const fm_npy *array) {
    double difference = 0, norm = 0;
    for (uint64_t i = 0; i < array->count; i++) {
        double b = case_value(array, (int64_t)i), e = data[i] - b;
        difference += e * e;
        norm += b * b;
    }
    return sqrt(difference) / fmax(sqrt(norm), 1e-30);
}

/* Where element i of the array is in the tensor, whose axes may be longer, and which may lack
 * leading axes of 1. */
static int64_t padded_place(const fm_npy *array, const fm_tensor *tensor, int64_t i) {
    int64_t at = 0;
    for (int axis = tensor->rank - 1, of = (int)array->rank - 1; axis >= 0; axis--, of--) {
        int64_t extent = (int64_t)array->shape[of];
        assert(of >= 0 && extent <= tensor->local[axis]);
        at += i % extent * tensor->stride[axis];
        i /= extent;
    }
    assert(i == 0);
    return at;
}

/* Notes the noise of a group, or reports the errors of bf16 against it. */
static void report_noise(af3_bench *b, const char *group, const af3_worst *w) {
    af3_noise *noise = b->noise;
    double mean = w->sum / fmax(w->count, 1);
    const char *type = noise->is_bf16 ? "bf16" : "tf32";
    int i = 0;
    while (i < noise->n && strcmp(noise->group[i], group) != 0)
        i++;
    if (!noise->known) {
        assert(i == noise->n && i < AF3_NOISE_GROUPS);
        snprintf(noise->group[i], sizeof noise->group[i], "%s", group);
        noise->mean[i] = mean;
        noise->n++;
        return;
    }
    bool ok = i < noise->n && w->count > 0 && mean <= 2 * noise->mean[i];
    b->failed |= !ok;
    if (ok && !bench_prints(b)) return;
    printf("%s %s %-12s %4d arrays, mean %.2e, worst %.2e of %s (plain %s %.2e) %s\n", b->name,
           type, group, w->count, mean, w->error, w->name, type, i < noise->n ? noise->mean[i] : 0,
           ok ? "ok" : "FAIL");
}

void bench_report_gate(af3_bench *b, const char *group, const af3_worst *w, double gate) {
    bool ok = w->count > 0 && w->error <= gate;
    b->failed |= !ok;
    if (ok && !bench_prints(b)) return;
    printf("%s %s %-12s %4d arrays, worst %.2e of %s (gate %.0e) %s\n", b->name,
           b->wide            ? "f64"
           : b->kernels->wide ? "bf16"
                              : "f32",
           group, w->count, w->error, w->count ? w->name : "none", gate, ok ? "ok" : "FAIL");
}

void bench_report(af3_bench *b, const char *group, const af3_worst *w, double gate) {
    if (b->noise && gate > 0) {
        report_noise(b, group, w);
    } else {
        bench_report_gate(b, group, w, gate);
    }
}

void bench_report_memory(af3_bench *b, const char *pass, const fm_tape *tape) {
    int64_t planned = tape->size.arena_bytes, used = fm_tape_used_bytes(tape);
    bool ok = used == planned;
    if (used == 0) return; /* it did not run: a sample of one cycle has no other */
    b->failed |= !ok;
    if (ok && !bench_prints(b)) return;
    printf("%s %s memory       %s: %lld bytes planned, %lld used %s\n", b->name,
           b->wide ? "f64" : "f32", pass, (long long)planned, (long long)used, ok ? "ok" : "FAIL");
}

void bench_compare(af3_bench *b, af3_worst *w, const fm_tape *tape, fm_tensor_ref tensor,
                   const char *name) {
    const fm_npy *array = case_find(b->expected, "out/", name);
    const fm_tensor *described = fm_tape_tensor(tape, tensor);
    int64_t n = fm_tensor_local_count(described);
    const double *data = bench_fetch(b, fm_tape_data(tape, tensor), described->element, n);
    if (af3_full_is(b->expected)) {
        double error = af3_full_output_error(b->expected, name, data, n);
        if (error >= 0) af3_note(w, name, error);
        return;
    }
    if (!array) return;
    double *part = fm_arena_alloc_array(&b->arena, array->count, sizeof *part);
    assert(part);
    for (uint64_t i = 0; i < array->count; i++)
        part[i] = data[padded_place(array, described, (int64_t)i)];
    af3_note(w, name, af3_relative(part, array));
}
