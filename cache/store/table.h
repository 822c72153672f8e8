/* table.h: an ordered file of keys and values that several processes of one machine change; the
 * embedded catalogue is one. It uses LMDB, as the shards do (store_lmdb.c), but with syncs and
 * locks: committed changes survive a crash. Local disks only. One thread at a time.
 *
 * Damage is an error: never another content, and never a crash. The value of each row is followed
 * by a check of key and value (8 bytes). One more row, under the key "~sums", has the number of the
 * others and the sum of their checks modulo 2^64, each u64. An open checks all pages (pages.h), all
 * rows and the sums; later every row that is read is checked again. A table without that row is of
 * a foldmill before these checks, or of another program, and is refused. */
#ifndef FM_CACHE_TABLE_H
#define FM_CACHE_TABLE_H

#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

enum { FM_TABLE_KEY_BYTES = 511 }; /* LMDB's limit */

typedef struct fm_table fm_table;

/* Opens the file, or makes it, and checks all of it. FM_ERR_IO; FM_ERR_UNSUPPORTED on a network
 * file system; FM_ERR_CORRUPT when the file is damaged or something else. */
FM_MUST_USE fm_status fm_table_open(const char *path, fm_table **ret_table, fm_error *reterr);
void fm_table_close(fm_table *table);

/* Begins a transaction. With `write`, no other process changes the table until it ends. */
FM_MUST_USE fm_status fm_table_begin(fm_table *table, bool write, fm_error *reterr);
/* Commit ends the transaction and syncs its changes; on failure none of them is kept. Abort
 * discards them. End is for a transaction that only reads. Commit and end report a key that could
 * not be looked up: FM_ERR_CORRUPT when the file is damaged, else FM_ERR_IO. */
FM_MUST_USE fm_status fm_table_commit(fm_table *table, fm_error *reterr);
FM_MUST_USE fm_status fm_table_end(fm_table *table, fm_error *reterr);
void fm_table_abort(fm_table *table);

/* Only within a transaction. Values are borrowed until the next change or the end. Errors are kept,
 * and commit or end returns the first one: until then, what is not found may be unreadable. */
bool fm_table_get(fm_table *table, fm_bytes key, fm_bytes *ret_value);
/* Finds the first key >= `key`; false when there is none. */
bool fm_table_seek(fm_table *table, fm_bytes key, fm_bytes *ret_key, fm_bytes *ret_value);
void fm_table_put(fm_table *table, fm_bytes key, fm_bytes value);
void fm_table_remove(fm_table *table, fm_bytes key);

#endif
