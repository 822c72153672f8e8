/* table.h: an ordered file of keys and values that several processes of one machine change: the
 * embedded catalogue's. On LMDB, behind the same door as the shards (store_lmdb.c), but with syncs
 * and locks: what was committed lasts. Local disks only. One thread at a time. */
#ifndef FM_CACHE_TABLE_H
#define FM_CACHE_TABLE_H

#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

enum { FM_TABLE_KEY_BYTES = 511 }; /* LMDB's */

typedef struct fm_table fm_table;

/* Opens the file, or makes it. FM_ERR_IO, FM_ERR_UNSUPPORTED (network file system), FM_ERR_CORRUPT
 * when the file is something else. */
FM_MUST_USE fm_status fm_table_open(const char *path, fm_table **ret_table, fm_error *reterr);
void fm_table_close(fm_table *table);

/* Begins to look, or, with `write`, to change: then no other process changes it until the end. */
FM_MUST_USE fm_status fm_table_begin(fm_table *table, bool write, fm_error *reterr);
/* Ends it: changes are kept (and synced) or, on failure, not; or are thrown away. */
FM_MUST_USE fm_status fm_table_commit(fm_table *table, fm_error *reterr);
void fm_table_abort(fm_table *table);

/* Within begin and end. Values are borrowed until the next change or the end. */
bool fm_table_get(fm_table *table, fm_bytes key, fm_bytes *ret_value);
/* The first key >= `key` and its value. */
bool fm_table_seek(fm_table *table, fm_bytes key, fm_bytes *ret_key, fm_bytes *ret_value);
/* A failure is kept and told by the commit. */
void fm_table_put(fm_table *table, fm_bytes key, fm_bytes value);
void fm_table_remove(fm_table *table, fm_bytes key);

#endif
