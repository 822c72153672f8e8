/* snapshot_text.h: encodes and decodes the bytes of a snapshot, without a cache.
 * docs/formats/store.md. */
#ifndef FM_CACHE_SNAPSHOT_TEXT_H
#define FM_CACHE_SNAPSHOT_TEXT_H

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
} fm_snapshot_text;

/* Decodes canonical bytes; memory is the arena's. FM_ERR_CORRUPT with the line. */
FM_MUST_USE fm_status fm_snapshot_decode(fm_bytes bytes, fm_arena *arena,
                                         fm_snapshot_text *ret_text, fm_error *reterr);

/* Encodes lines, which must be sorted and have a weight above 0 among them. FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_snapshot_encode(const fm_snapshot_text *text, fm_arena *arena,
                                         fm_bytes *ret_bytes, fm_error *reterr);

#endif
