/* utf8.h: characters of UTF-8 (RFC 3629) in bytes that need not be any. */
#ifndef FM_BASE_UTF8_H
#define FM_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at `at`, of which `left` (at least 1) are there; 0 when it is none: no
 * overlong forms, no surrogates, at most U+10FFFF. */
size_t fm_utf8_size(const uint8_t *at, size_t left);

/* Puts '?' in the place of every control character (U+0000 to U+001F, U+007F to U+009F) and of
 * every byte that belongs to no character, a last one cut short among them. */
void fm_utf8_make_plain(char *text);

#endif
