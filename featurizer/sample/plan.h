/* plan.h: a sampling plan, and the draws that decide which chain is sample i. For complexes
 * featurizer/complex/chooser.h decides.
 *
 * docs/reference/sampling.md is the standard, and this is its first implementation. Everything here
 * is a pure function of (plan, snapshot's sizes and weights, seed, index). */
#ifndef FM_SAMPLE_PLAN_H
#define FM_SAMPLE_PLAN_H

#include "proto/base/arena.h"
#include "proto/base/status.h"
#include "proto/schema.h"

#include <stdbool.h>

typedef enum fm_plan_order {
    FM_ORDER_WEIGHTED = 1, /* with replacement, by the snapshot's weights */
    FM_ORDER_SHUFFLED = 2, /* without replacement: a Feistel permutation per pass */
    FM_ORDER_LISTED = 3,   /* in the order of the snapshot, again and again */
    FM_N_PLAN_ORDER        /* one more than the last order */
} fm_plan_order;

/* Fractions are in units of 2^-32 ("q32"), so that every choice is made in integers. */
typedef struct fm_plan {
    char name[32];       /* the preset that trains on it, or "eval", "predict" */
    fm_sample_kind kind; /* of the items that it samples */
    fm_plan_order order;
    uint32_t global_batch;  /* B: samples per step */
    uint32_t epoch_samples; /* samples per epoch; only labels samples */
    uint32_t crop_size;     /* residues; of complexes tokens */
    uint32_t max_msa_clusters;
    uint32_t max_extra_msa;
    uint32_t max_cycle; /* recycling cycles are uniform in 1 .. max_cycle; or always that */
    bool always_max_cycle;
    uint32_t n_delete_block;   /* block deletion: this many blocks ... */
    uint32_t delete_block_q32; /* ... each of this fraction of the rows; 0 = none */
    uint32_t masked_q32;       /* chance that a position is chosen for masking */
    uint32_t mask_uniform_q32; /* of the chosen: uniform over the 20 types, */
    uint32_t mask_profile_q32; /* drawn from the column's profile, */
    uint32_t mask_same_q32;    /* left unchanged; the rest becomes the mask token */
    /* A distillation chain keeps at most this many rows after block deletion; 0 = all. */
    uint32_t max_distillation_msa;
    uint32_t clamped_fape_q32; /* chance that FAPE is clamped */
    uint32_t max_templates;    /* most templates that a sample carries */
    uint32_t template_pool;    /* templates are drawn from this many of the best hits */
    /* Draws use a hash of the chain's name instead of the sample's index, so that a chain's sample
     * does not depend on the other chains. */
    bool draws_by_name;
    bool best_templates;        /* takes the best max_templates in order; none is drawn */
    uint32_t max_template_date; /* rule of proto/template_date.h */
    /* Chooses crop, templates and the rows of distillation chains as OpenFold does, quirks
     * included: docs/reference/sampling.md, section 10. */
    bool compat_openfold;
    /* Complexes. Of the fields above theirs are order, global_batch, epoch_samples, crop_size,
     * max_cycle, max_templates, template_pool, best_templates and max_template_date; those of the
     * MSA and of FAPE are 0. */
    uint32_t max_atoms;       /* of a crop */
    uint32_t max_msa;         /* rows of a cycle */
    uint32_t max_planned_msa; /* rows of the crop's MSA, from which those of a cycle are drawn */
    /* Templates are released this many days before the complex, at least; with the rules `query`
     * and YYYYMMDD of max_template_date. */
    uint32_t template_days;
    uint32_t crop_weight[3]; /* how often each fm_crop_method is drawn, relative to the others */
    /* Makes rows and templates as the reference does: docs/reference/complexes.md. */
    bool compat_protenix;
} fm_plan;

/* Largest template_pool of a plan of complexes: an entity's draws are numbered from 256 times the
 * entity on. */
enum { FM_COMPLEX_TEMPLATE_POOL = 256 };

/* Finds the built-in plan of that name. FM_ERR_NOT_FOUND's message lists the names. */
FM_MUST_USE fm_status fm_plan_find(const char *name, fm_plan *ret_plan, fm_error *reterr);

/* Returns FM_ERR_USAGE naming the first field that is out of range. */
FM_MUST_USE fm_status fm_plan_check(const fm_plan *plan, fm_error *reterr);

/* Decides which chain of the snapshot is sample `index`. It is built once per (plan, snapshot), is
 * immutable and may be shared by threads. */
typedef struct fm_chooser fm_chooser;

/* How often each dataset of a snapshot is drawn; its chains are then drawn by their weights. */
typedef struct fm_chooser_shares {
    uint32_t n;              /* 1 .. FM_LIMIT_N_SHARE */
    const uint32_t *share;   /* [n] each > 0, the sum below 2^32 */
    const uint8_t *of_chain; /* [n_chain] the dataset of each chain, below n */
} fm_chooser_shares;

/* weights: [n_chain], NULL means all equal. shares: NULL for none. Both are used for
 * FM_ORDER_WEIGHTED only, and copied. One weight must be > 0, with shares one of each dataset, else
 * FM_ERR_DATA. fm_chooser_chain returns the position in the snapshot. */
FM_MUST_USE fm_status fm_chooser_create(const fm_plan *plan, uint32_t n_chain,
                                        const uint32_t *weights, const fm_chooser_shares *shares,
                                        fm_chooser **ret_chooser, fm_error *reterr);
void fm_chooser_destroy(fm_chooser *chooser);
uint32_t fm_chooser_chain(const fm_chooser *chooser, uint64_t seed, uint64_t index);

#endif
