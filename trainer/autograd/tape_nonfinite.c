/* tape_nonfinite.c: finds the first tensor of a run with a value that is not finite; see tape.h.
 *
 * The schedule runs again step by step. After each forward step the outputs are checked, after each
 * backward step the gradients that it writes. The first hit is described and the remaining steps
 * run without checks. This code runs only after a failure, so it may be slow and allocate. */
#include "trainer/autograd/tape_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct search {
    fm_tape *tape;
    fm_stream *stream;
    uint32_t *flag;
    char *out;
    size_t out_bytes;
} search;

/* Position of the first of `count` host elements that is not finite; -1 if all are finite. */
static int64_t find_in(const void *data, fm_element element, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        bool finite = true;
        switch (element) {
        case FM_ELEMENT_F64: finite = isfinite(((const double *)data)[i]); break;
        case FM_ELEMENT_F32: finite = isfinite(((const float *)data)[i]); break;
        case FM_ELEMENT_BF16: finite = (((const uint16_t *)data)[i] & 0x7f80) != 0x7f80; break;
        default: break;
        }
        if (!finite) return i;
    }
    return -1;
}

/* The same for device memory. Elements of an act type are checked on the device first; only a hit
 * is copied to the host to find its position. */
static int64_t find(const search *s, const void *data, fm_element element, int64_t count) {
    const fm_kernels *kernels = s->tape->kernels;
    if (kernels->wide && element == kernels->wide->act) kernels = kernels->wide;
    size_t bytes = (size_t)count * fm_element_bytes(element);
    if (element == kernels->act) {
        uint32_t found = 0;
        kernels->upload(s->stream, s->flag, &found, sizeof found);
        kernels->find_nonfinite(s->stream, count, data, s->flag);
        kernels->download(s->stream, &found, s->flag, sizeof found);
        kernels->synchronize(s->stream);
        if (!found) return -1;
    }
    void *copy = malloc(bytes);
    if (!copy) return element == kernels->act ? 0 : -1; /* report it without its position */
    kernels->download(s->stream, copy, data, bytes);
    kernels->synchronize(s->stream);
    int64_t at = find_in(copy, element, count);
    free(copy);
    return at;
}

/* Describes a bad output: "element 7 of output 0 [12, 11, 32] of msa transition (op transition,
 * node 12)". */
static bool look_at_outputs(const search *s, const fm_node *node, int32_t step) {
    for (int i = 0; i < node->n_output; i++) {
        const fm_tensor *tensor = &s->tape->tensor[node->output[i]];
        int64_t at = find(s, fm_tape_place(s->tape, node->output[i], step), tensor->element,
                          fm_tensor_local_count(tensor));
        if (at >= 0) {
            char shape[128] = "";
            int n = 0;
            for (int d = 0; d < tensor->rank; d++) {
                n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%lld", d ? ", " : "",
                              (long long)tensor->local[d]);
            }
            snprintf(s->out, s->out_bytes, "element %lld of output %d [%s] of %s (op %s, node %d)",
                     (long long)at, i, shape, node->name, node->op->name,
                     (int)(node - s->tape->node));
            return true;
        }
    }
    return false;
}

/* Name of the parameter that holds an element of the flat buffers. */
static const char *parameter_at(const fm_params *params, int64_t element) {
    for (int32_t p = 0; p < params->n_param; p++) {
        const fm_param *row = &params->param[p];
        if (element >= row->offset && element < row->offset + fm_param_count(row)) return row->name;
    }
    return "a gap between parameters";
}

static bool look_at_gradients(const search *s, const fm_node *node, int32_t step) {
    const fm_tape *tape = s->tape;
    const fm_params *params = tape->params;
    char what[192] = "";
    for (int i = 0; i < node->n_input && !what[0]; i++) {
        if (node->input[i] == FM_TENSOR_NONE || !(node->input_written >> i & 1)) continue;
        fm_tensor_ref gradient = tape->tensor[node->input[i]].gradient;
        const fm_tensor *tensor = &tape->tensor[gradient];
        if (find(s, fm_tape_place(tape, gradient, step), tensor->element,
                 fm_tensor_local_count(tensor)) >= 0) {
            snprintf(what, sizeof what, "input %d", i);
        }
    }
    for (int j = 0; j < node->n_param && !what[0]; j++) {
        if (node->param[j] == FM_PARAM_NONE) continue;
        const fm_param_block *block = &params->block[node->param[j]];
        int64_t at = find(s, fm_params_at(params, params->gradient, block->offset), params->element,
                          block->count);
        if (at >= 0) snprintf(what, sizeof what, "%s", parameter_at(params, block->offset + at));
    }
    if (what[0]) {
        snprintf(s->out, s->out_bytes, "the gradient of %s in %s (op %s, node %d)", what,
                 node->name, node->op->name, (int)(node - tape->node));
    }
    return what[0] != '\0';
}

/* Checks the gaps between parameters in the flat gradient buffer: no node writes them, but the
 * gradient norm reads them. */
static bool look_between_parameters(const search *s) {
    const fm_params *params = s->tape->params;
    int64_t at = find(s, params->gradient, params->element, params->n_element);
    if (at >= 0) {
        snprintf(s->out, s->out_bytes, "element %lld of the gradient's buffer, %s,", (long long)at,
                 parameter_at(params, at));
    }
    return at >= 0;
}

bool fm_tape_name_nonfinite(fm_tape *tape, fm_stream *stream, uint32_t *flag, char *out,
                            size_t out_bytes) {
    const search s = {tape, stream, flag, out, out_bytes};
    bool found = false, has_backward = false;
    for (int32_t at = 0; at < tape->n_step; at++) {
        const fm_step *step = &tape->step[at];
        const fm_node *node = &tape->node[step->node];
        if (tape->spoils) fm_tape_spoil(tape, at, stream);
        fm_tape_run_step(tape, at, stream, false);
        has_backward |= step->phase == FM_PHASE_BACKWARD;
        if (found) continue;
        if (step->phase == FM_PHASE_BACKWARD) {
            found = !node->begins_backward && look_at_gradients(&s, node, at);
        } else if (step->wants_output) {
            found = !node->begins_forward && look_at_outputs(&s, node, at);
        }
    }
    return found || (has_backward && look_between_parameters(&s));
}
