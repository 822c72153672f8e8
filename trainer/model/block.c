/* block.c: see block.h. Nothing here names a sublayer: all decisions follow from the fields of the
 * list.
 *
 * `leave` begins the change of a representation's split axis after a sublayer, when a later
 * sublayer needs the other axis; `arrive` ends it. Both do nothing on arrays that are not split.
 * The first part of the file derives facts from the list, the middle part records one sublayer, the
 * last part chooses the order. */
#include "trainer/model/block.h"

#include <assert.h>

typedef struct block {
    const fm_recorder *r;
    const fm_block_list *list;
    const void *weights, *next_weights;
    bool is_last;
    uint32_t first_draw;
    bool here[FM_N_REPRESENTATION]; /* this rank runs that branch */
    fm_normed value[FM_N_REPRESENTATION];
    int axis[FM_N_REPRESENTATION]; /* along which the value is split, or will be on arrival */
    bool under_way[FM_N_REPRESENTATION];
    fm_axis_change change[FM_N_REPRESENTATION];
} block;

/* The split axes after the last block of a stack. */
static const int EXIT_AXIS[FM_N_REPRESENTATION] = {[FM_MSA] = 1, [FM_PAIR] = 0};

/* -- facts derived from the list */

/* The first sublayer from `from` on that touches the representation; n_sublayer when none does. */
static int find_touching(const fm_block_list *list, int from, fm_representation of) {
    int i = from;
    while (i < list->n_sublayer && list->sublayer[i]->axis[of] == FM_UNTOUCHED)
        i++;
    return i;
}

int fm_block_entry_axis(const fm_block_list *list, fm_representation of) {
    int first = find_touching(list, 0, of);
    return first < list->n_sublayer ? list->sublayer[first]->axis[of] : EXIT_AXIS[of];
}

static uint32_t draws_before(const fm_block_list *list, int end) {
    uint32_t n = 0;
    for (int i = 0; i < end; i++)
        n += fm_sublayer_draws(list->sublayer[i]);
    return n;
}

uint32_t fm_block_draws(const fm_block_list *list) {
    return draws_before(list, list->n_sublayer);
}

/* Returns the axis that the next sublayer after i needs. */
static int axis_after(const block *b, int i, fm_representation of) {
    int next = find_touching(b->list, i + 1, of);
    if (next < b->list->n_sublayer) return b->list->sublayer[next]->axis[of];
    return b->is_last ? EXIT_AXIS[of] : fm_block_entry_axis(b->list, of);
}

/* Returns the weights of the LayerNorm through which the result of sublayer i is read next, in this
 * block or the next one. On split arrays the reader normalises for itself what changes its axis
 * before. */
static fm_param_ref norm_after(const block *b, int i) {
    fm_representation of = b->list->sublayer[i]->updates;
    int axis = b->list->sublayer[i]->axis[of];
    if (fm_split_is_split(b->r->config) && axis_after(b, i, of) != axis) return FM_PARAM_NONE;
    int next = find_touching(b->list, i + 1, of);
    if (next < b->list->n_sublayer) {
        return fm_recorder_norm(b->list->sublayer[next], b->weights, of);
    }
    next = find_touching(b->list, 0, of);
    return b->next_weights ? fm_recorder_norm(b->list->sublayer[next], b->next_weights, of)
                           : FM_PARAM_NONE;
}

/* -- changes of the split axis */

static void arrive(block *b, fm_representation of) {
    if (b->under_way[of]) {
        b->value[of] = fm_not_normed(fm_split_change_finish(b->r->tape, &b->change[of]));
        b->under_way[of] = false;
    }
}

/* Call it after sublayer i, the last one that needs the present axis. */
static void leave(block *b, int i, fm_representation of) {
    int axis = axis_after(b, i, of);
    if (axis == b->axis[of] || !fm_split_is_split(b->r->config)) return;
    b->change[of] = fm_split_change_begin(b->r->tape, b->r->config, b->list->change_name[of][axis],
                                          b->value[of].x, axis);
    b->under_way[of] = true;
    b->axis[of] = axis;
}

/* -- sublayers */

/* A value that was normalised for this reader is consumed: later readers normalise for themselves.
 */
static fm_begun begin(block *b, int i) {
    const fm_sublayer *s = b->list->sublayer[i];
    fm_representation from = fm_sublayer_reads(s);
    fm_begun begun = fm_recorder_begin(b->r, s, b->weights, b->value[from]);
    if (from != s->updates) b->value[from].n = FM_TENSOR_NONE;
    return begun;
}

static void finish(block *b, int i, const fm_begun *begun) {
    const fm_sublayer *s = b->list->sublayer[i];
    fm_tape_seek_draw(b->r->tape, b->first_draw + draws_before(b->list, i));
    b->value[s->updates] =
        fm_recorder_finish(b->r, s, b->weights, begun, b->value[s->updates], norm_after(b, i));
}

static void record(block *b, int i) {
    const fm_sublayer *s = b->list->sublayer[i];
    arrive(b, s->updates);
    arrive(b, fm_sublayer_reads(s));
    fm_begun begun = begin(b, i);
    finish(b, i, &begun);
    leave(b, i, s->updates);
}

/* Records the outer product mean and, after it, the sum over both branches. The change of m is
 * hidden under the sublayers that follow where they update z, else under the second half of the
 * product. */
static void record_outer(block *b, int i) {
    bool ends = i + 1 == b->list->n_sublayer;
    bool hidden_later = !ends && b->list->sublayer[i + 1]->updates == FM_PAIR;
    if (b->here[FM_MSA]) {
        arrive(b, FM_MSA);
        fm_begun begun = begin(b, i);
        if (!hidden_later) leave(b, i, FM_MSA);
        arrive(b, FM_PAIR);
        finish(b, i, &begun);
        if (hidden_later) leave(b, i, FM_MSA);
    }
    arrive(b, FM_PAIR);
    if (ends) arrive(b, FM_MSA);
    b->value[FM_PAIR].x = fm_split_join(b->r->tape, b->r->config, "branches", b->value[FM_PAIR].x);
}

/* -- runs of sublayers between outer product means */

/* Returns the position of the next sublayer in [from, end) that updates the representation; end
 * when there is none. */
static int find_updating(const fm_block_list *list, int from, int end, fm_representation of) {
    int i = from;
    while (i < end && list->sublayer[i]->updates != of)
        i++;
    return i;
}

/* Records the sublayers of both representations alternately, beginning with the pairs. The first
 * MSA sublayer reads the pairs before they are updated. */
static void record_alternately(block *b, int from, int end) {
    int msa = find_updating(b->list, from, end, FM_MSA), first = msa;
    int pair = find_updating(b->list, from, end, FM_PAIR);
    arrive(b, fm_sublayer_reads(b->list->sublayer[first]));
    fm_begun begun = begin(b, first);
    while (msa < end || pair < end) {
        if (pair < end) {
            record(b, pair);
            pair = find_updating(b->list, pair + 1, end, FM_PAIR);
        }
        if (msa == first) {
            arrive(b, FM_MSA);
            finish(b, msa, &begun);
            leave(b, msa, FM_MSA);
        } else if (msa < end) {
            record(b, msa);
        }
        msa = find_updating(b->list, msa + 1, end, FM_MSA);
    }
}

static void record_run(block *b, int from, int end) {
    bool both = b->here[FM_MSA] && b->here[FM_PAIR] &&
                find_updating(b->list, from, end, FM_MSA) < end &&
                find_updating(b->list, from, end, FM_PAIR) < end;
    if (both && fm_split_is_split(b->r->config)) {
        record_alternately(b, from, end);
        return;
    }
    for (int i = from; i < end; i++) {
        fm_representation of = b->list->sublayer[i]->updates;
        if (b->here[of]) {
            record(b, i);
        } else {
            b->value[of] = fm_not_normed(FM_TENSOR_NONE); /* the rank of the other branch has it */
        }
    }
}

fm_block_values fm_block_record(const fm_recorder *r, const fm_block_list *list,
                                const void *weights, const void *next_weights, bool is_last,
                                fm_block_values in) {
    block b = {
        .r = r,
        .list = list,
        .weights = weights,
        .next_weights = next_weights,
        .is_last = is_last,
        .first_draw = r->tape->n_draw,
        .here = {[FM_MSA] = fm_split_has_msa(r->config), [FM_PAIR] = fm_split_has_pair(r->config)}};
    for (int of = 0; of < FM_N_REPRESENTATION; of++) {
        b.value[of] = in.value[of];
        b.axis[of] = fm_block_entry_axis(list, of);
    }
    for (int i = 0, end; i < list->n_sublayer; i = end) {
        end = i;
        while (end < list->n_sublayer && list->sublayer[end]->kind != FM_SUBLAYER_OUTER)
            end++;
        record_run(&b, i, end);
        if (end < list->n_sublayer) record_outer(&b, end++);
    }
    arrive(&b, FM_PAIR);
    arrive(&b, FM_MSA);
    fm_tape_seek_draw(r->tape, b.first_draw + fm_block_draws(list));
    return (fm_block_values){{b.value[FM_MSA], b.value[FM_PAIR]}};
}
