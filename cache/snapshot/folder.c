/* folder.c: see folder.h. */
#include "cache/snapshot/folder.h"

#include "proto/base/directory.h"
#include "proto/base/file.h"

#include <stdio.h>

fm_status fm_folder_path(const char *cache, const char *folder, const char *name,
                         char out[PATH_MAX], fm_error *reterr) {
    int n = name ? snprintf(out, PATH_MAX, "%s/%s/%s", cache, folder, name)
                 : snprintf(out, PATH_MAX, "%s/%s", cache, folder);
    if (n > 0 && n < PATH_MAX) return FM_OK;
    return fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
}

fm_status fm_folder_write(const char *cache, const char *folder, const char *name, fm_bytes bytes,
                          fm_error *reterr) {
    char path[PATH_MAX];
    fm_status status = fm_folder_path(cache, folder, NULL, path, reterr);
    if (!status) status = fm_dir_make(path, reterr);
    if (!status) status = fm_dir_sync(cache, reterr);
    if (!status) status = fm_folder_path(cache, folder, name, path, reterr);
    return status ? status : fm_file_write_atomic(path, bytes.data, bytes.size, reterr);
}
