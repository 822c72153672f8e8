/* beside.h: runs the program `foldmill` from this program's folder or from PATH, and returns its
 * output. The trainer uses it because trainer code must not read datasets and caches. */
#ifndef FM_TRAINER_BESIDE_H
#define FM_TRAINER_BESIDE_H

#include "proto/base/cancel.h"
#include "proto/base/status.h"

#include <limits.h>

/* The name of the program, for argv[0]. */
extern const char fm_beside_name[];

/* Writes the path of foldmill in this program's folder, or "" if that folder is not known. The file
 * may be missing; fm_beside_run then searches PATH. */
void fm_beside_find(char out[PATH_MAX]);

/* Runs foldmill with argv[1..], a list that ends with NULL, and waits for it. *ret_text is its
 * standard output, ended by a NUL, which the caller frees. It shares our standard error. *ret_code
 * is its exit code, or 128 + the signal that ended it. The kernel ends it with SIGTERM if this
 * process dies. When the wait is cancelled, foldmill is ended with SIGTERM, or with SIGKILL if it
 * still runs 3 seconds later, and the call returns FM_ERR_CANCELLED. Other errors are FM_ERR_IO if
 * foldmill cannot be started, FM_ERR_LIMIT for more than 1 GiB of output, and FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_beside_run(char *const *argv, const fm_cancel *cancel, char **ret_text,
                                    size_t *ret_bytes, int *ret_code, fm_error *reterr);

#endif
