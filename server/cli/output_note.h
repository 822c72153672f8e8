/* output_note.h: a small file in a folder of outputs that records what they are made from.
 *
 * A command that keeps the files of an earlier run must know that they are the same command's.
 * The record is compared byte for byte. */
#ifndef FM_CLI_OUTPUT_NOTE_H
#define FM_CLI_OUTPUT_NOTE_H

#include "proto/base/arena.h"
#include "proto/base/status.h"

#include <stdbool.h>

enum { FM_OUTPUT_NOTE_BYTES = 1 << 12 };

/* Sets *ret_has when `path` is a file with something in it: a file system that lost its last writes
 * may leave an empty one. FM_ERR_IO when it is something other than a file. */
FM_MUST_USE fm_status fm_output_has_file(const char *path, bool *ret_has, fm_error *reterr);

/* Checks what is at the path of an output that replaces an earlier one, which begins with the text
 * `begin`, and nothing else: a mistyped name may be that of an input. `option` and `what` are for
 * the message: "--report", "report". An empty file is nothing. FM_ERR_USAGE, FM_ERR_IO. */
FM_MUST_USE fm_status fm_output_check_like(const char *path, const char *option, const char *what,
                                           const char *begin, fm_error *reterr);

/* Writes FOLDER/<name> with the text `note` where the folder is empty, and compares where the file
 * exists. FM_ERR_EXISTS when the folder has another record, or other files and no record.
 * `what` says in words what differs then. Uses memory of the arena. */
FM_MUST_USE fm_status fm_output_note_check(const char *folder, const char *name, const char *note,
                                           const char *what, fm_arena *arena, fm_error *reterr);

#endif
