/* templates.h: maps template hits to structures, and turns mapped hits into template features.
 *
 *     hits of the files -> fm_templates_map -> fm_part_hits              once; stored in the cache
 *
 *     fm_part_hits -> fm_templates_rank      -> hits in order            for each sample
 *                  -> fm_templates_choose    -> the templates
 *                  -> fm_templates_featurize -> their coordinates
 *
 * For each hit, mapping finds the structure of its id, the chain that contains the hit's letters,
 * and the chain's residue for each residue of the query. No hit is dropped: a hit that cannot be
 * mapped is stored with the reason, called its fault. All cut-offs (dates, coverage, duplicates,
 * the number of templates) act in the second half, so that the caller can shuffle the first hits of
 * the order. Source: AlphaFold 2, supplementary 1.2.3; docs/reference/inputs.md, "Templates".
 *
 * Pure: structures come through callbacks, and results are in the caller's arena. */
#ifndef FM_TEMPLATES_H
#define FM_TEMPLATES_H

#include "featurizer/arrays.h"
#include "featurizer/parse/hits.h"
#include "featurizer/parse/mmcif.h"
#include "featurizer/template_align.h"
#include "proto/record.h"

#include <stdbool.h>

/* -- mapping */

/* A chain that can be a template. */
typedef struct fm_template_chain {
    const char *author_id; /* terminated */
    uint32_t n_res;
    const char *sequence;  /* [N_res] */
    const uint8_t *n_atom; /* [N_res] atoms with coordinates; NULL when the chain has none */
    bool far_apart;        /* two neighbouring CA atoms are more than 150 Å apart */
} fm_template_chain;

/* The properties of a structure file that mapping needs. */
typedef struct fm_template_entry {
    char release_date[FM_RELEASE_DATE]; /* "" when not known */
    uint32_t n_chain;
    const fm_template_chain *chain; /* [n_chain] in the order of the file's entities */
} fm_template_entry;

/* Makes the entry of a parsed file. It borrows from the file; the rest is in the arena. */
FM_MUST_USE fm_status fm_template_entry_of(const fm_mmcif *mmcif, fm_arena *arena,
                                           fm_template_entry *ret_entry, fm_error *reterr);

/* The source of structures. Ids are in lower case. `entry` and `structure` must be set; the others
 * may be NULL. The callbacks must not keep anything in the mapping's arena, which is rewound after
 * each hit. */
typedef struct fm_template_source {
    void *context;
    /* Gives the structure of an id, borrowed until the next call. FM_ERR_NOT_FOUND means that there
     * is none. FM_ERR_FORMAT, FM_ERR_DATA, FM_ERR_LIMIT and FM_ERR_UNSUPPORTED mean that it cannot
     * be used. Any other error ends the mapping. */
    fm_status (*entry)(void *context, const char *id, const fm_template_entry **ret_entry,
                       fm_error *reterr);
    /* Gives the identity of the structure part of chain `chain` in the entry returned last. It is
     * called for each mapped hit; a cache that stores the hits must store that part too. */
    fm_status (*structure)(void *context, const char *id, uint32_t chain, fm_sha256 *ret_identity,
                           fm_error *reterr);
    /* Gives the id's date in the dataset's list of dates (mmcif_cache.json); false when not
     * listed. */
    bool (*listed_date)(void *context, const char *id, char ret_date[FM_RELEASE_DATE]);
    /* Returns the id that finally replaced an obsolete id, or NULL when there is none. */
    const char *(*successor)(void *context, const char *id);
    /* compat_openfold only: aligns with the program that the reference uses and gives two rows of
     * equal length with '-' at gaps. When it is NULL or returns FM_ERR_DATA, the hit is not
     * realigned. Other errors (no such program) end the mapping. */
    fm_status (*align)(void *context, fm_bytes hit, fm_bytes chain, fm_arena *arena,
                       const char **ret_hit_row, const char **ret_chain_row, size_t *ret_n_column,
                       fm_error *reterr);
} fm_template_source;

/* Maps all hits of a chain. `lists` holds the hits of each file, in the order of the files' names.
 * With compat_openfold the mapping equals the reference's, including its -1 residues and its choice
 * of the first place found. Returns FM_ERR_DATA (compat) for a hit whose name does not start with
 * id_chain, FM_ERR_LIMIT, and the callbacks' errors. The arena should have some 100 MiB of address
 * space: realigning temporarily takes up to FM_TEMPLATE_ALIGN_CELLS bytes. */
FM_MUST_USE fm_status fm_templates_map(const fm_part_sequence *query, const fm_hits *lists,
                                       size_t n_list, bool compat_openfold,
                                       const fm_template_source *source, fm_arena *arena,
                                       fm_part_hits *ret_hits, fm_error *reterr);

/* Returns the fault in words ("no structure file of that id"), for reports; never NULL. */
const char *fm_template_fault_text(fm_hit_fault fault);

/* -- choosing */

typedef struct fm_template_options {
    bool compat_openfold;
    const char *max_date;   /* "YYYY-MM-DD": skips later templates; NULL allows any date */
    uint32_t max_templates; /* number of distinct ones */
    bool keep_position;     /* do not move each template's centre to the origin */
} fm_template_options;

/* Lists the hits that pass the filters, best first: by sum_probs, then in their order. A hit
 * passes when it has at least 10 letters, aligns more than a tenth of the query, is not the
 * query itself, and was released by max_date. It is the query itself when its letters occur in
 * the query and cover more than 95 % of it. The default also skips hits with a fault, and with a
 * max_date those without a known date. compat_openfold looks only at listed dates here. A caller
 * that samples shuffles the first 20 of the result. */
FM_MUST_USE fm_status fm_templates_rank(const fm_part_hits *hits,
                                        const fm_template_options *options, fm_arena *arena,
                                        uint32_t **ret_order, uint32_t *ret_n, fm_error *reterr);

/* Chooses the first max_templates hits of the order whose aligned letters differ; the result holds
 * indices of hits. Hits with a fault and hits released after max_date are skipped. With
 * compat_openfold, reaching a hit whose file is missing or has no release date fails with
 * FM_ERR_NOT_FOUND or FM_ERR_DATA. */
FM_MUST_USE fm_status fm_templates_choose(const fm_part_hits *hits, const uint32_t *order,
                                          uint32_t n_order, const fm_template_options *options,
                                          fm_arena *arena, uint32_t **ret_chosen,
                                          uint32_t *ret_n_templ, fm_error *reterr);

/* -- features */

typedef struct fm_template_features {
    uint32_t n_templ, n_res;
    const uint8_t *template_aatype;           /* [N_templ, N_res] HHblits ids, 21 = no residue */
    const float *template_all_atom_positions; /* [N_templ, N_res, 37, 3] Å */
    const uint8_t *template_all_atom_mask;    /* [N_templ, N_res, 37] 0 or 1 */
    const float *template_sum_probs;          /* [N_templ] 0 when the search gives none */
    const char *template_sequence;            /* [N_templ, N_res] '-' = no residue */
    const char *const *template_domain_names; /* [N_templ] terminated */
} fm_template_features;

/* Gives the structure part with that identity, borrowed until the next call. */
typedef fm_status fm_template_structure_fn(void *context, const fm_sha256 *identity,
                                           const fm_part_structure **ret_structure,
                                           fm_error *reterr);

/* Computes the features of the chosen hits. Centring subtracts the mean of all atoms of the
 * template chain, mapped or not, summed in float32 in the order of residues and atoms. Returns
 * FM_ERR_CORRUPT when a mapping does not fit its structure, FM_ERR_LIMIT, and the errors of
 * `structure`. */
FM_MUST_USE fm_status fm_templates_featurize(const fm_part_hits *hits, const uint32_t *chosen,
                                             uint32_t n_templ, bool keep_position,
                                             fm_template_structure_fn *structure, void *context,
                                             fm_arena *arena, fm_template_features *ret_features,
                                             fm_error *reterr);

enum { FM_TEMPLATES_N_ARRAY = 6 };

/* Lists the features as the reference names, shapes and orders them:
 *
 *     template_aatype               int64 [T, L, 22] one-hot; float32 when T is 0
 *     template_all_atom_mask        float32
 *     template_all_atom_positions   float32
 *     template_domain_names         joined by newlines
 *     template_sequence             joined by newlines
 *     template_sum_probs            float32 [T, 1] */
FM_MUST_USE fm_status fm_templates_list_arrays(const fm_template_features *features,
                                               fm_arena *arena,
                                               fm_array ret_arrays[FM_TEMPLATES_N_ARRAY],
                                               fm_error *reterr);

#endif
