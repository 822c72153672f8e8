/* token.h: the resume token: which samples of a run were delivered.
 *
 *     delivered: every index < watermark, and watermark + k for every set bit k
 *
 * A trainer keeps the token in its checkpoint and sends it in OPEN; servers keep nothing.
 * "Delivered" means covered by a checkpoint, not merely received. Indices are those of the whole
 * run (step * global_batch + slot). The tokens of all groups of a run are therefore merged into
 * one, and a run can continue with a different number of groups. The canonical form has bit 0 clear
 * and a last byte that is not zero. */
#ifndef FM_TOKEN_H
#define FM_TOKEN_H

#include "proto/base/status.h"
#include "proto/limits.h"

#include <stdbool.h>

typedef struct fm_token {
    /* Watermark / epoch_samples of the plan, which the server checks; 0 while watermark is 0. */
    uint32_t epoch;
    uint32_t bitmap_bytes; /* <= FM_LIMIT_TOKEN_BYTES; 0 = no sample beyond the watermark */
    uint64_t watermark;
    uint8_t bitmap[FM_LIMIT_TOKEN_BYTES]; /* bit k % 8 of byte k / 8 */
} fm_token;

/* True when sample `index` was delivered. */
bool fm_token_has(const fm_token *token, uint64_t index);

/* How many samples were delivered. */
uint64_t fm_token_count(const fm_token *token);

/* Records that `index` was delivered, and moves the watermark over all delivered samples that
 * follow it. FM_ERR_LIMIT when the index is too far beyond the watermark; FM_ERR_EXISTS when it was
 * delivered before. */
FM_MUST_USE fm_status fm_token_deliver(fm_token *token, uint64_t index, fm_error *reterr);

/* Moves the watermark to `watermark`, which is at least the present one, so that every index below
 * it counts as delivered. The sample of that index itself was not delivered. */
void fm_token_advance(fm_token *token, uint64_t watermark);

/* The size of a token's text, with its terminator. */
enum { FM_TOKEN_TEXT_BYTES = 2 * FM_LIMIT_TOKEN_BYTES + 64 };

/* Writes "EPOCH WATERMARK BITMAP", with the bitmap in hex or "-", for a checkpoint. */
void fm_token_format(const fm_token *token, char out[FM_TOKEN_TEXT_BYTES]);
/* Reads what fm_token_format writes; FM_ERR_FORMAT for anything else. */
FM_MUST_USE fm_status fm_token_parse(const char *text, fm_token *ret_token, fm_error *reterr);

/* True when the bitmap is canonical. */
bool fm_token_is_canonical(const fm_token *token);

#endif
