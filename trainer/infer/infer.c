/* infer.c: see infer.h. A recording is a trainer that only goes forward (fm_trainer_options); all
 * recordings use one set of parameters. They are kept in the order of their last use, and the least
 * recently used ones make room for a new one. */
#include "trainer/infer/infer.h"

#include "proto/chem/atom14.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHORTEST = 16,   /* the least recorded length, and the step of lengths up to 512 */
    STEPS = 16,      /* recorded lengths between a power of two and the next one */
    MOST_SHAPES = 8, /* most recordings that are kept */
};

static const int64_t reserve_bytes = (int64_t)1 << 30; /* for the device's libraries and graphs */

typedef struct shape {
    int64_t n_res; /* recorded length, before it is padded for the device */
    fm_trainer *trainer;
} shape;

struct fm_infer {
    fm_infer_options options;
    fm_arena arena; /* the parameter table */
    fm_params params;
    shape shape[MOST_SHAPES]; /* the one that was used last comes first */
    int n_shape;
    uint32_t n_res; /* of the chain that ran last; 0: none */
};

int64_t fm_infer_round(int64_t n_res) {
    int64_t step = SHORTEST;
    while (step * STEPS * 2 <= n_res)
        step *= 2;
    return (n_res + step - 1) / step * step;
}

/* -- creating */

static fm_status make_parameters(fm_infer *infer, fm_error *reterr) {
    const size_t tables_bytes = (size_t)1 << 30; /* address space */
    fm_model_weights weights;
    const fm_kernels *kernels = infer->options.kernels;
    fm_status status = fm_arena_init(&infer->arena, tables_bytes, reterr);
    if (!status) status = fm_params_init(&infer->params, FM_MAX_PARAM, &infer->arena, reterr);
    if (status) return status;
    fm_model_add_parameters(&infer->params, &infer->arena, &infer->options.model, &weights);
    return fm_params_allocate_values(&infer->params, kernels, reterr);
}

fm_status fm_infer_create(const fm_infer_options *options, fm_infer **ret_infer, fm_error *reterr) {
    fm_infer *infer = calloc(1, sizeof *infer);
    if (!infer) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for inference");
    infer->options = *options;
    if (!options->kernels) infer->options.kernels = fm_kernels_cpu(FM_ELEMENT_F32);
    fm_status status = make_parameters(infer, reterr);
    if (status) {
        fm_infer_destroy(infer);
        return status;
    }
    *ret_infer = infer;
    return FM_OK;
}

static void drop_oldest(fm_infer *infer) {
    fm_trainer_destroy(infer->shape[--infer->n_shape].trainer);
}

void fm_infer_destroy(fm_infer *infer) {
    if (!infer) return;
    while (infer->n_shape > 0)
        drop_oldest(infer);
    fm_params_release(&infer->params);
    fm_arena_fini(&infer->arena);
    free(infer);
}

fm_params *fm_infer_get_params(fm_infer *infer) {
    return &infer->params;
}

/* -- recordings */

static fm_trainer_options trainer_options(const fm_infer *infer, int64_t n_res) {
    fm_trainer_options options = {.model = infer->options.model,
                                  .optimizer = fm_optimizer_defaults(),
                                  .kernels = infer->options.kernels,
                                  .element = FM_ELEMENT_F32,
                                  .forward_only = true,
                                  .params = &infer->params,
                                  .heads = infer->options.heads,
                                  .direct = infer->options.direct,
                                  .spoils = infer->options.spoils};
    memcpy(options.weight, infer->options.weight, sizeof options.weight);
    options.model.n_res = fm_infer_round(n_res);
    return options;
}

fm_status fm_infer_plan(const fm_infer *infer, int64_t n_res, int64_t *ret_bytes,
                        fm_error *reterr) {
    const fm_trainer_options options = trainer_options(infer, n_res);
    fm_status status = fm_trainer_plan(&options, ret_bytes, reterr);
    *ret_bytes += infer->params.memory_bytes;
    return status;
}

static int64_t kept_bytes(const fm_infer *infer) {
    int64_t bytes = infer->params.memory_bytes;
    for (int i = 0; i < infer->n_shape; i++)
        bytes += fm_trainer_memory_bytes(infer->shape[i].trainer);
    return bytes;
}

/* All memory that inference may take; 0: not known. */
static int64_t budget_bytes(const fm_infer *infer) {
    if (infer->options.memory_budget_bytes) return infer->options.memory_budget_bytes;
    int64_t available = (int64_t)infer->options.kernels->device->free_bytes();
    return available > 0 ? available + kept_bytes(infer) - reserve_bytes : 0;
}

/* The longest recorded length that fits, below `too_long`; 0: none. */
static int64_t find_longest(const fm_infer *infer, int64_t too_long, int64_t budget) {
    int64_t low = 0, high = too_long;
    while (high - low > SHORTEST) {
        int64_t middle = low + (high - low) / 2, bytes = 0;
        if (!fm_infer_plan(infer, middle, &bytes, NULL) && bytes <= budget) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static fm_status refuse(const fm_infer *infer, int64_t n_res, int64_t bytes, int64_t budget,
                        fm_error *reterr) {
    const double gib = 1 << 30;
    return fm_fail(reterr, FM_ERR_LIMIT,
                   "a chain of %lld residues needs %.3f GiB of %.3f GiB; the longest that fits has "
                   "about %lld residues",
                   (long long)n_res, (double)bytes / gib, (double)budget / gib,
                   (long long)find_longest(infer, n_res, budget));
}

/* Drops the recordings that leave no room for another one of `bytes`. */
static fm_status make_room(fm_infer *infer, int64_t n_res, fm_error *reterr) {
    int64_t bytes = 0, budget = budget_bytes(infer);
    if (infer->n_shape == MOST_SHAPES) drop_oldest(infer);
    if (budget == 0) return FM_OK;
    fm_status status = fm_infer_plan(infer, n_res, &bytes, reterr);
    if (status) return status;
    if (bytes > budget) return refuse(infer, n_res, bytes, budget, reterr);
    while (infer->n_shape > 0 && kept_bytes(infer) + bytes - infer->params.memory_bytes > budget)
        drop_oldest(infer);
    return FM_OK;
}

static void put_first(fm_infer *infer, int at) {
    const shape moved = infer->shape[at];
    memmove(infer->shape + 1, infer->shape, (size_t)at * sizeof(infer->shape[0]));
    infer->shape[0] = moved;
}

/* Makes the recording for that length the first one. */
static fm_status find_shape(fm_infer *infer, int64_t n_res, fm_error *reterr) {
    for (int i = 0; i < infer->n_shape; i++) {
        if (infer->shape[i].n_res != fm_infer_round(n_res)) continue;
        put_first(infer, i);
        return FM_OK;
    }
    fm_status status = make_room(infer, n_res, reterr);
    if (status) return status;
    const fm_trainer_options options = trainer_options(infer, n_res);
    shape *made = &infer->shape[infer->n_shape];
    made->n_res = options.model.n_res;
    status = fm_trainer_create(&options, &made->trainer, reterr);
    if (status) return status;
    put_first(infer, infer->n_shape++);
    return FM_OK;
}

/* -- results */

static float f32_of(uint16_t bf16) {
    uint32_t bits = (uint32_t)bf16 << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Downloads the first `count` elements of a kept tensor as f32. */
static fm_status download(const fm_trainer *t, fm_tensor_ref ref, size_t count, fm_arena *arena,
                          float **ret_values, fm_error *reterr) {
    const fm_kernels *kernels = t->params.kernels;
    fm_element element = fm_tape_tensor(&t->last, ref)->element;
    size_t bytes = count * fm_element_bytes(element);
    float *values = fm_arena_alloc_array(arena, count, sizeof *values);
    if (!values) return fm_arena_full(arena, reterr);
    size_t mark = fm_arena_mark(arena);
    void *raw = element == FM_ELEMENT_F32 ? values : fm_arena_alloc(arena, bytes);
    if (!raw) return fm_arena_full(arena, reterr);
    kernels->download(NULL, raw, fm_tape_data(&t->last, ref), bytes);
    kernels->synchronize(NULL);
    for (size_t i = 0; i < count && element != FM_ELEMENT_F32; i++) {
        values[i] = element == FM_ELEMENT_BF16 ? f32_of(((const uint16_t *)raw)[i])
                                               : (float)((const double *)raw)[i];
    }
    fm_arena_rewind(arena, mark);
    *ret_values = values;
    return FM_OK;
}

/* The mean of the classes' centres under the softmax of the logits, in hundredths: line 4 of
 * Algorithm 29. */
static float plddt_of(const float *logits, int64_t n_bin) {
    double most = logits[0], sum = 0, mean = 0;
    for (int64_t b = 1; b < n_bin; b++)
        most = logits[b] > most ? logits[b] : most;
    for (int64_t b = 0; b < n_bin; b++) {
        double p = exp(logits[b] - most);
        sum += p;
        mean += p * ((double)b + 0.5) / (double)n_bin;
    }
    return (float)(100 * mean / sum);
}

static fm_status take_plddt(fm_infer *infer, fm_arena *arena, float **ret_plddt, fm_error *reterr) {
    float *plddt = fm_arena_alloc_array(arena, infer->n_res, sizeof *plddt), *logits;
    if (!plddt) return fm_arena_full(arena, reterr);
    size_t mark = fm_arena_mark(arena);
    int64_t n_bin;
    fm_status status = fm_infer_head(infer, FM_HEAD_PLDDT, arena, &logits, &n_bin, reterr);
    for (uint32_t i = 0; !status && i < infer->n_res; i++)
        plddt[i] = plddt_of(logits + i * n_bin, n_bin);
    fm_arena_rewind(arena, mark);
    *ret_plddt = plddt;
    return status;
}

/* Copies the truth that the losses used, which is in the host's copy of the state. */
static fm_status take_truth(const fm_trainer *t, size_t n_atom, fm_arena *arena,
                            fm_infer_result *result, fm_error *reterr) {
    const float *exists = (const void *)(t->host + t->state.offset[t->truth.exists]);
    const float *truth = (const void *)(t->host + t->state.offset[t->truth.positions]);
    result->truth = fm_arena_alloc_array(arena, n_atom, 3 * sizeof *truth);
    result->known = fm_arena_alloc(arena, n_atom);
    if (!result->truth || !result->known) return fm_arena_full(arena, reterr);
    memcpy(result->truth, truth, n_atom * 3 * sizeof *truth);
    for (size_t i = 0; i < n_atom; i++)
        result->known[i] = exists[i] > 0;
    return FM_OK;
}

fm_status fm_infer_run(fm_infer *infer, const fm_features *features, fm_arena *arena,
                       fm_infer_result *ret_result, fm_error *reterr) {
    fm_infer_result result = {.atoms = NULL};
    infer->n_res = 0;
    fm_status status = find_shape(infer, features->n_res, reterr);
    if (status) return status;
    fm_trainer *t = infer->shape[0].trainer;
    status = fm_trainer_add_sample(t, features, &result.losses, reterr);
    if (status) return status;
    infer->n_res = features->n_res;
    size_t n_atom = (size_t)features->n_res * FM_N_ATOM14;
    if (t->atoms != FM_TENSOR_NONE) {
        status = download(t, t->atoms, n_atom * 3, arena, &result.atoms, reterr);
        if (!status) status = take_truth(t, n_atom, arena, &result, reterr);
    }
    if (!status && t->head[FM_HEAD_PLDDT] != FM_TENSOR_NONE) {
        status = take_plddt(infer, arena, &result.plddt, reterr);
    }
    if (!status) *ret_result = result;
    return status;
}

/* Moves the lines of [n, padded, n_bin] together and, where asked for, adds the transpose. */
static void leave_padding_out(float *logits, size_t n, size_t padded, size_t n_bin,
                              bool is_symmetric) {
    for (size_t i = 1; i < n; i++)
        memmove(logits + i * n * n_bin, logits + i * padded * n_bin, n * n_bin * sizeof *logits);
    for (size_t i = 0; is_symmetric && i < n; i++) {
        for (size_t j = 0; j <= i; j++) {
            float *a = logits + (i * n + j) * n_bin, *b = logits + (j * n + i) * n_bin;
            for (size_t k = 0; k < n_bin; k++)
                a[k] = b[k] = a[k] + b[k];
        }
    }
}

fm_status fm_infer_head(fm_infer *infer, fm_head head, fm_arena *arena, float **ret_logits,
                        int64_t *ret_n_bin, fm_error *reterr) {
    assert(infer->n_res > 0);
    const fm_trainer *t = infer->shape[0].trainer;
    *ret_logits = NULL;
    *ret_n_bin = 0;
    if (t->head[head] == FM_TENSOR_NONE) return FM_OK;
    const fm_tensor *tensor = fm_tape_tensor(&t->last, t->head[head]);
    size_t n_bin = (size_t)tensor->local[tensor->rank - 1], n = infer->n_res,
           padded = (size_t)t->options.model.n_res, lines = head == FM_HEAD_PLDDT ? 1 : n;
    size_t stride = head == FM_HEAD_PLDDT ? n : padded;
    fm_status status =
        download(t, t->head[head], lines * stride * n_bin, arena, ret_logits, reterr);
    if (status) return status;
    leave_padding_out(*ret_logits, lines, stride, n_bin, head == FM_HEAD_DISTOGRAM);
    *ret_n_bin = (int64_t)n_bin;
    return FM_OK;
}

fm_trainer *fm_infer_get_recording(const fm_infer *infer) {
    return infer->n_shape > 0 ? infer->shape[0].trainer : NULL;
}

void fm_infer_describe(const fm_infer *infer, char *out, size_t out_bytes) {
    const double mib = 1 << 20;
    if (infer->n_shape == 0) {
        snprintf(out, out_bytes, "%.2f M parameters (%.1f MiB)",
                 (double)infer->params.n_value / 1e6, (double)infer->params.memory_bytes / mib);
        return;
    }
    const fm_trainer *t = infer->shape[0].trainer;
    snprintf(out, out_bytes, "recorded for %lld residues, %lld clusters, %lld extra rows: %.1f MiB",
             (long long)t->options.model.n_res, (long long)t->options.model.n_seq,
             (long long)t->options.model.n_extra, (double)fm_trainer_memory_bytes(t) / mib);
}
