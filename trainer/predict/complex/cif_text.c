/* cif_text.c: see cif_text.h. */
#include "trainer/predict/complex/cif_text.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

/* Whether a value may stand without quotes: no blanks, no first letter that begins something else,
 * and no word of the format itself. */
static bool is_bare(const char *value) {
    static const char *const words[] = {"data_", "save_", "loop_", "stop_", "global_"};
    if (strchr("_#$'\"[];", value[0])) return false;
    if (strcmp(value, ".") == 0 || strcmp(value, "?") == 0) return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strncasecmp(value, words[i], strlen(words[i])) == 0) return false;
    }
    for (; *value; value++) {
        if ((unsigned char)*value <= ' ' || *value == 0x7f) return false;
    }
    return true;
}

void fm_cif_put(FILE *out, const char *value) {
    if (!value[0]) {
        fputc('?', out);
        return;
    }
    if (is_bare(value)) {
        fputs(value, out);
        return;
    }
    const char *quote = !strchr(value, '\'') ? "'" : !strchr(value, '"') ? "\"" : "\n;";
    const char *end = quote[0] == '\n' ? "\n;\n" : quote;
    fputs(quote, out);
    for (; *value; value++)
        fputc(iscntrl((unsigned char)*value) ? '_' : *value, out);
    fputs(end, out);
}

void fm_cif_begin_loop(FILE *out, const char *category, const char *items) {
    fputs("loop_\n", out);
    while (*items) {
        size_t n = strcspn(items, " ");
        fprintf(out, "_%s.%.*s\n", category, (int)n, items);
        items += n + (items[n] == ' ');
    }
}

void fm_cif_put_item(FILE *out, const char *item, const char *value) {
    fprintf(out, "_%s ", item);
    fm_cif_put(out, value);
    fputc('\n', out);
}
