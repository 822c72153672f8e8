/* item_note.h: the results of an item of a shared job, as a note in a shard of the worker that made
 * it. Shards alone therefore say which parts each chain has; a merge and a rebuilt catalogue read
 * this.
 *
 *     key    SHA-256("foldmill item 1\n", job, zero byte, item, zero byte, attempt u32)
 *     value  docs/reference/store.md, "Notes of items"
 *
 * The attempt is in the key, because only the note of the attempt that the catalogue took counts.
 */
#ifndef FM_CACHE_ITEM_NOTE_H
#define FM_CACHE_ITEM_NOTE_H

#include "cache/build/build_work.h"

typedef struct fm_item_note {
    const char *job, *item;
    fm_sha256 options, source; /* of the job, and of the item (catalogue.h) */
    uint32_t attempt;
    uint32_t n_result;
    const fm_build_result *result; /* [n_result]; `reused` and `item` are not stored */
} fm_item_note;

/* Makes the summary of a complex's result, on the heap: what a generation has of a complex beside
 * its parts. FM_ERR_NOMEM, and that of a full arena. */
FM_MUST_USE fm_status fm_item_note_summarize(const fm_build_complex_note *note, fm_arena *arena,
                                             fm_bytes *ret_summary, fm_error *reterr);

fm_sha256 fm_item_note_key(const char *job, const char *item, uint32_t attempt);

/* Encodes the note on the heap; the caller frees ret_bytes->data. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_item_note_encode(const fm_item_note *note, fm_bytes *ret_bytes,
                                          fm_error *reterr);

/* Decodes into the arena, and borrows from the bytes. Complexes have their facts and their rows.
 * FM_ERR_FORMAT for any other bytes, such as other notes. */
FM_MUST_USE fm_status fm_item_note_decode(fm_bytes bytes, fm_arena *arena, fm_item_note *ret_note,
                                          fm_error *reterr);

#endif
