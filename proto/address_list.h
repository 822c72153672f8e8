/* address_list.h: one or several servers as a user writes them: `tls://a:7420,b:7420`. */
#ifndef FM_ADDRESS_LIST_H
#define FM_ADDRESS_LIST_H

#include "proto/address.h"

enum { FM_ADDRESS_LIST_MOST = 64 };

typedef struct fm_address_list {
    uint32_t n; /* at least 1 */
    fm_address address[FM_ADDRESS_LIST_MOST];
} fm_address_list;

/* Reads addresses with commas between them; blanks around an address are skipped. One that begins
 * with no scheme has the scheme of the one before it. The path of a unix socket in a list therefore
 * has no comma. FM_ERR_USAGE: as fm_address_parse, for an address that is there twice, and for more
 * than FM_ADDRESS_LIST_MOST. */
FM_MUST_USE fm_status fm_address_list_parse(const char *text, fm_address_list *ret_list,
                                            fm_error *reterr);

#endif
