/* decimal.c: see decimal.h. */
#include "featurizer/parse/decimal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const double power_of_ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                      1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                      1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Checks for the forms of decimal.h, because strtod also accepts hexadecimal numbers and leading
 * space. */
static bool is_number(const char *text) {
    text += *text == '+' || *text == '-';
    size_t whole = strspn(text, "0123456789");
    text += whole;
    size_t behind = 0;
    if (*text == '.') {
        behind = strspn(++text, "0123456789");
        text += behind;
    }
    if (whole + behind == 0) return false;
    if (*text == 'e' || *text == 'E') {
        text++;
        text += *text == '+' || *text == '-';
        size_t exponent = strspn(text, "0123456789");
        if (exponent == 0) return false;
        text += exponent;
    }
    return *text == '\0';
}

static bool is_special(const char *text) {
    text += *text == '+' || *text == '-';
    return strcasecmp(text, "inf") == 0 || strcasecmp(text, "infinity") == 0 ||
           strcasecmp(text, "nan") == 0;
}

static bool parse_any(const uint8_t *text, size_t size, bool specials, double *ret_value) {
    char copy[FM_DECIMAL_BYTES + 1];
    if (size == 0 || size > FM_DECIMAL_BYTES || memchr(text, '\0', size)) return false;
    memcpy(copy, text, size);
    copy[size] = '\0';
    if (!is_number(copy) && !(specials && is_special(copy))) return false;
    *ret_value = strtod(copy, NULL);
    return true;
}

bool fm_decimal_parse(const uint8_t *text, size_t size, bool specials, double *ret_value) {
    if (size == 0 || size > 17) return parse_any(text, size, specials, ret_value);
    const uint8_t *at = text, *end = text + size;
    bool negative = *at == '-';
    at += negative || *at == '+';
    uint64_t digits = 0;
    const uint8_t *whole = at;
    while (at < end && (unsigned)(*at - '0') < 10)
        digits = digits * 10 + (unsigned)(*at++ - '0');
    size_t n_digit = (size_t)(at - whole), n_behind = 0;
    if (at < end && *at == '.') {
        const uint8_t *point = ++at;
        while (at < end && (unsigned)(*at - '0') < 10)
            digits = digits * 10 + (unsigned)(*at++ - '0');
        n_behind = (size_t)(at - point);
    }
    if (at != end || n_digit + n_behind == 0 || digits > (UINT64_C(1) << 53)) {
        return parse_any(text, size, specials, ret_value);
    }
    double value = (double)digits / power_of_ten[n_behind];
    *ret_value = negative ? -value : value;
    return true;
}

bool fm_integer_parse(const uint8_t *text, size_t size, int32_t *ret_value) {
    const uint8_t *at = text, *end = text + size;
    bool negative = size > 0 && *at == '-';
    if (size > 0 && (*at == '-' || *at == '+')) at++;
    if (at == end) return false;
    int64_t value = 0;
    for (; at < end; at++) {
        if ((unsigned)(*at - '0') >= 10) return false;
        value = value * 10 + (*at - '0');
        if (value > INT32_MAX) return false;
    }
    *ret_value = (int32_t)(negative ? -value : value);
    return true;
}
