/* archive.h: reads structures from zip archives, such as OpenProteinSet's pdb_mmcif.zip. Only
 * zip/archive.c includes zip.h.
 *
 * libzip reads the directory of the archive. Entries are unpacked here, into memory of exactly
 * the size that the directory declares. That size is compared with the caller's limit first, and
 * the content with its CRC afterwards. No path of an archive is ever written to. Encrypted
 * entries, and methods other than stored and deflate, are refused when they are read. Any number
 * of threads may read at the same time: bytes are read under a lock and unpacked outside it. */
#ifndef FM_CACHE_ARCHIVE_H
#define FM_CACHE_ARCHIVE_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

typedef struct fm_archive fm_archive;

/* Opens a zip archive. FM_ERR_NOT_FOUND, FM_ERR_IO; FM_ERR_FORMAT for any other file; FM_ERR_LIMIT
 * for more than FM_LIMIT_N_CHAIN entries; FM_ERR_UNSUPPORTED when foldmill was built without libzip
 * (no_zip/). */
FM_MUST_USE fm_status fm_archive_open(const char *path, fm_archive **ret_archive, fm_error *reterr);
void fm_archive_close(fm_archive *archive);

uint64_t fm_archive_n_entry(const fm_archive *archive);

/* The name of entry `entry`, borrowed from the archive; NULL for a folder. The bytes are as stored
 * and may be "../x": compare or show them, but never open them. */
const char *fm_archive_name(fm_archive *archive, uint64_t entry);

/* True for a name that stays below the archive's own folder: not absolute, no "..", no backslash,
 * no control byte. */
bool fm_archive_is_good_name(const char *name);

/* Declared sizes of an entry, packed and unpacked; zeros when they are unknown. */
void fm_archive_sizes(fm_archive *archive, uint64_t entry, uint64_t *ret_stored_bytes,
                      uint64_t *ret_bytes);

/* Reads the entry's content into the arena. FM_ERR_LIMIT when it declares more than max_bytes;
 * FM_ERR_UNSUPPORTED when it is encrypted or has another method; FM_ERR_CORRUPT when it does not
 * unpack to its declared size, or its CRC is wrong; FM_ERR_IO. Errors name the archive and the
 * entry. */
FM_MUST_USE fm_status fm_archive_read(fm_archive *archive, uint64_t entry, size_t max_bytes,
                                      fm_arena *arena, fm_bytes *ret_content, fm_error *reterr);

#endif
