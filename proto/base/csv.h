/* csv.h: fields of comma-separated tables (RFC 4180). */
#ifndef FM_BASE_CSV_H
#define FM_BASE_CSV_H

#include <stdio.h>

/* Writes one field, in quotes where it needs them. */
void fm_csv_put(FILE *out, const char *text);

#endif
