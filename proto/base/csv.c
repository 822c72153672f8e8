/* csv.c: see csv.h. */
#include "proto/base/csv.h"

#include <string.h>

void fm_csv_put(FILE *out, const char *text) {
    if (!strpbrk(text, ",\"\n\r")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++)
        fputs(*text == '"' ? "\"\"" : (const char[]){*text, '\0'}, out);
    fputc('"', out);
}
