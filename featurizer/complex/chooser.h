/* chooser.h: decides which complex of a snapshot is sample i, and which of its chains or interfaces
 * the sample is of. docs/reference/sampling.md, section 12. */
#ifndef FM_COMPLEX_CHOOSER_H
#define FM_COMPLEX_CHOOSER_H

#include "featurizer/sample/plan.h"
#include "proto/complex_rows.h"

/* Computes the weights of records among those given: 2^29 times those of fm_complex_records_weigh,
 * rounded down, and at least 1. Records with an ion have weight 0. The arena is used for work only.
 * Returns FM_ERR_LIMIT when it is full. */
FM_MUST_USE fm_status fm_complex_rows_weigh(const fm_complex_row *rows, uint32_t n,
                                            uint32_t *ret_weights, fm_arena *arena,
                                            fm_error *reterr);

/* What is drawn from. Everything is borrowed as long as the chooser is, except that the shares are
 * only while it is made. */
typedef struct fm_complex_choice {
    const fm_complex_row *rows; /* [n_row] of the whole cache, by item */
    const uint32_t *items; /* [n_item] the snapshot's complexes, ascending items of the cache */
    uint32_t n_row, n_item;
    const fm_chooser_shares *shares; /* of_chain is of the items; NULL for none */
} fm_complex_choice;

/* It is built once per (order, snapshot), is immutable and may be shared by threads. */
typedef struct fm_complex_chooser fm_complex_chooser;

/* The order FM_ORDER_WEIGHTED draws records by their weights; the others take the items, and draw
 * one of the item's records by their weights. Items of which no record has a weight take no part.
 * Returns FM_ERR_DATA when there is none, or none in one of the datasets; FM_ERR_LIMIT for more
 * than FM_LIMIT_N_CHAIN records with a weight; FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_complex_chooser_create(const fm_plan *plan,
                                                const fm_complex_choice *choice,
                                                fm_complex_chooser **ret_chooser, fm_error *reterr);
void fm_complex_chooser_destroy(fm_complex_chooser *chooser); /* NULL is fine */

/* Returns the record of sample `index`; *ret_place is the position of its item in choice.items. */
const fm_complex_row *fm_complex_chooser_record(const fm_complex_chooser *chooser, uint64_t seed,
                                                uint64_t index, uint32_t *ret_place);

#endif
