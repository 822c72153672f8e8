/* markup.c: see markup.h. */
#include "proto/base/markup.h"

#include "proto/base/utf8.h"

#include <string.h>

void fm_markup_put(FILE *out, const char *text) {
    const uint8_t *at = (const uint8_t *)text;
    for (size_t left = strlen(text), size; left; at += size, left -= size) {
        size = fm_utf8_size(at, left);
        if (size == 0) {
            fputs("\xef\xbf\xbd", out); /* U+FFFD */
            size = 1;
            continue;
        }
        switch (*at) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default:
            if (*at < 0x20 || *at == 0x7f) {
                fputc(' ', out);
            } else {
                fwrite(at, 1, size, out);
            }
        }
    }
}
