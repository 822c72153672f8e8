/* run_folder.c: see run_folder.h. */
#include "server/cli/run_folder.h"

#include "proto/base/directory.h"
#include "proto/base/file.h"

#include <stdio.h>

fm_status fm_run_folder_open(const char *folder, const char *file_name, char path[PATH_MAX],
                             int *ret_fd, fm_error *reterr) {
    fm_path_kind kind;
    uint64_t bytes;
    fm_status status = fm_path_look(folder, &kind, reterr);
    if (!status && kind == FM_PATH_FILE) {
        status = fm_fail_in(reterr, FM_ERR_USAGE, folder,
                            "found a file, expected the folder of a run (foldmill train --out)");
    }
    if (!status && snprintf(path, PATH_MAX, "%s/%s", folder, file_name) >= PATH_MAX) {
        status = fm_fail_in(reterr, FM_ERR_USAGE, folder, "the path is too long");
    }
    if (status) return status;
    status = fm_file_open(path, ret_fd, &bytes, reterr);
    if (status != FM_ERR_NOT_FOUND) return status;
    return fm_fail_in(reterr, status, folder,
                      "found no %s, expected the folder of a run (foldmill train --out)",
                      file_name);
}
