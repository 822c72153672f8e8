/* table.h: an ordered file of keys and values that several processes of one machine change; the
 * embedded catalogue is one. It uses LMDB, as the shards do (store_lmdb.c), but with syncs and
 * locks: committed changes survive a crash. Local disks only. One thread at a time. */
#ifndef FM_CACHE_TABLE_H
#define FM_CACHE_TABLE_H

#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

enum { FM_TABLE_KEY_BYTES = 511 }; /* LMDB's limit */

typedef struct fm_table fm_table;

/* Opens the file, or makes it. FM_ERR_IO; FM_ERR_UNSUPPORTED on a network file system;
 * FM_ERR_CORRUPT when the file is something else. */
FM_MUST_USE fm_status fm_table_open(const char *path, fm_table **ret_table, fm_error *reterr);
void fm_table_close(fm_table *table);

/* Begins a transaction. With `write`, no other process changes the table until it ends. */
FM_MUST_USE fm_status fm_table_begin(fm_table *table, bool write, fm_error *reterr);
/* Commit ends the transaction and syncs its changes; on failure none of them is kept. Abort
 * discards them. */
FM_MUST_USE fm_status fm_table_commit(fm_table *table, fm_error *reterr);
void fm_table_abort(fm_table *table);

/* Only within a transaction. Values are borrowed until the next change or the end. */
bool fm_table_get(fm_table *table, fm_bytes key, fm_bytes *ret_value);
/* Finds the first key >= `key`; false when there is none. */
bool fm_table_seek(fm_table *table, fm_bytes key, fm_bytes *ret_key, fm_bytes *ret_value);
/* Errors are kept, and the commit returns the first one. */
void fm_table_put(fm_table *table, fm_bytes key, fm_bytes value);
void fm_table_remove(fm_table *table, fm_bytes key);

#endif
