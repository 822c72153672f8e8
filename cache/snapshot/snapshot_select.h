/* snapshot_select.h: selects the chains of a store for a snapshot, and their weights.
 *
 * A chain is taken unless a rule excludes it. The rules apply in the order of fm_select_reason, and
 * the first one that excludes a chain is counted. The length comes from the store's index; letters,
 * resolution, date and cluster size come from its table of facts. A cache that an older foldmill
 * built has no facts. The selection then reads the parts of the chains that a rule needs, and facts
 * that only a list of the dataset has (facts.h) are unknown. docs/reference/store.md,
 * "Snapshots". */
#ifndef FM_CACHE_SNAPSHOT_SELECT_H
#define FM_CACHE_SNAPSHOT_SELECT_H

#include "cache/snapshot/clusters.h"
#include "cache/source/names.h"
#include "cache/snapshot/snapshot_text.h"
#include "cache/store/store.h"

typedef enum fm_select_weights {
    FM_WEIGHTS_UNIFORM, /* 1 */
    FM_WEIGHTS_LENGTH,  /* N_res clamped to 256..512 */
    FM_WEIGHTS_AF2,     /* the same divided by the size of the chain's cluster: fm_select_weight */
} fm_select_weights;

typedef struct fm_select_rules {
    const char *recipe;              /* NULL, or the recipe that set some of the rules */
    const fm_names *only;            /* NULL, or only these chains */
    const fm_names *exclude;         /* NULL, or not these chains */
    const char *const *dataset;      /* [n_dataset] only chains called "<dataset>:..." */
    uint32_t n_dataset;              /* 0 = any */
    fm_shares shares;                /* with shares, only chains of the datasets that have one */
    bool no_predicted;               /* exclude predicted structures */
    uint32_t min_length, max_length; /* residues; max 0 = any */
    uint32_t max_unknown;            /* most residues X; UINT32_MAX = any */
    uint32_t max_single_percent;     /* largest share of the most frequent residue; 100 = any */
    /* Å, 0 = any; chains without a resolution (NMR, predicted) pass. */
    double max_resolution;
    bool need_resolution; /* chains without a resolution are excluded */
    /* NULL, or "YYYY-MM-DD", inclusive; chains without a date are excluded, predicted structures
     * never are. */
    const char *from, *until;
    /* NULL = each chain is its own cluster; the weights AF2 then take the sizes from the facts. */
    const fm_clusters *clusters;
    bool only_clustered; /* exclude chains that are in no cluster */
    fm_select_weights weights;
    /* NULL, or a snapshot; chains that share a cluster or name with it are excluded. */
    const fm_snapshot_text *apart;
    const char *apart_name; /* its name, for people */
} fm_select_rules;

typedef enum fm_select_reason {
    FM_SELECT_TAKEN,
    FM_SELECT_NOT_LISTED,
    FM_SELECT_EXCLUDED,
    FM_SELECT_DATASET,
    FM_SELECT_LENGTH,
    FM_SELECT_NO_CLUSTER,
    FM_SELECT_SHARED,
    FM_SELECT_UNKNOWN,
    FM_SELECT_SINGLE,
    FM_SELECT_RESOLUTION,
    FM_SELECT_DATE,
    FM_SELECT_PREDICTED,
    FM_N_SELECT
} fm_select_reason;

/* The rules that take every chain, with uniform weights. */
fm_select_rules fm_select_everything(void);

/* Sets the rules and the weights of a recipe: "af2-train", AlphaFold2's filters of training chains
 * (supplement 1.2.5). FM_ERR_USAGE, listing the recipes, when there is none of that name. */
FM_MUST_USE fm_status fm_select_recipe(const char *name, fm_select_rules *rules, fm_error *reterr);

/* "uniform", "length" or "af2" */
const char *fm_select_weights_text(fm_select_weights weights);

/* "taken", "not in the list", ... */
const char *fm_select_reason_text(fm_select_reason reason);

typedef struct fm_select_report {
    uint32_t n[FM_N_SELECT]; /* chains by reason */
    uint32_t n_unlisted;     /* names of `only` that the store does not have */
    uint32_t n_read;         /* chains whose parts were read, for lack of facts */
} fm_select_report;

/* Selects; the lines are in the arena. Lists and clusters may name chains with their dataset or
 * without. FM_ERR_DATA when no chain is left, with shares in any of their datasets; FM_ERR_USAGE
 * for the weights AF2 without any cluster sizes; errors of loading. */
FM_MUST_USE fm_status fm_snapshot_select(const fm_store *store, const fm_select_rules *rules,
                                         fm_arena *arena, fm_snapshot_text *ret_text,
                                         fm_select_report *ret_report, fm_error *reterr);

/* The weight of a chain. AF2: max(1, floor(clamp(N_res, 256, 512) * 2^22 / cluster_size)); a size
 * of 0 counts as 1. Always below 2^32. */
uint32_t fm_select_weight(fm_select_weights weights, uint32_t n_res, uint32_t cluster_size);

/* Counts the chains of `a` that share a cluster, or their name, with a chain of `b`; *ret_first =
 * the first of them (borrowed from a; NULL = none). clusters may be NULL: then only names count. */
FM_MUST_USE fm_status fm_snapshot_shared(const fm_snapshot_text *a, const fm_snapshot_text *b,
                                         const fm_clusters *clusters, fm_arena *arena,
                                         uint32_t *ret_n, const char **ret_first, fm_error *reterr);

#endif
