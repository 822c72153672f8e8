/* step_run.c: queues samples and collects their results; see step.h. */
#include "trainer/backend/where.h"
#include "trainer/dist/sum.h"
#include "trainer/step/upload.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static fm_flight *flight_of(fm_trainer *t, uint64_t number) {
    return &t->flight[number % FM_MOST_QUEUED];
}

/* Sends the packet of a cycle. The caller runs the pass that takes it. */
static void send_cycle(fm_trainer *t, const fm_flight *flight, uint32_t cycle, bool is_last) {
    fm_packet *packet = fm_ring_begin(&t->ring);
    packet->lr = fm_optimizer_rate(&t->options.optimizer, flight->samples + 1);
    packet->step = flight->step + 1;
    packet->pending = flight->pending;
    packet->holds = !is_last;
    fm_upload_pack(t, flight->features, cycle, flight->step, packet);
    fm_ring_send(&t->ring, t->stream);
}

/* Advances the counters to their values after the sample. */
static void count(fm_trainer *t, bool is_last) {
    t->optimizer.samples++;
    t->optimizer.pending = is_last ? 0 : t->optimizer.pending + 1;
    t->optimizer.step += is_last;
}

/* Whether `last` is the tape that a draw of a prediction, or a cycle of another sample, runs on. */
static bool runs_last(const fm_trainer *t, uint32_t at, uint32_t n) {
    if (!t->options.predicts) return at + 1 == n;
    return (at + 1) % (uint32_t)t->inputs.n_draw == 0;
}

fm_status fm_trainer_queue(fm_trainer *t, const fm_features *f, bool is_last, fm_error *reterr) {
    assert(fm_trainer_n_queued(t) < FM_MOST_QUEUED);
    assert(!is_last || !t->options.groups || !t->options.groups->dp);
    fm_status status = fm_upload_check(t, f, reterr);
    if (status) return status;
    fm_flight *flight = flight_of(t, t->n_queued);
    flight->features = f;
    flight->step = t->optimizer.step;
    flight->samples = t->optimizer.samples;
    flight->pending = t->optimizer.pending;
    fm_backend_name_step(flight->step + 1);
    for (uint32_t c = 0; c < f->n_cycle; c++) { /* A31:3-4 */
        fm_groups_note(t->options.groups, flight->step + 1, c);
        send_cycle(t, flight, c, is_last);
        fm_pass_run(runs_last(t, c, f->n_cycle) ? &t->last_pass : &t->cycle_pass, t->stream);
        fm_ring_taken(&t->ring, t->stream);
    }
    t->params.kernels->device->event_record(flight->done, t->stream);
    t->n_queued++;
    count(t, is_last);
    return FM_OK;
}

/* -- values that are not finite */

/* Runs the sample again, checking what every step of each cycle writes, backward included. */
static fm_status name_nonfinite(fm_trainer *t, const fm_flight *flight, uint32_t n_cycle,
                                fm_error *reterr) {
    const fm_features *f = flight->features;
    uint32_t *flag = fm_state_data(&t->state, t->flag);
    char what[256] = "the norm of the gradient";
    uint32_t cycle = 0;
    bool found = false;
    for (uint32_t c = 0; c < n_cycle;
         c++) { /* runs to the end, since other ranks wait for this one */
        fm_tape *tape = runs_last(t, c, n_cycle) ? &t->last : &t->cycle;
        char here[sizeof what] = "";
        send_cycle(t, flight, c, false);
        fm_trainer_take_packet(t, t->stream);
        bool is_here = fm_tape_name_nonfinite(tape, t->stream, flag, here, sizeof here);
        cycle = found ? cycle : c;
        if (is_here && !found) memcpy(what, here, sizeof what);
        found |= is_here;
        fm_ring_taken(&t->ring, t->stream);
    }
    return fm_fail(reterr, FM_ERR_DATA, "step %llu, sample %u, cycle %u: %s is not finite",
                   (unsigned long long)flight->step, f->slot, cycle, what);
}

/* Takes the counters back to where the sample was queued. The passes behind it did nothing, since
 * the flag stays set. */
static fm_status stop(fm_trainer *t, const fm_flight *flight, fm_error *reterr) {
    t->params.kernels->synchronize(t->stream);
    t->n_collected = t->n_queued;
    t->optimizer.step = flight->step;
    t->optimizer.samples = flight->samples;
    t->optimizer.pending = flight->pending;
    fm_status status = name_nonfinite(t, flight, flight->features->n_cycle, reterr);
    fm_optimizer_clear_nonfinite(&t->optimizer, t->stream);
    return status;
}

/* The sum of gradients overflowed, so the samples that were queued changed nothing. `step` counts
 * from 1. */
static fm_status fail_sum(fm_trainer *t, uint64_t step, fm_error *reterr) {
    t->params.kernels->synchronize(t->stream);
    t->n_collected = t->n_queued;
    return fm_fail(reterr, FM_ERR_LIMIT,
                   "step %llu: the norm of the sum of its gradients is not finite, although each "
                   "gradient is; the update was not made",
                   (unsigned long long)step);
}

/* -- predictions */

void fm_trainer_queue_cycle(fm_trainer *t, const fm_features *f, uint64_t seed, uint32_t cycle) {
    assert(t->options.predicts);
    const fm_flight flight = {.features = f, .step = seed};
    const uint32_t n_draw = (uint32_t)t->inputs.n_draw, first = cycle * n_draw;
    fm_backend_name_step(cycle + 1);
    fm_groups_note_prediction(t->options.groups, cycle);
    for (uint32_t at = first; at < first + n_draw; at++) {
        send_cycle(t, &flight, at, false);
        fm_pass_run(runs_last(t, at, f->n_cycle) ? &t->last_pass : &t->cycle_pass, t->stream);
        fm_ring_taken(&t->ring, t->stream);
    }
}

fm_status fm_trainer_name_nonfinite(fm_trainer *t, const fm_features *f, uint64_t seed,
                                    uint32_t n_cycle, fm_error *reterr) {
    const fm_flight flight = {.features = f, .step = seed};
    return name_nonfinite(t, &flight, n_cycle * (uint32_t)t->inputs.n_draw, reterr);
}

/* -- results */

fm_status fm_trainer_collect(fm_trainer *t, fm_sample_result *ret_result, fm_error *reterr) {
    assert(fm_trainer_n_queued(t) > 0);
    const fm_flight *flight = flight_of(t, t->n_collected);
    t->params.kernels->device->event_wait(flight->done);
    fm_status status = fm_groups_check(t->options.groups, reterr);
    if (status) return status;
    const fm_step_record *record = &t->record[t->n_collected % FM_MOST_QUEUED];
    if (record->nonfinite & FM_NONFINITE_SUM) { /* found when the sample before was added */
        return fail_sum(t, flight->step + (flight->pending > 0), reterr);
    }
    if (record->nonfinite) return stop(t, flight, reterr);
    *ret_result = (fm_sample_result){.loss = record->term[0],
                                     .gradient_norm = sqrt(record->norm_squared),
                                     .done_ns = record->done_ns};
    double factor[FM_LOSS_TERMS]; /* of the terms that the model has, one after the other */
    fm_upload_put_factors(t, flight->features, factor);
    int at = 0;
    for (int i = 0; i < FM_LOSS_TERMS; i++) {
        if (t->term[i] == FM_TENSOR_NONE) continue;
        bool counts = fm_loss_counts(i, flight->features->resolution);
        ret_result->term[i] = counts ? record->term[1 + at] : 0;
        ret_result->part[i] = factor[at] * record->term[1 + at];
        at++;
    }
    t->n_collected++;
    /* The record was made before the sum was measured; a sample behind it would tell. */
    bool is_alone = t->options.optimizer.clip == FM_CLIP_BATCH && fm_trainer_n_queued(t) == 0;
    bool is_lost = is_alone && fm_optimizer_get_state(&t->optimizer, t->stream).nonfinite;
    return is_lost ? fail_sum(t, flight->step + 1, reterr) : FM_OK;
}

double fm_trainer_rate(const fm_trainer *t) {
    return fm_optimizer_rate(&t->options.optimizer, t->optimizer.samples);
}

fm_status fm_trainer_add_sample(fm_trainer *t, const fm_features *f, fm_sample_result *ret_result,
                                fm_error *reterr) {
    fm_status status = fm_trainer_queue(t, f, false, reterr);
    return status ? status : fm_trainer_collect(t, ret_result, reterr);
}

double fm_trainer_update(fm_trainer *t) {
    const fm_groups *groups = t->options.groups;
    uint32_t n_group = groups ? (uint32_t)groups->layout.dp : 1;
    return fm_trainer_update_with(t, t->optimizer.pending * n_group);
}

double fm_trainer_update_with(fm_trainer *t, uint32_t n_sample) {
    assert(fm_trainer_n_queued(t) == 0);
    const fm_groups *groups = t->options.groups;
    if (groups && groups->dp) {
        if (t->optimizer.pending == 0) fm_optimizer_clear_sum(&t->optimizer, t->stream);
        fm_comm_sum(groups->dp, t->params.n_element, t->optimizer.sum, t->scratch,
                    fm_trainer_scratch_count(t), t->stream);
        fm_optimizer_count_others(&t->optimizer, n_sample);
    }
    fm_optimizer_step(&t->optimizer, t->stream);
    return fm_trainer_rate(t);
}
