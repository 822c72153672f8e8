/* json_text.c: see json_text.h. */
#include "server/cli/json_text.h"

#include "proto/base/utf8.h"

#include <string.h>

void fm_json_print_string(FILE *out, const char *text) {
    const uint8_t *at = (const uint8_t *)text;
    size_t left = strlen(text);
    fputc('"', out);
    while (left) {
        size_t size = fm_utf8_size(at, left);
        if (size == 0)
            fputs("\\ufffd", out); /* a byte of no character */
        else if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7f)
            fprintf(out, "\\u%04x", *at);
        else
            fwrite(at, 1, size, out);
        size = size ? size : 1;
        at += size;
        left -= size;
    }
    fputc('"', out);
}
