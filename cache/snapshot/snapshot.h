/* snapshot.h: a snapshot: a named, canonical, hashed set of chains with weights. Streams of samples
 * and resume tokens name one.
 *
 *     foldmill snapshot 1
 *     chains 22
 *     256 7f0a...c1 1psm_A        weight, hash of the chain's parts (fm_store_chain_hash), name
 *     ...                         sorted by name
 *
 * Format 2 has shares. Lines "share <billionths> <dataset>" after the title say how often each
 * dataset is drawn, whatever its chains weigh. The weights then count within their dataset.
 *
 * The snapshot's hash therefore says which bytes a training run read. `foldmill build` writes the
 * snapshot "all" with the AlphaFold2 weights by length: p = max(min(N_res, 512), 256) / 512, stored
 * as the integer N_res clamped to 256..512. docs/reference/store.md. */
#ifndef FM_CACHE_SNAPSHOT_H
#define FM_CACHE_SNAPSHOT_H

#include "cache/snapshot/shares.h"
#include "cache/store/store.h"

typedef struct fm_snapshot {
    fm_sha256 hash;        /* SHA-256 of the file's bytes */
    uint32_t n_chain;      /* >= 1 */
    const uint32_t *chain; /* [n_chain] positions in the store, ascending */
    /* [n_chain] integer weights (AlphaFold2: by length; docs/reference/sampling.md), at least one
     * > 0, in each dataset with a share */
    const uint32_t *weight;
    fm_shares shares;        /* none: chains are drawn by their weights alone */
    const uint8_t *share_of; /* [n_chain] the share of each chain's dataset; NULL without shares */
} fm_snapshot;

/* Reads snapshot `name` ("all") of an open store and checks each line against the store; memory is
 * the arena's. FM_ERR_NOT_FOUND lists the existing snapshots. FM_ERR_DATA when the store lacks a
 * chain, or has other parts for it; FM_ERR_CORRUPT. */
FM_MUST_USE fm_status fm_snapshot_open(const fm_store *store, const char *name, fm_arena *arena,
                                       fm_snapshot *ret_snapshot, fm_error *reterr);

/* The bytes of snapshot `name`; only those of "all" are checked. FM_ERR_NOT_FOUND as above. */
FM_MUST_USE fm_status fm_snapshot_read(const fm_store *store, const char *name, fm_arena *arena,
                                       fm_bytes *ret_bytes, fm_error *reterr);

/* True for a name that a snapshot can have: 1 to 255 bytes, no '/', no blanks, no dot in front. */
bool fm_snapshot_is_name(const char *name);

/* AlphaFold2's sampling weight of a chain: n_res clamped to 256 .. 512. */
uint32_t fm_snapshot_weight(uint32_t n_res);

#endif
