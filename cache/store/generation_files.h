/* generation_files.h: encoding and decoding of a generation's manifest, index, notes and refusals.
 *
 * Encoders write into the arena. Decoders borrow from the bytes, check every value and accept
 * canonical bytes only: FM_ERR_CORRUPT for anything else. The byte tables are in
 * docs/formats/store.md. */
#ifndef FM_CACHE_GENERATION_FILES_H
#define FM_CACHE_GENERATION_FILES_H

#include "cache/store/generation.h"

FM_MUST_USE fm_status fm_manifest_encode(const fm_generation *generation,
                                         const fm_sha256 *index_hash, fm_arena *arena,
                                         fm_bytes *ret_bytes, fm_error *reterr);
/* Reads the manifest of generation `number`: counts, hashes and shards. The other arrays of
 * *ret_generation are NULL. FM_ERR_UNSUPPORTED for another format. */
FM_MUST_USE fm_status fm_manifest_decode(fm_bytes text, uint64_t number, fm_arena *arena,
                                         fm_generation *ret_generation, fm_sha256 *ret_index_hash,
                                         fm_error *reterr);

FM_MUST_USE fm_status fm_index_encode(const fm_generation *generation, fm_arena *arena,
                                      fm_bytes *ret_bytes, fm_error *reterr);
/* Sets chain, names and blob of *generation, whose shards and n_chain come from the manifest.
 * bytes.data must be aligned to 64 bytes. */
FM_MUST_USE fm_status fm_index_decode(fm_bytes bytes, fm_generation *generation, fm_error *reterr);

FM_MUST_USE fm_status fm_notes_encode(const fm_generation *generation, fm_arena *arena,
                                      fm_bytes *ret_bytes, fm_error *reterr);
FM_MUST_USE fm_status fm_notes_decode(fm_bytes bytes, fm_arena *arena, fm_generation *generation,
                                      fm_error *reterr);

FM_MUST_USE fm_status fm_refusals_encode(const fm_generation *generation, fm_arena *arena,
                                         fm_bytes *ret_bytes, fm_error *reterr);
FM_MUST_USE fm_status fm_refusals_decode(fm_bytes bytes, fm_arena *arena, fm_generation *generation,
                                         fm_error *reterr);

#endif
