/* selection.h: the record of how a snapshot was selected: which rules applied, and how many chains
 * each of them excluded.
 *
 *     DIR/selections/<name>    the record of snapshot <name>; docs/reference/store.md
 *
 * The record is for people. It is not part of the snapshot: two snapshots of the same chains,
 * weights and shares have the same hash, however they were selected. A lost record harms
 * nothing. */
#ifndef FM_CACHE_SELECTION_H
#define FM_CACHE_SELECTION_H

#include "cache/snapshot/snapshot_select.h"

typedef struct fm_selection_rule {
    uint32_t n_excluded;
    const char *words; /* "resolution at most 9 Å, where there is one" */
} fm_selection_rule;

typedef struct fm_selection {
    fm_sha256 snapshot; /* its hash; a record with another hash is not used */
    uint64_t generation;
    uint32_t n_chain;    /* chains that the generation had */
    const char *recipe;  /* "none" without one */
    const char *weights; /* "af2, clusters of a file" */
    uint32_t n_rule;
    fm_selection_rule rule[FM_N_SELECT]; /* [n_rule] in the order of fm_select_reason */
} fm_selection;

/* Describes rules that were applied; memory is the arena's. `snapshot` and `generation` are the
 * caller's to set. */
FM_MUST_USE fm_status fm_selection_describe(const fm_select_rules *rules,
                                            const fm_select_report *report, fm_arena *arena,
                                            fm_selection *ret_selection, fm_error *reterr);

FM_MUST_USE fm_status fm_selection_encode(const fm_selection *selection, fm_arena *arena,
                                          fm_bytes *ret_bytes, fm_error *reterr);

/* Decodes canonical bytes; memory is the arena's. FM_ERR_CORRUPT with the line. */
FM_MUST_USE fm_status fm_selection_decode(fm_bytes bytes, fm_arena *arena,
                                          fm_selection *ret_selection, fm_error *reterr);

/* Writes the record of snapshot `name`, over an earlier one. */
FM_MUST_USE fm_status fm_selection_write(const fm_store *store, const char *name,
                                         const fm_selection *selection, fm_arena *arena,
                                         fm_error *reterr);

/* Reads the record of snapshot `name`, which has this hash. FM_ERR_NOT_FOUND when there is none, or
 * one of another snapshot that had the name. */
FM_MUST_USE fm_status fm_selection_read(const fm_store *store, const char *name,
                                        const fm_sha256 *hash, fm_arena *arena,
                                        fm_selection *ret_selection, fm_error *reterr);

/* Removes the record, if there is one. */
FM_MUST_USE fm_status fm_selection_remove(const fm_store *store, const char *name,
                                          fm_error *reterr);

#endif
