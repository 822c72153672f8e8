/* csv.h: fields of comma-separated tables (RFC 4180). */
#ifndef FM_BASE_CSV_H
#define FM_BASE_CSV_H

#include <stdio.h>

/* Writes one field, in quotes where it needs them. A byte that belongs to no UTF-8 character
 * becomes U+FFFD. */
void fm_csv_put(FILE *out, const char *text);
/* Writes a comma and a number with so many digits behind the point; only the comma for one that is
 * not finite. */
void fm_csv_put_number(FILE *out, double value, int digits);

#endif
