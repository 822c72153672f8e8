/* description_files.h: which files of a folder describe complexes, by their endings. */
#ifndef FM_PROTO_DESCRIPTION_FILES_H
#define FM_PROTO_DESCRIPTION_FILES_H

#include "proto/base/directory.h"

enum {
    FM_DESCRIPTION_FILES = 1 << 20, /* most entries of a folder */
    /* Bytes of a job's name, as a folder's: names of its files have 70 more, and at most 255. */
    FM_DESCRIPTION_NAME_MOST = 180,
};

/* Whether a name ends as a prepared job does: ".npz". */
bool fm_description_is_prepared(const char *name);

/* Lists the paths FOLDER/NAME of the folder's descriptions (.json, .yaml, .yml, .fasta, .fa, .fas,
 * .faa, and each with .gz, .xz or .zst) in the order of their names; `prepared`: of its prepared
 * jobs, too. Paths are in the arena; the caller frees list->name. *ret_is_folder is false, and the
 * list is empty, for a path that is no folder. The errors of fm_directory_list. */
FM_MUST_USE fm_status fm_description_files_list(const char *path, bool prepared, fm_arena *arena,
                                                bool *ret_is_folder, fm_name_list *list,
                                                fm_error *reterr);

#endif
