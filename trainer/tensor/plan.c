/* plan.c: first-fit placement; see plan.h.
 *
 * Requests are visited in the order of their first step. A live list for each end holds the placed
 * requests that are still alive, sorted by offset. For each request, the lists first drop expired
 * entries; then a scan over the list of its end finds the first gap that is large enough. A gap
 * that is free now stays free for the request's whole life, because later requests are placed
 * around it. */
#include "trainer/tensor/plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Requests that are alive, sorted by offset; one list for each end. */
typedef struct live_list {
    fm_plan_request **item;
    int32_t count;
} live_list;

static int by_first_step(const void *left, const void *right) {
    const fm_plan_request *a = *(fm_plan_request *const *)left;
    const fm_plan_request *b = *(fm_plan_request *const *)right;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    /* ties keep the order of the requests, so every run gives the same places */
    return a < b ? -1 : 1;
}

static void drop_expired(live_list *list, int32_t step) {
    int32_t kept = 0;
    for (int32_t i = 0; i < list->count; i++) {
        if (list->item[i]->last >= step) list->item[kept++] = list->item[i];
    }
    list->count = kept;
}

static void insert(live_list *list, fm_plan_request *request) {
    assert(list->item);
    int64_t bytes = fm_plan_round(request->bytes), offset = 0;
    int32_t at = 0;
    while (at < list->count && offset + bytes > list->item[at]->offset_bytes) {
        offset = list->item[at]->offset_bytes + fm_plan_round(list->item[at]->bytes);
        at++;
    }
    memmove(&list->item[at + 1], &list->item[at],
            (size_t)(list->count - at) * sizeof(list->item[0]));
    list->item[at] = request;
    list->count++;
    request->offset_bytes = offset;
}

static int64_t reach(const live_list *list) {
    if (!list->count) return 0;
    const fm_plan_request *top = list->item[list->count - 1];
    return top->offset_bytes + fm_plan_round(top->bytes);
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

fm_status fm_plan_place(fm_plan_request *request, int32_t count, fm_arena *scratch,
                        fm_plan_size *ret_size, fm_error *reterr) {
    size_t mark = fm_arena_mark(scratch);
    fm_plan_request **order = fm_arena_alloc_array(scratch, (size_t)count, sizeof(*order));
    live_list end[2] = {{0}};
    for (int side = 0; side < 2; side++)
        end[side].item = fm_arena_alloc_array(scratch, (size_t)count + 1, sizeof(*order));
    if (!order || !end[0].item || !end[1].item) return fm_arena_full(scratch, reterr);
    for (int32_t i = 0; i < count; i++) {
        assert(request[i].bytes > 0 && request[i].first <= request[i].last);
        order[i] = &request[i];
    }
    qsort(order, (size_t)count, sizeof(*order), by_first_step);
    fm_plan_size size = {0};
    for (int32_t i = 0; i < count; i++) {
        drop_expired(&end[0], order[i]->first);
        drop_expired(&end[1], order[i]->first);
        insert(&end[order[i]->high], order[i]);
        int64_t low = reach(&end[0]), high = reach(&end[1]);
        size.low_bytes = larger(size.low_bytes, low);
        size.high_bytes = larger(size.high_bytes, high);
        size.arena_bytes = larger(size.arena_bytes, low + high);
    }
    fm_arena_rewind(scratch, mark);
    *ret_size = size;
    return FM_OK;
}
