/* watch.h: a thread that watches the ranks of this host, so that none waits for one that is gone.
 *
 * Three kinds of ranks end the run for all. The process of the first has ended without leaving in
 * order. The second has not moved for a while, because it was stopped or the system does not let
 * it run. The third computes on a CPU and should work, and its main thread hangs. Exchanges
 * and gathers that are under way then fail. The process is ended if it has not ended itself soon
 * after. */
#ifndef FM_TRAINER_WATCH_H
#define FM_TRAINER_WATCH_H

#include "trainer/dist/board.h"

typedef struct fm_watch fm_watch;

/* Starts the thread. `name` is the command's name for messages, and still_s how long a rank may not
 * move. FM_ERR_NOMEM. Board, meeting and name must outlive it. */
FM_MUST_USE fm_status fm_watch_start(const char *name, fm_board *board, fm_meeting *meeting,
                                     double still_s, fm_watch **ret_watch, fm_error *reterr);
/* Ends the thread. NULL is allowed. */
void fm_watch_stop(fm_watch *watch);

/* Ends the run for all ranks of this host, and prints the reason if it is the first one. */
void fm_watch_end(fm_board *board, const char *reason);

#endif
