/* offer.h: the snapshots that connections can ask for, and those that some still use.
 *
 *     current    in the list that was set last; by name
 *     old        was current, or was opened for a client that resumes; by hash only
 *
 * A source is used by the connections that were told of it and by their streams. An old one without
 * users is given back after a while, so that a client that lost its connection can come back.
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

/* From now on these sources are current. Others that were become old. */
void fm_offer_set(fm_offer *offer, fm_sample_source *const *list, size_t n, uint64_t now_ms);
/* Adds an old source, unless the offer has it. */
void fm_offer_add_old(fm_offer *offer, fm_sample_source *source, uint64_t now_ms);
/* Takes an old source out that nobody has used for linger_ms; NULL when there is none. */
fm_sample_source *fm_offer_take_unused(fm_offer *offer, uint64_t now_ms, uint32_t linger_ms);

/* Finds what a HELLO asks for. FM_ERR_DENIED, which tells nothing of the server, when the token
 * (NULL: all is allowed) is not for it. FM_ERR_NOT_FOUND names only snapshots that the token
 * allows. */
FM_MUST_USE fm_status fm_offer_find(const fm_offer *offer, const fm_wire_hello *hello,
                                    const fm_access_token *token, fm_sample_source **ret_source,
                                    fm_error *reterr);
/* FM_ERR_DENIED in the cases of fm_offer_find; what else may be wrong with the HELLO is looked at
 * after this. */
FM_MUST_USE fm_status fm_offer_check_token(const fm_offer *offer, const fm_wire_hello *hello,
                                           const fm_access_token *token, fm_error *reterr);
/* True when a HELLO asks for a snapshot by its hash. */
bool fm_offer_is_by_hash(const fm_wire_hello *hello);

/* Fills the rows of at most `capacity` sources, the current ones first; returns how many. */
size_t fm_offer_describe(const fm_offer *offer, fm_report_snapshot *rows, size_t capacity);

#endif
