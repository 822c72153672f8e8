/* templates.h: template hits become mappings, and mappings become template features.
 *
 *     hits of the files  ->  fm_templates_map  ->  fm_part_hits          once, kept in the cache
 *     fm_part_hits  ->  fm_templates_rank  ->  order  ->  fm_templates_choose  ->  the templates
 *                   ->  fm_templates_featurize  ->  their coordinates    for each sample
 *
 * Mapping finds, for each hit, the structure of its id, the chain that holds the hit's letters, and
 * which residue of the chain each residue of the query corresponds to. Nothing is left out: what
 * cannot be mapped is kept with its fault, and every cut-off (dates, coverage, duplicates, how
 * many) acts in the second half, where the caller may shuffle the first of the order. Source:
 * AlphaFold 2, supplementary 1.2.3; docs/formats/inputs.md, "Templates".
 *
 * Pure: structures come through callbacks, results lie in the caller's arena. */
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
    const uint8_t *n_atom; /* [N_res] atoms with coordinates; NULL: there are none to be had */
    bool far_apart;        /* two neighbouring CA atoms are more than 150 Å apart */
} fm_template_chain;

/* What mapping needs to know of a structure file. */
typedef struct fm_template_entry {
    char release_date[FM_RELEASE_DATE]; /* "" = not known */
    uint32_t n_chain;
    const fm_template_chain *chain; /* [n_chain] in the order of the file's entities */
} fm_template_entry;

/* The entry of a parsed file; borrows from it, the rest lies in the arena. */
FM_MUST_USE fm_status fm_template_entry_of(const fm_mmcif *mmcif, fm_arena *arena,
                                           fm_template_entry *ret_entry, fm_error *reterr);

/* Where structures come from. Ids are in lower case. `entry` and `structure` are needed, the others
 * may be NULL. What they keep lies in memory of their own: that of the mapping is taken back. */
typedef struct fm_template_source {
    void *context;
    /* The structure of that id, borrowed until the next call. FM_ERR_NOT_FOUND: there is none;
     * FM_ERR_FORMAT, FM_ERR_DATA, FM_ERR_LIMIT, FM_ERR_UNSUPPORTED: it cannot be used; anything
     * else ends the mapping. */
    fm_status (*entry)(void *context, const char *id, const fm_template_entry **ret_entry,
                       fm_error *reterr);
    /* The identity of the structure part of chain `chain` of the entry that was given last. Asked
     * for each mapped hit; whoever keeps the hits keeps that part. */
    fm_status (*structure)(void *context, const char *id, uint32_t chain, fm_sha256 *ret_identity,
                           fm_error *reterr);
    /* The id's date in the dataset's list of dates (mmcif_cache.json); false: it is not listed. */
    bool (*listed_date)(void *context, const char *id, char ret_date[FM_RELEASE_DATE]);
    /* The id that replaced an obsolete one, at the end of the chain of replacements; NULL: none. */
    const char *(*successor)(void *context, const char *id);
    /* compat_openfold: aligns with the program the reference uses, and gives the two rows of equal
     * length with '-' at gaps. NULL, or FM_ERR_DATA: the hit is not realigned; other failures (no
     * such program) end the mapping. */
    fm_status (*align)(void *context, fm_bytes hit, fm_bytes chain, fm_arena *arena,
                       const char **ret_hit_row, const char **ret_chain_row, size_t *ret_n_column,
                       fm_error *reterr);
} fm_template_source;

/* Maps all hits of a chain. lists: the hits of each file, in the order of the files' names. With
 * compat_openfold the mapping is the reference's, its -1 residues and its first-found places among
 * them. FM_ERR_DATA (compat) for a hit whose name does not start with id_chain; what the callbacks
 * fail with; FM_ERR_LIMIT. The arena should be address space of some 100 MiB: realigning takes up
 * to FM_TEMPLATE_ALIGN_CELLS bytes for its time. */
FM_MUST_USE fm_status fm_templates_map(const fm_part_sequence *query, const fm_hits *lists,
                                       size_t n_list, bool compat_openfold,
                                       const fm_template_source *source, fm_arena *arena,
                                       fm_part_hits *ret_hits, fm_error *reterr);

/* The fault in words ("no structure file"), for reports; never NULL. */
const char *fm_template_fault_text(fm_hit_fault fault);

/* -- choosing */

typedef struct fm_template_options {
    bool compat_openfold;
    const char *max_date;   /* "YYYY-MM-DD": later templates are not taken; NULL = any date */
    uint32_t max_templates; /* distinct ones */
    bool keep_position;     /* do not move each template's centre to the origin */
} fm_template_options;

/* The hits that pass the filters, best first: more than a tenth of the query aligned, at least 10
 * letters, not the query itself (its letters stand in the query and are more than 95 % of it),
 * released by max_date; by sum_probs, then by their order. The default also leaves out what has a
 * fault, or (with a max_date) no known date; compat_openfold knows only listed dates here. A caller
 * that samples shuffles the first 20 of the result. */
FM_MUST_USE fm_status fm_templates_rank(const fm_part_hits *hits,
                                        const fm_template_options *options, fm_arena *arena,
                                        uint32_t **ret_order, uint32_t *ret_n, fm_error *reterr);

/* The first max_templates of the order with different aligned letters; indices of hits. With
 * compat_openfold a hit whose file is missing or has no release date ends it, FM_ERR_NOT_FOUND or
 * FM_ERR_DATA, when its turn comes. */
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

/* The structure part with that identity, borrowed until the next call. */
typedef fm_status fm_template_structure_fn(void *context, const fm_sha256 *identity,
                                           const fm_part_structure **ret_structure,
                                           fm_error *reterr);

/* The features of the chosen hits. Centring subtracts the mean of all atoms of the template chain,
 * mapped or not, summed in float32 in the order of residues and atoms. FM_ERR_CORRUPT when a
 * mapping does not fit its structure; what `structure` fails with; FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_templates_featurize(const fm_part_hits *hits, const uint32_t *chosen,
                                             uint32_t n_templ, bool keep_position,
                                             fm_template_structure_fn *structure, void *context,
                                             fm_arena *arena, fm_template_features *ret_features,
                                             fm_error *reterr);

enum { FM_TEMPLATES_N_ARRAY = 6 };

/* The features as the reference names, shapes and orders them: template_aatype one-hot int64 [T, L,
 * 22] (float32 when T is 0), template_all_atom_mask f32, template_all_atom_positions f32,
 * template_domain_names and template_sequence joined by newlines, template_sum_probs f32 [T, 1]. */
FM_MUST_USE fm_status fm_templates_list_arrays(const fm_template_features *features,
                                               fm_arena *arena,
                                               fm_array ret_arrays[FM_TEMPLATES_N_ARRAY],
                                               fm_error *reterr);

#endif
