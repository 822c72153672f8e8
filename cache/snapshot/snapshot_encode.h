/* snapshot_encode.h: encodes the snapshot "all" of a new generation. */
#ifndef FM_CACHE_SNAPSHOT_ENCODE_H
#define FM_CACHE_SNAPSHOT_ENCODE_H

#include "cache/store/generation.h"

/* The bytes of a snapshot of all chains of the generation, with weight[n_chain], in the arena. */
FM_MUST_USE fm_status fm_snapshot_encode_all(const fm_generation *generation,
                                             const uint32_t *weight, fm_arena *arena,
                                             fm_bytes *ret_bytes, fm_error *reterr);

#endif
