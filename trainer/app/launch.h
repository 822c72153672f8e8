/* launch.h: starts the ranks of a run on this host as children of the command, and waits for them.
 *
 * Each child runs the same program with the same arguments, and finds its rank in its environment
 * (world.h). Where ranks compute on CPUs, it is bound to an equal part of the cores that the
 * command may use, if there are enough. No child outlives the command, however that ends. */
#ifndef FM_TRAINER_LAUNCH_H
#define FM_TRAINER_LAUNCH_H

#include "proto/base/status.h"

#include <stdbool.h>

/* argv: the arguments of the train command, from its name on. divides: give each rank its part of
 * the cores. Signals that ask the run to stop, and
 * SIGUSR1, are passed on to the ranks. *ret_code is the exit code of the run: that of the first
 * rank that did not end with 0, and 1 for a rank that was killed. When one rank has failed and
 * others do not end soon, they are killed. FM_ERR_IO when a rank cannot be started. */
FM_MUST_USE fm_status fm_launch(int argc, char **argv, int32_t n_rank, bool divides, int *ret_code,
                                fm_error *reterr);

#endif
