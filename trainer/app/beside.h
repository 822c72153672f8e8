/* beside.h: runs the program `foldmill`, which is beside this one or on PATH, and takes what it
 * prints. It reads datasets and caches, which the trainer may not. */
#ifndef FM_TRAINER_BESIDE_H
#define FM_TRAINER_BESIDE_H

#include "proto/base/status.h"

#include <limits.h>
#include <stdbool.h>

/* The name of the program, for argv[0]. */
extern const char fm_beside_name[];

/* Writes the path of foldmill in this program's folder; "" where that is not known. Programs that
 * are not there are looked for on PATH. */
void fm_beside_find(char out[PATH_MAX]);

/* Runs foldmill with argv[1..], ended by NULL. *ret_text is its standard output, terminated, on the
 * heap; its standard error is ours. *ret_code is its exit code, or 128 + the signal that ended it.
 * It ends with this process. FM_ERR_CANCELLED when `is_cancelled` (NULL: never) says so: the
 * program is then ended by SIGTERM and waited for. FM_ERR_IO when it cannot be started;
 * FM_ERR_LIMIT for an output of more than 1 GiB; FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_beside_run(char *const *argv, bool (*is_cancelled)(void), char **ret_text,
                                    size_t *ret_bytes, int *ret_code, fm_error *reterr);

#endif
