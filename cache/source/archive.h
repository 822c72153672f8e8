/* archive.h: zip archives of structures, as OpenProteinSet's pdb_mmcif.zip; the only file that
 * includes zip.h is archive.c.
 *
 * libzip reads the directory; entries are inflated by us, into memory of exactly the size that the
 * directory declares, which is compared with the caller's limit before, and checked by their CRC.
 * Nothing is ever written to a path that an archive names. Encrypted entries and methods other than
 * stored and deflate are refused when they are read. Any number of threads may read at once: the
 * bytes are fetched under a lock, and inflated outside of it. */
#ifndef FM_CACHE_ARCHIVE_H
#define FM_CACHE_ARCHIVE_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

typedef struct fm_archive fm_archive;

/* Opens a zip archive. FM_ERR_NOT_FOUND, FM_ERR_IO; FM_ERR_FORMAT when it is none;
 * FM_ERR_LIMIT past FM_LIMIT_N_CHAIN entries; FM_ERR_UNSUPPORTED where libzip was not found when
 * this was built (no_zip/). */
FM_MUST_USE fm_status fm_archive_open(const char *path, fm_archive **ret_archive, fm_error *reterr);
void fm_archive_close(fm_archive *archive);

uint64_t fm_archive_n_entry(const fm_archive *archive);

/* The name of entry `entry`, borrowed from the archive: of a file, never of a folder. NULL for
 * folders. Bytes as they stand: it may be "../x", and is to be shown or compared, never opened. */
const char *fm_archive_name(fm_archive *archive, uint64_t entry);

/* Could the name be that of a file below the archive's own folder? Not absolute, no "..", no
 * backslash, no control byte. */
bool fm_archive_is_good_name(const char *name);

/* Declared sizes of an entry; zeros when they are not known. */
void fm_archive_sizes(fm_archive *archive, uint64_t entry, uint64_t *ret_stored_bytes,
                      uint64_t *ret_bytes);

/* The entry's content in the arena. FM_ERR_LIMIT when it declares more than max_bytes;
 * FM_ERR_UNSUPPORTED: encrypted, or another method; FM_ERR_CORRUPT: it does not give what it
 * declares, or its CRC is wrong; FM_ERR_IO. Errors name the archive and the entry. */
FM_MUST_USE fm_status fm_archive_read(fm_archive *archive, uint64_t entry, size_t max_bytes,
                                      fm_arena *arena, fm_bytes *ret_content, fm_error *reterr);

#endif
