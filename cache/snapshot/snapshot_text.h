/* snapshot_text.h: encodes and decodes the bytes of a snapshot, without a cache.
 * docs/reference/store.md. */
#ifndef FM_CACHE_SNAPSHOT_TEXT_H
#define FM_CACHE_SNAPSHOT_TEXT_H

#include "cache/snapshot/shares.h"
#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/hash.h"

typedef struct fm_snapshot_line {
    uint32_t weight;
    fm_sha256 parts; /* hash of the chain's parts */
    const char *name;
} fm_snapshot_line;

typedef struct fm_snapshot_text {
    uint32_t n_line;              /* >= 1 */
    const fm_snapshot_line *line; /* [n_line] ascending by name */
    fm_shares shares;             /* with shares, every chain is of a dataset that has one */
} fm_snapshot_text;

/* Decodes canonical bytes of format 1 (no shares) or 2; memory is the arena's. FM_ERR_CORRUPT with
 * the line. */
FM_MUST_USE fm_status fm_snapshot_decode(fm_bytes bytes, fm_arena *arena,
                                         fm_snapshot_text *ret_text, fm_error *reterr);

/* Encodes lines, which must be sorted and have a weight above 0 among them, in each dataset with a
 * share. The format is 1 without shares, else 2. FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_snapshot_encode(const fm_snapshot_text *text, fm_arena *arena,
                                         fm_bytes *ret_bytes, fm_error *reterr);

/* The line of the file, from 1, that chain i is on. */
uint32_t fm_snapshot_line_number(const fm_snapshot_text *text, uint32_t i);

#endif
