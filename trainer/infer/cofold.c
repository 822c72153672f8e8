/* cofold.c: see cofold.h. */
#include "trainer/infer/cofold.h"

#include "trainer/infer/infer.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fm_cofold {
    fm_cofold_options options;
    fm_arena arena; /* the parameter table */
    fm_params params;
    fm_cofold_passes *passes; /* of the complex that was recorded last; NULL: none */
    fm_cofold_need need;      /* of these passes */
    const fm_af3_sample *sample;
    uint32_t seed;
    double *x; /* [n_structure, n_atom, 3] Å of the last run */
};

/* -- creating */

static fm_status make_parameters(fm_cofold *c, fm_error *reterr) {
    const size_t tables_bytes = (size_t)1 << 30; /* address space */
    fm_af3_weights weights;
    fm_status status = fm_arena_init(&c->arena, tables_bytes, reterr);
    if (!status) status = fm_params_init(&c->params, FM_AF3_MAX_PARAM, &c->arena, reterr);
    if (status) return status;
    fm_af3_add_parameters(&c->params, &c->arena, &c->options.model, &weights);
    return fm_params_allocate_values(&c->params, c->options.kernels, reterr);
}

fm_status fm_cofold_create(const fm_cofold_options *options, fm_cofold **ret_cofold,
                           fm_error *reterr) {
    fm_cofold *c = calloc(1, sizeof *c);
    if (!c) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for predictions");
    c->options = *options;
    if (!options->kernels) c->options.kernels = fm_kernels_cpu(FM_ELEMENT_F32);
    assert(options->n_cycle >= 1 && options->n_row >= 1);
    assert(options->n_structure >= 1 && options->n_structure <= FM_COFOLD_STRUCTURES);
    fm_status status = fm_af3_check_products(&options->model, c->options.kernels, reterr);
    if (!status) status = make_parameters(c, reterr);
    if (status) {
        fm_cofold_destroy(c);
        return status;
    }
    *ret_cofold = c;
    return FM_OK;
}

void fm_cofold_destroy(fm_cofold *c) {
    if (!c) return;
    fm_cofold_passes_destroy(c->passes);
    fm_params_release(&c->params);
    fm_arena_fini(&c->arena);
    free(c->x);
    free(c);
}

fm_params *fm_cofold_get_params(fm_cofold *c) {
    return &c->params;
}

fm_cofold_passes *fm_cofold_get_passes(const fm_cofold *c) {
    return c->passes;
}

/* -- memory */

/* Returns the sizes of the recording for a complex. */
static fm_cofold_sizes recorded_sizes(const fm_cofold *c, const fm_cofold_sizes *sizes) {
    fm_cofold_sizes of = *sizes;
    of.n_msa = sizes->n_msa < c->options.n_row ? sizes->n_msa : c->options.n_row;
    if (c->options.exact) return of;
    of.n_token = fm_infer_round(of.n_token);
    of.n_atom = fm_infer_round(of.n_atom);
    of.n_msa = fm_infer_round(of.n_msa);
    return of;
}

/* Products of another number of rows may round otherwise, so the number of structures side by side
 * does not depend on how many there are. On a CPU each rank has one: there is nothing to gain from
 * several. */
static int64_t choose_side(const fm_cofold *c) {
    if (c->options.side) return c->options.side;
    return c->options.kernels->device->is_asynchronous
               ? FM_COFOLD_SIDE
               : fm_groups_part(c->options.model.groups).count;
}

static fm_cofold_passes_options passes_options(const fm_cofold *c, const fm_cofold_need *need) {
    fm_cofold_passes_options options = {.model = c->options.model,
                                        .kernels = c->options.kernels,
                                        .params = &c->params,
                                        .n_structure = need->n_side,
                                        .n_step = c->options.n_step,
                                        .slabs = need->slabs,
                                        .given = c->options.given,
                                        .spoils = c->options.spoils,
                                        .direct = c->options.direct};
    options.model.n_token = need->of.n_token;
    options.model.n_atom = need->of.n_atom;
    options.model.n_msa = need->of.n_msa;
    options.model.n_template = need->of.n_template;
    return options;
}

/* A recording whose slabs are chosen. */
typedef struct slab_plan {
    const fm_cofold *cofold;
    fm_cofold_need *need;
} slab_plan;

static fm_status plan_slabs(void *context, const fm_slabs *slabs, int64_t *ret_bytes,
                            fm_error *reterr) {
    const slab_plan *p = context;
    p->need->slabs = *slabs;
    const fm_cofold_passes_options options = passes_options(p->cofold, p->need);
    fm_status status = fm_cofold_passes_plan(&options, &p->need->part, reterr);
    p->need->bytes = *ret_bytes = p->need->part.device + p->cofold->params.memory_bytes;
    return status;
}

/* Returns whether 32-bit indices do not reach all elements of the largest arrays of sublayers: the
 * queries, keys, values and gates of a stack, and the hidden layers of a transition. */
static bool has_long_arrays(const fm_cofold *c, const fm_cofold_sizes *of) {
    const fm_af3_config *m = &c->options.model;
    const int64_t most = (int64_t)INT32_MAX * fm_groups_part(m->groups).count;
    const int64_t pairs = of->n_token * of->n_token, msa = of->n_msa * of->n_token;
    return pairs * 4 * m->n_head_pair * m->c_head_pair > most ||
           msa * 2 * m->n_head_msa * m->c_head_msa > most;
}

fm_status fm_cofold_find_need(const fm_cofold *c, const fm_cofold_sizes *sizes,
                              fm_cofold_need *ret_need, fm_error *reterr) {
    const double gib = 1 << 30;
    const fm_groups *groups = c->options.model.groups;
    const int64_t kept = c->params.memory_bytes + (c->passes ? c->need.part.device : 0);
    fm_cofold_need need = {.available_bytes = fm_infer_budget(c->options.kernels, groups,
                                                              c->options.memory_budget_bytes, kept),
                           .of = recorded_sizes(c, sizes),
                           .n_side = choose_side(c)};
    slab_plan chosen = {c, &need};
    fm_slabs slabs = c->options.slabs;
    const fm_slab_search search = {.plan = plan_slabs,
                                   .context = &chosen,
                                   .groups = groups,
                                   .available_bytes = need.available_bytes,
                                   .has_long_arrays = has_long_arrays(c, &need.of),
                                   .is_forced = c->options.slabs.chunk_bytes > 0};
    fm_status status = fm_slabs_choose(&search, &slabs, reterr);
    *ret_need = need;
    if (status != FM_ERR_LIMIT) return status;
    return fm_fail(reterr, FM_ERR_LIMIT,
                   "a complex of %lld tokens, %lld atoms and %lld MSA rows needs %.3f GiB of %.3f "
                   "GiB",
                   (long long)sizes->n_token, (long long)sizes->n_atom, (long long)need.of.n_msa,
                   (double)need.bytes / gib, (double)need.available_bytes / gib);
}

static bool are_same(const fm_cofold_sizes *a, const fm_cofold_sizes *b) {
    return a->n_token == b->n_token && a->n_atom == b->n_atom && a->n_msa == b->n_msa &&
           a->n_template == b->n_template;
}

/* Finds or makes the recording for a complex. */
static fm_status find_passes(fm_cofold *c, const fm_cofold_sizes *sizes, fm_error *reterr) {
    const fm_cofold_sizes of = recorded_sizes(c, sizes);
    if (c->passes && are_same(&c->need.of, &of)) return FM_OK;
    fm_cofold_need need;
    fm_status status = fm_cofold_find_need(c, sizes, &need, reterr);
    if (status) return status;
    fm_cofold_passes_destroy(c->passes);
    c->passes = NULL;
    const fm_cofold_passes_options options = passes_options(c, &need);
    c->need = need;
    return fm_cofold_passes_create(&options, &c->passes, reterr);
}

/* -- running */

fm_status fm_cofold_check(const fm_cofold *c, const fm_af3_sample *sample, fm_error *reterr) {
    const fm_af3_config *model = &c->options.model;
    for (int64_t l = 0; l < sample->n_atom; l++) {
        if (sample->atom_to_tokatom_idx[l] < model->max_atoms_per_token) continue;
        return fm_fail(reterr, FM_ERR_LIMIT, "found atom %lld in slot %lld, expected at most %lld",
                       (long long)l, (long long)sample->atom_to_tokatom_idx[l],
                       (long long)model->max_atoms_per_token - 1);
    }
    return FM_OK;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The seconds since *start, which becomes now. */
static double lap_s(double *start) {
    const double now = now_s(), lap = now - *start;
    *start = now;
    return lap;
}

/* Runs the trunk again, and then the steps of the structures from `first` on, checking what every
 * step of their tapes writes. */
static fm_status name_nonfinite(fm_cofold *c, int64_t first, int64_t n, fm_error *reterr) {
    fm_cofold_passes *p = c->passes;
    fm_recording *r = &p->recording;
    uint32_t *flag = fm_state_data(&r->state, r->flag);
    char what[256] = "a position";
    fm_status status = fm_cofold_passes_begin(p, c->sample, c->seed, p->draws, reterr);
    bool found = false;
    for (int32_t i = 0; i < c->options.n_cycle && !status && !found; i++) {
        fm_cofold_passes_queue_cycle(p, (uint32_t)i);
        found =
            fm_tape_name_nonfinite(&r->tape[FM_COFOLD_CYCLE], r->stream, flag, what, sizeof what);
    }
    if (!status) status = fm_cofold_passes_start(p, first, n, reterr);
    if (!status && !found) {
        found =
            fm_tape_name_nonfinite(&r->tape[FM_COFOLD_PREPARE], r->stream, flag, what, sizeof what);
    }
    for (int32_t k = 0; k < c->options.n_step && !status && !found; k++) {
        fm_af3_queue_step_rows(&p->rows, &r->state, k, r->stream);
        found =
            fm_tape_name_nonfinite(&r->tape[FM_COFOLD_STEP], r->stream, flag, what, sizeof what);
    }
    if (status) return status;
    return fm_fail(reterr, FM_ERR_DATA, "%s is not finite", what);
}

int64_t fm_cofold_side(const fm_cofold *c) {
    return choose_side(c);
}

fm_status fm_cofold_run_trunk(fm_cofold *c, const fm_af3_sample *sample, uint32_t seed,
                              const fm_cofold_draws *draws, fm_cofold_times *ret_times,
                              fm_error *reterr) {
    const fm_cofold_sizes sizes = {sample->n_token, sample->n_atom, sample->n_msa,
                                   sample->n_template};
    fm_cofold_times times = {0};
    double start = now_s();
    free(c->x);
    c->x = calloc((size_t)(c->options.n_structure * 3 * sample->n_atom), sizeof *c->x);
    if (!c->x) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the structures");
    c->sample = sample;
    c->seed = seed;
    fm_status status = fm_cofold_check(c, sample, reterr);
    if (!status) status = find_passes(c, &sizes, reterr);
    if (status) return status;
    times.record_s = lap_s(&start);
    status = fm_cofold_passes_begin(c->passes, sample, seed, draws, reterr);
    times.features_s = lap_s(&start);
    for (int32_t i = 0; i < c->options.n_cycle && !status; i++)
        fm_cofold_passes_queue_cycle(c->passes, (uint32_t)i);
    c->options.kernels->synchronize(c->passes->recording.stream);
    times.trunk_s = lap_s(&start);
    if (!status) fm_cofold_passes_queue_prepare(c->passes);
    *ret_times = times;
    return status;
}

fm_status fm_cofold_sample(fm_cofold *c, int64_t first, fm_cofold_times *times, fm_error *reterr) {
    const int64_t n_all = c->options.n_structure, count = 3 * c->sample->n_atom;
    const int64_t side = choose_side(c), left = n_all - first, n = left < side ? left : side;
    fm_cofold_passes *p = c->passes;
    double start = now_s(), *x = c->x + first * count;
    assert(first >= 0 && first < n_all && first % side == 0);
    fm_status status = fm_cofold_passes_start(p, first, n, reterr);
    for (int32_t k = 0; k < c->options.n_step && !status; k++)
        fm_cofold_passes_queue_step(p, k);
    if (!status) status = fm_cofold_passes_read(p, n, x, reterr);
    if (!status) status = fm_groups_check(c->options.model.groups, reterr);
    bool is_finite = true;
    for (int64_t i = 0; i < n * count && !status; i++)
        is_finite = is_finite && isfinite(x[i]);
    if (!status && !fm_groups_least(c->options.model.groups, is_finite)) {
        status = name_nonfinite(c, first, n, reterr);
    }
    times->structures_s += lap_s(&start);
    return status;
}

fm_status fm_cofold_run(fm_cofold *c, const fm_af3_sample *sample, uint32_t seed,
                        const fm_cofold_draws *draws, fm_cofold_times *ret_times,
                        fm_error *reterr) {
    fm_status status = fm_cofold_run_trunk(c, sample, seed, draws, ret_times, reterr);
    for (int64_t k = 0; k < c->options.n_structure && !status; k += choose_side(c))
        status = fm_cofold_sample(c, k, ret_times, reterr);
    return status;
}

/* -- results */

const double *fm_cofold_structure(const fm_cofold *c, int64_t k) {
    assert(c->x && k >= 0 && k < c->options.n_structure);
    return c->x + k * 3 * c->sample->n_atom;
}

void fm_cofold_distogram(fm_cofold *c) {
    fm_cofold_passes_queue_distogram(c->passes);
}

void fm_cofold_judge(fm_cofold *c, int64_t k) {
    fm_cofold_passes_queue_confidence(c->passes, fm_cofold_structure(c, k));
}

void fm_cofold_wait(const fm_cofold *c) {
    c->options.kernels->synchronize(c->passes->recording.stream);
}

static fm_tensor_ref tensor_of(const fm_cofold_passes *p, fm_cofold_head head) {
    switch (head) {
    case FM_COFOLD_PLDDT: return p->logits.plddt;
    case FM_COFOLD_RESOLVED: return p->logits.resolved;
    case FM_COFOLD_ALIGNED_ERROR: return p->logits.pae;
    case FM_COFOLD_DISTANCE_ERROR: return p->logits.pde;
    case FM_COFOLD_DISTANCE:
    case FM_COFOLD_HEADS: break;
    }
    return p->distogram;
}

int64_t fm_cofold_bins(const fm_cofold *c, fm_cofold_head head) {
    const fm_af3_config *m = &c->options.model;
    switch (head) {
    case FM_COFOLD_PLDDT: return m->n_plddt_bin;
    case FM_COFOLD_RESOLVED: return FM_AF3_RESOLVED_CLASSES;
    case FM_COFOLD_ALIGNED_ERROR: return m->n_pae_bin;
    case FM_COFOLD_DISTANCE_ERROR: return m->n_pde_bin;
    case FM_COFOLD_DISTANCE:
    case FM_COFOLD_HEADS: break;
    }
    return m->n_distogram_bin;
}

fm_status fm_cofold_logits(fm_cofold *c, fm_cofold_head head, int64_t first, int64_t n_row,
                           fm_arena *arena, float **ret_logits, fm_error *reterr) {
    const bool of_atoms = head == FM_COFOLD_PLDDT || head == FM_COFOLD_RESOLVED;
    const fm_cofold_tape tape =
        head == FM_COFOLD_DISTANCE ? FM_COFOLD_DISTOGRAM : FM_COFOLD_CONFIDENCE;
    const int64_t n_bin = fm_cofold_bins(c, head), n = c->sample->n_token;
    const int64_t padded = c->passes->options.model.n_token;
    const size_t line = (size_t)((of_atoms ? 1 : padded) * n_bin), kept = (size_t)(n * n_bin);
    assert(first >= 0 && n_row >= 0 && first + n_row <= (of_atoms ? c->sample->n_atom : n));
    fm_status status = fm_recording_download(&c->passes->recording, tape,
                                             tensor_of(c->passes, head), (size_t)first * line,
                                             (size_t)n_row * line, arena, ret_logits, reterr);
    for (size_t i = 1; !status && !of_atoms && i < (size_t)n_row; i++)
        memmove(*ret_logits + i * kept, *ret_logits + i * line, kept * sizeof **ret_logits);
    return status;
}
