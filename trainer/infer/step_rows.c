/* step_rows.c: see step_rows.h. */
#include "trainer/infer/step_rows.h"

#include <assert.h>

void fm_af3_declare_step_rows(fm_state *state, const fm_af3_rollout *r, int32_t clock,
                              int64_t n_step, fm_af3_step_rows *ret_rows) {
    const int32_t now[FM_AF3_STEP_ROWS] = {r->spread, r->keep,     r->minus_move, r->in,
                                           r->skip,   r->out,      r->log,        clock,
                                           r->offset, r->rotation, r->noise};
    *ret_rows = (fm_af3_step_rows){.n = 0};
    for (int i = 0; i < FM_AF3_STEP_ROWS; i++) {
        if (now[i] < 0) continue;
        const fm_tensor *of = &state->tensor[now[i]];
        const int64_t shape[] = {n_step, fm_tensor_local_count(of)};
        ret_rows->row[ret_rows->n++] = (fm_af3_step_row){
            fm_state_add(state, "steps of the rollout", of->element, 2, shape), now[i]};
    }
}

void fm_af3_mirror_step_rows(const fm_af3_step_rows *rows, fm_mirror *mirror) {
    for (int i = 0; i < rows->n; i++)
        fm_mirror_add(mirror, &rows->row[i].all, 1);
}

int32_t fm_af3_step_rows_of(const fm_af3_step_rows *rows, int32_t now) {
    int i = 0;
    while (i < rows->n && rows->row[i].now != now)
        i++;
    assert(i < rows->n);
    return rows->row[i].all;
}

void fm_af3_step_put(void *context, int32_t tensor, int64_t at, double value) {
    const fm_af3_step_writer *w = context;
    const int64_t length = fm_tensor_local_count(&w->mirror->state->tensor[tensor]);
    assert(at < length);
    fm_mirror_put(w->mirror, fm_af3_step_rows_of(w->rows, tensor), w->k * length + at, value);
}

void fm_af3_queue_step_rows(const fm_af3_step_rows *rows, const fm_state *state, int64_t k,
                            fm_stream *stream) {
    const fm_kernels *kernels = state->kernels;
    const int64_t element_bytes = (int64_t)fm_element_bytes(kernels->act);
    for (int i = 0; i < rows->n; i++) {
        const int64_t bytes = fm_tensor_local_bytes(&state->tensor[rows->row[i].now]);
        const char *all = fm_state_data(state, rows->row[i].all);
        kernels->copy(stream, bytes / element_bytes, all + k * bytes,
                      fm_state_data(state, rows->row[i].now));
    }
}
