/* chains.h: whole chains from a server, in memory, for inference: received until all have come or
 * their memory is full, then ordered by length, so that each recorded length is made once.
 *
 *     fm_chains_open          connects
 *     fm_chains_receive       the next piece, in place of the one before
 *     fm_chains_decode        a chain of the piece
 *
 * A chain that cannot be made, or is too long, is in its piece with the reason. */
#ifndef FM_TRAINER_CHAINS_H
#define FM_TRAINER_CHAINS_H

#include "proto/base/arena.h"
#include "proto/base/hash.h"
#include "proto/credentials.h"
#include "proto/batch.h"

enum { FM_CHAIN_WHY_BYTES = 256 };

typedef struct fm_chains_options {
    const char *url;
    fm_credentials credentials;
    const char *agent;    /* for the server's log */
    const char *plan;     /* that gives whole chains: "eval" or "predict" */
    const char *snapshot; /* the name that must be served; NULL: any */
    uint64_t seed;        /* of the draws of MSA rows */
    uint32_t n_cycle, max_msa_clusters, max_extra_msa;
    uint32_t max_template_date; /* rule of proto/template_date.h */
    uint32_t max_length;        /* longer chains are refused; 0: as long as a sample can be */
    uint64_t wait_ms, data_timeout_s;
    uint64_t memory_bytes; /* for the chains of a piece, which has at least one */
    const uint64_t *only;  /* [n_only] numbers of chains in rising order; NULL: all */
    uint32_t n_only;
} fm_chains_options;

typedef struct fm_held_chain {
    uint64_t index; /* the chain's number in the snapshot */
    uint32_t n_res;
    void *memory; /* the encoded sample; NULL: refused */
    size_t bytes;
    fm_status status;
    char why[FM_CHAIN_WHY_BYTES];
} fm_held_chain;

typedef struct fm_chains fm_chains;

/* Connects. The texts and numbers of the options must outlive it. FM_ERR_CANCELLED when a signal
 * asked to stop; FM_ERR_NOT_FOUND for another snapshot or a number beyond its chains; FM_ERR_NOMEM;
 * the errors of connecting. */
FM_MUST_USE fm_status fm_chains_open(const fm_chains_options *options, fm_chains **ret_chains,
                                     fm_error *reterr);
void fm_chains_close(fm_chains *chains);

/* Drops the piece in memory and receives the next one, in the order of lengths. After the last
 * piece it begins again with the first one; if that was all chains, they stay and nothing is
 * received. Lost connections are made again. FM_ERR_CANCELLED, FM_ERR_NOMEM, FM_ERR_PROTOCOL, and
 * the errors of a connection that could not be made again. */
FM_MUST_USE fm_status fm_chains_receive(fm_chains *chains, fm_error *reterr);
/* Begins again with the first piece, where not all chains are in memory. */
void fm_chains_rewind(fm_chains *chains);

/* The piece in memory. */
uint32_t fm_chains_n_held(const fm_chains *chains);
const fm_held_chain *fm_chains_held(const fm_chains *chains, uint32_t i);
/* Decodes a chain with memory; *ret_sample borrows from it and from the arena. */
FM_MUST_USE fm_status fm_chains_decode(const fm_held_chain *chain, fm_arena *arena,
                                       fm_sample *ret_sample, fm_error *reterr);

/* All chains that come: those of the snapshot, or n_only. */
uint32_t fm_chains_n(const fm_chains *chains);
/* Whether they are in memory. */
bool fm_chains_has_all(const fm_chains *chains);
const char *fm_chains_get_snapshot(const fm_chains *chains);
const fm_sha256 *fm_chains_get_snapshot_hash(const fm_chains *chains);

#endif
