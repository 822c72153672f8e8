/* cycles.c: see cycles.h. Packing a sample into packets is in upload.c. */
#include "trainer/step/cycles.h"

#include "trainer/dist/sum.h"
#include "trainer/step/upload.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

fm_status fm_cycles_find_kernels(const fm_model_config *model, const fm_kernels *kernels,
                                 fm_element element, const fm_kernels **ret_kernels,
                                 fm_error *reterr) {
    if (!kernels) kernels = fm_kernels_cpu(element);
    *ret_kernels = kernels;
    if (!kernels) return fm_fail(reterr, FM_ERR_UNSUPPORTED, "the CPU computes in f32 or f64");
    const fm_kernels *island = kernels->wide ? kernels->wide : kernels;
    if (model->structure.n_iteration == 0 || island->ipa) return FM_OK;
    return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                   "the structure module does not run on %s yet; [model] n_structure_iteration = 0 "
                   "leaves it out",
                   island->name);
}

fm_model_config fm_cycles_pad(const fm_model_config *model, const fm_groups *groups,
                              const fm_kernels *kernels) {
    fm_model_config config = *model;
    config.groups = groups;
    config.axis_multiple = kernels ? kernels->axis_multiple : 1;
    return fm_split_pad(&config);
}

/* -- the state */

/* Elements that a rank sums at a time: at most 64 MiB in f32. */
static int64_t scratch_elements(const fm_recording *r) {
    enum { PIECE = 1 << 24 };
    const int64_t n = r->params.n_element + FM_COMM_SUM_ALIGN;
    return !r->options.groups ? 0 : n < PIECE ? n : PIECE;
}

void fm_cycles_declare(fm_cycles *c, int32_t n_draw) {
    c->recording->options.scratch_elements = scratch_elements(c->recording);
    const fm_model_config *model = c->model;
    const fm_kernels *kernels = c->recording->options.kernels;
    fm_state *s = &c->recording->state;
    const int64_t msa[] = {model->n_seq, model->n_res}, one[] = {1}, terms[] = {FM_LOSS_TERMS};
    const int64_t n_res[] = {model->n_res}, points[] = {model->n_res, 3};
    fm_model_declare_inputs(s, model, kernels, &c->inputs);
    if (n_draw > 1) fm_model_declare_draws(s, n_draw, &c->inputs);
    c->true_msa = c->bert_mask = c->pseudo_beta = c->pseudo_beta_mask = -1;
    if (c->weight) {
        c->true_msa = fm_state_add(s, "true_msa", FM_ELEMENT_I32, 2, msa);
        c->bert_mask = fm_state_add(s, "bert_mask", kernels->act, 2, msa);
        c->pseudo_beta = fm_state_add(s, "pseudo_beta", FM_ELEMENT_F32, 2, points);
        c->pseudo_beta_mask = fm_state_add(s, "pseudo_beta_mask", FM_ELEMENT_F32, 1, n_res);
        if (model->structure.n_iteration > 0) {
            fm_structure_declare_truth(s, model->n_res, &c->truth);
        }
    }
    c->factors = fm_state_add(s, "loss factors", FM_ELEMENT_F64, 1, terms);
    c->seed_gradient = fm_state_add(s, "gradient of the loss", kernels->acc, 1, one);
    fm_recording_declare_clock(c->recording);
    c->total = c->atoms = FM_TENSOR_NONE;
    for (int i = 0; i < FM_LOSS_TERMS; i++)
        c->term[i] = FM_TENSOR_NONE;
}

fm_status fm_cycles_take_state(fm_cycles *c, fm_error *reterr) {
    fm_state *state = &c->recording->state;
    fm_status status = fm_state_allocate(state, c->recording->options.kernels, reterr);
    if (!status && c->model->structure.n_iteration > 0) {
        fm_structure_upload_tables(state, &c->inputs.tables);
    }
    return status;
}

/* -- the losses */

fm_loss_inputs fm_cycles_record_losses(fm_cycles *c, fm_tape *tape, const fm_model_outputs *out) {
    fm_loss_inputs loss = fm_loss_inputs_of(c->model, &c->weights, out);
    loss.true_msa = fm_tape_state(tape, c->true_msa, false);
    loss.bert_mask = fm_tape_state(tape, c->bert_mask, false);
    loss.pseudo_beta = fm_tape_state(tape, c->pseudo_beta, false);
    loss.pseudo_beta_mask = fm_tape_state(tape, c->pseudo_beta_mask, false);
    c->atoms = FM_TENSOR_NONE;
    if (loss.has_structure) {
        fm_structure_add_truth(tape, &c->truth, &c->inputs, &loss);
        c->atoms = loss.atoms;
        fm_tape_keep(tape, c->atoms);
    }
    c->total = fm_loss_record(tape, &loss, fm_tape_state(tape, c->factors, false), c->term);
    fm_tape_keep(tape, c->total);
    for (int i = 0; i < FM_LOSS_TERMS; i++)
        if (c->term[i] != FM_TENSOR_NONE) fm_tape_keep(tape, c->term[i]);
    return loss;
}

void fm_cycles_put_factors(const fm_cycles *c, const fm_features *f, double *factors) {
    fm_loss_put_factors(c->term, c->weight, sqrt((double)f->n_res), f->resolution, factors);
}

void fm_cycles_put_terms(const fm_cycles *c, const fm_features *f, const double *values,
                         fm_sample_result *result) {
    double factor[FM_LOSS_TERMS]; /* of the terms that the model has, one after the other */
    fm_cycles_put_factors(c, f, factor);
    for (int i = 0, at = 0; i < FM_LOSS_TERMS; i++) {
        if (c->term[i] == FM_TENSOR_NONE) continue;
        result->term[i] = fm_loss_counts(i, f->resolution) ? values[at] : 0;
        result->part[i] = factor[at] * values[at];
        at++;
    }
}

/* -- packets */

int64_t fm_cycles_ring_bytes(const fm_cycles *c) {
    return fm_ring_bytes(c->recording->options.kernels, c->n_slot, fm_upload_most_bytes(c));
}

int64_t fm_cycles_locked_bytes(const fm_cycles *c) {
    return c->recording->options.kernels->device->is_asynchronous ? fm_cycles_ring_bytes(c) : 0;
}

fm_status fm_cycles_open(fm_cycles *c, fm_error *reterr) {
    /* The host makes only small tensors in it, and pages that are never touched take no memory. */
    c->host = calloc(1, (size_t)c->recording->state.bytes);
    if (!c->host) return fm_fail(reterr, FM_ERR_NOMEM, "the host's copy of a batch was refused");
    return fm_ring_create(&c->ring, c->recording->options.kernels, c->n_slot,
                          fm_upload_most_bytes(c), reterr);
}

void fm_cycles_close(fm_cycles *c) {
    fm_ring_destroy(&c->ring);
    free(c->host);
}

void fm_cycles_take_packet(const fm_cycles *c, fm_stream *stream) {
    const fm_recording *r = c->recording;
    const fm_take take = {.ring = c->ring.memory,
                          .slot_bytes = c->ring.slot_bytes,
                          .n_slot = c->ring.n_slot,
                          .n_taken = c->ring.n_taken,
                          .state = r->state.memory,
                          .clock = fm_state_data(&r->state, r->clock),
                          .step = r->optimizer.state};
    r->options.kernels->take_packet(stream, &take);
}

/* Sends the packet of a cycle. The caller runs what takes it. */
static void send(fm_cycles *c, const fm_cycles_sample *sample, uint32_t cycle, bool holds) {
    fm_packet *packet = fm_ring_begin(&c->ring);
    packet->lr = sample->rate;
    packet->step = sample->step + 1;
    packet->pending = sample->pending;
    packet->holds = holds;
    fm_upload_pack(c, sample->features, cycle, sample->step, packet);
    fm_ring_send(&c->ring, c->recording->stream);
}

void fm_cycles_run(fm_cycles *c, const fm_cycles_sample *sample, uint32_t cycle, fm_pass *pass) {
    send(c, sample, cycle, sample->holds);
    fm_pass_run(pass, c->recording->stream);
    fm_ring_taken(&c->ring, c->recording->stream);
}

fm_status fm_cycles_name_nonfinite(fm_cycles *c, const fm_cycles_sample *sample, uint32_t n_cycle,
                                   uint32_t period, fm_tape *before, fm_tape *last,
                                   fm_error *reterr) {
    fm_recording *r = c->recording;
    uint32_t *flag = fm_state_data(&r->state, r->flag);
    char what[256] = "the norm of the gradient";
    uint32_t cycle = 0;
    bool found = false;
    for (uint32_t i = 0; i < n_cycle; i++) { /* to the end, since other ranks wait for this one */
        fm_tape *tape = (i + 1) % period == 0 ? last : before;
        char here[sizeof what] = "";
        send(c, sample, i, true);
        fm_cycles_take_packet(c, r->stream);
        bool is_here = fm_tape_name_nonfinite(tape, r->stream, flag, here, sizeof here);
        cycle = found ? cycle : i;
        if (is_here && !found) memcpy(what, here, sizeof what);
        found |= is_here;
        fm_ring_taken(&c->ring, r->stream);
    }
    return fm_fail(reterr, FM_ERR_DATA, "step %llu, sample %u, cycle %u: %s is not finite",
                   (unsigned long long)sample->step, sample->features->slot, cycle, what);
}
