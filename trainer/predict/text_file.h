/* text_file.h: collects the text of a file in memory and writes the file whole or not at all. */
#ifndef FM_TRAINER_TEXT_FILE_H
#define FM_TRAINER_TEXT_FILE_H

#include "proto/base/status.h"

#include <stdio.h>

typedef struct fm_text_file {
    FILE *out; /* print here */
    char *text;
    size_t bytes;
} fm_text_file;

/* FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_text_file_open(fm_text_file *file, fm_error *reterr);
/* Frees the text of a file that is not written. */
void fm_text_file_discard(fm_text_file *file);
/* Writes the text to `path` and frees it, also on failure. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_text_file_commit(fm_text_file *file, const char *path, fm_error *reterr);

#endif
