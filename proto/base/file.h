/* file.h: whole files in, whole files out.
 *
 * Inputs are read, never mapped: a file cut short under a map is a SIGBUS, and the bytes hashed
 * must be the bytes parsed. Outputs appear whole or not at all. */
#ifndef FM_BASE_FILE_H
#define FM_BASE_FILE_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

/* The file's bytes, in the arena. FM_ERR_NOT_FOUND, FM_ERR_IO, FM_ERR_LIMIT (more than max_bytes,
 * or not a regular file). Errors carry the path as their source. */
FM_MUST_USE fm_status fm_file_read(fm_arena *arena, const char *path, size_t max_bytes,
                                   fm_bytes *ret_content, fm_error *reterr);

/* As fm_file_read; content that is gzip, xz or zstd (by its first bytes, whatever the name) is
 * unpacked to at most max_bytes. FM_ERR_CORRUPT where it is broken. */
FM_MUST_USE fm_status fm_file_read_text(fm_arena *arena, const char *path, size_t max_bytes,
                                        fm_bytes *ret_content, fm_error *reterr);

/* Writes a temporary file beside `path`, syncs it, renames it over `path` and syncs the folder. A
 * link stays: what it leads to is replaced. FM_ERR_IO where a device, a pipe or a folder is. */
FM_MUST_USE fm_status fm_file_write_atomic(const char *path, const void *data, size_t size,
                                           fm_error *reterr);

/* An output written piece by piece that appears whole or not at all: a temporary file beside `path`
 * until the commit. Opened writers must be committed or discarded; both give everything back. */
typedef struct fm_file_writer fm_file_writer;
FM_MUST_USE fm_status fm_file_writer_open(const char *path, fm_file_writer **ret_writer,
                                          fm_error *reterr);
FM_MUST_USE fm_status fm_file_writer_append(fm_file_writer *writer, const void *data, size_t size,
                                            fm_error *reterr);
/* Syncs, renames over the path, syncs the folder; on failure nothing is left but what was there. */
FM_MUST_USE fm_status fm_file_writer_commit(fm_file_writer *writer, fm_error *reterr);
/* Removes the temporary file; NULL is fine. */
void fm_file_writer_discard(fm_file_writer *writer);

/* Syncs a folder, so that renames inside it last. */
FM_MUST_USE fm_status fm_dir_sync(const char *path, fm_error *reterr);

/* Makes `path` and its missing parents. An existing folder is fine. */
FM_MUST_USE fm_status fm_dir_make(const char *path, fm_error *reterr);

#endif
