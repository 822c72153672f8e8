/* launch.h: starts the ranks of a command on this host as its children, and waits for them.
 *
 * Each child runs the same program with the same arguments, and finds its rank in its environment
 * (world.h). Where ranks compute on CPUs, each child is bound to an equal part of the cores that
 * the command may use, if there are enough (cores.h). No child outlives the command, however that
 * ends. */
#ifndef FM_TRAINER_LAUNCH_H
#define FM_TRAINER_LAUNCH_H

#include "proto/base/status.h"

#include <stdbool.h>

typedef struct fm_launch_options {
    const char *program; /* the command's name, for messages */
    int argc;
    char **argv; /* the arguments, from the command's name on */
    int32_t n_rank;
    int32_t meets;     /* ranks that meet each other: neighbours, whose number divides n_rank */
    bool divides;      /* gives each rank its part of the cores */
    uint64_t began_ns; /* when the command began (fm_world) */
    /* Called several times a second, and once after the last rank has ended. NULL: not called. */
    void (*look)(void *context);
    void *context;
} fm_launch_options;

/* Signals that ask the command to stop, and SIGUSR1, are passed on to the ranks; the caller catches
 * them (stop.h). *ret_code is the exit code of the first rank that did not end with 0, and 1 for a
 * rank that was killed. When one rank has failed and others do not end soon, they are killed.
 * FM_ERR_IO when a rank cannot be started, FM_ERR_USAGE when TMPDIR is too long for a socket. */
FM_MUST_USE fm_status fm_launch(const fm_launch_options *options, int *ret_code, fm_error *reterr);

#endif
