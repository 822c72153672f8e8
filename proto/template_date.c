/* template_date.c: see template_date.h. */
#include "proto/template_date.h"

#include <stdio.h>
#include <string.h>

bool fm_template_date_is(uint32_t rule) {
    return rule == FM_TEMPLATE_DATE_QUERY || rule == FM_TEMPLATE_DATE_ANY || fm_date_is(rule);
}

uint32_t fm_template_date_parse(const char *text) {
    if (strcmp(text, "query") == 0) return FM_TEMPLATE_DATE_QUERY;
    if (strcmp(text, "any") == 0) return FM_TEMPLATE_DATE_ANY;
    return fm_date_parse(text);
}

void fm_template_date_format(uint32_t rule, char out[FM_DATE_TEXT_BYTES]) {
    if (rule == FM_TEMPLATE_DATE_QUERY || rule == FM_TEMPLATE_DATE_ANY) {
        snprintf(out, FM_DATE_TEXT_BYTES, "%s", rule == FM_TEMPLATE_DATE_ANY ? "any" : "query");
    } else {
        fm_date_format(rule, out);
    }
}
