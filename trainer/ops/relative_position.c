/* relative_position.c: see relative_position.h. */
#include "trainer/ops/relative_position.h"

#include "trainer/ops/call.h"

#include <assert.h>

/* Where the columns of each kind begin, and their number. */
static const int64_t FIRST[FM_RELATIVE_KINDS] = {0, 66, 132, 133};
static const int64_t COUNT[FM_RELATIVE_KINDS] = {66, 66, 1, 6};

enum { NO_CLASS = 255, REACH = 32, COPY_REACH = 2 };

static uint8_t clipped(int64_t difference, int64_t reach) {
    int64_t at = difference + reach;
    return (uint8_t)(at < 0 ? 0 : at > 2 * reach ? 2 * reach : at);
}

void fm_relative_position_classes(int64_t n, const int64_t *asym_id, const int64_t *residue_index,
                                  const int64_t *entity_id, const int64_t *sym_id,
                                  const int64_t *token_index, uint8_t *ids) {
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            bool chain = asym_id[i] == asym_id[j], entity = entity_id[i] == entity_id[j];
            bool residue = chain && residue_index[i] == residue_index[j];
            uint8_t *at = ids + i * n + j;
            at[0] = chain ? clipped(residue_index[i] - residue_index[j], REACH) : 2 * REACH + 1;
            at[n * n] = residue ? clipped(token_index[i] - token_index[j], REACH) : 2 * REACH + 1;
            at[2 * n * n] = entity ? 0 : NO_CLASS;
            at[3 * n * n] =
                entity ? clipped(sym_id[i] - sym_id[j], COPY_REACH) : 2 * COPY_REACH + 1;
        }
    }
}

typedef struct attributes {
    int64_t all, first, pairs, c; /* this rank has `pairs` of all pairs, from number `first` on */
} attributes;

static fm_lookup lookup_of(int64_t c, int kind, const void *w, fm_element act) {
    return (fm_lookup){.n_class = COUNT[kind],
                       .c = c,
                       .class_stride = 1,
                       .channel_stride = FM_RELATIVE_FEATURES,
                       .w = fm_run_at(w, FIRST[kind], act)};
}

void fm_call_relative_position(fm_run *run, const fm_relative_rows *rows, void *y) {
    for (int kind = 0; kind < FM_RELATIVE_KINDS; kind++) {
        fm_lookup lookup = lookup_of(rows->c, kind, rows->w, run->kernels->act);
        fm_call_lookup(run, &lookup, rows->pairs,
                       fm_run_at(rows->ids, kind * rows->all + rows->first, FM_ELEMENT_U8),
                       (fm_out){y, kind ? FM_ADD : FM_WRITE});
    }
}

static const uint8_t *ids_of(const fm_run *run, const fm_node *node, int kind) {
    const attributes *at = node->attributes;
    return fm_run_at(fm_run_input(run, node, 0), kind * at->all + at->first, FM_ELEMENT_U8);
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    if (!fm_run_wants_output(run)) return;
    const fm_relative_rows rows = {.all = at->all,
                                   .first = at->first,
                                   .pairs = at->pairs,
                                   .c = at->c,
                                   .ids = fm_run_input(run, node, 0),
                                   .w = fm_run_param(run, node, 0)};
    fm_call_relative_position(run, &rows, fm_run_output(run, node, 0));
}

/* The kinds write disjoint columns of dw. */
static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_out dw = fm_run_param_gradient(run, node, 0);
    for (int kind = 0; kind < FM_RELATIVE_KINDS; kind++) {
        fm_lookup lookup = lookup_of(at->c, kind, fm_run_param(run, node, 0), run->kernels->act);
        fm_call_lookup_grad(run, &lookup, at->pairs, ids_of(run, node, kind),
                            fm_run_output_gradient(run, node, 0),
                            fm_out_at(dw, FIRST[kind], run->kernels->acc));
    }
}

static const fm_op RELATIVE_POSITION = {"relative position", forward, backward};

fm_tensor_ref fm_op_relative_position(fm_tape *tape, const char *name, fm_tensor_ref ids,
                                      fm_param_ref w, int64_t c, fm_part part) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &RELATIVE_POSITION, name, sizeof(attributes), &memory);
    const fm_tensor *x = fm_tape_tensor(tape, ids);
    int64_t n = x->local[1];
    assert(x->rank == 3 && x->local[0] == FM_RELATIVE_KINDS && x->local[2] == n);
    fm_tensor out = fm_tensor_rows_of(tape->kernels->act, n, c, part);
    *(attributes *)memory = (attributes){
        .all = n * n, .first = fm_tensor_first(&out, 0) * n, .pairs = out.local[0] * n, .c = c};
    fm_node_input(tape, node, ids, true);
    fm_node_param(tape, node, w);
    return fm_node_output_described(tape, node, &out);
}
