/* build.h: the build job: raw inputs in, a new generation of a cache out.
 *
 *     source -> workers (one arena each): read, hash, look up, parse, encode, compress
 *                   -> queue -> one writer: shard -> sealed shards -> generation -> CURRENT
 *
 * Each part has a key, SHA-256(stage, stage version, options, hashes of the input bytes). When a
 * worker has made the part, it writes a note (key -> content hashes of what was made) into the
 * shard beside it. A run after a kill, or over a dataset that grew, reads the notes of all sealed
 * shards and makes only what is missing. A process that dies loses its unsealed shard. Paths and
 * dates of files do not count. The result depends neither on the number of workers nor on the order
 * of a folder.
 *
 * A chain that cannot be made is refused with its place and reason, and the job continues. */
#ifndef FM_CACHE_BUILD_H
#define FM_CACHE_BUILD_H

#include "cache/source/source.h"
#include "featurizer/complex/components.h"
#include "featurizer/features.h"
#include "proto/base/hash.h"

#include <signal.h>

typedef struct fm_build_progress {
    uint32_t n_structure, structures_done; /* of the source */
    uint32_t n_chain, chains_done;         /* n_chain grows with single sequences found */
    uint32_t n_refused;
    uint64_t input_bytes, stored_bytes;
    double seconds;
    double done; /* 0..1: of the chains, or of the structures while the build still finds chains */
} fm_build_progress;

/* What becomes of the cache's chains that are of no dataset of this build. Chains of datasets with
 * another name always stay, except where a dataset without a name replaces all. */
typedef enum fm_build_others_policy {
    FM_BUILD_OTHERS_CHECK, /* refuse a dataset that is not the one that the cache was built from */
    FM_BUILD_OTHERS_ADD,   /* keep them beside the new ones */
    FM_BUILD_OTHERS_REPLACE, /* leave out those of the same name, and all for a dataset without one */
} fm_build_others_policy;

typedef struct fm_build_options {
    const char *cache;    /* folder of the cache; made if needed */
    uint32_t n_job;       /* >= 1 */
    bool single_sequence; /* also build chains of structures without alignments */
    bool complexes;       /* also build the complexes of experimental mmCIF files */
    /* The chemical components of complexes, borrowed; NULL = the set that the cache has. */
    const fm_components *components;
    bool compat_protenix; /* complexes as Protenix makes them (docs/reference/complexes.md) */
    fm_features_options features;
    fm_build_others_policy others;
    uint64_t shard_bytes;   /* seal a shard at about this size; 0 = 1 GiB */
    uint64_t worker_bytes;  /* memory limit of a worker; 0 = 48 GiB. A chain that needs more is
                               refused */
    uint32_t shard_seconds; /* or at this age; 0 = 300. A kill costs at most this work */
    uint32_t slot;          /* 0 = the only builder; else the number of this worker (lock.h) */
    const volatile sig_atomic_t *stop; /* may be NULL; a signal handler sets it to stop cleanly */
    void (*progress)(void *context, const fm_build_progress *progress); /* may be NULL; called a few
                                                                           times per second */
    void *progress_context;
} fm_build_options;

enum { FM_N_STATUS = 14 };

typedef struct fm_build_report {
    uint32_t n_chain;                         /* of the generation, with its complexes */
    uint32_t n_complex;                       /* complexes of the generation */
    uint32_t n_built;                         /* chains with at least one new part */
    uint32_t n_reused;                        /* chains whose parts all existed */
    uint32_t n_refused, refused[FM_N_STATUS]; /* by fm_status */
    uint32_t n_added;                         /* chains that the generation before did not have */
    uint32_t
        n_kept; /* chains of other datasets, taken over as they were; not in the counts above */
    uint32_t n_left;  /* chains of the generation before that this one does not have */
    bool is_inferred; /* the cache does not record its dataset; that it is this one was concluded
                         from the chains that both have */
    const fm_source_refusal *source_refusal; /* of the scan; borrowed from the source */
    uint32_t n_source_refusal;
    uint32_t n_without_alignments; /* chains made of their sequence alone */
    uint32_t n_bare_entity; /* proteins and RNA of complexes that could have alignments, but have
                               none */
    /* Alignments of other queries in the texts of the chains whose msa was made now. */
    uint32_t n_left_out;
    uint32_t n_without_hits; /* chains without a list of template hits */
    /* Proteins of the complexes that were not kept, of 10 residues and more, and those among them
     * that no list of clusters has, so that their sequence is their cluster. Where complexes were
     * published or found unchanged. */
    uint32_t n_protein, n_unclustered;
    uint32_t n_no_protein;  /* single_sequence: structures without a protein chain; not refused */
    uint64_t input_bytes;   /* read, unpacked */
    uint64_t written_bytes; /* size of the shards sealed by this run */
    uint64_t stored_bytes, decoded_bytes; /* of the generation's blobs, each counted once */
    /* The same by kind - 1. */
    uint64_t part_stored[FM_PART_KIND_MAX], part_decoded[FM_PART_KIND_MAX];
    uint64_t peak_bytes; /* peak resident memory of this process so far */
    double seconds;
    uint64_t generation;  /* the current one afterwards; 0 = none */
    bool single_sequence; /* structures without alignments were included */
    bool published;       /* false: nothing changed, or the build was stopped */
    fm_sha256 content;
    uint32_t n_refusal;         /* refusals of the generation, in the caller's arena */
    const char *const *refusal; /* "chain<tab>reason" */
} fm_build_report;

/* Builds. FM_OK also when chains were refused. FM_ERR_CANCELLED when stopped: finished work is
 * sealed, nothing is published. FM_ERR_DATA when no chain could be made. FM_ERR_EXISTS when
 * another build holds the cache, or the cache was built from another dataset and
 * options->others does not say what becomes of its chains. After FM_ERR_IO and other errors the
 * previous generation stays in force. The report is filled in, as far as it goes, for FM_OK,
 * FM_ERR_CANCELLED and FM_ERR_DATA. */
FM_MUST_USE fm_status fm_build_run(const fm_source *source, const fm_build_options *options,
                                   fm_arena *arena, fm_build_report *ret_report, fm_error *reterr);

/* Puts a set of components into a cache, where later builds of complexes find it; makes the cache's
 * folder if needed. FM_ERR_EXISTS when another build holds the cache; FM_ERR_IO. */
FM_MUST_USE fm_status fm_build_put_components(const char *cache, const fm_components *components,
                                              fm_arena *arena, bool *ret_was_there,
                                              fm_error *reterr);

/* Whether all that a cache without a generation has is sets of components. For advice: a folder
 * that cannot be read, and a shard that is damaged or of more than 256 MiB, count as something
 * else. */
bool fm_build_has_only_components(const char *cache);

/* Tells whether such a build over the cache would be refused because of the dataset that the
 * cache was built from: FM_ERR_EXISTS with the reason, else FM_OK. A cache that cannot be read
 * gives FM_OK: the build reports it. */
FM_MUST_USE fm_status fm_build_check_datasets(const fm_source *source,
                                              const fm_build_options *options, fm_arena *arena,
                                              fm_error *reterr);

/* Refuses a cache that a build of a dataset made, because chains without structures would replace
 * all of its chains: FM_ERR_EXISTS, else FM_OK as above. */
FM_MUST_USE fm_status fm_build_check_queries(const char *cache, fm_arena *arena, fm_error *reterr);

#endif
