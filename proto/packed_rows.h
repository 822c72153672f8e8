/* packed_rows.h: the codes of MSA rows on the wire: classes in five bits, and few counts among many
 * zeros.
 *
 * Both codes are canonical: an array has one packed form, and anything else is refused.
 * docs/reference/wire.md has their bits. */
#ifndef FM_PACKED_ROWS_H
#define FM_PACKED_ROWS_H

#include "proto/base/bytes.h"
#include "proto/schema.h"

/* Returns the bytes of n packed values. `packing` is not FM_PLAIN. */
size_t fm_packed_bytes(fm_packing packing, const uint8_t *values, size_t n);

/* Returns the most bytes that n values take; n is at most SIZE_MAX / 5. */
size_t fm_packed_most_bytes(fm_packing packing, size_t n);

/* Writes exactly fm_packed_bytes(packing, values, n) bytes to `out`. Classes must be below 32. */
void fm_packed_encode(fm_packing packing, const uint8_t *values, size_t n, uint8_t *out);

/* Writes the n values to `out`. Returns false unless the bytes are what fm_packed_encode writes of
 * them; then `out` is undefined. */
bool fm_packed_decode(fm_packing packing, fm_bytes packed, size_t n, uint8_t *out);

#endif
