/* shares.h: how often each dataset of a snapshot is drawn, independent of its chains and their
 * weights. docs/reference/sampling.md, section 4.
 *
 * A share is a whole number of billionths, so that every draw is made in integers. The shares of a
 * snapshot are sorted by the names of the datasets and add up to FM_SHARE_ONE. */
#ifndef FM_CACHE_SHARES_H
#define FM_CACHE_SHARES_H

#include "proto/base/arena.h"
#include "proto/base/status.h"

#include <stdbool.h>

enum {
    FM_SHARE_ONE = 1000000000,
    FM_SHARE_TEXT_BYTES = 12, /* "0.123456789" and a terminator */
};

#define FM_NO_SHARE UINT32_MAX

typedef struct fm_share {
    uint32_t billionths; /* 1 .. FM_SHARE_ONE */
    const char *dataset; /* the prefix of its chains' names, without the colon; "" = none */
} fm_share;

typedef struct fm_shares {
    uint32_t n; /* at most FM_LIMIT_N_SHARE; 0 = chains are drawn by their weights alone */
    const fm_share *share;
} fm_shares;

/* Reads "NAME=P" for each dataset, P a decimal of at most nine places; memory is the arena's, the
 * names are copied. FM_ERR_USAGE for a text of another form, a dataset named twice, more than
 * FM_LIMIT_N_SHARE of them, or shares that do not add up to 1. */
FM_MUST_USE fm_status fm_shares_parse(const char *const *text, uint32_t n, fm_arena *arena,
                                      fm_shares *ret_shares, fm_error *reterr);

/* True for shares in the canonical form: sorted, each above 0, their sum FM_SHARE_ONE; or none. */
bool fm_shares_are_canonical(const fm_shares *shares);

/* The position of the share whose dataset the chain is of, or FM_NO_SHARE. */
uint32_t fm_shares_find(const fm_shares *shares, const char *chain);

/* Writes a share as a decimal without trailing zeros: "0.25", "1". */
void fm_share_format(uint32_t billionths, char out[FM_SHARE_TEXT_BYTES]);

#endif
