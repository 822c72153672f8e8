/* decimal.h: converts decimal text to the nearest double, exactly like a correctly rounding strtod.
 *
 * The fast path needs a plain decimal whose digits form an integer of at most 2^53, with at most 22
 * of them after the point. Its value is the quotient of two exact doubles, and one IEEE division
 * rounds it correctly (Clinger 1990). Everything else goes to strtod, which glibc rounds correctly.
 * foldmill's programs never leave the C locale. */
#ifndef FM_PARSE_DECIMAL_H
#define FM_PARSE_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FM_DECIMAL_BYTES = 63 }; /* longer numbers are refused */

/* Accepts [+-] digits [. digits] [e [+-] digits] with at least one digit before the exponent and
 * nothing else. With `specials` it also accepts inf, infinity and nan in any case. On false
 * *ret_value is unchanged. */
bool fm_decimal_parse(const uint8_t *text, size_t size, bool specials, double *ret_value);

/* Accepts [+-] digits within int32. On false *ret_value is unchanged. */
bool fm_integer_parse(const uint8_t *text, size_t size, int32_t *ret_value);

#endif
