/* predict_group.h: the processes of a prediction on several ranks of this host.
 *
 * The command prepares the inputs, starts the ranks (launch.h) and waits. Its N ranks form N / D
 * groups of D. The ranks of a group share each input: each rank holds a part of its arrays (Dynamic
 * Axial Parallelism). The first rank of a group writes the files of a prediction, and reports it to
 * the command through a pipe.
 *
 * Groups do not wait for each other. Within a group, all ranks agree before each piece of work
 * whether one of them was asked to stop. */
#ifndef FM_TRAINER_PREDICT_GROUP_H
#define FM_TRAINER_PREDICT_GROUP_H

#include "trainer/app/ranks/ranks.h"

typedef struct fm_predict_ranks_options {
    const char *program; /* "foldmill predict" */
    int argc;
    char **argv;    /* the command line, from the command's name on */
    int32_t n_rank; /* 1: the command works alone */
    int32_t dap;    /* D, which divides n_rank */
    bool divides;   /* the cores, for ranks on CPUs */
} fm_predict_ranks_options;

/* -- in the command */

typedef struct fm_predict_reports {
    size_t record_bytes; /* of a report, at most PIPE_BUF */
    /* Takes a report. An error ends no rank, and is the result of fm_predict_group_launch. */
    fm_status (*take)(void *context, const void *record, fm_error *reterr);
    void *context;
} fm_predict_reports;

/* Starts the ranks, takes their reports and waits for their end. *ret_code is that of fm_launch.
 * The errors of fm_launch, and the first one of `take`. */
FM_MUST_USE fm_status fm_predict_group_launch(const fm_predict_ranks_options *options,
                                              const fm_predict_reports *reports, int *ret_code,
                                              fm_error *reterr);

/* -- in a rank */

/* Whether this process is one of the ranks. */
bool fm_predict_group_is_rank(void);

typedef struct fm_predict_group {
    int32_t first;            /* rank of the whole command that is the first of this group */
    int32_t place;            /* of this process in the group */
    uint32_t number, n_group; /* of the group; all groups */
    const fm_groups *groups;  /* NULL: this process is alone in its group */
    fm_ranks *ranks;          /* of the group; NULL likewise */
    char program[64];         /* for messages */
    int pipe;                 /* to the command */
    bool is_agreed;           /* all ranks of the group know that they stop */
} fm_predict_group;

/* Meets the other ranks of the group, and finds the device. The errors of fm_world_find,
 * fm_device_find, fm_ranks_open and fm_ranks_join, which one rank of the group reports on standard
 * error, like all errors below. */
FM_MUST_USE fm_status fm_predict_group_open(const fm_predict_ranks_options *options,
                                            const char *device, const char *dtype,
                                            fm_predict_group **ret_group, fm_error *reterr);

/* All ranks of the group go on, or none does: FM_ERR_CANCELLED on all when one was asked to stop.
 * *value of the first rank becomes that of all; NULL: there is none. Collective. The errors of
 * fm_ranks_gather. */
FM_MUST_USE fm_status fm_predict_group_agree(fm_predict_group *group, uint32_t *value,
                                             fm_error *reterr);

/* Reports to the command. */
void fm_predict_group_report(const fm_predict_group *group, const void *record, size_t bytes);

/* Ends the work of the group because this rank has failed alone. */
void fm_predict_group_fail(fm_predict_group *group, const fm_error *error);

/* Ends the work with its status, whose error is in *reterr: waits for the others, or makes them
 * fail. A signal that ended the work on this rank alone is told to the others. Returns FM_OK after
 * a request to stop, too: *ret_signal is then its number, else 0. Collective unless it failed. */
FM_MUST_USE fm_status fm_predict_group_end(fm_predict_group *group, fm_status status,
                                           int *ret_signal, fm_error *reterr);

/* NULL is allowed. */
void fm_predict_group_close(fm_predict_group *group);

#endif
