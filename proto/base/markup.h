/* markup.h: text in SVG and HTML. */
#ifndef FM_BASE_MARKUP_H
#define FM_BASE_MARKUP_H

#include <stdio.h>

/* Writes text of any bytes so that the document is well formed. Characters that have a meaning
 * are escaped, and control characters become blanks. Bytes that belong to no UTF-8 character
 * become U+FFFD. */
void fm_markup_put(FILE *out, const char *text);

#endif
