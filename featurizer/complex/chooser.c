/* chooser.c: see chooser.h. */
#include "featurizer/complex/chooser.h"

#include "featurizer/complex/records.h"
#include "featurizer/sample/sample_draw.h"
#include "proto/limits.h"

#include <assert.h>
#include <stdlib.h>

static_assert((int)FM_COMPLEX_ROW_KINDS == (int)FM_N_RECORD_KIND, "the table checks the kinds");

/* -- weights */

enum { WEIGHT_BITS = 28 }; /* the largest weight, 12 * 2^28, fits a uint32_t */

static bool is_drawn(const fm_complex_row *row) {
    return row->kind[0] != FM_RECORD_IONS && !(row->is_interface && row->kind[1] == FM_RECORD_IONS);
}

static int compare_u64(uint64_t a, uint64_t b) {
    return a < b ? -1 : a > b;
}

static int compare_members(const fm_complex_row *a, const fm_complex_row *b) {
    if (a->is_interface != b->is_interface) return a->is_interface ? 1 : -1;
    int order = compare_u64(a->item, b->item);
    if (!order) order = compare_u64(a->entity[0], b->entity[0]);
    return order ? order : compare_u64(a->entity[1], b->entity[1]);
}

static int by_member(const void *left, const void *right) {
    return compare_members(*(const fm_complex_row *const *)left,
                           *(const fm_complex_row *const *)right);
}

static bool is_same_cluster(const fm_complex_row *a, const fm_complex_row *b) {
    return a->is_interface == b->is_interface && a->cluster == b->cluster;
}

static int by_cluster(const void *left, const void *right) {
    const fm_complex_row *a = *(const fm_complex_row *const *)left;
    const fm_complex_row *b = *(const fm_complex_row *const *)right;
    if (a->is_interface != b->is_interface) return a->is_interface ? 1 : -1;
    int order = compare_u64(a->cluster, b->cluster);
    return order ? order : compare_members(a, b);
}

fm_status fm_complex_rows_weigh(const fm_complex_row *rows, uint32_t n, uint32_t *ret_weights,
                                fm_arena *arena, fm_error *reterr) {
    size_t mark = fm_arena_mark(arena);
    const fm_complex_row **sorted = fm_arena_alloc_array(arena, n, sizeof *sorted);
    uint32_t n_drawn = 0;
    if (!sorted) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < n; i++) {
        ret_weights[i] = 0;
        if (is_drawn(&rows[i])) sorted[n_drawn++] = &rows[i];
    }
    if (n_drawn > 0) qsort(sorted, n_drawn, sizeof *sorted, by_member);
    for (uint32_t first = 0, end; first < n_drawn; first = end) {
        end = first + 1;
        while (end < n_drawn && compare_members(sorted[first], sorted[end]) == 0)
            end++;
        for (uint32_t i = first; i < end; i++)
            ret_weights[sorted[i] - rows] = end - first;
    }
    if (n_drawn > 0) qsort(sorted, n_drawn, sizeof *sorted, by_cluster);
    for (uint32_t first = 0, end; first < n_drawn; first = end) {
        uint64_t size = 1;
        for (end = first + 1; end < n_drawn && is_same_cluster(sorted[first], sorted[end]); end++)
            size += compare_members(sorted[end - 1], sorted[end]) != 0;
        for (uint32_t i = first; i < end; i++) {
            uint32_t *weight = &ret_weights[sorted[i] - rows];
            uint64_t share = fm_complex_record_share(sorted[i]->is_interface, sorted[i]->kind);
            uint64_t value = (share << WEIGHT_BITS) / (size * *weight);
            *weight = value > 0 ? (uint32_t)value : 1;
        }
    }
    fm_arena_rewind(arena, mark);
    return FM_OK;
}

/* -- choosing */

struct fm_complex_chooser {
    fm_plan_order order;
    fm_complex_choice choice;
    fm_chooser *chooser; /* of drawn records, or of items that have one */
    uint32_t n_drawn, n_item;
    uint32_t *row;    /* [n_drawn] of choice.rows */
    uint32_t *weight; /* [n_drawn] */
    uint32_t *place;  /* [n_drawn] of the record's item in choice.items */
    uint32_t *first;  /* [n_item + 1] first drawn record of each item that has one */
};

/* Copies the rows of the snapshot's items, so that clusters count these alone. */
static fm_status take_rows(fm_complex_chooser *c, fm_arena *arena, fm_error *reterr) {
    const fm_complex_choice *choice = &c->choice;
    fm_complex_row *rows = fm_arena_alloc_array(arena, choice->n_row, sizeof *rows);
    uint32_t *weights = fm_arena_alloc_array(arena, choice->n_row, sizeof *weights);
    c->row = malloc(((size_t)choice->n_row + 1) * sizeof *c->row);
    c->place = malloc(((size_t)choice->n_row + 1) * sizeof *c->place);
    c->weight = malloc(((size_t)choice->n_row + 1) * sizeof *c->weight);
    if (!rows || !weights || !c->row || !c->place || !c->weight) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the records of complexes");
    }
    uint32_t n = 0, at = 0;
    for (uint32_t i = 0; i < choice->n_row; i++) {
        while (at < choice->n_item && choice->items[at] < choice->rows[i].item)
            at++;
        if (at == choice->n_item || choice->items[at] != choice->rows[i].item) continue;
        c->row[n] = i;
        c->place[n] = at;
        rows[n++] = choice->rows[i];
    }
    fm_status status = fm_complex_rows_weigh(rows, n, weights, arena, reterr);
    for (uint32_t i = 0; i < n && !status; i++) {
        if (weights[i] == 0) continue;
        c->row[c->n_drawn] = c->row[i];
        c->place[c->n_drawn] = c->place[i];
        c->weight[c->n_drawn++] = weights[i];
    }
    if (!status && c->n_drawn > FM_LIMIT_N_CHAIN) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the snapshot has %u records of complexes, at most %u",
                       c->n_drawn, FM_LIMIT_N_CHAIN);
    }
    if (status || c->n_drawn > 0) return status;
    return fm_fail(reterr, FM_ERR_DATA, "no complex of the snapshot has a chain that is drawn");
}

static fm_status list_items(fm_complex_chooser *c, fm_error *reterr) {
    c->first = malloc(((size_t)c->n_drawn + 1) * sizeof *c->first);
    if (!c->first) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the complexes");
    for (uint32_t i = 0; i < c->n_drawn; i++) {
        if (i == 0 || c->place[i] != c->place[i - 1]) c->first[c->n_item++] = i;
    }
    c->first[c->n_item] = c->n_drawn;
    return FM_OK;
}

static fm_status make_chooser(fm_complex_chooser *c, const fm_plan *plan, fm_error *reterr) {
    const fm_chooser_shares *shares = c->choice.shares;
    bool is_weighted = plan->order == FM_ORDER_WEIGHTED;
    if (!is_weighted || !shares) {
        return fm_chooser_create(plan, is_weighted ? c->n_drawn : c->n_item, c->weight, NULL,
                                 &c->chooser, reterr);
    }
    uint8_t *of_record = malloc(c->n_drawn);
    if (!of_record) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the records' datasets");
    for (uint32_t i = 0; i < c->n_drawn; i++)
        of_record[i] = shares->of_chain[c->place[i]];
    const fm_chooser_shares of_records = {shares->n, shares->share, of_record};
    fm_status status =
        fm_chooser_create(plan, c->n_drawn, c->weight, &of_records, &c->chooser, reterr);
    free(of_record);
    return status;
}

fm_status fm_complex_chooser_create(const fm_plan *plan, const fm_complex_choice *choice,
                                    fm_complex_chooser **ret_chooser, fm_error *reterr) {
    fm_complex_chooser *c = calloc(1, sizeof *c);
    if (!c) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the chooser of complexes");
    c->order = plan->order;
    c->choice = *choice;
    fm_arena arena;
    const size_t row_bytes = sizeof *choice->rows + sizeof(void *) + sizeof *c->weight;
    fm_status status = fm_arena_init(&arena, choice->n_row * row_bytes + 4096, reterr);
    if (!status) {
        status = take_rows(c, &arena, reterr);
        fm_arena_fini(&arena);
    }
    if (!status) status = list_items(c, reterr);
    if (!status) status = make_chooser(c, plan, reterr);
    c->choice.shares = NULL;
    if (status) {
        fm_complex_chooser_destroy(c);
        return status;
    }
    *ret_chooser = c;
    return FM_OK;
}

void fm_complex_chooser_destroy(fm_complex_chooser *chooser) {
    if (!chooser) return;
    fm_chooser_destroy(chooser->chooser);
    free(chooser->row);
    free(chooser->place);
    free(chooser->weight);
    free(chooser->first);
    free(chooser);
}

/* Draws one of the records first .. end-1 by their weights. */
static uint32_t draw_record(const fm_complex_chooser *c, uint32_t first, uint32_t end,
                            uint64_t seed, uint64_t index) {
    const fm_sample_draw draw = {.seed = seed, .index = index};
    uint64_t total = 0;
    for (uint32_t i = first; i < end; i++)
        total += c->weight[i];
    uint64_t left = fm_sample_draw_below_u64(&draw, FM_SAMPLE_DRAW_COMPLEX_RECORD, 0, total);
    uint32_t i = first;
    while (left >= c->weight[i])
        left -= c->weight[i++];
    assert(i < end);
    return i;
}

const fm_complex_row *fm_complex_chooser_record(const fm_complex_chooser *chooser, uint64_t seed,
                                                uint64_t index, uint32_t *ret_place) {
    uint32_t i = fm_chooser_chain(chooser->chooser, seed, index);
    if (chooser->order != FM_ORDER_WEIGHTED) {
        i = draw_record(chooser, chooser->first[i], chooser->first[i + 1], seed, index);
    }
    *ret_place = chooser->place[i];
    return &chooser->choice.rows[chooser->row[i]];
}
