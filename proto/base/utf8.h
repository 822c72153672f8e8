/* utf8.h: finds characters of UTF-8 (RFC 3629) in bytes that may not be valid UTF-8. */
#ifndef FM_BASE_UTF8_H
#define FM_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the number of bytes of the character at `at`, of which `left` (at least 1) are available;
 * 0 when it is not a character. Overlong forms, surrogates and values above U+10FFFF are not
 * characters. */
size_t fm_utf8_size(const uint8_t *at, size_t left);

/* Returns the bytes of the byte order mark at the text's begin, which editors on Windows write: 3,
 * or 0 when there is none. */
size_t fm_utf8_mark(const uint8_t *text, size_t bytes);

/* Whether all of the bytes belong to characters. */
bool fm_utf8_is_whole(const char *text, size_t bytes);

/* Replaces every control character (U+0000 to U+001F, U+007F to U+009F) and every byte that is not
 * part of a character by '?'. A last character that is cut short is replaced too. */
void fm_utf8_make_plain(char *text);

/* Returns the bytes of the first `columns` characters of valid UTF-8, or of all if there are fewer.
 */
size_t fm_utf8_prefix(const char *text, size_t columns);

#endif
