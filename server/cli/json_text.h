/* json_text.h: writing JSON to a stream. */
#ifndef FM_CLI_JSON_TEXT_H
#define FM_CLI_JSON_TEXT_H

#include <stdio.h>

/* `text` in quotes, with quotes, backslashes and control bytes escaped; a byte that belongs to no
 * character of UTF-8 becomes U+FFFD. */
void fm_json_print_string(FILE *out, const char *text);

#endif
