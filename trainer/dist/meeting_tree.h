/* meeting_tree.h: the connections of a meeting along the tree of its hosts (tree.h), and gathers
 * over them; for meeting*.c only. */
#ifndef FM_TRAINER_MEETING_TREE_H
#define FM_TRAINER_MEETING_TREE_H

#include "trainer/dist/meeting.h"
#include "trainer/dist/meeting_link.h"
#include "trainer/dist/topology.h"

typedef struct fm_meeting_tree fm_meeting_tree;

/* Collective over the meeting, which still has all its connections. FM_ERR_NOMEM and the errors of
 * fm_host_connect. One rank may fail alone. */
FM_MUST_USE fm_status fm_meeting_tree_open(fm_meeting *meeting, const fm_topology *topology,
                                           double seconds, fm_meeting_tree **ret_tree,
                                           fm_error *reterr);
/* NULL is allowed. */
void fm_meeting_tree_close(fm_meeting_tree *tree);

/* As fm_meeting_gather; `number` counts the gathers. All ranks that can be reached are told the
 * reason of a failure. */
FM_MUST_USE fm_status fm_meeting_tree_gather(fm_meeting_tree *tree, uint32_t number,
                                             const void *mine, size_t bytes, void *all,
                                             double seconds, fm_error *error);

/* As fm_meeting_heed. */
void fm_meeting_tree_heed(fm_meeting_tree *tree, const fm_ear *ear);

/* Ends all connections, and keeps their descriptors. */
void fm_meeting_tree_cancel(fm_meeting_tree *tree);

#endif
