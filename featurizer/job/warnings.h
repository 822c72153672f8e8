/* warnings.h: what a description has that is accepted and worth saying. */
#ifndef FM_JOB_WARNINGS_H
#define FM_JOB_WARNINGS_H

#include "proto/base/arena.h"

enum { FM_JOB_WARNINGS = 64 };

/* Sentences in the order in which they arose. Those behind the first ones are only counted. */
typedef struct fm_job_warnings {
    uint32_t n, n_dropped;
    char *texts[FM_JOB_WARNINGS]; /* terminated; in the arena */
} fm_job_warnings;

/* Adds a sentence about the value at `path`, which may be "". Without memory it is only counted. */
void fm_job_warn(fm_arena *arena, fm_job_warnings *warnings, const char *path, const char *format,
                 ...) FM_PRINTF(4, 5);

#endif
