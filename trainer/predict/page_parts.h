/* page_parts.h: what the pages of chains and of complexes share. */
#ifndef FM_TRAINER_PAGE_PARTS_H
#define FM_TRAINER_PAGE_PARTS_H

#include <stdio.h>

/* Begins a page: everything up to its title. `more_style` is CSS after that of all pages. */
void fm_page_begin(FILE *out, const char *name, const char *more_style);
/* Writes a table's cell with a link to a file, which has a path relative to the page's folder. */
void fm_page_put_link(FILE *out, const char *file, const char *text);

#endif
