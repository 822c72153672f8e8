/* tree.c: see tree.h. */
#include "trainer/dist/tree.h"

#include <assert.h>
#include <stdlib.h>

static const double level_s = 1; /* for a reason to come up one level */

/* -- the shape */

static int32_t find_parent(const fm_topology *topology, int32_t rank) {
    const fm_topology_rank *place = &topology->rank[rank];
    if (place->place > 0) return topology->host[place->host].leader;
    return place->host ? topology->host[(place->host - 1) / FM_TREE_WIDTH].leader : -1;
}

/* A parent has a lower number than its children, since hosts are numbered by their leaders. So one
 * pass from the last rank adds up subtrees, and one from the first gives out places. */
static void shape(fm_tree *t, int32_t *next) {
    for (int32_t r = t->n_rank; r-- > 0;) {
        const int32_t parent = t->parent[r];
        t->size[r]++;
        if (parent < 0) continue;
        assert(parent < r);
        t->size[parent] += t->size[r];
        if (t->height[parent] <= t->height[r]) t->height[parent] = t->height[r] + 1;
    }
    for (int32_t r = 0; r < t->n_rank; r++) {
        const int32_t parent = t->parent[r];
        t->first[r] = parent < 0 ? 0 : next[parent];
        if (parent >= 0) next[parent] += t->size[r];
        next[r] = t->first[r] + 1;
        t->order[t->first[r]] = r;
    }
}

fm_status fm_tree_make(const fm_topology *topology, fm_tree *ret_tree, fm_error *reterr) {
    const size_t n = (size_t)topology->n_rank;
    fm_tree t = {.n_rank = topology->n_rank,
                 .parent = calloc(n, sizeof(int32_t)),
                 .first = calloc(n, sizeof(int32_t)),
                 .size = calloc(n, sizeof(int32_t)),
                 .height = calloc(n, sizeof(int32_t)),
                 .order = calloc(n, sizeof(int32_t))};
    int32_t *next = calloc(n, sizeof *next);
    if (!t.parent || !t.first || !t.size || !t.height || !t.order || !next) {
        free(next);
        fm_tree_free(&t);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a tree of %zu ranks", n);
    }
    for (int32_t r = 0; r < t.n_rank; r++)
        t.parent[r] = find_parent(topology, r);
    shape(&t, next);
    free(next);
    *ret_tree = t;
    return FM_OK;
}

void fm_tree_free(fm_tree *tree) {
    free(tree->parent);
    free(tree->first);
    free(tree->size);
    free(tree->height);
    free(tree->order);
    *tree = (fm_tree){0};
}

int32_t fm_tree_child(const fm_tree *tree, int32_t rank) {
    return tree->size[rank] > 1 ? tree->order[tree->first[rank] + 1] : -1;
}

int32_t fm_tree_next(const fm_tree *tree, int32_t child) {
    const int32_t parent = tree->parent[child], at = tree->first[child] + tree->size[child];
    return at < tree->first[parent] + tree->size[parent] ? tree->order[at] : -1;
}

int32_t fm_tree_children(const fm_tree *tree, int32_t rank) {
    int32_t n = 0;
    for (int32_t c = fm_tree_child(tree, rank); c >= 0; c = fm_tree_next(tree, c))
        n++;
    return n;
}

double fm_tree_collects_s(const fm_tree *tree, int32_t rank, double seconds) {
    return seconds + (tree->height[rank] - 1) * level_s;
}

double fm_tree_waits_s(const fm_tree *tree, int32_t rank, double seconds) {
    int32_t depth = 0;
    for (int32_t r = rank; tree->parent[r] >= 0; r = tree->parent[r])
        depth++;
    return seconds + (tree->height[0] + depth) * level_s; /* up to the root, and down again */
}

/* -- a gather */

/* What follows when n_left has changed. */
static fm_tree_action look(fm_tree_gather *gather) {
    if (gather->n_left > 0) return FM_TREE_DO_NOTHING;
    gather->state = gather->is_root ? FM_TREE_HAS_ALL : FM_TREE_WAITS;
    return gather->is_root ? FM_TREE_SEND_DOWN : FM_TREE_SEND_UP;
}

fm_tree_action fm_tree_begin(const fm_tree *tree, int32_t rank, fm_tree_gather *ret_gather) {
    *ret_gather = (fm_tree_gather){.state = FM_TREE_COLLECTS,
                                   .n_left = fm_tree_children(tree, rank),
                                   .is_root = tree->parent[rank] < 0};
    return look(ret_gather);
}

fm_tree_action fm_tree_child_came(fm_tree_gather *gather) {
    assert(gather->state == FM_TREE_COLLECTS && gather->n_left > 0);
    gather->n_left--;
    return look(gather);
}

fm_tree_action fm_tree_all_came(fm_tree_gather *gather) {
    assert(gather->state == FM_TREE_WAITS);
    gather->state = FM_TREE_HAS_ALL;
    return FM_TREE_SEND_DOWN;
}

fm_tree_action fm_tree_fail(fm_tree_gather *gather) {
    if (gather->state == FM_TREE_HAS_FAILED) return FM_TREE_DO_NOTHING;
    gather->state = FM_TREE_HAS_FAILED;
    return FM_TREE_TELL;
}
