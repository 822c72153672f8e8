/* clusters.h: which chains belong to one cluster: a text with one cluster a line, its members with
 * blanks between, as the PDB and OpenFold have it (docs/formats/inputs.md, section 14).
 *
 * Names are looked up as they are first, then without regard to the case of ASCII letters, since
 * such files are often in upper case. A chain in two clusters is of the first. */
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
    const fm_cluster_member *member; /* [n_member] sorted by name, case apart, then by name */
    const uint32_t *size;            /* [n_cluster] members of each, as the line has them */
} fm_clusters;

/* Reads the text; memory is the arena's. FM_ERR_FORMAT for a name that cannot be a chain's, with
 * the line; FM_ERR_LIMIT past FM_LIMIT_N_CHAIN members. */
FM_MUST_USE fm_status fm_clusters_parse(fm_bytes text, fm_arena *arena, fm_clusters *ret_clusters,
                                        fm_error *reterr);

/* The cluster of a chain, looked up with its dataset's name ("pdb:1abc_A"), then without; or
 * FM_NO_CLUSTER. */
uint32_t fm_clusters_find(const fm_clusters *clusters, const char *name);

#endif
