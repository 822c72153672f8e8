/* chains.h: receives whole chains from a server into memory, for inference, piece by piece. A piece
 * ends with the last chain or when its memory is full. Its chains are ordered by length, so each
 * recorded length is needed in one run of chains only.
 *
 *     fm_chains_open          connects
 *     fm_chains_receive       replaces the piece in memory by the next one
 *     fm_chains_decode        decodes a chain of the piece
 *
 * A chain that the server cannot prepare, or that is too long, is part of its piece with the
 * reason. A stream begins with samples of up to 256 MiB, which are 1,000 residues with 508 + 5,120
 * rows and four cycles, and is opened again for a longer chain. */
#ifndef FM_TRAINER_CHAINS_H
#define FM_TRAINER_CHAINS_H

#include "proto/base/arena.h"
#include "proto/base/hash.h"
#include "proto/batch.h"
#include "proto/credentials.h"

enum { FM_CHAIN_WHY_BYTES = 256 };

typedef struct fm_chains_options {
    const char *url;
    fm_credentials credentials;
    const char *agent;    /* for the server's log */
    const char *plan;     /* a plan of whole chains: "eval" or "predict" */
    const char *snapshot; /* the required name; NULL: any */
    uint64_t seed;        /* of the draws of MSA rows */
    uint32_t n_cycle, max_msa_clusters, max_extra_msa;
    uint32_t max_template_date; /* rule of proto/template_date.h */
    uint32_t max_length;        /* longer chains are refused; 0: as long as a sample can be */
    uint64_t wait_ms, data_timeout_s;
    uint64_t memory_bytes; /* for the chains of a piece; it has at least one chain */
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

/* Connects. The texts and numbers of the options must outlive *ret_chains. Returns FM_ERR_CANCELLED
 * when a signal asked to stop, FM_ERR_NOT_FOUND for another snapshot or a number beyond its chains,
 * FM_ERR_NOMEM, or an error of connecting. */
FM_MUST_USE fm_status fm_chains_open(const fm_chains_options *options, fm_chains **ret_chains,
                                     fm_error *reterr);
void fm_chains_close(fm_chains *chains);

/* Frees the piece in memory and receives the next one, ordered by length. After the last piece it
 * starts again with the first. If one piece has all chains, it stays in memory and nothing is
 * received. A lost connection is opened again. Returns FM_ERR_CANCELLED, FM_ERR_NOMEM,
 * FM_ERR_PROTOCOL, or the error of a connection that could not be opened again. */
FM_MUST_USE fm_status fm_chains_receive(fm_chains *chains, fm_error *reterr);
/* Makes the next fm_chains_receive start with the first piece. It does nothing if all chains are in
 * memory. */
void fm_chains_rewind(fm_chains *chains);

/* The piece in memory. */
uint32_t fm_chains_n_held(const fm_chains *chains);
const fm_held_chain *fm_chains_held(const fm_chains *chains, uint32_t i);
/* Decodes a chain whose `memory` is not NULL. *ret_sample borrows from it and from the arena. */
FM_MUST_USE fm_status fm_chains_decode(const fm_held_chain *chain, fm_arena *arena,
                                       fm_sample *ret_sample, fm_error *reterr);

/* The number of all chains: those of the snapshot, or n_only. */
uint32_t fm_chains_n(const fm_chains *chains);
const char *fm_chains_get_snapshot(const fm_chains *chains);
const fm_sha256 *fm_chains_get_snapshot_hash(const fm_chains *chains);

#endif
