/* complex_rows.h: the table of what training draws of complexes: their chains and interfaces.
 *
 * A cache keeps the table beside its index, so that plans are opened without loading a part. A row
 * is a record of featurizer/complex/records.h with numbers for its texts. Rows are ordered by item,
 * and those of one item by their place in its list of records. */
#ifndef FM_COMPLEX_ROWS_H
#define FM_COMPLEX_ROWS_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

typedef struct fm_complex_row {
    uint32_t item;      /* of the cache's index */
    bool is_interface;  /* between two chains, else one chain */
    uint8_t kind[2];    /* fm_record_kind; the second is 0 for a chain */
    uint32_t chain[2];  /* chains of the assembly; the second is 0 for a chain */
    int32_t asym_id[2]; /* of these chains, as fm_crop_request takes them; -1 for none */
    /* The members of a cluster are counted by item and entities. Of an interface the lower entity
     * is the first here, whatever the order of its chains. */
    uint32_t entity[2]; /* of the assembly; the second is UINT32_MAX for a chain */
    uint64_t cluster;   /* XXH3 of the cluster's text; of an interface, both joined */
} fm_complex_row;

enum {
    FM_COMPLEX_ROW_BYTES = 40, /* size of an encoded row */
    FM_COMPLEX_ROW_KINDS = 4,  /* values of a kind */
};

/* The cluster of an interface from those of its chains, in either order: the XXH3 of both as u64,
 * the lower one first. */
uint64_t fm_complex_row_join(uint64_t a, uint64_t b);

/* Encodes and decodes the table of a cache of n_item items, in the arena. Returns FM_ERR_CORRUPT
 * unless rows are valid and in order, and FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_complex_rows_encode(const fm_complex_row *rows, uint32_t n,
                                             fm_arena *arena, fm_bytes *ret_bytes,
                                             fm_error *reterr);
FM_MUST_USE fm_status fm_complex_rows_decode(fm_bytes bytes, uint32_t n_item, fm_arena *arena,
                                             const fm_complex_row **ret_rows, uint32_t *ret_n,
                                             fm_error *reterr);

#endif
