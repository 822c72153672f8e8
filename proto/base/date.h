/* date.h: days of the calendar as numbers: 20180430 is 30 April 2018. Numbers compare as the days
 * do; 0 is no date. */
#ifndef FM_DATE_H
#define FM_DATE_H

#include <stdbool.h>
#include <stdint.h>

enum { FM_DATE_TEXT_BYTES = 11 }; /* "YYYY-MM-DD" and a terminator */

/* Whether the number has a month of 1 to 12 and a day that the month can have. */
bool fm_date_is(uint32_t date);

/* "YYYY-MM-DD" as a number; 0 when the text is not of that form or names no day. */
uint32_t fm_date_parse(const char *text);

/* The other way, for any number up to 9999 12 31. */
void fm_date_format(uint32_t date, char out[FM_DATE_TEXT_BYTES]);

#endif
