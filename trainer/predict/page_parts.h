/* page_parts.h: what the pages of chains and of complexes share. */
#ifndef FM_TRAINER_PAGE_PARTS_H
#define FM_TRAINER_PAGE_PARTS_H

#include <stdio.h>

/* Begins a page: everything up to its title. A browser's tab has "NAME - KIND". `more_style` is CSS
 * after that of all pages. `script` is the only one that a browser runs; NULL: none. */
void fm_page_begin(FILE *out, const char *name, const char *kind, const char *more_style,
                   const char *script);
/* Writes a script, which has no `]]>` and no end tag. Without its own tags the page stays XML. */
void fm_page_put_script(FILE *out, const char *script);
/* Writes a table's cell with a link to a file, which has a path relative to the page's folder. */
void fm_page_put_link(FILE *out, const char *file, const char *text);

#endif
