/* csv.c: see csv.h. */
#include "proto/base/csv.h"

#include "proto/base/utf8.h"

#include <math.h>
#include <string.h>

void fm_csv_put(FILE *out, const char *text) {
    const char *quote = strpbrk(text, ",\"\n\r") ? "\"" : "";
    fputs(quote, out);
    const uint8_t *at = (const uint8_t *)text;
    for (size_t left = strlen(text), size; left; at += size, left -= size) {
        size = fm_utf8_size(at, left);
        if (*at == '"') fputc('"', out);
        if (size) {
            fwrite(at, 1, size, out);
        } else {
            fputs("\xef\xbf\xbd", out); /* U+FFFD */
            size = 1;
        }
    }
    fputs(quote, out);
}

void fm_csv_put_number(FILE *out, double value, int digits) {
    if (isfinite(value)) {
        fprintf(out, ",%.*f", digits, value);
    } else {
        fputc(',', out);
    }
}
