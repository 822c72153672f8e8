/* cif_text.h: writes values of mmCIF for the files of complexes. */
#ifndef FM_COMPLEX_CIF_TEXT_H
#define FM_COMPLEX_CIF_TEXT_H

#include <stdio.h>

/* Writes a value bare where the format allows it, else in quotes, else as a text field of its own
 * lines. An empty one is `?`. Control bytes become '_'. */
void fm_cif_put(FILE *out, const char *value);

/* Writes "loop_" and the items of a category, separated by blanks in `items`. */
void fm_cif_begin_loop(FILE *out, const char *category, const char *items);

/* Writes "_category.item value". */
void fm_cif_put_item(FILE *out, const char *item, const char *value);

#endif
