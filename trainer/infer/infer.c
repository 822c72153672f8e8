/* infer.c: see infer.h. Recordings are forward passes (forward.h); all use one set of
 * parameters. They are kept in the order of their last use, and the least
 * recently used ones make room for a new one. */
#include "trainer/infer/infer.h"

#include "proto/base/machine.h"
#include "proto/chem/atom14.h"
#include "trainer/infer/memory.h"
#include "trainer/metrics/confidence.h"
#include "trainer/step/upload.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SHORTEST = 16,    /* the least recorded length, and the step of lengths up to 512 */
    STEPS = 16,       /* recorded lengths between a power of two and the next one */
    MOST_SHAPES = 64, /* most recordings that are kept: as many as lengths up to 2,048 */
    FEW_SHAPES = 8,   /* the same where the free memory is not known */
};

/* The part of the host's memory that may be page-locked for the samples of kept recordings. */
static const double locked_share = 0.125;

/* The sizes of a recording, before they are padded for the device. */
typedef struct extents {
    int64_t n_res, n_seq, n_extra;
} extents;

typedef struct shape {
    extents of;
    fm_forward *passes;
} shape;

struct fm_infer {
    fm_infer_options options;
    fm_arena arena; /* the parameter table */
    fm_params params;
    shape shape[MOST_SHAPES]; /* the one that was used last comes first */
    int n_shape;
    uint32_t n_res; /* of the chain that ran last; 0: none */
    uint64_t seed;
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
    fm_forward_destroy(infer->shape[--infer->n_shape].passes);
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

/* Returns the sizes for a chain of n_res residues with all rows of the model. */
static extents full_extents(const fm_infer *infer, int64_t n_res) {
    const fm_model_config *model = &infer->options.model;
    const int64_t recorded = infer->options.exact ? n_res : fm_infer_round(n_res);
    return (extents){recorded, model->n_seq, model->n_extra};
}

/* Returns the sizes for a chain. With `predicts` the chain's rows are rounded up, because most
 * kernels also spend time on masked rows. The number of rows changes losses by rounding, so runs
 * with losses have all rows. */
static extents extents_of(const fm_infer *infer, const fm_features *f) {
    enum { ROWS = 16 };
    const fm_model_config *model = &infer->options.model;
    extents of = full_extents(infer, f->n_res);
    if (!infer->options.predicts || infer->options.exact) return of;
    int64_t n_seq = 1, n_extra = 1;
    for (uint32_t c = 0; c < f->n_cycle && c < FM_MAX_CYCLE; c++) {
        n_seq = n_seq > f->cycle[c].n_clust ? n_seq : f->cycle[c].n_clust;
        n_extra = n_extra > f->cycle[c].n_extra ? n_extra : f->cycle[c].n_extra;
    }
    n_seq = (n_seq + model->n_template + ROWS - 1) / ROWS * ROWS - model->n_template;
    n_extra = fm_infer_round(n_extra);
    of.n_seq = n_seq < of.n_seq ? n_seq : of.n_seq;
    of.n_extra = n_extra < of.n_extra ? n_extra : of.n_extra;
    return of;
}

static fm_forward_options forward_options(const fm_infer *infer, extents of) {
    fm_forward_options options = {.model = infer->options.model,
                                  .kernels = infer->options.kernels,
                                  .groups = infer->options.groups,
                                  .params = &infer->params,
                                  .has_losses = !infer->options.predicts,
                                  .n_draw = infer->options.n_draw,
                                  .heads = infer->options.heads,
                                  .dropout = infer->options.dropout,
                                  .direct = infer->options.direct,
                                  .spoils = infer->options.spoils};
    memcpy(options.weight, infer->options.weight, sizeof options.weight);
    options.model.n_res = of.n_res;
    options.model.n_seq = of.n_seq;
    options.model.n_extra = of.n_extra;
    return options;
}

/* Finds the memory of a recording with slabs of chunk_bytes, including the parameters. */
static fm_status plan(const fm_infer *infer, const fm_forward_options *options,
                      fm_forward_need *ret_need, fm_error *reterr) {
    fm_status status = fm_forward_plan(options, ret_need, reterr);
    ret_need->device_bytes += infer->params.memory_bytes;
    return status;
}

/* Returns whether 32-bit indices reach all elements of the largest arrays of sublayers, which are
 * the queries, keys, values and gates of a stack. A rank has them for its part of the rows. */
static bool has_short_arrays(const fm_model_config *c, const fm_groups *groups) {
    const int64_t n = c->n_res, pairs = n * n;
    const int64_t most = (int64_t)INT32_MAX * fm_groups_part(groups).count;
    const int64_t msa = fm_model_config_rows(c) * n * 4 * c->n_head_msa * c->c_head_msa;
    const int64_t extra =
        c->n_extra_block > 0 ? c->n_extra * n * 4 * c->n_head_msa * c->c_head_extra : 0;
    const int64_t pair = pairs * 4 * c->n_head_pair * c->c_head_pair;
    const int64_t templates = c->n_template * pairs * 4 * c->n_head_template * c->c_head_template;
    return msa <= most && extra <= most && pair <= most && templates <= most;
}

/* A recording whose slabs are chosen. */
typedef struct slab_plan {
    const fm_infer *infer;
    fm_forward_options *options;
    fm_forward_need need; /* as planned last */
} slab_plan;

static fm_status plan_slabs(void *context, const fm_slabs *slabs, int64_t *ret_bytes,
                            fm_error *reterr) {
    slab_plan *p = context;
    p->options->chunk_bytes = slabs->chunk_bytes;
    p->options->chunks_triangles = slabs->chunks_triangles;
    fm_status status = plan(p->infer, p->options, &p->need, reterr);
    *ret_bytes = p->need.device_bytes;
    return status;
}

/* Chooses the slabs (fm_slabs_choose). FM_ERR_LIMIT without a message if nothing fits; *ret_need is
 * then the least. */
static fm_status choose_chunk(const fm_infer *infer, int64_t available, fm_forward_options *options,
                              fm_forward_need *ret_need, fm_error *reterr) {
    fm_slabs slabs = {infer->options.chunk_bytes, infer->options.chunks_triangles};
    slab_plan chosen = {.infer = infer, .options = options};
    const fm_slab_search search = {.plan = plan_slabs,
                                   .context = &chosen,
                                   .groups = infer->options.groups,
                                   .available_bytes = available,
                                   .has_long_arrays =
                                       !has_short_arrays(&options->model, options->groups),
                                   .is_forced = infer->options.chunk_bytes > 0};
    fm_status status = fm_slabs_choose(&search, &slabs, reterr);
    *ret_need = chosen.need;
    return status;
}

static int64_t kept_bytes(const fm_infer *infer) {
    int64_t bytes = infer->params.memory_bytes;
    for (int i = 0; i < infer->n_shape; i++)
        bytes += fm_forward_taken(infer->shape[i].passes).device_bytes;
    return bytes;
}

static int64_t budget_bytes(const fm_infer *infer) {
    return fm_infer_budget(infer->options.kernels, infer->options.groups,
                           infer->options.memory_budget_bytes, kept_bytes(infer));
}

/* Returns the longest recorded length below rows.n_res that fits with these rows, or 0. */
static int64_t find_longest(const fm_infer *infer, extents rows, int64_t budget) {
    int64_t low = 0, high = rows.n_res;
    while (fm_infer_round(low + 1) < high) {
        int64_t middle = fm_infer_round(low + (high - low) / 2);
        fm_forward_need need;
        if (middle >= high) middle = fm_infer_round(low + 1);
        extents of = rows;
        of.n_res = middle;
        fm_forward_options options = forward_options(infer, of);
        const fm_slabs least = fm_slabs_least(infer->options.groups);
        const bool is_forced = infer->options.chunk_bytes > 0;
        options.chunk_bytes = is_forced ? infer->options.chunk_bytes : least.chunk_bytes;
        options.chunks_triangles = !is_forced && least.chunks_triangles;
        if (!plan(infer, &options, &need, NULL) && need.device_bytes <= budget) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Returns whether the chain would fit with 1,024 extra MSA rows. */
static bool fits_with_fewer_rows(const fm_infer *infer, extents of, int64_t budget) {
    enum { FEW = 1024 };
    fm_forward_need need;
    fm_forward_options options = forward_options(infer, of);
    if (options.model.n_extra <= FEW || options.model.n_extra_block == 0) return false;
    options.model.n_extra = FEW;
    return !choose_chunk(infer, budget, &options, &need, NULL);
}

static fm_status refuse(const fm_infer *infer, int64_t n_res, extents of, const fm_infer_need *need,
                        fm_error *reterr) {
    const double gib = 1 << 30;
    const char *fewer = fits_with_fewer_rows(infer, of, need->available_bytes)
                            ? "; it fits with 1,024 extra MSA rows"
                            : "";
    char locked[64] = "";
    if (need->locked_bytes) {
        snprintf(locked, sizeof locked, ", and %.3f GiB of page-locked host memory",
                 (double)need->locked_bytes / gib);
    }
    return fm_fail(reterr, FM_ERR_LIMIT,
                   "a chain of %lld residues needs %.3f GiB of %.3f GiB%s; the longest that fits "
                   "has about %lld residues%s",
                   (long long)n_res, (double)need->bytes / gib, (double)need->available_bytes / gib,
                   locked, (long long)find_longest(infer, of, need->available_bytes), fewer);
}

/* Plans a chain of n_res residues. *options describes the chosen recording. */
static fm_status find_need(const fm_infer *infer, int64_t n_res, extents of,
                           fm_forward_options *options, fm_infer_need *ret_need, fm_error *reterr) {
    *options = forward_options(infer, of);
    *ret_need =
        (fm_infer_need){.available_bytes = budget_bytes(infer), .n_res = options->model.n_res};
    fm_forward_need of_passes;
    fm_status status = choose_chunk(infer, ret_need->available_bytes, options, &of_passes, reterr);
    ret_need->bytes = of_passes.device_bytes;
    ret_need->locked_bytes = of_passes.locked_bytes;
    ret_need->chunk_bytes = options->chunk_bytes;
    ret_need->chunks_triangles = options->chunks_triangles;
    return status == FM_ERR_LIMIT ? refuse(infer, n_res, of, ret_need, reterr) : status;
}

fm_status fm_infer_find_need(const fm_infer *infer, int64_t n_res, fm_infer_need *ret_need,
                             fm_error *reterr) {
    fm_forward_options options;
    return find_need(infer, n_res, full_extents(infer, n_res), &options, ret_need, reterr);
}

void fm_infer_seed(fm_infer *infer, uint64_t seed) {
    infer->seed = seed;
}

/* Returns whether the kept recordings leave room for another one. */
static bool has_room(const fm_infer *infer, const fm_infer_need *need) {
    const fm_groups *groups = infer->options.groups;
    const int64_t added = need->bytes - infer->params.memory_bytes;
    const double most_locked = locked_share * (double)fm_machine_memory();
    /* Ranks that read each other's memory agree on it for one recording at a time. */
    const int most = groups && groups->share      ? 1
                     : need->available_bytes == 0 ? FEW_SHAPES
                                                  : MOST_SHAPES;
    int64_t locked = need->locked_bytes;
    for (int i = 0; i < infer->n_shape; i++)
        locked += fm_forward_taken(infer->shape[i].passes).locked_bytes;
    return infer->n_shape < most && (double)locked <= most_locked &&
           (need->available_bytes == 0 || kept_bytes(infer) + added <= need->available_bytes);
}

/* Plans a recording, and releases kept recordings until it fits. */
static fm_status make_room(fm_infer *infer, int64_t n_res, extents of, fm_forward_options *options,
                           fm_error *reterr) {
    fm_infer_need need;
    fm_status status = find_need(infer, n_res, of, options, &need, reterr);
    while (!status && infer->n_shape > 0 && !has_room(infer, &need))
        drop_oldest(infer);
    return status;
}

static void put_first(fm_infer *infer, int at) {
    const shape moved = infer->shape[at];
    memmove(infer->shape + 1, infer->shape, (size_t)at * sizeof(infer->shape[0]));
    infer->shape[0] = moved;
}

static bool are_same(extents a, extents b) {
    return a.n_res == b.n_res && a.n_seq == b.n_seq && a.n_extra == b.n_extra;
}

/* Finds or makes the recording for that chain, and puts it first. */
static fm_status find_shape(fm_infer *infer, const fm_features *f, bool *ret_made,
                            fm_error *reterr) {
    const extents of = extents_of(infer, f);
    *ret_made = false;
    for (int i = 0; i < infer->n_shape; i++) {
        if (!are_same(infer->shape[i].of, of)) continue;
        put_first(infer, i);
        return FM_OK;
    }
    fm_forward_options options;
    fm_status status = make_room(infer, f->n_res, of, &options, reterr);
    if (status) return status;
    shape *made = &infer->shape[infer->n_shape];
    made->of = of;
    status = fm_forward_create(&options, &made->passes, reterr);
    if (status) return status;
    *ret_made = true;
    put_first(infer, infer->n_shape++);
    return FM_OK;
}

/* -- early stop */

enum { ATOM_CA = 1 };

/* Copies the CA positions of the cycle that ran last, [n_res, 3] Å. */
static fm_status take_ca(const fm_forward *passes, size_t n_res, fm_arena *arena, float *ca,
                         fm_error *reterr) {
    size_t mark = fm_arena_mark(arena);
    float *atoms;
    fm_status status =
        fm_recording_download(&passes->recording, FM_FORWARD_RESULTS, passes->cycles.atoms, 0,
                              n_res * FM_N_ATOM14 * 3, arena, &atoms, reterr);
    for (size_t i = 0; i < n_res && !status; i++)
        memcpy(ca + 3 * i, atoms + (i * FM_N_ATOM14 + ATOM_CA) * 3, 3 * sizeof *ca);
    fm_arena_rewind(arena, mark);
    return status;
}

static double distance(const float *x, size_t i, size_t j) {
    double sum = 0;
    for (size_t axis = 0; axis < 3; axis++) {
        double d = (double)x[3 * i + axis] - (double)x[3 * j + axis];
        sum += d * d;
    }
    return sqrt(sum);
}

/* The root of the mean square, over all pairs, of what a distance changed by. */
static double distance_change(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i; j++) {
            double d = distance(a, i, j) - distance(b, i, j);
            sum += d * d;
        }
    }
    return sqrt(2 * sum / ((double)n * (double)n));
}

static uint32_t n_draw(const fm_infer *infer) {
    return infer->options.n_draw > 1 ? (uint32_t)infer->options.n_draw : 1;
}

/* Runs the cycles. With a tolerance the host looks at the atoms after each cycle. */
static fm_status run_cycles(fm_infer *infer, fm_forward *passes, const fm_features *f,
                            fm_arena *arena, fm_infer_result *result, fm_error *reterr) {
    const size_t n = f->n_res;
    const bool looks = infer->options.recycle_tol > 0 && passes->cycles.atoms != FM_TENSOR_NONE;
    float *now = fm_arena_alloc_array(arena, n, 3 * sizeof *now);
    float *before = fm_arena_alloc_array(arena, n, 3 * sizeof *before);
    if (!now || !before) return fm_arena_full(arena, reterr);
    fm_status status = FM_OK;
    bool stops = false;
    result->ca_change = NAN;
    for (uint32_t c = 0; c < f->n_cycle / n_draw(infer) && !status && !stops; c++) {
        fm_forward_queue_cycle(passes, f, infer->seed, c);
        result->n_cycle = c + 1;
        if (!looks) continue;
        status = take_ca(passes, n, arena, now, reterr);
        if (c > 0) result->ca_change = distance_change(now, before, n);
        stops = fm_groups_least(infer->options.groups,
                                c > 0 && result->ca_change < infer->options.recycle_tol);
        memcpy(before, now, n * 3 * sizeof *now);
    }
    passes->recording.options.kernels->synchronize(passes->recording.stream);
    return status;
}

static fm_status predict(fm_infer *infer, fm_forward *passes, const fm_features *f, fm_arena *arena,
                         fm_infer_result *result, fm_error *reterr) {
    fm_status status = fm_upload_check(&passes->cycles, f, reterr);
    if (!status && f->n_cycle % n_draw(infer)) {
        status = fm_fail(reterr, FM_ERR_DATA, "the sample has %u draws, expected a multiple of %u",
                         f->n_cycle, n_draw(infer));
    }
    size_t mark = fm_arena_mark(arena);
    if (!status) status = run_cycles(infer, passes, f, arena, result, reterr);
    fm_arena_rewind(arena, mark);
    return status;
}

/* -- results */

static fm_status take_plddt(fm_infer *infer, fm_arena *arena, float **ret_plddt, fm_error *reterr) {
    float *plddt = fm_arena_alloc_array(arena, infer->n_res, sizeof *plddt), *logits;
    if (!plddt) return fm_arena_full(arena, reterr);
    size_t mark = fm_arena_mark(arena);
    int64_t n_bin;
    fm_status status = fm_infer_head(infer, FM_HEAD_PLDDT, arena, &logits, &n_bin, reterr);
    for (uint32_t i = 0; !status && i < infer->n_res; i++)
        plddt[i] = (float)fm_confidence_plddt(logits + i * n_bin, n_bin);
    fm_arena_rewind(arena, mark);
    *ret_plddt = plddt;
    return status;
}

/* Copies the truth that the losses used, which is in the host's copy of the state. */
static fm_status take_truth(const fm_forward *passes, size_t n_atom, fm_arena *arena,
                            fm_infer_result *result, fm_error *reterr) {
    const float *exists =
        (const void *)(passes->cycles.host +
                       passes->recording.state.offset[passes->cycles.truth.exists]);
    const float *truth =
        (const void *)(passes->cycles.host +
                       passes->recording.state.offset[passes->cycles.truth.positions]);
    result->truth = fm_arena_alloc_array(arena, n_atom, 3 * sizeof *truth);
    result->known = fm_arena_alloc(arena, n_atom);
    if (!result->truth || !result->known) return fm_arena_full(arena, reterr);
    memcpy(result->truth, truth, n_atom * 3 * sizeof *truth);
    for (size_t i = 0; i < n_atom; i++)
        result->known[i] = exists[i] > 0;
    return FM_OK;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Takes the atoms and what belongs to them, and names the tensor that made one not finite. */
static fm_status take_atoms(fm_infer *infer, fm_forward *passes, const fm_features *f,
                            fm_arena *arena, fm_infer_result *result, fm_error *reterr) {
    size_t n_atom = (size_t)f->n_res * FM_N_ATOM14;
    fm_status status =
        fm_recording_download(&passes->recording, FM_FORWARD_RESULTS, passes->cycles.atoms, 0,
                              n_atom * 3, arena, &result->atoms, reterr);
    if (status || !infer->options.predicts) {
        return status ? status : take_truth(passes, n_atom, arena, result, reterr);
    }
    bool finite = true;
    for (size_t i = 0; i < n_atom * 3; i++)
        finite = finite && isfinite(result->atoms[i]);
    return fm_groups_least(infer->options.groups, finite)
               ? FM_OK
               : fm_forward_name_nonfinite(passes, f, infer->seed, result->n_cycle, reterr);
}

fm_status fm_infer_run(fm_infer *infer, const fm_features *features, fm_arena *arena,
                       fm_infer_result *ret_result, fm_error *reterr) {
    fm_infer_result result = {.ca_change = NAN, .n_cycle = features->n_cycle};
    const double start = now_s();
    bool is_made;
    infer->n_res = 0;
    fm_status status = find_shape(infer, features, &is_made, reterr);
    if (status) return status;
    fm_forward *passes = infer->shape[0].passes;
    assert(passes);
    const double recorded = now_s();
    if (is_made) result.record_s = recorded - start;
    status = infer->options.predicts ? predict(infer, passes, features, arena, &result, reterr)
                                     : fm_forward_score(passes, features, &result.losses, reterr);
    if (status) return status;
    result.run_s = now_s() - recorded;
    infer->n_res = features->n_res;
    if (passes->cycles.atoms != FM_TENSOR_NONE) {
        status = take_atoms(infer, passes, features, arena, &result, reterr);
    }
    if (!status && passes->head[FM_HEAD_PLDDT] != FM_TENSOR_NONE) {
        status = take_plddt(infer, arena, &result.plddt, reterr);
    }
    if (!status) *ret_result = result;
    return status;
}

/* Moves the lines of [n_row, padded, n_bin] together, which become [n_row, n, n_bin]. */
static void leave_padding_out(float *logits, size_t n_row, size_t n, size_t padded, size_t n_bin) {
    for (size_t i = 1; i < n_row; i++)
        memmove(logits + i * n * n_bin, logits + i * padded * n_bin, n * n_bin * sizeof *logits);
}

/* Adds the transpose to [n, n, n_bin]. */
static void make_symmetric(float *logits, size_t n, size_t n_bin) {
    for (size_t i = 0; i < n; i++) {
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
    const fm_forward *passes = infer->shape[0].passes;
    *ret_logits = NULL;
    *ret_n_bin = 0;
    if (passes->head[head] == FM_TENSOR_NONE) return FM_OK;
    const fm_tensor *tensor =
        fm_tape_tensor(&passes->recording.tape[FM_FORWARD_RESULTS], passes->head[head]);
    size_t n_bin = (size_t)tensor->local[tensor->rank - 1], n = infer->n_res,
           padded = (size_t)passes->options.model.n_res, lines = head == FM_HEAD_PLDDT ? 1 : n;
    size_t stride = head == FM_HEAD_PLDDT ? n : padded;
    fm_status status =
        fm_recording_download(&passes->recording, FM_FORWARD_RESULTS, passes->head[head], 0,
                              lines * stride * n_bin, arena, ret_logits, reterr);
    if (status) return status;
    leave_padding_out(*ret_logits, lines, n, stride, n_bin);
    if (head == FM_HEAD_DISTOGRAM) make_symmetric(*ret_logits, n, n_bin);
    *ret_n_bin = (int64_t)n_bin;
    return FM_OK;
}

fm_forward *fm_infer_get_recording(const fm_infer *infer) {
    return infer->n_shape > 0 ? infer->shape[0].passes : NULL;
}

fm_status fm_infer_aligned_error(fm_infer *infer, uint32_t first, uint32_t n_row, fm_arena *arena,
                                 float **ret_logits, int64_t *ret_n_bin, fm_error *reterr) {
    assert(infer->n_res > 0 && first <= infer->n_res && n_row <= infer->n_res - first);
    const fm_forward *passes = infer->shape[0].passes;
    const fm_tensor_ref head = passes->head[FM_HEAD_ALIGNED_ERROR];
    *ret_logits = NULL;
    *ret_n_bin = 0;
    if (head == FM_TENSOR_NONE) return FM_OK;
    const fm_tensor *tensor = fm_tape_tensor(&passes->recording.tape[FM_FORWARD_RESULTS], head);
    const size_t n_bin = (size_t)tensor->local[tensor->rank - 1];
    const size_t line = (size_t)passes->options.model.n_res * n_bin;
    fm_status status = fm_recording_download(&passes->recording, FM_FORWARD_RESULTS, head,
                                             first * line, n_row * line, arena, ret_logits, reterr);
    if (status) return status;
    leave_padding_out(*ret_logits, n_row, infer->n_res, (size_t)passes->options.model.n_res, n_bin);
    *ret_n_bin = (int64_t)n_bin;
    return FM_OK;
}

void fm_infer_describe(const fm_infer *infer, char *out, size_t out_bytes) {
    const double mib = 1 << 20;
    if (infer->n_shape == 0) {
        snprintf(out, out_bytes, "%.2f M parameters (%.1f MiB)",
                 (double)infer->params.n_value / 1e6, (double)infer->params.memory_bytes / mib);
        return;
    }
    const fm_forward *passes = infer->shape[0].passes;
    int n = snprintf(out, out_bytes,
                     "recorded for %lld residues, %lld clusters, %lld extra rows: %.1f MiB",
                     (long long)passes->options.model.n_res, (long long)passes->options.model.n_seq,
                     (long long)passes->options.model.n_extra,
                     (double)fm_forward_taken(passes).device_bytes / mib);
    const int64_t locked = fm_forward_taken(passes).locked_bytes;
    if (locked && n > 0 && (size_t)n < out_bytes) {
        snprintf(out + n, out_bytes - (size_t)n, " and %.1f MiB of page-locked host memory",
                 (double)locked / mib);
    }
}
