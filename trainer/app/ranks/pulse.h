/* pulse.h: a thread that notices when another host of a run has vanished, or its rank was stopped.
 *
 * Ranks of one host watch each other (watch.h). Between hosts only connections would tell, and they
 * stay open when a host loses its power or its network, or when a process is stopped. So all ranks
 * of a run on several hosts gather one byte about every second, at a separate meeting. If a rank
 * does not come, the run ends on all hosts with an error that names the rank and its host. When the
 * ranks of a host end the run for a reason of their own, the other hosts hear it at once. */
#ifndef FM_TRAINER_PULSE_H
#define FM_TRAINER_PULSE_H

#include "trainer/dist/board.h"

typedef struct fm_pulse fm_pulse;

typedef struct fm_pulse_options {
    const char *address;         /* of the meeting of the ranks, which is open everywhere */
    const char *secret;          /* of both meetings; NULL or "": none */
    double open_s;               /* that this rank waits for the others now */
    double still_s;              /* that a rank may be silent */
    const fm_topology *topology; /* of the ranks; NULL: all talk to rank 0 */
    void (*end)(fm_board *board, const char *reason); /* ends the run for the ranks of this host */
} fm_pulse_options;

/* Collective over the ranks of that meeting: opens another one at its address and starts the
 * thread. FM_ERR_NOMEM, and the errors of fm_meeting_open. The board must outlive it. */
FM_MUST_USE fm_status fm_pulse_start(fm_board *board, int32_t rank, int32_t size,
                                     const fm_pulse_options *options, fm_pulse **ret_pulse,
                                     fm_error *reterr);
/* After this call the thread does not end the run, whatever fails. Call it before the ranks agree
 * to leave. NULL is allowed. */
void fm_pulse_quieten(fm_pulse *pulse);
/* Ends the thread; the other ranks must be quiet or the run over. NULL is allowed. */
void fm_pulse_stop(fm_pulse *pulse);

#endif
