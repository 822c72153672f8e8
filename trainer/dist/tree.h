/* tree.h: the tree in which the ranks of several hosts talk to each other, and the steps of a
 * gather on it. Nothing here knows connections or clocks, so tests can run it for thousands of
 * ranks.
 *
 * The lowest rank of each host is its leader. The leaders form a tree with FM_TREE_WIDTH children
 * each, and the other ranks of a host are children of its leader. Rank 0 is the root. What a rank
 * sends up is the bytes of the ranks below it, in the order of the tree; what comes down is the
 * bytes of all ranks, in their order. So no rank sends more than its children receive, however many
 * ranks there are. */
#ifndef FM_TRAINER_TREE_H
#define FM_TRAINER_TREE_H

#include "trainer/dist/topology.h"

enum { FM_TREE_WIDTH = 16 }; /* leaders below a leader */

typedef struct fm_tree {
    int32_t n_rank;
    int32_t *parent; /* [n_rank]; -1 of rank 0 */
    int32_t *first;  /* [n_rank] a rank's place in `order` */
    int32_t *size;   /* [n_rank] ranks of its subtree, itself included */
    int32_t *height; /* [n_rank] levels below it; 0 where it has no child */
    int32_t *order;  /* [n_rank] ranks, each before those below it; subtrees are contiguous */
} fm_tree;

/* FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_tree_make(const fm_topology *topology, fm_tree *ret_tree,
                                   fm_error *reterr);
/* A tree of zeros is allowed. */
void fm_tree_free(fm_tree *tree);

/* The first child of a rank, and the next one behind a child; -1: none. */
int32_t fm_tree_child(const fm_tree *tree, int32_t rank);
int32_t fm_tree_next(const fm_tree *tree, int32_t child);
int32_t fm_tree_children(const fm_tree *tree, int32_t rank);

/* Seconds that a rank waits for its children, where each rank is given `seconds`. It is more for
 * those with more levels below them, so that who is nearest to a late rank names it. */
double fm_tree_collects_s(const fm_tree *tree, int32_t rank, double seconds);
/* Seconds that it waits for its parent, from the begin of the gather on. It is more for those who
 * are lower, so that who is nearest to a late parent names it. */
double fm_tree_waits_s(const fm_tree *tree, int32_t rank, double seconds);

/* -- a gather */

typedef enum fm_tree_state {
    FM_TREE_COLLECTS, /* not all children have come */
    FM_TREE_WAITS,    /* its subtree is on its way up; it waits for the bytes of all */
    FM_TREE_HAS_ALL,
    FM_TREE_HAS_FAILED,
} fm_tree_state;

/* What a rank does next. */
typedef enum fm_tree_action {
    FM_TREE_DO_NOTHING,
    FM_TREE_SEND_UP,   /* the bytes of its subtree to its parent */
    FM_TREE_SEND_DOWN, /* the bytes of all to its children; the gather is over for this rank */
    FM_TREE_TELL,      /* the reason of the failure to its parent and to its children */
} fm_tree_action;

/* A rank in one gather. */
typedef struct fm_tree_gather {
    fm_tree_state state;
    int32_t n_left; /* children that have not come */
    bool is_root;
} fm_tree_gather;

/* Begins: the rank itself has come. */
fm_tree_action fm_tree_begin(const fm_tree *tree, int32_t rank, fm_tree_gather *ret_gather);
/* The bytes of one child's subtree have come. */
fm_tree_action fm_tree_child_came(fm_tree_gather *gather);
/* The bytes of all have come from the parent. */
fm_tree_action fm_tree_all_came(fm_tree_gather *gather);
/* A rank is gone or late, or somebody has told a reason. It is told once. */
fm_tree_action fm_tree_fail(fm_tree_gather *gather);

#endif
