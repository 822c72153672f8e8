/* template_date.h: the rule that decides by release dates which templates a sample may use.
 *
 * A rule is one number, as sampling plans and the protocol carry it: a calendar day YYYYMMDD, or
 * one of the words below. docs/reference/sampling.md, section 9, says what each does. */
#ifndef FM_TEMPLATE_DATE_H
#define FM_TEMPLATE_DATE_H

#include "proto/base/date.h"

enum {
    FM_TEMPLATE_DATE_QUERY = 1, /* "query": none released after the chain's own structure */
    FM_TEMPLATE_DATE_ANY = 2,   /* "any": all, and also those whose date is not known */
};

/* Returns whether the number is a rule: one of the words, or a day of the calendar. */
bool fm_template_date_is(uint32_t rule);

/* Converts "query", "any" or "YYYY-MM-DD" to a rule; returns 0 for any other text. */
uint32_t fm_template_date_parse(const char *text);

/* Converts a rule to its text. */
void fm_template_date_format(uint32_t rule, char out[FM_DATE_TEXT_BYTES]);

#endif
