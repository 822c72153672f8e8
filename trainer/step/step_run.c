/* step_run.c: queues samples and collects their results; see step.h. */
#include "trainer/backend/where.h"
#include "trainer/dist/sum.h"
#include "trainer/step/step.h"
#include "trainer/step/upload.h"

#include <assert.h>
#include <math.h>

static fm_flight *flight_of(fm_trainer *t, uint64_t number) {
    return &t->flight[number % FM_MOST_QUEUED];
}

static fm_cycles_sample sample_of(const fm_trainer *t, const fm_flight *flight, bool is_last) {
    return (fm_cycles_sample){.features = flight->features,
                              .step = flight->step,
                              .rate = fm_optimizer_rate(&t->options.optimizer, flight->samples + 1),
                              .pending = flight->pending,
                              .holds = !is_last};
}

/* Advances the counters to their values after the sample. */
static void count(fm_trainer *t, bool is_last) {
    t->recording.optimizer.samples++;
    t->recording.optimizer.pending = is_last ? 0 : t->recording.optimizer.pending + 1;
    t->recording.optimizer.step += is_last;
}

fm_status fm_trainer_queue(fm_trainer *t, const fm_features *f, bool is_last, fm_error *reterr) {
    assert(fm_trainer_n_queued(t) < FM_MOST_QUEUED);
    assert(!is_last || !t->options.groups || !t->options.groups->dp);
    fm_status status = fm_upload_check(&t->cycles, f, reterr);
    if (status) return status;
    fm_flight *flight = flight_of(t, t->n_queued);
    flight->features = f;
    flight->step = t->recording.optimizer.step;
    flight->samples = t->recording.optimizer.samples;
    flight->pending = t->recording.optimizer.pending;
    const fm_cycles_sample sample = sample_of(t, flight, is_last);
    fm_backend_name_step(flight->step + 1);
    for (uint32_t c = 0; c < f->n_cycle; c++) { /* A31:3-4 */
        fm_groups_note(t->options.groups, flight->step + 1, c);
        fm_cycles_run(&t->cycles, &sample, c,
                      &t->recording.pass[c + 1 < f->n_cycle ? FM_TRAINER_CYCLE : FM_TRAINER_LAST]);
    }
    t->recording.params.kernels->device->event_record(flight->done, t->recording.stream);
    t->n_queued++;
    count(t, is_last);
    return FM_OK;
}

/* -- values that are not finite */

/* Takes the counters back to where the sample was queued. The passes behind it did nothing, since
 * the flag stays set. */
static fm_status stop(fm_trainer *t, const fm_flight *flight, fm_error *reterr) {
    t->recording.params.kernels->synchronize(t->recording.stream);
    t->n_collected = t->n_queued;
    t->recording.optimizer.step = flight->step;
    t->recording.optimizer.samples = flight->samples;
    t->recording.optimizer.pending = flight->pending;
    const fm_cycles_sample sample = sample_of(t, flight, false);
    const uint32_t n = flight->features->n_cycle;
    fm_status status =
        fm_cycles_name_nonfinite(&t->cycles, &sample, n, n, &t->recording.tape[FM_TRAINER_CYCLE],
                                 &t->recording.tape[FM_TRAINER_LAST], reterr);
    fm_optimizer_clear_nonfinite(&t->recording.optimizer, t->recording.stream);
    return status;
}

/* The sum of gradients overflowed, so the samples that were queued changed nothing. `step` counts
 * from 1. */
static fm_status fail_sum(fm_trainer *t, uint64_t step, fm_error *reterr) {
    t->recording.params.kernels->synchronize(t->recording.stream);
    t->n_collected = t->n_queued;
    return fm_fail(reterr, FM_ERR_LIMIT,
                   "step %llu: the norm of the sum of its gradients is not finite, although each "
                   "gradient is; the update was not made",
                   (unsigned long long)step);
}

/* -- results */

fm_status fm_trainer_collect(fm_trainer *t, fm_sample_result *ret_result, fm_error *reterr) {
    assert(fm_trainer_n_queued(t) > 0);
    const fm_flight *flight = flight_of(t, t->n_collected);
    t->recording.params.kernels->device->event_wait(flight->done);
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
    fm_cycles_put_terms(&t->cycles, flight->features, record->term + 1, ret_result);
    t->n_collected++;
    /* The record was made before the sum was measured; a sample behind it would tell. */
    bool is_alone = t->options.optimizer.clip == FM_CLIP_BATCH && fm_trainer_n_queued(t) == 0;
    bool is_lost =
        is_alone && fm_optimizer_get_state(&t->recording.optimizer, t->recording.stream).nonfinite;
    return is_lost ? fail_sum(t, flight->step + 1, reterr) : FM_OK;
}

double fm_trainer_rate(const fm_trainer *t) {
    return fm_optimizer_rate(&t->options.optimizer, t->recording.optimizer.samples);
}

fm_status fm_trainer_add_sample(fm_trainer *t, const fm_features *f, fm_sample_result *ret_result,
                                fm_error *reterr) {
    fm_status status = fm_trainer_queue(t, f, false, reterr);
    return status ? status : fm_trainer_collect(t, ret_result, reterr);
}

double fm_trainer_update(fm_trainer *t) {
    const fm_groups *groups = t->options.groups;
    uint32_t n_group = groups ? (uint32_t)groups->layout.dp : 1;
    return fm_trainer_update_with(t, t->recording.optimizer.pending * n_group);
}

double fm_trainer_update_with(fm_trainer *t, uint32_t n_sample) {
    assert(fm_trainer_n_queued(t) == 0);
    const fm_groups *groups = t->options.groups;
    fm_recording *r = &t->recording;
    fm_optimizer *optimizer = &r->optimizer;
    if (groups && groups->dp) {
        if (optimizer->pending == 0) fm_optimizer_clear_sum(optimizer, r->stream);
        fm_groups_sum(groups, r->params.n_element, optimizer->sum, r->scratch,
                      r->options.scratch_elements, r->stream);
        fm_optimizer_count_others(optimizer, n_sample);
    }
    fm_optimizer_step(optimizer, r->stream);
    return fm_trainer_rate(t);
}
