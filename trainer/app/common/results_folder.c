/* results_folder.c: see results_folder.h. */
#include "trainer/app/common/results_folder.h"

#include "proto/base/directory.h"
#include "trainer/checkpoint/checkpoint.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

static fm_status look(const char *folder, const char *leaf, fm_path_kind *ret_kind,
                      fm_error *reterr) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, leaf) >= PATH_MAX) {
        return fm_fail_in(reterr, FM_ERR_USAGE, folder, "the path is too long");
    }
    return fm_path_look(path, ret_kind, reterr);
}

static fm_status has(const char *folder, const char *leaf, bool *ret_has, fm_error *reterr) {
    fm_path_kind kind;
    fm_status status = look(folder, leaf, &kind, reterr);
    *ret_has = !status && kind != FM_PATH_ABSENT;
    return status;
}

static fm_status refuse(const char *folder, const char *what, const char *expected,
                        fm_error *reterr) {
    return fm_fail_in(reterr, FM_ERR_USAGE, folder,
                      "--out: found %s, expected a new folder or %s; choose another folder", what,
                      expected);
}

/* Whether the folder has one of those that only datasets have. `foldmill build` reads data, pdb and
 * uniclust30, too, but any folder may have these beside its results. */
static fm_status is_dataset(const char *folder, bool *ret_is, fm_error *reterr) {
    static const char *const leaves[] = {"alignments", "alignment_db", "mmcifs", "mmcif_files",
                                         "pdb_mmcif"};
    fm_path_kind kind;
    fm_status status = FM_OK;
    *ret_is = false;
    for (size_t i = 0; i < sizeof leaves / sizeof leaves[0] && !status && !*ret_is; i++) {
        status = look(folder, leaves[i], &kind, reterr);
        *ret_is = !status && kind == FM_PATH_FOLDER;
    }
    return status;
}

static fm_status check(const char *folder, bool for_run, fm_error *reterr) {
    const char *const expected = for_run ? "that of a run" : "one of earlier results";
    fm_path_kind kind;
    fm_checkpoint_place place;
    bool is_cache = false, is_run = false, is_data = false, is_locked = false;
    fm_status status = fm_path_look(folder, &kind, reterr);
    if (status || kind == FM_PATH_ABSENT) return status;
    if (kind != FM_PATH_FOLDER) return refuse(folder, "a file", expected, reterr);
    status = has(folder, "CURRENT", &is_cache, reterr);
    if (!status) status = has(folder, "metrics.jsonl", &is_run, reterr);
    if (!status) status = is_dataset(folder, &is_data, reterr);
    if (!status) status = has(folder, "lock", &is_locked, reterr); /* every command leaves one */
    if (status) return status;
    status = fm_checkpoint_find(folder, FM_CHECKPOINT_END, &place, reterr);
    if (status && status != FM_ERR_NOT_FOUND) return status;
    is_run |= !status;
    if (is_cache) return refuse(folder, "a cache of foldmill build", expected, reterr);
    if (is_run && for_run) return FM_OK;
    if (is_run) return refuse(folder, "the folder of a training run", expected, reterr);
    return is_data && !is_locked ? refuse(folder, "a dataset", expected, reterr) : FM_OK;
}

fm_status fm_results_folder_check(const char *folder, fm_error *reterr) {
    return check(folder, false, reterr);
}

fm_status fm_train_folder_check(const char *folder, fm_error *reterr) {
    return check(folder, true, reterr);
}
