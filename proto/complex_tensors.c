/* complex_tensors.c: the tensors of a decoded sample as arrays of the compact form; see
 * complex_sample.h. */
#include "proto/complex_sample.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static void name_array(const fm_tensor_view *view, fm_npy *ret_array) {
    *ret_array = (fm_npy){.name = fm_schema_find(view->id)->name,
                          .item_bytes = fm_dtype_bytes(view->dtype),
                          .rank = view->rank,
                          .count = 1,
                          .data = view->data};
    snprintf(ret_array->dtype, sizeof ret_array->dtype, "%s", fm_dtype_numpy(view->dtype));
    for (uint32_t axis = 0; axis < view->rank; axis++)
        ret_array->count *= ret_array->shape[axis] = view->shape[axis];
}

/* Joins the rows of the cycles, one byte for each token. */
static fm_status join_cycles(const fm_sample *sample, fm_tensor_id id, uint32_t n_cycle,
                             fm_arena *arena, fm_npy *ret_array, uint32_t *ret_first_row,
                             fm_error *reterr) {
    uint64_t n_row = 0;
    for (uint32_t c = 0; c < n_cycle; c++) {
        const fm_tensor_view *view = fm_sample_find(sample, id, c);
        if (!view) {
            return fm_fail(reterr, FM_ERR_DATA, "%s: cycle %u of %u has no rows",
                           fm_schema_find(id)->name, c, n_cycle);
        }
        ret_first_row[c] = (uint32_t)n_row;
        n_row += view->shape[0];
    }
    ret_first_row[n_cycle] = (uint32_t)n_row;
    name_array(fm_sample_find(sample, id, 0), ret_array);
    if (n_cycle == 1) return FM_OK;
    uint8_t *data = fm_arena_alloc_array(arena, n_row, sample->n_res);
    if (!data) return fm_arena_full(arena, reterr);
    for (uint32_t c = 0; c < n_cycle; c++) {
        const fm_tensor_view *view = fm_sample_find(sample, id, c);
        memcpy(data + (size_t)ret_first_row[c] * sample->n_res, view->data, view->bytes);
    }
    ret_array->shape[0] = n_row;
    ret_array->count = n_row * sample->n_res;
    ret_array->data = data;
    return FM_OK;
}

fm_status fm_complex_sample_list(const fm_sample *sample, uint32_t n_cycle, fm_arena *arena,
                                 fm_npz *ret_compact, uint32_t *ret_first_row, fm_error *reterr) {
    assert(n_cycle >= 1 && n_cycle <= sample->n_cycle);
    if (sample->n_tensor == 0 || fm_schema_kind(sample->tensor[0].id) != FM_SAMPLE_OF_COMPLEX) {
        return fm_fail(reterr, FM_ERR_DATA, "the sample of %s is not one of a complex",
                       sample->name);
    }
    fm_npy *arrays = fm_arena_alloc_array(arena, sample->n_tensor, sizeof *arrays);
    if (!arrays) return fm_arena_full(arena, reterr);
    size_t n = 0;
    while (n < sample->n_tensor && sample->tensor[n].cycle == FM_SHARED) {
        name_array(&sample->tensor[n], &arrays[n]);
        n++;
    }
    static const fm_tensor_id of_rows[] = {FM_T_COMPLEX_MSA, FM_T_COMPLEX_DELETION};
    for (size_t k = 0; k < sizeof of_rows / sizeof of_rows[0]; k++) {
        fm_status status =
            join_cycles(sample, of_rows[k], n_cycle, arena, &arrays[n++], ret_first_row, reterr);
        if (status) return status;
    }
    *ret_compact = (fm_npz){n, arrays};
    return FM_OK;
}
