/* stop.h: the signals that end a run in order, and the one that asks for a checkpoint.
 *
 * SIGTERM, SIGINT and SIGHUP ask the run to stop; a second one ends the process at once. SIGUSR1
 * asks for a checkpoint. The handlers only set flags, which the run reads between samples. A
 * signalfd does not work here: the threads that OpenBLAS starts before main leave the signals
 * unblocked, so one of them would take the default action. */
#ifndef FM_TRAINER_STOP_H
#define FM_TRAINER_STOP_H

#include "proto/base/cancel.h"

#include <signal.h>
#include <stdbool.h>

/* What fm_stop_signal returns where no signal, but a run's target, ends it. */
enum { FM_STOP_TARGET = 1000 };

/* Begins to catch the signals, and ignores SIGPIPE. A SIGHUP that is ignored, as under nohup(1),
 * stays so. answers: this process tells the user that it stops, and a second signal ends it; one of
 * several ranks leaves both to the command that has started it. */
void fm_stop_catch(bool answers);
/* The same for a command that prints `text` when it is asked to stop. */
void fm_stop_catch_saying(const char *text);

/* Blocks the signals in this thread. A process that is started meanwhile receives those of its
 * start when it calls fm_stop_catch, which unblocks them. */
void fm_stop_block(sigset_t *ret_before);

/* Notes that another rank was asked to stop by that signal, or that the target is reached. */
void fm_stop_request(int signal_number);

/* The signal that asked the run to stop; 0 = none. */
int fm_stop_signal(void);

/* Cancels waits once there is one. */
extern const fm_cancel fm_stop_cancel;

/* Whether a checkpoint was asked for since the last call. */
bool fm_stop_take_checkpoint(void);

/* "SIGTERM", "SIGINT" or "SIGHUP". */
const char *fm_stop_name(int signal_number);

#endif
