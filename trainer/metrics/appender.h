/* appender.h: a file that whole records are appended to, and that survives a full disk.
 *
 * A record is written with one write(2), so a reader who follows the file never sees a part of one.
 * If that fails (full disk, quota, read-only file system), the record and all later ones stay in
 * memory, in their order. Every later call tries again. A record that was written in part is cut
 * off the file before anything else is written. */
#ifndef FM_TRAINER_APPENDER_H
#define FM_TRAINER_APPENDER_H

#include "proto/base/status.h"

#include <stdbool.h>

typedef struct fm_appender fm_appender;

/* Opens `path` for appending; creates it if missing. FM_ERR_IO. */
FM_MUST_USE fm_status fm_appender_open(const char *path, fm_appender **ret_appender,
                                       fm_error *reterr);

/* Closes the file. What could not be written is lost; NULL is fine. */
void fm_appender_close(fm_appender *appender);

/* Appends a record. FM_ERR_IO: it is in memory, as are the records before it that could not be
 * written. FM_ERR_NOMEM: there is no memory for it, and it is lost. */
FM_MUST_USE fm_status fm_appender_add(fm_appender *appender, const void *record, size_t bytes,
                                      fm_error *reterr);

/* Tries again to write what is in memory, and syncs the file. FM_ERR_IO. */
FM_MUST_USE fm_status fm_appender_sync(fm_appender *appender, fm_error *reterr);

/* True if the file is empty. */
bool fm_appender_is_empty(const fm_appender *appender);

#endif
