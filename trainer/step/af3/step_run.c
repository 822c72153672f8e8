/* step_run.c: runs a sample in parts; see step.h. */
#include "trainer/step/af3/step_internal.h"

#include "trainer/dist/sum.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* -- the parts; nothing here waits for the device */

static void clear_gradients(fm_af3_trainer *t, fm_stream *stream) {
    const fm_kernels *kernels = t->options.kernels;
    int64_t ratio = (int64_t)(fm_element_bytes(kernels->acc) / fm_element_bytes(kernels->act));
    kernels->fill(stream, t->recording.params.n_element * ratio, 0.0, t->recording.params.gradient);
}

/* Stores the clock before (end false) or after a part. */
static void stamp(const fm_af3_trainer *t, int part, bool end, fm_stream *stream) {
    fm_recording_queue_stamp(&t->recording, 2 * part + end, stream);
}

static void queue_cycle(void *context, fm_stream *stream) {
    fm_af3_trainer *t = context;
    stamp(t, FM_AF3_PART_CYCLE, false, stream);
    fm_tape_forward(&t->recording.tape[FM_AF3_CYCLE], stream);
    stamp(t, FM_AF3_PART_CYCLE, true, stream);
}

static void queue_trunk(void *context, fm_stream *stream) {
    fm_af3_trainer *t = context;
    stamp(t, FM_AF3_PART_TRUNK, false, stream);
    fm_tape_forward_nodes(&t->recording.tape[FM_AF3_LAST], 0, t->out.trunk_end, stream);
    stamp(t, FM_AF3_PART_TRUNK, true, stream);
}

static void queue_rollout(void *context, fm_stream *stream) {
    fm_af3_trainer *t = context;
    stamp(t, FM_AF3_PART_ROLLOUT, false, stream);
    fm_af3_queue_constants(&t->recording.params, &t->weights, &t->recording.state, &t->inputs,
                           stream);
    fm_tape_forward(&t->recording.tape[FM_AF3_PREPARE], stream);
    fm_tape *step = &t->recording.tape[FM_AF3_DENOISE];
    const uint32_t *clocks = fm_state_data(&t->recording.state, t->clocks);
    for (int32_t k = 0; k < t->options.model.n_rollout_step; k++) {
        step->row = k;
        step->clock = clocks + (size_t)k * FM_CLOCK_WORDS;
        fm_tape_forward(step, stream);
    }
    stamp(t, FM_AF3_PART_ROLLOUT, true, stream);
}

static void learn(fm_af3_trainer *t, fm_stream *stream) {
    fm_tape *last = &t->recording.tape[FM_AF3_LAST];
    fm_tape_forward(&t->recording.tape[FM_AF3_STRUCTURES], stream);
    fm_tape_forward_nodes(last, t->out.trunk_end, last->n_forward, stream);
    if (t->options.forward_only) return;
    /* The confidence head has other parameters, and some parameters have no gradient at all. */
    clear_gradients(t, stream);
    fm_tape_backward(last, stream);
}

static void queue_learn(void *context, fm_stream *stream) {
    fm_af3_trainer *t = context;
    stamp(t, FM_AF3_PART_LEARN, false, stream);
    learn(t, stream);
    stamp(t, FM_AF3_PART_LEARN, true, stream);
}

static void judge(fm_af3_trainer *t, fm_stream *stream) {
    fm_tape_forward(&t->recording.tape[FM_AF3_CONFIDENCE], stream);
    if (t->options.forward_only) return;
    if (t->options.confidence_only) clear_gradients(t, stream);
    fm_tape_backward(&t->recording.tape[FM_AF3_CONFIDENCE], stream);
}

static void queue_confidence(void *context, fm_stream *stream) {
    fm_af3_trainer *t = context;
    stamp(t, FM_AF3_PART_CONFIDENCE, false, stream);
    judge(t, stream);
    stamp(t, FM_AF3_PART_CONFIDENCE, true, stream);
}

void fm_af3_trainer_make_parts(fm_af3_trainer *t) {
    void (*const queue[FM_AF3_PARTS])(void *,
                                      fm_stream *) = {[FM_AF3_PART_CYCLE] = queue_cycle,
                                                      [FM_AF3_PART_TRUNK] = queue_trunk,
                                                      [FM_AF3_PART_ROLLOUT] = queue_rollout,
                                                      [FM_AF3_PART_LEARN] = queue_learn,
                                                      [FM_AF3_PART_CONFIDENCE] = queue_confidence};
    for (int i = 0; i < FM_AF3_PARTS; i++)
        fm_recording_add_pass(&t->recording, queue[i], t);
}

fm_status fm_af3_trainer_stamp(fm_af3_trainer *t, fm_error *reterr) {
    return fm_recording_stamp(&t->recording, (size_t)2 * FM_AF3_PARTS, reterr);
}

/* -- the host's work between them */

/* Reads the terms first .. end - 1 of a pass, and adds its total to the loss. */
static void read_terms(fm_af3_trainer *t, int tape, int first, int end, fm_tensor_ref total) {
    double factor[FM_COMPLEX_TERMS];
    fm_complex_put_factors(&t->options.loss, t->features->labels.resolution, factor);
    for (int i = first; i < end; i++) {
        t->result.term[i] = fm_recording_read_scalar(&t->recording, tape, t->term[i]);
        t->result.part[i] = factor[i] * t->result.term[i];
    }
    t->result.loss += fm_recording_read_scalar(&t->recording, tape, total);
}

/* The trunk of the first cycle reads zeros. */
static void clear_recycled(fm_af3_trainer *t) {
    const int32_t recycled[] = {t->inputs.previous_s, t->inputs.previous_z};
    for (int i = 0; i < 2; i++)
        t->options.kernels->fill(t->recording.stream,
                                 fm_tensor_local_count(&t->recording.state.tensor[recycled[i]]),
                                 0.0, fm_state_data(&t->recording.state, recycled[i]));
}

fm_status fm_af3_trainer_begin(fm_af3_trainer *t, const fm_af3_features *features,
                               fm_error *reterr) {
    assert(features->n_cycle >= 1 && (!features->draws || t->options.given));
    t->features = features;
    t->result = (fm_sample_result){0};
    fm_status status = fm_af3_trainer_write(t, reterr);
    if (!status) clear_recycled(t);
    return status;
}

void fm_af3_trainer_trunk(fm_af3_trainer *t) {
    const uint32_t n = t->features->n_cycle;
    fm_mirror_send(&t->shared, t->recording.stream);
    for (uint32_t c = 0; c < n; c++) {
        fm_groups_note(t->options.model.groups, t->recording.optimizer.step + 1, c);
        fm_af3_trainer_write_cycle(t, c);
        fm_mirror_send(&t->mirror, t->recording.stream);
        fm_pass_run(c + 1 < n ? &t->recording.pass[FM_AF3_PART_CYCLE]
                              : &t->recording.pass[FM_AF3_PART_TRUNK],
                    t->recording.stream);
    }
}

static void write_labels(fm_af3_trainer *t, const fm_complex_labels *labels) {
    fm_complex_write_labels(labels, &t->targets, fm_mirror_put, &t->mirror);
    fm_complex_write_factors(&t->options.loss, labels->resolution, &t->targets, fm_mirror_put,
                             &t->mirror);
}

/* The labels are written while the device works, as if the rollout exchanged none. */
fm_status fm_af3_trainer_rollout(fm_af3_trainer *t, fm_error *reterr) {
    fm_status status = fm_af3_trainer_write_noise(t, reterr);
    if (status) return status;
    fm_mirror_send(&t->mirror, t->recording.stream);
    fm_pass_run(&t->recording.pass[FM_AF3_PART_ROLLOUT], t->recording.stream);
    fm_mirror_begin(&t->mirror);
    write_labels(t, &t->features->labels);
    fm_mirror_fetch(t->options.kernels, t->recording.stream,
                    fm_state_data(&t->recording.state, t->rollout.x), t->options.kernels->acc,
                    3 * t->features->sample.n_atom, t->raw, t->x);
    return FM_OK;
}

/* Describes the rollout's structure, in the arena. */
static fm_status describe_rollout(fm_af3_trainer *t, fm_labelled_complex *ret_made,
                                  fm_error *reterr) {
    const fm_af3_sample *sample = &t->features->sample;
    const size_t n = (size_t)sample->n_token, n_atom = (size_t)sample->n_atom;
    int64_t *first = fm_arena_alloc_array(&t->scratch, n + 1, sizeof *first);
    int64_t *centre = fm_arena_alloc_array(&t->scratch, n, sizeof *centre);
    float *predicted = fm_arena_alloc_array(&t->scratch, 3 * n_atom, sizeof *predicted);
    if (!first || !centre || !predicted) return fm_arena_full(&t->scratch, reterr);
    for (size_t k = 0, l = 0; k <= n; k++) {
        while (l < n_atom && sample->atom_to_token_idx[l] < (int64_t)k)
            l++;
        first[k] = (int64_t)l;
        if (k < n) centre[k] = -1;
    }
    for (size_t l = 0; l < n_atom; l++)
        if (t->features->labels.pae_rep_atom_mask[l]) {
            centre[sample->atom_to_token_idx[l]] = (int64_t)l;
        }
    for (size_t i = 0; i < 3 * n_atom; i++)
        predicted[i] = (float)t->x[i];
    *ret_made = (fm_labelled_complex){
        sample->n_token,     sample->n_atom, sample->asym_id, sample->entity_id,
        t->features->number, first,          centre,          predicted};
    return FM_OK;
}

/* Exchanges the labels of equivalent chains and atoms by the rollout; in the arena. */
static fm_status permute(fm_af3_trainer *t, const fm_labelled_complex *made,
                         fm_complex_labels *labels, fm_error *reterr) {
    const size_t n_atom = (size_t)made->n_atom;
    int64_t *from = fm_arena_alloc_array(&t->scratch, n_atom, sizeof *from);
    float *x = fm_arena_alloc_array(&t->scratch, 3 * n_atom, sizeof *x);
    float *mask = fm_arena_alloc_array(&t->scratch, n_atom, sizeof *mask);
    if (!from || !x || !mask) return fm_arena_full(&t->scratch, reterr);
    fm_labelled_complex truth = *made;
    truth.position = labels->coordinate;
    fm_status status = fm_permute_labels(made, &truth, labels->coordinate_mask, t->features->orders,
                                         t->features->n_orders, from, &t->scratch, reterr);
    if (status) return status;
    for (size_t l = 0; l < n_atom; l++) {
        mask[l] = from[l] < 0 ? 0 : labels->coordinate_mask[from[l]];
        for (size_t axis = 0; axis < 3; axis++)
            x[3 * l + axis] = from[l] < 0 ? 0 : labels->coordinate[3 * from[l] + (int64_t)axis];
    }
    labels->coordinate = x;
    labels->coordinate_mask = mask;
    return FM_OK;
}

/* Whether permute has exchanged none. */
static bool are_given(const fm_af3_trainer *t, const fm_complex_labels *labels) {
    const fm_complex_labels *given = &t->features->labels;
    const size_t n = (size_t)given->n_atom;
    return !memcmp(labels->coordinate, given->coordinate, 3 * n * sizeof *given->coordinate) &&
           !memcmp(labels->coordinate_mask, given->coordinate_mask,
                   n * sizeof *given->coordinate_mask);
}

fm_status fm_af3_trainer_label(fm_af3_trainer *t, fm_error *reterr) {
    const fm_af3_features *f = t->features;
    size_t mark = fm_arena_mark(&t->scratch);
    fm_complex_labels labels = f->labels;
    fm_labelled_complex made;
    fm_status status = f->number ? describe_rollout(t, &made, reterr) : FM_OK;
    if (!status && f->number) status = permute(t, &made, &labels, reterr);
    if (!status && t->options.forward_only) {
        status = fm_af3_score_structure(&labels, t->x, &t->scratch, &t->score, reterr);
        if (!status && f->number) {
            status = fm_af3_score_parts(f, &made, &t->scratch, &t->score.parts, reterr);
        }
    }
    if (!status && !are_given(t, &labels)) write_labels(t, &labels);
    for (int64_t i = 0; i < 3 * t->options.model.n_atom; i++)
        fm_mirror_put(&t->mirror, t->targets.structure, i, i < 3 * f->sample.n_atom ? t->x[i] : 0);
    fm_mirror_send(&t->mirror, t->recording.stream);
    fm_arena_rewind(&t->scratch, mark);
    return status;
}

void fm_af3_trainer_learn(fm_af3_trainer *t) {
    fm_pass_run(&t->recording.pass[FM_AF3_PART_LEARN], t->recording.stream);
    fm_af3_trainer_write_next(t);
    read_terms(t, FM_AF3_LAST, 0, FM_COMPLEX_STRUCTURE_TERMS, t->structure_total);
}

void fm_af3_trainer_confidence(fm_af3_trainer *t) {
    fm_pass_run(&t->recording.pass[FM_AF3_PART_CONFIDENCE], t->recording.stream);
    fm_af3_trainer_write_next(t);
    read_terms(t, FM_AF3_CONFIDENCE, FM_COMPLEX_STRUCTURE_TERMS, FM_COMPLEX_TERMS,
               t->confidence_total);
}

/* -- a whole sample */

void fm_af3_trainer_announce(fm_af3_trainer *t, const fm_af3_features *next, uint64_t step) {
    t->next = next;
    t->next_step = step;
    t->is_announced = next != NULL;
    if (!next) t->written = NULL;
}

void fm_af3_trainer_set_look_ahead(fm_af3_trainer *t, void (*look_ahead)(void *context),
                                   void *context) {
    t->look_ahead = look_ahead;
    t->look_ahead_context = context;
}

/* Runs the sample again, checking what every step of its passes writes. All passes run, because
 * the other ranks of the sample wait for this one in their exchanges. */
static fm_status name_nonfinite(fm_af3_trainer *t, fm_error *reterr) {
    uint32_t *flag = fm_state_data(&t->recording.state, t->recording.flag);
    const uint32_t n = t->features->n_cycle;
    char what[256] = "the norm of the gradient";
    bool found = false;
    uint32_t cycle = n - 1;
    /* Those of the announced sample may have been written since. */
    fm_status status = fm_af3_trainer_write_conformers(t, reterr);
    if (status) return status;
    clear_recycled(t);
    for (uint32_t i = 0; i <= n; i++) {
        const int tape = i == n ? FM_AF3_CONFIDENCE : i + 1 < n ? FM_AF3_CYCLE : FM_AF3_LAST;
        char here[sizeof what] = "";
        if (i < n) {
            fm_af3_trainer_write_cycle(t, i);
            fm_mirror_send(&t->mirror, t->recording.stream);
        }
        bool is_here = fm_tape_name_nonfinite(&t->recording.tape[tape], t->recording.stream, flag,
                                              here, sizeof here);
        if (!is_here || found) continue;
        found = true;
        if (i < n) cycle = i;
        memcpy(what, here, sizeof what);
    }
    return fm_fail(reterr, FM_ERR_DATA, "step %llu, sample %u, cycle %u: %s is not finite",
                   (unsigned long long)t->recording.optimizer.step, t->features->slot, cycle, what);
}

void fm_af3_trainer_sum_gradients(fm_af3_trainer *t) {
    const fm_groups *groups = t->options.model.groups;
    if (!groups || t->options.forward_only) return;
    fm_comm_sum(groups->sample, fm_params_trained(&t->recording.params),
                t->recording.params.gradient, t->recording.scratch, FM_AF3_SUM_ELEMENTS,
                t->recording.stream);
}

static fm_status compute_sample(fm_af3_trainer *t, const fm_af3_features *features,
                                fm_sample_result *ret_result, fm_error *reterr) {
    fm_status status = fm_af3_trainer_begin(t, features, reterr);
    if (status) return status;
    const fm_groups *groups = t->options.model.groups;
    fm_af3_trainer_trunk(t);
    status = fm_af3_trainer_rollout(t, reterr);
    if (!status) status = fm_groups_check(groups, reterr);
    if (!status) status = fm_af3_trainer_label(t, reterr);
    if (status) return status;
    if (!t->options.confidence_only) fm_af3_trainer_learn(t);
    fm_af3_trainer_confidence(t);
    fm_af3_trainer_sum_gradients(t);
    t->options.kernels->synchronize(t->recording.stream);
    status = fm_groups_check(groups, reterr);
    if (status) return status;
    bool is_finite = isfinite(t->result.loss);
    if (is_finite && !t->options.forward_only) {
        is_finite = fm_optimizer_add_sample(&t->recording.optimizer, t->recording.stream);
        t->result.gradient_norm =
            sqrt(fm_optimizer_get_state(&t->recording.optimizer, t->recording.stream).norm_squared);
    }
    if (!is_finite) return name_nonfinite(t, reterr);
    *ret_result = t->result;
    return FM_OK;
}

fm_status fm_af3_trainer_add_sample(fm_af3_trainer *t, const fm_af3_features *features,
                                    fm_sample_result *ret_result, fm_error *reterr) {
    fm_status status = compute_sample(t, features, ret_result, reterr);
    t->next = NULL; /* a sample that failed early has not written it */
    t->is_announced = false;
    return status;
}

fm_status fm_af3_trainer_update_with(fm_af3_trainer *t, uint32_t n_sample, fm_error *reterr) {
    const fm_groups *groups = t->options.model.groups;
    fm_recording *r = &t->recording;
    fm_optimizer *optimizer = &r->optimizer;
    if (groups && groups->dp) {
        if (optimizer->pending == 0) fm_optimizer_clear_sum(optimizer, r->stream);
        fm_groups_sum(groups, fm_params_trained(&r->params), optimizer->sum, r->scratch,
                      FM_AF3_SUM_ELEMENTS, r->stream);
        t->options.kernels->synchronize(r->stream);
        fm_status status = fm_groups_check(groups, reterr);
        if (status) return status;
        fm_optimizer_count_others(optimizer, n_sample);
    }
    fm_optimizer_step(optimizer, r->stream);
    if (!fm_optimizer_get_state(optimizer, r->stream).nonfinite) return FM_OK;
    fm_optimizer_clear_nonfinite(optimizer, r->stream);
    return fm_fail(reterr, FM_ERR_LIMIT,
                   "step %llu: the norm of the sum of its gradients is not finite, although each "
                   "gradient is; the update was not made",
                   (unsigned long long)t->recording.optimizer.step);
}
