/* template_counts.h: counts what became of the template hits of a cache, for the reports of
 * foldmill build and foldmill stats. */
#ifndef FM_CLI_TEMPLATE_COUNTS_H
#define FM_CLI_TEMPLATE_COUNTS_H

#include "cache/store/store.h"
#include "proto/base/json_text.h"

#include <stdio.h>

typedef struct fm_template_counts {
    uint32_t n_chain;                     /* of the cache */
    uint32_t n_no_list;                   /* chains without a file of template hits */
    uint32_t n_no_hit;                    /* chains whose files list no hit */
    uint32_t n_no_template;               /* chains with hits of which none can be a template */
    uint64_t n_hit;                       /* of all chains */
    uint64_t fault[FM_HIT_FAULT_MAX + 1]; /* hits by fault; [FM_HIT_MAPPED] can be used */
} fm_template_counts;

/* Reads the hits part of every chain. The arena holds one at a time. Errors of
 * fm_store_load_hits. */
FM_MUST_USE fm_status fm_template_count(const fm_store *store, fm_arena *arena,
                                        fm_template_counts *ret_counts, fm_error *reterr);

/* Prints "templates ..." lines; each line but the first says what is missing, and why. */
void fm_template_print(FILE *out, const fm_template_counts *counts);

/* The member "templates": {chains_without_list, chains_without_hits, chains_without_template, hits,
 * mapped, unmapped {REASON: n}} of the open object. */
void fm_template_json(fm_json_writer *json, const fm_template_counts *counts);

#endif
