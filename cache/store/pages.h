/* pages.h: reads the pages of an LMDB 0.9 file without LMDB, and believes none of them.
 *
 * LMDB trusts its pages: a wrong number in one makes it read, or write, outside its map. So no file
 * that somebody else may have written reaches LMDB before its pages were checked here, and sealed
 * shards are read by this code alone. Every page is read by pread, so that a file that is cut short
 * meanwhile is an error and no SIGBUS.
 *
 * What holds after an open: both trees (free pages, entries) and those of the named databases have
 * the depth and the number of entries that their records say. Every page belongs to one of them
 * once, or is free, so there are no cycles. Nodes lie within their page, apart from each other.
 * Keys ascend, also across the keys of branch pages. Values lie within the file.
 *
 * The layout is that of 4,096-byte pages and data version 1, as lmdb 0.9 writes it on a 64-bit
 * little-endian machine. One thread at a time. */
#ifndef FM_CACHE_PAGES_H
#define FM_CACHE_PAGES_H

#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct fm_pages fm_pages;

/* Checks the two head pages of an LMDB file: magic, version, size of a page, and which of them is
 * newer. This is what LMDB reads while it opens a file. FM_ERR_CORRUPT, FM_ERR_IO. */
FM_MUST_USE fm_status fm_pages_check_heads(int fd, fm_error *reterr);

/* Reads the newest state of the file behind the borrowed descriptor, and checks it as above. With
 * `has_databases` the file is a shard with the databases "blobs" and "notes"; without, it is one
 * table. FM_ERR_CORRUPT, FM_ERR_IO, FM_ERR_NOMEM; FM_ERR_UNSUPPORTED when what should be a table
 * has databases. */
FM_MUST_USE fm_status fm_pages_open(int fd, bool has_databases, fm_pages **ret_pages,
                                    fm_error *reterr);
void fm_pages_close(fm_pages *pages);

/* The transaction that wrote the state that was opened. */
uint64_t fm_pages_transaction(const fm_pages *pages);

typedef struct fm_pages_entry {
    fm_bytes key;         /* borrowed for the call */
    uint64_t offset;      /* of the value in the file */
    uint64_t value_bytes; /* size of the value */
    bool is_apart;        /* the value has pages of its own */
    const uint8_t *near;  /* the value, where it has not */
} fm_pages_entry;

typedef fm_status (*fm_pages_see)(void *context, const fm_pages_entry *entry, fm_error *reterr);

/* Visits the entries of the named database (NULL: of the table) in the order of their keys. The
 * pages are checked again, so that a file that changed meanwhile does no harm. A status other than
 * FM_OK ends the walk. FM_ERR_CORRUPT when there is no such database. */
FM_MUST_USE fm_status fm_pages_walk(fm_pages *pages, const char *database, fm_pages_see see,
                                    void *context, uint32_t *ret_count, fm_error *reterr);

/* Within a visit: reads the first bytes of the entry's value, at most `most`. They are borrowed
 * until the next read. FM_ERR_CORRUPT, FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_pages_read(fm_pages *pages, const fm_pages_entry *entry, size_t most,
                                    fm_bytes *ret_value, fm_error *reterr);

#endif
