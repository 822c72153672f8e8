/* block.c: see block.h. Nothing here names a sublayer: all decisions follow from the fields of the
 * list.
 *
 * `leave` begins the change of a representation's split axis after a sublayer, when a later
 * sublayer needs the other axis; `arrive` ends it. Both do nothing on arrays that are not split.
 * The first part of the file derives facts from the list, the middle part records one sublayer, the
 * last part chooses the order. */
#include "trainer/model/block.h"

typedef struct block {
    const fm_recorder *r;
    const fm_block_list *list;
    const void *weights, *next_weights;
    bool is_last;
    uint32_t first_draw;
    bool here[FM_N_REPRESENTATION]; /* this rank runs that branch */
    bool alternates;                /* between the sublayers of both representations */
    int axis[FM_N_REPRESENTATION];  /* along which the value is split, or will be on arrival */
    fm_block_values now;
} block;

/* The split axes after the last block of a stack, of representations that are split. */
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
    int entry = fm_block_entry_axis(b->list, of);
    return b->is_last && entry != FM_WHOLE ? EXIT_AXIS[of] : entry;
}

/* A sublayer of this block or of the next one, and the weights of its block; NULL where those are
 * not known. */
typedef struct next_reader {
    const fm_sublayer *sublayer;
    const void *weights;
    int at; /* its number, counted on in the next block */
} next_reader;

/* Returns the sublayer that touches the representation next after sublayer i. */
static next_reader reader_after(const block *b, int i, fm_representation of) {
    int n = b->list->n_sublayer, next = i < n ? find_touching(b->list, i + 1, of) : n;
    if (next < n) return (next_reader){b->list->sublayer[next], b->weights, next};
    int wrapped = find_touching(b->list, i < n ? 0 : i - n + 1, of);
    if (wrapped == n || !b->next_weights) return (next_reader){0};
    return (next_reader){b->list->sublayer[wrapped], b->next_weights, n + wrapped};
}

/* Returns the weights of the LayerNorm through which the result of sublayer i is read next. On
 * split arrays, a reader after a change of axis normalises its input itself; only its bias is
 * computed before the change. */
static fm_param_ref norm_after(const block *b, int i) {
    fm_representation of = b->list->sublayer[i]->updates;
    int axis = b->list->sublayer[i]->axis[of];
    next_reader next = reader_after(b, i, of);
    bool changes = fm_split_is_split(b->r->config) && axis_after(b, i, of) != axis;
    if (!next.sublayer || (changes && !(of == FM_PAIR && fm_recorder_has_bias(next.sublayer)))) {
        return FM_PARAM_NONE;
    }
    return fm_recorder_norm(next.sublayer, next.weights, of);
}

/* Returns the weights of the norm of the reader after that, if the next one reads the result of
 * sublayer i and does not update it. */
static fm_param_ref later_norm_after(const block *b, int i) {
    fm_representation of = b->list->sublayer[i]->updates;
    next_reader next = reader_after(b, i, of);
    bool is_whole = b->here[FM_MSA] && b->here[FM_PAIR] && !fm_split_is_split(b->r->config);
    if (!is_whole || !next.sublayer || next.sublayer->updates == of) return FM_PARAM_NONE;
    next_reader later = reader_after(b, next.at, of);
    return later.sublayer ? fm_recorder_norm(later.sublayer, later.weights, of) : FM_PARAM_NONE;
}

/* -- changes of the split axis */

static void arrive(block *b, fm_representation of) {
    if (b->now.under_way[of]) {
        b->now.value[of] = fm_not_normed(fm_split_change_finish(b->r->tape, &b->now.change[of]));
        b->now.under_way[of] = false;
    }
}

/* Finishes the change of the representation that sublayer s reads first. A bias that was computed
 * before needs no pairs. */
static void arrive_for(block *b, const fm_sublayer *s) {
    if (b->now.bias_of != s) arrive(b, fm_sublayer_reads(s));
}

/* Returns whether work of another sublayer is recorded between the two halves of a change that
 * begins after sublayer i. */
static bool is_patient(const block *b, int i, fm_representation of) {
    if (b->alternates) return true;
    bool wraps = i + 1 == b->list->n_sublayer;
    const fm_sublayer *next = b->list->sublayer[wraps ? 0 : i + 1];
    if (wraps && !b->next_weights) return false;
    return next->axis[of] == FM_UNTOUCHED || (next == b->now.bias_of && next->updates != of);
}

/* Call it after sublayer i, the last one that needs the present axis. */
static void leave(block *b, int i, fm_representation of) {
    int axis = axis_after(b, i, of);
    if (axis == b->axis[of] || !fm_split_is_split(b->r->config)) return;
    next_reader next = reader_after(b, i, of);
    const fm_sublayer *reader = next.sublayer;
    const void *weights = next.weights;
    bool has_bias = of == FM_PAIR && reader && fm_recorder_has_bias(reader);
    if (has_bias) b->now.bias_of = reader;
    bool patient = is_patient(b, i, of);
    /* If the reader needs both at once, they are one exchange. Else the bias is computed while the
     * change is under way; in backward, the change's exchange begins first, too. */
    bool joins = has_bias && !patient && reader->updates == of;
    if (joins) b->now.bias = fm_recorder_begin_bias(b->r, reader, weights, b->now.value[of]);
    b->now.change[of] =
        fm_split_change_begin(b->r->tape, b->r->config, b->list->change_name[of][axis],
                              b->now.value[of].x, axis, patient);
    b->now.under_way[of] = true;
    b->axis[of] = axis;
    if (joins) {
        fm_exchange_join(b->now.bias.gather.pending, b->now.change[of].exchange.pending);
    } else if (has_bias) {
        b->now.bias = fm_recorder_begin_bias(b->r, reader, weights, b->now.value[of]);
    }
}

/* -- sublayers */

/* A value that was normalised for this reader is consumed: the next reader takes its own, or
 * normalises for itself. */
static fm_begun begin(block *b, int i) {
    const fm_sublayer *s = b->list->sublayer[i];
    if (b->now.bias_of == s) {
        b->now.bias_of = NULL;
        return b->now.bias;
    }
    fm_representation from = fm_sublayer_reads(s);
    fm_begun begun = fm_recorder_begin(b->r, s, b->weights, b->now.value[from]);
    if (from != s->updates) b->now.value[from] = fm_normed_read(b->now.value[from]);
    return begun;
}

static void finish(block *b, int i, const fm_begun *begun) {
    const fm_sublayer *s = b->list->sublayer[i];
    fm_tape_seek_draw(b->r->tape, b->first_draw + draws_before(b->list, i));
    b->now.value[s->updates] =
        fm_recorder_finish(b->r, s, b->weights, begun, b->now.value[s->updates], norm_after(b, i),
                           later_norm_after(b, i));
}

static void record(block *b, int i) {
    const fm_sublayer *s = b->list->sublayer[i];
    arrive(b, s->updates);
    arrive_for(b, s);
    fm_begun begun = begin(b, i);
    finish(b, i, &begun);
    leave(b, i, s->updates);
}

/* Records the outer product mean and, after it, the sum over both branches. The change of m begins
 * under the second half of the product. */
static void record_outer(block *b, int i) {
    bool ends = i + 1 == b->list->n_sublayer;
    if (b->here[FM_MSA]) {
        arrive(b, FM_MSA);
        fm_begun begun = begin(b, i);
        leave(b, i, FM_MSA);
        arrive(b, FM_PAIR);
        finish(b, i, &begun);
    }
    arrive(b, FM_PAIR);
    if (ends) arrive(b, FM_MSA);
    b->now.value[FM_PAIR].x =
        fm_split_join(b->r->tape, b->r->config, "branches", b->now.value[FM_PAIR].x);
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
    arrive_for(b, b->list->sublayer[first]);
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
    int msa = find_updating(b->list, from, end, FM_MSA);
    int pair = find_updating(b->list, from, end, FM_PAIR);
    bool both = b->here[FM_MSA] && b->here[FM_PAIR] && msa < end && pair < end;
    b->alternates = both && msa < pair && fm_split_is_split(b->r->config);
    if (b->alternates) {
        record_alternately(b, from, end);
        b->alternates = false;
        return;
    }
    for (int i = from; i < end; i++) {
        fm_representation of = b->list->sublayer[i]->updates;
        if (b->here[of]) {
            record(b, i);
        } else {
            /* The rank of the other branch has it. */
            b->now.value[of] = fm_not_normed(FM_TENSOR_NONE);
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
        .now = in,
        .here = {[FM_MSA] = fm_split_has_msa(r->config), [FM_PAIR] = fm_split_has_pair(r->config)}};
    for (int of = 0; of < FM_N_REPRESENTATION; of++)
        b.axis[of] = fm_block_entry_axis(list, of);
    for (int i = 0, end; i < list->n_sublayer; i = end) {
        end = i;
        while (end < list->n_sublayer && list->sublayer[end]->kind != FM_SUBLAYER_OUTER)
            end++;
        record_run(&b, i, end);
        if (end < list->n_sublayer) record_outer(&b, end++);
    }
    if (!next_weights) {
        arrive(&b, FM_PAIR);
        arrive(&b, FM_MSA);
    }
    fm_tape_seek_draw(r->tape, b.first_draw + fm_block_draws(list));
    return b.now;
}
