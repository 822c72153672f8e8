/* facts.h: the facts by which chains are selected before they are loaded: one row per chain, beside
 * the index.
 *
 * A snapshot by resolution, date, length or unknown residues reads this table and no part: 36 bytes
 * per chain instead of its coordinates. The facts of a chain's parts are a pure function of the
 * parts; a build keeps them as a note under the parts' hashes. When a generation is published, the
 * dataset's lists add facts that the files lack: cluster sizes, dates and resolutions. Facts are no
 * content: the digest of a cache is that of its parts. docs/reference/store.md, "Facts". */
#ifndef FM_CACHE_FACTS_H
#define FM_CACHE_FACTS_H

#include "proto/record.h"

enum {
    FM_FACTS_STAGE = 1,     /* increased when the facts of some parts change */
    FM_FACTS_BYTES = 36,    /* size of an encoded row */
    FM_FACTS_KNOWN = 1,     /* flag: the row is filled in */
    FM_FACTS_PREDICTED = 2, /* flag: the structure is predicted */
    FM_FACTS_LISTED = 4,    /* flag: a list of the dataset gave the date or the resolution */
    FM_FACTS_COMPLEX = 8,   /* flag: a complex: n_res counts its tokens, and letters none */
    FM_FACTS_FLAGS = 15,
};

typedef struct fm_chain_facts {
    uint32_t flags;
    uint32_t n_res;
    uint32_t n_unknown;                 /* residues X */
    uint32_t n_most;                    /* count of the most frequent residue, X included */
    uint32_t cluster_size;              /* members of its cluster; 0 = not known */
    float resolution;                   /* Å; 0 = none */
    char release_date[FM_RELEASE_DATE]; /* "" = not known */
} fm_chain_facts;

/* The facts of a chain's parts; structure may be NULL. cluster_size is 0 and nothing is listed. */
fm_chain_facts fm_facts_of(const fm_part_sequence *sequence, const fm_part_structure *structure);

/* The key of the note in which a build keeps the facts of two parts: docs/reference/store.md,
 * "Keys".
 */
fm_sha256 fm_facts_key(const fm_sha256 *sequence, const fm_sha256 *structure);

/* Encodes and decodes one row. FM_ERR_CORRUPT for bytes that are no valid row. */
void fm_facts_encode_row(const fm_chain_facts *facts, uint8_t ret_bytes[FM_FACTS_BYTES]);
FM_MUST_USE fm_status fm_facts_decode_row(fm_bytes bytes, fm_chain_facts *ret_facts,
                                          fm_error *reterr);

/* Encodes and decodes the table of all chains, in their order, in the arena. FM_ERR_CORRUPT unless
 * it has n_chain valid rows. */
FM_MUST_USE fm_status fm_facts_encode(const fm_chain_facts *facts, uint32_t n_chain,
                                      fm_arena *arena, fm_bytes *ret_bytes, fm_error *reterr);
FM_MUST_USE fm_status fm_facts_decode(fm_bytes bytes, uint32_t n_chain, fm_arena *arena,
                                      const fm_chain_facts **ret_facts, fm_error *reterr);

#endif
