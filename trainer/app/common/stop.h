/* stop.h: why a run ends in order before its end: the signals that ask for it, and other reasons;
 * and the signal that asks for a checkpoint.
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

typedef enum fm_stop_reason {
    FM_STOP_NONE,   /* nothing has asked the run to stop */
    FM_STOP_SIGNAL, /* a signal to this process, or to another rank */
    FM_STOP_TARGET, /* the run has reached the score of --stop-at */
} fm_stop_reason;

/* Begins to catch the signals, and ignores SIGPIPE. A SIGHUP that is ignored, as under nohup(1),
 * stays so. answers: this process tells the user that it stops, and a second signal ends it; one of
 * several ranks leaves both to the command that has started it. */
void fm_stop_catch(bool answers);
/* The same for a command that prints `text` when it is asked to stop. */
void fm_stop_catch_saying(const char *text);

/* Blocks the signals in this thread. A process that is started meanwhile receives those of its
 * start when it calls fm_stop_catch, which unblocks them. */
void fm_stop_block(sigset_t *ret_before);

/* Asks this process to stop, unless there is a reason already. `signal_number` is that of
 * FM_STOP_SIGNAL, which another rank has heard, and 0 for other reasons. */
void fm_stop_request(fm_stop_reason reason, int signal_number);

/* The first reason that came. */
fm_stop_reason fm_stop_get_reason(void);
static inline bool fm_stop_is_asked(void) {
    return fm_stop_get_reason() != FM_STOP_NONE;
}

/* The signal of FM_STOP_SIGNAL; 0 for no reason and for others. */
int fm_stop_signal(void);

/* Cancels waits once there is a reason to stop. */
extern const fm_cancel fm_stop_cancel;

/* Whether a checkpoint was asked for since the last call. */
bool fm_stop_take_checkpoint(void);

/* "SIGTERM", "SIGINT" or "SIGHUP". */
const char *fm_stop_name(int signal_number);

#endif
