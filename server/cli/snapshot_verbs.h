/* snapshot_verbs.h: options and helpers that the actions of `foldmill snapshot` share. */
#ifndef FM_CLI_SNAPSHOT_VERBS_H
#define FM_CLI_SNAPSHOT_VERBS_H

#include "cache/snapshot/clusters.h"
#include "cache/snapshot/snapshot_text.h"
#include "cache/store/store.h"
#include "proto/base/json_text.h"
#include "proto/base/options.h"

typedef struct fm_snapshot_arguments {
    const char *cache, *only, *exclude, *from, *until, *clusters, *weights, *apart, *disjoint;
    const char *recipe;
    uint64_t min_length, max_length, max_unknown;
    uint64_t max_single;   /* 0 = not given */
    double max_resolution; /* NAN = not given */
    bool need_resolution, only_clustered, no_predicted, json;
    fm_option_list datasets, shares;
} fm_snapshot_arguments;

typedef struct fm_snapshot_job {
    const fm_snapshot_arguments *arguments;
    fm_arena arena;
    fm_store *store;
} fm_snapshot_job;

/* Reads and decodes a snapshot of the store. */
FM_MUST_USE fm_status fm_snapshot_job_read(fm_snapshot_job *job, const char *name,
                                           fm_snapshot_text *text, fm_error *reterr);

/* Reads the file of --clusters; *ret_clusters = NULL without one. */
FM_MUST_USE fm_status fm_snapshot_job_clusters(fm_snapshot_job *job, fm_clusters *clusters,
                                               const fm_clusters **ret_clusters, fm_error *reterr);

/* Prints "snapshot", "hash", "chains" and, with shares, a line for each; or the same as members of
 * the object that is open. */
void fm_snapshot_print_head(const char *name, const fm_snapshot_text *text, const fm_sha256 *hash);
void fm_snapshot_write_head(fm_json_writer *json, const char *name, const fm_snapshot_text *text,
                            const fm_sha256 *hash);

/* The actions create NAME and show NAME. */
FM_MUST_USE fm_status fm_snapshot_create(fm_snapshot_job *job, char **names, fm_error *reterr);
FM_MUST_USE fm_status fm_snapshot_show(fm_snapshot_job *job, char **names, fm_error *reterr);

#endif
