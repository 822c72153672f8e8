/* date.c: see date.h. */
#include "proto/base/date.h"

#include <stdio.h>
#include <string.h>

static uint32_t days_in(uint32_t year, uint32_t month) {
    static const uint8_t days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return (uint32_t)(days[month - 1] - (month == 2 && !leap));
}

bool fm_date_is(uint32_t date) {
    uint32_t year = date / 10000, month = date / 100 % 100, day = date % 100;
    if (year < 1 || year > 9999 || month < 1 || month > 12 || day < 1) return false;
    return day <= days_in(year, month);
}

uint32_t fm_date_before(uint32_t date, uint32_t days) {
    uint32_t year = date / 10000, month = date / 100 % 100, day = date % 100;
    while (days >= day) {
        days -= day;
        month--;
        if (month == 0) {
            month = 12;
            year--;
        }
        if (year == 0) return 0;
        day = days_in(year, month);
    }
    return year * 10000 + month * 100 + day - days;
}

uint32_t fm_date_parse(const char *text) {
    static const char form[] = "0000-00-00";
    if (strlen(text) != sizeof form - 1) return 0;
    uint32_t date = 0;
    for (size_t i = 0; form[i]; i++) {
        bool digit = text[i] >= '0' && text[i] <= '9';
        if (form[i] == '0' ? !digit : text[i] != form[i]) return 0;
        if (digit) date = date * 10 + (uint32_t)(text[i] - '0');
    }
    return fm_date_is(date) ? date : 0;
}

void fm_date_format(uint32_t date, char out[FM_DATE_TEXT_BYTES]) {
    snprintf(out, FM_DATE_TEXT_BYTES, "%04u-%02u-%02u", date / 10000 % 10000, date / 100 % 100,
             date % 100);
}
