/* address_list.h: parses the addresses of one or several servers, such as `tls://a:7420,b:7420`. */
#ifndef FM_ADDRESS_LIST_H
#define FM_ADDRESS_LIST_H

#include "proto/address.h"

enum { FM_ADDRESS_LIST_MOST = 64 };

typedef struct fm_address_list {
    uint32_t n; /* at least 1 */
    fm_address address[FM_ADDRESS_LIST_MOST];
} fm_address_list;

/* Reads addresses that are separated by commas, and skips blanks around each. An address without a
 * scheme has the scheme of the one before it. A comma always separates addresses, so the path of a
 * Unix socket must not contain one. Returns FM_ERR_USAGE as fm_address_parse does, for an address
 * that is listed twice, and for more than FM_ADDRESS_LIST_MOST addresses. */
FM_MUST_USE fm_status fm_address_list_parse(const char *text, fm_address_list *ret_list,
                                            fm_error *reterr);

#endif
