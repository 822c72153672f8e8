/* offer.h: the snapshots that connections can ask for, and those that some still use.
 *
 *     current    in the list that was set last; by name
 *     old        was current, or was opened for a client that resumes; by hash only
 *
 * The users of a source are the connections whose WELCOME named it, and their streams. An old
 * source without users is kept for a while before it is given back, so that a client that lost its
 * connection can return to it.
 *
 * The first current snapshot that a token allows is served to a client that asks for none. What a
 * token does not allow is refused in the same words whether it exists or not.
 *
 * All functions are called on the thread of the loop. */
#ifndef FM_SERVER_OFFER_H
#define FM_SERVER_OFFER_H

#include "server/access_tokens.h"
#include "server/source.h"
#include "server/web/report.h"

#include <stdbool.h>

typedef struct fm_offer {
    fm_sample_source *current, *old; /* linked by next; the old ones newest first */
    uint32_t n_current, n_old;
} fm_offer;

/* Makes these sources the current ones. Other sources that were current become old. */
void fm_offer_set(fm_offer *offer, fm_sample_source *const *list, size_t n, uint64_t now_ms);
/* Adds an old source, unless the offer has it. */
void fm_offer_add_old(fm_offer *offer, fm_sample_source *source, uint64_t now_ms);
/* Removes and returns an old source that had no users for linger_ms; NULL when there is none. */
fm_sample_source *fm_offer_take_unused(fm_offer *offer, uint64_t now_ms, uint32_t linger_ms);

/* Finds the snapshot that a HELLO asks for. FM_ERR_DENIED when the token (NULL: all is allowed) is
 * not for it; the message tells nothing about the server. FM_ERR_NOT_FOUND names only snapshots
 * that the token allows. */
FM_MUST_USE fm_status fm_offer_find(const fm_offer *offer, const fm_wire_hello *hello,
                                    const fm_access_token *token, fm_sample_source **ret_source,
                                    fm_error *reterr);
/* Returns FM_ERR_DENIED in the cases of fm_offer_find. Call it before any other check of the HELLO,
 * so that a client without rights learns nothing. */
FM_MUST_USE fm_status fm_offer_check_token(const fm_offer *offer, const fm_wire_hello *hello,
                                           const fm_access_token *token, fm_error *reterr);
/* True when a HELLO asks for a snapshot by its hash. */
bool fm_offer_is_by_hash(const fm_wire_hello *hello);

/* Fills the rows of at most `capacity` sources, the current ones first; returns how many. */
size_t fm_offer_describe(const fm_offer *offer, fm_report_snapshot *rows, size_t capacity);

#endif
