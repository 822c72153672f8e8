/* local_groups.h: the groups of ranks that are threads of one process (comm_local.h). */
#ifndef FM_TESTING_LOCAL_GROUPS_H
#define FM_TESTING_LOCAL_GROUPS_H

#include "tests/testing/comm_local.h"
#include "trainer/dist/groups.h"

/* All communicators of a layout. */
typedef struct fm_local_groups fm_local_groups;

/* Creates the groups of at most FM_COMM_LOCAL_RANKS ranks. FM_ERR_USAGE for more, and as
 * fm_layout_check; FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_local_groups_create(const fm_layout *layout, const fm_kernels *kernels,
                                             fm_local_groups **ret_groups, fm_error *reterr);
/* Call it after every rank's thread has ended. NULL is allowed. */
void fm_local_groups_destroy(fm_local_groups *groups);
/* Returns the groups of one rank; valid as long as `groups`. */
const fm_groups *fm_local_groups_get(const fm_local_groups *groups, int32_t rank);

#endif
