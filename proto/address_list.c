/* address_list.c: see address_list.h. */
#include "proto/address_list.h"

#include <stdio.h>
#include <string.h>

/* Room for a scheme ("unix:", "tls://" or "tcp://") and more, so that fm_address_parse sees an
 * address that is too long and refuses it with its message. */
enum { PART_BYTES = FM_ADDRESS_TEXT_BYTES + 16 };

static const char blanks[] = " \t";

/* Returns whether the text begins with a scheme, known or not. */
static bool has_scheme(const char *part) {
    return strncmp(part, "unix:", 5) == 0 || strstr(part, "://");
}

/* Writes the scheme that an address begins with. */
static const char *scheme_of(const fm_address *address, char out[FM_ADDRESS_TEXT_BYTES]) {
    fm_address_format(address, out);
    out[address->kind == FM_ADDRESS_UNIX ? 5 : 6] = '\0';
    return out;
}

static fm_status add(fm_address_list *list, const char *part, fm_error *reterr) {
    char whole[2 * PART_BYTES], scheme[FM_ADDRESS_TEXT_BYTES] = "";
    if (list->n == FM_ADDRESS_LIST_MOST) {
        return fm_fail(reterr, FM_ERR_USAGE, "found more than %d addresses", FM_ADDRESS_LIST_MOST);
    }
    if (list->n && part[0] && !has_scheme(part)) scheme_of(&list->address[list->n - 1], scheme);
    snprintf(whole, sizeof whole, "%s%s", scheme, part);
    fm_address *address = &list->address[list->n];
    fm_status status = fm_address_parse(whole, address, reterr);
    if (status) return status;
    char text[FM_ADDRESS_TEXT_BYTES], other[FM_ADDRESS_TEXT_BYTES];
    fm_address_format(address, text);
    for (uint32_t i = 0; i < list->n; i++) {
        if (strcmp(fm_address_format(&list->address[i], other), text) != 0) continue;
        return fm_fail(reterr, FM_ERR_USAGE, "the address %s is listed twice", text);
    }
    list->n++;
    return FM_OK;
}

fm_status fm_address_list_parse(const char *text, fm_address_list *ret_list, fm_error *reterr) {
    ret_list->n = 0;
    for (const char *at = text;; at++) {
        at += strspn(at, blanks);
        size_t bytes = strcspn(at, ",");
        const char *end = at + bytes;
        while (bytes && strchr(blanks, at[bytes - 1]))
            bytes--;
        char part[PART_BYTES];
        snprintf(part, sizeof part, "%.*s", bytes < PART_BYTES ? (int)bytes : PART_BYTES - 1, at);
        fm_status status = add(ret_list, part, reterr);
        if (status) return status;
        at = end;
        if (!*at) return FM_OK;
    }
}
