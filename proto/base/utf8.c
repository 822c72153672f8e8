/* utf8.c: see utf8.h. */
#include "proto/base/utf8.h"

#include <string.h>

size_t fm_utf8_size(const uint8_t *at, size_t left) {
    uint8_t first = at[0];
    if (first < 0x80) return 1;
    if (first < 0xc2 || first > 0xf4) return 0;
    size_t n = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (n > left) return 0;
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
    }
    if (first == 0xe0 && at[1] < 0xa0) return 0;
    if (first == 0xed && at[1] >= 0xa0) return 0;
    if (first == 0xf0 && at[1] < 0x90) return 0;
    if (first == 0xf4 && at[1] >= 0x90) return 0;
    return n;
}

static bool is_control(const uint8_t *at, size_t n) {
    return n == 1 ? at[0] < 0x20 || at[0] == 0x7f : n == 2 && at[0] == 0xc2 && at[1] < 0xa0;
}

size_t fm_utf8_mark(const uint8_t *text, size_t bytes) {
    return bytes >= 3 && text[0] == 0xEF && text[1] == 0xBB && text[2] == 0xBF ? 3 : 0;
}

bool fm_utf8_is_whole(const char *text, size_t bytes) {
    for (size_t at = 0, size; at < bytes; at += size) {
        size = fm_utf8_size((const uint8_t *)text + at, bytes - at);
        if (size == 0) return false;
    }
    return true;
}

void fm_utf8_make_plain(char *text) {
    uint8_t *at = (uint8_t *)text;
    for (size_t left = strlen(text), n; left; left -= n, at += n) {
        n = fm_utf8_size(at, left);
        if (n && !is_control(at, n)) continue;
        if (!n) n = 1;
        memset(at, '?', n);
    }
}

size_t fm_utf8_prefix(const char *text, size_t columns) {
    size_t at = 0;
    for (size_t used = 0; text[at] && used < columns; used++)
        at += fm_utf8_size((const uint8_t *)text + at, strlen(text + at));
    return at;
}
