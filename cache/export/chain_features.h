/* chain_features.h: the templates of a stored chain: their structures, and their features for
 * programs that export whole chains. */
#ifndef FM_CACHE_CHAIN_FEATURES_H
#define FM_CACHE_CHAIN_FEATURES_H

#include "cache/store/store.h"
#include "featurizer/templates.h"

/* Reads the structures of templates from a store, one at a time. */
typedef struct fm_template_reader {
    const fm_store *store;
    fm_arena *arena; /* of the structures that it reads */
    fm_part_structure structure;
} fm_template_reader;

/* The fm_template_structure_fn of a fm_template_reader, which is its context. The structure is
 * valid until the next call. Errors are those of fm_store_load_structure. */
FM_MUST_USE fm_status fm_template_reader_load(void *reader, const fm_sha256 *identity,
                                              const fm_part_structure **ret_structure,
                                              fm_error *reterr);

/* Chooses the best templates, without the shuffle of training, and reads their structures from the
 * store. A chain without hits gets no templates. The features are in the arena. Errors are those of
 * fm_templates_rank, fm_templates_choose, fm_templates_featurize and fm_store_load_structure. */
FM_MUST_USE fm_status fm_chain_templates(const fm_store *store, const fm_record *record,
                                         const fm_template_options *options, fm_arena *arena,
                                         fm_template_features *ret_features, fm_error *reterr);

#endif
