/* clusters.h: reads which chains belong to one cluster. The text has one cluster per line, its
 * members separated by blanks, as the PDB and OpenFold publish it (docs/reference/inputs.md,
 * section 14).
 *
 * A name is looked up as it is, then without regard to the case of ASCII letters, because such
 * files are often in upper case. A chain in two clusters belongs to the first. */
#ifndef FM_CACHE_CLUSTERS_H
#define FM_CACHE_CLUSTERS_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

#define FM_NO_CLUSTER UINT32_MAX

typedef struct fm_cluster_member {
    const char *name;
    uint32_t cluster;
} fm_cluster_member;

typedef struct fm_clusters {
    uint32_t n_cluster, n_member;
    const fm_cluster_member *member; /* [n_member] sorted by name without case, then by name */
    const uint32_t *size;            /* [n_cluster] members of each, as the line lists them */
} fm_clusters;

/* Reads the text; memory is the arena's. FM_ERR_FORMAT, with the line, for a word that cannot be a
 * chain's name; FM_ERR_LIMIT past FM_LIMIT_N_CHAIN members. */
FM_MUST_USE fm_status fm_clusters_parse(fm_bytes text, fm_arena *arena, fm_clusters *ret_clusters,
                                        fm_error *reterr);

/* The cluster of a chain, or FM_NO_CLUSTER. The name is looked up with its dataset's prefix
 * ("pdb:1abc_A"), then without. */
uint32_t fm_clusters_find(const fm_clusters *clusters, const char *name);

#endif
