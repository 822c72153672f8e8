/* decimal.h: decimal text to the nearest double, exactly as a correctly rounding strtod.
 *
 * A plain decimal whose digits make an integer of at most 2^53 and that has at most 22 of them
 * behind the point is the quotient of two exact doubles, so one IEEE division rounds it correctly
 * (Clinger 1990). Everything else goes to strtod, which glibc rounds correctly; the programs of
 * foldmill never leave the C locale. */
#ifndef FM_PARSE_DECIMAL_H
#define FM_PARSE_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FM_DECIMAL_BYTES = 63 }; /* longer numbers are refused */

/* [+-] digits [. digits] [e [+-] digits], at least one digit before the exponent, nothing else;
 * also inf, infinity and nan (any case) when `specials` is set. false leaves *ret_value alone. */
bool fm_decimal_parse(const uint8_t *text, size_t size, bool specials, double *ret_value);

/* [+-] digits, within int32. false leaves *ret_value alone. */
bool fm_integer_parse(const uint8_t *text, size_t size, int32_t *ret_value);

#endif
