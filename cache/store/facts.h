/* facts.h: what is asked of a chain before it is loaded: a row for each, beside the index.
 *
 * A snapshot of chains by resolution, date, length or unknown residues reads this table and no
 * part: 36 bytes a chain instead of its coordinates. Facts of the parts are a pure function of
 * them, kept by a build as a note under their hashes; what a dataset's lists know beside that
 * (cluster sizes; dates and resolutions that a file has not) is added when a generation is
 * published. Facts are no content: the digest of a cache is that of its parts.
 * docs/formats/store.md, "Facts". */
#ifndef FM_CACHE_FACTS_H
#define FM_CACHE_FACTS_H

#include "proto/record.h"

enum {
    FM_FACTS_STAGE = 1,     /* raised when the facts of some parts change */
    FM_FACTS_BYTES = 36,    /* of an encoded row */
    FM_FACTS_KNOWN = 1,     /* flags: the row is filled in */
    FM_FACTS_PREDICTED = 2, /* a predicted structure */
    FM_FACTS_LISTED = 4,    /* the date, or the resolution, is that of a list of the dataset */
    FM_FACTS_FLAGS = 7,
};

typedef struct fm_chain_facts {
    uint32_t flags;
    uint32_t n_res;
    uint32_t n_unknown;                 /* residues X */
    uint32_t n_most;                    /* of the most frequent residue, X among them */
    uint32_t cluster_size;              /* members of its cluster; 0 = not known */
    float resolution;                   /* Å; 0 = none */
    char release_date[FM_RELEASE_DATE]; /* "" = not known */
} fm_chain_facts;

/* The facts of a chain's parts; structure may be NULL. No cluster, nothing listed. */
fm_chain_facts fm_facts_of(const fm_part_sequence *sequence, const fm_part_structure *structure);

/* The key under which a build notes the facts of two parts: docs/formats/store.md, "Keys". */
fm_sha256 fm_facts_key(const fm_sha256 *sequence, const fm_sha256 *structure);

/* One row to bytes and back. FM_ERR_CORRUPT for bytes that are no row's. */
void fm_facts_encode_row(const fm_chain_facts *facts, uint8_t ret_bytes[FM_FACTS_BYTES]);
FM_MUST_USE fm_status fm_facts_decode_row(fm_bytes bytes, fm_chain_facts *ret_facts,
                                          fm_error *reterr);

/* The table of all chains, in their order. FM_ERR_CORRUPT when it has not n_chain good rows. */
FM_MUST_USE fm_status fm_facts_encode(const fm_chain_facts *facts, uint32_t n_chain,
                                      fm_arena *arena, fm_bytes *ret_bytes, fm_error *reterr);
FM_MUST_USE fm_status fm_facts_decode(fm_bytes bytes, uint32_t n_chain, fm_arena *arena,
                                      const fm_chain_facts **ret_facts, fm_error *reterr);

#endif
