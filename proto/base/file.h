/* file.h: reads and writes whole files.
 *
 * Inputs are read, never mapped: a mapped file that is truncated raises SIGBUS, and the bytes that
 * are hashed must be the bytes that are parsed. Outputs appear whole or not at all. */
#ifndef FM_BASE_FILE_H
#define FM_BASE_FILE_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

/* Reads a file into the arena. FM_ERR_NOT_FOUND; FM_ERR_IO, also for anything but a regular file;
 * FM_ERR_LIMIT for more than max_bytes, or than the arena holds. Errors have the path as their
 * source. */
FM_MUST_USE fm_status fm_file_read(fm_arena *arena, const char *path, size_t max_bytes,
                                   fm_bytes *ret_content, fm_error *reterr);

/* Opens a regular file for reading; *ret_bytes is its size. It is looked at before it is opened,
 * because opening a pipe or a device could wait or do something. FM_ERR_NOT_FOUND; FM_ERR_IO, also
 * for anything but a regular file. The caller closes *ret_fd. */
FM_MUST_USE fm_status fm_file_open(const char *path, int *ret_fd, uint64_t *ret_bytes,
                                   fm_error *reterr);

/* As fm_file_read; content that is gzip, xz or zstd (by its first bytes, whatever the name) is
 * unpacked to at most max_bytes. FM_ERR_CORRUPT when it is broken. */
FM_MUST_USE fm_status fm_file_read_text(fm_arena *arena, const char *path, size_t max_bytes,
                                        fm_bytes *ret_content, fm_error *reterr);

/* Writes a temporary file beside `path`, syncs it, renames it to `path` and syncs the folder. A
 * symbolic link stays, and its target is replaced. FM_ERR_IO when a device, a pipe or a folder is
 * at `path`. */
FM_MUST_USE fm_status fm_file_write_atomic(const char *path, const void *data, size_t size,
                                           fm_error *reterr);

/* The same without syncing, for files that are made again after a crash of the machine. A kill of
 * the process leaves the file whole, or as it was before. */
FM_MUST_USE fm_status fm_file_write_unsynced(const char *path, const void *data, size_t size,
                                             fm_error *reterr);

/* Refuses the --out of a command that is the file that it reads, by whatever names: writing would
 * replace what the user gave. FM_ERR_USAGE. Where a path cannot be looked at, reading or writing
 * it will say why. */
FM_MUST_USE fm_status fm_file_refuse_input(const char *output, const char *input, fm_error *reterr);

/* Looks whether the --out of a command is an earlier file (*ret_is_old): FM_ERR_EXISTS if it is,
 * unless the user gave --replace. FM_ERR_IO. What is there and is no regular file is left to the
 * writer, which refuses it. */
FM_MUST_USE fm_status fm_file_find_old(const char *output, bool replace, bool *ret_is_old,
                                       fm_error *reterr);

/* An output that is written in pieces and appears whole or not at all: a temporary file beside
 * `path` until the commit. Each opened writer must be committed or discarded, and either frees it.
 */
typedef struct fm_file_writer fm_file_writer;
FM_MUST_USE fm_status fm_file_writer_open(const char *path, fm_file_writer **ret_writer,
                                          fm_error *reterr);
/* As fm_file_writer_open; only the owner can read the file (mode 0600). */
FM_MUST_USE fm_status fm_file_writer_open_secret(const char *path, fm_file_writer **ret_writer,
                                                 fm_error *reterr);
FM_MUST_USE fm_status fm_file_writer_append(fm_file_writer *writer, const void *data, size_t size,
                                            fm_error *reterr);
/* Syncs, renames to the path, syncs the folder. On failure the previous file stays, and nothing
 * else; only when the folder cannot be synced, the new file is in place already. */
FM_MUST_USE fm_status fm_file_writer_commit(fm_file_writer *writer, fm_error *reterr);
/* Commits two files that belong together. Both are synced before the first takes its place. On
 * failure both previous files stay; only when a folder cannot be synced, or the old first file
 * cannot be removed, both new files are in place already. A kill between the two renames leaves the
 * new first file beside the old second. */
FM_MUST_USE fm_status fm_file_writer_commit_pair(fm_file_writer *first, fm_file_writer *second,
                                                 fm_error *reterr);
/* Removes the temporary file; NULL is fine. */
void fm_file_writer_discard(fm_file_writer *writer);

/* Syncs a folder, so that renames in it survive a crash. */
FM_MUST_USE fm_status fm_dir_sync(const char *path, fm_error *reterr);

/* Makes `path` and its missing parents. An existing folder is fine. FM_ERR_IO, FM_ERR_NOT_FOUND. */
FM_MUST_USE fm_status fm_dir_make(const char *path, fm_error *reterr);

/* The same. *ret_existed, which is set on failure too, is the length of the part of the path that
 * existed before. fm_dir_unmake removes the folders after it again, from the deepest one, as far as
 * they are empty. */
FM_MUST_USE fm_status fm_dir_make_noting(const char *path, size_t *ret_existed, fm_error *reterr);
void fm_dir_unmake(const char *path, size_t existed);

#endif
