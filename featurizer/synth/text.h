/* text.h: writes a text front to back into the newest allocation of an arena.
 *
 * The writer reserves an upper bound for the whole text, which is address space only because
 * untouched pages cost nothing, and returns the rest at the end. Nothing else may be allocated in
 * between. A text longer than its bound is a bug and asserts. */
#ifndef FM_SYNTH_TEXT_H
#define FM_SYNTH_TEXT_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"

typedef struct fm_synth_text {
    fm_arena *arena;
    char *data;
    size_t size, capacity; /* bytes */
} fm_synth_text;

FM_MUST_USE fm_status fm_synth_text_begin(fm_synth_text *text, fm_arena *arena, size_t max_bytes,
                                          fm_error *reterr);
void fm_synth_text_bytes(fm_synth_text *text, const void *data, size_t size);
void fm_synth_text_char(fm_synth_text *text, char c);
void fm_synth_text_fill(fm_synth_text *text, char c, size_t count);
void fm_synth_text_string(fm_synth_text *text, const char *string);
void fm_synth_text_format(fm_synth_text *text, const char *format, ...) FM_PRINTF(2, 3);
/* Writes `thousandths` / 1000 with three decimals, padded with blanks on the right up to `width`.
 * It works on integers, so the result does not depend on the C library. */
void fm_synth_text_fixed3(fm_synth_text *text, int64_t thousandths, unsigned width);
/* Returns the text and gives the unused rest back to the arena. */
fm_bytes fm_synth_text_end(fm_synth_text *text);

#endif
