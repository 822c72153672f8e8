/* run_folder.h: opens the files of a training run's folder, for the commands that show runs. */
#ifndef FM_CLI_RUN_FOLDER_H
#define FM_CLI_RUN_FOLDER_H

#include "proto/base/status.h"

#include <limits.h>

/* Opens a file of the folder and writes its path to `path`; the caller closes *ret_fd. The messages
 * tell what is no folder of a run: FM_ERR_USAGE for a file, FM_ERR_NOT_FOUND when it lacks the
 * file. FM_ERR_IO, also for anything but a regular file. */
FM_MUST_USE fm_status fm_run_folder_open(const char *folder, const char *file_name,
                                         char path[PATH_MAX], int *ret_fd, fm_error *reterr);

#endif
