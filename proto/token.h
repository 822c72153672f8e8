/* token.h: the resume token: which samples of a run were delivered.
 *
 *     delivered: every index < watermark, and watermark + k for every set bit k
 *
 * It is what a trainer keeps in its checkpoint and what OPEN carries; servers keep nothing.
 * "Delivered" means acknowledged by a checkpoint, not received. Indices are those of the whole run
 * (i = step * global_batch + slot), so the token of a run is merged over its groups, and a run may
 * go on with another number of groups. Canonical: bit 0 is clear, the last byte is not zero. */
#ifndef FM_TOKEN_H
#define FM_TOKEN_H

#include "proto/base/status.h"
#include "proto/limits.h"

#include <stdbool.h>

typedef struct fm_token {
    uint32_t epoch;        /* watermark / epoch_samples of the plan: a label, checked by the server;
                              0 while watermark is 0 */
    uint32_t bitmap_bytes; /* <= FM_LIMIT_TOKEN_BYTES; 0 = nothing beyond the watermark */
    uint64_t watermark;
    uint8_t bitmap[FM_LIMIT_TOKEN_BYTES]; /* bit k % 8 of byte k / 8 */
} fm_token;

/* True when sample `index` was delivered. */
bool fm_token_has(const fm_token *token, uint64_t index);

/* Notes that `index` was delivered and moves the watermark over what is complete. FM_ERR_LIMIT when
 * it lies too far beyond the watermark; FM_ERR_EXISTS when it was delivered before. */
FM_MUST_USE fm_status fm_token_deliver(fm_token *token, uint64_t index, fm_error *reterr);

/* Bytes of a token's text with its terminator. */
enum { FM_TOKEN_TEXT_BYTES = 2 * FM_LIMIT_TOKEN_BYTES + 64 };

/* "EPOCH WATERMARK BITMAP", the bitmap in hex or "-": what a checkpoint keeps. */
void fm_token_format(const fm_token *token, char out[FM_TOKEN_TEXT_BYTES]);
/* The inverse. FM_ERR_FORMAT for what fm_token_format does not write. */
FM_MUST_USE fm_status fm_token_parse(const char *text, fm_token *ret_token, fm_error *reterr);

/* True when the bitmap is canonical. */
bool fm_token_is_canonical(const fm_token *token);

#endif
