/* build.h: the build job: raw inputs in, a new generation of a cache out.
 *
 *     source -> workers (one arena each): read, hash, look up, parse, encode, compress
 *                   -> queue -> one writer: shard -> sealed shards -> generation -> CURRENT
 *
 * A part is made under a key, SHA-256(stage, stage version, options, hashes of the input bytes),
 * and a note (key -> content hashes of what was made) lies in the shard beside it: a run after a
 * kill, or over a dataset that grew, finds the notes of all sealed shards and makes only what is
 * missing. What is not sealed when a process dies is thrown away by the next. Neither names nor
 * dates of files decide. The result does not depend on the number of workers or the order of a
 * folder.
 *
 * A chain that cannot be made is refused with its place and reason; the job goes on. */
#ifndef FM_CACHE_BUILD_H
#define FM_CACHE_BUILD_H

#include "cache/source/source.h"
#include "featurizer/features.h"
#include "proto/base/hash.h"

#include <signal.h>

typedef struct fm_build_progress {
    uint32_t n_structure, structures_done; /* of the source */
    uint32_t n_chain, chains_done;         /* n_chain grows with single sequences found */
    uint32_t n_refused;
    uint64_t input_bytes, stored_bytes;
    double seconds;
    double done; /* 0..1: of the chains, or of the structures while chains are still being found */
} fm_build_progress;

typedef struct fm_build_options {
    const char *cache;    /* folder; made when it is not there */
    uint32_t n_job;       /* >= 1 */
    bool single_sequence; /* also the chains of structures that have no alignments */
    fm_features_options features;
    uint64_t shard_bytes;   /* seal a shard at about this size; 0 = 1 GiB */
    uint64_t worker_bytes;  /* memory of a worker at most; 0 = 48 GiB. A chain that needs more is
                               refused */
    uint32_t shard_seconds; /* or at this age; 0 = 300: what a kill can cost */
    uint32_t slot;          /* 0 = alone in the cache; else which of its workers (lock.h) */
    const volatile sig_atomic_t *stop; /* may be NULL; set from a signal handler to stop cleanly */
    void (*progress)(void *context, const fm_build_progress *progress); /* may be NULL; called a few
                                                                           times a second */
    void *progress_context;
} fm_build_options;

enum { FM_N_STATUS = 14 };

typedef struct fm_build_report {
    uint32_t n_chain;                         /* of the generation */
    uint32_t n_built;                         /* chains with at least one part made now */
    uint32_t n_reused;                        /* chains whose parts were all there */
    uint32_t n_refused, refused[FM_N_STATUS]; /* by fm_status */
    const fm_source_refusal *source_refusal;  /* in the caller's arena, as the source */
    uint32_t n_source_refusal;
    uint32_t n_without_hits; /* chains whose alignments have no list of template hits */
    uint32_t n_no_protein;   /* single_sequence: structures without a protein chain, left out */
    uint64_t input_bytes;    /* read, inflated */
    uint64_t written_bytes;  /* of the shards sealed now */
    uint64_t stored_bytes, decoded_bytes; /* of the generation's blobs, each counted once */
    uint64_t part_stored[FM_N_PART], part_decoded[FM_N_PART]; /* the same by kind - 1 */
    uint64_t peak_bytes; /* most memory resident in this process, up to now */
    double seconds;
    uint64_t generation;  /* in force afterwards; 0 = none */
    bool single_sequence; /* structures without alignments took part */
    bool published;       /* false: nothing changed, or stopped */
    fm_sha256 content;
    uint32_t n_refusal;         /* those of the generation, in the caller's arena */
    const char *const *refusal; /* "chain<tab>reason" */
} fm_build_report;

/* Builds. FM_OK also when chains were refused; FM_ERR_CANCELLED when stopped: what was done is
 * sealed, nothing published; FM_ERR_DATA when not one chain could be made; FM_ERR_EXISTS when
 * another build holds the cache; FM_ERR_IO and others leave the generation before in force. The
 * report is filled in all cases but the last two, as far as it goes. */
FM_MUST_USE fm_status fm_build_run(const fm_source *source, const fm_build_options *options,
                                   fm_arena *arena, fm_build_report *ret_report, fm_error *reterr);

#endif
