/* wire_stream.c: which samples a stream has: the arithmetic of OPEN and OPENED, see wire.h. Server
 * and client share it, so that a client can tell a server that ends early or sends too much. */
#include "proto/step_cycles.h"
#include "proto/wire.h"

/* The number of slots s < in_step with s % n_group == group. */
static uint64_t slots_below(uint64_t in_step, uint64_t group, uint64_t n_group) {
    return in_step > group ? (in_step - group + n_group - 1) / n_group : 0;
}

/* The number of indices below `index` that belong to the group. */
static uint64_t group_count(const fm_wire_open *params, uint64_t batch, uint64_t index) {
    uint64_t per_step = slots_below(batch, params->group, params->n_group);
    return index / batch * per_step + slots_below(index % batch, params->group, params->n_group);
}

/* The first index at or after `index` that belongs to the group. */
static uint64_t group_next(const fm_wire_open *params, uint64_t batch, uint64_t index) {
    uint64_t slot = index % batch, in_group = slot % params->n_group;
    uint64_t own = slot - in_group + params->group;
    if (in_group > params->group) own += params->n_group;
    return index - slot + (own < batch ? own : batch + params->group);
}

/* One past the last index of the steps; without an end it is beyond any index. */
static uint64_t end_of(const fm_wire_open *params, uint64_t batch) {
    return params->n_step ? (params->first_step + params->n_step) * batch : UINT64_MAX;
}

uint32_t fm_wire_open_per_step(const fm_wire_open *params, uint32_t global_batch) {
    return (uint32_t)slots_below(global_batch, params->group, params->n_group);
}

bool fm_wire_open_wants(const fm_wire_open *params, uint32_t global_batch, uint64_t index) {
    return index >= params->first_step * global_batch && index < end_of(params, global_batch) &&
           (uint32_t)(index % global_batch) % params->n_group == params->group &&
           !fm_token_has(&params->token, index);
}

uint64_t fm_wire_open_next(const fm_wire_open *params, uint32_t global_batch, uint64_t index) {
    const fm_token *token = &params->token;
    uint64_t first = params->first_step * global_batch;
    if (index < first) index = first;
    if (index < token->watermark) index = token->watermark;
    index = group_next(params, global_batch, index);
    while (fm_token_has(token, index))
        index = group_next(params, global_batch, index + 1);
    return index;
}

uint32_t fm_wire_open_window(const fm_wire_open *params, uint32_t global_batch) {
    /* The places of whole steps after a missing sample that the bitmap of a token can name. */
    const uint32_t n_step = FM_LIMIT_TOKEN_BYTES * 8 / global_batch - 1;
    uint32_t most = n_step * (global_batch / params->n_group), window = params->window;
    if (params->order == FM_WIRE_FREE) {
        most /= 2;
        window = FM_LIMIT_FREE_WINDOW;
    }
    return window < most ? window : most;
}

uint64_t fm_wire_open_place(const fm_wire_open *params, uint32_t global_batch, uint64_t index) {
    return group_count(params, global_batch, index);
}

uint32_t fm_wire_open_cycles(const fm_wire_open *params, uint32_t global_batch, uint32_t max_cycle,
                             uint64_t index) {
    uint64_t per_step = fm_wire_open_per_step(params, global_batch);
    uint64_t place = group_count(params, global_batch, index), reach = params->reach;
    uint64_t first = place > reach ? place - reach : 0;
    return fm_steps_most_cycles(params->seed, first / per_step, (place + reach) / per_step,
                                max_cycle);
}

/* The bits of the group in the token are checked one by one; below its watermark, all are
 * delivered. */
uint64_t fm_wire_open_count(const fm_wire_open *params, uint32_t global_batch) {
    if (params->n_step == 0) return UINT64_MAX;
    const fm_token *token = &params->token;
    uint64_t start = params->first_step * global_batch, end = end_of(params, global_batch);
    if (start < token->watermark) start = token->watermark;
    if (start >= end) return 0;
    uint64_t n = group_count(params, global_batch, end) - group_count(params, global_batch, start);
    uint64_t last = token->watermark + (uint64_t)token->bitmap_bytes * 8;
    if (last > end) last = end;
    for (uint64_t index = group_next(params, global_batch, start); index < last;
         index = group_next(params, global_batch, index + 1)) {
        if (fm_token_has(token, index)) n--;
    }
    return n;
}

static fm_status fail_field(const char *field, uint64_t found, uint64_t expected,
                            fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_PROTOCOL,
                   "the server opened a stream with %s %llu, expected %llu", field,
                   (unsigned long long)found, (unsigned long long)expected);
}

fm_status fm_wire_opened_check(const fm_wire_open *params, const fm_wire_opened *opened,
                               fm_error *reterr) {
    const struct {
        const char *field;
        uint32_t found, asked;
    } changes[] = {
        {"a global batch of", opened->global_batch, params->global_batch},
        {"a crop size of", opened->crop_size, params->crop_size},
        {"MSA clusters", opened->max_msa_clusters, params->max_msa_clusters},
        {"extra MSA rows", opened->max_extra_msa, params->max_extra_msa},
        {"cycles", opened->max_cycle, params->max_cycle},
        {"the template date", opened->max_template_date, params->max_template_date},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        if (changes[i].asked && changes[i].found != changes[i].asked) {
            return fail_field(changes[i].field, changes[i].found, changes[i].asked, reterr);
        }
    }
    if (opened->global_batch < params->n_group || opened->global_batch > FM_LIMIT_GLOBAL_BATCH) {
        return fm_fail(reterr, FM_ERR_PROTOCOL,
                       "the server opened a stream with a global batch of %u, expected %u to %u",
                       opened->global_batch, params->n_group, FM_LIMIT_GLOBAL_BATCH);
    }
    uint32_t per_step = fm_wire_open_per_step(params, opened->global_batch);
    if (opened->samples_per_step != per_step) {
        return fail_field("samples per step", opened->samples_per_step, per_step, reterr);
    }
    uint64_t n_sample = fm_wire_open_count(params, opened->global_batch);
    if (opened->n_sample == n_sample) return FM_OK;
    return fail_field("samples", opened->n_sample, n_sample, reterr);
}
