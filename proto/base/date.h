/* date.h: calendar days as numbers: 20180430 is 30 April 2018. Numbers compare like the days; 0
 * means no date. */
#ifndef FM_DATE_H
#define FM_DATE_H

#include <stdbool.h>
#include <stdint.h>

enum { FM_DATE_TEXT_BYTES = 11 }; /* "YYYY-MM-DD" and a terminator */

/* Returns whether the number is a day of the calendar: month 1 to 12 and a day that the month
 * has. */
bool fm_date_is(uint32_t date);

/* Converts "YYYY-MM-DD" to a number; returns 0 when the text has another form or names no day. */
uint32_t fm_date_parse(const char *text);

/* Returns the day that many days before a day; 0 when that is before the year 1. */
uint32_t fm_date_before(uint32_t date, uint32_t days);

/* Converts a number up to 99991231 to "YYYY-MM-DD". */
void fm_date_format(uint32_t date, char out[FM_DATE_TEXT_BYTES]);

#endif
