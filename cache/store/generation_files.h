/* generation_files.h: bytes of the manifest, index, notes and refusals of a generation; for
 * cache/generation*.c and fuzzers. Encoders take the arena for the bytes; decoders borrow theirs,
 * check every value and accept canonical bytes only. docs/formats/store.md has the byte tables. */
#ifndef FM_CACHE_GENERATION_FILES_H
#define FM_CACHE_GENERATION_FILES_H

#include "cache/store/generation.h"

FM_MUST_USE fm_status fm_manifest_encode(const fm_generation *generation,
                                         const fm_sha256 *index_hash, fm_arena *arena,
                                         fm_bytes *ret_bytes, fm_error *reterr);
/* The manifest of generation `number`: counts, hashes and shards; the other arrays are NULL.
 * FM_ERR_UNSUPPORTED for another format. */
FM_MUST_USE fm_status fm_manifest_decode(fm_bytes text, uint64_t number, fm_arena *arena,
                                         fm_generation *ret_generation, fm_sha256 *ret_index_hash,
                                         fm_error *reterr);

FM_MUST_USE fm_status fm_index_encode(const fm_generation *generation, fm_arena *arena,
                                      fm_bytes *ret_bytes, fm_error *reterr);
/* Sets chain, names, blob of *generation, whose shards and n_chain are known from the manifest.
 * bytes.data must be 64-byte aligned. */
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
